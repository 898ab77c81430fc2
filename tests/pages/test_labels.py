"""Words in the pictures of a page lie beside each other, in small networks and in large ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.files.picture_file import new_figure, style
from noisedesign.pages import pictures, plot

pytest.importorskip("matplotlib", reason="matplotlib: .[pages] brings it")


@cache
def problem(nodes: int) -> Any:
    graph = nx.barabasi_albert_graph(nodes, 3, seed=1)
    return nd.SpaceProblem.from_graph(
        nx.relabel_nodes(graph, {k: f"hospital {k}" for k in graph}), name=f"hospitals {nodes}"
    )


def draw_graph(axes: Any, nodes: int) -> None:
    graph = nx.barabasi_albert_graph(nodes, 3, seed=1)
    pictures.draw_graph(axes, graph, problem(nodes).nodes, np.eye(nodes))


def draw_covariance(axes: Any, nodes: int) -> None:
    plot.draw_covariance(axes, nd.baseline(problem(nodes), "ldp"))


def draw_comparison(axes: Any, nodes: int) -> None:
    plot.draw_comparison(axes, [nd.baseline(problem(nodes), name) for name in ("ldp", "decor")])


def words(figure: Any) -> Iterator[tuple[str, Any]]:
    """What is written, and the box around it; ticks outside an axis are not drawn."""
    from matplotlib.text import Text

    unseen = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in [*axis.majorTicks, *axis.minorTicks]
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        or not axes.axison
        for label in (tick.label1, tick.label2)
    }
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in unseen:
            yield text.get_text(), text.get_window_extent()


@pytest.mark.parametrize("nodes", [30, 148])
@pytest.mark.parametrize("draw", [draw_graph, draw_covariance, draw_comparison])
@style()
def test_no_label_lies_on_another(draw: Callable[[Any, int], None], nodes: int) -> None:
    figure = new_figure(5.2, 4.4, squares=draw is draw_covariance)
    draw(figure.subplots(), nodes)
    figure.draw_without_rendering()
    found = list(words(figure))
    for (first, one), (second, other) in itertools.combinations(found, 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        up = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(across, up) < 0.5, f"{first!r} lies on {second!r}"
    if draw is draw_graph:
        named = {text for text, _ in found} & set(problem(nodes).nodes)
        # Nearly all of few have room; of many none is named, for the table has them all.
        assert len(named) >= 27 if nodes == 30 else not named


@style()
def test_a_name_without_room_is_left_out() -> None:
    figure = new_figure(1.2, 1.2)
    axes = figure.subplots()
    names = [f"a long name {k}" for k in range(12)]
    pictures.draw_graph(axes, nx.complete_graph(12), names, None)
    assert len(axes.texts) < 12
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(not box.overlaps(other) for box, other in itertools.combinations(boxes, 2))
