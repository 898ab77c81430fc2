"""Noise of the least largest error, certified from both sides by shares of errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.enclosures import Interval, exactly, product, sum_up, up
from noisedesign.base.monitor import Monitor
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.certify.program import Program
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.disjoint.family import FAMILY as DISJOINT
from noisedesign.families.disjoint.program import dual_of
from noisedesign.families.family import (
    Answer,
    Arrays,
    ArraySpec,
    Cappable,
    Family,
    Form,
    Model,
    Modelled,
    Remarked,
    Uncapped,
    family_of,
)
from noisedesign.families.overlapping.family import FAMILY as OVERLAPPING
from noisedesign.families.worst.program import WorstProgram, plain, targets_of
from noisedesign.forms import Noise
from noisedesign.problem.problem import Problem

PROVED = 2**27
"""Numbers in all H_i that are enclosed one by one, at most, which takes minutes."""


class Worst(
    Family[Problem, WorstProgram],
    Cappable[WorstProgram],
    Modelled[WorstProgram],
    Remarked[Problem, WorstProgram],
):
    """Noise of no structure; the largest of its errors, and no sum of them, counts."""

    name = "worst"
    structured = False
    formulations: ClassVar[tuple[str, ...]] = ("compact",)
    short = "The shares of errors converge slowly: ask for less, or take the design as it is."
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "target_shares": ArraySpec("q", "r"),
        **DISJOINT.proof,
        **OVERLAPPING.proof,
    }

    def program(self, problem: Problem) -> WorstProgram:
        return WorstProgram.of(problem)

    def remark(self, program: WorstProgram, noise: Noise) -> str:
        """A sentence on noise in space that is large because nothing bounds it."""
        problem = program.problem
        if problem.axes != "space" or problem.max_variance is not None:
            return ""
        from noisedesign.families.disjoint.attainment import LARGE

        ratio = float((np.diagonal(noise.covariance) * problem.budget).max())
        if ratio < LARGE:
            return ""
        return (
            f"W is singular, or nearly so: the largest variance of this design is {ratio:.2g} "
            "times that of independent noise. A cap bounds it: max_variance in Python, [limits] "
            "max_variance in a problem file."
        )

    def without_cap(
        self, program: WorstProgram, noise: Noise, proof: Arrays, *, monitor: Monitor
    ) -> Uncapped:
        """The bound of the sum of errors, each by its share at the optimum under the cap."""
        shares = np.maximum(proof.get("target_shares", np.ones(program.size)), 0.0)
        inner = program.at(shares / (shares.sum() * (1 + program.size * settings.EPS)))
        assert isinstance(program.inner, Cappable)
        return program.inner.without_cap(inner, noise, proof, monitor=monitor)

    def solve(self, program: WorstProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.worst import solver

        return solver.solve(program, monitor=monitor)

    def model(self, program: WorstProgram, form: Form) -> Model:
        from noisedesign.families.worst import model

        form.only("compact")
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
        clipped = np.maximum(proof.get("target_shares", np.ones(program.size)), 0.0)
        total = float(clipped.sum())
        if not 0 < total < np.inf:
            return NOTHING
        # Rounding of a sum of r shares may leave it above 1.
        shares = clipped / (total * (1 + program.size * settings.EPS))
        try:
            inner = program.at(shares)
        except InputError:  # H(q) is singular
            return NOTHING
        return program.inner.bound(inner, proof, negligible=negligible)

    def judge(
        self, program: WorstProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        judged = program.inner.judge(program.even, noise, {}, bound=bound)
        try:
            objective = float(program.errors(noise).max())
        except np.linalg.LinAlgError:
            objective = float("inf")
        return replace(judged, objective=objective)

    def rigorous_judge(self, program: WorstProgram, noise: Noise, proof: Arrays) -> Judged:
        """Judge noise error by error; of prefix sums row t of A C^-1 is about that of A D, D about
        C^-1."""
        _require_few(program)
        if program.grams is not None:
            family, problem = program.inner, program.problem
            each = []
            for target in program.targets:
                alone = family.program(problem.with_error(target))
                each.append(family.rigorous_judge(alone, noise, proof))
            low, high = (max(getattr(j.objective, end) for j in each) for end in Interval._fields)
            return replace(each[0], objective=Interval(low, high), factor=None, halves=None)
        strategy = noise.dense_strategy
        judged = rigorous.judge_strategy(program.even, strategy)
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
        """The bound of the mixture of errors by q, over the sum of q; of prefix sums that of L =
        diag(q a)^1/2 A for roots as they are in float64, over their shares."""
        _require_few(program)
        shares = np.maximum(proof.get("target_shares", np.ones(program.size)), 0.0)
        if program.grams is not None:
            total = sum_up(shares)
            if not 0 < total < np.inf:
                raise NotProvedError("there are no shares of errors")
            weighted = program.inner.program(program.summed(shares))
            found = program.inner.rigorous_bound(weighted, proof, enough=enough * total)
        else:
            counted = program.weights[program.weights > 0]
            roots = np.zeros(len(program.weights))
            roots[program.weights > 0] = np.sqrt(shares * counted)
            total = sum_up(up(np.square(roots[roots > 0]) / program.weights[roots > 0], 2))
            dual = dual_of(proof)
            if dual is None or not 0 < total < np.inf:
                raise NotProvedError("there are no multipliers, or no shares of steps")
            factor = np.tril(np.ones((len(roots), len(roots)))) * roots[:, None]
            base: Any = program.at(shares)
            inner = replace(base, exact_factor=factor, gram=factor.T @ factor)
            found = rigorous.disjoint_bound(inner, dual, enough=enough * total)
        low, high = (end / total for end in found)
        return Interval(low * (1 - 4 * settings.EPS), high * (1 + 4 * settings.EPS))

    def prices(self, problem: Problem, noise: Noise, proof: Arrays) -> Mapping[str, float]:
        """The prices of the problem of H(q)."""
        program = self.program(problem)
        summed = program.summed(np.maximum(proof.get("target_shares", np.ones(program.size)), 0.0))
        return program.inner.prices(summed, noise, proof)

    def independent(self, program: WorstProgram) -> Noise:
        return program.inner.independent(program.even)

    def independent_error(self, problem: Problem) -> float:
        program = self.program(problem)
        return float(program.errors(self.independent(program)).max())

    def sizes(self, problem: Problem) -> dict[str, int]:
        if not problem.worst:
            return {}
        inner = plain(problem)
        return {"r": len(targets_of(problem)), **family_of(inner).sizes(inner)}


def _require_few(program: WorstProgram) -> None:
    if program.grams is None and not isinstance(program.even, Program):
        raise NotProvedError("errors of the worst step are covered under (k, b) participation")
    if program.grams is not None and program.grams.size > PROVED:
        raise NotProvedError(f"{program.size} errors, which are too many to enclose one by one")


FAMILY = Worst()
