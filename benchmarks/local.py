"""Pairwise seeds beside a dealer: ``python -m benchmarks.local``.

Space designs of seeds that neighbours share beside one without a structure, all to a certified
gap, in turn in this process, by processor time: one seed an edge, nodes within two hops, and
budgets that hold whichever f nodes fail (``known_seeds``). ``--ego`` picks graphs of the Facebook
collection: 414 has 148 nodes, 107 has 1034 and takes minutes. ``worst`` is the largest squared
sensitivity over its budget, by an inverse for every coalition, from the seeds alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import combinations

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.design.design import seed_plan_of
from noisedesign.forms.structure import SpaceStructure
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

GAP, SMALL_GAP, FAILURES_GAP = 1e-6, 1e-9, 1e-2
EDGE_LOCAL = SpaceStructure(kind="edge-local")
TWO_HOPS = SpaceStructure(kind="hops", hops=2)


def timed(run: Callable[[], nd.Solution]) -> tuple[nd.Solution, float]:
    started = time.process_time()
    solution = run()
    return solution, time.process_time() - started


def compare(
    name: str, graph: nx.Graph, structure: SpaceStructure, *, gap: float, runs: int, limit: float
) -> Record:
    mixing = nd.mixing_matrix(graph)
    free = nd.SpaceProblem(mixing=mixing)
    local = nd.SpaceProblem(mixing=mixing, structure=structure)
    nd.solve(free, gap=gap)  # warm up
    plain, seconds = [], []
    for _ in range(runs):
        plain += [timed(lambda: nd.solve(free, gap=gap))[1] for _ in range(3)]
        solution, taken = timed(lambda: nd.solve(local, gap=gap, time_limit=limit))
        seconds.append(taken)
    design = solution.design
    if design is None:
        sys.exit(f"{name}, {structure}: {solution.status}")
    ours, theirs = statistics.median(seconds), statistics.median(plain)
    return {
        "graph": name,
        "nodes": len(mixing),
        "edges": graph.number_of_edges(),
        "structure": str(structure),
        "status": solution.status,
        "gap": design.gap,
        "over_ldp": design.objective / float(np.square(mixing).sum()),
        "steps": solution.evaluations,
        "seconds": ours,
        "unrestricted_seconds": theirs,
        "ratio": ours / theirs,
        "worst": worst(design, structure.known_seeds),
    }


def worst(design: nd.Design, known: int) -> float:
    """Of unit budgets, over all coalitions."""
    plan = seed_plan_of(design)
    assert plan is not None
    root, found = plan.root(), 0.0
    for coalition in combinations(range(plan.nodes), known):
        rest = np.setdiff1d(np.arange(plan.nodes), coalition)
        hidden = root[rest][:, ~(root[list(coalition)] != 0).any(axis=0)]
        found = max(found, float(np.diagonal(np.linalg.inv(hidden @ hidden.T)).max()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ego", type=int, nargs="*", default=[414], metavar="EGO")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--nodes", type=int, default=60, help="of the graph of known seeds")
    parser.add_argument("--failures", type=int, default=0, help="nodes of that of two failures")
    arguments = parser.parse_args()
    of = {"runs": arguments.runs, "limit": arguments.time_limit}
    rows = []
    for ego in arguments.ego:
        graph = datasets.ego_facebook(ego)
        rows.append(compare(f"ego {ego}", graph, EDGE_LOCAL, gap=GAP, **of))
    florentine = nx.florentine_families_graph()
    for structure in (EDGE_LOCAL, TWO_HOPS, SpaceStructure(kind="edge-local", known_seeds=1)):
        rows.append(compare("florentine", florentine, structure, gap=SMALL_GAP, **of))
    for nodes, known, gap in (
        (arguments.nodes, 1, SMALL_GAP),
        (arguments.failures, 2, FAILURES_GAP),
    ):
        if nodes:
            graph = nx.connected_watts_strogatz_graph(nodes, 8, 0.1, seed=0)
            structure = SpaceStructure(kind="edge-local", known_seeds=known)
            rows.append(compare("small world", graph, structure, gap=gap, **of | {"runs": 1}))
    report.print_table(rows, list(rows[0]), title="seeds that neighbours share, beside a dealer")


if __name__ == "__main__":
    main()
