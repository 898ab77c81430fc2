"""Judging noise of modes: plain numpy, and no array of size nT.

With S = M^-T the messages of node u are moved by X_u = sum_m S_um^2 C_m^T C_m over d_us d_ut. For a
workload H = sum_j H_j x q_j q_j^T the error is the sum over j and m of
tr( H_j diag(b) (C_m^T C_m)^-1 diag(b) ), b_t = sum_u q_ju d_ut M_um."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.certify.certificate import Certificate
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import ModalStrategy
from noisedesign.privacy.sensitivity import EXACT, squared_sensitivity
from noisedesign.system.workloads import Workload


def error(workload: Workload, form: ModalStrategy) -> float:
    """tr(H cov(z)), squared noise, of a workload with modes."""
    modes = workload.modes
    assert modes is not None
    covariances = np.matmul(form.noisings, form.noisings.transpose(0, 2, 1))
    nodes, horizon = form.scales.shape
    # Steps of the same d are one product: of patterns there are far fewer than of steps.
    scales, which = np.unique(form.scales, axis=1, return_inverse=True)
    alike = [np.flatnonzero(which.ravel() == i) for i in range(scales.shape[1])]
    width, total = max(1, 4_000_000 // (nodes * horizon)), 0.0  # 32 MB at a time
    for start in range(0, nodes, width):
        some = range(start, min(start + width, nodes))
        workloads = np.array([factor.T @ factor for factor in map(modes.factor, some)])
        basis = modes.basis[:, some.start : some.stop]
        along = np.array([basis.T @ (form.modes * d[:, None]) for d in scales.T])
        of_steps = along[which.ravel()]
        for steps, own in zip(alike, along, strict=True):
            left = np.ascontiguousarray(workloads[:, steps].transpose(2, 0, 1))
            right = np.ascontiguousarray(covariances[:, steps].transpose(2, 1, 0))
            total += float(np.einsum("tjm,tjm->", left @ right, of_steps * own))
    return total


def grams(form: ModalStrategy) -> Array:
    """X_u / (d_us d_ut) of every node, shape (n, T, T)."""
    own = np.matmul(form.strategies.transpose(0, 2, 1), form.strategies)
    found = (np.square(form.dual_modes.T) @ own.reshape(len(own), -1)).reshape(own.shape)
    found /= form.scales[:, :, None]
    found /= form.scales[:, None, :]
    return np.asarray(found)


def judge_modal(program: SpaceTimeProgram, form: ModalStrategy, *, bound: float) -> Certificate:
    """Certificate of noise of modes at its own scale, allowing for the rounding of M^-1."""
    worst, kind = 0.0, EXACT
    for of_node, budget in zip(grams(form), program.budget, strict=True):
        if not np.isfinite(of_node).all():
            worst = float("inf")
            break
        found = squared_sensitivity((of_node + of_node.T) / 2, program.participation)
        ratio = found.squared / float(budget)
        if ratio > worst:
            worst, kind = ratio, found.kind
    return Certificate(
        objective=error(program.workload, form),
        lower_bound=bound,
        sensitivity_squared=worst * (1 + form.rounding),
        sensitivity_kind=kind,
    )
