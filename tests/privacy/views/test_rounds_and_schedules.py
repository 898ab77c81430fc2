"""K rounds, schedules, scales of nodes, the average: against messages stacked one by one.

Here every message of every round is written as a row of coefficients on all gradients and all
noise, in the order in which nodes send them, and known noise is stacked below. The squared
sensitivity Gram of a victim is A_u^T (B B^T)^+ A_u; where a part of A_u lies outside the range of B
it is seen without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.privacy import views
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Algorithm, Observer
from noisedesign.privacy.views.noise import MessageNoise, NodeNoise, ServerNoise, SpaceTimeNoise
from noisedesign.system.participation import FixedEpoch, single

Array = np.ndarray

PATH = np.array([[2.0, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
TREE = np.array([[3.0, 1, 0, 0], [1, 1, 1, 1], [0, 1, 3, 0], [0, 1, 0, 3]]) / 4
PAIRS = np.kron(np.eye(2), np.full((2, 2), 0.5))
LAZY = (np.eye(4) + PATH) / 2
ROWS = np.array([[0.7, 0.3, 0, 0], [0.2, 0.5, 0.3, 0], [0, 0.4, 0.4, 0.2], [0, 0, 0.6, 0.4]])

SCHEDULES: dict[str, Any] = {
    "path": PATH,
    "rows": ROWS,
    "two": [TREE, PAIRS],
    "three": [LAZY, PAIRS, ROWS],
}


@dataclass
class Run:
    """All that happens, as coefficients on (gradients, noise sources): time-major columns."""

    horizon: int
    nodes: int
    sources: int

    @property
    def width(self) -> int:
        return self.horizon * (self.nodes + self.sources)

    def gradient(self, t: int, u: int) -> Array:
        return np.eye(self.width)[t * self.nodes + u]

    def source(self, k: int) -> Array:
        return np.eye(self.width)[self.horizon * self.nodes + k]


def stacked(algorithm: Algorithm, observer: Observer) -> tuple[Array, Array]:
    """A, and B with the known noise stacked below, by hand."""
    n, horizon, noise = len(algorithm.mixing), algorithm.horizon, algorithm.noise
    rounds, knows = algorithm.rounds, observer.knows
    inside, listened = set(observer.coalition), set(observer.listened)
    per_step = {
        NodeNoise: lambda: noise.factor.shape[1],
        SpaceTimeNoise: lambda: n,
        ServerNoise: lambda: 1,
        MessageNoise: lambda: rounds * n * n,
    }[type(noise)]()
    run = Run(horizon, n, per_step)
    over_time = np.eye(horizon)
    if getattr(noise, "strategy", None) is not None:
        over_time = np.linalg.inv(noise.strategy)

    def white(t: int, k: int) -> Array:
        """What source k makes at step t."""
        return sum(over_time[t, s] * run.source(s * per_step + k) for s in range(horizon))

    state, seen, known = np.zeros((n, run.width)), [], []
    for t in range(horizon):
        w = algorithm.phases[t % len(algorithm.phases)]
        state = state + np.array([run.gradient(t, u) for u in range(n)])
        if isinstance(noise, NodeNoise | SpaceTimeNoise):
            if isinstance(noise, NodeNoise):
                added = np.array(
                    [
                        sum(noise.factor[u, k] * white(t, k) for k in range(per_step))
                        for u in range(n)
                    ]
                )
                holders = noise.seeds
            else:
                rows = noise.factor[t * n : (t + 1) * n]
                added = np.zeros((n, run.width))
                added[:, horizon * n :] = rows
                holders = None
            state = state + added
            told = set(knows.values)
            if holders is None:
                told |= set(knows.revealed)
            known += [added[u] for u in told]
            if holders is not None:
                for k, held in enumerate(holders):
                    if held in knows.seeds or held & knows.holders:
                        known.append(white(t, k))
            if knows.everything:
                known += list(added)
        for r in range(rounds):
            if isinstance(noise, ServerNoise):
                if r > 0:  # nobody has anything but the average any more
                    continue
                if observer.sees == "all":
                    seen += list(state)
                if observer.sees == "sent":
                    seen += [state[u] for u in listened]
                average = state.mean(axis=0) + noise.stddev * white(t, 0)
                if knows.everything:
                    known.append(white(t, 0))
                if observer.sees in ("received", "sums", "mean"):
                    seen.append(average)
                state = np.tile(average, (n, 1))
                continue
            sent: dict[tuple[int, int], Array] = {}
            for a in range(n):
                receivers = [v for v in range(n) if w[v, a] != 0]
                drawn = {v: np.zeros(run.width) for v in receivers}
                if isinstance(noise, MessageNoise):
                    circle = [v for v in receivers if noise.closed or v != a]
                    scale = 1.0 if noise.scales is None else noise.scales[a]
                    own = {
                        v: scale * np.sqrt(noise.variance) * white(t, (r * n + a) * n + v)
                        for v in circle
                    }
                    total = sum((w[v, a] * own[v] for v in circle), np.zeros(run.width))
                    for v in circle:
                        drawn[v] = own[v] - total / (len(circle) * w[v, a])
                    if knows.everything or a in knows.revealed:
                        known += list(drawn.values())
                for v in receivers:
                    sent[a, v] = state[a] + drawn[v]
            seen_self = not isinstance(noise, MessageNoise)
            for (a, v), message in sent.items():
                travels = a != v
                match observer.sees:
                    case "all":
                        if travels or seen_self or noise.self_seen:
                            seen.append(message)
                    case "sent":
                        if a in listened and (travels or seen_self or noise.self_seen):
                            seen.append(message)
                    case "received":
                        # Its own messages, to whomever, are known to it as well.
                        near = v in inside or a in inside
                        if near and (travels or seen_self or noise.self_seen):
                            seen.append(message)
            moved = np.zeros_like(state)
            for (a, v), message in sent.items():
                moved[v] += w[v, a] * message
            if observer.sees == "sums":
                seen += [moved[v] for v in inside]
            state = moved
        if observer.sees == "mean" and not isinstance(noise, ServerNoise):
            seen.append(state.mean(axis=0))
    rows = np.array([*seen, *known])
    return rows[:, : horizon * n], rows[:, horizon * n :]


def expected(algorithm: Algorithm, observer: Observer, victim: int) -> tuple[Array, Array]:
    """Gram of the victim, and which of its gradients are seen without noise."""
    n, horizon = len(algorithm.mixing), algorithm.horizon
    signal, noise = stacked(algorithm, observer)
    # Gradients of those who look are known to them: stacked as rows without noise.
    inside = [t * n + u for t in range(horizon) for u in observer.coalition]
    columns = [t * n + victim for t in range(horizon)]
    known = np.zeros((len(inside), noise.shape[1]))
    signal, noise = np.vstack([signal, np.eye(horizon * n)[inside]]), np.vstack([noise, known])
    own = signal[:, inside]
    signal = signal - own @ np.linalg.pinv(own) @ signal if len(inside) else signal
    noise = noise - own @ np.linalg.pinv(own) @ noise if len(inside) else noise
    a = signal[:, columns]
    left, values, _ = np.linalg.svd(noise, full_matrices=True)
    rank = int((values > 1e-9 * max(values.max(initial=0.0), 1.0)).sum())
    exposed = np.abs(left[:, rank:].T @ a).max(axis=0, initial=0.0) > 1e-7
    scaled = (left[:, :rank] / values[:rank]).T @ a
    return scaled.T @ scaled, exposed


HORIZON = 3
C = np.array([[1.0, 0, 0], [-0.6, 1.2, 0], [0.3, -0.5, 0.9]])
TOEPLITZ = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]])


def covariance(size: int) -> Array:
    root = np.random.default_rng(7).standard_normal((size, size))
    return root @ root.T + 0.5 * np.eye(size)


def algorithms(mixing: Any, rounds: int) -> dict[str, Algorithm]:
    how: dict[str, Any] = {"mixing": mixing, "horizon": HORIZON}
    return {
        "dp-d-sgd": replace(views.dp_d_sgd(**how), rounds=rounds),
        "antipgd": views.antipgd(rounds=rounds, **how),
        "mf": views.mf_d_sgd(mixing=mixing, strategy=C, rounds=rounds),
        "toeplitz": views.mf_d_sgd(mixing=mixing, strategy=TOEPLITZ, rounds=rounds),
        "whisper": views.whisper(covariance=covariance(4), rounds=rounds, **how),
        "decor": views.decor(node_variance=0.7, edge_variance=1.3, rounds=rounds, **how),
        "zip-dl": views.zip_dl(variance=0.8, rounds=rounds, **how),
        "space-time": views.space_time(covariance=covariance(4 * HORIZON), rounds=rounds, **how),
        "cdp": replace(views.cdp(server_noise="sigma^2/n", **how), rounds=rounds),
        "cdp in time": views.cdp(server_noise="sigma^2/n^2", strategy=C, **how),
    }


OBSERVERS = [
    views.ldp(),
    views.central(),
    views.pndp(nodes=(1,)),
    views.pndp(nodes=(1,), own_noise="values"),
    views.pndp(nodes=(1,), own_noise="counted"),
    views.pndp(nodes=(0, 3)),
    views.insider(nodes=(2,)),
    views.secldp(nodes=(1,)),
    views.shared_seed(nodes=(0,)),
    views.tap(nodes=(1,)),
    views.secure_sum(nodes=(1,)),
]

SCALES = np.array([1.0, 0.5, 3.0, 1.7])


def check(algorithm: Algorithm, observer: Observer) -> None:
    mechanism = views.view(algorithm, observer)
    victims = [u for u in range(4) if u not in observer.coalition]
    for victim, (gram, exposed) in views.grams(mechanism, victims):
        by_hand, bare = expected(algorithm, observer, victim)
        np.testing.assert_array_equal(exposed, bare, err_msg=f"victim {victim}")
        hidden = ~bare
        np.testing.assert_allclose(
            np.asarray(gram)[np.ix_(hidden, hidden)] if bare.any() else gram,
            by_hand[np.ix_(hidden, hidden)] if bare.any() else by_hand,
            rtol=1e-8,
            atol=1e-9,
            err_msg=f"victim {victim}",
        )


CASES = [
    pytest.param(
        name,
        schedule,
        rounds,
        marks=() if (schedule, rounds) in (("three", 2), ("path", 3)) else pytest.mark.slow,
    )
    for name, schedule, rounds in product(algorithms(PATH, 1), SCHEDULES, (1, 2, 3))
]


@pytest.mark.parametrize(("name", "schedule", "rounds"), CASES)
def test_every_algorithm_before_every_observer(name: str, schedule: str, rounds: int) -> None:
    algorithm = algorithms(SCHEDULES[schedule], rounds)[name]
    for observer in OBSERVERS:
        try:
            check(algorithm, observer)
        except AssertionError as error:
            raise AssertionError(f"{observer} ({observer.knows}): {error}") from error


ALONE = np.array([[1.0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 3]]) / 3
"""Node 3 sends nothing."""


@pytest.mark.parametrize("order", ["AP", "PA", "APA", "AAP", "PAA", "AAA"])
def test_a_step_without_noise_tells_what_entered_before_it(order: str) -> None:
    """Zip-DL whose noise cancels among what a node sends to others, so that nothing hides it; node
    3 sends in the steps marked P: exposed is all up to the last of them, and nothing after it."""
    schedule = [PATH if letter == "P" else ALONE for letter in order]
    algorithm = views.zip_dl(mixing=schedule, horizon=len(order), neighbourhood="open")
    for observer in (views.ldp(), views.insider(nodes=(1,))):
        check(algorithm, observer)
    until = order.rfind("P") + 1
    for node, (_, exposed) in views.grams(views.view(algorithm, views.ldp()), range(4)):
        assert exposed.tolist() == [node < 3 or t < until for t in range(len(order))]


@pytest.mark.parametrize("name", [name for name in algorithms(PATH, 1) if "cdp" not in name])
def test_every_node_scales_the_noise_it_adds(name: str) -> None:
    for schedule, rounds in (("path", 1), ("three", 2)):
        algorithm = algorithms(SCHEDULES[schedule], rounds)[name].scaled(SCALES)
        for observer in (OBSERVERS[0], OBSERVERS[2], OBSERVERS[7], OBSERVERS[9]):
            check(algorithm, observer)


@pytest.mark.parametrize("name", [name for name in algorithms(PATH, 1) if "cdp" not in name])
def test_one_number_is_the_same_number_for_every_node(name: str) -> None:
    algorithm, observer = algorithms(PATH, 2)[name], views.pndp(nodes=(1,))
    scheme = single(HORIZON)
    once = account(algorithm, observer, participation=scheme, noise_multiplier=2.5)
    listed = account(algorithm, observer, participation=scheme, noise_multiplier=[2.5] * 4)
    named = dict.fromkeys(("0", "1", "2", "3"), 2.5)
    by_name = account(algorithm, observer, participation=scheme, noise_multiplier=named)
    for a, b, c in zip(once, listed, by_name, strict=True):
        assert b.mu == pytest.approx(a.mu, rel=1e-9)
        assert c == b


@pytest.mark.parametrize(
    "wrong",
    [
        [1.0, 2.0],
        [1.0, 1.0, 1.0, 0.0],
        [1.0, 1.0, 1.0, -1.0],
        [1.0, np.nan, 1.0, 1.0],
        {"0": 1.0},
        {"0": 1.0, "1": 1.0, "2": 1.0, "3": 1.0, "4": 1.0},
        "2",
        0.0,
        None,
    ],
)
def test_wrong_multipliers(wrong: Any) -> None:
    algorithm = views.dp_d_sgd(mixing=PATH, horizon=2)
    with pytest.raises(InputError) as caught:
        account(algorithm, views.ldp(), participation=single(2), noise_multiplier=wrong)
    assert caught.value.field == "noise_multiplier"
    server = views.cdp(mixing=PATH, horizon=2, server_noise="sigma^2/n")
    with pytest.raises(InputError, match="a server adds"):
        account(server, views.central(), participation=single(2), noise_multiplier=[1.0] * 4)


def test_central_dp_by_hand() -> None:
    """A record moves the average by 1 / 4 at each of its two steps."""
    scheme = FixedEpoch(epochs=2, separation=2)
    for noise, squared in (("sigma^2/n", 2 / 4), ("sigma^2/n^2", 2.0)):
        algorithm = views.cdp(mixing=PATH, horizon=4, server_noise=noise)
        for observer, finite in (
            (views.central(), True),
            (views.pndp(nodes=(0,)), True),
            (views.secure_sum(nodes=(0,)), True),
            (views.ldp(), False),
            (views.insider(nodes=(0,)), False),
            (views.shared_seed(), False),
        ):
            for found in account(algorithm, observer, participation=scheme, adjacency="zero-out"):
                value = squared if finite else np.inf
                assert found.sensitivity_squared == pytest.approx(value, rel=1e-9)
    # The average of DP-D-SGD is as that of sigma^2/n: its messages cost n times more.
    local = views.dp_d_sgd(mixing=PATH, horizon=4)
    for found in account(local, views.central(), participation=scheme, responses="fixed"):
        assert found.sensitivity_squared == pytest.approx(2 / 4, rel=1e-9)
    # Zip-DL has no noise in its average.
    for found in account(
        views.zip_dl(mixing=PATH, horizon=4),
        views.central(),
        participation=scheme,
        responses="fixed",
    ):
        assert found.which == "unbounded"


def test_zip_dl_of_several_rounds_by_hand() -> None:
    """Before a reader of the wire K rounds are K times the information of one, W doubly
    stochastic."""
    scheme = single(3)
    one, four = (
        account(views.zip_dl(mixing=PATH, horizon=3, rounds=k), views.ldp(), participation=scheme)
        for k in (1, 4)
    )
    for a, b in zip(one, four, strict=True):
        assert b.sensitivity_squared == pytest.approx(4 * a.sensitivity_squared, rel=1e-9)


def test_a_schedule_of_one_w_is_that_w() -> None:
    for observer in OBSERVERS:
        fixed, stacked_ = (
            views.whisper(mixing=w, covariance=covariance(4), horizon=3)
            for w in (PATH, [PATH, PATH])
        )
        assert stacked_.schedule is None
        scheme = single(3)
        assert account(fixed, observer, participation=scheme) == account(
            stacked_, observer, participation=scheme
        )


def test_where_nobody_is_near_at_first() -> None:
    """Pairs (0, 1) and (2, 3), then (1, 2): what 0 adds at the last step never reaches 3."""
    middle = np.array([[1.0, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
    algorithm = views.dp_d_sgd(mixing=[PAIRS, middle], horizon=2)
    found = {e.node: e for e in account(algorithm, views.pndp(nodes=(3,)), participation=single(2))}
    # Node 3 hears node 2 at the first step only.
    assert found["0"].mu == found["1"].mu == 0
    assert found["2"].sensitivity_squared == pytest.approx(1.0)


@pytest.mark.parametrize("mixing", [[], [PATH, np.eye(3)], [PATH, 2 * PATH]])
def test_wrong_schedules(mixing: Any) -> None:
    with pytest.raises(InputError) as caught:
        views.dp_d_sgd(mixing=mixing, horizon=2)
    assert caught.value.field == "mixing"


def test_endless_rounds_of_messages_are_refused() -> None:
    algorithm = views.zip_dl(mixing=PATH, horizon=1, rounds=10**6)
    with pytest.raises(InputError) as caught:
        account(algorithm, views.pndp(nodes=(1,)), participation=single(1))
    assert caught.value.field == "algorithm.rounds"
