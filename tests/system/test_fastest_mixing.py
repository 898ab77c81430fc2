"""Fastest mixing: closed forms, bounds against any W, search on grids, and Newton's equations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.fastest_mixing import (
    Point,
    _Step,
    fastest_mixing,
    norm_lower_bound,
    path_to_fastest,
)
from noisedesign.system.links import SIGNS, EdgeWeights
from tests.support import oracles
from tests.support.weight_cases import PAW, norm_by_svd, with_weights


def conic_optimum(graph: nx.Graph) -> float:
    """The semidefinite program itself."""
    import cvxpy as cp

    n, edges = len(graph), list(nx.convert_node_labels_to_integers(graph).edges)
    b = np.zeros((n, len(edges)))
    for e, (i, j) in enumerate(edges):
        b[i, e], b[j, e] = 1, -1
    w, s = cp.Variable(len(edges)), cp.Variable()
    distance = np.eye(n) - 1 / n - b @ cp.diag(w) @ b.T
    held = [w >= 0, np.abs(b) @ w <= 1]
    bounds = [s * np.eye(n) - distance >> 0, s * np.eye(n) + distance >> 0]
    return float(cp.Problem(cp.Minimize(s), held + bounds).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # Boyd, Diaconis, Sun and Xiao (2006): half on every link of a path.
        *((nx.path_graph(n), math.cos(math.pi / n)) for n in (2, 3, 5, 8)),
        # A star's centre shares one unit among m leaves.
        *((nx.star_graph(m), 1 - 1 / m) for m in (2, 5)),
        (nx.cycle_graph(6), 3 / 5),
        (nx.path_graph(1), 0.0),
    ],
)
def test_nonnegative_weights_in_closed_form(graph: nx.Graph, expected: float) -> None:
    found = fastest_mixing(graph)
    assert found.norm == pytest.approx(expected, abs=1e-7)
    assert found.lower_bound <= expected + 1e-13
    assert found.norm - found.lower_bound < 1e-6


@pytest.mark.parametrize("graph", [nx.florentine_families_graph(), PAW])
def test_the_matrix_is_exactly_allowed(graph: nx.Graph) -> None:
    found = fastest_mixing(graph)
    w = found.mixing
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-15)
    linked = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    assert not w[linked == 0].any()
    assert found.norm == pytest.approx(norm_by_svd(w), rel=1e-13)
    assert found.lower_bound <= found.norm < found.lower_bound + 1e-6
    assert found.norm < norm_by_svd(oracles.metropolis(graph)) - 0.01
    assert w.min() >= 0
    SpaceProblem(mixing=w)  # it is what a design asks for


def test_no_weights_on_a_grid_are_faster() -> None:
    found, edges = fastest_mixing(PAW), list(PAW.edges)
    best = 1.0
    for weights in itertools.product(np.linspace(0, 0.6, 13), repeat=4):
        w = with_weights(4, edges, weights)
        if np.diagonal(w).min() >= 0:
            best = min(best, norm_by_svd(w))
    assert found.lower_bound <= best
    assert best - found.norm < 0.05  # the grid is not so coarse that this says nothing


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 4))
def test_any_multipliers_bound_any_weights(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array(PAW.edges)
    root = rng.normal(size=(4, rank))
    y = (root * rng.choice([-1, 1], size=rank)) @ root.T
    bound = norm_lower_bound(
        edges, nodes=4, distance=y * 10.0 ** rng.integers(-9, 9), self_weights=rng.normal(size=4)
    )
    for _ in range(20):
        weights = rng.uniform(0, 0.5, size=4)
        w = with_weights(4, edges, weights)
        w = with_weights(4, edges, weights / max(1.0, 1 - np.diagonal(w).min()))
        assert w.min() >= -1e-15
        assert bound <= norm_by_svd(w) + 1e-12


def test_the_bound_is_tight_for_the_right_multipliers() -> None:
    # A star of 2 leaves: w <= 1/2, half on each link, ||W - J|| = 1/2 along the leaves' difference,
    # y_e = 1/2, at the price z = 1/2 of the centre.
    leaves, edges = np.array([0, 1, -1]) / np.sqrt(2), np.array([[0, 1], [0, 2]])
    y, z = np.outer(leaves, leaves), np.array([0.5, 0.0, 0.0])
    assert norm_lower_bound(edges, nodes=3, distance=y, self_weights=z) == pytest.approx(0.5)
    # The price of what z does not cover is paid at the largest weight, 2 (1/2 - 1/4) an edge.
    half = norm_lower_bound(edges, nodes=3, distance=7 * y, self_weights=7 * z / 2)
    assert half == pytest.approx(max(0.0, 1 - 0.25 - 4 * 0.25))
    for useless in (np.zeros((3, 3)), np.full((3, 3), np.nan), -y):
        assert norm_lower_bound(edges, nodes=3, distance=useless, self_weights=z) == 0


def test_other_bad_input_is_named() -> None:
    for bad in (nx.Graph([(0, 1), (2, 3)]), nx.DiGraph([(0, 1)])):
        with pytest.raises(InputError, match=r"^graph"):
            fastest_mixing(bad)


@pytest.mark.parametrize("graph", [oracles.karate(), nx.lollipop_graph(5, 4), PAW])
def test_a_conic_solver_agrees(graph: nx.Graph) -> None:
    ours = fastest_mixing(graph)
    assert ours.norm - ours.lower_bound <= 1e-9
    assert ours.norm == pytest.approx(conic_optimum(graph), abs=1e-6)


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (nx.gnp_random_graph(100, 0.08, seed=2), 40),
        (nx.path_graph(100), 25),
        (nx.grid_2d_graph(6, 6), 40),
        (nx.barbell_graph(10, 5), 40),
    ],
)
def test_a_hundred_nodes_in_some_twenty_steps(
    graph: nx.Graph, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*given: Any) -> Iterator[Point]:
        for point in path_to_fastest(*given):
            steps.append(point)
            yield point

    steps: list[Point] = []
    monkeypatch.setattr("noisedesign.system.fastest_mixing.path_to_fastest", counted)
    found = fastest_mixing(graph)
    assert found.norm - found.lower_bound <= 1e-8
    assert len(steps) <= most
    assert found.norm == pytest.approx(norm_by_svd(found.mixing), rel=1e-12)


def test_more_edges_than_fit_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.base.memory.physical", lambda: 48 * 14**2)
    assert fastest_mixing(nx.complete_graph(5)).norm < 1e-9  # ten edges
    with pytest.raises(InputError, match=r"^graph: expected at most 14 edges"):
        fastest_mixing(nx.complete_graph(6))


def test_weights_are_made_allowed() -> None:
    # A star of three leaves: 1.25 leaves the centre, which has 1, and one weight is negative.
    edges = EdgeWeights(oracles.metropolis(nx.star_graph(3)))
    w = edges.mixing(np.array([1.0, 0.25, -0.1]))
    np.testing.assert_allclose(w[0], [0, 0.8, 0.2, 0], atol=1e-16)
    np.testing.assert_allclose(np.diagonal(w), [0, 0.2, 0.8, 1], atol=1e-15)


def test_products_with_edges_are_read_off() -> None:
    edges = EdgeWeights(oracles.metropolis(PAW))
    b, rng = edges.incidence, np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    a += a.T
    w = rng.normal(size=4)
    np.testing.assert_allclose(edges.along(a), np.diagonal(b.T @ a @ b), atol=1e-14)
    np.testing.assert_allclose(edges.between(a), b.T @ a @ b, atol=1e-14)
    np.testing.assert_allclose(edges.less(w), b @ np.diag(w) @ b.T, atol=1e-14)
    np.testing.assert_allclose(edges.at_nodes(w), np.abs(b) @ w, atol=1e-14)


def path(graph: nx.Graph) -> tuple[EdgeWeights, list[Point]]:
    plain = oracles.metropolis(graph)
    edges = EdgeWeights(plain)
    weights = plain[edges.edges[:, 0], edges.edges[:, 1]]
    return edges, list(path_to_fastest(edges, weights))


@pytest.mark.parametrize("graph", [nx.florentine_families_graph(), nx.star_graph(4), PAW])
def test_every_point_of_the_path_is_feasible(graph: nx.Graph) -> None:
    edges, points = path(graph)
    for point in points:
        w = with_weights(edges.nodes, edges.edges, point.weights)
        assert norm_by_svd(w) <= point.norm + 1e-14
        assert np.linalg.eigvalsh(point.distance).min() > -1e-14
        assert w.min() > -1e-14
        assert min(point.of_weights.min(), point.of_nodes.min()) > 0
    # Near the optimum, and before rounding, the multipliers fit what is free: w and s.
    last = next(point for point in points if point.norm <= points[-1].norm + 1e-7)
    y, i, j = last.distance, *edges.edges.T
    assert np.trace(y[0] + y[1]) == pytest.approx(1, abs=1e-7)
    fits = np.diagonal(edges.incidence.T @ (y[0] - y[1]) @ edges.incidence)
    fits = fits + last.of_weights - last.of_nodes[i] - last.of_nodes[j]
    assert np.abs(fits).max() < 1e-7


def test_a_full_step_solves_newtons_equations() -> None:
    """Towards F Y = mu I, linearised, by plain differences of the products."""
    edges, points = path(PAW)
    here, mu = points[2], 1e-2
    step = _Step(edges, here).towards(mu)

    def slack(w: np.ndarray, s: float) -> np.ndarray:
        off = with_weights(4, edges.edges, w) - 1 / 4
        return s * np.eye(4) - SIGNS * off

    f = slack(here.weights, here.norm)
    d_f = slack(here.weights + step.weights, here.norm + step.norm) - f
    # dY + sym(Y dF F^-1) = mu F^-1 - Y for both cones.
    for k in range(2):
        inverse = np.linalg.inv(f[k])
        turned = here.distance[k] @ d_f[k] @ inverse
        left = step.distance[k] + (turned + turned.T) / 2
        np.testing.assert_allclose(left, mu * inverse - here.distance[k], atol=1e-11)
    assert np.trace((here.distance + step.distance).sum(axis=0)) == pytest.approx(1, abs=1e-11)
    y = (here.distance + step.distance)[0] - (here.distance + step.distance)[1]
    x, z = here.of_weights + step.of_weights, here.of_nodes + step.of_nodes
    i, j = edges.edges.T
    fits = np.diagonal(edges.incidence.T @ y @ edges.incidence) + x - z[i] - z[j]
    np.testing.assert_allclose(fits, 0, atol=1e-11)
    product = here.weights * x + step.weights * here.of_weights
    np.testing.assert_allclose(product, mu, atol=1e-12)
