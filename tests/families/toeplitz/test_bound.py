"""Lower bounds of the unrestricted optimum, at any horizon."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.families.toeplitz import bound as bounds
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads.toeplitz import (
    GramWorkload,
    PoleWorkload,
    Workload,
    gossip_workload,
    prefix_workload,
)
from noisedesign.system.workloads.workload import decentralized_gram
from tests.support import oracles


@pytest.mark.parametrize("horizon", [1, 2, 3, 100])
def test_closed_form_is_exact_for_prefix_sums(horizon: int) -> None:
    singular = np.linalg.svd(oracles.prefix_workload(horizon), compute_uv=False)
    found = bounds.closed_form_root_trace_lower_bound(prefix_workload(horizon=horizon))
    assert found == pytest.approx(singular.sum(), rel=1e-12)


GRAPHS = [
    nx.florentine_families_graph(),
    nx.cycle_graph(30),
    nx.path_graph(12),
    nx.complete_bipartite_graph(3, 3),
    nx.complete_graph(5),
    nx.star_graph(6),
]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("horizon", "share"), [(2, 0.3), (10, 0.4), (300, 0.94)])
def test_closed_form_stays_below_the_nuclear_norm(
    graph: nx.Graph, horizon: int, share: float
) -> None:
    w = oracles.metropolis(graph)
    values = np.linalg.eigvalsh(decentralized_gram(w, horizon=horizon))
    exact = np.sqrt(np.maximum(values, 0)).sum()
    found = bounds.closed_form_root_trace_lower_bound(gossip_workload(w, horizon=horizon))
    assert share * exact <= found <= exact * (1 + 1e-10)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    poles=st.lists(
        st.sampled_from([-1.0, -0.9, -0.2, 0.0, 0.1, 0.6, 0.99, 1 - 1e-9, 1.0]),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 100),
    horizon=st.integers(1, 40),
)
def test_closed_form_bounds_any_poles(poles: list[float], seed: int, horizon: int) -> None:
    weights = 10 ** np.random.default_rng(seed).uniform(-3, 3, len(poles))
    workload = PoleWorkload(poles=np.array(poles), weights=weights, horizon=horizon)
    stacked = np.vstack(
        [
            np.sqrt(weight) * np.linalg.inv(np.eye(horizon) - pole * np.eye(horizon, k=-1))
            for pole, weight in zip(poles, weights, strict=True)
        ]
    )
    exact = np.linalg.svd(stacked, compute_uv=False).sum()
    found = bounds.closed_form_root_trace_lower_bound(workload)
    assert 0 <= found <= exact * (1 + 1e-10)
    assert bounds.root_trace_lower_bound(workload) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("poles", [[0.7], [0.2, 0.9], [0.5, 0.51, 0.99, 1.0, -0.5]])
def test_closed_form_is_the_bound_it_says(poles: list[float]) -> None:
    # tr D^1/2 - tr (D - H')^1/2 with D and H' (poles < 0 bounded, not corrected) written out.
    t = 60
    weights = np.arange(1.0, len(poles) + 1)
    shift = np.eye(t, k=-1)
    p = shift + shift.T
    p[0, 0] = 1.0
    inverses = [np.linalg.inv((1 + pole**2) * np.eye(t) - pole * p) for pole in poles]
    grams = [
        np.linalg.inv((np.eye(t) - pole * shift) @ (np.eye(t) - pole * shift.T)) for pole in poles
    ]
    d = sum(w * m for w, m in zip(weights, inverses, strict=True))
    r = sum(
        w * (m - g)
        for w, m, g, pole in zip(weights, inverses, grams, poles, strict=True)
        if pole > 0
    )
    traces = [np.sqrt(np.maximum(np.linalg.eigvalsh(a), 1e-14)).sum() for a in (d, r)]
    workload = PoleWorkload(poles=np.array(poles), weights=weights, horizon=t)
    found = bounds.closed_form_root_trace_lower_bound(workload)
    assert found == pytest.approx(traces[0] - traces[1], rel=1e-5)


def test_poles_that_cost_more_than_they_add_are_left_out() -> None:
    # Over four steps, poles this close to 1 are corrected by more than they contribute.
    alone = bounds.closed_form_root_trace_lower_bound(prefix_workload(horizon=4))
    workload = PoleWorkload(poles=np.array([1.0, 0.9]), weights=np.array([1.0, 0.1]), horizon=4)
    assert bounds.closed_form_root_trace_lower_bound(workload) >= alone * (1 - 1e-14)


def workloads(horizon: int) -> list[Workload]:
    w = oracles.metropolis(nx.path_graph(4))
    return [prefix_workload(horizon=horizon), gossip_workload(w, horizon=horizon)]


@pytest.mark.parametrize("closed_form", [False, True])
@pytest.mark.parametrize(("k", "b"), [(1, 12), (3, 4), (12, 1)])
def test_lower_bound_is_below_the_certified_optimum(
    k: int, b: int, closed_form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if closed_form:
        monkeypatch.setattr(bounds, "DENSE_HORIZON", 0)
    for workload in workloads(12):
        optimum = oracles.fixed_epoch_interval(workload.gram(), k, b)
        found = lower_bound_of_unrestricted_optimum(workload, FixedEpoch(epochs=k, separation=b))
        assert 0.3 * optimum.lower < found <= optimum.upper


def test_lower_bound_is_attained_where_steps_do_not_interact() -> None:
    # H = I: X = I / p is optimal where patterns of p steps cover all steps evenly: T p.
    workload = GramWorkload(matrix=np.eye(12))
    cases = {
        single(12): 12.0,
        every_step(12): 144.0,
        FixedEpoch(epochs=3, separation=4): 36.0,
        MinSeparation(horizon=12, separation=4, max_participations=3): 36.0,
        MinSeparation(horizon=12, separation=5, max_participations=2): 24.0,
        MinSeparation(horizon=12, separation=30, max_participations=2): 12.0,
    }
    for scheme, optimum in cases.items():
        found = lower_bound_of_unrestricted_optimum(workload, scheme)
        assert found == pytest.approx(optimum, rel=1e-12)
        assert found <= optimum * (1 + 1e-12)


def test_lower_bound_counts_only_what_covers_every_step() -> None:
    # T = 13, b = 5: patterns of three steps are within {0..2}, {5..7}, {10..12}. The design with
    # X_tt = 1/3 there and 1/2 at 3, 4, 8, 9 is feasible, so 3 * 13 would be no bound.
    x = np.full(13, 1 / 3)
    x[[3, 4, 8, 9]] = 1 / 2
    assert max(x[list(p)].sum() for p in oracles.min_separation_patterns(13, 5, 9)) <= 1 + 1e-15
    scheme = MinSeparation(horizon=13, separation=5, max_participations=9)
    found = lower_bound_of_unrestricted_optimum(GramWorkload(matrix=np.eye(13)), scheme)
    assert found <= (1 / x).sum()


@pytest.mark.parametrize(("horizon", "b", "k"), [(12, 5, 2), (13, 3, 9), (7, 7, 2), (10, 3, 2)])
def test_min_separation_patterns_cover_every_step_evenly(horizon: int, b: int, k: int) -> None:
    p = min(k, horizon // b)
    patterns = [tuple((r + i * horizon) // p for i in range(p)) for r in range(horizon)]
    assert set(patterns) <= set(oracles.min_separation_patterns(horizon, b, k))
    counts = np.bincount(np.concatenate(patterns), minlength=horizon)
    np.testing.assert_array_equal(counts, p)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), horizon=st.integers(1, 7), b=st.integers(1, 7))
def test_no_strategy_is_below_the_lower_bound(seed: int, horizon: int, b: int) -> None:
    rng = np.random.default_rng(seed)
    c = np.tril(rng.standard_normal((horizon, horizon))) * 0.3 + np.diag(1 + rng.random(horizon))
    scheme = MinSeparation(horizon=horizon, separation=b, max_participations=3)
    gram = c.T @ c
    # What gradients attain is at most the sensitivity: the objective is understated, and still.
    attained = max(
        oracles.best_signs(gram[np.ix_(p, p)])
        for p in oracles.min_separation_patterns(horizon, b, 3)
    )
    for workload in workloads(horizon):
        objective = np.trace(workload.gram() @ np.linalg.inv(gram)) * attained
        assert lower_bound_of_unrestricted_optimum(workload, scheme) <= objective


def test_horizons_must_agree() -> None:
    with pytest.raises(InputError, match="participation: expected a horizon of 4"):
        lower_bound_of_unrestricted_optimum(prefix_workload(horizon=4), single(5))
