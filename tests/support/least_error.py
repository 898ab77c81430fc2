"""The least error of small problems, in balls: an interior point of linear matrix inequalities.

What is found is inside of all limits, so that its error is above the least whatever the search
does, and where it ends by no more than a share of ``GAP``. It knows nothing of the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.balls import arb, arb_mat, inner

GAP = 1e-20
"""What of the least error may be missed, relative to it."""
FASTER = 0.03
"""Factor of the barrier's weight, once its least is found: with a smaller one less often, but by
more steps."""
CENTRED = 1e-40
"""Squared distance from the path at the end, in the barrier's norm; multipliers err by its root."""
MOST = 300
"""Newton steps before a search is given up."""


class Limit(NamedTuple):
    """K(x) = ``constant`` + sum of x_j ``parts``_j is positive definite, and g^T K(x)^-1 g at most
    ``tau``, one of each column g."""

    constant: Any
    parts: Sequence[Any]
    columns: Sequence[Any] = ()
    tau: Sequence[Any] = ()


class Inside(NamedTuple):
    """What of a limit there is at some x: K^-1, what its barrier adds, and K^-1 g and the rest of
    tau of every column."""

    inverse: Any
    barrier: Any
    columns: list[tuple[Any, Any]]

    @classmethod
    def of(cls, limit: Limit, x: Sequence[Any]) -> Inside | None:
        """None of an x that is not certainly inside."""
        k = sum((part * y for part, y in zip(limit.parts, x, strict=True)), limit.constant)
        rows = k.tolist()
        if not all(
            arb_mat([row[:m] for row in rows[:m]]).det() > 0 for m in range(1, len(rows) + 1)
        ):
            return None
        inverse, columns = k.inv(), []
        for g, tau in zip(limit.columns, limit.tau, strict=True):
            y = middle(inverse * g)
            columns.append((y, tau - inner(g, inverse * g)))
        if not all(rest > 0 for _, rest in columns):
            return None
        barrier = -k.det().log() * max(1, len(columns))
        return cls(inverse, barrier - sum((rest.log() for _, rest in columns), arb(0)), columns)

    @property
    def curved(self) -> list[Any]:
        """T of each inequality, whose barrier has the derivatives -tr(T K_i), tr(T K_i T K_j)."""
        found = [self.inverse + y * y.transpose() * (1 / rest) for y, rest in self.columns]
        return [middle(t) for t in found or [self.inverse]]


class Least(NamedTuple):
    """The ``x``, the weight ``mu`` of its barrier, and the limits there: a column's multipliers are
    v = mu / rest and the row v^1/2 (K^-1 g)^T, those of a limit without columns mu K^-1."""

    x: list[Any]
    mu: Any
    limits: list[Inside]


def middle(a: Any) -> Any:
    """The matrix without its radii."""
    return arb_mat(a.nrows(), a.ncols(), [x.mid() for x in a.entries()])


def least_error(cost: Sequence[Any], limits: Sequence[Limit], start: Sequence[Any]) -> Least | None:
    """The x of the least <cost, x> within limits, by Newton's method from a ``start`` inside of
    them; None where that does not end."""
    size, c = len(cost), arb_mat(len(cost), 1, list(cost))
    moving = [[j for j, part in enumerate(k.parts) if inner(part, part) > 0] for k in limits]
    flat = [
        arb_mat([k.parts[j].entries() for j in own]) for k, own in zip(limits, moving, strict=True)
    ]
    placed = [arb_mat([[int(i == j) for j in own] for i in range(size)]) for own in moving]
    count = sum((k.constant.nrows() + bool(k.columns)) * max(1, len(k.columns)) for k in limits)

    def at(x: Any) -> tuple[Any, list[Inside]] | None:
        found = [Inside.of(limit, x.entries()) for limit in limits]
        return None if None in found else (sum((k.barrier for k in found), arb(0)), found)

    x = arb_mat(size, 1, [value.mid() for value in start])
    if (here := at(x)) is None:
        return None
    mu = (inner(c, x) / count).mid()
    for _ in range(MOST):
        slope, curve = c * (1 / mu), arb_mat(size, size)
        for k, own, parts, place, inside in zip(limits, moving, flat, placed, here[1], strict=True):
            for t in inside.curved:
                bent = arb_mat([(t * k.parts[j] * t).entries() for j in own]) * parts.transpose()
                curve += place * bent * place.transpose()
                slope -= place * (parts * arb_mat(t.nrows() ** 2, 1, t.entries()))
        try:
            step = middle(curve).solve(middle(slope), algorithm="approx")
        except ZeroDivisionError:
            return None
        fall, share = float(inner(step, slope).mid()), 1.0
        if not fall >= 0:  # too few bits
            return None
        while (then := at(x - step * share)) is None or not (
            then[0] - here[0] - inner(c, step) * share / mu < -0.1 * share * fall
        ):
            share /= 2
            if share * (1 + math.sqrt(fall)) < 0.1:
                return None
        x, here = x - step * share, then
        last = bool(mu * count < GAP * inner(c, x))
        if last and fall < CENTRED:
            return Least(x.entries(), mu, here[1])
        if not last and fall < 0.1:
            mu = (mu * FASTER).mid()
    return None
