"""What noise hides, as numbers that add up over parts: against integers of Python, word by word."""

from __future__ import annotations

import itertools
import math
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from noisedesign.base.checks import InputError
from noisedesign.noise import noise
from noisedesign.noise.hidden import HashKeys, Hidden, hidden
from tests.support import noise_plans
from tests.support.noise_plans import SECRET

KEYS = HashKeys(bytes(range(32)), bytes(range(7, 39)))
SIZE = 20_000
"""More than the numbers that are hashed at a time."""


def words(key: bytes, count: int) -> tuple[int, ...]:
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return struct.unpack(f"<{count}Q", cipher.update(bytes(8 * count)))


def by_hand(arrays: list[np.ndarray]) -> tuple[int, int]:
    place, first, second = 0, 0, 0
    for array in arrays:
        raw = array.reshape(-1).tobytes()
        halves = struct.unpack(f"<{len(raw) // 4}I", raw)
        each = array.dtype.itemsize // 4
        key = words(KEYS[each - 1], each * (place + array.size))[each * place :]
        for word, bits in zip(key, halves, strict=True):
            first += (word % 2**32) * bits
            second += (word >> 32) * bits
        place += array.size
    return first % 2**64, second % 2**64


def some() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.standard_normal((3, 5)).astype(np.float32),
        rng.standard_normal(SIZE),
        rng.integers(-(2**62), 2**62, size=7),
        rng.standard_normal(SIZE).astype(np.float32),
        np.zeros(0),
    ]


def test_sums_of_words_by_hand() -> None:
    found = hidden(some(), keys=KEYS)
    assert (found.first, found.second) == by_hand(some())
    assert (found.narrow, found.wide, found.dimension) == (SIZE + 15, SIZE + 7, 2 * SIZE + 22)


@pytest.mark.parametrize("cuts", [[1], [3, 4, 16_384], [SIZE - 1]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_add_up_in_any_order(dtype: type, cuts: list[int]) -> None:
    whole = np.random.default_rng(1).standard_normal(SIZE).astype(dtype)
    places = [0, *cuts, SIZE]
    parts = [hidden([whole[a:b]], keys=KEYS, start=a) for a, b in itertools.pairwise(places)]
    total = sum(reversed(parts), Hidden())
    found = hidden([whole], keys=KEYS)
    assert (total.first, total.second, total.narrow, total.wide) == (
        found.first,
        found.second,
        found.narrow,
        found.wide,
    )
    assert total.norm == pytest.approx(math.fsum(float(x) ** 2 for x in whole) ** 0.5, rel=1e-12)
    assert found.norm == pytest.approx(total.norm, rel=1e-12)


def test_what_differs_in_a_bit_a_place_or_a_precision_has_another_hash() -> None:
    plain = np.full(6, 0.5)
    swapped = np.array([0.5, 0.25, 0.5])
    found = {
        hidden(arrays, keys=keys, start=start).digest(b"k" * 32)
        for arrays, keys, start in (
            ([plain], KEYS, 0),
            ([plain], KEYS, 1),
            ([plain], HashKeys(KEYS.wide, KEYS.narrow), 0),
            ([np.nextafter(plain, 1)], KEYS, 0),
            ([plain.astype(np.float32)], KEYS, 0),
            ([-plain], KEYS, 0),
            ([plain[:5]], KEYS, 0),
            ([np.zeros(6)], KEYS, 0),
            ([np.zeros(7)], KEYS, 0),
            ([np.zeros(6, dtype=np.float32)], KEYS, 0),
            ([-np.zeros(6)], KEYS, 0),
            ([swapped], KEYS, 0),
            ([np.roll(swapped, 1)], KEYS, 0),
        )
    }
    assert len(found) == 13
    sums = hidden([plain], keys=KEYS)
    assert sums.digest(b"k" * 32) != sums.digest(b"l" * 32)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e200])
def test_norms_of_any_size(scale: float) -> None:
    array = np.array([3.0, 4.0]) * scale
    assert hidden([array], keys=KEYS).norm == pytest.approx(5 * scale, rel=1e-9)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_norm_says_that_a_number_is_not_finite(wrong: float) -> None:
    array = np.ones(40_000, dtype=np.float32)
    array[39_999] = wrong
    assert not math.isfinite(hidden([array], keys=KEYS).norm)
    source = noise(noise_plans.plans()["banded"], secret=SECRET, record=False)
    with pytest.raises(InputError, match=r"parameters\[1\]: expected finite numbers"):
        source.add_([np.zeros(2), array], 0)
    with pytest.raises(InputError, match="parameters: expected sums of finite numbers"):
        source.hide(0, hidden([array], keys=source.hash_keys))


def test_shards_are_hidden_and_noised_as_the_whole() -> None:
    """Two halves by hand, as on two ranks, and the whole by ``add_``."""
    plan, size = noise_plans.plans()["banded"], 70_000
    whole = noise(plan, secret=SECRET, record=False)
    parts = noise(plan, secret=SECRET, record=False)
    keys, cut = parts.hash_keys, 33_333
    for t in range(3):
        sums = np.full(size, 2.0**-16 * (t + 1), dtype=np.float32)
        halves = [sums[:cut].copy(), sums[cut:].copy()]
        said = hidden([halves[1]], keys=keys, start=cut) + hidden([halves[0]], keys=keys)
        parts.hide(t, said)
        for half, start in zip(halves, (0, cut), strict=True):
            half += parts.step(t, half.shape, dtype=np.float32, start=start)
        whole.add_([sums], t)
        np.testing.assert_array_equal(np.concatenate(halves), sums)
        assert parts._hidden[t] == whole._hidden[t]
    assert parts.next_step == whole.next_step == 3
    with pytest.raises(InputError, match="other data at step 2"):
        parts.hide(2, hidden([np.zeros(size, dtype=np.float32)], keys=keys))


def test_a_model_is_as_large_as_its_hash_has_words_for() -> None:
    """2^32 blocks of 8 words: a number of 64 bits takes two."""
    keys = noise(noise_plans.plans()["banded"], secret=SECRET, record=False).hash_keys
    assert hidden([np.ones(1)], keys=keys, start=2**34 - 1).wide == 1
    for array, start in ((np.ones(1), 2**34), (np.ones(2, dtype=np.float32), 2**35 - 1)):
        with pytest.raises(InputError, match="parameters: expected at most .* numbers a step"):
            hidden([array], keys=keys, start=start)
    source = noise(noise_plans.plans()["banded"], secret=SECRET, record=False)
    with pytest.raises(InputError, match=f"parameters: expected at most {2**34} numbers"):
        source.hide(0, Hidden(narrow=2**34, wide=1))
