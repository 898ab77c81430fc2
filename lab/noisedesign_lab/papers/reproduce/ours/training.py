"""Training under designs across nodes, over time, and both: logistic regression on a9a."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.privacy.target import DEFAULT_ADJACENCY, PrivacyTarget
from noisedesign.system.participation import FixedEpoch, Participation
from noisedesign.system.workloads import Workload
from noisedesign_lab.datasets import Examples, a9a
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.ours.observers import label, network_of
from noisedesign_lab.tasks.mechanisms import Mechanism, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask, columns, run as train
from noisedesign_lab.training.losses.logistic import Logistic
from noisedesign_lab.training.noise import NodeNoise
from noisedesign_lab.training.partition import iid

COLUMNS = columns(
    "setting:str mechanism:str epsilon seed:int step:int train_loss test_loss accuracy "
    "consensus_distance stddev error protects:str status:str"
)
"""Columns of a row; ``epsilon`` is infinite without noise, ``error`` the squared error of all
iterates summed over steps and nodes at a step size of 1, None for a trusted server."""

POINTS = 16
"""Steps that are measured beside the start."""


def units(table: Any) -> Iterator[Unit]:
    """Some seeds of a graph each."""
    for graph in table.graphs:
        for first in range(0, table.seeds, table.together):
            seeds = list(range(first, min(first + table.together, table.seeds)))
            rest = table.model_dump(exclude={"graphs", "seeds", "together"})
            yield {"graph": graph, "seeds": seeds, **rest}


def run(unit: Unit) -> list[Record]:
    """Rows of all mechanisms and budgets."""
    scheme = FixedEpoch(epochs=unit["epochs"], separation=unit["separation"])
    return [{name: row[name] for name in COLUMNS} for row in trained(unit, scheme)]


def trained(unit: Unit, scheme: Participation, **how: Any) -> list[Record]:
    """Return rows of all mechanisms and budgets; ``how`` are further arguments of the task."""
    epsilons = sorted(unit["epsilons"])
    target = PrivacyTarget(
        epsilon=epsilons[len(epsilons) // 2],
        delta=unit["delta"],
        adjacency=how.get("adjacency", DEFAULT_ADJACENCY),
    )
    graph, names = tuple(unit["graph"].items()), tuple(unit["mechanisms"])
    w, made = _made(graph, scheme, unit["cap"], target, names)
    data, test = _records()
    if (count := unit.get("records")) is not None:
        chosen = np.random.default_rng(0).choice(len(data), size=count, replace=False)
        data = data.at(np.sort(chosen))
    steps = scheme.horizon
    task = TrainingTask(
        loss=Logistic(
            features=data.features.shape[1], regularization=unit["regularization"], intercept=True
        ),
        examples=data,
        partition=iid(len(data), len(w)),
        test=test,
        measured=unit["measured"],
        mixing=w,
        participation=scheme,
        mechanisms=made,
        epsilons=unit["epsilons"],
        delta=unit["delta"],
        clip=unit["clip"],
        step_sizes=unit["step_size"],
        seeds=unit["seeds"],
        record=sorted({round(steps * k / POINTS) for k in range(POINTS + 1)}),
        **how,
    )
    errors = {one.name: squared_error(one, w, steps) for one in made}
    rows = []
    for row in train(task):
        epsilon = math.inf if row["epsilon"] is None else row["epsilon"]
        error = errors[row["mechanism"]]
        told = {"epsilon": epsilon, "error": None if error is None else error * row["stddev"] ** 2}
        rows.append({"setting": label(unit["graph"])} | row | told)
    return rows


def squared_error(made: Mechanism, w: Array, steps: int) -> float | None:
    """Return tr(H C^-1 C^-T), the squared unit noise of all iterates; None for other noise."""
    if not isinstance(made.source, NodeNoise) or made.server:
        return None
    source = made.source
    if source.full:
        return None if made.design is None else made.design.objective
    covariance = None if source.root is None else source.root @ source.root.T
    gram = Workload.of(w, horizon=steps).time_gram(covariance)
    if source.noising is None:
        return float(np.trace(gram))
    return float(np.einsum("st,su,tu", gram, source.noising, source.noising, optimize=True))


@cache
def _records() -> tuple[Examples, Examples]:
    return a9a()


@cache
def _made(
    graph: tuple[tuple[str, Any], ...],
    scheme: Participation,
    cap: float,
    target: PrivacyTarget,
    names: tuple[str, ...],
) -> tuple[Array, tuple[Mechanism, ...]]:
    network = network_of({"graph": dict(graph), "cap": cap}, scheme, target=target)
    return np.asarray(network.mixing), tuple(mechanism(name, network) for name in names)
