"""The cost of the record, a step: a small model with claims of 64 steps, with a transaction a step,
and without a record, in turn.

    python -m benchmarks.record --steps 2048 --numbers 2000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

import noisedesign as nd
from noisedesign.noise import Secret, claims, noise


def main() -> None:
    """Print milliseconds a step, and transactions of the database."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--numbers", type=int, default=2000)
    given = parser.parse_args()
    scheme = nd.participation.single(given.steps)
    target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
    graph = nd.build_graph("path", nodes=2)
    structure = nd.SpaceStructure(kind="independent")
    problem = nd.SpaceProblem.from_graph(
        graph, privacy=target, participation=scheme, structure=structure
    )
    design = nd.baseline(problem, "ldp")
    ways = {"claims of 64 steps": True, "a transaction a step": False, "no record": None}
    with tempfile.TemporaryDirectory() as folder:
        sources, spent, counts = {}, dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
        for name, claimed in ways.items():
            record = False if claimed is None else Path(folder) / f"{claimed}"
            sources[name] = noise(design, node=0, secret=Secret.new(), record=record)
            if claimed is not None:
                with sources[name]._uses.record._open() as database:
                    database.set_trace_callback(_counter(counts, name))
        sums = [np.full(given.numbers, 1e-6, dtype=np.float32)]
        for t in range(given.steps):
            for name, claimed in ways.items():
                with mock.patch.object(claims, "boot", claims.boot if claimed else lambda: None):
                    one = [sums[0].copy()]
                    begun = time.perf_counter()
                    sources[name].add_(one, t)
                    spent[name] += time.perf_counter() - begun
    print(f"{given.steps} steps of {given.numbers} numbers")
    for name in ways:
        print(
            f"{name:22} {1e3 * spent[name] / given.steps:8.3f} ms a step, {counts[name]:5} commits"
        )


def _counter(counts: dict[str, int], name: str):
    def count(said: str) -> None:
        counts[name] += said.startswith("COMMIT")

    return count


if __name__ == "__main__":
    main()
