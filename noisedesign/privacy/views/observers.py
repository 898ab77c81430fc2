"""Trust models: which messages an observer sees and which noise it knows.

An observer never counts as a victim of itself: members of its coalition know their own gradients,
which moves none of the others' (Mafalda-SGD, Lemma 11, for the gradients a node knows because they
are its own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.views.noise import Knowledge

Sees = Literal["all", "received", "sums", "sent"]
OWN_NOISE = ("seeds", "values", "counted")

Seed = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Who looks. Make one with the functions of this module.

    Attributes:
        model: name of the trust model.
        sees: "all" messages; those "received" by the coalition; of the messages received only
            their weighted "sums"; or those "sent" by the nodes listened to.
        knows: the noise known to it.
        coalition: the nodes that look, which are no victims.
        listened: nodes whose messages are read from outside.
    """

    model: str
    sees: Sees
    knows: Knowledge = field(default_factory=Knowledge)
    coalition: tuple[int, ...] = ()
    listened: tuple[int, ...] = ()

    @property
    def knows_own_noise(self) -> bool:
        """Whether the noise of the coalition is known to it."""
        return self.knows.everything or set(self.coalition) <= self.knows.silenced

    def __str__(self) -> str:
        nodes = self.coalition or self.listened
        return self.model + (f" {', '.join(map(str, nodes))}" if nodes else "")


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


def ldp() -> Observer:
    """An eavesdropper who reads every message and knows no noise (local DP)."""
    return Observer(model="ldp", sees="all")


def pndp(*, nodes: Sequence[int], own_noise: str = "seeds") -> Observer:
    """Nodes that see the messages they receive (pairwise network DP, Cyffers et al. 2022).

    ``own_noise`` says what they know of the noise they add themselves: all "seeds" they hold (under
    DECOR that includes those shared with neighbours); its "values" only; or nothing, so that it is
    "counted" as protecting the others (the reading of Koskela and Kulkarni, Remark 11: a reader of
    the messages of the closed neighbourhood).
    """
    members = _members(nodes)
    return Observer(
        model="pndp", sees="received", coalition=members, knows=_own(members, own_noise)
    )


def secldp(*, nodes: Sequence[int] = (), known_seeds: Iterable[Seed] = ()) -> Observer:
    """A reader of all messages who knows some seeds (secret-based local DP, Allouah et al. 2024).

    Args:
        nodes: nodes that collude; every seed they hold is known.
        known_seeds: further seeds: a node index for the seed of that node, a pair of indices for
            the seed shared by two nodes.
    """
    members = _members(nodes, needed=False)
    field = "observer.known_seeds"
    given = _checks.listed(known_seeds, field=field, expected="a list of nodes and pairs of nodes")
    seeds = frozenset(_seed(seed) for seed in given)
    return Observer(
        model="secldp",
        sees="all",
        coalition=members,
        knows=Knowledge(holders=frozenset(members), seeds=seeds),
    )


def insider(*, nodes: Sequence[int]) -> Observer:
    """Nodes that see all messages and know the values of their own noise, dealt privately."""
    members = _members(nodes)
    return Observer(
        model="insider", sees="all", coalition=members, knows=Knowledge(values=frozenset(members))
    )


def shared_seed(*, nodes: Sequence[int] = ()) -> Observer:
    """A node of a network where one seed, known to all, makes all noise: it knows all of it."""
    members = _members(nodes, needed=False)
    return Observer(
        model="shared-seed", sees="all", coalition=members, knows=Knowledge(everything=True)
    )


def secure_sum(*, nodes: Sequence[int], own_noise: str = "seeds") -> Observer:
    """Nodes that only see the weighted sum of what they receive, one row of W a round.

    ``own_noise`` as in :func:`pndp`.
    """
    members = _members(nodes)
    return Observer(
        model="secure-sum", sees="sums", coalition=members, knows=_own(members, own_noise)
    )


def tap(*, nodes: Sequence[int]) -> Observer:
    """An outsider who reads the messages sent by some nodes and knows no noise.

    The view S(A) of Koskela and Kulkarni, whose theorems count the observers' noise; the nodes
    listened to may be victims too.
    """
    return Observer(model="tap", sees="sent", listened=_members(nodes))


def _own(members: tuple[int, ...], own_noise: str) -> Knowledge:
    _checks.one_of(own_noise, field="observer.own_noise", allowed=OWN_NOISE)
    nodes = frozenset(members)
    if own_noise == "seeds":
        return Knowledge(holders=nodes)
    return Knowledge(values=nodes) if own_noise == "values" else Knowledge()


def _members(nodes: Sequence[int], *, needed: bool = True) -> tuple[int, ...]:
    given = _checks.listed(nodes, field="observer.nodes", expected="a list of nodes")
    members = tuple(_checks.positive_int(i, field="observer.nodes", minimum=0) for i in given)
    if (needed and not members) or len(set(members)) != len(members):
        raise InputError(
            "observer.nodes",
            expected="one or more different nodes",
            got=", ".join(map(str, members)) or "none",
        )
    return members


def _seed(seed: Any) -> frozenset[int]:
    ends = seed if isinstance(seed, (tuple, list)) else (seed,)
    holders = [_checks.positive_int(i, field="observer.known_seeds", minimum=0) for i in ends]
    if len(set(holders)) != len(holders) or len(holders) not in (1, 2):
        raise InputError(
            "observer.known_seeds", expected="nodes and pairs of different nodes", got=repr(seed)
        )
    return frozenset(holders)
