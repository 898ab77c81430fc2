"""Standard normals from the words of ChaCha20, bit for bit the same on every machine.

Sample pairs come by Box and Muller from two 64-bit words each: the radius sqrt(-2 log u) of the
first, an angle of the second. Logarithm, sine and cosine are polynomials evaluated by additions,
multiplications, one division and one square root, one array operation each: these are exactly
rounded by IEEE 754, so that neither the processor nor the version of numpy can change a bit, which
their own ``log`` and ``sin`` do. Coefficients are those of FreeBSD's msun (fdlibm), good to less
than one unit in the last place on these intervals.

What is computed differs from the exact transform of the same words by at most
:data:`RELATIVE_ERROR` of the radius. Of the first word 52 bits are used, so that
|normal| <= :data:`LARGEST`: a Gaussian goes farther once in 1e17 draws. What that costs in delta is
in docs/methods/draws.md, "Normals that end"."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from noisedesign.base.checks import Array

KEY_BYTES = 32
_WORDS_PER_BLOCK = 8
LARGEST = 8.5717  # no normal is larger: u >= 2^-53, and sqrt(2 * 53 * log 2) = 8.571674
RELATIVE_ERROR = 1.2e-15  # largest error against the exact transform, over the radius
MOST_SAMPLES = 2**35  # most samples of one key: the block counter of ChaCha20 has 32 bits
CHUNK = 1 << 15  # samples at a time: arrays of so many stay in a processor's cache, calls are few
_HALVES = 7  # arrays of half a chunk that it is made in
_ZEROS = memoryview(bytes(8 * (CHUNK + _WORDS_PER_BLOCK)))  # what the key stream is added to

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SQRT_HALF = np.uint64(0x3FE6A09E << 32)
_ONE, _MANTISSA, _TWO_52 = np.uint64(0x3FF << 52), np.uint64(2**52 - 1), np.uint64(0x433 << 52)
_LOG = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)
_SIN = (
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
    -1.66666666666666324348e-01,
)
_COS = (
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
)
_QUARTER_TURN = 1.5707963267948966
_SWAP, _NEGATE = np.uint64(1), np.uint64(2)


class _Work:
    """Arrays that a chunk of normals is made in: fresh ones cost more than ChaCha20 does."""

    def __init__(self) -> None:
        self.words = np.empty(CHUNK + _WORDS_PER_BLOCK, dtype="<u8")
        self.halves = np.empty((_HALVES, CHUNK // 2))


_IDLE: deque[_Work] = deque()  # as many as ever drew at once, in threads or within each other


class Normals:
    """The standard normals of one key: any slice of them, in any order."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key: expected {KEY_BYTES} bytes, got {len(key)}")
        self._key = key

    def words(self, start: int, count: int) -> NDArray[np.uint64]:
        """64-bit words ``start`` to ``start + count`` of the key stream, little-endian."""
        return key_stream(self._key, start, count)

    def fill(self, out: Array, *, start: int = 0) -> None:
        """Normals ``start`` to ``start + len(out)`` into ``out``, float64, contiguous."""
        if start < 0 or start + len(out) > MOST_SAMPLES:
            raise ValueError(f"start: expected slices of {MOST_SAMPLES} samples, got {start}")
        try:
            work = _IDLE.pop()
        except IndexError:
            work = _Work()
        first, end = start, start + len(out)
        while first < end:
            lead = first % 2
            part = out[first - start : first - start + CHUNK - lead]
            pairs = (lead + len(part) + 1) // 2
            words = self._words_into(work.words, first - lead, 2 * pairs)
            if len(words) == len(part):
                box_muller(words, out=part, work=work.halves)
            else:
                part[:] = box_muller(words, work=work.halves)[lead : lead + len(part)]
            first += len(part)
        _IDLE.append(work)

    def _words_into(self, kept: NDArray[np.uint64], start: int, count: int) -> NDArray[np.uint64]:
        """Draw at most a chunk of words into an array that is there."""
        encryptor, skipped = _cipher(self._key, start, nonce=0)
        stream = kept[: skipped + count]
        encryptor.update_into(_ZEROS[: stream.nbytes], stream.view(np.uint8))
        return stream[skipped:].astype(np.uint64, copy=False)


