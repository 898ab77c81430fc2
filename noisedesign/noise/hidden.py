"""Noise of a step hides sums, here as numbers that add up over parts of a model, in any order.

The record keeps a hash of it, so that no step hides a second sum. The hash is multilinear, with
keys from ChaCha20, in integers that wrap at 2^64: every part of a model is hashed where it is, on a
device or on another rank, and sums of parts are the sums of the whole, bit for bit. Number j in
float32 has the bits x and the j-th 64-bit word of the key, whose halves k and k' give k x and k' x.
One in float64 has two words, and halves of its bits likewise. Two sums that differ have the same
hash with probability 2^-64 at most: k (x - y) takes 2^32 values, of which one is the difference of
the other terms, and k' is drawn anew."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import InputError
from noisedesign.noise.normals import CHUNK, MOST_SAMPLES, key_stream

HASH_BYTES = 16  # bytes of a hash of data or names: two of 1e9 names collide with a chance of 1e-21
WRAP = 2**64  # sums of the hash are modulo this
_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)


class HashKeys(NamedTuple):
    """The keys of ChaCha20, 32 bytes each, for numbers of 32 and of 64 bits."""

    narrow: bytes
    wide: bytes


@dataclass(frozen=True, slots=True)
class Hidden:
    """A part of a model's sums of gradients; parts are added to the whole.

    Attributes:
        narrow: how many numbers of 32 bits it has.
        wide: how many of 64.
        first: keyed sum of their bits, modulo 2^64.
        second: the same with other keys.
        norm: Euclidean, not squared, in units of the gradients.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.noise.hidden import HashKeys, hidden
        >>> keys = HashKeys(bytes(range(32)), bytes(range(1, 33)))
        >>> sums = np.arange(5.0)
        >>> whole = hidden([sums], keys=keys)
        >>> parts = hidden([sums[:2]], keys=keys), hidden([sums[2:]], keys=keys, start=2)
        >>> parts[1] + parts[0] == whole
        True
    """

    narrow: int = 0
    wide: int = 0
    first: int = 0
    second: int = 0
    norm: float = 0.0

    def __add__(self, other: Hidden) -> Hidden:
        """Both parts together."""
        return Hidden(
            self.narrow + other.narrow,
            self.wide + other.wide,
            (self.first + other.first) % WRAP,
            (self.second + other.second) % WRAP,
            math.hypot(self.norm, other.norm),
        )

    @property
    def dimension(self) -> int:
        """The number of numbers it has."""
        return self.narrow + self.wide

    def digest(self, key: bytes) -> bytes:
        """The hash that is recorded: nobody without the key can try out sums.

        Args:
            key: 32 bytes.

        Returns:
            16 bytes, by BLAKE2b.
        """
        said = blake2b(digest_size=HASH_BYTES, key=key)
        for number in (self.narrow, self.wide, self.first, self.second):
            said.update(number.to_bytes(8, "little"))
        return said.digest()


def hidden(arrays: Iterable[NDArray[Any]], *, keys: HashKeys, start: int = 0) -> Hidden:
    """The sums of gradients in arrays, one after another in the flattened model.

    Args:
        arrays: contiguous, of numbers of 32 or 64 bits.
        keys: of :attr:`noisedesign.noise.NodeNoise.hash_keys`.
        start: place of the first number in the whole model.

    Returns:
        What noise hides; its norm is not finite where a number is not.
    """
    total = Hidden()
    for array in arrays:
        total += _of_one(array.reshape(-1), keys, start)
        start += array.size
    return total


def _of_one(flat: NDArray[Any], keys: HashKeys, start: int) -> Hidden:
    wide = flat.dtype.itemsize == 8
    most = MOST_SAMPLES // (1 + wide)
    if start + flat.size > most:
        got = f"{start + flat.size}"
        raise InputError("parameters", expected=f"at most {most} numbers a step", got=got)
    words, bits = 1 + wide, flat.view(np.uint32)
    first = second = 0
    norms = [0.0]
    for low in range(0, flat.size, CHUNK):
        high = min(low + CHUNK, flat.size)
        place, count = words * (start + low), words * (high - low)
        key = key_stream(keys.wide if wide else keys.narrow, place, count)
        part = bits[words * low : words * high].astype(np.uint64)
        first += int(np.dot(key & _LOW, part))
        second += int(np.dot(key >> _HALF, part))
        norms.append(_norm(flat[low:high]))
    size = flat.size
    return Hidden(
        0 if wide else size, size if wide else 0, first % WRAP, second % WRAP, math.hypot(*norms)
    )


def _norm(part: NDArray[Any]) -> float:
    """Euclidean norm, not squared, in float64; no square of a finite number overflows."""
    numbers = part.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.dot(numbers, numbers))
    if 1e-280 < square < 1e280 or not part.any():
        return math.sqrt(square)
    peak = float(np.abs(numbers).max())
    return peak * float(np.linalg.norm(numbers / peak)) if math.isfinite(peak) else peak
