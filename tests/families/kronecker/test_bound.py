"""Lower bounds on all joint designs, the search for good witnesses, and streams of joint noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify import certificate
from noisedesign.design.solve import solve
from noisedesign.families.kronecker import solver as kronecker_witness
from noisedesign.families.kronecker.bound import Witness, full_dual, judge_kronecker, lower_bound
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import Noise
from noisedesign.forms.streams import block_noise
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.participation import single
from tests.support import oracles
from tests.support.space_time_cases import (
    GRAPHS,
    all_iterates,
    design_full,
    design_kronecker,
    kronecker_noise,
    patterns_of,
    stacked_workload,
)

Array = Any
SYMMETRIC = [name for name in GRAPHS if name != "directed"]


def random_witness(n: int, epochs: int, separation: int, seed: int) -> Witness:
    """Feasible: p_j times correlation matrices, and positive weights."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(separation, epochs, epochs))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    prices = random.exponential(size=separation)
    blocks = rows @ rows.transpose(0, 2, 1) * prices[:, None, None]
    return Witness(blocks=blocks, weights=random.exponential(size=n))


def dense_bound(w: Array, witness: Witness, tau: Array, epochs: int, separation: int) -> float:
    """The bound of P x diag(v) with nothing dropped, through all nT coordinates."""
    n = len(w)
    a = stacked_workload(w, epochs * separation)
    blocks = [v * witness.blocks[j] for j in range(separation) for v in witness.weights]
    halves = [
        a[:, pattern] @ np.linalg.cholesky(block + 1e-15 * block[0, 0] * np.eye(epochs))
        for pattern, block in zip(patterns_of(n, epochs, separation), blocks, strict=True)
    ]
    price = sum(tau[i % n] * block[0, 0] for i, block in enumerate(blocks))
    return float(np.linalg.svd(np.hstack(halves), compute_uv=False).sum() ** 2 / price)


# --- the bound ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "low"), [(nx.florentine_families_graph(), 0.006), (nx.cycle_graph(7), 1e-4)]
)
def test_most_of_the_gap_is_the_price_of_the_structure(graph: nx.Graph, low: float) -> None:
    """The optimum over all pairs of node and step between two bounds, by the fixed point of v."""
    w, horizon = oracles.metropolis(graph), 12
    a = stacked_workload(w, horizon)
    h = a.T @ a
    v, lower, upper = np.sqrt(np.diagonal(h)), 0.0, np.inf
    for _ in range(20):
        root = np.sqrt(v)
        squared, basis = np.linalg.eigh(root[:, None] * h * root)
        s = (basis * np.sqrt(squared)) @ basis.T
        lower = max(lower, float(np.trace(s)) ** 2 / float(v.sum()))
        x = s / root[:, None] / root
        used = np.sqrt(np.diagonal(x))
        upper = min(upper, float(np.sum(h * np.linalg.inv(x / used[:, None] / used))))
        v = np.diagonal(s).copy()
    assert lower * (1 - 1e-12) <= upper <= lower * (1 + 1e-3)
    design = solve(SpaceTimeProblem(mixing=w, participation=single(horizon)), gap=1e-6).design
    assert design is not None
    assert lower / (1 + low) <= design.lower_bound <= upper * (1 + 1e-12)
    assert design.objective / upper - 1 > 5 * low


def test_bound_of_one_edge_by_hand() -> None:
    # T = 1: c_j = |lambda_j| sqrt(p), so with v = 1 the bound is (1 + 1/2)^2 / (2 tau).
    w = np.array([[0.75, 0.25], [0.25, 0.75]])
    witness = Witness(blocks=np.full((1, 1, 1), 7.0), weights=np.full(2, 3.0))
    found = lower_bound(all_iterates(w, 1, 1, 2.0), witness)
    assert found == pytest.approx(1.5**2 / 4, rel=1e-12)


@pytest.mark.parametrize(("epochs", "separation"), [(1, 4), (2, 2), (3, 1)])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_bound_is_below_its_dense_counterpart(name: str, epochs: int, separation: int) -> None:
    w = GRAPHS[name]
    n = len(w)
    tau = np.linspace(0.5, 2.0, n)
    asked = all_iterates(w, epochs, separation, tau)
    for seed in range(3):
        witness = random_witness(n, epochs, separation, seed)
        found = lower_bound(asked, witness)
        assert 0 < found <= dense_bound(w, witness, tau, epochs, separation) * (1 + 1e-7)
        # With equal weights nothing is lost: U = P x I commutes with the modes.
        even = replace(witness, weights=np.ones(n))
        found = lower_bound(asked, even)
        dense = dense_bound(w, even, tau, epochs, separation)
        assert found == pytest.approx(dense, rel=1e-7)


@pytest.mark.parametrize("epochs", [1, 2])
def test_full_dual_prices_every_pattern(epochs: int) -> None:
    # The same multipliers through the program on all coordinates.
    w, tau = GRAPHS["path-4"], np.linspace(0.5, 2.0, 4)
    asked = all_iterates(w, epochs, 3, tau)
    witness = random_witness(4, epochs, 3, 5)
    found = certificate.lower_bound(asked.full_program(), full_dual(witness))
    assert found == pytest.approx(dense_bound(w, witness, tau, epochs, 3), rel=1e-7)


