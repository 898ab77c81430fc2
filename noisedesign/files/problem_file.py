"""Problem files: strict TOML in, a checked problem out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, TypeAdapter
from scipy.sparse import issparse

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.files.graph_tables import Graph, GraphOfKind, load_npy
from noisedesign.files.schema import Table, Text, of_kind, table_of_kind, validated
from noisedesign.files.tables import (
    BudgetTable,
    ErrorTable,
    ErrorTables,
    JointStructureTable,
    LimitsTable,
    MixingTable,
    ObserversTable,
    ParticipationTable,
    PrivacyTable,
    SpaceBudgetTable,
    SpaceErrorTables,
    SpaceStructureTable,
    TimeStructureTable,
    TunedErrorTable,
    cap_of,
    error_horizon,
    error_of,
    limits_of,
)
from noisedesign.files.toml import dumped, opened, parsed, renamed
from noisedesign.forms.registry import SPARSE_FORMS, sparse_kinds
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.problem.unbounded import BUFFERS, UnboundedProblem
from noisedesign.system.gossip import checked_rounds
from noisedesign.system.graph import LEAST_NOISE
from noisedesign.system.links import mixing_norm, stochastic_on
from noisedesign.system.participation import require_fixed_epoch
from noisedesign.system.workloads import WORKLOADS, WORST, ErrorMeasure, WorkloadKind

FIELD = "problem"

_OTHER_DESIGN = {"limits": '"space" or "space-time"', "observers": '"space"'}
_OTHER_FILE = {
    **dict.fromkeys(("algorithm", "observer"), "account files, which `noisedesign account` reads"),
    **dict.fromkeys(
        ("problem", "grid", "backends", "gap", "time_limit"),
        "sweep files, which `noisedesign sweep` reads",
    ),
    "experiment": "files of settings, which `noisedesign reproduce` reads",
}
BELONGS = {  # remedies for keys at the top of a problem file that belong to another design or file
    **{key: f"{key} is a key of {file}." for key, file in _OTHER_FILE.items()},
    **{key: f"[{key}] belongs to design = {design}." for key, design in _OTHER_DESIGN.items()},
}


class RoundsTable(Table):
    """Gossip rounds after a gradient step."""

    rounds: int = 1


class WorkloadTable(Table):
    """A workload that is formed from the other tables."""

    kind: str


class GramTable(WorkloadTable):
    """One of which H is given."""

    file: Text


@cache
def _workload_table(kind: str, workload: WorkloadKind) -> type[Table]:
    keys = {"rounds": (int, 1)} if workload.of_graph else {}
    return table_of_kind(kind, keys, base=GramTable if workload.form is None else WorkloadTable)


def workload_tables() -> tuple[type[Table], ...]:
    """A table for every kind of workload."""
    return tuple(_workload_table(kind, workload) for kind, workload in WORKLOADS.items())


class ReferenceTable(Table):
    lower: float
    upper: float
    method: Text


class _ProblemFile(Table):
    name: Text
    description: str = ""
    source: str = ""
    tags: list[Text] = Field(default_factory=list)
    mixing: MixingTable | None = None
    privacy: PrivacyTable | None = None
    reference: ReferenceTable | None = None

    def _common(self) -> dict[str, Any]:
        target = None if self.privacy is None else self.privacy.target()
        return {"name": self.name, "privacy": target}

    def _with_models(
        self, graph: Graph, error: Any, *, mixing: Array, rounds: int, horizon: int
    ) -> dict[str, Any]:
        """The error of models, their random mixing and gossip rounds."""
        rounds = checked_rounds(rounds)
        measure = error_of(error, graph, mixing=mixing, rounds=rounds, horizon=horizon)
        random = None if self.mixing is None else self.mixing.random(mixing, graph)
        return {"error": measure, "random": random, "rounds": rounds}


class SpaceFile(_ProblemFile):
    design: Literal["space"]
    graph: GraphOfKind
    participation: ParticipationTable | None = None
    budget: SpaceBudgetTable = SpaceBudgetTable()
    limits: LimitsTable | None = None
    structure: SpaceStructureTable = SpaceStructureTable()
    workload: RoundsTable = RoundsTable()
    error: SpaceErrorTables | None = None
    observers: ObserversTable | None = None

    def sizes(self) -> dict[str, Any]:
        """Sizes that decide how much there is to build, by attributes of the problem."""
        if self.observers is not None:
            return {"horizon": self.observers.horizon}
        return {"horizon": error_horizon(self.error)}

    def _sparse_above(self) -> float:
        """Number of nodes above which W is sparse; infinite where no sparse W is taken."""
        kind = self.structure.space
        if kind in sparse_kinds():
            return 0
        return settings.DENSE_NODES if kind in SPARSE_FORMS else math.inf

    def problem(self, folder: Path, known: Array | None) -> SpaceProblem:
        """The problem; files are relative to ``folder``, ``known`` is the fastest W if it is."""
        fields = self._common()
        mixing, nodes = self.graph.mixing(folder, known=known, sparse_above=self._sparse_above())
        if issparse(mixing) and self.mixing is not None:
            expected = f"no [mixing] table of graphs with more than {settings.DENSE_NODES} nodes"
            raise InputError("mixing", expected=expected, got="one")
        names = _names(nodes, mixing)
        fields["structure"] = self.structure.in_space(nodes=names, folder=folder)
        if self.participation is not None:
            fields["participation"] = self.participation.scheme()
        horizon, horizon_key = error_horizon(self.error), "error.horizon"
        if self.observers is not None:
            if self.mixing is not None:
                expected = "no [mixing] table beside [observers]"
                raise InputError("mixing", expected=expected, got="one")
            fields["observers"] = self.observers.observers(names)
            fields["responses"] = self.observers.responses
            horizon, horizon_key = self.observers.error_horizon(self.error), "observers.horizon"
        fields |= self._with_models(
            self.graph, self.error, mixing=mixing, rounds=self.workload.rounds, horizon=horizon
        )
        if fields["error"] is None and self.observers is not None:
            fields["error"] = ErrorMeasure(horizon=horizon)
        cap, floor = limits_of(self.limits)
        if self.budget.by_distance is not None:
            watchers = fields.get("observers", ())
            fields["pair_factors"] = self.budget.pair_factors(mixing, watchers)
        own = {"mixing": self.graph.weights_key, "error.horizon": horizon_key}
        with renamed(
            own | {"pair_factors": "budget.by_distance", "responses": "observers.responses"}
        ):
            limits = {"budget": self.budget.tau, "max_variance": cap, "min_variance": floor}
            return SpaceProblem(mixing=mixing, nodes=nodes, **limits, **fields)


class TimeFile(_ProblemFile):
    design: Literal["time"]
    workload: Annotated[WorkloadTable, of_kind(workload_tables)]
    graph: GraphOfKind | None = None
    participation: ParticipationTable
    budget: BudgetTable | None = None
    limits: LimitsTable | None = None
    structure: TimeStructureTable = TimeStructureTable()
    error: ErrorTables | None = None

    def sizes(self) -> dict[str, Any]:
        return {"participation": self.participation.scheme(), "workload": self.workload.kind}

    def problem(self, folder: Path, known: Array | None) -> TimeProblem:
        fields = self._common() | {
            "participation": self.participation.scheme(),
            "max_variance": cap_of(self.limits, design="time"),
            "structure": self.structure.in_time(),
            "budget": None if self.budget is None else self.budget.tau,
        }
        kind = self.workload.kind
        if WORKLOADS[kind].of_graph:
            if self.graph is None:
                expected = f"a [graph] table for a {kind} workload"
                raise InputError("graph", expected=expected, got="nothing")
            mixing, nodes = self.graph.mixing(folder, known=known)
            fields |= self._with_models(
                self.graph,
                self.error,
                mixing=mixing,
                rounds=getattr(self.workload, "rounds", 1),
                horizon=fields["participation"].horizon,
            )
            with renamed({"mixing": self.graph.weights_key}):
                return TimeProblem.of_workload(kind, mixing=mixing, nodes=nodes, **fields)
        if self.graph is not None:
            expected = f"no [graph] table for a {kind} workload"
            raise InputError("graph", expected=expected, got=self.graph.kind)
        if isinstance(self.error, ErrorTable) and self.error.of in WORST and kind == "prefix":
            of_use = "participation.horizon" if hasattr(self.participation, "horizon") else None
            keys = {key: f"error.{key}" for key in ErrorTable.model_fields}
            with renamed(keys | {"horizon": of_use or "participation"}):
                horizon = fields["participation"].horizon
                fields["error"] = ErrorMeasure(horizon=horizon, **self.error.weights())
        for key in ("error", "mixing"):
            if getattr(self, key) is not None and key not in fields:
                raise InputError(key, expected=f"no [{key}] table for a {kind} workload", got="one")
        if isinstance(self.workload, GramTable):
            gram = load_npy(folder / self.workload.file, field="workload.file")
            with renamed({"workload.gram": "workload.file"}):
                return TimeProblem.from_gram(gram=gram, workload=kind, **fields)
        return TimeProblem.of_workload(kind, **fields)


class SpaceTimeFile(_ProblemFile):
    design: Literal["space-time"]
    graph: GraphOfKind
    participation: ParticipationTable
    budget: BudgetTable = BudgetTable()
    limits: LimitsTable | None = None
    structure: JointStructureTable = JointStructureTable()
    workload: RoundsTable = RoundsTable()
    error: ErrorTables | None = None

    def sizes(self) -> dict[str, Any]:
        return {"participation": self.participation.scheme()}

    def problem(self, folder: Path, known: Array | None) -> SpaceTimeProblem:
        participation = require_fixed_epoch(
            self.participation.scheme(),
            field="participation.kind",
            expected="fixed-epoch for a space-time design",
            got=self.participation.kind,
        )
        mixing, nodes = self.graph.mixing(folder, known=known)
        cap = cap_of(self.limits, design="space-time")
        fields = self._common() | self._with_models(
            self.graph,
            self.error,
            mixing=mixing,
            rounds=self.workload.rounds,
            horizon=participation.horizon,
        )
        with renamed({"mixing": self.graph.weights_key}):
            return SpaceTimeProblem(
                mixing=mixing,
                nodes=nodes,
                participation=participation,
                budget=self.budget.tau,
                max_variance=cap,
                joint=self.structure.joint,
                time=self.structure.in_time(),
                space=self.structure.in_space(nodes=_names(nodes, mixing), folder=folder),
                **fields,
            )


def _names(nodes: tuple[str, ...], mixing: Array) -> Sequence[str]:
    return nodes or tuple(str(i) for i in range(mixing.shape[-1]))


class EndlessWorkloadTable(Table):
    """A workload of a run without an end."""

    kind: Literal["prefix", "decentralized"]
    horizon: Literal["unbounded"]


class EndlessParticipationTable(Table):
    """Who may take part how often in all time."""

    kind: Literal["single", "min-separation"] = "single"
    separation: int | None = None
    max_participations: int | None = None


class EndlessStructureTable(Table):
    """The buffers of a run without an end."""

    time: Literal["blt"] = "blt"
    buffers: int = BUFFERS


class UnboundedFile(_ProblemFile):
    """A problem of a run without an end."""

    design: Literal["time"]
    workload: EndlessWorkloadTable
    graph: GraphOfKind | None = None
    participation: EndlessParticipationTable = EndlessParticipationTable()
    structure: EndlessStructureTable = EndlessStructureTable()

    def problem(self, folder: Path, known: Array | None) -> UnboundedProblem:
        """The problem; files are relative to ``folder``, ``known`` is the fastest W if it is."""
        fields, said, kind = self._common(), self.participation, self.workload.kind
        for key in ("mixing", "reference"):
            if getattr(self, key) is not None:
                expected = f"no [{key}] table of a run without an end"
                raise InputError(key, expected=expected, got="one")
        if (self.graph is None) == (kind == "decentralized"):
            expected = f"{'a' if self.graph is None else 'no'} [graph] table for a {kind} workload"
            raise InputError("graph", expected=expected, got="nothing" if not self.graph else "one")
        for key in ("separation", "max_participations"):
            value = getattr(said, key)
            if (value is None) != (said.kind == "single"):
                expected = f"{'nothing' if value else 'a number'} for {said.kind} participation"
                raise InputError(f"participation.{key}", expected=expected, got=f"{value}")
            if value is not None:
                fields[key] = value
        if self.graph is None:
            return UnboundedProblem(buffers=self.structure.buffers, **fields)
        mixing, nodes = self.graph.mixing(folder, known=known)
        with renamed({"mixing": self.graph.weights_key}):
            buffers = self.structure.buffers
            return UnboundedProblem(mixing=mixing, nodes=nodes, buffers=buffers, **fields)


AnyProblemFile = SpaceFile | TimeFile | SpaceTimeFile

PROBLEM_FILE: TypeAdapter[AnyProblemFile] = TypeAdapter(
    Annotated[AnyProblemFile, Field(discriminator="design")]
)


ENDLESS: TypeAdapter[UnboundedFile] = TypeAdapter(UnboundedFile)


def endless(tables: dict[str, Any]) -> bool:
    """Whether tables are those of a run without an end, which [workload] says."""
    workload = tables.get("workload")
    return isinstance(workload, dict) and "horizon" in workload


def tables_of(text: str) -> AnyProblemFile:
    """The tables of a problem file, their names and types checked; nothing is built."""
    return validated(PROBLEM_FILE, parsed(text, field=FIELD), belongs=BELONGS)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An interval that holds the optimum of tr(H X^-1), and how it was obtained.

    Args:
        lower: no design has a smaller objective.
        upper: some design has no larger one.
        method: how that is known.

    Raises:
        InputError: a bound is not positive and finite, or lower > upper.
    """

    lower: float
    upper: float
    method: str

    def __post_init__(self) -> None:
        lower = _checks.real(self.lower, field="reference.lower", low=0)
        upper = _checks.real(self.upper, field="reference.upper", low=0)
        if lower > upper:
            expected = f"at least reference.lower = {lower!r}"
            raise InputError("reference.upper", expected=expected, got=repr(upper))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadedProblem(Shown):
    """A problem and the text it was read from.

    Attributes:
        problem: what was read; an ``UnboundedProblem`` of a run without an end.
        text: the file, by which tables tell problems apart.
        reference: an interval that holds the optimum, where the file states one.
        path: of the file; None for text without one.
        tags: words to find it by.
        description: what it is, in words.
        remark: what was found for it while it was read: a learning rate that is tuned.
    """

    problem: Problem
    text: str
    reference: Reference | None = None
    path: Path | None = None
    tags: tuple[str, ...] = ()
    description: str = ""
    remark: str = ""

    def _title(self) -> str:
        return f"Problem file {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        optimum = self.reference and f"from {self.reference.lower!r} to {self.reference.upper!r}"
        return {
            **self.problem._facts(),
            "optimum": optimum,
            "description": self.description,
            "tags": self.tags,
            "path": self.path,
        }


