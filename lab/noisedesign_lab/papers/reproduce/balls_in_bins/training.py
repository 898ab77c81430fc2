"""Training on random batches under noise of both accounts: logistic regression on a9a."""

from __future__ import annotations

from collections.abc import Sequence

from noisedesign.system.participation import BallsInBins
from noisedesign_lab.papers.reproduce.balls_in_bins.noise import called
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.ours import ordered, training
from noisedesign_lab.papers.reproduce.statistics import groups
from noisedesign_lab.tasks.accounts import ACCOUNTS, UNCOVERED
from noisedesign_lab.tasks.training_task import columns

COLUMNS = training.COLUMNS | columns("account:str which:str confidence")

units = training.units


def run(unit: Unit) -> list[Record]:
    """Return rows of all mechanisms, accounts and budgets that some lemma covers."""
    scheme = BallsInBins(epochs=unit["epochs"], separation=unit["separation"])
    how = {"accounts": ACCOUNTS, "adjacency": unit["adjacency"]}
    return [
        {name: row[name] for name in COLUMNS}
        for row in training.trained(unit, scheme, **how)
        if not str(row["which"]).startswith(UNCOVERED)
    ]


def named(rows: Sequence[Record]) -> list[Record]:
    """Rows whose mechanism says its account, too."""
    return [row | {"mechanism": called(row)} for row in rows]


def paragraph(found: Sequence[Record]) -> str:
    """Tell what random batches take off the cost of noise, and whether errors order losses."""
    lines = []
    for (setting, epsilon), members in groups(found, "setting", "epsilon"):
        parts = [
            f"{row['mechanism']} {row['cost']:.4f} ({row['error_over_ldp']:.3f})" for row in members
        ]
        lines.append(f"{setting}, epsilon {epsilon:g}: {'; '.join(parts)}. {ordered(members)}")
    return "\n\n".join(lines)
