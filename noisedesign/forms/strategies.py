"""Strategies C, lower triangular, by the numbers that determine them; each draws noise C^-1 w.

===============  ============================================================  ==================
kind             arrays                                                        kept between steps
===============  ============================================================  ==================
dense            ``strategy`` C and ``noising_matrix`` C^-1, both (T, T)       all draws
banded           ``strategy_bands``, (p, T): entry [d, t] is C[t + d, t]       p - 1 noise vectors
toeplitz         ``strategy_coefficients``, (p,): first column of C            p - 1 noise vectors
banded-inverse   ``noising_coefficients``, (p,): first column of C^-1          p - 1 draws
blt              ``buffer_scales`` and ``buffer_decays``, (m,), and            m vectors
                 ``strategy_diagonal``, (1,), all entries of the diagonal of C
signed-blt       the same, of any sign, and ``buffer_turns``, (m,)              m vectors
modal            ``mode_strategies`` (n, T, T), ``modes`` (n, n) and           all draws
                 ``step_scales`` (n, T), of all pairs of step and node
===============  ============================================================  ==================

Those from "toeplitz" to "signed-blt" are constant along diagonals and mean something at any
horizon; :meth:`at` gives them one. A privacy statement holds for one participation scheme and its
horizon only, and noise ends with the horizon: what follows was never accounted for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from noisedesign.base import (
    banded_matrices as banded_algebra,
    checks as _checks,
    memory,
    power_series as series,
    settings,
)
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.base.shown import Shown
from noisedesign.forms.sparse_forms import require_array
from noisedesign.forms.streams import block_noise, covariance_root
from noisedesign.forms.structure import TimeStructure
from noisedesign.noise.filters import filter_of
from noisedesign.privacy.sensitivity import Sensitivity

if TYPE_CHECKING:
    from noisedesign.system.participation import Participation
    from noisedesign.system.workloads.toeplitz import Workload


class Strategy(ABC):
    """A strategy over ``horizon`` T steps."""

    kind: ClassVar[str]  # the name in :class:`noisedesign.forms.structure.TimeStructure`
    names: ClassVar[Mapping[str, str]]  # names of its arrays, and what each is in the mathematics

    @property
    @abstractmethod
    def horizon(self) -> int:
        """T, the number of steps."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The arrays that determine it, by ``names``."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        """Read :meth:`arrays` back, ignoring others; InputError as of strategy_of_arrays."""

    @abstractmethod
    def dense(self) -> Array:
        """C, shape (T, T)."""

    @abstractmethod
    def dense_noising(self) -> Array:
        """C^-1, shape (T, T)."""

    def vectors_kept(self, horizon: int) -> int:
        """Vectors of the model's size that a stream over ``horizon`` steps keeps between steps."""
        return _checks.positive_int(horizon, field="horizon") - 1

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The strategy C / ``factor`` of ``factor`` times the noise (not squared)."""

    def alone(self) -> Self:
        """The same without anything that its file leaves out: a plan of either is the same."""
        return self

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        """C^-1 w, as a node draws it, for steps of white noise of one shape; at most T of them."""
        return self._filtered(white, self.horizon)

    def _filtered(self, white: Iterable[Array], steps: int | None) -> Iterator[Array]:
        filtered, kept = filter_of(self.kind, self.arrays(), horizon=steps or 1), None
        for step, draw in enumerate(islice(white, steps)):
            if kept is None:
                kept = np.empty((filtered.rows, *draw.shape))
            yield filtered.step(step, lambda _, draw=draw: draw.copy(), kept)  # type: ignore[misc]

    def of_nodes(self, white: Iterable[Array], *, nodes: int) -> Iterator[Array]:
        """C^-1 w of a C over all pairs of step and node, for white noise (nodes, d) a step."""
        return block_noise(self.dense_noising(), white, nodes=nodes)

    def factors(self) -> Iterator[tuple[Array, Array]]:
        """The lower triangular matrices that it is made of, and their inverses."""
        yield self.dense(), self.dense_noising()

    def couplings(self, node: int, *, nodes: int) -> Array:
        """Weights (T, T, n): [t, s, v] is how noise of the node at t takes v's draw at s."""
        steps = self.horizon // nodes
        blocks = self.dense_noising().reshape(steps, nodes, steps, nodes)
        return np.ascontiguousarray(blocks[:, node])


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseStrategy(Strategy):
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
            given = {"expected": "an invertible C", "got": "a singular one"}
            remedy = "`noisedesign verify` says what else does not hold."
            raise InputError("strategy", **given, remedy=remedy) from error

    def arrays(self) -> dict[str, Array]:
        return {"strategy": self.strategy, "noising_matrix": self._noising}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        shape = (horizon, horizon)
        for name in cls.names:
            if name in arrays:
                require_array(arrays, field, name, f"shape {shape}", arrays[name].shape == shape)
                require_array(
                    arrays, field, name, "finite entries", np.isfinite(arrays[name]).all()
                )
        return cls(strategy=arrays["strategy"], stored_noising=arrays.get("noising_matrix"))

    def dense(self) -> Array:
        return self.strategy

    def dense_noising(self) -> Array:
        return self._noising

    def scaled(self, factor: float) -> Self:
        return replace(self, strategy=self.strategy / factor, stored_noising=self._noising * factor)

    def alone(self) -> Self:
        return replace(self, stored_noising=None)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        kept: Array = np.empty(0)
        for step, draw in enumerate(islice(white, self.horizon)):
            kept = kept if step else np.empty((self.horizon, *draw.shape))
            kept[step] = draw
            yield np.tensordot(self._noising[step, : step + 1], kept[: step + 1], axes=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedStrategy(Strategy):
    """C with p diagonals: ``bands``, shape (p, T), [d, t] = C[t + d, t], zero past the end."""

    kind: ClassVar[str] = "banded"
    names: ClassVar[Mapping[str, str]] = {"strategy_bands": "C, its diagonals"}

    bands: Array

    @classmethod
    def of_dense(cls, strategy: Array, *, bands: int) -> Self:
        """The first ``bands`` diagonals of a C, shape (T, T)."""
        found = np.zeros((bands, len(strategy)))
        for offset in range(bands):
            found[offset, : len(strategy) - offset] = np.diagonal(strategy, -offset)
        return cls(bands=found)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        bands, given = arrays["strategy_bands"], (arrays, field, "strategy_bands")
        fits = bands.ndim == 2 and bands.shape[1] == horizon and 1 <= len(bands) <= horizon
        require_array(*given, f"shape (bands, {horizon})", fits)
        require_array(*given, "finite entries", np.isfinite(bands).all())
        require_array(*given, "a positive diagonal", bands[0].min() > 0)
        past = np.arange(len(bands))[:, None] + np.arange(horizon) >= horizon
        require_array(*given, "zeros past the end of each diagonal", not bands[past].any())
        return cls(bands=bands)

    @property
    def horizon(self) -> int:
        return int(self.bands.shape[1])

    def vectors_kept(self, horizon: int) -> int:
        """p - 1, or T - 1 where that is less."""
        return min(len(self.bands), _checks.positive_int(horizon, field="horizon")) - 1

    def arrays(self) -> dict[str, Array]:
        return {"strategy_bands": self.bands}

    def dense(self) -> Array:
        return banded_algebra.dense(self.bands.T)

    def dense_noising(self) -> Array:
        return np.asarray(np.tril(inverse_of_triangular(self.dense())))

    def scaled(self, factor: float) -> Self:
        return replace(self, bands=self.bands / factor)


# --- constant along diagonals ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StationaryStrategy(Shown, Strategy):
    """A lower triangular Toeplitz C, by its first column. ``steps`` is T, None at any horizon."""

    steps: int | None = None

    @property
    def horizon(self) -> int:
        return _checks.positive_int(self.steps, field="horizon")

    def at(self, horizon: int) -> Self:
        """The same over ``horizon`` steps."""
        return replace(self, steps=_checks.positive_int(horizon, field="horizon"))

    @abstractmethod
    def strategy_column(self, horizon: int) -> Array:
        """First column of C, shape (T,)."""

    @abstractmethod
    def noising_column(self, horizon: int) -> Array:
        """First column of C^-1, shape (T,)."""

    def dense(self) -> Array:
        return series.dense(self.strategy_column(self.horizon))

    def dense_noising(self) -> Array:
        return series.dense(self.noising_column(self.horizon))

    def squared_sensitivity(self, participation: Participation) -> Sensitivity:
        """Squared sensitivity over the participation scheme, exact or a bound."""
        from noisedesign.privacy.sensitivity.toeplitz import squared_sensitivity

        return squared_sensitivity(self.strategy_column(participation.horizon), participation)

    def squared_error(self, workload: Workload) -> float:
        """Total squared error tr(H C^-1 C^-T) of ``workload``, for noise of unit variance."""
        return workload.error_and_gradient(self.noising_column(workload.horizon))[0]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Coefficients(StationaryStrategy):
    """The first p entries of a column, shape (p,), and zeros after them; the first is > 0."""

    of_inverse: ClassVar[bool]  # whether the column is that of C^-1
    coefficients: Any

    def __post_init__(self) -> None:
        checked = series.checked(self.coefficients, field="strategy.coefficients")
        object.__setattr__(self, "coefficients", checked)

    def arrays(self) -> dict[str, Array]:
        return dict.fromkeys(self.names, self.coefficients)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        (name,) = cls.names
        column = np.asarray(arrays[name])
        fits = column.ndim == 1 and 1 <= len(column) <= horizon
        require_array(arrays, field, name, f"1 to {horizon} coefficients", fits)
        return cls(coefficients=series.checked(column, field=f"{field}.{name}"), steps=horizon)

    def vectors_kept(self, horizon: int) -> int:
        """p - 1, or T - 1 where that is less."""
        return min(len(self.coefficients), _checks.positive_int(horizon, field="horizon")) - 1

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        """C^-1 w from the last p - 1 arrays; the oldest is overwritten."""
        first, taps, kept = self.coefficients[0], self.coefficients[1:], np.empty(0)
        for step, draw in enumerate(islice(white, self.steps)):
            if step == 0:  # untouched pages cost nothing
                kept = np.empty((len(taps), *draw.shape))
            past: Array | float = 0.0
            if count := min(step, len(taps)):
                ages = (step - 1 - np.arange(count)) % len(taps)
                past = np.asarray(np.tensordot(taps[ages], kept[:count], axes=1))
            noise = first * draw + past if self.of_inverse else (draw - past) / first
            if len(taps):
                kept[step % len(taps)] = draw if self.of_inverse else noise
            yield noise

    def _column(self, horizon: int, *, of_inverse: bool) -> Array:
        steps = _checks.positive_int(horizon, field="horizon")
        given = series.resized(self.coefficients, steps)
        return given if of_inverse == self.of_inverse else series.reciprocal(given)

    def strategy_column(self, horizon: int) -> Array:
        return self._column(horizon, of_inverse=False)

    def noising_column(self, horizon: int) -> Array:
        return self._column(horizon, of_inverse=True)


class ToeplitzStrategy(_Coefficients):
    """C with first column ``coefficients`` c_0, ..., c_{p-1} and zeros after them."""

    kind: ClassVar[str] = "toeplitz"
    names: ClassVar[Mapping[str, str]] = {"strategy_coefficients": "C, its first column"}
    of_inverse: ClassVar[bool] = False

    def at(self, horizon: int) -> Self:
        column = np.trim_zeros(self._column(horizon, of_inverse=False), "b")
        return replace(self, coefficients=column, steps=horizon)

    def scaled(self, factor: float) -> Self:
        return replace(self, coefficients=self.coefficients / factor)


class BandedInverse(_Coefficients):
    """C^-1 with first column ``coefficients`` d_0, ..., d_{p-1} and zeros after them."""

    kind: ClassVar[str] = "banded-inverse"
    names: ClassVar[Mapping[str, str]] = {"noising_coefficients": "C^-1, its first column"}
    of_inverse: ClassVar[bool] = True

    def scaled(self, factor: float) -> Self:
        return replace(self, coefficients=self.coefficients * factor)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BufferedToeplitz(StationaryStrategy):
    """Buffered linear Toeplitz: ``diagonal`` times c_0 = 1, c_j = sum_i scales_i decays_i^(j - 1).

    With scales >= 0 of sum at most 1 and decays in [0, 1], both (m,), the coefficients are
    nonnegative and nonincreasing, so sensitivity is exact under fixed epochs and min-separation
    alike. The inverse is of the same form: its decays are the eigenvalues of diag(decays) - u u^T,
    u = sqrt(scales), and its scales minus the squares of u in that eigenbasis.

    Sources: Dvijotham et al. 2024, "Efficient and near-optimal noise generation for streaming
    differential privacy"; McMahan, Xu and Zhang 2024, "A hassle-free algorithm for private learning
    in practice"."""

    kind: ClassVar[str] = "blt"
    names: ClassVar[Mapping[str, str]] = {
        "buffer_scales": "omega",
        "buffer_decays": "theta",
        "strategy_diagonal": "C_tt",
    }

    scales: Any
    decays: Any
    diagonal: float = 1.0

    def __post_init__(self) -> None:
        buffers = max(1, np.size(self.scales))
        scales = _checks.vector(self.scales, field="strategy.scales", length=buffers)
        if np.size(self.decays) != buffers:
            expected = f"{buffers}, one per scale"
            raise InputError("strategy.decays", expected=expected, got=f"{np.size(self.decays)}")
        decays = _checks.vector(self.decays, field="strategy.decays", length=buffers)
        if scales.min() < 0 or scales.sum() > 1 + settings.rank_tolerance(buffers):
            got = f"a least of {scales.min():.6g} and a sum of {scales.sum():.6g}"
            raise InputError("strategy.scales", expected="values >= 0 of sum at most 1", got=got)
        if decays.min() < 0 or decays.max() > 1:
            worst = decays.min() if decays.min() < 0 else decays.max()
            raise InputError("strategy.decays", expected="values in [0, 1]", got=f"{worst:.6g}")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "decays", decays)

    def arrays(self) -> dict[str, Array]:
        return {name: np.atleast_1d(getattr(self, name.split("_")[1])) for name in self.names}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        given: dict[str, Any] = {name.split("_")[1]: np.ravel(arrays[name]) for name in cls.names}
        diagonal = given["diagonal"]
        one = diagonal.shape == (1,) and np.isfinite(diagonal).all() and diagonal[0] > 0
        require_array(arrays, field, "strategy_diagonal", "one positive number", one)
        return cls(**{**given, "diagonal": float(diagonal[0])}, steps=horizon)

    def strategy_column(self, horizon: int) -> Array:
        return self.diagonal * _exponentials(self.scales, self.decays, horizon)

    def noising_column(self, horizon: int) -> Array:
        root = np.sqrt(self.scales)
        decays, basis = np.linalg.eigh(np.diag(self.decays) - np.outer(root, root))
        return _exponentials(-((basis.T @ root) ** 2), decays, horizon) / self.diagonal

    def vectors_kept(self, horizon: int) -> int:
        """m, whatever the horizon."""
        return len(self.scales)

    def scaled(self, factor: float) -> Self:
        return replace(self, diagonal=self.diagonal / factor)

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        """It has no last step where none is stated."""
        return self._filtered(white, self.steps)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SignedBuffers(BufferedToeplitz):
    """Buffers of any sign: ``diagonal`` times c_0 = 1 and

        c_j = sum_i scales_i Re((1 + i) (decays_i + i turns_i)^(j - 1)),    j >= 1.

    A pair of buffers side by side has one decay and turns tau > 0 and -tau: together they are what
    two conjugate complex decays make. A turn of 0 is a buffer by itself, which may decay with a
    changing sign. No coefficient need be positive, so sensitivity is by the entries of C^T C.
    Decays and those of C^-1 are at most 1 in modulus."""

    kind: ClassVar[str] = "signed-blt"
    names: ClassVar[Mapping[str, str]] = {**BufferedToeplitz.names, "buffer_turns": "tau"}

    turns: Any

    def __post_init__(self) -> None:
        fields = ("scales", "decays", "turns")
        buffers = max(1, np.size(self.scales))
        for name in fields:
            given = getattr(self, name)
            if np.size(given) != buffers:
                expected = f"{buffers}, one per scale"
                raise InputError(f"strategy.{name}", expected=expected, got=f"{np.size(given)}")
            checked = _checks.vector(given, field=f"strategy.{name}", length=buffers)
            object.__setattr__(self, name, checked)
        try:
            filter_of(self.kind, self.arrays(), horizon=1)
        except ValueError as error:
            expected = "tau and -tau of pairs of buffers of one decay"
            raise InputError("strategy.turns", expected=expected, got=str(error)) from None
        after = np.diag(np.maximum(self.turns[:-1], 0.0), 1)
        inverse = np.diag(self.decays) - after + after.T - self.scales  # b <- inverse b + y
        found = float(np.hypot(self.decays, self.turns).max())
        if found > 1:
            expected = "values in [-1, 1], or decay^2 + turn^2 <= 1 of pairs"
            raise InputError("strategy.decays", expected=expected, got=f"{found:.6g}")
        found = float(np.abs(np.linalg.eigvals(inverse)).max())
        if found > 1 + settings.sqrt_eps():
            expected = "those of a C^-1 that does not grow"
            raise InputError("strategy.scales", expected=expected, got=f"a decay of {found:.6g}")

    def strategy_column(self, horizon: int) -> Array:
        powers = np.power.outer(self.decays + 1j * self.turns, np.arange(horizon - 1))
        column = np.ones(_checks.positive_int(horizon, field="horizon"))
        column[1:] = self.scales @ ((1 + 1j) * powers).real
        return self.diagonal * column

    def noising_column(self, horizon: int) -> Array:
        return series.reciprocal(self.strategy_column(horizon))


