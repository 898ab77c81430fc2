"""The squared sensitivity Gram of every victim, by the cheapest exact route: innovations, the
stationary filter where there is one, or the covariance of the observations (docs/accounts.md,
"Computing it without stacking")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import diags_array

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.privacy.views.noise import (
    DENSE_HORIZON,
    LEAK,
    Gram,
    VictimGram,
    whitening,
    zero_gram,
)


def grams(mechanism: LinearMechanism, victims: Sequence[int]) -> Iterator[tuple[int, VictimGram]]:
    """A_u^T (B B^T)^+ A_u of some victims in their order, by the first route there is."""
    if mechanism.complete:
        return _closed_form(mechanism, victims)
    if white_in_time(mechanism):
        return by_innovations(mechanism, victims)
    return by_covariance(mechanism, victims)


def _closed_form(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, VictimGram]]:
    full = mechanism.full_view
    for victim in victims:
        gram = full.grams[full.which[victim]] * float(full.scale[victim])
        yield victim, VictimGram(gram, full.unprotected[victim])


class Filtered(NamedTuple):
    """One step: the closed loop F_t, Lambda_t^(-1/2) H, and H along directions without noise."""

    closed: Array
    output: Array
    noiseless: Array


def white_in_time(mechanism: LinearMechanism) -> bool:
    """Whether noise is white in time, up to a C that commutes with the filters of a single W."""
    c = mechanism.strategy
    if c is None or mechanism.joint is not None:
        return mechanism.joint is None
    if mechanism.other_phases:
        return False
    # Differences along a diagonal of C may be rounding.
    return bool(np.abs(c[1:, 1:] - c[:-1, :-1]).max(initial=0.0) <= 1e-14 * np.abs(c).max())


def by_innovations(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, VictimGram]]:
    """Grams of the victims in their order: a Toeplitz C filters all alike, M_u = C^T M_u' C."""
    horizon, c = mechanism.horizon, mechanism.strategy
    observed = observed_nodes(mechanism)
    places = np.cumsum(observed) - 1
    inside = [victim for victim in victims if observed[victim]]
    found = _white(mechanism, observed, np.array([places[v] for v in inside], dtype=np.intp))
    for victim in victims:
        if observed[victim]:
            gram, unprotected = next(found)
            yield (
                victim,
                VictimGram(gram if c is None else np.asarray(c.T @ (gram @ c)), unprotected),
            )
        else:
            yield victim, VictimGram(zero_gram(horizon), np.zeros(horizon, dtype=bool))


def observed_nodes(mechanism: LinearMechanism) -> NDArray[np.bool_]:
    """Nodes whose gradients ever reach an observation."""
    observed = np.any([(step.output != 0).any(axis=0) for step in mechanism.steps], axis=0)
    linked = np.any([step.transition != 0 for step in mechanism.steps], axis=0)
    while True:
        more = observed | linked[observed].any(axis=0)
        if (more == observed).all():
            return np.asarray(observed)
        observed = more


def _white(
    mechanism: LinearMechanism, observed: NDArray[np.bool_], rows: NDArray[np.intp]
) -> Iterator[tuple[Gram, NDArray[np.bool_]]]:
    """Grams under noise that is white in time, for victims at some coordinates of the state."""
    if not len(rows):
        return
    system = restricted(mechanism, observed)
    fixed_filter = None if system.other_phases else stationary(system)
    if fixed_filter is not None:
        hidden = np.zeros(mechanism.horizon, dtype=bool)
        for gram in stationary_grams(fixed_filter, mechanism.horizon, rows):
            yield gram, hidden
        return
    steps = filtered(system)
    unprotected = _unprotected(steps, rows)
    columns = list(_columns(steps, rows))
    for i in range(len(rows)):
        lower = np.zeros((len(steps),) * 2)
        for step, column in enumerate(columns):
            lower[step, : step + 1] = column[i]
        yield lower + np.tril(lower, -1).T, unprotected[i]


def restricted(mechanism: LinearMechanism, observed: NDArray[np.bool_]) -> LinearMechanism:
    """The system of some nodes alone, on which the others have no influence."""
    first, *others = [step.restricted(observed) for step in mechanism.steps]
    return replace(mechanism, **first._asdict(), other_phases=tuple(others))


def filtered(system: LinearMechanism) -> list[Filtered]:
    """The filter of every step; P_t is kept as a square root, which rounds small noise least."""
    root, phases = np.zeros((len(system.transition), 1)), system.steps
    steps = []
    for t in range(system.horizon):
        transition, output, state_noise, output_noise = phases[t % len(phases)]
        innovation = np.hstack([output @ root, output_noise])
        following = np.hstack([transition @ root, state_noise])
        scaled, noiseless, _ = whitening(innovation, noise_scale=system.noise_scale)
        gain = (following @ (scaled @ innovation).T) @ scaled
        steps.append(Filtered(transition - gain @ output, scaled @ output, noiseless @ output))
        root = np.asarray(np.linalg.qr((following - gain @ innovation).T, mode="r")).T
    return steps


