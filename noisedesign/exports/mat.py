"""MATLAB 5 files, under the names of the mathematics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from noisedesign.design import Design
from noisedesign.exports._common import facts, to_json
from noisedesign.io.atomic import write_atomically
from noisedesign.problem import SpaceProblem, SpaceTimeProblem

ACCEPTS = ("space", "time")
DESCRIPTION = "R, W, tau or C, Cinv, H, horizon, for MATLAB and scipy.io.loadmat"


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write R, W, tau (and max_variance, min_variance) or C, Cinv, H, horizon (and W).

    ``nodes`` is a cell array in the order of the rows of W; ``metadata`` is a JSON string. Vectors
    are columns.
    """
    problem = design.problem
    if isinstance(problem, SpaceProblem):
        variables: dict[str, Any] = {
            "R": design.covariance, "W": problem.mixing, "tau": problem.budget
        }  # fmt: skip
        if problem.max_variance is not None:
            variables["max_variance"] = problem.max_variance
        if problem.min_variance is not None:
            variables["min_variance"] = problem.min_variance
    else:
        variables = {
            "C": design.strategy, "Cinv": design.noising_matrix,
            "horizon": float(problem.participation.horizon),
        }  # fmt: skip
        if isinstance(problem, SpaceTimeProblem):
            variables["tau"] = problem.budget
            if design.node_covariance is not None:
                variables["R"] = design.covariance
        else:
            variables["H"] = problem.gram
        if problem.mixing is not None:
            variables["W"] = problem.mixing
    if problem.nodes:
        variables["nodes"] = np.array([*problem.nodes, None], dtype=object)[:-1]
    variables["metadata"] = to_json(facts(design, problem_text=problem_text))

    def write(file: Any) -> None:
        savemat(file, variables, oned_as="column")

    return (write_atomically(path, write),)
