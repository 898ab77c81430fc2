"""Errors in print about views are shown on concrete small cases.

Views are built literally here, by stacking powers of W; what the library reports is compared last.
Theorems 13 to 17 of Koskela and Kulkarni, Zip-DL's Theorems 5.9 and 5.12 and the two readings of
Muffliato's bound have their cases in ``test_published_bounds_*``.
"""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest

from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system.participation import every_step
from tests.support import oracles, transcripts

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
KARATE = oracles.metropolis(nx.karate_club_graph())


def stacked(rows: np.ndarray, w: np.ndarray, horizon: int) -> np.ndarray:
    """H_T of Koskela and Kulkarni, equation (3.2): block (t, s) is S W^(t - s)."""
    blocks = [
        [rows @ np.linalg.matrix_power(w, t - s) if t >= s else 0 * rows for s in range(horizon)]
        for t in range(horizon)
    ]
    return np.block(blocks)


def projected(b: np.ndarray, victim: int, n: int) -> np.ndarray:
    """The victim's T x T block of B^+ B."""
    projector = np.linalg.pinv(b) @ b
    return projector[victim::n, victim::n]


def sum_seen_by(w: np.ndarray, node: int, horizon: int) -> np.ndarray:
    """A secure sum tells one node this, its own noise known: its columns are zero."""
    b = stacked(w[node : node + 1], w, horizon)
    b[:, node :: len(w)] = 0.0
    return b


def messages_to(w: np.ndarray, node: int, horizon: int) -> np.ndarray:
    neighbours = [v for v in np.flatnonzero(w[node]) if v != node]
    b = stacked(np.eye(len(w))[neighbours], w, horizon)
    b[:, node :: len(w)] = 0.0
    return b


# --- Gossip averaging, Theorem 12 -----------------------------------------------------------------


def test_gossip_averaging_theorem_12_bounds_the_square() -> None:
    """A victim two hops away: Delta = 0.307, while (1 x e)^T |V V^T| (1 x e) = 0.094."""
    m = projected(messages_to(FLORENTINE, 0, 4), 8, 15)
    signs = oracles.best_signs(m)
    assert signs == pytest.approx(np.abs(m).sum())  # the bound is attained, by the square
    assert math.sqrt(signs) > 2 * np.abs(m).sum()


def test_gossip_averaging_theorem_12_signs_are_not_enough_for_vectors() -> None:
    """Unit vectors move what a secure sum tells node 0 of the karate club more than signs do."""
    m = projected(sum_seen_by(KARATE, 0, 10), 4, 34)
    signs = oracles.best_signs(m)
    vectors, _ = oracles.elliptope(m)
    assert vectors > 1.02 * signs
    # Such gradients exist: rows of unit norm that reach more than any signs.
    rng = np.random.default_rng(0)
    v = rng.standard_normal((10, 10))
    for _ in range(2000):
        v = m @ v - np.diagonal(m)[:, None] * v
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        if np.sum(m * (v @ v.T)) > 1.02 * signs:
            break
    assert 1.02 * signs < np.sum(m * (v @ v.T)) <= vectors * (1 + 1e-6)
    algorithm = threats.dp_d_sgd(mixing=KARATE, horizon=10)
    (found,) = account(
        algorithm,
        threats.secure_sum(nodes=(0,)),
        participation=every_step(10),
        victims=[4],
        responses="fixed",
    )
    assert found.which == "vector-exact"
    assert found.sensitivity_squared == pytest.approx(vectors, rel=1e-6)


# --- Mafalda-SGD, equations (8), (12) and (28) to (31) --------------------------------------------


def test_mafalda_equation_12_bounds_the_square() -> None:
    """sens <= max sum |(P_a W_T)^+ P_a W_T| would give a victim three times too much protection."""
    m = projected(messages_to(FLORENTINE, 0, 4), 8, 15)
    change = np.ones(4)
    moved = math.sqrt(change @ m @ change)
    assert moved > 2 * np.abs(m).sum()
    algorithm = threats.dp_d_sgd(mixing=FLORENTINE, horizon=4)
    (found,) = account(
        algorithm,
        threats.pndp(nodes=(0,)),
        participation=every_step(4),
        victims=[8],
        adjacency="zero-out",
        responses="fixed",
    )
    assert found.mu == pytest.approx(moved, rel=1e-9)


def test_the_sum_of_absolute_values_can_exceed_what_all_messages_tell() -> None:
    """Published code takes it without the cap: a neighbour seems worse off than under LDP."""
    m = projected(messages_to(FLORENTINE, 0, 10), 1, 15)
    assert np.abs(m).sum() > 11.6  # squared; a reader of all messages learns exactly T = 10
    algorithm = threats.dp_d_sgd(mixing=FLORENTINE, horizon=10)
    (found,) = account(
        algorithm,
        threats.pndp(nodes=(0,)),
        participation=every_step(10),
        victims=[1],
        responses="fixed",
    )
    assert found.sensitivity_squared == pytest.approx(oracles.elliptope(m)[0], rel=1e-6)
    assert found.sensitivity_squared < 9.6


