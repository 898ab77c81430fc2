"""The noise of one node on tensors of one device, and on those of several."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.device.eager import Eager, Term, divided
from noisedesign.noise.device.trial import difference
from noisedesign.noise.hidden import WRAP, Hidden, hidden
from noisedesign.noise.plan import Stream
from noisedesign.noise.source import BLOCK, NodeNoise, Records, not_finite

PIECE = 1 << 22  # numbers that are carried from step to step together: 16 or 32 MB a kept row
LATEST = 2  # pieces whose noise of the last step is held, where it is not among what is kept
_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def triton(device: torch.device) -> Eager:
    """Draws by Triton, which may be missing."""
    from noisedesign.noise.device.kernel import Kernel

    return Kernel(device)


def engines(device: torch.device) -> list[Callable[[torch.device], Eager]]:
    """Return what could draw on a device, the fastest first."""
    return [triton, Eager] if device.type == "cuda" else []


class _Lane:
    """A slice of the model, within one piece, from step to step."""

    def __init__(self, start: int, step: int, kept: Tensor) -> None:
        self.start, self.end = start, start + kept.shape[1]
        self.step, self.kept = step, kept
        self.noise: Tensor | None = None  # of that step, where it is not among what is kept


class DeviceNoise:
    """The noise of a node on one device, bit for bit that of :meth:`NodeNoise.step`.

    On CUDA it is drawn there, by one kernel of Triton a piece of the model, or where Triton is
    missing by operations of torch. Before a device is used it draws some thousands of numbers that
    the processor draws, too. Where they differ, and on every other device, noise is drawn on the
    processor and copied, and a warning says so once.

    A step is asked for whole or in slices, and in any order; what is cheap and what is not is as of
    :class:`NodeNoise`. Memory on the device: p - 1 arrays of the model's size for p bands, one a
    buffer, and less than 300 MB.

    Args:
        source: noise of the node.
        device: of torch.

    Raises:
        InputError: another source; no device that torch has.

    Examples:
        >>> import noisedesign as nd
        >>> import torch
        >>> from noisedesign.noise import noise
        >>> from noisedesign.noise.device import DeviceNoise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(4)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> device = "cuda" if torch.cuda.is_available() else "cpu"
        >>> out = torch.empty(5, dtype=torch.float64, device=device)
        >>> DeviceNoise(source, device).step_(2, out)
        >>> bool((out.cpu().numpy() == source.step(2, 5)).all())
        True
    """

    def __init__(self, source: NodeNoise, device: torch.device | str) -> None:
        expected = "a NodeNoise, as noisedesign.noise.noise(...) gives it"
        _checks.instance(source, NodeNoise, field="source", expected=expected)
        try:
            self.device = torch.empty(0, device=device).device
        except (AssertionError, RuntimeError, TypeError) as error:
            got = f"{device}: {str(error).partition('.')[0]}"
            raise InputError("device", expected="a device that torch has", got=got) from None
        self.source = source
        self._engines: dict[torch.dtype, Eager | None] = {}
        self._lanes: dict[tuple[int, torch.dtype], list[_Lane]] = {}  # of a piece: apart
        self._latest: list[_Lane] = []  # whose noise is held, the last at the end

    def step_(self, t: int, out: Tensor, *, start: int = 0) -> None:
        """Noise of one step, or of a slice of it, into a tensor.

        Args:
            t: the step, zero-based.
            out: written to, in C order: float32 or float64, contiguous, on this device.
            start: place of its first number in the whole model, flattened.

        Raises:
            InputError: as :meth:`NodeNoise.step`; a tensor of another device.
        """
        flat = self._flat(out, "out")
        t, start = self.source._begins(t, len(flat), start)
        for first, (part,) in _runs([flat], [start]):
            part.copy_(self._noise(t, first, len(part), part.dtype))

    def hidden(self, tensors: Sequence[Tensor], starts: Sequence[int]) -> Hidden:
        """Sum up what noise hides in tensors, where they are.

        Args:
            tensors: float32 or float64, contiguous, on this device.
            starts: the place of the first number of each in the whole model, flattened.

        Returns:
            The same as :func:`noisedesign.noise.hidden.hidden` but for rounding of the norm.

        Raises:
            InputError: tensors that are not like that.
        """
        flats = [self._flat(tensor, f"tensors[{at}]") for at, tensor in enumerate(tensors)]
        total, keys = Hidden(), self.source.hash_keys
        sums: list[Tensor] = []
        norms: list[Tensor] = []
        for start, parts in _runs(flats, starts):
            flat = parts[0] if len(parts) == 1 else torch.cat(parts)
            engine, wide = self._engine(flat.dtype), flat.dtype == torch.float64
            if engine is None:
                total += hidden([flat.cpu().numpy()], keys=keys, start=start)
                continue
            pair, norm = engine.hidden(flat, keys, start)
            sums.append(pair)
            norms.append(norm)
            total += Hidden(0 if wide else len(flat), len(flat) if wide else 0)
        if sums:
            pairs, sizes = torch.stack(sums).tolist(), torch.stack(norms).tolist()
            for (first, second), norm in zip(pairs, sizes, strict=True):
                total += Hidden(first=first % WRAP, second=second % WRAP, norm=norm)
        return total

    def _add(self, flats: Sequence[Tensor], starts: Sequence[int], t: int) -> None:
        """Add the noise of a step, over the batch size where the plan has one, to flat tensors."""
        divisor = self.source._divisor
        for start, parts in _runs(flats, starts):
            size, dtype = sum(map(len, parts)), parts[0].dtype
            noise = self._noise(t, start, size, dtype).to(dtype)
            if divisor > 1:
                noise = divided(noise, divisor)
            torch._foreach_add_(parts, list(noise.split([len(part) for part in parts])))

    def _kept(self, t: int) -> dict[tuple[int, np.dtype[Any]], NDArray[Any]]:
        """Return what is kept after a step, by the blocks of the processor."""
        found = {}
        for (_, dtype), lanes in self._lanes.items():
            for lane in lanes:
                if lane.step == t:
                    kept = lane.kept.cpu().numpy()
                    for low in range(0, kept.shape[1], BLOCK):
                        at = (lane.start + low) // BLOCK, _DTYPES[dtype]
                        found[at] = kept[:, low : low + BLOCK]
        return found

    def _flat(self, tensor: Any, field: str) -> Tensor:
        _checks.instance(tensor, Tensor, field=field, expected="a tensor")
        expected = f"float32 or float64, contiguous, on {self.device}"
        if tensor.dtype in _DTYPES and tensor.device == self.device and tensor.is_contiguous():
            found: Tensor = tensor.detach().view(-1)
            return found
        got = f"{tensor.dtype} on {tensor.device}, strides {tuple(tensor.stride())}"
        raise InputError(field, expected=expected, got=got)

    def _engine(self, dtype: torch.dtype) -> Eager | None:
        """Return what draws on the device; None: the processor does."""
        if dtype not in self._engines:
            self._engines[dtype] = self._tried(dtype)
        return self._engines[dtype]

    def _tried(self, dtype: torch.dtype) -> Eager | None:
        plan, failed = self.source.plan, ""
        for make in engines(self.device):
            try:
                engine = make(self.device)
                why = difference(engine, plan.filter, horizon=plan.horizon, dtype=dtype)
            except Exception as error:  # of a compiler, a driver, or a dtype that it has not
                why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if why is None:
                if failed:
                    warnings.warn(
                        f"Noise is drawn more slowly on {self.device}{failed}", stacklevel=2
                    )
                return engine
            failed += f". By {make.__name__.lower()}: {why}"
        if failed or self.device.type != "cpu":
            said = f"Noise is drawn on the processor and copied to {self.device}"
            warnings.warn(said + (failed or ", which is no CUDA device"), stacklevel=2)
        return None

    def _noise(self, t: int, start: int, size: int, dtype: torch.dtype) -> Tensor:
        """Noise of a slice within one piece; in float64, or as it leaves."""
        source, engine = self.source, self._engine(dtype)
        with source._lock:
            if engine is None:
                array = np.empty(size, _DTYPES[dtype])
                source._fill(t, array, start)
                return torch.from_numpy(array).to(self.device)
            if source.plan.couplings is not None:
                return self._coupled(engine, t, start, size)
            if not source.plan.filter.rows:
                kept = torch.empty((0, size), dtype=dtype, device=self.device)
                return engine.step(source.plan.filter, t, self._terms, start, size, kept)
            return self._carried(engine, t, start, start + size, dtype)

    def _carried(self, engine: Eager, t: int, start: int, end: int, dtype: torch.dtype) -> Tensor:
        """Noise of a slice at step t, by way of the steps before."""
        filter_, lanes = (
            self.source.plan.filter,
            self._lanes.setdefault((start // PIECE, dtype), []),
        )
        over = [one for one in lanes if one.start < end and start < one.end]
        lane = over[0] if over and over[0].start <= start and end <= over[0].end else None
        noise: Tensor | None = None
        if lane is not None and lane.step == t:
            noise = filter_.latest(t, lane.kept)
            noise = lane.noise if noise is None else noise
        if noise is None:
            if lane is None or lane.step >= t:
                low, high = start, end
                if self.source._states is not None:  # whose files have blocks
                    low -= low % BLOCK
                    over = [one for one in lanes if one.start < high and low < one.end]
                low = min([low, *(one.start for one in over)])
                high = max([high, *(one.end for one in over)])
                lane = self._lane(low, high, t, dtype)
            # Until it is at t: a step that was interrupted is no step.
            lanes[:] = [one for one in lanes if one not in over]
            while lane.step < t:
                lane.step += 1
                size = lane.end - lane.start
                noise = engine.step(
                    filter_, lane.step, self._terms, lane.start, size, lane.kept
                ).to(dtype)
            lanes.append(lane)
            assert noise is not None
            if filter_.latest(t, lane.kept) is None:
                self._hold(lane, noise)
        assert lane is not None
        return noise[start - lane.start : end - lane.start]

    def _hold(self, lane: _Lane, noise: Tensor) -> None:
        """Hold the last noise of a lane, and of few others."""
        self._latest = [one for one in self._latest if one is not lane]
        for old in self._latest[: 1 - LATEST]:
            old.noise = None
        self._latest = [*self._latest[1 - LATEST :], lane]
        lane.noise = noise

    def _lane(self, start: int, end: int, t: int, dtype: torch.dtype) -> _Lane:
        """A slice at the latest step before t that is kept in files, or before the first one."""
        rows = self.source.plan.filter.rows
        kept = torch.zeros((rows, end - start), dtype=dtype, device=self.device)
        if (states := self.source._states) is not None:
            found = []
            for low in range(start, end, BLOCK):
                place = low // BLOCK, _DTYPES[dtype]
                found.append(states.find(place, before=t, width=min(BLOCK, end - low)))
            steps = {-1 if one is None else one[0] for one in found}
            if len(steps) == 1 and None not in found:
                pieces = [one[1] for one in found if one]
                kept.copy_(torch.from_numpy(np.concatenate(pieces, axis=1)[:, : end - start]))
                return _Lane(start, steps.pop(), kept)
        return _Lane(start, -1, kept)

    def _terms(self, s: int) -> list[Term]:
        return [self._term(stream, s) for stream in self.source.plan.streams]

    def _term(self, stream: Stream, s: int, coupling: float = 1.0) -> Term:
        key = self.source._key(stream.name, s)._key
        return key, float(coupling * stream.coefficient)

    def _coupled(self, engine: Eager, t: int, start: int, size: int) -> Tensor:
        """Noise of a full design: every draw of every step so far, one after another."""
        plan = self.source.plan
        assert plan.couplings is not None
        total = torch.zeros(size, dtype=torch.float64, device=self.device)
        for s in range(t + 1):
            for stream, coupling in zip(plan.streams, plan.couplings[t, s], strict=True):
                if coupling:
                    total += engine.white([self._term(stream, s, coupling)], start, size)
        return total


def _runs(flats: Sequence[Tensor], starts: Sequence[int]) -> Iterator[tuple[int, list[Tensor]]]:
    """Parts that follow one another in one piece, with the place of the first in the model."""
    parts: list[Tensor] = []
    first = end = 0
    for flat, start in zip(flats, starts, strict=True):
        low = 0
        while low < len(flat):
            place = start + low
            size = min(len(flat) - low, PIECE - place % PIECE)
            if parts and (place != end or place % PIECE == 0 or flat.dtype != parts[0].dtype):
                yield first, parts
                parts = []
            first = first if parts else place
            parts.append(flat[low : low + size])
            low += size
            end = place + size
    if parts:
        yield first, parts


def on(source: NodeNoise, device: torch.device) -> DeviceNoise:
    """The noise of a node on a device, always the same one."""
    made: dict[torch.device, DeviceNoise] = vars(source).setdefault("_on_devices", {})
    if device not in made:
        made[device] = DeviceNoise(source, device)
    return made[device]


def add_(
    source: NodeNoise, tensors: Sequence[Tensor], t: int, *, records: Records | None = None
) -> None:
    """Noise of one step added in place to the sum of clipped gradients, on any devices.

    Args:
        source: noise of the node.
        tensors: the sum, float32 or float64, which are changed.
        t: the step, zero-based.
        records: as of :meth:`NodeNoise.add_`.

    Raises:
        InputError: as :meth:`NodeNoise.add_`.
    """
    whole = [tensor.detach().contiguous().view(-1) for tensor in tensors]
    shares: dict[DeviceNoise, tuple[list[Tensor], list[int]]] = {}
    start = 0
    for flat in whole:
        flats, starts = shares.setdefault(on(source, flat.device), ([], []))
        flats.append(flat)
        starts.append(start)
        start += len(flat)
    total = sum((there.hidden(*share) for there, share in shares.items()), Hidden())
    if not math.isfinite(total.norm):
        for at, flat in enumerate(whole):
            if not bool(torch.isfinite(flat).all()):
                raise not_finite(f"{source._sums}[{at}]")
    source.hide(t, total, records=records)
    for there, share in shares.items():
        there._add(*share, t)
    for tensor, flat in zip(tensors, whole, strict=True):
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))
    if source._states is not None and source._states.due(t):
        kept = {at: rows for there in shares for at, rows in there._kept(t).items()}
        if kept:
            source._states.keep(t, kept)
