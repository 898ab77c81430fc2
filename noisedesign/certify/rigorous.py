"""Bounds and feasibility with every rounding accounted for; no eigenvalue is trusted.

Every number is rounded to the side on which it proves less (:mod:`noisedesign.base.enclosures`).
Nuclear norms, positive definiteness, inverses and sums of products are proved by matrices that
somebody else may have computed: docs/mathematics/verification.md, theorem K.

The numbers of a problem and of a design are taken for exactly what they are in float64, H too,
where it is not W^T W of the W that is stored. An H that is singular to rounding is that of the W
and the error it is formed of."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    BITS,
    EPS,
    FULL,
    LONG,
    PIECE,
    SPARSE,
    TINY,
    Enclosure,
    Interval,
    Outer,
    Rounded,
    Shapes,
    U,
    column_norms,
    exactly,
    finer_product,
    gram,
    gram_blocks,
    gram_of_triangular,
    gram_residual,
    inner,
    lean,
    outer_product,
    product,
    products_down,
    products_up,
    residual,
    row_norms,
    sum_up,
    symmetric_part,
    times,
    up,
)
from noisedesign.certify import inside
from noisedesign.certify.certificate import InTime, block_roots, on_patterns, scale_of
from noisedesign.certify.polar import nuclear_norm
from noisedesign.certify.program import DualPoint, Program
from noisedesign.certify.unrepaired import couplings, unrepaired
from noisedesign.privacy.sensitivity import Group, listed, unlisted_bounds
from noisedesign.privacy.sensitivity.elliptope import block_bounds
from noisedesign.system.participation import Participation, Steps

TIGHT = 1e-11  # relative loss of a bound that is accepted instead of a better polar factor
NEAR = 1e-9  # relative excess of an objective over a bound at which the design still gives it
NEAREST = 6e-11  # the same excess above which the repair of the design is undone first
SHIFTS = 12  # times that a diagonal is lowered fourfold more to prove the rest semidefinite
NEGLIGIBLE_SHIFT = 1e-12  # largest shift of a diagonal of low rank, relative to the largest entry
Columns = Callable[[Steps], Enclosure]  # maps steps to those columns of a matrix

UNPROVED = Interval(0.0, math.inf)

RANDOM = (
    "the account of random participation is not covered: it adds up probabilities, some of them of "
    "samples"
)


class NotProvedError(Exception):
    """Why something is not proved, in words."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Proved facts about noise, and about what its matrices are.

    ``objective`` holds tr(H X^-1), squared noise; no squared sensitivity, variance or floor is
    larger, relative to its budget, cap or variance, than the ratios say. For guesses of polar
    factors there are about R = X^-1 and X, L with L^T L <= H, L R (``shaped``); or of a strategy C
    its ``halves`` L D and D, R = D D^T, with the triangles of L D and D^T in ``shapes``."""

    objective: Interval
    sensitivity_squared: float
    variance_ratio: float | None = None
    floor_ratio: float | None = None
    covariance: Array | None = None
    precision: Array | None = None
    factor: Array | None = None
    shaped: Array | None = None
    strategy: Array | None = None
    halves: tuple[Array, Array] | None = None
    shapes: Shapes = FULL

    def shaped_by(self, factor: Array) -> Array | None:
        """About L R, L being ``factor``; None where R is not known."""
        known = factor is self.factor
        if self.halves is not None:
            half, noising = self.halves
            return times(half if known else factor @ noising, noising.T, shapes=self.shapes)
        if known and self.shaped is not None:
            return self.shaped
        return None if self.covariance is None else factor @ self.covariance


# --- positive semidefinite ----------------------------------------------------------------------


class Below(NamedTuple):
    """L with L^T L <= N, lower triangular, and what is left, N - L^T L; None where that is 0."""

    factor: Array
    left: Enclosure | None


def factor_below(n: Enclosure) -> Below:
    """L with L^T L at most every symmetric matrix (m, m) of n, or raise NotProvedError."""
    diagonal = np.diagonal(n.mid)
    if not diagonal.min() > 0:
        raise NotProvedError("a diagonal entry is not positive")
    if n.exact and (whole := _whole_factor(n.mid)) is not None:
        return Below(whole, None)
    unit = _units(diagonal)
    scaled = n.scaled(unit)
    shift = 4 * len(diagonal) * U
    if not scaled.exact:
        shift += 2 * float(scaled.rad.sum(axis=1).max())
    for _ in range(SHIFTS):
        lowered = scaled.mid.copy()
        lowered[np.diag_indices(len(lowered))] -= shift
        with contextlib.suppress(np.linalg.LinAlgError):
            root = _reversed_cholesky(lowered)
            left = gram_residual(scaled, root, shape="lower")
            if dominant(left):
                return Below(root / unit, left.scaled(1 / unit))
        shift *= 4
    raise NotProvedError("a matrix is not proved positive definite")


def _reversed_cholesky(a: Array) -> Array:
    """L, about, with L^T L = A, lower triangular; LinAlgError where A is not positive definite."""
    upper = scipy.linalg.cholesky(a[::-1, ::-1].T, check_finite=False)
    return np.ascontiguousarray(upper[::-1, ::-1])


def _whole_factor(a: Array) -> Array | None:
    """L of integers with L^T L = A exactly, as for prefix sums; None elsewhere."""
    if not (np.diagonal(a).max() < 2.0**BITS and (a == np.rint(a)).all()):
        return None
    with contextlib.suppress(np.linalg.LinAlgError):
        root = np.rint(_reversed_cholesky(a))
        # Norms of its columns are then those of A, and no sum is larger than their products.
        squares = np.einsum("ij,ij->j", root, root)
        if (squares == np.diagonal(a)).all():
            product = gram_of_triangular(root)
            return root if (product == a).all() else None
    return None


def _units(diagonal: Array) -> Array:
    """Powers of two, which round nothing, that bring a positive diagonal to about 1."""
    exponents = np.frexp(diagonal)[1]
    if exponents.min() >= -6 and exponents.max() <= 6:  # of that order already
        return np.ones(len(diagonal))
    return np.asarray(np.ldexp(1.0, -(exponents // 2)))


def dominant(a: Enclosure) -> bool:
    """Whether no row has more off its diagonal than on it: then it is positive semidefinite."""
    off = a.largest
    np.fill_diagonal(off, 0.0)
    least = np.diagonal(a.mid) - (0.0 if a.exact else np.diagonal(a.rad))
    # Rounding of the difference, and of the sums.
    return bool((up(off.sum(axis=1), len(off)) <= least * (1 - 2 * EPS)).all())


# --- inverses -----------------------------------------------------------------------------------


class _Inverse(NamedTuple):
    """Y about (D R D)^-1, D = diag(``unit``) of powers of two, symmetric, and I - D R D Y."""

    scaled: Enclosure
    unit: Array
    matrix: Array
    left: Outer

    @property
    def precision(self) -> Array:
        """About R^-1."""
        if (self.unit == 1).all():
            return self.matrix
        return np.asarray(self.matrix * np.multiply.outer(self.unit, self.unit))


def _inverse_of(r: Enclosure, *, limits: Array | None = None) -> _Inverse:
    """Prove R positive definite and find its inverse, about; ``limits`` on diag(R^-1) say how well.
    For Y' = M^T M with any M, ||I - R Y'|| < 1 puts the eigenvalues of R Y', those of M R M^T,
    between 0 and 2. Y is that product as computed: its error times R adds to E = I - R Y for this.
    """
    diagonal = np.diagonal(r.mid)
    if not (diagonal.min() > 0 and np.isfinite(diagonal.max())):
        raise NotProvedError("R is not positive definite")
    unit = _units(diagonal)
    scaled = r.scaled(unit)
    size = len(unit)
    try:
        upper = scipy.linalg.cholesky(scaled.mid.T, check_finite=False)
        root = _linalg.inverse_of_triangular(upper.T)
    except np.linalg.LinAlgError:
        raise NotProvedError("R is not positive definite") from None
    y = root.T @ root
    if not (y == y.T).all():
        y = _linalg.symmetrized(y)
    # |Y - M^T M| <= size u |M|^T |M|.
    norms, rows = column_norms(root), scaled.row_norms()
    away = np.linalg.norm(rows) * np.linalg.norm(norms) * np.linalg.norm(norms)
    rest = float(up((size + 2) * U * away, 4 * size))
    left = _residual(scaled, y, piece=_piece(scaled, y, limits, unit))
    if not left.norm() + rest < 1:
        raise NotProvedError("R is not proved positive definite")
    return _Inverse(scaled, unit, y, left)


def _piece(r: Enclosure, y: Array, limits: Array | None, unit: Array) -> int:
    """Choose the longest, quickest sums of R Y that still prove diag(R^-1) within limits."""
    if limits is None:
        return PIECE
    allowed = limits / unit**2 - np.diagonal(y)
    spread = U * (np.abs(y) @ row_norms(r.mid)) * row_norms(y)  # by every addition
    most = 0.8 * float((allowed / spread).min())
    pieces = (PIECE, 2 * PIECE, 4 * PIECE)
    return max((piece for piece in pieces if piece + len(y) / piece <= most), default=PIECE)


def precisions_above(r: Enclosure, *, limits: Array | None = None) -> Iterator[Array]:
    """Upper bounds on diag(R^-1), (n,), better and dearer ones later, to compare with limits."""
    yield from _precisions(_inverse_of(r, limits=limits))


def _precisions(found: _Inverse) -> Iterator[Array]:
    scaled, unit, y, rough = found
    yield np.asarray(_diagonal_above(y, rough) * unit**2)
    yield np.asarray(_diagonal_above(y, _finer(scaled, y)) * unit**2)


def _finer(r: Enclosure, y: Array) -> Enclosure:
    """I - R Y, as if the product were computed with more bits."""
    fine = residual(exactly(np.eye(len(y))), r.mid, y)
    if r.exact:
        return fine
    spread = np.multiply.outer(row_norms(r.rad), column_norms(y))
    return Enclosure(fine.mid, np.asarray(up(fine.rad + spread, 4)))


def forms_above(r: Enclosure, g: Enclosure) -> Array:
    """Upper bounds on diag(G^T R^-1 G), shape (c,), for G of shape (n, c): with p = Y g each is
    p^T g + p^T E g and at most ||p|| ||E||^2 ||g|| / (1 - ||E||)."""
    scaled, unit, y, _ = _inverse_of(r)
    g = Enclosure(g.mid * unit[:, None], g.rad if g.exact else g.rad * unit[:, None])
    p, left = product(y, g), _finer(scaled, y)
    norm, size = left.norm(), len(y)
    if not norm < 1:
        return np.full(g.mid.shape[1], np.inf)
    carried = left.mid @ g.mid
    found = np.einsum("ij,ij->j", p.mid, g.mid) + np.einsum("ij,ij->j", p.mid, carried)
    ours, theirs = column_norms(p.mid), column_norms(g.mid)
    missed, unknown = (column_norms(np.broadcast_to(x.rad, g.mid.shape)) for x in (p, g))
    error = (size + 4) * U * ours * (theirs + column_norms(carried))
    error += (missed + ours * norm * size * U) * g.column_norms() + ours * unknown
    error += p.column_norms() * unknown * norm + missed * norm * g.column_norms()
    rest = float(up(np.linalg.norm(np.broadcast_to(left.rad, y.shape)), y.size))
    error += p.column_norms() * g.column_norms() * (rest + norm * norm / (1 - norm))
    return np.asarray(up(found + up(error, 32), 2))


def raised(a: Array) -> Array:
    """A symmetric matrix with a diagonal raised, by a few roundings, until it is proved definite;
    NotProvedError where that takes more than ``NEGLIGIBLE_SHIFT`` of the largest entry."""
    largest = float(np.abs(a).max())
    for share in (0.0, *(4.0**j * EPS for j in range(20) if 4.0**j * EPS < NEGLIGIBLE_SHIFT)):
        found = a + share * largest * np.eye(len(a))
        with contextlib.suppress(NotProvedError):
            factor_below(symmetric_part(found))
            return np.asarray(found)
    raise NotProvedError("R is not positive semidefinite")


def _residual(r: Enclosure, y: Array, *, shapes: Shapes = FULL, piece: int = PIECE) -> Outer:
    """I - R Y by one product. Only its diagonal is rounded once more, by u (1 + |R_i| |Y_i|)."""
    mid, rows, columns = outer_product(r.mid, y, shapes=shapes, piece=piece)
    np.negative(mid, out=mid)
    mid[np.diag_indices(len(mid))] += 1
    spread = 4 * U * (row_norms(r.mid) + 1)
    if not r.exact:
        spread = spread + row_norms(r.rad)
    return Outer(mid, np.asarray(up(rows + spread, 4)), np.maximum(columns, 1.0))


def _diagonal_above(y: Array, e: Enclosure | Outer) -> Array:
    """diag(Y + Y E + Y E^2 (I - E)^-1) from above, Y symmetric."""
    size, absolute = len(y), np.abs(y)
    norm, rows = e.norm(), row_norms(y)
    if not norm < 1:
        return np.full(size, np.inf)
    first = np.einsum("ji,ji->i", y, e.mid)
    rounded = (size + 2) * U * rows * column_norms(e.mid)
    second = rows * norm * e.column_norms() / (1 - norm)
    error = up(e.weighed(absolute), 2 * size) + up(rounded, 4) + up(second, 6)
    total = np.diagonal(y) + first
    return np.asarray(total + up(error + 2 * U * (np.abs(total) + np.diagonal(y)), 6))


class Noising(NamedTuple):
    """D about C^-1, shape (T, T), and a bound on the norm of I - C D, below 1."""

    matrix: Array
    error: float

    @property
    def factor(self) -> float:
        """||A C^-1|| is at most this times ||A D||, in norms of rows and of all entries."""
        return float(up(1 / (1 - self.error), 2))

    def around(self, squares: Interval) -> Interval:
        """||A C^-1||^2, in norms of all entries, where ||A D||^2 is in an interval."""
        low = squares.lower / float(up((1 + self.error) ** 2, 4)) * (1 - 2 * EPS)
        return Interval(min(low, squares.lower), float(up(squares.upper * self.factor**2, 4)))


def noising_of(strategy: Array) -> Noising:
    """Enclose C^-1 = D (C D)^-1, or raise NotProvedError."""
    try:
        matrix = np.tril(_linalg.inverse_of_triangular(strategy.copy()))
    except np.linalg.LinAlgError:
        raise NotProvedError("C is not invertible") from None
    error = _residual(exactly(strategy), matrix, shapes=("lower", "lower")).norm()
    if not error < 1:
        raise NotProvedError("C is not proved invertible")
    return Noising(matrix, error)


# --- noise --------------------------------------------------------------------------------------


def ratio_above(values: Array, limits: Array) -> float:
    """The largest of values over limits; at most 1 where none exceeds its own."""
    worst = float(up(values / limits, 1).max())
    return min(worst, 1.0) if bool((values <= limits).all()) else worst


def judge_covariance(program: Program, covariance: Array) -> Judged:
    """Prove what holds of a spatial design R, shape (n, n), or raise NotProvedError."""
    if not (covariance == covariance.T).all():
        raise NotProvedError("R is not symmetric")
    r = exactly(covariance)
    variance = np.diagonal(covariance)
    worst, inverse = math.inf, _inverse_of(r, limits=program.budget)
    for above in _precisions(inverse):
        worst = ratio_above(above, program.budget)
        if worst <= 1:
            break
    cap, floor = program.cap, program.floor
    objective, shaped = error_of(program, covariance)
    return Judged(
        objective=objective,
        sensitivity_squared=worst,
        variance_ratio=None if cap is None else ratio_above(variance, cap),
        floor_ratio=None if floor is None else ratio_above(floor, variance),
        covariance=covariance,
        precision=inverse.precision,
        factor=program.exact_factor,
        shaped=shaped,
    )


def error_of(program: Program, covariance: Array) -> tuple[Interval, Array | None]:
    """tr(H R) and, of an L that the problem comes with, about L R."""
    r, factor = exactly(covariance), program.exact_factor
    if (through := _through(program)) is not None:
        w, m = through.mixing, through.inside
        seen_through = finer_product(
            finer_product(exactly(w), r), exactly(np.ascontiguousarray(w.T))
        )
        found = inner(seen_through, m.mid)
        spare = products_up(seen_through.largest, np.broadcast_to(m.rad, w.shape))
        return Interval(found.lower - spare, found.upper + spare), None
    if factor is None:
        return inner(r, program.gram), None  # R is symmetric, whatever H is
    seen = outer_product(factor, covariance, piece=LONG, few=lean(factor))
    return inner(seen, factor), seen.mid


def gram_of(program: Program) -> Enclosure:
    """Enclose H in space: W^T W, or W^T M W, where it is known by these; else it is its floats."""
    if program.exact_factor is not None:
        return gram(program.exact_factor)
    if (through := _through(program)) is None:
        return symmetric_part(program.gram)
    w = exactly(through.mixing)
    mid, rad = finer_product(finer_product(w.transposed(), through.inside), w)
    return Enclosure((mid + mid.T) / 2, np.asarray(up((rad + rad.T) / 2 + U * np.abs(mid), 4)))


def judge_release(program: Program, covariance: Array) -> Judged:
    """Prove what holds of a trusted server's R, (n, n), of one noise at all nodes."""
    ratio = release_above(covariance, program.budget)
    return Judged(objective=error_of(program, covariance)[0], sensitivity_squared=ratio)


