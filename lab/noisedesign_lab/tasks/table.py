"""A training task into a table: what it has is not run again, what is finished is never lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.cluster import Where
from noisedesign.base.settings import CLUSTER_SECONDS
from noisedesign.base.shown import Listing, ShownInline
from noisedesign.surveys.results_file import (
    KEY,
    RESULTS_FORMAT,
    TRAINING,
    ResultsFile,
    format_column,
    open_results,
)
from noisedesign_lab.datasets import Examples
from noisedesign_lab.tasks.accounts import GAUSSIAN
from noisedesign_lab.tasks.mechanisms import RANDOM, Mechanism
from noisedesign_lab.tasks.training_file import load_training
from noisedesign_lab.tasks.training_task import (
    COLUMNS,
    DIVERGED_STATUS,
    MOST_SEEDS,
    Row,
    TrainingTask,
    blocks,
    budget_of,
    budgets,
    run,
)
from noisedesign_lab.training.noise import NodeNoise

KEY_DIGITS = 20  # hexadecimal: two of ten million rows collide with a probability of 4e-11
Progress = Callable[[int, int], None]
_TYPES = {name: of for name, of in COLUMNS.items() if of is not str}


@dataclass(frozen=True, kw_only=True, repr=False)
class LaneResult(ShownInline):
    """The result of one mechanism at one budget after the last step: means over the seeds that did
    not diverge, None where all did."""

    mechanism: str
    epsilon: float | None
    mu: float | None
    stddev: float
    seeds: int
    diverged: int
    train_loss: float | None
    test_loss: float | None
    accuracy: float | None
    consensus_distance: float | None
    protects: str
    account: str = ""
    which: str = ""
    confidence: float | None = None
    responses: str = ""

    def _title(self) -> str:
        return self.mechanism

    def _facts(self) -> dict[str, object]:
        facts = {name.replace("_", " "): value for name, value in asdict(self).items()}
        del facts["mechanism"]
        if self.which == GAUSSIAN:
            facts["which"] = ""
        # "none" where no epsilon holds, so that the columns of all lines are the same.
        given = {name: "none" if facts[name] is None else facts[name] for name in ("epsilon", "mu")}
        return facts | given | {"diverged": self.diverged or None}


_OF_A_LANE = (
    *("mechanism", "epsilon", "mu", "stddev", "protects"),
    *("account", "which", "confidence", "responses"),
)
_MEASURED = ("train_loss", "test_loss", "accuracy", "consensus_distance")


class TrainingResult(Listing[LaneResult]):
    """A table of one line a mechanism and budget, after the last step.

    Args:
        rows: all that was measured, a dict for every mechanism, budget, seed and recorded step, in
            this order; its keys are those of
            :data:`noisedesign_lab.tasks.training_task.COLUMNS`.
        skipped: how many of them the table had.
        output: the table; None where none was asked for.

    Examples:
        >>> import noisedesign_lab as lab
        >>> found = lab.train("training/ring-quadratic", seeds=1)
        >>> found[1].mechanism, found[1].epsilon, len(found.rows)
        ('ldp', 2.0, 35)
    """

    def __init__(self, rows: list[Row], *, skipped: int = 0, output: Path | None = None) -> None:
        self.rows, self.skipped, self.output = rows, skipped, output
        groups: dict[tuple[Any, ...], list[Row]] = {}
        last = max((row["step"] for row in rows), default=0)
        for row in rows:
            if row["step"] == last:
                groups.setdefault(tuple(row[name] for name in _OF_A_LANE), []).append(row)
        super().__init__(_over_seeds(found) for found in groups.values())

    @property
    def diverged(self) -> int:
        """Number of runs (mechanism, budget, seed) that diverged."""
        return sum(one.diverged for one in self)


def _over_seeds(rows: Sequence[Row]) -> LaneResult:
    kept = [row for row in rows if row["status"] != DIVERGED_STATUS]
    means: Row = {}
    for name in _MEASURED:
        values = [row[name] for row in kept if row[name] is not None]
        means[name] = sum(values) / len(values) if values else None
    shared = {name: rows[0][name] for name in _OF_A_LANE}
    return LaneResult(**shared, **means, seeds=len(rows), diverged=len(rows) - len(kept))


_Unit = tuple[tuple[str, ...], tuple[int, ...]]  # mechanisms and seeds of one process at a time
UNITS = 64  # units that seeds are dealt to, but for one process; more keep more processes at work


def rows_of(task: TrainingTask, unit: _Unit) -> list[Row]:
    """Return the measurements of a unit."""
    names, seeds = unit
    return run(task, *names, seeds=seeds)


def train(
    task: TrainingTask | str | Path,
    *,
    output: str | Path | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float = CLUSTER_SECONDS,
    seeds: int | Sequence[int] | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> TrainingResult:
    """Train under every mechanism and budget of a task, and measure what the noise does.

    Decentralised SGD in numpy: theta <- W^K (theta - eta (sum of clipped gradients + noise) / b).
    All mechanisms of a seed see the same data, batches and white noise. With ``output``, rows are
    on the disk as soon as their block of seeds is finished, so that whatever ends this, the next
    call goes on from there; rows of other tasks stay in the table as they are.

    The noise is drawn by numpy's generator, which is not cryptographic: this is simulation. To
    deploy noise, see :func:`noisedesign.export` and the plans of nodes.

    Args:
        task: a :class:`TrainingTask`, or a training file, see :func:`load_training`.
        output: a .csv or .parquet table of all rows; for a task that says what it is
            (``identity``), as one from a file does. Rows of other numbers, data, W or noise are
            not taken for those of the task; partitions are told apart by ``identity`` alone. None:
            rows are in memory alone.
        jobs: processes of this machine; 1 is this process.
        cluster: address of a Dask scheduler, as "tcp://host:port", in place of ``jobs``; task and
            designs are sent to it once.
        timeout: seconds to wait for that scheduler and its first worker.
        seeds: how many, or which, in the place of those of the task.
        retry: run those that diverged again.
        progress: called with the number of rows that are there, and that of all.

    Returns:
        One line a mechanism and budget after the last step, and all ``rows``.

    Raises:
        InputError: naming the argument, a key of the file, ``mechanisms`` or ``output``, which
            another process may have open.
        OSError: the table cannot be written any more, the cluster or all workers are lost; what
            was finished is kept.

    Examples:
        >>> import noisedesign_lab as lab
        >>> found = lab.train("training/ring-quadratic", seeds=2)
        >>> [one.mechanism for one in found]
        ['none', 'ldp', 'ldp', 'mafalda', 'mafalda', 'kronecker', 'kronecker']
        >>> ldp, kronecker = found[1], found[5]
        >>> ldp.epsilon == kronecker.epsilon and kronecker.test_loss < ldp.test_loss
        True
    """
    made = task if isinstance(task, TrainingTask) else load_training(task)
    if seeds is not None:
        made = replace(made, seeds=seeds)
    where = Where(jobs=jobs, cluster=cluster, timeout=timeout)
    _checks.instance(retry, bool, field="retry", expected="True or False")
    if output is not None and not made.identity:
        expected = "nothing for a task without identity"
        remedy = "Read the task from a file, or say identity=, so that its rows are known again."
        raise InputError("output", expected=expected, got=_checks.describe(output), remedy=remedy)
    opened: AbstractContextManager[ResultsFile | None] = nullcontext()
    if output is not None:
        opened = open_results(output, columns=tuple(COLUMNS), kind=TRAINING, types=_TYPES)
    with opened as table:
        kept = _Kept(made, table, retry=retry)
        skipped = len(kept.found)
        found = kept.run(where, progress or (lambda *_: None))
    rows = [found[place] for place in kept.places]
    return TrainingResult(rows, skipped=skipped, output=None if table is None else table.path)


_Place = tuple[str, str, int, int]  # mechanism, budget, seed and step of a row


class _Kept:
    """The rows of a task that are there, in a table or in memory."""

    def __init__(self, task: TrainingTask, table: ResultsFile | None, *, retry: bool) -> None:
        self.task, self.table = task, table
        self.found: dict[_Place, Row] = {}
        named = [(name, budget) for name in task.names for budget in budgets(task, name)]
        each = [(seed, step) for seed in task.seeds for step in task.run_of_all.record]
        self.places: list[_Place] = [(*one, *other) for one in named for other in each]
        if table is None:
            return
        self.facts = fingerprint(task)
        self.given = {one.name: one for one in task.mechanisms if isinstance(one, Mechanism)}
        for place in self.places:
            row = table.rows.get(self._key(place))
            if row is not None and not (retry and row["status"] == DIVERGED_STATUS):
                self.found[place] = {name: row[name] for name in COLUMNS}

    def _key(self, place: _Place) -> str:
        made, target = _of_mechanism(self.given.get(place[0])), self.task.network.target
        if not made and place[0] in RANDOM and target:  # what a name stands for depends on it
            made = json.dumps(asdict(target))
        head = [RESULTS_FORMAT[TRAINING], self.task.identity, self.facts]
        parts = json.dumps([*head, made, *place])
        return hashlib.sha256(parts.encode()).hexdigest()[:KEY_DIGITS]

    def run(self, where: Where, progress: Progress) -> dict[_Place, Row]:
        """All rows, once those that are missing are computed."""
        progress(len(self.found), len(self.places))
        units = {
            f"seeds {min(seeds)} to {max(seeds)}": (names, seeds)
            for names, seeds in self._units(where)
        }
        for _, rows in where.results(partial(rows_of, self.task), units):
            self._put(rows)
            progress(len(self.found), len(self.places))
        return self.found

    def _units(self, where: Where) -> Iterator[_Unit]:
        """Blocks of seeds, with the mechanisms of which one of them lacks a row, designs solved."""
        missing: dict[int, set[str]] = {}
        for place in self.places:
            if place not in self.found:
                missing.setdefault(place[2], set()).add(place[0])
        lanes = sum(len(budgets(self.task, name)) for name in self.task.names)
        most = MOST_SEEDS if where.here else ceil(len(self.task.seeds) / UNITS)
        for block in blocks(self.task, self.task.seeds, lanes=lanes, most=most):
            names = set().union(*(missing.get(seed, set()) for seed in block))
            chosen = tuple(self.task.named(one).name for one in self.task.names if one in names)
            if seeds := tuple(seed for seed in block if seed in missing):
                yield chosen, seeds

    def _put(self, rows: Sequence[Row]) -> None:
        places = (
            (row["mechanism"], budget_of(self.task, row), row["seed"], row["step"]) for row in rows
        )
        new = {at: row for at, row in zip(places, rows, strict=True) if at not in self.found}
        if self.table is not None:
            head = {format_column(TRAINING): RESULTS_FORMAT[TRAINING]}
            self.table.put_all(head | {KEY: self._key(at)} | row for at, row in new.items())
        self.found |= new


# --- what tells tasks apart ---

_NUMBERS = (
    *("delta", "adjacency", "clip", "batch_size", "rounds"),
    *("measured", "whose", "bound", "max_variance"),
)


def fingerprint(task: TrainingTask) -> str:
    """Describe what decides a row of a mechanism that is only named, but for the partition."""
    random = (
        None if task.random is None else [type(task.random).__name__, _of_array(task.random.mean)]
    )
    of_loss, kinds = getattr(task.loss, "__dict__", {}), (bool, int, float, str)
    numbers = {name: value for name, value in of_loss.items() if type(value) in kinds}
    said = {
        **{name: getattr(task, name) for name in _NUMBERS},
        "participation": [task.participation.horizon, task.participation.rule.to_json()],
        "step_sizes": _of_array(np.asarray(task.step_sizes, dtype=np.float64)),
        "mixing": _of_array(task.mixing),
        "random": random,
        "examples": _of_examples(task.examples),
        "test": None if task.test is None else _of_examples(task.test),
        "loss": [type(task.loss).__name__, task.loss.dimension, numbers],
    }
    return json.dumps(said, sort_keys=True, default=str)


def _of_mechanism(given: Mechanism | None) -> str:
    """Describe a mechanism of one's own beside its name; empty for one that is only named."""
    if given is None or given.source is None:
        return ""
    said: list[Any] = [f"{given.sensitivity_squared:.6g}", f"{given.excess:.6g}"]
    said += [given.rounds, given.server, given.protects, type(given.source).__name__]
    if isinstance(given.source, NodeNoise):
        arrays = given.source.root, given.source.noising
        said += [None if array is None else _of_array(array) for array in arrays]
    said.append(None if given.strategy is None else _of_array(given.strategy))
    return json.dumps(said)


def _of_array(array: Array) -> list[Any]:
    """Shape, norm, and a projection in which every entry has a weight of its own."""
    flat = np.ravel(array)
    norm = float(np.linalg.norm(flat))
    place = float(flat @ np.cos(np.arange(1.0, flat.size + 1))) / (norm or 1.0)
    return [list(np.shape(array)), f"{norm:.6g}", round(place, 6) + 0.0]


def _of_examples(examples: Examples) -> list[Any]:
    return [_of_array(examples.features), _of_array(examples.targets)]
