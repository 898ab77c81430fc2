"""Cyffers et al. 2022: the formula by hand, and whether it bounds what an observer learns."""

from __future__ import annotations

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign_lab.papers import bounds
from tests.support import dense_views, oracles

Array = np.ndarray
PATH = oracles.metropolis(nx.path_graph(3))
"""1/3 on both edges, 2/3 and 1/3 on the diagonal."""


def swapping(share: float) -> Array:
    """Path 0 - 1 - 2 whose first two nodes nearly swap models; symmetric and primitive."""
    rest = 1 - share
    return np.array([[share, rest, 0], [rest, 0, share], [0, share, rest]])


def by_definition(
    w: Array, *, observer: int, victim: int, horizon: int, rounds: int, squared: bool
) -> float:
    """The formula, one term at a time, from ``matrix_power``."""
    total = 0.0
    for s in range(rounds * horizon):
        power = np.linalg.matrix_power(w, s)
        for x in range(len(w)):
            if (x == observer and not squared) or (x != observer and w[observer, x] > 0):
                signal = power[x, victim] ** (2 if squared else 1)
                total += (horizon - math.floor(s / rounds)) * signal / np.sum(power[x] ** 2)
    return min(horizon, total)


@st.composite
def mixings(draw: st.DrawFn) -> Array:
    """Row stochastic W on up to 5 nodes, often disconnected or singular, seldom symmetric."""
    n = draw(st.integers(2, 5))
    edges = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((i, j) for i in range(n) for j in range(i) if edges[i * n + j])
    kind = draw(st.sampled_from(["metropolis", "row", "complete", "lazy"]))
    if kind == "complete":
        return np.full((n, n), 1 / n)
    w = oracles.row_normalized(graph) if kind == "row" else oracles.metropolis(graph)
    return (w + np.eye(n)) / 2 if kind == "lazy" else w


# --- the formula ----------------------------------------------------------------------------------


def test_path_of_three_by_hand() -> None:
    # W = 1/3 [[2, 1, 0], [1, 1, 1], [0, 1, 2]]; observer 0, victim 2, T = 2. At s = 0 nothing of
    # node 2 is in a message of 0 or 1; at s = 1 row 1 is (1, 1, 1) / 3, row 0 has no share of 2.
    squared = bounds.network_squared_sensitivity(
        mixing=PATH, observer=0, horizon=2, numerator="squared"
    )
    plain = bounds.network_squared_sensitivity(mixing=PATH, observer=0, horizon=2)
    assert squared[2] == pytest.approx(1 / 3)
    assert plain[2] == pytest.approx(1.0)
    # T = 3 adds s = 2: W^2 = 1/9 [[5, 3, 1], [3, 3, 3], [1, 3, 5]], so rows 1 and 0 count
    # 9/27 and 1/35 squared, 27/27 and 9/35 unsquared (the last for w = v only).
    squared = bounds.network_squared_sensitivity(
        mixing=PATH, observer=0, horizon=3, numerator="squared"
    )
    plain = bounds.network_squared_sensitivity(mixing=PATH, observer=0, horizon=3)
    assert squared[2] == pytest.approx(2 / 3 + 1 / 3)
    assert plain[2] == pytest.approx(3.0)  # 2 + 1 + 9/35, capped at T
    # A neighbour's own messages hold all of it.
    assert squared[1] == 3.0


def test_gossip_rounds_share_a_gradient_step() -> None:
    # K = 2, T = 2: s = 0, 1 count twice, s = 2, 3 once. W^3 row 1 is again (1, 1, 1) / 3.
    found = bounds.network_squared_sensitivity(
        mixing=PATH, observer=0, horizon=2, rounds=2, numerator="squared"
    )
    assert found[2] == pytest.approx(2 * 1 / 3 + 1 / 3 + 1 / 3)


def test_orientation_for_a_w_that_is_not_symmetric() -> None:
    # Node 1 listens to 2 and 0, node 2 only to itself, node 0 to itself and 1. One round after
    # node 2 spoke, node 1 holds W_12 = 1/2 of it and noise (1/4)^2 + (1/4)^2 + (1/2)^2 = 3/8.
    w = np.array([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]])
    found = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=2, numerator="squared")
    assert found[2] == pytest.approx((1 / 4) / (3 / 8))
    # Read as printed, (W^s)_uw over the norm of column w, it would be 0: 2 does not listen to 1.
    assert w[2, 1] == 0
    # And node 2 hears of nobody.
    np.testing.assert_array_equal(
        bounds.network_squared_sensitivity(mixing=w, observer=2, horizon=9), [0, 0, 9]
    )


