"""C^-1 step by step: against dense matrices, plain Python and exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.linalg

from noisedesign.noise.filters import (
    Banded,
    Buffered,
    Filter,
    Moving,
    Rows,
    SignedBuffers,
    Toeplitz,
    filter_of,
)
from noisedesign.noise.normals import LARGEST, RELATIVE_ERROR
from noisedesign.noise.plan import Plan
from tests.support import noise_plans, noise_reference as reference
from tests.support.noise_plans import HORIZON

FILTERS = noise_plans.filters()
PLANS = noise_plans.plans()
DTYPES = {np.float32: reference.single, np.float64: reference.same}


def strategy_of(filter_: Filter, horizon: int) -> np.ndarray:
    """C, by scipy or entry by entry."""
    match filter_:
        case Rows():
            return np.linalg.inv(filter_.noising_matrix)
        case Toeplitz():
            column = filter_.strategy_coefficients
        case Banded():
            bands = filter_.strategy_bands
            rows = range(horizon)
            entry = [
                [bands[t - s, s] if 0 <= t - s < len(bands) else 0 for s in rows] for t in rows
            ]
            return np.array(entry)
        case Moving():
            taps = np.zeros(horizon)
            taps[: len(filter_.noising_coefficients)] = filter_.noising_coefficients
            return np.linalg.inv(scipy.linalg.toeplitz(taps, np.zeros(horizon)))
        case SignedBuffers():  # of the real matrix that moves all buffers
            turns, size = filter_.buffer_turns, len(filter_.buffer_turns)
            moved, state, column = np.diag(filter_.buffer_decays), np.ones(size), [1.0]
            for i in np.flatnonzero(turns > 0):
                moved[i, i + 1], moved[i + 1, i] = -turns[i], turns[i]
            for _ in range(horizon - 1):
                column.append(float(filter_.buffer_scales @ state))
                state = moved @ state
            column = np.array(column) * filter_.strategy_diagonal[0]
        case Buffered():
            powers = filter_.buffer_decays[:, None] ** np.arange(horizon - 1)
            column = np.concatenate([[1.0], filter_.buffer_scales @ powers])
            column = column * filter_.strategy_diagonal[0]
        case _:
            return np.eye(horizon)
    padded = np.zeros(horizon)
    padded[: len(column)] = column
    return scipy.linalg.toeplitz(padded, np.zeros(horizon))


@pytest.mark.parametrize("kind", FILTERS)
def test_c_of_the_noise_is_white(kind: str) -> None:
    """Whatever a run before left where draws are kept."""
    filter_ = FILTERS[kind]
    white = np.random.default_rng(0).standard_normal((HORIZON, 5))
    kept = np.full((filter_.rows, 5), np.nan)
    noise = [filter_.step(t, lambda s: white[s].copy(), kept) for t in range(HORIZON)]
    found = strategy_of(filter_, HORIZON) @ noise
    np.testing.assert_allclose(found, white, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", FILTERS)
def test_diagonals_of_c(kind: str) -> None:
    filter_ = FILTERS[kind]
    bands = filter_.strategy(HORIZON)
    if bands is None:
        assert isinstance(filter_, (Moving, Buffered))
        return
    found = np.zeros((HORIZON, HORIZON))
    for i, band in enumerate(bands[:HORIZON]):
        found += np.diag(band[: HORIZON - i], -i)
    np.testing.assert_allclose(found, strategy_of(filter_, HORIZON), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", FILTERS)
def test_sums_of_rows_of_the_inverse(kind: str) -> None:
    filter_, inverse = FILTERS[kind], np.linalg.inv(strategy_of(FILTERS[kind], HORIZON))
    for of in (np.abs, np.square):
        np.testing.assert_allclose(
            filter_.row_sums(HORIZON, of), of(inverse).sum(axis=1), rtol=1e-12
        )


def test_buffers_that_turn_amplify_more_than_those_that_do_not() -> None:
    """Positive ones of such scales and decays have a C^-1 whose rows are at most 2 in sum."""
    turning = SignedBuffers(np.full(2, 0.3), np.full(2, 0.6), np.ones(1), np.array([0.75, -0.75]))
    rows = np.abs(np.linalg.inv(strategy_of(turning, 40))).sum(axis=1)
    assert rows.max() > 2.5
    assert turning.amplification(40) == pytest.approx(rows.max(), rel=1e-12)


def test_columns_of_the_inverse_come_in_parts() -> None:
    """A band of 600 columns is more than is held together."""
    bands = np.full((2, 600), 0.5) + np.array([[0.5], [0.0]])
    inverse = np.linalg.inv(strategy_of(Banded(bands), 600))
    assert len(list(Banded(bands).noising_columns(600))) == 3
    np.testing.assert_allclose(
        Banded(bands).row_sums(600, np.abs), np.abs(inverse).sum(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANS)
def test_bits_are_those_of_plain_python(name: str, dtype: type) -> None:
    """Of a few numbers, on both sides of where a block ends."""
    plan, noise = PLANS[name], noise_plans.drawn(PLANS[name])
    for at in (1, 32767, 32768):
        expected = reference.noise(plan, noise_plans.secrets(plan), at, DTYPES[dtype])
        found = [noise.step(t, 1, dtype=dtype, start=at)[0] for t in range(plan.horizon)]
        assert found == expected


# --- how far from exact -----------------------------------------------------------------------


def exact_noise(plan: Plan, count: int) -> np.ndarray:
    """Shape (T, count), 40 digits: C^-1 by rational numbers of the exact normals."""
    keys = {
        (stream.name, s): reference.step_key(
            noise_plans.secrets(plan)[stream.name], stream.name, s, digest=plan.digest
        )
        for stream in plan.streams
        for s in range(plan.horizon)
    }
    normals = {
        at: np.array([value for value, _ in reference.exact_normals(key, count)])
        for at, key in keys.items()
    }
    with mpmath.workdps(40):
        if plan.couplings is not None:
            return np.array(
                [
                    sum(
                        mpmath.mpf(stream.coefficient)
                        * mpmath.mpf(float(plan.couplings[t, s, k]))
                        * normals[stream.name, s]
                        for s in range(t + 1)
                        for k, stream in enumerate(plan.streams)
                    )
                    for t in range(plan.horizon)
                ]
            )
        white = [
            sum(mpmath.mpf(stream.coefficient) * normals[stream.name, s] for stream in plan.streams)
            for s in range(plan.horizon)
        ]
        noising = exact_noising(plan)
        return np.array(
            [
                sum(
                    mpmath.mpf(a.numerator) / a.denominator * w
                    for a, w in zip(row, white, strict=True)
                )
                for row in noising
            ]
        )


def exact_noising(plan: Plan) -> list[list[Fraction]]:
    """C^-1 of the very numbers of the filter, by forward substitution of rationals."""
    filter_, steps = plan.filter, range(plan.horizon)
    if isinstance(filter_, Rows):
        return [[Fraction(x) for x in row] for row in filter_.noising_matrix.tolist()]
    if isinstance(filter_, Moving):
        taps = [Fraction(x) for x in filter_.noising_coefficients.tolist()]
        taps += [Fraction(0)] * plan.horizon
        return [[taps[t - s] if t >= s else Fraction(0) for s in steps] for t in steps]
    if isinstance(filter_, Buffered):
        omega, theta = (
            [Fraction(x) for x in a.tolist()]
            for a in (filter_.buffer_scales, filter_.buffer_decays)
        )
        (diagonal,) = filter_.strategy_diagonal.tolist()
        turns = getattr(filter_, "buffer_turns", 0 * filter_.buffer_scales)
        tau = [Fraction(x) for x in turns.tolist()]
        state, column = [Fraction(1)] * len(omega), [Fraction(1)]
        for _ in steps[1:]:
            column.append(sum((a * b for a, b in zip(omega, state, strict=True)), Fraction(0)))
            # The other one of a pair is the next, or the one before where tau < 0.
            state = [
                theta[i] * state[i]
                - (tau[i] * state[i + (1 if tau[i] > 0 else -1)] if tau[i] else 0)
                for i in range(len(omega))
            ]
        strategy = [
            [Fraction(diagonal) * column[t - s] if t >= s else 0 for s in steps] for t in steps
        ]
    else:
        strategy = [
            [Fraction(x) for x in row] for row in strategy_of(filter_, plan.horizon).tolist()
        ]
    inverse: list[list[Fraction]] = []
    for t in steps:
        row = [
            (Fraction(int(s == t)) - sum(strategy[t][i] * inverse[i][s] for i in range(t)))
            / strategy[t][t]
            for s in steps
        ]
        inverse.append(row)
    return inverse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANS)
def test_noise_is_within_its_bound_of_exact_noise(name: str, dtype: type) -> None:
    plan, count = PLANS[name], 24
    noise = noise_plans.drawn(plan)
    exact, bound = exact_noise(plan, count), noise.rounding_error_bound(dtype)
    found = np.array([noise.step(t, count, dtype=dtype).tolist() for t in range(plan.horizon)])
    worst = max(abs(a - b) for a, b in zip(found.ravel().tolist(), exact.ravel(), strict=True))
    assert bound / 3000 < worst <= bound
    # In units of the noise itself: thousands of roundings of float64, hundreds of float32.
    unit = float(np.finfo(dtype).eps) / 2
    assert bound <= math.sqrt(plan.variances.max()) * LARGEST * (500 * unit + 20 * RELATIVE_ERROR)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", FILTERS)
def test_roundings_of_the_worst_white_noise(kind: str, dtype: type) -> None:
    """White noise as large as it gets, of the signs that make the last noise largest and of low
    bits that have to be rounded: exact sums of it differ by no more than is said."""
    filter_, unit = FILTERS[kind], float(np.finfo(dtype).eps) / 2
    plan = PLANS[kind]
    exact = exact_noising(plan)
    signs = np.sign([float(a) for a in exact[-1]])
    rng = np.random.default_rng(6)
    white = signs[:, None] * LARGEST * (1 - 1e-3 * rng.random((HORIZON, 40)))
    kept = np.zeros((filter_.rows, 40), dtype=dtype)
    steps = [filter_.step(t, lambda s: white[s].copy(), kept).astype(dtype) for t in range(HORIZON)]
    by = filter_.rounding(unit, horizon=HORIZON)
    amplified = max(float(sum(map(abs, row))) for row in exact)
    largest = float(np.abs(steps).max())
    allowed = amplified * (by.of_white * LARGEST + by.of_noise * largest) * (1 + 2.0**-20)
    worst = 0.0
    for column in range(40):
        w = [Fraction(x) for x in white[:, column].tolist()]
        for row, step in zip(exact, steps, strict=True):
            value = sum(a * b for a, b in zip(row, w, strict=True))
            worst = max(worst, abs(float(Fraction(float(step[column])) - value)))
    assert worst <= allowed
    if dtype is np.float32:
        assert worst > allowed / 60


def test_buffers_that_never_fade_have_no_bound_in_float32() -> None:
    filter_ = Buffered(np.array([0.5]), np.array([1.0]), np.array([1.0]))
    single, double = 2.0**-24, 2.0**-53
    assert filter_.rounding(single, horizon=10**7).of_noise == math.inf
    assert filter_.rounding(double, horizon=10**7).of_noise < 1


# --- arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_comes_back_from_its_arrays(kind: str) -> None:
    filter_ = FILTERS[kind]
    again = filter_of(filter_.kind, filter_.arrays(), horizon=HORIZON)
    assert type(again) is type(filter_)
    assert again.rows == filter_.rows
    assert again.arrays().keys() == filter_.arrays().keys()
    white = np.random.default_rng(0).standard_normal((HORIZON, 3))
    one, two = np.zeros((filter_.rows, 3)), np.zeros((filter_.rows, 3))
    for t in range(HORIZON):
        np.testing.assert_array_equal(
            filter_.step(t, lambda s: white[s].copy(), one),
            again.step(t, lambda s: white[s].copy(), two),
        )


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("dense", {"noising_matrix": np.eye(HORIZON + 1)}),
        ("dense", {"noising_matrix": np.ones(HORIZON)}),
        ("dense", {}),
        ("banded", {"strategy_bands": np.ones((2, HORIZON - 1))}),
        ("banded", {"strategy_bands": np.zeros((2, HORIZON))}),
        ("toeplitz", {"strategy_coefficients": np.array([0.0, 1.0])}),
        ("toeplitz", {"strategy_coefficients": np.ones((2, 2))}),
        ("banded-inverse", {"noising_coefficients": np.empty(0)}),
        (
            "blt",
            {
                "buffer_scales": np.ones(2),
                "buffer_decays": np.ones(1),
                "strategy_diagonal": np.ones(1),
            },
        ),
        (
            "blt",
            {
                "buffer_scales": np.ones(1),
                "buffer_decays": np.ones(1),
                "strategy_diagonal": -np.ones(1),
            },
        ),
        *(
            (
                "signed-blt",
                {
                    "buffer_scales": np.ones(2),
                    "buffer_decays": np.array(decays),
                    "strategy_diagonal": np.ones(1),
                    "buffer_turns": np.array(turns),
                },
            )
            for decays, turns in (
                ((0.5, 0.5), (0.1, 0.1)),
                ((0.5, 0.5), (-0.1, 0.1)),
                ((0.5, 0.4), (0.1, -0.1)),
                ((0.5, 0.5), (0.0, 0.1)),
                ((0.5, 0.5), (0.1,)),
            )
        ),
        ("fresh", {"strategy_bands": np.ones((1, HORIZON))}),
        ("circulant", {}),
    ],
)
def test_arrays_that_are_no_filter(kind: str, arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        filter_of(kind, arrays, horizon=HORIZON)


def test_roundings_of_a_band_are_those_of_its_rows() -> None:
    """C = [[1, 0, 0], [0, 1, 0], [0, 5, 10]]: its last row, of 15, takes most, as where all are."""
    found, all_of_them = (
        Banded(np.array(bands)).rounding(0.0, horizon=3)
        for bands in ([[1.0, 1.0, 10.0], [0.0, 5.0, 0.0]], [[15.0] * 3, [0.0] * 3])
    )
    assert found == all_of_them
