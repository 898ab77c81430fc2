"""Sweeps: every row once whatever ends them, tables never mixed, one error for a wrong one.

The problems are rings; where 3 does not divide their size, the optimum is known in closed form.
"""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.stats import norm

from noisedesign import TimeProblem, solve
from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import InputError
from noisedesign.participation import single
from noisedesign.surveys import results_file, rows as judging, sweep as sweeping
from noisedesign.surveys.results_file import open_results
from noisedesign.surveys.sweep import Summary, columns_of, row_of, sweep
from noisedesign.surveys.sweep_file import Sweep, parse_sweep
from tests.support import oracles
from tests.support.command_line import EPOCHS, MODULE, RING, call, environment, write

FOUR = RING + "[grid]\ngraph.nodes = [5, 7]\nbudget.tau = [1.0, 4.0]\n"
CLARABEL = 'backends = ["clarabel"]\n'


def plan(text: str = FOUR) -> Sweep:
    return parse_sweep(text, folder=".")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def optimum(nodes: int, tau: float) -> float:
    """Vertex transitive, W = I/3 + ...: (nuclear norm of W)^2 / (n tau)."""
    nuclear = sum(abs(1 + 2 * np.cos(2 * np.pi * k / nodes)) / 3 for k in range(nodes))
    return float(nuclear**2 / nodes / tau)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the rows that were really computed in this process."""
    keys: list[str] = []

    def spy(row: Any, neighbours: Any) -> Any:
        keys.append(row.key)
        return row_of(row, neighbours)

    monkeypatch.setattr(sweeping, "row_of", spy)
    return keys


# --- one table -----------------------------------------------------------------------------------


def test_rows_hold_parameters_and_answers(tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    table = tmp_path / "rows.csv"
    summary = sweep(plan(), output=table, progress=lambda *seen: said.append(seen))
    assert summary == Summary(output=table, rows=4, skipped=0, run=4, unsolved=0)
    assert said == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    found = read(table)
    assert tuple(found[0]) == (
        "sweep_format",
        "key",
        "graph.nodes",
        "budget.tau",
        "asked_gap",
        "time_limit",
        "warm",
        *judging.COLUMNS,
        *sweeping.MISJUDGED,
    )
    assert [(row["graph.nodes"], row["budget.tau"]) for row in found] == [
        ("5", "1.0"),
        ("5", "4.0"),
        ("7", "1.0"),
        ("7", "4.0"),
    ]
    for row, planned in zip(found, plan().rows, strict=True):
        assert row["key"] == planned.key
        assert (row["sweep_format"], row["asked_gap"], row["time_limit"]) == ("6", "1e-06", "")
        assert (row["solved"], row["feasible"], row["status"]) == ("True", "True", "optimal")
        truth = optimum(int(row["graph.nodes"]), float(row["budget.tau"]))
        assert float(row["objective"]) == pytest.approx(truth, rel=2e-6)
        assert float(row["lower_bound"]) <= truth * (1 + 1e-12)


def test_rows_of_targets_differ_by_what_they_cost(tmp_path: Path) -> None:
    """One design for every epsilon, and the noise and the error that each of them takes."""
    text = EPOCHS.replace('"epochs"', '"targets"', 1) + (
        "[privacy]\ndelta = 1e-5\nclip = 0.5\nadjacency = 'replace'\n"
        "[grid]\nprivacy.epsilon = [0.5, 2.0, 8.0]\n"
    )
    sweep(plan(text), output=tmp_path / "rows.csv")
    found = read(tmp_path / "rows.csv")
    assert len({f"{float(row['objective']):.9g}" for row in found}) == 1
    for row in found:
        epsilon, mu = float(row["privacy.epsilon"]), float(row["mu"])
        stddev, multiplier = float(row["noise_stddev"]), float(row["noise_multiplier"])
        # Dong, Roth and Su, eq. (6); a record moves a step by 2 clips, at unit sensitivity of C.
        assert float(row["epsilon"]) == epsilon
        assert (float(row["delta"]), row["adjacency"]) == (1e-5, "replace")
        delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(
            -mu / 2 - epsilon / mu
        )
        assert delta == pytest.approx(1e-5, rel=1e-6)
        assert stddev == pytest.approx(2 * 0.5 / mu)
        assert multiplier == pytest.approx(stddev / 0.5)
        error = float(row["objective"]) * stddev**2
        assert float(row["error_at_target"]) == pytest.approx(error)
        assert 0 < float(row["relative_to_ldp"]) < 1


def test_a_swept_name_has_one_column(tmp_path: Path) -> None:
    sweep(plan(RING + "[grid]\nname = ['a', 'b']\n"), output=tmp_path / "rows.csv")
    found = read(tmp_path / "rows.csv")
    assert [row["name"] for row in found] == ["a", "b"]
    assert columns_of(["name", "graph.p"]).count("name") == 1


EPOCHS_OF_RANDOM_GRAPHS = """name = "epochs"
design = "time"
[graph]
kind = "erdos-renyi"
nodes = 12
p = 0.3
seed = 0
[workload]
kind = "decentralized"
[participation]
epochs = 4
separation = 6
[grid]
"""


def test_rows_start_from_the_nearest_before_them(tmp_path: Path) -> None:
    """In either order: the same answers to the gap, fewer evaluations, and the row says so."""
    found: list[dict[str, dict[str, str]]] = []
    for name, seeds in {"up": [0, 1, 2], "down": [2, 1, 0]}.items():
        table = tmp_path / f"{name}.csv"
        sweep(plan(f"{EPOCHS_OF_RANDOM_GRAPHS}graph.seed = {seeds}\n"), output=table)
        rows_now = read(table)
        assert [row["warm"] for row in rows_now] == ["False", "True", "True"]
        cold, *warm = (int(row["evaluations"]) for row in rows_now)
        assert max(warm) < cold
        found.append({row["key"]: row for row in rows_now})
    up, down = found
    assert set(up) == set(down)
    for key, row in up.items():
        assert row["solved"] == down[key]["solved"] == "True"
        assert float(row["objective"]) == pytest.approx(float(down[key]["objective"]), rel=2e-6)


def test_rows_of_other_sizes_and_of_conic_solvers_start_cold(tmp_path: Path) -> None:
    sweep(plan(), output=tmp_path / "rows.csv")
    assert [row["warm"] for row in read(tmp_path / "rows.csv")] == ["False", "True"] * 2
    both = CLARABEL.replace("[", '["native", ') + RING + "[grid]\ngraph.nodes = [5]\n"
    sweep(plan(both), output=tmp_path / "both.csv")
    found = read(tmp_path / "both.csv")
    assert [(row["backend"], row["warm"], row["solved"]) for row in found] == [
        ("native", "False", "True"),
        ("clarabel", "False", "True"),
    ]


def test_rows_that_are_there_are_skipped(tmp_path: Path, solved: list[str]) -> None:
    table = tmp_path / "rows.csv"
    sweep(plan(FOUR.replace("[5, 7]", "[5]")), output=table)
    before = table.read_bytes()
    summary = sweep(plan(), output=table)
    assert (summary.rows, summary.skipped, summary.run) == (4, 2, 2)
    assert table.read_bytes().startswith(before)
    assert solved == [row.key for row in plan().rows]
    # A smaller grid leaves what it does not ask for.
    summary = sweep(plan(FOUR.replace("[5, 7]", "[7]")), output=table)
    assert (summary.rows, summary.skipped, summary.run) == (2, 2, 0)
    assert len(read(table)) == 4


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    sweep(plan(), output=tmp_path / "rows.csv")
    assert len(read(tmp_path / "rows.csv")) == 4


# --- whatever goes wrong with a problem is a row -------------------------------------------------


def test_problems_that_cannot_be_solved_are_rows(tmp_path: Path) -> None:
    """A ring of two nodes is none; one of six has a singular W, and no optimum."""
    grid = '[limits]\nmax_variance = "none"\n[grid]\ngraph.nodes = [2, 6, 5]\n'
    summary = sweep(plan(RING + grid), output=tmp_path / "rows.csv")
    assert (summary.run, summary.unsolved) == (3, 2)
    none, singular, fine = read(tmp_path / "rows.csv")
    assert none["reason"].startswith("graph.nodes: ")
    assert "null direction" in singular["reason"]
    assert [row["status"] for row in (none, singular, fine)] == ["refused", "refused", "optimal"]
    assert (none["name"], none["design"], none["backend"]) == ("ring-5", "space", "native")
    assert (none["solved"], none["feasible"], none["objective"]) == ("False", "False", "")


def test_what_nobody_foresaw_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(judging, "solve", broken)
    sweep(plan(), output=tmp_path / "rows.csv")
    found = read(tmp_path / "rows.csv")
    assert [row["status"] for row in found] == ["failed"] * 4
    assert found[0]["reason"] == "RuntimeError: two lines"
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_failures_are_run_again_when_asked(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solved: list[str]
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    table = tmp_path / f"rows.{ending}"
    with monkeypatch.context() as patch:

        def broken_for_seven(problem: Any, **kwargs: Any) -> Any:
            if len(problem.mixing) == 7:
                raise RuntimeError("not today")
            return patched(problem, **kwargs)

        patched = judging.solve
        patch.setattr(judging, "solve", broken_for_seven)
        assert sweep(plan(), output=table).unsolved == 2
    del solved[:]
    assert sweep(plan(), output=table) == Summary(
        output=table, rows=4, skipped=4, run=0, unsolved=2
    )
    assert sweep(plan(), output=table, retry=True) == Summary(
        output=table, rows=4, skipped=2, run=2, unsolved=0
    )
    assert solved == [row.key for row in plan().rows[2:]]
    with open_results(table, columns=columns_of(plan().keys)) as opened:
        kept = opened.rows
    assert list(kept) == [row.key for row in plan().rows]
    assert {str(row["status"]) for row in kept.values()} == {"optimal"}


def test_a_local_optimum_is_not_run_again(tmp_path: Path, solved: list[str]) -> None:
    text = 'name = "d"\ndesign = "space"\n[graph]\nkind = "path"\n[structure]\nspace = "decor"\n'
    text += "[grid]\ngraph.nodes = [4]\n"
    summary = sweep(plan(text), output=tmp_path / "rows.csv")
    (row,) = read(tmp_path / "rows.csv")
    assert (row["status"], summary.unsolved) == ("local-optimum", 1)
    assert sweep(plan(text), output=tmp_path / "rows.csv", retry=True).run == 0
    assert len(solved) == 1


# --- a table that somebody edited ----------------------------------------------------------------

EDITED = [
    ("objective", "banana", "for objective in row 2"),
    ("objective", "", "finite numbers once solved"),
    ("gap", "nan", "finite numbers once solved"),
    ("lower_bound", "inf", "finite numbers once solved"),
    ("solved", "yes", "True or False"),
    ("feasible", "1", "True or False"),
    ("evaluations", "2.5", "an integer"),
    ("asked_gap", "tight", "a number"),
    ("warm", "banana", "True or False"),
]


@pytest.mark.parametrize(("column", "value", "words"), EDITED)
def test_a_row_that_says_nonsense_is_not_done(
    column: str, value: str, words: str, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    sweep(plan(), output=table)
    rows = read(table)
    rows[1][column] = value
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    edited = table.read_bytes()
    with pytest.raises(InputError) as error:
        sweep(plan(), output=table)
    assert error.value.field == "output"
    assert words.format(table=table) in str(error.value)
    assert table.read_bytes() == edited
    with overwriting():  # begun anew
        assert sweep(plan(), output=table).run == 4


def test_the_same_row_twice_is_not_done(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    sweep(plan(), output=table)
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join([*lines, lines[2]]))
    with pytest.raises(InputError, match=r"every key once, got .* again in row 5"):
        sweep(plan(), output=table)


def test_an_edited_parquet_table_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "rows.parquet"
    sweep(plan(), output=table)
    good = parquet.read_table(table)
    assert sweep(plan(), output=table).run == 0
    at = good.column_names.index("objective")
    parquet.write_table(good.set_column(at, "objective", arrow.array(["banana"] * 4)), table)
    with pytest.raises(InputError, match="output: expected a number"):
        sweep(plan(), output=table)
    names = ["nameé" if name == "name" else name for name in good.column_names]
    parquet.write_table(good.rename_columns(names), table)
    table.write_bytes(table.read_bytes().replace("nameé".encode(), b"name\xff\xd7"))
    with pytest.raises(InputError, match="output: expected a parquet file"):
        sweep(plan(), output=table)
    parquet.write_table(arrow.concat_tables([good, good.slice(0, 1)]), table)
    with pytest.raises(InputError, match="every key once"):
        sweep(plan(), output=table)


# --- a table that is interrupted -----------------------------------------------------------------


def test_a_table_cut_anywhere_keeps_its_whole_rows(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    columns = columns_of(["graph.kind"])
    with open_results(table, columns=columns) as whole:
        for key in ("a", "b"):
            row = {"sweep_format": 6, "key": key, "graph.kind": "ring"}
            row |= {"reason": 'one, "two"\r\nthree'}
            whole.put_all([dict.fromkeys(whole.columns) | row])
    content = table.read_bytes()
    header, first, second = content.splitlines(keepends=True)
    assert header + first + second == content
    for cut in range(len(header), len(content) + 1):
        table.write_bytes(content[:cut])
        expected = ["a"] * (cut >= len(header + first)) + ["b"] * (cut == len(content))
        with open_results(table, columns=columns) as found:
            assert list(found.rows) == expected
        assert table.read_bytes() == b"".join([header, first, second][: len(expected) + 1])


@pytest.mark.slow
def test_killed_in_the_middle_and_run_again(tmp_path: Path) -> None:
    """SIGKILL leaves no time for anything; whole rows stay as they are, and none comes twice."""
    seeds = list(range(150))
    text = RING.replace('"ring"\nnodes = 5', '"erdos-renyi"\nnodes = 12\np = 0.5\nseed = 0')
    problem = write(tmp_path, f"{text}[grid]\ngraph.seed = {seeds}\n", "sweep.toml")
    table = tmp_path / "rows.csv"
    command = [*MODULE, "sweep", str(problem), "-o", str(table)]
    child = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
    while not (table.exists() and table.read_bytes().count(b"\n") > 10):
        assert child.poll() is None, child.communicate()
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    left = table.read_bytes()
    kept = left[: left.rfind(b"\n") + 1]
    assert 11 <= kept.count(b"\n") < 151, "it was over before it was killed"
    outcome = call("sweep", problem, "-o", table, "--json")
    assert outcome.code == 0
    assert outcome.json() == {
        "output": str(table),
        "rows": 150,
        "skipped": kept.count(b"\n") - 1,
        "run": 151 - kept.count(b"\n"),
        "unsolved": 0,
    }
    assert table.read_bytes().startswith(kept)
    assert sorted(int(row["graph.seed"]) for row in read(table)) == seeds


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def press(row: Any, neighbours: Any) -> Any:
        asked.append(row)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return row_of(row, neighbours)

    problem, table = write(tmp_path, FOUR), tmp_path / "rows.csv"
    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "row_of", press)
        outcome = call("sweep", problem, "-o", table, watched=True)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert len(read(table)) == 2
    outcome = call("sweep", problem, "-o", table, "--json")
    assert (outcome.json()["skipped"], outcome.json()["run"]) == (2, 2)


# --- tables that are refused ---------------------------------------------------------------------


def other_version(text: str) -> str:
    header, *lines = text.splitlines()
    return "\n".join([header, *(line.replace("6,", "3,", 1) for line in lines)])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_version, "version 6 in column sweep_format, got"),
        (lambda text: other_version(text).replace("asked_gap", "gap_asked"), "version 6"),
        (
            lambda text: text.replace("budget.tau", "limits.max_variance"),
            "without budget.tau and with limits.max_variance",
        ),
        (lambda text: text.replace("graph.nodes,budget.tau", "budget.tau,graph.nodes"), "order"),
        (lambda _: "name,age\nAda,36\n", "without sweep_format"),
        (lambda _: "notes", "without sweep_format"),
        (lambda text: text + "3,2,3\n", "3 cells in line 6"),
        (lambda text: text + '3,"2\n', "unexpected end of data"),
    ],
    ids=[
        "version",
        "version and columns",
        "columns",
        "order",
        "other table",
        "no table",
        "short",
        "quote",
    ],
)
def test_other_tables_are_refused_and_left_alone(
    spoil: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    problem, table = write(tmp_path, FOUR), tmp_path / "rows.csv"
    sweep(plan(), output=table)
    table.write_text(spoil(table.read_text()))
    before = table.read_bytes()
    outcome = call("sweep", problem, "-o", table)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "rows.txt"], "ends in .csv or .parquet"),
        (["-o", "missing/rows.csv"], "existing folder"),
        (["-o", "folder.csv"], "folder.csv"),
        (["-o", "rows.csv", "--jobs", "0"], "jobs: expected an integer >= 1"),
        (["-o", "rows.csv", "--jobs", "2", "--cluster", "tcp://a:1"], "jobs: expected 1 beside"),
        (["-o", "rows.csv", "--timeout", "0"], "timeout: "),
        ([], "--output"),
    ],
)
def test_wrong_options(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    outcome = call("sweep", write(tmp_path, FOUR), *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_an_unwritable_table_is_found_out_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solved: list[str]
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results_file, "write_text", full)
    outcome = call("sweep", write(tmp_path, FOUR), "-o", tmp_path / "rows.csv")
    assert outcome.code == 2
    assert "output: expected a file that can be written" in outcome.err
    assert "No space left" in outcome.err
    assert solved == []


def test_a_disk_that_fills_up_costs_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) > 2:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    problem, table = write(tmp_path, FOUR), tmp_path / "rows.csv"
    sweep(plan(FOUR.replace("[5, 7]", "[5]")), output=table)
    monkeypatch.setattr(results_file.os, "fsync", full)
    grown = write(tmp_path, FOUR.replace("[5, 7]", "[5, 7, 8]"), "grown.toml")
    assert call("sweep", grown, "-o", table).code == 1
    assert len(synced) == 3  # two rows are durable; the third is what failed
    monkeypatch.undo()
    assert call("sweep", problem, "-o", table, "--json").json()["run"] == 0


# --- parquet -------------------------------------------------------------------------------------


def test_parquet_holds_the_same_with_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    kinds = """[grid]
graph.nodes = [5, 7]
budget.tau = [1.0, [1.0, 1.0, 2.0, 2.0, 1.0]]
"""
    grid = plan(RING + kinds)
    sweep(grid, output=tmp_path / "rows.parquet")
    sweep(grid, output=tmp_path / "rows.csv")
    found = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    text = read(tmp_path / "rows.csv")
    assert [row["key"] for row in found] == [row["key"] for row in text]
    assert [row["graph.nodes"] for row in found] == [5, 5, 7, 7]
    assert [row["budget.tau"] for row in found] == ["1.0", "[1.0, 1.0, 2.0, 2.0, 1.0]"] * 2
    assert [row["solved"] for row in found] == [True, True, True, False]  # five budgets of seven
    for row, same in zip(found, text, strict=True):
        assert {
            name: "" if row[name] is None else str(row[name])
            for name in ("objective", "status", "reason", "budget.tau", "evaluations")
        }.items() <= same.items()
    assert sweep(grid, output=tmp_path / "rows.parquet").run == 0
    grown = plan(RING + kinds.replace("[5, 7]", "[5, 7, 8]"))
    assert sweep(grown, output=tmp_path / "rows.parquet").run == 2
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 6


def test_other_parquet_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table({"sweep_format": [2], "key": ["a"]}), table)
    with pytest.raises(InputError, match="version 6 in column sweep_format, got .*version 2"):
        sweep(plan(), output=table)
    parquet.write_table(arrow.table({"sweep_format": [6], "key": ["a"]}), table)
    with pytest.raises(InputError, match=r"without graph\.nodes, budget\.tau"):
        sweep(plan(), output=table)
    table.write_text("no parquet")
    with pytest.raises(InputError, match="expected a parquet file"):
        sweep(plan(), output=table)


def test_without_pyarrow_there_is_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"noisedesign\[parquet\]"):
        sweep(plan(), output=tmp_path / "rows.parquet")
    sweep(plan(), output=tmp_path / "rows.csv")


# --- the command ---------------------------------------------------------------------------------


def test_command_says_what_is_not_solved(tmp_path: Path) -> None:
    refusing = '[limits]\nmax_variance = "none"\n[grid]\ngraph.nodes = [5, 6]\n'
    problem = write(tmp_path, RING + refusing)
    outcome = call("sweep", problem, "-o", tmp_path / "rows.csv", watched=True)
    assert outcome.code == 0
    assert "2/2" in outcome.err
    assert "1 rows are not solved" in outcome.err
    assert json.loads(call("sweep", problem, "-o", tmp_path / "rows.csv", "--json").out) == {
        "output": str(tmp_path / "rows.csv"),
        "rows": 2,
        "skipped": 2,
        "run": 0,
        "unsolved": 1,
    }


# --- curvature that is misjudged ------------------------------------------------------------------


def test_what_wrong_curvatures_cost(tmp_path: Path) -> None:
    """A design for one curvature, judged by hand under H of another, over the optimum of that."""
    rates, horizon = (0.4, 0.9), 4
    text = (
        'gap = 1e-8\nname = "loss"\ndesign = "time"\n[graph]\nkind = "path"\nnodes = 3\n'
        "[workload]\n"
        'kind = "decentralized"\n[participation]\nkind = "single"\nhorizon = 4\n'
        '[error]\nof = "loss"\ncurvature = [0.1, 0.5]\n[grid]\n"error.learning_rate" = [0.4, 0.9]\n'
    )
    table = tmp_path / "rows.csv"
    summary = sweep(parse_sweep(text, folder=tmp_path), output=table)
    w = oracles.metropolis(nx.path_graph(3))

    def gram(scale: float, rate: float) -> np.ndarray:
        found = np.zeros((horizon, horizon))
        for curvature in (0.1 * scale, 0.5 * scale):
            last = [
                rate
                * (1 - rate * curvature) ** (horizon - 1 - s)
                * np.linalg.matrix_power(w, horizon - s)
                for s in range(horizon)
            ]
            found += curvature / 6 * np.einsum("sij,tij->st", last, last)
        return found

    for row, rate in zip(read(table), rates, strict=True):
        noise = solve(
            TimeProblem.from_gram(gram=gram(1.0, rate), participation=single(horizon)), gap=1e-9
        ).design
        assert noise is not None
        inverse = np.linalg.inv(noise.strategy)
        for name, scale in (("if_4_times_flatter", 0.25), ("if_4_times_steeper", 4.0)):
            h = gram(scale, rate)
            best = solve(
                TimeProblem.from_gram(gram=h, participation=single(horizon)), gap=1e-9
            ).design
            assert best is not None
            expected = np.einsum("st,si,ti", h, inverse, inverse) / best.objective
            assert float(row[name]) == pytest.approx(expected, rel=2e-2)
    # A step of .9 down curvatures of 2 does not diverge, one of 2.5 would: nothing is said.
    assert [remark[:26] for remark in summary.remarks] == [
        "If the loss is 4 times fla",
        "If the loss is 4 times ste",
    ]
    (row, *_) = read(table)
    assert float(row["if_4_times_steeper"]) > 1


def test_errors_without_curvature_are_not_misjudged(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    assert sweep(plan(), output=table).remarks == ()
    assert {row[name] for row in read(table) for name in sweeping.MISJUDGED} == {""}
