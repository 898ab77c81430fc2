"""Simulated errors of any objective, against sums over every outcome and against runs by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.files.problem_file import parse_problem
from noisedesign.forms import Noise
from noisedesign.forms.streams import block_noise, time_noise_stream
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.random_mixing import (
    EdgeDropout,
    NodeDropout,
    RandomMixing,
    maximal_matchings,
    pairwise_gossip,
)
from noisedesign.system.workloads import ERRORS, ErrorMeasure, ErrorMixture
from noisedesign.system.workloads.error import OF_THE_END
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.simulation.variance import Source, VarianceReport, simulate_variance
from tests.support import oracles, structured_oracles as slow
from tests.support.space_time_cases import kronecker_noise

PATH_3 = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
SKEWED = np.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])


def fixed(noise: np.ndarray) -> Source:
    """The same noise, shape (T, n), in every run."""

    def source(columns: int, sequence: np.random.SeedSequence) -> Iterator[np.ndarray]:
        return (np.repeat(z[:, None], columns, axis=1) for z in noise)

    return source


def white(nodes: int, horizon: int) -> Source:
    def source(columns: int, sequence: np.random.SeedSequence) -> Iterator[np.ndarray]:
        return Noise.of_covariance(np.eye(nodes)).stream(
            steps=horizon, dimension=columns, seed=sequence
        )

    return source


def errors_by_hand(w: np.ndarray, noise: np.ndarray, of: str, **how: Any) -> list[float]:
    """Weighted squared error after every step, node by node."""
    n, horizon = len(w), len(noise)
    node = np.broadcast_to(how.get("node_weights", 1.0), n)
    steps = np.broadcast_to(how.get("step_weights", 1.0), horizon)
    rates = np.broadcast_to(how.get("learning_rates", 1.0), horizon)
    felt = np.atleast_1d(how.get("curvature", 0.0)) + how.get("weight_decay", 0.0)
    found = np.zeros(horizon)
    for curvature in felt:
        x, m = np.zeros(n), np.zeros(n)
        for t in range(horizon):
            m = how.get("momentum", 0.0) * m + noise[t] - curvature * x
            x = w @ (x + rates[t] * m)
            mean = float(node @ x / node.sum())
            seen = {"mean-model": np.full(n, mean), "consensus": x - mean}.get(of, x)
            seen = np.full(n, mean) if of == "loss-of-mean" else seen
            weight = float(steps[t])
            if of in ("last-iterate", "loss", "loss-of-mean"):
                weight = float(t == horizon - 1)
            if "loss" in of:
                weight *= curvature / 2 / node.sum()
            found[t] += weight * sum(float(a * e**2) for a, e in zip(node, seen, strict=True))
    return list(found)


# --- exact: noise that is no longer random ------------------------------------------------------

SCHEDULES: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"learning_rates": np.array([1.0, 0.5, 0.0, 2.0])},
    {"node_weights": np.array([1.0, 0.0, 3.0]), "momentum": 0.3},
    {"step_weights": np.array([0.0, 1.0, 2.0, 0.5]), "learning_rates": 0.7},
    {"curvature": [0.1, 0.8], "weight_decay": 0.2, "momentum": 0.5, "learning_rates": 0.7},
    {"curvature": [0.1, 0.8], "node_weights": np.array([1.0, 0.0, 3.0])},
]


CASES = [
    (of, how)
    for of in ERRORS
    for how in SCHEDULES
    # Errors of the end have step weights of their own, and losses a curvature.
    if not (of in OF_THE_END and "step_weights" in how) and ("curvature" in how or "los" not in of)
]


@pytest.mark.parametrize("w", [PATH_3, SKEWED], ids=["path", "skewed"])
@pytest.mark.parametrize(("of", "how"), CASES, ids=[" ".join([of, *how]) for of, how in CASES])
def test_fixed_noise_gives_the_error_of_one_run_by_hand(
    of: str, how: dict[str, Any], w: np.ndarray
) -> None:
    noise = np.random.default_rng(3).normal(size=(4, 3))
    expected = errors_by_hand(w, noise, of, **how)
    report = simulate_variance(
        mixing=w,
        error=ErrorMeasure(horizon=4, of=of, **how),
        noise=fixed(noise),
        predicted=sum(expected),
        runs=30,
    )
    np.testing.assert_allclose(report.per_step, expected, rtol=1e-12, atol=1e-14)
    assert report.estimate == pytest.approx(sum(expected), rel=1e-12)
    # All runs alike: no width but that of rounding.
    assert report.interval[1] - report.interval[0] <= 1e-9 * report.estimate


def test_a_mixture_is_the_sum_of_shares_times_errors() -> None:
    noise = np.random.default_rng(4).normal(size=(4, 3))
    how: dict[str, Any] = {"curvature": [0.1, 0.8], "learning_rates": 0.5}
    parts = [errors_by_hand(SKEWED, noise, of, **how) for of in ("consensus", "loss")]
    expected = 0.25 * np.array(parts[0]) + 3.0 * np.array(parts[1])
    measures = [ErrorMeasure(horizon=4, of=of, **how) for of in ("consensus", "loss")]
    report = simulate_variance(
        mixing=SKEWED,
        error=ErrorMixture(shares=[0.25, 3.0], measures=tuple(measures)),
        noise=fixed(noise),
        predicted=float(expected.sum()),
        runs=30,
    )
    np.testing.assert_allclose(report.per_step, expected, rtol=1e-12, atol=1e-14)


def test_one_step_by_hand() -> None:
    # x = W (1, 0, 0) = (2, 1, 0) / 3; its mean is 1/3, and away from it are (1, 0, -1) / 3.
    noise = np.array([[1.0, 0.0, 0.0]])
    for of, expected in [("all-iterates", 5 / 9), ("mean-model", 3 / 9), ("consensus", 2 / 9)]:
        report = simulate_variance(
            mixing=PATH_3,
            error=ErrorMeasure(horizon=1, of=of),
            noise=fixed(noise),
            predicted=expected,
            runs=30,
        )
        assert report.estimate == pytest.approx(expected, rel=1e-14)


# --- random noise: the exact trace --------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("of", ERRORS)
def test_white_noise_costs_the_trace_of_all_unit_runs(of: str, momentum: float) -> None:
    units = np.eye(12).reshape(12, 4, 3)
    how: dict[str, Any] = {"momentum": momentum}
    if "loss" in of:
        how["curvature"] = [0.1, 0.7]
    per_step = np.sum([errors_by_hand(PATH_3, unit, of, **how) for unit in units], 0)
    objective = ErrorMeasure(horizon=4, of=of, **how)
    report = simulated(PATH_3, objective, float(per_step.sum()))
    assert report.agrees
    np.testing.assert_allclose(report.per_step, per_step, rtol=0.1, atol=1e-12)
    assert not simulated(PATH_3, objective, 1.15 * float(per_step.sum())).agrees
    assert not simulated(PATH_3, objective, float(per_step.sum()) / 1.15).agrees


def simulated(
    w: np.ndarray,
    objective: ErrorMeasure,
    predicted: float,
    *,
    random: RandomMixing | None = None,
    runs: int = 4000,
    seed: int = 0,
) -> VarianceReport:
    return simulate_variance(
        mixing=w,
        error=objective,
        noise=white(len(w), objective.horizon),
        random=random,
        predicted=predicted,
        runs=runs,
        seed=seed,
    )


# --- random mixing: every sequence of outcomes --------------------------------------------------

SQUARE = nx.cycle_graph(4)
W_4 = oracles.metropolis(SQUARE)
RANDOM: dict[str, tuple[np.ndarray, RandomMixing, list[tuple[float, np.ndarray]]]] = {
    "dropout": (
        PATH_3,
        NodeDropout(mixing=PATH_3, probability=0.4),
        list(slow.node_dropouts(PATH_3, 0.4)),
    ),
    "edge failures": (
        PATH_3,
        EdgeDropout(mixing=PATH_3, probability=0.5),
        list(slow.edge_failures(PATH_3, 0.5)),
    ),
    "pairs": (W_4, pairwise_gossip(SQUARE), list(slow.one_pair(SQUARE))),
    "maximal matchings": (
        W_4,
        maximal_matchings(SQUARE),
        [
            (0.5, np.kron(np.eye(2), np.full((2, 2), 0.5))),
            (0.5, np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]) / 2),
        ],
    ),
}


def expected_over_sequences(
    outcomes: list[tuple[float, np.ndarray]], noise: np.ndarray, of: str, momentum: float
) -> float:
    """Mean error of fixed noise over all sequences of W, one after another."""
    total = 0.0
    for sequence in itertools.product(outcomes, repeat=len(noise)):
        chance = float(np.prod([p for p, _ in sequence]))
        x, m = np.zeros(noise.shape[1]), np.zeros(noise.shape[1])
        for t, (_, w) in enumerate(sequence):
            m = momentum * m + noise[t]
            x = w @ (x + m)
            seen = {"mean-model": np.full(len(x), x.mean()), "consensus": x - x.mean()}.get(of, x)
            if of != "last-iterate" or t == len(noise) - 1:
                total += chance * float(seen @ seen)
    return total


OFTEN = {
    ("all-iterates", 0.0, "dropout"),
    ("consensus", 0.6, "edge failures"),
    ("consensus", 0.6, "maximal matchings"),
    ("last-iterate", 0.6, "pairs"),
}
"""Every kind of mixing is tried, and every error with some kind."""


@pytest.mark.parametrize(
    ("of", "momentum", "name"),
    [
        pytest.param(*case, marks=() if case in OFTEN else pytest.mark.slow)
        for name in RANDOM
        for case in (
            ("all-iterates", 0.0, name),
            ("consensus", 0.6, name),
            ("last-iterate", 0.6, name),
        )
    ],
)
def test_random_mixing_costs_the_mean_over_all_sequences(
    name: str, of: str, momentum: float
) -> None:
    w, random, outcomes = RANDOM[name]
    n, horizon = len(w), 3
    units = np.eye(n * horizon).reshape(-1, horizon, n)
    exact = sum(expected_over_sequences(outcomes, unit, of, momentum) for unit in units)
    objective = ErrorMeasure(horizon=horizon, of=of, momentum=momentum)
    assert simulated(w, objective, exact, random=random).agrees
    assert not simulated(w, objective, 1.25 * exact, random=random).agrees
    # The W without failures, or on average, is another one.
    assert not simulated(w, objective, exact, random=None).agrees


def test_every_run_draws_its_own_mixing() -> None:
    """Two nodes, noise (1, -1): an edge that is up cancels it, one that fails keeps its square 2.

    Of 2,000 runs about half keep it. Were the draw shared by runs, all would, or none.
    """
    w = np.full((2, 2), 0.5)
    report = simulate_variance(
        mixing=w,
        error=ErrorMeasure(horizon=1),
        noise=fixed(np.array([[1.0, -1.0]])),
        random=EdgeDropout(mixing=w, probability=0.5),
        predicted=1.0,
        runs=2000,
    )
    assert report.agrees
    # A mean of 2,000 fair coins of 0 and 2: standard error 1 / sqrt(2000), times 3.89 each way.
    width = report.interval[1] - report.interval[0]
    assert width == pytest.approx(2 * 3.8906 / np.sqrt(2000), rel=0.02)


def test_every_step_draws_its_own_mixing() -> None:
    """As above over two steps: the noise of the first survives both with probability 1/4.

    |x_2|^2 + |x_3|^2 is 2 (1/2) + 2 (1/4) on average; with one draw for both steps, 2 (1/2) twice.
    """
    w = np.full((2, 2), 0.5)
    report = simulate_variance(
        mixing=w,
        error=ErrorMeasure(horizon=2),
        noise=fixed(np.array([[1.0, -1.0], [0.0, 0.0]])),
        random=EdgeDropout(mixing=w, probability=0.5),
        predicted=1.5,
        runs=4000,
    )
    assert report.agrees
    np.testing.assert_allclose(report.per_step, [1.0, 0.5], atol=0.1)


def test_seeds_and_blocks() -> None:
    w, random, _ = RANDOM["dropout"]
    objective = ErrorMeasure(horizon=2)
    first, again = (simulated(w, objective, 5.0, random=random, runs=200) for _ in range(2))
    assert first.estimate == again.estimate
    other = simulated(w, objective, 5.0, random=random, runs=200, seed=1)
    assert other.estimate != first.estimate


def test_noise_and_mixing_do_not_share_their_draws() -> None:
    """The noise of a seed is the same whether W is random or not."""
    drawn: list[np.ndarray] = []

    def source(columns: int, sequence: np.random.SeedSequence) -> Iterator[np.ndarray]:
        for z in white(3, 2)(columns, sequence):
            drawn.append(z)
            yield z

    for random in (None, RANDOM["dropout"][1]):
        simulate_variance(
            mixing=PATH_3,
            error=ErrorMeasure(horizon=2),
            noise=source,
            random=random,
            predicted=1.0,
            runs=40,
        )
    np.testing.assert_array_equal(drawn[:2], drawn[2:])


def test_bad_input() -> None:
    good: dict[str, Any] = {
        "mixing": PATH_3,
        "error": ErrorMeasure(horizon=2),
        "noise": white(3, 2),
        "predicted": 1.0,
    }
    for key, value in [("mixing", PATH_3[:2]), ("predicted", 0.0), ("runs", 29)]:
        with pytest.raises(InputError, match=f"^{key}"):
            simulate_variance(**(good | {key: value}))


# --- noise of space-time designs ------------------------------------------------------------------

NOISING = np.array([[2.0, 0, 0], [-1, 1, 0], [0.5, -1, 3]])
COVARIANCE = np.array([[2.0, -1], [-1, 1]])


def test_block_noise_is_the_rows_of_the_noising_matrix() -> None:
    noising = np.tril(np.random.default_rng(1).normal(size=(6, 6)))
    steps = list(block_noise(noising, np.eye(6).reshape(3, 2, 6), nodes=2))
    np.testing.assert_allclose(np.concatenate(steps), noising, rtol=1e-15)


def test_kronecker_noise_is_the_root_of_r_on_noise_of_every_node() -> None:
    """White noise of the same seed, combined over steps and then over nodes, row by row."""
    drawn: dict[str, Any] = {"dimension": 5, "seed": 7}
    plain = np.array(list(time_noise_stream(np.eye(3), nodes=2, **drawn)))
    found = np.array(list(kronecker_noise(NOISING, COVARIANCE).stream(**drawn)))
    in_time = np.einsum("ts,snd->tnd", NOISING, plain)
    # Whatever root of R: what both nodes' noise has in common with itself is R.
    solved_for = np.linalg.lstsq(
        in_time.transpose(1, 0, 2).reshape(2, -1).T,
        found.transpose(1, 0, 2).reshape(2, -1).T,
        rcond=None,
    )[0].T
    np.testing.assert_allclose(solved_for @ solved_for.T, COVARIANCE, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("ij,tjd->tid", solved_for, in_time), found, atol=1e-12)


def test_kronecker_noise_has_the_product_covariance() -> None:
    samples = 40_000
    steps = list(kronecker_noise(NOISING, COVARIANCE).stream(dimension=samples, seed=0))
    stacked = np.concatenate(steps)
    expected = np.kron(NOISING @ NOISING.T, COVARIANCE)
    scale = np.sqrt(np.diagonal(expected))
    # An entry of a sample correlation has standard error at most sqrt(2 / samples).
    error = (stacked @ stacked.T / samples - expected) / scale[:, None] / scale
    assert np.abs(error).max() <= 5 * np.sqrt(2 / samples)


JOINT = (
    'name = "x"\ndesign = "space-time"\n[graph]\nkind = "path"\nnodes = 3\n'
    "[participation]\nepochs = 2\nseparation = 2\n"
)
KINDS = {
    "kronecker": JOINT,
    "full": JOINT + '[structure]\njoint = "full"\n',
    "kronecker, momentum": JOINT + "[error]\nmomentum = 0.7\n",
    "full, dropout": JOINT + '[structure]\njoint = "full"\n[mixing]\ndropout = 0.3\n',
    "space, horizon": JOINT.split("[participation]")[0].replace("space-time", "space")
    + "[error]\nhorizon = 4\n",
}


def trace_by_hand(kind: str, design: Any) -> float:
    """tr(H cov(z)) with both written out: unit runs, and the covariance of all noise."""
    outcomes = list(slow.node_dropouts(PATH_3, 0.3)) if "dropout" in kind else [(1.0, PATH_3)]
    if "momentum" in kind:
        runs = np.array(list(slow.noise_to_state(PATH_3, 4, momentum=0.7)))
        gram = np.einsum("tia,tib->ab", runs, runs)
    else:
        gram = slow.random_gram(outcomes, 4)
    if kind.startswith("space"):
        covariance = np.kron(np.eye(4), design.covariance)
    elif kind.startswith("full"):
        noising = np.linalg.inv(design.strategy)
        covariance = noising @ noising.T
    else:
        noising = np.linalg.inv(design.strategy)
        covariance = np.kron(noising @ noising.T, design.covariance)
    return float(np.sum(gram * covariance))


@pytest.mark.parametrize("kind", KINDS)
def test_designs_are_validated_with_the_noise_they_export(kind: str) -> None:
    design = solve(parse_problem(KINDS[kind], folder=".").problem).design
    assert design is not None
    exact = trace_by_hand(kind, design)
    assert design.objective == pytest.approx(exact, rel=1e-10)
    outcome = simulate(design, runs=3000)
    assert outcome.variance.agrees
    assert outcome.audit.agrees
    low, high = outcome.variance.interval
    assert high / low <= 1.3
    assert low <= exact <= high


def test_what_is_measured_has_its_name() -> None:
    """A loss is no squared error, and the largest of some errors is no sum."""
    path = build_graph("path", nodes=3)
    curved: dict[str, Any] = {"curvature": [0.1, 0.5], "learning_rate": 0.5}
    loss = ErrorMeasure(horizon=2, of="loss", **curved)
    every = ErrorMeasure(horizon=2, **curved)
    for error, name in (
        (None, "total squared error"),
        (every, "total squared error"),
        (loss, "loss"),
        (ErrorMixture(shares=[1, 1], measures=(loss, every)), "total of the errors"),
        (ErrorMeasure(horizon=2, of="worst-node"), "largest squared error"),
    ):
        design = solve(SpaceProblem.from_graph(path, error=error, max_variance=10.0)).design
        assert design is not None
        assert simulate(design, runs=50).records()[0]["quantity"] == name
