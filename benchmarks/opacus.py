"""A step of Opacus with designed noise beside one with its own: ``python -m benchmarks.opacus``.

Both train the same network on the same batches, in turn, in this process and on one core; seconds
are those of the processor, without what the disk takes, of the fastest step after one warm-up.
``ratio`` is a step with designed noise over one with Opacus' own, normals of a generator that is
not secret.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

import noisedesign as nd
from noisedesign.adapters.opacus import Engine
from noisedesign.noise import Plan, noise
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

BANDS = 4
EPOCHS = 256
FEATURES = 123


def network(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    )


def stepped(engine: Any, *, width: int, batch: int, mode: str, **kwargs: Any) -> Callable[[], None]:
    """One step of training by an engine, of its own model."""
    module = network(width)
    x = torch.randn(BANDS * batch, FEATURES, generator=torch.Generator().manual_seed(0))
    model, optimizer, *criterion, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        criterion=torch.nn.BCEWithLogitsLoss(),
        data_loader=DataLoader(TensorDataset(x, (x[:, 0] > 0).float()), batch_size=batch),
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
        **kwargs,
    )
    loss = criterion[0] if criterion else torch.nn.BCEWithLogitsLoss()

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    batches = endless()

    def step() -> None:
        features, labels = next(batches)
        optimizer.zero_grad()
        loss(model(features)[:, 0], labels).backward()
        optimizer.step()

    return step


def seconds(steps: int, *calls: Callable[[], None]) -> list[float]:
    """Least seconds of the processor that each call takes, one after another in every round."""
    found: list[list[float]] = [[] for _ in calls]
    for turn in range(steps):
        for at in range(len(calls))[:: -1 if turn % 2 else 1]:
            start = time.process_time()
            calls[at]()
            if turn:
                found[at].append(time.process_time() - start)
    return [min(each) for each in found]


@cache
def plan() -> Plan:
    """The part of a node in a design of a run so long that its record claims 64 steps at a time."""
    problem = nd.TimeProblem.prefix(
        participation=nd.participation.FixedEpoch(epochs=EPOCHS, separation=BANDS),
        structure=nd.TimeStructure(kind="banded-inverse", bands=BANDS),
        privacy=nd.PrivacyTarget(epsilon=4.0, delta=1e-5, clip=1.0),
    )
    return nd.solve(problem).design.node_plan(0)


def ratio(*, width: int, batch: int, mode: str, rounds: int, folder: Path) -> Record:
    what = {"width": width, "batch": batch, "mode": mode}
    record = folder / f"{width}-{batch}-{mode}.sqlite3"
    designed = stepped(Engine(noise(plan(), record=record)), **what)
    own = stepped(PrivacyEngine(), noise_multiplier=1.0, **what)
    theirs, ours = seconds(BANDS * rounds, own, designed)
    return {
        "parameters": sum(p.numel() for p in network(width).parameters()),
        "batch": batch,
        "gradients": mode,
        "s a step": theirs,
        "added s a step": ours - theirs,
        "ratio": ours / theirs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help=f"times {BANDS} steps")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 300, 1000])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 512])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            ratio(width=width, batch=batch, mode=mode, rounds=given.rounds, folder=Path(folder))
            for width in given.widths
            for batch in given.batches
            for mode in ("hooks", "ghost")
        ]
    title = f"a step with designed noise over one with Opacus' own, {BANDS} bands"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
