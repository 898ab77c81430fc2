"""Strategies of the least error of the worst step, certified from both sides by shares of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Interval, exactly, product, sum_up, up
from noisedesign.base.monitor import Monitor
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.disjoint.family import FAMILY as DISJOINT
from noisedesign.families.disjoint.program import dual_of
from noisedesign.families.family import Answer, Arrays, ArraySpec, Family, Form, Model, Modelled
from noisedesign.families.overlapping.family import FAMILY as OVERLAPPING
from noisedesign.families.worst.program import WorstProgram
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.problem.problem import TimeProblem


class Worst(Family[TimeProblem, WorstProgram], Modelled[WorstProgram]):
    """C of no structure; its errors step by step, and no sum of them, count."""

    name = "worst"
    structured = False
    formulations: ClassVar[tuple[str, ...]] = ("compact",)
    short = "The shares of steps converge slowly: ask for less, or take the design as it is."
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "step_shares": ArraySpec("q", "m"),
        "dual_blocks": DISJOINT.proof["dual_blocks"],
        **OVERLAPPING.proof,
    }

    def program(self, problem: TimeProblem) -> WorstProgram:
        return WorstProgram.of(problem)

    def solve(self, program: WorstProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.worst import solver

        return solver.solve(program, monitor=monitor)

    def model(self, program: WorstProgram, form: Form) -> Model:
        from noisedesign.families.worst import model

        form.only("compact")
        if not program.participation.disjoint:
            expected = "(k, b) participation, for a model of the worst step"
            got = str(program.participation)
            raise InputError("participation", expected=expected, got=got)
        return model.compact(program, scaled=form.scaled)

    def bound(
        self,
        program: WorstProgram,
        proof: Arrays,
        *,
        negligible: float = settings.NEGLIGIBLE,
        **_: Any,
    ) -> ProvedBound:
        """The bound of the problem of H(q), q clipped and of sum 1; without any, of even shares."""
        shares = proof.get("step_shares", np.ones(program.size))
        clipped = np.maximum(shares, 0.0)
        total = float(clipped.sum())
        if not 0 < total < np.inf:
            return NOTHING
        # Rounding of a sum of T shares may leave it above 1.
        shares = clipped / (total * (1 + program.size * settings.EPS))
        try:
            inner = program.at(shares)
        except InputError:  # H(q) is singular
            return NOTHING
        return program.inner.bound(inner, proof, negligible=negligible)

    def judge(
        self, program: WorstProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        even = np.full(program.size, 1 / program.size)
        judged = program.inner.judge(program.at(even), noise, {}, bound=bound)
        try:
            objective = float(program.errors(noise.dense_strategy).max())
        except np.linalg.LinAlgError:
            objective = float("inf")
        return replace(judged, objective=objective)

    def rigorous_judge(self, program: WorstProgram, noise: Noise, proof: Arrays) -> Judged:
        """Judge C under prefix sums: row t of A C^-1 is about that of A D, D about C^-1."""
        _require_prefix(program)
        strategy = noise.dense_strategy
        even = np.full(program.size, 1 / program.size)
        judged = rigorous.judge_strategy(program.disjoint(even), strategy)
        noising = rigorous.noising_of(strategy)
        sums = product(exactly(np.tril(np.ones_like(strategy))), exactly(noising.matrix))
        largest = up(program.weights * up(sums.row_norms() * noising.factor, 1) ** 2, 3)
        upper = float(largest.max())
        near = float((program.weights * np.square(sums.mid).sum(axis=1)).max())
        objective = Interval(2 * near - upper, upper)
        return replace(judged, objective=objective, factor=None, halves=None)

    def rigorous_bound(
        self, program: WorstProgram, proof: Arrays, *, enough: float = 0.0, **_: Any
    ) -> Interval:
        """The bound of L = diag(q a)^1/2 A for roots as they are in float64, over their shares."""
        _require_prefix(program)
        shares = np.maximum(proof.get("step_shares", np.ones(program.size)), 0.0)
        counted = program.weights > 0
        roots = np.sqrt(shares * program.weights)
        total = sum_up(up(np.square(roots[counted]) / program.weights[counted], 2))
        dual = dual_of(proof)
        if dual is None or not 0 < total < np.inf:
            raise NotProvedError("there are no multipliers, or no shares of steps")
        factor = np.tril(np.ones((program.size, program.size))) * roots[:, None]
        inner = replace(program.disjoint(shares), exact_factor=factor, gram=factor.T @ factor)
        found = rigorous.disjoint_bound(inner, dual, enough=enough * total)
        low, high = (end / total for end in found)
        return Interval(low * (1 - 4 * settings.EPS), high * (1 + 4 * settings.EPS))

    def prices(self, problem: TimeProblem, noise: Noise, proof: Arrays) -> Mapping[str, float]:
        """The prices of the problem of H(q)."""
        summed = replace(problem, error=None, mixing=None, workload="gram")
        return self.program(problem).inner.prices(summed, noise, proof)

    def independent(self, program: WorstProgram) -> Noise:
        size = float(program.participation.largest_size)
        return Noise.of_strategy(DenseStrategy(strategy=np.eye(program.size) / np.sqrt(size)))

    def independent_error(self, problem: TimeProblem) -> float:
        errors: Array = self.program(problem).errors(np.eye(problem.participation.horizon))
        return float(errors.max()) * problem.participation.largest_size

    def sizes(self, problem: TimeProblem) -> dict[str, int]:
        found = DISJOINT.sizes(problem) if problem.participation.disjoint else {}
        return {"m": problem.participation.horizon, **found}


def _require_prefix(program: WorstProgram) -> None:
    if program.grams is not None or not program.participation.disjoint:
        told = "errors of the worst step are covered for prefix sums under (k, b) participation"
        raise NotProvedError(told)


FAMILY = Worst()
