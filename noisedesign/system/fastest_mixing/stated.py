"""The fastest mixing as the weights of a problem: proved to be, on every link, found again.

A solver's last digits are its own, and the fastest W need not be unique. So the weights of a
problem that was solved are those stored with its design, as long as they still prove to be
fastest: W is judged by the bound, which any solver's multipliers prove, and not by its entries.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.fastest_mixing.bound import mixing_norm
from noisedesign.system.fastest_mixing.fastest import fastest_mixing
from noisedesign.system.graph import mixing_matrix

NORM_TOLERANCE = 1e-6
"""How far ||W - J||_2 of a W that counts as fastest may be above a proved bound. Interior points
leave 1e-9 to 1e-7 on graphs of up to a hundred nodes; no run of D-SGD notices the tolerance."""

LINKED = 1e-8
"""Share of Metropolis-Hastings weights mixed into the fastest. Weights that are zero but for a
solver's last digits would otherwise decide who is whose neighbour; a hundredth of the tolerance
is the most it costs."""


def stated_fastest_mixing(graph: nx.Graph, *, known: Array | None = None) -> Array:
    """W, shape (n, n), symmetric and doubly stochastic, positive on exactly the links of ``graph``.

    Of all such W none has ||W - J||_2 (not squared) more than ``NORM_TOLERANCE`` below.

    Args:
        graph: connected, simple, undirected; rows of W follow ``graph.nodes``.
        known: a W that is returned as it is if all of this is true of it.

    Raises:
        InputError: see :func:`fastest_mixing.fastest_mixing`; naming ``graph.weights``
            where what the solver found is not proved to be that near the fastest.
    """
    plain = mixing_matrix(graph)
    found = fastest_mixing(graph)
    allowed = found.lower_bound + NORM_TOLERANCE
    if known is not None and _stochastic_on(plain, known) and mixing_norm(known) <= allowed:
        return known
    mixing = (1 - LINKED) * found.mixing + LINKED * plain
    excess = mixing_norm(mixing) - found.lower_bound
    if not excess <= NORM_TOLERANCE:
        raise InputError(
            "graph.weights",
            expected=f"a graph whose fastest mixing is found to {NORM_TOLERANCE:g}",
            got=f"one that is only proved to be within {excess:.2g} of it",
            remedy='Store a W of your own as a .npy file, and name it by graph.kind = "matrix".',
        )
    return mixing


def _stochastic_on(links: Array, mixing: Array) -> bool:
    """Whether W is symmetric, nonnegative and stochastic, with the links of another W."""
    if mixing.shape != links.shape or not np.isfinite(mixing).all():
        return False
    off = ~np.eye(len(links), dtype=bool)
    return bool(
        np.array_equal(mixing, mixing.T)
        and mixing.min() >= 0
        and np.array_equal(mixing[off] > 0, links[off] > 0)
        and np.abs(mixing.sum(axis=1) - 1).max() <= settings.STOCHASTIC_TOLERANCE
    )
