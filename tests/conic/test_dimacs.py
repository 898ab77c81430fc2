"""DIMACS errors: worked out by hand on two by two matrices, then of what real solvers leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.conic.data import Errors, Point, errors
from noisedesign.conic.program import CONSTANT, Assembly, ConicProgram, constant, lower_triangle
from noisedesign.conic.solvers import ConicSolver, conic_solver, through_cvxpy
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import SpaceProblem
from tests.support.conic_cases import PROBLEMS, need

OPTIMAL = np.array([[0.5, -0.5], [-0.5, 0.5]])


def hand(
    x: float = 1.0, z: np.ndarray = OPTIMAL, equation: tuple[float, float] | None = None
) -> Errors:
    """minimise x subject to [[x, 1], [1, x]] >= 0: x = 1, with the multiplier OPTIMAL."""
    assembly, at = Assembly(), np.arange(2)
    number = assembly.vector("x", 1, cost=np.ones(1), meaning="any")
    assembly.block(2, [(number, at, at, 1.0), constant(np.array([[0.0, 0.0], [1.0, 0.0]]))])
    rows: tuple[float, ...] = ()
    if equation is not None:  # 3 x = 3, of two rows with multipliers
        rows, signs = equation, np.array([1.0, -1.0])
        assembly.at_least_zero(2, [(number, at, at, 3 * signs), (CONSTANT, at, at, -3 * signs)])
    point = Point(variables=np.array([x]), blocks=(z,), rows=np.array(rows))
    return errors(assembly.finished(formulation=""), point)


def test_the_optimal_pair_has_no_errors() -> None:
    assert hand() == pytest.approx([0] * 6, abs=1e-15)
    assert hand(equation=(0.0, 0.0)) == pytest.approx([0] * 6, abs=1e-15)


def test_a_design_outside_its_cone() -> None:
    """x = 0.9: eigenvalues 1.9 and -0.1; cost 0.9 against the bound 1; <s, z> = -0.1."""
    assert hand(x=0.9) == pytest.approx([0, 0, 0, 0.1 / 2, -0.1 / 2.9, -0.1 / 2.9])


def test_a_design_that_costs_more_than_it_has_to() -> None:
    assert hand(x=1.5) == pytest.approx([0, 0, 0, 0, 0.5 / 3.5, 0.5 / 3.5])


def test_multipliers_that_miss_their_equation() -> None:
    """The trace of z has to be 1 and is 1.1; z stays positive semidefinite."""
    found = hand(z=np.array([[0.6, -0.5], [-0.5, 0.5]]))
    assert found == pytest.approx([0.1 / 2, 0, 0, 0, 0, 0.1 / 3])


def test_multipliers_outside_their_cone() -> None:
    """Eigenvalues 1.1 and -0.1, and a bound of 1.2 where 1 is the optimum."""
    found = hand(z=np.array([[0.5, -0.6], [-0.6, 0.5]]))
    assert found == pytest.approx([0, 0.1 / 2, 0, 0, -0.2 / 3.2, -0.2 / 3.2])


def test_an_equation_that_is_not_met() -> None:
    """3 x = 2.7 instead of 3; the largest offset is 3, and the row is further off than R is."""
    found = hand(x=0.9, equation=(0.0, 0.0))
    assert found[2] == 0
    assert found[3] == pytest.approx(0.3 / 4)


def test_a_multiplier_of_an_equation_has_any_sign() -> None:
    """With -3 nu from the equation, c + A^T z = 1 - tr(Z) + 3 nu and the bound changes by 3 nu."""
    found = hand(z=2 * OPTIMAL, equation=(0.0, 1 / 3))
    assert found == pytest.approx([0, 0, 0, 0, 0, 0], abs=1e-15)
    found = hand(z=0 * OPTIMAL, equation=(1 / 3, 0.0))
    assert found == pytest.approx([0, 0, 0, 0, 0, 0], abs=1e-15)


def test_inequalities_are_judged_entry_by_entry() -> None:
    """minimise x subject to -x <= -2 and x <= 5, at x = 1.5 with multipliers (0.8, -0.25)."""
    assembly, at = Assembly(), np.arange(2)
    x = assembly.vector("x", 1, cost=np.ones(1), meaning="any")
    slopes, offsets = np.array([1.0, -1.0]), np.array([-2.0, 5.0])
    assembly.at_least_zero(2, [(x, at, at, slopes), (CONSTANT, at, at, offsets)])
    point = Point(variables=np.array([1.5]), blocks=(), rows=np.array([0.8, -0.25]))
    found = errors(assembly.finished(formulation=""), point)
    residual, bound = 1 - 0.8 - 0.25, 0.8 * -2 - 0.25 * 5
    below = 1 + 1.5 + abs(bound)
    slack = 0.8 * -0.5 - 0.25 * 3.5
    assert found == pytest.approx(
        [abs(residual) / 2, 0.25 / 2, 0, 0.5 / 6, (1.5 + bound) / below, slack / below]
    )


# --- conic programs -------------------------------------------------------------------------------


def small_program() -> tuple[ConicProgram, Point]:
    """minimise tr(X) subject to X >= 0 and X_01 >= 1: X = ones, Z = [[1, -1], [-1, 1]], y = 2."""
    assembly = Assembly()
    x = assembly.symmetric("X", 2, cost=np.eye(2), meaning="any")
    assembly.block(2, [lower_triangle(x)])
    assembly.at_least_zero(1, [(x[0, 1], 0, 0, 1.0), (CONSTANT, 0, 0, np.array([-1.0]))])
    point = Point(
        variables=np.ones(3), blocks=(np.array([[1.0, -1.0], [-1.0, 1.0]]),), rows=np.array([2.0])
    )
    return assembly.finished(formulation=""), point


def test_unknowns_of_a_symmetric_variable_are_those_of_a_triangle() -> None:
    program, point = small_program()
    assert errors(program, point) == pytest.approx([0] * 6, abs=1e-14)
    off = replace(point, rows=np.array([1.9]))
    # Residuals (0, 0.1, 0) of x_00, x_01, x_11; cost 2 against a bound of 1.9.
    assert errors(program, off) == pytest.approx([0.1 / 2, 0, 0, 0, 0.1 / 4.9, 0], abs=1e-14)


@pytest.mark.parametrize("solver", ["scs", "clarabel", "cvxopt", "sdpa"])
@pytest.mark.parametrize(
    ("name", "formulation"),
    [
        ("florentine", "compact"),
        ("capped-budgets", "covariance"),
        ("capped", "paper"),
        ("epochs", "compact"),
        ("floored", "covariance"),
        ("epochs", "balanced"),
        ("capped-budgets", "balanced"),
        ("floored", "balanced"),
    ],
)
def test_errors_of_solvers_are_small_and_those_of_a_spoiled_answer_are_not(
    solver: str, name: str, formulation: str
) -> None:
    """What a solver calls solved to 1e-6 meets our measures: coefficients, signs, scales agree."""
    backend = conic_solver(need(solver))
    assert isinstance(backend, ConicSolver)
    problem = PROBLEMS.get(name) or SpaceProblem(
        mixing=PROBLEMS["capped"].mixing, min_variance=1.5, max_variance=3.0
    )
    program = program_of(problem).normalized()
    model = conic_model.build(program, formulation=formulation)
    options = backend.options(Monitor(gap=1e-6, tolerance=1e-7))
    run = through_cvxpy(model.conic, backend.solver)
    if backend.direct is not None:
        run = backend.direct(model.conic)
    point = run(options).point
    assert point is not None
    assert max(map(abs, errors(model.conic, point))) < 1e-5
    spoiled = replace(point, variables=1.01 * point.variables)
    assert max(map(abs, errors(model.conic, spoiled))) > 1e-4


def test_solutions_hand_the_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PROBLEMS["florentine"]
    here = solve(problem, backend="clarabel", isolate=False).errors
    there = solve(problem, backend="clarabel", isolate=True).errors
    assert here is not None
    assert here == there
    assert solve(problem).errors is None


def test_a_measurement_that_is_not_finished_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The answer is handed over first."""
    from noisedesign.conic import process as isolated
    from noisedesign.design import backends

    def killed(conic: ConicProgram, point: Point) -> None:
        raise SystemExit

    program = program_of(PROBLEMS["florentine"]).normalized()
    conic = conic_model.build(program, formulation="compact").conic
    isolated._write_program(tmp_path / "program.npz", conic)
    monkeypatch.setattr(backends, "errors", killed)
    isolated._main("clarabel", str(tmp_path), '{"gap": 1e-6}')
    outcome = isolated._read_outcome(tmp_path / "outcome.npz")
    assert outcome.point is not None
    with pytest.raises(SystemExit):  # they are measured here, and last
        solve(PROBLEMS["florentine"], backend="clarabel", isolate=True)
