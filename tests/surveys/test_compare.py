"""The table of a comparison: whole after every row, gone on with, and never mixed."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noisedesign.base import machine as machine_module
from noisedesign.base.checks import InputError
from noisedesign.base.machine import FIELDS, this_machine
from noisedesign.design.solve import Solution, solve
from noisedesign.files.problem_file import LoadedProblem, parse_problem
from noisedesign.surveys import compare as run, rows as judging
from noisedesign.surveys.compare import COLUMNS, compare
from tests.support.command_line import CAPPED, EPOCHS, PREFIX, RING, call, environment, write


def loaded(*texts: str) -> list[LoadedProblem]:
    return [parse_problem(text, folder=".") for text in texts]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


RUNS = run.RUNS


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short solves are not repeated, but where that is what a test is about."""
    monkeypatch.setattr(run, "RUNS", 1)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the problems that were solved, and who by."""
    calls: list[str] = []

    def spy(problem: Any, **kwargs: Any) -> Solution:
        calls.append(f"{problem.name} {kwargs['backend']}")
        return solve(problem, **{**kwargs, "isolate": False})

    monkeypatch.setattr(judging, "solve", spy)
    return calls


def test_the_table_holds_every_digit(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    found = compare(loaded(RING), backends=["native", "clarabel"], output=output)
    stored = read(output)
    assert tuple(stored[0]) == ("comparison_format", "key", *COLUMNS)
    for row, text in zip(found.rows, stored, strict=True):
        assert list(row) == list(text)
        for column, value in row.items():
            assert text[column] == ("" if value is None else str(value))
    machine = found.machine.record()
    assert {name: found.rows[0][name] for name in FIELDS} == machine
    assert (found.kept, found.rows[0]["threads"]) == (0, machine["threads"])
    again = compare(loaded(RING), backends=["native", "clarabel"], output=output)
    assert again.kept == 2
    assert again.rows == found.rows  # numbers are numbers again, and nothing is None again


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output = tmp_path / "rows.parquet"
    found = compare(loaded(RING), backends=["native"], output=output)
    assert compare(loaded(RING), backends=["native"], output=output).rows == found.rows


def test_only_what_is_missing_is_run(tmp_path: Path, solved: list[str]) -> None:
    output = tmp_path / "rows.csv"

    def names(*texts: str, **kwargs: Any) -> list[str]:
        solved.clear()
        options: dict[str, Any] = {"backends": ["native"], "output": output, **kwargs}
        found = compare(loaded(*texts), **options)
        assert len(found.rows) - found.kept == len(solved)
        return [row["name"] for row in found.rows]

    assert names(RING, CAPPED) == ["ring-5", "complete-4"]
    assert solved == ["ring-5 native", "complete-4 native"]
    # In the order that is asked for, whatever the table's; a problem given twice is run once.
    assert names(PREFIX, CAPPED, RING, RING) == ["prefix", "complete-4", "ring-5"]
    assert solved == ["prefix native"]
    # Words for people do not matter, all that decides an answer does.
    assert names('description = "five nodes"\n' + RING) == ["ring-5"]
    assert solved == []
    for change in (
        {"gap": 1e-5},
        {"time_limit": 30.0},
        {"backends": ["clarabel"]},
        {"backends": ["clarabel"], "formulation": "paper"},
    ):
        names(RING, **change)
        assert len(solved) == 1, change
    names(RING.replace("nodes = 5", "nodes = 7").replace("ring-5", "ring-7"))
    assert solved == ["ring-7 native"]
    assert len(read(output)) == 8


def test_the_time_limit_reaches_the_solvers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def spy(problem: Any, **kwargs: Any) -> Solution:
        asked.append((kwargs["gap"], kwargs["time_limit"]))
        return solve(problem, **kwargs)

    monkeypatch.setattr(judging, "solve", spy)
    compare(loaded(RING), backends=["native"])
    compare(loaded(RING), backends=["native"], gap=1e-4, time_limit=7.0)
    assert asked == [(1e-6, run.TIME_LIMIT_SECONDS), (1e-4, 7.0)]


@pytest.mark.parametrize(
    ("seconds", "kept"), [([0.03, 0.01, 0.02], 0.02), ([0.09, 5.0, 0.01], 0.09), ([0.2, 0.01], 0.2)]
)
def test_the_median_of_short_solves_is_kept(
    seconds: list[float], kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUNS", RUNS)
    left = list(seconds)

    def spy(problem: Any, **kwargs: Any) -> Solution:
        half = left.pop(0) / 2
        return replace(solve(problem, **kwargs), build_seconds=half, solve_seconds=half)

    monkeypatch.setattr(judging, "solve", spy)
    (row,) = compare(loaded(RING), backends=["native"]).rows
    assert row["build_seconds"] + row["solve_seconds"] == kept
    assert row["runs"] == (3 if seconds[0] <= run.SHORT_SECONDS else 1)


def test_what_is_not_solved_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RUNS", RUNS)
    calls: list[str] = []

    def fails(problem: Any, **kwargs: Any) -> Solution:
        calls.append(problem.name)
        raise MemoryError

    monkeypatch.setattr(judging, "solve", fails)
    (row,) = compare(loaded(RING), backends=["native"]).rows
    assert (row["status"], row["runs"], len(calls)) == ("failed", 1, 1)


def test_retry_runs_what_was_not_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solved: list[str]
) -> None:
    output = tmp_path / "rows.csv"
    local = PREFIX + '[structure]\ntime = "toeplitz"\n'
    problems = loaded(RING, local.replace('"prefix"', '"local"', 1), CAPPED)
    with monkeypatch.context() as patch:
        spied = judging.solve

        def fails(problem: Any, **kwargs: Any) -> Solution:
            if problem.name == "ring-5":
                raise MemoryError
            return spied(problem, **kwargs)

        patch.setattr(judging, "solve", fails)
        first = compare(problems, backends=["native"], output=output)
    assert [row["status"] for row in first.rows] == ["failed", "local-optimum", "optimal"]
    solved.clear()
    assert compare(problems, backends=["native"], output=output).kept == 3
    again = compare(problems, backends=["native"], output=output, retry=True)
    assert (again.kept, solved) == (2, ["ring-5 native"])
    assert [row["status"] for row in again.rows] == ["optimal", "local-optimum", "optimal"]
    assert [row["status"] for row in read(output)] == ["optimal", "local-optimum", "optimal"]


KILLED = """
    import os, signal, sys
    from noisedesign import cli
    from noisedesign.surveys import rows as module
    from noisedesign.surveys import compare as run

    run.RUNS = 1
    real, calls = module.solve, []

    def solve(*args, **kwargs):
        calls.append(args)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    module.solve = solve
    sys.argv = ["noisedesign", *sys.argv[1:]]
    cli.main()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.slow
