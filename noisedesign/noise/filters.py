"""Noise from white noise over time, z = C^-1 w, by operations of one order: the same bits whatever
is asked for first, and in whatever pieces.

Each filter keeps ``rows`` arrays between steps, in the precision of what it gives away, and
computes in float64 from these. So noise in float32 is not rounded noise of float64: every step is
rounded as it leaves, and what follows sees it rounded. ``products`` of arrays are never matrix
products, whose order of summation depends on their size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisedesign.base.checks import Array

White = Callable[[int], Array]
"""Zero-based step -> white noise of that step, float64."""


class Filter(ABC):
    """C^-1 of one node. ``arrays`` are those its strategy has in design files."""

    kind: ClassVar[str]
    rows: int = 0
    """Arrays kept between steps."""

    @abstractmethod
    def step(self, t: int, white: White, kept: Array) -> Array:
        """z_t, float64, from white noise and the ``rows`` arrays of ``kept``, which are moved on to
        step t. Where there are none, steps can be asked for in any order."""

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """What determines it."""

    @abstractmethod
    def reach(self, t: int) -> int:
        """Steps of white noise that :meth:`step` asks for."""


@dataclass(frozen=True, eq=False)
class Fresh(Filter):
    """No correlation over time."""

    kind: ClassVar[str] = "fresh"

    def step(self, t: int, white: White, kept: Array) -> Array:
        return white(t)

    def arrays(self) -> Mapping[str, Array]:
        return {}

    def reach(self, t: int) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class Rows(Filter):
    """z_t = sum over s <= t of N[t, s] w_s, N = C^-1, shape (T, T): draws come again at every
    step."""

    kind: ClassVar[str] = "dense"
    noising_matrix: Array

    def step(self, t: int, white: White, kept: Array) -> Array:
        total: Array = white(0) * self.noising_matrix[t, 0]
        for s in range(1, t + 1):
            if self.noising_matrix[t, s]:
                total += white(s) * self.noising_matrix[t, s]
        return total

    def arrays(self) -> Mapping[str, Array]:
        return {"noising_matrix": self.noising_matrix}

    def reach(self, t: int) -> int:
        return t + 1


@dataclass(frozen=True, eq=False)
class Banded(Filter):
    """z_t = (w_t - sum over 0 < i < p of C[t, t - i] z_(t-i)) / C[t, t]; ``bands``, shape (p, T),
    has C[t + i, t] at [i, t]."""

    kind: ClassVar[str] = "banded"
    strategy_bands: Array

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.strategy_bands) - 1

    def step(self, t: int, white: White, kept: Array) -> Array:
        noise, bands = white(t), self.strategy_bands
        for i in range(1, min(t, self.rows) + 1):
            noise -= np.multiply(kept[(t - i) % self.rows], bands[i, t - i], dtype=np.float64)
        noise /= bands[0, t]
        if self.rows:
            kept[t % self.rows] = noise
        return noise

    def arrays(self) -> Mapping[str, Array]:
        return {"strategy_bands": self.strategy_bands}

    def reach(self, t: int) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class Toeplitz(Banded):
    """The same with C constant along diagonals, ``strategy_coefficients`` c, shape (p,)."""

    kind: ClassVar[str] = "toeplitz"
    strategy_bands: Array
    strategy_coefficients: Array

    @classmethod
    def of(cls, coefficients: Array, *, horizon: int) -> Toeplitz:
        """Without p x T numbers in memory."""
        bands = np.broadcast_to(coefficients[:, None], (len(coefficients), horizon))
        return cls(bands, coefficients)

    def arrays(self) -> Mapping[str, Array]:
        return {"strategy_coefficients": self.strategy_coefficients}


@dataclass(frozen=True, eq=False)
class Moving(Filter):
    """z_t = sum over i < p of d_i w_(t-i): C^-1 is banded, and constant along its diagonals."""

    kind: ClassVar[str] = "banded-inverse"
    noising_coefficients: Array

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.noising_coefficients) - 1

    def step(self, t: int, white: White, kept: Array) -> Array:
        draw, taps = white(t), self.noising_coefficients
        if kept.dtype != np.float64:
            draw = draw.astype(kept.dtype).astype(np.float64)
        noise: Array = draw * taps[0]
        for i in range(1, min(t, self.rows) + 1):
            noise += np.multiply(kept[(t - i) % self.rows], taps[i], dtype=np.float64)
        if self.rows:
            kept[t % self.rows] = draw
        return noise

    def arrays(self) -> Mapping[str, Array]:
        return {"noising_coefficients": self.noising_coefficients}

    def reach(self, t: int) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class Buffered(Filter):
    """z_t = y_t / g for y_t = w_t - sum_i omega_i b_i and b_i <- theta_i b_i + y_t (buffered linear
    Toeplitz)."""

    kind: ClassVar[str] = "blt"
    buffer_scales: Array
    buffer_decays: Array
    strategy_diagonal: Array

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.buffer_scales)

    def step(self, t: int, white: White, kept: Array) -> Array:
        noise = white(t)
        if t == 0:
            kept[:] = 0
        for i, scale in enumerate(self.buffer_scales):
            noise -= np.multiply(kept[i], scale, dtype=np.float64)
        for i, decay in enumerate(self.buffer_decays):
            kept[i] = np.multiply(kept[i], decay, dtype=np.float64) + noise
        noise /= self.strategy_diagonal[0]
        return noise

    def arrays(self) -> Mapping[str, Array]:
        return {
            "buffer_scales": self.buffer_scales,
            "buffer_decays": self.buffer_decays,
            "strategy_diagonal": self.strategy_diagonal,
        }

    def reach(self, t: int) -> int:
        return 1


def filter_of(kind: str, arrays: Mapping[str, Array], *, horizon: int) -> Filter:
    """Back from :attr:`Filter.kind` and :meth:`Filter.arrays`."""
    if kind == Toeplitz.kind:
        return Toeplitz.of(arrays["strategy_coefficients"], horizon=horizon)
    made: dict[str, type[Filter]] = {f.kind: f for f in (Fresh, Rows, Banded, Moving, Buffered)}
    return made[kind](**arrays)
