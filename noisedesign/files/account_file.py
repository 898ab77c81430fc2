"""Account files: strict TOML in, a question of who sees what out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Listing, Shown
from noisedesign.files import _account_schema as schema
from noisedesign.files import _settings_of
from noisedesign.files._lookup import lookup
from noisedesign.files._schema import HorizonTable
from noisedesign.files._schema_errors import to_input_error
from noisedesign.files._tables import load_npy, mixing_key, mixing_of
from noisedesign.files._toml import located, parsed, read_text, renamed
from noisedesign.files.design_file import load_design
from noisedesign.files.node_names import row_of
from noisedesign.privacy import exposure
from noisedesign.privacy import views as threats
from noisedesign.privacy.accounting import calibrate
from noisedesign.privacy.exposure import Exposure
from noisedesign.privacy.target import DEFAULT_ADJACENCY, DEFAULT_DELTA
from noisedesign.privacy.views import Algorithm, Observer
from noisedesign.privacy.views.observers import Seed
from noisedesign.program.design import Design, design_of
from noisedesign.system.participation import Participation, Patterns
from noisedesign.tasks import algorithms as catalogue

FIELD = "account"

_BELONGS = {
    key: f"{key} is a key of problem files, which `noisedesign solve` reads."
    for key in ("design", "workload", "budget", "limits", "privacy", "reference")
}
_KEYS = {
    "strategy": "algorithm.file",
    "covariance": "algorithm.file",
    "design": "algorithm.file",
    "algorithm.edge_variance": "algorithm.edge_stddev",
}
"""Arguments of the library and the keys of a file that set them."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AccountRequest(Shown):
    """One observer of one algorithm, and what is asked about its victims.

    Attributes:
        noise_multiplier: factor on the standard deviation of all noise of the algorithm, over the
            clip.
        adjacency: "replace", "zero-out" or "add-remove".
        delta: for which epsilon is stated.
        victims: rows of W in ascending order; None for all nodes that do not look.
    """

    name: str
    algorithm: Algorithm
    observer: Observer
    participation: Participation
    noise_multiplier: float = 1.0
    adjacency: str = DEFAULT_ADJACENCY
    delta: float = DEFAULT_DELTA
    victims: tuple[int, ...] | None = None

    def run(self, progress: Callable[[int, int], None] | None = None) -> Listing[Exposure]:
        """What the observer learns about every victim; see :func:`exposure.account`.

        Raises:
            InputError: a coalition of all nodes; seeds the algorithm does not have; a horizon that
                is too long for the observer.
        """
        return exposure.account(
            self.algorithm,
            self.observer,
            participation=self.participation,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            adjacency=self.adjacency,
            victims=self.victims,
            progress=progress,
        )


def load_account(path: str | Path) -> AccountRequest:
    """Read an account file; ``problems/README.md`` describes its keys.

    Args:
        path: a file, or the name of a shipped one, ``"accounts/ring-decor-secldp"``, with or
            without ``.toml``. What the working directory or its folder ``problems`` has is first.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML.
    """
    path = lookup(path)
    text = read_text(path, field=FIELD)
    with located(path):
        return parse_account(text, folder=path.parent, name=path.stem)


def parse_account(text: str, *, folder: str | Path, name: str = FIELD) -> AccountRequest:
    """As :func:`load_account`, from text; files it names are relative to ``folder``.

    Args:
        name: of the request, where the text gives none.
    """
    data = parsed(text, field=FIELD)
    try:
        file = schema.AccountFile.model_validate(data)
    except ValidationError as error:
        raise to_input_error(error, data, belongs=_BELONGS) from None
    # Cheap checks first: a wrong delta should not cost an eigendecomposition.
    field = "algorithm.noise_multiplier"
    noise_multiplier = _checks.scale(file.algorithm.noise_multiplier, field=field)
    delta = _checks.real(file.observer.delta, field="observer.delta", low=0, high=1)
    participation = participation_of(file.participation)
    horizon = isinstance(file.participation, HorizonTable)
    keys = ("epochs", "separation") if horizon else ()
    table = file.algorithm
    design = None
    if isinstance(table, schema.DesignAlgorithm):
        design = _design(Path(folder) / table.file)
        if "noise_multiplier" not in table.model_fields_set:
            noise_multiplier = calibrate(design.problem).noise_multiplier
    with renamed({f"participation.{key}": "participation.horizon" for key in keys}):
        algorithm = _algorithm(file, participation, Path(folder), design)
        observer = _observer(file.observer, algorithm.nodes)
        exposure.require_room(algorithm.noise, observer, participation)
    return AccountRequest(
        name=file.name or name,
        algorithm=algorithm,
        observer=observer,
        participation=participation,
        noise_multiplier=noise_multiplier,
        delta=delta,
        adjacency=file.observer.adjacency,
        victims=_victims(file.observer, algorithm.nodes, observer),
    )


