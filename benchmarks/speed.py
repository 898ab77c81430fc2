"""Ratios, measured side by side in one run: ``python -m benchmarks.speed``.

A time on its own says more about the machine than about the program, so everything here is a
ratio of processor time: native against conic solvers on the same problem, or against one
``numpy.linalg.eigh`` of the problem's size, runs of the two taken in turn. ``--quick`` leaves out
the slow rivals.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import noisedesign as nd
from noisedesign.design.backends import get_backend
from noisedesign.problem.problem import Problem
from noisedesign.system import datasets
from noisedesign.system.rules import WEIGHTS
from noisedesign.system.workloads.workload import decentralized_gram
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

RIVALS = {
    20: [
        ("balanced", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
        ("compact", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
        ("covariance", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
        ("paper", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
    ],
    40: [
        ("balanced", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
        ("compact", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
        ("covariance", ("scs", "clarabel", "cvxopt", "sdpa", "mosek")),
    ],
}
RIVAL_LIMIT = 120.0
"""Seconds after which a conic solver is stopped; its row then gives a lower limit of the ratio."""


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def in_turn(first: Callable[[], object], second: Callable[[], object], *, runs: int) -> list[float]:
    """Ratios first / second of runs taken alternately, after one warm-up of each."""
    first(), second()
    return [seconds(first) / seconds(second) for _ in range(runs)]


def whisper(nodes: int, p: float) -> nd.SpaceProblem:
    graph = nd.build_graph("erdos-renyi", nodes=nodes, p=p, seed=0)
    return nd.SpaceProblem(mixing=nd.mixing_matrix(graph), name=f"whisper-erdos-renyi-{nodes}")


def against_rivals(nodes: int) -> list[Record]:
    """Native at gap 1e-6 against every conic solver at its own default accuracy.

    Both are timed whole: checks, model, solve and certificate.
    """
    problem = whisper(nodes, 0.2)
    rows = []
    for formulation, names in RIVALS[nodes]:
        for name in names:
            if not get_backend(name).availability().ready:
                print(f"  {name} is not ready here: left out", file=sys.stderr)
                continue
            print(f"  n = {nodes}: {name}, {formulation}", file=sys.stderr)
            # Once in a process that can be stopped, to see whether it can be timed here at all.
            trial = nd.solve(problem, backend=name, formulation=formulation, time_limit=RIVAL_LIMIT)
            slow = trial.build_seconds + trial.solve_seconds
            row: Record = {
                "problem": problem.name,
                "rival": f"{name} ({formulation})",
                "rival_status": trial.status,
                "rival_gap": None if trial.certificate is None else trial.certificate.gap,
            }
            if trial.status == "time-limit":
                row["ratio"] = RIVAL_LIMIT / native_seconds(problem)
                row["remark"] = f"at least: stopped after {RIVAL_LIMIT:g} s"
            else:
                runs = 5 if slow < 1 else 1
                row["ratio"] = statistics.median(
                    rival_seconds(problem, name, formulation) / native_seconds(problem)
                    for _ in range(runs)
                )
                row["remark"] = f"median of {runs}"
            rows.append(row)
    return rows


def rival_seconds(problem: Problem, backend: str, formulation: str) -> float:
    return seconds(
        lambda: nd.solve(problem, backend=backend, formulation=formulation, isolate=False)
    )


def native_seconds(problem: Problem) -> float:
    """Median of a few whole native solves, taken next to the rival's."""
    return statistics.median(seconds(lambda: nd.solve(problem)) for _ in range(7))


def against_eigh(problem: Problem, gram: np.ndarray, *, runs: int) -> Record:
    """A whole native solve in units of one eigendecomposition of the problem's size."""
    solution = nd.solve(problem)
    ratios = in_turn(lambda: nd.solve(problem), lambda: np.linalg.eigh(gram), runs=runs)
    assert solution.certificate is not None
    return {
        "problem": problem.name,
        "rival": f"one eigh({len(gram)})",
        "ratio": statistics.median(ratios),
        "evaluations": solution.evaluations,
        "gap": solution.certificate.gap,
        "remark": f"median of {runs}, {min(ratios):.1f} to {max(ratios):.1f}",
    }


def workload_memory() -> list[Record]:
    """Peak memory of forming H for 148 nodes and 320 steps."""
    local = datasets.local_ego_facebook(414)
    if local is None:
        graph, name = nd.build_graph("erdos-renyi", nodes=148, p=0.15, seed=0), "erdos-renyi-148"
    else:
        graph, name = datasets.ego_facebook(414), "ego-148"
    rows = []
    for weights in WEIGHTS:
        mixing = nd.mixing_matrix(graph, weights=weights)
        tracemalloc.start()
        decentralized_gram(mixing, horizon=320)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        stacked = 8 * (148 * 320) ** 2
        rows.append(
            {
                "problem": f"H of {name}, T = 320, {weights}",
                "peak_MB": peak / 1e6,
                "stacked_array_MB": stacked / 1e6,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the conic solvers")
    arguments = parser.parse_args()
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, "
        f"OPENBLAS_NUM_THREADS {threads}"
    )
    print()
    report.print_table(
        workload_memory(),
        ["problem", "peak_MB", "stacked_array_MB"],
        title="memory of forming the workload",
    )
    spaces = [whisper(500, 0.04), whisper(1000, 0.02)]
    graphs: list[tuple[str, int, dict[str, int]]] = [
        ("florentine", 16, {}),
        ("florentine", 19, {}),
        ("ring", 16, {"nodes": 20}),
    ]
    times = [
        nd.TimeProblem.decentralized(
            mixing=nd.mixing_matrix(nd.build_graph(kind, **size)),
            participation=nd.participation.FixedEpoch(epochs=20, separation=separation),
            name=f"mafalda-{kind}-20x{separation}",
        )
        for kind, separation, size in graphs
    ]
    print()
    report.print_table(
        [against_eigh(problem, problem.gram, runs=5) for problem in [*spaces, *times]],
        ["problem", "rival", "ratio", "evaluations", "gap", "remark"],
        title="whole native solve, over one eigendecomposition (smaller is better)",
    )
    if arguments.quick:
        return
    for nodes in RIVALS:
        print()
        report.print_table(
            against_rivals(nodes),
            ["problem", "rival", "ratio", "rival_status", "rival_gap", "remark"],
            title=f"conic solver over whole native solve, n = {nodes} (larger is better)",
        )


if __name__ == "__main__":
    main()
