"""Nodes of p2pfl that add noise to what they send: their own workflow, in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from noisedesign.adapters.update import NoisyUpdate
from tests.support import pages
from tests.support.adapters import check_noise, designed_covariance
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, a9a, node_noise, prefix_design, secret

pytest.importorskip("p2pfl", reason="needs the package p2pfl")

NODES, STEPS, FEATURES, RECORDS = ("a", "b", "c"), 4, 1500, 500
EVERY = {"epochs": STEPS, "separation": 1, "epsilon": 40.0}
KEEPS = """
kept_fit = NoisyLogistic.fit

def fit(self):
    before = self.get_model().model.copy()
    model = kept_fit(self)
    at = self.noisy.run.step - 1
    if os.environ.get("KILL") == f"{self.addr} {at}":
        os.kill(os.getpid(), 9)
    path = f"{self.addr}/round-{at}.npz"  # whole or not at all: another node may be killed now
    np.savez(f"{self.addr}/new.npz", before=before, after=model.model)
    os.replace(f"{self.addr}/new.npz", path)
    assert model.get_num_samples() == 1
    return model

NoisyLogistic.fit = fit
"""
"""Keeps what a node has before it trains and what it sends."""


def records(u: int) -> tuple[np.ndarray, np.ndarray]:
    """Real records in many random features, so that the noise of a model tells much."""
    x, y = a9a(len(NODES) * RECORDS)
    rng = np.random.default_rng(3)
    made = np.tanh(x @ rng.normal(size=(x.shape[1], FEATURES)) / 3) / FEATURES**0.5
    return made[u :: len(NODES)], y[u :: len(NODES)].astype(np.float64)


def prepare(folder: Path) -> None:
    noisy, whole = pages.blocks(pages.read("docs/guides/p2pfl.md"), "py")
    start, main = whole.text.split("if __name__")
    before, after = start.split("class NoisyLogistic")
    text = (
        f"import os\n{before}{noisy.text}\n\nclass NoisyLogistic{after}{KEEPS}\nif __name__{main}"
    )
    (folder / "nodes.py").write_text(text, encoding="utf-8")
    for u, name in enumerate(NODES):
        (folder / name).mkdir()
        x, y = records(u)
        np.savez(folder / name / "records.npz", x=x, y=y)
        prefix_design(**EVERY).node_plan(0).save(folder / name / "node.plan")
        secret(u).save(folder / name / "node.secret")


def run(folder: Path, rounds: int, kill: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "nodes.py", str(FEATURES), str(rounds), *NODES]
    variables = {**os.environ, "KILL": kill, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=180
    )


def trained(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    for _ in range(5):
        wrong = 1 / (1 + np.exp(-(x @ weights))) - y
        weights = weights - 2.0 * (wrong @ x) / len(y)
    return weights


def clipped(update: np.ndarray) -> np.ndarray:
    return update * min(1.0, CLIP / np.linalg.norm(update))


def loss(weights: np.ndarray) -> float:
    found = [np.logaddexp(0, x @ weights) - y * (x @ weights) for x, y in map(records, range(3))]
    return float(np.mean(found))


def rounds_of(folder: Path) -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
    found = {}
    for name in NODES:
        for path in (folder / name).glob("round-*.npz"):
            with np.load(path) as stored:
                found[name, int(path.stem[6:])] = stored["before"], stored["after"]
    return found


def noise_in(found: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """What nodes added to their clipped updates, (T, nodes times FEATURES)."""
    drawn = np.empty((STEPS, len(NODES), FEATURES))
    for (name, t), (before, after) in found.items():
        u = NODES.index(name)
        drawn[t, u] = after - before - clipped(trained(*records(u), before) - before)
    return drawn.reshape(STEPS, -1)


def test_nodes_of_the_guide_train_to_the_horizon_and_no_further(tmp_path: Path) -> None:
    prepare(tmp_path)
    done = run(tmp_path, STEPS + 1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"step: expected 0 to {STEPS - 1}" in done.stdout + done.stderr
    found = rounds_of(tmp_path)
    assert set(found) == {(name, t) for name in NODES for t in range(STEPS)}
    check_noise(designed_covariance(prefix_design(**EVERY)), noise_in(found))
    averages, by_hand = [], np.zeros(FEATURES)
    for t in range(STEPS):
        moves = [clipped(trained(*records(u), by_hand) - by_hand) for u in range(len(NODES))]
        by_hand = by_hand + np.mean(moves, axis=0)
        averages.append(np.mean([found[name, t][1] for name in NODES], axis=0))
        for name in NODES if t + 1 < STEPS else ():  # p2pfl averages what was sent, evenly
            np.testing.assert_allclose(found[name, t + 1][0], averages[t], atol=1e-12)
    # What a node is left with is noisy: nothing of the round that was refused.
    np.testing.assert_allclose(np.load(tmp_path / "learned.npy"), averages[-1], atol=1e-12)
    assert loss(averages[-1]) < (loss(np.zeros(FEATURES)) + loss(by_hand)) / 2
    row()


def test_a_killed_network_goes_on_with_noise_that_was_not_used(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert run(tmp_path, STEPS, kill="b 2").returncode == -9
    first = rounds_of(tmp_path)
    assert set(first) >= {(name, t) for name in NODES for t in (0, 1)}
    assert ("b", 2) not in first
    assert run(tmp_path, 1).returncode == 0
    found = rounds_of(tmp_path)
    assert max(t for name, t in found if name == "b") == 3  # 2 was drawn, and is not drawn again
    for key, sent in first.items():
        np.testing.assert_array_equal(found[key][1], sent[1])
    for name, t in set(found) - set(first):
        u, (before, after) = NODES.index(name), found[name, t]
        exact = node_noise(prefix_design(**EVERY), u).step(t, FEATURES)
        update = clipped(trained(*records(u), before) - before)
        np.testing.assert_allclose(after, before + update + exact, atol=1e-6)


def row() -> None:
    noisy = NoisyUpdate(node_noise(prefix_design(**EVERY)), clip=CLIP, unit="node")
    received, begun = np.zeros(FEATURES), time.process_time()
    sent = trained(*records(0), received)
    done = time.process_time()
    noisy.model([received], [sent])
    share = (time.process_time() - done) / (done - begun)
    trainer_row(
        "p2pfl",
        packages=("p2pfl", "numpy"),
        works=[
            "its whole workflow: votes, gossip, averages",
            "one node protected, or one record",
            "a network begun again after a kill: with noise that was not used",
        ],
        refuses=["rounds past the horizon", "what `NoisyUpdate` refuses"],
        cost=f"{share:.2g} times five epochs of {RECORDS} records, 1,500 parameters",
    )
