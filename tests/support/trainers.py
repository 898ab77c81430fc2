"""Real data, designs, and training by hand, for the tests of adapters to trainers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.forms.structure import SpaceStructure
from noisedesign.mechanisms.baselines import baseline
from noisedesign.noise import NodeNoise, Plan, Secret, noise
from noisedesign.noise.filters import Fresh
from noisedesign.problem.problem import PrivacyTarget, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import (
    BallsInBins,
    FixedEpoch,
    MinSeparation,
    Participation,
    single,
)
from tests.support.pages import examples

CLIP = 0.5
FEATURES = 123


def _file(name: str) -> Path:
    path = Path(os.environ.get("NOISEDESIGN_DATA", "")) / name
    if not path.is_file():
        pytest.skip(f"NOISEDESIGN_DATA names no folder with {name}")
    return path


@cache
def a9a(records: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Adult in binary features: (records, 123) float32, and labels 0 or 1 as float32. LIBSVM's
    format: a label, and the one-based numbers of the features that are 1."""
    features = np.zeros((records, FEATURES), dtype=np.float32)
    labels = np.zeros(records, dtype=np.float32)
    with _file("a9a/a9a").open(encoding="ascii") as lines:
        for at, line in zip(range(records), lines, strict=False):
            label, *ones = line.split()
            labels[at] = float(label) > 0
            features[at, [int(one.partition(":")[0]) - 1 for one in ones]] = 1
    return features, labels


@cache
def california() -> tuple[np.ndarray, np.ndarray]:
    """California housing: 8 features and the median value, standardised, float32."""
    path = _file("california-housing/cal_housing.data")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table = ((table - table.mean(axis=0)) / table.std(axis=0)).astype(np.float32)
    return table[:, :8], table[:, 8]


@cache
def prefix_design(
    *,
    epochs: int = 3,
    separation: int = 4,
    free_order: bool = False,
    epsilon: float = 6.0,
    clip: float = CLIP,
    **kwargs: Any,
) -> Design:
    """Prefix sums, for every record ``epochs`` times, ``separation`` steps apart."""
    use: Participation = FixedEpoch(epochs=epochs, separation=separation)
    if free_order:
        horizon = epochs * separation
        use = MinSeparation(horizon=horizon, separation=separation, max_participations=epochs)
    target = PrivacyTarget(epsilon=epsilon, delta=1e-5, clip=clip)
    return solve(TimeProblem.prefix(participation=use, privacy=target, **kwargs)).design


def random_plan(scheme: Participation) -> Plan:
    """Of a node that draws who takes part when, with independent noise."""
    target = PrivacyTarget(epsilon=6.0, delta=1e-5, clip=CLIP)
    problem = TimeProblem.prefix(participation=single(scheme.horizon), privacy=target)
    plan = baseline(problem, "ldp").node_plan(0)
    claim = replace(plan.claim, rule=scheme.rule, participation=str(scheme))
    (own,) = plan.streams
    stream = replace(own, coefficient=claim.noise_stddev)
    return replace(plan, claim=claim, filter=Fresh(), streams=(stream,))


def random_noise(epochs: int = 2, separation: int = 6, number: int = 1) -> NodeNoise:
    """Of a node that puts each of its records into one of the batches at random."""
    scheme = BallsInBins(epochs=epochs, separation=separation)
    return noise(random_plan(scheme), secret=secret(number), record=False)


def secret(number: int) -> Secret:
    """The same at every call, so that statistical tests have one outcome."""
    return Secret(np.random.default_rng(number).bytes(32))


def node_noise(design: Design | Plan, number: int = 1, **kwargs: Any) -> NodeNoise:
    """Of node 0, recorded nowhere unless a record is named."""
    kwargs = {"record": False, "node": 0, **kwargs}
    return noise(design, secret=secret(number), **kwargs)


