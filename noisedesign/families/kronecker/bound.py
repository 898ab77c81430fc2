"""Judging joint designs of any size: plain numpy, independent of every solver.

A lower bound on all space-time designs, Kronecker or not, that forms nothing of size nT. Any
multiplier U of the program bounds its optimum by ||A U^1/2||_*^2 / price(U) (nuclear norm; see
:mod:`noisedesign.program.program`). Take U = P x diag(v), with P the multiplier of a time design
(blocks P_j, constant diagonal p_j) and v >= 0 one weight a node: the block of pattern j of node u
is v_u P_j, so U is feasible, and its price is <budget, v> sum_j p_j. For a workload with modes,
A = sum_j A_j x q_j q_j^T up to an orthogonal factor on the left, the nuclear norm is at least its
inner product with any matrix of spectral norm one. With Z_j the polar factor of A_j P^1/2 and any
orthonormal s_1 .. s_n, sum_j Z_j x q_j s_j^T is one, and gives

    sum_j c_j q_j^T diag(v)^1/2 s_j,        c_j = ||A_j P^1/2||_*,

which is largest, over the s_j, at the nuclear norm of diag(v)^1/2 Q diag(c). So

    optimum  >=  || diag(v)^1/2 Q diag(c) ||_*^2 / ( <budget, v> sum_j p_j ).

In v this is the bound of a spatial design whose mixing matrix is Q diag(c) Q^T. It is exact where
all nodes look alike (v uniform, U = P x I by symmetry).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.program.certificate import Certificate, repaired_dual
from noisedesign.program.program import DualPoint, Program
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.workload import Modes, Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Witness:
    """What proves a lower bound: ``blocks`` P, shape (b, k, k), and ``weights`` v, shape (n,)."""

    blocks: Array
    weights: Array


def lower_bound(
    workload: Workload, *, participation: FixedEpoch, budget: Array, witness: Witness
) -> float:
    """The bound of this module: no design has a smaller tr(H X^-1), in squared noise.

    The witness is repaired until it is feasible, so the bound holds whoever made it; its rounding
    is subtracted. It is 0 where nothing is proved: a workload without modes, or a witness that is
    not finite or zero.

    Args:
        budget: squared sensitivity allowed to each node, shape (n,).
    """
    modes = workload.modes
    largest = float(np.abs(witness.blocks).max()), float(witness.weights.max())
    if modes is None or not (0 < largest[0] < np.inf and 0 < largest[1] < np.inf):
        return 0.0
    # Both scales are free, and at an extreme one sums would overflow.
    blocks = _repaired(witness.blocks / largest[0], participation)
    weights = np.maximum(witness.weights / largest[1], 0.0)
    per_mode = mode_traces(modes, blocks=blocks, participation=participation)
    trace = _linalg.nuclear_norm(np.sqrt(weights)[:, None] * (modes.basis * per_mode))
    price = float(budget @ weights) * float(blocks[:, 0, 0].sum())
    if not price > 0:  # what was positive in the blocks was below their negative entries
        return 0.0
    # The modes are orthonormal, and diagonalise the workload, up to rounding.
    rounding = 8 * settings.rank_tolerance(workload.nodes * workload.horizon)
    bound = trace / price * trace * (1 - rounding)
    return bound if 0 < bound < np.inf else 0.0


def _repaired(blocks: Array, participation: FixedEpoch) -> Array:
    """Feasible blocks of the time multiplier, by the repair every time design gets."""
    size = participation.horizon
    program = Program(
        gram=np.eye(size), participation=participation, budget=np.ones(participation.separation)
    )
    return repaired_dual(program, DualPoint(blocks=blocks)).blocks


def mode_traces(modes: Modes, *, blocks: Array, participation: FixedEpoch) -> Array:
    """c_j = ||A_j P^1/2||_* of every mode, rounded down, shape (n,)."""
    values, vectors = np.linalg.eigh(blocks)
    root = on_patterns(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], participation)
    modes_of = range(len(modes.basis))
    return np.array([_linalg.nuclear_norm(modes.factor(j) @ root) for j in modes_of])


def full_dual(witness: Witness) -> DualPoint:
    """P x diag(v) as multipliers of the program on all nT coordinates, pattern by pattern."""
    blocks = witness.blocks[:, None] * witness.weights[:, None, None]
    return DualPoint(blocks=blocks.reshape(-1, *blocks.shape[2:]))


def on_patterns(blocks: Array, participation: FixedEpoch) -> Array:
    """The matrix with the given blocks, shape (b, k, k), on the patterns and zeros elsewhere."""
    patterns = participation.patterns
    result = np.zeros((participation.horizon, participation.horizon))
    result[patterns[:, :, None], patterns[:, None, :]] = blocks
    return result


def judge_kronecker(
    workload: Workload,
    *,
    participation: FixedEpoch,
    budget: Array,
    strategy: Array,
    covariance: Array,
    bound: float,
    cap: Array | None = None,
) -> Certificate:
    """Certificate of noise with covariance (C^T C)^-1 x R.

    A unit gradient of node u moves the messages by sens(C)^2 [R^-1]_uu, squared.

    Args:
        strategy: C, shape (T, T), lower triangular.
        covariance: R, shape (n, n). What is no covariance has infinite sensitivity and
            objective.
        bound: a lower bound from :func:`lower_bound`.
        cap: cap on diag(R), shape (n,), or None.
    """
    noising = np.linalg.inv(strategy)
    sensitivity = squared_sensitivity(strategy.T @ strategy, participation)
    objective = worst = float("inf")
    with contextlib.suppress(InputError):  # no covariance
        objective = float(np.sum(workload.time_gram(covariance) * (noising @ noising.T)))
    tolerance = settings.rank_tolerance(len(covariance)) * np.abs(covariance).max()
    if np.abs(covariance - covariance.T).max() <= tolerance:
        try:
            precision = np.diagonal(_linalg.inverse_of_positive(covariance))
        except np.linalg.LinAlgError:
            pass
        else:
            worst = sensitivity.squared * float((precision / budget).max())
    ratio = None if cap is None else float((np.diagonal(covariance) / cap).max())
    return Certificate(
        objective=objective,
        lower_bound=bound,
        sensitivity_squared=worst,
        sensitivity_kind=sensitivity.kind,
        variance_ratio=ratio,
    )