def test_a_killed_comparison_goes_on(tmp_path: Path, solved: list[str]) -> None:
    """Killed in its third row, and as if in the middle of writing it."""
    output = tmp_path / "rows.csv"
    paths = [
        write(tmp_path, text, f"{i}.toml") for i, text in enumerate((RING, CAPPED, PREFIX, EPOCHS))
    ]
    arguments = ["compare", *map(str, paths), "--backend", "native", "-o", str(output)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole = output.read_bytes()
    assert [row["name"] for row in read(output)] == ["ring-5", "complete-4"]
    half = whole.splitlines(keepends=True)[-1]
    output.write_bytes(whole + half[: len(half) // 2])
    outcome = call(*arguments)
    assert outcome.code == 0, outcome.err
    assert "2 of 4 rows were in" in outcome.err
    assert solved == ["prefix native", "epochs native"]
    assert output.read_bytes().startswith(whole)
    assert [row["name"] for row in read(output)] == ["ring-5", "complete-4", "prefix", "epochs"]


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "rows.csv"
    before: list[list[str]] = []

    def spy(*args: Any, **kwargs: Any) -> Solution:
        before.append([row["name"] for row in read(output)])
        if len(before) == 3:
            raise KeyboardInterrupt
        return solve(*args, **kwargs)

    monkeypatch.setattr(judging, "solve", spy)
    paths = [write(tmp_path, text, f"{i}.toml") for i, text in enumerate((RING, CAPPED, PREFIX))]
    outcome = call("compare", *paths, "--backends", "native", "-o", output, "--json")
    assert (outcome.code, outcome.out) == (130, "")
    assert "Traceback" not in outcome.err
    assert before == [[], ["ring-5"], ["ring-5", "complete-4"]]
    assert [row["name"] for row in read(output)] == ["ring-5", "complete-4"]
    assert [path.name for path in tmp_path.glob("rows.*")] == ["rows.csv"]


def test_what_nobody_foresaw_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(problem: Any, **kwargs: Any) -> Solution:
        if problem.name == "ring-5":
            raise ZeroDivisionError("no such luck")
        return solve(problem, **kwargs)

    monkeypatch.setattr(judging, "solve", fails)
    first, second = compare(loaded(RING, PREFIX), backends=["native"]).rows
    assert (first["status"], first["solved"]) == ("failed", False)
    assert first["reason"] == "ZeroDivisionError: no such luck"
    assert second["solved"] is True


OBSERVED = """name = "observed"
design = "space"

[graph]
kind = "path"
nodes = 4

[limits]
max_variance = 10.0

[observers]
model = "pndp"
nodes = [0]
horizon = 1
"""


def test_native_takes_observers_by_itself(solved: list[str]) -> None:
    native, clarabel = compare(loaded(OBSERVED), backends=["native", "clarabel"], gap=1e-6).rows
    assert (native["status"], native["solved"]) == ("optimal", True)
    assert native["objective"] == pytest.approx(clarabel["objective"], rel=1e-5)
    assert solved == ["observed native", "observed clarabel"]


# --- files that are refused -----------------------------------------------------------------------


def refusal(output: Path, **kwargs: Any) -> InputError:
    before = output.read_bytes()
    options: dict[str, Any] = {"backends": ["native"], "output": output, **kwargs}
    with pytest.raises(InputError) as error:
        compare(loaded(PREFIX), **options)
    assert output.read_bytes() == before
    return error.value


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    compare(loaded(RING), backends=["native"], output=path)
    return path


def edited(path: Path, column: str, value: str) -> Path:
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    for row in rows:
        row[header.index(column)] = value
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_another_version_of_the_format_is_refused(output: Path) -> None:
    error = refusal(edited(output, "comparison_format", "1"))
    assert error.field == "output"
    assert str(output) in error.got
    assert "version 1" in error.got
    assert "version 5" in error.expected


@pytest.mark.parametrize(
    ("column", "value"),
    [("noisedesign", "0.0.9"), ("numpy", "1.25.2"), ("threads", "64"), ("processor", "abacus")],
)
def test_another_machine_or_version_is_refused(output: Path, column: str, value: str) -> None:
    error = refusal(edited(output, column, value))
    assert error.field == "output"
    assert value in error.got
    assert f"{column} = {this_machine().record()[column]}" in error.expected


def test_a_cluster_is_refused_for_its_times(tmp_path: Path) -> None:
    outcome = call("compare", write(tmp_path, RING), "--cluster", "tcp://127.0.0.1:1")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Times of several machines do not compare: run it on one." in outcome.err
    assert "--cluster" not in call("compare", "--help").out


def test_tables_of_something_else_are_refused(output: Path, tmp_path: Path) -> None:
    other = tmp_path / "sweep.csv"
    other.write_text(output.read_text().replace("comparison_format", "sweep_format"))
    assert "columns of this comparison" in refusal(other).expected
    other.write_text("a,b\r\n1,2\r\n")
    assert "columns of this comparison" in refusal(other).expected


def test_wrong_arguments(tmp_path: Path) -> None:
    problems = loaded(RING, RING.replace("nodes = 5", "nodes = 7"))
    with pytest.raises(InputError) as error:
        compare(problems, backends=["native"])
    assert (error.value.field, error.value.got) == ("problems", "two called ring-5")
    for options, field in (
        ({"backends": []}, "backends"),
        ({"backends": ["gurobi"]}, "backend"),
        ({"backends": ["native"], "time_limit": 0.0}, "time_limit"),
        ({"backends": ["native"], "gap": 0.0}, "gap"),
        ({"backends": ["native"], "output": tmp_path / "rows.txt"}, "output"),
    ):
        with pytest.raises(InputError) as error:
            compare(loaded(RING), **options)
        assert error.value.field == field


# --- the machine ----------------------------------------------------------------------------------


def test_the_blas_is_numpys_where_the_environment_is_a_link(tmp_path: Path) -> None:
    pytest.importorskip("cvxopt", reason="a library with a BLAS of its own")
    import numpy as np

    (tmp_path / "packages").symlink_to(Path(np.__file__).parent.parent, target_is_directory=True)
    paths = f"{tmp_path / 'packages'}:{environment()['PYTHONPATH']}"
    code = "from noisedesign.base.machine import this_machine; print(this_machine().blas)"
    found = {
        subprocess.run(
            [sys.executable, "-c", before + code],
            env=environment(PYTHONPATH=paths),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for before in ("", "import cvxopt; ")
    }
    assert len(found) == 1, found


def test_the_machine_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import numpy as np
    from threadpoolctl import threadpool_limits

    found = this_machine()
    assert (found.numpy, found.cores > 0) == (np.__version__, True)
    with threadpool_limits(limits=1, user_api="blas"):
        assert this_machine().threads == 1
    processors = tmp_path / "cpuinfo"
    processors.write_text("processor : 0\nmodel name : Abacus: 10 beads\nmodel name : other\n")
    monkeypatch.setattr(machine_module, "PROCESSOR_FILE", processors)
    assert this_machine().processor == "Abacus: 10 beads"
    monkeypatch.setattr(machine_module, "PROCESSOR_FILE", tmp_path / "none")
    assert this_machine().processor
    words = str(replace(found, threads=1, cores=4, blas="openblas 1.2", processor="abacus"))
    assert "openblas 1.2, 1 BLAS thread, 4 cores of abacus" in words
