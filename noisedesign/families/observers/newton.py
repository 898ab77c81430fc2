"""Small problems: Newton's method on the barrier of (O), every entry of R an unknown.

    f(R) = <H, R> - mu ( sum log(1 - told) + log det R + sum log(cap - diag(R)) )

is self-concordant over mu (docs/methods/observers.md), so that damped steps reach the path and
noise never leaves its limits. There mu / (1 - told) and mu / (cap - R_ii) are multipliers that
prove a bound within mu times the number of terms."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.families.family import Answer, Arrays
from noisedesign.families.observers.batches import Batches, Sight, feasible
from noisedesign.families.observers.bound import judge, lower_bound
from noisedesign.families.observers.observed import Indices
from noisedesign.families.observers.program import ObserverProgram, UnitProgram
from noisedesign.families.observers.working_set import WorkingSet
from noisedesign.forms import Noise


class _Point(NamedTuple):
    """Noise R with its inverse, what it tells, and the ``room`` below the caps."""

    noise: Array
    inverse: Array
    sight: Sight
    room: Array


def search(problem: ObserverProgram, *, monitor: Monitor) -> Answer:
    """Follow the central path to noise and multipliers of the gap asked for."""
    working = WorkingSet(problem)
    scale = np.multiply.outer(problem.unit, problem.unit)
    best = start = problem.independent()
    certificate = judge(problem, best, bound=0.0)
    program = working.program
    barrier, step = _Barrier(program), 0
    proof: Arrays = {}
    with Search(monitor) as searched:
        point = barrier.at(start / scale)
        mu = _linalg.inner(program.gram, point.noise) / barrier.terms
        while step < 400:  # some 60 reach a gap of 1e-6
            step += 1
            direction, decrement = barrier.newton(point, mu)
            if decrement > 0.02:  # the next step squares one that is smaller
                point = barrier.moved(point, direction, mu, decrement)
                if searched.ended(solved=False):
                    break
                continue
            if working.renewed(point.noise):
                program = working.program
                barrier = _Barrier(program)
                point = barrier.at(start / scale)
                continue
            weights = [mu / (1 - told) for told in point.sight.told]
            given = point.sight, weights, mu / point.room
            multipliers = feasible(program, barrier.batches, *given, barrier=mu)
            bound = problem.unit_error * lower_bound(program, multipliers)
            if bound > certificate.lower_bound:
                certificate = replace(certificate, lower_bound=bound)
                proof = working.proof(multipliers)
            noise = problem.repaired(point.noise * scale)
            judged = judge(problem, noise, bound=certificate.lower_bound)
            if judged.feasible and judged.objective < certificate.objective:
                best, certificate = noise, judged
            monitor.report(lower=certificate.lower_bound, upper=certificate.objective)
            # Rounding is of the size of such a gap.
            least = mu * barrier.terms <= 1e-11 * _linalg.inner(program.gram, point.noise)
            if searched.ended(solved=certificate.gap <= REACHED * monitor.gap) or least:
                break
            mu *= 0.1
    return Answer(
        stop=searched.stop, noises=[Noise.of_covariance(best)], proof=proof, evaluations=step
    )


class _Barrier:
    """f, its derivatives and its multipliers."""

    def __init__(self, program: UnitProgram) -> None:
        self.program, self.batches = program, Batches(program)
        self.i, self.j = np.triu_indices(program.size)
        self.twice = np.where(self.i == self.j, 1.0, 2.0)
        self.terms = self.batches.pairs + 2 * program.size

    def at(self, noise: Array) -> _Point:
        """Look at R; a ``LinAlgError`` unless it is strictly within its limits."""
        inverse = _linalg.inverse_of_positive(noise)
        sight = self.batches.look(noise)
        room = self.program.cap - np.diagonal(noise)
        if not (room.min() > 0 and max(told.max() for told in sight.told) < 1):
            raise np.linalg.LinAlgError("noise beyond its limits")
        return _Point(noise, inverse, sight, room)

    def value(self, point: _Point, mu: float) -> float:
        logs = float(np.log(point.room).sum()) - float(np.linalg.slogdet(point.inverse)[1])
        logs += sum(float(np.log1p(-told).sum()) for told in point.sight.told)
        return _linalg.inner(self.program.gram, point.noise) - mu * logs

    def newton(self, point: _Point, mu: float) -> tuple[Array, float]:
        """The direction D, shape (n, n), and the decrement."""
        slack = [1 - told for told in point.sight.told]
        used = self.batches.used(point.sight, [1 / s for s in slack])
        gradient = self.program.gram / mu + np.diag(1 / point.room) - used - point.inverse
        packed = gradient[self.i, self.j] * self.twice
        i, j, x, n = self.i, self.j, point.inverse, self.program.size
        curvature = x[np.ix_(i, i)] * x[np.ix_(j, j)] + x[np.ix_(i, j)] * x[np.ix_(j, i)]
        curvature *= np.multiply.outer(self.twice, self.twice) / 2
        diagonal = np.flatnonzero(i == j)
        curvature[diagonal, diagonal] += 1 / point.room**2
        looks = self.batches.covariances(point.noise)
        parts = zip(self.batches.batches, looks, point.sight.solved, slack, strict=True)
        for batch, covariance, solved, own in parts:
            each = zip(np.linalg.cholesky(covariance), solved, own, strict=True)
            for index, (support, of_one) in enumerate(zip(batch.support, each, strict=True)):
                p, q, part = _of_observer(batch.response(index), *of_one)
                p, q = support[p], support[q]
                where = p * n - p * (p + 1) // 2 + q  # the places of R_pq, p <= q
                curvature[np.ix_(where, where)] += part
        scale = 1 / np.sqrt(np.diagonal(curvature))
        curvature *= np.multiply.outer(scale, scale)
        curvature[np.diag_indices_from(curvature)] += settings.rank_tolerance(len(scale))
        step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(curvature), -packed * scale) * scale
        direction = np.zeros_like(point.noise)
        direction[self.i, self.j] = direction[self.j, self.i] = step
        return direction, math.sqrt(max(0.0, -float(step @ packed)))

    def moved(self, point: _Point, direction: Array, mu: float, decrement: float) -> _Point:
        """Take the longest of some steps that lowers f as it should, at least the damped one."""
        here, length = self.value(point, mu), 1.0
        surely = 1 / (1 + decrement) if decrement > 0.25 else 1.0
        while length > surely:
            with suppress(np.linalg.LinAlgError):
                found = self.at(point.noise + length * direction)
                if self.value(found, mu) < here - mu * length * decrement**2 / 4:
                    return found
            length /= 2
        return self.at(point.noise + surely * direction)


def _of_observer(
    responses: Array, lower: Array, solved: Array, slack: Array
) -> tuple[Indices, Indices, Array]:
    """Second derivative of -sum log(1 - told) by the entries of R on its support, after their
    places. With K = L L^T, u_k = B_k^T q, q a column of Q, told falls by sum_k u_k^T D u_k, and its
    second derivative is 2 | L^-1 sum_k B_k D u_k |^2."""
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
    return i, j, moved.T @ moved + told.T @ told
