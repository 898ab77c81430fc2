"""Workload Gram matrices against hand sums, exact fractions and the stacked nT x nT matrices."""

from __future__ import annotations

import os
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.system.datasets import ego_facebook
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.workloads import response
from noisedesign.system.workloads.workload import decentralized_gram, prefix_gram
from tests.support import oracles
from tests.support.peaks import peak_bytes

CLOSE = 1e-13
"""Relative: sums of at most a few hundred terms of one sign."""

PATH3 = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3  # singular: (1, -2, 1) is a null vector
CYCLE3 = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
SKEWED = np.array([[0.5, 0.5, 0], [0.25, 0.25, 0.5], [0, 0.75, 0.25]])
STAR5 = oracles.row_normalized(nx.star_graph(4))


# --- by hand --------------------------------------------------------------------------------------


def test_prefix_by_hand() -> None:
    np.testing.assert_array_equal(prefix_gram(horizon=1), [[1]])
    np.testing.assert_array_equal(
        prefix_gram(horizon=4), [[4, 3, 2, 1], [3, 3, 2, 1], [2, 2, 2, 1], [1, 1, 1, 1]]
    )


@pytest.mark.parametrize("horizon", [1, 2, 7, 40])
def test_prefix_is_the_gram_matrix_of_prefix_sums(horizon: int) -> None:
    a = oracles.prefix_workload(horizon)
    np.testing.assert_array_equal(prefix_gram(horizon=horizon), a.T @ a)


def test_two_nodes_two_steps_by_hand() -> None:
    # W has eigenvalues 1 and 1/2. Squares 1 + 1/4, cubes 1 + 1/8, fourth powers 1 + 1/16.
    w = np.array([[0.75, 0.25], [0.25, 0.75]])
    square, cube, fourth = 5 / 4, 9 / 8, 17 / 16
    expected = [[square + fourth, cube], [cube, square]]
    np.testing.assert_allclose(decentralized_gram(w, horizon=2), expected, rtol=CLOSE)


def test_one_node_is_the_prefix_workload() -> None:
    np.testing.assert_allclose(
        decentralized_gram(np.ones((1, 1)), horizon=6), prefix_gram(horizon=6), rtol=CLOSE
    )


@pytest.mark.parametrize("n", [2, 5])
def test_complete_averaging_is_the_prefix_workload(n: int) -> None:
    # W = J / n is a projection of rank one: every power has squared norm 1.
    w = np.full((n, n), 1 / n)
    np.testing.assert_allclose(decentralized_gram(w, horizon=5), prefix_gram(horizon=5), rtol=CLOSE)


def test_a_directed_cycle_by_hand() -> None:
    # Powers of a cyclic shift are orthogonal unless their exponents agree modulo 3.
    expected = np.array([[12, 0, 0, 3], [0, 9, 0, 0], [0, 0, 6, 0], [3, 0, 0, 3]])
    np.testing.assert_allclose(decentralized_gram(CYCLE3, horizon=4), expected, atol=1e-14)


def test_one_step_is_the_squared_norm_of_the_mixing_matrix() -> None:
    for w in (PATH3, SKEWED):
        assert decentralized_gram(w, horizon=1) == pytest.approx(np.square(w).sum(), rel=CLOSE)


