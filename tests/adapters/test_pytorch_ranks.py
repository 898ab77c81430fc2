"""One node's model on several ranks of PyTorch: whole on each, in shards, or both.

The truth is one process: sums are made by hand, and noise is drawn whole by ``NodeNoise.step``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import Batches, NodeNoise
from tests.support import ROOT
from tests.support.adapters import check_noise, designed_covariance
from tests.support.pages import blocks, read
from tests.support.ranks import Pool
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import (
    CLIP,
    a9a,
    node_noise,
    prefix_design,
    random_noise,
    secret,
    sums_by_hand,
)

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
    """Rows that no number of ranks divides, and fewer of them than ranks; on a rank's device."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(13, width), torch.nn.Tanh(), torch.nn.Linear(width, 7)
    return torch.nn.Sequential(
        *layers, torch.nn.LayerNorm(7), torch.nn.Linear(7, 1, bias=False)
    ).to(here())


def here() -> str:
    """The kind of devices of the ranks of this process."""
    nccl = distributed.is_initialized() and distributed.get_backend() == "nccl"
    return "cuda" if nccl else "cpu"


def plain(model: torch.nn.Module) -> torch.nn.Module:
    return model


def replicas(model: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(model)


def shards(model: torch.nn.Module, mesh: Any = None, **how: Any) -> torch.nn.Module:
    mesh = mesh or init_device_mesh(here(), (distributed.get_world_size(),))
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
    return torch.cat([whole(p.grad).double().flatten() for p in model.parameters()]).cpu().numpy()


def sums_of(d: int, t: int) -> np.ndarray:
    """Float32 sums of one record at step t, of norm below CLIP."""
    raw = np.sin(np.arange(d) * (t + 1.0))
    return (raw * (0.9 * CLIP / np.linalg.norm(raw))).astype(np.float32)


def give(model: torch.nn.Module, flat: np.ndarray) -> None:
    """p.grad = the numbers of a flattened model, where this rank has them."""
    at = 0
    for p in model.parameters():
        part = torch.from_numpy(flat[at : at + p.numel()].copy()).to(p).view(p.shape)
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
    fill = source._fill

    def counted(t: int, flat: Any, start: int) -> None:
        drawn.append(flat.size if t == 0 else 0)
        fill(t, flat, start)

    source._fill = counted  # type: ignore[method-assign]
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


def changed() -> dict[str, str]:
    """Models whose parameters, or shards, are others than those that Gradients was made of."""
    found = {}
    for made in (replicas, shards):
        model = network()
        model[0].requires_grad_(False)
        model = made(model)
        gradients = Gradients(model, source_here(), clip=CLIP)
        model.requires_grad_(True)
        give(model, sums_of(D, 0))
        found[made.__name__] = words(lambda g=gradients: g.add_noise_(records=[0]))
    gradients = Gradients(model, source_here(), clip=CLIP)
    for part in model.modules():
        if hasattr(part, "set_reshard_after_backward"):
            part.set_reshard_after_backward(False, recurse=False)
    model(torch.ones(2, 13)).sum().backward()
    found["unsharded"] = words(lambda: gradients.add_noise_(records=[0]))
    return found


def test_a_model_that_changes_is_refused(two: Pool) -> None:
    for found in two(changed):
        for made in ("replicas", "shards"):
            assert found[made].startswith("parameters: expected parameters and shards as they were")
        assert found["unsharded"].startswith("parameters")


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

    columns = fully_shard(
        torch.nn.Linear(4, 4), mesh=mesh, shard_placement_fn=lambda p: Shard(p.dim() - 1)
    )
    tensors = parallelize_module(network(12), mesh, {"0": ColwiseParallel()})
    some = network()
    fully_shard(some[0], mesh=mesh)
    old = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    copies, sharded = replicas(network()), shards(network())
    parts = [distributed.new_group([rank]) for rank in range(2)]
    alone = DistributedDataParallel(network(), process_group=parts[distributed.get_rank()])
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
        "shards": begin(sharded, group=world),
        "part": begin(alone),
        "add_to": words(lambda: add_to([torch.zeros(3)], _run(), records=[0])),
        "arrays": words(
            lambda: Gradients(copies, source_here(), clip=CLIP).add_([np.zeros(3)], records=[0])
        ),
    }


