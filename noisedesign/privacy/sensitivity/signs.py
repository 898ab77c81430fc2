"""Sign vectors: what scalar contributions of size one attain under a Gram matrix M.

max c^T M c over signs c is exact for scalars, and below what unit vectors attain. The two agree,
with the sum of absolute values, where M can be made nonnegative by flipping signs (the graph of its
entries is balanced, in the sense of Harary, 1953). Everything is squared.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
from scipy.sparse import csgraph

from noisedesign.base import settings
from noisedesign.base.checks import Array

MAX_STEPS = 20
"""Largest M whose sign vectors are all tried: a million of them, in a grid of 8 MB."""


def balancing_signs(m: Array | scipy.sparse.csr_array) -> Array:
    """Signs s with s_i s_j M_ij >= 0 for all i, j where there are any; else some; shape (k,).

    Entries that are rounding are not counted.
    """
    relative = settings.rank_tolerance(m.shape[0])
    if isinstance(m, np.ndarray):
        absolute = np.abs(m)
        return _spread(np.where(absolute > relative * absolute.max(), m, 0.0))
    return _coloured(m, relative * np.abs(m.data).max(initial=0.0))


def _spread(m: Array) -> Array:
    """Signs by spreading from one index over its neighbours, theirs, and so on."""
    s = np.zeros(len(m))
    while not s.all():
        pull = m @ s
        reached = (s == 0) & (pull != 0)
        if reached.any():
            s[reached] = np.sign(pull[reached])
        else:
            s[int((s == 0).argmax())] = 1.0
    return s


def _coloured(m: scipy.sparse.csr_array, floor: float) -> Array:
    """Signs from components of a graph, in one pass however long its paths are.

    In the graph of two copies i+ and i- of every index, in which positive entries join copies of
    equal sign and negative ones copies of unlike sign, the copies of i fall into two components if
    and only if M can be balanced around i.
    """
    entries = m.tocoo()
    k = m.shape[0]
    kept = np.abs(entries.data) > floor
    row, column, negative = entries.row[kept], entries.col[kept], entries.data[kept] < 0
    heads = np.concatenate([row, row + k])
    tails = np.concatenate([column + k * negative, column + k * ~negative])
    graph = scipy.sparse.coo_array((np.ones(len(heads)), (heads, tails)), shape=(2 * k, 2 * k))
    _, labels = csgraph.connected_components(graph, directed=False)
    return np.where(labels[:k] <= labels[k:], 1.0, -1.0)


def local(m: Array | scipy.sparse.csr_array) -> tuple[Array, Array]:
    """Signs c that no single flip improves, and M c; both of shape (k,)."""
    c = np.ones(m.shape[0])
    pull, diagonal = np.asarray(m @ c), m.diagonal()
    for _ in range(len(c)):
        gain = diagonal - c * pull  # a quarter of what flipping i adds to c^T M c
        worst = int(gain.argmax())
        if gain[worst] <= 0:
            break
        c[worst] = -c[worst]
        column = m[:, [worst]]
        column = column.toarray() if scipy.sparse.issparse(column) else column
        pull = pull + 2 * c[worst] * np.ravel(column)
    return c, pull


def best_signs(m: Array) -> float:
    """max c^T M c over all sign vectors, for M of at most ``MAX_STEPS`` rows.

    With c = (a, b) in halves, the value is a grid: one part of a, one of b, and 2 a^T M_ab b.
    """
    half = len(m) // 2
    a, b = _all_signs(half), _all_signs(len(m) - half)
    first = np.einsum("ni,ij,nj->n", a, m[:half, :half], a)
    second = np.einsum("ni,ij,nj->n", b, m[half:, half:], b)
    return float((first[:, None] + second + 2 * (a @ m[:half, half:] @ b.T)).max())


def _all_signs(size: int) -> Array:
    bits = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
