"""Threat models: which messages an observer sees and which noise it knows. Members of its coalition
are no victims: they know their own gradients (Mafalda-SGD, Lemma 11)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Node, Row, as_row
from noisedesign.privacy.views.noise import Knowledge

if TYPE_CHECKING:
    from noisedesign.privacy.views.algorithms import Algorithm

Sees = Literal["all", "received", "sums", "sent", "mean"]
OWN_NOISE = ("seeds", "values", "counted")

Seed = Node | tuple[Node, Node]


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Who looks. Make one with the functions of this module.

    Attributes:
        model: name of the threat model.
        sees: "all" messages; those "received" by the coalition; their weighted "sums" only; those
            "sent" by the nodes listened to; or of every step only the "mean" of the models.
        knows: the noise known to it.
        coalition: the nodes that look, which are no victims: rows of W or, until it meets a
            network, names.
        listened: nodes whose messages are read from outside, likewise.
        names: of these nodes, once it has met a network.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.pndp(nodes=[2, 5]).sees, nd.observers.ldp().sees
        ('received', 'all')
    """

    model: str
    sees: Sees
    knows: Knowledge = field(default_factory=Knowledge)
    coalition: tuple[int, ...] = ()
    listened: tuple[int, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def among(self, names: Sequence[str]) -> Observer:
        """The same observer in a network whose nodes have these names.

        Args:
            names: in the order of the rows of W.

        Returns:
            The observer, with rows in place of names.

        Raises:
            InputError: a name that no node has, or a node twice.
        """
        at = partial(_row, names=names, field="observer.nodes")
        knows = self.knows
        if knows.holders or knows.values or knows.seeds:
            seeds = frozenset(frozenset(map(at, seed)) for seed in knows.seeds)
            ends = sum(map(len, knows.seeds))
            if sum(map(len, seeds)) != ends:
                expected, got = "different nodes as ends of a seed", "a node by row and by name"
                raise InputError("observer.known_seeds", expected=expected, got=got)
            knows = replace(
                knows,
                holders=frozenset(map(at, knows.holders)),
                values=frozenset(map(at, knows.values)),
                seeds=seeds,
            )
        looks, listened = (tuple(map(at, nodes)) for nodes in (self.coalition, self.listened))
        members_of(looks or listened, needed=False)
        told = tuple(names[row] for row in looks or listened if row < len(names))
        return replace(self, knows=knows, coalition=looks, listened=listened, names=told)

    @property
    def knows_own_noise(self) -> bool:
        """Whether the noise of the coalition is known to it."""
        return self.knows.everything or set(self.coalition) <= self.knows.revealed

    def __str__(self) -> str:
        nodes = self.names or self.coalition or self.listened
        return self.model + (f" {', '.join(map(str, nodes))}" if nodes else "")


def distances(mixing: Array, observer: Observer) -> list[int | None]:
    """Hops from every node to the nearest that looks or is listened to; None without a path."""
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


def arrivals(algorithm: Algorithm, observer: Observer) -> NDArray[np.bool_]:
    """Whether anything of a gradient can reach the observer by the end of the run, shape (T, n)."""
    horizon, period = algorithm.horizon, len(algorithm.phases)
    many = algorithm.rounds > len(algorithm.mixing)  # so that every path there is has an end
    arrives = np.zeros((horizon, len(algorithm.mixing)), dtype=bool)
    for t in reversed(range(horizon)):
        links = algorithm.phases[t % period] != 0
        later = arrives[t + 1] if t + 1 < horizon else np.zeros(len(links), dtype=bool)
        # Back through the rounds of the step: what is heard in a round, or goes on from it.
        for _ in range(min(algorithm.rounds, len(links))):
            before = _heard(links, observer) | links[later].any(axis=0)
            later = before | later if many else before
        arrives[t] = later
        known = arrives[t : t + period]
        if t + 2 * period <= horizon and (known == arrives[t + period : t + 2 * period]).all():
            # Nothing changes any more: the steps before are as these come round.
            return np.concatenate([known[(np.arange(t) - t) % period], arrives[t:]])
    return arrives


def _heard(links: NDArray[np.bool_], observer: Observer) -> NDArray[np.bool_]:
    """Nodes of which a message of one round tells the observer something."""
    n = len(links)
    match observer.sees:
        case "all" | "mean":
            return np.ones(n, dtype=bool)
        case "sent":
            heard = np.zeros(n, dtype=bool)
            heard[list(observer.listened)] = True
            return heard
    coalition = list(observer.coalition)
    return np.asarray(links[coalition].any(axis=0) | np.isin(np.arange(n), coalition))


def ldp() -> Observer:
    """An eavesdropper: a reader of every message who knows no noise (local DP).

    Returns:
        The observer.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.ldp().sees
        'all'
    """
    return Observer(model="ldp", sees="all")


def central() -> Observer:
    """Somebody who gets the mean of all models after every step, and no message (central DP).

    It is what a trusted server releases, who is believed to keep all else to itself; what is in the
    models between gossip rounds has no reader here.

    Returns:
        The observer.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.central().sees
        'mean'
    """
    return Observer(model="central", sees="mean")


def pndp(*, nodes: Sequence[Node], own_noise: str = "seeds") -> Observer:
    """Honest-but-curious nodes that see what they receive (pairwise network DP).

    Source: Cyffers et al. (2022).

    Args:
        nodes: names or zero-based rows, at least one; together they are the coalition.
        own_noise: what they know of the noise they add themselves: all "seeds" they hold (under
            DECOR that includes those shared with neighbours); its "values" only; or nothing, so
            that it is "counted" as protecting the others (the reading of Koskela and Kulkarni,
            Remark 11: a reader of the messages of the closed neighbourhood).

    Returns:
        The observer.

    Raises:
        InputError: no nodes, or one twice; another word for ``own_noise``.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.pndp(nodes=[0, 2]).sees, nd.observers.pndp(nodes=[0, 2]).coalition
        ('received', (0, 2))
    """
    members = members_of(nodes)
    return Observer(
        model="pndp", sees="received", coalition=members, knows=_own(members, own_noise)
    )


def secldp(*, nodes: Sequence[Node] = (), known_seeds: Iterable[Seed] = ()) -> Observer:
    """A reader of all messages who knows some seeds (secret-based local DP, Allouah et al. 2024).

    Args:
        nodes: names or zero-based rows of nodes that collude; every seed they hold is known.
        known_seeds: further seeds: a node for the seed of that node, a pair of nodes for the seed
            that they share.

    Returns:
        The observer.

    Raises:
        InputError: a node twice, or what is no node; seeds that are no nodes or pairs of nodes.

    Examples:
        >>> import noisedesign as nd
        >>> sorted(nd.observers.secldp(known_seeds=[(0, 1)]).knows.seeds)
        [frozenset({0, 1})]
    """
    members = members_of(nodes, needed=False)
    field = "observer.known_seeds"
    given = _checks.listed(known_seeds, field=field, expected="a list of nodes and pairs of nodes")
    seeds = frozenset(_seed(seed) for seed in given)
    return Observer(
        model="secldp",
        sees="all",
        coalition=members,
        knows=Knowledge(holders=frozenset(members), seeds=seeds),
    )


def insider(*, nodes: Sequence[Node]) -> Observer:
    """Nodes that see all messages and know the values that a trusted party gave them as noise.

    Args:
        nodes: names or zero-based rows, at least one; together they are the coalition.

    Returns:
        The observer.

    Raises:
        InputError: no nodes, or one twice.

    Examples:
        >>> import noisedesign as nd
        >>> print(nd.observers.insider(nodes=[0, 3]))
        insider 0, 3
    """
    members = members_of(nodes)
    return Observer(
        model="insider", sees="all", coalition=members, knows=Knowledge(values=frozenset(members))
    )


def shared_seed(*, nodes: Sequence[Node] = ()) -> Observer:
    """A node of a network where one seed, known to all, makes all noise: it knows all of it.

    Args:
        nodes: names or zero-based rows; the coalition, which may be empty.

    Returns:
        The observer.

    Raises:
        InputError: a node twice, or what is no node.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.shared_seed(nodes=[0]).knows.everything
        True
    """
    members = members_of(nodes, needed=False)
    return Observer(
        model="shared-seed", sees="all", coalition=members, knows=Knowledge(everything=True)
    )


def secure_sum(*, nodes: Sequence[Node], own_noise: str = "seeds") -> Observer:
    """Nodes that see the weighted sum of what they receive, a row of W a round: secure aggregation.

    Args:
        nodes: names or zero-based rows, at least one; together they are the coalition.
        own_noise: as of :func:`pndp`.

    Returns:
        The observer.

    Raises:
        InputError: no nodes, or one twice; another word for ``own_noise``.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.secure_sum(nodes=[0]).sees
        'sums'
    """
    members = members_of(nodes)
    return Observer(
        model="secure-sum", sees="sums", coalition=members, knows=_own(members, own_noise)
    )


def tap(*, nodes: Sequence[Node]) -> Observer:
    """An eavesdropper who reads the messages sent by some nodes and knows no noise.

    The view S(A) of Koskela and Kulkarni, whose theorems count the observers' noise; the nodes
    listened to may be victims too.

    Args:
        nodes: names or zero-based rows, at least one, whose messages are read.

    Returns:
        The observer.

    Raises:
        InputError: no nodes, or one twice.

    Examples:
        >>> import noisedesign as nd
        >>> nd.observers.tap(nodes=[1]).sees, nd.observers.tap(nodes=[1]).listened
        ('sent', (1,))
    """
    return Observer(model="tap", sees="sent", listened=members_of(nodes))


def _own(members: tuple[int, ...], own_noise: str) -> Knowledge:
    _checks.one_of(own_noise, field="observer.own_noise", allowed=OWN_NOISE)
    nodes = frozenset(members)
    if own_noise == "seeds":
        return Knowledge(holders=nodes)
    return Knowledge(values=nodes) if own_noise == "values" else Knowledge()


def members_of(nodes: Sequence[Node], *, needed: bool = True) -> tuple[int, ...]:
    """Different nodes, by default one at least; names stay until :meth:`Observer.among`."""
    if isinstance(nodes, str):
        expected = "a list of nodes"
        raise InputError("observer.nodes", expected=expected, got=repr(nodes), remedy=LIST)
    given = _checks.listed(nodes, field="observer.nodes", expected="a list of nodes")
    members = tuple(_node(i, field="observer.nodes") for i in given)
    if (needed and not members) or len(set(members)) != len(members):
        got = ", ".join(map(str, members)) or "none"
        raise InputError("observer.nodes", expected="one or more different nodes", got=got)
    return members


LIST = "One node is a list of one."


def _node(node: Any, *, field: str) -> Any:
    """A row, or a name as it was given."""
    given = isinstance(node, str | Row)
    return node if given else _checks.positive_int(node, field=field, minimum=0)


def _row(node: Any, *, names: Sequence[str], field: str) -> int:
    """The row of a node, whose number others check."""
    return as_row(node, names, field=field)


def _seed(seed: Any) -> frozenset[int]:
    ends = seed if isinstance(seed, (tuple, list)) else (seed,)
    holders = [_node(i, field="observer.known_seeds") for i in ends]
    if len(set(holders)) != len(holders) or len(holders) not in (1, 2):
        expected = "nodes and pairs of different nodes"
        raise InputError("observer.known_seeds", expected=expected, got=repr(seed))
    return frozenset(holders)


# --- every coalition of a size --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Coalitions(Sequence[Observer]):
    """Every set of ``size`` of ``nodes``, as :func:`pndp` makes it, when it is asked for."""

    nodes: tuple[int, ...]
    size: int
    own_noise: str = "seeds"
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __len__(self) -> int:
        return math.comb(len(self.nodes), self.size)

    @overload
    def __getitem__(self, index: int) -> Observer: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Observer, ...]: ...
    def __getitem__(self, index: int | slice) -> Observer | tuple[Observer, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        found: list[int] = []
        first = 0
        for left in range(self.size, 0, -1):
            # Those that begin with ``first`` come before those that begin later.
            while place >= (count := math.comb(len(self.nodes) - first - 1, left - 1)):
                place -= count
                first += 1
            found.append(self.nodes[first])
            first += 1
        return self.of(found)

    def __iter__(self) -> Iterator[Observer]:
        return map(self.of, itertools.combinations(self.nodes, self.size))

    def of(self, members: Sequence[int]) -> Observer:
        found = pndp(nodes=list(members), own_noise=self.own_noise)
        named = tuple(self.names[row] for row in members) if self.names else ()
        return replace(found, names=named)

    def among(self, names: Sequence[str]) -> Coalitions:
        """The same coalitions in a network whose nodes have these names."""
        at = partial(_row, names=names, field="observer.nodes")
        rows = members_of(tuple(map(at, self.nodes)))
        known = tuple(names) if max(rows) < len(names) else ()  # else somebody refuses the rows
        return replace(self, nodes=rows, names=known)

    def members(self) -> NDArray[np.intp]:
        """The nodes of every coalition in this order, shape (coalitions, size)."""
        flat = itertools.chain.from_iterable(itertools.combinations(self.nodes, self.size))
        found = np.fromiter(flat, dtype=np.intp, count=len(self) * self.size)
        return found.reshape(len(self), self.size)


def coalitions(*, nodes: Sequence[Node], size: int, own_noise: str = "seeds") -> Coalitions:
    """All sets of honest-but-curious nodes that pool what they receive.

    What smaller sets see of a node is part of what some set of ``size`` sees.

    Args:
        nodes: names or zero-based rows: who may collude.
        size: f, how many of them pool what they see.
        own_noise: as of :func:`pndp`.

    Returns:
        The observers, a sequence.

    Raises:
        InputError: a node twice; a size below 1, or not below the number of nodes; more than 2^24
            coalitions; another word for ``own_noise``.

    Examples:
        >>> import noisedesign as nd
        >>> pairs = nd.observers.coalitions(nodes=range(500), size=2)
        >>> len(pairs), str(pairs[0]), str(pairs[-1])
        (124750, 'pndp 0, 1', 'pndp 498, 499')
    """
    members = members_of(nodes)
    count = _checks.positive_int(size, field="observers.pooled")
    _checks.one_of(own_noise, field="observer.own_noise", allowed=OWN_NOISE)
    if count >= len(members):
        expected = f"fewer than the {len(members)} nodes that may look"
        remedy = "Of nodes that all look together, state one observer."
        raise InputError("observers.pooled", expected=expected, got=str(count), remedy=remedy)
    if (number := math.comb(len(members), count)) > 2**24:
        expected = f"at most {2**24} coalitions"
        got = f"{number}, those of {count} of {len(members)} nodes"
        remedy = "Ask for smaller ones, or name fewer nodes that may collude."
        raise InputError("observers.pooled", expected=expected, got=got, remedy=remedy)
    return Coalitions(nodes=members, size=count, own_noise=own_noise)
