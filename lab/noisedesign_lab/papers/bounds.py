"""Published bounds of gossip algorithms, as baselines for the exact accounts: functions of W and a
few numbers that compute what their sources claim. Not every claim holds: ``docs/errata.md`` lists
where theorems fail, and tests keep a counterexample to each. Network privacy is that of Muffliato
(Cyffers et al. 2022), corrected: it counts every gradient step, not single messages. Koskela and
Kulkarni tell the growth of the sensitivity of gossip averaging for messages
m^t = W m^(t-1) + g^t + N^t (section 4), and excess risk (Theorem 17), whose terms are a *scale*."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import eigenvalues
from noisedesign.privacy import views
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.system.graph import check_mixing
from noisedesign.system.participation import every_step

S = TypeVar("S", float, Array)


def renyi_divergence(squared_sensitivity: S, *, alpha: float) -> S:
    """Return the Renyi divergence alpha s / 2 of unit noise for a squared sensitivity s."""
    return _checks.real(alpha, field="alpha", low=1) / 2 * squared_sensitivity


def node(value: Any, *, field: str, nodes: int) -> int:
    """Index of a node."""
    index = _checks.positive_int(value, field=field, minimum=0)
    if index >= nodes:
        raise InputError(field, expected=f"a node in 0..{nodes - 1}", got=str(index))
    return index


def coalition(value: Any, *, field: str, nodes: int) -> tuple[int, ...]:
    """Return distinct nodes, at least one."""
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or len(value) == 0:
        raise InputError(field, expected="a list of nodes", got=_checks.describe(value))
    members = tuple(node(v, field=field, nodes=nodes) for v in value)
    if len(set(members)) < len(members):
        raise InputError(field, expected="distinct nodes", got=str(members))
    return members


def symmetric_mixing(mixing: Any, *, source: str) -> Array:
    """W, symmetric and row (hence doubly) stochastic, connected or not."""
    w = check_mixing(mixing, stochastic="row", connected=False)
    gap = np.abs(w - w.T)
    if gap.max() > settings.SYMMETRY_TOLERANCE:
        i, j = (int(k) for k in np.unravel_index(gap.argmax(), gap.shape))
        got = f"entry ({i}, {j}) = {w[i, j]:.6g} but ({j}, {i}) = {w[j, i]:.6g}"
        raise InputError("mixing", expected=f"a symmetric W, as {source} assumes", got=got)
    return w


def primitive_mixing(mixing: Any, *, source: str) -> Array:
    """Return W if some power of it is positive, which its pattern of zeros decides (Wielandt)."""
    w = symmetric_mixing(mixing, source=source)
    reached, exponent = w > 0, 1
    while exponent < (len(w) - 1) ** 2 + 1:
        reached = (reached.astype(np.float64) @ reached.astype(np.float64)) > 0
        exponent *= 2
    if not reached.all():
        i, j = (int(k) for k in np.argwhere(~reached)[0])
        expected = f"a primitive W, as {source} assumes"
        got = f"a W of which no power is positive at index ({i}, {j})"
        remedy = "Connect the graph; where it is bipartite, give some node a weight for itself."
        raise InputError("mixing", expected=expected, got=got, remedy=remedy)
    return w


Numerator = Literal["unsquared", "squared"]
NUMERATORS = get_args(Numerator)


def network_squared_sensitivity(
    *, mixing: Any, observer: int, horizon: int, rounds: int = 1, numerator: Numerator = "unsquared"
) -> Array:
    """Return what one observer is said to learn of every victim, squared, for gradients of norm 1.

    The published code takes (W^s)_wu over sum_x (W^s)_wx^2 of every node w that is listened to;
    ``squared`` takes its square, of other nodes. Neither is an upper bound (``docs/errata.md``)."""
    w = check_mixing(mixing, stochastic="row", connected=False)
    v = node(observer, field="observer", nodes=len(w))
    steps = _checks.positive_int(horizon, field="horizon")
    rounds = _checks.positive_int(rounds, field="rounds")
    _checks.one_of(numerator, field="numerator", allowed=NUMERATORS)
    heard = w[v] > 0
    heard[v] = numerator == "unsquared"
    rows = np.eye(len(w))[heard]
    total = np.zeros(len(w))
    for s in range(rounds * steps):
        signal = rows**2 if numerator == "squared" else rows
        total += (steps - s // rounds) * np.sum(
            signal / np.sum(rows**2, axis=1, keepdims=True), axis=0
        )
        rows = rows @ w
    total[v] = steps
    return np.minimum(total, steps)


def second_eigenvalue(*, mixing: Any) -> float:
    """Return rho = max(|lambda_2|, |lambda_n|) of a symmetric W; the spectral gap is 1 - rho."""
    w = symmetric_mixing(mixing, source="the definition of rho")
    return float(np.abs(eigenvalues(w - 1 / len(w))).max())


def theorem_15_squared_sensitivity(*, mixing: Any, observers: Sequence[int], horizon: int) -> float:
    """Return the claimed bound, also equation (5.4); it is no upper bound (``docs/errata.md``)."""
    w = primitive_mixing(mixing, source="Theorem 15")
    share = len(coalition(observers, field="observers", nodes=len(w))) / len(w)
    steps = _checks.positive_int(horizon, field="horizon")
    gap = 1 - second_eigenvalue(mixing=w)
    return float(share * steps + 2 / gap**2 * (share * steps) ** 0.5 + 2 / gap**4)


def per_step(
    mixing: Array, observer: Any, victims: Sequence[int], *, horizon: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield squared sensitivities under DP-D-SGD, per step, of every victim."""
    mechanism = views.view(views.dp_d_sgd(mixing=mixing, horizon=horizon), observer)
    for victim, seen in views.grams(mechanism, victims):
        gram = np.asarray(seen.gram)
        exact = squared_sensitivity(gram, every_step(horizon))
        yield (
            victim,
            {
                "constant": float(gram.sum()) / horizon,
                "exact": exact.squared / horizon,
                "kind": exact.kind,
                "spectral": spectral_upper_bound(gram=gram) / horizon,
            },
        )


