"""Shipped problems that conic solvers can hold: the same optimum, within their accuracy."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisedesign.io.problem_file import load_problem
from noisedesign.solve import solve

FOLDER = Path(__file__).parents[1] / "problems"
SMALL = [
    "whisper/erdos-renyi-20-p02", "whisper/erdos-renyi-20-p04", "whisper/erdos-renyi-20-p06",
    "whisper/erdos-renyi-20-p08", "whisper/erdos-renyi-20-p10-capped", "whisper/florentine",
    "whisper/ring-20", "whisper/karate", "examples/edge-list", "examples/space-with-privacy",
    "examples/time-with-privacy",
]  # fmt: skip
ACCURACY = {"scs": 1e-4, "clarabel": 1e-6, "cvxopt": 1e-6}
"""Certified gap at the solvers' own defaults: first order, and interior point."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ACCURACY)
@pytest.mark.parametrize("name", SMALL)
def test_conic_solvers_agree(name: str, backend: str) -> None:
    pytest.importorskip(backend)
    loaded = load_problem(FOLDER / f"{name}.toml")
    assert loaded.reference is not None
    found = solve(loaded.problem, backend=backend, time_limit=300).certificate
    assert found is not None
    assert found.feasible
    assert found.gap <= ACCURACY[backend]
    assert found.lower_bound <= loaded.reference.upper
    assert loaded.reference.lower <= found.objective


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefix/prefix-128", "prefix/prefix-8x16"])
def test_a_first_order_solver_agrees_in_time(name: str) -> None:
    """128 steps: a block of size 256, beyond the interior-point solvers in reasonable time."""
    loaded = load_problem(FOLDER / f"{name}.toml")
    assert loaded.reference is not None
    found = solve(loaded.problem, backend="scs", time_limit=400).certificate
    assert found is not None
    assert found.feasible
    assert found.gap <= 1e-3
    assert found.lower_bound <= loaded.reference.upper
    assert loaded.reference.lower <= found.objective