def _exponentials(scales: Array, decays: Array, horizon: int) -> Array:
    """1, then sum_i scales_i decays_i^(j - 1) for j = 1 .. T - 1."""
    column = np.ones(_checks.positive_int(horizon, field="horizon"))
    column[1:] = scales @ np.power.outer(decays, np.arange(horizon - 1))
    return column


# --- over nodes and steps -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ModalStrategy(Strategy):
    """C over all pairs of step and node by modes: z_t = diag(d_t) M y_t, row m of y noise of C_m,
    ``strategies``, (n, T, T), ``modes`` M, (n, n), ``scales`` d, (n, T). White noise of a step is
    turned by an orthogonal matrix, which changes nothing of its law and makes C lower triangular.
    """

    kind: ClassVar[str] = "modal"
    names: ClassVar[Mapping[str, str]] = {
        "mode_strategies": "C of every mode",
        "modes": "M",
        "step_scales": "d",
    }

    strategies: Array
    modes: Array
    scales: Array

    @classmethod
    def of_pair(cls, strategy: Array, covariance: Array) -> Self:
        """Noise of covariance (C^T C)^-1 x R, :meth:`raised`: every mode has the same C."""
        nodes, steps = len(covariance), len(strategy)
        return cls(
            strategies=np.tile(strategy, (nodes, 1, 1)),
            modes=covariance_root(covariance),
            scales=np.ones((nodes, steps)),
        ).raised()

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], *, horizon: int, field: str) -> Self:
        strategies, modes, scales = (np.asarray(arrays[name]) for name in cls.names)
        given = (arrays, field, "mode_strategies")
        require_array(*given, "shape (nodes, steps, steps)", strategies.ndim == 3)
        nodes, steps, _ = strategies.shape
        fits = strategies.shape[2] == steps and nodes * steps == horizon
        require_array(*given, f"{horizon} pairs of node and step", fits)
        require_array(*given, "finite entries", np.isfinite(strategies).all())
        require_array(*given, "zeros above every diagonal", not np.triu(strategies, 1).any())
        diagonals = np.einsum("mtt->mt", strategies)
        require_array(*given, "positive diagonals", diagonals.min(initial=1.0) > 0)
        for name, found, shape in (
            ("modes", modes, (nodes, nodes)),
            ("step_scales", scales, (nodes, steps)),
        ):
            require_array(arrays, field, name, f"shape {shape}", found.shape == shape)
        regular = bool(np.isfinite(modes).all()) and np.linalg.cond(modes) * settings.EPS < 1
        require_array(arrays, field, "modes", "a matrix that is not singular", regular)
        positive = np.isfinite(scales).all() and (scales > 0).all()
        require_array(arrays, field, "step_scales", "positive numbers", positive)
        return cls(strategies=strategies, modes=modes, scales=scales)

    def arrays(self) -> dict[str, Array]:
        return dict(zip(self.names, (self.strategies, self.modes, self.scales), strict=True))

    @property
    def nodes(self) -> int:
        """n, the number of nodes and of modes."""
        return len(self.modes)

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return int(self.scales.shape[1])

    @property
    def horizon(self) -> int:
        """nT, the number of pairs."""
        return int(self.scales.size)

    def vectors_kept(self, horizon: int) -> int:
        """n (T - 1): all earlier draws of all nodes."""
        return self.nodes * (self.steps - 1)

    def scaled(self, factor: float) -> Self:
        return replace(self, scales=self.scales * factor)

    @property
    def rounding(self) -> float:
        """The relative cost of the rounding of M^-1 in squared sensitivities."""
        return settings.rank_tolerance(self.horizon) * float(np.linalg.cond(self.modes))

    def raised(self) -> Self:
        """Noise larger by that rounding, so that budgets that hold exactly hold computed."""
        return self.scaled(1 + 4 * settings.rank_tolerance(self.horizon) + 2 * self.rounding)

    @cached_property
    def noisings(self) -> Array:
        """C_m^-1, shape (n, T, T)."""
        found = [np.tril(inverse_of_triangular(c.copy())) for c in self.strategies]
        return np.array(found)

    def factors(self) -> Iterator[tuple[Array, Array]]:
        """C_m and C_m^-1 of every mode."""
        yield from zip(self.strategies, self.noisings, strict=True)

    @cached_property
    def dual_modes(self) -> Array:
        """M^-1, shape (n, n)."""
        return np.asarray(np.linalg.inv(self.modes))

    @cached_property
    def _turns(self) -> Array:
        """Q_t, (T, n, n), orthogonal: Q_t^T diag(C_m,tt) M^-1 diag(1 / d_t) is lower."""
        own = np.einsum("mtt->tm", self.strategies)[:, :, None] * self.dual_modes
        own = own / self.scales.T[:, None, :]
        turns, upper = np.linalg.qr(own[:, :, ::-1])
        signs = np.sign(np.einsum("tuu->tu", upper))
        return np.ascontiguousarray((turns * signs[:, None, :])[:, :, ::-1])

    def dense(self) -> Array:
        nodes, steps = self.nodes, self.steps
        memory.require(memory.squares, self.horizon, field="strategy", of="pairs of step and node")
        found = np.empty((steps, nodes, steps, nodes))
        for t, turn in enumerate(self._turns):
            of_modes = self.strategies[:, t, :, None] * self.dual_modes[:, None, :]
            found[t] = np.tensordot(turn, of_modes, axes=(0, 0)) / self.scales.T
        return np.tril(found.reshape(self.horizon, self.horizon))

    def dense_noising(self) -> Array:
        memory.require(memory.squares, self.horizon, field="strategy", of="pairs of step and node")
        rows = [self.couplings(node, nodes=self.nodes) for node in range(self.nodes)]
        return np.tril(np.stack(rows, axis=1).reshape(self.horizon, self.horizon))

    def noise_of(self, white: Iterable[Array]) -> Iterator[Array]:
        written_out = DenseStrategy(strategy=self.dense(), stored_noising=self.dense_noising())
        return written_out.noise_of(white)

    def couplings(self, node: int, *, nodes: int) -> Array:
        """The couplings of any C, without an array of size nT x nT."""
        weights = self.modes[node][:, None] * self.noisings.transpose(1, 0, 2)
        found = np.empty((self.steps, self.steps, nodes))
        for s, turn in enumerate(self._turns):
            found[:, s] = self.scales[node][:, None] * (weights[:, :, s] @ turn)
        if node + 1 < nodes:  # what a later node draws at the same step
            found[np.arange(self.steps), np.arange(self.steps), node + 1 :] = 0.0
        return found

    def of_nodes(self, white: Iterable[Array], *, nodes: int) -> Iterator[Array]:
        """The noise of any C, without an array of size nT x nT."""
        kept: Array = np.empty(0)
        for step, draw in enumerate(islice(white, self.steps)):
            given = _checks.matrix(draw, field="white")
            if len(given) != nodes or nodes != self.nodes:
                expected = f"{self.nodes} rows a step"
                raise InputError("white", expected=expected, got=f"{len(given)}")
            kept = kept if step else np.empty((self.steps, *given.shape))
            kept[step] = self._turns[step] @ given
            found = np.einsum("ms,smd->md", self.noisings[:, step, : step + 1], kept[: step + 1])
            yield self.scales[:, step, None] * (self.modes @ found)


