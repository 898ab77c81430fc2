"""Min-separation strategies without a structure: the dual of all overlapping patterns, its bound.

The multiplier of a pattern pi is a positive semidefinite block U_pi whose diagonal is a constant
q_pi, because <U_pi, X_pi> <= q_pi for every feasible X. With U the sum of the blocks,

    tr(H X^-1)  >=  ( tr (H^1/2 U H^1/2)^1/2 )^2 / sum of q_pi      for every feasible X.

Patterns overlap, so that U is not block diagonal and X need not be diagonal on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import EPS, Enclosure, U, sum_up, up
from noisedesign.certify.certificate import block_roots, repaired_blocks
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.families.temporal import TemporalProgram, bound_by
from noisedesign.system.participation import Participation

# Multiple of the rank tolerance by which the diagonal of U is raised, at the price of patterns of
# one step, so that its Cholesky factorisation runs to the end.
RAISED = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternBlocks:
    """Multipliers of patterns of one size: ``steps``, shape (n, k), ``blocks`` U_pi, (n, k, k)."""

    steps: NDArray[np.intp]
    blocks: Array


def pattern_arrays(multipliers: Sequence[PatternBlocks]) -> dict[str, Array]:
    """Multipliers as flat arrays of float64: lengths of the patterns, their steps, their blocks."""
    lengths = [np.full(len(one.steps), one.steps.shape[1], np.float64) for one in multipliers]
    steps = [one.steps.ravel().astype(np.float64) for one in multipliers]
    return {
        "pattern_lengths": np.concatenate(lengths),
        "pattern_steps": np.concatenate(steps),
        "pattern_blocks": np.concatenate([one.blocks.ravel() for one in multipliers]),
    }


def multipliers_of(arrays: Mapping[str, Array]) -> list[PatternBlocks]:
    """Multipliers from :func:`pattern_arrays`, a group for every length."""
    lengths = arrays["pattern_lengths"].astype(np.intp)
    steps = arrays["pattern_steps"].astype(np.intp)
    blocks = arrays["pattern_blocks"]
    if (
        lengths.ndim != 1
        or (lengths != arrays["pattern_lengths"]).any()
        or (steps != arrays["pattern_steps"]).any()
        or lengths.min(initial=1) < 1
        or (steps.shape, blocks.shape) != ((lengths.sum(),), (np.square(lengths).sum(),))
    ):
        expected = "blocks of the lengths of their patterns, and steps that are whole numbers"
        got = f"{blocks.size} entries"
        raise InputError("design file.pattern_blocks", expected=expected, got=got)
    starts, squares = np.cumsum(lengths) - lengths, np.cumsum(lengths**2) - lengths**2
    groups = []
    for k in np.unique(lengths):
        chosen = np.flatnonzero(lengths == k)[:, None]
        own = blocks[squares[chosen] + np.arange(k * k)].reshape(-1, k, k)
        groups.append(PatternBlocks(steps=steps[starts[chosen] + np.arange(k)], blocks=own))
    return groups


def overlapping_lower_bound(
    program: TemporalProgram,
    multipliers: Sequence[PatternBlocks],
    *,
    negligible: float = settings.NEGLIGIBLE,
) -> float:
    """A bound on tr(H X^-1) for every feasible X; 0 where the multipliers prove nothing."""
    largest = max((float(np.abs(m.blocks).max(initial=0)) for m in multipliers), default=0.0)
    if not 0 < largest < np.inf:
        return 0.0
    size = program.size
    u, price = np.zeros((size, size)), 0.0
    for group in multipliers:
        _check(group.steps, program.participation)
        blocks = repaired_blocks(group.blocks / largest)
        price += float(blocks[:, 0, 0].sum())
        rows, columns = np.broadcast_arrays(group.steps[:, :, None], group.steps[:, None, :])
        np.add.at(u, (rows, columns), blocks)
    raised = RAISED * settings.rank_tolerance(size) * float(np.diagonal(u).max())
    u[np.diag_indices(size)] += raised
    price += size * raised
    return bound_by(program, u, price, negligible=negligible)


def rigorous_multipliers(
    program: TemporalProgram, multipliers: Sequence[PatternBlocks]
) -> tuple[Enclosure, float]:
    """U as :func:`overlapping_lower_bound` takes it, and its price rounded up. A block is B B^T,
    whatever B is, at the price of its largest diagonal entry."""
    largest = max((float(np.abs(m.blocks).max(initial=0)) for m in multipliers), default=0.0)
    if not 0 < largest < np.inf:
        raise NotProvedError("the multipliers are no numbers, or zero")
    size = program.size
    u, absolute, count = (np.zeros((size, size)) for _ in range(3))
    prices = []
    for group in multipliers:
        _check(group.steps, program.participation)
        roots = block_roots(group.blocks * 2.0 ** -math.frexp(largest)[1])
        prices.append(up(np.square(roots).sum(axis=2), roots.shape[2]).max(axis=1))
        across = np.abs(roots).transpose(0, 2, 1)
        rows, columns = np.broadcast_arrays(group.steps[:, :, None], group.steps[:, None, :])
        np.add.at(u, (rows, columns), roots @ roots.transpose(0, 2, 1))
        np.add.at(absolute, (rows, columns), np.abs(roots) @ across)
        np.add.at(count, (rows, columns), 1.0)
    most = int(count.max()) + max(group.steps.shape[1] for group in multipliers)
    diagonal = np.diagonal(u)
    raised = RAISED * settings.rank_tolerance(size) * np.maximum(diagonal, EPS * diagonal.max())
    found = Enclosure((u + u.T) / 2, np.asarray(up((most + 2) * U * absolute, 2 * most)))
    found = found.plus(Enclosure(np.diag(raised), np.zeros(())))
    return found, float(up(sum_up(np.concatenate(prices)) + sum_up(raised), 2))


def _check(steps: NDArray[np.intp], participation: Participation) -> None:
    """Every row is a pattern, or part of one, in ascending order."""
    inside = steps.min(initial=0) >= 0 and steps.max(initial=0) < participation.horizon
    if not (inside and participation.allows(steps)):
        expected = f"steps of patterns of the participation ({participation})"
        raise InputError("multipliers", expected=expected, got="others")
