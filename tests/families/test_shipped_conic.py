"""Shipped problems that conic solvers can hold: the same optimum, within their accuracy."""

from __future__ import annotations

import pytest

from noisedesign.files.problem_file import load_problem
from noisedesign.system import datasets
from noisedesign.tasks.solve import solve
from tests.support import ROOT

FOLDER = ROOT / "problems"
SMALL = [
    "whisper/erdos-renyi-20-p02",
    "whisper/erdos-renyi-20-p04",
    "whisper/erdos-renyi-20-p06",
    "whisper/erdos-renyi-20-p08",
    "whisper/erdos-renyi-20-p10-capped",
    "whisper/florentine",
    "whisper/ring-20",
    "whisper/karate",
    "examples/edge-list",
    "examples/space-with-privacy",
    "examples/time-with-privacy",
]
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


LARGE = [
    "prefix/prefix-128",
    "prefix/prefix-8x16",
    "prefix/prefix-20x19",
    "whisper/ego-148",
    "mafalda/florentine-20x16-mh",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_first_order_solver_agrees_at_large_sizes(name: str) -> None:
    """Blocks of 256 to 760 rows, beyond the interior-point solvers in reasonable time."""
    if name.endswith("ego-148") and datasets.local_ego_facebook(414) is None:
        pytest.skip("the ego network is not here")
    loaded = load_problem(FOLDER / f"{name}.toml")
    assert loaded.reference is not None
    solution = solve(loaded.problem, backend="scs", gap=1e-6, time_limit=400)
    found = solution.certificate
    assert found is not None
    assert (solution.status, found.feasible) == ("optimal", True)
    assert found.lower_bound <= loaded.reference.upper
    assert loaded.reference.lower <= found.objective
