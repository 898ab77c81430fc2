"""Budgets of pairs of an observer and a node: their factors, by hops and as they are given."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.privacy import views as threats
from noisedesign.privacy.views import Observer
from noisedesign.problem.pair_budgets import factors_by_distance, told_pairs
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles
from tests.support.observer_designs import observer_program

PATH = oracles.metropolis(nx.path_graph(5))
ENDS = (threats.pndp(nodes=[0]), threats.pndp(nodes=[0, 4]))


def test_factors_follow_the_hops() -> None:
    ring = oracles.metropolis(nx.cycle_graph(6))
    observers = (threats.pndp(nodes=[0]), threats.tap(nodes=[3]), threats.ldp())
    found = factors_by_distance([9, 4.0, 2.0], mixing=ring, observers=observers, field="x")
    # Of node 0, that looks, and of nodes that are listened to, those of one hop.
    assert found[0].tolist() == [9, 9, 4, 2, 4, 9]
    assert found[1].tolist() == [2, 4, 9, 9, 9, 4]
    assert found[2].tolist() == [2] * 6
    pooled = factors_by_distance([9.0, 4.0], mixing=PATH, observers=ENDS, field="x")
    assert pooled.tolist() == [[9, 9, 4, 4, 4], [9, 9, 4, 9, 9]]


def test_nobody_unreachable_is_favoured() -> None:
    """From node 0 a message reaches node 1, and none comes back."""
    w = np.array([[1.0, 0.0], [0.5, 0.5]])
    observers = (threats.pndp(nodes=[0]), threats.pndp(nodes=[1]))
    found = factors_by_distance([5.0, 3.0], mixing=w, observers=observers, field="x")
    assert found.tolist() == [[5, 3], [5, 5]]


@pytest.mark.parametrize(
    "observer",
    [
        threats.pndp(nodes=[0]),
        threats.pndp(nodes=[0], own_noise="counted"),
        threats.pndp(nodes=[0, 5]),
        threats.secure_sum(nodes=[1]),
        threats.tap(nodes=[2]),
        threats.insider(nodes=[3]),
        threats.ldp(),
        threats.central(),
    ],
    ids=str,
)
@pytest.mark.parametrize(("steps", "rounds"), [(1, 1), (2, 1), (1, 2), (3, 1)])
def test_nothing_is_told_of_other_pairs(observer: Observer, steps: int, rounds: int) -> None:
    """Of a reader of a mean too: whoever the account says is told of is among the pairs."""
    w = oracles.metropolis(nx.path_graph(6))
    (told,) = told_pairs(w, [observer], hops=steps * rounds)
    problem = observer_program(
        mixing=w, horizon=steps, rounds=rounds, observers=(observer,), max_variance=9.0
    )
    (seen,) = problem.seen
    assert set(seen.victims) <= set(np.flatnonzero(told).tolist())
    assert not told[list(observer.coalition)].any()
    if observer.sees in ("all", "received"):
        assert set(seen.victims) == set(np.flatnonzero(told).tolist())


def test_the_budget_of_a_target_is_that_of_the_pair_told_most() -> None:
    factors = np.array([[9.0, 2.0, 5.0, 7.0, 8.0], [9.0, 3.0, 4.0, 1.5, 9.0]])
    of: dict[str, Any] = {"mixing": PATH, "max_variance": 9.0, "budget": [1, 1, 1, 4.0, 1]}
    problem = SpaceProblem(observers=ENDS, pair_factors=factors, **of)
    # In one step node 0 hears of node 1 alone, and nodes 0 and 4 of 1 and 3.
    assert problem.sensitivity == np.sqrt(1.5 * 4)
    assert problem.budget_range[0].tolist() == [1, 2, 1, 6, 1]
    assert problem.budget_range[1].tolist() == [1, 3, 1, 6, 1]


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (2.0, "shape"),
        (np.ones((1, 5)), r"shape \(2, 5\)"),
        (np.full((2, 5), 0.999), "factors >= 1"),
        (np.array([[2.0] * 5, [3.0, 2.0, 0.999, 5.0, 1.0]]), "got 0.999 for node 2 before"),
        (np.full((2, 5), np.inf), "finite"),
        (np.full((2, 5), np.nan), "finite"),
        (np.full((2, 5), 1e300), "values between"),
        ("far", "pair_factors"),
    ],
)
def test_other_factors_are_refused(factors: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        SpaceProblem(mixing=PATH, max_variance=9.0, observers=ENDS, pair_factors=factors)
    assert caught.value.field == "pair_factors"


def test_factors_without_observers_are_refused() -> None:
    with pytest.raises(InputError, match="observers beside factors") as caught:
        SpaceProblem(mixing=PATH, pair_factors=np.ones((1, 5)))
    assert caught.value.field == "pair_factors"
