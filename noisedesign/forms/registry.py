"""The table of families: which one represents the feasible set of which kind of noise, by the axes
and the kind of ``Problem.feasible_set``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """The module with a ``FAMILY``, or with another name after a colon.

    ``needs`` is the key of [structure] that the kind needs; ``named`` whether [structure] names it,
    or other words of a problem imply it; ``sparse`` whether W is a sparse array and none is n x n;
    ``seeds`` whether budgets can hold against nodes that pool the seeds they know."""

    module: str
    needs: str | None = None
    named: bool = True
    sparse: bool = False
    seeds: bool = False


_FAMILIES = "noisedesign.families"

REGISTRY: dict[tuple[str, str], Entry] = {
    ("space", "dense"): Entry(f"{_FAMILIES}.disjoint.family"),
    ("space", "edge-local"): Entry(f"{_FAMILIES}.shared_seeds.family", seeds=True),
    ("space", "hops"): Entry(f"{_FAMILIES}.shared_seeds.family", needs="hops", seeds=True),
    ("space", "neighbourhood"): Entry(f"{_FAMILIES}.shared_seeds.family", seeds=True),
    ("space", "clusters"): Entry(f"{_FAMILIES}.shared_seeds.family", needs="clusters", seeds=True),
    ("space", "decor"): Entry(f"{_FAMILIES}.decor.family"),
    ("space", "independent"): Entry(f"{_FAMILIES}.shared_seeds.family", seeds=True),
    ("space", "polynomial"): Entry(f"{_FAMILIES}.polynomial.family", sparse=True),
    ("space", "pairwise"): Entry(f"{_FAMILIES}.pairwise.family", sparse=True),
    ("space", "observers"): Entry(f"{_FAMILIES}.observers.family", named=False),
    ("space", "worst"): Entry(f"{_FAMILIES}.worst.family", named=False),
    ("time", "dense"): Entry(f"{_FAMILIES}.disjoint.family"),
    ("time", "overlapping"): Entry(f"{_FAMILIES}.overlapping.family", named=False),
    ("time", "worst"): Entry(f"{_FAMILIES}.worst.family", named=False),
    ("time", "nonnegative"): Entry(f"{_FAMILIES}.amplified.family", named=False),
    ("time", "banded"): Entry(f"{_FAMILIES}.banded.family", needs="bands"),
    ("time", "toeplitz"): Entry(f"{_FAMILIES}.toeplitz.family"),
    ("time", "signed-toeplitz"): Entry(f"{_FAMILIES}.toeplitz.family"),
    ("time", "banded-inverse"): Entry(f"{_FAMILIES}.toeplitz.family", needs="bands"),
    ("time", "blt"): Entry(f"{_FAMILIES}.toeplitz.family", needs="buffers"),
    ("time", "signed-blt"): Entry(f"{_FAMILIES}.toeplitz.family", needs="buffers"),
    ("space-time", "worst"): Entry(f"{_FAMILIES}.worst.family", named=False),
    ("space-time", "kronecker"): Entry(f"{_FAMILIES}.kronecker.family"),
    ("space-time", "modal"): Entry(f"{_FAMILIES}.modal.family"),
    ("space-time", "full"): Entry(f"{_FAMILIES}.disjoint.family:FULL"),
}
"""(axes, kind) -> family."""


def kinds(axes: str) -> tuple[str, ...]:
    """The kinds of noise along ``axes``, as [structure] names them."""
    return tuple(kind for (known, kind), entry in REGISTRY.items() if known == axes and entry.named)


# The kind that stands for another one on graphs too large for any n x n array.
SPARSE_FORMS = {"dense": "polynomial", "edge-local": "pairwise"}


def sparse_kinds() -> tuple[str, ...]:
    """The kinds of noise in space that take W as a sparse array."""
    return tuple(kind for (_, kind), entry in REGISTRY.items() if entry.sparse and entry.named)