def _columns(steps: list[Filtered], rows: NDArray[np.intp]) -> Iterator[Array]:
    """M_u[0 .. s', s'] of all victims for every step s' in turn, shape (victims, s' + 1)."""
    gramians = []
    gramian = np.zeros_like(steps[0].closed)
    for step in reversed(steps):
        gramian = step.output.T @ step.output + step.closed.T @ gramian @ step.closed
        gramians.append(gramian)
    picked = np.arange(len(rows)), rows
    for s, gramian in enumerate(reversed(gramians)):
        response = gramian[rows]
        entries = [response[picked]]
        for step in reversed(steps[:s]):
            response = response @ step.closed
            entries.append(response[picked])
        yield np.stack(entries[::-1], axis=1)


def _unprotected(steps: list[Filtered], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Steps at which a gradient moves a direction of an innovation that has no noise."""
    unprotected = np.zeros((len(rows), len(steps)), dtype=bool)
    for t, step in enumerate(steps):
        response = step.noiseless
        for s in reversed(range(t + 1)):
            if s < t:
                response = response @ steps[s].closed
            if np.abs(response).max(initial=0.0) <= LEAK:
                break
            unprotected[:, s] |= np.abs(response[:, rows]).max(axis=0) > LEAK
    return unprotected


FADED = 1e-20  # size of powers of F to drop: below rounding even over all pairs of 10,000 steps
RESIDUAL = 1e-10  # error of P, in variances of the least noisy combination of observations
STABLE = 1e-6  # distance of the spectral radius from 1 to trust: modes without noise are at 1
SETTLED = 4 * settings.EPS  # relative change of O that is rounding


class Stationary(NamedTuple):
    """The stationary filter: I, F, F^2, ... until they fade; O of the last step, of the one before,
    ... until it settles; and R r_s with R^T R = Gamma, shape (reach, rank, n)."""

    powers: Array
    gramians: Array
    generators: Array


def stationary(system: LinearMechanism) -> Stationary | None:
    """The stationary filter; None where float64 cannot be trusted with it."""
    horizon = system.horizon
    try:
        covariance = _error_covariance(system)
        if covariance is None:
            return None
        closed, information, following = _step(system, covariance)
        change = float(np.abs(following - covariance).max())
        error = max(change, settings.EPS * float(np.abs(covariance).max(initial=0.0)))
        least_noisy = float(np.linalg.eigvalsh(system.output_noise @ system.output_noise.T)[0])
        if not error <= RESIDUAL * least_noisy:
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


def _error_covariance(system: LinearMechanism) -> Array | None:
    """P, by doubling; None where the noise of an observation is too small for it."""
    output, q, r = system.output, system.state_noise, system.output_noise
    if not len(output):
        return None
    root = np.linalg.cholesky(r @ r.T)
    if root.diagonal().min() <= settings.sqrt_eps() ** 0.5 * system.noise_scale:
        return None
    seen = np.linalg.solve(root, output)
    correlation = np.linalg.solve(root, r @ q.T)
    # Noise common to state and observation is first predicted from the observation.
    return _doubling(
        system.transition - correlation.T @ seen,
        q - correlation.T @ np.linalg.solve(root, r),
        _linalg.symmetrized(seen.T @ seen),
    )


def _doubling(transition: Array, noise: Array, information: Array) -> Array | None:
    """P by structure-preserving doubling (Chu, Fan, Lin and Wang 2004): iterate k is step 2^k."""
    a, g, h = transition.T, information, noise @ noise.T
    eye = np.eye(len(a))
    for _ in range(40):  # as many as 10^12 steps
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


def _step(system: LinearMechanism, covariance: Array) -> tuple[Array, Array, Array]:
    """Closed loop F and information J under prediction error P, and the P of the next step."""
    transition, output = system.transition, system.output
    q, r = system.state_noise, system.output_noise
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
    if np.square(lower.diagonal()).min() < 1e-6:  # the inverse would lose more than six digits
        return None
    return np.asarray(np.linalg.solve(lower, root))


def stationary_grams(found: Stationary, horizon: int, rows: NDArray[np.intp]) -> Iterator[Gram]:
    """Grams of the victims at some coordinates, sparse beyond ``DENSE_HORIZON`` steps."""
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


LARGEST = 30_000  # observations whose covariance is factored: 7 GB


def by_covariance(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, VictimGram]]:
    """Squared sensitivity Grams of the victims, in their order."""
    lower, signal_of = factored(mechanism)
    # Near rounding a square root decides better than the covariance, at more than twice the memory.
    split = None
    if lower is None:
        split = whitening(mechanism.dense_noise(), noise_scale=mechanism.noise_scale)
    for victim in victims:
        signal = signal_of(victim)
        if split is None:
            assert lower is not None
            scaled = solve_triangular(lower, signal, lower=True, check_finite=False)
            unprotected = np.zeros(mechanism.horizon, dtype=bool)
        else:
            scaled, unprotected = split.scaled @ signal, split.leaks(signal)
        yield victim, VictimGram(np.asarray(scaled.T @ scaled), unprotected)


def factored(mechanism: LinearMechanism) -> tuple[Array | None, Callable[[int], Array]]:
    """L of K = L L^T, in the order of time, None where a pivot is rounding, and A_u of a victim."""
    horizon, steps = mechanism.horizon, mechanism.steps
    count = sum(len(steps[t % len(steps)].output) for t in range(horizon))
    if count > LARGEST:
        expected = f"at most {LARGEST} observed messages for noise with memory"
        got = f"{count} ({-(-count // horizon)} a step over {horizon} steps)"
        remedy = "Ask for a shorter horizon or an observer with fewer neighbours."
        raise InputError("participation", expected=expected, got=got, remedy=remedy)
    if mechanism.other_phases:
        return _cholesky(_covariance(mechanism, None)), mechanism.dense_victim
    powers = _output_powers(mechanism)
    lower = _cholesky(_covariance(mechanism, powers))
    return lower, lambda victim: _victim_columns(powers, victim)


def _cholesky(covariance: Array) -> Array | None:
    """Its factor, or None where a pivot is of the size of rounding."""
    if not len(covariance):
        return None
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    variances, least = covariance.diagonal(), settings.sqrt_eps() ** 1.5
    pivots = np.square(lower.diagonal()) / np.maximum(variances, 1e-300)
    # What rounding leaves of an observation without noise has pivots of its own size.
    singular = pivots.min() <= least or variances.min() <= least * variances.max()
    return None if singular else np.asarray(lower)


def _output_powers(mechanism: LinearMechanism) -> Array:
    """H F^k, k = 0 .. T - 1, shape (T, m, n)."""
    powers = np.empty((mechanism.horizon, *mechanism.output.shape))
    row = mechanism.output
    for k in range(mechanism.horizon):
        powers[k] = row
        row = row @ mechanism.transition
    return powers


def _victim_columns(responses: Array, victim: int) -> Array:
    """A_u, shape (T m, T): block (t, s) is column u of H F^(t - s)."""
    horizon, m, _ = responses.shape
    columns = np.zeros((horizon, m, horizon))
    for s in range(horizon):
        columns[s:, :, s] = responses[: horizon - s, :, victim]
    return columns.reshape(horizon * m, horizon)


def _covariance(mechanism: LinearMechanism, powers: Array | None) -> Array:
    """K, shape (T m, T m), rows t * m + observation; ``powers`` are H F^k, None where W changes."""
    if mechanism.joint is not None or powers is None:
        root = mechanism.dense_noise()
        return np.asarray(root @ root.T)
    noising: Array = np.eye(mechanism.horizon)
    if mechanism.strategy is not None:
        noising = np.asarray(np.linalg.inv(mechanism.strategy), dtype=np.float64)
    # Observation k steps after unit noise, shape (T, m, p): first directly, then through F.
    later = powers[:-1] @ mechanism.state_noise
    responses = np.concatenate([mechanism.output_noise[None], later])
    return _filtered(responses, noising @ noising.T)


def _filtered(responses: Array, temporal: Array) -> Array:
    """K[t, t'] = sum_ij <response_i, response_j> temporal[t - i, t' - j]: a convolution in time."""
    horizon, m, _ = responses.shape
    size = scipy.fft.next_fast_len(2 * horizon - 1, real=True)
    spectrum = scipy.fft.rfft2(temporal, s=(size, size))
    covariance = np.empty((horizon, m, horizon, m))
    for a in range(m):
        # One row of pairs at a time, and each pair once: the rest is the transpose.
        for b in range(a, m):
            inner = responses[:, a] @ responses[:, b].T
            product = scipy.fft.rfft2(inner, s=(size, size)) * spectrum
            block = scipy.fft.irfft2(product, s=(size, size))[:horizon, :horizon]
            covariance[:, a, :, b] = block
            covariance[:, b, :, a] = block.T
    return covariance.reshape(horizon * m, horizon * m)
