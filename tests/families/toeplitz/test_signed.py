"""Coefficients and buffers of any sign: against matrices, a conic program and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.families.toeplitz.signed import Turning, log_sensitivity
from noisedesign.families.toeplitz.solver import log_objective, optimize_buffered, optimize_toeplitz
from noisedesign.forms import SignedBuffers
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads.toeplitz import prefix_workload

TURNING = SignedBuffers(scales=[0.2, 0.05, -0.1], decays=[0.9, 0.9, -0.4], turns=[0.2, -0.2, 0.0])
"""A pair of decays 0.9 +- 0.2 i, and a buffer whose sign changes."""


def matrix(column: np.ndarray) -> np.ndarray:
    return np.tril(scipy.linalg.toeplitz(column))


def signs_of(gram: np.ndarray) -> float:
    """The largest x^T G x over x of entries -1 and 1, all of them tried."""
    return max(float(np.array(x) @ gram @ x) for x in itertools.product((-1, 1), repeat=len(gram)))


@pytest.mark.parametrize("scheme", [single(9), every_step(5), FixedEpoch(epochs=4, separation=3)])
@pytest.mark.parametrize("sharpness", [1e-1, 1e-4])
def test_the_bound_is_above_every_sensitivity(scheme: FixedEpoch, sharpness: float) -> None:
    """Vectors that are numbers attain what signs do; absolute values are at least the truth."""
    rng, horizon = np.random.default_rng(1), scheme.horizon
    size = log_sensitivity(scheme, sharpness=sharpness)
    for spread in (0.1, 0.5, 1.0):
        column = np.concatenate([[1.0], spread * rng.normal(size=horizon - 1)])
        bound = np.exp(size(column)[0])
        c = matrix(column)
        for steps in scheme.patterns:
            gram = (c.T @ c)[np.ix_(steps, steps)]
            assert signs_of(gram) <= bound * (1 + 1e-12)
    # Without negative entries it is their sum but for the smoothing, of log k at most.
    column = 0.5 ** np.arange(horizon)
    c, steps = matrix(column), scheme.patterns[0]
    truth = float((c.T @ c)[np.ix_(steps, steps)].sum())
    bound = np.exp(size(column)[0])
    assert truth * (1 - 1e-12) <= bound
    assert bound <= truth * (1 + sharpness * np.log(len(steps)) + 1e-12)


def test_gradients_are_those_of_differences() -> None:
    rng, family = np.random.default_rng(0), Turning(horizon=15, pairs=2)
    x = np.concatenate([-30 * rng.random(size=5), [50.0, 15.0, 90.0], [25.0, 30.0]])
    scheme = FixedEpoch(epochs=3, separation=5)
    size = log_sensitivity(scheme, sharpness=1e-2)
    objective = log_objective(family, prefix_workload(horizon=15), size)
    for k, slope in enumerate(objective(x)[1]):
        ahead, behind = (objective(x + h * np.eye(len(x))[k])[0] for h in (1e-4, -1e-4))
        assert slope == pytest.approx((ahead - behind) / 2e-4, rel=1e-6, abs=1e-8)
    # Nothing here is positive: the bound is another one than the sum.
    column = family.column(x)
    columns = matrix(column)[:, ::5]
    assert np.exp(size(column)[0]) > 1.01 * float(np.sum(columns.T @ columns))


def test_few_buffers_come_back_from_their_coefficients() -> None:
    column = TURNING.strategy_column(40)
    family, x = Turning.reduced(column, buffers=3)
    np.testing.assert_allclose(family.column(x), column, atol=1e-13)
    found = family.strategy(x)
    assert family.pairs == 1
    np.testing.assert_allclose(np.sort(found.decays), [-0.4, 0.9, 0.9], atol=1e-12)
    np.testing.assert_allclose(np.sort(found.turns), [-0.2, 0.0, 0.2], atol=1e-12)
    np.testing.assert_allclose(found.strategy_column(40), column, atol=1e-13)


def test_the_inverse_of_buffers_is_that_of_their_matrix() -> None:
    inverse = np.linalg.inv(TURNING.at(30).dense())[:, 0]
    np.testing.assert_allclose(TURNING.noising_column(30), inverse, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turns": [0.2, 0.2, 0.0]}, r"strategy\.turns: expected tau and -tau"),
        ({"turns": [0.2, -0.2]}, r"strategy\.turns: expected 3, one per scale"),
        ({"decays": [0.99, 0.99, -0.4]}, r"decay\^2 \+ turn\^2 <= 1"),
        ({"decays": [0.9, 0.9, -1.1]}, r"values in \[-1, 1\]"),
        ({"scales": [-2.0, 0.05, -0.1]}, r"strategy\.scales: expected those of a C\^-1 that"),
    ],
)
def test_buffers_that_are_refused(change: dict, message: str) -> None:
    parts = {"scales": [0.2, 0.05, -0.1], "decays": [0.9, 0.9, -0.4], "turns": [0.2, -0.2, 0.0]}
    with pytest.raises(InputError, match=message):
        SignedBuffers(**{**parts, **change})


def test_signs_pay_in_several_epochs() -> None:
    """(4, 16): measured against positive ones, and judged by the definition, dense."""
    workload, scheme = prefix_workload(horizon=64), FixedEpoch(epochs=4, separation=16)
    given = {"workload": workload, "participation": scheme}
    positive = optimize_buffered(buffers=3, **given)
    best = optimize_toeplitz(signed=True, **given)
    assert best.objective < 0.98 * optimize_toeplitz(**given).objective
    for buffers, share in ((1, 1.001), (3, 0.95), (6, 0.93)):
        found = optimize_buffered(buffers=buffers, signed=True, **given)
        assert best.objective < found.objective <= share * positive.objective
        assert len(found.strategy.scales) == buffers
        c = found.strategy.at(64).dense()
        noise = np.tril(np.ones((64, 64))) @ np.linalg.inv(c)
        grams = [(c.T @ c)[np.ix_(steps, steps)] for steps in scheme.patterns]
        truth = max(map(signs_of, grams)) * float(np.square(noise).sum())
        # Vectors may do more than numbers, by a little here.
        assert truth <= found.objective * (1 + 1e-9)
        assert found.objective <= truth * (1 + 1e-3)
        if buffers > 1:
            assert min(gram.min() for gram in grams) < 0 or c.min() < 0


def test_one_participation_has_nothing_to_gain() -> None:
    given = {"workload": prefix_workload(horizon=20), "participation": single(20)}
    positive = optimize_buffered(buffers=2, **given)
    found = optimize_buffered(buffers=2, signed=True, **given)
    assert 0.999 < found.objective / positive.objective <= 1 + 1e-12
    whole = optimize_toeplitz(signed=True, **given)
    assert whole.objective == optimize_toeplitz(**given).objective


@pytest.mark.parametrize("kind", ["signed-toeplitz", "signed-blt"])
def test_other_schemes_are_refused(kind: str) -> None:
    scheme = MinSeparation(horizon=9, separation=3, max_participations=2)
    buffers = 2 if kind == "signed-blt" else None
    structure = TimeStructure(kind=kind, buffers=buffers)
    problem = TimeProblem.prefix(participation=scheme, structure=structure)
    with pytest.raises(InputError, match=r"participation: expected \(k, b\) participation, for"):
        solve(problem)
    optimize = optimize_buffered if buffers else optimize_toeplitz
    more = {"buffers": buffers} if buffers else {}
    with pytest.raises(InputError, match=r"participation: expected \(k, b\) participation, for"):
        optimize(workload=prefix_workload(horizon=9), participation=scheme, signed=True, **more)


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 6, 7])
def test_short_runs(horizon: int) -> None:
    """Few steps have fewer Hankel rows than buffers: no more is asked of them."""
    given = {"workload": prefix_workload(horizon=horizon), "participation": every_step(horizon)}
    found = optimize_buffered(buffers=3, signed=True, **given)
    positive = optimize_buffered(buffers=3, **given)
    assert found.objective <= positive.objective * (1 + 1e-12)
    assert optimize_toeplitz(**given).lower_bound_of_unrestricted_optimum <= found.objective
