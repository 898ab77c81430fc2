"""The native solver against closed forms, slow oracles, finite differences and hard cases."""

from __future__ import annotations

import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import (
    active_caps,
    central_path,
    diagonal,
    fixed_epoch,
    fixed_epoch as fixed_epoch_newton,
)
from noisedesign.families.disjoint.solver.square_roots import Preconditioner
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from tests.support import ROOT, oracles

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
SPARSE20 = oracles.metropolis(oracles.erdos_renyi(20, 0.2))
KARATE = oracles.metropolis(oracles.karate())


def space(w: np.ndarray, **kwargs: Any) -> SpaceProblem:
    return SpaceProblem(mixing=w, **kwargs)


def gram(h: np.ndarray, epochs: int, separation: int) -> TimeProblem:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    return TimeProblem.from_gram(gram=(h + h.T) / 2, participation=scheme)


def prefix(epochs: int, separation: int) -> TimeProblem:
    return TimeProblem.prefix(participation=FixedEpoch(epochs=epochs, separation=separation))


def decentralized(w: np.ndarray, epochs: int, separation: int) -> TimeProblem:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    return TimeProblem.decentralized(mixing=w, participation=scheme)


def solved(problem: Problem, *, gap: float = 1e-6) -> Solution:
    """Solve, and insist on a feasible answer certified to ``gap``."""
    found = solve(problem, gap=gap)
    assert found.status == "optimal", found.remedy
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.gap <= gap
    return found


def assert_holds(found: Solution, optimum: float, *, rounding: float = 1e-11) -> None:
    """The certified interval contains a known optimum."""
    certificate = found.certificate
    assert certificate is not None
    assert certificate.lower_bound <= optimum * (1 + rounding)
    assert optimum * (1 - rounding) <= certificate.objective


def assert_meets(found: Solution, interval: oracles.Interval) -> None:
    certificate = found.certificate
    assert certificate is not None
    assert interval.meets(certificate.lower_bound, certificate.objective)


# --- closed forms ---------------------------------------------------------------------------------

TRANSITIVE = {
    "ring of 16": nx.cycle_graph(16),
    "ring of 5": nx.cycle_graph(5),
    "torus": nx.grid_2d_graph(4, 5, periodic=True),
    "hypercube": nx.hypercube_graph(4),
    "complete": nx.complete_graph(7),
    "petersen": nx.petersen_graph(),
}


@pytest.mark.parametrize("name", TRANSITIVE)
@pytest.mark.parametrize("lazy", [False, True])
def test_vertex_transitive_graphs(name: str, lazy: bool) -> None:
    w = oracles.metropolis(TRANSITIVE[name])
    if lazy:
        w = (w + np.eye(len(w))) / 2
    if np.abs(np.linalg.eigvalsh(w)).min() < 1e-9:
        with pytest.raises(InputError, match="max_variance"):
            solve(space(w, max_variance="none"))
        return
    for tau in (1.0, 0.3):
        found = solved(space(w, budget=tau), gap=1e-9)
        assert_holds(found, oracles.vertex_transitive_optimum(w, tau=tau))


def test_prefix_sums_of_two_steps() -> None:
    found = solved(prefix(1, 2), gap=1e-12)
    assert found.design is not None
    assert found.design.objective == pytest.approx(oracles.PREFIX_TWO_STEPS, rel=1e-11)


@pytest.mark.parametrize("epochs", [1, 2, 7, 30])
def test_one_record_in_every_step(epochs: int) -> None:
    problem = prefix(epochs, 1)
    found = solved(problem, gap=1e-9)
    assert_holds(found, oracles.every_step_optimum(problem.gram))
    # X is diagonal there, with entries proportional to sqrt(H_tt).
    assert found.design is not None
    x = found.design.strategy.T @ found.design.strategy
    root = np.sqrt(np.diagonal(problem.gram))
    np.testing.assert_allclose(x, np.diag(root / root.sum()), atol=1e-3 / epochs)


