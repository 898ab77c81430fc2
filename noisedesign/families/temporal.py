"""Families in time under any participation: a strategy C, its program at unit scale and its judge.

Patterns may overlap here, as under min-separation participation, and C may have a structure; in
:class:`noisedesign.certify.program.Program` patterns are disjoint."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError, symmetric_matrix
from noisedesign.base.enclosures import Enclosure, Interval, exactly, symmetric_part, up
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import Certificate, judge_strategy
from noisedesign.certify.rigorous import Judged, NotProvedError, factor_below, matrix_bound
from noisedesign.families.family import Arrays, Costly, Family, named_shares, pattern_name
from noisedesign.forms import DenseStrategy, Noise, Strategy
from noisedesign.forms.structure import TimeStructure
from noisedesign.privacy.sensitivity import listed, squared_sensitivity
from noisedesign.problem.problem import TimeProblem, unstructured
from noisedesign.system.participation import Participation

EVERY_PATTERN = "every pattern of steps"  # of patterns that are too many to list
BINDING = 1e-6  # relative distance to the largest sensitivity below which a pattern is as large


@dataclass(frozen=True, kw_only=True, eq=False)
class TemporalProgram:
    """Minimise tr(H X^-1), X = C^T C, with squared sensitivity at most 1. H: ``gram``, (T, T)."""

    gram: Array
    participation: Participation

    @property
    def size(self) -> int:
        """T, the number of steps."""
        return len(self.gram)

    def unit(self, form: Strategy) -> Strategy:
        """The form scaled until it is feasible."""
        return unit_form(self, form)

    @cached_property
    def factor(self) -> Array:
        """L with L^T L = gram, shape (T, T)."""
        return _linalg.gram_factor(self.gram)


def temporal_program(*, gram: Any, participation: Participation) -> TemporalProgram:
    """The program of a positive definite H, shape (T, T), squared error per squared noise.

    A singular H is refused: noise along a null direction costs nothing, so the best may be
    infinite."""
    h = symmetric_matrix(gram, field="gram", tolerance=settings.SYMMETRY_TOLERANCE)
    if len(h) != participation.horizon:
        expected = f"shape {(participation.horizon,) * 2}, the participation's horizon"
        raise InputError("gram", expected=expected, got=f"shape {h.shape}")
    values = np.linalg.eigvalsh(h)
    if values[0] < -settings.GRAM_NEGATIVITY * values[-1] or values[-1] <= 0:
        expected = "a Gram matrix, positive definite"
        raise InputError("gram", expected=expected, got=f"the eigenvalue {values[0]:.6g}")
    if values[0] <= 8 * settings.rank_tolerance(len(h)) * values[-1]:
        raise InputError(
            "gram",
            expected="a positive definite Gram matrix",
            got=f"one that is singular to rounding (smallest eigenvalue {values[0]:.3g}, "
            f"largest {values[-1]:.3g})",
            remedy="Noise along its null direction costs nothing and may grow without limit. Give "
            "it a price: of models, count all iterates by small step_weights; of H itself, add a "
            "multiple of the identity. Noise without a structure under (k, b) participation needs "
            "neither.",
        )
    return TemporalProgram(gram=h, participation=participation)


def bound_by(program: TemporalProgram, u: Array, price: float, *, negligible: float) -> float:
    """( tr (H^1/2 U H^1/2)^1/2 )^2 / price for U, shape (T, T); 0 where that proves nothing."""
    try:
        half = program.factor @ np.linalg.cholesky(u)
    except np.linalg.LinAlgError:
        return 0.0
    size = program.size
    price *= 1 + size * settings.rank_tolerance(size + 1)
    trace = _linalg.nuclear_norm(half, negligible=negligible)
    bound = trace / price * trace
    return bound if 0 < bound < np.inf else 0.0


def rigorous_bound_by(
    program: TemporalProgram, u: Enclosure, price: float, *, judged: Judged | None, enough: float
) -> Interval:
    """:func:`bound_by` with every rounding accounted for; U may be known up to rounding."""
    known = None if judged is None else judged.factor
    factor = factor_below(symmetric_part(program.gram)).factor if known is None else known
    return matrix_bound(factor, u, price, enough=enough)


def rigorous_uniform_bound(
    program: TemporalProgram, *, judged: Judged | None, enough: float
) -> Interval:
    """The bound by uniform multipliers, tr X <= T / p, with every rounding accounted for."""
    size = program.participation.even_size
    if not size:
        raise NotProvedError("the patterns do not contain every step equally often")
    price = float(up(np.float64(program.size / size), 1))
    uniform = exactly(np.eye(program.size))
    return rigorous_bound_by(program, uniform, price, judged=judged, enough=enough)


T = TypeVar("T", bound=TemporalProgram)


class TemporalFamily(Family[TimeProblem, T], Costly[TimeProblem, T]):
    """Strategies C, shape (T, T), lower triangular, of unit squared sensitivity."""

    def program(self, problem: TimeProblem) -> T:
        return self.program_of_gram(
            problem.gram,
            participation=problem.participation,
            structure=problem.structure,
            target=problem.privacy,
        )

    @abstractmethod
    def program_of_gram(
        self, gram: Array, *, participation: Any, structure: TimeStructure, **of: Any
    ) -> T:
        """The program of an error Gram matrix H, shape (T, T), and other fields."""

    def judge(self, program: T, noise: Noise, proof: Arrays, *, bound: float) -> Certificate:
        return judge_strategy(program, noise.dense_strategy, bound=bound)

    def rigorous_judge(self, program: T, noise: Noise, proof: Arrays) -> Judged:
        return rigorous.judge_strategy(program, noise.dense_strategy)

    def independent(self, program: T) -> Noise:
        size = float(program.participation.largest_size)
        return Noise.of_strategy(DenseStrategy(strategy=np.eye(program.size) / np.sqrt(size)))

    def independent_error(self, problem: TimeProblem) -> float:
        return float(np.trace(problem.gram)) * problem.participation.largest_size

    def prices(self, problem: TimeProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        """All of it for the patterns together that use up the one budget: its error falls with that
        as 1 / tau, and not with what other patterns may have."""
        strategy = noise.dense_strategy
        return binding_prices(strategy.T @ strategy, problem.participation)

    def work(self, problem: TimeProblem) -> float:
        """C and H may be stored in fewer numbers."""
        return float(problem.participation.horizon) ** 3 if problem.structure.restricts else 0.0

    def relaxed(self, problem: TimeProblem) -> TimeProblem | None:
        if not problem.structure.restricts:
            return None
        return unstructured(problem)


def unit_form(program: TemporalProgram, form: Strategy) -> Strategy:
    """The form scaled so that its own C is of squared sensitivity <= 1 in floating point."""
    strategy = form.dense()
    squared = squared_sensitivity(strategy.T @ strategy, program.participation).squared
    room = 1 - 4 * settings.rank_tolerance(form.horizon)
    return form.scaled(float(np.sqrt(squared)) / room)


def covering_prices(participation: Participation, v: Array) -> dict[str, float]:
    """The shares of patterns in max <v, x> over the diagonals x >= 0 that sum to at most 1 on every
    pattern: the weights that cover v >= 0, shape (T,), at the least sum."""
    if participation.disjoint:
        return named_shares(
            map(pattern_name, participation.patterns), v[participation.patterns].max(axis=1)
        )
    if (groups := listed(participation)) is None:
        return {EVERY_PATTERN: 1.0}
    patterns = [tuple(steps) for group in groups for steps in group.steps.tolist()]
    holds = np.zeros((len(v), len(patterns)))
    for place, steps in enumerate(patterns):
        holds[list(steps), place] = 1.0
    found = linprog(np.ones(len(patterns)), A_ub=-holds, b_ub=-v / v.max(), method="highs")
    return named_shares(map(pattern_name, patterns), found.x) if found.x is not None else {}


def binding_prices(gram: Array, participation: Participation) -> dict[str, float]:
    """The price 1 of the patterns whose squared sensitivity is the largest, by their names."""
    per_pattern = squared_sensitivity(gram, participation).per_pattern
    groups = listed(participation)
    if groups is None or len(per_pattern) == 1:
        return {EVERY_PATTERN: 1.0}
    where = {
        int(at): row for g in groups for at, row in zip(g.places, g.steps.tolist(), strict=True)
    }
    binding = np.flatnonzero(per_pattern >= (1 - BINDING) * per_pattern.max())
    names = [pattern_name(where[int(at)]) for at in binding]
    if len(names) > 3:
        names = [names[0], f"... {len(names)} patterns ...", names[-1]]
    return {" and ".join(names): 1.0}


def largest_share(matrix: Array, where: NDArray[np.bool_]) -> float:
    """The largest entry of a matrix ``where`` it is to vanish, relative to its largest one."""
    return float(np.abs(matrix[where]).max(initial=0.0) / np.abs(matrix).max())
