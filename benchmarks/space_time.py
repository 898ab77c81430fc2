"""Noise correlated in time, in space, and in both: ``python -m benchmarks.space_time``.

Total noise variance of all iterates over that of independent noise (LDP) at equal privacy, with a
lower bound on every design of the problem. Metropolis-Hastings weights.

Gaps are to a bound on designs of any kind. ``--parts`` says what they consist of where the optimum
over all pairs of node and step can be computed, to 1e-4. ``--passes`` says what
Kronecker designs lose as runs of five passes grow longer: to feasible noise of modes, and at most.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.families.space_time import MAX_COORDINATES
from noisedesign.system import datasets
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

HORIZON = 32
PUBLISHED = {
    "Whisper, one step": "whisper-one-step",
    "Whisper, T steps": "whisper",
    "Mafalda": "mafalda",
}


def row_of(name: str, mixing: np.ndarray, participation: nd.participation.FixedEpoch) -> Record:
    """Errors over that of independent noise; "any noise" is the optimum, where it is computed."""
    problem = nd.SpaceTimeProblem(mixing=mixing, participation=participation)
    kronecker = nd.solve(problem).design
    made = {
        label: nd.baseline(problem, method, dual=kronecker) for label, method in PUBLISHED.items()
    }
    made |= {"Kronecker": kronecker, "modes": nd.solve(replace(problem, joint="modal")).design}
    if len(mixing) * participation.horizon <= MAX_COORDINATES:
        made["any noise"] = nd.solve(replace(problem, joint="full")).design
    if not all(design.certificate.feasible for design in made.values()):
        raise RuntimeError(f"a design for {name} is not feasible")
    bound = max(design.lower_bound for design in made.values())
    return {
        "graph": name,
        "participation": str(participation),
        **{label: round(design.relative_to_ldp, 3) for label, design in made.items()},
        "any noise, at least": round(bound / kronecker.ldp_objective, 3),
    }


def share(error: float, least: float) -> str:
    """By how much an error is above another."""
    return f"{100 * (error / least - 1):.2f} %"


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
        "gap of Kronecker": share(kronecker.objective, kronecker.lower_bound),
        "Kronecker over the optimum": share(kronecker.objective, full.objective),
        "modes over the optimum": share(modal.objective, full.objective),
        "the optimum over the bound": share(full.objective, kronecker.lower_bound),
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
        "Kronecker over modes": share(kronecker.objective, modal.objective),
        "Kronecker over the bound": share(kronecker.objective, bound),
        "modes over the bound": share(modal.objective, bound),
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
        row_of(name, nd.mixing_matrix(graph), nd.participation.single(HORIZON))
        for name, graph in small_graphs().items()
    ]
    if arguments.quick:
        pass
    elif datasets.local_ego_facebook(414) is None:
        print("no Facebook data: the ego network is left out", file=sys.stderr)
    else:
        mixing = nd.mixing_matrix(datasets.ego_facebook(414))
        runs = nd.participation.FixedEpoch(epochs=20, separation=16)
        rows.append(row_of("ego 148", mixing, runs))
    columns = list(rows[0])
    report.print_table(rows, columns, title="noise over independent noise", keep=columns[1:2])


if __name__ == "__main__":
    main()
