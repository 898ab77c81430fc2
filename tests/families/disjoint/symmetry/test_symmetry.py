"""Symmetries of H: found where there are some and only there, and blocks that are those of H."""

from __future__ import annotations

import itertools
import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from noisedesign.families.disjoint.solver import symmetry
from noisedesign.families.disjoint.solver.square_roots import Split
from noisedesign.families.disjoint.solver.symmetry import (
    Symmetry,
    colours,
    halves,
    preserves,
    reversals,
    symmetry_of,
)
from tests.support.symmetric_cases import (
    Array,
    assert_splits,
    averaged,
    commuting,
    group,
    make_eager,
    program,
    random_gram,
    workload,
)

Permutation = NDArray[np.intp]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


def automorphisms(gram: Array) -> list[Permutation]:
    """Every permutation that preserves H, all of them tried."""
    n = len(gram)
    return [
        p
        for p in map(np.array, itertools.permutations(range(n)))
        if np.abs(gram[np.ix_(p, p)] - gram).max() < 1e-12
    ]


# --- colours ----------------------------------------------------------------------------------


def test_values_are_grouped_within_their_colours() -> None:
    labels = np.array([1, 0, 1, 0, 1])
    values = np.array([2.0, 5, 1, 5 + 1e-13, 2])
    np.testing.assert_array_equal(symmetry._split(labels, values, 1e-12), [2, 0, 1, 0, 2])
    np.testing.assert_array_equal(symmetry._split(labels, values, 0.0), [3, 0, 2, 1, 3])


def test_refinement_of_a_path_ends_in_mirror_pairs() -> None:
    labels = colours(workload(nx.path_graph(9)))
    np.testing.assert_array_equal(labels, labels[::-1])
    assert len(set(labels.tolist())) == 5


@pytest.mark.parametrize("seed", range(4))
def test_colours_are_unions_of_orbits(seed: int) -> None:
    """Of all automorphisms of small graphs, by brute force: colours are coarser, never finer."""
    gram = workload(nx.gnp_random_graph(7, 0.4, seed=seed))
    labels = colours(gram)
    for p in automorphisms(gram):
        np.testing.assert_array_equal(labels[p], labels)


def test_no_more_rounds_than_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = workload(nx.path_graph(60))
    assert colours(gram).max() + 1 == 30
    monkeypatch.setattr(symmetry, "ROUNDS", 3)
    assert colours(gram).max() + 1 < 15


# --- involutions ------------------------------------------------------------------------------


def test_what_is_tried_is_of_order_two() -> None:
    labels = np.array([0, 1, 1, 1, 1, 1, 0, 0, 2, 0])
    tried = [p.tolist() for p in reversals(labels)]
    for p in map(np.array, tried):
        np.testing.assert_array_equal(p[p], np.arange(10))
    assert [9, 8, 7, 6, 5, 4, 3, 2, 1, 0] in tried
    assert [4, 3, 2, 1, 0, 9, 8, 7, 6, 5] in tried
    assert [9, 5, 4, 3, 2, 1, 7, 6, 8, 0] in tried  # every colour
    assert [6, 2, 1, 3, 5, 4, 0, 9, 8, 7] in tried  # halves of every colour


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (nx.path_graph(7), [4, 3]),
        (nx.path_graph(8), [4, 4]),
        (nx.grid_2d_graph(3, 4), [4, 4, 2, 2]),
        (nx.grid_2d_graph(2, 6), [3, 3, 3, 3]),
        (nx.barbell_graph(4, 2), [4, 4, 1, 1]),
        (nx.cycle_graph(8), [2, 2, 2, 2]),
        (nx.grid_2d_graph(3, 5, periodic=True), [6, 4, 3, 2]),
        (nx.hypercube_graph(3), [1] * 8),
        (nx.star_graph(4), [2, 1, 1, 1]),
    ],
)
def test_blocks_of_graphs(graph: nx.Graph, sizes: list[int], eager: None) -> None:
    """A path of 7 has 4 even and 3 odd vectors, and so on."""
    gram = workload(graph)
    found = symmetry_of(gram)
    assert found is not None
    assert_splits(gram, found)
    signs, orbit = found.signs, found.orbit
    counts = [len(set(orbit[np.flatnonzero(s)].tolist())) for s in signs]
    assert sorted(counts, reverse=True) == sizes


