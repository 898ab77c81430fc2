"""Gram matrices of objectives, against literal runs of the recursion from every unit of noise."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.system.random_mixing import EdgeDropout
from noisedesign.system.workloads import ERRORS, ErrorMeasure, Workload
from noisedesign.system.workloads.workload import decentralized_gram, prefix_gram
from tests.support import oracles
from tests.support.grams import space_gram, space_time_gram, time_gram

PATH3 = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
SKEWED = np.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])
CYCLE3 = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
OF_MODELS = [of for of in ERRORS if "loss" not in of]
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def run(
    w: np.ndarray, noise: np.ndarray, eta: np.ndarray, beta: float, curvature: float
) -> list[np.ndarray]:
    """States after every step under x <- W (x - eta m), m <- beta m + lambda x + z, one column a
    run; W is that of the step where it has three axes."""
    state = velocity = np.zeros_like(noise[0])
    states = []
    for t, (z, rate) in enumerate(zip(noise, eta, strict=True)):
        velocity = beta * velocity + curvature * state + z
        state = (w if w.ndim == 2 else w[t % len(w)]) @ (state - rate * velocity)
        states.append(state)
    return states


def literal_gram(w: np.ndarray, horizon: int, of: str, **how: Any) -> np.ndarray:
    """H, nT x nT, time-major: inner products of what every unit of noise does to the error."""
    felt = np.atleast_1d(how.get("curvature", 0.0)) + how.get("weight_decay", 0.0)
    counts = np.broadcast_to(how.get("curvature_weights", 1.0), felt.shape)
    if "loss" in of:
        counts = counts * felt / 2
    return sum(
        (k * literal_term(w, horizon, of, at, **how) for k, at in zip(counts, felt, strict=True)),
        start=np.zeros(1),
    )


def literal_term(w: np.ndarray, horizon: int, of: str, felt: float, **how: Any) -> np.ndarray:
    n = w.shape[-1]
    node_weights = np.broadcast_to(how.get("node_weights", 1.0), n)
    average = np.asarray(how.get("average", node_weights), dtype=float)
    average = average / average.sum()
    eta = np.broadcast_to(how.get("learning_rates", 1.0), horizon)
    steps = np.broadcast_to(how.get("step_weights", 1.0), horizon)
    sums = np.broadcast_to(how.get("push_sum_weights", 1.0), (horizon, n))
    noise = np.eye(n * horizon).reshape(horizon, n, n * horizon)
    errors = []
    for t, state in enumerate(run(w, noise, eta, how.get("momentum", 0.0), felt)):
        mean = sum(m * row for m, row in zip(average, state, strict=True))
        for i in range(n):
            model = state[i] / sums[t, i]
            means = {"mean-model": mean, "loss-of-mean": mean, "consensus": model - mean}
            shown = means.get(of, model)
            of_end = "last" in of or "loss" in of
            weight = node_weights[i] * (float(t == horizon - 1) if of_end else steps[t])
            weight = weight / node_weights.sum() if "loss" in of else weight
            errors.append(np.sqrt(weight) * shown)
    stacked = np.array(errors)
    return stacked.T @ stacked


def in_space(full: np.ndarray, n: int, covariance: np.ndarray) -> np.ndarray:
    """Sum over steps of K_ss' times the blocks of H."""
    horizon = len(full) // n
    blocks = full.reshape(horizon, n, horizon, n)
    return sum(
        covariance[s, r] * blocks[s, :, r] for s, r in itertools.product(range(horizon), repeat=2)
    )  # type: ignore[return-value]


def in_time(full: np.ndarray, n: int, covariance: np.ndarray) -> np.ndarray:
    horizon = len(full) // n
    blocks = full.reshape(horizon, n, horizon, n)
    return np.array(
        [[np.sum(blocks[s, :, r] * covariance) for r in range(horizon)] for s in range(horizon)]
    )


def check_all_shapes(w: np.ndarray, horizon: int, of: str, **how: Any) -> None:
    n, objective = w.shape[-1], ErrorMeasure(horizon=horizon, of=of, **how)
    full = literal_gram(w, horizon, of, **how)
    np.testing.assert_allclose(space_time_gram(w, error=objective), full, **CLOSE)
    rng = np.random.default_rng(n + horizon)
    time = np.cov(rng.normal(size=(horizon, 2 * horizon + 2))).reshape(horizon, horizon)
    space = np.cov(rng.normal(size=(n, 2 * n + 2))).reshape(n, n)
    for found, expected in [
        (space_gram(w, error=objective), in_space(full, n, np.eye(horizon))),
        (space_gram(w, error=objective, time_covariance=time), in_space(full, n, time)),
        (time_gram(w, error=objective), in_time(full, n, np.eye(n))),
        (time_gram(w, error=objective, node_covariance=space), in_time(full, n, space)),
    ]:
        np.testing.assert_allclose(found, expected, **CLOSE)
        np.testing.assert_array_equal(found, found.T)


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [PATH3, SKEWED, CYCLE3])
def test_one_step_in_space_is_the_published_objective(w: np.ndarray) -> None:
    found = space_gram(w, error=ErrorMeasure(horizon=1))
    np.testing.assert_allclose(found, w.T @ w, **CLOSE)


