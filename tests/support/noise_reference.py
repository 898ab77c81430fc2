"""Noise of one node by plain Python: ChaCha20, HKDF, normals and filters from their definitions.

Nothing here uses numpy or the package. Python's floats are IEEE doubles and its operations on them
are exactly rounded, one at a time, as those of the package are.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import mpmath

WORD = 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & WORD


def _quarter_round(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for target, other, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[target] = (x[target] + x[other]) & WORD
        x[turned] = _rotated(x[turned] ^ x[target], by)


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, section 2.3."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    x = list(start)
    for _ in range(10):
        for at in range(4):
            _quarter_round(x, at, at + 4, at + 8, at + 12)
        for at in range(4):
            _quarter_round(x, at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4)
    return struct.pack("<16I", *((a + b) & WORD for a, b in zip(start, x, strict=True)))


def words(key: bytes, start: int, count: int) -> list[int]:
    """64-bit words of the key stream of a zero nonce, little-endian."""
    found: list[int] = []
    for block in range(start // 8, -(-(start + count) // 8)):
        found += struct.unpack("<8Q", chacha20_block(key, block, bytes(12)))
    return found[start % 8 : start % 8 + count]


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int = 32) -> bytes:
    """HKDF-SHA256, RFC 5869, section 2."""
    key = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    found = last = b""
    for count in range(1, -(-length // 32) + 1):
        last = hmac.new(key, last + info + bytes([count]), hashlib.sha256).digest()
        found += last
    return found[:length]


def step_key(secret: bytes, stream: str, step: int, *, digest: str) -> bytes:
    """The key of one stream and step."""
    info = f"noisedesign noise 1 noise {stream} {step}".encode()
    return hkdf(secret, salt=bytes.fromhex(digest), info=info)


def child(secret: bytes, name: str, *, digest: str) -> bytes:
    """What a dealer gives away."""
    info = f"noisedesign noise 1 child {name}".encode()
    return hkdf(secret, salt=bytes.fromhex(digest), info=info)


# --- normals ----------------------------------------------------------------------------------

# fdlibm's e_log.c, k_sin.c and k_cos.c, lowest order first, as their comments name them.
LG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
S = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
C = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")
SPLIT = float.fromhex("0x1.6a09ep+0")
"""sqrt(2) to 20 bits: where the mantissa of a logarithm changes sides."""


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _minus_log(u: float) -> float:
    """log(1 + f) = f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f), with k log 2 in two parts."""
    mantissa, power = math.frexp(u)
    mantissa, power = mantissa * 2, power - 1
    if mantissa >= SPLIT:
        mantissa, power = mantissa / 2, power + 1
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    half = f * f * 0.5
    inner = s * (half + z * _polynomial(LG, z)) + power * LN2_LOW
    return ((half - inner) - f) - power * LN2_HIGH


def _uniform(word: int) -> float:
    return ((word >> 12) * 2 + 1) * 2.0**-53


def pair(first: int, second: int) -> tuple[float, float]:
    """Box and Muller of two words, one operation at a time."""
    radius = math.sqrt(2.0 * _minus_log(_uniform(first)))
    angle = (_uniform(second) - 0.5) * (math.pi / 2)
    square = angle * angle
    sine = _polynomial(S, square) * square * angle + angle
    half = 0.5 * square
    lead = 1.0 - half
    cosine = lead + (square * (square * _polynomial(C, square)) + ((1.0 - lead) - half))
    along, across = cosine * radius, sine * radius
    if second & 2:
        along = -along
    return (across, along) if second & 1 else (along, across)


def normals(key: bytes, start: int, count: int) -> list[float]:
    """Samples ``start`` to ``start + count`` of a key."""
    lead = start % 2
    drawn = iter(words(key, start - lead, (lead + count + 1) // 2 * 2))
    found = [x for first, second in zip(drawn, drawn, strict=True) for x in pair(first, second)]
    return found[lead : lead + count]


def exact_pair(first: int, second: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """The same in real numbers, and the radius."""
    with mpmath.workdps(40):
        half = mpmath.mpf(1) / 2
        u = ((first >> 12) + half) / 2**52
        radius = mpmath.sqrt(-2 * mpmath.log(u))
        angle = (((second >> 12) + half) / 2**52 - half) * mpmath.pi / 2
        along, across = radius * mpmath.cos(angle), radius * mpmath.sin(angle)
        along = -along if second & 2 else along
        return (*((across, along) if second & 1 else (along, across)), radius)


def exact_normals(key: bytes, count: int) -> Iterator[tuple[mpmath.mpf, mpmath.mpf]]:
    """Every sample from the first on in real numbers, and its radius."""
    drawn = iter(words(key, 0, count + count % 2))
    for first, second in zip(drawn, drawn, strict=True):
        one, other, radius = exact_pair(first, second)
        yield one, radius
        yield other, radius


# --- filters ----------------------------------------------------------------------------------


def single(x: float) -> float:
    """Rounded to float32."""
    found: float = struct.unpack("<f", struct.pack("<f", x))[0]
    return found


def same(x: float) -> float:
    """Not rounded."""
    return x


def white(plan: Any, secrets: Mapping[str, bytes], step: int, at: int) -> float:
    """What goes into a plan's filter at one step, of one number of the model."""
    total = None
    for stream in plan.streams:
        key = step_key(secrets[stream.name], stream.name, step, digest=plan.digest)
        part = normals(key, at, 1)[0] * stream.coefficient
        total = part if total is None else total + part
    assert total is not None
    return total


