"""Weights of edges as W, and the path to the fastest: Newton's equations against plain ones."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from noisedesign.system.edge_weights import SIGNS, EdgeWeights, Point, path_to_fastest
from tests.support import oracles
from tests.support.weight_cases import PAW, norm_by_svd, with_weights


def test_weights_are_made_allowed() -> None:
    # A star of three leaves: 1.25 leaves the centre, which has 1, and one weight is negative.
    edges = EdgeWeights(oracles.metropolis(nx.star_graph(3)))
    w = edges.mixing(np.array([1.0, 0.25, -0.1]), nonnegative=True)
    np.testing.assert_allclose(w[0], [0, 0.8, 0.2, 0], atol=1e-16)
    np.testing.assert_allclose(np.diagonal(w), [0, 0.2, 0.8, 1], atol=1e-15)
    w = edges.mixing(np.array([1.0, 0.25, -0.1]), nonnegative=False)
    np.testing.assert_allclose(w[0], [-0.15, 1, 0.25, -0.1], atol=1e-15)


def test_products_with_edges_are_read_off() -> None:
    edges = EdgeWeights(oracles.metropolis(PAW))
    b, rng = edges.incidence, np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    a += a.T
    w = rng.normal(size=4)
    np.testing.assert_allclose(edges.along(a), np.diagonal(b.T @ a @ b), atol=1e-14)
    np.testing.assert_allclose(edges.between(a), b.T @ a @ b, atol=1e-14)
    np.testing.assert_allclose(edges.laplacian(w), b @ np.diag(w) @ b.T, atol=1e-14)
    np.testing.assert_allclose(edges.at_nodes(w), np.abs(b) @ w, atol=1e-14)


def path(graph: nx.Graph, *, nonnegative: bool) -> tuple[EdgeWeights, list[Point]]:
    plain = oracles.metropolis(graph)
    edges = EdgeWeights(plain)
    weights = plain[edges.edges[:, 0], edges.edges[:, 1]]
    return edges, list(path_to_fastest(edges, weights, nonnegative=nonnegative))


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("graph", [nx.florentine_families_graph(), nx.star_graph(4), PAW])
def test_every_point_of_the_path_is_feasible(graph: nx.Graph, nonnegative: bool) -> None:
    edges, points = path(graph, nonnegative=nonnegative)
    for point in points:
        w = with_weights(edges.nodes, edges.edges, point.weights)
        assert norm_by_svd(w) <= point.norm + 1e-14
        assert np.linalg.eigvalsh(point.distance).min() > -1e-14
        if nonnegative:
            assert w.min() > -1e-14
            assert min(point.of_weights.min(), point.of_nodes.min()) > 0
        else:
            assert not point.of_weights.any()
            assert not point.of_nodes.any()
    # Near the optimum, and before rounding, the multipliers fit what is free: w and s.
    last = next(point for point in points if point.norm <= points[-1].norm + 1e-7)
    y, i, j = last.distance, *edges.edges.T
    assert np.trace(y[0] + y[1]) == pytest.approx(1, abs=1e-7)
    fits = np.diagonal(edges.incidence.T @ (y[0] - y[1]) @ edges.incidence)
    fits = fits + last.of_weights - last.of_nodes[i] - last.of_nodes[j]
    assert np.abs(fits).max() < 1e-7


def test_a_full_step_solves_newtons_equations() -> None:
    """Towards F Y = mu I, linearised, by plain differences of the products."""
    from noisedesign.system.edge_weights import _Step

    edges, points = path(PAW, nonnegative=True)
    here, mu = points[2], 1e-2
    step = _Step(edges, here, nonnegative=True).towards(mu)

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
