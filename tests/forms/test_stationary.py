"""The three forms of Toeplitz strategies: matrices, inverses, error and sensitivity."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.forms import BandedInverse, BufferedToeplitz, StationaryStrategy, ToeplitzStrategy
from noisedesign.privacy.sensitivity import EXACT
from noisedesign.system.participation import MinSeparation, single
from noisedesign.system.workloads.toeplitz import GramWorkload, prefix_workload
from noisedesign.system.workloads.workload import prefix_gram
from tests.support import oracles

STRATEGIES = [
    ToeplitzStrategy(coefficients=np.array([2.0, -0.5, 0.3])),
    ToeplitzStrategy(coefficients=0.9 ** np.arange(80.0)),
    BandedInverse(coefficients=np.array([1.0, -0.6, -0.1, 0.05])),
    BufferedToeplitz(scales=np.array([0.3, 0.2]), decays=np.array([0.5, 0.95])),
    BufferedToeplitz(scales=np.array([0.5, 0.5, 0.0]), decays=np.array([0.0, 1.0, 0.4])),
    BufferedToeplitz(scales=np.array([0.2, 0.2]), decays=np.array([0.7, 0.7])),
]


@pytest.mark.parametrize("horizon", [1, 2, 3, 30, 100])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_c_and_its_inverse(strategy: StationaryStrategy, horizon: int) -> None:
    c, inverse = strategy.at(horizon).dense(), strategy.at(horizon).dense_noising()
    assert c.shape == inverse.shape == (horizon, horizon)
    np.testing.assert_array_equal(np.triu(c, 1), 0)
    np.testing.assert_allclose(c @ inverse, np.eye(horizon), atol=1e-12)


def test_buffers_by_hand() -> None:
    # c = 1, w1 + w2, w1 t1 + w2 t2, ...; 1 / c = 1, -c1, c1^2 - c2, ...
    strategy = BufferedToeplitz(scales=np.array([0.25, 0.5]), decays=np.array([0.5, 0.75]))
    c1, c2 = Fraction(3, 4), Fraction(1, 8) + Fraction(3, 8)
    np.testing.assert_allclose(strategy.strategy_column(3), [1, float(c1), float(c2)], rtol=1e-15)
    expected = [1, float(-c1), float(c1**2 - c2)]
    np.testing.assert_allclose(strategy.noising_column(3), expected, rtol=1e-14)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), buffers=st.integers(1, 6), full=st.booleans())
def test_inverse_of_buffers_in_closed_form(seed: int, buffers: int, full: bool) -> None:
    rng = np.random.default_rng(seed)
    scales = rng.random(buffers) * (rng.random(buffers) < 0.8)
    scales /= max(scales.sum(), 1e-9) * (1 if full else 1.5)
    decays = np.round(rng.random(buffers), 1)  # coincident, zero and one among them
    strategy = BufferedToeplitz(scales=scales, decays=decays)
    expected = np.linalg.inv(strategy.at(40).dense())[:, 0]
    np.testing.assert_allclose(strategy.noising_column(40), expected, atol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_error_and_sensitivity_are_those_of_the_matrices(strategy: StationaryStrategy) -> None:
    inverse = strategy.at(12).dense_noising()
    gram = prefix_gram(horizon=12)
    expected = np.trace(inverse.T @ gram @ inverse)
    for workload in (prefix_workload(horizon=12), GramWorkload(matrix=gram)):
        assert strategy.squared_error(workload) == pytest.approx(expected)
    squared = strategy.squared_sensitivity(single(12))
    assert squared.kind == EXACT
    assert squared.squared == pytest.approx((strategy.at(12).dense() ** 2).sum(axis=0).max())


def test_buffers_are_exact_under_min_separation() -> None:
    scheme = MinSeparation(horizon=8, separation=2, max_participations=3)
    for strategy in STRATEGIES[3:]:
        c = strategy.at(8).dense()
        gram = c.T @ c
        expected = max(gram[np.ix_(p, p)].sum() for p in oracles.min_separation_patterns(8, 2, 3))
        found = strategy.squared_sensitivity(scheme)
        assert (found.kind, found.squared) == (EXACT, pytest.approx(expected, rel=1e-12))


def test_vectors_kept() -> None:
    assert [strategy.vectors_kept(50) for strategy in STRATEGIES] == [2, 49, 3, 2, 3, 2]
    assert [strategy.vectors_kept(2) for strategy in STRATEGIES] == [1, 1, 1, 2, 3, 2]


def test_bad_strategies_are_refused() -> None:
    half, two = np.array([0.5]), np.array([0.5, 0.6])
    with pytest.raises(InputError, match="coefficients"):
        ToeplitzStrategy(coefficients=np.array([0.0, 1.0]))
    with pytest.raises(InputError, match="float64"):
        BandedInverse(coefficients=np.ones(2, dtype=np.float32))
    with pytest.raises(InputError, match="decays: expected 2, one per scale, got 1"):
        BufferedToeplitz(scales=np.array([0.1, 0.2]), decays=half)
    with pytest.raises(InputError, match="scales: expected values >= 0 of sum at most 1"):
        BufferedToeplitz(scales=two, decays=two)
    with pytest.raises(InputError, match="scales"):
        BufferedToeplitz(scales=-half, decays=half)
    with pytest.raises(InputError, match=r"decays: expected values in \[0, 1\], got 1.5"):
        BufferedToeplitz(scales=half, decays=3 * half)
    with pytest.raises(InputError, match="horizon"):
        STRATEGIES[0].at(0).dense()
