"""Views of gossip algorithms stacked as they are written down, for instances of a few nodes.

Nothing here imports the library. Rows are observations, columns the gradients (A) or the noise (B),
time-major: step t, node u is column t n + u.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]

RANK = 1e-9
"""Singular values below this share of the largest are rounding; the others here are above 1e-6."""


class View(NamedTuple):
    """Observations A G + B Z, Z white."""

    signal: Array
    noise: Array

    def gram(self, columns: Sequence[int]) -> Array:
        """A_u^T (B B^T)^+ A_u; every column has to lie in the range of B."""
        a = self.signal[:, list(columns)]
        inverse = np.linalg.pinv(self.noise, rcond=RANK)
        np.testing.assert_allclose(self.noise @ (inverse @ a), a, atol=1e-7)
        return (inverse @ a).T @ (inverse @ a)

    def victim(self, u: int, *, nodes: int, horizon: int) -> Array:
        """Gram matrix of node u over all steps, shape (T, T)."""
        return self.gram([t * nodes + u for t in range(horizon)])


def messages(w: Array, *, horizon: int, rounds: int = 1) -> Array:
    """Coefficients of all messages, round by round, on g_u^t + N_u^t: shape (K T n, T n)."""
    n = len(w)
    blocks, current = [], np.zeros((n, horizon * n))
    for r in range(rounds * horizon):
        current = w @ current
        if r % rounds == 0:
            current[:, r // rounds * n + np.arange(n)] += np.eye(n)
        blocks.append(current.copy())
    return np.vstack(blocks)


def seen_by(
    w: Array, nodes: Iterable[int], *, horizon: int, rounds: int = 1, known: Iterable[int] = ()
) -> View:
    """All messages of ``nodes``, seen by someone who knows the noise of ``known``."""
    n, chosen, told = len(w), list(nodes), set(known)
    stacked = messages(w, horizon=horizon, rounds=rounds)
    rows = [r * n + v for r in range(rounds * horizon) for v in chosen]
    hidden = [c for c in range(horizon * n) if c % n not in told]
    return View(stacked[rows], stacked[np.ix_(rows, hidden)])


def neighbour(w: Array, v: int, *, horizon: int, rounds: int = 1, own_noise: bool = True) -> View:
    """Node v: the messages it receives and its own, with or without its own noise."""
    heard = [u for u in range(len(w)) if w[v, u] > 0 or u == v]
    known = (v,) if own_noise else ()
    return seen_by(w, heard, horizon=horizon, rounds=rounds, known=known)


def system_matrix(w: Array, observers: Sequence[int], *, horizon: int) -> Array:
    """H_T of Koskela and Kulkarni, equation (3.2), from powers of W."""
    s = np.eye(len(w))[list(observers)]
    powers = [s @ np.linalg.matrix_power(w, k) for k in range(horizon)]
    zero = np.zeros_like(s)
    return np.block(
        [[powers[t - k] if k <= t else zero for k in range(horizon)] for t in range(horizon)]
    )


# --- Zip-DL ---------------------------------------------------------------------------------------


def zip_dl_coupling(w: Array) -> Array:
    """C-hat of Zip-DL, equation (7), entry by entry: Z = C-hat Y, index a n + v, (n^2, n^2)."""
    n = len(w)
    c = np.zeros((n * n, n * n))
    for a in range(n):
        near = [v for v in range(n) if w[v, a] != 0]
        for v in near:
            for j in near:
                share = w[a, j] / (len(near) * w[a, v])
                c[a * n + v, a * n + j] = (len(near) - 1) / len(near) if j == v else -share
    return c


def zip_dl_virtual(w: Array) -> tuple[Array, Array]:
    """M-hat and W-hat of Zip-DL, equation (8)."""
    n = len(w)
    exchange = np.zeros((n * n, n * n))
    for i in range(n):
        for j in range(n):
            exchange[n * i + j, n * j + i] = w[i, j]
    return scipy.linalg.block_diag(*[np.ones((n, n))] * n), exchange


def zip_dl_received(w: Array, v: int, *, horizon: int, averaging: bool) -> View:
    """What node v hears of the others, its own noise known.

    ``averaging``: the signal is the initial models (n columns); otherwise the gradients.
    """
    n, c = len(w), zip_dl_coupling(w)
    signals = n if averaging else n * horizon
    width = signals + horizon * n * n
    model = np.zeros((n, width))
    if averaging:
        model[:, :n] = np.eye(n)
    rows = []
    for t in range(horizon):
        half = model.copy()
        if not averaging:
            half[:, t * n + np.arange(n)] += np.eye(n)
        sent = np.zeros((n, n, width))
        for a in range(n):
            for b in range(n):
                sent[a, b] = half[a]
                draws = signals + t * n * n
                sent[a, b, draws : draws + n * n] += c[a * n + b]
        rows += [sent[a, v] for a in range(n) if a != v and w[v, a] != 0]
        model = np.einsum("ba,abk->bk", w, sent)
    stacked = np.array(rows)
    hidden = [k for k in range(signals, width) if (k - signals) // n % n != v]
    return View(stacked[:, :signals], stacked[:, hidden])
