"""The experiments themselves, every mechanism and budget side by side on one random graph.
Quadratics: a valley a node, step sizes eta_1 / sqrt t, ``test_loss`` the objective less its
minimum. Incomes: every seed splits a9a anew, deals it by a Dirichlet distribution, and tunes step
sizes on a part of the training records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign_lab.datasets import Examples, a9a
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.step_sizes import Chosen, best, side_by_side
from noisedesign_lab.tasks.mechanisms import THE_AVERAGE, Mechanism, Network, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask, columns
from noisedesign_lab.training.losses.loss import Batch
from noisedesign_lab.training.losses.models import Logistic
from noisedesign_lab.training.losses.quadratics import Quadratics, whisper_quadratics
from noisedesign_lab.training.partition import dirichlet, split

COLUMNS = columns(
    "setting:str mechanism:str epsilon seed:int step:int step_size train_loss test_loss accuracy "
    "consensus_distance mu stddev variance_over_ldp distance_over_ldp protects:str status:str"
)
"""Columns of a row; ``epsilon`` is infinite without noise, ``variance_over_ldp`` is tr(W R W^T)
over that of independent noise, and ``distance_over_ldp`` the same for the models of a whole run of
quadratics."""


def on_graph(unit: Unit) -> tuple[Array, tuple[Mechanism, ...]]:
    """W, of the first connected graph from ``graph_seed`` on, and the mechanisms of a unit. Where W
    is singular, R has the cap of the settings."""
    keys = ("nodes", "p", "graph_seed", "steps", "cap")
    return _made(*(unit[key] for key in keys), tuple(unit["mechanisms"]))


@cache
def _made(
    nodes: int, p: float, seed: int, steps: int, cap: float, names: tuple[str, ...]
) -> tuple[Array, tuple[Mechanism, ...]]:
    drawn = (nx.gnp_random_graph(nodes, p, seed=k) for k in count(seed))
    w = mixing_matrix(next(filter(nx.is_connected, drawn)))
    singular = np.linalg.svd(w, compute_uv=False)[-1] < 1e-9
    network = Network(
        mixing=w, participation=every_step(steps), max_variance=cap if singular else None
    )
    return w, tuple(mechanism(name, network) for name in names)


def said(unit: Unit, *more: str) -> dict[str, Any]:
    """Return the arguments of a task that a unit states by the same names."""
    return {name: unit[name] for name in ("epsilons", "delta", "adjacency", "clip", *more)}


def covariance(w: Array, made: Mechanism, steps: int) -> Array | None:
    """Return the covariance (n, n) of one step, over that of LDP; None without noise."""
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


def quadratics_units(table: Any, network: Any) -> Iterator[Unit]:
    """A graph each, with gradients that are clipped or not."""
    for p in network.connectivities:
        for clipped in table.clipped:
            of_network = network.model_dump(exclude={"connectivities"})
            yield {**of_network, "p": p, **table.model_dump(), "clipped": clipped}


def quadratics_name(clip: float, *, clipped: bool) -> str:
    """Return the beginning, up to a comma, of the names of settings of this part."""
    return f"quadratics{' clipped at' if clipped else ', noise for a clip of'} {clip:g}"


def sizes(table: Unit) -> Array:
    """Step sizes eta_1 / sqrt t, shape (T,)."""
    return np.asarray(table["step_size"] / np.sqrt(np.arange(1, table["steps"] + 1)))


def workload(w: Array, loss: Quadratics, step_sizes: Array) -> Array:
    """Return H, (n, n), with tr(H R) the expected squared distance to models without noise."""
    n, d = loss.centers.shape
    blocks = np.zeros((n, d, n, d))
    blocks[range(n), :, range(n)] = loss.curvatures
    curvature = blocks.reshape(n * d, n * d)
    mixing = np.kron(w, np.eye(d))
    later, found = np.eye(n * d), np.zeros((n, n))
    # e_{t+1} = (W x I) ((I - eta_t A) e_t - eta_t z_t), A the curvatures, nothing clipped
    for eta in step_sizes[::-1]:
        mixed = mixing.T @ later @ mixing
        found += eta**2 * np.einsum("icjc->ij", mixed.reshape(n, d, n, d))
        kept = np.eye(n * d) - eta * curvature
        later = kept @ mixed @ kept
    return found


def quadratics_rows(unit: Unit) -> list[Record]:
    """Rows of every mechanism, budget and seed at ten steps."""
    w, made = on_graph(unit)
    loss = whisper_quadratics(unit["nodes"], degrees=unit["degrees"])
    steps, seeds = unit["steps"], range(unit["seeds"])
    least = float(loss.value(loss.minimizer, loss.examples))
    task = TrainingTask(
        loss=loss,
        examples=loss.examples,
        partition=lambda _: [np.array([node]) for node in range(unit["nodes"])],
        mixing=w,
        participation=every_step(steps),
        mechanisms=made,
        **said(unit),
        seeds=tuple(seeds),
        record=np.unique(np.linspace(0, steps, 11).astype(int)).tolist(),
    )
    step_sizes = sizes(unit)
    h = workload(w, loss, step_sizes)
    of_noise = {}
    for one in made:
        r = covariance(w, one, steps)
        distance = None if r is None else float(np.vdot(h, r) / np.trace(h))
        variance = variance_over_ldp(w, one, steps)
        of_noise[one.name] = {"variance_over_ldp": variance, "distance_over_ldp": distance}
    name = quadratics_name(unit["clip"], clipped=unit["clipped"])
    setting = {"setting": f"{name}, p = {unit['p']:g}"}
    rows = []
    for row in side_by_side(task, seeds, [step_sizes], clipped=unit["clipped"]):
        del row["number"]
        if not unit["clipped"]:
            row |= {"mu": None, "protects": "nothing: gradients are not clipped"}
        excess = None if row["train_loss"] is None else row["train_loss"] - least
        told = {"test_loss": excess, "step_size": unit["step_size"]}
        rows.append(setting | row | told | of_noise[row["mechanism"]])
    return rows


EXAMPLE, NODE = "example", "node"  # the unit that a budget protects


def incomes_units(table: Any, network: Any) -> Iterator[Unit]:
    """A graph each: its step sizes are tuned once, for all seeds."""
    of_network = network.model_dump(exclude={"connectivities"})
    values = table.model_dump(exclude={"protected"})
    for protected, connectivities in table.protected.items():
        whole = {"protected": NODE} if protected == NODE else {}
        for p in connectivities:
            yield {**of_network, "p": p, **values, **whole}


def incomes_rows(unit: Unit) -> list[Record]:
    """Rows of every mechanism, budget and seed, at the step size that was best in tuning."""
    w, made = on_graph(unit)
    step_sizes = unit["step_sizes"]
    among = _tuned(unit)
    ratios = {one.name: variance_over_ldp(w, one, unit["steps"]) for one in made}
    setting = {"setting": f"{name_of(unit.get('protected', EXAMPLE))}, p = {unit['p']:g}"}
    rows = []
    for seed in range(unit["seeds"]):
        task = _task(unit, seed, tuning=False)
        for row in side_by_side(task, [seed], step_sizes, among, scale=_scale(unit)):
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


def _tuned(unit: Unit) -> list[Chosen]:
    """Return mechanism, epsilon and number of the best step size."""
    return best(
        row
        for seed in range(unit["tuning_seeds"])
        for row in side_by_side(
            _task(unit, seed, tuning=True), [seed], unit["step_sizes"], scale=_scale(unit)
        )
    )


def _of_nodes(unit: Unit) -> bool:
    return unit.get("protected") == NODE


def _scale(unit: Unit) -> float:
    """Noise in sums over that of one gradient: a mean is a sum over the most of a batch."""
    return float(unit["batch_size"]) if _of_nodes(unit) else 1.0


@cache
def _records() -> Examples:
    return Examples.joined(a9a())


def _task(unit: Unit, seed: int, *, tuning: bool) -> TrainingTask:
    """Return the task of one seed: trained without the validation records where it is tuning."""
    examples = _records()
    shares = unit["shares"]
    of = split(len(examples), shares, np.random.default_rng([unit["split_seed"], seed]))
    kept = of["train"]
    if not tuning:
        kept = np.sort(np.concatenate([kept, of["validation"]]))
    train = examples.at(kept)
    w, made = on_graph(unit)
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
        test=examples.at(of["validation" if tuning else "test"]),
        mixing=w,
        participation=every_step(steps),
        mechanisms=made,
        **said(unit, "measured", "batch_size"),
        seeds=(seed,),
        record=record,
    )