def _run() -> Any:
    from noisedesign.adapters.run import Run

    return Run(source_here(), clip=CLIP)


WHOLE = "model: expected parameters that are whole on every rank, or in shards by fully_shard, got "
FORGOTTEN = (
    "group: expected which of 2 ranks hold copies of the model of this node, got none, for a"
)
LAYOUTS = {
    "columns": WHOLE + "weight as (Shard(dim=1),)",
    "tensors": WHOLE + "0.weight and 2.weight, which differ",
    "some": WHOLE + "0.weight and 2.weight, which differ",
    "old": WHOLE + "FullyShardedDataParallel",
    "plain": FORGOTTEN,
    "module": FORGOTTEN,
    "part": FORGOTTEN,
    "add_to": FORGOTTEN,
    "twice": "group: expected ranks that the model knows nothing of, got some of those that share",
    "shards": "group: expected ranks that the model knows nothing of, got some of those that share",
    "arrays": "parameters: expected add_noise_, which all ranks call, got arrays of one rank",
}


def test_other_layouts_and_a_forgotten_group_are_refused_by_name(two: Pool) -> None:
    for found in two(layouts):
        assert found.keys() == LAYOUTS.keys()
        for case, said in found.items():
            assert said.startswith(LAYOUTS[case]), said


# --- gradients of single records ------------------------------------------------------------------

RECORDS, LIMIT = 9, 0.8  # some gradients are longer, and some shorter


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = random.standard_normal((RECORDS, 13)) * np.linspace(0.01, 3.0, RECORDS)[:, None]
    return x.astype(np.float32), (random.random(RECORDS) < 0.5).astype(np.float32)


def logistic(hidden: int = 5) -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(13, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    )


def sums_by_formulas(records: Any, *, clip: float = LIMIT) -> np.ndarray:
    """The sum of clipped gradients by the formulas of the logistic loss, in the model's order."""
    hidden, bias, out, shift = (p.detach().double().numpy() for p in logistic().parameters())
    numbers = {"hidden": hidden.T, "bias": bias, "out": out[0], "shift": shift[0]}
    (x, y), records = data(), list(records)
    found = sums_by_hand(numbers, x[records], y[records], clip=clip)
    return np.concatenate([found[name].T.ravel() for name in found])


def test_formulas_clip_some_records_and_not_others() -> None:
    norms = [np.linalg.norm(sums_by_formulas([i])) for i in range(RECORDS)]
    assert min(norms[:5]) < 0.9 * LIMIT
    assert sum(norm > 0.999 * LIMIT for norm in norms[:5]) >= 2


def loss_of(model: Any, record: int) -> torch.Tensor:
    x, y = (torch.from_numpy(a[record : record + 1]) for a in data())
    return torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)


class Checkpointed(torch.nn.Sequential):
    """Its first layers are computed again on the way back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def first(z: torch.Tensor) -> torch.Tensor:
            return self[1](self[0](z))

        return self[2](torch.utils.checkpoint.checkpoint(first, x, use_reentrant=False))


def compiled(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="aot_eager")


def offloaded(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import CPUOffloadPolicy

    return shards(model, offload_policy=CPUOffloadPolicy(pin_memory=False))


def shards_and_group(model: torch.nn.Module) -> tuple[torch.nn.Module, Any]:
    """Two copies of two shards, of which FSDP knows the shards."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    return shards(model, mesh["shards"]), mesh["copies"].get_group()


