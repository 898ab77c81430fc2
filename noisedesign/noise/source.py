"""The noise of one node: any step, any slice, in any order, the same bits every time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.attendance import Attendance
from noisedesign.noise.keys import Secret
from noisedesign.noise.normals import LARGEST, MOST_SAMPLES, Normals
from noisedesign.noise.plan import DEALT, OWN, SHARED, Claim, Plan, Stream
from noisedesign.noise.record import Record

BLOCK = 1 << 15
"""Numbers that are carried from step to step together."""
STATE_VERSION = 1
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

Floats = NDArray[np.float32] | NDArray[np.float64]


class NodeNoise:
    """Noise to add to the sum of a node's clipped gradients, step by step.

    A step is asked for whole or in slices, and in any order; the bits are the same on every
    machine. Steps one after another are cheap. Going back, or skipping, computes the steps from
    the first one again where C has a band or buffers (O(t) times the work), and a dense C draws
    all steps up to t again at every step.

    Memory, beside what is returned: p - 1 arrays of the model's size in its precision for p bands,
    one a buffer, none for other C; and a working set of less than 10 MB.

    Attributes:
        plan: what the node must know.
        secret: its own, or the dealer's; None where it draws from shared seeds only.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        secret: Secret | None,
        seeds: Mapping[str, Secret],
        record: Record | None,
        resume: bool,
    ) -> None:
        self.plan, self.secret = plan, secret
        self._of = {stream.name: self._secret_of(stream, seeds) for stream in plan.streams}
        self._drawn = {stream.name: self._drawn_from(stream) for stream in plan.streams}
        self._record = record
        self._lanes: dict[tuple[int, np.dtype[Any]], _Lane] = {}
        self._key = lru_cache(maxsize=4 * len(plan.streams) + 64)(self._fresh_key)
        self._added = -1
        self._used: tuple[str, ...] = ()
        self._claim(resume)

    def _secret_of(self, stream: Stream, seeds: Mapping[str, Secret]) -> Secret:
        if stream.source != OWN and stream.name in seeds:
            return Secret.of(seeds[stream.name], field="seeds")
        if stream.source == SHARED:
            others = ", ".join(str(u) for u in stream.holders if u != self.plan.node)
            raise InputError(
                "seeds",
                expected=f"the secret {stream.name!r}, shared with node {others}",
                got=f"{len(seeds)} others" if seeds else "none",
                remedy="Agree on it with noisedesign.noise.Agreement.",
            )
        if self.secret is None:
            raise InputError(
                "secret",
                expected="the dealer's, the same at every node, or seeds that a dealer gave",
                got="none",
                remedy="Noise of nodes with secrets of their own would not be correlated. "
                "noisedesign.noise.deal makes the seeds.",
            )
        return self.secret

    def _drawn_from(self, stream: Stream) -> Secret:
        """Of what is dealt, the seed that :func:`noisedesign.noise.deal` gives away."""
        held = self._of[stream.name]
        if stream.source == DEALT and held is self.secret:
            return held.child(stream.name, digest=self.plan.digest)
        return held

    def _claim(self, resume: bool) -> None:
        """One entry a secret: no two streams of different sources may come from one."""
        entries: dict[str, tuple[str, bool]] = {}
        for stream in self.plan.streams:
            print_ = self._of[stream.name].fingerprint
            own = self._of[stream.name] is self.secret
            served = stream.source if own else stream.name
            if entries.setdefault(print_, (served, stream.source != OWN))[0] != served:
                expected, got = "a secret of its own for every seed", "one secret for two"
                raise InputError("seeds", expected=expected, got=got)
        self._used = tuple(entries)
        if self._record is None:
            return
        for print_, (served, shared) in entries.items():
            self._record.claim(
                secret=print_,
                node=self.plan.node,
                digest=self.plan.digest,
                streams=served,
                shared=shared,
                resume=resume,
            )

    # --- drawing --------------------------------------------------------------------------------

    def step(
        self,
        t: int,
        shape: int | tuple[int, ...] | None = None,
        *,
        dtype: DTypeLike = np.float64,
        out: Floats | None = None,
        start: int = 0,
    ) -> Floats:
        """Noise of zero-based step ``t``.

        Args:
            shape: of what is returned; not needed with ``out``.
            dtype: float64, or float32: then every step is rounded as it leaves.
            out: written to, in C order, in place of a new array; it says shape and dtype.
            start: place of the first number in the whole model, flattened: for models in slices.

        Returns:
            The noise, in units of the gradients; ``out`` where it is given.

        Raises:
            InputError: a step outside the horizon, another dtype, an ``out`` that is not
                contiguous or read-only.
        """
        t = self._checked_step(t)
        array = _output(shape, dtype, out)
        start = _checks.positive_int(start, field="start", minimum=0)
        flat = array.reshape(-1)
        end = start + flat.size
        if end > MOST_SAMPLES:
            expected = f"at most {MOST_SAMPLES} numbers a step"
            raise InputError("start", expected=expected, got=f"{end}")
        for block in range(start // BLOCK, -(-end // BLOCK)):
            first, last = max(start, block * BLOCK), min(end, (block + 1) * BLOCK)
            low, high = first - block * BLOCK, last - block * BLOCK
            found = self._block(t, block, high, array.dtype)
            flat[first - start : last - start] = found[low:high]
        return array

    def _checked_step(self, t: Any) -> int:
        step = _checks.positive_int(t, field="step", minimum=0)
        if step >= self.plan.horizon:
            raise InputError(
                "step",
                expected=f"0 to {self.plan.horizon - 1}: the design is for {self.plan.horizon}",
                got=str(step),
                remedy="No further step was ever accounted for: design for more steps.",
            )
        return step

    def _block(self, t: int, block: int, width: int, dtype: np.dtype[Any]) -> Array:
        """The first ``width`` numbers, or more, of a block at step t."""
        filter_ = self.plan.filter

        def white(s: int) -> Array:
            return self._white(s, block, width)

        if self.plan.couplings is not None:
            return self._coupled(t, block, width)
        if not filter_.rows:
            return filter_.step(t, white, np.empty((0, 0)))
        lane = self._lanes.get((block, dtype))
        if lane is None or lane.width < width or lane.step > t:
            # Enough for every slice of the block once it is asked for in pieces.
            width = width if lane is None else max(width, lane.width)
            lane = _Lane(filter_.rows, width, dtype)
            self._lanes[block, dtype] = lane
        width = lane.width
        while lane.step < t:
            lane.step += 1
            lane.last = filter_.step(lane.step, white, lane.kept).astype(dtype)
        found: Array = lane.last
        return found

    def _white(self, s: int, block: int, width: int) -> Array:
        """sum_k a_k w_k,s over a block, float64."""
        first, *others = self.plan.streams
        total = self._draw(first, s, block, width)
        total *= first.coefficient
        for stream in others:
            draw = self._draw(stream, s, block, width)
            draw *= stream.coefficient
            total += draw
        return total

    def _coupled(self, t: int, block: int, width: int) -> Array:
        assert self.plan.couplings is not None
        total = np.zeros(width)
        for s in range(t + 1):
            for stream, coupling in zip(self.plan.streams, self.plan.couplings[t, s], strict=True):
                if coupling:
                    draw = self._draw(stream, s, block, width)
                    draw *= coupling * stream.coefficient
                    total += draw
        return total

    def _draw(self, stream: Stream, s: int, block: int, width: int) -> Array:
        drawn = np.empty(width)
        self._key(stream.name, s).fill(drawn, start=block * BLOCK)
        return drawn

    def _fresh_key(self, stream: str, step: int) -> Normals:
        return Normals(self._drawn[stream].step_key(stream, step, digest=self.plan.digest))

    # --- adding ---------------------------------------------------------------------------------

    def add_(self, parameters: Iterable[Any], t: int) -> None:
        """Noise of step ``t`` added in place to the sum of clipped gradients, a list of arrays.

        Sums divided by the batch size get noise divided by it, where the plan has one. The step is
        recorded with a hash of what the noise hides: the same again, after a crash, is the same
        again; anything else at that step is refused.

        Raises:
            InputError: numbers that are not finite, not float32 or float64; a model of another
                size than before; a step outside the horizon, or one that other data had.
        """
        t = self._checked_step(t)
        arrays = [_gradient(array, at) for at, array in enumerate(parameters)]
        if not arrays:
            raise InputError("parameters", expected="at least one array", got="none")
        dimension = sum(array.size for array in arrays)
        if self._record is not None:
            data = self._hash(arrays)
            node, used = self.plan.node, self._used
            self._record.use(used, node=node, step=t, data=data, dimension=dimension)
        start = 0
        for array in arrays:
            flat = array.reshape(-1)
            for low in range(0, flat.size, BLOCK):
                part = flat[low : low + BLOCK]
                noise = self.step(t, part.shape, dtype=part.dtype, start=start + low)
                if self.plan.claim.batch_size is not None:
                    noise /= self.plan.claim.batch_size
                part += noise
            start += flat.size
        self._added = max(self._added, t)

    def _hash(self, arrays: list[Floats]) -> bytes:
        """Of shapes and bytes, keyed: who reads the record cannot try out guesses of the data."""
        secret = self._of[self.plan.streams[0].name]
        key = secret.step_key("record", 0, digest=self.plan.digest)
        found = hashlib.blake2b(digest_size=16, key=key)
        for array in arrays:
            found.update(repr((array.shape, array.dtype.str)).encode())
            found.update(array.data)
        return found.digest()

    def attendance(self) -> Attendance:
        """Who takes part when, from the first step on; empty."""
        assert self.plan.claim.rule is not None
        return Attendance(self.plan.claim.rule, horizon=self.plan.horizon)

    # --- resuming -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint of a training run keeps: JSON values, and no secret."""
        return {
            "version": STATE_VERSION,
            "digest": self.plan.digest,
            "node": self.plan.node,
            "secrets": list(self._used),
            "added": self._added,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after :meth:`state_dict`.

        Raises:
            InputError: of another design, node or secret, or of a newer version.
        """
        own = self.state_dict()
        for key in ("version", "digest", "node", "secrets"):
            if key not in state or state[key] != own[key]:
                got = _checks.describe(state.get(key))
                raise InputError(f"state.{key}", expected=f"{own[key]}", got=got)
        added = _checks.positive_int(state.get("added"), field="state.added", minimum=-1)
        self._added = added

    @property
    def next_step(self) -> int:
        """The step after the last whose noise was added."""
        return self._added + 1

    # --- what is claimed --------------------------------------------------------------------------

    @property
    def claim(self) -> Claim:
        """What the design protects."""
        return self.plan.claim

    def rounding_error_bound(self, dtype: DTypeLike = np.float64) -> float:
        """Largest possible |C z - C exact z| / C_tt of any number at any step, relative to the
        largest it can have: no step's noise is farther than this from what the exact draws and the
        noise of earlier steps make it. Not squared; in units of the gradients."""
        unit = float(np.finfo(_dtype(dtype)).eps) / 2
        deviation = float(np.sqrt(self.plan.variances.max()))
        return (unit + 8 * np.finfo(float).eps) * LARGEST * deviation


class _Lane:
    """A block of the model from step to step."""

    def __init__(self, rows: int, width: int, dtype: np.dtype[Any]) -> None:
        self.step, self.width = -1, width
        self.kept = np.zeros((rows, width), dtype=dtype)
        self.last: Array = np.empty(0)


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in _DTYPES:
        expected, got = "float32 or float64", _checks.describe(dtype)
        raise InputError("dtype", expected=expected, got=str(found or got))
    return found


def _output(shape: Any, dtype: DTypeLike, out: Any) -> Floats:
    if out is None:
        if shape is None:
            raise InputError("shape", expected="a shape, or out", got="neither")
        made: Floats = np.empty(shape, dtype=_dtype(dtype))
        return made
    if not isinstance(out, np.ndarray):
        raise InputError("out", expected="a numpy array", got=_checks.describe(out))
    _dtype(out.dtype)
    if not (out.flags.c_contiguous and out.flags.writeable):
        expected, got = "a writeable array in C order", "another"
        raise InputError("out", expected=expected, got=got)
    if shape is not None and math.prod(np.atleast_1d(shape)) != out.size:
        raise InputError("out", expected=f"shape {shape}", got=f"{out.shape}")
    return out


def _gradient(array: Any, at: int) -> Floats:
    field = f"parameters[{at}]"
    if not isinstance(array, np.ndarray):
        raise InputError(field, expected="a numpy array", got=_checks.describe(array))
    if array.dtype not in _DTYPES:
        remedy = "Sum gradients in float32 or float64: in less, noise is rounded away."
        raise InputError(field, expected="float32 or float64", got=str(array.dtype), remedy=remedy)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise InputError(field, expected="a writeable array in C order", got="another")
    flat = array.reshape(-1)
    for low in range(0, flat.size, BLOCK):
        if not np.isfinite(flat[low : low + BLOCK]).all():
            remedy = "Drop examples whose gradient is not finite before they are summed."
            got = "one that is not"
            raise InputError(field, expected="finite numbers", got=got, remedy=remedy)
    return array


def noise(
    design: Any,
    *,
    node: int | None = None,
    secret: Secret | bytes | str | Path | None = None,
    seeds: Mapping[str, Secret] | None = None,
    clip: float | None = None,
    batch_size: int | None = None,
    record: str | Path | Literal[False] | None = None,
    resume: bool = False,
) -> NodeNoise:
    """The noise of one node of a design.

    Args:
        design: a :class:`Plan`, the path of a node's file, or a design or loaded export, which
            need the whole toolkit.
        node: zero-based; a node's file knows its own.
        secret: the node's own, by default a new one from the operating system, kept in
            ``.secret``: save it, where the run may have to go on. Of noise that is dealt the
            dealer's, unless seeds are given.
        seeds: the secrets a node shares with others, or that a dealer gave it, by name of their
            streams.
        clip: the norm gradients are clipped to; must be that of the design.
        batch_size: what sums of gradients are divided by; must be that of the plan.
        record: where uses of secrets are recorded, by default ``$NOISEDESIGN_RECORDS`` or the
            user's state folder; False records nothing, and then nothing is refused.
        resume: go on with a run that used this secret before.

    Raises:
        InputError: no such node; a secret that another node, design or run has used; a seed that
            is missing; a clip or batch size that the design was not made for.
    """
    plan = plan_of(design, node)
    _agrees("clip", clip, plan.claim.clip)
    _agrees("batch_size", batch_size, plan.claim.batch_size)
    own = None
    if secret is not None:
        if not plan.sources & {OWN, DEALT}:
            expected = "none: all noise of this node is from shared seeds"
            raise InputError("secret", expected=expected, got="one")
        own = Secret.of(secret)
    elif OWN in plan.sources:
        own = Secret.new()
    kept = None if record is False else Record(record)
    return NodeNoise(plan, secret=own, seeds=seeds or {}, record=kept, resume=resume)


def plan_of(design: Any, node: int | None) -> Plan:
    """The part of ``node`` of what has one."""
    if isinstance(design, (str, Path)):
        design = Plan.load(design)
    make: Callable[[int | None], Plan] | None = getattr(design, "node_plan", None)
    if make is None:
        expected = "a design, or the path of a node's file"
        raise InputError("design", expected=expected, got=_checks.describe(design))
    return make(node)


def _agrees(field: str, given: float | None, designed: float | None) -> None:
    if given is not None and given != designed:
        stated = "none stated" if designed is None else f"{designed:g}"
        raise InputError(
            field,
            expected=f"{stated}, which the design is for",
            got=f"{given:g}",
            remedy="Another one has another privacy: design for it.",
        )
