"""Likelihood ratios of messages of the trainer, over bins that the attacker does not know.

In one world a record of one coordinate takes part, in the other it is zero; every coordinate has a
record of its own, and so do all seeds, which makes thousands of runs of a few. The attacker reads
every message, knows W, C, R and all other records, and nothing of the claimed sensitivity is used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
from scipy.special import logsumexp

import noisedesign as nd
from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.tasks.mechanisms import Mechanism, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.trainer import Lane, train
from tests.support import oracles
from tests.support.training_cases import Recorder

SCHEME = nd.participation.BallsInBins(epochs=2, separation=4)
T, NODES, VICTIMS, SEEDS = SCHEME.horizon, 3, 150, 80
W = oracles.metropolis(nx.path_graph(NODES))
CLIP, ETA, EPSILON, DELTA = 0.5, 0.25, 0.5, 0.2
SPREAD = 5 * math.sqrt((1 + math.exp(2 * EPSILON)) / 4 / (VICTIMS * SEEDS))
"""Five standard deviations, at most, of P(A) - e^eps Q(A) from as many draws of each."""


def task(node: int, change: float, **other: Any) -> TrainingTask:
    """Every node has a record for every coordinate; those of one node have gradients of the size of
    a clip, times ``change``, and all others none."""
    features = np.zeros((NODES, VICTIMS, VICTIMS))
    features[node] = -10 * CLIP * change * np.eye(VICTIMS)
    fields: dict[str, Any] = {
        "loss": Quadratic(dimension=VICTIMS, curvature=0.0),
        "examples": Examples(
            features=features.reshape(-1, VICTIMS), targets=np.zeros(NODES * VICTIMS)
        ),
        "partition": lambda rng: list(np.arange(NODES * VICTIMS).reshape(NODES, VICTIMS)),
        "mixing": W,
        "participation": SCHEME,
        "epsilons": [EPSILON],
        "delta": DELTA,
        "adjacency": "zero-out",
        "clip": CLIP,
        "step_sizes": ETA,
    }
    return TrainingTask(**fields | other)


def seen(
    lane: Lane, node: int, change: float, first: int, *, share: float = 1 / 4, **other: Any
) -> Array:
    """Every node adds this to its model by itself, in sums of gradients, (T n, S victims).

    Sums are divided by the ``share`` of a node's records that a batch is expected to have.
    """
    recorder = Recorder()
    run = task(node, change, **other).run_of_all
    list(train(run, [lane], seeds=range(first, first + SEEDS), observer=recorder))
    before, own = np.zeros((SEEDS, NODES, VICTIMS)), []
    for sent in recorder.messages:
        own.append((before - sent[:, :, 0]) * (VICTIMS * share) / ETA)
        before = W @ sent[:, :, 0]
    return np.stack(own).transpose(0, 2, 1, 3).reshape(-1, SEEDS * VICTIMS)


def covariance(made: Mechanism) -> Array:
    """Covariance of the unit noise of all steps and nodes, time-major."""
    c, r = np.eye(T), np.eye(NODES)
    if made.name.startswith("bsr"):
        coefficients = [math.comb(2 * j, j) / 4**j for j in range(int(made.name[-1]))]
        c = sum(value * np.eye(T, k=-j) for j, value in enumerate(coefficients))
    elif made.design is not None:
        c = c if made.design.noise.strategy is None else made.design.strategy
        r = r if made.design.noise.space is None else made.design.covariance
    inverse = np.linalg.inv(c)
    return np.kron(inverse @ inverse.T, r)


class Bins(NamedTuple):
    """The shifts of what is seen, a column a bin, and the precision of its noise."""

    shifts: Array
    precision: Array

    @classmethod
    def of(cls, made: Mechanism, node: int, stddev: float) -> Bins:
        shifts = np.zeros((T, NODES, SCHEME.separation))
        for j in range(SCHEME.separation):
            shifts[j :: SCHEME.separation, node, j] = CLIP
        precision: Array = np.linalg.inv(covariance(made)) / stddev**2
        return cls(shifts.reshape(T * NODES, -1), precision)

    def logs(self, own: Array) -> Array:
        """Logarithm of the likelihood of every bin over that of none, (bins, draws)."""
        weights = self.precision @ self.shifts
        half = np.einsum("xj,xj->j", self.shifts, weights) / 2
        return np.asarray(weights.T @ own - half[:, None])

    def log_ratio(self, own: Array) -> Array:
        """Logarithm of the mixture over no record at all."""
        return np.asarray(logsumexp(self.logs(own), axis=0) - math.log(SCHEME.separation))

    def most_exposed(self) -> float:
        return float(np.einsum("xj,xy,yj->j", self.shifts, self.precision, self.shifts).max())


def deltas(with_it: Array, without: Array) -> tuple[float, float]:
    """P(A) - e^eps Q(A) of the best events of both directions, by log likelihood ratios."""
    large = math.exp(EPSILON)
    remove = (with_it > EPSILON).mean() - large * (without > EPSILON).mean()
    add = (without < -EPSILON).mean() - large * (with_it < -EPSILON).mean()
    return float(remove), float(add)


def exposed(made: Mechanism) -> int:
    """The node that shows most of its records."""
    return int(np.argmax([Bins.of(made, u, 1.0).most_exposed() for u in range(NODES)]))


def attacked(name: str, *, account: str = "random", quieter: float = 1.0) -> float:
    """The larger of both directions' deltas."""
    setting = task(0, 0.0, accounts=[account])
    made = mechanism(name, setting.network)
    ((lane, _),) = setting.lanes(made)
    loud, node = replace(lane, stddev=lane.stddev * quieter), exposed(made)
    bins = Bins.of(made, node, loud.stddev)
    return max(deltas(*(bins.log_ratio(seen(loud, node, x, 0)) for x in (1.0, 0.0))))


