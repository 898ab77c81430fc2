"""Training files: strict TOML in, a training task out. A new kind of data, loss or partition is a
class and a line of ``_DATA``, ``_LOSSES`` or ``_PARTITIONS``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, TypeAdapter

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files.graph_tables import GraphOfKind, load_npy
from noisedesign.files.schema import ScalarOrList, Table, Text, of_kind, validated
from noisedesign.files.tables import (
    RESPONSES,
    AnyParticipationTable,
    MixingTable,
    ResponsesKeys,
    as_array,
)
from noisedesign.files.toml import opened, parsed, renamed
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA, Adjacency
from noisedesign_lab.datasets import (
    Examples,
    a9a,
    california_housing,
    cifar10,
    femnist,
    movielens_small,
)
from noisedesign_lab.tasks.mechanisms import check_names, kind_of
from noisedesign_lab.tasks.training_task import TrainingTask
from noisedesign_lab.training import losses, partition
from noisedesign_lab.training.losses import Loss
from noisedesign_lab.training.partition import Partition, Standardization
from noisedesign_lab.training.seeding import Use, generator
from noisedesign_lab.training.trainer import DIVERGED

FIELD = "training"
MOST_RECORDED = 100_000  # measurements of a run: more is a mistake

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

Split = tuple[Examples, Examples | None]  # examples to train on, and to test on


class DataTable(Table):
    """Examples, and which of them are for testing."""

    own_test: ClassVar[bool] = False
    """Whether the data come with a part for testing."""

    kind: str
    test: float = 0.2
    test_seed: int = 0
    standardize: bool = False

    def load(self, folder: Path) -> Split:
        """Return data to train on and to test on; files are relative to ``folder``."""
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
        return a9a()


class HousingData(DataTable):
    kind: Literal["california-housing"]
    standardize: bool = True

    def _examples(self, folder: Path) -> Split:
        return california_housing(), None


class MovielensData(DataTable):
    kind: Literal["movielens-small"]

    def _examples(self, folder: Path) -> Split:
        return movielens_small(), None


class Cifar10Data(DataTable):
    own_test: ClassVar[bool] = True
    kind: Literal["cifar10"]

    def _examples(self, folder: Path) -> Split:
        return cifar10()


class FemnistData(DataTable):
    own_test: ClassVar[bool] = True
    kind: Literal["femnist"]
    folder: Text

    def _examples(self, folder: Path) -> Split:
        return femnist(folder / self.folder)


class ObjectivesData(DataTable):
    """The numbers of the objectives of ``loss.kind = "whisper-quadratics"``."""

    own_test: ClassVar[bool] = True
    kind: Literal["objectives"]
    count: int

    def _examples(self, folder: Path) -> Split:
        count = _checks.positive_int(self.count, field="data.count")
        numbers = np.arange(count, dtype=np.float64)
        return Examples(features=numbers[:, None], targets=np.zeros(count)), None


_DATA = (
    *(GaussianData, NpyData, A9aData, HousingData, MovielensData),
    *(Cifar10Data, FemnistData, ObjectivesData),
)

# --- partition ------------------------------------------------------------------------------------


class PartitionTable(Table):
    """The assignment of examples to nodes."""

    kind: str

    def partition(self, examples: Examples, nodes: int) -> Partition:
        """Return the partition, which is drawn for every seed."""
        raise NotImplementedError


class EvenPartition(PartitionTable):
    kind: Literal["iid", "in-order"]

    def partition(self, examples: Examples, nodes: int) -> Partition:
        even = partition.iid if self.kind == "iid" else partition.in_order
        return even(len(examples), nodes)


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


_PARTITIONS = (EvenPartition, DirichletPartition, ByUserPartition)

# --- loss -----------------------------------------------------------------------------------------


class LossTable(Table):
    """The loss that is trained."""

    kind: str

    def loss(self, data: Split) -> Loss:
        """Return the loss of these data."""
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
        return losses.Logistic(features=_width(data), **self.model_dump(exclude={"kind"}))


class LeastSquaresTable(LossTable):
    kind: Literal["least-squares"]
    regularization: float = 0.0
    intercept: bool = False

    def loss(self, data: Split) -> Loss:
        return losses.LeastSquares(features=_width(data), **self.model_dump(exclude={"kind"}))


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
        own = self.model_dump(exclude={"kind"})
        return losses.MatrixFactorization(users=users, items=items, **own)


class ResNetTable(LossTable):
    kind: Literal["resnet"]
    channels: int = 3
    classes: int = 10
    width: int = 64
    blocks: list[int] = Field(default=[2, 2, 2, 2])
    groups: int = 32

    def loss(self, data: Split) -> Loss:
        side = math.isqrt(_width(data) // max(self.channels, 1))
        labels = np.concatenate([part.targets for part in data if part is not None])
        loss = losses.ResNet(side=side, **self.model_dump(exclude={"kind"}))
        known = np.isin(labels, np.arange(self.classes)).all()
        if loss.channels * side**2 != _width(data) or not known:
            expected = f"square images of {self.channels} channels and classes below {self.classes}"
            raise InputError("data", expected=expected, got="others")
        return loss


_LOSSES = (
    *(QuadraticTable, WhisperQuadraticsTable, LogisticTable, LeastSquaresTable, MLPTable),
    *(MatrixFactorizationTable, ResNetTable),
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
        """Return eta, a number or shape (T,)."""
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
        every = max(1, horizon // 10)
        if self.record_every is not None:
            every = _checks.positive_int(self.record_every, field="training.record_every")
        if horizon // every > MOST_RECORDED:
            expected = f"at most {MOST_RECORDED} measurements of a run"
            got = f"every {every} of {horizon} steps"
            raise InputError("training.record_every", expected=expected, got=got)
        return sorted({*range(0, horizon + 1, every), horizon})


class BudgetsTable(ResponsesKeys):
    """[privacy] of training files: several budgets, and how gradients answer to models."""

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
    partition: Annotated[PartitionTable, of_kind(lambda: _PARTITIONS)] = EvenPartition(kind="iid")
    loss: Annotated[LossTable, of_kind(lambda: _LOSSES)]
    training: HowTable = HowTable()
    privacy: BudgetsTable = BudgetsTable()


_TRAINING_FILE = TypeAdapter(TrainingFile)


def training_tables(text: str) -> tuple[TrainingFile, dict[str, Any]]:
    """Return the tables of a training file, names and types checked, and as they were written."""
    tables = parsed(text, field=FIELD)
    return validated(_TRAINING_FILE, tables, belongs=_BELONGS), tables


# --- a file as a task ---


_SAME = ("clip", "rounds", "batch_size", "measured", "max_variance")  # keys of [training], too
_KEYS = {  # arguments of the library and the keys of a file that set them
    **{name: f"training.{name}" for name in _SAME},
    **{name: f"privacy.{name}" for name in ("accounts", "epsilons", "noise_multipliers")},
    "workload.rounds": "training.rounds",
    "records": "training.batch_size",
    "whose": "training.models",
    "bound": "training.divergence",
    "privacy.epsilon": "privacy.epsilons",
    "privacy.clip": "training.clip",
}


def load_training(path: str | Path) -> TrainingTask:
    """Read a training file; ``problems/README.md`` describes its keys.

    Data are loaded, from ``NOISEDESIGN_DATA``, the cache or their source, and the graph is built;
    no design is solved.

    Args:
        path: a file, or the name of a shipped one, ``"training/ring-quadratic"``, with ``.toml`` or
            without. What the working directory or its folder ``problems`` has comes first.

    Returns:
        The task, whose rows a table knows again.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML; an unknown mechanism, with those there are.

    Examples:
        >>> import noisedesign_lab as lab
        >>> task = lab.load_training("training/ring-quadratic")
        >>> task.mechanisms
        ('none', 'ldp', 'mafalda', 'kronecker')
    """
    with opened(path, field=FIELD) as (found, text):
        return parse_training(text, folder=found.parent, name=found.stem)


def parse_training(text: str, *, folder: str | Path, name: str = FIELD) -> TrainingTask:
    """Read a task from text; files it names are relative to ``folder``."""
    file, tables = training_tables(text)
    folder = Path(folder)
    for mechanism in check_names(file.mechanisms):  # before anything is downloaded
        kind_of(mechanism)
    participation = file.participation.scheme()
    horizon, how = participation.horizon, file.training
    mixing, _ = file.graph.mixing(folder)
    data = file.data.load(folder)
    keys = dict(_KEYS) | {"mixing": file.graph.weights_key}
    budgets = file.privacy
    with renamed(keys):
        return TrainingTask(
            name=file.name or name,
            loss=file.loss.loss(data),
            examples=data[0],
            test=data[1],
            partition=file.partition.partition(data[0], int(np.shape(mixing)[-1])),
            mixing=mixing,
            random=None if file.mixing is None else file.mixing.random(mixing, file.graph),
            participation=participation,
            mechanisms=tuple(file.mechanisms),
            **{name: getattr(budgets, name) for name in BudgetsTable.__annotations__},
            responses=budgets.said(table="privacy"),
            **{name: getattr(how, name) for name in _SAME},
            step_sizes=how.step_sizes(horizon),
            seeds=file.seeds,
            record=how.record(horizon),
            whose=how.models,
            bound=DIVERGED if how.divergence is None else how.divergence,
            identity=_identity(tables),
        )


def _identity(tables: dict[str, Any]) -> str:
    """Describe what decides a row besides its mechanism, budget, seed and step."""
    said = {
        key: value
        for key, value in tables.items()
        if key not in ("name", "description", "source", "tags", "mechanisms", "seeds", "privacy")
    }
    how = {key: value for key, value in said.pop("training", {}).items() if key != "record_every"}
    budgets = tables.get("privacy", {})
    kept = {key: budgets[key] for key in ("delta", "adjacency", *RESPONSES) if key in budgets}
    return json.dumps(said | {"training": how, "privacy": kept}, sort_keys=True, default=str)
