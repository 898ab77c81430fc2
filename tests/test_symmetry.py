"""Symmetries of H: found where there are some and only there, and blocks that are those of H."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from symmetric_cases import (
    Array,
    averaged,
    commuting,
    group,
    program,
    random_gram,
    shuffled,
    spatial,
    workload,
)

from noisedesign.backends.native import diagonal, symmetry, translations
from noisedesign.backends.native.involutions import involutions_of, preserves
from noisedesign.backends.native.refinement import Refiner, grouped
from noisedesign.backends.native.split import Split
from noisedesign.backends.native.square_roots import square_root
from noisedesign.backends.native.symmetry import Symmetry, halves, symmetry_of, twins_of

Permutation = NDArray[np.intp]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symmetries of small matrices are of use, too."""
    monkeypatch.setattr(symmetry, "HANDLING", 0)
    monkeypatch.setattr(symmetry, "WORTHWHILE", np.inf)
    monkeypatch.setattr(symmetry, "SQUARED_NODES_PER_ROUND", 1)


def automorphisms(gram: Array) -> list[Permutation]:
    """Every permutation that preserves H, all of them tried."""
    n = len(gram)
    return [
        p
        for p in map(np.array, itertools.permutations(range(n)))
        if np.abs(gram[np.ix_(p, p)] - gram).max() < 1e-12
    ]


def basis(found: Symmetry) -> list[Array]:
    """Orthonormal vectors of every block, shape (n, k) each, then those over twins."""
    n = len(found.orbit)
    orbits = [np.flatnonzero(found.orbit == c) for c in range(found.orbit.max() + 1)]
    blocks = []
    for signs in found.signs:
        vectors = []
        for nodes in orbits:
            if signs[nodes].any():
                vector = np.zeros(n)
                vector[nodes] = signs[nodes] / np.sqrt(len(nodes))
                vectors.append(vector)
        blocks.append(np.stack(vectors, axis=1))
    for c in range(found.twins.max() + 1):
        nodes = np.flatnonzero(found.twins == c)
        if len(nodes) > 1:
            over = np.zeros((n, len(nodes) - 1))
            over[nodes] = scipy.linalg.null_space(np.ones((1, len(nodes))))
            blocks.append(over)
    return blocks


def assert_splits(gram: Array, found: Symmetry) -> None:
    """The vectors are a basis, H has no entry between blocks, and is a multiple of I over twins."""
    blocks = basis(found)
    whole = np.concatenate(blocks, axis=1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(len(gram)), atol=1e-12)
    scale = np.abs(gram).max()
    for (a, left), (b, right) in itertools.combinations(enumerate(blocks), 2):
        np.testing.assert_allclose(left.T @ gram @ right, 0, atol=1e-12 * scale, err_msg=f"{a} {b}")
    for over in blocks[len(found.signs) :]:
        inside = over.T @ gram @ over
        np.testing.assert_allclose(inside, inside[0, 0] * np.eye(len(inside)), atol=1e-12 * scale)


# --- colours ----------------------------------------------------------------------------------


def test_values_are_grouped_within_their_colours() -> None:
    labels = np.array([1, 0, 1, 0, 1])
    values = np.array([2.0, 5, 1, 5 + 1e-13, 2])
    np.testing.assert_array_equal(grouped(labels, values, tolerance=1e-12), [2, 0, 1, 0, 2])
    np.testing.assert_array_equal(grouped(labels, values, tolerance=0.0), [3, 0, 2, 1, 3])


def test_refinement_of_a_path_ends_in_mirror_pairs() -> None:
    gram = workload(nx.path_graph(9))
    refiner = Refiner(gram, rounds=100)
    labels = refiner.refined(refiner.first()[None])
    assert labels is not None
    np.testing.assert_array_equal(labels[0], labels[0][::-1])
    assert len(set(labels[0].tolist())) == 5


@pytest.mark.parametrize("seed", range(4))
def test_colours_are_unions_of_orbits(seed: int) -> None:
    """Of all automorphisms of small graphs, by brute force: colours are coarser, never finer."""
    gram = workload(nx.gnp_random_graph(7, 0.4, seed=seed))
    refiner = Refiner(gram, rounds=100)
    labels = refiner.refined(refiner.first()[None])
    assert labels is not None
    for p in automorphisms(gram):
        np.testing.assert_array_equal(labels[0][p], labels[0])


def test_colourings_that_differ_are_told_apart() -> None:
    """The ends of a path may be swapped; an end and a node in the middle may not."""
    gram = workload(nx.path_graph(7))
    swapped = np.zeros((2, 7), dtype=np.intp)
    swapped[0, 0] = swapped[1, 6] = 1
    refined = Refiner(gram, rounds=100).refined(swapped)
    assert refined is not None
    np.testing.assert_array_equal(refined[1], refined[0][::-1])
    assert len(set(refined[0].tolist())) == 7
    swapped[1] = [0, 0, 0, 1, 0, 0, 0]
    assert Refiner(gram, rounds=100).refined(swapped) is None


