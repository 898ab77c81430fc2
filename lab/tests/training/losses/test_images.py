"""The residual network: against layers of scipy one image at a time, and by differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import correlate2d

from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses import Batch, ResNet

SMALL = ResNet(channels=2, side=8, classes=3, width=4, blocks=(1, 2), groups=2)


def data(count: int = 4, loss: ResNet = SMALL) -> Examples:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(count, loss.channels * loss.side**2))
    return Examples(features=features, targets=rng.integers(loss.classes, size=count).astype(float))


def model(loss: ResNet = SMALL) -> Array:
    rng = np.random.default_rng(2)
    return loss.start(rng) + 0.1 * rng.normal(size=loss.dimension)


def test_the_published_network_has_as_many_numbers_as_published() -> None:
    """Zip-DL, section 6.1."""
    assert ResNet().dimension == 11_189_312


def test_the_loss_is_that_of_layers_written_out() -> None:
    """One stage of one block, then one of two: convolutions by scipy, groups by plain means."""
    examples, theta = data(), model()
    place = 0

    def numbers(*shape: int) -> Array:
        nonlocal place
        place += math.prod(shape)
        return theta[place - math.prod(shape) : place].reshape(shape)

    def conv(x: Array, into: int, out: int, size: int, stride: int) -> Array:
        w = numbers(out, into, size, size)
        same = [
            sum(correlate2d(x[c], w[o, c], mode="same") for c in range(into)) for o in range(out)
        ]
        return group(np.array(same)[:, ::stride, ::stride])

    def group(x: Array) -> Array:
        scale, constant = numbers(2, len(x))
        halves = [part - part.mean() for part in np.split(x, 2)]
        unit = np.concatenate([part / math.sqrt((part**2).mean() + 1e-5) for part in halves])
        return unit * scale[:, None, None] + constant[:, None, None]

    def block(x: Array, into: int, out: int, stride: int) -> Array:
        y = conv(np.maximum(conv(x, into, out, 3, stride), 0), out, out, 3, 1)
        return np.maximum(y + (x if into == out else conv(x, into, out, 1, stride)), 0)

    losses, right = [], []
    for image, label in zip(examples.features, examples.targets, strict=True):
        place = 0
        x = np.maximum(conv(image.reshape(2, 8, 8), 2, 4, 3, 1), 0)
        for into, out, stride in ((4, 4, 1), (4, 8, 2), (8, 8, 1)):
            x = block(x, into, out, stride)
        quarters = [x[:, i : i + 2, j : j + 2].mean((1, 2)) for i in (0, 2) for j in (0, 2)]
        logits = numbers(3, 32) @ np.stack(quarters, axis=1).ravel()
        assert place == SMALL.dimension
        losses.append(math.log(np.exp(logits).sum()) - logits[int(label)])
        right.append(logits.argmax() == label)
    assert SMALL.value(theta, examples) == pytest.approx(np.mean(losses), rel=1e-12)
    both = np.stack([theta, np.zeros_like(theta)])
    np.testing.assert_allclose(SMALL.value(both, examples), [np.mean(losses), math.log(3)])
    assert SMALL.accuracy(theta, examples) == np.mean(right)


def batch(examples: Examples) -> Batch:
    """Three examples at the first node, and none at the second."""
    present = np.array([[[1.0, 1.0, 1.0, 0.0], [0.0] * 4]])
    return Batch(examples=examples, places=np.array([[[0, 2, 1, 3]] * 2]), present=present)


def test_gradients_by_differences_in_every_layer() -> None:
    """The sum of three gradients, in the last coordinates of every layer."""
    examples, theta = data(), model()
    models = np.stack([theta, 0.5 * theta])[None, None].repeat(2, axis=1)
    sums = SMALL.clipped_sums(models, batch(examples), clip=np.inf)
    assert not sums[0, 1].any()
    used = examples.at(np.arange(3))
    ends = np.cumsum([math.prod(shape) for shape in SMALL._shapes()])
    for place in sorted({*(ends - 1), *(ends - 2), 0}):
        step = np.zeros_like(theta)
        step[place] = 1e-6
        above, below = SMALL.value(np.stack([theta + step, theta - step]), used)
        assert sums[0, 0, 0, place] == pytest.approx(3 * (above - below) / 2e-6, abs=1e-7)


def test_gradients_are_clipped_one_by_one() -> None:
    examples, theta = data(), model()
    single = [
        SMALL.clipped_sums(
            theta[None, None, None],
            Batch(examples=examples, places=np.array([[[i]]]), present=np.ones((1, 1, 1))),
            clip=np.inf,
        )[0, 0, 0]
        for i in range(3)
    ]
    norms = [float(np.linalg.norm(one)) for one in single]
    clip = sorted(norms)[1]
    expected = sum(one * min(1.0, clip / norm) for one, norm in zip(single, norms, strict=True))
    models = theta[None, None, None].repeat(2, axis=1)
    found = SMALL.clipped_sums(models, batch(examples), clip=clip)
    np.testing.assert_allclose(found[0, 0, 0], expected, rtol=1e-10, atol=1e-12)
    whole = SMALL.clipped_sums(models, batch(examples), clip=np.inf)
    np.testing.assert_allclose(whole[0, 0, 0], sum(single), rtol=1e-10, atol=1e-12)


def test_the_start_is_that_of_its_layers() -> None:
    """Scales 1 and constants 0 of groups; convolutions within 1/sqrt(inputs of a unit)."""
    start = SMALL.start(np.random.default_rng(0))
    first = SMALL.width * SMALL.channels * 9
    assert 0.8 / math.sqrt(18) < np.abs(start[:first]).max() <= 1 / math.sqrt(18)
    np.testing.assert_array_equal(start[first : first + 8], [1.0] * 4 + [0.0] * 4)
    assert np.abs(start[-96:]).max() <= 1 / math.sqrt(32)


def test_a_network_of_two_classes_starts_with_a_linear_layer() -> None:
    loss = ResNet(channels=1, side=2, classes=2, width=1, blocks=(1,), groups=1)
    assert np.abs(loss.start(np.random.default_rng(0))[-8:]).max() < 0.5


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"classes": 0}, "loss.classes"),
        ({"blocks": (1, 0)}, "loss.blocks"),
        ({"groups": 3}, "loss.groups"),
        ({"side": 6, "blocks": (1, 1)}, "loss.side"),
    ],
)
def test_networks_that_there_are_not(keys: dict[str, int], field: str) -> None:
    with pytest.raises(InputError) as error:
        ResNet(**keys)
    assert error.value.field == field
