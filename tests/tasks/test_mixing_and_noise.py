"""Weights and noise designed together: rounds, the required gap, search on grids."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.program.problem import SpaceProblem
from noisedesign.system.fastest_mixing import fastest_mixing, mixing_norm
from noisedesign.tasks import mixing_and_noise as joint
from noisedesign.tasks.mixing_and_noise import design_mixing_and_noise
from noisedesign.tasks.solve import solve
from tests.support import oracles
from tests.support.weight_cases import PAW, norm_by_svd, with_weights


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
    monkeypatch.setattr(joint, "solve_cvxpy", lambda *args: False)
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
    with pytest.raises(InputError, match=r"^limits.max_variance"):
        design_mixing_and_noise(PAW, required_gap=0.2, max_variance=0.5)
    # W = J / n cancels all but one direction: without a cap there is no least noise.
    with pytest.raises(InputError, match=r"max_variance"):
        design_mixing_and_noise(nx.complete_graph(4), required_gap=0.5)
