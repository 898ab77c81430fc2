"""Mixings of least noise for a problem: the envelope theorem, neighbours, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design import least_noise
from noisedesign.design.least_noise import least_noise_mixing
from noisedesign.design.solve import solve
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.views import pndp
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.directed import directed_mixing
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.random_mixing import EdgeDropout
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.weight_cases import PAW, norm_by_svd, with_weights

TWICE = FixedEpoch(epochs=2, separation=2)
W = oracles.metropolis(PAW)
SEVERAL: dict[str, Problem] = {
    "space": SpaceProblem(mixing=W, error=ErrorMeasure(horizon=3), max_variance=4.0),
    "rounds": SpaceProblem(mixing=W, rounds=2),
    "floor": SpaceProblem(mixing=W, min_variance=1.1, max_variance=6.0),
    "time": TimeProblem.decentralized(mixing=W, participation=TWICE),
    "space-time": SpaceTimeProblem(mixing=W, participation=FixedEpoch(epochs=1, separation=2)),
}
BALANCED = directed_mixing(
    nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 1)]), weights="doubly-stochastic"
)
COUNTED = {"step_weights": [0.0, 1.0, 2.0], "node_weights": [1.0, 2.0, 0.5, 3.0]}
LOSS = {"of": "loss", "curvature": [0.1, 0.4], "learning_rates": [0.9, 0.7, 0.5], "momentum": 0.5}
OTHER: dict[str, Problem] = {
    "consensus": SpaceProblem(
        mixing=W, error=ErrorMeasure(horizon=2, of="consensus"), max_variance=4.0
    ),
    "weights": SpaceProblem(mixing=W, error=ErrorMeasure(horizon=3, **COUNTED), max_variance=4.0),
    "loss": SpaceProblem(mixing=W, error=ErrorMeasure(horizon=3, **LOSS), max_variance=4.0),
    "last": TimeProblem.decentralized(
        mixing=W, participation=TWICE, error=ErrorMeasure(horizon=4, of="last-iterate"), rounds=2
    ),
    "worst": TimeProblem.decentralized(
        mixing=W, participation=TWICE, error=ErrorMeasure(horizon=4, of="worst")
    ),
    "full": SpaceTimeProblem(
        mixing=W, participation=FixedEpoch(epochs=1, separation=2), joint="full"
    ),
    "arcs": SpaceProblem(mixing=BALANCED, error=ErrorMeasure(horizon=3), max_variance=4.0),
    "arcs-in-time": TimeProblem.decentralized(mixing=BALANCED, participation=TWICE),
    "arcs-kronecker": SpaceTimeProblem(
        mixing=BALANCED, participation=FixedEpoch(epochs=1, separation=2)
    ),
}


def optimum(problem: Problem, mixing: np.ndarray) -> float:
    certificate = solve(problem.with_mixing(mixing), gap=1e-8).certificate
    assert certificate is not None
    return certificate.objective


def changes_of(w: np.ndarray) -> list[np.ndarray]:
    """Directions along which W stays doubly stochastic: of links, or round cycles of arcs."""
    if (w == w.T).all():
        across = [np.eye(4)[i] - np.eye(4)[j] for i, j in PAW.edges]
        return [np.outer(a, a) for a in across]
    cycles = ([0, 1, 2], [1, 2, 3])
    rolled = [np.eye(4)[_along(cycle)] for cycle in cycles]
    return [permutation - np.eye(4) for permutation in rolled]


def _along(cycle: list[int]) -> np.ndarray:
    """The order that hands every node of a cycle what the one before it has."""
    order = np.arange(4)
    order[cycle[1:] + cycle[:1]] = cycle
    return order


@pytest.mark.parametrize("name", ["space", "rounds", "time", *OTHER])
def test_the_gradient_is_that_of_the_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_noise, "LOCAL_GAP", 1e-9)
    problem = (SEVERAL | OTHER)[name]
    w = problem.mixing
    assert w is not None
    _, slope = least_noise._error(problem, w)
    for change in changes_of(w):
        h = 1e-4
        ahead, behind = (optimum(problem, w + sign * h * change) for sign in (1, -1))
        assert np.sum(slope * change) == pytest.approx((ahead - behind) / (2 * h), rel=1e-3)


SLOW = ("floor", "worst", "consensus", "loss", "weights", "full", "last", "arcs-kronecker")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in SEVERAL | OTHER]
)
def test_no_neighbour_is_better(name: str) -> None:
    problem = (SEVERAL | OTHER)[name]
    given = problem.mixing
    assert given is not None
    rate = max(norm_by_svd(given), 0.9 if "arcs" in name else 0)
    found = least_noise_mixing(problem, mixing_rate=rate)
    assert found.status == "local"
    assert found.lower_bound is None
    w = found.mixing
    np.testing.assert_array_equal(w > 0, given > 0)
    np.testing.assert_allclose([w.sum(axis=0), w.sum(axis=1)], 1, atol=1e-12)
    assert found.norm == pytest.approx(norm_by_svd(w), rel=1e-12)
    assert found.norm <= found.mixing_rate == pytest.approx(rate, rel=1e-14)
    best = optimum(problem, w)
    assert best == pytest.approx(optimum(found.problem, w), rel=1e-6)
    # On the digraph there are but two cycles to choose between.
    assert best < (1 - (1e-4 if "arcs-" in name else 1e-3)) * optimum(problem, given)
    rng, changes = np.random.default_rng(0), changes_of(given)
    for _ in range(8):
        there = w - 0.02 * np.tensordot(rng.normal(size=len(changes)), changes, axes=1)
        if there.min() >= 0 and norm_by_svd(there) <= rate:
            # What barriers, the last designs and Kronecker's own local optima leave open.
            assert best <= optimum(problem, there) * (1 + 2e-3)


def test_one_step_is_best_of_all_and_says_so() -> None:
    budget = np.array([1.0, 2.0, 1.0, 3.0])
    problem = SpaceProblem(mixing=W, budget=budget, max_variance=5.0)
    found = least_noise_mixing(problem, mixing_rate=0.9)
    assert found.status == "optimal"
    assert found.mixing_rate == 0.9
    assert found.lower_bound is not None
    assert found.error is not None
    assert found.lower_bound <= found.error <= found.lower_bound * (1 + 1e-6)
    assert optimum(problem, found.mixing) == pytest.approx(found.error, rel=1e-6)
    assert "optimal" in str(found)
    rng = np.random.default_rng(1)
    for _ in range(20):
        there = with_weights(4, PAW.edges, rng.uniform(0, 0.5, size=4))
        if there.min() >= 0 and norm_by_svd(there) <= 0.9:
            assert found.lower_bound <= optimum(problem, there)


def test_one_step_of_arcs_and_of_weighted_nodes_is_best_of_all() -> None:
    error = ErrorMeasure(horizon=1, node_weights=[1.0, 2.0, 0.5, 3.0], learning_rate=0.5)
    problem = SpaceProblem(mixing=BALANCED, error=error, max_variance=5.0)
    found = least_noise_mixing(problem, mixing_rate=0.9)
    assert found.status == "optimal"
    assert (found.mixing != found.mixing.T).any()
    assert found.lower_bound is not None
    best = optimum(problem, found.mixing)
    assert found.lower_bound <= best * (1 + 1e-8)
    assert best == pytest.approx(found.lower_bound, rel=2e-6)
    for share in np.linspace(0, 1, 9):  # mixtures of the two cycles and the identity
        there = np.eye(4) + 0.5 * sum(
            s * change for s, change in zip((share, 1 - share), changes_of(BALANCED), strict=True)
        )
        if norm_by_svd(there) <= 0.9:
            assert found.lower_bound <= optimum(problem, there)


def test_a_mixing_need_not_be_symmetric() -> None:
    """What the symmetric one costs on a triangle with a tail, and who may not ask for it."""
    problem = SpaceProblem(mixing=W, budget=[1.0, 4.0, 0.5, 2.0])
    rate = norm_by_svd(W)
    errors = [
        least_noise_mixing(problem, mixing_rate=rate, symmetric=symmetric).error
        for symmetric in (None, True, False)
    ]
    assert errors[0] == errors[1]
    assert errors[2] is not None
    assert errors[1] is not None
    assert errors[2] < errors[1] * (1 - 1e-5)
    with pytest.raises(InputError, match="symmetric: expected false or None"):
        least_noise_mixing(SpaceProblem(mixing=ONE_WAY), symmetric=True)


def test_the_mean_model_is_the_same_for_all() -> None:
    of_mean = ErrorMeasure(horizon=3, of="mean-model")
    problem = SpaceProblem(mixing=W, error=of_mean, max_variance=4.0)
    found = least_noise_mixing(problem)
    assert found.status == "given"
    np.testing.assert_allclose(found.mixing, W, atol=1e-15)
    rate = norm_by_svd(W) - 0.02
    faster = least_noise_mixing(problem, mixing_rate=rate)
    assert faster.status == "given"
    assert faster.norm <= rate
    # Another mean is not the same for all.
    assert not least_noise._of_the_mean(replace(of_mean, average=[1.0, 2.0, 3.0, 4.0]))
    assert not least_noise._of_the_mean(replace(of_mean, node_weights=[1.0, 2.0, 3.0, 4.0]))


def test_no_mixing_of_several_steps_is_faster_than_the_fastest() -> None:
    problem = SpaceProblem(mixing=W, error=ErrorMeasure(horizon=2), max_variance=4.0)
    with pytest.raises(InputError, match="mixing_rate: expected at least that of the fastest"):
        least_noise_mixing(problem, mixing_rate=0.3)


def test_a_larger_rate_never_costs() -> None:
    """The front of mixing rate against error."""
    problem = SpaceProblem(mixing=W)
    errors = [least_noise_mixing(problem, mixing_rate=rate).error for rate in (0.66, 0.7, 0.75)]
    assert None not in errors
    first, second, third = (float(e or 0) for e in errors)
    assert first > 1.01 * second
    assert second > 1.01 * third


def test_nothing_to_choose() -> None:
    problem = SpaceProblem(mixing=np.full((3, 3), 1 / 3), max_variance=3.0)
    assert least_noise_mixing(problem).status == "given"
    several = replace(problem, error=ErrorMeasure(horizon=2))
    assert least_noise_mixing(several).status == "given"


ONE_WAY = np.array([[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("problem", "key"),
    [
        (TimeProblem.prefix(participation=TWICE), "mixing"),
        (SpaceProblem(mixing=W, structure=SpaceStructure(kind="polynomial")), "mixing"),
        (
            SpaceProblem(
                mixing=W, error=ErrorMeasure(horizon=2, push_sum_weights=np.ones(4)), max_variance=4
            ),
            "error.push_sum_weights",
        ),
        (SpaceProblem(mixing=W, random=EdgeDropout(mixing=W, probability=0.1)), "random"),
        (SpaceProblem(mixing=[W, W @ W], error=ErrorMeasure(horizon=2)), "schedule"),
        (SpaceProblem(mixing=W, observers=[pndp(nodes=[0])], max_variance=9.0), "observers"),
        (SpaceTimeProblem(mixing=W, participation=TWICE, joint="modal"), "structure.joint"),
    ],
)
def test_what_is_refused_is_named(problem: Problem, key: str) -> None:
    with pytest.raises(InputError, match=rf"^{key}: expected a problem that W|^{key}: expected W"):
        least_noise_mixing(problem)


@pytest.mark.parametrize("rate", [0, 1, -0.5, 2, "fast"])
def test_rates_that_are_none(rate: Any) -> None:
    with pytest.raises(InputError, match="mixing_rate"):
        least_noise_mixing(SpaceProblem.from_graph(nx.path_graph(3)), mixing_rate=rate)
