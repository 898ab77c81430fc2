"""Handing a conic program to a solver: SCS and Clarabel its arrays, all others through CVXPY.

What CVXPY does on the way takes longer than SCS does for a small program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.base.monitor import Stop
from noisedesign.conic.data import Outcome, Point, rows_of, square_of, triangles
from noisedesign.conic.program import ConicProgram

Options = dict[str, Any]


Run = Callable[[Options], Outcome]


def through_scs(program: ConicProgram) -> Run:
    """SCS, its data made ready."""
    import scs

    data = triangles(program, upper=False)
    cone = {"l": data.rows, "s": list(data.sizes)}
    arrays = {"A": data.matrix, "b": data.offset, "c": program.cost}

    def run(options: Options) -> Outcome:
        found = scs.SCS(arrays, cone, verbose=False, **options).solve()
        info = found["info"]
        stop = {1: Stop.SOLVED, 2: Stop.INACCURATE, -5: Stop.INTERRUPTED}.get(
            info["status_val"], Stop.FAILED
        )
        return _judged(stop, info["status"], data.point(found["x"], found["y"]), info["iter"])

    return run


def through_clarabel(program: ConicProgram) -> Run:
    """Clarabel, its data made ready."""
    import clarabel
    import scipy.sparse as sp

    data = triangles(program, upper=True)
    cones = [clarabel.NonnegativeConeT(data.rows), *map(clarabel.PSDTriangleConeT, data.sizes)]
    quadratic = sp.csc_matrix((program.variables, program.variables))

    def run(options: Options) -> Outcome:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        for name, value in options.items():
            setattr(settings, name, value)
        found = clarabel.DefaultSolver(
            quadratic, program.cost, data.matrix, data.offset, cones, settings
        ).solve()
        status = str(found.status)
        stop = {"Solved": Stop.SOLVED}.get(status, Stop.INACCURATE)
        if "Infeasible" in status or status == "Unsolved":
            stop = Stop.FAILED
        return _judged(stop, status, data.point(found.x, found.z), found.iterations)

    return run


def through_cvxpy(program: ConicProgram, solver: str) -> Run:
    """Any solver of CVXPY's, the model compiled."""
    import cvxpy as cp

    x = cp.Variable(program.variables)
    matrix, offset = rows_of(program)
    rows = matrix @ x + offset >= 0
    blocks = []
    for block in program.blocks:
        matrix, offset = square_of(block, program.variables)
        shape = (block.size, block.size)
        blocks.append(cp.reshape(matrix @ x + offset, shape, order="C") >> 0)
    problem = cp.Problem(cp.Minimize(program.cost @ x), [rows, *blocks])
    problem.get_problem_data(solver)  # cached: solve() does not compile again

    def run(options: Options) -> Outcome:
        try:
            with warnings.catch_warnings():
                # "Solution may be inaccurate": whether it is, the certificate says.
                warnings.simplefilter("ignore")
                problem.solve(solver=solver, **options)
        except cp.error.SolverError as error:
            return Outcome(stop=Stop.FAILED, message=str(error).splitlines()[0])
        stop = {
            "optimal": Stop.SOLVED,
            "optimal_inaccurate": Stop.INACCURATE,
            "user_limit": Stop.INACCURATE,
        }.get(problem.status, Stop.FAILED)
        values = [x.value, rows.dual_value, *(block.dual_value for block in blocks)]
        point = None
        if all(value is not None for value in values):
            found = [np.asarray(value, dtype=np.float64) for value in values]
            point = Point(
                variables=found[0],
                rows=np.atleast_1d(found[1]),
                blocks=tuple((z + z.T) / 2 for z in found[2:]),
            )
        iterations = getattr(problem.solver_stats, "num_iters", None)
        return _judged(stop, problem.status, point, iterations)

    return run


def _judged(stop: Stop, status: str, point: Point | None, iterations: Any) -> Outcome:
    """Without numbers there is no point, and what a solver calls infeasible is none of ours."""
    if stop is Stop.FAILED or point is None or not point.finite:
        point = None
    message = f"the solver reports {status!r}" if stop is Stop.FAILED else ""
    return Outcome(stop=stop, message=message, point=point, iterations=int(iterations or 0))
