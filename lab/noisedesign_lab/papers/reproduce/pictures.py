"""Pictures that experiments share: loss against epsilon, and loss against steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from noisedesign.files.picture_file import BLACK, new_figure, plain
from noisedesign.files.picture_looks import Look, looks_of
from noisedesign_lab.papers.reproduce.experiment import Record, Rows
from noisedesign_lab.papers.reproduce.statistics import groups, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3  # panels side by side, and names in a line of the legend
ALONE = 3.7  # inches of a single panel, which a telephone shows whole
LONGEST = 48  # letters of a line of a panel's title, of which there are two at most
SHORT = 20  # letters of names that stand two in a line of the legend of a single panel
FEW = 4  # mechanisms whose intervals are told apart as bands; those of more are bars side by side
APART, SPREAD = 0.005, 0.03  # shares of the axis from one such bar to the next, and of all of them
NOISELESS = {"color": BLACK, "linestyle": ":", "linewidth": 1.8, "marker": "", "zorder": 5}
"""The line without noise, above all others, which would hide it where they come to it."""
BENEATH = {"linewidth": 2.8, "markersize": 7.0, "zorder": 1.5}
"""Independent noise, as wide as to be seen below a mechanism that is the same noise."""
Pictures = Mapping[str, "Figure"]  # figures by the names of their files


def loss_against_epsilon(
    summary: Rows,
    *,
    ylabel: str = "test loss",
    column: str = "test_loss",
    log: bool = False,
    words: Callable[[str], str] = str,
) -> Figure:
    """Draw a panel a setting and a line a mechanism in words, with intervals as bands."""
    looks = looks_of(row["mechanism"] for row in summary)
    noisy = list(dict.fromkeys(r["mechanism"] for r in summary if math.isfinite(r["epsilon"])))
    for name in looks.keys() - set(noisy):
        looks[name] = {**looks[name], **NOISELESS, "color": looks[name]["color"]}
    looks = beneath(looks)
    budgets = [row["epsilon"] for row in summary if math.isfinite(row["epsilon"])]
    told = any(row.get(f"{column}_low") is not None for row in summary)
    moved = side_by_side(noisy, budgets) if told else {}

    def panel(axes: Axes, rows: Rows) -> None:
        for (mechanism,), members in groups(rows, "mechanism"):
            look = looks[mechanism]
            drawn = sorted(
                (row for row in members if _drawn(row[column])), key=lambda row: row["epsilon"]
            )
            if finite := [row for row in drawn if math.isfinite(row["epsilon"])]:
                points(axes, finite, column, look, moved.get(mechanism))
            for row in drawn:
                if math.isinf(row["epsilon"]):
                    axes.axhline(row[column], **{k: v for k, v in look.items() if k != "marker"})
        log_ticks(axes, budgets)
        axes.set_xlabel(r"$\varepsilon$")

    labels = {name: f"{words(name)}{_diverged(summary, name, column)}" for name in looks}
    return _panels(summary, panel, looks, labels, ylabel=ylabel, log=log)


def loss_against_steps(rows: Rows, *, log: bool = False) -> Figure:
    """Draw a panel a setting and epsilon and a line a mechanism, with intervals as bands."""
    told = [row | {"setting": f"{row['setting']}, epsilon {row['epsilon']:g}"} for row in rows]
    looks = {  # of so many points no marker is told from another
        name: {**look, "marker": ""} | (NOISELESS if name == "none" else {})
        for name, look in beneath(looks_of(row["mechanism"] for row in rows)).items()
    }

    def panel(axes: Axes, here: Rows) -> None:
        for (mechanism,), members in groups(here, "mechanism"):
            means = []
            for (step,), at in groups(sorted(members, key=lambda row: row["step"]), "step"):
                found = interval([row["test_loss"] for row in at])
                if not math.isfinite(found.mean):
                    break
                means.append({"epsilon": step, **found.columns("test_loss")})
            points(axes, means, "test_loss", looks[mechanism])
        axes.set_xlabel("steps")

    labels = {name: f"{name}{_diverged(rows, name, 'test_loss')}" for name in looks}
    return _panels(told, panel, looks, labels, ylabel="test loss", log=log)


def beneath(looks: Mapping[str, Look]) -> dict[str, Look]:
    """The same looks, with independent noise below all others and wider than they are."""
    return {name: {**look, **BENEATH} if name == "ldp" else look for name, look in looks.items()}


def beside_noiseless(rows: Rows, epsilon: float) -> list[Record]:
    """Rows of one budget, with the run without noise beside them."""
    return [row | {"epsilon": epsilon} for row in rows if row["epsilon"] in (epsilon, math.inf)]


def log_ticks(axes: Axes, values: Iterable[float]) -> None:
    """A logarithmic axis with a tick at each of these values and nowhere else."""
    axes.set_xscale("log")
    axes.set_xticks(sorted(set(values)), minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")


def side_by_side(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """Factors by which points of each of more than FEW names are moved on a logarithmic axis that
    has these values, so that none is under another; of FEW no factors."""
    share = min(APART, SPREAD / max(len(names) - 1, 1))
    step = (max(values, default=1.0) / min(values, default=1.0)) ** share
    listed = enumerate(names if len(names) > FEW else [])
    return {name: step ** (k - (len(names) - 1) / 2) for k, name in listed}


def points(axes: Axes, rows: Rows, column: str, look: Look, moved: float | None = None) -> None:
    """A line against ``epsilon``, and a band where every point has an interval; or, moved aside, a
    bar a point."""
    places, values = [row["epsilon"] for row in rows], [row[column] for row in rows]
    ends = (f"{column}_low", f"{column}_high")
    known = all(row.get(end) is not None for row in rows for end in ends)
    low, high = ([row[end] for row in rows] if known else values for end in ends)
    if moved is None:
        axes.plot(places, values, **look)
        if known:
            axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
        return
    aside = [moved * place for place in places]
    axes.plot(aside, values, **look)
    if known:
        axes.vlines(aside, low, high, color=look["color"], linewidth=0.9)


def _within_a_decade(axes: Axes, value: float, _: int) -> str:
    """A tick between powers of ten, named where these are too far apart to name any."""
    low, high = axes.get_ylim()
    return f"{value:g}" if high < 10 * low else ""


def _drawn(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _diverged(rows: Rows, mechanism: str, column: str) -> str:
    """ " (diverged at epsilon 0.5, 1)", or nothing."""
    at = {
        row["epsilon"] for row in rows if row["mechanism"] == mechanism and not _drawn(row[column])
    }
    return f" (diverged at epsilon {', '.join(f'{e:g}' for e in sorted(at))})" if at else ""


def _panels(
    rows: Rows,
    panel: Callable[[Axes, Rows], None],
    looks: Mapping[str, Look],
    labels: Mapping[str, str],
    *,
    ylabel: str,
    log: bool,
) -> Figure:
    """A panel a setting, and one legend below them all."""
    from matplotlib.lines import Line2D

    settings = list(groups(rows, "setting"))
    wide = 2 if len(settings) == 4 else min(len(settings), COLUMNS)
    high = math.ceil(len(settings) / wide)
    columns = min(COLUMNS, 2 * wide - 1)
    if wide == 1 and max(map(len, labels.values())) <= SHORT:
        columns = 2
    below = 0.3 * math.ceil(len(looks) / columns) + 0.3
    figure = new_figure((ALONE if wide == 1 else 4.2 * wide) + 0.6, 3.2 * high + below)
    axes = figure.subplots(high, wide, squeeze=False)
    for place, ((setting,), members) in zip(axes.flat, settings, strict=False):
        panel(place, members)
        place.set_title(textwrap.fill(plain(setting, longest=2 * LONGEST), LONGEST))
        place.grid(visible=True)
        if log:
            place.set_yscale("log")
            place.yaxis.set_major_formatter("{x:g}")
            place.yaxis.set_minor_formatter(partial(_within_a_decade, place))
    for place in axes.flat[len(settings) :]:
        place.set_axis_off()
    for row in axes:
        row[0].set_ylabel(ylabel)
    handles = [Line2D([], [], label=labels[name], **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure
