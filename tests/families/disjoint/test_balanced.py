"""The balanced formulation: the same program, in coordinates that solvers find easier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify import repair
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import Program
from noisedesign.conic.data import slack, slacks, square_of, triangles
from noisedesign.conic.program import ConicProgram
from noisedesign.conic.solvers import ConicSolver, conic_solver
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.model import FORMULATIONS, balanced, lower_bound_scale
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch, single
from tests.support import oracles
from tests.support.conic_cases import PROBLEMS, ask, eight, need, solver_of

CASES: dict[str, Problem] = {
    **PROBLEMS,
    "floored": SpaceProblem(mixing=eight(), min_variance=1.5, max_variance=3.0),
    "florentine-floored": SpaceProblem(
        mixing=mixing_matrix(nx.florentine_families_graph()), min_variance=2.0, max_variance=5.0
    ),
    "star": SpaceProblem(mixing=mixing_matrix(nx.star_graph(4))),
    "one-epoch-step": TimeProblem.decentralized(
        mixing=eight(), participation=FixedEpoch(epochs=5, separation=1)
    ),
    "one-step": TimeProblem.prefix(participation=single(1)),
}


class Scaled(NamedTuple):
    """A formulation, K of it and, under limits, G^-1; both of shape (m, m)."""

    gram: Callable[[Sequence[np.ndarray]], np.ndarray]
    nodes: np.ndarray
    rest: np.ndarray | None


def assembled(program: Program, parts: int) -> tuple[Scaled, ConicProgram]:
    found = balanced(program, parts=parts)
    conic = found.assembly.finished(formulation="")
    near = conic_model._near(program)
    nodes = conic_model._node_scale(program, near, np.linalg.inv(near))
    if not program.limited:
        return Scaled(found.gram, nodes, None), conic
    rest = np.empty_like(nodes)
    for number, block in enumerate(conic.blocks):
        below = block.size - program.size
        coupling = slack(block, np.zeros(conic.variables))[below:, :below]
        cut = np.arange(number, program.size, len(conic.blocks))
        rest[:, cut] = coupling / np.diagonal(nodes)[cut]
    return Scaled(found.gram, nodes, np.linalg.inv(rest)), conic


def feasible(program: Program, seed: int) -> np.ndarray:
    """Any X that the program allows, positive definite."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((program.size, program.size))
    found = repair.feasible_gram(program, noise @ noise.T + np.eye(program.size))
    assert found is not None
    return found


def scaled_point(found: Scaled, conic: ConicProgram, x: np.ndarray) -> np.ndarray:
    """The variables that stand for X and the least error it allows, found by least squares."""
    covariance = np.linalg.inv(x)
    rows, values = [], []
    for block in conic.blocks:
        size, cut = block.size, block.size - len(x)
        matrix, offset = square_of(block, conic.variables)
        coupling = offset.reshape(size, size)[cut:, :cut]
        if found.rest is None:
            whole = found.nodes @ x @ found.nodes.T
        else:
            scale = np.linalg.inv(found.rest)
            whole = scale @ covariance @ scale.T
        # The least corner that keeps the block positive semidefinite: the Schur complement.
        corner = coupling.T @ np.linalg.solve(whole, coupling)
        rows.append(matrix.toarray())
        values.append(np.block([[corner, coupling.T], [coupling, whole]]).ravel() - offset)
    solution, *_ = np.linalg.lstsq(np.vstack(rows), np.concatenate(values), rcond=None)
    np.testing.assert_allclose(
        np.vstack(rows) @ solution, np.concatenate(values), atol=1e-9 * abs(solution).max()
    )
    return np.asarray(solution)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("name", list(CASES))
