"""Solves on a device beside the same on the CPU: ``python -m benchmarks.gpu --device cuda``.

Every row is one problem solved in both places in one process, on the device first. ``ratio`` is the
CPU's wall clock over the device's, for the native solver alone: the certificate is NumPy's in both
cases and is what ``certificate`` is about, the share of the whole on the device that it takes.
``apart`` is how far the two objectives are from each other, relative, which must be below the gap
that each of them proves. Above ``--most`` coordinates the CPU does one eigendecomposition only, and
``ratio`` is that over one of the device's; the answer is certified all the same.

Where there is no device the reason is printed and nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.device import Device, device_of, eigh, on_host
from noisedesign.problem.problem import Problem
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

DEGREE = 20


def whisper(nodes: int, **limits: float) -> nd.SpaceProblem:
    graph = nd.build_graph("erdos-renyi", nodes=nodes, p=min(0.5, DEGREE / nodes), seed=0)
    return nd.SpaceProblem(mixing=nd.mixing_matrix(graph), **limits)


def problems(sizes: argparse.Namespace) -> Iterator[tuple[str, int, Problem]]:
    """Name, coordinates and problem, made one after the other: large ones fill the memory."""
    for nodes in sizes.nodes:
        yield "one gossip step", nodes, whisper(nodes)
    for steps in sizes.steps:
        yield (
            "prefix sums",
            steps,
            nd.TimeProblem.prefix(participation=nd.participation.single(steps)),
        )
    for nodes in sizes.capped:
        for cap in (1.2, 2.0, 5.0):
            yield f"caps of {cap:g}", nodes, whisper(nodes, max_variance=cap)
    for nodes in sizes.floored:
        yield "floors of 1.5", nodes, whisper(nodes, min_variance=1.5)


def seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def decomposition_ratio(size: int, device: Device) -> float:
    """One eigendecomposition here over one there, after a warm-up of the device."""
    matrix = np.random.default_rng(0).standard_normal((size, size))
    matrix += matrix.T

    def run(place: Callable[[], Any]) -> float:
        array = place()
        return seconds(lambda: on_host(eigh(array)[0]))  # to the host: until then it may be queued

    run(lambda: device.put(matrix[:64, :64].copy()))
    there = run(lambda: device.put(matrix))
    return run(lambda: matrix) / there


def row(name: str, size: int, problem: Problem, *, device: Device, gap: float, most: int) -> Record:
    """One problem in both places.

    Raises:
        RuntimeError: the two answers are further apart than their gaps allow.
    """
    started = time.perf_counter()
    there = nd.solve(problem, gap=gap, device=device.name)
    whole = time.perf_counter() - started
    assert there.design is not None
    record: Record = {
        "problem": name,
        "size": size,
        "status": there.status,
        "gap": there.design.gap,
        "evaluations": there.evaluations,
        "certificate": 1 - there.solve_seconds / whole,
        "apart": None,
    }
    if size > most:
        return record | {"ratio": decomposition_ratio(size, device), "of": "one eigh"}
    here = nd.solve(problem, gap=gap)
    assert here.design is not None
    apart = abs(there.design.objective / here.design.objective - 1)
    if apart > there.design.gap + here.design.gap:
        raise RuntimeError(f"{name}, {size}: the two answers are {apart:.1e} apart")
    ratio = here.solve_seconds / there.solve_seconds
    return record | {"apart": apart, "ratio": ratio, "of": "the solve"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", metavar="NAME")
    parser.add_argument("--gap", type=float, default=1e-9)
    parser.add_argument("--nodes", type=int, nargs="*", default=[4096, 16_384], metavar="N")
    parser.add_argument("--steps", type=int, nargs="*", default=[4096, 16_384], metavar="T")
    parser.add_argument("--capped", type=int, nargs="*", default=[2048, 4096], metavar="N")
    parser.add_argument("--floored", type=int, nargs="*", default=[512, 1024], metavar="N")
    parser.add_argument("--most", type=int, default=4096, help="coordinates solved on the CPU")
    options = parser.parse_args(arguments)
    try:
        device = device_of(options.device)
    except InputError as error:
        print(f"Nothing is measured: {error}", file=sys.stderr)
        return
    nd.solve(whisper(64), device=device.name)  # the first solve loads the device's libraries
    rows: list[Record] = []
    for name, size, problem in problems(options):
        print(f"  {name}, {size}", file=sys.stderr)
        rows.append(row(name, size, problem, device=device, gap=options.gap, most=options.most))
    versions = ", ".join(f"{library} {version}" for library, version in device.versions.items())
    title = f"{device.name} ({versions or 'NumPy'}) beside the CPU, gap {options.gap:g}"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
