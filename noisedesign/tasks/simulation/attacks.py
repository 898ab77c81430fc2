"""Who watches what: the attacks of those that noise is designed against.

- everybody who reads all messages, in space and in time;
- insiders who read all messages, draw again the noise of the seeds they hold and subtract it;
- chosen observers, who see linear combinations of the messages and may know the noise of nodes.

Noise of shared seeds is drawn seed by seed, as nodes in the field would.

In time an audit looks for the worst gradient change that a participation pattern allows: vectors
v_i of norm 1 at its steps that maximise sum_ij X_ij <v_i, v_j>, X = C^T C, by block coordinate
ascent at a rank where local maxima are global but for exceptional X (Boumal, Voroninski and
Bandeira, 2016). Any ascent point is a real attack, so an audit stays valid where it stops short."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.forms import streams
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.answers import Answers
from noisedesign.tasks.simulation.audit import Attack, AuditReport, Draw, Drawn, audit

Source = Callable[[int, np.random.SeedSequence], Iterable[Array]]  # of columns, seed
SPACE_STEPS = 2  # the difference is at the last step, after a message that is subtracted

# --- readers of all messages ----------------------------------------------------------------------


def audit_space(*, mixing: Any, covariance: Any, budget: Any = None, **how: Any) -> AuditReport:
    """Audit of spatial noise of covariance R: one step, one changed gradient, the worst node."""
    # The change at u has norm 1 / sqrt(budget_u); W, of a step or of a schedule, may be singular.
    w = dynamics.mixings(mixing)
    n = w.shape[-1]
    root, tau = _root(covariance, n), _budgets(budget, n)
    try:
        precision = inverse_of_positive(np.asarray(covariance, dtype=np.float64))
    except np.linalg.LinAlgError:
        raise _unhidden("covariance", "a positive definite matrix", "a singular one") from None
    node = int((np.diagonal(precision) / tau).argmax())
    return audit_node(mixing=w, root=root, node=node, row=precision[node], budget=tau, **how)


def audit_node(
    *, mixing: Any, root: Any, node: int, row: Array, budget: Any = None, **how: Any
) -> AuditReport:
    """Audit a node's spatial noise F F^T known by products, with its ``row`` of the inverse."""
    everybody = np.arange(mixing.shape[-1])
    tau, draw = _budgets(budget, len(everybody)), _in_space(root, SPACE_STEPS)
    return audit(_changed(mixing, node=node, row=row, outside=everybody, tau=tau, draw=draw), **how)


def audit_time(
    *,
    noising_matrix: Any,
    mixing: Any = None,
    patterns: Any,
    draw: Source | None = None,
    **how: Any,
) -> AuditReport:
    """Audit of temporal noise, of the worst of ``patterns`` (patterns, k) and directions."""
    noising = streams.check_noising(noising_matrix)
    w = dynamics.mixings(mixing)
    n, chosen = w.shape[-1], check_patterns(patterns, horizon=len(noising))
    if not np.diag(noising).all():
        got = f"diagonal entry {int((np.diag(noising) == 0).argmax())} = 0"
        raise _unhidden("noising_matrix", "an invertible matrix", got)
    strategy = np.linalg.solve(noising, np.eye(len(noising)))
    precision = strategy.T @ strategy  # from the exported matrix and from nothing else
    steps, directions = worst_difference(precision, chosen)
    gradients = np.zeros((len(noising), directions.shape[1]))
    gradients[steps] = directions
    # Every node runs the same strategy with noise of its own, so any node is the worst one.
    weights = np.zeros((len(noising), n, directions.shape[1]))
    weights[:, 0] = precision @ gradients
    source: Source = draw or (
        lambda columns, seed: streams.time_noise_stream(
            noising, nodes=n, dimension=columns, seed=seed
        )
    )
    attack = Attack(
        mixing=w,
        node=0,
        gradients=gradients,
        weights=dynamics.message_weights(w, weights),
        draw=lambda columns, seed: ((noise, noise[:0]) for noise in source(columns, seed)),
        steps=tuple(steps.tolist()),
    )
    return audit(attack, **how)


def _unhidden(field: str, expected: str, got: str) -> InputError:
    seen = "Without noise in some direction a change there is seen with certainty: mu is infinite."
    return InputError(field, expected=expected, got=got, remedy=seen)