def clipped(made: Any, how: str, plan: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The sums of clipped gradients of two steps, and the same with noise: records of step 0 are
    0 to 4, which no number of ranks divides, and of step 1 one record alone."""
    model: Any = Checkpointed(*logistic()) if how == "checkpointed" else logistic()
    group: Any = False if made is plain else None
    rank, copy, copies = distributed.get_rank(), 0, 1
    if made is shards_and_group:
        model, group = made(model)
        copy, copies = rank // 2, 2
    else:
        model = made(model)
    if made is replicas:
        copy, copies = rank, distributed.get_world_size()
    size = plan.claim.batch_size if plan else None
    source = node_noise(plan or prefix_design(clip=LIMIT), 7, batch_size=size)
    gradients = Gradients(model, source, clip=LIMIT, group=group)
    forward = {"module": lambda: model.module, "compiled": lambda: compiled(model)}.get(
        how, lambda: model
    )()
    sums, noisy = [], []
    for batch in ([0, 1, 2, 3, 4], [RECORDS - 1]):
        for record in batch[copy::copies]:
            if how == "no_sync":
                with model.no_sync():
                    gradients.backward_(loss_of(forward, record), record=np.int64(record))
            else:
                gradients.backward_(loss_of(forward, record), record=record)
        gradients.collect_()
        sums.append(flat_gradients(model))
        gradients.add_noise_(records=batch)
        noisy.append(flat_gradients(model))
    return np.array(sums), np.array(noisy)


WAYS = [
    (plain, ""),
    (plain, "checkpointed"),
    (plain, "compiled"),
    (replicas, "module"),
    (replicas, "no_sync"),
    (shards, ""),
    (shards, "checkpointed"),
    (shards, "compiled"),
    (offloaded, ""),
    (replicated_shards, ""),
    (shards_and_group, ""),
]


@pytest.mark.parametrize(("made", "how"), WAYS)
@pytest.mark.parametrize("size", [None, 4])
def test_sums_of_clipped_gradients_and_noise_are_those_of_one_process(
    pool: Pool, made: Made, how: str, size: int | None
) -> None:
    """With gradients accumulated record by record, some ranks having none."""
    if (pool.world == 2) is (made in (replicated_shards, shards_and_group)) or (
        how and (size or pool.world == 4)
    ):
        pytest.skip("of shards and copies on four ranks, of ways to compute once")
    design = prefix_design(clip=LIMIT)
    plan = None if size is None else design.node_plan(0, batch_size=size)
    one = node_noise(plan or design, 7, batch_size=size)
    answers = pool(clipped, made, how, plan)
    for sums, noisy in answers:
        np.testing.assert_array_equal(noisy, answers[0][1])
        for t, batch in enumerate(([0, 1, 2, 3, 4], [RECORDS - 1])):
            by_hand = sums_by_formulas(batch) / (size or 1)
            np.testing.assert_allclose(sums[t], by_hand, rtol=2e-5, atol=1e-6)
            exact = expected(sums[t].astype(np.float32), t, one, size or 1)
            np.testing.assert_array_equal(noisy[t], exact)


@pytest.mark.slow
def test_sums_of_a_compiled_model_are_those_of_one_that_is_not() -> None:
    """By PyTorch's own compiler, which takes a while; that of the others is not it."""
    model, design = logistic(), prefix_design(clip=LIMIT)
    gradients = Gradients(model, node_noise(design, 7), clip=LIMIT)
    forward = torch.compile(model)
    for record in range(RECORDS):
        gradients.backward_(loss_of(forward, record), record=record)
    gradients.collect_()
    sums = flat_gradients(model)
    gradients.add_noise_(records=range(RECORDS))
    np.testing.assert_allclose(sums, sums_by_formulas(range(RECORDS)), rtol=2e-5, atol=1e-6)
    exact = expected(sums.astype(np.float32), 0, node_noise(design, 7))
    np.testing.assert_array_equal(flat_gradients(model), exact)


def misuse() -> dict[str, str]:
    """What backward_ and collect_ are not for."""
    rank, found = distributed.get_rank(), {}

    def begin(made: Made) -> tuple[torch.nn.Module, Gradients]:
        model = made(logistic())
        return model, Gradients(model, node_noise(prefix_design(clip=LIMIT), 7), clip=LIMIT)

    model, gradients = begin(replicas)
    loss = loss_of(model, rank)  # within DistributedDataParallel, which averages gradients
    found["averaged"] = words(lambda: gradients.backward_(loss, record=rank))
    with torch.no_grad():
        loss_of(model, rank)
    gradients.backward_(loss_of(model.module, rank), record=rank)
    found["not collected"] = words(lambda: gradients.add_noise_(records=[0, 1]))
    gradients.collect_()
    for records in ([0], [0, 1, 2], [0, 2]):
        found[f"records {records}"] = words(lambda r=records: gradients.add_noise_(records=r))
    found["right"] = words(lambda: gradients.add_noise_(records=[1, 0]))
    model, gradients = begin(shards)
    own = loss_of(model, rank)
    found["own records"] = words(lambda: gradients.backward_(own, record=rank))
    loss = loss_of(model, 0) * torch.nan
    found["nan"] = words(lambda: gradients.backward_(loss, record=0))
    constant = torch.zeros((), requires_grad=True)
    found["constant"] = words(lambda: gradients.backward_(constant * 2, record=0))
    model, gradients = begin(shards)
    give(model, np.zeros(76, np.float32))
    if rank:
        gradients.collect_()
    found["on one"] = words(lambda: gradients.add_noise_(records=[0]))
    return found


MISUSE = {
    "averaged": "loss: expected gradients of this rank alone, from model.module(x) or in model.no",
    "not collected": "parameters[0].grad: expected the sum of clipped gradients, got none",
    "records [0]": "records: expected those whose gradients backward_ took on all ranks, each once",
    "records [0, 1, 2]": "records: expected those whose gradients backward_ took on all ranks",
    "records [0, 2]": "records: expected those whose gradients backward_ took on all ranks",
    "own records": "record: expected one record on all ranks that hold shards of one model",
    "nan": "loss: expected finite numbers, got one that is not",
    "on one": "taken: expected backward_ and collect_ on all ranks, or on none, got another",
    "constant": "loss: expected a loss of the model, got one without a gradient",
}


def test_gradients_that_are_not_of_one_record_each_are_refused(two: Pool) -> None:
    for found in two(misuse):
        assert found.pop("right") == ""
        assert found.keys() == MISUSE.keys()
        for case, said in found.items():
            assert said.startswith(MISUSE[case]), said


def begun_again() -> np.ndarray:
    """A batch that is given up, after it is collected, leaves nothing."""
    rank, model = distributed.get_rank(), replicas(logistic())
    gradients = Gradients(model, node_noise(prefix_design(clip=LIMIT), 7), clip=LIMIT)
    gradients.backward_(loss_of(model.module, rank), record=rank)
    gradients.collect_()
    assert words(lambda: gradients.add_noise_(records=[0])).startswith("records: ")
    gradients.backward_(loss_of(model.module, 2 + rank), record=2 + rank)
    gradients.collect_()
    found = flat_gradients(model)
    gradients.add_noise_(records=[2, 3])
    return found


def test_a_batch_that_is_given_up_leaves_nothing(two: Pool) -> None:
    for found in two(begun_again):
        np.testing.assert_allclose(found, sums_by_formulas([2, 3]), rtol=2e-5, atol=1e-6)


def weighted(made: Made) -> np.ndarray:
    """One pass of losses that are weighted by known norms, every rank's of its own records."""
    model, ranks = made(logistic()), distributed.get_world_size()
    gradients = Gradients(model, node_noise(prefix_design(clip=LIMIT), 7), clip=LIMIT)
    mine = range(distributed.get_rank(), RECORDS, ranks)
    norms = [np.linalg.norm(sums_by_formulas([record], clip=1e9)) for record in mine]
    weights = torch.tensor([min(1.0, LIMIT / norm) for norm in norms])
    x, y = (torch.from_numpy(a[list(mine)]) for a in data())
    how = {"weight": weights, "reduction": "sum"}
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y, **how)
    (ranks * loss).backward()  # all ranks take the mean
    found = flat_gradients(model)
    gradients.add_noise_(records=range(RECORDS))
    return found


