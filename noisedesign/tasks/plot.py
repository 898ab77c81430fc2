"""Pictures of a design (its matrix, its noise against independent noise, its two bounds) and of an
account (mu of every victim, by its distance to the observer)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import Array, InputError
from noisedesign.files.picture_file import (
    BLUE,
    GREY,
    ORANGE,
    new_figure,
    picture_format,
    write_figure,
)
from noisedesign.privacy.exposure import Exposure
from noisedesign.program.design import Design, design_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noisedesign.tasks.dropout import DropOut


_NAMES = {
    "ldp": "independent (LDP)",
    "cdp": "CDP",
    "decor": "DECOR",
    "antipgd": "AntiPGD",
    "d-mf": "D-MF",
    "banded-sqrt": "banded square root",
    "whisper-one-step": "Whisper, one step",
    "whisper": "Whisper",
    "mafalda": "Mafalda",
}
_LDP, _OURS, _BOUND = "#9aa0a6", "#1a73e8", "#d93025"
_ADDED, _TAKEN = "#b2182b", "#2166ac"
"""The ends of the colours of a heat map."""


SMALL = 0.05
"""A ratio that is hardly seen on a linear axis."""

NAMED = 40
"""Most nodes whose names fit beside a heat map."""

DRAWN = 64
"""Most steps whose entries can be told apart in a heat map."""

EPOCHS_DRAWN, EPOCHS_BACK = 3, 8
"""Of a run of more steps: the epochs of its heat map, and those that its last row goes back."""

INSET = (0.52, 0.62, 0.46, 0.32)
"""Place of the last row, in shares of the axes: above the diagonal, where C^-1 is zero."""

LEAST = 1e-4
"""Smallest entry of the last row that is drawn, over its largest."""


def draw_matrix(axes: Any, design: Design) -> None:
    """Heat map of R (space) or of the noising matrix C^-1 (time), zero at white.

    Of more than 64 steps the last are drawn, and the last row by itself: what its noise takes back
    of earlier steps.
    """
    if design.axes == "space":
        matrix, first, unit = design.covariance, 0, "node"
        axes.set_title("covariance $R$ of the nodes")
    else:
        matrix, unit = design.noising_matrix, "step"
        if design.axes == "space-time" and design.noise.full:
            unit = "step and node, step by step"
        horizon = len(matrix)
        first = horizon - _drawn(design)
        axes.set_title(
            "noising matrix $C^{-1}$" + (f", steps {first} to {horizon - 1}" if first else "")
        )
    shown = matrix[first:, first:]
    # A few large diagonal entries would hide the rest: colours saturate. Of many steps the first
    # lags are as large at every step, and are drawn by themselves.
    entries = np.abs(shown[np.tril_indices(len(shown), -1)] if first else shown)
    limit = float(np.quantile(entries, 0.96 if first else 0.995)) or 1.0
    ends = (first - 0.5, len(matrix) - 0.5)
    colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    extent = (*ends, *reversed(ends))
    picture = axes.imshow(shown, interpolation="nearest", extent=extent, **colours)
    ends_of_bar = "both" if np.abs(shown).max() > limit else "neither"
    axes.figure.colorbar(picture, ax=axes, fraction=0.046, pad=0.04, extend=ends_of_bar)
    space = unit == "node"
    axes.set_xlabel("node" if space else f"noise drawn at {unit}")
    axes.set_ylabel("node" if space else f"noise added at {unit}")
    nodes = design.problem.nodes
    numbered = tuple(map(str, range(len(nodes)))) == nodes
    if space and not numbered and len(nodes) <= NAMED:
        _name_nodes(axes, nodes)
    if first:
        _draw_last_row(axes, matrix[-1], design)


def _drawn(design: Design) -> int:
    """How many of the last steps are drawn."""
    horizon = len(design.strategy)
    if horizon <= DRAWN:
        return horizon
    participation = design.problem.participation
    period = None if participation is None else participation.period
    return DRAWN if period is None else min(DRAWN, EPOCHS_DRAWN * period)


def _name_nodes(axes: Any, nodes: Sequence[str]) -> None:
    size = float(np.clip(200 / len(nodes), 4, 8))
    longest = max(map(len, nodes))
    axes.set_xticks(range(len(nodes)), nodes, fontsize=size, rotation=90 if longest > 2 else 0)
    axes.set_yticks(range(len(nodes)), nodes, fontsize=size)
    axes.set_xlabel("")
    axes.set_ylabel("")


def _draw_last_row(axes: Any, row: Array, design: Design) -> None:
    """Sizes of the last row by lag, logarithmic; their colours are their signs."""
    participation = design.problem.participation
    back = len(row) - 1
    if participation is not None and participation.period is not None:
        back = min(back, EPOCHS_BACK * participation.period)
    values = row[::-1][: back + 1]
    sizes = np.abs(values)
    floor = float(sizes.max()) * LEAST
    seen = np.flatnonzero(sizes > floor)
    inset = axes.inset_axes(INSET)
    inset.vlines(
        seen, floor, sizes[seen], color=np.where(values[seen] < 0, _TAKEN, _ADDED), linewidth=0.8
    )
    inset.set_yscale("log")
    inset.set_ylim(floor, 2 * float(sizes.max()))
    inset.set_title("last row: red +, blue −", fontsize=7, pad=2)
    inset.set_xlabel("steps back", fontsize=7, labelpad=1)
    inset.tick_params(labelsize=6, length=2, pad=1)


def draw_comparison(axes: Any, designs: Sequence[Design]) -> None:
    """Objective of several designs for one problem, relative to independent noise."""
    base = designs[0].ldp_objective
    ratios = [design.objective / base for design in designs]
    names = [_label(design) for design in designs]
    colours = [_OURS if design.provenance.method == "optimal" else _LDP for design in designs]
    bars = axes.barh(names, ratios, color=colours)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.bar_label(bars, fmt="%.3g", padding=3, bbox=behind)
    bound = max(design.lower_bound for design in designs if design.trust == "local") / base
    axes.axvline(bound, color=_BOUND, linestyle="--", linewidth=1.2)
    if max(ratios) > 5 or ratios[-1] < SMALL:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("noise after mixing, over independent noise at equal privacy")
    axes.set_title(designs[0].problem.name)
    # In a row of its own, above the bars, on the side where there is room.
    axes.set_ylim(len(designs) - 0.4, -1.1)
    place = axes.transAxes.inverted().transform(axes.transData.transform((bound, 0)))[0]
    shift, side = (4, "left") if place < 0.5 else (-4, "right")
    words = {"color": _BOUND, "fontsize": "small", "va": "center", "ha": side}
    beside = {"xytext": (shift, 0), "textcoords": "offset points"}
    axes.annotate("proved lower bound", (bound, -0.75), **words, **beside)


def _label(design: Design) -> str:
    names = {"space": "Whisper optimum", "time": "Mafalda optimum", "space-time": "joint optimum"}
    optimal = names[design.axes]
    if design.problem.axes == "time" and design.problem.workload == "prefix":
        optimal = "optimum"
    name = _NAMES.get(design.provenance.method, optimal)
    return name + (" (trusted server)" if design.trust == "central" else "")


def draw_convergence(axes: Any, design: Design) -> None:
    """Relative distance of both bounds to the certified optimum, iteration by iteration."""
    history = design.provenance.history
    axes.set_title("convergence of the two bounds")
    if not history:
        told = f"no history from {design.provenance.backend}"
        axes.text(0.5, 0.5, told, ha="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    optimum = (design.lower_bound + design.objective) / 2
    floor = 1e-16
    best_upper = np.minimum.accumulate([point.upper for point in history])
    best_lower = np.maximum.accumulate([point.lower for point in history])
    steps = np.arange(1, len(history) + 1)
    above = np.maximum(best_upper / optimum - 1, floor)
    below = np.maximum(1 - best_lower / optimum, floor)
    axes.semilogy(steps, above, "o-", color=_OURS, label="feasible design, above")
    axes.semilogy(steps, below, "s-", color=_BOUND, label="lower bound, below")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("evaluation of the bounds")
    axes.set_ylabel("relative distance to the optimum")
    axes.legend(loc="lower left", fontsize="small")  # no line that falls goes there


def plot(
    design: Design, *, path: str | Path, others: Sequence[Design] = (), overwrite: bool = False
) -> Path:
    """Write the three pictures of a design side by side, as PNG, PDF or SVG.

    Args:
        path: its ending says the format.
        others: designs for the same problem to compare with.
        overwrite: replace a file even if it is no picture.

    Raises:
        InputError: no design; another ending, a folder that does not exist, a file of another kind.
    """
    design = design_of(design)
    picture_format(path)
    figure = new_figure(16, 4.6)
    axes = figure.subplots(1, 3)
    draw_matrix(axes[0], design)
    draw_comparison(axes[1], [*others, design])
    draw_convergence(axes[2], design)
    with overwriting(overwrite):
        return write_figure(figure, path, dpi=110)


LOG_RATIO = 30.0
"""Ratio of the largest to the smallest finite mu beyond which the axis is logarithmic: on a linear
one the smaller would lie on the axis."""

SPREAD = 0.28
"""Half width of the cloud of points at one distance, in distances."""

NAMED_VICTIMS, NAMED_POINTS = 60, 20
"""Most victims whose names fit below a picture, and beside their points."""

MU = "μ (GDP parameter of the whole run)"
INFINITE = "infinite: seen without unknown noise, no ε holds"
NOTHING = "0: nothing reaches the observer"


def draw_account(exposures: Sequence[Exposure], path: str | Path, *, title: str = "") -> Path:
    """Write a picture: mu (not squared) of every victim by distance, and the mean at each distance.

    Observers that are no node have no distances; then victims are sorted by mu. Victims with an
    infinite mu are marked along the top and those with mu = 0 along the bottom, in words.

    Raises:
        InputError: no exposures; a ``path`` in no folder, or that ends in no format of pictures.
        StorageError: the file cannot be written.
    """
    if not exposures:
        raise InputError("exposures", expected="at least one victim", got="none")
    figure = account_figure(exposures, title=title)
    return write_figure(figure, path)


def account_figure(exposures: Sequence[Exposure], *, title: str) -> Figure:
    by_distance = any(exposure.distance is not None for exposure in exposures)
    wide = 6.4 if by_distance else min(max(0.22 * len(exposures) + 2.0, 6.4), 14.0)
    figure = new_figure(wide, 4.6)
    axes = figure.subplots()
    mu = np.array([exposure.mu for exposure in exposures])
    if by_distance:
        places = _distances(axes, exposures)
        _means(axes, np.round(places), mu)
    else:
        places = _ranks(axes, exposures)
    _points(axes, places, mu)
    if by_distance and len(exposures) <= NAMED_POINTS:
        _name(axes, places, exposures)
    axes.set_ylabel(MU)
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside lower center", fontsize="small", frameon=False, ncols=2)
    return figure


def draw_drop_outs(found: Sequence[DropOut], path: str | Path, *, title: str = "") -> Path:
    """Write a picture: variance of the average (not of the sum) with nodes gone, over that of all,
    the costliest first, where those left go on and where they leave out seeds of those gone.

    Raises:
        InputError: nothing to draw; a ``path`` in no folder, or that ends in no format of pictures.
        StorageError: the file cannot be written.
    """
    if not found:
        raise InputError("found", expected="at least one drop-out", got="none")
    return write_figure(drop_out_figure(found, title=title), path)


def drop_out_figure(found: Sequence[DropOut], *, title: str) -> Figure:
    rows = sorted(found, key=lambda one: -round(one.others.average_ratio, 9))[::-1]
    figure = new_figure(6.4, min(max(0.26 * len(rows) + 1.8, 2.4), 12.0))
    axes = figure.subplots()
    places, ratios = np.arange(len(rows)), np.array([one.others.average_ratio for one in rows])
    bars = axes.barh(places, ratios, color=_OURS, label="those left go on")
    without = [(at, one.without_seeds) for at, one in enumerate(rows)]
    values = np.array([(at, part.average_ratio) for at, part in without if part is not None])
    if len(values):
        label = "they leave out seeds of those gone"
        axes.plot(values[:, 1], values[:, 0], "o", color=ORANGE, markersize=4.5, label=label)
    axes.axvline(1.0, color=GREY, linestyle="--", linewidth=1.0)
    if len(rows) <= NAMED:
        axes.set_yticks(places, [", ".join(one.gone) for one in rows])
        axes.bar_label(bars, fmt="%.3g", padding=4)
    else:
        axes.set_yticks([])
        axes.set_ylabel("nodes that drop out, one at a time")
    if ratios.max() > LOG_RATIO:
        axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("variance of the average, over that with nobody gone")
    axes.set_title(title)
    figure.legend(loc="outside lower center", fontsize="small", frameon=False, ncols=2)
    return figure


def _distances(axes: Axes, exposures: Sequence[Exposure]) -> Array:
    """Where victims go by distance, those at one distance side by side; those with none, last."""
    known = sorted({e.distance for e in exposures if e.distance is not None})
    column = {distance: float(i) for i, distance in enumerate(known)}
    labels = [str(distance) for distance in known]
    unreached = [e for e in exposures if e.distance is None]
    if unreached:
        labels.append("no path")
    base = np.array(
        [len(known) if e.distance is None else column[e.distance] for e in exposures],
        dtype=np.float64,
    )
    places = base.copy()
    for place in np.unique(base):
        inside = np.flatnonzero(base == place)
        # The most exposed first: a name goes up to the right, over points that are lower.
        inside = inside[np.argsort([-exposures[int(i)].mu for i in inside], kind="stable")]
        crowded = 1.0 if len(exposures) <= NAMED_POINTS else len(inside) / 12
        width = SPREAD * min(1.0, crowded)
        places[inside] += np.linspace(-width, width, len(inside)) if len(inside) > 1 else 0.0
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("hops from victim to observer")
    return places


def _ranks(axes: Axes, exposures: Sequence[Exposure]) -> Array:
    """Where victims go in the order of their mu, the most exposed first."""
    order = sorted(range(len(exposures)), key=lambda i: -exposures[i].mu)
    places = np.empty(len(exposures))
    places[order] = np.arange(len(exposures))
    if len(exposures) <= NAMED_VICTIMS:
        names = [exposures[i].node for i in order]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_xlabel("victim")
    else:
        axes.set_xlabel("victims, the most exposed first")
    axes.set_xlim(-0.8, len(exposures) - 0.2)
    return places


def _name(axes: Axes, places: Array, exposures: Sequence[Exposure]) -> None:
    """The name of every victim, aslant above its point; marks along the edges have none."""
    aslant: dict[str, Any] = {"xytext": (1, 5), "textcoords": "offset points", "fontsize": 6.5}
    aslant |= {"rotation": 50, "rotation_mode": "anchor", "va": "center"}
    for place, exposure in zip(places, exposures, strict=True):
        if 0 < exposure.mu < math.inf:
            axes.annotate(exposure.node, (float(place), exposure.mu), **aslant)


def _means(axes: Axes, columns: Array, mu: Array) -> None:
    """A bar at the mean of each column, where that is a number."""
    label: str | None = "mean at a distance"
    for column in np.unique(columns):
        mean = float(mu[columns == column].mean())
        if 0 < mean < math.inf:
            ends = [column - 0.38, column + 0.38]
            axes.plot(ends, [mean, mean], color="black", linewidth=1.8, label=label)
            label = None


def _points(axes: Axes, places: Array, mu: Array) -> None:
    infinite, nothing = np.isinf(mu), mu == 0
    finite = ~infinite & ~nothing
    if finite.any():
        look: dict[str, Any] = {"color": BLUE, "alpha": 0.7, "markersize": 4.5}
        axes.plot(places[finite], mu[finite], "o", label="victim", **look)
    _limits(axes, mu[finite])
    # Along the edges of the picture: these have no place on the axis.
    edge = axes.get_xaxis_transform()
    for marked, height, marker, colour, words in (
        (infinite, 0.95, "^", ORANGE, INFINITE),
        (nothing, 0.04, "v", GREY, NOTHING),
    ):
        if marked.any():
            count = int(marked.sum())
            along, told = np.full(count, height), f"{words} ({count})"
            axes.plot(places[marked], along, marker, color=colour, transform=edge, label=told)


def _limits(axes: Axes, finite: Array) -> None:
    """Room for the marks along the edges; logarithmic where values differ by much."""
    if not len(finite):
        axes.set_ylim(0, 1)
        axes.set_yticks([])
        return
    low, high = float(finite.min()), float(finite.max())
    if high > LOG_RATIO * low:
        axes.set_yscale("log")
        room = (high / low) ** 0.12
        axes.set_ylim(low / room, high * room)
    else:
        axes.set_ylim(-0.08 * high, 1.15 * high)
