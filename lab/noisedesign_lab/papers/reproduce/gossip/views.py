"""Squared sensitivity of one observed node's messages to the gradients of others (Figures 1, 2), a
step of DP-D-SGD, for unit noise and gradients of norm at most 1, read by who knows no noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import COLOURS, GREY, new_figure
from noisedesign.privacy import views as threats
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign_lab.papers import bounds
from noisedesign_lab.papers.reproduce.experiment import Record, Rows, Unit
from noisedesign_lab.papers.reproduce.statistics import groups, of_median, of_share
from noisedesign_lab.tasks.training_task import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = columns(
    "graph:str draw:int observer:int victim:int pair:str horizon:int constant exact kind:str "
    "spectral claimed"
)
"""Columns of a pair and horizon: squared sensitivity per step to ``constant`` gradients, to any
(``exact``), its ``spectral`` bound, and what Theorem 15 is ``claimed`` to bound."""

ITSELF, NEAR, FAR = "the node itself", "neighbours", "not neighbours"
NAMES = {"erdos-renyi": "Erdős–Rényi", "preferential-attachment": "preferential attachment"}
TENTH = 0.1  # relative excess of the spectral bound over the truth that the paper states
Lines = Sequence[tuple[str, Literal["-", "--"], str]]  # columns, how drawn, and what they are
QUANTILES = (0.05, 0.5, 0.95)


def drawn(unit: Unit) -> Array:
    """W of the graph of a unit: a pure function of its kind, size, parameters and draw."""
    n, seed = unit["nodes"], unit["draw"]
    if unit["graph"] == "erdos-renyi":
        return mixing_matrix(build_graph("erdos-renyi", nodes=n, p=unit["p"], seed=seed))
    core = nx.complete_graph(5)
    graph = nx.barabasi_albert_graph(n, unit["links"], seed=seed, initial_graph=core)
    return mixing_matrix(graph)


def graphs(table: Any) -> Iterator[Unit]:
    """Yield the parameters of every graph of a table of settings."""
    for kind in table.kinds:
        for draw in range(table.draws):
            rule = {"p": table.p} if kind == "erdos-renyi" else {"links": table.links}
            yield {"graph": kind, "nodes": table.nodes, "draw": draw, **rule}


def units(table: Any) -> Iterator[Unit]:
    """An observed node each."""
    for graph in graphs(table):
        for index in range(table.observers):
            yield graph | {
                "index": index,
                "victims": table.victims,
                "horizons": sorted(table.horizons),
            }


def run(unit: Unit) -> list[Record]:
    """Rows of one observed node, its victims and all horizons."""
    w = drawn(unit)
    observer, victims = _nodes(w, unit)
    rows = []
    for horizon in unit["horizons"]:
        claimed = bounds.theorem_15_squared_sensitivity(
            mixing=w, observers=(observer,), horizon=horizon
        )
        tap = threats.tap(nodes=(observer,))
        for victim, found in bounds.per_step(w, tap, list(victims), horizon=horizon):
            where = {"graph": unit["graph"], "draw": unit["draw"], "observer": observer}
            pair = {"victim": victim, "pair": victims[victim], "horizon": horizon}
            rows.append(where | pair | found | {"claimed": claimed / horizon})
    return rows


def _nodes(w: Array, unit: Unit) -> tuple[int, dict[int, str]]:
    """The observed node, the same for every number of victims, and whose gradients it may tell."""
    order = np.random.default_rng(unit["draw"]).permutation(len(w))
    observer = int(order[unit["index"] % len(w)])
    rng = np.random.default_rng((unit["draw"], observer))
    near = np.flatnonzero(w[observer] > 0)
    near = near[near != observer]
    far = np.flatnonzero(w[observer] == 0)
    victims = {observer: ITSELF}
    for pair, nodes in ((NEAR, near), (FAR, far)):
        count = min(unit["victims"], len(nodes))
        victims |= {int(node): pair for node in rng.permutation(nodes)[:count]}
    return observer, victims


def quantiles(rows: Rows) -> list[Record]:
    """A row each graph, kind of pair and horizon: over pairs, quantiles and shares. Intervals are
    over the observed nodes, whose pairs are not independent."""
    found = []
    for (graph, pair, horizon), members in groups(rows, "graph", "pair", "horizon"):
        exact, constant, spectral, claimed = (
            np.array([row[name] for row in members])
            for name in ("exact", "constant", "spectral", "claimed")
        )
        row = {"graph": graph, "pair": pair, "horizon": horizon, "pairs": len(members)}
        over = {
            "exact": exact,
            "constant": constant,
            "excess": _excess(spectral, exact),
            "excess_of_constant": _excess(spectral, constant),
        }
        for name, values in over.items():
            ends = np.quantile(values, QUANTILES)
            row |= {f"{name}_{q * 100:.0f}": float(v) for q, v in zip(QUANTILES, ends, strict=True)}
        nodes = np.array([(row["draw"], row["observer"]) for row in members])
        _, read = np.unique(nodes, axis=0, return_inverse=True)
        _, row["exact_50_low"], row["exact_50_high"] = of_median(exact, read.ravel())
        for name, excess in (
            ("within_tenth", over["excess"]),
            ("within_tenth_of_constant", over["excess_of_constant"]),
        ):
            row |= of_share((excess < TENTH).astype(float), read.ravel()).columns(name)
        row["claimed_above_one"] = bool((claimed > 1).all())
        row["above_claimed"] = float((exact > claimed * (1 + 1e-9)).mean())
        found.append(row)
    return found


def _excess(bound: Array, truth: Array) -> Array:
    """Return the relative excess of a bound; 0 where bound and truth are 0, else infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = bound / truth - 1
    return np.where(truth > 0, ratio, np.where(bound > 0, np.inf, 0.0))


