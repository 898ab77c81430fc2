"""Making an approximate X feasible, by construction, and the matrices that are exported from it.

A floor is linear in R = X^-1 and not convex in X. Multiplying row and column i by d_i >= 1 raises
R_ii by d_i^2 and lowers [R^-1]_ii by as much: so floors are met, at no cost to the budgets. Caps
come between: X is blended with independent noise at full budget, which lowers variances; rows
that fall below a floor are raised again, to the floor, which is not above the cap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.certify.certificate import InTime
from noisedesign.certify.program import DualPoint, Program
from noisedesign.privacy.sensitivity import squared_sensitivity

# --- feasible X -----------------------------------------------------------------------------


def feasible_gram(
    program: Program, gram: Array, *, dual: DualPoint | None = None, thorough: bool = False
) -> Array | None:
    """X (m, m) made feasible: diagonal on patterns, budgets, cap and floor met; None if it cannot
    be. Forbidden entries are dropped and rows rescaled pattern by pattern, which is second order in
    the error of X. A budget that is slack at the optimum must not be used up that way: it tilts X
    out of the directions H sees. Where some budget is slack, H singular, or on request
    (``thorough``), other repairs are tried as well and the one of least objective is taken.
    ``dual`` tells how to share a pattern's budget among its steps."""
    if not np.isfinite(gram).all():
        return None
    gram = _linalg.symmetric(gram)
    shares = np.diagonal(gram) / program.coordinate_budget
    if shares.min() <= settings.EPS**2 * shares.max():
        return None  # noise of that size is no noise that can be drawn
    largest = float(np.diagonal(gram).max())
    if max(float(gram.max()), -float(gram.min())) > 2 * largest:  # far from positive semidefinite
        gram = np.clip(gram, -largest, largest)
    if program.floored:
        covariance = _linalg.inverse_of_positive(_made_positive(gram))
        covariance = raised(program, covariance)
        return _made_positive(_linalg.inverse_of_positive(covariance))
    patterns = program.participation.patterns
    diagonal = gram
    if program.participation.epochs > 1:  # without its entries off the diagonal on patterns
        diagonal = gram.copy()
        diagonal[patterns[:, :, None], patterns[:, None, :]] = 0.0
        np.fill_diagonal(diagonal, np.diagonal(gram))
    used = np.diagonal(diagonal)[patterns].sum(axis=1) / program.budget
    active = used > (1 - settings.ACTIVE_SLACK) * used.max()
    settled = active.all() and not program.singular

    def candidates() -> Iterator[Array]:
        yield _rescaled(program, diagonal, used)
        if thorough or not settled:
            yield _filled(program, diagonal, np.where(active, used, used.max()))
            yield lifted(program, gram, dual=dual)

    finished = (_finished(program, candidate) for candidate in candidates())
    if settled and not thorough:
        return next(finished)
    return min(finished, key=lambda candidate: _objective(program, candidate))


def _finished(program: Program, gram: Array) -> Array:
    gram = _made_positive(gram)
    if program.cap is None:
        return gram
    variance = np.diagonal(_linalg.inverse_of_positive(gram))
    return _capped(program, gram, variance=variance)


def lifted(program: Program, gram: Array, *, dual: DualPoint | None = None) -> Array:
    """X with every pattern's block raised to a diagonal above it, scaled, and filled up: to
    y_i = (X_jj U_j)_ii / p_j, which at the optimum is the dual certificate of the pattern's
    sensitivity; where it is not above X_jj it is shifted until it is."""
    patterns, k = program.participation.patterns, program.participation.epochs
    result = gram.copy()
    if k > 1:
        blocks = gram[patterns[:, :, None], patterns[:, None, :]]
        shares = np.einsum("pii->pi", blocks).copy()
        if dual is not None:
            price = dual.blocks[:, 0, 0]
            priced = price > settings.EPS * price.max()
            products = np.einsum("pij,pji->pi", blocks[priced], dual.blocks[priced])
            shares[priced] = products / price[priced, None]
        lift = -blocks
        np.einsum("pii->pi", lift)[:] += shares
        shift = np.maximum(0.0, -np.linalg.eigvalsh(lift)[:, 0])
        result[patterns[:, :, None], patterns[:, None, :]] = 0.0
        result[patterns, patterns] = shares + shift[:, None]
    used = np.diagonal(result)[patterns].sum(axis=1) / program.budget
    return _filled(program, result, np.full_like(used, used.max()))


def _rescaled(program: Program, gram: Array, used: Array) -> Array:
    """Rows of pattern j divided by sqrt(used_j)."""
    root = np.sqrt(np.tile(used, program.participation.epochs))
    rescaled = gram / root
    rescaled /= root[:, None]
    return np.asarray(rescaled)


def _filled(program: Program, gram: Array, used: Array) -> Array:
    """Rows rescaled by ``used`` (at least the true use), and what is left added on the diagonal."""
    scaled = _rescaled(program, gram, used)
    patterns, k = program.participation.patterns, program.participation.epochs
    room = (program.budget - np.diagonal(scaled)[patterns].sum(axis=1)) / k
    scaled[np.diag_indices(len(scaled))] += np.tile(np.maximum(room, 0.0), k)
    return scaled


def _objective(program: Program, gram: Array) -> float:
    """tr(H X^-1); infinite where X is singular to working precision."""
    try:
        if program.rows is not None:
            return float(np.sum(program.rows.T * np.linalg.solve(gram, program.rows.T)))
        return _linalg.inner(program.gram, _linalg.inverse_of_positive(gram))
    except np.linalg.LinAlgError:
        return float("inf")


