"""The bound that multipliers prove, with every rounding accounted for: P_t is replaced by floats
that are proved to be no less, and no inverse or minimiser is trusted (docs/mathematics/views.md,
theorem F, where it is Pi_t)."""

from __future__ import annotations

import math

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    Enclosure,
    column_norms,
    definite_inverse,
    exactly,
    gram,
    product,
    residual,
    row_norms,
    sum_up,
    up,
)
from noisedesign.privacy.responses.game import Game
from noisedesign.privacy.responses.multipliers import Multipliers, Recursion
from noisedesign.privacy.views.mechanism import Step

Enclosed = tuple[Enclosure, Enclosure, Enclosure]  # J, F' and G of one step, S = G G^T


def enclosed_stages(game: Game) -> list[Enclosed] | None:
    """Every step, known up to proved errors; None where R R^T is not proved nonsingular."""
    found: list[Enclosed] = []
    for t in range(game.horizon):
        if found and game.constant:
            found.append(found[0])
            continue
        stage = _stage(game.system(t))
        if stage is None:
            return None
        found.append(stage)
    return found


def bound_above(recursion: Recursion, found: Multipliers, stages: list[Enclosed]) -> float:
    """A proved upper bound on the squared sensitivity; infinite where nothing is proved."""
    victim, first = recursion.victim, recursion.pattern[0]
    information = _above(stages[-1][0])
    for t in range(recursion.game.horizon - 1, first, -1):
        ahead = _answered(recursion, found, information, t)
        if ahead is None:
            return math.inf
        information = _above(_before(stages[t - 1], ahead))
        if not np.isfinite(information).all():
            return math.inf
    prices = sum_up(up(1 / found.record[list(recursion.pattern[1:])], 1))
    return float(up(prices + max(float(information[victim, victim]), 0.0), 1))


def _answered(
    recursion: Recursion, found: Multipliers, information: Array, t: int
) -> Enclosure | None:
    """X of the step before t, or more, from P_t; None where multipliers are not proved feasible."""
    size, nodes = len(information), len(recursion.game.nodes)
    slack = np.zeros(size)
    slack[:nodes] = found.nodes[t]
    slack[recursion.victim] += found.record[t]
    root = np.asarray(up(np.sqrt(slack), 3))
    scaled = root[:, None] * information
    inner = np.eye(size) - scaled * root
    rad = np.asarray(up(2 * EPS * (np.eye(size) + np.abs(scaled) * root), 4))
    solved = definite_inverse(Enclosure((inner + inner.T) / 2, (rad + rad.T) / 2))
    if solved is None:
        return None
    middle, away = solved
    middle[np.diag_indices(size)] = up(middle.diagonal() + away, 2)
    half = Enclosure(scaled, np.asarray(up(EPS * np.abs(scaled), 1)))
    full = exactly(information).plus(product(half.transposed(), product(middle, half)))
    carry = np.ones(size)
    carry[:nodes] = recursion.rho
    outer = np.multiply.outer(carry, carry)
    mid = full.mid * outer
    rad = full.rad * np.abs(outer) + 2 * EPS * np.abs(mid)
    active = np.flatnonzero(found.nodes[t])
    added = recursion.radius**2 / found.nodes[t][active]
    mid[active, active] += added
    rad[active, active] += 2 * EPS * (added + np.abs(mid[active, active]))
    return Enclosure(mid, np.asarray(up(rad, 8)))


def _before(stage: Enclosed, ahead: Enclosure) -> Enclosure:
    """P of a step, or more, from X, by a policy that is about the best."""
    seen, through, ways = stage
    guess = np.linalg.solve(
        np.eye(len(ahead.mid)) + ahead.mid @ (ways.mid @ ways.mid.T), ahead.mid @ through.mid
    )
    policy = ways.mid.T @ guess
    left = residual(through, ways.mid, policy)
    spread = np.multiply.outer(row_norms(ways.rad), column_norms(policy))
    # Powers of two, which round nothing, bring X to the same size everywhere.
    unit = np.ldexp(1.0, -(np.frexp(np.maximum(ahead.mid.diagonal(), 1e-300))[1] // 2))
    rows = (1 / unit)[:, None]
    kept = Enclosure(left.mid * rows, np.asarray(up((left.rad + spread) * rows, 4)))
    total = seen.plus(product(kept.transposed(), product(ahead.scaled(unit), kept)))
    return total.plus(gram(policy))


def _above(a: Enclosure) -> Array:
    """A symmetric matrix that is no less than any symmetric one of an enclosure."""
    mid = (a.mid + a.mid.T) / 2
    spread = np.broadcast_to(a.rad, mid.shape) + np.abs(a.mid - mid) + EPS * np.abs(mid)
    norm = float(up(np.linalg.norm(up(spread, 4)), mid.size))
    diagonal = mid.diagonal()
    mid[np.diag_indices(len(mid))] = diagonal + up(norm + EPS * (np.abs(diagonal) + norm), 4)
    return mid


def _stage(step: Step) -> Enclosed | None:
    transition, output, state_noise, output_noise = step
    if not len(output):
        nothing = np.zeros((transition.shape[1],) * 2)
        return exactly(nothing), _spread(exactly(transition)), _spread(exactly(state_noise))
    solved = definite_inverse(product(output_noise, output_noise.T))
    if solved is None:
        return None
    inverse = Enclosure(solved[0], np.full(solved[0].shape, float(up(solved[1], 1))))
    crossed = product(product(state_noise, output_noise.T), inverse)
    seen = product(output.T, product(inverse, output))
    through = exactly(transition).minus(product(crossed, output))
    return seen, through, exactly(state_noise).minus(product(crossed, output_noise))


def _spread(a: Enclosure) -> Enclosure:
    """The same enclosure with a radius for every entry."""
    return Enclosure(a.mid, np.zeros(a.mid.shape))