def _root(covariance: Any, nodes: int) -> Array:
    root = streams.covariance_root(covariance)
    if len(root) != nodes:
        expected = f"shape ({nodes}, {nodes}), as mixing"
        raise InputError("covariance", expected=expected, got=f"{root.shape}")
    return root


def _budgets(budget: Any, nodes: int) -> Array:
    tau = 1.0 if budget is None else budget
    return _checks.positive_vector(tau, field="budget", length=nodes)


def _in_space(root: Any, steps: int, known: Sequence[int] = ()) -> Draw:
    """Noise of a covariance, of which that of some nodes is ``known``."""

    def draw(columns: int, sequence: np.random.SeedSequence) -> Iterator[Drawn]:
        drawn = streams.space_noise(root, dimension=columns, steps=steps, root_seed=sequence)
        return ((noise, noise[list(known)]) for noise in drawn)

    return draw


def _changed(
    mixing: Any,
    *,
    node: int,
    row: Array,
    outside: NDArray[np.intp],
    tau: Array,
    draw: Draw,
    subtracted: bool = False,
) -> Attack:
    """A change of one node, weighed by its row of the precision of the nodes ``outside``."""
    gradients = np.zeros((SPACE_STEPS, 1))
    gradients[-1] = 1 / math.sqrt(tau[node])
    weights = np.zeros((SPACE_STEPS, mixing.shape[-1], 1))
    weights[-1, outside, 0] = gradients[-1] * row
    return Attack(
        mixing=mixing,
        node=node,
        gradients=gradients,
        weights=dynamics.message_weights(mixing, weights),
        draw=draw,
        known=-weights[:, :, 0] if subtracted else None,
    )


# --- insiders with seeds --------------------------------------------------------------------------


def audit_coalition(
    *, mixing: Any, plan: SeedPlan, coalition: Sequence[int], budget: Any = None, **how: Any
) -> AuditReport:
    """Audit of noise from shared seeds: the worst node outside a coalition that pools its seeds."""
    # What is claimed is for the covariance of the seeds that the coalition does not hold.
    w = dynamics.mixings(mixing)
    n = w.shape[-1]
    if plan.nodes != n:
        raise InputError("plan", expected=f"seeds of {n} nodes, as mixing", got=f"{plan.nodes}")
    tau, field = _budgets(budget, n), "coalition"
    inside = tuple(sorted(_checks.positive_int(u, field=field, minimum=0) for u in coalition))
    if len(set(inside)) < len(inside) or max(inside, default=0) >= n or len(inside) == n:
        expected = f"distinct nodes out of 0..{n - 1}, not all of them"
        raise InputError(field, expected=expected, got=str(inside))
    outside = np.setdiff1d(np.arange(n), inside)
    precision = _hidden_precision(plan, inside, outside)
    worst = int((np.diagonal(precision) / tau[outside]).argmax())
    attack = _changed(
        w,
        node=int(outside[worst]),
        row=precision[worst],
        outside=outside,
        tau=tau,
        draw=partial(_of_seeds, plan, inside),
        subtracted=True,
    )
    return audit(attack, **how)


def worst_coalition(plan: SeedPlan, *, size: int, budget: Any = None) -> tuple[int, ...]:
    """The ``size`` nodes, of all, whose pooled seeds leave some other node least hidden."""
    n = plan.nodes
    if _checks.positive_int(size, field="size", minimum=0) >= n:
        raise InputError("size", expected=f"fewer than the {n} nodes", got=str(size))
    tau = _budgets(budget, n)

    def shown(coalition: tuple[int, ...]) -> float:
        outside = np.setdiff1d(np.arange(n), coalition)
        try:
            precision = _hidden_precision(plan, coalition, outside)
        except InputError:
            return math.inf
        return float((np.diagonal(precision) / tau[outside]).max())

    return max(combinations(range(n), size), key=shown)


def _hidden_precision(
    plan: SeedPlan, coalition: tuple[int, ...], outside: NDArray[np.intp]
) -> Array:
    """R_A^-1 of the seeds that the coalition does not hold, between the nodes outside it."""
    kept = tuple(s for s in plan.seeds if not set(s.members) & set(coalition))
    left = SeedPlan(nodes=plan.nodes, seeds=kept).covariance()[np.ix_(outside, outside)]
    bare = np.flatnonzero(np.diagonal(left) == 0)
    try:
        if not bare.size:
            return inverse_of_positive(left)
    except np.linalg.LinAlgError:
        pass
    got = f"no noise left at node {outside[bare[0]]}" if bare.size else "a singular one"
    expected = "noise of the others that it does not know, of positive definite covariance"
    raise _unhidden("coalition", expected, f"{got} once nodes {coalition} pool their seeds")