@pytest.mark.parametrize(("epochs", "separation"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_diagonal_workloads(epochs: int, separation: int) -> None:
    h = np.array([1.0, 4, 9, 2, 0.25, 100])
    patterns = oracles.fixed_epoch_patterns(epochs, separation)
    optimum = oracles.diagonal_workload_optimum(h, patterns, np.ones(separation))
    assert_holds(solved(gram(np.diag(h), epochs, separation), gap=1e-9), optimum)


def test_oracles_agree_with_each_other() -> None:
    """A closed form, the fixed point, L-BFGS and exact arithmetic on what each can do."""
    ring = oracles.metropolis(nx.cycle_graph(5))
    closed = oracles.vertex_transitive_optimum(ring)
    assert oracles.diagonal_interval(ring @ ring).meets(closed, closed)
    two = oracles.prefix_workload(2).T @ oracles.prefix_workload(2)
    lower, upper = oracles.diagonal_interval_mp(two.tolist())
    assert float(lower) == float(upper) == pytest.approx(oracles.PREFIX_TWO_STEPS, rel=1e-15)
    h = oracles.prefix_workload(6).T @ oracles.prefix_workload(6)
    single = oracles.diagonal_interval(h)
    assert oracles.fixed_epoch_interval(h, 1, 6).meets(single.lower, single.upper)
    every = oracles.every_step_optimum(h)
    assert oracles.fixed_epoch_interval(h, 6, 1).meets(every, every)
    uncapped = oracles.capped_interval(ring @ ring, cap=100.0)
    assert uncapped.meets(closed, closed)
    assert uncapped.width < 1e-6


# --- independent solvers --------------------------------------------------------------------------

GRAPHS = {
    "florentine": nx.florentine_families_graph(),
    "karate": oracles.karate(),
    "sparse": oracles.erdos_renyi(12, 0.3),
    "dense": oracles.erdos_renyi(20, 0.8),
    "path": nx.path_graph(13),
    "barbell": nx.barbell_graph(5, 2),
    "lollipop": nx.lollipop_graph(6, 8),
    "tree": nx.balanced_tree(2, 3),
}
"""Some with a singular W whose optimum is bounded (lollipop), most without."""


@pytest.mark.parametrize("name", GRAPHS)
def test_space_against_the_fixed_point(name: str) -> None:
    w = oracles.metropolis(GRAPHS[name])
    lazy = (w + np.eye(len(w))) / 2
    found = solved(space(lazy), gap=1e-9)
    assert_meets(found, oracles.diagonal_interval(lazy @ lazy, width=1e-7))
    try:
        found = solved(space(w, max_variance="none"))
    except InputError:
        assert np.abs(np.linalg.eigvalsh(w)).min() < 1e-12
        return
    assert_meets(found, oracles.diagonal_interval(w @ w, width=1e-6))


@pytest.mark.parametrize(
    "w",
    [
        oracles.metropolis(nx.path_graph(4)),
        oracles.metropolis(nx.star_graph(3)) / 2 + np.eye(4) / 2,
        pytest.param(
            (oracles.metropolis(nx.lollipop_graph(3, 2)) + np.eye(5)) / 2, marks=pytest.mark.slow
        ),
    ],
    ids=["path", "lazy-star", "lazy-lollipop"],
)
def test_thirty_digits(w: np.ndarray) -> None:
    if abs(np.linalg.eigvalsh(w)).min() < 1e-12:
        pytest.fail("the exact oracle needs a nonsingular W")
    exact = w.T @ w
    lower, upper = oracles.diagonal_interval_mp(exact.tolist())
    assert upper / lower - 1 < 1e-29
    found = solved(space(w), gap=1e-12)
    assert_holds(found, float(lower), rounding=1e-13)
    assert found.design is not None
    assert found.design.objective == pytest.approx(float(upper), rel=1e-11)


@pytest.mark.parametrize(("epochs", "separation"), [(2, 5), (5, 2), (4, 8), (3, 3)])
@pytest.mark.parametrize("kind", ["prefix", "florentine", "row-normalized", "random"])
def test_epochs_against_lbfgs(kind: str, epochs: int, separation: int) -> None:
    horizon = epochs * separation
    if kind == "prefix":
        problem = prefix(epochs, separation)
    elif kind == "random":
        a = np.random.default_rng(horizon).standard_normal((2 * horizon, horizon))
        problem = gram(a.T @ a, epochs, separation)
    else:
        weights = oracles.metropolis if kind == "florentine" else oracles.row_normalized
        problem = decentralized(weights(nx.florentine_families_graph()), epochs, separation)
    interval = oracles.fixed_epoch_interval(np.asarray(problem.gram), epochs, separation)
    assert interval.width < 1e-5
    assert_meets(solved(problem, gap=1e-9), interval)


@pytest.mark.parametrize("name", ["florentine", "sparse", "barbell", "tree"])
@pytest.mark.parametrize("cap", [1.05, 1.3, 3.0])
def test_capped_against_a_conic_solver(name: str, cap: float) -> None:
    w = oracles.metropolis(GRAPHS[name])
    interval = oracles.capped_interval(w @ w, cap=cap)
    assert interval.width < 1e-5
    assert_meets(solved(space(w, max_variance=cap), gap=1e-9), interval)


def test_capped_with_different_caps_and_budgets() -> None:
    rng = np.random.default_rng(5)
    tau = rng.uniform(0.5, 4, 15)
    cap = (1.1 + rng.uniform(0, 2, 15)) / tau
    interval = oracles.capped_interval(FLORENTINE @ FLORENTINE, budget=tau, cap=cap)
    assert interval.width < 1e-5
    found = solved(space(FLORENTINE, budget=tau, max_variance=cap), gap=1e-9)
    assert_meets(found, interval)


# --- numbers of the theory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "ratio"),
    [(FLORENTINE, 0.789), (SPARSE20, 0.736), (oracles.metropolis(nx.cycle_graph(16)), 0.692)],
    ids=["florentine", "erdos-renyi", "ring"],
)
def test_whisper_over_independent_noise(w: np.ndarray, ratio: float) -> None:
    found = solved(space(w))
    assert found.design is not None
    assert found.design.objective / np.square(w).sum() == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("w", "ratio"),
    [(FLORENTINE, 0.375), (SPARSE20, 0.390), (oracles.metropolis(nx.cycle_graph(20)), 0.363)],
    ids=["florentine", "erdos-renyi", "ring"],
)
def test_mafalda_over_independent_noise(w: np.ndarray, ratio: float) -> None:
    problem = decentralized(w, 1, 32)
    found = solved(problem)
    independent = np.trace(oracles.gram_of_powers(w, 32))
    assert found.design is not None
    assert found.design.objective / independent == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("cap", "value"), [pytest.param(10.0, 0.0550, marks=pytest.mark.slow), (2.0, 0.0913)]
)
def test_capped_complete_graph_of_twenty(cap: float, value: float) -> None:
    closed = oracles.complete_graph_capped(20, cap=cap)
    assert closed == pytest.approx(value, abs=5e-5)
    w = np.full((20, 20), 1 / 20)
    assert_holds(solved(space(w, max_variance=cap), gap=1e-9), closed)
    assert oracles.capped_interval(w, cap=cap).meets(closed, closed)


