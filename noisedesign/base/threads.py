"""Work on blocks in threads of this process, of libraries that let other threads run meanwhile.

Products of scipy's sparse arrays do. Nobody's result depends on how many threads there are: blocks
are what the caller makes them, random numbers are theirs, and results keep their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from noisedesign.base.machine import cores, one_thread

NAME = "noisedesign-block"
"""Of these threads."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Results in the order of the items, which are asked for as threads are free. BLAS runs on one
    thread meanwhile.

    Whoever leaves early, by Ctrl-C or an exception, waits for what is at work and for nothing else.
    Work that divides its own work does that itself.
    """
    threads = min(cores(), len(items))
    if threads <= 1 or threading.current_thread().name.startswith(NAME):
        yield from map(work, items)
        return
    left = iter(items)
    with one_thread(), ThreadPoolExecutor(threads, thread_name_prefix=NAME) as pool:
        at_work = [pool.submit(work, item) for item in islice(left, threads)]
        while at_work:
            result = at_work.pop(0).result()
            at_work += [pool.submit(work, item) for item in islice(left, 1)]
            yield result
