"""Rodio, Chen and Larsson: Whisper D-SGD (CorN-DSGD), the experiments of section VI.

Quadratic objectives and logistic regression on a9a, on random graphs of 20 nodes, under published
noise and under what is designed here for the whole run. Budgets are exact against a reader of all
messages (of the average, for trusted servers), for one example in every step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from noisedesign.files.schema import Table
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Record, Rows, Settings, Unit
from noisedesign_lab.papers.reproduce.pictures import (
    Pictures,
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import (
    Interval,
    costs_of_noise,
    groups,
    interval,
    over_seeds,
)
from noisedesign_lab.papers.reproduce.whisper import lanes
from noisedesign_lab.training.losses.quadratics import whisper_quadratics

BY_NODE = lanes.name_of(lanes.NODE)
NONE, LDP, PUBLISHED, SERVERS = "none", "ldp", ("decor", "whisper"), ("cdp-n", "cdp-n2")


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
    """Losses after the last step."""
    return over_seeds(
        _last(rows, settings), "step_size", "stddev", "variance_over_ldp", "distance_over_ldp"
    )


def _last(rows: Rows, settings: WhisperSettings) -> list[Record]:
    return [row for row in rows if row["step"] == getattr(settings, row["part"]).steps]


def saved(rows: Rows) -> list[Record]:
    """Return what each saves of the cost of independent noise; None where that is none."""
    records = []
    for (setting,), members in groups(rows, "setting"):
        mechanisms = dict.fromkeys(row["mechanism"] for row in members if row["mechanism"] != NONE)
        costs = {name: costs_of_noise(members, name) for name in mechanisms}
        if LDP not in costs:
            continue
        ldp = interval(costs[LDP])
        for mechanism, values in costs.items():
            own = interval(values)
            told = ldp.low is not None and ldp.low > 0 and own.low is not None
            ratio = next(r["variance_over_ldp"] for r in members if r["mechanism"] == mechanism)
            records.append(
                {"setting": setting, "mechanism": mechanism}
                | own.columns("cost")
                | {"saved": 1 - own.mean / ldp.mean if told else None}
                | {"saved_variance": 1 - ratio}
            )
    return records


def tables(rows: Rows, settings: WhisperSettings) -> Mapping[str, Rows]:
    """Return the savings of the cost of independent noise."""
    return {"saved.csv": saved(_last(rows, settings))}


def pictures(rows: Rows, found: Rows, settings: WhisperSettings) -> Pictures:
    """Loss, and accuracy, against epsilon; loss against steps on the sparsest graph."""
    parts = lanes.parts(settings.incomes.protected)
    valleys = [row for row in found if row["setting"].startswith("quadratics")]
    drawn = {
        "quadratics": loss_against_epsilon(valleys, ylabel="excess of the objective", log=True)
    }
    middle = settings.network.epsilons[len(settings.network.epsilons) // 3]
    for stem, name in parts.items():
        members = [row for row in found if row["setting"].startswith(f"{name}, ")]
        sparsest = f"{name}, p = {min(settings.network.connectivities):g}"
        of_sparsest = [row for row in rows if row["setting"] == sparsest]
        curves = beside_noiseless(of_sparsest, middle)
        drawn[f"{stem}-loss"] = loss_against_epsilon(members)
        drawn[f"{stem}-accuracy"] = loss_against_epsilon(
            members, ylabel="accuracy on test records", column="accuracy"
        )
        drawn[f"{stem}-steps"] = loss_against_steps(curves)
    return drawn


def paragraph(rows: Rows, found: Rows, settings: WhisperSettings) -> str:
    """Tell the results."""
    last = _last(rows, settings)
    return "\n\n".join(
        [
            _adversary(settings),
            _of_quadratics(found, settings),
            *(
                _of_incomes(name, found, last, settings)
                for name in lanes.parts(settings.incomes.protected).values()
            ),
            _table(saved(last)),
        ]
    )


def _adversary(settings: WhisperSettings) -> str:
    network, data = settings.network, settings.incomes
    return (
        f"Erdős-Rényi graphs of {network.nodes} nodes, Metropolis-Hastings weights, delta "
        f"{network.delta:g}, adjacency {network.adjacency}; quadratics for "
        f"{settings.quadratics.steps} steps, a9a for {data.steps} (published: 5000), "
        f"{data.seeds} seeds. Budgets are exact and against a reader of all messages. *a9a* is as "
        "the published code: they are for one example, whose gradient is clipped and which may be "
        f"in every batch, and noise is added to the batch's sum, divided by the node's batch size. "
        "*a9a by node* is as the paper: for all data of a node, whose mean gradient over a batch "
        "is clipped. Theorem 2, as we read it, has a factor that neither problem (10) nor the "
        "published code has (see the errata). Step sizes are tuned without an account of that. "
        f"Where W is singular, entries of diag(R) are at most {network.cap:g}: without a cap there "
        "is no optimum. Servers (cdp) protect the released average alone."
    )


def _of_quadratics(found: Rows, settings: WhisperSettings) -> str:
    table = settings.quadratics
    minimizer = whisper_quadratics(settings.network.nodes, degrees=table.degrees).minimizer
    told = [f"The minimum is {math.hypot(*minimizer):.2f} from the start."]
    for clip in table.clips:
        name = f"quadratics, clip {clip:g}, p = {min(settings.network.connectivities):g}"
        losses = {
            (row["mechanism"], row["epsilon"]): row["test_loss"]
            for row in found
            if row["setting"] == name
        }
        furthest = clip * float(lanes.sizes(table.model_dump()).sum())
        first = settings.network.epsilons[0]
        shown = ", ".join(
            f"{mechanism} {losses[mechanism, first]:.4g}"
            for mechanism in (LDP, *PUBLISHED)
            if (mechanism, first) in losses
        )
        told.append(
            f"With a clip of {clip:g} no model can move by more than {furthest:.3g} in the run; "
            f"its excess is {losses.get((NONE, math.inf), math.nan):.4g} without noise, and at "
            f"epsilon {first:g} on the sparsest graph {shown}."
        )
    distances = {
        (row["mechanism"], row["setting"]): f"{row['distance_over_ldp']:.3f}"
        for row in found
        if row["setting"].startswith(f"quadratics, clip {table.clip:g}, ")
        and row["distance_over_ldp"] is not None
    }
    by_name = "; ".join(
        f"{name} {', '.join(value for (other, _), value in distances.items() if other == name)}"
        for name in dict.fromkeys(name for name, _ in distances)
        if name != LDP
    )
    connectivities = ", ".join(f"{p:g}" for p in settings.network.connectivities)
    told.append(
        "Without clipping noise alone makes the distance of models to those of the run without "
        "noise. Its expected square over that of independent noise at equal privacy, at p = "
        f"{connectivities}: {by_name}."
    )
    return "**Quadratics.** " + " ".join(told)


def _of_incomes(part: str, found: Rows, last: Rows, settings: WhisperSettings) -> str:
    members = [row for row in found if row["setting"].startswith(f"{part}, ")]
    losses = {(r["setting"], r["mechanism"], r["epsilon"]): r for r in members}
    gains = [gain for gain in _gains(part, last) if gain.low is not None]
    better = sum(gain.low > 0 for gain in gains if gain.low is not None)
    worse = sum(gain.high < 0 for gain in gains if gain.high is not None)
    told = (
        f"**{part}.** Of {len(gains)} pairs of graph and budget, Whisper's test loss is below "
        f"DECOR's in {better} and above it in {worse} by more than the interval of the difference "
        "over seeds, which share data and draws."
    )
    first, most = settings.network.epsilons[0], settings.network.epsilons[-1]
    for p in (min(settings.network.connectivities), max(settings.network.connectivities)):
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


def _gains(part: str, last: Rows) -> Iterator[Interval]:
    """DECOR's test loss less Whisper's of the same seed, for every graph and budget."""
    decor, whisper = (
        {
            (row["setting"], row["epsilon"], row["seed"]): row["test_loss"]
            for row in last
            if row["mechanism"] == name and row["setting"].startswith(f"{part}, ")
        }
        for name in PUBLISHED
    )
    pairs = {key: (decor[key], whisper[key]) for key in decor if key in whisper}
    for lane in dict.fromkeys(key[:2] for key in pairs):
        of_lane = [pair for key, pair in pairs.items() if key[:2] == lane]
        yield interval([math.nan if None in pair else pair[0] - pair[1] for pair in of_lane])


def _percent(row: Record | None) -> str:
    return "none" if row is None or row["accuracy"] is None else f"{100 * row['accuracy']:.1f} %"


def _table(records: Rows) -> str:
    """Published against ours: what is saved in loss, beside what is saved in variance."""
    whisper = {r["setting"]: r["saved"] for r in records if r["mechanism"] == "whisper"}
    data = {name: value for name, value in whisper.items() if name.startswith(BY_NODE)}
    measured = {name: value for name, value in data.items() if value is not None}
    told = (
        "What each saves of the loss that independent noise costs, over all budgets, and in "
        "brackets of the variance after one step, tr(W R Wᵀ), which is certified. A dash: the "
        "interval of that cost over seeds reaches 0."
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
    lines = [told, "", f"| setting | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for (setting,), members in groups(records, "setting"):
        cells = {
            r["mechanism"]: f"{'-' if r['saved'] is None else format(r['saved'], '.0%')} "
            f"({r['saved_variance']:.0%})"
            for r in members
        }
        lines.append(f"| {setting} | {' | '.join(cells.get(name, '') for name in names)} |")
    return "\n".join(lines)


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
