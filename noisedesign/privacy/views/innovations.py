"""Exact sensitivity Grams by whitening the observations one step at a time.

The best prediction of y_t from what was seen before leaves the innovation, and innovations are
independent (Kalman). With prediction error covariance P_t and Lambda_t = Cov(innovation),

    G_t = (F P_t H^T + Cov(q, r)) Lambda_t^+,   F_t = F - G_t H,   P_{t+1} = F_t P_t F_t^T + noise,

a unit gradient of node u at step s moves the innovation of step t by H F_{t-1} ... F_s e_u. Summing
over t backwards, O_t = H^T Lambda_t^+ H + F_t^T O_{t+1} F_t,

    M_u[s, s'] = (O_{s'} F_{s'-1} ... F_s)_uu          for s <= s'.

This is the general recursion: it also takes noise that leaves directions of the observations alone,
and says whose gradients are exposed there. Where there is a stationary filter,
:mod:`noisedesign.privacy.views.stationary` gets the same numbers for less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.privacy.views import stationary
from noisedesign.privacy.views._spectral import LEAK, whitening
from noisedesign.privacy.views.gram import Gram, VictimGram, zeros
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.privacy.views.stationary import System

TOEPLITZ = 1e-14
"""Relative difference along a diagonal of C that is rounding."""


class _Step(NamedTuple):
    """One step: the closed loop F_t, Lambda_t^(-1/2) H, and H along directions without noise."""

    closed: Array
    output: Array
    silent: Array


def applies(mechanism: LinearMechanism) -> bool:
    """Whether the noise is white in time, up to a C that commutes with shifts in time."""
    return mechanism.joint is None and _toeplitz(mechanism.strategy)


def grams(mechanism: LinearMechanism, victims: Sequence[int]) -> Iterator[tuple[int, VictimGram]]:
    """Squared sensitivity Grams of the victims, in their order.

    A lower triangular Toeplitz C filters all messages alike and can be undone before the
    recursion: M_u = C^T M_u' C with M_u' that of white noise.
    """
    horizon, c = mechanism.horizon, mechanism.strategy
    reached = _reached(mechanism)
    places = np.cumsum(reached) - 1
    inside = [victim for victim in victims if reached[victim]]
    found = _white(mechanism, reached, np.array([places[v] for v in inside], dtype=np.intp))
    for victim in victims:
        if reached[victim]:
            gram, exposed = next(found)
            yield victim, VictimGram(gram if c is None else np.asarray(c.T @ (gram @ c)), exposed)
        else:
            yield victim, VictimGram(zeros(horizon), np.zeros(horizon, dtype=bool))


def _toeplitz(c: Array | None) -> bool:
    if c is None:
        return True
    return bool(np.abs(c[1:, 1:] - c[:-1, :-1]).max(initial=0.0) <= TOEPLITZ * np.abs(c).max())


def _reached(mechanism: LinearMechanism) -> NDArray[np.bool_]:
    """Nodes whose gradients ever reach an observation."""
    reached = (mechanism.output != 0).any(axis=0)
    linked = mechanism.transition != 0
    while True:
        more = reached | linked[reached].any(axis=0)
        if (more == reached).all():
            return np.asarray(reached)
        reached = more


def _white(
    mechanism: LinearMechanism, reached: NDArray[np.bool_], rows: NDArray[np.intp]
) -> Iterator[tuple[Gram, NDArray[np.bool_]]]:
    """Grams under noise that is white in time, for victims at some coordinates of the state."""
    if not len(rows):
        return
    system = System(
        transition=mechanism.transition[np.ix_(reached, reached)],
        output=mechanism.output[:, reached],
        state_noise=mechanism.state_noise[reached],
        output_noise=mechanism.output_noise,
        loudness=mechanism.loudness,
    )
    steady = stationary.stationary(system, mechanism.horizon)
    if steady is not None:
        hidden = np.zeros(mechanism.horizon, dtype=bool)
        for gram in stationary.grams(steady, mechanism.horizon, rows):
            yield gram, hidden
        return
    steps = _filter(system, mechanism.horizon)
    exposed = _exposed(steps, rows)
    columns = list(_columns(steps, rows))
    for i in range(len(rows)):
        lower = np.zeros((len(steps),) * 2)
        for step, column in enumerate(columns):
            lower[step, : step + 1] = column[i]
        yield lower + np.tril(lower, -1).T, exposed[i]


def _filter(system: System, horizon: int) -> list[_Step]:
    """The filter of every step; P_t is kept as a square root, which rounds small noise least."""
    transition, output, state_noise, output_noise, loudness = system
    root = np.zeros((len(transition), 1))
    steps = []
    for _ in range(horizon):
        innovation = np.hstack([output @ root, output_noise])
        following = np.hstack([transition @ root, state_noise])
        scaled, silent, _ = whitening(innovation, loudness=loudness)
        gain = (following @ (scaled @ innovation).T) @ scaled
        steps.append(_Step(transition - gain @ output, scaled @ output, silent @ output))
        root = np.asarray(np.linalg.qr((following - gain @ innovation).T, mode="r")).T
    return steps


def _columns(steps: list[_Step], rows: NDArray[np.intp]) -> Iterator[Array]:
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


def _exposed(steps: list[_Step], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Steps at which a gradient moves a direction of an innovation that has no noise."""
    exposed = np.zeros((len(rows), len(steps)), dtype=bool)
    for t, step in enumerate(steps):
        response = step.silent
        for s in reversed(range(t + 1)):
            if s < t:
                response = response @ steps[s].closed
            if np.abs(response).max(initial=0.0) <= LEAK:
                break
            exposed[:, s] |= np.abs(response[:, rows]).max(axis=0) > LEAK
    return exposed