def problem_of_tables(
    file: AnyProblemFile, folder: Path, known: Any, *, proved: bool = True
) -> Problem:
    """The problem of a file; files are relative to ``folder``, ``known`` is W where it is chosen
    and that one may be, ``proved`` whether a bound is judged elsewhere, if one can be proved."""
    graph: Any = file.graph
    if getattr(graph, "weights", None) != LEAST_NOISE:
        return file.problem(folder, known)
    rule = "doubly-stochastic" if graph.one_way else "metropolis-hastings"
    if getattr(graph, "weight", None):
        expected = f'false or nothing beside weights = "{LEAST_NOISE}", which chooses W itself'
        raise InputError("graph.weight", expected=expected, got="true")
    plain = graph.model_copy(update={"weights": rule, "mixing_rate": None})
    problem = file.model_copy(update={"graph": plain}).problem(folder, None)
    if problem.sparse:
        expected = f"other weights for more than {settings.DENSE_NODES} nodes, or sparse noise"
        raise InputError("graph.weights", expected=expected, got=LEAST_NOISE)
    links: Any = problem.mixing
    rate = graph.mixing_rate
    proved = proved or problem.one_step_weights is None
    proved = proved and known is not None and links is not None
    if proved and stochastic_on(links, known, symmetric=not graph.one_way):
        allowed = mixing_norm(links) if rate is None else rate
        if mixing_norm(known) <= allowed * (1 + settings.rank_tolerance(len(known))):
            return problem.with_mixing(known)
    # It solves for noise, and who judges a design of a W that is known needs no solver.
    choose = import_module("noisedesign.design.least_noise").least_noise_mixing
    keys = {"mixing_rate": "graph.mixing_rate", "mixing": "graph.weights"}
    with renamed(keys | {"random": "mixing", "schedule": "graph.kind"}):
        return cast(Problem, choose(problem, mixing_rate=rate).problem)


