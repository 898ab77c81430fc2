"""Discrete Gaussians from the words of ChaCha20: exact, and by integers alone.

A draw is x with probability proportional to exp(-x^2 / 2 sigma^2) over all integers x: no float, no
rounded probability, no cut-off tail (docs/methods/draws.md, "Discrete Gaussians from words")."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import InputError
from noisedesign.noise.normals import key_stream

Integers = NDArray[np.int64]
CHUNK = 1 << 13  # draws that are made together: their arrays stay in a processor's cache
LARGEST_VARIANCE = 1 << 80
SMALLEST_VARIANCE = Fraction(1, 1 << 40)
LARGEST = 1 << 62  # a larger magnitude, of probability below exp(-2^43), is an error
_COLUMNS = 1 << 12  # most columns of the alias table: 96 kB
_PRECISION = 192  # bits after the point of the exponentials that weights are rounded up from
_UNIFORM_BITS = 32
_WORD = 1 << 64
_PROPOSED, _SPARE = 0, 1  # streams of a chunk: words of attempts, and for what they leave open


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return integers around 2^bits exp(-numerator / denominator), for a fraction >= 0, by a series
    at most at 1/2, whose terms err by 4 units each, and squarings that round bounds outwards."""
    if numerator == 0:
        return 1 << bits, 1 << bits
    halvings = (2 * numerator // denominator).bit_length()
    places = bits + halvings + 16
    y = (numerator << places) // (denominator << halvings)
    term = total = 1 << places
    count = 0
    while term:
        count += 1
        term = (term * y >> places) // count
        total += -term if count & 1 else term
    slack = 4 * count + 16
    low, high = total - slack, total + slack
    for _ in range(halvings):
        low, high = low * low >> places, (high * high >> places) + 1
    shift = places - bits
    return low >> shift, (high >> shift) + 1


class _Table(NamedTuple):
    """Proposals of one variance: the alias method over ``buckets`` of 2^``width_bits`` integers,
    the tail and nothing; r is surely kept where U + ``slopes`` r / 2^30 is below 2^32 - 2."""

    column_bits: int
    buckets: int
    width_bits: int
    tail_bits: int
    scale: int
    weights: tuple[int, ...]
    thresholds: NDArray[np.uint64]
    aliases: NDArray[np.int64]
    slopes: NDArray[np.uint64]


@lru_cache(maxsize=256)
def _table(p: int, q: int) -> _Table:
    """Return the proposals for sigma^2 = p / q."""
    reach = isqrt(81 * p // (4 * q)) + 1
    width_bits = _bits_to_reach(-(-reach // (_COLUMNS - 2)))
    buckets = -(-reach >> width_bits)
    end = buckets << width_bits
    # exp(-end * 2^tail_bits / sigma^2) <= 1/2, as log 2 < 3/4.
    tail_bits = _bits_to_reach(-(-3 * p // (4 * end * q)))

    def above(x: int) -> int:
        return exp_bounds(x * x * q, 2 * p, _PRECISION)[1]

    most = [above(k << width_bits) for k in range(buckets)]
    most.append((above(end) << (tail_bits + 1) >> width_bits) + 1)
    scale = ((_WORD - len(most) - 1) << _PRECISION) // sum(most)
    weights = [-(-scale * high >> _PRECISION) for high in most]
    column_bits = (buckets + 1).bit_length()
    thresholds, aliases = _alias([*weights, _WORD - sum(weights)], column_bits)
    slopes = [-(-(((2 * k + 1) << width_bits) * q << 62) // (2 * p)) for k in range(buckets)]
    if width_bits == 0:
        slopes = [0] * buckets
    return _Table(
        column_bits=column_bits,
        buckets=buckets,
        width_bits=width_bits,
        tail_bits=tail_bits,
        scale=scale,
        weights=tuple(weights),
        thresholds=np.array(thresholds, dtype=np.uint64),
        aliases=np.array(aliases, dtype=np.int64),
        slopes=np.array([*slopes, 0, 0], dtype=np.uint64),
    )


def _bits_to_reach(count: int) -> int:
    """The least b with 2^b >= count, for a count >= 1."""
    return (count - 1).bit_length()


def _alias(weights: list[int], column_bits: int) -> tuple[list[int], list[int]]:
    """Return thresholds of weights that sum to 2^64, and aliases from there on, by column."""
    columns, room = 1 << column_bits, _WORD >> column_bits
    left = weights + [0] * (columns - len(weights))
    thresholds, aliases = [room] * columns, list(range(columns))
    small = [i for i, weight in enumerate(left) if weight < room]
    large = [i for i, weight in enumerate(left) if weight >= room]
    while small:
        i, j = small.pop(), large[-1]
        thresholds[i], aliases[i] = left[i], j
        left[j] -= room - left[i]
        if left[j] < room:
            small.append(large.pop())
    return thresholds, aliases


class DiscreteGaussian:
    """Integers x with probability proportional to exp(-x^2 / (2 ``variance``)), a variance in
    [2^-40, 2^80]; that of draws is never above it, and less by under 1e-6 from sigma = 1 on."""

    def __init__(self, variance: int | Fraction) -> None:
        if isinstance(variance, bool) or not isinstance(variance, (int, Fraction)):
            got = f"a value of type {type(variance).__name__}"
            raise InputError("variance", expected="an integer or a Fraction", got=got)
        self.variance = Fraction(variance)
        if not SMALLEST_VARIANCE <= self.variance <= LARGEST_VARIANCE:
            expected = "sigma from 2^-20 to 2^40 steps of the lattice"
            raise InputError("variance", expected=expected, got="another")
        self._table = _table(*self.variance.as_integer_ratio())

    def fill(self, key: bytes, out: Integers, *, start: int = 0) -> None:
        """Fill ``out``, int64, with draws ``start`` and following of a key."""
        end = start + len(out)
        for number in range(start // CHUNK, -(-end // CHUNK)):
            low, high = number * CHUNK, (number + 1) * CHUNK
            drawn = self.chunk(key, number)
            first, last = max(start, low), min(end, high)
            out[first - start : last - start] = drawn[first - low : last - low]

    def chunk(self, key: bytes, number: int) -> Integers:
        """The draws of one chunk."""
        spare = _spare_words(key, number)
        drawn, kept = self._attempts(key, number, 0, CHUNK, spare)
        missing, used = np.flatnonzero(~kept), 2 * CHUNK
        while missing.size:
            count = missing.size
            again, kept = self._attempts(key, number, used, count, spare)
            drawn[missing[kept]] = again[kept]
            missing, used = missing[~kept], used + 2 * count
        return drawn

    def _attempts(
        self, key: bytes, number: int, used: int, count: int, spare: Iterator[int]
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Proposals from the chunk's words after the first ``used``, and which of them are kept."""
        table = self._table
        words = key_stream(key, used, 2 * count, nonce=2 * number + _PROPOSED)
        first, second = words[:count], words[count:]
        room_bits = np.uint64(64 - table.column_bits)
        column = (first >> room_bits).view(np.int64)
        first = first & np.uint64((_WORD >> table.column_bits) - 1)
        bucket = table.aliases.take(column)
        np.copyto(bucket, column, where=first < table.thresholds.take(column))
        uniform = second & np.uint64((1 << _UNIFORM_BITS) - 1)
        signs = second.view(np.int64) >> np.int64(63)
        values = bucket << np.int64(table.width_bits)
        if table.width_bits:
            places = second >> np.uint64(_UNIFORM_BITS)
            places &= np.uint64((1 << table.width_bits) - 1)
            values += places.view(np.int64)
            places *= table.slopes.take(bucket)
            places >>= np.uint64(30)
            uniform += places
        kept = uniform < np.uint64((1 << _UNIFORM_BITS) - 2)
        kept &= bucket < table.buckets
        for i in np.flatnonzero(~kept).tolist():
            found = self._decide(int(bucket[i]), int(values[i]), int(second[i]), spare)
            if found is not None:
                values[i], kept[i] = found, True
        kept &= (values | ~signs) != 0
        values ^= signs
        values -= signs
        return values, kept

    def _decide(self, bucket: int, magnitude: int, second: int, spare: Iterator[int]) -> int | None:
        """The magnitude of an attempt, None where it is rejected."""
        table = self._table
        if bucket > table.buckets:
            return None
        a, b = table.scale, table.weights[bucket]
        if bucket == table.buckets:
            far = _leading_ones(spare)
            place = next(spare) & ((1 << table.tail_bits) - 1)
            magnitude = (table.buckets << table.width_bits) + (far << table.tail_bits) + place
            a, b = a << far + 1 + table.tail_bits, b << table.width_bits
        p, q = self.variance.as_integer_ratio()
        uniform, exponent = second & ((1 << _UNIFORM_BITS) - 1), (magnitude**2 * q, 2 * p)
        if not _is_below(uniform, spare, factor=(a, b), exponent=exponent):
            return None
        if magnitude > LARGEST:
            raise OverflowError("a draw beyond 2^62")
        return magnitude


def _is_below(
    uniform: int, spare: Iterator[int], *, factor: tuple[int, int], exponent: tuple[int, int]
) -> bool:
    """Whether U < a / b exp(-n / d), of whose bits after the point the first 32 are given."""
    (a, b), (n, d) = factor, exponent
    bits = _UNIFORM_BITS
    while True:
        places = bits + 32
        low, high = exp_bounds(n, d, places)
        if (uniform + 1) * b << places <= a * low << bits:
            return True
        if uniform * b << places >= a * high << bits:
            return False
        uniform, bits = uniform << 64 | next(spare), bits + 64


def _spare_words(key: bytes, number: int) -> Iterator[int]:
    used, count = 0, 8
    while True:
        yield from key_stream(key, used, count, nonce=2 * number + _SPARE).tolist()
        used += count


def _leading_ones(spare: Iterator[int]) -> int:
    """Return the number of ones before the first zero, highest bit of a word first."""
    found = 0
    while (word := next(spare)) == _WORD - 1:
        found += 64
    return found + 64 - (word ^ (_WORD - 1)).bit_length()
