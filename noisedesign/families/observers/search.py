"""The search: conic solves, repaired until they are exactly feasible, each in units of the last.

An observer in the network sees the messages of its neighbours and knows its own noise (pairwise
network DP, Cyffers et al. 2022). The least noise that keeps the budget of every victim against the
chosen observers, and against nobody else, solves a convex program: see
:mod:`noisedesign.families.observers.bound`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.base.shown import Shown
from noisedesign.families.observers import conic
from noisedesign.families.observers.bound import ObserverWitness, lower_bound
from noisedesign.families.observers.problem import GAP, TOLERANCE, ObserverProblem, judge
from noisedesign.privacy.views import Algorithm
from noisedesign.program.certificate import Certificate

SOLVES = 3
"""Conic solves at most, each in units of the best noise so far. One is enough for a cap of some
hundred times the variance needed, the second for one of a million times, on the instances tried."""

MARGIN = 1e-12
"""Relative slack left in cap and budgets, so that recomputed numbers cannot exceed them."""

ROOM = 2.0
"""Factor on the variance of independent noise beyond what its budgets ask, as far as the cap has
room: answers are repaired with it, and half its sensitivity to spare does so at little cost."""


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
    witness: ObserverWitness | None
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
        InputError: see :meth:`ObserverProblem.program`; a cap too small; an observer that sees a
            gradient without noise; a backend that is no installed conic solver.
    """
    monitor = Monitor(gap=GAP, tolerance=TOLERANCE) if monitor is None else monitor
    program, units = problem.program(), np.multiply.outer(problem.unit, problem.unit)
    noise = independent = _independent(problem)
    certificate, witness = judge(problem, noise, bound=0.0), None
    stop = Stop.INACCURATE
    try:
        for _ in range(SOLVES):
            answer = conic.solve(program, units=noise / units, backend=backend, monitor=monitor)
            if answer is None:
                stop = Stop.FAILED if witness is None else Stop.INACCURATE
                break
            bound = problem.unit_error * lower_bound(program, answer[1])
            if witness is None or bound > certificate.lower_bound:
                certificate, witness = replace(certificate, lower_bound=bound), answer[1]
            found = _repaired(problem, answer[0] * units, independent)
            judged = judge(problem, found, bound=certificate.lower_bound)
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
    return ObserverDesign(
        problem=problem, covariance=noise, certificate=certificate, witness=witness, stop=stop
    )


# --- exactly feasible noise -------------------------------------------------------------------


def _independent(problem: ObserverProblem) -> Array:
    """Independent noise that keeps the budgets with room to spare, within the cap."""
    largest = np.diag(problem.cap) * (1 - MARGIN)
    worst, whose = problem.worst(largest)
    if np.isinf(worst):
        raise InputError(
            "observers",
            expected="observers from whom noise hides every gradient",
            got=whose,
            remedy="Some of it is seen without any noise that the observer does not know.",
        )
    if not worst < 1:
        raise InputError(
            "max_variance",
            expected="a cap at which independent noise keeps every budget with room to spare",
            got=f"{whose}: {worst:.6g} times its budget",
            remedy=f"Above {float((1 / problem.budget).max()):.6g}, 1 / budget, it always does.",
        )
    return np.asarray(largest * min(1.0, ROOM * worst))


def _repaired(problem: ObserverProblem, found: Array, independent: Array) -> Array:
    """The answer made positive semidefinite, brought within the cap and then within the budgets.

    Squared sensitivity is convex in the covariance, so mixing in independent noise that has room
    to spare brings it within the budgets and keeps it within the cap. Noise to spare is taken away.
    """
    values, vectors = np.linalg.eigh(_linalg.symmetrized(found))
    noise = (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrink = np.sqrt(1 / np.maximum(np.diagonal(noise) / (problem.cap * (1 - MARGIN)), 1.0))
    noise = _linalg.symmetrized(noise * np.multiply.outer(shrink, shrink))
    spare, share = 1 - problem.worst(independent)[0], settings.EPS
    while (worst := problem.worst(noise)[0]) > 1:
        # Twice as far each time at least, so it ends, with independent noise if nothing else.
        needed = 0.0 if np.isinf(worst) else (worst - 1) / (worst - 1 + spare)
        share = min(1.0, max(needed, 2 * share))
        noise = (1 - share) * noise + share * independent
    less = noise * min(1.0, worst * (1 + MARGIN))
    return less if problem.worst(less)[0] <= 1 else noise