@settings(max_examples=60, derandomize=True, deadline=None)
@given(mixings(), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_definition_order_and_monotonicity(
    w: Array, horizon: int, rounds: int, squared: bool
) -> None:
    numerator = "squared" if squared else "unsquared"
    for v in range(len(w)):
        arguments = {"mixing": w, "observer": v, "rounds": rounds}
        found = bounds.network_squared_sensitivity(
            horizon=horizon, numerator=numerator, **arguments
        )
        expected = [
            by_definition(w, observer=v, victim=u, horizon=horizon, rounds=rounds, squared=squared)
            for u in range(len(w))
        ]
        expected[v] = horizon
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
        plain = bounds.network_squared_sensitivity(horizon=horizon, **arguments)
        longer = bounds.network_squared_sensitivity(
            horizon=horizon + 1, numerator=numerator, **arguments
        )
        assert (found <= plain * (1 + 1e-12)).all()
        assert (found <= longer * (1 + 1e-12)).all()
        reached = np.linalg.matrix_power(np.eye(len(w)) + w, len(w))[v] > 0
        assert (found[~reached] == 0).all()


def test_unreachable_and_isolated() -> None:
    # Two components {0, 1} and {2, 3}, and node 4 alone.
    graph = nx.Graph([(0, 1), (2, 3)])
    graph.add_node(4)
    w = oracles.metropolis(graph)
    for numerator in bounds.NUMERATORS:
        found = bounds.network_squared_sensitivity(
            mixing=w, observer=0, horizon=50, numerator=numerator
        )
        np.testing.assert_array_equal(found, [50, 50, 0, 0, 0])
        alone = bounds.network_squared_sensitivity(
            mixing=w, observer=4, horizon=50, numerator=numerator
        )
        np.testing.assert_array_equal(alone, [0, 0, 0, 0, 50])
    view = dense_views.neighbour(w, 0, horizon=3)
    np.testing.assert_allclose(view.victim(2, nodes=5, horizon=3), 0, atol=1e-15)


def test_size_of_the_largest_published_instance() -> None:
    graph = nx.gnp_random_graph(148, 0.1, seed=1)
    w = oracles.metropolis(graph)
    found = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=320)
    assert found.shape == (148,)
    assert (found == 320).all()  # no better than a reader of everything, for any victim


# --- does it bound what is learnt? ----------------------------------------------------------------

GRAPHS = [
    nx.path_graph(4),
    nx.cycle_graph(5),
    nx.star_graph(3),
    nx.complete_graph(4),
    nx.complete_bipartite_graph(2, 3),
    nx.gnp_random_graph(5, 0.5, seed=3),
]


@pytest.mark.parametrize("own_noise", [True, False])
@pytest.mark.parametrize(
    "weights", ["metropolis", "row", pytest.param("lazy", marks=pytest.mark.slow)]
)
def test_one_round_with_usual_weights_is_bounded(weights: str, own_noise: bool) -> None:
    """Vector gradients: elliptope by dual certificate, over every pair and T up to 4."""
    proper = 0
    for graph in GRAPHS:
        w = oracles.row_normalized(graph) if weights == "row" else oracles.metropolis(graph)
        w = (w + np.eye(len(w))) / 2 if weights == "lazy" else w
        for horizon in (2, 4):
            view = dense_views.neighbour(w, 0, horizon=horizon, own_noise=own_noise)
            claimed = bounds.network_squared_sensitivity(
                mixing=w, observer=0, horizon=horizon, numerator="squared"
            )
            for u in range(1, len(w)):
                gram = view.victim(u, nodes=len(w), horizon=horizon)
                spectral = horizon * float(np.linalg.eigvalsh(gram)[-1])
                exact = min(spectral, oracles.elliptope(gram)[1]) if spectral else 0.0
                assert exact <= claimed[u] * (1 + 1e-7) + 1e-9
                assert oracles.best_signs(gram) <= claimed[u] * (1 + 1e-9) + 1e-12
                proper += 0 < claimed[u] < horizon
    assert proper >= 10  # the cap alone would not do


def test_one_round_squared_form_fails_for_uneven_weights() -> None:
    """Path 0 - 1 - 2 with weights 0.9 and 0.1, T = 3, by hand in rationals."""
    # With its own messages (1) subtracted, node 0 sees  y = m_1^(t+1) - 0.9 m_0^t
    #   y^1 = 0.1 (g^0 + N_2^0) + N_1^1,   y^2 = 0.1 (0.9 (g^0 + N_2^0) + g^1 + N_2^1) + N_1^2
    # plus 0.01 N_1^0, which m_1^0 tells.
    a, b = Fraction(1, 10), Fraction(9, 100)
    s1, s2 = a, a + b
    k11, k12, k22 = 1 + a * a, a * b, 1 + a * a + b * b
    exact = (s1**2 * k22 - 2 * s1 * s2 * k12 + s2**2 * k11) / (k11 * k22 - k12**2)
    # Row 1 of W is (0.9, 0, 0.1), of W^2 (0.09, 0.82, 0.09).
    q1 = Fraction(1, 100) / Fraction(82, 100)
    q2 = Fraction(81, 10_000) / (2 * Fraction(81, 10_000) + Fraction(6724, 10_000))
    w = swapping(0.1)
    found = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=3, numerator="squared")
    assert found[2] == pytest.approx(float(2 * q1 + q2), rel=1e-12)
    assert float(exact) == pytest.approx(0.04503, abs=1e-5)
    for own_noise in (True, False):
        view = dense_views.neighbour(w, 0, horizon=3, own_noise=own_noise)
        learnt = oracles.best_signs(view.victim(2, nodes=3, horizon=3))
        assert learnt == pytest.approx(float(exact), rel=1e-9)
        assert learnt > 1.24 * found[2]
    # The unsquared form is far above it here.
    plain = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=3)
    assert plain[2] > 10 * learnt
    # As the weight goes to 0 the factor goes to (1 + 4) / (2 + 1).
    w = swapping(1e-4)
    view = dense_views.neighbour(w, 0, horizon=3)
    found = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=3, numerator="squared")
    learnt = oracles.best_signs(view.victim(2, nodes=3, horizon=3))
    assert learnt / found[2] == pytest.approx(5 / 3, rel=1e-3)


