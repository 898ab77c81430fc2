"""A training task: data, loss, network, mechanisms and budgets, and the rows that come of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.privacy.runs import Responses, responses_of
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, PrivacyTarget
from noisedesign.system.gossip import check_schedule, checked_rounds
from noisedesign.system.participation import Participation
from noisedesign.system.random_mixing import RandomMixing
from noisedesign_lab.datasets import Examples
from noisedesign_lab.tasks import mechanisms as catalogue
from noisedesign_lab.tasks.accounts import ACCOUNTS, FIXED, RANDOM, Scale, meeting, of_noise
from noisedesign_lab.tasks.mechanisms import Mechanism, Network
from noisedesign_lab.training.gossip import FixedGossip, Gossip, RandomGossip
from noisedesign_lab.training.losses.loss import Loss
from noisedesign_lab.training.measures import Measurement
from noisedesign_lab.training.noise import MessageNoise
from noisedesign_lab.training.partition import Partition
from noisedesign_lab.training.trainer import DIVERGED, Lane, Observer, Run, check_batches, train

Row = dict[str, Any]
Value = TypeVar("Value", int, float, str)
FINISHED, DIVERGED_STATUS = "ok", "diverged"


def columns(said: str) -> dict[str, type]:
    """Return names and types of columns, from text like "name:str number": float by default."""
    types = {"str": str, "int": int, "": float}
    pairs = (word.partition(":") for word in said.split())
    return {name: types[of] for name, _, of in pairs}


COLUMNS = columns(
    "mechanism:str epsilon delta seed:int step:int train_loss test_loss accuracy "
    "consensus_distance mu stddev protects:str account:str which:str confidence responses:str "
    "status:str"
)
"""Columns of a row and their types; a cell without a value is None.