def test_every_feasible_design_is_a_point_of_the_same_cost(name: str, parts: int) -> None:
    """Not only the optimum: X goes over with tr(H X^-1), its rows hold, and it is read back."""
    program = program_of(CASES[name]).normalized()
    found, conic = assembled(program, parts)
    for seed in range(3):
        x = feasible(program, seed)
        point = scaled_point(found, conic, x)
        cost = float(conic.cost @ point)
        # A design that spends its budget has this cost; a cap and a floor allow less of it.
        assert cost == pytest.approx(np.trace(program.gram @ np.linalg.inv(x)), rel=1e-8)
        matrix = triangles(conic, upper=True)
        left = (matrix.offset - matrix.matrix @ point)[: conic.rows.size]
        assert left.min() >= -1e-9
        np.testing.assert_allclose(found.gram(slacks(conic, point)), x, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", list(CASES))
def test_rows_are_those_of_the_program(name: str) -> None:
    """A design whose budgets are overspent by a tenth breaks rows, one over the cap too."""
    program = program_of(CASES[name]).normalized()
    found, conic = assembled(program, 1)
    x = feasible(program, 0)
    matrix = triangles(conic, upper=True)

    def least(x: np.ndarray) -> float:
        point = scaled_point(found, conic, x)
        return float((matrix.offset - matrix.matrix @ point)[: conic.rows.size].min())

    assert least(1.1 * x) < -1e-3
    if program.cap is not None:
        assert least(0.1 * x) < -1e-3


def test_blocks_and_multipliers_are_alike_where_the_guess_is_right() -> None:
    """On a ring equal multipliers are optimal: X' = U' and Y' is its own multiplier, each but for
    the share that is added to prices."""
    graph = nx.cycle_graph(8)
    program = program_of(SpaceProblem(mixing=mixing_matrix(graph))).normalized()
    program = replace(
        program, gram=program.gram / lower_bound_scale(program.factor), exact_factor=None
    )
    found, conic = assembled(program, 1)
    values, vectors = np.linalg.eigh(program.gram)
    root = (vectors * np.sqrt(values)) @ vectors.T
    x = root / root[0, 0]
    price = np.trace(program.gram @ np.linalg.inv(x)) / 8
    scaled = found.nodes @ x @ found.nodes.T
    other = np.linalg.inv(found.nodes).T @ (price * np.eye(8)) @ np.linalg.inv(found.nodes)
    np.testing.assert_allclose(np.diagonal(scaled), 1.03 * np.diagonal(other))
    corner = slacks(conic, scaled_point(found, conic, x))[0][:8, :8]
    # The multiplier of Y' is what it costs.
    costs = np.sort(conic.cost[conic.cost > 0])
    np.testing.assert_allclose(np.sort(np.diagonal(corner)), costs, rtol=1e-8)
    np.testing.assert_allclose(corner, np.diag(np.diagonal(corner)), atol=1e-10)


# --- fewer iterations -----------------------------------------------------------------------------


def iterations(problem: Problem, solver: str, **changes: Any) -> int:
    backend = conic_solver(need(solver))
    assert isinstance(backend, ConicSolver)
    formulation = changes.pop("formulation", "balanced")
    backend = replace(backend, **changes)
    program = program_of(problem).normalized()
    watch = Monitor(gap=1e-6, tolerance=1e-7)
    return ask(backend, program, monitor=watch, formulation=formulation).outcome.iterations


def relabelled(problem: Problem, order: np.ndarray) -> Problem:
    """The same problem with its nodes in another order, if it has any."""
    if not isinstance(problem, SpaceProblem):
        return problem
    limits = {"budget": problem.budget, "max_variance": problem.max_variance}
    limits["min_variance"] = problem.min_variance
    kept = {name: None if given is None else given[order] for name, given in limits.items()}
    return replace(problem, mixing=problem.mixing[np.ix_(order, order)], **kept)


@pytest.mark.parametrize(
    "name",
    [
        *("florentine", "epochs", "prefix", "capped-budgets"),
        pytest.param("florentine-floored", marks=pytest.mark.slow),
    ],
)
def test_scs_takes_a_third_of_the_iterations(name: str) -> None:
    """Medians over orders of the nodes: rounding alone makes one `compact` run thrice another."""
    problem, rng = CASES[name], np.random.default_rng(0)
    size = problem.gram.shape[0]
    problems = [relabelled(problem, rng.permutation(size)) for _ in range(9)]

    def typical(**changes: Any) -> float:
        return float(np.median([iterations(one, "scs", **changes) for one in problems]))

    ours = typical()
    assert 3 * ours <= typical(formulation="compact")
    assert ours <= typical(tuned=None)


def test_karate_in_a_hundred_iterations() -> None:
    """Thousands, in ``compact``."""
    karate = SpaceProblem(mixing=mixing_matrix(oracles.karate()))
    assert iterations(karate, "scs") <= 100
    solution = solve(karate, backend="scs", gap=1e-6)
    assert solution.status == "optimal"


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("name", ["florentine", "epochs", "capped", "floored"])
def test_parts_change_no_answer(name: str, parts: int) -> None:
    """Whatever the number of inequalities, both bounds meet the optimum found natively."""
    best = solve(CASES[name], gap=1e-8).certificate
    backend = conic_solver("clarabel")
    assert isinstance(backend, ConicSolver)
    program = program_of(CASES[name]).normalized()
    watch = Monitor(gap=1e-6, tolerance=1e-8)
    answer = ask(replace(backend, parts=parts), program, monitor=watch, formulation="balanced")
    assert answer.gram is not None
    assert best is not None
    cost = float(np.sum(program.gram * np.linalg.inv(answer.gram)))
    assert cost == pytest.approx(best.objective, rel=1e-5)
    assert answer.dual is not None
    assert lower_bound(program, answer.dual) == pytest.approx(best.objective, rel=1e-5)
    assert iterations(CASES[name], "clarabel", parts=parts) <= 14


def test_the_block_is_cut_for_interior_points_only() -> None:
    program = program_of(PROBLEMS["florentine"]).normalized()
    for name, parts in {"scs": 1, "clarabel": 2, "cvxopt": 2, "sdpa": 2, "mosek": 2}.items():
        assert solver_of(name).parts == parts
        assert FORMULATIONS[0] == "balanced"
        conic = conic_model.build(program, formulation="balanced", parts=parts).conic
        assert len(conic.blocks) == parts


def test_limits_that_nothing_meets_are_not_solved() -> None:
    """diag(R) <= 1/2 with [R^-1]_ii <= 1: the guess is no design, and the model is one still."""
    program = replace(program_of(PROBLEMS["capped"]).normalized(), cap=np.full(8, 0.5))
    watch = Monitor(gap=1e-6, tolerance=1e-7)
    answer = ask("clarabel", program, monitor=watch, formulation="balanced").outcome
    assert answer.stop in (Stop.FAILED, Stop.INACCURATE)


# --- triangles ------------------------------------------------------------------------------------


@settings(max_examples=30, derandomize=True, deadline=None)
@given(size=st.integers(1, 5), seed=st.integers(0, 10**6), upper=st.booleans())
def test_triangles_keep_inner_products_and_come_back(size: int, seed: int, upper: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=1, separation=size))
    _, conic = assembled(program_of(problem).normalized(), 1)
    data = triangles(conic, upper=upper)
    x, y = rng.standard_normal(conic.variables), rng.standard_normal(conic.variables)
    flat = [data.offset - data.matrix @ point for point in (x, y)]
    full = [slacks(conic, point)[0] for point in (x, y)]
    rows = conic.rows.size
    assert flat[0][rows:] @ flat[1][rows:] == pytest.approx(np.sum(full[0] * full[1]))
    back = data.point(x, flat[0])
    np.testing.assert_allclose(back.blocks[0], full[0], atol=1e-12)
    np.testing.assert_array_equal(back.rows, flat[0][:rows])
    whole, offset = square_of(conic.blocks[0], conic.variables)
    np.testing.assert_allclose((whole @ x + offset).reshape(full[0].shape), full[0], atol=1e-12)


