"""b-min-sep sampling (Dong and Ganesh 2026, arXiv 2602.09338): a recursion for the likelihood
ratio, and its bounds by moments, samples, tangents and composition
(docs/methods/random-participation.md, "Kinds other than balls in bins")."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.accounting import LEAST, delta_above
from noisedesign.privacy.amplification.directions import MONTE_CARLO, Bound
from noisedesign.privacy.amplification.mixture import log_kappa, mean_upper
from noisedesign.system.participation import BMinSepSampling

ROUNDING = 64 * settings.EPS  # share of the largest product of columns that is rounding
TANGENTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # distances of their points over their slopes
GRID = 200  # epsilons at which both directions are bounded


@dataclass(frozen=True, eq=False)
class Chain:
    """The columns of a run over unit noise, shape (m, T), and who may take part when."""

    rows: Array
    participation: BMinSepSampling

    def __post_init__(self) -> None:
        b = self.participation.separation
        far = np.triu(self.gram, b)
        if far.max() > ROUNDING * self.squares.max():
            s, t = (int(k) for k in np.unravel_index(far.argmax(), far.shape))
            raise InputError(
                "participation",
                expected=f"columns {b} or more steps apart that share no row (at most separation = "
                f"{b} bands), for b-min-sep sampling",
                got=f"steps {s} and {t} that share rows",
                remedy='Take fewer bands, or kind = "balls-in-bins", which has no such limit.',
            )

    @cached_property
    def gram(self) -> Array:
        """<v_s, v_t>, shape (T, T)."""
        found: Array = self.rows.T @ self.rows
        return found

    @property
    def squares(self) -> Array:
        return np.diagonal(self.gram)

    @cached_property
    def orthogonal(self) -> bool:
        """Whether no two columns meet: noise is white in time."""
        return bool(np.triu(self.gram, 1).max(initial=0.0) <= ROUNDING * self.squares.max())

    @cached_property
    def sensitivity_squared(self) -> float:
        """The largest squared sensitivity of a pattern, without amplification."""
        return self.participation.fixed.heaviest(self.squares)

    def log_ratio(self, logs: Array) -> Array:
        """log L of logs of r, shape (T, N); with theta times the logs, log sum p w^theta."""
        b, p = self.participation.separation, self.participation.rate
        found = np.zeros((b, logs.shape[1]))  # L_s at s modulo b
        skip = math.log1p(-p) if p < 1 else -math.inf
        for s in range(len(logs) - 1, -1, -1):
            taken = math.log(p) + logs[s] + found[s % b]
            found[s % b] = np.logaddexp(skip + found[(s + 1) % b], taken)
        total: Array = logsumexp(self._start[:, None] + found, axis=0)
        return total

    @cached_property
    def _start(self) -> Array:
        with np.errstate(divide="ignore"):
            found: Array = np.log(self.participation.held_back)
        return found

    def likelihoods(self, shift: Array, rng: Generator) -> Array:
        """logs of r for y = V shift + noise, shape (T, N) as ``shift``."""
        y = rng.standard_normal((len(self.rows), shift.shape[1])) + self._sparse @ shift
        found: Array = self._sparse.T @ y - self.squares[:, None] / 2
        return found

    @cached_property
    def _sparse(self) -> sparse.csr_array:
        return sparse.csr_array(self.rows)

    def taking_part(self, logs: Array) -> tuple[float, Array]:
        """log L of logs of r, shape (T,), and how likely each step is taken given them, (T,)."""
        b, p, horizon = self.participation.separation, self.participation.rate, len(logs)
        ahead = np.zeros(horizon + b)
        skip = math.log1p(-p) if p < 1 else -math.inf
        for s in range(horizon - 1, -1, -1):
            ahead[s] = np.logaddexp(skip + ahead[s + 1], math.log(p) + logs[s] + ahead[s + b])
        total = float(logsumexp(self._start + ahead[:b]))
        free = np.concatenate([np.exp(self._start + ahead[:b] - total), np.zeros(horizon)])
        chance = p * np.exp(logs + ahead[b:] - ahead[:-b])
        ready, taking = 0.0, np.zeros(horizon)
        for s in range(horizon):
            ready += free[s]
            taking[s] = chance[s] * ready
            ready -= taking[s]
            free[s + b] += taking[s]
        return total, taking

    @cached_property
    def _tangents(self) -> list[tuple[float, float]]:
        """|g| and the gap of the tangents of log L at some points: see :meth:`add_by_tangents`."""
        found, y = [], np.zeros(len(self.rows))
        for tilt in TANGENTS:
            for _ in range(3):
                log_ratio, taking = self.taking_part(self.rows.T @ y - self.squares / 2)
                slope = self.rows @ taking
                own = float(slope @ slope)
                found.append((math.sqrt(own), log_ratio - float(y @ slope) + own / 2))
                y = -tilt * slope
        return found

    def add_by_tangents(self, epsilon: float) -> float:
        """Upper bound of addition: log L is convex, so above its tangents, each a Gaussian's."""
        bounds = [1.0]
        for mu, gap in self._tangents:
            behind = epsilon + gap - ROUNDING * abs(gap) - 1e-12
            if mu > 0 and behind > 0:
                bounds.append(delta_above(mu, behind))
        return min(bounds)


