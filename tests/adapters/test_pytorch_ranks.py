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
D = 259  # numbers of the small model


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


# --- what ranks agree on --------------------------------------------------------------------------


def words(act: Callable[[], Any]) -> str:
    """What was refused; nothing where nothing was."""
    try:
        act()
    except InputError as error:
        return str(error)
    return ""


def beginnings(made: Made, folder: str) -> dict[str, str]:
    """How Gradients are refused where one rank, the last, begins in another way."""
    last = distributed.get_rank() == distributed.get_world_size() - 1
    found = {}

    def begin(case: str, source: NodeNoise, *, clip: float = CLIP, width: int = 11) -> None:
        found[case] = words(lambda: Gradients(made(network(width)), source, clip=clip))

    begin("secret", source_here(8 if last else 7))
    other = prefix_design(epsilon=5.0 if last else 6.0)
    begin("plan", node_noise(other, 7))
    begin("clip", source_here(), clip=2 * CLIP if last else CLIP)
    record = Path(folder, f"{made.__name__}.sqlite3")
    begin("record", source_here(record=record if last else False))
    if made is not replicas:  # which compares shapes itself
        model = network()
        model[1 + 2 * last].requires_grad_(False)
        found["model"] = words(lambda: Gradients(made(model), source_here(), clip=CLIP))
    begin("right", source_here(record=False if distributed.get_rank() else record))
    return found


REFUSED = {
    "secret": "secret: expected the same secret on all ranks, got another on rank {} than on rank",
    "plan": "plan: expected the same plan on all ranks, got another on rank {} than on rank 0",
    "clip": "clip: expected 0.5",
    "record": "record: expected record=False on all ranks but rank 0, which records for all, got",
    "model": "model: expected a model of the same parameters on all ranks, got another on rank {}",
}


@pytest.mark.parametrize("made", [replicas, shards])
def test_ranks_that_begin_in_different_ways_are_refused_on_all(
    pool: Pool, made: Made, tmp_path: Path
) -> None:
    answers = pool(beginnings, made, str(tmp_path))
    assert all(found == answers[0] for found in answers), answers
    assert answers[0].pop("right") == ""
    for case, said in answers[0].items():
        assert said.startswith(REFUSED[case].format(pool.world - 1)), said
        assert f"on rank {pool.world - 1}" in said


def mistakes(made: Made) -> dict[str, Any]:
    """What one rank may do wrong at a step; nothing is added, recorded or moved for it."""
    last = distributed.get_rank() == distributed.get_world_size() - 1
    found: dict[str, Any] = {}
    for case in WRONG:
        model, source = made(network()), source_here()
        gradients = Gradients(model, source, clip=CLIP)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        give(model, sums_of(D, 0))
        records: list[Any] = [0, 1]
        p = next(iter(model.parameters()))
        if case == "step" and last:
            gradients.step = 1
        if case == "records" and last:
            records = [0]
        if case == "sums" and last:
            pytorch_ranks.local(p.grad)[0, 0] += 2.0**-12
        if case == "no gradient" and last:
            p.grad = None
        if case == "half" and last and made is replicas:
            p.data = p.data.half()
            p.grad = torch.zeros_like(p)
        if case == "nan":
            pytorch_ranks.local(p.grad)[:1] = torch.nan
        if case == "long":
            for p in model.parameters():
                p.grad = 5 * p.grad
        if case == "checkpoint":
            state = gradients.state_dict()
            gradients.load_state_dict({**state, "extra": last})
        before = held(model)
        said = words(lambda g=gradients, r=records: g.add_noise_(records=r))
        if said:
            assert held(model) == before
            assert words(optimizer.step).startswith("optimizer: expected gradients with the noise")
        found[case] = said, sorted(source.steps), gradients.step - (case == "step" and last)
    return found


def held(model: torch.nn.Module) -> list[bytes]:
    """The bits of all gradients that are here."""
    here = [pytorch_ranks.local(p.grad) for p in model.parameters() if p.grad is not None]
    return [part.numpy().tobytes() for part in here]


