"""PyTorch on several ranks, which hold the model of one node: whole on each of them
(``DistributedDataParallel``), in shards (FSDP2), or both.

Every number of the model is one rank's, which hashes it, adds noise to it, and sends it to the
ranks that hold it too. So no noise is ever on two sums, whatever the ranks were given. An error
of one rank is raised on all. Ranks tell each other bytes of a known size; nothing is unpickled."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.device.source import DeviceNoise, on
from noisedesign.noise.hidden import HASH_BYTES, WRAP, Hidden
from noisedesign.noise.source import BLOCK, NodeNoise

SENT = 1 << 20  # numbers that a rank sends at a time: 4 or 8 MB a rank are held for it
_TEXT = 248  # bytes of each of the four texts of an error that other ranks are told
_SAME = {
    "plan": ("the same plan on all ranks", "Load the same file of the node on every rank."),
    "secret": (
        "the same secret on all ranks",
        "Save one secret, and load it on every rank; of all but rank 0 with record=False.",
    ),
    "model": ("a model of the same parameters on all ranks", "Build the same one on every rank."),
    "checkpoint": ("the same checkpoint on all ranks", "Load the same one on every rank."),
    "step": ("the same step on all ranks", "Load the same checkpoint on every rank."),
    "taken": ("backward_ and collect_ on all ranks, or on none", "Call collect_ on every rank."),
    "records": (
        "the records of the whole batch, on every rank",
        "Name those of all ranks: attendance is that of the batch.",
    ),
}
"""Facts that ranks of one model share, each with what is expected and how to come by it."""
_MESSAGE = struct.Struct(f"<{len(_SAME) * HASH_BYTES}s6Qd{4 * _TEXT}s")


@dataclass(frozen=True)
class Said:
    """One rank says facts that all share, and what is its own."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    hidden: Hidden = field(default_factory=Hidden)
    bits: int = 0  # sum of all bits that it holds
    taken: int = 0  # sum of hashes of the records that it clipped
    error: tuple[str, ...] = ("", "", "", "")

    def packed(self) -> bytes:
        """The same in bytes, of one size whatever is said."""
        facts = b"".join(hash_of(repr(self.facts.get(key)), HASH_BYTES) for key in _SAME)
        texts = [text.encode()[:_TEXT].ljust(_TEXT, b"\0") for text in self.error]
        sums = self.hidden
        numbers = sums.narrow, sums.wide, sums.first, sums.second, self.bits, self.taken
        return _MESSAGE.pack(facts, *numbers, sums.norm, b"".join(texts))

    @classmethod
    def heard(cls, message: bytes) -> Said:
        """Read what another rank said, facts as hashes."""
        facts, narrow, wide, first, second, bits, taken, norm, text = _MESSAGE.unpack(message)
        size = HASH_BYTES
        known = {key: facts[at * size : (at + 1) * size] for at, key in enumerate(_SAME)}
        texts = [text[at : at + _TEXT].rstrip(b"\0") for at in range(0, len(text), _TEXT)]
        error = tuple(part.decode(errors="ignore") for part in texts)
        return cls(known, Hidden(narrow, wide, first, second, norm), bits, taken, error)


class Side(NamedTuple):
    """An axis of the mesh of ranks."""

    group: Any  # of torch.distributed
    same: bool  # whether ranks along it hold the same numbers
    joint: bool  # whether their backward passes are one, as those of FSDP, so of one record


