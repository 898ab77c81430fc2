"""Pairwise network privacy of Muffliato (Cyffers et al. 2022), corrected: the original sums the
divergences of single messages; the correction counts every gradient step, since the gradient of
step t is in all messages sent later."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.system.graph import check_mixing
from noisedesign_lab.papers import bounds

Numerator = Literal["unsquared", "squared"]
NUMERATORS = get_args(Numerator)


def squared_sensitivity(
    *, mixing: Any, observer: int, horizon: int, rounds: int = 1, numerator: Numerator = "unsquared"
) -> Array:
    """Return what one observer is said to learn of every victim, squared, for gradients of norm <=
    1.

    With K = ``rounds`` gossip rounds per gradient step, T = ``horizon`` steps, in all of which the
    victim takes part, and the weights W of the nodes w the observer v listens to, where T is what a
    reader of all messages learns,

        min(T, sum_{s < K T} (T - floor(s / K)) sum_w r(w, u, s)),

        unsquared:  r = (W^s)_wu / sum_x (W^s)_wx^2,    w = v or W_vw > 0   (published code)
        squared:    r = (W^s)_wu^2 / sum_x (W^s)_wx^2,  w != v and W_vw > 0.

    Print has (W^s)_uw and the norm of column w, the same for symmetric W only. **Neither form is an
    upper bound** (``docs/errata.md``). The exact number is ``exposure.account``.
    """
    w = check_mixing(mixing, stochastic="row", connected=False)
    v = bounds.node(observer, field="observer", nodes=len(w))
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
