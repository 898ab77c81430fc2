"""Many rows at a time, here and on a Dask cluster: the same rows, whoever is killed meanwhile."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import threadpoolctl

from noisedesign.base.checks import InputError
from noisedesign.design.warm_start import Neighbours
from noisedesign.surveys import sweep as sweeping
from noisedesign.surveys.rows import COLUMNS
from noisedesign.surveys.sweep import row_of, sweep
from noisedesign.surveys.sweep_file import Sweep, SweepRow, parse_sweep
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


def test_a_worker_has_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(*_: Any) -> Any:
        pools = threadpoolctl.threadpool_info()
        return [pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]

    monkeypatch.setattr(sweeping, "row_of", threads)
    (row,) = plan(1).rows
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert 2 in threads(row)
        assert set(sweeping.row_on_one_thread(row)) == {1}


def test_a_worker_starts_from_what_it_solved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_worker", Neighbours())
    text = RING + "[grid]\nbudget.tau = [1.0, 2.0, 3.0]\n"
    found = [sweeping.row_on_one_thread(row) for row in parse_sweep(text, folder=".").rows]
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


@pytest.fixture
def distributed() -> Any:
    return pytest.importorskip("distributed", reason="distributed is not installed")


@pytest.fixture
def threads(distributed: Any, tmp_path: Path) -> Iterator[Any]:
    """A cluster of threads of this process: a real scheduler and real messages."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="tcp://",
        local_directory=str(tmp_path),
    ) as local:
        yield local


def test_a_cluster_finds_the_same(threads: Any, tmp_path: Path) -> None:
    text = RING + '[limits]\nmax_variance = "none"\n[grid]\ngraph.nodes = [5, 6, 7, 8]\n'
    problem, table = write(tmp_path, text), tmp_path / "rows.csv"
    options = ("--cluster", threads.scheduler_address, "--json")
    summary = call("sweep", problem, "-o", table, *options).json()
    assert (summary["run"], summary["unsolved"]) == (4, 1)  # a ring of six has no optimum
    same_answers(table, parse_sweep(text, folder="."), tmp_path)
    summary = call("sweep", problem, "-o", table, "--retry", *options).json()
    assert (summary["run"], summary["skipped"]) == (1, 3)


def test_ctrl_c_leaves_the_cluster_with_nothing_to_do(threads: Any, tmp_path: Path) -> None:
    def press(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    grid, table = plan(30, nodes=30), tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, output=table, cluster=threads.scheduler_address, progress=press)
    assert len(read(table)) == 2
    summary = sweep(grid, output=table, cluster=threads.scheduler_address)
    assert (summary.skipped, summary.run) == (2, 28)
    assert set(read(table)) == {row.key for row in grid.rows}


@pytest.mark.slow
def test_a_worker_of_the_cluster_is_killed(distributed: Any, tmp_path: Path) -> None:
    grid, table = plan(60, nodes=40), tmp_path / "rows.csv"
    killed: list[bytes] = []
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)

        def kill_one(done: int, total: int) -> None:
            if done == 10:
                pids = client.run(os.getpid)
                assert len({os.getpid(), *pids.values()}) == 3
                busy = [worker for worker, keys in client.processing().items() if keys]
                os.kill(pids[busy[0]], signal.SIGKILL)
                killed.append(table.read_bytes())

        summary = sweep(grid, output=table, cluster=local.scheduler_address, progress=kill_one)
    assert (summary.run, summary.unsolved, len(killed)) == (60, 0, 1)
    assert table.read_bytes().startswith(killed[0])
    assert killed[0].count(b"\n") == 11
    same_answers(table, grid, tmp_path)


