"""Noise of a node with four bands beside plain normals: ``python -m benchmarks.device``.

A step in float32 into one array, and the normals behind it alone, against
``numpy.random.Generator`` (PCG64) and ``torch.Tensor.normal_`` drawing as many normals in float32:
ratios of processor seconds of one thread, taken in turn in this process after one warm-up of each.
On a device of CUDA, where there is one, the same against torch's normals there, by seconds between
two synchronisations; ``hidden`` are the norm and the hash that a step is recorded by. ``memory`` is
what drawing holds in arrays of the model's size, besides what it writes into: on a device the most
that torch had allocated.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.noise import plan_of
from noisedesign.noise import NodeNoise, Secret
from noisedesign.noise.filters import Toeplitz
from noisedesign.noise.normals import Normals
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

BANDS = np.array([1.0, -0.5, -0.125, -0.0625])
Work = Callable[[], object]


def ratios(works: dict[str, Work], over: list[str], clock: Callable[[], float], runs: int) -> Any:
    """Medians of the ratio of each work to each of ``over``, run in turn."""
    for work in works.values():
        work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            begun = clock()
            work()
            spent[name].append(clock() - begun)
    return {
        name: {
            f"over_{base}": statistics.median(
                a / b for a, b in zip(spent[name], spent[base], strict=True)
            )
            for base in over
        }
        for name in works
    }


def node_of(horizon: int) -> NodeNoise:
    plan = plan_of(Toeplitz.of(BANDS, horizon=horizon), horizon=horizon)
    return NodeNoise(plan, secret=Secret.new(), seeds={}, record=None, resume=False)


def on_processor(size: int, runs: int) -> list[Record]:
    source, generator = node_of(runs + 20), np.random.default_rng(0)
    out, wide = np.empty(size, dtype=np.float32), np.empty(size)
    steps = iter(range(runs + 20))
    tracemalloc.start()
    for _ in BANDS:  # all bands are kept from then on
        source.step(next(steps), out=out)
    held = tracemalloc.get_traced_memory()[1] / out.nbytes
    tracemalloc.stop()
    works: dict[str, Work] = {
        "a step of four bands": lambda: source.step(next(steps), out=out),
        "normals of a key, float64": lambda: Normals(bytes(range(32))).fill(wide),
        "numpy": lambda: generator.standard_normal(out=out, dtype=np.float32),
    }
    over = ["numpy"]
    try:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(out)
        works["torch"] = tensor.normal_
        over.append("torch")
    except ImportError:
        print("torch is not installed: its normals were not measured")
    found = ratios(works, over, time.process_time, runs)
    memory = {"a step of four bands": held}
    return [
        {"on": "processor", "what": name, **found[name], "memory": memory.get(name)}
        for name in works
    ]


def on_cuda(size: int, runs: int) -> list[Record]:
    """The same there, by whatever draws there; nothing where there is no such device."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        print("no device of CUDA is here: not measured")
        return []
    from noisedesign.noise.device import DeviceNoise, source as on_device

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    out = torch.empty(size, device="cuda")
    rows: list[Record] = []
    for engine in on_device.engines(out.device):
        steps = iter(range(10**6))
        there = DeviceNoise(node_of(10**6), "cuda")
        there._engines[torch.float32] = engine(there.device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in BANDS:
            there.step_(next(steps), out)
        held = (torch.cuda.max_memory_allocated() - before) / out.nbytes
        works: dict[str, Work] = {
            "a step of four bands": lambda: there.step_(next(steps), out),  # noqa: B023
            "hidden": lambda: there.hidden([out], [0]),  # noqa: B023
            "torch": out.normal_,
        }
        found = ratios(works, ["torch"], clock, runs)
        card = torch.cuda.get_device_name()
        memory = {"a step of four bands": held}
        rows += [
            {
                "on": f"{card}, {engine.__name__}",
                "what": name,
                **found[name],
                "memory": memory.get(name),
            }
            for name in works
        ]
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10**7, help="numbers of the model")
    parser.add_argument("--large", action="store_true", help="1e8 numbers: 2 GB")
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args(arguments)
    size = 10**8 if given.large else given.size
    rows = [*on_processor(size, given.runs), *on_cuda(size, given.runs)]
    title = f"noise of a node over plain normals, float32, {size} numbers a step"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    report.print_table(rows, columns, title=title)


if __name__ == "__main__":
    main()
