"""Noise from white noise over time, z = C^-1 w, by operations of one order: the same bits whatever
is asked for first, and in whatever pieces.

Each filter keeps ``rows`` arrays between steps, in the precision of what it gives away, and
computes in float64 from these. So noise in float32 is not rounded noise of float64: every step is
rounded as it leaves, and what follows sees it rounded. ``products`` of arrays are never matrix
products, whose order of summation depends on their size.

Steps take arrays of numpy, and tensors of torch as well, which this module does not import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array

White = Callable[[int], NDArray[Any]]  # zero-based step -> white noise of that step
DOUBLE = 2.0**-53  # unit roundoff of float64
_COLUMNS = 256  # columns of C^-1 that are held together


class Rounding(NamedTuple):
    """The effect of rounding on a filter: its noise is exactly C^-1 (w + e) with |e| at most
    ``of_white`` times the largest |w| plus ``of_noise`` times the largest noise it gives."""

    of_white: float
    of_noise: float


class Recursion(ABC):
    """Noise of a step from white noise and what is kept of the steps before."""

    rows: int = 0  # arrays kept between steps

    @abstractmethod
    def step(self, t: int, white: White, kept: NDArray[Any]) -> NDArray[Any]:
        """Return z_t from white noise and ``kept``, moved on to t; in any order without rows."""

    def latest(self, t: int, kept: NDArray[Any]) -> NDArray[Any] | None:
        """z_t as :meth:`step` left it in ``kept``; None where it is not in there."""
        return None


@dataclass(frozen=True, eq=False)
class Filter(Recursion):
    """C^-1 of one node, in float64. ``arrays`` are those its strategy has in design files."""

    kind: ClassVar[str]
    stationary: ClassVar[bool] = False  # whether C is constant along its diagonals

    @abstractmethod
    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        """Bound the rounding of what is kept and of noise that leaves, at that unit roundoff."""

    def strategy(self, horizon: int) -> Array | None:
        """Return diagonals of C, shape (p, T), C[t + i, t] at [i, t]; None where it has none."""
        return None

    def noising_columns(self, horizon: int) -> Iterator[Array]:
        """Yield C^-1, some columns at a time; the first alone of a stationary filter."""
        for first in range(0, 1 if self.stationary else horizon, _COLUMNS):
            width = 1 if self.stationary else min(_COLUMNS, horizon - first)
            impulses = np.eye(horizon, width, -first)
            kept, found = np.zeros((self.rows, width)), np.zeros((horizon, width))
            for t in range(horizon):
                found[t] = self.step(t, lambda s, rows=impulses: rows[s].copy(), kept)  # type: ignore[misc]
            yield found

    def row_sums(self, horizon: int, of: Callable[[Array], Array]) -> Array:
        """sum over s of ``of`` (C^-1)_ts, shape (T,)."""
        total = sum(of(columns).sum(axis=1) for columns in self.noising_columns(horizon))
        return np.cumsum(total) if self.stationary else np.asarray(total)

    def amplification(self, horizon: int) -> float:
        """The largest sum of absolute values of a row of C^-1."""
        return float(self.row_sums(horizon, np.abs).max())

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that determine it."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, eq=False)
class Fresh(Filter):
    """No correlation over time."""

    kind: ClassVar[str] = "fresh"
    stationary: ClassVar[bool] = True

    def step(self, t: int, white: White, kept: Array) -> Array:
        return white(t)

    def strategy(self, horizon: int) -> Array:
        return np.ones((1, horizon))

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        return Rounding(of_white=unit, of_noise=0.0)


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

    def strategy(self, horizon: int) -> Array:
        # By rows and without matrix products, so that the bits are the same on every machine.
        noising, matrix = self.noising_matrix, np.zeros((horizon, horizon))
        for t in range(horizon):
            matrix[t, t] = 1.0
            matrix[t] -= (noising[t, :t, None] * matrix[:t]).sum(axis=0)
            matrix[t] /= noising[t, t]
        found = np.zeros((horizon, horizon))
        for i in range(horizon):
            found[i, : horizon - i] = np.diagonal(matrix, -i)
        return found

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        return Rounding(of_white=unit + _accumulated(horizon), of_noise=0.0)

    def noising_columns(self, horizon: int) -> Iterator[Array]:
        yield self.noising_matrix


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
            noise -= _product(kept[(t - i) % self.rows], bands[i, t - i])
        noise /= _divisor(noise, bands[0, t])
        if self.rows:
            kept[t % self.rows] = noise
        return noise

    def latest(self, t: int, kept: Array) -> Array | None:
        found: Array = kept[t % self.rows]
        return found

    def strategy(self, horizon: int) -> Array:
        return self.strategy_bands

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        """Bound forward substitution (Higham 2002, theorem 8.5) with noise that is rounded."""
        sums = np.zeros(horizon)
        for i, band in enumerate(np.abs(self.strategy_bands)):
            sums[i:] += band[: horizon - i]
        return self._residual(unit, rows=sums, diagonal=np.abs(self.strategy_bands[0]))

    def _residual(self, unit: float, *, rows: Array, diagonal: Array) -> Rounding:
        """Bound it from sums of rows of |C| and its diagonal."""
        terms = _accumulated(len(self.strategy_bands)) * rows + unit * diagonal
        return Rounding(of_white=0.0, of_noise=float(terms.max()))


@dataclass(frozen=True, eq=False)
class Toeplitz(Banded):
    """The same with C constant along diagonals, ``strategy_coefficients`` c, shape (p,)."""

    kind: ClassVar[str] = "toeplitz"
    stationary: ClassVar[bool] = True
    strategy_bands: Array
    strategy_coefficients: Array

    @classmethod
    def of(cls, coefficients: Array, *, horizon: int) -> Toeplitz:
        """Make one without p x T numbers in memory."""
        bands = np.broadcast_to(coefficients[:, None], (len(coefficients), horizon))
        return cls(bands, coefficients)

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        sizes = np.abs(self.strategy_coefficients)
        return self._residual(unit, rows=sizes.sum(keepdims=True), diagonal=sizes[:1])

    def arrays(self) -> dict[str, Array]:
        return {"strategy_coefficients": self.strategy_coefficients}


@dataclass(frozen=True, eq=False)
class Moving(Filter):
    """z_t = sum over i < p of d_i w_(t-i): C^-1 is banded, and constant along its diagonals."""

    kind: ClassVar[str] = "banded-inverse"
    stationary: ClassVar[bool] = True
    noising_coefficients: Array

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.noising_coefficients) - 1

    def step(self, t: int, white: White, kept: Array) -> Array:
        draw, taps = white(t), self.noising_coefficients
        draw = _rounded(draw, kept)
        noise: Array = draw * taps[0]
        for i in range(1, min(t, self.rows) + 1):
            noise += _product(kept[(t - i) % self.rows], taps[i])
        if self.rows:
            kept[t % self.rows] = draw
        return noise

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        """Draws are rounded as they are kept, noise as it leaves."""
        return Rounding(of_white=2 * unit + _accumulated(self.rows + 1), of_noise=0.0)


@dataclass(frozen=True, eq=False)
class Buffered(Filter):
    """z_t = y_t / g for y_t = w_t - sum_i omega_i b_i and b_i <- theta_i b_i + y_t (buffered linear
    Toeplitz)."""

    kind: ClassVar[str] = "blt"
    stationary: ClassVar[bool] = True
    buffer_scales: Array
    buffer_decays: Array
    strategy_diagonal: Array

    def __post_init__(self) -> None:
        if len(self.buffer_scales) != len(self.buffer_decays):
            raise ValueError("buffer_decays: expected one a scale")

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.buffer_scales)

    def step(self, t: int, white: White, kept: Array) -> Array:
        noise = white(t)
        if t == 0:
            kept[:] = 0
        for i, scale in enumerate(self.buffer_scales):
            noise -= _product(kept[i], scale)
        self._move(kept, noise)
        noise /= _divisor(noise, self.strategy_diagonal[0])
        return noise

    def _move(self, kept: Array, fed: Array) -> None:
        for i, decay in enumerate(self.buffer_decays):
            kept[i] = _product(kept[i], decay) + fed

    def amplification(self, horizon: int) -> float:
        """Twice the first coefficient of C^-1 bounds it where all others are negative, as they are
        with scales > 0 and sum of scales / decays <= 1: all of them sum to 1 / C(1) > 0."""
        scales, decays = self.buffer_scales, self.buffer_decays
        if (scales > 0).all() and (decays > 0).all() and (scales / decays).sum() <= 1:
            return float(2 / self.strategy_diagonal[0])
        return super().amplification(horizon)

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        """A buffer that is rounded by f at one step stays wrong by theta^j f after j more, and
        later noise by omega times that: in units of the largest y, |b| <= L = min(T,
        1 / (1 - theta)), and f at most q / (1 - q) with q = (unit + 2^-52) (L + 1)."""
        ones = np.ones(self.rows)
        return self._rounding(unit, horizon, self.buffer_decays, entering=ones, steps=2)

    def _rounding(
        self, unit: float, horizon: int, lasting: Array, *, entering: Array, steps: int
    ) -> Rounding:
        """The same with moduli ``lasting`` of decays, where a y enters a buffer by ``entering``
        and ``steps`` operations move it on."""
        lengths = 1 / np.maximum(1 - lasting, 1 / horizon)
        scales = np.abs(self.buffer_scales)
        q = entering * (unit + _accumulated(steps)) * (entering * lengths + 1)
        if q.max() >= 0.5:
            return Rounding(of_white=np.inf, of_noise=np.inf)
        strays = q / (1 - q)
        summed = _accumulated(self.rows + 1)
        residual = scales @ (lengths * (strays + summed * (entering + strays)))
        of_noise = float(residual * self.strategy_diagonal[0])
        return Rounding(of_white=unit + summed + _accumulated(2), of_noise=of_noise)


@dataclass(frozen=True, eq=False)
class SignedBuffers(Buffered):
    """The same with omega and theta of any sign, and pairs of buffers, b <- theta b - tau b' + y
    and b' <- theta b' + tau b + y, that turn by ``buffer_turns``, tau of the first and -tau of the
    second: a real block of the complex decays theta +- i tau."""

    kind: ClassVar[str] = "signed-blt"
    buffer_turns: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        firsts = np.flatnonzero(self.buffer_turns > 0)
        paired = np.zeros(len(self.buffer_decays))
        if len(self.buffer_turns) != len(paired) or (firsts + 1 == len(paired)).any():
            raise ValueError("buffer_turns: expected one a buffer, in pairs")
        paired[firsts], paired[firsts + 1] = (self.buffer_turns[firsts],) * 2
        paired[firsts + 1] *= -1
        alike = self.buffer_decays[firsts] == self.buffer_decays[firsts + 1]
        if not (alike.all() and (paired == self.buffer_turns).all()):
            raise ValueError("buffer_turns: expected tau and -tau of two buffers of one decay")

    def _move(self, kept: Array, fed: Array) -> None:
        for i, (decay, turn) in enumerate(zip(self.buffer_decays, self.buffer_turns, strict=True)):
            if turn < 0:
                continue  # it was moved with the first of its pair
            moved = _product(kept[i], decay)
            if turn:
                turned = _product(kept[i], turn)
                moved -= _product(kept[i + 1], turn)
                turned += _product(kept[i + 1], decay)
                kept[i + 1] = turned + fed
            kept[i] = moved + fed

    def amplification(self, horizon: int) -> float:
        return Filter.amplification(self, horizon)

    def rounding(self, unit: float, *, horizon: int) -> Rounding:
        """The two of a pair as one complex buffer b + i b': both take y, so that it takes
        (1 + i) y, and is wrong by at most root 2 times what either is."""
        entering = np.where(self.buffer_turns, np.sqrt(2) * (1 + 8 * DOUBLE), 1.0)
        lasting = np.hypot(self.buffer_decays, self.buffer_turns) * (1 + 8 * DOUBLE)
        return self._rounding(unit, horizon, lasting, entering=entering, steps=4)


def _product(row: Any, by: float) -> Any:
    """A kept row in float64, times a number."""
    if isinstance(row, np.ndarray):
        return np.multiply(row, by, dtype=np.float64)
    return row.double() * by


def _rounded(draw: Any, kept: Any) -> Any:
    """A draw in float64 as it is kept."""
    if isinstance(draw, np.ndarray):
        return draw.astype(kept.dtype, copy=False).astype(np.float64, copy=False)
    return draw.to(kept.dtype).double()


def _divisor(noise: Any, by: float) -> Any:
    """A number to divide by: on CUDA torch multiplies by the inverse of one that is no tensor."""
    return by if isinstance(noise, np.ndarray) else noise.new_full((), by)


def _accumulated(operations: int) -> float:
    """n u / (1 - n u) of so many roundings in float64."""
    return operations * DOUBLE / (1 - operations * DOUBLE)


def filter_of(kind: str, arrays: Mapping[str, Array], *, horizon: int) -> Filter:
    """Make a filter; other values raise a KeyError, TypeError or ValueError."""
    for name, array in arrays.items():
        shape = {"noising_matrix": (horizon, horizon), "strategy_bands": (len(array), horizon)}
        if not array.size or array.shape != shape.get(name, (array.size,)):
            raise ValueError(f"{name}: expected another shape than {array.shape}")
        divides = name in ("strategy_bands", "strategy_coefficients", "strategy_diagonal")
        if divides and not array[0].min() > 0:
            raise ValueError(f"{name}: expected a positive diagonal")
    if kind == Toeplitz.kind:
        return Toeplitz.of(arrays["strategy_coefficients"], horizon=horizon)
    known = (Fresh, Rows, Banded, Moving, Buffered, SignedBuffers)
    made: dict[str, type[Filter]] = {f.kind: f for f in known}
    return made[kind](**arrays)
