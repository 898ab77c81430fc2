"""Work on blocks in threads, for libraries that release the interpreter, as scipy.sparse does.

No result depends on the number of threads: the caller makes the blocks, and order is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from noisedesign.base.machine import cores, one_thread

NAME = "noisedesign-block"  # name of these threads
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Results in the order of the items, BLAS on one thread; nested calls run in line."""
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
