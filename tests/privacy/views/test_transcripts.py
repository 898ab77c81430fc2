"""The account of who sees what, pinned to cases worked out by hand.

Every loss is computed twice, by singular values in float64 and by exact elimination over the
rationals, and both have to meet the number on paper.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.support import transcripts
from tests.support.transcripts import (
    Linear,
    Observer,
    Protocol,
    Sampled,
    Traced,
    eliminated,
    look,
    transcript,
)

F = Fraction
LDP = Observer(kind="ldp")
SHARED_SEED = Observer(kind="shared_seed")
PAIR = [[F(1, 2), F(1, 2)], [F(1, 2), F(1, 2)]]
TRIANGLE = [[F(1, 3)] * 3] * 3
PATH = [[F(2, 3), F(1, 3), F(0)], [F(1, 3), F(1, 3), F(1, 3)], [F(0), F(1, 3), F(2, 3)]]
STAR = [  # hub 0
    [F(1, 4), F(1, 4), F(1, 4), F(1, 4)],
    [F(1, 4), F(3, 4), F(0), F(0)],
    [F(1, 4), F(0), F(3, 4), F(0)],
    [F(1, 4), F(0), F(0), F(3, 4)],
]
DIRECTED = [[F(1, 2), F(1, 2), F(0)], [F(0), F(1, 3), F(2, 3)], [F(1, 4), F(1, 4), F(1, 2)]]
LOCAL = [[F(2), F(0), F(0)], [F(-1), F(3), F(0)], [F(1, 2), F(1), F(1)]]
ROOT = [[F(1), F(0), F(0)], [F(1, 2), F(1), F(0)], [F(-1), F(1, 3), F(2)]]
"""Cholesky factor of a covariance, so that its own root is rational."""
COVARIANCE = [[sum(a * b for a, b in zip(r, s, strict=True)) for s in ROOT] for r in ROOT]


def pndp(*nodes: int, own_noise: str = "seeds") -> Observer:
    return Observer(kind="pndp", nodes=nodes, own_noise=own_noise)


def secure_sum(*nodes: int, own_noise: str = "seeds") -> Observer:
    return Observer(kind="secure_sum", nodes=nodes, own_noise=own_noise)


def loss(protocol: Protocol, observer: Observer, victim: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """M_u between hidden steps, NaN elsewhere, and the exposed steps, by two agreeing routes."""
    run = protocol(Traced())
    gram, exposed = look(run, observer).gram(victim)
    exact, exactly_exposed = eliminated(run, observer, victim)
    assert exposed == exactly_exposed
    exact = np.array(exact, dtype=float)
    for m in (gram, exact):
        m[list(exposed), :] = m[:, list(exposed)] = np.nan
    assert_allclose(gram, exact, atol=1e-11)
    return gram, exposed


def assert_loss(
    protocol: Protocol, observer: Observer, victim: int, gram: object, exposed: tuple[int, ...] = ()
) -> None:
    found, steps = loss(protocol, observer, victim)
    assert steps == exposed
    assert_allclose(found, np.array(gram, dtype=float), atol=1e-11)


def floats(matrix: object) -> np.ndarray:
    return np.array(matrix, dtype=float)


# --- DP-D-SGD and Muffliato -----------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2])
def test_pair(horizon: int) -> None:
    """Two nodes, W = J / 2, although W is singular.

    The neighbour's message minus what both parties knew before is g + z at every step. The sum
    grows by (g_0 + z_0 + g_1 + z_1) / 2 a step: noise 1/2 against a signal of 1/4, or 1/4 against
    1/4 for whoever subtracts its own noise.
    """
    unit, run = np.eye(horizon), transcripts.independent(PAIR, horizon=horizon)
    for observer in (LDP, pndp(0), pndp(0, own_noise="values"), pndp(0, own_noise="counted")):
        assert_loss(run, observer, 1, unit)
    assert_loss(run, secure_sum(0), 1, unit)
    assert_loss(run, secure_sum(0, own_noise="counted"), 1, unit / 2)


def test_tapping_one_of_a_pair() -> None:
    """m_1^0 = g_1 + z_1; m_1^1 = (m_0^0 + m_1^0) / 2 + g_1' + z_1', m_0^0 = g_0 + z_0.

    Of node 1: step 0 is read off the first message, step 1 with noise 1/4 + 1. Of node 0: step 0
    reaches the second message with weight 1/2 and that noise, step 1 reaches nothing.
    """
    run = transcripts.independent(PAIR, horizon=2)
    tap = Observer(kind="tap", nodes=(1,))
    assert_loss(run, tap, 1, np.diag([1, 4 / 5]))
    assert_loss(run, tap, 0, np.diag([(1 / 4) / (5 / 4), 0]))


def test_the_far_end_of_a_path() -> None:
    """Node 0 sees m_1 only: m_1^1 = (m_0^0 + m_1^0 + g_2 + z_2) / 3 + g_1' + z_1'.

    Unknown to it in that are (g_2 + z_2) / 3 + z_1'. Counting its noise changes nothing as it
    reads its own messages.
    """
    for own_noise in ("seeds", "values", "counted"):
        observer = pndp(0, own_noise=own_noise)
        assert_loss(transcripts.independent(PATH, horizon=1), observer, 2, [[0]])
        run = transcripts.independent(PATH, horizon=2)
        assert_loss(run, observer, 2, np.diag([(1 / 9) / (1 / 9 + 1), 0]))
        assert_loss(run, observer, 1, np.diag([1, 1 / (1 + 1 / 9)]))


def test_a_leaf_of_a_star() -> None:
    """Leaf 1 knows m_0^0 and z_1; m_0^1 holds (z_2 + z_3) / 4 of the leaves and z_0' of the hub."""
    run = transcripts.independent(STAR, horizon=2)
    noise = 1 + 2 / 16
    assert_loss(run, pndp(1), 2, np.diag([1 / 16 / noise, 0]))
    assert_loss(run, pndp(1), 0, np.diag([1, 1 / noise]))
    # With leaf 2 in the coalition z_3 alone is left.
    assert_loss(run, pndp(1, 2), 3, np.diag([1 / 16 / (1 + 1 / 16), 0]))
    # The hub hears every leaf by name, or only their sum.
    assert_loss(run, pndp(0), 2, np.eye(2))
    first = transcripts.independent(STAR, horizon=1)
    assert_loss(first, secure_sum(0), 2, [[1 / 3]])
    assert_loss(first, secure_sum(0, own_noise="counted"), 2, [[1 / 4]])


