"""Accounts: what is asked, the numbers that come back, and their order."""

from __future__ import annotations

import math
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
import scipy.integrate
from hypothesis import given, settings, strategies as st

from noisedesign import InputError
from noisedesign.privacy import sensitivity as sensitivities, views as threats
from noisedesign.privacy.accounting import epsilon_of, noise_stddev_for, renyi_of
from noisedesign.privacy.exposure import UNBOUNDED, Exposure, account
from noisedesign.privacy.sensitivity import largest_eigenvalue, squared_sensitivity
from noisedesign.privacy.views.noise import NodeNoise
from noisedesign.system.participation import (
    FixedEpoch,
    MinSeparation,
    Participation,
    Patterns,
    every_step,
    single,
)
from tests.support import oracles

PATH = oracles.metropolis(nx.path_graph(4))
RING = oracles.metropolis(nx.cycle_graph(6))  # singular
OBSERVERS = ("pndp", "secldp", "insider", "secure-sum", "tap")
ALGORITHMS = ("dp-d-sgd", "muffliato", "antipgd", "local", "decor", "whisper", "zip-dl")


def squares(found: list[Exposure]) -> dict[str, float]:
    return {exposure.node: exposure.sensitivity_squared for exposure in found}


def a_graph(n: int, p: float, seed: int) -> np.ndarray:
    """Row-normalised or Metropolis-Hastings weights of a random graph, often not connected."""
    graph = nx.gnp_random_graph(n, p, seed=seed)
    return oracles.row_normalized(graph) if seed % 2 else oracles.metropolis(graph)


def an_algorithm(kind: str, w: np.ndarray, horizon: int, seed: int) -> threats.Algorithm:
    rng = np.random.default_rng(seed)
    n = len(w)
    match kind:
        case "dp-d-sgd":
            return threats.dp_d_sgd(mixing=w, horizon=horizon)
        case "muffliato":
            return threats.muffliato(mixing=w, horizon=horizon, rounds=2)
        case "antipgd":
            return threats.antipgd(mixing=w, horizon=horizon)
        case "local":
            c = np.tril(rng.standard_normal((horizon, horizon)))
            np.fill_diagonal(c, 1 + np.abs(np.diagonal(c)))
            return threats.mf_d_sgd(mixing=w, strategy=c)
        case "decor":
            return threats.decor(mixing=w, horizon=horizon, node_variance=1.0, edge_variance=2.0)
        case "whisper":
            root = rng.standard_normal((n, n + 2))
            return threats.whisper(mixing=w, covariance=root @ root.T, horizon=horizon)
        case _:
            return threats.zip_dl(mixing=w, horizon=horizon)


def an_observer(model: str, nodes: tuple[int, ...]) -> threats.Observer:
    match model:
        case "pndp":
            return threats.pndp(nodes=nodes)
        case "secldp":
            return threats.secldp(nodes=nodes)
        case "insider":
            return threats.insider(nodes=nodes)
        case "secure-sum":
            return threats.secure_sum(nodes=nodes)
        case _:
            return threats.tap(nodes=nodes)


