"""Many rows at a time, here and on a Dask cluster: the same rows, whoever is killed meanwhile."""

from __future__ import annotations

import contextlib
import csv
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from noisedesign.base import cluster
from noisedesign.base.checks import InputError
from noisedesign.design.warm_start import Neighbours
from noisedesign.surveys import sweep as sweeping
from noisedesign.surveys.rows import COLUMNS
from noisedesign.surveys.sweep import sweep
from noisedesign.surveys.sweep_file import Sweep, parse_sweep
from tests.support.clusters import in_main_thread, threads as threads
from tests.support.command_line import MODULE, RING, call, environment, write

TIMES = {"build_seconds", "solve_seconds", "seconds"}
ANSWERS = [column for column in COLUMNS if column not in TIMES]


def plan(count: int, nodes: int = 12, folder: Path = Path()) -> Sweep:
    """Random graphs; lazy weights are never singular, so that every row is solved."""
    text = f'name = "random"\ndesign = "space"\n[graph]\nkind = "erdos-renyi"\nnodes = {nodes}\n'
    text += 'p = 0.4\nseed = 0\nweights = "lazy-metropolis-hastings"\n'
    return parse_sweep(f"{text}[grid]\ngraph.seed = {list(range(count))}\n", folder=folder)


def read(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    by_key = {row["key"]: row for row in found}
    assert len(by_key) == len(found), "a row twice"
    return by_key


def same_answers(found: Path, grid: Sweep, folder: Path) -> None:
    """Every row, and every answer, is that of one process."""
    sweep(grid, output=folder / "alone.csv")
    alone, together = read(folder / "alone.csv"), read(found)
    assert set(alone) == set(together)
    for key, row in alone.items():
        for column in ANSWERS:
            if column in ("objective", "lower_bound") and row["solved"] == "True":
                assert float(row[column]) == pytest.approx(float(together[key][column]), rel=2e-6)
            elif column not in ("gap", "evaluations"):  # they depend on threads and on the start
                assert row[column] == together[key][column]


# --- processes of this machine -------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_find_the_same_and_survive_a_kill(tmp_path: Path) -> None:
    grid, table = plan(20), tmp_path / "rows.csv"
    me = psutil.Process()
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if done == 3 and not killed:
            mine = [child for child in me.children() if "LokyProcess" in " ".join(child.cmdline())]
            assert len(mine) == 2
            killed.append(mine[0].pid)
            mine[0].send_signal(signal.SIGKILL)

    summary = sweep(grid, output=table, jobs=2, progress=kill_one)
    assert (summary.run, summary.unsolved, len(killed)) == (20, 0, 1)
    same_answers(table, grid, tmp_path)


def test_a_worker_starts_from_what_it_solved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_worker", Neighbours())
    text = RING + "[grid]\nbudget.tau = [1.0, 2.0, 3.0]\n"
    found = [sweeping.row_of(row) for row in parse_sweep(text, folder=".").rows]
    assert [row["warm"] for row in found] == [False, True, True]


def test_processes_are_asked_for_by_the_command(tmp_path: Path) -> None:
    problem = write(tmp_path, RING + "[grid]\ngraph.nodes = [5, 7, 8]\n")
    outcome = call("sweep", problem, "-o", tmp_path / "rows.csv", "--jobs", 2, "--json")
    assert outcome.json()["run"] == 3
    assert len(read(tmp_path / "rows.csv")) == 3


def test_there_are_no_more_processes_than_rows(tmp_path: Path) -> None:
    problem = write(tmp_path, RING + "[grid]\ngraph.nodes = [5, 7]\n")
    outcome = call("sweep", problem, "-o", tmp_path / "rows.csv", "--jobs", 10**8, "--json")
    assert (outcome.code, outcome.json()["run"]) == (0, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C is no signal to one process")
@pytest.mark.slow
def test_workers_never_hear_ctrl_c(tmp_path: Path) -> None:
    """From their first moment to their last: the process that keeps the table ends them."""
    problem = write(tmp_path, RING + "[grid]\ngraph.nodes = [5, 7, 8, 10]\n")
    with subprocess.Popen(
        [*MODULE, "sweep", str(problem), "-o", str(tmp_path / "rows.csv"), "--jobs", "2"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as grid:
        pressed = set()
        while grid.poll() is None:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(grid.pid).children():
                    if "LokyProcess" in " ".join(child.cmdline()):
                        child.send_signal(signal.SIGINT)
                        pressed.add(child.pid)
            time.sleep(0.01)
        _, err = grid.communicate()
    assert len(pressed) == 2
    assert (grid.returncode, err) == (0, "")
    assert len(read(tmp_path / "rows.csv")) == 4


# --- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_finds_the_same(threads: str, tmp_path: Path) -> None:
    text = RING + '[limits]\nmax_variance = "none"\n[grid]\ngraph.nodes = [5, 6, 7, 8]\n'
    problem, table = write(tmp_path, text), tmp_path / "rows.csv"
    options = ("--cluster", threads, "--json")
    summary = call("sweep", problem, "-o", table, *options).json()
    assert (summary["run"], summary["unsolved"]) == (4, 1)  # a ring of six has no optimum
    same_answers(table, parse_sweep(text, folder="."), tmp_path)
    summary = call("sweep", problem, "-o", table, "--retry", *options).json()
    assert (summary["run"], summary["skipped"]) == (1, 3)


def test_ctrl_c_leaves_the_cluster_with_nothing_to_do(threads: str, tmp_path: Path) -> None:
    def press(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    grid, table = plan(30, nodes=30), tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, output=table, cluster=threads, progress=press)
    assert len(read(table)) == 2
    summary = sweep(grid, output=table, cluster=threads)
    assert (summary.skipped, summary.run) == (2, 28)
    assert set(read(table)) == {row.key for row in grid.rows}


def test_files_of_a_problem_have_to_be_on_the_workers(
    threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is refused for want of a file would stay so; paths are those of this process."""
    (tmp_path / "edges.txt").write_text("a b\nb c\n")
    text = 'name = "mine"\ndesign = "space"\n[graph]\nkind = "edges"\nfile = "edges.txt"\n'
    text += 'weights = "lazy-metropolis-hastings"\n'
    plan = write(tmp_path, text + "[grid]\nbudget.tau = [1.0, 2.0]\n")
    monkeypatch.chdir(tmp_path)
    options = ("-o", "rows.csv", "--cluster", threads, "--json")
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "_digest", in_main_thread(cluster._digest, None))
        outcome = call("sweep", plan.name, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{tmp_path / 'edges.txt'} to be as it is where the command runs" in outcome.err
    assert "no such file, at worker tcp://" in outcome.err
    assert call("sweep", plan.name, *options).json()["unsolved"] == 0


def test_a_row_that_ends_every_worker_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = plan(2)
    first, second = grid.rows

    def in_workers(work: Any, items: Any, *, lost: Any, **_: Any) -> Iterator[tuple[str, Any]]:
        yield second.key, work(items[second.key])
        yield first.key, lost(first.key)

    monkeypatch.setattr(cluster, "in_workers", in_workers)
    summary = sweep(grid, output=tmp_path / "rows.csv", cluster="tcp://127.0.0.1:1")
    assert (summary.run, summary.unsolved) == (2, 1)
    found = read(tmp_path / "rows.csv")
    assert [found[row.key]["status"] for row in grid.rows] == ["failed", "optimal"]
    assert "ended every worker" in found[first.key]["reason"]


# --- no cluster ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:{closed}",
        "tcp://127.0.0.1:{silent}",
        "tls://127.0.0.1:{silent}",
        "nonsense",
        "tcp://127.0.0.1",
        "ftp://127.0.0.1:1",
    ],
)
def test_a_cluster_that_does_not_answer(address: str, tmp_path: Path) -> None:
    """Nobody listens there; or somebody does, and never says a word; or it is no address."""
    pytest.importorskip("distributed")
    server = socket.create_server
    with server(("127.0.0.1", 0)) as silent, server(("127.0.0.1", 0)) as gone:
        ports = {"silent": silent.getsockname()[1], "closed": gone.getsockname()[1]}
        gone.close()
        outcome = call(
            "sweep",
            write(tmp_path, RING + "[grid]\ngraph.nodes = [5]\n"),
            "-o",
            tmp_path / "rows.csv",
            "--cluster",
            address.format(**ports),
            "--timeout",
            0.5,
        )
    assert (outcome.code, outcome.out) == (2, "")
    assert "cluster: expected a scheduler that answers within 0.5 s" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_cluster_without_workers(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    table = tmp_path / "rows.csv"
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None, protocol="tcp://"
        ) as local,
        pytest.raises(InputError, match="a scheduler with workers that answers"),
    ):
        sweep(plan(1), output=table, cluster=local.scheduler_address, timeout=0.5)
