"""Mechanisms by the loss of the models that are kept: ``python -m benchmarks.last_models``.

Means of what noise costs over all settings of ``noisedesign reproduce loss``, as its table in the
documentation has them, by mechanism, mixing weights and step; the least of a mechanism comes first.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from noisedesign.tasks import report
from noisedesign.tasks.report import Record

COSTS = Path(__file__).parents[1] / "docs" / "experiments" / "loss-costs.csv"
TOLD = {
    "ldp": "independent noise",
    "mafalda": "optimum of every iterate (Mafalda)",
    "last-iterate": "optimum of the last iterate",
    "loss": "optimum of the loss",
    "loss-capped": "optimum of the loss, variances capped",
    "loss-mixed": "optimum of the loss and every iterate",
    "kronecker": "across nodes, of every iterate",
    "kronecker-loss": "across nodes, of the loss and every iterate",
}
LEVERS = {
    "": "constant step",
    "least noise": "constant, W of least noise",
    "falling": "falling step",
    "least noise, falling": "falling, W of least noise",
}


def main() -> None:
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with COSTS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["variant"]:
                kind, _, lever = row["mechanism"].partition(", ")
                costs[kind][LEVERS[lever]].append(float(row["cost"]))
    found = {
        kind: {name: fmean(all_of) for name, all_of in of.items()} for kind, of in costs.items()
    }
    rows: list[Record] = [
        {"mechanism": TOLD[kind], **{name: f"{cost:.4f}" for name, cost in found[kind].items()}}
        for kind in sorted(found, key=lambda kind: min(found[kind].values()))
    ]
    report.print_table(rows, ["mechanism", *LEVERS.values()])


if __name__ == "__main__":
    main()
