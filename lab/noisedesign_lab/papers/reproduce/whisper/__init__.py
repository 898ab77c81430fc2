"""Rodio, Chen and Larsson: Whisper D-SGD (CorN-DSGD), the experiments of section VI.

Quadratic objectives and logistic regression on a9a, on random graphs of 20 nodes, under published
noise and under what is designed here for the whole run. Accounts are exact against a reader of all
messages (of the average, for trusted servers), for one example in every step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from noisedesign.files.picture_file import new_figure
from noisedesign.files.picture_looks import looks_of
from noisedesign.files.schema import Table
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import (
    Experiment,
    Record,
    Rows,
    Settings,
    Unit,
    as_table,
)
from noisedesign_lab.papers.reproduce.pictures import (
    Pictures,
    beneath,
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import (
    TOO_SHORT,
    columns_of,
    costs_of_noise,
    groups,
    interval,
    over_seeds,
)
from noisedesign_lab.papers.reproduce.whisper import lanes
from noisedesign_lab.training.losses.quadratics import whisper_quadratics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_NODE = lanes.name_of(lanes.NODE)
NONE, LDP, PAIRWISE, WHISPER, SERVERS = "none", "ldp", "decor", "whisper", ("cdp-n", "cdp-n2")
PUBLISHED = PAIRWISE, WHISPER


class NetworkTable(Table):
    """Random graphs, the mechanisms on them, and their budgets."""

    nodes: Annotated[int, Field(ge=2)]
    connectivities: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
    graph_seed: keys.Natural
    mechanisms: keys.Names
    epsilons: keys.Positives
    delta: keys.Share
    adjacency: Literal["replace", "zero-out", "add-remove"]
    cap: keys.Positive


class QuadraticsTable(Table):
    """Part one; ``clipped``: whether gradients are, or the clip sets the noise alone."""

    steps: keys.Count
    step_size: keys.Positive
    degrees: float
    clip: keys.Positive
    clipped: Annotated[list[bool], Field(min_length=1)]
    seeds: keys.Count


class Shares(Table):
    """Shares of the records."""

    train: keys.Share
    validation: keys.Share
    test: keys.Share


class IncomesTable(Table):
    """Part two; ``protected``: whose gradient is clipped, and on which graphs."""

    epsilons: keys.Positives
    protected: Annotated[dict[Literal["example", "node"], keys.Positives], Field(min_length=1)]
    steps: keys.Count
    clip: keys.Positive
    batch_size: keys.Count
    concentration: keys.Positive
    regularization: keys.Nonnegative
    step_sizes: keys.Positives
    shares: Shares
    split_seed: keys.Natural
    tuning_seeds: keys.Count
    seeds: keys.Count
    measured: keys.Count


class WhisperSettings(Settings):
    """Keys of ``problems/papers/whisper.toml``."""

    network: NetworkTable
    quadratics: QuadraticsTable
    incomes: IncomesTable


PARTS = {
    "quadratics": (lanes.quadratics_units, lanes.quadratics_rows),
    "incomes": (lanes.incomes_units, lanes.incomes_rows),
}


def units(settings: WhisperSettings) -> list[Unit]:
    """A graph and a clip each, then a graph each."""
    return [
        {"part": name} | unit
        for name, (units_of, _) in PARTS.items()
        for unit in units_of(getattr(settings, name), settings.network)
    ]


def run(unit: Unit) -> list[Record]:
    """Rows of one unit."""
    empty = dict.fromkeys(COLUMNS) | {"part": unit["part"]}
    return [empty | row for row in PARTS[unit["part"]][1](unit)]


def summary(rows: Rows, settings: WhisperSettings) -> list[Record]:
    """Losses and accuracies after the last step, and how far losses are below DECOR's, of pairs of
    one seed, which share data and draws."""
    last = _last(rows, settings)
    losses = {(*_lane(row), row["seed"]): row["test_loss"] for row in last}
    hits: dict[tuple[str, str, float], list[float | None]] = {}
    below: dict[tuple[str, str, float], list[float | None]] = {}
    for row in last:
        setting, epsilon = row["setting"], row["epsilon"]
        hits.setdefault(_lane(row), []).append(row["accuracy"])
        own, other = row["test_loss"], losses.get((setting, PAIRWISE, epsilon, row["seed"]))
        gain = None if own is None or other is None else other - own
        below.setdefault(_lane(row), []).append(gain)
    others = ("step_size", "stddev", "variance_over_ldp", "distance_over_ldp")
    return [
        row
        | columns_of("accuracy", hits[_lane(row)])
        | columns_of("below_decor", below[_lane(row)])
        for row in over_seeds(last, *others)
    ]


def _lane(row: Record) -> tuple[str, str, float]:
    return row["setting"], row["mechanism"], row["epsilon"]


def _last(rows: Rows, settings: WhisperSettings) -> list[Record]:
    return [row for row in rows if row["step"] == getattr(settings, row["part"]).steps]


def saved(rows: Rows) -> list[Record]:
    """Return what each saves of the cost of independent noise, in the mean over seeds; None where
    that is none."""
    records = []
    for (setting,), members in groups(rows, "setting"):
        mechanisms = dict.fromkeys(row["mechanism"] for row in members if row["mechanism"] != NONE)
        costs = {name: costs_of_noise(members, name) for name in mechanisms}
        if LDP not in costs:
            continue
        ldp = interval(costs[LDP])
        for mechanism, values in costs.items():
            told = ldp.low is not None and ldp.low > 0 and min(costs[LDP]) > 0
            shares: list[float | None] = [None]
            if told and math.isfinite(sum(values)):
                shares = [1 - own / base for own, base in zip(values, costs[LDP], strict=True)]
            ratio = next(r["variance_over_ldp"] for r in members if r["mechanism"] == mechanism)
            records.append(
                {"setting": setting, "mechanism": mechanism}
                | interval(values).columns("cost")
                | columns_of("saved", shares)
                | {"saved_variance": 1 - ratio}
            )
    return records


def tables(rows: Rows, settings: WhisperSettings) -> Mapping[str, Rows]:
    """Return the savings of the cost of independent noise."""
    return {"saved.csv": saved(_last(rows, settings))}


# --- pictures -------------------------------------------------------------------------------------


def pictures(rows: Rows, found: Rows, settings: WhisperSettings) -> Pictures:
    """Loss against epsilon on some graphs, accuracy at one epsilon against connectivity, and loss
    against steps on the sparsest graph; what noise does to quadratics, against connectivity."""
    connectivities = sorted(settings.network.connectivities)
    sparsest = connectivities[0]
    valleys = [row for row in found if row["setting"].startswith("quadratics")]
    unclipped = lanes.quadratics_name(settings.quadratics.clip, clipped=False)
    drawn = {
        "quadratics": loss_against_epsilon(
            [row for row in valleys if _connectivity(row) == sparsest],
            ylabel="excess of the objective",
        )
    }
    moved = [row for row in valleys if row["setting"].startswith(unclipped)]
    if len(connectivities) > 1 and moved:
        drawn["quadratics-distance"] = _against_connectivity(
            [row for row in moved if row["distance_over_ldp"] is not None],
            "distance_over_ldp",
            ylabel="squared distance to models without noise, over LDP",
        )
    budgets = settings.incomes.epsilons
    middle = sorted(budgets)[len(budgets) // 2]
    for stem, name in lanes.parts(settings.incomes.protected).items():
        members = [row for row in found if row["setting"].startswith(f"{name}, ")]
        graphs = sorted({_connectivity(row) for row in members})
        some = {graphs[0], graphs[len(graphs) // 2], graphs[-1]}
        drawn[f"{stem}-loss"] = loss_against_epsilon(
            [row for row in members if _connectivity(row) in some]
        )
        if len(graphs) > 2:
            at = [row for row in members if row["epsilon"] in (middle, math.inf)]
            drawn[f"{stem}-accuracy"] = _against_connectivity(
                at, "accuracy", ylabel=f"accuracy on test records, epsilon {middle:g}"
            )
        first = [row for row in rows if row["setting"] == f"{name}, p = {graphs[0]:g}"]
        drawn[f"{stem}-steps"] = loss_against_steps(beside_noiseless(first, middle))
    return drawn


def _connectivity(row: Record) -> float:
    return float(row["setting"].rpartition("p = ")[2])


def _against_connectivity(rows: Rows, column: str, *, ylabel: str) -> Figure:
    """A line a mechanism, with intervals as bars where there are such."""
    from matplotlib.lines import Line2D

    looks = beneath(looks_of(row["mechanism"] for row in rows))
    figure = new_figure(5.2, 4.6)
    axes = figure.subplots()
    for k, ((mechanism,), members) in enumerate(groups(rows, "mechanism")):
        points = {_connectivity(row): row for row in members}  # alike for all epsilons, or one
        ends = [(row.get(f"{column}_low"), row.get(f"{column}_high")) for row in points.values()]
        values = [row[column] for row in points.values()]
        bars = None
        if all(low is not None for low, _ in ends):
            bars = [
                [value - low for value, (low, _) in zip(values, ends, strict=True)],
                [high - value for value, (_, high) in zip(values, ends, strict=True)],
            ]
        beside = 0.0 if bars is None else 0.008 * (k - len(looks) / 2)  # bars next to each other
        places = [p + beside for p in points]
        axes.errorbar(places, values, yerr=bars, capsize=2.0, **looks[mechanism])
    axes.set_xlabel("connectivity p")
    axes.set_xticks(sorted({_connectivity(row) for row in rows}))
    axes.set_ylabel(ylabel)
    axes.grid(visible=True)
    figure.legend(
        handles=[Line2D([], [], label=name, **look) for name, look in looks.items()],
        loc="outside lower center",
        ncols=3,
    )
    return figure


# --- words ----------------------------------------------------------------------------------------


def paragraph(rows: Rows, found: Rows, settings: WhisperSettings) -> str:
    """Tell the results."""
    return "\n\n".join(
        [
            _adversary(settings),
            of_quadratics(found, settings),
            table_of_distances(found),
            *(
                of_incomes(name, found, settings)
                for name in lanes.parts(settings.incomes.protected).values()
            ),
            table_of(saved(_last(rows, settings))),
        ]
    )


def _adversary(settings: WhisperSettings) -> str:
    network, data = settings.network, settings.incomes
    return (
        f"Erdős-Rényi graphs of {network.nodes} nodes, Metropolis-Hastings weights, delta "
        f"{network.delta:g}, adjacency {network.adjacency}; quadratics for "
        f"{settings.quadratics.steps} steps, a9a for {data.steps} (published: 5000 of both), "
        f"{data.seeds} seeds. Accounts are exact and against a reader of all messages. *a9a* is as "
        "the published code: they are for one example, whose gradient is clipped and which may be "
        f"in every batch, and noise is added to the batch's sum, divided by the node's batch size. "
        "*a9a by node* is as the paper: for all data of a node, whose mean gradient over a batch "
        "is clipped. Theorem 2, as we read it, has a factor that neither problem (10) nor the "
        "published code has (see the errata). Step sizes are tuned without an account of that. "
        f"Where W is singular, entries of diag(R) are at most {network.cap:g}: without a cap there "
        "is no optimum. Servers (cdp) protect the released average alone."
    )


def of_quadratics(found: Rows, settings: WhisperSettings) -> str:
    table = settings.quadratics
    minimizer = whisper_quadratics(settings.network.nodes, degrees=table.degrees).minimizer
    furthest = table.clip * float(lanes.sizes(table.model_dump()).sum())
    told = [f"The minimum is {math.hypot(*minimizer):.2f} from the start."]
    heads = {
        True: f"Clipped at {table.clip:g}, gradients move no model by more than {furthest:.3g}",
        False: f"Not clipped, with noise for a clip of {table.clip:g}, models come near it",
    }
    sparsest, first = min(settings.network.connectivities), settings.network.epsilons[0]
    for clipped in table.clipped:
        name = lanes.quadratics_name(table.clip, clipped=clipped)
        rows = {
            (row["mechanism"], row["epsilon"]): row
            for row in found
            if row["setting"] == f"{name}, p = {sparsest:g}"
        }
        shown = ", ".join(
            f"{mechanism} {_ends(rows[mechanism, first], 'test_loss')}"
            for mechanism in (LDP, *PUBLISHED)
            if (mechanism, first) in rows
        )
        noiseless = rows[NONE, math.inf]["test_loss"] if (NONE, math.inf) in rows else math.nan
        told.append(
            f"{heads[clipped]}; the excess is {noiseless:.4g} without noise, and at epsilon "
            f"{first:g} on the sparsest graph {shown}. {_order(name, found)}"
        )
    return "**Quadratics.** " + " ".join(told)


def table_of_distances(found: Rows) -> str:
    """Tell what noise alone moves models by, unclipped: exact, and the same at every budget."""
    told = (
        "Not clipped, noise alone makes the distance of models to those of the run without noise: "
        "its expected square over that of independent noise at equal budgets, exact."
    )
    moved: dict[str, dict[str, str]] = {}
    for row in found:
        if row["setting"].startswith("quadratics") and row["distance_over_ldp"] is not None:
            graph = moved.setdefault(row["setting"].rpartition(", ")[2], {})
            graph[row["mechanism"]] = f"{row['distance_over_ldp']:.3f}"
    names = list(dict.fromkeys(name for graph in moved.values() for name in graph if name != LDP))
    lines = [[p, *(graph.get(name, "") for name in names)] for p, graph in moved.items()]
    return "\n\n".join([told, as_table(["graph", *names], lines)])


def _ends(row: Record, name: str) -> str:
    """Return "0.12 (0.11 to 0.13)"."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.4g}" + ("" if low is None else f" ({low:.4g} to {high:.4g})")


