"""Power series and error workloads of Toeplitz strategies against dense linear algebra."""

from __future__ import annotations

import mpmath
import networkx as nx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from noisedesign.base import power_series as series
from noisedesign.base.checks import InputError
from noisedesign.families.toeplitz import (
    GramWorkload,
    PoleWorkload,
    gossip_workload,
    prefix_workload,
)
from noisedesign.system.workloads.closed_forms import decentralized_gram, prefix_gram
from tests.support import oracles


def toeplitz(column: np.ndarray) -> np.ndarray:
    """By scipy, independently of the package."""
    return np.asarray(scipy.linalg.toeplitz(column, np.zeros(len(column))))


def decaying(rng: np.random.Generator, length: int) -> np.ndarray:
    """A first column whose reciprocal stays bounded."""
    column = rng.standard_normal(length) * 0.7 ** np.arange(length) * 0.2
    column[0] = 1.0 + rng.random()
    return column


# --- power series ---------------------------------------------------------------------------------


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


# --- error ----------------------------------------------------------------------------------------


def dense_error(gram: np.ndarray, noising: np.ndarray) -> float:
    matrix = toeplitz(noising)
    return float(np.trace(matrix.T @ gram @ matrix))


def test_error_of_three_steps_by_hand() -> None:
    # A C^-1 of d = (1, -1/2, 1/4) has columns (1, 1/2, 3/4), (1, 1/2), (1).
    noising = np.array([1.0, -0.5, 0.25])
    expected = (1 + 1 / 4 + 9 / 16) + (1 + 1 / 4) + 1
    assert prefix_workload(horizon=3).error_and_gradient(noising)[0] == pytest.approx(expected)
    workload = GramWorkload(matrix=prefix_gram(horizon=3))
    assert workload.error_and_gradient(noising)[0] == pytest.approx(expected)


@pytest.mark.parametrize("horizon", [1, 2, 5, 40])
@pytest.mark.parametrize(
    "graph", [nx.path_graph(5), nx.cycle_graph(6), nx.complete_graph(4), nx.star_graph(4)]
)
def test_gossip_error_is_that_of_the_dense_gram_matrix(graph: nx.Graph, horizon: int) -> None:
    w = oracles.metropolis(graph)
    gram = decentralized_gram(w, horizon=horizon)
    noising = np.random.default_rng(horizon).standard_normal(horizon)
    workload = gossip_workload(w, horizon=horizon)
    assert workload.error_and_gradient(noising)[0] == pytest.approx(dense_error(gram, noising))
    np.testing.assert_allclose(workload.gram(), gram, rtol=1e-12, atol=1e-12)


def test_prefix_sums_are_one_pole_at_one() -> None:
    np.testing.assert_array_equal(prefix_workload(horizon=9).gram(), prefix_gram(horizon=9))


def test_equal_eigenvalues_are_taken_together() -> None:
    # Metropolis weights of a complete graph of 6: eigenvalue 1 once, 0 five times; of a ring of 5:
    # (1 + 2 cos(2 pi j / 5)) / 3 for j = 0, +-1, +-2.
    assert gossip_workload(oracles.metropolis(nx.complete_graph(6)), horizon=2).poles == [1.0]
    ring = gossip_workload(oracles.metropolis(nx.cycle_graph(5)), horizon=2)
    expected = (1 + 2 * np.cos(2 * np.pi * np.array([2, 1, 0]) / 5)) / 3
    np.testing.assert_allclose(ring.poles, expected, atol=1e-15)
    np.testing.assert_allclose(ring.weights, expected**2 * [2, 2, 1], atol=1e-15)
    assert ring.poles[-1] == 1.0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    horizon=st.integers(1, 12),
    rank=st.integers(1, 12),
    scale=st.sampled_from([1e-150, 1.0, 1e150]),
)
def test_any_gram_matrix_folds_into_its_error(
    seed: int, horizon: int, rank: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rank, horizon))
    noising, direction = rng.standard_normal((2, horizon))
    gram = scale * (a.T @ a)
    error, gradient = GramWorkload(matrix=gram).error_and_gradient(noising)
    assert error == pytest.approx(dense_error(gram, noising), rel=1e-9)
    # The error is a quadratic form: central differences are exact.
    ahead, behind = (dense_error(gram, noising + s * direction) for s in (0.5, -0.5))
    assert gradient @ direction == pytest.approx(ahead - behind, rel=1e-8, abs=1e-9 * error)


@pytest.mark.parametrize("poles", [[1.0], [-1.0, 0.0, 0.3], [0.5, -0.9, 1.0, 0.999]])
def test_gradient_of_poles(poles: list[float]) -> None:
    rng = np.random.default_rng(2)
    weights = rng.random(len(poles)) + 0.1
    workload = PoleWorkload(poles=np.array(poles), weights=weights, horizon=25)
    noising, direction = rng.standard_normal((2, 25))
    ahead, behind = (workload.error_and_gradient(noising + s * direction)[0] for s in (0.5, -0.5))
    assert workload.error_and_gradient(noising)[1] @ direction == pytest.approx(ahead - behind)


# --- input ----------------------------------------------------------------------------------------


def test_workloads_refuse_what_they_cannot_take() -> None:
    ring = oracles.metropolis(nx.cycle_graph(5))
    with pytest.raises(InputError, match="mixing: expected a symmetric W.*GramWorkload"):
        gossip_workload(oracles.row_normalized(nx.path_graph(4)), horizon=3)
    with pytest.raises(InputError, match="mixing: expected a nonzero W with eigenvalues"):
        gossip_workload(1.001 * ring, horizon=3)
    with pytest.raises(InputError, match="mixing: expected a nonzero W"):
        gossip_workload(np.zeros((3, 3)), horizon=3)
    with pytest.raises(InputError, match="float64"):
        gossip_workload(ring.astype(np.float32), horizon=3)
    with pytest.raises(InputError, match="horizon"):
        gossip_workload(ring, horizon=0)
    with pytest.raises(InputError, match=r"poles: expected values in \[-1, 1\]"):
        PoleWorkload(poles=np.array([1.1]), weights=np.ones(1), horizon=3)
    with pytest.raises(InputError, match="weights: expected 2, one per pole, got 1"):
        PoleWorkload(poles=np.array([1.0, 0.5]), weights=np.ones(1), horizon=3)
    with pytest.raises(InputError, match="weights"):
        PoleWorkload(poles=np.ones(1), weights=np.zeros(1), horizon=3)
    with pytest.raises(InputError, match="gram: expected a nonzero positive semidefinite"):
        GramWorkload(matrix=np.diag([1.0, -1.0]))
    with pytest.raises(InputError, match="gram: expected a nonzero positive semidefinite"):
        GramWorkload(matrix=np.zeros((2, 2)))
    with pytest.raises(InputError, match="symmetric"):
        GramWorkload(matrix=np.array([[1.0, 0.5], [0.0, 1.0]]))
