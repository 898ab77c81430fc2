"""What is true of noise and of multipliers, by definitions and in balls: for
:mod:`tests.support.rigorous_instances`. Numbers are squared, and over their limits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mpmath
import numpy as np

from noisedesign.certify.certificate import block_roots
from noisedesign.certify.program import Program
from noisedesign.system.participation import FixedEpoch
from tests.support.balls import above, arb, arb_mat, diagonal, kron, mat, powers
from tests.support.known_optima import combined, messages

DIGITS = 100  # of eigenvalues

Array = np.ndarray


def gram_of(root: Any) -> Any:
    return root.transpose() * root


def balls(values: Iterable[float]) -> list[Any]:
    return [arb(float(x)) for x in values]


def dot(values: Iterable[Any], others: Iterable[Any]) -> Any:
    return sum((x * y for x, y in zip(values, others, strict=True)), arb(0))


def largest_ratio(values: Array, limits: Array) -> Any:
    return above(v / y for v, y in zip(balls(values), balls(limits), strict=True))


def inverse(a: Any) -> Any:
    """The inverse, or None of a matrix that balls cannot tell from a singular one."""
    try:
        return a.inv()
    except ZeroDivisionError:
        return None


def worst_node(r: Any, budget: Array) -> Any:
    """The largest [R^-1]_ii over its budget; infinite of a singular R."""
    x = inverse(r)
    if x is None:
        return arb("inf")
    return above(x[i, i] / y for i, y in enumerate(balls(budget)))


def worst_pattern(x: Any, patterns: Iterable[Sequence[int]], budgets: Iterable[Any]) -> Any:
    """The largest s^T X s over signs on a pattern, over its budget: gradients of one direction."""
    found = []
    for steps, budget in zip(patterns, budgets, strict=True):
        for signs in itertools.product((1, -1), repeat=len(steps) - 1):
            pairs = itertools.product(zip((1, *signs), steps, strict=True), repeat=2)
            total = sum((p * q * x[int(s), int(t)] for (p, s), (q, t) in pairs), arb(0))
            found.append(total / budget)
    return above(found)


def patterns_of(participation: Any) -> list[tuple[int, ...]]:
    """By their definition: steps that are b apart, or all that may be chosen at least b apart."""
    steps = range(participation.horizon)
    if isinstance(participation, FixedEpoch):
        b = participation.separation
        return [tuple(range(j, participation.horizon, b)) for j in range(b)]
    found = []
    for count in range(1, participation.max_participations + 1):
        for chosen in itertools.combinations(steps, count):
            if all(t - s >= participation.separation for s, t in itertools.pairwise(chosen)):
                found.append(chosen)
    return found


def most_of(h: Any, roots: Any, price: Any) -> Any:
    """tr((B^T H B)^1/2)^2 / price of U = B B^T, from above and hardly above: that trace is at most
    tr(M S^-1 + S) / 2 for any S = V D V^T, D > 0, and that for the eigenvectors of M, about."""
    m = roots.transpose() * h * roots
    unit, n = above(map(abs, m.entries())), m.nrows()
    if not unit > 0:
        return arb(0)
    m = (m + m.transpose()) / (2 * unit)
    with mpmath.workdps(DIGITS):
        told = [[mpmath.mpf(x.mid().str(DIGITS, radius=False)) for x in row] for row in m.tolist()]
        values, vectors = mpmath.eigsy(mpmath.matrix(told))
        least = mpmath.mpf(10) ** (-DIGITS // 2)
        v = arb_mat([[arb(mpmath.nstr(vectors[i, j], DIGITS)) for j in range(n)] for i in range(n)])
        d = [arb(mpmath.nstr(mpmath.sqrt(max(x, least)), DIGITS)) for x in values]
    inverse_of_v = v.inv()
    seen = inverse_of_v * m * inverse_of_v.transpose()
    lengths = v.transpose() * v
    total = sum((seen[i, i] / d[i] + d[i] * lengths[i, i] for i in range(n)), arb(0)) / 2
    return total**2 * unit / price


def on_patterns(
    roots: Array, patterns: Any, budget: Array, *, size: int | None = None
) -> tuple[Any, Any]:
    """The matrix with B_j on the patterns, of ``roots``, and the price of B B^T."""
    size, k = np.asarray(patterns).size if size is None else size, roots.shape[1]
    whole, price = arb_mat(size, size), arb(0)
    for own, steps, tau in zip(roots, np.asarray(patterns).tolist(), balls(budget), strict=True):
        for a, b in itertools.product(range(k), repeat=2):
            whole[steps[a], steps[b]] = arb(float(own[a, b]))
        rows = [sum((x**2 for x in balls(row)), arb(0)) for row in own]
        price += above(rows) * tau
    return whole, price


def proves(program: Program, h: Any, proof: dict[str, Array]) -> Any:
    """What multipliers of (P) prove, the most of it; any B will do, so that the judge's does."""
    blocks = proof.get("dual_blocks")
    if blocks is None:
        blocks = np.maximum(proof["dual_weights"], 0.0)[:, None, None]
    roots = block_roots(blocks * 2.0 ** -math.frexp(float(np.abs(blocks).max()))[1])
    whole, price = on_patterns(roots, program.participation.patterns, program.budget)
    rest, gained = h, arb(0)
    for name, limit, sign in (("dual_cap", program.cap, 1), ("dual_floor", program.floor, -1)):
        if limit is not None and name in proof:
            paid = balls(np.maximum(proof[name], 0.0))
            rest = rest + diagonal(paid) * sign
            gained -= sign * dot(balls(limit), paid)
    return most_of(rest, whole, price) + gained


