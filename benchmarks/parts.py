"""A graph in parts on Dask workers beside one process: ``python -m benchmarks.parts``.

A local cluster has a worker a part, each a process that may take ``--memory``. Printed are both
designs' numbers, messages and bytes as the parts counted them, and CPU seconds of every process.
Then what 100 workers would send and compute for 10^7 and 10^8 nodes, on paper: these counts, times
what a column, a byte and a message cost.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import noisedesign as nd
from benchmarks.partitioned import KINDS, expected_pairs
from benchmarks.sparse_graphs import mixing_of
from noisedesign.distributed import tasks
from noisedesign.tasks.report import Record, print_table

WORKERS = 100
LARGE = (10_000_000, 100_000_000)
BYTE = 2e-9
"""CPU seconds of a worker for a byte that Dask sends or receives (measured once, 16 columns)."""
MESSAGE = 1e-3
"""Seconds of a message of Dask, from the same measurement on a loaded machine."""
ENTRY = 6e-9
"""Seconds an entry of W and column where a block fits no cache: at 10^6 nodes, 16 columns."""


def spent() -> tuple[float, float]:
    """CPU seconds of this process, and the most memory it had, GB."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measured(kind: str, nodes: int, given: argparse.Namespace) -> tuple[Record, Record]:
    """One graph by parts and, unless told otherwise, in one process: numbers, and counts."""
    from distributed import Client, LocalCluster

    mixing = mixing_of(kind, nodes)
    problem = nd.SpaceProblem(mixing=mixing, structure=nd.SpaceStructure(kind="polynomial"))
    found: Record = {"graph": kind, "n": mixing.shape[0], "parts": given.parts, "cut": given.cut}
    counts = dict(found)
    home = given.folder or Path(tempfile.mkdtemp())
    graph, output = home / f"{kind}-{nodes}-graph", home / f"{kind}-{nodes}-design"
    folder = tasks.store(problem, graph, parts=given.parts, cut=given.cut)
    with (
        LocalCluster(
            n_workers=given.parts,
            threads_per_worker=1,
            processes=True,
            memory_limit=given.memory,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        before = time.process_time()
        made = tasks.solve(graph, output, cluster=cluster.scheduler_address, tell=told)
        workers = list(client.run(spent).values())
        client_seconds = time.process_time() - before
        if given.verify:
            found["verified"] = tasks.verify(
                output, graph, cluster=cluster.scheduler_address, tell=told
            ).ok
    found |= {"objective": made.objective, "lower_bound": made.lower_bound, "gap": made.gap}
    sent = made.sent
    halo = sum(one for one in halos(mixing, folder.ends, given.cut))
    counts |= {
        "halo_of_n": halo / mixing.shape[0],
        "columns": sent["halo bytes"] / 8 / halo,
        "rounds": sent["halo messages"] / (given.parts * (given.parts - 1)),
        "sums": sent["sum messages"] / (given.parts - 1) / 2,
        "GB_halo": sent["halo bytes"] / 1e9,
        "GB_neighbourhoods": sent["sums bytes"] / 1e9,
        "CPU_s_workers": "+".join(f"{seconds:.0f}" for seconds, _ in workers),
        "CPU_s_client": client_seconds,
        "GB_of_a_worker": max(memory for _, memory in workers),
    }
    if not given.alone:
        before = time.process_time()
        design = nd.solve(problem).design
        counts["CPU_s_one_process"] = time.process_time() - before
        assert design is not None
        found |= {
            "objective_off": abs(made.objective / design.objective - 1),
            "bound_off": abs(made.lower_bound / design.lower_bound - 1),
        }
    return found, counts


def halos(mixing: Any, ends: Any, cut: str) -> list[int]:
    """Nodes of others next to those of each part, where parts are runs of the given order."""
    if cut != "given":
        return [0]
    rows = mixing.tocsr()
    found = []
    for first, end in pairwise(ends):
        near = np.unique(rows[first:end].indices)
        found.append(int(((near < first) | (near >= end)).sum()))
    return found


def told(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)


def on_paper(counts: Record, degrees: np.ndarray) -> list[Record]:
    """100 workers, by rows alone, and by 8 groups of rows x 12 of columns (which is not built)."""
    records = []
    columns, rounds = float(counts["columns"]), float(counts["rounds"])
    for nodes in LARGE:
        for groups, beside in ((WORKERS, 1), (8, 12)):
            share = expected_pairs(degrees, groups) / len(degrees)
            own = nodes / groups
            wide = columns * (own * (degrees.mean() + 1) * ENTRY) / beside
            sent = 8 * share * own * columns / beside
            records.append(
                {
                    "graph": counts["graph"],
                    "n": nodes,
                    "rows x columns": f"{groups} x {beside}",
                    "halo_of_own": share,
                    "GB_a_worker": sent / 1e9,
                    "messages_a_worker": rounds * (groups - 1),
                    "min_products": wide / 60,
                    "min_bytes": 2 * sent * BYTE / 60,
                    "min_messages": rounds * (groups - 1) * MESSAGE / 60,
                    "GB_of_W_a_worker": 12 * own * (degrees.mean() + 1) / 1e9,
                }
            )
    return records


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[20_000])
    parser.add_argument("--graphs", nargs="+", default=["barabasi-albert"], choices=list(KINDS))
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--cut", default="given", choices=tasks.CUTS)
    parser.add_argument("--memory", default="4GB", help="of a worker")
    parser.add_argument("--alone", action="store_true", help="nothing in one process beside it")
    parser.add_argument("--verify", action="store_true", help="verify the design in parts, too")
    parser.add_argument("--folder", type=Path, help="for graphs and designs, and their checkpoints")
    given = parser.parse_args(arguments)
    numbers, counts, paper = [], [], []
    for kind in given.graphs:
        for nodes in given.nodes:
            found, counted = measured(kind, nodes, given)
            numbers.append(found)
            counts.append(counted)
        degrees = np.diff(mixing_of(kind, 10_000).indptr)
        paper += on_paper(counts[-1], degrees - 1)
    for table in (numbers, counts, paper):
        print_table(table, list(table[-1]))
        print()
    worst = max(float(record.get("objective_off", 0.0)) for record in numbers)
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
