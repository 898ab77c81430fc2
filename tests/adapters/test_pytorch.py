"""Designed noise in a PyTorch loop of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.support import ROOT
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainer_rows import times, trainer_row
from tests.support.trainers import (
    CLIP,
    FEATURES,
    a9a,
    check_learned,
    follow,
    node_noise,
    prefix_design,
    random_noise,
    sums_by_hand,
)

torch = pytest.importorskip("torch", reason="needs the package torch")

from noisedesign.adapters.pytorch import Gradients  # noqa: E402

RATE = 8.0


def network(dtype: Any = torch.float32) -> torch.nn.Module:
    torch.manual_seed(0)
    hidden = torch.nn.Linear(FEATURES, 32, dtype=dtype)
    return torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(32, 1, dtype=dtype))


def clipped_sums(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """p.grad = sum over the batch of per-record gradients, clipped to CLIP together."""

    def loss(parameters: Any, features: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        out = torch.func.functional_call(model, parameters, (features[None],))
        return torch.nn.functional.binary_cross_entropy_with_logits(out[0, 0], label)

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    norms = sum(g.flatten(1).square().sum(1) for g in each.values()).sqrt()
    factors = (CLIP / norms).clamp(max=1.0)
    for name, p in model.named_parameters():
        p.grad = torch.einsum("i,i...->...", factors, each[name])


def flat(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()


def numbers(model: torch.nn.Module) -> dict[str, np.ndarray]:
    hidden, bias, out, shift = (p.detach().double().numpy() for p in model.parameters())
    return {"hidden": hidden.T, "bias": bias, "out": out[0], "shift": shift[0]}


def flat_by_hand(model: torch.nn.Module, batch: np.ndarray) -> np.ndarray:
    """The sum of clipped gradients of a9a, in the order of the model's parameters."""
    x, y = a9a()
    found = sums_by_hand(numbers(model), x[batch], y[batch])
    return np.concatenate([found[name].T.ravel() for name in found])


class Training:
    """A run over a9a; ``noises`` is what moved the parameters beside the sums of gradients, which
    are taken by hand."""

    def __init__(self, noise: NodeNoise, *, dtype: Any = torch.float32, divide: int = 1) -> None:
        self.model = network(dtype)
        self.x, self.y = (torch.from_numpy(a).to(dtype) for a in a9a())
        self.gradients = Gradients(self.model, noise, clip=CLIP)
        self.batches = self.gradients.batches(len(self.x))
        self.divide = divide
        self.rate = RATE * divide / len(self.batches[0])
        self.noises: list[np.ndarray] = []

    def steps(self, until: int | None = None) -> Iterator[int]:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate)
        while self.gradients.step < (until or self.gradients.horizon):
            batch = self.batches[self.gradients.step]
            optimizer.zero_grad()
            clipped_sums(self.model, self.x[batch], self.y[batch])
            for p in self.model.parameters():
                p.grad /= self.divide
            before, sums = flat(self.model), flat_by_hand(self.model, batch)
            self.gradients.add_noise_(records=batch)
            optimizer.step()
            self.noises.append((before - flat(self.model)) / self.rate - sums / self.divide)
            yield self.gradients.step

    def run(self, until: int | None = None) -> np.ndarray:
        for _ in self.steps(until):
            pass
        return np.array(self.noises)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_in_the_parameters_is_that_of_the_design_for_the_whole_horizon(dtype: Any) -> None:
    design = prefix_design()
    training = Training(node_noise(design), dtype=dtype)
    noises = training.run()
    assert noises.shape == (12, FEATURES * 32 + 32 + 32 + 1)
    check_noise(designed_covariance(design), noises)
    start, rate = numbers(network()), training.rate
    check_learned(numbers(training.model), start, training.batches, a9a(), rate=rate)


