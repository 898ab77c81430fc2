"""One node's model on several ranks of PyTorch: whole on each, in shards, or both.

The truth is one process: sums are made by hand, and noise is drawn whole by ``NodeNoise.step``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.support.ranks import Pool
from tests.support.trainers import CLIP, node_noise, prefix_design, random_noise

torch = pytest.importorskip("torch", reason="needs the package torch")

from torch import distributed  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from noisedesign.adapters import pytorch_ranks  # noqa: E402
from noisedesign.adapters.pytorch import Gradients, add_to  # noqa: E402

STEPS = 5


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(2, tmp_path_factory.mktemp("two"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(4, tmp_path_factory.mktemp("four"))
    yield pool
    pool.close()


@pytest.fixture(params=["two", "four"])
def pool(request: pytest.FixtureRequest) -> Pool:
    found: Pool = request.getfixturevalue(request.param)
    return found


# --- models, and what all ranks do ----------------------------------------------------------------


def network(width: int = 11) -> torch.nn.Module:
    """Rows that no number of ranks divides, and fewer of them than ranks."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(13, width), torch.nn.Tanh(), torch.nn.Linear(width, 7)
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(7), torch.nn.Linear(7, 1, bias=False))


def plain(model: torch.nn.Module) -> torch.nn.Module:
    return model


def replicas(model: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(model)


def shards(model: torch.nn.Module, mesh: Any = None, **how: Any) -> torch.nn.Module:
    mesh = mesh or init_device_mesh("cpu", (distributed.get_world_size(),))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)


def replicated_shards(model: torch.nn.Module) -> torch.nn.Module:
    return shards(model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))


Made = Callable[[torch.nn.Module], torch.nn.Module]


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def flat_gradients(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([whole(p.grad).double().flatten() for p in model.parameters()]).numpy()


def sums_of(d: int, t: int) -> np.ndarray:
    """Float32 sums of one record at step t, of norm below CLIP."""
    raw = np.sin(np.arange(d) * (t + 1.0))
    return (raw * (0.9 * CLIP / np.linalg.norm(raw))).astype(np.float32)


def give(model: torch.nn.Module, flat: np.ndarray) -> None:
    """p.grad = the numbers of a flattened model, where this rank has them."""
    at = 0
    for p in model.parameters():
        part = torch.from_numpy(flat[at : at + p.numel()].copy()).to(p.dtype).view(p.shape)
        if hasattr(p, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            part = distribute_tensor(part, p.device_mesh, p.placements)
        p.grad, at = part, at + p.numel()


def expected(flat: np.ndarray, t: int, source: NodeNoise, divisor: int = 1) -> np.ndarray:
    """One process by hand: the sum, and the noise of the step."""
    noise = source.step(t, flat.size, dtype=flat.dtype)
    return (flat + noise / np.float32(divisor)).astype(np.float64)


def source_here(number: int = 7, **how: Any) -> NodeNoise:
    return node_noise(prefix_design(), number, **how)


def steps_of(made: Made, width: int, sent: int) -> tuple[int, list[np.ndarray], int]:
    """d, all gradients with noise, and how many numbers this rank drew in the first step."""
    pytorch_ranks.SENT = sent
    model = made(network(width))
    d, source, drawn = sum(p.numel() for p in model.parameters()), source_here(), []
    gradients = Gradients(model, source, clip=CLIP)
    step = source.step

    def counted(t: int, **how: Any) -> Any:
        drawn.append(how["out"].size if t == 0 else 0)
        return step(t, **how)

    source.step = counted  # type: ignore[method-assign]
    found = []
    for t in range(STEPS):
        give(model, sums_of(d, t))
        gradients.add_noise_(records=[t % 4])
        found.append(flat_gradients(model))
    assert gradients.step == source.next_step == STEPS
    return d, found, sum(drawn)


LARGE = 6000  # hidden units: 132,000 numbers, five blocks that are drawn together


@pytest.mark.parametrize("width", [11, LARGE])
@pytest.mark.parametrize("made", [replicas, shards, replicated_shards])
def test_every_bit_is_that_of_one_process_and_is_drawn_once(
    pool: Pool, made: Made, width: int
) -> None:
    if made is replicated_shards and pool.world == 2:
        pytest.skip("two copies of two shards are four ranks")
    answers = pool(steps_of, made, width, 1 << 20 if width == 11 else 5000)
    d = answers[0][0]
    one = source_here()
    for t in range(STEPS):
        exact = expected(sums_of(d, t), t, one)
        for _, found, _ in answers:
            np.testing.assert_array_equal(found[t], exact)
    assert sum(drawn for _, _, drawn in answers) == d
    if width == LARGE and made is not shards:
        assert max(drawn for _, _, drawn in answers) < 0.7 * d
