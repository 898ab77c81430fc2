"""The mixing of least noise, what it gains and what it takes: ``python -m benchmarks.least_noise``.

Every graph at the mixing rate of Metropolis-Hastings weights and a cap on variances of ten times
those of independent noise. ``--front FILE`` draws mixing rate against error from the sweep
problems/sweeps/mixing-rate.toml, and ``--large`` takes graphs of 148 and 500 nodes.
``--collection`` says for every graph of the shipped problems what no W can do better than, by the
bounds for every symmetric W, every doubly stochastic one, and symmetric ones however slow;
``--one-way`` takes W that need not be symmetric, on graphs and on digraphs.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.files.picture_file import new_figure, style, write_figure
from noisedesign.system.datasets import ego_facebook
from noisedesign.system.directed import build_digraph
from noisedesign.system.fastest_mixing import fastest_mixing
from noisedesign.system.graph import GRAPH_KEYS
from noisedesign.system.least_noise import least_noise
from noisedesign.system.links import mixing_norm
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

PROBLEMS = Path(__file__).parent.parent / "problems"
SWEEP = PROBLEMS / "sweeps" / "mixing-rate.toml"
CAP = 10.0
LARGEST = 150  # nodes of the graphs of the collection
MOST_ARCS = 1200  # arcs and self weights, of which W need not be symmetric
ANY_RATE = 0.9999
SLACK = 1e-3  # of the rate, where no other W is as fast as Metropolis-Hastings weights

GRAPHS: dict[str, dict[str, Any]] = {  # graphs of the collection, but for the first two
    "Florentine families": {"kind": "florentine"},
    "karate club": {"kind": "karate"},
    "Erdos-Renyi 25": {"kind": "erdos-renyi", "nodes": 25, "p": 0.2, "seed": 5},
    "Erdos-Renyi 50": {"kind": "erdos-renyi", "nodes": 50, "p": 0.12, "seed": 1},
    "Barabasi-Albert 60": {"kind": "barabasi-albert", "nodes": 60, "links": 2, "seed": 1},
    "Barabasi-Albert 100": {"kind": "barabasi-albert", "nodes": 100, "links": 3, "seed": 4},
    "geometric 30": {"kind": "random-geometric", "nodes": 30, "degree": 7.0, "seed": 2},
    "geometric 40": {"kind": "random-geometric", "nodes": 40, "degree": 6.0, "seed": 1},
    "small world 80": {"kind": "small-world", "nodes": 80, "neighbours": 6, "p": 0.1, "seed": 1},
    "caveman 6 x 5": {"kind": "caveman", "cliques": 6, "members": 5},
    "grid 6 x 7": {"kind": "grid", "rows": 6, "columns": 7},
    "star 25": {"kind": "star", "nodes": 25},
    "random regular 40": {"kind": "random-regular", "nodes": 40, "degree": 3, "seed": 3},
    "torus 8 x 8": {"kind": "torus", "rows": 8, "columns": 8},
    "ring 31": {"kind": "ring", "nodes": 31},
}


DIGRAPHS: dict[str, dict[str, Any]] = {
    f"one way {n}": {"kind": "erdos-renyi", "nodes": n, "p": p, "seed": 0}
    for n, p in ((8, 0.3), (20, 0.2), (50, 0.1))
}


def optimum(problem: Any) -> Any:
    return nd.solve(problem, gap=1e-5).certificate


def ratio(problem: Any) -> tuple[float, Any, float]:
    """The optimum for the W chosen over that for the W given, at most; what was found; seconds."""
    started = time.process_time()
    found = nd.graphs.least_noise_mixing(problem)
    seconds = time.process_time() - started
    return optimum(found.problem).objective / optimum(problem).lower_bound, found, seconds


def row(name: str, graph: nx.Graph, *, steps: bool) -> Record:
    one = nd.SpaceProblem.from_graph(graph, max_variance=CAP)
    gained, found, seconds = ratio(one)
    record: Record = {
        "graph": name,
        "nodes": len(graph),
        "links": graph.number_of_edges(),
        "1 step": round(gained, 3),
        "over bound": f"{found.error / found.lower_bound - 1:.0e}" if found.lower_bound else "",
        "rate": round(found.norm, 4),
        "CPU s": round(seconds, 1),
    }
    if steps:
        error = nd.ErrorMeasure(horizon=8)
        several = nd.SpaceProblem.from_graph(graph, max_variance=CAP, error=error)
        epochs = nd.participation.FixedEpoch(epochs=2, separation=4)
        in_time = nd.TimeProblem.from_graph(graph, participation=epochs)
        record["8 steps"] = round(ratio(several)[0], 3)
        record["in time"] = round(ratio(in_time)[0], 3)
    return record


def graphs_of_collection() -> Iterator[tuple[str, nx.Graph]]:
    """Every undirected graph of the shipped problems once, by the first that has it."""
    seen = set()
    for path in sorted(PROBLEMS.glob("*/*.toml")):
        table = tomllib.loads(path.read_text()).get("graph", {})
        kind = table.get("kind")
        if table.get("directed") or (kind not in GRAPH_KEYS and kind != "ego-facebook"):
            continue
        keys = {key: table[key] for key in GRAPH_KEYS.get(kind, ()) if key in table}
        if max((v for k, v in keys.items() if k not in ("seed", "p")), default=0) > LARGEST:
            continue
        graph = nd.build_graph(kind, **keys) if kind in GRAPH_KEYS else ego_facebook(table["ego"])
        links = nx.to_numpy_array(graph) != 0
        if 1 < len(graph) <= LARGEST and links.tobytes() not in seen:
            seen.add(links.tobytes())
            said = " ".join(str(value) for key, value in keys.items() if key != "kind")
            yield f"{kind} {said}".strip(), graph


def of_arcs(name: str, graph: nx.Graph) -> Record:
    """What doubly stochastic W gain over balanced ones, or where links go both ways symmetric."""
    n, caps = len(graph), np.full(len(graph), CAP)
    limits: dict[str, Any] = {"budget": np.ones(n), "cap": caps}
    if graph.is_directed():
        plain, before = nd.SpaceProblem.from_graph(graph, weights="doubly-stochastic"), "balanced"
        rate = mixing_norm(plain.mixing)
        error = optimum(replace(plain, max_variance=CAP)).objective
    else:
        rate, before = mixing_norm(nd.mixing_matrix(graph)), "symmetric"
        error = least_noise(graph, norm=rate, **limits).error
    found = least_noise(graph, norm=rate, symmetric=False, **limits)
    return {
        "graph": name,
        "nodes": n,
        "arcs": graph.number_of_edges() * (1 if graph.is_directed() else 2),
        "over": before,
        "no W below": round(found.lower_bound / error, 4),
        "found": round(found.error / error, 4),
        "rate": round(rate, 4),
    }


def judged(name: str, graph: nx.Graph) -> Record:
    """The optimum for the W chosen, and what no W goes below, over Metropolis-Hastings's."""
    n = len(graph)
    plain = nd.SpaceProblem.from_graph(graph, max_variance=CAP)
    limits = {"budget": plain.budget, "cap": plain.max_variance}
    rate, best = mixing_norm(plain.mixing), optimum(plain)
    found = least_noise(graph, norm=rate, **limits)
    record = {"graph": name, "nodes": n, "links": graph.number_of_edges()}
    if found.proof is None:  # no other W is as fast, and a bound for slightly slower ones is one
        found = replace(least_noise(graph, norm=rate + SLACK, **limits), error=best.objective)
        rate += SLACK
    record["least noise"] = round(found.error / best.lower_bound, 4)
    bounds = [found.lower_bound, None, None]
    if n + 2 * graph.number_of_edges() <= MOST_ARCS:
        bounds[1] = least_noise(graph, norm=rate, symmetric=False, **limits).lower_bound
        bounds[2] = least_noise(graph, norm=ANY_RATE, **limits).lower_bound
    for key, bound in zip(("no symmetric W", "no W", "any rate"), bounds, strict=True):
        record[key] = "" if bound is None else round(bound / best.objective, 4)
    return record