@pytest.mark.parametrize("epochs", [1, 4])
def test_orthogonality_within_patterns_is_lossless(epochs: int) -> None:
    """No X beats the diagonal-on-patterns optimum, even one with entries there."""
    problem = decentralized(FLORENTINE, epochs, 3)
    best = solved(problem, gap=1e-9).certificate
    assert best is not None
    rng = np.random.default_rng(0)
    patterns = oracles.fixed_epoch_patterns(epochs, 3)
    root = np.linalg.cholesky(problem.gram + 1e-3 * np.eye(len(problem.gram)))
    for spread in (0.0, 0.05, 0.3):
        c = root.T + spread * rng.standard_normal(root.shape)
        x = c.T @ c
        worst = max(oracles.elliptope(x[np.ix_(p, p)])[1] for p in patterns)
        value = worst * np.trace(np.linalg.solve(x, problem.gram))
        assert value >= best.lower_bound


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [1e-6, 0.5, 7.0, 1e6])
def test_a_common_budget_only_scales(tau: float) -> None:
    base, scaled = solved(space(FLORENTINE)), solved(space(FLORENTINE, budget=tau))
    assert base.design is not None
    assert scaled.design is not None
    np.testing.assert_allclose(scaled.design.covariance * tau, base.design.covariance, rtol=1e-9)
    assert scaled.design.objective * tau == pytest.approx(base.design.objective, rel=1e-9)
    assert scaled.design.lower_bound * tau == pytest.approx(base.design.lower_bound, rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.9])
