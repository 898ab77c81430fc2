"""Noise against chosen observers by conic solvers, each time in units of the best noise so far.

Variances at an optimum spread from what the budgets ask to what the cap allows. Solvers lose the
digits of that ratio, unless the unknown is Q in R = S^1/2 Q S^1/2 with an S that already spreads
alike, and what an observer sees is whitened by K_a(S):

    minimise <S^1/2 H S^1/2, Q>  subject to  [[K'_a(Q), G'_a], [G'_a^T, X_a]] >= 0,
    diag(X_a) <= 1,  diag(S^1/2 Q S^1/2) <= cap,  Q >= 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic.data import Point
from noisedesign.conic.program import (
    CONSTANT,
    Assembly,
    Numbers,
    Piece,
    constant,
    lower_triangle,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import covariance_variables, sums_at_most
from noisedesign.families.family import Answer, Model
from noisedesign.families.observers.bound import (
    Multipliers,
    arrays_of,
    judge,
    lower_bound,
    multipliers_of,
)
from noisedesign.families.observers.observed import covariances
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.forms import Noise

# Rows of the largest matrix inequality handed to a conic solver, whose factor for it is as large as
# the square of its entries: 200 MB for each observer.
LARGEST = 100


def search(program: ObserverProgram, ask: Callable[[Model], Answer], *, monitor: Monitor) -> Answer:
    """Return the best of up to three answers by a conic solver, repaired until exactly feasible.

    One solve is enough for a cap of some hundred times the variance needed, a second for one of a
    million times. Noise is independent where the search ended early, and none where the solver
    found nothing. The gap is infinite where the optimum is zero."""
    best, noise = Answer(stop=Stop.INACCURATE), Noise.of_covariance(program.independent())
    certificate, answers = judge(program, noise.covariance, bound=0.0), []
    stop = Stop.INACCURATE
    try:
        for _ in range(3):
            answer = ask(in_units(program, noise.covariance))
            answers.append(answer)
            found = next(iter(answer.noises), None)
            if found is None:
                stop = Stop.INACCURATE if best.proof else Stop.FAILED
                if answer.stop is Stop.INTERRUPTED:
                    stop = answer.stop
                break
            proved = multipliers_of(program.normalized, answer.proof)
            bound = program.unit_error * lower_bound(program.normalized, proved)
            if not best.proof or bound > certificate.lower_bound:
                certificate, best = replace(certificate, lower_bound=bound), answer
            judged = judge(program, found.covariance, bound=certificate.lower_bound)
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


def stated(program: ObserverProgram) -> Model:
    """The model in the units of the problem: Q is R."""
    whitenings = [np.eye(len(seen.signals)) for seen in program.normalized.observers]
    root, error = np.diag(1 / program.unit), 1 / program.unit_error
    return _model(program, _Units(root, error, whitenings, program.unit**2))


def in_units(program: ObserverProgram, noise: Array | None = None) -> Model:
    """The model in units of a covariance S, shape (n, n), squared noise, by default independent."""
    normalized = program.normalized
    noise = program.independent() if noise is None else noise
    values, vectors = np.linalg.eigh(noise / np.multiply.outer(program.unit, program.unit))
    # What noise does not reach at all would divide by zero, and the next answer may reach it.
    values = np.maximum(values, 1e-10 * values[-1])
    root = _linalg.symmetrized((vectors * np.sqrt(values)) @ vectors.T)
    error = float(np.sum((root @ normalized.gram) * root))
    told = covariances(normalized.observers, root @ root)
    whitenings = [np.linalg.inv(np.linalg.cholesky(covariance)) for covariance in told]
    return _model(program, _Units(root, error, whitenings, 1 / normalized.cap))


class _Units(NamedTuple):
    """Q in R = ``root`` Q ``root``, what an observer sees multiplied by its whitening, squared
    error divided by ``error``, and row i of the cap multiplied by ``rows``."""

    root: Array
    error: float
    whitenings: Sequence[Array]
    rows: Array


def _model(problem: ObserverProgram, units: _Units) -> Model:
    """The model in units relative to those of ``problem.normalized``."""
    program, root, size = problem.normalized, units.root, problem.size
    largest = max(sum(seen.signals.shape) for seen in program.observers)
    if largest > LARGEST:
        raise InputError(
            "observers.horizon",
            expected=f"matrix inequalities of at most {LARGEST} rows",
            got=f"{largest} over {problem.horizon} steps",
            remedy="Ask for a shorter horizon, or observers that receive fewer messages.",
        )
    entries = sum(
        triangle(rows) * triangle(size) + rows * signals + triangle(signals) + 2 * signals
        for rows, signals in (seen.signals.shape for seen in program.observers)
    )
    of = f"{len(program.observers)} observers of noise of {size} coordinates"
    require_size(2 * triangle(size) + 2 * size + entries, of=of)
    assembly = Assembly()
    gram = _linalg.symmetrized(root @ program.gram @ root) / units.error
    r = covariance_variables(assembly, gram)
    assembly.block(size, [lower_triangle(r)])
    for seen, whitening in zip(program.observers, units.whitenings, strict=True):
        rows, count = seen.signals.shape
        told = assembly.symmetric("X", count, meaning="what one observer can tell, squared")
        own = _seen(whitening @ seen.responses @ root, r)
        signals = constant((whitening @ seen.signals).T, row=rows)
        assembly.block(rows + count, [*own, signals, lower_triangle(told, at=rows)])
        sums_at_most(assembly, np.diagonal(told)[:, None], np.ones(count))
    p, q = np.tril_indices(size)
    node = np.arange(size)[:, None]
    weights = root[:, p] * root[:, q] * np.where(p == q, 1.0, 2.0) * units.rows[:, None]
    limit = (CONSTANT, node[:, 0], node[:, 0], program.cap * units.rows)
    assembly.at_least_zero(size, [limit, (r[p, q], node, node, -weights)])

    def answer(point: Point) -> Answer:
        found = read(units, point, r)
        if found is None:
            return Answer(stop=Stop.FAILED)
        noise = problem.repaired(found[0] * np.multiply.outer(problem.unit, problem.unit))
        proof = arrays_of(program, found[1])
        return Answer(stop=Stop.SOLVED, noises=[Noise.of_covariance(noise)], proof=proof)

    return Model(conic=assembly.finished(formulation="covariance"), read=answer)


def read(units: _Units, point: Point, r: Numbers) -> tuple[Array, Multipliers] | None:
    """R and multipliers, nearly feasible, in the units of the program, from the matrices of the
    multipliers: R >= 0 first, then the observers; rows of the budgets first, then of the cap."""
    factors, weights = [], []
    for multiplier, whitening in zip(point.blocks[1:], units.whitenings, strict=True):
        rows = len(whitening)
        values, vectors = np.linalg.eigh(units.error * multiplier[:rows, :rows])
        factors.append((np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T) @ whitening)
        weights.append(units.error * np.diagonal(multiplier)[rows:])
    prices = units.error * point.rows[-len(r) :] * units.rows
    noise = units.root @ point.variables[r - 1] @ units.root
    return noise, Multipliers(factors=tuple(factors), weights=tuple(weights), cap=prices)


def _seen(responses: Array, r: Numbers) -> list[Piece]:
    """The lower triangle of K(R) = sum_j B_j R B_j^T, row by row; ``responses`` are B."""
    p, q = np.tril_indices(len(r))
    found: list[Piece] = []
    for row in range(responses.shape[1]):
        own, others = responses[:, row], responses[:, : row + 1]
        products = np.einsum("jp,jnq->npq", own, others)
        # R_pq and R_qp are one variable.
        weights = products[:, p, q] + np.where(p == q, 0.0, products[:, q, p])
        found.append((r[p, q], row, np.arange(row + 1)[:, None], weights))
    return found