SAME = 1e-6  # of a loss; by less do two designs of the same optimum differ


def _order(part: str, found: Rows) -> str:
    """Tell on how many graphs and budgets the one is better, and where seeds cannot tell."""
    pairs = [
        (row["below_decor_low"], row["below_decor_high"])
        for row in found
        if row["mechanism"] == WHISPER
        and row["setting"].startswith(f"{part}, p")
        and row["below_decor_low"] is not None
    ]
    better, worse = sum(low > SAME for low, _ in pairs), sum(high < -SAME for _, high in pairs)
    same = sum(low >= -SAME and high <= SAME for low, high in pairs)
    told = (
        f"Of {len(pairs)} pairs of graph and budget, Whisper's loss is below DECOR's in {better} "
        f"and above it in {worse} by more than the interval of the difference over seeds, which "
        "share data and draws"
    )
    alike = f"; in {same} both are the same noise" if same else ""
    crossing = len(pairs) - better - worse - same
    return f"{told}{alike}" + (f"; in {crossing} the run is {TOO_SHORT}." if crossing else ".")


def of_incomes(part: str, found: Rows, settings: WhisperSettings) -> str:
    members = [row for row in found if row["setting"].startswith(f"{part}, ")]
    losses = {_lane(row): row for row in members}
    told = f"**{part}.** {_order(part, found)}"
    first, most = settings.incomes.epsilons[0], settings.incomes.epsilons[-1]
    graphs = sorted({_connectivity(row) for row in members})
    for p in dict.fromkeys((graphs[0], graphs[-1])):
        name = f"{part}, p = {p:g}"
        shown = [
            f"{mechanism} {_percent(losses.get((name, mechanism, first)))} and "
            f"{_percent(losses.get((name, mechanism, most)))}"
            for mechanism in (LDP, *PUBLISHED, *SERVERS[1:])
        ]
        told += (
            f" At p = {p:g}, accuracy at epsilon {first:g} and {most:g}: {'; '.join(shown)}; "
            f"without noise {_percent(losses.get((name, NONE, math.inf)))}."
        )
    return told