def release_above(covariance: Array, budget: Array, *, in_time: float = 1.0) -> float:
    """The squared sensitivity, over its budget, of the average of n nodes behind one noise of all:
    in_time / (n^2 v budget_i) for its variance v, in exact fractions."""
    variance, least = float(covariance.flat[0]), float(budget.min())
    if not (0 < variance < math.inf and (covariance == variance).all()):
        raise NotProvedError("R is not that of one noise for all nodes")
    if not math.isfinite(in_time):
        return math.inf
    needed = Fraction(in_time) / (len(covariance) ** 2 * Fraction(least))
    ratio = needed / Fraction(variance)
    above = math.nextafter(float(ratio), math.inf)
    return above if ratio > 1 else min(above, 1.0)


def judge_strategy(
    program: InTime,
    strategy: Array,
    *,
    exact_factor: Array | None = None,
    known: Enclosure | None = None,
    root: Array | None = None,
    cap: Array | None = None,
    limit: float = 1.0,
) -> Judged:
    """Prove what holds of a lower triangular strategy C, shape (T, T), at its own scale. L with
    L^T L = H is ``exact_factor``, or ``known`` with its error, in place of ``program.gram``;
    ``root`` are the square roots of budgets, ``cap`` that on diag((C^T C)^-1); up to a squared
    sensitivity of ``limit`` no better bound on it is looked for."""
    if np.triu(strategy, 1).any():
        raise NotProvedError("C is not lower triangular")
    noising = noising_of(strategy)
    factor, below, shape = exact_factor, None, ""
    seen: Outer | Enclosure
    if known is not None:
        factor, seen = known.mid, finer_product(known, exactly(noising.matrix))
    else:
        if factor is None:
            below, shape = factor_below(symmetric_part(program.gram)), "lower"
            factor = below.factor
        seen = outer_product(factor, noising.matrix, shapes=(shape, "lower"))
    unit = exactly(strategy)
    if root is not None:
        scaled = strategy / root  # the root is rounded, and so is the quotient
        unit = Enclosure(scaled, np.asarray(up(2 * U * np.abs(scaled), 1)))
    ratio = None
    if cap is not None:
        ratio = ratio_above(up(np.square(row_norms(noising.matrix) * noising.factor), 3), cap)
    return Judged(
        objective=_squares(seen, noising, below),
        sensitivity_squared=sensitivity_above(unit, program.participation, limit=limit),
        variance_ratio=ratio,
        factor=factor,
        strategy=strategy,
        halves=(seen.mid, noising.matrix),
        shapes=(shape, "upper"),
    )


