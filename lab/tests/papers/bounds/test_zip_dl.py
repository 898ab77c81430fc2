"""Zip-DL on the n^2 virtual nodes of the paper: the covariance of a round, and what Theorems 5.9
and 5.12, of which the package has none, miss."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from tests.support import dense_views, oracles
from tests.support.zip_dl_convergence import state_covariance

Array = np.ndarray
PATH = oracles.metropolis(nx.path_graph(4))
APART = oracles.metropolis(nx.disjoint_union(nx.path_graph(3), nx.empty_graph(1)))
"""A path of three nodes, and node 3 alone."""
NO_SELF = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
UNEVEN = np.array([[0.6, 0.3, 0.1], [0.3, 0.2, 0.5], [0.1, 0.5, 0.4]])
CASES = {
    "path": PATH,
    "apart": APART,
    "complete": np.full((3, 3), 1 / 3),
    "no self weight": NO_SELF,
    "uneven": UNEVEN,
}


def swap(stay: float) -> Array:
    return np.array([[stay, 1 - stay], [1 - stay, stay]])


def virtual_variances(w: Array, *, horizon: int, variances: Array, contraction: float) -> Array:
    """diag of W~ C~ Sigma (W~ C~)^T of round ``horizon``, (n^2,), blocks as in equation (11)."""
    n = len(w)
    mix, exchange = dense_views.zip_dl_virtual(w)
    step, c = mix @ exchange, dense_views.zip_dl_coupling(w)
    blocks = [contraction**k * np.linalg.matrix_power(step, k) @ c for k in range(horizon, 0, -1)]
    stacked = np.hstack(blocks) if blocks else np.zeros((n * n, 1))
    sigma = np.tile(np.repeat(variances, n), horizon) if blocks else np.ones(1)
    return np.einsum("ij,j,ij->i", stacked, sigma, stacked)


def heard_virtual_nodes(w: Array, observers: list[int]) -> list[int]:
    """Virtual w-hat linked to a virtual copy of an observer: n (w - 1) + v for every pair."""
    n = len(w)
    return [n * x + v for v in observers for x in range(n) if w[v, x] != 0]


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_state_covariance_is_that_of_the_virtual_round(name: str) -> None:
    w = CASES[name]
    n = len(w)
    variances = np.arange(1.0, n + 1)
    mix, exchange = dense_views.zip_dl_virtual(w)
    factor = mix @ exchange @ dense_views.zip_dl_coupling(w)
    virtual = (factor * np.repeat(variances, n)) @ factor.T
    found = state_covariance(mixing=w, noise_variance=variances)
    np.testing.assert_allclose(np.kron(found, np.ones((n, n))), virtual, atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-14)  # Corollary 3.2
    for a in range(n):  # Lemma 3.1
        sent = dense_views.zip_dl_coupling(w)[n * a : n * a + n]
        np.testing.assert_allclose(w[:, a] @ sent, 0, atol=1e-14)


def test_state_covariance_by_hand() -> None:
    # Two nodes: W_00 Z_00 = (W_00 Y_00 - W_10 Y_01) / 2 and W_10 Z_01 = minus that, so each sender
    # adds s / 4 times (1, -1)(1, -1)^T, s = 0.1^2 + 0.9^2.
    found = state_covariance(mixing=swap(0.1), noise_variance=2.0)
    np.testing.assert_allclose(found, 0.82 * np.array([[1, -1], [-1, 1]]), rtol=1e-14)


# --- Theorems 5.9 and 5.12 as printed, for observer 0 and alpha = 2 -------------------------------


def theorem_5_9(w: Array, *, horizon: int, gamma: float, smooth: float, first: int = 0) -> float:
    """Equation (15), the end of the proof, of which print is a misprint, for Delta = zeta = 1."""
    total = 0.0
    for t in range(max(1, first), horizon + first):  # at t = 0 it is 0 / 0, which counts as 0
        variances = np.full(len(w), gamma**2)
        variance = virtual_variances(
            w, horizon=t, variances=variances, contraction=1 - gamma * smooth
        )
        drift = (2 + 4 * gamma**2 * smooth) ** t - 1
        total += sum(drift / variance[x] for x in heard_virtual_nodes(w, [0]))
    return 4 * gamma**2 / (smooth + 4 * gamma**2 * smooth**2) * total


def theorem_5_12(w: Array, *, horizon: int, first: int = 0) -> Array:
    """Averaging alone, unit noise and Delta = 1, per victim: the n copies of a node are summed."""
    n = len(w)
    mix, exchange = dense_views.zip_dl_virtual(w)
    total = np.zeros(n)
    for t in range(first, horizon + first):
        power = np.linalg.matrix_power(mix @ exchange, t)
        variance = virtual_variances(w, horizon=t, variances=np.ones(n), contraction=1.0)
        for a, x in itertools.product(range(n), heard_virtual_nodes(w, [0])):
            numerator = power[x, n * a : n * a + n].sum()
            if numerator:
                total[a] += numerator / variance[x] if variance[x] else math.inf
    return total


def test_a_single_virtual_entry_is_not_that_of_w() -> None:
    """Remark 5.13 needs the copies summed: one copy of node 1 is heard by node 0 alone."""
    mix, exchange = dense_views.zip_dl_virtual(PATH)
    step = mix @ exchange
    entries = step[0, 4:8]  # copies of node 1, as seen by the first copy of node 0
    np.testing.assert_allclose(entries, [PATH[0, 1], 0, 0, 0])
    squared = (step @ step)[0, 4:8]
    np.testing.assert_allclose(squared.sum(), (PATH @ PATH)[0, 1])
    assert squared.max() < (PATH @ PATH)[0, 1]


# --- do they bound what is learnt? ----------------------------------------------------------------


def exact_divergence(w: Array, v: int, u: int, *, horizon: int) -> float:
    """Divergence over alpha of learning, Delta = zeta = 1: the step size cancels."""
    view = dense_views.zip_dl_received(w, v, horizon=horizon, averaging=False)
    return oracles.best_signs(view.victim(u, nodes=len(w), horizon=horizon)) / 2


def test_theorem_5_9_misses_the_first_message() -> None:
    """T = 1: node 0 hears -gamma g_1 + Z_{1->0}, and print says 0."""
    variance = np.square(dense_views.zip_dl_coupling(PATH)[4 * 1 + 0]).sum()
    assert exact_divergence(PATH, 0, 1, horizon=1) == pytest.approx(1 / (2 * variance))
    assert theorem_5_9(PATH, horizon=1, gamma=0.1, smooth=1.0) == 0.0
    # The index moved, or a step later, a large L makes up noise that is not there.
    for horizon, first in ((1, 1), (2, 0), (2, 1)):
        claimed = theorem_5_9(PATH, horizon=horizon, gamma=1e-3, smooth=500.0, first=first)
        assert claimed < 2 * exact_divergence(PATH, 0, 1, horizon=horizon) / 2
    # Where L is moderate it is far above the truth instead.
    claimed = theorem_5_9(PATH, horizon=5, gamma=0.1, smooth=1.0)
    assert claimed > 20 * 2 * exact_divergence(PATH, 0, 1, horizon=5)


def test_theorem_5_12_starts_from_a_model_without_noise() -> None:
    for horizon in (1, 2, 3, 5):
        found = theorem_5_12(PATH, horizon=horizon)
        assert found[1] == math.inf  # while the first message has noise
        view = dense_views.zip_dl_received(PATH, 0, horizon=horizon, averaging=True)
        learnt = [view.gram([u])[0, 0] for u in (1, 2, 3)]
        assert 0 < learnt[0] < 3
        assert learnt[1] <= found[2] * (1 + 1e-9)
        assert learnt[2] <= found[3] * (1 + 1e-9)


def test_theorem_5_12_with_the_index_moved_is_no_bound() -> None:
    """Two nodes with weight 0.9 for each other, T = 1, by hand."""
    found = theorem_5_12(swap(0.1), horizon=1, first=1)
    # D_1 = s / 2 at both nodes, s = 0.82, and W_01 + W_11 = 1; the message has noise s / (4 0.81).
    assert found[1] == pytest.approx(2 / 0.82)
    view = dense_views.zip_dl_received(swap(0.1), 0, horizon=1, averaging=True)
    learnt = view.gram([1])[0, 0]
    assert learnt == pytest.approx(4 * 0.81 / 0.82)
    assert learnt > 1.6 * found[1]