@dataclass(frozen=True, eq=False)
class Tilt:
    """M = (sum p w^theta)^m: its mean under Q, and draws from M dQ."""

    chain: Chain
    chains: int
    theta: float

    @property
    def alpha(self) -> float:
        return self.chains * self.theta

    @cached_property
    def _ahead(self) -> Array:
        """log E of what comes from step s on, by how long each is still held back, (T + 1, b^m)."""
        b, horizon = self.chain.participation.separation, len(self.chain.squares)
        states = np.indices((b,) * self.chains).reshape(self.chains, -1)
        found = np.zeros((horizon + 1, states.shape[1]))
        for s in range(horizon - 1, -1, -1):
            found[s] = logsumexp(self._choices(s, states, found[s + 1]), axis=0)
        return found

    def _choices(self, s: int, held: NDArray[np.intp], ahead: Array) -> Array:
        """log weights of who takes part in s and what follows, (2^m, N), given who is ``held``."""
        rate, theta = self.chain.participation.rate, self.theta
        square = float(self.chain.squares[s])
        free = held == 0
        meeting = self._meeting(s)[held].sum(axis=0)
        skip = math.log1p(-rate) if rate < 1 else -math.inf
        skips = np.array([0.0, *[k * skip for k in range(1, self.chains + 1)]])
        found = np.empty((2**self.chains, held.shape[1]))
        for row, taking in zip(found, self._subsets, strict=True):
            count = int(taking.sum())
            weight = count * math.log(rate) + square / 2 * (count * theta) * (count * theta - 1)
            skipped = np.maximum(free.sum(axis=0) - count, 0)
            row[:] = weight + count * theta * theta * meeting + ahead[self._after(held, taking)]
            row += skips[skipped]
            row[~free[taking].all(axis=0)] = -math.inf
        return found

    @cached_property
    def _subsets(self) -> NDArray[np.bool_]:
        return np.array(list(itertools.product((False, True), repeat=self.chains)))

    def _meeting(self, s: int) -> Array:
        """<v_s, v_t> with the step t in which somebody held back for r more steps took part."""
        b = self.chain.participation.separation
        found = np.zeros(b)
        first = max(1, b - s)
        found[first:] = self.chain.gram[s, s - b + first : s]
        return found

    def _after(self, held: NDArray[np.intp], taking: NDArray[np.bool_]) -> NDArray[np.intp]:
        b = self.chain.participation.separation
        following = np.where(taking[:, None], b - 1, np.maximum(held - 1, 0))
        found: NDArray[np.intp] = np.ravel_multi_index(tuple(following), (b,) * self.chains)
        return found

    @cached_property
    def _log_starts(self) -> Array:
        found = start = self.chain._start
        for _ in range(self.chains - 1):
            found = np.add.outer(found, start)
        total: Array = found.ravel() + self._ahead[0]
        return total

    @cached_property
    def log_mean(self) -> float:
        return float(logsumexp(self._log_starts))

    def log_scale(self, epsilon: float) -> float:
        """log of kappa K^(1 - alpha)."""
        kappa = log_kappa(self.alpha) if self.alpha > 1 else 0.0
        return kappa + (1 - self.alpha) * epsilon

    def bound(self, epsilon: float) -> float:
        """kappa K^(1 - alpha) Z, rounded up: at least remove(epsilon)."""
        exponent = self.log_scale(epsilon) + self.log_mean
        return math.exp(min(exponent + 1e-10 * (1 + abs(self.log_mean)), 700.0))

    def reach(self, delta: float) -> float:
        """Epsilon at which that is delta."""
        if self.alpha == 1:
            return math.inf
        return max((self.log_scale(0.0) + self.log_mean - math.log(delta)) / (self.alpha - 1), 0.0)

    def draws(self, count: int, rng: Generator) -> tuple[Array, Array]:
        """log L and log M of independent draws from M dQ / Z."""
        shape = self.chain.rows.shape
        parts = [self._draw(size, rng) for size in _sizes(count, max(shape))]
        return np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts])

    def _draw(self, count: int, rng: Generator) -> tuple[Array, Array]:
        logs = self.chain.likelihoods(self.theta * self._patterns(count, rng), rng)
        likelihood = self.chain.log_ratio(logs)
        powers = likelihood if self.theta == 1 else self.chain.log_ratio(self.theta * logs)
        return likelihood, self.chains * powers

    def _patterns(self, count: int, rng: Generator) -> Array:
        """Number of the m patterns of each draw that take each step, shape (T, count)."""
        b, horizon = self.chain.participation.separation, len(self.chain.squares)
        weights = np.exp(self._log_starts - self.log_mean)
        state = rng.choice(len(weights), size=count, p=weights / weights.sum())
        taken = np.zeros((horizon, count))
        for s in range(horizon):
            held = np.array(np.unravel_index(state, (b,) * self.chains))
            logs = self._choices(s, held, self._ahead[s + 1])
            chances = np.exp(logs - logs.max(axis=0)).cumsum(axis=0)
            chosen = (chances < rng.random(count) * chances[-1]).sum(axis=0)
            for number, taking in enumerate(self._subsets):
                here = chosen == number
                taken[s, here] = taking.sum()
                state[here] = self._after(held[:, here], taking)
        return taken


