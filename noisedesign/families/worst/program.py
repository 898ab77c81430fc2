"""Minimise the largest error of a step: max_t a_t tr(H_t X^-1), X = C^T C, over all C.

H_t is that of the error after step t alone, and a_t its weight. For shares q >= 0 of sum 1

    max_t a_t tr(H_t X^-1)  >=  tr(H(q) X^-1),      H(q) = sum_t q_t a_t H_t,

so that every lower bound of the problem of H(q) is one of this, and the best q makes them equal
(minimax: the left is convex in X^-1, the right linear in q). The optimum of H(q) is concave in q,
and of prefix sums with a = 1 its largest value is gamma_2^2, the factorization norm (Henzinger,
Upadhyay and Upadhyay 2023; Fichtenberger, Henzinger and Upadhyay 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.certify.program import Program
from noisedesign.families.family import AnyFamily, family_at
from noisedesign.families.temporal import TemporalProgram
from noisedesign.problem.problem import ANY_TIME, TimeProblem
from noisedesign.system.participation import Participation, require_fixed_epoch
from noisedesign.system.workloads import ErrorMeasure, Workload

COUNTED = 512
"""Steps of models in a network whose errors are kept apart, at most: T matrices of T x T numbers
take 1 GB there. Prefix sums need none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstProgram:
    """Every step's a_t H_t, ``grams`` (T, T, T); or ``weights`` a, (T,), of prefix sums."""

    weights: Array
    participation: Participation
    grams: Array | None = None

    @classmethod
    def of(cls, problem: TimeProblem) -> WorstProgram:
        """The program of a problem; InputError where it has too many steps."""
        error = problem.error
        assert isinstance(error, ErrorMeasure)
        made = cls(weights=error.steps, participation=problem.participation)
        if problem.mixing is None:
            return made
        horizon = error.horizon
        if horizon > COUNTED:
            expected = f'at most {COUNTED} steps for of = "{error.of}" in a network'
            raise InputError("participation", expected=expected, got=f"{horizon}")
        memory.require(
            lambda steps: 8 * steps**3, horizon, field="participation", of="steps of such an error"
        )
        grams = np.empty((horizon,) * 3)
        for step, weight in enumerate(error.steps):
            alone = replace(error, of="all-iterates", step_weights=np.eye(horizon)[step])
            workload = Workload.of(
                problem.step_mixing, horizon=horizon, error=alone, random=problem.step_random
            )
            grams[step] = weight * workload.time_gram()
        return replace(made, grams=grams)

    @property
    def size(self) -> int:
        """T, the number of steps."""
        return len(self.weights)

    def gram(self, shares: Array) -> Array:
        """H(q), shape (T, T)."""
        if self.grams is not None:
            return np.asarray(np.tensordot(shares, self.grams, axes=1))
        later = np.cumsum((shares * self.weights)[::-1])[::-1]
        steps = np.arange(self.size)
        return np.asarray(later[np.maximum.outer(steps, steps)])

    def errors(self, strategy: Array) -> Array:
        """a_t tr(H_t X^-1) of every step, shape (T,); LinAlgError of a singular C."""
        noise = inverse_of_triangular(np.asarray(strategy, dtype=np.float64).copy())
        if self.grams is None:
            return np.asarray(self.weights * np.square(np.cumsum(noise, axis=0)).sum(axis=1))
        return np.asarray(np.tensordot(self.grams, noise @ noise.T, axes=2))

    @property
    def inner(self) -> AnyFamily:
        """The family of the problems of one H(q)."""
        return family_at("time", "dense" if self.participation.disjoint else "overlapping")

    def at(self, shares: Array) -> Program | TemporalProgram:
        """The program of H(q), which sums errors."""
        if self.participation.disjoint:
            return self.disjoint(shares)
        inner: Any = self.inner
        gram, scheme = self.gram(shares), self.participation
        found: TemporalProgram = inner.program_of_gram(
            gram, participation=scheme, structure=ANY_TIME
        )
        return found

    def disjoint(self, shares: Array) -> Program:
        """The same of patterns that share no step; InputError of others."""
        scheme = require_fixed_epoch(self.participation)
        budget = np.ones(scheme.separation)
        return Program(gram=self.gram(shares), participation=scheme, budget=budget)


def summed_error(problem: TimeProblem, proof: Mapping[str, Array]) -> ErrorMeasure:
    """The error of the worst step as a sum over steps, each by its share at the optimum."""
    error, shares = cast(ErrorMeasure, problem.error), proof["step_shares"]
    weights = shares / shares.sum() * error.steps
    return replace(error, of="all-iterates", step_weights=weights)
