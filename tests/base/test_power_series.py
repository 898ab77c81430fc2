"""Power series against dense linear algebra."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from noisedesign.base import power_series as series
from noisedesign.base.checks import InputError
from tests.support.toeplitz_cases import decaying, toeplitz


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 65, 200])
def test_products_and_adjoints_are_those_of_the_matrices(length: int) -> None:
    rng = np.random.default_rng(length)
    a, b = rng.standard_normal((2, length))
    np.testing.assert_allclose(series.convolve(a, b), toeplitz(a) @ b, atol=1e-12)
    np.testing.assert_allclose(series.correlate(a, b), toeplitz(a).T @ b, atol=1e-12)
    np.testing.assert_array_equal(series.dense(a), toeplitz(a))


@pytest.mark.parametrize("length", [1, 2, 3, 64, 65, 300])
def test_reciprocal_is_the_first_column_of_the_inverse(length: int) -> None:
    column = decaying(np.random.default_rng(length), length)
    expected = np.linalg.inv(toeplitz(column))[:, 0]
    np.testing.assert_allclose(series.reciprocal(column), expected, atol=1e-13)
    np.testing.assert_allclose(series.fast_reciprocal(column), expected, atol=1e-13)


def test_reciprocals_by_hand() -> None:
    # 1 / (1 - x) = 1 + x + ..., 1 / (2 - x)^2 = 1/4 + x/4 + 3x^2/16 + ...
    np.testing.assert_array_equal(series.reciprocal(np.array([1.0, -1, 0, 0])), np.ones(4))
    np.testing.assert_allclose(series.reciprocal(np.array([4.0, -4, 1])), [1 / 4, 1 / 4, 3 / 16])


def test_a_reciprocal_that_grows_keeps_its_small_coefficients() -> None:
    # Coefficients up to 1e43 follow coefficients of size one: transforms see only the large ones.
    column = np.concatenate([[1.0, -2.0], np.random.default_rng(1).standard_normal(138)])
    mpmath.mp.dps = 60
    exact = [mpmath.mpf(1)]
    for t in range(1, len(column)):
        exact.append(-mpmath.fsum(mpmath.mpf(column[i]) * exact[t - i] for i in range(1, t + 1)))
    expected = np.array([float(value) for value in exact])
    assert np.abs(expected).max() > 1e20
    np.testing.assert_allclose(series.reciprocal(column), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("length", "stride", "count"),
    [(1, 1, 1), (6, 2, 3), (7, 3, 2), (7, 3, 3), (9, 1, 9), (5, 9, 1)],
)
def test_strided_sums_add_columns(length: int, stride: int, count: int) -> None:
    column, values = np.random.default_rng(0).standard_normal((2, length))
    chosen = toeplitz(column)[:, [i * stride for i in range(count) if i * stride < length]]
    sums = series.strided_sums(column, stride=stride, count=count)
    np.testing.assert_allclose(sums, chosen.sum(axis=1), atol=1e-14)
    adjoint = series.strided_sums_adjoint(values, stride=stride, count=count)
    assert adjoint @ column == pytest.approx(values @ sums)


@pytest.mark.parametrize("bad", [np.zeros(3), np.array([-1.0, 2.0]), np.ones((2, 2)), 3.0, []])
def test_first_columns_are_checked(bad: object) -> None:
    with pytest.raises(InputError, match="column"):
        series.checked(bad, field="column")