def _of_seeds(
    plan: SeedPlan, coalition: tuple[int, ...], columns: int, root: np.random.SeedSequence
) -> Iterator[Drawn]:
    """Noise of all seeds, and of those that the coalition holds, each drawn by itself."""
    for step in range(SPACE_STEPS):
        total, held = np.zeros((2, plan.nodes, columns))
        for k, seed in enumerate(plan.seeds):
            sequence = streams.seed_sequence(root, k, step)
            drawn = np.random.Generator(np.random.Philox(sequence)).standard_normal(columns)
            members, noise = list(seed.members), np.multiply.outer(seed.coefficients, drawn)
            total[members] += noise
            if set(coalition) & set(seed.members):
                held[members] += noise
        yield total, held


# --- chosen observers -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Watcher:
    """The view of one observer of every step: ``readout`` @ messages, (m, n), and, as values, the
    noise of the nodes ``known``; ``inside`` are the nodes that look, which are no victims."""

    readout: Array
    known: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()


def audit_observers(
    *,
    mixing: Any,
    covariance: Any,
    watchers: Sequence[Watcher],
    horizon: int,
    budget: Any = None,
    changes: Any = None,
    responses: Answers | None = None,
    **how: Any,
) -> AuditReport:
    """Audit of spatial noise against observers of a run: the worst of them, node and step."""
    # Covariances come of unit noise run through the nodes' own recursion, answers included. Under
    # clips the statistic of unclipped ones is no longer the best, and still a valid attack.
    w = dynamics.mixings(mixing)
    n = w.shape[-1]
    root = _root(covariance, n)
    steps = _checks.positive_int(horizon, field="horizon")
    rows = budget if np.ndim(budget) == 2 else [budget] * len(watchers)
    if len(rows) != len(watchers):
        raise InputError("budget", expected=f"{len(watchers)} rows", got=f"{len(rows)}")
    taus = [_budgets(row, n) for row in rows]
    given = np.eye(steps) if changes is None else _checks.matrix(changes, field="changes")
    if given.shape[1] != steps:
        expected = f"{steps} columns, one per step"
        raise InputError("changes", expected=expected, got=f"shape {given.shape}")
    linear = None if responses is None else responses.linear
    units: Iterable[Array] = np.eye(steps * n).reshape(steps, n, steps * n)
    # Of a run on all updates, shape (T, n, T n), time-major.
    messages = np.stack([message for message, _ in dynamics.run(w, units, responses=linear)])
    looks = zip(watchers, taus, strict=True)
    found = [_of_watcher(watcher, w, messages, root, tau, given) for watcher, tau in looks]
    shown, attack = max(found, key=lambda item: item[0], default=(0.0, None))
    if attack is None or shown <= 0:
        raise InputError("watchers", expected="one that messages reach", got="none")
    return audit(replace(attack, responses=responses), **how)


