"""The search: conic solves, repaired until they are exactly feasible, each in units of the last.

An observer in the network sees the messages of its neighbours and knows its own noise (pairwise
network DP, Cyffers et al. 2022). The least noise that keeps the budget of every victim against the
chosen observers, and against nobody else, solves a convex program: see
:mod:`noisedesign.families.observers.program`. It limits the exact Gaussian mechanism that each of
them faces (Mafalda-SGD, Theorem 7; Koskela and Kulkarni, Lemma 6). They do not pool what they see
unless they are one coalition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.observers import model
from noisedesign.families.observers.bound import judge, lower_bound, multipliers_of
from noisedesign.families.observers.program import ObserverProblem
from noisedesign.program.family import Answer, Model
from noisedesign.program.noise import Noise

SOLVES = 3
"""Conic solves at most, each in units of the best noise so far. One is enough for a cap of some
hundred times the variance needed, the second for one of a million times, on the instances tried."""


def search(problem: ObserverProblem, ask: Callable[[Model], Answer], *, monitor: Monitor) -> Answer:
    """The best of a few answers, by a solver that answers for the noise of a model.

    Independent noise where the search ended before it had any, and none where the solver found
    nothing. The gap is infinite where the optimum is zero: noise that cancels in the objective, and
    that nobody chosen can see through.

    Args:
        problem: independent noise at its cap has to keep the budgets with room to spare, which it
            does with any cap above 1 / budget. Whether nodes of
            :func:`noisedesign.privacy.views.pndp` know their own noise or count it makes no
            difference, as their own messages tell it;
            :func:`noisedesign.privacy.views.ldp` makes the problem Whisper D-SGD's.

    Raises:
        InputError: see :attr:`ObserverProblem.normalized`; a cap too small; an observer that sees a
            gradient without noise.
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
