"""Solvers in a process of their own: same answers, silent, and ended when their time is over."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic import process as isolated
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import model
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import mixing_matrix
from tests.support.conic_cases import PROBLEMS, ask, need

PACKAGE = Path(isolated.__file__).parents[1]
PICKLING = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "multiprocessing",
}
BETWEEN_PROCESSES = {
    "base/workers.py": {"joblib", "multiprocessing"},
    "base/cluster.py": {"cloudpickle"},
}
"""Values of one run go from process to process; no file is read or written that way. The pipe of
multiprocessing carries nothing: that it is open tells workers that they are wanted."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the trip lie; must be left empty."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    return scratch


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every process started during the test."""
    started = []
    original = subprocess.Popen

    def spy(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        child = original(*args, **kwargs)
        started.append(child)
        return child

    monkeypatch.setattr(isolated.subprocess, "Popen", spy)
    return started


def impostor(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell script in place of the Python that runs the solver."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def monitor(**kwargs: Any) -> Monitor:
    return Monitor(**({"gap": 1e-6, "tolerance": 1e-7} | kwargs))


# --- the same answer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend", "formulation"),
    [
        ("capped", "clarabel", "covariance"),
        ("epochs", "scs", "compact"),
        ("budgets", "clarabel", "balanced"),
    ],
)
def test_same_answer_as_in_process(name: str, backend: str, formulation: str, folder: Path) -> None:
    program = program_of(PROBLEMS[name]).normalized()
    here, there = (
        ask(backend, program, monitor=monitor(), formulation=formulation, isolated=isolated)
        for isolated in (False, True)
    )
    assert there.outcome.stop is here.outcome.stop is Stop.SOLVED
    assert there.outcome.iterations == here.outcome.iterations
    assert there.outcome.message == here.outcome.message
    assert here.gram is not None
    assert here.dual is not None
    assert there.gram is not None
    assert there.dual is not None
    np.testing.assert_array_equal(there.gram, here.gram)
    np.testing.assert_array_equal(there.dual.blocks, here.dual.blocks)
    if here.dual.cap is None:
        assert there.dual.cap is None
    else:
        assert there.dual.cap is not None
        np.testing.assert_array_equal(there.dual.cap, here.dual.cap)
    assert there.outcome.solve_seconds > 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("formulation", ["balanced", "compact", "paper"])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_program_survives_the_trip_bit_for_bit(name: str, formulation: str, tmp_path: Path) -> None:
    program = program_of(PROBLEMS[name]).normalized()
    if model.unable(program, formulation) is not None:
        formulation = "compact"
    conic = model.build(program, formulation=formulation, parts=2).conic
    isolated._write_program(tmp_path / "program.npz", conic)
    back = isolated._read_program(tmp_path / "program.npz")
    np.testing.assert_array_equal(back.cost, conic.cost, strict=True)
    assert back.size == conic.size
    for there, here in zip((*back.blocks, back.rows), (*conic.blocks, conic.rows), strict=True):
        assert there.size == here.size
        for key in ("variable", "row", "column", "value"):
            np.testing.assert_array_equal(
                getattr(there.entries, key), getattr(here.entries, key), strict=True
            )
    assert (back.balanced, back.flat) == (conic.balanced, conic.flat)


def test_monitor_and_formulation_reach_the_solver(
    folder: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """An accuracy that only the child could have been told changes its iterations."""
    program = program_of(PROBLEMS["capped"]).normalized()
    loose, tight = (
        ask(
            "scs", program, monitor=monitor(tolerance=tolerance), formulation="paper", isolated=True
        ).outcome.iterations
        for tolerance in (1e-2, 1e-9)
    )
    assert 0 < loose < tight
    assert ["scs" in child.args for child in children] == [True, True]


# --- silence -------------------------------------------------------------------------------------


def test_noisy_solvers_print_nothing(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    impostor(
        tmp_path / "python", f'echo noise; echo more >&2; exec "{sys.executable}" "$@"', monkeypatch
    )
    program = program_of(PROBLEMS["prefix"]).normalized()
    answer = ask(
        "clarabel", program, monitor=monitor(), formulation="compact", isolated=True
    ).outcome
    assert answer.stop is Stop.SOLVED
    assert capfd.readouterr() == ("", "")


def test_sdpa_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    solution = solve(PROBLEMS["prefix"], backend=need("sdpa"), gap=1e-6, isolate=True)
    assert solution.status == "optimal"
    assert capfd.readouterr() == ("", "")


# --- ends ----------------------------------------------------------------------------------------


def test_time_limit_kills_and_leaves_independent_noise(
    tmp_path: Path,
    folder: Path,
    children: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The solver says it is ready and then never answers; unheard, it would end before we do."""
    monkeypatch.setattr(isolated, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(isolated, "STARTUP_SECONDS", 600.0)
    ready = 'for given; do if [ -d "$given" ]; then touch "$given/ready"; fi; done'
    impostor(tmp_path / "python", f"{ready}; exec sleep 30", monkeypatch)
    problem = PROBLEMS["budgets"]
    assert isinstance(problem, SpaceProblem)
    solution = solve(problem, backend="clarabel", time_limit=0.05)
    assert solution.status == "time-limit"
    assert "Allow more time" in solution.remedy
    assert solution.feasible
    assert solution.design is not None
    np.testing.assert_allclose(
        solution.design.covariance, np.diag(1 / problem.budget), rtol=1e-9, atol=0
    )
    assert solution.design.provenance.method == "ldp"
    assert solution.design.provenance.status == "time-limit"
    # Without multipliers the bound is that of U = I.
    assert solution.design.lower_bound == pytest.approx(
        np.linalg.norm(problem.mixing, "nuc") ** 2 / problem.budget.sum(), rel=1e-12
    )
    assert children[0].returncode == -9
    assert list(folder.iterdir()) == []


def test_a_solver_that_ignores_its_limit_is_stopped(
    folder: Path, children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVXOPT has no time limit; the published form of 44 nodes keeps it busy for a minute."""
    need("cvxopt")
    monkeypatch.setattr(isolated, "GRACE_SECONDS", 0.0)
    problem = SpaceProblem(mixing=mixing_matrix(nx.path_graph(44)))
    solution = solve(problem, backend="cvxopt", formulation="paper", time_limit=0.2)
    assert (solution.status, solution.feasible) == ("time-limit", True)
    assert solution.certificate is not None
    assert np.isfinite(solution.certificate.gap)
    assert children[0].returncode == -9


def test_startup_does_not_count_against_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "GRACE_SECONDS", 0.0)
    impostor(tmp_path / "python", f'sleep 0.5; exec "{sys.executable}" "$@"', monkeypatch)
    solution = solve(PROBLEMS["prefix"], backend="clarabel", gap=1e-6, time_limit=0.4)
    assert solution.status == "optimal"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo starting; echo boom >&2; exit 3", "boom"),
        ("kill -9 $$", "it was killed, perhaps"),
        ("exit 0", "exit status 0"),
        ("kill -6 $$", "exit status -6"),
    ],
)
def test_a_crash_is_a_failure_with_a_remedy(
    script: str, reason: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor(tmp_path / "python", script, monkeypatch)
    solution = solve(PROBLEMS["prefix"], backend="clarabel", isolate=True)
    assert solution.status == "failed"
    assert solution.design is None
    assert not solution.feasible
    assert f"the solver's process ended: {reason}" in solution.remedy
    assert "--backend native" in solution.remedy
    assert list(folder.iterdir()) == []


def test_an_error_in_the_child_names_itself(folder: Path) -> None:
    program = program_of(PROBLEMS["prefix"]).normalized()
    watch = monitor(tolerance="x")
    answer = ask("clarabel", program, monitor=watch, formulation="compact", isolated=True).outcome
    assert answer.stop is Stop.FAILED
    assert "TypeError" in answer.message


def test_ctrl_c_kills_the_child_and_is_a_status(
    tmp_path: Path,
    folder: Path,
    children: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impostor(tmp_path / "python", "exec sleep 600", monkeypatch)
    naps = iter(range(3))

    def nap(_: float) -> None:
        if next(naps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    solution = solve(PROBLEMS["epochs"], backend="clarabel", isolate=True)
    assert (solution.status, solution.feasible) == ("interrupted", True)
    assert "Run it again" in solution.remedy
    assert solution.design is not None
    assert solution.design.provenance.method == "ldp"
    assert children[0].returncode == -9
    assert list(folder.iterdir()) == []


def test_an_answer_at_the_last_moment_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver answers and then hangs: what it found is worth more than its manners."""
    monkeypatch.setattr(isolated, "GRACE_SECONDS", 1.0)
    impostor(tmp_path / "python", f'"{sys.executable}" "$@"; exec sleep 600', monkeypatch)
    solution = solve(PROBLEMS["prefix"], backend="clarabel", gap=1e-6, time_limit=0.5)
    assert solution.status == "optimal"


# --- nothing is pickled --------------------------------------------------------------------------


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_no_pickle_anywhere() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 30
    for file in files:
        text = file.read_text()
        if not any(word in text for word in ("allow_pickle", *PICKLING)):
            continue
        tree = ast.parse(text)
        known = BETWEEN_PROCESSES.get(file.relative_to(PACKAGE).as_posix(), set())
        assert not imported(tree) & (PICKLING - known), file
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), file
                assert node.value.value is False, file


def test_the_trip_is_made_without_pickle(tmp_path: Path) -> None:
    """An object array in the answer of a child is refused, not executed."""
    np.savez(tmp_path / "outcome.npz", report=np.array([{"stop": "solved"}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        isolated._read_outcome(tmp_path / "outcome.npz")
