"""Noise of modes with every rounding accounted for, from the very numbers that determine it.

For the plain error of one symmetric W nothing of size nT is formed (docs/methods/proofs.md,
"Noise of modes"); for other errors cov(z) and H are formed.
Messages of node u see X_u = sum_m [M^-1]_mu^2 C_m^T C_m over d_u d_u^T."""

from __future__ import annotations

import math

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    TINY,
    Enclosure,
    Interval,
    U,
    column_norms,
    exactly,
    finer_product,
    product,
    residual,
    row_norms,
    up,
)
from noisedesign.certify import rigorous
from noisedesign.certify.rigorous import Noising
from noisedesign.families.kronecker.rigorous import all_coordinates, error_on_all
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import ModalStrategy
from noisedesign.system.participation import Steps


def judge(program: SpaceTimeProgram, form: ModalStrategy) -> rigorous.Judged:
    """tr(H cov(z)) and the squared sensitivities of all nodes over their budgets."""
    modes = program.workload.modes
    if modes is None or program.workload.one_mixing is None:
        objective = error_on_all(all_coordinates(program), covariance(form))
    else:
        objective = by_modes(program, form, modes.basis)
    return rigorous.Judged(
        objective=objective, sensitivity_squared=_sensitivity(program, form, _inverse(form.modes))
    )


def by_modes(program: SpaceTimeProgram, form: ModalStrategy, basis: Array) -> Interval:
    """The plain error of a symmetric W; ``basis`` is about that of its eigenvectors."""
    w = program.workload.one_mixing
    assert w is not None
    nodes, steps = form.nodes, form.steps
    seen = finer_product(exactly(np.ascontiguousarray(w)), exactly(basis))
    poles = np.clip(np.einsum("ij,ij->j", basis, seen.mid), -1.0, 1.0)
    about = basis * poles
    off = seen.minus(Enclosure(about, np.asarray(up(U * np.abs(about), 1)))).column_norms()
    gamma = residual(exactly(np.eye(nodes)), basis.T.copy(), basis).norm()
    if not gamma < 1:
        raise rigorous.NotProvedError("the modes are not proved independent")
    # W is symmetric up to rounding: ||W||^2 is at most its largest sum of a row times of a column.
    rows, columns = (float(up(np.abs(w).sum(axis=axis), nodes).max()) for axis in (1, 0))
    largest = float(up(math.sqrt(up(rows * columns, 1)), 1))
    away, apart = gamma, 0.0
    for k in range(steps):
        # Of poles that are not near 1 later powers tell nothing.
        rest = float(up(np.linalg.norm(off * np.abs(poles) ** k), nodes + 8))
        away = float(up(largest * away + rest * (1 + gamma), 4))
        apart = float(up(apart + away, 1))

    lengths = np.sqrt(np.square(form.scales.T) @ np.square(form.modes))  # of d_t M_m, (T, m)
    total, spread, error = 0.0, 0.0, 0.0
    for m, strategy in enumerate(form.strategies):
        noising = rigorous.noising_of(strategy)
        along = basis.T @ (form.modes[:, m, None] * form.scales)
        total += _squares(noising, along, poles)
        rows = up(row_norms(noising.matrix) * lengths[:, m], nodes + 4)
        spread += float(up(np.square(rows).sum(), steps + 2))
        error = max(error, noising.error)
    total = float(up(total, nodes))
    spread = float(up(math.sqrt(float(up(spread, nodes))) * (1 + gamma), 4))
    # b, whose q_j have norms of at most 1 + gamma; the steps, of what is rounded there.
    spare = steps * math.sqrt(nodes) * (nodes + 4) * U * spread
    spare += 4 * steps * U * (math.sqrt(total) + 2 * spread)
    spare = float(up(spare, 16)) + TINY * nodes**2 * steps**3
    factor = float(up(1 / (1 - error), 2))
    root = math.sqrt(1 + gamma)
    rest = float(up(apart * spread * factor, 4))
    high = float(up((math.sqrt(total) + spare) * factor * root + rest, 8))
    # Squares were summed with 3 (T + n) roundings at most.
    low = math.sqrt(total) * (1 - 4 * (steps + nodes) * EPS) - spare
    low = low * (1 - 4 * EPS) / (1 + error) * math.sqrt(1 - gamma) * (1 - 8 * EPS) - rest
    return Interval(max(low, 0.0) ** 2 * (1 - 4 * EPS), float(up(high * high, 2)))


