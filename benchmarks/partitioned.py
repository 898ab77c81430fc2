"""Polynomials of W on many workers, simulated: ``python -m benchmarks.partitioned``.

Every worker holds its rows of W and of W^T and its part of every vector. A product needs the
entries of vectors at nodes next to its rows that others own: its halo. They come as messages here,
whose bytes are counted; a worker's code sees its own rows, and nothing else of the others but
these. The result is compared with that of one process, and the bytes with what the graph says: 8
bytes, times vectors, times pairs of a node and another worker next to it. Nothing here ran on a
cluster: what ten million nodes would exchange is that count for their degrees, or its growth for
graphs in the plane.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy import sparse
from scipy.sparse import _sparsetools

import noisedesign as nd
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.system.graph import build_graph
from noisedesign.system.rules import sparse_mixing_matrix
from noisedesign.tasks.report import Record, print_table

KINDS: dict[str, dict[str, Any]] = {
    "barabasi-albert": {"links": 3},
    "erdos-renyi": {"degree": 8.0},
    "random-geometric": {"degree": 8.0},
}

IN_PLACE = "random-geometric"
"""Whose nodes lie in the unit square, which workers may divide among them."""

SEED = 1
SIDES = 2**10
"""Cells along either side of the square, by which nodes are put in order."""

LARGE = 10_000_000
LINK = 1.25e9
"""Bytes a second of a worker's link of 10 Gbit/s."""

COUNTED = 10_000
"""Nodes of the solves whose products are counted: there and beyond, vectors are the fewest."""

STRUCTURES = ("polynomial", "pairwise")


@dataclass(eq=False)
class Wire:
    """What was sent."""

    bytes: int = 0
    messages: int = 0
    reductions: int = 0

    def send(self, data: np.ndarray) -> np.ndarray:
        """What arrives: a copy, of which every byte is counted."""
        self.bytes += data.nbytes
        self.messages += 1
        return np.frombuffer(data.tobytes()).reshape(data.shape)


@dataclass(eq=False)
class Rows:
    """Some rows of a sparse array, on the workers that own them."""

    parts: list[np.ndarray]
    local: list[Any] = field(init=False)
    halos: list[dict[int, tuple[np.ndarray, np.ndarray]]] = field(init=False)

    def __init__(self, matrix: Any, parts: list[np.ndarray]) -> None:
        matrix = matrix.tocsr()
        n = matrix.shape[0]
        owner, place = np.empty(n, dtype=int), np.empty(n, dtype=int)
        for k, nodes in enumerate(parts):
            owner[nodes], place[nodes] = k, np.arange(len(nodes))
        self.parts, self.local, self.halos = parts, [], []
        for k, nodes in enumerate(parts):
            rows = matrix[nodes].tocoo()
            needed = np.unique(rows.coords[1])
            foreign = needed[owner[needed] != k]
            foreign = foreign[np.argsort(owner[foreign], kind="stable")]
            # Columns of a worker: its own nodes first, then those of its halo.
            column = np.full(n, -1)
            column[nodes], column[foreign] = place[nodes], len(nodes) + np.arange(len(foreign))
            shape = (len(nodes), len(nodes) + len(foreign))
            entries = (rows.data, (rows.coords[0], column[rows.coords[1]]))
            self.local.append(sparse.coo_array(entries, shape=shape).tocsr())
            halo = {}
            for other in np.unique(owner[foreign]):
                theirs = foreign[owner[foreign] == other]
                halo[int(other)] = (place[theirs], column[theirs])
            self.halos.append(halo)

    @property
    def pairs(self) -> int:
        """Of a node and a worker that does not own it and has a neighbour of it."""
        return sum(len(at) for halo in self.halos for at, _ in halo.values())

    def times(self, vectors: list[np.ndarray], wire: Wire) -> list[np.ndarray]:
        """The product, on the workers that own its rows."""
        results = []
        for k, matrix in enumerate(self.local):
            seen = np.empty((matrix.shape[1], vectors[k].shape[1]))
            seen[: len(vectors[k])] = vectors[k]
            for other, (theirs, here) in self.halos[k].items():
                seen[here] = wire.send(vectors[other][theirs])
            results.append(matrix @ seen)
        return results


