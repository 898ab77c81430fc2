"""A process that ends with the one that started it, however that one ends.

The parent holds one end of a pipe open and nobody else does, so that the system closes it with the
parent; the child waits at the other end. That holds on every system, and also where the parent is
gone before the child has come so far.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_ABANDONED = 1
"""Exit status that nobody is left to read."""


def end_after(wait: Callable[[], object]) -> None:
    """End this process as soon as ``wait`` is over, which reads from a pipe that nobody writes to.

    A thread waits: it runs whenever compiled code lets Python run.
    """
    threading.Thread(target=_end, args=(wait,), daemon=True).start()


def _end(wait: Callable[[], object]) -> None:
    try:
        wait()
    finally:  # a pipe that is broken has ended, too
        os._exit(_ABANDONED)
