"""Observers of many steps by what repeats: against their messages written out."""

from __future__ import annotations

import functools
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.observers import (
    observed,
    program as programs,
    rigorous,
    sweeps,
    working_set,
)
from noisedesign.families.observers.bound import judge
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.privacy import views
from tests.support import oracles
from tests.support.observer_designs import observer_program

GRAPH = nx.convert_node_labels_to_integers(nx.gnp_random_graph(8, 0.35, seed=5))


def asked(horizon: int = 3, **more: Any) -> ObserverProgram:
    base: dict[str, Any] = {
        "mixing": oracles.metropolis(GRAPH),
        "horizon": horizon,
        "max_variance": 10.0,
        "budget": np.linspace(0.5, 2.0, 8),
        "observers": (*(views.pndp(nodes=[node]) for node in GRAPH), views.pndp(nodes=[0, 5])),
    }
    return observer_program(**base | more)


def noise_of(seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((8, 8))
    return np.asarray(root @ root.T / 8 + 0.2 * np.eye(8))


@functools.cache
def with_messages_written_out() -> tuple[float, float]:
    """Bound and objective over three steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "WRITTEN", 30)
        problem = asked(3)
        answer = FAMILY.solve(problem, monitor=Monitor(gap=1e-4))
        (noise,) = answer.noises
        bound = FAMILY.bound(problem, answer.proof).value
        return bound, judge(problem, noise.covariance, bound=bound).objective


@pytest.fixture
def by_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "WRITTEN", 0)


@pytest.mark.usefixtures("by_lags")
@pytest.mark.parametrize("own_noise", ["seeds", "counted"])
@pytest.mark.parametrize("horizon", [2, 5])
def test_it_tells_what_the_account_says(horizon: int, own_noise: str) -> None:
    observers = tuple(views.pndp(nodes=[node], own_noise=own_noise) for node in GRAPH)
    problem = asked(horizon, observers=observers)
    assert all(seen.run is not None for seen in problem.seen)
    for seed in range(2):
        noise = noise_of(seed)
        found, whose = problem.worst(noise)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(programs, "WRITTEN", 30)
            written = asked(horizon, observers=observers)
            assert all(seen.run is None for seen in written.seen)
            assert found == pytest.approx(written.worst(noise)[0], rel=1e-9)
            assert whose == written.worst(noise)[1]


def test_covariances_and_what_multipliers_use_are_those_of_all_messages() -> None:
    rng, unit = np.random.default_rng(2), np.linspace(0.5, 2.0, 8)
    mixing = oracles.metropolis(GRAPH)
    mixing[0] = [0.3, 0.1, 0.0, 0.2, 0.0, 0.4, 0.0, 0.0]  # not symmetric
    run, noise = observed.Run(mixing, unit, 4), noise_of()
    heard = [np.array([[0, 2, 5], [1, 6, 7]]), np.array([[3, 4]])]
    expected, given = np.zeros((8, 8)), []
    for nodes, covariances in zip(heard, run.covariances(noise, heard), strict=True):
        factors = rng.standard_normal((len(nodes), 5, covariances.shape[1]))
        given.append(factors.swapaxes(1, 2) @ factors)
        for row, covariance, own in zip(nodes, covariances, given[-1], strict=True):
            sent = np.zeros((4, len(row), 4, 8))  # message, noise
            for step in range(4):
                for drawn in range(step + 1):
                    power = np.linalg.matrix_power(mixing, step - drawn)
                    sent[step, :, drawn] = power[row] * unit
            blocks = sent.reshape(-1, 4, 8).swapaxes(0, 1)
            assert covariance == pytest.approx(
                sum(block @ noise @ block.T for block in blocks), abs=1e-12
            )
            assert run.responses(row) == pytest.approx(blocks, abs=1e-14)
            expected += sum(block.T @ own @ block for block in blocks)
    assert run.used(given, heard) == pytest.approx(expected, abs=1e-10)


def test_what_messages_add_tells_the_same() -> None:
    """Row j of (W^l)_N is the sum of what those who are heard add at each step: nodes that are
    heard have the noise of one step in it, all others all of it."""
    mixing = oracles.metropolis(GRAPH)
    run, heard = observed.Run(mixing, np.ones(8), 4), np.array([0, 2, 5])
    turn, hidden = run.of_new(heard), np.setdiff1d(np.arange(8), heard)
    lags = np.concatenate([mixing_power[heard] for mixing_power in run.powers])
    new = np.linalg.solve(turn, lags).reshape(4, 3, 8)
    assert new[0] == pytest.approx(np.eye(8)[heard], abs=1e-14)
    reach = mixing[np.ix_(heard, hidden)]
    for lag in range(1, 4):
        assert new[lag][:, heard] == pytest.approx(0, abs=1e-14)
        assert new[lag][:, hidden] == pytest.approx(reach, abs=1e-14)
        reach = reach @ mixing[np.ix_(hidden, hidden)]


def test_later_changes_are_looked_at_too() -> None:
    """With noise that differs among nodes, all steps of a run are compared, not only the first."""
    problem = asked(3, observers=(views.pndp(nodes=[0]),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "WRITTEN", 0)
        (seen,) = asked(3, observers=problem.observers).seen
    noise = noise_of(3)
    unit = problem.unit
    told = seen.told(observed.covariances([seen], noise / np.multiply.outer(unit, unit))[0])
    blocks = seen.responses
    covariance = sum(b @ (noise / np.multiply.outer(unit, unit)) @ b.T for b in blocks)
    columns = [block[:, list(seen.victims)] for block in blocks]
    each = [np.einsum("mc,mc->c", c, np.linalg.solve(covariance, c)) for c in columns]
    assert told == pytest.approx(np.max(each, axis=0), rel=1e-9)


def test_what_all_of_them_use_is_the_sum() -> None:
    rng = np.random.default_rng(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "WRITTEN", 0)
        mixed = [*asked(3).normalized.observers, *asked(1).normalized.observers]
    factors = [rng.standard_normal((2, len(seen.signals))) for seen in mixed]
    expected = np.zeros((8, 8))
    for seen, factor in zip(mixed, factors, strict=True):
        for block in seen.responses:
            expected += block.T @ factor.T @ factor @ block
    assert observed.used_by(mixed, factors, size=8) == pytest.approx(expected, abs=1e-10)


@pytest.mark.usefixtures("by_lags")
def test_watching_some_gradients_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nearly all gradients left out at first: what is found and proved is what is with all."""
    monkeypatch.setattr(working_set, "FEW_PAIRS", 0)
    monkeypatch.setattr(working_set, "MOST", 1)
    monkeypatch.setattr(working_set, "NEAR", 0.99)
    problem = asked(3)
    watched = working_set.WorkingSet(problem, gradients=True)
    every = sum(len(seen.victims) for seen in problem.normalized.observers)
    assert 0 < len(watched.keys) <= every / 2
    answer = sweeps.search(problem, monitor=Monitor(gap=5e-3))
    assert answer.stop is Stop.SOLVED
    certificate = judge(
        problem,
        answer.noises[0].covariance,
        bound=FAMILY.bound(problem, answer.proof).value,  # type: ignore[index]
    )
    assert certificate.feasible
    assert certificate.gap <= 5e-3
    below, above = with_messages_written_out()
    assert certificate.lower_bound <= above
    assert below <= certificate.objective


@pytest.mark.usefixtures("by_lags")
def test_it_finds_what_is_found_with_messages_written_out() -> None:
    problem = asked(3)
    answer = sweeps.search(problem, monitor=Monitor(gap=5e-3))
    assert answer.stop is Stop.SOLVED
    (noise,) = answer.noises
    bound = FAMILY.bound(problem, answer.proof).value
    certificate = judge(problem, noise.covariance, bound=bound)
    assert certificate.feasible
    assert certificate.gap <= 5e-3
    proved = rigorous.judge(problem, noise.covariance)
    assert proved.sensitivity_squared <= 1
    below = FAMILY.rigorous_bound(problem, answer.proof)
    assert below.lower <= bound * (1 + 1e-9)
    assert below.lower == pytest.approx(bound, rel=1e-6)
    lower, upper = with_messages_written_out()
    assert bound <= upper
    assert lower <= certificate.objective
