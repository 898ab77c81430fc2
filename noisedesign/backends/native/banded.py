"""Banded strategies: L-BFGS on the entries of C, every point of it feasible.

X = C^T C runs over all banded positive definite matrices once while C runs over banded triangles
with a positive diagonal, so a stationary point in C is the optimum of the convex problem in X.
Columns of C are normalised and multiplied by the square roots of x = P z, the diagonal of X, with
z_i = w_i^2 divided by the cost-weighted sum of squares of its budget: no constraint is left, and
log tr(H X^-1) depends neither on the scale of H nor on that of the variables.

At the optimum X^-1 H X^-1 vanishes in the band off its diagonal, so it is the multiplier; the error
of a bound made from it is second order in how far C is from optimal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize

from noisedesign import settings
from noisedesign._checks import Array
from noisedesign._threads import one_thread
from noisedesign.backends.base import Monitor, Stop
from noisedesign.backends.native.banded_algebra import BandedError, dense
from noisedesign.banded_certificate import (
    Allowance,
    BandedProgram,
    allowance,
    banded_lower_bound,
)

MAX_ITERATIONS = 5000
MEMORY = 20
"""Pairs that L-BFGS keeps; with 10 it needs a quarter more evaluations."""
REACHED = 0.8
"""Share of the gap asked for at which to stop: the rest is left to the exact rescaling."""
SETTLED_SPAN = 5
SETTLED = 0.25
"""A bound costs tens of evaluations and is tried once the objective has fallen by less than this
share of the gap over ``SETTLED_SPAN`` iterations..."""
NEXT_BOUND = 1.15
"""...and again after this many times as many iterations."""
RESTARTS = 3
"""L-BFGS may give up on a flat step; started afresh it goes on."""
SHARE_LENGTH = 2.0
"""Length of the w of one budget beside columns of length one: how fast shares move against columns.
With 5, prefix sums under min separation take up to twice the evaluations; with 0.5 under fixed
epochs three times."""
FAR = 50.0
"""Stands for log tr(H X^-1), above the least found, where that overflows: C has almost vanishing
entries on its diagonal, and the line search has to come back."""
IN_USE = 1e-6
"""Share of its budget above which a generator is in use, so that its rate has to be the price."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedAnswer:
    """What was found.

    Attributes:
        columns: C by its columns, ``columns[t, d]`` = C[t + d, t], shape (T, p).
        multipliers: U, shape (T, T), for :func:`noisedesign.banded_certificate.banded_lower_bound`.
        evaluations: of the objective with its gradient.
    """

    stop: Stop
    columns: Array
    multipliers: Array
    evaluations: int


class _Variables:
    """The map from free variables to columns of C, and the pull-back of derivatives."""

    def __init__(self, program: BandedProgram) -> None:
        self.program = program
        self.allowance = allowance(program.participation)
        self.error = BandedError(program.gram, program.bands)
        horizon, bands = program.size, program.bands
        self.inside = np.arange(horizon)[:, None] + np.arange(bands) < horizon
        self.entries = int(self.inside.sum())
        diagonal = np.diagonal(program.gram)
        # Errors weigh a column by about H_tt^1/2: scaled by its root, columns curve alike.
        self.column_scale = ((diagonal.max() / diagonal) ** 0.25)[:, None]

    def start(self) -> Array:
        """The banded square root of prefix sums, and equal shares of every budget."""
        bands = self.program.bands
        j = np.arange(1, bands)
        coefficients = np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))
        columns = np.where(self.inside, coefficients, 0.0)
        columns /= np.linalg.norm(columns, axis=1, keepdims=True)
        budget = self.allowance.budget
        weights = SHARE_LENGTH / np.sqrt(np.bincount(budget))[budget]
        return np.concatenate([(columns / self.column_scale)[self.inside], weights])

    def columns(self, variables: Array) -> tuple[Array, Array]:
        """Columns of C, shape (T, p), and the shares z of the generators, shape (m,)."""
        unit, _, shares, _ = self._parts(variables)
        return unit * np.sqrt(self.allowance.generators @ shares)[:, None], shares

    def _parts(self, variables: Array) -> tuple[Array, Array, Array, Array]:
        free = np.zeros(self.inside.shape)
        free[self.inside] = variables[: self.entries]
        free *= self.column_scale
        length = np.linalg.norm(free, axis=1, keepdims=True)
        a, squares = self.allowance, np.square(variables[self.entries :])
        total = a.per_budget(a.cost * squares)[a.budget]
        return free / length, length, squares / total, total

    def value_and_gradient(self, variables: Array) -> tuple[float, Array]:
        """log tr(H X^-1) and its gradient."""
        a = self.allowance
        unit, length, shares, total = self._parts(variables)
        root = np.sqrt(a.generators @ shares)[:, None]
        error, by_entry = self.error(unit * root)
        along = np.sum(by_entry * unit, axis=1, keepdims=True)
        by_free = (by_entry - along * unit) * (root / length * self.column_scale)
        by_share = (along / (2 * root))[:, 0] @ a.generators
        mean = a.per_budget(by_share * shares)[a.budget]
        by_weight = 2 * variables[self.entries :] / total * (by_share - a.cost * mean)
        return float(np.log(error)), np.concatenate([by_free[self.inside], by_weight]) / error


