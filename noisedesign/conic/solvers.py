"""Interior-point and first-order conic solvers: SCS and Clarabel directly, others by CVXPY."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic import nuclear
from noisedesign.conic.data import Outcome, Point, rows_of, square_of, triangles
from noisedesign.conic.program import Assembly, ConicProgram, ModelSize, constant, lower_triangle

Options = dict[str, Any]
Run = Callable[[Options], Outcome]
PARTS = 2  # inequalities that interior-point methods get for one: it halves the time of factors


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a solver can run here and, where not, what to do about it."""

    installed: bool
    version: str = ""
    licensed: bool = True
    remedy: str = ""

    @property
    def ready(self) -> bool:
        return self.installed and self.licensed


@dataclass(frozen=True, kw_only=True)
class ConicSolver:
    """One conic solver, by its name in CVXPY: how to ask it for an accuracy and for a time limit.

    ``accuracy`` and ``limit`` turn a relative tolerance and seconds into options (None: stopping
    its process will do); ``memory`` is the least a model takes, in bytes. ``tuned`` gives options
    of balanced programs, by the gap asked for; ``parts`` is how many inequalities a model is cut
    into. ``direct`` hands it arrays, in place of CVXPY. ``cones`` say, by formulations that only
    some solvers take, why an installed solver lacks one, or None."""

    name: str
    solver: str
    distribution: str
    remedy: str
    accuracy: Callable[[float], Options]
    memory: Callable[[ModelSize], int]
    limit: Callable[[float], Options] | None = None
    always: Options | None = None
    licence: Callable[[], str | None] | None = None
    direct: Callable[[ConicProgram], Run] | None = None
    parts: int = PARTS
    tuned: Callable[[ConicProgram, float | None], Options] | None = None
    cones: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)

    def lacks(self, formulation: str) -> str | None:
        """Say why it does not take a formulation, or None."""
        if formulation != nuclear.NUCLEAR:
            return None
        has = self.cones.get(formulation)
        lacking = "its nuclear-norm cone, which is SCS's" if has is None else has()
        return None if lacking is None else f"formulation {formulation!r}, for want of {lacking}"

    def load(self) -> None:
        """Solve something small, so that whatever is imported late is imported now."""
        assembly = Assembly()
        x = assembly.symmetric("X", 2, cost=np.eye(2), meaning="at least the identity")
        assembly.block(2, [lower_triangle(x), constant(-np.eye(2))])
        self.solve(assembly.finished(formulation="first"), monitor=Monitor(gap=0.1))

    def availability(self) -> Availability:
        # Only a missing distribution reads as "not installed": a broken import must surface.
        try:
            version = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return Availability(installed=False, licensed=False, remedy=self.remedy)
        missing = (self.licence() if self.licence is not None else None) or ""
        return Availability(installed=True, version=version, licensed=not missing, remedy=missing)

    def options(self, monitor: Monitor, program: ConicProgram | None = None) -> Options:
        """Options for the accuracy and time that the monitor allows, and for the program."""
        options: Options = dict(self.always or {})
        if monitor.tolerance is not None:
            options.update(self.accuracy(monitor.tolerance))
        if self.limit is not None and monitor.time_limit is not None:
            options.update(self.limit(max(monitor.remaining, 0.01)))
        # MOSEK nests its parameters: those of accuracy and of the limit go into one dictionary.
        nested = {key: options.pop(key) for key in tuple(options) if key.startswith("MSK_")}
        if nested:
            options["mosek_params"] = nested
        if program is not None and program.balanced and self.tuned is not None:
            options |= self.tuned(program, None if monitor.tolerance is None else monitor.gap)
        return options

    def solve(self, program: ConicProgram, *, monitor: Monitor) -> Outcome:
        """The point it finds, at a looser tolerance where it breaks down at that asked for."""
        started = time.perf_counter()
        through = self.direct or partial(through_cvxpy, solver=self.solver)
        ready = through(program)
        built = time.perf_counter()
        iterations, asked = 0, monitor
        if monitor.tolerance is not None and program.margin != 1:
            asked = replace(monitor, tolerance=monitor.tolerance / program.margin)
        while True:
            try:
                found = ready(self.options(asked, program))
            except KeyboardInterrupt:
                found = Outcome(stop=Stop.INTERRUPTED)
            iterations += found.iterations
            tolerance = asked.tolerance
            if found.stop is not Stop.FAILED or tolerance is None or tolerance > 2e-7:
                break
            if asked.expired:
                break
            asked = replace(asked, gap=asked.gap * 10, tolerance=tolerance * 10)  # a digit less
        stop = found.stop
        # Some solvers report a limit of time as a failure, others as one of iterations.
        if stop in (Stop.INACCURATE, Stop.FAILED) and monitor.expired:
            stop = Stop.TIME_LIMIT
        return replace(
            found,
            stop=stop,
            iterations=iterations,
            build_seconds=built - started,
            solve_seconds=time.perf_counter() - built,
        )


