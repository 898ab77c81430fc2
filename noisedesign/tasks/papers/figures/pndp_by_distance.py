"""What one node learns of every other, by distance: exact, and as published before.

The setting of Mafalda-SGD, Figure 2, for the graphs of the paper and two weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.system import datasets
from noisedesign.system.graph import build_graph
from noisedesign.tasks.papers.figures import _output
from noisedesign.tasks.papers.figures._output import BLUE, GREEN, GREY, ORANGE, PNG, Announce
from noisedesign.tasks.papers.figures._pndp import (
    ALPHA,
    HORIZON,
    MEASURES,
    Row,
    Summary,
    rows_for,
    summaries,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DESCRIPTION = "Renyi divergence by distance to one node, exact and by Cyffers et al. (2022)"

WEIGHTS = ("metropolis-hastings", "row-normalized")
"""The usual weights, and those of the published figure."""


def draw(rows: Sequence[Row], *, horizon: int = HORIZON) -> Any:
    """One panel a graph, a row of panels for each weighting; ``horizon`` is that of the rows."""
    found = summaries(rows)
    graphs = list(dict.fromkeys(row.graph for row in rows))
    kinds = list(dict.fromkeys(row.weights for row in rows))
    figure = _output.new_figure(width=max(3.1 * len(graphs), 8.0), height=3.1 * len(kinds) + 0.9)
    panels = figure.subplots(len(kinds), len(graphs), squeeze=False)
    for i, weights in enumerate(kinds):
        for j, graph in enumerate(graphs):
            here = [item for item in found if (item.graph, item.weights) == (graph, weights)]
            # The same for all weights of a graph; set before the axis becomes logarithmic.
            panels[i, j].set_ylim(_limits([item for item in found if item.graph == graph]))
            _draw_panel(panels[i, j], here)
            panels[i, j].set_title(f"{graph}\n{weights} weights", fontsize=10)
        panels[i, 0].set_ylabel(f"Rényi divergence of order {ALPHA:g}")
    for axes in panels[-1]:
        axes.set_xlabel("hops from victim to observer")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(
        "DP-D-SGD before one node that reads its neighbours' messages and knows its own noise\n"
        f"T = {horizon} steps, full participation, clip 1, noise of standard deviation 1"
    )
    return figure


def _draw_panel(axes: Axes, found: Sequence[Summary]) -> None:
    styles = {
        "exact": ("exact (mean, bar: least to greatest)", BLUE, "o-", -0.08),
        "cyffers_squared": ("Cyffers et al., squared weights", ORANGE, "s--", 0.0),
        "cyffers_unsquared": ("Cyffers et al., unsquared (published code)", GREEN, "^--", 0.08),
    }
    distance = np.array([item.distance for item in found])
    for measure, (label, colour, line, shift) in styles.items():
        low, mean, high = np.array([getattr(item, measure) for item in found]).T
        axes.errorbar(
            distance + shift,
            mean,
            yerr=[mean - low, high - mean],
            fmt=line,
            color=colour,
            label=label,
            capsize=2.5,
            markersize=4,
            linewidth=1.3,
            elinewidth=1.0,
        )
    axes.axhline(found[0].ldp, color=GREY, linestyle=":", label="reader of all messages (LDP)")
    axes.set_yscale("log")
    axes.set_xticks(distance)
    axes.grid(axis="y", alpha=0.25)


def _limits(found: Sequence[Summary]) -> tuple[float, float]:
    """Room for everything that has a place on a logarithmic axis."""
    values = np.concatenate([getattr(item, measure) for item in found for measure in MEASURES])
    shown = np.append(values[values > 0], found[0].ldp)
    return float(shown.min()) / 2, float(shown.max()) * 2


def make(folder: Path, *, quick: bool, announce: Announce, suffix: str = PNG) -> list[Path]:
    """Write the picture, its summary and the table of all victims, after every graph."""
    rows: list[Row] = []
    paths = [
        folder / name
        for name in (
            f"pndp-by-distance{suffix}",
            "pndp-by-distance.csv",
            "pndp-by-distance-victims.csv",
        )
    ]
    for name, load in _graphs(quick):
        announce(f"{name}: accounting for every node")
        try:
            graph = load()
        except InputError as error:
            announce(f"{name}: skipped. {error}")
            continue
        for weights in WEIGHTS:
            rows += rows_for(graph, name=name, weights=weights)
        _output.write_table(paths[2], Row._fields, rows)
        _output.write_table(paths[1], *_table(summaries(rows)))
        _output.write_picture(draw(rows), paths[0])
    return paths


def _table(found: Sequence[Summary]) -> tuple[list[str], list[list[Any]]]:
    columns = ["graph", "weights", "distance", "victims"]
    columns += [f"{measure}_{end}" for measure in MEASURES for end in ("min", "mean", "max")]
    rows = [
        [*item[:4], *(float(x) for measure in MEASURES for x in getattr(item, measure)), item.ldp]
        for item in found
    ]
    return [*columns, "ldp"], rows


def _graphs(quick: bool) -> Iterator[tuple[str, Callable[[], nx.Graph]]]:
    """Names and loaders of the graphs, the quickest first."""
    yield "Florentine families", lambda: build_graph("florentine")
    if quick:
        yield "Erdős–Rényi G(20, 0.2)", lambda: build_graph("erdos-renyi", nodes=20, p=0.2, seed=0)
        return
    yield "Erdős–Rényi G(100, 0.2)", lambda: build_graph("erdos-renyi", nodes=100, p=0.2, seed=0)
    yield "Facebook ego, 148 nodes", lambda: datasets.ego_facebook(414)
    yield "PeerTube", datasets.peertube