@pytest.mark.slow
def test_a_row_that_kills_every_worker_is_a_row(
    distributed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler gives up on it after one worker, and on those that waited there; the others are
    finished."""
    dask = pytest.importorskip("dask")
    grid = plan(3, folder=tmp_path)
    monkeypatch.setattr(sweeping, "row_on_one_thread", _deadly)
    over = threading.Event()
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        client.upload_file(__file__)
        killing = thread.submit(_kill_who_asks, local, tmp_path, over)
        try:
            summary = sweep(grid, output=tmp_path / "rows.csv", cluster=local.scheduler_address)
        finally:
            over.set()
        killing.result()
    found = read(tmp_path / "rows.csv")
    assert (summary.run, summary.unsolved) == (3, 1)
    assert [found[row.key]["status"] for row in grid.rows] == ["optimal", "failed", "optimal"]
    assert "ended every worker" in found[grid.rows[1].key]["reason"]


class _Future:
    """What the sweep asks of a future; ``error`` is that of its row."""

    def __init__(self, row: SweepRow, key: str, error: Exception | None) -> None:
        self.row, self.key, self._error = row, key, error
        self.status = "finished" if error is None else "error"

    def cancelled(self) -> bool:
        return False

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> Any:
        return row_of(self.row, Neighbours())

    def release(self) -> None:
        pass


def test_a_row_is_blamed_for_what_it_does_alone(
    distributed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler gives up on all rows of the workers that are lost: here 1 ends them, 2 waits."""
    grid, asked = plan(4), list[list[int]]()

    class Client:
        loop = None

        def map(self, _: Any, rows: list[SweepRow], key: list[str]) -> list[_Future]:
            asked.append([row.parameters["graph.seed"] for row in rows])
            lost = {1, 2} if len(rows) > 1 else {1}
            given_up = distributed.KilledWorker("a task", None, 3)
            return [
                _Future(row, name, given_up if row.parameters["graph.seed"] in lost else None)
                for row, name in zip(rows, key, strict=True)
            ]

        def cancel(self, _: Any) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(sweeping, "_client", lambda *_: Client())
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: iter(futures))
    summary = sweep(grid, output=tmp_path / "rows.csv", cluster="tcp://127.0.0.1:1")
    assert asked == [[0, 1, 2, 3], [1], [2]]
    assert (summary.run, summary.unsolved) == (4, 1)
    found = read(tmp_path / "rows.csv")
    statuses = [found[row.key]["status"] for row in grid.rows]
    assert statuses == ["optimal", "failed", "optimal", "optimal"]


def _deadly(row: Any) -> Any:
    """A row that says of which process it is the end."""
    if row.parameters["graph.seed"] == 1:
        Path(row.folder, f"{os.getpid()}.deadly").touch()
        time.sleep(600)
    return row_of(row, Neighbours())


def _kill_who_asks(local: Any, folder: Path, over: threading.Event) -> None:
    """A nanny begins no other worker for one that is lost before she knows that it has begun."""
    while not over.wait(0.02):
        (nanny,) = local.workers.values()
        if nanny.status.name == "running" and (folder / f"{nanny.pid}.deadly").exists():
            (folder / f"{nanny.pid}.deadly").unlink()
            os.kill(nanny.pid, signal.SIGKILL)


# --- no cluster ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:{closed}",
        "tcp://127.0.0.1:{silent}",
        "nonsense",
        "tcp://127.0.0.1",
        "ftp://127.0.0.1:1",
    ],
)
def test_a_cluster_that_does_not_answer(address: str, distributed: Any, tmp_path: Path) -> None:
    """Nobody listens there; or somebody does, and never says a word; or it is no address."""
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


def test_a_cluster_without_workers(distributed: Any, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None, protocol="tcp://"
        ) as local,
        pytest.raises(InputError, match="a scheduler with workers that answers"),
    ):
        sweep(plan(1), output=table, cluster=local.scheduler_address, timeout=0.5)


def test_without_distributed_there_are_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"noisedesign\[dask\]"):
        sweep(plan(1), output=tmp_path / "rows.csv", cluster="tcp://127.0.0.1:1")