def _squares(noising: Noising, along: Array, poles: Array) -> float:
    """Sum of y_t^2 of all modes of the workload, rounded up but for the rounding of y."""
    steps = len(noising.matrix)
    y, found = np.zeros_like(along), np.zeros(len(along))
    for t in range(steps):
        now = y[:, : t + 1]
        now += np.multiply.outer(along[:, t], noising.matrix[t, : t + 1])
        now *= poles[:, None]
        found += np.einsum("ij,ij->i", now, now)
    return float(up(up(found, 2 * steps).sum(), len(along)))


def _sensitivity(program: SpaceTimeProgram, form: ModalStrategy, dual: Enclosure) -> float:
    """The largest ratio of a node's squared sensitivity to its budget."""
    nodes, steps = form.nodes, form.steps
    lengths = np.array([column_norms(strategy) for strategy in form.strategies])
    own = np.array([strategy.T @ strategy for strategy in form.strategies])
    squares = np.square(dual.mid)
    sums = (squares.T @ own.reshape(nodes, -1)).reshape(own.shape)
    known = np.sqrt(up(squares.T @ np.square(lengths), nodes + 4))
    unknown = np.sqrt(up(np.square(dual.rad).T @ np.square(lengths), nodes + 4))
    worst = 0.0
    for node, budget in enumerate(program.budget):
        scales = form.scales[node]
        p, q = (up(x[node] / scales, 4) for x in (known, unknown))
        cross = np.multiply.outer(p, q)
        rad = ((nodes + steps + 12) * U) * np.multiply.outer(p, p)
        rad += cross + cross.T + np.multiply.outer(q, q)
        mid = sums[node] / np.multiply.outer(scales, scales)

        def columns(at: Steps, node: int = node) -> Enclosure:
            return _of_node(form, dual, node, at)

        own_gram, steps_of = Enclosure(mid, np.asarray(up(rad, 8))), program.participation
        found = rigorous.sensitivity_of_gram(
            own_gram, steps_of, columns=columns, limit=float(budget)
        )
        worst = max(worst, rigorous.ratio_above(np.array([found]), np.array([budget])))
    return worst


def covariance(form: ModalStrategy) -> Enclosure:
    """cov(z), shape (nT, nT), in time-major order."""
    mid, known, spread = (np.zeros((form.horizon, form.horizon)) for _ in range(3))
    for strategy, mode in zip(form.strategies, form.modes.T, strict=True):
        noising = rigorous.noising_of(strategy)
        # |C^-1 - D| = |D M|, M = (I - C D)^-1 (I - C D): rows of D times the norm of M.
        room = row_norms(noising.matrix) * noising.error * noising.factor
        rad = np.asarray(np.broadcast_to(up(room, 2)[:, None], noising.matrix.shape))
        inverse = Enclosure(noising.matrix, rad)
        in_time, shape = product(inverse, inverse.transposed()), np.multiply.outer(mode, mode)
        mid += np.kron(in_time.mid, shape)
        known += np.kron(in_time.largest, np.abs(shape))
        spread += np.kron(in_time.rad, np.abs(shape))
    scales = form.scales.T.ravel()
    both = np.multiply.outer(scales, scales)
    # Sums of n terms of two roundings each, two of the scales, and those of the sums themselves.
    rad = (spread + (form.nodes + 8) * EPS * known) * both
    return Enclosure(mid * both, np.asarray(up(rad, 4 * form.nodes + 16), dtype=np.float64))


def _inverse(modes: Array) -> Enclosure:
    """M^-1 = Y (M Y)^-1, off by at most rows of Y times ||I - M Y|| / (1 - ||I - M Y||)."""
    try:
        y = np.asarray(np.linalg.inv(modes), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise rigorous.NotProvedError("M is not invertible") from None
    error = residual(exactly(np.eye(len(modes))), modes, y).norm()
    if not error < 1:
        raise rigorous.NotProvedError("M is not proved invertible")
    room = up(row_norms(y) * error / (1 - error), 6)
    return Enclosure(y, np.asarray(np.broadcast_to(room[:, None], y.shape)))


def _of_node(form: ModalStrategy, dual: Enclosure, node: int, at: Steps) -> Enclosure:
    """The strategy that messages of a node show, its columns of some steps, shape (nT, steps)."""
    scaled = form.strategies[:, :, at] / form.scales[node, at]
    mid = (dual.mid[:, node, None, None] * scaled).reshape(-1, len(at))
    spread = np.abs(dual.rad[:, node, None, None] * scaled).reshape(-1, len(at))
    return Enclosure(mid, np.asarray(up(spread * (1 + 2 * EPS) + 2 * EPS * np.abs(mid), 4)))
