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
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from noisedesign.noise.hidden import hidden
from tests.support import ROOT, noise_plans, pages
from tests.support.noise_plans import drawn

torch = pytest.importorskip("torch", reason="needs the package torch")

from torch import is_tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from noisedesign.noise import device as of_device  # noqa: E402
from noisedesign.noise.device import DeviceNoise, eager, source as on_device, trial  # noqa: E402

PLANS = noise_plans.plans()
KINDS = noise_plans.filters()
DTYPES = {"float32": torch.float32, "float64": torch.float64}
CUDA = torch.cuda.is_available()
HAS_TRITON = find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs the package triton")


@pytest.fixture
def eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor is a device that draws by operations of torch, in small pieces."""
    monkeypatch.setattr(on_device, "engines", lambda device: [eager.Eager])
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_that_is_right_passes_the_whole_trial(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_device, "engines", lambda device: [eager.Eager])
    there = DeviceNoise(drawn(PLANS["signed-blt"]), "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(there._engine(DTYPES[dtype])) is eager.Eager


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
        assert found.norm == pytest.approx(whole.norm, rel=1e-12)
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


@pytest.mark.usefixtures("eagerly")
def test_numbers_that_are_not_finite_are_named_and_nothing_is_added() -> None:
    source, tensors = drawn(PLANS["fresh"]), [torch.zeros(3), torch.zeros(2000)]
    tensors[1][1999] = torch.inf
    with pytest.raises(InputError, match=r"parameters\[1\]: expected finite numbers"):
        of_device.add_(source, tensors, 0, records=["ann"])
    assert not tensors[0].any()
    assert not source.steps


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["banded", "banded-inverse", "signed-blt"])
def test_steps_one_after_another_are_drawn_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model in many parts, too; going back draws the steps before again."""
    drawn_steps: list[int] = []
    real = eager.Eager.step

    def counted(self: Any, filter_: Any, t: int, *rest: Any) -> torch.Tensor:
        drawn_steps.append(t)
        return real(self, filter_, t, *rest)

    source = drawn(PLANS[name])
    there = DeviceNoise(source, "cpu")
    there._engine(torch.float32)
    monkeypatch.setattr(eager.Eager, "step", counted)
    on_tensor(there, 0, 1500, 0, "float32")
    for t in range(4):
        for start in range(0, 1500, 100):
            on_tensor(there, t, 100, start, "float32")
    assert drawn_steps == [0, 0, 1, 1, 2, 2, 3, 3]  # two pieces
    on_tensor(there, 1, 100, 0, "float32")
    assert drawn_steps[8:] == [0, 1]


@pytest.mark.usefixtures("eagerly")
def test_what_is_kept_is_of_what_was_asked_for() -> None:
    """Of the shards of one rank, say; slices that overlap are one."""
    source, exact = drawn(PLANS["banded"]), drawn(PLANS["banded"])
    there = DeviceNoise(source, "cpu")

    def kept() -> list[tuple[int, int]]:
        lanes = [one for several in there._lanes.values() for one in several]
        assert all(one.kept.shape[1] == one.end - one.start for one in lanes)
        return sorted((one.start, one.end) for one in lanes)

    for t in range(3):
        for start, size in ((100, 50), (700, 100), (1000, 100)):
            part = exact.step(t, size, dtype=np.float32, start=start)
            assert bits(on_tensor(there, t, size, start, "float32")) == bits(part)
    assert kept() == [(100, 150), (700, 800), (1000, 1024), (1024, 1100)]
    for t, start, size in ((2, 140, 600), (3, 120, 5), (3, 760, 30), (1, 690, 1)):
        part = exact.step(t, size, dtype=np.float32, start=start)
        assert bits(on_tensor(there, t, size, start, "float32")) == bits(part)
    assert kept() == [(100, 800), (1000, 1024), (1024, 1100)]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["banded", "blt"])
