"""Lanes of a task at several step sizes side by side, and the best of these for every lane."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from noisedesign_lab.papers.reproduce.experiment import Record
from noisedesign_lab.tasks.training_task import TrainingTask, rows_of
from noisedesign_lab.training.trainer import Lane, train

Chosen = tuple[str, float, int]  # mechanism, epsilon and the number of a step size


def side_by_side(
    task: TrainingTask,
    seeds: Sequence[int],
    step_sizes: Sequence[Any],
    among: Sequence[Chosen] | None = None,
    scale: float = 1.0,
    clipped: bool = True,
) -> Iterator[Record]:
    """Yield a row of every lane and step size at every recorded step; ``among`` picks lanes, and
    ``scale`` multiplies all noise."""
    settled = task.run_of_all if clipped else replace(task.run_of_all, clip=math.inf)
    lanes: list[Lane] = []
    told: list[Record] = []
    for one in task.made:
        for lane, row in task.lanes(one):
            epsilon = math.inf if row["epsilon"] is None else row["epsilon"]
            for number, step_size in enumerate(step_sizes):
                if among is None or (one.name, epsilon, number) in among:
                    stddev = lane.stddev * scale
                    lanes.append(replace(lane, step_sizes=step_size, stddev=stddev))
                    kept = {name: row[name] for name in ("mechanism", "mu", "protects")}
                    told.append(kept | {"epsilon": epsilon, "stddev": stddev, "number": number})
    for measured in train(settled, lanes, seeds=seeds):
        yield from rows_of(measured, seeds, told)


def best(rows: Iterable[Record]) -> list[Chosen]:
    """Return the step size of least mean loss of every lane; sizes that diverged are the last."""
    losses: dict[tuple[str, float], dict[int, float]] = {}
    for row in rows:
        of_lane = losses.setdefault((row["mechanism"], row["epsilon"]), {})
        loss = math.inf if row["test_loss"] is None else row["test_loss"]
        of_lane[row["number"]] = of_lane.get(row["number"], 0.0) + loss
    return [(*lane, min(found, key=lambda k: found[k])) for lane, found in losses.items()]
