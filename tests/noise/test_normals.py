"""Normals from ChaCha20: the words of RFC 8439, and bits that plain Python finds as well."""

from __future__ import annotations

import math
import tracemalloc

import mpmath
import numpy as np
import pytest
import scipy.stats

from noisedesign.noise import normals
from noisedesign.noise.normals import (
    CHUNK,
    LARGEST,
    MOST_SAMPLES,
    RELATIVE_ERROR,
    Normals,
    box_muller,
)
from tests.support import noise_reference as reference

KEY = bytes(range(32))

KEY_STREAMS = [
    (
        bytes(32),
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        bytes(32),
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        bytes(31) + b"\1",
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        b"\0\xff" + bytes(30),
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
]
"""RFC 8439, appendix A.1, vectors 1 to 4: key, block and key stream of a zero nonce."""

FIRST = (
    "-0x1.bfb44776f2107p-2",
    "0x1.40cf790b141a5p+0",
    "-0x1.5557fb8bf5498p-1",
    "0x1.3147da8544238p-4",
)
"""The first normals of KEY, from tests.support.noise_reference."""

# Upper 52 bits at both ends, in the middle, where the logarithm changes sides, and beside them.
EDGES = [
    bits << 12 | low
    for middle in (0, 2**51, round(2**52 / math.sqrt(2)), round(2**51 / math.sqrt(2)), 2**52 - 1)
    for bits in range(max(middle - 2, 0), min(middle + 3, 2**52))
    for low in (0, 1, 2, 3, 4095)
]


def drawn(key: bytes, start: int, count: int) -> np.ndarray:
    out = np.full(count, np.nan)
    Normals(key).fill(out, start=start)
    return out


@pytest.mark.parametrize(("key", "block", "stream"), KEY_STREAMS)
def test_words_are_those_of_the_standard(key: bytes, block: int, stream: str) -> None:
    assert Normals(key).words(8 * block, 8).astype("<u8").tobytes().hex() == stream
    assert reference.chacha20_block(key, block, bytes(12)).hex() == stream


def test_the_reference_is_the_example_of_the_standard() -> None:
    """RFC 8439, section 2.3.2, which has a nonce."""
    found = reference.chacha20_block(KEY, 1, bytes.fromhex("000000090000004a00000000")).hex()
    assert found.startswith("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e")


@pytest.mark.parametrize("start", [0, 1, 7, 8, 8 * 2**31 - 3, MOST_SAMPLES - 20])
def test_any_words(start: int) -> None:
    assert Normals(KEY).words(start, 20).tolist() == reference.words(KEY, start, 20)


def test_the_first_normals_bit_for_bit() -> None:
    assert [x.hex() for x in drawn(KEY, 0, 4).tolist()] == list(FIRST)


@pytest.mark.parametrize("start", [0, 1, CHUNK - 3, 2**33 + 5, MOST_SAMPLES - 3001])
def test_bits_are_those_of_plain_python(start: int) -> None:
    assert drawn(KEY, start, 3001).tolist() == reference.normals(KEY, start, 3001)


def test_bits_and_errors_of_extreme_words() -> None:
    """Against plain Python, and against 40 digits: the error is stated over the radius."""
    both = [w for a in EDGES for b in EDGES[:: len(EDGES) // 12] for w in (a, b)]
    words = np.array(both + both[::-1], dtype=np.uint64)
    found = box_muller(words).reshape(-1, 2).tolist()
    worst = 0.0
    for first, second, pair in zip(*words.reshape(-1, 2).T.tolist(), found, strict=True):
        assert tuple(pair) == reference.pair(first, second)
        one, other, radius = reference.exact_pair(first, second)
        worst = max(
            worst, *(abs((a - b) / radius) for a, b in zip(pair, (one, other), strict=True))
        )
    assert worst <= RELATIVE_ERROR


def test_errors_of_drawn_words() -> None:
    exact = reference.exact_normals(KEY, 6000)
    found = drawn(KEY, 0, 6000).tolist()
    assert all(abs((x - y) / r) <= RELATIVE_ERROR for x, (y, r) in zip(found, exact, strict=True))


def test_the_largest_normal() -> None:
    """The least u is 2^-53; the cosine of its angle may be 1."""
    words = np.array([0, 2**63], dtype=np.uint64)
    largest = float(np.abs(box_muller(words)).max())
    bound = mpmath.sqrt(2 * 53 * mpmath.log(2))
    assert largest == pytest.approx(float(bound), rel=1e-15)
    assert bound < LARGEST < bound * (1 + 1e-5)


@pytest.mark.parametrize("shift", [0.001, 0.1, 0.5, 2.0])
def test_what_the_largest_radius_hides_less(shift: float) -> None:
    """A pair of normals within a disc, moved by less than its radius, leaves the disc where it was
    with at most R / pi 2^-53 m e^(R m): by integrating the density over what sticks out."""
    with mpmath.workdps(30):
        radius = mpmath.sqrt(2 * 53 * mpmath.log(2))
        m = mpmath.mpf(shift)

        def sticks_out(angle: mpmath.mpf) -> mpmath.mpf:
            edge = mpmath.sqrt(radius**2 - (m * mpmath.sin(angle)) ** 2) - m * mpmath.cos(angle)
            return mpmath.exp(-(edge**2) / 2) - mpmath.mpf(2) ** -53 if edge < radius else m * 0

        ends = mpmath.linspace(-mpmath.pi, mpmath.pi, 9)
        found = mpmath.quad(sticks_out, ends) / (2 * mpmath.pi)
        bound = 3.05e-16 * m * mpmath.exp(radius * m)
        assert 0 < found < bound
        assert shift > 0.01 or found > 0.9 * bound


@pytest.mark.parametrize("dull", [0, 1, 2, 3])
def test_every_quarter_of_the_turn(dull: int) -> None:
    """The lowest two bits turn the same pair by quarters and mirror it."""
    words = np.array([123 << 40, (45 << 50) + dull], dtype=np.uint64)
    first, second = box_muller(words).tolist()
    plain = np.array([123 << 40, 45 << 50], dtype=np.uint64)
    along, across = box_muller(plain).tolist()
    along = -along if dull & 2 else along
    assert (first, second) == ((across, along) if dull & 1 else (along, across))


def test_slices_in_any_order_have_the_same_bits() -> None:
    whole = drawn(KEY, 0, 3 * CHUNK + 17)
    rng = np.random.default_rng(1)
    for _ in range(40):
        start = int(rng.integers(0, len(whole)))
        count = int(rng.integers(0, len(whole) - start + 1))
        np.testing.assert_array_equal(drawn(KEY, start, count), whole[start : start + count])


def test_draws_within_draws_have_arrays_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another thread, or in the handler of a signal."""
    whole, real = drawn(KEY, 0, CHUNK + 5), normals.box_muller

    def interrupted(words: np.ndarray, **where: np.ndarray) -> np.ndarray:
        with monkeypatch.context() as once:
            once.setattr(normals, "box_muller", real)
            drawn(bytes(reversed(KEY)), 7, CHUNK)
        return real(words, **where)

    monkeypatch.setattr(normals, "box_muller", interrupted)
    np.testing.assert_array_equal(drawn(KEY, 0, CHUNK + 5), whole)


def test_a_chunk_takes_no_fresh_arrays() -> None:
    out = np.empty(3 * CHUNK)
    Normals(KEY).fill(out)
    tracemalloc.start()
    try:
        Normals(KEY).fill(out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000  # bytes


def test_the_distribution_is_normal() -> None:
    """Of a fixed key: moments within 5 standard deviations, and the distance of Kolmogorov."""
    count = 400_000
    x = drawn(bytes(reversed(KEY)), 0, count)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 5 * math.sqrt(variance / count)
    assert abs((x[::2] * x[1::2]).mean()) < 5 / math.sqrt(count / 2)
    assert abs((x[:-1] * x[1:]).mean()) < 5 / math.sqrt(count)
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-6


@pytest.mark.parametrize("start", [-1, MOST_SAMPLES - 1])
def test_samples_that_a_key_has_not(start: int) -> None:
    with pytest.raises(ValueError, match="start: expected"):
        drawn(KEY, start, 2)


def test_keys_of_another_size() -> None:
    with pytest.raises(ValueError, match="expected 32 bytes, got 31"):
        Normals(bytes(31))
