"""The published algorithms as values: how models mix, and which noise is added where.

At step t node u sends m_u = x_u + g_u + N_u; then x <- W m (Mafalda-SGD, equation (6))."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular

from noisedesign.base import checks as _checks, memory, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.privacy.views.noise import (
    MessageNoise,
    NodeNoise,
    Noise,
    ServerNoise,
    SpaceTimeNoise,
)
from noisedesign.system.gossip import check_schedule


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Algorithm(Shown):
    """A linear decentralised learning algorithm (Mafalda-SGD, Definition 3).

    Args:
        name: what it is called in tables.
        mixing: W, shape (n, n), row stochastic, or column stochastic as in push-sum; W_uv is the
            weight node u gives to what comes from node v. Or a list of such matrices that come
            round: step t, counted from 0, has number t modulo their number.
        horizon: T, the number of gradient steps.
        noise: what is added, and who holds its seeds.
        rounds: K, gossip rounds after every gradient step.
        nodes: names of the nodes, in the order of the rows of W; default "0", "1", ...
        schedule: the list given as ``mixing``, shape (P, n, n); that is then their average.
        drawn: whether W is drawn afresh in every round, ``mixing`` being one of many: who does not
            see all then learns at most what a reader of all messages with the same knowledge does.

    Raises:
        InputError: W that is neither row nor column stochastic; T or K below 1; names that are not
            as many as nodes.

    Examples:
        >>> from noisedesign.privacy import views
        >>> algorithm = views.muffliato(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=10, rounds=3)
        >>> algorithm.horizon, algorithm.rounds, algorithm.nodes
        (10, 3, ('0', '1'))
    """

    name: str
    mixing: Array
    horizon: int
    noise: Noise
    rounds: int = 1
    nodes: tuple[str, ...] = ()
    schedule: Any = None
    drawn: bool = False

    def __post_init__(self) -> None:
        given = self.mixing if self.schedule is None else self.schedule
        mixing, schedule = check_schedule(given, stochastic="either", connected=False)
        object.__setattr__(self, "mixing", mixing)
        object.__setattr__(self, "schedule", schedule)
        _checks.positive_int(self.horizon, field="horizon")
        _checks.positive_int(self.rounds, field="algorithm.rounds")
        _checks.text(self.name, field="name")
        kinds = "noise as the algorithms of noisedesign.privacy.views have it"
        _checks.instance(self.noise, get_args(Noise), field="noise", expected=kinds)
        object.__setattr__(self, "nodes", _checks.node_names(self.nodes, count=len(mixing)))

    def named(self, name: str, *, nodes: tuple[str, ...] = ()) -> Algorithm:
        """The same algorithm under another name, with names for its nodes.

        Args:
            name: what it is called in tables.
            nodes: names of the nodes; none: those it has.

        Returns:
            A new algorithm.

        Raises:
            InputError: a name that is no text; names that are not as many as nodes.
        """
        given = _checks.listed(nodes, field="nodes", expected="a list of names")
        return replace(self, name=name, nodes=tuple(given) or self.nodes)

    @property
    def phases(self) -> Array:
        """W of every step, in turn, shape (P, n, n)."""
        return np.asarray(self.mixing[None] if self.schedule is None else self.schedule)

    def scaled(self, by: Any) -> Algorithm:
        """The same algorithm where every node multiplies all noise it adds by its own factor.

        Args:
            by: factors on the standard deviation, shape (n,), positive, not squared; a noise that
                two nodes share no longer cancels between them where they differ.

        Returns:
            A new algorithm.

        Raises:
            InputError: not one positive factor a node; noise that no node adds.
        """
        factors = _checks.positive_vector(by, field="noise_multiplier", length=len(self.mixing))
        return replace(self, noise=self.noise.scaled(factors))


def dp_d_sgd(*, mixing: Any, horizon: int) -> Algorithm:
    """DP-D-SGD: independent unit noise at every node and step.

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        horizon: T, steps.

    Returns:
        The algorithm, with noise of standard deviation 1.

    Raises:
        InputError: W is neither row nor column stochastic; horizon < 1.

    Examples:
        >>> from noisedesign.privacy import views
        >>> views.dp_d_sgd(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=12).noise.factor.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    w = _mixing(mixing)
    return Algorithm(name="dp-d-sgd", mixing=mixing, horizon=horizon, noise=_own_noise(len(w)))


