"""A likelihood-ratio test of two neighbouring data sets, from the messages of the trainer.

The attacker reads every message that is sent, knows W, the mechanism and all data but one example,
and which batch that is in. Nothing it does uses the claimed sensitivity.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.privacy import views
from noisedesign.privacy.views import Algorithm
from noisedesign.tasks.simulation.audit import AuditReport, audit
from noisedesign_lab.datasets import Examples
from noisedesign_lab.tasks.mechanisms import Mechanism, mechanism
from noisedesign_lab.tasks.training_task import TrainingTask
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.noise import MessageNoise
from noisedesign_lab.training.trainer import Lane, train
from tests.support import oracles
from tests.support.training_cases import Recorder

SCHEME = nd.participation.FixedEpoch(epochs=2, separation=2)
T = SCHEME.horizon
W = oracles.metropolis(nx.path_graph(3))
CLIP, ETA, EPSILON, DELTA = 0.5, 0.25, 8.0, 1e-5
PARTS = np.arange(12).reshape(3, 4)


def task(changed: int | None, **other: Any) -> TrainingTask:
    """Every node has four records; the first of node ``changed`` may be another."""
    features = np.random.default_rng(1).standard_normal((12, 1))
    features[PARTS[:, 0]] = 10.0
    if changed is not None:
        features[PARTS[changed, 0]] = -10.0
    fields: dict[str, Any] = {
        "loss": Quadratic(dimension=1, curvature=0.0),
        "examples": Examples(features=features, targets=np.zeros(12)),
        "partition": lambda rng: list(PARTS),
        "mixing": W,
        "participation": SCHEME,
        "epsilons": [EPSILON],
        "delta": DELTA,
        "clip": CLIP,
        "step_sizes": ETA,
    }
    return TrainingTask(**fields | other)


def watched(world: int, node: int, lane: Lane, seeds: range) -> Recorder:
    recorder = Recorder()
    run = task(node if world else None).run_of_all
    list(train(run, [lane], seeds=seeds, observer=recorder))
    return recorder


@cache
def without_noise(world: int, node: int, rounds: int, seeds: range) -> Recorder:
    return watched(world, node, Lane(step_sizes=ETA, rounds=rounds), seeds)


class Eavesdropper:
    """An attack as :func:`audit` asks for it, on messages of the trainer."""

    mixing, gradients, steps = W, np.zeros((T, 1)), ()

    def __init__(self, lane: Lane, algorithm: Algorithm, *, node: int) -> None:
        self.lane, self.algorithm, self.node = lane, algorithm, node

    def draw(self, columns: int, sequence: np.random.SeedSequence) -> np.random.SeedSequence:
        return sequence

    @cached_property
    def system(self) -> tuple[Array, Array]:
        """A, and the precision of the noise of all that is seen."""
        a, b = views.view(self.algorithm, nd.observers.ldp()).dense()
        return a, np.linalg.inv(b @ b.T)

    def seen(self, recorder: Recorder) -> Array:
        """Every message that travels, of the one lane and coordinate there is, (T, S, m)."""
        sent = np.stack(recorder.messages)[..., 0, 0]
        source = self.lane.source
        if not isinstance(source, MessageNoise):
            return sent
        place = {edge: k for k, edge in enumerate(zip(*source.edges, strict=True))}
        edges = [(a, v) for v, a in np.argwhere(W != 0).tolist() if a != v]
        seen = sent[:, :, [a for a, _ in edges]]
        if recorder.message_noise[0]:
            noise = np.stack([step[0] for step in recorder.message_noise])[..., 0]
            seen = seen + noise[:, :, [place[edge] for edge in edges]]
        return seen

    def statistic(self, drawn: Any, *, runs: int, world: int, sigma: float = 1.0) -> Array:
        first = int(drawn.generate_state(1)[0])
        seeds, node = range(first, first + runs), self.node
        plain = [without_noise(of, node, self.lane.rounds, seeds) for of in (0, 1)]
        noisy = watched(world, node, self.lane, seeds)
        change = np.subtract(*(np.stack(one.gradients)[..., 0, 0] for one in plain[::-1]))
        known = self.seen(plain[0])
        batch = 2.0
        observed = -(self.seen(noisy) - known) * batch / ETA  # (T, S, m)
        a, precision = self.system
        assert (np.abs(change).max(axis=0) == [2 * CLIP * (k == self.node) for k in range(3)]).all()
        moved = a @ change.transpose(0, 2, 1).reshape(3 * T, runs)
        flat = observed.transpose(0, 2, 1).reshape(len(moved), runs)
        weights = precision @ moved
        return ((weights * flat).sum(axis=0) - (weights * moved).sum(axis=0) / 2) / sigma**2


def algorithm(name: str, made: Mechanism) -> Algorithm:
    """The same mechanism as accounts know it, at unit noise."""
    if made.design is not None:
        noise = made.design.noise
        c = np.eye(T) if noise.strategy is None else made.design.strategy
        r = np.eye(3) if noise.space is None else made.design.covariance
        inverse = np.linalg.inv(c)
        return views.space_time(mixing=W, covariance=np.kron(inverse @ inverse.T, r), horizon=T)
    if name == "zip-dl":
        return views.zip_dl(mixing=W, horizon=T)
    if name == "muffliato-3":
        return views.muffliato(mixing=W, horizon=T, rounds=3)
    return views.dp_d_sgd(mixing=W, horizon=T)


def report(name: str, *, quieter: float = 1.0) -> AuditReport:
    """The attack on the node that is protected least."""
    setting = replace(task(None), responses="fixed")
    made = mechanism(name, setting.network)
    ((lane, told),) = setting.lanes(made)
    if isinstance(lane.source, MessageNoise):
        lane = replace(lane, source=replace(lane.source, every_message=True))
    known = algorithm(name, made)
    exposed = nd.account(known, nd.observers.ldp(), participation=SCHEME, responses="fixed")
    node = int(np.argmax([one.sensitivity_squared for one in exposed]))
    loud = replace(lane, stddev=lane.stddev * quieter)
    attack: Any = Eavesdropper(loud, known, node=node)
    return audit(attack, claimed_mu=told["mu"], noise_stddev=loud.stddev, runs=500, seed=2)


@pytest.mark.parametrize(
    "name",
    [
        "zip-dl",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("kronecker", "ldp", "mafalda", "muffliato-3", "antipgd", "whisper"),
                "edge-local",
            )
        ),
    ],
)
def test_an_eavesdropper_learns_what_is_claimed_and_no_more(name: str) -> None:
    found = report(name)
    assert found.claimed == pytest.approx(nd.privacy.mu_of(epsilon=EPSILON, delta=DELTA), rel=1e-9)
    assert not found.exceeds
    # Where patterns share no step and gradients may not cancel, the attack is the worst there is.
    assert found.close or name == "antipgd"


@pytest.mark.parametrize("name", [pytest.param("kronecker", marks=pytest.mark.slow), "zip-dl"])
def test_noise_that_is_too_quiet_is_found_out(name: str) -> None:
    assert report(name, quieter=0.7).exceeds