def schemes(horizon: int) -> list[Participation]:
    found: list[Participation] = [
        single(horizon),
        every_step(horizon),
        MinSeparation(horizon=horizon, separation=2, max_participations=2),
        Patterns(horizon=horizon, steps=((0,), tuple(range(0, horizon, 2)))),
    ]
    if horizon % 2 == 0:
        found.append(FixedEpoch(epochs=2, separation=horizon // 2))
    return found


# --- by hand --------------------------------------------------------------------------------------


def test_two_nodes_by_hand() -> None:
    """n = 2, W = 1/2: the attacker sees m = g + z of the first step, then half of it again.

    The message of step 2 is (g_1 + z_1) / 2 + known + g_2 + z_2: subtracting what is known, each
    step is one fresh Gaussian mechanism. So M = I, as for a reader of all messages.
    """
    w = np.full((2, 2), 0.5)
    algorithm = threats.dp_d_sgd(mixing=w, horizon=3).named("pair", nodes=("Ann", "Bob"))
    (bob,) = account(
        algorithm,
        threats.pndp(nodes=(0,)),
        participation=every_step(3),
        noise_multiplier=2.0,
        adjacency="zero-out",
        delta=1e-5,
        responses="fixed",
    )
    assert bob.node == "Bob"
    assert bob.distance == 1
    assert bob.sensitivity_squared == pytest.approx(3.0)
    assert bob.which == "vector-exact"
    assert bob.mu == pytest.approx(math.sqrt(3) / 2)
    assert bob.epsilon is not None
    assert oracles.gaussian_delta(bob.mu, bob.epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert bob.renyi(2.0) == pytest.approx(0.75)
    assert "not covered" in bob.words


def test_a_sum_hides_who_sent_what() -> None:
    """Complete graph of four, one step: node 0 learns (m_1 + m_2 + m_3) / 4, so D^2 = 1 / 3."""
    w = np.full((4, 4), 0.25)
    algorithm = threats.dp_d_sgd(mixing=w, horizon=1)
    for exposure in account(algorithm, threats.secure_sum(nodes=(0,)), participation=single(1)):
        assert exposure.sensitivity_squared == pytest.approx(1 / 3)
    counted = threats.secure_sum(nodes=(0,), own_noise="counted")
    for exposure in account(algorithm, counted, participation=single(1)):
        assert exposure.sensitivity_squared == pytest.approx(1 / 4)
    both = threats.secure_sum(nodes=(0, 1))  # the same sum twice, less what both know
    for exposure in account(algorithm, both, participation=single(1)):
        assert exposure.sensitivity_squared == pytest.approx(1 / 2)


def test_zip_dl_leaks_more_with_every_step_of_the_wire() -> None:
    """Triangle with thirds: M = i L^T L, here i = 2 over zero-sum pairs; T^2 (T + 1)... by sums."""
    w = np.full((3, 3), 1 / 3)
    algorithm = threats.zip_dl(mixing=w, horizon=4)
    # Two messages with variance 2/3 and covariance -1/3: i = 1^T Cov^-1 1 = 2 / (1/3) = 6.
    steps = np.tril(np.ones((4, 4)))
    expected = 6 * (steps.T @ steps).sum()
    for exposure in account(
        algorithm, threats.ldp(), participation=every_step(4), responses="fixed"
    ):
        assert exposure.distance is None
        assert exposure.sensitivity_squared == pytest.approx(expected)


def test_what_is_seen_without_noise_is_said_in_words() -> None:
    algorithm = threats.dp_d_sgd(mixing=PATH, horizon=2)
    found = account(
        algorithm, threats.shared_seed(nodes=(3,)), participation=every_step(2), delta=1e-6
    )
    assert [exposure.node for exposure in found] == ["0", "1", "2"]
    for exposure in found:
        assert math.isinf(exposure.sensitivity_squared)
        assert math.isinf(exposure.mu)
        assert exposure.epsilon is not None
        assert math.isinf(exposure.epsilon)
        assert exposure.which == "unbounded"
        assert "mu is infinite" in exposure.words
    for variant in ({"neighbourhood": "open"}, {"self_message": "seen"}):
        open_zip = threats.zip_dl(mixing=PATH, horizon=2, **variant)
        for exposure in account(open_zip, threats.ldp(), participation=single(2)):
            assert math.isinf(exposure.mu)


@pytest.mark.parametrize("heard", [(0,), (0, 2)])
def test_what_is_sent_to_a_server_is_hidden_by_nothing(heard: tuple[int, ...]) -> None:
    """Of whoever is listened to all; of the others what averages tell, of 1 / n of a gradient in
    noise of 1 / n, at every step, whether or not a message that is heard has them in it."""
    algorithm = threats.cdp(mixing=PATH, horizon=3, server_noise="sigma^2/n^2")
    for scheme, count in ((single(3), 1), (every_step(3), 3)):
        found = account(
            algorithm, threats.tap(nodes=heard), participation=scheme, adjacency="zero-out"
        )
        for victim, told in enumerate(found):
            assert (told.which == UNBOUNDED) == (victim in heard)
            assert told.mu == pytest.approx(np.inf if victim in heard else count**0.5, rel=1e-9)


@pytest.mark.parametrize("how", [{}, {"neighbourhood": "open"}, {"self_message": "seen"}])
@pytest.mark.parametrize(
    "observer", [threats.ldp(), threats.tap(nodes=[1]), threats.tap(nodes=[0])]
)
def test_gradients_of_the_last_step_alone_are_seen_as_in_a_run_of_one(
    how: dict[str, str], observer: threats.Observer
) -> None:
    """With the weights of that step, and where messages show a model, without any noise."""
    other = oracles.metropolis(nx.star_graph(3))
    for now in (PATH, other):
        before = other if now is PATH else PATH
        long = threats.zip_dl(mixing=[before, now], horizon=2, **how)
        short = threats.zip_dl(mixing=now, horizon=1, **how)
        last = Patterns(horizon=2, steps=((1,),))
        found = account(long, observer, participation=last)
        alone = account(short, observer, participation=single(1))
        for told, wanted in zip(found, alone, strict=True):
            assert told.mu == pytest.approx(wanted.mu, rel=1e-9)
        assert not how or max(told.mu for told in found) == np.inf


def test_a_step_nobody_takes_part_in_exposes_nobody() -> None:
    """A pair without noise at step 1: patterns that avoid it stay protected, each step by itself.

    The attacker takes from every message what it saw before, so M = diag(1, unbounded, 1 / 4).
    """
    covariance = np.kron(np.diag([1.0, 0.0, 4.0]), np.eye(2))
    w = np.full((2, 2), 0.5)
    algorithm = threats.space_time(mixing=w, covariance=covariance, horizon=3)
    observer = threats.pndp(nodes=(0,))
    with_it = Patterns(horizon=3, steps=((0,), (0, 1)))
    (seen,) = account(algorithm, observer, participation=with_it)
    assert math.isinf(seen.mu)
    exposed = Patterns(horizon=3, steps=((0, 2), (1, 2)))  # by one pattern, at one of its steps
    for responses in ("any", "fixed"):
        for who in (observer, threats.ldp(), threats.insider(nodes=(0,))):
            seen = account(algorithm, who, participation=exposed, responses=responses)
            assert all(math.isinf(told.mu) for told in seen)
    without = Patterns(horizon=3, steps=((0, 2), (2,)))
    (hidden,) = account(algorithm, observer, participation=without)
    assert hidden.sensitivity_squared == pytest.approx(1.25)


def test_unreachable_victims_lose_nothing() -> None:
    w = np.zeros((4, 4))
    w[:2, :2] = w[2:, 2:] = 0.5
    algorithm = threats.dp_d_sgd(mixing=w, horizon=2)
    found = account(algorithm, threats.pndp(nodes=(0,)), participation=every_step(2), delta=1e-6)
    assert [exposure.distance for exposure in found] == [1, None, None]
    for exposure in found[1:]:
        assert exposure.mu == exposure.epsilon == exposure.sensitivity_squared == 0
        assert "nothing" in exposure.words


# --- order and monotonicity -----------------------------------------------------------------------


def random_runs(
    *, least: int, examples: int = 150
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """An algorithm of at least so many nodes before an observer, at random."""
    drawn = given(
        kind=st.sampled_from(ALGORITHMS),
        model=st.sampled_from(OBSERVERS),
        n=st.integers(least, 6),
        p=st.floats(0.2, 1.0),
        seed=st.integers(0, 10**6),
        horizon=st.integers(1, 4),
    )
    kept = settings(derandomize=True, max_examples=examples, deadline=None)
    return lambda test: kept(drawn(test))


@random_runs(least=3, examples=60)
def test_more_observers_never_learn_less(
    kind: str, model: str, n: int, p: float, seed: int, horizon: int
) -> None:
    algorithm = an_algorithm(kind, a_graph(n, p, seed), horizon, seed)
    for participation in schemes(horizon):
        few = squares(account(algorithm, an_observer(model, (0,)), participation=participation))
        many = squares(account(algorithm, an_observer(model, (0, 1)), participation=participation))
        for node, value in many.items():
            assert value >= few[node] * (1 - 1e-8) - 1e-10


@random_runs(least=2)
def test_never_above_a_reader_of_all_messages(
    kind: str, model: str, n: int, p: float, seed: int, horizon: int
) -> None:
    """Own noise adds nothing to all messages, where it is values; else the reader has the seeds."""
    algorithm = an_algorithm(kind, a_graph(n, p, seed), horizon, seed)
    reader = threats.secldp(nodes=(0,)) if kind == "decor" else threats.ldp()
    if kind == "decor" and model in ("insider", "tap"):
        reader = threats.ldp()
    for participation in schemes(horizon):
        found = account(algorithm, an_observer(model, (0,)), participation=participation)
        ceiling = squares(account(algorithm, reader, participation=participation))
        for exposure in found:
            if exposure.node in ceiling:
                assert exposure.sensitivity_squared <= ceiling[exposure.node] * (1 + 1e-9) + 1e-12


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(("dp-d-sgd", "muffliato", "decor", "zip-dl")),
    model=st.sampled_from(("pndp", "secure-sum", "tap", "insider")),
    n=st.integers(2, 5),
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 4),
)
def test_more_steps_never_show_less(kind: str, model: str, n: int, seed: int, horizon: int) -> None:
    """The same record takes part once; observers go on looking."""
    w = a_graph(n, 0.7, seed)
    observer = an_observer(model, (0,))
    before: dict[str, float] = {}
    for steps in range(1, horizon + 2):
        algorithm = an_algorithm(kind, w, steps, seed)
        first = Patterns(horizon=steps, steps=((0,),))
        now = squares(account(algorithm, observer, participation=first))
        for node, value in before.items():
            assert now[node] >= value * (1 - 1e-9) - 1e-12
        before = now


@settings(derandomize=True, max_examples=60, deadline=None)
@given(n=st.integers(2, 5), seed=st.integers(0, 10**6), horizon=st.integers(1, 3))
def test_more_gossip_rounds_never_show_less(n: int, seed: int, horizon: int) -> None:
    w = a_graph(n, 0.6, seed)
    before: dict[str, float] = {}
    for rounds in range(1, 5):
        algorithm = threats.muffliato(mixing=w, horizon=horizon, rounds=rounds)
        found = account(algorithm, threats.pndp(nodes=(0,)), participation=every_step(horizon))
        now = squares(found)
        for node, value in before.items():
            assert now[node] >= value * (1 - 1e-9) - 1e-12
        before = now


@settings(derandomize=True, max_examples=60, deadline=None)
@given(n=st.integers(3, 6), seed=st.integers(0, 10**6), known=st.integers(0, 6))
def test_more_known_seeds_never_hide_more(n: int, seed: int, known: int) -> None:
    w = oracles.metropolis(nx.path_graph(n))
    algorithm = threats.decor(mixing=w, horizon=2, node_variance=1.0, edge_variance=3.0)
    rng = np.random.default_rng(seed)
    seeds: list[int | tuple[int, int]] = [*range(1, n), *((i, i + 1) for i in range(n - 1))]
    order = [seeds[i] for i in rng.permutation(len(seeds))][:known]
    before = squares(account(algorithm, threats.ldp(), participation=every_step(2)))
    for count in range(1, len(order) + 1):
        observer = threats.secldp(known_seeds=order[:count])
        now = squares(account(algorithm, observer, participation=every_step(2)))
        for node, value in now.items():
            assert value >= before[node] * (1 - 1e-9)
        before = now


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(ALGORITHMS),
    model=st.sampled_from(OBSERVERS),
    n=st.integers(2, 5),
    seed=st.integers(0, 10**6),
    horizon=st.integers(1, 5),
)
def test_bounds_of_what_is_seen_keep_their_order(
    kind: str, model: str, n: int, seed: int, horizon: int
) -> None:
    algorithm = an_algorithm(kind, a_graph(n, 0.6, seed), horizon, seed)
    mechanism = threats.view(algorithm, an_observer(model, (0,)))
    for _, found in threats.grams(mechanism, list(range(1, n))):
        if found.unprotected.any():
            continue
        vector = squared_sensitivity(found.gram, every_step(horizon)).squared
        absolute = float(np.abs(found.gram).sum())
        slack = 1e-8 * max(absolute, 1e-6)
        assert oracles.best_signs(np.asarray(found.gram)) <= vector + slack
        assert vector <= horizon * largest_eigenvalue(found.gram) + slack
        assert vector <= absolute + slack


def test_epsilon_is_left_out_where_that_is_asked_for() -> None:
    algorithm = threats.dp_d_sgd(mixing=RING, horizon=4)
    observer = threats.pndp(nodes=(0,))
    for exposure in account(algorithm, observer, participation=every_step(4), delta=None):
        assert (exposure.epsilon, exposure.delta) == (None, None)


# --- units and input ------------------------------------------------------------------------------


def test_noise_and_clip_scale_as_they_should() -> None:
    algorithm = threats.dp_d_sgd(mixing=RING, horizon=4)
    observer = threats.pndp(nodes=(0,))
    (base, *_) = account(algorithm, observer, participation=every_step(4))
    assert base.adjacency == "replace"
    assert base.mu == pytest.approx(2 * math.sqrt(base.sensitivity_squared))
    assert base.delta == 1e-6
    assert base.epsilon == pytest.approx(epsilon_of(mu=base.mu, delta=1e-6), rel=1e-12)
    for adjacency in ("zero-out", "add-remove"):
        (other, *_) = account(
            algorithm,
            observer,
            participation=every_step(4),
            noise_multiplier=4.0,
            adjacency=adjacency,
        )
        assert other.sensitivity_squared == base.sensitivity_squared
        assert other.mu == pytest.approx(base.mu / 8)
        assert other.adjacency == adjacency
    stddev = noise_stddev_for(
        sensitivity_squared=base.sensitivity_squared, epsilon=1.5, delta=1e-6, clip=0.1
    )
    (met, *_) = account(
        algorithm, observer, participation=every_step(4), noise_multiplier=stddev / 0.1, delta=1e-6
    )
    assert met.epsilon == pytest.approx(1.5, rel=1e-6)


def test_renyi_divergence_by_its_integral() -> None:
    mu, alpha = 0.7, 3.0
    x = np.linspace(-15, 15, 200_001)
    p, q = np.exp(-((x - mu) ** 2) / 2), np.exp(-(x**2) / 2)
    moment = scipy.integrate.trapezoid((p / q) ** alpha * q, x) / np.sqrt(2 * np.pi)
    assert renyi_of(mu=mu, alpha=alpha) == pytest.approx(math.log(moment) / (alpha - 1), rel=1e-9)
    assert renyi_of(mu=0.0, alpha=2.0) == 0
    assert math.isinf(renyi_of(mu=math.inf, alpha=2.0))
    for wrong in ({"mu": -1.0, "alpha": 2.0}, {"mu": 1.0, "alpha": 1.0}):
        with pytest.raises(InputError):
            renyi_of(**wrong)


def test_progress_and_chosen_victims() -> None:
    calls: list[tuple[int, int]] = []
    found = account(
        threats.dp_d_sgd(mixing=RING, horizon=2),
        threats.pndp(nodes=(0,)),
        participation=single(2),
        victims=[3, 1],
        progress=lambda *done: calls.append(done),
    )
    assert [exposure.node for exposure in found] == ["3", "1"]
    assert calls == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_multiplier": float("nan")}, r"noise_multiplier: expected a number in \(0, inf\)"),
        ({"noise_multiplier": float("inf")}, r"noise_multiplier: expected"),
        ({"noise_multiplier": 0.0}, r"noise_multiplier: expected"),
        ({"adjacency": "swap"}, r"adjacency: expected one of replace, zero-out, add-remove"),
        ({"delta": 1.0}, r"delta: expected a number in \(0, 1\)"),
        ({"victims": [0]}, r"victims: expected nodes other than the observer, got 0, who looks"),
        ({"victims": [6]}, r"victims: expected nodes 0 to 5, got 6"),
        ({"participation": single(3)}, r"participation: expected the horizon of the algorithm, 4"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], message: str) -> None:
    common: dict[str, object] = {"participation": single(4)}
    with pytest.raises(InputError, match=message):
        account(
            threats.dp_d_sgd(mixing=RING, horizon=4),
            threats.pndp(nodes=(0,)),
            **(common | arguments),  # type: ignore[arg-type]
        )


