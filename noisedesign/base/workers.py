"""Work in several threads or processes, and processes that end with the one that began them."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import islice
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection
from typing import TypeVar

from noisedesign.base import together
from noisedesign.base.extras import need
from noisedesign.base.machine import cores, one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")

NAME = "noisedesign-block"  # name of our threads


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Results in the order of items whose work releases the interpreter, as scipy.sparse does."""
    # BLAS has one thread, nested calls run in line: results depend on no number of threads.
    threads = min(cores(), len(items))
    inside = threading.current_thread().name.startswith(NAME) or not together.alone()
    if threads <= 1 or inside:
        yield from map(work, items)
        return
    left = iter(items)
    with one_thread(), ThreadPoolExecutor(threads, thread_name_prefix=NAME) as pool:
        at_work = [pool.submit(work, item) for item in islice(left, threads)]
        while at_work:
            result = at_work.pop(0).result()
            at_work += [pool.submit(work, item) for item in islice(left, 1)]
            yield result


def end_after(wait: Callable[[], object]) -> None:
    """End this process as soon as ``wait``, which reads a silent pipe, is over."""
    # The parent alone holds the other end open, which the system closes with it, however it ends.

    def end() -> None:
        try:
            wait()
        finally:  # a pipe that is broken has ended, too
            os._exit(1)  # a status that nobody is left to read

    threading.Thread(target=end, daemon=True).start()


def in_processes(
    work: Callable[[Item], Result], items: Mapping[str, Item], *, jobs: int
) -> Iterator[tuple[str, Result]]:
    """Keys and results as ``jobs`` processes finish them; OSError where all of them are killed."""
    need("joblib", field="jobs")
    left = dict(items)
    while left:
        before = len(left)
        try:
            for key, result in _in_work(work, left.copy(), jobs):
                del left[key]
                yield key, result
        except BrokenExecutor as error:
            if len(left) == before:
                raise OSError(
                    f"worker processes are killed, perhaps for want of memory, before any of "
                    f"{before} rows is finished; try fewer jobs"
                ) from error


def _in_work(
    work: Callable[[Item], Result], items: Mapping[str, Item], jobs: int
) -> Iterator[tuple[str, Result]]:
    from joblib import Parallel, delayed, parallel_config

    workers = {"inner_max_num_threads": 1, "initializer": _begin, "initargs": (_lifeline()[0],)}
    with warnings.catch_warnings(), parallel_config("loky", **workers), ExitStack() as stack:
        # Whoever stops early knows that items in work are cancelled.
        warnings.filterwarnings("ignore", ".*tasks which were still being processed.*")
        run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        with _deaf_children():
            found = run(delayed(_named)(work, key, item) for key, item in items.items())
            stack.callback(found.close)
        yield from found


def _named(work: Callable[[Item], Result], key: str, item: Item) -> tuple[str, Result]:
    with one_thread():
        return key, work(item)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes and threads that begin within this never hear Ctrl-C, which the parent handles."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # which, where it begins one, lets Ctrl-C in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _lifeline() -> tuple[Connection, Connection]:
    """Two ends of a pipe: workers wait at one, this process holds the other open."""
    return Pipe(duplex=False)


def _begin(lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_after(partial(lifeline.poll, None))
