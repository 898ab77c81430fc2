"""A unit of the experiment: one seed in all lanes of a setting, which share batches and white
noise. Numbers are single, as those of the authors' code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from noisedesign.base.checks import Array, InputError
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign_lab.datasets import Examples, Places, movielens_small
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.papers.reproduce.zip_dl.attacks import classified, roc_auc, true_positives_at
from noisedesign_lab.papers.reproduce.zip_dl.ratings import BLOCK, START, Epoch, Single, dealt
from noisedesign_lab.tasks.training_task import columns
from noisedesign_lab.training.noise import MessageNoise
from noisedesign_lab.training.seeding import Use, generator

COLUMNS = columns(
    "setting:str mechanism:str rounds:int level stddev seed:int step:int test_rmse train_rmse "
    "whole_rmse present threshold_auc threshold_auc_mean threshold_tpr threshold_tpr_rare "
    "classifier_auc classifier_tpr classifier_tpr_rare ks_least ks_median ks_most ks_rejected "
    "shape_least shape_median shape_most shape_rejected status:str"
)
"""Columns of a row. ``level`` is k of the noise k sigma. RMSE is the mean over nodes, of ratings of
their own users (of all users, over the victims: ``whole_rmse``); ``present`` the share of nodes
that were in, so far. Attacks are told at the last step, means over victims: areas under the ROC
curve (``_mean``: over all messages that are kept), true positives at 1 % false ones (``_rare``: at
0.1 %). Those of Kolmogorov and Smirnov's test are of Assumption 5.6 alone."""

NONE, ZIP_DL, MUFFLIATO = "none", "zip-dl", "muffliato"
DIVERGED = 100.0  # RMSE in stars beyond which a run is given up


@cache
def _every() -> Examples:
    return movielens_small()


def empty_row() -> Record:
    """Return a row with nothing in its columns."""
    return dict.fromkeys(COLUMNS)


class Task:
    """The data and the network of one unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        rng = np.random.default_rng([unit["split_seed"], unit["seed"]])
        self.train, self.test = dealt(_every(), unit["nodes"], unit["test"], rng)
        for part in (self.train, self.test):
            if np.bincount(part.node, minlength=unit["nodes"]).min() == 0:
                expected = "nodes that all have ratings to train and to test on"
                raise InputError("variants.nodes", expected=expected, got=f"{unit['nodes']} nodes")
        rows = 1 + int(max(part.rows.max() for part in (self.train, self.test)))
        self.shape = -(-rows // BLOCK), unit["nodes"], BLOCK, unit["factors"]
        self.lanes = len(unit.get("lanes", [None]))
        count = unit.get("victims", 0)
        self.victims = np.sort(rng.choice(unit["nodes"], size=count, replace=False))

    @cached_property
    def mixing(self) -> Array:
        """W, shape (n, n)."""
        keys = {name: self.unit[name] for name in ("nodes", "degree")}
        return mixing_matrix(build_graph("random-regular", **keys, seed=self.unit["graph_seed"]))

    @cached_property
    def logged(self) -> set[int]:
        """Steps after which models are measured; messages of these steps are attacked."""
        steps, models = self.unit["steps"], self.unit["models"]
        return {max(1, round(steps * k / (models - 1))) for k in range(models)}

    def start(self) -> Single:
        """Models of all lanes and nodes, (E, blocks, n, BLOCK, factors): one start."""
        blocks, _, *block = self.shape
        drawn = generator(self.unit["seed"], Use.START).uniform(-START, START, (blocks, 1, *block))
        shape = (self.lanes, *self.shape)
        return np.broadcast_to(drawn.astype(np.float32), shape).copy()


def message_scale(w: Array) -> float:
    """Standard deviation of the noise of one message for unit Y, the mean over messages."""
    noise = MessageNoise(mixing=w)
    count = len(noise.edges[0])
    return float(np.sqrt(np.square(noise.messages(np.eye(count)[None])[0]).sum(axis=1).mean()))


def joint_factor(w: Array, victims: Places, lost: NDArray[np.bool_]) -> Array:
    """F, lower triangular, (n + V, n + V), with F F^T the covariance of what nodes are left with of
    Zip-DL's noise for unit Y, then of that on each victim's message to its first neighbour. Nodes
    that are ``lost`` neither send nor receive, which others' noise does not know."""
    noise = MessageNoise(mixing=w)
    senders, receivers = noise.edges
    messages = noise.messages(np.eye(len(senders))[None])[0]
    seen = [np.flatnonzero((senders == u) & (receivers != u))[0] for u in victims]
    single = messages[seen]
    messages[lost[senders] | lost[receivers]] = 0.0
    rows = np.concatenate([noise.received(messages[None])[0], single])
    # Triangular by QR: noise that cancels does so to rounding, and not to its root.
    return np.asarray(np.linalg.qr(rows.T)[1].T)