def test_no_more_rounds_than_granted() -> None:
    refiner = Refiner(workload(nx.path_graph(60)), rounds=3)
    assert refiner.refined(refiner.first()[None]) is None
    assert refiner.rounds == 0


# --- twins ------------------------------------------------------------------------------------


def twins_by_definition(gram: Array) -> set[tuple[int, int]]:
    n = len(gram)
    swaps = []
    for i, j in itertools.combinations(range(n), 2):
        p = np.arange(n)
        p[[i, j]] = j, i
        if np.abs(gram[np.ix_(p, p)] - gram).max() < 1e-12:
            swaps.append((i, j))
    return set(swaps)


@pytest.mark.parametrize(
    "graph",
    [
        nx.star_graph(6), nx.complete_bipartite_graph(3, 5), nx.complete_graph(6),
        nx.lollipop_graph(5, 3), nx.barbell_graph(4, 1), nx.balanced_tree(2, 3), nx.path_graph(3),
        nx.complete_multipartite_graph(2, 2, 3), nx.windmill_graph(3, 4), nx.cycle_graph(7),
        nx.karate_club_graph(),
    ],
)  # fmt: skip
def test_twins_are_the_pairs_that_may_be_swapped(graph: nx.Graph) -> None:
    order = shuffled(len(graph))
    gram = np.asarray(spatial(graph, order).gram)
    refiner = Refiner(gram, rounds=0)
    twins, difference = twins_of(refiner, refiner.first())
    pairs = {(i, j) for i, j in itertools.combinations(range(len(gram)), 2) if twins[i] == twins[j]}
    assert pairs == twins_by_definition(gram)
    for i, j in pairs:
        expected = gram[i, i] - gram[i, j]
        assert difference[i] == difference[j] == pytest.approx(expected, abs=1e-15)
    assert all(difference[i] == 0 for i in range(len(gram)) if (twins == twins[i]).sum() == 1)


