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

from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.observers.bound import Multipliers, judge, lower_bound
from noisedesign.families.observers.model import MARGIN, independent, repaired
from noisedesign.families.observers.program import FINE, ObserverProblem
from noisedesign.families.observers.shares import shared_out
from noisedesign.families.observers.stacks import Sight, Stacks
from noisedesign.families.observers.watch import Watch
from noisedesign.program.family import Answer, Arrays
from noisedesign.program.noise import Noise

SWEEPS = 600
"""At most."""

FIRST_SHARE = 0.3
"""Of the objective, that mu log det R has at first: large, so that noise comes from above."""

LAST_SHARE = 0.1
"""Of the gap asked for, below which that share need not fall."""

LEAST_SHARE = 1e-4
"""Below which it never falls: the sweeps would not follow it."""

FALL = 0.6
"""Factor on the share where the sweeps have followed it."""

FOLLOWED = 3.0
"""Multiple of the share by which S may exceed M before the share waits."""

NEARS = 0.995
"""Factor on the excess of S over M below which it falls, and waiting is not in vain."""

BURST = 1.5
"""Factor on the excess of the last look above which they are calmed at once."""

STALLS = 2
"""Looks in vain after which the sweeps are calmed."""

BUDGET_SHARE = 0.2
"""Of mu, on all budgets together: multipliers of budgets find their size without much of it."""

CHECK_EVERY = 10
"""Sweeps between two looks at the dual."""

RELAXED = 1.5
"""Factor on the step of a sweep, which is short: what it bounds from above, it bounds for all
directions of the noise, of which an observer sees few."""

MOMENTUM = 0.88
"""Share of the last step that is taken again, once it has grown to that: as in accelerated gradient
methods it needs a third of the sweeps at 500 nodes. It is calmed where S stays far from M."""

GROWTH = 4
"""Sweeps k after which momentum is k / (k + GROWTH)."""

SETTLED = 8
"""Sweeps before either of both."""

CALMER, LIVELIER = 0.6, 1.1
"""Factors on the momentum for that, and where the sweeps follow the share again."""

DAMPED_BUDGETS, DAMPED_CAPS = 0.6, 0.4
"""Exponents of the steps of v and w, without which momentum lets single prices swing."""

LONGER = 0.06
"""Share below which all steps of several are watched."""

DROPPING = 0.1
"""Share below which observers who are told little are watched no longer."""

FRESH = 30.0
"""Multiple of what a budget without a price gets each sweep that those of new observers begin at.
"""

FASTER, SLOWER = 1.2, 0.5
"""Factors on the exponent of a multiplier of a budget while it is overspent, and while it is not:
one among many that has yet to become large does so in tens of sweeps, not in thousands."""

SLOWEST, FASTEST = 0.3, 10.0
"""Between which it stays."""

KEPT = 0.5
"""Share of the noise of before that remains in every direction."""

HOPED = 1.3
"""Multiple of the gap asked for, in what sweeps alone prove, from which on the error is shared out
among the observers by Newton's method, and noise repaired."""

ROUNDS = 6
"""Times noise of several steps is scaled node by node."""

NEARLY = 1e-5
"""What its squared sensitivities are brought below their budgets by meanwhile."""

NEAREST, NEARER = 0.3, 0.9
"""Factors on that gap, at least and at most, for both to be worth the same again: by how much they
fell short."""

CLOSE = 0.99
"""Share of the gap asked for at which the search stops. What it proves is judged as it is stored.
"""