@pytest.mark.parametrize("tau", [(1.0, 1.0), (1.0, 3.0), (0.01, 100.0)])
def test_two_nodes_by_search(share: float, tau: tuple[float, float]) -> None:
    # X = [[tau_1, x], [x, tau_2]]: more diagonal only helps, so x is all there is to choose.
    w = np.array([[1 - share, share], [share, 1 - share]])
    h, bound = w.T @ w, np.sqrt(tau[0] * tau[1])
    x = np.linspace(-bound, bound, 400_003)[1:-1]
    values = (h[0, 0] * tau[1] + h[1, 1] * tau[0] - 2 * h[0, 1] * x) / (tau[0] * tau[1] - x**2)
    found = solved(space(w, budget=tau), gap=1e-9)
    assert found.design is not None
    assert found.design.lower_bound <= values.min()
    assert found.design.objective == pytest.approx(values.min(), rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_budgets_per_node_against_the_fixed_point(seed: int) -> None:
    tau = np.exp(np.random.default_rng(seed).normal(0, 2, 15))
    found = solved(space(FLORENTINE, budget=tau), gap=1e-9)
    interval = oracles.diagonal_interval(FLORENTINE @ FLORENTINE, budget=tau, width=1e-10)
    assert_meets(found, interval)
    assert found.design is not None
    precision = np.diagonal(np.linalg.inv(found.design.covariance))
    np.testing.assert_allclose(precision, tau, rtol=1e-6)


@pytest.mark.parametrize("cap", [None, 1.2])
def test_relabelling_nodes_relabels_the_design(cap: float | None) -> None:
    rng = np.random.default_rng(1)
    order, tau = rng.permutation(15), rng.uniform(0.5, 2, 15)
    limit = None if cap is None else cap / tau
    plain = solved(space(FLORENTINE, budget=tau, max_variance=limit), gap=1e-9)
    moved = solved(
        space(
            FLORENTINE[np.ix_(order, order)],
            budget=tau[order],
            max_variance=None if limit is None else limit[order],
        ),
        gap=1e-9,
    )
    assert plain.design is not None
    assert moved.design is not None
    expected = plain.design.covariance[np.ix_(order, order)]
    np.testing.assert_allclose(moved.design.covariance, expected, atol=1e-4)
    assert moved.design.objective == pytest.approx(plain.design.objective, rel=3e-9)


def random_workload(seed: int, n: int, decades: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return np.asarray((q * 10 ** rng.uniform(0, decades, n)) @ q.T)


@hypothesis_settings(derandomize=True, deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), decades=st.integers(0, 4))
def test_any_gram_matrix(seed: int, n: int, decades: int) -> None:
    h = random_workload(seed, n, decades)
    interval = oracles.diagonal_interval((h + h.T) / 2, width=1e-6, sweeps=100)
    assert_meets(solved(gram(h, 1, n)), interval)


@hypothesis_settings(derandomize=True, deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), decades=st.integers(5, 10))
def test_any_badly_conditioned_gram_matrix(seed: int, n: int, decades: int) -> None:
    """Conditions up to 1e10: whatever gap is reached, it is small and it is proved."""
    h = random_workload(seed, n, decades)
    found = solve(gram(h, 1, n))
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.gap <= 1e-4
    interval = oracles.diagonal_interval((h + h.T) / 2, width=1e-6, sweeps=100)
    assert_meets(found, interval)


# --- how much work --------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1e-6, 1e-9])
@pytest.mark.parametrize(
    "w",
    [
        FLORENTINE,
        KARATE,
        SPARSE20,
        oracles.metropolis(nx.barbell_graph(10, 3)),
        oracles.metropolis(oracles.erdos_renyi(100, 0.1)),
    ],
    ids=["florentine", "karate", "sparse", "barbell", "erdos-renyi-100"],
)
def test_few_eigendecompositions_in_space(w: np.ndarray, gap: float) -> None:
    assert solved(space(w), gap=gap).evaluations <= 6


SHIPPED = ROOT / "problems" / "whisper"
REGULAR = ["florentine", "karate", "ring-20", *(f"erdos-renyi-20-p0{p}" for p in (2, 4, 6, 8))]


@pytest.mark.parametrize("name", REGULAR)
def test_few_eigendecompositions_of_shipped_problems(name: str) -> None:
    problem = load_problem(SHIPPED / f"{name}.toml").problem
    assert solved(problem, gap=1e-9).evaluations <= 6


@pytest.mark.parametrize("gap", [1e-6, 1e-9])
@pytest.mark.parametrize(("epochs", "separation"), [(1, 64), (8, 8), (16, 4)])
def test_few_eigendecompositions_in_time(epochs: int, separation: int, gap: float) -> None:
    for problem in (prefix(epochs, separation), decentralized(FLORENTINE, epochs, separation)):
        assert solved(problem, gap=gap).evaluations <= 9


def fixed_point(program: Program, *, gap: float, max_evaluations: int = 10_000) -> np.ndarray:
    """Multipliers v by v <- diag(S) alone, shape (n,): slow, short and hard to get wrong."""
    point = diagonal.evaluate(program, diagonal._start(program))
    for _ in range(max_evaluations):
        slack = diagonal._slack(point)
        lower, upper = diagonal.bounds(program, point, gap=gap, slack=slack)
        if upper <= lower * (1 + gap):
            break
        point = diagonal.evaluate(program, np.log(point.diag))
    return np.asarray(point.v)


def test_the_fixed_point_gets_there_too() -> None:
    program = program_of(space(FLORENTINE))
    v = fixed_point(program, gap=1e-8)
    best = oracles.diagonal_interval(FLORENTINE @ FLORENTINE)
    found = lower_bound(program, diagonal_dual(v))
    assert best.lower * (1 - 1e-8) <= found <= best.upper * (1 + 1e-12)