def load_problem(path: str | Path, *, mixing: Array | None = None) -> LoadedProblem:
    """The problem of a file or of the name of a shipped one, as of :func:`noisedesign.load`."""
    with opened(path, field=FIELD) as (found, text):
        return replace(parse_problem(text, folder=found.parent, mixing=mixing), path=found)


def _tuned(text: str, problem: Problem, tuning: dict[str, Any]) -> tuple[str, str]:
    """The text with the learning rate that is best with its noise, for tuning keys; a remark."""
    # It solves for noise, and who judges a design needs no solver: designs have texts of one rate.
    tune = import_module("noisedesign.design.tune").tune_learning_rate
    with renamed({key: f"error.{key}" for key in ("start", "batch_size")}):
        found = tune(problem, **tuning)
    tables = parsed(text, field=FIELD)
    error = {k: v for k, v in tables["error"].items() if k not in (*tuning, "tune")}
    rates = found.problem.error.learning_rates
    error.pop("learning_rate", None)
    stated = {"learning_rate", "learning_rates"} & set(tables["error"])
    error["learning_rates"] = float(rates[0]) if np.ptp(rates) == 0 else rates.tolist()
    of = "factor on the stated learning rates" if stated else "learning rate"
    told = (
        f"The {of} {found.learning_rate:.4g} has the least expected loss of the last "
        f"model: {found.loss:.4g} above the minimum, {found.of_start:.4g} of it the start's. "
    )
    return dumped(tables | {"error": error}), told + found.assumed


def parse_problem(text: str, *, folder: str | Path, mixing: Array | None = None) -> LoadedProblem:
    """Read a problem from text, as :func:`load_problem`; files are relative to ``folder``. Where
    the learning rate is to be tuned, it is, and the text says which one was found."""
    tables, remark = parsed(text, field=FIELD), ""
    file: Any = validated(ENDLESS, tables, belongs=BELONGS) if endless(tables) else None
    if file is None:
        file = tables_of(text)
        error = file.error if isinstance(file.error, TunedErrorTable) else TunedErrorTable()
        if (tuning := error.tuning()) is not None:
            text, remark = _tuned(text, problem_of_tables(file, Path(folder), mixing), tuning)
            file = tables_of(text)
    # Cheap checks first: a wrong reference should not cost an eigendecomposition.
    reference = None if file.reference is None else Reference(**file.reference.model_dump())
    return LoadedProblem(
        problem=cast("Any", problem_of_tables(file, Path(folder), mixing)),
        text=text,
        reference=reference,
        tags=tuple(file.tags),
        description=file.description,
        remark=remark,
    )
