"""A PyTorch loop on a device: the processor, that is, in place of one, and a GPU where there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import Secret, noise
from tests.support.trainers import CLIP, prefix_design

torch = pytest.importorskip("torch", reason="needs the package torch")

from noisedesign.adapters import pytorch  # noqa: E402
from noisedesign.adapters.pytorch import Gradients, add_to  # noqa: E402
from noisedesign.adapters.run import Run  # noqa: E402
from noisedesign.noise.device import DeviceNoise, eager, source as on_device  # noqa: E402

SECRET = Secret(bytes(range(32)))


@pytest.fixture
def drawn_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the processor are taken for those of a device."""
    monkeypatch.setattr(pytorch, "_on_devices", lambda tensors: True)
    if not torch.cuda.is_available():
        monkeypatch.setattr(on_device, "engines", lambda device: [eager.Eager])


def model_on(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(1, 3, 3), torch.nn.Flatten(), torch.nn.Linear(108, 2)
    return torch.nn.Sequential(*layers).to(device)


def gradients_of(model: torch.nn.Module, step: int) -> None:
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(step))
    model.zero_grad()
    model(x.to(next(model.parameters()).device)).square().mean().backward()
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))
    for p in model.parameters():
        p.grad.mul_(CLIP / norm)


def trained(
    model: torch.nn.Module, source: Any, steps: range, seen: Any = None
) -> list[np.ndarray]:
    """The gradients of every step, with noise."""
    run = Gradients(seen or model, source, clip=CLIP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in steps:
        gradients_of(seen or model, step)
        run.add_noise_(records=[f"r{step}"])
        found += [p.grad.cpu().numpy().copy() for p in model.parameters()]
        optimizer.step()
    return found


@pytest.fixture
def expected() -> list[np.ndarray]:
    return trained(
        model_on("cpu"), noise(prefix_design(), node=0, secret=SECRET, record=False), range(4)
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_has_the_same_bits(
    expected: list[np.ndarray], drawn_there: None, compiled: bool
) -> None:
    """With a model that torch.compile has, too."""
    source, model = noise(prefix_design(), node=0, secret=SECRET, record=False), model_on("cpu")
    seen = torch.compile(model, backend="eager") if compiled else None
    found = trained(model, source, range(4), seen)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert type(on_device.on(source, torch.device("cpu"))._engine(torch.float32)) is eager.Eager


def test_a_run_goes_on_where_it_was_killed(
    expected: list[np.ndarray], drawn_there: None, tmp_path: Path
) -> None:
    """The step before is the same again; other data at that step are refused, drawn anywhere."""
    model = model_on("cpu")

    def begun(**of: Any) -> Any:
        return noise(prefix_design(), node=0, secret=SECRET, record=tmp_path / "record", **of)

    first = trained(model, begun(), range(2))
    before = [p.detach().clone() for p in model.parameters()]
    source = begun(resume=True)
    run = Run(source, clip=CLIP)
    run.step = 1
    with pytest.raises(InputError, match="other data"):
        add_to([torch.full_like(p, 1e-3) for p in before], run, records=["r1"])
    run.step = 0
    again = model_on("cpu")
    gradients_of(again, 0)
    sums = [p.grad for p in again.parameters()]
    add_to(sums, run, records=["r0"])
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(sums, first[:4], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(first, expected[:8], strict=True))


@pytest.mark.usefixtures("drawn_there")
def test_tensors_that_no_device_takes() -> None:
    run = Run(noise(prefix_design(), node=0, secret=SECRET, record=False), clip=CLIP)
    wrong = {
        "float32 or float64": torch.zeros(3, dtype=torch.bfloat16),
        "a number of its own": torch.zeros(1).expand(5),
        "a dense tensor": torch.zeros(3, 3).to_sparse(),
        "finite numbers": torch.tensor([0.0, torch.nan]),
    }
    for expected, tensor in wrong.items():
        with pytest.raises(InputError, match=rf"parameters\[1\]: expected {expected}"):
            add_to([torch.zeros(2), tensor], run, records=["ann"])
    assert run.step == 0
    add_to([torch.zeros(2), torch.zeros(3)], run, records=["ann"])
    with pytest.raises(InputError, match="the shapes of the steps before"):
        add_to([torch.zeros(3), torch.zeros(2)], run, records=["bob"])
    with pytest.raises(InputError, match="norm"):
        add_to([torch.ones(2), torch.ones(3)], run, records=["bob"])
    assert run.step == 1


def test_tensors_of_the_processor_go_the_way_of_arrays() -> None:
    source = noise(prefix_design(), node=0, secret=SECRET, record=False)
    add_to([torch.zeros(5)], Run(source, clip=CLIP), records=["ann"])
    assert "_on_devices" not in vars(source)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device of CUDA")
def test_on_cuda_a_loop_has_the_bits_of_the_processor() -> None:
    source, here = (noise(prefix_design(), node=0, secret=SECRET, record=False) for _ in range(2))
    model = model_on("cuda")
    sums, run = [torch.zeros_like(p) for p in model.parameters()], Run(source, clip=CLIP)
    arrays = [p.cpu().numpy().copy() for p in sums]
    for t in range(3):
        add_to(sums, run, records=[f"r{t}"])
        here.add_(arrays, t, records=[f"r{t}"])
        for total, array in zip(sums, arrays, strict=True):
            assert np.array_equal(total.cpu().numpy(), array)
            total.zero_()
            array[...] = 0
    assert isinstance(on_device.on(source, sums[0].device), DeviceNoise)