@pytest.mark.parametrize("direction", ["none", "downhill", "nonsense"])
def test_the_fixed_point_is_the_safeguard(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(
        _point: diagonal.Point, gradient: np.ndarray, *, enough: float
    ) -> np.ndarray | None:
        if direction == "none":
            return None
        return -1e3 * gradient if direction == "downhill" else noise.normal(0, 1e3, 15)

    noise = np.random.default_rng(0)
    monkeypatch.setattr(diagonal, "_newton_direction", replaced)
    found = solved(space(FLORENTINE))
    assert found.evaluations > 10
    assert_meets(found, oracles.diagonal_interval(FLORENTINE @ FLORENTINE))


# --- caps -----------------------------------------------------------------------------------------


def test_a_cap_that_does_not_bind_changes_nothing() -> None:
    free = solved(space(FLORENTINE), gap=1e-9).design
    assert free is not None
    widest = float(np.diagonal(free.covariance).max())
    capped_design = solved(space(FLORENTINE, max_variance=1.5 * widest), gap=1e-9).design
    assert capped_design is not None
    assert capped_design.objective == pytest.approx(free.objective, rel=2e-9)
    np.testing.assert_allclose(capped_design.covariance, free.covariance, atol=1e-3)
    binding = solved(space(FLORENTINE, max_variance=0.9 * widest), gap=1e-9).design
    assert binding is not None
    assert binding.lower_bound > free.objective


@pytest.mark.parametrize("excess", [1e-2, 1e-4, 1e-6])
def test_a_cap_just_above_the_least_possible(excess: float) -> None:
    closed = oracles.complete_graph_capped(5, cap=1 + excess)
    assert_holds(solved(space(np.full((5, 5), 0.2), max_variance=1 + excess)), closed)


@pytest.mark.parametrize("excess", [1e-3, 1e-6, 1e-9, 1e-12])
def test_next_to_the_least_possible_cap_nothing_false_is_claimed(excess: float) -> None:
    # At the limit R must be the identity: the optimum is tr(W^2), and a little less beyond.
    found = solve(space(FLORENTINE, max_variance=1 + excess))
    independent = float(np.square(FLORENTINE).sum())
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.lower_bound <= independent
    assert found.certificate.objective <= independent * (1 + 1e-9)
    assert found.certificate.objective >= independent * (1 - 30 * np.sqrt(excess))


@pytest.mark.parametrize(
    "graph", [nx.cycle_graph(6), nx.complete_graph(5), nx.path_graph(2), nx.star_graph(7)]
)
@pytest.mark.parametrize("cap", [1.5, 100.0])
def test_singular_mixing_with_a_cap(graph: nx.Graph, cap: float) -> None:
    w = oracles.metropolis(graph)
    assert np.abs(np.linalg.eigvalsh(w)).min() < 1e-12
    found = solved(space(w, max_variance=cap), gap=1e-9)
    interval = oracles.capped_interval(w @ w, cap=cap)
    assert interval.width < 1e-4
    assert_meets(found, interval)


# --- derivatives ----------------------------------------------------------------------------------


def jacobian(function: Any, x: np.ndarray, *, step: float) -> np.ndarray:
    """Central differences, one column a coordinate."""
    columns = []
    for i in range(len(x)):
        e = np.zeros_like(x)
        e[i] = step * max(1.0, abs(x[i]))
        columns.append((function(x + e) - function(x - e)) / (2 * e[i]))
    return np.stack(columns, axis=-1)


def test_diagonal_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagonal, "CG_FORCING", 1e-9)
    monkeypatch.setattr(diagonal, "FAR", np.inf)
    program = program_of(space(FLORENTINE))
    u = np.random.default_rng(0).uniform(-1, 1, 15)

    def value(x: np.ndarray) -> float:
        return float(diagonal.evaluate(program, x).phi)

    def gradient(x: np.ndarray) -> np.ndarray:
        point = diagonal.evaluate(program, x)
        return np.asarray(point.diag / point.trace - point.v / point.v.sum())

    np.testing.assert_allclose(jacobian(value, u, step=1e-5), gradient(u), atol=1e-9)

    def trace(v: np.ndarray) -> float:
        return float(np.linalg.norm(FLORENTINE * np.sqrt(v), ord="nuc"))

    # At the best scale: the derivative of t along v is diag(S) / 2 v, and v t^2 / sum(v)^2 has
    # t = sum(v).
    v = np.exp(u)
    v *= (trace(v) / v.sum()) ** 2
    point = diagonal.evaluate(program, np.log(v))
    slope = jacobian(lambda x: 2 * trace(x) - x.sum(), v, step=1e-5)
    np.testing.assert_allclose(slope * v / v.sum(), gradient(np.log(v)), atol=1e-8)

    def slopes(x: np.ndarray) -> np.ndarray:
        root = np.sqrt(x)
        values, vectors = np.linalg.eigh(program.gram * root[:, None] * root)
        return np.asarray(np.square(vectors) @ np.sqrt(values)) / x - 1

    hessian = jacobian(slopes, v, step=1e-5)
    direction = diagonal._newton_direction(point, gradient(np.log(v)), enough=0.0)
    assert direction is not None
    # Newton's equations in v itself, with x = dv / v.
    np.testing.assert_allclose(-hessian @ (v * direction), slopes(v), atol=1e-6)
    curvature = point.root.curvature(trace=point.trace)
    whole = np.stack([curvature(e) for e in np.eye(15)])
    np.testing.assert_allclose(whole, -hessian * v[:, None] * v / v.sum(), atol=1e-6)
    assert whole.min() >= 0
    np.testing.assert_allclose(whole.sum(axis=1), point.diag / point.trace / 2, rtol=1e-12)
    # What preconditions it is above it and has the same row sums.
    precondition = Preconditioner(point.root.curvature_above(trace=point.trace), xp=point.root.xp)
    above = np.linalg.inv(np.stack([precondition(e) for e in np.eye(15)]))
    assert np.linalg.eigvalsh(above - whole).min() > -1e-12
    np.testing.assert_allclose(above.sum(axis=1), whole.sum(axis=1), rtol=1e-6)


