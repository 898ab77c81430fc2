"""Plans of one node, one for every way noise is made of white noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from noisedesign.noise import Claim, NodeNoise, Plan, Rule, Secret, Stream
from noisedesign.noise.filters import (
    Banded,
    Buffered,
    Filter,
    Fresh,
    Moving,
    Rows,
    SignedBuffers,
    Toeplitz,
)
from tests.support import noise_reference

HORIZON = 7
SECRET = Secret(bytes(range(32)))
SEEDS = {name: Secret(bytes([k]) * 16 + bytes(range(16))) for k, name in enumerate(("a", "b"))}
CLAIM = Claim(
    noise_stddev=2.5,
    mu=0.5,
    epsilon=1.75,
    delta=1e-5,
    adjacency="zero-out",
    clip=0.5,
    participation="every step",
    rule=Rule(most=HORIZON),
)
DIGEST = "5" * 64


def _bands() -> np.ndarray:
    rng = np.random.default_rng(3)
    bands = rng.uniform(-0.4, 0.4, (3, HORIZON))
    bands[0] = rng.uniform(0.4, 0.9, HORIZON)
    return np.where(np.arange(3)[:, None] + np.arange(HORIZON) < HORIZON, bands, 0.0)


def _noising() -> np.ndarray:
    noising = np.tril(np.random.default_rng(4).uniform(-1, 1, (HORIZON, HORIZON)), -1)
    noising[3, 1] = 0.0
    return noising + 1.5 * np.eye(HORIZON)


def filters(horizon: int = HORIZON) -> dict[str, Filter]:
    """One of every kind; those that have a horizon of HORIZON steps."""
    return {
        "fresh": Fresh(),
        "dense": Rows(_noising()),
        "banded": Banded(_bands()),
        "toeplitz": Toeplitz.of(np.array([0.4, -0.1, 0.05, 0.02]), horizon=horizon),
        "banded-inverse": Moving(np.array([2.0, -0.75, 0.3])),
        "blt": Buffered(np.array([0.3, 0.25]), np.array([0.9, 0.5]), np.array([0.4])),
        "signed-blt": SignedBuffers(
            np.array([-0.2, 0.3, 0.25]),
            np.array([-0.7, 0.3, 0.3]),
            np.array([0.4]),
            np.array([0.0, 0.5, -0.5]),
        ),
    }


OWN = (Stream(name="node 2", coefficient=1.0, holders=(2,)),)
MIXED = (
    Stream(name="a", coefficient=-0.7, source="shared", holders=(1, 2)),
    Stream(name="node 2", coefficient=0.3, holders=(2,)),
    Stream(name="b", coefficient=1.9, source="shared", holders=(2, 3)),
)


def plans() -> dict[str, Plan]:
    """By what is special about each."""
    made: dict[str, Plan] = {}
    for name, filter_ in filters().items():
        made[name] = Plan(
            digest=DIGEST,
            node=2,
            nodes=4,
            horizon=HORIZON,
            streams=OWN,
            claim=CLAIM,
            filter=filter_,
            name="two",
        )
    made["seeds"] = replace(made["fresh"], streams=MIXED)
    made["seeds, banded"] = replace(made["banded"], streams=MIXED)
    draws = tuple(Stream(name=f"draw {k}", coefficient=1.0, source="dealt") for k in range(3))
    couplings = np.random.default_rng(5).uniform(-1, 1, (HORIZON, HORIZON, 3))
    couplings *= np.tri(HORIZON)[:, :, None]
    couplings[4, 2, 1] = 0.0
    made["full"] = replace(made["fresh"], streams=draws, couplings=couplings)
    return made


def drawn(plan: Plan, **kwargs: Any) -> NodeNoise:
    """Its noise, from SECRET and SEEDS; recorded nowhere by default."""
    seeds = {s.name: SEEDS[s.name] for s in plan.streams if s.source == "shared"}
    kwargs = {"record": None, "resume": False} | kwargs
    return NodeNoise(plan, secret=SECRET, seeds=seeds, **kwargs)


def secrets(plan: Plan) -> dict[str, bytes]:
    """The bytes behind every stream."""
    found = {stream.name: SECRET.value for stream in plan.streams}
    for stream in plan.streams:
        if stream.source == "shared":
            found[stream.name] = SEEDS[stream.name].value
        if stream.source == "dealt":
            found[stream.name] = noise_reference.child(
                SECRET.value, stream.name, digest=plan.digest
            )
    return found
