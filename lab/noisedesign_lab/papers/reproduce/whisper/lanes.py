"""The mechanisms on one random graph, every budget side by side, which both parts train."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.tasks.mechanisms import THE_AVERAGE, Mechanism, Network, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask, columns, rows_of
from noisedesign_lab.training.trainer import Lane, train

COLUMNS = columns(
    "setting:str mechanism:str epsilon seed:int step:int step_size train_loss test_loss accuracy "
    "consensus_distance mu stddev variance_over_ldp distance_over_ldp protects:str status:str"
)
"""Columns of a row; ``epsilon`` is infinite without noise, ``variance_over_ldp`` is tr(W R W^T)
over that of independent noise, and ``distance_over_ldp`` the same for the models of a whole run of
quadratics."""


def on_graph(unit: Unit) -> tuple[Array, tuple[Mechanism, ...]]:
    """W and the mechanisms of a unit. Where W is singular, R has the cap of the settings."""
    keys = ("nodes", "p", "graph_seed", "steps", "cap")
    return _made(*(unit[key] for key in keys), tuple(unit["mechanisms"]))


@cache
def _made(
    nodes: int, p: float, seed: int, steps: int, cap: float, names: tuple[str, ...]
) -> tuple[Array, tuple[Mechanism, ...]]:
    w = mixing_matrix(build_graph("erdos-renyi", nodes=nodes, p=p, seed=seed))
    singular = np.linalg.svd(w, compute_uv=False)[-1] < 1e-9
    network = Network(
        mixing=w, participation=every_step(steps), max_variance=cap if singular else None
    )
    return w, tuple(mechanism(name, network) for name in names)


def said(unit: Unit, *more: str) -> dict[str, Any]:
    """Return the arguments of a task that a unit states by the same names."""
    return {name: unit[name] for name in ("epsilons", "delta", "adjacency", "clip", *more)}


def covariance(w: Array, made: Mechanism, steps: int) -> Array | None:
    """Return the covariance (n, n) of the noise of one step where independent noise of the same
    budget has variance 1; None without noise."""
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
    seeds: Sequence[int],
    step_sizes: Sequence[Any],
    among: Sequence[tuple[str, float, int]] | None = None,
    scale: float = 1.0,
) -> Iterator[Record]:
    """Yield a row of every mechanism, budget, step size and seed at every recorded step, with the
    ``number`` of the step size. ``among`` picks lanes by mechanism, epsilon and that number;
    ``scale`` multiplies all noise."""
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
    for measured in train(task.run_of_all, lanes, seeds=seeds):
        yield from rows_of(measured, seeds, told)
