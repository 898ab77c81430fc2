"""Floors on diag(R): closed forms, an independent conic model, and what a floor may not do."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Monitor
from noisedesign.certify.certificate import Certificate, lower_bound
from noisedesign.certify.program import DualPoint, Program
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import smoothed
from noisedesign.forms.structure import SpaceStructure
from noisedesign.mechanisms.baselines import baseline
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import graph_laplacian
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.random_mixing import NodeDropout
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.conic_cases import ask, need
from tests.support.made_designs import multipliers

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
GRAPHS = {
    "florentine": nx.florentine_families_graph(),
    "sparse": oracles.erdos_renyi(12, 0.3),
    "tree": nx.balanced_tree(2, 3),
    "barbell": nx.barbell_graph(5, 2),
    "star": nx.star_graph(6),
}
RING = oracles.metropolis(nx.cycle_graph(5))

PROBLEM = SpaceProblem(mixing=RING, min_variance=4.0)
OPTIMUM = oracles.ring_with_variance(RING, variance=4.0)


def solved(problem: SpaceProblem, *, gap: float = 1e-9) -> Solution:
    found = solve(problem, gap=gap)
    assert found.status == "optimal", found.remedy
    assert found.feasible
    return found


def certified(problem: SpaceProblem) -> Certificate:
    certificate = solved(problem).certificate
    assert certificate is not None
    return certificate


def assert_holds(certificate: Certificate, optimum: float) -> None:
    assert certificate.lower_bound <= optimum * (1 + 1e-11)
    assert optimum <= certificate.objective * (1 + 1e-11)


# --- closed forms ---------------------------------------------------------------------------------


def test_independent_noise_where_h_is_diagonal() -> None:
    """Nodes that hand their model on: H is diagonal, node i pays h_i max(f_i, 1 / tau_i)."""
    w = np.roll(np.eye(4), 1, axis=1)
    weights, tau = np.array([1.0, 5, 0.5, 2]), np.array([1.0, 2, 0.5, 4])
    floor = np.array([3.0, 0.5, 1.0, 0.25 * 1.001])
    problem = SpaceProblem(
        mixing=w,
        error=ErrorMeasure(horizon=1, node_weights=weights),
        budget=tau,
        min_variance=floor,
    )
    h = np.roll(weights, 1)  # node i hands on to node i - 1
    np.testing.assert_array_equal(problem.gram, np.diag(h))
    variance = np.array([3.0, 0.5, 2.0, 0.25 * 1.001])  # max(f, 1 / tau) by hand
    assert_holds(certified(problem), float(h @ variance))
    design = solved(problem).design
    assert design is not None
    np.testing.assert_allclose(design.covariance, np.diag(variance), atol=1e-6)


@pytest.mark.parametrize("n", [3, 5, 9])
@pytest.mark.parametrize(("floor", "kept"), [(2.0, 0.5), (40.0, 0.5), (4.0, 0.9)])
def test_lazy_complete_graph(n: int, floor: float, kept: float) -> None:
    """W = kept I + (1 - kept) J / n. R has eigenvalues x (once) and a, and the objective
    x + (n - 1) kept^2 a; budget and floor both bind, as a cap of that size would for W = J / n."""
    w = kept * np.eye(n) + (1 - kept) / n
    x = oracles.complete_graph_capped(n, cap=floor)
    a = (n * floor - x) / (n - 1)
    assert (1 / x + (n - 1) / a) / n == pytest.approx(1)
    problem = SpaceProblem(mixing=w, min_variance=floor)
    assert_holds(certified(problem), x + (n - 1) * kept**2 * a)


@pytest.mark.parametrize("nodes", [5, 8])
@pytest.mark.parametrize("floor", [3.0, 1000.0])
@pytest.mark.parametrize("tau", [1.0, 0.2])
def test_rings(nodes: int, floor: float, tau: float) -> None:
    w = oracles.metropolis(nx.cycle_graph(nodes))
    problem = SpaceProblem(mixing=w, min_variance=floor / tau, budget=tau)
    assert_holds(certified(problem), oracles.ring_with_variance(w, variance=floor) / tau)


def test_one_node() -> None:
    design = solved(SpaceProblem(mixing=np.ones((1, 1)), budget=4.0, min_variance=0.75)).design
    assert design is not None
    np.testing.assert_allclose(design.covariance, [[0.75]], rtol=1e-9)


# --- an independent conic model -------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(
    ("floor", "cap"), [(1.5, None), (5.0, None), (1.5, 2.0), (1.5, 1.5), (1.5, 1.501)]
)
def test_against_a_conic_solver(name: str, floor: float, cap: float | None) -> None:
    w = oracles.metropolis(GRAPHS[name])
    if np.abs(np.linalg.eigvalsh(w)).min() < 1e-9 and cap is None:
        with pytest.raises(InputError, match="a cap beside limits.min_variance") as caught:
            solve(SpaceProblem(mixing=w, min_variance=floor))
        assert caught.value.field == "limits.max_variance"
        return
    interval = oracles.floored_interval(w @ w, floor=floor, cap=cap)
    assert interval.width < 1e-6
    found = certified(SpaceProblem(mixing=w, min_variance=floor, max_variance=cap))
    assert interval.meets(found.lower_bound, found.objective)


def test_different_floors_caps_and_budgets() -> None:
    rng = np.random.default_rng(5)
    tau = rng.uniform(0.5, 4, 15)
    floor = rng.uniform(0.5, 3, 15) / tau
    cap = np.maximum(floor, 1.05 / tau) * np.where(rng.uniform(size=15) < 0.3, 1.0, 2.0)
    assert (cap == floor).any()
    interval = oracles.floored_interval(FLORENTINE @ FLORENTINE, floor=floor, budget=tau, cap=cap)
    assert interval.width < 1e-6
    problem = SpaceProblem(mixing=FLORENTINE, budget=tau, min_variance=floor, max_variance=cap)
    found = certified(problem)
    assert interval.meets(found.lower_bound, found.objective)


def test_with_mixing_that_fails_and_a_horizon() -> None:
    ring = oracles.metropolis(nx.cycle_graph(7))
    random = NodeDropout(mixing=ring, probability=0.3)
    problem = SpaceProblem(
        mixing=ring, random=random, error=ErrorMeasure(horizon=3), min_variance=4.0
    )
    interval = oracles.floored_interval(np.asarray(problem.gram), floor=4.0)
    found = certified(problem)
    assert interval.meets(found.lower_bound, found.objective)
    assert found.objective > certified(replace(problem, min_variance=None)).objective * 1.01


@pytest.mark.parametrize("backend", ["clarabel", "scs"])
@pytest.mark.parametrize("formulation", ["compact", "covariance", "paper"])
@pytest.mark.parametrize("cap", [None, 2.5])
def test_conic_backends(backend: str, formulation: str, cap: float | None) -> None:
    tau = np.array([1.0, 2, 1, 0.5, 1])
    problem = SpaceProblem(
        mixing=RING, budget=tau, min_variance=2.0, max_variance=cap and cap / tau * 2
    )
    best = certified(problem)
    found = solve(problem, backend=need(backend), formulation=formulation)
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.gap <= 1e-3
    assert found.certificate.lower_bound <= best.objective
    assert best.lower_bound <= found.certificate.objective
    assert found.design is not None
    # Its own multipliers of the floor prove the bound, not those of the budgets alone.
    without = replace(multipliers(found.design), floor=None)
    assert lower_bound(program_of(problem), without) < 0.95 * found.certificate.lower_bound


def test_conic_solver_in_its_own_process() -> None:
    problem = SpaceProblem(mixing=RING, min_variance=3.0, max_variance=4.0)
    program = program_of(problem).normalized()
    monitor = Monitor(gap=1e-6, tolerance=1e-7)
    answer = ask(
        need("clarabel"), program, monitor=monitor, formulation="covariance", isolated=True
    )
    assert answer.dual is not None
    assert answer.dual.floor is not None
    # All its multipliers came back: they prove what another solver attains, and not without those
    # of the floor.
    best = solve(problem, gap=1e-8).certificate
    assert best is not None
    proved = lower_bound(program, answer.dual)
    assert best.lower_bound * (1 - 1e-4) <= proved <= best.objective * (1 + 1e-12)
    assert lower_bound(program, replace(answer.dual, floor=None)) < 0.95 * proved


# --- what a floor may and may not do --------------------------------------------------------------


def test_a_higher_floor_never_lowers_the_optimum() -> None:
    floors = [1.0, 1.2, 1.5, 2.0, 30.0]
    found = [certified(SpaceProblem(mixing=FLORENTINE, min_variance=f)) for f in floors]
    for below, above in itertools.pairwise(found):
        assert above.objective >= below.lower_bound
    assert found[-1].lower_bound > found[2].objective > found[1].objective > found[0].objective


@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_a_floor_that_asks_for_nothing_changes_nothing(tau: float) -> None:
    for cap in (None, 2.0 / tau):
        plain = solved(SpaceProblem(mixing=FLORENTINE, budget=tau, max_variance=cap)).design
        problem = SpaceProblem(
            mixing=FLORENTINE, budget=tau, max_variance=cap, min_variance=(1 - 1e-12) / tau
        )
        design = solved(problem).design
        assert plain is not None
        assert design is not None
        np.testing.assert_array_equal(design.covariance, plain.covariance)
        assert design.lower_bound == plain.lower_bound
        assert plain.certificate.floor_ratio is None
        ratio = (1 - 1e-12) / tau / np.diagonal(plain.covariance).min()
        assert design.certificate.floor_ratio == pytest.approx(ratio)


def test_an_inactive_floor_is_free() -> None:
    plain = solved(SpaceProblem(mixing=FLORENTINE)).design
    assert plain is not None
    least = float(np.diagonal(plain.covariance).min())
    assert least > 1.01
    design = certified(SpaceProblem(mixing=FLORENTINE, min_variance=0.999 * least))
    assert design.objective == pytest.approx(plain.objective, rel=2e-9)


@pytest.mark.parametrize("level", [1 + 1e-6, 1.5, 100.0])
@pytest.mark.parametrize("width", [0.0, 1e-9])
@pytest.mark.parametrize("graph", [nx.cycle_graph(6), nx.cycle_graph(5)])
def test_floor_and_cap_in_one(level: float, width: float, graph: nx.Graph) -> None:
    """Below some level the cap binds, above it the floor; singular W (ring of 6) or not."""
    w = oracles.metropolis(graph)
    found = solve(SpaceProblem(mixing=w, min_variance=level, max_variance=level * (1 + width)))
    assert found.feasible
    assert found.design is not None
    if width == 0:
        np.testing.assert_array_equal(np.diagonal(found.design.covariance), level)
        optimum = oracles.ring_with_variance(w, variance=level)
        assert_holds(found.design.certificate, optimum)
    assert found.design.gap < 1e-6


@pytest.mark.parametrize("leaves", [2, 5])
def test_floor_and_cap_in_one_where_budgets_are_slack(leaves: int) -> None:
    w = oracles.metropolis(nx.star_graph(leaves))
    found = certified(SpaceProblem(mixing=w, min_variance=3.0, max_variance=3.0))
    interval = oracles.floored_interval(w @ w, floor=3.0, cap=3.0)
    assert interval.meets(found.lower_bound, found.objective)


@pytest.mark.parametrize(("floor", "cap"), [(1e4, 2e4), (1e4, 1e4 + 1), (1e5, 1e6)])
def test_floors_far_above_what_independent_noise_pays(floor: float, cap: float) -> None:
    """The first bounds of all are negative; W is singular, so that noise grows up to the cap."""
    w = oracles.metropolis(nx.cycle_graph(6))
    found = solve(SpaceProblem(mixing=w, min_variance=floor, max_variance=cap)).design
    assert found is not None
    assert_holds(found.certificate, oracles.ring_with_variance(w, variance=cap))
    assert found.gap < 1e-5


def test_units_and_names_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    tau, floor, order = rng.uniform(0.5, 2, 15), rng.uniform(0.5, 3, 15), rng.permutation(15)
    plain = certified(SpaceProblem(mixing=FLORENTINE, budget=tau, min_variance=floor))
    for unit in (1e-12, 1e9):
        other = SpaceProblem(
            mixing=FLORENTINE[np.ix_(order, order)],
            budget=tau[order] / unit,
            min_variance=floor[order] * unit,
        )
        found = certified(other)
        assert found.objective == pytest.approx(unit * plain.objective, rel=3e-9)
        assert found.lower_bound == pytest.approx(unit * plain.lower_bound, rel=3e-9)


def test_one_node_far_above_the_others() -> None:
    floor = np.ones(15)
    floor[2] = 1e4
    found = solve(SpaceProblem(mixing=FLORENTINE, min_variance=floor))
    assert found.status == "optimal"
    assert found.certificate is not None
    independent = float(np.square(FLORENTINE).sum(axis=0) @ floor)
    # Correlated noise pays a sixth of what independent noise does.
    assert found.certificate.objective < independent / 6


# --- the native solver ----------------------------------------------------------------------------


def barrier(program: Program, x: np.ndarray, mu: float) -> float:
    """The barrier at (v, y), every maximum that was eliminated from it taken on a fine grid."""
    n = program.size
    v, net = x[:n], x[n:]
    product = np.sqrt(v)[:, None] * (program.gram + np.diag(net)) * np.sqrt(v)
    total = float(-v.sum() + mu * np.log(v).sum())
    for r in np.sqrt(np.linalg.eigvalsh(product)):
        q = r * (1 - np.geomspace(1e-9, 1, 400_001)[1:-1])
        total += float((2 * q + mu * np.log(r**2 - q**2)).max())
    assert program.floor is not None
    for i, y in enumerate(net):
        cap = math.inf if program.cap is None else program.cap[i]
        floor = program.floor[i]
        if cap == math.inf:
            total += mu * math.log(-y) - floor * y
        elif floor <= 1:
            total += mu * math.log(y) - cap * y
        else:
            w = max(y, 0.0) + np.geomspace(1e-6, 1e3, 400_001)
            u = w - y
            total += float((mu * np.log(w * u) - cap * w + floor * u).max())
    return total


@pytest.mark.parametrize("kind", ["floors", "floors and caps"])
def test_derivatives_of_the_barrier(kind: str) -> None:
    rng = np.random.default_rng(0)
    program = program_of(SpaceProblem(mixing=RING, min_variance=np.linspace(1.5, 3, 5)))
    y = -rng.uniform(0.005, 0.02, 5)
    if kind == "floors and caps":  # of the third and the fourth node a cap alone
        floor = np.array([1.5, 2.5 - 1e-3, 0.5, 0.9, 2.0])
        program = program_of(SpaceProblem(mixing=RING, min_variance=floor, max_variance=2.5))
        y = np.array([0.1, -0.05, 0.1, 0.3, -1e-3])
    dual, mu, step = smoothed.Dual(program), 0.03, 1e-5
    x = np.concatenate([rng.uniform(0.2, 1, 5), y])

    def at(y: np.ndarray) -> smoothed.Smoothed:
        point = dual.at(y)
        assert point is not None
        return smoothed.Smoothed(dual, point, mu)

    here = at(x)
    curvature = here.curvature()
    d = rng.uniform(-1, 1, 10)
    ahead, behind = at(x + step * d), at(x - step * d)
    np.testing.assert_allclose(
        (ahead.slope() - behind.slope()) / (2 * step), -curvature @ d, rtol=1e-4, atol=1e-5
    )
    rise = (barrier(program, x + 1e-4 * d, mu) - barrier(program, x - 1e-4 * d, mu)) / 2e-4
    assert here.slope() @ d == pytest.approx(rise, rel=1e-3)
    change = (ahead.covariance_along(0 * d) - behind.covariance_along(0 * d)) / (2 * step)
    now = here.covariance_along(0 * d)
    np.testing.assert_allclose(here.covariance_along(d) - now, change, rtol=1e-4, atol=1e-5)


def test_several_epochs_are_refused() -> None:
    program = Program(
        gram=np.eye(4),
        participation=FixedEpoch(epochs=2, separation=2),
        budget=np.ones(2),
        floor=np.full(4, 5.0),
    )
    with pytest.raises(InputError, match="floor"):
        solver.solve(program, monitor=Monitor(gap=1e-6))
    low = replace(program, floor=np.full(4, 0.5))
    assert solver.solve(low, monitor=Monitor(gap=1e-6)).gram is not None


def test_out_of_time() -> None:
    found = solve(PROBLEM, time_limit=1e-9)
    assert found.status == "time-limit"
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.lower_bound <= OPTIMUM <= found.certificate.objective


@pytest.mark.parametrize("calls", [1, 4])
def test_ctrl_c(calls: int) -> None:
    seen: list[Bounds] = []

    def progress(bounds: Bounds) -> None:
        seen.append(bounds)
        if len(seen) == calls:
            raise KeyboardInterrupt

    found = solve(PROBLEM, gap=1e-12, progress=progress)
    assert found.status == "interrupted"
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.lower_bound <= OPTIMUM <= found.certificate.objective


def test_every_bound_on_the_way_holds() -> None:
    seen: list[Bounds] = []
    solve(PROBLEM, gap=1e-9, progress=seen.append)
    assert len(seen) > 3
    for bounds in seen:
        assert bounds.lower <= OPTIMUM * (1 + 1e-10)
        assert bounds.upper * (1 + 1e-10) >= OPTIMUM


# --- bad input ------------------------------------------------------------------------------------


def test_what_a_floor_cannot_be() -> None:
    with pytest.raises(InputError, match="at most limits.max_variance = 2 ") as caught:
        SpaceProblem(mixing=RING, min_variance=[1, 1, 3, 1, 1], max_variance=2.0)
    assert caught.value.field == "limits.min_variance"
    assert "node 2" in str(caught.value)
    for structure in ("edge-local", "independent", "decor"):
        with pytest.raises(InputError, match="without a structure") as caught:
            SpaceProblem(mixing=RING, min_variance=2.0, structure=SpaceStructure(kind=structure))
        assert caught.value.field == "limits.min_variance"
    for wrong in (0.0, -1.0, math.nan, [1.0, 2.0]):
        with pytest.raises(InputError) as caught:
            SpaceProblem(mixing=RING, min_variance=wrong)
        assert caught.value.field == "limits.min_variance"


# --- baselines ------------------------------------------------------------------------------------


def test_independent_noise_is_raised() -> None:
    floor, tau = np.array([0.1, 0.5, 3.0, 0.2, 2.0]), np.array([1.0, 2, 1, 4, 0.25])
    design = baseline(SpaceProblem(mixing=RING, budget=tau, min_variance=floor), "ldp")
    np.testing.assert_allclose(design.covariance, np.diag([1, 0.5, 3, 0.25, 4]), rtol=1e-12)
    assert design.certificate.feasible


@pytest.mark.parametrize(
    ("floor", "cap"),
    [(3.0, None), ([1.0, 3, 1, 1], None), ([1.0, 4, 1, 1], [9.0, 9, 1.7, 9])],
    ids=["alike", "one", "only with shared noise"],
)
def test_decor_by_grid(floor: object, cap: object) -> None:
    """The best pair of scales on a grid of ratios; the last has no room for equal noise alone."""
    w = oracles.metropolis(nx.star_graph(3))
    w = w[np.ix_([1, 0, 2, 3], [1, 0, 2, 3])]  # the hub is node 1
    problem = SpaceProblem(mixing=w, min_variance=floor, max_variance=cap)
    laplacian = graph_laplacian(w)
    assert laplacian[1, 1] == 3
    best = math.inf
    for ratio in [0.0, *np.geomspace(1e-4, 1e4, 4001)]:
        r = np.eye(4) + ratio * laplacian
        needed = max(
            np.diagonal(np.linalg.inv(r)).max(), (problem.min_variance / np.diagonal(r)).max()
        )
        if cap is None or (needed * np.diagonal(r) <= problem.max_variance).all():
            best = min(best, needed * float(np.sum(problem.gram * r)))
    design = baseline(problem, "decor")
    assert design.certificate.feasible
    assert design.objective == pytest.approx(best, rel=1e-3)
    assert design.objective <= best * (1 + 1e-6)


def test_duals_without_a_floor_have_none() -> None:
    assert DualPoint(blocks=np.ones((1, 1, 1))).floor is None
    found = solved(SpaceProblem(mixing=RING, max_variance=2.0)).design
    assert found is not None
    assert multipliers(found).floor is None
