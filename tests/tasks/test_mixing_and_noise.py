"""Designed mixing: closed forms of fastest mixing, bounds against any W, and search on grids."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisedesign.base.checks import InputError
from noisedesign.program.backends import Bounds, Monitor, Stop
from noisedesign.program.problem import SpaceProblem
from noisedesign.system.fastest_mixing import fastest_mixing, mixing_norm, norm_lower_bound
from noisedesign.system.fastest_mixing.weights import EdgeWeights
from noisedesign.tasks import mixing_and_noise as joint
from noisedesign.tasks.mixing_and_noise import design_mixing_and_noise
from noisedesign.tasks.solve import solve
from tests.support import oracles

PAW = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
"""A triangle with a tail."""


def with_weights(n: int, edges: Any, weights: Any) -> np.ndarray:
    w = np.eye(n)
    for (i, j), weight in zip(edges, weights, strict=True):
        across = np.eye(n)[i] - np.eye(n)[j]
        w -= weight * np.outer(across, across)
    return w


def norm_by_svd(w: np.ndarray) -> float:
    """||W - J||_2 as the largest singular value."""
    return float(np.linalg.svd(w - np.full_like(w, 1 / len(w)), compute_uv=False)[0])


def edge_transitive(graph: nx.Graph) -> float:
    """All weights alike: 1 - w l_2 = w l_n - 1 at the best w, so (l_n - l_2) / (l_n + l_2)."""
    values = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))
    return float((values[-1] - values[1]) / (values[-1] + values[1]))


# --- fastest mixing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph",
    [
        nx.cycle_graph(6),
        nx.complete_graph(5),
        nx.star_graph(5),
        nx.hypercube_graph(3),
        nx.complete_bipartite_graph(2, 3),
        nx.path_graph(2),
    ],
)
def test_edge_transitive_graphs_with_any_weights(graph: nx.Graph) -> None:
    found = fastest_mixing(graph, nonnegative=False)
    expected = edge_transitive(graph)
    assert found.norm == pytest.approx(expected, abs=1e-7)
    assert found.lower_bound <= expected + 1e-13
    assert found.norm - found.lower_bound < 1e-6


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # Boyd, Diaconis, Sun and Xiao (2006): half on every link of a path.
        *((nx.path_graph(n), math.cos(math.pi / n)) for n in (2, 3, 5, 8)),
        # A star's centre shares one unit among m leaves.
        *((nx.star_graph(m), 1 - 1 / m) for m in (2, 5)),
        (nx.cycle_graph(6), 3 / 5),
        (nx.path_graph(1), 0.0),
    ],
)
def test_nonnegative_weights_in_closed_form(graph: nx.Graph, expected: float) -> None:
    found = fastest_mixing(graph)
    assert found.norm == pytest.approx(expected, abs=1e-7)
    assert found.lower_bound <= expected + 1e-13
    assert found.norm - found.lower_bound < 1e-6
    assert found.spectral_gap == 1 - found.norm


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("graph", [nx.florentine_families_graph(), PAW])
def test_the_matrix_is_exactly_allowed(graph: nx.Graph, nonnegative: bool) -> None:
    found = fastest_mixing(graph, nonnegative=nonnegative)
    w = found.mixing
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-15)
    linked = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    assert not w[linked == 0].any()
    assert found.norm == pytest.approx(norm_by_svd(w), rel=1e-13)
    assert found.lower_bound <= found.norm < found.lower_bound + 1e-6
    assert found.norm < norm_by_svd(oracles.metropolis(graph)) - 0.01
    if nonnegative:
        assert w.min() >= 0
        SpaceProblem(mixing=w)  # it is what a design asks for


def test_negative_weights_can_be_faster() -> None:
    star = nx.star_graph(5)
    free, held = fastest_mixing(star, nonnegative=False), fastest_mixing(star)
    assert free.norm < held.lower_bound
    assert free.mixing.min() < 0


def test_no_weights_on_a_grid_are_faster() -> None:
    found, edges = fastest_mixing(PAW), list(PAW.edges)
    best = 1.0
    for weights in itertools.product(np.linspace(0, 0.6, 13), repeat=4):
        w = with_weights(4, edges, weights)
        if np.diagonal(w).min() >= 0:
            best = min(best, norm_by_svd(w))
    assert found.lower_bound <= best
    assert best - found.norm < 0.05  # the grid is not so coarse that this says nothing


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), held=st.booleans(), rank=st.integers(1, 4))
def test_any_multipliers_bound_any_weights(seed: int, held: bool, rank: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array(PAW.edges)
    root = rng.normal(size=(4, rank))
    y = (root * rng.choice([-1, 1], size=rank)) @ root.T
    z = rng.normal(size=4) if held else None
    bound = norm_lower_bound(
        edges, nodes=4, distance=y * 10.0 ** rng.integers(-9, 9), self_weights=z
    )
    for _ in range(20):
        weights = rng.uniform(0 if held else -0.5, 0.5, size=4)
        w = with_weights(4, edges, weights)
        if held:
            w = with_weights(4, edges, weights / max(1.0, 1 - np.diagonal(w).min()))
            assert w.min() >= -1e-15
        assert bound <= norm_by_svd(w) + 1e-12


def test_the_bound_is_tight_for_the_right_multipliers() -> None:
    # Star of 2 leaves, free: 1 - w = 3w - 1, w = 1/2. Half on each of the two extreme eigenvectors.
    leaves, centre = np.array([0, 1, -1]) / np.sqrt(2), np.array([2, -1, -1]) / np.sqrt(6)
    edges = np.array([[0, 1], [0, 2]])
    # y_e = t (1/2) - (1 - t) (3/2) = 0 at t = 3/4; tr Y = 3/4 - 1/4.
    y = 0.75 * np.outer(leaves, leaves) - 0.25 * np.outer(centre, centre)
    found = norm_lower_bound(edges, nodes=3, distance=y, self_weights=None)
    assert found == pytest.approx(0.5, abs=1e-14)
    # Entries on edges are implied by the others: wrong ones are put right.
    off = y.copy()
    off[0, 1] = off[1, 0] = 7.0
    assert norm_lower_bound(edges, nodes=3, distance=off, self_weights=None) == found
    # Multipliers that prove nothing.
    for useless in (np.zeros((3, 3)), np.full((3, 3), np.nan), -y):
        assert norm_lower_bound(edges, nodes=3, distance=useless, self_weights=None) == 0


def test_weights_are_made_allowed() -> None:
    # A star of three leaves: 1.25 leaves the centre, which has 1, and one weight is negative.
    edges = EdgeWeights(oracles.metropolis(nx.star_graph(3)))
    w = edges.mixing(np.array([1.0, 0.25, -0.1]), nonnegative=True)
    np.testing.assert_allclose(w[0], [0, 0.8, 0.2, 0], atol=1e-16)
    np.testing.assert_allclose(np.diagonal(w), [0, 0.2, 0.8, 1], atol=1e-15)
    w = edges.mixing(np.array([1.0, 0.25, -0.1]), nonnegative=False)
    np.testing.assert_allclose(w[0], [-0.15, 1, 0.25, -0.1], atol=1e-15)


# --- weights and noise together -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "required", "cap"),
    [
        (nx.path_graph(3), 0.2, None),
        (PAW, 0.3, 3.0),
        (nx.florentine_families_graph(), 0.05, 5.0),
        (nx.complete_graph(4), 0.5, 4.0),
        (nx.path_graph(1), 0.5, None),
    ],
)
def test_rounds_never_raise_the_objective(graph: nx.Graph, required: float, cap: Any) -> None:
    found = design_mixing_and_noise(graph, required_gap=required, max_variance=cap)
    w, r, n = found.mixing, found.design.matrix, len(graph)
    assert found.stop is Stop.SOLVED
    assert list(found.history) == sorted(found.history, reverse=True)
    assert found.history[-1] == pytest.approx(np.trace(w @ r @ w.T), rel=1e-12)
    assert found.history[-1] >= found.lower_bound == pytest.approx(1 / n, rel=1e-14)
    assert norm_by_svd(w) <= 1 - required + 1e-13
    assert found.spectral_gap == pytest.approx(1 - norm_by_svd(w), abs=1e-13)
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-14)
    assert w.min() >= 0
    linked = nx.to_numpy_array(graph, weight=None) + np.eye(n)
    assert not w[linked == 0].any()
    assert np.diagonal(np.linalg.inv(r)).max() <= 1 + 1e-10
    assert cap is None or np.diagonal(r).max() <= cap
    assert found.design.gap <= 1e-6


def test_weights_are_worth_designing() -> None:
    # Reference: the certified optimum for Metropolis-Hastings weights, by another solver.
    graph = nx.florentine_families_graph()
    found = design_mixing_and_noise(graph, required_gap=0.05, max_variance=5.0)
    assert found.history[-1] < 0.8 * found.history[0]


@pytest.mark.parametrize("required", [0.2, 0.45])
def test_no_weights_on_a_grid_suit_the_noise_better(required: float) -> None:
    # At 0.45 the required gap decides: the fastest W on a path of three has 1/2.
    graph = nx.path_graph(3)
    found = design_mixing_and_noise(graph, required_gap=required)
    r, grid = found.design.matrix, np.linspace(0, 1, 101)
    best = np.inf
    for a, b in itertools.product(grid, grid):
        if a + b <= 1:
            w = with_weights(3, graph.edges, (a, b))
            value = float(np.sum((w @ r) * w))
            if value < best and norm_by_svd(w) <= 1 - required:
                best = value
    assert found.history[-1] <= best * (1 + 1e-5)
    assert found.history[-1] >= best * (1 - 2e-2)


def test_budgets_enter_the_bound() -> None:
    # n / (sum sqrt tau)^2 = 3 / (1 + 2 + 3)^2.
    found = design_mixing_and_noise(nx.path_graph(3), required_gap=0.2, budget=[1, 4, 9])
    assert found.lower_bound == pytest.approx(1 / 12, rel=1e-14)
    precision = np.diagonal(np.linalg.inv(found.design.matrix))
    np.testing.assert_array_less(precision, np.array([1, 4, 9]) * (1 + 1e-10))


def test_the_fastest_weights_are_reached_exactly() -> None:
    fastest = fastest_mixing(nx.path_graph(4))
    found = design_mixing_and_noise(nx.path_graph(4), required_gap=fastest.spectral_gap)
    assert mixing_norm(found.mixing) <= 1 - fastest.spectral_gap + 1e-15


def test_an_interrupted_search_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Bounds] = []

    def stop_at_the_second(bounds: Bounds) -> None:
        seen.append(bounds)
        if len(seen) == 2:
            raise KeyboardInterrupt

    monitor = Monitor(gap=1e-6, progress=stop_at_the_second)
    found = design_mixing_and_noise(PAW, required_gap=0.2, max_variance=3.0, monitor=monitor)
    assert found.stop is Stop.INTERRUPTED
    assert len(found.history) == 3
    assert found.history[-1] == found.design.objective == seen[-1].upper
    assert [bounds.lower for bounds in seen] == [0.25, 0.25]


def test_time_and_rounds_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "MAX_ROUNDS", 1)
    found = design_mixing_and_noise(PAW, required_gap=0.2, max_variance=3.0)
    assert found.stop is Stop.INACCURATE
    assert len(found.history) == 3
    # The clock runs out with the first report.
    monitor = Monitor(gap=1e-6, time_limit=100.0)
    monitor.progress = lambda bounds: setattr(monitor, "time_limit", 1e-9)
    found = design_mixing_and_noise(PAW, required_gap=0.2, max_variance=3.0, monitor=monitor)
    assert found.stop is Stop.TIME_LIMIT
    assert len(found.history) == 1


def test_a_solver_that_fails_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "run", lambda *args: False)
    found = design_mixing_and_noise(PAW, required_gap=0.2, max_variance=3.0)
    assert found.stop is Stop.FAILED
    assert len(found.history) == 1


def test_steps_that_do_not_pay_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = (np.eye(4) + oracles.metropolis(PAW)) / 2
    with monkeypatch.context() as patch:
        patch.setattr(joint, "_least_noisy", lambda *args: lazy)  # W costs more
        found = design_mixing_and_noise(PAW, required_gap=0.1, max_variance=3.0)
    assert found.stop is Stop.SOLVED
    assert len(found.history) == 1
    calls: list[Any] = []

    def independent_at_second(problem: SpaceProblem, **kwargs: Any) -> Any:
        calls.append(kwargs["time_limit"])
        return solve(problem, **{**kwargs, "time_limit": 1e-9 if len(calls) == 2 else None})

    monkeypatch.setattr(joint, "solve", independent_at_second)  # R costs more
    monitor = Monitor(gap=1e-6, time_limit=1000.0)
    found = design_mixing_and_noise(PAW, required_gap=0.1, max_variance=3.0, monitor=monitor)
    assert found.stop is Stop.SOLVED
    assert len(found.history) == 1
    assert len(calls) == 2
    assert all(0 < limit < 1000 for limit in calls)


def test_weights_that_are_too_slow_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    careful = joint._least_noisy

    def careless(weights: Any, r: Any, norm: float, *args: Any) -> Any:
        return careful(weights, r, norm + 0.05, *args)

    monkeypatch.setattr(joint, "_least_noisy", careless)
    found = design_mixing_and_noise(nx.florentine_families_graph(), required_gap=0.05)
    assert len(found.history) > 1
    assert norm_by_svd(found.mixing) <= 0.95 + 1e-13


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("required", [0.0, 1.0, -0.1, float("nan"), "fast"])
def test_a_required_gap_is_a_share(required: Any) -> None:
    with pytest.raises(InputError, match=r"^required_gap"):
        design_mixing_and_noise(PAW, required_gap=required)


def test_a_gap_out_of_reach_is_refused() -> None:
    with pytest.raises(InputError, match=r"^required_gap: expected at most 0\.5 on this"):
        design_mixing_and_noise(nx.path_graph(3), required_gap=0.51)


def test_other_bad_input_is_named() -> None:
    for bad in (nx.Graph([(0, 1), (2, 3)]), nx.DiGraph([(0, 1)])):
        with pytest.raises(InputError, match=r"^graph"):
            fastest_mixing(bad)
    for backend in ("native", "no-such-solver"):
        with pytest.raises(InputError, match=r"^backend"):
            fastest_mixing(PAW, backend=backend)
    with pytest.raises(InputError, match=r"^limits.max_variance"):
        design_mixing_and_noise(PAW, required_gap=0.2, max_variance=0.5)
    # W = J / n cancels all but one direction: without a cap there is no least noise.
    with pytest.raises(InputError, match=r"max_variance"):
        design_mixing_and_noise(nx.complete_graph(4), required_gap=0.5)
