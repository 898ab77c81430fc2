"""Plans of a node by hand, for noise in integers."""

from __future__ import annotations

from typing import Any

from noisedesign.noise import Claim, Plan, Rule, Stream
from noisedesign.noise.filters import Filter

DIGEST = "ab" * 32


def own_stream(node: int, coefficient: float) -> Stream:
    return Stream(name=f"node {node}", coefficient=coefficient, holders=(node,))


def plan_with(
    filter_: Filter,
    *streams: Stream,
    coefficient: float = 1.0,
    horizon: int = 6,
    rule: Rule | None = None,
    **said: Any,
) -> Plan:
    """Of node 0, with noise of its own and that of the other streams, for a clip of 1."""
    stated: dict[str, Any] = {
        "noise_stddev": 2.0,
        "mu": 0.5,
        "epsilon": 2.0,
        "delta": 1e-5,
        "adjacency": "zero-out",
        "clip": 1.0,
        "rule": rule or Rule(most=1),
    }
    return Plan(
        digest=DIGEST,
        node=0,
        horizon=horizon,
        streams=(own_stream(0, coefficient), *streams),
        claim=Claim(**{**stated, **said}),
        filter=filter_,
    )
