"""Clipped gradients of records that are alone in a model."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from tests.adapters.torch_networks import by_hand, network
from tests.support.trainers import CLIP, a9a

torch = pytest.importorskip("torch", reason="needs the package torch")

from noisedesign.adapters.alone import Alone  # noqa: E402


def loss(model: Any, batch: Any) -> Any:
    out = model(batch["x"])[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(out, batch["y"])


def data(records: int = 40) -> dict[str, Any]:
    x, y = (torch.from_numpy(part[:records]) for part in a9a())
    return {"x": x, "y": y}


def sums(model: Any) -> np.ndarray:
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double().numpy()


@pytest.mark.parametrize("clip", [CLIP, 1.43])  # below all norms, and amid them
@pytest.mark.parametrize("at_once", [None, 7, 1])
def test_sums_are_those_by_hand(at_once: int | None, clip: float) -> None:
    model, batch = network(), data()
    alone = Alone(model, loss, clip=clip, at_once=at_once)
    losses = alone.add_(batch)
    assert losses.shape == (40,)
    assert float(losses.mean()) == pytest.approx(float(loss(model, batch).detach()), rel=1e-5)
    exact = by_hand(model, batch["x"], batch["y"], clip=clip)
    np.testing.assert_allclose(sums(model), exact, atol=1e-4)
    alone.add_(batch)  # added
    np.testing.assert_allclose(sums(model), 2 * exact, atol=1e-4)
    assert len(alone.add_({name: part[:0] for name, part in batch.items()})) == 0
    np.testing.assert_allclose(sums(model), 2 * exact, atol=1e-4)


@pytest.mark.parametrize("at_once", [None, 1])
def test_no_clipped_gradient_is_above_the_clip(at_once: int | None) -> None:
    """In exact sums of the float32 numbers, not almost: the gradient of a record is its row x."""
    model = torch.nn.Linear(1001, 1, bias=False)
    alone = Alone(model, lambda m, batch: m(batch["x"]).sum(), clip=CLIP, at_once=at_once)
    rows = torch.randn(60, 1001, generator=torch.Generator().manual_seed(0)) * 3
    for row in rows:
        model.weight.grad = None
        alone.add_({"x": row[None]})
        norm = math.sqrt(math.fsum(float(x) ** 2 for x in model.weight.grad[0]))
        assert norm <= CLIP
        assert norm == pytest.approx(CLIP, rel=1e-5)


@pytest.mark.parametrize("at_once", [None, 1])
def test_gradients_are_scaled_before_they_are_clipped(at_once: int | None) -> None:
    model, batch = network(), data(20)
    g = torch.Generator().manual_seed(1)
    scale = {n: torch.rand(p.shape, generator=g) * 3 for n, p in model.named_parameters()}
    Alone(model, loss, clip=CLIP, at_once=at_once).add_(batch, scale=scale)
    found, flat = sums(model), torch.cat([s.flatten() for s in scale.values()]).double().numpy()
    exact = np.zeros(len(found))
    for i in range(20):  # a clip that no gradient reaches leaves it as it is
        one = flat * by_hand(model, batch["x"][i : i + 1], batch["y"][i : i + 1], clip=1e9)
        exact += one * min(1.0, CLIP / np.linalg.norm(one))
    np.testing.assert_allclose(found, exact, atol=1e-4)
    with pytest.raises(InputError, match="scale: expected a tensor for every parameter"):
        Alone(model, loss, clip=CLIP).add_(batch, scale={"0.weight": scale["0.weight"]})


def test_a_mean_over_the_batch_couples_nobody() -> None:
    """Tokens of a batch are counted for each record by itself: others change nothing."""
    model = network()

    def weighted(model: Any, batch: Any) -> Any:
        return (batch["w"] * model(batch["x"])[:, 0]).sum() / batch["w"].sum()

    batch = {"x": data(5)["x"], "w": torch.tensor([1.0, 100.0, 2.0, 3.0, 4.0])}
    found = []
    for kept in ([0, 1], [0, 2, 3, 4]):
        with_it, without = (
            {k: v[kept] for k, v in batch.items()},
            {k: v[kept[1:]] for k, v in batch.items()},
        )
        parts = []
        for one in (with_it, without):
            model.zero_grad()
            Alone(model, weighted, clip=CLIP).add_(one)
            parts.append(sums(model))
        found.append(parts[0] - parts[1])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert np.linalg.norm(found[0]) <= CLIP * (1 + 1e-5)


def test_models_that_vmap_cannot_take_are_computed_one_by_one() -> None:
    class Asking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Any) -> Any:
            return self.net(x) + (0.0 if x.sum() >= 0 else 1.0)

    model, batch = Asking(), data()
    alone = Alone(model, loss, clip=CLIP)
    with pytest.warns(UserWarning, match="one after another, as the model cannot be under"):
        alone.add_(batch)
    np.testing.assert_allclose(sums(model), by_hand(model.net, batch["x"], batch["y"]), atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        alone.add_(batch)


def test_what_fails_midway_is_not_added_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be at its end between the sums of two parameters."""
    model, batch, left, real = network(), data(), [2], torch.tensordot

    def short(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("out of memory")
        return real(*args, **kwargs)

    monkeypatch.setattr(torch, "tensordot", short)
    with pytest.warns(UserWarning, match="one after another, .*: out of memory"):
        Alone(model, loss, clip=CLIP).add_(batch)
    np.testing.assert_allclose(sums(model), by_hand(model, batch["x"], batch["y"]), atol=1e-4)


def test_what_is_no_batch_of_records_is_refused() -> None:
    model, batch = network(), data()
    alone = Alone(model, loss, clip=CLIP)
    with pytest.raises(InputError, match="batch: expected tensors of one row a record"):
        alone.add_({**batch, "y": batch["y"][:3]})
    with pytest.raises(InputError, match="batch: expected .* no tensor"):
        alone.add_({"x": [1]})
    with pytest.raises(InputError, match="loss: expected one number for a record"):
        Alone(model, lambda model, batch: model(batch["x"]), clip=CLIP).add_(batch)
    with pytest.raises(InputError, match="model: expected a module"):
        Alone(loss, loss, clip=CLIP)
    with pytest.raises(InputError, match="at_once"):
        Alone(model, loss, clip=CLIP, at_once=0)
