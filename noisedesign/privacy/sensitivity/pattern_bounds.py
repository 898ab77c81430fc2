"""Bounds on the squared sensitivity of every pattern of a scheme, the cheap ones first.

For one pattern and M restricted to it, sums of absolute values bound the elliptope maximum from
above, sign vectors from below. Where M can be made nonnegative by signs the two coincide; only
where they do not, and the pattern may still be the worst, is the elliptope problem solved.
All numbers are squared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.sensitivity import signs
from noisedesign.privacy.sensitivity.elliptope import BLOCK_LIMIT, SOLVED, block_bounds
from noisedesign.privacy.sensitivity.elliptope_sparse import (
    Sparse,
    certified_multiple,
    sparse_bounds,
)
from noisedesign.system.participation import Participation, Steps, heaviest_sums

AGREEMENT = 1e-8
"""Relative difference of a proved lower and a proved upper bound at which the upper one is called
exact: ten times that at which the searches stop, a hundredth of the tightest usual gap."""

MAX_LISTED = 20_000
"""Most maximal patterns of a min-separation scheme that are tried one by one."""

MAX_LISTED_WORK = 2e8
"""Most patterns times their size cubed, likewise: at the worst minutes, mostly far less, as cheap
bounds rule out most patterns."""

MAX_SIGN_VECTORS = 2**26
"""Most sign vectors tried over all patterns: a few seconds."""

CHUNK = 2**22
"""Entries of M gathered at a time: 32 MB."""

Gram = Array | Sparse


@dataclass(frozen=True, kw_only=True)
class Group:
    """Patterns of one size: their place in the scheme, shape (p,), and steps, shape (p, k)."""

    places: Steps
    steps: Steps

    def chunks(self) -> Iterator[slice]:
        """Slices of the patterns whose blocks of M have about ``CHUNK`` entries."""
        length = max(1, CHUNK // self.steps.shape[1] ** 2)
        for start in range(0, len(self.steps), length):
            yield slice(start, start + length)


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternBounds:
    """Squared, one entry per pattern, shape (p,).

    Attributes:
        lower, upper: bounds on the elliptope maximum. The upper one of a pattern that cannot be the
            worst may be left loose.
        absolute: sum of |M_st|.
        balanced: whether signs attain that sum, to a relative ``SOLVED``.
    """

    lower: Array
    upper: Array
    absolute: Array
    balanced: NDArray[np.bool_]

    @property
    def agree(self) -> bool:
        """Whether the bounds on the largest coincide; those of other patterns need not."""
        worst = self.upper.max()
        return bool(worst - self.lower.max() <= AGREEMENT * worst)


def listed(participation: Participation) -> list[Group] | None:
    """The maximal patterns by size; None where a scheme whose patterns can be bounded all at once
    has too many."""
    if participation.disjoint:
        steps = np.asarray(participation.patterns)
        return [Group(places=np.arange(len(steps)), steps=steps)]
    most = None
    if participation.spaced:
        most = max(1, min(MAX_LISTED, int(MAX_LISTED_WORK // participation.largest_size**3)))
    patterns = list(itertools.islice(participation.maximal_patterns(), most and most + 1))
    if most is not None and len(patterns) > most:
        return None
    sizes = np.array([len(pattern) for pattern in patterns])
    groups = []
    for size in np.unique(sizes):
        places = np.flatnonzero(sizes == size)
        groups.append(Group(places=places, steps=np.array([patterns[j] for j in places])))
    return groups


# --- pattern by pattern ---------------------------------------------------------------------------


def listed_bounds(gram: Gram, groups: list[Group]) -> PatternBounds:
    """Bounds for every pattern; those on the worst are as tight as they get."""
    number = sum(len(group.places) for group in groups)
    lower, absolute = np.zeros(number), np.zeros(number)
    for group in groups:
        for chunk in group.chunks():
            places, steps = group.places[chunk], group.steps[chunk]
            lower[places], absolute[places] = _attained_and_absolute(gram, steps)
    upper = absolute.copy()
    balanced = absolute - lower <= SOLVED * absolute
    where = _where(groups)
    # The largest upper bound that is final: what cannot exceed it need not be known better.
    settled = float(upper[balanced].max(initial=0.0))
    for j in np.argsort(-upper, kind="stable"):
        if upper[j] <= settled:
            break
        if not balanced[j]:
            steps = where[int(j)]
            if len(steps) <= BLOCK_LIMIT:
                found = block_bounds(_block(gram, steps), enough=settled)
            else:
                found = sparse_bounds(_large_block(gram, steps))
            lower[j], upper[j] = max(lower[j], found.lower), min(upper[j], found.upper)
            settled = max(settled, upper[j])
    return PatternBounds(lower=lower, upper=upper, absolute=absolute, balanced=balanced)


def _block(gram: Gram, steps: Steps) -> Array:
    """M on one pattern, shape (k, k)."""
    if isinstance(gram, np.ndarray):
        return np.asarray(gram[np.ix_(steps, steps)])
    return np.asarray(gram[steps][:, steps].toarray())


def _large_block(gram: Gram, steps: Steps) -> Sparse:
    """M on one pattern of more than ``BLOCK_LIMIT`` steps, shape (k, k)."""
    if isinstance(gram, np.ndarray):
        return Sparse(gram[np.ix_(steps, steps)])
    return Sparse(gram[steps][:, steps])


def _blocks(gram: Gram, steps: Steps) -> Array:
    """M on patterns of one size up to ``BLOCK_LIMIT``, shape (p, k, k)."""
    rows, columns = np.broadcast_arrays(steps[:, :, None], steps[:, None, :])
    if isinstance(gram, np.ndarray):
        return np.asarray(gram[rows, columns])
    return np.asarray(gram[rows.ravel(), columns.ravel()]).reshape(rows.shape)


def _attained_and_absolute(gram: Gram, steps: Steps) -> tuple[Array, Array]:
    """What signs or orthogonal gradients attain, and the sum of |M_st|, per pattern."""
    if steps.shape[1] > BLOCK_LIMIT:
        large = [_large_block(gram, row) for row in steps]
        absolute = np.array([float(abs(block).sum()) for block in large])
        return np.minimum([_attained(block) for block in large], absolute), absolute
    blocks = _blocks(gram, steps)
    absolute = np.abs(blocks).sum(axis=(1, 2))
    attained = blocks.sum(axis=(1, 2))
    for j in np.flatnonzero(absolute - attained > SOLVED * absolute):
        attained[j] = _attained(blocks[j])
    return np.minimum(attained, absolute), absolute


def _attained(block: Gram) -> float:
    s = signs.balancing_signs(block)
    return max(float(s @ (block @ s)), float(block.diagonal().sum()))


def spectral(gram: Gram, groups: list[Group]) -> float:
    """|pattern| lambda_max(M on it), rounded up, the largest over the patterns."""
    worst = 0.0
    for group in groups:
        size = group.steps.shape[1]
        if size > BLOCK_LIMIT:
            large = [largest_eigenvalue(_large_block(gram, row)) for row in group.steps]
            worst = max(worst, size * max(large))
            continue
        for chunk in group.chunks():
            values = np.linalg.eigvalsh(_blocks(gram, group.steps[chunk]))[:, -1]
            worst = max(worst, size * float(values.max()) * (1 + settings.rank_tolerance(size)))
    return worst


def largest_eigenvalue(gram: Gram) -> float:
    """An upper bound on lambda_max of a positive semidefinite matrix, nearly the least."""
    size = gram.shape[0]
    if size > BLOCK_LIMIT:
        return certified_multiple(Sparse(gram), np.ones(size))
    dense = gram if isinstance(gram, np.ndarray) else gram.toarray()
    return float(np.linalg.eigvalsh(dense)[-1]) * (1 + settings.rank_tolerance(size))


def scalar(gram: Gram, groups: list[Group], bounds: PatternBounds) -> float | None:
    """max c^T M c over signs and patterns; None where that takes too many sign vectors."""
    best = float(bounds.absolute[bounds.balanced].max(initial=0.0))
    left = MAX_SIGN_VECTORS
    where = _where(groups)
    for j in np.argsort(-bounds.upper, kind="stable"):
        if bounds.balanced[j] or bounds.upper[j] <= best:
            continue
        steps = where[int(j)]
        left -= 2 ** min(len(steps), signs.MAX_STEPS)
        if len(steps) > signs.MAX_STEPS or left < 0:
            return None
        best = max(best, signs.best_signs(_block(gram, steps)))
    return best


def _where(groups: list[Group]) -> dict[int, Steps]:
    """Steps of every pattern by its place."""
    return {int(j): row for g in groups for j, row in zip(g.places, g.steps, strict=True)}


# --- all patterns at once -------------------------------------------------------------------------


def unlisted_bounds(gram: Gram, participation: Participation) -> PatternBounds:
    """Bounds on the largest over a min-separation scheme, without listing its patterns.

    The upper bound is that on sums of absolute values by rows: r_s is the heaviest row s of |M|
    over a pattern with s in it, and the heaviest pattern under r bounds them all. The lower bound
    is what signs attain on the densest patterns s, s + b, ..., or the heaviest diagonal, their mean
    on any pattern. Where M vanishes b or more steps off its diagonal the two bounds coincide.

    Source: Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization".
    """
    diagonal = np.abs(gram.diagonal())
    upper = participation.heaviest(_heaviest_rows(gram, participation))
    size, b = participation.largest_size, participation.stride
    span = (size - 1) * b
    last = participation.horizon - 1 - span
    starts = np.linspace(0, last, num=max(1, min(last + 1, CHUNK // size**2)), dtype=np.intp)
    attained, _ = _attained_and_absolute(gram, starts[:, None] + np.arange(0, span + 1, b))
    lower = min(upper, max(participation.heaviest(diagonal), float(attained.max())))
    bound = np.array([upper])
    return PatternBounds(
        lower=np.array([lower]),
        upper=bound,
        absolute=bound,
        balanced=np.array([upper - lower <= SOLVED * upper]),
    )


def _heaviest_rows(gram: Gram, participation: Participation) -> Array:
    """For every step s the largest sum of |M_st| over the t of a pattern with s, shape (T,)."""
    horizon, b = participation.horizon, participation.stride
    entries = scipy.sparse.coo_array(gram)
    width = int(np.abs(entries.row - entries.col)[entries.data != 0].max(initial=0))
    result = np.array(np.abs(gram.diagonal()), dtype=np.float64)
    others = participation.largest_size - 1
    offsets = np.arange(b, width + 1)
    if not others or not len(offsets):
        return result
    counts = min(others, (width - b) // b + 1)
    for start in range(0, horizon, rows := max(1, CHUNK // horizon)):
        steps = np.arange(start, min(start + rows, horizon))
        part = gram[steps]
        absolute = np.abs(part if isinstance(part, np.ndarray) else part.toarray())
        # Steps before s and after s are chosen apart; only their numbers share a limit.
        before, after = (
            heaviest_sums(
                _along(absolute, steps[:, None] + side * offsets), separation=b, counts=counts
            )
            for side in (-1, 1)
        )
        taken = np.arange(counts + 1)
        result[steps] += (before + after[np.minimum(counts, others - taken)]).max(axis=0)
    return result


def _along(rows: Array, columns: Steps) -> Array:
    """Entries of ``rows`` at ``columns``, zero where there is no such column."""
    inside = (columns >= 0) & (columns < rows.shape[1])
    taken = np.take_along_axis(rows, np.where(inside, columns, 0), axis=1)
    return np.asarray(np.where(inside, taken, 0.0))
