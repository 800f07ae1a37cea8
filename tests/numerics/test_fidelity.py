"""Fidelity figures: a wrong global scale shows in the relative error although the cosine is 1."""

from __future__ import annotations

import math

import torch

from effkit.numerics.fidelity import cosine_similarity, relative_error, sqnr_db


def test_a_wrong_scale_is_seen_by_relative_error_only() -> None:
    reference = torch.arange(1.0, 9.0)
    assert math.isclose(cosine_similarity(2 * reference, reference), 1.0)
    assert math.isclose(relative_error(2 * reference, reference), 1.0)


def test_sqnr_of_a_tenth_of_noise_is_twenty_decibel() -> None:
    reference = torch.ones(100)
    assert math.isclose(sqnr_db(reference * 1.1, reference), 20.0, abs_tol=1e-4)


def test_equal_tensors_lose_nothing() -> None:
    reference = torch.ones(3)
    assert relative_error(reference, reference) == 0.0
    assert sqnr_db(reference, reference) == math.inf


def test_zero_references_are_not_divided_by() -> None:
    zero, one = torch.zeros(3), torch.ones(3)
    assert relative_error(zero, zero) == 0.0
    assert relative_error(one, zero) == math.inf
    assert cosine_similarity(one, zero) == 0.0
