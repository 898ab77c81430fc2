"""The batch of every step, so that each record takes part as the design says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.keys import Secret
from noisedesign.noise.normals import key_stream
from noisedesign.noise.plan import UNBOUNDED, Plan
from noisedesign.noise.rules import RULE, Randomness, Rule

Places = NDArray[np.intp]
Words = NDArray[np.uint64]
Draw = Callable[[int], Words]  # gives so many new random words of 64 bits
USE = "batches"  # use that keys are derived for: no noise is drawn from them


def checked_step(t: Any, horizon: int) -> int:
    """A zero-based step of a design."""
    step = _checks.positive_int(t, field="step", minimum=0)
    if step >= horizon:
        expected = f"0 to {horizon - 1}: the design is for {horizon}"
        remedy = "No further step was ever accounted for: design for more steps."
        raise InputError("step", expected=expected, got=str(step), remedy=remedy)
    return step


class _Steps(ABC):
    """The records of every step; ``round`` is the number of steps of one pass over the data."""

    def __init__(self, rule: Rule, *, horizon: int, records: int) -> None:
        _checks.instance(rule, Rule, field="rule", expected=RULE)
        self.rule = rule
        self.horizon = _checks.positive_int(horizon, field="horizon")
        if self.horizon == UNBOUNDED:
            raise InputError(
                "horizon",
                expected="a number of steps",
                got="a run without an end",
                remedy="Batch records as they come: source.attendance() refuses those that come "
                "too often.",
            )
        self.records = _checks.positive_int(records, field="records")
        self.round = rule.residue or max(rule.min_sep, -(-self.horizon // rule.most))

    @property
    @abstractmethod
    def expected_size(self) -> float:
        """A fixed number to divide sums by: the mean size of a batch."""

    @abstractmethod
    def _batch(self, t: int) -> Places: ...

    def __len__(self) -> int:
        """T, the number of steps."""
        return self.horizon

    def __getitem__(self, t: int) -> Places:
        """The records of zero-based step ``t``.

        Raises:
            InputError: a step outside the horizon.
        """
        return self._batch(checked_step(t, self.horizon))

    def __iter__(self) -> Iterator[Places]:
        return (self[t] for t in range(self.horizon))


class Batches(_Steps):
    """Records shuffled and dealt into batches once, which come round in the same order until the
    horizon; the same arguments give the same batches.

    Args:
        rule: of the design.
        horizon: T, the number of steps.
        records: N, numbered 0 to N - 1.
        batch_size: the most of a batch: ceil(N / batch_size) batches come round, of sizes that
            differ by one at most. By default as many as the design is for.
        seed: of the shuffle, which need not be secret.

    Raises:
        InputError: fewer records than batches; batches that would bring a record back more often,
            or sooner, than the design is for; a design for random participation.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.noise import Batches
        >>> scheme = nd.participation.FixedEpoch(epochs=2, separation=3)
        >>> batches = Batches(scheme.rule, horizon=6, records=9)
        >>> [len(batch) for batch in batches]
        [3, 3, 3, 3, 3, 3]
        >>> bool((batches[0] == batches[3]).all())
        True
    """

    def __init__(
        self,
        rule: Rule,
        *,
        horizon: int,
        records: int,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(rule, horizon=horizon, records=records)
        if rule.random is not None:
            raise InputError(
                "batches",
                expected=f"batches drawn in secret, as {rule.random.kind} says",
                got="records dealt into equal batches, by a seed that need not be secret",
                remedy="Take those of the node's noise, noise(...).batches(records), or "
                "noisedesign.noise.RandomBatches; or design for fixed-epoch.",
            )
        designed = self.round
        if batch_size is not None:
            self.round = -(-records // _checks.positive_int(batch_size, field="batch_size"))
        if self.records < self.round:
            expected = f"at least {self.round}, one a batch"
            raise InputError("records", expected=expected, got=str(records))
        for first in range(min(self.round, horizon)):
            if broken := rule.broken(tuple(range(first, horizon, self.round))):
                expected = f"{designed} batches a round, as the design is for"
                got = f"{self.round}: a record takes part {broken}"
                remedy = "Design for FixedEpoch.from_records(records=, batch_size=, epochs=) of it."
                raise InputError("batch_size", expected=expected, got=got, remedy=remedy)
        order = np.random.default_rng(_checks.seed(seed, field="seed")).permutation(self.records)
        self._parts = np.array_split(order, self.round)

    @property
    def expected_size(self) -> float:
        """Mean number of records of a batch."""
        return self.records / self.round

    def _batch(self, t: int) -> Places:
        return self._parts[t % self.round]


class RandomBatches(_Steps):
    """Records whose steps this node draws, in secret, as the participation of its design says.

    Every record is drawn for on its own, so that batches differ in size and may be empty: divide
    sums by :attr:`expected_size`, never by the size of a batch, which would tell of it. Draws are a
    secret of the run, as noise is: who knows them, or draws them again in a second run, takes away
    what randomness adds to privacy. :meth:`NodeNoise.batches` makes one.

    Args:
        plan: of the node.
        records: N, numbered 0 to N - 1, the same after a restart.
        secret: of this node alone, and of this run.

    Raises:
        InputError: the participation of the design is not random; another number of records than
            an account was made for; no secret.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.noise import RandomBatches, Secret
        >>> target = nd.PrivacyTarget(epsilon=1.0)
        >>> scheme = nd.participation.BallsInBins(epochs=2, separation=3)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> plan = nd.baseline(problem, "ldp").node_plan(0)
        >>> batches = RandomBatches(plan, records=9, secret=Secret.new())
        >>> sorted(int(record) for step in (0, 1, 2) for record in batches[step])
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
        >>> bool((batches[0] == batches[3]).all()), batches.expected_size
        (True, 3.0)
    """

    def __init__(self, plan: Plan, *, records: int, secret: Secret) -> None:
        expected = "the Plan of a node, as design.node_plan(node) makes it"
        _checks.instance(plan, Plan, field="plan", expected=expected)
        _checks.instance(secret, Secret, field="secret", expected="a Secret")
        rule = plan.claim.rule
        if rule is None or rule.random is None:
            expected, got = "a design for random participation", plan.claim.participation or "none"
            remedy = "Batches of a fixed order are noisedesign.noise.Batches."
            raise InputError("participation", expected=expected, got=got, remedy=remedy)
        super().__init__(rule, horizon=plan.horizon, records=records)
        key = secret.step_key(f"node {plan.node}", 0, digest=plan.digest, use=USE)
        self._drawn = _DRAW[rule.random.kind](rule, self.horizon, self.records, _Stream(key))

    @property
    def expected_size(self) -> float:
        """Mean number of records of a batch, the fixed number to divide sums by."""
        return expected_size(self.rule, horizon=self.horizon, records=self.records)

    def _batch(self, t: int) -> Places:
        return self._drawn[t]


def drawn_batches(
    rule: Rule, *, horizon: int, records: int, rng: np.random.Generator
) -> list[Places]:
    """The records of every step, ascending, of a simulation; a node takes RandomBatches."""
    _checks.instance(rule, Rule, field="rule", expected=RULE)
    expected = "a numpy Generator"
    _checks.instance(rng, np.random.Generator, field="rng", expected=expected)
    horizon = _checks.positive_int(horizon, field="horizon")
    records = _checks.positive_int(records, field="records")

    def words(count: int) -> Words:
        return rng.integers(0, 2**64, size=count, dtype=np.uint64)

    return _DRAW[_random(rule).kind](rule, horizon, records, words)


def expected_size(rule: Rule, *, horizon: int, records: int) -> float:
    """Return the mean number of records of a batch, those beyond a largest batch among them."""
    kind, rate = _random(rule).kind, _random(rule).rate or 1.0
    if kind == "b-min-sep":
        return records / (rule.min_sep - 1 + 1 / rate)
    if kind == "random-allocation":
        return records * rule.most / horizon
    return records * rate / rule.min_sep


class _Stream:
    """The words of a key, one after another."""

    def __init__(self, key: bytes) -> None:
        self._key, self._at = key, 0

    def __call__(self, count: int) -> Words:
        found = key_stream(self._key, self._at, count)
        self._at += count
        return found


def _random(rule: Rule) -> Randomness:
    if rule.random is None:
        expected = "a rule of random participation"
        raise InputError("rule.random", expected=expected, got="one of a fixed order")
    return rule.random


def _below(bound: int, size: int, words: Draw) -> Places:
    """Uniform on 0, ..., bound - 1, exactly: words in the last, incomplete round are drawn anew."""
    most = 2**64 - 2**64 % bound
    found = words(size)
    if most < 2**64:
        while len(late := np.flatnonzero(found >= np.uint64(most))):
            found[late] = words(len(late))
    return (found % np.uint64(bound)).astype(np.intp)


def _coins(rate: float, size: int, words: Draw) -> NDArray[np.bool_]:
    """Each true with probability ``rate``, rounded down to a multiple of 2^-64."""
    if rate == 1:
        return np.ones(size, dtype=bool)
    return words(size) < np.uint64(int(rate * 2.0**64))


def _dealt(places: Places, count: int) -> list[Places]:
    """Positions of 0, ..., count - 1 in ``places``, ascending."""
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(1, count))
    return [np.asarray(part) for part in np.split(order, ends)]


def _balls_in_bins(rule: Rule, horizon: int, records: int, words: Draw) -> list[Places]:
    bins = _dealt(_below(rule.min_sep, records, words), rule.min_sep)
    return [bins[t % rule.min_sep] for t in range(horizon)]


def _allocation(rule: Rule, horizon: int, records: int, words: Draw) -> list[Places]:
    """Draw the steps of every record by Floyd's algorithm."""
    steps = np.empty((records, rule.most), dtype=np.intp)
    for i, last in enumerate(range(horizon - rule.most, horizon)):
        one = _below(last + 1, records, words)
        taken = (steps[:, :i] == one[:, None]).any(axis=1)
        steps[:, i] = np.where(taken, last, one)
    return [places // rule.most for places in _dealt(steps.reshape(-1), horizon)]


def _cyclic(rule: Rule, horizon: int, records: int, words: Draw) -> list[Places]:
    said = _random(rule)
    assert said.rate is not None
    largest = -(-records // rule.min_sep)
    if said.group_size not in (None, largest):
        expected = (
            f"{said.group_size * rule.min_sep} records, {said.group_size} in each of "
            f"{rule.min_sep} groups, which the account is for"
        )
        raise InputError("records", expected=expected, got=str(records))
    groups = [np.arange(first, records, rule.min_sep) for first in range(rule.min_sep)]
    found = []
    for t in range(horizon):
        group = groups[t % rule.min_sep]
        batch = group[_coins(said.rate, len(group), words)]
        if said.batch_size_limit is not None and len(batch) > said.batch_size_limit:
            batch = np.sort(batch[_order(len(batch), words)[: said.batch_size_limit]])
        found.append(batch)
    return found


def _order(size: int, words: Draw) -> Places:
    """A uniform order, by keys that are all different."""
    while True:
        keys = words(size)
        if len(np.unique(keys)) == size:
            return np.argsort(keys)


def _held_back(rule: Rule, horizon: int, records: int, words: Draw) -> list[Places]:
    said, gap = _random(rule), rule.min_sep - 1
    assert said.rate is not None
    wait = np.zeros(records, dtype=np.intp)
    if said.warm_start and gap:
        held = np.flatnonzero(_coins(gap * said.rate / (1 + gap * said.rate), records, words))
        wait[held] = 1 + _below(gap, len(held), words)
    found = []
    for _ in range(horizon):
        free = np.flatnonzero(wait == 0)
        batch = free[_coins(said.rate, len(free), words)]
        wait = np.maximum(wait - 1, 0)
        wait[batch] = gap
        found.append(batch)
    return found


_DRAW: dict[str, Callable[[Rule, int, int, Draw], list[Places]]] = {
    "balls-in-bins": _balls_in_bins,
    "random-allocation": _allocation,
    "cyclic-poisson": _cyclic,
    "truncated-poisson": _cyclic,
    "b-min-sep": _held_back,
}
