"""The fastest mixing of a graph, and what it takes: ``python -m benchmarks.fastest_mixing``.

The whole search in units of one eigendecomposition of its n x n matrix; a conic solver on the same
graph beside it up to ``--conic`` nodes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import cvxpy as cp
import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.system.fastest_mixing import fastest_mixing
from noisedesign.system.links import EdgeWeights
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

Found = TypeVar("Found")


def timed(run: Callable[[], Found]) -> tuple[Found, float]:
    started = time.process_time()
    return run(), time.process_time() - started


def by_conic(graph: nx.Graph) -> float:
    """||W - J||_2 of the fastest W, by CVXPY and Clarabel."""
    weights = EdgeWeights(nd.mixing_matrix(graph))
    n, b = weights.nodes, weights.incidence
    w, s = cp.Variable(b.shape[1]), cp.Variable()
    distance = np.eye(n) - 1 / n - b @ cp.diag(w) @ b.T
    held = [w >= 0, np.abs(b) @ w <= 1]
    bounds = [s * np.eye(n) - distance >> 0, s * np.eye(n) + distance >> 0]
    return float(cp.Problem(cp.Minimize(s), held + bounds).solve(solver=cp.CLARABEL))


def eigendecomposition_seconds(nodes: int) -> float:
    matrix = np.random.default_rng(0).standard_normal((nodes, nodes))
    matrix = matrix + matrix.T
    runs = []
    for _ in range(9):
        started = time.process_time()
        np.linalg.eigh(matrix)
        runs.append(time.process_time() - started)
    return sorted(runs)[4]


def row(name: str, graph: nx.Graph, conic: int) -> Record:
    unit = eigendecomposition_seconds(len(graph))
    found, seconds = timed(lambda: fastest_mixing(graph))
    record: Record = {
        "graph": name,
        "nodes": len(graph),
        "edges": graph.number_of_edges(),
        "norm": found.norm,
        "norm - bound": found.norm - found.lower_bound,
        "eigh": round(seconds / unit),
        "conic over native": None,
    }
    if len(graph) <= conic:
        _, theirs = timed(lambda: by_conic(graph))
        record["conic over native"] = round(theirs / seconds)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conic", type=int, default=60, metavar="NODES")
    arguments = parser.parse_args()
    graphs = {
        f"Erdos-Renyi {n}": nd.build_graph("erdos-renyi", nodes=n, p=8 / n, seed=0)
        for n in (30, 60, 100, 200)
    }
    graphs["Barabasi-Albert 200"] = nx.barabasi_albert_graph(200, 3, seed=0)
    graphs["path 100"] = nx.path_graph(100)
    rows = [row(name, graph, arguments.conic) for name, graph in graphs.items()]
    report.print_table(rows, list(rows[0]), title="the fastest mixing of a graph")


if __name__ == "__main__":
    main()
