"""What multipliers prove against chosen observers, and the account of a covariance. No solver.

Any v_a >= 0, N_a >= 0 and w >= 0 with sum_a K_a*(N_a) <= H + diag(w), where
K_a*(N) = sum_j B_aj^T N B_aj, prove, in the words of :mod:`.program`,

    tr(H R) >= sum_a ( tr (V_a^1/2 G_a^T N_a G_a V_a^1/2)^1/2 )^2 / sum(v_a) - <cap, w>,

because <N, K> + <v, diag(G^T K^-1 G)> >= 2 tr((V^1/2 G^T N G V^1/2)^1/2) for every K > 0, and the
scale of v_a is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.families.observers.program import (
    ObservedNoise,
    ObserverProblem,
    ObserverProgram,
    used_by,
)
from noisedesign.privacy.runs import FIXED, SEEN
from noisedesign.program.certificate import Certificate
from noisedesign.program.family import Arrays

ROUNDING = 8
"""Multiple of the rank tolerance allowed to the rounding of an eigenvalue or a sum."""

SCALES = (1.0, *(1 - 10.0**-k for k in range(10, 2, -1)))
"""Factors tried on all N_a: a slightly smaller one may cost less than the multipliers of the cap
that would make the whole feasible. Interior-point answers miss feasibility by 1e-10 to 1e-5."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """Multipliers, observer by observer: N_a = F_a^T F_a, positive semidefinite whatever F_a is.

    Shapes: ``factors`` F_a (any, m), ``weights`` v_a (c,), ``cap`` w (p,).
    """

    factors: tuple[Array, ...]
    weights: tuple[Array, ...]
    cap: Array


def lower_bound(program: ObserverProgram, multipliers: Multipliers) -> float:
    """What the multipliers prove once repaired, in squared error; 0 where they prove nothing.

    Repair: negative weights are clipped, and what sum_a K_a*(N_a) exceeds H + diag(w) by is paid
    for: noise within the cap is D^1/2 Q D^1/2, D = diag(cap), with tr Q <= p, so an excess E costs
    at most p lambda_max(D^1/2 E D^1/2). Rounding is subtracted.
    """
    arrays = (*multipliers.factors, *multipliers.weights, multipliers.cap)
    if not all(np.isfinite(array).all() for array in arrays):
        return 0.0
    prices = np.maximum(multipliers.cap, 0.0)
    gained, paying = 0.0, []
    parts = zip(program.observers, multipliers.factors, multipliers.weights, strict=True)
    for seen, factor, weights in parts:
        v = np.maximum(weights, 0.0)
        if v.max(initial=0.0) > 0:
            # Observers without a price on any gradient gain nothing, whatever their N_a.
            share = v / v.max()
            trace = _linalg.nuclear_norm(factor @ seen.signals * np.sqrt(share))
            gained += trace**2 / float(share.sum())
            paying.append((seen, factor))
    seen_by = [seen for seen, _ in paying]
    used = used_by(seen_by, [factor for _, factor in paying], size=program.size)
    paid = float(program.cap @ prices)
    best = max(scale * gained - paid - _excess(program, scale * used, prices) for scale in SCALES)
    rounding = ROUNDING * settings.rank_tolerance(program.size) * (gained + paid)
    return max(0.0, best - rounding)


def _excess(program: ObserverProgram, used: Array, prices: Array) -> float:
    """A bound on <used - H - diag(w), R> over all noise R within the cap."""
    root = np.sqrt(program.cap)
    scale = np.multiply.outer(root, root)
    largest = float(_linalg.eigenvalues((used - program.gram - np.diag(prices)) * scale)[-1])
    terms = float(program.cap @ np.diagonal(used + program.gram + np.diag(prices)))
    rounding = ROUNDING * settings.rank_tolerance(program.size) * terms
    return program.size * max(0.0, largest + rounding)


def judge(problem: ObserverProblem, covariance: Array, *, bound: float) -> Certificate:
    """Certificate of a covariance, by the account of every observer."""
    return Certificate(
        objective=float(np.sum(problem.gram * covariance)),
        lower_bound=bound,
        sensitivity_squared=problem.worst(covariance)[0],
        variance_ratio=float((np.diagonal(covariance) / problem.cap).max()),
        theorem=(SEEN if problem.models_are_seen else FIXED).number,
    )


def arrays_of(
    program: ObserverProgram, multipliers: Multipliers, *, coalitions: Array | None = None
) -> dict[str, Array]:
    """Multipliers as they are stored, observer after observer.

    ``observer_ranks`` holds the number of rows of every F_a; ``observer_factors`` the rows F_a B_a,
    one number a coordinate of the noise; ``observer_weights`` v_a; ``dual_cap`` w. Of some of very
    many coalitions ``dual_coalitions`` holds the nodes, shape (k, size), and rows have only the
    coordinates of the noise that one of them hears, ascending.
    """
    local = coalitions is not None
    pairs = zip(multipliers.factors, program.observers, strict=True)
    rows = [factor @ _flat(seen, local=local)[0] for factor, seen in pairs]
    named = {"dual_coalitions": np.asarray(coalitions, dtype=np.float64)} if local else {}
    return named | {
        "observer_ranks": np.array([len(r) for r in rows], dtype=np.float64),
        "observer_factors": np.concatenate([r.ravel() for r in rows]),
        "observer_weights": np.concatenate(multipliers.weights),
        "dual_cap": multipliers.cap,
    }


def proved(problem: ObserverProblem, arrays: Arrays) -> tuple[ObserverProblem, Multipliers]:
    """The multipliers of :func:`arrays_of`, and the problem against those who have some: where
    that is not all coalitions, it asks for less, and a bound of it holds for all.

    Raises:
        InputError: their numbers of entries are not those of the observers; coalitions that the
            problem does not have.
    """
    if "dual_coalitions" in arrays:
        problem = problem.among(_coalitions(problem, arrays["dual_coalitions"]))
    elif len(arrays["observer_ranks"]) != len(problem.observers) and problem.pooled:
        expected = f"rows of {len(problem.observers)} observers, or their dual_coalitions"
        _refuse("observer_ranks", expected, arrays["observer_ranks"])
    return problem, multipliers_of(problem.normalized, arrays)


def _coalitions(problem: ObserverProblem, stored: Array) -> Array:
    """Coalitions of the problem by their nodes, shape (k, size)."""
    known = problem.coalitions
    expected = "different nodes of those that may look, as many in every row as they pool"
    if known is None or stored.ndim != 2 or stored.shape[1] != known.size or not len(stored):
        _refuse("dual_coalitions", expected, stored)
    ordered = np.sort(stored, axis=1)
    if not np.isin(stored, known.nodes).all() or (np.diff(ordered, axis=1) == 0).any():
        _refuse("dual_coalitions", expected, stored)
    return stored.astype(np.intp)


def multipliers_of(program: ObserverProgram, arrays: Arrays) -> Multipliers:
    """The multipliers of :func:`arrays_of`: what of the rows lies in the row space of B_a.

    Raises:
        InputError: their numbers of entries are not those of the observers.
    """
    for name in ("observer_ranks", "observer_factors", "observer_weights"):
        if arrays[name].ndim != 1:
            _refuse(name, "a list of numbers", arrays[name])
    ranks = [int(rank) for rank in arrays["observer_ranks"]]
    back = [_flat(seen, local="dual_coalitions" in arrays)[1] for seen in program.observers]
    shapes = [(rank, len(turn)) for rank, turn in zip(ranks, back, strict=False)]
    counts = [seen.signals.shape[1] for seen in program.observers]
    flat, weights = arrays["observer_factors"], arrays["observer_weights"]
    sizes = [rank * columns for rank, columns in shapes]
    if len(ranks) != len(program.observers) or min(ranks) < 0 or sum(sizes) != len(flat):
        _refuse("observer_factors", f"rows of {len(program.observers)} observers", flat)
    if sum(counts) != len(weights):
        _refuse("observer_weights", f"{sum(counts)} entries", weights)
    parts = zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes, back, strict=True)
    factors = tuple(part.reshape(shape) @ turn for part, shape, turn in parts)
    split = tuple(np.split(weights, np.cumsum(counts)[:-1]))
    return Multipliers(factors=factors, weights=split, cap=arrays["dual_cap"])


def _flat(seen: ObservedNoise, *, local: bool) -> tuple[Array, Array]:
    """What is stored of F is F times the first, and that times the second is F: B_a, or its columns
    that are not zero, with its blocks side by side, shape (m, k p), and its transpose, as its rows
    are orthonormal. Of a run, what messages are of what each adds, and the inverse."""
    if seen.run is not None:
        turn = seen.run.of_new(seen.heard)
        return turn, np.asarray(np.linalg.inv(turn))
    flat = np.asarray(np.concatenate(list(seen.local if local else seen.responses), axis=1))
    return flat, flat.T


def _refuse(name: str, expected: str, array: Array) -> NoReturn:
    raise InputError(f"design file.{name}", expected=expected, got=f"shape {array.shape}")