def muffliato(*, mixing: Any, horizon: int, rounds: int) -> Algorithm:
    """Muffliato-SGD(K): as DP-D-SGD, with K gossip rounds a gradient step (Cyffers et al. 2022).

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        horizon: T, gradient steps.
        rounds: K, gossip rounds after each of them.

    Returns:
        The algorithm, with noise of standard deviation 1.

    Raises:
        InputError: W is neither row nor column stochastic; horizon or rounds < 1.

    Examples:
        >>> from noisedesign.privacy import views
        >>> views.muffliato(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=12, rounds=5).rounds
        5
    """
    w = _mixing(mixing)
    return Algorithm(
        name="muffliato", mixing=mixing, horizon=horizon, rounds=rounds, noise=_own_noise(len(w))
    )


def antipgd(*, mixing: Any, horizon: int, rounds: int = 1) -> Algorithm:
    """AntiPGD: every node takes back at a step the unit noise it drew for the one before.

    The strategy C is lower triangular with ones, not scaled (Mafalda-SGD, appendix A.3).

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        horizon: T, steps.
        rounds: K, gossip rounds a step.

    Returns:
        The algorithm.

    Raises:
        InputError: as :class:`Algorithm`; T too large for a T x T matrix on this machine.

    Examples:
        >>> from noisedesign.privacy import views
        >>> views.antipgd(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=2).noise.strategy.tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    horizon = _checks.positive_int(horizon, field="horizon")
    memory.require(memory.squares, horizon, field="horizon", of="steps")
    ones = np.tril(np.ones((horizon, horizon)))
    return mf_d_sgd(mixing=mixing, strategy=ones, rounds=rounds).named("antipgd")


def mf_d_sgd(*, mixing: Any, strategy: Any, rounds: int = 1) -> Algorithm:
    """MF-D-SGD: every node adds row t of C^-1 times white noise of its own at step t.

    Mafalda-SGD and D-MF are two choices of C (Mafalda-SGD, Algorithm 1).

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        strategy: C, shape (T, T), lower triangular and regular.
        rounds: K, gossip rounds after every gradient step.

    Returns:
        The algorithm, with white noise of standard deviation 1; its horizon is T.

    Raises:
        InputError: as :class:`Algorithm`; C is not square, not lower triangular or singular.

    Examples:
        >>> from noisedesign.privacy import views
        >>> C = [[1.0, 0.0], [0.5, 1.0]]
        >>> views.mf_d_sgd(mixing=[[0.5, 0.5], [0.5, 0.5]], strategy=C).horizon
        2
    """
    c = _strategy(strategy)
    noise = replace(_own_noise(len(_mixing(mixing))), strategy=c)
    return Algorithm(name="mf-d-sgd", mixing=mixing, horizon=len(c), rounds=rounds, noise=noise)


def _strategy(strategy: Any) -> Array:
    """C, shape (T, T), once it is causal and regular."""
    c = _checks.matrix(strategy, field="strategy", square=True)
    above = np.abs(np.triu(c, 1)).max(initial=0.0)
    if above > settings.SYMMETRY_TOLERANCE * np.abs(c).max():
        expected = "a lower triangular matrix, so that noise is causal"
        got = f"an entry {above:.3g} above the diagonal"
        raise InputError("strategy", expected=expected, got=got)
    if not np.abs(np.diagonal(c)).min() > settings.rank_tolerance(len(c)) * np.abs(c).max():
        got = f"a diagonal entry {np.abs(np.diagonal(c)).min():.3g}"
        raise InputError("strategy", expected="a regular matrix", got=got)
    return np.tril(c)


def whisper(*, mixing: Any, covariance: Any, horizon: int, rounds: int = 1) -> Algorithm:
    """Whisper D-SGD (CorN-DSGD): noise of covariance R across nodes, drawn afresh at every step.

    A trusted party makes the noise: a node knows the values it is given, not what they are made of.

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        covariance: R, shape (n, n), symmetric positive semidefinite, in squared noise.
        horizon: T, steps.
        rounds: K, gossip rounds a step.

    Returns:
        The algorithm.

    Raises:
        InputError: as :class:`Algorithm`; R that is no covariance of n nodes.

    Examples:
        >>> from noisedesign.privacy import views
        >>> W, R = [[0.5, 0.5], [0.5, 0.5]], [[4.0, 0.0], [0.0, 9.0]]
        >>> views.whisper(mixing=W, covariance=R, horizon=1).noise.factor.tolist()
        [[2.0, 0.0], [0.0, 3.0]]
    """
    w = _mixing(mixing)
    factor = _root(covariance, field="covariance", size=len(w))
    noise = NodeNoise(factor=factor, seeds=None)
    return Algorithm(name="whisper", mixing=mixing, horizon=horizon, rounds=rounds, noise=noise)


def decor(
    *, mixing: Any, horizon: int, node_variance: float, edge_variance: float, rounds: int = 1
) -> Algorithm:
    """DECOR: independent noise, and for every edge one noise that its ends add with opposite signs.

    R = node_variance I + edge_variance Laplacian (Allouah et al. 2024); both ends hold the seed.

    Args:
        mixing: W, shape (n, n), row or column stochastic; its edges are where it is not zero, at
            any step of a schedule.
        horizon: T, steps.
        node_variance: squared scale of every node's own noise.
        edge_variance: squared scale of every pairwise noise.
        rounds: K, gossip rounds a step; noise is added before the first of them.

    Returns:
        The algorithm.

    Raises:
        InputError: as :class:`Algorithm`; a variance that is negative or not finite.

    Examples:
        >>> from noisedesign.privacy import views
        >>> W = [[0.5, 0.5], [0.5, 0.5]]
        >>> decor = views.decor(mixing=W, horizon=1, node_variance=1.0, edge_variance=3.0)
        >>> (decor.noise.factor @ decor.noise.factor.T).round(4).tolist()
        [[4.0, -3.0], [-3.0, 4.0]]
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
    noise = NodeNoise(factor=factor, seeds=seeds)
    return Algorithm(name="decor", mixing=mixing, horizon=horizon, rounds=rounds, noise=noise)


