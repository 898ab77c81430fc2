"""Likelihood-ratio audit: what an attacker can tell from the messages of a run.

Two worlds differ in the gradients of one node, at some steps. D-SGD is run in both with noise drawn
from the exported matrix; the attacker sees messages, may know some of the noise, and computes the
Gaussian log-likelihood ratio, which is linear in both. By Neyman and Pearson no test is stronger,
and between the two worlds the statistic separates by exactly mu standard deviations. The claimed
sensitivity enters only the verdict. Gradients common to both worlds are known to the attacker, who
subtracts them; they are zero here, unless they answer to models (``answers``).

A record may also take part at random: in one world it is in a batch that is drawn afresh in every
run, which the attacker does not know, and in the other in none. The ratio is then the mean of those
of the batches, and the test whether it is above 1 has power less size delta(0), the most there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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

Drawn = tuple[Array, Array]
"""Noise of one step: of all nodes, (n, columns), and what the attacker knows, (k, columns)."""

Draw = Callable[[int, np.random.SeedSequence], Iterable[Drawn]]  # (columns, seed) -> of every step


class Verdict(Report):
    """The number ``of`` that an attacker reaches, beside what is ``claimed``."""

    verdicts = ("exceeds", "close", "agrees")

    of: ClassVar[str]
    interval: tuple[float, float]
    claimed: float

    @property
    def measured(self) -> float:
        """The number that is compared with ``claimed``."""
        return float(getattr(self, self.of))

    @property
    def exceeds(self) -> bool:
        """Whether the attacker does better than claimed: the claim is refuted."""
        return self.interval[0] > self.claimed

    @property
    def close(self) -> bool:
        """Whether the attack may reach 95 % of the claim; otherwise the claim is loose."""
        return bool(self.interval[1] >= 0.95 * self.claimed)

    @property
    def agrees(self) -> bool:
        """Neither refuted nor loose."""
        return not self.exceeds and self.close


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport(Verdict):
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

    mu: float
    interval: tuple[float, float]
    lower_bound: float
    confidence: float
    claimed: float
    runs: int
    node: int
    steps: tuple[int, ...]
    of = "mu"

    @property
    def exceeds(self) -> bool:
        """Whether the attacker does better than claimed: the claim is refuted."""
        return max(self.interval[0], self.lower_bound) > self.claimed


@dataclass(frozen=True, kw_only=True, eq=False)
class Attack:
    """Gradients of one node that differ, shape (T, coordinates), and how the ratio weighs messages,
    shape (T, n, coordinates), and noise that is known, shape (T, k), at unit noise."""

    mixing: Any
    node: int
    gradients: Array
    weights: Array
    draw: Draw
    known: Array | None = None
    responses: dynamics.Responses | None = None
    steps: tuple[int, ...] = ()

    def statistic(
        self, drawn: Iterable[Drawn], *, runs: int, world: int, sigma: float = 1.0
    ) -> Array:
        """The log-likelihood ratio of every run, shape (runs,), with ``sigma`` times the noise."""
        unmoved = np.zeros((len(self.gradients), self.mixing.shape[-1], self.gradients.shape[1]))
        unmoved[:, self.node] = self.gradients
        sent = dynamics.run(self.mixing, unmoved, responses=self.responses)
        pairs = zip(self.weights, sent, strict=True)
        moved = sum(float((weights * messages).sum()) for weights, (messages, _) in pairs)
        ratio = np.full(runs, -moved / 2)

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


def audit(
    attack: Attack, *, claimed_mu: float, noise_stddev: float = 1.0, **how: Any
) -> AuditReport:
    """Run both worlds, a block of runs at a time; ``claimed_mu`` is not squared."""
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


# --- a record that takes part at random -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomAudit(Verdict):
    """Measured against claimed advantage of an attacker: power less size of the best test.

    ``interval`` holds Clopper-Pearson limits on both shares, ``claimed`` is delta at epsilon = 0 by
    the account of the noise, and ``bins`` is the number of batches that a record may be in."""

    advantage: float
    interval: tuple[float, float]
    confidence: float
    claimed: float
    runs: int
    node: int
    bins: int
    noise_multiplier: float
    of = "advantage"


def audit_random_bins(
    *,
    mixing: Any,
    weights: Array,
    bins: Sequence[Array],
    node: int,
    draw: Callable[[int, np.random.SeedSequence], Iterable[Array]],
    claimed: float,
    noise_multiplier: float,
    **how: Any,
) -> RandomAudit:
    """Run both worlds, a block of runs at a time, of a record in one of ``bins`` (b, k)."""
    # ``weights`` (b, T, n) are the updates' in the ratio of every batch, at unit noise and norm 1.
    sigma = _checks.real(noise_multiplier, field="noise_multiplier", low=0)
    plan, (b, horizon, nodes) = Runs(**how), weights.shape
    # What a change moves its own ratio by, at unit noise.
    moved = np.array([weights[j, steps, node].sum() for j, steps in enumerate(bins)])
    w = dynamics.mixings(mixing)
    seen = np.stack([dynamics.message_weights(w, one[:, :, None])[:, :, 0] for one in weights])
    of_step = np.full(horizon, -1)
    for j, steps in enumerate(bins):
        of_step[steps] = j
    said, changed = [0, 0], np.eye(1, nodes, node).T
    floats = nodes * 4 + b * 2
    for world, size, sequence in plan.blocks(floats=floats, worlds=2):
        of_noise, of_bins = sequence.spawn(2)
        chosen = np.random.default_rng(of_bins).integers(b, size=size)
        ratio = np.repeat(-moved[:, None] / 2, size, axis=1)
        updates = (
            sigma * noise + changed * (world * (chosen == bin_))
            for bin_, noise in zip(of_step, draw(size, of_noise), strict=True)
        )
        for step, (messages, _) in enumerate(dynamics.run(w, updates)):
            ratio += seen[:, step] @ messages
        whole = np.logaddexp.reduce(ratio / sigma**2, axis=0) - math.log(b)
        said[world] += int((whole > 0).sum())
    runs, confidence = plan.runs, plan.confidence
    # Half of the error probability for each of the two ends, half of that for each world.
    each = 1 - (1 - confidence) / 4
    high = [proportion_upper_limit(s, runs, confidence=each) for s in said]
    low = [1 - proportion_upper_limit(runs - s, runs, confidence=each) for s in said]
    return RandomAudit(
        advantage=(said[1] - said[0]) / runs,
        interval=(low[1] - high[0], high[1] - low[0]),
        confidence=confidence,
        claimed=float(claimed),
        runs=runs,
        node=node,
        bins=b,
        noise_multiplier=sigma,
    )
