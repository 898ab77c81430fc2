"""Variance that random batches save of independent noise, by the number of bins and the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from noisedesign.privacy.accounting import noise_stddev_for
from noisedesign.privacy.amplification import Mixture, amplified_noise
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.tasks.training_task import columns

COLUMNS = columns("adjacency:str bins:int epsilon delta which:str confidence variance")
"""``variance`` is what random bins ask for over what batches in any order do, both squared."""


def units(table: Any) -> Iterator[Unit]:
    """A number of bins and an adjacency each."""
    for adjacency, bins in product(table.adjacencies, table.bins):
        budgets = {"epsilons": table.epsilons, "deltas": table.deltas}
        yield {"adjacency": adjacency, "bins": bins} | budgets


def run(unit: Unit) -> list[Record]:
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


def drawn(rows: Sequence[Record]) -> list[Record]:
    """Rows as pictures against epsilon have them: a panel an adjacency and delta, a line a b."""
    return [
        row
        | {"setting": f"{row['adjacency']}, delta {row['delta']:g}"}
        | {"mechanism": f"b = {row['bins']}"}
        for row in rows
    ]


def paragraph(rows: Sequence[Record]) -> str:
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
