"""Likelihood-ratio audit: what an attacker can tell from the messages of a run.

Two worlds differ in the gradients of one node, at some steps. D-SGD is run in both with noise drawn
from the exported matrix; the attacker sees messages, may know some of the noise, and computes the
Gaussian log-likelihood ratio, which is linear in both. By Neyman and Pearson no test is stronger,
and between the two worlds the statistic separates by exactly mu standard deviations. The claimed
sensitivity enters only the verdict.

The gradients common to both worlds are known to the attacker, who subtracts them; they are zero
here, unless they answer to models (:mod:`noisedesign.tasks.simulation.answers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.dynamics import (
    Report,
    RunningMoments,
    Runs,
    gaussian_separation,
    proportion_upper_limit,
    two_sided_quantile,
)

CLOSENESS = 0.95
"""An audit reaches its claim when its interval reaches this fraction of it."""

Drawn = tuple[Array, Array]
"""Noise of one step: of all nodes, (n, columns), and what the attacker knows, (k, columns)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport(Report):
    """Empirical against claimed mu (of mu-GDP, not squared) for one participation pattern.

    Attributes:
        mu: difference of the mean statistic between the worlds over its pooled standard deviation.
        interval: (low, high) of ``mu``, normal approximation with variance
            2 / runs + mu^2 / (4 runs).
        lower_bound: a bound mu exceeds with ``confidence`` whatever the distribution of the
            statistic: Clopper-Pearson limits on both error rates of the test at the midpoint.
        confidence: of ``interval`` (two-sided) and of ``lower_bound`` (one-sided).
        claimed: mu the design claims.
        runs: runs in each world.
        node: the node whose gradients differ.
        steps: the steps at which they differ, zero-based; empty for a spatial design, where every
            step is alike.
    """

    verdicts = ("exceeds", "close", "agrees")

    mu: float
    interval: tuple[float, float]
    lower_bound: float
    confidence: float
    claimed: float
    runs: int
    node: int
    steps: tuple[int, ...]

    of = "mu"
    """What is audited."""

    @property
    def measured(self) -> float:
        """What is compared with ``claimed``."""
        return self.mu

    @property
    def exceeds(self) -> bool:
        """Whether the attacker does better than claimed: the claim is refuted."""
        return max(self.interval[0], self.lower_bound) > self.claimed

    @property
    def close(self) -> bool:
        """Whether the attack may reach 95 % of the claim; otherwise the claim is loose."""
        return self.interval[1] >= CLOSENESS * self.claimed

    @property
    def agrees(self) -> bool:
        """Neither refuted nor loose."""
        return not self.exceeds and self.close


@dataclass(frozen=True, kw_only=True, eq=False)
class Attack:
    """Gradients that differ, and how the ratio weighs what is watched of them, at unit noise.

    Attributes:
        mixing: W of every step, in turn, all rounds of it, shape (P, n, n); or a sparse W.
        node: whose gradients differ.
        gradients: by what, shape (T, coordinates).
        weights: of the messages, shape (T, n, coordinates).
        draw: (columns, seed) -> noise at each of the T steps.
        known: weights of the noise that the attacker knows, shape (T, k), or None.
        responses: how gradients answer to models in both worlds, or None.
        steps: as reported, see :class:`AuditReport`.
    """

    mixing: Any
    node: int
    gradients: Array
    weights: Array
    draw: Callable[[int, np.random.SeedSequence], Iterable[Drawn]]
    known: Array | None = None
    responses: dynamics.Responses | None = None
    steps: tuple[int, ...] = ()

    def statistic(
        self, drawn: Iterable[Drawn], *, runs: int, world: int, sigma: float = 1.0
    ) -> Array:
        """The log-likelihood ratio of every run, shape (runs,), with ``sigma`` times the noise."""
        ratio = np.full(runs, -self._moved / 2)

        def updates() -> Iterator[Array]:
            for step, (noise, known) in enumerate(drawn):
                if self.known is not None:
                    ratio[:] += sigma * (self.known[step] @ known)
                update = sigma * noise
                update[self.node] += world * np.repeat(self.gradients[step], runs)
                yield update

        sent = dynamics.run(self.mixing, updates(), responses=self.responses)
        for weights, (messages, _) in zip(self.weights, sent, strict=True):
            ratio += weights.ravel() @ messages.reshape(-1, runs)
        return ratio / sigma**2

    @property
    def _moved(self) -> float:
        """By how much the change moves the ratio, at unit noise."""
        nodes = self.mixing.shape[-1]
        updates = np.zeros((len(self.gradients), nodes, self.gradients.shape[1]))
        updates[:, self.node] = self.gradients
        sent = dynamics.run(self.mixing, updates, responses=self.responses)
        return sum(
            float((weights * messages).sum())
            for weights, (messages, _) in zip(self.weights, sent, strict=True)
        )


def audit(
    attack: Attack, *, claimed_mu: float, noise_stddev: float = 1.0, **how: Any
) -> AuditReport:
    """Both worlds, a block of runs at a time.

    Args:
        claimed_mu: claim (not squared) for the changed gradients with noise ``noise_stddev`` * z.
        noise_stddev: factor on the noise, in noise units (not squared).
        how: see :class:`noisedesign.tasks.simulation.dynamics.Runs`.

    Raises:
        InputError: claimed_mu or noise_stddev <= 0, runs < 30.
    """
    claimed = _checks.real(claimed_mu, field="claimed_mu", low=0)
    sigma = _checks.real(noise_stddev, field="noise_stddev", low=0)
    plan = Runs(**how)
    coordinates = attack.gradients.shape[1]
    moments, errors = (RunningMoments(), RunningMoments()), [0, 0]
    floats = attack.mixing.shape[-1] * max(4, attack.gradients.size)
    for world, size, sequence in plan.blocks(floats=floats, worlds=2):
        drawn = attack.draw(size * coordinates, sequence)
        values = attack.statistic(drawn, runs=size, world=world, sigma=sigma)
        moments[world].add(values)
        errors[world] += int(((values > 0) != bool(world)).sum())
    runs, confidence = plan.runs, plan.confidence
    pooled = (moments[0].variance + moments[1].variance) / 2
    mu = (moments[1].mean - moments[0].mean) / math.sqrt(pooled)
    half = two_sided_quantile(confidence) * math.sqrt(2 / runs + mu**2 / (4 * runs))
    # Half of the error probability for each of the two rates: both hold at once with confidence.
    limits = [proportion_upper_limit(e, runs, confidence=(1 + confidence) / 2) for e in errors]
    return AuditReport(
        mu=mu,
        interval=(mu - half, mu + half),
        lower_bound=gaussian_separation(*limits),
        confidence=confidence,
        claimed=claimed,
        runs=runs,
        node=attack.node,
        steps=attack.steps,
    )
