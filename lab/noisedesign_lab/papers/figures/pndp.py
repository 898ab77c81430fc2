"""The figure of what every single node learns of every other under DP-D-SGD, exactly and by sums
over single messages (the setting of Mafalda-SGD, Figure 2): a node sees what it receives and knows
its own noise; full participation, fixed responses, Renyi divergence of order 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.files.picture_file import BLUE, GREEN, GREY, ORANGE, new_figure
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system import datasets
from noisedesign.system.graph import build_graph, mixing_matrix, node_names
from noisedesign.system.participation import every_step
from noisedesign_lab.papers import bounds
from noisedesign_lab.papers.figures import Announce, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WEIGHTS = ("metropolis-hastings", "row-normalized")
"""The usual weights, and those of the published figure."""

HORIZON = 10
ALPHA = 2.0


class Row(NamedTuple):
    """Renyi divergences of order 2 of one victim before one observer, for unit noise, gradients of
    norm <= 1 and fixed responses: exact, as sums over single messages, and for a reader of all
    messages."""

    graph: str
    weights: str
    observer: str
    victim: str
    distance: int
    exact: float
    kind: str
    cyffers_squared: float
    cyffers_unsquared: float
    ldp: float


MEASURES = ("exact", "cyffers_squared", "cyffers_unsquared")


class Summary(NamedTuple):
    """Least, mean and greatest divergence over the pairs at one distance, shapes (3,)."""

    graph: str
    weights: str
    distance: int
    pairs: int
    exact: Array
    cyffers_squared: Array
    cyffers_unsquared: Array
    ldp: float


def rows_for(
    graph: nx.Graph,
    *,
    name: str,
    weights: str,
    horizon: int = HORIZON,
    observers: Iterable[int] | None = None,
) -> list[Row]:
    """Return a row for every observer, by default every node, and every other node."""
    w, names = mixing_matrix(graph, weights=weights), node_names(graph)
    algorithm = threats.dp_d_sgd(mixing=w, horizon=horizon).named("dp-d-sgd", nodes=names)
    ldp = bounds.renyi_divergence(float(horizon), alpha=ALPHA)
    rows = []
    for observer in range(len(w)) if observers is None else observers:
        victims = [node for node in range(len(w)) if node != observer]
        exposures = account(
            algorithm,
            threats.pndp(nodes=(names[observer],)),
            participation=every_step(horizon),
            adjacency="zero-out",
            responses="fixed",
        )
        unsquared, squared = (
            bounds.renyi_divergence(
                bounds.network_squared_sensitivity(
                    mixing=w, observer=observer, horizon=horizon, numerator=numerator
                ),
                alpha=ALPHA,
            )
            for numerator in bounds.NUMERATORS
        )
        rows += [
            Row(
                graph=name,
                weights=weights,
                observer=names[observer],
                victim=found.node,
                distance=-1 if found.distance is None else found.distance,
                exact=found.renyi(ALPHA),
                kind=found.which,
                cyffers_squared=float(squared[victim]),
                cyffers_unsquared=float(unsquared[victim]),
                ldp=ldp,
            )
            for victim, found in zip(victims, exposures, strict=True)
        ]
    return rows


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Rows of one graph, weights and distance put together, in the order they first occur."""
    order = list(dict.fromkeys((row.graph, row.weights) for row in rows))
    ordered = sorted(rows, key=lambda row: (order.index((row.graph, row.weights)), row.distance))
    found = []
    for key, members in groupby(ordered, key=lambda row: (row.graph, row.weights, row.distance)):
        group = list(members)
        spread: dict[str, Any] = {"ldp": group[0].ldp}
        for measure in MEASURES:
            values = np.array([getattr(row, measure) for row in group])
            spread[measure] = np.array([values.min(), values.mean(), values.max()])
        found.append(Summary(*key, len(group), **spread))
    return found


def draw(rows: Sequence[Row], *, horizon: int = HORIZON) -> Any:
    """One panel a graph, a row of panels for each weighting; ``horizon`` is that of the rows."""
    found = summaries(rows)
    graphs = list(dict.fromkeys(row.graph for row in rows))
    kinds = list(dict.fromkeys(row.weights for row in rows))
    figure = new_figure(max(3.1 * len(graphs), 8.0), 3.1 * len(kinds) + 0.9)
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
        "DP-D-SGD before every single node, which reads its neighbours' messages\n"
        "and knows its own noise\n"
        f"T = {horizon} steps, full participation, clip 1, noise of standard deviation 1, "
        "fixed responses"
    )
    return figure


def _draw_panel(axes: Axes, found: Sequence[Summary]) -> None:
    styles = {
        "exact": ("exact (mean over pairs, bar: least to greatest)", BLUE, "o-", -0.08),
        "cyffers_squared": ("sum over messages, squared weights", ORANGE, "s--", 0.0),
        "cyffers_unsquared": (
            "sum over messages, unsquared (code of Mafalda-SGD)",
            GREEN,
            "^--",
            0.08,
        ),
    }
    distance = np.array([item.distance for item in found])
    for measure, (label, colour, line, shift) in styles.items():
        low, mean, high = np.array([getattr(item, measure) for item in found]).T
        sizes = {"capsize": 2.5, "markersize": 4, "linewidth": 1.3, "elinewidth": 1.0}
        look: dict[str, Any] = {"fmt": line, "color": colour, "label": label} | sizes
        axes.errorbar(
            distance + shift, mean, yerr=np.maximum([mean - low, high - mean], 0.0), **look
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


def _parts(quick: bool, announce: Announce) -> Iterator[list[Row]]:
    """Rows of one graph after another."""
    for name, load in _graphs(quick):
        announce(f"{name}: accounting for every node")
        try:
            graph = load()
        except InputError as error:
            announce(f"{name}: skipped. {error}")
            continue
        yield [row for w in WEIGHTS for row in rows_for(graph, name=name, weights=w)]


def _table(found: Sequence[Summary]) -> tuple[list[str], list[list[Any]]]:
    columns = ["graph", "weights", "distance", "pairs"]
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


BY_DISTANCE = Figure(
    parts=_parts,
    draw=lambda rows, _: draw(rows),
    tables={
        ".csv": lambda rows: _table(summaries(rows)),
        "-pairs.csv": lambda rows: (Row._fields, rows),
    },
)
