"""Noise of pairs in the entries of R: the comparison matrix, the Newton system and whole solves."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds import pairs
from noisedesign.families.shared_seeds.layout import Layout
from noisedesign.families.shared_seeds.pairs import (
    Pattern,
    Point,
    System,
    blocks_of,
    feasible_curvature,
    start,
)
from noisedesign.families.shared_seeds.program import seed_program
from noisedesign.families.shared_seeds.state import Setting, first_blocks
from noisedesign.forms.structure import SpaceStructure
from noisedesign.system.graph import build_graph, mixing_matrix

EDGES = SpaceStructure(kind="edge-local")
GRAPHS = {
    "florentine": mixing_matrix(build_graph("florentine")),
    "star": mixing_matrix(build_graph("star", nodes=6), weights="lazy-metropolis-hastings"),
    # Two parts that do not mix, and a node alone.
    "parts": np.kron(np.eye(3), mixing_matrix(build_graph("ring", nodes=4)))[:9, :9],
}


def setting_of(w: Array, structure: SpaceStructure = EDGES, shift: float = 0.1) -> Setting:
    size = len(w)
    gram = w.T @ w + shift * np.eye(size)
    program = seed_program(
        gram / np.diagonal(gram).mean(),
        mixing=w,
        structure=structure,
        budget=np.ones(size),
        cap=None,
    )
    return Setting(program)


def point_of(setting: Setting, *, steps: int) -> Point:
    first = setting.layout.assemble(first_blocks(setting))
    point = start(Pattern(setting.layout), setting.gram, first)
    for _ in range(steps):
        point = pairs.advance(
            point, setting.gram, Monitor(gap=1e-6), last=1e-12, tolerance=pairs.LOOSE
        )
        point = replace(point, epsilon=point.epsilon / 3)
    return point


def system_of(setting: Setting, *, steps: int) -> System:
    return System(point_of(setting, steps=steps), setting.gram, Monitor(gap=1e-6))


def test_a_matrix_is_of_pairs_where_its_comparison_matrix_is_positive_semidefinite() -> None:
    """Three nodes, all correlations c: of pairs for |c| <= 1/2, positive definite to c < 1."""
    layout = Layout(((0, 1), (0, 2), (1, 2)), 3)
    pattern = Pattern(layout)
    for c, of_pairs in ((-0.49, True), (0.49, True), (0.51, False), (0.9, False)):
        entries = np.array([c, c, c, 1.0, 1.0, 1.0])
        least = np.linalg.eigvalsh(pattern.comparison(entries, 0.0))[0]
        assert least == pytest.approx(1 - 2 * abs(c))
        assert (least > 0) == of_pairs
        if of_pairs:
            flat = blocks_of(layout, pattern, entries)
            np.testing.assert_allclose(layout.assemble(flat), pattern.matrix(entries), atol=1e-14)
            assert np.linalg.eigvalsh(layout.split(flat)[0]).min() > 0


@pytest.mark.parametrize("graph", GRAPHS)
def test_sums_of_random_blocks_are_taken_apart_again(graph: str) -> None:
    setting, rng = setting_of(GRAPHS[graph]), np.random.default_rng(0)
    layout, pattern = setting.layout, Pattern(setting.layout)
    blocks = []
    for members in layout.members:
        half = rng.normal(size=(*members.shape, members.shape[1]))
        blocks.append(half @ half.transpose(0, 2, 1))
    total = layout.assemble(layout.join(blocks))
    found = blocks_of(layout, pattern, pattern.entries(total))
    np.testing.assert_allclose(layout.assemble(found), total, rtol=1e-10, atol=1e-12)
    for part in layout.split(found):
        assert np.linalg.eigvalsh(part).min() > -1e-12


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_product_is_the_linearised_path(graph: str, steps: int) -> None:
    """By central differences of X diag(v) X, of s and of y t = R; W s(.) W by its definition."""
    setting = setting_of(GRAPHS[graph])
    system = system_of(setting, steps=steps)
    point, pattern = system.point, system.point.pattern
    w, m = system.scaling, point.comparison
    np.testing.assert_allclose(w @ m @ w, point.dual, rtol=1e-6, atol=1e-9 * point.dual.max())
    z = np.random.default_rng(1).normal(size=len(point.entries))
    step = 1e-6 * np.abs(point.entries).min(where=pattern.twice == 1.0, initial=1.0)
    moved = []
    for sign in (1, -1):
        x = np.linalg.inv(pattern.matrix(point.entries + sign * step * z))
        moved.append((x, (x * point.weights) @ x))
    (above, high), (below, low) = moved
    slack = (np.diagonal(below) - np.diagonal(above)) / (2 * step)
    x = point.precision
    falls = (low - high) / (2 * step) + (x * (point.weights / point.slacks * slack)) @ x
    on, diagonal = z[: pattern.pairs], z[pattern.pairs :]
    compared = pattern.matrix(np.concatenate([-point.signs * on, diagonal]))
    barrier = w @ compared @ w
    expected = pattern.twice * pattern.entries(falls)
    expected[: pattern.pairs] -= 2 * point.signs * pattern.entries(barrier)[: pattern.pairs]
    expected[pattern.pairs :] += np.diagonal(barrier)
    rate = (1 - point.signs * point.entries[: pattern.pairs] / point.roots) / point.roots
    expected[: pattern.pairs] += 2 * pattern.entries(point.dual)[: pattern.pairs] * rate * on
    found = system.product(z)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(found).max())


def preconditioned(system: System) -> Array:
    """Eigenvalues of the product, preconditioned, ascending."""
    units = np.eye(len(system.point.entries))
    matrix = np.stack([system.product(one) for one in units])
    inverse = np.stack([system.precondition(one) for one in units])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-7, atol=1e-8 * np.abs(matrix).max())
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-7, atol=1e-8 * np.abs(inverse).max())
    lower = np.linalg.cholesky((matrix + matrix.T) / 2)
    return np.asarray(np.linalg.eigvalsh(lower.T @ inverse @ lower))


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_preconditioner_is_near_the_inverse_of_the_product(graph: str, steps: int) -> None:
    values = preconditioned(system_of(setting_of(GRAPHS[graph]), steps=steps))
    # But for what the barrier of M adds along a few directions.
    assert values[0] > 0.1
    assert values[-3] < 20


def test_kinks_are_preconditioned_as_they_are() -> None:
    """Two dozen of the pairs within two hops are uncorrelated in the end: left out, they take
    eigenvalues beyond a thousand."""
    w = mixing_matrix(nx.connected_watts_strogatz_graph(14, 6, 0.2, seed=0))
    setting = setting_of(w, SpaceStructure(kind="hops", hops=2), shift=0.0)
    values = preconditioned(system_of(setting, steps=6))
    assert values[0] > 0.5
    assert values[-3] < 20


@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("graph", GRAPHS)
def test_points_are_feasible_on_both_sides(graph: str, steps: int) -> None:
    setting = setting_of(GRAPHS[graph])
    point = point_of(setting, steps=steps)
    pattern = point.pattern
    covariance = pattern.matrix(point.entries)
    spent = np.diagonal(np.linalg.inv(covariance))
    np.testing.assert_allclose(1 - spent, point.slacks, rtol=1e-6, atol=1e-9)
    assert (spent < 1).all()
    assert (point.weights > 0).all()
    for matrix in (point.comparison, pattern.comparison(point.entries, 0.0), point.dual):
        assert np.linalg.eigvalsh(matrix)[0] > 0
    left = setting.gram - feasible_curvature(point, setting.gram)
    for i, j in zip(pattern.first, pattern.second, strict=True):
        block = left[np.ix_([i, j], [i, j])]
        assert np.linalg.eigvalsh(block)[0] > -1e-12 * block.max()


def uneven(seed: int) -> nd.SpaceProblem:
    """Budgets over four orders of magnitude: at the optimum some are slack."""
    graph = nx.barabasi_albert_graph(11, 2, seed=seed) if seed % 2 else nx.cycle_graph(13)
    w = mixing_matrix(graph)
    budget = np.exp(2 * np.random.default_rng(seed).normal(size=len(w)))
    return nd.SpaceProblem(mixing=w, structure=EDGES, budget=budget)


@pytest.mark.parametrize("seed", range(8))
def test_uneven_budgets_are_solved_to_the_gap(seed: int) -> None:
    found = nd.solve(uneven(seed), gap=1e-9)
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.gap <= 1e-9


def test_the_path_of_blocks_takes_over_where_that_of_pairs_goes_astray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = nd.SpaceProblem(mixing=GRAPHS["florentine"], structure=EDGES)
    usual = nd.solve(problem, gap=1e-8).design
    monkeypatch.setattr(pairs, "MAX_STEPS", 1)
    found = nd.solve(problem, gap=1e-8)
    assert found.status == "optimal"
    assert found.design is not None
    assert usual is not None
    assert found.design.objective == pytest.approx(usual.objective, rel=2e-8)
    assert found.design.objective >= usual.lower_bound


def test_two_nodes_lose_nothing() -> None:
    """Any noise of two nodes is of one pair."""
    w = np.array([[0.7, 0.3], [0.3, 0.7]])
    of_pairs = nd.solve(nd.SpaceProblem(mixing=w, structure=EDGES), gap=1e-9).design
    free = nd.solve(nd.SpaceProblem(mixing=w), gap=1e-9).design
    assert of_pairs is not None
    assert free is not None
    assert of_pairs.objective == pytest.approx(free.objective, rel=2e-9)