def _percent(row: Record | None) -> str:
    if row is None or row["accuracy"] is None:
        return "none"
    low, high = row["accuracy_low"], row["accuracy_high"]
    ends = "" if low is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * row['accuracy']:.1f} %{ends}"


def table_of(records: Rows) -> str:
    """Published against ours: what is saved in loss, beside what is saved in variance."""
    whisper = {r["setting"]: r["saved"] for r in records if r["mechanism"] == "whisper"}
    data = {name: value for name, value in whisper.items() if name.startswith(BY_NODE)}
    measured = {name: value for name, value in data.items() if value is not None}
    told = (
        "What each saves of the loss that independent noise costs, over all budgets, with its 95 % "
        "interval over seeds, and in brackets of the variance after one step, tr(W R Wᵀ), which is "
        f"certified. A dash: the interval of that cost over seeds reaches 0, {TOO_SHORT}."
    )
    if len(measured) > 1:
        best = max(measured, key=lambda name: measured[name])
        by_p = sorted(measured, key=lambda name: float(name.rpartition("= ")[2]))
        ends = ", ".join(f"{measured[name]:.0%} in {name}" for name in (by_p[0], by_p[-1]))
        told += (
            " The paper says that weakly connected networks gain most. Of the sparsest and the "
            f"densest graph here with data, Whisper saves {ends}; it saves most in {best}."
        )
    names = list(dict.fromkeys(r["mechanism"] for r in records))
    lines = []
    for (setting,), members in groups(records, "setting"):
        cells = {
            r["mechanism"]: f"{_share(r)} ({round(100 * r['saved_variance'])} %)" for r in members
        }
        lines.append([setting, *(cells.get(name, "") for name in names)])
    return "\n\n".join([told, as_table(["setting", *names], lines)])


def _share(row: Record) -> str:
    """Return "21 % [18 to 24]"."""
    if row["saved"] is None:
        return "-"
    low, high = row["saved_low"], row["saved_high"]
    ends = "" if low is None else f" [{round(100 * low)} to {round(100 * high)}]"
    return f"{round(100 * row['saved'])} %{ends}"


COLUMNS = {"part": str, **lanes.COLUMNS}

EXPERIMENT = Experiment(
    title="Whisper D-SGD (Rodio, Chen and Larsson): quadratic objectives, and logistic regression",
    settings=WhisperSettings,
    columns=COLUMNS,
    units=units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
    version=3,
)
