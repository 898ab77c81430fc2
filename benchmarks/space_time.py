"""Noise correlated in time, in space, and in both: ``python -m benchmarks.space_time``.

Total noise variance of all iterates over that of independent noise (LDP) at equal privacy, with a
lower bound on every design of the problem. Metropolis-Hastings weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.families.kronecker.bound import judge_kronecker
from noisedesign.families.kronecker.program import MAX_COORDINATES, JointProgram
from noisedesign.families.kronecker.solver import design_full, design_kronecker
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

HORIZON = 32
COLUMNS = ["graph", "design", "over_ldp", "lower_bound", "gap", "feasible", "seconds"]


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return run(), time.perf_counter() - started


def rows_of(name: str, mixing: np.ndarray, participation: nd.FixedEpoch) -> list[Record]:
    problem = JointProgram.all_iterates(mixing=mixing, participation=participation)
    n, horizon = len(mixing), participation.horizon
    independent = np.eye(horizon) / np.sqrt(participation.epochs)
    time_problem = nd.TimeProblem.decentralized(mixing=mixing, participation=participation)
    mafalda, mafalda_seconds = timed(lambda: nd.solve(time_problem))
    whisper, whisper_seconds = timed(lambda: nd.solve(nd.SpaceProblem(mixing=mixing)))
    kronecker, kronecker_seconds = timed(lambda: design_kronecker(problem))
    # Whisper for all T steps: Kronecker designs whose time factor stays independent.
    patient = design_kronecker(problem, time_step=lambda _: participation.epochs * np.eye(horizon))
    assert mafalda.design is not None
    assert whisper.design is not None
    best = kronecker.certificate.lower_bound
    full_row: list[tuple[str, nd.Certificate, float | None]] = []
    if n * horizon <= MAX_COORDINATES:
        full, full_seconds = timed(lambda: design_full(problem))
        full_row = [("full", full.certificate, full_seconds)]
        best = max(best, full.certificate.lower_bound)

    def judged(strategy: np.ndarray, covariance: np.ndarray) -> nd.Certificate:
        return judge_kronecker(
            problem.workload,
            participation=participation,
            budget=problem.budget,
            strategy=strategy,
            covariance=covariance,
            bound=best,
        )

    found = [
        ("Whisper, one step", judged(independent, whisper.design.covariance), whisper_seconds),
        ("Whisper, all steps", judged(independent, patient.covariance), None),
        ("Mafalda", judged(mafalda.design.strategy, np.eye(n)), mafalda_seconds),
        ("Kronecker", judged(kronecker.strategy, kronecker.covariance), kronecker_seconds),
        *full_row,
    ]
    ldp = problem.independent_objective
    return [
        {
            "graph": name,
            "design": design,
            "over_ldp": certificate.objective / ldp,
            "lower_bound": best / ldp,
            "gap": certificate.objective / best - 1,
            "feasible": certificate.feasible,
            "seconds": seconds,
        }
        for design, certificate, seconds in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the Facebook ego network")
    arguments = parser.parse_args()
    graphs = {
        "Florentine": nd.build_graph("florentine"),
        "Erdos-Renyi 20, p 0.2": nd.build_graph("erdos-renyi", nodes=20, p=0.2, seed=0),
        "ring 20": nx.cycle_graph(20),
    }
    rows = [
        row
        for name, graph in graphs.items()
        for row in rows_of(name, nd.mixing_matrix(graph), nd.single(HORIZON))
    ]
    print()
    report.print_table(rows, COLUMNS, title=f"{HORIZON} steps, one participation")
    if arguments.quick:
        return
    if datasets.local_ego_facebook(414) is None:
        print("no Facebook data: the ego network is left out", file=sys.stderr)
        return
    mixing = nd.mixing_matrix(datasets.ego_facebook(414))
    rows = rows_of("ego 148", mixing, nd.FixedEpoch(epochs=20, separation=16))
    print()
    report.print_table(rows, COLUMNS, title="320 steps, (k, b) = (20, 16)")


if __name__ == "__main__":
    main()
