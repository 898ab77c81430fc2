"""Noise of one node in integers: for runs whose privacy is not to hang on floats, whose last bits
can tell what noise was added to (Mironov 2012).

Gradients are integers on a lattice, noise is exactly a discrete Gaussian, and all that is done with
both before a message leaves is exact; :mod:`noisedesign.noise.lattice` derives the privacy.

With y_t = sum_(s <= t) C_ts g_s + v_t in integers the message is, rounded to the nearest integer,

    x_t = [(y_t - sum_(s < t) C_ts x_s) / C_tt],

which depends on y alone: post-processing. It equals g_t + n_t for noise that depends on no
gradient,

    n_t = [(v_t - sum_(s < t) C_ts n_s) / C_tt],

since g_t is an integer. So noise can be drawn of any step and any part of the model, as floats can.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Node
from noisedesign.noise.discrete_gaussian import DiscreteGaussian
from noisedesign.noise.filters import Recursion, White
from noisedesign.noise.hidden import Hidden
from noisedesign.noise.keys import Secret
from noisedesign.noise.lattice import LARGEST, Integers, lattice_of
from noisedesign.noise.plan import DEALT, OWN, Plan, Stream, agrees
from noisedesign.noise.record import Record
from noisedesign.noise.source import (
    BLOCK,
    OVER_CLIP,
    NodeSource,
    Records,
    check_finite,
    list_of_arrays,
    new_secret,
    output,
    plan_of,
)

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, eq=False)
class _Rounded(Recursion):
    """n_t = [(v_t - sum C_ts n_s) / C_tt] of integers, halves up."""

    strategy: Integers

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.strategy) - 1

    def __post_init__(self) -> None:
        weight = int(np.abs(self.strategy).sum(axis=0).max())
        object.__setattr__(self, "_most", LARGEST // (weight + 1))

    def step(self, t: int, white: White, kept: Integers) -> Integers:
        noise, bands = white(t), self.strategy
        _check_below(noise, LARGEST)
        for i in range(1, min(t, self.rows) + 1):
            coefficient = int(bands[i, t - i])
            if coefficient:
                noise -= kept[(t - i) % self.rows] * np.int64(coefficient)
        diagonal = int(bands[0, t])
        noise += np.int64(diagonal >> 1)
        noise //= np.int64(diagonal)
        _check_below(noise, self._most)  # type: ignore[attr-defined]
        if self.rows:
            kept[t % self.rows] = noise
        return noise

    def latest(self, t: int, kept: Integers) -> Integers | None:
        found: Integers = kept[t % self.rows]
        return found


class IntegerNoise(NodeSource):
    """Noise in integers for the sum of a node's clipped gradients, step by step.

    :func:`integer_noise` makes it. The claim of the plan holds as it stands, and ``lattice.rho`` is
    the zCDP of the whole run where all noise is the node's own. Steps and parts come in any order,
    at the cost that :class:`NodeNoise` states. Memory: p - 1 arrays of the model's size in int64
    for p bands, T - 1 for a dense C.

    Args:
        plan: what the node must know.
        grid: the step of the lattice, or None.
        secret: its own.
        seeds: as of :class:`NodeNoise`, like the others.
        record: likewise.
        resume: likewise.

    Attributes:
        lattice: C, variances and coefficients in integers.
        grid: the step of the lattice, in units of the gradients.

    Raises:
        InputError: as :func:`integer_noise`.

    Examples:
        What a node sends is a whole number of steps of the lattice.

        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.noise import integer_noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = integer_noise(nd.solve(problem).design, node=0, record=False)
        >>> sent = source.release([np.array([[0.5, -0.25], [0.0, 0.75]])], 0)  # two records
        >>> sent[0].dtype, sent[0].shape
        (dtype('int64'), (2,))
    """

    use = "integers"
    _sums = "gradients"
    _divisor = 1

    def __init__(
        self,
        plan: Plan,
        *,
        grid: float | None,
        secret: Secret | None,
        seeds: Mapping[str, Secret],
        record: Record | None,
        resume: bool,
    ) -> None:
        self.lattice = lattice_of(plan, grid=grid)
        self.grid = self.lattice.grid
        self.use = f"{type(self).use}/{self.lattice.exponent}"
        others = tuple(
            s for s in plan.streams if s.source != OWN and s.name in self.lattice.coefficients
        )
        own = next((s for s in plan.streams if s.source == OWN), None)
        if own is None:
            own = Stream(name=f"node {plan.node}", coefficient=0.0, holders=(plan.node,))
        super().__init__(
            replace(plan, streams=(own, *others)),
            secret=secret,
            seeds=seeds,
            record=record,
            resume=resume,
        )
        self._recursion = _Rounded(self.lattice.strategy)
        self._own = DiscreteGaussian(self.lattice.own_variance)
        self._shared = DiscreteGaussian(self.lattice.seed_variance)

    def _secret_of(self, stream: Stream, seeds: Mapping[str, Secret]) -> Secret:
        if stream.source == DEALT and stream.name not in seeds:
            expected = f"{stream.name!r}, which a dealer gave"
            remedy = "noisedesign.noise.deal makes them; the secret is the node's own."
            raise InputError("seeds", expected=expected, got=f"{len(seeds)} others", remedy=remedy)
        return super()._secret_of(stream, seeds)

    def step(
        self,
        t: int,
        shape: int | tuple[int, ...] | None = None,
        *,
        out: Integers | None = None,
        start: int = 0,
    ) -> Integers:
        """Noise of one step, in steps of the lattice.

        Args:
            t: as of :meth:`NodeNoise.step`.
            shape: likewise.
            out: int64, written to in C order in place of a new array.
            start: likewise.

        Returns:
            int64; ``out`` where it is given.

        Raises:
            InputError: a step outside the horizon, an ``out`` that is not writeable int64.
        """
        array: Integers = output(shape, _INT64, out, allowed=(_INT64,))
        self._stepped(t, array, start)
        return array

    def _fresh_key(self, stream: str, step: int) -> bytes:
        return self._step_key(stream, step)

    def _draw(self, stream: Stream, s: int, block: int, place: slice) -> Integers:
        drawn = np.empty(place.stop - place.start, dtype=np.int64)
        key, start = self._key(stream.name, s), block * BLOCK + place.start
        if stream.source == OWN:
            self._own.fill(key, drawn, start=start)
            return drawn
        self._shared.fill(key, drawn, start=start)
        factor = self.lattice.coefficients[stream.name]
        _check_below(drawn, LARGEST // (abs(factor) * len(self.plan.streams) + 1))
        drawn *= np.int64(factor)
        return drawn

    def lattice_sum(self, gradients: Iterable[Any], *, clip: bool = False) -> list[Integers]:
        """The sum of gradients on the lattice, rounded toward zero, each of no larger norm than the
        clip in integers.

        Args:
            gradients: a list of arrays, float32 or float64, records along the first axis.
            clip: scale longer ones down; else they are refused, but for what rounding explains.

        Returns:
            int64, one array for each of ``gradients``, without its first axis.

        Raises:
            InputError: numbers that are not finite, of other dtypes, or past the clip.
        """
        clip = _checks.flag(clip, field="clip")
        given = list_of_arrays(gradients, field="gradients")
        arrays = [_float_gradient(array, at) for at, array in enumerate(given)]
        if not arrays or len({len(array) for array in arrays}) > 1:
            expected = "arrays with one record a row, as many in each"
            got = ", ".join(str(array.shape) for array in arrays) or "none"
            raise InputError("gradients", expected=expected, got=got)
        sums = [np.zeros(array.shape[1:], dtype=np.int64) for array in arrays]
        for record in range(len(arrays[0])):
            rows = [array[record].reshape(-1) for array in arrays]
            whole = self._clipped(np.concatenate(rows, dtype=np.float64), record, clip=clip)
            start = 0
            for total in sums:
                total += whole[start : start + total.size].reshape(total.shape)
                start += total.size
        return sums

    def _clipped(self, gradient: Array, record: int, *, clip: bool) -> Integers:
        """One gradient in integers, of a squared norm of at most ``clip_squared``."""
        most = self.lattice.clip_squared
        peak = float(np.abs(gradient).max(initial=0.0))
        if peak == 0:
            return np.zeros(gradient.shape, dtype=np.int64)
        unit = gradient / peak  # so that no square overflows
        length, longest = float(np.linalg.norm(unit)), math.sqrt(most)
        excess = peak / (longest * self.grid) * length
        if excess > 1:
            if not clip and excess > 1 + OVER_CLIP:
                norm = peak * length
                expected = f"norms up to the clip, {self.claim.clip:g}"
                got = f"{norm:g} of record {record}"
                remedy = "Clip every record's gradient, or have it done: lattice_sum(clip=True)."
                raise InputError("gradients", expected=expected, got=got, remedy=remedy)
            gradient = unit * (longest / length)
        else:
            gradient = np.ldexp(gradient, -self.lattice.exponent)
        whole = np.trunc(gradient).astype(np.int64)
        square = _squared_norm(whole)
        if square > most:
            shrunk = np.abs(whole) * np.int64(math.isqrt((most << 60) // square)) >> np.int64(30)
            whole = np.where(whole < 0, -shrunk, shrunk)
        return whole

    def release(
        self, gradients: Iterable[Any], t: int, *, records: Records | None = None
    ) -> list[Integers]:
        """The message of a node at one step: gradients and noise, in steps of the lattice.

        :meth:`values` makes floats of it. The step is recorded with a hash of the sums, as
        ``NodeNoise.add_`` does.

        Args:
            gradients: a list of arrays: either int64, sums as :meth:`lattice_sum` makes them, or
                float32 or float64 with one clipped gradient a row, of which sums are made.
            t: the step, zero-based.
            records: as of :meth:`NodeNoise.add_`; by default as many as there are rows.

        Returns:
            int64, an array for each sum.

        Raises:
            InputError: as :meth:`lattice_sum` and :meth:`NodeNoise.add_`.
        """
        t = self._checked_step(t)
        arrays = list_of_arrays(gradients, field=self._sums)
        if arrays and all(isinstance(a, np.ndarray) and a.dtype == _INT64 for a in arrays):
            sums = [np.array(array, order="C", ndmin=1) for array in arrays]
        else:
            sums = self.lattice_sum(arrays)
            records = len(arrays[0]) if records is None else records
        for at, total in enumerate(sums):
            if not _is_below(total, LARGEST):
                expected = f"sums up to {LARGEST} steps of the lattice"
                peak = max(int(total.max()), -int(total.min()))
                raise InputError(f"gradients[{at}]", expected=expected, got=str(peak))
        self._add(sums, t, records)
        return sums

    def _scaled(self, sums: Hidden) -> Hidden:
        return replace(sums, norm=sums.norm * self.grid)

    def values(self, released: Iterable[Integers]) -> list[Array]:
        """Released integers in units of the gradients, divided by the batch size where the plan has
        one: post-processing.

        Args:
            released: int64, as :meth:`release` gave them, or their sums.

        Returns:
            float64, an array for each.

        Raises:
            InputError: no list of arrays of int64.
        """
        arrays = list_of_arrays(released, field="released")
        for at, array in enumerate(arrays):
            if not isinstance(array, np.ndarray) or array.dtype != _INT64:
                got = _checks.describe(array)
                raise InputError(f"released[{at}]", expected="an array of int64", got=got)
        size = self.claim.batch_size or 1
        return [np.ldexp(x.astype(np.float64), self.lattice.exponent) / size for x in arrays]


def _is_below(integers: Integers, most: int) -> bool:
    return not integers.size or (int(integers.max()) <= most and int(integers.min()) >= -most)


def _check_below(integers: Integers, most: int) -> None:
    """Refuse draws of a probability below exp(-2^12), whatever the gradient."""
    if not _is_below(integers, most):
        raise OverflowError("noise beyond 64 bits")


def _squared_norm(integers: Integers) -> int:
    """Exact, of integers below 2^31.5 and at most 2^31 of them."""
    squares = integers * integers
    low = int((squares & np.int64(2**32 - 1)).sum())
    return (int((squares >> np.int64(32)).sum()) << 32) + low


def _float_gradient(array: Any, at: int) -> NDArray[Any]:
    field = f"gradients[{at}]"
    if not isinstance(array, np.ndarray) or array.ndim == 0 or np.ma.isMaskedArray(array):
        expected = "an array with one record a row"
        raise InputError(field, expected=expected, got=_checks.describe(array))
    if array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        remedy = "Clip gradients in float32 or float64."
        expected, got = "float32 or float64, or int64 for sums", str(array.dtype)
        raise InputError(field, expected=expected, got=got, remedy=remedy)
    check_finite(array, field=field)
    return array


def integer_noise(
    design: Any,
    *,
    node: Node | None = None,
    secret: Secret | bytes | str | Path | None = None,
    seeds: Mapping[str, Secret] | None = None,
    grid: float | None = None,
    clip: float | None = None,
    batch_size: int | None = None,
    record: str | Path | Literal[False] | None = None,
    resume: bool = False,
) -> IntegerNoise:
    """The noise of one node of a design, in integers.

    Args:
        design: as of :func:`noisedesign.noise.noise`.
        node: likewise.
        secret: the node's own, by default a new one: every node adds noise of its own.
        seeds: likewise.
        grid: the step of the lattice, a power of two in units of the gradients, the same at all
            nodes; by default 2^-20 of the design's ``noise_stddev`` or 2^-24 of the clip, the
            lesser of the two, coarser where that leaves too little room in 64 bits.
        clip: likewise.
        batch_size: likewise.
        record: likewise.
        resume: likewise.

    Returns:
        The noise, step by step.

    Raises:
        InputError: as of :func:`noisedesign.noise.noise`, and of a design whose C is known by its
            inverse alone, or a grid that is too coarse or too fine.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.noise import integer_noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = integer_noise(nd.solve(problem).design, node=0, grid=2.0**-10, record=False)
        >>> total = source.lattice_sum([np.array([[0.5], [0.25]])])
        >>> total[0].tolist(), source.values(total)[0].tolist()  # 3/4 of 1024
        ([768], [0.75])
    """
    plan = plan_of(design, node, batch_size=batch_size)
    agrees("clip", clip, plan.claim.clip)
    return IntegerNoise(
        plan,
        grid=grid,
        secret=new_secret(resume) if secret is None else Secret.of(secret),
        seeds={} if seeds is None else seeds,
        record=None if record is False else Record(record),
        resume=resume,
    )
