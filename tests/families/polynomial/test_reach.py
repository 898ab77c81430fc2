"""Neighbourhoods that are cut out of sparse graphs, against dense products and sets of nodes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.families.polynomial import reach
from noisedesign.families.polynomial.reach import Neighbourhoods

SOME = np.random.default_rng(0)


def filled(pattern: Array) -> Array:
    """Random numbers where there is a link."""
    return np.where(pattern != 0, SOME.uniform(0.1, 1.0, pattern.shape), 0.0)


def arrays() -> dict[str, Array]:
    scale_free = nx.to_numpy_array(nx.barabasi_albert_graph(40, 2, seed=1))
    return {
        "star": filled(nx.to_numpy_array(nx.star_graph(11)) + np.eye(12)),
        "star without its nodes": filled(nx.to_numpy_array(nx.star_graph(11))),
        "complete": filled(np.ones((7, 7))),
        "alone": np.diag(SOME.uniform(0.1, 1.0, 5)),
        "nothing": np.zeros((3, 3)),
        "one node": np.ones((1, 1)),
        "path": filled(nx.to_numpy_array(nx.path_graph(30)) + np.eye(30)),
        "one way": filled(np.triu(scale_free) + np.eye(40)),
        "scale-free": filled(scale_free + np.eye(40)),
        "not square": filled(np.triu(scale_free)[:9]),
    }


ARRAYS = arrays()


def turns(a: Array, hops: int) -> list[Array]:
    """Images of unit vectors, as rows, by products with A and A^T by turns."""
    found = [np.eye(a.shape[1])]
    for hop in range(hops):
        found.append(found[-1] @ (a if hop % 2 else a.T))
    return found


def neighbourhoods(a: Array, hops: int) -> Neighbourhoods:
    whole = sparse.csr_array(a)
    nodes = np.arange(a.shape[1])
    return Neighbourhoods(factor=whole, transposed=whole.T.tocsr(), hops=hops, nodes=nodes)


@pytest.fixture(params=[1, 30, 10**9])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reach, "ENTRIES_AT_ONCE", request.param)
    monkeypatch.setattr(reach, "RUN", 9)
    monkeypatch.setattr(reach, "FIRST", 2)
    return int(request.param)


@pytest.mark.parametrize("hops", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("name", ARRAYS)
def test_products_around_nodes_are_those_with_the_whole(name: str, hops: int, room: int) -> None:
    a = ARRAYS[name]
    images = turns(a, hops)
    around = neighbourhoods(a, hops)
    pieces = [piece for run in around.runs for piece in around.pieces(run)]
    places = [k for piece in pieces for k in range(a.shape[1])[piece.nodes]]
    assert places == list(range(a.shape[1]))
    for piece in pieces:
        count = piece.nodes.stop - piece.nodes.start
        current = np.eye(count, piece.factor.shape[1])
        for hop in range(hops):
            current = current @ (piece.factor if hop % 2 else piece.transposed).toarray()
            expected = images[hop + 1][piece.nodes]
            # Under other numbers, but with the same entries in every row; the nodes come first.
            extra = max(expected.shape[1], current.shape[1])
            padded = [np.pad(x, ((0, 0), (0, extra - x.shape[1]))) for x in (current, expected)]
            np.testing.assert_allclose(*(np.sort(x, axis=1) for x in padded), rtol=1e-12)
            if hop % 2:
                own = expected[:, piece.nodes]
                np.testing.assert_allclose(current[:, :count], own, rtol=1e-12)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("name", ARRAYS)
def test_a_piece_reaches_no_more_than_there_is_room_for(name: str, hops: int, room: int) -> None:
    a = ARRAYS[name]
    entries = np.count_nonzero(turns(a, hops)[-1], axis=1)
    around = neighbourhoods(a, hops)
    assert np.all(entries <= around.walks)
    for piece in (piece for run in around.runs for piece in around.pieces(run)):
        count = piece.nodes.stop - piece.nodes.start
        assert count == 1 or entries[piece.nodes].sum() <= room
        if room > a.size:
            ends = [piece.nodes.start, piece.nodes.stop]
            assert ends[1] in (around.runs[ends[0] // 9].stop, ends[0] + 2, ends[0] + 8)


def test_a_piece_is_as_small_as_what_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a path of 5,000 nodes three products reach three nodes more on either side."""
    monkeypatch.setattr(reach, "RUN", 50)
    monkeypatch.setattr(reach, "FIRST", 50)
    path = sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(5000, 5000)).tocsr()
    around = Neighbourhoods(factor=path, transposed=path.copy(), hops=3, nodes=np.arange(5000))
    (piece,) = around.pieces(slice(1000, 1050))
    assert piece.factor.shape == (56, 54)  # at odd and at even products
    assert piece.factor.nnz == 52 * 3  # of the rows that the third product begins at
    assert piece.transposed.shape == (54, 56)
    assert piece.transposed.nnz == 54 * 3


def test_nodes_in_any_order_around_which_both_sides_are_one() -> None:
    a = ARRAYS["scale-free"] + ARRAYS["scale-free"].T
    whole = sparse.csr_array(a)
    nodes = np.array([7, 3, 30])
    around = Neighbourhoods(factor=whole, transposed=whole, hops=2, nodes=nodes)
    (piece,) = around.pieces(slice(0, 3))
    assert piece.factor is piece.transposed
    square = np.eye(3, piece.factor.shape[0]) @ piece.factor.toarray() @ piece.factor.toarray()
    np.testing.assert_allclose(square[:, :3], (a @ a)[np.ix_(nodes, nodes)], rtol=1e-12)


def test_what_is_written_out_is_full_and_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    half = sparse.csr_array(np.eye(2))
    assert reach.is_full(half, 0.4)
    assert not reach.is_full(half, 0.5)
    monkeypatch.setattr(reach, "NUMBERS_AT_ONCE", 3)
    assert not reach.is_full(half, 0.4)
