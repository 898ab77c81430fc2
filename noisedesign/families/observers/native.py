"""The search without a conic solver, for observers who have little each: a central path.

With multipliers v_a of the budgets and w of the caps, let Q_a = K_a(R)^-1 G_a and
S = sum_a K_a*(Q_a diag(v_a) Q_a^T). Since

    diag( G_a^T K_a(R)^-1 G_a )_c = min { y^T R^-1 y : y explains column c of G_a },

which y = R B_a^T Q_a attains, the weighted sensitivities at another R' are at most
tr(R'^-1 R S R). So with M = H + diag(w)

    minimise  tr(M R') + tr(R'^-1 R S R) - mu log det R'

is a majorant of the Lagrangian with a barrier, and its minimum is known:

    R' = L^-T ( mu / 2 + (mu^2 / 4 + L^T R S R L)^1/2 ) L^-1,   M = L L^T,

which solves R' M R' = R S R + mu R'. That is one eigendecomposition a sweep.

The multipliers follow as on a central path, v <- v told + mu_v and w <- w R_ii / cap + mu / cap, at
whose fixed point M - S = mu R^-1 is positive definite: the multipliers prove a bound as they are,
and noise is strictly within budgets and cap. Falling mu as fast as the sweeps can follow keeps
noise away from the singular covariances they would take long to leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.observers.bound import Multipliers, arrays_of, judge, lower_bound
from noisedesign.families.observers.model import independent, repaired
from noisedesign.families.observers.program import ObservedNoise, ObserverProblem, ObserverProgram
from noisedesign.program.family import Answer
from noisedesign.program.noise import Noise

SWEEPS = 600
"""At most. They certify 1 % at 60 nodes of degree eight in half as many, and 1.3 % at 500."""

FIRST_SHARE = 0.3
"""Of the objective, that mu log det R has at first: large, so that noise comes from above."""

LAST_SHARE = 0.2
"""Of the gap asked for, below which that share need not fall."""

LEAST_SHARE = 1e-4
"""Below which it never falls: the sweeps would not follow it, and the gap is about three of it."""

FALL = 0.6
"""Factor on the share where the sweeps have followed it."""

FOLLOWED = 2.0
"""Multiple of the share by which S may exceed M before the share waits."""

DEPARTS = 1.5
"""Factor on the excess of S over M, from one look to the next, that is no rounding of the path."""

PAYS = 0.5
"""Share of the gap reached that noise should have, before its repair, to be worth one."""

BUDGET_SHARE = 0.2
"""Of mu, on all budgets together: multipliers of budgets find their size without much of it."""

CHECK_EVERY = 10
"""Sweeps between two looks at the dual."""

RELAXED = 1.5
"""Factor on the step of a sweep, which is short: what it bounds from above, it bounds for all
directions of the noise, of which an observer sees few."""

MOMENTUM = 0.7
"""Share of the last step that is taken again, halved whenever S departs from M: half as many sweeps
at 300 nodes, where it stays; it does not on small graphs."""

SETTLED = 8
"""Sweeps before either of both."""

KEPT = 0.5
"""Share of the noise of before that remains in every direction."""


class _Sight(NamedTuple):
    """What observers tell of R: ``told`` by gradient, F_a with N_a = F_a^T F_a, S."""

    told: list[Array]
    factors: list[Array]
    used: Array


def search(problem: ObserverProblem, *, monitor: Monitor) -> Answer:
    """The best noise and multipliers of a central path; independent noise where there is no better.

    Raises:
        InputError: observers that nothing reaches; a cap too small; an observer that sees a
            gradient without noise.
    """
    program = problem.normalized
    best = independent(problem)
    upper, bound, kept = float(np.sum(problem.gram * best)), 0.0, None
    path = _Path(program, share=FIRST_SHARE)
    scale = np.multiply.outer(problem.unit, problem.unit)
    with Search(monitor) as searched:
        for sweep in range(SWEEPS):
            sight, multipliers = path.look()
            if sweep % CHECK_EVERY == CHECK_EVERY - 1:
                multipliers, excess = _feasible(program, path, sight, multipliers)
                value = problem.unit_error * lower_bound(program, multipliers)
                if value > bound:
                    bound, kept = value, multipliers
                # Repaired noise costs more; repairs are only made where they may pay.
                hoped, reached = problem.unit_error * path.objective - bound, upper - bound
                if hoped <= max(monitor.gap * bound, PAYS * reached):
                    noise = _within(problem, path.noise * scale)
                    judged = judge(problem, noise, bound=bound)
                    if judged.feasible and judged.objective < upper:
                        upper, best = judged.objective, noise
                monitor.report(lower=bound, upper=upper)
                if searched.ended(solved=0 < upper <= (1 + REACHED * monitor.gap) * bound):
                    break
                path.follow(excess, last=max(LAST_SHARE * monitor.gap, LEAST_SHARE))
            path.step(sight, settled=sweep >= SETTLED)
    if searched.stop is not Stop.SOLVED:
        noise = _within(problem, path.noise * scale)
        judged = judge(problem, noise, bound=bound)
        if judged.feasible and judged.objective < upper:
            best = noise
    proof = {} if kept is None else arrays_of(program, kept)
    return Answer(
        stop=searched.stop,
        noises=[Noise.of_covariance(best)],
        proof=proof,
        evaluations=len(monitor.history) * CHECK_EVERY,
    )


def _within(problem: ObserverProblem, noise: Array) -> Array:
    """Noise within budgets and cap: more of the same where too little, then repaired. Most nodes at
    the cap have budget to spare, so that little other noise has to be mixed in."""
    worst = problem.worst(noise)[0]
    return repaired(problem, noise * worst if 1 < worst < np.inf else noise)


class _Path:
    """Where the sweeps are: ``noise`` R, v_a, w, and the ``share`` of the barrier."""

    def __init__(self, program: ObserverProgram, *, share: float) -> None:
        self.program, self.share = program, share
        counts = [seen.signals.shape[1] for seen in program.observers]
        self.pairs = sum(counts)
        self.weights = [np.full(count, 1 / self.pairs) for count in counts]
        self.prices = share / (program.size * program.cap)
        self.noise = np.diag(np.minimum(1.0, program.cap))
        self.last = self.noise
        self.excess, self.momentum = np.inf, MOMENTUM

    @property
    def objective(self) -> float:
        return _linalg.inner(self.program.gram, self.noise)

    @property
    def gram(self) -> Array:
        """M = H + diag(w)."""
        return np.asarray(self.program.gram + np.diag(self.prices))

    def follow(self, excess: float, *, last: float) -> None:
        """Let the share fall where the sweeps have followed it; calm them where they depart."""
        if excess <= FOLLOWED * self.share:
            self.share = max(FALL * self.share, last)
        elif excess > DEPARTS * self.excess:
            self.momentum /= 2
        self.excess = excess

    def look(self) -> tuple[_Sight, Multipliers]:
        told, factors = [], []
        used = np.zeros_like(self.program.gram)
        for seen, weights in zip(self.program.observers, self.weights, strict=True):
            one, factor, own = _seen(seen, self.noise, weights)
            told.append(one)
            factors.append(factor)
            used[np.ix_(seen.support, seen.support)] += own
        found = Multipliers(
            factors=tuple(factors), weights=tuple(self.weights), cap=self.prices.copy()
        )
        return _Sight(told, factors, used), found

    def step(self, sight: _Sight, *, settled: bool) -> None:
        """A sweep; one that has ``settled`` goes further than the majorant says."""
        program, here = self.program, self.noise
        barrier = self.share * self.objective
        mu, mu_of_pair = barrier / program.size, BUDGET_SHARE * barrier / self.pairs
        lower = np.linalg.cholesky(self.gram)
        root = lower.T @ here
        values, vectors = np.linalg.eigh(_linalg.symmetrized(root @ sight.used @ root.T))
        found = mu / 2 + np.sqrt(mu**2 / 4 + np.maximum(values, 0.0))
        factor = np.linalg.solve(lower.T, vectors * np.sqrt(found))
        noise = factor @ factor.T
        self.weights = [
            v * told + mu_of_pair for v, told in zip(self.weights, sight.told, strict=True)
        ]
        self.prices = (self.prices * np.diagonal(noise) + mu) / program.cap
        if settled:
            noise = _further(noise, here, RELAXED - 1)
            self.noise, self.last = _further(noise, self.last, self.momentum), noise
        else:
            self.noise = self.last = noise


def _further(noise: Array, before: Array, share: float) -> Array:
    """R and a share of the step to it again, as far as it leaves enough noise everywhere."""
    while share > 0.01:
        found = noise + share * (noise - before)
        if _linalg.is_positive(found - KEPT * noise):
            return np.asarray(found)
        share /= 2
    return noise


def _seen(seen: ObservedNoise, noise: Array, weights: Array) -> tuple[Array, Array, Array]:
    """diag(G^T K^-1 G), F with N = F^T F, and K*(N) on the support of one observer."""
    solved = np.linalg.solve(seen.covariance(noise), seen.signals)
    inverse = np.asarray(solved, dtype=np.float64)
    told = np.einsum("mc,mc->c", seen.signals, inverse)
    factor = (inverse * np.sqrt(weights)).T
    rows = np.concatenate(list(factor @ seen.local))
    return np.asarray(told), factor, np.asarray(rows.T @ rows)


def _feasible(
    program: ObserverProgram, path: _Path, sight: _Sight, multipliers: Multipliers
) -> tuple[Multipliers, float]:
    """All N_a by one factor, so that S <= M; and by what S exceeded M, relative to it."""
    lower = np.linalg.cholesky(path.gram)
    half = np.linalg.solve(lower, sight.used)
    largest = float(_linalg.eigenvalues(np.linalg.solve(lower, half.T))[-1])
    scaled = tuple(factor / np.sqrt(largest) for factor in multipliers.factors)
    return (
        Multipliers(factors=scaled, weights=multipliers.weights, cap=multipliers.cap),
        largest - 1,
    )
