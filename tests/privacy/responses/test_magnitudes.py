"""Bounds by magnitudes beside the quadratic program as Clarabel solves it, and beside what linear
responses reach by dense algebra."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.privacy import responses, views
from noisedesign.privacy.responses import game, responsive
from noisedesign.privacy.responses.magnitudes import Magnitudes
from noisedesign.privacy.runs import Responses

CONVEX = Responses(kind="convex", losses="generalised-linear")

CASES = [(nx.path_graph(5), 0, 2), (nx.star_graph(4), 1, 2), (nx.cycle_graph(6), 0, 3)]
HORIZON = 8
PATTERNS = [(0,), tuple(range(HORIZON))]


def magnitudes(w: np.ndarray, observer: int, growth: float, horizon: int = HORIZON) -> Any:
    algorithm = views.dp_d_sgd(mixing=w, horizon=horizon)
    mechanism = views.view(algorithm, nd.observers.pndp(nodes=[observer]))
    nodes = np.setdiff1d(np.arange(len(w)), [observer])
    return Magnitudes.of(mechanism, nodes, growth=growth), nodes


def program(w: np.ndarray, observer: int, victim: int, pattern: Any, growth: float) -> float:
    """The quadratic program of the shifts: min sum s^2, 0 <= s <= b, s = b where a node is seen."""
    n, total, constraints = len(w), 0, []
    away: Any = np.zeros(n)
    for t in range(HORIZON):
        differs = growth * away + (np.eye(n)[victim] if t in pattern else 0)
        shift = cp.Variable(n, nonneg=True)
        seen = w[observer] > 0
        constraints += [shift <= differs, shift[seen] == differs[seen]]
        total += cp.sum_squares(shift)
        away = np.abs(w) @ (differs - shift)
    problem = cp.Problem(cp.Minimize(total), constraints)
    problem.solve(solver="CLARABEL")
    return float(problem.value)


@pytest.mark.parametrize("growth", [1.0, 1.3])
@pytest.mark.parametrize(("graph", "observer", "victim"), CASES)
def test_a_bound_is_about_the_optimum_of_the_program_and_never_below(
    graph: nx.Graph, observer: int, victim: int, growth: float
) -> None:
    w = nd.mixing_matrix(graph)
    made, nodes = magnitudes(w, observer, growth)
    place = np.flatnonzero(nodes == victim)
    for pattern in PATTERNS:
        (alone,) = made.bounds(place, [pattern])
        among = made.bounds(np.arange(len(nodes)), [pattern])[place[0]]
        optimum = program(w, observer, victim, pattern, growth)
        assert optimum * (1 - 1e-6) <= alone <= optimum * 1.01
        assert optimum * (1 - 1e-6) <= among <= optimum * 1.2  # shares that hold for all victims


def reached(w: np.ndarray, observer: int, victim: int, pattern: Any, answers: np.ndarray) -> float:
    """The squared sensitivity of linear answers x + g = D x, (T, n), by stacked matrices: gradients
    of the record take either sign at every step."""
    n, horizon = len(w), len(answers)
    seen = np.flatnonzero(w[observer] > 0)
    rows: list[np.ndarray] = []  # of what is seen, along (impulses of T steps, noise of all)
    state = np.zeros((n, horizon + horizon * n))
    for t in range(horizon):
        sent = answers[t][:, None] * state
        sent[victim, t] += 1.0
        sent[:, horizon + t * n : horizon + (t + 1) * n] += np.eye(n)
        rows.append(sent[seen])
        state = w @ sent
    stacked = np.vstack(rows)
    moved, noise = stacked[:, :horizon], stacked[:, horizon:].copy()
    for t in range(horizon):  # the observer knows its own noise
        noise[:, t * n + observer] = 0.0
    whitened = np.linalg.pinv(noise @ noise.T, rcond=1e-10)
    worst = 0.0
    for code in range(2 ** len(pattern)):
        signs = np.zeros(horizon)
        signs[list(pattern)] = [1.0 if code >> i & 1 else -1.0 for i in range(len(pattern))]
        worst = max(worst, float(signs @ moved.T @ whitened @ moved @ signs))
    return worst


def test_no_linear_answers_reach_more() -> None:
    rng = np.random.default_rng(5)
    for graph, observer, victim in CASES:
        w = nd.mixing_matrix(graph)
        for low, high in ((0.0, 1.0), (-0.3, 1.3)):
            made, nodes = magnitudes(w, observer, max(-low, high), 5)
            for pattern in ((0,), (0, 1, 2, 3, 4)):
                bound = made.bounds(np.flatnonzero(nodes == victim), [pattern])[0]
                for answers in (
                    np.full((5, len(w)), high),
                    rng.uniform(low, high, (5, len(w))),
                    rng.choice([low, high], (5, len(w))),
                ):
                    answers[:, observer] = 0.0  # whose models are its own
                    assert reached(w, observer, victim, pattern, answers) <= bound * (1 + 1e-7)


def test_unequal_and_correlated_noise_of_a_step_is_covered() -> None:
    """The program in units of the noise of every node is the same."""
    w = nd.mixing_matrix(nx.path_graph(5))
    plain, nodes = magnitudes(w, 0, 1.0)
    where = np.arange(len(nodes))
    for covariance, room in (
        (np.diag([4.0] * 5), 1e-4),
        (np.diag([1.0, 4.0, 9.0, 1.0, 2.0]), None),
        (np.linalg.inv(2 * np.eye(5) - 0.3 * np.ones((5, 5))), None),
    ):
        algorithm = views.whisper(mixing=w, covariance=covariance, horizon=HORIZON)
        mechanism = views.view(algorithm, nd.observers.pndp(nodes=[0]))
        made = Magnitudes.of(mechanism, nodes, growth=1.0)
        assert made is not None
        found = made.bounds(where, [(0,)])
        if room is not None:
            np.testing.assert_allclose(found, plain.bounds(where, [(0,)]) / 4, rtol=room)
        exact = list(responsive(mechanism, (0,), nodes, nd.participation.single(HORIZON), CONVEX))
        for bound, (_, lower) in zip(found, exact, strict=True):
            assert bound >= lower * (1 - 1e-9)


def test_runs_that_are_too_large_for_multipliers_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One participation: between what multipliers prove and 1, the bound of all messages."""
    w = nd.mixing_matrix(nx.cycle_graph(7))
    algorithm = views.dp_d_sgd(mixing=w, horizon=6)
    mechanism = views.view(algorithm, nd.observers.pndp(nodes=[0]))
    victims = range(1, 7)
    exact = list(responsive(mechanism, (0,), victims, nd.participation.single(6), CONVEX))
    monkeypatch.setattr(responses, "game_of", lambda *_: None)
    found = list(responsive(mechanism, (0,), victims, nd.participation.single(6), CONVEX))
    for (bound, lower), (least, _) in zip(found, exact, strict=True):
        assert lower == 0.0
        assert least * (1 - 1e-6) <= bound <= min(1.0 + 1e-5, 1.07 * least)
    account = nd.account(
        algorithm,
        nd.observers.pndp(nodes=[0]),
        participation=nd.participation.single(6),
        responses=CONVEX,
    )
    for row, (bound, _) in zip(account, found, strict=True):
        assert row.sensitivity_squared == pytest.approx(min(bound, 1.0), rel=1e-12)
        assert row.theorem == (4 if bound < 1 else 2)