``mu`` (not squared) is what the noise gives before the adversary that ``protects`` names, None by
a random account; ``stddev`` is that of noise in a node's sum of clipped gradients; ``which`` is
what bounds epsilon, and where the account is the fixed one after all, why.
"""

NO_NOISE = "none"  # the mechanism that needs no budget
NO_BUDGET = "none"  # the budget of a mechanism without noise
MOST_ASKED = 100_000  # seeds of a task: more is a mistake
BLOCK_FLOATS, MOST_SEEDS = 2**22, 8  # numbers of models, and seeds, that are run together at most
LANE_FLOATS = 2**25  # numbers of the models of one seed at a time (256 MB); others come after


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingTask(Shown):
    """The data, loss, network, mechanisms and budgets of one training.

    Where a loss keeps coordinates at a node, a node remembers examples that take no part in a step,
    and no account of single examples holds: there are noise multipliers then, and no epsilon.

    Args:
        loss: one of :mod:`noisedesign_lab.training.losses`, or one of one's own with what
            :class:`noisedesign_lab.training.losses.loss.Loss` asks for.
        examples: training data.
        partition: from a numpy generator to the places of every node's examples, an integer array
            each; drawn for every seed. :mod:`noisedesign_lab.training.partition` makes them.
        mixing: W, shape (n, n), row stochastic, or a schedule of P of them,
            step t having number t modulo P; with ``random`` the W of a step without failures.
        participation: T, and in which steps one example may take part; batches are dealt so.
        mechanisms: names, see :func:`noisedesign_lab.tasks.mechanisms.mechanism`, or mechanisms.
        epsilons: budgets, each of every mechanism.
        noise_multipliers: in the place of epsilons, standard deviations of noise over the clip.
        delta: of the budgets.
        accounts: "fixed", that of batches in any order the participation allows, and "random",
            which counts on batches drawn at random; each for every budget. Default: "random" where
            the participation is.
        responses: how gradients answer to models, which noise on messages has to know; see
            :class:`noisedesign.privacy.runs.Responses`.
        adjacency: "replace", "zero-out" or "add-remove"; one record is one example of one node.
        clip: bound on the Euclidean norm of an example's gradient (not squared).
        step_sizes: eta, a number or shape (T,).
        batch_size: the most of a batch of a node; default: as many batches as the participation
            says.
        rounds: K, gossip rounds a step; mechanisms with a K of their own have that.
        random: the distribution W is drawn from; None: W is what it is.
        seeds: integers >= 0, or how many.
        record: steps after which models are measured, in 0..T; default: the last.
        test: examples nobody trains on.
        measured: on how many examples losses are measured, drawn for every seed; None: all.
        whose: "nodes", mean loss of the nodes' models, or "mean", loss of the mean model.
        bound: a loss beyond so many times its size at the start (or 1) is divergence.
        max_variance: cap on the noise of every node in space (squared, at unit budgets), for graphs
            that cancel it without bound.
        name: of the task.
        identity: text that says everything above but the names of mechanisms, budgets, seeds and
            recorded steps, so that rows are known again: data, loss, and designs of one's own too;
            "": nothing does, and rows cannot be kept.

    Raises:
        InputError: naming the argument: a value of another type; W that is not row stochastic, an
            unknown mechanism, budgets beside noise multipliers, or for a loss that keeps
            coordinates at a node.

    Examples:
        Twelve records of three nodes, each in one batch an epoch, and a linear loss.

        >>> import numpy as np
        >>> import noisedesign as nd
        >>> import noisedesign_lab as lab
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import Quadratic
        >>> from noisedesign_lab.training.partition import iid
        >>> task = lab.TrainingTask(
        ...     loss=Quadratic(dimension=1, curvature=0.0),
        ...     examples=Examples(features=np.ones((12, 1)), targets=np.zeros(12)),
        ...     partition=iid(12, 3),
        ...     mixing=np.full((3, 3), 1 / 3),
        ...     participation=nd.participation.FixedEpoch(epochs=2, separation=2),
        ...     mechanisms=["none"],
        ... )
        >>> (row,) = lab.train(task).rows
        >>> print(f"{row['train_loss']:.2f}")  # four steps of 0.1 down a slope of 1
        -0.40
    """

    loss: Loss
    examples: Examples
    partition: Partition
    mixing: Any
    participation: Participation
    mechanisms: Sequence[str | Mechanism] = ("none", "ldp")
    epsilons: Sequence[float] | None = None
    noise_multipliers: Sequence[float] | None = None
    delta: float = DEFAULT_DELTA
    adjacency: str = DEFAULT_ADJACENCY
    accounts: Sequence[str] | None = None
    responses: str | Responses = "any"
    clip: float = 1.0
    step_sizes: Any = 0.1
    batch_size: int | None = None
    rounds: int = 1
    random: RandomMixing | None = None
    seeds: Any = 1
    record: Any = None
    test: Examples | None = None
    measured: int | None = None
    whose: str = "nodes"
    bound: float = DIVERGED
    max_variance: float | None = None
    name: str = "training"
    identity: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        schemes, random = "fixed_epoch(...) or another scheme", (RandomMixing, NoneType)
        of_mixing = "NodeDropout(...) or another RandomMixing, or None"
        scheme = self.participation
        _checks.instance(scheme, Participation, field="participation", expected=schemes)
        _checks.instance(self.random, random, field="random", expected=of_mixing)
        _checks.text(self.name, field="name")
        _checks.text(self.identity, field="identity")
        if self.max_variance is not None:
            _checks.scale(self.max_variance, field="max_variance")
        mean, schedule = check_schedule(self.mixing, stochastic="row")
        object.__setattr__(self, "mixing", mean if schedule is None else schedule)
        if self.random is not None and len(self.random.mean) != len(mean):
            got = f"one of {len(self.random.mean)}"
            raise InputError("random", expected=f"a mixing of {len(mean)} nodes", got=got)
        checked_rounds(self.rounds, field="rounds")
        responses_of(self.responses)
        _checks.scale(self.clip, field="clip")
        _checks.positive_vector(self.step_sizes, field="step_sizes", length=scheme.horizon)
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        if self.epsilons is not None and self.noise_multipliers is not None:
            raise InputError("epsilons", expected="nothing beside noise_multipliers", got="some")
        for name in ("epsilons", "noise_multipliers"):
            if (budgets := getattr(self, name)) is not None:
                object.__setattr__(self, name, _budgets(budgets, field=name))
        object.__setattr__(self, "accounts", _accounts(self.accounts, scheme))
        run_of_all = self.run_of_all  # which checks what mechanisms share
        for epsilon in self.epsilons or (1.0,):
            self._target(epsilon)
        if self.epsilons is not None and self.loss.private is not None:
            expected = "noise_multipliers for a loss that keeps coordinates at a node"
            remedy = "A node remembers its examples there: no account of one of them holds."
            raise InputError("epsilons", expected=expected, got="budgets", remedy=remedy)
        given = _checks.listed(self.mechanisms, field="mechanisms", expected="a list of names")
        object.__setattr__(self, "mechanisms", tuple(given))
        catalogue.check_names(list(self.names))
        for name in self.names:
            made = self._made.get(name)
            if made is None:
                catalogue.kind_of(name)
            elif (made.source is None) != (name == NO_NOISE):
                expected = f'noise, and a name other than "{NO_NOISE}"'
                raise InputError("mechanisms", expected=expected, got=f"{name}: not both")
            if name != NO_NOISE and self.epsilons is None and self.noise_multipliers is None:
                raise InputError("epsilons", expected=f"budgets for {name}", got="nothing")
        check_batches(run_of_all, seed=self.seeds[0])

    def _target(self, epsilon: float) -> PrivacyTarget:
        return PrivacyTarget(
            epsilon=epsilon, delta=self.delta, clip=self.clip, adjacency=self.adjacency
        )

    @cached_property
    def network(self) -> Network:
        """The network that noise is designed for."""
        epsilons = sorted(self.epsilons or ())
        return Network(
            mixing=self.mixing,
            participation=self.participation,
            random=self.random,
            rounds=self.rounds,
            max_variance=self.max_variance,
            responses=responses_of(self.responses),
            target=self._target(epsilons[len(epsilons) // 2]) if epsilons else None,
        )

    @cached_property
    def _made(self) -> dict[str, Mechanism]:
        """The mechanisms that are given, and those that are solved."""
        return {one.name: one for one in self.mechanisms if isinstance(one, Mechanism)}

    @cached_property
    def _scaled(self) -> dict[Mechanism, list[tuple[str, Scale]]]:
        return {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the mechanisms."""
        return tuple(one.name if isinstance(one, Mechanism) else one for one in self.mechanisms)

    def named(self, name: str) -> Mechanism:
        """The mechanism of that name; its design is solved when it is first asked for.

        Args:
            name: one of :attr:`names`, or another that the network can have.

        Returns:
            Its unit noise and account.

        Raises:
            InputError: naming ``mechanisms``.
        """
        if name not in self._made:
            self._made[name] = catalogue.mechanism(name, self.network)
        return self._made[name]

    @property
    def made(self) -> tuple[Mechanism, ...]:
        """All mechanisms, their designs solved.

        Raises:
            InputError: naming ``mechanisms``.
        """
        return tuple(map(self.named, self.names))

    @cached_property
    def run_of_all(self) -> Run:
        """The run that all mechanisms share."""
        random = self.random
        gossip: Gossip = (
            FixedGossip(mixing=self.mixing) if random is None else RandomGossip(random=random)
        )
        same = (
            *("loss", "examples", "partition", "clip", "batch_size", "record"),
            *("test", "measured", "whose", "bound"),
        )
        scheme = self.participation
        shared = {name: getattr(self, name) for name in same}
        return Run(gossip=gossip, rule=scheme.rule, horizon=scheme.horizon, **shared)

    def lanes(self, mechanism: Mechanism) -> list[tuple[Lane, Row]]:
        """A lane for every budget of a mechanism, and what its rows say of it.

        Args:
            mechanism: one that :attr:`made` has, or another of the same network.

        Returns:
            Pairs, in the order of the budgets.

        Raises:
            InputError: naming ``epsilons``: noise, and no budget; naming ``mechanisms``: noise that
                is accounted for another participation, or on messages for another W.
        """
        self._check_account(mechanism)
        noisy, accounted = mechanism.source is not None, self.loss.private is None
        none = Scale(noise_multiplier=0.0, epsilon=None, mu=None, which="")
        found: list[tuple[Lane, Row]] = []
        for account, scale in self._scales(mechanism) if noisy else [("", none)]:
            lane = Lane(
                source=mechanism.source,
                stddev=scale.noise_multiplier * self.clip,
                step_sizes=self.step_sizes,
                rounds=mechanism.rounds,
                server=mechanism.server,
                counts_on=self.participation.rule if scale.random else None,
                name=mechanism.name,
            )
            told = {
                "mechanism": mechanism.name,
                "epsilon": scale.epsilon if accounted else None,
                "delta": self.delta if noisy else None,
                "mu": scale.mu if accounted else None,
                "stddev": lane.stddev,
                "protects": mechanism.protects if accounted else "nothing that is accounted for",
                "account": account,
                "which": scale.which if accounted else "",
                "confidence": scale.confidence,
                "responses": mechanism.responses if accounted and noisy else "",
            }
            found.append((lane, told))
        return found

    def _check_account(self, mechanism: Mechanism) -> None:
        """Check that the mechanism's account is for what is trained."""
        if mechanism.source is None:
            return
        if mechanism.participation not in (self.participation, self.participation.fixed):
            expected = f"noise that is accounted for {self.participation}"
            got = f"{mechanism.name}, which is for {mechanism.participation}"
            raise InputError("mechanisms", expected=expected, got=got)
        if isinstance(mechanism.source, MessageNoise):
            fixed = self.random is None and mechanism.rounds == 1
            if not fixed or not np.array_equal(mechanism.source.mixing, self.mixing):
                expected = "noise on messages that is for the one W that models mix by"
                raise InputError("mechanisms", expected=expected, got=mechanism.name)

    def _scales(self, mechanism: Mechanism) -> list[tuple[str, Scale]]:
        """Account and noise of every account and budget, in this order."""
        if self.epsilons is None and self.noise_multipliers is None:
            raise InputError("epsilons", expected=f"budgets for {mechanism.name}", got="nothing")
        if mechanism not in self._scaled:
            scheme, found = self.participation, []
            for account in self.accounts or ():
                how: dict[str, Any] = {"account": account, "participation": scheme}
                for epsilon in self.epsilons or ():
                    found.append((account, meeting(mechanism, self._target(epsilon), **how)))
                how |= {"delta": self.delta, "adjacency": self.adjacency}
                for multiplier in self.noise_multipliers or ():
                    found.append((account, of_noise(mechanism, multiplier, **how)))
            self._scaled[mechanism] = found
        return self._scaled[mechanism]