def search(problem: ObserverProblem, *, monitor: Monitor) -> Answer:
    """The best noise and multipliers of a central path; independent noise where there is no better.

    Raises:
        InputError: observers that nothing reaches; a cap too small; an observer that sees a
            gradient without noise.
    """
    found = _Best(problem, monitor)
    watch = Watch(problem, gradients=True)
    path = _Path(watch, share=FIRST_SHARE)
    least = max(LAST_SHARE * monitor.gap, LEAST_SHARE)
    threshold, sweep = HOPED * max(monitor.gap, FINE), 0
    with Search(monitor) as searched:
        for sweep in range(SWEEPS):
            sight = path.look()
            if sweep % CHECK_EVERY == CHECK_EVERY - 1:
                bound, excess = path.bound(sight)
                hoped = path.objective / bound - 1 if bound > 0 else np.inf
                if (path.share < LONGER or hoped <= threshold) and path.lengthen():
                    sight, hoped = path.look(), np.inf
                if hoped <= threshold:
                    got = max(found.improve(path, sight), settings.EPS)
                    nearer = CLOSE * monitor.gap / got
                    threshold = hoped * min(max(nearer, NEAREST), NEARER)
                monitor.report(lower=found.bound, upper=found.upper)
                if searched.ended(solved=found.gap <= CLOSE * monitor.gap):
                    break
                path.follow(excess, last=least)
                if path.grow():
                    sight = path.look()
            path.step(sight, settled=sweep - SETTLED)
    if searched.stop is not Stop.SOLVED:
        with Search(monitor):
            while path.lengthen():
                pass
            found.improve(path, path.look())
    return Answer(
        stop=searched.stop,
        noises=[Noise.of_covariance(found.noise)],
        proof=found.proof,
        evaluations=sweep + 1,
    )


class _Best:
    """The best feasible noise so far and what it costs, and the multipliers that prove most."""

    def __init__(self, problem: ObserverProblem, monitor: Monitor) -> None:
        self.problem, self.monitor = problem, monitor
        self.noise = independent(problem)
        self.upper = float(np.sum(problem.gram * self.noise))
        self.bound = 0.0
        self.proof: Arrays = {}

    @property
    def gap(self) -> float:
        return self.upper / self.bound - 1 if self.bound > 0 else np.inf

    def improve(self, path: _Path, sight: Sight) -> float:
        """Share out the error, and repair noise; the gap of both."""
        problem, upper = self.problem, np.inf
        multipliers = path.feasible(sight)
        bound = problem.unit_error * lower_bound(path.program, multipliers)
        if bound > self.bound:
            self.bound, self.proof = bound, path.watch.proof(multipliers)
        made = self._within_budgets(path, sight)
        judged = judge(problem, made, bound=self.bound)
        if not judged.feasible:
            made = repaired(problem, made)
            judged = judge(problem, made, bound=self.bound)
        if judged.feasible:
            upper = judged.objective
            if upper < self.upper:
                self.upper, self.noise = upper, made
        return upper / bound - 1 if bound > 0 else np.inf

    def _within_budgets(self, path: _Path, sight: Sight) -> Array:
        """The noise of the path with more, or less, at each node, as far as the cap has room."""
        problem, watch = self.problem, path.watch
        unit = np.multiply.outer(problem.unit, problem.unit)
        noise = path.noise * unit
        if problem.correlated_over_time:
            worst = problem.worst(noise)[0]
            return noise * worst if 1 < worst < np.inf else noise
        told = watch.largest(path.noise)
        told = path.stacks.largest(sight) if told is None else told
        noise = _node_by_node(problem, noise, told, squares=_cheapest(problem, noise, told))
        for _ in range(ROUNDS if problem.horizon > 1 else 0):
            told = watch.largest(noise / unit)
            told = path.stacks.largest(path.stacks.look(noise / unit)) if told is None else told
            if told.max() <= 1:
                break
            noise = _node_by_node(problem, noise, told * (1 + NEARLY))
        return noise


def _cheapest(problem: ObserverProblem, noise: Array, told: Array) -> Array:
    """d^2 with the least error of noise d_u z_u, d_u^2 >= told_u within the cap, shape (n,): a
    quadratic program with bounds."""
    room = np.sqrt(problem.cap * (1 - MARGIN) / np.diagonal(noise))
    least = np.minimum(np.sqrt(told * (1 + MARGIN)), room)
    error = problem.gram * noise / problem.unit_error

    def cost(d: Array) -> tuple[float, Array]:
        ahead = error @ d
        return float(d @ ahead), 2 * ahead

    found = scipy.optimize.minimize(
        cost, least, jac=True, method="L-BFGS-B", bounds=list(zip(least, room, strict=True))
    )
    return np.square(np.clip(found.x, least, room))