def test_triangles_by_columns() -> None:
    """Lower by columns is (0,0), (1,0), (2,0), (1,1), ...; upper (0,0), (0,1), (1,1), (0,2), ..."""
    _, conic = assembled(program_of(TimeProblem.prefix(participation=single(2))).normalized(), 1)
    made = slacks(conic, np.arange(1.0, conic.variables + 1))[0]
    order = {True: np.tril_indices(4), False: tuple(np.triu_indices(4))[::-1]}
    for upper, (i, j) in order.items():
        data = triangles(conic, upper=upper)
        flat = data.offset - data.matrix @ np.arange(1.0, conic.variables + 1)
        weight = np.where(i == j, 1.0, 2**0.5)
        np.testing.assert_allclose(flat[conic.rows.size :], weight * made[i, j])


def test_a_singular_error_within_limits_has_coordinates_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H^1/2, made feasible, may round to what is no covariance: of that there is no inverse."""

    def singular(program: Program, covariance: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.cholesky(-covariance))

    monkeypatch.setattr(repair, "raised", singular)
    problem = SpaceProblem(mixing=np.full((2, 2), 0.5), min_variance=1.5, max_variance=3.0)
    near = conic_model._near(program_of(problem).normalized())
    assert np.linalg.eigvalsh(near)[0] > 0
