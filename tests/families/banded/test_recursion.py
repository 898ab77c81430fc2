"""H with a short memory: found, and the error by recursion."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.banded_matrices import BandedError, dense
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.repair import unit_strategy
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import banded_lower_bound
from noisedesign.families.banded.program import banded_program
from noisedesign.families.banded.recursion import LONGEST_MEMORY, RecursiveError, inverse_factor
from noisedesign.system.participation import single
from tests.support.banded_cases import (
    by_columns,
    min_sep,
    prefix,
    random_band,
    random_gram,
    summation,
)


def test_prefix_sums_remember_one_step() -> None:
    found = inverse_factor(summation(5), tolerance=1e-12)
    assert found is not None
    expected = np.array([[1.0, -1], [1, -1], [1, -1], [1, -1], [1, 0]])
    assert found == pytest.approx(expected, abs=1e-14)


def test_momentum_and_rates_remember_two() -> None:
    """y_t = y_{t-1} + rate_t m_t, m_t = 0.9 m_{t-1} + x_t, against the dense inverse."""
    rates = np.linspace(1, 0.1, 30)
    momentum = np.linalg.inv(np.eye(30) - 0.9 * np.eye(30, k=-1))
    factor = np.tril(summation(30) @ (rates[:, None] * momentum))
    found = inverse_factor(factor, tolerance=1e-9)
    assert found is not None
    assert found.shape == (30, 3)
    assert found == pytest.approx(by_columns(np.linalg.inv(factor), 3), abs=1e-9)


def test_the_longest_memory_is_found_and_a_longer_one_is_not() -> None:
    for memory in (0, LONGEST_MEMORY, LONGEST_MEMORY + 1):
        inverse = np.eye(40) + 0.1 * np.eye(40, k=-memory)
        found = inverse_factor(np.linalg.inv(inverse), tolerance=1e-12)
        if memory > LONGEST_MEMORY:
            assert found is None
        else:
            assert found is not None
            assert found == pytest.approx(by_columns(inverse, memory + 1), abs=1e-13)
    short = np.linalg.inv(np.eye(3) - 0.5 * np.eye(3, k=-2))
    found = inverse_factor(short, tolerance=1e-12)
    assert found is not None
    assert found.shape == (3, 3)


def test_a_memory_is_taken_for_short_within_the_tolerance_only() -> None:
    """A far entry of 1e-6 in L leaves L N - I = 1e-6 there: invisible to the diagonal blocks."""
    factor = summation(40)
    factor[-1, 0] += 1e-6
    assert inverse_factor(factor, tolerance=0.9e-6) is None
    found = inverse_factor(factor, tolerance=1.1e-6)
    assert found is not None
    assert found.shape == (40, 2)
    assert inverse_factor(factor.T, tolerance=1.0) is None  # no lower triangle


@pytest.mark.parametrize(
    ("horizon", "bands", "memory"),
    [(1, 1, 0), (2, 1, 1), (7, 7, 1), (16, 3, 0), (17, 3, 2), (50, 20, 3), (64, 16, 1), (75, 5, 4)],
)
def test_recursive_error_and_gradient_by_dense_algebra(
    horizon: int, bands: int, memory: int
) -> None:
    """tr(H (C^T C)^-1) and -2 C X^-1 H X^-1 on the band; entries beyond the horizon are ignored."""
    n = random_band(horizon, memory + 1, seed=horizon)
    c = random_band(horizon, bands, seed=horizon + 1)
    factor = np.linalg.inv(n)
    gram, inverse = factor.T @ factor, np.linalg.inv(c.T @ c)
    columns = by_columns(c, bands)
    columns[np.arange(horizon)[:, None] + np.arange(bands) >= horizon] = 7.0
    value, gradient = RecursiveError(by_columns(n, memory + 1), bands)(columns)
    assert value == pytest.approx(float(np.sum(gram * inverse)), rel=1e-11)
    expected = by_columns(-2 * c @ inverse @ gram @ inverse, bands)
    assert gradient == pytest.approx(expected, rel=1e-8, abs=1e-9 * float(np.abs(expected).max()))


def test_the_search_takes_the_recursion_where_it_pays() -> None:
    """And the same objective either way."""
    scheme = min_sep(80, 8, 3)
    short = banded_program(gram=prefix(80), participation=scheme, bands=8)
    variables = banded._Variables(short)
    assert isinstance(variables.error, RecursiveError)
    value, gradient = variables.value_and_gradient(variables.start())
    variables.error = BandedError(short.gram, 8)
    by_blocks = variables.value_and_gradient(variables.start())
    assert value == pytest.approx(by_blocks[0], rel=1e-12)
    assert gradient == pytest.approx(by_blocks[1], rel=1e-9, abs=1e-12)
    long = banded_program(gram=random_gram(80, 0), participation=scheme, bands=8)
    assert isinstance(banded._Variables(long).error, BandedError)
    whole = banded_program(gram=prefix(80), participation=single(80), bands=80)
    assert isinstance(banded._Variables(whole).error, BandedError)


def test_a_memory_that_is_nearly_short_is_solved_as_what_it_is() -> None:
    """H off by 1e-6 of itself: at a gap of 1e-7 no short memory; the true optimum is certified."""
    factor = summation(70)
    factor[-1, 0] += 1e-3
    program = banded_program(gram=factor.T @ factor, participation=single(70), bands=3)
    assert isinstance(banded._Variables(program, negligible=1e-2).error, RecursiveError)
    answer = banded.solve(program, monitor=Monitor(gap=1e-7))
    assert answer.stop is Stop.SOLVED
    strategy = unit_strategy(program, dense(answer.columns))
    value = float(np.sum(program.gram * np.linalg.inv(strategy.T @ strategy)))
    assert value <= banded_lower_bound(program, answer.multipliers) * (1 + 1e-7)
