"""Noise against chosen observers: closed forms, brute force, other solvers, and bad input."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.design.solve import solve
from noisedesign.privacy import views as threats
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.workloads import ErrorMeasure
from tests.support import dense_views, oracles, space_time_cases
from tests.support.observer_designs import ObserverDesign, designed, observer_program

Array = Any

GAP = 1e-5
RING_6, PATH_6 = oracles.metropolis(nx.cycle_graph(6)), oracles.metropolis(nx.path_graph(6))
PATH_3, RING_5 = oracles.metropolis(nx.path_graph(3)), oracles.metropolis(nx.cycle_graph(5))
ASYMMETRIC = oracles.row_normalized(nx.path_graph(3))


def one_step(horizon: int) -> ErrorMeasure:
    """The error after the first step only: H = W^T W."""
    return ErrorMeasure(horizon=horizon, step_weights=np.eye(horizon)[0])


def everyone(n: int, **words: Any) -> list[threats.Observer]:
    return [threats.pndp(nodes=[node], **words) for node in range(n)]


def independent_cost(w: Array, error: ErrorMeasure) -> float:
    """What independent noise costs, H and all written out again for unit budgets."""
    stacked = space_time_cases.stacked_workload(w, error.horizon)
    workload = np.repeat(np.sqrt(error.steps), len(w))[:, None] * stacked
    return float(np.sum(workload**2))


def neighbour_view(w: Array, covariance: Array, v: int, horizon: int) -> dense_views.View:
    """What node v hears of the others, by the covariance of the noise given its own."""
    n = len(w)
    if len(covariance) == n:
        covariance = np.kron(np.eye(horizon), covariance)
    own = [t * n + v for t in range(horizon)]
    gain = np.linalg.solve(covariance[np.ix_(own, own)], covariance[own])
    rest = np.delete(np.arange(n * horizon), own)
    unknown = (covariance - covariance[:, own] @ gain)[np.ix_(rest, rest)]
    root = np.zeros((n * horizon, len(rest)))
    root[rest] = np.linalg.cholesky((unknown + unknown.T) / 2)
    heard = [u for u in range(n) if w[v, u] > 0 and u != v]
    rows = [t * n + u for t in range(horizon) for u in heard]
    signal = dense_views.messages(w, horizon=horizon)[rows]
    # The node's own messages follow from those it hears, and its own columns are no victim's.
    return dense_views.View(signal, signal @ root)


def told(w: Array, covariance: Array, v: int, horizon: int) -> Array:
    """Squared sensitivities, a row for every node (its own: 0), a column for every step."""
    view, n = neighbour_view(w, covariance, v, horizon), len(w)
    inverse = np.linalg.inv(view.noise @ view.noise.T)
    every = np.einsum("ic,ij,jc->c", view.signal, inverse, view.signal)
    result = every.reshape(horizon, n).T
    result[v] = 0
    return np.asarray(result)


def assert_certified(design: ObserverDesign, *, gap: float = GAP) -> None:
    certificate = design.certificate
    assert certificate.feasible
    assert 0 <= certificate.gap <= gap
    assert design.stop is Stop.SOLVED


# --- closed forms -----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "horizon", "tau"), [(2, 1, 1.0), (2, 3, 4.0), (3, 2, 0.01)])
def test_on_a_complete_graph_neighbours_see_everything(n: int, horizon: int, tau: float) -> None:
    # Each then learns what a reader of all messages does, and W^k = W: step s (from 1) costs its
    # one-step error at each of the T - s + 1 iterates that follow.
    cap = 1.7
    design = designed(
        mixing=np.ones((n, n)) / n,
        horizon=horizon,
        observers=everyone(n),
        max_variance=cap / tau,
        budget=tau,
    )
    optimum = oracles.complete_graph_capped(n, cap=cap / tau, tau=tau) * horizon * (horizon + 1) / 2
    assert_certified(design)
    assert design.certificate.lower_bound <= optimum <= design.certificate.objective
    assert design.certificate.variance_ratio == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("own_noise", ["values", "counted"])
def test_against_a_secure_sum_one_noise_for_all_is_enough(own_noise: str) -> None:
    # The sum shows 1^T g + 1^T z: tr(R J) has to be 1 / tau, and costs that over n. LDP pays 1/tau.
    n, tau = 4, 0.5
    design = designed(
        mixing=np.ones((n, n)) / n,
        horizon=1,
        budget=tau,
        max_variance=3.0,
        observers=[threats.secure_sum(nodes=[0], own_noise=own_noise)],
    )
    assert_certified(design)
    assert design.certificate.objective == pytest.approx(1 / (n * tau), rel=GAP)


def test_against_a_reader_of_all_messages_it_is_whispers_design() -> None:
    # A ring of 5: nuclear norm squared over n tau, at a cap that does not bind.
    horizon, tau = 3, 2.0
    design = designed(
        mixing=RING_5,
        horizon=horizon,
        budget=tau,
        observers=[threats.ldp()],
        max_variance=[50.0] * 5,
        error=one_step(horizon),
    )
    assert_certified(design)
    optimum = oracles.vertex_transitive_optimum(RING_5, tau=tau)
    assert design.certificate.objective == pytest.approx(optimum, rel=GAP)
    precision = np.diagonal(np.linalg.inv(design.covariance))
    assert precision == pytest.approx(np.full(5, tau), rel=1e-3)


def test_whisper_with_budgets_and_cap_by_the_other_solver() -> None:
    # With all messages the insider learns no more, so both are the same program.
    budget, cap = np.array([1.0, 3.0, 0.5, 1.0, 2.0, 1.0]), 2.5
    other = solve(SpaceProblem(mixing=PATH_6, budget=budget, max_variance=cap), gap=1e-7)
    assert other.certificate is not None
    for observers in ([threats.ldp()], [threats.insider(nodes=[u]) for u in range(6)]):
        design = designed(
            mixing=PATH_6,
            horizon=2,
            budget=budget,
            max_variance=cap,
            observers=observers,
            error=one_step(2),
        )
        assert_certified(design)
        assert design.certificate.objective == pytest.approx(other.certificate.objective, rel=GAP)


# --- brute force ------------------------------------------------------------------------------


def least(cost: Any, limits: Any, starts: list[Array]) -> float:
    """Least cost that a local search finds under limits(x) >= 0, from several starts."""
    found = [
        scipy.optimize.minimize(
            cost,
            start,
            method="SLSQP",
            constraints={"type": "ineq", "fun": limits},
            options={"ftol": 1e-13, "maxiter": 500},
        )
        for start in starts
    ]
    return min(one.fun for one in found if limits(one.x).min() > -1e-9)


@pytest.mark.parametrize("cap", [2.0, 20.0])
def test_ring_of_six_over_all_circulant_covariances(cap: float) -> None:
    # Turning and mirroring the ring changes nothing, and averages of solutions are solutions: an
    # optimal R is circulant, with one of four eigenvalues a frequency, and one observer is enough.
    horizon = 3
    angles = 2 * np.pi * np.multiply.outer(np.arange(6), np.arange(4)) / 6
    weights = np.array([1, 2, 2, 1]) / 6
    distance = np.subtract.outer(np.arange(6), np.arange(6)) % 6
    spectrum = 1 / 3 + 2 / 3 * np.cos(angles[1])

    def covariance(x: Array) -> Array:
        return ((np.cos(angles) * weights) @ np.exp(x))[distance]

    def limits(x: Array) -> Array:
        sensitivities = told(RING_6, covariance(x), 0, horizon)
        return np.append(1 - sensitivities.ravel(), 1 - weights @ np.exp(x) / cap)

    def cost(x: Array) -> float:
        return float(6 * weights @ (spectrum**2 * np.exp(x)))

    rng = np.random.default_rng(1)
    brute = least(cost, limits, [rng.normal(0.3, 0.5, size=4) for _ in range(4)])
    design = designed(
        mixing=RING_6,
        horizon=horizon,
        observers=everyone(6),
        max_variance=cap,
        error=one_step(horizon),
    )
    assert_certified(design)
    assert design.certificate.objective == pytest.approx(brute, rel=1e-5)


@pytest.mark.parametrize(
    ("w", "looking"), [(PATH_3, [0]), (PATH_3, [0, 1, 2]), (ASYMMETRIC, [0, 2])]
)
def test_three_nodes_over_all_covariances(w: Array, looking: list[int]) -> None:
    horizon, budget, cap = 2, np.array([1.0, 0.6, 1.5]), np.array([3.0, 2.5, 4.0])
    workload = space_time_cases.stacked_workload(w, horizon)
    lower = np.tril_indices(3)

    def covariance(x: Array) -> Array:
        root = np.zeros((3, 3))
        root[lower] = x
        return root @ root.T

    def cost(x: Array) -> float:
        root = np.kron(np.eye(horizon), np.linalg.cholesky(covariance(x) + 1e-12 * np.eye(3)))
        return float(np.sum((workload @ root) ** 2))

    def limits(x: Array) -> Array:
        noise = covariance(x) + 1e-12 * np.eye(3)
        used = [told(w, noise, v, horizon) / budget[:, None] for v in looking]
        return np.concatenate([1 - np.ravel(used), 1 - np.diagonal(noise) / cap])

    rng = np.random.default_rng(7)
    starts = [1.3 * np.eye(3)[lower] + 0.2 * rng.normal(size=6) for _ in range(6)]
    brute = least(cost, limits, starts)
    design = designed(
        mixing=w,
        horizon=horizon,
        budget=budget,
        max_variance=cap,
        observers=[threats.pndp(nodes=[v]) for v in looking],
    )
    assert_certified(design)
    assert design.certificate.objective == pytest.approx(brute, rel=1e-5)


# --- ratios and orders ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "against_nodes", "whisper"), [(RING_6, 0.334, 0.593), (PATH_6, 0.634, 0.723)]
)
def test_ratios_to_independent_noise(w: Array, against_nodes: float, whisper: float) -> None:
    asked = {"mixing": w, "horizon": 3, "max_variance": 200.0, "error": one_step(3)}
    design = designed(**asked, observers=everyone(6))
    everybody = designed(**asked, observers=[threats.ldp()])
    assert_certified(design)
    assert_certified(everybody)
    cost = independent_cost(w, one_step(3))
    assert design.certificate.objective / cost == pytest.approx(against_nodes, abs=5e-4)
    assert everybody.certificate.objective / cost == pytest.approx(whisper, abs=5e-4)


def test_fewer_observers_never_cost_more() -> None:
    observers = [*everyone(4), threats.ldp()]
    w = oracles.metropolis(nx.path_graph(4))
    costs = []
    for count in range(1, 6):
        design = designed(mixing=w, horizon=2, observers=observers[:count], max_variance=3.0)
        assert_certified(design)
        costs.append(design.certificate)
    for fewer, more in itertools.pairwise(costs):
        assert fewer.lower_bound <= more.objective
    assert costs[0].objective < 0.9 * costs[3].objective < 0.9 * costs[4].objective


def test_own_noise_counted_or_known_costs_the_same() -> None:
    # Its own messages tell a node its own noise: all else in them it has heard or is its own.
    asked = {"mixing": PATH_3, "horizon": 2, "max_variance": 3.0}
    known = designed(**asked, observers=everyone(3))
    counted = designed(**asked, observers=everyone(3, own_noise="counted"))
    assert counted.certificate.objective == pytest.approx(known.certificate.objective, rel=GAP)


def test_a_larger_cap_costs_less_and_a_binding_one_binds() -> None:
    asked = {"mixing": RING_6, "horizon": 2, "observers": everyone(6)}
    costs = []
    for cap in (1.5, 5.0, 1e4):
        design = designed(**asked, max_variance=cap)
        assert_certified(design)
        costs.append(design.certificate)
    assert costs[0].variance_ratio == pytest.approx(1, abs=1e-4)
    assert costs[0].lower_bound > costs[1].objective
    assert costs[1].lower_bound > costs[2].objective


@settings(derandomize=True, deadline=None, max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 4),
    horizon=st.integers(1, 3),
    magnitude=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_designs_hold_their_budgets_by_the_dense_views(
    seed: int, n: int, horizon: int, magnitude: float
) -> None:
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < 0.7) + 0.2 * np.eye(n)
    w[np.arange(n), (np.arange(n) + 1) % n] += 0.1  # everybody hears somebody
    w /= w.sum(axis=1, keepdims=True)
    budget = magnitude * rng.uniform(0.3, 3.0, size=n)
    looking = sorted({int(v) for v in rng.integers(0, n, size=2)})
    design = designed(
        mixing=w,
        horizon=horizon,
        budget=budget,
        max_variance=4 / budget.min(),
        observers=[threats.pndp(nodes=[v]) for v in looking],
    )
    assert design.certificate.feasible
    assert 0 <= design.certificate.gap <= 1e-4
    # A covariance near singular is judged with a little more noise, which only hides more.
    noise = design.covariance + 1e-9 * np.trace(design.covariance) * np.eye(n)
    ratios = [told(w, noise, v, horizon) / budget[:, None] for v in looking]
    assert 0.9 < np.max(ratios) <= 1 + 1e-6


@pytest.mark.parametrize("w", [PATH_3, ASYMMETRIC, RING_5])
def test_the_first_step_is_the_one_learnt_most_about(w: Array) -> None:
    horizon, noise = 4, space_time_cases.covariance(len(w), seed=3)
    for v in range(len(w)):
        sensitivities = told(w, noise, v, horizon)
        assert (sensitivities[:, :1] >= sensitivities * (1 - 1e-9)).all()
        if w[v].all():  # it hears everybody at once: what comes later adds nothing
            assert sensitivities[:, -1] == pytest.approx(sensitivities[:, 0], rel=1e-9)
        else:
            assert (sensitivities[:, -1] < 0.99 * sensitivities[:, 0]).any()


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"max_variance": None}, "limits.max_variance"),
        ({"max_variance": [1.0, 2.0]}, "limits.max_variance"),
        ({"max_variance": 0.5, "observers": everyone(3)}, "limits.max_variance"),
        ({"max_variance": np.float32(2.0)}, "limits.max_variance"),
        ({"budget": 0.0}, "budget.tau"),
        ({"observers": ["pndp"]}, "observers"),
        ({"observers": [threats.pndp(nodes=[3])]}, "observers.nodes"),
        ({"observers": [threats.shared_seed(nodes=[0])]}, "observers"),
        ({"observers": [threats.secldp(known_seeds=[1])]}, "observers"),
        ({"mixing": np.eye(3)}, "mixing"),
        ({"mixing": np.eye(3) * 2}, "mixing"),
        ({"mixing": np.eye(3, dtype=np.float32)}, "mixing"),
        ({"horizon": 200}, "observers.horizon"),
        ({"backend": "native"}, "backend"),
        ({"backend": "nobody"}, "backend"),
    ],
)
def test_bad_input_names_its_field(changed: dict[str, Any], field: str) -> None:
    asked = {
        "mixing": PATH_3,
        "horizon": 2,
        "observers": [threats.pndp(nodes=[0])],
        "max_variance": 3.0,
    }
    with pytest.raises(InputError) as error:
        designed(**{**asked, **changed})
    assert error.value.field == field


def test_an_objective_that_no_noise_changes_is_refused() -> None:
    # On one node there is no consensus to lose.
    with pytest.raises(InputError, match="error"):
        observer_program(
            mixing=np.ones((1, 1)),
            horizon=1,
            observers=(threats.ldp(),),
            max_variance=2.0,
            error=ErrorMeasure(horizon=1, of="consensus"),
        )
