"""Training files: strict TOML in, the data, loss, network and budgets of a training task out.

A table knows its keys and makes its value. A kind of data is a class and a line of ``_DATA``, a
kind of loss likewise in ``_LOSSES``, and a kind of partition in ``_PARTITIONS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, TypeAdapter

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files.graph_tables import GraphOfKind, load_npy
from noisedesign.files.schema import ScalarOrList, Table, Text, of_kind, validated
from noisedesign.files.tables import AnyParticipationTable, MixingTable, ResponsesKeys, as_array
from noisedesign.files.toml import parsed, renamed
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, Adjacency
from noisedesign.system import datasets
from noisedesign.system.datasets import Examples
from noisedesign.training import losses, partition
from noisedesign.training.losses import Loss
from noisedesign.training.partition import Partition, Standardization
from noisedesign.training.seeding import Use, generator

FIELD = "training"

_BELONGS = {
    **{
        key: f"{key} is a key of problem files, which `noisedesign solve` reads."
        for key in ("design", "workload", "budget", "limits", "structure", "error", "reference")
    },
    **{
        key: f"{key} is a key of account files, which `noisedesign account` reads."
        for key in ("algorithm", "observer", "observers")
    },
}

# --- data -----------------------------------------------------------------------------------------

Split = tuple[Examples, Examples | None]
"""Examples to train on, and to test on."""


class DataTable(Table):
    """Examples, and which of them are for testing."""

    own_test: ClassVar[bool] = False
    """Whether the data come with a part for testing."""

    kind: str
    test: float = 0.2
    test_seed: int = 0
    standardize: bool = False

    def load(self, folder: Path) -> Split:
        """Data to train on and to test on; files are relative to ``folder``.

        Raises:
            InputError: naming ``data`` or ``data.<key>``.
        """
        train, test = self._split(*self._examples(folder))
        if not self.standardize:
            return train, test
        by = Standardization.of(train)
        return by.applied(train), None if test is None else by.applied(test)

    def _examples(self, folder: Path) -> Split:
        raise NotImplementedError

    def _split(self, examples: Examples, test: Examples | None) -> Split:
        if self.own_test:
            if "test" in self.model_fields_set:
                expected = "nothing for data that come with a part for testing"
                raise InputError("data.test", expected=expected, got=f"{self.test:g}")
            return examples, test
        share = _checks.real(self.test, field="data.test")
        if not 0 <= share < 1:
            raise InputError("data.test", expected="a share in [0, 1)", got=f"{share:g}")
        seed = _checks.seed(self.test_seed, field="data.test_seed")
        if share == 0:
            return examples, None
        with renamed({"split": "data.test"}):
            parts = partition.split(
                len(examples), {"train": 1 - share, "test": share}, generator(seed, Use.EXAMPLES)
            )
        return examples.at(parts["train"]), examples.at(parts["test"])


class GaussianData(DataTable):
    """Features from the standard normal distribution and no targets: for quadratics."""

    kind: Literal["gaussian"]
    records: int
    features: int
    seed: int = 0

    def _examples(self, folder: Path) -> Split:
        records = _checks.positive_int(self.records, field="data.records")
        width = _checks.positive_int(self.features, field="data.features")
        rng = np.random.default_rng(_checks.seed(self.seed, field="data.seed"))
        features = rng.standard_normal((records, width))
        return Examples(features=features, targets=np.zeros(records)), None


class NpyData(DataTable):
    """A matrix of numbers from a file: a row an example, its last column the target."""

    kind: Literal["npy"]
    file: Text

    def _examples(self, folder: Path) -> Split:
        table = load_npy(folder / self.file, field="data.file")
        if table.shape[1] < 2:
            expected = "at least two columns, the last of them the target"
            raise InputError("data.file", expected=expected, got=f"{table.shape[1]}")
        return Examples(features=table[:, :-1].copy(), targets=table[:, -1].copy()), None


class A9aData(DataTable):
    own_test: ClassVar[bool] = True
    kind: Literal["a9a"]

    def _examples(self, folder: Path) -> Split:
        return datasets.a9a()


class HousingData(DataTable):
    kind: Literal["california-housing"]
    standardize: bool = True

    def _examples(self, folder: Path) -> Split:
        return datasets.california_housing(), None


class MovielensData(DataTable):
    kind: Literal["movielens-small"]

    def _examples(self, folder: Path) -> Split:
        return datasets.movielens_small(), None


class ObjectivesData(DataTable):
    """The numbers of the objectives of ``loss.kind = "whisper-quadratics"``."""

    own_test: ClassVar[bool] = True
    kind: Literal["objectives"]
    count: int

    def _examples(self, folder: Path) -> Split:
        count = _checks.positive_int(self.count, field="data.count")
        numbers = np.arange(count, dtype=np.float64)
        return Examples(features=numbers[:, None], targets=np.zeros(count)), None


_DATA = (GaussianData, NpyData, A9aData, HousingData, MovielensData, ObjectivesData)

# --- partition ------------------------------------------------------------------------------------


class PartitionTable(Table):
    """Which node has which examples."""

    kind: str

    def partition(self, examples: Examples, nodes: int) -> Partition:
        """What draws it for a seed.

        Raises:
            InputError: naming ``partition.<key>``.
        """
        raise NotImplementedError


class IidPartition(PartitionTable):
    kind: Literal["iid"]

    def partition(self, examples: Examples, nodes: int) -> Partition:
        return partition.iid(len(examples), nodes)


class DirichletPartition(PartitionTable):
    kind: Literal["dirichlet"]
    concentration: float
    minimum: int = 1

    def partition(self, examples: Examples, nodes: int) -> Partition:
        return partition.dirichlet(
            examples.targets, nodes, concentration=self.concentration, minimum=self.minimum
        )


class ByUserPartition(PartitionTable):
    kind: Literal["by-user"]

    def partition(self, examples: Examples, nodes: int) -> Partition:
        return partition.by_user(examples.owners, nodes)


class InOrderPartition(PartitionTable):
    kind: Literal["in-order"]

    def partition(self, examples: Examples, nodes: int) -> Partition:
        return partition.in_order(len(examples), nodes)


_PARTITIONS = (IidPartition, DirichletPartition, ByUserPartition, InOrderPartition)

# --- loss -----------------------------------------------------------------------------------------


class LossTable(Table):
    """What is trained."""

    kind: str

    def loss(self, data: Split) -> Loss:
        """The loss of these data.

        Raises:
            InputError: naming ``loss.<key>``, or ``data``, which are for another loss.
        """
        raise NotImplementedError


class QuadraticTable(LossTable):
    kind: Literal["quadratic"]
    curvature: float = 1.0

    def loss(self, data: Split) -> Loss:
        return losses.Quadratic(dimension=_width(data), curvature=self.curvature)


class WhisperQuadraticsTable(LossTable):
    kind: Literal["whisper-quadratics"]
    degrees: float = 15.0
    as_printed: bool = False

    def loss(self, data: Split) -> Loss:
        count, numbers = len(data[0]), data[0].features[:, 0]
        if _width(data) != 1 or not np.array_equal(numbers, np.arange(count)):
            expected = 'data.kind = "objectives" for loss.kind = "whisper-quadratics"'
            raise InputError("data.kind", expected=expected, got="other data")
        return losses.whisper_quadratics(count, degrees=self.degrees, as_printed=self.as_printed)


class LogisticTable(LossTable):
    kind: Literal["logistic"]
    regularization: float = 0.0
    intercept: bool = False

    def loss(self, data: Split) -> Loss:
        for part in data:
            if part is not None and not np.isin(part.targets, (-1.0, 1.0)).all():
                expected = 'targets -1 and 1 for loss.kind = "logistic"'
                raise InputError("data", expected=expected, got="others")
        return losses.Logistic(
            features=_width(data), regularization=self.regularization, intercept=self.intercept
        )


class MLPTable(LossTable):
    kind: Literal["mlp"]
    hidden: int = 64

    def loss(self, data: Split) -> Loss:
        return losses.MLP(features=_width(data), hidden=self.hidden)


class MatrixFactorizationTable(LossTable):
    kind: Literal["matrix-factorization"]
    factors: int = 20
    center: float = 0.0
    private_users: bool = False

    def loss(self, data: Split) -> Loss:
        pairs = np.concatenate([part.features for part in data if part is not None])
        whole = pairs.shape[1] == 2 and bool((pairs >= 0).all() and (pairs == np.rint(pairs)).all())
        if not whole:
            expected = "the number of a user and of an item as the features of every example"
            raise InputError("data", expected=expected, got="others")
        users, items = (int(column.max()) + 1 for column in pairs.T)
        return losses.MatrixFactorization(
            users=users,
            items=items,
            factors=self.factors,
            center=self.center,
            private_users=self.private_users,
        )


_LOSSES = (
    *(QuadraticTable, WhisperQuadraticsTable, LogisticTable, MLPTable),
    MatrixFactorizationTable,
)


def _width(data: Split) -> int:
    return int(data[0].features.shape[1])


# --- how it is trained ----------------------------------------------------------------------------


class HowTable(Table):
    """[training]."""

    clip: float = 1.0
    step_size: ScalarOrList = 0.1
    schedule: Literal["constant", "inverse-sqrt"] = "constant"
    batch_size: int | None = None
    rounds: int = 1
    record_every: int | None = None
    measured: int | None = None
    models: Literal["nodes", "mean"] = "nodes"
    divergence: float | None = None
    max_variance: float | None = None

    def step_sizes(self, horizon: int) -> Any:
        """eta, a number or shape (T,).

        Raises:
            InputError: naming ``training.step_size`` or ``training.schedule``.
        """
        field = "training.step_size"
        given = as_array(self.step_size)
        if isinstance(given, np.ndarray):
            if self.schedule != "constant":
                expected = "one number with a schedule"
                raise InputError(field, expected=expected, got=f"{len(given)} of them")
            return _checks.positive_vector(given, field=field, length=horizon)
        size = _checks.scale(given, field=field)
        if self.schedule == "constant":
            return size
        return size / np.sqrt(np.arange(1, horizon + 1))

    def record(self, horizon: int) -> Sequence[int]:
        """Steps after which models are measured: the first, the last, and every so many."""
        every = max(1, horizon // RECORDED)
        if self.record_every is not None:
            every = _checks.positive_int(self.record_every, field="training.record_every")
        if horizon // every > MOST_RECORDED:
            expected = f"at most {MOST_RECORDED} measurements of a run"
            got = f"every {every} of {horizon} steps"
            raise InputError("training.record_every", expected=expected, got=got)
        return sorted({*range(0, horizon + 1, every), horizon})


RECORDED = 10
"""Measurements of a run, where its file does not say how many."""

MOST_RECORDED = 100_000
"""Measurements of a run: more is a mistake."""


class BudgetsTable(ResponsesKeys):
    """[privacy] of training files: several budgets in the place of one, and how gradients answer to
    models, which noise on messages has to know."""

    epsilons: list[float] | None = None
    noise_multipliers: list[float] | None = None
    delta: float = DEFAULT_DELTA
    adjacency: Adjacency = DEFAULT_ADJACENCY
    accounts: list[Text] | None = None


class TrainingFile(Table):
    name: Text | None = None
    description: str = ""
    source: str = ""
    tags: list[Text] = Field(default_factory=list)
    mechanisms: list[str]
    seeds: int | list[int] = 1
    graph: GraphOfKind
    mixing: MixingTable | None = None
    participation: AnyParticipationTable
    data: Annotated[DataTable, of_kind(lambda: _DATA)]
    partition: Annotated[PartitionTable, of_kind(lambda: _PARTITIONS)] = IidPartition(kind="iid")
    loss: Annotated[LossTable, of_kind(lambda: _LOSSES)]
    training: HowTable = HowTable()
    privacy: BudgetsTable = BudgetsTable()


_TRAINING_FILE = TypeAdapter(TrainingFile)

FOR_PEOPLE = ("name", "description", "source", "tags")
"""Keys that change no row."""


def training_tables(text: str) -> tuple[TrainingFile, dict[str, Any]]:
    """The tables of a training file, their names and types checked, and as they were written.

    Nothing is loaded or built.

    Raises:
        InputError: naming the dotted key at fault; not TOML.
    """
    tables = parsed(text, field=FIELD)
    return validated(_TRAINING_FILE, tables, belongs=_BELONGS), tables
