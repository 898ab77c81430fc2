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
    MISSES,
    Involutions,
    Refiner,
    Symmetry,
    grouped,
    halves,
    involutions_of,
    one_of_each,
    preserves,
    symmetry_of,
    twins_of,
)
from tests.support import oracles
from tests.support.symmetric_cases import (
    Array,
    assert_splits,
    averaged,
    commuting,
    group,
    make_eager,
    program,
    random_gram,
    shuffled,
    spatial,
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
        nx.star_graph(6),
        nx.complete_bipartite_graph(3, 5),
        nx.complete_graph(6),
        nx.lollipop_graph(5, 3),
        nx.barbell_graph(4, 1),
        nx.balanced_tree(2, 3),
        nx.path_graph(3),
        nx.complete_multipartite_graph(2, 2, 3),
        nx.windmill_graph(3, 4),
        nx.cycle_graph(7),
        oracles.karate(),
        nx.balanced_tree(2, 5),
    ],
)
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


def test_twins_are_carried_onto_twins_that_are_alike(eager: None) -> None:
    """A path with five leaves on each end: its mirror goes when leaves of one end are a little
    closer to one another, by less than sums are told apart."""
    graph = nx.path_graph(6)
    graph.add_edges_from([(end, ("leaf", end, k)) for end in (0, 5) for k in range(5)])
    gram = workload(graph)
    found = symmetry_of(gram)
    assert found is not None
    assert found.orbit.max() + 1 == 4
    gram[6:11, 6:11] += 2e-13 * (1 - np.eye(5))
    found = symmetry_of(gram)
    assert found is not None
    assert found.twins.max() + 1 == found.orbit.max() + 1 == 8


def test_colours_of_twins_tell_sizes_and_differences() -> None:
    twins = np.array([0, 0, 1, 1, 2, 2, 2, 3, 4])
    difference = np.array([1.0, 1, 2, 2, 1, 1, 1, 0, 0])
    refiner = Refiner(np.diag(np.arange(1.0, 10)), rounds=5)
    refiner, labels = one_of_each(refiner, np.zeros(9, dtype=np.intp), twins, difference)
    np.testing.assert_array_equal(labels, [1, 2, 3, 0, 0])
    np.testing.assert_array_equal(refiner.diagonal, [1, 3, 5, 8, 9])
    assert refiner.rounds == 5


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
        order[swaps : 2 * swaps],
        order[:swaps],
    )
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


def test_what_is_accepted() -> None:
    """Of the identity, which any permutation preserves: commuting involutions, within colours."""
    refiner = Refiner(np.eye(5), rounds=0)
    involutions = Involutions(refiner, np.array([0, 0, 0, 0, 1]))
    assert not involutions.accept(np.array([1, 2, 0, 3, 4]))
    assert not involutions.accept(np.array([4, 1, 2, 3, 0]))
    assert involutions.accept(np.array([1, 0, 3, 2, 4]))
    assert not involutions.accept(np.array([2, 1, 0, 3, 4]))
    assert not involutions.accept(np.array([1, 0, 3, 2, 4]))
    assert involutions.accept(np.array([2, 3, 0, 1, 4]))
    np.testing.assert_array_equal(involutions.orbits, [0, 0, 0, 0, 4])


def test_swaps_carry_those_before_along(eager: None) -> None:
    """A binary tree: its halves are swapped, and then the quarters of both at once."""
    gram = np.asarray(spatial(nx.balanced_tree(2, 5), shuffled(63)).gram)
    found = symmetry_of(gram)
    assert found is not None
    assert sorted(np.bincount(found.orbit).tolist()) == [1, 2, 4, 8, 16, 32]


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


def test_reversals_need_no_refinement() -> None:
    for graph, count in ((nx.path_graph(70), 1), (nx.grid_2d_graph(6, 9), 2)):
        refiner = Refiner(workload(graph), rounds=0)
        assert len(involutions_of(refiner, refiner.first())) == count


def test_nodes_of_one_colour_are_left_alone() -> None:
    """Where they are all alike equal multipliers are optimal, and one evaluation tells."""
    gram = np.asarray(spatial(nx.cycle_graph(70), shuffled(70)).gram)
    refiner = Refiner(gram, rounds=10**6)
    assert refiner.first().max() == 0
    assert involutions_of(refiner, refiner.first()) == []
    assert symmetry_of(gram) is None


def test_a_search_in_vain_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path but for what colours do not tell apart: 30 pairs of nodes that look alike."""
    tried: list[tuple[int, int]] = []
    original = Involutions._swapping

    def noted(self: Involutions, first: int, second: int) -> Permutation | None:
        tried.append((first, second))
        return original(self, first, second)

    monkeypatch.setattr(Involutions, "_swapping", noted)
    order = shuffled(60)
    gram = np.asarray(spatial(nx.path_graph(60), order).gram) + 4e-15 * random_gram(60, 0)
    refiner = Refiner(gram, rounds=10**6)
    assert involutions_of(refiner, refiner.first()) == []
    assert len(tried) == MISSES


def test_blocks_are_split_as_far_as_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cliques and a path between them: 24 classes of twins, whose mirror would save nothing."""
    gram = workload(nx.barbell_graph(60, 20))
    found = symmetry_of(gram)
    assert found is not None
    assert len(found.signs) == 1
    assert found.orbit.max() + 1 == 24
    monkeypatch.setattr(symmetry, "HANDLING", 0)
    found = symmetry_of(gram)
    assert found is not None
    assert len(found.signs) == 2
    assert found.orbit.max() + 1 == 12


def test_one_pair_of_twins_is_not_worth_it() -> None:
    graph = nx.gnp_random_graph(100, 0.1, seed=1)
    graph.add_edges_from([(3, 100), (3, 101)])
    gram = workload(graph)
    refiner = Refiner(gram, rounds=0)
    assert len(set(twins_of(refiner, refiner.first())[0].tolist())) == 101
    assert symmetry_of(gram) is None


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