def test_a_second_round_of_gossip_carries_no_fresh_noise() -> None:
    """m_1^{0,1} = (m_0 + m_1 + g_2 + z_2) / 3: node 0 learns g_2 + z_2. LDP learns nothing new."""
    run = transcripts.independent(PATH, horizon=1, rounds=2)
    assert_loss(run, pndp(0), 2, [[1]])
    assert_loss(run, LDP, 2, [[1]])
    assert_loss(transcripts.independent(PATH, horizon=2, rounds=2), LDP, 2, np.eye(2))
    # x_1 = W (W m) shows in the first message of the next step: one round of sums sees 2/3 of
    # g_2 + z_2 and 1/3 of g_1 + z_1, two rounds see both apart.
    one, two = (transcripts.independent(PATH, horizon=1, rounds=k) for k in (1, 2))
    assert_loss(one, secure_sum(2), 1, [[1]])
    assert_loss(one, secure_sum(2), 0, [[0]])
    assert_loss(two, secure_sum(2), 0, [[1]])


@pytest.mark.parametrize("n", [3, 4])
def test_secure_sums_of_a_complete_graph(n: int) -> None:
    """Sums grow by the mean of g + z: 1/n^2 against n / n^2, or (n - 1) / n^2."""
    run = transcripts.independent([[F(1, n)] * n] * n, horizon=3)
    assert_loss(run, secure_sum(0, own_noise="counted"), 1, np.eye(3) / n)
    for own_noise in ("seeds", "values"):
        assert_loss(run, secure_sum(0, own_noise=own_noise), 1, np.eye(3) / (n - 1))
    # A sum heard twice is heard once; two members know two noises.
    assert_loss(run, secure_sum(0, 2, own_noise="counted"), 1, np.eye(3) / n)
    assert_loss(run, secure_sum(0, 2), 1, np.eye(3) / (n - 2))


