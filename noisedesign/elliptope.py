"""Proved bounds on the elliptope maximum max <M, Y>, Y positive semidefinite with unit diagonal.

The dual is min sum(y) over y with Diag(y) - M positive semidefinite. A correlation matrix Y bounds
the maximum from below, a feasible y from above; where they agree, the maximum is known. The lower
bound is attained by unit vectors, up to rounding. The upper bound is proved by a Cholesky
factorisation that ran to its end, with the rounding of that factorisation added: it holds whether
or not the search for y has converged.

Two searches, and any symmetric M: an interior-point method where M is a dense block of moderate
size, and a quasi-Newton ascent on low-rank factors Y = V V^T where M is large or sparse.

Sources: Helmberg, Rendl, Vanderbei and Wolkowicz (1996), "An interior-point method for
semidefinite programming"; Burer and Monteiro (2003) for low rank; Rump (2006), "Verification of
positive definiteness".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from scipy.linalg import lapack

from noisedesign import settings
from noisedesign._checks import Array

Sparse = scipy.sparse.csr_array

SOLVED = 1e-9
"""Relative gap between the two bounds at which the search stops. The rounding added to the upper
bound is k^2 EPS of it at most, 6e-11 at the largest block."""

BLOCK_LIMIT = 512
"""Largest dense block for the interior-point method: about a second there, growing with its
cube."""

NEWTON_STEPS = 100
"""Cap on its iterations; 12 to 25 are usual, at any size."""

TO_THE_BOUNDARY = 0.95
"""Share of the way to the boundary of the cone that one step may go."""

RANK_LIMIT = 32
"""Largest rank of the ascent. sqrt(2 k) + 2 rules out spurious maxima for almost every M; a long
horizon does with less, at the price of an upper bound that may be less tight."""

ASCENT_STEPS = 500
"""Cap on quasi-Newton steps of the ascent: on banded matrices of 10,000 steps the bounds then agree
to 1e-4 or better, and a step takes some hundredths of a second."""

ROUGH = 1e-3
"""Accuracy asked of Lanczos, whose estimate only starts a bisection: at a clustered end of the
spectrum a few factorisations of the band are cheaper than another digit."""

BAND_ENTRIES = 10**8
"""Largest band (rows times bandwidth) that is factorised: 0.8 GB."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """lower <= max <M, Y> <= upper, both proved."""

    lower: float
    upper: float

    def agree(self, tolerance: float) -> bool:
        """Whether the bounds coincide to ``tolerance``, relative to the upper one."""
        return math.isfinite(self.upper) and self.upper - self.lower <= tolerance * self.upper


def block_bounds(block: Array, *, enough: float = -math.inf) -> Bounds:
    """Bounds for a dense symmetric block, shape (k, k), to a relative gap of ``SOLVED``.

    Signs are tried first; where they are not optimal, a primal-dual interior-point method. Y stays
    positive definite with unit diagonal and y feasible throughout, so it may stop at any time.

    Args:
        enough: stop as soon as the upper bound is at or below this.
    """
    k = len(block)
    scale = float(np.abs(block).max())
    if scale == 0:
        return Bounds(lower=0.0, upper=0.0)
    m = block / scale
    signed = _signed_bounds(m)
    if signed.agree(SOLVED):
        return Bounds(lower=scale * signed.lower, upper=scale * signed.upper)
    rows = np.abs(m).sum(axis=1)
    y = 1.1 * rows + 0.1 * rows.mean()  # strictly dominant: feasible, and off the boundary
    slack, correlation = np.diag(y) - m, np.eye(k)
    best, target = _ends(m, y, correlation), 0.5
    for _ in range(NEWTON_STEPS):
        if best.agree(SOLVED) or best.upper * scale <= enough:
            break
        mu = target * float(np.sum(slack * correlation)) / k
        direction = _direction(slack, correlation, mu)
        if direction is None:
            break
        d_y, d_correlation = direction
        primal = _step(correlation, d_correlation)
        dual = _step(slack, np.diag(d_y))
        correlation = correlation + primal * d_correlation
        y = y + dual * d_y
        slack = np.diag(y) - m
        # Short steps mean that the iterate is off centre: aim for the centre first.
        target = 0.1 if primal + dual > 1.8 else 0.5
        found = _ends(m, y, correlation)
        best = Bounds(lower=max(best.lower, found.lower), upper=min(best.upper, found.upper))
    return Bounds(lower=scale * best.lower, upper=scale * best.upper)


def _signed_bounds(m: Array) -> Bounds:
    """Bounds from signs c that no single flip improves, with y_i = c_i (M c)_i.

    Where Diag(y) - M is positive semidefinite the maximum is attained at Y = c c^T. Its null vector
    c keeps a Cholesky factorisation from proving that, so y is raised by a share of ``SOLVED``.
    """
    k = len(m)
    signs = np.ones(k)
    pull, diagonal = m.sum(axis=1), np.diagonal(m)
    for _ in range(k):
        gain = diagonal - signs * pull  # half of what flipping i adds to the value, over two
        worst = int(gain.argmax())
        if gain[worst] <= 0:
            break
        signs[worst] = -signs[worst]
        pull = pull + 2 * signs[worst] * m[:, worst]
    y = signs * pull
    raised = y + max(float(y.sum()), 0.0) * SOLVED / (4 * k)
    return _ends(m, raised, np.multiply.outer(signs, signs))


def _direction(slack: Array, correlation: Array, mu: float) -> tuple[Array, Array] | None:
    """Newton direction of (y, Y) for slack Y = mu I, or None where rounding defeats it."""
    root, failed = lapack.dpotrf(slack, lower=1)
    if failed:
        return None
    inverse, _ = lapack.dpotri(root, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    _, d_y, failed = lapack.dposv(inverse * correlation, mu * np.diagonal(inverse) - 1)
    if failed or not np.isfinite(d_y).all():
        return None
    product = inverse @ (d_y[:, None] * correlation)
    return d_y, mu * inverse - correlation - (product + product.T) / 2


def _step(matrix: Array, direction: Array) -> float:
    """A step that keeps ``matrix`` positive definite, at most 1; 0 where there is none."""
    length = 1.0
    while length > settings.EPS:
        _, failed = lapack.dpotrf(matrix + length * direction, lower=1)
        if not failed:
            return length if length == 1.0 else TO_THE_BOUNDARY * length
        length *= 0.8
    return 0.0


def _ends(m: Array, y: Array, correlation: Array) -> Bounds:
    """Both bounds, of an iterate that is feasible up to rounding."""
    k = len(m)
    root = 1 / np.sqrt(np.diagonal(correlation))
    lower = float(root @ (m * correlation) @ root)
    slack = np.diag(y) - m
    _, failed = lapack.dpotrf(slack, lower=1)
    if failed:
        return Bounds(lower=lower, upper=math.inf)
    # Least eigenvalue of a matrix that passed Cholesky: not below -(k + 1) EPS trace, to first
    # order; twice that, and two more for the roundings of the difference.
    rounding = 2 * (k + 3) * settings.EPS * float(np.trace(slack))
    return Bounds(lower=lower, upper=float(y.sum()) + k * rounding)


# --- large or sparse ------------------------------------------------------------------------------


def sparse_bounds(m: Sparse) -> Bounds:
    """Bounds for a large symmetric matrix, shape (k, k), in memory of its band.

    Where the band has more than ``BAND_ENTRIES`` entries the upper bound is the sum of absolute
    values.
    """
    absolute = float(abs(m).sum())
    scale = float(abs(m).max())
    if scale == 0:
        return Bounds(lower=0.0, upper=0.0)
    m = Sparse(m / scale)
    v = _ascent(m)
    pull = m @ v
    lower = float(np.sum(pull * v))
    diagonal = m.diagonal()
    # Stationary v_i are parallel to sum_{j != i} M_ij v_j, and the dual optimum is its length.
    y = diagonal + np.linalg.norm(pull - diagonal[:, None] * v, axis=1)
    y = np.maximum(y, settings.EPS * y.max())
    # With y = 1 instead the bound is k lambda_max: better where the ascent is far from done.
    duals = [float(d.sum()) * certified_multiple(m, d) for d in (y, np.ones(len(y)))]
    return Bounds(lower=scale * lower, upper=min(absolute, scale * min(duals)))


def _ascent(m: Sparse) -> Array:
    """Unit vectors, shape (k, rank), that (locally) maximise <M, V V^T>."""
    k = m.shape[0]
    operator = m.toarray() if m.nnz > k * k / 4 else m
    rank = min(math.ceil(math.sqrt(2 * k)) + 2, RANK_LIMIT)
    start = 0.1 * np.random.default_rng(0).standard_normal((k, rank))
    start[:, 0] += 1.0

    def negative(x: Array) -> tuple[float, Array]:
        raw = x.reshape(k, rank)
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
        v = raw / norms
        pull = operator @ v
        along = np.sum(pull * v, axis=1, keepdims=True)
        return -float(along.sum()), (-2 * (pull - along * v) / norms).ravel()

    found = scipy.optimize.minimize(
        negative, start.ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": ASCENT_STEPS, "maxfun": 2 * ASCENT_STEPS, "maxcor": 20,
                 "ftol": settings.EPS, "gtol": SOLVED},
    )  # fmt: skip
    raw = found.x.reshape(k, rank)
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True))


def certified_multiple(m: Sparse, y: Array) -> float:
    """A t, nearly the least, with t Diag(y) - M proved positive semidefinite; y > 0, shape (k,).

    t sum(y) is an upper bound on the elliptope maximum, and with y = 1 t is one on the largest
    eigenvalue, of which Lanczos estimates alone are lower bounds. Infinite where the band has more
    than ``BAND_ENTRIES`` entries.
    """
    root = scipy.sparse.diags_array(1 / np.sqrt(y))
    scaled = (root @ m @ root).tocoo()
    k = len(y)
    below = scaled.row - scaled.col
    width = int(np.abs(below).max(initial=0))
    if (width + 1) * k > BAND_ENTRIES:
        return math.inf
    band = np.zeros((width + 1, k))
    lower = below >= 0
    band[below[lower], scaled.col[lower]] = -scaled.data[lower]
    # What dominates every row is positive semidefinite without a proof by factorisation.
    dominant = float(abs(scaled).sum(axis=1).max()) * (1 + settings.rank_tolerance(k))
    failed, step = _largest_eigenvalue(scaled.tocsr()), settings.sqrt_eps() * dominant
    while failed + step < dominant and not _positive_definite(band, failed + step):
        failed, step = failed + step, 10 * step
    passed = min(failed + step, dominant)
    while passed - failed > SOLVED / 4 * passed:
        middle = (failed + passed) / 2
        if _positive_definite(band, middle):
            passed = middle
        else:
            failed = middle
    # As for a dense block; |R|^T |R| has 2 * width + 1 entries in a row at most.
    peak = float((passed + band[0]).max())
    return min(passed + 2 * (width + 5) * settings.EPS * min(2 * width + 1, k) * peak, dominant)


def _positive_definite(band: Array, shift: float) -> bool:
    """Whether Cholesky runs to its end, on a lower band with ``shift`` added to the diagonal."""
    trial = band.copy()
    trial[0] += shift
    try:
        scipy.linalg.cholesky_banded(trial, overwrite_ab=True, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _largest_eigenvalue(m: Sparse) -> float:
    """A lower estimate of the largest eigenvalue of M (a Rayleigh quotient)."""
    start = np.random.default_rng(0).standard_normal(m.shape[0])
    try:
        _, vectors = scipy.sparse.linalg.eigsh(m, k=1, which="LA", v0=start, tol=ROUGH)
        vector = vectors[:, 0]
    except scipy.sparse.linalg.ArpackNoConvergence:
        vector = start
    return float(vector @ (m @ vector) / (vector @ vector))
