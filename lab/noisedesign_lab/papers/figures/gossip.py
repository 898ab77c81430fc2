"""Squared sensitivity of gossip averaging as the run gets longer (Koskela and Kulkarni, Figures 1
and 2): one observed node, a neighbour and another victim, for unit noise and gradients, a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np

from noisedesign.files.picture_file import BLUE, GREEN, GREY, ORANGE, new_figure
from noisedesign.privacy import views as threats
from noisedesign.privacy.views.observers import distances
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign_lab.papers import bounds
from noisedesign_lab.papers.figures import Announce, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEED = 0
SINGLE_NODE, SECURE_SUM = "single-node", "secure-sum"

_VIEWS = {
    SINGLE_NODE: "all messages of one node read, its noise unknown",
    SECURE_SUM: "weighted sums received by one node, its noise known to it",
}
_PAIRS = {"neighbours": BLUE, "not neighbours": ORANGE}
HORIZONS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 45, 65, 100, 150, 220, 330, 500, 700, 1000)
QUICK_HORIZONS = (1, 2, 4, 8, 15, 30)


class Row(NamedTuple):
    """Squared sensitivity per step of one victim, for ``constant`` gradients, which tends to
    ``constant_limit``, for any (``exact``), and T lambda_max(M_T)."""

    graph: str
    view: str
    pair: str
    observer: int
    victim: int
    distance: int
    horizon: int
    constant: float
    exact: float
    kind: str
    spectral_upper_bound: float
    constant_limit: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, an observed node and its victims, by the name of their relation."""

    name: str
    graph: nx.Graph
    observer: int
    victims: dict[str, int]


def cases(*, quick: bool) -> Iterator[Case]:
    """The graphs of the publication, or smaller ones of the same kinds."""
    n, p = (20, 0.3) if quick else (100, 0.15)
    yield random_case(
        f"Erdős–Rényi G({n}, {p})", build_graph("erdos-renyi", nodes=n, p=p, seed=SEED)
    )
    yield random_case(
        f"preferential attachment, n = {n}",
        nx.barabasi_albert_graph(n, 3, seed=SEED, initial_graph=nx.complete_graph(5)),
    )


def random_case(name: str, graph: nx.Graph) -> Case:
    """Draw the observed node, and a neighbour and another node as far as there are such."""
    rng = np.random.default_rng(SEED)
    adjacency = nx.to_numpy_array(graph, weight=None)
    observer = int(rng.integers(len(adjacency)))
    near = adjacency[observer] != 0
    far = ~near
    far[observer] = False
    groups = {"neighbours": np.flatnonzero(near), "not neighbours": np.flatnonzero(far)}
    victims = {pair: int(rng.choice(nodes)) for pair, nodes in groups.items() if len(nodes)}
    return Case(name=name, graph=graph, observer=observer, victims=victims)


def rows_for(case: Case, *, view: str, horizons: Sequence[int]) -> Iterator[Row]:
    """Yield the rows of a case before one kind of observer, horizon by horizon."""
    w = mixing_matrix(case.graph)
    one = (case.observer,)
    observer = threats.tap(nodes=one) if view == SINGLE_NODE else threats.secure_sum(nodes=one)
    hops = distances(w, observer)
    # Of constant gradients, as Theorems 13 and 16 have it.
    limit = 1 / len(w) if view == SINGLE_NODE else 1 / (len(w) - 1)
    pairs = {victim: pair for pair, victim in case.victims.items()}
    for horizon in horizons:
        for victim, found in bounds.per_step(w, observer, list(pairs), horizon=horizon):
            distance = hops[victim]
            assert distance is not None  # Metropolis-Hastings weights are of connected graphs
            who = (case.name, view, pairs[victim], case.observer, victim, distance)
            yield Row._make([*who, horizon, *found.values(), limit])