def test_nothing_crosses_between_components() -> None:
    split = [[*PAIR[0], 0, 0], [*PAIR[1], 0, 0], [0, 0, *PAIR[0]], [0, 0, *PAIR[1]]]
    run = transcripts.independent(split, horizon=3)
    for observer in (pndp(0), pndp(0, own_noise="counted"), secure_sum(0)):
        assert_loss(run, observer, 3, np.zeros((3, 3)))
    assert_loss(run, pndp(0), 1, np.eye(3))
    alone = [[F(1), 0, 0], [0, *PAIR[0]], [0, *PAIR[1]]]
    for own_noise in ("seeds", "counted"):
        run = transcripts.independent(alone, horizon=3)
        assert_loss(run, pndp(0, own_noise=own_noise), 1, np.zeros((3, 3)))


def test_messages_travel_against_the_weights() -> None:
    """W_av is what a gives to v: with W_ab > 0 = W_ba, a hears b and b does not hear a."""
    cycle = [[F(1, 2), F(1, 2), 0], [0, F(1, 2), F(1, 2)], [F(1, 2), 0, F(1, 2)]]
    run = transcripts.independent(cycle, horizon=1)
    assert_loss(run, pndp(0), 1, [[1]])
    assert_loss(run, pndp(1), 0, [[0]])


@pytest.mark.parametrize("weights", [STAR, DIRECTED])
def test_matrices_of_the_papers(weights: list[list[Fraction]]) -> None:
    """S W^(t-s) stacked (Koskela and Kulkarni, Lemma 10), observers' columns removed or kept."""
    w, horizon = floats(weights), 3
    n = len(w)
    run = transcripts.independent(weights, horizon=horizon)
    stacked = np.block(
        [
            [np.linalg.matrix_power(w, t - s) if s <= t else 0 * w for s in range(horizon)]
            for t in range(horizon)
        ]
    )
    for a, victim in itertools.permutations(range(n), 2):
        heard = [t * n + v for t in range(horizon) for v in range(n) if v != a and w[a, v]]
        closed = heard + [t * n + a for t in range(horizon)]
        others = [c for c in range(n * horizon) if c % n != a]
        cases = [
            (pndp(a), stacked[np.ix_(closed, others)]),
            (pndp(a, own_noise="counted"), stacked[closed]),
            (Observer(kind="tap", nodes=(a,)), stacked[a::n]),
        ]
        for observer, b in cases:
            kept = others if b.shape[1] == len(others) else list(range(n * horizon))
            column = [i for i, c in enumerate(kept) if c % n == victim]
            projector = np.linalg.pinv(b) @ b
            assert_loss(run, observer, victim, projector[np.ix_(column, column)])


# --- correlation in time and between nodes --------------------------------------------------------


@pytest.mark.parametrize("weights", [PATH, TRIANGLE, DIRECTED])
def test_a_local_strategy_loses_its_own_gram(weights: list[list[Fraction]]) -> None:
    """All messages are W_T (G + C^-1 z), W_T invertible even where W is not: C^T C, all rounds."""
    c = floats(LOCAL)
    for rounds, victim in ((1, 0), (1, 2), (2, 1)):
        run = transcripts.local_strategy(weights, LOCAL, rounds=rounds)
        assert_loss(run, LDP, victim, c.T @ c)
    # The neighbour of node 2 in the path of three that knows its own noise sees C^T C as well.
    assert_loss(transcripts.local_strategy(TRIANGLE, LOCAL), pndp(0), 1, c.T @ c)


