"""Designs for the worst step, beside those for the sum: ``python -m benchmarks.worst_step``.

A line a problem: how many problems (P) it took, the gap that is certified, and the worst error of
the best design for the sum of errors over that of the design for the worst step."""

from __future__ import annotations

import networkx as nx

import noisedesign as nd
from noisedesign.families.family import family_of
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import Participation

SETTINGS: tuple[Participation, ...] = (
    nd.single(16),
    nd.single(64),
    nd.single(256),
    nd.FixedEpoch(epochs=2, separation=4),
    nd.FixedEpoch(epochs=4, separation=16),
    nd.FixedEpoch(epochs=8, separation=16),
)


def problems() -> list[TimeProblem]:
    """Prefix sums, and the Florentine families up to 64 steps."""
    mixing = nd.mixing_matrix(nx.florentine_families_graph())
    found = []
    for use in SETTINGS:
        error = nd.ErrorMeasure(horizon=use.horizon, of="worst")
        found.append(TimeProblem.prefix(participation=use, error=error, name="prefix sums"))
        if use.horizon <= 64:
            fields = {"mixing": mixing, "participation": use, "error": error}
            found.append(TimeProblem.decentralized(**fields, name="Florentine families"))
    return found


def main() -> None:
    """Print the table."""
    print("problem              participation          problems solved   gap      sum over worst")
    for problem in problems():
        solution = nd.solve(problem)
        summed = nd.solve(TimeProblem(gram=problem.gram, participation=problem.participation))
        assert solution.design is not None
        assert summed.design is not None
        errors = family_of(problem).program(problem).errors(summed.design.noise)
        print(
            f"{problem.name:20} {problem.participation!s:22} {solution.evaluations:15} "
            f"{solution.design.gap:10.1e} {errors.max() / solution.design.objective:10.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