def test_one_step_is_enough_where_a_gram_matrix_is_diagonal() -> None:
    h = np.diag([1.0, 4, 9, 2, 0.25, 100])
    program = program_of(gram(h, 1, 6))
    point = diagonal.evaluate(program, np.random.default_rng(0).uniform(-1.5, 1.5, 6))
    point, evaluations = diagonal._advance(program, point, gap=1e-12, slack=False)
    assert evaluations == 1
    # X = I is optimal, and then v = diag(S) = diag(H V)^1/2.
    expected = np.diagonal(h)
    np.testing.assert_allclose(point.v / point.v.sum(), expected / expected.sum(), rtol=1e-8)


def test_fixed_epoch_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_epoch_newton, "CG_FORCING", 1e-9)
    k, b = 4, 3
    program = program_of(decentralized(FLORENTINE, k, b))
    order = program.participation.patterns.ravel()
    shape = fixed_epoch_newton.Blocks(np.ascontiguousarray(program.factor[:, order]), b, k)
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((b, k, 2 * k))
    raw /= np.linalg.norm(raw, axis=2, keepdims=True)
    blocks = rng.uniform(5, 10, (b, 1, 1)) * (raw @ raw.transpose(0, 2, 1))

    def gradient(u: np.ndarray) -> np.ndarray:
        """With respect to the trace inner product on blocks of constant diagonal."""
        return np.asarray(fixed_epoch._evaluate(shape, u).gram_blocks)

    def direction_of(seed: int) -> np.ndarray:
        d = np.random.default_rng(seed).standard_normal((b, k, k))
        d = d + d.transpose(0, 2, 1)
        for block in d:
            np.fill_diagonal(block, block[0, 0])
        return d

    step = 1e-4
    for seed in range(6):
        d = direction_of(seed)
        ahead, behind = (fixed_epoch._evaluate(shape, blocks + s * d) for s in (step, -step))
        slope = (ahead.value - behind.value) / (2 * step)
        assert slope == pytest.approx(np.vdot(gradient(blocks), d) - d[:, 0, 0].sum(), rel=1e-6)

    point = fixed_epoch._evaluate(shape, blocks)
    right = direction_of(99)
    newton, predicted = fixed_epoch_newton.newton_direction(shape, point, right, enough=0.0)
    assert predicted == pytest.approx(np.vdot(right, newton))
    change = (gradient(blocks + step * newton) - gradient(blocks - step * newton)) / (2 * step)
    for seed in range(6):
        d = direction_of(seed)
        assert -np.vdot(change, d) == pytest.approx(np.vdot(right, d), abs=1e-4)


def test_several_epochs_start_near_the_correlations_of_their_blocks() -> None:
    """Blocks of prefix sums are all but singular: from their diagonals it takes ten evaluations."""
    assert solve(prefix(32, 2)).evaluations <= 6


# --- degenerate instances -------------------------------------------------------------------------


