"""Exact sensitivity Grams through the stationary filter, at a cost linear in the horizon.

The innovations of :mod:`noisedesign.privacy.views.innovations` need gains that vary with time only
because the models start from a known state. Had the state started with the stationary prediction
error covariance P, the filter would not vary: closed loop F, information J = H^T Lambda^-1 H, and
with O_s = J + F^T O_{s+1} F, O_T = 0,

    M_u[s, s'] = (O_{s'} F^(s' - s))_uu                        for s <= s'.

Knowing the start instead adds what a rank n update of the covariance of the observations adds,

    ... + r_s^T Gamma r_s',     r_s = (F^T)^s O_s e_u,     Gamma = P (I - O_0 P)^-1.

So all victims together cost a few n x n products a step, and two matrix products a victim. Both
terms fade with the powers of F, and what has faded is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.views.gram import DENSE_HORIZON, Gram

FADED = 1e-20
"""Size of a power of F below which it is dropped: below the rounding of what is kept, even summed
over all pairs of 10,000 steps."""

DOUBLINGS = 40
"""Most doublings of the Riccati recursion: as many as 10^12 steps."""

RESIDUAL = 1e-10
"""Largest error of P, in variances of the quietest combination of observations: so wrong may Grams
be, relative to their size. It is what one more step of the recursion still changes, or the rounding
of P. Where there is more, the time-varying recursion takes over."""

STABLE = 1e-6
"""Distance of the closed loop's spectral radius from 1 below which its decay is not trusted: modes
that receive no noise are at 1 up to rounding; mixing that slow would take a million steps."""

DEFINITE = 1e-6
"""Least eigenvalue of I - O_0 P for which its inverse keeps ten digits."""

SETTLED = 4 * settings.EPS
"""Relative change of O that is rounding."""


class System(NamedTuple):
    """F, H and the factors of q and r, restricted to the nodes that reach an observation.

    ``loudness`` is the standard deviation of the noise before anything of it was known.
    """

    transition: Array
    output: Array
    state_noise: Array
    output_noise: Array
    loudness: float


class Stationary(NamedTuple):
    """The stationary filter over a horizon.

    ``powers`` are I, F, F^2, ... until they fade, shape (reach, n, n); ``gramians`` O of the last
    step, of the one before, ... until it settles; ``generators`` R r_s with R^T R = Gamma, column u
    that of node u, shape (reach, rank, n).
    """

    powers: Array
    gramians: Array
    generators: Array


def stationary(system: System, horizon: int) -> Stationary | None:
    """The stationary filter, or None where there is none that float64 can be trusted with.

    There is none where some combination of nodes is never told apart by the observations, where
    the noise leaves a mode alone that does not fade by itself, or where an observation has no
    noise.
    """
    try:
        covariance = _error_covariance(system)
        if covariance is None:
            return None
        closed, information, following = _step(system, covariance)
        change = float(np.abs(following - covariance).max())
        error = max(change, settings.EPS * float(np.abs(covariance).max(initial=0.0)))
        quietest = float(np.linalg.eigvalsh(system.output_noise @ system.output_noise.T)[0])
        if not error <= RESIDUAL * quietest:
            return None
        if not np.abs(np.linalg.eigvals(closed)).max() < 1 - STABLE:
            return None
        powers = _powers(closed, horizon)
        gramians = _gramians(closed, information, horizon)
        reach = len(powers)
        later = gramians[np.minimum(horizon - 1 - np.arange(reach), len(gramians) - 1)]
        root = _update_root(covariance, later[0])
    except np.linalg.LinAlgError:
        return None
    if root is None:
        return None
    return Stationary(powers, gramians, root @ np.matmul(powers.transpose(0, 2, 1), later))


def _error_covariance(system: System) -> Array | None:
    """P, by doubling; None where the noise of an observation is too small for it."""
    transition, output, q, r, loudness = system
    if not len(output):
        return None
    root = np.linalg.cholesky(r @ r.T)
    if root.diagonal().min() <= settings.sqrt_eps() ** 0.5 * loudness:
        return None
    seen = np.linalg.solve(root, output)
    correlation = np.linalg.solve(root, r @ q.T)
    # Noise common to state and observation is first predicted from the observation.
    return _doubling(
        transition - correlation.T @ seen,
        q - correlation.T @ np.linalg.solve(root, r),
        _linalg.symmetrized(seen.T @ seen),
    )


def _doubling(transition: Array, noise: Array, information: Array) -> Array | None:
    """P from the structure-preserving doubling algorithm: iterate k is that of step 2^k.

    Source: Chu, Fan, Lin and Wang (2004), "Structure-preserving algorithms for periodic discrete-
    time algebraic Riccati equations".
    """
    a, g, h = transition.T, information, noise @ noise.T
    eye = np.eye(len(a))
    for _ in range(DOUBLINGS):
        solved = np.linalg.solve(eye + g @ h, np.hstack([a, g]))
        through, gain = solved[:, : len(a)], solved[:, len(a) :]
        more = a.T @ h @ through
        if not np.isfinite(more).all():
            return None
        a, g, h = (
            a @ through,
            _linalg.symmetrized(g + a @ gain @ a.T),
            _linalg.symmetrized(h + more),
        )
        if np.abs(more).max() <= SETTLED * np.abs(h).max():
            return h
    return None


def _step(system: System, covariance: Array) -> tuple[Array, Array, Array]:
    """Closed loop F and information J under prediction error P, and the P of the next step."""
    transition, output, q, r, _ = system
    seen = output @ covariance
    innovation = _linalg.symmetrized(r @ r.T + seen @ output.T)
    gain = np.linalg.solve(innovation, seen @ transition.T + r @ q.T).T
    closed = transition - gain @ output
    fresh = q - gain @ r
    following = closed @ covariance @ closed.T + fresh @ fresh.T
    whitened = np.linalg.solve(np.linalg.cholesky(innovation), output)
    return closed, whitened.T @ whitened, following


def _powers(closed: Array, horizon: int) -> Array:
    """I, F, F^2, ... until they fade or the horizon ends, shape (reach, n, n)."""
    powers = [np.eye(len(closed))]
    while len(powers) < horizon:
        following = powers[-1] @ closed
        if np.abs(following).max() <= FADED:
            break
        powers.append(following)
    return np.stack(powers)


def _gramians(closed: Array, information: Array, horizon: int) -> Array:
    """O of the last step, of the one before, ... until it settles, shape (steps, n, n)."""
    gramians = [information]
    while len(gramians) < horizon:
        before = gramians[-1]
        now = _linalg.symmetrized(information + closed.T @ before @ closed)
        if np.abs(now - before).max() <= SETTLED * np.abs(now).max():
            break
        gramians.append(now)
    return np.stack(gramians)


def _update_root(covariance: Array, gramian: Array) -> Array | None:
    """R with R^T R = P (I - O P)^-1, shape (n, n); None where that is nearly singular."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    inside = np.eye(len(root)) - _linalg.symmetrized(root @ gramian @ root.T)
    try:
        lower = np.linalg.cholesky(inside)
    except np.linalg.LinAlgError:
        return None
    if np.square(lower.diagonal()).min() < DEFINITE:
        return None
    return np.asarray(np.linalg.solve(lower, root))