def participation_of(table: schema.ParticipationTable) -> Participation:
    """The scheme of a [participation] table; of patterns too, which problem files do not have."""
    if isinstance(table, schema.PatternsTable):
        steps = tuple(tuple(pattern) for pattern in table.patterns)
        return Patterns(horizon=table.horizon, steps=steps)
    return _settings_of.participation_of(table)


def _algorithm(
    file: schema.AccountFile, participation: Participation, folder: Path, design: Design | None
) -> Algorithm:
    table, keys = file.algorithm, dict(_KEYS)
    mixing: Array | None = None
    nodes: tuple[str, ...] = ()
    if file.graph is not None:
        mixing, nodes = mixing_of(file.graph, folder=folder)
        keys["mixing"] = mixing_key(file.graph)
    elif design is None:
        raise InputError(
            "graph",
            expected=f"a [graph] table for {table.kind}",
            got="nothing",
            remedy="Only a stored design brings a graph of its own.",
        )
    options = _options(table, folder)
    with renamed(keys):
        if design is not None:
            return catalogue.of_design(
                design, participation=participation, mixing=mixing, nodes=nodes
            )
        return catalogue.algorithm(
            table.kind, mixing=mixing, participation=participation, nodes=nodes, **options
        )


def _options(table: schema.AlgorithmTable, folder: Path) -> dict[str, Any]:
    """The table's keys as options of the catalogue, its file read."""
    options = table.model_dump(exclude={"kind", "noise_multiplier", "file"})
    match table:
        case schema.MatrixAlgorithm():
            name = "strategy" if table.kind == "mf-d-sgd" else "covariance"
            options[name] = load_npy(folder / table.file, field="algorithm.file")
        case schema.WhisperAlgorithm() if table.file is not None:
            options["covariance"] = load_npy(folder / table.file, field="algorithm.file")
    return options


def _design(path: Path) -> Design:
    try:
        return design_of(load_design(path))
    except InputError as error:
        raise InputError(
            "algorithm.file", expected=error.expected, got=error.got, remedy=error.remedy
        ) from error


def _observer(table: schema.ObserverTable, names: tuple[str, ...]) -> Observer:
    def rows(nodes: Sequence[int | str]) -> list[int]:
        return [row_of(node, names, field="observer.nodes") for node in nodes]

    match table:
        case schema.ReceivingObserver():
            receiver = threats.pndp if table.model == "pndp" else threats.secure_sum
            return receiver(nodes=rows(table.nodes), own_noise=table.own_noise)
        case schema.NodesObserver():
            reader = threats.insider if table.model == "insider" else threats.tap
            return reader(nodes=rows(table.nodes))
        case schema.SeedObserver():
            seeds = [_seed(seed, names) for seed in table.known_seeds]
            return threats.secldp(nodes=rows(table.nodes), known_seeds=seeds)
        case schema.SharedSeedObserver():
            return threats.shared_seed(nodes=rows(table.nodes))
        case schema.OutsideObserver():
            return threats.ldp()


def _seed(seed: schema.NamedSeed, names: tuple[str, ...]) -> Seed:
    def row(node: int | str) -> int:
        return row_of(node, names, field="observer.known_seeds")

    return (row(seed[0]), row(seed[1])) if isinstance(seed, tuple) else row(seed)


def _victims(
    table: schema.ObserverTable, names: tuple[str, ...], observer: Observer
) -> tuple[int, ...] | None:
    if table.victims is None:
        return None
    rows = [row_of(node, names, field="observer.victims") for node in table.victims]
    if not rows or len(set(rows)) != len(rows):
        raise InputError(
            "observer.victims",
            expected="one or more different nodes",
            got=", ".join(names[row] for row in rows) or "none",
        )
    for row in rows:
        if row in observer.coalition:
            raise InputError(
                "observer.victims",
                expected="nodes other than the observer",
                got=f"{names[row]}, who looks",
                remedy="A node knows its own gradients.",
            )
    return tuple(sorted(rows))
