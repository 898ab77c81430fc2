"""The search for C >= 0, against brute force by quadrature and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import noisedesign as nd
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import DualPoint
from noisedesign.families.amplified.bound import leveled, relief
from noisedesign.families.amplified.program import NonnegativeProgram
from noisedesign.families.amplified.solver import solve
from noisedesign.families.amplified.solver.variance import Goal, sampled
from noisedesign.families.family import family_of
from noisedesign.forms.structure import TimeStructure
from noisedesign.privacy.amplification import amplified_noise, bins_of
from noisedesign.system.workloads import prefix_gram
from tests.support.oracles import Array
from tests.support.random_oracles import two_step_error, two_step_optimum

EPSILON, DELTA = 2.0, 1e-4


def asked(
    gram: Array, bins: int, *, random: bool = True, adjacency: str = "zero-out", **structure: Any
) -> NonnegativeProgram:
    steps = {"epochs": len(gram) // bins, "separation": bins}
    target = nd.PrivacyTarget(epsilon=EPSILON, delta=DELTA, adjacency=adjacency)
    return NonnegativeProgram(
        gram=gram,
        participation=nd.participation.BallsInBins(**steps)
        if random
        else nd.participation.FixedEpoch(**steps),
        structure=TimeStructure(**structure),
        target=target if random else None,
    )


def found_by(program: NonnegativeProgram, **of: Any) -> Array:
    found = solve(program, monitor=Monitor(gap=1e-6, **of))
    assert found.stop is Stop.SOLVED
    assert found.evaluations > 0
    strategy = found.form.dense()
    assert strategy.min() >= 0
    assert (np.triu(strategy, 1) == 0).all()
    return strategy


def bins_gram(strategy: Array, bins: int) -> Array:
    means = np.column_stack([strategy[:, j::bins].sum(axis=1) for j in range(bins)])
    return np.asarray(means.T @ means)


def error(gram: Array, strategy: Array) -> float:
    return float(np.trace(np.linalg.solve(strategy.T @ strategy, gram)))


def amplified(gram: Array, strategy: Array, bins: int, samples: int = 2**13) -> float:
    """Error times variance, by samples that no search has seen."""
    goal = Goal(epsilon=EPSILON, delta=DELTA)
    log = sampled(bins_gram(strategy, bins), goal, samples=samples, seed=99).log
    return error(gram, strategy) * math.exp(log)


def some_gram(size: int, seed: int) -> Array:
    extra = np.random.default_rng(seed).standard_normal((size, size))
    return np.asarray(prefix_gram(horizon=size) + extra @ extra.T / size)


@pytest.mark.slow
def test_two_steps_against_a_grid_by_quadrature() -> None:
    """No [[1, 0], [c, d]] of a grid is better; at the best of them c is positive, and d not 1."""
    gram = some_gram(2, 0)
    grid = [(c, d) for c in np.linspace(0, 1.2, 7) for d in np.linspace(0.4, 1.6, 7)]
    values = [two_steps(gram, np.array([[1.0, 0.0], [c, d]])) for c, d in grid]
    strategy = found_by(asked(gram, 2))
    assert two_steps(gram, strategy) <= min(values) < two_steps(gram, np.eye(2)) * 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_two_steps_against_a_simplex_search_by_quadrature(seed: int) -> None:
    gram = some_gram(2, seed)
    best = two_step_optimum(gram, epsilon=EPSILON, delta=DELTA)
    assert best * (1 - 1e-9) <= two_steps(gram, found_by(asked(gram, 2))) <= 1.002 * best


def two_steps(gram: Array, strategy: Array) -> float:
    return two_step_error(gram, strategy / strategy[0, 0], epsilon=EPSILON, delta=DELTA)


def test_independent_noise_is_best_where_steps_count_one_by_one() -> None:
    """tr (C^T C)^-1 for C >= 0 and bins of one step each: off the diagonal, entries only cost."""
    strategy = found_by(asked(np.eye(5), 5))
    diagonal = np.diagonal(strategy)
    assert strategy == pytest.approx(np.eye(5) * diagonal.mean(), abs=0.02 * diagonal.mean())
    assert amplified(np.eye(5), strategy, 5) <= 1.002 * amplified(np.eye(5), np.eye(5), 5)


@pytest.mark.parametrize(
    "structure",
    [
        {},
        pytest.param({"kind": "banded", "bands": 2}, marks=pytest.mark.slow),
        pytest.param({"kind": "toeplitz"}, marks=pytest.mark.slow),
        pytest.param({"kind": "blt", "buffers": 1}, marks=pytest.mark.slow),
        pytest.param({"kind": "banded-inverse", "bands": 2}, marks=pytest.mark.slow),
    ],
    ids=["dense", "banded", "toeplitz", "blt", "banded-inverse"],
)
def test_nothing_near_is_better(structure: dict[str, Any]) -> None:
    """By samples that the search has not seen, entries outside of its diagonals included."""
    gram, bins = prefix_gram(horizon=12), 4
    strategy = found_by(asked(gram, bins, **structure))
    value = amplified(gram, strategy, bins)
    assert value < 0.8 * amplified(gram, np.eye(12), bins)
    if structure:
        return
    rng = np.random.default_rng(0)
    for _ in range(4):
        near = np.tril(np.abs(strategy * (1 + 0.1 * rng.standard_normal((12, 12)))))
        assert amplified(gram, near, bins) > value
        near = strategy + np.tril(0.05 * rng.random((12, 12)), -1)
        assert amplified(gram, near, bins) > value


@pytest.mark.slow
def test_structure_costs() -> None:
    """Every strategy of a structure is one without: no search of the larger set ends higher."""
    gram, bins = prefix_gram(horizon=24), 6
    values = [
        amplified(gram, found_by(asked(gram, bins, **structure)), bins)
        for structure in ({}, {"kind": "toeplitz"}, {"kind": "blt", "buffers": 1})
    ]
    assert values[0] < values[1] <= 1.002 * values[2]


def bound(gram: Array, epochs: int, bins: int) -> float:
    """On error times variance of all linear mechanisms, by multipliers of fixed participation."""
    problem = nd.TimeProblem.from_gram(
        gram=gram, participation=nd.participation.FixedEpoch(epochs=epochs, separation=bins)
    )
    family = family_of(problem)
    program = family.program(problem)
    proof = family.multipliers(program, monitor=Monitor(gap=1e-6))
    blocks = leveled(proof["dual_blocks"])
    eased = relief(
        blocks[:, 0, 0],
        participation=nd.participation.BallsInBins(epochs=epochs, separation=bins),
        target=nd.PrivacyTarget(epsilon=EPSILON, delta=DELTA, adjacency="zero-out"),
    )
    unit = nd.privacy.mu_of(epsilon=EPSILON, delta=DELTA) ** 2
    return lower_bound(program, DualPoint(blocks=blocks)) / eased / unit


def test_bound_is_reached_by_independent_noise_where_it_is_best() -> None:
    lower = bound(np.eye(12), 3, 4)
    assert lower <= amplified(np.eye(12), np.eye(12), 4, samples=2**17) < 1.01 * lower


@pytest.mark.parametrize(
    ("seed", "epochs", "bins"),
    [*(pytest.param(*one, marks=pytest.mark.slow) for one in [(1, 1, 4), (2, 2, 3)]), (3, 4, 2)],
)
def test_bound_is_below_what_is_found(seed: int, epochs: int, bins: int) -> None:
    gram = some_gram(epochs * bins, seed)
    value = amplified(gram, found_by(asked(gram, bins)), bins)
    assert 0.3 * value < bound(gram, epochs, bins) < value


def test_units_of_the_error_do_not_matter() -> None:
    gram = some_gram(6, 7)
    first, second = (found_by(asked(unit * gram, 3)) for unit in (1.0, 1e12))
    assert amplified(gram, second, 3) == pytest.approx(amplified(gram, first, 3), rel=1e-3)


def test_fixed_participation_against_brute_force() -> None:
    """sigma^2 = max_j G_jj; three entries of [[1, 0], [c, d]] and their scale."""
    gram = some_gram(2, 9)

    def value(x: Array) -> float:
        strategy = np.array([[1.0, 0.0], [abs(x[0]), abs(x[1]) + 1e-6]])
        return error(gram, strategy) * float(np.diagonal(strategy.T @ strategy).max())

    best = scipy.optimize.minimize(
        value, [0.3, 0.9], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    ).fun
    strategy = found_by(asked(gram, 2, random=False))
    largest = float(np.diagonal(bins_gram(strategy, 2)).max())
    assert best * (1 - 1e-9) <= error(gram, strategy) * largest <= 1.001 * best


def test_fixed_participation_is_near_the_certified_optimum() -> None:
    """C of prefix sums is almost nonnegative anyway; several epochs make columns overlap."""
    scheme = nd.participation.FixedEpoch(epochs=2, separation=6)
    certified = nd.solve(nd.TimeProblem.prefix(participation=scheme)).certificate
    gram = prefix_gram(horizon=12)
    strategy = found_by(asked(gram, 6, random=False))
    largest = float(np.diagonal(bins_gram(strategy, 6)).max())
    assert certified.lower_bound <= error(gram, strategy) * largest < 1.1 * certified.lower_bound


def test_a_search_without_time_hands_back_its_start() -> None:
    found = solve(asked(some_gram(6, 10), 3), monitor=Monitor(gap=1e-6, time_limit=0.0))
    assert found.stop is Stop.TIME_LIMIT
    assert found.form.dense().min() >= 0
    assert np.diagonal(found.form.dense()).min() > 0


def test_progress_ends_at_the_objective() -> None:
    gram, bins = some_gram(6, 11), 3
    monitor = Monitor(gap=1e-6)
    strategy = solve(asked(gram, bins), monitor=monitor).form.dense()
    unit = nd.privacy.mu_of(epsilon=EPSILON, delta=DELTA) ** 2
    assert monitor.history[-1].upper == pytest.approx(
        amplified(gram, strategy, bins) * unit, rel=0.01
    )


@pytest.mark.slow
def test_florentine_families() -> None:
    """The proved error over that of the certified optimum of fixed participation, on which nothing
    but the account decides; an unoptimised strategy of ten bands has .61."""
    target = nd.PrivacyTarget(epsilon=EPSILON, delta=DELTA, adjacency="zero-out")
    mixing = nd.mixing_matrix(nd.build_graph("florentine"))
    steps = {"epochs": 20, "separation": 16}
    fixed = nd.TimeProblem.decentralized(
        mixing=mixing, participation=nd.participation.FixedEpoch(**steps)
    )
    certified = nd.solve(fixed).certificate.objective
    gram, scheme = fixed.gram, nd.participation.BallsInBins(**steps)
    strategy = found_by(asked(gram, 16))
    noise, account = amplified_noise(
        bins_of(strategy, scheme), epsilon=EPSILON, delta=DELTA, adjacency=target.adjacency
    )
    assert account.confidence is not None
    assert account.confidence >= 1 - 1e-6
    unit = nd.privacy.mu_of(epsilon=EPSILON, delta=DELTA)
    assert 0.54 < error(gram, strategy) * noise**2 * unit**2 / certified < 0.56
    assert 0.238 < bound(gram, 20, 16) * unit**2 / certified < 0.24
