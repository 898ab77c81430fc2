"""Is the optimum attained? With a singular H, noise along a null direction may be free.

Let v prove the bound LB = t^2 / sum(v) of a program at unit budgets, and let H z = 0. Whatever X is
feasible with tr(H X^-1) <= (1 + g) LB has R_ii >= z_i^2 / (g sum(v) sum(z_j^2 / v_j)): noise is
large near an infimum that is nearly reached, however it was designed, and where g can be as small
as one likes it grows without bound (docs/mathematics/bound.md, theorem C)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.program import DualPoint, Program
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import Found, independent_gram
from noisedesign.families.disjoint.solver import barrier
from noisedesign.forms import Noise
from noisedesign.problem.default_cap import LAZY, FreeNoiseError

PROOF_GAP = 1e-12  # gap to which noise that looks unbounded is followed: what float64 tells
UNBOUNDED = 1e11
"""Least variance along a null direction, times the number of nodes and over that of independent
noise, that is taken for infinite: a tenth of what PROOF_GAP proves where nothing bounds the noise.
"""
LARGE = 1e3  # variance over that of independent noise above which designs of singular W say so


class Unbounded(NamedTuple):
    """A null direction of H, ``direction`` z, shape (m,), a unit vector with H z = 0, and the least
    ``variance`` R_ii / z_i^2 of any design within the relative gap ``within`` of the infimum;
    ``share`` is that variance at unit budgets for a unit z, times m and ``within``."""

    direction: Array
    variance: float
    share: float
    within: float

    @property
    def proved(self) -> bool:
        """Whether it is beyond all that float64 can tell from infinity."""
        return self.share >= UNBOUNDED * self.within


def along_null_direction(program: Program, dual: DualPoint) -> Unbounded:
    """The null direction of H in which designs as good as these multipliers tell are largest."""
    unit = program.normalized()
    m = unit.size
    start = np.maximum(dual.blocks[:, 0, 0], np.finfo(np.float64).tiny)
    point = barrier.evaluate(barrier.factor_of(unit), start, negligible=0.0)
    point = barrier.placed(point, gap=PROOF_GAP)
    v, upper = point.v, barrier.upper_bound(point, gap=PROOF_GAP)
    within = max(upper / point.lower - 1, 0.0) + 4 * settings.rank_tolerance(m)
    # As few nodes as there are: one beside a basis of the others, of the largest multipliers.
    rank = len(point.root)
    triangle, order = scipy.linalg.qr(point.base * np.sqrt(v), mode="r", pivoting=True)
    shares = scipy.linalg.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    scaled = np.zeros((m, m - rank))  # z_i / v_i^1/2
    scaled[order[:rank]] = -shares
    scaled[order[rank:], np.arange(m - rank)] = 1.0
    squared = np.square(scaled).sum(axis=0)
    large = (v @ np.square(scaled)) / squared
    best = int(large.argmax())
    z = np.sqrt(v) * scaled[:, best]
    z[np.abs(z) < settings.sqrt_eps() * np.abs(z).max()] = 0.0
    # In the units of the problem, where R is that at unit budgets over the roots of the budgets.
    direction = z / np.sqrt(program.coordinate_budget)
    length = float(np.linalg.norm(direction))
    variance = length**2 / (within * float(v.sum()) * float(squared[best]))
    share = m * float(large[best]) / float(v.sum())
    return Unbounded(direction / length, variance, share, within)


def refuse_divergent(program: Program, answer: Found, *, time_limit: float | None = None) -> None:
    """Refuse a program whose infimum is not attained because noise in a null direction is free, by
    our own solver's ``answer`` to ``program.normalized()``, to a gap of DEFAULT_GAP or less; from
    one that was stopped before nothing is known, and nothing refused."""
    if answer.stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED) or answer.dual is None:
        return
    assert answer.gram is not None
    assert program.null_space.shape[1] < program.size
    if program.normalized().null_space.shape[1] == 0:
        return  # singular by rounding alone, where budgets are uneven
    found = along_null_direction(program, answer.dual)
    if not found.proved and found.share >= UNBOUNDED * PROOF_GAP:  # what PROOF_GAP might prove
        monitor = Monitor(gap=PROOF_GAP, time_limit=time_limit, start=answer.dual.blocks)
        closer = solver.solve(program.normalized(), monitor=monitor)
        if closer.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        if closer.dual is not None:
            found = along_null_direction(program, closer.dual)
    if found.proved:
        top = int(np.abs(found.direction).argmax())
        # Two digits are printed, and say no more than is proved.
        variance = 0.9 * found.variance * found.direction[top] ** 2
        proof = (
            f"nothing bounds it to working precision: any design within {found.within:.1e} of the "
            f"infimum has a variance of at least {variance:.1e} at {_names(program)[top]}"
        )
        raise _refusal(program, answer, found.direction, proof)


def _names(program: Program) -> Sequence[str]:
    return program.names or tuple(map(str, range(program.size)))


def _refusal(program: Program, answer: Found, direction: Array, bounded: str) -> FreeNoiseError:
    names = _names(program)
    direction = direction * np.sign(direction[np.flatnonzero(direction)[0]])
    top = np.argsort(-np.abs(direction), kind="stable")[:6]
    top = top[direction[top] != 0]
    terms = ", ".join(f"{names[i]}: {direction[i]:+.3f}" for i in sorted(top))
    more = ", ..." if np.count_nonzero(direction) > len(top) else ""
    where = f"noise along the null direction {{{terms}{more}}}"
    matrix, got = "a matrix W, and an error,", f"a singular H: {where} costs nothing"
    cap = suggested_cap(program)
    share = 100 * cost_of_cap(program, answer, cap=cap)
    remedy = (
        f"Cap diag(R) by limits.max_variance: max_variance={cap:g} in Python, [limits] "
        f"max_variance = {cap:g} in a problem file, which costs at most {share:.2g} % more "
        "than the infimum of all designs."
    )
    if program.exact_factor is not None:
        got, matrix = f"a singular W: {where} is cancelled by mixing", "a matrix W"
        remedy = f"{remedy} {LAZY}"
    expected = f"{matrix} whose optimal noise is bounded"
    return FreeNoiseError("mixing", expected=expected, got=f"{got}, and {bounded}", remedy=remedy)


def suggested_cap(program: Program) -> float:
    """SUGGESTED_CAP times the variance of independent noise at the least budget, to two digits."""
    value = settings.SUGGESTED_CAP / float(independent_gram(program).diagonal().min())
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit * (1 - settings.sqrt_eps())) * digit:.2g}")


def cost_of_cap(program: Program, answer: Found, *, cap: float) -> float:
    """The distance of the optimum under a cap to the infimum, above: X blended to keep the cap."""
    unit = program.normalized()
    assert answer.dual is not None
    assert answer.gram is not None
    gram = answer.gram / np.sqrt(np.outer(np.diagonal(answer.gram), np.diagonal(answer.gram)))
    caps = cap * program.coordinate_budget

    def covariance(share: float) -> Array:
        blend = (1 - share) * gram
        np.fill_diagonal(blend, 1.0)
        return _linalg.inverse_of_positive(blend)

    low, high, kept = -math.log(float(caps.max())) - 2, 0.0, np.eye(unit.size)
    for _ in range(10):
        middle = (low + high) / 2
        tried = covariance(math.exp(middle))
        if (np.diagonal(tried) <= caps).all():
            high, kept = middle, tried
        else:
            low = middle
    v = answer.dual.blocks[:, 0, 0]
    roots = np.linalg.svd(unit.factor * np.sqrt(v), compute_uv=False)
    lower = float(roots.sum()) ** 2 / float(v.sum())
    # Two digits are printed, and are not to be rounded below what was found.
    return max(0.0, float(np.sum(unit.gram * kept)) / lower - 1) * (1 + 0.05)


def remark(program: Program, noise: Noise) -> str:
    """A sentence on a design whose noise is large because H is singular; else nothing."""
    if program.axes == "space":
        matrix, variances = "W", np.diagonal(noise.covariance)
    else:
        assert noise.strategy is not None
        matrix = "H"
        variances = np.square(noise.strategy.dense_noising()).sum(axis=1)
    variance = float(variances.max())
    ratio = float((variances * np.diagonal(independent_gram(program))).max())
    if ratio < LARGE:
        return ""
    cap = f"{suggested_cap(program):g}"
    singular = "singular" if program.null_space.shape[1] else "nearly singular"
    return (
        f"{matrix} is {singular} and little bounds the noise along its null directions: the "
        f"largest variance of this design is {variance:.2g}, {ratio:.2g} times that of independent "
        f"noise. A cap bounds it: max_variance={cap} in Python, [limits] max_variance = {cap} in a "
        "problem file."
    )
