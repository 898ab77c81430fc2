"""Matrix inequalities as penalties on nuclear norms: by hand, by CVXPY, and by SCS where it can."""

from __future__ import annotations

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import proved_bound
from noisedesign.certify.program import Program
from noisedesign.conic import nuclear
from noisedesign.conic.data import Point, slacks, square_of
from noisedesign.conic.program import Assembly, ConicProgram, constant
from noisedesign.conic.solvers import conic_solver
from noisedesign.families.disjoint import model
from noisedesign.families.disjoint.program import arrays_of
from noisedesign.families.family import family_of
from tests.support.conic_cases import PROBLEMS

FREE = ("florentine", "budgets", "prefix", "epochs")


def normalised(name: str) -> Program:
    problem = PROBLEMS[name]
    program: Program = family_of(problem).program(problem)
    return program.normalized()


def two_by_two(penalty: float) -> ConicProgram:
    """Minimise 2 x, [[x, 1], [1, x]] >= 0: x = 1, and the multiplier is [[1, -1], [-1, 1]]."""
    assembly = Assembly()
    x = assembly.vector("x", 1, cost=np.array([2.0]), meaning="both entries")
    both = np.array([0, 1])
    one = np.array([[0.0, 0.0], [1.0, 0.0]])
    assembly.block(2, [(x, both, both, 1.0), constant(one)])
    return assembly.finished(formulation="by hand", penalty=penalty)


def value(program: ConicProgram, variables: Array) -> float:
    """Of the penalised program at its best t, the constant of its penalty counted."""
    data = nuclear.penalised(program)
    norms = [np.linalg.norm(s, "nuc") for s in slacks(program, variables)]
    known = sum(np.trace(s) for s in slacks(program, np.zeros(program.variables)))
    found = data.cost @ np.concatenate([variables, norms]) - program.penalty / 2 * known
    return float(found)


@pytest.mark.parametrize(("penalty", "best"), [(2.5, 1.0), (1.5, 0.0)])
def test_a_penalty_is_exact_from_the_largest_eigenvalue_on(penalty: float, best: float) -> None:
    """Between -1 and 1 the negative part has trace 1 - x, and 2 x + p (1 - x) falls up to x = 1
    where p > 2, the eigenvalue of the multiplier, and grows where p < 2."""
    program = two_by_two(penalty)
    for x in (-0.5, 0.0, 0.5, 1.0, 2.0):
        expected = 2 * x + penalty * max(0.0, 1 - x)
        assert value(program, np.array([x])) == pytest.approx(expected, abs=1e-12)
    assert (value(program, np.array([0.9])) > value(program, np.array([1.0]))) == (best == 1.0)


def test_rows_and_points_are_those_of_the_cone() -> None:
    """s = (t, x, 1, 1, x), and multipliers move from [-p/2, p/2] to [0, p]."""
    data = nuclear.penalised(two_by_two(4.0))
    np.testing.assert_array_equal(data.cost, [2 - 2 * 2, 2])
    s = data.offset - data.matrix @ np.array([0.25, 3.0])
    np.testing.assert_array_equal(s, [3, 0.25, 1, 1, 0.25])
    point = data.point([1.0, 2.0], [2.0, -1.0, -1.0, -1.0, -1.0])
    np.testing.assert_array_equal(point.blocks[0], [[1, -1], [-1, 1]])
    np.testing.assert_array_equal(point.variables, [1.0])


@pytest.mark.parametrize("name", FREE)
def test_the_penalty_is_above_every_multiplier(name: str) -> None:
    """Of the same inequality as it is, by Clarabel."""
    made = model.build(normalised(name), formulation="nuclear")
    assert made.conic.penalty > 0
    plain = model.build(normalised(name), formulation="compact").conic
    assert plain.penalty == 0
    found = conic_solver("clarabel").solve(plain, monitor=Monitor(gap=1e-8, tolerance=1e-9)).point
    assert found is not None
    largest = max(float(np.linalg.eigvalsh(z)[-1]) for z in found.blocks)
    assert 1 <= largest <= made.conic.penalty
    # The penalty charges nothing where the inequality holds, and something where it does not.
    cost = float(plain.cost @ found.variables)
    assert value(made.conic, found.variables) == pytest.approx(cost, rel=1e-6)
    assert value(made.conic, 0.9 * found.variables) > cost * (1 + 1e-3)


