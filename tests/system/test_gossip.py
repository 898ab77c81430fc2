"""Several gossip rounds a step, and W that changes by step: against runs of the nodes, dense."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.system import gossip
from noisedesign.system.random_mixing import RandomMatchings
from noisedesign.system.workloads import ErrorMeasure, Workload

Array = np.ndarray

PATH3 = np.array([[2.0, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
PAIR01 = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
PAIR12 = np.array([[1.0, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
SKEWED = np.array([[0.5, 0.5, 0], [0.25, 0.25, 0.5], [0, 0.75, 0.25]])

SCHEDULES = {
    "path": (PATH3,),
    "pairs in turn": (PAIR01, PAIR12),
    "three": (PATH3, SKEWED, PAIR01),
    "longer than the run": (SKEWED, PATH3, PAIR12, PAIR01, SKEWED, PATH3, PAIR12),
}


def covariance(size: int, seed: int) -> Array:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T + np.eye(size)


def error_of_run(steps: list[Array], *, rounds: int, error: ErrorMeasure, noise: Array) -> float:
    """sum_t a_t x_{t+1}^T Q_t x_{t+1} of one noise (T, n), run round by round."""
    state, velocity, total = np.zeros(len(steps[0])), np.zeros(len(steps[0])), 0.0
    for t, z in enumerate(noise):
        velocity = error.momentum * velocity + z
        rate = 1.0 if error.learning_rates is None else error.learning_rates[t]
        state = state + rate * velocity
        for _ in range(rounds):
            state = steps[t] @ state
        total += error.steps[t] * state @ error.readout(nodes=len(state), step=t) @ state
    return float(total)


def dense_gram(steps: list[Array], *, rounds: int, error: ErrorMeasure) -> Array:
    """H by polarisation: the quadratic form on every pair of unit noises."""
    n, horizon = len(steps[0]), len(steps)
    units = np.eye(n * horizon).reshape(-1, horizon, n)

    def form(noise: Array) -> float:
        return error_of_run(steps, rounds=rounds, error=error, noise=noise)

    single = np.array([form(unit) for unit in units])
    found = np.diag(single)
    for i, j in product(range(len(units)), repeat=2):
        if i < j:
            found[i, j] = found[j, i] = (form(units[i] + units[j]) - single[i] - single[j]) / 2
    return found


ERRORS = [
    lambda t: ErrorMeasure(horizon=t),
    lambda t: ErrorMeasure(horizon=t, of="last-iterate", momentum=0.4),
    lambda t: ErrorMeasure(
        horizon=t, of="consensus", learning_rates=np.linspace(1, 0.3, t), momentum=0.7
    ),
]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("measure", ERRORS)
def test_h_is_the_error_of_a_run(name: str, rounds: int, measure: object) -> None:
    schedule, horizon, n = SCHEDULES[name], 4, 3
    error = measure(horizon)  # type: ignore[operator]
    steps = [schedule[t % len(schedule)] for t in range(horizon)]
    expected = dense_gram(steps, rounds=rounds, error=error)
    stack = np.stack(schedule)
    mixing = gossip.of_every_step(PATH3, rounds=rounds, schedule=stack)
    workload = Workload(mixing=mixing, error=error)
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(workload.gram(), expected, **close)
    r, k = covariance(n, 1), covariance(horizon, 2)
    blocks = expected.reshape(horizon, n, horizon, n)
    in_time = np.einsum("sutv,uv->st", blocks, r)
    np.testing.assert_allclose(workload.time_gram(r), in_time, **close)
    in_time = np.einsum("sutu->st", blocks)
    np.testing.assert_allclose(workload.time_gram(), in_time, **close)
    in_space = np.einsum("sutv,st->uv", blocks, k)
    np.testing.assert_allclose(workload.space_gram(k), in_space, **close)
    in_space = np.einsum("susv->uv", blocks)
    np.testing.assert_allclose(workload.space_gram(), in_space, **close)
    if (factor := workload.factor()) is not None:
        np.testing.assert_allclose(factor.T @ factor, expected, **close)


def test_a_schedule_of_one_matrix_is_that_matrix() -> None:
    error = ErrorMeasure(horizon=5)
    alone, stacked = (Workload(mixing=w, error=error) for w in (PATH3, PATH3[None]))
    np.testing.assert_array_equal(stacked.time_gram(), alone.time_gram())
    assert stacked.modes is not None
    mean, schedule = gossip.check_schedule([PATH3, PATH3], stochastic="both")
    np.testing.assert_array_equal(mean, PATH3)
    assert schedule is None


def test_rounds_of_random_matchings_by_listing_all_draws() -> None:
    matchings = RandomMatchings(nodes=3, matchings=(((0, 1),), ((1, 2),)))
    rounds, horizon, n = 2, 2, 3
    error = ErrorMeasure(horizon=horizon)
    random = gossip.repeated(matchings, rounds=rounds)
    assert random is not None
    expected = np.zeros((n * horizon, n * horizon))
    draws = list(product((PAIR01, PAIR12), repeat=rounds * horizon))
    for drawn in draws:
        steps = [drawn[rounds * t + 1] @ drawn[rounds * t] for t in range(horizon)]
        expected += dense_gram(steps, rounds=1, error=error) / len(draws)
    workload = Workload.of(PATH3, horizon=horizon, error=error, random=random)
    np.testing.assert_allclose(workload.gram(), expected, rtol=1e-12, atol=1e-13)
    g = covariance(n, 3)
    moment = sum((b @ a).T @ g @ (b @ a) for a, b in product((PAIR01, PAIR12), repeat=2)) / 4
    np.testing.assert_allclose(random.expected(g), moment, rtol=1e-13)
    rng = np.random.default_rng(5)
    sampled = np.mean([random.sample(rng) for _ in range(20_000)], axis=0)
    np.testing.assert_allclose(sampled, random.mean, atol=0.02)
    assert random.outcomes == 4
    assert gossip.repeated(matchings, rounds=1) is matchings
    assert gossip.repeated(None, rounds=3) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "empty schedule"),
        ([PATH3, np.eye(2)], "number 1"),
        ([PATH3, SKEWED], "number 1"),  # rows sum to 1, columns do not
        ([PATH3, -PATH3], "number 1"),
        ([PAIR01, PAIR01 * 1.0], "components|cannot|reach"),
        (np.ones((0, 2, 2)), "empty schedule"),
        (np.ones((2, 2, 2, 2)) / 2, "4 axes|dtype|axes"),
        ([np.eye(2).astype(np.float32), np.eye(2)], "number 0"),
    ],
)
def test_what_is_no_schedule(given: object, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        gossip.check_schedule(given, stochastic="both")
    assert caught.value.field == "mixing"


def test_a_schedule_is_connected_where_its_union_is() -> None:
    mean, schedule = gossip.check_schedule([PAIR01, PAIR12], stochastic="both")
    np.testing.assert_array_equal(mean, (PAIR01 + PAIR12) / 2)
    assert schedule is not None
    with pytest.raises(ValueError, match="read-only"):
        schedule[0, 0, 0] = 1.0


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True, "3", 10_001])
def test_what_is_no_number_of_rounds(rounds: object) -> None:
    with pytest.raises(InputError) as caught:
        gossip.checked_rounds(rounds)
    assert caught.value.field == "workload.rounds"
