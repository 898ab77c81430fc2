"""Minimise the largest of some errors: max_i tr(H_i cov(z)) within the budgets.

H_i is that of the error after one step, at one node, or both, its weight included. For shares
q >= 0 of sum 1

    max_i tr(H_i cov(z))  >=  tr(H(q) cov(z)),      H(q) = sum_i q_i H_i,

so that every lower bound of the problem of H(q) is one of this, and the best q makes them equal
(minimax: the left is convex in the covariance, the right linear in q). The optimum of H(q) is
concave in q, and of prefix sums by steps its largest value is gamma_2^2, the factorization norm
(Henzinger, Upadhyay and Upadhyay 2023; Fichtenberger, Henzinger and Upadhyay 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.certify.program import Program
from noisedesign.families.family import AnyFamily, family_of
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.families.temporal import TemporalProgram
from noisedesign.forms import Noise
from noisedesign.problem.problem import ANY_TIME, Problem
from noisedesign.system.workloads import ErrorMeasure, ErrorMixture

COUNTED = 2**27
"""Numbers in all H_i, at most, which take 1 GB: 512 steps of a design in time. Prefix sums need
none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstProgram:
    """The errors of ``targets``, and their H_i, ``grams`` (r, m, m), None for prefix sums."""

    problem: Problem
    targets: list[ErrorMeasure]
    grams: Array | None

    @classmethod
    def of(cls, problem: Problem) -> WorstProgram:
        """The program of a problem; InputError where its errors are too many."""
        targets = targets_of(problem)
        if problem.mixing is None:
            return cls(problem=problem, targets=targets, grams=None)
        size = problem.participation.horizon if problem.axes != "space" else 1
        size *= len(problem.mixing) if problem.axes != "time" else 1
        if len(targets) * size**2 > COUNTED:
            expected = f"at most {COUNTED // size**2} errors of {size} x {size} numbers"
            raise InputError("error.of", expected=expected, got=f"{len(targets)}")
        memory.require(
            lambda count: 8 * count * size**2, len(targets), field="error.of", of="errors"
        )
        grams = np.empty((len(targets), size, size))
        for gram, target in zip(grams, targets, strict=True):
            gram[:] = gram_of(problem.with_error(target))
        return cls(problem=problem, targets=targets, grams=grams)

    @property
    def size(self) -> int:
        """r, the number of errors."""
        return len(self.targets)

    @cached_property
    def weights(self) -> Array:
        """Weights of the steps of prefix sums, (T,), of which those above 0 are targets."""
        assert isinstance(self.problem.error, ErrorMeasure)
        return self.problem.error.steps

    def gram(self, shares: Array) -> Array:
        """H(q), shape (m, m)."""
        if self.grams is not None:
            return np.asarray(np.tensordot(shares, self.grams, axes=1))
        weighted = self.weights.copy()
        weighted[weighted > 0] *= shares
        later = np.cumsum(weighted[::-1])[::-1]
        steps = np.arange(len(later))
        return np.asarray(later[np.maximum.outer(steps, steps)])

    def errors(self, noise: Noise) -> Array:
        """tr(H_i cov(z)), shape (r,); LinAlgError of a singular C."""
        if self.problem.axes == "space":
            covariance = noise.covariance
        else:
            made = inverse_of_triangular(np.array(noise.dense_strategy, dtype=np.float64))
            if self.grams is None:
                squares = self.weights * np.square(np.cumsum(made, axis=0)).sum(axis=1)
                return np.asarray(squares[self.weights > 0])
            covariance = made @ made.T
        assert self.grams is not None
        return np.asarray(np.tensordot(self.grams, covariance, axes=2))

    def summed(self, shares: Array) -> Problem:
        """The problem of H(q)."""
        problem: Any = self.problem
        if problem.mixing is None:
            found: Problem = replace(problem, error=None, workload="gram", gram=self.gram(shares))
            return found
        return self.problem.with_error(ErrorMixture(shares=shares, measures=tuple(self.targets)))

    @cached_property
    def inner(self) -> AnyFamily:
        """The family of the problems of one H(q)."""
        return family_of(plain(self.problem))

    @cached_property
    def _base(self) -> Any:
        """The program of some sum, whose H is put in its place."""
        return self.inner.program(plain(self.problem))

    @property
    def even(self) -> Program | TemporalProgram:
        """The program of even shares."""
        return self.at(np.full(self.size, 1 / self.size))

    def at(self, shares: Array) -> Program | TemporalProgram:
        """The program of H(q)."""
        base, gram = self._base, self.gram(shares)
        if isinstance(base, Program):
            return replace(base, gram=gram, exact_factor=None, rows=None, workload=None)
        inner: Any = self.inner
        found: TemporalProgram = inner.program_of_gram(
            gram, participation=base.participation, structure=ANY_TIME
        )
        return found


def targets_of(problem: Problem) -> list[ErrorMeasure]:
    """The errors whose largest counts."""
    assert isinstance(problem.error, ErrorMeasure)
    return problem.error.targets(nodes=1 if problem.mixing is None else len(problem.mixing))


def plain(problem: Problem) -> Problem:
    """The problem of the sum of all errors."""
    if problem.mixing is None:
        return replace(problem, error=None)
    assert isinstance(problem.error, ErrorMeasure)
    return problem.with_error(problem.error.summed)


def gram_of(problem: Problem) -> Array:
    """H of a problem whose error is a sum."""
    if problem.axes == "space-time":
        return SpaceTimeProgram.of(problem).workload.gram()
    return problem.gram


def summed_error(problem: Problem, proof: Mapping[str, Array]) -> ErrorMixture:
    """The largest of some errors as their sum, each by its share at the optimum."""
    return ErrorMixture(shares=proof["target_shares"], measures=tuple(targets_of(problem)))
