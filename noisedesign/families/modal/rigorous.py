"""Noise of modes with every rounding accounted for: cov(z), of all pairs of node and step, from the
very numbers that determine it."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import (
    EPS,
    Enclosure,
    Interval,
    exactly,
    gram,
    inner,
    product,
    products_up,
    residual,
    row_norms,
    up,
)
from noisedesign.families.kronecker.rigorous import all_coordinates
from noisedesign.program import rigorous
from noisedesign.program.noise import ModalStrategy
from noisedesign.program.space_time import SpaceTimeProgram


def judge(program: SpaceTimeProgram, form: ModalStrategy) -> rigorous.Judged:
    """tr(H cov(z)) and the squared sensitivities of all nodes over their budgets.

    Raises:
        NotProvedError: too many pairs of node and step; C_m or M not proved invertible.
    """
    full = all_coordinates(program)
    h = exactly(full.gram) if full.exact_factor is None else gram(full.exact_factor)
    noise = covariance(form)
    objective = inner(noise, h.mid)
    spare = 0.0 if h.exact else products_up(noise.largest, h.rad)
    dual = _inverse(form.modes)
    worst = 0.0
    for node, budget in enumerate(program.budget):
        seen = _of_node(form, dual, node)
        found = rigorous.sensitivity_above(seen, program.participation, limit=float(budget))
        worst = max(worst, rigorous.ratio_above(np.array([found]), np.array([budget])))
    return rigorous.Judged(
        objective=Interval(objective.lower - spare, objective.upper + spare),
        sensitivity_squared=worst,
    )


def covariance(form: ModalStrategy) -> Enclosure:
    """cov(z), shape (nT, nT), in time-major order."""
    size = form.horizon
    mid, known, spread = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
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
    """M^-1 = Y (M Y)^-1, with |M^-1 - Y| at most rows of Y times ||I - M Y|| / (1 - ||I - M Y||).

    Raises:
        NotProvedError: M is not proved invertible.
    """
    try:
        y = np.asarray(np.linalg.inv(modes), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise rigorous.NotProvedError("M is not invertible") from None
    error = residual(exactly(np.eye(len(modes))), modes, y).norm()
    if not error < 1:
        raise rigorous.NotProvedError("M is not proved invertible")
    room = up(row_norms(y) * error / (1 - error), 6)
    return Enclosure(y, np.asarray(np.broadcast_to(room[:, None], y.shape)))


def _of_node(form: ModalStrategy, dual: Enclosure, node: int) -> Enclosure:
    """What the messages of a node are a strategy of: rows [M^-1]_mu C_m diag(1 / d_u) of every m,
    shape (nT, T)."""
    steps, scales = form.steps, form.scales[node]
    scaled = form.strategies / scales
    mid = (dual.mid[:, node, None, None] * scaled).reshape(-1, steps)
    spread = np.abs(dual.rad[:, node, None, None] * scaled).reshape(-1, steps)
    return Enclosure(mid, np.asarray(up(spread * (1 + 2 * EPS) + 2 * EPS * np.abs(mid), 4)))