def test_leaves_of_a_star_by_hand(eager: None) -> None:
    """Five nodes, hub first: W has 1/5 on edges, so leaves have H_ii - H_ij = (4/5)^2."""
    gram = workload(nx.star_graph(4))
    found = symmetry_of(gram)
    assert found is not None
    np.testing.assert_array_equal(found.orbit, [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.twins, [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.signs, np.ones((1, 5)))
    split = Split(program(gram), found)
    # H_hh = 5/25; H_hl = (1/5)(1/5) + (1/5)(4/5); H_ll = 17/25 and 1/25 between leaves.
    expected = np.array([[5 / 25, 5 / 25], [5 / 25, (17 + 3) / 25 / 4]])
    np.testing.assert_allclose(split.blocks[0].gram, expected, atol=1e-15)
    np.testing.assert_allclose(split.twins.gram, [0, 16 / 25 / 4], atol=1e-15)
    np.testing.assert_array_equal(split.twins.count, [0, 3])


def test_both_sides_of_a_complete_bipartite_graph_by_hand(eager: None) -> None:
    """K_{2,3}: W has 1/4 on edges, 1/4 and 1/2 on its diagonal, so H_ii - H_ij is 1/16 and 1/4."""
    found = symmetry_of(workload(nx.complete_bipartite_graph(2, 3)))
    assert found is not None
    np.testing.assert_array_equal(found.orbit, [0, 0, 1, 1, 1])
    split = Split(program(workload(nx.complete_bipartite_graph(2, 3))), found)
    np.testing.assert_allclose(split.twins.gram, [1 / 16 / 2, 1 / 4 / 3], atol=1e-15)
    np.testing.assert_allclose(split.twins.exact**2, split.twins.gram, rtol=1e-12)
    np.testing.assert_array_equal(split.twins.count, [1, 2])
    assert [len(block.gram) for block in split.blocks] == [2]


# --- involutions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (nx.path_graph(7), [4, 3]),
        (nx.path_graph(8), [4, 4]),
        (nx.grid_2d_graph(3, 4), [4, 4, 2, 2]),
        (nx.grid_2d_graph(2, 6), [3, 3, 3, 3]),
        (nx.barbell_graph(4, 2), [3, 3]),
    ],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_blocks_of_graphs(graph: nx.Graph, sizes: list[int], mixed: bool, eager: None) -> None:
    """A path of 7 has 4 even and 3 odd vectors, and so on, however the nodes are named."""
    gram = np.asarray(spatial(graph, shuffled(len(graph)) if mixed else None).gram)
    found = symmetry_of(gram)
    assert found is not None
    assert_splits(gram, found)
    signs, orbit = found.signs, found.orbit
    counts = [len(set(orbit[np.flatnonzero(s)].tolist())) for s in signs]
    assert sorted(counts, reverse=True) == sizes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(size=st.integers(2, 24), count=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_halves_of_commuting_involutions(size: int, count: int, seed: int) -> None:
    """A basis, and no entries between blocks, for any H that all of them preserve."""
    generators = commuting(size, count, seed)
    gram = averaged(random_gram(size, seed), group(generators))
    orbit, signs = np.arange(size), np.ones((1, size))
    for p in generators:
        assert (p[p] == np.arange(size)).all()
        orbit, signs = halves(orbit, signs, p)
    expected = [min(int(e[i]) for e in group(generators)) for i in range(size)]
    np.testing.assert_array_equal(orbit, expected)
    named = np.unique(orbit, return_inverse=True)[1]
    assert_splits(gram, Symmetry(orbit=named, twins=np.arange(size), signs=signs))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(size=st.integers(3, 30), seed=st.integers(0, 10**6))
def test_hidden_involutions_are_found(size: int, seed: int) -> None:
    """Of a random H that a random involution preserves, which is then its only symmetry."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(size)
    swaps = int(rng.integers(1, size // 2 + 1))
    hidden = np.arange(size)
    hidden[order[:swaps]], hidden[order[swaps : 2 * swaps]] = (
        order[swaps : 2 * swaps], order[:swaps],
    )  # fmt: skip
    gram = averaged(random_gram(size, seed), [np.arange(size), hidden])
    refiner = Refiner(gram, rounds=1000)
    found = involutions_of(refiner, refiner.first())
    assert len(found) == 1
    np.testing.assert_array_equal(found[0], hidden)
    assert preserves(gram, hidden)


def test_a_permutation_that_preserves_little_is_none() -> None:
    gram = workload(nx.path_graph(100))
    mirror = np.arange(100)[::-1]
    assert preserves(gram, mirror)
    gram[70, 71] += 1e-9
    gram[71, 70] += 1e-9
    assert not preserves(gram, mirror)


def test_only_involutions_that_commute_are_kept() -> None:
    """A square grid has four mirrors: those along its axes, and those along its diagonals."""
    gram = np.asarray(spatial(nx.grid_2d_graph(4, 4), shuffled(16)).gram)
    refiner = Refiner(gram, rounds=1000)
    found = involutions_of(refiner, refiner.first())
    assert len(found) == 2
    for p, q in itertools.product(found, found):
        np.testing.assert_array_equal(p[q], q[p])


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_there_is_nothing(seed: int, eager: None) -> None:
    gram = random_gram(12, seed)
    found = symmetry_of(gram)
    assert found is not None  # as anything is worth it here
    np.testing.assert_array_equal(found.signs, np.ones((1, 12)))
    np.testing.assert_array_equal(found.orbit, np.arange(12))


def test_graphs_without_symmetries_cost_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours of a random graph are those of its nodes at once, and nothing is looked for."""

    def forbidden(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(symmetry, "twins_of", forbidden)
    monkeypatch.setattr(symmetry, "involutions_of", forbidden)
    for graph in (nx.gnp_random_graph(300, 0.05, seed=1), nx.barabasi_albert_graph(300, 3, seed=1)):
        assert symmetry_of(workload(graph)) is None


@pytest.mark.parametrize("size", [1e-3, 1e-9, 1e-12])
def test_what_is_nearly_symmetric_is_not(size: float) -> None:
    gram = workload(nx.path_graph(80))
    noise = random_gram(80, 0)
    assert symmetry_of(gram) is not None
    assert symmetry_of(gram + size * noise / np.abs(noise).max()) is None


def test_rounding_hides_no_symmetry() -> None:
    gram = workload(nx.path_graph(80))
    noise = random_gram(80, 0)
    assert symmetry_of(gram + 1e-15 * noise / np.abs(noise).max()) is not None


# --- translations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "shape"),
    [
        (nx.cycle_graph(7), (7,)),
        (nx.complete_graph(6), (6,)),
        (nx.circulant_graph(12, [1, 3]), (12,)),
        (nx.grid_2d_graph(3, 5, periodic=True), (3, 5)),
        (nx.grid_2d_graph(4, 6, periodic=True), (4, 6)),
        (nx.hypercube_graph(5), (2, 2, 2, 2, 2)),
        (nx.grid_graph([3, 4, 5], periodic=True), (5, 4, 3)),
        (nx.path_graph(7), None),
        (nx.star_graph(6), None),
        (nx.petersen_graph(), None),
    ],
)
def test_shapes_along_which_graphs_are_circulant(
    graph: nx.Graph, shape: tuple[int, ...] | None
) -> None:
    gram = workload(graph)
    assert translations.shape_of(gram) == shape
    assert (translations.transitive(gram) is None) == (shape is None)


def test_one_and_two_nodes() -> None:
    for w in (np.ones((1, 1)), np.array([[0.75, 0.25], [0.25, 0.75]])):
        found = translations.transitive(w.T @ w)
        assert found is not None
        assert found.optimum == pytest.approx(np.trace(w) ** 2 / len(w), rel=1e-14)
        np.testing.assert_allclose(found.gram, w / w[0, 0], rtol=1e-14)


def test_a_circulant_but_for_one_entry_is_none() -> None:
    gram = workload(nx.cycle_graph(12))
    gram[7, 9] += 1e-12
    gram[9, 7] += 1e-12
    assert translations.shape_of(gram) is None


def test_an_h_of_nothing_has_no_closed_form() -> None:
    assert translations.transitive(np.zeros((3, 3))) is None


@pytest.mark.parametrize("shape", [(8,), (3, 5), (2, 3, 4), (1,), (2, 2, 2)])
def test_the_closed_form_is_the_square_root(shape: tuple[int, ...]) -> None:
    """H of random group-circulant matrices: X is H^1/2 over its diagonal, by eigenvectors."""
    n = int(np.prod(shape))
    a = np.random.default_rng(0).standard_normal(shape)
    index = list(np.ndindex(*shape))
    factor = np.array(
        [[a[tuple((np.subtract(j, i)) % shape)] for j in index] for i in index]
    ).reshape(n, n)
    gram = factor.T @ factor
    found = translations.transitive(gram)
    assert found is not None
    root = scipy.linalg.sqrtm(gram).real
    np.testing.assert_allclose(found.gram, root / root[0, 0], atol=1e-7)
    assert found.optimum == pytest.approx(np.linalg.norm(factor, "nuc") ** 2 / n, rel=1e-9)


# --- S in blocks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(9), nx.grid_2d_graph(4, 6), nx.star_graph(6), nx.lollipop_graph(5, 4),
        nx.complete_bipartite_graph(3, 5), nx.barbell_graph(5, 3), nx.balanced_tree(2, 3),
        nx.balanced_tree(3, 2),
    ],
)  # fmt: skip
def test_blocks_say_what_the_whole_says(graph: nx.Graph, eager: None) -> None:
    """Trace, diagonal, curvature, X and its rescaled objective, at multipliers equal on orbits."""
    whole = spatial(graph, shuffled(len(graph)))
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
    product = expected.curvature(trace=2.0).product(x[found.orbit])
    np.testing.assert_allclose(
        got.curvature(trace=2.0).product(x), np.bincount(found.orbit, product), atol=1e-12
    )
    above = expected.curvature_above(trace=2.0) @ x[found.orbit]
    np.testing.assert_allclose(
        got.curvature_above(trace=2.0) @ x, np.bincount(found.orbit, above), atol=1e-12
    )
    np.testing.assert_allclose(got.gram(p), expected.gram(v), atol=1e-11)
    ratio = rng.uniform(0.5, 2, orbits)
    if expected.rescaled(ratio[found.orbit]) < 1e6:  # W may be singular
        assert got.rescaled(ratio) == pytest.approx(expected.rescaled(ratio[found.orbit]), rel=1e-8)