def test_the_loop_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    model, rate = network(), 4 / 1500
    x, y = (torch.from_numpy(a) for a in a9a())
    scope = {"model": model, "X": x, "Y": y, "criterion": lambda out, y: loss(out[:, 0], y)}
    scope["optimizer"] = torch.optim.SGD(model.parameters(), lr=rate)
    follow("pytorch", scope, prefix_design(clip=1.0).node_plan(0), monkeypatch)
    assert scope["gradients"].step == 12
    start, batches = numbers(network()), scope["batches"]
    check_learned(numbers(model), start, batches, a9a(), rate=rate, clip=1.0)
    total = np.zeros(sum(p.numel() for p in model.parameters()), dtype=np.float32)
    source, steps = node_noise(prefix_design()), iter(range(12))
    cost = times(
        lambda: source.step(next(steps), out=total),
        lambda: clipped_sums(model, x[batches[0]], y[batches[0]]),
    )
    trainer_row(
        "PyTorch",
        packages=("torch",),
        works=[
            "sums of a loop of your own",
            "random batches",
            "noise before or after division",
            "checkpoints",
        ],
        refuses=[
            "a move without noise, or of parameters outside",
            "buffers that change",
            "half precision",
            "closures",
        ],
        cost=f"{cost} the gradients of 1,500 records one by one, {total.size:,} parameters",
    )


def test_noise_for_divided_sums() -> None:
    design = prefix_design()
    noise = node_noise(design.node_plan(0, batch_size=1500), batch_size=1500)
    training = Training(noise, divide=1500)
    check_noise(designed_covariance(design) / 1500**2, training.run())
    start, rate = numbers(network()), training.rate / 1500
    check_learned(numbers(training.model), start, training.batches, a9a(), rate=rate)


def test_noise_of_other_layouts_and_of_frozen_parameters() -> None:
    """A gradient that is not in C order gets the noise of its entries in that order."""
    design = prefix_design()
    free = [torch.nn.Parameter(torch.zeros(3, 5)), torch.nn.Parameter(torch.zeros(()))]
    frozen = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    free[0].grad, free[1].grad = torch.full((5, 3), 0.125).T, torch.tensor(0.125)
    model = torch.nn.ParameterList([free[0], frozen, free[1]])
    Gradients(model, node_noise(design), clip=CLIP).add_noise_(records=[1])
    exact = node_noise(design).step(0, (16,), dtype=np.float32)
    np.testing.assert_array_equal(free[0].grad.numpy().ravel(), exact[:15] + np.float32(0.125))
    assert free[1].grad.item() == exact[15] + np.float32(0.125)
    assert frozen.grad is None


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu() -> None:
    design, seeds = prefix_design(epochs=2, separation=3), iter(range(100, 200))

    def draw(d: int) -> np.ndarray:
        p = torch.nn.Parameter(torch.zeros(d, dtype=torch.float64))
        gradients = Gradients(module(p), node_noise(design, next(seeds)), clip=CLIP)
        found = []
        for t in range(gradients.horizon):
            p.grad = torch.zeros_like(p)
            gradients.add_noise_(records=[t % 3])
            found.append(p.grad.numpy().copy())
        return np.array(found)

    report = audit_noise(design, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


def test_epsilon_is_that_of_the_design() -> None:
    design = prefix_design()
    claim = Gradients(network(), node_noise(design), clip=CLIP).noise.claim
    assert (claim.epsilon, claim.delta) == (6.0, 1e-5)


def killed_after_seven_steps(folder: str) -> None:
    """Two steps after its checkpoint."""
    where = Path(folder)
    training = Training(node_noise(prefix_design(), record=where / "records.sqlite3"))
    training.run(until=5)
    (where / "state.json").write_text(json.dumps(training.gradients.state_dict()))
    torch.save(training.model.state_dict(), where / "model.pt")
    training.run(until=7)
    os.kill(os.getpid(), signal.SIGKILL)


def test_restart_after_a_kill_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    """What was done after the checkpoint is done again, to the same bits."""
    design = prefix_design()
    whole = Training(node_noise(design, record=tmp_path / "whole.sqlite3")).run()

    module = "from tests.adapters.test_pytorch import killed_after_seven_steps as f"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{module}; f({str(tmp_path)!r})"]
    assert subprocess.run(command, env=environment, cwd=ROOT).returncode == -signal.SIGKILL

    again = Training(node_noise(design, record=tmp_path / "records.sqlite3", resume=True))
    assert again.gradients.noise.steps == frozenset(range(7))
    again.model.load_state_dict(torch.load(tmp_path / "model.pt"))
    again.gradients.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    np.testing.assert_array_equal(again.run(), whole[5:])


def test_restart_without_its_state_goes_on_after_what_was_used(tmp_path: Path) -> None:
    design, record = prefix_design(), tmp_path / "records.sqlite3"
    Training(node_noise(design, record=record)).run(until=2)
    with pytest.raises(InputError, match="secret"):
        node_noise(design, record=record)
    fresh = Training(node_noise(design, record=record, resume=True))
    assert fresh.gradients.step == 2
    fresh.gradients.step = 0
    with torch.no_grad():
        next(iter(fresh.model.parameters())).add_(0.01)
    with pytest.raises(InputError, match="other data at step 0"):
        fresh.run(until=1)


def module(*parameters: torch.nn.Parameter) -> torch.nn.Module:
    return torch.nn.ParameterList(parameters)


def small() -> tuple[list[torch.nn.Parameter], Gradients]:
    parameters = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2, 2))]
    for p in parameters:
        p.grad = torch.full_like(p, 0.125)
    return parameters, Gradients(module(*parameters), node_noise(prefix_design()), clip=CLIP)


