"""The program against chosen observers as a conic model in cvxpy, in the units of a covariance.

Variances at an optimum spread from what the budgets ask to what the cap allows. Solvers lose the
digits of that ratio, unless the unknown is Q in R = S^1/2 Q S^1/2 with S a covariance that already
spreads alike, and what an observer sees is whitened by K_a(S):

    minimise <S^1/2 H S^1/2, Q>  subject to  [[K'_a(Q), G'_a], [G'_a^T, X_a]] >= 0,
    diag(X_a) <= 1,  diag(S^1/2 Q S^1/2) <= cap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.conic.cvxpy_model import run
from noisedesign.families.observers.bound import ObserverProgram, ObserverWitness

FLOOR = 1e-10
"""Least eigenvalue of the covariance that sets the units, relative to the largest: one that noise
does not reach at all would divide by zero, and it may be the next answer that reaches it."""


def solve(
    program: ObserverProgram, *, units: Array, backend: str, monitor: Monitor
) -> tuple[Array, ObserverWitness] | None:
    """R, shape (p, p), and multipliers, nearly feasible; None where the solver came back with none.

    Args:
        units: S, shape (p, p), positive semidefinite, in the squared noise of ``program``.

    Raises:
        InputError: a backend that is no installed conic solver.
    """
    import cvxpy as cp

    values, vectors = np.linalg.eigh(units)
    values = np.maximum(values, FLOOR * values[-1])
    root = _linalg.symmetrized((vectors * np.sqrt(values)) @ vectors.T)
    gram = root @ program.gram @ root
    error = float(np.trace(gram))
    relative = cp.Variable(gram.shape, symmetric=True)
    noise = root @ relative @ root
    within = cp.multiply(cp.diag(noise), 1 / program.cap) <= 1
    constraints, limits, whitenings = [relative >> 0, within], [], []
    for seen in program.observers:
        whitening = np.linalg.inv(np.linalg.cholesky(seen.covariance(root @ root)))
        signals = whitening @ seen.signals
        blocks = whitening @ seen.responses @ root
        told = cp.Variable((signals.shape[1],) * 2, symmetric=True)
        limit = cp.bmat([[_seen(blocks, relative), signals], [signals.T, told]]) >> 0
        constraints += [limit, cp.diag(told) <= 1]
        limits.append(limit)
        whitenings.append(whitening)
    cost = cp.sum(cp.multiply(_linalg.symmetrized(gram) / error, relative))
    if not run(cp.Problem(cp.Minimize(cost), constraints), backend, monitor):
        return None
    factors, weights = [], []
    for limit, whitening in zip(limits, whitenings, strict=True):
        multiplier = error * np.asarray(limit.dual_value)
        rows = len(whitening)
        values, vectors = np.linalg.eigh(multiplier[:rows, :rows])
        factors.append((np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T) @ whitening)
        weights.append(np.diagonal(multiplier)[rows:])
    prices = error * np.atleast_1d(np.asarray(within.dual_value)) / program.cap
    witness = ObserverWitness(factors=tuple(factors), weights=tuple(weights), cap=prices)
    return np.asarray(noise.value), witness


def _seen(blocks: Array, noise: Any) -> Any:
    """K(Q) of a cvxpy variable."""
    return sum(block @ noise @ block.T for block in blocks)
