"""Budgets and what they cost: prices, stricter ones, the best split of their sum.

Budgets are of nodes or, of designs in time, of patterns of steps. The least error V is convex in
the budgets tau, as a maximum of 2 t(v) - <v, tau> over multipliers v (docs/mathematics/bound.md,
theorem A), so that what multipliers prove of other budgets holds without another solve. With a
share s of what is paid for and r tau in the place of tau, the bound G V - (G - 1) V grows to G V /
(1 - s (1 - r)) - (G - 1) V; G, the sum of all prices, is 1 without limits. Where several observers
or coalitions pay, s is a mean, and it grows by more, as that is convex in s. On the other side
cov(z) with rows and columns of i times r^-1/2 keeps the stricter budget.

Of all budgets of one sum S those are best whose shares are their prices; multipliers that are all
alike prove the same whatever the split is. In space tau = S diag(H^1/2) / tr H^1/2, at X = S H^1/2
/ tr H^1/2, and the bound is (tr H^1/2)^2 / S."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.optimize

from noisedesign.base.checks import Array, InputError, scale
from noisedesign.base.linalg import symmetrized
from noisedesign.base.shown import Listing, Shown
from noisedesign.certify.certificate import proved_bound
from noisedesign.certify.program import uniform_dual
from noisedesign.design.design import Design, design_of
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.family import Weighable, family_of
from noisedesign.families.modal.bound import error
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import ModalStrategy
from noisedesign.privacy.accounting import mu_of
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import Problem, problem_of
from noisedesign.system.workloads import Workload

NOTHING_MUCH = 0.01
"""Relative cost that counts as none. More lets more nodes have stricter budgets."""

SPLIT_GAP = 1e-7  # relative distance to the bound of all splits at which a split is the best one
MOST_SPLITS = 60  # splits tried over time, each a solve; ten to thirty are usual
LEAST_SHARE = 1e-9  # of the sum, which a budget of no price keeps, so that it is none of 0


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetRow(Shown):
    """One budget, and what half its epsilon, or half its mu without a target, costs.

    Attributes:
        name: of its node, or of the pattern of steps that its records take part in.
        budget: tau, the squared sensitivity allowed to it.
        price: as of :attr:`noisedesign.Design.prices`.
        stricter: the budget of half the epsilon, or mu, over this one.
        at_least: factor on the lower bound, which is certified.
        at_most: factor on the error of the design, by its noise scaled there alone; None where that
            may break a cap, a structure or the budget of an observer.
    """

    name: str
    budget: float
    price: float
    stricter: float
    at_least: float
    at_most: float | None


def budget_rows(design: Any) -> Listing[BudgetRow]:
    """Tell what every budget costs, and what a stricter one would.

    Args:
        design: of a problem with a budget for every node, or every pattern of steps, or a solution
            or loaded file that has one.

    Returns:
        A row for every node, in the order of the rows of W; over time for every pattern.

    Raises:
        InputError: noise of one budget for all; a design without prices.

    Examples:
        On a ring all nodes are alike.

        >>> import noisedesign as nd
        >>> from noisedesign.tasks.budgets import budget_rows
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> [round(row.price, 4) for row in budget_rows(nd.solve(ring))]
        [0.25, 0.25, 0.25, 0.25]
    """
    found = design_of(design)
    problem, prices = found.problem, found.prices
    budget = _budgets(problem)
    if len(prices) != len(budget):
        expected = "a design with multipliers of its budgets"
        raise InputError("design", expected=expected, got=f"one by {found.provenance.method}")
    ratio, target = 0.25, problem.privacy
    if target is not None:
        how: dict[str, Any] = {"delta": target.delta, "conversion": target.conversion}
        both = (mu_of(epsilon=eps, **how) for eps in (target.epsilon / 2, target.epsilon))
        ratio = (next(both) / next(both)) ** 2
    gained = sum(prices.values())
    grown = _grown(found, ratio**-0.5) if _scalable(problem) else [None] * len(budget)
    return Listing(
        BudgetRow(
            name=name,
            budget=float(tau),
            price=price,
            stricter=ratio,
            at_least=gained / (1 - price / gained * (1 - ratio)) - (gained - 1),
            at_most=most,
        )
        for (name, price), tau, most in zip(prices.items(), budget, grown, strict=True)
    )


def _budgets(problem: Problem) -> Array:
    """tau of every node or pattern; InputError where there is one budget for all records."""
    if problem.axes != "time":
        return np.asarray(problem.budget)
    if problem.worst:
        expected, got = "an error that is a sum", "the worst step of a design in time"
        raise InputError("error.of", expected=expected, got=got)
    if problem.feasible_set != ("time", "dense"):
        raise InputError(
            "design",
            expected="one with a budget for every node, or for every pattern of steps",
            got=f'one in time of structure "{problem.feasible_set[1]}", which has one budget',
            remedy="Raised by 1 %, that one budget lowers the error by 1 %.",
        )
    return problem.budgets


def _scalable(problem: Problem) -> bool:
    """Whether noise that is scaled at one node, or at one pattern, keeps all else."""
    shared: str = "" if problem.axes == "time" else problem.feasible_set[1]
    if problem.worst:
        return False
    if problem.axes == "space-time":
        shared = problem.space.kind
    watched = problem.axes == "space" and problem.observers
    return problem.max_variance is None and not watched and shared != "decor"


def _grown(design: Design, factor: float) -> list[float]:
    """Tell by what the error grows where the noise of one group of coordinates is ``factor`` times
    larger: of cov(z) = K by the terms H_ij K_ij with one place in the group, and with both."""
    problem, noise = design.problem, design.noise
    if problem.axes == "space":
        terms = problem.gram * design.covariance
        groups = np.arange(len(terms))[:, None]
    elif problem.axes == "time":
        terms = problem.gram * (design.noising_matrix @ design.noising_matrix.T)
        groups = np.asarray(problem.participation.patterns)
    else:
        workload, n = SpaceTimeProgram.of(problem).workload, len(problem.mixing)
        if problem.joint == "modal":
            return _grown_modes(design, workload, factor)
        covariance = design.noising_matrix @ design.noising_matrix.T
        if noise.full:
            terms = workload.gram() * covariance
            groups = np.arange(len(terms)).reshape(-1, n).T
        else:
            terms = workload.space_gram(covariance) * design.covariance
            groups = np.arange(n)[:, None]
    one = terms.sum(axis=1)[groups].sum(axis=1)
    both = terms[groups[:, :, None], groups[:, None, :]].sum(axis=(1, 2))
    further = factor - 1
    found: list[float] = (1 + (2 * further * one + further**2 * both) / design.objective).tolist()
    return found


def _grown_modes(design: Design, workload: Workload, factor: float) -> list[float]:
    """The same of noise of modes, whose nodes have scales of their own."""
    form = design.noise.strategy
    assert isinstance(form, ModalStrategy)
    larger = (
        replace(
            form, scales=form.scales * np.where(np.arange(form.nodes) == u, factor, 1.0)[:, None]
        )
        for u in range(form.nodes)
    )
    return [error(workload, scaled) / design.objective for scaled in larger]


def tightened(design: Any, *, cost: float = NOTHING_MUCH, gap: float | None = None) -> Design:
    """Halve the epsilon, or mu, of as many nodes, or patterns of steps, as that costs next to
    nothing for, cheapest first.

    Args:
        design: without a structure, limits or observers, or what has one.
        cost: by how much the error may exceed the lower bound of the design, or the error of one
            that may be a local optimum, relative, > 0.
        gap: relative duality gap to certify.

    Returns:
        The design at the stricter budgets, certified anew; the same one where no budget can be
        stricter at that cost.

    Raises:
        InputError: another design; a cost that is not positive.
    """
    found = design_of(design)
    problem = _plain(found.problem)
    least = found.objective if found.local else found.lower_bound
    allowed = (1 + scale(cost, field="cost")) * least
    rows = budget_rows(found)
    cheapest = np.argsort([row.at_least for row in rows], kind="stable")
    best, low, high = found, 0, len(rows)  # so many can be stricter, and so many more cannot
    while high - low > 1:
        tried = (low + high) // 2
        budget = _budgets(problem).copy()
        budget[cheapest[:tried]] *= rows[0].stricter
        try:
            tight = _solved(replace(problem, budget=budget), gap)
        except InputError:  # noise without bounds, where H is singular
            tight = None
        if tight is not None and tight.certificate.feasible and tight.objective <= allowed:
            best, low = tight, tried
        else:
            high = tried
    return best


def best_split(problem: Any, *, gap: float | None = None) -> tuple[Design, float]:
    """Split the sum of all budgets in the way that leaves the least error.

    Args:
        problem: without a structure, limits or observers, or what has one.
        gap: relative duality gap to certify.

    Returns:
        The design at these budgets, and a lower bound on the error of every split, squared noise.
        In space and for ``joint="full"`` or in time they meet but for the gap; of other space-time
        noise the split is the best that was met.

    Raises:
        InputError: another problem; a singular H, whose best noise is infinite at these budgets.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.tasks.budgets import best_split
        >>> even = nd.SpaceProblem.from_graph(nd.build_graph("florentine"))
        >>> design, bound = best_split(even)
        >>> print(f"{design.objective / nd.solve(even).design.objective:.2f}")
        0.87
    """
    problem = _plain(problem_of(problem, sparse=True))
    if problem.axes != "space":
        return _split_by_prices(problem, gap)
    program, total = program_of(problem), float(problem.budget.sum())
    values, basis = np.linalg.eigh(symmetrized(problem.gram))
    roots = np.sqrt(np.maximum(values, 0.0))
    best = total * np.square(basis) @ roots / roots.sum()
    even = replace(program, budget=np.full(program.size, total / program.size))
    return _solved(replace(problem, budget=best), gap), proved_bound(even, uniform_dual(even)).value


def _split_by_prices(problem: Problem, gap: float | None) -> tuple[Design, float]:
    """Minimise log V over log tau up to a factor, where its slope is tau / S less the shares of the
    prices, until a split is within SPLIT_GAP of the bound of all."""
    total, count = float(_budgets(problem).sum()), len(_budgets(problem))
    found: list[Design] = []
    bounds: list[float] = []

    def least() -> Design:
        return min(found, key=lambda design: design.objective)

    def value(logs: Array) -> tuple[float, Array]:
        shares = np.maximum(np.exp(logs - logs.max()), LEAST_SHARE)
        shares /= shares.sum()
        design = _solved(replace(problem, budget=total * shares), gap)
        prices = np.array(list(design.prices.values()))
        found.append(design)
        bounds.append(_bound_of_splits(design, prices / shares))
        if least().objective <= (1 + SPLIT_GAP) * max(bounds):
            raise StopIteration  # the way out of the minimiser
        return float(np.log(design.objective)), shares - prices

    with contextlib.suppress(StopIteration):
        scipy.optimize.minimize(
            value,
            np.zeros(count),
            jac=True,
            method="L-BFGS-B",
            options={"maxfun": MOST_SPLITS, "ftol": SPLIT_GAP / 100, "gtol": 0.0},
        )
    return least(), max(bounds)


def _bound_of_splits(design: Design, weights: Array) -> float:
    """A bound for every split of the sum of budgets, by the multipliers of a design of ``weights``
    a unit of each, with the same weight for all: what they cost depends on the sum alone."""
    problem, positive = design.problem, weights > 0
    factors = np.where(positive, weights.max() / np.where(positive, weights, 1.0), 0.0)
    even = replace(problem, budget=np.full(len(weights), float(_budgets(problem).mean())))
    family = family_of(even)
    assert isinstance(family, Weighable)
    found = family.bound(family.program(even), family.weighed(design.proof, factors))
    # Those of no weight would cost as much as others where they had all of the sum.
    return found.value * float(positive.mean())


def budgets_of(design: Design) -> list[float]:
    """The squared budgets tau of a design, of its nodes or patterns."""
    found: list[float] = _budgets(design.problem).tolist()
    return found


def _plain(problem: Problem) -> Problem:
    """A problem where nothing but budgets restricts its noise; InputError for another."""
    if problem.axes == "space" and problem.sparse:
        raise InputError("problem", expected="one with W as an array", got="a sparse one")
    if problem.worst:
        expected, got = "an error that is a sum", f'"{cast(Any, problem.error).of}"'
        raise InputError("error.of", expected=expected, got=got)
    _budgets(problem)
    if problem.axes == "space":
        other = problem.structure.restricts or problem.min_variance is not None
        other = other or bool(problem.observers)
    else:
        other = problem.axes != "time" and (problem.time.restricts or problem.space.restricts)
    if other or problem.max_variance is not None:
        expected = "one whose noise nothing but its budgets restricts"
        raise InputError("problem", expected=expected, got="a structure, limits or observers")
    return problem


def _solved(problem: Any, gap: float | None) -> Design:
    design = solve(uncapped(problem), gap=gap).design
    assert design is not None
    return design