def applied(
    rows: tuple[Rows, Rows], p: Chebyshev, block: list[np.ndarray], wire: Wire
) -> list[np.ndarray]:
    """p(B) times a block, as :meth:`Weighted.apply`, on workers; rows are those of A and A^T."""

    def product(vectors: list[np.ndarray]) -> list[np.ndarray]:
        return rows[1].times(rows[0].times(vectors, wire), wire)

    c = p.coef
    previous = block
    current = [2 * y - x for y, x in zip(product(block), block, strict=True)]
    total = [c[0] * x + c[1] * y for x, y in zip(previous, current, strict=True)]
    for coefficient in c[2:]:
        image = product(current)
        three = zip(image, current, previous, strict=True)
        following = [4 * z - 2 * y - x for z, y, x in three]
        previous, current = current, following
        for into, part in zip(total, current, strict=True):
            into += coefficient * part
    return total


def summed(parts: list[np.ndarray], wire: Wire) -> float:
    """A sum over all nodes: every worker but one sends a number on, along a tree."""
    wire.reductions += 1
    sums = [np.array([part.sum()]) for part in parts]
    return float(sums[0][0] + sum(wire.send(each)[0] for each in sums[1:]))


def expected_pairs(degrees: np.ndarray, workers: int) -> float:
    """Of a random partition: a node of degree d is next to a given other worker with probability
    (1 - (1 - 1/k)^d)."""
    return float(np.sum((workers - 1) * (1 - (1 - 1 / workers) ** degrees)))


def in_place(nodes: int, seed: int) -> np.ndarray:
    """The nodes of a random geometric graph in Morton's order, of bits of x and y by turns."""
    places = np.random.default_rng(seed).random((nodes, 2))  # as the graph's builder draws them
    x, y = (places * SIDES).astype(np.int64).T
    code = np.zeros(nodes, dtype=np.int64)
    for bit in range(SIDES.bit_length() - 1):
        code |= ((x >> bit) & 1) << (2 * bit) | ((y >> bit) & 1) << (2 * bit + 1)
    return np.argsort(code, kind="stable")


def measured(kind: str, mixing: Any, order: np.ndarray, *, workers: int, vectors: int) -> Record:
    """One polynomial of degree 8 on so many vectors, on workers and in one process."""
    n = mixing.shape[0]
    parts = np.array_split(order, workers)
    rng = np.random.default_rng(11)
    weighted = Weighted(mixing=mixing, weights=rng.uniform(0.5, 1.0, n))
    a = weighted.factor / np.sqrt(weighted.top)
    rows = (Rows(a, parts), Rows(a.T, parts))
    p = Chebyshev(rng.uniform(-1, 1, 9), domain=[0.0, weighted.top])
    block = rng.standard_normal((n, vectors))
    wire = Wire()
    pieces = applied(rows, p, [block[nodes] for nodes in parts], wire)
    whole = weighted.apply(p, block)
    found = np.empty_like(whole)
    for nodes, piece in zip(parts, pieces, strict=True):
        found[nodes] = piece
    products = 2 * p.degree()
    halo, messages = wire.bytes, wire.messages
    total = summed([np.sum(piece**2, axis=1) for piece in pieces], wire)
    error = max(
        float(np.abs(found - whole).max() / np.abs(whole).max()),
        abs(total / float(np.sum(whole**2)) - 1),
    )
    return {
        "graph": kind,
        "n": n,
        "workers": workers,
        "halo_of_n": rows[0].pairs / n,
        "random_expects": expected_pairs(np.diff(mixing.indptr) - 1, workers) / n,
        "bytes_a_product": halo / products / vectors,
        "over_formula": halo / (8 * vectors * p.degree() * (rows[0].pairs + rows[1].pairs)),
        "messages_a_product": messages / products,
        "error": error,
    }


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """Products of sparse arrays with vectors, while it lasts."""
    found = {"products": 0}
    one, many = _sparsetools.csr_matvec, _sparsetools.csr_matvecs

    def vector(*arguments: Any) -> None:
        found["products"] += 1
        one(*arguments)

    def block(*arguments: Any) -> None:
        found["products"] += int(arguments[2])
        many(*arguments)

    _sparsetools.csr_matvec, _sparsetools.csr_matvecs = vector, block
    try:
        yield found
    finally:
        _sparsetools.csr_matvec, _sparsetools.csr_matvecs = one, many


