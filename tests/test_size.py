"""How many arrays of the problem's size the diagonal solver holds at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import array_api_compat.numpy as library
import networkx as nx
import numpy as np
import oracles
import pytest

from noisedesign.backends import Monitor, Stop
from noisedesign.backends.native import diagonal
from noisedesign.formulations import program_of
from noisedesign.problem import SpaceProblem

NODES = 200
MOST = 8
"""Arrays of n x n doubles, H and W included."""
GIVEN = 2
"""H and W."""
LAPACK = 4
"""What an eigendecomposition takes: its basis, a copy of the matrix, and two of workspace (which
Python does not see)."""
VECTORS = 0.2
"""Vectors of length n and small objects, in the same unit, at this size."""


def test_the_diagonal_solver_holds_at_most_eight_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = 8 * NODES**2
    graph = nx.barabasi_albert_graph(NODES, 3, seed=0)
    program = program_of(SpaceProblem(mixing=oracles.metropolis(graph)))
    assert program.null_space.shape == (NODES, 0)
    held: list[float] = []
    original = library.linalg.eigh

    def watched(array: Any) -> Any:
        held.append(tracemalloc.get_traced_memory()[0] / unit)
        return original(array)

    monkeypatch.setattr(library.linalg, "eigh", watched)
    monkeypatch.setattr(diagonal, "CG_FORCING", 1e-3)
    assert np.asarray(program.gram).nbytes == unit
    tracemalloc.start()
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-11))
    peak = tracemalloc.get_traced_memory()[1] / unit
    tracemalloc.stop()
    assert answer.stop is Stop.SOLVED
    assert len(held) == answer.evaluations > 2
    assert GIVEN + max(held) + LAPACK <= MOST + VECTORS
    assert GIVEN + peak <= MOST + VECTORS