@pytest.mark.parametrize("made", [replicas, shards])
def test_one_pass_of_weighted_losses_gives_the_sum(two: Pool, made: Made) -> None:
    for found in two(weighted, made):
        np.testing.assert_allclose(found, sums_by_formulas(range(RECORDS)), rtol=2e-5, atol=1e-6)


def drawn_batches() -> tuple[list[list[int]], list[np.ndarray]]:
    """Random batches, of which some are empty: all ranks draw the same ones from the secret."""
    model = shards(logistic())
    gradients = Gradients(model, random_noise(), clip=CLIP)
    batches, found = gradients.batches(RECORDS), []
    for batch in batches:
        for record in batch:
            gradients.backward_(loss_of(model, int(record)), record=record)
        gradients.collect_()
        sums = flat_gradients(model)
        gradients.add_noise_(records=batch)
        found.append(flat_gradients(model) - sums)
    return [batch.tolist() for batch in batches], found


def test_batches_of_random_participation_are_those_of_the_node(two: Pool) -> None:
    one, answers = random_noise(), two(drawn_batches)
    batches = [batch.tolist() for batch in one.batches(RECORDS)]
    assert any(not batch for batch in batches)
    for drawn, noises in answers:
        assert drawn == batches
        for t, noise in enumerate(noises):
            np.testing.assert_allclose(noise, one.step(t, 76, dtype=np.float32), atol=1e-6)