# --- making one -----------------------------------------------------------------------------------


STRATEGIES: tuple[type[Strategy], ...] = (
    DenseStrategy,
    BandedStrategy,
    ToeplitzStrategy,
    BandedInverse,
    SignedBuffers,  # has the arrays of the next one too
    BufferedToeplitz,
    ModalStrategy,
)


def strategy_of_structure(structure: TimeStructure, strategy: Array) -> Strategy:
    """A C, (T, T), by the numbers of its structure, dense where that names none."""
    horizon = len(strategy)
    if structure.kind == "banded":
        assert structure.bands is not None
        return BandedStrategy.of_dense(strategy, bands=structure.bands)
    if structure.kind == "toeplitz":
        return ToeplitzStrategy(coefficients=strategy[:, 0]).at(horizon)
    if structure.kind == "banded-inverse":
        column = DenseStrategy(strategy=strategy).dense_noising()[: structure.bands, 0]
        return BandedInverse(coefficients=column.copy(), steps=horizon)
    return DenseStrategy(strategy=strategy)


def strategy_of_arrays(arrays: Mapping[str, Array], *, horizon: int, field: str) -> Strategy | None:
    """Make the strategy over T steps that has its arrays among ``arrays``, None where none has."""
    for kind in STRATEGIES:
        if set(kind.names) - {"noising_matrix"} <= set(arrays):  # computed where it is missing
            return kind.of_arrays(arrays, horizon=horizon, field=field)
    return None
