"""Noise against chosen observers: a problem as the user states it, and its program.

What observer a has of the noise z = (z_1, ..., z_k), drawn independently with one covariance R, are
the numbers y_a = sum_j B_aj z_j; a unit change of gradient c moves them by column c of G_a. How
well it tells the change is matrix-fractional in R, so that

    (O)  minimise  tr(H R)  subject to  diag( G_a^T K_a(R)^-1 G_a ) <= 1 for every observer a,
         diag(R) <= cap,   K_a(R) = sum_j B_aj R B_aj^T,

is convex. Noise values known to an observer are rows of B_a that no gradient moves: stacking them
says the same as conditioning on them, and the conditional covariance, which is no linear function
of R, is never written down.

Only single participation: every gradient is limited by itself. For noise that is independent over
time it is enough to limit those of the first step: what follows a later one is a shorter run from
a state that the observer does not know, which tells less than the same run from a known state, and
that less than the whole run tells of its first step. The account still checks every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.families.observers import lagged
from noisedesign.families.observers.pools import CERTAIN, Pools
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Algorithm, Coalitions, Observer
from noisedesign.program.pair_budgets import checked_factors
from noisedesign.program.problem import models_are_seen
from noisedesign.system.gossip import checked_rounds, of_every_step
from noisedesign.system.graph import check_mixing
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure, Workload

GAP = 1e-5
"""Relative gap a design is solved to unless the monitor says otherwise. Interior points miss
feasibility by 1e-9 and more, and the bound pays for it in units of the cap."""

FOREMOST = 20
"""Of very many coalitions, those that a user is told of."""

FINE = 2e-3
"""Gap that sweeps along the path take long to reach."""

TOLERANCE = 1e-9
"""Accuracy asked of the solver unless the monitor says otherwise."""

WRITTEN = 30
"""Coordinates of the noise up to which the messages of several steps are written out."""

DEPENDENT = 8.0
"""Multiple of the rounding of singular values below which messages are linear in one another."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedNoise:
    """What one observer has: B_a, of shape (k, m, p) and of full row rank when its k blocks are put
    side by side, and G_a, shape (m, c), one column per gradient that is limited.

    ``support`` are the s coordinates of the noise it has anything of, ascending, and ``blocks`` the
    columns of B_a there, shape (k, m, s); or, of many steps, it is what nodes ``heard``, shape
    (m / T,), send of a ``run``, see :mod:`.lagged`. ``victims`` are the nodes whose gradients those
    are. ``hidden`` says that noise unknown to it is in whatever tells of them.
    """

    size: int
    support: NDArray[np.intp]
    blocks: Array | None = None
    run: lagged.Run | None = None
    heard: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    signals: Array
    victims: tuple[int, ...] = ()
    hidden: bool = False

    @classmethod
    def of(cls, responses: Array, **fields: Any) -> Self:
        """Of B_a with all its columns."""
        support = np.flatnonzero((responses != 0).any(axis=(0, 1)))
        local = np.ascontiguousarray(responses[:, :, support])
        return cls(size=responses.shape[2], support=support, blocks=local, **fields)

    @property
    def local(self) -> Array:
        """The columns of B_a on its support, shape (k, m, s)."""
        if self.run is not None:
            return lagged.unrolled(self.run.lags(self.heard))
        assert self.blocks is not None
        return self.blocks

    @property
    def responses(self) -> Array:
        """B_a, shape (k, m, p)."""
        local = self.local
        found = np.zeros((*local.shape[:2], self.size))
        found[:, :, self.support] = local
        return found

    def only(self, gradients: NDArray[np.intp]) -> Self:
        """With some of the gradients that are limited, by their columns of G_a."""
        victims = tuple(self.victims[c] for c in gradients)
        return replace(self, signals=self.signals[:, gradients], victims=victims)

    def early(self, run: lagged.Run) -> Self:
        """With what it hears of the first steps alone, those of ``run``."""
        return replace(self, run=run, signals=self.signals[: run.steps * len(self.heard)])

    def told(self, noise: Array) -> Array:
        """diag(G_a^T K_a(R)^-1 G_a), shape (c,): squared sensitivities over their budgets; of a
        run the largest of those of all steps.

        Raises:
            numpy.linalg.LinAlgError: K_a(R) is singular, or so nearly that rounding may hide it.
        """
        return self.told_through(covariances([self], noise)[0])

    def told_through(self, covariance: Array) -> Array:
        """The same of K_a(R)."""
        lower = np.linalg.cholesky(covariance)
        least, largest = np.diagonal(lower).min() ** 2, np.diagonal(covariance).max()
        if not least > CERTAIN * largest:
            raise np.linalg.LinAlgError("what is seen is nearly linear in itself")
        if self.run is None:
            return np.asarray((np.linalg.solve(lower, self.signals) ** 2).sum(axis=0))
        inverse, found = np.tril(np.linalg.inv(lower)), np.zeros(len(self.victims))
        for start in range(0, len(lower), len(self.heard)):
            # A change at a later step moves later messages alike, and fewer of them.
            late = inverse[start:, start:] @ self.signals[: len(lower) - start]
            found = np.maximum(found, np.einsum("mc,mc->c", late, late))
        return found