@cache
def seeds_design(*, nodes: int = 4, steps: int = 4, epsilon: float = 6.0) -> Design:
    """On a ring, a seed for every two neighbours; every node takes part in every step."""
    use = FixedEpoch(epochs=steps, separation=1)
    target = PrivacyTarget(epsilon=epsilon, delta=1e-5, clip=CLIP)
    space = SpaceStructure(kind="edge-local")
    graph = nx.cycle_graph(nodes)
    return solve(
        SpaceTimeProblem.from_graph(graph, participation=use, space=space, privacy=target)
    ).design


def pair_secrets(design: Design, node: int) -> dict[str, Secret]:
    """What ``node`` has agreed on with others, by stream: a secret for every seed."""
    streams = design.node_plan(node).streams
    return {
        s.name: secret(10_000 + int(s.name.split()[1])) for s in streams if s.source == "shared"
    }


# --- training by hand -----------------------------------------------------------------------------

Network = dict[str, np.ndarray]
"""logit(x) = tanh(x hidden + bias) . out + shift, with or without ``bias``."""


def sums_by_hand(network: Network, x: np.ndarray, y: np.ndarray, *, clip: float = CLIP) -> Network:
    """Gradients of the logistic loss, each clipped over all arrays, summed over records.

    With h = tanh(x A + b), e = sigmoid(h . o + s) - y and d = e o (1 - h^2) the gradient of a
    record is (x d^T, d, e h, e), in the order A, b, o, s, of squared norm
    |d|^2 (|x|^2 + 1) + e^2 (|h|^2 + 1).
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    h = np.tanh(x @ network["hidden"] + network.get("bias", 0.0))
    e = 1 / (1 + np.exp(-(h @ network["out"] + network["shift"]))) - y
    d = e[:, None] * network["out"] * (1 - h**2)
    biased = "bias" in network
    squares = (d**2).sum(1) * ((x**2).sum(1) + biased) + e**2 * ((h**2).sum(1) + 1)
    factors = np.minimum(1.0, clip / np.sqrt(squares))[:, None]
    d, e = factors * d, factors[:, 0] * e
    found = {"hidden": x.T @ d, "bias": d.sum(0), "out": e @ h, "shift": e.sum()}
    return {name: found[name] for name in network}


def accuracy(network: Network, x: np.ndarray, y: np.ndarray) -> float:
    h = np.tanh(x @ network["hidden"] + network.get("bias", 0.0))
    return float(np.mean((h @ network["out"] + network["shift"] > 0) == (y > 0)))


def check_learned(
    network: Network,
    start: Network,
    batches: Iterable[np.ndarray],
    data: tuple[np.ndarray, np.ndarray],
    *,
    rate: float,
    clip: float = CLIP,
) -> None:
    """Assert that ``network`` is right about records half as often above the majority, at least,
    as the one that the same steps by hand, without noise, make of ``start``."""
    x, y = data
    by_hand = {name: np.asarray(part, np.float64) for name, part in start.items()}
    for batch in batches:
        sums = sums_by_hand(by_hand, x[batch], y[batch], clip=clip)
        by_hand = {name: part - rate * sums[name] for name, part in by_hand.items()}
    majority = max(float(np.mean(y > 0)), float(np.mean(y <= 0)))
    right, found = accuracy(by_hand, x, y), accuracy(network, x, y)
    assert right > majority + 0.03, "these steps teach nothing"
    assert found > (majority + right) / 2, f"{found:.4f}, by hand {right:.4f}, {majority:.4f}"


# --- following the guide --------------------------------------------------------------------------


def follow(page: str, scope: dict[str, Any], plan: Plan, patch: pytest.MonkeyPatch) -> None:
    """Run the guide to a trainer, in this folder, with the files of node 0."""
    patch.setenv("NOISEDESIGN_RECORDS", str(Path("records.sqlite3").resolve()))
    plan.save("node.plan")
    secret(7).save("node.secret")
    exec(examples(f"docs/guides/{page}.md", language="py"), scope)
