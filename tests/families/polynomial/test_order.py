"""An order in which neighbours are near, which nobody sees: designs are in that of the problem."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.polynomial import reach
from noisedesign.families.polynomial.family import FAMILY, MULTIPLIERS
from noisedesign.forms import PolynomialCovariance
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles

SHUFFLED = np.random.default_rng(3).permutation(90)
STRIP = nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 3))
W = oracles.metropolis(STRIP)[np.ix_(SHUFFLED, SHUFFLED)]
BUDGET = np.random.default_rng(4).uniform(0.5, 2.0, 90)
PROBLEM = SpaceProblem(mixing=W, budget=BUDGET, structure=SpaceStructure(kind="polynomial"))


def answered() -> tuple[PolynomialCovariance, Array, float, float]:
    """Noise, multipliers, error and bound."""
    program = FAMILY.program(PROBLEM)
    answer = FAMILY.solve(program, monitor=Monitor(gap=0.1))
    (noise,) = answer.noises
    bound = FAMILY.bound(program, answer.proof, noise=noise)
    told = FAMILY.judge(program, noise, answer.proof, bound=bound.value)
    assert told.sensitivity_squared <= 1
    assert isinstance(noise.space, PolynomialCovariance)
    return noise.space, answer.proof[MULTIPLIERS], told.objective, told.lower_bound


def test_a_design_is_in_the_order_of_its_problem_and_the_same_in_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = answered()
    assert FAMILY.program(PROBLEM).order is None
    monkeypatch.setattr(reach, "ORDERED_FROM", 0)
    monkeypatch.setattr(reach, "DEEP", 8)
    monkeypatch.setattr(reach, "NEARER", 3)
    assert FAMILY.program(PROBLEM).order is not None
    ordered = answered()
    space = ordered[0]
    np.testing.assert_array_equal(space.mixing.toarray(), W)
    for found, expected in zip(ordered, plain, strict=True):
        if isinstance(found, PolynomialCovariance) and isinstance(expected, PolynomialCovariance):
            np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-6)
            np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-6)  # type: ignore[arg-type]
    covariance = space.covariance()
    assert np.all(np.diagonal(np.linalg.inv(covariance)) <= BUDGET)
    assert np.sum((W.T @ W) * covariance) == pytest.approx(ordered[2], rel=1e-9)
    # What is proved with every rounding is proved of the same budgets.
    monkeypatch.setattr("noisedesign.families.polynomial.family.WRITTEN_OUT", 10)
    program = FAMILY.program(PROBLEM)
    noise = FAMILY.solve(program, monitor=Monitor(gap=0.1)).noises[0]
    assert FAMILY.rigorous_judge(program, noise, {}).sensitivity_squared <= 1


def test_noise_whose_budgets_are_of_other_nodes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "ORDERED_FROM", 0)
    monkeypatch.setattr(reach, "DEEP", 8)
    monkeypatch.setattr(reach, "NEARER", 3)
    program = FAMILY.program(PROBLEM)
    noise = FAMILY.solve(program, monitor=Monitor(gap=0.1)).noises[0]
    assert isinstance(noise.space, PolynomialCovariance)
    forged = replace(noise, space=replace(noise.space, scale=noise.space.scale[::-1].copy()))
    assert FAMILY.judge(program, forged, {}, bound=0.0).sensitivity_squared > 1.1


def test_neighbours_are_next_to_each_other_on_a_path_and_near_in_a_strip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "ORDERED_FROM", 0)
    monkeypatch.setattr(reach, "DEEP", 8)
    monkeypatch.setattr(reach, "NEARER", 3)
    path = oracles.metropolis(nx.path_graph(90))[np.ix_(SHUFFLED, SHUFFLED)]
    for w, most in ((path, 1), (W, 5)):
        order = reach.nearer(sparse.csr_array(w))
        assert order is not None
        assert sorted(order) == list(range(90))
        first, second = np.nonzero(w[np.ix_(order, order)])
        assert np.abs(first - second).max() <= most


@pytest.mark.parametrize(
    "graph",
    [
        nx.star_graph(89),
        nx.complete_graph(20),
        nx.barabasi_albert_graph(90, 3, seed=0),
        nx.path_graph(90),  # whose neighbours are as near as they get
        nx.empty_graph(1),
    ],
)
def test_nodes_stay_where_no_order_is_better(
    graph: nx.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "ORDERED_FROM", 0)
    assert reach.nearer(sparse.csr_array(oracles.metropolis(graph))) is None


def test_few_nodes_stay() -> None:
    path = oracles.metropolis(nx.path_graph(90))[np.ix_(SHUFFLED, SHUFFLED)]
    assert reach.nearer(sparse.csr_array(path)) is None
