"""The noise of one node: any step, any slice, in any order, the same bits every time."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Node, Row
from noisedesign.noise.attendance import Attendance
from noisedesign.noise.batches import USE as BATCHES, RandomBatches, checked_step
from noisedesign.noise.filters import DOUBLE, Recursion
from noisedesign.noise.hidden import HashKeys, Hidden, hidden
from noisedesign.noise.keys import Secret
from noisedesign.noise.normals import LARGEST, MOST_SAMPLES, RELATIVE_ERROR, Normals
from noisedesign.noise.plan import DEALT, OWN, SHARED, Claim, Plan, Stream, agrees
from noisedesign.noise.record import (
    ALL_OF_THEM,
    OtherNodeError,
    Record,
    Register,
    Uses,
    joined,
    other_data,
    other_records,
)
from noisedesign.noise.states import EVERY, States

BLOCK = 1 << 15  # numbers that are carried from step to step together
LATEST = 32  # blocks whose last noise is held besides, for whoever asks for it in pieces, or again
SECOND_ORDER = 2.0**-20  # products of roundings, in terms of the roundings themselves
OVER_CLIP = 1e-3
"""Relative excess over the clip that rounding explains: a float32 sum of n gradients is off by at
most n 2^-24 of n clips (Higham 2002, section 4.2). A larger one lets unclipped sums pass."""
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
Floats = NDArray[np.float32] | NDArray[np.float64]
Numbers = NDArray[Any]
Records = int | Iterable[Hashable]  # in a sum, by number or word; or how many there are at most


class NodeSource(ABC):
    """The draws of one node from its secrets: the record of their use, and blocks of the model that
    are carried from step to step; arguments are those of :func:`noise`."""

    use: str  # use that keys are derived for: sources of two uses draw nothing alike
    _sums = "parameters"  # name of an argument of sums

    def __init__(
        self,
        plan: Plan,
        *,
        secret: Secret | None,
        seeds: Mapping[str, Secret],
        record: Record | None,
        resume: bool,
        batch_secret: Secret | None = None,
        keep_every: int | None = None,
    ) -> None:
        expected = "the Plan of a node, as design.node_plan(node) makes it"
        _checks.instance(plan, Plan, field="plan", expected=expected)
        if secret is not None:
            _checks.instance(secret, Secret, field="secret", expected="a Secret, or None")
        _checks.instance(seeds, Mapping, field="seeds", expected="secrets by name of their streams")
        if record is not None:
            _checks.instance(record, Record, field="record", expected="a Record, or None")
        _checks.instance(resume, bool, field="resume", expected="True or False")
        self.plan, self.secret = plan, secret
        self.batch_secret = self._secret_of_batches(batch_secret, resume)
        self._of = {stream.name: self._secret_of(stream, seeds) for stream in plan.streams}
        self._drawn = {stream.name: self._drawn_from(stream) for stream in plan.streams}
        self._begun, self._process = -1, os.getpid()
        self._recursion: Recursion = plan.filter
        self._lanes: dict[tuple[int, np.dtype[Any]], _Lane] = {}
        self._latest: OrderedDict[tuple[int, np.dtype[Any]], Numbers] = OrderedDict()
        self._key = lru_cache(maxsize=4 * len(plan.streams) + 64)(self._fresh_key)
        self._hidden: dict[int, bytes] = {}
        self._lock = RLock()
        self._batches: RandomBatches | None = None
        self._attendance: Attendance | None = None
        self._used, self._uses = self._claimed(record, resume)
        self._states = self._kept_in_files(keep_every)
        self._untold = set(self.steps)
        self._added = max(self._untold, default=-1)

    def _secret_of(self, stream: Stream, seeds: Mapping[str, Secret]) -> Secret:
        if stream.source != OWN and stream.name in seeds:
            return Secret.of(seeds[stream.name], field="seeds")
        if stream.source == SHARED:
            others = ", ".join(str(u) for u in stream.holders if u != self.plan.node)
            expected = f"the secret {stream.name!r}, shared with node {others}"
            got = f"{len(seeds)} others" if seeds else "none"
            remedy = "Agree on it with noisedesign.noise.Agreement."
            raise InputError("seeds", expected=expected, got=got, remedy=remedy)
        if self.secret is None:
            expected = "the dealer's, the same at every node, or seeds that a dealer gave"
            remedy = (
                "Noise of nodes with secrets of their own would not be correlated. "
                "noisedesign.noise.deal makes the seeds."
            )
            raise InputError("secret", expected=expected, got="none", remedy=remedy)
        return self.secret

    def _secret_of_batches(self, given: Secret | None, resume: bool) -> Secret | None:
        """One that no other node has: who knows the batches knows what was left to chance."""
        if given is not None:
            expected = "a Secret, or None"
            _checks.instance(given, Secret, field="batch_secret", expected=expected)
        rule = self.plan.claim.rule
        drawn, own = rule is not None and rule.random is not None, OWN in self.plan.sources
        if not drawn or own:
            if given is not None:
                why = "that of its noise" if drawn else "participation is not random"
                raise InputError("batch_secret", expected=f"none: {why}", got="one")
            return self.secret if drawn else None
        return new_secret(resume, field="batch_secret") if given is None else given

    def _drawn_from(self, stream: Stream) -> Secret:
        """Return its secret; where noise is dealt, the seed that a dealer would give away."""
        held = self._of[stream.name]
        if stream.source == DEALT and held is self.secret:
            return held.child(stream.name, digest=self.plan.digest)
        return held

    def _claimed(self, record: Record | None, resume: bool) -> tuple[tuple[str, ...], Uses | None]:
        """Return fingerprints of its secrets and their uses; two sources never share a secret."""
        entries: dict[str, tuple[str, bool]] = {}
        for stream in self.plan.streams:
            print_ = self._of[stream.name].fingerprint
            own = self._of[stream.name] is self.secret
            served = stream.source if own else stream.name
            served = served if self.use == NodeNoise.use else f"{self.use} {served}"
            if entries.setdefault(print_, (served, stream.source != OWN))[0] != served:
                expected, got = "a secret of its own for every seed", "one secret for two"
                raise InputError("seeds", expected=expected, got=got)
        if self.batch_secret is not None and self.batch_secret is not self.secret:
            print_ = self.batch_secret.fingerprint
            if print_ in entries:
                expected, got = "a secret of its own for batches", "that of some noise"
                raise InputError("batch_secret", expected=expected, got=got)
            entries[print_] = (BATCHES, False)
        if record is not None:
            uses = Uses(record, tuple(entries), self.plan.node, self.plan.horizon)
            uses.claim(entries, digest=self.plan.digest, resume=resume)
            return uses.secrets, uses
        if resume:
            expected = "the record of the run that goes on"
            remedy = "Without one nobody sees which noise was used: leave record=False out."
            raise InputError("record", expected=expected, got="none", remedy=remedy)
        return tuple(entries), None

    def _kept_in_files(self, every: int | None) -> States | None:
        """The files of what a run without an end keeps, beside its record; None: nowhere."""
        plan = self.plan
        if every is not None:
            _checks.positive_int(every, field="keep_every", minimum=0)
            if not plan.unbounded:
                expected, got = "nothing: the run has an end", f"{every}"
                raise InputError("keep_every", expected=expected, got=got)
        if not plan.unbounded or every == 0 or self._uses is None or self.secret is None:
            return None
        folder = self._uses.record.path
        return States(
            folder.with_name(f"{folder.name}.states"),
            secret=self.secret,
            digest=plan.digest,
            node=plan.node,
            every=EVERY if every is None else every,
        )

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Itself: its secrets serve one run, whoever copies the trainer that draws from it."""
        return self

    __copy__ = __deepcopy__

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused: what is unpickled would be a second run, and a pickle has the secrets in it."""
        expected = "noise in the process that made it"
        remedy = (
            "Send the plan, and make the noise where it is drawn, from the file of its "
            "secret; a checkpoint keeps state_dict()."
        )
        raise InputError("noise", expected=expected, got="a pickle of it", remedy=remedy)

    def _stepped(self, t: Any, array: Numbers, start: Any) -> None:
        t, start = self._begins(t, array.size, start)
        self._fill(t, array.reshape(-1), start)

    def _begins(self, t: Any, size: int, start: Any) -> tuple[int, int]:
        """Check the step and the start of a slice that is drawn next."""
        t = self._checked_step(t)
        start = _checks.positive_int(start, field="start", minimum=0)
        if start + size > MOST_SAMPLES:
            expected = f"at most {MOST_SAMPLES} numbers a step"
            raise InputError("start", expected=expected, got=f"{start + size}")
        if self._uses is not None and self._begun != t:  # marked as used: another run may go on
            self._uses.begin()
        self._begun = t
        return t, start

    def _fill(self, t: int, flat: Numbers, start: int) -> None:
        end = start + flat.size
        for block in range(start // BLOCK, -(-end // BLOCK)):
            first, last = max(start, block * BLOCK), min(end, (block + 1) * BLOCK)
            place = slice(first - block * BLOCK, last - block * BLOCK)
            with self._lock:
                flat[first - start : last - start] = self._block(t, block, place, flat.dtype)

    def _here(self) -> None:
        """Check that this is the process that made it: a fork draws the same noise again."""
        if os.getpid() != self._process:
            expected = f"the process that made it, {self._process}"
            got = f"a fork of it, {os.getpid()}"
            remedy = "Make it in the process that draws from it, after the fork."
            raise InputError("noise", expected=expected, got=got, remedy=remedy)

    def _checked_step(self, t: Any) -> int:
        self._here()
        return checked_step(t, self.plan.horizon)

    def _block(self, t: int, block: int, place: slice, dtype: np.dtype[Any]) -> Numbers:
        """The numbers at ``place`` of a block at step t."""
        if not self._recursion.rows:
            return self._recursion.step(t, self._white_of(block, place), np.empty((0, 0)))
        return self._carried(t, block, place.stop, dtype)[place]

    def _carried(self, t: int, block: int, width: int, dtype: np.dtype[Any]) -> Numbers:
        """The first ``width`` numbers of a block at step t, or more, by way of the steps before."""
        at, recursion = (block, dtype), self._recursion
        lane = self._lanes.get(at)
        if lane is not None and lane.step == t and width <= lane.width:
            found = recursion.latest(t, lane.kept)
            if found is None:
                found = self._latest.get(at)
            if found is not None:
                return found
        if lane is None or lane.step >= t or lane.width < width:
            if lane is not None and lane.width < width:  # in pieces: few are begun anew
                width = max(width, min(BLOCK, 2 * lane.width))
            elif lane is not None:
                width = lane.width
            lane = self._lane(at, t, width)
        white = self._white_of(block, slice(0, lane.width))
        noise: Numbers = np.empty(0)
        self._lanes.pop(at, None)  # until it is at t: a step that was interrupted is no step
        while lane.step < t:
            lane.step += 1
            noise = recursion.step(lane.step, white, lane.kept)
        self._lanes[at] = lane
        found = recursion.latest(t, lane.kept)
        if found is None:
            found = self._latest[at] = noise.astype(dtype, copy=False)
            self._latest.move_to_end(at)
            if len(self._latest) > LATEST:
                self._latest.popitem(last=False)
        return found

    def _lane(self, at: tuple[int, np.dtype[Any]], t: int, width: int) -> _Lane:
        """A block at the latest step before t that is kept, or before the first one."""
        kept = None if self._states is None else self._states.find(at, before=t, width=width)
        if kept is None:
            return _Lane(-1, np.zeros((self._recursion.rows, width), dtype=at[1]))
        return _Lane(*kept)

    def _white_of(self, block: int, place: slice) -> Callable[[int], Numbers]:
        """Step s -> sum_k a_k w_k,s at a place of a block."""

        def white(s: int) -> Numbers:
            total = self._draw(self.plan.streams[0], s, block, place)
            for stream in self.plan.streams[1:]:
                total += self._draw(stream, s, block, place)
            return total

        return white

    def _step_key(self, stream: str, step: int) -> bytes:
        return self._drawn[stream].step_key(stream, step, digest=self.plan.digest, use=self.use)

    @abstractmethod
    def _fresh_key(self, stream: str, step: int) -> Any:
        """Return the key of the draws of a stream and step."""

    @abstractmethod
    def _draw(self, stream: Stream, s: int, block: int, place: slice) -> Numbers:
        """Draws of a stream and step at a place of a block, times its coefficient."""

    @property
    def _divisor(self) -> int:
        """The number that sums are divided by before noise is added to them."""
        return self.plan.claim.batch_size or 1

    def check_sum(self, norm: float, *, records: int | None = None) -> None:
        """Check that a sum of clipped gradients may have this norm: no more than the clip a record.

        ``add_`` asks it of every sum; whoever adds :meth:`step` elsewhere asks it there.

        Args:
            norm: of all of its arrays together, divided as the plan says; not squared.
            records: how many gradients are in it at most; None: one, or the plan's batch size.

        Raises:
            InputError: a larger norm but for rounding (1e-3 of it), or none that is a number; a
                plan without a clip.
        """
        clip, size = self.plan.claim.clip, self._divisor
        if clip is None:
            raise _without("clip", "the norm that gradients are clipped to")
        count = self.plan.claim.batch_size or 1
        remedy = f"Clip the gradient of every record to {clip:g}, and scale nothing after."
        if records is not None:
            count = _checks.positive_int(records, field="records", minimum=0)
        else:
            remedy = f"Say who is in the sum, records=[...], or how many, records=n. {remedy}"
        norm = _checks.nonnegative(norm, field="norm")
        if norm <= (1 + OVER_CLIP) * clip * count / size:
            return
        of = f"{count} {'record' if count == 1 else 'records'} clipped to {clip:g}"
        if size > 1:
            of = f"{of} and divided by {size}"
            remedy = f"{remedy} Divide the sum by {size} before noise is added."
        expected = f"a sum of norm at most {clip * count / size:g}, of {of}"
        raise InputError(self._sums, expected=expected, got=f"norm {norm:g}", remedy=remedy)

    def _add(self, arrays: Sequence[Numbers], t: int, records: Records | None) -> None:
        """Noise of step t added in place to sums that it hides."""
        if not arrays:
            raise InputError("parameters", expected="at least one array", got="none")
        total, keys = Hidden(), self.hash_keys
        for at, array in enumerate(arrays):
            found = hidden([array], keys=keys, start=total.dimension)
            if not math.isfinite(found.norm):
                raise not_finite(f"{self._sums}[{at}]")
            total += found
        self.hide(t, self._scaled(total), records=records)
        start = 0
        for array in arrays:
            flat = array.reshape(-1)
            for low in range(0, flat.size, BLOCK):
                part = flat[low : low + BLOCK]
                noise = np.empty_like(part)
                self._fill(t, noise, start + low)
                if self._divisor > 1:
                    noise /= self._divisor
                part += noise
            start += flat.size
        if self._states is not None and self._states.due(t):
            with self._lock:
                kept = {at: lane.kept for at, lane in self._lanes.items() if lane.step == t}
                if kept:
                    self._states.keep(t, kept)

    def hide(self, t: int, sums: Hidden, *, records: Records | None = None) -> None:
        """Record what the noise of a step hides, before it is drawn by :meth:`step` where the model
        is: on a device, or in shards whose sums are added up. ``add_`` does both.

        Args:
            t: the step, zero-based.
            sums: the whole model's, by :attr:`hash_keys`.
            records: as of ``add_``.

        Raises:
            InputError: as ``add_``.
        """
        t = self._checked_step(t)
        if not math.isfinite(sums.norm):
            expected, got = "sums of finite numbers", f"norm {sums.norm:g}"
            raise InputError(self._sums, expected=expected, got=got)
        with self._lock:
            self._hides(t, sums, records)
            self._added = max(self._added, t)

    @property
    def hash_keys(self) -> HashKeys:
        """Keys of the hash by which the record knows what noise hides."""
        return HashKeys(self._record_key("32 bits"), self._record_key("64 bits"))

    def _scaled(self, sums: Hidden) -> Hidden:
        """The same sums with their norm in units of the gradients."""
        return sums

    def _hides(self, t: int, sums: Hidden, records: Records | None) -> None:
        """Noise of step t hides these sums of the gradients of ``records``, and nothing else."""
        if self.batch_secret is not None and self._batches is None:
            expected = "the batches of this node, drawn in secret, before noise is added"
            got = "none: nobody has asked for them"
            remedy = (
                "Take them once a run, source.batches(records), and hold your loop to them "
                "by source.attendance(batches); or design for fixed-epoch."
            )
            raise InputError("batches", expected=expected, got=got, remedy=remedy)
        most = (
            MOST_SAMPLES // 2 if sums.wide else MOST_SAMPLES
        )  # two words of a key hash a wide one
        if sums.dimension > most:
            expected = f"at most {most} numbers"
            raise InputError(self._sums, expected=expected, got=f"{sums.dimension}")
        attendance, found = self.attendance(), None
        number = attendance.number(t)
        if isinstance(records, (int, np.integer)):
            stated = _checks.positive_int(records, field="records", minimum=0)
            number = stated if number is None else min(number, stated)
        elif records is not None:
            expected = "the records in the sum, a list, or how many they are"
            records = _checks.listed(records, field="records", expected=expected)
            number, found = len(records), attendance._allowed(records, t)
        self.check_sum(sums.norm, records=number)
        who, data = None, sums.digest(self._record_key("data"))
        if self._batches is None:  # of batches that are drawn again nothing is kept
            self._all_told(attendance, t, now=found is not None)
            who = None if found is None else joined(attendance._new(found, t))
        if self._uses is not None:
            self._uses.use(t, data=data, dimension=sums.dimension, who=who)
        elif self._hidden.setdefault(t, data) != data:
            raise other_data(t)
        if found is not None:
            attendance._note(found, t)
        self._begun = t
        self._untold.add(t)

    def _all_told(self, attendance: Attendance, t: int, *, now: bool) -> None:
        """Check that who is in the sums is known of every step, once it is of one."""
        told = attendance.told
        if not (now or told):
            return
        self._untold = {step for step in self._untold if step not in told}
        missing = self._untold if t in told else self._untold | {t}
        if missing := missing - ({t} if now else set()):
            expected = f"who is in the sum of step {min(missing)}, as of other steps"
            remedy = (
                "Say it of every step: add_(sums, t, records=[...]), or before it "
                "source.attendance().check([...], t)."
            )
            raise InputError("records", expected=expected, got="nobody's word", remedy=remedy)

    def _record_key(self, of: str) -> bytes:
        """Who reads the record cannot try out guesses of what is hashed by it."""
        secret = self._of[self.plan.streams[0].name]
        return secret.step_key(of, 0, digest=self.plan.digest, use="record")

    def batches(self, records: int) -> RandomBatches:
        """Batches drawn in secret, as the random participation of the design says.

        Args:
            records: N, of the node, numbered 0 to N - 1: the same ones after a restart.

        Returns:
            The records of every step, the same whenever they are asked for.

        Raises:
            InputError: participation is not random; no number of records, or another one than
                an account was made for or than before.
        """
        self._here()
        if self.batch_secret is None:
            remedy = "Batches of a fixed order are noisedesign.noise.Batches."
            expected, got = "a design for random participation", f"{self.plan.claim.participation}"
            raise InputError("participation", expected=expected, got=got, remedy=remedy)
        if self._batches is None or self._batches.records != records:
            made = RandomBatches(self.plan, records=records, secret=self.batch_secret)
            if self._batches is not None:
                raise other_records(self._batches.records, made.records)
            if self._uses is not None:
                self._uses.draw(self.batch_secret.fingerprint, made.records)
            self._batches = made
        return self._batches

    def attendance(self, batches: RandomBatches | None = None) -> Attendance:
        """Who takes part when, from the first step on: before a restart, too, as recorded.

        Args:
            batches: where participation is random, by default those of :meth:`batches`.

        Returns:
            The attendance of this run, the same one whenever it is asked for.

        Raises:
            InputError: no batches where participation is random, or those of another design.
        """
        if self.plan.claim.rule is None:
            raise _without("rule", "who may take part when")
        if self._attendance is None or batches is not None:
            batches = self._batches if batches is None else batches
            rule, horizon = self.plan.claim.rule, self.plan.horizon
            register = Register(self._record_key("who"), self._uses, self._here)
            self._attendance = Attendance(rule, horizon=horizon, batches=batches, register=register)
        return self._attendance

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint of a training run.

        Returns:
            JSON values, without any secret.
        """
        return {
            "version": 1,
            "digest": self.plan.digest,
            "node": int(self.plan.node),  # not a Row, which torch.load refuses
            "secrets": list(self._used),
            "added": self._added,
        }

    def load_state_dict(self, state: Any) -> None:
        """Go on after :meth:`state_dict`.

        Args:
            state: what it gave.

        Raises:
            InputError: of another design, node or secret, or of a newer version; one that knows of
                a step that the record does not.
        """
        own = self.state_dict()
        if not isinstance(state, Mapping):
            raise InputError("state", expected="what state_dict gave", got=_checks.describe(state))
        for key in ("version", "digest", "node", "secrets"):
            if key not in state or state[key] != own[key]:
                got = _checks.describe(state.get(key))
                raise InputError(f"state.{key}", expected=f"{own[key]}", got=got)
        added = _checks.positive_int(state.get("added"), field="state.added", minimum=-1)
        if added >= self.plan.horizon:
            expected = f"a step before the horizon, {self.plan.horizon}"
            raise InputError("state.added", expected=expected, got=f"{added}")
        if self._uses is not None and added >= 0 and added not in self.steps:
            expected = f"step {added} among those whose noise was added"
            got = "one that does not know it"
            remedy = (
                "Name the record that the run began with. Where that is lost, nobody sees "
                "which noise was used: take new secrets."
            )
            raise InputError("record", expected=expected, got=got, remedy=remedy)
        self._added = added

    @property
    def steps(self) -> frozenset[int]:
        """The steps whose noise was added, as recorded, or without a record by this object."""
        if self._uses is None:
            return frozenset(self._hidden)
        return self._uses.record.steps(secret=self._used[0], node=self.plan.node)

    @property
    def recorded(self) -> bool:
        """Whether a record keeps what was drawn."""
        return self._uses is not None

    @property
    def next_step(self) -> int:
        """The step after the last whose noise was added, as recorded or as the checkpoint says."""
        return self._added + 1

    @property
    def claim(self) -> Claim:
        """The privacy that the design gives."""
        return self.plan.claim

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of the secrets it draws from, by which a ledger knows runs."""
        return self._used


def _without(key: str, expected: str) -> InputError:
    remedy = "State epsilon, delta and clip in [privacy], and make the node's plan anew."
    return InputError(f"plan.claim.{key}", expected=expected, got="none", remedy=remedy)


class NodeNoise(NodeSource):
    """Noise to add to the sum of a node's clipped gradients, as :func:`noisedesign.noise.noise`
    makes it.

    A step is asked for whole or in slices, and in any order; the bits are the same on every
    machine. Steps one after another are cheap; with bands or buffers going back, skipping, or
    asking again in a model of more than a million numbers computes the steps from the first one
    (O(t) times the work), and a dense C draws all steps up to t at every step. Memory: p - 1 arrays
    of the model's size for p bands, one a buffer, and less than 20 MB.

    Args:
        plan: what the node must know.
        secret: as of :func:`noisedesign.noise.noise`, like the others.
        seeds: likewise.
        record: where uses are recorded, or None.
        resume: whether it goes on with a run.
        batch_secret: what batches are drawn from.
        keep_every: after how many steps the buffers of a run without an end are kept.

    Raises:
        InputError: as :func:`noisedesign.noise.noise`.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0)
        >>> scheme = nd.participation.single(4)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> whole = source.step(2, 6)
        >>> parts = [source.step(2, 3), source.step(2, 3, start=3)]
        >>> bool((whole == np.concatenate(parts)).all())
        True
    """

    use = "noise"

    def step(
        self,
        t: int,
        shape: int | tuple[int, ...] | None = None,
        *,
        dtype: DTypeLike = np.float64,
        out: Floats | None = None,
        start: int = 0,
    ) -> Floats:
        """Noise of one step.

        Args:
            t: the step, zero-based.
            shape: of what is returned; not needed with ``out``.
            dtype: float64, or float32: then every step is rounded as it leaves.
            out: written to, in C order, in place of a new array; it says shape and dtype.
            start: place of the first number in the whole model, flattened.

        Returns:
            The noise, in units of the gradients; ``out`` where it is given.

        Raises:
            InputError: a step outside the horizon, another dtype, an ``out`` that is not
                contiguous or read-only.
        """
        array: Floats = output(shape, _dtype(dtype), out, allowed=_DTYPES)
        self._stepped(t, array, start)
        return array

    def _block(self, t: int, block: int, place: slice, dtype: np.dtype[Any]) -> Numbers:
        if self.plan.couplings is not None:
            return self._coupled(t, block, place)
        return super()._block(t, block, place, dtype)

    def _coupled(self, t: int, block: int, place: slice) -> Array:
        assert self.plan.couplings is not None
        total = np.zeros(place.stop - place.start)
        for s in range(t + 1):
            for stream, coupling in zip(self.plan.streams, self.plan.couplings[t, s], strict=True):
                if coupling:
                    total += self._draw(stream, s, block, place, coupling)
        return total

    def _draw(
        self, stream: Stream, s: int, block: int, place: slice, coupling: float = 1.0
    ) -> Array:
        """Normals of a stream and step, times its coefficient."""
        drawn = np.empty(place.stop - place.start)
        self._key(stream.name, s).fill(drawn, start=block * BLOCK + place.start)
        drawn *= coupling * stream.coefficient
        return drawn

    def _fresh_key(self, stream: str, step: int) -> Normals:
        return Normals(self._step_key(stream, step))

    def add_(self, parameters: Iterable[Any], t: int, *, records: Records | None = None) -> None:
        """Noise of one step added in place to the sum of clipped gradients.

        Where the plan has a batch size, sums divided by it get noise divided by it. The step is
        recorded with a hash of what the noise hides: the same again, after a crash, is the same
        again; anything else at that step is refused.

        Args:
            parameters: the sum, a list of arrays of float32 or float64, which are changed.
            t: the step, zero-based.
            records: those whose gradients are in it, by number or word, which :meth:`attendance` is
                told; or how many they are at most. None: those that it was told of or that were
                drawn, else one or, where the plan has a batch size, as many.

        Raises:
            InputError: as :meth:`check_sum` and :meth:`Attendance.check`; numbers that are not
                finite, not float32 or float64; a model of another size than before; a step outside
                the horizon, or one that other data had; random participation whose
                :meth:`batches` nobody has asked for.
        """
        t = self._checked_step(t)
        given = list_of_arrays(parameters, field=self._sums)
        arrays = [_gradient(array, at) for at, array in enumerate(given)]
        self._add(arrays, t, records)

    def rounding_error_bound(self, dtype: DTypeLike = np.float64) -> float:
        """The largest distance of any number of any step from exact noise: C^-1 in real numbers,
        and the exact logarithm, sine and cosine of the same words of ChaCha20.

        The bound takes every rounding to be the largest and of the worst sign; for buffers in
        float32 over thousands of steps it says little, and may be infinite. What is computed obeys
        C noise = w + e, with e bounded from the roundings of one step, so that
        ``|noise - exact| <= |C^-1| |e|``, whose sums of rows are computed in float64.

        Args:
            dtype: float64 or float32, as of :meth:`step`.

        Returns:
            The bound, not squared, in units of the gradients.

        Raises:
            InputError: another dtype.
        """
        plan = self.plan
        unit = float(np.finfo(_dtype(dtype)).eps) / 2
        sizes = np.abs([stream.coefficient for stream in plan.streams])
        terms = len(sizes) + 2
        if plan.couplings is not None:
            drawn = float((np.abs(plan.couplings) * sizes).sum(axis=(1, 2)).max()) * LARGEST
            terms += len(sizes) * plan.horizon
            return drawn * (RELATIVE_ERROR + 2 * terms * DOUBLE + unit) * (1 + SECOND_ORDER)
        white = float(sizes.sum()) * LARGEST
        inexact = white * (RELATIVE_ERROR + 2 * terms * DOUBLE)
        amplified = plan.filter.amplification(plan.horizon)
        by = plan.filter.rounding(unit, horizon=plan.horizon)
        if not amplified * by.of_noise < 1:
            return math.inf
        residual = inexact + by.of_white * white
        largest = amplified * (white + residual) / (1 - amplified * by.of_noise)
        return amplified * (residual + by.of_noise * largest) * (1 + SECOND_ORDER)


class _Lane:
    """A block of the model from step to step."""

    def __init__(self, step: int, kept: Numbers) -> None:
        self.step, self.width = step, kept.shape[1]
        self.kept = kept


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
        if found in _DTYPES:
            return found
        got = str(found)
    except (TypeError, ValueError):
        got = _checks.describe(dtype)
    raise _another_dtype("dtype", _DTYPES, got)


def _another_dtype(field: str, allowed: Sequence[np.dtype[Any]], got: str) -> InputError:
    return InputError(field, expected=" or ".join(map(str, allowed)), got=got)


def output(
    shape: Any, dtype: np.dtype[Any], out: Any, *, allowed: Sequence[np.dtype[Any]]
) -> Numbers:
    """A new array, or ``out`` where there is one of these dtypes that can be written to."""
    if out is None:
        if shape is None:
            raise InputError("shape", expected="a shape, or out", got="neither")
        try:
            return np.empty(shape, dtype=dtype)
        except (TypeError, ValueError):
            expected, got = "a shape of numbers >= 0", _checks.describe(shape)
            raise InputError("shape", expected=expected, got=got) from None
    _checks.instance(out, np.ndarray, field="out", expected="a numpy array")
    if out.dtype not in allowed:
        raise _another_dtype("out", allowed, str(out.dtype))
    _writeable(out, field="out")
    if shape is not None and math.prod(np.atleast_1d(shape)) != out.size:
        raise InputError("out", expected=f"shape {shape}", got=f"{out.shape}")
    found: Numbers = out
    return found


def _gradient(array: Any, at: int) -> Floats:
    field = f"parameters[{at}]"
    _checks.instance(array, np.ndarray, field=field, expected="a numpy array")
    if array.dtype not in _DTYPES:
        remedy = "Sum gradients in float32 or float64: in less, noise is rounded away."
        raise InputError(field, expected="float32 or float64", got=str(array.dtype), remedy=remedy)
    _writeable(array, field=field)
    found: Floats = np.asarray(array)
    return found


def check_finite(array: Numbers, *, field: str) -> None:
    """Check gradients, a block at a time."""
    flat = array.reshape(-1)
    if not all(np.isfinite(flat[low : low + BLOCK]).all() for low in range(0, flat.size, BLOCK)):
        raise not_finite(field)


def not_finite(field: str) -> InputError:
    """Make the error for gradients that are no numbers."""
    remedy = "Drop examples whose gradient is not finite before they are summed."
    return InputError(field, expected="finite numbers", got="one that is not", remedy=remedy)


def list_of_arrays(value: Any, *, field: str) -> list[Any]:
    """List arrays; one alone could be taken for a list of its rows."""
    expected = "a list of arrays"
    if isinstance(value, np.ndarray):
        got, remedy = _checks.describe(value), "Put it into a list, [array]."
        raise InputError(field, expected=expected, got=got, remedy=remedy)
    return _checks.listed(value, field=field, expected=expected)


def _writeable(array: NDArray[Any], *, field: str) -> None:
    got = "" if array.flags.writeable else "one that is read-only"
    if not array.flags.c_contiguous:
        got = f"one of shape {array.shape} and strides {array.strides}"
    if got:
        raise InputError(field, expected="a writeable array in C order", got=got)


def noise(
    design: Any,
    *,
    node: Node | None = None,
    secret: Secret | bytes | str | Path | None = None,
    seeds: Mapping[str, Secret] | None = None,
    clip: float | None = None,
    batch_size: int | None = None,
    record: str | Path | Literal[False] | None = None,
    resume: bool = False,
    batch_secret: Secret | bytes | str | Path | None = None,
    keep_every: int | None = None,
) -> NodeNoise:
    """The noise of one node of a design.

    Args:
        design: a :class:`Plan`, the path of a node's file, or of the whole toolkit a design, a
            solution, and what was loaded of a design or an export.
        node: its name, a text, or its row, zero-based; a node's file knows its own.
        secret: the node's own, by default a new one, kept in ``.secret``: save it, where the run
            may have to go on. Of noise that is dealt the dealer's, unless seeds are given.
        seeds: the secrets it shares, or that a dealer gave it, by name of their streams.
        clip: the norm gradients are clipped to; must be that of the design.
        batch_size: what sums, and the noise for them, are divided by before it is added; must be
            that of a plan, where ``design`` is one, and be stated.
        record: where uses of secrets are recorded, by default ``$NOISEDESIGN_RECORDS`` or the
            user's state folder; False records nothing, and then nobody sees a second use.
        resume: go on with a run that began before: its record knows it.
        batch_secret: what batches are drawn from, where participation is random and all noise is
            shared; by default a new one, kept in ``.batch_secret``. Others draw from ``secret``.
        keep_every: of a run without an end that is recorded: after so many steps, 64 by default,
            its buffers are kept, encrypted under its secret, in a folder beside the record, and
            ``resume`` goes on from there; 0 keeps none, and ``resume`` begins at the first step.

    Returns:
        The noise, step by step.

    Raises:
        InputError: no such node; a secret that another node, design or run has used; a run that
            goes on and that the record does not know; a missing seed; another clip or batch size.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.noise import Secret, noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> design = nd.solve(problem).design
        >>> source = noise(design, node=0, secret=Secret.new(), clip=1.0, record=False)
        >>> gradients = [np.ones((2, 2)), np.zeros(3)]  # the sum of clipped ones
        >>> source.add_(gradients, 0, records=["ann", "bob"])
        >>> bool((gradients[0] != 1).all()), source.next_step
        (True, 1)
    """
    plan = plan_of(design, node, batch_size=batch_size)
    if batch_size is None and plan.claim.batch_size is not None:
        size = plan.claim.batch_size
        expected = f"{size}, which sums are divided by before noise is added"
        remedy = (
            f"State batch_size={size} where that is so; else make the plan without it: "
            "noise for divided sums is too little for sums."
        )
        raise InputError("batch_size", expected=expected, got="nothing", remedy=remedy)
    agrees("clip", clip, plan.claim.clip)
    own = None
    if secret is not None:
        if not plan.sources & {OWN, DEALT}:
            expected = "none: all noise of this node is from shared seeds"
            raise InputError("secret", expected=expected, got="one")
        own = Secret.of(secret)
    elif OWN in plan.sources:
        own = new_secret(resume)
    kept = None if record is False else Record(record)
    held = {} if seeds is None else seeds
    drawn = None if batch_secret is None else Secret.of(batch_secret, field="batch_secret")
    try:
        return NodeNoise(
            plan,
            secret=own,
            seeds=held,
            record=kept,
            resume=resume,
            batch_secret=drawn,
            keep_every=keep_every,
        )
    except OtherNodeError as error:
        raise _named(error, design) from None


def _named(error: OtherNodeError, design: Any) -> OtherNodeError:
    """The same error with names; with rows where a file knows one node alone."""
    try:
        return OtherNodeError.of(*(plan_of(design, Row(node)).name for node in error.nodes))
    except InputError:
        return error


def new_secret(resume: Any, *, field: str = "secret") -> Secret:
    """Draw the secret of a run that begins."""
    if resume is True:
        expected = "that of the run that goes on"
        raise InputError(field, expected=expected, got="none", remedy=ALL_OF_THEM)
    return Secret.new()


def plan_of(design: Any, node: Node | None, *, batch_size: int | None = None) -> Plan:
    """Return the part of ``node`` of a design or a file."""
    found = Plan.load(design) if isinstance(design, (str, Path)) else design
    for one in (found, getattr(found, "design", None)):
        make: Callable[..., Plan] | None = getattr(one, "node_plan", None)
        if make is not None:
            return make(node, batch_size=batch_size)
    expected = "a design, what was loaded of one, or the path of a node's file"
    raise InputError("design", expected=expected, got=_checks.describe(design))
