"""Any cvxpy model, solved by one of the conic backends; for programs that are not (P)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from noisedesign.base.monitor import Monitor
from noisedesign.conic.solvers import conic_solver


def run(problem: Any, backend: str, monitor: Monitor) -> bool:
    """Whether the solver came back with a point and multipliers; they are judged afterwards."""
    import cvxpy as cp

    solver = conic_solver(backend)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver=solver.solver, **solver.options(monitor))
    except cp.error.SolverError:
        return False
    values = [variable.value for variable in problem.variables()]
    values += [constraint.dual_value for constraint in problem.constraints]
    return all(value is not None and np.isfinite(value).all() for value in values)
