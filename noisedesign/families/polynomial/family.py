"""Noise of polynomial precision on graphs that are too large for n x n arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, issparse

from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.enclosures import Interval
from noisedesign.base.linalg import symmetrized
from noisedesign.base.monitor import Monitor, Search
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import NOTHING, Certificate, ProvedBound, judge_covariance
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.certify.rigorous import Judged, NotProvedError
from noisedesign.families.family import (
    Answer,
    Arrays,
    ArraySpec,
    Costly,
    Family,
    Remarked,
    Sampled,
    Served,
    named_shares,
)
from noisedesign.families.polynomial import bound as judging, rigorous as finite_sums
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import Noise, PolynomialCovariance
from noisedesign.privacy.sensitivity import UPPER_BOUND
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single

MULTIPLIERS = "dual_weights"

SEED = 0
"""The seed of the vectors that a solve estimates by: the same problem has the same design."""

WRITTEN_OUT = 2048
"""Most nodes of which R is written out, to prove of it what is stated."""


class Polynomial(
    Family[SpaceProblem, SparseProgram],
    Costly[SpaceProblem, SparseProgram],
    Remarked[SpaceProblem, SparseProgram],
    Sampled[SparseProgram],
    Served[SpaceProblem, SparseProgram],
):
    """Its program is a :class:`SparseProgram`, its noise a :class:`PolynomialCovariance`. The bound
    is one on noise of every structure."""

    name = "polynomial"
    convex = False
    gap = 0.05  # random graphs of 100,000 nodes are within it, of points in a square by the least
    short = "Ask for less, or for a structure of which W is an array."
    over_steps: ClassVar[bool] = True
    """Whether the error of several steps may count."""
    proof: ClassVar[Mapping[str, ArraySpec]] = {MULTIPLIERS: ArraySpec("v", "n")}

    def program(self, problem: SpaceProblem) -> SparseProgram:
        mixing = problem.mixing if issparse(problem.mixing) else csr_array(problem.mixing)
        steps = problem.horizon
        if steps > 1 and not self.over_steps:
            expected = f"1 step, of noise of structure {problem.structure}"
            raise InputError("error.horizon", expected=expected, got=str(steps))
        powers = np.arange(steps, 0.0, -1.0)  # of all iterates
        return SparseProgram(mixing=mixing, budget=problem.budget, powers=powers, seed=SEED)

    def afresh(self, program: SparseProgram, *, seed: int | None = None) -> SparseProgram:
        return replace(program, seed=seed)

    def hurried(self, program: SparseProgram, *, seconds: float) -> SparseProgram:
        # All vectors take about 8 s; with .3 of them less than twice as much is open.
        return replace(program, share=float(np.clip(seconds / 8.0, 0.3, 1.0)))

    def solve(self, program: SparseProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.polynomial import solver

        made: PolynomialCovariance | None = None
        weights = 1 / program.budget
        with Search(monitor) as search:
            monitor.report(lower=0.0, upper=program.independent_error)
            rng = np.random.default_rng(SEED)
            steps = solver.improving(program.in_order, rng=rng, go_on=lambda: not monitor.expired)
            monitor.tell("first noise")
            for number, (noise_so_far, operator) in enumerate(steps, start=1):
                made, weights = program.back(noise_so_far, operator.weights)
                monitor.tell(f"improving noise {number}")
                if search.ended(solved=False):
                    break
            else:
                search.ended(solved=not monitor.expired)
        if made is None:
            return Answer(stop=search.stop, proof={MULTIPLIERS: weights})
        noise = Noise(steps=None, nodes=program.size, space=made)
        return Answer(stop=search.stop, noises=[noise], proof={MULTIPLIERS: weights})

    def searched(self, program: SparseProgram) -> str | None:
        """It falls short of the optimum as other solvers do, by a gap that is told."""
        return None

    def remark(self, program: SparseProgram, noise: Noise) -> str:
        if judging.is_exact(program):
            return ""
        return (
            f"Budgets are certified; objective and bound are statistical, of confidence "
            f"{judging.CONFIDENCE!r} over the vectors that traces are estimated by."
        )

    def bound(
        self, program: SparseProgram, proof: Arrays, *, noise: Noise | None = None, **_: Any
    ) -> ProvedBound:
        """The bound, and as its rounding how much the vectors lowered it."""
        weights = proof.get(MULTIPLIERS)
        if weights is None or not (np.isfinite(weights) & (weights > 0)).all():
            return NOTHING
        ordered = None
        if noise is not None and isinstance(noise.space, PolynomialCovariance):
            ordered = judging.in_order(program, noise.space)
        if program.order is not None:
            weights = weights[program.order]
        found = judging.proved(program.in_order, weights, ordered)
        return ProvedBound(found.low, found.spread) if found.low > 0 else NOTHING

    def prices(self, problem: SpaceProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        if MULTIPLIERS not in proof:
            return {}
        return named_shares(problem.nodes, problem.budget * proof[MULTIPLIERS])

    def judge(
        self, program: SparseProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        space = noise.space
        if not isinstance(space, PolynomialCovariance):  # an array, which is there already
            return judge_covariance(_dense(program), noise.covariance, bound=bound)
        space, program = judging.in_order(program, space), program.in_order
        worst = judging.squared_sensitivity(space, program.budget)
        if not np.isfinite(worst):
            return Certificate(
                objective=np.inf,
                lower_bound=bound,
                sensitivity_squared=np.inf,
                sensitivity_kind=UPPER_BOUND,
            )
        error = judging.error(program, space)
        exact = judging.is_exact(program)
        return Certificate(
            objective=error.high,
            lower_bound=bound,
            sensitivity_squared=worst,
            sensitivity_kind=UPPER_BOUND,
            confidence=None if exact else judging.CONFIDENCE,
            uncertainty=None if exact else error.spread,
        )

    def rigorous_judge(self, program: SparseProgram, noise: Noise, proof: Arrays) -> Judged:
        """Judge R as it is written out; of too many nodes for that its budgets alone."""
        if program.size > WRITTEN_OUT and isinstance(noise.space, PolynomialCovariance):
            space = judging.in_order(program, noise.space)
            worst = finite_sums.squared_sensitivity(space, program.in_order.budget)
            return Judged(objective=rigorous.UNPROVED, sensitivity_squared=worst)
        return rigorous.judge_covariance(_written_out(program), symmetrized(noise.covariance))

    def rigorous_release(self, program: SparseProgram, noise: Noise) -> Judged:
        if program.size > WRITTEN_OUT:
            why = f"noise for {program.size} nodes, of which at most {WRITTEN_OUT} are covered"
            raise NotProvedError(why)
        return rigorous.judge_release(_dense(program), noise.covariance)

    def rigorous_bound(
        self,
        program: SparseProgram,
        proof: Arrays,
        *,
        judged: Judged | None = None,
        enough: float = 0.0,
        **_: Any,
    ) -> Interval:
        """The bound by the same multipliers, without a polynomial for the square root."""
        if MULTIPLIERS not in proof:
            raise NotProvedError("there are no multipliers")
        dual = diagonal_dual(proof[MULTIPLIERS], None, None)
        proved = judged is not None and judged.sensitivity_squared <= 1
        written = _written_out(program, "; that budgets hold is proved" if proved else "")
        return rigorous.disjoint_bound(written, dual, judged=judged, enough=enough)

    def departure(self, program: SparseProgram, noise: Noise, proof: Arrays) -> float:
        """The distance of its W from that of the problem."""
        space = noise.space
        if not isinstance(space, PolynomialCovariance):
            return np.inf
        difference = abs(space.mixing - program.mixing)
        return float(difference.max()) if difference.nnz else 0.0

    def independent(self, program: SparseProgram) -> Noise:
        room = 1 + 4 * settings.rank_tolerance(1)
        weights = np.ones(program.size)
        space = PolynomialCovariance(
            mixing=program.mixing,
            weights=weights,
            bound=float((program.mixing.T @ (program.mixing @ weights)).max()) * room,
            precision=np.ones(1),
            noise=np.full(1, 1 + 1e-14),
            scale=room / program.budget,
        )
        return Noise(steps=None, nodes=program.size, space=space)

    def independent_error(self, problem: SpaceProblem) -> float:
        return self.program(problem).independent_error

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        return {"n": int(problem.mixing.shape[0])}


def _written_out(program: SparseProgram, beside: str = "") -> Program:
    """The program of the same W as an array; a ``NotProvedError`` for too many nodes."""
    if program.size > WRITTEN_OUT:
        why = (
            f"it and the error are estimates, that hold with confidence {judging.CONFIDENCE!r}, of "
            f"{program.size} nodes, of which at most {WRITTEN_OUT} are covered{beside}"
        )
        raise NotProvedError(why)
    return _dense(program)


def _dense(program: SparseProgram) -> Program:
    """The same with arrays; W is the factor of H where that is exact."""
    w, counts = program.mixing.toarray(), program.powers
    gram, power = np.zeros_like(w), np.eye(program.size)
    for count in counts:
        power = power @ w
        gram += count * (power.T @ power)
    return Program(
        gram=gram,
        participation=single(program.size),
        budget=program.budget,
        exact_factor=w if tuple(counts) == (1.0,) else None,
        axes="space",
    )


FAMILY = Polynomial()
