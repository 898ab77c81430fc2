"""Random mixing: every outcome of tiny graphs is enumerated, with its probability."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.system import random_mixing
from noisedesign.system.random_mixing import (
    EdgeDropout,
    NodeDropout,
    RandomMatchings,
    RandomMixing,
    maximal_matchings,
    pairwise_gossip,
)
from noisedesign.system.workloads import ERRORS, ErrorMeasure
from tests.support import oracles
from tests.support.grams import space_gram, space_time_gram, time_gram

Outcome = tuple[float, np.ndarray]
HOUSE = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)])
"""A square with a roof: triangles, edges that share a node, edges that share none."""
CLOSE = {"rtol": 1e-13, "atol": 1e-14}


def without(w: np.ndarray, edges: list[tuple[int, int]]) -> np.ndarray:
    """W once the weight of some edges went back to both ends."""
    result = w.copy()
    for i, j in edges:
        result[i, i] += w[i, j]
        result[j, j] += w[i, j]
        result[i, j] = result[j, i] = 0
    return result


def linked(w: np.ndarray) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(w)) for j in range(i) if w[i, j] > 0]


def node_outcomes(w: np.ndarray, p: np.ndarray) -> Iterator[Outcome]:
    for out in itertools.product((False, True), repeat=len(w)):
        chance = float(np.prod([q if o else 1 - q for o, q in zip(out, p, strict=True)]))
        yield chance, without(w, [(i, j) for i, j in linked(w) if out[i] or out[j]])


def edge_outcomes(w: np.ndarray, p: float) -> Iterator[Outcome]:
    edges = linked(w)
    for down in itertools.product((False, True), repeat=len(edges)):
        failed = [e for e, d in zip(edges, down, strict=True) if d]
        yield p ** len(failed) * (1 - p) ** (len(edges) - len(failed)), without(w, failed)


def averaging(n: int, pairs: Any) -> np.ndarray:
    w = np.eye(n)
    for i, j in pairs:
        across = np.eye(n)[i] - np.eye(n)[j]
        w -= np.outer(across, across) / 2
    return w


def subsets_that_are_maximal_matchings(graph: nx.Graph) -> list[list[tuple[int, int]]]:
    """Every set of edges is tried."""
    edges = list(graph.edges)

    def touches(chosen: Any, e: tuple[int, int]) -> bool:
        return any(set(e) & set(f) for f in chosen)

    found = []
    for size in range(len(edges) + 1):
        for chosen in itertools.combinations(edges, size):
            apart = all(not set(e) & set(f) for e, f in itertools.combinations(chosen, 2))
            if apart and all(touches(chosen, e) for e in edges):
                found.append(list(chosen))
    return found


def models() -> list[tuple[str, RandomMixing, list[Outcome]]]:
    w = oracles.metropolis(HOUSE)
    uneven = np.array([0.1, 0.0, 0.5, 0.3, 0.9])
    edges = list(HOUSE.edges)
    maximal = subsets_that_are_maximal_matchings(HOUSE)
    two = (((0, 1), (2, 3)), ((4, 0), (1, 2)), ())
    chances = np.array([0.5, 0.2, 0.3])
    return [
        ("nodes", NodeDropout(mixing=w, probability=0.3), list(node_outcomes(w, np.full(5, 0.3)))),
        ("uneven", NodeDropout(mixing=w, probability=uneven), list(node_outcomes(w, uneven))),
        ("edges", EdgeDropout(mixing=w, probability=0.4), list(edge_outcomes(w, 0.4))),
        ("pairs", pairwise_gossip(HOUSE), [(1 / 6, averaging(5, [edge])) for edge in edges]),
        (
            "maximal",
            maximal_matchings(HOUSE),
            [(1 / len(maximal), averaging(5, m)) for m in maximal],
        ),
        (
            "given",
            RandomMatchings(nodes=5, matchings=two, probabilities=chances),
            [(p, averaging(5, m)) for p, m in zip(chances, two, strict=True)],
        ),
    ]


MODELS = models()
NAMES = [name for name, _, _ in MODELS]


@pytest.mark.parametrize(("model", "outcomes"), [m[1:] for m in MODELS], ids=NAMES)
def test_expectations_equal_all_outcomes(model: RandomMixing, outcomes: list[Outcome]) -> None:
    assert sum(p for p, _ in outcomes) == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(model.mean, sum(p * w for p, w in outcomes), **CLOSE)
    basis = np.eye(5)
    for i, j in itertools.combinations_with_replacement(range(5), 2):
        gram = np.outer(basis[i], basis[j]) + np.outer(basis[j], basis[i])
        expected = sum(p * w.T @ gram @ w for p, w in outcomes)
        np.testing.assert_allclose(model.expected(gram), expected, **CLOSE)


@pytest.mark.parametrize(("model", "outcomes"), [m[1:] for m in MODELS], ids=NAMES)
def test_draws_are_the_outcomes_and_as_likely(model: RandomMixing, outcomes: list[Outcome]) -> None:
    rng, draws = np.random.default_rng(3), 4000
    likely: dict[bytes, float] = {}
    for p, w in outcomes:
        key = (np.round(w, 9) + 0.0).tobytes()
        likely[key] = likely.get(key, 0.0) + p
    drawn = np.array([model.sample(rng) for _ in range(draws)])
    np.testing.assert_array_equal(drawn, drawn.swapaxes(1, 2))
    np.testing.assert_allclose(drawn.sum(axis=2), 1, rtol=0, atol=1e-14)
    counted = Counter(w.tobytes() for w in np.round(drawn, 9) + 0.0)
    assert set(counted) <= set(likely)
    for key, p in likely.items():
        # Six standard deviations of a binomial, and one draw for the rarest.
        assert abs(counted[key] - draws * p) <= 6 * np.sqrt(draws * p * (1 - p)) + 1


def test_one_pair_by_hand() -> None:
    # Two nodes that average with probability 1/2: E[W^T W] = (I + J/2) / 2.
    w = np.full((2, 2), 0.5)
    expected = [[0.75, 0.25], [0.25, 0.75]]
    model = EdgeDropout(mixing=w, probability=0.5)
    np.testing.assert_allclose(model.expected(np.eye(2)), expected, **CLOSE)
    # Both are there with probability 1/4.
    model_of_nodes = NodeDropout(mixing=w, probability=0.5)
    np.testing.assert_allclose(
        model_of_nodes.expected(np.eye(2)), np.array([[7, 1], [1, 7]]) / 8, **CLOSE
    )


@st.composite
def dropouts(draw: st.DrawFn) -> tuple[RandomMixing, list[Outcome]]:
    """Symmetric doubly stochastic W of up to four nodes, some weights zero, any probabilities."""
    n = draw(st.integers(1, 4))
    weights = np.diag(np.full(n - 1, 0.25), 1)  # a path connects
    for i, j in itertools.combinations(range(n), 2):
        if j > i + 1:
            weights[i, j] = draw(st.sampled_from([0.0, 0.1, 0.2]))
    weights = weights + weights.T
    w = weights + np.diag(1 - weights.sum(axis=1))
    p = st.sampled_from([0.0, 0.25, 0.9])
    if draw(st.booleans()):
        chances = np.array([draw(p) for _ in range(n)])
        return NodeDropout(mixing=w, probability=chances), list(node_outcomes(w, chances))
    chance = draw(p)
    return EdgeDropout(mixing=w, probability=chance), list(edge_outcomes(w, chance))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(case=dropouts(), seed=st.integers(0, 99))
def test_any_small_dropout(case: tuple[RandomMixing, list[Outcome]], seed: int) -> None:
    model, outcomes = case
    gram = np.random.default_rng(seed).normal(size=model.mean.shape)
    gram = gram + gram.T
    expected = sum(p * w.T @ gram @ w for p, w in outcomes)
    np.testing.assert_allclose(model.expected(gram), expected, rtol=1e-12, atol=1e-13)


# --- over a horizon -------------------------------------------------------------------------------


def literal_gram(draws: tuple[np.ndarray, ...], objective: ErrorMeasure) -> np.ndarray:
    """H, nT x nT, of one sequence of mixing matrices, from a run of every unit of noise."""
    n, horizon = len(draws[0]), len(draws)
    noise = np.eye(n * horizon).reshape(horizon, n, n * horizon)
    total = np.zeros((n * horizon, n * horizon))
    felt = [0.0] if objective.curvature is None else objective.curvature
    for curvature in felt:
        state = velocity = np.zeros((n, n * horizon))
        for t, w in enumerate(draws):
            velocity = objective.momentum * velocity + noise[t] - curvature * state
            state = w @ (state + objective.learning_rates[t] * velocity)
            mean = state.mean(axis=0)
            shown = {"mean-model": np.tile(mean, (n, 1)), "consensus": state - mean}
            shown["loss-of-mean"] = shown["mean-model"]
            error = shown.get(objective.of, state)
            if "loss" in objective.of:
                error = np.sqrt(curvature / 2 / n) * error
            if t == horizon - 1 or objective.of in ("all-iterates", "mean-model", "consensus"):
                total += error.T @ error
    return total


SMALL = oracles.metropolis(nx.path_graph(3))


@pytest.mark.parametrize("of", ERRORS)
@pytest.mark.parametrize(
    ("model", "outcomes"),
    [
        (NodeDropout(mixing=SMALL, probability=0.3), list(node_outcomes(SMALL, np.full(3, 0.3)))),
        (EdgeDropout(mixing=SMALL, probability=0.4), list(edge_outcomes(SMALL, 0.4))),
        (
            pairwise_gossip(nx.path_graph(3)),
            [(0.5, averaging(3, [(0, 1)])), (0.5, averaging(3, [(1, 2)]))],
        ),
    ],
    ids=["nodes", "edges", "pairs"],
)
def test_every_shape_equals_all_sequences(
    model: RandomMixing, outcomes: list[Outcome], of: str
) -> None:
    how: dict[str, Any] = {"momentum": 0.5}
    if "loss" in of:
        how = {"curvature": [0.2, 0.9]}
    objective = ErrorMeasure(horizon=3, of=of, learning_rates=[1.0, 0.5, 2.0], **how)
    full = sum(
        np.prod([p for p, _ in sequence]) * literal_gram(tuple(w for _, w in sequence), objective)
        for sequence in itertools.product(outcomes, repeat=3)
    )
    np.testing.assert_allclose(space_time_gram(model, error=objective), full, atol=1e-12)
    blocks = np.asarray(full).reshape(3, 3, 3, 3)
    np.testing.assert_allclose(
        space_gram(model, error=objective), np.einsum("susv->uv", blocks), atol=1e-12
    )
    np.testing.assert_allclose(
        time_gram(model, error=objective), np.einsum("surv,uv->sr", blocks, np.eye(3)), atol=1e-12
    )


def test_nobody_out_is_the_fixed_mixing() -> None:
    w = oracles.metropolis(HOUSE)
    objective = ErrorMeasure(horizon=5, of="consensus", momentum=0.3)
    for model in (NodeDropout(mixing=w, probability=0.0), EdgeDropout(mixing=w, probability=0.0)):
        np.testing.assert_array_equal(model.sample(np.random.default_rng(0)) > 0, w > 0)
        for gram in (space_gram, time_gram):
            np.testing.assert_allclose(
                gram(model, error=objective), gram(w, error=objective), atol=1e-13
            )


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [NodeDropout, EdgeDropout])
@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_probabilities_are_checked(model: Any, p: float) -> None:
    with pytest.raises(InputError, match=r"^probability"):
        model(mixing=SMALL, probability=p)


@pytest.mark.parametrize("model", [NodeDropout, EdgeDropout])
def test_mixing_is_checked(model: Any) -> None:
    cycle = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])  # doubly stochastic, one way
    for bad in (cycle, np.eye(3), SMALL.astype(np.float32)):
        with pytest.raises(InputError, match=r"^mixing"):
            model(mixing=bad, probability=0.1)


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"matchings": ()}, "matchings"),
        ({"matchings": (((0, 1), (1, 2)),)}, "matchings"),
        ({"matchings": (((0, 3),), ((1, 2),))}, "matchings"),
        ({"matchings": (((0, 0),),)}, "matchings"),
        ({"matchings": (((0, 1, 2),),)}, "matchings"),
        ({"matchings": (((0, 1),),)}, "matchings"),  # node 2 never meets anyone
        ({"probabilities": [1.0, 0.0]}, "matchings"),  # nor here
        ({"probabilities": [0.5, 0.6]}, "probabilities"),
        ({"probabilities": [1.5, -0.5]}, "probabilities"),
        ({"probabilities": [1.0]}, "probabilities"),
        ({"nodes": 0}, "nodes"),
    ],
)
def test_bad_matchings_are_named(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        RandomMatchings(**{"nodes": 3, "matchings": (((0, 1),), ((1, 2),)), **how})
    assert caught.value.field == field


def test_other_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    model = EdgeDropout(mixing=SMALL, probability=0.1)
    with pytest.raises(InputError, match=r"^rng"):
        model.sample(7)  # type: ignore[arg-type]
    for bad in (np.eye(2), np.triu(np.ones((3, 3)))):
        with pytest.raises(InputError, match=r"^gram"):
            model.expected(bad)
    with pytest.raises(InputError, match=r"^graph"):
        pairwise_gossip(nx.path_graph(1))
    with pytest.raises(InputError, match=r"^graph"):
        pairwise_gossip(nx.Graph([(0, 1), (2, 3)]))
    monkeypatch.setattr(random_mixing, "MAX_MATCHINGS", 2)
    with pytest.raises(InputError, match=r"pairwise_gossip"):
        maximal_matchings(HOUSE)