def _mosek_licence() -> str | None:
    """Say what to do about a missing licence, or None where one can be checked out."""
    mosek = importlib.import_module("mosek")
    try:
        with mosek.Env() as environment:
            environment.checkoutlicense(mosek.feature.pts)
    except mosek.Error as error:
        return (
            f"no licence ({error.errno}). Free academic and trial licences: "
            "https://www.mosek.com/license/request; save it as ~/mosek/mosek.lic or name it in "
            "MOSEKLM_LICENSE_FILE"
        )
    return None


def _tuned_scs(program: ConicProgram, gap: float | None) -> Options:
    """Options of SCS in balanced coordinates; where the bound is flat, the loosest."""
    options: Options = {"acceleration_interval": 1, "scale": 1.0 if program.flat else 0.3}
    if gap is not None:
        tolerance = math.sqrt(gap) / 30 if program.flat else gap / 30
        options |= {"eps_abs": tolerance, "eps_rel": tolerance}
    return options


CLARABEL_TOLERANCES = ("tol_gap_abs", "tol_gap_rel", "tol_feas")


def through_scs(program: ConicProgram) -> Run:
    """SCS, its data made ready."""
    import scs

    data = nuclear.penalised(program) if program.penalty else triangles(program, upper=False)
    sizes = ("nuc_m", "nuc_n") if program.penalty else ("s",)
    cone = {"l": data.rows} | {key: list(data.sizes) for key in sizes}
    arrays = {"A": data.matrix, "b": data.offset, "c": data.cost}

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
    rows, blocks = [], []
    if program.rows.size:  # CVXPY 1.8.0 and older refuse a constraint on nothing
        matrix, offset = rows_of(program)
        rows.append(matrix @ x + offset >= 0)
    for block in program.blocks:
        matrix, offset = square_of(block, program.variables)
        shape = (block.size, block.size)
        blocks.append(cp.reshape(matrix @ x + offset, shape, order="C") >> 0)
    problem = cp.Problem(cp.Minimize(program.cost @ x), [*rows, *blocks])
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
        multipliers = rows[0].dual_value if rows else np.empty(0)
        values = [x.value, multipliers, *(block.dual_value for block in blocks)]
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
    """Drop points without numbers; what a solver calls infeasible is none of our programs."""
    if stop is Stop.FAILED or point is None or not point.finite:
        point = None
    message = f"the solver reports {status!r}" if stop is Stop.FAILED else ""
    return Outcome(stop=stop, message=message, point=point, iterations=int(iterations or 0))


CONIC_SOLVERS: tuple[ConicSolver, ...] = (
    ConicSolver(
        name="scs", solver="SCS", distribution="scs",
        remedy="pip install scs",
        accuracy=lambda tol: {"eps_abs": tol, "eps_rel": tol},
        memory=lambda model: 64 * model.entries,
        limit=lambda seconds: {"time_limit_secs": seconds},
        always={"max_iters": 1_000_000},
        direct=through_scs, parts=1, tuned=_tuned_scs,
        cones={nuclear.NUCLEAR: nuclear.missing},
    ),
    ConicSolver(
        name="clarabel", solver="CLARABEL", distribution="clarabel",
        remedy="pip install clarabel",
        accuracy=lambda tol: dict.fromkeys(CLARABEL_TOLERANCES, tol),
        memory=lambda model: 48 * model.entry_pairs,
        limit=lambda seconds: {"time_limit": seconds},
        direct=through_clarabel,
        # Answers of interior points are certified to up to three times their tolerance.
        tuned=lambda _, gap: {} if gap is None else dict.fromkeys(CLARABEL_TOLERANCES, gap / 3),
    ),
    ConicSolver(
        name="mosek", solver="MOSEK", distribution="Mosek",
        remedy="pip install 'noisedesign[mosek]', and a licence from "
        "https://www.mosek.com/license/request",
        accuracy=lambda tol: {
            "MSK_DPAR_INTPNT_CO_TOL_REL_GAP": tol,
            "MSK_DPAR_INTPNT_CO_TOL_PFEAS": tol,
            "MSK_DPAR_INTPNT_CO_TOL_DFEAS": tol,
        },
        memory=lambda model: 4 * model.variables**2,
        limit=lambda seconds: {"MSK_DPAR_OPTIMIZER_MAX_TIME": seconds},
        # An answer MOSEK is not sure of is judged like any other.
        always={"accept_unknown": True},
        licence=_mosek_licence,
    ),
    ConicSolver(
        name="cvxopt", solver="CVXOPT", distribution="cvxopt",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"abstol": tol, "reltol": tol, "feastol": tol},
        memory=lambda model: 16 * model.variables * model.entries,
    ),
    ConicSolver(
        name="sdpa", solver="SDPA", distribution="sdpa-python",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"epsilonStar": tol, "epsilonDash": tol},
        memory=lambda model: 8 * model.variables**2,
    ),
)  # fmt: skip


def conic_solver(name: str) -> ConicSolver:
    """Return the conic solver of that name, or raise InputError where none runs here."""
    solver = next((solver for solver in CONIC_SOLVERS if solver.name == name), None)
    if solver is None or not solver.availability().ready:
        expected = "an installed conic solver"
        remedy = "" if solver is None else solver.availability().remedy
        raise InputError("backend", expected=expected, got=repr(name), remedy=remedy)
    return solver