def _squares(seen: Outer | Enclosure, noising: Noising, below: Below | None) -> Interval:
    """Enclose tr(H (C^T C)^-1) by that of L^T L, from L D, and of the rest of H."""
    low = float(np.linalg.norm(seen.mid))
    high = seen.norm() * noising.factor
    upper = float(up(high * high, 2))
    if below is not None and below.left is not None:
        roots = row_norms(noising.matrix) * noising.factor
        left = float(np.einsum("ij,i,j->", below.left.largest, roots, roots))
        upper = float(up(upper + up(left, 2 * len(roots)), 2))
    return Interval(2 * low * low - upper, upper)


def sensitivity_above(
    strategy: Enclosure, participation: Participation, *, limit: float = 1.0
) -> float:
    """Bound every squared sensitivity of C, shape (T, T), from above: by sums of absolute values
    over patterns; where those exceed ``limit``, by the same of products with more bits, or sums of
    y with Diag(y) - X_pi proved positive semidefinite, pattern by pattern."""

    def columns(steps: Steps) -> Enclosure:
        return Enclosure(*(x[:, steps] if x.ndim else x for x in strategy))

    groups = None if participation.random else listed(participation)
    few = SPARSE * sum(group.steps.size * group.steps.shape[1] for group in groups or ())
    if groups is not None and strategy.exact and few < strategy.mid.size:
        return _over_patterns(
            groups, lambda steps: gram_blocks(strategy.mid, steps), columns, limit=limit
        )
    squared = gram(strategy.mid) if strategy.exact else product(strategy.transposed(), strategy)
    return sensitivity_of_gram(squared, participation, columns=columns, limit=limit)


