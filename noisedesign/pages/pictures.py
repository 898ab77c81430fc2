"""The pictures of a page that are no part of :mod:`noisedesign.pages.plot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import (
    BELOW,
    BLACK,
    BLUE,
    GREY,
    NAMED,
    NEGATIVE,
    ORANGE,
    POSITIVE,
    SIGNED,
    legend_below,
    plain,
)
from noisedesign.pages.plot import name_rows

MOST_NODES, MOST_EDGES = 1000, 20_000  # size of the largest graph that is drawn
SPRINGS = 60
DOT = 4  # half the width of a node, in dots at 100 an inch
TURNS = tuple(math.pi / 4 * turn for turn in (0, 1, -1, 2, -2, 3, -3, 4))
"""Places of a name: from the middle of the drawing outward, then turned by so much."""

DECADES = 30  # ratio of the largest to the smallest value from which on an axis is logarithmic
FEW_LAGS = 64

NOTHING = 1e-12  # share of the largest eigenvalue below which one is zero but for rounding
MOST_POINTS = 2000  # points of a curve; longer ones are thinned to lags that grow by a factor


def draw_graph(axes: Any, graph: nx.Graph, names: Sequence[str], correlation: Array | None) -> None:
    """The graph on 0, ..., n - 1, its edges coloured by the correlation of noise at their ends."""
    from matplotlib.collections import LineCollection

    places = _layout(graph)
    edges = sorted((min(e), max(e)) for e in graph.to_undirected().edges if e[0] != e[1])
    lines = [(places[u], places[v]) for u, v in edges]
    many = len(graph) > NAMED
    look: dict[str, Any] = {"linewidths": 0.5 if many else 1.6, "zorder": 1}
    look["rasterized"] = len(edges) > MOST_EDGES // 10
    if graph.is_directed() and not many:
        _arrows(axes, graph, places)
    elif correlation is None:
        axes.add_collection(LineCollection(lines, colors=GREY, **look))
    else:
        values = np.array([correlation[u, v] for u, v in edges])
        limit = float(np.abs(values).max(initial=0.0)) or 1.0
        drawn = LineCollection(lines, cmap=SIGNED, **look)
        drawn.set_array(values)
        drawn.set_clim(-limit, limit)
        axes.add_collection(drawn)
        bar = axes.figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.7, pad=0.02)
        bar.set_label("correlation of the noise of two neighbours at one step")
        bar.outline.set_linewidth(0.5)
    size = 4 if len(graph) > 200 else 10 if many else 26
    axes.scatter(places[:, 0], places[:, 1], s=size, color=BLACK, zorder=2, linewidths=0)
    axes.set_aspect("equal")
    axes.margins(0.1)
    axes.set_axis_off()
    if not many:
        _name(axes, places, names)


def _arrows(axes: Any, graph: nx.Graph, places: Array) -> None:
    from matplotlib.patches import FancyArrowPatch

    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "color": GREY, "zorder": 1}
    for u, v in sorted(graph.edges):
        axes.add_patch(FancyArrowPatch(places[u], places[v], shrinkA=3, shrinkB=4, **look))
    axes.autoscale_view()


def _name(axes: Any, places: Array, names: Sequence[str]) -> None:
    """Names beside their nodes, outward where there is room; one without room is left out."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    axes.figure.draw_without_rendering()  # what is beside the axes has its place before the names
    nodes = axes.transData.transform(places)
    taken = [Bbox.from_extents(*(node - DOT), *(node + DOT)) for node in nodes]
    edge = axes.figure.bbox.padded(-2)
    # The outermost first: nothing stands in their way.
    for i in np.argsort(-np.linalg.norm(places, axis=1), kind="stable"):
        outward = math.atan2(places[i, 1], places[i, 0])
        label = axes.annotate(
            plain(names[i], longest=14),
            places[i],
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=7.5,
            path_effects=[withStroke(linewidth=2, foreground="white")],
            in_layout=False,
        )
        for turn, far in ((turn, far) for far in (7, 12) for turn in TURNS):
            x, y = far * math.cos(outward + turn), far * math.sin(outward + turn)
            label.set(ha="left" if x > 2 else "right" if x < -2 else "center")
            label.set(va="bottom" if y > 2 else "top" if y < -2 else "center")
            label.xyann = (x, y)
            box = label.get_window_extent()
            inside = edge.x0 < box.x0 and box.x1 < edge.x1 and edge.y0 < box.y0 and box.y1 < edge.y1
            if inside and not box.count_overlaps(taken):
                taken.append(box)
                break
        else:
            label.remove()


def _layout(graph: nx.Graph) -> Array:
    undirected = nx.Graph(graph.to_undirected())
    circle = nx.circular_layout(undirected)
    if len(graph) <= SPRINGS:
        found = nx.kamada_kawai_layout(undirected, pos=circle, weight=None)
    else:
        found = nx.spring_layout(undirected, seed=0, iterations=60)
    places = np.array([found[node] for node in range(len(graph))], dtype=np.float64)
    return np.asarray(places - places.mean(axis=0))