def _made_positive(gram: Array) -> Array:
    """X blended with its own diagonal, which changes no budget, until it is positive definite."""
    blend, share = gram, 0.0
    while not _linalg.is_positive(blend):
        share = max(2 * share, settings.sqrt_eps())
        if share >= 1:
            return np.diag(np.diagonal(gram))
        blend = (1 - share) * gram
        np.fill_diagonal(blend, np.diagonal(gram))
    return blend


def _capped(program: Program, gram: Array, *, variance: Array) -> Array:
    """X blended with independent noise at full budget until diag(X^-1), ``variance``, keeps the
    cap: it is convex in X, so the share that brings the bound on every entry there is enough."""
    assert program.cap is not None
    independent = program.coordinate_budget / program.participation.epochs
    margin = _linalg.inversion_margin(np.diagonal(gram), variance)
    excess = variance - program.cap * (1 - margin)
    over = excess > 0
    if not over.any():
        return gram
    share = min(1.0, float((excess[over] / (variance - 1 / independent)[over]).max()))
    return np.asarray((1 - share) * gram + share * np.diag(independent))


# --- exported matrices ----------------------------------------------------------------------


def covariance_of(program: Program, gram: Array) -> Array:
    """R = X^-1 of a feasible X, with head room so that diag(R^-1) <= budget in floating point: half
    of that of a cap, so that both hold after rounding. Where a floor asks for more than the budgets
    do, a cap may leave no room, and is met afresh."""
    covariance = _linalg.inverse_of_positive(gram)
    margin = _linalg.inversion_margin(np.diagonal(gram), np.diagonal(covariance))
    if program.floored:
        return settled(program, covariance, margin=margin)
    covariance *= 1 + margin / 2
    return covariance


def strategy_of(program: InTime, gram: Array) -> Array:
    """Lower triangular C with C^T C = X, scaled to squared sensitivity <= 1 in floating point."""
    return unit_strategy(program, _linalg.reversed_cholesky(gram))


def unit_strategy(program: InTime, strategy: Array) -> Array:
    """A lower triangular C scaled to squared sensitivity <= 1 in floating point, zeros kept."""
    squared = squared_sensitivity(strategy.T @ strategy, program.participation).squared
    room = 1 - 4 * settings.rank_tolerance(len(strategy))
    scaled = np.tril(strategy)
    scaled *= room / np.sqrt(squared)
    return np.asarray(scaled)


# --- attainment -----------------------------------------------------------------------------


def unbounded_direction(
    program: Program, gram: Array, *, dual: DualPoint | None = None
) -> Array | None:
    """A unit null vector z of H, shape (m,), along which the optimal noise diverges, or None: with
    H singular the infimum is attained only if X, nearly optimal, can be lifted within its budgets
    until it is nonsingular on the null space, by the room between a pattern's block and its
    diagonal certificate, and by budgets that are slack."""
    null = program.null_space
    if program.cap is not None or null.shape[1] == 0:
        return None
    root = np.sqrt(program.coordinate_budget)
    held = null.T @ (lifted(program, gram, dual=dual) / root[:, None] / root) @ null
    values, vectors = np.linalg.eigh(held)
    if values[0] > settings.SLACK_FLOOR:
        return None
    return np.asarray(null @ vectors[:, 0])


def raised(program: Program, covariance: Array) -> Array:
    """R, shape (n, n), within budgets, caps and floors up to rounding, from a positive definite R:
    the better one of rows multiplied by the least factors that budgets and floors allow, and rows
    only raised, as a slack budget must not be used up."""
    precision = np.diagonal(_linalg.inverse_of_positive(covariance))
    least = np.maximum(precision / program.budget, _floor(program) / np.diagonal(covariance))
    factors = least, np.maximum(least, 1.0)
    candidates = (_lowered(program, _scaled(covariance, factor)) for factor in factors)
    return min(candidates, key=lambda candidate: float(np.sum(program.gram * candidate)))


def settled(program: Program, covariance: Array, *, margin: float) -> Array:
    """R of :func:`raised` made to keep budgets, caps and floors in floating point: rows are raised
    by what they exceed their budgets by, and by half the relative ``margin``, the accuracy of an
    inverse, for which caps have left room."""
    variance = np.diagonal(covariance)
    used = np.diagonal(_linalg.inverse_of_positive(covariance)) / program.budget
    wanted = variance * np.maximum(used, 1.0) * (1 + margin / 2)
    wanted = np.clip(wanted, _floor(program), np.inf if program.cap is None else program.cap)
    found = _scaled(covariance, wanted / variance)
    np.fill_diagonal(found, wanted)
    return found


def _scaled(a: Array, squares: Array) -> Array:
    """Row and column i multiplied by the root of squares_i."""
    root = np.sqrt(squares)
    return np.asarray(a * root[:, None] * root)


def _lowered(program: Program, covariance: Array) -> Array:
    """R within its budgets and floors brought below its caps as well."""
    if program.cap is None:
        return covariance
    gram = _linalg.inverse_of_positive(covariance)
    capped = _capped(program, gram, variance=np.diagonal(covariance))
    if capped is gram:
        return covariance
    blend = _linalg.inverse_of_positive(capped)
    return _scaled(blend, np.maximum(1.0, _floor(program) / np.diagonal(blend)))


def _floor(program: Program) -> Array:
    return np.zeros(program.size) if program.floor is None else program.floor