def test_leaves_of_a_star_by_hand(eager: None) -> None:
    """Five nodes, hub first: W has 1/5 on edges, so leaves have H_ii - H_ij = (4/5)^2."""
    gram = workload(nx.star_graph(4))
    found = symmetry_of(gram)
    assert found is not None
    np.testing.assert_array_equal(found.orbit, [0, 1, 1, 1, 1])
    split = Split(program(gram), found)
    # H_hh = 5/25; H_hl = (1/5)(1/5) + (1/5)(4/5); H_ll = 17/25 and 1/25 between leaves.
    expected = np.array([[5 / 25, 5 / 25], [5 / 25, (17 + 3) / 25 / 4]])
    blocks = sorted((block.gram for block in split.blocks), key=len, reverse=True)
    np.testing.assert_allclose(blocks[0], expected, atol=1e-15)
    np.testing.assert_allclose(blocks[1:], np.full((3, 1, 1), 16 / 25 / 4), atol=1e-15)


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
    assert_splits(gram, Symmetry(named, signs))


def test_a_permutation_that_preserves_little_is_none() -> None:
    gram = workload(nx.path_graph(100))
    mirror = np.arange(100)[::-1]
    assert preserves(gram, mirror)
    gram[70, 71] += 1e-9
    gram[71, 70] += 1e-9
    assert not preserves(gram, mirror)


def test_halves_of_a_tree_are_swapped_and_quarters_of_both_at_once(eager: None) -> None:
    found = symmetry_of(workload(nx.balanced_tree(2, 5)))
    assert found is not None
    assert sorted(np.bincount(found.orbit).tolist()) == [1, 2, 4, 8, 16, 32]


def test_only_involutions_that_commute_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A square grid has four mirrors: those along its axes, and those along its diagonals."""
    make_eager(monkeypatch)
    square = np.arange(16).reshape(4, 4)
    mirrors = [square[::-1], square.T, square[:, ::-1], square[::-1, ::-1].T]
    monkeypatch.setattr(symmetry, "reversals", lambda _: (m.ravel() for m in mirrors))
    gram = workload(nx.grid_2d_graph(4, 4))
    assert all(preserves(gram, mirror.ravel()) for mirror in mirrors)
    found = symmetry_of(gram)
    assert found is not None
    assert len(found.signs) == 4
    assert_splits(gram, found)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_there_is_nothing(seed: int, eager: None) -> None:
    found = symmetry_of(random_gram(12, seed))
    assert found is not None  # as anything is worth it here
    np.testing.assert_array_equal(found.signs, np.ones((1, 12)))
    np.testing.assert_array_equal(found.orbit, np.arange(12))


def test_graphs_without_symmetries_cost_a_few_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours of a random graph are those of its nodes at once, and nothing is tried."""

    def forbidden(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(symmetry, "reversals", forbidden)
    for graph in (nx.gnp_random_graph(300, 0.05, seed=1), nx.barabasi_albert_graph(300, 3, seed=1)):
        assert symmetry_of(workload(graph)) is None


def test_blocks_are_split_as_far_as_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = workload(nx.star_graph(99))
    found = symmetry_of(gram)
    assert found is not None
    assert len(found.signs) == 2
    monkeypatch.setattr(symmetry, "HANDLING", 0)
    found = symmetry_of(gram)
    assert found is not None
    assert len(found.signs) == 64


def test_one_pair_of_leaves_is_not_worth_it() -> None:
    graph = nx.gnp_random_graph(100, 0.1, seed=1)
    graph.add_edges_from([(3, 100), (3, 101)])
    assert symmetry_of(workload(graph)) is None


def test_no_second_h_is_formed() -> None:
    for graph in (nx.path_graph(600), nx.random_regular_graph(4, 600, seed=0)):
        gram = workload(graph)
        tracemalloc.start()
        symmetry_of(gram)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < gram.nbytes / 2


@pytest.mark.parametrize("graph", [nx.path_graph(80), nx.star_graph(79)])
@pytest.mark.parametrize("size", [1e-3, 1e-9, 1e-12])
def test_what_is_nearly_symmetric_is_not(size: float, graph: nx.Graph) -> None:
    gram = workload(graph)
    noise = random_gram(80, 0)
    assert symmetry_of(gram) is not None
    assert symmetry_of(gram + size * noise / np.abs(noise).max()) is None


def test_rounding_hides_no_symmetry() -> None:
    gram = workload(nx.path_graph(80))
    noise = random_gram(80, 0)
    assert symmetry_of(gram + 1e-15 * noise / np.abs(noise).max()) is not None
