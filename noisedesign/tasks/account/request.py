"""Account files as questions: one observer of one algorithm, and what is asked of its victims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.shown import Listing
from noisedesign.design.design import Design, design_of
from noisedesign.files.account_file import FIELD, AccountFile, DesignAlgorithm, account_tables
from noisedesign.files.design_file import load_design
from noisedesign.files.tables import HorizonTable
from noisedesign.files.toml import opened, renamed
from noisedesign.mechanisms import algorithms
from noisedesign.privacy import drawn, exposure
from noisedesign.privacy.exposure import Exposure
from noisedesign.privacy.views import Algorithm, Observer
from noisedesign.problem.calibration import calibration_of
from noisedesign.system.participation import Participation
from noisedesign.tasks.account.table import Setting

_KEYS = dict.fromkeys(("strategy", "covariance", "design"), "algorithm.file")
_KEYS["algorithm.edge_variance"] = "algorithm.edge_stddev"
"""Arguments of the library -> the keys of a file that set them."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AccountRequest(Setting):
    """One observer of one algorithm, and what is asked about its victims.

    Attributes:
        algorithm: what the nodes send.
        participation: at which steps one record takes part.
        noise_multiplier: as of :func:`noisedesign.account`.
        adjacency: likewise.
        delta: likewise.
        responses: likewise.
        graph: False where a design is for one model, so that nobody is its neighbour.
        name: of the request.
        observer: who looks.
        victims: rows of W in ascending order; None for all nodes that do not look.
    """

    name: str
    observer: Observer
    victims: tuple[int, ...] | None = None

    def run(self, progress: Callable[[int, int], None] | None = None) -> Listing[Exposure]:
        """Run :func:`noisedesign.privacy.exposure.account` for every victim.

        Raises:
            InputError: a coalition of all nodes; seeds the algorithm does not have; a horizon that
                is too long for the observer.
        """
        keys = {"delta": "observer.delta", "adjacency": "observer.adjacency"}
        with renamed(keys):
            return self.before(self.observer, victims=self.victims, progress=progress)


def load_account(path: str | Path) -> AccountRequest:
    """The account of a file or of the name of a shipped one."""
    with opened(path, field=FIELD) as (found, text):
        return parse_account(text, folder=found.parent, name=found.stem)


def parse_account(text: str, *, folder: str | Path, name: str = FIELD) -> AccountRequest:
    """Read an account as :func:`load_account` does, from text; files are relative to ``folder``."""
    file, folder = account_tables(text), Path(folder)
    # Cheap checks first: a wrong delta should not cost an eigendecomposition.
    table = file.algorithm
    noise_multiplier: Any = table.noise_multiplier
    if isinstance(noise_multiplier, float):
        noise_multiplier = _checks.scale(noise_multiplier, field="algorithm.noise_multiplier")
    delta = _checks.real(file.observer.delta, field="observer.delta", low=0, high=1)
    adjacency: str = file.observer.adjacency
    design = None
    if isinstance(table, DesignAlgorithm):
        try:
            design = design_of(load_design(folder / table.file))
        except InputError as error:
            raise error.told(field="algorithm.file") from error
        if "noise_multiplier" not in table.model_fields_set:
            noise_multiplier = calibration_of(design.problem).noise_multiplier
        if (target := design.problem.privacy) is not None:  # what nobody states is the design's own
            stated = file.observer.model_fields_set
            delta = delta if "delta" in stated else target.delta
            adjacency = adjacency if "adjacency" in stated else target.adjacency
    participation = _participation(file, design)
    keys = ("epochs", "separation") if isinstance(file.participation, HorizonTable) else ()
    with renamed({f"participation.{key}": "participation.horizon" for key in keys}):
        algorithm = _algorithm(file, participation, folder, design)
        observer = file.observer.observer(algorithm.nodes)
        if participation.random:
            of_file = getattr(table, "file", None) is not None
            with renamed({"strategy": "algorithm.file" if of_file else "algorithm.kind"}):
                drawn.require_nonnegative(algorithm)
        with renamed({"noise_multiplier": "algorithm.noise_multiplier"}):
            exposure.with_multiplier(algorithm, noise_multiplier)
        exposure.require_room(algorithm.noise, observer, participation)
    return AccountRequest(
        name=file.name or name,
        algorithm=algorithm,
        observer=observer,
        participation=participation,
        noise_multiplier=noise_multiplier,
        delta=delta,
        adjacency=adjacency,
        responses=file.observer.said(table="observer"),
        victims=file.observer.victims_before(observer, algorithm.nodes),
    )


def _participation(file: AccountFile, design: Design | None) -> Participation:
    """The participation that is stated, or else that of the design."""
    if file.participation is not None:
        return file.participation.scheme()
    if design is None or design.problem.use is None:
        expected = "a [participation] table"
        raise InputError("participation", expected=expected, got="nothing")
    return design.problem.use


def _algorithm(
    file: AccountFile, participation: Participation, folder: Path, design: Design | None
) -> Algorithm:
    table, keys = file.algorithm, dict(_KEYS)
    network: dict[str, Any] = {"participation": participation, "mixing": None}
    if file.graph is not None:
        network["mixing"], network["nodes"] = file.graph.mixing(folder)
        keys["mixing"] = file.graph.weights_key
    elif design is None:
        expected = f"a [graph] table for {table.kind}"
        remedy = "Only a stored design brings a graph of its own."
        raise InputError("graph", expected=expected, got="nothing", remedy=remedy)
    options = table.options(folder)
    with renamed(keys):
        if design is not None:
            return algorithms.of_design(design, **network)
        return algorithms.algorithm(table.kind, **network, **options)
