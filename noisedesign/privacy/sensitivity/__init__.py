"""Squared sensitivity of a strategy to unit-norm vector gradients, over a participation scheme.

For one pattern and M (C^T C, or the Gram matrix of what an observer sees) restricted to it,
gradients of norm at most one can move the messages by

    max <M, Y>  over positive semidefinite Y with unit diagonal   (the elliptope),

exactly, when the gradient dimension is at least the size of the pattern. Every number here is
squared. Four are in use, and none may stand for another:

    max_signs c^T M c  <=  elliptope  <=  min( |pattern| lambda_max(M),  sum |M_st| ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError, describe, symmetric_matrix
from noisedesign.privacy.sensitivity.elliptope_sparse import Sparse
from noisedesign.privacy.sensitivity.pattern_bounds import (
    AGREEMENT,
    Gram,
    largest_eigenvalue,
    listed,
    listed_bounds,
    scalar,
    spectral,
    unlisted_bounds,
)
from noisedesign.system.participation import Participation

EXACT = "vector-exact"
UPPER_BOUND = "vector-upper-bound"
SPECTRAL_UPPER_BOUND = "spectral-upper-bound"
ABS_SUM_UPPER_BOUND = "abs-sum-upper-bound"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivity:
    """Squared sensitivity, and which number it is.

    Attributes:
        per_pattern: an upper bound for every pattern, squared, in the order of the scheme. The
            largest is what ``kind`` says; patterns that cannot be the worst may carry a looser
            bound below it. One entry alone where patterns are too many to be listed.
        kind: "vector-exact", the elliptope maximum to a relative ``AGREEMENT``, rounded up;
            "vector-upper-bound", a dual certificate (or a ceiling) above it;
            "spectral-upper-bound", |pattern| lambda_max; "abs-sum-upper-bound", sums of absolute
            values.
    """

    per_pattern: Array
    kind: str

    @property
    def squared(self) -> float:
        """The largest squared sensitivity over the patterns."""
        return float(self.per_pattern.max())


@dataclass(frozen=True, kw_only=True)
class FourNumbers:
    """The largest over the patterns of each of four numbers, all squared, in ascending order.

    Attributes:
        scalar_exact: max of c^T M c over sign vectors c: exact for scalar contributions and *no
            bound* for vectors. None where it would take too many sign vectors.
        vector: elliptope maximum, or an upper bound on it.
        vector_exact: whether it is the maximum itself, to a relative ``AGREEMENT``.
        spectral_upper_bound: |pattern| lambda_max(M).
        abs_sum_upper_bound: sum of |M_st|.
    """

    scalar_exact: float | None
    vector: float
    vector_exact: bool
    spectral_upper_bound: float
    abs_sum_upper_bound: float


def squared_sensitivity(
    gram: Gram, participation: Participation, *, ceiling: float | None = None
) -> Sensitivity:
    """Squared sensitivity under ``participation`` to unit-norm vectors, of M = ``gram``.

    M is the Gram matrix of a strategy, C^T C, or of a view: squared changes per squared unit
    gradient, in units of the noise.

    Sources: Choquette-Choo et al. (2023), with the bound on the square (Mafalda-SGD, equation (8),
    prints it without one) and vector gradients through the elliptope; Koskela and Kulkarni for
    grams of a view.

    Args:
        gram: symmetric positive semidefinite, shape (T, T), T the horizon; a float64 array, or a
            scipy.sparse one for long horizons, which is never made dense as a whole.
        ceiling: a number already known to bound the squared sensitivity, such as that of an
            observer who sees more. One below what gradients are proved to attain is wrong, and
            ignored.

    Raises:
        InputError: ``gram`` is not such a matrix, or ``ceiling`` is negative or not a number.
    """
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


def four_numbers(gram: Gram, participation: Participation) -> FourNumbers:
    """The four numbers of :class:`FourNumbers`, each over the worst of its patterns, squared.

    Where a min-separation scheme has too many patterns to list, the last two bound every pattern
    at once, and so does ``vector``.

    Args and errors as in :func:`squared_sensitivity`.
    """
    m = _checked(gram, participation.horizon)
    groups = listed(participation)
    signs: float | None
    if groups is not None:
        bounds = listed_bounds(m, groups)
        largest = spectral(m, groups)
        signs = scalar(m, groups, bounds)
    else:
        bounds = unlisted_bounds(m, participation)
        largest = participation.largest_size * largest_eigenvalue(m)
        # The lower bound is one that signs attain.
        signs = math.inf if bounds.agree else None
    absolute = float(bounds.absolute.max())
    vector = min(float(bounds.upper.max()), largest, absolute)
    attained = float(bounds.lower.max())
    return FourNumbers(
        scalar_exact=None if signs is None else min(signs, vector),
        vector=vector,
        vector_exact=vector - attained <= AGREEMENT * vector,
        spectral_upper_bound=largest,
        abs_sum_upper_bound=absolute,
    )


# --- input ----------------------------------------------------------------------------------------


def _checked(gram: Gram, horizon: int) -> Gram:
    m: Gram
    if scipy.sparse.issparse(gram):
        m = _checked_sparse(gram)
    else:
        m = symmetric_matrix(gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE)
    if m.shape != (horizon, horizon):
        raise InputError(
            "gram",
            expected=f"shape ({horizon}, {horizon}), the horizon of the participation",
            got=f"shape {m.shape}",
        )
    diagonal = m.diagonal()
    if diagonal.min() < -settings.GRAM_NEGATIVITY * np.abs(diagonal).max():
        raise InputError(
            "gram",
            expected="a Gram matrix, with nonnegative diagonal",
            got=f"{diagonal.min():.6g} at step {int(diagonal.argmin())}",
        )
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
        raise InputError(
            "gram", expected="a symmetric matrix", got=f"entries that differ by {gap:.6g}"
        )
    return m


def _checked_ceiling(value: float) -> float:
    numeric = isinstance(value, (int, float, np.floating, np.integer))
    if not numeric or isinstance(value, bool) or not value >= 0:
        raise InputError("ceiling", expected="a squared sensitivity >= 0", got=describe(value))
    return float(value)
