"""Budgets of nodes and what they cost: prices, stricter ones, the best split of their sum.

The least error V is convex in the budgets tau, as a maximum of 2 t(v) - <v, tau> over multipliers v
(docs/mathematics.md, "Dual and lower bound"), so that what multipliers prove of other budgets holds
without another solve. With a share s of what is paid for and r tau in the place of tau, the bound
G V - (G - 1) V grows to G V / (1 - s (1 - r)) - (G - 1) V; G, the sum of all prices, is 1 without
limits. Where several observers or coalitions pay, s is a mean, and it grows by more, as that is
convex in s. On the other side R with row and column i times r^-1/2 keeps the stricter budget.

Of all budgets of one sum S the best are tau = S diag(H^1/2) / tr H^1/2, at X = S H^1/2 / tr H^1/2:
multipliers that are all alike prove (tr H^1/2)^2 / S whatever the split is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base.checks import InputError, scale
from noisedesign.base.linalg import symmetrized
from noisedesign.base.shown import Listing, Shown
from noisedesign.certify.certificate import proved_bound
from noisedesign.certify.program import Program, uniform_dual
from noisedesign.design.design import Design, design_of
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.privacy.accounting import mu_of
from noisedesign.problem.problem import Problem, SpaceProblem, problem_of

NOTHING_MUCH = 0.01
"""Relative cost that counts as none. More lets more nodes have stricter budgets."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetRow(Shown):
    """One node's budget, and what half its epsilon, or half its mu without a target, costs.

    Attributes:
        node: its name.
        budget: tau, the squared sensitivity allowed to it.
        price: as of :attr:`noisedesign.Design.prices`.
        stricter: the budget of half the epsilon, or mu, over this one.
        at_least: factor on the lower bound, which is proved.
        at_most: factor on the error of the design, by its noise scaled at this node alone; None
            where that may break a cap, a structure or the budget of an observer.
    """

    node: str
    budget: float
    price: float
    stricter: float
    at_least: float
    at_most: float | None


def budget_rows(design: Any) -> Listing[BudgetRow]:
    """Tell what the budget of every node costs, and what a stricter one would.

    Args:
        design: in space, or a solution or loaded file that has one.

    Returns:
        A row for every node, in the order of the rows of W.

    Raises:
        InputError: a design over time, or without prices.

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
    if problem.axes != "space" or not prices:
        expected = "a design in space with multipliers of its budgets"
        raise InputError("design", expected=expected, got=f"one in {problem.axes}")
    ratio, target = 0.25, problem.privacy
    if target is not None:
        how: dict[str, Any] = {"delta": target.delta, "conversion": target.conversion}
        both = (mu_of(epsilon=eps, **how) for eps in (target.epsilon / 2, target.epsilon))
        ratio = (next(both) / next(both)) ** 2
    gained = sum(prices.values())
    scalable = problem.structure.kind != "decor" and not problem.observers
    grown = np.full(len(problem.nodes), np.nan)
    if scalable and problem.max_variance is None:
        further, covariance = ratio**-0.5 - 1, found.covariance
        h = problem.gram
        own = 2 * further * np.einsum("ij,ij->i", h, covariance)
        own += further**2 * h.diagonal() * covariance.diagonal()
        grown = 1 + own / found.objective
    return Listing(
        BudgetRow(
            node=name,
            budget=float(budget),
            price=price,
            stricter=ratio,
            at_least=gained / (1 - price / gained * (1 - ratio)) - (gained - 1),
            at_most=None if np.isnan(most) else float(most),
        )
        for (name, price), budget, most in zip(prices.items(), problem.budget, grown, strict=True)
    )


def tightened(design: Any, *, cost: float = NOTHING_MUCH, gap: float | None = None) -> Design:
    """Halve the epsilon, or mu, of as many nodes as that costs next to nothing for, cheapest first.

    Args:
        design: in space, without a structure, limits or observers, or what has one.
        cost: by how much the error may exceed the lower bound of the design, relative, > 0.
        gap: relative duality gap to certify.

    Returns:
        The design at the stricter budgets, certified anew; the same one where no budget can be
        stricter at that cost.

    Raises:
        InputError: another design; a cost that is not positive.
    """
    found = design_of(design)
    problem, _ = _plain(found.problem)
    allowed = (1 + scale(cost, field="cost")) * found.lower_bound
    rows = budget_rows(found)
    cheapest = np.argsort([row.at_least for row in rows], kind="stable")
    best, low, high = found, 0, len(rows)  # so many can be stricter, and so many more cannot
    while high - low > 1:
        tried = (low + high) // 2
        budget = problem.budget.copy()
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
        problem: in space, without a structure, limits or observers, or what has one.
        gap: relative duality gap to certify.

    Returns:
        The design at these budgets, and a lower bound on the error of every split, squared noise.

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
    problem, program = _plain(problem_of(problem, sparse=True))
    total = float(problem.budget.sum())
    values, basis = np.linalg.eigh(symmetrized(problem.gram))
    roots = np.sqrt(np.maximum(values, 0.0))
    best = total * np.square(basis) @ roots / roots.sum()
    even = replace(program, budget=np.full(program.size, total / program.size))
    return _solved(replace(problem, budget=best), gap), proved_bound(even, uniform_dual(even)).value


def budgets_of(design: Design) -> list[float]:
    """The squared budgets tau of a design in space, one a node."""
    assert design.problem.axes == "space"
    found: list[float] = design.problem.budget.tolist()
    return found


def _plain(problem: Problem) -> tuple[SpaceProblem, Program]:
    """A problem in space and (P), where nothing but its budgets restricts its noise."""
    if problem.axes != "space" or problem.sparse:
        raise InputError("problem", expected="one in space, with W as an array", got="another")
    limits = problem.max_variance is not None or problem.min_variance is not None
    if problem.structure.restricts or limits or problem.observers:
        expected = "one whose noise nothing but its budgets restricts"
        raise InputError("problem", expected=expected, got="a structure, limits or observers")
    return problem, program_of(problem)


def _solved(problem: SpaceProblem, gap: float | None) -> Design:
    design = solve(problem, gap=gap).design
    assert design is not None
    return design