# --- restarts -------------------------------------------------------------------------------------


def until_killed(folder: str, until: int) -> None:
    """A run of this many ranks, killed after a step whose state no checkpoint has."""
    model = shards(network())
    record = Path(folder, "records.sqlite3") if distributed.get_rank() == 0 else False
    gradients = Gradients(model, source_here(record=record), clip=CLIP)
    for t in range(until):
        give(model, sums_of(D, t))
        gradients.add_noise_(records=[t % 4])
        if t == 1 and distributed.get_rank() == 0:
            state = json.dumps(gradients.state_dict())
            Path(folder, "state.json").write_text(state)
    os.kill(os.getpid(), signal.SIGKILL)


def going_on(made: Made, folder: str, load: bool) -> dict[str, Any]:
    """The same run on other ranks: by its checkpoint, or by what rank 0's record knows."""
    model = made(network())
    how: dict[str, Any] = {"record": Path(folder, "records.sqlite3"), "resume": True}
    if made is not plain and distributed.get_rank():
        how = {"record": False}
    gradients = Gradients(model, source_here(**how), clip=CLIP)
    found: dict[str, Any] = {"begun": gradients.step}
    state = json.loads(Path(folder, "state.json").read_text())
    if load:
        gradients.load_state_dict(state)
    found["first"] = first = gradients.step
    give(model, sums_of(D, 9 if load else first))
    found["other data"] = words(lambda: gradients.add_noise_(records=[first % 4]))
    found["noisy"] = [] if load else [flat_gradients(model)]
    found["too early"] = words(lambda: gradients.add_noise_(records=[3]))
    for t in range(gradients.step, 6):
        give(model, sums_of(D, t))
        gradients.add_noise_(records=[t % 4])
        found["noisy"].append(flat_gradients(model))
    found["state"] = gradients.state_dict()
    gradients.load_state_dict(state)
    found["skipped"] = list(gradients.skip_used())
    return found


