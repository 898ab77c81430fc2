"""Noise designed against what a neighbour sees: ``python -m benchmarks.observers``.

Everything is relative to independent noise (LDP) at equal privacy: noise of one covariance R at
every step, at most ten times the variance of independent noise. Every node is an observer, or every
set of ``pooled`` nodes. The optimum is proved to lie between ``bound`` and ``noise``; ``Whisper``
is the optimum against a reader of all messages.

What such a design does *not* protect against is in the columns after it, as mu over that of the
budget (1 is within the budget): a reader of all messages, the worst two neighbours of one node that
pool what they see, and the observers themselves over twice as many steps.

CPU seconds are of the solve and of what comes before it, the views, whose part is told as well;
the final judgement comes on top. ``--most N`` leaves out larger graphs, ``--least N`` smaller ones.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from dataclasses import replace
from typing import NamedTuple

import networkx as nx

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.privacy import views
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

CAP = 10.0
GAP = 0.01
LONGER = 60
"""Views of one step up to which larger ones are accounted for."""


class Case(NamedTuple):
    """A graph, a horizon and how many nodes pool what they see."""

    name: str
    graph: nx.Graph
    horizon: int = 1
    pooled: int = 1
    gap: float = GAP


def cases() -> list[Case]:
    """Small ones first."""
    graphs = {
        "ring 6": nx.cycle_graph(6),
        "Florentine": nx.convert_node_labels_to_integers(nx.florentine_families_graph()),
        "path 30": nx.path_graph(30),
    }
    sizes = (60, 100, 148, 500)
    sparse = {n: nd.build_graph("erdos-renyi", nodes=n, p=8 / n, seed=0) for n in sizes}
    graphs |= {f"Erdos-Renyi {n}": graph for n, graph in sparse.items()}
    long = ("ring 6", "path 30", "Erdos-Renyi 60", "Erdos-Renyi 148", "Erdos-Renyi 500")
    return [
        *(Case(name, graph) for name, graph in graphs.items()),
        *(Case(name, graphs[name], horizon=8) for name in long),
        *(Case(name, graph, pooled=2) for name, graph in graphs.items()),
    ]


def problem_of(case: Case, *, horizon: int | None = None) -> ObserverProgram:
    nodes = range(len(case.graph))
    observers = views.coalitions(nodes=nodes, size=case.pooled)
    problem = SpaceProblem(
        mixing=nd.mixing_matrix(case.graph),
        error=ErrorMeasure(horizon=case.horizon if horizon is None else horizon),
        observers=observers if case.pooled > 1 else tuple(observers),
        max_variance=CAP,
        responses="fixed",
    )
    return FAMILY.program(problem)


def whisper(problem: ObserverProgram) -> float:
    """Relative to LDP."""
    everybody = SpaceProblem(
        mixing=problem.mixing, error=ErrorMeasure(horizon=problem.horizon), max_variance=1e4
    )
    design = nd.solve(everybody, gap=1e-3).design
    assert design is not None
    return design.objective / problem.unit_error


def told_to(problem: ObserverProgram, covariance: Array, *observers: views.Observer) -> float:
    """mu of the worst observer, over that of the budget."""
    worst = replace(problem, observers=observers).worst(covariance)[0]
    return round(math.sqrt(worst), 2)


def pairs(graph: nx.Graph) -> list[views.Observer]:
    """Two neighbours of one node."""
    found = {pair for node in graph for pair in itertools.combinations(sorted(graph[node]), 2)}
    return [views.pndp(nodes=list(pair)) for pair in sorted(found)]


def row(case: Case) -> Record:
    started = time.process_time()
    problem = problem_of(case)
    _ = problem.normalized  # what is seen
    seen = time.process_time() - started
    answer = FAMILY.solve(problem, monitor=Monitor(gap=case.gap))
    seconds = time.process_time() - started
    (noise,) = answer.noises
    bound = FAMILY.bound(problem, answer.proof).value
    certificate = FAMILY.judge(problem, noise, answer.proof, bound=bound)
    covariance, reference = noise.covariance, problem.unit_error
    longer = case.horizon * len(problem.observers) <= LONGER
    return {
        "graph": case.name,
        "steps": case.horizon,
        "pooled": case.pooled,
        "observers": len(problem.observers),
        "watched": len(answer.proof.get("dual_coalitions", problem.observers)),
        "feasible": certificate.feasible,
        "noise": round(certificate.objective / reference, 3),
        "bound": round(bound / reference, 3),
        "gap": certificate.gap,
        "Whisper": round(whisper(problem), 3),
        "all messages": told_to(problem, covariance, views.ldp()),
        "two neighbours": told_to(problem, covariance, *pairs(case.graph)) if longer else None,
        "twice the steps": told_to(
            problem_of(case, horizon=2 * case.horizon), covariance, *problem.observers
        )
        if longer
        else None,
        "iterations": answer.evaluations,
        "CPU s": seconds,
        "of it views": seen,
    }


TABLES = {
    "noise against neighbours": ["Whisper", "noise", "bound"],
    "mu of others over the budget": ["all messages", "two neighbours", "twice the steps"],
    "what it took": ["observers", "watched", "iterations", "CPU s", "of it views", "gap"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=500, metavar="N", help="nodes (default 500)")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="nodes (default 0)")
    arguments = parser.parse_args()
    asked = [case for case in cases() if arguments.least <= len(case.graph) <= arguments.most]
    rows = [row(case) for case in asked]
    case = ["graph", "steps", "pooled"]
    for title, columns in TABLES.items():
        shown = [row for row in rows if row[columns[0]] is not None]
        print()
        report.print_table(shown, [*case, *columns], title=title, keep=case)


if __name__ == "__main__":
    main()
