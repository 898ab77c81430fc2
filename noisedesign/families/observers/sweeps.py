"""Larger problems: sweeps along a central path, for observers who have little each.

With v_a of the budgets and w of the caps, Q_a = K_a(R)^-1 G_a, M = H + diag(w) = L L^T and
S = sum_a K_a*(Q_a diag(v_a) Q_a^T), a sweep minimises a majorant of the Lagrangian with a barrier:

    R' = L^-T ( mu / 2 + (mu^2 / 4 + L^T R S R L)^1/2 ) L^-1

(docs/methods/observers.md). The multipliers follow as on a central path, v <- v told + mu_v and w
<- w R_ii / cap + mu / cap. Falling mu as fast as the sweeps can follow keeps noise away from the
singular covariances they would take long to leave."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.optimize

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Search, Stop
from noisedesign.families.family import Answer, Arrays
from noisedesign.families.observers.batches import Batches, Sight, feasible, largest_in
from noisedesign.families.observers.bound import judge, lower_bound
from noisedesign.families.observers.program import FINE, MARGIN, ObserverProgram
from noisedesign.families.observers.working_set import WorkingSet
from noisedesign.forms import Noise

BUDGET_SHARE = 0.2  # of mu, of all budgets together: they find their size without much
# Share of the last step that is taken again, once it has grown to that: it needs a third of the
# sweeps at 500 nodes. It is calmed after so many looks in vain.
MOMENTUM, STALLS = 0.88, 2
# Exponents of the steps of v and w, without which momentum lets single prices swing.
DAMPED_BUDGETS, DAMPED_CAPS = 0.6, 0.4


def search(problem: ObserverProgram, *, monitor: Monitor) -> Answer:
    """Find the best noise and multipliers of a central path; else independent noise."""
    found = _Best(problem)
    # The first share is large, so that noise comes from above; sweeps would not follow the least.
    path = _Path(WorkingSet(problem, gradients=True), share=0.3)
    least = max(0.1 * monitor.gap, 1e-4)
    # What sweeps alone prove, from which on the error is shared out by Newton's method.
    threshold, sweep = 1.3 * max(monitor.gap, FINE), 0
    enough = 0.99 * monitor.gap  # what is proved is judged as it is stored
    with Search(monitor) as searched:
        for sweep in range(600):
            sight = path.batches.look(path.noise)
            if sweep % 10 == 9:
                bound, excess = path.bound(sight)
                hoped = path.objective / bound - 1 if bound > 0 else np.inf
                if hoped <= threshold:
                    got = max(found.improve(path, sight), settings.EPS)
                    # By how much it fell short, for both to be worth the same again.
                    threshold = hoped * min(max(enough / got, 0.3), 0.9)
                monitor.report(lower=found.bound, upper=found.upper)
                if searched.ended(solved=found.upper <= (1 + enough) * found.bound):
                    break
                path.follow(excess, last=least)
                if path.grow():
                    sight = path.batches.look(path.noise)
            path.step(sight, settled=sweep - 8)
    if searched.stop is not Stop.SOLVED:
        with Search(monitor):
            found.improve(path, path.batches.look(path.noise))
    return Answer(
        stop=searched.stop,
        noises=[Noise.of_covariance(found.noise)],
        proof=found.proof,
        evaluations=sweep + 1,
    )


class _Best:
    """The best feasible noise so far and what it costs, and the multipliers that prove most."""

    def __init__(self, problem: ObserverProgram) -> None:
        self.problem = problem
        self.noise = problem.independent()
        self.upper = float(np.sum(problem.gram * self.noise))
        self.bound = 0.0
        self.proof: Arrays = {}

    def improve(self, path: _Path, sight: Sight) -> float:
        """Share out the error, and repair noise; return the gap of both."""
        problem, upper = self.problem, np.inf
        given = sight, path.weights, path.prices
        multipliers = feasible(path.program, path.batches, *given, barrier=path.barrier)
        bound = problem.unit_error * lower_bound(path.program, multipliers)
        if bound > self.bound:
            self.bound, self.proof = bound, path.working.proof(multipliers)
        made = self._within_budgets(path)
        judged = judge(problem, made, bound=self.bound)
        if not judged.feasible:
            made = problem.repaired(made)
            judged = judge(problem, made, bound=self.bound)
        if judged.feasible:
            upper = judged.objective
            if upper < self.upper:
                self.upper, self.noise = upper, made
        return upper / bound - 1 if bound > 0 else np.inf

    def _within_budgets(self, path: _Path) -> Array:
        """The noise of the path with more, or less, at each node, as far as the cap has room."""
        problem = self.problem
        unit = np.multiply.outer(problem.unit, problem.unit)
        noise, told = path.noise * unit, path.working.largest(path.noise, path.batches)
        noise = _node_by_node(problem, noise, told, squares=_cheapest(problem, noise, told))
        for _ in range(6 if problem.horizon > 1 else 0):
            told = path.working.largest(noise / unit, path.batches)
            if told.max() <= 1:
                break
            noise = _node_by_node(problem, noise, told * (1 + 1e-5))
        return noise


def _cheapest(problem: ObserverProgram, noise: Array, told: Array) -> Array:
    """Find d^2, (n,), with the least error of noise d_u z_u, d_u^2 >= told_u within the cap."""
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
    problem: ObserverProgram, noise: Array, told: Array, *, squares: Array | None = None
) -> Array:
    """Bring noise that lacks little within budgets and cap: in a single step and for observers of
    messages of single nodes; nearly so in several, where messages tell of earlier noise too.
    ``told`` are the largest squared sensitivities, shape (n,), and ``squares`` the d^2 wished for;
    docs/methods/observers.md says why others stay protected."""
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
    """The state of the sweeps: ``noise`` R, v_a, w, and the ``share`` of the objective that
    mu log det R has."""

    def __init__(self, working: WorkingSet, *, share: float) -> None:
        self.working, self.share = working, share
        self.program = program = working.program
        self.batches = Batches(program)
        self.weights = self.batches.all_equal(1 / self.batches.pairs)
        self.powers = self.batches.all_equal(DAMPED_BUDGETS)
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

    def grow(self) -> bool:
        """Look at gradients that much is told of; whether they are others than before."""
        if not self.working.due():
            return False
        keys = self.working.keys_of(self.batches)
        order = np.argsort(keys)
        told = _flat(self.batches.look(self.noise).told)[order] if self.share < 0.1 else None
        if not self.working.renewed(self.noise, told):
            return False
        self.program = self.working.program
        self.batches = Batches(self.program)
        # New ones begin at thirty times what a budget without a price gets each sweep.
        fresh = 30 * BUDGET_SHARE * self.barrier * self.program.size / self.batches.pairs
        now = self.working.keys_of(self.batches)
        place = np.minimum(np.searchsorted(keys[order], now), len(keys) - 1)
        known = keys[order][place] == now
        for numbers, others in ((self.weights, fresh), (self.powers, DAMPED_BUDGETS)):
            moved = np.where(known, _flat(numbers)[order][place], others)
            numbers[:] = self.batches.split(moved)
        return True

    def follow(self, excess: float, *, last: float) -> None:
        """Let the share fall where the sweeps have followed it; calm them where they depart."""
        followed = excess <= 3 * self.share
        if followed:
            self.share = max(0.6 * self.share, last)
        if followed or excess < 0.995 * self.excess:
            self.excess, self.stalls = np.inf if followed else excess, 0
            self.momentum = min(MOMENTUM, 1.1 * self.momentum)
        else:
            self.stalls += 1
            if excess > 1.5 * self.before:
                self.stalls = STALLS
        self.before = excess
        if self.stalls == STALLS:
            self.momentum *= 0.6
            self.excess, self.stalls = excess, 0

    def bound(self, sight: Sight) -> tuple[float, float]:
        """Bound the error by all N_a times one factor, so that S <= M; and tell how S exceeds M."""
        lower = np.linalg.cholesky(self.gram)
        largest = largest_in(lower, self.batches.used(sight, self.weights))
        gained = float(self.batches.gained(sight, self.weights).sum())
        return gained / largest - float(self.program.cap @ self.prices), largest - 1

    def step(self, sight: Sight, *, settled: int) -> None:
        """A sweep; after the first, which settle, it goes further than the majorant says."""
        program, here = self.program, self.noise
        mu, mu_of_pair = self.barrier, self.barrier * program.size / self.batches.pairs
        lower = np.linalg.cholesky(self.gram)
        root = lower.T @ here
        used = self.batches.used(sight, self.weights)
        values, vectors = np.linalg.eigh(_linalg.symmetrized(root @ used @ root.T))
        found = mu / 2 + np.sqrt(mu**2 / 4 + np.maximum(values, 0.0))
        factor = scipy.linalg.solve_triangular(lower.T, vectors * np.sqrt(found), lower=False)
        noise = factor @ factor.T
        added = DAMPED_BUDGETS * BUDGET_SHARE * mu_of_pair
        for batch, told in enumerate(sight.told):
            over, power = told > 1, self.powers[batch]
            self.weights[batch] *= told ** np.where(over, power, DAMPED_BUDGETS)
            self.weights[batch] += added
            # One among many that has yet to become large does so in tens of sweeps, not thousands.
            power *= np.where(over, 1.2, 0.5)
            np.clip(power, 0.3, 10.0, out=power)
        ratio = np.diagonal(noise) / program.cap
        self.prices = self.prices * ratio**DAMPED_CAPS + DAMPED_CAPS * mu / program.cap
        if settled >= 0:
            momentum = min(self.momentum, settled / (settled + 4))
            # A sweep is short: it bounds from above for all directions, of which few are seen.
            noise = _further(noise, here, 0.5)
            self.noise, self.last = _further(noise, self.last, momentum), noise
        else:
            self.noise = self.last = noise


def _flat(numbers: list[Array]) -> Array:
    return np.concatenate([own.ravel() for own in numbers])


def _further(noise: Array, before: Array, share: float) -> Array:
    """Take a share of the step to R again, as far as half of the noise stays in every direction."""
    while share > 0.01:
        found = noise + share * (noise - before)
        if _linalg.is_positive(found - 0.5 * noise):
            return np.asarray(found)
        share /= 2
    return noise