def test_complete_averaging_in_space_by_hand() -> None:
    # W = J / n is its own power: step s reaches T - s + 1 iterates, T (T + 1) / 2 in all.
    w = np.full((4, 4), 0.25)
    for of, expected in [("all-iterates", 6 * w), ("mean-model", 6 * w), ("consensus", 0 * w)]:
        found = space_gram(w, error=ErrorMeasure(horizon=3, of=of))
        np.testing.assert_allclose(found, expected, atol=1e-15)


CURVED: list[dict[str, Any]] = [
    {"curvature": 0.4},
    {"curvature": [0.1, 1.5], "curvature_weights": [3.0, 0.5], "learning_rates": 0.7},
    {"curvature": [0.2, 1.0], "learning_rates": [1.0, 0.5, 0.0, 0.3], "weight_decay": 0.1},
    {"curvature": [0.2, 1.0], "momentum": 0.6, "learning_rates": 0.5},
    {"weight_decay": 0.3, "momentum": 0.9, "learning_rates": [1.0, 0.5, 0.25, 0.3]},
    {"curvature": 1.0, "node_weights": [1.0, 2.0, 0.0], "average": [0.2, 0.5, 0.3]},
]
SCHEDULE = np.array([PATH3, SKEWED])


@pytest.mark.parametrize("of", ERRORS)
@pytest.mark.parametrize("how", CURVED)
@pytest.mark.parametrize("w", [PATH3, SKEWED, CYCLE3, SCHEDULE])
def test_curvature_pulls_models_back(w: np.ndarray, how: dict[str, Any], of: str) -> None:
    check_all_shapes(w, 4, of, **how)


@pytest.mark.parametrize("of", ["all-iterates", "loss", "loss-of-mean"])
@pytest.mark.parametrize("horizon", [2, 3])
def test_momentum_and_curvature_under_every_mixing_that_may_be_drawn(horizon: int, of: str) -> None:
    """Two nodes whose edge fails or not, every sequence of that by its chance; rates fall."""
    w, chance = np.array([[0.7, 0.3], [0.3, 0.7]]), 0.4
    how: dict[str, Any] = {
        "curvature": [0.2, 0.9],
        "momentum": 0.4,
        "learning_rates": np.linspace(0.8, 0.3, horizon),
    }
    expected = np.zeros((2 * horizon, 2 * horizon))
    for failed in itertools.product([False, True], repeat=horizon):
        drawn = np.array([np.eye(2) if out else w for out in failed])
        share = np.prod([chance if out else 1 - chance for out in failed])
        expected += share * literal_gram(drawn, horizon, of, **how)
    error = ErrorMeasure(horizon=horizon, of=of, **how)
    workload = Workload(mixing=EdgeDropout(mixing=w, probability=chance), error=error)
    shared = np.array([[1.0, 0.3], [0.3, 2.0]])
    np.testing.assert_allclose(workload.gram(), expected, **CLOSE)
    by_pair = expected.reshape(horizon, 2, horizon, 2)
    in_time = np.einsum("sutv,vu->st", by_pair, shared)
    np.testing.assert_allclose(workload.time_gram(shared), in_time, **CLOSE)
    np.testing.assert_allclose(
        workload.space_gram(), np.einsum("sutu->st", by_pair.transpose(1, 0, 3, 2)), **CLOSE
    )


def test_the_loss_of_one_node_by_hand() -> None:
    """One node, two steps of rate 1/2, curvature 1: x_3 = x_2 / 2 - z_2 / 2 = -z_1 / 4 - z_2 / 2,
    and a loss of x_3^2 / 2, to which the mean model is the same."""
    expected = np.array([[1 / 16, 1 / 8], [1 / 8, 1 / 4]]) / 2
    for of in ("loss", "loss-of-mean"):
        error = ErrorMeasure(horizon=2, of=of, learning_rates=0.5, curvature=1.0)
        np.testing.assert_allclose(time_gram(np.ones((1, 1)), error=error), expected, **CLOSE)


