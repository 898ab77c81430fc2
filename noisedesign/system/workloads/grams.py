"""Gram matrices H of an objective, in space, in time and in both.

Everything follows from the suffix Grams

    S_s = W^T (a_s Q_s + S_{s+1}) W,   S_{T+1} = 0,   shape (n, n),

the squared error that one unit of state entering at step s causes from there on: for s <= s' the
block of H that couples them is (W^(s'-s))^T S_s'. With a fresh W_t drawn at every step both stay
true in expectation, with E[W^T G W] and powers of E[W]: the factors are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads.objective import Objective


def space_gram(mixing: Any, *, objective: Objective, time_covariance: Any = None) -> Array:
    """H of noise that is correlated across nodes, shape (n, n).

    With noise covariance K x R over steps and nodes the expected squared error is tr(H R) for

        H = sum_ss' (F K F^T)_ss' sum_t a_t (W^(t-s+1))^T Q_t W^(t-s'+1).

    One step of ``all-iterates`` is W^T W (Whisper D-SGD, problem (10)), in expectation if W is
    random. Takes O(T n^3) time and O(n^2) memory where F K F^T is diagonal, as it is for the
    defaults; T^2 n^2 more time and O(T n^2) memory otherwise.

    Args:
        mixing: W, shape (n, n), symmetric or not, or a :class:`RandomMixing` of which every step
            draws its own.
        objective: what to measure, over which horizon.
        time_covariance: K, shape (T, T), squared noise: X^-1 of a temporal design; default
            identity, fresh noise at every step.

    Returns:
        H, symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: W is not a finite square float64 matrix; K is no covariance of T steps; weights
            of the objective are not for n nodes.
    """
    propagation = _propagation(mixing)
    horizon, factor = objective.horizon, objective.step_factor
    inputs = factor @ factor.T
    if time_covariance is not None:
        given = _covariance(time_covariance, field="time_covariance", size=horizon, each="step")
        inputs = factor @ given @ factor.T
    rows, columns = np.nonzero(inputs)
    reach = int(np.abs(rows - columns).max(initial=0))
    by_lag = np.zeros((reach + 1, propagation.nodes, propagation.nodes))
    for step, suffix in _suffix_grams(propagation, objective):
        for lag in range(min(reach, step) + 1):
            by_lag[lag] += inputs[step - lag, step] * suffix
    later = np.zeros_like(by_lag[0])
    for lag in range(reach, 0, -1):
        later = (later + by_lag[lag]) @ propagation.mean
    return _linalg.symmetrized(by_lag[0] + later + later.T)


def time_gram(mixing: Any, *, objective: Objective, node_covariance: Any = None) -> Array:
    """H of noise that is correlated across steps, every node by the same rule, shape (T, T).

    With noise covariance X^-1 x R over steps and nodes the expected squared error is
    tr(H X^-1) for H = F^T H' F,

        H'_ss' = sum_t a_t tr( R (W^(t-s+1))^T Q_t W^(t-s'+1) ).

    ``all-iterates`` with R = I is Mafalda-SGD, equation (10), as of
    :func:`closed_forms.decentralized_gram`. A fixed symmetric W takes O(T n^2 + T^2 n)
    time and O(n^2 + T^2 + T n) memory; another, or push-sum weights of every step, takes
    O(T n^3 + T^2 n^2) time and O(T n^2 + T^2) memory.

    Args:
        mixing: W, shape (n, n), symmetric or not, or a :class:`RandomMixing` of which every step
            draws its own.
        objective: what to measure, over which horizon.
        node_covariance: R, shape (n, n), squared noise; default identity, independent nodes.

    Returns:
        H, symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: as for :func:`space_gram`, with R in place of K.
    """
    propagation = _propagation(mixing)
    nodes = propagation.nodes
    covariance = np.eye(nodes)
    if node_covariance is not None:
        covariance = _covariance(node_covariance, field="node_covariance", size=nodes, each="node")
    if propagation.symmetric and objective.time_invariant:
        coupled = _coupled_by_eigenvalues(propagation.mean, objective, covariance)
    else:
        coupled = _coupled_by_suffixes(propagation, objective, covariance)
    gram = np.empty_like(coupled)
    for lag in range(objective.horizon):
        late = np.arange(lag, objective.horizon)
        gram[late, late - lag] = gram[late - lag, late] = coupled[lag, late]
    factor = objective.step_factor
    return _linalg.symmetrized(factor.T @ gram @ factor)


def space_time_gram(mixing: Any, *, objective: Objective) -> Array:
    """H of noise that is correlated across nodes and steps, shape (nT, nT).

    Coordinates are ordered time-major: node u at zero-based step t has index t n + u. With noise
    covariance Sigma the expected squared error is tr(H Sigma). Dense: O(T^2 n^3) time and
    O(T^2 n^2) memory.

    Args:
        mixing: W, shape (n, n), symmetric or not, or a :class:`RandomMixing` of which every step
            draws its own.
        objective: what to measure, over which horizon.

    Returns:
        H, symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: W is not a finite square float64 matrix; weights not for n nodes.
    """
    propagation = _propagation(mixing)
    horizon, n = objective.horizon, propagation.nodes
    blocks = np.empty((horizon, n, horizon, n))
    for step, suffix in _suffix_grams(propagation, objective):
        block = suffix
        for earlier in range(step, -1, -1):
            blocks[step, :, earlier] = block.T
            blocks[earlier, :, step] = block
            block = propagation.mean.T @ block
    factor = objective.step_factor
    if np.array_equal(factor, np.eye(horizon)):
        return blocks.reshape(horizon * n, horizon * n)
    mixed = np.einsum("sp,suvw,vq->puqw", factor, blocks, factor, optimize=True)
    return _linalg.symmetrized(mixed.reshape(horizon * n, horizon * n))


# --- routes -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Propagation:
    """E[W], shape (n, n), and the map G -> E[W^T G W]; ``symmetric`` is said of a fixed W only."""

    mean: Array
    expected: Callable[[Array], Array]
    symmetric: bool

    @property
    def nodes(self) -> int:
        return len(self.mean)


def _propagation(mixing: Any) -> _Propagation:
    if isinstance(mixing, RandomMixing):
        return _Propagation(mean=mixing.mean, expected=mixing.expected, symmetric=False)
    w = _checks.matrix(mixing, field="mixing", square=True)
    asymmetry = np.abs(w - w.T).max()
    return _Propagation(
        mean=w,
        expected=lambda gram: np.asarray(w.T @ gram @ w),
        symmetric=bool(asymmetry <= settings.SYMMETRY_TOLERANCE * np.abs(w).max()),
    )


def _suffix_grams(propagation: _Propagation, objective: Objective) -> Iterator[tuple[int, Array]]:
    """Zero-based steps and S_s, the last step first."""
    weights = objective.steps
    readout = objective.readout(nodes=propagation.nodes)
    suffix = np.zeros_like(readout)
    for step in range(objective.horizon - 1, -1, -1):
        if not objective.time_invariant:
            readout = objective.readout(nodes=propagation.nodes, step=step)
        suffix = _linalg.symmetrized(propagation.expected(weights[step] * readout + suffix))
        yield step, suffix


def _coupled_by_suffixes(
    propagation: _Propagation, objective: Objective, covariance: Array
) -> Array:
    """c_ls = tr( R (W^l)^T S_s ), shape (T, T): how H' couples step s to the one l before it."""
    horizon, size = objective.horizon, covariance.size
    powers, suffixes = np.empty((horizon, size)), np.empty((horizon, size))
    power = covariance
    for lag in range(horizon):
        powers[lag] = power.ravel()
        power = propagation.mean @ power
    for step, suffix in _suffix_grams(propagation, objective):
        suffixes[step] = suffix.ravel()
    return np.asarray(powers @ suffixes.T)


def _coupled_by_eigenvalues(w: Array, objective: Objective, covariance: Array) -> Array:
    """The same for symmetric W = V diag(lambda) V^T, where S_s has a recursion entry by entry."""
    values, vectors = np.linalg.eigh(_linalg.symmetrized(w))
    readout = objective.readout(nodes=len(w))
    terms = (vectors.T @ readout @ vectors) * (vectors.T @ covariance @ vectors)
    squares = np.multiply.outer(values, values)
    sums = np.empty((objective.horizon, len(w)))
    suffix = np.zeros_like(terms)
    for step in range(objective.horizon - 1, -1, -1):
        suffix = squares * (objective.steps[step] * terms + suffix)
        sums[step] = suffix.sum(axis=1)
    powers = np.vander(values, objective.horizon, increasing=True)
    return np.asarray((sums @ powers).T)


def _covariance(value: Any, *, field: str, size: int, each: str) -> Array:
    """A symmetric positive semidefinite matrix, one row per node or step."""
    matrix = _checks.symmetric_matrix(value, field=field, tolerance=settings.SYMMETRY_TOLERANCE)
    if len(matrix) != size:
        raise InputError(
            field, expected=f"shape ({size}, {size}), one row per {each}", got=f"{matrix.shape}"
        )
    values = _linalg.eigenvalues(matrix)
    if values[0] < -settings.GRAM_NEGATIVITY * max(values[-1], 0.0):
        raise InputError(
            field,
            expected="a positive semidefinite matrix",
            got=f"eigenvalues from {values[0]:.3g} to {values[-1]:.3g}",
        )
    return matrix