def _node_by_node(
    problem: ObserverProblem, noise: Array, told: Array, *, squares: Array | None = None
) -> Array:
    """Noise within budgets and cap, where it lacks little, of a single step and for observers of
    messages of single nodes; nearly so of several, where messages tell of earlier noise too.
    ``told`` are the largest squared sensitivities, shape (n,), and ``squares`` those d^2 that are
    wished for.

    Multiplying the noise of node u by d divides by d^2 what anyone is told of it, and changes
    nothing else. Where the cap leaves no room, its noise z_u becomes e z_u + (1 - e^2)^1/2 y with
    y independent, as large as the cap: whoever else is protected by z_u still is, as noise on what
    is known of z_u makes it tell less.
    """
    room = problem.cap * (1 - MARGIN) / np.diagonal(noise)
    if squares is None:
        squares = np.minimum(np.maximum(told * (1 + MARGIN), 1.0), room)
    scaled = noise * np.sqrt(np.multiply.outer(squares, squares))
    left = 1 / np.maximum(told * (1 + MARGIN) / squares, 1.0)
    more = np.maximum(problem.cap / problem.unit**2 - left, settings.EPS)
    kept = np.maximum(1 - (1 - left) / more, 0.0)
    mixed = scaled * np.sqrt(np.multiply.outer(kept, kept))
    mixed[np.diag_indices_from(mixed)] = kept * np.diagonal(scaled) + (1 - kept) * problem.cap
    return np.asarray(mixed)