def without(w: Array, lost: NDArray[np.bool_]) -> Array:
    """W of a step that some nodes are out of: their weight goes to who would have heard them."""
    kept = np.where(lost[:, None] | lost, 0.0, w)
    np.fill_diagonal(kept, 0.0)
    return np.asarray(kept + np.diag(1 - kept.sum(axis=1)))


def presence(
    rate: float, correlation: float, nodes: int, rng: np.random.Generator
) -> Iterator[NDArray[np.bool_]]:
    """Yield who is in at each step: out with probability ``rate``, and rate + correlation (1 -
    rate) for who was out the step before; everybody was in before the first."""
    out = np.zeros(nodes, dtype=bool)
    while True:
        out = rng.random(nodes) < np.where(out, rate + correlation * (1 - rate), rate)
        yield ~out


class Mixing:
    """Noise on what is sent in the first of K rounds, and the K rounds, of all lanes at once."""

    def __init__(self, task: Task) -> None:
        self.task, self.scale = task, message_scale(task.mixing)
        self.stddev = [np.float32(level * task.unit["sigma"]) for *_, level in task.unit["lanes"]]
        self.zero_sum = any(name == ZIP_DL for name, *_ in task.unit["lanes"])
        self._set(np.ones(len(task.mixing), dtype=bool))

    def _set(self, present: NDArray[np.bool_]) -> None:
        """Matrices of a step with these nodes in, by rounds: of models, of white noise."""
        n, w = len(present), without(self.task.mixing, ~present)
        found = joint_factor(self.task.mixing, self.task.victims, ~present) / self.scale
        self.single = found[n:].astype(np.float32)
        self.power: dict[int, Any] = {}
        self.left: dict[int, Single] = {}
        for rounds in {rounds for _, rounds, _ in self.task.unit["lanes"]}:
            later = np.linalg.matrix_power(w, rounds - 1)
            power = (later @ w).astype(np.float32)
            self.power[rounds] = power if rounds > 1 else csr_array(power)
            self.left[rounds] = (later @ found[:n, :n]).astype(np.float32)

    def step(
        self, models: Single, rng: np.random.Generator, present: NDArray[np.bool_], *, seen: bool
    ) -> Single:
        """Mix the models of every lane in place; return what victims sent, (E, V, rows, f)."""
        if self.task.unit["dropout"]:
            self._set(present)
        n, victims = len(present), self.task.victims if seen else self.task.victims[:0]
        flat = models.reshape(*models.shape[:2], n, -1)
        sent = np.empty((len(flat), len(victims), *flat.shape[1::2]), dtype=np.float32)
        kinds = {(name, rounds) for name, rounds, _ in self.task.unit["lanes"]}
        for block in range(flat.shape[1]):
            added: dict[tuple[str, int], tuple[Single, Single]] = {}  # to a model, to a message
            if any(self.stddev):
                white = rng.standard_normal((n + len(victims), flat.shape[3]), dtype=np.float32)
                own = present[:, None] * white[:n]
                of_messages = self.single @ white if seen and self.zero_sum else own[victims]
                for name, rounds in kinds:
                    if name == ZIP_DL:
                        added[name, rounds] = self.left[rounds] @ white[:n], of_messages
                    else:
                        added[name, rounds] = own, own[victims]
            for k, (name, rounds, _) in enumerate(self.task.unit["lanes"]):
                lane, stddev = flat[k, block], self.stddev[k]
                power = self.power[rounds]
                if not stddev:
                    sent[k, :, block] = lane[victims]
                    lane[...] = power @ lane
                    continue
                to_model, to_message = added[name, rounds]
                sent[k, :, block] = lane[victims] + stddev * to_message
                if name == ZIP_DL:
                    lane[...] = power @ lane + stddev * to_model
                else:
                    lane[...] = power @ (lane + stddev * to_model)
        return sent.reshape(*sent.shape[:2], models.shape[1] * BLOCK, models.shape[-1])