def test_steps_that_overshoot_grow_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learning rate of 4 / L: a step multiplies differences by what lies between -3 and 1."""
    monkeypatch.setattr(responses, "game_of", lambda *_: None)
    steep = Responses(kind="convex", smoothness=4.0, losses="generalised-linear")
    w = nd.mixing_matrix(nx.path_graph(5))
    mechanism = views.view(views.dp_d_sgd(mixing=w, horizon=4), nd.observers.pndp(nodes=[0]))
    ((bound, _),) = responsive(mechanism, (0,), [2], nd.participation.single(4), steep)
    answers = np.full((4, 5), -3.0)
    answers[:, 0] = 0.0
    at_four_over_l = reached(w, 0, 2, (0,), answers)
    assert at_four_over_l > 1.5 * reached(w, 0, 2, (0,), answers / -3.0)
    assert at_four_over_l <= bound * (1 + 1e-7)


def test_noise_over_time_and_many_patterns_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    w = nd.mixing_matrix(nx.path_graph(4))
    strategy = np.tril(np.ones((6, 6)))
    algorithm = views.mf_d_sgd(mixing=w, strategy=strategy)
    mechanism = views.view(algorithm, nd.observers.pndp(nodes=[0]))
    assert Magnitudes.of(mechanism, np.arange(1, 4), growth=1.0) is None
    monkeypatch.setattr(responses, "FEW_PATTERNS", 0)
    monkeypatch.setattr(responses, "game_of", lambda *_: None)
    plain = views.view(views.dp_d_sgd(mixing=w, horizon=6), nd.observers.pndp(nodes=[0]))
    ((bound, lower),) = responsive(plain, (0,), [2], nd.participation.single(6), CONVEX)
    assert (bound, lower) == (math.inf, 0.0)


@pytest.mark.parametrize("multipliers", [True, False])
def test_no_pattern_is_left_out_where_they_are_very_many(
    multipliers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst of these comes last: a bound of the first alone would be too small."""
    steps = [*((t,) for t in range(1100)), tuple(range(1095, 1100))]
    scheme = nd.participation.Patterns(horizon=1100, steps=steps)
    w = nd.mixing_matrix(nx.path_graph(4))
    mechanism = views.view(views.dp_d_sgd(mixing=w, horizon=1100), nd.observers.pndp(nodes=[0]))
    monkeypatch.setattr(responses, "MANY_PATTERNS", 1050)
    monkeypatch.setattr(responses, "enclosed_stages", lambda _: [])
    if not multipliers:
        monkeypatch.setattr(responses, "game_of", lambda *_: None)
    ((bound, lower),) = responsive(mechanism, (0,), [2], scheme, CONVEX)
    assert (bound, lower) == (math.inf, 0.0)


