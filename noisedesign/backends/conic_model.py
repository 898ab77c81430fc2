"""The program as a conic model in cvxpy, and the multipliers read back from its duals.

Three formulations, of one normalised program whose Gram matrix H = L^T L is scaled to a bound of
about one so that absolute tolerances mean the same everywhere:

compact
    minimise tr(Y)  subject to  [[Y, L], [L^T, X]] >= 0,  X diagonal on every pattern, and the sum
    of diag(X) over pattern j at most 1. One block of size 2m.
covariance (space)
    minimise <H, R>  subject to  [[X, I], [I, R]] >= 0,  diag(X) <= 1  and, if asked,
    floor <= diag(R) <= cap. Also one block of size 2n; the one that can hold such limits.
paper (space)
    as published with Whisper D-SGD: R = s I + R_cor and one block [[R, e_i], [e_i^T, 1]] >= 0 of
    size n + 1 a node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

from noisedesign import _linalg
from noisedesign._checks import Array
from noisedesign.formulations import DualPoint, Program, diagonal_dual

COMPACT, COVARIANCE, PAPER = "compact", "covariance", "paper"
FORMULATIONS = (COMPACT, COVARIANCE, PAPER)


@dataclass(frozen=True, kw_only=True)
class ConicModel:
    """A cvxpy problem and how to read X and the multipliers out of its solution."""

    problem: cp.Problem
    gram: Callable[[], Array | None]
    dual: Callable[[], DualPoint | None]


def refusal(program: Program, formulation: str) -> str | None:
    """Why a formulation cannot hold a program, or None."""
    if formulation in (COVARIANCE, PAPER) and program.participation.epochs > 1:
        return f"several epochs in formulation {formulation!r}; 'compact' can"
    if program.limited and program.participation.epochs > 1:
        return "a limit on variances (cap or floor) together with several epochs"
    return None


def build(program: Program, *, formulation: str) -> ConicModel:
    """The model of a normalised program; ``compact`` gives way to ``covariance`` under limits."""
    scale = lower_bound_scale(program)
    scaled = replace(
        program,
        gram=program.gram / scale,
        exact_factor=program.factor / np.sqrt(scale),
    )
    if formulation == PAPER:
        model = _paper(scaled)
    elif formulation == COVARIANCE or program.limited:
        model = _covariance(scaled)
    else:
        model = _compact(scaled)

    def dual() -> DualPoint | None:
        point = model.dual()
        if point is None:
            return None
        cap, floor = (
            None if limit is None else limit * scale for limit in (point.cap, point.floor)
        )
        return DualPoint(blocks=point.blocks * scale, cap=cap, floor=floor)

    return replace(model, dual=dual)


def lower_bound_scale(program: Program) -> float:
    """The bound of uniform multipliers, (tr H^1/2)^2 / m: the size of the objective to expect."""
    return _linalg.nuclear_norm(program.factor) ** 2 / program.size


def _inverse_or_none(value: Array | None) -> Array | None:
    if value is None or not np.isfinite(value).all():
        return None
    try:
        return np.asarray(np.linalg.inv(_linalg.symmetrized(value)), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def _vector_dual(constraint: cp.Constraint | None) -> Array | None:
    if constraint is None or constraint.dual_value is None:
        return None
    return np.atleast_1d(np.asarray(constraint.dual_value, dtype=np.float64))


def _limits(
    program: Program, r: cp.Expression
) -> tuple[cp.Constraint | None, cp.Constraint | None, list[cp.Constraint]]:
    """Cap and floor on diag(R), where there are any, and the list of both."""
    cap = None if program.cap is None else cp.diag(r) <= program.cap
    floor = None if program.floor is None else cp.diag(r) >= program.floor
    return cap, floor, [limit for limit in (cap, floor) if limit is not None]


def _covariance(program: Program) -> ConicModel:
    n = program.size
    x = cp.Variable((n, n), symmetric=True)
    r = cp.Variable((n, n), symmetric=True)
    budget = cp.diag(x) <= 1
    cap, floor, limits = _limits(program, r)
    coupling = cp.bmat([[x, np.eye(n)], [np.eye(n), r]]) >> 0
    constraints = [coupling, budget, *limits]
    problem = cp.Problem(cp.Minimize(cp.trace(program.gram @ r)), constraints)

    def dual() -> DualPoint | None:
        v = _vector_dual(budget)
        if v is None:
            return None
        return diagonal_dual(v, cap=_vector_dual(cap), floor=_vector_dual(floor))

    return ConicModel(problem=problem, gram=lambda: _inverse_or_none(r.value), dual=dual)


def _compact(program: Program) -> ConicModel:
    size, patterns = program.size, program.participation.patterns
    k = program.participation.epochs
    factor = program.factor
    x = cp.Variable((size, size), symmetric=True)
    y = cp.Variable((len(factor), len(factor)), symmetric=True)
    coupling = cp.bmat([[y, factor], [factor.T, x]]) >> 0
    first, second = np.triu_indices(k, 1)
    budgets = cp.sum(cp.reshape(cp.diag(x), (k, len(patterns)), order="C"), axis=0) <= 1
    forbidden = None
    constraints = [coupling, budgets]
    if k > 1:
        # One equality a forbidden pair, pattern after pattern.
        forbidden = x[patterns[:, first].ravel(), patterns[:, second].ravel()] == 0
        constraints.append(forbidden)
    problem = cp.Problem(cp.Minimize(cp.trace(y)), constraints)

    def dual() -> DualPoint | None:
        p = _vector_dual(budgets)
        off = _vector_dual(forbidden)
        if p is None or (forbidden is not None and off is None):
            return None
        blocks = p[:, None, None] * np.eye(k)
        if off is not None:
            # x_st enters the Lagrangian once, U_st twice.
            half = off.reshape(len(patterns), -1) / 2
            blocks[:, first, second] = blocks[:, second, first] = half
        return DualPoint(blocks=blocks)

    return ConicModel(problem=problem, gram=lambda: x.value, dual=dual)


def _paper(program: Program) -> ConicModel:
    n = program.size
    correlated = cp.Variable((n, n), symmetric=True)
    independent = cp.Variable()
    r = independent * np.eye(n) + correlated
    columns = np.eye(n)
    blocks = [
        cp.bmat([[r, columns[:, [i]]], [columns[[i], :], np.ones((1, 1))]]) >> 0 for i in range(n)
    ]
    cap, floor, limits = _limits(program, r)
    valid = [correlated >> 0, independent >= 0]
    problem = cp.Problem(cp.Minimize(cp.trace(program.gram @ r)), [*valid, *blocks, *limits])

    def dual() -> DualPoint | None:
        values = [block.dual_value for block in blocks]
        if any(value is None for value in values):
            return None
        v = np.array([value[n, n] for value in values], dtype=np.float64)
        return diagonal_dual(v, cap=_vector_dual(cap), floor=_vector_dual(floor))

    return ConicModel(problem=problem, gram=lambda: _inverse_or_none(r.value), dual=dual)
