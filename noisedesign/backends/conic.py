"""Interior-point and first-order conic solvers through cvxpy."""

from __future__ import annotations

import importlib
import importlib.metadata
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noisedesign.backends.base import Answer, Availability, Monitor, Stop
from noisedesign.formulations import Program

Options = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ConicBackend:
    """One cvxpy solver: how to ask it for an accuracy and for a time limit.

    ``accuracy`` turns a relative tolerance into the solver's options; ``limit`` turns seconds into
    options, None where the solver has no such option and only stopping its process will do.
    """

    name: str
    solver: str
    distribution: str
    remedy: str
    accuracy: Callable[[float], Options]
    limit: Callable[[float], Options] | None = None
    always: Options | None = None
    licence: Callable[[], str | None] | None = None

    @property
    def formulations(self) -> tuple[str, ...]:
        return ("compact", "covariance", "paper")

    def takes(self) -> str:
        return "space (with or without limits), time under (k, b) participation; small sizes"

    def refusal(self, program: Program, formulation: str) -> str | None:
        from noisedesign.backends import conic_model

        return conic_model.refusal(program, formulation)

    def availability(self) -> Availability:
        # Only a missing distribution reads as "not installed": a broken import must surface.
        try:
            version = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return Availability(installed=False, licensed=False, remedy=self.remedy)
        problem = self.licence() if self.licence is not None else None
        return Availability(
            installed=True, version=version, licensed=problem is None, remedy=problem or ""
        )

    def options(self, monitor: Monitor) -> Options:
        """Solver options for the accuracy and time that the monitor allows."""
        options: Options = dict(self.always or {})
        if monitor.tolerance is not None:
            options.update(self.accuracy(monitor.tolerance))
        if self.limit is not None and monitor.time_limit is not None:
            options.update(self.limit(max(monitor.remaining, 0.01)))
        return _merged(options)

    def solve(self, program: Program, *, monitor: Monitor, formulation: str) -> Answer:
        import cvxpy as cp

        from noisedesign.backends import conic_model, cvxpy_errors

        started = time.perf_counter()
        model = conic_model.build(program, formulation=formulation)
        model.problem.get_problem_data(self.solver)  # cached: solve() does not compile again
        built = time.perf_counter()
        stop, message = Stop.FAILED, ""
        try:
            with warnings.catch_warnings():
                # "Solution may be inaccurate": whether it is, the certificate says.
                warnings.simplefilter("ignore")
                model.problem.solve(solver=self.solver, **self.options(monitor))
            stop, message = _stop_of(model.problem.status, monitor)
        except cp.error.SolverError as error:
            # So does cvxpy report some solvers that ran out of time.
            stop = Stop.TIME_LIMIT if monitor.expired else Stop.FAILED
            message = str(error).splitlines()[0]
        except KeyboardInterrupt:
            stop = Stop.INTERRUPTED
        stats = model.problem.solver_stats
        return Answer(
            stop=stop,
            gram=model.gram(),
            dual=model.dual(),
            message=message,
            build_seconds=built - started,
            solve_seconds=time.perf_counter() - built,
            evaluations=int(getattr(stats, "num_iters", None) or 0),
            measure=lambda: cvxpy_errors.errors_of(model.problem),
        )


def _merged(options: Options) -> Options:
    """MOSEK nests its parameters: those of accuracy and of the limit go into one dictionary."""
    nested: Options = {}
    flat: Options = {}
    for key, value in options.items():
        if key.startswith("MSK_"):
            nested[key] = value
        else:
            flat[key] = value
    return {**flat, "mosek_params": nested} if nested else flat


def _stop_of(status: str, monitor: Monitor) -> tuple[Stop, str]:
    """One table from cvxpy's statuses to ours; its "user_limit" may also be one of iterations."""
    table = {
        "optimal": Stop.SOLVED,
        "optimal_inaccurate": Stop.INACCURATE,
        "user_limit": Stop.INACCURATE,
    }
    stop = table.get(status, Stop.FAILED)
    if stop is Stop.INACCURATE and monitor.expired:
        stop = Stop.TIME_LIMIT
    return stop, "" if stop is not Stop.FAILED else f"the solver reports {status!r}"


def _mosek_licence() -> str | None:
    """What to do about a missing licence, or None where one can be checked out."""
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


CONIC_BACKENDS: tuple[ConicBackend, ...] = (
    ConicBackend(
        name="scs", solver="SCS", distribution="scs",
        remedy="pip install scs",
        accuracy=lambda tol: {"eps_abs": tol, "eps_rel": tol},
        limit=lambda seconds: {"time_limit_secs": seconds},
        always={"max_iters": 1_000_000},
    ),
    ConicBackend(
        name="clarabel", solver="CLARABEL", distribution="clarabel",
        remedy="pip install clarabel",
        accuracy=lambda tol: {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol},
        limit=lambda seconds: {"time_limit": seconds},
    ),
    ConicBackend(
        name="mosek", solver="MOSEK", distribution="Mosek",
        remedy="pip install 'noisedesign[mosek]', and a licence from "
        "https://www.mosek.com/license/request",
        accuracy=lambda tol: {
            "MSK_DPAR_INTPNT_CO_TOL_REL_GAP": tol,
            "MSK_DPAR_INTPNT_CO_TOL_PFEAS": tol,
            "MSK_DPAR_INTPNT_CO_TOL_DFEAS": tol,
        },
        limit=lambda seconds: {"MSK_DPAR_OPTIMIZER_MAX_TIME": seconds},
        # An answer MOSEK is not sure of is judged like any other.
        always={"accept_unknown": True},
        licence=_mosek_licence,
    ),
    ConicBackend(
        name="cvxopt", solver="CVXOPT", distribution="cvxopt",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"abstol": tol, "reltol": tol, "feastol": tol},
    ),
    ConicBackend(
        name="sdpa", solver="SDPA", distribution="sdpa-python",
        remedy="pip install 'noisedesign[solvers]'",
        accuracy=lambda tol: {"epsilonStar": tol, "epsilonDash": tol},
    ),
)  # fmt: skip
