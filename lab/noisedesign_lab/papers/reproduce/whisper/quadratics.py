"""The quadratic objectives of section VI: a valley a node, whole clipped gradients, step sizes
eta_1 / sqrt t. ``test_loss`` is the mean objective at every node's model, less its minimum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.system.participation import every_step
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.whisper import lanes
from noisedesign_lab.tasks.training_task import TrainingTask
from noisedesign_lab.training.losses.quadratics import Quadratics, whisper_quadratics


def units(table: Any, network: Any) -> Iterator[Unit]:
    """A graph and a clip each."""
    keys = ("steps", "step_size", "degrees", "seeds")
    for p in network.connectivities:
        for clip in table.clips:
            of_network = network.model_dump(exclude={"connectivities"})
            values = {key: getattr(table, key) for key in keys}
            yield {**of_network, "p": p, "clip": clip, **values}


def sizes(table: Unit) -> Array:
    """Step sizes eta_1 / sqrt t, shape (T,)."""
    return np.asarray(table["step_size"] / np.sqrt(np.arange(1, table["steps"] + 1)))


def workload(w: Array, loss: Quadratics, step_sizes: Array) -> Array:
    """Return H (n, n): tr(H R) is the expected squared distance of the last models to those without
    noise where nothing is clipped, from e_{t+1} = (W x I) ((I - eta_t A) e_t - eta_t z_t), A the
    curvatures."""
    n, d = loss.centers.shape
    blocks = np.zeros((n, d, n, d))
    blocks[range(n), :, range(n)] = loss.curvatures
    curvature = blocks.reshape(n * d, n * d)
    mixing = np.kron(w, np.eye(d))
    later, found = np.eye(n * d), np.zeros((n, n))
    for eta in step_sizes[::-1]:
        mixed = mixing.T @ later @ mixing
        found += eta**2 * np.einsum("icjc->ij", mixed.reshape(n, d, n, d))
        kept = np.eye(n * d) - eta * curvature
        later = kept @ mixed @ kept
    return found


def run(unit: Unit) -> list[Record]:
    """Rows of every mechanism, budget and seed at ten steps."""
    w, made = lanes.on_graph(unit)
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
        **lanes.said(unit),
        seeds=tuple(seeds),
        record=np.unique(np.linspace(0, steps, 11).astype(int)).tolist(),
    )
    step_sizes = sizes(unit)
    h = workload(w, loss, step_sizes)
    of_noise = {}
    for one in made:
        r = lanes.covariance(w, one, steps)
        distance = None if r is None else float(np.vdot(h, r) / np.trace(h))
        variance = lanes.variance_over_ldp(w, one, steps)
        of_noise[one.name] = {"variance_over_ldp": variance, "distance_over_ldp": distance}
    setting = {"setting": f"quadratics, clip {unit['clip']:g}, p = {unit['p']:g}"}
    rows = []
    for row in lanes.side_by_side(task, seeds, [step_sizes]):
        del row["number"]
        excess = None if row["train_loss"] is None else row["train_loss"] - least
        told = {"test_loss": excess, "step_size": unit["step_size"]}
        rows.append(setting | row | told | of_noise[row["mechanism"]])
    return rows
