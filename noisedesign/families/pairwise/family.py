"""Noise of seeds that neighbours share, on graphs that are too large for n x n arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.certify.certificate import Certificate
from noisedesign.families.family import ANY, LOCAL, Answer, Arrays, ArraySpec
from noisedesign.families.pairwise import bound as judging
from noisedesign.families.polynomial import bound as unrestricted
from noisedesign.families.polynomial.family import MULTIPLIERS, SEED, Polynomial
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import Noise, PairwiseCovariance
from noisedesign.privacy.sensitivity import UPPER_BOUND

STEPS = "lanczos_steps"


class Pairwise(Polynomial):
    """Program and bound are those of noise of polynomial precision, so that the gap is also what
    is paid for having no trusted party; its noise is a :class:`PairwiseCovariance`."""

    name = "pairwise"
    gap = settings.DEFAULT_GAP
    short = ""
    over_steps = False
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        **Polynomial.proof,
        STEPS: ArraySpec("of Lanczos, by which budgets are bounded", ANY, multiplier=False),
    }

    def solve(self, program: SparseProgram, *, monitor: Monitor) -> Answer:
        from noisedesign.families.pairwise import solver
        from noisedesign.families.polynomial import solver as free

        rng = np.random.default_rng(SEED)
        monitor.report(lower=0.0, upper=program.independent_error)
        search = Search(monitor)
        covariance, steps = solver.pairwise_noise(program, rng=rng, watch=search)
        weights = 1 / program.budget
        with search:
            for _, operator in free.improving(program, degree=free.CHEAP_DEGREE, rng=rng):
                weights = operator.weights
                if search.stop is not Stop.SOLVED or monitor.expired:
                    break
        if monitor.expired and search.stop is Stop.SOLVED:
            search.stop = Stop.TIME_LIMIT
        noise = Noise(steps=None, nodes=program.size, space=covariance)
        proof = {MULTIPLIERS: weights, STEPS: np.array([float(steps)])}
        return Answer(stop=search.stop, noises=[noise], proof=proof)

    def searched(self, program: SparseProgram) -> str | None:
        return LOCAL

    def remark(self, program: SparseProgram, noise: Noise) -> str:
        if unrestricted.is_exact(program):
            return ""
        return (
            "Budgets and objective are sums; the lower bound, of noise of every structure, holds "
            f"with confidence {unrestricted.CONFIDENCE!r}, over the vectors it is estimated by."
        )

    def judge(
        self, program: SparseProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        space = noise.space
        if not isinstance(space, PairwiseCovariance):  # an array, as of a trusted server
            return super().judge(program, noise, proof, bound=bound)
        exact = unrestricted.is_exact(program)
        return Certificate(
            objective=judging.error(program, space),
            lower_bound=bound,
            sensitivity_squared=judging.squared_sensitivity(
                space, program.budget, steps=_steps(proof)
            ),
            sensitivity_kind=UPPER_BOUND,
            confidence=None if exact else unrestricted.CONFIDENCE,
            uncertainty=None if exact else 0.0,
        )

    def departure(self, program: SparseProgram, noise: Noise, proof: Arrays) -> float:
        """The largest covariance of two nodes without a link, relative to the largest variance."""
        space = noise.space
        return judging.outside(program, space) if isinstance(space, PairwiseCovariance) else np.inf

    def independent(self, program: SparseProgram) -> Noise:
        own = np.sqrt((1 + 4 * judging.FEW) / program.budget)
        none = np.zeros((0, 2))
        space = PairwiseCovariance(own=own, pairs=none.astype(np.int64), shares=none)
        return Noise(steps=None, nodes=program.size, space=space)


def _steps(proof: Arrays) -> int | None:
    """The steps that a solver states; any number of them proves what it proves."""
    stated: Any = proof.get(STEPS)
    if stated is None or stated.shape != (1,) or not 1 <= stated[0] <= judging.MOST_STEPS:
        return None
    return int(stated[0])


FAMILY = Pairwise()
