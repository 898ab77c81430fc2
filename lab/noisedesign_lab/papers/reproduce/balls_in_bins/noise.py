"""Noise at equal privacy, by graph, mechanism, account and budget: the squared error of all models
after every step over that of independent noise for batches in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import BallsInBins
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.ours.observers import label, network_of
from noisedesign_lab.papers.reproduce.ours.training import squared_error
from noisedesign_lab.papers.reproduce.statistics import groups
from noisedesign_lab.tasks.accounts import ACCOUNTS, FIXED, RANDOM, meeting
from noisedesign_lab.tasks.mechanisms import RANDOM as DESIGNED, mechanism
from noisedesign_lab.tasks.training_task import columns

COLUMNS = columns(
    "setting:str adjacency:str mechanism:str account:str which:str confidence epsilon delta "
    "noise_multiplier squared_error"
)
"""Columns of a row; ``noise_multiplier`` is a standard deviation over the clip, before C and R, and
``squared_error`` is summed over steps and nodes, per coordinate and squared clip."""

INDEPENDENT = "ldp"


def units(table: Any) -> Iterator[Unit]:
    """A graph, an adjacency and a mechanism each."""
    shared = table.model_dump(exclude={"graphs", "adjacencies", "mechanisms"})
    for graph, adjacency in product(table.graphs, table.adjacencies):
        for name in table.mechanisms:
            yield {"graph": graph, "adjacency": adjacency, "mechanism": name} | shared


def run(unit: Unit) -> list[Record]:
    """Return a row for every account and budget that some lemma covers."""
    scheme = BallsInBins(epochs=unit["epochs"], separation=unit["separation"])
    network = network_of(unit, scheme)
    w, name, deltas = network.mixing, unit["mechanism"], unit["deltas"]
    made = None if name in DESIGNED else mechanism(name, network)
    rows = []
    for epsilon in unit["epsilons"]:
        targets = [
            PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=unit["adjacency"])
            for delta in deltas
        ]
        noise = made or mechanism(name, replace(network, target=targets[0]))
        error = squared_error(noise, w, scheme.horizon)
        assert error is not None
        for account, target in product(ACCOUNTS, targets):
            scale = meeting(noise, target, account=account, participation=scheme)
            if account == RANDOM and not scale.random:
                continue
            rows.append(
                {
                    "setting": label(unit["graph"]),
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


def compared(rows: Sequence[Record]) -> list[Record]:
    """Add ``over_ldp``, the squared error over that of ldp for batches in any order."""
    found = []
    for _, members in groups(rows, "setting", "adjacency", "epsilon", "delta"):
        (base,) = (
            row["squared_error"]
            for row in members
            if (row["mechanism"], row["account"]) == (INDEPENDENT, FIXED)
        )
        found += [row | {"over_ldp": row["squared_error"] / base} for row in members]
    return found


def called(row: Record) -> str:
    """Mechanism and account in one word or two."""
    name = str(row["mechanism"])
    return f"{name}, random" if row["account"] == RANDOM else name


def drawn(table: Sequence[Record]) -> list[Record]:
    """Rows as pictures against epsilon have them."""
    return [
        row | {"setting": f"{row['setting']}, {row['adjacency']}", "mechanism": called(row)}
        for row in table
    ]


def paragraph(table: Sequence[Record], delta: float) -> str:
    """The least of both accounts at every budget of one delta, graph by graph."""
    others = (
        _change(members)
        for _, members in groups(table, "setting", "adjacency", "mechanism", "account", "epsilon")
    )
    lines = [
        "**Noise at equal privacy.** Squared error of all models over that of independent noise "
        f"for batches in any order, at the same epsilon and adjacency and at delta {delta:g}: the "
        "least of each account, and that of random batches over that of fixed ones. Other deltas "
        f"change no number by more than {max(others):.0%}."
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


def _change(rows: Sequence[Record]) -> float:
    values = [row["over_ldp"] for row in rows]
    return float(max(values) / min(values) - 1)


def _least(rows: Sequence[Record], account: str) -> Record:
    return min((row for row in rows if row["account"] == account), key=lambda row: row["over_ldp"])


def _told(row: Record) -> str:
    return f"{row['mechanism']} ({row['over_ldp']:.3f})"