def test_anti_pgd_is_the_prefix_strategy() -> None:
    """C is all ones below the diagonal: entry (s, s') of C^T C counts the steps from the later."""
    assert_loss(transcripts.anti_pgd(PATH, horizon=3), LDP, 1, [[3, 2, 1], [2, 2, 1], [1, 1, 1]])
    # The path's far end: (g_2 + z_2) / 3 + z_1' - z_1 in m_1^1 beside g_1 + z_1 = known.
    assert_loss(
        transcripts.anti_pgd(PATH, horizon=2), pndp(0), 2, np.diag([(1 / 9) / (1 / 9 + 1), 0])
    )


@pytest.mark.parametrize("weights", [TRIANGLE, DIRECTED])
def test_whisper_loses_the_diagonal_of_the_precision(weights: list[list[Fraction]]) -> None:
    """[R^-1]_uu a step; an insider's own values leave it unchanged, the shared seed leaves none."""
    precision = np.linalg.inv(floats(COVARIANCE))
    run = transcripts.whisper(weights, COVARIANCE, horizon=2)
    for u in range(3):
        expected = precision[u, u] * np.eye(2)
        assert_loss(run, LDP, u, expected)
        others = [v for v in range(3) if v != u]
        for coalition in ((others[0],), (others[1],), tuple(others)):
            assert_loss(run, Observer(kind="insider", nodes=coalition), u, expected)
        _, exposed = loss(run, SHARED_SEED, u)
        assert exposed == (0, 1)


def test_a_dealer_over_space_and_time() -> None:
    """The T x T block of the precision; a permuted or transposed index would show."""
    rng = np.random.default_rng(3)
    lower = np.tril(rng.integers(-2, 3, (6, 6)), -1) + np.diag([1, 2, 1, 3, 1, 2])
    covariance = [[F(int(x)) for x in row] for row in lower @ lower.T]
    precision = np.linalg.inv(floats(covariance))
    run = transcripts.dealt(DIRECTED, [row[:] for row in covariance], horizon=2)
    for u in range(3):
        assert_loss(run, LDP, u, precision[u::3, u::3])


def test_decor_and_what_a_coalition_removes_from_it() -> None:
    """R = s I + c Laplacian; known pairs leave R, known node sources leave it, values do not."""
    s, c = 1.0, 4.0
    graph = nx.star_graph(3)
    run = transcripts.decor(STAR, node_variance=1, edge_variance=4, horizon=2)

    def lost(u: int, *, edges: list[tuple[int, int]], silent: tuple[int, ...] = ()) -> float:
        r = np.diag([0.0 if v in silent else s for v in range(4)])
        for i, j in edges:
            e = np.eye(4)[i] - np.eye(4)[j]
            r += c * np.outer(e, e)
        return float(np.linalg.inv(r)[u, u])

    edges = list(graph.edges)
    assert_loss(run, LDP, 1, lost(1, edges=edges) * np.eye(2))
    assert_loss(run, Observer(kind="insider", nodes=(0,)), 1, lost(1, edges=edges) * np.eye(2))
    hub = Observer(kind="secldp", nodes=(0,))
    assert_loss(run, hub, 1, np.eye(2) / s)
    leaf = Observer(kind="secldp", nodes=(2,))
    assert_loss(run, leaf, 1, lost(1, edges=[(0, 1), (0, 3)]) * np.eye(2))
    pair = Observer(kind="secldp", known_seeds=((0, 3),))
    assert_loss(run, pair, 1, lost(1, edges=[(0, 1), (0, 2)]) * np.eye(2))
    # The seed of node 1 alone: the edge still covers it, and the hub behind the edge covers that.
    own = Observer(kind="secldp", known_seeds=(1,))
    assert_loss(run, own, 1, lost(1, edges=edges, silent=(1,)) * np.eye(2))
    assert loss(run, Observer(kind="secldp", known_seeds=(1, (0, 1))), 1)[1] == (0, 1)
    assert loss(run, SHARED_SEED, 1)[1] == (0, 1)


