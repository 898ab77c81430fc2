"""Pictures show means with their bands, and of runs that diverged nothing but words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from noisedesign.files.picture_looks import looks_of
from noisedesign_lab.papers.reproduce.pictures import loss_against_epsilon, loss_against_steps
from noisedesign_lab.papers.reproduce.statistics import over_seeds


def rows(**losses: list[list[float]]) -> list[dict[str, Any]]:
    """Losses by mechanism, for epsilon 1 and 4 (and, of "none", infinity) and each seed."""
    return [
        {
            "setting": "ring",
            "mechanism": name,
            "epsilon": epsilon,
            "seed": seed,
            "test_loss": loss,
            "accuracy": None,
        }
        for name, by_epsilon in losses.items()
        for epsilon, of_seeds in zip((1.0, 4.0), by_epsilon, strict=False)
        for seed, loss in enumerate(of_seeds)
    ]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_loss_against_epsilon() -> None:
    summary = over_seeds(rows(a=[[3.0, 5.0], [1.0, 2.0]], b=[[2.0, math.nan], [1.0, 1.0]]))
    summary += [{**summary[0], "mechanism": "none", "epsilon": math.inf, "test_loss": 0.5}]
    figure = loss_against_epsilon(summary)
    (axes,) = figure.axes
    lines = {line.get_color(): line.get_xydata() for line in axes.lines}
    looks = looks_of(["a", "b", "none"])
    assert np.array_equal(lines[looks["a"]["color"]], [[1, 4], [4, 1.5]])
    assert np.array_equal(lines[looks["b"]["color"]], [[4, 1]])
    assert lines[looks["none"]["color"]][:, 1].tolist() == [0.5, 0.5]
    assert legend(figure) == ["a", "b (diverged at epsilon 1)", "none"]
    bands = [band.get_paths()[0].vertices for band in axes.collections]
    # The t quantile of one degree of freedom; standard error 1 at epsilon = 1.
    assert bands[0][:, 1].max() == pytest.approx(4 + 12.706205, rel=1e-6)


def test_loss_against_steps_ends_before_what_diverged() -> None:
    table = [
        {
            "setting": "ring",
            "mechanism": name,
            "epsilon": 1.0,
            "seed": seed,
            "step": step,
            "test_loss": math.inf if (name, step, seed) == ("b", 20, 1) else 10.0 - step / 10,
        }
        for name in "ab"
        for step in (0, 10, 20)
        for seed in (0, 1)
    ]
    figure = loss_against_steps(table)
    (axes,) = figure.axes
    assert [len(line.get_xydata()) for line in axes.lines] == [3, 2]
    assert legend(figure) == ["a", "b (diverged at epsilon 1)"]
    assert axes.get_title() == "ring, epsilon 1"


def test_a_dozen_mechanisms_look_different() -> None:
    looks = looks_of(str(k) for k in range(12))
    assert len({tuple(look.values()) for look in looks.values()}) == 12