WRONG = {
    "step": "step: expected the same step on all ranks, got another on rank {}",
    "records": "records: expected the records of the whole batch, on every rank, got another on",
    "sums": "sums: expected the same sums on all ranks, got another on rank {}",
    "no gradient": "parameters[0].grad: expected the sum of clipped gradients, got none, on rank",
    "half": "parameters[0]: expected float32 or float64, got float16, on rank {}",
    "nan": "parameters: expected sums of finite numbers, got norm nan, on rank 0",
    "long": "parameters: expected a sum of norm at most 1, of 2 records clipped to 0.5, got norm 2",
    "checkpoint": "checkpoint: expected the same checkpoint on all ranks, got another on rank {}",
}


@pytest.mark.parametrize("made", [replicas, shards, replicated_shards])
def test_a_mistake_of_one_rank_is_refused_on_all_before_anything_is_added(
    pool: Pool, made: Made
) -> None:
    if made is replicated_shards and pool.world == 2:
        pytest.skip("two copies of two shards are four ranks")
    answers = pool(mistakes, made)
    assert all(found == answers[0] for found in answers), answers
    for case, (said, used, step) in answers[0].items():
        if case == "half" and made is not replicas:
            continue
        if case == "sums" and made is shards:  # no two ranks hold the same number
            assert (said, used, step) == ("", [0], 1)
            continue
        assert said.startswith(WRONG[case].format(pool.world - 1)), said
        assert (used, step) == ([], 0), case


def test_sums_that_differ_where_nobody_notices_get_noise_once(two: Pool) -> None:
    """Sums of equal bits in another order pass, and are not what gets noise: rank 0's are."""
    one, exact = source_here(), sums_of(D, 0)
    for found in two(swapped):
        np.testing.assert_array_equal(found, expected(exact, 0, one))


def swapped() -> np.ndarray:
    model = replicas(network())
    gradients = Gradients(model, source_here(), clip=CLIP)
    flat = sums_of(D, 0)
    give(model, flat[::-1] if distributed.get_rank() else flat)
    gradients.add_noise_(records=[0])
    return flat_gradients(model)


def layouts() -> dict[str, str]:
    """Models that are not taken, and plain ones of which nobody said whose they are."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))

    def begin(model: torch.nn.Module, **how: Any) -> str:
        return words(lambda: Gradients(model, source_here(), clip=CLIP, **how))

    columns = fully_shard(torch.nn.Linear(4, 4), mesh=mesh, shard_placement_fn=lambda p: Shard(p.dim() - 1))
    tensors = parallelize_module(network(12), mesh, {"0": ColwiseParallel()})
    some = network()
    fully_shard(some[0], mesh=mesh)
    old = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    copies, sharded = replicas(network()), shards(network())
    run = Gradients(network(), source_here(), clip=CLIP, group=False)
    add_to([torch.zeros(3)], run, records=[0])  # of a node of its own
    world = distributed.group.WORLD
    return {
        "columns": begin(columns),
        "tensors": begin(tensors),
        "some": begin(some),
        "old": begin(old),
        "plain": begin(network()),
        "module": begin(copies.module),
        "twice": begin(copies, group=world),
        "alone": begin(sharded, group=False),
        "add_to": words(lambda: add_to([torch.zeros(3)], _run(), records=[0])),
        "arrays": words(
            lambda: Gradients(copies, source_here(), clip=CLIP).add_([np.zeros(3)], records=[0])
        ),
    }


def _run() -> Any:
    from noisedesign.adapters.run import Run

    return Run(source_here(), clip=CLIP)


WHOLE = "model: expected parameters that are whole on every rank, or in shards by fully_shard, got "
LAYOUTS = {
    "columns": WHOLE + "weight as (Shard(dim=1),)",
    "tensors": WHOLE + "0.weight and 2.weight, which differ",
    "some": WHOLE + "0.weight and 2.weight, which differ",
    "old": WHOLE + "FullyShardedDataParallel",
    "plain": "group: expected which ranks hold the model of this node, got a plain model on one",
    "module": "group: expected which ranks hold the model of this node, got a plain model on one",
    "add_to": "group: expected which ranks hold the model of this node, got a plain model on one",
    "twice": "group: expected none: the model says which ranks hold it, got ",
    "alone": "group: expected none: the model says which ranks hold it, got False",
    "arrays": "parameters: expected add_noise_, which all ranks call, got arrays of one rank",
}


def test_other_layouts_and_a_forgotten_group_are_refused_by_name(two: Pool) -> None:
    for found in two(layouts):
        assert found.keys() == LAYOUTS.keys()
        for case, said in found.items():
            assert said.startswith(LAYOUTS[case]), said
