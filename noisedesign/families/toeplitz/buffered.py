"""Error times sensitivity of m buffers in O(m^3 log T) a pole of the workload, whatever T is.

C with c_0 = 1 and c_j = sum_i s_i theta_i^(j-1) has m states: x' = Theta x + 1 u, v = s^T x + u. So
has C^-1: u = v - s^T x. Behind it a pole l of the workload is one state more, z = l z_before + u,

    z_t = e^T M^t 1,    M = [[Theta - 1 s^T, 0], [-s^T, l]],    t = 0, 1, ...

and the total error of T steps, sum_t (T - t) z_t^2, is an entry of G_T, where

    F_N = sum_{t<N} M^t 1 1^T (M^t)^T,    G_N = F_1 + ... + F_N,
    F_2N = F_N + P F_N P^T,    G_2N = G_N + N F_N + P G_N P^T,    P = M^N.

All are sums of what is positive semidefinite. Of P what is kept is P - I, as powers of the slowest
buffers differ from one by little, and squaring would double the error of what it is taken of. The
gradient is the adjoint of that recursion. Between two participations the states of C decay freely,
so sensitivity is a sum of geometric ones; its gradient is by complex steps, exact to rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.special

from noisedesign.base.checks import Array
from noisedesign.system.participation import Participation
from noisedesign.system.workloads.toeplitz import PoleWorkload

STEP = 1e-100  # a complex step whose square is nothing beside 1


class _Sums(NamedTuple):
    """F_N, G_N and P - I, shape (poles, m + 1, m + 1)."""

    steps: int
    plain: Array
    summed: Array
    moved: Array


def _turned(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def _history(less: Array, start: Array, horizon: int) -> list[_Sums]:
    """The sums from N = 1 to N = ``horizon``, doubled or one more at a time; M = I + ``less``."""
    identity = np.eye(less.shape[-1])
    found = [_Sums(1, start, start, less)]
    for digit in f"{horizon:b}"[1:]:
        steps, plain, summed, moved = found[-1]
        power = identity + moved
        found.append(
            _Sums(
                2 * steps,
                plain + power @ plain @ _turned(power),
                summed + steps * plain + power @ summed @ _turned(power),
                2 * moved + moved @ moved,
            )
        )
        if digit == "1":
            steps, plain, summed, moved = found[-1]
            plain = start + (identity + less) @ plain @ _turned(identity + less)
            found.append(_Sums(steps + 1, plain, summed + plain, less + moved + less @ moved))
    return found


def _adjoint(history: list[_Sums], less: Array, wanted: Array) -> Array:
    """Gradient of <wanted, G_T> in M, where ``wanted`` is symmetric and ``start`` is constant."""
    identity = np.eye(less.shape[-1])
    once = identity + less
    of_plain, of_summed = np.zeros_like(less), np.broadcast_to(wanted, less.shape)
    of_power, result = np.zeros_like(less), np.zeros_like(less)
    for before, after in zip(history[-2::-1], history[:0:-1], strict=True):
        power = identity + before.moved
        if after.steps == before.steps + 1 and before.steps > 1:
            of_plain = of_plain + of_summed
            result += 2 * of_plain @ once @ before.plain + of_power @ _turned(power)
            of_power = _turned(once) @ of_power
            of_plain = _turned(once) @ of_plain @ once
            continue
        bent = of_plain @ power @ before.plain + of_summed @ power @ before.summed
        of_power = 2 * bent + of_power @ _turned(power) + _turned(power) @ of_power
        of_plain = of_plain + before.steps * of_summed + _turned(power) @ of_plain @ power
        of_summed = of_summed + _turned(power) @ of_summed @ power
    return result + of_power


def error_and_gradient(
    workload: PoleWorkload, scales: Array, losses: Array
) -> tuple[float, Array, Array]:
    """Total squared error of buffers, and its gradient in scales and losses 1 - theta."""
    poles, m = np.asarray(workload.poles), len(scales)
    less = np.zeros((len(poles), m + 1, m + 1))
    less[:, :, :m] = -scales
    less[:, np.arange(m), np.arange(m)] -= losses
    less[:, m, m] = poles - 1
    history = _history(less, np.ones_like(less), workload.horizon)
    weights = np.asarray(workload.weights)
    wanted = np.zeros_like(less)
    wanted[:, m, m] = weights
    of_less = _adjoint(history, less, wanted).sum(axis=0)
    error = float(weights @ history[-1].summed[:, m, m])
    return error, -of_less[:, :m].sum(axis=0), -np.diagonal(of_less)[:m]


def _squared_sensitivity(scales: Any, logs: Any, participation: Participation) -> Any:
    """Squared sensitivity from scales and log(theta), shape (..., m); complex where they are."""
    stride, count = participation.stride, participation.largest_size
    pairs = logs[..., :, None] + logs[..., None, :]
    products = scales[..., :, None] * scales[..., None, :]

    def quiet(steps: int) -> Any:
        """The form of free decay for so many steps."""
        return products * np.expm1(steps * pairs) / np.expm1(pairs)

    last = quiet(participation.horizon - 1 - (count - 1) * stride)
    between = quiet(stride - 1) if count > 1 else last
    state, squared = np.zeros_like(scales), 0
    for block in range(count):
        squared = squared + (1 + (scales * state).sum(axis=-1)) ** 2
        state = np.exp(logs) * state + 1
        form = last if block == count - 1 else between
        squared = squared + np.einsum("...i,...ij,...j->...", state, form, state)
        state = np.exp((stride - 1) * logs) * state
    return squared


def sensitivity_and_gradient(
    scales: Array, logs: Array, participation: Participation
) -> tuple[float, Array, Array]:
    """Squared norm of the sum of columns 0, b, 2b, ...; its gradient in scales and log(theta)."""
    m = len(scales)
    ahead = np.tile(np.concatenate([scales, logs]), (2 * m, 1)) + 1j * STEP * np.eye(2 * m)
    found = _squared_sensitivity(ahead[:, :m], ahead[:, m:], participation)
    gradient = found.imag / STEP
    return float(found[0].real), gradient[:m], gradient[m:]


def losses_and_logs(x: Array) -> tuple[Array, Array]:
    """Losses 1 - theta and log(theta) of logits of theta, neither with a cancellation."""
    return np.asarray(scipy.special.expit(-x)), np.asarray(-np.logaddexp(0.0, -x))
