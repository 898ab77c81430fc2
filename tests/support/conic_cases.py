"""Problems small enough for every conic solver, shared by the tests of the conic backends."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.program import DualPoint, Program
from noisedesign.conic import process
from noisedesign.conic.data import Outcome
from noisedesign.conic.solvers import ConicSolver, conic_solver
from noisedesign.design.backends import Conic, get_backend
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint import model
from noisedesign.families.family import Form, family_of
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch, single

SOLVERS = ("scs", "clarabel", "cvxopt", "sdpa")
TRIES = 4
"""SDPA does not repeat itself: on the same program it ends now with a gap of 1e-8, now with steps
too small. So it is asked again."""


def eight() -> np.ndarray:
    """Metropolis-Hastings on a connected random graph of eight nodes."""
    graph = nx.gnp_random_graph(8, 0.4, seed=3)
    assert nx.is_connected(graph)
    return mixing_matrix(graph)


def directed() -> np.ndarray:
    """Row stochastic, not symmetric."""
    return mixing_matrix(nx.path_graph(5), weights="row-normalized")


PROBLEMS: dict[str, Problem] = {
    "florentine": SpaceProblem(mixing=mixing_matrix(build_graph("florentine"))),
    "budgets": SpaceProblem(mixing=eight(), budget=np.linspace(0.5, 2.0, 8)),
    "capped": SpaceProblem(mixing=eight(), max_variance=np.linspace(1.05, 1.3, 8)),
    "capped-budgets": SpaceProblem(
        mixing=mixing_matrix(nx.cycle_graph(6)),
        budget=[1.0, 2.0, 4.0, 0.5, 1.0, 3.0],
        max_variance=[3.0, 1.0, 0.5, 2.5, 1.5, 1.0],
    ),
    "epochs": TimeProblem.decentralized(
        mixing=eight(), participation=FixedEpoch(epochs=3, separation=4)
    ),
    "epochs-directed": TimeProblem.decentralized(
        mixing=directed(), participation=FixedEpoch(epochs=4, separation=2)
    ),
    "prefix": TimeProblem.prefix(participation=single(8)),
}


def need(solver: str) -> str:
    """The solver's name, or a skipped test where it cannot run here."""
    available = get_backend(solver).availability()
    if not available.ready:
        pytest.skip(f"{solver}: {available.remedy}")
    return solver


def solver_of(name: str) -> ConicSolver:
    """Whether it can run here or not."""
    backend = get_backend(name)
    assert isinstance(backend, Conic)
    return backend.solver


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a conic solver answered to the model of a program, and what is read from it."""

    made: model.ConicModel
    outcome: Outcome

    @property
    def gram(self) -> np.ndarray | None:
        point = self.outcome.point
        return None if point is None else self.made.gram(point)

    @property
    def dual(self) -> DualPoint | None:
        point = self.outcome.point
        return None if point is None else self.made.dual(point)


def ask(
    solver: ConicSolver | str,
    program: Program,
    *,
    monitor: Monitor,
    formulation: str,
    isolated: bool = False,
) -> Asked:
    """A solver on the model of (P), here or in a process of its own."""
    chosen = conic_solver(solver) if isinstance(solver, str) else solver
    made = model.build(program, formulation=formulation, parts=chosen.parts)
    run = (lambda *of, **by: process.solve(chosen, *of, **by)) if isolated else chosen.solve
    return Asked(made=made, outcome=run(made.conic, monitor=monitor))


def bytes_for(solver: str, problem: Problem, formulation: str = "balanced") -> int:
    """Least memory that a solve takes, told without building the model."""
    family, chosen = family_of(problem), solver_of(solver)
    size = family.model_size(family.program(problem), Form(formulation, True, chosen.parts))
    assert size is not None
    return chosen.memory(size)


def too_large(solver: str, problem: Problem, formulation: str = "balanced") -> str | None:
    backend, family = get_backend(solver), family_of(problem)
    assert isinstance(backend, Conic)
    return backend.too_large(family, family.program(problem), formulation)


_native: dict[int, tuple[Problem, Certificate]] = {}


def native(problem: Problem) -> Certificate:
    """The certificate of our own answer, found once."""
    if id(problem) not in _native:
        found = solve(problem, gap=1e-7).certificate
        assert found is not None
        _native[id(problem)] = problem, found  # kept, so that nobody else gets its id
    return _native[id(problem)][1]


def through(
    problem: Problem, backend: str, *, gap: float = 1e-5, formulation: str | None = None
) -> Solution:
    """The solution of a conic solver: certified to the gap, and agreeing with our own.

    Each of the two objectives is an optimum but for its gap, and both bounds hold for both. Where
    the bound is that of all noise, as of DECOR's, the objectives agree.
    """
    convex = family_of(problem).convex
    for _ in range(TRIES):
        solution = solve(problem, backend=need(backend), gap=gap, formulation=formulation)
        if solution.status == "optimal" or not convex:
            break
    ours, found = native(problem), solution.certificate
    assert found is not None, solution.remedy
    assert found.feasible
    if convex:
        assert solution.status == "optimal", solution.remedy
        assert found.gap <= gap
    else:
        assert solution.status == "local-optimum", solution.remedy
        assert found.objective >= ours.objective * (1 - gap)
    assert ours.lower_bound * (1 - 1e-9) <= found.objective <= ours.objective * (1 + gap)
    assert found.lower_bound <= ours.objective * (1 + 1e-9)
    return solution