def products_of(mixing: Any, structure: str) -> int:
    """Products with vectors of all nodes, of a design and its certificate."""
    problem = nd.SpaceProblem(mixing=mixing, structure=nd.SpaceStructure(kind=structure))
    with counting() as found:
        nd.solve(problem)
    if not found["products"]:
        raise RuntimeError("nothing was counted: scipy multiplies in another way")
    return found["products"]


def extrapolated(record: Record, degrees: np.ndarray, counts: dict[str, int]) -> Record:
    """What a worker of ten million nodes holds and sends, and for a whole design.

    A random partition has the pairs that the degrees say. Of a graph in the plane cut in place, the
    halo is a border: of pairs a node, it shrinks as 1 / sqrt(n).
    """
    n, workers = int(record["n"]), int(record["workers"])
    if record["partition"] == "in place":
        share = float(record["halo_of_n"]) * np.sqrt(n / LARGE)
    else:
        share = expected_pairs(degrees, workers) / n
    entries = float(degrees.mean()) + 1
    sent = 8 * share * LARGE / workers
    return {
        "graph": record["graph"],
        "partition": record["partition"],
        "workers": workers,
        "halo_of_n": share,
        "MB_a_product": sent / 1e6,
        "ms_at_10_Gbit": 1e3 * sent / LINK,
        **{f"GB_{name}": sent * count / 1e9 for name, count in counts.items()},
        "GB_of_W": 2 * 12 * entries * LARGE / workers / 1e9,
        "GB_of_all_W": 12 * entries * LARGE / 1e9,
        "GB_of_32_vectors": 8 * 4 * 32 * (1 + share) * LARGE / workers / 1e9,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--vectors", type=int, default=4)
    parser.add_argument("--counted", type=int, default=COUNTED, help="nodes of solves; 0: none")
    given = parser.parse_args(arguments)
    records, large = [], []
    for kind, asked in KINDS.items():
        counts = {}
        if given.counted:
            mixing = sparse_mixing_matrix(
                build_graph(kind, nodes=given.counted, seed=SEED, **asked)
            )
            counts = {structure: products_of(mixing, structure) for structure in STRUCTURES}
            print(f"{kind}, {given.counted} nodes: products of a solve", counts)
        for nodes in given.nodes:
            mixing = sparse_mixing_matrix(build_graph(kind, nodes=nodes, seed=SEED, **asked))
            orders = {"random": np.random.default_rng(7).permutation(nodes)}
            if kind == IN_PLACE:
                orders["in place"] = in_place(nodes, SEED)
            for workers in given.workers:
                for partition, order in orders.items():
                    print(f"{kind}, n = {nodes}, {workers} workers, {partition}", file=sys.stderr)
                    found = measured(kind, mixing, order, workers=workers, vectors=given.vectors)
                    records.append({"partition": partition} | found)
                    if nodes == max(given.nodes) and workers == max(given.workers):
                        degrees = np.diff(mixing.indptr) - 1
                        large.append(extrapolated(records[-1], degrees, counts))
    print_table(records, list(records[0]))
    print()
    print(f"{LARGE} nodes, a worker, extrapolated:")
    print_table(large, list(large[0]))
    worst = max(float(record["error"]) for record in records)
    exact = all(float(record["over_formula"]) == 1 for record in records)
    return 0 if worst < 1e-12 and exact else 1


if __name__ == "__main__":
    sys.exit(main())