def test_one_round_unsquared_form_held_for_uneven_weights() -> None:
    """No proof: weights over six orders of magnitude, symmetric or not, none above the number."""
    rng = np.random.default_rng(7)
    closest, proper = 0.0, 0
    for _ in range(200):
        n, horizon = int(rng.integers(2, 6)), int(rng.integers(2, 6))
        weights = np.exp(rng.normal(size=(n, n)) * rng.uniform(0.5, 4))
        weights *= rng.random((n, n)) < 0.7
        weights += np.diag(np.exp(rng.normal(size=n) * 3))
        w = weights / weights.sum(axis=1, keepdims=True)
        found = bounds.network_squared_sensitivity(mixing=w, observer=0, horizon=horizon)
        view = dense_views.neighbour(w, 0, horizon=horizon)
        for u in range(1, n):
            learnt = oracles.best_signs(view.victim(u, nodes=n, horizon=horizon))
            assert learnt <= found[u] * (1 + 1e-6) + 1e-9
            if 1e-6 < found[u] < horizon:
                proper += 1
                closest = max(closest, learnt / found[u])
    assert proper > 50
    assert closest > 0.1


def test_more_rounds_tell_more_than_their_sum() -> None:
    """K = 2, T = 1: the second messages carry no noise of their own, and both forms fail."""
    # m_1^1 - W_11 m_1^0 - W_10 m_0^0 = W_12 m_2^0: node 0 knows m_2 = g + N, squared sensitivity 1.
    view = dense_views.neighbour(PATH, 0, horizon=1, rounds=2)
    assert view.victim(2, nodes=3, horizon=1)[0, 0] == pytest.approx(1.0)
    found = bounds.network_squared_sensitivity(
        mixing=PATH, observer=0, horizon=1, rounds=2, numerator="squared"
    )
    assert found[2] == pytest.approx(1 / 3)
    # Row 1 = (0.1, 0.8, 0.1): unsquared 0.1 / 0.66.
    lazy = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]])
    view = dense_views.neighbour(lazy, 0, horizon=1, rounds=2)
    assert view.victim(2, nodes=3, horizon=1)[0, 0] == pytest.approx(1.0)
    found = bounds.network_squared_sensitivity(mixing=lazy, observer=0, horizon=1, rounds=2)
    assert found[2] == pytest.approx(0.1 / 0.66)


# --- units and bad input --------------------------------------------------------------------------


def test_renyi_divergence_of_a_gaussian() -> None:
    # Numerically: D_2 = log of the integral of p^2 / q for N(0, 1) moved by sqrt(5).
    x = np.linspace(-40, 40, 400_001)
    log_p, log_q = -((x - math.sqrt(5)) ** 2) / 2, -(x**2) / 2
    integral = np.sum(np.exp(2 * log_p - log_q)) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    found = bounds.renyi_divergence(5.0, alpha=2.0)
    assert found == pytest.approx(math.log(integral), rel=1e-9)
    np.testing.assert_allclose(bounds.renyi_divergence(np.array([1.0, 2.0]), alpha=3.0), [1.5, 3.0])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"observer": 3}, "observer"),
        ({"observer": -1}, "observer"),
        ({"horizon": 0}, "horizon"),
        ({"rounds": 1.5}, "rounds"),
        ({"numerator": "cubed"}, "numerator"),
        ({"mixing": PATH / 2}, "mixing"),
        ({"mixing": PATH.astype(np.float32)}, "mixing"),
    ],
)
def test_bad_input(change: dict, field: str) -> None:
    with pytest.raises(InputError) as error:
        bounds.network_squared_sensitivity(**{"mixing": PATH, "observer": 0, "horizon": 2} | change)
    assert error.value.field == field


def test_bad_order() -> None:
    with pytest.raises(InputError, match="alpha"):
        bounds.renyi_divergence(1.0, alpha=1.0)
