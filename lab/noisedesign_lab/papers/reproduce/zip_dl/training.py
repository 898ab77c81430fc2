"""MovieLens at 100 nodes: ratings as products, all factors shared, noise on what is sent, and
membership attacks on a victim's messages. A node that is out of a step keeps its model; noise of
Zip-DL that was made for it is then missing elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata

from noisedesign.base.checks import Array
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import every_step
from noisedesign.system.random_mixing import NodeDropout
from noisedesign_lab.datasets import Examples, movielens_small
from noisedesign_lab.papers.reproduce.experiment import Record, Unit
from noisedesign_lab.tasks.training_task import columns
from noisedesign_lab.training.gossip import FixedGossip, Gossip, RandomGossip
from noisedesign_lab.training.losses.models import MatrixFactorization
from noisedesign_lab.training.noise import MessageNoise, NodeNoise, Source, WhiteNoise
from noisedesign_lab.training.partition import by_user, split
from noisedesign_lab.training.seeding import Use, generator
from noisedesign_lab.training.trainer import Lane, Run, Seen, train

COLUMNS = columns(
    "setting:str mechanism:str level stddev seed:int step:int test_rmse train_rmse "
    "consensus_distance threshold_auc threshold_tpr classifier_auc classifier_tpr status:str"
)
"""Columns of a row; ``level`` is k of the noise k sigma; attacks are told at the last step, the
mean over victims: area under the ROC curve, and true positives at 1 % false ones."""

NONE, ZIP_DL, MUFFLIATO = "none", "zip-dl", "muffliato"
NO_DROPOUT = "no dropout"


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageNoiseWithDropout(MessageNoise):
    """Zip-DL's noise where nodes, told by rows of the identity in a step's W, drop out."""

    gossip: RandomGossip

    def stream(self, white: WhiteNoise) -> Iterator[Array]:
        for step in range(white.steps):
            mixing = self.gossip.at(step, white.seeds)(1)
            yield np.stack(
                [self.root(w) @ one for w, one in zip(mixing, white.at(step), strict=True)]
            )

    def root(self, w: Array) -> Array:
        """F, (n, n), with F F^T the covariance of what is received under W of one step."""
        senders, receivers = self.edges
        out = np.array([row[i] == 1.0 for i, row in enumerate(w)])
        lost = out[senders] | out[receivers]
        unit = np.eye(len(senders))
        messages = self.messages(unit[None])[0]
        messages[lost] = 0.0
        factor = self.received(messages[None])[0]
        return np.asarray(np.linalg.qr(factor.T)[1].T)


@cache
def _ratings(least: int) -> Examples:
    """MovieLens small, of films with at least so many ratings."""
    every = movielens_small()
    films = every.features[:, 1].astype(np.intp)
    kept = np.flatnonzero(np.bincount(films)[films] >= least)
    found = every.at(kept)
    numbers = np.unique(found.features[:, 1], return_inverse=True)[1]
    features = np.stack([found.features[:, 0], numbers.astype(np.float64)], axis=1)
    return Examples(features=features, targets=found.targets, owners=found.owners)


class Task:
    """The data, loss and network that all lanes of one unit share."""

    def __init__(self, unit: Unit) -> None:
        every, seed = _ratings(unit["least_ratings"]), unit["seed"]
        shares = {"train": 1 - unit["test"], "test": unit["test"]}
        of = split(len(every), shares, np.random.default_rng([unit["split_seed"], seed]))
        size = {name: unit[name] for name in ("nodes", "degree")}
        graph = build_graph("random-regular", **size, seed=unit["graph_seed"])
        self.unit, self.mixing = unit, mixing_matrix(graph)
        self.train, self.test = (every.at(of[part]) for part in ("train", "test"))
        users, films = (int(every.features[:, k].max()) + 1 for k in (0, 1))
        self.loss = MatrixFactorization(
            users=users, items=films, factors=unit["factors"], private_users=False
        )
        self.parts = by_user(self.train.owners, unit["nodes"])(generator(seed, Use.PARTS))

    def run(self, gossip: Gossip) -> Run:
        """The trainer's run."""
        unit = self.unit
        return Run(
            loss=self.loss,
            examples=self.train,
            partition=lambda _: self.parts,
            gossip=gossip,
            rule=every_step(unit["steps"]).rule,
            horizon=unit["steps"],
            clip=unit["clip"],
            batch_size=unit["batch_size"],
            record=self.logged,
            test=self.test,
            measured=unit["measured"],
        )

    @property
    def logged(self) -> list[int]:
        """Steps after which models are measured; messages of these steps are attacked."""
        steps, models = self.unit["steps"], self.unit["models"]
        return sorted({max(1, round(steps * k / (models - 1))) for k in range(models)})

    @property
    def sizes(self) -> Array:
        """Return the divisors of the nodes' sums, their largest batches, shape (n,)."""
        count = np.array([len(part) for part in self.parts], dtype=np.float64)
        return np.asarray(np.ceil(count / np.ceil(count / self.unit["batch_size"])))

    @property
    def independent(self) -> NodeNoise:
        """Noise on sums of one standard deviation on every model, whatever its node divides by."""
        return NodeNoise(root=np.diag(self.sizes / self.sizes.min()))

    def lane(self, source: Source | None, stddev: float, *, name: str, rounds: int = 1) -> Lane:
        """Return a lane with noise of that standard deviation on the model."""
        step_size = self.unit["step_size"]
        unit = stddev * float(self.sizes.min()) / step_size
        return Lane(source=source, stddev=unit, step_sizes=step_size, rounds=rounds, name=name)