def test_a_nonsymmetric_matrix_in_exact_fractions() -> None:
    w = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 4), Fraction(3, 4)]]
    horizon = 3

    def times(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
        return [[a[i][0] * b[0][j] + a[i][1] * b[1][j] for j in (0, 1)] for i in (0, 1)]

    powers = [w]
    while len(powers) < horizon:
        powers.append(times(w, powers[-1]))

    def entry(s: int, r: int) -> Fraction:
        total = Fraction(0)
        for t in range(max(s, r), horizon):
            left, right = powers[t - s], powers[t - r]
            total += sum(left[i][j] * right[i][j] for i in (0, 1) for j in (0, 1))
        return total

    expected = [[float(entry(s, r)) for r in range(horizon)] for s in range(horizon)]
    found = decentralized_gram(np.array(w, dtype=np.float64), horizon=horizon)
    np.testing.assert_allclose(found, expected, rtol=CLOSE)


# --- against the stacked construction -------------------------------------------------------------


@pytest.mark.parametrize(
    "w",
    [PATH3, CYCLE3, SKEWED, STAR5, np.eye(2), np.ones((1, 1)), np.full((4, 4), 0.25)],
    ids=["singular", "cycle", "skewed", "star", "identity", "one-node", "complete"],
)
@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_equals_the_stacked_construction(w: np.ndarray, horizon: int) -> None:
    np.testing.assert_allclose(
        decentralized_gram(w, horizon=horizon), oracles.stacked_gram(w, horizon), atol=1e-13
    )


@st.composite
def stochastic_matrices(draw: st.DrawFn) -> np.ndarray:
    """Row stochastic W of at most four nodes, symmetric half of the time, often singular."""
    n = draw(st.integers(1, 4))
    entries = draw(st.lists(st.integers(0, 3), min_size=n * n, max_size=n * n))
    counts = np.array(entries, dtype=np.float64).reshape(n, n)
    if draw(st.booleans()):
        counts = np.triu(counts) + np.triu(counts, 1).T
        w = counts / max(1.0, counts.sum(axis=1).max())
        return np.asarray(w + np.diag(1 - w.sum(axis=1)))
    counts += np.eye(n) * (counts.sum(axis=1) == 0)[:, None]
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(w=stochastic_matrices(), horizon=st.integers(1, 4))
def test_any_small_mixing_matrix(w: np.ndarray, horizon: int) -> None:
    gram = decentralized_gram(w, horizon=horizon)
    np.testing.assert_allclose(gram, oracles.stacked_gram(w, horizon), atol=1e-12)
    np.testing.assert_array_equal(gram, gram.T)


@pytest.mark.parametrize("weights", ["metropolis-hastings", "row-normalized"])
def test_longer_horizons_against_all_powers(weights: str) -> None:
    w = mixing_matrix(nx.florentine_families_graph(), weights=weights)
    np.testing.assert_allclose(
        decentralized_gram(w, horizon=60), oracles.gram_of_powers(w, 60), rtol=1e-12
    )


def test_both_routes_agree_where_they_meet() -> None:
    # Barely asymmetric: the eigenvalues are no longer used, and H must not jump.
    w = mixing_matrix(nx.florentine_families_graph())
    tilted = w.copy()
    tilted[0, 1] += 1e-9
    np.testing.assert_allclose(
        decentralized_gram(w, horizon=20), decentralized_gram(tilted, horizon=20), rtol=1e-7
    )


@pytest.mark.parametrize("tilt", [1e-7, 1e-4])
def test_what_is_not_quite_symmetric_is_not_taken_for_it(tilt: float) -> None:
    """The eigenvalues of (W + W^T) / 2 would be wrong by the square of the tilt, those of one
    triangle by the tilt."""
    tilted = mixing_matrix(nx.florentine_families_graph())
    tilted[0, 1] += tilt
    np.testing.assert_allclose(
        decentralized_gram(tilted, horizon=5), oracles.gram_of_powers(tilted, 5), rtol=1e-11
    )


def test_blocks_of_columns_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    w = oracles.row_normalized(nx.florentine_families_graph())
    whole = decentralized_gram(w, horizon=9)
    for floats in (1, 15 * 9 * 4):  # one column at a time; four, with a last block of three
        monkeypatch.setattr(response, "_POWER_BLOCK_FLOATS", floats)
        np.testing.assert_allclose(decentralized_gram(w, horizon=9), whole, rtol=CLOSE)


# --- memory ---------------------------------------------------------------------------------------


def _peak_megabytes(w: np.ndarray, horizon: int) -> float:
    return peak_bytes(lambda: decentralized_gram(w, horizon=horizon)) / 1e6


@pytest.mark.parametrize("weights", ["metropolis-hastings", "row-normalized"])
def test_memory_on_148_nodes_and_320_steps(weights: str) -> None:
    # One stacked matrix would take 17.9 GB, all powers of W 56 MB.
    w = mixing_matrix(nx.barabasi_albert_graph(148, 8, seed=0), weights=weights)
    assert _peak_megabytes(w, 320) < 200


@pytest.mark.parametrize("weights", ["metropolis-hastings", "row-normalized"])
def test_memory_on_the_ego_graph(weights: str) -> None:
    if not os.environ.get("NOISEDESIGN_DATA"):
        pytest.skip("NOISEDESIGN_DATA names no folder with the Facebook graphs")
    w = mixing_matrix(ego_facebook(414), weights=weights)
    assert len(w) == 148
    assert _peak_megabytes(w, 320) < 200


def test_memory_does_not_grow_with_the_powers() -> None:
    # All powers at once would be 600 * 300^2 floats, 432 MB.
    w = oracles.row_normalized(nx.barabasi_albert_graph(300, 2, seed=0))
    assert _peak_megabytes(w, 600) < 100


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mixing", "horizon", "field"),
    [
        (np.ones((2, 3)), 2, "mixing"),
        (np.ones(3), 2, "mixing"),
        (np.eye(2, dtype=np.float32), 2, "mixing"),
        (np.array([[1.0, np.nan], [0, 1]]), 2, "mixing"),
        (np.eye(2), 0, "horizon"),
        (np.eye(2), 2.0, "horizon"),
        (np.eye(2), True, "horizon"),
    ],
)
def test_bad_input_is_named(mixing: np.ndarray, horizon: int, field: str) -> None:
    with pytest.raises(InputError) as caught:
        decentralized_gram(mixing, horizon=horizon)
    assert caught.value.field == field


def test_prefix_needs_a_step() -> None:
    with pytest.raises(InputError, match="horizon"):
        prefix_gram(horizon=0)
