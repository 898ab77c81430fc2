"""Solves in blocks: the same answers as without, from smaller decompositions, and none too sure."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign import CheckpointFile
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import Program
from noisedesign.design.backends import Answer
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import diagonal, square_roots, symmetry
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import single
from tests.support import oracles
from tests.support.array_devices import NEEDS_NUMPY_2, STRICT, strict_on_host
from tests.support.symmetric_cases import Array, make_eager, program, random_gram, spatial, workload

GAP = 1e-9


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all eigendecompositions from now on."""
    seen: list[int] = []
    original = square_roots.eigh

    def noted(a: Array) -> tuple[Array, Array]:
        seen.append(len(a))
        return original(a)

    monkeypatch.setattr(square_roots, "eigh", noted)
    return seen


def answer_of(whole: Program, gap: float = GAP) -> Answer:
    return diagonal.solve(whole, monitor=Monitor(gap=gap))


def plain(whole: Program, monkeypatch: pytest.MonkeyPatch, gap: float = GAP) -> Answer:
    """The answer without symmetries."""
    with monkeypatch.context() as patch:
        patch.setattr(diagonal, "SYMMETRY_FROM", np.inf)
        return answer_of(whole, gap)


def multipliers(answer: Answer) -> Array:
    assert answer.dual is not None
    return np.asarray(answer.dual.blocks[:, 0, 0])


def objective(whole: Program, answer: Answer) -> float:
    """tr(H X^-1) of X with its rows rescaled to unit budgets."""
    assert answer.gram is not None
    root = np.sqrt(np.diagonal(answer.gram))
    return float(np.sum(whole.gram * np.linalg.inv(answer.gram / root / root[:, None])))


# --- the same answers from less work --------------------------------------------------------------

REGULAR = {
    "path": (nx.path_graph(10), [5, 5]),
    "grid": (nx.grid_2d_graph(3, 7), [3, 4, 6, 8]),
    "lollipop": (nx.lollipop_graph(6, 3), [1, 1, 1, 6]),
    "clique-bridge": (nx.barbell_graph(6, 1), [1, 1, 1, 1, 1, 1, 3, 4]),
    "bipartite": (nx.complete_bipartite_graph(3, 5), [1, 1, 2, 4]),
    "tree": (nx.balanced_tree(3, 2), [5, 8]),
}
"""Graphs whose W is nonsingular, and the sizes of their blocks: those of a grid of mirrors of 3 and
7 are (2 + 1) (4 + 3)."""