def test_the_loss_of_every_node_is_their_mean() -> None:
    error = ErrorMeasure(horizon=1, of="loss", curvature=[1.0, 1.5], curvature_weights=[5.0, 2.0])
    half = (5.0 * 1.0 + 2.0 * 1.5) / 2
    np.testing.assert_allclose(space_gram(PATH3, error=error), half * PATH3.T @ PATH3 / 3, **CLOSE)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"of": "loss"}, 'curvature: expected curvatures of the loss, for of = "loss", got none'),
        ({"curvature": 2.1}, "curvature: expected at most 2 with weight decay, got 2.1"),
        ({"curvature": 1.0, "weight_decay": 1.5}, "curvature: expected at most 2 with"),
        ({"curvature": 3.9, "momentum": 0.9}, "curvature: expected at most 3.8"),
        ({"weight_decay": 5.0, "learning_rates": 0.5}, "weight_decay: expected at most 4"),
        ({"curvature": [1.0, -1.0]}, "curvature: expected nonnegative values"),
        ({"curvature_weights": 1.0}, "curvature_weights: expected nothing without curvature"),
        ({"curvature": [1.0, 0.5], "curvature_weights": [1.0]}, "curvature_weights: expected 2"),
        ({"of": "loss", "curvature": 1.0, "step_weights": 1.0}, "step_weights: expected nothing"),
    ],
)
def test_curvatures_that_no_training_has(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ErrorMeasure(horizon=3, **how)


def test_two_nodes_by_hand() -> None:
    # x_2 = W z, W = [[3/4, 1/4], [1/4, 3/4]]: half the sum is kept, half the difference halved.
    w = np.array([[0.75, 0.25], [0.25, 0.75]])
    mean = space_gram(w, error=ErrorMeasure(horizon=1, of="mean-model"))
    np.testing.assert_allclose(mean, np.full((2, 2), 0.5), **CLOSE)
    apart = space_gram(w, error=ErrorMeasure(horizon=1, of="consensus"))
    np.testing.assert_allclose(apart, np.array([[1, -1], [-1, 1]]) / 8, **CLOSE)


def test_momentum_by_hand() -> None:
    # One node, T = 2: x_2 = eta_1 z_1, x_3 = x_2 + eta_2 (beta z_1 + z_2).
    objective = ErrorMeasure(horizon=2, learning_rates=[3, 2], momentum=0.5)
    expected = [[3**2 + (3 + 1) ** 2, (3 + 1) * 2], [(3 + 1) * 2, 2**2]]
    for gram in (time_gram, space_time_gram):
        np.testing.assert_allclose(gram(np.ones((1, 1)), error=objective), expected, **CLOSE)
    factor = [[3, 0], [1, 2]]
    np.testing.assert_allclose(objective.step_factor, factor, **CLOSE)


def test_a_skewed_mixing_in_exact_fractions() -> None:
    # Consensus after the second of two steps: differences of the rows of W^2 and W.
    w = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 4), Fraction(3, 4)]]
    square = [[sum(w[i][k] * w[k][j] for k in (0, 1)) for j in (0, 1)] for i in (0, 1)]
    # Distance to the mean of two is half the difference, twice.
    first = [(square[0][j] - square[1][j]) / 2 for j in (0, 1)]
    second = [(w[0][j] - w[1][j]) / 2 for j in (0, 1)]
    entries = [
        [sum(2 * a * b for a, b in zip(x, y, strict=True)) for y in (first, second)]
        for x in (first, second)
    ]
    objective = ErrorMeasure(horizon=2, of="consensus", step_weights=[0, 1])
    found = time_gram(np.array(w, dtype=float), error=objective)
    np.testing.assert_allclose(found, np.array(entries, dtype=float), rtol=1e-14)


def test_known_workloads_in_time() -> None:
    objective = ErrorMeasure(horizon=7)
    for w in (PATH3, SKEWED, oracles.metropolis(nx.florentine_families_graph())):
        found = time_gram(w, error=objective)
        np.testing.assert_allclose(found, decentralized_gram(w, horizon=7), rtol=1e-12)
    # The mean model is moved by sums of noise alone, with 1/n of its variance, n times over.
    mean = time_gram(PATH3, error=ErrorMeasure(horizon=7, of="mean-model"))
    np.testing.assert_allclose(mean, prefix_gram(horizon=7), rtol=1e-12)


# --- against literal runs -------------------------------------------------------------------------


