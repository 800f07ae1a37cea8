"""What every test runs under: offline, seeded, two threads; and the marks ``slow``, ``gpu`` and ``sample``."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from pathlib import Path

# Before anything imports torch or transformers.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")

import numpy as np
import pytest

with contextlib.suppress(ImportError):  # a borrowed GPU machine may lack it; its tests marked gpu still run
    from hypothesis import settings

    # Tests run on shared machines: a slow example is not a failing one, and the same examples come every time.
    settings.register_profile("effkit", deadline=None, derandomize=True, print_blob=True)
    settings.load_profile("effkit")

SEED = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = pytest.mark.skip(reason="slow; give --run-slow")
    gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "slow" in item.keywords and not config.getoption("--run-slow"):
            item.add_marker(slow)
        if "gpu" in item.keywords and not cuda_is_available():
            item.add_marker(gpu)


@functools.cache
def cuda_is_available() -> bool:
    """True where torch can use a CUDA device; asks only once, and only if a test needs one."""
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start every test from the same random state; torch only where it is already imported."""
    random.seed(SEED)
    np.random.seed(SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of ``sample:smollm2-135m``; the test is skipped where it cannot be fetched, except in CI."""
    from effkit.errors import SourceError
    from effkit.models.samples import fetch_sample

    try:
        path = fetch_sample("smollm2-135m")
    except SourceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"sample model not at hand: {error}")
    return path
