"""How tight the spectral bound on the sensitivity of gossip averaging is.

The setting of Koskela and Kulkarni, Figure 2 (appendix F): T lambda_max(M_T) above, constant
gradients below, and between them the exact number, which they leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.tasks.papers.figures import _gossip, _output
from noisedesign.tasks.papers.figures._gossip import SINGLE_NODE, Row
from noisedesign.tasks.papers.figures._output import BLUE, GREEN, ORANGE, PNG, Announce

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DESCRIPTION = "spectral upper bound on the squared sensitivity of one node's view, and the truth"


def excess(row: Row) -> float:
    """Share of the exact number by which the spectral bound exceeds it; 0 where both are 0."""
    return row.spectral_upper_bound / row.exact - 1 if row.exact > 0 else 0.0


def draw(rows: Sequence[Row]) -> Any:
    """A column a graph, a row of panels for each pair of nodes."""
    graphs = list(dict.fromkeys(row.graph for row in rows))
    pairs = list(dict.fromkeys(row.pair for row in rows))
    figure = _output.new_figure(width=4.6 * len(graphs) + 1.0, height=3.3 * len(pairs) + 0.9)
    panels = figure.subplots(len(pairs), len(graphs), squeeze=False, sharex=True)
    for i, pair in enumerate(pairs):
        for j, graph in enumerate(graphs):
            here = [row for row in rows if (row.graph, row.pair) == (graph, pair)]
            _draw_panel(panels[i, j], here)
            panels[i, j].set_title(f"{graph}, {pair}", fontsize=10)
        panels[i, 0].set_ylabel("squared sensitivity per step, unit noise")
    for axes in panels[-1]:
        axes.set_xlabel("steps T")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        "Gossip averaging (DP-D-SGD), Metropolis-Hastings weights, full participation\n"
        "observer: reads all messages of one node, whose noise is unknown"
    )
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    steps = np.array([row.horizon for row in rows])
    upper = np.array([row.spectral_upper_bound for row in rows])
    lower = np.array([row.constant for row in rows])
    axes.fill_between(steps, lower, upper, color=BLUE, alpha=0.10, linewidth=0)
    axes.plot(
        steps,
        upper,
        "^--",
        color=ORANGE,
        markersize=3.5,
        linewidth=1.2,
        label=r"spectral upper bound, $\lambda_{\max}(M_T)$ per step",
    )
    axes.plot(
        steps,
        [row.exact for row in rows],
        "o-",
        color=BLUE,
        markersize=6,
        markerfacecolor="white",
        label="exact, worst gradients",
    )
    axes.plot(steps, lower, "v:", color=GREEN, markersize=3, label="constant gradients")
    if rows:
        axes.text(
            0.03,
            0.93,
            f"bound {excess(rows[-1]):.0%} above exact at T = {rows[-1].horizon}",
            transform=axes.transAxes,
            va="top",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * float(upper.max()))
    axes.grid(alpha=0.25)


def make(folder: Path, *, quick: bool, announce: Announce, suffix: str = PNG) -> list[Path]:
    """Write the picture and its table after every graph."""
    rows: list[Row] = []
    paths = [folder / f"gossip-spectral{suffix}", folder / "gossip-spectral.csv"]
    horizons = _gossip.QUICK_HORIZONS if quick else _gossip.HORIZONS
    for case in _gossip.cases(quick=quick):
        announce(f"{case.name}: up to {horizons[-1]} steps")
        rows += _gossip.rows_for(case, view=SINGLE_NODE, horizons=horizons)
        _output.write_table(
            paths[1], [*Row._fields, "excess"], ([*row, excess(row)] for row in rows)
        )
        _output.write_picture(draw(rows), paths[0])
    return paths
