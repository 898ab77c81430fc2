"""The columns of one victim, whitened in the order of time, and their mixture over patterns.

V = L^-1 A_u with L L^T = B B^T, by which an adaptive run is compared step by step with one that is
not, and the Gram matrix of the mixture's means (docs/accounts.md, "Steps drawn at random").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from noisedesign.base.checks import Array
from noisedesign.privacy.views import gram as routes
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.privacy.views.noise import Gram, whitening


class CausalRows(NamedTuple):
    """V of one victim, shape (M, T), and the number of rows up to each step, shape (T,)."""

    rows: Gram
    ends: NDArray[np.intp]


def causal_rows(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """V of some victims in their order, without what no noise hides."""
    if not mechanism.complete:
        white = routes.white_in_time(mechanism)
        return (_by_innovations if white else _by_covariance)(mechanism, victims)
    if mechanism.full_view.rows is not None:
        return _closed_form(mechanism, victims)
    # Whoever has seen the messages before knows the models: what is new is gradients and noise.
    still = replace(
        mechanism,
        transition=np.zeros_like(mechanism.transition),
        state_noise=np.zeros_like(mechanism.state_noise),
        other_phases=(),
    )
    return _by_covariance(still, victims)


def _closed_form(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    full, ends = mechanism.full_view, np.arange(1, mechanism.horizon + 1)
    assert full.rows is not None
    for victim in victims:
        root = float(np.sqrt(full.scale[victim]))
        yield victim, CausalRows(full.rows[full.which[victim]] * root, ends)


def _by_innovations(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """V' C, with V' of white noise: block t, step s is Lambda_t^(-1/2) H F_(t-1) ... F_s e_u."""
    horizon, c = mechanism.horizon, mechanism.strategy
    observed = routes.observed_nodes(mechanism)
    places = np.cumsum(observed) - 1
    steps = routes.filtered(routes.restricted(mechanism, observed)) if observed.any() else []
    ends = np.cumsum([len(step.output) for step in steps] or [0] * horizon)
    length = max(1, 2**25 // max(1, int(ends[-1]) * horizon))  # 256 MB of rows at a time
    for start in range(0, len(victims), length):
        chunk = list(victims[start : start + length])
        heard = [victim for victim in chunk if observed[victim]]
        found = iter(_responses(steps, ends, places[heard]))
        for victim in chunk:
            rows = next(found) if observed[victim] else np.zeros((int(ends[-1]), horizon))
            yield victim, CausalRows(rows if c is None else np.asarray(rows @ c), ends)


def _responses(
    steps: Sequence[routes.Filtered], ends: NDArray[np.intp], places: NDArray[np.intp]
) -> Array:
    """Rows of victims at some coordinates of the state, shape (victims, M, T)."""
    found = np.zeros((len(places), int(ends[-1]), len(steps)))
    for t, step in enumerate(steps):
        response, block = step.output, slice(int(ends[t]) - len(step.output), int(ends[t]))
        for s in range(t, -1, -1):
            found[:, block, s] = response[:, places].T
            if s:
                response = response @ steps[s - 1].closed
                if np.abs(response).max(initial=0.0) <= routes.FADED:
                    break
    return found


def _by_covariance(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    lower, signal_of = routes.factored(mechanism)
    if lower is None:
        yield from _step_by_step(mechanism, victims)
        return
    phases = mechanism.steps
    ends = np.cumsum([len(phases[t % len(phases)].output) for t in range(mechanism.horizon)])
    for victim in victims:
        rows = solve_triangular(lower, signal_of(victim), lower=True, check_finite=False)
        yield victim, CausalRows(np.asarray(rows), ends)


def _step_by_step(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """Noise that is singular: each step is whitened given those before (Gram and Schmidt)."""
    phases, horizon = mechanism.steps, mechanism.horizon
    ends = np.cumsum([len(phases[t % len(phases)].output) for t in range(horizon)])
    noise, signal = mechanism.dense_noise(), [mechanism.dense_victim(u) for u in victims]
    seen = np.hstack(signal) if signal else np.zeros((len(noise), 0))
    basis, rows = np.zeros((0, noise.shape[1])), np.zeros((0, seen.shape[1]))
    kept = []
    for now, moved in zip(np.split(noise, ends[:-1]), np.split(seen, ends[:-1]), strict=True):
        for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
            before = now @ basis.T
            now, moved = now - before @ basis, moved - before @ rows
        scaled = whitening(now, noise_scale=mechanism.noise_scale).scaled
        basis, rows = np.vstack([basis, scaled @ now]), np.vstack([rows, scaled @ moved])
        kept.append(len(scaled))
    for victim, own in zip(victims, np.split(rows, len(signal), axis=1), strict=True):
        yield victim, CausalRows(np.ascontiguousarray(own), np.cumsum(kept))


# --- mixtures over patterns -----------------------------------------------------------------------

ROUNDING = 1e-9  # excess over what is attained, over the largest entry; epsilon moves by half of it
MOST_SPECTRA = 128  # patterns whose remainders are asked for eigenvalues: seconds for 1000 steps


class BinsGram(NamedTuple):
    """Gram matrix of the means, shape (b, b), for unit noise; ``exact`` where attained."""

    gram: Array
    exact: bool


def bins_gram(seen: CausalRows, patterns: Sequence[Sequence[int]]) -> BinsGram:
    """The Gram of the mixture over ``patterns``, or the least bound on it that is at hand."""
    rows: Any = seen.rows  # dense or sparse
    chosen = np.zeros((rows.shape[1], len(patterns)))
    for place, steps in enumerate(patterns):
        chosen[list(steps), place] = 1.0
    means = np.asarray(rows @ chosen)
    attained = means.T @ means
    sums = np.asarray(abs(rows) @ chosen)
    bound = sums.T @ sums
    few = len(patterns) <= MOST_SPECTRA
    if few and isinstance(rows, np.ndarray) and not _close(bound, attained):
        bound = _by_steps(rows, seen.ends, chosen)
    return BinsGram(gram=(bound + bound.T) / 2, exact=_close(bound, attained))


def _close(bound: Array, attained: Array) -> bool:
    most = float(attained.diagonal().max(initial=0.0))
    return bool(np.abs(bound - attained).max(initial=0.0) <= ROUNDING * most)


def _by_steps(rows: Array, ends: NDArray[np.intp], chosen: Array) -> Array:
    """The sum of |N_t| over pairs of patterns, and the multiple of I that all remainders need."""
    patterns = chosen.shape[1]
    remainder, lacking = np.zeros((patterns, patterns)), 0.0
    for t in reversed(range(len(ends))):
        now = rows[ends[t - 1] if t else 0 : ends[t], : t + 1]
        products = now.T @ now
        remainder += chosen[: t + 1].T @ np.abs(products) @ chosen[: t + 1]
        # Where nothing is negative the step adds a positive semidefinite matrix.
        if products.min(initial=0.0) < -1e-12 * products.max(initial=0.0):
            lacking = max(lacking, -float(np.linalg.eigvalsh(remainder)[0]))
    return np.asarray(remainder + lacking * np.eye(patterns))
