"""Rows in several processes of this machine, each with one BLAS thread.

joblib moves plain values between processes of one run; nothing of it reaches a file.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from functools import cache

from joblib import Parallel, delayed, parallel_config

from noisedesign.io.sweep_file import SweepRow
from noisedesign.report import Record
from noisedesign.sweep.rows import row_on_one_thread

POLL_SECONDS = 1.0
"""How long a worker may outlive the process that keeps the table."""


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
    with warnings.catch_warnings(), parallel_config("loky", inner_max_num_threads=1):
        # Whoever stops early knows that rows in work are cancelled.
        warnings.filterwarnings("ignore", ".*tasks which were still being processed.*")
        run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from run(delayed(_row)(row) for row in rows)


def _row(row: SweepRow) -> Record:
    # Ctrl-C reaches every process of a terminal; the one that keeps the table ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    return row_on_one_thread(row)


@cache
def _end_with_parent() -> None:
    """End this worker soon after its parent, which may be killed and leave rows in the queue.

    A process without a parent is given another one (not on Windows).
    """
    threading.Thread(target=_wait_for_another, args=(os.getppid(),), daemon=True).start()


def _wait_for_another(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
