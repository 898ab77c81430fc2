"""What nodes learn of many steps, without the messages of all of them written out.

Messages that were heard before tell what they add to later ones. Of the message of j at step t is
left, once that is taken off, what entered at t - l of the noise z and the gradients g of all nodes:
row j of B_l (z + g). With N the nodes that are heard and h the others

    B_0 = I_N:,    B_l = W_Nh (W_hh)^(l-1) I_h:,   l = 1, 2, ...

So K_ts = sum_r B_(t-r) R B_(s-r)^T adds B_t R B_s^T to K_(t-1)(s-1), and K*(N) is the sum of
B_l^T M_lk B_k with M_lk = sum_r N_(l+r)(k+r): two products with all lags side by side, however many
steps there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array


def lags_of(mixing: Array, heard: NDArray[np.bool_], steps: int) -> Array:
    """B_0, B_1, ..., shape (steps, nodes heard, n)."""
    n, hidden = len(mixing), ~heard
    found = np.zeros((steps, int(heard.sum()), n))
    found[0] = np.eye(n)[heard]
    reach, within = mixing[np.ix_(heard, hidden)], mixing[np.ix_(hidden, hidden)]
    for lag in range(1, steps):
        found[lag][:, hidden] = reach
        reach = reach @ within
    return found


def unrolled(lags: Array) -> Array:
    """What the messages of all steps have of the noise of each, shape (T, T m, n)."""
    steps, m, n = lags.shape
    found = np.zeros((steps, steps, m, n))
    for step in range(steps):
        found[step, step:] = lags[: steps - step]
    return found.reshape(steps, steps * m, n)


def covariances(lags: Array, noise: Array) -> Array:
    """K(R) of observers with equally many rows; lags (g, T, m, n), result (g, T m, T m)."""
    g, steps, m, n = lags.shape
    flat = lags.reshape(g, steps * m, n)
    moved = (flat.reshape(-1, n) @ noise).reshape(flat.shape)
    found = (moved @ flat.swapaxes(1, 2)).reshape(g, steps, m, steps, m)
    for step in range(1, steps):
        found[:, step, :, 1:] += found[:, step - 1, :, :-1]
    found = found.reshape(g, steps * m, steps * m)
    return np.asarray((found + found.swapaxes(1, 2)) / 2)


def used(lags: Array, multipliers: Array) -> Array:
    """The sum over observers of K*(N); lags (g, T, m, n), N (g, T m, T m), result (n, n)."""
    g, steps, m, n = lags.shape
    summed = multipliers.reshape(g, steps, m, steps, m).copy()
    for step in range(steps - 2, -1, -1):
        summed[:, step, :, :-1] += summed[:, step + 1, :, 1:]
    flat = lags.reshape(g, steps * m, n)
    moved = summed.reshape(g, steps * m, steps * m) @ flat
    found = flat.reshape(-1, n).T @ moved.reshape(-1, n)
    return np.asarray((found + found.T) / 2)