def chosen(chain: Chain, delta: float, samples: int) -> tuple[Tilt, Tilt]:
    """The tilt of the least epsilon at delta, and the one to draw from."""
    b, horizon = chain.participation.separation, len(chain.squares)
    # One chain, and as many as have few enough states together.
    few = [k for k in range(2, 6) if horizon * b**k <= 2**21]
    tried = [
        Tilt(chain, chains, theta)
        for chains in {1, *few[-1:]}
        for theta in (1.0, 1.25, 1.5, 2.0, 3.0)
    ]
    resolved = min(delta * samples / 400, 0.1)
    return (
        min(tried, key=lambda tilt: tilt.reach(delta)),
        min(tried, key=lambda tilt: tilt.reach(resolved)),
    )


def sampled(
    tilt: Tilt, *, largest: float, failure: float, samples: int, rng: Generator
) -> tuple[Bound, Bound]:
    """Removal and addition by Monte Carlo, on a grid chosen beforehand, with one failure."""
    epsilons = largest * np.arange(GRID + 1) / GRID
    share = failure / (2 * len(epsilons))
    chain = tilt.chain
    likelihood, powers = tilt.draws(samples, rng)
    removed = []
    for epsilon in epsilons.tolist():
        excess = np.maximum(likelihood, epsilon)
        ratios = -np.expm1(epsilon - excess) * np.exp(excess - powers - tilt.log_scale(epsilon))
        scale = tilt.bound(epsilon)
        removed.append((scale * mean_upper(ratios, share), scale * float(ratios.mean())))
    none = (np.zeros((len(chain.squares), size)) for size in _sizes(samples, max(chain.rows.shape)))
    likelihood = np.concatenate([chain.log_ratio(chain.likelihoods(z, rng)) for z in none])
    added = []
    for epsilon in epsilons.tolist():
        ratios = -np.expm1(np.minimum(likelihood + epsilon, 0))
        added.append((mean_upper(ratios, share), float(ratios.mean())))
    return _on(epsilons, removed), _on(epsilons, added)


def _on(epsilons: Array, found: list[tuple[float, float]]) -> Bound:
    bounds, estimates = np.array(found).T
    falling = np.minimum.accumulate(np.minimum(bounds, 1.0))

    def below(values: Array, epsilon: float) -> float:
        return float(values[int(np.searchsorted(epsilons, epsilon, side="right")) - 1])

    return Bound(MONTE_CARLO, partial(below, falling), partial(below, np.maximum(estimates, LEAST)))


def _sizes(count: int, height: int) -> Iterator[int]:
    most = max(2**21 // height, 1)  # so many numbers at once
    yield from (min(most, count - first) for first in range(0, count, most))
