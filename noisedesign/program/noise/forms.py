"""A strategy C, lower triangular, in the form that says its structure.

A form says what is stored of C, and draws noise C^-1 w one step after another.

===============  ============================================================  ==================
form             arrays                                                        kept between steps
===============  ============================================================  ==================
dense            ``strategy`` C and ``noising_matrix`` C^-1, both (T, T)       all draws
banded           ``strategy_bands``, (p, T): entry [d, t] is C[t + d, t]       p - 1 noise vectors
toeplitz         ``strategy_coefficients``, (p,): first column of C            p - 1 noise vectors
banded-inverse   ``noising_coefficients``, (p,): first column of C^-1          p - 1 draws
blt              ``buffer_scales`` and ``buffer_decays``, (m,), and            m vectors
                 ``strategy_diagonal``, (1,), all entries of the diagonal of C
===============  ============================================================  ==================

A buffered linear Toeplitz C has the first column g, g sum_i scales_i decays_i^(j - 1) for j >= 1,
with g = ``strategy_diagonal`` and scales and decays as in
:class:`noisedesign.families.toeplitz.BufferedToeplitz`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noisedesign.base import banded_matrices as banded_algebra
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.program.noise.short_memory import (
    banded_filter,
    banded_inverse_filter,
    buffered_filter,
)
from noisedesign.program.structure import TimeStructure

if TYPE_CHECKING:
    from noisedesign.program.noise.toeplitz_strategies import BufferedToeplitz, Strategy


def _toeplitz_families() -> Any:
    # Imported late: its Fourier transforms take longer to load than most designs take to draw.
    from noisedesign.program.noise import toeplitz_strategies as strategies

    return strategies


class StrategyForm(ABC):
    """A strategy over ``horizon`` T steps. Sizes are checked when a form is made."""

    kind: ClassVar[str]
    """As :class:`noisedesign.program.structure.TimeStructure` names it."""
    names: ClassVar[Mapping[str, str]]
    """Of its arrays, and what each is in the mathematics."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """T."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """What determines it, by ``names``."""

    @abstractmethod
    def dense(self) -> Array:
        """C, shape (T, T)."""

    @abstractmethod
    def dense_noising(self) -> Array:
        """C^-1, shape (T, T)."""

    @abstractmethod
    def scaled(self, factor: float) -> StrategyForm:
        """That of ``factor`` times the noise: C / ``factor`` (standard deviation, not squared)."""

    @abstractmethod
    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        """C^-1 w, a step at a time, for steps of white noise of one shape; at most T of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseForm(StrategyForm):
    """C without a structure, shape (T, T). ``stored_noising`` is C^-1 where it is known already."""

    kind: ClassVar[str] = "dense"
    names: ClassVar[Mapping[str, str]] = {"strategy": "C", "noising_matrix": "C^-1"}

    strategy: Array
    stored_noising: Array | None = None

    @property
    def horizon(self) -> int:
        return len(self.strategy)

    @cached_property
    def _noising(self) -> Array:
        if self.stored_noising is not None:
            return self.stored_noising
        try:
            return np.asarray(np.tril(inverse_of_triangular(self.strategy.copy())))
        except np.linalg.LinAlgError as error:
            raise InputError(
                "strategy",
                expected="an invertible C",
                got="a singular one",
                remedy="`noisedesign verify` says what else does not hold.",
            ) from error

    def arrays(self) -> dict[str, Array]:
        return {"strategy": self.strategy, "noising_matrix": self._noising}

    def dense(self) -> Array:
        return self.strategy

    def dense_noising(self) -> Array:
        return self._noising

    def scaled(self, factor: float) -> DenseForm:
        return DenseForm(strategy=self.strategy / factor, stored_noising=self._noising * factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        kept: Array | None = None
        for step, draw in enumerate(islice(white, self.horizon)):
            if kept is None:
                kept = np.empty((self.horizon, *draw.shape))
            kept[step] = draw
            yield np.tensordot(self._noising[step, : step + 1], kept[: step + 1], axes=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedForm(StrategyForm):
    """C with p diagonals: ``bands``, shape (p, T), [d, t] = C[t + d, t], zero past the end."""

    kind: ClassVar[str] = "banded"
    names: ClassVar[Mapping[str, str]] = {"strategy_bands": "C, its diagonals"}

    bands: Array

    @classmethod
    def of_dense(cls, strategy: Array, *, bands: int) -> BandedForm:
        """The first ``bands`` diagonals of a C, shape (T, T)."""
        found = np.zeros((bands, len(strategy)))
        for offset in range(bands):
            found[offset, : len(strategy) - offset] = np.diagonal(strategy, -offset)
        return cls(bands=found)

    @property
    def horizon(self) -> int:
        return int(self.bands.shape[1])

    def arrays(self) -> dict[str, Array]:
        return {"strategy_bands": self.bands}

    def dense(self) -> Array:
        return banded_algebra.dense(self.bands.T)

    def dense_noising(self) -> Array:
        return np.asarray(np.tril(inverse_of_triangular(self.dense())))

    def scaled(self, factor: float) -> BandedForm:
        return BandedForm(bands=self.bands / factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        """Forward substitution of C z = w."""
        last: list[Array] = []  # the noise of the step before first
        for step, draw in enumerate(islice(white, self.horizon)):
            noise = draw.copy()
            for offset, earlier in enumerate(last, start=1):
                noise -= self.bands[offset, step - offset] * earlier
            noise /= self.bands[0, step]
            last = [noise, *last][: len(self.bands) - 1]
            yield noise


@dataclass(frozen=True, kw_only=True, eq=False)
class _ToeplitzForm(StrategyForm):
    """The first p entries of a column of C or C^-1 over ``steps`` T steps, the rest zeros."""

    coefficients: Array
    steps: int

    @property
    def horizon(self) -> int:
        return self.steps

    @property
    @abstractmethod
    def toeplitz(self) -> Strategy:
        """The member of :mod:`noisedesign.families.toeplitz`, of any horizon."""

    def arrays(self) -> dict[str, Array]:
        return dict.fromkeys(self.names, self.coefficients)

    def dense(self) -> Array:
        return self.toeplitz.dense(self.steps)

    def dense_noising(self) -> Array:
        return self.toeplitz.dense_noising(self.steps)


@dataclass(frozen=True, kw_only=True, eq=False)
class ToeplitzForm(_ToeplitzForm):
    """C constant along diagonals, whose first column begins with ``coefficients``, shape (p,)."""

    kind: ClassVar[str] = "toeplitz"
    names: ClassVar[Mapping[str, str]] = {"strategy_coefficients": "C, its first column"}

    @property
    def toeplitz(self) -> Strategy:
        found: Strategy = _toeplitz_families().ToeplitzStrategy(coefficients=self.coefficients)
        return found

    def scaled(self, factor: float) -> ToeplitzForm:
        return replace(self, coefficients=self.coefficients / factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        return banded_filter(islice(white, self.steps), self.coefficients)


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedInverseForm(_ToeplitzForm):
    """C^-1 Toeplitz with p diagonals, whose first column is ``coefficients``, shape (p,)."""

    kind: ClassVar[str] = "banded-inverse"
    names: ClassVar[Mapping[str, str]] = {"noising_coefficients": "C^-1, its first column"}

    @property
    def toeplitz(self) -> Strategy:
        found: Strategy = _toeplitz_families().BandedInverse(coefficients=self.coefficients)
        return found

    def scaled(self, factor: float) -> BandedInverseForm:
        return replace(self, coefficients=self.coefficients * factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        return banded_inverse_filter(islice(white, self.steps), self.coefficients)


@dataclass(frozen=True, kw_only=True, eq=False)
class BufferedForm(StrategyForm):
    """``diagonal`` times the buffered linear Toeplitz C of ``scales`` and ``decays``, (m,)."""

    kind: ClassVar[str] = "blt"
    names: ClassVar[Mapping[str, str]] = {
        "buffer_scales": "omega",
        "buffer_decays": "theta",
        "strategy_diagonal": "C_tt",
    }

    scales: Array
    decays: Array
    diagonal: float
    steps: int

    @property
    def horizon(self) -> int:
        return self.steps

    @property
    def _unit(self) -> BufferedToeplitz:
        families = _toeplitz_families()
        found: BufferedToeplitz = families.BufferedToeplitz(scales=self.scales, decays=self.decays)
        return found

    def arrays(self) -> dict[str, Array]:
        return {
            "buffer_scales": self.scales,
            "buffer_decays": self.decays,
            "strategy_diagonal": np.array([self.diagonal]),
        }

    def dense(self) -> Array:
        return self.diagonal * self._unit.dense(self.steps)

    def dense_noising(self) -> Array:
        return self._unit.dense_noising(self.steps) / self.diagonal

    def scaled(self, factor: float) -> BufferedForm:
        return replace(self, diagonal=self.diagonal / factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        drawn = buffered_filter(islice(white, self.steps), self.scales, self.decays)
        return (noise / self.diagonal for noise in drawn)


STRATEGY_FORMS: tuple[type[StrategyForm], ...] = (
    DenseForm,
    BandedForm,
    ToeplitzForm,
    BandedInverseForm,
    BufferedForm,
)


# --- making one -----------------------------------------------------------------------------------


def form_of_strategy(strategy: Strategy, *, horizon: int) -> StrategyForm:
    """The form of a Toeplitz strategy at a horizon."""
    families = _toeplitz_families()
    if isinstance(strategy, families.BandedInverse):
        return BandedInverseForm(coefficients=strategy.coefficients, steps=horizon)
    if isinstance(strategy, families.BufferedToeplitz):
        return BufferedForm(
            scales=strategy.scales, decays=strategy.decays, diagonal=1.0, steps=horizon
        )
    column = strategy.strategy_column(horizon)
    return ToeplitzForm(coefficients=np.trim_zeros(column, "b"), steps=horizon)


def form_of_structure(structure: TimeStructure, strategy: Array) -> StrategyForm:
    """The form of a C, shape (T, T), that has a structure; dense where that does not say which
    numbers to store, as for buffers."""
    horizon = len(strategy)
    if structure.kind == "banded":
        assert structure.bands is not None
        return BandedForm.of_dense(strategy, bands=structure.bands)
    if structure.kind == "toeplitz":
        return ToeplitzForm(coefficients=np.trim_zeros(strategy[:, 0], "b"), steps=horizon)
    if structure.kind == "banded-inverse":
        column = DenseForm(strategy=strategy).dense_noising()[: structure.bands, 0]
        return BandedInverseForm(coefficients=column.copy(), steps=horizon)
    return DenseForm(strategy=strategy)


def form_of_arrays(arrays: Mapping[str, Array], *, horizon: int, field: str) -> StrategyForm | None:
    """The form that has all its arrays among ``arrays``, None where none has.

    Args:
        horizon: T, which their shapes must agree with.

    Raises:
        InputError: naming ``field``: a shape that does not fit, a diagonal that is not positive,
            an entry that is not finite.
    """
    for make in (_dense, _banded, _toeplitz, _banded_inverse, _buffered):
        form: StrategyForm | None = make(arrays, horizon, field)
        if form is not None:
            return form
    return None


def _dense(arrays: Mapping[str, Array], horizon: int, field: str) -> StrategyForm | None:
    if "strategy" not in arrays:
        return None
    square = {name: arrays[name] for name in DenseForm.names if name in arrays}
    for name, array in square.items():
        _require(
            array.shape == (horizon, horizon),
            f"{field}.{name}",
            f"shape {(horizon, horizon)}",
            array,
        )
        _require(np.isfinite(array).all(), f"{field}.{name}", "finite entries", array)
    return DenseForm(strategy=square["strategy"], stored_noising=square.get("noising_matrix"))


def _banded(arrays: Mapping[str, Array], horizon: int, field: str) -> StrategyForm | None:
    if "strategy_bands" not in arrays:
        return None
    bands, name = arrays["strategy_bands"], f"{field}.strategy_bands"
    fits = bands.ndim == 2 and bands.shape[1] == horizon and 1 <= len(bands) <= horizon
    _require(fits, name, f"shape (bands, {horizon})", bands)
    _require(np.isfinite(bands).all(), name, "finite entries", bands)
    _require(bands[0].min() > 0, name, "a positive diagonal", bands)
    past = np.arange(len(bands))[:, None] + np.arange(horizon) >= horizon
    _require(not bands[past].any(), name, "zeros past the end of each diagonal", bands)
    return BandedForm(bands=bands)


def _toeplitz(arrays: Mapping[str, Array], horizon: int, field: str) -> StrategyForm | None:
    if "strategy_coefficients" not in arrays:
        return None
    column = _column(arrays, "strategy_coefficients", horizon, field)
    return ToeplitzForm(coefficients=column, steps=horizon)


def _banded_inverse(arrays: Mapping[str, Array], horizon: int, field: str) -> StrategyForm | None:
    if "noising_coefficients" not in arrays:
        return None
    column = _column(arrays, "noising_coefficients", horizon, field)
    return BandedInverseForm(coefficients=column, steps=horizon)


def _buffered(arrays: Mapping[str, Array], horizon: int, field: str) -> StrategyForm | None:
    if not set(BufferedForm.names) <= set(arrays):
        return None
    scales, decays, diagonal = (np.ravel(arrays[name]) for name in BufferedForm.names)
    _require(
        diagonal.shape == (1,) and np.isfinite(diagonal).all() and diagonal[0] > 0,
        f"{field}.strategy_diagonal",
        "one positive number",
        diagonal,
    )
    _toeplitz_families().BufferedToeplitz(scales=scales, decays=decays)  # checks both
    return BufferedForm(scales=scales, decays=decays, diagonal=float(diagonal[0]), steps=horizon)


def _column(arrays: Mapping[str, Array], name: str, horizon: int, field: str) -> Array:
    column = np.asarray(arrays[name])
    fits = column.ndim == 1 and 1 <= len(column) <= horizon
    _require(fits, f"{field}.{name}", f"1 to {horizon} coefficients", column)
    _require(np.isfinite(column).all(), f"{field}.{name}", "finite entries", column)
    _require(column[0] > 0, f"{field}.{name}", "a first coefficient > 0 (the diagonal)", column)
    return column


def _require(holds: bool | np.bool_, field: str, expected: str, got: Array) -> None:
    if not holds:
        raise InputError(field, expected=expected, got=f"an array of shape {got.shape}")
