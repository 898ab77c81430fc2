"""Noise against chosen observers in matrix inequalities, in the problem's units or in better ones.

Variances at an optimum spread from what the budgets ask to what the cap allows. Solvers lose the
digits of that ratio, unless the unknown is Q in R = S^1/2 Q S^1/2 with S a covariance that already
spreads alike, and what an observer sees is whitened by K_a(S):

    minimise <S^1/2 H S^1/2, Q>  subject to  [[K'_a(Q), G'_a], [G'_a^T, X_a]] >= 0,
    diag(X_a) <= 1,  diag(S^1/2 Q S^1/2) <= cap,  Q >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Stop
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
from noisedesign.families.observers.bound import Multipliers, arrays_of
from noisedesign.families.observers.program import ObserverProblem, covariances
from noisedesign.program.family import Answer, Model
from noisedesign.program.noise import Noise

LARGEST = 100
"""Rows of the largest matrix inequality handed to a conic solver, whose factor for it is as large
as the square of its entries: 200 MB for each observer."""

FLOOR = 1e-10
"""Least eigenvalue of the covariance that sets the units, relative to the largest: one that noise
does not reach at all would divide by zero, and it may be the next answer that reaches it."""

MARGIN = 1e-10
"""Relative slack left in cap and budgets, so that recomputed numbers cannot exceed them, nor what
is proved of those of several steps."""

ROOM = 2.0
"""Factor on the variance of independent noise beyond what its budgets ask, as far as the cap has
room: answers are repaired with it, and half its sensitivity to spare does so at little cost."""


def stated(problem: ObserverProblem) -> Model:
    """In the units of the problem: Q is R."""
    whitenings = [np.eye(len(seen.signals)) for seen in problem.normalized.observers]
    root, error = np.diag(1 / problem.unit), 1 / problem.unit_error
    return _Units(problem, root, error, whitenings, problem.unit**2).model()


def in_units(problem: ObserverProblem, noise: Array | None = None) -> Model:
    """In units of a covariance S, shape (p, p), squared noise, by default independent noise.

    Raises:
        InputError: observers that nothing reaches; matrix inequalities too large to solve; a cap
            too small, or an observer that sees a gradient without noise.
    """
    program = problem.normalized
    noise = independent(problem) if noise is None else noise
    values, vectors = np.linalg.eigh(noise / np.multiply.outer(problem.unit, problem.unit))
    values = np.maximum(values, FLOOR * values[-1])
    root = _linalg.symmetrized((vectors * np.sqrt(values)) @ vectors.T)
    error = float(np.sum((root @ program.gram) * root))
    told = covariances(program.observers, root @ root)
    whitenings = [np.linalg.inv(np.linalg.cholesky(covariance)) for covariance in told]
    return _Units(problem, root, error, whitenings, 1 / program.cap).model()


@dataclass(frozen=True, eq=False)
class _Units:
    """Q in R = ``root`` Q ``root``, what an observer sees multiplied by its whitening, squared
    error divided by ``error``, and row i of the cap multiplied by ``rows``; all of it relative to
    the units of ``problem.normalized``."""

    problem: ObserverProblem
    root: Array
    error: float
    whitenings: Sequence[Array]
    rows: Array

    def model(self) -> Model:
        program, root, size = self.problem.normalized, self.root, len(self.root)
        largest = max(sum(seen.signals.shape) for seen in program.observers)
        if largest > LARGEST:
            raise InputError(
                "horizon",
                expected=f"matrix inequalities of at most {LARGEST} rows",
                got=f"{largest} over {self.problem.horizon} steps",
                remedy="Ask for a shorter horizon, or observers that receive fewer messages.",
            )
        require_size(
            2 * triangle(size)
            + 2 * size
            + sum(
                triangle(rows) * triangle(size) + rows * signals + triangle(signals) + 2 * signals
                for rows, signals in (seen.signals.shape for seen in program.observers)
            ),
            of=f"{len(program.observers)} observers of noise of {size} coordinates",
        )
        assembly = Assembly()
        gram = _linalg.symmetrized(root @ program.gram @ root) / self.error
        r = covariance_variables(assembly, gram)
        assembly.block(size, [lower_triangle(r)])
        for seen, whitening in zip(program.observers, self.whitenings, strict=True):
            rows, count = seen.signals.shape
            told = assembly.symmetric("X", count, meaning="what one observer can tell, squared")
            own = _seen(whitening @ seen.responses @ root, r)
            signals = constant((whitening @ seen.signals).T, row=rows)
            assembly.block(rows + count, [*own, signals, lower_triangle(told, at=rows)])
            sums_at_most(assembly, np.diagonal(told)[:, None], np.ones(count))
        p, q = np.tril_indices(size)
        node = np.arange(size)[:, None]
        weights = root[:, p] * root[:, q] * np.where(p == q, 1.0, 2.0) * self.rows[:, None]
        limit = program.cap * self.rows
        assembly.at_least_zero(
            size, [(CONSTANT, node[:, 0], node[:, 0], limit), (r[p, q], node, node, -weights)]
        )
        conic = assembly.finished(formulation="covariance")
        return Model(conic=conic, read=lambda point: self.read(point, r))

    def read(self, point: Point, r: Numbers) -> Answer:
        """Noise and multipliers at a point; neither where it is of no covariance."""
        program, problem = self.problem.normalized, self.problem
        found = read(self, point, r)
        if found is None:
            return Answer(stop=Stop.FAILED)
        noise = repaired(problem, found[0] * np.multiply.outer(problem.unit, problem.unit))
        proof = arrays_of(program, found[1])
        return Answer(stop=Stop.SOLVED, noises=[Noise.of_covariance(noise)], proof=proof)


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


# --- exactly feasible noise ---------------------------------------------------------------------


def independent(problem: ObserverProblem) -> Array:
    """Independent noise that keeps the budgets with room to spare, within the cap.

    Raises:
        InputError: a cap too small; an observer that sees a gradient without noise.
    """
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


def repaired(problem: ObserverProblem, found: Array) -> Array:
    """The answer made positive semidefinite, brought within the cap and then within the budgets.

    Squared sensitivity is convex in the covariance, so mixing in independent noise that has room
    to spare brings it within the budgets and keeps it within the cap. Noise to spare is taken away.
    """
    values, vectors = np.linalg.eigh(_linalg.symmetrized(found))
    noise = (vectors * np.maximum(values, 0.0)) @ vectors.T
    shrink = np.sqrt(1 / np.maximum(np.diagonal(noise) / (problem.cap * (1 - MARGIN)), 1.0))
    noise = _linalg.symmetrized(noise * np.multiply.outer(shrink, shrink))
    apart, share = independent(problem), settings.EPS
    spare = 1 - problem.worst(apart)[0]
    while (worst := problem.worst(noise)[0]) > 1 - MARGIN * (share < 1):
        # Twice as far each time at least, so it ends, with independent noise if nothing else.
        over = worst - 1 + MARGIN
        needed = 0.0 if np.isinf(worst) else over / (over + spare)
        share = min(1.0, max(needed, 2 * share))
        noise = (1 - share) * noise + share * apart
    less = noise * min(1.0, worst * (1 + MARGIN))
    return less if problem.worst(less)[0] <= 1 else noise
