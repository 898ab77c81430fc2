"""Designs under one measure at their targets, against recursions of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.accounting import mu_of
from tests.support import endless

W = nd.mixing_matrix(nd.build_graph("path", nodes=3), weights="lazy-metropolis-hastings")
TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.5)
EPOCHS, APART = 2, 3
STEPS = EPOCHS * APART
FIXED = nd.participation.FixedEpoch(epochs=EPOCHS, separation=APART)
SCALE = (2 * 0.5 / mu_of(epsilon=2.0, delta=1e-5)) ** 2  # of noise of unit sensitivity, squared


def error_of(noise: np.ndarray, measure: nd.ErrorMeasure) -> float:
    """The error of noise z_t = sum of columns, (T, n, columns), by the recursion itself."""
    total = 0.0
    for at, weight in zip(np.atleast_1d(measure.curvatures), [1.0, 3.0], strict=False):
        x, last = np.zeros(noise.shape[1:]), measure.of == "loss"
        for t, z in enumerate(noise):
            x = W @ (x - measure.rates[t] * (at * x + z))
            if not last or t == len(noise) - 1:
                squared = np.square(x).sum()
                total += weight * squared * (at / 2 / len(W) if last else 1.0)
    return float(total)


def columns_of(design: nd.Design) -> np.ndarray:
    """Noise of a run as columns of independent normals, (T, n, columns), at the budgets."""
    noise, n = design.noise, len(W)
    if noise.full:
        inverse = np.linalg.inv(design.strategy)
        return inverse.reshape(STEPS, n, STEPS * n)
    over = np.eye(STEPS) if noise.strategy is None else np.linalg.inv(design.strategy)
    across = np.eye(n) if noise.space is None else np.linalg.cholesky(noise.covariance)
    return np.einsum("ts,ij->tisj", over, across).reshape(STEPS, n, -1)


PROBLEMS: dict[str, Any] = {
    "space": (nd.SpaceProblem, {}),
    "edges": (nd.SpaceProblem, {"structure": nd.SpaceStructure(kind="edge-local")}),
    "time": (nd.TimeProblem.decentralized, {}),
    "bands": (
        nd.TimeProblem.decentralized,
        {"structure": nd.TimeStructure(kind="banded", bands=2)},
    ),
    "pair": (nd.SpaceTimeProblem, {}),
    "modes": (nd.SpaceTimeProblem, {"joint": "modal"}),
    "full": (nd.SpaceTimeProblem, {"joint": "full"}),
}
MEASURES = {
    "all": nd.ErrorMeasure(horizon=STEPS),
    "loss": nd.ErrorMeasure(
        horizon=STEPS,
        of="loss",
        curvature=[0.1, 0.7],
        curvature_weights=[1.0, 3.0],
        learning_rates=np.linspace(1.0, 0.2, STEPS),
    ),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_recursion_agrees(name: str, measure: str) -> None:
    kind, how = PROBLEMS[name]
    design = nd.solve(kind(mixing=W, participation=FIXED, privacy=TARGET, **how)).design
    assert design is not None
    found = nd.evaluate(design, error=MEASURES[measure])
    # A record is in two steps, whose changes of noise afresh add up squared.
    scale = SCALE * (EPOCHS if design.noise.strategy is None else 1)
    expected = scale * error_of(columns_of(design), MEASURES[measure])
    np.testing.assert_allclose(found.error, expected, rtol=1e-8)
    plain = np.einsum("ts,ij->tisj", np.eye(STEPS), np.eye(3)).reshape(STEPS, 3, -1)
    independent = EPOCHS * SCALE * error_of(plain, MEASURES[measure])
    np.testing.assert_allclose(found.independent, independent, rtol=1e-8)
    np.testing.assert_allclose(found.relative, expected / independent, rtol=1e-7)


def test_random_batches_have_noise_of_their_own() -> None:
    """In space the design is that of fixed batches, and only its scale is less."""
    measure = MEASURES["all"]
    drawn = nd.participation.BallsInBins(epochs=EPOCHS, separation=APART)
    errors = []
    for scheme in (FIXED, drawn):
        problem = nd.SpaceProblem(mixing=W, participation=scheme, privacy=TARGET)
        found = nd.evaluate(nd.solve(problem), error=measure)
        errors.append(found.error / nd.calibrate(problem).noise_stddev ** 2)
    np.testing.assert_allclose(*errors, rtol=1e-9)


def test_the_measure_that_is_not_said() -> None:
    """The problem's own where it counts the whole run, else that of all iterates."""
    once = nd.SpaceProblem(mixing=W, participation=FIXED, privacy=TARGET)
    assert nd.evaluate(nd.solve(once)).of == "all-iterates"
    assert nd.evaluate(nd.solve(once)).horizon == STEPS
    last = nd.ErrorMeasure(horizon=STEPS, of="last-iterate")
    timed = nd.TimeProblem.decentralized(mixing=W, participation=FIXED, error=last)
    design = nd.solve(timed).design
    assert design is not None
    found = nd.evaluate(design)
    assert found.of == "last-iterate"
    np.testing.assert_allclose(found.error, design.objective, rtol=1e-9)
    assert found.noise_stddev == 1.0


