"""Views of observers: their structure, their closed forms, and the routes to the same numbers.

Literal transcripts of every algorithm are compared in ``test_threats_brute_force.py``; here are the
facts that need no brute force, and cases too large for it.
"""

from __future__ import annotations

import mpmath
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign import InputError
from noisedesign.privacy import views as threats
from noisedesign.privacy.views import gram as routes
from noisedesign.privacy.views.noise import Gram, Knowledge, VictimGram
from noisedesign.privacy.views.observers import distances
from tests.support import oracles

PATH = oracles.metropolis(nx.path_graph(5))
RING = oracles.metropolis(nx.cycle_graph(6))  # singular
FLORENTINE = oracles.metropolis(nx.florentine_families_graph())


def covariance(size: int, seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((size, size + 3))
    return root @ root.T / size


def grams_of(
    algorithm: threats.Algorithm, observer: threats.Observer, victims: list[int]
) -> list[VictimGram]:
    found = list(threats.grams(threats.view(algorithm, observer), victims))
    assert [victim for victim, _ in found] == victims
    return [gram for _, gram in found]


def dense(gram: Gram) -> np.ndarray:
    return gram if isinstance(gram, np.ndarray) else gram.toarray()


def pseudo_inverse_gram(mechanism: threats.LinearMechanism, victim: int) -> np.ndarray:
    """A_u^T B^+T B^+ A_u of the stacked matrices."""
    a, b = mechanism.dense()
    whitened = np.linalg.pinv(b, rcond=1e-11) @ a[:, victim :: len(mechanism.transition)]
    return whitened.T @ whitened


# --- two routes to the same numbers ---------------------------------------------------------------


@pytest.mark.parametrize("weights", [oracles.metropolis, oracles.row_normalized])
@pytest.mark.parametrize("horizon", [1, 2, 7, 60])
def test_the_stationary_filter_and_the_recursion_agree(
    weights: object, horizon: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(weights)
    w = weights(nx.florentine_families_graph())
    algorithm = threats.whisper(mixing=w, covariance=covariance(15), horizon=horizon)
    victims = [0, 3, 14]
    for observer in (
        threats.pndp(nodes=(1, 4)),
        threats.pndp(nodes=(1,), own_noise="counted"),
        threats.secure_sum(nodes=(8,)),
        threats.tap(nodes=(8, 2)),
    ):
        fast = grams_of(algorithm, observer, victims)
        with monkeypatch.context() as patch:
            patch.setattr(routes, "stationary", lambda *_: None)
            slow = grams_of(algorithm, observer, victims)
        for one, other in zip(fast, slow, strict=True):
            scale = max(np.abs(other.gram).max(), 1e-6)
            np.testing.assert_allclose(one.gram, other.gram, rtol=0, atol=1e-11 * scale)
            assert not one.unprotected.any()
            assert not other.unprotected.any()


def exact_gram(mechanism: threats.LinearMechanism, victim: int) -> np.ndarray:
    """A^T (N N^T)^-1 A of the stacked observations, in 60 digits."""
    horizon, m, p = mechanism.horizon, len(mechanism.output), mechanism.state_noise.shape[1]
    with mpmath.workdps(60):
        output = [mpmath.matrix(mechanism.output.tolist())]
        for _ in range(horizon):
            output.append(output[-1] * mpmath.matrix(mechanism.transition.tolist()))
        fresh = mpmath.matrix(mechanism.output_noise.tolist())
        later = mpmath.matrix(mechanism.state_noise.tolist())
        moved, noise = mpmath.zeros(horizon * m, horizon), mpmath.zeros(horizon * m, horizon * p)
        for t in range(horizon):
            for s in range(t + 1):
                moved[t * m : (t + 1) * m, s] = output[t - s][:, victim]
                part = fresh if s == t else output[t - s - 1] * later
                noise[t * m : (t + 1) * m, s * p : (s + 1) * p] = part
        gram = moved.T * mpmath.inverse(noise * noise.T) * moved
        return np.array(gram.tolist(), dtype=np.float64)


@pytest.mark.parametrize("loud", [1.0, 1e4, 1e6])
@pytest.mark.parametrize("graph", [nx.path_graph(8), nx.cycle_graph(8)], ids=["path", "ring"])
def test_loud_noise_that_mixes_slowly_drowns_no_digits(graph: nx.Graph, loud: float) -> None:
    """What nodes add up while they forget slowly is 1e10 times what a sum is told with."""
    w = 1e-4 * oracles.metropolis(graph) + (1 - 1e-4) * np.eye(8)
    variances = np.where(np.arange(8) % 2 == 1, loud, 1.0)
    algorithm = threats.whisper(mixing=w, covariance=np.diag(variances), horizon=2)
    mechanism = threats.view(algorithm, threats.secure_sum(nodes=(1,)))
    for victim, found in threats.grams(mechanism, [0, 2]):
        exact = exact_gram(mechanism, victim)
        assert not found.unprotected.any()
        np.testing.assert_allclose(
            dense(found.gram), exact, rtol=0, atol=1e-9 * np.abs(exact).max()
        )


def test_factoring_the_observations_agrees_with_the_recursion() -> None:
    algorithm = threats.dp_d_sgd(mixing=FLORENTINE, horizon=20)
    mechanism = threats.view(algorithm, threats.pndp(nodes=(8,)))
    assert routes.white_in_time(mechanism)
    for (_, one), (_, other) in zip(
        routes.by_innovations(mechanism, [0, 5]),
        routes.by_covariance(mechanism, [0, 5]),
        strict=True,
    ):
        np.testing.assert_allclose(one.gram, other.gram, atol=1e-12)


def test_a_toeplitz_strategy_is_undone_before_the_recursion() -> None:
    """The two routes meet where a strategy all but commutes with shifts in time."""
    column = 0.6 ** np.arange(12)
    toeplitz = np.tril(column[np.abs(np.subtract.outer(np.arange(12), np.arange(12)))])
    bent = toeplitz.copy()
    bent[5, 3] += 1e-9
    observer = threats.pndp(nodes=(2,))
    straight = threats.view(threats.mf_d_sgd(mixing=PATH, strategy=toeplitz), observer)
    other = threats.view(threats.mf_d_sgd(mixing=PATH, strategy=bent), observer)
    assert routes.white_in_time(straight)
    assert not routes.white_in_time(other)
    for victim in (0, 1):
        (_, one), (_, two) = *threats.grams(straight, [victim]), *threats.grams(other, [victim])
        np.testing.assert_allclose(one.gram, two.gram, atol=1e-7)
        np.testing.assert_allclose(one.gram, pseudo_inverse_gram(straight, victim), atol=1e-11)
        # It is not the Gram of white noise, nor that of all messages.
        assert np.abs(one.gram - toeplitz.T @ toeplitz).max() > 0.1


@pytest.mark.parametrize("own_noise", ["seeds", "counted"])
def test_long_horizons_are_the_same_numbers_in_sparse_form(
    own_noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = oracles.metropolis(nx.complete_graph(4))
    algorithm = threats.dp_d_sgd(mixing=(w + np.eye(4)) / 2, horizon=200)
    observer = threats.secure_sum(nodes=(0,), own_noise=own_noise)
    full = grams_of(algorithm, observer, [1, 2])
    monkeypatch.setattr(routes, "DENSE_HORIZON", 16)
    for one, other in zip(full, grams_of(algorithm, observer, [1, 2]), strict=True):
        assert not isinstance(other.gram, np.ndarray)
        assert other.gram.nnz < 200 * 170  # responses that have faded are left out
        np.testing.assert_allclose(one.gram, other.gram.toarray(), atol=1e-13)


def test_ten_thousand_steps_of_a_sum_fit_the_limit() -> None:
    """M of a single-node view is a projector's block; its row sums settle at 1 / n."""
    graph = nx.gnp_random_graph(100, 0.15, seed=0)
    w = oracles.metropolis(graph)
    algorithm = threats.dp_d_sgd(mixing=w, horizon=10_000)
    (gram,) = grams_of(algorithm, threats.tap(nodes=(3,)), [7])
    assert not isinstance(gram.gram, np.ndarray)
    total = float(gram.gram.sum())
    assert total / 10_000 == pytest.approx(1 / 100, rel=0.02)
    # The first thousand steps of a run of ten thousand know more than a run of one thousand.
    short = threats.dp_d_sgd(mixing=w, horizon=1000)
    (part,) = grams_of(short, threats.tap(nodes=(3,)), [7])
    corner = gram.gram[:1000, :1000].toarray()
    assert np.linalg.eigvalsh(corner - dense(part.gram)).min() > -1e-10


def test_a_start_that_is_all_but_seen_is_left_to_the_recursion() -> None:
    """R^T R = P (I - O P)^-1, of diagonal matrices by hand; its digits go with I - O P."""
    root = routes._update_root(np.diag([4.0, 1.0]), np.diag([0.1, 0.5]))
    assert root is not None
    np.testing.assert_allclose(root.T @ root, np.diag([4 / 0.6, 1 / 0.5]), rtol=1e-14)
    nearly = routes._update_root(np.eye(2), np.diag([1 - 1e-5, 0.5]))
    assert nearly is not None
    np.testing.assert_allclose(nearly.T @ nearly, np.diag([1e5, 2.0]), rtol=1e-10)
    for least in (1e-7, 1e-12, 0.0, -1e-3):  # what is left of the start, relative
        assert routes._update_root(np.eye(2), np.diag([1 - least, 0.5])) is None


def test_what_has_no_stationary_filter_is_left_to_the_recursion() -> None:
    def filtered(
        algorithm: threats.Algorithm, observer: threats.Observer
    ) -> routes.Stationary | None:
        m = threats.view(algorithm, observer)
        return routes.stationary(m)

    plain = threats.dp_d_sgd(mixing=PATH, horizon=3)
    assert filtered(plain, threats.pndp(nodes=(0,))) is not None
    # The mean of all models never receives noise: no filter forgets where it started.
    zero_sum = threats.zip_dl(mixing=PATH, horizon=3)
    assert filtered(zero_sum, threats.pndp(nodes=(0,))) is None
    # Two walks that are only seen as their sum cannot be told apart.
    apart = np.zeros((5, 5))
    apart[0, [1, 3]] = 0.5
    apart[1:3, 1:3] = apart[3:, 3:] = 0.5
    walks = threats.dp_d_sgd(mixing=apart, horizon=3)
    assert filtered(walks, threats.secure_sum(nodes=(0,))) is None
    # An observation without noise.
    flat = np.diag([0.0, 1, 1, 1, 1])
    quiet = threats.whisper(mixing=PATH, covariance=flat, horizon=3)
    assert filtered(quiet, threats.tap(nodes=(0,))) is None


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    n=st.integers(2, 6),
    p=st.floats(0.2, 1.0),
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 5),
    rounds=st.integers(1, 4),
    counted=st.booleans(),
)
def test_grams_are_those_of_the_stacked_pseudo_inverse(
    n: int, p: float, seed: int, horizon: int, rounds: int, counted: bool
) -> None:
    graph = nx.gnp_random_graph(n, p, seed=seed)  # often in several components
    adjacency = nx.to_numpy_array(graph) + np.eye(n)
    w = adjacency / adjacency.sum(axis=1, keepdims=True)
    algorithm = threats.muffliato(mixing=w, horizon=horizon, rounds=rounds)
    own_noise = "counted" if counted else "seeds"
    mechanism = threats.view(algorithm, threats.pndp(nodes=(0,), own_noise=own_noise))
    hops = nx.single_source_shortest_path_length(graph, 0)
    for victim, found in threats.grams(mechanism, list(range(1, n))):
        np.testing.assert_allclose(found.gram, pseudo_inverse_gram(mechanism, victim), atol=1e-9)
        heard = hops.get(victim, np.inf) <= horizon * rounds
        assert (np.abs(found.gram).max() > 0) == heard


# --- what the views are ---------------------------------------------------------------------------


def test_the_operators_run_the_algorithm() -> None:
    """A G and B Z against messages passed by hand, for two steps of a path of three."""
    w = oracles.metropolis(nx.path_graph(3))
    mechanism = threats.view(threats.dp_d_sgd(mixing=w, horizon=2), threats.tap(nodes=(1,)))
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((2, 3, 4))
    first = gradients[0]
    second = w @ first + gradients[1]
    sign = np.sign(mechanism.output[0, 1])
    expected = np.stack([sign * first[1:2], sign * second[1:2]])
    np.testing.assert_allclose(np.stack(mechanism.gradient_rows(gradients)), expected, atol=1e-14)
    white = rng.standard_normal((2, 3, 4))
    noisy = np.stack(mechanism.noise_rows(white))
    np.testing.assert_allclose(noisy, np.stack(mechanism.gradient_rows(white)), atol=1e-14)
    a, b = mechanism.dense()
    assert a.shape == b.shape == (2, 6)


def test_readers_of_all_messages_in_closed_form() -> None:
    c = np.tril(np.random.default_rng(2).standard_normal((4, 4))) + 3 * np.eye(4)
    (gram,) = grams_of(threats.mf_d_sgd(mixing=PATH, strategy=c), threats.ldp(), [3])
    np.testing.assert_allclose(gram.gram, c.T @ c)
    r = covariance(5)
    algorithm = threats.whisper(mixing=PATH, covariance=r, horizon=3)
    precision = np.linalg.inv(r)
    for observer in (threats.ldp(), threats.insider(nodes=(0, 4)), threats.secldp(nodes=(0, 4))):
        (gram,) = grams_of(algorithm, observer, [2])
        np.testing.assert_allclose(gram.gram, precision[2, 2] * np.eye(3), rtol=1e-10)


def test_a_known_pairwise_seed_leaves_the_covariance() -> None:
    algorithm = threats.decor(mixing=PATH, horizon=1, node_variance=1.0, edge_variance=3.0)
    laplacian = nx.laplacian_matrix(nx.path_graph(5)).toarray()
    known = np.zeros((5, 5))
    known[np.ix_([1, 2], [1, 2])] = [[1, -1], [-1, 1]]
    for seeds, remaining in (((), laplacian), (((2, 1),), laplacian - known)):
        (gram,) = grams_of(algorithm, threats.secldp(known_seeds=seeds), [2])
        expected = np.linalg.inv(np.eye(5) + 3 * remaining)[2, 2]
        assert gram.gram[0, 0] == pytest.approx(expected, rel=1e-12)
    # The seed of node 2 itself leaves only what it shares with its neighbours.
    (gram,) = grams_of(algorithm, threats.secldp(known_seeds=(2,)), [2])
    rest = np.diag([1.0, 1, 0, 1, 1]) + 3 * laplacian
    assert gram.gram[0, 0] == pytest.approx(np.linalg.inv(rest)[2, 2], rel=1e-10)
    assert not gram.unprotected.any()
    # With both pairwise seeds too, nothing hides it.
    everything = threats.secldp(known_seeds=(2, (1, 2), (2, 3)))
    (gram,) = grams_of(algorithm, everything, [2])
    assert gram.unprotected.all()


def test_enough_rounds_show_an_attacker_everything() -> None:
    """Messages of K >= n rounds span all directions: the view is that of all messages, M = I.

    After one round the first message of a neighbour is its gradient, later ones hold more that is
    not known, and a gradient comes late by as many steps as its node is further away.
    """
    for rounds in (4, 60):
        algorithm = threats.muffliato(mixing=PATH, horizon=3, rounds=rounds)
        for gram in grams_of(algorithm, threats.pndp(nodes=(0,)), [1, 2, 3, 4]):
            np.testing.assert_allclose(gram.gram, np.eye(3), atol=1e-9)
    once = threats.muffliato(mixing=PATH, horizon=3, rounds=1)
    near, *others = grams_of(once, threats.pndp(nodes=(0,)), [1, 2, 3, 4])
    assert near.gram[0, 0] == pytest.approx(1)
    assert near.gram[2, 2] < 0.9
    for distance, gram in enumerate(others, start=1):
        np.testing.assert_allclose(dense(gram.gram)[3 - distance :], 0, atol=1e-12)
        assert np.linalg.norm(dense(gram.gram), 2) < 0.9


def test_noise_that_spares_a_direction_exposes_it() -> None:
    """R = v v^T of rank one: only changes along v are hidden, and no unit change is."""
    v = np.array([1.0, 2, 3, 4, 5])
    algorithm = threats.whisper(mixing=PATH, covariance=np.outer(v, v), horizon=2)
    for observer in (threats.ldp(), threats.pndp(nodes=(2,)), threats.tap(nodes=(0, 1))):
        assert grams_of(algorithm, observer, [1])[0].unprotected.all()
    # One message a step carries noise, that of step 1 as 4/3 of it into step 2, where 2/3 of the
    # gradient of node 0 and 1/3 of that of node 1 arrive: A_0 = [[1, 0], [2/3 - 4/3, 1]].
    own, other = grams_of(algorithm, threats.tap(nodes=(0,)), [0, 1])
    np.testing.assert_allclose(own.gram, [[13 / 9, -2 / 3], [-2 / 3, 1]], atol=1e-12)
    np.testing.assert_allclose(other.gram, [[1 / 9, 0], [0, 0]], atol=1e-12)
    assert not own.unprotected.any()
    assert not other.unprotected.any()


def test_a_faint_trace_without_noise_is_seen() -> None:
    """Weights of 1e-2 let a millionth of node 4 through, and whoever knows all noise sees it.

    A gradient is in the messages of node 1 after as many steps as node 1 is away.
    """
    w = np.eye(5) - 1e-2 * nx.laplacian_matrix(nx.path_graph(5)).toarray()
    knowing = threats.Observer(
        model="pndp", sees="received", coalition=(0,), knows=Knowledge(everything=True)
    )
    algorithm = threats.dp_d_sgd(mixing=w, horizon=6)
    victims = [1, 2, 3, 4]
    for victim, gram in zip(victims, grams_of(algorithm, knowing, victims), strict=True):
        assert gram.unprotected.tolist() == [step + victim - 1 < 6 for step in range(6)]


def test_a_faint_noise_is_noise() -> None:
    """DECOR with noise of 1e-8 at the nodes and of 1 on the edge: much is seen, and not all.

    R = e^2 I + [[1, -1], [-1, 1]] has [R^-1]_ii = (e^2 + 1) / (e^2 (e^2 + 2)), without the edge's
    noise 1 / e^2.
    """
    e = 1e-8
    algorithm = threats.decor(
        mixing=np.full((2, 2), 0.5), horizon=1, node_variance=e**2, edge_variance=1.0
    )
    for observer, expected in (
        (threats.ldp(), (e**2 + 1) / (e**2 * (e**2 + 2))),
        (threats.secldp(known_seeds=((0, 1),)), 1 / e**2),
    ):
        for gram in grams_of(algorithm, observer, [0, 1]):
            assert not gram.unprotected.any()
            np.testing.assert_allclose(gram.gram, [[expected]], rtol=1e-6)


def test_noise_that_all_but_repeats_itself_keeps_its_digits() -> None:
    """C^-1 = [[1, 0], [1, e]]: the noise of step 2 is that of step 1 but for e = 1e-7.

    Two nodes that average know all of each other, so that M = C^T C; the covariance of what is seen
    has a pivot of 1e-14, of which two digits are right.
    """
    e = 1e-7
    strategy = np.array([[1, 0], [-1 / e, 1 / e]])
    mechanism = threats.view(
        threats.mf_d_sgd(mixing=np.full((2, 2), 0.5), strategy=strategy), threats.pndp(nodes=(0,))
    )
    assert not routes.white_in_time(mechanism)
    ((_, found),) = threats.grams(mechanism, [1])
    assert not found.unprotected.any()
    np.testing.assert_allclose(found.gram, strategy.T @ strategy, rtol=1e-6)


def test_unreachable_and_lonely() -> None:
    w = np.zeros((5, 5))
    w[:2, :2] = 0.5
    w[2:4, 2:4] = 0.5
    w[4, 4] = 1.0
    algorithm = threats.dp_d_sgd(mixing=w, horizon=3)
    for observer in (
        threats.pndp(nodes=(0,)),
        threats.secure_sum(nodes=(0,)),
        threats.tap(nodes=(1,)),
    ):
        for victim in (2, 3, 4):
            assert not grams_of(algorithm, observer, [victim])[0].gram.any()
    for gram in grams_of(algorithm, threats.pndp(nodes=(4,)), [0, 1, 2, 3]):
        assert not gram.gram.any()
        assert not gram.unprotected.any()


def test_distances_follow_the_messages() -> None:
    w = np.array([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 1, 0], [0.5, 0, 0, 0.5]])
    # 0 hears 1, 1 hears 2, 3 hears 0.
    assert distances(w, threats.pndp(nodes=(0,))) == [0, 1, 2, None]
    assert distances(w, threats.pndp(nodes=(3, 1))) == [1, 0, 1, 0]
    assert distances(w, threats.tap(nodes=(2,))) == [None, None, 0, None]
    assert distances(w, threats.ldp()) == [None] * 4


