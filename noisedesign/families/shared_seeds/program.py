"""Covariances made of shared seeds: who may share one, and the program of their noise.

    (L)  minimise  tr(H R),   R = sum_c E_c P_c E_c^T,  P_c >= 0 on every set c of nodes that may
         share a seed,  subject to  [R^-1]_ii <= budget_i  for every node i,  and optionally
         R_ii <= cap_i.

Where coalitions of f nodes know the seeds they hold (SecLDP), what hides a node from coalition A
are the blocks that A does not touch, R_A = sum of those, and the budgets of the nodes outside A are
asked of R_A. A smaller coalition sees less, so coalitions of exactly f nodes are enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.certify.program import Program
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.default_cap import FreeNoiseError
from noisedesign.system.participation import single

Nodes = tuple[int, ...]
SeedSets = tuple[Nodes, ...]
Members = NDArray[np.intp]

ROUNDING = 8
"""Multiple of the rank tolerance allowed to the rounding of an eigenvalue or an inverse."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedProgram(Program):
    """Data of (L). ``sets`` are the nodes of every seed that matters, none within another or
    touched by every coalition; ``known_seeds`` is f, how many nodes may pool their seeds."""

    sets: SeedSets
    known_seeds: int = 0

    @cached_property
    def coalitions(self) -> tuple[Nodes, ...]:
        """The sets of nodes whose seeds are taken as known; one empty set where f = 0."""
        return tuple(combinations(range(self.size), self.known_seeds))


def seed_program(
    gram: Array, *, mixing: Array, structure: SpaceStructure, budget: Array, cap: Array | None
) -> SeedProgram:
    """(L) of an error Gram matrix H, shape (n, n), unless some noise would be free of cost."""
    size, known = len(gram), structure.known_seeds
    if known >= size:
        expected = f"less than the {size} nodes"
        raise InputError("structure.known_seeds", expected=expected, got=str(known))
    sets = seed_sets(structure, mixing=mixing)
    if known:
        outliving = (nodes for nodes in sets if len(nodes) + known <= size)
        sets = tuple(sorted({*((node,) for node in range(size)), *outliving}))
    program = SeedProgram(
        gram=_linalg.symmetric(gram),
        participation=single(size),
        budget=budget,
        cap=cap,
        axes="space",
        sets=sets,
        known_seeds=known,
    )
    if cap is None:
        _refuse_free_noise(program)
    return program


def _refuse_free_noise(program: SeedProgram) -> None:
    for _, members in by_size(program.sets):
        values, vectors = np.linalg.eigh(program.gram[members[:, :, None], members[:, None, :]])
        floor = ROUNDING * settings.rank_tolerance(program.size) * values[:, -1]
        free = np.flatnonzero(values[:, 0] <= floor)
        if free.size:
            pairs = zip(members[free[0]], vectors[free[0], :, 0], strict=True)
            terms = ", ".join(f"{i}: {x:+.3f}" for i, x in pairs)
            cap = f"{settings.SUGGESTED_CAP / program.budget.min():.2g}"
            got = f"noise along {{{terms}}}, which is cancelled by mixing and grows without bound"
            raise FreeNoiseError(
                "mixing",
                expected="a matrix W under which all noise of a clique has a cost",
                got=got,
                remedy=f"Cap diag(R) by limits.max_variance: max_variance={cap} in Python, "
                f"[limits] max_variance = {cap} in a problem file.",
            )


def seed_sets(structure: SpaceStructure, *, mixing: Array) -> SeedSets:
    """The sorted sets of nodes that may share a seed, none within another; W joins."""
    linked = (mixing != 0) | (mixing.T != 0) | np.eye(len(mixing), dtype=bool)
    if structure.kind == "independent":
        return tuple((node,) for node in range(len(mixing)))
    if structure.clusters is not None:
        labels = np.array(structure.clusters)
        return _maximal(np.flatnonzero(labels == label).tolist() for label in set(labels))
    if structure.kind == "neighbourhood":
        return _maximal(np.flatnonzero(row).tolist() for row in linked)
    reached = linked
    for _ in range(min(structure.hops or 1, len(linked)) - 1):
        further = reached.astype(np.float64) @ linked > 0
        if (further == reached).all():
            break
        reached = further
    alone = np.flatnonzero(reached.sum(axis=1) == 1)[:, None]
    return tuple(sorted(map(tuple, [*np.argwhere(np.triu(reached, 1)).tolist(), *alone.tolist()])))


def _maximal(sets: Iterable[Sequence[int]]) -> SeedSets:
    """Sort the sets and drop those within another, whose blocks are blocks on the larger one."""
    kept: list[frozenset[int]] = []
    at: dict[int, list[frozenset[int]]] = {}
    for nodes in sorted(map(frozenset, sets), key=len, reverse=True):
        rarest = min((at.get(node, []) for node in nodes), key=len)
        if any(nodes <= other for other in rarest):
            continue
        kept.append(nodes)
        for node in nodes:
            at.setdefault(node, []).append(nodes)
    return tuple(sorted(tuple(sorted(nodes)) for nodes in kept))


@lru_cache(maxsize=4)
def by_size(sets: SeedSets) -> list[tuple[Members, Members]]:
    """Sets of each size: (which of ``sets``, shape (m,); their nodes, shape (m, k))."""
    sizes = np.array([len(nodes) for nodes in sets])
    groups = []
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        groups.append((which, np.array([sets[c] for c in which], dtype=np.intp)))
    return groups
