"""The memory that a piece of work takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(job: Callable[[], object]) -> int:
    """Most bytes that Python and NumPy held at once while it ran."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