class Ranks:
    """The ranks of one node, on a mesh; rank 0 is the first of it.

    ``places`` are the first number, in the flattened model, and the count of what this rank holds
    of every parameter."""

    def __init__(self, sides: Sequence[Side], places: list[tuple[int, int]]) -> None:
        self.sides, self.places, self.held = sides, places, sum(size for _, size in places)
        self.groups = [side.group for side in sides]
        self.copied = [side.group for side in sides if side.same]
        self.joint = [side.group for side in sides if side.joint]
        self.sizes = [distributed.get_world_size(group) for group in self.groups]
        self.index, self.size = _place(self.groups)
        self.copy, self.copies = _place(self.copied)
        share = -(-self.held // (self.copies * BLOCK)) * BLOCK  # whole blocks: carried once
        self.share, self.low = share, min(self.held, self.copy * share)
        self.high = min(self.held, self.low + share)
        nccl = distributed.get_backend(self.groups[0]) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else "cpu"
        self._check_mesh()

    def _check_mesh(self) -> None:
        """Check that every rank is on the mesh once, and that copies are of the same numbers."""
        said = struct.pack("<q", distributed.get_rank()) + hash_of(repr(self.places))
        rows = self.gathered(said, self.groups)
        held: dict[tuple[int, ...], bytes] = {}
        for rank, row in enumerate(rows):
            if held.setdefault(self._along(rank, "same", False), row[8:]) != row[8:]:
                expected, got = "ranks that hold the same numbers", "ranks of other shards"
                raise InputError("group", expected=expected, got=got)
        if len({row[:8] for row in rows}) < self.size:
            expected, got = "ranks that the model knows nothing of", "some of those that share it"
            raise InputError("group", expected=expected, got=got)

    def _along(self, rank: int, what: str, value: bool) -> tuple[int, ...]:
        """Return where a rank is along the axes of which this is so."""
        places = zip(np.unravel_index(rank, self.sizes), self.sides, strict=True)
        return tuple(int(at) for at, side in places if getattr(side, what) is value)

    def gathered(self, data: bytes, groups: Sequence[Any]) -> list[bytes]:
        """The bytes of all ranks of these axes, in their order on the mesh."""
        rows = self._rows(_tensor(data).to(self.device), groups).cpu()
        return [row.numpy().tobytes() for row in rows]

    def _rows(self, data: torch.Tensor, groups: Sequence[Any]) -> torch.Tensor:
        """The same on the device of the group, a row a rank."""
        found = data
        for group in reversed(groups):
            shape = distributed.get_world_size(group), found.numel()
            rows = torch.empty(shape, dtype=torch.uint8, device=self.device)
            distributed.all_gather(list(rows), found, group=group)
            found = rows.reshape(-1)
        return found.reshape(-1, data.numel())

    def together(self, say: Callable[[], Said]) -> list[Said]:
        """Say something to all ranks, which hear the same; an error of one rank is that of all."""
        error = None
        try:
            said = say()
        except InputError as found:
            error = found
            said = Said(error=(found.field, found.expected, found.got, found.remedy))
        heard = [Said.heard(row) for row in self.gathered(said.packed(), self.groups)]
        for rank, other in enumerate(heard):
            name, expected, got, remedy = other.error
            if name:
                got = f"{got}, on rank {rank}"
                raise InputError(name, expected=expected, got=got, remedy=remedy) from error
        for key, (expected, remedy) in _SAME.items():
            for rank, other in enumerate(heard):
                if other.facts[key] != heard[0].facts[key]:
                    got = f"another on rank {rank} than on rank 0"
                    raise InputError(key, expected=expected, got=got, remedy=remedy)
        self._check_copies(heard)
        return heard

    def _check_copies(self, heard: list[Said]) -> None:
        """Check that ranks that hold the same numbers hold the same sums."""
        first: dict[tuple[int, ...], int] = {}
        for rank, said in enumerate(heard):
            before = first.setdefault(self._along(rank, "same", False), rank)
            if said.bits != heard[before].bits:
                expected, got = "the same sums on all ranks", f"another on rank {rank}"
                remedy = (
                    "Add up the clipped gradients of all ranks first: "
                    "torch.distributed.all_reduce(p.grad)."
                )
                got = f"{got} than on rank {before}"
                raise InputError("sums", expected=expected, got=got, remedy=remedy)

    def taken(self, heard: list[Said]) -> int:
        """The sum of hashes of all records that were clipped, each counted once."""
        counted = [
            s.taken for rank, s in enumerate(heard) if not any(self._along(rank, "joint", True))
        ]
        return sum(counted) % WRAP

    def of_first(self, data: bytes) -> bytes:
        """Return what rank 0 has, on every rank."""
        size = torch.tensor([len(data)], device=self.device)
        self._from_first(size)
        found = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.index == 0:
            found.copy_(_tensor(data))
        self._from_first(found)
        return bytes(found.cpu().numpy())

    def _from_first(self, tensor: torch.Tensor) -> None:
        for group in self.groups:
            distributed.broadcast(tensor, distributed.get_global_rank(group, 0), group=group)

    def summed(self, part: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks that had records of their own."""
        total = part.to(self.device)
        for side in self.sides:
            if not side.joint:
                distributed.all_reduce(total, group=side.group)
        return total

    def norm(self, square: float, record: bytes) -> float:
        """Norm, not squared, of one record's gradient, of which this rank holds a shard."""
        rows = self.gathered(struct.pack("<d", square) + record, self.joint)
        if any(row[8:] != record for row in rows):
            expected = "one record on all ranks that hold shards of one model, one after another"
            remedy = (
                "FSDP averages the gradients of ranks before anybody can clip them: give all ranks "
                "of a mesh the same record."
            )
            got = "another record on another rank"
            raise InputError("record", expected=expected, got=got, remedy=remedy)
        squares = math.fsum(struct.unpack("<d", row[:8])[0] for row in rows)
        copies = [side.group for side in self.sides if side.joint and side.same]
        return math.sqrt(squares / _place(copies)[1])

    def _slices(
        self, flats: Sequence[torch.Tensor], low: int, high: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Numbers ``low`` to ``high`` of those that this rank holds, with their places in the
        flattened model."""
        at = 0
        for (start, size), flat in zip(self.places, flats, strict=True):
            first, last = max(low - at, 0), min(high - at, size)
            if first < last:
                yield start + first, flat[first:last]
            at += size

    def _own(
        self, flats: Sequence[torch.Tensor], noise: NodeNoise
    ) -> Iterator[tuple[DeviceNoise, list[torch.Tensor], list[int]]]:
        """Yield what this rank draws for, by devices: parts, and where each begins."""
        found: dict[DeviceNoise, tuple[list[torch.Tensor], list[int]]] = {}
        for start, part in self._slices(flats, self.low, self.high):
            parts, starts = found.setdefault(on(noise, part.device), ([], []))
            parts.append(part)
            starts.append(start)
        for there, (parts, starts) in found.items():
            yield there, parts, starts

    def hidden(self, flats: Sequence[torch.Tensor], noise: NodeNoise) -> Hidden:
        """Sum up what the noise that this rank draws hides."""
        own = self._own(flats, noise)
        return sum((there.hidden(parts, starts) for there, parts, starts in own), Hidden())

    def add_(self, flats: Sequence[torch.Tensor], noise: NodeNoise, t: int) -> None:
        """Noise of a step, which was hidden, added to all numbers that this rank holds."""
        for there, parts, starts in self._own(flats, noise):
            there._add(parts, starts, t)
        if self.copies > 1:
            self._exchange(flats)

    def _exchange(self, flats: Sequence[torch.Tensor]) -> None:
        """Give the numbers of every rank to all ranks that hold them too."""
        largest = max((flat.element_size() for flat in flats), default=0)
        for at in range(0, min(self.share, self.held), SENT):
            ends = [min((copy + 1) * self.share, self.held) for copy in range(self.copies)]
            lows = [min(copy * self.share + at, end) for copy, end in enumerate(ends)]
            highs = [min(low + SENT, end) for low, end in zip(lows, ends, strict=True)]
            most = max(high - low for low, high in zip(lows, highs, strict=True))
            sent = torch.zeros(most * largest, dtype=torch.uint8, device=self.device)
            for part, there in self._packed(flats, sent, lows[self.copy], highs[self.copy]):
                there.copy_(part)
            rows = self._rows(sent, self.copied)
            for low, high, row in zip(lows, highs, rows, strict=True):
                for part, there in self._packed(flats, row, low, high):
                    part.copy_(there)

    def _packed(
        self, flats: Sequence[torch.Tensor], row: torch.Tensor, low: int, high: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The bytes of slices, and where they are in a row of them."""
        place = 0
        for _, part in self._slices(flats, low, high):
            found = part.view(torch.uint8)
            yield found, row[place : place + found.numel()]
            place += found.numel()


def hash_of(text: str, size: int = 8) -> bytes:
    """Hash of a text, of this many bytes."""
    return blake2b(text.encode(), digest_size=size).digest()


def name_of(record: Hashable) -> str:
    """A record in words, the same for numbers of any kind."""
    return str(getattr(record, "item", lambda: record)())


def hash_of_record(record: Hashable) -> int:
    """A number, which sums of hashes are made of."""
    return int.from_bytes(hash_of(name_of(record)), "little")


def bits_of(flats: Iterable[torch.Tensor]) -> int:
    """The sum of all bits, by which different sums are noticed; no secret is in it."""
    return sum(int(flat.view(torch.int32).sum(dtype=torch.int64)) for flat in flats) % WRAP


def ranks_of(model: torch.nn.Module, group: Any) -> Ranks | None:
    """The ranks that hold this model; None: this process alone.

    ``group`` is of ranks with copies of it that the model says nothing of; False: there are none,
    and all other ranks are other nodes."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    _check_shards(model, parameters)
    sides = []
    if group is not None and group is not False:
        expected = "a process group of torch.distributed that this rank is in, or False"
        _checks.instance(group, distributed.ProcessGroup, field="group", expected=expected)
        if distributed.get_rank(group) < 0:
            raise InputError("group", expected=expected, got="one of others")
        sides.append(Side(group, same=True, joint=False))
    first: Any = next(iter(parameters.values()), None)
    for axis, kind in enumerate(getattr(first, "placements", ())):
        sides.append(Side(first.device_mesh.get_group(axis), not kind.is_shard(), joint=True))
    parts = [part for part in model.modules() if isinstance(part, DistributedDataParallel)]
    if parts:
        sides.append(Side(parts[0].process_group, same=True, joint=False))
        if any(part.process_group is not parts[0].process_group for part in parts):
            raise InputError("model", expected="one group of ranks", got="parts of several")
    if group is None:
        check_alone(sides)
    return Ranks(sides, places_of(parameters.values())) if sides else None


def check_alone(sides: Sequence[Side] = ()) -> None:
    """Check that no other rank could hold this model, and draw its noise for other sums."""
    if not distributed.is_available() or not distributed.is_initialized():
        return
    ranks, known = distributed.get_world_size(), _place([side.group for side in sides])[1]
    if known < ranks:
        expected = f"which of {ranks} ranks hold copies of the model of this node"
        got = f"none, for a model on {known}"
        remedy = (
            "Wrap it (DistributedDataParallel, fully_shard), or say group= of the ranks that hold "
            "copies; group=False (run.alone = True) where all others are nodes of their own, with "
            "secrets of their own."
        )
        raise InputError("group", expected=expected, got=got, remedy=remedy)


def _check_shards(model: torch.nn.Module, parameters: Mapping[str, Any]) -> None:
    """Check that parameters are whole, or shards of rows, all in one way."""
    expected = "parameters that are whole on every rank, or in shards by fully_shard"
    first: Any = None
    for name, part in model.named_modules():
        if hasattr(part, "sharding_strategy"):
            got = f"FullyShardedDataParallel, {name or type(part).__name__}"
            remedy = "Take its successor: torch.distributed.fsdp.fully_shard(model)."
            raise InputError("model", expected=expected, got=got, remedy=remedy)
    for name, p in parameters.items():
        kinds = [(type(at).__name__, getattr(at, "dim", 0)) for at in getattr(p, "placements", ())]
        shards = [kind for kind in kinds if kind != ("Replicate", 0)]
        if shards not in ([], [("Shard", 0)]):
            got = f"{name} as {tuple(p.placements)}"
            remedy = "Tensor parallelism and shards of columns are not for it: shard rows, once."
            raise InputError("model", expected=expected, got=got, remedy=remedy)
        how = getattr(p, "device_mesh", None), kinds
        first = first or (name, how)
        if how != first[1]:
            got = f"{first[0]} and {name}, which differ"
            remedy = "Call fully_shard(model) of the whole model last, and ignore no parameter."
            raise InputError("model", expected=expected, got=got, remedy=remedy)


def places_of(parameters: Iterable[Any]) -> list[tuple[int, int]]:
    """Return where what this rank holds of each begins in the flattened model, and its size."""
    places, start = [], 0
    for at, p in enumerate(parameters):
        first, size = 0, p.numel()
        for axis, kind in enumerate(getattr(p, "placements", ())):
            if kind.is_shard():
                rows, row = p.shape[0], math.prod(p.shape[1:])
                share = -(-rows // p.device_mesh.size(axis))
                low = min(rows, share * p.device_mesh.get_local_rank(axis))
                first, size = low * row, (min(rows, low + share) - low) * row
        if size != local(p).numel():
            expected = f"{size} numbers on this rank, as torch.chunk cuts them"
            raise InputError(f"parameters[{at}]", expected=expected, got=str(local(p).numel()))
        places.append((start + first, size))
        start += p.numel()
    return places


def local(tensor: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor; changes of it are in place."""
    found: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found.detach()


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _place(groups: Sequence[Any]) -> tuple[int, int]:
    """The number of this rank on a mesh, and of all."""
    index, size = 0, 1
    for group in groups:
        count = distributed.get_world_size(group)
        index, size = index * count + distributed.get_rank(group), size * count
    return index, size