# --- pictures and words ---------------------------------------------------------------------------


def growth(table: Rows, *, nodes: int) -> Figure:
    """Figure 1 over many pairs: medians, and bands from the 5 % to the 95 % quantile."""
    lines: Lines = (("exact", "-", "any gradients"), ("constant", "--", "constant gradients"))
    return _panels(table, lines, "squared sensitivity per step", level=(1 / nodes, "1 / n"))


def excess(table: Rows) -> Figure:
    """Figure 2 over many pairs: by how much the spectral bound exceeds two numbers."""
    lines: Lines = (
        ("excess", "-", "over the exact number"),
        ("excess_of_constant", "--", "over that of constant gradients"),
    )
    return _panels(table, lines, "excess of the spectral bound", level=(TENTH, "10 %"))


def _panels(table: Rows, lines: Lines, ylabel: str, *, level: tuple[float, str]) -> Figure:
    """A panel a graph and kind of pair."""
    from matplotlib.lines import Line2D

    kinds = list(dict.fromkeys(row["graph"] for row in table))
    pairs = list(dict.fromkeys(row["pair"] for row in table))
    log = level[1] == "1 / n"  # where nothing has come through yet, and there is nothing to draw
    figure = new_figure(3.4 * len(pairs) + 0.6, 2.9 * len(kinds) + 0.7)
    panels = figure.subplots(len(kinds), len(pairs), squeeze=False, sharex=True)
    for i, kind in enumerate(kinds):
        for j, pair in enumerate(pairs):
            axes = panels[i, j]
            here = [row for row in table if (row["graph"], row["pair"]) == (kind, pair)]
            steps = [row["horizon"] for row in here]
            for colour, (name, dashes, _) in zip(COLOURS, lines, strict=False):
                low, middle, high = (
                    [row[f"{name}_{q * 100:.0f}"] or (math.nan if log else 0.0) for row in here]
                    for q in QUANTILES
                )
                axes.plot(steps, middle, dashes, color=colour, marker="o")
                axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.axhline(level[0], color=GREY, linestyle=":")
            axes.set_xscale("log")
            if log:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter("")
            axes.grid(visible=True)
            axes.set_title(f"{NAMES[kind]}: {pair}")
            if i == len(kinds) - 1:
                axes.set_xlabel("steps T")
        panels[i, 0].set_ylabel(ylabel)
    handles = [
        Line2D([], [], color=colour, linestyle=dashes, marker="o", label=told)
        for colour, (_, dashes, told) in zip(COLOURS, lines, strict=False)
    ]
    handles.append(Line2D([], [], color=GREY, linestyle=":", label=level[1]))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.suptitle("All messages of one node are read; fixed responses")
    return figure


def paragraph(table: Rows, *, nodes: int) -> str:
    """Tell Figures 1 and 2 over many pairs, at the longest horizon, against the paper."""
    last = max(row["horizon"] for row in table)
    here = [row for row in table if row["horizon"] == last]
    of = {pair: [row for row in here if row["pair"] == pair] for pair in (FAR, NEAR, ITSELF)}
    claims = all(row["claimed_above_one"] for row in table)
    theorem = (
        "What Theorem 15 is said to bound is exceeded by no pair, for at these gaps it says more "
        "than T, which is no news."
        if claims
        else "What Theorem 15 is said to bound is exceeded by "
        + "; ".join(
            f"{row['above_claimed']:.0%} of {row['pairs']} pairs "
            f"({NAMES[row['graph']]}, {row['pair']})"
            for row in here
        )
        + "."
    )
    return (
        f"**One node's view, T = {last}, fixed responses** (in square brackets: 95 % intervals "
        "over the observed nodes). The spectral bound is less than "
        f"10 % above that of constant gradients, with which the paper compares it, for "
        f"{_shares(of[FAR], 'within_tenth_of_constant')} that are no neighbours, but for "
        f"{_shares(of[NEAR], 'within_tenth_of_constant')} that are. It is less than 10 % above the "
        f"exact number for {_shares(of[FAR], 'within_tenth')} that are no neighbours, and for "
        f"{_shares(of[NEAR], 'within_tenth')} that are. In units of "
        f"T / n, the squared sensitivity of any gradients is {_medians(of[FAR], nodes)} for nodes "
        f"that are no neighbours and {_medians(of[NEAR], nodes)} for neighbours (medians, and 5 % "
        f"to 95 % of the pairs), but {_medians(of[ITSELF], nodes)} for the node that is read: who "
        f"reads its messages learns of it nearly what a reader of all messages does. {theorem}"
    )


def _shares(rows: Rows, column: str) -> str:
    return " and ".join(
        f"{row[column]:.0%}{_ends(row, column, '.0%')} of {row['pairs']} pairs "
        f"({NAMES[row['graph']]})"
        for row in rows
    )


def _medians(rows: Rows, nodes: int) -> str:
    return " and ".join(
        f"{row['exact_50'] * nodes:.2f}{_ends(row, 'exact_50', '.2f', nodes)} "
        f"({row['exact_5'] * nodes:.2f} to {row['exact_95'] * nodes:.2f}, {NAMES[row['graph']]})"
        for row in rows
    )


def _ends(row: Record, column: str, how: str, times: float = 1.0) -> str:
    low, high = row[f"{column}_low"], row[f"{column}_high"]
    return "" if low is None else f" [{low * times:{how}} to {high * times:{how}}]"
