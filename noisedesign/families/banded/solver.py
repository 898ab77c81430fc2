"""Banded strategies: L-BFGS on the entries of C, every point of it feasible.

X = C^T C runs over all banded positive definite matrices once while C runs over banded triangles
with a positive diagonal, so a stationary point in C is the optimum of the convex problem in X.
Columns of C are normalised and multiplied by the square roots of x = P z, the diagonal of X, with
z_i = w_i^2 divided by the cost-weighted sum of squares of its budget: no constraint is left."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize

from noisedesign.base import settings
from noisedesign.base.banded_matrices import BandedError, dense
from noisedesign.base.checks import Array
from noisedesign.base.machine import one_thread
from noisedesign.base.monitor import REACHED, Monitor, Search, Stop
from noisedesign.families.banded.bound import banded_lower_bound, multipliers_above, witness
from noisedesign.families.banded.program import BandedProgram
from noisedesign.families.banded.recursion import RecursiveError, inverse_factor


@dataclass(frozen=True, kw_only=True, eq=False)
class BandedAnswer:
    """A banded strategy and what proves it: C by its ``columns``, [t, d] = C[t + d, t], shape (T,
    p); ``shares`` z, (m,), with P z the diagonal of X; a ``factor`` V of the multipliers, (T, T),
    which need not be kept where C is its ``own`` proof."""

    program: BandedProgram
    stop: Stop
    columns: Array
    shares: Array
    factor: Array
    own: bool
    evaluations: int

    @cached_property
    def multipliers(self) -> Array:
        """U, shape (T, T), for :func:`bound.banded_lower_bound`."""
        return multipliers_above(self.program, self.factor)


class _Variables:
    """The map from free variables to columns of C, and the pull-back of derivatives."""

    def __init__(self, program: BandedProgram, *, negligible: float = settings.NEGLIGIBLE) -> None:
        self.program, self.allowance = program, program.allowance
        self.inverse = inverse_factor(program.factor, tolerance=negligible)
        self.error: Callable[[Array], tuple[float, Array]]
        if self.inverse is not None and RecursiveError.pays(self.inverse, program.bands):
            self.error = RecursiveError(self.inverse, program.bands)
        else:
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
        # Beside columns of length one: with 5, prefix sums under min separation take up to twice
        # the evaluations; with 0.5 under fixed epochs three times.
        weights = 2.0 / np.sqrt(np.bincount(budget))[budget]
        return np.concatenate([(columns / self.column_scale)[self.inside], weights])

    def columns(self, variables: Array) -> tuple[Array, Array]:
        """Columns of C, shape (T, p), and the shares z of the generators, shape (m,)."""
        unit, _, shares, _ = self._parts(variables)
        return unit * np.sqrt(self.allowance.diagonal(shares))[:, None], shares

    def witness(self, variables: Array) -> tuple[Array, float]:
        """A factor of multipliers, shape (T, T), and the lower bound it proves."""
        columns, shares = self.columns(variables)
        factor = self.program.factor
        if self.inverse is None:
            inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
        else:
            inverse = dense(self.inverse)
        return witness(self.program, columns=columns, shares=shares, inverse=inverse)

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
        root = np.sqrt(a.diagonal(shares))[:, None]
        error, by_entry = self.error(unit * root)
        along = np.sum(by_entry * unit, axis=1, keepdims=True)
        by_free = (by_entry - along * unit) * (root / length * self.column_scale)
        by_share = a.rates((along / (2 * root))[:, 0])
        mean = a.per_budget(by_share * shares)[a.budget]
        by_weight = 2 * variables[self.entries :] / total * (by_share - a.cost * mean)
        return float(np.log(error)), np.concatenate([by_free[self.inside], by_weight]) / error


class _Search:
    """The best columns and multipliers so far, and when to look for better bounds."""

    def __init__(self, program: BandedProgram, monitor: Monitor) -> None:
        self.program, self.monitor = program, monitor
        # A short memory of H is taken for exact up to this error; bounds and exported errors are by
        # H itself.
        self.variables = _Variables(program, negligible=1e-2 * monitor.gap)
        self.at = self.variables.start()
        self.evaluations, self.iterations, self.next_bound = 0, 0, 0
        self.recent: deque[float] = deque(maxlen=6)  # the last values
        self.upper, self.lower = np.inf, 0.0
        self.upper = float(np.exp(self.evaluate(self.at)[0]))
        self.factor: Array | None = None
        self.own = 0.0  # the bound of the best columns themselves

    def run(self, search: Search) -> None:
        """Minimise until the gap is reached, time is up or nothing moves any more."""
        # More pairs save few evaluations, where they do, and each costs a tenth of one.
        options: Any = {"maxcor": 8, "maxiter": 5000, "maxfun": 10_000, "ftol": 0.0, "gtol": 0.0}
        for _ in range(3):  # L-BFGS may give up on a flat step; started afresh it goes on
            scipy.optimize.minimize(
                self.evaluate,
                self.at,
                jac=True,
                method="L-BFGS-B",
                callback=self.accept,
                options=options,
            )
            if not self.solved and not self.monitor.expired:
                self.bound()
            if search.ended(solved=self.solved):
                break

    def evaluate(self, variables: Array) -> tuple[float, Array]:
        """log tr(H X^-1) and its gradient, or something large where it overflows."""
        self.evaluations += 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                value, gradient = self.variables.value_and_gradient(variables)
        except np.linalg.LinAlgError:
            value, gradient = np.inf, np.zeros_like(variables)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # A value far above the least found makes the line search come back.
            return float(np.log(self.upper)) + 50.0, np.zeros_like(variables)
        return value, gradient

    def accept(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        """Note an iteration of the minimiser; stop it where the gap is reached or time is up."""
        self.iterations += 1
        value = float(intermediate_result.fun)
        if value <= np.log(self.upper):
            self.at, self.upper = np.array(intermediate_result.x), float(np.exp(value))
            self.own = 0.0
        self.recent.append(value)
        fallen = self.recent[0] - value
        # A bound costs some evaluations: it waits until the objective falls by little.
        settled = len(self.recent) == self.recent.maxlen and fallen <= 0.05 * self.monitor.gap
        if self.monitor.expired or (settled and self.iterations >= self.next_bound):
            self.bound()
            self.next_bound = int(1.1 * self.iterations) + 1
        if self.solved or self.monitor.expired:
            raise StopIteration

    def bound(self) -> None:
        """Prove a lower bound from the best columns."""
        factor, self.own = self.variables.witness(self.at)
        if self.own >= self.lower:
            self.lower, self.factor = self.own, factor
        self.monitor.report(lower=self.lower, upper=self.upper)

    @property
    def solved(self) -> bool:
        return self.upper - self.lower <= REACHED * self.monitor.gap * self.lower

    def answer(self, stop: Stop) -> BandedAnswer:
        if self.factor is None:
            self.bound()
        assert self.factor is not None
        columns, shares = self.variables.columns(self.at)
        # The T x T multipliers are left out where those that follow from C prove nearly as much.
        found = BandedAnswer(
            program=self.program,
            stop=Stop.SOLVED if self.solved else stop,
            columns=columns,
            shares=shares,
            factor=self.factor,
            own=self.own >= self.lower * (1 - 0.1 * self.monitor.gap),
            evaluations=self.evaluations,
        )
        if stop is Stop.SOLVED:
            return found
        # The spectrum of the multipliers proves more than their factor does.
        negligible = settings.NEGLIGIBLE_PER_GAP * self.monitor.gap
        lower = banded_lower_bound(self.program, found.multipliers, negligible=negligible)
        self.lower = max(lower, self.lower)
        with contextlib.suppress(KeyboardInterrupt):  # a second one: this is the way out
            self.monitor.report(lower=self.lower, upper=self.upper)
        return replace(found, stop=Stop.SOLVED if self.solved else stop)


def solve(program: BandedProgram, *, monitor: Monitor) -> BandedAnswer:
    """Solve (B) until the gap of its own bounds is ``monitor.gap``."""
    descent = _Search(program, monitor)
    with one_thread(), Search(monitor) as search:  # the matrix products are of blocks of few rows
        descent.run(search)
    return descent.answer(search.stop)
