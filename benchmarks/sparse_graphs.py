"""Polynomial noise on sparse graphs as they grow: ``python -m benchmarks.sparse_graphs``.

Of every graph one design, its certificate included, each in a process of its own, whose peak of
memory is told; ``--horizon 32`` takes the error of all iterates of that many steps. The error and
the bound hold together with the confidence beside them. Time is processor time of all threads
beside what it took, and memory that of the whole process, the toolkit and the graph included.

``--most 1000000`` adds a million nodes. Their graphs are sparse arrays, made without networkx, of
the largest component alone; ``--least 1000000 --graphs barabasi-albert`` is one such row.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from noisedesign.design.solve import solve
from noisedesign.forms import PolynomialCovariance
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.rules import sparse_mixing_matrix
from noisedesign.system.workloads.error import ErrorMeasure
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

GRAPHS: dict[str, dict[str, int]] = {
    "barabasi-albert": {"links": 3},
    "erdos-renyi": {"degree": 8},
    "random-geometric": {"degree": 8},
}

SIZES = (1_000, 10_000, 100_000, 1_000_000)
USUAL = 100_000
"""Nodes up to which graphs are those of the toolkit's builders, and which are measured unasked."""


def links_of(kind: str, nodes: int, *, seed: int = 1) -> Any:
    """The links of a random graph of such a kind as a sparse array, (n, n), of ones."""
    rng = np.random.default_rng(seed)
    if kind == "barabasi-albert":
        first, second = _grown(nodes, GRAPHS[kind]["links"], rng)
    elif kind == "erdos-renyi":
        share = GRAPHS[kind]["degree"] / (nodes - 1)
        count = int(rng.binomial(nodes * (nodes - 1) // 2, share))
        first, second = rng.integers(0, nodes, count), rng.integers(0, nodes, count)
    else:
        places = rng.random((nodes, 2))
        reach = np.sqrt(GRAPHS[kind]["degree"] / (np.pi * nodes))
        first, second = cKDTree(places).query_pairs(reach, output_type="ndarray").T
    kept = first != second
    ends = first[kept], second[kept]
    shape, one = (nodes, nodes), np.ones(2 * int(kept.sum()), dtype=np.int8)
    places = np.concatenate(ends), np.concatenate(ends[::-1])
    links = sparse.coo_array((one, places), shape=shape).tocsr()
    links.sum_duplicates()
    links.data[:] = 1
    _, label = connected_components(links, directed=False)
    inside = np.flatnonzero(label == np.bincount(label).argmax())
    return links[inside][:, inside].tocsr()


def _grown(nodes: int, links: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Ends of links, each to an end of an earlier one (Batagelj and Brandes 2005)."""
    first = np.repeat(np.arange(nodes), links)
    drawn = (rng.random(len(first)) * (2 * np.arange(len(first)) + 1)).astype(np.int64)
    second, at, left = np.empty(len(first), dtype=np.int64), drawn.copy(), np.arange(len(first))
    while len(left):  # of links 0, 1, ... the first ends are 0, 2, ..., the second 1, 3, ...
        ended = at[left] % 2 == 0
        second[left[ended]] = first[at[left[ended]] // 2]
        left = left[~ended]
        at[left] = drawn[at[left] // 2]
    return first, second


def mixing_of(kind: str, nodes: int) -> Any:
    """W by Metropolis and Hastings of a graph of that kind, (n, n), a sparse array."""
    if nodes <= USUAL:
        return sparse_mixing_matrix(build_graph(kind, nodes=nodes, seed=1, **GRAPHS[kind]))
    return sparse_mixing_matrix(links_of(kind, nodes))


def row(kind: str, nodes: int, horizon: int) -> Record:
    mixing = mixing_of(kind, nodes)
    edges = (mixing.nnz - mixing.shape[0]) // 2
    problem = SpaceProblem(
        mixing=mixing,
        structure=SpaceStructure(kind="polynomial"),
        error=ErrorMeasure(horizon=horizon) if horizon > 1 else None,
    )
    started, begun = time.process_time(), time.perf_counter()
    design = solve(problem).design
    seconds, elapsed = time.process_time() - started, time.perf_counter() - begun
    assert design is not None
    assert isinstance(design.noise.space, PolynomialCovariance)
    return {
        "graph": kind,
        "nodes": design.size,
        "edges": edges,
        "degree": len(design.noise.space.precision) - 1,
        "relative_to_ldp": design.relative_to_ldp,
        "objective": design.objective,
        "bound": design.lower_bound,
        "gap": design.gap,
        "confidence": design.certificate.confidence,
        "cpu_seconds": seconds,
        "seconds": elapsed,
        "microseconds_per_edge": seconds / edges * 1e6,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def alone(kind: str, nodes: int, horizon: int) -> Record:
    """In a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(row, kind, nodes, horizon).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=USUAL, help="nodes at most")
    parser.add_argument("--least", type=int, default=SIZES[0], help="nodes at least")
    parser.add_argument("--horizon", type=int, default=1, help="steps whose iterates count")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if arguments.least <= size <= arguments.most]
    rows = [alone(kind, size, arguments.horizon) for kind in arguments.graphs for size in sizes]
    report.print_table(rows, list(rows[0]), title="polynomial noise on sparse graphs")


if __name__ == "__main__":
    main()