@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["path-4", "lollipop", "star-4, singular"]),
    shape=st.sampled_from([(1, 3), (2, 2)]),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-150, 1.0, 1e150]),
)
def test_any_witness_proves_at_most_the_optimum(
    name: str, shape: tuple[int, int], seed: int, scale: float
) -> None:
    # Neither symmetric, nor positive semidefinite, nor of constant diagonal, nor nonnegative.
    asked, optimum = solved(name, *shape)
    random = np.random.default_rng(seed)
    k, b = shape
    noise = random.normal(size=(b, k, k))
    good = random_witness(asked.workload.nodes, k, b, seed)
    witness = Witness(
        blocks=scale * (good.blocks + random.exponential() * noise),
        weights=scale * (good.weights + random.normal(size=len(good.weights))),
    )
    found = lower_bound(asked, witness)
    assert 0 <= found <= optimum


SOLVED: dict[tuple[str, int, int], tuple[SpaceTimeProgram, float]] = {}


def solved(name: str, epochs: int, separation: int) -> tuple[SpaceTimeProgram, float]:
    """A problem with budgets of its own, and the objective of its full design."""
    key = name, epochs, separation
    if key not in SOLVED:
        w = GRAPHS[name]
        asked = all_iterates(w, epochs, separation, np.linspace(2.0, 1.0, len(w)))
        SOLVED[key] = asked, design_full(asked, gap=1e-9).certificate.objective
    return SOLVED[key]


@pytest.mark.parametrize("broken", [np.nan, np.inf, 0.0, -1.0])
def test_a_broken_witness_proves_nothing(broken: float) -> None:
    asked = all_iterates(GRAPHS["path-4"], 1, 2)
    good = random_witness(4, 1, 2, 0)
    for witness in (
        replace(good, blocks=good.blocks * broken),
        replace(good, weights=good.weights * broken),
    ):
        found = lower_bound(asked, witness)
        assert found == 0


@pytest.mark.parametrize(("epochs", "separation"), [(1, 8), (2, 4), (4, 2)])
@pytest.mark.parametrize(
    "graph", [nx.cycle_graph(5), nx.petersen_graph()], ids=["ring", "petersen"]
)
def test_bound_is_exact_where_nodes_look_alike(
    graph: nx.Graph, epochs: int, separation: int
) -> None:
    w = oracles.metropolis(graph)
    asked = all_iterates(w, epochs, separation, 3.0)
    bound = design_kronecker(asked).certificate.lower_bound
    full = design_full(asked).certificate
    assert bound <= full.objective
    assert bound == pytest.approx(full.lower_bound, rel=2e-5)


@pytest.mark.parametrize("name", ["path-4", "lollipop", "star-4, singular", "directed"])
def test_bound_is_close_where_they_do_not(name: str) -> None:
    asked = all_iterates(GRAPHS[name], 2, 4)
    bound = design_kronecker(asked).certificate.lower_bound
    optimum = design_full(asked).certificate
    assert 0.97 * optimum.lower_bound <= bound <= optimum.objective


# --- better witnesses -----------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "separation"), [(1, 4), (3, 2)])
def test_gradient_of_the_bound(epochs: int, separation: int) -> None:
    asked = all_iterates(GRAPHS["lollipop"], epochs, separation, np.linspace(0.5, 2.0, 5))
    random = np.random.default_rng(0)
    x = random.normal(size=5 + separation * (1 + epochs**2))

    def value(at: Array) -> float:
        found, _ = kronecker_witness.log_bound(at, asked)
        return found

    _, gradient = kronecker_witness.log_bound(x, asked)
    for _ in range(5):
        along = random.normal(size=len(x))
        difference = (value(x + 1e-5 * along) - value(x - 1e-5 * along)) / 2e-5
        assert gradient @ along == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_improved_witnesses_prove_more() -> None:
    asked = all_iterates(GRAPHS["lollipop"], 2, 3, np.linspace(0.5, 2.0, 5))

    def bound(witness: Witness) -> float:
        return lower_bound(asked, witness)

    start = random_witness(5, 2, 3, 1)
    better = kronecker_witness.improved(start, asked, monitor=Monitor(gap=1e-9))
    log_value, _ = kronecker_witness.log_bound(kronecker_witness._start(better), asked)
    assert bound(better) == pytest.approx(np.exp(log_value), rel=1e-7)
    optimum = design_full(asked).certificate
    assert bound(start) < 0.9 * optimum.lower_bound
    assert 0.97 * optimum.lower_bound < bound(better) <= optimum.objective
    # Out of time at once: the start is returned.
    at_once = Monitor(gap=1e-9, time_limit=0.0)
    stopped = kronecker_witness.improved(start, asked, monitor=at_once)
    assert bound(stopped) == pytest.approx(bound(start), rel=1e-9)


