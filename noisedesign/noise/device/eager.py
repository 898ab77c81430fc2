"""ChaCha20, normals, filters and hashes by the operations of torch, one launch an operation.

Each operation is exactly rounded or in integers, and none is left to a compiler that could join
a product and a sum. Two of torch's are not what they seem: ``torch.sqrt`` of a processor is not
rounded exactly (numpy's is), and a tensor on CUDA over a number is a product with its inverse."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from noisedesign.noise import normals
from noisedesign.noise.filters import Recursion
from noisedesign.noise.hidden import HashKeys

WORDS = 8  # 64-bit words of a block of ChaCha20
CONSTANTS = struct.unpack("<4i", b"expand 32-byte k")  # of RFC 8439, section 2.3
ROUNDS = 20
MANTISSA, ONE = int(normals._MANTISSA), int(normals._ONE)
SQRT_HALF, TWO_52 = int(normals._SQRT_HALF), int(normals._TWO_52)
HALVES = 2**32 - 1  # of a 64-bit word
Term = tuple[bytes, float]  # a key and what its normals are multiplied by
Terms = Callable[
    [int], list[Term]
]  # zero-based step -> what white noise of that step is the sum of


class Eager:
    """Draws on one device."""

    chunk = 1 << 20  # numbers at a time: a few dozen MB of what is computed on the way

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def white(self, terms: list[Term], start: int, size: int) -> Tensor:
        """The sum of normals of keys, times their coefficients, in float64."""
        total = torch.empty(size, dtype=torch.float64, device=self.device)
        for low in range(0, size, self.chunk):
            part = total[low : low + self.chunk]
            for at, (key, coefficient) in enumerate(terms):
                drawn = self._drawn(key, start + low, len(part)) * coefficient
                _ = part.add_(drawn) if at else part.copy_(drawn)
        return total

    def step(
        self, filter_: Recursion, t: int, terms: Terms, start: int, size: int, kept: Tensor
    ) -> Tensor:
        """Noise of a step, which moves what is kept on; in float64, or as it leaves."""
        noise: Tensor = filter_.step(t, lambda s: self.white(terms(s), start, size), kept)
        return noise

    def hidden(self, flat: Tensor, keys: HashKeys, start: int) -> tuple[Tensor, Tensor]:
        """Both keyed sums of what noise hides, modulo 2^64, shape (2,), and its norm."""
        wide = flat.dtype == torch.float64
        bits, key = flat.view(torch.int32), keys.wide if wide else keys.narrow
        total = torch.zeros(2, dtype=torch.int64, device=self.device)
        for low in range(0, len(bits), self.chunk):
            part = bits[low : low + self.chunk].to(torch.int64).bitwise_and_(HALVES)
            words = self._words(key, (1 + wide) * start + low, len(part))
            total[0] += ((words & HALVES) * part).sum()
            total[1] += (words.bitwise_right_shift_(32).bitwise_and_(HALVES) * part).sum()
        return total, norm(flat)

    def _drawn(self, key: bytes, start: int, size: int) -> Tensor:
        lead = start % 2
        pairs = (lead + size + 1) // 2
        words = self._words(key, start - lead, 2 * pairs).reshape(-1, 2)
        both = torch.stack(_normals(words[:, 0], words[:, 1]), 1).reshape(-1)
        return both[lead : lead + size]

    def _words(self, key: bytes, start: int, count: int) -> Tensor:
        block, lead = divmod(start, WORDS)
        blocks = -(-(lead + count) // WORDS)
        found = _blocks(key, block, blocks, self.device).view(torch.int64).reshape(-1)
        return found[lead : lead + count]


def norm(flat: Tensor) -> Tensor:
    """Euclidean norm, not squared, in float64; no square of a finite number overflows."""
    if flat.dtype == torch.float32:
        return torch.linalg.vector_norm(flat, dtype=torch.float64)
    peak = torch.linalg.vector_norm(flat, math.inf)
    scale = torch.where(torch.isfinite(peak) & (peak > 0), peak, torch.ones_like(peak))
    return torch.linalg.vector_norm(flat / scale) * scale


def divided(noise: Tensor, by: int) -> Tensor:
    """Noise over a batch size, rounded as of numpy."""
    return noise / noise.new_full((), by)


def _blocks(key: bytes, first: int, count: int, device: torch.device) -> Tensor:
    """Blocks of the key stream with nonce 0, shape (count, 16), int32: four words a launch."""
    secret = struct.unpack("<8i", key)
    start = torch.zeros((16, count), dtype=torch.int32, device=device)
    for at, word in enumerate((*CONSTANTS, *secret)):
        start[at] = word
    start[12] = torch.arange(first, first + count, device=device).to(torch.int32)
    a, b, c, d = start.clone().reshape(4, 4, count)
    spare, hold = torch.empty_like(a), torch.empty_like(a)

    def mixed(one: Tensor, other: Tensor, changed: Tensor, by: int) -> None:
        one.add_(other)
        changed.bitwise_xor_(one)
        torch.bitwise_right_shift(changed, 32 - by, out=spare)
        spare.bitwise_and_((1 << by) - 1)  # the shift of int32 keeps the sign
        torch.add(spare, changed, alpha=1 << by, out=changed)

    for _ in range(ROUNDS // 2):
        for turn in (1, -1):  # columns, and diagonals as columns of rows that are turned
            mixed(a, b, d, 16)
            mixed(c, d, b, 12)
            mixed(a, b, d, 8)
            mixed(c, d, b, 7)
            b, hold = _turned(b, turn, hold)
            c, hold = _turned(c, 2, hold)
            d, hold = _turned(d, -turn, hold)
    found = torch.empty((count, 16), dtype=torch.int32, device=device)
    return found.copy_(torch.cat((a, b, c, d)).add_(start).t())


def _turned(rows: Tensor, by: int, hold: Tensor) -> tuple[Tensor, Tensor]:
    """Four rows moved up by so many, in the other memory, and the memory that is free now."""
    by %= 4
    hold[: 4 - by] = rows[by:]
    hold[4 - by :] = rows[:by]
    return hold, rows


def _normals(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of normals from pairs of words, as :func:`noisedesign.noise.normals.box_muller`."""
    angle = (_uniform(second) - 0.5) * normals._QUARTER_TURN
    square = angle * angle
    across = _horner(normals._SIN, square).mul_(square).mul_(angle).add_(angle)
    total = _horner(normals._COS, square).mul_(square).mul_(square)
    half = square * 0.5
    lead = 1.0 - half
    along = lead + total.add_((1.0 - lead).sub_(half))
    radius = _radius(_uniform(first))
    one = along.mul_(radius).view(torch.int64).bitwise_xor_((second & 2) << 62)
    other = across.mul_(radius).view(torch.int64)
    swapped = (one ^ other).bitwise_and_(-(second & 1))
    return (one ^ swapped).view(torch.float64), (other ^ swapped).view(torch.float64)


def _uniform(words: Tensor) -> Tensor:
    whole = (words >> 12).bitwise_and_(MANTISSA).bitwise_or_(TWO_52)
    return whole.view(torch.float64).sub_(2.0**52 - 0.5).mul_(2.0**-52)


def _radius(u: Tensor) -> Tensor:
    whole = u.view(torch.int64) + (ONE - SQRT_HALF)
    power = (whole >> 52).to(torch.float64).sub_(1023.0)
    f = whole.bitwise_and_(MANTISSA).add_(SQRT_HALF).view(torch.float64).sub_(1.0)
    s = f / (f + 2.0)
    z = s * s
    r = _horner(normals._LOG, z).mul_(z)
    halved = (f * f).mul_(0.5)
    r.add_(halved).mul_(s).add_(power * normals._LN2_LOW)
    halved.sub_(r).sub_(f).sub_(power.mul_(normals._LN2_HIGH)).mul_(2.0)
    if halved.device.type == "cpu":
        return torch.from_numpy(np.sqrt(halved.numpy()))
    return halved.sqrt_()


def _horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    total = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total.add_(coefficient).mul_(x)
    return total.add_(coefficients[-1])
