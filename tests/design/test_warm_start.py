"""Solves that start from the multipliers of another problem: the same answers, sooner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.certify.program import DualPoint, Program, diagonal_dual
from noisedesign.design import warm_start
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.design.warm_start import INSIDE, Neighbours, Start, distance, start_of
from noisedesign.families.disjoint.program import program_of
from noisedesign.files.checkpoint_file import CheckpointFile
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from tests.support import oracles
from tests.support.conic_cases import need
from tests.support.made_designs import multipliers
from tests.support.without_extras import ELSEWHERE

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
EPOCHS = FixedEpoch(epochs=4, separation=6)
GAP = 1e-9


def edge_more(graph: nx.Graph) -> np.ndarray:
    """Mixing weights of the graph with one edge more."""
    other = graph.copy()
    # The order of nx.non_edges is that of hashes, which are others in every process.
    other.add_edge(*min(sorted(pair) for pair in nx.non_edges(graph)))
    return oracles.metropolis(other)


def over_time(mixing: np.ndarray) -> TimeProblem:
    return TimeProblem.decentralized(mixing=mixing, participation=EPOCHS)


NEIGHBOURS: dict[str, tuple[Problem, Problem]] = {
    "edge": (
        SpaceProblem(mixing=FLORENTINE),
        SpaceProblem(mixing=edge_more(nx.florentine_families_graph())),
    ),
    "budgets": (
        SpaceProblem(mixing=FLORENTINE, budget=np.linspace(1, 1.2, 15)),
        SpaceProblem(mixing=FLORENTINE, budget=np.linspace(1.1, 1, 15)),
    ),
    "epochs": (over_time(FLORENTINE), over_time(edge_more(nx.florentine_families_graph()))),
    "one": (SpaceProblem(mixing=np.ones((1, 1))), SpaceProblem(mixing=np.ones((1, 1)), budget=3.0)),
}


def optimal(problem: Problem, **options: Any) -> tuple[Design, int]:
    found = solve(problem, **({"gap": GAP} | options))
    assert found.status == "optimal"
    assert found.design is not None
    return found.design, found.evaluations


# --- the same answer, sooner ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.parametrize("as_design", [True, False])
def test_the_same_answer_from_a_neighbour(name: str, as_design: bool) -> None:
    before, problem = NEIGHBOURS[name]
    known, _ = optimal(before)
    cold, of_cold = optimal(problem)
    warm, of_warm = optimal(problem, start=known if as_design else multipliers(known))
    assert of_warm <= of_cold
    assert warm.objective == pytest.approx(cold.objective, rel=2 * GAP)
    assert warm.lower_bound <= cold.objective * (1 + 1e-12)
    np.testing.assert_allclose(warm.matrix, cold.matrix, atol=1e-3 * np.abs(cold.matrix).max())


def test_several_epochs_take_an_evaluation_less() -> None:
    before, problem = NEIGHBOURS["epochs"]
    known, _ = optimal(before)
    assert optimal(problem, start=known)[1] < optimal(problem)[1]


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_solved_problem_is_found_solved(name: str) -> None:
    problem, _ = NEIGHBOURS[name]
    known, _ = optimal(problem)
    assert optimal(problem, start=known)[1] == 1
    # Scale is free: budgets that all change alike change the scale of the answer alone.
    if isinstance(problem, SpaceProblem):
        assert optimal(replace(problem, budget=7 * problem.budget), start=known)[1] == 1


def test_a_checkpoint_goes_before_the_start(tmp_path: Any) -> None:
    problem, other = NEIGHBOURS["epochs"]
    state = CheckpointFile(tmp_path / "state.npz")
    optimal(problem, checkpoint=state)
    far = DualPoint(blocks=np.tile(np.eye(4), (6, 1, 1)))
    assert optimal(problem, checkpoint=state, start=far)[1] == 1
    assert optimal(other, checkpoint=CheckpointFile(tmp_path / "new.npz"), start=far)[1] > 1


def test_multipliers_of_a_conic_solver_are_a_start() -> None:
    """They are a little outside of the cone."""
    problem, other = NEIGHBOURS["epochs"]
    known = solve(problem, backend=need("scs")).design
    assert known is not None
    assert known.proof
    assert optimal(other, start=known)[1] <= optimal(other)[1]


# --- multipliers moved, by hand -------------------------------------------------------------------


def separable(diagonal: Any, budget: Any, *, epochs: int = 1) -> Program:
    """H diagonal: the best X is diagonal, and v_i = (H_ii / tau_i)^1/2 at unit budgets."""
    patterns = len(diagonal) // epochs
    return Program(
        gram=np.diag(np.asarray(diagonal, dtype=float)),
        budget=np.asarray(budget, dtype=float),
        participation=FixedEpoch(epochs=epochs, separation=patterns),
    )


def test_what_is_known_of_single_patterns_is_used() -> None:
    """From one separable problem to another the optimum moves with diag(H)^1/2 alone."""
    before, after = separable([1, 4, 9, 9], [1, 1, 4, 1]), separable([4, 1, 25, 9], [1, 9, 1, 1])
    best = np.sqrt([1, 4, 9 / 4, 9])
    known = diagonal_dual(best / before.budget)  # multipliers of the problem at its own budgets
    moved = Start(dual=known, program=before).blocks(after)[:, 0, 0]
    expected = np.sqrt([4, 1 / 9, 25, 9])
    np.testing.assert_allclose(moved, expected / expected.mean(), rtol=1e-14)


def test_multipliers_alone_are_at_the_budgets_of_the_problem() -> None:
    after = separable([1, 1, 1], [1, 2, 3])
    moved = Start(dual=diagonal_dual(np.array([6.0, 3, 2]))).blocks(after)
    np.testing.assert_allclose(moved, np.ones((3, 1, 1)), rtol=1e-15)


def test_blocks_keep_their_shape_as_they_are_scaled() -> None:
    """Two epochs of two steps: pattern 0 is steps 0, 2 with roots 1, 3 before and 2, 2 after."""
    before = separable([1, 4, 9, 4], [1, 1], epochs=2)
    after = separable([4, 16, 4, 16], [1, 1], epochs=2)
    blocks = np.array([[[1, 0.5], [0.5, 1]], [[1, -0.25], [-0.25, 1]]])
    moved = Start(dual=DualPoint(blocks=blocks), program=before).blocks(after)
    np.testing.assert_allclose(
        moved, blocks * np.array([1.0, 2.0])[:, None, None] / 1.5, rtol=1e-15
    )


def test_a_block_on_the_boundary_is_drawn_inside() -> None:
    """[[1, 1], [1, 1]] has eigenvalues 0 and 2: drawn to 1 +- (1 - INSIDE)."""
    program = separable([1, 1, 1, 1], [1, 1], epochs=2)
    blocks = np.array([[[1.0, 1], [1, 1]], [[1, 0.25], [0.25, 1]]])
    moved = Start(dual=DualPoint(blocks=blocks)).blocks(program)
    kept = 1 - INSIDE
    np.testing.assert_allclose(moved[0], [[1, kept], [kept, 1]], rtol=1e-14)
    np.testing.assert_allclose(moved[1], blocks[1], rtol=1e-14)
    np.testing.assert_array_equal(blocks[0], np.ones((2, 2)))  # what was given is left alone


def test_multipliers_that_vanish_are_raised() -> None:
    program = separable([1, 1, 1], [1, 1, 1])
    moved = Start(dual=diagonal_dual(np.array([0.0, 3, 3]))).blocks(program)[:, 0, 0]
    np.testing.assert_allclose(moved / moved[1], [2 * INSIDE / 3, 1, 1], rtol=1e-14)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    epochs=st.integers(1, 4),
    patterns=st.integers(1, 4),
    rank=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([1e-200, 1.0, 1e200]),
)
def test_every_positive_semidefinite_start_is_inside(
    epochs: int, patterns: int, rank: int, seed: int, scale: float
) -> None:
    """Singular or not, at any scale: eigenvalues, diagonals and signs are what a solver needs."""
    rng = np.random.default_rng(seed)
    panel = rng.standard_normal((patterns, epochs, rank))
    panel /= np.linalg.norm(panel, axis=2, keepdims=True)
    blocks = panel @ panel.transpose(0, 2, 1) * rng.uniform(0, 1, patterns)[:, None, None]
    program = separable(rng.uniform(0.1, 1, epochs * patterns), np.ones(patterns), epochs=epochs)
    moved = Start(dual=DualPoint(blocks=scale * blocks)).blocks(program)
    p = moved[:, 0, 0]
    np.testing.assert_array_equal(np.einsum("jii->ji", moved), np.tile(p[:, None], epochs))
    assert p.min() >= INSIDE / 2 * p.mean()
    assert p.mean() == pytest.approx(1, rel=0.02)
    assert np.linalg.eigvalsh(moved / p[:, None, None]).min() >= INSIDE * (1 - 1e-9)
    np.linalg.cholesky(moved)


# --- starts that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (np.ones((14, 1, 1)), "shape"),
        (np.ones((15, 2, 2)), "shape"),
        (np.ones(15), "3 axes"),
        (np.ones((15, 1, 1), dtype=np.float32), "float64"),
        (np.full((15, 1, 1), np.nan), "finite"),
        (np.full((15, 1, 1), np.inf), "finite"),
        (np.zeros((15, 1, 1)), "positive"),
        (-np.ones((15, 1, 1)), "positive"),
        (np.linspace(-1, 1, 15)[:, None, None], "positive"),
    ],
)
def test_multipliers_no_solver_may_start_from(blocks: np.ndarray, words: str) -> None:
    with pytest.raises(InputError) as error:
        solve(SpaceProblem(mixing=FLORENTINE), start=DualPoint(blocks=blocks))
    assert error.value.field == "start"
    assert words in error.value.expected


def test_a_block_that_is_not_positive_semidefinite() -> None:
    blocks = np.tile(np.array([[1.0, 1.1], [1.1, 1.0]]), (3, 1, 1))
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=3))
    with pytest.raises(InputError, match="positive semidefinite"):
        solve(problem, start=DualPoint(blocks=blocks))


def test_things_that_are_no_start() -> None:
    problem = SpaceProblem(mixing=FLORENTINE)
    for thing in (np.ones(15), "cold", {}, solve(problem)):
        with pytest.raises(InputError, match="a Design or a DualPoint") as error:
            solve(problem, start=thing)  # type: ignore[arg-type]
        assert error.value.field == "start"
    plain = solve(problem).design
    assert plain is not None
    with pytest.raises(InputError, match="multipliers"):
        solve(problem, start=replace(plain, proof={}))
    local = SpaceProblem(mixing=FLORENTINE, structure=SpaceStructure(kind="edge-local"))
    with pytest.raises(InputError, match="structure"):
        solve(problem, start=replace(plain, problem=local))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_solvers_take_none(name: str) -> None:
    problem, backend = ELSEWHERE[name]
    with pytest.raises(InputError) as error:
        solve(problem, backend=backend, start=diagonal_dual(np.ones(15)))
    assert (error.value.field, error.value.expected) == ("start", "none here")


# --- neighbours -----------------------------------------------------------------------------------


def known(problem: Problem) -> Design:
    design = solve(problem).design
    assert design is not None
    return design


def scaled(*roots: float) -> TimeProblem:
    """H = diag(roots)^2."""
    gram = np.diag(np.square(np.array(roots, dtype=float)))
    return TimeProblem.from_gram(gram=gram, participation=single(len(roots)))


def test_distance_by_hand() -> None:
    """H = diag(1, 4) and diag(4, 16) are one up to scale; diag(1, 1) against diag(1, 4), scaled to
    the trace 5: diag(2.5, 2.5), so 1.5 sqrt(2) of sqrt(17)."""

    def between(one: Problem, other: Problem) -> float:
        return distance(
            Start(dual=diagonal_dual(np.ones(2)), program=program_of(one)), program_of(other)
        )

    assert between(scaled(2, 4), scaled(1, 2)) == pytest.approx(0, abs=1e-15)
    assert between(scaled(1, 1), scaled(1, 2)) == pytest.approx(np.sqrt(4.5 / 17), rel=1e-14)
    assert between(scaled(1, 1, 1), scaled(1, 2)) == np.inf
    # At unit budgets H_ij / (tau_i tau_j)^1/2.
    uneven = SpaceProblem(mixing=np.full((2, 2), 0.5), budget=np.array([1.0, 4.0]))
    even = SpaceProblem(mixing=np.full((2, 2), 0.5))
    at_unit = np.array([[0.5, 0.25], [0.25, 0.125]])
    expected = np.linalg.norm(at_unit - 0.625 * np.full((2, 2), 0.5)) / np.linalg.norm(at_unit)
    assert between(even, uneven) == pytest.approx(expected, rel=1e-14)


def test_the_nearest_is_found() -> None:
    neighbours = Neighbours()
    assert neighbours.nearest(scaled(1, 2)) is None
    near, nearer = scaled(1, 2.2), scaled(1, 2.1)
    for problem in (near, nearer, scaled(1, 2.3), scaled(3, 1)):
        neighbours.add(known(problem))
    found = neighbours.nearest(scaled(1, 2))
    assert found is not None
    assert found.program is not None
    np.testing.assert_array_equal(found.program.gram, nearer.gram)
    assert neighbours.nearest(scaled(4, 4)) is None  # none is near
    assert neighbours.nearest(scaled(1, 2, 1)) is None  # another size
    space = SpaceProblem(mixing=FLORENTINE)
    neighbours.add(known(space))
    assert neighbours.nearest(space) is not None
    assert neighbours.nearest(replace(space, max_variance=9.0)) is None
    edges = SpaceStructure(kind="edge-local")
    assert neighbours.nearest(replace(space, structure=edges)) is None


def test_what_is_not_remembered() -> None:
    """Designs with a cap, with a structure, without multipliers, or with such as are all but
    singular; each is offered to the very problem that it would serve."""
    neighbours = Neighbours()
    space = SpaceProblem(mixing=FLORENTINE)
    neighbours.add(known(replace(space, max_variance=9.0)))
    neighbours.add(known(replace(space, structure=SpaceStructure(kind="edge-local"))))
    neighbours.add(replace(known(space), proof={}))
    assert neighbours.nearest(space) is None
    design = known(TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2)))
    singular = DualPoint(blocks=np.tile(np.array([[1.0, 0.999], [0.999, 1.0]]), (2, 1, 1)))
    neighbours.add(replace(design, proof={"dual_blocks": singular.blocks}))
    assert neighbours.nearest(design.problem) is None
    neighbours.add(design)
    assert neighbours.nearest(design.problem) is not None


def test_the_last_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = Neighbours()
    first = scaled(1, 2)
    neighbours.add(known(first))
    for size in range(3, 2 + warm_start.MOST):
        neighbours.add(known(scaled(*range(1, size + 1))))
    assert neighbours.nearest(first) is not None
    neighbours.add(known(scaled(5, 5, 5)))
    assert neighbours.nearest(first) is None
    monkeypatch.setattr(warm_start, "MOST_BYTES", 4 * 8)  # H of two steps
    neighbours.add(known(scaled(5, 5, 5)))
    assert neighbours.nearest(scaled(5, 5, 5)) is None
    neighbours.add(known(first))
    assert neighbours.nearest(first) is not None


def test_starts_are_passed_on_as_they_are() -> None:
    one = Start(dual=diagonal_dual(np.ones(2)))
    assert start_of(one) is one
    assert start_of(None) is None
