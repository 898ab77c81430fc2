"""A process that ends with the one that started it, however that one ends.

The parent alone holds one end of a pipe open, which the system closes with it; the child waits at
the other end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def end_after(wait: Callable[[], object]) -> None:
    """End this process as soon as ``wait``, which reads a silent pipe, is over."""
    threading.Thread(target=_end, args=(wait,), daemon=True).start()


def _end(wait: Callable[[], object]) -> None:
    try:
        wait()
    finally:  # a pipe that is broken has ended, too
        os._exit(1)  # a status that nobody is left to read