def test_a_pairwise_seed_is_more_than_the_value_it_ends_in() -> None:
    """Hub of a star under DECOR: with its seeds every leaf stands alone, with its values not.

    A leaf's message is g + z_l + e_l; the hub knows e_l, or only n_0 = z_0 + e_1 + e_2 + e_3.
    Values: the covariance of the leaves given n_0 has the inverse of R without row and column 0.
    """
    run = transcripts.decor(STAR, node_variance=1, edge_variance=4, horizon=1)
    assert_loss(run, pndp(0), 1, [[1]])
    r = np.diag([1.0] * 4) + 4.0 * nx.laplacian_matrix(nx.star_graph(3)).toarray()
    assert_loss(run, pndp(0, own_noise="values"), 1, [[np.linalg.inv(r)[1, 1]]])
    # Counted, and its own message read: the same four values, none of them known.
    assert_loss(run, pndp(0, own_noise="counted"), 1, [[np.linalg.inv(r)[1, 1]]])
    assert_loss(run, Observer(kind="tap", nodes=(1,)), 1, [[1 / 5]])


# --- Zip-DL ---------------------------------------------------------------------------------------


def wire_covariance(weights: list[list[Fraction]], a: int) -> tuple[list[int], np.ndarray]:
    """Receivers of node a, itself included, and the covariance of what it adds for them.

    With c_v = W_va and S = sum c_j Y_j: cov(Y_v - S / (d c_v), Y_w - S / (d c_w)).
    """
    w = floats(weights)
    reached = [v for v in range(len(w)) if w[v, a]]
    c, d = w[reached, a], len(reached)
    outer = np.outer(1 / c, c)
    return reached, np.eye(d) - (outer + outer.T) / d + (c @ c) * np.outer(1 / c, 1 / c) / d**2


def wire_information(weights: list[list[Fraction]], a: int) -> float:
    """i_a = 1^T Sigma_a^-1 1 over the messages of node a that travel."""
    reached, covariance = wire_covariance(weights, a)
    travels = [i for i, v in enumerate(reached) if v != a]
    return float(np.linalg.inv(covariance[np.ix_(travels, travels)]).sum())


@pytest.mark.parametrize("weights", [TRIANGLE, PATH, STAR, DIRECTED])
def test_zip_dl_noise(weights: list[list[Fraction]]) -> None:
    """Lemma 3.1: noise sums to zero as its receivers weigh it. Lemma 3.3: its variance."""
    variance = 9
    run = transcripts.zip_dl(weights, horizon=1, variance=variance)(Traced())
    for a in run.nodes:
        reached, covariance = wire_covariance(weights, a)
        d = len(reached)
        zero = Linear({})
        for v, z in zip(reached, run.values[a], strict=True):
            zero = zero + weights[v][a] * z
            found = sum(x**2 for x in z.noise.values())
            others = sum(weights[j][a] ** 2 for j in reached if j != v)
            assert found == (F(d - 1, d) ** 2 + others / (d * weights[v][a]) ** 2) * variance
            assert_allclose(float(found), variance * covariance[reached.index(v)][reached.index(v)])
        assert not any(zero.terms.values())
    if weights is TRIANGLE:
        assert sum(x**2 for x in run.values[0][1].noise.values()) == F(2, 3) * variance


def test_zip_dl_eavesdropper_of_a_triangle() -> None:
    """Two messages with covariance [[2, -1], [-1, 2]] / 3: inverse sum 6, and x_a integrates."""
    assert_loss(transcripts.zip_dl(TRIANGLE, horizon=1), LDP, 0, [[6]])
    run = transcripts.zip_dl(TRIANGLE, horizon=2)
    assert_loss(run, LDP, 0, 6 * np.array([[2, 1], [1, 1]]))
    quarter = transcripts.zip_dl(TRIANGLE, horizon=1, variance=4)
    assert_loss(quarter, LDP, 2, [[6 / 4]])


