"""Proved bounds on the elliptope maximum of large or sparse matrices, in the memory of their band.

As for dense blocks, signs are tried first and low-rank unit vectors next; the proof is a Cholesky
factorisation of the band. Where the search has not converged, its y is scaled until the proof runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.sensitivity import signs, unit_vectors
from noisedesign.privacy.sensitivity.elliptope import RANK, SOLVED, Bounds

Sparse = scipy.sparse.csr_array

ROUGH = 1e-3
"""Accuracy asked of Lanczos, whose estimate only starts a bisection: at a clustered end of the
spectrum a few factorisations of the band are cheaper than another digit."""

PRODUCTS = 15_000
"""Most products M V the search may take: seconds for a band."""

WORK = 2 * 10**9
"""Most products times stored entries of M: about ten seconds."""

BAND_ENTRIES = 10**8
"""Largest band (rows times bandwidth) that is factorised: 0.8 GB."""


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
    c, pull = signs.local(m)
    y = c * pull
    best = Bounds(lower=float(y.sum()), upper=_proved(m, y))
    if not best.agree(SOLVED):
        operator = m.toarray() if m.nnz > m.shape[0] ** 2 / 4 else m
        start = unit_vectors.first_guess(m.shape[0], RANK)
        found = unit_vectors.ascend(operator, start, products=min(PRODUCTS, WORK // m.nnz))
        best = best.tightened(Bounds(lower=float(found.y.sum()), upper=_proved(m, found.y)))
    if not best.agree(SOLVED):
        # With y = 1 the bound is k lambda_max: better where the search is far from done.
        feasible = np.maximum(found.y, settings.EPS * found.y.max())
        for dual in (feasible, np.ones(len(y))):
            upper = float(dual.sum()) * certified_multiple(m, dual)
            best = best.tightened(Bounds(lower=-math.inf, upper=upper))
    return Bounds(lower=scale * best.lower, upper=min(absolute, scale * best.upper))


def _proved(m: Sparse, y: Array) -> float:
    """sum(y), raised by a share of ``SOLVED``, where that is proved an upper bound; else inf."""
    if not y.min() > 0:
        return math.inf
    raised = y * (1 + SOLVED / 4)
    scaled = _Scaled.of(m, raised)
    if scaled is None or not scaled.positive_definite(1.0):
        return math.inf
    return float(raised.sum()) * (1 + scaled.rounding(1.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scaled:
    """Diag(y)^-1/2 M Diag(y)^-1/2, and the lower band of its negative, shape (width + 1, k)."""

    matrix: Sparse
    band: Array

    @classmethod
    def of(cls, m: Sparse, y: Array) -> _Scaled | None:
        """None where the band has more than ``BAND_ENTRIES`` entries."""
        root = scipy.sparse.diags_array(1 / np.sqrt(y))
        scaled = (root @ m @ root).tocoo()
        below = scaled.row - scaled.col
        width = int(np.abs(below).max(initial=0))
        if (width + 1) * len(y) > BAND_ENTRIES:
            return None
        band = np.zeros((width + 1, len(y)))
        lower = below >= 0
        band[below[lower], scaled.col[lower]] = -scaled.data[lower]
        return cls(matrix=scaled.tocsr(), band=band)

    def positive_definite(self, t: float) -> bool:
        """Whether Cholesky of t I - matrix runs to its end."""
        return _positive_definite(self.band, t)

    def rounding(self, t: float) -> float:
        """What to add to a t that passed, for the rounding of the factorisation."""
        # As for a dense block; |R|^T |R| has 2 * width + 1 entries in a row at most.
        width, k = len(self.band) - 1, self.band.shape[1]
        peak = float((t + self.band[0]).max())
        return float(2 * (width + 5) * settings.EPS * min(2 * width + 1, k) * peak)


def certified_multiple(m: Sparse, y: Array) -> float:
    """A t, nearly the least, with t Diag(y) - M proved positive semidefinite; y > 0, shape (k,).

    t sum(y) is an upper bound on the elliptope maximum, and with y = 1 t is one on the largest
    eigenvalue, of which Lanczos estimates alone are lower bounds. Infinite where the band has more
    than ``BAND_ENTRIES`` entries.
    """
    scaled = _Scaled.of(m, y)
    if scaled is None:
        return math.inf
    # What dominates every row is positive semidefinite without a proof by factorisation.
    dominant = float(abs(scaled.matrix).sum(axis=1).max()) * (1 + settings.rank_tolerance(len(y)))
    failed, step = _largest_eigenvalue(scaled.matrix), settings.sqrt_eps() * dominant
    while failed + step < dominant and not scaled.positive_definite(failed + step):
        failed, step = failed + step, 10 * step
    passed = min(failed + step, dominant)
    while passed - failed > SOLVED / 4 * passed:
        middle = (failed + passed) / 2
        if scaled.positive_definite(middle):
            passed = middle
        else:
            failed = middle
    return min(passed + scaled.rounding(passed), dominant)


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
