"""How fast one node's view of another grows with the length of the run.

The setting of Koskela and Kulkarni, Figure 1, with two additions: gradients that vary over time,
which can be told apart faster than those that do not, and the same under secure summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.tasks.papers.figures import _gossip, _output
from noisedesign.tasks.papers.figures._gossip import SECURE_SUM, SINGLE_NODE, Row
from noisedesign.tasks.papers.figures._output import BLUE, GREY, ORANGE, PNG, Announce

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DESCRIPTION = "squared sensitivity per step of one node's view, by the length of the run"

_VIEWS = {
    SINGLE_NODE: "all messages of one node read, its noise unknown",
    SECURE_SUM: "weighted sums received by one node, its noise known to it",
}
_PAIRS = {"neighbours": BLUE, "not neighbours": ORANGE}


def draw(rows: Sequence[Row]) -> Any:
    """A column a graph, a row of panels for each kind of observer."""
    graphs = list(dict.fromkeys(row.graph for row in rows))
    figure = _output.new_figure(width=4.6 * len(graphs) + 1.0, height=7.6)
    panels = figure.subplots(len(_VIEWS), len(graphs), squeeze=False, sharex=True)
    for i, (view, words) in enumerate(_VIEWS.items()):
        for j, graph in enumerate(graphs):
            _draw_panel(panels[i, j], [r for r in rows if (r.graph, r.view) == (graph, view)])
            panels[i, j].set_title(f"{graph}\n{words}", fontsize=10)
        panels[i, 0].set_ylabel("squared sensitivity per step, unit noise")
    for axes in panels[-1]:
        axes.set_xlabel("steps T")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Gossip averaging (DP-D-SGD), Metropolis-Hastings weights, full participation")
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    for pair, colour in _PAIRS.items():
        here = [row for row in rows if row.pair == pair]
        steps = np.array([row.horizon for row in here])
        axes.plot(
            steps,
            [row.exact for row in here],
            "o-",
            color=colour,
            markersize=3,
            label=f"{pair}, worst gradients",
        )
        axes.plot(
            steps,
            [row.constant for row in here],
            "--",
            color=colour,
            linewidth=1.2,
            label=f"{pair}, constant gradients",
        )
    if rows:
        axes.axhline(
            rows[0].constant_limit,
            color=GREY,
            linestyle=":",
            label="limit of constant gradients: 1/n, below 1/(n - 1)",
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)


def make(folder: Path, *, quick: bool, announce: Announce, suffix: str = PNG) -> list[Path]:
    """Write the picture and its table after every graph."""
    rows: list[Row] = []
    paths = [folder / f"gossip-single-view{suffix}", folder / "gossip-single-view.csv"]
    horizons = _gossip.QUICK_HORIZONS if quick else _gossip.HORIZONS
    for case in _gossip.cases(quick=quick):
        for view in _VIEWS:
            announce(f"{case.name}, {view}: up to {horizons[-1]} steps")
            rows += _gossip.rows_for(case, view=view, horizons=horizons)
            _output.write_table(paths[1], Row._fields, rows)
        _output.write_picture(draw(rows), paths[0])
    return paths
