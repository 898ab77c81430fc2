"""Who took part when: records that come too often or too soon are refused."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.batches import RandomBatches
from noisedesign.noise.record import Register
from noisedesign.noise.rules import RULE, Rule


def _key(record: Any) -> Hashable:
    """Return a record's number or word, the same in every process: whole numbers as integers."""
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


def _check_drawn(batches: Any, rule: Rule, horizon: int) -> None:
    """Check that there are batches of the design where participation is random, and else none."""
    expected = "none, where participation is not random"
    remedy = "Leave them out, or design for random participation."
    if rule.random is not None:
        expected = f"the batches of the node, drawn in secret as {rule.random.kind} says"
        remedy = (
            "Make them once a run by noise(...).batches(records). A loader that is not random, or "
            "whose seed anybody knows, has another privacy: design for fixed-epoch."
        )
    if (rule.random is None) != (batches is None):
        got = "none" if batches is None else "some"
    elif batches is not None and not isinstance(batches, RandomBatches):
        got = _checks.describe(batches)
    elif batches is not None and (batches.rule, batches.horizon) != (rule, horizon):
        got = "those of another design"
    else:
        return
    raise InputError("batches", expected=expected, got=got, remedy=remedy)


class Attendance:
    """The steps every record took part in, in one run.

    That of a node's noise, :meth:`NodeNoise.attendance`, is kept in its record and goes on after a
    restart. Where participation is random, the records of a step are all that were drawn for it in
    secret and no others: that a batch is random cannot be seen.

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
        >>> scheme = nd.participation.FixedEpoch(epochs=2, separation=3)
        >>> attendance = Attendance(scheme.rule, horizon=6)
        >>> attendance.check(["ann", "bob"], 0)
        >>> attendance.check(["ann"], 3)
        >>> attendance.check(["bob"], 4)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        noisedesign.base.checks.InputError: records: expected every record as often and ...
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
        _check_drawn(batches, rule, self.horizon)
        self._drawn = batches
        self._steps: dict[Hashable, tuple[int, ...]] = {}
        self._told: dict[int, int] = {}
        self._register = register
        if register is not None:
            for t, names in register.known().items():
                self._add(t, names)

    def number(self, t: int) -> int | None:
        """The number of records in the batch of a step.

        Args:
            t: the step, zero-based.

        Returns:
            It; None where nobody has said.
        """
        return len(self._drawn[t]) if self._drawn is not None else self._told.get(t)

    def check(self, records: Iterable[Hashable], t: int) -> None:
        """Check that ``records`` may be in the batch of step ``t``, and count them: all, or none;
        a record at the same step again is the same step again, as after a crash.

        Args:
            records: of the batch, by number or word, each once.
            t: the step, zero-based.

        Raises:
            InputError: a record more often, or closer together, than the design is for.
        """
        found = self._allowed(records, t)
        self._keep(found, t)
        self._note(found, t)

    def _allowed(self, records: Iterable[Hashable], t: int) -> dict[Hashable, tuple[int, ...]]:
        """Return all steps of ``records``, this one among them; :meth:`_note` counts them."""
        t = _checks.positive_int(t, field="step", minimum=0)
        if t >= self.horizon:
            raise InputError("step", expected=f"0 to {self.horizon - 1}", got=str(t))
        found: dict[Hashable, tuple[int, ...]] = {}
        expected = "the records of the batch, a list"
        given = _checks.listed(records, field="records", expected=expected)
        if self._drawn is not None:
            self._check_all(given, t)
            return found
        after: dict[int, tuple[int, ...]] = {}  # most of a batch have the same steps, one object
        for record in given:
            key = _key(record)
            name = key if self._register is None else self._register.name(key)
            if name in found:
                raise self._refusal(key, f"twice in the batch of step {t}")
            before = self._steps.get(name, ())
            steps = after.get(id(before))
            if steps is None:
                steps = before if t in before else tuple(sorted((*before, t)))
                if reason := self.rule.broken(steps):
                    raise self._refusal(key, reason)
                after[id(before)] = steps
            found[name] = steps
        return found

    def _new(self, found: Iterable[Hashable], t: int) -> list[Any]:
        """The records among these that nobody has said to be in the batch of step ``t``."""
        return [name for name in found if t not in self._steps.get(name, ())]

    def _note(self, found: Mapping[Hashable, tuple[int, ...]], t: int) -> None:
        """Count these records as in the batch of step ``t``, in this process."""
        self._told[t] = self._told.get(t, 0) + len(self._new(found, t))
        self._steps |= found

    @property
    def told(self) -> Set[int]:
        """The steps of which somebody said who took part, be it nobody."""
        return self._told.keys()

    def _add(self, t: int, names: Iterable[Hashable]) -> None:
        steps = {name: tuple(sorted({*self._steps.get(name, ()), t})) for name in names}
        self._note(steps, t)

    def _keep(self, found: Iterable[Hashable], t: int) -> None:
        new = self._new(found, t)
        if self._register is not None and self._drawn is None and (new or t not in self._told):
            self._register.keep(t, new)

    def _check_all(self, records: list[Any], t: int) -> None:
        """Check that they are those drawn for the step; keep nothing, which would tell of draws."""
        assert self._drawn is not None
        drawn: list[int] = self._drawn[t].tolist()
        keys = [_key(record) for record in records]
        if len(keys) == len(drawn) and set(keys) == set(drawn):
            return
        strangers = len(set(keys).difference(drawn))
        expected = f"the records drawn for step {t}, by number, all of them and no others"
        got = f"{len(keys)} records, {strangers} of which were not drawn for it"
        remedy = "Take the batches of the node: privacy rests on their being drawn in secret."
        raise InputError("records", expected=expected, got=got, remedy=remedy)

    def _refusal(self, record: Hashable, reason: str) -> InputError:
        expected = "every record as often and as far apart as the design is for"
        got = f"record {record!r} {reason}"
        remedy = "Batch records in the order of the design, or design for this participation."
        return InputError("records", expected=expected, got=got, remedy=remedy)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, for records that are numbers or words.

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
