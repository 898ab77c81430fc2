"""Directed mixing: weights, Perron vectors and what error means there."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify.program import Program
from noisedesign.design.backends import How, get_backend
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.directed import (
    build_digraph,
    check_directed,
    directed_mixing,
    perron_vector,
    push_sum_weights,
)
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from tests.support.grams import space_gram, space_time_gram

row_stochastic_mixing = partial(directed_mixing, weights="row-stochastic")
column_stochastic_mixing = partial(directed_mixing, weights="column-stochastic")

TRIANGLE = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
"""A directed triangle in which 0 also sends to 2."""

ROW = np.array([[1 / 2, 0, 1 / 2], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
COLUMN = np.array([[1 / 3, 0, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 1 / 2]])


def perron_by_trees(w: np.ndarray) -> np.ndarray:
    """Left Perron vector of a row stochastic W by the Markov chain tree theorem.

    pi_r is in proportion to the sum, over the spanning trees directed to r, of products of W.
    """
    n, sums = len(w), np.zeros(len(w))
    for root in range(n):
        others = [i for i in range(n) if i != root]
        for heads in itertools.product(range(n), repeat=len(others)):
            tree = nx.DiGraph()
            tree.add_nodes_from(range(n))
            tree.add_edges_from(zip(others, heads, strict=True))
            if nx.is_directed_acyclic_graph(tree):
                sums[root] += np.prod([w[i, j] for i, j in zip(others, heads, strict=True)])
    return np.asarray(sums / sums.sum())


# --- weights --------------------------------------------------------------------------------------


def test_weights_by_hand() -> None:
    np.testing.assert_allclose(row_stochastic_mixing(TRIANGLE), ROW, rtol=1e-15)
    np.testing.assert_allclose(column_stochastic_mixing(TRIANGLE), COLUMN, rtol=1e-15)


def test_rows_follow_the_order_of_the_nodes() -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from([2, 0, 1])
    graph.add_edges_from(TRIANGLE.edges, weight=7)
    order = [2, 0, 1]
    np.testing.assert_allclose(row_stochastic_mixing(graph), ROW[np.ix_(order, order)])
    np.testing.assert_allclose(column_stochastic_mixing(graph), COLUMN[np.ix_(order, order)])


def test_both_ways_on_a_regular_graph_is_doubly_stochastic() -> None:
    ring = nx.cycle_graph(5).to_directed()
    for w in (row_stochastic_mixing(ring), column_stochastic_mixing(ring)):
        np.testing.assert_allclose(w.sum(axis=0), 1, rtol=1e-15)
        np.testing.assert_allclose(w.sum(axis=1), 1, rtol=1e-15)


# --- Perron vectors -------------------------------------------------------------------------------


def test_doubly_stochastic_weights_by_hand() -> None:
    """Two cycles through one arc: by Sinkhorn w_02 = 1 - w_22 and so on, one number is free."""
    digraph = nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 1)])
    w = directed_mixing(digraph, weights="doubly-stochastic")
    np.testing.assert_allclose([w.sum(axis=0), w.sum(axis=1)], 1, atol=1e-14)
    linked = nx.to_numpy_array(digraph).T + np.eye(4)
    np.testing.assert_array_equal(w > 0, linked > 0)
    # D_1 A D_2 has products round a cycle that are those of A: w_00 w_12 w_21 / ... = 1.
    assert w[0, 0] * w[1, 1] * w[2, 2] == pytest.approx(w[1, 0] * w[2, 1] * w[0, 2], rel=1e-12)
    assert w[1, 1] * w[2, 2] * w[3, 3] == pytest.approx(w[2, 1] * w[3, 2] * w[1, 3], rel=1e-12)


def test_least_noise_of_a_digraph_by_name() -> None:
    digraph = build_digraph("erdos-renyi", nodes=8, p=0.3, seed=0)
    w = SpaceProblem.from_graph(digraph, weights="least-noise").mixing
    np.testing.assert_array_equal(w, directed_mixing(digraph, weights="least-noise"))
    plain = directed_mixing(digraph, weights="doubly-stochastic")
    norms = [float(np.linalg.svd(a - 1 / 8, compute_uv=False)[0]) for a in (w, plain)]
    assert norms[0] <= norms[1] * (1 + 1e-12)
    errors = [float(np.linalg.svd(a, compute_uv=False).sum()) ** 2 / 8 for a in (w, plain)]
    assert errors[0] < errors[1]  # a bound below the optimum, from equal multipliers
    with pytest.raises(InputError, match="weights"):
        directed_mixing(digraph, weights="metropolis-hastings")


def test_perron_vectors_by_hand() -> None:
    # pi_1 = pi_1 / 2 + pi_2 / 3 and pi_2 = pi_0 / 2 + pi_2 / 3.
    left = perron_vector(ROW, stochastic="row")
    np.testing.assert_allclose(left, np.array([4, 2, 3]) / 9, rtol=1e-14)
    right = perron_vector(COLUMN, stochastic="column")
    # y_1 = y_0 / 3 + y_1 / 2 gives y_1 = 2 y_0 / 3; y_0 = y_0 / 3 + y_2 / 2, y_2 = 4 y_0 / 3.
    np.testing.assert_allclose(right, np.array([3, 2, 4]) / 9, rtol=1e-14)


def test_a_cycle_without_self_weights_has_one_too() -> None:
    cycle = np.roll(np.eye(4), 1, axis=1)
    for stochastic in ("row", "column"):
        np.testing.assert_array_equal(perron_vector(cycle, stochastic=stochastic), 0.25)


def test_small_entries_are_accurate_relative_to_themselves() -> None:
    # pi is in proportion to (1/2, p); an eigenvector routine knows the second to 1e-16 absolute,
    # and 1 - (1 - p) is not p.
    p = 1e-13
    w = np.array([[1 - p, p], [0.5, 0.5]])
    found = perron_vector(w, stochastic="row")
    assert found[1] / found[0] == pytest.approx(2 * p, rel=1e-15, abs=0)
    found = perron_vector(w[::-1, ::-1], stochastic="row")
    assert found[0] / found[1] == pytest.approx(2 * p, rel=1e-15, abs=0)


@st.composite
def digraphs(draw: st.DrawFn) -> nx.DiGraph:
    """A directed cycle, which connects, and any further links."""
    n = draw(st.integers(1, 4))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    if n > 1:
        graph.add_edges_from((i, (i + 1) % n) for i in range(n))
        links = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
        graph.add_edges_from((i, j) for i, j in draw(st.lists(links, max_size=6)) if i != j)
    return graph


@settings(derandomize=True, deadline=None, max_examples=40)
@given(graph=digraphs())
def test_perron_vectors_are_sums_over_trees(graph: nx.DiGraph) -> None:
    row, column = row_stochastic_mixing(graph), column_stochastic_mixing(graph)
    check_directed(row, stochastic="row")
    check_directed(column, stochastic="column")
    np.testing.assert_allclose(
        perron_vector(row, stochastic="row"), perron_by_trees(row), rtol=1e-13
    )
    np.testing.assert_allclose(
        perron_vector(column, stochastic="column"), perron_by_trees(column.T), rtol=1e-13
    )


# --- error ----------------------------------------------------------------------------------------


def test_row_stochastic_models_agree_on_the_perron_mean() -> None:
    pi, horizon = perron_vector(ROW, stochastic="row"), 4
    # pi^T x moves by pi^T z alone: step s is in horizon - s + 1 of its values, 3 copies each.
    mean = ErrorMeasure(horizon=horizon, of="mean-model", average=pi)
    np.testing.assert_allclose(space_gram(ROW, error=mean), 30 * np.outer(pi, pi), rtol=1e-13)
    # The plain mean gets there only in the end, and so does every model.
    plain = space_gram(ROW, error=ErrorMeasure(horizon=1, of="mean-model"))
    assert np.abs(plain - 3 * np.outer(pi, pi)).max() > 0.1
    last = np.eye(80)[-1]
    for average in (pi, None):
        mean = ErrorMeasure(horizon=80, of="mean-model", average=average, step_weights=last)
        first = space_time_gram(ROW, error=mean)[:3, :3]
        np.testing.assert_allclose(first, 3 * np.outer(pi, pi), rtol=1e-12)
        apart = ErrorMeasure(horizon=80, of="consensus", average=average, step_weights=last)
        assert np.abs(space_time_gram(ROW, error=apart)[:3, :3]).max() < 1e-15


def test_push_sum_models_agree_on_the_plain_mean() -> None:
    horizon = 80
    y = push_sum_weights(COLUMN, horizon=horizon)
    np.testing.assert_allclose(y[0], COLUMN.sum(axis=1), rtol=1e-15)
    np.testing.assert_allclose(y[1], COLUMN @ COLUMN @ np.ones(3), rtol=1e-15)
    np.testing.assert_allclose(y[-1], np.array([3, 2, 4]) / 3, rtol=1e-12)
    last = np.eye(horizon)[-1]
    for sums, agree in ((y, True), (y[-1], True), (None, False)):
        objective = ErrorMeasure(
            horizon=horizon, of="consensus", step_weights=last, push_sum_weights=sums
        )
        block = space_time_gram(COLUMN, error=objective)[:3, :3]
        assert bool(np.abs(block).max() < 1e-12) is agree
    mean = ErrorMeasure(horizon=2, of="mean-model", push_sum_weights=y[:2])
    np.testing.assert_allclose(space_gram(COLUMN, error=mean), np.ones((3, 3)), rtol=1e-14)


def test_one_step_of_push_sum_by_hand() -> None:
    y = push_sum_weights(COLUMN, horizon=1)
    models = COLUMN / np.array([[5 / 6], [5 / 6], [4 / 3]])  # row sums of COLUMN
    found = space_gram(COLUMN, error=ErrorMeasure(horizon=1, push_sum_weights=y))
    np.testing.assert_allclose(found, models.T @ models, rtol=1e-14)


# --- design ---------------------------------------------------------------------------------------


def least_noise(gram: np.ndarray, budget: np.ndarray) -> float:
    """min tr(H X^-1) with diag(X) = budget, by a general minimiser over the other entries."""
    n = len(gram)
    upper = np.triu_indices(n, 1)

    def value(entries: np.ndarray) -> float:
        x = np.eye(n)
        x[upper] = entries
        x = np.maximum(x, x.T) + np.minimum(x, x.T) - np.eye(n)
        x *= np.sqrt(np.outer(budget, budget))
        if np.linalg.eigvalsh(x)[0] <= 1e-12:
            return np.inf
        return float(np.trace(gram @ np.linalg.inv(x)))

    found = scipy.optimize.minimize(
        value,
        np.zeros(len(upper[0])),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 5000},
    )
    return float(found.fun)


def gram_cases() -> list[np.ndarray]:
    pi = perron_vector(ROW, stochastic="row")
    y = push_sum_weights(COLUMN, horizon=5)
    return [
        space_gram(ROW, error=ErrorMeasure(horizon=1)),
        space_gram(ROW, error=ErrorMeasure(horizon=5, average=pi, momentum=0.5)),
        space_gram(COLUMN, error=ErrorMeasure(horizon=5, push_sum_weights=y)),
    ]


@pytest.mark.parametrize("gram", gram_cases(), ids=["one-step", "row", "push-sum"])
@pytest.mark.parametrize("backend", ["native", "clarabel"])
def test_designs_take_any_of_these_grams(gram: np.ndarray, backend: str) -> None:
    budget = np.array([1.0, 2.0, 0.5])
    program = Program(gram=gram, participation=single(3), budget=budget, axes="space")
    solver = get_backend(backend)
    monitor, formulation = Monitor(gap=1e-8, tolerance=1e-10), solver.check(FAMILY, program, None)
    answer = solver.answer(FAMILY, program, How(monitor, formulation))
    bound = FAMILY.bound(program, answer.proof).value
    found = [FAMILY.judge(program, noise, {}, bound=bound) for noise in answer.noises]
    judged = min(found, key=lambda certificate: certificate.objective)
    assert judged.feasible
    assert judged.gap < 1e-6
    assert judged.objective == pytest.approx(least_noise(gram, budget), rel=1e-7)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [row_stochastic_mixing, column_stochastic_mixing])
@pytest.mark.parametrize(
    ("graph", "got"),
    [
        (nx.path_graph(3), "undirected"),
        (nx.MultiDiGraph([(0, 1), (1, 0)]), "multigraph"),
        (nx.DiGraph(), "no nodes"),
        (nx.DiGraph([(0, 1), (1, 0), (1, 1)]), "self-loop at node 1"),
        (nx.DiGraph([(0, 1), (1, 2)]), "3 strongly connected components"),
        (np.eye(3), "array"),
    ],
)
def test_bad_graphs_are_named(build: Any, graph: Any, got: str) -> None:
    with pytest.raises(InputError, match=rf"^graph: .*{got}"):
        build(graph)


@pytest.mark.parametrize("function", [check_directed, perron_vector])
def test_bad_mixing_is_named(function: Any) -> None:
    for stochastic, other in (("row", COLUMN), ("column", ROW)):
        for bad in (other, -np.eye(2) + 2 * np.eye(2)[::-1], np.eye(2), ROW.astype(np.float32)):
            with pytest.raises(InputError, match=r"^mixing"):
                function(bad, stochastic=stochastic)
    with pytest.raises(InputError, match=r"^stochastic"):
        function(ROW, stochastic="doubly")


def test_a_node_that_keeps_nothing_is_named() -> None:
    with pytest.raises(InputError, match=r"self weight.* at node 1"):
        check_directed(np.array([[0.5, 0.5], [1.0, 0.0]]), stochastic="row")
    with pytest.raises(InputError, match=r"^mixing"):
        push_sum_weights(np.array([[0.0, 1.0], [1.0, 0.0]]), horizon=2)
    with pytest.raises(InputError, match=r"^horizon"):
        push_sum_weights(COLUMN, horizon=0)
