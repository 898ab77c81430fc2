"""The noise of an algorithm, what is left of it for an observer who knows part of it, and what a
reader of *all* messages learns, in closed form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """The noise known: all seeds of ``holders``, totals of ``values``, and ``seeds`` by holders."""

    holders: frozenset[int] = frozenset()
    values: frozenset[int] = frozenset()
    seeds: frozenset[frozenset[int]] = frozenset()
    everything: bool = False

    @property
    def revealed(self) -> frozenset[int]:
        """Nodes named in a way that reveals the noise of a node which shares no seeds."""
        single = {next(iter(seed)) for seed in self.seeds if len(seed) == 1}
        return frozenset(self.holders | self.values | single)


@dataclass(frozen=True, kw_only=True, eq=False)
class FullView:
    """Grams ``scale[u] * grams[which[u]]``, their triangular roots, and steps seen without
    noise."""

    scale: Array
    grams: tuple[Gram, ...]
    which: tuple[int, ...]
    unprotected: NDArray[np.bool_]  # shape (n, T)
    rows: tuple[Gram, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _FactoredNoise:
    factor: Array

    @property
    def noise_scale(self) -> float:
        """Largest standard deviation of a node's noise at a step."""
        return float(np.linalg.norm(self.factor, axis=1).max(initial=0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeNoise(_FactoredNoise):
    """Noise C^-1 Z L^T of the nodes, Z white: ``factor`` L, shape (n, p), C lower triangular, (T,
    T), and who holds the source behind each column of L, None of a trusted party."""

    seeds: tuple[frozenset[int], ...] | None
    strategy: Array | None = None

    def remaining(self, known: Knowledge) -> Array:
        """A factor of one step's noise that is unknown, shape (n, q)."""
        if known.everything:
            return np.zeros((len(self.factor), 1))
        factor, values = self.factor, set(known.values)
        if self.seeds is None:
            values |= known.revealed
        else:
            kept = [
                holders not in known.seeds and not holders & known.holders for holders in self.seeds
            ]
            factor = factor[:, kept]
        if factor.shape[1] == 0:
            return np.zeros((len(factor), 1))
        return row_space_projected_out(factor, sorted(values))

    def scaled(self, by: Array) -> NodeNoise:
        """Multiply the noise of every node by its own factor, shape (n,)."""
        return replace(self, factor=by[:, None] * self.factor)

    def full_view(self, known: Knowledge, horizon: int, *, rounds: int = 1) -> FullView:
        """All messages reveal the noisy gradients, in the first round: M_u = [R^-1]_uu C^T C."""
        factor, c = self.remaining(known), self.strategy
        split = whitening(factor, noise_scale=self.noise_scale)
        return FullView(
            scale=np.square(split.scaled).sum(axis=0),
            grams=(identity_gram(horizon) if c is None else np.asarray(c.T @ c),),
            which=(0,) * len(factor),
            unprotected=np.tile(split.unprotected()[:, None], horizon),
            rows=(identity_gram(horizon) if c is None else c,),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceTimeNoise(_FactoredNoise):
    """Noise of a trusted party with any covariance: rows of its factor, (n T, q), are t * n + u."""

    count: int

    def remaining(self, known: Knowledge) -> Array:
        """A factor of the covariance over all steps given the knowledge, shape (n T, q)."""
        if known.everything:
            return np.zeros((len(self.factor), 1))
        steps = np.arange(0, len(self.factor), self.count)
        rows = [int(t) + node for t in steps for node in sorted(known.revealed)]
        return row_space_projected_out(self.factor, rows)

    def scaled(self, by: Array) -> SpaceTimeNoise:
        """Multiply the noise of every node by its own factor, shape (n,)."""
        return replace(
            self, factor=np.tile(by, len(self.factor) // self.count)[:, None] * self.factor
        )

    def full_view(self, known: Knowledge, horizon: int, *, rounds: int = 1) -> FullView:
        """M_u is the T x T block of node u in the inverse of the covariance."""
        factor = self.remaining(known)
        split = whitening(factor, noise_scale=self.noise_scale)
        unprotected = split.unprotected().reshape(horizon, self.count).T
        precision = split.scaled.T @ split.scaled
        grams = tuple(
            np.ascontiguousarray(precision[node :: self.count, node :: self.count])
            for node in range(self.count)
        )
        return FullView(
            scale=np.ones(self.count),
            grams=grams,
            which=tuple(range(self.count)),
            unprotected=unprotected,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageNoise:
    """Zip-DL: noise for every receiver, cancelling where messages are averaged (Zip-DL, Algorithm
    1, Lemma 3.1). Node a draws Y_v for the d receivers of its neighbourhood, itself too where it is
    ``closed``, and adds Z_v = Y_v - (1 / (d W_va)) sum_j W_ja Y_j to the message for v."""

    mixing: Array
    variance: float
    closed: bool
    self_seen: bool  # whether a reader of messages sees the one a node keeps for itself
    schedule: Array | None = None
    scales: Array | None = None

    def scaled(self, by: Array) -> MessageNoise:
        """Multiply the noise of every sender by its own factor, shape (n,)."""
        return replace(self, scales=by if self.scales is None else by * self.scales)

    @property
    def phases(self) -> tuple[MessageNoise, ...]:
        """The noise of every step of a period."""
        if self.schedule is None:
            return (self,)
        return tuple(replace(self, mixing=w, schedule=None) for w in self.schedule)

    def receivers(self, sender: int) -> NDArray[np.intp]:
        """Nodes whose noise is drawn by ``sender``, shape (d,)."""
        nodes = np.flatnonzero(self.mixing[:, sender])
        return nodes if self.closed else nodes[nodes != sender]

    def transform(self, sender: int) -> Array:
        """Z = transform @ white noise, shape (d, d), rows in the order of :meth:`receivers`."""
        weights = self.mixing[self.receivers(sender), sender]
        d = len(weights)
        zero_sum = np.eye(d) - np.multiply.outer(1 / weights, weights) / max(d, 1)
        scale = 1.0 if self.scales is None else float(self.scales[sender])
        return np.asarray(scale * np.sqrt(self.variance) * zero_sum)

    def message_factor(self, sender: int, receivers: Iterable[int], known: Knowledge) -> Array:
        """Rows of :meth:`transform` for some receivers; zero where they carry no unknown noise."""
        transform = self.transform(sender)
        place = {int(node): row for row, node in enumerate(self.receivers(sender))}
        rows = [transform[place[v]] if v in place else np.zeros(len(transform)) for v in receivers]
        result = np.array(rows).reshape(len(rows), len(transform))
        revealed = known.everything or sender in known.revealed
        return np.zeros_like(result) if revealed else result

    def full_view(self, known: Knowledge, horizon: int, *, rounds: int = 1) -> FullView:
        """The closed form: node a integrates x <- w (x + g), and tells it with information i_a."""
        # M_ss' = sum_{t >= max(s, s')} J_t q_ts q_ts' with w = sum_v W_va, q_ts the product of w^K
        # from s to t - 1, and J_t = i_a (1 + w^2 + ... + w^(2 K - 2)).
        n, phases = len(self.mixing), self.phases
        growth = np.stack([phase.mixing.sum(axis=0) for phase in phases]).round(12)
        told = np.zeros((len(phases), n))
        leaks = np.zeros((len(phases), n), dtype=bool)
        for number, phase in enumerate(phases):
            for sender in range(n):
                told[number, sender], leaks[number, sender] = phase._of_sender(sender, known)
        told *= (growth[..., None] ** (2 * np.arange(rounds))).sum(axis=-1)
        steps = np.arange(horizon) % len(phases)
        # A leak at a step tells what entered before it, too.
        unprotected = np.logical_or.accumulate(leaks[steps][::-1])[::-1].T
        if len(phases) == 1:
            different, which = np.unique(growth[0], return_inverse=True)
            alike = np.ones((horizon, len(different)))
            roots = _integrators(alike, np.tile(different**rounds, (horizon, 1)))
            scale, numbers = told[0], tuple(int(i) for i in which)
        else:
            roots = _integrators(told[steps], growth[steps] ** rounds)
            scale, numbers = np.ones(n), tuple(range(n))
        grams = tuple(np.asarray(root.T @ root) for root in roots)
        return FullView(
            scale=scale, grams=grams, which=numbers, unprotected=unprotected, rows=roots
        )

    def _of_sender(self, sender: int, known: Knowledge) -> tuple[float, bool]:
        """Precision with which a round's messages tell their model, and whether exactly."""
        seen = np.flatnonzero(self.mixing[:, sender])
        seen = seen if self.self_seen else seen[seen != sender]
        if not seen.size:
            return 0.0, False
        factor = self.message_factor(sender, [int(v) for v in seen], known)
        # Noisy copies of one number tell it with precision 1^T (F F^T)^-1 1.
        split = whitening(factor, noise_scale=self.noise_scale)
        copies = np.ones((len(factor), 1))
        return float(np.square(split.scaled @ copies).sum()), bool(split.leaks(copies).all())

    @property
    def noise_scale(self) -> float:
        """Largest standard deviation of the noise the messages' noises are made of."""
        scale = 1.0 if self.scales is None else float(self.scales.max())
        return scale * float(np.sqrt(self.variance))


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerNoise:
    """Noise of a trusted server on the average of all models, of one step's standard deviation."""

    stddev: float
    count: int
    strategy: Array | None = None

    def scaled(self, by: Array) -> ServerNoise:
        """Raises InputError: no node adds this noise."""
        expected = "one number for noise that a server adds"
        raise InputError("noise_multiplier", expected=expected, got=f"{len(by)}, one a node")

    def remaining(self, known: Knowledge) -> Array:
        """A factor of the covariance of the noise on every model given the knowledge, (n, 1)."""
        return np.full((self.count, 1), 0.0 if known.everything else self.stddev)

    def full_view(self, known: Knowledge, horizon: int, *, rounds: int = 1) -> FullView:
        """The Grams of messages to the server, which carry no noise."""
        return FullView(
            scale=np.zeros(self.count),
            grams=(zero_gram(horizon),),
            which=(0,) * self.count,
            unprotected=np.ones((self.count, horizon), dtype=bool),
            rows=(zero_gram(horizon),),
        )

    @property
    def noise_scale(self) -> float:
        return self.stddev


Noise = NodeNoise | SpaceTimeNoise | MessageNoise | ServerNoise


def _integrators(told: Array, growth: Array) -> tuple[Array, ...]:
    """sqrt(told_t) growth_s ... growth_(t-1) for s <= t, (T, T), for every column of (T, m)."""
    horizon, found = len(told), []
    for weight, factor in zip(told.T, growth.T, strict=True):
        response = np.eye(horizon)
        for t in range(1, horizon):
            response[t, :t] = response[t - 1, :t] * factor[t - 1]
        found.append(np.asarray(np.sqrt(weight)[:, None] * response))
    return tuple(found)


Gram = Array | csr_array  # symmetric, T x T: sparse where it is banded and the horizon long
DENSE_HORIZON = 2048  # longest horizon whose T x T Gram matrices are dense arrays (32 MB each)


class VictimGram(NamedTuple):
    """The Gram of one victim, shape (T, T), and the steps seen without noise."""

    gram: Gram
    unprotected: NDArray[np.bool_]


def identity_gram(horizon: int) -> Gram:
    """I, in the form for its size."""
    return np.eye(horizon) if horizon <= DENSE_HORIZON else eye_array(horizon, format="csr")


def zero_gram(horizon: int) -> Gram:
    """The Gram of a victim of whom nothing is seen."""
    square = (horizon, horizon)
    return np.zeros(square) if horizon <= DENSE_HORIZON else csr_array(square, dtype=np.float64)


NULL = 8.0  # roundings of a decomposition below which a singular value of the noise is zero
CANCELLED = 1e-12  # standard deviation, relative to the noise it is left of, that counts as none
LEAK = 1e-10  # relative part of a unit signal on a noiseless direction that counts as seen


class Whitening(NamedTuple):
    """Observations with noise, scaled to unit variance, and without, of largest entry 1."""

    scaled: Array
    noiseless: Array
    shares: Array  # the latter as orthonormal rows in units of each observation's own noise

    def leaks(self, signals: Array) -> NDArray[np.bool_]:
        """Whether a signal, a column of (m, k), moves a direction without noise, shape (k,)."""
        return np.asarray(np.abs(self.noiseless @ signals).max(axis=0, initial=0.0) > LEAK)

    def unprotected(self) -> NDArray[np.bool_]:
        """Whether a signal in one observation alone moves a noiseless direction, shape (m,)."""
        return np.asarray(np.abs(self.shares).max(axis=0, initial=0.0) > LEAK)


def whitening(factor: Array, *, noise_scale: float) -> Whitening:
    """Split noise F times white noise, (m, q), by singular values, none below ``noise_scale``."""
    m = len(factor)
    if m == 0:
        return Whitening(*[np.zeros((0, 0))] * 3)
    # Units of single observations must not decide what counts as zero.
    deviation = np.linalg.norm(factor, axis=1)
    has_noise = deviation > CANCELLED * noise_scale
    units = 1 / np.where(has_noise, deviation, noise_scale or 1.0)
    small = np.asarray(np.linalg.qr((factor * units[:, None]).T, mode="r")).T
    left, values, _ = np.linalg.svd(small, full_matrices=True)
    full = np.zeros(m)
    full[: len(values)] = values[:m]
    noisy = full > max(NULL * settings.rank_tolerance(m) * float(full[0]), CANCELLED)
    scaled = (left[:, noisy] / full[noisy]).T * units
    shares = left[:, ~noisy].T
    noiseless = shares * units
    noiseless /= np.abs(noiseless).max(axis=1, initial=0.0, keepdims=True)
    return Whitening(*map(np.ascontiguousarray, (scaled, noiseless, shares)))


def row_space_projected_out(factor: Array, rows: list[int]) -> Array:
    """F (I - P) with P the projector on the span of some rows of F, which become exactly zero."""
    if not rows:
        return factor
    # Units of single rows must not decide what is rounding.
    lengths = np.linalg.norm(factor[rows], axis=1, keepdims=True)
    known = factor[rows] / np.where(lengths > 0, lengths, 1.0)
    _, values, right = np.linalg.svd(known, full_matrices=False)
    noisy = values > NULL * settings.rank_tolerance(max(factor.shape)) * values.max()
    spanned = right[noisy]
    rest = factor
    for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
        rest = rest - (rest @ spanned.T) @ spanned
    before = np.linalg.norm(factor, axis=1)
    rest[np.linalg.norm(rest, axis=1) <= CANCELLED * before] = 0.0
    rest[rows] = 0.0
    return np.asarray(rest)


def orthonormal_rows(rows: Array, *, against: Array) -> Array:
    """Orthonormal basis of what ``rows`` span beyond ``against``, down to rounding."""
    scale = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
    for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
        rows = rows - (rows @ against.T) @ against
    if not len(rows) or scale == 0:
        return np.zeros((0, rows.shape[1]))
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(
        right[values > NULL * settings.rank_tolerance(rows.shape[1]) * scale]
    )