def test_one_node() -> None:
    for kwargs in ({}, {"max_variance": 2.0}):
        found = solved(space(np.ones((1, 1)), budget=4.0, **kwargs))
        assert found.design is not None
        np.testing.assert_allclose(found.design.covariance, [[0.25]], rtol=1e-6)
    assert_holds(solved(prefix(1, 1), gap=1e-9), 1.0)
    assert_holds(solved(decentralized(np.ones((1, 1)), 1, 2), gap=1e-9), oracles.PREFIX_TWO_STEPS)


def test_identity_mixing_is_not_a_network_but_diagonal_h_is_fine() -> None:
    found = solved(gram(np.eye(4), 1, 4), gap=1e-12)
    assert found.design is not None
    np.testing.assert_allclose(found.design.strategy, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("leaves", [2, 5, 20])
def test_stars(leaves: int) -> None:
    w = oracles.metropolis(nx.star_graph(leaves))
    assert_meets(solved(space(w)), oracles.diagonal_interval(w @ w, width=1e-7))


@pytest.mark.parametrize("leaves", [2, 5, 100])
def test_a_star_by_one_number(leaves: int) -> None:
    """With 1/n on edges, n = leaves + 1, W D^1/2 at v = (s, 1, ..., 1) has the singular value
    1 - 1/n leaves - 1 times, and those of a 2 x 2 block. The best s is 0: the hub has slack."""
    n = leaves + 1
    w = np.array([[1 / n, np.sqrt(leaves) / n], [np.sqrt(leaves) / n, 1 - 1 / n]])

    def bound(s: float) -> float:
        trace = np.linalg.norm(w * np.sqrt([s, 1]), "nuc") + (leaves - 1) * (1 - 1 / n)
        return float(trace**2 / (s + leaves))

    best = bound(0.0)
    assert best >= max(bound(s) for s in np.geomspace(1e-9, 1e6, 301))
    found = solved(space(oracles.metropolis(nx.star_graph(leaves))), gap=1e-9)
    assert_holds(found, best, rounding=1e-6)


@pytest.mark.parametrize("name", ["ring of 5", "torus", "hypercube"])
def test_nodes_that_look_alike_take_one_evaluation(name: str) -> None:
    assert solved(space(oracles.metropolis(TRANSITIVE[name])), gap=1e-9).evaluations == 1


def test_rounding_of_small_eigenvalues_is_left_to_the_factor() -> None:
    """A ring whose W has an eigenvalue of 1e-7: H has one of 1e-14, known to a per cent or so."""
    a = (1 - 1e-7) / (2 - 2 * np.cos(2 * np.pi * 4 / 9))
    w = (1 - 2 * a) * np.eye(9) + a * nx.to_numpy_array(nx.cycle_graph(9))
    assert np.abs(np.linalg.eigvalsh(w)).min() == pytest.approx(1e-7, rel=1e-6)
    program = Program(gram=w.T @ w, participation=single(9), budget=np.ones(9), exact_factor=w)
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-10))
    assert answer.stop is Stop.SOLVED
    optimum = oracles.vertex_transitive_optimum(w)
    assert lower_bound(program, answer.dual) == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize("graph", [nx.lollipop_graph(30, 270), nx.path_graph(301)])
def test_symmetric_graphs_are_solved_within_eight_arrays(graph: nx.Graph) -> None:
    w = oracles.metropolis(graph)
    program = program_of(space(w)).normalized()
    tracemalloc.start()
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-9))
    peak = tracemalloc.get_traced_memory()[1] / w.nbytes
    tracemalloc.stop()
    assert answer.stop is Stop.SOLVED
    assert 2 + peak < 8


@pytest.mark.parametrize("nodes", [59, 60, 61])
def test_long_paths(nodes: int) -> None:
    # Eigenvalues (1 + 2 cos(pi k / n)) / 3: singular where 3 divides n, and then R diverges.
    w = oracles.metropolis(nx.path_graph(nodes))
    if nodes % 3 == 0:
        with pytest.raises(InputError, match="null direction"):
            solve(space(w, max_variance="none"))
        return
    assert_meets(solved(space(w), gap=1e-9), oracles.diagonal_interval(w @ w, width=1e-6))


def test_barbell_with_a_cap() -> None:
    w = oracles.metropolis(nx.barbell_graph(6, 4))
    interval = oracles.capped_interval(w @ w, cap=1.5)
    assert_meets(solved(space(w, max_variance=1.5), gap=1e-9), interval)