def test_another_mixing() -> None:
    """Exact averages: every step adds the variance of the mean to every model."""
    problem = nd.TimeProblem.prefix(participation=nd.participation.single(4))
    design = nd.solve(problem).design
    assert design is not None
    found = nd.evaluate(design, mixing=np.full((2, 2), 0.5))
    # Prefix sums of one node: two models of half its variance.
    np.testing.assert_allclose(found.error, design.objective, rtol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_noise_without_a_horizon_by_the_recursion(measure: str) -> None:
    """Buffers of finite sensitivity, with noise for it: the first steps of a run for ever."""
    problem = nd.UnboundedProblem(
        mixing=W, max_participations=EPOCHS, separation=APART, privacy=TARGET
    )
    design = endless.by_hand(problem)
    column = endless.strategy(400)[:, 0]  # of which the rest is nothing
    apart = float(column[:-APART] @ column[APART:])
    stddev = np.sqrt(SCALE * EPOCHS * (column @ column + apart))
    noise = stddev * np.linalg.inv(endless.strategy(STEPS))
    columns = np.einsum("ts,ij->tisj", noise, np.eye(3)).reshape(STEPS, 3, -1)
    found = nd.evaluate(design, error=MEASURES[measure])
    np.testing.assert_allclose(found.error, error_of(columns, MEASURES[measure]), rtol=1e-8)
    plain = np.einsum("ts,ij->tisj", np.eye(STEPS), np.eye(3)).reshape(STEPS, 3, -1)
    independent = EPOCHS * SCALE * error_of(plain, MEASURES[measure])
    np.testing.assert_allclose(found.independent, independent, rtol=1e-8)


def test_keys_of_a_measure_are_enough() -> None:
    problem = nd.TimeProblem.decentralized(mixing=W, participation=FIXED)
    design = nd.solve(problem)
    found = nd.evaluate(design, error={"of": "last-iterate"})
    last = nd.ErrorMeasure(horizon=STEPS, of="last-iterate")
    assert found.error == nd.evaluate(design, error=last).error
    for wrong in ({"off": 1}, {"of": "x"}, {"horizon": 3}):
        (key,) = wrong
        with pytest.raises(InputError, match=rf"error\.{key}"):
            nd.evaluate(design, error=wrong)
    without_end = endless.by_hand(nd.UnboundedProblem(mixing=W, privacy=TARGET))
    for measure in (None, {"of": "last-iterate"}):
        with pytest.raises(InputError, match=r"error\.horizon: expected the number of steps"):
            nd.evaluate(without_end, error=measure)


def test_bad_input_is_named() -> None:
    design = nd.solve(nd.TimeProblem.prefix(participation=nd.participation.single(4))).design
    with pytest.raises(InputError, match="mixing: expected W"):
        nd.evaluate(design)
    with pytest.raises(InputError, match=r"error\.horizon: expected 4"):
        nd.evaluate(design, mixing=W, error=nd.ErrorMeasure(horizon=3))
    with pytest.raises(InputError, match="sum over steps"):
        nd.evaluate(design, mixing=W, error=nd.ErrorMeasure(horizon=4, of="worst"))
    with pytest.raises(InputError, match="design: expected a design"):
        nd.evaluate("design.npz")
    server = nd.baseline(nd.SpaceProblem(mixing=W), "cdp")
    with pytest.raises(InputError, match="protects every message"):
        nd.evaluate(server)
