"""Partitions of records over nodes, the batches of a node, splits for testing, and standardisation,
by numpy's generator; a deployed node draws :class:`noisedesign.noise.RandomBatches` in secret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.batches import Batches, drawn_batches, expected_size
from noisedesign.noise.rules import Rule
from noisedesign_lab.datasets import Examples, Places

Partition = Callable[[np.random.Generator], Sequence[Places]]
"""Draws for every node the places of its records; those made here are in increasing order."""

_TRIES = 1000
"""Draws of the shares of a Dirichlet distribution before a node is said to have no records."""


def iid(count: int, nodes: int) -> Partition:
    """Records dealt at random, as evenly as possible: nodes have floor or ceil of count / nodes.

    Args:
        count: N, the number of records.
        nodes: n; the first N mod n have one record more.

    Returns:
        The partition, to be drawn for every seed.

    Raises:
        InputError: fewer records than nodes.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.partition import iid
        >>> [len(part) for part in iid(7, 3)(np.random.default_rng(0))]
        [3, 2, 2]
    """
    _checks.positive_int(nodes, field="partition.nodes")
    if count < nodes:
        expected = f"at most {count} nodes, one a record"
        raise InputError("partition.nodes", expected=expected, got=str(nodes))

    def draw(rng: np.random.Generator) -> list[Places]:
        return [np.sort(part) for part in np.array_split(rng.permutation(count), nodes)]

    return draw


def in_order(count: int, nodes: int) -> Partition:
    """Deal records as they come, as evenly as possible, the same for every generator."""
    iid(count, nodes)  # which checks them

    def draw(rng: np.random.Generator) -> list[Places]:
        return np.array_split(np.arange(count), nodes)

    return draw


def dirichlet(targets: Any, nodes: int, *, concentration: float, minimum: int = 1) -> Partition:
    """The records of each label are dealt by shares that are Dirichlet distributed over nodes.

    Shares of different labels are independent; all n parameters of the distribution are
    ``concentration``. Where it is large, nodes have the same mixture of labels; where it is small,
    nearly all records of a label are at one node (Hsu, Qi and Brown 2019, and the code of Whisper
    D-SGD and DECOR, up to their rounding). Shares are drawn anew until every node has ``minimum``
    records.

    Args:
        targets: the label of every record, shape (N,).
        nodes: the number n of nodes.
        concentration: a positive number, often called alpha.
        minimum: the fewest records that a node may have.

    Returns:
        The partition, to be drawn for every seed.

    Raises:
        InputError: too few records, or, when drawn, shares that leave nodes with too few.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.partition import dirichlet
        >>> draw = dirichlet(np.array([1, 1, 1, 1, -1, -1]), 2, concentration=1e9)
        >>> [len(part) for part in draw(np.random.default_rng(0))]
        [3, 3]
    """
    labels = _checks.as_array(targets, field="partition.targets", ndim=1)
    _checks.positive_int(nodes, field="partition.nodes")
    _checks.scale(concentration, field="partition.concentration")
    _checks.positive_int(minimum, field="partition.minimum")
    if nodes * minimum > len(labels):
        expected = f"at most {len(labels) // minimum} nodes with {minimum} records or more"
        raise InputError("partition.nodes", expected=expected, got=str(nodes))
    places = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def draw(rng: np.random.Generator) -> list[Places]:
        for _ in range(_TRIES):
            shares = rng.dirichlet(np.full(nodes, float(concentration)), size=len(places))
            ends = np.cumsum(shares, axis=1)[:, :-1] * [[len(of)] for of in places]
            cuts = np.rint(ends).astype(np.intp)
            totals = np.diff(cuts, axis=1, prepend=0, append=[[len(of)] for of in places]).sum(0)
            if totals.min() >= minimum:
                break
        else:
            expected = f"shares that leave every node {minimum} records or more"
            got = f"{concentration} and {nodes} nodes, and none in {_TRIES} draws"
            remedy = "Raise the concentration, or take fewer nodes."
            raise InputError("partition.concentration", expected=expected, got=got, remedy=remedy)
        dealt = [np.split(rng.permutation(of), cut) for of, cut in zip(places, cuts, strict=True)]
        return [np.sort(np.concatenate(parts)) for parts in zip(*dealt, strict=True)]

    return draw


def by_user(owners: Any, nodes: int) -> Partition:
    """All records of a user are at one node; nodes have floor or ceil of users / nodes of them.

    Args:
        owners: the number of the user of every record, shape (N,).
        nodes: the number n of nodes.

    Returns:
        The partition, to be drawn for every seed.

    Raises:
        InputError: fewer users than nodes; records without an owner.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.partition import by_user
        >>> parts = by_user(np.array([5, 8, 5]), 2)(np.random.default_rng(0))
        >>> sorted(part.tolist() for part in parts)
        [[0, 2], [1]]
    """
    if owners is None:
        raise InputError("partition.kind", expected="records that have owners", got="none")
    users, of = np.unique(owners, return_inverse=True)
    dealt = iid(len(users), nodes)

    def draw(rng: np.random.Generator) -> list[Places]:
        return [np.flatnonzero(np.isin(of, mine)) for mine in dealt(rng)]

    return draw


def split(count: int, shares: dict[str, float], rng: np.random.Generator) -> dict[str, Places]:
    """Records dealt at random to parts of given shares: training, validation, testing.

    Args:
        count: N, the number of records.
        shares: the share of each part, positive and summing to 1; counts are rounded, and the last
            part has what is left.
        rng: decides which record goes where.

    Returns:
        The places of the records of each part, in increasing order.

    Raises:
        InputError: shares that are not positive or do not sum to 1; a part without any record.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.partition import split
        >>> parts = split(10, {"train": 0.8, "test": 0.2}, np.random.default_rng(0))
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 8, 'test': 2}
    """
    names, values = list(shares), np.array(list(shares.values()), dtype=np.float64)
    if not (values > 0).all() or abs(values.sum() - 1) > 1e-9:
        raise InputError("split", expected="positive shares that sum to 1", got=str(shares))
    cuts = np.rint(np.cumsum(values)[:-1] * count).astype(np.intp)
    parts = np.split(rng.permutation(count), cuts)
    if empty := [name for name, part in zip(names, parts, strict=True) if not len(part)]:
        got = f"none of {count} for {empty[0]}"
        raise InputError("split", expected="a record for every part", got=got)
    return {name: np.sort(part) for name, part in zip(names, parts, strict=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Standardization:
    """Features less their mean, over their standard deviation, both of the training records.

    Attributes:
        mean: shape (p,).
        scale: shape (p,), positive; 1 for a feature that does not vary.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.partition import Standardization
        >>> train = Examples(features=np.array([[1.0], [5.0]]), targets=np.zeros(2))
        >>> print(Standardization.of(train).applied(train).features.ravel())
        [-1.  1.]
    """

    mean: Array
    scale: Array

    @classmethod
    def of(cls, train: Examples) -> Standardization:
        """Fitted on the records to train on, and on no other.

        Args:
            train: those records.

        Returns:
            Mean and standard deviation of their features.
        """
        scale = train.features.std(axis=0)
        constant = train.features.min(axis=0) == train.features.max(axis=0)
        return cls(mean=train.features.mean(axis=0), scale=np.where(constant, 1.0, scale))

    def applied(self, examples: Examples) -> Examples:
        """The same records with standardised features.

        Args:
            examples: of the same features.

        Returns:
            As many records, with the same targets and owners.
        """
        features = (examples.features - self.mean) / self.scale
        return Examples(features=features, targets=examples.targets, owners=examples.owners)


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
        expected = "none where batches are drawn at random, of any size"
        remedy = "Leave it out: the participation says how many records a batch has on average."
        raise InputError("batch_size", expected=expected, got=str(batch_size), remedy=remedy)
    drawn = drawn_batches(rule, horizon=horizon, records=records, rng=rng)
    return Dealing(drawn, horizon, expected_size(rule, horizon=horizon, records=records))
