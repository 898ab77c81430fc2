"""The script of the guide to JAX, on a9a: it learns, and goes on after kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.noise import noise
from noisedesign.noise.batches import Batches
from tests.support.pages import blocks, read
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import CLIP, _file, a9a, check_learned, secret

jax = pytest.importorskip("jax", reason="needs the package jax")
pytest.importorskip("jax_privacy", minversion="2", reason="needs the package jax_privacy 2")

PLAN, SCRIPT = (block.text for block in blocks(read("docs/guides/jax.md"), "python"))
KILLED = """
import os, signal
from noisedesign.noise import NodeNoise

hide = NodeNoise.hide


def hidden(self, t, *args, **kwargs):
    hide(self, t, *args, **kwargs)
    if t == 6:  # recorded; the model that is kept is that of step 5
        os.kill(os.getpid(), signal.SIGKILL)


NodeNoise.hide = hidden
"""


def follow(folder: Path, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script as a reader does, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NOISEDESIGN_RECORDS": str(folder / "records"),
    }
    return subprocess.run(
        [sys.executable, "-c", before + SCRIPT],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def begun(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    folder.mkdir()
    (folder / "a9a").symlink_to(_file("a9a/a9a"))
    with patch.context() as there:
        there.chdir(folder)
        exec(PLAN, {})
    secret(7).save(folder / "node.secret")
    return folder


def model(folder: Path) -> dict[str, np.ndarray]:
    saved = np.load(folder / "model.npz")
    return {name: np.asarray(saved[name], np.float64) for name in ("hidden", "out")}


def seconds(function: Callable[[], Any], runs: int) -> float:
    """The least CPU seconds of a call."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        jax.block_until_ready(function())
        found.append(time.process_time() - start)
    return min(found)


def cost() -> str:
    """Of an update of 1e6 numbers, beside as many of JAX's own normals."""
    import jax.numpy as jnp

    from noisedesign.adapters.jax_privacy import Training
    from tests.support.noise_plans import drawn, plans

    training, size = Training(drawn(plans()["toeplitz"])), 10**6
    privatizer, sums = training.privatizer(), jnp.zeros(size)
    state, update = privatizer.init(sums), jax.jit(privatizer.update)
    _, state = jax.block_until_ready(update(sums, state, records=np.array([0])))

    def once() -> Any:
        nonlocal state
        noisy, state = update(sums, state, records=np.array([training.step]))
        return noisy

    normal, key = jax.jit(lambda key: jax.random.normal(key, (size,))), jax.random.key(0)
    normal(key).block_until_ready()
    ratio = seconds(once, 5) / seconds(lambda: normal(key), 5)
    return f"{ratio:.1f} times as many of JAX's own normals, 4 bands, on a processor"


def test_the_script_learns_and_goes_on_after_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, whole = begun(tmp_path / "killed", monkeypatch), begun(tmp_path / "whole", monkeypatch)
    # The script takes a secret that is there for that of a run that began: this one begins here.
    noise(whole / "node.plan", secret=whole / "node.secret", record=whole / "records")
    noise(killed / "node.plan", secret=killed / "node.secret", record=killed / "records")
    assert follow(killed, before=KILLED).returncode == -9
    for folder in (killed, whole):
        found = follow(folder)
        assert found.stdout == "epsilon 6\n", found.stderr
    end = model(whole)
    for name, part in model(killed).items():
        np.testing.assert_array_equal(part, end[name])
    rng = np.random.default_rng(0)
    start = {"hidden": rng.normal(size=(123, 16)) / 11, "out": rng.normal(size=16) / 4}
    source = noise(whole / "node.plan", secret=secret(8), record=False)
    assert source.claim.rule is not None
    batches = Batches(source.claim.rule, horizon=12, records=2000)
    shift = {"shift": np.zeros(())}
    data = tuple(part[:2000] for part in a9a())
    check_learned(end | shift, start | shift, batches, data, rate=8 / 500, clip=CLIP)  # type: ignore[arg-type]
    trainer_row(
        "JAX Privacy",
        packages=["jax-privacy", "jax", "optax"],
        works=[
            "noise on the device, bits of the processor",
            "jit and scan, sums over several devices",
            "goes on after kill -9 with the same bits",
            "JAX Privacy's clipping and batch selection",
        ],
        refuses=[
            "a step past the horizon",
            "records too often or too soon",
            "a state that was used",
            "vmap, shard_map, several processes",
            "sums that nobody clipped, half precision",
        ],
        cost=cost(),
    )
