"""Our own: noise at equal privacy before every observer, and training with our designs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files.picture_file import new_figure
from noisedesign.files.schema import Table
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.privacy.target import DEFAULT_ADJACENCY, PrivacyTarget
from noisedesign.privacy.views import Algorithm, dp_d_sgd
from noisedesign.system.graph import build_graph, mixing_matrix, node_names
from noisedesign.system.participation import FixedEpoch, Participation
from noisedesign.system.workloads import Workload
from noisedesign.tasks.account.table import Setting, busiest_node, every_model
from noisedesign_lab.datasets import Examples, a9a
from noisedesign_lab.papers.figures.algorithms_by_observer import squared_error as error_of_models
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import (
    Experiment,
    Part,
    Parts,
    Record,
    Rows,
    Settings,
    Unit,
    as_table,
)
from noisedesign_lab.papers.reproduce.pictures import (
    Pictures,
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import (
    NOISELESS,
    TOO_SHORT,
    costs_of_noise,
    groups,
    interval,
    order,
    over_seeds,
)
from noisedesign_lab.tasks.mechanisms import Mechanism, Network, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask, columns, run as train
from noisedesign_lab.training.losses.models import Logistic
from noisedesign_lab.training.noise import NodeNoise
from noisedesign_lab.training.partition import iid

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LDP = "ldp"  # the mechanism that others are compared with
OBSERVER_COLUMNS = columns("graph:str mechanism:str model:str mu which:str squared_error note:str")
"""Columns of a row; ``mu`` (not squared) is that of unit noise, ``squared_error`` that of noise
scaled to mu = 1, per coordinate and squared clip."""

MODELS = {  # threat models by their names in accounts, and in words
    "ldp": "eavesdropper",
    "pndp": "neighbour",
    "pndp-counted": "neighbour, own\nnoise unknown",
    "secure-sum": "neighbour, secure\naggregation",
    "insider": "eavesdropper with\nown noise",
}


def observer_units(table: Any) -> Iterator[Unit]:
    """A graph and a mechanism each."""
    for graph in table.graphs:
        for name in (LDP, *(name for name in table.mechanisms if name != LDP)):
            keys = ("epochs", "separation", "cap")
            yield {"graph": graph, "mechanism": name} | {key: getattr(table, key) for key in keys}


def observer_rows(unit: Unit) -> list[Record]:
    """A row an observer."""
    scheme = FixedEpoch(epochs=unit["epochs"], separation=unit["separation"])
    network = network_of(unit, scheme)
    names = _built(tuple(unit["graph"].items()))[1]
    algorithm = _algorithm(unit["mechanism"], network, names)
    setting = Setting(
        algorithm=algorithm, participation=scheme, adjacency="zero-out", responses=FIXED_RESPONSES
    )
    error = error_of_models(algorithm)
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
    if name == LDP:
        return dp_d_sgd(mixing=w, horizon=scheme.horizon)
    if name in catalogue.KINDS and name not in ("decor", "mafalda", "whisper"):
        return catalogue.algorithm(name, mixing=w, participation=scheme, nodes=names)
    design = mechanism(name, network).design
    assert design is not None
    return catalogue.of_design(design, participation=scheme)


def compared(rows: Rows) -> list[Record]:
    """Add ``over_ldp``, the squared error over that of independent noise; None if infinite."""
    base = {
        (row["graph"], row["model"]): row["squared_error"]
        for row in rows
        if row["mechanism"] == LDP
    }
    found = []
    for row in rows:
        other, own = base.get((row["graph"], row["model"])), row["squared_error"]
        ratio = None if other is None or own is None else own / other
        kept = ("graph", "mechanism", "model", "mu", "which", "squared_error")
        found.append({name: row[name] for name in kept} | {"over_ldp": ratio, "note": row["note"]})
    return found


def draw(table: Rows) -> Figure:
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
    figure.suptitle("Before neighbours, and of Zip-DL: for fixed responses alone", fontsize=10)
    return figure


def _of_observers(table: Rows) -> str:
    """The best mechanism before every observer."""
    told = (
        "**Noise at equal privacy.** Squared error of all models over that of independent noise, "
        "the least of all mechanisms before each observer. Both are scaled until the observer "
        "learns mu = 1 of whomever it learns most about. Numbers before neighbours, and all of "
        "Zip-DL, are for fixed responses, and are no guarantee for training; other numbers before "
        "eavesdroppers, who read all messages, hold whatever gradients do. None: no finite noise "
        "of that kind protects from that observer."
    )
    lines = []
    for (graph,), members in groups(table, "graph"):
        finite = [row for row in members if row["over_ldp"] is not None]
        least = {
            model: min(rows, key=lambda row: row["over_ldp"])
            for (model,), rows in groups(finite, "model")
        }
        best = {name: f"{row['mechanism']} ({row['over_ldp']:.3f})" for name, row in least.items()}
        lines.append([graph, *(best.get(model, "none") for model in MODELS)])
    models = [words.replace("\n", " ") for words in MODELS.values()]
    return f"{told}\n\n{as_table(['graph', *models], lines)}"


TRAINING_COLUMNS = columns(
    "setting:str mechanism:str epsilon seed:int step:int train_loss test_loss accuracy "
    "consensus_distance stddev error protects:str status:str"
)
"""Columns of a row; ``epsilon`` is infinite without noise, ``error`` the squared error of all
iterates summed over steps and nodes at a step size of 1, None for a trusted server."""

POINTS = 16  # steps that are measured beside the start


def training_units(table: Any) -> Iterator[Unit]:
    """Some seeds of a graph each."""
    for graph in table.graphs:
        for first in range(0, table.seeds, table.together):
            seeds = list(range(first, min(first + table.together, table.seeds)))
            rest = table.model_dump(exclude={"graphs", "seeds", "together"})
            yield {"graph": graph, "seeds": seeds, **rest}


def training_rows(unit: Unit) -> list[Record]:
    """Rows of all mechanisms and budgets."""
    scheme = FixedEpoch(epochs=unit["epochs"], separation=unit["separation"])
    return [{name: row[name] for name in TRAINING_COLUMNS} for row in trained(unit, scheme)]


def trained(unit: Unit, scheme: Participation, **how: Any) -> list[Record]:
    """Return rows of all mechanisms and budgets; ``how`` are further arguments of the task."""
    epsilons = sorted(unit["epsilons"])
    target = PrivacyTarget(
        epsilon=epsilons[len(epsilons) // 2],
        delta=unit["delta"],
        adjacency=how.get("adjacency", DEFAULT_ADJACENCY),
    )
    graph, names = tuple(unit["graph"].items()), tuple(unit["mechanisms"])
    w, made = _made(graph, scheme, unit["cap"], target, names)
    data, test = _records()
    if (count := unit.get("records")) is not None:
        chosen = np.random.default_rng(0).choice(len(data), size=count, replace=False)
        data = data.at(np.sort(chosen))
    steps = scheme.horizon
    task = TrainingTask(
        loss=Logistic(
            features=data.features.shape[1], regularization=unit["regularization"], intercept=True
        ),
        examples=data,
        partition=iid(len(data), len(w)),
        test=test,
        mixing=w,
        participation=scheme,
        mechanisms=made,
        step_sizes=unit["step_size"],
        record=sorted({round(steps * k / POINTS) for k in range(POINTS + 1)}),
        **{name: unit[name] for name in ("measured", "epsilons", "delta", "clip", "seeds")},
        **how,
    )
    errors = {one.name: squared_error(one, w, steps) for one in made}
    rows = []
    for row in train(task):
        epsilon = math.inf if row["epsilon"] is None else row["epsilon"]
        error = errors[row["mechanism"]]
        told = {"epsilon": epsilon, "error": None if error is None else error * row["stddev"] ** 2}
        rows.append({"setting": label(unit["graph"])} | row | told)
    return rows


def squared_error(made: Mechanism, w: Array, steps: int) -> float | None:
    """Return tr(H C^-1 C^-T), the squared unit noise of all iterates; None for other noise."""
    if not isinstance(made.source, NodeNoise) or made.server:
        return None
    source = made.source
    if source.full:
        return None if made.design is None else made.design.objective
    covariance = None if source.root is None else source.root @ source.root.T
    gram = Workload.of(w, horizon=steps).time_gram(covariance)
    if source.noising is None:
        return float(np.trace(gram))
    return float(np.einsum("st,su,tu", gram, source.noising, source.noising, optimize=True))


@cache
def _records() -> tuple[Examples, Examples]:
    return a9a()


@cache
def _made(
    graph: tuple[tuple[str, Any], ...],
    scheme: Participation,
    cap: float,
    target: PrivacyTarget,
    names: tuple[str, ...],
) -> tuple[Array, tuple[Mechanism, ...]]:
    network = network_of({"graph": dict(graph), "cap": cap}, scheme, target=target)
    return np.asarray(network.mixing), tuple(mechanism(name, network) for name in names)


class ObserversTable(Table):
    """Part one; ``cap`` is on diag(R) at unit budgets."""

    graphs: keys.Graphs
    mechanisms: keys.Names
    epochs: keys.Count
    separation: keys.Count
    cap: keys.Positive


class TrainingTable(ObserversTable):
    """Part two; ``together`` seeds are one unit of work."""

    epsilons: keys.Positives
    delta: keys.Share
    clip: keys.Positive
    step_size: keys.Positive
    regularization: keys.Nonnegative
    measured: keys.Count
    seeds: keys.Count
    together: keys.Count


class OurSettings(Settings):
    """Keys of ``problems/papers/ours.toml``."""

    observers: ObserversTable
    training: TrainingTable


PARTS = Parts(
    observers=Part(OBSERVER_COLUMNS, observer_units, observer_rows),
    training=Part(TRAINING_COLUMNS, training_units, training_rows),
)


def run(unit: Unit) -> list[Record]:
    """Return the rows of one unit."""
    return PARTS.run(unit)


def summary(rows: Rows, settings: OurSettings) -> list[Record]:
    """Losses after the last step of training."""
    return over_seeds(_last(rows, settings), "train_loss", "stddev", "error")


def _last(rows: Rows, settings: OurSettings) -> list[Record]:
    return at_the_end(PARTS.rows("training", rows), settings.training)


def at_the_end(rows: Rows, table: TrainingTable) -> list[Record]:
    """Rows of the last step of training."""
    return [row for row in rows if row["step"] == table.epochs * table.separation]


def tables(rows: Rows, settings: OurSettings) -> Mapping[str, Rows]:
    """Noise at equal privacy, and what noise costs in training."""
    return {
        "observers.csv": compared(PARTS.rows("observers", rows)),
        "costs.csv": costs(_last(rows, settings)),
    }


def costs(rows: Rows) -> list[Record]:
    """Return what noise costs after the last step, and its squared error over that of LDP."""
    found = []
    for (setting, epsilon), members in groups(rows, "setting", "epsilon"):
        free = [row for row in rows if row["setting"] == setting and row["mechanism"] == NOISELESS]
        errors = {row["mechanism"]: row["error"] for row in members}
        for name, error in errors.items():
            if name != NOISELESS:
                cost = interval(costs_of_noise([*free, *members], name)).columns("cost")
                known = error is not None and errors.get(LDP) is not None
                ratio = error / errors[LDP] if known else None
                lane = {"setting": setting, "mechanism": name, "epsilon": epsilon}
                found.append(lane | cost | {"error_over_ldp": ratio})
    return found


def pictures(rows: Rows, found: Rows, settings: OurSettings) -> Pictures:
    """Noise before observers; loss against epsilon, and against steps at the middle budget."""
    epsilons = settings.training.epsilons
    curves = beside_noiseless(PARTS.rows("training", rows), epsilons[len(epsilons) // 2])
    return {
        "observers": draw(compared(PARTS.rows("observers", rows))),
        "loss": loss_against_epsilon(found),
        "steps": loss_against_steps(curves),
    }


def paragraph(rows: Rows, found: Rows, settings: OurSettings) -> str:
    """Tell the results of both parts."""
    told = _of_observers(compared(PARTS.rows("observers", rows)))
    return f"{told}\n\n{_of_training(costs(_last(rows, settings)), settings)}"


def _of_training(found: Rows, settings: OurSettings) -> str:
    table = settings.training
    lines = [
        f"**Training.** Logistic regression on a9a, {table.epochs} passes of {table.separation} "
        f"batches, clip {table.clip:g}, step size {table.step_size:g}, {table.seeds} seeds, delta "
        f"{table.delta:g}, replaced records, budgets before a reader of all messages (cdp: of the "
        "released average). What noise costs is the test loss less that of the same seed without "
        "noise; in square brackets stands its 95 % interval over seeds, in round ones the squared "
        "error of all iterates over that of independent noise at the same budget, which is what "
        "designs are certified for."
    ]
    first = table.epsilons[0]
    by_setting = {
        setting: {row["mechanism"]: row for row in members if row["epsilon"] == first}
        for (setting,), members in groups(found, "setting")
    }
    names = dict.fromkeys(name for of in by_setting.values() for name in of)
    head = [f"epsilon {first:g}", *by_setting]
    rows = ([name, *(_cost(of.get(name)) for of in by_setting.values())] for name in names)
    lines.append(as_table(head, rows))
    lines.append(" ".join(f"{name}: {ordered([*of.values()])}" for name, of in by_setting.items()))
    return "\n\n".join(lines)


def _cost(row: Record | None) -> str:
    """Return "2.313 [1.93 to 2.69] (1.00)"."""
    if row is None or not math.isfinite(row["cost"]):
        return "diverged" if row else ""
    over = "" if row["error_over_ldp"] is None else f" ({row['error_over_ldp']:.2f})"
    ends = "" if row["cost_low"] is None else f" [{row['cost_low']:.2f} to {row['cost_high']:.2f}]"
    return f"{row['cost']:.3f}{ends}{over}"


def ordered(at: Rows) -> str:
    """Whether less error means less loss."""
    known = [row for row in at if row["error_over_ldp"] is not None]
    ranked = sorted(known, key=lambda row: row["error_over_ldp"])
    pairs = [(a, b) for k, a in enumerate(ranked) for b in ranked[k + 1 :]]
    if not pairs:
        return ""
    kept = sum(a["cost"] <= b["cost"] for a, b in pairs)
    told = f"Of {len(pairs)} pairs, the one of less error costs less in {kept}"
    unsure = sum(order(a, b, "cost") == TOO_SHORT for a, b in pairs)
    return told + (f"; in {unsure} intervals cross, {TOO_SHORT}." if unsure else ".")


EXPERIMENT = Experiment(
    title="Designs across nodes, over time and both: noise before every observer, and training",
    settings=OurSettings,
    columns=PARTS.columns,
    units=PARTS.units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
)
