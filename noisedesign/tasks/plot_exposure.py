"""A picture of an account: mu of every victim, by its distance to the observer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.files.picture_file import BLUE, GREY, ORANGE, new_figure, write_figure
from noisedesign.privacy.exposure import Exposure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG_RATIO = 30.0
"""Ratio of the largest to the smallest finite mu beyond which the axis is logarithmic: on a linear
one the smaller would lie on the axis."""

SPREAD = 0.28
"""Half width of the cloud of points at one distance, in distances."""

NAMED, NAMED_POINTS = 60, 20
"""Most victims whose names fit below a picture, and beside their points."""

MU = "μ (GDP parameter of the whole run)"
INFINITE = "infinite: seen without unknown noise, no ε holds"
NOTHING = "0: nothing reaches the observer"


def draw(exposures: Sequence[Exposure], path: str | Path, *, title: str = "") -> Path:
    """Write a picture: mu (not squared) of every victim by distance, and the mean at each distance.

    Observers that are no node have no distances; then victims are sorted by mu. Victims with an
    infinite mu are marked along the top and those with mu = 0 along the bottom, in words.

    Raises:
        InputError: no exposures; a ``path`` in no folder, or that ends in no format of pictures.
        StorageError: the file cannot be written.
    """
    if not exposures:
        raise InputError("exposures", expected="at least one victim", got="none")
    figure = figure_of(exposures, title=title)
    return write_figure(figure, path)


def figure_of(exposures: Sequence[Exposure], *, title: str) -> Figure:
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
    if len(exposures) <= NAMED:
        names = [exposures[i].node for i in order]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_xlabel("victim")
    else:
        axes.set_xlabel("victims, the most exposed first")
    axes.set_xlim(-0.8, len(exposures) - 0.2)
    return places


def _name(axes: Axes, places: Array, exposures: Sequence[Exposure]) -> None:
    """The name of every victim, aslant above its point; marks along the edges have none."""
    for place, exposure in zip(places, exposures, strict=True):
        if 0 < exposure.mu < math.inf:
            axes.annotate(
                exposure.node,
                (float(place), exposure.mu),
                xytext=(1, 5),
                textcoords="offset points",
                rotation=50,
                rotation_mode="anchor",
                fontsize=6.5,
                va="center",
            )


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
        axes.plot(
            places[finite], mu[finite], "o", color=BLUE, alpha=0.7, markersize=4.5, label="victim"
        )
    _limits(axes, mu[finite])
    # Along the edges of the picture: these have no place on the axis.
    edge = axes.get_xaxis_transform()
    for marked, height, marker, colour, words in (
        (infinite, 0.95, "^", ORANGE, INFINITE),
        (nothing, 0.04, "v", GREY, NOTHING),
    ):
        if marked.any():
            count = int(marked.sum())
            axes.plot(
                places[marked],
                np.full(count, height),
                marker,
                color=colour,
                transform=edge,
                label=f"{words} ({count})",
            )


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