@pytest.mark.parametrize("name", REGULAR)
def test_same_answers_from_smaller_decompositions(
    name: str, eager: None, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, blocks = REGULAR[name]
    whole = spatial(graph)
    expected = plain(whole, monkeypatch)
    assert sizes == [len(graph)] * expected.evaluations
    sizes.clear()
    answer = answer_of(whole)
    assert answer.stop is Stop.SOLVED
    assert answer.evaluations == expected.evaluations
    assert sorted(sizes) == sorted(blocks * answer.evaluations)
    v, w = multipliers(answer), multipliers(expected)
    np.testing.assert_allclose(v / v.sum(), w / w.sum(), rtol=1e-7)
    assert answer.gram is not None
    assert expected.gram is not None
    scale = np.diagonal(expected.gram).mean() / np.diagonal(answer.gram).mean()
    np.testing.assert_allclose(scale * answer.gram, expected.gram, rtol=1e-6, atol=1e-7)
    lower, upper = lower_bound(whole, answer.dual), objective(whole, answer)
    assert upper / lower - 1 <= GAP
    assert oracles.diagonal_interval(np.asarray(whole.gram)).meets(lower, upper)


@pytest.mark.parametrize("leaves", [2, 5, 100])
def test_a_star_by_one_number(leaves: int, eager: None, sizes: list[int]) -> None:
    """With 1/n on edges, n = leaves + 1, W D^1/2 at v = (s, 1, ..., 1) has the singular value
    1 - 1/n leaves - 1 times, and those of a 2 x 2 block. The best s is 0: the hub has slack."""
    whole = spatial(nx.star_graph(leaves))
    n = leaves + 1
    w = np.array([[1 / n, np.sqrt(leaves) / n], [np.sqrt(leaves) / n, 1 - 1 / n]])

    def bound(s: float) -> float:
        trace = np.linalg.norm(w * np.sqrt([s, 1]), "nuc") + (leaves - 1) * (1 - 1 / n)
        return float(trace**2 / (s + leaves))

    best = bound(0.0)
    assert best >= max(bound(s) for s in np.geomspace(1e-9, 1e6, 301))
    answer = answer_of(whole)
    assert answer.stop is Stop.SOLVED
    assert lower_bound(whole, answer.dual) == pytest.approx(best, rel=1e-6)
    assert lower_bound(whole, answer.dual) >= best * (1 - GAP)
    assert sum(sizes) == n * answer.evaluations
    assert max(sizes) <= 2 + leaves / 2


TRANSITIVE = {
    "ring": nx.cycle_graph(11),
    "torus": nx.grid_2d_graph(3, 5, periodic=True),
    "cube": nx.hypercube_graph(4),
    "circulant": nx.circulant_graph(13, [1, 4]),
    "one": nx.empty_graph(1),
}


@pytest.mark.parametrize("name", TRANSITIVE)
def test_nodes_that_look_alike_take_one_evaluation(
    name: str, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = oracles.metropolis(TRANSITIVE[name])
    whole = program(w.T @ w, w)
    seen: list[Any] = []
    monitor = Monitor(gap=GAP, progress=seen.append)
    answer = diagonal.solve(whole, monitor=monitor)
    assert (answer.stop, answer.evaluations) == (Stop.SOLVED, 1)
    optimum = oracles.vertex_transitive_optimum(w)
    assert seen[-1].lower == pytest.approx(optimum, rel=1e-10)
    assert seen[-1].upper == pytest.approx(optimum, rel=1e-9)
    assert lower_bound(whole, answer.dual) == pytest.approx(optimum, rel=1e-12)
    assert objective(whole, answer) == pytest.approx(optimum, rel=1e-9)
    v, expected = multipliers(answer), multipliers(plain(whole, monkeypatch))
    np.testing.assert_allclose(v / v.sum(), expected / expected.sum())


def test_rounding_of_small_eigenvalues_is_left_to_the_factor(eager: None, sizes: list[int]) -> None:
    """A ring whose W has an eigenvalue of 1e-7: H has one of 1e-14, known to a per cent or so."""
    n = 9
    a = (1 - 1e-7) / (2 - 2 * np.cos(2 * np.pi * 4 / 9))
    ring = nx.to_numpy_array(nx.cycle_graph(n))
    w = (1 - 2 * a) * np.eye(n) + a * ring
    whole = program(w.T @ w, w)
    assert np.abs(np.linalg.eigvalsh(w)).min() == pytest.approx(1e-7, rel=1e-6)
    answer = answer_of(whole, gap=1e-10)
    assert sizes
    assert answer.stop is Stop.SOLVED
    optimum = oracles.vertex_transitive_optimum(w)
    assert lower_bound(whole, answer.dual) == pytest.approx(optimum, rel=1e-12)


def test_budgets_are_part_of_the_symmetry(eager: None, sizes: list[int]) -> None:
    w = oracles.metropolis(nx.path_graph(8))
    even = np.array([1.0, 2, 3, 4, 4, 3, 2, 1])
    for budget, blocks in ((even, [4, 4]), (np.arange(1.0, 9), [8])):
        sizes.clear()
        whole = program_of(SpaceProblem(mixing=w, budget=budget)).normalized()
        answer = answer_of(whole)
        assert sizes == blocks * answer.evaluations
        interval = oracles.diagonal_interval(w.T @ w, budget=budget)
        assert interval.meets(lower_bound(whole, answer.dual), objective(whole, answer))


def test_steps_in_time_have_no_symmetry(eager: None, sizes: list[int]) -> None:
    whole = program_of(TimeProblem.prefix(participation=single(12)))
    answer = answer_of(whole)
    assert sizes == [12] * answer.evaluations


# --- what is singular or slack --------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph", [nx.star_graph(7), nx.star_graph(70), nx.path_graph(2), nx.complete_graph(70)]
)
def test_singular_mixing_ends_as_without_symmetries(
    graph: nx.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certified where the optimum is bounded (stars), refused where it is not."""
    problem = SpaceProblem(mixing=oracles.metropolis(graph))

    def outcome() -> tuple[str, float]:
        try:
            found = solve(problem, gap=1e-8)
        except ValueError as error:
            return str(error)[:60], 0.0
        assert found.design is not None
        return found.status, found.design.objective

    monkeypatch.setattr(diagonal, "SYMMETRY_FROM", np.inf)
    status, expected = outcome()
    make_eager(monkeypatch)
    found, got = outcome()
    assert found == status
    assert (status == "optimal") == (len(graph) - 1 == graph.number_of_edges() > 1)
    assert got == pytest.approx(expected, rel=1e-7)


def test_a_coordinate_that_costs_nothing(eager: None) -> None:
    """Nodes with H_ii = 0 get no weight; the others are their own optimum, tr(H)."""
    whole = program(np.diag([1.0, 4, 0, 0, 1, 4]))
    answer = answer_of(whole)
    assert lower_bound(whole, answer.dual) == pytest.approx(10.0, rel=1e-8)


def test_no_more_memory_than_without() -> None:
    """H, W and everything else are eight arrays of n x n at most: blocks are smaller than H."""
    for graph in (nx.lollipop_graph(30, 270), nx.path_graph(301), nx.star_graph(300)):
        whole = spatial(graph)
        tracemalloc.start()
        answer_of(whole)
        peak = tracemalloc.get_traced_memory()[1] / np.asarray(whole.gram).nbytes
        tracemalloc.stop()
        assert 2 + peak < 8


# --- when it is not a symmetry --------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-3, 1e-9, 1e-15])
def test_nearly_symmetric_workloads_are_certified(size: float) -> None:
    noise = random_gram(80, 0)
    h = workload(nx.path_graph(80)) + size * noise / np.abs(noise).max()
    whole = program(h)
    answer = answer_of(whole)
    assert answer.stop is Stop.SOLVED
    assert objective(whole, answer) / lower_bound(whole, answer.dual) - 1 <= GAP


def test_what_is_no_symmetry_proves_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a mirror that H does not have: the solver believes them, the certificate does
    not, and its bounds hold all the same."""
    w = oracles.metropolis(oracles.erdos_renyi(70, 0.1))
    problem = SpaceProblem(mixing=w)
    honest = solve(problem, gap=1e-8)
    orbit, signs = symmetry.halves(np.arange(70), np.ones((1, 70)), np.arange(70)[::-1])
    orbit = np.unique(orbit, return_inverse=True)[1]
    wrong = symmetry.Symmetry(orbit, signs)
    monkeypatch.setattr(diagonal, "symmetry_of", lambda _: wrong)
    found = solve(problem, gap=1e-8)
    assert honest.design is not None
    assert found.design is not None
    assert found.status == "inaccurate"
    assert found.design.gap > 1e-4
    assert found.feasible
    assert found.design.lower_bound <= honest.design.objective
    assert found.design.objective >= honest.design.lower_bound


def test_where_blocks_do_not_do_the_whole_goes_on(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = spatial(nx.path_graph(80))
    original = diagonal._search
    calls: list[Answer] = []

    def giving_up(*arguments: Any, monitor: Monitor) -> Answer:
        answer = original(*arguments, monitor=monitor)
        if not calls:
            object.__setattr__(answer, "stop", Stop.INACCURATE)
        calls.append(answer)
        return answer

    monkeypatch.setattr(diagonal, "_search", giving_up)
    answer = answer_of(whole)
    assert answer.stop is Stop.SOLVED
    blocks, rest = calls
    assert rest.evaluations == 1  # it starts where the other stopped
    assert answer.evaluations == blocks.evaluations + 1
    assert sizes == [40, 40] * blocks.evaluations + [80]


# --- when it is not looked for --------------------------------------------------------------------


@pytest.fixture
def unsought(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(diagonal, "symmetry_of", forbidden)


def test_small_problems_are_solved_as_they_are(unsought: None) -> None:
    assert answer_of(spatial(nx.path_graph(diagonal.SYMMETRY_FROM - 1))).stop is Stop.SOLVED


@NEEDS_NUMPY_2
def test_devices_are_given_the_whole(unsought: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagonal, "on_host", strict_on_host)
    monitor = Monitor(gap=1e-6)
    answer = diagonal.solve(spatial(nx.path_graph(64)), monitor=monitor, device=STRICT)
    assert answer.stop is Stop.SOLVED


# --- stopping and going on ------------------------------------------------------------------------


def stopping(calls: int) -> Callable[[Any], None]:
    seen: list[Any] = []

    def progress(bounds: Any) -> None:
        seen.append(bounds)
        if len(seen) == calls:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("graph", [nx.path_graph(80), nx.cycle_graph(80)])
def test_interrupted_solves_return_what_they_have(graph: nx.Graph) -> None:
    whole = spatial(graph)
    answer = diagonal.solve(whole, monitor=Monitor(gap=1e-12, progress=stopping(1)))
    assert answer.stop is Stop.INTERRUPTED
    assert multipliers(answer).shape == (80,)
    assert answer.gram is not None
    assert answer.gram.shape == (80, 80)
    assert lower_bound(whole, answer.dual) > 0


def test_no_time_is_enough_for_an_answer() -> None:
    whole = spatial(nx.path_graph(80))
    answer = diagonal.solve(whole, monitor=Monitor(gap=1e-12, time_limit=1e-9))
    assert (answer.stop, answer.evaluations) == (Stop.TIME_LIMIT, 1)
    assert lower_bound(whole, answer.dual) > 0


def test_checkpoints_are_of_nodes_and_gone_on_from(tmp_path: Path, sizes: list[int]) -> None:
    problem = SpaceProblem(mixing=oracles.metropolis(nx.path_graph(80)))
    state = CheckpointFile(tmp_path / "state.npz", seconds=1e-9)
    first = solve(problem, gap=1e-10, checkpoint=state)
    whole = program_of(problem).normalized()
    kept = state.load(whole)
    assert kept is not None
    assert kept.shape == (80, 1, 1)
    np.testing.assert_array_equal(kept, kept[::-1])
    sizes.clear()
    again = solve(problem, gap=1e-10, checkpoint=state)
    assert first.evaluations > again.evaluations == 1
    assert sizes == [40, 40]
