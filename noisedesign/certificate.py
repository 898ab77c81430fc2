"""Judging an answer: plain numpy, independent of every backend.

A lower bound comes from any multipliers, repaired until they are feasible; the objective and the
constraint come from the very matrix that is exported. A backend's own word is never used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign import _linalg, settings
from noisedesign._checks import Array
from noisedesign.formulations import DualPoint, Program
from noisedesign.sensitivity import EXACT, squared_sensitivity


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proved about one design.

    Attributes:
        objective: tr(H X^-1) of the exported matrix, squared noise, at the stated budgets.
        lower_bound: no feasible design has a smaller objective.
        sensitivity_squared: largest squared sensitivity over its budget; feasible is <= 1.
        sensitivity_kind: which number that is ("vector-exact" or "vector-upper-bound").
        variance_ratio: largest diag(X^-1) over its cap, or None without a cap.
    """

    objective: float
    lower_bound: float
    sensitivity_squared: float
    sensitivity_kind: str = EXACT
    variance_ratio: float | None = None

    @property
    def feasible(self) -> bool:
        """Whether budget and cap hold, with no tolerance."""
        within_cap = self.variance_ratio is None or self.variance_ratio <= 1
        return self.sensitivity_squared <= 1 and within_cap

    @property
    def gap(self) -> float:
        """Relative duality gap objective / lower_bound - 1."""
        if self.lower_bound <= 0:
            return float("inf")
        return self.objective / self.lower_bound - 1


# --- lower bound ----------------------------------------------------------------------------


def repaired_dual(program: Program, dual: DualPoint) -> DualPoint:
    """The nearest sensible feasible multipliers: U_j >= 0 with constant diagonal, w >= 0."""
    blocks = (dual.blocks + dual.blocks.transpose(0, 2, 1)) / 2
    if blocks.shape[1] == 1:
        blocks = np.maximum(blocks, 0.0)
    else:
        values, vectors = np.linalg.eigh(blocks)
        blocks = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
        diagonal = np.einsum("jii->ji", blocks)
        diagonal[:] = diagonal.max(axis=1, keepdims=True)  # adds a nonnegative diagonal
    cap = None
    if program.cap is not None:
        cap = np.zeros(program.size) if dual.cap is None else np.maximum(dual.cap, 0.0)
    return DualPoint(blocks=blocks, cap=cap)


def lower_bound(program: Program, dual: DualPoint) -> float:
    """( tr (H_w^1/2 U H_w^1/2)^1/2 )^2 / sum_j budget_j p_j - <cap, w>, after repair of (U, w).

    The trace is the nuclear norm of L U^1/2, so no condition number is squared. Multipliers with
    NaN, or too large to add up, prove nothing: the bound is 0.
    """
    scale = float(np.abs(dual.blocks).max())
    if not 0 < scale < np.inf or (dual.cap is not None and not np.isfinite(dual.cap).all()):
        return 0.0
    # The scale of U is free, and at an extreme one its sums would overflow.
    dual = repaired_dual(program, DualPoint(blocks=dual.blocks / scale, cap=dual.cap))
    price = float(program.budget @ dual.blocks[:, 0, 0])
    if price <= 0:
        return 0.0
    factor = program.factor
    if dual.cap is not None:
        factor = np.vstack([factor, np.diag(np.sqrt(dual.cap))])
    if dual.blocks.shape[1] == 1:
        half = factor * np.sqrt(dual.blocks[:, 0, 0])
    else:
        values, vectors = np.linalg.eigh(dual.blocks)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        half = np.concatenate(
            [factor[:, p] @ r for p, r in zip(program.participation.patterns, root, strict=True)],
            axis=1,
        )
    trace = _linalg.nuclear_norm(half)
    with np.errstate(over="ignore"):
        bound = trace / price * trace
        if dual.cap is not None and program.cap is not None:
            bound -= float(program.cap @ dual.cap)
    return bound if 0 < bound < np.inf else 0.0


# --- feasible primal ------------------------------------------------------------------------


def feasible_gram(program: Program, gram: Array) -> Array | None:
    """X made feasible: diagonal on patterns, budgets met, cap met; None where it cannot be.

    Rows are rescaled pattern by pattern, which is second order in the error of X. A budget that is
    slack at the optimum must not be used up that way: it tilts X out of the directions H sees.
    Where some budget is slack (or H singular, which only slack can mend), other repairs are tried
    as well and the one of least objective is taken; each is feasible by construction.
    """
    if not np.isfinite(gram).all():
        return None
    patterns, k = program.participation.patterns, program.participation.epochs
    gram = _linalg.symmetrized(gram)
    if k > 1:
        diagonal = np.diagonal(gram).copy()
        gram[patterns[:, :, None], patterns[:, None, :]] = 0.0
        np.fill_diagonal(gram, diagonal)
    if np.diagonal(gram).min() <= 0:
        return None
    used = np.diagonal(gram)[patterns].sum(axis=1) / program.budget
    active = used > (1 - settings.ACTIVE_SLACK) * used.max()
    candidates = [_rescaled(program, gram, used)]
    if not active.all() or program.null_space.shape[1]:
        candidates.append(_filled(program, gram, np.where(active, used, used.max())))
        candidates.append(_filled(program, gram, np.full_like(used, used.max())))
    candidates = [_made_positive(candidate) for candidate in candidates]
    if program.cap is not None:
        candidates = [_capped(program, candidate) for candidate in candidates]
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda candidate: _objective(program, candidate))


def _rescaled(program: Program, gram: Array, used: Array) -> Array:
    """Rows of pattern j divided by sqrt(used_j)."""
    root = np.sqrt(np.tile(used, program.participation.epochs))
    return np.asarray(gram / root[:, None] / root)


