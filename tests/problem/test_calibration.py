"""Noise is scaled to the target of the least protected node, over all steps of a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from tests.support import oracles
from tests.support.mixture_oracles import worst_delta

RING = nd.build_graph("ring", nodes=4)
BUDGETS = ([1.0, 1.0, 1.0, 9.0], [9.0, 1.0, 1.0, 1.0], [0.1, 4.0, 0.5, 2.0], [3.0] * 4)
CLIP = 0.5

SCHEMES: dict[str, tuple[Any, int]] = {
    "once": (nd.participation.single(6), 1),
    "three epochs": (nd.participation.FixedEpoch(epochs=3, separation=2), 3),
    "apart": (nd.participation.MinSeparation(horizon=7, separation=2, max_participations=3), 3),
    "every step": (nd.participation.every_step(5), 5),
}
"""And in how many steps a record takes part at most, by hand."""


def target(adjacency: str = "replace", epsilon: float = 2.0) -> nd.PrivacyTarget:
    return nd.PrivacyTarget(epsilon=epsilon, delta=1e-4, clip=CLIP, adjacency=adjacency)


def in_space(budget: Any, scheme: Any, **words: Any) -> nd.SpaceProblem:
    return nd.SpaceProblem.from_graph(
        RING, budget=np.asarray(budget), participation=scheme, privacy=target(**words)
    )


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("name", SCHEMES)
def test_the_least_protected_node_meets_the_target_in_all_its_steps(
    name: str, budget: list[float]
) -> None:
    """mu^2 = D^2 k b / stddev^2, b the largest budget, and delta of that mu by its integral."""
    scheme, times = SCHEMES[name]
    for adjacency, change in (("replace", 2 * CLIP), ("zero-out", CLIP)):
        found = nd.calibrate(in_space(budget, scheme, adjacency=adjacency))
        assert found.noise_stddev == pytest.approx(CLIP * found.noise_multiplier)
        mu = change * np.sqrt(times * max(budget)) / found.noise_stddev
        assert mu == pytest.approx(found.mu, rel=1e-12)
        assert oracles.gaussian_delta(mu, 2.0) == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("epochs", [1, 3])
def test_chance_is_counted_for_the_least_protected_node(epochs: int, budget: list[float]) -> None:
    """Two bins: the view of a record in k steps, at the largest budget, has squared length k b D^2
    over the variance, in either of two orthogonal directions; its delta by quadrature."""
    scheme = nd.participation.BallsInBins(epochs=epochs, separation=2)
    found = nd.calibrate(in_space(budget, scheme, adjacency="zero-out"))
    assert found.mu is None
    squared = CLIP**2 * epochs * max(budget) / found.noise_stddev**2
    delta = worst_delta(squared * np.eye(2), 2.0)
    assert 0.98e-4 <= delta <= 1e-4


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_only_the_largest_budget_and_how_often_a_record_is_used_count(adjacency: str) -> None:
    """Under chance too: k steps at budget b are one at k b, of sqrt(k b) times the noise."""
    one = nd.calibrate(
        in_space(
            [1.0] * 4, nd.participation.BallsInBins(epochs=1, separation=3), adjacency=adjacency
        )
    )
    for epochs, budget in zip((1, 2, 4), BUDGETS, strict=False):
        scheme = nd.participation.BallsInBins(epochs=epochs, separation=3)
        found = nd.calibrate(in_space(budget, scheme, adjacency=adjacency))
        factor = np.sqrt(epochs * max(budget))
        assert found.noise_multiplier == pytest.approx(factor * one.noise_multiplier, rel=1e-6)


def test_a_node_that_is_protected_more_does_not_lower_the_noise() -> None:
    """In space and time a record of node u moves what is seen by its own budget."""
    scheme = nd.participation.FixedEpoch(epochs=2, separation=2)
    for budget in BUDGETS:
        problem = nd.SpaceTimeProblem.from_graph(
            RING, budget=np.asarray(budget), participation=scheme, privacy=target()
        )
        found = nd.calibrate(problem)
        mu = 2 * CLIP * np.sqrt(max(budget)) / found.noise_stddev
        assert mu == pytest.approx(found.mu, rel=1e-12)
        assert oracles.gaussian_delta(mu, 2.0) == pytest.approx(1e-4, rel=1e-6)
