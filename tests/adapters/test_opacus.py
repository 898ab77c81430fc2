"""Opacus' engine with designed noise."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from noisedesign.privacy.accounting import epsilon_of
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainers import (
    CLIP,
    FEATURES,
    a9a,
    check_learned,
    node_noise,
    prefix_design,
    random_noise,
)

torch = pytest.importorskip("torch", reason="needs the package torch")
opacus = pytest.importorskip("opacus", reason="needs the package opacus")

from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from noisedesign.adapters.opacus import Engine  # noqa: E402
from tests.adapters.torch_networks import RATE, by_hand, flat, network, numbers  # noqa: E402


class Training:
    """A run over a9a; ``noises`` is what moved the parameters of :func:`network` beside the sums of
    gradients, which are taken by hand."""

    def __init__(
        self,
        noise: NodeNoise,
        *,
        records: int = 2000,
        batch_size: int = 500,
        workers: int = 0,
        data: Any = None,
        module: Any = None,
        **kwargs: Any,
    ) -> None:
        self.module = network() if module is None else module
        x, y = (torch.from_numpy(a) for a in a9a()) if data is None else data
        dataset = TensorDataset(x[:records], y[:records])
        self.engine = Engine(noise)
        sgd = torch.optim.SGD(self.module.parameters(), lr=RATE)
        loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=workers)
        model, self.optimizer, *criterion, self.loader = self.engine.make_private(
            module=self.module, optimizer=sgd, data_loader=loader, **kwargs
        )
        self.model = model if kwargs.get("wrap_model", True) else self.module
        mean = torch.nn.functional.binary_cross_entropy_with_logits
        self.criterion = criterion[0] if criterion else mean
        self.noises: list[np.ndarray] = []

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.criterion(self.model(x)[:, 0], y).backward()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.gradients(x, y)
        exact = by_hand(self.module, x, y)
        before = flat(self.module)
        self.optimizer.step()
        divided = self.optimizer.expected_batch_size
        self.noises.append((before - flat(self.module)) / RATE * divided - exact)

    def run(self, rounds: int) -> np.ndarray:
        for x, y in itertools.chain.from_iterable(self.loader for _ in range(rounds)):
            self.step(x, y)
        return np.array(self.noises)


def test_noise_in_the_parameters_is_that_of_the_design_for_the_whole_horizon() -> None:
    design = prefix_design()
    training = Training(node_noise(design))
    noises = training.run(rounds=3)
    assert noises.shape == (12, FEATURES * 32 + 32 + 32 + 1)
    check_noise(designed_covariance(design), noises)
    data = tuple(part[:2000] for part in a9a())
    batches = training.engine.run.batches(2000, batch_size=500)
    check_learned(numbers(training.module), numbers(network()), batches, data, rate=RATE / 500)


def test_records_whose_order_is_free() -> None:
    """Five batches a round, where four are the least; the horizon ends within the third."""
    design = prefix_design(free_order=True)
    training = Training(node_noise(design), batch_size=400)
    noises = training.run(rounds=3)
    assert len(noises) == 12
    check_noise(designed_covariance(design), noises)


def test_noise_does_not_depend_on_the_reduction_of_the_loss() -> None:
    design = prefix_design()
    means, sums = Training(node_noise(design)), Training(node_noise(design), loss_reduction="sum")
    for training in (means, sums):
        x, y = next(iter(training.loader))
        training.optimizer.zero_grad()
        loss = torch.nn.BCEWithLogitsLoss(reduction=training.optimizer.loss_reduction)
        loss(training.model(x)[:, 0], y).backward()
        training.optimizer.step()
    mean, total = (
        torch.cat([p.grad.flatten() for p in training.module.parameters()])
        for training in (means, sums)
    )
    torch.testing.assert_close(mean * 500, total)


def test_epsilon_is_that_of_the_design() -> None:
    design = prefix_design()
    training = Training(node_noise(design))
    training.run(rounds=1)
    claim = training.engine.run.noise.claim
    assert training.engine.get_epsilon(1e-5) == 6.0
    # At another delta, by our own conversion, which rounds up.
    for delta in (1e-3, 1e-7):
        expected = epsilon_of(mu=claim.mu, delta=delta)
        assert training.engine.get_epsilon(delta) == pytest.approx(expected, rel=1e-9)
    assert len(training.engine.accountant) == 4


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu() -> None:
    design, numbers = prefix_design(epochs=2, separation=3), itertools.count(100)

    def draw(d: int) -> np.ndarray:
        """Records of zeros have no gradients."""
        module = torch.nn.Linear(d, 1, bias=False)
        data = torch.zeros(3, d), torch.zeros(3)
        noise = node_noise(design, next(numbers))
        training = Training(noise, data=data, module=module, records=3, batch_size=1)
        found = []
        for x, y in itertools.chain(training.loader, training.loader):
            training.gradients(x, y)
            training.optimizer.step()
            found.append(module.weight.grad.numpy().ravel().copy())
        return np.array(found)

    report = audit_noise(design, draw, runs=20_000)
    assert not report.exceeds
    assert report.close


@pytest.mark.parametrize("workers", [0, 2])
def test_every_round_has_the_same_batches_in_the_same_order(workers: int) -> None:
    training = Training(node_noise(prefix_design()), records=40, batch_size=10, workers=workers)
    rounds = []
    for _ in range(3):
        batches = []
        for x, y in training.loader:
            batches.append(x.numpy().tobytes())
            training.step(x, y)
        rounds.append(batches)
    assert rounds[0] == rounds[1] == rounds[2]
    assert len(set(rounds[0])) == 4
    with pytest.raises(InputError, match="step: expected 0 to 11"):
        next(iter(training.loader))


def test_restart_goes_on_with_the_same_noise_and_in_the_same_place(tmp_path: Path) -> None:
    design, where = prefix_design(), tmp_path / "checkpoint.pt"
    whole = Training(node_noise(design, record=tmp_path / "whole.sqlite3")).run(rounds=3)

    first = Training(node_noise(design, record=tmp_path / "records.sqlite3"))
    for at, (x, y) in enumerate(first.loader):
        if at == 2:
            first.engine.save_checkpoint(path=where, module=first.model, optimizer=first.optimizer)
        first.step(x, y)  # killed one step after its checkpoint, at least

    again = Training(node_noise(design, record=tmp_path / "records.sqlite3", resume=True))
    again.engine.load_checkpoint(path=where, module=again.model, optimizer=again.optimizer)
    assert len(again.engine.accountant) == 2
    np.testing.assert_array_equal(again.run(rounds=3), whole[2:])


def test_an_older_checkpoint_goes_on_after_the_steps_that_were_used(tmp_path: Path) -> None:
    """Of training that is not the same again: dropout. What was used is not used for other data."""
    design, where, record = prefix_design(), tmp_path / "checkpoint.pt", tmp_path / "records"

    def made(**how: Any) -> Training:
        module = network()
        module.insert(2, torch.nn.Dropout(0.5))
        return Training(node_noise(design, record=record, **how), module=module)

    def move(training: Training, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
        training.gradients(x, y)
        training.optimizer.step()
        sums = torch.cat([p.summed_grad.flatten() for p in training.module.parameters()])
        grads = torch.cat([p.grad.flatten() for p in training.module.parameters()])
        return (grads * 500 - sums).double().numpy()

    first = made()
    for at, (x, y) in enumerate(itertools.chain(first.loader, first.loader)):
        if at == 3:
            first.engine.save_checkpoint(path=where, module=first.model, optimizer=first.optimizer)
        if at < 6:  # killed after three more
            move(first, x, y)

    again = made(resume=True)
    again.engine.load_checkpoint(path=where, module=again.model, optimizer=again.optimizer)
    assert again.engine.run.step == 3
    with pytest.raises(InputError, match="other data at step 3"):
        move(again, *next(iter(again.loader)))
    assert again.engine.run.skip_used() == range(3, 6)
    rest = itertools.chain.from_iterable(again.loader for _ in range(2))
    noises = [move(again, x, y) for x, y in rest]
    exact = [node_noise(design).step(t, noises[0].size) for t in range(6, 12)]
    np.testing.assert_allclose(noises, exact, atol=1e-4)
    assert len(again.engine.accountant) == 12


def test_large_batches_in_parts() -> None:
    design = prefix_design()
    whole, parts = Training(node_noise(design)), Training(node_noise(design))
    expected = whole.run(rounds=1)
    with BatchMemoryManager(
        data_loader=parts.loader, max_physical_batch_size=200, optimizer=parts.optimizer
    ) as loader:
        steps = 0
        for x, y in loader:
            parts.gradients(x, y)
            parts.optimizer.step()
            steps += 1
    assert (steps, parts.engine.run.step) == (12, 4)
    # To rounding: sums of parts are sums in another order.
    for a, b in zip(whole.module.parameters(), parts.module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert len(expected) == 4


# --- what is refused ---


def test_batches_of_another_loader_are_refused() -> None:
    training = Training(node_noise(prefix_design()))
    x, y = (torch.from_numpy(a[:500]) for a in a9a())
    training.gradients(x, y)
    with pytest.raises(InputError, match="data_loader: expected the batch of step 0 .* got none"):
        training.optimizer.step()
    np.testing.assert_array_equal(flat(training.module), flat(network()))


def test_a_batch_that_was_left_out_or_used_twice_is_refused() -> None:
    training = Training(node_noise(prefix_design()))
    batches = iter(training.loader)
    x, y = next(batches)
    training.step(x, y)
    training.gradients(x, y)
    with pytest.raises(InputError, match="the batch of step 1 .* got that of step 0"):
        training.optimizer.step()
    next(batches)
    x, y = next(batches)
    training.gradients(x, y)
    with pytest.raises(InputError, match="the batch of step 1 .* got that of step 2"):
        training.optimizer.step()
    # A new pass begins with the batch that is due.
    training.step(*next(iter(training.loader)))
    assert training.engine.run.step == 2


def test_a_batch_accumulated_twice_or_in_part_is_refused() -> None:
    training = Training(node_noise(prefix_design()))
    x, y = next(iter(training.loader))
    training.gradients(x, y)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    loss(training.model(x)[:, 0], y).backward()
    with pytest.raises(InputError, match="each of the 500 records of step 0, got 1000"):
        training.optimizer.step()
    training.gradients(x[:300], y[:300])
    with pytest.raises(InputError, match="each of the 500 records of step 0, got 300"):
        training.optimizer.step()
    training.step(x, y)


@pytest.mark.parametrize(("size", "got"), [(1000, "got 2"), (400, "got 5")])
def test_batch_sizes_that_are_not_the_designs_are_refused(size: int, got: str) -> None:
    with pytest.raises(InputError, match=f"batch_size: expected 4 batches a round.*{got}"):
        Training(node_noise(prefix_design()), batch_size=size)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise_multiplier", 1.1),
        ("max_grad_norm", 1.0),
        ("poisson_sampling", True),
        ("clipping", "per_layer"),
        ("grad_sample_mode", "ghost_fsdp"),
        ("noise_generator", torch.Generator()),
    ],
)
def test_arguments_that_contradict_the_design_are_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{field}: expected"):
        Training(node_noise(prefix_design()), **{field: value})


def test_arguments_that_say_what_the_design_says_are_taken() -> None:
    training = Training(node_noise(prefix_design()), max_grad_norm=CLIP, poisson_sampling=False)
    claim = training.engine.run.noise.claim
    assert training.optimizer.noise_multiplier == claim.noise_stddev / CLIP
    assert training.optimizer.max_grad_norm == CLIP


def test_accounts_of_independent_noise_are_refused() -> None:
    for option in ({"accountant": "rdp"}, {"secure_mode": True}):
        with pytest.raises(InputError, match=f"^{next(iter(option))}: expected"):
            Engine(node_noise(prefix_design()), **option)
    training = Training(node_noise(prefix_design()))
    theirs = opacus.accountants.RDPAccountant()
    with pytest.raises(InputError, match="step_hook: expected none of Opacus.*RDPAccountant"):
        training.optimizer.attach_step_hook(theirs.get_optimizer_hook_fn(sample_rate=0.25))
    seen: list[Any] = []
    training.optimizer.attach_step_hook(seen.append)  # of a user's own
    training.step(*next(iter(training.loader)))
    assert seen == [training.optimizer]


def test_a_schedule_of_noise_is_refused() -> None:
    training = Training(node_noise(prefix_design()))
    training.gradients(*next(iter(training.loader)))
    schedule = opacus.schedulers.ExponentialNoise(training.optimizer, gamma=0.5)
    schedule.step()
    with pytest.raises(InputError, match="noise_multiplier: expected .* the design is for"):
        training.optimizer.step()


def test_the_optimizer_that_was_wrapped_moves_nothing_by_itself() -> None:
    training = Training(node_noise(prefix_design()))
    x, y = next(iter(training.loader))
    training.gradients(x, y)
    with pytest.raises(InputError, match="optimizer: expected gradients with the noise of a step"):
        training.optimizer.original_optimizer.step()
    np.testing.assert_array_equal(flat(training.module), flat(network()))
    training.step(x, y)
    assert training.engine.run.step == 1


def test_a_pass_after_the_noise_moves_nothing() -> None:
    training = Training(node_noise(prefix_design()))
    x, y = next(iter(training.loader))
    training.gradients(x, y)
    assert training.optimizer.pre_step()
    training.gradients(x, y)
    with pytest.raises(InputError, match="optimizer: expected gradients with the noise of a step"):
        training.optimizer.original_optimizer.step()
    np.testing.assert_array_equal(flat(training.module), flat(network()))


def test_other_ways_around_the_design_are_refused() -> None:
    noise = node_noise(prefix_design())
    with pytest.raises(InputError, match="target_epsilon"):
        Engine(noise).make_private_with_epsilon(target_epsilon=1.0, target_delta=1e-5, epochs=3)
    with pytest.raises(InputError, match="batch_size"):
        Engine(node_noise(prefix_design().node_plan(0, batch_size=500), batch_size=500))
    training = Training(noise)
    with pytest.raises(InputError, match="engine: expected a new one"):
        training.engine.make_private(
            module=network(), optimizer=training.optimizer, data_loader=training.loader
        )
    training.gradients(*next(iter(training.loader)))
    training.optimizer.max_grad_norm = 2.0
    with pytest.raises(InputError, match="max_grad_norm"):
        training.optimizer.step()


def test_gradients_that_are_not_finite_are_refused() -> None:
    training = Training(node_noise(prefix_design()))
    x, y = next(iter(training.loader))
    x[3, 5] = np.nan
    training.gradients(x, y)
    with pytest.raises(InputError, match="finite"):
        training.optimizer.step()
    assert training.engine.run.step == 0
    np.testing.assert_array_equal(flat(training.module), flat(network()))


def test_half_precision_is_refused() -> None:
    x, y = a9a()
    data = torch.from_numpy(x).half(), torch.from_numpy(y).half()
    training = Training(node_noise(prefix_design()), data=data, module=network().half())
    training.gradients(*next(iter(training.loader)))
    with pytest.raises(InputError, match="float32 or float64, got float16"):
        training.optimizer.step()


# --- random participation -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_gives_out_what_the_node_draws(workers: int) -> None:
    """Some batches are empty: their step has noise alone."""
    source = random_noise()
    training = Training(random_noise(), records=12, batch_size=2, workers=workers)
    drawn = source.batches(12)
    assert any(len(batch) == 0 for batch in drawn)
    sizes = []
    for x, y in itertools.chain.from_iterable(training.loader for _ in range(2)):
        training.step(x, y)
        sizes.append(len(x))
    assert sizes == [len(batch) for batch in drawn]
    expected = [source.step(t, len(training.noises[0])) for t in range(12)]
    np.testing.assert_allclose(training.noises, expected, atol=1e-4)
    assert training.optimizer.expected_batch_size == 2


def test_no_order_of_the_users_own_is_taken() -> None:
    with pytest.raises(InputError, match="batch_size: expected 2, rounded"):
        Training(random_noise(), records=12, batch_size=3)
    engine = Engine(random_noise(), seed=3)
    module = network()
    loader = DataLoader(TensorDataset(torch.ones(12, FEATURES)), batch_size=2)
    sgd = torch.optim.SGD(module.parameters(), lr=RATE)
    with pytest.raises(InputError, match="seed: expected none"):
        engine.make_private(module=module, optimizer=sgd, data_loader=loader)
