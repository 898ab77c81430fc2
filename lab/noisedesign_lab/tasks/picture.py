"""A picture of what was trained: test loss against epsilon, a line a mechanism and account."""

from __future__ import annotations

import math
from pathlib import Path

from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import style, write_figure
from noisedesign_lab.papers.reproduce.pictures import loss_against_epsilon
from noisedesign_lab.papers.reproduce.statistics import interval
from noisedesign_lab.tasks.accounts import RANDOM, UNCOVERED
from noisedesign_lab.tasks.table import TrainingResult
from noisedesign_lab.tasks.training_task import DIVERGED_STATUS

IN_RANDOM_BATCHES = ", random batches"  # after the name of a mechanism

WORDS = {
    "none": "without noise",
    "ldp": "independent noise",
    "mafalda": "over time",
    "amplified": "over time",
    "edge-local": "between neighbours",
    "mafalda-edge-local": "between neighbours, over time",
    "whisper-horizon": "between nodes",
    "kronecker": "between nodes, over time",
    "amplified-kronecker": "between nodes, over time",
}
"""Mechanisms in the words of recommendations."""


def loss_picture(found: TrainingResult, output: str | Path) -> Path:
    """Draw test losses after the last step against epsilon, with intervals over seeds.

    A mechanism that keeps the fixed account under random batches has one line.

    Args:
        found: what :func:`noisedesign_lab.train` returns, of budgets by epsilon.
        output: the picture: .svg, .pdf or .png.

    Raises:
        InputError: naming ``picture``: the rows have no epsilon or no test loss.
    """
    losses: dict[tuple[str, float], list[float]] = {}
    last = max(row["step"] for row in found.rows)
    for row in found.rows:
        drawn = row["account"] == RANDOM
        if row["step"] != last or (drawn and row["which"].startswith(UNCOVERED)):
            continue
        name = row["mechanism"] + (IN_RANDOM_BATCHES if drawn else "")
        epsilon = math.inf if row["epsilon"] is None else row["epsilon"]
        lost = math.inf if row["status"] == DIVERGED_STATUS else row["test_loss"]
        if lost is not None:
            losses.setdefault((name, epsilon), []).append(lost)
    if all(math.isinf(epsilon) for _, epsilon in losses):
        expected = "rows with an epsilon and a test loss, to draw one against the other"
        raise InputError("picture", expected=expected, got="none")
    summary = [
        {
            "setting": "",
            "mechanism": name,
            "epsilon": epsilon,
            **interval(of_seeds).columns("test_loss"),
        }
        for (name, epsilon), of_seeds in losses.items()
    ]
    with style():
        return write_figure(loss_against_epsilon(summary, log=True, words=_in_words), output)


def _in_words(name: str) -> str:
    mechanism = name.removesuffix(IN_RANDOM_BATCHES)
    return WORDS.get(mechanism, mechanism) + name[len(mechanism) :]