def draw_spectrum(axes: Any, values: Array, plain_noise: float | None, of: str) -> None:
    from matplotlib.ticker import MaxNLocator

    values = np.sort(values)[::-1]
    shown = _thinned(len(values))
    axes.plot(shown + 1, values[shown], "o-", color=BLUE, markersize=3, label=of)
    if plain_noise is not None:
        told = "independent noise at equal privacy"
        axes.axhline(plain_noise, color=GREY, linestyle="--", label=told)
    if values[-1] > NOTHING * values[0] and values[0] > DECADES * values[-1]:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0.0, float(values[-1])))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("number of the eigenvalue, the largest first")
    axes.set_ylabel("eigenvalue (squared noise)")
    axes.grid(axis="y")
    axes.legend(**BELOW | {"ncols": 1})


def draw_alignment(
    axes: Any, weights: Array, noise: Array, independent: Array | None = None
) -> None:
    """Variance of the noise along eigenvectors of H, small where the error counts much."""
    counted = weights > NOTHING * weights.max()
    left = np.maximum(weights, weights[counted].min() / 10 if not counted.all() else 0.0)
    if independent is not None:
        told = "independent noise at equal privacy"
        axes.plot(left, independent, "x", color=GREY, markersize=4, label=told)
    axes.plot(left, noise, "o", color=BLUE, markersize=4, alpha=0.8, label="this noise")
    if left.max() > DECADES * left.min():
        axes.set_xscale("log")
    if noise.min() > NOTHING * noise.max() and noise.max() > DECADES * noise.min():
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    left_out = int((~counted).sum())
    told = f"\n({left_out} at zero, drawn at the left)" if left_out else ""
    axes.set_xlabel("weight of a direction in the error (eigenvalue of H)" + told)
    axes.set_ylabel("variance of the noise along it")
    legend_below(axes.figure)


def draw_lags(axes: Any, values: Array, of: str, logarithmic: bool) -> None:
    """Numbers by lag, red above zero and blue below; or their sizes, on two logarithmic axes."""
    lags = _thinned(len(values))
    shown = values[lags]
    if logarithmic:
        floor = float(np.abs(shown).max()) * 1e-6
        for sign, colour, told in ((1, POSITIVE, "added"), (-1, NEGATIVE, "taken back")):
            seen = (np.sign(shown) == sign) & (np.abs(shown) > floor)
            look: Any = {"color": colour, "markersize": 2.5, "label": told}
            axes.plot(lags[seen] + 1, np.abs(shown[seen]), "o" if sign > 0 else "s", **look)
        axes.set(xscale="log", yscale="log", xlabel="steps back, and one")
        axes.legend(**BELOW)
    else:
        colours = np.where(shown < 0, NEGATIVE, POSITIVE)
        axes.vlines(lags, 0, shown, color=colours, linewidth=max(0.6, min(3, 150 / len(lags))))
        axes.axhline(0, color=GREY, linewidth=0.7)
        axes.set_xlabel("steps back")
        if len(values) > FEW_LAGS:
            axes.set(xscale="log", xlim=(0.8, len(values)))
    axes.set_ylabel(of)


def draw_frequencies(axes: Any, power: Array) -> None:
    places = _thinned(len(power) - 1) + 1
    axes.loglog(places / (len(power) - 1) / 2, power[places], color=BLUE)
    axes.set(xlabel="frequency (cycles a step)", ylabel="power (squared noise)")
    axes.grid()


def draw_exposures(
    axes: Any, losses: Mapping[str, float], target: float | None, symbol: str
) -> None:
    """mu or epsilon before every kind of observer; infinite ones are marked at the right."""
    values = np.array(list(losses.values()))
    finite = np.isfinite(values)
    most = float(max(values[finite].max(initial=0.0), target or 0.0)) or 1.0
    places = np.arange(len(losses))
    axes.hlines(places[finite], 0, values[finite], color=BLUE, linewidth=1.6)
    axes.scatter(values[finite], places[finite], color=BLUE, s=30, zorder=3)
    axes.scatter(
        np.full((~finite).sum(), 1.12 * most), places[~finite], marker=">", s=40, color=ORANGE
    )
    if target is not None:
        axes.axvline(target, color=GREY, linestyle="--", linewidth=1)
        axes.text(target, -0.85, "target", ha="center", va="center", color=GREY, fontsize=8)
    name_rows(axes, list(losses), values.tolist())
    axes.set(xlim=(0, 1.2 * most), ylim=(len(losses) - 0.4, -1.2))
    axes.set_xlabel(f"{symbol} of the whole run, worst node")


def _thinned(count: int) -> Any:
    """Places on a curve of so many points: all of them, or some at factors of each other."""
    if count <= MOST_POINTS:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, MOST_POINTS).astype(np.int64)) - 1