def zip_dl_scale(w: Array) -> float:
    """Standard deviation of the noise of one message for unit Y, the mean over messages."""
    noise = MessageNoise(mixing=w)
    count = len(noise.edges[0])
    return float(np.sqrt(np.square(noise.messages(np.eye(count)[None])[0]).sum(axis=1).mean()))


def run(unit: Unit) -> list[Record]:
    """Rows of all mechanisms and noise levels for one seed."""
    task = Task(unit)
    gossip: Gossip = FixedGossip(mixing=task.mixing)
    noise: MessageNoise = MessageNoise(mixing=task.mixing)
    setting = NO_DROPOUT if unit["victims"] else f"dropout {unit['dropout']:.0%}"
    if unit["dropout"]:
        gossip = RandomGossip(random=NodeDropout(mixing=task.mixing, probability=unit["dropout"]))
        noise = MessageNoiseWithDropout(mixing=task.mixing, gossip=gossip)
    named: list[tuple[str, float, Lane]] = [(NONE, 0.0, task.lane(None, 0.0, name=NONE))]
    scale = zip_dl_scale(task.mixing)
    independent = task.independent
    for level in unit["levels"]:
        stddev = level * unit["sigma"]
        named.append((ZIP_DL, level, task.lane(noise, stddev / scale, name=ZIP_DL)))
        for rounds in unit["rounds"]:
            name = f"{MUFFLIATO}-{rounds}"
            lane = task.lane(independent, stddev, name=name, rounds=rounds)
            named.append((name, level, lane))
    attacker = (
        Attacker(task, [(name, level) for name, level, _ in named]) if unit["victims"] else None
    )
    rows: list[Record] = []
    lanes = [lane for *_, lane in named]
    for measured in train(task.run(gossip), lanes, seeds=[unit["seed"]], observer=attacker):
        for k, (name, level, _) in enumerate(named):
            tests, apart = measured.test_loss, measured.consensus_distance[0, k]
            assert tests is not None
            rows.append(
                dict.fromkeys(COLUMNS)
                | {
                    "setting": setting,
                    "mechanism": name,
                    "level": level,
                    "stddev": level * unit["sigma"],
                    "seed": unit["seed"],
                    "step": measured.step,
                    "test_rmse": _root(tests[0, k]),
                    "train_rmse": _root(measured.train_loss[0, k]),
                    "consensus_distance": float(apart) if math.isfinite(apart) else None,
                    "status": "diverged" if measured.diverged[0, k] else "ok",
                }
            )
    if attacker is not None:
        for row, found in zip(rows[-len(named) :], attacker.found(), strict=True):
            row |= found
    return rows


def _root(value: float) -> float | None:
    return math.sqrt(value) if math.isfinite(value) else None


