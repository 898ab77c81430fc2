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


def optimum(problem: Problem, mixing: np.ndarray) -> float:
    certificate = solve(problem.with_mixing(mixing), gap=1e-8).certificate
    assert certificate is not None
    return certificate.objective


@pytest.mark.parametrize("name", ["space", "rounds", "time"])
def test_the_gradient_is_that_of_the_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_noise, "LOCAL_GAP", 1e-9)
    problem = SEVERAL[name]
    _, slope = least_noise._error(problem, W)
    for i, j in PAW.edges:
        across = np.eye(4)[i] - np.eye(4)[j]
        change, h = np.outer(across, across), 1e-4
        ahead, behind = (optimum(problem, W + sign * h * change) for sign in (1, -1))
        assert np.sum(slope * change) == pytest.approx((ahead - behind) / (2 * h), rel=1e-3)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "floor")) for n in SEVERAL]
)
def test_no_neighbour_is_better(name: str) -> None:
    problem = SEVERAL[name]
    found = least_noise_mixing(problem)
    assert found.status == "local"
    assert found.lower_bound is None
    w, rate = found.mixing, norm_by_svd(W)
    np.testing.assert_array_equal(w > 0, W > 0)
    assert found.norm == pytest.approx(norm_by_svd(w), rel=1e-12)
    assert found.norm <= found.mixing_rate == pytest.approx(rate, rel=1e-14)
    best = optimum(problem, w)
    assert best == pytest.approx(optimum(found.problem, w), rel=1e-6)
    assert best < 0.999 * optimum(problem, W)
    rng = np.random.default_rng(0)
    for _ in range(8):
        there = w + 0.02 * (with_weights(4, PAW.edges, rng.normal(size=4)) - np.eye(4))
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
        (SpaceProblem(mixing=ONE_WAY), "mixing"),
        (SpaceProblem(mixing=W, structure=SpaceStructure(kind="polynomial")), "mixing"),
        (SpaceProblem(mixing=W, error=ErrorMeasure(horizon=2, of="consensus")), "error"),
        (SpaceProblem(mixing=W, random=EdgeDropout(mixing=W, probability=0.1)), "random"),
        (SpaceProblem(mixing=[W, W @ W], error=ErrorMeasure(horizon=2)), "schedule"),
        (SpaceProblem(mixing=W, observers=[pndp(nodes=[0])], max_variance=9.0), "observers"),
        (SpaceTimeProblem(mixing=W, participation=TWICE, joint="full"), "structure.joint"),
    ],
)
def test_what_is_refused_is_named(problem: Problem, key: str) -> None:
    with pytest.raises(InputError, match=rf"^{key}: expected a problem that W|^{key}: expected W"):
        least_noise_mixing(problem)


@pytest.mark.parametrize("rate", [0, 1, -0.5, 2, "fast"])
def test_rates_that_are_none(rate: Any) -> None:
    with pytest.raises(InputError, match="mixing_rate"):
        least_noise_mixing(SpaceProblem.from_graph(nx.path_graph(3)), mixing_rate=rate)
