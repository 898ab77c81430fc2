"""Audit against chosen observers: the best test there is on what each of them gets to see.

An observer sees, at every step, linear combinations of the messages, and may know the noise that
some nodes add. In a run of T steps with noise drawn from the exported covariance all of that is
Gaussian, with a covariance computed here by running unit noise through the nodes' own recursion.
The attacker weighs it for the log-likelihood ratio of one changed gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.program.noise import streams
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.audit import UNHIDDEN, Attack, AuditReport, Progress, run_audit
from noisedesign.tasks.simulation.estimates import CONFIDENCE

SEEN_BARE = 1e-6
"""Share of a change that lies outside the span of the noise, above which it is seen as it is:
rounding leaves sqrt(EPS) of it at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Watcher:
    """What one observer has of every step: ``readout`` @ messages, (m, n), and, as values, the
    noise of the nodes ``known``. ``inside`` are the nodes that look, which are no victims."""

    readout: Array
    known: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Watching(Attack):
    """As :class:`Attack`, from what a watcher has. Shapes: ``of_noise`` (T, known)."""

    watcher: Watcher
    of_noise: Array

    def statistic(
        self,
        noise: Iterator[Array],
        *,
        runs: int,
        world: int,
        learned: Iterator[Array] | None = None,
    ) -> Array:
        known, drawn = list(self.watcher.known), []

        def overheard() -> Iterator[Array]:
            for z in noise:
                drawn.append(self.sigma * z[known])
                yield z

        sent = dynamics.run(self.mixing, self.updates(overheard(), runs=runs, world=world))
        ratio = np.zeros(runs)
        for step, (messages, _) in enumerate(sent):
            ratio += self.weights[step, :, 0] @ (self.watcher.readout @ messages)
            ratio += self.of_noise[step] @ drawn[step]
        return ratio - self.offset

    @property
    def offset(self) -> float:
        """Half of what the change moves the ratio by."""
        updates = []
        for gradient in self.gradients:
            update = np.zeros((len(self.mixing), 1))
            update[self.node] = gradient
            updates.append(update)
        moved = [m for m, _ in dynamics.run(self.mixing, updates)]
        readout = self.watcher.readout
        return (
            sum(
                float(w[:, 0] @ (readout @ m)[:, 0])
                for w, m in zip(self.weights, moved, strict=True)
            )
            / 2
        )


def audit_observers(
    *,
    mixing: Any,
    covariance: Any,
    watchers: Sequence[Watcher],
    horizon: int,
    claimed_mu: float,
    budget: Any = 1.0,
    noise_stddev: float = 1.0,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit of spatial noise against observers of a run: the worst of them, node and step.

    Args:
        mixing: W, shape (n, n); may be singular.
        covariance: R, shape (n, n), in squared noise units, drawn afresh at every step.
        watchers: who looks.
        horizon: T, steps of the run, each of which is tried for the changed gradient.
        claimed_mu: claim (not squared) for a change of norm 1 / sqrt(budget_u) of the gradient of
            node u at one step, with noise ``noise_stddev`` * z.
        budget: tau, scalar or shape (n,), in inverse squared noise units.
        noise_stddev: factor on the noise, in noise units (not squared).
        runs: runs in each world, at least 30.
        seed: the same seed gives the same report.
        confidence: see :class:`noisedesign.tasks.simulation.AuditReport`.
        progress: called with (runs done, runs in all) over both worlds.

    Raises:
        InputError: matrices that are not finite, float64 and square, or of other sizes; no watcher
            that sees anything; a gradient that is seen without noise; horizon < 1, claimed_mu,
            budget or noise_stddev <= 0, runs < 30.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    n, root = len(w), streams.covariance_root(covariance)
    dynamics.check_shape(root, field="covariance", size=n, of="as mixing")
    steps = _checks.positive_int(horizon, field="horizon")
    sigma = _checks.real(noise_stddev, field="noise_stddev", low=0)
    tau = _checks.positive_vector(budget, field="budget", length=n)
    messages = _messages(w, steps)
    found = [_worst(watcher, messages, root, tau) for watcher in watchers]
    if not any(worst.shown > 0 for worst in found):
        raise InputError("watchers", expected="one that messages reach", got="none")
    index = max(range(len(found)), key=lambda i: found[i].shown)
    worst, watcher = found[index], watchers[index]
    gradients = np.zeros((steps, 1))
    gradients[worst.step] = 1 / math.sqrt(tau[worst.node])
    rows = steps * len(watcher.readout)
    weights = worst.weights / sigma**2
    attack = _Watching(
        mixing=w,
        node=worst.node,
        seen=slice(None),
        sigma=sigma,
        gradients=gradients,
        weights=weights[:rows].reshape(steps, -1, 1),
        watcher=watcher,
        of_noise=weights[rows:].reshape(steps, -1),
    )

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.space_noise(root, dimension=columns, steps=steps, root_seed=sequence)

    return run_audit(
        attack,
        noise,
        floats_per_run=4 * n,
        claimed_mu=claimed_mu,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
        steps=(worst.step,),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Worst:
    """The change a watcher sees most of, squared separation at unit noise, and how it looks."""

    shown: float
    node: int
    step: int
    weights: Array


def _messages(mixing: Array, steps: int) -> Array:
    """All messages of a run on all updates, shape (T, n, T n), time-major."""
    n = len(mixing)
    units: Iterable[Array] = np.eye(steps * n).reshape(steps, n, steps * n)
    return np.stack([message for message, _ in dynamics.run(mixing, units)])


def _worst(watcher: Watcher, messages: Array, root: Array, tau: Array) -> _Worst:
    steps, n = messages.shape[:2]
    seen = (watcher.readout @ messages).reshape(-1, steps * n)
    values = np.eye(steps * n).reshape(steps, n, -1)[:, list(watcher.known)].reshape(-1, steps * n)
    stacked = np.vstack([seen, values])
    half = (stacked.reshape(len(stacked), steps, n) @ root).reshape(len(stacked), -1)
    left, spread, _ = np.linalg.svd(half, full_matrices=False)
    kept = spread > settings.rank_tolerance(max(half.shape)) * spread.max(initial=0.0)
    whitening = left[:, kept].T / spread[kept, None]
    moved = np.vstack([seen, np.zeros_like(values)]) / np.tile(np.sqrt(tau), steps)
    victims = [c for c in range(steps * n) if c % n not in watcher.inside]
    bare = np.linalg.norm(moved - left[:, kept] @ (left[:, kept].T @ moved), axis=0)
    if (bare[victims] > SEEN_BARE * np.linalg.norm(moved[:, victims], axis=0)).any():
        raise InputError(
            "covariance",
            expected="noise in every direction that is seen",
            got="none in one",
            remedy=UNHIDDEN,
        )
    told = whitening @ moved
    shown = np.square(told).sum(axis=0)
    column = victims[int(shown[victims].argmax())]
    return _Worst(
        shown=float(shown[column]),
        node=column % n,
        step=column // n,
        weights=whitening.T @ told[:, column],
    )
