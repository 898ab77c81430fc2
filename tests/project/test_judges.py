"""The judge knows no solver: what verifies a design loads none, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noisedesign.design.solve import solve
from noisedesign.files.design_file import save_design
from tests.support.family_cases import CASES, Case

VERIFIED = """
import json, sys
import noisedesign as nd
assert nd.verify(nd.load(sys.argv[1])).ok
print(json.dumps(sorted(sys.modules)))
"""

SOLVING = ("native", "solver", "model", "warm_start", "start", "attainment", "balanced")
"""Modules of a family that look for noise, or hand the search to others."""


def solving(module: str) -> bool:
    """Whether a module solves, or knows who does."""
    parts = module.split(".")
    if parts[0] in ("cvxpy", "scs", "clarabel", "mosek", "cvxopt", "sdpap"):
        return True
    if parts[:2] == ["noisedesign", "families"]:
        return bool(set(parts) & set(SOLVING))
    ours = ("noisedesign.conic", "noisedesign.design.backends", "noisedesign.design.solve")
    return module.startswith(ours)


FIRST = {case.family: case for case in reversed(CASES.values())}
"""One problem of every family."""

ONE, *OTHERS = FIRST
"""A process for one of them; those for the others are slow."""


@pytest.mark.parametrize(
    "case",
    [FIRST[ONE], *(pytest.param(FIRST[name], marks=pytest.mark.slow) for name in OTHERS)],
    ids=list(FIRST),
)
def test_verification_loads_no_solver(case: Case, tmp_path: Path) -> None:
    design = solve(case.problem).design
    assert design is not None
    path = save_design(design, tmp_path / "design.npz")
    printed = subprocess.run(
        [sys.executable, "-c", VERIFIED, str(path)], capture_output=True, text=True, check=True
    ).stdout
    modules = json.loads(printed)
    assert "noisedesign.tasks.verify" in modules
    assert [module for module in modules if solving(module)] == []


def test_a_solve_loads_what_is_looked_for() -> None:
    """The same question of a process that solves has an answer."""
    code = (
        "import json, sys\nimport noisedesign as nd, numpy as np\n"
        "nd.solve(nd.SpaceProblem(mixing=np.eye(3) / 2 + 1 / 6), backend='clarabel')\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    found = {module for module in json.loads(printed) if solving(module)}
    assert {"clarabel", "noisedesign.conic.solvers", "noisedesign.design.solve"} <= found