# --- Mafalda-SGD, Lemma 11 ------------------------------------------------------------------------


def test_mafalda_lemma_11_projects_out_the_observers_own_gradients_only() -> None:
    """Knowing a sum that holds the victim's gradient is no reduction: it exposes the victim.

    The lemma takes any known combinations K^G G and projects them out of A. Where the victim's
    gradient is part of one, neighbouring inputs differ in what is known, without noise.
    """
    a = np.array([[1.0, 0.0], [1.0, 1.0]])  # a noisy view of g_0, and g_0 + g_1 itself
    b = np.array([[1.0], [0.0]])
    known = a[1:]
    reduced = a @ (np.eye(2) - np.linalg.pinv(known) @ known)
    printed = np.linalg.pinv(b @ b.T) @ reduced[:, :1]
    assert np.linalg.norm(printed) == pytest.approx(0.5)  # as if mu were a half
    assert not np.allclose(b @ np.linalg.pinv(b) @ a[:, :1], a[:, :1])  # part of it has no noise
    # One's own gradients move with no victim: the victims' columns stay as they are.
    own = np.array([[0.0, 1.0]])
    view = np.array([[1.0, 0.3], [0.5, 2.0]])
    np.testing.assert_allclose((view @ (np.eye(2) - np.linalg.pinv(own) @ own))[:, 0], view[:, 0])
    # Noise that cancels in the sum of two nodes: a reader of both messages has the views a and b.
    both = np.full((2, 2), 0.5)
    cancelling = threats.whisper(mixing=both, covariance=np.array([[1, -1], [-1, 1]]), horizon=1)
    found = account(cancelling, threats.ldp(), participation=every_step(1))
    assert [exposure.mu for exposure in found] == [math.inf, math.inf]
    # A node that knows its own gradient and noise sees the other's as everybody does.
    independent = threats.dp_d_sgd(mixing=both, horizon=1)
    (seen,) = account(independent, threats.pndp(nodes=(0,)), participation=every_step(1))
    assert seen.sensitivity_squared == pytest.approx(1.0)


# --- Zip-DL: who is said to see the message a node keeps ------------------------------------------


@pytest.mark.parametrize("variant", [{}, {"neighbourhood": "open"}, {"self_message": "seen"}])
def test_zip_dl_protects_the_wire_only_with_closed_neighbourhoods(variant: dict[str, str]) -> None:
    """The weighted messages of a node sum to its model exactly unless one of them stays home."""
    w = oracles.metropolis(nx.path_graph(3))
    seen = [0, 1, 2] if variant.get("self_message") == "seen" else [0, 2]
    inside = [0, 1, 2] if variant.get("neighbourhood") != "open" else [0, 2]
    weights = w[inside, 1]
    noise = np.eye(len(inside)) - np.outer(1 / weights, weights) / len(inside)
    rows = noise[[inside.index(v) for v in seen if v in inside]]
    weighted_sum = w[seen, 1] @ rows
    exact = bool(np.abs(weighted_sum).max() < 1e-15)
    assert exact == bool(variant)
    algorithm = threats.zip_dl(mixing=w, horizon=1, **variant)
    found = {
        exposure.node: exposure.mu
        for exposure in account(algorithm, threats.ldp(), participation=every_step(1))
    }
    assert math.isinf(found["1"]) == exact


def test_mafalda_theorem_5_fails_for_zip_dl() -> None:
    """Messages are written out. Where a reader of all messages reads what a node sends itself, the
    weighted messages of one node are its model: A is not B C, whatever C is."""
    w = oracles.metropolis(nx.path_graph(3))
    left = {}
    for kept in ("seen", "unseen"):
        run = transcripts.zip_dl(w, horizon=2, self_message=kept)(transcripts.Traced())
        view = transcripts.look(run, transcripts.Observer(kind="ldp"))
        left[kept] = np.linalg.norm(view.A - view.B @ np.linalg.pinv(view.B) @ view.A)
    assert left["seen"] == pytest.approx(3.7845, abs=1e-4)
    assert left["unseen"] < 1e-12
    # By hand, the first step of node 1: weights 1/3 on the two others and on itself, so that the
    # row of weights takes all of its noise away, and leaves its gradient.
    first = transcripts.zip_dl(w, horizon=1, self_message="seen")(transcripts.Traced())
    told = transcripts.total(
        transcripts.Traced(),
        [weight * m for weight, m in zip(w[:, 1], first.spoken[1], strict=True)],
    )
    assert told.gradient(0, 1) == pytest.approx(1.0)
    assert max(map(abs, told.noise.values())) < 1e-15