def draw(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "front.csv"
        nd.sweep(nd.load(SWEEP), output=table)
        with table.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    graph = nd.build_graph("florentine")
    fastest = fastest_mixing(graph)
    with style():
        figure = new_figure(6.0, 3.6)
        axes = figure.add_subplot()
        rates = [float(r["graph.mixing_rate"]) for r in rows]
        axes.plot(rates, [float(r["objective"]) for r in rows], "o-", label="least noise")
        for label, marker, mixing in (
            ("Metropolis-Hastings", "s", nd.mixing_matrix(graph)),
            ("fastest mixing", "^", fastest.mixing),
        ):
            problem = nd.SpaceProblem(mixing=mixing, max_variance=CAP)
            axes.plot([mixing_norm(mixing)], [optimum(problem).objective], marker, label=label)
        axes.set(xlabel="mixing rate, ||W - J||", ylabel="certified optimum, squared error")
        axes.legend()
        write_figure(figure, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--front", type=Path, metavar="FILE", help="picture to write")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--collection", action="store_true")
    parser.add_argument("--one-way", action="store_true")
    arguments = parser.parse_args()
    if arguments.front is not None:
        return draw(arguments.front)
    if arguments.one_way:
        rows = [of_arcs(name, nd.build_graph(**keys)) for name, keys in list(GRAPHS.items())[:12]]
        rows += [of_arcs(name, build_digraph(**keys)) for name, keys in DIGRAPHS.items()]
        return report.print_table(rows, list(rows[0]), title="W that need not be symmetric")
    if arguments.collection:
        rows = [judged(name, graph) for name, graph in graphs_of_collection()]
        rows.sort(key=lambda row: float(row["least noise"]))
        few = [row for row in rows if row["least noise"] <= 0.8]
        title = f"{len(few)} of {len(rows)} graphs have a W of at most 0.8 of today's optimum"
        return report.print_table(rows, list(rows[0]), title=title)
    if arguments.large:
        ego = nd.load("whisper/ego-148").problem.mixing
        geometric = nd.build_graph("random-geometric", nodes=500, degree=8, seed=0)
        graphs = {"ego 148": nx.from_numpy_array(ego), "geometric 500": geometric}
        for graph in graphs.values():
            graph.remove_edges_from(list(nx.selfloop_edges(graph)))
            nx.set_edge_attributes(graph, 1.0, "weight")
    else:
        graphs = {name: nd.build_graph(**keys) for name, keys in GRAPHS.items()}
    rows = [row(name, graph, steps=not arguments.large) for name, graph in graphs.items()]
    report.print_table(
        rows, list(rows[0]), title="optimum for the mixing of least noise over today's"
    )
    return None


if __name__ == "__main__":
    main()