def noise_with_memory(horizon: int, nodes: int) -> Any:
    """A ring whose C has no band less than all, and is another one at every step."""
    strategy = np.tril(np.ones((horizon, horizon))) + np.diag(np.arange(float(horizon)))
    w = nd.mixing_matrix(nx.cycle_graph(nodes))
    return views.mf_d_sgd(mixing=w, strategy=strategy)


def test_a_long_memory_is_not_searched_and_has_the_bound_of_all_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight nodes, sixty steps, a dense C: each of some thousand evaluations took seconds."""
    monkeypatch.setattr(responses, "enclosed_stages", lambda _: pytest.fail("it is searched"))
    algorithm = noise_with_memory(60, 8)
    ask: dict[str, Any] = {"victims": [2]}
    ask["participation"] = nd.participation.FixedEpoch(epochs=3, separation=20)
    (row,) = nd.account(algorithm, nd.observers.pndp(nodes=[0]), responses=CONVEX, **ask)
    (plain,) = nd.account(algorithm, nd.observers.pndp(nodes=[0]), **ask)
    assert (row.mu, row.theorem, row.responses) == (plain.mu, 2, "any")
    assert row.words.startswith(f"{plain.words}; no smaller bound")


@pytest.mark.parametrize("room", [0.9, 1.5, 2.1])
def test_patterns_count_where_noise_has_a_memory(
    room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes beside the one that looks, and three values of memory of each: eight states."""
    monkeypatch.setattr(game, "MOST_PRODUCTS", room * 4 * 8**3)
    mechanism = views.view(noise_with_memory(4, 3), nd.observers.pndp(nodes=[0]))
    found = []
    for steps in ([(0, 2)], [(0, 2), (1, 3)]):
        scheme = nd.participation.Patterns(horizon=4, steps=steps)
        ((bound, _),) = responsive(mechanism, (0,), [2], scheme, CONVEX)
        found.append(math.isfinite(bound))
    assert found == [room > 1, room > 2]