def budgets(task: TrainingTask, name: str) -> list[str]:
    """List the budgets of the lanes of a mechanism, in their order: see :func:`budget_of`."""
    if name == NO_NOISE:
        return [NO_BUDGET]
    scales = [f"epsilon {epsilon!r}" for epsilon in task.epsilons or ()]
    scales += [f"stddev {one * task.clip!r}" for one in task.noise_multipliers or ()]
    return [f"{account} {scale}" for account in task.accounts or () for scale in scales]


def budget_of(task: TrainingTask, row: Row) -> str:
    """The budget that a row is of."""
    if row["mechanism"] == NO_NOISE:
        return NO_BUDGET
    by = "stddev" if task.epsilons is None else "epsilon"
    return f"{row['account']} {by} {row[by]!r}"


def blocks(
    task: TrainingTask, seeds: Sequence[int], *, lanes: int, most: int = MOST_SEEDS
) -> list[tuple[int, ...]]:
    """Seeds that are run together."""
    size = max(1, min(most, MOST_SEEDS, BLOCK_FLOATS // (lanes * _width(task))))
    return [tuple(seeds[k : k + size]) for k in range(0, len(seeds), size)]


def _width(task: TrainingTask) -> int:
    """Numbers of the models of one seed and lane."""
    return task.run_of_all.nodes * task.loss.dimension


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        count = _checks.positive_int(value, field="seeds")
        if count > MOST_ASKED:
            raise InputError("seeds", expected=f"at most {MOST_ASKED} of them", got=str(count))
        return tuple(range(count))
    seeds = _checks.listed(value, field="seeds", expected="a number of seeds, or a list of them")
    checked = tuple(_checks.positive_int(seed, field="seeds", minimum=0) for seed in seeds)
    return _distinct(checked, field="seeds", expected="one or more different seeds")


def _accounts(value: Any, scheme: Participation) -> tuple[str, ...]:
    if value is None:
        return (RANDOM,) if scheme.random else (FIXED,)
    given = _checks.listed(value, field="accounts", expected="a list of accounts")
    for one in given:
        _checks.one_of(one, field="accounts", allowed=ACCOUNTS)
    accounts = _distinct(tuple(given), field="accounts", expected="one or more, each once")
    if RANDOM in given and not scheme.random:
        raise InputError(
            "accounts",
            expected=f'"{FIXED}" alone but for batches drawn at random',
            got=f'"{RANDOM}" for {scheme}',
            remedy='Say participation.kind = "balls-in-bins" or another random kind, and let every '
            "node draw its batches.",
        )
    return accounts


def _budgets(value: Any, *, field: str) -> tuple[float, ...]:
    given = _checks.listed(value, field=field, expected="a list of numbers")
    found = tuple(_checks.scale(one, field=field) for one in given)
    return _distinct(found, field=field, expected="one or more different numbers")


def _distinct(values: tuple[Value, ...], *, field: str, expected: str) -> tuple[Value, ...]:
    if not values or len(set(values)) != len(values):
        raise InputError(field, expected=expected, got=str(list(values)))
    return values


def run(
    task: TrainingTask,
    *mechanisms: str | Mechanism,
    seeds: Iterable[int] | None = None,
    observer: Observer | None = None,
) -> list[Row]:
    """Train lanes side by side on the same batches and white noise, and return all rows."""
    asked = mechanisms or task.names
    chosen = [one if isinstance(one, Mechanism) else task.named(one) for one in asked]
    pairs = [pair for one in chosen for pair in task.lanes(one)]
    lanes = [lane for lane, _ in pairs]
    some = task.seeds if seeds is None else _seeds(list(seeds))
    together = len(lanes) if observer is not None else max(1, LANE_FLOATS // _width(task))
    rows: list[Row] = []
    for first in range(0, len(lanes), together):
        part = slice(first, first + together)
        for block in blocks(task, some, lanes=len(lanes[part])):
            for measured in train(task.run_of_all, lanes[part], seeds=block, observer=observer):
                rows += rows_of(measured, block, [told for _, told in pairs[part]])
    return [{name: row[name] for name in COLUMNS} for row in rows]


def rows_of(measured: Measurement, seeds: Sequence[int], told: Sequence[Row]) -> Iterator[Row]:
    """Yield a row of every seed and lane: what is told of the lane, and what was measured."""

    def cell(values: Array | None, k: int, lane: int) -> float | None:
        value = None if values is None else float(values[k, lane])
        return None if value is None or np.isnan(value) else value

    measures = ("train_loss", "test_loss", "accuracy", "consensus_distance")
    for k, seed in enumerate(seeds):
        for lane, shared in enumerate(told):
            found = {name: cell(getattr(measured, name), k, lane) for name in measures}
            status = DIVERGED_STATUS if measured.diverged[k, lane] else FINISHED
            yield {**shared, "seed": seed, "step": measured.step, **found, "status": status}