@pytest.mark.parametrize("name", ["ldp", "bsr-3", pytest.param("whisper", marks=pytest.mark.slow)])
def test_who_reads_all_messages_learns_what_the_account_says_and_no_more(name: str) -> None:
    found = attacked(name)
    assert found <= DELTA + SPREAD
    assert found >= DELTA - SPREAD


@pytest.mark.parametrize("name", ["ldp", "bsr-3"])
def test_noise_that_is_too_quiet_is_found_out(name: str) -> None:
    assert attacked(name, quieter=0.7) > DELTA + SPREAD


def test_noise_of_the_fixed_account_is_louder_than_random_bins_ask_for() -> None:
    assert attacked("ldp", account="fixed") < DELTA - SPREAD


def test_who_knows_the_bins_learns_more_than_the_account_says() -> None:
    """The draw is a secret. Those of a seed and node are the same with and without noise."""
    setting = task(0, 0.0)
    made = mechanism("ldp", setting.network)
    ((lane, _),) = setting.lanes(made)
    silent = seen(replace(lane, source=None, stddev=0.0, counts_on=None), 0, 1.0, 0)
    bins = Bins.of(made, 0, lane.stddev)
    bin_of = (bins.shifts.T @ silent).argmax(axis=0)
    known = [bins.logs(seen(lane, 0, x, 0))[bin_of, np.arange(SEEDS * VICTIMS)] for x in (1.0, 0.0)]
    assert max(deltas(*known)) > DELTA + SPREAD


def test_one_record_for_another() -> None:
    """Two mixtures, whose changes point against each other: within the account of replacement."""
    setting = task(0, 0.0, adjacency="replace")
    made = mechanism("ldp", setting.network)
    ((lane, _),) = setting.lanes(made)
    bins = Bins.of(made, 0, lane.stddev)
    against = Bins(-bins.shifts, bins.precision)
    ratios = [
        bins.log_ratio(own) - against.log_ratio(own)
        for own in (seen(lane, 0, 1.0, 0), seen(lane, 0, -1.0, 0))
    ]
    found = max(deltas(*ratios))
    assert 0.2 * DELTA < found <= DELTA + SPREAD


POISSON = nd.participation.CyclicPoisson(epochs=5, separation=1, rate=0.3)


@pytest.mark.parametrize(
    ("account", "quieter", "sign"),
    [
        ("random", 1.0, 0),
        pytest.param("random", 0.7, 1, marks=pytest.mark.slow),
        pytest.param("fixed", 1.0, -1, marks=pytest.mark.slow),
    ],
)
def test_coins_of_every_step(account: str, quieter: float, sign: int) -> None:
    """The ratio of a record that a coin lets in, step by step: what the account says and no more,
    more where noise is too quiet, and less by far under the account of batches that are known."""
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    setting = task(0, 0.0, participation=POISSON, accounts=[account])
    ((lane, row),) = setting.lanes(mechanism("ldp", setting.network))
    assert row["which"] == ("composition" if account == "random" else "gaussian")
    loud = replace(lane, stddev=lane.stddev * quieter)
    size, rate = CLIP / loud.stddev, POISSON.rate

    def ratios(change: float) -> Array:
        own = seen(loud, 0, change, 0, share=rate, participation=POISSON)
        x = own.reshape(POISSON.horizon, NODES, -1)[:, 0] / loud.stddev
        return np.asarray(np.log1p(rate * np.expm1(size * x - size**2 / 2)).sum(axis=0))

    found = max(deltas(ratios(1.0), ratios(0.0)))
    assert (found > DELTA + SPREAD) == (sign > 0)
    assert (found < DELTA - SPREAD) == (sign < 0)


def test_batches_that_are_not_random_are_refused() -> None:
    setting = task(0, 0.0)
    lanes = [lane for lane, _ in setting.lanes(mechanism("ldp", setting.network))]
    fixed = task(0, 0.0, participation=SCHEME.fixed).run_of_all
    with pytest.raises(InputError, match="rule: expected batches drawn at random"):
        list(train(fixed, lanes, seeds=[0]))
