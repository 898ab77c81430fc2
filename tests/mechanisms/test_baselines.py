"""Published mechanisms by hand on tiny cases, by grids, and never better than the optimum."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.mechanisms.baselines import (
    banded_inverse_root,
    banded_square_root,
    baseline,
    baseline_names,
    compared,
    published,
)
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.made_designs import multipliers

CLOSE = 1e-9
FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
ROWS = oracles.row_normalized(nx.florentine_families_graph())
PATH3 = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
LAZY3 = (PATH3 + np.eye(3)) / 2


def space(w: np.ndarray, tau: float | list[float] = 1.0) -> SpaceProblem:
    return SpaceProblem(mixing=w, budget=tau)


def prefix(epochs: int, separation: int) -> TimeProblem:
    return TimeProblem.prefix(participation=FixedEpoch(epochs=epochs, separation=separation))


def decentralized(w: np.ndarray, epochs: int, separation: int) -> TimeProblem:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    return TimeProblem.decentralized(mixing=w, participation=scheme)


# --- independent noise ----------------------------------------------------------------------------


def test_ldp_in_space_by_hand() -> None:
    # tr(W^2) = (4 + 1 + 1 + 1 + 1 + 1 + 4) / 9 = 13 / 9 for the path of three.
    design = baseline(space(PATH3, 0.5), "ldp")
    np.testing.assert_allclose(design.covariance, 2 * np.eye(3), rtol=CLOSE)
    assert design.objective == pytest.approx(2 * 13 / 9, rel=CLOSE)
    assert design.trust == "local"


def test_ldp_with_budgets_per_node() -> None:
    design = baseline(space(PATH3, [1.0, 2.0, 4.0]), "ldp")
    np.testing.assert_allclose(design.covariance, np.diag([1, 0.5, 0.25]), rtol=CLOSE)
    # Columns of W have squared norms 5/9, 3/9, 5/9.
    assert design.objective == pytest.approx((5 + 3 / 2 + 5 / 4) / 9, rel=CLOSE)


@pytest.mark.parametrize(("epochs", "separation"), [(1, 6), (3, 2), (6, 1)])
def test_ldp_in_time_by_hand(epochs: int, separation: int) -> None:
    # A record takes part k times: C = I / sqrt(k), so the objective is k tr(H) = k * 21.
    design = baseline(prefix(epochs, separation), "ldp")
    np.testing.assert_allclose(design.strategy, np.eye(6) / math.sqrt(epochs), rtol=CLOSE)
    assert design.objective == pytest.approx(epochs * 21, rel=CLOSE)


# --- a trusted server -----------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [1.0, 0.25])
@pytest.mark.parametrize("w", [PATH3, FLORENTINE], ids=["path", "florentine"])
def test_cdp_in_space_costs_one_over_n_tau(w: np.ndarray, tau: float) -> None:
    design = baseline(space(w, tau), "cdp")
    assert design.objective == pytest.approx(1 / (len(w) * tau), rel=CLOSE)
    assert design.trust == "central"


def test_cdp_with_budgets_per_node_keeps_the_tightest() -> None:
    # 1^T H 1 = n and noise of variance 1 / (n^2 min tau): 1 / (5 * 1).
    ring = np.roll(np.eye(5), 1, axis=0) / 2 + np.roll(np.eye(5), -1, axis=0) / 2
    design = baseline(space(ring, [2.0, 1, 4, 4, 8]), "cdp")
    assert design.objective == pytest.approx(1 / 5, rel=CLOSE)


def test_cdp_in_space_protects_no_single_node() -> None:
    design = baseline(space(PATH3), "cdp")
    assert np.linalg.matrix_rank(design.covariance) == 1
    assert not design.certificate.feasible


@pytest.mark.parametrize("w", [FLORENTINE, ROWS], ids=["symmetric", "row-stochastic"])
@pytest.mark.parametrize(("epochs", "separation"), [(1, 8), (2, 4), (8, 1)])
def test_cdp_in_time_by_hand(w: np.ndarray, epochs: int, separation: int) -> None:
    # The average of n nodes has sensitivity 1/n, n nodes hold the same model: k T (T + 1) / (2 n).
    design = baseline(decentralized(w, epochs, separation), "cdp")
    assert design.objective == pytest.approx(epochs * 8 * 9 / (2 * len(w)), rel=CLOSE)
    assert design.trust == "central"


def test_cdp_of_one_model_is_independent_noise() -> None:
    problem = prefix(2, 4)
    central, local = baseline(problem, "cdp"), baseline(problem, "ldp")
    assert central.objective == pytest.approx(local.objective, rel=CLOSE)
    np.testing.assert_allclose(central.strategy, local.strategy, rtol=CLOSE)
    for steps in (1, 4):  # of one node, in space
        alone = SpaceProblem(mixing=np.eye(1), budget=[3.0], error=ErrorMeasure(horizon=steps))
        server, node = baseline(alone, "cdp"), baseline(alone, "ldp")
        assert server.covariance == pytest.approx(node.covariance, rel=CLOSE)
        assert server.covariance == pytest.approx(1 / 3, rel=CLOSE)


# --- DECOR ----------------------------------------------------------------------------------------


def decor_by_grid(graph: nx.Graph, w: np.ndarray, tau: np.ndarray) -> float:
    """Least tr(W R W^T) over R = s (I + ratio L) on a fine grid, R inverted each time."""
    laplacian = nx.laplacian_matrix(graph).toarray().astype(float)
    h, best = w.T @ w, math.inf
    for ratio in [0.0, *np.geomspace(1e-3, 1e3, 4001)]:
        r = np.eye(len(w)) + ratio * laplacian
        s = float((np.diagonal(np.linalg.inv(r)) / tau).max())
        best = min(best, s * float(np.trace(h @ r)))
    return best


@pytest.mark.parametrize(
    ("graph", "ratio"),
    [
        (nx.florentine_families_graph(), 0.996),
        (nx.cycle_graph(16), 0.745),
        (oracles.erdos_renyi(20, 0.2), 1.000),
    ],
    ids=["florentine", "ring", "erdos-renyi"],
)
def test_decor_over_independent_noise(graph: nx.Graph, ratio: float) -> None:
    problem = space(oracles.metropolis(graph))
    found = baseline(problem, "decor").objective / baseline(problem, "ldp").objective
    assert found == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    "graph",
    [nx.cycle_graph(8), nx.florentine_families_graph(), nx.path_graph(6), nx.complete_graph(5)],
    ids=["ring", "florentine", "path", "complete"],
)
@pytest.mark.parametrize("uneven", [False, True])
def test_decor_by_grid(graph: nx.Graph, uneven: bool) -> None:
    w = oracles.metropolis(graph)
    tau = np.linspace(0.5, 2, len(w)) if uneven else np.ones(len(w))
    design = baseline(space(w, tau.tolist()), "decor")
    on_grid = decor_by_grid(graph, w, tau)
    if np.linalg.matrix_rank(w) == 1:
        # Complete graph: ever more noise between the nodes helps, to s n / (1 + n c/s) -> 1/n.
        assert design.objective <= on_grid
        return
    assert design.objective == pytest.approx(on_grid, rel=1e-5)
    assert design.objective <= on_grid * (1 + CLOSE)


def test_decor_has_its_form() -> None:
    graph = nx.cycle_graph(7)
    design = baseline(space(oracles.metropolis(graph)), "decor")
    r = design.covariance
    laplacian = nx.laplacian_matrix(graph).toarray()
    c = -r[0, 1]
    s = r[0, 0] - 2 * c
    assert s > 0
    assert c > 0
    np.testing.assert_allclose(r, s * np.eye(7) + c * laplacian, atol=1e-12)


# --- anticorrelated noise in time -----------------------------------------------------------------


def test_antipgd_takes_back_what_it_added() -> None:
    design = baseline(prefix(1, 4), "antipgd")
    # Columns of the ones triangle have squared norms 4, 3, 2, 1: C = tril(1) / 2.
    np.testing.assert_allclose(design.strategy, np.tril(np.ones((4, 4))) / 2, rtol=CLOSE)
    difference = [[1, 0, 0, 0], [-1, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1]]
    np.testing.assert_allclose(design.noising_matrix, 2 * np.array(difference), atol=1e-12)
    # A C^-1 = 2 I: each iterate carries one fresh noise of variance 4.
    assert design.objective == pytest.approx(16, rel=CLOSE)


def test_antipgd_over_two_epochs_by_hand() -> None:
    # Steps 0 and 2: squared norms 4 and 2, inner product 2, in all 10; steps 1 and 3: 3 + 1 + 2.
    design = baseline(prefix(2, 2), "antipgd")
    assert design.objective == pytest.approx(4 * 10, rel=CLOSE)


# --- prefix strategies ----------------------------------------------------------------------------


def test_square_root_coefficients_by_hand() -> None:
    column = banded_square_root(horizon=6, bands=6)[:, 0]
    np.testing.assert_allclose(column, [1, 1 / 2, 3 / 8, 5 / 16, 35 / 128, 63 / 256], rtol=1e-15)
    np.testing.assert_allclose(column, [math.comb(2 * j, j) / 4**j for j in range(6)], rtol=1e-15)


@pytest.mark.parametrize("horizon", [1, 2, 9, 100])
def test_the_whole_square_root_squares_to_prefix_sums(horizon: int) -> None:
    root = banded_square_root(horizon=horizon, bands=horizon)
    np.testing.assert_allclose(root @ root, oracles.prefix_workload(horizon), atol=1e-13)


@pytest.mark.parametrize("bands", [1, 3, 7, 20])
def test_bands(bands: int) -> None:
    matrix = banded_square_root(horizon=7, bands=bands)
    whole = banded_square_root(horizon=7, bands=7)
    for i in range(7):
        for j in range(7):
            # Causal, hence lower triangular and not a symmetric Toeplitz matrix.
            expected = whole[i, j] if 0 <= i - j < bands else 0.0
            assert matrix[i, j] == expected


def test_banded_square_root_as_a_design() -> None:
    design = baseline(prefix(2, 3), "banded-sqrt")
    # Three bands 1, 1/2, 3/8 never meet the other participation, three steps on.
    norm = 1 + 1 / 4 + 9 / 64
    expected = banded_square_root(horizon=6, bands=3) / math.sqrt(2 * norm)
    np.testing.assert_allclose(design.strategy, expected, rtol=CLOSE)
    assert design.certificate.sensitivity_squared == pytest.approx(1, rel=CLOSE)
    noise = np.linalg.inv(expected)
    a = oracles.prefix_workload(6)
    assert design.objective == pytest.approx(np.square(a @ noise).sum(), rel=CLOSE)


def test_the_normalised_square_root_has_columns_of_norm_one() -> None:
    design = baseline(prefix(1, 3), "normalized-sqrt")
    long, short = (1 + 1 / 4 + 9 / 64) ** 0.5, (1 + 1 / 4) ** 0.5
    by_hand = np.array([[1, 0, 0], [1 / 2, 1, 0], [3 / 8, 1 / 2, 1]]) / [long, short, 1.0]
    np.testing.assert_allclose(design.strategy, by_hand, rtol=CLOSE)
    assert design.certificate.sensitivity_squared == pytest.approx(1, rel=CLOSE)
    noise = oracles.prefix_workload(3) @ np.linalg.inv(by_hand)
    assert design.objective == pytest.approx(np.square(noise).sum(), rel=CLOSE)


def test_the_banded_inverse_root_has_the_best_number_of_bands() -> None:
    """C^-1 has 1, -1/2, -1/8, ... of (1 - z)^1/2, cut to 2 or 4 of 4 coefficients."""
    errors = []
    a = oracles.prefix_workload(4)
    for last in (np.zeros(2), np.array([-1 / 8, -1 / 16])):
        first = np.r_[1, -1 / 2, last]
        inverse = sum(first[j] * np.eye(4, k=-j) for j in range(4))
        both = np.linalg.inv(inverse)[:, :2] + np.linalg.inv(inverse)[:, 2:]
        errors.append(np.square(a @ inverse).sum() * np.square(both).sum(axis=0).max())
    assert baseline(prefix(2, 2), "bisr").objective == pytest.approx(min(errors), rel=CLOSE)
    whole = banded_inverse_root(horizon=6, bands=6)
    np.testing.assert_allclose(whole @ whole, oracles.prefix_workload(6), rtol=CLOSE, atol=1e-12)


def test_the_banded_inverse_root_has_the_best_power() -> None:
    """C^-1 has 1, -g, g (g - 1) / 2, ... of (1 - z)^g on a grid of g, for all counts of bands."""
    a, errors = oracles.prefix_workload(6), []
    for g in np.linspace(0.001, 0.999, 999):
        first = [1, -g, g * (g - 1) / 2, -g * (g - 1) * (g - 2) / 6]
        first += [g * (g - 1) * (g - 2) * (g - 3) / 24]
        first += [-g * (g - 1) * (g - 2) * (g - 3) * (g - 4) / 120]
        for bands in (2, 4, 6):
            inverse = sum(first[j] * np.eye(6, k=-j) for j in range(bands))
            c = np.linalg.inv(inverse)
            both = c[:, :3] + c[:, 3:]
            errors.append(np.square(a @ inverse).sum() * np.square(both).sum(axis=0).max())
    found = baseline(prefix(2, 3), "bifr").objective
    assert found == pytest.approx(min(errors), rel=1e-5)
    assert found < 0.999 * baseline(prefix(2, 3), "bisr").objective
    # Two bands of (1 - z)^g are 1 - g z.
    two = banded_inverse_root(horizon=4, bands=2, power=0.3)
    np.testing.assert_allclose(np.linalg.inv(two), np.eye(4) - 0.3 * np.eye(4, k=-1), atol=1e-15)


@pytest.mark.parametrize(("epochs", "separation"), [(1, 2), (1, 12), (3, 4)])
def test_d_mf_is_the_prefix_optimum(epochs: int, separation: int) -> None:
    problem = prefix(epochs, separation)
    design = baseline(problem, "d-mf")
    h = np.asarray(problem.gram)
    interval = oracles.fixed_epoch_interval(h, epochs, separation, width=1e-7)
    assert interval.lower * (1 - 1e-9) <= design.objective <= interval.upper * (1 + 2e-6)


def test_d_mf_knows_nothing_of_the_graph() -> None:
    flat, graph = baseline(prefix(2, 6), "d-mf"), baseline(decentralized(ROWS, 2, 6), "d-mf")
    np.testing.assert_allclose(flat.strategy, graph.strategy, rtol=1e-12)
    noise = np.linalg.inv(graph.strategy)
    h = oracles.gram_of_powers(ROWS, 12)
    assert graph.objective == pytest.approx(np.trace(h @ noise @ noise.T), rel=1e-8)


# --- all together ---------------------------------------------------------------------------------

PROBLEMS: dict[str, Problem] = {
    "space": space(FLORENTINE),
    "budgets": space(FLORENTINE, np.linspace(0.5, 3, 15).tolist()),
    "lazy": space(LAZY3),
    "capped": SpaceProblem(mixing=np.full((4, 4), 0.25), max_variance=5.0),
    "prefix": prefix(1, 16),
    "epochs": prefix(4, 4),
    "every-step": prefix(5, 1),
    "florentine": decentralized(FLORENTINE, 3, 5),
    "row-normalized": decentralized(ROWS, 4, 3),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_local_baselines_are_feasible_and_never_beat_the_optimum(name: str) -> None:
    problem = PROBLEMS[name]
    best = solve(problem, gap=1e-8).design
    assert best is not None
    for design in published(problem, dual=multipliers(best)):
        if design.trust == "central":
            continue
        judged = design.certificate
        assert judged.sensitivity_squared <= 1
        assert judged.feasible
        assert judged.sensitivity_squared > 1 - 1e-9
        assert design.objective >= best.lower_bound
        assert judged.lower_bound == pytest.approx(best.lower_bound, rel=1e-9)
        if design.axes == "time":
            assert np.array_equal(design.strategy, np.tril(design.strategy))


@pytest.mark.parametrize("name", PROBLEMS)
def test_without_multipliers_the_bound_still_holds(name: str) -> None:
    problem = PROBLEMS[name]
    best = solve(problem, gap=1e-8).design
    assert best is not None
    for design in published(problem):
        if design.trust == "local":
            assert 0 <= design.lower_bound <= best.objective


def test_names_and_order() -> None:
    problem = decentralized(FLORENTINE, 2, 3)
    assert baseline_names(problem) == (
        *("ldp", "cdp", "antipgd", "d-mf", "banded-sqrt", "normalized-sqrt", "bisr", "bifr"),
    )
    assert baseline_names(space(LAZY3)) == ("ldp", "cdp", "decor")
    table = compared(problem)
    assert [d.provenance.method for d in table] == [*baseline_names(problem), "optimal"]
    local = [d.objective for d in table if d.trust == "local"]
    assert min(local) == local[-1]


@pytest.mark.parametrize(
    ("problem", "name"), [(prefix(1, 3), "decor"), (space(LAZY3), "antipgd"), (space(LAZY3), "LDP")]
)
def test_unknown_baselines_are_refused(problem: Problem, name: str) -> None:
    with pytest.raises(InputError, match="ldp") as caught:
        baseline(problem, name)
    assert caught.value.field == "baseline"


@pytest.mark.parametrize("of", ["loss", "last-iterate", "mean-model", "all-iterates"])
def test_cdp_of_any_error_by_the_recursion(of: str) -> None:
    """Every node holds the same model, moved by a server's noise of 1 / n: one model with decay."""
    n, rates, steps = len(PATH3), np.array([1.0, 0.5, 0.25]), 3
    curvature = [0.4] if of == "loss" else None
    error = ErrorMeasure(horizon=steps, of=of, learning_rates=rates, curvature=curvature)
    problem = TimeProblem.decentralized(mixing=PATH3, participation=single(steps), error=error)
    design = baseline(problem, "cdp")
    noise, x, total = np.linalg.inv(design.strategy) / n, np.zeros(steps), 0.0
    for t in range(steps):
        x = (1 - rates[t] * (0.4 if curvature else 0.0)) * x - rates[t] * noise[t]
        weight = {"loss": 0.2, "last-iterate": n, "mean-model": n, "all-iterates": n}[of]
        if t == steps - 1 or of in ("mean-model", "all-iterates"):
            total += weight * float(x @ x)
    np.testing.assert_allclose(design.objective, total, rtol=1e-9)
    assert design.objective <= baseline(problem, "ldp").objective


def test_a_server_leaves_nothing_of_consensus() -> None:
    error = ErrorMeasure(horizon=3, of="consensus")
    problem = TimeProblem.decentralized(mixing=PATH3, participation=single(3), error=error)
    assert "cdp" not in baseline_names(problem)