@pytest.mark.parametrize("horizon", [2, 5, 40])
def test_one_epoch_by_the_solver_for_several(horizon: int) -> None:
    program = program_of(prefix(1, horizon))
    answers = [
        module.solve(program, monitor=Monitor(gap=1e-10)) for module in (diagonal, fixed_epoch)
    ]
    bounds, grams = [], []
    for answer in answers:
        assert answer.stop is Stop.SOLVED
        assert answer.dual is not None
        assert answer.gram is not None
        bounds.append(lower_bound(program, answer.dual))
        grams.append(answer.gram / answer.gram[0, 0])
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)
    np.testing.assert_allclose(grams[0], grams[1], atol=1e-4)


def test_a_workload_of_wild_scales() -> None:
    # The square root of a Vandermonde-like workload: conditions of 1e12 and several epochs.
    h = np.diag(np.geomspace(1, 1e6, 12)) @ prefix(3, 4).gram @ np.diag(np.geomspace(1, 1e6, 12))
    found = solved(gram(h, 3, 4))
    # Scaling steps is no symmetry of several epochs; the interval comes from L-BFGS.
    interval = oracles.fixed_epoch_interval(np.asarray((h + h.T) / 2), 3, 4, width=1e-5)
    assert_meets(found, interval)


def test_scaling_the_workload_scales_the_objective() -> None:
    h = np.asarray(prefix(2, 4).gram)
    base = solved(gram(h, 2, 4), gap=1e-10).design
    assert base is not None
    for factor in (1e-30, 1e30):
        scaled = solved(gram(factor * h, 2, 4), gap=1e-10).design
        assert scaled is not None
        assert scaled.objective == pytest.approx(factor * base.objective, rel=3e-10)
        np.testing.assert_allclose(scaled.strategy, base.strategy, atol=1e-4)


def test_a_floor_with_several_epochs_is_refused() -> None:
    program = Program(
        gram=np.eye(4),
        participation=FixedEpoch(epochs=2, separation=2),
        budget=np.ones(2),
        floor=np.full(4, 5.0),
    )
    with pytest.raises(InputError, match="floor"):
        solver.solve(program, monitor=Monitor(gap=1e-6))


# --- stopping early -------------------------------------------------------------------------------

STOPPABLE: dict[str, Problem] = {
    "space": space(KARATE),
    "capped": space(KARATE, max_variance=1.1),
    "epochs": decentralized(FLORENTINE, 4, 8),
}


def assert_sound(found: Solution) -> None:
    """Feasible, and its interval holds the optimum."""
    assert found.feasible
    assert found.certificate is not None
    best = solved(found.problem, gap=1e-9).certificate
    assert best is not None
    assert found.certificate.lower_bound <= best.objective
    assert found.certificate.objective >= best.lower_bound


@pytest.mark.parametrize("name", STOPPABLE)
def test_out_of_time(name: str) -> None:
    found = solve(STOPPABLE[name], time_limit=1e-9)
    assert found.status == "time-limit"
    assert "time" in found.remedy
    assert_sound(found)


@pytest.mark.parametrize("name", STOPPABLE)
@pytest.mark.parametrize("calls", [1, 2])
def test_ctrl_c(name: str, calls: int) -> None:
    seen: list[Bounds] = []

    def progress(bounds: Bounds) -> None:
        if bounds.doing:
            return
        seen.append(bounds)
        if len(seen) == calls:
            raise KeyboardInterrupt

    found = solve(STOPPABLE[name], gap=1e-12, progress=progress)
    assert found.status == "interrupted"
    assert len(seen) == calls
    assert found.remedy
    assert_sound(found)


@pytest.mark.parametrize("name", STOPPABLE)
def test_too_few_iterations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (diagonal, active_caps, central_path, fixed_epoch):
        monkeypatch.setattr(module, "MAX_EVALUATIONS", 3)
    found = solve(STOPPABLE[name])
    assert found.status == "inaccurate"
    monkeypatch.undo()
    assert_sound(found)


@pytest.mark.parametrize("name", STOPPABLE)
def test_progress_tells_proved_bounds(name: str) -> None:
    seen: list[Bounds] = []
    found = solve(STOPPABLE[name], gap=1e-8, progress=seen.append)
    assert found.design is not None
    seen = [bounds for bounds in seen if not bounds.doing]
    assert found.design.provenance.history == tuple(seen)
    last = seen[-1]
    assert last.upper / last.lower - 1 <= 1e-8
    for bounds in seen:
        assert bounds.lower <= found.design.objective * (1 + 1e-12)
        assert bounds.upper >= found.design.lower_bound * (1 - 1e-12)
    assert [b.seconds for b in seen] == sorted(b.seconds for b in seen)