def spectral_upper_bound(*, gram: Any) -> float:
    """Return T lambda_max(M), squared, plus rounding, for M of shape (T, T): see section 3.4."""
    m = _checks.symmetric_matrix(gram, field="gram", tolerance=settings.GRAM_NEGATIVITY)
    values = eigenvalues(m)
    rounding = settings.rank_tolerance(len(m)) * float(np.abs(values).max())
    return len(m) * (float(values[-1]) + rounding)


@dataclass(frozen=True, kw_only=True)
class UtilityScale:
    """The terms of Theorem 17 with every hidden constant and logarithm set to 1: a scale, no bound;
    ``noise_stddev`` (not squared) is that of equation (5.5), and certifies nothing."""

    noise_stddev: float
    squared_sensitivity_as_claimed: float
    central: float
    mixing: float
    transient: float
    heterogeneity: float
    start: float


def dwork_roth_stddev(*, sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the noise of equation (5.5), not squared (Dwork and Roth 2014, Theorem A.1)."""
    sensitivity = _checks.real(sensitivity, field="sensitivity", low=0)
    epsilon = _checks.real(epsilon, field="epsilon", low=0, high=1)
    delta = _checks.real(delta, field="delta", low=0, high=1)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def theorem_17(
    *,
    mixing: Any,
    horizon: int,
    dimension: int,
    epsilon: float,
    delta: float,
    smoothness: float,
    strong_convexity: float,
    heterogeneity_squared: float,
    start_distance_squared: float,
) -> UtilityScale:
    """Return the terms of Theorem 17, the constant c of its exponent taken as 1, and its noise."""
    w = primitive_mixing(mixing, source="Theorem 17")
    n, steps = len(w), _checks.positive_int(horizon, field="horizon")
    d = _checks.positive_int(dimension, field="dimension")
    L = _checks.real(smoothness, field="smoothness", low=0)
    mu = _checks.real(strong_convexity, field="strong_convexity", low=0)
    if mu > L:
        raise InputError("strong_convexity", expected=f"at most smoothness = {L:g}", got=f"{mu:g}")
    zeta2 = _checks.nonnegative(heterogeneity_squared, field="heterogeneity_squared")
    start2 = _checks.nonnegative(start_distance_squared, field="start_distance_squared")
    squared = theorem_15_squared_sensitivity(mixing=w, observers=(0,), horizon=steps)
    noise_stddev = dwork_roth_stddev(sensitivity=math.sqrt(squared), epsilon=epsilon, delta=delta)
    gap = 1 - second_eigenvalue(mixing=w)
    privacy = d * math.log(1 / delta) / epsilon**2
    return UtilityScale(
        noise_stddev=noise_stddev,
        squared_sensitivity_as_claimed=squared,
        central=privacy / (n**2 * mu),
        mixing=privacy / (n * mu) / (gap**2 * math.sqrt(steps)),
        transient=privacy / (n * mu) / (gap**4 * steps),
        heterogeneity=L * zeta2 / (mu * gap * steps) ** 2,
        start=L * start2 / gap * math.exp(-gap * mu / L * steps),
    )
