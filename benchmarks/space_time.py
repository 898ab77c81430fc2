"""Noise correlated in time, in space, and in both: ``python -m benchmarks.space_time``.

Total noise variance of all iterates over that of independent noise (LDP) at equal privacy, with a
lower bound on every design of the problem. Metropolis-Hastings weights.

Gaps are to a bound on designs of any kind. ``--parts`` says what they consist of where the optimum
over all pairs of node and step can be computed: ``Kronecker`` and ``modes`` are objectives over
that optimum, less 1, and ``bound`` is the optimum over the bound, less 1. ``--passes`` says what
Kronecker designs lose as runs of five passes grow longer: to feasible noise of modes, and at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.families.space_time import MAX_COORDINATES
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

HORIZON = 32
COLUMNS = ["graph", "design", "over_ldp", "lower_bound", "gap", "feasible", "seconds"]


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return run(), time.perf_counter() - started


def rows_of(
    name: str, mixing: np.ndarray, participation: nd.participation.FixedEpoch
) -> list[Record]:
    problem = nd.SpaceTimeProblem(mixing=mixing, participation=participation)
    kronecker, seconds = timed(lambda: nd.solve(problem).design)
    found = [("Kronecker", kronecker, seconds)]
    modal, seconds = timed(lambda: nd.solve(replace(problem, joint="modal")).design)
    found.append(("modes", modal, seconds))
    if len(mixing) * participation.horizon <= MAX_COORDINATES:
        full, seconds = timed(lambda: nd.solve(replace(problem, joint="full")).design)
        found.append(("full", full, seconds))
    published = {
        "Whisper, one step": "whisper-one-step",
        "Whisper, all steps": "whisper",
        "Mafalda": "mafalda",
    }
    for design, method in reversed(published.items()):
        made, seconds = timed(lambda m=method: nd.baseline(problem, m, dual=kronecker))
        found.insert(0, (design, made, seconds))
    best = max(made.lower_bound for _, made, _ in found)
    return [
        {
            "graph": name,
            "design": design,
            "over_ldp": made.relative_to_ldp,
            "lower_bound": best / made.ldp_objective,
            "gap": made.objective / best - 1,
            "feasible": made.certificate.feasible,
            "seconds": seconds,
        }
        for design, made, seconds in found
    ]


def parts_of(name: str, mixing: np.ndarray, participation: nd.participation.FixedEpoch) -> Record:
    problem = nd.SpaceTimeProblem(mixing=mixing, participation=participation)
    kronecker = nd.solve(problem).design
    modal = nd.solve(replace(problem, joint="modal")).design
    full = nd.solve(replace(problem, joint="full"), gap=1e-4).design
    assert kronecker is not None
    assert modal is not None
    assert full is not None
    return {
        "graph": name,
        "participation": str(participation),
        "coordinates": len(mixing) * participation.horizon,
        "gap": kronecker.objective / kronecker.lower_bound - 1,
        "Kronecker": kronecker.objective / full.objective - 1,
        "modes": modal.objective / full.objective - 1,
        "bound": full.objective / kronecker.lower_bound - 1,
        "proved to": full.gap,
    }


def print_parts(ego: nx.Graph | None) -> None:
    small: list[tuple[str, nx.Graph, nd.participation.FixedEpoch]] = [
        ("Florentine", nd.build_graph("florentine"), nd.participation.single(24)),
        (
            "Florentine",
            nd.build_graph("florentine"),
            nd.participation.FixedEpoch(epochs=4, separation=6),
        ),
        (
            "Erdos-Renyi 20, p 0.2",
            nd.build_graph("erdos-renyi", nodes=20, p=0.2, seed=0),
            nd.participation.single(20),
        ),
        ("ring 20", nx.cycle_graph(20), nd.participation.single(20)),
    ]
    if ego is not None:
        small += [("ego 148", ego, nd.participation.single(steps)) for steps in (4, 8, 16)]
    rows = [parts_of(name, nd.mixing_matrix(graph), steps) for name, graph, steps in small]
    report.print_table(rows, list(rows[0]), title="what gaps consist of")


def passes_of(name: str, mixing: np.ndarray, batches: int) -> Record:
    participation = nd.participation.FixedEpoch(epochs=5, separation=batches)
    problem = nd.SpaceTimeProblem(mixing=mixing, participation=participation)
    kronecker = nd.solve(problem).design
    modal = nd.solve(replace(problem, joint="modal")).design
    bound = max(kronecker.lower_bound, modal.lower_bound)
    return {
        "graph": name,
        "steps": participation.horizon,
        "Kronecker over modes": kronecker.objective / modal.objective - 1,
        "Kronecker over the bound": kronecker.objective / bound - 1,
        "modes over the bound": modal.objective / bound - 1,
    }


def small_graphs() -> dict[str, nx.Graph]:
    return {
        "Florentine": nd.build_graph("florentine"),
        "Erdos-Renyi 20, p 0.2": nd.build_graph("erdos-renyi", nodes=20, p=0.2, seed=0),
        "ring 20": nx.cycle_graph(20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", action="store_true", help="what the gaps consist of")
    parser.add_argument("--passes", action="store_true", help="five passes, of ever more batches")
    parser.add_argument("--quick", action="store_true", help="leave out the Facebook ego network")
    arguments = parser.parse_args()
    if arguments.parts:
        there = datasets.local_ego_facebook(414) is not None
        print_parts(datasets.ego_facebook(414) if there else None)
        return
    if arguments.passes:
        rows = [
            passes_of(name, nd.mixing_matrix(graph), batches)
            for name, graph in small_graphs().items()
            for batches in (8, 16, 30)
        ]
        report.print_table(rows, list(rows[0]), title="five passes")
        return
    rows = [
        row
        for name, graph in small_graphs().items()
        for row in rows_of(name, nd.mixing_matrix(graph), nd.participation.single(HORIZON))
    ]
    print()
    report.print_table(rows, COLUMNS, title=f"{HORIZON} steps, one participation")
    if arguments.quick:
        return
    if datasets.local_ego_facebook(414) is None:
        print("no Facebook data: the ego network is left out", file=sys.stderr)
        return
    mixing = nd.mixing_matrix(datasets.ego_facebook(414))
    rows = rows_of("ego 148", mixing, nd.participation.FixedEpoch(epochs=20, separation=16))
    print()
    report.print_table(rows, COLUMNS, title="320 steps, (k, b) = (20, 16)")


if __name__ == "__main__":
    main()
