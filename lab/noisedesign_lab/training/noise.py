"""Unit noise of a mechanism, a step at a time, from white noise that all mechanisms share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Places
from noisedesign_lab.training.seeding import Use, generator

KEPT_FLOATS = 2**26  # white noise that is kept (512 MB); what does not fit is drawn again
PANEL_FLOATS, PANEL_STEPS = 2**22, 32  # of one matrix product of noise: at most 32 MB


class WhiteNoise:
    """Standard normal numbers of every seed, step, node and coordinate; ``shape`` is (n, d)."""

    def __init__(self, seeds: Sequence[int], *, shape: tuple[int, int], steps: int) -> None:
        self.seeds, self.steps = tuple(seeds), steps
        self.shape = (len(self.seeds), *shape)
        self.width = int(np.prod(self.shape))
        self._kept: Array | None = None
        self._drawn = 0
        self._last: tuple[int, Array] | None = None

    def at(self, step: int) -> Array:
        """Return the numbers of one step, shape (S, n, d)."""
        if self._last is None or self._last[0] != step:
            self._last = step, self.rows(step, step + 1)[0].reshape(self.shape)
        return self._last[1]

    def keep(self) -> None:
        """Keep what is drawn from now on, as far as it fits: somebody comes back for it."""
        if self._kept is None:
            self._kept = np.empty((min(self.steps, KEPT_FLOATS // self.width), self.width))

    def rows(self, start: int, stop: int) -> Array:
        """Steps ``start`` to ``stop``, shape (steps, S n d)."""
        if self._kept is None or stop > len(self._kept):
            found = np.empty((stop - start, self.width))
            for row, step in zip(found, range(start, stop), strict=True):
                self._draw(step, row)
            return found
        while self._drawn < stop:
            self._draw(self._drawn, self._kept[self._drawn])
            self._drawn += 1
        return self._kept[start:stop]

    def _draw(self, step: int, out: Array) -> None:
        parts = out.reshape(len(self.seeds), -1)
        for part, seed in zip(parts, self.seeds, strict=True):
            generator(seed, Use.NOISE, step).standard_normal(out=part)


class Source(ABC):
    """Unit noise of one mechanism."""

    on_messages = False
    """Whether it is added to models after mixing; else to the sums of gradients, before."""

    @abstractmethod
    def stream(self, white: WhiteNoise) -> Iterator[Array]:
        """Its T steps, arrays of shape (S, n, d)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeNoise(Source):
    """z_t = sum_s (C^-1)_ts F w_s, w_s white: noise a node adds to its sum of gradients.

    ``root`` is F with F F^T = R, shape (n, n); None: independent nodes. ``noising`` is C^-1, lower
    triangular, (T, T); None: independent steps. With ``full`` it is that of all pairs of step and
    node in time-major order, (nT, nT), and there is no root."""

    root: Any = None
    noising: Any = None
    full: bool = False

    def __post_init__(self) -> None:
        for field in ("root", "noising"):
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, _checks.matrix(value, field=field, square=True))
        if self.full and (self.root is not None or self.noising is None):
            raise InputError("noising", expected="full noise alone", got="full noise and a root")

    def stream(self, white: WhiteNoise) -> Iterator[Array]:
        if self.noising is None:
            steps: Iterator[Array] = map(white.at, range(white.steps))
        elif self.full:
            steps = self._full(white)
        else:
            self._require(len(self.noising) >= white.steps)
            steps = self._in_time(white)
        if self.root is None:
            return steps
        self._require(len(self.root) == white.shape[1])
        return (self.root @ step for step in steps)

    def _require(self, fits: bool) -> None:
        if not fits:
            expected = "noise of as many nodes and steps as are trained"
            raise InputError("noise", expected=expected, got="noise of other shapes")

    def _in_time(self, white: WhiteNoise) -> Iterator[Array]:
        white.keep()
        ahead = max(1, min(PANEL_STEPS, PANEL_FLOATS // white.width))
        for start in range(0, white.steps, ahead):
            stop = min(start + ahead, white.steps)
            panel = np.zeros((stop - start, white.width))
            for first in range(0, stop, ahead):
                last = min(first + ahead, stop)
                block = self.noising[start:stop, first:last]
                if block.any():
                    panel += block @ white.rows(first, last)
            yield from panel.reshape(-1, *white.shape)

    def _full(self, white: WhiteNoise) -> Iterator[Array]:
        white.keep()
        n = white.shape[1]
        self._require(len(self.noising) == n * white.steps)
        for step in range(white.steps):
            rows = self.noising[step * n : (step + 1) * n]
            total = np.zeros(white.shape)
            for first in range(step + 1):
                total += rows[:, first * n : (first + 1) * n] @ white.at(first)
            yield total


def common_noise(nodes: int, *, variance: float) -> NodeNoise:
    """The same noise at every node, of that variance (squared), as a trusted server adds it."""
    return NodeNoise(root=np.full((nodes, nodes), np.sqrt(variance / nodes)))


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageNoise(Source):
    """Zip-DL: unit noise on every message, zero-sum over the closed neighbourhood of its sender.

    Node u adds Z_uv = Y_v - (1 / (d W_vu)) sum_j W_ju Y_j for each of d receivers v (Algorithm 1).
    Node v is left with sum_u W_vu Z_uv, which is drawn alone but where ``every_message`` is seen.
    """

    mixing: Any
    every_message: bool = False

    on_messages = True

    def __post_init__(self) -> None:
        checked = _checks.matrix(self.mixing, field="mixing", square=True)
        object.__setattr__(self, "mixing", checked)

    @cached_property
    def edges(self) -> tuple[Places, Places]:
        """Senders and receivers of every message, that to itself included, (M,) each, by sender."""
        senders, receivers = np.nonzero(self.mixing.T)
        return senders, receivers

    @cached_property
    def _weights(self) -> Array:
        """W_vu of every message, shape (M,)."""
        senders, receivers = self.edges
        return np.asarray(self.mixing[receivers, senders])

    @cached_property
    def _first(self) -> Places:
        """Place of the first message of every sender."""
        senders, _ = self.edges
        return np.asarray(np.searchsorted(senders, np.arange(len(self.mixing))))

    def messages(self, white: Array) -> Array:
        """Z of every message from white Y, both of shape (S, M, d)."""
        senders, _ = self.edges
        weights = self._weights[:, None]
        degree = np.bincount(senders, minlength=len(self.mixing))
        sums = np.add.reduceat(weights * white, self._first, axis=1)
        return np.asarray(white - sums[:, senders] / (degree[senders, None] * weights))

    def received(self, messages: Array) -> Array:
        """sum_u W_vu Z_uv, shape (S, n, d), of Z of every message."""
        _, receivers = self.edges
        order = np.argsort(receivers, kind="stable")
        first = np.searchsorted(receivers[order], np.arange(len(self.mixing)))
        weighted = self._weights[:, None] * messages
        return np.asarray(np.add.reduceat(weighted[:, order], first, axis=1))

    @cached_property
    def _root(self) -> Array:
        """F, (n, n), with F F^T the covariance of what is left after mixing."""
        factor = self.received(self.messages(np.eye(len(self._weights))[None]))[0]
        # Triangular by QR: noise that cancels does so to rounding, and not to its root.
        return np.asarray(np.linalg.qr(factor.T)[1].T)

    def stream(self, white: WhiteNoise) -> Iterator[Array]:
        if self.every_message:
            return (self.received(drawn) for drawn in self.drawn(white))
        return (self._root @ white.at(step) for step in range(white.steps))

    def drawn(self, white: WhiteNoise) -> Iterator[Array]:
        """Z of every message, shape (S, M, d) a step: the same whenever it is asked for."""
        shape = (len(self._weights), white.shape[2])
        for step in range(white.steps):
            streams = (generator(seed, Use.MESSAGES, step) for seed in white.seeds)
            yield self.messages(np.stack([rng.standard_normal(shape) for rng in streams]))
