from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from effkit.measure.precision import full_fp32


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    convolution = torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before)
    torch.backends.cudnn.allow_tf32 = convolution


def test_reduced_precision_is_off_inside_and_back_as_the_user_had_it() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    with full_fp32():
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cudnn.allow_tf32 is False
        assert torch.backends.cuda.matmul.fp32_precision in {"ieee", "none"}
        assert torch.backends.mkldnn.matmul.fp32_precision in {"ieee", "none"}
        assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.get_float32_matmul_precision() == "medium"
    assert torch.backends.cudnn.allow_tf32 is True


def test_settings_come_back_after_an_error() -> None:
    torch.set_float32_matmul_precision("high")
    with pytest.raises(RuntimeError), full_fp32():
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == "high"


def test_a_users_newer_setting_comes_back_too() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with full_fp32():
            assert torch.backends.cuda.matmul.fp32_precision != "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_contexts_nest() -> None:
    with full_fp32(), full_fp32():
        pass
    assert torch.get_float32_matmul_precision() == "highest"