def unchanged(parameters: list[torch.nn.Parameter]) -> bool:
    return all(
        (p.grad == 0.125).all() for p in parameters if p.grad is not None and p.grad.numel() > 1
    )


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_refused(number: float) -> None:
    parameters, gradients = small()
    parameters[1].grad[1, 1] = number
    with pytest.raises(InputError, match=r"parameters\[1\]: expected finite"):
        gradients.add_noise_(records=[0])
    assert (parameters[0].grad == 0.125).all()
    assert gradients.step == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype: Any) -> None:
    p = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    p.grad = torch.full_like(p, 0.125)
    gradients = Gradients(module(p), node_noise(prefix_design()), clip=CLIP)
    with pytest.raises(InputError, match="float32 or float64, got b?float16"):
        gradients.add_noise_(records=[0])
    assert (p.grad == 0.125).all()


def test_a_model_that_changes_its_size_is_refused() -> None:
    parameters, gradients = small()
    gradients.add_noise_(records=[0])
    parameters[0].data = torch.zeros(4)
    for p in parameters:
        p.grad = torch.full_like(p, 0.125)
    with pytest.raises(InputError, match="parameters: expected the shapes"):
        gradients.add_noise_(records=[1])
    assert unchanged(parameters)


def test_a_parameter_without_a_gradient_and_a_sparse_one_are_refused() -> None:
    parameters, gradients = small()
    parameters[0].grad = None
    with pytest.raises(InputError, match=r"parameters\[0\].grad: expected the sum"):
        gradients.add_noise_(records=[0])
    parameters[0].grad = torch.ones(3).to_sparse()
    with pytest.raises(InputError, match="dense"):
        gradients.add_noise_(records=[0])


def test_wrong_participation_is_refused_and_nothing_is_added() -> None:
    parameters, gradients = small()
    gradients.add_noise_(records=[0, 1])
    for p in parameters:
        p.grad = torch.full_like(p, 0.125)
    with pytest.raises(InputError, match="record 1 in steps 0, 1, less than 4 apart"):
        gradients.add_noise_(records=torch.tensor([1, 2]))
    assert unchanged(parameters)
    assert gradients.step == 1


def test_past_the_horizon_is_refused() -> None:
    parameters, gradients = small()
    for t in range(12):
        for p in parameters:
            p.grad = torch.full_like(p, 0.125)
        gradients.add_noise_(records=[t % 4])
    for p in parameters:
        p.grad = torch.full_like(p, 0.125)
    with pytest.raises(InputError, match="0 to 11"):
        gradients.add_noise_(records=[])
    assert unchanged(parameters)


def test_another_clip_than_designed_for_and_other_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="clip: expected 0.5"):
        Gradients(network(), node_noise(prefix_design()), clip=1.0)
    with pytest.raises(InputError, match="model: expected parameters that need"):
        Gradients(module(), node_noise(prefix_design()), clip=CLIP)
    for wrong in (network().parameters(), 5, [torch.zeros(3)]):
        with pytest.raises(InputError, match="model: expected a module"):
            Gradients(wrong, node_noise(prefix_design()), clip=CLIP)