@pytest.mark.parametrize("weights", [TRIANGLE, PATH, STAR, DIRECTED])
def test_zip_dl_eavesdropper_sees_an_integrator(weights: list[list[Fraction]]) -> None:
    """M = i_a L^T L, L lower triangular with ones (powers of the column sum of W).

    Let p = x_a + g_a. The noises of a sum to zero under its receivers' weights, so the message it
    keeps follows from those that travel: W_aa m_aa = c_a p - sum_{v != a} W_va m_av, with c_a the
    column sum of W, 1 for symmetric W. Hence

        x_a' = sum_v W_av m_va = c_a p + sum_{v != a} (W_av m_va - W_va m_av),

    whose last term has been read: up to known terms p^t = sum_{s <= t} c_a^(t-s) g_a^s. Each step
    shows p under fresh noise of covariance Sigma_a, worth i_a = 1^T Sigma_a^-1 1.
    """
    horizon = 3
    run = transcripts.zip_dl(weights, horizon=horizon)
    for a in range(len(weights)):
        column_sum = float(sum(row[a] for row in weights))
        if weights is not DIRECTED:
            assert column_sum == 1
        integrator = [
            [column_sum ** (t - s) if s <= t else 0 for s in range(horizon)] for t in range(horizon)
        ]
        ones = np.array(integrator)
        assert_loss(run, LDP, a, wire_information(weights, a) * ones.T @ ones)


@pytest.mark.parametrize("weights", [TRIANGLE, PATH, DIRECTED])
def test_zip_dl_exposed(weights: list[list[Fraction]]) -> None:
    """Open neighbourhood, or the kept message read: the weighted sum is a model without noise."""
    open_ = transcripts.zip_dl(weights, horizon=2, neighbourhood="open")
    seen = transcripts.zip_dl(weights, horizon=2, self_message="seen")
    closed = transcripts.zip_dl(weights, horizon=2)
    for u in range(3):
        for run, observer in itertools.product((open_, seen), (LDP, SHARED_SEED)):
            assert loss(run, observer, u)[1] == (0, 1)
        assert loss(seen, Observer(kind="tap", nodes=(u,)), u)[1][0] == 0
        assert loss(closed, LDP, u)[1] == ()
        assert loss(closed, SHARED_SEED, u)[1] == (0, 1)
        everyone_else = pndp(*(v for v in range(3) if v != u))
        assert loss(open_, everyone_else, u)[1] == (0, 1)
        assert loss(closed, everyone_else, u)[1] == ()


def test_zip_dl_neighbour_in_a_triangle() -> None:
    """Node 0 watches node 1 for two steps, all worked out.

    With p_0, its own noise, and p_2 taken as known, it holds Z_10 + p_1, Z_20, and in the second
    step (p_1 - Z_10 - Z_12 + Z_21) / 3 + g_1' + Z_10' and (p_1 + Z_12 - Z_21) / 3 + Z_20'. A
    node's two noises have variance 2/3 and covariance -1/3; given Z_20, Z_21 has variance 1/2.
    """
    noise = np.array([[36, -6, -6], [-6, 43, -5], [-6, -5, 43]]) / 54
    signal = np.array([[1, 1 / 3, 1 / 3], [0, 1, 0]]).T
    expected = signal.T @ np.linalg.solve(noise, signal)
    for own_noise in ("seeds", "values"):
        observer = pndp(0, own_noise=own_noise)
        assert_loss(transcripts.zip_dl(TRIANGLE, horizon=1), observer, 1, [[3 / 2]])
        assert_loss(transcripts.zip_dl(TRIANGLE, horizon=2), observer, 1, expected)


