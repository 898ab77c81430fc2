"""Our own: noise at equal privacy before every observer, and training with our designs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from noisedesign.files.schema import Table
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.experiment import Experiment, Parts, Record, Settings, Unit
from noisedesign_lab.papers.reproduce.ours import observers, training
from noisedesign_lab.papers.reproduce.pictures import (
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import (
    NOISELESS,
    costs_of_noise,
    groups,
    interval,
    over_seeds,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LDP = "ldp"


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


PARTS = Parts(observers=observers, training=training)


def run(unit: Unit) -> list[Record]:
    """Return the rows of one unit."""
    return PARTS.run(unit)


def summary(rows: Sequence[Record], settings: OurSettings) -> list[Record]:
    """Losses after the last step of training."""
    return over_seeds(_last(rows, settings), "train_loss", "stddev", "error")


def _last(rows: Sequence[Record], settings: OurSettings) -> list[Record]:
    return at_the_end(PARTS.rows("training", rows), settings.training)


def at_the_end(rows: Sequence[Record], table: TrainingTable) -> list[Record]:
    """Rows of the last step of training."""
    return [row for row in rows if row["step"] == table.epochs * table.separation]


def tables(rows: Sequence[Record], settings: OurSettings) -> Mapping[str, Sequence[Record]]:
    """Noise at equal privacy, and what noise costs in training."""
    return {
        "observers.csv": observers.compared(PARTS.rows("observers", rows)),
        "costs.csv": costs(_last(rows, settings)),
    }


def costs(rows: Sequence[Record]) -> list[Record]:
    """Return what noise costs in test loss after the last step, by setting, mechanism and budget,
    and ``error_over_ldp``, the squared error of all iterates over that of independent noise."""
    found = []
    for (setting, epsilon), members in groups(rows, "setting", "epsilon"):
        free = [row for row in rows if row["setting"] == setting and row["mechanism"] == NOISELESS]
        errors = {row["mechanism"]: row["error"] for row in members}
        for mechanism, error in errors.items():
            if mechanism != NOISELESS:
                cost = interval(costs_of_noise([*free, *members], mechanism)).columns("cost")
                known = error is not None and errors.get(LDP) is not None
                ratio = error / errors[LDP] if known else None
                lane = {"setting": setting, "mechanism": mechanism, "epsilon": epsilon}
                found.append(lane | cost | {"error_over_ldp": ratio})
    return found


def pictures(
    rows: Sequence[Record], found: Sequence[Record], settings: OurSettings
) -> Mapping[str, Figure]:
    """Noise before observers; loss against epsilon, and against steps at the middle budget."""
    epsilons = settings.training.epsilons
    curves = beside_noiseless(PARTS.rows("training", rows), epsilons[len(epsilons) // 2])
    return {
        "observers": observers.draw(observers.compared(PARTS.rows("observers", rows))),
        "loss": loss_against_epsilon(found),
        "steps": loss_against_steps(curves),
    }


def paragraph(rows: Sequence[Record], found: Sequence[Record], settings: OurSettings) -> str:
    """Tell the results of both parts."""
    told = observers.paragraph(observers.compared(PARTS.rows("observers", rows)))
    return f"{told}\n\n{_of_training(costs(_last(rows, settings)), settings)}"


def _of_training(found: Sequence[Record], settings: OurSettings) -> str:
    table = settings.training
    lines = [
        f"**Training.** Logistic regression on a9a, {table.epochs} passes of {table.separation} "
        f"batches, clip {table.clip:g}, step size {table.step_size:g}, {table.seeds} seeds, delta "
        f"{table.delta:g}, replaced records, budgets before a reader of all messages (cdp: of the "
        "released average). What noise costs is the test loss less that of the same seed without "
        "noise; in brackets, the squared error of all iterates over that of independent noise at "
        "the same budget, which is what designs are certified for."
    ]
    first = table.epsilons[0]
    for (setting,), members in groups(found, "setting"):
        at = [row for row in members if row["epsilon"] == first]
        parts = [f"{row['mechanism']} {_cost(row)}" for row in at]
        lines.append(f"{setting}, epsilon {first:g}: {'; '.join(parts)}. {ordered(at)}")
    return "\n\n".join(lines)


def _cost(row: Record) -> str:
    cost = f"{row['cost']:.4f}" if math.isfinite(row["cost"]) else "diverged"
    return cost if row["error_over_ldp"] is None else f"{cost} ({row['error_over_ldp']:.2f})"


def ordered(at: Sequence[Record]) -> str:
    """Whether less error means less loss."""
    known = [row for row in at if row["error_over_ldp"] is not None]
    ranked = sorted(known, key=lambda row: row["error_over_ldp"])
    pairs = [(a, b) for k, a in enumerate(ranked) for b in ranked[k + 1 :]]
    if not pairs:
        return ""
    kept = sum(a["cost"] <= b["cost"] for a, b in pairs)
    return f"Of {len(pairs)} pairs, the one of less error costs less in {kept}."


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
