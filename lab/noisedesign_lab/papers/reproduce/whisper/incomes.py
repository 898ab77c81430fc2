"""Logistic regression on a9a, section VI: incomes, dealt to nodes by a Dirichlet distribution.

Every seed splits all 48,842 records anew. Step sizes are tuned on a part of the training records;
then all of them are trained on. Clipped and protected is the gradient of an example, as in the
published code, or the mean gradient of a node's batch, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.participation import every_step
from noisedesign_lab.datasets import Examples, a9a
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.whisper import lanes
from noisedesign_lab.tasks.training_task import TrainingTask
from noisedesign_lab.training.losses.logistic import Logistic
from noisedesign_lab.training.losses.loss import Batch
from noisedesign_lab.training.partition import dirichlet, split

EXAMPLE, NODE = "example", "node"
"""The unit that a budget protects."""


def units(table: Any, network: Any) -> Iterator[Unit]:
    """A graph each: its step sizes are tuned once, for all seeds."""
    for p in network.connectivities:
        of_network = network.model_dump(exclude={"connectivities"})
        values = table.model_dump(exclude={"protected"})
        for protected in table.protected:
            whole = {"protected": NODE} if protected == NODE else {}
            yield {**of_network, "p": p, **values, **whole}


def run(unit: Unit) -> list[Record]:
    """Rows of every mechanism, budget and seed, at the step size that was best in tuning."""
    w, made = lanes.on_graph(unit)
    step_sizes = unit["step_sizes"]
    among = _tuned(unit)
    ratios = {one.name: lanes.variance_over_ldp(w, one, unit["steps"]) for one in made}
    setting = {"setting": f"{name_of(unit.get('protected', EXAMPLE))}, p = {unit['p']:g}"}
    rows = []
    for seed in range(unit["seeds"]):
        task = _task(unit, seed, tuning=False)
        for row in lanes.side_by_side(task, [seed], step_sizes, among, scale=_scale(unit)):
            step_size = step_sizes[row.pop("number")]
            of_noise = {"variance_over_ldp": ratios[row["mechanism"]]}
            rows.append(setting | row | {"step_size": step_size} | of_noise)
    return rows


def name_of(protected: str) -> str:
    """Return the beginning, up to a comma, of the names of settings of this part."""
    return "a9a by node" if protected == NODE else "a9a"


def parts(protected: Iterable[str]) -> dict[str, str]:
    """Names of files, and of settings, of what budgets are for."""
    return {name_of(one).replace(" ", "-"): name_of(one) for one in protected}


class OfNodes(Logistic):
    """A loss whose clipped gradient is the mean of a node's batch. Sums are m times it, m the size
    of the batch, which the trainer divides by."""

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        sums = super().clipped_sums(models, batch, clip=math.inf)
        sizes = batch.present.sum(axis=-1)[..., None, None]
        norms = np.linalg.norm(sums, axis=-1, keepdims=True)
        return np.asarray(sums * (clip * sizes / np.maximum(norms, clip * sizes)))


def _tuned(unit: Unit) -> list[tuple[str, float, int]]:
    """Return mechanism, epsilon and number of the best step size; runs that diverged are best only
    where all did."""
    losses: dict[tuple[str, float], dict[int, float]] = {}
    for seed in range(unit["tuning_seeds"]):
        task = _task(unit, seed, tuning=True)
        for row in lanes.side_by_side(task, [seed], unit["step_sizes"], scale=_scale(unit)):
            if row["step"] == unit["steps"]:
                of_lane = losses.setdefault((row["mechanism"], row["epsilon"]), {})
                loss = math.inf if row["test_loss"] is None else row["test_loss"]
                of_lane[row["number"]] = of_lane.get(row["number"], 0.0) + loss
    return [(*lane, min(found, key=lambda k: found[k])) for lane, found in losses.items()]


def _of_nodes(unit: Unit) -> bool:
    return unit.get("protected") == NODE


def _scale(unit: Unit) -> float:
    """Noise in sums over that of one clipped gradient: a node's mean is a sum over the most that
    a batch has."""
    return float(unit["batch_size"]) if _of_nodes(unit) else 1.0


@cache
def _records() -> Examples:
    return Examples.joined(a9a())


def _task(unit: Unit, seed: int, *, tuning: bool) -> TrainingTask:
    """Return the task of one seed: trained without the validation records where it is tuning."""
    examples = _records()
    shares = unit["shares"]
    parts = split(len(examples), shares, np.random.default_rng([unit["split_seed"], seed]))
    kept = parts["train"]
    if not tuning:
        kept = np.sort(np.concatenate([kept, parts["validation"]]))
    train = examples.at(kept)
    w, made = lanes.on_graph(unit)
    nodes, steps = unit["nodes"], unit["steps"]
    record = [steps] if tuning else np.linspace(0, steps, 6).astype(int).tolist()
    kind = OfNodes if _of_nodes(unit) else Logistic
    loss = kind(
        features=train.features.shape[1], regularization=unit["regularization"], intercept=True
    )
    return TrainingTask(
        loss=loss,
        examples=train,
        partition=dirichlet(
            train.targets, nodes, concentration=unit["concentration"], minimum=unit["batch_size"]
        ),
        test=examples.at(parts["validation" if tuning else "test"]),
        mixing=w,
        participation=every_step(steps),
        mechanisms=made,
        **lanes.said(unit, "measured", "batch_size"),
        seeds=(seed,),
        record=record,
    )
