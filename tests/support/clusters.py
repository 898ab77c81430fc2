"""Dask clusters for tests: one of threads of this process, and one of processes to be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment

DASK = (sys.executable, "-m", "dask")
SECONDS = 60.0  # for what takes a few on a machine with nothing else to do


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real scheduler with two workers, all threads of this process."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="tcp://",
        local_directory=str(tmp_path_factory.mktemp("workers")),
    ) as local:
        yield local.scheduler_address


def in_main_thread(here: Callable[..., Any], there: Any) -> Callable[..., Any]:
    """A function that answers otherwise in the threads of workers."""

    def answer(*given: Any, **how: Any) -> Any:
        return (
            here(*given, **how) if threading.current_thread() is threading.main_thread() else there
        )

    return answer


class Processes:
    """`dask scheduler` and `dask worker` as people start them, and as they end."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.variables = {"OPENBLAS_NUM_THREADS": "1", **variables}
        self.running: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start("scheduler", "--port", "0")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.running)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*DASK, *command, "--no-dashboard", "--scheduler-file", str(self.file)],
                env=environment(**self.variables),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        local = ("--local-directory", str(self.folder))
        return self.start("worker", "--nthreads", "1", *local, *options)

    @property
    def address(self) -> str:
        """That of the scheduler, as soon as it has one."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                return str(json.loads(self.file.read_text())["address"])
            time.sleep(0.05)
        raise AssertionError("the scheduler does not start")

    def client(self) -> Any:
        import distributed

        return distributed.Client(self.address, timeout=SECONDS, set_as_default=False)

    def kill_one(self) -> None:
        """Kill a worker that is at work; its nanny begins another."""
        with self.client() as client:
            pids = client.run(os.getpid)
            assert os.getpid() not in pids.values()
            busy = [worker for worker, keys in client.processing().items() if keys]
            os.kill(pids[busy[0]], signal.SIGKILL)

    def end(self) -> None:
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def processes(
    folder: Path, *, workers: int = 2, options: tuple[str, ...] = (), **variables: str
) -> Iterator[Processes]:
    """A scheduler and workers as processes, which have begun."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    folder.mkdir(exist_ok=True)
    cluster = Processes(folder, **variables)
    try:
        for _ in range(workers):
            cluster.worker(*options)
        with cluster.client() as client:
            client.wait_for_workers(workers, timeout=SECONDS)
        yield cluster
    finally:
        cluster.end()


def deadly_rows(unit: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a unit of an experiment; one that is deadly ends the process, every time."""
    if unit["deadly"]:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    return [{"mechanism": "rule", "epsilon": unit["loss"], "test_loss": unit["loss"] / 3}]
