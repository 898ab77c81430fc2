"""Batches of a node's records, dealt once or drawn at random by numpy's generator. In a deployment
the draw is a secret of the node: see :class:`noisedesign.noise.RandomBatches`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.noise.batches import Batches, drawn_batches, expected_size
from noisedesign.noise.rules import Rule
from noisedesign_lab.datasets import Places


class Dealing(NamedTuple):
    """The batches of one node and seed, which come round after ``period`` steps. Sums over them are
    divided by ``size``, at every step: that of a drawn batch would tell of other records."""

    batches: Batches | list[Places]
    period: int
    size: float


def deal(
    rule: Rule, *, horizon: int, records: int, batch_size: int | None, rng: np.random.Generator
) -> Dealing:
    """Return the batches of a node with so many records, as a rule says."""
    if rule.random is None:
        seed = int(rng.integers(2**62))
        dealt = Batches(rule, horizon=horizon, records=records, batch_size=batch_size, seed=seed)
        return Dealing(dealt, dealt.round, float(len(dealt[0])))  # the largest are dealt first
    if batch_size is not None:
        raise InputError(
            "batch_size",
            expected="none where batches are drawn at random, of any size",
            got=str(batch_size),
            remedy="Leave it out: the participation says how many records a batch has on average.",
        )
    drawn = drawn_batches(rule, horizon=horizon, records=records, rng=rng)
    return Dealing(drawn, horizon, expected_size(rule, horizon=horizon, records=records))