def by_cvxpy(conic: ConicProgram) -> Point:
    """The same penalties, stated anew with CVXPY's nuclear norm; multipliers are those of S = F(x).

    Neither the data nor the signs of :mod:`noisedesign.conic.nuclear` are used.
    """
    cp = pytest.importorskip("cvxpy")
    x = cp.Variable(conic.variables)
    objective, ties, rows = conic.cost @ x, [], []
    for block in conic.blocks:
        square, offset = square_of(block, conic.variables)
        s = cp.Variable((block.size, block.size))
        objective += conic.penalty / 2 * (cp.normNuc(s) - cp.trace(s))
        ties.append(cp.reshape(square @ x + offset, s.shape, order="C") == s)
    entries = conic.rows.entries
    offset, matrix = np.zeros(conic.rows.size), np.zeros((conic.rows.size, 1 + conic.variables))
    matrix[entries.row, entries.variable] = entries.value
    offset, matrix = matrix[:, 0], matrix[:, 1:]
    rows.append(offset + matrix @ x >= 0)
    cp.Problem(cp.Minimize(objective), [*ties, *rows]).solve(solver="CLARABEL")
    blocks = []
    for tie in ties:
        z = -np.asarray(tie.dual_value)
        blocks.append((z + z.T) / 2)
    return Point(variables=x.value, blocks=tuple(blocks), rows=rows[0].dual_value)


@pytest.mark.parametrize(
    "name", [n if n == "budgets" else pytest.param(n, marks=pytest.mark.slow) for n in FREE]
)
def test_the_formulation_in_cvxpy_is_certified_by_our_judge(name: str) -> None:
    program = normalised(name)
    made = model.build(program, formulation="nuclear")
    point = by_cvxpy(made.conic)
    family = family_of(PROBLEMS[name])
    multipliers = made.dual(point)
    bound = proved_bound(program, multipliers).value
    gram = made.gram(point)
    assert gram is not None
    optimum = nd.solve(PROBLEMS[name], gap=1e-9)
    known = family.bound(program, arrays_of(program, multipliers)).value
    assert known == pytest.approx(bound)
    scaled = float(made.conic.cost @ point.variables) * made.scale
    assert bound == pytest.approx(scaled, rel=1e-5)
    assert bound == pytest.approx(optimum.certificate.objective, rel=1e-5)


@pytest.mark.parametrize("name", FREE)
def test_scs_solves_it(name: str) -> None:
    if (reason := nuclear.missing()) is not None:
        pytest.skip(reason)
    found = nd.solve(PROBLEMS[name], backend="scs", formulation="nuclear", gap=1e-5)
    assert found.status == "optimal", found.remedy
    assert found.certificate.gap <= 1e-5


def test_who_lacks_the_cone_says_so() -> None:
    for name in ("clarabel", "cvxopt", "sdpa", "mosek"):
        if not conic_solver_is_ready(name):
            continue
        with pytest.raises(InputError) as error:
            nd.solve(PROBLEMS["florentine"], backend=name, formulation="nuclear")
        assert error.value.field == "backend"
        assert "nuclear-norm cone, which is SCS's" in error.value.got
    if nuclear.missing() is not None:
        with pytest.raises(InputError, match="built without spectral cones .*--no-binary scs"):
            nd.solve(PROBLEMS["florentine"], backend="scs", formulation="nuclear")


def conic_solver_is_ready(name: str) -> bool:
    from noisedesign.design.backends import get_backend

    return get_backend(name).availability().ready


def test_limits_and_files_have_other_formulations() -> None:
    capped = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=5), max_variance=1.5)
    with pytest.raises(InputError, match="a limit on variances"):
        nd.solve(capped, backend="scs", formulation="nuclear")
    from noisedesign.tasks.model import conic_program

    with pytest.raises(InputError) as error:
        conic_program(PROBLEMS["florentine"], formulation="nuclear")
    assert error.value.field == "formulation"
