"""Rows in several processes of this machine, each with one BLAS thread.

joblib moves plain values between processes of one run; nothing of it reaches a file.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from noisedesign.base.lifeline import end_after
from noisedesign.files.sweep_file import SweepRow
from noisedesign.tasks.report import Record
from noisedesign.tasks.sweep.rows import row_on_one_thread


def in_processes(rows: Sequence[SweepRow], *, jobs: int) -> Iterator[Record]:
    """The rows as they are finished, ``jobs`` at a time.

    A worker that is killed takes the rows in work with it; they are begun again.

    Raises:
        OSError: workers are killed, and no row was finished since the last time.
    """
    left = {row.key: row for row in rows}
    while left:
        before = len(left)
        try:
            for record in _finished(list(left.values()), jobs):
                del left[record["key"]]
                yield record
        except BrokenExecutor as error:
            if len(left) == before:
                raise OSError(
                    f"worker processes are killed, perhaps for want of memory, before any of "
                    f"{before} rows is finished; try fewer jobs"
                ) from error


def _finished(rows: Sequence[SweepRow], jobs: int) -> Iterator[Record]:
    workers = {"inner_max_num_threads": 1, "initializer": _begin, "initargs": (_lifeline()[0],)}
    with warnings.catch_warnings(), parallel_config("loky", **workers):
        # Whoever stops early knows that rows in work are cancelled.
        warnings.filterwarnings("ignore", ".*tasks which were still being processed.*")
        run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        with ExitStack() as stack:
            with _deaf_children():
                found = run(delayed(row_on_one_thread)(row) for row in rows)
                stack.callback(found.close)
            yield from found


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes and threads that begin within it never hear Ctrl-C, this one hears it afterwards.

    It reaches every process of a terminal, and a worker that is loading would print where it was;
    the process that keeps the table ends the others.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # which, where it begins one, lets Ctrl-C in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _lifeline() -> tuple[Connection, Connection]:
    """What workers wait at, and what this process holds open while it lives."""
    return Pipe(duplex=False)


def _begin(lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_after(partial(lifeline.poll, None))
