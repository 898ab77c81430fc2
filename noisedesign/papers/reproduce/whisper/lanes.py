"""What both parts train: the mechanisms on one random graph, every budget side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.papers.reproduce.experiment import Record, Unit
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign.tasks.train.mechanisms import THE_AVERAGE, Mechanism, Network, mechanism
from noisedesign.tasks.train.training_task import DIVERGED_STATUS, FINISHED, TrainingTask
from noisedesign.training.measures import Measurement
from noisedesign.training.trainer import Lane, train

SINGULAR = 1e-9
"""A smallest singular value of W below this is 0: noise along its vector costs nothing."""

COLUMNS: dict[str, type] = {
    "setting": str,
    "mechanism": str,
    "epsilon": float,
    "seed": int,
    "step": int,
    "step_size": float,
    "train_loss": float,
    "test_loss": float,
    "accuracy": float,
    "consensus_distance": float,
    "mu": float,
    "stddev": float,
    "variance_over_ldp": float,
    "distance_over_ldp": float,
    "protects": str,
    "status": str,
}
"""``epsilon`` is infinite without noise; ``variance_over_ldp`` is tr(W R W^T), the noise after one
step, over that of independent noise of the same budget; ``distance_over_ldp``, of quadratics alone,
is the same for what noise does to the models of the whole run where nothing is clipped
(:func:`noisedesign.papers.reproduce.whisper.quadratics.workload`)."""


def on_graph(unit: Unit) -> tuple[Array, tuple[Mechanism, ...]]:
    """W and the mechanisms of a unit. Where W is singular, R has the cap of the settings."""
    return _made(
        unit["nodes"],
        unit["p"],
        unit["graph_seed"],
        unit["steps"],
        unit["cap"],
        tuple(unit["mechanisms"]),
    )


@cache
def _made(
    nodes: int, p: float, seed: int, steps: int, cap: float, names: tuple[str, ...]
) -> tuple[Array, tuple[Mechanism, ...]]:
    w = mixing_matrix(build_graph("erdos-renyi", nodes=nodes, p=p, seed=seed))
    singular = np.linalg.svd(w, compute_uv=False)[-1] < SINGULAR
    network = Network(
        mixing=w, participation=every_step(steps), max_variance=cap if singular else None
    )
    return w, tuple(mechanism(name, network) for name in names)


def covariance(w: Array, made: Mechanism, steps: int) -> Array | None:
    """Of the nodes' noise in one step, shape (n, n), where independent noise of the same budget has
    variance 1; None without noise."""
    if made.source is None:
        return None
    n, each = len(w), made.sensitivity_squared / steps * made.excess**2
    if made.design is not None:
        return each * made.design.covariance
    if made.protects == THE_AVERAGE:  # of the average itself, which every node then holds
        return np.full((n, n), each / (n**2 if made.excess == 1.0 else n))
    return each * np.eye(n)


def variance_over_ldp(w: Array, made: Mechanism, steps: int) -> float | None:
    """tr(W R W^T) at equal privacy over that of independent noise; None without noise."""
    r = covariance(w, made, steps)
    return None if r is None else float(np.trace(w @ r @ w.T) / np.square(w).sum())


def side_by_side(
    task: TrainingTask,
    made: Sequence[Mechanism],
    seeds: Sequence[int],
    step_sizes: Sequence[Any],
    among: Sequence[tuple[str, float, int]] | None = None,
    loudness: float = 1.0,
) -> Iterator[tuple[Measurement, list[tuple[Record, int]]]]:
    """Measurements of every mechanism, budget and step size, and what each lane is.

    Args:
        step_sizes: each a number or shape (T,).
        among: mechanism, epsilon and number of the step size of the lanes to take; None: all.
        loudness: factor on all noise.
    """
    lanes: list[Lane] = []
    told: list[tuple[Record, int]] = []
    for one in made:
        for lane, row in task.lanes(one):
            epsilon = math.inf if row["epsilon"] is None else row["epsilon"]
            for number, step_size in enumerate(step_sizes):
                if among is None or (one.name, epsilon, number) in among:
                    stddev = lane.stddev * loudness
                    lanes.append(replace(lane, step_sizes=step_size, stddev=stddev))
                    told.append((row | {"epsilon": epsilon, "stddev": stddev}, number))
    for measured in train(task.run_of_all, lanes, seeds=seeds):
        yield measured, told


def rows_of(
    measured: Measurement, told: Sequence[tuple[Record, int]], seeds: Sequence[int]
) -> Iterator[tuple[Record, int]]:
    """A row a seed and lane, and the number of its step size; losses of runs that diverged are
    None."""

    def cell(values: Array | None, k: int, lane: int) -> float | None:
        value = None if values is None else float(values[k, lane])
        return None if value is None or not math.isfinite(value) else value

    for k, seed in enumerate(seeds):
        for lane, (row, number) in enumerate(told):
            names = ("train_loss", "test_loss", "accuracy", "consensus_distance")
            values = {name: cell(getattr(measured, name), k, lane) for name in names}
            gone = bool(measured.diverged[k, lane])
            status = {"status": DIVERGED_STATUS if gone else FINISHED}
            kept = ("mechanism", "epsilon", "mu", "stddev", "protects")
            shared = {name: row[name] for name in kept}
            yield shared | {"seed": seed, "step": measured.step} | values | status, number
