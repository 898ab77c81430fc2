"""Lower bounds of the unrestricted optimum, at any horizon.

Every pattern of p steps satisfies sum of X_tt <= 1 over its steps, and patterns can be weighted to
cover all steps evenly, so tr X <= T / p and tr(H X^-1) >= (tr H^1/2)^2 p / T for every causal
strategy. For single participation that is within a few per cent of the optimum; for many it is
loose, and the native solver's bound the one to use where a T x T matrix can be afforded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks, linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.toeplitz import PoleWorkload, Workload

Steps = NDArray[np.intp]

# To this horizon tr H^1/2 comes from singular values (a fraction of a second); beyond it from the
# closed form for sums of poles, which gets sharper as the horizon grows.
DENSE_HORIZON = 512


def lower_bound_of_unrestricted_optimum(workload: Workload, participation: Participation) -> float:
    """A lower bound of tr(H (C^T C)^-1) over *all* C of unit squared sensitivity."""
    horizon = same_horizon(workload, participation)
    rounding = 1 - settings.rank_tolerance(horizon)
    return (root_trace_lower_bound(workload) * rounding) ** 2 * participation.even_size / horizon


def same_horizon(workload: Workload, participation: Participation) -> int:
    """T, where workload and participation agree on it; else an InputError."""
    if not callable(getattr(workload, "error_and_gradient", None)):
        expected = "a workload, as noisedesign.system.workloads.toeplitz makes one"
        raise InputError("workload", expected=expected, got=_checks.describe(workload))
    schemes = "FixedEpoch(...) or MinSeparation(...)"
    _checks.instance(participation, Participation, field="participation", expected=schemes)
    if workload.horizon != participation.horizon:
        expected = f"a horizon of {workload.horizon}, that of the workload"
        raise InputError("participation", expected=expected, got=str(participation.horizon))
    return workload.horizon


def root_trace_lower_bound(workload: Workload) -> float:
    """A lower bound of tr H^1/2; H^1/2 itself up to rounding where singular values are taken."""
    if isinstance(workload, PoleWorkload) and workload.horizon > DENSE_HORIZON:
        return closed_form_root_trace_lower_bound(workload)
    return _linalg.nuclear_norm(_linalg.gram_factor(workload.gram()))


def closed_form_root_trace_lower_bound(workload: PoleWorkload) -> float:
    """A lower bound of tr H^1/2 in O(T m^2); exact for poles in {0, 1}.

    A pole l contributes [(I - l S)(I - l S^T)]^-1 to H, S the shift. With P = S + S^T + e_1 e_1^T,
    whose eigenvalues are 2 cos((2 i - 1) pi / (2 T + 1)),

        (I - l S)(I - l S^T) = M + l (1 - l) e_1 e_1^T,    M = (1 + l^2) I - l P.

    All M commute. For l <= 0 the last term is not positive and leaving it out makes the
    contribution smaller; for l in (0, 1) it takes r r^T away from M^-1. Hence H + R >= D with D the
    weighted sum of the M^-1 and R that of the r r^T, and because the trace of the square root is
    monotone and subadditive (Rotfel'd), tr H^1/2 >= tr D^1/2 - tr R^1/2. The second term does not
    grow with T. Poles inside (0, 1) may also be left out altogether; the better bound is returned.
    """
    horizon = workload.horizon
    angles = (2 * np.arange(1, horizon + 1) - 1) * (np.pi / (2 * horizon + 1))
    everything, outer_only = np.zeros(horizon), np.zeros(horizon)
    for pole, weight in zip(workload.poles, workload.weights, strict=True):
        # 1 + l^2 - 2 l cos a, without its cancellation.
        trigonometric = np.sin(angles / 2) if pole > 0 else np.cos(angles / 2)
        inverse = weight / ((1 - abs(pole)) ** 2 + 4 * abs(pole) * trigonometric**2)
        everything += inverse
        if not 0 < pole < 1:
            outer_only += inverse
    inner = (workload.poles > 0) & (workload.poles < 1)
    correction = _nuclear_norm_upper_bound(
        workload.poles[inner], workload.weights[inner], horizon=horizon
    )
    return max(float(np.sqrt(everything).sum()) - correction, float(np.sqrt(outer_only).sum()))


def _nuclear_norm_upper_bound(poles: Array, weights: Array, *, horizon: int) -> float:
    """tr R^1/2 from above: the nuclear norm of r = sqrt(weight g / (1 - g y_0)) y, one a pole in
    (0, 1), with g = l (1 - l) and y_s = l^s (1 - l^(2 (T - s))) / (1 - l^2), the first column of
    [(I - l S)(I - l S^T)]^-1."""
    if not len(poles):
        return 0.0
    logs, spread = np.log(poles)[:, None], ((1 - poles) * (1 + poles))[:, None]

    def solution(steps: Steps) -> Array:
        return np.asarray(np.exp(steps * logs) * -np.expm1(2 * (horizon - steps) * logs) / spread)

    gap = poles * (1 - poles)
    gains = np.sqrt(weights * gap / (1 - gap * solution(np.zeros(1, dtype=np.intp))[:, 0]))
    inner_products = np.zeros((len(poles), len(poles)))
    # 32 MB, whatever the horizon and the number of poles are.
    block = max(1, 4_000_000 // len(poles))
    for start in range(0, horizon, block):
        vectors = gains[:, None] * solution(np.arange(start, min(start + block, horizon)))
        inner_products += vectors @ vectors.T
    values = np.linalg.eigvalsh(inner_products)
    # Sums and eigenvalues are known to this much; the root of each is taken from above.
    rounding = settings.rank_tolerance(horizon + len(values)) * max(values[-1], 0.0)
    return float(np.sqrt(np.maximum(values, 0.0) + rounding).sum())
