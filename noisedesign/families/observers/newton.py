"""Small problems: Newton's method on the barrier of (O), every entry of R an unknown.

    f(R) = <H, R> - mu ( sum log(1 - told) + log det R + sum log(cap - diag(R)) )

is self-concordant over mu: matrix-fractional functions are compatible with log det (Nesterov and
Nemirovskii, Interior-Point Polynomial Algorithms in Convex Programming, 1994, chapter 5). So damped
steps from noise strictly within its limits reach the path for every mu, and noise never leaves
them. On the path mu / (1 - told) and mu / (cap - R_ii) are multipliers whose Lagrangian has the
slack mu R^-1, positive definite; they prove a bound within mu times the number of terms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound
from noisedesign.families.observers.model import independent, repaired
from noisedesign.families.observers.program import ObserverProblem, ObserverProgram
from noisedesign.families.observers.shares import shared_out
from noisedesign.families.observers.stacks import Sight, Stacks
from noisedesign.families.observers.watch import Watch
from noisedesign.program.family import Answer, Arrays
from noisedesign.program.noise import Noise

STEPS = 400
"""At most; some 60 reach 1e-6."""

FIRST_SHARE = 1.0
"""Of the objective of independent noise, that the gap at the first mu is."""

FALL = 0.1
"""Factor on mu from one point of the path to the next."""

NEAR = 0.02
"""Newton decrement at which a point is on the path: the next step would square it."""

DAMPED = 0.25
"""Decrement above which a step is damped by 1 / (1 + decrement)."""

LEAST_GAP = 1e-11
"""Gap at which mu falls no further: rounding is of its size."""


Indices = NDArray[np.intp]


class _Point(NamedTuple):
    """Noise R with its inverse, what it tells, and the ``room`` below the caps."""

    noise: Array
    inverse: Array
    sight: Sight
    room: Array


def search(problem: ObserverProblem, *, monitor: Monitor) -> Answer:
    """Noise and multipliers on the central path, by a gap of the sizes asked for.

    Raises:
        InputError: observers that nothing reaches; a cap too small; an observer that sees a
            gradient without noise.
    """
    watch = Watch(problem)
    scale = np.multiply.outer(problem.unit, problem.unit)
    best = start = independent(problem)
    certificate = judge(problem, best, bound=0.0)
    program = watch.program
    barrier, step = _Barrier(program), 0
    proof: Arrays = {}
    with Search(monitor) as searched:
        point = barrier.at(start / scale)
        mu = FIRST_SHARE * _linalg.inner(program.gram, point.noise) / barrier.terms
        while step < STEPS:
            step += 1
            direction, decrement = barrier.newton(point, mu)
            if decrement > NEAR:
                point = barrier.moved(point, direction, mu, decrement)
                if searched.ended(solved=False):
                    break
                continue
            if watch.renewed(point.noise):
                program = watch.program
                barrier = _Barrier(program)
                point = barrier.at(start / scale)
                continue
            multipliers = barrier.multipliers(point, mu)
            bound = problem.unit_error * lower_bound(program, multipliers)
            if bound > certificate.lower_bound:
                certificate = replace(certificate, lower_bound=bound)
                proof = watch.proof(multipliers)
            noise = repaired(problem, point.noise * scale)
            judged = judge(problem, noise, bound=certificate.lower_bound)
            if judged.feasible and judged.objective < certificate.objective:
                best, certificate = noise, judged
            monitor.report(lower=certificate.lower_bound, upper=certificate.objective)
            least = mu * barrier.terms <= LEAST_GAP * _linalg.inner(program.gram, point.noise)
            if searched.ended(solved=certificate.gap <= REACHED * monitor.gap) or least:
                break
            mu *= FALL
    return Answer(
        stop=searched.stop, noises=[Noise.of_covariance(best)], proof=proof, evaluations=step
    )


class _Barrier:
    """f, its derivatives and its multipliers."""

    def __init__(self, program: ObserverProgram) -> None:
        self.program, self.stacks = program, Stacks(program)
        self.i, self.j = np.triu_indices(program.size)
        self.twice = np.where(self.i == self.j, 1.0, 2.0)
        self.terms = self.stacks.pairs + 2 * program.size

    def at(self, noise: Array) -> _Point:
        """Raises:
        numpy.linalg.LinAlgError: noise that is not strictly within its limits.
        """
        inverse = _linalg.inverse_of_positive(noise)
        sight = self.stacks.look(noise)
        room = self.program.cap - np.diagonal(noise)
        if not (room.min() > 0 and max(told.max() for told in sight.told) < 1):
            raise np.linalg.LinAlgError("noise beyond its limits")
        return _Point(noise, inverse, sight, room)

    def value(self, point: _Point, mu: float) -> float:
        logs = float(np.log(point.room).sum()) - float(np.linalg.slogdet(point.inverse)[1])
        logs += sum(float(np.log1p(-told).sum()) for told in point.sight.told)
        return _linalg.inner(self.program.gram, point.noise) - mu * logs

    def multipliers(self, point: _Point, mu: float) -> Multipliers:
        """Those of the path, feasible by what each observer is given of the error."""
        weights = [mu / (1 - told) for told in point.sight.told]
        shares, prices = shared_out(
            self.program, self.stacks, point.sight, weights, mu / point.room, barrier=mu
        )
        return self.stacks.multipliers(point.sight, weights, shares, prices)

    def newton(self, point: _Point, mu: float) -> tuple[Array, float]:
        """The direction D, shape (p, p), and the decrement."""
        slack = [1 - told for told in point.sight.told]
        used = self.stacks.used(point.sight, [1 / s for s in slack])
        gradient = self.program.gram / mu + np.diag(1 / point.room) - used - point.inverse
        packed = gradient[self.i, self.j] * self.twice
        curvature = self._of_determinant(point.inverse)
        diagonal = np.flatnonzero(self.i == self.j)
        curvature[diagonal, diagonal] += 1 / point.room**2
        looks = self.stacks.covariances(point.noise)
        parts = zip(self.stacks.stacks, looks, point.sight.solved, slack, strict=True)
        for stack, covariance, solved, own in parts:
            for index, support in enumerate(stack.support):
                cells, part = _of_observer(
                    np.linalg.cholesky(covariance[index]),
                    stack.response(index),
                    solved[index],
                    own[index],
                )
                where = self._cells(support[cells[0]], support[cells[1]])
                curvature[np.ix_(where, where)] += part
        scale = 1 / np.sqrt(np.diagonal(curvature))
        curvature *= np.multiply.outer(scale, scale)
        curvature[np.diag_indices_from(curvature)] += settings.rank_tolerance(len(scale))
        step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(curvature), -packed * scale) * scale
        direction = np.zeros_like(point.noise)
        direction[self.i, self.j] = direction[self.j, self.i] = step
        return direction, math.sqrt(max(0.0, -float(step @ packed)))

    def moved(self, point: _Point, direction: Array, mu: float, decrement: float) -> _Point:
        """After the longest of some steps that lowers f as it should, at least the damped one."""
        here, length = self.value(point, mu), 1.0
        surely = 1 / (1 + decrement) if decrement > DAMPED else 1.0
        while length > surely:
            try:
                found = self.at(point.noise + length * direction)
                if self.value(found, mu) < here - mu * length * decrement**2 / 4:
                    return found
            except np.linalg.LinAlgError:
                pass
            length /= 2
        return self.at(point.noise + surely * direction)

    def _cells(self, i: Indices, j: Indices) -> Indices:
        """Places of R_ij, i <= j, among the unknowns."""
        return np.asarray(i * self.program.size - i * (i + 1) // 2 + j, dtype=np.intp)

    def _of_determinant(self, inverse: Array) -> Array:
        i, j = self.i, self.j
        found = inverse[np.ix_(i, i)] * inverse[np.ix_(j, j)]
        found += inverse[np.ix_(i, j)] * inverse[np.ix_(j, i)]
        return np.asarray(found * (np.multiply.outer(self.twice, self.twice) / 2))


def _of_observer(
    lower: Array, responses: Array, solved: Array, slack: Array
) -> tuple[tuple[Indices, Indices], Array]:
    """Second derivative of -sum log(1 - told) by the entries of R on its support, and their places.

    With K = L L^T and u_k = B_k^T q, q a column of Q: told falls by sum_k u_k^T D u_k, and its
    second derivative is 2 | L^-1 sum_k B_k D u_k |^2.
    """
    i, j = np.triu_indices(responses.shape[2])
    both = i != j
    whitened = np.array(
        [scipy.linalg.solve_triangular(lower, block, lower=True) for block in responses]
    )
    seen = np.einsum("kms,mc->kcs", responses, solved)
    moved = np.einsum("kmi,kcj->cmij", whitened, seen)
    moved = moved[:, :, i, j] + np.where(both, moved[:, :, j, i], 0.0)
    told = np.einsum("kci,kcj->cij", seen, seen)[:, i, j] * np.where(both, 2.0, 1.0)
    moved *= np.sqrt(2 / slack)[:, None, None]
    moved = moved.reshape(-1, len(i))
    told /= slack[:, None]
    return (i, j), moved.T @ moved + told.T @ told
