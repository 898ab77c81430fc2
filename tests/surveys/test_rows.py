"""Rows of a comparison: one certificate for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Stop
from noisedesign.certify.program import diagonal_dual
from noisedesign.conic import process as isolated
from noisedesign.conic.data import ERRORS
from noisedesign.design.backends import Conic, get_backend
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.families.disjoint.program import Found
from noisedesign.families.family import Answer
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.surveys import compare as run, rows as judging
from noisedesign.surveys.compare import compare
from noisedesign.surveys.rows import SEARCHED_REASONS
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch
from tests.support.command_line import call

RING_5 = SpaceProblem(mixing=mixing_matrix(nx.cycle_graph(5)), name="ring-5")
RING_6 = SpaceProblem(mixing=mixing_matrix(nx.cycle_graph(6)), name="ring-6")
TWO_EPOCHS = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=1), name="two")


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short solves are not repeated."""
    monkeypatch.setattr(run, "RUNS", 1)


OPTIMUM = sum(abs(1 + 2 * np.cos(2 * np.pi * k / 5)) / 3 for k in range(5)) ** 2 / 5
"""Vertex transitive: (nuclear norm of W)^2 / n."""

TWO_OPTIMUM = (1 + 2**0.5) ** 2
"""X = diag(a, 1 - a): the least value of 2 / a + 1 / (1 - a)."""


def find(monkeypatch: pytest.MonkeyPatch, found: Found) -> None:
    """Let every conic solver find that."""

    def answer(self: Conic, family: object, program: Any, *how: Any) -> Answer:
        return FAMILY.answer(program, found)

    monkeypatch.setattr(Conic, "answer", answer)


def test_rows_of_two_problems_and_two_backends() -> None:
    said: list[str] = []
    found = compare([RING_5, TWO_EPOCHS], backends=["native", "clarabel"], announce=said.append)
    rows = found.rows
    assert [(row["name"], row["design"], row["backend"]) for row in rows] == [
        ("ring-5", "space", "native"),
        ("ring-5", "space", "clarabel"),
        ("two", "time", "native"),
        ("two", "time", "clarabel"),
    ]
    assert len(said) == 4
    assert "ring-5" in said[1]
    assert "clarabel" in said[1]
    for row, optimum in zip(rows, [OPTIMUM, OPTIMUM, TWO_OPTIMUM, TWO_OPTIMUM], strict=True):
        assert tuple(row) == ("comparison_format", "key", *run.COLUMNS)
        assert (row["solved"], row["feasible"], row["status"], row["reason"]) == (
            True,
            True,
            "optimal",
            "",
        )
        assert row["objective"] == pytest.approx(optimum, rel=1e-6)
        assert row["lower_bound"] <= optimum * (1 + 1e-12)
        assert row["gap"] <= 1e-6
        assert row["evaluations"] > 0
        assert 0 < row["solve_seconds"] <= row["seconds"]
        assert row["build_seconds"] >= 0
    conic = [row for row in rows if row["backend"] == "clarabel"]
    assert all(row["build_seconds"] > 0 for row in conic)
    # DIMACS errors where there was a conic model, and nothing where there was none.
    for row in rows:
        found = [row[name] for name in ERRORS]
        if row["backend"] == "native":
            assert found == [None] * 6
            assert "numpy" in row["versions"]
        else:
            assert max(map(abs, found)) < 1e-6
            assert get_backend("clarabel").availability().version in row["versions"]


def test_a_local_optimum_is_not_solved() -> None:
    problem = TimeProblem.prefix(
        participation=FixedEpoch(epochs=1, separation=8), structure=TimeStructure(kind="toeplitz")
    )
    (row,) = compare([problem], backends=["native"]).rows
    assert (row["solved"], row["status"], row["reason"]) == (
        False,
        "local-optimum",
        SEARCHED_REASONS["local-optimum"],
    )
    assert row["gap"] > 1e-6


def test_a_row_is_finished_before_the_next_problem_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    def spy(problem: Any, **kwargs: Any) -> Solution:
        said.append(f"solved {problem.name}")
        return solve(problem, **kwargs)

    monkeypatch.setattr(judging, "solve", spy)
    compare([RING_5, TWO_EPOCHS], backends=["native"], announce=said.append)
    assert said == ["1/2 ring-5 with native", "solved ring-5", "2/2 two with native", "solved two"]


def test_every_solver_is_asked_for_the_gap_it_is_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def spy(*args: Any, **kwargs: Any) -> Solution:
        asked.append(kwargs["gap"])
        return solve(*args, **{**kwargs, "isolate": False})

    monkeypatch.setattr(judging, "solve", spy)
    compare([RING_5], backends=["clarabel"])
    compare([RING_5], backends=["clarabel"], gap=1e-4)
    assert asked == [1e-6, 1e-4]


def test_refusals_are_rows_with_reasons() -> None:
    refusing = replace(RING_6, max_variance="none")
    (divergent,) = compare([refusing], backends=["native"]).rows
    assert (divergent["status"], divergent["solved"], divergent["feasible"]) == (
        "refused",
        False,
        False,
    )
    assert "null direction" in divergent["reason"]
    assert divergent["objective"] is None
    (paper,) = compare([TWO_EPOCHS], backends=["clarabel"], formulation="paper").rows
    assert paper["status"] == "refused"
    assert "several epochs" in paper["reason"]