@pytest.mark.parametrize("of", OF_MODELS)
@pytest.mark.parametrize("w", [PATH3, SKEWED, CYCLE3, np.ones((1, 1))])
@pytest.mark.parametrize("horizon", [1, 4])
def test_plain_objectives(w: np.ndarray, horizon: int, of: str) -> None:
    check_all_shapes(w, horizon, of)


WEIGHTED: dict[str, Any] = {
    "node_weights": np.array([1.0, 0.0, 2.5]),
    "learning_rates": np.array([1.0, 0.5, 0.25, 0.0]),
    "momentum": 0.9,
}
STEPS = np.array([0.0, 2.0, 0.5, 1.0])
SUMS = np.array([[1.0, 0.5, 1.5], [0.8, 1.2, 1.0], [0.4, 1.3, 1.3], [0.9, 1.0, 1.1]])


@pytest.mark.parametrize("of", OF_MODELS)
@pytest.mark.parametrize("w", [PATH3, SKEWED])
@pytest.mark.parametrize("sums", [None, SUMS[0], SUMS])
@pytest.mark.parametrize("average", [None, np.array([0.0, 1.0, 3.0])])
def test_weighted_objectives(w: np.ndarray, of: str, sums: Any, average: Any) -> None:
    how = dict(WEIGHTED)
    if of != "last-iterate":
        how["step_weights"] = STEPS
    if sums is not None:
        how["push_sum_weights"] = sums
    if average is not None:
        how["average"] = average
    check_all_shapes(w, 4, of, **how)


@pytest.mark.parametrize("field", ["node_weights", "learning_rates", "momentum", "step_weights"])
def test_every_weight_matters(field: str) -> None:
    # Literal runs pass the same weights; this is that they are not ignored by both.
    value = STEPS if field == "step_weights" else WEIGHTED[field]
    changed = time_gram(SKEWED, error=ErrorMeasure(horizon=4, **{field: value}))
    assert np.abs(changed - time_gram(SKEWED, error=ErrorMeasure(horizon=4))).max() > 0.1


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, str, dict[str, Any]]:
    n, horizon = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 3), min_size=n * n, max_size=n * n)
    w = np.array(draw(counts), dtype=np.float64).reshape(n, n) / (3 * n)
    if draw(st.booleans()):
        w = (w + w.T) / 2
    of = draw(st.sampled_from(OF_MODELS))
    how: dict[str, Any] = {"momentum": draw(st.sampled_from([0.0, 0.5]))}
    how["learning_rates"] = 0.5 ** np.arange(horizon)
    how["node_weights"] = np.arange(1.0, n + 1)
    if of != "last-iterate":
        how["step_weights"] = np.eye(horizon)[draw(st.integers(0, horizon - 1))]
    return w, horizon, of, how


@settings(derandomize=True, deadline=None, max_examples=60)
@given(case=cases())
def test_any_small_case(case: tuple[np.ndarray, int, str, dict[str, Any]]) -> None:
    w, horizon, of, how = case
    check_all_shapes(w, horizon, of, **how)


# --- structure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [PATH3, SKEWED])
def test_consensus_and_mean_add_up_to_all_iterates(w: np.ndarray) -> None:
    how: dict[str, Any] = {**WEIGHTED, "step_weights": STEPS, "horizon": 4}
    parts = [
        space_time_gram(w, error=ErrorMeasure(of=of, **how)) for of in OF_MODELS if "-i" not in of
    ]
    assert len(parts) == 2
    whole = space_time_gram(w, error=ErrorMeasure(**how))
    np.testing.assert_allclose(sum(parts), whole, **CLOSE)


def test_both_routes_in_time_meet() -> None:
    # Barely asymmetric: no eigenvalues any more, and H must not jump.
    w = oracles.metropolis(nx.florentine_families_graph())
    tilted = w.copy()
    tilted[0, 8] += 1e-9
    objective = ErrorMeasure(horizon=20, of="consensus", momentum=0.5)
    expected = time_gram(w, error=objective)
    np.testing.assert_allclose(time_gram(tilted, error=objective), expected, rtol=1e-6)