def _of_watcher(
    watcher: Watcher, mixing: Array, messages: Array, root: Array, tau: Array, changes: Array
) -> tuple[float, Attack]:
    """Squared separation, at unit noise, of the change a watcher sees most of, and the attack."""
    steps, n = messages.shape[:2]
    seen = (watcher.readout @ messages).reshape(-1, steps * n)
    values = np.eye(steps * n).reshape(steps, n, -1)[:, list(watcher.known)].reshape(-1, steps * n)
    stacked = np.vstack([seen, values])
    half = (stacked.reshape(len(stacked), steps, n) @ root).reshape(len(stacked), -1)
    left, spread, _ = np.linalg.svd(half, full_matrices=False)
    kept = spread > settings.rank_tolerance(max(half.shape)) * spread.max(initial=0.0)
    whitening = left[:, kept].T / spread[kept, None]
    # By every pattern of changes of every node, shape (rows, patterns n).
    moved = np.einsum("rtu,kt->rku", seen.reshape(-1, steps, n), changes) / np.sqrt(tau)
    moved = np.vstack([moved.reshape(len(seen), -1), np.zeros((len(values), len(changes) * n))])
    victims = [c for c in range(moved.shape[1]) if c % n not in watcher.inside]
    bare = np.linalg.norm(moved - left[:, kept] @ (left[:, kept].T @ moved), axis=0)
    # Rounding leaves a share of sqrt(EPS) outside the span of the noise at most.
    if (bare[victims] > 1e-6 * np.linalg.norm(moved[:, victims], axis=0)).any():
        raise _unhidden("covariance", "noise in every direction that is seen", "none in one")
    told = whitening @ moved
    shown = np.square(told).sum(axis=0)
    column = victims[int(shown[victims].argmax())]
    pattern, node = divmod(column, n)
    gradients = changes[pattern][:, None] / math.sqrt(tau[node])
    weights = whitening.T @ told[:, column]
    attack = Attack(
        mixing=mixing,
        node=node,
        gradients=gradients,
        weights=(weights[: len(seen)].reshape(steps, -1) @ watcher.readout)[:, :, None],
        draw=_in_space(root, steps, watcher.known),
        known=weights[len(seen) :].reshape(steps, -1),
        steps=tuple(np.flatnonzero(changes[pattern]).tolist()),
    )
    return float(shown[column]), attack


def check_patterns(patterns: Any, *, horizon: int) -> NDArray[np.intp]:
    """Check integers of shape (patterns, k): distinct zero-based steps in each row."""
    array = np.asarray(patterns)
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        expected = "an integer array of shape (patterns, steps in each)"
        raise InputError("patterns", expected=expected, got=describe(array))
    if array.min() < 0 or array.max() >= horizon:
        expected = f"zero-based steps below the horizon {horizon}"
        got = f"steps from {array.min()} to {array.max()}"
        raise InputError("patterns", expected=expected, got=got)
    ordered = np.sort(array, axis=1)
    repeated = (np.diff(ordered, axis=1) == 0).any(axis=1)
    if repeated.any():
        row = int(repeated.argmax())
        expected = "distinct steps in every pattern"
        raise InputError("patterns", expected=expected, got=f"pattern {row}: {array[row].tolist()}")
    return array.astype(np.intp)


def worst_difference(gram: Array, patterns: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """Steps (k,) and changes v (k, rank) of largest squared effect under the Gram matrix X."""
    grams = gram[patterns[:, :, None], patterns[:, None, :]]
    count, k = patterns.shape
    rank = min(k, math.isqrt(2 * k) + 1)
    start = np.random.default_rng(0).standard_normal((count, k, rank))
    start /= np.linalg.norm(start, axis=2, keepdims=True)
    aligned = _ascend(grams, np.ones((count, k, 1)))
    spread = _ascend(grams, start)
    best, best_spread = _effects(grams, aligned), _effects(grams, spread)
    # Each rank is one more coordinate to simulate; any is as good where X is diagonal.
    if best_spread.max() > best.max() * (1 + 1e-9):
        worst = int(best_spread.argmax())
        left, values, _ = np.linalg.svd(spread[worst], full_matrices=False)
        used = values > settings.sqrt_eps() * values[0]
        return patterns[worst], np.asarray(left[:, used] * values[used])
    worst = int(best.argmax())
    return patterns[worst], aligned[worst]


def _effects(grams: Array, directions: Array) -> Array:
    """sum_ij X_ij <v_i, v_j> of every pattern, shape (patterns,)."""
    return np.asarray(((grams @ directions) * directions).sum(axis=(1, 2)))


def _ascend(grams: Array, start: Array) -> Array:
    """v_i <- the unit vector along sum_{j != i} X_ij v_j, step by step, all patterns at once."""
    directions, effects = start, _effects(grams, start)
    others = grams * (1 - np.eye(grams.shape[1]))
    for _ in range(500):  # tens suffice away from ties
        for i in range(grams.shape[1]):
            pull = (others[:, None, i] @ directions)[:, 0]
            length = np.linalg.norm(pull, axis=1, keepdims=True)
            moved = pull / np.where(length > 0, length, 1.0)
            directions[:, i] = np.where(length > 0, moved, directions[:, i])
        before, effects = effects, _effects(grams, directions)
        if (effects - before <= 1e-10 * effects).all():
            break
    return directions
