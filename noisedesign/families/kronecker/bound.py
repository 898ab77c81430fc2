"""Judging Kronecker designs of any size: plain numpy, independent of every solver.

The bound is on all space-time designs, and forms nothing of size nT. Its multipliers are
P x diag(v), with P those of a time design (blocks P_j, constant diagonal p_j) and v >= 0 one weight
a node. For a workload with modes, A = sum_j A_j x q_j q_j^T up to an orthogonal factor,

    optimum  >=  || diag(v)^1/2 Q diag(c) ||_*^2 / ( <budget, v> sum_j p_j ),   c_j = ||A_j
    P^1/2||_*,

by sum_j Z_j x q_j s_j^T, Z_j the polar factor of A_j P^1/2, of any orthonormal s_j: it is exact
where all nodes look alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.certify import certificate
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.program import DualPoint
from noisedesign.families.amplified.bound import leveled, relief
from noisedesign.families.family import Arrays
from noisedesign.families.kronecker.program import KroneckerProgram
from noisedesign.families.space_time import MAX_COORDINATES, SpaceTimeProgram
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.system.participation import FixedEpoch


@dataclass(frozen=True, kw_only=True, eq=False)
class Witness:
    """The proof of a lower bound: ``blocks`` P, shape (b, k, k), and ``weights`` v, shape (n,)."""

    blocks: Array
    weights: Array

    @classmethod
    def uniform(cls, program: SpaceTimeProgram) -> Witness:
        """The witness whose bound is exact for independent noise."""
        k, b = program.participation.epochs, program.participation.separation
        return cls(blocks=np.tile(np.eye(k), (b, 1, 1)), weights=1 / program.budget)

    @classmethod
    def of(cls, program: SpaceTimeProgram, arrays: Arrays) -> Witness:
        """The witness that a design file keeps, or that of independent noise."""
        if not {"dual_blocks", "dual_weights"} <= set(arrays):
            return cls.uniform(program)
        return cls(blocks=arrays["dual_blocks"], weights=arrays["dual_weights"])

    def arrays(self) -> Arrays:
        return {"dual_blocks": self.blocks, "dual_weights": self.weights}


def lower_bound(program: SpaceTimeProgram, witness: Witness) -> float:
    """A lower bound on tr(H cov(z)) of every design, squared noise, once repaired, or 0."""
    largest = float(np.abs(witness.blocks).max()), float(witness.weights.max())
    if not (0 < largest[0] < np.inf and 0 < largest[1] < np.inf):
        return 0.0
    workload, modes = program.workload, program.workload.modes
    coordinates = workload.nodes * workload.horizon
    if modes is None and coordinates > MAX_COORDINATES:
        return 0.0
    if modes is None:
        return certificate.lower_bound(program.full_program(), full_dual(witness))
    # Both scales are free, and at an extreme one sums would overflow.
    time_program = program.time_program(np.eye(workload.horizon))
    scaled = DualPoint(blocks=witness.blocks / largest[0])
    blocks = certificate.repaired_dual(time_program, scaled).blocks
    weights = np.maximum(witness.weights / largest[1], 0.0)
    per_mode = mode_traces(program, blocks)
    trace = _linalg.nuclear_norm(np.sqrt(weights)[:, None] * (modes.basis * per_mode))
    price = float(program.budget @ weights) * float(blocks[:, 0, 0].sum())
    if not price > 0:  # what was positive in the blocks was below their negative entries
        return 0.0
    # The modes are orthonormal, and diagonalise the workload, up to rounding.
    rounding = 8 * settings.rank_tolerance(coordinates)
    bound = trace / price * trace * (1 - rounding)
    return bound if 0 < bound < np.inf else 0.0


def random_lower_bound(program: KroneckerProgram, witness: Witness) -> float:
    """The bound under random participation, eased by :func:`relief` as a design in time."""
    assert program.target is not None
    even = replace(witness, blocks=leveled(witness.blocks))
    prices = even.blocks[:, 0, 0]
    eased = relief(prices, participation=program.participation, target=program.target)
    return lower_bound(program, even) / eased


def mode_traces(program: SpaceTimeProgram, blocks: Array) -> Array:
    """c_j = ||A_j P^1/2||_* of every mode, rounded down, shape (n,)."""
    modes = program.workload.modes
    assert modes is not None
    root = root_on_patterns(blocks, program.participation)
    modes_of = range(len(modes.basis))
    return np.array([_linalg.nuclear_norm(modes.factor(j) @ root) for j in modes_of])


def full_dual(witness: Witness) -> DualPoint:
    """P x diag(v) as multipliers of the program on all nT coordinates, pattern by pattern."""
    blocks = witness.blocks[:, None] * witness.weights[:, None, None]
    return DualPoint(blocks=blocks.reshape(-1, *blocks.shape[2:]))


def root_on_patterns(blocks: Array, participation: FixedEpoch) -> Array:
    """B with B B^T = P, of blocks P, on the patterns."""
    values, vectors = np.linalg.eigh(blocks)
    return on_patterns(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :], participation)


def on_patterns(blocks: Array, participation: FixedEpoch) -> Array:
    """The matrix with the given blocks, shape (b, k, k), on the patterns and zeros elsewhere."""
    patterns = participation.patterns
    result = np.zeros((participation.horizon, participation.horizon))
    result[patterns[:, :, None], patterns[:, None, :]] = blocks
    return result


def judge_kronecker(
    program: SpaceTimeProgram,
    *,
    strategy: Array,
    covariance: Array,
    bound: float,
    in_time: Certificate | None = None,
) -> Certificate:
    """Certificate of noise of covariance (C^T C)^-1 x R, of C, shape (T, T), and R, shape (n, n),
    which move messages by sens(C)^2 [R^-1]_uu, squared; ``in_time`` is that of C alone under random
    participation."""
    noising = np.linalg.inv(strategy)
    gram = program.workload.space_gram(noising @ noising.T)
    judged = certificate.judge_covariance(program.space_program(gram), covariance, bound=bound)
    if in_time is None:
        found = squared_sensitivity(strategy.T @ strategy, program.participation)
        squared, kind, account = found.squared * judged.sensitivity_squared, found.kind, None
    else:  # that of an account is not squared with the noise: either factor keeps its own budget
        squared = max(in_time.sensitivity_squared, judged.sensitivity_squared)
        kind, account = in_time.sensitivity_kind, in_time.account
    return replace(judged, sensitivity_squared=squared, sensitivity_kind=kind, account=account)