# --- the account itself ---------------------------------------------------------------------------


def protocols() -> list[Protocol]:
    return [
        transcripts.independent(DIRECTED, horizon=2, rounds=2),
        transcripts.anti_pgd(PATH, horizon=3),
        transcripts.local_strategy(DIRECTED, LOCAL),
        transcripts.whisper(PATH, COVARIANCE, horizon=2),
        transcripts.decor(PATH, node_variance=1, edge_variance=4, horizon=2),
        transcripts.zip_dl(PATH, horizon=2),
    ]


@pytest.mark.parametrize("index", range(6))
def test_to_know_more_is_to_see_more(index: int) -> None:
    run = protocols()[index]

    def chain(*observers: Observer) -> None:
        for less, more in itertools.pairwise(observers):
            (small, few), (large, many) = loss(run, less, 2), loss(run, more, 2)
            assert {*few} <= {*many}
            hidden = [t for t in range(len(small)) if t not in many]
            difference = (large - small)[np.ix_(hidden, hidden)]
            assert np.linalg.eigvalsh(difference).min(initial=0.0) > -1e-10

    counted, values, seeds = (pndp(0, own_noise=x) for x in ("counted", "values", "seeds"))
    everywhere = Observer(kind="secldp", nodes=(0,))
    chain(Observer(kind="tap", nodes=(0,)), counted, values, seeds, everywhere, SHARED_SEED)
    chain(secure_sum(0, own_noise="counted"), secure_sum(0, own_noise="values"), values)
    chain(secure_sum(0), seeds, pndp(0, 1), Observer(kind="secldp", nodes=(0, 1)))
    chain(LDP, Observer(kind="insider", nodes=(0,)), everywhere)


@pytest.mark.parametrize("index", range(6))
def test_numbers_follow_their_symbols(index: int) -> None:
    """The protocol on drawn numbers gives what its symbols say of those draws, row by row."""
    protocol = protocols()[index]
    rng = np.random.default_rng(index)
    gradients = {(t, u): rng.standard_normal(2) for t in range(3) for u in range(3)}
    drawn = Sampled(gradients, trials=4, d=2, seed=index)
    numbers, symbols = protocol(drawn), protocol(Traced())
    for observer in (LDP, pndp(0), secure_sum(1), SHARED_SEED):
        pairs = zip(transcript(numbers, observer), transcript(symbols, observer), strict=True)
        for value, symbol in pairs:
            expected = np.zeros((4, 2))
            for (kind, *name), coefficient in symbol.terms.items():
                known = gradients[*name] if kind == "gradient" else drawn.drawn[*name,]
                expected = expected + float(coefficient) * known
            assert_allclose(np.asarray(value, dtype=float), expected, atol=1e-12)


def test_rank_is_decided_or_refused() -> None:
    """R = [[1, r], [r, 1]], 1 - r^2 = (2q / (1 + q^2))^2: exact, to 60 digits, or not at all."""
    q = F(1, 10**8)
    r = (1 - q**2) / (1 + q**2)
    exact = ((1 + q**2) / (2 * q)) ** 2
    run = transcripts.whisper(PAIR, [[F(1), r], [r, F(1)]], horizon=1)(Traced())
    assert eliminated(run, LDP, 0) == ([[exact]], ())
    with mpmath.workdps(60):
        half, one = mpmath.mpf(1) / 2, mpmath.mpf(1)
        ratio = mpmath.mpf(r.numerator) / r.denominator
        run_mp = transcripts.whisper([[half] * 2] * 2, [[one, ratio], [ratio, one]], horizon=1)
        (((found,),), exposed) = eliminated(run_mp(Traced()), LDP, 0, zero=mpmath.mpf(10) ** -40)
        assert exposed == ()
        assert abs(found * exact.denominator / exact.numerator - 1) < mpmath.mpf(10) ** -40
    with pytest.raises(AssertionError, match="undecided"):
        look(run, LDP).gram(0)
