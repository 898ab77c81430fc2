"""The search: conic solves, repaired until they are exactly feasible, each in units of the last.

An observer in the network sees the messages of its neighbours and knows its own noise (pairwise
network DP, Cyffers et al. 2022). The least noise that keeps the budget of every victim against the
chosen observers, and against nobody else, solves a convex program: see
:mod:`noisedesign.families.observers.program`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.base.shown import Shown
from noisedesign.conic.solvers import conic_solver
from noisedesign.families.observers import model
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound, multipliers_of
from noisedesign.families.observers.program import GAP, TOLERANCE, ObserverProblem
from noisedesign.privacy.views import Algorithm
from noisedesign.program.certificate import Certificate
from noisedesign.program.family import Answer, Model
from noisedesign.program.noise import Noise

SOLVES = 3
"""Conic solves at most, each in units of the best noise so far. One is enough for a cap of some
hundred times the variance needed, the second for one of a million times, on the instances tried."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ObserverDesign(Shown):
    """A covariance and what is proved about it.

    Attributes:
        problem: what was asked.
        covariance: R, shape (n, n), squared noise, drawn afresh at every step; where the problem
            says so that of all steps, shape (nT, nT), time-major. Noise is dealt: nobody knows
            more than the values of its own.
        certificate: ``sensitivity_squared`` is the largest over observers, victims and steps, over
            its budget; ``lower_bound`` holds for every covariance that keeps budgets and cap.
        witness: the multipliers behind the bound; None where the solver came back with nothing,
            and the noise is independent.
        stop: "solved" where the gap asked for is certified, else what ended the solve.
    """

    problem: ObserverProblem
    covariance: Array
    certificate: Certificate
    witness: Multipliers | None
    stop: Stop

    @property
    def algorithm(self) -> Algorithm:
        """What runs with this noise, to account for."""
        return self.problem.algorithm(self.covariance)


def design_against(
    *, problem: ObserverProblem, backend: str = "clarabel", monitor: Monitor | None = None
) -> ObserverDesign:
    """The least noise that keeps what the observers learn of every other node within its budget.

    Minimises tr(H R) subject to G^T (B_a R B_a^T)^+ G <= tau_u for every observer a, node u outside
    its coalition and step, the exact Gaussian mechanism each of them faces (Mafalda-SGD, Theorem
    7; Koskela and Kulkarni, Lemma 6). The observers do not pool what they see unless they are one
    coalition. Small graphs and horizons only.

    The gap is infinite where the optimum is zero: noise that cancels in the objective, and that
    nobody chosen can see through.

    Args:
        problem: independent noise at its cap has to keep the budgets with room to spare, which it
            does with any cap above 1 / budget. :func:`ldp` makes the problem Whisper D-SGD's.
            Whether :func:`pndp` nodes know their own noise or count it makes no difference, as
            their own messages tell it.
        backend: a conic solver: "clarabel", "scs", "mosek", ...
        monitor: gap asked for, tolerance and time limit of the solver, and progress.

    Raises:
        InputError: see :attr:`ObserverProblem.normalized`; a cap too small; an observer that sees a
            gradient without noise; a backend that is no installed conic solver.
    """
    monitor = Monitor(gap=GAP, tolerance=TOLERANCE) if monitor is None else monitor
    solver = conic_solver(backend)

    def ask(model: Model) -> Answer:
        found = solver.solve(model.conic, monitor=monitor)
        if found.point is None:
            return Answer(stop=found.stop, message=found.message)
        return replace(model.read(found.point), stop=found.stop)

    answer, bound, witness = search(problem, ask, monitor=monitor), 0.0, None
    noises = [noise.covariance for noise in answer.noises]
    if answer.proof:
        witness = multipliers_of(problem.normalized, answer.proof)
        bound = problem.unit_error * lower_bound(problem.normalized, witness)
    covariance = noises[0] if noises else model.independent(problem)
    return ObserverDesign(
        problem=problem,
        covariance=covariance,
        certificate=judge(problem, covariance, bound=bound),
        witness=witness,
        stop=answer.stop,
    )


def search(problem: ObserverProblem, ask: Callable[[Model], Answer], *, monitor: Monitor) -> Answer:
    """The best of a few answers, by a solver that answers for the noise of a model.

    Independent noise where the search ended before it had any, and none where the solver found
    nothing.
    """
    best, noise = Answer(stop=Stop.INACCURATE), Noise.of_covariance(model.independent(problem))
    certificate, answers = judge(problem, noise.covariance, bound=0.0), []
    stop = Stop.INACCURATE
    try:
        for _ in range(SOLVES):
            answer = ask(model.in_units(problem, noise.covariance))
            answers.append(answer)
            found = next(iter(answer.noises), None)
            if found is None:
                stop = Stop.INACCURATE if best.proof else Stop.FAILED
                if answer.stop is Stop.INTERRUPTED:
                    stop = answer.stop
                break
            proved = multipliers_of(problem.normalized, answer.proof)
            bound = problem.unit_error * lower_bound(problem.normalized, proved)
            if not best.proof or bound > certificate.lower_bound:
                certificate, best = replace(certificate, lower_bound=bound), answer
            judged = judge(problem, found.covariance, bound=certificate.lower_bound)
            if judged.objective < certificate.objective:
                certificate, noise = judged, found
            monitor.report(lower=certificate.lower_bound, upper=certificate.objective)
            if certificate.gap <= monitor.gap:
                stop = Stop.SOLVED
                break
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    if stop is not Stop.SOLVED and monitor.expired:
        stop = Stop.TIME_LIMIT
    return Answer(
        stop=stop,
        noises=() if stop is Stop.FAILED else [noise],
        proof=best.proof,
        message="The solver found nothing" if stop is Stop.FAILED else "",
        build_seconds=sum(answer.build_seconds for answer in answers),
        solve_seconds=sum(answer.solve_seconds for answer in answers),
        evaluations=len(monitor.history),
        measure=lambda: answers[-1].measure() if answers else None,
    )
