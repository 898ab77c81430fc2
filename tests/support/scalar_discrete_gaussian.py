"""Discrete Gaussians one at a time, written down again from the head of the module under test:
ChaCha20 in plain Python, exponentials by mpmath, acceptance by real numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath

from tests.support.noise_reference import chacha20_block

DIGITS = 150


def density(x: int, variance: Fraction) -> mpmath.mpf:
    """exp(-x^2 / 2 sigma^2)."""
    with mpmath.workdps(DIGITS):
        return mpmath.exp(-mpmath.mpf(x * x * variance.denominator) / (2 * variance.numerator))


def total(variance: Fraction) -> mpmath.mpf:
    """Its sum over all integers: a theta series, from the side where it converges at once."""
    with mpmath.workdps(DIGITS):
        s2 = mpmath.mpf(variance.numerator) / variance.denominator
        return mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * s2)))


def moment(power: int, variance: Fraction) -> mpmath.mpf:
    """E x^power, for few steps a standard deviation."""
    with mpmath.workdps(40):
        reach = 30 * (math.isqrt(int(variance) + 1) + 1)
        terms = ((x, density(x, variance)) for x in range(-reach, reach + 1))
        return mpmath.fsum(mpmath.mpf(x) ** power * p for x, p in terms) / total(variance)


def stream(key: bytes, nonce: int) -> Iterator[int]:
    """64-bit words of one nonce."""
    for counter in itertools.count():
        block = chacha20_block(key, counter, nonce.to_bytes(12, "little"))
        for i in range(0, 64, 8):
            yield int.from_bytes(block[i : i + 8], "little")


# --- the sampler ----------------------------------------------------------------------------------


class Reference:
    """Draws of one chunk of ``count`` numbers."""

    def __init__(self, variance: Fraction, *, count: int) -> None:
        self.variance, self.count = variance, count
        p, q = variance.numerator, variance.denominator
        reach = math.isqrt(math.floor(Fraction(81 * p, 4 * q))) + 1
        self.width = next(w for w in _powers() if math.ceil(Fraction(reach, w)) <= 4094)
        self.buckets = math.ceil(Fraction(reach, self.width))
        self.end = self.buckets * self.width
        self.tail = next(w for w in _powers() if 4 * self.end * w * q >= 3 * p)
        with mpmath.workdps(DIGITS):
            shares = [density(k * self.width, variance) for k in range(self.buckets)]
            shares.append(2 * mpmath.mpf(self.tail) / self.width * density(self.end, variance))
            self.scale = int(mpmath.floor((2**64 - len(shares) - 1) / mpmath.fsum(shares)))
            weights = [int(mpmath.ceil(self.scale * share)) for share in shares]
        self.weights = [*weights, 2**64 - sum(weights)]
        self.columns = next(c for c in _powers() if c >= self.buckets + 2)
        self.alias = self._alias()

    def _alias(self) -> list[tuple[int, int]]:
        """(own share, alias) of every column: the last that has too little is filled up by the last
        that has enough."""
        room = 2**64 // self.columns
        have = self.weights + [0] * (self.columns - len(self.weights))
        found = [(room, i) for i in range(self.columns)]
        poor = [i for i in range(self.columns) if have[i] < room]
        rich = [i for i in range(self.columns) if have[i] >= room]
        while poor:
            i = poor.pop()
            found[i] = (have[i], rich[-1])
            have[rich[-1]] -= room - have[i]
            if have[rich[-1]] < room:
                poor.append(rich.pop())
        return found

    def chunk(self, key: bytes, number: int) -> list[int]:
        attempts, spare = stream(key, 2 * number), stream(key, 2 * number + 1)
        drawn: list[int | None] = [None] * self.count
        while missing := [i for i, x in enumerate(drawn) if x is None]:
            first = list(itertools.islice(attempts, len(missing)))
            second = list(itertools.islice(attempts, len(missing)))
            for i, a, b in zip(missing, first, second, strict=True):
                drawn[i] = self.attempt(a, b, spare)
        return [x for x in drawn if x is not None]

    def attempt(self, first: int, second: int, spare: Iterator[int]) -> int | None:
        column, rest = divmod(first, 2**64 // self.columns)
        own, other = self.alias[column]
        bucket = column if rest < own else other
        if bucket == self.buckets + 1:
            return None
        constant = Fraction(self.scale, self.weights[bucket])
        if bucket < self.buckets:
            magnitude = bucket * self.width + (second >> 32) % self.width
        else:
            bits = "".join(f"{word:064b}" for word in itertools.islice(spare, 1))
            assert "0" in bits  # the other way is of probability 2^-64
            far = bits.index("0")
            magnitude = self.end + far * self.tail + next(spare) % self.tail
            constant *= Fraction(2 ** (far + 1) * self.tail, self.width)
        with mpmath.workdps(DIGITS):
            limit = density(magnitude, self.variance) * constant.numerator / constant.denominator
            uniform, bits_drawn = second % 2**32, 32
            while not (uniform + 1 <= limit * 2**bits_drawn or uniform >= limit * 2**bits_drawn):
                uniform, bits_drawn = uniform * 2**64 + next(spare), bits_drawn + 64
            if uniform >= limit * 2**bits_drawn:
                return None
        negative = second >= 2**63
        return None if negative and magnitude == 0 else -magnitude if negative else magnitude


def _powers() -> Iterator[int]:
    return (2**i for i in itertools.count())
