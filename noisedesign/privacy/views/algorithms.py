"""The published algorithms as values: how models mix, and which noise is added where.

Notation of every algorithm here: at step t node u adds its clipped gradient and its noise to its
model and sends the sum, m_u = x_u + g_u + N_u; then x <- W m (learning rate and signs dropped,
they change nothing an observer learns). All messages together are Mafalda-SGD, equation (6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular

from noisedesign.base import checks as _checks, memory, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.privacy.views.noise import MessageNoise, NodeNoise, Noise, SpaceTimeNoise
from noisedesign.system.graph import check_mixing

ROUNDINGS = 8
"""Multiple of the rounding of a decomposition below which an eigenvalue of a covariance is zero;
forming F F^T leaves up to twice that rounding."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Algorithm(Shown):
    """A linear decentralised learning algorithm (Mafalda-SGD, Definition 3).

    Attributes:
        name: what it is called in tables.
        mixing: W, shape (n, n), row stochastic, or column stochastic as in push-sum; W_uv is the
            weight node u gives to what comes from node v.
        horizon: T, the number of gradient steps.
        noise: what is added, and who holds its seeds.
        rounds: K, gossip rounds after every gradient step.
        nodes: names of the nodes, in the order of the rows of W.
    """

    name: str
    mixing: Array
    horizon: int
    noise: Noise
    rounds: int = 1
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        mixing = _mixing(self.mixing)
        object.__setattr__(self, "mixing", mixing)
        _checks.positive_int(self.horizon, field="horizon")
        _checks.positive_int(self.rounds, field="algorithm.rounds")
        _checks.text(self.name, field="name")
        object.__setattr__(self, "nodes", _checks.node_names(self.nodes, count=len(mixing)))

    def named(self, name: str, *, nodes: tuple[str, ...] = ()) -> Algorithm:
        """The same algorithm under another name, with names for its nodes."""
        given = _checks.listed(nodes, field="nodes", expected="a list of names")
        return replace(self, name=name, nodes=tuple(given) or self.nodes)


def dp_d_sgd(*, mixing: Any, horizon: int) -> Algorithm:
    """DP-D-SGD: independent unit noise at every node and step."""
    w = _mixing(mixing)
    return Algorithm(name="dp-d-sgd", mixing=w, horizon=horizon, noise=_own_noise(len(w)))


def muffliato(*, mixing: Any, horizon: int, rounds: int) -> Algorithm:
    """Muffliato-SGD(K): as DP-D-SGD, with K gossip rounds a gradient step (Cyffers et al. 2022)."""
    w = _mixing(mixing)
    return Algorithm(
        name="muffliato", mixing=w, horizon=horizon, rounds=rounds, noise=_own_noise(len(w))
    )


def antipgd(*, mixing: Any, horizon: int) -> Algorithm:
    """AntiPGD: every node takes back at a step the unit noise it drew for the one before.

    The strategy C is lower triangular with ones (Mafalda-SGD, appendix A.3); it is not scaled to
    unit sensitivity.
    """
    horizon = _checks.positive_int(horizon, field="horizon")
    memory.require(memory.squares, horizon, field="horizon", of="steps")
    return mf_d_sgd(mixing=mixing, strategy=np.tril(np.ones((horizon, horizon)))).named("antipgd")


def mf_d_sgd(*, mixing: Any, strategy: Any, rounds: int = 1) -> Algorithm:
    """MF-D-SGD: every node correlates its own noise over time by the same strategy C.

    Mafalda-SGD and D-MF are two choices of C, shape (T, T), lower triangular and regular: at step t
    a node adds row t of C^-1 times white noise (Mafalda-SGD, Algorithm 1).

    Raises:
        InputError: C is not square, not lower triangular or singular.
    """
    w = _mixing(mixing)
    c = _checks.matrix(strategy, field="strategy", square=True)
    above = np.abs(np.triu(c, 1)).max(initial=0.0)
    if above > settings.SYMMETRY_TOLERANCE * np.abs(c).max():
        raise InputError(
            "strategy",
            expected="a lower triangular matrix, so that noise is causal",
            got=f"an entry {above:.3g} above the diagonal",
        )
    if not np.abs(np.diagonal(c)).min() > settings.rank_tolerance(len(c)) * np.abs(c).max():
        raise InputError(
            "strategy",
            expected="a regular matrix",
            got=f"a diagonal entry {np.abs(np.diagonal(c)).min():.3g}",
        )
    noise = replace(_own_noise(len(w)), strategy=np.tril(c))
    return Algorithm(name="mf-d-sgd", mixing=w, horizon=len(c), rounds=rounds, noise=noise)


def whisper(*, mixing: Any, covariance: Any, horizon: int) -> Algorithm:
    """Whisper D-SGD: noise with covariance R across nodes, drawn afresh at every step.

    Somebody deals the noise: a node knows the values it is given, not what they are made of.

    Args:
        covariance: R, shape (n, n), symmetric positive semidefinite, in squared noise.

    Raises:
        InputError: R of another size, not symmetric or not positive semidefinite.
    """
    w = _mixing(mixing)
    factor = _root(covariance, field="covariance", size=len(w))
    return Algorithm(
        name="whisper", mixing=w, horizon=horizon, noise=NodeNoise(factor=factor, seeds=None)
    )