def test_a_step_that_was_interrupted_is_computed_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, exact = drawn(PLANS[name]), drawn(PLANS[name])
    there = DeviceNoise(source, "cpu")
    for t in (0, 1, 2):
        on_tensor(there, t, 9, 0, "float32")

    def interrupted(self: Any, *of: Any) -> torch.Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr(eager.Eager, "white", interrupted)
        with pytest.raises(KeyboardInterrupt):
            on_tensor(there, 3, 9, 0, "float32")
    assert bits(on_tensor(there, 3, 9, 0, "float32")) == bits(exact.step(3, 9, dtype=np.float32))


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation makes."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {one.untyped_storage().data_ptr() for one in tree_leaves(args) if is_tensor(one)}
        for one in tree_leaves(made):
            if is_tensor(one) and one.untyped_storage().data_ptr() not in given:
                self.found = max(self.found, one.nbytes)
        return made


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["fresh", "banded", "banded-inverse", "blt"])
def test_memory_is_that_of_the_bands_and_of_pieces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece, source, rows = 4096, drawn(PLANS[name]), PLANS[name].filter.rows
    monkeypatch.setattr(on_device, "PIECE", piece)
    monkeypatch.setattr(eager.Eager, "chunk", piece)
    size = 12 * piece
    tensors = [torch.zeros(size - 1000), torch.zeros(1000)]
    with Largest() as largest:
        for t in range(2):
            of_device.add_(source, tensors, t, records=10**6)
    there = on_device.on(source, torch.device("cpu"))
    lanes = [lane for several in there._lanes.values() for lane in several]
    kept = sum(lane.kept.nbytes for lane in lanes)
    assert kept == rows * 4 * size
    held = sum(lane.noise is not None for lane in lanes)
    assert held == (0 if name in ("fresh", "banded") else on_device.LATEST)
    assert 8 * piece <= largest.found <= 16 * piece  # a sixth of the model in float64


class Wrong(eager.Eager):
    """Draws that are wrong by one bit, as of a product and a sum in one."""

    def white(self, terms: Any, start: int, size: int) -> torch.Tensor:
        found = super().white(terms, start, size)
        found.view(torch.int64)[size // 2] ^= 1
        return found


class Narrow(eager.Eager):
    """A device without float64."""

    def white(self, terms: Any, start: int, size: int) -> torch.Tensor:
        raise TypeError("Cannot convert to float64")


class Stuck(eager.Eager):
    """Integers that do not wrap."""

    def hidden(self, flat: torch.Tensor, keys: Any, start: int) -> Any:
        sums, norm = super().hidden(flat, keys, start)
        return sums + 1, norm


class Shorter(eager.Eager):
    """Norms that would let unclipped sums pass."""

    def hidden(self, flat: torch.Tensor, keys: Any, start: int) -> Any:
        sums, norm = super().hidden(flat, keys, start)
        return sums, norm / 2


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Shorter, "norms are others"),
        (Wrong, "noise of step 0 has other bits than the processor's"),
        (Narrow, "TypeError: Cannot convert to float64"),
        (Stuck, "sums of integers do not wrap"),
    ],
)
def test_a_device_that_differs_is_not_used(
    wrong: type, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor draws, and one warning says why; or other draws on the device do."""
    source, here = drawn(PLANS["banded"]), drawn(PLANS["banded"])
    monkeypatch.setattr(on_device, "engines", lambda device: [wrong])
    tensors = sums_of([torch.float64])
    arrays = [np.array(tensor.numpy(), order="C") for tensor in tensors]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for t in range(3):
            of_device.add_(source, tensors, t, records=1000)
    (said,) = [str(one.message) for one in told]
    assert said.startswith("Noise is drawn on the processor and copied to cpu")
    assert why in said
    for t in range(3):
        here.add_(arrays, t, records=1000)
    assert all(bits(a.numpy()) == bits(b) for a, b in zip(tensors, arrays, strict=True))
    assert source._hidden == here._hidden
    monkeypatch.setattr(on_device, "engines", lambda device: [wrong, eager.Eager])
    there = DeviceNoise(source, "cpu")
    with pytest.warns(UserWarning, match=f"drawn more slowly.*{why}"):
        assert type(there._engine(torch.float64)) is eager.Eager


@pytest.mark.usefixtures("eagerly")
@pytest.mark.skipif(HAS_TRITON, reason="the package triton is here")
def test_without_triton_operations_of_torch_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = on_device.engines(torch.device("cpu"))
    monkeypatch.undo()
    assert on_device.engines(torch.device("cuda")) == [on_device.triton, *cuda]
    monkeypatch.setattr(on_device, "engines", lambda device: [on_device.triton, eager.Eager])
    there = DeviceNoise(drawn(PLANS["fresh"]), "cpu")
    with pytest.warns(UserWarning, match="more slowly on cpu. By triton: ModuleNotFoundError"):
        assert type(there._engine(torch.float32)) is eager.Eager


def test_the_processor_draws_for_itself() -> None:
    """Without a word, and by arrays that nobody copies twice."""
    there, here = DeviceNoise(drawn(PLANS["banded"]), "cpu"), drawn(PLANS["banded"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = on_tensor(there, 3, 3000, 17, "float32")
    assert there._engine(torch.float32) is None
    assert bits(found) == bits(here.step(3, 3000, dtype=np.float32, start=17))


def test_a_run_without_an_end_goes_on_from_what_a_device_kept(
    tmp_path: Path, eagerly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noisedesign.noise import noise
    from tests.noise.test_states import PLAN

    def made(**of: Any) -> NodeNoise:
        return noise(PLAN, node=0, secret=noise_plans.SECRET, keep_every=4, **of)

    def step(source: NodeNoise, t: int) -> bytes:
        sums = [torch.zeros(1500), torch.zeros(100)]
        of_device.add_(source, sums, t, records=[f"r{t}"])
        return b"".join(bits(one.numpy()) for one in sums)

    exact = drawn(PLAN)
    first = made(record=tmp_path / "record")
    for t in range(6):
        assert step(first, t) == bits(exact.step(t, 1600, dtype=np.float32)), t
    again = made(record=tmp_path / "record", resume=True)
    assert again._states is not None
    asked: list[int] = []
    fresh = again._fresh_key
    monkeypatch.setattr(again, "_key", lambda stream, s: asked.append(s) or fresh(stream, s))
    for t in (5, 6, 7):
        assert step(again, t) == bits(exact.step(t, 1600, dtype=np.float32)), t
    assert set(asked) == {4, 5, 6, 7}
    processor = made(record=tmp_path / "record", resume=True)  # from what the device kept
    processor._key = None  # type: ignore[assignment]
    lane = processor._lane((0, np.dtype(np.float32)), 8, 256)
    assert lane.step == 7


def test_wrong_arguments() -> None:
    source = drawn(PLANS["fresh"])
    with pytest.raises(InputError, match="source: expected a NodeNoise"):
        DeviceNoise(PLANS["fresh"], "cpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="device: expected a device that torch has"):
        DeviceNoise(source, "nowhere")
    there = DeviceNoise(source, "cpu")
    for out in (
        torch.zeros(3, dtype=torch.float16),
        torch.zeros(4, 4).T[:2],
        torch.zeros(2, 0).int(),
    ):
        with pytest.raises(
            InputError, match="out: expected float32 or float64, contiguous, on cpu"
        ):
            there.step_(0, out)
    with pytest.raises(InputError, match="out: expected a tensor"):
        there.step_(0, np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="step"):
        there.step_(99, torch.zeros(3))


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = pages.blocks(pages.read("docs/guides/noise-on-a-device.md"), "py")
    exec(block.text, {})


def told(*words: str, **environment: str) -> Any:
    """What tests.support.device_kernel says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.device_kernel", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lab")])}
        | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
