"""Interchangeable solvers of the one program. Nothing heavy is imported until one is used."""

from __future__ import annotations

from noisedesign.base.checks import one_of
from noisedesign.conic.solvers import CONIC_BACKENDS
from noisedesign.families.disjoint.native import NativeBackend
from noisedesign.program.backend import Answer, Availability, Backend, Bounds, Monitor, Stop

__all__ = [
    "Answer",
    "Availability",
    "Backend",
    "Bounds",
    "Monitor",
    "Stop",
    "all_backends",
    "get_backend",
]

_ALL: tuple[Backend, ...] = (NativeBackend(), *CONIC_BACKENDS)
_BACKENDS = {backend.name: backend for backend in _ALL}


def all_backends() -> tuple[Backend, ...]:
    """Every backend the toolkit knows, installed or not."""
    return tuple(_BACKENDS.values())


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        InputError: no such backend.
    """
    return _BACKENDS[one_of(name, field="backend", allowed=tuple(_BACKENDS))]
