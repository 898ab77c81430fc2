"""A time limit: a little more than it is left to what proves the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.families.disjoint import family as disjoint

LIMIT = 1.0
PAST = 2.0
"""CPU seconds beyond a limit of up to twenty seconds."""


def tree(nodes: int) -> Any:
    """A graph without symmetry."""
    return nd.mixing_matrix(nx.random_labeled_tree(nodes, seed=5))


def in_space(kind: str, nodes: int, **words: Any) -> nd.SpaceProblem:
    structure = nd.SpaceStructure(kind=kind, **words)
    return nd.SpaceProblem(mixing=tree(nodes), structure=structure, max_variance=None)


def in_time(kind: str, horizon: int, scheme: Any = None, **words: Any) -> nd.TimeProblem:
    rows = np.tril(np.random.default_rng(1).standard_normal((horizon, horizon)))
    gram = rows.T @ rows + np.eye(horizon)
    return nd.TimeProblem.from_gram(
        gram=gram,
        participation=scheme or nd.participation.FixedEpoch(epochs=4, separation=horizon // 4),
        structure=nd.TimeStructure(kind=kind, **words),
    )


def sums(kind: str, horizon: int, **words: Any) -> nd.TimeProblem:
    return nd.TimeProblem.prefix(
        participation=nd.participation.FixedEpoch(epochs=4, separation=horizon // 4),
        structure=nd.TimeStructure(kind=kind, **words),
    )


def in_both(joint: str, nodes: int, horizon: int) -> nd.SpaceTimeProblem:
    lazy = (tree(nodes) + np.eye(nodes)) / 2
    scheme = nd.participation.FixedEpoch(epochs=4, separation=horizon // 4)
    return nd.SpaceTimeProblem(mixing=lazy, participation=scheme, joint=joint)


def at_random() -> nd.TimeProblem:
    return nd.TimeProblem.prefix(
        participation=nd.participation.BallsInBins(epochs=5, separation=188),
        privacy=nd.PrivacyTarget(epsilon=3.0, delta=1e-6, clip=0.5),
    )


LARGE: dict[tuple[str, str], Callable[[], Any]] = {
    ("space", "dense"): lambda: in_space("dense", 600),
    ("space", "edge-local"): lambda: in_space("edge-local", 300),
    ("space", "hops"): lambda: in_space("hops", 200, hops=2),
    ("space", "neighbourhood"): lambda: in_space("neighbourhood", 200),
    ("space", "clusters"): lambda: in_space(
        "clusters", 400, clusters=tuple(i // 100 for i in range(400))
    ),
    ("space", "decor"): lambda: in_space("decor", 500),
    ("space", "independent"): lambda: in_space("independent", 1000),
    ("space", "polynomial"): lambda: in_space("polynomial", 1500),
    ("space", "pairwise"): lambda: in_space("pairwise", 1500),
    ("space", "observers"): lambda: nd.SpaceProblem(
        mixing=tree(60),
        max_variance=50.0,
        observers=tuple(nd.observers.pndp(nodes=[i]) for i in range(60)),
    ),
    ("time", "dense"): lambda: in_time("dense", 400),
    ("time", "overlapping"): lambda: in_time(
        "dense", 40, nd.participation.MinSeparation(horizon=40, separation=8, max_participations=4)
    ),
    ("time", "nonnegative"): at_random,
    ("time", "banded"): lambda: sums("banded", 600, bands=16),
    ("time", "toeplitz"): lambda: sums("toeplitz", 1200),
    ("time", "banded-inverse"): lambda: sums("banded-inverse", 800, bands=16),
    ("time", "blt"): lambda: sums("blt", 1200, buffers=6),
    ("space-time", "kronecker"): lambda: in_both("kronecker", 150, 120),
    ("space-time", "modal"): lambda: in_both("modal", 60, 60),
    ("space-time", "full"): lambda: in_both("full", 15, 16),
}


def past_limit(problem: Any) -> float:
    solve = nd.solve  # what it imports has no part in the time
    started = time.process_time()
    solve(problem, time_limit=LIMIT)
    return time.process_time() - started - LIMIT


def test_a_limit_holds_at_once() -> None:
    assert past_limit(LARGE["time", "overlapping"]()) < PAST


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(LARGE), ids="/".join)
def test_a_limit_holds_in_every_family(key: tuple[str, str]) -> None:
    assert past_limit(LARGE[key]()) < PAST


SMALL: dict[tuple[str, str], Callable[[], Any]] = {
    ("space", "dense"): lambda: in_space("dense", 8),
    ("space", "edge-local"): lambda: in_space("edge-local", 6),
    ("space", "hops"): lambda: in_space("hops", 6, hops=2),
    ("space", "neighbourhood"): lambda: in_space("neighbourhood", 6),
    ("space", "clusters"): lambda: in_space("clusters", 6, clusters=(0, 0, 0, 1, 1, 1)),
    ("space", "decor"): lambda: in_space("decor", 6),
    ("space", "independent"): lambda: in_space("independent", 6),
    ("space", "polynomial"): lambda: in_space("polynomial", 6),
    ("space", "pairwise"): lambda: in_space("pairwise", 6),
    ("space", "observers"): lambda: nd.SpaceProblem(
        mixing=tree(4),
        max_variance=50.0,
        observers=tuple(nd.observers.pndp(nodes=[i]) for i in range(4)),
    ),
    ("time", "dense"): lambda: in_time("dense", 8),
    ("time", "overlapping"): lambda: in_time(
        "dense", 6, nd.participation.MinSeparation(horizon=6, separation=2, max_participations=2)
    ),
    ("time", "nonnegative"): lambda: nd.TimeProblem.prefix(
        participation=nd.participation.BallsInBins(epochs=2, separation=2),
        privacy=nd.PrivacyTarget(epsilon=3.0, delta=1e-6, clip=0.5),
    ),
    ("time", "banded"): lambda: sums("banded", 8, bands=2),
    ("time", "toeplitz"): lambda: sums("toeplitz", 8),
    ("time", "banded-inverse"): lambda: sums("banded-inverse", 8, bands=2),
    ("time", "blt"): lambda: sums("blt", 8, buffers=2),
    ("space-time", "kronecker"): lambda: in_both("kronecker", 4, 8),
    ("space-time", "modal"): lambda: in_both("modal", 4, 8),
    ("space-time", "full"): lambda: in_both("full", 3, 4),
}


@pytest.mark.slow
def test_every_family_says_what_it_does_from_the_start_to_the_end() -> None:
    assert SMALL.keys() == LARGE.keys()
    for key, problem in SMALL.items():
        seen: list[Any] = []
        solution = nd.solve(problem(), progress=seen.append)
        assert solution.feasible, key
        doing = [bounds.doing for bounds in seen]
        assert (doing[0], doing[-1]) == ("searching", "certified"), key
        assert "certifying it" in doing, key
        assert "" in doing, key  # bounds of an iteration
        seconds = [bounds.seconds for bounds in seen]
        assert seconds == sorted(seconds), key
        assert solution.design is not None
        told = [bounds for bounds in seen if not bounds.doing]
        assert tuple(told) == solution.design.provenance.history, key


def test_a_limit_that_no_answer_can_keep_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine on which a product takes a minute."""
    monkeypatch.setattr(disjoint, "seconds_of_product", lambda size: 60.0)
    problem = in_space("dense", 30)
    found = nd.solve(problem, time_limit=100.0)
    assert (found.status, found.design, found.evaluations) == ("time-limit", None, 0)
    assert f"about {60 * disjoint.PRODUCTS:.0f} seconds here. Allow more time." in found.remedy
    assert nd.solve(problem).status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "limit"), [(3500, 1.0), (1500, 10.0), (2000, 30.0)])
def test_limits_of_large_dense_problems(nodes: int, limit: float) -> None:
    """Without an answer where it would come too late; with one that is feasible else."""
    problem = in_space("dense", nodes)
    started = time.process_time()
    found = nd.solve(problem, time_limit=limit)
    assert time.process_time() - started <= limit + max(PAST, limit / 10)
    assert found.status == "time-limit" or nodes < 3500  # a quick processor is done before
    assert (found.design is None) == (nodes == 3500)
    assert found.feasible == (nodes < 3500)
