"""A design reduced to what one node must know of it: :class:`noisedesign.noise.Plan`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.filters import Filter, Fresh, filter_of
from noisedesign.noise.plan import DEALT, SHARED, Claim, Plan, Stream
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.program.calibration import Calibration, no_target
from noisedesign.program.noise import Noise, PairwiseCovariance
from noisedesign.program.noise.streams import covariance_root


def claim_of(found: Calibration, *, trust: str) -> Claim:
    """What noise scaled by a calibration protects.

    Raises:
        InputError: no privacy target, so that nobody would be protected.
    """
    scheme = found.participation
    if found.epsilon is None or scheme is None:
        raise no_target()
    return Claim(
        noise_stddev=found.noise_stddev,
        mu=found.mu,
        epsilon=found.epsilon,
        delta=found.delta,
        adjacency=found.adjacency,
        clip=found.clip,
        participation=str(scheme),
        rule=scheme.rule,
        trust=trust,
    )


def node_plan(
    noise: Noise,
    claim: Claim,
    *,
    node: int | None,
    names: tuple[str, ...] = (),
    mixing: Any = None,
    rounds: int = 1,
    batch_size: int | None = None,
) -> Plan:
    """The part of one node.

    Args:
        noise: scaled to the target already, of a stated number of steps.
        mixing: W, shape (n, n), where one is known.
        rounds: gossip rounds a step.
        node: zero-based; needed where nodes differ.
        batch_size: what the trainer divides sums by.

    Raises:
        InputError: no such node, or none named where nodes differ; batch_size < 1.
    """
    if batch_size is not None:
        batch_size = _checks.positive_int(batch_size, field="batch_size")
        claim = replace(claim, batch_size=batch_size)
    assert noise.steps is not None
    if node is None:
        if noise.nodes not in (None, 1):
            expected = f"0 to {noise.nodes - 1}" if noise.nodes else "a node"
            raise InputError("node", expected=expected, got="nothing")
        node = 0
    node = _checks.positive_int(node, field="node", minimum=0)
    if noise.nodes is not None and node >= noise.nodes:
        raise InputError("node", expected=f"0 to {noise.nodes - 1}", got=str(node))
    made = partial(
        Plan,
        digest=_digest(noise, claim),
        node=node,
        nodes=noise.nodes,
        horizon=noise.steps,
        claim=claim,
        weights=() if mixing is None else _row(mixing, node),
        rounds=rounds,
        name=names[node] if node < len(names) else str(node),
    )
    if noise.full:
        return made(streams=_all_draws(noise), couplings=_couplings(noise, node))
    return made(streams=_streams(noise, node), filter=_filter(noise))


def _row(mixing: Any, node: int) -> tuple[tuple[int, float], ...]:
    rows = mixing[[node]]
    row = rows[0] if isinstance(rows, np.ndarray) else rows.toarray()[0]
    return tuple((int(v), float(row[v])) for v in np.flatnonzero(row))


def _filter(noise: Noise) -> Filter:
    if noise.strategy is None:
        return Fresh()
    arrays = {name: a for name, a in noise.strategy.arrays().items() if name != "strategy"}
    return filter_of(noise.strategy.kind, arrays, horizon=noise.strategy.horizon)


def _streams(noise: Noise, node: int) -> tuple[Stream, ...]:
    own = partial(Stream, name=f"node {node}", holders=(node,))
    if noise.space is None:
        return (own(coefficient=1.0),)
    if isinstance(noise.space, SeedPlan):
        plan, found = noise.space, []
        for k in plan.held_by(node):
            seed = plan.seeds[k]
            coefficient = float(seed.coefficients[seed.members.index(node)])
            if len(seed.members) == 1:
                found.append(own(coefficient=coefficient))
            else:
                name, holders = f"seed {k}", seed.members
                found.append(
                    Stream(name=name, coefficient=coefficient, source=SHARED, holders=holders)
                )
        return tuple(found)
    if isinstance(noise.space, PairwiseCovariance):
        return (
            own(coefficient=float(noise.space.own[node])),
            *(
                Stream(
                    name=f"seed {k}",
                    coefficient=share,
                    source=SHARED,
                    holders=(min(node, other), max(node, other)),
                )
                for k, other, share in noise.space.held_by(node)
            ),
        )
    root = _root(noise.covariance)
    if np.count_nonzero(root) == np.count_nonzero(np.diagonal(root)):  # nodes are independent
        return (own(coefficient=float(root[node, node])),)
    return tuple(
        Stream(
            name=f"draw {k}",
            coefficient=float(root[node, k]),
            source=DEALT,
            holders=tuple(int(u) for u in np.flatnonzero(root[:, k])),
        )
        for k in np.flatnonzero(root[node])
    )


def _root(covariance: Array) -> Array:
    """F with F F^T = R, diagonal where R is."""
    if np.count_nonzero(covariance) == np.count_nonzero(np.diagonal(covariance)):
        return np.diag(np.sqrt(np.diagonal(covariance)))
    return covariance_root(covariance)


def _all_draws(noise: Noise) -> tuple[Stream, ...]:
    assert noise.nodes is not None
    everybody = tuple(range(noise.nodes))
    return tuple(
        Stream(name=f"draw {k}", coefficient=1.0, source=DEALT, holders=everybody)
        for k in everybody
    )


def _couplings(noise: Noise, node: int) -> Array:
    """[t, s, v]: how noise of the node at step t takes what node v draws at step s."""
    assert noise.strategy is not None
    assert noise.nodes is not None
    return noise.strategy.couplings(node, nodes=noise.nodes)


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
