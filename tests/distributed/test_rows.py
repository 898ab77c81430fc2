"""W by its rows in parts, against scipy on the whole of it: products, sums over neighbourhoods."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import noisedesign as nd
from noisedesign.base import together
from noisedesign.base.checks import Array
from noisedesign.distributed import sums
from noisedesign.distributed.mail import LostError
from noisedesign.distributed.world import World
from noisedesign.families.polynomial.operator import Weighted
from tests.support.parts import in_parts, rows_of

N = 40
CUTS = {
    "halves": [0, 20, 40],
    "one node": [0, 1, 2, 40],  # two parts of a node each
    "all of them": [0, 40],
    "no inner edge": [0, 3, 9, 40],  # of the star's leaves
}


def mixing(kind: str = "random") -> sparse.csr_array:
    """A symmetric W; of "star" its leaves have no edge among them."""
    if kind == "star":
        rim = np.arange(1, N)
        w = np.zeros((N, N))
        w[-1, rim - 1] = w[rim - 1, -1] = 1 / N
    else:
        rng = np.random.default_rng(4)
        near = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
        w = np.where((near == 1) | (rng.random((N, N)) < 0.05), rng.random((N, N)), 0.0) / 20
        w = np.triu(w, 1)
        w = w + w.T
    return sparse.csr_array(w + np.diag(1 - w.sum(axis=1)))


@pytest.mark.parametrize("kind", ["random", "star"])
@pytest.mark.parametrize("ends", CUTS.values(), ids=CUTS.keys())
def test_products_are_those_of_the_whole(kind: str, ends: list[int]) -> None:
    w = mixing(kind)
    block = np.random.default_rng(0).standard_normal((N, 3))

    def find(world: World) -> tuple[Array, Array]:
        rows = rows_of(w, world)
        own = block[world.first : world.end]
        stored = rows.times(sparse.csr_array(own))
        return rows.times(own), stored.toarray()

    dense, stored = (np.concatenate(found) for found in zip(*in_parts(ends, find), strict=True))
    expected = w.toarray() @ block
    assert dense == pytest.approx(expected, abs=1e-14)
    assert stored == pytest.approx(expected, abs=1e-14)


def chebyshev_diagonals(w: Array, v: Array, top: float, degree: int) -> Array:
    """By eigenvalues of the dense B."""
    root = np.sqrt(v)[:, None]
    values, vectors = np.linalg.eigh(root * (w.T @ w) * root.T)
    t = np.cos(np.outer(np.arange(degree + 1), np.arccos(np.clip(2 * values / top - 1, -1, 1))))
    return np.asarray(t @ (vectors**2).T)


@pytest.mark.parametrize("degree", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("ends", CUTS.values(), ids=CUTS.keys())
def test_both_sums_over_neighbourhoods(
    ends: list[int], degree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "ENTRIES_AT_ONCE", 300)  # so that blocks are several
    w, v = mixing(), np.random.default_rng(1).uniform(0.5, 1.0, N)

    def find(world: World) -> tuple[Array, Array, float]:
        operator = Weighted(mixing=rows_of(w, world), weights=v[world.first : world.end])
        halves = operator.moments(degree)
        return halves, operator.factor.by_steps(operator.top, degree), operator.top

    found = in_parts(ends, find)
    expected = chebyshev_diagonals(w.toarray(), v, found[0][2], degree)
    for route in range(2):
        seen = np.concatenate([one[route] for one in found], axis=1)
        assert seen == pytest.approx(expected, abs=1e-12)


def test_walks_bound_what_is_reached() -> None:
    w = mixing()

    def find(world: World) -> Array:
        return sums.walks(rows_of(w, world), 3)

    found = np.concatenate(in_parts([0, 7, 40], find))
    reached = np.count_nonzero(np.linalg.matrix_power(w.toarray() != 0, 3), axis=1)
    assert (found >= reached).all()
    assert (found <= N).all()


def test_spectra_and_bounds_are_those_of_one_process() -> None:
    w, v = mixing(), np.random.default_rng(2).uniform(0.5, 1.0, N)
    starts = np.random.default_rng(3).standard_normal((N, 2))
    whole = Weighted(mixing=w, weights=v)
    expected = whole.spectrum(starts, steps=12)

    def find(world: World) -> tuple[Array, Array, float]:
        own = slice(world.first, world.end)
        operator = Weighted(mixing=rows_of(w, world), weights=v[own])
        return *operator.spectrum(starts[own], steps=12), operator.top

    for nodes, weights, top in in_parts([0, 1, 25, 40], find):  # a part of fewer nodes than steps
        assert nodes == pytest.approx(expected[0], abs=1e-9)
        assert weights == pytest.approx(expected[1], rel=1e-6, abs=1e-6)
        assert top == pytest.approx(whole.top, rel=1e-12)


def test_all_parts_draw_rows_of_one_array() -> None:
    def find(world: World) -> tuple[Array, Array, float]:
        rng = np.random.default_rng(5)
        normal = together.drawn(rng.standard_normal, 0, 3)
        signs = together.drawn(lambda size: rng.choice([-1.0, 1.0], size=size), 0, 5)
        return normal, signs, float(rng.random())

    rng = np.random.default_rng(5)
    normal, signs = rng.standard_normal((11, 3)), rng.choice([-1.0, 1.0], size=(11, 5))
    found = in_parts([0, 1, 4, 11], find)
    assert (np.concatenate([one[0] for one in found]) == normal).all()
    assert (np.concatenate([one[1] for one in found]) == signs).all()
    assert {one[2] for one in found} == {rng.random()}  # the next number is the same as well


def test_sums_maxima_and_least_squares_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(6)
    basis, images = rng.standard_normal((30, 4)), rng.standard_normal(30)

    def find(world: World) -> tuple[Array, float, float, Array]:
        own = slice(world.first, world.end)
        return (
            together.total(basis[own].sum(axis=0)),
            together.largest(images[own]),
            together.least(images[own]),
            together.least_squares(basis[own], images[own]),
        )

    found = in_parts([0, 1, 3, 30], find)  # parts of fewer rows than columns
    for total, largest, least, nearest in found:
        assert total == pytest.approx(basis.sum(axis=0), rel=1e-12)
        assert (largest, least) == (images.max(), images.min())
        assert nearest == pytest.approx(np.linalg.pinv(basis) @ images, rel=1e-10)
        assert (nearest == found[0][3]).all()  # the same bits everywhere


def test_bytes_are_those_of_halos() -> None:
    """8 bytes a column, product and node with a neighbour in another part, by a brute count."""
    w, ends = mixing(), [0, 13, 27, 40]
    owner = np.searchsorted(ends, np.arange(N), side="right") - 1
    pairs = {(int(v), owner[u]) for u, v in np.argwhere(w.toarray()) if owner[u] != owner[v]}

    def find(world: World) -> tuple[int, int]:
        rows = rows_of(w, world)
        for _ in range(5):
            rows.times(np.ones((world.end - world.first, 3)))
        return world.mail.sent["halo bytes"], world.mail.sent["halo messages"]

    found = in_parts(ends, find)
    assert sum(sent for sent, _ in found) == 8 * 3 * 5 * len(pairs)
    neighbours = {(owner[u], owner[v]) for u, v in np.argwhere(w.toarray())}
    assert sum(count for _, count in found) == 5 * sum(a != b for a, b in neighbours)


def test_a_part_that_is_silent_ends_the_others() -> None:
    def find(world: World) -> None:
        if world.index == 0:
            return  # and sends nothing
        together.total(1.0)

    with pytest.raises(LostError, match="part 0 sent nothing for 0.2 s"):
        in_parts([0, 1, 2], find, silence=0.2)


def test_parts_that_ask_for_different_things_are_told_so() -> None:
    w = mixing()

    def find(world: World) -> None:
        rows = rows_of(w, world)
        if world.index:
            together.total(1.0)
        else:
            rows.times(np.ones((world.end - world.first, 1)))

    with pytest.raises(LostError, match="is about"):
        in_parts([0, 20, 40], find)


def test_the_package_loads_nothing_of_it() -> None:
    assert "distributed" not in nd.__all__


GIVEN_BACK = """
import numpy as np
from noisedesign.distributed.world import give_back

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

before = held()
kept = [np.ones(2000) for _ in range(20_000)]  # 320 MB, each too small for pages of its own
most = held() - before
kept = kept[::100]
keeps = held() - before
give_back()
print(keeps / most, (held() - before) / most)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_memory_that_was_freed_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVEN_BACK], stdout=subprocess.PIPE, text=True, check=True
    )
    keeps, after = map(float, done.stdout.split())
    assert keeps > 0.5  # or there is nothing to show
    assert after < 0.1