def grams(found: Stationary, horizon: int, rows: NDArray[np.intp]) -> Iterator[Gram]:
    """Gram matrices of the victims at some coordinates of the state, one after the other.

    Dense up to :data:`~noisedesign.privacy.views.gram.DENSE_HORIZON` steps, else sparse.
    """
    powers, gramians, generators = found
    place = np.minimum(horizon - 1 - np.arange(horizon), len(gramians) - 1)
    assemble = _dense if horizon <= DENSE_HORIZON else _sparse
    for row in rows:
        # Entry (k, lag): step s' that is k steps from the end, and the step lag earlier.
        table = gramians[:, row, :] @ np.ascontiguousarray(powers[:, :, row]).T
        own = np.ascontiguousarray(generators[:, :, row])
        yield assemble(table, own @ own.T, place)


def _dense(table: Array, corner: Array, place: NDArray[np.intp]) -> Array:
    steps = np.arange(len(place))
    lag = np.abs(np.subtract.outer(steps, steps))
    later = place[np.maximum.outer(steps, steps)]
    gram = np.asarray(table[later, np.minimum(lag, table.shape[1] - 1)])
    gram[lag >= table.shape[1]] = 0.0
    gram[: len(corner), : len(corner)] += corner
    return gram


def _sparse(table: Array, corner: Array, place: NDArray[np.intp]) -> Gram:
    horizon = len(place)
    bands = []
    for lag in range(min(table.shape[1], horizon)):
        band = table[place[lag:], lag]
        band[: max(len(corner) - lag, 0)] += np.diagonal(corner, lag)
        bands.append(band)
    offsets = range(-len(bands) + 1, len(bands))
    square = (horizon, horizon)
    return diags_array([*bands[:0:-1], *bands], offsets=offsets, shape=square).tocsr()