def test_what_hides_nothing_from_a_reader_of_all_is_no_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three nodes share two noises: all messages expose them, and only the rest of R is weighed.

    Node 0 alone is hidden by its own noise: M = C^T C, C = I + 0.8 of three steps before, and the
    steps 0 and 3 move it by 1.64 + 1.64 + 2 * 0.8. Densest patterns, two steps apart, attain 3.28;
    [R^+]_00 = 1 - 3/4 * 4/15 = 0.8 times the bound of all messages is 3.9, and no bound.
    """
    monkeypatch.setattr(sensitivities, "MAX_LISTED", 1)
    factor = np.array([[1.0, 0.0], [0.0, 1.0], [math.sqrt(4 / 15), math.sqrt(11 / 15)]])
    strategy = np.eye(7) + 0.8 * np.eye(7, k=-3)
    noise = NodeNoise(factor=factor, seeds=None, strategy=strategy)
    algorithm = threats.Algorithm(name="two noises", mixing=np.eye(3), horizon=7, noise=noise)
    scheme = MinSeparation(horizon=7, separation=2, max_participations=2)
    (found,) = account(
        algorithm, threats.tap(nodes=[0]), participation=scheme, victims=[0], responses="fixed"
    )
    assert found.sensitivity_squared == pytest.approx(2 * 1.64 + 2 * 0.8, rel=1e-12)
    (exposed,) = account(algorithm, threats.ldp(), participation=scheme, victims=[0])
    assert exposed.which == "unbounded"
