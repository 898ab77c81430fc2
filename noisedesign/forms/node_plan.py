"""A design reduced to what one node must know of it: :class:`noisedesign.noise.Plan`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.nodes import Node, Row, as_row, few_of
from noisedesign.forms import Noise, PairwiseCovariance
from noisedesign.forms.streams import covariance_root
from noisedesign.noise.filters import Filter, Fresh, filter_of
from noisedesign.noise.plan import DEALT, SHARED, Claim, Plan, Stream
from noisedesign.privacy.seeds import SeedPlan


def node_plan(
    noise: Noise,
    claim: Claim,
    *,
    node: Node | None,
    names: tuple[str, ...] = (),
    mixing: Any = None,
    rounds: int = 1,
    batch_size: int | None = None,
) -> Plan:
    """The part of one node, by its row or name, in ``noise``, which is scaled to the target and has
    its steps.

    ``node`` is needed where nodes differ; ``mixing`` is W, (n, n), where one is known;
    ``batch_size`` is what the trainer divides sums by. InputError for no such node, or a batch_size
    < 1."""
    if batch_size is not None:
        batch_size = _checks.positive_int(batch_size, field="batch_size")
        claim = replace(claim, batch_size=batch_size)
    if node is None:
        if noise.nodes not in (None, 1):
            expected = f"0 to {noise.nodes - 1}" if noise.nodes else "a node"
            if names:
                expected = f"one of the {len(names)} nodes {few_of(names)}"
            raise InputError("node", expected=expected, got="nothing")
        node = Row(0)
    node = as_row(node, names, field="node")
    if noise.nodes is not None and node >= noise.nodes:
        raise InputError("node", expected=f"0 to {noise.nodes - 1}", got=str(node))
    weights: tuple[tuple[int, float], ...] = ()
    if mixing is not None:
        row = mixing[[node]]
        row = row[0] if isinstance(row, np.ndarray) else row.toarray()[0]
        weights = tuple((int(v), float(row[v])) for v in np.flatnonzero(row))
    assert noise.steps is not None
    made = partial(
        Plan,
        digest=_digest(noise, claim),
        node=node,
        nodes=noise.nodes,
        horizon=noise.steps,
        claim=claim,
        weights=weights,
        rounds=rounds,
        name=names[node] if node < len(names) else str(node),
    )
    c = noise.strategy
    if noise.full:
        assert c is not None
        assert noise.nodes is not None
        draw = partial(Stream, coefficient=1.0, source=DEALT, holders=tuple(range(noise.nodes)))
        streams = tuple(draw(name=f"draw {k}") for k in range(noise.nodes))
        return made(streams=streams, couplings=c.couplings(node, nodes=noise.nodes))
    filtered: Filter = Fresh()
    if c is not None:
        arrays = {name: array for name, array in c.arrays().items() if name != "strategy"}
        filtered = filter_of(c.kind, arrays, horizon=c.horizon)
    return made(streams=_streams(noise, node), filter=filtered)


def _streams(noise: Noise, node: int) -> tuple[Stream, ...]:
    own = partial(Stream, name=f"node {node}", holders=(node,))
    if noise.space is None:
        return (own(coefficient=1.0),)

    def seed(k: int, coefficient: float, holders: tuple[int, ...]) -> Stream:
        if len(holders) == 1:
            return own(coefficient=coefficient)
        return Stream(name=f"seed {k}", coefficient=coefficient, source=SHARED, holders=holders)

    if isinstance(noise.space, SeedPlan):
        plan = noise.space
        held = ((k, plan.seeds[k].members) for k in plan.held_by(node))
        return tuple(
            seed(k, float(plan.seeds[k].coefficients[members.index(node)]), members)
            for k, members in held
        )
    if isinstance(noise.space, PairwiseCovariance):
        shared = (
            seed(k, share, (min(node, other), max(node, other)))
            for k, other, share in noise.space.held_by(node)
        )
        return (own(coefficient=float(noise.space.own[node])), *shared)
    variances = np.diagonal(noise.covariance)
    if np.count_nonzero(noise.covariance) == np.count_nonzero(variances):  # nodes are independent
        return (own(coefficient=float(np.sqrt(variances[node]))),)
    root = covariance_root(noise.covariance)
    return tuple(
        Stream(
            name=f"draw {k}",
            coefficient=float(root[node, k]),
            source=DEALT,
            holders=tuple(int(u) for u in np.flatnonzero(root[:, k])),
        )
        for k in np.flatnonzero(root[node])
    )


def _digest(noise: Noise, claim: Claim) -> str:
    """SHA-256 of what the noise is and what it claims, the same for every node."""
    seeds = noise.space.seeds if isinstance(noise.space, SeedPlan) else ()
    facts = {
        "claim": claim.to_json(),
        "steps": noise.steps,
        "nodes": noise.nodes,
        "full": noise.full,
        "seeds": [[list(seed.members), seed.coefficients.tolist()] for seed in seeds],
    }
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, array in sorted(noise.arrays().items()):
        found.update(f"{name} {array.shape}".encode())
        found.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return found.hexdigest()
