"""Ghost clipping of Opacus with designed noise: norms first, then the sum of clipped gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from tests.support.adapters import check_noise, designed_covariance
from tests.support.trainers import CLIP, node_noise, prefix_design, random_noise

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("opacus", reason="needs the package opacus")

from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

from tests.adapters.test_opacus import Training  # noqa: E402
from tests.adapters.torch_networks import RATE, by_hand, flat, network  # noqa: E402

bce = torch.nn.functional.binary_cross_entropy_with_logits
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of Opacus' hooks


def ghost(noise: Any = None, **kwargs: Any) -> Training:
    made = node_noise(prefix_design()) if noise is None else noise
    criterion = kwargs.pop("criterion", torch.nn.BCEWithLogitsLoss())
    return Training(made, grad_sample_mode="ghost", criterion=criterion, **kwargs)


def sums(training: Training) -> np.ndarray:
    return torch.cat([p.grad.flatten() for p in training.module.parameters()]).double().numpy()


@pytest.mark.parametrize("wrap_model", [True, False])
def test_noise_in_the_parameters_is_that_of_the_design(wrap_model: bool) -> None:
    """Beside the sum of gradients that are clipped by hand."""
    training = ghost(wrap_model=wrap_model)
    noises = training.run(rounds=3)
    assert len(noises) == 12
    check_noise(designed_covariance(prefix_design()), noises)
    assert training.engine.get_epsilon(1e-5) == 6.0


def test_parts_of_a_batch_add_up() -> None:
    whole, parts = ghost(), ghost()
    whole.run(rounds=1)
    with BatchMemoryManager(
        data_loader=parts.loader, max_physical_batch_size=200, optimizer=parts.optimizer
    ) as loader:
        for x, y in loader:
            parts.gradients(x, y)
            parts.optimizer.step()
    assert parts.engine.run.step == 4
    for a, b in zip(whole.module.parameters(), parts.module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_batches_that_the_node_draws_some_of_them_empty() -> None:
    training, source = ghost(random_noise(), records=12, batch_size=2), random_noise()
    for x, y in itertools.chain.from_iterable(training.loader for _ in range(2)):
        training.step(x, y)
    expected = [source.step(t, len(training.noises[0])) for t in range(12)]
    np.testing.assert_allclose(training.noises, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("factor", "change"),
    [
        (3, lambda loss, out, y: 3 * loss(out[:, 0], y)),
        (2, lambda loss, out, y: loss(out[:, 0], y) + loss(out[:, 0], y) * 1),
        (0.5, lambda loss, out, y: loss(out[:, 0], y) / 2 - 0),
        (1, lambda loss, out, y: loss(out, y[:, None])),
    ],
)
def test_every_record_is_clipped_by_itself(factor: float, change: Any) -> None:
    """Losses that are scaled, and in a column, where a product of shapes (n,) and (n, 1) would
    put the factor of every record on all others."""
    training = ghost()
    x, y = next(iter(training.loader))
    training.optimizer.zero_grad()
    exact = factor * by_hand(training.module, x, y, clip=CLIP / factor)
    change(training.criterion, training.model(x), y).backward()
    np.testing.assert_allclose(sums(training), exact, atol=1e-3)
    training.optimizer.step()
    assert training.engine.run.step == 1


# --- what is refused ---


def refused(training: Training, match: str, step: Any) -> None:
    before = flat(training.module)

    def whole() -> None:
        step(*next(iter(training.loader)))
        training.optimizer.step()

    with pytest.raises(InputError, match=match):
        whole()
    np.testing.assert_array_equal(flat(training.module), before)
    assert training.engine.run.step == 0


def test_a_loss_that_clips_nothing_is_refused() -> None:
    training = ghost()
    refused(
        training,
        "grad: expected what backward.. of the criterion .* got gradients that are not clipped",
        lambda x, y: bce(training.model(x)[:, 0], y).backward(),
    )
    refused(training, "grad: expected .* not clipped", lambda x, y: None)


def test_gradients_that_are_changed_after_they_were_clipped_are_refused() -> None:
    training = ghost()

    def more(x: Any, y: Any) -> None:
        training.gradients(x, y)
        bce(training.model(x)[:, 0], y).backward()

    refused(training, "grad: expected .* or changed since", more)

    def larger(x: Any, y: Any) -> None:
        training.gradients(x, y)
        next(training.module.parameters()).grad.mul_(2)

    refused(training, "grad: expected .* or changed since", larger)


def test_a_loss_of_the_whole_batch_is_refused() -> None:
    """One number for all records: every factor would be on the gradient of all of them."""
    training = ghost(criterion=bce)  # a function has no reduction to take away
    refused(training, "criterion: expected one loss a record", training.gradients)


def test_a_penalty_on_parameters_is_refused() -> None:
    """Its gradient is in no record's norm, and is multiplied by factors that are of the data."""
    training = ghost()
    x, y = next(iter(training.loader))
    penalty = next(training.module.parameters()).square().sum()
    losses = training.criterion(training.model(x)[:, 0], y)
    for add in (lambda: losses + penalty, lambda: penalty + losses, lambda: losses * penalty):
        with pytest.raises(InputError, match="criterion: expected numbers, and losses of the"):
            add()
    halves = losses / 2 + losses * 0.5
    assert torch.equal(halves.loss_per_sample, losses.loss_per_sample)


def test_a_part_of_the_batch_is_refused() -> None:
    training = ghost()
    refused(
        training,
        "each of the 500 records of step 0, got 300",
        lambda x, y: training.gradients(x[:300], y[:300]),
    )


def test_layers_that_no_norm_is_of_are_refused() -> None:
    module = network()
    module[0].requires_grad_(False)
    training = ghost(module=module)

    def thawed(x: Any, y: Any) -> None:
        module[0].requires_grad_(True)
        training.gradients(x, y)

    refused(training, "module: expected parameters that are trained from the start", thawed)

    class Forked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = torch.nn.Linear(123, 1), torch.nn.Linear(123, 1)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    training = ghost(module=Forked())
    refused(training, "module: expected parameters that all take part", training.gradients)


def test_a_weight_that_another_module_has_too_is_refused() -> None:
    """Opacus takes the norm of its own layer's part alone, and clips too little."""

    class Back(torch.nn.Module):
        def __init__(self, weight: Any) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Any) -> Any:
            return x @ self.weight

    first = torch.nn.Linear(123, 4, bias=False)
    tied = torch.nn.Sequential(first, Back(first.weight), torch.nn.Linear(123, 1))
    with pytest.raises(InputError, match="of one layer each.*got one of Linear and Back"):
        ghost(module=tied)


def test_another_clip_of_the_layers_is_refused() -> None:
    training = ghost()
    training.model.max_grad_norm = 100.0
    refused(training, "max_grad_norm: expected 0.5", training.gradients)


def test_the_rate_of_the_optimizer_is_that_of_hooks() -> None:
    """Ghost clipping and gradients of every record move the model alike, to rounding."""
    a, b = ghost(), Training(node_noise(prefix_design()))
    for training in (a, b):
        x, y = next(iter(training.loader))
        training.gradients(x, y)
        training.optimizer.step()
    np.testing.assert_allclose(flat(a.module), flat(b.module), atol=RATE * 1e-5)
