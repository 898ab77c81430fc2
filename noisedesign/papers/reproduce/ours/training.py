"""Training under designs across nodes, over time, and both: logistic regression on a9a."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.papers.reproduce.experiment import Record, Unit
from noisedesign.papers.reproduce.ours.observers import label
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.privacy.target import DEFAULT_ADJACENCY, PrivacyTarget
from noisedesign.system.datasets import Examples, a9a
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch, Participation
from noisedesign.system.workloads import Workload
from noisedesign.tasks.train.mechanisms import Mechanism, Network, mechanism
from noisedesign.tasks.train.training_task import TrainingTask, run as train
from noisedesign.training.losses.logistic import Logistic
from noisedesign.training.noise import NodeNoise
from noisedesign.training.partition import iid

COLUMNS: dict[str, type] = {
    "setting": str,
    "epsilon": float,
    "seed": int,
    "step": int,
    "train_loss": float,
    "test_loss": float,
    "accuracy": float,
    "consensus_distance": float,
    "stddev": float,
    "error": float,
    "protects": str,
    "status": str,
}
"""``epsilon`` is infinite without noise; ``error`` is the squared error of all
iterates, summed over steps and nodes, at the noise of the row and a step size of 1; None for a
trusted server, whose nodes do not gossip."""

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
    return [{name: row[name] for name in ("mechanism", *COLUMNS)} for row in trained(unit, scheme)]


def trained(unit: Unit, scheme: Participation, **how: Any) -> list[Record]:
    """The same for any participation, on so many ``records`` where the unit says it, with further
    arguments of a training task; rows have all columns of training."""
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
    """sum over t of |x_t|^2, x_t the noise in all models after step t, for unit noise.

    It is tr(H C^-1 C^-T), H of all iterates and of noise with covariance R over nodes. None where
    there is no noise of nodes that gossip.
    """
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
    w = mixing_matrix(build_graph(**dict(graph)))
    network = Network(
        mixing=w, participation=scheme, max_variance=cap, target=target, responses=FIXED_RESPONSES
    )
    return w, tuple(mechanism(name, network) for name in names)
