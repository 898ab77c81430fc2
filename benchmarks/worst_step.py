"""Designs for the largest error, beside those for the sum: ``python -m benchmarks.worst_step``.

A line a problem: what is the largest of, how many problems (P) it took, the gap that is certified,
and the largest error of the best design for the sum over that of the design for the largest."""

from __future__ import annotations

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.families.family import family_of
from noisedesign.families.worst.program import plain
from noisedesign.problem.problem import Problem
from noisedesign.system.participation import FixedEpoch

IN_TIME = ((1, 16), (1, 64), (1, 256), (2, 4), (4, 16), (8, 16))
OVER_NODES = (("worst-node", 1), ("worst-node", 8), ("worst-iterate", 8))


def problems() -> list[Problem]:
    """Prefix sums and graphs in time; nodes in space under a cap of 10; small full designs."""
    flat, karate = nx.florentine_families_graph(), nx.karate_club_graph()
    graphs = {
        name: nd.mixing_matrix(nx.Graph(graph.edges()))
        for name, graph in (("Florentine", flat), ("karate club", karate))
    }
    found: list[Problem] = []
    for epochs, separation in IN_TIME:
        use = FixedEpoch(epochs=epochs, separation=separation)
        error = nd.ErrorMeasure(horizon=use.horizon, of="worst")
        found.append(nd.TimeProblem.prefix(participation=use, error=error, name="prefix sums"))
        if use.horizon <= 64:
            fields = {"mixing": graphs["Florentine"], "participation": use, "error": error}
            found.append(nd.TimeProblem.decentralized(**fields, name="Florentine"))
    for name, mixing in graphs.items():
        for of, horizon in OVER_NODES:
            error = nd.ErrorMeasure(horizon=horizon, of=of)
            found.append(nd.SpaceProblem(mixing=mixing, error=error, max_variance=10.0, name=name))
    for of in ("worst", "worst-node", "worst-iterate"):
        use = FixedEpoch(epochs=2, separation=2)
        fields = {"mixing": graphs["Florentine"], "participation": use, "joint": "full"}
        error = nd.ErrorMeasure(horizon=4, of=of)
        found.append(nd.SpaceTimeProblem(**fields, error=error, name="Florentine"))
    return found


def main() -> None:
    """Print the table."""
    print("| design | graph | largest over | steps | problems solved | gap | sum over largest |")
    print("|---|---|---|---|---|---|---|")
    for problem in problems():
        solution, summed = nd.solve(problem), nd.solve(plain(problem)).design
        assert solution.design is not None
        assert summed is not None
        assert problem.error is not None
        errors: np.ndarray = family_of(problem).program(problem).errors(summed.noise)
        steps = problem.use or f"{problem.error.horizon}"
        words = (problem.axes, problem.name, problem.error.of, steps, solution.evaluations)
        ratio = errors.max() / solution.design.objective
        print(f"| {' | '.join(map(str, words))} | {solution.design.gap:.0e} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
