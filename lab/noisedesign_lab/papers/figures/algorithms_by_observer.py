"""Every published algorithm before every kind of observer, at equal squared error of all models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import new_figure
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.privacy import views as threats
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.system.graph import build_graph, mixing_matrix, node_names
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.account.table import Setting, busiest_node, every_model
from noisedesign_lab.papers.figures import Announce, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_NAMES = ("dp-d-sgd", "muffliato", "antipgd", "d-mf", "mafalda", "decor", "whisper", "zip-dl")
ALGORITHMS = {name: {"rounds": 3} if name == "muffliato" else {} for name in _NAMES}
"""Names in the catalogue and their options."""

LABELS = {"muffliato": "muffliato, K = 3"}

MODELS = {  # threat models of the picture, those that read messages, in few words
    "ldp": "reader of\nall messages",
    "pndp": "neighbour",
    "pndp-counted": "neighbour,\nown noise\nunknown",
    "secure-sum": "neighbour,\nsecure sums",
    "insider": "all messages,\nown noise\nvalues",
    "secldp": "all messages,\nown seeds",
    "shared-seed": "all messages,\nall seeds",
}

UNIT_MU = 1.0  # mu of DP-D-SGD before a reader of all messages; it sets the common total error


class Row(NamedTuple):
    """The loss of the worst placed victim to one observer: ``mu`` (not squared) of the whole run,
    and the squared error common to all algorithms, per coordinate and squared clip."""

    algorithm: str
    model: str
    victim: str | None
    distance: int | None
    mu: float | None
    which: str | None
    noise_multiplier: float
    squared_error: float
    note: str


def squared_error(algorithm: threats.Algorithm) -> float:
    """Variance of the models x^1 .. x^T, summed over steps and nodes, for noise as it stands."""
    before = threats.view(algorithm, threats.ldp())
    # Reading F x + q instead of messages is reading the models of the next step.
    models = replace(before, output=before.transition, output_noise=before.state_noise)
    return float(np.square(models.dense_noise()).sum())


def rows_for(
    *,
    mixing: Array,
    nodes: tuple[str, ...],
    participation: FixedEpoch,
    node: int,
    algorithms: dict[str, dict[str, Any]],
) -> Iterator[Row]:
    """Yield a row of every algorithm before every threat model; ``node`` is the one that looks."""
    # k unit gradients in independent unit noise are told apart with mu = sqrt(k).
    reference = threats.dp_d_sgd(mixing=mixing, horizon=participation.horizon)
    common = squared_error(reference) * participation.epochs / UNIT_MU**2
    for kind, options in algorithms.items():
        algorithm = catalogue.algorithm(
            kind, mixing=mixing, participation=participation, nodes=nodes, **options
        )
        multiplier = math.sqrt(common / squared_error(algorithm))
        setting = Setting(
            algorithm=algorithm,
            participation=participation,
            noise_multiplier=multiplier,
            adjacency="zero-out",
            responses=FIXED_RESPONSES,
        )
        for found in every_model(setting, node=node):
            if found.model not in MODELS:
                continue
            told = ("model", "victim", "distance", "mu", "which", "note")
            known = {name: getattr(found, name) for name in told}
            yield Row(algorithm=kind, noise_multiplier=multiplier, squared_error=common, **known)


def draw(rows: Sequence[Row], *, title: str) -> Any:
    """A heat map of mu; infinite cells are hatched and say so."""
    from matplotlib.colors import LogNorm

    kinds = list(dict.fromkeys(row.algorithm for row in rows))
    models = list(dict.fromkeys(row.model for row in rows))
    mu = np.full((len(kinds), len(models)), np.nan)
    for row in rows:
        if row.mu is not None:
            mu[kinds.index(row.algorithm), models.index(row.model)] = row.mu
    figure = new_figure(1.25 * len(models) + 3.4, 0.52 * len(kinds) + 2.6)
    axes = figure.subplots()
    shown = np.isfinite(mu) & (mu > 0)
    colours = LogNorm(vmin=mu[shown].min(), vmax=mu[shown].max())
    picture = axes.imshow(np.where(shown, mu, np.nan), cmap="cividis", norm=colours, aspect="auto")
    for i, j in np.ndindex(mu.shape):
        bright = not shown[i, j] or float(colours(mu[i, j])) > 0.55
        _write_cell(axes, i, j, float(mu[i, j]), colour="black" if bright else "white")
    axes.set_xticks(range(len(models)), [f"{MODELS[m]}\n({m})" for m in models], fontsize=8)
    axes.set_yticks(range(len(kinds)), [LABELS.get(kind, kind) for kind in kinds])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.colorbar(picture, ax=axes, label="μ of the worst victim (smaller is more private)")
    figure.suptitle(title, fontsize=11)
    return figure


def _write_cell(axes: Axes, i: int, j: int, mu: float, *, colour: str) -> None:
    if math.isinf(mu):
        from matplotlib.patches import Rectangle

        axes.add_patch(
            Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="white", edgecolor="0.75", hatch="///")
        )
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(j, i, "infinite", ha="center", va="center", fontsize=9, bbox=box)
    elif math.isnan(mu):
        axes.text(j, i, "no number", ha="center", va="center", fontsize=8, color="0.4")
    else:
        axes.text(j, i, f"{mu:.3g}", ha="center", va="center", color=colour)


def _setting(quick: bool) -> tuple[Array, tuple[str, ...], FixedEpoch, int]:
    graph = build_graph("florentine")
    w = mixing_matrix(graph)
    return (
        w,
        node_names(graph),
        FixedEpoch(epochs=2, separation=2) if quick else FixedEpoch(epochs=4, separation=8),
        busiest_node(w),
    )


def _parts(quick: bool, announce: Announce) -> Iterator[list[Row]]:
    """Rows of one algorithm after another."""
    w, names, participation, node = _setting(quick)
    for kind, options in ALGORITHMS.items():
        announce(f"{kind}: every observer")
        asked: dict[str, Any] = {"participation": participation, "algorithms": {kind: options}}
        yield list(rows_for(mixing=w, nodes=names, node=node, **asked))


def _title(quick: bool) -> str:
    _, names, participation, node = _setting(quick)
    return (
        f"Florentine families, observer {names[node]}, T = {participation.horizon}, "
        f"{participation}, fixed responses:\n"
        f"equal total error of all models, that of DP-D-SGD at μ = {UNIT_MU:g} "
        "before a reader of all messages"
    )


FIGURE = Figure(
    parts=_parts,
    draw=lambda rows, quick: draw(rows, title=_title(quick)),
    tables={".csv": lambda rows: (Row._fields, rows)},
    early=False,
)