def zip_dl(
    *,
    mixing: Any,
    horizon: int,
    variance: float = 1.0,
    neighbourhood: str = "closed",
    self_message: str = "unseen",
    rounds: int = 1,
) -> Algorithm:
    """Zip-DL: a different noise on every message, cancelling in the average of each sender.

    Messages of every gossip round have fresh noise; without it they would reveal sums of gradients.

    Args:
        mixing: W, shape (n, n), row stochastic.
        horizon: T, steps.
        variance: squared scale of the noise each message's noise is made of.
        neighbourhood: "closed" as published, or "open": a node keeps its own model without noise,
            and the weighted messages reveal it exactly to an eavesdropper.
        self_message: whether a reader of messages sees the one a node keeps for itself, which never
            travels; were it "seen", the weighted messages would again reveal the model exactly.
        rounds: K, gossip rounds a step.

    Returns:
        The algorithm.

    Raises:
        InputError: W is not row stochastic; horizon < 1; unknown words; a variance that is negative
            or not finite.

    Examples:
        >>> from noisedesign.privacy import views
        >>> views.zip_dl(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=1).noise.closed
        True
    """
    w, schedule = check_schedule(mixing, stochastic="row", connected=False)
    _checks.one_of(neighbourhood, field="algorithm.neighbourhood", allowed=("closed", "open"))
    _checks.one_of(self_message, field="algorithm.self_message", allowed=("unseen", "seen"))
    noise = MessageNoise(
        mixing=w,
        variance=_variance(variance, field="algorithm.variance"),
        closed=neighbourhood == "closed",
        self_seen=self_message == "seen",
        schedule=schedule,
    )
    return Algorithm(name="zip-dl", mixing=mixing, horizon=horizon, rounds=rounds, noise=noise)


def space_time(*, mixing: Any, covariance: Any, horizon: int, rounds: int = 1) -> Algorithm:
    """Noise of a trusted party with any covariance over nodes and steps.

    Args:
        mixing: W, shape (n, n), row or column stochastic.
        covariance: shape (n T, n T), in squared noise, rows in the order t * n + u.
        horizon: T, steps.
        rounds: K, gossip rounds a step.

    Returns:
        The algorithm.

    Raises:
        InputError: as :class:`Algorithm`; another matrix than a covariance of n T numbers.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy import views
        >>> noise = np.diag([1.0, 1.0, 4.0, 4.0])  # twice the noise at the second step
        >>> views.space_time(mixing=np.full((2, 2), 0.5), covariance=noise, horizon=2).horizon
        2
    """
    w = _mixing(mixing)
    horizon = _checks.positive_int(horizon, field="horizon")
    factor = _root(covariance, field="covariance", size=len(w) * horizon)
    noise = SpaceTimeNoise(factor=factor, count=len(w))
    return Algorithm(name="space-time", mixing=mixing, horizon=horizon, noise=noise, rounds=rounds)