def run(unit: Unit) -> list[Record]:
    """Rows of all lanes, a mechanism, rounds and a noise level each, for one seed."""
    task, seed = Task(unit), unit["seed"]
    models, mixing, attacker = task.start(), Mixing(task), Attacker(task)
    epoch = Epoch(
        ratings=task.train, size=unit["batch_size"], step_size=unit["step_size"], clip=unit["clip"]
    )
    who = presence(unit["dropout"], unit["correlation"], unit["nodes"], generator(seed, Use.GOSSIP))
    noise = np.random.Generator(np.random.SFC64([seed, Use.NOISE]))  # a third faster than PCG64
    rows: list[Record] = []
    was_in = 0.0
    for step in range(1, unit["steps"] + 1):
        present, wanted = next(who), step in task.logged
        was_in += float(present.mean())
        with np.errstate(over="ignore", invalid="ignore"):  # diverged runs are told as such
            epoch.run(models, generator(seed, Use.BATCHES, step), present)
            sent = mixing.step(models, noise, present, seen=wanted)
            for k, messages in enumerate(sent if wanted else ()):
                attacker.keep(k, messages)
            found = [_measured(task, lane) for lane in models] if wanted else []
        for (name, rounds, level), of in zip(unit["lanes"], found, strict=False):
            rows.append(
                empty_row()
                | {"setting": unit["setting"], "mechanism": name, "rounds": rounds, "seed": seed}
                | {"level": level, "stddev": level * unit["sigma"], "step": step}
                | {"present": was_in / step, **of}
            )
    if unit["victims"]:
        for k, row in enumerate(rows[-len(unit["lanes"]) :]):
            if row["status"] == "ok":
                row |= attacker.found(k)
    return rows


def _measured(task: Task, models: Single) -> Record:
    """RMSE of the models of one lane: of each node on its own users, and of victims on all."""
    found: Record = {}
    for name, part in (("test_rmse", task.test), ("train_rmse", task.train)):
        squares = np.square(part.errors_at_home(models).astype(np.float64))
        count = np.bincount(part.node, minlength=models.shape[1])
        sums = np.bincount(part.node, squares, minlength=models.shape[1])
        found[name] = _finite(np.sqrt(sums / count).mean())
    seen = (models[:, v].reshape(-1, models.shape[-1]) for v in task.victims)
    every = [np.square(task.test.errors(model), dtype=np.float64) for model in seen]
    if every:
        found["whole_rmse"] = _finite(np.mean([np.sqrt(of.mean()) for of in every]))
    gone = found["test_rmse"] is None or found["test_rmse"] > DIVERGED
    return found | {"status": "diverged" if gone else "ok"}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


class Attacker:
    """The first neighbour of each victim, who keeps the losses of ratings under its messages."""

    def __init__(self, task: Task) -> None:
        unit = task.unit
        self.task = task
        self.rng = np.random.default_rng([unit["split_seed"], unit["seed"], 1])
        count = min(unit["others"], len(task.test))
        self.some = self.rng.choice(len(task.test), size=count, replace=False)
        self.members = [task.train.at(np.flatnonzero(task.train.node == v)) for v in task.victims]
        lanes = range(len(unit["lanes"]))
        self.series: list[list[list[tuple[Array, Array]]]] = [
            [[] for _ in task.victims] for _ in lanes
        ]
        self.areas: list[list[list[float]]] = [[[] for _ in task.victims] for _ in lanes]
        self.last: list[list[tuple[Array, Array]]] = [[] for _ in lanes]

    def keep(self, lane: int, sent: Single) -> None:
        """Keep the losses under one message of every victim."""
        self.last[lane] = []
        for place, message in enumerate(sent):
            own, rest = (
                np.nan_to_num(np.square(part.errors(message), dtype=np.float64), nan=1e300)
                for part in (self.members[place], self.task.test)
            )
            self.areas[lane][place].append(roc_auc(-own, -rest))
            self.last[lane].append((-own, -rest))
            self.series[lane][place].append((own, rest[self.some]))

    def found(self, lane: int) -> Record:
        """Return the means of both attacks over victims."""
        told: dict[str, list[float]] = {}
        for place, series in enumerate(self.series[lane]):
            own, rest = (np.stack(side, axis=1) for side in zip(*series, strict=True))
            pairs = {
                "threshold": self.last[lane][place],
                "classifier": classified(own, rest, self.rng, epochs=self.task.unit["epochs"]),
            }
            area = float(np.mean(self.areas[lane][place]))
            told.setdefault("threshold_auc_mean", []).append(area)
            for name, (members, others) in pairs.items():
                told.setdefault(f"{name}_auc", []).append(roc_auc(members, others))
                for end, rate in (("tpr", 0.01), ("tpr_rare", 0.001)):
                    found = true_positives_at(rate, members, others)
                    told.setdefault(f"{name}_{end}", []).append(found)
        return {name: float(np.mean(values)) for name, values in told.items()}
