"""Problems small enough for every conic solver, shared by the tests of the conic backends."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from noisedesign.program.backends import get_backend
from noisedesign.program.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch, single

SOLVERS = ("scs", "clarabel", "cvxopt", "sdpa")


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
