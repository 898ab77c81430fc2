"""What drawing keeps: one array of the model's size a band or buffer, and little besides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from noisedesign.noise.source import BLOCK, LATEST
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import drawn

MEGABYTE = 1e6
PLANS = noise_plans.plans()
KEPT = {"fresh": 0, "dense": 0, "seeds": 0, "full": 0, "banded": 2, "toeplitz": 3} | {
    "banded-inverse": 2,
    "blt": 2,
    "signed-blt": 3,
}
"""Arrays of the model's size, from the sizes of the filters: bands less one, buffers."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KEPT)
def test_arrays_kept_between_steps(name: str, dtype: type) -> None:
    beside = name in ("banded-inverse", "blt", "signed-blt")  # the last noise of some blocks
    source, size = drawn(PLANS[name]), (LATEST + 8 if beside else 8) * BLOCK
    out = np.empty(size, dtype=dtype)
    steps = 4 if KEPT[name] else 2
    tracemalloc.start()
    try:
        for t in range(steps):
            source.step(t, out=out)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    model = size * out.itemsize
    held = (9.5 if beside else 0.5) * MEGABYTE
    assert KEPT[name] * model <= now <= KEPT[name] * model + held
    assert peak <= KEPT[name] * model + 18 * MEGABYTE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adding_to_gradients_takes_no_more(dtype: type) -> None:
    source, sums = drawn(PLANS["banded"]), [np.zeros(16 * BLOCK + 7, dtype=dtype), np.zeros(5)]
    tracemalloc.start()
    try:
        for t in range(4):
            source.add_(sums, t, records=100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * sums[0].nbytes + 12 * MEGABYTE


def test_a_long_horizon_takes_no_memory() -> None:
    """Nothing of T x T, or of p x T, for coefficients."""
    from noisedesign.noise.filters import Toeplitz

    filter_ = Toeplitz.of(np.array([1.0, -0.5, 0.1, 0.05]), horizon=10**7)
    tracemalloc.start()
    try:
        source = drawn(replace(PLANS["fresh"], filter=filter_, horizon=10**7))
        for t in range(6):
            source.step(t, 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTE


LARGE = """
import json, resource, sys
import numpy as np
from noisedesign.noise import Claim, NodeNoise, Plan, Secret, Stream
from noisedesign.noise.filters import Banded, Buffered, Moving
horizon = 6
bands = np.full((4, horizon), -0.1)
bands[0] = 1.0
made = {
    "bands": Banded(bands),
    "inverse": Moving(np.array([1.0, -0.4, 0.2, 0.1])),
    "buffers": Buffered(np.array([0.3, 0.2, 0.1]), np.array([0.9, 0.5, 0.2]), np.array([1.0])),
}
plan = Plan(digest="5" * 64, node=0, horizon=horizon, claim=Claim(noise_stddev=1.0),
            streams=(Stream(name="node 0", coefficient=1.0),), filter=made[sys.argv[1]])
source = NodeNoise(plan, secret=Secret(bytes(range(32))), seeds={}, record=None, resume=False)
out, found = np.empty(10**8, dtype=np.float32), []
for t in range(horizon):
    source.step(t, out=out)
    parts = np.split(out, 100)
    found.append([sum(float(np.square(p, dtype=np.float64).sum()) for p in parts) / len(out),
                  float(out[-1])])
if sys.platform == "linux":  # ru_maxrss counts what the process was before it became this one
    (told,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    peak = 1024 * int(told.split()[1])
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
last = NodeNoise(plan, secret=source.secret, seeds={}, record=None, resume=False)
again = [float(last.step(t, 1, dtype=np.float32, start=10**8 - 1)[0]) for t in range(horizon)]
print(json.dumps([peak, plan.variances.tolist(), found, again]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="peaks of memory are counted on POSIX")
@pytest.mark.parametrize("kind", ["bands", "inverse", "buffers"])
def test_a_hundred_million_numbers_in_two_gigabytes(kind: str) -> None:
    """In float32, four bands or three buffers, what is returned included."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, kind],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    peak, variances, found, again = json.loads(done.stdout)
    assert 1.5e9 < peak < 2e9
    for variance, (measured, last), expected in zip(variances, found, again, strict=True):
        assert measured == pytest.approx(variance, rel=2e-3)
        assert last == expected
