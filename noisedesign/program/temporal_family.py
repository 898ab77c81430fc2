"""What families in time under any participation have in common: a strategy C and its judge."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.program.certificate import Certificate, judge_strategy
from noisedesign.program.family import Arrays, Family
from noisedesign.program.noise import DenseForm, Noise, StrategyForm
from noisedesign.program.problem import TimeProblem
from noisedesign.program.structure import TimeStructure
from noisedesign.program.temporal import TemporalProgram


class TemporalFamily(Family):
    """Strategies C, shape (T, T), lower triangular, of unit squared sensitivity."""

    def program(self, problem: TimeProblem) -> Any:
        return self.program_of_gram(
            problem.gram, participation=problem.participation, structure=problem.structure
        )

    @abstractmethod
    def program_of_gram(self, gram: Array, *, participation: Any, structure: TimeStructure) -> Any:
        """The program of an error Gram matrix H, shape (T, T)."""

    def judge(
        self, program: TemporalProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        return judge_strategy(program, noise.dense_strategy, bound=bound)

    def independent(self, program: TemporalProgram) -> Noise:
        size = float(program.participation.largest_size)
        return Noise.of_strategy(DenseForm(strategy=np.eye(program.size) / np.sqrt(size)))

    def independent_error(self, problem: TimeProblem) -> float:
        return float(np.trace(problem.gram)) * problem.participation.largest_size

    def work(self, problem: TimeProblem) -> float:
        """C and H may be stored in fewer numbers."""
        return float(problem.participation.horizon) ** 3 if problem.structure.restricts else 0.0

    def relaxed(self, problem: TimeProblem) -> TimeProblem | None:
        if not problem.structure.restricts:
            return None
        return replace(problem, structure=TimeStructure())


def unit_form(program: TemporalProgram, form: StrategyForm) -> StrategyForm:
    """The form scaled so that its own C is of squared sensitivity <= 1 in floating point."""
    strategy = form.dense()
    squared = squared_sensitivity(strategy.T @ strategy, program.participation).squared
    room = 1 - 4 * settings.rank_tolerance(form.horizon)
    return form.scaled(float(np.sqrt(squared)) / room)


def largest_share(matrix: Array, where: NDArray[np.bool_]) -> float:
    """The largest entry of a matrix ``where`` it is to vanish, relative to its largest one."""
    return float(np.abs(matrix[where]).max(initial=0.0) / np.abs(matrix).max())