@pytest.mark.parametrize("load", [True, False])
def test_a_run_of_two_ranks_goes_on_with_four_or_one(
    four: Pool, load: bool, tmp_path: Path
) -> None:
    """Killed after four steps, of which a checkpoint knows two; the record of rank 0 knows all."""
    doomed = Pool(2, tmp_path)
    assert doomed.killed_by(until_killed, str(tmp_path), 4) == [-signal.SIGKILL] * 2
    one = source_here()
    exact = [expected(sums_of(D, t), t, one) for t in range(6)]
    states = []
    for made in (plain, replicas, shards):
        folder = tmp_path / made.__name__
        folder.mkdir()
        for file in tmp_path.glob("*.*"):
            shutil.copy(file, folder)
        args = made, str(folder), load
        for found in [going_on(*args)] if made is plain else four(going_on, *args):
            assert (found["begun"], found["first"]) == (4, 2 if load else 4)
            other = "step: expected noise of every step for one sum" if load else ""
            assert found["other data"].startswith(other)
            assert found["too early"].startswith("records: expected every record as often")
            assert bool(found["other data"]) == load
            np.testing.assert_array_equal(found["noisy"], exact[found["first"] :])
            assert found["skipped"] == [2, 3, 4, 5]
            states.append(found["state"])
    assert all(state == states[0] for state in states)


