"""A small network with data, for what trains on it."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples, Places
from noisedesign_lab.training.gossip import FixedGossip
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.trainer import Run
from tests.support import oracles

NODES, DIMENSION, EPOCHS, SEPARATION = 5, 3, 3, 4
HORIZON = EPOCHS * SEPARATION
RECORDS = 41
"""Of which one node has one more than the others, so that batches differ in size."""

MIXING = oracles.metropolis(nx.cycle_graph(NODES))


def examples(seed: int = 0, *, records: int = RECORDS, dimension: int = DIMENSION) -> Examples:
    features = np.random.default_rng(seed).standard_normal((records, dimension))
    return Examples(features=features, targets=np.zeros(records))


def shuffled(rng: np.random.Generator, *, records: int = RECORDS) -> list[Places]:
    return np.array_split(rng.permutation(records), NODES)


def run_of(**other: Any) -> Run:
    """A run with steps of a record three times, four steps apart."""
    fields: dict[str, Any] = {
        "loss": Quadratic(dimension=DIMENSION, curvature=0.7),
        "examples": examples(),
        "partition": shuffled,
        "gossip": FixedGossip(mixing=MIXING),
        "rule": FixedEpoch(epochs=EPOCHS, separation=SEPARATION).rule,
        "horizon": HORIZON,
        "clip": 1.0,
    }
    return Run(**fields | other)


class Recorder:
    """All that was to be seen, step by step."""

    def __init__(self) -> None:
        self.places: list[list[list[Places]]] = []
        self.gradients: list[Array] = []
        self.messages: list[Array] = []
        self.models: list[Array] = []
        self.message_noise: list[dict[int, Array]] = []

    def __call__(self, seen: Any) -> None:
        batch = seen.batch
        self.places.append(
            [
                [places[present == 1] for places, present in zip(*of_seed, strict=True)]
                for of_seed in zip(batch.places, batch.present, strict=True)
            ]
        )
        self.gradients.append(seen.gradients.copy())
        self.messages.append(seen.messages.copy())
        self.models.append(seen.models.copy())
        self.message_noise.append(seen.message_noise)
