"""DECOR, the trainer of Allouah et al. (2024): its two numbers, and a program that keeps to them.

Every node adds noise of standard deviation ``--sigma``, and every edge noise of standard deviation
``--sigma-cor`` that its two ends add with opposite signs: R = sigma^2 I + sigma_cor^2 Laplacian.
It is added to the MEAN of clipped gradients (``--privacy example``), for which the program divides
both by the batch size, or to the gradient of a batch that is clipped as a whole."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import cast

import numpy as np

from noisedesign.base import settings
from noisedesign.base.atomic import write_text
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design, fixed_mixing
from noisedesign.files import launchers
from noisedesign.files.array_files import require_own_description
from noisedesign.files.exported import to_json, trainer_facts
from noisedesign.forms import Noise
from noisedesign.privacy.seeds import edge_shares
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import graph_laplacian

ACCEPTS = ("space",)
DESCRIPTION = "sigma and sigma_cor of DECOR (.json), and a program that runs it with them (.py)"

_NOTE = (
    "sigma_of_sum and sigma_cor_of_sum are standard deviations (not squared) for the sum of "
    "clipped gradients; divide both by the batch size under --privacy example. Run the program "
    "beside this file in the trainer's folder: train.py itself draws the noise of edges once for "
    "all steps, which protects nothing after the first, multiplies it by W, runs one step more, "
    "and divides a smaller last batch by less. It simulates a deployment in one process, and the "
    "losses it prints are of the data itself."
)


def noise_of(design: Design) -> Noise:
    """The noise of a design that is made of one number for nodes and one for edges."""
    _shares(design)
    return design.noise


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write ``sigma_of_sum``, ``sigma_cor_of_sum``, ``mixing``, W, and ``edges`` with what is known
    of the design and its privacy; and a program of the same stem, .py."""
    own, shared = _shares(design)
    program = path.with_suffix(".py")
    if program == path:
        remedy = "The program beside it has that name."
        raise InputError("output", expected="a name in .json", got=str(path), remedy=remedy)
    problem = cast("SpaceProblem", design.problem)
    scale = calibration_of(problem).noise_stddev
    metadata = trainer_facts(design, note=_NOTE, problem_text=problem_text)
    numbers = {
        "to": "decor",
        "sigma_of_sum": scale * math.sqrt(own),
        "sigma_cor_of_sum": scale * math.sqrt(shared),
        "protected_unit": "one example under --privacy example, one node under --privacy user",
        "mixing": fixed_mixing(design).tolist(),
        "edges": np.argwhere(np.triu(graph_laplacian(problem.mixing) < 0)).tolist(),
    }
    require_own_description(path, to="decor")
    source = files(launchers).joinpath("decor.py").read_text(encoding="utf-8")
    text = source.replace('NUMBERS = "decor.json"', f"NUMBERS = {path.name!r}")
    return write_text(path, to_json(metadata | numbers)), write_text(program, text)


def _shares(design: Design) -> tuple[float, float]:
    """The squared numbers of nodes and edges."""
    laplacian = graph_laplacian(cast("SpaceProblem", design.problem).dense().mixing)
    covariance = design.covariance
    own, shared = edge_shares(covariance, laplacian)
    own, shared = max(0.0, own), max(0.0, shared)
    rest = np.abs(covariance - own * np.eye(len(covariance)) - shared * laplacian).max()
    if not rest <= settings.STRUCTURE_TOLERANCE * np.abs(covariance).max():
        expected = "noise of two numbers, one for nodes and one for edges"
        got = f"a covariance that is {rest:.3g} away from such"
        remedy = 'State space = "decor" in [structure].'
        raise InputError("design", expected=expected, got=got, remedy=remedy)
    return own, shared
