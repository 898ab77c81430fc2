"""Which family represents the feasible set of a problem: one line for each kind of noise.

A problem names its set by its axes and a kind, see ``Problem.feasible_set``; the family's module is
imported when it is asked for (:func:`noisedesign.program.family.family_of`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A family: the module with its ``FAMILY``.

    ``needs`` is the key of [structure] that the kind needs; ``named`` whether [structure] names the
    kind at all, or other words of a problem imply it. Families that are ``sparse`` take W as a
    sparse array of scipy, and make no n x n array.
    """

    module: str
    needs: str | None = None
    named: bool = True
    sparse: bool = False


_FAMILIES = "noisedesign.families"

REGISTRY: dict[tuple[str, str], Entry] = {
    ("space", "dense"): Entry(f"{_FAMILIES}.disjoint.family"),
    ("space", "edge-local"): Entry(f"{_FAMILIES}.shared_seeds.family"),
    ("space", "hops"): Entry(f"{_FAMILIES}.shared_seeds.family", needs="hops"),
    ("space", "neighbourhood"): Entry(f"{_FAMILIES}.shared_seeds.family"),
    ("space", "clusters"): Entry(f"{_FAMILIES}.shared_seeds.family", needs="clusters"),
    ("space", "decor"): Entry(f"{_FAMILIES}.decor.family"),
    ("space", "independent"): Entry(f"{_FAMILIES}.shared_seeds.family"),
    ("space", "polynomial"): Entry(f"{_FAMILIES}.polynomial.family", sparse=True),
    ("space", "pairwise"): Entry(f"{_FAMILIES}.pairwise.family", sparse=True),
    ("space", "observers"): Entry(f"{_FAMILIES}.observers.family", named=False),
    ("time", "dense"): Entry(f"{_FAMILIES}.disjoint.family"),
    ("time", "overlapping"): Entry(f"{_FAMILIES}.overlapping.family", named=False),
    ("time", "nonnegative"): Entry(f"{_FAMILIES}.amplified.family", named=False),
    ("time", "banded"): Entry(f"{_FAMILIES}.banded.family", needs="bands"),
    ("time", "toeplitz"): Entry(f"{_FAMILIES}.toeplitz.family"),
    ("time", "banded-inverse"): Entry(f"{_FAMILIES}.toeplitz.family", needs="bands"),
    ("time", "blt"): Entry(f"{_FAMILIES}.toeplitz.family", needs="buffers"),
    ("space-time", "kronecker"): Entry(f"{_FAMILIES}.kronecker.family"),
    ("space-time", "modal"): Entry(f"{_FAMILIES}.modal.family"),
    ("space-time", "full"): Entry(f"{_FAMILIES}.full.family"),
}
"""(axes, kind) -> family."""


def kinds(axes: str) -> tuple[str, ...]:
    """The kinds of noise along ``axes``, as [structure] names them."""
    return tuple(kind for (known, kind), entry in REGISTRY.items() if known == axes and entry.named)


SPARSE_FORMS = {"dense": "polynomial", "edge-local": "pairwise"}
"""Kinds of noise in space, and which one stands for them on graphs that are too large for any
n x n array."""


def sparse_kinds() -> tuple[str, ...]:
    """The kinds of noise in space that take W as a sparse array."""
    return tuple(kind for (_, kind), entry in REGISTRY.items() if entry.sparse and entry.named)


def needs(axes: str) -> dict[str, str]:
    """Kind -> the key of [structure] it needs, of the kinds along ``axes`` that need one."""
    return {
        kind: entry.needs
        for (known, kind), entry in REGISTRY.items()
        if known == axes and entry.needs is not None
    }
