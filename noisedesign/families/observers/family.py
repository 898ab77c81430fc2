"""Noise in space against chosen observers: solved by the conic search, judged by the account.

What the search proves is kept in coordinates of the noise, not in those of its own whitened
messages, whose basis another machine may choose otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.observers.bound import (
    ObservedNoise,
    ObserverProgram,
    ObserverWitness,
    lower_bound,
)
from noisedesign.families.observers.problem import GAP, TOLERANCE, ObserverProblem, judge
from noisedesign.program.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.program.family import (
    ANY,
    Answer,
    Arrays,
    ArraySpec,
    Family,
    Model,
    one_formulation,
)
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem

SOLVER = "clarabel"
"""What solves these problems where no conic solver is named."""

_KEYS = {
    "max_variance": "limits.max_variance",
    "horizon": "observers.horizon",
    "budget": "budget.tau",
}
"""Arguments of the search and the fields of a problem that set them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """The question as it is asked, and as a program, which is made when it is needed."""

    asked: ObserverProblem

    @cached_property
    def program(self) -> ObserverProgram:
        return self.asked.program()


class Observers(Family):
    name = "observers"
    trust = "observers"
    gap = GAP
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "observer_ranks": ArraySpec("rows of every F", ANY),
        "observer_factors": ArraySpec("F B, N = F^T F", ANY),
        "observer_weights": ArraySpec("v of every observer", ANY),
        "dual_cap": ArraySpec("w", "n"),
    }

    def program(self, problem: SpaceProblem) -> Observed:
        with _fields_of_the_problem():
            asked = ObserverProblem(
                mixing=problem.mixing,
                horizon=problem.horizon,
                observers=problem.observers,
                max_variance=problem.max_variance,
                budget=problem.budget,
                objective=problem.objective,
            )
        return Observed(asked=asked)

    def without_options(self, program: Observed) -> str | None:
        return "those against observers"

    def solve(self, program: Observed, *, monitor: Monitor, solver: str = SOLVER) -> Answer:
        from noisedesign.families.observers.search import design_against

        monitor.tolerance = min(TOLERANCE, monitor.tolerance or TOLERANCE)
        with _fields_of_the_problem():
            found = design_against(problem=program.asked, backend=solver, monitor=monitor)
        nothing = found.witness is None and found.stop is Stop.FAILED
        return Answer(
            stop=found.stop,
            noises=() if nothing else [Noise.of_covariance(found.covariance)],
            proof={} if found.witness is None else arrays_of(program.program, found.witness),
            message="The solver found nothing" if nothing else "",
            evaluations=len(monitor.history),
            solver=solver,
        )

    def model(
        self,
        program: Observed,
        *,
        formulation: str | None = None,
        scaled: bool = False,
        parts: int = 1,
    ) -> Model:
        from noisedesign.families.observers import model

        one_formulation(formulation, "covariance")
        conic = model.covariance(model.in_own_units(program.asked)).finished(
            name="", formulation="covariance", remarks=()
        )
        return Model(conic=conic, read=lambda point: Answer(stop=Stop.FAILED))

    def bound(
        self,
        program: Observed,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        if not set(self.proof) <= set(proof):
            return NOTHING
        witness = witness_of(program.program, proof)
        return ProvedBound(program.asked.unit_error * lower_bound(program.program, witness), 0.0)

    def judge(self, program: Observed, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        """By the account of every observer."""
        return judge(program.asked, noise.covariance, bound=bound)

    def independent(self, program: Observed) -> Noise:
        return Noise.of_covariance(np.diag(1 / program.asked.budget))

    def independent_error(self, problem: SpaceProblem) -> float:
        return float(np.sum(np.diagonal(problem.gram) / problem.budget))

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": len(problem.mixing)}


def arrays_of(program: ObserverProgram, witness: ObserverWitness) -> dict[str, Array]:
    """Multipliers as they are stored, observer after observer.

    ``observer_ranks`` holds the number of rows of every F_a; ``observer_factors`` the rows F_a B_a,
    one number a coordinate of the noise; ``observer_weights`` v_a; ``dual_cap`` w.
    """
    rows = [
        factor @ _flat(seen)
        for factor, seen in zip(witness.factors, program.observers, strict=True)
    ]
    return {
        "observer_ranks": np.array([len(r) for r in rows], dtype=np.float64),
        "observer_factors": np.concatenate([r.ravel() for r in rows]),
        "observer_weights": np.concatenate(witness.weights),
        "dual_cap": witness.cap,
    }


def witness_of(program: ObserverProgram, arrays: Arrays) -> ObserverWitness:
    """The multipliers of :func:`arrays_of`: what of the rows lies in the row space of B_a,
    whose rows are orthonormal.

    Raises:
        InputError: their numbers of entries are not those of the observers.
    """
    ranks = [int(rank) for rank in arrays["observer_ranks"]]
    shapes = [
        (rank, _flat(seen).shape[1]) for rank, seen in zip(ranks, program.observers, strict=False)
    ]
    counts = [seen.signals.shape[1] for seen in program.observers]
    flat, weights = arrays["observer_factors"], arrays["observer_weights"]
    sizes = [rows * columns for rows, columns in shapes]
    if len(ranks) != len(program.observers) or min(ranks) < 0 or sum(sizes) != len(flat):
        _refuse("observer_factors", f"rows of {len(program.observers)} observers", flat)
    if sum(counts) != len(weights):
        _refuse("observer_weights", f"{sum(counts)} entries", weights)
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return ObserverWitness(
        factors=tuple(
            part.reshape(shape) @ _flat(seen).T
            for part, shape, seen in zip(parts, shapes, program.observers, strict=True)
        ),
        weights=tuple(np.split(weights, np.cumsum(counts)[:-1])),
        cap=arrays["dual_cap"],
    )


def _flat(seen: ObservedNoise) -> Array:
    """B_a with its blocks side by side, shape (m, k p)."""
    return np.asarray(np.concatenate(list(seen.responses), axis=1))


def _refuse(name: str, expected: str, array: Array) -> None:
    raise InputError(f"design file.{name}", expected=expected, got=f"shape {array.shape}")


@contextmanager
def _fields_of_the_problem() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if error.field not in _KEYS:
            raise
        raise InputError(
            _KEYS[error.field], expected=error.expected, got=error.got, remedy=error.remedy
        ) from error


FAMILY = Observers()
