"""The law of one record's steps under random participation, every pattern enumerated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import noisedesign as nd
from noisedesign.system.participation import Participation


class Law(NamedTuple):
    """Patterns of ascending zero-based steps, the empty one included, and their probabilities."""

    patterns: tuple[tuple[int, ...], ...]
    probabilities: np.ndarray


def laws(scheme: Participation) -> Iterator[Law]:
    """One law for every choice that is left to an adversary."""
    if isinstance(scheme, nd.participation.BMinSepSampling):
        yield _with_a_wait(scheme)
    elif isinstance(scheme, nd.participation.CyclicPoisson):
        for turns in scheme.maximal_patterns():
            coins = list(itertools.product((False, True), repeat=len(turns)))
            heads = np.array([sum(coin) for coin in coins])
            chance = scheme.rate**heads * (1 - scheme.rate) ** (len(turns) - heads)
            yield Law(tuple(tuple(itertools.compress(turns, coin)) for coin in coins), chance)
    else:
        bins = scheme.bins
        yield Law(tuple(bins), np.full(len(bins), 1 / len(bins)))


def _with_a_wait(scheme: nd.participation.BMinSepSampling) -> Law:
    found: dict[tuple[int, ...], float] = {}
    ways: list[tuple[tuple[int, ...], int, float]]
    ways = [((), wait, chance) for wait, chance in enumerate(scheme.held_back) if chance > 0]
    while ways:
        steps, t, chance = ways.pop()
        if t >= scheme.horizon:
            found[steps] = found.get(steps, 0.0) + chance
            continue
        if scheme.rate < 1:
            ways.append((steps, t + 1, chance * (1 - scheme.rate)))
        ways.append(((*steps, t), t + scheme.separation, chance * scheme.rate))
    return Law(tuple(found), np.array(list(found.values())))
