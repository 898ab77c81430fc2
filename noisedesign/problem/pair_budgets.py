"""Budgets that depend on who looks at whom: factors on those of the nodes, by observer and node.

Every factor is at least 1: noise that keeps the budgets of the nodes before an observer keeps those
of all pairs, and who forgets the factors is better protected, not worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.views import Coalitions, Observer
from noisedesign.privacy.views.observers import distances

FIELD = "pair_factors"


def checked_factors(
    factors: Any, *, observers: Sequence[Observer], budget: Array, names: Sequence[str]
) -> Array | None:
    """Factors on the budgets tau, shape (observers, n), or None for 1 everywhere."""
    if factors is None:
        return None
    if not observers:
        expected = "observers beside factors on their budgets"
        remedy = "State observers: a reader of all messages has the budgets of the nodes."
        raise InputError(FIELD, expected=expected, got="none", remedy=remedy)
    if isinstance(observers, Coalitions):
        expected = "observers written out, which factors on their budgets are for"
        got = f"all coalitions of {observers.size} nodes"
        remedy = "What smaller coalitions learn is covered where all have the same budgets."
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy)
    shape = (len(observers), len(budget))
    found = _checks.array_of_shape(factors, field=FIELD, shape=shape)
    if not found.min() >= 1:
        a, u = map(int, np.unravel_index(int(found.argmin()), shape))
        got = f"{found[a, u]:.6g} for node {names[u]} before {observers[a]}"
        remedy = "State the least budget of a node as its tau, and others as multiples of it."
        raise InputError(FIELD, expected="factors >= 1 on budgets", got=got, remedy=remedy)
    products = (found * budget).ravel()
    _checks.check_size(products, int(products.argmax()), field=FIELD)
    return found


def factors_by_distance(
    values: Any, *, mixing: Array, observers: Sequence[Observer], field: str
) -> Array:
    """Factors (observers, n) by hops of W from the victim to the nearest node that looks."""
    # The last of ``values`` is for all farther; the least where no path leads to an observer.
    given = _checks.listed(values, field=field, expected="a list of factors by hops")
    if not given:
        raise InputError(field, expected="one factor or more, of one hop, two, ...", got="none")
    if isinstance(observers, Coalitions):
        expected = "nothing beside observers.pooled"
        remedy = "State the coalitions in observers.nodes, smaller ones too."
        raise InputError(field, expected=expected, got="factors by hops", remedy=remedy)
    factors = _checks.positive_vector(given, field=field, length=len(given))
    if not factors.min() >= 1:
        got = f"{factors.min():.6g} at {int(factors.argmin()) + 1} hops"
        remedy = "State the least budget as budget.tau, and others as multiples of it."
        raise InputError(field, expected="factors >= 1 on budgets", got=got, remedy=remedy)

    def at(hops: int | None) -> float:
        """The factor at so many hops; of a node that looks itself, which is no victim, any."""
        return float(factors.min() if hops is None else factors[: max(hops, 1)][-1])

    known = tuple(map(str, range(len(mixing))))
    told = (distances(mixing, observer.among(known)) for observer in observers)
    return np.array([[at(d) for d in hops] for hops in told])


def told_pairs(mixing: Array, observers: Sequence[Observer], *, hops: int) -> NDArray[np.bool_]:
    """Whether gradients of a node can reach an observer within ``hops`` rounds, (observers, n)."""
    found = np.ones((len(observers), len(mixing)), dtype=bool)
    for row, observer in zip(found, observers, strict=True):
        if observer.sees not in ("all", "mean"):
            row[:] = [d is not None and d <= hops for d in distances(mixing, observer)]
        row[list(observer.coalition)] = False
    return found
