"""Polynomial noise on sparse graphs as they grow: ``python -m benchmarks.sparse_graphs``.

Of every graph one design, its certificate included, each in a process of its own, whose peak of
memory is told; ``--horizon 32`` takes the error of all iterates of that many steps. The error and
the bound hold together with the confidence beside them. Time is processor time of all threads
beside what it took, and memory that of the whole process, the toolkit and the graph included.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

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

SIZES = (1_000, 10_000, 100_000)


def row(kind: str, nodes: int, horizon: int) -> Record:
    graph = build_graph(kind, nodes=nodes, seed=1, **GRAPHS[kind])
    edges = graph.number_of_edges()
    problem = SpaceProblem(
        mixing=sparse_mixing_matrix(graph),
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
    parser.add_argument("--most", type=int, default=SIZES[-1], help="nodes at most")
    parser.add_argument("--least", type=int, default=SIZES[0], help="nodes at least")
    parser.add_argument("--horizon", type=int, default=1, help="steps whose iterates count")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if arguments.least <= size <= arguments.most]
    rows = [alone(kind, size, arguments.horizon) for kind in arguments.graphs for size in sizes]
    report.print_table(rows, list(rows[0]), title="polynomial noise on sparse graphs")


if __name__ == "__main__":
    main()
