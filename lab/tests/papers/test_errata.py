"""Errors in print are shown on concrete small cases, next to what is used here."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.linalg import gram_factor, reversed_cholesky
from noisedesign.design.solve import solve
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.problem.calibration import calibrate
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from tests.support import oracles

FLORENTINE = nx.florentine_families_graph()


# --- Whisper D-SGD, problem (10): the direction of the inequality ---------------------------------


def test_whisper_problem_10_bounds_the_precision_from_above() -> None:
    epsilon, delta, clip, steps = 1.0, 1e-5, 1.0, 10
    printed = epsilon**2 / (16 * clip**2 * steps * math.log(1 / delta))

    def delta_at(r: np.ndarray, at: float) -> float:
        mu = 2 * clip * math.sqrt(steps * np.diagonal(np.linalg.inv(r)).max())
        return oracles.gaussian_delta(mu, at)

    # As printed, printed <= [R^-1]_ii: ever less noise is feasible, at a cost that goes to zero,
    # and protects nobody.
    w = oracles.metropolis(nx.cycle_graph(5))
    for variance in (1.0, 1e-1, 1e-2):
        r = variance * np.eye(5)
        assert (np.diagonal(np.linalg.inv(r)) >= printed).all()
        assert delta_at(r, 10 * epsilon) > 0.1
    # Reversed, the design meets the target with a positive cost, and uses its budget up.
    design = solve(SpaceProblem(mixing=w, budget=printed)).design
    assert design is not None
    precision = np.diagonal(np.linalg.inv(design.covariance))
    np.testing.assert_allclose(precision, printed, rtol=1e-5)
    assert (precision <= printed * (1 + 1e-12)).all()
    assert delta_at(design.covariance, epsilon) <= delta
    assert design.objective == pytest.approx(oracles.vertex_transitive_optimum(w) / printed)


# --- Whisper D-SGD, Theorem 2: the factor 1 / n ---------------------------------------------------


@pytest.mark.parametrize("n", [10, 100])
def test_whisper_theorem_2_does_not_improve_with_the_number_of_nodes(n: int) -> None:
    """Independent noise protects a node by itself: its guarantee cannot depend on n."""
    clip, steps, delta, variance = 1.0, 20, 1e-5, 400.0
    mu = 2 * clip * math.sqrt(steps / variance)  # all messages seen, one record replaced
    worst = 1 / variance
    factor = 2 * clip**2 * steps / n
    printed = factor * worst + math.sqrt(factor * math.log(1 / delta)) * worst
    # The mechanism is not (printed epsilon, delta)-DP: its delta there is far larger.
    assert oracles.gaussian_delta(mu, printed) > 1000 * delta
    # Without 1 / n and with [R^-1]_ii inside the root it is.
    used = 2 * clip**2 * steps * worst + 2 * clip * math.sqrt(
        2 * steps * worst * math.log(1 / delta)
    )
    assert used == pytest.approx(epsilon_of(mu=mu, delta=delta, conversion="rdp"), rel=1e-12)
    assert oracles.gaussian_delta(mu, used) <= delta
    # What the library asks of n nodes is the same for every n.
    problem = SpaceProblem(
        mixing=(oracles.metropolis(nx.cycle_graph(n)) + np.eye(n)) / 2,
        privacy=PrivacyTarget(epsilon=1.0, delta=delta, clip=clip, steps=steps),
    )
    expected = 2 * clip * math.sqrt(steps) / oracles.gaussian_mu(1.0, delta)
    assert calibrate(problem).noise_stddev == pytest.approx(expected, rel=1e-6)


# --- Mafalda-SGD, equation (8): the bound is on the square ----------------------------------------


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_mafalda_equation_8_bounds_the_square(scale: float) -> None:
    # Four participations in C = scale I: gradients of norm one move C G by 2 scale.
    c = scale * np.eye(4)
    change = np.zeros((4, 3))
    change[:, 0] = 1.0
    moved = float(np.linalg.norm(c @ change))
    assert moved == pytest.approx(2 * scale)
    bound = float(np.abs(c.T @ c).sum())
    assert moved**2 == pytest.approx(bound)
    if scale < 0.5:
        assert moved > bound  # printed without the square, it does not hold
    found = squared_sensitivity(c.T @ c, FixedEpoch(epochs=4, separation=1))
    assert found.squared == pytest.approx(moved**2, rel=1e-12)


# --- Mafalda-SGD, Lemma 10: which Cholesky factor -------------------------------------------------


def test_mafalda_lemma_10_by_hand() -> None:
    # H = [[2, 1], [1, 1]]: numpy's factor satisfies L L^T = H, and L^T L = [[2.5, .5], [.5, .5]].
    h = np.array([[2.0, 1], [1, 1]])
    ordinary = np.linalg.cholesky(h)
    np.testing.assert_allclose(ordinary.T @ ordinary, [[2.5, 0.5], [0.5, 0.5]])
    ours = reversed_cholesky(h)
    np.testing.assert_allclose(ours, [[1, 0], [1, 1]], atol=1e-15)  # the prefix sums themselves
    np.testing.assert_allclose(ours.T @ ours, h)


@pytest.mark.parametrize("weights", [oracles.metropolis, oracles.row_normalized])
def test_the_workload_is_recovered_from_its_gram_matrix(weights: object) -> None:
    assert callable(weights)
    h = oracles.gram_of_powers(weights(FLORENTINE), 24)
    factor = gram_factor(h)
    np.testing.assert_allclose(factor.T @ factor, h, rtol=1e-12)
    assert np.array_equal(factor, np.tril(factor))


@pytest.mark.parametrize("weights", [oracles.metropolis, oracles.row_normalized])
@pytest.mark.parametrize(("epochs", "separation"), [(1, 32), (4, 8), (8, 8)])
def test_the_wrong_factor_costs_up_to_two_percent(
    weights: object, epochs: int, separation: int
) -> None:
    """Factor the order-reversed H, forget to reverse back, and optimise tr(X^-1 L^T L)."""
    assert callable(weights)
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    h = oracles.gram_of_powers(weights(FLORENTINE), scheme.horizon)
    right = solve(TimeProblem.from_gram(gram=h, participation=scheme), gap=1e-7).design
    assert right is not None

    def excess(gram: np.ndarray) -> float:
        """The strategy that is optimal for another H is so much dearer under the true one."""
        problem = TimeProblem.from_gram(gram=(gram + gram.T) / 2, participation=scheme)
        design = solve(problem, gap=1e-7).design
        assert design is not None
        noise = np.linalg.inv(design.strategy)
        return float(np.trace(h @ noise @ noise.T) / right.objective - 1)

    unreversed = np.linalg.cholesky(h[::-1, ::-1])
    assert 0.003 < excess(unreversed.T @ unreversed) < 0.02
    ordinary = np.linalg.cholesky(h)
    assert excess(ordinary.T @ ordinary) > 0.05
    ours = reversed_cholesky(h)
    assert abs(excess(ours.T @ ours)) < 1e-6
