"""Likelihood-ratio audit: what an eavesdropper who sees every message can tell.

Two worlds differ in the gradients of one node, at the steps of one participation pattern, by
vectors of norm 1. D-SGD is run in both with noise drawn from the exported matrix; the attacker
takes the residual of consecutive messages, which is gradient plus noise, and computes the Gaussian
log-likelihood ratio with the covariance that the matrix implies. By Neyman and Pearson no test is
stronger, and between the two worlds the statistic separates by exactly mu standard deviations.
The claimed sensitivity enters only the verdict.

The gradients common to both worlds are known to the attacker, who subtracts them; they are zero
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.shown import Shown
from noisedesign.program.noise import streams
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.directions import check_patterns, worst_difference
from noisedesign.tasks.simulation.estimates import (
    CONFIDENCE,
    RunningMoments,
    check_confidence,
    check_runs,
    gaussian_separation,
    proportion_upper_limit,
    two_sided_quantile,
)

Progress = Callable[[int, int], None]

CLOSENESS = 0.95
"""An audit reaches its claim when its interval reaches this fraction of it."""

Noise = Callable[[int, np.random.SeedSequence], Iterator[Array]]
"""(columns, seed) -> noise at each step, each of shape (nodes, columns)."""

UNHIDDEN = "Without noise in some direction a change there is seen with certainty: mu is infinite."

SPACE_STEPS = 2
"""Steps run in space: the difference is at the last, so that the attacker has to subtract the
mixed messages of the step before."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport(Shown):
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

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        return {
            "mu": self.mu,
            "interval": list(self.interval),
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "claimed": self.claimed,
            "runs": self.runs,
            "node": self.node,
            "steps": list(self.steps),
            "exceeds": self.exceeds,
            "close": self.close,
            "agrees": self.agrees,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Attack:
    """Gradients that differ, and the log-likelihood ratio <weights, residuals> - offset.

    Shapes: gradients (steps, coordinates), of ``node``; weights (steps, nodes ``seen``,
    coordinates): the gradients times the inverse covariance of all noise.
    """

    mixing: Array
    node: int
    seen: slice
    sigma: float
    gradients: Array
    weights: Array

    @property
    def coordinates(self) -> int:
        """Coordinates of one run."""
        return int(self.gradients.shape[1])

    def updates(self, noise: Iterator[Array], *, runs: int, world: int) -> Iterator[Array]:
        """Gradient and noise of every step; the gradients of world 0 are zero."""
        for gradient, z in zip(self.gradients, noise, strict=True):
            update = self.sigma * z
            update[self.node] += world * np.repeat(gradient, runs)
            yield update

    def statistic(
        self,
        noise: Iterator[Array],
        *,
        runs: int,
        world: int,
        learned: Iterator[Array] | None = None,
    ) -> Array:
        """The ratio of every run, shape (runs,), from all messages less ``learned`` noise."""
        sent = dynamics.run(self.mixing, self.updates(noise, runs=runs, world=world))
        found = dynamics.residuals(self.mixing, (messages for messages, _ in sent))
        if learned is not None:
            pairs = zip(found, learned, strict=True)
            found = (residual - self.sigma * known for residual, known in pairs)
        ratio = np.zeros(runs)
        for weights, residual in zip(self.weights, found, strict=True):
            ratio += weights.ravel() @ residual[self.seen].reshape(-1, runs)
        victim = self.node - (self.seen.start or 0)
        return ratio - float((self.weights[:, victim] * self.gradients).sum()) / 2


def audit_space(
    *,
    mixing: Any,
    covariance: Any,
    claimed_mu: float,
    budget: Any = None,
    noise_stddev: float = 1.0,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit of spatial noise: one step, one changed gradient, the worst node.

    Args:
        mixing: W, shape (n, n); may be singular.
        covariance: R, shape (n, n), symmetric positive definite, in squared noise units.
        claimed_mu: claim (not squared) for a change of norm 1 at one step of one node with noise
            ``noise_stddev`` * z. With ``budget``: for a change of norm 1 / sqrt(budget_u) at
            node u, which is 1 / noise_stddev for a design that meets its budgets.
        budget: tau with [R^-1]_uu <= tau_u, scalar or shape (n,), or None for norm 1 everywhere.
        noise_stddev: factor on the noise, in noise units (not squared).
        runs: runs in each world, at least 30.
        seed: the same seed gives the same report.
        confidence: see :class:`AuditReport`.
        progress: called with (runs done, runs in all) over both worlds.

    Raises:
        InputError: a matrix that is not finite, float64 and square, sizes that do not match, R
            not positive definite (some direction is not hidden at all), claimed_mu, budget or
            noise_stddev <= 0, runs < 30.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    n, root = len(w), streams.covariance_root(covariance)
    dynamics.check_shape(root, field="covariance", size=n, of="as mixing")
    sigma = _checks.real(noise_stddev, field="noise_stddev", low=0)
    tau = (
        np.ones(n) if budget is None else _checks.positive_vector(budget, field="budget", length=n)
    )
    precision = _precision(covariance)
    node = int((np.diag(precision) / tau).argmax())
    gradients = np.zeros((SPACE_STEPS, 1))
    gradients[-1] = 1 / math.sqrt(tau[node])
    weights = gradients[:, None] * precision[:, [node]] / sigma**2
    attack = Attack(
        mixing=w, node=node, seen=slice(None), sigma=sigma, gradients=gradients, weights=weights
    )

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.space_noise(root, dimension=columns, steps=SPACE_STEPS, root_seed=sequence)

    return run_audit(
        attack,
        noise,
        floats_per_run=4 * n,
        claimed_mu=claimed_mu,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
        steps=(),
    )


def audit_time(
    *,
    noising_matrix: Any,
    mixing: Any = None,
    patterns: Any,
    claimed_mu: float,
    noise_stddev: float = 1.0,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit of temporal noise over the whole horizon: the worst pattern and directions.

    Args:
        noising_matrix: C^-1, shape (T, T), lower triangular.
        mixing: W, shape (n, n), may be singular; None for one model that is not mixed.
        patterns: integer array, shape (patterns, k), zero-based steps.
        claimed_mu: claim (not squared) for changes of norm 1 at every step of a pattern with noise
            ``noise_stddev`` * z.
        noise_stddev: factor on the noise, in noise units (not squared).
        runs: runs in each world, at least 30.
        seed: the same seed gives the same report.
        confidence: see :class:`AuditReport`.
        progress: called with (runs done, runs in all) over both worlds.

    Raises:
        InputError: a matrix that is not finite, float64 and square, C^-1 not lower triangular or
            singular (some direction is not hidden at all), patterns that are not distinct steps
            below T, claimed_mu or noise_stddev <= 0, runs < 30.
    """
    noising = streams.check_noising(noising_matrix)
    w = dynamics.mixing_or_single(mixing)
    sigma = _checks.real(noise_stddev, field="noise_stddev", low=0)
    chosen = check_patterns(patterns, horizon=len(noising))
    precision = _precision_in_time(noising)
    steps, directions = worst_difference(precision, chosen)
    gradients = np.zeros((len(noising), directions.shape[1]))
    gradients[steps] = directions
    weights = (precision @ gradients)[:, None] / sigma**2
    # Every node runs the same strategy with noise of its own, so any node is the worst one.
    attack = Attack(
        mixing=w, node=0, seen=slice(0, 1), sigma=sigma, gradients=gradients, weights=weights
    )

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.time_noise_stream(noising, nodes=len(w), dimension=columns, seed=sequence)

    return run_audit(
        attack,
        noise,
        floats_per_run=gradients.size * len(w),
        claimed_mu=claimed_mu,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
        steps=tuple(steps.tolist()),
    )


def _precision(covariance: Any) -> Array:
    """R^-1, through its Cholesky factor."""
    try:
        return inverse_of_positive(np.asarray(covariance, dtype=np.float64))
    except np.linalg.LinAlgError:
        raise InputError(
            "covariance",
            expected="a positive definite matrix",
            got="a singular one",
            remedy=UNHIDDEN,
        ) from None


def _precision_in_time(noising: Array) -> Array:
    """(C^-1 C^-T)^-1 = C^T C, from the exported matrix and from nothing else."""
    if not np.diag(noising).all():
        raise InputError(
            "noising_matrix",
            expected="an invertible matrix",
            got=f"diagonal entry {int((np.diag(noising) == 0).argmax())} = 0",
            remedy=UNHIDDEN,
        )
    strategy = np.linalg.solve(noising, np.eye(len(noising)))
    return np.asarray(strategy.T @ strategy)


def run_audit(
    attack: Attack,
    noise: Noise,
    *,
    floats_per_run: int,
    claimed_mu: float,
    runs: int,
    seed: int,
    confidence: float,
    progress: Progress | None,
    steps: tuple[int, ...],
    learned: Noise | None = None,
) -> AuditReport:
    """Both worlds, a block of runs at a time; ``learned`` is drawn from the seeds of ``noise``."""
    claimed = _checks.real(claimed_mu, field="claimed_mu", low=0)
    runs, confidence = check_runs(runs), check_confidence(confidence)
    block = streams.columns_per_block(floats_per_column=floats_per_run, total=runs)
    moments, errors = (RunningMoments(), RunningMoments()), [0, 0]
    for world in (0, 1):
        for index, start in enumerate(range(0, runs, block)):
            size = min(block, runs - start)
            sequence = streams.seed_sequence(seed, world, index)
            columns = size * attack.coordinates
            known = None if learned is None else learned(columns, sequence)
            values = attack.statistic(
                noise(columns, sequence), runs=size, world=world, learned=known
            )
            moments[world].add(values)
            errors[world] += int(((values > 0) != bool(world)).sum())
            if progress is not None:
                progress(world * runs + start + size, 2 * runs)
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
        steps=steps,
    )
