"""Audit against insiders: nodes that pool the seeds they hold, and take off what those make.

Noise is drawn seed by seed, as nodes in the field would. The coalition sees all messages, draws
again the noise of its own seeds (of no others: there is a generator for each) and subtracts it from
the messages of every node. What hides the others is the noise of seeds that none of it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.program.noise import streams
from noisedesign.tasks.simulation.audit import (
    SPACE_STEPS,
    UNHIDDEN,
    Attack,
    AuditReport,
    Progress,
    run_audit,
)
from noisedesign.tasks.simulation.estimates import CONFIDENCE


def audit_coalition(
    *,
    mixing: Any,
    plan: SeedPlan,
    coalition: Sequence[int],
    claimed_mu: float,
    budget: Any = None,
    noise_stddev: float = 1.0,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit of spatial noise from shared seeds: the worst node outside a coalition.

    Args:
        mixing: W, shape (n, n); may be singular.
        plan: who holds which seed; R is its ``covariance()``.
        coalition: distinct nodes that pool their seeds, fewer than n; none is an eavesdropper.
        claimed_mu, budget, noise_stddev: as for :func:`noisedesign.tasks.simulation.audit_space`,
            with the squared sensitivity of R_A, of the seeds that the coalition does not hold.
        runs: runs in each world, at least 30.
        seed: the same seed gives the same report.
        confidence: see :class:`noisedesign.tasks.simulation.AuditReport`.
        progress: called with (runs done, runs in all) over both worlds.

    Raises:
        InputError: a matrix that is not finite, float64 and square, sizes that do not match; no
            such coalition; a node that the coalition sees without noise; claimed_mu, budget or
            noise_stddev <= 0, runs < 30.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    n = len(w)
    if plan.nodes != n:
        raise InputError("plan", expected=f"seeds of {n} nodes, as mixing", got=f"{plan.nodes}")
    sigma = _checks.real(noise_stddev, field="noise_stddev", low=0)
    tau = np.ones(n)
    if budget is not None:
        tau = _checks.positive_vector(budget, field="budget", length=n)
    inside = _checked(coalition, n)
    outside = np.setdiff1d(np.arange(n), inside)
    precision = _hidden_precision(plan, inside, outside)
    worst = int((np.diagonal(precision) / tau[outside]).argmax())
    node = int(outside[worst])
    gradients = np.zeros((SPACE_STEPS, 1))
    gradients[-1] = 1 / math.sqrt(tau[node])
    seen = np.zeros((n, 1))
    seen[outside, 0] = precision[:, worst]  # of its own members the coalition knows all
    attack = Attack(
        mixing=w,
        node=node,
        seen=slice(None),
        sigma=sigma,
        gradients=gradients,
        weights=gradients[:, None] * seen / sigma**2,
    )
    held = [k for k, s in enumerate(plan.seeds) if set(s.members) & set(inside)]

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return _of_seeds(plan, range(len(plan.seeds)), columns, sequence)

    def learned(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return _of_seeds(plan, held, columns, sequence)

    return run_audit(
        attack,
        noise,
        learned=learned,
        floats_per_run=6 * n,
        claimed_mu=claimed_mu,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
        steps=(),
    )


def worst_coalition(plan: SeedPlan, *, size: int, budget: Any = None) -> tuple[int, ...]:
    """The ``size`` nodes whose seeds, once pooled, leave some other node least hidden.

    All coalitions are tried. One before which a node has no noise left is the worst there is.

    Args:
        budget: tau, squared sensitivity a node may show, scalar or shape (n,); 1 if None.

    Raises:
        InputError: size not in 0..n-1, budget <= 0.
    """
    n = plan.nodes
    if _checks.positive_int(size, field="size", minimum=0) >= n:
        raise InputError("size", expected=f"fewer than the {n} nodes", got=str(size))
    tau = np.ones(n)
    if budget is not None:
        tau = _checks.positive_vector(budget, field="budget", length=n)
    worst, found = -math.inf, tuple(range(size))
    for coalition in combinations(range(n), size):
        outside = np.setdiff1d(np.arange(n), coalition)
        try:
            precision = _hidden_precision(plan, coalition, outside)
        except InputError:
            return coalition
        shown = float((np.diagonal(precision) / tau[outside]).max())
        if shown > worst:
            worst, found = shown, coalition
    return found


def _checked(coalition: Sequence[int], nodes: int) -> tuple[int, ...]:
    field, inside = "coalition", []
    for node in coalition:
        inside.append(_checks.positive_int(node, field=field, minimum=0))
    if len(set(inside)) < len(inside) or max(inside, default=0) >= nodes or len(inside) == nodes:
        raise InputError(
            field,
            expected=f"distinct nodes out of 0..{nodes - 1}, not all of them",
            got=str(tuple(inside)),
        )
    return tuple(sorted(inside))


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
    raise InputError(
        "coalition",
        expected="noise of the others that it does not know, of positive definite covariance",
        got=f"{got} once nodes {coalition} pool their seeds",
        remedy=UNHIDDEN,
    )


def _of_seeds(
    plan: SeedPlan, chosen: Sequence[int], columns: int, root: np.random.SeedSequence
) -> Iterator[Array]:
    """Noise of the chosen seeds, shape (n, columns), step by step; others are not drawn."""
    for step in range(SPACE_STEPS):
        total = np.zeros((plan.nodes, columns))
        for k in chosen:
            sequence = streams.seed_sequence(root, k, step)
            drawn = np.random.Generator(np.random.Philox(sequence)).standard_normal(columns)
            members = list(plan.seeds[k].members)
            total[members] += np.multiply.outer(plan.seeds[k].coefficients, drawn)
        yield total