def sensitivity_of_gram(
    m: Enclosure, participation: Participation, *, columns: Columns, limit: float = 1.0
) -> float:
    """:func:`sensitivity_above` for C^T C in ``m`` (T, T); ``columns`` gives those of C."""
    if participation.random:
        raise NotProvedError(RANDOM)
    groups = listed(participation)
    if groups is None:
        absolute = m.largest
        found = float(unlisted_bounds(absolute, participation).upper.max())
        return float(up(found, 4 * len(absolute)))

    def blocks(steps: Steps) -> Enclosure:
        return Enclosure(*(x[steps[:, :, None], steps[:, None, :]] for x in m))

    return _over_patterns(groups, blocks, columns, limit=limit)


def _over_patterns(
    groups: list[Group], blocks: Columns, columns: Columns, *, limit: float
) -> float:
    worst = 0.0
    for group in groups:
        size = group.steps.shape[1]
        for chunk in group.chunks():
            steps = group.steps[chunk]
            # Two roundings each.
            sums = up(blocks(steps).largest.sum(axis=(1, 2)), size * size // 2)
            for j in np.flatnonzero(~(sums <= limit)):
                seen = columns(steps[j])
                block = finer_product(seen.transposed(), seen)
                sums[j] = min(sums[j], float(up(block.largest.sum(), size * size // 2)))
                if not sums[j] <= limit:
                    sums[j] = min(sums[j], _elliptope_above(block))
            worst = float(max(worst, sums.max()))
    return worst


def _elliptope_above(m: Enclosure) -> float:
    """The sum of a y with Diag(y) - M positive semidefinite; infinite where none is proved. The
    radii of M are dominated by the sums of their rows, added to a y for its midpoint."""
    middle = (m.mid + m.mid.T) / 2
    rad = np.asarray(up(np.maximum(m.rad, m.rad.T) + U * np.abs(middle), 2))
    y = block_bounds(middle).dual
    if y is None:
        return math.inf
    try:
        factor_below(exactly(np.diag(y)).minus(exactly(middle)))
    except NotProvedError:
        return math.inf
    return sum_up(up(np.maximum(y, 0.0) + up(rad.sum(axis=1), len(rad)), 1))


# --- bounds -------------------------------------------------------------------------------------


def disjoint_bound(
    program: Program, dual: DualPoint, *, judged: Judged | None = None, enough: float = 0.0
) -> Interval:
    """Bound tr(H X^-1), squared noise, below by the multipliers of (P); NotProvedError otherwise.
    The upper end is about what they prove but for rounding. ``judged`` is nearly optimal noise,
    which makes it quick; a bound better than ``enough`` is not worth its cost."""
    scale = scale_of(dual)
    if not scale > 0:
        raise NotProvedError("the multipliers are no numbers, or zero")
    roots = block_roots(dual.blocks * 2.0 ** -math.frexp(scale)[1])
    prices = up(np.square(roots).sum(axis=2), roots.shape[2]).max(axis=1)
    price = products_up(program.budget, prices)
    paid, gained = 0.0, 0.0
    cap, floor = np.zeros(program.size), None
    if program.cap is not None and dual.cap is not None:
        cap = np.sqrt(np.maximum(dual.cap, 0.0))
        paid = products_up(program.cap, up(np.square(cap), 1))
    if program.floor is not None and dual.floor is not None and (dual.floor > 0).any():
        floor = np.maximum(dual.floor, 0.0)
        gained = products_down(program.floor, floor)
    known = known_factor(program) if floor is None else None
    half: Enclosure | Outer | Rounded
    if known is not None:
        factor, half = _half_known(known, cap, roots, program)
    else:
        factor = _factor(program, cap, floor, judged)
        half = _times_blocks(factor, roots, program)
    guess = None if judged is None else _guess(factor, judged, roots, program, enough=enough)
    target = math.sqrt(max(enough + paid - gained, 0.0) * price)
    norm = nuclear_norm(half, guess=guess, enough=target * (1 - TIGHT))
    return squared_over(norm, price, gained=gained, paid=paid)


def squared_over(
    norm: Interval, price: float, *, gained: float = 0.0, paid: float = 0.0
) -> Interval:
    """norm^2 / price + gained - paid, rounded outwards."""
    low, high = (
        end / price * end * (1 - side * 8 * EPS) for end, side in zip(norm, (1, -1), strict=True)
    )
    room = 4 * EPS * (low + gained + paid) + TINY  # what underflows is off by more than its share
    return Interval(low + gained - paid - room, high + gained - paid + room)


def _factor(program: Program, cap: Array, floor: Array | None, judged: Judged | None) -> Array:
    """L with L^T L <= H + diag(cap^2) - diag(floor)."""
    exact = program.exact_factor
    if floor is None and exact is not None:
        return np.vstack([exact, np.diag(cap)]) if cap.any() else exact
    if floor is None and not cap.any() and judged is not None and judged.factor is not None:
        return judged.factor
    h = symmetric_part(program.gram) if exact is None else gram(exact)
    for extra, sign in ((np.square(cap), 1.0), (floor, -1.0)):
        if extra is not None and extra.any():
            h = h.plus(Enclosure(np.diag(extra), np.diag(up(U * extra, 1))), sign)
    return factor_below(h).factor


class Through(NamedTuple):
    """W and M of H = W^T M W, and L with L^T L <= M."""

    mixing: Array
    inside: Enclosure
    below: Array


def _through(program: Program) -> Through | None:
    """W and M of a nearly singular H in space that is known in entries only, or None."""
    workload = program.workload
    if program.axes != "space" or workload is None or program.exact_factor is not None:
        return None
    if not program.nearly_singular:
        return None
    if (found := inside.inside(workload)) is None:
        return None
    try:
        return Through(*found, factor_below(found[1]).factor)
    except NotProvedError:
        return None


def known_factor(program: Program) -> Enclosure | None:
    """A with A^T A <= H, shape (r, m), of a nearly singular H, from its workload; in time A^T A is
    H."""
    if program.axes == "space":
        through = _through(program)
        return None if through is None else product(through.below, exactly(through.mixing))
    if program.workload is None or program.exact_factor is not None:
        return None
    if not program.nearly_singular:
        return None
    return inside.known_factor(program.workload, pairs=program.axes == "space-time")


def _half_known(
    known: Enclosure, cap: Array, roots: Array, program: Program
) -> tuple[Array, Enclosure]:
    """About L with L^T L = A^T A + diag(cap^2), and L times the matrix with B_j on the patterns."""
    factor, rad = known
    if cap.any():
        more = np.diag(cap)
        factor, rad = np.vstack([factor, more]), np.vstack([rad, np.zeros_like(more)])
    half = _times_blocks(factor, roots, program)
    missed = up(on_patterns(rad, np.abs(roots)), roots.shape[1] + 2)
    if isinstance(half, Rounded):
        rounded = half.roundings * U * np.abs(half.mid)
    else:
        rounded = np.multiply.outer(half.rows, half.columns)
    return factor, Enclosure(half.mid, np.asarray(up(missed + rounded + TINY, 4)))


def _times_blocks(factor: Array, roots: Array, program: Program) -> Outer | Rounded:
    """L times the matrix with B_j on the patterns."""
    if roots.shape[1] == 1:
        return Rounded(factor * roots[:, 0, 0], 1)
    patterns, k = np.asarray(program.participation.patterns), roots.shape[1]
    lengths = np.empty(len(factor.T))
    lengths[patterns] = np.sqrt(np.einsum("jst,jst->jt", roots, roots))
    mid = on_patterns(factor, roots)
    rows = up((k * U) * row_norms(factor), 2)
    return Outer(mid, np.asarray(rows), np.asarray(up(lengths, k + 2)))


def _guess(
    factor: Array, judged: Judged, roots: Array, program: Program, *, enough: float
) -> Array | None:
    """The polar factor, about, of L B, which is L R(U) B^-T = L^-T X(U) B; R(U) and X(U) come from
    a design that is near the optimum, as it is or with its repair undone."""
    above = sum(judged.objective) / 2 / enough - 1 if enough > 0 else math.inf
    with np.errstate(all="ignore"):
        if above > NEAREST and not program.limited:
            found = _of_unrepaired(factor, judged, roots, program)
            if found is not None:
                return found
        if above > NEAR:
            return None
        shaped = judged.shaped_by(factor)
        return None if shaped is None else _over_blocks(shaped, roots)


def _over_blocks(shaped: Array, roots: Array) -> Array | None:
    """A B^-T of A, shape (r, m)."""
    if roots.shape[1] == 1:
        return np.asarray(shaped / roots[:, 0, 0])
    try:
        inverses = np.asarray(np.linalg.inv(roots).transpose(0, 2, 1), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return on_patterns(shaped, inverses)


def _of_unrepaired(factor: Array, judged: Judged, roots: Array, program: Program) -> Array | None:
    """:func:`_guess` of :func:`.unrepaired.unrepaired`; None where nothing is found."""
    if judged.strategy is not None:
        precision = gram_of_triangular(judged.strategy)
    elif judged.precision is not None:
        precision = judged.precision
    else:
        return None
    patterns = np.asarray(program.participation.patterns)
    at = patterns[:, :, None], patterns[:, None, :]
    half = on_patterns(precision, roots)
    h = program.gram[at] if roots.shape[1] > 1 else np.einsum("ij,ij->j", factor, factor)
    found = unrepaired(
        couplings(half, len(patterns)),
        precision[at],
        roots @ roots.transpose(0, 2, 1),
        h.reshape(roots.shape),
    )
    if found is None:
        return None
    scales = np.tile(np.sqrt(found.squares), roots.shape[1])
    if judged.covariance is not None:  # R(U) = R over the scales
        return np.asarray(_scaled_apart(factor, judged, scales) / (roots[:, 0, 0] * scales))
    if judged.shapes[0] == "lower":
        half *= scales[:, None]
        half *= scales
        half[at] += found.added @ roots
        return _linalg.solved_by_triangular(factor.T, half)
    precision = precision * np.multiply.outer(scales, scales)
    precision[at] += found.added
    try:
        covariance = _linalg.inverse_of_positive(precision)
    except np.linalg.LinAlgError:
        return None
    return _over_blocks(factor @ covariance, roots)


def _scaled_apart(factor: Array, judged: Judged, scales: Array) -> Array:
    """L diag(scales)^-1 R, up to a factor."""
    if float(np.ptp(scales)) <= 1e-6 * float(scales[0]):  # a bound loses the square of it
        known = judged.shaped_by(factor)
        assert known is not None
        return known
    assert judged.covariance is not None
    return np.asarray(lean(factor) @ (judged.covariance / scales[:, None]))


def matrix_bound(below: Array, multipliers: Enclosure, price: float, *, enough: float) -> Interval:
    """Bound tr(H X^-1) below by U (m, m) where <U, X> <= ``price`` for every feasible X; ``below``
    is L with L^T L <= H. NotProvedError where U is not proved positive definite."""
    root = factor_below(multipliers).factor
    target = math.sqrt(max(enough, 0.0) * price) * (1 - TIGHT)
    return squared_over(nuclear_norm(product(below, root.T), enough=target), price)
