"""What the published theorems ask of W and of the nodes that look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import check_mixing


def node(value: Any, *, field: str, nodes: int) -> int:
    """Index of a node."""
    index = _checks.positive_int(value, field=field, minimum=0)
    if index >= nodes:
        raise InputError(field, expected=f"a node in 0..{nodes - 1}", got=str(index))
    return index


def coalition(value: Any, *, field: str, nodes: int) -> tuple[int, ...]:
    """At least one node, none twice."""
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
    """W, symmetric, doubly stochastic and primitive: some power of it is positive.

    By Wielandt a primitive W of size n has W^k > 0 for every k >= (n - 1)^2 + 1. The pattern of
    zeros decides, so that weights however small are not taken for rounding.
    """
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