def noise(plan: Any, secrets: Mapping[str, bytes], at: int, rounded: Any = same) -> list[float]:
    """Noise of every step, of one number of the model, one operation at a time."""
    arrays = {name: array.tolist() for name, array in plan.filter.arrays().items()}
    if plan.couplings is not None:
        return [rounded(x) for x in _coupled(plan, secrets, at)]
    w = [white(plan, secrets, s, at) for s in range(plan.horizon)]
    steps = _FILTERS[plan.filter.kind](w, rounded, **arrays)
    return [rounded(x) for x in steps]


def _coupled(plan: Any, secrets: Mapping[str, bytes], at: int) -> Iterator[float]:
    for t in range(plan.horizon):
        total = 0.0
        for s in range(t + 1):
            for stream, coupling in zip(plan.streams, plan.couplings[t, s].tolist(), strict=True):
                if coupling:
                    key = step_key(secrets[stream.name], stream.name, s, digest=plan.digest)
                    total += normals(key, at, 1)[0] * (coupling * stream.coefficient)
        yield total


def _fresh(w: list[float], _: Any) -> list[float]:
    return w


def _dense(w: list[float], _: Any, noising_matrix: list[list[float]]) -> list[float]:
    found = []
    for row in noising_matrix:
        total = w[0] * row[0]
        for s in range(1, len(found) + 1):
            if row[s]:
                total += w[s] * row[s]
        found.append(total)
    return found


def _banded(w: list[float], rounded: Any, strategy_bands: list[list[float]]) -> list[float]:
    found: list[float] = []
    for t, draw in enumerate(w):
        for i in range(1, min(t + 1, len(strategy_bands))):
            draw -= found[t - i] * strategy_bands[i][t - i]
        found.append(rounded(draw / strategy_bands[0][t]))
    return found


def _toeplitz(w: list[float], rounded: Any, strategy_coefficients: list[float]) -> list[float]:
    return _banded(w, rounded, [[c] * len(w) for c in strategy_coefficients])


def _moving(w: list[float], rounded: Any, noising_coefficients: list[float]) -> list[float]:
    kept, found = [rounded(draw) for draw in w], []
    for t in range(len(w)):
        total = kept[t] * noising_coefficients[0]
        for i in range(1, min(t + 1, len(noising_coefficients))):
            total += kept[t - i] * noising_coefficients[i]
        found.append(total)
    return found


def _buffered(
    w: list[float],
    rounded: Any,
    buffer_scales: list[float],
    buffer_decays: list[float],
    strategy_diagonal: list[float],
) -> list[float]:
    buffers, found = [0.0] * len(buffer_scales), []
    for draw in w:
        for scale, buffer in zip(buffer_scales, buffers, strict=True):
            draw -= buffer * scale
        pairs = zip(buffer_decays, buffers, strict=True)
        buffers = [rounded(buffer * decay + draw) for decay, buffer in pairs]
        found.append(draw / strategy_diagonal[0])
    return found


def _signed(
    w: list[float],
    rounded: Any,
    buffer_scales: list[float],
    buffer_decays: list[float],
    strategy_diagonal: list[float],
    buffer_turns: list[float],
) -> list[float]:
    buffers, found = [0.0] * len(buffer_scales), []
    for draw in w:
        for scale, buffer in zip(buffer_scales, buffers, strict=True):
            draw -= buffer * scale
        before = list(buffers)
        for i, (decay, turn) in enumerate(zip(buffer_decays, buffer_turns, strict=True)):
            if turn > 0:
                buffers[i] = rounded((before[i] * decay - before[i + 1] * turn) + draw)
            elif turn < 0:
                buffers[i] = rounded((before[i - 1] * -turn + before[i] * decay) + draw)
            else:
                buffers[i] = rounded(before[i] * decay + draw)
        found.append(draw / strategy_diagonal[0])
    return found


_FILTERS: dict[str, Any] = {
    "fresh": _fresh,
    "dense": _dense,
    "banded": _banded,
    "toeplitz": _toeplitz,
    "banded-inverse": _moving,
    "blt": _buffered,
    "signed-blt": _signed,
}