def test_longer_horizons_against_all_powers() -> None:
    for w in (
        oracles.metropolis(nx.florentine_families_graph()),
        oracles.row_normalized(nx.florentine_families_graph()),
    ):
        found = time_gram(w, error=ErrorMeasure(horizon=60))
        np.testing.assert_allclose(found, oracles.gram_of_powers(w, 60), rtol=1e-11)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"horizon": 0}, "horizon"),
        ({"of": "some-iterates"}, "of"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": float("nan")}, "momentum"),
        ({"step_weights": [1.0, 2.0]}, "step_weights"),
        ({"step_weights": [1.0, -1.0, 1.0]}, "step_weights"),
        ({"step_weights": np.zeros(3)}, "step_weights"),
        ({"step_weights": np.ones(3, dtype=np.float32)}, "step_weights"),
        ({"of": "last-iterate", "step_weights": np.ones(3)}, "step_weights"),
        ({"learning_rates": np.ones(4)}, "learning_rates"),
        ({"learning_rates": [-1.0, 1.0, 1.0]}, "learning_rates"),
        ({"push_sum_weights": np.ones((2, 3))}, "push_sum_weights"),
        ({"push_sum_weights": np.array([1.0, 0.0, 1.0])}, "push_sum_weights"),
        ({"step_weights": 1e308}, "step_weights"),
        ({"learning_rates": 1e-200}, "learning_rates"),
        ({"push_sum_weights": np.array([1.0, 1e-200, 1.0])}, "push_sum_weights"),
    ],
)
def test_bad_objectives_are_named(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        ErrorMeasure(**{"horizon": 3, **how})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"node_weights": np.ones(2)}, "node_weights"),
        ({"node_weights": np.array([1.0, -1.0, 1.0])}, "node_weights"),
        ({"node_weights": np.array([1.0, 1e308, 1.0])}, "node_weights"),
        ({"average": np.zeros(3)}, "average"),
        ({"average": 1e200}, "average"),
        ({"push_sum_weights": np.ones(4)}, "push_sum_weights"),
    ],
)
@pytest.mark.parametrize("gram", [space_gram, time_gram, space_time_gram])
def test_weights_for_other_nodes_are_named(gram: Any, how: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        gram(PATH3, error=ErrorMeasure(horizon=2, **how))
    assert caught.value.field == field


def test_bad_matrices_are_named() -> None:
    objective = ErrorMeasure(horizon=2)
    for gram in (space_gram, time_gram, space_time_gram):
        with pytest.raises(InputError, match=r"^mixing"):
            gram(np.eye(2, dtype=np.float32), error=objective)
        with pytest.raises(InputError, match=r"^mixing"):
            gram(np.ones((2, 3)), error=objective)
    for bad in (np.eye(3), np.array([[1.0, 0.5], [0, 1]]), np.array([[1.0, 2], [2, 1]])):
        with pytest.raises(InputError, match=r"^time_covariance"):
            space_gram(PATH3, error=objective, time_covariance=bad)
    for bad in (np.eye(2), np.diag([1.0, -1, 1])):
        with pytest.raises(InputError, match=r"^node_covariance"):
            time_gram(PATH3, error=objective, node_covariance=bad)


@pytest.mark.parametrize("of", ["last-iterate", "mean-model"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rows_of_few_steps_are_a_factor(of: str, momentum: float) -> None:
    """Of one W that is not symmetric and of a schedule of two, by impulses run through."""
    w = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.3, 0.2, 0.5]])
    horizon = 4
    for mixing in (w, np.stack([w, w.T])):
        matrices = np.broadcast_to(mixing, (2, 3, 3)) if mixing.ndim == 2 else mixing
        error = ErrorMeasure(horizon=horizon, of=of, momentum=momentum)
        rows = Workload(mixing=mixing, error=error).rows()
        assert rows is not None
        seen = np.zeros((horizon, 3, horizon, 3))
        for step, node in np.ndindex(horizon, 3):
            speed, model = np.zeros(3), np.zeros(3)
            for t in range(horizon):
                impulse = np.eye(3)[node] * (t == step)
                speed = momentum * speed + impulse
                model = matrices[t % 2] @ (model + speed)
                seen[t, :, step, node] = model
        if of == "last-iterate":
            left = seen[-1].reshape(3, -1)
        else:
            left = seen.mean(axis=1).reshape(horizon, -1)
        ratio = rows.T @ rows / np.where(np.abs(left.T @ left) > 1e-12, left.T @ left, np.nan)
        spread = ratio[np.isfinite(ratio)]
        np.testing.assert_allclose(spread, spread[0], rtol=1e-9)
        gram = Workload(mixing=mixing, error=error).gram()
        np.testing.assert_allclose(rows.T @ rows, gram, rtol=1e-12, atol=1e-13)


def test_an_error_of_every_iterate_has_no_few_rows() -> None:
    w = np.full((2, 2), 0.5)
    assert Workload(mixing=w, error=ErrorMeasure(horizon=3)).rows() is None
    assert Workload(mixing=w, error=ErrorMeasure(horizon=3, of="consensus")).rows() is None
