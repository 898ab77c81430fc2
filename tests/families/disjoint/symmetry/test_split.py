"""S in blocks says what the whole of it says, also where rounding is large against a block."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.linalg

from noisedesign.families.disjoint.solver import diagonal
from noisedesign.families.disjoint.solver.square_roots import Split, square_root
from noisedesign.families.disjoint.solver.symmetry import Symmetry, halves, symmetry_of
from tests.support.symmetric_cases import Array, assert_splits, make_eager, program, spatial


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(9),
        nx.grid_2d_graph(4, 6),
        nx.star_graph(6),
        nx.lollipop_graph(5, 4),
        nx.complete_bipartite_graph(3, 5),
        nx.barbell_graph(5, 3),
        nx.balanced_tree(2, 3),
        nx.balanced_tree(3, 2),
    ],
)
def test_blocks_say_what_the_whole_says(graph: nx.Graph, eager: None) -> None:
    """Trace, diagonal, curvature, X and its rescaled objective, at multipliers equal on orbits."""
    whole = spatial(graph)
    found = symmetry_of(np.asarray(whole.gram))
    assert found is not None
    assert_splits(np.asarray(whole.gram), found)
    split = Split(whole, found)
    rng = np.random.default_rng(0)
    orbits = found.orbit.max() + 1
    assert orbits < len(graph)
    v = rng.uniform(0.2, 5, orbits)[found.orbit]
    p = split.collected(v)
    np.testing.assert_allclose(split.spread(p), v, rtol=1e-14)
    expected, got = square_root(whole, v), split.square_root(p)
    assert got.trace == pytest.approx(expected.trace, rel=1e-13)
    np.testing.assert_allclose(got.diag, np.bincount(found.orbit, expected.diag), rtol=1e-11)
    x = rng.uniform(-1, 1, orbits)
    product = expected.curvature(trace=2.0)(x[found.orbit])
    np.testing.assert_allclose(
        got.curvature(trace=2.0)(x), np.bincount(found.orbit, product), atol=1e-12
    )
    above = expected.curvature_above(trace=2.0) @ x[found.orbit]
    np.testing.assert_allclose(
        got.curvature_above(trace=2.0) @ x, np.bincount(found.orbit, above), atol=1e-12
    )
    np.testing.assert_allclose(got.gram(p), expected.gram(v), atol=1e-11)
    ratio = rng.uniform(0.5, 2, orbits)
    if expected.rescaled(ratio[found.orbit]) < 1e6:  # W may be singular
        assert got.rescaled(ratio) == pytest.approx(expected.rescaled(ratio[found.orbit]), rel=1e-8)


def test_a_block_of_rounding_is_zero() -> None:
    """Columns of ones but for rounding: singular values of the odd block, of 8e-15, are rounding
    beside the largest of all, 108^1/2, as they would not be beside the largest column."""
    mirror = np.arange(12)[::-1]
    noise = np.random.default_rng(0).uniform(-1, 1, (9, 12))
    noise *= 8e-15 / np.linalg.norm((noise - noise[:, mirror]) / 2, 2)
    factor = np.ones((9, 12)) + noise
    orbit, signs = halves(np.arange(12), np.ones((1, 12)), mirror)
    whole = program(factor.T @ factor, factor)
    split = Split(whole, Symmetry(orbit, signs))
    even, odd = split.square_root(split.collected(np.ones(12))).parts
    assert float(even.root[-1]) == pytest.approx(108**0.5)
    np.testing.assert_array_equal(odd.root, 0)


def test_a_nearly_singular_block_takes_its_factor() -> None:
    """Singular values from 1 to 1e-9 that a mirror preserves: their sum is kept to 1e-13."""
    rng = np.random.default_rng(1)
    even, odd = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    values = np.geomspace(1, 1e-9, 8)
    basis_of_mirror = np.block([[np.eye(4), np.eye(4)[::-1]], [np.eye(4), -np.eye(4)[::-1]]])
    factor = values[:, None] * (scipy.linalg.block_diag(even, odd) @ basis_of_mirror / np.sqrt(2))
    whole = program(factor.T @ factor, factor)
    orbit, signs = halves(np.arange(8), np.ones((1, 8)), np.arange(8)[::-1])
    split = Split(whole, Symmetry(orbit, signs))
    assert split.square_root(split.collected(np.ones(8))).trace == pytest.approx(
        values.sum(), rel=1e-13
    )


def test_the_solver_evaluates_blocks(eager: None) -> None:
    """phi and its gradient by the prices of orbits, against differences of the whole."""
    whole = spatial(nx.path_graph(7))
    found = symmetry_of(np.asarray(whole.gram))
    assert found is not None
    split = Split(whole, found)
    u = np.random.default_rng(0).uniform(-1, 1, 4)

    def phi(log_p: Array) -> float:
        return float(diagonal.evaluate(whole, np.log(split.spread(np.exp(log_p)))).phi)

    point = diagonal.evaluate(split, u)
    assert point.phi == pytest.approx(phi(u), rel=1e-13)
    slope = [(phi(u + e) - phi(u - e)) / 2e-5 for e in 1e-5 * np.eye(4)]
    gradient = point.diag / point.trace - point.v / point.price
    np.testing.assert_allclose(gradient, slope, atol=1e-9)
