"""Sites of NVIDIA FLARE that add noise to what they send, in its simulator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from noisedesign.adapters.run import Run
from noisedesign.adapters.update import NoisyUpdate
from tests.support import pages
from tests.support.adapters import check_noise, designed_covariance
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, a9a, node_noise, prefix_design, secret

pytest.importorskip("nvflare", reason="needs the package nvflare")
psutil = pytest.importorskip("psutil", reason="NVFlare needs psutil")

SITES, FEATURES, RECORDS, STEPS = ("site-1", "site-2"), 2000, 600, 4
KEEPS = """
import os, time
import numpy as np
import nvflare.client as flare

receive, send, came = flare.receive, flare.send, []

def kept_receive():
    came.append(receive())
    return came[-1]

def kept_send(model):
    at, site, before = came[-1].current_round, flare.get_site_name(), came[-1].params["numpy_key"]
    if os.environ["KILL"] == f"{site} {at}":
        # Noise is drawn and nothing sent: now the power goes.
        open(f"{os.environ['SITES']}/stopped", "w").close()
        time.sleep(3600)
    where = f"{os.environ['SITES']}/{site}/round-{at}"
    np.savez(where, before=before, after=model.params["numpy_key"], more=len(model.metrics or {}))
    return send(model)

flare.receive, flare.send = kept_receive, kept_send
"""
"""Before the site's script of the guide: keeps what it receives and sends."""


def site_data(u: int) -> tuple[np.ndarray, np.ndarray]:
    """Real records in many random features, so that the noise of a model tells much."""
    x, y = a9a(len(SITES) * RECORDS)
    rng = np.random.default_rng(3)
    made = np.tanh(x @ rng.normal(size=(x.shape[1], FEATURES)) / 3) / FEATURES**0.5
    return made[u :: len(SITES)], y[u :: len(SITES)].astype(np.float64)


def prepare(folder: Path) -> None:
    for block in pages.blocks(pages.read("docs/guides/nvflare.md"), "py"):
        name = re.match(r"# (\w+\.py)", block.text)
        assert name is not None
        text = KEEPS + block.text if name[1] == "client.py" else block.text
        (folder / name[1]).write_text(text, encoding="utf-8")
    for u, site in enumerate(SITES):
        own = folder / site
        own.mkdir()
        x, y = site_data(u)
        np.savez(own / "records.npz", x=x, y=y)
        prefix_design(epochs=2, separation=2).node_plan(0).save(own / "node.plan")
        secret(u).save(own / "node.secret")


def run(folder: Path, rounds: int, kill: str = "") -> str:
    """What a job printed; with ``kill``, all of its processes are killed at that site and round."""
    command = [sys.executable, "job.py", str(FEATURES), str(rounds), *SITES]
    variables = {**os.environ, "SITES": str(folder), "KILL": kill, "OMP_NUM_THREADS": "1"}
    with (folder / "told").open("w+") as told:
        job = subprocess.Popen(command, cwd=folder, env=variables, stdout=told, stderr=told)
        until = time.monotonic() + 120
        while job.poll() is None and not (folder / "stopped").exists():
            assert time.monotonic() < until, "the job hangs"
            time.sleep(0.2)
        if kill:
            for one in [*psutil.Process(job.pid).children(recursive=True), job]:
                one.kill()
            (folder / "stopped").unlink()
        job.wait()
        told.seek(0)
        return told.read()


def sums_of(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of clipped gradients of the logistic loss, by hand, record by record."""
    total = np.zeros(FEATURES)
    for row, label in zip(x, y, strict=True):
        gradient = (1 / (1 + np.exp(-row @ weights)) - label) * row
        total += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return total


def loss(weights: np.ndarray) -> float:
    found = [np.logaddexp(0, x @ weights) - y * (x @ weights) for x, y in map(site_data, (0, 1))]
    return float(np.mean(found))


def rounds_of(folder: Path) -> dict[tuple[str, int], dict[str, np.ndarray]]:
    found = {}
    for site in SITES:
        for path in (folder / site).glob("round-*.npz"):
            with np.load(path) as stored:
                found[site, int(path.stem[6:])] = dict(stored)
    return found


def test_sites_of_the_guide_after_a_kill_and_to_the_horizon(tmp_path: Path) -> None:
    prepare(tmp_path)
    run(tmp_path, STEPS, kill="site-2 2")
    first = rounds_of(tmp_path)
    assert set(first) >= {(site, t) for site in SITES for t in (0, 1)}
    assert ("site-2", 2) not in first
    # Begun again, from the first round, with a round more than the design has.
    assert f"step: expected 0 to {STEPS - 1}" in run(tmp_path, STEPS + 1)
    found = rounds_of(tmp_path)
    assert set(found) == {(site, t) for site in SITES for t in range(STEPS)}
    for key, sent in first.items():  # the same noise as before the kill
        np.testing.assert_array_equal(found[key]["after"], sent["after"])
    design = prefix_design(epochs=2, separation=2)
    drawn, by_hand = np.empty((STEPS, len(SITES), FEATURES)), np.zeros(FEATURES)
    size = RECORDS // 2
    for t in range(STEPS):
        moves = []
        for u, site in enumerate(SITES):
            x, y = site_data(u)
            due = Run(node_noise(design)).batches(RECORDS)[t]
            before, after = found[site, t]["before"], found[site, t]["after"]
            assert found[site, t]["more"] == 0
            drawn[t, u] = (before - after) * size / 2.0 - sums_of(x[due], y[due], before)
            moves.append(2.0 * sums_of(x[due], y[due], by_hand) / size)
        by_hand -= np.mean(moves, axis=0)
    check_noise(designed_covariance(design), np.concatenate([*drawn.transpose(1, 0, 2)], axis=1))
    # And sites learn: the average of what they sent last, against the same steps without noise.
    learned = np.mean([found[site, STEPS - 1]["after"] for site in SITES], axis=0)
    assert loss(learned) < (loss(np.zeros(FEATURES)) + loss(by_hand)) / 2
    row(site_data(0))


def row(data: tuple[np.ndarray, np.ndarray]) -> None:
    noisy = NoisyUpdate(node_noise(prefix_design(epochs=2, separation=2)), clip=CLIP, unit="record")
    due = noisy.batches(RECORDS)[0]
    begun = time.process_time()
    total = sums_of(data[0][due], data[1][due], np.zeros(FEATURES))
    summed = time.process_time()
    noisy([total], records=due)
    share = (time.process_time() - summed) / (summed - begun)
    trainer_row(
        "NVIDIA FLARE",
        packages=("nvflare", "numpy"),
        works=[
            "scripts of its client interface, in its simulator",
            "one record or one site protected",
            "a job begun again after a kill: the same noise for the same round",
        ],
        refuses=["rounds past the horizon", "what `NoisyUpdate` refuses"],
        cost=f"{share:.2g} times the gradients of {len(due)} records, 2,000 parameters",
    )