# --- knowledge and input --------------------------------------------------------------------------


def test_values_of_noise_tell_less_than_its_seeds() -> None:
    algorithm = threats.decor(mixing=RING, horizon=2, node_variance=1.0, edge_variance=2.0)
    noise = algorithm.noise
    assert isinstance(noise, threats.noise.NodeNoise)
    r = np.eye(6) + 2 * nx.laplacian_matrix(nx.cycle_graph(6)).toarray()
    values = noise.remaining(Knowledge(values=frozenset({0})))
    schur = r - np.outer(r[:, 0], r[0]) / r[0, 0]
    np.testing.assert_allclose(values @ values.T, schur, atol=1e-12)
    seeds = noise.remaining(Knowledge(holders=frozenset({0})))
    shared = np.diag([3.0, 2, 0, 0, 0, 2]) + 2 * np.diag([1, 0, 0, 0, 0, 0])
    shared[0, 1] = shared[1, 0] = shared[0, 5] = shared[5, 0] = -2
    np.testing.assert_allclose(seeds @ seeds.T, r - shared, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: threats.pndp(nodes=()), r"observer\.nodes: expected one or more .*got none"),
        (lambda: threats.pndp(nodes=(1, 1)), r"observer\.nodes: .*different nodes"),
        (lambda: threats.pndp(nodes=(-1,)), r"observer\.nodes: expected an integer >= 0"),
        (lambda: threats.pndp(nodes=(0,), own_noise="none"), r"observer\.own_noise: expected one"),
        (lambda: threats.secldp(known_seeds=((1, 1),)), r"observer\.known_seeds: .*different"),
        (lambda: threats.secldp(known_seeds=((1, 2, 3),)), r"observer\.known_seeds"),
        (
            lambda: threats.mf_d_sgd(mixing=PATH, strategy=np.ones((2, 2))),
            r"strategy: expected a lower triangular",
        ),
        (
            lambda: threats.mf_d_sgd(mixing=PATH, strategy=np.diag([1.0, 0])),
            r"strategy: expected a regular",
        ),
        (
            lambda: threats.whisper(mixing=PATH, covariance=np.eye(4), horizon=1),
            r"covariance: expected shape \(5, 5\)",
        ),
        (
            lambda: threats.whisper(mixing=PATH, covariance=-np.eye(5), horizon=1),
            r"covariance: expected a positive semidefinite",
        ),
        (
            lambda: threats.whisper(mixing=PATH, covariance=np.full((5, 5), np.nan), horizon=1),
            r"covariance: expected finite",
        ),
        (
            lambda: threats.whisper(mixing=PATH, covariance=np.eye(5, dtype=np.float32), horizon=1),
            r"covariance: expected a float64",
        ),
        (
            lambda: threats.decor(
                mixing=PATH, horizon=1, node_variance=float("inf"), edge_variance=1.0
            ),
            r"algorithm\.node_variance: expected a finite number",
        ),
        (
            lambda: threats.zip_dl(mixing=PATH, horizon=1, variance=-1.0),
            r"algorithm\.variance: expected a variance >= 0",
        ),
        (lambda: threats.dp_d_sgd(mixing=PATH, horizon=0), r"horizon: expected an integer >= 1"),
        (
            lambda: threats.muffliato(mixing=PATH, horizon=1, rounds=0),
            r"algorithm\.rounds: expected an integer",
        ),
        (
            lambda: threats.dp_d_sgd(mixing=2 * PATH, horizon=1),
            r"mixing: expected rows that sum to 1",
        ),
    ],
)
def test_bad_values_are_named(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    ("observer", "message"),
    [
        (threats.pndp(nodes=(5,)), r"observer\.nodes: expected nodes 0 to 4, got 5"),
        (threats.tap(nodes=(9,)), r"observer\.nodes: expected nodes 0 to 4, got 9"),
        (threats.pndp(nodes=(0, 1, 2, 3, 4)), r"observer\.nodes: .*outside the coalition"),
        (threats.secldp(known_seeds=((0, 1),)), r"known_seeds: expected seeds that dp-d-sgd has"),
    ],
)
def test_observers_fit_the_algorithm(observer: threats.Observer, message: str) -> None:
    with pytest.raises(InputError, match=message):
        threats.view(threats.dp_d_sgd(mixing=PATH, horizon=2), observer)


def test_too_many_observations_of_noise_with_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "LARGEST", 11)
    algorithm = threats.mf_d_sgd(mixing=PATH, strategy=np.diag([1.0, 2, 3, 4]))
    assert len(grams_of(algorithm, threats.pndp(nodes=(2,)), [0])) == 1  # two neighbours
    with pytest.raises(InputError, match=r"participation: expected at most 11 observed.*got 12"):
        grams_of(algorithm, threats.tap(nodes=(0, 1, 2)), [0])
