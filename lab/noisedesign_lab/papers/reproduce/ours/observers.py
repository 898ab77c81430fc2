"""Noise left at equal privacy: each mechanism's noise is scaled until the observer learns mu = 1 of
the node it learns most about. Told is the squared error of all models over that of independent
noise scaled for the same observer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import new_figure
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.privacy.views import Algorithm, dp_d_sgd
from noisedesign.system.graph import build_graph, mixing_matrix, node_names
from noisedesign.system.participation import FixedEpoch, Participation
from noisedesign.tasks.account.table import Setting, busiest_node, every_model
from noisedesign_lab.papers.figures.algorithms_by_observer import squared_error
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.statistics import groups
from noisedesign_lab.tasks.mechanisms import Network, mechanism
from noisedesign_lab.tasks.training_task import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = columns("graph:str mechanism:str model:str mu which:str squared_error note:str")
"""Columns of a row; ``mu`` (not squared) is that of unit noise, ``squared_error`` that of noise
scaled to mu = 1, per coordinate and squared clip."""

INDEPENDENT = "ldp"
"""The mechanism that others are compared with."""

MODELS = {
    "ldp": "eavesdropper",
    "pndp": "neighbour",
    "pndp-counted": "neighbour, own\nnoise unknown",
    "secure-sum": "neighbour, secure\naggregation",
    "insider": "eavesdropper with\nown noise",
}
"""Threat models by their names in accounts, and in words."""


def units(table: Any) -> Iterator[Unit]:
    """A graph and a mechanism each."""
    for graph in table.graphs:
        for name in (INDEPENDENT, *(name for name in table.mechanisms if name != INDEPENDENT)):
            keys = ("epochs", "separation", "cap")
            yield {"graph": graph, "mechanism": name} | {key: getattr(table, key) for key in keys}


def run(unit: Unit) -> list[Record]:
    """A row an observer."""
    scheme = FixedEpoch(epochs=unit["epochs"], separation=unit["separation"])
    network = network_of(unit, scheme)
    names = _built(tuple(unit["graph"].items()))[1]
    algorithm = _algorithm(unit["mechanism"], network, names)
    setting = Setting(
        algorithm=algorithm, participation=scheme, adjacency="zero-out", responses=FIXED_RESPONSES
    )
    error = squared_error(algorithm)
    rows = []
    here = {"graph": label(unit["graph"]), "mechanism": unit["mechanism"]}
    for found in every_model(setting, node=busiest_node(network.mixing)):
        if found.model in MODELS:
            mu = found.mu
            scaled = None if mu is None or math.isinf(mu) else error * mu**2
            known = {"mu": mu, "which": found.which, "squared_error": scaled, "note": found.note}
            rows.append(here | {"model": found.model} | known)
    return rows


def label(graph: dict[str, Any]) -> str:
    """ "ring 20", "florentine"."""
    return " ".join(str(value) for key, value in graph.items() if key != "seed")


def network_of(unit: Unit, scheme: Participation, **how: Any) -> Network:
    """The network of a unit, for fixed responses, with its cap on diag(R)."""
    w, _ = _built(tuple(unit["graph"].items()))
    shared = {"max_variance": unit["cap"], "responses": FIXED_RESPONSES}
    return Network(mixing=w, participation=scheme, **shared, **how)


@cache
def _built(graph: tuple[tuple[str, Any], ...]) -> tuple[Array, tuple[str, ...]]:
    found = build_graph(**dict(graph))
    return mixing_matrix(found), node_names(found)


def _algorithm(name: str, network: Network, names: tuple[str, ...]) -> Algorithm:
    w, scheme = network.mixing, network.participation
    if name == INDEPENDENT:
        return dp_d_sgd(mixing=w, horizon=scheme.horizon)
    if name in catalogue.KINDS and name not in ("decor", "mafalda", "whisper"):
        return catalogue.algorithm(name, mixing=w, participation=scheme, nodes=names)
    design = mechanism(name, network).design
    assert design is not None
    return catalogue.of_design(design, participation=scheme)


def compared(rows: Sequence[Record]) -> list[Record]:
    """Add ``over_ldp``, the squared error over that of independent noise; None if infinite."""
    base = {
        (row["graph"], row["model"]): row["squared_error"]
        for row in rows
        if row["mechanism"] == INDEPENDENT
    }
    found = []
    for row in rows:
        other, own = base.get((row["graph"], row["model"])), row["squared_error"]
        ratio = None if other is None or own is None else own / other
        kept = ("graph", "mechanism", "model", "mu", "which", "squared_error")
        found.append({name: row[name] for name in kept} | {"over_ldp": ratio, "note": row["note"]})
    return found


def draw(table: Sequence[Record]) -> Figure:
    """A panel a graph: mechanisms down, observers across, the noise left over that of LDP."""
    from matplotlib.colors import LogNorm

    panels = list(groups(table, "graph"))
    names = list(dict.fromkeys(row["mechanism"] for row in table))
    known = [row["over_ldp"] for row in table if row["over_ldp"]]
    colours = LogNorm(vmin=min(known), vmax=max([*known, 1.0]))
    figure = new_figure(4.4 * len(panels) + 1.2, 0.36 * len(names) + 2.2)
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for place, ((graph,), members) in zip(axes, panels, strict=True):
        values = np.full((len(names), len(MODELS)), np.nan)
        for row in members:
            if row["over_ldp"] is not None:
                i, j = names.index(row["mechanism"]), list(MODELS).index(row["model"])
                values[i, j] = row["over_ldp"]
        picture = place.imshow(values, cmap="cividis", norm=colours, aspect="auto")
        for i, j in np.ndindex(values.shape):
            value = values[i, j]
            text = "none" if np.isnan(value) else f"{value:.2f}"
            dark = not np.isnan(value) and float(colours(value)) < 0.5
            place.text(
                j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black"
            )
        place.set_xticks(range(len(MODELS)), MODELS.values(), rotation=40, ha="right", fontsize=8)
        place.set_yticks(range(len(names)), names)
        place.tick_params(length=0)
        place.set_title(graph, fontsize=10)
    figure.colorbar(picture, ax=list(axes), label="squared error over that of independent noise")
    figure.suptitle("Fixed responses: before neighbours, and Zip-DL before everybody", fontsize=10)
    return figure


def paragraph(table: Sequence[Record]) -> str:
    """The best mechanism before every observer."""
    told = [
        "**Noise at equal privacy.** Squared error of all models over that of independent noise, "
        "both scaled until the observer, the node of most neighbours, learns mu = 1 of whomever it "
        "learns most about. Numbers before neighbours are for fixed responses, and are no "
        "guarantee for training, as are those of Zip-DL; other numbers before eavesdroppers, who "
        "read all messages, hold whatever gradients do. None: no finite noise of that kind "
        "protects from that observer."
    ]
    for (graph,), members in groups(table, "graph"):
        best = []
        for (model,), rows in groups(members, "model"):
            finite = [row for row in rows if row["over_ldp"] is not None]
            if finite:
                least = min(finite, key=lambda row: row["over_ldp"])
                words = MODELS[model].replace("\n", " ")
                best.append(f"{words} {least['mechanism']} ({least['over_ldp']:.3f})")
        told.append(f"{graph}, the least before each: {'; '.join(best)}.")
    return "\n\n".join(told)