def covariances(observers: Sequence[ObservedNoise], noise: Array) -> list[Array]:
    """K_a(R) of each, shape (m, m), squared noise."""
    found = [np.zeros((0, 0))] * len(observers)
    for place, seen in enumerate(observers):
        if seen.run is None:
            at = noise[np.ix_(seen.support, seen.support)]
            local = seen.local
            found[place] = np.asarray((local @ at @ local.transpose(0, 2, 1)).sum(axis=0))
    for run, places, heard in _by_run(observers):
        for place, one in zip(places, run.covariances(noise, heard), strict=True):
            found[place] = one[0]
    return found


def used_by(observers: Sequence[ObservedNoise], factors: Sequence[Array], *, size: int) -> Array:
    """The sum over all of K_a*(F^T F), F of shape (any, m); result (size, size)."""
    total = np.zeros((size, size))
    for seen, factor in zip(observers, factors, strict=True):
        if seen.run is None:
            rows = np.concatenate(list(factor @ seen.local))
            total[np.ix_(seen.support, seen.support)] += rows.T @ rows
    for run, places, heard in _by_run(observers):
        total += run.used([(factors[place].T @ factors[place])[None] for place in places], heard)
    return total


def _by_run(
    observers: Sequence[ObservedNoise],
) -> Iterator[tuple[lagged.Run, list[int], list[NDArray[np.intp]]]]:
    """Runs, the places of those who hear them, and whom each hears, shape (1, m)."""
    places: dict[int, list[int]] = {}
    for place, seen in enumerate(observers):
        if seen.run is not None:
            places.setdefault(id(seen.run), []).append(place)
    for some in places.values():
        run = observers[some[0]].run
        assert run is not None
        yield run, some, [observers[place].heard[None] for place in some]


