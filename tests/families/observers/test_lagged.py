"""Observers of many steps by what repeats: against their messages written out."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.observers import lagged, native, program as programs, rigorous
from noisedesign.families.observers.bound import judge
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.program import ObserverProblem
from noisedesign.privacy import views
from tests.support import oracles

GRAPH = nx.convert_node_labels_to_integers(nx.gnp_random_graph(8, 0.35, seed=5))


def asked(horizon: int = 3, **more: Any) -> ObserverProblem:
    base: dict[str, Any] = {
        "mixing": oracles.metropolis(GRAPH),
        "horizon": horizon,
        "max_variance": 10.0,
        "budget": np.linspace(0.5, 2.0, 8),
        "observers": (*(views.pndp(nodes=[node]) for node in GRAPH), views.pndp(nodes=[0, 5])),
    }
    return ObserverProblem(**base | more)


def noise_of(seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((8, 8))
    return np.asarray(root @ root.T / 8 + 0.2 * np.eye(8))


@pytest.fixture
def by_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "WRITTEN", 0)


@pytest.mark.usefixtures("by_lags")
@pytest.mark.parametrize("own_noise", ["seeds", "counted"])
@pytest.mark.parametrize("horizon", [2, 5])
def test_it_tells_what_the_account_says(horizon: int, own_noise: str) -> None:
    observers = tuple(views.pndp(nodes=[node], own_noise=own_noise) for node in GRAPH)
    problem = asked(horizon, observers=observers)
    assert all(seen.lags is not None for seen in problem.seen)
    for seed in range(2):
        noise = noise_of(seed)
        found, whose = problem.worst(noise)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(programs, "WRITTEN", 30)
            written = asked(horizon, observers=observers)
            assert all(seen.lags is None for seen in written.seen)
            assert found == pytest.approx(written.worst(noise)[0], rel=1e-9)
            assert whose == written.worst(noise)[1]


def test_covariances_and_what_multipliers_use_are_those_of_all_messages() -> None:
    rng, heard = np.random.default_rng(2), np.arange(8) < 3
    lags = lagged.lags_of(oracles.metropolis(GRAPH), heard, 4)
    blocks, noise = lagged.unrolled(lags), noise_of()
    many = np.array([lags, 2 * lags])
    whole = sum(block @ noise @ block.T for block in blocks)
    found = lagged.covariances(many, noise)
    assert found[0] == pytest.approx(whole, abs=1e-12)
    assert found[1] == pytest.approx(4 * whole, abs=1e-12)
    factor = rng.standard_normal((5, 12))
    n = factor.T @ factor
    expected = sum(block.T @ n @ block for block in blocks)
    assert lagged.used(many, np.array([n, n])) == pytest.approx(5 * expected, abs=1e-10)


def test_later_changes_are_looked_at_too() -> None:
    """With noise that differs among nodes, all steps of a run are compared, not only the first."""
    problem = asked(3, observers=(views.pndp(nodes=[0]),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "WRITTEN", 0)
        (seen,) = asked(3, observers=problem.observers).seen
    noise = noise_of(3)
    unit = problem.unit
    told = seen.told(noise / np.multiply.outer(unit, unit))
    blocks = seen.responses
    covariance = sum(b @ (noise / np.multiply.outer(unit, unit)) @ b.T for b in blocks)
    columns = [block[:, list(seen.victims)] for block in blocks]
    each = [np.einsum("mc,mc->c", c, np.linalg.solve(covariance, c)) for c in columns]
    assert told == pytest.approx(np.max(each, axis=0), rel=1e-9)


@pytest.mark.usefixtures("by_lags")
def test_it_finds_what_is_found_with_messages_written_out() -> None:
    problem = asked(3)
    answer = native.search(problem, monitor=Monitor(gap=5e-3))
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "WRITTEN", 30)
        written = asked(3)
        other = FAMILY.solve(written, monitor=Monitor(gap=1e-4))
        optimum = judge(written, other.noises[0].covariance, bound=0.0).objective  # type: ignore[index]
        assert bound <= optimum
        assert FAMILY.bound(written, other.proof).value <= certificate.objective
