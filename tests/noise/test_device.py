"""Noise on a device: the bits of the processor, whatever draws it.

Where there is no GPU, operations of torch are run on the processor, the kernel by Triton's
interpreter, and PTX is made for GPUs that are not there."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from noisedesign.noise.hidden import hidden
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import drawn

torch = pytest.importorskip("torch", reason="needs the package torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from noisedesign.noise import device as of_device  # noqa: E402
from noisedesign.noise.device import DeviceNoise, eager, source as on_device, trial  # noqa: E402

PLANS = noise_plans.plans()
KINDS = noise_plans.filters()
DTYPES = {"float32": torch.float32, "float64": torch.float64}
CUDA = torch.cuda.is_available()
HAS_TRITON = bool(__import__("importlib.util").util.find_spec("triton"))
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs the package triton")


@pytest.fixture
def eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor is a device that draws by operations of torch, in small pieces."""
    monkeypatch.setattr(on_device, "engines", lambda device: iter([eager.Eager]))
    monkeypatch.setattr(on_device, "PIECE", 1024)
    monkeypatch.setattr(on_device, "BLOCK", 256)
    monkeypatch.setattr("noisedesign.noise.source.BLOCK", 256)
    monkeypatch.setattr(eager.Eager, "chunk", 640)
    monkeypatch.setattr(trial, "SIZE", 200)


def on_tensor(noise: DeviceNoise, t: int, size: int, start: int, dtype: str) -> np.ndarray:
    out = torch.full((size,), torch.nan, dtype=DTYPES[dtype], device=noise.device)
    noise.step_(t, out, start=start)
    return out.cpu().numpy()


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANS)
def test_steps_have_the_bits_of_the_processor(name: str, dtype: str) -> None:
    """Whole, in slices, again, back and forth; of tensors and of the node itself."""
    there, here = DeviceNoise(drawn(PLANS[name]), "cpu"), drawn(PLANS[name])
    asked = [(0, 2500, 0), (1, 700, 0), (1, 1800, 700), (3, 2500, 0), (3, 5, 1022), (2, 9, 1020)]
    asked += [(4, 4000, 0), (4, 3, 2999), (6, 100, 1500), (0, 10, 2495), (5, 2500, 0)]
    for t, size, start in asked:
        exact = here.step(t, size, dtype=dtype, start=start)
        assert bits(on_tensor(there, t, size, start, dtype)) == bits(exact), (t, size, start)
    assert there._engine(DTYPES[dtype]) is not None


@pytest.mark.usefixtures("eagerly")
def test_normals_at_the_ends_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters from 2^31 on, and the last block."""
    monkeypatch.setattr(on_device, "PIECE", 1 << 22)
    there, here = DeviceNoise(drawn(PLANS["fresh"]), "cpu"), drawn(PLANS["fresh"])
    for start in (1, 2**34 - 5, 2**34 + 3, 2**35 - 20):
        exact = here.step(0, 20, start=start)
        assert bits(on_tensor(there, 0, 20, start, "float64")) == bits(exact)
    with pytest.raises(InputError, match="at most 34359738368 numbers"):
        on_tensor(there, 0, 21, 2**35 - 20, "float64")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sums_that_noise_hides(dtype: str) -> None:
    """Of parts, in any order, of other sizes than pieces: what the processor finds of them."""
    source = drawn(PLANS["fresh"])
    there, rng = DeviceNoise(source, "cpu"), np.random.default_rng(2)
    sizes, parts, starts = (3, 0, 700, 1, 2900, 40), [], [0]
    for size in sizes:
        parts.append(rng.standard_normal(size).astype(dtype) * 1e-3)
        starts.append(starts[-1] + size)
    whole = hidden(parts, keys=source.hash_keys)
    tensors = [torch.from_numpy(part) for part in parts]
    for order in (slice(None), slice(None, None, -1)):
        found = there.hidden(tensors[order], starts[:-1][order])
        assert replace(found, norm=whole.norm) == whole
        assert found.norm == pytest.approx(whole.norm, rel=1e-6 if dtype == "float32" else 1e-12)
    halves = there.hidden(tensors[:3], starts[:3]) + there.hidden(tensors[3:], starts[3:-1])
    assert replace(halves, norm=0.0) == replace(whole, norm=0.0)
    tensors[4][2000] = -tensors[4][2000]
    assert there.hidden(tensors, starts[:-1]).first != whole.first


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("dtype", "large", "norm"),
    [
        ("float64", 1.5e308, 1.5e308),
        ("float64", 5e-324, 5e-324),
        ("float32", 3e38, float(np.float32(3e38))),
        ("float32", 1e-45, float(np.float32(1e-45))),
        ("float64", np.inf, np.inf),
        ("float32", np.nan, np.nan),
        ("float64", 0.0, 0.0),
    ],
)
def test_norms_of_the_largest_and_smallest_numbers(dtype: str, large: float, norm: float) -> None:
    there = DeviceNoise(drawn(PLANS["fresh"]), "cpu")
    one = torch.zeros(50, dtype=DTYPES[dtype])
    one[7] = large
    found = there.hidden([one], [0]).norm
    assert (
        found == pytest.approx(norm, rel=1e-12, nan_ok=True) or not np.isfinite([found, norm]).any()
    )


MODEL = ((30, 7), (), (1500,), (3, 4, 5), (2000,), (1,))


def sums_of(dtypes: list[Any]) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    found = [
        torch.randn(shape, dtype=dtype, generator=made) * 1e-3
        for shape, dtype in zip(MODEL, itertools.cycle(dtypes))
    ]
    found[3] = found[3].permute(2, 0, 1)  # not in C order
    return found


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("name", ["banded", "blt", "seeds, banded"])
@pytest.mark.parametrize("dtypes", [["float32"], ["float64"], ["float32", "float64"]])
def test_sums_with_noise_have_the_bits_of_the_processor(
    name: str, dtypes: list[str], size: int | None
) -> None:
    """And the same record: what one hides, the other knows."""
    claim = replace(PLANS[name].claim, batch_size=size)
    plan = replace(PLANS[name], claim=claim)
    there, here = drawn(plan), drawn(plan)
    for t in (0, 1, 4):
        tensors = sums_of([DTYPES[one] for one in dtypes])
        arrays = [np.array(tensor.numpy(), order="C") for tensor in tensors]
        of_device.add_(there, tensors, t, records=["ann"])
        here.add_(arrays, t, records=["ann"])
        for tensor, array in zip(tensors, arrays, strict=True):
            assert bits(tensor.numpy()) == bits(array)
    assert there._hidden == here._hidden
    again = sums_of([DTYPES[one] for one in dtypes])
    of_device.add_(there, again, 4, records=["ann"])
    assert all(bits(a.numpy()) == bits(b.numpy()) for a, b in zip(again, tensors, strict=True))
    with pytest.raises(InputError, match="other data"):
        of_device.add_(there, [t * 1.5 for t in sums_of([DTYPES[one] for one in dtypes])], 4)
