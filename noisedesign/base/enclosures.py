"""Matrices known up to proved errors: a midpoint and a radius for every entry.

What is asked of the machine is IEEE 754 double precision, rounding to nearest, and that a product
of matrices is sums of products, in any order, fused or not (no Strassen);
docs/mathematics/verification.md, theorem K, has the bound on its error. Radii are themselves
rounded up. Results that underflow are off by less than ``TINY`` for every addition, which is added
as well. What is not finite compares false: every claim is written so that it then fails."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg.blas
import scipy.linalg.lapack
import scipy.sparse
from numpy.typing import NDArray

from noisedesign.base.checks import Array

EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
U = EPS / 2

PIECE, LONG = 64, 512  # products summed at a time: shorter pieces err less, longer are quicker
Shapes = tuple[str, str]  # triangles of the factors of a product, "lower", "upper" or ""
FULL: Shapes = ("", "")
Lean = NDArray[np.float64] | scipy.sparse.csr_array

OTHER = {"lower": "upper", "upper": "lower", "": ""}  # the triangle of the transpose
SPARSE = 16  # products leave zeros out from so many entries to every nonzero one on
BITS = 53  # bits of the significand: integers up to 2^53 are sums of integers without rounding


def up(values: Any, operations: int) -> Any:
    """Round up nonnegative numbers that took so many roundings, each at most."""
    return values * (1 + (operations + 1) * EPS) + (operations + 1) * TINY


def row_norms(a: Array) -> Array:
    """Euclidean norms of the rows, rounded up."""
    squares = np.einsum("ij,ij->i", a, a)
    return np.asarray(up(np.sqrt(up(squares, a.shape[1])), 1))


def column_norms(a: Array) -> Array:
    """Euclidean norms of the columns, rounded up."""
    squares = np.einsum("ij,ij->j", a, a)
    return np.asarray(up(np.sqrt(up(squares, len(a))), 1))


class Enclosure(NamedTuple):
    """All matrices within ``rad`` of ``mid``, entry by entry. One number is the radius of all."""

    mid: Array
    rad: Array

    @property
    def largest(self) -> Array:
        """Bounds on the absolute values of the entries."""
        found = np.abs(self.mid)
        return found if self.exact else np.asarray(up(found + self.rad, 1))

    @property
    def exact(self) -> bool:
        """Whether there is one such matrix."""
        return self.rad.ndim == 0 and not self.rad

    def transposed(self) -> Enclosure:
        """Enclose the transposes."""
        return Enclosure(self.mid.T, self.rad.T)

    def norm(self) -> float:
        """No matrix has a larger Frobenius norm."""
        return float(up(np.linalg.norm(row_norms(self.largest)), len(self.mid)))

    def column_norms(self) -> Array:
        """No column of a matrix has a larger norm."""
        return column_norms(self.largest)

    def weighed(self, a: Array) -> Array:
        """sum_j a_ij rad_ji, a symmetric and nonnegative, not yet rounded up."""
        return np.asarray(np.einsum("ji,ji->i", a, self.rad))

    def row_norms(self) -> Array:
        """No row of a matrix has a larger norm."""
        return row_norms(self.mid if self.exact else self.largest)

    def scaled(self, units: Array) -> Enclosure:
        """Multiply rows and columns by powers of two, which round nothing."""
        if self.exact and (units == 1).all():
            return self
        factors = np.multiply.outer(units, units)
        return Enclosure(self.mid * factors, self.rad if self.exact else self.rad * factors)

    def scaled_by(self, factor: float) -> Enclosure:
        """Enclose the products with a positive number."""
        mid = factor * self.mid
        return Enclosure(mid, np.asarray(up(factor * self.rad + U * np.abs(mid), 2)))

    def plus(self, other: Enclosure, sign: float = 1.0) -> Enclosure:
        """Enclose the sums, or the differences where ``sign`` is -1."""
        mid = self.mid + sign * other.mid
        return Enclosure(mid, np.asarray(up(self.rad + other.rad + U * np.abs(mid), 3)))

    def minus(self, other: Enclosure) -> Enclosure:
        """Enclose the differences."""
        return self.plus(other, -1.0)


class Rounded(NamedTuple):
    """All matrices whose entries took so many roundings, each at most, to become ``mid``."""

    mid: Array
    roundings: int


class Outer(NamedTuple):
    """All matrices within rows_i columns_j + TINY of ``mid``, without an array of radii."""

    mid: Array
    rows: Array
    columns: Array

    def norm(self) -> float:
        """No matrix has a larger Frobenius norm."""
        size = len(self.mid)
        inside = up(np.linalg.norm(self.mid), self.mid.size)
        spread = up(_norm(self.rows) * _norm(self.columns), size)
        return float(up(inside + spread + TINY * self.mid.size, 3))

    def column_norms(self) -> Array:
        """No column of a matrix has a larger norm."""
        spread = self.columns * _norm(self.rows) + TINY * len(self.mid)
        return np.asarray(up(column_norms(self.mid) + spread, 3))

    def weighed(self, a: Array) -> Array:
        """sum_j a_ij rad_ji, a symmetric and nonnegative, not yet rounded up."""
        return np.asarray((a @ self.rows) * self.columns + TINY * a.sum(axis=1))


def _norm(a: Array) -> float:
    return float(up(np.linalg.norm(a), a.size))


def exactly(a: Array) -> Enclosure:
    """Enclose this matrix alone."""
    return Enclosure(a, np.zeros(()))


def symmetric_part(a: Array) -> Enclosure:
    """Enclose (A + A^T) / 2; it is A itself where that is symmetric."""
    if (a == a.T).all():
        return exactly(a)
    mid = (a + a.T) / 2
    return Enclosure(mid, np.asarray(up(U * np.abs(mid), 1)))


def outer_product(
    a: Array, b: Array, *, piece: int = PIECE, shapes: Shapes = FULL, few: Lean | None = None
) -> Outer:
    """Enclose A B; ``few`` is :func:`lean` of A where that is known."""
    mid, depth = _summed(a, b, piece, shapes, few)
    return Outer(mid, np.asarray(up((depth + 1) * U * row_norms(a), 2)), column_norms(b))


def product(a: Enclosure | Array, b: Enclosure | Array) -> Enclosure:
    """Enclose all products A B."""
    a, b = (m if isinstance(m, Enclosure) else exactly(m) for m in (a, b))
    mid, depth = _summed(a.mid, b.mid)
    rows, columns = row_norms(a.mid), column_norms(b.mid)
    rad = (U * (depth + 1)) * np.multiply.outer(rows, columns)
    if not b.exact:
        spread = column_norms(b.rad)
        rad += np.multiply.outer(rows, spread)
        columns = np.asarray(up(columns + spread, 1))
    if not a.exact:
        rad += np.multiply.outer(row_norms(a.rad), columns)
    return Enclosure(mid, np.asarray(up(rad, depth + 8)))


def _summed(
    a: Array, b: Array, piece: int = PIECE, shapes: Shapes = FULL, few: Lean | None = None
) -> tuple[Array, int]:
    """Return A B, and through how many roundings a product passes at most."""
    length = a.shape[1]
    if few is None and length > PIECE:
        few = lean(a)
    if isinstance(few, scipy.sparse.csr_array):
        return np.asarray(few @ b), int(np.diff(few.indptr).max())
    if length <= piece:
        return a @ b, length
    total = np.zeros((len(a), b.shape[1]))
    scratch = np.empty(total.size)
    for start in range(0, length, piece):
        end = min(start + piece, length)
        filled = {"lower": slice(start, None), "upper": slice(0, end)}  # what is not all zeros
        rows, columns = (filled.get(s, slice(None)) for s in (shapes[0], OTHER[shapes[1]]))
        here = total[rows, columns]
        part = scratch[: here.size].reshape(here.shape)
        here += np.matmul(a[rows, start:end], b[start:end, columns], out=part)
    return total, piece + -(-length // piece)


def times(a: Array, b: Array, *, shapes: Shapes = FULL) -> Array:
    """A B, in sums of any order."""
    if shapes[1] == "upper":  # half a product, by the routine for that
        flipped = scipy.linalg.blas.dtrmm(1.0, b, a.T, trans_a=1)
        return np.asarray(flipped.T)
    return _summed(a, b, LONG if shapes == FULL else 4 * PIECE, shapes)[0]


def gram_of_triangular(lower: Array) -> Array:
    """C^T C of C lower triangular, shape (n, n), in sums of any order, zeros left out."""
    half: Array = scipy.linalg.lapack.dlauum(lower.T, lower=0)[0].T
    found: Array = half + half.T
    found[np.diag_indices(len(found))] = np.diagonal(half)
    return found


def lean(a: Array) -> Lean:
    """Return a matrix without its zeros, where those are most of it."""
    return scipy.sparse.csr_array(a) if SPARSE * np.count_nonzero(a) < a.size else a


def gram(a: Array) -> Enclosure:
    """Enclose A^T A, exactly symmetric."""
    columns = column_norms(a)
    mid, depth = _summed(a.T, a, 4 * PIECE)
    rad = (U * (depth + 1)) * np.multiply.outer(columns, columns)
    return Enclosure(mid, np.asarray(up(rad, 8)))


def gram_blocks(a: Array, columns: NDArray[np.intp]) -> Enclosure:
    """Enclose the blocks of A^T A on some columns each, shape (p, k), as an array (p, k, k)."""
    length, k = len(a), columns.shape[1]
    mid = np.zeros((len(columns), k, k))
    for start in range(0, length, PIECE):
        part = np.ascontiguousarray(a[start : start + PIECE][:, columns].transpose(1, 2, 0))
        mid += part @ part.transpose(0, 2, 1)
    depth = min(length, PIECE) + -(-length // PIECE)
    norms = column_norms(a)[columns]
    rad = (U * (depth + 1)) * (norms[:, :, None] * norms[:, None, :])
    return Enclosure(mid, np.asarray(up(rad, 8)))


class Contraction(NamedTuple):
    """Z, and a bound on its largest singular value, about 1."""

    matrix: Array
    norm: float


def contraction(z: Array, *, scale: float = 1.0) -> tuple[Contraction, float] | None:
    """Z (3 I - Z^T Z) / 2, nearer to orthogonal, and how far Z is from it, None where 1 or more."""
    # Singular values s become s (3 - s^2) / 2, at most 1 where s is at most 2: no further product.
    tall = z if z.shape[0] >= z.shape[1] else z.T
    size, whole = tall.shape[1], _norm(z) * scale
    square, depth = _summed(tall.T, tall, LONG)
    rounded = (depth + 4) * U * whole * whole + TINY * square.size
    square *= -0.5 * scale * scale
    square[np.diag_indices(size)] += 0.5
    away = 2 * _norm(square)
    if not away + rounded < 1:
        return None
    square[np.diag_indices(size)] += 1
    square *= scale
    found, depth = _summed(tall, square, LONG)
    root = math.sqrt(size)
    # What the square is off by, and 3 I less it, times Z of norm below the root of 2; the product.
    error = math.sqrt(2) * (rounded / 2 + 4 * U * root)
    error += (depth + 3) * U * whole * (root + away + rounded) + TINY * z.size * size
    norm = float(up(1 + float(up(error, 16)), 2))
    return Contraction(found if tall is z else found.T, norm), away


def residual(target: Enclosure, a: Array, b: Array) -> Enclosure:
    """Enclose T - A B, as if the product were computed with 20 bits more, by three products."""
    # Leading parts, cut at a power of two for each row and column, have products without rounding.
    length = a.shape[1]
    bits = (BITS - math.ceil(math.log2(max(length, 1)))) // 2
    a_high, b_high = _leading(a, bits, axis=1), _leading(b, bits, axis=0)
    a_low, b_low = a - a_high, b - b_high  # exact
    first = target.mid - _summed(a_high, b_high, LONG)[0]
    rest, _ = _summed(a_high, b_low, LONG)
    rest += _summed(a_low, b, LONG)[0]
    mid = first - rest
    rad = U * (np.abs(first) + np.abs(mid) + np.abs(rest)) + target.rad
    low = (U * (length + 1)) * np.multiply.outer(row_norms(a_high), column_norms(b_low))
    low += (U * (length + 1)) * np.multiply.outer(row_norms(a_low), column_norms(b))
    return Enclosure(mid, np.asarray(up(rad + low, length + 16)))


def gram_residual(target: Enclosure, a: Array, *, shape: str = "") -> Enclosure:
    """Enclose T - A^T A, T symmetric, as :func:`residual`, by half a product and one more."""
    # With A = H + L, cut as there, it is T - H^T H less L^T (H + L / 2) and the transpose of that.
    length = len(a)
    bits = (BITS - math.ceil(math.log2(max(length, 1)))) // 2
    high = _leading(a, bits, axis=0)
    low = a - high  # exact
    first = target.mid - high.T @ high
    high += low / 2
    rest = times(low.T, high, shapes=(OTHER[shape], shape))
    rest = rest + rest.T
    mid = first - rest
    rad = np.abs(first)
    rad += np.abs(mid)
    rad += np.abs(rest)
    rad *= U
    spread = np.multiply.outer((U * (length + 3)) * column_norms(low), column_norms(high))
    rad += spread
    rad += spread.T
    rad += target.rad
    return Enclosure(mid, np.asarray(up(rad, length + 16)))


def finer_product(a: Enclosure, b: Enclosure) -> Enclosure:
    """Enclose products as :func:`product` does, with hardly more error than the factors have."""
    zero = np.zeros((len(a.mid), b.mid.shape[1]))
    found = residual(exactly(zero), a.mid, b.mid)
    rad = np.asarray(found.rad)
    if not b.exact:
        rad = rad + np.abs(a.mid) @ b.rad
    if not a.exact:
        rad = rad + a.rad @ b.largest
    return Enclosure(-found.mid, np.asarray(up(rad, a.mid.shape[1] + 8)))


def _leading(a: Array, bits: int, *, axis: int) -> Array:
    """The leading bits of every entry, from the largest along the axis; the rest is exact."""
    _, exponents = np.frexp(np.abs(a).max(axis=axis, keepdims=True))
    # So large that what is added to it keeps no bit below 2^(exponent - bits).
    shift = np.ldexp(1.5, exponents + (BITS - 1 - bits))
    return np.asarray((a + shift) - shift)


# --- sums ---------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A number between two others."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        return self.upper - self.lower


def inner(a: Enclosure | Outer | Rounded, b: Array) -> Interval:
    """Sum of a_ij b_ij: of sums over rows, whose errors their norms bound."""
    rows = np.einsum("ij,ij->i", a.mid, b)
    depth = b.shape[1] + (a.roundings if isinstance(a, Rounded) else 0)
    norms = row_norms(b)
    error = (depth + 1) * U * float(row_norms(a.mid) @ norms) + 2 * b.size * TINY
    if isinstance(a, Outer):
        error += float(a.rows @ norms) * _norm(a.columns)
        error += TINY * math.sqrt(b.size) * _norm(norms)
    elif isinstance(a, Enclosure) and not a.exact:
        error += float(np.einsum("ij,ij->i", a.rad, np.abs(b)).sum())
    error = float(up(error, b.size))
    middle = math.fsum(rows.tolist())
    lower, upper = middle - error, middle + error
    return Interval(math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf))


def sum_up(values: Array) -> float:
    """The sum of nonnegative numbers, rounded up."""
    return math.nextafter(math.fsum(values.ravel().tolist()), math.inf)


def products_up(a: Array, b: Array) -> float:
    """The sum of products of nonnegative numbers, rounded up."""
    return sum_up(up(a * b, 1))


def products_down(a: Array, b: Array) -> float:
    """The sum of products of nonnegative numbers, rounded down."""
    total = math.fsum((a * b * (1 - 2 * EPS)).ravel().tolist())
    return math.nextafter(total, -math.inf) - a.size * TINY


def definite_inverse(a: Enclosure) -> tuple[Array, float] | None:
    """Y about A^-1, and a bound of their distance; None where A is not proved definite."""
    # With Y' = M^T M, ||I - A Y'|| < 1 puts the eigenvalues of M A M^T, those of A Y', in (0, 2).
    size, mid = len(a.mid), (a.mid + a.mid.T) / 2
    try:
        root = np.linalg.inv(np.linalg.cholesky(mid))
    except np.linalg.LinAlgError:
        return None
    y = root.T @ root
    y = (y + y.T) / 2
    # |Y - M^T M| is at most (size + 2) u |M|^T |M|.
    rounded = (size + 3) * U * _norm(column_norms(root)) ** 2
    left = exactly(np.eye(size)).minus(product(a, y)).norm()
    if not up(left + rounded * a.norm(), 4) < 1:
        return None
    away = _norm(row_norms(y)) * left / (1 - left)
    return y, float(up(away, 8))


def spectral_norm_above(a: Array) -> float:
    """No less than the largest singular value of A, (r, m), by discs about those of A Q."""
    _, basis = np.linalg.eigh(a.T @ a)
    # ||A x|| <= ||A Q|| ||Q^-1 x||, and ||Q^-1||^2 <= 1 / (1 - ||I - Q^T Q||).
    away = exactly(np.eye(len(basis))).minus(gram(basis)).norm()
    turned = product(a, basis)
    squares = product(turned.transposed(), turned).largest
    largest = float(up(squares.sum(axis=1), len(basis)).max())
    return float(up(math.sqrt(largest / (1 - away)), 4)) if away < 0.5 else math.inf


def nuclear_norm_above(a: Array) -> float:
    """No less than the sum of the singular values of A, (m, m), by pieces of rank one."""
    left, values, right = np.linalg.svd(a)
    left = left * values
    rest = residual(exactly(a), left, right).norm()
    pieces = products_up(column_norms(left), row_norms(right))
    return float(up(pieces + math.sqrt(len(a)) * rest, 4))