def _filled(program: Program, gram: Array, used: Array) -> Array:
    """Rows rescaled by ``used`` (at least the true use), and what is left added on the diagonal."""
    scaled = _rescaled(program, gram, used)
    patterns, k = program.participation.patterns, program.participation.epochs
    room = (program.budget - np.diagonal(scaled)[patterns].sum(axis=1)) / k
    return np.asarray(scaled + np.diag(np.tile(np.maximum(room, 0.0), k)))


def _objective(program: Program, gram: Array) -> float:
    """tr(H X^-1); infinite where X is singular to working precision."""
    try:
        return float(np.sum(program.gram * _linalg.inverse_of_positive(gram)))
    except np.linalg.LinAlgError:
        return float("inf")


def _made_positive(gram: Array) -> Array:
    """X blended with its own diagonal, which changes no budget, until it is positive definite."""
    share = 0.0
    while share < 1:
        blend = (1 - share) * gram + share * np.diag(np.diagonal(gram))
        try:
            np.linalg.cholesky(blend)
        except np.linalg.LinAlgError:
            share = max(2 * share, settings.sqrt_eps())
        else:
            return np.asarray(blend)
    return np.diag(np.diagonal(gram))


def _capped(program: Program, gram: Array) -> Array:
    """X blended with independent noise at full budget until diag(X^-1) is within the cap.

    diag(X^-1) is convex in X, so the share that brings the bound on every entry to the cap is
    enough.
    """
    assert program.cap is not None
    independent = program.coordinate_budget
    variance = np.diagonal(_linalg.inverse_of_positive(gram))
    target = program.cap * (1 - _margin(gram, variance))
    floor = 1 / independent
    excess = variance - target
    over = excess > 0
    if not over.any():
        return gram
    share = min(1.0, float((excess[over] / (variance - floor)[over]).max()))
    return np.asarray((1 - share) * gram + share * np.diag(independent))


def _margin(gram: Array, variance: Array) -> float:
    """Relative head room for the rounding of an inverse: size * EPS * estimated condition."""
    condition = float(np.diagonal(gram).max() * variance.max())
    return 8 * settings.rank_tolerance(len(gram)) * max(1.0, condition)


# --- exported matrices ----------------------------------------------------------------------


def covariance_of(program: Program, gram: Array) -> Array:
    """R = X^-1 of a feasible X, with head room so that diag(R^-1) <= budget in floating point.

    Half of the head room that a cap was met with: both constraints hold after rounding.
    """
    covariance = _linalg.inverse_of_positive(gram)
    return covariance * (1 + _margin(gram, np.diagonal(covariance)) / 2)


def strategy_of(program: Program, gram: Array) -> Array:
    """Lower triangular C with C^T C = X, scaled to squared sensitivity <= 1 in floating point."""
    return unit_strategy(program, _linalg.reversed_cholesky(gram))


def unit_strategy(program: Program, strategy: Array) -> Array:
    """A lower triangular strategy scaled to squared sensitivity <= 1 in floating point."""
    squared = squared_sensitivity(strategy.T @ strategy, program.participation).squared
    room = 1 - 4 * settings.rank_tolerance(len(strategy))
    return np.asarray(np.tril(strategy) * (room / np.sqrt(squared)))


def judge_covariance(program: Program, covariance: Array, *, bound: float) -> Certificate:
    """Certificate of a spatial design R, shape (n, n). A singular R has infinite sensitivity."""
    objective = float(np.sum(program.gram * covariance))
    ratio = None
    if program.cap is not None:
        ratio = float((np.diagonal(covariance) / program.cap).max())
    try:
        precision = np.diagonal(_linalg.inverse_of_positive(covariance))
        worst = float((precision / program.budget).max())
    except np.linalg.LinAlgError:
        worst = float("inf")
    return Certificate(
        objective=objective, lower_bound=bound, sensitivity_squared=worst, variance_ratio=ratio
    )


def judge_strategy(program: Program, strategy: Array, *, bound: float) -> Certificate:
    """Certificate of a temporal design C, shape (T, T), at its own scale."""
    try:
        noise = np.linalg.solve(strategy.T, program.factor.T)
        objective = float(np.square(noise).sum())
    except np.linalg.LinAlgError:
        objective = float("inf")
    sensitivity = squared_sensitivity(strategy.T @ strategy, program.participation)
    return Certificate(
        objective=objective, lower_bound=bound,
        sensitivity_squared=sensitivity.squared, sensitivity_kind=sensitivity.kind,
    )  # fmt: skip


# --- attainment -----------------------------------------------------------------------------


def unbounded_direction(program: Program, gram: Array) -> Array | None:
    """A null direction of H along which the optimal noise diverges, or None.

    With H singular the infimum is attained only if budgets that are slack at the optimum leave
    room for X along every null direction: some node of nonzero weight must have slack.

    Args:
        gram: a nearly optimal X of ``program``.

    Returns:
        A unit vector z, shape (m,), with H z = 0, or None where the optimum is attained.
    """
    null = program.null_space
    if program.cap is not None or null.shape[1] == 0:
        return None
    patterns, k = program.participation.patterns, program.participation.epochs
    used = np.diagonal(gram)[patterns].sum(axis=1) / program.budget
    slack = np.tile(1 - used / used.max(), k)
    held = null * (slack > settings.SLACK_FLOOR)[:, None]
    _, values, right = np.linalg.svd(held)
    weakest = right[-1]
    if len(values) == null.shape[1] and values[-1] > settings.SLACK_FLOOR:
        return None
    return np.asarray(null @ weakest)
