"""The bound that multipliers prove against chosen observers, and the account of a covariance.

Any v_a >= 0, N_a >= 0 and w >= 0 with sum_a K_a*(N_a) <= H + diag(w), where
K_a*(N) = sum_j B_aj^T N B_aj, prove, in the words of :mod:`.program`,

    tr(H R) >= sum_a ( tr (V_a^1/2 G_a^T N_a G_a V_a^1/2)^1/2 )^2 / sum(v_a) - <cap, w>,

because <N, K> + <v, diag(G^T K^-1 G)> >= 2 tr((V^1/2 G^T N G V^1/2)^1/2) for every K > 0, and the
scale of v_a is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.certify.certificate import Certificate
from noisedesign.families.family import Arrays
from noisedesign.families.observers.observed import ObservedNoise, used_by
from noisedesign.families.observers.program import ObserverProgram, UnitProgram
from noisedesign.privacy.runs import FIXED, SEEN
from noisedesign.privacy.views import Coalitions
from noisedesign.problem.problem import models_are_seen

ROUNDING = 8  # multiple of the rank tolerance allowed to the rounding of an eigenvalue or a sum
# Factors tried on all N_a: a slightly smaller one may cost less than multipliers of the cap that
# would make the whole feasible. Interior-point answers miss feasibility by 1e-10 to 1e-5.
SCALES = (1.0, *(1 - 10.0**-k for k in range(10, 2, -1)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """Multipliers, observer by observer: ``factors`` F_a (any, m) of N_a = F_a^T F_a, positive
    semidefinite whatever F_a is; ``weights`` v_a (c,); and ``cap`` w (n,)."""

    factors: tuple[Array, ...]
    weights: tuple[Array, ...]
    cap: Array

    @property
    def finite(self) -> bool:
        arrays = (*self.factors, *self.weights, self.cap)
        return all(bool(np.isfinite(array).all()) for array in arrays)


def lower_bound(program: UnitProgram, multipliers: Multipliers) -> float:
    """Return what the multipliers prove once repaired, in squared error; 0 where that is nothing.
    Negative weights are clipped. What sum_a K_a*(N_a) exceeds H + diag(w) by is paid for: noise
    within the cap is D^1/2 Q D^1/2, D = diag(cap), tr Q <= n, so an excess E costs at most
    n lambda_max(D^1/2 E D^1/2)."""
    if not multipliers.finite:
        return 0.0
    prices = np.maximum(multipliers.cap, 0.0)
    paying = list(_paying(program, multipliers))
    gained = sum(gain for *_, gain in paying)
    seen_by = [seen for seen, *_ in paying]
    used = used_by(seen_by, [factor for _, factor, *_ in paying], size=program.size)
    paid = float(program.cap @ prices)
    best = max(scale * gained - paid - _excess(program, scale * used, prices) for scale in SCALES)
    rounding = ROUNDING * settings.rank_tolerance(program.size) * (gained + paid)
    return max(0.0, best - rounding)


def prices(program: UnitProgram, multipliers: Multipliers, *, size: int) -> Array:
    """Elasticity of the bound to the budget of every node, shape (n,), before all observers."""
    found, bound = np.zeros(size), lower_bound(program, multipliers)
    if bound > 0:
        for seen, _, share, gain in _paying(program, multipliers):
            np.add.at(found, list(seen.victims), gain / bound * share / share.sum())
    return found


def _paying(
    program: UnitProgram, multipliers: Multipliers
) -> Iterator[tuple[ObservedNoise, Array, Array, float]]:
    """Observers with a price on some gradient, F, v (the largest being 1) and what they gain.
    Others gain nothing, whatever their N_a."""
    parts = zip(program.observers, multipliers.factors, multipliers.weights, strict=True)
    for seen, factor, weights in parts:
        v = np.maximum(weights, 0.0)
        if v.max(initial=0.0) > 0:
            share = v / v.max()
            trace = _linalg.nuclear_norm(factor @ seen.signals * np.sqrt(share))
            yield seen, factor, share, trace**2 / float(share.sum())


def _excess(program: UnitProgram, used: Array, prices: Array) -> float:
    """Bound <used - H - diag(w), R> over all noise R within the cap."""
    root = np.sqrt(program.cap)
    scale = np.multiply.outer(root, root)
    largest = float(_linalg.eigenvalues((used - program.gram - np.diag(prices)) * scale)[-1])
    terms = float(program.cap @ np.diagonal(used + program.gram + np.diag(prices)))
    rounding = ROUNDING * settings.rank_tolerance(program.size) * terms
    return program.size * max(0.0, largest + rounding)


def judge(program: ObserverProgram, covariance: Array, *, bound: float) -> Certificate:
    """Certify a covariance by the account of every observer."""
    return Certificate(
        objective=float(np.sum(program.gram * covariance)),
        lower_bound=bound,
        sensitivity_squared=program.worst(covariance)[0],
        variance_ratio=float((np.diagonal(covariance) / program.cap).max()),
        theorem=(SEEN if models_are_seen(program.observers, program.horizon) else FIXED).number,
    )


# --- multipliers as they are stored ---------------------------------------------------------------


def arrays_of(
    program: UnitProgram, multipliers: Multipliers, *, coalitions: Array | None = None
) -> dict[str, Array]:
    """Return multipliers as they are stored: ``observer_ranks``, the number of rows of every F_a;
    ``observer_factors``, the rows F_a B_a, one number a node; ``observer_weights``, v_a;
    ``dual_cap``, w. Of some of very many coalitions ``dual_coalitions`` are the nodes, shape
    (k, size), and rows have only the nodes that one of them hears, ascending."""
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


def proved(program: ObserverProgram, arrays: Arrays) -> tuple[ObserverProgram, Multipliers]:
    """Return the multipliers of :func:`arrays_of`, and the program against those who have some:
    where that is not all coalitions, it asks for less, and a bound of it holds for all."""
    if "dual_coalitions" in arrays:
        program = program.among(_coalitions(program, arrays["dual_coalitions"]))
    elif len(arrays["observer_ranks"]) != len(program.observers) and program.pooled:
        expected = f"rows of {len(program.observers)} observers, or their dual_coalitions"
        _refuse("observer_ranks", expected, arrays["observer_ranks"])
    return program, multipliers_of(program.normalized, arrays)


def _coalitions(program: ObserverProgram, stored: Array) -> Array:
    """Coalitions of the problem by their nodes, shape (k, size)."""
    known = program.observers
    expected = "different nodes of those that may look, as many in every row as they pool"
    some = stored.ndim == 2 and len(stored) > 0
    if not (isinstance(known, Coalitions) and some and stored.shape[1] == known.size):
        _refuse("dual_coalitions", expected, stored)
    ordered = np.sort(stored, axis=1)
    if not np.isin(stored, known.nodes).all() or (np.diff(ordered, axis=1) == 0).any():
        _refuse("dual_coalitions", expected, stored)
    return stored.astype(np.intp)


def multipliers_of(program: UnitProgram, arrays: Arrays) -> Multipliers:
    """Return the multipliers of :func:`arrays_of`: what of the rows is in the row space of B_a."""
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
    """A turn of F for what is stored, and the turn back: B_a, or its columns that are not zero,
    (m, k n), and its transpose; or, of a run, what messages are of what each adds, and the inverse.
    """
    if seen.run is not None:
        turn = seen.run.of_new(seen.heard)
        return turn, np.asarray(np.linalg.inv(turn))
    flat = np.asarray(np.concatenate(list(seen.local if local else seen.responses), axis=1))
    return flat, flat.T


def _refuse(name: str, expected: str, array: Array) -> NoReturn:
    raise InputError(f"design file.{name}", expected=expected, got=f"shape {array.shape}")
