"""What families in space have in common: a covariance R of nodes, and independent noise."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.program.family import Family
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.structure import SpaceStructure


class SpatialFamily(Family):
    """Covariances R, shape (n, n), with [R^-1]_ii <= tau_i."""

    def program(self, problem: SpaceProblem) -> Any:
        return self.program_of_gram(
            problem.gram,
            mixing=problem.mixing,
            structure=problem.structure,
            budget=problem.budget,
            cap=problem.max_variance,
        )

    @abstractmethod
    def program_of_gram(
        self,
        gram: Array,
        *,
        mixing: Array,
        structure: SpaceStructure,
        budget: Array,
        cap: Array | None,
    ) -> Any:
        """The program of an error Gram matrix H, shape (n, n)."""

    def independent(self, program: Any) -> Noise:
        room = 1 + 4 * settings.rank_tolerance(1)
        return Noise.of_covariance(np.diag(room / program.budget))

    def independent_error(self, problem: SpaceProblem) -> float:
        return float(np.sum(np.diagonal(problem.gram) / problem.budget))

    def work(self, problem: SpaceProblem) -> float:
        return work_of_gram(problem)

    def relaxed(self, problem: SpaceProblem) -> SpaceProblem | None:
        if not problem.structure.restricts:
            return None
        return replace(problem, structure=SpaceStructure())

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": len(problem.mixing)}


def work_of_gram(problem: SpaceProblem) -> float:
    """Operations to form H, shape (n, n), of an error over all its steps."""
    steps = float(problem.horizon)
    return steps**3 + steps * float(len(problem.mixing)) ** 3