class Attacker:
    """A neighbour of each victim, who keeps the losses of ratings under its messages. Noise of
    Zip-DL for one neighbour is drawn here: it is never formed for single messages."""

    def __init__(self, task: Task, lanes: Sequence[tuple[str, float]]) -> None:
        unit = task.unit
        self.task, self.lanes = task, lanes
        rng = np.random.default_rng([unit["split_seed"], unit["seed"], 1])
        self.rng = rng
        self.victims = np.sort(rng.choice(unit["nodes"], size=unit["victims"], replace=False))
        others = rng.choice(len(task.test), size=min(unit["others"], len(task.test)), replace=False)
        self.others = task.test.at(others)
        self.members = [task.train.at(task.parts[victim]) for victim in self.victims]
        self.wanted = set(task.logged)
        self.series: list[list[list[Array]]] = [[[] for _ in self.victims] for _ in lanes]

    def __call__(self, seen: Seen) -> None:
        if seen.step + 1 not in self.wanted:
            return
        for place, victim in enumerate(self.victims):
            for k, (name, level) in enumerate(self.lanes):
                message = seen.messages[0, victim, k]
                if name == ZIP_DL:
                    stddev = level * self.task.unit["sigma"]
                    message = message + stddev * self.rng.standard_normal(len(message))
                every = [self._losses(message, x) for x in (self.members[place], self.others)]
                self.series[k][place].append(np.concatenate(every))

    def _losses(self, model: Array, examples: Examples) -> Array:
        loss = self.task.loss
        rows = model.reshape(-1, loss.factors)
        user, film = examples.features.astype(np.intp).T
        product = np.einsum("nf,nf->n", rows[user], rows[loss.users + film])
        return np.asarray(np.square(loss.center + product - examples.targets))

    def found(self) -> Iterator[Record]:
        """Yield the scores of both attacks on each lane."""
        for of_lane in self.series:
            told: dict[str, list[float]] = {}
            for place, series in enumerate(of_lane):
                table = np.nan_to_num(np.stack(series, axis=1), nan=1e300, posinf=1e300)
                members, others = np.split(table, [len(self.members[place])])
                pairs = {
                    "threshold": (-members[:, -1], -others[:, -1]),
                    "classifier": classified(members, others, self.rng),
                }
                for name, (own, rest) in pairs.items():
                    told.setdefault(f"{name}_auc", []).append(roc_auc(own, rest))
                    rate = true_positives_at(0.01, own, rest)
                    told.setdefault(f"{name}_tpr", []).append(rate)
            yield {name: float(np.mean(values)) for name, values in told.items()}


def roc_auc(members: Array, others: Array) -> float:
    """Probability that a member scores above another, ties counting half (Mann and Whitney)."""
    ranks = rankdata(np.concatenate([members, others]))
    m, o = len(members), len(others)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * o))


def true_positives_at(rate: float, members: Array, others: Array) -> float:
    """Share of members above a threshold that at most ``rate`` of the others exceed."""
    allowed = int(np.floor(rate * len(others) * (1 + 1e-12)))
    descending = np.sort(others)[::-1]
    threshold = descending[allowed] if allowed < len(others) else -np.inf
    return float((members > threshold).mean())


def classified(members: Array, others: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the scores that logistic regression of log losses gives to those it did not see."""
    parts = [np.split(rng.permutation(len(x)), [round(0.7 * len(x))]) for x in (members, others)]
    logs = [np.log(x + 1e-9) for x in (members, others)]
    known = np.concatenate([x[learn] for x, (learn, _) in zip(logs, parts, strict=True)])
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale == 0] = 1.0
    inputs = np.hstack([(known - mean) / scale, np.ones((len(known), 1))])
    count = len(parts[0][0])
    labels = np.where(np.arange(len(known)) < count, 1.0, -1.0)
    decay = 1e-2  # weight of |w|^2 / 2 beside the mean loss
    weights = np.where(labels > 0, 0.5 / count, 0.5 / (len(known) - count))

    def objective(w: Array) -> tuple[float, Array]:
        margins = labels * (inputs @ w)
        slopes = -weights * labels * expit(-margins)
        value = weights @ np.logaddexp(0.0, -margins) + decay / 2 * w @ w
        return float(value), inputs.T @ slopes + decay * w

    w = minimize(objective, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x
    scores = [
        ((x[judge] - mean) / scale) @ w[:-1] for x, (_, judge) in zip(logs, parts, strict=True)
    ]
    return scores[0], scores[1]