@dataclass(frozen=True, kw_only=True, eq=False)
class ObserverProgram:
    """Data of (O), the budgets scaled to 1.

    Attributes:
        gram: H, shape (p, p), symmetric positive semidefinite, squared error per squared noise.
        observers: what each of them has.
        cap: largest variance R_ii, shape (p,), squared noise.
    """

    gram: Array
    observers: tuple[ObservedNoise, ...]
    cap: Array

    @property
    def size(self) -> int:
        """p, the number of coordinates of the noise."""
        return len(self.gram)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ObserverProblem(Shown):
    """Noise against chosen observers, each gradient limited by itself (single participation).

    Args:
        mixing: W, shape (n, n), row stochastic.
        horizon: T, the number of gradient steps.
        observers: against whom; of any threat model, see :mod:`noisedesign.privacy.views`.
        max_variance: cap, squared noise, scalar or shape (n,), on the variance of a node's noise
            at each step.
        budget: tau, scalar or shape (n,), in inverse squared noise: largest squared sensitivity of
            what an observer sees to a unit change of one gradient of a node.
        pair_factors: factors >= 1, shape (observers, n), on the budgets of the nodes before each of
            them; None: 1 everywhere.
        error: the squared error to keep small; default that of all iterates of all nodes.
        rounds: K, gossip rounds after every gradient step, all of which the observers see.
        correlated_over_time: whether the covariance is one of all nT noises instead of R, shape
            (n, n), drawn afresh at every step.

    Raises:
        InputError: no observer; no cap; an error over another horizon, or that no noise
            changes; values of the wrong length or sign; nodes the graph does not have.
    """

    mixing: Any
    horizon: int
    observers: tuple[Observer, ...] | Coalitions
    max_variance: Any
    budget: Any = 1.0
    pair_factors: Any = None
    error: ErrorMeasure | None = None
    rounds: int = 1
    correlated_over_time: bool = False

    def __post_init__(self) -> None:
        w = check_mixing(self.mixing, stochastic="row", connected=False)
        object.__setattr__(self, "mixing", w)
        _checks.positive_int(self.horizon, field="horizon")
        checked_rounds(self.rounds)
        written = () if self.coalitions else self.observers
        strangers = [_checks.describe(o) for o in written if not isinstance(o, Observer)]
        if strangers or not self.observers:
            raise InputError(
                "observers",
                expected="observers, as noisedesign.privacy.views makes them",
                got=", ".join(strangers) or "none",
            )
        if self.max_variance is None:
            raise InputError(
                "max_variance",
                expected="a cap on the variance of the noise",
                got="none",
                remedy="Noise that no chosen observer can see through, and that mixing cancels, "
                "would grow without bound.",
            )
        for name in ("budget", "max_variance"):
            value = _checks.positive_vector(getattr(self, name), field=name, length=len(w))
            object.__setattr__(self, name, value)
        factors = checked_factors(self.pair_factors, observers=self.observers, budget=self.budget)
        object.__setattr__(self, "pair_factors", factors)
        if self.error is None:
            object.__setattr__(self, "error", ErrorMeasure(horizon=self.horizon))
        elif self.error.horizon != self.horizon:
            raise InputError(
                "error",
                expected=f"the same horizon, {self.horizon} steps",
                got=f"{self.error.horizon}",
            )
        if not np.trace(self.gram) > 0:
            raise InputError(
                "error", expected="an error that noise adds to", got="one that none changes"
            )

    @property
    def size(self) -> int:
        """p, the number of coordinates of the noise."""
        return len(self.unit)

    @cached_property
    def gram(self) -> Array:
        """H, shape (p, p), squared error per squared noise; p is n, or nT."""
        assert self.error is not None
        power = of_every_step(self.mixing, rounds=self.rounds)
        error = Workload(mixing=power, error=self.error)
        return error.gram() if self.correlated_over_time else error.space_gram()

    @property
    def exact_factor(self) -> Array | None:
        """W, where the Gram matrix of the error is W^T W of the very numbers in W; else None."""
        assert self.error is not None
        once = self.horizon == self.rounds == 1 and not self.correlated_over_time
        return self.mixing if once and self.error.plain else None

    @property
    def pair_budgets(self) -> Array:
        """Largest squared sensitivity of each observer to each node, shape (observers, n)."""
        factors = 1.0 if self.pair_factors is None else self.pair_factors
        shape = (len(self.observers), len(self.budget))
        return np.asarray(np.broadcast_to(self.budget * factors, shape))

    @cached_property
    def unit(self) -> Array:
        """tau^-1/2 of every coordinate of the noise, shape (p,), not squared: independent noise
        of one unit has the squared sensitivity tau to a reader of all messages."""
        return np.asarray(1 / np.sqrt(self._per_coordinate(self.budget)))

    @property
    def unit_error(self) -> float:
        """Squared error that such noise causes."""
        return float(np.diagonal(self.gram) @ self.unit**2)

    @property
    def cap(self) -> Array:
        """Largest variance of every coordinate of the noise, shape (p,), squared noise."""
        return self._per_coordinate(self.max_variance)

    def algorithm(self, covariance: Array) -> Algorithm:
        """What runs with such noise, to account for."""
        make = threats.space_time if self.correlated_over_time else threats.whisper
        made = make(mixing=self.mixing, covariance=covariance, horizon=self.horizon)
        return replace(made, rounds=self.rounds)

    @property
    def coalitions(self) -> Coalitions | None:
        """The observers, where they are all coalitions of so many nodes."""
        return self.observers if isinstance(self.observers, Coalitions) else None

    @property
    def pooled(self) -> bool:
        """Whether they are, in a single step and round: they are looked at together then."""
        once = self.horizon == self.rounds == 1 and not self.correlated_over_time
        return once and self.coalitions is not None

    @cached_property
    def pools(self) -> Pools:
        """What they see, where they are ``pooled``."""
        assert self.coalitions is not None
        return Pools(self.coalitions, self.mixing)

    def among(self, members: Any) -> ObserverProblem:
        """The problem against some coalitions alone, shape (k, size): it asks for less."""
        assert self.coalitions is not None
        return replace(self, observers=tuple(map(self.coalitions.of, members)))

    def worst(self, covariance: Array) -> tuple[float, str]:
        """Largest squared sensitivity over its budget and whose it is.

        By the account, which looks at every step of a run. Of a single step it says no more than
        (O), and that is much quicker where observers have little: then the account is only asked
        where a gradient may be told without noise.
        """
        if not self.pooled:
            return self._worst_of(covariance)
        return self.among(self.foremost(covariance, count=1))._worst_of(covariance)

    def foremost(self, covariance: Array, *, count: int = FOREMOST) -> Array:
        """The nodes of the ``count`` coalitions who are told most, and of all of whom that takes
        an account; of coalitions that are ``pooled``, shape (any, size)."""
        noise = covariance / np.multiply.outer(self.unit, self.unit)
        told = self.pools.told(noise).by_coalition
        most = np.argsort(-told, kind="stable")[: count + int(np.isinf(told).sum())]
        return np.asarray(self.pools.members[most])

    def _worst_of(self, covariance: Array) -> tuple[float, str]:
        """Of observers one by one."""
        worst: tuple[float, str] = (0.0, "")
        algorithm: Algorithm | None = None
        noise = covariance / np.multiply.outer(self.unit, self.unit)
        short = self.horizon == 1 and not self.correlated_over_time
        known = [seen.hidden and (short or seen.run is not None) for seen in self.seen]
        quick = [seen for seen, one in zip(self.seen, known, strict=True) if one]
        through = iter(covariances(quick, noise))
        looks = zip(self.observers, self.seen, self.pair_budgets, known, strict=True)
        for observer, seen, budgets, one in looks:
            if one:
                covariance_of_it = next(through)
                with suppress(np.linalg.LinAlgError):
                    told = seen.told_through(covariance_of_it)
                    if told.max(initial=0.0) > worst[0]:
                        whose = f"node {seen.victims[int(told.argmax())]} against {observer}"
                        worst = (float(told.max()), whose)
                    continue
            algorithm = self.algorithm(covariance) if algorithm is None else algorithm
            exposures = account(
                algorithm,
                observer,
                participation=single(self.horizon),
                delta=None,
                responses="fixed",
            )
            for found in exposures:
                budget = float(budgets[algorithm.nodes.index(found.node)])
                whose = f"node {found.node} against {observer}"
                worst = max(worst, (found.sensitivity_squared / budget, whose))
        return worst

    @property
    def models_are_seen(self) -> bool:
        """Whether every gradient is taken at a model that all observers know."""
        return models_are_seen(self.observers, self.horizon)

    @cached_property
    def seen(self) -> tuple[ObservedNoise, ...]:
        """What every observer has, in units of ``unit``; nothing reaches some of them."""
        looks = zip(self.observers, self.pair_budgets, strict=True)
        return tuple(self._observed(observer, budgets) for observer, budgets in looks)

    @cached_property
    def normalized(self) -> ObserverProgram:
        """The program with noise in units of ``unit`` and squared error in those of ``unit_error``.

        Raises:
            InputError: observers that nothing reaches.
        """
        reached = tuple(one for one in self.seen if one.signals.size)
        if not reached:
            raise InputError(
                "observers",
                expected="at least one that messages reach",
                got="none",
                remedy="No noise is needed against these.",
            )
        gram = self.gram * np.multiply.outer(self.unit, self.unit) / self.unit_error
        return ObserverProgram(gram=gram, observers=reached, cap=self.cap / self.unit**2)

    def _per_coordinate(self, per_node: Array) -> Array:
        return np.tile(per_node, self.horizon) if self.correlated_over_time else per_node

    def _observed(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """B_a and G_a, in units of its budgets, shape (n,), in as few rows as they have rank.

        Noise enters messages as gradients do, so one response serves both.
        """
        n, unit, rank = len(self.mixing), self.unit, settings.rank_tolerance
        if self.rounds == 1 and not self.correlated_over_time and self._usual(observer):
            if self.horizon == 1:
                return self._of_one_step(observer, budgets)
            if n > WRITTEN:
                return self._of_steps(observer, budgets)
        # All messages of a run tell all noisy gradients, one by one: those of one step do.
        alone = observer.sees == "all" and not self.correlated_over_time
        steps = 1 if alone else self.horizon
        messages = self._messages(observer, steps)
        limited = range(steps if self.correlated_over_time else 1)
        columns = np.array(
            [t * n + u for t in limited for u in range(n) if u not in observer.coalition]
        )
        columns = columns[messages[:, columns].any(axis=0)]
        signals = messages[:, columns] / np.sqrt(budgets[columns % n])
        known = [t * n + u for t in range(steps) for u in sorted(observer.knows.silenced)]
        periods = steps * n // len(unit)
        stacked = np.vstack([messages, np.eye(steps * n)[known]]) * np.tile(unit, periods)
        support = np.flatnonzero(stacked.any(axis=0))
        left, values, right = np.linalg.svd(stacked[:, support], full_matrices=False)
        kept = values > DEPENDENT * rank(max(stacked.shape)) * values.max(initial=0.0)
        rows = np.zeros((int(kept.sum()), stacked.shape[1]))
        rows[:, support] = right[kept]
        responses = rows.reshape(-1, periods, len(unit)).transpose(1, 0, 2)
        moved = np.vstack([signals, np.zeros((len(known), signals.shape[1]))])
        untold = moved - left[:, kept] @ (left[:, kept].T @ moved)
        rounding = DEPENDENT * rank(len(stacked)) * np.abs(moved).max(initial=0.0)
        return ObservedNoise.of(
            responses,
            signals=(left[: len(messages), kept] / values[kept]).T @ signals,
            victims=tuple(int(u) for u in columns % n),
            hidden=known_by_nodes(observer, n)
            and bool(np.abs(untold).max(initial=0.0) <= rounding),
        )

    def _messages(self, observer: Observer, steps: int) -> Array:
        """What an observer receives of a run, shape (messages, n steps), by the noise in it."""
        messages, _ = threats.view(self._unit_noise(steps), observer).dense()
        return np.asarray(messages)

    def _usual(self, observer: Observer) -> bool:
        """Whether it is nodes, who receive messages and know at most their own noise."""
        n, inside = len(self.mixing), set(observer.coalition)
        known = known_by_nodes(observer, n) and observer.knows.silenced <= inside
        return observer.sees == "received" and known and len(inside) < n

    def _heard(self, observer: Observer) -> NDArray[np.bool_]:
        """Whose messages such an observer has, shape (n,)."""
        coalition = list(observer.coalition)
        heard = np.asarray(self._neighbours[coalition].any(axis=0))
        heard[coalition] = True
        return heard

    @cached_property
    def _neighbours(self) -> NDArray[np.bool_]:
        """Whether u receives what v sends, shape (n, n)."""
        return np.asarray(self.mixing != 0)

    def _of_one_step(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """What such an observer has of a single round: the noise of those it hears."""
        heard = self._heard(observer).nonzero()[0]
        others = np.ones(len(self.unit), dtype=bool)
        others[list(observer.coalition)] = False
        at = others[heard].nonzero()[0]
        victims = heard[at]
        signals = np.zeros((len(heard), len(at)))
        signals[at, np.arange(len(at))] = 1 / (self.unit[victims] * np.sqrt(budgets[victims]))
        return ObservedNoise(
            size=len(self.unit),
            support=heard,
            blocks=np.eye(len(heard))[None],
            signals=signals,
            victims=tuple(victims.tolist()),
            hidden=True,
        )

    def _of_steps(self, observer: Observer, budgets: Array) -> ObservedNoise:
        """What such an observer has of several steps of a single round each."""
        heard = np.flatnonzero(self._heard(observer))
        signals = self._run.powers[:, heard].reshape(-1, len(self.unit))
        victims = np.flatnonzero(signals.any(axis=0))
        victims = victims[~np.isin(victims, observer.coalition)]
        return ObservedNoise(
            size=len(self.unit),
            support=np.arange(len(self.unit)),
            run=self._run,
            heard=heard,
            signals=signals[:, victims] / np.sqrt(budgets[victims]),
            victims=tuple(int(u) for u in victims),
            hidden=True,
        )

    @cached_property
    def _run(self) -> lagged.Run:
        return lagged.Run(self.mixing, self.unit, self.horizon)

    def _unit_noise(self, steps: int) -> Algorithm:
        n = len(self.mixing)
        unit_noise = threats.whisper(mixing=self.mixing, covariance=np.eye(n), horizon=steps)
        return replace(unit_noise, rounds=self.rounds)


def known_by_nodes(observer: Observer, n: int) -> bool:
    """Whether all noise it knows is that of some of n nodes."""
    knows, named = observer.knows, observer.knows.silenced | set(observer.coalition)
    alone = all(len(seed) == 1 for seed in knows.seeds)
    return alone and not knows.everything and max(named, default=0) < n