def even_most(h: Any, participation: Any) -> Callable[[], Any] | None:
    """The bound of uniform multipliers, tr X <= T over the steps of a pattern."""
    size = participation.even_size
    if not size:
        return None
    steps = participation.horizon
    return lambda: most_of(h, diagonal([arb(1)] * steps), arb(steps) / size)


def independent_error(h: Any, tau: Array) -> Any:
    """That of independent noise at the budgets, which is feasible."""
    return sum((h[i, i] / y for i, y in enumerate(balls(tau))), arb(0))


def at_most(alone: Any, scaled: Any) -> Any:
    """The lesser error of independent noise and of some that is no noise where it is negative."""
    return alone.min(scaled) if scaled > 0 else alone


def over_steps(rows: Sequence[Any]) -> Any:
    """The sum of the errors of all iterates, ``rows`` of each lag."""
    return combined([arb(len(rows) - lag) for lag in range(len(rows))], [gram_of(x) for x in rows])


def error_of_steps(program: Any, w: Array, steps: int) -> Any:
    """H of every iterate: what W and its powers say where it is singular, else its floats."""
    if steps > 1 and not program.anywhere.nearly_singular:
        return mat(program.gram)
    return over_steps(powers(mat(w), steps))


def told_to(observer: Any, w: Array, r: Array, tau: Array, steps: int) -> Any:
    """The largest of g^T K^-1 g over tau, before one observer."""
    seen, n = messages(observer, w, steps), len(w)
    steps = seen.ncols() // n
    k = inverse(seen * kron(diagonal([arb(1)] * steps), mat(r)) * seen.transpose())
    if k is None:  # no noise in something that is heard
        return arb("inf")
    forms = seen.transpose() * k * seen
    return above(
        forms[t * n + i, t * n + i] / arb(float(tau[i]))
        for t in range(steps)
        for i in range(n)
        if i not in observer.coalition
    )


def worst_proves(program: Program, grams: Sequence[Any], proof: dict[str, Array]) -> Any:
    """Of the errors weighted by their shares, over the sum of these."""
    shares = balls(proof["target_shares"])
    return proves(program, combined(shares, grams), proof) / sum(shares, arb(0))