def key_stream(key: bytes, start: int, count: int, *, nonce: int = 0) -> NDArray[np.uint64]:
    """Return 64-bit words, little-endian, of ChaCha20 by a key and a nonce (RFC 8439)."""
    encryptor, skipped = _cipher(key, start, nonce=nonce)
    stream = encryptor.update(bytes(8 * (skipped + count)))
    return np.frombuffer(stream, dtype="<u8")[skipped:].astype(np.uint64, copy=False)


def _cipher(key: bytes, start: int, *, nonce: int) -> tuple[Any, int]:
    """ChaCha20 from the block of a word on, and how many words are before it there."""
    block, skipped = divmod(start, _WORDS_PER_BLOCK)
    place = block.to_bytes(4, "little") + nonce.to_bytes(12, "little")
    return Cipher(algorithms.ChaCha20(key, place), mode=None).encryptor(), skipped


def box_muller(
    words: NDArray[np.uint64], *, out: Array | None = None, work: Array | None = None
) -> Array:
    """One normal a word, of an even number of words; into ``out``, and by way of ``work``."""
    bits = words[1::2]
    found = np.empty(len(words)) if out is None else out
    work = np.empty((_HALVES, len(bits))) if work is None else work
    angle, square, along, across, radius, spare, other = work[:, : len(bits)]
    # Two bits choose the quarter; the others an angle within an eighth of a turn of its middle.
    _uniform(bits, angle)
    angle -= 0.5
    angle *= _QUARTER_TURN
    np.multiply(angle, angle, out=square)
    _sine(angle, square, across)
    _cosine(square, along, spare, other)
    _radius(_uniform(words[0::2], radius), angle, square, spare, other)
    along *= radius
    across *= radius
    first, second, sign = along.view(np.uint64), across.view(np.uint64), spare.view(np.uint64)
    np.bitwise_and(bits, _NEGATE, out=sign)
    sign <<= np.uint64(62)
    first ^= sign
    swapped = np.bitwise_and(bits, _SWAP, out=sign)
    np.negative(swapped, out=swapped)
    swapped &= np.bitwise_xor(first, second, out=other.view(np.uint64))
    normals = found.view(np.uint64).reshape(-1, 2)
    np.bitwise_xor(first, swapped, out=normals[:, 0])
    np.bitwise_xor(second, swapped, out=normals[:, 1])
    return found


def _uniform(words: NDArray[np.uint64], u: Array) -> Array:
    """(k + 1/2) / 2^52 of the 52 upper bits k of every word, into u: exact."""
    whole = u.view(np.uint64)
    np.right_shift(words, np.uint64(12), out=whole)
    whole |= _TWO_52
    u -= 2.0**52 - 0.5
    u *= 2.0**-52
    return u


def _radius(u: Array, power: Array, s: Array, r: Array, product: Array) -> None:
    """sqrt(-2 log u), which overwrites u, and all others."""
    # u = 2^power m, m from sqrt(1/2) to sqrt(2): the exponent moves where the mantissa passes it.
    whole = u.view(np.uint64)
    whole += _ONE - _SQRT_HALF
    np.right_shift(whole, np.uint64(52), out=product.view(np.uint64))
    power[:] = product.view(np.int64)
    power -= 1023.0
    whole &= _MANTISSA
    whole += _SQRT_HALF
    f = u
    f -= 1.0
    # log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))),  s = f / (2 + f)
    np.add(f, 2.0, out=s)
    np.divide(f, s, out=s)
    z = np.multiply(s, s, out=product)
    _horner(_LOG, z, r)
    r *= z
    halved = np.multiply(f, f, out=product)
    halved *= 0.5
    r += halved
    r *= s
    r += np.multiply(power, _LN2_LOW, out=s)
    halved -= r
    halved -= f
    power *= _LN2_HIGH
    halved -= power
    halved *= 2.0
    np.sqrt(halved, out=u)


def _horner(coefficients: tuple[float, ...], x: Array, total: Array) -> None:
    np.multiply(x, coefficients[0], out=total)
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= x
    total += coefficients[-1]


def _sine(x: Array, square: Array, total: Array) -> None:
    _horner(_SIN, square, total)
    total *= square
    total *= x
    total += x


def _cosine(square: Array, lead: Array, total: Array, half: Array) -> None:
    """The cosine, into lead, which overwrites all others."""
    _horner(_COS, square, total)
    total *= square
    total *= square
    np.multiply(square, 0.5, out=half)
    np.subtract(1.0, half, out=lead)
    lost = np.subtract(1.0, lead, out=square)
    lost -= half
    total += lost
    lead += total