def saved_in_parts(folder: str, load: bool) -> tuple[list[np.ndarray], np.ndarray, Any]:
    """A run that torch.distributed.checkpoint keeps after two steps, and brings back."""
    from torch.distributed import checkpoint

    model = shards(network())
    record: Any = Path(folder, "records.sqlite3") if distributed.get_rank() == 0 else False
    source = source_here(record=record, resume=load and distributed.get_rank() == 0)
    gradients = Gradients(model, source, clip=CLIP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    states = {"model": model.state_dict(), "noise": gradients}
    if load:
        checkpoint.load(states, checkpoint_id=f"{folder}/parts", process_group=None)
        model.load_state_dict(states["model"])
    noisy = []
    for t in range(gradients.step, 6 if load else 4):
        give(model, sums_of(D, t))
        gradients.add_noise_(records=[t % 4])
        noisy.append(flat_gradients(model))
        optimizer.step()
        if t == 1 and not load:
            states["model"] = model.state_dict()
            checkpoint.save(states, checkpoint_id=f"{folder}/parts")
    moved = torch.cat([whole(p.detach()).flatten() for p in model.parameters()]).numpy()
    return noisy, moved, gradients.state_dict()


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_of_shards_go_on_with_another_number_of_ranks(
    two: Pool, four: Pool, tmp_path: Path
) -> None:
    one, model = source_here(), network()
    exact = [expected(sums_of(D, t), t, one) for t in range(6)]
    for noisy, _, _ in two(saved_in_parts, str(tmp_path), False):
        np.testing.assert_array_equal(noisy, exact[:4])
    moved = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    for noise in exact:
        moved -= np.float32(0.1) * noise.astype(np.float32)
    states = []
    for noisy, found, state in four(saved_in_parts, str(tmp_path), True):
        np.testing.assert_array_equal(noisy, exact[2:])
        np.testing.assert_allclose(found, moved, rtol=1e-5, atol=1e-6)
        states.append(state)
    assert all(state == states[0] for state in states)
    assert len(states[0]["attendance"]["steps"]) == 4


# --- the noise of a whole run ---------------------------------------------------------------------


def whole_run(made: Made) -> np.ndarray:
    """All noise of a run, on sums of zeros."""
    model = made(torch.nn.Linear(2000, 2))
    gradients = Gradients(model, source_here(), clip=CLIP)
    found = []
    for t in range(gradients.horizon):
        give(model, np.zeros(4002, np.float32))
        gradients.add_noise_(records=[t % 4])
        found.append(flat_gradients(model))
    return np.array(found)


@pytest.mark.parametrize("made", [replicas, fully_shard])
def test_covariance_at_every_two_steps_is_that_of_the_design(two: Pool, made: Made) -> None:
    for noises in two(whole_run, made):
        assert noises.shape == (12, 4002)
        check_noise(designed_covariance(prefix_design()), noises)


# --- the guide ------------------------------------------------------------------------------------

GUIDE = "docs/guides/pytorch-on-several-ranks.md"
RATE, SOME = 0.05, 120  # of the script, and how many records it gets
STOPPED = "    optimizer.step()\n    if t == 5:\n        raise SystemExit(9)\n"


def script(*, stopped: bool = False) -> str:
    text = next(iter(blocks(read(GUIDE), "py"))).text
    return text.replace("    optimizer.step()\n", STOPPED) if stopped else text


def prepare(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The files that the script reads, of real records."""
    prefix_design(clip=1.0).node_plan(0).save(folder / "node.plan")
    secret(7).save(folder / "node.secret")
    x, y = a9a(SOME)
    np.savez(folder / "train.npz", x=x, y=y)
    return x, y


def run_script(text: str, folder: str, *options: str) -> str:
    """The script as one of the ranks of this pool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NOISEDESIGN_RECORDS", f"{folder}/records.sqlite3")
        patch.setattr(sys, "argv", ["train.py", *options])
        patch.setattr(distributed, "init_process_group", lambda backend: None)
        patch.setattr(distributed, "destroy_process_group", lambda: None)
        scope: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(text, scope)
        except SystemExit:
            return "stopped"
        return str(scope["gradients"].step)


def trained_by_hand(x: np.ndarray, y: np.ndarray, skipped: Any) -> np.ndarray:
    """All parameters after the script, with the noise of one process."""
    source, (hidden, _, out) = node_noise(prefix_design(clip=1.0), 7), script_model(x.shape[1])
    arrays = [p.detach().double().numpy() for p in (*hidden.parameters(), *out.parameters())]
    numbers = dict(zip(("hidden", "bias", "out", "shift"), arrays, strict=True))
    numbers |= {"hidden": numbers["hidden"].T, "out": numbers["out"][0], "shift": arrays[3][0]}
    flat = np.concatenate([a.ravel() for a in arrays])
    batches = Batches(prefix_design(clip=1.0).problem.participation.rule, horizon=12, records=SOME)
    for t, batch in enumerate(batches):
        if t not in skipped:
            sums = sums_by_hand(numbers, x[batch], y[batch], clip=1.0)
            moves = np.concatenate([sums[name].T.ravel() for name in sums])
            flat = flat - RATE * (moves + source.step(t, flat.size, dtype=np.float32))
            cut = np.split(flat, np.cumsum([a.size for a in arrays])[:-1])
            numbers = {
                "hidden": cut[0].reshape(32, -1).T,
                "bias": cut[1],
                "out": cut[2],
                "shift": cut[3][0],
            }
    return flat


def script_model(features: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = torch.nn.Linear(features, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    return torch.nn.Sequential(*layers)


def check_script(folder: Path, x: np.ndarray, y: np.ndarray, skipped: Any) -> None:
    from torch.distributed import checkpoint

    state = {"model": script_model(x.shape[1]).state_dict()}
    checkpoint.load(state, checkpoint_id=folder / "checkpoints" / "000012", no_dist=True)
    found = torch.cat([part.flatten() for part in state["model"].values()]).numpy()
    np.testing.assert_allclose(found, trained_by_hand(x, y, skipped), rtol=2e-4, atol=2e-4)


@pytest.mark.filterwarnings("ignore")
def test_the_script_of_the_guide(two: Pool, four: Pool, tmp_path: Path) -> None:
    """On two ranks with copies; stopped there, on four with shards."""
    for name, stopped in (("whole", False), ("stopped", True)):
        folder = tmp_path / name
        folder.mkdir()
        x, y = prepare(folder)
        answers = two(run_script, script(stopped=stopped), str(folder))
        assert answers == (["stopped"] * 2 if stopped else ["12"] * 2)
    check_script(tmp_path / "whole", x, y, ())
    assert four(run_script, script(), str(tmp_path / "stopped"), "--shards") == ["12"] * 4
    check_script(tmp_path / "stopped", x, y, (4, 5))


@pytest.mark.slow
def test_torchrun_takes_the_script(tmp_path: Path) -> None:
    x, y = prepare(tmp_path)
    (tmp_path / "train.py").write_text(script())
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    records = {"NOISEDESIGN_RECORDS": str(tmp_path / "records.sqlite3"), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **records, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_script(tmp_path, x, y, ())


def guide_loop(folder: str) -> np.ndarray:
    """The loop of the guide that computes its part of the sum in one pass."""
    from tests.adapters.test_pytorch import clipped_sums

    x, y = (torch.from_numpy(a) for a in a9a(SOME))
    model = DistributedDataParallel(script_model(x.shape[1]))
    gradients = Gradients(model, source_here(), clip=CLIP)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    scope = {"gradients": gradients, "batches": gradients.batches(len(x)), "X": x, "Y": y}
    scope |= {"rank": distributed.get_rank(), "ranks": 2, "model": model, "optimizer": optimizer}
    exec(list(blocks(read(GUIDE), "py"))[1].text, {**scope, "add_up": clipped_sums, **HELD})
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    return np.array([gradients.step, float((after - before).norm())])


HELD = {"distributed": distributed}


def test_the_other_loop_of_the_guide(two: Pool, tmp_path: Path) -> None:
    a9a(SOME)
    answers = two(guide_loop, str(tmp_path))
    np.testing.assert_array_equal(answers[0], answers[1])
    assert answers[0][0] == 12


# --- the rows of the table of trainers ------------------------------------------------------------


def processor_time(made: Made, d: int) -> float:
    """Seconds of this rank's processor for the noise of a step, the least of some."""
    model = made(torch.nn.Sequential(torch.nn.Linear(d // 1000, 1000, bias=False)))
    gradients = Gradients(model, source_here(), clip=CLIP, group=False if made is plain else None)
    spent = []
    for t in range(7):
        give(model, np.zeros(d, np.float32))
        begun = time.process_time()
        gradients.add_noise_(records=[t % 4])
        spent.append(time.process_time() - begun)
    return min(spent[2:])


ROWS = {
    "PyTorch DDP": (
        replicas,
        ["every bit of one process on 2 and 4 ranks, each drawing its part of the noise"],
        ["sums that differ", "gradients averaged before they are clipped"],
    ),
    "PyTorch FSDP2": (
        shards,
        [
            "every bit of one process in shards, copies of shards, and offloaded",
            "checkpoints of torch.distributed.checkpoint on another number of ranks",
        ],
        ["shards of columns, tensor parallelism, ignored parameters, FSDP1"],
    ),
}
BOTH = (
    ["per-record clipping by backward_", "torch.compile", "activation checkpointing", "kill -9"],
    ["ranks that differ in plan, secret, step or records", "a plain model on one of several ranks"],
)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_table(two: Pool, name: str) -> None:
    (made, works, refuses), d = ROWS[name], 2_000_000
    alone, shared = (max(two(processor_time, how, d)) for how in (plain, made))
    cost = f"noise takes each of 2 ranks {shared / alone:.2f} of the processor time of one process"
    packages = ["torch"]
    trainer_row(
        name,
        packages=packages,
        works=[*works, *BOTH[0]],
        refuses=[*refuses, *BOTH[1]],
        cost=f"{cost}, at {d:,} numbers, over gloo",
    )


# --- several devices ------------------------------------------------------------------------------


def test_noise_on_several_devices(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices of CUDA, for NCCL")
    pool = Pool(2, tmp_path, backend="nccl")
    try:
        for made in (replicas, shards):
            for _, found, _ in pool(steps_of, made, 11, 1 << 20):
                one = source_here()
                for t in range(STEPS):
                    np.testing.assert_array_equal(found[t], expected(sums_of(D, t), t, one))
    finally:
        pool.close()