def multipliers(program: BandedProgram, columns: Array, shares: Array) -> Array:
    """U = X^-1 H X^-1 with its diagonal balanced, shape (T, T)."""
    c = dense(columns)
    half = scipy.linalg.solve_triangular(c, program.factor.T, lower=True, trans="T")
    half = scipy.linalg.solve_triangular(c, half, lower=True)
    u = half @ half.T
    np.fill_diagonal(u, balanced(allowance(program.participation), np.diagonal(u), shares))
    return np.asarray(u)


def balanced(allowed: Allowance, v: Array, shares: Array) -> Array:
    """v, shape (T,), moved so that generators in use all have the rate <v, x> of their budget.

    At the optimum they do (complementary slackness). A price is the largest rate, so a diagonal
    that only nearly does would make the bound worse by a first-order error. The least change
    weighted by 1 / v; generators that come to exceed the rate are added to those in use. Far from
    the optimum there may be no such diagonal: v is kept where moving it does not help.
    """
    p, cost, budget = allowed.generators, allowed.cost, allowed.budget
    rate = allowed.per_budget(shares * (v @ p))[budget]
    in_use = shares * cost > IN_USE
    moved = np.array(v)
    for _ in range(len(cost)):
        used = p[:, in_use]
        weighted = used * v[:, None]
        system = used.T @ weighted
        system[np.diag_indices(len(system))] *= 1 + settings.rank_tolerance(len(system))
        missing = (cost * rate - v @ p)[in_use]
        moved = v + weighted @ np.linalg.solve(system, missing)
        over = ((moved @ p) / cost > rate * (1 + settings.sqrt_eps())) & ~in_use
        if not over.any():
            break
        in_use |= over
    x = p @ shares
    better = moved.min() > 0 and allowed.price(moved) * (v @ x) < allowed.price(v) * (moved @ x)
    return moved if better else np.array(v)


class _Search:
    """The best columns and multipliers so far, and when to look for better bounds."""

    def __init__(self, program: BandedProgram, monitor: Monitor) -> None:
        self.program, self.monitor = program, monitor
        self.variables = _Variables(program)
        self.at = self.variables.start()
        self.evaluations, self.iterations, self.next_bound = 0, 0, 0
        self.recent: list[float] = []
        self.upper, self.lower = np.inf, 0.0
        self.upper = float(np.exp(self.evaluate(self.at)[0]))
        self.multipliers: Array | None = None

    def run(self) -> Stop:
        """Minimise until the gap is reached, time is up or nothing moves any more."""
        for _ in range(RESTARTS):
            scipy.optimize.minimize(
                self.evaluate, self.at, jac=True, method="L-BFGS-B", callback=self.accept,
                options={
                    "maxcor": MEMORY, "maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS,
                    "ftol": 0.0, "gtol": 0.0,
                },
            )  # fmt: skip
            if not self.solved and not self.monitor.expired:
                self.bound()
            if self.solved:
                return Stop.SOLVED
            if self.monitor.expired:
                return Stop.TIME_LIMIT
        return Stop.INACCURATE

    def evaluate(self, variables: Array) -> tuple[float, Array]:
        """log tr(H X^-1) and its gradient, or something large where it overflows."""
        self.evaluations += 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                value, gradient = self.variables.value_and_gradient(variables)
        except np.linalg.LinAlgError:
            value, gradient = np.inf, np.zeros_like(variables)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return float(np.log(self.upper)) + FAR, np.zeros_like(variables)
        return value, gradient

    def accept(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        """After every iteration of the minimiser.

        Raises:
            StopIteration: the gap is reached, or time is up.
        """
        self.iterations += 1
        value = float(intermediate_result.fun)
        if value <= np.log(self.upper):
            self.at, self.upper = np.array(intermediate_result.x), float(np.exp(value))
        self.recent = [*self.recent[-SETTLED_SPAN:], value]
        fallen = self.recent[0] - value
        settled = len(self.recent) > SETTLED_SPAN and fallen <= SETTLED * self.monitor.gap
        if self.monitor.expired or (settled and self.iterations >= self.next_bound):
            self.bound()
            self.next_bound = int(NEXT_BOUND * self.iterations) + 1
        if self.solved or self.monitor.expired:
            raise StopIteration

    def bound(self) -> None:
        """A lower bound from the best columns."""
        found = multipliers(self.program, *self.variables.columns(self.at))
        lower = banded_lower_bound(
            self.program, found, negligible=settings.NEGLIGIBLE_PER_GAP * self.monitor.gap
        )
        if lower >= self.lower:
            self.lower, self.multipliers = lower, found
        self.monitor.report(lower=self.lower, upper=self.upper)

    @property
    def solved(self) -> bool:
        return self.upper - self.lower <= REACHED * self.monitor.gap * self.lower

    def answer(self, stop: Stop) -> BandedAnswer:
        if self.multipliers is None:
            self.bound()
        assert self.multipliers is not None
        columns, _ = self.variables.columns(self.at)
        return BandedAnswer(
            stop=stop, columns=columns, multipliers=self.multipliers, evaluations=self.evaluations
        )


def solve(program: BandedProgram, *, monitor: Monitor) -> BandedAnswer:
    """Solve (B) until the gap of its own bounds is ``monitor.gap``."""
    search = _Search(program, monitor)
    with one_thread():  # the matrix products are of blocks of few rows
        try:
            stop = search.run()
        except KeyboardInterrupt:
            stop = Stop.INTERRUPTED
        return search.answer(stop)