# --- judging --------------------------------------------------------------------------------------


def test_what_is_no_covariance_is_not_certified() -> None:
    asked = all_iterates(GRAPHS["path-4"], 1, 2)
    for covariance in (np.ones((4, 4)), np.eye(4) + np.triu(np.ones((4, 4)), 1), -np.eye(4)):
        judged = judge_kronecker(asked, strategy=np.eye(2), covariance=covariance, bound=1.0)
        assert judged.sensitivity_squared == np.inf
        assert not judged.feasible


def test_sensitivity_is_that_of_both_factors() -> None:
    # C^T C = 4 I moves a pattern of two steps by 8, R^-1 has 1 / 0.5 where tau is 4: 8 * 2 / 4.
    asked = all_iterates(GRAPHS["path-4"], 2, 1, np.array([1e3, 4.0, 1e3, 1e3]))
    judged = judge_kronecker(
        replace(asked, cap=np.full(4, 0.8)),
        strategy=2 * np.eye(2),
        covariance=np.diag([1.0, 0.5, 1.0, 1.0]),
        bound=1.0,
    )
    assert judged.sensitivity_squared == pytest.approx(4.0, rel=1e-12)
    assert judged.variance_ratio == pytest.approx(1.25, rel=1e-12)


# --- streams --------------------------------------------------------------------------------------


def unit_vectors(nodes: int, horizon: int) -> list[Array]:
    """White noise of nT model coordinates, each a unit vector."""
    return list(np.eye(nodes * horizon).reshape(horizon, nodes, nodes * horizon))


@pytest.mark.parametrize(("epochs", "separation"), [(1, 3), (2, 2)])
def test_block_rows_have_the_designed_covariance(epochs: int, separation: int) -> None:
    w, tau = GRAPHS["path-4"], np.linspace(0.5, 2.0, 4)
    horizon = epochs * separation
    asked = all_iterates(w, epochs, separation, tau)
    design = design_full(asked)
    noising = np.linalg.inv(design.strategy)
    steps = list(block_noise(np.tril(noising), unit_vectors(4, horizon), nodes=4))
    assert [step.shape for step in steps] == [(4, 4 * horizon)] * horizon
    drawn = np.vstack(steps)
    np.testing.assert_allclose(drawn @ design.strategy, np.eye(4 * horizon), atol=1e-12)
    covariance = drawn @ drawn.T
    precision = design.strategy.T @ design.strategy
    np.testing.assert_allclose(covariance @ precision, np.eye(4 * horizon), atol=1e-10)
    a = stacked_workload(w, horizon)
    total = np.trace(a @ covariance @ a.T)
    assert total == pytest.approx(design.certificate.objective, rel=1e-11)
    for t in range(horizon):  # no step sees a later draw
        assert not drawn[4 * t : 4 * t + 4, 4 * t + 4 :].any()


def test_noise_of_a_step_needs_no_later_white_noise() -> None:
    asked: list[int] = []

    def white() -> Any:
        for step in range(3):
            asked.append(step)
            yield np.ones((2, 1))

    noise = block_noise(np.tril(np.ones((6, 6))), white(), nodes=2)
    assert not asked
    np.testing.assert_array_equal(next(noise), [[1.0], [2.0]])
    assert asked == [0]
    np.testing.assert_array_equal(next(noise), [[3.0], [4.0]])
    assert asked == [0, 1]
    assert len(list(noise)) == 1


def test_kronecker_noise_is_block_noise_of_the_product() -> None:
    asked = all_iterates(GRAPHS["path-4"], 1, 5)
    design = design_kronecker(asked)
    noising = np.tril(np.linalg.inv(design.strategy))
    stream = kronecker_noise(noising, design.covariance).stream(dimension=3, seed=7)
    white = Noise.of_covariance(np.eye(4)).stream(dimension=3, steps=5, seed=7)
    product = np.kron(noising, np.linalg.cholesky(design.covariance))
    for drawn, expected in zip(stream, block_noise(product, white, nodes=4), strict=True):
        np.testing.assert_allclose(drawn, expected, atol=1e-13)
    a = stacked_workload(GRAPHS["path-4"], 5)
    total = np.square(a @ product).sum()
    assert total == pytest.approx(design.certificate.objective, rel=1e-11)


def test_streams_refuse() -> None:
    with pytest.raises(InputError, match="lower triangular"):
        block_noise(np.ones((4, 4)), [], nodes=2)
    with pytest.raises(InputError, match="multiple of 3 rows"):
        block_noise(np.eye(4), [], nodes=3)
    with pytest.raises(InputError, match="white: expected 2 rows"):
        next(block_noise(np.eye(4), [np.ones((3, 1))], nodes=2))
    with pytest.raises(InputError, match="lower triangular"):
        kronecker_noise(np.ones((2, 2)), np.eye(2)).stream(dimension=1, seed=0)
    with pytest.raises(InputError, match="positive semidefinite"):
        kronecker_noise(np.eye(2), -np.eye(2)).stream(dimension=1, seed=0)