class _Path:
    """Where the sweeps are: ``noise`` R, v_a, w, and the ``share`` of the barrier."""

    def __init__(self, watch: Watch, *, share: float) -> None:
        self.watch, self.share = watch, share
        self.program = program = watch.program
        self.stacks = Stacks(program)
        self.weights = self.stacks.evenly()
        self.powers = self.stacks.all_equal(DAMPED_BUDGETS)
        self.prices = share / (program.size * program.cap)
        self.noise = np.diag(np.minimum(1.0, program.cap))
        self.last = self.noise
        self.before = self.excess = np.inf
        self.stalls, self.momentum = 0, MOMENTUM

    @property
    def objective(self) -> float:
        return _linalg.inner(self.program.gram, self.noise)

    @property
    def barrier(self) -> float:
        """mu."""
        return self.share * self.objective / self.program.size

    @property
    def gram(self) -> Array:
        """M = H + diag(w)."""
        return np.asarray(self.program.gram + np.diag(self.prices))

    def look(self) -> Sight:
        return self.stacks.look(self.noise)

    def grow(self) -> bool:
        """Watch those whom the noise tells much, and no longer those whom it tells little; whether
        they are others than before."""
        if not self.watch.due():
            return False
        keys = self.watch.keys_of(self.stacks)
        order, told = np.argsort(keys), None
        if self.share < DROPPING:
            told = _flat(self.look().told)[order]
        if not self.watch.renewed(self.noise, told):
            return False
        self._renew(keys, order)
        return True

    def lengthen(self) -> bool:
        """Watch twice as many steps; whether that was not all of them."""
        keys = self.watch.keys_of(self.stacks)
        if not self.watch.lengthen():
            return False
        self._renew(keys, np.argsort(keys))
        return True

    def _renew(self, keys: NDArray[np.intp], order: NDArray[np.intp]) -> None:
        """Go on with the program that is watched now, from numbers of ``keys``."""
        self.program = self.watch.program
        self.stacks = Stacks(self.program)
        fresh = FRESH * BUDGET_SHARE * self.barrier * self.program.size / self.stacks.pairs
        now = self.watch.keys_of(self.stacks)
        place = np.minimum(np.searchsorted(keys[order], now), len(keys) - 1)
        known = keys[order][place] == now
        for numbers, others in ((self.weights, fresh), (self.powers, DAMPED_BUDGETS)):
            moved = np.where(known, _flat(numbers)[order][place], others)
            numbers[:] = self.stacks.split(moved)

    def follow(self, excess: float, *, last: float) -> None:
        """Let the share fall where the sweeps have followed it; calm them where they depart."""
        if excess <= FOLLOWED * self.share:
            self.share = max(FALL * self.share, last)
            self.momentum = min(MOMENTUM, self.momentum * LIVELIER)
            self.excess, self.stalls = np.inf, 0
        elif excess < NEARS * self.excess:
            self.excess, self.stalls = excess, 0
            self.momentum = min(MOMENTUM, self.momentum * LIVELIER)
        else:
            self.stalls += 1
            if excess > BURST * self.before:
                self.stalls = STALLS
        self.before = excess
        if self.stalls == STALLS:
            self.momentum *= CALMER
            self.excess, self.stalls = excess, 0

    def bound(self, sight: Sight) -> tuple[float, float]:
        """What all N_a by one factor prove, so that S <= M; and by what S exceeds M."""
        lower = np.linalg.cholesky(self.gram)
        half = _solved(lower, self.stacks.used(sight, self.weights))
        largest = float(_linalg.eigenvalues(_solved(lower, half.T))[-1])
        gained = float(self.stacks.gained(sight, self.weights).sum())
        return gained / largest - float(self.program.cap @ self.prices), largest - 1

    def feasible(self, sight: Sight) -> Multipliers:
        """N_a by factors of their own, and prices, so that S <= M and the bound is largest."""
        shares, prices = shared_out(
            self.program, self.stacks, sight, self.weights, self.prices, barrier=self.barrier
        )
        return self.stacks.multipliers(sight, self.weights, shares, prices)

    def step(self, sight: Sight, *, settled: int) -> None:
        """A sweep; after the first, which settle, it goes further than the majorant says."""
        program, here = self.program, self.noise
        mu, mu_of_pair = self.barrier, self.barrier * program.size / self.stacks.pairs
        lower = np.linalg.cholesky(self.gram)
        root = lower.T @ here
        used = self.stacks.used(sight, self.weights)
        values, vectors = np.linalg.eigh(_linalg.symmetrized(root @ used @ root.T))
        found = mu / 2 + np.sqrt(mu**2 / 4 + np.maximum(values, 0.0))
        factor = scipy.linalg.solve_triangular(lower.T, vectors * np.sqrt(found), lower=False)
        noise = factor @ factor.T
        added = DAMPED_BUDGETS * BUDGET_SHARE * mu_of_pair
        for stack, told in enumerate(sight.told):
            over, power = told > 1, self.powers[stack]
            self.weights[stack] *= told ** np.where(over, power, DAMPED_BUDGETS)
            self.weights[stack] += added
            power *= np.where(over, FASTER, SLOWER)
            np.clip(power, SLOWEST, FASTEST, out=power)
        ratio = np.diagonal(noise) / program.cap
        self.prices = self.prices * ratio**DAMPED_CAPS + DAMPED_CAPS * mu / program.cap
        if settled >= 0:
            momentum = min(self.momentum, settled / (settled + GROWTH))
            noise = _further(noise, here, RELAXED - 1)
            self.noise, self.last = _further(noise, self.last, momentum), noise
        else:
            self.noise = self.last = noise


def _flat(numbers: list[Array]) -> Array:
    return np.concatenate([own.ravel() for own in numbers])


def _further(noise: Array, before: Array, share: float) -> Array:
    """R and a share of the step to it again, as far as it leaves enough noise everywhere."""
    while share > 0.01:
        found = noise + share * (noise - before)
        if _linalg.is_positive(found - KEPT * noise):
            return np.asarray(found)
        share /= 2
    return noise


def _solved(lower: Any, right: Any) -> Array:
    return np.asarray(scipy.linalg.solve_triangular(lower, right, lower=True))