def decor(*, mixing: Any, horizon: int, node_variance: float, edge_variance: float) -> Algorithm:
    """DECOR: independent noise, and for every edge one noise that its ends add with opposite signs.

    R = node_variance I + edge_variance Laplacian (Allouah et al. 2024). Both ends of an edge hold
    its seed.

    Args:
        node_variance: squared scale of every node's own noise.
        edge_variance: squared scale of every pairwise noise.

    Raises:
        InputError: a variance that is negative or not finite.
    """
    w = _mixing(mixing)
    own = _variance(node_variance, field="algorithm.node_variance")
    shared = _variance(edge_variance, field="algorithm.edge_variance")
    edges = sorted({(min(i, j), max(i, j)) for i, j in np.argwhere(w != 0).tolist() if i != j})
    incidence = np.zeros((len(w), len(edges)))
    for column, (i, j) in enumerate(edges):
        incidence[[i, j], column] = 1.0, -1.0
    factor = np.hstack([np.sqrt(own) * np.eye(len(w)), np.sqrt(shared) * incidence])
    seeds = tuple(frozenset((i,)) for i in range(len(w))) + tuple(map(frozenset, edges))
    return Algorithm(
        name="decor", mixing=w, horizon=horizon, noise=NodeNoise(factor=factor, seeds=seeds)
    )


def zip_dl(
    *,
    mixing: Any,
    horizon: int,
    variance: float = 1.0,
    neighbourhood: str = "closed",
    self_message: str = "unseen",
) -> Algorithm:
    """Zip-DL: a different noise on every message, cancelling in the average of each sender.

    Args:
        variance: squared scale of the noise each message's noise is made of.
        neighbourhood: "closed" as published, or "open": a node keeps its own model without noise,
            and the weighted messages on the wire reveal it exactly.
        self_message: whether a reader of messages sees the one a node keeps for itself. It never
            travels; were it "seen", the weighted messages would again reveal the model exactly.

    Raises:
        InputError: unknown words; a variance that is negative or not finite.
    """
    w = check_mixing(mixing, stochastic="row", connected=False)
    _checks.one_of(neighbourhood, field="algorithm.neighbourhood", allowed=("closed", "open"))
    _checks.one_of(self_message, field="algorithm.self_message", allowed=("unseen", "seen"))
    noise = MessageNoise(
        mixing=w,
        variance=_variance(variance, field="algorithm.variance"),
        closed=neighbourhood == "closed",
        self_seen=self_message == "seen",
    )
    return Algorithm(name="zip-dl", mixing=w, horizon=horizon, noise=noise)


def space_time(*, mixing: Any, covariance: Any, horizon: int, rounds: int = 1) -> Algorithm:
    """Dealt noise with any covariance over nodes and steps.

    Args:
        covariance: shape (n T, n T), rows in the order t * n + u, symmetric positive semidefinite.

    Raises:
        InputError: a covariance of another size, not symmetric or not positive semidefinite.
    """
    w = _mixing(mixing)
    horizon = _checks.positive_int(horizon, field="horizon")
    factor = _root(covariance, field="covariance", size=len(w) * horizon)
    noise = SpaceTimeNoise(factor=factor, count=len(w))
    return Algorithm(name="space-time", mixing=w, horizon=horizon, noise=noise, rounds=rounds)


def _mixing(mixing: Any) -> Array:
    return check_mixing(mixing, stochastic="either", connected=False)


def _own_noise(count: int) -> NodeNoise:
    return NodeNoise(factor=np.eye(count), seeds=tuple(frozenset((i,)) for i in range(count)))


def _variance(value: Any, *, field: str) -> float:
    return _checks.nonnegative(value, field=field, expected="a variance >= 0")


def _root(covariance: Any, *, field: str, size: int) -> Array:
    """F with F F^T = covariance, once it is a covariance of ``size`` numbers.

    A direction whose variance is of the size of rounding carries no noise: F has no column for it,
    so that a singular covariance exposes what it does not hide. Whether a Cholesky factorization
    succeeds says nothing of that. Variances are compared in units of each number's own.
    """
    r = _checks.symmetric_matrix(covariance, field=field, tolerance=settings.SYMMETRY_TOLERANCE)
    if len(r) != size:
        raise InputError(field, expected=f"shape ({size}, {size})", got=f"shape {r.shape}")
    if r.diagonal().min() < 0:
        worst = int(r.diagonal().argmin())
        raise InputError(
            field,
            expected="a positive semidefinite matrix",
            got=f"a variance {r[worst, worst]:.3g} at index {worst}",
        )
    deviation = np.sqrt(r.diagonal())
    units = np.where(deviation > 0, deviation, float(deviation.max()) or 1.0)
    correlation = r / units / units[:, None]
    rounding = ROUNDINGS * settings.rank_tolerance(size)
    try:
        lower = np.linalg.cholesky(correlation)
        # The trace of the inverse is at least one over the smallest eigenvalue.
        inverse = solve_triangular(lower, np.eye(size), lower=True, check_finite=False)
        if np.square(inverse).sum() * rounding < 1:
            return np.asarray(units[:, None] * lower)
    except (np.linalg.LinAlgError, LinAlgError):
        pass
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < -settings.GRAM_NEGATIVITY * max(float(values[-1]), 0.0):
        raise InputError(
            field, expected="a positive semidefinite matrix", got=f"an eigenvalue {values[0]:.3g}"
        )
    kept = values > rounding * max(float(values[-1]), 0.0)
    if not kept.any():
        return np.zeros((size, 1))
    return np.asarray(units[:, None] * vectors[:, kept] * np.sqrt(values[kept]))
