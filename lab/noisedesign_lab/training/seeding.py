"""Random streams of one seed of a training run: not cryptographic, for this is simulation."""

from __future__ import annotations

import enum

import numpy as np


class Use(enum.IntEnum):
    """The uses of a stream."""

    START = 0
    PARTS = 1
    BATCHES = 2
    NOISE = 3
    MESSAGES = 4
    GOSSIP = 5
    EXAMPLES = 6


def generator(seed: int, use: Use, *path: int) -> np.random.Generator:
    """The stream of one seed, use and step or node, the same under all mechanisms."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(use, *path)))
