"""Small matrices on one thread: a second one waits for the first longer than it helps."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _pools() -> ThreadpoolController:
    """The BLAS libraries loaded with NumPy and SciPy, looked up once: that takes milliseconds."""
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Within it BLAS runs on one thread; for matrices of some hundred rows or fewer."""
    limited: AbstractContextManager[object] = _pools().limit(limits=1, user_api="blas")
    return limited
