"""Monte-Carlo variance: streams, the recursion, the interval and its verdict."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import noisedesign.tasks.simulation as package
from noisedesign.base.checks import InputError
from noisedesign.forms import Noise, streams
from noisedesign.forms.streams import time_noise_stream
from noisedesign.tasks.simulation.dynamics import RunningMoments, message_weights, run
from tests.support.peaks import peak_bytes
from tests.support.simulated import simulate_space, simulate_time

RING = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4


def stacked_workload(w: np.ndarray, horizon: int) -> np.ndarray:
    """theta_{t+1} = sum_{s <= t} W^(t-s+1) z_s as one nT x nT matrix."""
    n = len(w)
    full = np.zeros((horizon * n, horizon * n))
    for t in range(horizon):
        for s in range(t + 1):
            full[t * n : (t + 1) * n, s * n : (s + 1) * n] = np.linalg.matrix_power(w, t - s + 1)
    return full


def stacked_step_variances(w: np.ndarray, noising: np.ndarray) -> np.ndarray:
    """E |theta_{t+1}|^2 summed over nodes, for every t, by dense covariance algebra."""
    n, horizon = len(w), len(noising)
    a = stacked_workload(w, horizon)
    covariance = a @ np.kron(noising @ noising.T, np.eye(n)) @ a.T
    return np.diag(covariance).reshape(horizon, n).sum(axis=1)


def random_noising(rng: np.random.Generator, horizon: int) -> np.ndarray:
    return np.tril(rng.standard_normal((horizon, horizon)), -1) * 0.5 + np.diag(
        rng.uniform(0.5, 2, horizon)
    )


# By hand -------------------------------------------------------------------------------------


def test_prefix_of_two_independent_steps_is_three() -> None:
    # theta_2 = Z_1, theta_3 = Z_1 + Z_2: variances 1 and 2.
    report = simulate_time(noising_matrix=np.eye(2), predicted=3.0, runs=40_000)
    assert report.agrees
    assert report.per_step == pytest.approx([1, 2], rel=0.05)
    assert report.estimate == pytest.approx(report.per_step.sum())
    assert report.ratio == report.estimate / 3.0
    assert report.interval[0] < report.estimate < report.interval[1]


def test_noise_that_cancels_in_prefix_sums() -> None:
    # z_1 = Z_1, z_2 = Z_2 - Z_1: theta_3 = Z_2, so both steps have variance 1.
    noising = np.array([[1.0, 0.0], [-1.0, 1.0]])
    report = simulate_time(noising_matrix=noising, predicted=2.0, runs=40_000)
    assert report.agrees
    assert report.per_step == pytest.approx([1, 1], rel=0.05)
    assert not simulate_time(noising_matrix=noising, predicted=3.0, runs=40_000).agrees


def test_complete_graph_averages_spatial_noise() -> None:
    # W = 11^T/3 is singular; |W z|^2 = (sum z)^2 / 3, of expectation 1 for R = I.
    report = simulate_space(mixing=np.full((3, 3), 1 / 3), covariance=np.eye(3), predicted=1.0)
    assert report.agrees
    assert report.per_step == pytest.approx([report.estimate])


def test_singular_covariance_is_simulated() -> None:
    # Noise of the same value at two nodes: |W z|^2 = 2 z^2 for any row stochastic W.
    report = simulate_space(mixing=np.full((2, 2), 0.5), covariance=np.ones((2, 2)), predicted=2.0)
    assert report.agrees
    assert not simulate_space(
        mixing=np.full((2, 2), 0.5), covariance=np.diag([1.0, 0.0]), predicted=2.0
    ).agrees


def test_workload_factor_by_hand() -> None:
    # L z = (z_1 + z_2, 2 z_2) with independent z: 2 + 4.
    factor = np.array([[1.0, 1.0], [0.0, 2.0]])
    report = simulate_time(
        noising_matrix=np.eye(2), workload_factor=factor, predicted=6.0, runs=40_000
    )
    assert report.agrees
    assert report.per_step == pytest.approx([2, 4], rel=0.05)


# Against dense algebra -----------------------------------------------------------------------


def test_ring_agrees_with_the_stacked_expectation() -> None:
    noising = random_noising(np.random.default_rng(1), 5)
    exact = stacked_step_variances(RING, noising)
    report = simulate_time(
        noising_matrix=noising, mixing=RING, predicted=exact.sum(), runs=20_000, seed=4
    )
    assert report.agrees
    assert report.per_step == pytest.approx(exact, rel=0.05)


def test_spatial_noise_agrees_with_the_trace() -> None:
    rng = np.random.default_rng(2)
    root = rng.standard_normal((4, 4))
    covariance = root @ root.T
    exact = np.trace(RING @ covariance @ RING.T)
    assert simulate_space(mixing=RING, covariance=covariance, predicted=exact, runs=20_000).agrees
    independent = np.trace(covariance @ covariance) / np.trace(covariance)
    assert not simulate_space(
        mixing=RING, covariance=covariance, predicted=independent, runs=20_000
    ).agrees


def test_generic_factor_agrees_with_the_trace() -> None:
    rng = np.random.default_rng(3)
    noising, factor = random_noising(rng, 4), rng.standard_normal((6, 4))
    exact = ((factor @ noising) ** 2).sum()
    report = simulate_time(
        noising_matrix=noising, workload_factor=factor, predicted=exact, runs=20_000
    )
    assert report.agrees
    assert report.per_step == pytest.approx(((factor @ noising) ** 2).sum(axis=1), rel=0.06)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda c: 1.1 * c, id="scaled"),
        pytest.param(lambda c: c[::-1, ::-1].T, id="transposed about the other diagonal"),
        pytest.param(lambda c: np.linalg.cholesky(c.T @ c), id="C C^T in place of C^T C"),
        pytest.param(lambda c: np.linalg.inv(c), id="strategy in place of noising matrix"),
    ],
)
def test_wrong_strategy_disagrees(spoil: Callable[[np.ndarray], np.ndarray]) -> None:
    strategy = np.linalg.inv(random_noising(np.random.default_rng(1), 5))
    exact = stacked_step_variances(RING, np.linalg.inv(strategy)).sum()
    wrong = np.tril(np.linalg.inv(spoil(strategy)))
    report = simulate_time(noising_matrix=wrong, mixing=RING, predicted=exact, runs=20_000)
    assert not report.agrees


def test_wrong_graph_disagrees() -> None:
    noising = random_noising(np.random.default_rng(1), 5)
    exact = stacked_step_variances(np.full((4, 4), 0.25), noising).sum()
    assert not simulate_time(
        noising_matrix=noising, mixing=RING, predicted=exact, runs=20_000
    ).agrees


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    n=st.integers(1, 4), horizon=st.integers(1, 5), seed=st.integers(0, 99), singular=st.booleans()
)
def test_recursion_is_the_stacked_product(n: int, horizon: int, seed: int, singular: bool) -> None:
    rng = np.random.default_rng(seed)
    w = np.full((n, n), 1 / n) if singular else rng.dirichlet(np.ones(n), size=n)
    updates = rng.standard_normal((horizon, n, 3))
    sent = list(run(w, updates))
    expected = stacked_workload(w, horizon) @ updates.reshape(horizon * n, 3)
    np.testing.assert_allclose(
        np.concatenate([iterates for _, iterates in sent]), expected, atol=1e-12
    )
    # All updates from all messages, W singular or not: each weighted by itself.
    units = np.eye(horizon * n).reshape(horizon, n, horizon * n)
    weights = message_weights(w, units).reshape(horizon * n, horizon * n)
    messages = np.concatenate([messages for messages, _ in sent])
    found = (weights.T @ messages).reshape(horizon, n, 3)
    np.testing.assert_allclose(found, updates, atol=1e-12)


# Streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("working_set", [1, 20, 100, 10**6])
def test_time_stream_is_the_noising_matrix_times_white_noise(
    monkeypatch: pytest.MonkeyPatch, working_set: int
) -> None:
    # 40 steps of 2 x 3: nothing kept, a few steps kept, more than a panel kept, all kept.
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", working_set)
    noising = random_noising(np.random.default_rng(5), 40)
    white = np.array(list(time_noise_stream(np.eye(40), nodes=2, dimension=3, seed=9)))
    noise = np.array(list(time_noise_stream(noising, nodes=2, dimension=3, seed=9)))
    assert white.shape == noise.shape == (40, 2, 3)
    np.testing.assert_allclose(noise, np.einsum("ts,snd->tnd", noising, white), atol=1e-12)


def test_space_stream_is_the_root_times_white_noise() -> None:
    covariance = np.array([[2.0, 1.0], [1.0, 2.0]])
    white = list(Noise.of_covariance(np.eye(2)).stream(dimension=3, steps=4, seed=9))
    noise = list(Noise.of_covariance(covariance).stream(dimension=3, steps=4, seed=9))
    for x, z in zip(white, noise, strict=True):
        np.testing.assert_allclose(z, np.linalg.cholesky(covariance) @ x, atol=1e-14)


def test_white_noise_is_standard_and_independent() -> None:
    white = np.array(list(time_noise_stream(np.eye(3), nodes=2, dimension=50_000, seed=0)))
    sample = white.reshape(6, -1)
    assert np.abs(sample.mean(axis=1)).max() < 5 / np.sqrt(50_000)
    assert np.abs(sample @ sample.T / 50_000 - np.eye(6)).max() < 6 * np.sqrt(2 / 50_000)


def test_streams_repeat_for_a_seed_and_differ_between_seeds() -> None:
    def first(seed: int) -> np.ndarray:
        return next(time_noise_stream(np.eye(2), nodes=2, dimension=2, seed=seed))

    np.testing.assert_array_equal(first(1), first(1))
    assert not np.allclose(first(1), first(2))


def test_streams_stop_at_the_horizon() -> None:
    for stream in (
        time_noise_stream(np.eye(3), nodes=1, dimension=1, seed=0),
        Noise.of_covariance(np.eye(1)).stream(dimension=1, steps=3, seed=0),
    ):
        for _ in range(3):
            next(stream)
        with pytest.raises(StopIteration):
            next(stream)


# The interval, reproducibility, memory ---------------------------------------------------------


def test_interval_covers_at_its_confidence() -> None:
    hits = sum(
        simulate_time(
            noising_matrix=np.eye(3), predicted=6.0, runs=200, seed=seed, confidence=0.9
        ).agrees
        for seed in range(400)
    )
    # 360 expected; 4 standard deviations of a binomial are 24, skewness costs a few.
    assert 330 <= hits <= 384


def test_running_moments_are_those_of_all_values() -> None:
    values = np.random.default_rng(0).exponential(size=1000) + 1e6
    moments = RunningMoments()
    for batch in np.split(values, [1, 10, 500]):
        moments.add(batch)
    assert moments.count == 1000
    assert moments.mean == pytest.approx(values.mean(), rel=1e-14)
    assert moments.variance == pytest.approx(values.var(ddof=1), rel=1e-8)
    low, high = moments.mean_interval(0.95)
    half = 1.959963984540054 * values.std(ddof=1) / np.sqrt(1000)
    assert (high - low) / 2 == pytest.approx(half, rel=1e-6)


def test_report_repeats_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 200)
    kwargs: dict[str, Any] = {"noising_matrix": np.eye(5), "mixing": RING, "predicted": 1.0}
    first = simulate_time(**kwargs, runs=95, seed=7)
    assert first.as_dict() == simulate_time(**kwargs, runs=95, seed=7).as_dict()
    assert first.estimate != simulate_time(**kwargs, runs=95, seed=8).estimate
    assert first.runs == 95


def test_blocks_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    # Were a block to repeat the draws of another, the estimate would spread as that of one block.
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 10)
    estimates = [
        simulate_time(noising_matrix=np.eye(1), predicted=1.0, runs=500, seed=seed).estimate
        for seed in range(40)
    ]
    assert np.std(estimates) < 2 * np.sqrt(2 / 500)


def test_progress_reaches_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 400)
    seen: list[tuple[int, int]] = []
    simulate_time(
        noising_matrix=np.eye(5),
        mixing=RING,
        predicted=1.0,
        runs=50,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(20, 50), (40, 50), (50, 50)]


@pytest.mark.parametrize("design", ["time", "space", "factor"])
def test_memory_does_not_grow_with_runs(monkeypatch: pytest.MonkeyPatch, design: str) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 20_000)

    def job(runs: int) -> Callable[[], object]:
        if design == "space":
            return lambda: simulate_space(
                mixing=np.eye(10), covariance=np.eye(10), predicted=1.0, runs=runs
            )
        workload = {"workload_factor": np.eye(20)} if design == "factor" else {"mixing": RING}
        return lambda: simulate_time(
            noising_matrix=np.eye(20), **workload, predicted=1.0, runs=runs
        )

    job(2000)()
    # A byte a run would be seen: the working set is 160 kB, of which a tenth is allowed.
    assert peak_bytes(job(50_000)) < 1.1 * peak_bytes(job(2000)) + 10_000


def test_memory_of_a_trainer_stream_does_not_grow_with_the_horizon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 40_000)

    def consume(horizon: int) -> Callable[[], object]:
        noising = np.eye(horizon)
        return lambda: [None for _ in time_noise_stream(noising, nodes=4, dimension=2000, seed=0)]

    consume(10)()
    # Drawing all of it in advance would take 64 kB a step.
    assert peak_bytes(consume(100)) < peak_bytes(consume(10)) + 64_000 * 20


# Bad input -------------------------------------------------------------------------------------

TIME: dict[str, Any] = {"noising_matrix": np.eye(3), "mixing": RING, "predicted": 1.0}
SPACE: dict[str, Any] = {"mixing": RING, "covariance": np.eye(4), "predicted": 1.0}


@pytest.mark.parametrize(
    ("base", "change", "field"),
    [
        (TIME, {"runs": 29}, "runs"),
        (TIME, {"runs": 100.0}, "runs"),
        (TIME, {"seed": -1}, "seed"),
        (TIME, {"predicted": 0.0}, "predicted"),
        (TIME, {"predicted": float("nan")}, "predicted"),
        (TIME, {"confidence": 1.0}, "confidence"),
        (TIME, {"noising_matrix": np.ones((2, 3))}, "noising_matrix"),
        (TIME, {"noising_matrix": np.ones((2, 2))}, "noising_matrix"),
        (TIME, {"noising_matrix": np.eye(3, dtype=np.float32)}, "noising_matrix"),
        (TIME, {"noising_matrix": np.diag([1.0, np.nan])}, "noising_matrix"),
        (TIME, {"mixing": np.ones((2, 3))}, "mixing"),
        (TIME, {"mixing": RING.astype(np.float32)}, "mixing"),
        (TIME, {"workload_factor": np.eye(3)}, "workload_factor"),
        (TIME, {"mixing": None, "workload_factor": np.eye(4)}, "workload_factor"),
        (SPACE, {"covariance": np.eye(3)}, "noise"),
        (SPACE, {"covariance": np.diag([1.0, 1.0, 1.0, -1.0])}, "covariance"),
        (SPACE, {"covariance": np.zeros((4, 4))}, "covariance"),
        (SPACE, {"covariance": np.triu(np.ones((4, 4)))}, "covariance"),
        (SPACE, {"covariance": np.full((4, 4), np.inf)}, "covariance"),
        (SPACE, {"mixing": np.full((4, 4), np.nan)}, "mixing"),
        (SPACE, {"runs": 3}, "runs"),
    ],
)
def test_bad_input_names_its_field(
    base: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    simulate: Any = simulate_time if base is TIME else simulate_space
    with pytest.raises(InputError) as error:
        simulate(**{**base, **change})
    assert error.value.field == field


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (
            lambda: time_noise_stream(-np.ones((2, 2)), nodes=1, dimension=1, seed=0),
            "noising_matrix",
        ),
        (lambda: time_noise_stream(np.eye(2), nodes=0, dimension=1, seed=0), "nodes"),
        (lambda: time_noise_stream(np.eye(2), nodes=1, dimension=0, seed=0), "dimension"),
        (
            lambda: Noise.of_covariance(-np.eye(2)).stream(dimension=1, steps=1, seed=0),
            "covariance",
        ),
        (lambda: Noise.of_covariance(np.eye(2)).stream(dimension=1, steps=0, seed=0), "steps"),
        (lambda: Noise.of_covariance(np.eye(2)).stream(dimension=1, steps=1, seed=-1), "seed"),
    ],
)
def test_streams_refuse_bad_input_before_the_first_step(
    make: Callable[[], object], field: str
) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert error.value.field == field


# Independence of the simulator -------------------------------------------------------------------


def test_simulator_imports_numpy_and_checks_only() -> None:
    allowed = {
        "noisedesign.base.checks",
        "noisedesign.base.linalg",
        "noisedesign.base.settings",
        "noisedesign.forms.streams",
        "noisedesign.privacy.seeds",  # what a design hands to its users, as matrices are
        "noisedesign.base.shown",  # how reports look
    }
    for source in Path(package.__file__).parent.glob("*.py"):
        tree = ast.parse(source.read_text())
        # What only type checkers see is not there when it runs.
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{a.name}" for a in node.names]
                if node.module not in ("noisedesign", "noisedesign.base", "noisedesign.forms"):
                    names = [str(node.module)]
            for name in names:
                root = name.split(".")[0]
                assert (
                    name in allowed
                    or name.startswith("noisedesign.tasks.simulation")
                    or root == "numpy"
                    or root in sys.stdlib_module_names
                ), f"{source.name} imports {name}"
