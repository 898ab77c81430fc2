"""MFDL, the trainer of Mafalda-SGD: C as its cache holds it (docs/guides/other-trainers.md).

Its optimizer draws Z with standard deviation clip * sens(C) * noise_multiplier and adds pinv(C) Z
to the sum of clipped gradients, both divided by the batch size. It computes sens(C) itself, and
looks for C in correlations_matrixes/.../OptimalDL_PostAVG.npy, for that of D-MF in
centralized/.../optimal_local.npy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np

from noisedesign.base.atomic import StorageError, write_bytes, write_text
from noisedesign.base.checks import Array, InputError
from noisedesign.base.settings import STOCHASTIC_TOLERANCE
from noisedesign.design.design import Design
from noisedesign.files.archive import npy_bytes
from noisedesign.files.array_files import require_own_description
from noisedesign.files.exported import facts, to_json
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import Problem, TimeProblem
from noisedesign.system.participation import FixedEpoch

ACCEPTS = ("time",)
DESCRIPTION = "C for MFDL: a .npy file, or its cache folder, laid out as it looks files up"

_GRAPHS = {  # kinds of graph that are the same in both programs; random ones are not
    "florentine": "florentine",
    "ring": "cycle",
    "path": "chain",
    "complete": "complete",
    "star": "star",
    "hypercube": "hypercube",
}

_RUN_NOTE = (
    "MFDL needs Python 3.12 and numpy below 2. Leave --nb_resets at 1: each further one draws the "
    "same noise again, and differences of gradients are sent without any. Gradients are clipped to "
    "1, and noise is a multiple of the clip. It comes from --dataloader_seed, which is no secret: "
    "MFDL simulates a deployment."
)


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write C, shape (T, T), as .npy and, beside it, .json with how to run it.

    A ``path`` that ends in .npy is that file. Any other is the trainer's ``cache`` folder, in
    which C goes where the trainer looks for its own, by graph, nodes, steps and epochs; a design
    for prefix sums goes under ``centralized``, as D-MF does."""
    problem = cast("TimeProblem", design.problem)
    name, known = _graph_name(problem, problem_text)
    target = path
    if path.suffix != ".npy":
        target = path / _place(problem, name)
        for at in (target, *companions(design, path)):
            _make_folder(at.parent)
    sidecar = facts(design, problem_text=problem_text) | {"to": "mfdl"} | _how_to_run(design)
    sidecar |= {"graph_name": name, "graph_known_to_trainer": known}
    description = target.with_suffix(".json")
    require_own_description(description, to="mfdl")
    return (
        write_bytes(target, npy_bytes(design.strategy)),
        write_text(description, to_json(sidecar)),
    )


def companions(design: Design, path: Path) -> dict[Path, str]:
    """The path in its cache folder at which the trainer looks for D-MF, for other designs."""
    problem = cast("TimeProblem", design.problem)
    if path.suffix == ".npy" or problem.workload == "prefix":
        return {}
    return {path / _place(problem, "", centralized=True): "d-mf"}


def trainer_sensitivity(strategy: Array, participation: FixedEpoch) -> float:
    """sens(C), not squared, as the trainer computes it: never below the exact one."""
    blocks = participation.patterns
    gram = np.abs(strategy.T @ strategy)
    return float(np.sqrt(gram[blocks[:, :, None], blocks[:, None, :]].sum(axis=(1, 2)).max()))


def _how_to_run(design: Design) -> dict[str, Any]:
    problem = cast("TimeProblem", design.problem)
    scheme, target = problem.fixed_epoch, problem.privacy
    # The trainer multiplies by the clip and the sensitivity of C itself.
    multiplier = None
    if target is not None:
        multiplier = calibration_of(problem).noise_multiplier / problem.sensitivity
    return {
        "participation_interval": scheme.separation,
        "trainer_sensitivity": trainer_sensitivity(design.strategy, scheme),
        "l2_norm_clip": None if target is None else target.clip,
        "adjacency": None if target is None else target.adjacency,
        "noise_multiplier": multiplier,
        "mu_argument": None if multiplier is None else 1 / multiplier,
        "noise_multiplier_note": "2 / mu under replace adjacency, else 1 / mu: the trainer takes "
        "the sensitivity of a step to be one clip. Its --mu is the inverse.",
        "mixing_note": _mixing_note(problem),
        "run_note": _RUN_NOTE,
    }


def _mixing_note(problem: TimeProblem) -> str:
    trainer = "The trainer averages with the rows of A + I divided by their sums"
    if problem.mixing is None:
        return f"{trainer}. This design has no W. Its privacy does not depend on W."
    links = (problem.mixing > 0) | np.eye(len(problem.mixing), dtype=bool)
    normalized = links / links.sum(axis=1, keepdims=True)
    once = problem.always_alike and problem.rounds == 1
    if once and np.abs(normalized - problem.mixing).max() <= STOCHASTIC_TOLERANCE:
        return f"{trainer}. This design was made for the same W."
    return f"{trainer}. This design was made for another W: its privacy holds, its objective not."


def _place(problem: TimeProblem, graph_name: str, *, centralized: bool = False) -> Path:
    scheme = problem.fixed_epoch
    steps = Path(f"steps{scheme.horizon}", f"epochs{scheme.epochs}")
    if centralized or problem.workload == "prefix":
        return Path("centralized", steps, "optimal_local.npy")
    if problem.mixing is None:
        expected = "a path that ends in .npy"
        got = f"a folder, for a {problem.workload} workload"
        raise InputError("output", expected=expected, got=got, remedy="MFDL caches it nowhere.")
    nodes = f"nodes{len(problem.mixing)}"
    return Path("correlations_matrixes", graph_name, nodes, steps, "OptimalDL_PostAVG.npy")


def _graph_name(problem: Problem, problem_text: str) -> tuple[str, bool]:
    """The trainer's name of the graph, and whether the trainer can build that graph itself."""
    try:
        graph = tomllib.loads(problem_text).get("graph", {})
    except tomllib.TOMLDecodeError:
        graph = {}
    graph = graph if isinstance(graph, dict) else {}
    kind = graph.get("kind")
    if kind == "grid" and graph.get("rows") == graph.get("columns"):
        return "grid", True
    if kind == "ego-facebook" and graph.get("ego") == 414:
        return "ego", True
    if isinstance(kind, str) and kind in _GRAPHS:
        return _GRAPHS[kind], True
    return re.sub(r"[^A-Za-z0-9_-]+", "-", problem.name).strip("-") or "design", False


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        expected = "a folder, or a path that ends in .npy"
        raise InputError("output", expected=expected, got=f"a file in {folder}") from error
    except OSError as error:
        raise StorageError(folder, error) from error
