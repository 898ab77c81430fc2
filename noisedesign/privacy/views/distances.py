"""How many hops a node's messages need to reach an observer."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.privacy.views.observers import Observer


def distances(mixing: Array, observer: Observer) -> list[int | None]:
    """Hops from every node to the nearest node that looks or is listened to.

    A message goes from v to u where W_uv is not zero. None where no path leads to the observer, and
    for observers that are no node: those of all messages without a coalition.
    """
    found: list[int | None] = [None] * len(mixing)
    frontier = list(observer.coalition or observer.listened)
    hops = 0
    while frontier:
        for node in frontier:
            found[node] = hops
        heard = np.flatnonzero((mixing[frontier] != 0).any(axis=0))
        frontier = [int(node) for node in heard if found[node] is None]
        hops += 1
    return found
