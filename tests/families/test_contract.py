"""The contract every family keeps, over problems whose optimum is known without the library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from noisedesign.files.design_file import load_design, save_design
from noisedesign.tasks.solve import Solution, solve
from noisedesign.tasks.verify import verify
from tests.support.family_cases import CASES

GAP = 1e-8
"""Far below what a bound would have to be off by to be noticed, and above what rounding costs."""
KNOWN = 2e-8
"""To which optima are known, relative, those of conic models included."""
REACHED = 1e-7
"""Of the optimum, which bounds reach: one that is a millionth too high is above it."""

every_case = pytest.mark.parametrize("name", CASES)


@cache
def solved(name: str) -> Solution:
    return solve(CASES[name].problem, gap=GAP)


@cache
def optimum(name: str) -> float:
    return CASES[name].optimum()


@cache
def bounded(name: str) -> float:
    """The optimum that the lower bound is about."""
    case = CASES[name]
    return optimum(name) if case.bounded is None else case.bounded()


@every_case
def test_the_noise_is_as_good_as_any(name: str) -> None:
    solution = solved(name)
    assert solution.feasible
    assert solution.certificate is not None
    assert solution.certificate.objective == pytest.approx(optimum(name), rel=GAP + KNOWN)


@every_case
def test_the_bound_is_none_too_high_and_reaches_the_optimum(name: str) -> None:
    certificate = solved(name).certificate
    assert certificate is not None
    assert certificate.lower_bound <= certificate.objective
    assert certificate.lower_bound <= bounded(name) * (1 + KNOWN)
    if CASES[name].tight:
        assert certificate.lower_bound >= bounded(name) * (1 - REACHED)
    if certificate.unrestricted_lower_bound is not None:
        assert certificate.unrestricted_lower_bound <= optimum(name) * (1 + KNOWN)


@every_case
def test_its_own_design_is_accepted(name: str, tmp_path: Path) -> None:
    solution = solved(name)
    assert verify(solution).ok
    stored = load_design(save_design(solution.design, tmp_path / "design.npz"))
    assert verify(stored).ok
    assert verify(stored, problem=CASES[name].problem).ok
    again = load_design(save_design(stored.design, tmp_path / "again.npz"))
    assert again.arrays.keys() == stored.arrays.keys()
    for array in stored.arrays:
        np.testing.assert_array_equal(again.arrays[array], stored.arrays[array])
