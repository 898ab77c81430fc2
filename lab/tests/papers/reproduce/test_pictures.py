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


def test_intervals_of_many_stand_side_by_side() -> None:
    """Six mechanisms: bars from end to end, none at the place of another, each nearest its own
    epsilon; and the run without noise above them all, and within the axes."""
    names = ("ldp", "decor", "whisper", "edge-local", "mafalda", "d-mf")
    summary = over_seeds(rows(**{name: [[3.0, 5.0], [1.0, 2.0]] for name in names}))
    summary += [{**summary[0], "mechanism": "none", "epsilon": math.inf, "test_loss": -40.0}]
    (axes,) = loss_against_epsilon(summary).axes
    *lines, quiet = axes.lines
    places = np.array([line.get_xdata() for line in lines])
    assert len(set(places[:, 0])) == len(names)
    assert np.abs(np.log(places / [1, 4])).max() < np.log(4) / 20
    assert [line.get_ydata().tolist() for line in lines] == [[4, 1.5]] * len(names)
    bars = [one.get_segments() for one in axes.collections]
    assert [len(one) for one in bars] == [2] * len(names)
    # The t quantile of one degree of freedom; standard errors 1 and 1/2.
    ends = [segment[:, 1].tolist() for segment in bars[0]]
    half = [12.706205, 12.706205 / 2]
    np.testing.assert_allclose(ends, [[4 - half[0], 4 + half[0]], [1.5 - half[1], 1.5 + half[1]]])
    assert quiet.get_ydata() == [-40, -40]
    assert all(quiet.get_zorder() > line.get_zorder() for line in lines)
    assert axes.get_ylim()[0] < -40 < axes.get_ylim()[1]


def test_a_mechanism_has_one_colour_in_both_pictures() -> None:
    names = ("ldp", "whisper", "whisper-horizon", "cdp-n", "cdp-n2", "none")
    table = [row | {"step": 10} for row in rows(**{name: [[1.0, 2.0]] for name in names})]
    of_steps = loss_against_steps(table).axes[0].lines
    of_epsilon = loss_against_epsilon(over_seeds(table)).axes[0].lines
    colours = [line.get_color() for line in of_steps]
    assert [line.get_color() for line in of_epsilon] == colours
    assert len(set(colours)) == len(names)


def test_independent_noise_shows_below_a_mechanism_that_is_the_same_noise() -> None:
    table = [row | {"step": 10} for row in rows(decor=[[1.0, 2.0]], ldp=[[1.0, 2.0]])]
    for figure in (loss_against_steps(table), loss_against_epsilon(over_seeds(table))):
        decor, ldp = figure.axes[0].lines
        assert ldp.get_linewidth() > decor.get_linewidth()
        assert ldp.get_zorder() < decor.get_zorder()


def test_a_long_title_is_whole_in_two_lines() -> None:
    (axes,) = loss_against_steps(
        [row | {"step": 10, "setting": " ".join(["network"] * 9)} for row in rows(a=[[1.0]])]
    ).axes
    title = axes.get_title()
    assert title.split() == ["network"] * 8 + ["network,", "epsilon", "1"]
    assert title.count("\n") == 1


def test_ticks_have_names_within_a_decade_whoever_sets_the_limits() -> None:
    summary = over_seeds(rows(a=[[3.0, 5.0], [1.0, 2.0]]))
    (axes,) = loss_against_epsilon(summary, log=True).axes
    name = axes.yaxis.get_minor_formatter()
    for limits, told in (((1, 5), "2"), ((1, 50), "")):
        axes.set_ylim(*limits)
        assert name(2.0, 0) == told


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
