"""Seeds that only neighbours share, on large graphs: ``python -m benchmarks.edge_local_large``.

Each design is solved in a process of its own, written, and read again; its privacy is then checked
at some nodes by conjugate gradients on R, which took no part in the design: those with the most and
fewest links and some at random. The gap is to a bound on noise of every structure, so that no
more than it is paid for having no dealer. With ``--picture`` the growth of the time is drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import diags_array
from scipy.sparse.linalg import cg, eigsh

import noisedesign as nd
from noisedesign.files.picture_file import COLOURS, legend_below, new_figure, style, write_figure
from noisedesign.forms import PairwiseCovariance
from noisedesign.tasks.report import Record, print_table

SIZES = (1_000, 10_000, 100_000)
KINDS: dict[str, dict[str, Any]] = {"barabasi-albert": {"links": 3}, "erdos-renyi": {"degree": 8.0}}
CHECKED = 60
"""Nodes whose privacy is checked anew."""

PROGRAM = """
import json, resource, sys, time
import noisedesign as nd

kind, asked, structure, path = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
graph = nd.build_graph(kind, **asked)
from noisedesign.system.rules import sparse_mixing_matrix
problem = nd.SpaceProblem(
    mixing=sparse_mixing_matrix(graph), structure=nd.SpaceStructure(kind=structure)
)
edges = graph.number_of_edges()
del graph
begin = time.process_time()
solution = nd.solve(problem)
seconds = time.process_time() - begin
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
design = solution.design
nd.save(design, path)
print(json.dumps({
    "edges": edges, "gap": design.certificate.gap, "relative_to_ldp": design.relative_to_ldp,
    "confidence": design.certificate.confidence, "cpu_s": seconds,
    "us_an_edge": 1e6 * seconds / edges, "peak_GB": peak / 1e9,
}))
"""


def solved(kind: str, nodes: int, structure: str, path: Path) -> Record:
    """One design, by a process of its own."""
    asked = json.dumps({"nodes": nodes, "seed": 1} | KINDS[kind])
    command = [sys.executable, "-c", PROGRAM, kind, asked, structure, str(path)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    record: Record = {"graph": kind, "n": nodes, "structure": structure} | json.loads(found)
    if structure == "pairwise":
        stored: Any = nd.load(path).design
        record["over_budget"] = largest(stored.noise.space, stored.problem.budget)
    return record


def largest(noise: PairwiseCovariance, budget: np.ndarray) -> float:
    """The largest [R^-1]_uu over its budget, of some nodes, by solves with R alone.

    With x near R^-1 e_u and r what is left, [R^-1]_uu = 2 x_u - x^T R x + r^T R^-1 r; the last term
    is at most |r|^2 over the least eigenvalue, of R scaled to a unit diagonal.
    """
    variance = noise.matrix.diagonal()
    scale = diags_array(1 / np.sqrt(variance))
    unit = (scale @ noise.matrix @ scale).tocsr()
    least = 1 - float(eigsh(-unit, k=1, which="LA", return_eigenvectors=False, tol=1e-3)[0] + 1)
    least = min(1.0, 0.99 * least)
    links = np.diff(unit.indptr)
    rng = np.random.default_rng(5)
    order = np.argsort(links, kind="stable")
    nodes = {*order[: CHECKED // 3], *order[-CHECKED // 3 :], *rng.integers(len(links), size=20)}
    worst = 0.0
    for u in nodes:
        e = np.zeros(len(links))
        e[u] = 1.0
        x, _ = cg(unit, e, rtol=1e-9)
        left = e - unit @ x
        precision = 2 * x[u] - float(x @ (unit @ x)) + float(left @ left) / least
        worst = max(worst, precision / float(variance[u] * budget[u]))
    return worst


def draw(records: list[Record], path: Path) -> None:
    """CPU time an edge against nodes."""
    with style():
        figure = new_figure(4.6, 3.2)
        axes = figure.subplots()
        pairs = dict.fromkeys((str(r["graph"]), str(r["structure"])) for r in records)
        for (graph, structure), colour in zip(pairs, COLOURS, strict=False):
            rows = [r for r in records if (r["graph"], r["structure"]) == (graph, structure)]
            axes.plot(
                [r["n"] for r in rows],
                [r["us_an_edge"] for r in rows],
                marker="o",
                color=colour,
                label=f"{graph}, {structure}",
            )
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="CPU µs an edge")
        legend_below(figure, columns=2)
        write_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--structures", nargs="+", choices=("pairwise", "polynomial"), default=["pairwise"]
    )
    parser.add_argument("--results", type=Path, help="JSON lines, gone on with where they end")
    parser.add_argument("--picture", type=Path, help=".svg, .pdf or .png")
    given = parser.parse_args()
    records: list[Record] = []
    if given.results and given.results.exists():
        records = [json.loads(line) for line in given.results.read_text().splitlines()]
    done = {(r["graph"], r["n"], r["structure"]) for r in records}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in given.sizes:
            for kind in given.kinds:
                for structure in given.structures:
                    if (kind, nodes, structure) in done:
                        continue
                    print(f"{kind}, {nodes} nodes, {structure}", file=sys.stderr)
                    records.append(solved(kind, nodes, structure, Path(folder) / "design.npz"))
                    if given.results:
                        with given.results.open("a") as stream:
                            stream.write(json.dumps(records[-1]) + "\n")
    print_table(records, list(records[0]))
    if given.picture:
        draw(records, given.picture)


if __name__ == "__main__":
    main()