def test_the_interpreted_kernel_has_the_bits_of_the_processor() -> None:
    assert told("interpret", "fresh", "toeplitz", TRITON_INTERPRET="1") == []


@needs_triton
@pytest.mark.slow
def test_the_interpreted_kernel_has_the_bits_of_every_filter() -> None:
    kinds = list(KINDS)
    assert told("interpret", *kinds, TRITON_INTERPRET="1") == []
    assert told("interpret", "fresh", *reversed(kinds), TRITON_INTERPRET="1") == []


@needs_triton
@pytest.mark.parametrize("gpu", ["90", pytest.param("80", marks=pytest.mark.slow)])
def test_kernels_for_gpus_round_every_operation(gpu: str, tmp_path: Path) -> None:
    """No product and sum in one; divisions and roots are rounded as IEEE 754 says."""
    found = told("ptx", gpu, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert {"mul.rn.f64", "add.rn.f64", "sub.rn.f64", "div.rn.f64", "sqrt.rn.f64"} == set(found)
    assert min(found.values()) > 0


@pytest.mark.skipif(not CUDA, reason="needs a device of CUDA")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANS)
def test_on_cuda_steps_have_the_bits_of_the_processor(name: str, dtype: str) -> None:
    for make in on_device.engines(torch.device("cuda")):
        there, here = DeviceNoise(drawn(PLANS[name]), "cuda"), drawn(PLANS[name])
        there._engines[DTYPES[dtype]] = make(there.device)
        for t, size, start in ((0, 100_003, 0), (3, 100_003, 0), (3, 1000, 77), (1, 5, 2**34 - 3)):
            exact = here.step(t, size, dtype=dtype, start=start)
            assert bits(on_tensor(there, t, size, start, dtype)) == bits(exact), make


@pytest.mark.skipif(not CUDA, reason="needs a device of CUDA")
def test_on_cuda_it_is_tried_and_takes_this_long(capsys: pytest.CaptureFixture[str]) -> None:
    source = drawn(
        replace(PLANS["toeplitz"], horizon=1000, filter=noise_plans.filters(1000)["toeplitz"])
    )
    there, out = DeviceNoise(source, "cuda"), torch.empty(10**7, device="cuda")
    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(20):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            there.step_(t, out)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
    with capsys.disabled():
        print(f"\n{type(there._engine(torch.float32)).__name__}: {1e3 * min(times):.3f} ms of 1e7")
    exact = source.step(19, 1000, dtype=np.float32, start=10**7 - 1000)
    assert bits(out[-1000:].cpu().numpy()) == bits(exact)
