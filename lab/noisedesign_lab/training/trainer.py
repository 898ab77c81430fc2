"""Decentralised SGD, all seeds and lanes of a block at once:
theta <- W^K (theta - eta_t (sum of clipped gradients + sigma z_t) / b), or what an optimizer makes
of the noisy gradients, which is post-processing. A trusted server's lane has
11^T / n in the place of W^K; noise on messages comes after mixing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from types import NoneType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks, memory
from noisedesign.base.checks import Array, InputError
from noisedesign.noise.rules import RULE, Rule
from noisedesign_lab.datasets import Examples, Places
from noisedesign_lab.training import measures
from noisedesign_lab.training.gossip import Gossip, Rounds
from noisedesign_lab.training.losses.loss import Batch, Loss
from noisedesign_lab.training.measures import Measurement
from noisedesign_lab.training.noise import MessageNoise, Source, WhiteNoise
from noisedesign_lab.training.optimizers import Optimizer
from noisedesign_lab.training.partition import Dealing, Partition, deal
from noisedesign_lab.training.seeding import Use, generator

DIVERGED = 1e6  # loss over its size at the start (or 1) beyond which a run diverged, by default


@dataclass(frozen=True, kw_only=True, eq=False)
class Lane:
    """One column of models: noise ``source`` times ``stddev`` (not squared, in units of a step's
    sum), step sizes, K ``rounds`` or a ``server``, and the rule of random batches it counts on."""

    source: Source | None = None
    stddev: float = 0.0
    step_sizes: Any = 1.0
    rounds: int = 1
    server: bool = False
    counts_on: Rule | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _checks.nonnegative(self.stddev, field="stddev")
        _checks.positive_int(self.rounds, field="rounds")
        if self.counts_on is not None:
            _checks.instance(self.counts_on, Rule, field="counts_on", expected=RULE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """The view of one step; arrays are read-only and gone after it. ``gradients`` and ``messages``,
    (S, n, E, d), are without noise on messages, which ``message_noise`` has by number of lane."""

    step: int
    batch: Batch
    gradients: Array
    messages: Array
    message_noise: dict[int, Array]
    models: Array


class Observer(Protocol):
    """Who looks at a run: an attack, an audit."""

    def __call__(self, seen: Seen, /) -> None: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """The settings that all seeds and lanes of a run share, see
    :class:`noisedesign_lab.TrainingTask`; ``rule`` says at which steps one record may take part."""

    loss: Loss
    examples: Examples
    partition: Partition
    gossip: Gossip
    rule: Rule
    horizon: int
    clip: float = 1.0
    batch_size: int | None = None
    record: Any = None
    test: Examples | None = None
    measured: int | None = None
    whose: str = "nodes"
    bound: float = DIVERGED
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        kinds: dict[str, tuple[Any, str]] = {
            "loss": (Loss, "a loss, as noisedesign_lab.training.losses has them"),
            "examples": (Examples, "Examples(features=..., targets=...)"),
            "test": ((Examples, NoneType), "Examples(features=..., targets=...) or None"),
            "partition": (Callable, "a function, as noisedesign_lab.training.partition makes them"),
            "optimizer": ((Optimizer, NoneType), "Momentum(...), AdamW(...) or None"),
            "gossip": (Gossip, "FixedGossip(mixing=...) or RandomGossip(random=...)"),
        }
        for field, (kind, expected) in kinds.items():
            _checks.instance(getattr(self, field), kind, field=field, expected=expected)
        horizon = _checks.positive_int(self.horizon, field="horizon")
        _checks.instance(self.rule, Rule, field="rule", expected=RULE)
        if self.clip != np.inf:
            _checks.scale(self.clip, field="clip")
        _checks.one_of(self.whose, field="whose", allowed=measures.MODELS)
        _checks.real(self.bound, field="bound", low=1.0)
        if self.measured is not None:
            _checks.positive_int(self.measured, field="measured")
        steps = [horizon]
        if self.record is not None:
            steps = _checks.listed(self.record, field="record", expected="a list of steps")
        for step in steps:
            _checks.positive_int(step, field="record", minimum=0)
            if step > horizon:
                raise InputError("record", expected=f"steps 0 to {horizon}", got=str(step))
        object.__setattr__(self, "record", tuple(sorted(set(steps))))

        for field in ("examples", "test"):
            if (examples := getattr(self, field)) is None:
                continue
            try:
                self.loss.value(
                    np.zeros((1, self.loss.dimension)), examples.at(np.zeros(1, np.intp))
                )
            except (ValueError, IndexError) as error:
                expected = "examples as the loss takes them"
                got = f"{examples.features.shape[1]} features: {error}"
                raise InputError(field, expected=expected, got=got) from error

    @property
    def nodes(self) -> int:
        """n."""
        return self.gossip.nodes

    @cached_property
    def shared(self) -> NDArray[np.intp]:
        """Coordinates that leave a node, in ascending order."""
        every = np.arange(self.loss.dimension)
        return every if self.loss.private is None else np.delete(every, self.loss.private)


class _Dealt:
    """The data of a block of seeds: whose examples are whose, and the batches of every step."""

    def __init__(self, run: Run, seeds: Sequence[int]) -> None:
        self.examples, self.horizon = run.examples, run.horizon
        parts = [self._parts(run, seed) for seed in seeds]
        self.batches = [
            [self._batches(run, part, seed, node) for node, part in enumerate(of_seed)]
            for seed, of_seed in zip(seeds, parts, strict=True)
        ]
        self.parts = parts
        self.sizes = np.array([[one.size for one in of_seed] for of_seed in self.batches])
        self.train = [
            _some(run.examples, np.concatenate(list(of_seed)), run.measured, seed, 0)
            for seed, of_seed in zip(seeds, parts, strict=True)
        ]
        every = np.arange(0 if run.test is None else len(run.test))
        self.test = [
            _some(run.test, every, run.measured, seed, 1) for seed in seeds if run.test is not None
        ]
        rounds = {batches.period for of_seed in self.batches for batches in of_seed}
        self._period = rounds.pop() if len(rounds) == 1 else run.horizon
        self._known: dict[int, Batch] = {}

    @staticmethod
    def _parts(run: Run, seed: int) -> Sequence[Places]:
        field, rng = "partition", generator(seed, Use.PARTS)
        try:
            parts = [np.asarray(part) for part in run.partition(rng)]
        except (TypeError, ValueError) as error:
            expected = "from a numpy generator to the places of every node's examples"
            raise InputError(field, expected=expected, got=str(error)) from error
        if len(parts) != run.nodes:
            expected = f"the examples of {run.nodes} nodes"
            raise InputError(field, expected=expected, got=f"those of {len(parts)}")
        for node, part in enumerate(parts):
            if part.ndim != 1 or part.dtype.kind not in "iu" or not part.size:
                expected, got = "an array of places for every node", _checks.describe(part)
                raise InputError(field, expected=expected, got=f"{got} at node {node}")
            if part.min() < 0 or part.max() >= len(run.examples):
                got = f"{part.min()} to {part.max()} at node {node}"
                raise InputError(field, expected=f"places 0 to {len(run.examples) - 1}", got=got)
        return parts

    @staticmethod
    def _batches(run: Run, part: Places, seed: int, node: int) -> Dealing:
        try:
            return deal(
                run.rule,
                horizon=run.horizon,
                records=len(part),
                batch_size=run.batch_size,
                rng=generator(seed, Use.BATCHES, node),
            )
        except InputError as error:
            raise error.told(remedy=f"{error.remedy} (at node {node})".strip()) from error

    def at(self, step: int) -> Batch:
        """The batches of one step."""
        place = step % self._period
        if place not in self._known:
            if self._period == self.horizon:
                self._known.clear()
            self._known[place] = self._made(step)
        return self._known[place]

    def _made(self, step: int) -> Batch:
        chosen = [
            [part[dealing.batches[step]] for part, dealing in zip(parts, of_seed, strict=True)]
            for parts, of_seed in zip(self.parts, self.batches, strict=True)
        ]
        most = max(1, *(len(one) for of_seed in chosen for one in of_seed))
        places = np.zeros((len(chosen), len(chosen[0]), most), dtype=np.intp)
        present = np.zeros(places.shape)
        for s, of_seed in enumerate(chosen):
            for node, one in enumerate(of_seed):
                places[s, node, : len(one)] = one
                present[s, node, : len(one)] = 1.0
        return Batch(examples=self.examples, places=places, present=present)


def _some(examples: Examples, places: Places, count: int | None, seed: int, which: int) -> Examples:
    if count is not None and count < len(places):
        rng = generator(seed, Use.EXAMPLES, which)
        places = np.sort(rng.choice(places, size=count, replace=False))
    return examples.at(places)


class _Lanes:
    """The lanes of a run, sorted so that what is done alike lies side by side."""

    def __init__(self, lanes: Sequence[Lane], horizon: int) -> None:
        known = {id(one.source): one.source for one in lanes if one.source is not None}
        sources = list(known.values())
        numbers = {source: number for number, source in enumerate(known)}
        kinds = [(one.server, one.rounds, numbers.get(id(one.source), -1)) for one in lanes]
        self.order = sorted(range(len(lanes)), key=lambda number: kinds[number])
        self.back = np.argsort(self.order)
        self.mixed: list[tuple[slice, bool, int]] = []
        self.noisy: list[tuple[slice, Source]] = []
        start = 0
        for (server, rounds, place), group in groupby(self.order, key=lambda k: kinds[k]):
            stop = start + len(list(group))
            here = slice(start, stop)
            if place >= 0:
                self.noisy.append((here, sources[place]))
            if self.mixed and self.mixed[-1][1:] == (server, rounds):
                here = slice(self.mixed.pop()[0].start, stop)
            self.mixed.append((here, server, rounds))
            start = stop
        self.stddev = np.array([lanes[k].stddev for k in self.order])
        self.step_sizes = np.stack(
            [
                _checks.positive_vector(lanes[k].step_sizes, field="step_sizes", length=horizon)
                for k in self.order
            ],
            axis=1,
        )  # (T, E)


def check_batches(run: Run, *, seed: int) -> None:
    """Check that the examples of every node are dealt into batches as the rule says."""
    _Dealt(run, [seed])


def train(
    run: Run, lanes: Sequence[Lane], *, seeds: Sequence[int], observer: Observer | None = None
) -> Iterator[Measurement]:
    """Yield the measurements of a run as its steps are done, arrays of shape (S, E). One seed alone
    gives what it gives among others, and so does one lane, up to rounding."""
    if not lanes or not seeds:
        raise InputError("seeds", expected="at least one lane and one seed", got="none")
    for seed in seeds:
        _checks.seed(seed, field="seeds")
    for lane in lanes:
        if lane.counts_on not in (None, run.rule):
            expected = f"batches drawn at random, as the noise of {lane.name!r} counts on"
            remedy = "Train by that rule, or scale the noise for batches in any order."
            raise InputError("rule", expected=expected, got="others", remedy=remedy)
    width = len(seeds) * run.nodes * run.loss.dimension
    # A step holds models before and after mixing, gradients, and what a loss makes of them.
    memory.require(lambda count: 4 * 8 * width * count, len(lanes), field="lanes", of="lanes")
    return _Block(run, lanes, seeds, observer).measurements()


class _Block:
    """Some seeds of a run, and their models."""

    def __init__(
        self, run: Run, lanes: Sequence[Lane], seeds: Sequence[int], observer: Observer | None
    ) -> None:
        self.run, self.lanes, self.seeds, self.observer = run, lanes, seeds, observer
        self.sorted = _Lanes(lanes, run.horizon)
        self.dealt = _Dealt(run, seeds)
        n, d = run.nodes, run.loss.dimension
        starts = [run.loss.start(generator(seed, Use.START)) for seed in seeds]
        start = np.stack([np.broadcast_to(one, (n, d)) for one in starts])
        self.models = np.repeat(start[:, :, None], len(lanes), axis=2)
        self.spare = np.empty_like(self.models)
        self.diverged = np.zeros((len(seeds), len(lanes)), dtype=bool)
        self.limit: Array | None = None
        self.update = None if run.optimizer is None else run.optimizer.start()
        self.white = WhiteNoise(seeds, shape=(n, len(run.shared)), steps=run.horizon)
        self.noise = [source.stream(self.white) for _, source in self.sorted.noisy]
        self.single = [
            source.drawn(self.white)
            if isinstance(source, MessageNoise) and source.every_message and observer is not None
            else None
            for _, source in self.sorted.noisy
        ]
        self.server = np.full((n, n), 1 / n)  # every node gets the average of all

    def measurements(self) -> Iterator[Measurement]:
        wanted = set(self.run.record)
        for step in range(self.run.horizon + 1):
            with np.errstate(over="ignore", invalid="ignore"):  # diverged runs are told as such
                if step:
                    self._step(step - 1)
                found = self._measured(step) if step == 0 or step in wanted else None
            if found is not None and step in wanted:
                yield found

    # --- a step -----------------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        run, models = self.run, self.models
        batch = self.dealt.at(step)
        sums = run.loss.clipped_sums(models, batch, clip=run.clip)
        self._check_clip(sums, batch)
        gradients = sums[:, :, self.sorted.back] if self.observer is not None else sums
        own = run.loss.private
        drawn = [next(noise) for noise in self.noise]
        self._descend(sums, drawn, self.sorted.step_sizes[step])
        kept = None if own is None else models[..., own].copy()
        messages = models[:, :, self.sorted.back] if self.observer is not None else models
        self._mix(run.gossip.at(step, self.seeds))
        for (here, source), noise in zip(self.sorted.noisy, drawn, strict=True):
            if source.on_messages:
                scale = self._largest_scale[:, None, here, None] * self.sorted.stddev[here, None]
                self.models[:, :, here] += scale * self._everywhere(noise)[:, :, None]
        if kept is not None:
            self.models[..., own] = kept
        if self.observer is not None:
            single = self._single_messages()
            after = self.models[:, :, self.sorted.back]
            for array in (gradients, messages, after):
                array.flags.writeable = False
            self.observer(
                Seen(
                    step=step,
                    batch=batch,
                    gradients=gradients,
                    messages=messages,
                    message_noise=single,
                    models=after,
                )
            )

    def _check_clip(self, sums: Array, batch: Batch) -> None:
        """Check that m clipped gradients sum to a norm of m clips at most."""
        if self.run.clip == np.inf:
            return
        shared = sums if self.run.loss.private is None else sums[..., self.run.shared]
        norms = np.sqrt(np.einsum("sned,sned->sne", shared, shared))
        most = self.run.clip * batch.present.sum(axis=2)[..., None]
        if (norms > most * (1 + 1e-9)).any():  # a batch of a million rounds by less
            expected = f"sums of gradients, each clipped to a norm of {self.run.clip:g}"
            remedy = "Clip in clipped_sums: no account holds for gradients of any length."
            raise InputError("loss", expected=expected, got="a longer sum", remedy=remedy)

    @cached_property
    def _largest_scale(self) -> Array:
        """The most that a unit change of a sum moves a model, (S, E)."""
        return np.asarray(
            self.sorted.step_sizes.max(axis=0) / self.dealt.sizes.min(axis=1)[:, None]
        )

    def _single_messages(self) -> dict[int, Array]:
        found = {}
        for (here, _), stream in zip(self.sorted.noisy, self.single, strict=True):
            if stream is None:
                continue
            drawn = next(stream)
            for place in range(here.start, here.stop):
                scale = self._largest_scale[:, place] * self.sorted.stddev[place]
                found[self.sorted.order[place]] = scale[:, None, None] * drawn
        return found

    def _everywhere(self, noise: Array) -> Array:
        """Noise of the coordinates that leave a node, with zeros at the others."""
        if self.run.loss.private is None:
            return noise
        found = np.zeros((*noise.shape[:-1], self.run.loss.dimension))
        found[..., self.run.shared] = noise
        return found

    def _descend(self, sums: Array, drawn: Sequence[Array], step_sizes: Array) -> None:
        """theta -= eta (sums + sigma z) / b, in place."""
        rates = step_sizes if self.update is None else np.ones_like(step_sizes)
        terms = []
        for (here, source), noise in zip(self.sorted.noisy, drawn, strict=True):
            if not source.on_messages:
                terms.append((here, self._everywhere(noise)))
        # Wide models are updated node by node, so that what is added stays in the cache.
        wide = sums.shape[2] * sums.shape[3] > 2**15
        for s in range(len(sums)):
            places = range(sums.shape[1]) if wide else [slice(None)]
            for i in places:
                added = sums[s, i]
                for here, noise in terms:
                    added[..., here, :] += (
                        self._stddev[s, i][..., here, None] * noise[s, i][..., None, :]
                    )
                added *= (rates / self.dealt.sizes[s, i][..., None])[..., None]
                if self.update is None:
                    self.models[s, i] -= added
        if self.update is not None:
            self.models -= step_sizes[:, None] * self.update(sums, self.models)

    @cached_property
    def _stddev(self) -> Array:
        """Standard deviation of the noise in sums of gradients, (S, n, E)."""
        sizes = self.dealt.sizes[:, :, None]
        server = np.array([self.lanes[k].server for k in self.sorted.order])
        # A server averages sums that smaller batches divide by less: the smallest one decides.
        factor = np.where(server, sizes / sizes.min(axis=1, keepdims=True), 1.0)
        return np.asarray(factor * self.sorted.stddev)

    def _mix(self, rounds_of: Rounds) -> None:
        s, n, _, d = self.models.shape
        mixed = self.spare
        for here, server, rounds in self.sorted.mixed:
            by = self.server if server else rounds_of(rounds)
            for k in range(s):
                flat = self.models[k].reshape(n, -1)[:, here.start * d : here.stop * d]
                out = mixed[k].reshape(n, -1)[:, here.start * d : here.stop * d]
                np.matmul(by if by.ndim == 2 else by[k], flat, out=out)
        self.models, self.spare = mixed, self.models

    # --- what is measured -------------------------------------------------------------------------

    def _measured(self, step: int) -> Measurement:
        run, models, dealt = self.run, self.models, self.dealt
        finite = np.isfinite(models).all(axis=(1, 3))
        how: dict[str, Any] = {"loss": run.loss, "whose": run.whose}
        trained = list(zip(models, dealt.train, strict=True))
        tested = list(zip(models, dealt.test, strict=True)) if dealt.test else []
        of_train = np.stack([measures.losses(*one, **how) for one in trained])
        of_test = np.stack([measures.losses(*one, **how) for one in tested]) if tested else None
        judged = (measures.accuracies(*one, **how) for one in tested or trained)
        hits = [found for found in judged if found is not None]
        if self.limit is None:
            self.limit = run.bound * np.maximum(1.0, np.abs(of_train))
        beyond = ~finite
        for found in (of_train, of_test):
            if found is not None:
                beyond |= ~(np.abs(found) <= self.limit)
        self.diverged |= beyond
        self.models[np.broadcast_to(self.diverged[:, None], self.models.shape[:3])] = 0.0
        apart = measures.consensus_distance(self.models)
        back, gone = self.sorted.back, self.diverged[:, self.sorted.back]

        def told(found: Array) -> Array:
            return np.where(gone, np.nan, found[:, back])

        return Measurement(
            step=step,
            train_loss=told(of_train),
            test_loss=None if of_test is None else told(of_test),
            accuracy=told(np.stack(hits)) if hits else None,
            consensus_distance=told(apart),
            diverged=gone,
        )
