"""Strategies of the least error of the worst step, certified from both sides by shares of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound
from noisedesign.families.disjoint.family import FAMILY as DISJOINT
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


FAMILY = Worst()