def test_unlicensed_is_a_row() -> None:
    available = get_backend("mosek").availability()
    if available.ready:
        pytest.skip("this machine has a MOSEK licence")
    (row,) = compare([RING_5], backends=["mosek"]).rows
    assert (row["status"], row["solved"]) == ("refused", False)
    assert available.remedy in row["reason"]


def test_native_has_no_formulation_to_choose() -> None:
    rows = compare([RING_5], backends=["native", "clarabel"], formulation="paper").rows
    assert [row["status"] for row in rows] == ["optimal", "optimal"]


@pytest.mark.parametrize(
    ("found", "status", "feasible"),
    [
        (
            Found(stop=Stop.SOLVED, gram=np.eye(5), dual=diagonal_dual(np.ones(5))),
            "inaccurate",
            True,
        ),
        (Found(stop=Stop.SOLVED, gram=-np.eye(5), dual=diagonal_dual(np.ones(5))), "failed", False),
        (Found(stop=Stop.FAILED, message="numerical trouble"), "failed", False),
        (Found(stop=Stop.TIME_LIMIT, solve_seconds=7.0), "time-limit", False),
        (
            Found(stop=Stop.TIME_LIMIT, gram=np.eye(5), dual=diagonal_dual(np.ones(5))),
            "time-limit",
            True,
        ),
    ],
    ids=["over the gap", "infeasible", "gave up", "nothing in time", "out of time"],
)
def test_what_a_solver_says_does_not_count(
    found: Found, status: str, feasible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(monkeypatch, found)
    (row,) = compare([RING_5], backends=["clarabel"]).rows
    assert (row["status"], row["feasible"], row["solved"]) == (status, feasible, False)
    assert row["reason"]
    assert found.message in row["reason"]
    assert row["solve_seconds"] == found.solve_seconds
    if feasible:
        assert row["objective"] == pytest.approx(5 / 3)  # independent noise, if it was found
        assert row["gap"] > 1e-6
    else:
        assert (row["objective"], row["lower_bound"], row["gap"]) == (None, None, None)


@pytest.mark.parametrize(
    ("found", "advised"),
    [
        (Found(stop=Stop.FAILED, message="killed, perhaps for want of memory"), False),
        (Found(stop=Stop.TIME_LIMIT), False),
        (Found(stop=Stop.SOLVED, gram=-np.eye(5), dual=diagonal_dual(np.ones(5))), True),
    ],
    ids=["no memory", "no time", "nearly feasible"],
)
def test_a_looser_gap_is_advised_where_there_is_something_to_loosen(
    found: Found, advised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(monkeypatch, found)
    (row,) = compare([RING_5], backends=["clarabel"]).rows
    assert ("looser" in row["reason"]) == advised


def test_a_solver_that_is_stopped_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that hands nothing over: the seconds are real, and the answer is none."""
    import time

    monkeypatch.setattr(isolated, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(isolated, "__name__", "no_such_module_here")
    started = time.perf_counter()
    solution = solve(RING_5, backend="clarabel", isolate=True)
    assert 0 < solution.solve_seconds <= time.perf_counter() - started
    assert (solution.status, solution.found) == ("failed", False)
    assert "process ended" in solution.remedy


def test_a_looser_gap_accepts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(stop=Stop.FAILED, gram=np.eye(5), dual=diagonal_dual(np.ones(5)))
    find(monkeypatch, found)
    (row,) = compare([RING_5], backends=["clarabel"], gap=0.9).rows
    assert (row["solved"], row["status"]) == (True, "optimal")


@pytest.mark.parametrize(
    ("kwargs", "field"),
    [
        ({"gap": -1.0}, "gap"),
        ({"gap": 2.0}, "gap"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"formulation": "nonsense"}, "formulation"),
        ({"formulation": "dual"}, "formulation"),
    ],
)
def test_wrong_arguments_are_no_rows(kwargs: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        compare([RING_5], backends=["native"], **kwargs)
    assert error.value.field == field


def test_unknown_backends_are_no_rows() -> None:
    with pytest.raises(InputError) as error:
        compare([RING_5], backends=["native", "gurobi"])
    assert error.value.field == "backend"


def test_unknown_backends_are_told_before_problems_are_read(tmp_path: Path) -> None:
    """Some problems take a download to read, and this one cannot be read at all."""
    outcome = call("compare", tmp_path / "none.toml", "--backends", "native,gurobi")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("noisedesign: error: backend: "), outcome.err


def test_ctrl_c_in_a_solve_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that was interrupted still returns its best; the comparison goes no further."""

    def press(_: Bounds) -> None:
        raise KeyboardInterrupt

    def interrupted(*args: Any, **kwargs: Any) -> Solution:
        solution = solve(*args, **kwargs, progress=press)
        assert solution.status == "interrupted"
        return solution

    monkeypatch.setattr(judging, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare([TWO_EPOCHS, RING_5], backends=["native"], gap=1e-12)


def test_a_table_takes_problems_with_a_text(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        compare([RING_5], backends=["native"], output=tmp_path / "rows.csv")
    assert error.value.field == "problems"
    assert "load(path)" in error.value.remedy
