"""Squared sensitivity of a strategy to unit-norm vector gradients, over a participation scheme.

For one pattern it is max <M, Y> over positive semidefinite Y with unit diagonal (the elliptope),
between the maximum over signs and min(|pattern| lambda_max(M), sum |M_st|); it is solved only where
these differ and the pattern may be the worst (docs/mathematics/program.md)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError, describe, symmetric_matrix
from noisedesign.noise.rules import heaviest_sums
from noisedesign.privacy.sensitivity.elliptope import (
    BLOCK_LIMIT,
    SOLVED,
    Sparse,
    balancing_signs,
    block_bounds,
    certified_multiple,
    sparse_bounds,
)
from noisedesign.system.participation import Participation, Steps

EXACT = "vector-exact"
UPPER_BOUND = "vector-upper-bound"
SPECTRAL_UPPER_BOUND = "spectral-upper-bound"
ABS_SUM_UPPER_BOUND = "abs-sum-upper-bound"

AGREEMENT = 1e-8  # relative difference of proved bounds that counts as none: ten times SOLVED
MAX_LISTED = 20_000  # most maximal patterns of a min-separation scheme that are tried one by one
CHUNK = 2**22  # entries of M gathered at a time: 32 MB

Gram = Array | Sparse


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivity:
    """Squared sensitivity: an upper bound for every pattern, looser for those that cannot be the
    worst, or one where they are too many; and which number it is, "vector-exact" to a relative
    ``AGREEMENT``, rounded up, or one of the upper bounds."""

    per_pattern: Array
    kind: str

    @property
    def squared(self) -> float:
        """The largest squared sensitivity over the patterns."""
        return float(self.per_pattern.max())


def squared_sensitivity(
    gram: Gram, participation: Participation, *, ceiling: float | None = None
) -> Sensitivity:
    """Squared sensitivity of M = ``gram``, shape (T, T), of a strategy or view, to unit-norm
    vectors. A ``ceiling`` is known to bound it; one below what gradients attain is ignored.
    Sources: Choquette-Choo et al. (2023), on the square (Mafalda-SGD, equation (8), prints it
    without one), and vectors by the elliptope; Koskela and Kulkarni for views."""
    m = _checked(gram, participation.horizon)
    most = math.inf if ceiling is None else _checked_ceiling(ceiling)
    groups = listed(participation)
    if groups is not None:
        bounds = listed_bounds(m, groups)
        per_pattern, kind = bounds.upper, UPPER_BOUND
        worst = int(per_pattern.argmax())
        if per_pattern[worst] >= bounds.absolute[worst]:
            kind = ABS_SUM_UPPER_BOUND
    else:
        bounds = unlisted_bounds(m, participation)
        per_pattern, kind = bounds.upper, ABS_SUM_UPPER_BOUND
        largest = participation.largest_size * largest_eigenvalue(m)
        if not bounds.agree and largest < per_pattern.max():
            per_pattern, kind = np.array([largest]), SPECTRAL_UPPER_BOUND
    attained = float(bounds.lower.max())
    if (1 - AGREEMENT) * attained <= most < per_pattern.max():
        per_pattern, kind = np.minimum(per_pattern, max(most, attained)), UPPER_BOUND
    if per_pattern.max() - attained <= AGREEMENT * per_pattern.max():
        kind = EXACT
    return Sensitivity(per_pattern=per_pattern, kind=kind)


# --- input ----------------------------------------------------------------------------------------


def _checked(gram: Gram, horizon: int) -> Gram:
    m: Gram
    if scipy.sparse.issparse(gram):
        m = _checked_sparse(gram)
    else:
        m = symmetric_matrix(gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE)
    if m.shape != (horizon, horizon):
        expected = f"shape ({horizon}, {horizon}), the horizon of the participation"
        raise InputError("gram", expected=expected, got=f"shape {m.shape}")
    diagonal = m.diagonal()
    if diagonal.min() < -settings.GRAM_NEGATIVITY * np.abs(diagonal).max():
        got = f"{diagonal.min():.6g} at step {int(diagonal.argmin())}"
        raise InputError("gram", expected="a Gram matrix, with nonnegative diagonal", got=got)
    return m


def _checked_sparse(gram: Sparse) -> Sparse:
    m = scipy.sparse.csr_array(gram)
    if m.dtype != np.float64:
        raise InputError("gram", expected="float64 entries", got=f"dtype {m.dtype}")
    if m.ndim != 2 or m.shape[0] != m.shape[1] or not m.shape[0]:
        raise InputError("gram", expected="a square matrix", got=f"shape {m.shape}")
    m.sum_duplicates()
    if not np.isfinite(m.data).all():
        bad = m.data[~np.isfinite(m.data)][0]
        raise InputError("gram", expected="finite entries", got=f"{bad} among them")
    gap = float(abs(m - m.T).max())
    if gap > settings.SYMMETRY_TOLERANCE * max(1.0, float(abs(m).max())):
        expected = "a symmetric matrix"
        raise InputError("gram", expected=expected, got=f"entries that differ by {gap:.6g}")
    return m


def _checked_ceiling(value: float) -> float:
    numeric = isinstance(value, (int, float, np.floating, np.integer))
    if not numeric or isinstance(value, bool) or not value >= 0:
        raise InputError("ceiling", expected="a squared sensitivity >= 0", got=describe(value))
    return float(value)


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
    """Squared bounds of every pattern, (p,), loose unless it is the worst; ``absolute`` sums
    |M_st|."""

    lower: Array
    upper: Array
    absolute: Array

    @property
    def agree(self) -> bool:
        """Whether the bounds on the largest coincide; those of other patterns need not."""
        worst = self.upper.max()
        return bool(worst - self.lower.max() <= AGREEMENT * worst)


def listed(participation: Participation) -> list[Group] | None:
    """The maximal patterns by size; None where there are too many that can be bounded at once."""
    if participation.disjoint:
        steps = np.asarray(participation.patterns)
        return [Group(places=np.arange(len(steps)), steps=steps)]
    if not participation.spaced:
        patterns = list(participation.patterns)
    else:
        # Patterns times their size cubed are at the worst minutes, mostly far less, as cheap bounds
        # rule out most patterns.
        most = max(1, min(MAX_LISTED, int(2e8 // participation.largest_size**3)))
        patterns = list(itertools.islice(participation.maximal_patterns(), most + 1))
        if len(patterns) > most:
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
    # Steps of every pattern by its place.
    where = {int(j): row for g in groups for j, row in zip(g.places, g.steps, strict=True)}
    # The largest upper bound that is final: what cannot exceed it need not be known better.
    settled = float(upper[balanced].max(initial=0.0))
    for j in np.argsort(-upper, kind="stable"):
        if upper[j] <= settled:
            break
        if not balanced[j]:
            block = _block(gram, where[int(j)])
            if isinstance(block, np.ndarray):
                found = block_bounds(block, enough=settled)
            else:
                found = sparse_bounds(block)
            lower[j], upper[j] = max(lower[j], found.lower), min(upper[j], found.upper)
            settled = max(settled, upper[j])
    return PatternBounds(lower=lower, upper=upper, absolute=absolute)


def _block(gram: Gram, steps: Steps) -> Gram:
    """M on one pattern, shape (k, k); sparse where that has more than ``BLOCK_LIMIT`` steps."""
    if isinstance(gram, np.ndarray):
        block: Any = gram[np.ix_(steps, steps)]
        return Sparse(block) if len(steps) > BLOCK_LIMIT else np.asarray(block)
    block = gram[steps][:, steps]
    return Sparse(block) if len(steps) > BLOCK_LIMIT else np.asarray(block.toarray())


def _blocks(gram: Gram, steps: Steps) -> Array:
    """M on patterns of one size up to ``BLOCK_LIMIT``, shape (p, k, k)."""
    rows, columns = np.broadcast_arrays(steps[:, :, None], steps[:, None, :])
    if isinstance(gram, np.ndarray):
        return np.asarray(gram[rows, columns])
    return np.asarray(gram[rows.ravel(), columns.ravel()]).reshape(rows.shape)


def _attained_and_absolute(gram: Gram, steps: Steps) -> tuple[Array, Array]:
    """The value that signs or orthogonal gradients attain, and the sum of |M_st|, per pattern."""
    if steps.shape[1] > BLOCK_LIMIT:
        large: list[Any] = [_block(gram, row) for row in steps]
        absolute = np.array([float(abs(block).sum()) for block in large])
        return np.minimum([_attained(block) for block in large], absolute), absolute
    blocks = _blocks(gram, steps)
    absolute = np.abs(blocks).sum(axis=(1, 2))
    attained = blocks.sum(axis=(1, 2))
    for j in np.flatnonzero(absolute - attained > SOLVED * absolute):
        attained[j] = _attained(blocks[j])
    return np.minimum(attained, absolute), absolute


def _attained(block: Gram) -> float:
    s = balancing_signs(block)
    return max(float(s @ (block @ s)), float(block.diagonal().sum()))


def largest_eigenvalue(gram: Gram) -> float:
    """An upper bound on lambda_max of a positive semidefinite matrix, nearly the least."""
    size = gram.shape[0]
    if size > BLOCK_LIMIT:
        return certified_multiple(Sparse(gram), np.ones(size))
    dense = gram if isinstance(gram, np.ndarray) else gram.toarray()
    return float(np.linalg.eigvalsh(dense)[-1]) * (1 + settings.rank_tolerance(size))


# --- all patterns at once -------------------------------------------------------------------------


def unlisted_bounds(gram: Gram, participation: Participation) -> PatternBounds:
    """Bounds on the largest over a min-separation scheme: from above by the heaviest pattern under
    the heaviest rows of |M|, from below by signs on the densest patterns or the heaviest diagonal
    (Choquette-Choo et al. 2023)."""
    diagonal = np.abs(gram.diagonal())
    upper = participation.heaviest(_heaviest_rows(gram, participation))
    size, b = participation.largest_size, participation.stride
    span = (size - 1) * b
    last = participation.horizon - 1 - span
    starts = np.linspace(0, last, num=max(1, min(last + 1, CHUNK // size**2)), dtype=np.intp)
    attained, _ = _attained_and_absolute(gram, starts[:, None] + np.arange(0, span + 1, b))
    lower = min(upper, max(participation.heaviest(diagonal), float(attained.max())))
    bound = np.array([upper])
    return PatternBounds(lower=np.array([lower]), upper=bound, absolute=bound)


def _heaviest_rows(gram: Gram, participation: Participation) -> Array:
    """The largest sum of |M_st| over the t of a pattern with s, for every step s, shape (T,)."""
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