def test_twins_of_identical_columns_have_no_share() -> None:
    """As of nodes that mix alike: H_ii - H_ij is 0, and rounding must not make it a root."""
    columns = np.random.default_rng(0).standard_normal((10, 4))
    factor = columns[:, np.repeat(np.arange(4), [70, 1, 1, 1])]
    whole = program(factor.T @ factor, factor)
    found = symmetry_of(np.asarray(whole.gram))
    assert found is not None
    split = Split(whole, found)
    root = split.square_root(split.collected(np.ones(73)))
    assert split.twins.count.sum() == 69
    np.testing.assert_array_equal(root.alone[split.twins.count > 0], 0)
    w = np.asarray(whole.factor)
    assert root.trace == pytest.approx(np.linalg.norm(w, "nuc"), rel=1e-13)
    assert root.rescaled(np.ones(len(split.sizes))) == np.inf


def test_a_nearly_singular_block_takes_its_factor() -> None:
    """Singular values from 1 to 1e-9 that a mirror preserves: their sum is kept to 1e-13."""
    rng = np.random.default_rng(1)
    even, odd = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    values = np.geomspace(1, 1e-9, 8)
    basis_of_mirror = np.block([[np.eye(4), np.eye(4)[::-1]], [np.eye(4), -np.eye(4)[::-1]]])
    factor = values[:, None] * (scipy.linalg.block_diag(even, odd) @ basis_of_mirror / np.sqrt(2))
    whole = program(factor.T @ factor, factor)
    orbit, signs = halves(np.arange(8), np.ones((1, 8)), np.arange(8)[::-1])
    split = Split(whole, Symmetry(orbit=orbit, twins=np.arange(8), signs=signs))
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
