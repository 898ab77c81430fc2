"""Batches drawn at random: how much noise they save at equal privacy, and how much loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from noisedesign.files.schema import Table
from noisedesign.privacy.target import Adjacency
from noisedesign_lab.papers.reproduce import keys
from noisedesign_lab.papers.reproduce.balls_in_bins import gains, noise, training
from noisedesign_lab.papers.reproduce.experiment import Experiment, Parts, Record, Settings, Unit
from noisedesign_lab.papers.reproduce.ours import ObserversTable, TrainingTable, at_the_end, costs
from noisedesign_lab.papers.reproduce.pictures import (
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Adjacencies = Annotated[list[Adjacency], Field(min_length=1)]
Shares = Annotated[list[keys.Share], Field(min_length=1)]


class NoiseTable(ObserversTable):
    """Part one; ``cap`` is on diag(R) at unit budgets."""

    epsilons: keys.Positives
    deltas: Shares
    adjacencies: Adjacencies


class GainsTable(Table):
    """Part two."""

    adjacencies: Adjacencies
    bins: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]
    epsilons: keys.Positives
    deltas: Shares


class LossTable(TrainingTable):
    """Part three; ``records`` are those of all nodes together."""

    records: keys.Count
    adjacency: Adjacency


class BinsSettings(Settings):
    """Keys of ``problems/papers/balls-in-bins.toml``."""

    noise: NoiseTable
    gains: GainsTable
    training: LossTable


PARTS = Parts(noise=noise, gains=gains, training=training)


def run(unit: Unit) -> list[Record]:
    """Return the rows of one unit."""
    return PARTS.run(unit)


def _losses(rows: Sequence[Record]) -> list[Record]:
    return training.named(PARTS.rows("training", rows))


def _last(rows: Sequence[Record], settings: BinsSettings) -> list[Record]:
    return at_the_end(_losses(rows), settings.training)


def summary(rows: Sequence[Record], settings: BinsSettings) -> list[Record]:
    """Losses after the last step of training."""
    return over_seeds(_last(rows, settings), "train_loss", "stddev", "error")


def tables(rows: Sequence[Record], settings: BinsSettings) -> Mapping[str, Sequence[Record]]:
    """Noise at equal privacy; what batches save of independent noise; what noise costs."""
    return {
        "noise.csv": noise.compared(PARTS.rows("noise", rows)),
        "gains.csv": PARTS.rows("gains", rows),
        "costs.csv": costs(_last(rows, settings)),
    }


def pictures(
    rows: Sequence[Record], found: Sequence[Record], settings: BinsSettings
) -> Mapping[str, Figure]:
    """Draw noise and what is saved of it against epsilon, and loss against epsilon and steps."""
    epsilons = settings.training.epsilons
    curves = beside_noiseless(_losses(rows), epsilons[len(epsilons) // 2])
    table, first = noise.compared(PARTS.rows("noise", rows)), settings.noise.deltas[0]
    return {
        "noise": loss_against_epsilon(
            noise.drawn([row for row in table if row["delta"] == first]),
            column="over_ldp",
            ylabel="squared error over that of ldp",
            log=True,
        ),
        "gains": loss_against_epsilon(
            gains.drawn(PARTS.rows("gains", rows)),
            column="variance",
            ylabel="variance, random over fixed",
        ),
        "loss": loss_against_epsilon(found),
        "steps": loss_against_steps(curves),
    }


def paragraph(rows: Sequence[Record], found: Sequence[Record], settings: BinsSettings) -> str:
    """Tell the results of all parts."""
    parts = [
        noise.paragraph(noise.compared(PARTS.rows("noise", rows)), settings.noise.deltas[0]),
        gains.paragraph(PARTS.rows("gains", rows)),
        _of_training(costs(_last(rows, settings)), settings),
    ]
    return "\n\n".join(parts)


def _of_training(found: Sequence[Record], settings: BinsSettings) -> str:
    table = settings.training
    head = (
        f"**Training.** Logistic regression on {table.records} records of a9a, {table.epochs} "
        f"epochs, every record in one of "
        f"{table.separation} bins, clip {table.clip:g}, step size {table.step_size:g}, "
        f"{table.seeds} seeds, delta {table.delta:g}, {table.adjacency} adjacency. What noise "
        "costs is the test loss less that of the same seed without noise; in brackets, the squared "
        "error of all iterates over that of independent noise for batches in any order."
    )
    return f"{head}\n\n{training.paragraph(found)}"


EXPERIMENT = Experiment(
    title="Batches drawn at random: noise at equal privacy, and training",
    settings=BinsSettings,
    columns=PARTS.columns,
    units=PARTS.units,
    run=run,
    summary=summary,
    tables=tables,
    pictures=pictures,
    paragraph=paragraph,
)
