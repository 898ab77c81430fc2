"""Who took part when, against the participation the design is for.

The privacy of a run holds for a record that takes part as the design says and no other way. A
trainer tells which records are in the batch of every step; one too often, or too soon, is refused
before its gradient is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError

if TYPE_CHECKING:
    from noisedesign.noise.batches import RandomBatches

RULE = "the Rule of a design, as plan.claim.rule is"

Number = TypeVar("Number", np.float64, np.int64)


RANDOM = ("balls-in-bins", "random-allocation", "cyclic-poisson", "truncated-poisson", "b-min-sep")
"""Kinds of participation whose steps a node draws, in secret."""


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """How the steps of a record are drawn, besides the :class:`Rule` that they keep to.

    Args:
        kind: of the participation, one of :data:`RANDOM`.
        rate: the probability to be drawn for a step, where it is one by one.
        warm_start: whether ``b-min-sep`` starts from its stationary law.
        batch_size_limit: the most records of a batch, where there is such a limit.
        group_size: the records that a batch is drawn from, where an account needs their number.

    Raises:
        InputError: other values than these.

    Examples:
        >>> import noisedesign as nd
        >>> nd.BallsInBins(epochs=2, separation=3).rule.random.kind
        'balls-in-bins'
        >>> print(nd.FixedEpoch(epochs=2, separation=3).rule.random)
        None
    """

    kind: str
    rate: float | None = None
    warm_start: bool | None = None
    batch_size_limit: int | None = None
    group_size: int | None = None

    def __post_init__(self) -> None:
        _checks.one_of(self.kind, field="rule.random.kind", allowed=RANDOM)
        if self.rate is not None and not 0 < _checks.real(self.rate, field="rule.random.rate") <= 1:
            expected, got = "a probability in (0, 1]", f"{self.rate:g}"
            raise InputError("rule.random.rate", expected=expected, got=got)
        if self.warm_start is not None:
            _checks.flag(self.warm_start, field="rule.random.warm_start")
        for key in ("batch_size_limit", "group_size"):
            if getattr(self, key) is not None:
                _checks.positive_int(getattr(self, key), field=f"rule.random.{key}")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """At which sets of zero-based steps one record may take part.

    Args:
        most: at most so often.
        min_sep: any two of them at least so many steps apart.
        residue: all of them equal modulo this; None where they need not be.
        patterns: all of them in one of these sets; None where nothing is listed.
        random: how they are drawn where privacy rests on their being drawn in secret; None where
            it holds for any choice of them.

    Raises:
        InputError: other values than these.

    Examples:
        >>> from noisedesign.noise import Rule
        >>> rule = Rule(most=2, min_sep=3)
        >>> rule.broken((0, 3))
        ''
        >>> rule.broken((0, 2))
        'in steps 0, 2, less than 3 apart'
    """

    most: int
    min_sep: int = 1
    residue: int | None = None
    patterns: tuple[tuple[int, ...], ...] | None = None
    random: Randomness | None = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.most, field="rule.most")
        _checks.positive_int(self.min_sep, field="rule.min_sep")
        if self.residue is not None:
            _checks.positive_int(self.residue, field="rule.residue")
        if self.patterns is not None:
            object.__setattr__(self, "patterns", _checked_patterns(self.patterns))
        if self.random is not None:
            expected = "a Randomness, or None"
            _checks.instance(self.random, Randomness, field="rule.random", expected=expected)

    def to_json(self) -> dict[str, Any]:
        """Its numbers.

        Returns:
            JSON values; without ``random`` where nothing is drawn, as rules once had none, so that
            digests of designs, and the keys of their noise, stay what they were.
        """
        found = asdict(self)
        if self.random is None:
            del found["random"]
        return found

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Rule:
        """Back from :meth:`to_json`.

        Args:
            said: the JSON object.

        Returns:
            The rule.

        Raises:
            KeyError: it is none.
            TypeError: likewise.
            ValueError: likewise.
        """
        stated = {name: said[name] for name in ("most", "min_sep", "residue", "patterns")}
        random = said.get("random")
        return cls(**{**said, **stated, "random": random and Randomness(**random)})

    def broken(self, steps: tuple[int, ...]) -> str:
        """What the steps of one record break.

        Args:
            steps: zero-based, ascending; the last is the new one.

        Returns:
            Words; nothing where the steps are allowed.
        """
        if len(set(steps)) < len(steps):
            return f"twice in step {steps[-1]}"
        if len(steps) > self.most:
            return f"{len(steps)} times, where the design is for {self.most}"
        if any(b - a < self.min_sep for a, b in itertools.pairwise(steps)):
            return f"in steps {_listed(steps)}, less than {self.min_sep} apart"
        if self.residue is not None and len({s % self.residue for s in steps}) > 1:
            return f"in steps {_listed(steps)}, not a multiple of {self.residue} apart"
        if self.patterns is not None and not any(set(steps) <= set(p) for p in self.patterns):
            return f"in steps {_listed(steps)}, which are in no pattern of the design"
        return ""


def heaviest_sums(weights: NDArray[Number], *, separation: int, counts: int) -> NDArray[Number]:
    """Largest sums of at most 0, 1, ..., ``counts`` weights at positions ``separation`` apart.

    Args:
        weights: nonnegative, shape (..., T); positions are along the last axis. Integers stay
            integers.

    Returns:
        Shape (counts + 1, ...), ascending along the first axis. Dynamic programme over prefixes,
        best(i, t) = max(best(i, t - 1), w_t + best(i - 1, t - b)): O(counts * weights.size).
    """
    sums = np.zeros((counts + 1, *weights.shape[:-1]), dtype=weights.dtype)
    prefix = np.zeros_like(weights)
    for i in range(1, counts + 1):
        reached = weights.copy()
        reached[..., separation:] += prefix[..., :-separation]
        prefix = np.maximum.accumulate(reached, axis=-1)
        sums[i] = prefix[..., -1] if weights.shape[-1] else 0
    return sums


def _checked_patterns(patterns: Any) -> tuple[tuple[int, ...], ...]:
    field, expected = "rule.patterns", "lists of steps"
    sets = _checks.listed(patterns, field=field, expected=expected)
    return tuple(
        tuple(
            _checks.positive_int(step, field=field, minimum=0)
            for step in _checks.listed(steps, field=field, expected=expected)
        )
        for steps in sets
    )


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps)) if len(steps) < 6 else f"{steps[0]}, ..., {steps[-1]}"


def _key(record: Any) -> Hashable:
    """A record's number or word, which is the same in every process: a number as Python's, whole
    ones as integers."""
    try:
        key = record.item() if hasattr(record, "item") else record
    except (TypeError, ValueError, RuntimeError):
        key = None
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    if isinstance(key, (bool, int, float)):
        return int(key) if key == key // 1 else float(key)
    if isinstance(key, (str, bytes)):
        return key
    expected, got = "a number or a word for every record", _checks.describe(record)
    raise InputError("records", expected=expected, got=got)


def _unlike(rule: Rule, got: str) -> InputError:
    expected = "none, where participation is not random"
    remedy = "Leave them out, or design for random participation."
    if rule.random is not None:
        expected = f"the batches of the node, drawn in secret as {rule.random.kind} says"
        remedy = (
            "Make them once a run by noise(...).batches(records). A loader that is not random, or "
            "whose seed anybody knows, has another privacy: design for fixed-epoch."
        )
    return InputError("batches", expected=expected, got=got, remedy=remedy)


def _check_drawn(batches: Any, rule: Rule, horizon: int) -> None:
    from noisedesign.noise.batches import RandomBatches

    if not isinstance(batches, RandomBatches):
        raise _unlike(rule, _checks.describe(batches))
    if (batches.rule, batches.horizon) != (rule, horizon):
        raise _unlike(rule, "those of another design")


class Register(Protocol):
    """Where an attendance is kept beyond the process."""

    def name(self, record: Hashable) -> str:
        """What a record is called there."""

    def known(self) -> Mapping[int, Sequence[str]]:
        """Who is kept, by step."""

    def keep(self, t: int, names: Sequence[str]) -> None:
        """That these, too, took part in step t."""


class Attendance:
    """The steps every record took part in, in one run.

    That of a node's noise, :meth:`noisedesign.noise.NodeNoise.attendance`, is kept in its record
    and goes on after a restart; names of records are kept as hashes, keyed by the node's secret.

    Where the participation of the design is random, the records of a step are those that were
    drawn for it in secret, all of them and no others: that a batch is random cannot be seen.

    Args:
        rule: of the design.
        horizon: T, the number of steps.
        batches: those of the node, where participation is random.
        register: where it is kept, or None.

    Raises:
        InputError: no such rule, or no number of steps; no batches where participation is random,
            or those of another design.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.noise import Attendance
        >>> attendance = Attendance(nd.FixedEpoch(epochs=2, separation=3).rule, horizon=6)
        >>> attendance.check(["ann", "bob"], 0)
        >>> attendance.check(["ann"], 3)
        >>> try:
        ...     attendance.check(["bob"], 4)
        ... except nd.InputError as error:
        ...     print(error.field)
        records
    """

    def __init__(
        self,
        rule: Rule,
        *,
        horizon: int,
        batches: RandomBatches | None = None,
        register: Register | None = None,
    ) -> None:
        _checks.instance(rule, Rule, field="rule", expected=RULE)
        self.rule, self.horizon = rule, _checks.positive_int(horizon, field="horizon")
        if (rule.random is None) != (batches is None):
            raise _unlike(rule, "none" if batches is None else "some")
        if batches is not None:
            _check_drawn(batches, rule, self.horizon)
        self._drawn = batches
        self._steps: dict[Hashable, tuple[int, ...]] = {}
        self._told: dict[int, int] = {}
        self._register = register
        if register is not None:
            for t, names in register.known().items():
                self._add(t, names)

    def number(self, t: int) -> int | None:
        """How many records are in the batch of a step.

        Args:
            t: the step, zero-based.

        Returns:
            Their number; None where nobody has said.
        """
        return len(self._drawn[t]) if self._drawn is not None else self._told.get(t)

    def check(self, records: Iterable[Hashable], t: int) -> None:
        """That ``records`` may be in the batch of step ``t``, and that they are: all, or none.

        The same record at the same step again is the same step again, as after a crash; the same
        record twice in one batch is refused.

        Args:
            records: of the batch, by number or word.
            t: the step, zero-based.

        Raises:
            InputError: a record more often, or closer together, than the design is for.
        """
        found = self.allowed(records, t)
        self._keep(found, t)
        self.note(found, t)

    def allowed(self, records: Iterable[Hashable], t: int) -> dict[Hashable, tuple[int, ...]]:
        """That ``records`` may be in the batch of step ``t``; :meth:`note` says that they are.

        Args:
            records: of the batch, by number or word.
            t: the step, zero-based.

        Returns:
            All steps of each, this one among them.

        Raises:
            InputError: a record more often, or closer together, than the design is for.
        """
        t = _checks.positive_int(t, field="step", minimum=0)
        if t >= self.horizon:
            raise InputError("step", expected=f"0 to {self.horizon - 1}", got=str(t))
        found: dict[Hashable, tuple[int, ...]] = {}
        expected = "the records of the batch, a list"
        given = _checks.listed(records, field="records", expected=expected)
        if self._drawn is not None:
            self._check_all(given, t)
            return found
        for record in given:
            key = _key(record)
            name = key if self._register is None else self._register.name(key)
            if name in found:
                raise self._refusal(key, f"twice in the batch of step {t}")
            before = self._steps.get(name, ())
            steps = before if t in before else tuple(sorted((*before, t)))
            if reason := self.rule.broken(steps):
                raise self._refusal(key, reason)
            found[name] = steps
        return found

    def new(self, found: Iterable[Hashable], t: int) -> list[Any]:
        """Which of these nobody has said to be in the batch of step ``t``.

        Args:
            found: of :meth:`allowed`.
            t: the step, zero-based.

        Returns:
            What they are called.
        """
        return [name for name in found if t not in self._steps.get(name, ())]

    def note(self, found: Mapping[Hashable, tuple[int, ...]], t: int) -> None:
        """That these records are in the batch of step ``t``, in this process.

        Args:
            found: of :meth:`allowed`.
            t: the step, zero-based.
        """
        self._told[t] = self._told.get(t, 0) + len(self.new(found, t))
        self._steps |= found

    @property
    def told(self) -> Set[int]:
        """The steps of which somebody said who took part, be it nobody."""
        return self._told.keys()

    def _add(self, t: int, names: Iterable[Hashable]) -> None:
        steps = {name: tuple(sorted({*self._steps.get(name, ()), t})) for name in names}
        self.note(steps, t)

    def _keep(self, found: Iterable[Hashable], t: int) -> None:
        new = self.new(found, t)
        if self._register is not None and self._drawn is None and (new or t not in self._told):
            self._register.keep(t, new)

    def _check_all(self, records: list[Any], t: int) -> None:
        """That they are those drawn for the step. Nothing is kept: it would tell of the draws."""
        assert self._drawn is not None
        drawn: list[int] = self._drawn[t].tolist()
        keys = [_key(record) for record in records]
        if len(keys) == len(drawn) and set(keys) == set(drawn):
            return
        strangers = len(set(keys).difference(drawn))
        raise InputError(
            "records",
            expected=f"the records drawn for step {t}, by number, all of them and no others",
            got=f"{len(keys)} records, {strangers} of which were not drawn for it",
            remedy="Take the batches of the node: privacy rests on their being drawn in secret.",
        )

    def _refusal(self, record: Hashable, reason: str) -> InputError:
        return InputError(
            "records",
            expected="every record as often and as far apart as the design is for",
            got=f"record {record!r} {reason}",
            remedy="Batch records in the order of the design, or design for this participation.",
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, for records that are numbers or words.

        Returns:
            JSON values; in the attendance of a node's noise hashes in place of names.
        """
        return {
            "steps": [[name, list(steps)] for name, steps in self._steps.items()],
            "told": sorted(self._told),
            "keyed": self._register is not None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after :meth:`state_dict`; who is known to have taken part besides, did.

        Args:
            state: what it gave.

        Raises:
            InputError: not such a state.
        """
        expected = "what Attendance.state_dict gave"
        _checks.instance(state, Mapping, field="state", expected=expected)
        keyed, register = state.get("keyed", False), self._register
        try:
            batches: dict[int, list[Any]] = {int(t): [] for t in state.get("told", ())}
            for record, steps in state["steps"]:
                name = _key(record)
                if register is not None and not keyed:
                    name = register.name(name)
                for t in steps:
                    batches.setdefault(int(t), []).append(name)
            if keyed and register is None:
                raise KeyError("keyed")
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InputError("state", expected=expected, got=_checks.describe(state)) from None
        for t, names in batches.items():
            self._keep(names, t)
            self._add(t, names)
