"""Discrete Gaussians: their law by enumeration, by moments and by counting, and bits from a second
implementation."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from noisedesign.base.checks import InputError
from noisedesign.noise import discrete_gaussian as module
from noisedesign.noise.discrete_gaussian import CHUNK, DiscreteGaussian, exp_bounds
from noisedesign.noise.normals import key_stream
from tests.support import scalar_discrete_gaussian as scalar

KEY = bytes(range(32))
TINY, QUARTER, ONE, ODD = Fraction(1, 2**40), Fraction(1, 4), Fraction(1), Fraction(9, 2)
WIDE, HUGE = Fraction(2**40), Fraction(2**80)
STATED = [TINY, QUARTER, ONE, ODD, Fraction(10**6), Fraction(2**33 + 1, 3), WIDE, HUGE]


def drawn(variance: Fraction, count: int, *, key: bytes = KEY) -> np.ndarray:
    out = np.empty(count, dtype=np.int64)
    DiscreteGaussian(variance).fill(key, out)
    return out


# --- bits -----------------------------------------------------------------------------------------


def test_nonces_are_streams_of_their_own() -> None:
    """Section 2.3.2 of RFC 8439 has key and nonce, and a counter of 1."""
    nonce = int.from_bytes(bytes.fromhex("000000090000004a00000000"), "little")
    block = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    assert key_stream(KEY, 8, 4, nonce=nonce).tobytes().hex() == block
    assert key_stream(KEY, 9, 2, nonce=nonce).tobytes().hex() == block[16:48]


@pytest.mark.parametrize(
    ("variance", "number", "far"),
    [
        (QUARTER, 3, False),
        (HUGE, 3, False),
        (ONE, 7, True),
        (ODD, 3, True),
        pytest.param(Fraction(1000), 21, True, marks=pytest.mark.slow),
        pytest.param(Fraction(10**6), 3, False, marks=pytest.mark.slow),
    ],
)
def test_bits_are_those_of_a_second_implementation(
    variance: Fraction, number: int, far: bool
) -> None:
    """Of chunks without and with a draw from the tail, which takes words of another stream."""
    reference = scalar.Reference(variance, count=CHUNK)
    drawn = DiscreteGaussian(variance).chunk(KEY, number).tolist()
    assert drawn == reference.chunk(KEY, number)
    assert (max(map(abs, drawn)) >= reference.end) == far


@pytest.mark.parametrize("variance", [QUARTER, ONE, ODD, Fraction(10**6), HUGE])
def test_the_largest_uniforms_are_decided_as_in_a_second_implementation(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First words of every outcome, second words whose U is the largest there are, or nearly."""
    source, reference = DiscreteGaussian(variance), scalar.Reference(variance, count=1)
    columns = range(0, reference.columns, max(1, reference.columns // 64))
    firsts = [column * (2**64 // reference.columns) for column in columns]
    seconds = [sign << 63 | 2**32 - left for left in (1, 2, 3, 4) for sign in (0, 1)]
    words = [(first, second) for first in firsts for second in seconds]
    both = np.array([*(a for a, _ in words), *(b for _, b in words)], dtype=np.uint64)
    monkeypatch.setattr(module, "key_stream", lambda *_, **__: both.copy())
    ones = itertools.repeat(2**64 - 2)
    values, kept = source._attempts(KEY, 0, 0, len(words), ones)
    found = [int(x) if taken else None for x, taken in zip(values, kept, strict=True)]
    assert found == [reference.attempt(a, b, ones) for a, b in words]


@pytest.mark.parametrize(
    ("variance", "first"),
    [
        (QUARTER, [-1, -1, 0, 0]),
        (ODD, [-3, -3, -2, -1]),
        (WIDE, [-2020744, -1716616, -1279132, -418601]),
    ],
)
def test_known_answers(variance: Fraction, first: list[int]) -> None:
    """Of the second implementation, for key 00 01 ... 1f and chunk 3."""
    assert DiscreteGaussian(variance).chunk(KEY, 3)[:4].tolist() == first


def test_any_part_is_the_part_of_the_whole() -> None:
    whole = drawn(ODD, 3 * CHUNK)
    source = DiscreteGaussian(ODD)
    for start, count in ((0, 1), (CHUNK - 1, 2), (2 * CHUNK, CHUNK), (17, 2 * CHUNK), (5, 0)):
        part = np.empty(count, dtype=np.int64)
        source.fill(KEY, part, start=start)
        assert (part == whole[start : start + count]).all()
    assert (source.chunk(KEY, 2) == whole[2 * CHUNK :]).all()


def test_chunks_and_keys_have_their_own_draws() -> None:
    source = DiscreteGaussian(WIDE)
    chunks = [source.chunk(KEY, 0), source.chunk(KEY, 1), source.chunk(bytes(31) + b"\1", 0)]
    for i, a in enumerate(chunks):
        for b in chunks[:i]:
            assert (a == b).mean() < 1e-3
            assert abs(np.corrcoef(a, b)[0, 1]) < 7 / np.sqrt(CHUNK)


# --- no float -------------------------------------------------------------------------------------


def test_the_module_has_no_float() -> None:
    """No float or complex number, no true division, no function that makes one of integers, and
    of numpy only what keeps integers."""
    tree = ast.parse(inspect.getsource(module))
    of_numpy, imported = set(), set()
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div)
        if isinstance(node, ast.Constant):
            assert not isinstance(node.value, (float, complex))
        if isinstance(node, ast.Name):
            assert node.id not in ("float", "complex", "round", "math", "pow")
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "np":
            of_numpy.add(node.attr)
        if isinstance(node, ast.ImportFrom):
            imported |= {(node.module, name.name) for name in node.names}
        if isinstance(node, ast.Import):
            imported |= {(None, name.name) for name in node.names}
    assert of_numpy <= {"array", "bool_", "copyto", "empty", "flatnonzero", "int64", "uint64"}
    assert {name for place, name in imported if place == "math"} == {"isqrt"}
    assert {name for place, name in imported if place is None} == {"numpy"}


def test_no_array_of_floats_comes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array the sampler makes of its words has integers or truth values: the words are of a
    type that refuses anything else."""

    class Whole(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            out = kwargs.pop("out", ())
            plain = [x.view(np.ndarray) if isinstance(x, Whole) else x for x in inputs]
            into = tuple(x.view(np.ndarray) if isinstance(x, Whole) else x for x in out)
            kwargs |= {"out": into} if out else {}
            found = np.asarray(getattr(ufunc, method)(*plain, **kwargs))
            assert found.dtype.kind in "iub", (ufunc, found.dtype)
            seen.add(ufunc.__name__)
            return out[0] if out else found.view(Whole)

    def words(*args: Any, **kwargs: Any) -> Any:
        return key_stream(*args, **kwargs).view(Whole)

    seen: set[str] = set()
    expected = DiscreteGaussian(WIDE).chunk(KEY, 0)
    monkeypatch.setattr(module, "key_stream", words)
    assert (np.asarray(DiscreteGaussian(WIDE).chunk(KEY, 0)) == expected).all()
    assert {"right_shift", "bitwise_and", "less"} <= seen


# --- exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "d"), [(0, 1), (1, 10**30), (1, 3), (1, 2), (7, 2), (355, 113), (1000, 1), (10**9, 7)]
)
def test_bounds_of_the_exponential(n: int, d: int) -> None:
    for bits in (32, 64, 192):
        low, high = exp_bounds(n, d, bits)
        with mpmath.workdps(120):
            exact = mpmath.exp(-mpmath.mpf(n) / d) * mpmath.mpf(2) ** bits
            assert low <= exact <= high
        assert high - low <= 3


@pytest.mark.parametrize("variance", STATED)
def test_weights_of_the_alias_table_are_exact(variance: Fraction) -> None:
    """Over all 2^64 first words, outcomes come as often as their weights say; no weight is too
    small for the acceptance to be a probability."""
    table = DiscreteGaussian(variance)._table
    room, outcomes = 2**64 >> table.column_bits, table.buckets + 2
    times = [0] * (1 << table.column_bits)
    for i, (own, other) in enumerate(zip(table.thresholds, table.aliases, strict=True)):
        times[i] += int(own)
        times[int(other)] += room - int(own)
    weights = [*table.weights, 2**64 - sum(table.weights)]
    assert times == weights + [0] * (len(times) - outcomes)
    assert all(weight > 0 for weight in weights)
    end = table.buckets << table.width_bits
    with mpmath.workdps(scalar.DIGITS):
        for k in range(table.buckets):
            accepted = table.scale * scalar.density(k << table.width_bits, variance) / weights[k]
            assert 1 - mpmath.mpf(2) ** -33 <= accepted <= 1
        for far in range(5):
            x = end + (far << table.tail_bits)
            share = mpmath.mpf(2) ** (far + 1 + table.tail_bits - table.width_bits)
            assert table.scale * scalar.density(x, variance) * share <= weights[-2]


@pytest.mark.parametrize("variance", [Fraction(10**6), Fraction(2**33 + 1, 3), WIDE, HUGE])
def test_what_is_accepted_at_once_is_accepted_rightly(variance: Fraction) -> None:
    """The number of U that whole arrays accept, against the acceptance probability: never more,
    and short of it by the y^2 / 2 that 1 - y is below exp(-y), y up to 4.5 w / sigma, and by w^2 /
    8 sigma^2 for a line above a parabola."""
    table = DiscreteGaussian(variance)._table
    width = 1 << table.width_bits
    with mpmath.workdps(scalar.DIGITS):
        for k in (*range(0, table.buckets, 97), table.buckets - 1):
            for r in (0, 1, width // 3, width - 1):
                at_once = 2**32 - 2 - (int(table.slopes[k]) * r >> 30)
                limit = table.scale * scalar.density(k * width + r, variance) / table.weights[k]
                assert at_once <= limit * 2**32
                short = 11 * mpmath.mpf(width**2) / math.floor(variance) + mpmath.mpf(2) ** -30
                assert at_once >= limit * 2**32 * (1 - short)


@pytest.mark.parametrize("variance", [QUARTER, ONE, ODD])
def test_every_integer_has_its_probability(variance: Fraction) -> None:
    """By enumeration of all buckets, signs and first 32 bits of U, of which one in each bucket is
    left to the bits after it. What attempts end with is proportional to exp(-x^2 / 2 sigma^2)."""
    source = DiscreteGaussian(variance)
    table = source._table
    shares: dict[int, Fraction] = {}
    for k in range(table.buckets):
        accepted = Fraction(_accepted(source, k), 2**32)
        for x in {k, -k}:  # one of the two signs alone ends with zero
            shares[x] = Fraction(table.weights[k], 2**64) * accepted / 2
    together = sum(shares.values())
    with mpmath.workdps(60):
        inside = mpmath.fsum(scalar.density(x, variance) for x in shares)
        for x, share in shares.items():
            found = share / together
            found = mpmath.mpf(found.numerator) / found.denominator
            assert abs(found * inside / scalar.density(x, variance) - 1) < mpmath.mpf(2) ** -31


def _accepted(source: DiscreteGaussian, bucket: int) -> int:
    """How many of the 2^32 first bits of U are accepted whatever the bits after them: by bisection,
    since acceptance is monotone in U."""
    low, high = 0, 2**32
    while low < high:
        middle = (low + high) // 2
        kept = source._decide(bucket, bucket, middle, iter([2**64 - 1] * 4)) is not None
        low, high = (middle + 1, high) if kept else (low, middle)
    return low


def test_undecided_bits_are_decided_by_more_of_them() -> None:
    """U against exp(-1): the words in between are those of the binary expansion of 1/e."""
    with mpmath.workdps(100):
        expansion = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 224))
    lead, rest = expansion >> 192, [(expansion >> s) & (2**64 - 1) for s in (128, 64, 0)]
    exponent, factor = (1, 1), (1, 1)

    def below(words: list[int]) -> bool:
        given = iter([*words, 0])
        found = module._is_below(lead, given, factor=factor, exponent=exponent)
        assert len(list(given)) == 1  # no more words than it takes
        return found

    for count in (1, 2, 3):
        *same, last = rest[:count]
        assert below([*same, last - 1])
        assert not below([*same, last + 1])


def test_the_tail_is_that_of_the_law() -> None:
    """Beyond the buckets, where one draw in 1e5 goes: attempts made to go there all end as the law
    says, and no magnitude there is left out."""
    source = DiscreteGaussian(ODD)
    table = source._table
    end, found = table.buckets, []
    words = iter(key_stream(KEY, 0, 400_000).tolist())
    spare = iter(key_stream(KEY, 0, 900_000, nonce=1).tolist())
    for _ in range(60_000):
        magnitude = source._decide(end, end, next(words), spare)
        found += [] if magnitude is None else [magnitude]
    with mpmath.workdps(30):
        weights = [float(scalar.density(x, ODD)) for x in range(end, end + 40)]
    _fits(np.array(found) - end, np.array(weights) / sum(weights))
    chance = sum(weights) * table.scale * 2 ** (1 - table.width_bits) / table.weights[end] / 2
    assert abs(len(found) / 60_000 - chance) < 6 * np.sqrt(chance / 60_000)


@pytest.mark.parametrize("ones", [0, 1, 5, 62, 63, 64, 65, 127, 128, 200])
def test_how_far_out_is_the_number_of_ones_before_a_zero(ones: int) -> None:
    """Of words written down bit by bit; those after the zero do not matter, nor are they taken."""
    for rest in ("0", "1"):
        bits = ("1" * ones + "0").ljust(64 * (ones // 64 + 1), rest)
        words = [int(bits[at : at + 64], 2) for at in range(0, len(bits), 64)]
        given = iter([*words, 7])
        assert module._leading_ones(given) == ones
        assert list(given) == [7]


# --- the law, by counting -------------------------------------------------------------------------


def _fits(found: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square of counts of 0, 1, ..., rare ones together; one in 1e7 fails."""
    count = len(found)
    expected = count * probabilities
    common = expected > 10
    observed = np.bincount(found, minlength=len(expected))[: len(expected)].astype(float)
    rest = count - expected[common].sum()
    cells = np.append(observed[common], count - observed[common].sum())
    wanted = np.append(expected[common], rest)
    if rest < 10:
        cells[-2:-1] += cells[-1]
        wanted[-2:-1] += wanted[-1]
        cells, wanted = cells[:-1], wanted[:-1]
    statistic = float((np.square(cells - wanted) / wanted).sum())
    assert stats.chi2.sf(statistic, len(cells) - 1) > 1e-7


def _probabilities(variance: Fraction, reach: int) -> np.ndarray:
    """Of -reach to reach."""
    norm = scalar.total(variance)
    return np.array([float(scalar.density(x, variance) / norm) for x in range(-reach, reach + 1)])


def check_law(variance: Fraction, count: int) -> None:
    deviation = float(variance) ** 0.5
    reach = int(12 * deviation) + 3
    found = drawn(variance, count)
    assert np.abs(found).max() <= reach
    if deviation < 200:
        _fits(found + reach, _probabilities(variance, reach))
        return
    # Wide ones by cells of their distribution function, and by the lowest bits.
    edges = np.floor(deviation * np.linspace(-4.5, 4.5, 400)) + 0.5
    inner = np.diff(stats.norm.cdf(edges / deviation))  # exact to exp(-2 pi^2 sigma^2)
    first, last = stats.norm.cdf(edges[0] / deviation), stats.norm.sf(edges[-1] / deviation)
    _fits(np.searchsorted(edges, found), np.array([first, *inner, last]))
    _fits(found & 255, np.full(256, 1 / 256))


@pytest.mark.parametrize(
    "variance", [QUARTER, ONE, ODD, Fraction(10**4), Fraction(10**7), WIDE, Fraction(2**60)]
)
def test_a_million_draws_follow_the_law(variance: Fraction) -> None:
    check_law(variance, 1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("variance", [ODD, Fraction(10**7), WIDE])
def test_a_hundred_million_draws_follow_the_law(variance: Fraction) -> None:
    check_law(variance, 100_000_000)


@pytest.mark.parametrize("variance", [QUARTER, ONE, ODD, Fraction(400)])
def test_moments_are_those_of_the_theta_series(variance: Fraction) -> None:
    count = 1_000_000
    found = drawn(variance, count).astype(np.float64)
    for power in (1, 2, 3, 4):
        exact = float(scalar.moment(power, variance))
        spread = float(scalar.moment(2 * power, variance)) - exact**2
        assert abs(np.mean(found**power) - exact) < 6 * np.sqrt(spread / count)


def test_the_second_moment_is_a_derivative_of_the_series() -> None:
    """Of the tests' own moments: sigma^4 times the derivative of log theta by sigma^2 / ... , here
    by differences of two exact sums."""
    with mpmath.workdps(40):
        h = Fraction(1, 10**9)
        rise = mpmath.log(scalar.total(ODD + h)) - mpmath.log(scalar.total(ODD - h))
        slope = rise / mpmath.mpf(2 * h.numerator) * h.denominator
        s2 = mpmath.mpf(ODD.numerator) / ODD.denominator
        assert abs(2 * s2**2 * slope - scalar.moment(2, ODD)) < 1e-8


def test_extreme_deviations() -> None:
    assert not drawn(TINY, 1000).any()
    wide = drawn(HUGE, 100_000).astype(np.float64) / 2**40
    assert abs(wide.std() - 1) < 0.02
    assert abs(wide.mean()) < 0.02


@pytest.mark.parametrize("variance", [0, -1, 2**80 + 1, Fraction(1, 2**41)])
def test_variances_out_of_range_are_refused(variance: Any) -> None:
    with pytest.raises(InputError, match="variance: expected sigma from"):
        DiscreteGaussian(variance)


@pytest.mark.parametrize("variance", [1.0, np.float64(4), "4", True, None])
def test_floats_are_no_variances(variance: Any) -> None:
    with pytest.raises(InputError, match="variance: expected an integer or a Fraction"):
        DiscreteGaussian(variance)
