"""Mixing that is drawn afresh at every step: nodes that drop out, edges that fail, gossip in pairs.

A model is a distribution of W with exact expectations; :mod:`system.workloads` takes one
wherever it takes a fixed W.
"""

from noisedesign.system.random_mixing.base import RandomMixing
from noisedesign.system.random_mixing.dropout import EdgeDropout, NodeDropout
from noisedesign.system.random_mixing.matchings import (
    RandomMatchings,
    maximal_matchings,
    pairwise_gossip,
)

__all__ = [
    "EdgeDropout",
    "NodeDropout",
    "RandomMatchings",
    "RandomMixing",
    "maximal_matchings",
    "pairwise_gossip",
]
