"""Published bounds of gossip algorithms, as baselines for the exact accounts: functions of W and a
few numbers that compute what their sources claim. Not every claim holds; docstrings say on which
side of the truth a number may fall, and tests keep a counterexample to every claim that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import check_mixing

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
    """Return W, symmetric, doubly stochastic and primitive: by Wielandt W^k > 0 for every k >= (n -
    1)^2 + 1. The pattern of zeros decides, so that tiny weights are not taken for rounding."""
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
