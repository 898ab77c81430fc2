"""(O): noise against chosen observers, as a convex program in one covariance.

What observer a has of the noise z = (z_1, ..., z_k), drawn independently with one covariance R, are
the numbers y_a = sum_j B_aj z_j; a unit change of gradient c moves them by column c of G_a. How
well it tells the change is matrix-fractional in R, so that

    (O)  minimise  tr(H R)  subject to  diag( G_a^T K_a(R)^-1 G_a ) <= 1 for every observer a,
         diag(R) <= cap,   K_a(R) = sum_j B_aj R B_aj^T,

is convex. Noise values known to an observer are rows of B_a that no gradient moves. Gradients of
the first step suffice: what follows a later one is a shorter run from a state that the observer
does not know, which tells less. The account still checks every step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.certify.program import Program
from noisedesign.families.observers.observed import EveryCoalition, ObservedNoise, Run, covariances
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Algorithm, Coalitions, Observer
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single
from noisedesign.system.workloads import Workload

GAP = 1e-5
"""Relative gap of a design by default: interior points miss feasibility by 1e-9 and more, and the
bound pays for it in units of the cap."""

FINE = 2e-3  # relative gap below which sweeps along the path take long
WRITTEN = 30  # nodes up to which the messages of several steps are written out
MARGIN = 1e-10  # relative slack left in cap and budgets, for numbers that are recomputed or proved
ROOM = 2.0  # variance of the independent noise of repairs over what its budgets ask, within the cap
DEPENDENT = 8.0  # multiple of rounding below which singular values say that messages are dependent


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitProgram:
    """(O) in units in which all budgets are 1: H ``gram`` (n, n), squared error per squared noise,
    what each of the ``observers`` has, and the ``cap`` on R_ii, (n,), squared noise."""

    gram: Array
    observers: tuple[ObservedNoise, ...]
    cap: Array

    @property
    def size(self) -> int:
        """n."""
        return len(self.gram)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverProgram:
    """(O) of a problem in space, which has checked it. ``exact_factor`` is W where H = W^T W of the
    very numbers in W, else ``workload`` that of H. ``budget`` tau and ``cap`` are (n,),
    ``pair_factors`` (observers, n)."""

    mixing: Array
    gram: Array
    exact_factor: Array | None
    workload: Workload | None
    horizon: int
    rounds: int
    observers: tuple[Observer, ...] | Coalitions
    budget: Array
    cap: Array
    nodes: tuple[str, ...]
    pair_factors: Array | None = None

    @classmethod
    def of(cls, problem: SpaceProblem) -> Self:
        """Make the program of a problem with observers."""
        plain = problem.error is None or problem.error.plain
        once = plain and problem.horizon == problem.rounds == 1
        return cls(
            mixing=problem.mixing,
            gram=problem.gram,
            exact_factor=problem.mixing if once else None,
            workload=None if once else problem.error_workload,
            horizon=problem.horizon,
            rounds=problem.rounds,
            observers=problem.observers,
            budget=problem.budget,
            cap=problem.max_variance,
            nodes=problem.nodes,
            pair_factors=problem.pair_factors,
        )

    @property
    def size(self) -> int:
        """n."""
        return len(self.mixing)

    @cached_property
    def anywhere(self) -> Program:
        """(P) of the same error: what encloses H and tr(H R) asks for no more."""
        return Program(
            gram=self.gram,
            participation=single(self.size),
            budget=self.budget,
            exact_factor=self.exact_factor,
            workload=self.workload,
            axes="space",
        )

    @property
    def pair_budgets(self) -> Array:
        """Largest squared sensitivity of each observer to each node, shape (observers, n)."""
        factors = 1.0 if self.pair_factors is None else self.pair_factors
        return np.broadcast_to(self.budget * factors, (len(self.observers), self.size))

    @cached_property
    def unit(self) -> Array:
        """tau^-1/2, shape (n,), not squared."""
        return np.asarray(1 / np.sqrt(self.budget))

    @property
    def unit_error(self) -> float:
        """The squared error that noise of one unit causes."""
        return float(np.diagonal(self.gram) @ self.unit**2)

    @property
    def pooled(self) -> bool:
        """Whether the observers are all coalitions of some size, in a single step and round."""
        return self.horizon == self.rounds == 1 and isinstance(self.observers, Coalitions)

    @cached_property
    def every_coalition(self) -> EveryCoalition:
        """All coalitions side by side, where they are ``pooled``."""
        assert isinstance(self.observers, Coalitions)
        return EveryCoalition(self.observers, self.mixing)

    def among(self, members: Any) -> ObserverProgram:
        """Return the program against some coalitions alone, shape (k, size): it asks for less."""
        assert isinstance(self.observers, Coalitions)
        return replace(self, observers=tuple(map(self.observers.of, members)))

    def algorithm(self, covariance: Array) -> Algorithm:
        """Return what runs with noise of a covariance, to account for."""
        made = threats.whisper(mixing=self.mixing, covariance=covariance, horizon=self.horizon)
        return replace(made, rounds=self.rounds, nodes=self.nodes)

    def worst(self, covariance: Array) -> tuple[float, str]:
        """Return the largest squared sensitivity over its budget and whose it is, as the account of
        every step says. Of a single step (O) says the same much quicker, and the account is only
        asked where a gradient may be told without noise."""
        if not self.pooled:
            return self._worst_of(covariance)
        return self.among(self.foremost(covariance, count=1))._worst_of(covariance)

    def foremost(self, covariance: Array, *, count: int = 20) -> Array:
        """Return the nodes of ``count`` coalitions that are told most and who need an account."""
        noise = covariance / np.multiply.outer(self.unit, self.unit)
        told = self.every_coalition.told(noise).by_coalition
        most = np.argsort(-told, kind="stable")[: count + int(np.isinf(told).sum())]
        return np.asarray(self.every_coalition.members[most])

    def _worst_of(self, covariance: Array) -> tuple[float, str]:
        """:meth:`worst` of observers one by one."""
        worst: tuple[float, str] = (0.0, "")
        algorithm: Algorithm | None = None
        noise = covariance / np.multiply.outer(self.unit, self.unit)
        known = [seen.hidden and (self.horizon == 1 or seen.run is not None) for seen in self.seen]
        quick = [seen for seen, one in zip(self.seen, known, strict=True) if one]
        through = iter(covariances(quick, noise))
        looks = zip(self.observers, self.seen, self.pair_budgets, known, strict=True)
        for observer, seen, budgets, one in looks:
            if one:
                covariance_of_it = next(through)
                with suppress(np.linalg.LinAlgError):
                    told = seen.told(covariance_of_it)
                    if told.max(initial=0.0) > worst[0]:
                        victim = self.nodes[seen.victims[int(told.argmax())]]
                        whose = f"node {victim} against {observer}"
                        worst = (float(told.max()), whose)
                    continue
            algorithm = self.algorithm(covariance) if algorithm is None else algorithm
            steps = single(self.horizon)
            exposures = account(
                algorithm, observer, participation=steps, delta=None, responses="fixed"
            )
            for found in exposures:
                budget = float(budgets[algorithm.nodes.index(found.node)])
                whose = f"node {found.node} against {observer}"
                worst = max(worst, (found.sensitivity_squared / budget, whose))
        return worst

    def independent(self) -> Array:
        """Find independent noise that keeps the budgets with room to spare, within the cap."""
        largest = np.diag(self.cap) * (1 - MARGIN)
        worst, whose = self.worst(largest)
        if np.isinf(worst):
            raise InputError(
                "observers",
                expected="observers from whom noise hides every gradient",
                got=whose,
                remedy="Some of it is seen without any noise that the observer does not know.",
            )
        if not worst < 1:
            raise InputError(
                "limits.max_variance",
                expected="a cap at which independent noise keeps every budget with room to spare",
                got=f"{whose}: {worst:.6g} times its budget",
                remedy=f"Above {float((1 / self.budget).max()):.6g}, 1 / budget, it always does.",
            )
        return np.asarray(largest * min(1.0, ROOM * worst))

    def repaired(self, found: Array) -> Array:
        """Make an answer positive semidefinite, within the cap and then within the budgets. Squared
        sensitivity is convex in the covariance, so mixing in independent noise that has room to
        spare keeps it within the cap. Noise to spare is taken away."""
        values, vectors = np.linalg.eigh(_linalg.symmetrized(found))
        noise = (vectors * np.maximum(values, 0.0)) @ vectors.T
        shrink = np.sqrt(1 / np.maximum(np.diagonal(noise) / (self.cap * (1 - MARGIN)), 1.0))
        noise = _linalg.symmetrized(noise * np.multiply.outer(shrink, shrink))
        apart, share = self.independent(), settings.EPS
        spare = 1 - self.worst(apart)[0]
        while (worst := self.worst(noise)[0]) > 1 - MARGIN * (share < 1):
            # Twice as far each time at least, so it ends, with independent noise if nothing else.
            over = worst - 1 + MARGIN
            needed = 0.0 if np.isinf(worst) else over / (over + spare)
            share = min(1.0, max(needed, 2 * share))
            noise = (1 - share) * noise + share * apart
        less = noise * min(1.0, worst * (1 + MARGIN))
        return less if self.worst(less)[0] <= 1 else noise

    @cached_property
    def seen(self) -> tuple[ObservedNoise, ...]:
        """The noise that every observer has, in units of ``unit``; nothing reaches some of them."""
        looks = zip(self.observers, self.pair_budgets, strict=True)
        return tuple(self._observed(observer, budgets) for observer, budgets in looks)

    @cached_property
    def normalized(self) -> UnitProgram:
        """The program with noise in units of ``unit`` and error in those of ``unit_error``."""
        reached = tuple(one for one in self.seen if one.signals.size)
        if not reached:
            raise InputError(
                "observers",
                expected="at least one that messages reach",
                got="none",
                remedy="No noise is needed against these.",
            )
        gram = self.gram * np.multiply.outer(self.unit, self.unit) / self.unit_error
        return UnitProgram(gram=gram, observers=reached, cap=self.cap / self.unit**2)

    def _observed(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """B_a and G_a at unit budgets, in as few rows as they have rank, by one response."""
        n, rank = self.size, settings.rank_tolerance
        if self.rounds == 1 and self._hears_nodes(observer):
            if self.horizon == 1:
                return self._of_one_step(observer, budgets)
            if n > WRITTEN:
                return self._of_run(observer, budgets)
        # All messages of a run tell all noisy gradients, one by one: those of one step do.
        steps = 1 if observer.sees == "all" else self.horizon
        unit_noise = threats.whisper(mixing=self.mixing, covariance=np.eye(n), horizon=steps)
        messages, _ = threats.view(replace(unit_noise, rounds=self.rounds), observer).dense()
        victims = np.delete(np.arange(n), list(observer.coalition))
        victims = victims[messages[:, victims].any(axis=0)]
        signals = messages[:, victims] / np.sqrt(budgets[victims])
        known = [t * n + u for t in range(steps) for u in sorted(observer.knows.revealed)]
        stacked = np.vstack([messages, np.eye(steps * n)[known]]) * np.tile(self.unit, steps)
        support = np.flatnonzero(stacked.any(axis=0))
        left, values, right = np.linalg.svd(stacked[:, support], full_matrices=False)
        kept = values > DEPENDENT * rank(max(stacked.shape)) * values.max(initial=0.0)
        rows = np.zeros((int(kept.sum()), stacked.shape[1]))
        rows[:, support] = right[kept]
        moved = np.vstack([signals, np.zeros((len(known), signals.shape[1]))])
        untold = moved - left[:, kept] @ (left[:, kept].T @ moved)
        rounding = DEPENDENT * rank(len(stacked)) * np.abs(moved).max(initial=0.0)
        return ObservedNoise.of(
            rows.reshape(-1, steps, n).transpose(1, 0, 2),
            signals=(left[: len(messages), kept] / values[kept]).T @ signals,
            victims=tuple(victims.tolist()),
            hidden=known_by_nodes(observer, n)
            and bool(np.abs(untold).max(initial=0.0) <= rounding),
        )

    def _hears_nodes(self, observer: Observer) -> bool:
        """Whether it is nodes, who receive messages and know at most their own noise."""
        n, inside = self.size, set(observer.coalition)
        known = known_by_nodes(observer, n) and observer.knows.revealed <= inside
        return observer.sees == "received" and known and len(inside) < n

    def _of_one_step(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """Return what nodes have of a single round: the noise of those they hear."""
        heard = heard_by(observer, self.mixing)
        at = np.flatnonzero(~np.isin(heard, observer.coalition))
        victims = heard[at]
        signals = np.zeros((len(heard), len(at)))
        signals[at, np.arange(len(at))] = 1 / (self.unit[victims] * np.sqrt(budgets[victims]))
        return ObservedNoise(
            size=self.size,
            support=heard,
            blocks=np.eye(len(heard))[None],
            signals=signals,
            victims=tuple(victims.tolist()),
            hidden=True,
        )

    def _of_run(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """Return what nodes have of several steps of a single round each."""
        heard = heard_by(observer, self.mixing)
        signals = self._run.powers[:, heard].reshape(-1, self.size)
        victims = np.flatnonzero(signals.any(axis=0))
        victims = victims[~np.isin(victims, observer.coalition)]
        return ObservedNoise(
            size=self.size,
            support=np.arange(self.size),
            run=self._run,
            heard=heard,
            signals=signals[:, victims] / np.sqrt(budgets[victims]),
            victims=tuple(victims.tolist()),
            hidden=True,
        )

    @cached_property
    def _run(self) -> Run:
        return Run(self.mixing, self.unit, self.horizon)


def heard_by(observer: Observer, mixing: Array) -> NDArray[np.intp]:
    """The nodes whose messages reach an observer one by one, ascending."""
    if observer.sees == "sent":
        return np.unique(np.array(list(observer.listened), dtype=np.intp))
    coalition = np.array(list(observer.coalition), dtype=np.intp)
    return np.union1d(np.flatnonzero((mixing[coalition] != 0).any(axis=0)), coalition)


def known_by_nodes(observer: Observer, n: int) -> bool:
    """Whether all noise an observer knows is that of some of n nodes."""
    knows, named = observer.knows, observer.knows.revealed | set(observer.coalition)
    alone = all(len(seed) == 1 for seed in knows.seeds)
    return alone and not knows.everything and max(named, default=0) < n