def _panels(
    rows: Sequence[Row],
    column: str,
    words: Mapping[str, str],
    panel: Callable[[Axes, Sequence[Row]], None],
    *,
    entries: int,
    title: str = "",
) -> Any:
    """A column a graph, a row of panels for each value of ``column``, in these ``words``."""
    graphs = list(dict.fromkeys(row.graph for row in rows))
    figure = new_figure(4.6 * len(graphs) + 1.0, 3.3 * len(words) + 0.9)
    panels = figure.subplots(len(words), len(graphs), squeeze=False, sharex=True)
    for i, (value, told) in enumerate(words.items()):
        for j, graph in enumerate(graphs):
            axes = panels[i, j]
            here = [r for r in rows if r.graph == graph and getattr(r, column) == value]
            panel(axes, here)
            axes.set_xscale("log")
            axes.grid(alpha=0.25)
            axes.set_title(f"{graph}{told}", fontsize=10)
        panels[i, 0].set_ylabel("squared sensitivity per step, unit noise")
    for axes in panels[-1]:
        axes.set_xlabel("steps T")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=entries, frameon=False)
    figure.suptitle(
        "Gossip averaging (DP-D-SGD), Metropolis-Hastings weights, full participation, fixed "
        f"responses{title}"
    )
    return figure


def _parts(views: Sequence[str], quick: bool, announce: Announce) -> Iterator[list[Row]]:
    """Rows of one graph after another."""
    horizons = QUICK_HORIZONS if quick else HORIZONS
    for case in cases(quick=quick):
        found: list[Row] = []
        for view in views:
            announce(f"{case.name}, {view}: up to {horizons[-1]} steps")
            found += rows_for(case, view=view, horizons=horizons)
        yield found


def _growth(axes: Axes, rows: Sequence[Row]) -> None:
    for pair, colour in _PAIRS.items():
        here = [row for row in rows if row.pair == pair]
        steps = np.array([row.horizon for row in here])
        exact, constant = [row.exact for row in here], [row.constant for row in here]
        told = f"{pair}, worst gradients"
        look: dict[str, Any] = {
            "color": colour,
            "linewidth": 3.6,
            "markersize": 6,
            "alpha": 0.4,
            "label": told,
        }
        axes.plot(steps, exact, "o-", **look)  # wide, to be seen below the other
        told = f"{pair}, constant gradients"
        axes.plot(steps, constant, "--", color=colour, linewidth=1.2, label=told)
    if rows:
        told = "limit of constant gradients: 1/n, and 1/(n - 1) where the own noise is known"
        axes.axhline(rows[0].constant_limit, color=GREY, linestyle=":", label=told)
    axes.set_ylim(bottom=0)


def excess(row: Row) -> float:
    """Share of the exact number by which the spectral bound exceeds it; 0 where both are 0."""
    return row.spectral_upper_bound / row.exact - 1 if row.exact > 0 else 0.0


def _excess(axes: Axes, rows: Sequence[Row]) -> None:
    steps = np.array([row.horizon for row in rows])
    upper = np.array([row.spectral_upper_bound for row in rows])
    lower = np.array([row.constant for row in rows])
    axes.fill_between(steps, lower, upper, color=BLUE, alpha=0.10, linewidth=0)
    told = r"spectral upper bound, $\lambda_{\max}(M_T)$ per step"
    axes.plot(steps, upper, "^--", color=ORANGE, markersize=3.5, linewidth=1.2, label=told)
    exact, told = [row.exact for row in rows], "exact, worst gradients"
    axes.plot(steps, exact, "o-", color=BLUE, markersize=6, markerfacecolor="white", label=told)
    axes.plot(steps, lower, "v:", color=GREEN, markersize=3, label="constant gradients")
    if rows:
        told = f"bound {excess(rows[-1]):.0%} above exact at T = {rows[-1].horizon}"
        axes.text(0.03, 0.93, told, transform=axes.transAxes, va="top", fontsize=9)
    axes.set_ylim(0, 1.15 * float(upper.max()))


SINGLE_VIEW = Figure(
    parts=lambda quick, announce: _parts(tuple(_VIEWS), quick, announce),
    draw=lambda rows, _: _panels(
        rows, "view", {view: f"\n{told}" for view, told in _VIEWS.items()}, _growth, entries=2
    ),
    tables={".csv": lambda rows: (Row._fields, rows)},
)

SPECTRAL = Figure(
    parts=lambda quick, announce: _parts((SINGLE_NODE,), quick, announce),
    draw=lambda rows, _: _panels(
        rows,
        "pair",
        {pair: f", {pair}" for pair in dict.fromkeys(row.pair for row in rows)},
        _excess,
        title="\nobserver: reads all messages of one node, whose noise is unknown",
        entries=3,
    ),
    tables={".csv": lambda rows: ((*Row._fields, "excess"), [(*r, excess(r)) for r in rows])},
)
