"""The data of a cvxpy model and its answer, as DIMACS error measures take them."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from noisedesign._checks import Array
from noisedesign.backends import dimacs
from noisedesign.backends.dimacs import Block, Cone, Errors


def errors_of(problem: cp.Problem) -> Errors | None:
    """DIMACS errors of a minimisation under linear (in)equalities and linear matrix inequalities.

    Coefficients are those of the model as it is written; unknowns are the entries of its variables,
    of symmetric ones those on and above the diagonal, as in files for conic solvers. None where the
    solver left no point, no multipliers, or something else than numbers.
    """
    variables = problem.variables()
    values = [variable.value for variable in variables]
    multipliers = [constraint.dual_value for constraint in problem.constraints]
    if any(value is None or not np.isfinite(value).all() for value in (*values, *multipliers)):
        return None
    unknowns = [_unknowns(variable) for variable in variables]
    # Every entry of a symmetric variable is one of its unknowns: averaged, since solvers round.
    point = np.concatenate([
        (taken.T @ _flat(value)) / np.asarray(taken.sum(axis=0)).ravel()
        for taken, value in zip(unknowns, values, strict=True)
    ])  # fmt: skip

    def linear(expression: cp.Expression) -> tuple[Any, Array]:
        """Coefficients, shape (rows, unknowns), and the value where all unknowns are 0."""
        gradient = expression.grad
        columns = []
        for variable, taken in zip(variables, unknowns, strict=True):
            shape = (variable.size, expression.size)
            found = gradient.get(variable, sp.csr_array(shape))
            if not sp.issparse(found):  # a number, where both are scalars
                found = np.reshape(found, shape)
            columns.append(sp.csr_array(found).T @ taken)
        coefficients = sp.csr_array(sp.hstack(columns))
        return coefficients, _flat(expression.value) - coefficients @ point

    objective, _ = linear(problem.objective.expr)
    blocks = []
    for constraint, multiplier in zip(problem.constraints, multipliers, strict=True):
        if isinstance(constraint, cp.constraints.PSD):
            coefficients, offset = linear(constraint.args[0])
            coefficients, cone = -coefficients, Cone.SEMIDEFINITE
        else:  # written as expression <= 0 or expression == 0
            coefficients, offset = linear(constraint.expr)
            is_equation = isinstance(constraint, cp.constraints.Equality)
            offset, cone = -offset, Cone.ZERO if is_equation else Cone.NONNEGATIVE
        blocks.append(Block(
            cone=cone, offset=offset, coefficients=coefficients, multiplier=_flat(multiplier)
        ))  # fmt: skip
    return dimacs.errors(objective=objective.toarray().ravel(), point=point, blocks=blocks)


def _flat(value: Any) -> Array:
    """Entries column after column, as cvxpy counts them."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64)).ravel(order="F")


def _unknowns(variable: cp.Variable) -> Any:
    """Which unknown each entry of a variable is: ones in an array, shape (entries, unknowns)."""
    if variable.ndim < 2 or not variable.attributes["symmetric"]:
        return sp.eye_array(variable.size, format="csr")
    size = variable.shape[0]
    number = np.zeros((size, size), dtype=np.intp)
    rows, columns = np.triu_indices(size)
    number[rows, columns] = number[columns, rows] = np.arange(len(rows))
    ones = np.ones(variable.size)
    return sp.csr_array((ones, (np.arange(variable.size), number.ravel(order="F"))))
