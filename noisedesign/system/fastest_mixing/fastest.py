"""The mixing under which models agree fastest."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor
from noisedesign.base.shown import Shown
from noisedesign.conic.cvxpy_model import run
from noisedesign.system.fastest_mixing.bound import mixing_norm, norm_lower_bound
from noisedesign.system.fastest_mixing.weights import EdgeWeights, affine
from noisedesign.system.graph import mixing_matrix


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FastestMixing(Shown):
    """W, shape (n, n), symmetric with rows summing to 1, and how near it is to the fastest.

    ``norm`` is ||W - J||_2, not squared, of this very matrix; no W allowed has one below
    ``lower_bound``.
    """

    mixing: Array
    norm: float
    lower_bound: float

    @property
    def spectral_gap(self) -> float:
        """1 - ||W - J||_2."""
        return 1 - self.norm


def fastest_mixing(
    graph: nx.Graph,
    *,
    nonnegative: bool = True,
    backend: str = "clarabel",
    monitor: Monitor | None = None,
) -> FastestMixing:
    """The symmetric W on a graph under which models agree fastest, and a bound that proves it.

    Args:
        graph: connected, simple, undirected; rows of W follow ``graph.nodes``.
        nonnegative: W >= 0, as designs need; otherwise any weights, on edges and self.
        backend: a conic solver: "clarabel", "scs", "mosek", ...
        monitor: tolerance and time limit of the solver; default its own.

    Raises:
        InputError: see :func:`graph.mixing_matrix`; a backend that cannot be used, or
            that came back with nothing.
    """
    weights = EdgeWeights(mixing_matrix(graph))
    n = weights.nodes
    if n == 1:
        return FastestMixing(mixing=np.ones((1, 1)), norm=0.0, lower_bound=0.0)
    import cvxpy as cp

    w, s = cp.Variable(len(weights.edges)), cp.Variable()
    distance, allowed = affine(weights, w, nonnegative=nonnegative)
    above, below = s * np.eye(n) - distance >> 0, s * np.eye(n) + distance >> 0
    problem = cp.Problem(cp.Minimize(s), [above, below, *allowed])
    if not run(problem, backend, monitor or Monitor(gap=settings.DEFAULT_GAP)):
        raise InputError(
            "backend",
            expected="a solver that finds the fastest mixing",
            got=f"{backend}, which reports {problem.status!r}",
            remedy='Allow more time, or try backend = "scs".',
        )
    mixing = weights.mixing(np.asarray(w.value), nonnegative=nonnegative)
    bound = norm_lower_bound(
        weights.edges,
        nodes=n,
        distance=above.dual_value - below.dual_value,
        self_weights=np.asarray(allowed[1].dual_value) if nonnegative else None,
    )
    return FastestMixing(mixing=mixing, norm=mixing_norm(mixing), lower_bound=bound)