def cdp(
    *, mixing: Any, horizon: int, server_noise: str, strategy: Any = None, rounds: int = 1
) -> Algorithm:
    """Central DP: a trusted server averages all models and adds noise to the average it releases.

    Every node goes on from what was released; readers of what nodes send to the server see it
    without noise. Papers state the noise of the average against the sigma of a node of DP-D-SGD: a
    reader of the average learns as much mu as one of its messages under ``sigma^2/n^2``, and
    1 / sqrt(n) of it under ``sigma^2/n``.

    Args:
        mixing: W, shape (n, n), of which only n matters.
        horizon: T, steps.
        server_noise: variance of the noise on the average, for sigma = 1: "sigma^2/n" or
            "sigma^2/n^2".
        strategy: C, shape (T, T), lower triangular and regular, where that noise is correlated over
            time; None: independent.
        rounds: of no effect: all nodes have the average.

    Returns:
        The algorithm.

    Raises:
        InputError: W is neither row nor column stochastic; horizon < 1; another ``server_noise``; C
            of another horizon, not lower triangular, or singular.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy import views
        >>> views.cdp(mixing=np.eye(4), horizon=1, server_noise="sigma^2/n").noise.stddev
        0.5
    """
    n = len(_mixing(mixing))
    variances = {"sigma^2/n": 1 / n, "sigma^2/n^2": 1 / n**2}
    _checks.one_of(server_noise, field="algorithm.server_noise", allowed=tuple(variances))
    horizon = _checks.positive_int(horizon, field="horizon")
    c = None if strategy is None else _strategy(strategy)
    if c is not None and len(c) != horizon:
        raise InputError("strategy", expected=f"shape {(horizon,) * 2}", got=f"shape {c.shape}")
    noise = ServerNoise(stddev=float(np.sqrt(variances[server_noise])), count=n, strategy=c)
    average = np.full((n, n), 1 / n)
    return Algorithm(name="cdp", mixing=average, horizon=horizon, rounds=rounds, noise=noise)


def _mixing(mixing: Any) -> Array:
    """W, or the average of a schedule, shape (n, n)."""
    return check_schedule(mixing, stochastic="either", connected=False)[0]


def _own_noise(count: int) -> NodeNoise:
    return NodeNoise(factor=np.eye(count), seeds=tuple(frozenset((i,)) for i in range(count)))


def _variance(value: Any, *, field: str) -> float:
    return _checks.nonnegative(value, field=field, expected="a variance >= 0")


def _root(covariance: Any, *, field: str, size: int) -> Array:
    """F with F F^T = covariance, of ``size`` numbers, without a column where that is rounding."""
    r = _checks.symmetric_matrix(covariance, field=field, tolerance=settings.SYMMETRY_TOLERANCE)
    if len(r) != size:
        raise InputError(field, expected=f"shape ({size}, {size})", got=f"shape {r.shape}")
    if r.diagonal().min() < 0:
        worst = int(r.diagonal().argmin())
        got = f"a variance {r[worst, worst]:.3g} at index {worst}"
        raise InputError(field, expected="a positive semidefinite matrix", got=got)
    deviation = np.sqrt(r.diagonal())
    units = np.where(deviation > 0, deviation, float(deviation.max()) or 1.0)
    correlation = r / units / units[:, None]
    rounding = 8 * settings.rank_tolerance(size)  # forming F F^T leaves up to twice the tolerance
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
        expected = "a positive semidefinite matrix"
        raise InputError(field, expected=expected, got=f"an eigenvalue {values[0]:.3g}")
    kept = values > rounding * max(float(values[-1]), 0.0)
    if not kept.any():
        return np.zeros((size, 1))
    return np.asarray(units[:, None] * vectors[:, kept] * np.sqrt(values[kept]))
