"""Error workloads of Toeplitz strategies against dense linear algebra."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.system.workloads.toeplitz import (
    GramWorkload,
    PoleWorkload,
    gossip_workload,
    prefix_workload,
)
from noisedesign.system.workloads.workload import decentralized_gram, prefix_gram
from tests.support import oracles
from tests.support.toeplitz_cases import toeplitz

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
