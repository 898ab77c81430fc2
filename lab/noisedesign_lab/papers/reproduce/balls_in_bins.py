"""Batches drawn at random: how much noise they save at equal privacy, and how much loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from noisedesign.files.schema import Table
from noisedesign.privacy.accounting import noise_stddev_for
from noisedesign.privacy.amplification import Mixture, amplified_noise
from noisedesign.privacy.target import Adjacency, PrivacyTarget
from noisedesign.system.participation import BallsInBins
from noisedesign_lab.papers.reproduce import keys, ours
from noisedesign_lab.papers.reproduce.experiment import (
    Experiment,
    Part,
    Parts,
    Record,
    Rows,
    Settings,
    Unit,
)
from noisedesign_lab.papers.reproduce.pictures import (
    Pictures,
    beside_noiseless,
    loss_against_epsilon,
    loss_against_steps,
)
from noisedesign_lab.papers.reproduce.statistics import groups, over_seeds
from noisedesign_lab.tasks.accounts import ACCOUNTS, FIXED, RANDOM, UNCOVERED, meeting
from noisedesign_lab.tasks.mechanisms import RANDOM as DESIGNED, mechanism
from noisedesign_lab.tasks.training_task import columns

NOISE_COLUMNS = columns(
    "setting:str adjacency:str mechanism:str account:str which:str confidence epsilon delta "
    "noise_multiplier squared_error"
)
"""Columns of a row; ``noise_multiplier`` is a standard deviation over the clip, before C and R, and
``squared_error`` is summed over steps and nodes, per coordinate and squared clip."""


def noise_units(table: Any) -> Iterator[Unit]:
    """A graph, an adjacency and a mechanism each."""
    shared = table.model_dump(exclude={"graphs", "adjacencies", "mechanisms"})
    for graph, adjacency in product(table.graphs, table.adjacencies):
        for name in table.mechanisms:
            yield {"graph": graph, "adjacency": adjacency, "mechanism": name} | shared


def noise_rows(unit: Unit) -> list[Record]:
    """Return a row for every account and budget that some lemma covers."""
    scheme = BallsInBins(epochs=unit["epochs"], separation=unit["separation"])
    network = ours.network_of(unit, scheme)
    w, name, deltas = network.mixing, unit["mechanism"], unit["deltas"]
    made = None if name in DESIGNED else mechanism(name, network)
    rows = []
    for epsilon in unit["epsilons"]:
        targets = [
            PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=unit["adjacency"])
            for delta in deltas
        ]
        noise = made or mechanism(name, replace(network, target=targets[0]))
        error = ours.squared_error(noise, w, scheme.horizon)
        assert error is not None
        for account, target in product(ACCOUNTS, targets):
            scale = meeting(noise, target, account=account, participation=scheme)
            if account == RANDOM and not scale.random:
                continue
            rows.append(
                {
                    "setting": ours.label(unit["graph"]),
                    "adjacency": target.adjacency,
                    "mechanism": name,
                    "account": account,
                    "which": scale.which,
                    "confidence": scale.confidence,
                    "epsilon": epsilon,
                    "delta": target.delta,
                    "noise_multiplier": scale.noise_multiplier,
                    "squared_error": error * scale.noise_multiplier**2,
                }
            )
    return rows


def compared(rows: Rows) -> list[Record]:
    """Add ``over_ldp``, the squared error over that of ldp for batches in any order."""
    found = []
    for _, members in groups(rows, "setting", "adjacency", "epsilon", "delta"):
        (base,) = (
            row["squared_error"]
            for row in members
            if (row["mechanism"], row["account"]) == (ours.LDP, FIXED)
        )
        found += [row | {"over_ldp": row["squared_error"] / base} for row in members]
    return found


def called(row: Record) -> str:
    """Mechanism and account in one word or two."""
    name = str(row["mechanism"])
    return f"{name}, random" if row["account"] == RANDOM else name


def noise_drawn(table: Rows) -> list[Record]:
    """Rows as pictures against epsilon have them."""
    return [
        row | {"setting": f"{row['setting']}, {row['adjacency']}", "mechanism": called(row)}
        for row in table
    ]


def _of_noise(table: Rows, delta: float) -> str:
    """The least of both accounts at every budget of one delta, graph by graph."""
    alike = groups(table, "setting", "adjacency", "mechanism", "account", "epsilon")
    ratios = [[row["over_ldp"] for row in members] for _, members in alike]
    lines = [
        "**Noise at equal privacy.** Squared error of all models over that of independent noise "
        f"for batches in any order, at the same epsilon and adjacency and at delta {delta:g}: the "
        "least of each account, and that of random batches over that of fixed ones. Other deltas "
        f"change no number by more than {max(max(r) / min(r) for r in ratios) - 1:.0%}."
    ]
    chosen = [row for row in table if row["delta"] == delta]
    for (setting, adjacency), members in groups(chosen, "setting", "adjacency"):
        parts = []
        for (epsilon,), at in groups(members, "epsilon"):
            fixed, random = (_least(at, account) for account in ACCOUNTS)
            ratio = random["over_ldp"] / fixed["over_ldp"]
            told = f"{_told(fixed)} and {_told(random)}, {ratio:.2f}"
            parts.append(f"epsilon {epsilon:g}: {told}")
        lines.append(f"{setting}, {adjacency}. {'; '.join(parts)}.")
    return "\n\n".join(lines)


def _least(rows: Rows, account: str) -> Record:
    return min((row for row in rows if row["account"] == account), key=lambda row: row["over_ldp"])


def _told(row: Record) -> str:
    return f"{row['mechanism']} ({row['over_ldp']:.3f})"


GAINS_COLUMNS = columns("adjacency:str bins:int epsilon delta which:str confidence variance")
"""``variance`` is what random bins ask for over what batches in any order do, both squared."""


def gains_units(table: Any) -> Iterator[Unit]:
    """A number of bins and an adjacency each."""
    for adjacency, bins in product(table.adjacencies, table.bins):
        budgets = {"epsilons": table.epsilons, "deltas": table.deltas}
        yield {"adjacency": adjacency, "bins": bins} | budgets


def gains_rows(unit: Unit) -> list[Record]:
    """A row a budget."""
    bins, adjacency = unit["bins"], unit["adjacency"]
    rows = []
    for delta, epsilon in product(unit["deltas"], unit["epsilons"]):
        budget = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency}
        fixed = noise_stddev_for(sensitivity_squared=1.0, clip=1.0, **budget)
        random, found = amplified_noise(Mixture(gram=np.eye(bins)), **budget)
        told = {"which": found.which, "confidence": found.confidence}
        rows.append({"bins": bins} | budget | told | {"variance": (random / fixed) ** 2})
    return rows


def gains_drawn(rows: Rows) -> list[Record]:
    """Rows as pictures against epsilon have them: a panel an adjacency and delta, a line a b."""
    return [
        row
        | {"setting": f"{row['adjacency']}, delta {row['delta']:g}"}
        | {"mechanism": f"b = {row['bins']}"}
        for row in rows
    ]


def _of_gains(rows: Rows) -> str:
    """Tell the largest and the smallest gain."""
    ends = [min(rows, key=lambda row: row["variance"]), max(rows, key=lambda row: row["variance"])]
    least, most = (
        f"{row['variance']:.3f} at b = {row['bins']}, epsilon {row['epsilon']:g}, delta "
        f"{row['delta']:g}, {row['adjacency']}"
        for row in ends
    )
    return (
        "**Independent noise.** Variance that random batches ask for over that of batches in any "
        f"order: from {least}, to {most}. Few batches and large budgets gain little; full batches "
        "(b = 1) nothing, and are refused."
    )


TRAINING_COLUMNS = ours.TRAINING_COLUMNS | columns("account:str which:str confidence")


def training_rows(unit: Unit) -> list[Record]:
    """Return rows of all mechanisms, accounts and budgets that some lemma covers."""
    scheme = BallsInBins(epochs=unit["epochs"], separation=unit["separation"])
    how = {"accounts": ACCOUNTS, "adjacency": unit["adjacency"]}
    return [
        {name: row[name] for name in TRAINING_COLUMNS}
        for row in ours.trained(unit, scheme, **how)
        if not str(row["which"]).startswith(UNCOVERED)
    ]


Adjacencies = Annotated[list[Adjacency], Field(min_length=1)]
Shares = Annotated[list[keys.Share], Field(min_length=1)]


class NoiseTable(ours.ObserversTable):
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


class LossTable(ours.TrainingTable):
    """Part three; ``records`` are those of all nodes together."""

    records: keys.Count
    adjacency: Adjacency


class BinsSettings(Settings):
    """Keys of ``problems/papers/balls-in-bins.toml``."""

    noise: NoiseTable
    gains: GainsTable
    training: LossTable


PARTS = Parts(
    noise=Part(NOISE_COLUMNS, noise_units, noise_rows),
    gains=Part(GAINS_COLUMNS, gains_units, gains_rows),
    training=Part(TRAINING_COLUMNS, ours.training_units, training_rows),
)


def run(unit: Unit) -> list[Record]:
    """Return the rows of one unit."""
    return PARTS.run(unit)


def _losses(rows: Rows) -> list[Record]:
    """Rows of training, whose mechanism says its account, too."""
    return [row | {"mechanism": called(row)} for row in PARTS.rows("training", rows)]


def _last(rows: Rows, settings: BinsSettings) -> list[Record]:
    return ours.at_the_end(_losses(rows), settings.training)


def summary(rows: Rows, settings: BinsSettings) -> list[Record]:
    """Losses after the last step of training."""
    return over_seeds(_last(rows, settings), "train_loss", "stddev", "error")


def tables(rows: Rows, settings: BinsSettings) -> Mapping[str, Rows]:
    """Noise at equal privacy; what batches save of independent noise; what noise costs."""
    return {
        "noise.csv": compared(PARTS.rows("noise", rows)),
        "gains.csv": PARTS.rows("gains", rows),
        "costs.csv": ours.costs(_last(rows, settings)),
    }


def pictures(rows: Rows, found: Rows, settings: BinsSettings) -> Pictures:
    """Draw noise and what is saved of it against epsilon, and loss against epsilon and steps."""
    epsilons = settings.training.epsilons
    curves = beside_noiseless(_losses(rows), epsilons[len(epsilons) // 2])
    table, first = compared(PARTS.rows("noise", rows)), settings.noise.deltas[0]
    return {
        "noise": loss_against_epsilon(
            noise_drawn([row for row in table if row["delta"] == first]),
            column="over_ldp",
            ylabel="squared error over that of ldp",
            log=True,
        ),
        "gains": loss_against_epsilon(
            gains_drawn(PARTS.rows("gains", rows)),
            column="variance",
            ylabel="variance, random over fixed",
        ),
        "loss": loss_against_epsilon(found),
        "steps": loss_against_steps(curves),
    }


def paragraph(rows: Rows, found: Rows, settings: BinsSettings) -> str:
    """Tell the results of all parts."""
    parts = [
        _of_noise(compared(PARTS.rows("noise", rows)), settings.noise.deltas[0]),
        _of_gains(PARTS.rows("gains", rows)),
        _of_training(ours.costs(_last(rows, settings)), settings),
    ]
    return "\n\n".join(parts)


def _of_training(found: Rows, settings: BinsSettings) -> str:
    """Tell what random batches take off the cost of noise, and whether errors order losses."""
    table = settings.training
    lines = [
        f"**Training.** Logistic regression on {table.records} records of a9a, {table.epochs} "
        f"epochs, every record in one of "
        f"{table.separation} bins, clip {table.clip:g}, step size {table.step_size:g}, "
        f"{table.seeds} seeds, delta {table.delta:g}, {table.adjacency} adjacency. What noise "
        "costs is the test loss less that of the same seed without noise; in brackets, the squared "
        "error of all iterates over that of independent noise for batches in any order."
    ]
    for (setting, epsilon), members in groups(found, "setting", "epsilon"):
        parts = [
            f"{row['mechanism']} {row['cost']:.4f} ({row['error_over_ldp']:.3f})" for row in members
        ]
        lines.append(f"{setting}, epsilon {epsilon:g}: {'; '.join(parts)}. {ours.ordered(members)}")
    return "\n\n".join(lines)


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