def test_an_expanded_gradient_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    p, record = torch.nn.Parameter(torch.zeros(4, 4)), tmp_path / "records.sqlite3"
    noise = node_noise(prefix_design(), record=record)
    gradients = Gradients(module(p), noise, clip=CLIP)
    p.grad = torch.zeros(1, 4).expand(4, 4)
    with pytest.raises(InputError, match=r"parameters\[0\]: expected a number of its own"):
        gradients.add_noise_(records=[0])
    assert (gradients.step, noise.steps) == (0, frozenset())
    p.grad = p.grad.clone()
    gradients.add_noise_(records=[0])
    assert len(set(p.grad.flatten().tolist())) == 16


@pytest.mark.parametrize("mistake", ["not clipped", "scaled", "not divided"])
def test_sums_that_cannot_be_of_clipped_gradients_are_refused(mistake: str) -> None:
    """A loop that forgets to clip; one that scales the loss, and adds noise before it is scaled
    back; a sum that is not divided, under a plan for divided ones."""
    x, y = (torch.from_numpy(a) for a in a9a(64))
    model, plan, how = network(), prefix_design().node_plan(0), {}
    if mistake == "not divided":
        plan, how = prefix_design().node_plan(0, batch_size=64), {"batch_size": 64}
    gradients = Gradients(model, node_noise(plan, **how), clip=CLIP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if mistake == "not clipped":
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        loss(model(x)[:, 0], y, reduction="sum").backward()
        assert np.linalg.norm(flat_gradients(model)) > 64 * CLIP
    else:
        clipped_sums(model, x, y)
    if mistake == "scaled":  # as torch.amp.GradScaler does
        for p in model.parameters():
            p.grad *= 2.0**16
    before, raw = flat(model), flat_gradients(model)
    with pytest.raises(InputError, match="parameters: expected a sum of norm at most"):
        gradients.add_noise_(records=range(64))
    np.testing.assert_array_equal(flat_gradients(model), raw)
    with pytest.raises(InputError, match="optimizer: expected gradients with the noise"):
        optimizer.step()
    np.testing.assert_array_equal(flat(model), before)
    assert gradients.step == 0


# --- what moves without noise ---------------------------------------------------------------------


def two_layers(**how: Any) -> tuple[torch.nn.Module, Any]:
    """A frozen layer, one that is trained, and an optimizer of both."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **how)


def backward(model: torch.nn.Module) -> None:
    (model(torch.ones(1, 5)).sum() * 1e-3).backward()


def refuses_to_move(optimizer: Any, model: torch.nn.Module, words: str, *args: Any) -> None:
    before = flat(model)
    with pytest.raises(InputError, match=words):
        optimizer.step(*args)
    np.testing.assert_array_equal(flat(model), before)


NOISELESS = "optimizer: expected gradients with the noise of a step.* got one without noise, {}"


def test_layers_that_are_unfrozen_have_noise_or_do_not_move() -> None:
    model, optimizer = two_layers(weight_decay=0.1)
    gradients = Gradients(model, node_noise(prefix_design()), clip=CLIP)
    model[0].requires_grad_(True)
    backward(model)
    raw = flat_gradients(model)
    gradients.add_noise_(records=[0])
    noise = node_noise(prefix_design()).step(0, 34, dtype=np.float32)
    np.testing.assert_allclose(flat_gradients(model) - raw, noise, atol=1e-6)
    optimizer.step()
    # Frozen now, and its gradient forgotten: it would move once more, without noise.
    model[1].requires_grad_(False)
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))
    # Unfrozen while the run goes on: a model of another size.
    model, optimizer = two_layers()
    gradients = Gradients(model, node_noise(prefix_design()), clip=CLIP)
    backward(model)
    gradients.add_noise_(records=[0])
    optimizer.step()
    model[0].requires_grad_(True)
    optimizer.zero_grad()
    backward(model)
    with pytest.raises(InputError, match="parameters: expected the shapes"):
        gradients.add_noise_(records=[1])
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))


def flat_gradients(model: torch.nn.Module) -> np.ndarray:
    return torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()


@pytest.mark.parametrize("set_to_none", [False, True])
def test_an_optimizer_moves_by_noisy_gradients_alone(set_to_none: bool) -> None:
    model, _ = two_layers()
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters())
    gradients = Gradients(model, node_noise(prefix_design()), clip=CLIP)
    backward(model)
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))
    gradients.add_noise_(records=[0])
    optimizer.zero_grad(set_to_none=set_to_none)  # a move that was left out
    backward(model)
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))
    gradients.add_noise_(records=[3])
    for p in model.parameters():
        p.grad /= 7  # what is done to a noisy gradient is nobody's concern
    optimizer.step()
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))
    optimizer.zero_grad(set_to_none=set_to_none)
    if set_to_none:
        optimizer.step()  # moves nothing
    backward(model)
    refuses_to_move(optimizer, model, NOISELESS.format("0.weight"))
    gradients.add_noise_(records=[1])
    refuses_to_move(optimizer, model, "closure: expected none", lambda: backward(model))
    optimizer.step()
    # One optimizer a layer; one of both, of Gradients of one; and one of another model.
    head, body = (torch.optim.SGD(model[at].parameters(), lr=0.1) for at in (1, 0))
    optimizer.zero_grad()
    backward(model)
    gradients.add_noise_(records=[2])
    head.step()
    body.step()
    del gradients
    whole = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = Gradients(model[1], node_noise(prefix_design()), clip=CLIP)
    optimizer.zero_grad()
    backward(model)
    gradients.add_noise_(records=[0])
    refuses_to_move(whole, model, NOISELESS.format("of a parameter outside of the model"))
    other = torch.nn.Linear(5, 1)
    backward(other)
    torch.optim.SGD(other.parameters(), lr=0.1).step()


def test_averages_of_batches_are_refused() -> None:
    """Buffers that stay, such as those of BatchNorm in eval(), are not."""

    def normed() -> torch.nn.Module:
        layers = torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        return torch.nn.Sequential(*layers)

    for own in (False, True):  # of the layer, and of one's own that says nothing when it moves
        model = normed()
        gradients = Gradients(model, node_noise(prefix_design()), clip=CLIP)
        model[1].eval()
        (model(torch.randn(64, 5)).mean() * 1e-3).backward()
        gradients.add_noise_(records=range(64))
        model.zero_grad()
        model[1].train(not own)
        if own:
            model[1].running_mean.data[0] += 1e-3
        (model(torch.randn(64, 5)).mean() * 1e-3).backward()
        raw = flat_gradients(model)
        with pytest.raises(InputError, match=r"model.1.running_mean: expected a buffer that stays"):
            gradients.add_noise_(records=range(64, 128))
        np.testing.assert_array_equal(flat_gradients(model), raw)
        assert gradients.step == 1
    model = torch.nn.Linear(5, 1)
    model.register_buffer("scratch", torch.zeros(2), persistent=False)
    gradients = Gradients(model, node_noise(prefix_design()), clip=CLIP)
    model.scratch += 1  # leaves with no checkpoint
    backward(model)
    gradients.add_noise_(records=[0])


def test_on_an_accelerator_noise_has_the_same_bits() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a device of CUDA")
    design = prefix_design()
    p = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
    p.grad = torch.zeros_like(p)
    Gradients(module(p), node_noise(design), clip=CLIP).add_noise_(records=[0])
    exact = node_noise(design).step(0, (1000,), dtype=np.float32)
    np.testing.assert_array_equal(p.grad.cpu().numpy(), exact)


# --- random participation -------------------------------------------------------------------------


def test_batches_of_random_participation_are_those_of_the_node() -> None:
    x, y = (torch.from_numpy(a) for a in a9a(12))
    model, source = network(), random_noise()
    gradients = Gradients(model, random_noise(), clip=CLIP)
    batches = gradients.batches(len(x))
    assert any(len(batch) == 0 for batch in batches)
    for t, batch in enumerate(batches):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        if len(batch):
            clipped_sums(model, x[batch], y[batch])
        before = torch.cat([p.grad.flatten() for p in model.parameters()]).clone()
        with pytest.raises(InputError, match="records: expected the records drawn"):
            gradients.add_noise_(records=[*batch, 99])
        gradients.add_noise_(records=batch)
        after = torch.cat([p.grad.flatten() for p in model.parameters()])
        noise = source.step(t, len(after), dtype=np.float32)
        np.testing.assert_allclose((after - before).numpy(), noise, atol=1e-5)
