"""Error times sensitivity of a C^-1 of p bands, O(m p) for the error of m poles whatever T is.

With d the column of C^-1 a pole l of the workload sees z_t = l z_(t-1) + d_t, and from step p on
nothing but decay: z_(p-1+k) = l^k z_(p-1). So the total error sum_t (T - t) z_t^2 is a sum of p
squares and one number a pole, which does not depend on d. All terms are positive.

The sum of the columns of C in which one record takes part is what the recursion by d makes of its
steps, and the gradient what the same recursion, run backwards, makes of that sum: O(p T)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noisedesign.base import power_series as series
from noisedesign.base.checks import Array
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.toeplitz import PoleWorkload

Form = Callable[[Array], tuple[float, Array]]  # d, shape (p,), to a number and its gradient


def error_and_gradient(workload: PoleWorkload, *, bands: int) -> Form:
    """Total squared error of columns d of p = ``bands`` <= T entries."""
    poles, weights = np.asarray(workload.poles), np.asarray(workload.weights)
    left = workload.horizon - bands
    ages = np.arange(1, left + 1)
    tails = np.array([np.square(pole**ages) @ (left + 1.0 - ages) for pole in poles])
    seen = np.multiply.outer(workload.horizon - np.arange(bands), weights)
    seen[-1] += weights * tails

    def form(d: Array) -> tuple[float, Array]:
        responses = np.empty((bands, len(poles)))
        state = np.zeros(len(poles))
        for t in range(bands):
            state = poles * state + d[t]
            responses[t] = state
        weighted = seen * responses
        error = float(np.sum(weighted * responses))
        gradient = np.empty(bands)
        state = np.zeros(len(poles))
        for t in reversed(range(bands)):
            state = poles * state + 2 * weighted[t]
            gradient[t] = state.sum()
        return error, gradient

    return form


def sensitivity_and_gradient(participation: Participation) -> Form:
    """The squared norm of the sum of columns 0, b, 2b, ..., the sensitivity if they fall."""
    stride, count = participation.stride, participation.largest_size
    steps = np.zeros(participation.horizon)
    steps[: count * stride : stride] = 1

    def form(d: Array) -> tuple[float, Array]:
        total = series.filtered(steps, by=d)
        back = series.filtered(total[::-1], by=d)[::-1]
        size = len(total)
        gradient = np.array([-2 * float(back[lag:] @ total[: size - lag]) for lag in range(len(d))])
        return float(total @ total), gradient

    return form
