"""Spatial designs against chosen observers: solved by the conic search, judged by the account.

What the search proves is kept in coordinates of the noise, not in those of its own whitened
messages, whose basis another machine may choose otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.families.observers import (
    ObserverProblem,
    ObserverProgram,
    ObserverWitness,
    design_against,
    judge,
    lower_bound,
)
from noisedesign.families.observers.bound import ObservedNoise
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.certificate import Certificate
from noisedesign.program.design import AGAINST_OBSERVERS, Design, Provenance
from noisedesign.program.problem import SpaceProblem

_KEYS = {
    "max_variance": "limits.max_variance",
    "horizon": "observers.horizon",
    "budget": "budget.tau",
}
"""Arguments of the search and the fields of a problem that set them."""


def observer_problem(problem: SpaceProblem) -> ObserverProblem:
    """The same question as :mod:`noisedesign.families.observers` asks it."""
    return ObserverProblem(
        mixing=problem.mixing,
        horizon=problem.horizon,
        observers=problem.observers,
        max_variance=problem.max_variance,
        budget=problem.budget,
        objective=problem.objective,
    )


def solve_against(problem: SpaceProblem, *, backend: str, monitor: Monitor) -> Design | None:
    """The least noise against the observers of a problem; None where the solver found nothing.

    Raises:
        InputError: see :func:`observers.design_against`, naming the fields of the
            problem.
    """
    started = time.perf_counter()
    with _fields_of_the_problem():
        found = design_against(
            mixing=problem.mixing,
            horizon=problem.horizon,
            observers=problem.observers,
            max_variance=problem.max_variance,
            budget=problem.budget,
            objective=problem.objective,
            backend=backend,
            monitor=monitor,
        )
    if found.witness is None and found.stop is Stop.FAILED:
        return None
    witness = {}
    if found.witness is not None:
        witness = witness_arrays(found.problem.program(), found.witness)
    return Design(
        problem=problem,
        matrix=found.covariance,
        certificate=found.certificate,
        provenance=Provenance(
            method="optimal",
            backend=backend,
            status=found.stop.value,
            solve_seconds=time.perf_counter() - started,
            evaluations=len(monitor.history),
            history=tuple(monitor.history),
        ),
        witness=witness,
        trust=AGAINST_OBSERVERS,
    )


def judged(design: Design, problem: SpaceProblem) -> Certificate:
    """The certificate of what is stored: sensitivity by the account of every observer, the bound
    by the multipliers; 0 where there are none."""
    asked, bound = observer_problem(problem), 0.0
    if "observer_factors" in design.witness:
        program = asked.program()
        bound = asked.unit_error * lower_bound(program, stored_witness(program, design.witness))
    return judge(asked, design.covariance, bound=bound)


def witness_arrays(program: ObserverProgram, witness: ObserverWitness) -> dict[str, Array]:
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


def stored_witness(program: ObserverProgram, arrays: Mapping[str, Array]) -> ObserverWitness:
    """The multipliers of :func:`witness_arrays`: what of the rows lies in the row space of B_a,
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
