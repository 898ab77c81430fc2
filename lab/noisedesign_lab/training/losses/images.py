"""A residual network for images. Every layer returns its output and the way back through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import log_softmax

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses.loss import Batch, Loss

Back = Callable[[Array], tuple[Array, list[Array]]]
"""A function of the slopes of an output: those of the input, and of the layer's own numbers."""
Layer = Callable[[Array], tuple[Array, Back]]

EPSILON = 1e-5  # added to variances of group normalisation, as PyTorch does
AT_ONCE = 64  # images whose losses are computed together
QUARTERS = 2  # the last images are averaged over 2 x 2 parts


@dataclass(frozen=True, kw_only=True)
class ResNet(Loss):
    """Cross entropy of a residual network with group normalisation (He and others 2016; Wu and He
    2018), by default that of CIFAR-10 in Zip-DL, section 6.1: 11,189,312 numbers.

    A convolution of 3 x 3 into ``width`` channels; stages of residual blocks of two convolutions
    each, whose first block halves the side and doubles the channels from the second stage on; the
    means over the quarters of what is left; a linear layer. Only group normalisation has constants.
    theta holds the numbers of layer after layer; an example is an image, channel by channel and row
    by row, and its target the number of its class. Where a unit is exactly at its kink its
    derivative is taken as 0.

    Args:
        channels: of an image.
        side: pixels of a square image's side.
        classes: how many there are, numbered from 0.
        width: channels of the first stage.
        blocks: how many residual blocks each stage has.
        groups: into how many the channels of every layer are divided.

    Raises:
        InputError: a number that is not positive; groups that do not divide the width; a side that
            the stages leave odd.

    Examples:
        >>> from noisedesign_lab.training.losses import ResNet
        >>> ResNet().dimension
        11189312
    """

    channels: int = 3
    side: int = 32
    classes: int = 10
    width: int = 64
    blocks: Sequence[int] = (2, 2, 2, 2)
    groups: int = 32

    def __post_init__(self) -> None:
        for name in ("channels", "side", "classes", "width", "groups"):
            _checks.positive_int(getattr(self, name), field=f"loss.{name}")
        for count in _checks.listed(self.blocks, field="loss.blocks", expected="a list of counts"):
            _checks.positive_int(count, field="loss.blocks")
        if self.width % self.groups:
            expected = f"a divisor of the width {self.width}"
            raise InputError("loss.groups", expected=expected, got=str(self.groups))
        left = -(-self.side // 2 ** (len(self.blocks) - 1))
        if left % QUARTERS:
            expected = "a side that the stages, which halve it, leave even"
            raise InputError(
                "loss.side", expected=expected, got=f"{self.side}, and {left} in the end"
            )

    @property
    def dimension(self) -> int:
        return sum(int(np.prod(shape)) for shape in self._shapes())

    def start(self, rng: np.random.Generator) -> Array:
        # Uniform in +-1/sqrt(inputs of a unit), scales 1 and constants 0, as PyTorch's layers.
        parts = []
        for shape in self._shapes():
            if len(shape) == 2 and shape != self._last:
                parts.append(np.repeat([1.0, 0.0], shape[1]))
            else:
                half = 1 / np.sqrt(np.prod(shape[1:]))
                parts.append(rng.uniform(-half, half, int(np.prod(shape))))
        return np.concatenate(parts)

    @property
    def _last(self) -> tuple[int, int]:
        return self.classes, self.width * 2 ** (len(self.blocks) - 1) * QUARTERS**2

    def _residuals(self) -> Iterator[tuple[int, int, int]]:
        """Channels in, channels out and stride of every residual block."""
        widths = [self.width * 2**stage for stage in range(len(self.blocks))]
        for stage, count in enumerate(self.blocks):
            before = widths[max(stage - 1, 0)]
            yield before, widths[stage], 2 if stage else 1
            yield from [(widths[stage], widths[stage], 1)] * (count - 1)

    def _shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the numbers of all layers: convolutions, and scales and constants of groups."""
        found: list[tuple[int, ...]] = [(self.width, self.channels, 3, 3), (2, self.width)]
        for into, out, _ in self._residuals():
            found += [(out, into, 3, 3), (2, out), (out, out, 3, 3), (2, out)]
            found += [(out, into, 1, 1), (2, out)] if into != out else []
        return [*found, self._last]

    def _network(self, model: Array) -> Layer:
        """The function from images, (m, channels, side, side), to logits, (m, classes)."""
        shapes = self._shapes()
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        parts = (model[a:b].reshape(s) for (a, b), s in zip(pairwise(ends), shapes, strict=True))

        def convolved(stride: int = 1) -> list[Layer]:
            weights, normal = next(parts), next(parts)
            turn = partial(_convolution, weights=weights, stride=stride)
            return [turn, partial(_normalized, numbers=normal, groups=self.groups)]

        layers = [*convolved(), _rectified]
        for into, out, stride in self._residuals():
            main = [*convolved(stride), _rectified, *convolved()]
            aside = convolved(stride) if into != out else []
            layers += [partial(_sum, main=main, aside=aside), _rectified]
        return partial(_chain, layers=[*layers, _quarters, partial(_linear, weights=next(parts))])

    def _images(self, features: Array) -> Array:
        return features.reshape(len(features), self.channels, self.side, self.side)

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        sums = np.zeros_like(models)
        for s, n in np.ndindex(models.shape[:2]):
            places = batch.places[s, n][batch.present[s, n] > 0]
            # Without a clip the batch goes through the network as a whole.
            groups = np.split(places, range(1, len(places))) if np.isfinite(clip) else [places]
            for e, group in np.ndindex(models.shape[2], len(groups)):
                if len(chosen := groups[group]):
                    gradient = self._gradient(models[s, n, e], batch.examples.at(chosen))
                    norm = float(np.linalg.norm(gradient))
                    sums[s, n, e] += gradient * min(1.0, clip / norm if norm else 1.0)
        return sums

    def _gradient(self, model: Array, examples: Examples) -> Array:
        """Sum of the gradients of some examples."""
        logits, back = self._network(model)(self._images(examples.features))
        slopes = np.exp(log_softmax(logits, axis=1))
        slopes[np.arange(len(examples)), examples.targets.astype(np.intp)] -= 1.0
        return np.concatenate([part.ravel() for part in back(slopes)[1]])

    def value(self, models: Array, examples: Examples) -> Array:
        labels = examples.targets.astype(np.intp)
        return self._mean(
            models,
            examples,
            lambda logits, at: -log_softmax(logits, axis=1)[range(len(at)), labels[at]],
        )

    def accuracy(self, models: Array, examples: Examples) -> Array:
        return self._mean(models, examples, lambda z, at: z.argmax(axis=1) == examples.targets[at])

    def _mean(self, models: Array, examples: Examples, of: Callable[[Array, Any], Any]) -> Array:
        """Mean over the examples of a function of their logits and places."""
        flat = models.reshape(-1, self.dimension)
        sums = np.zeros(len(flat))
        for places in np.split(np.arange(len(examples)), range(AT_ONCE, len(examples), AT_ONCE)):
            images = self._images(examples.features[places])
            for at, model in enumerate(flat):
                sums[at] += of(self._network(model)(images)[0], places).sum()
        return (sums / len(examples)).reshape(models.shape[:-1])


def _chain(x: Array, *, layers: Sequence[Layer]) -> tuple[Array, Back]:
    """Layer after layer."""
    backs = []
    for layer in layers:
        x, back = layer(x)
        backs.append(back)

    def backward(slopes: Array) -> tuple[Array, list[Array]]:
        found: list[Array] = []
        for back in backs[::-1]:
            slopes, own = back(slopes)
            found = own + found
        return slopes, found

    return x, backward


def _sum(x: Array, *, main: Sequence[Layer], aside: Sequence[Layer]) -> tuple[Array, Back]:
    """Add what two chains make of the same input."""
    (first, back), (second, other) = (_chain(x, layers=layers) for layers in (main, aside))

    def backward(slopes: Array) -> tuple[Array, list[Array]]:
        (own, numbers), (rest, more) = back(slopes), other(slopes)
        return own + rest, numbers + more

    return first + second, backward


def _convolution(x: Array, *, weights: Array, stride: int) -> tuple[Array, Back]:
    """Convolve (m, c, h, w) by weights (o, c, k, k), with zeros around."""
    size = weights.shape[2]
    around = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (around, around), (around, around)))
    windows = sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    found = np.moveaxis(np.tensordot(windows, weights, axes=([1, 4, 5], [1, 2, 3])), 3, 1)

    def backward(slopes: Array) -> tuple[Array, list[Array]]:
        own = np.tensordot(slopes, windows, axes=([0, 2, 3], [0, 2, 3]))
        into, (high, wide) = np.zeros_like(padded), slopes.shape[2:]
        for i, j in np.ndindex(size, size):
            told = np.moveaxis(np.tensordot(slopes, weights[:, :, i, j], axes=([1], [0])), 3, 1)
            into[:, :, i : i + stride * high : stride, j : j + stride * wide : stride] += told
        return into[:, :, around : around + x.shape[2], around : around + x.shape[3]], [own]

    return found, backward


def _normalized(x: Array, *, numbers: Array, groups: int) -> tuple[Array, Back]:
    """Mean 0 and variance 1 over each image's groups of channels, then a scale and a constant."""
    scale, constant = numbers[:, :, None, None]
    flat = x.reshape(len(x), groups, -1)
    deviation = np.sqrt(flat.var(axis=2, keepdims=True) + EPSILON)
    unit = (flat - flat.mean(axis=2, keepdims=True)) / deviation

    def backward(slopes: Array) -> tuple[Array, list[Array]]:
        own = np.stack([(slopes * unit.reshape(x.shape)).sum((0, 2, 3)), slopes.sum((0, 2, 3))])
        inner = (slopes * scale).reshape(flat.shape)
        apart = inner - inner.mean(axis=2, keepdims=True)
        apart -= unit * (inner * unit).mean(axis=2, keepdims=True)
        return (apart / deviation).reshape(x.shape), [own]

    return unit.reshape(x.shape) * scale + constant, backward


def _rectified(x: Array) -> tuple[Array, Back]:
    on = x > 0
    return x * on, lambda slopes: (slopes * on, [])


def _quarters(x: Array) -> tuple[Array, Back]:
    """Mean over 2 x 2 parts of (m, c, h, h), which is (m, 4 c)."""
    m, c, side, _ = x.shape
    half = side // QUARTERS
    shape = m, c, QUARTERS, half, QUARTERS, half

    def backward(slopes: Array) -> tuple[Array, list[Array]]:
        each = slopes.reshape(m, c, QUARTERS, 1, QUARTERS, 1) / half**2
        return np.broadcast_to(each, shape).reshape(x.shape), []

    return x.reshape(shape).mean(axis=(3, 5)).reshape(m, -1), backward


def _linear(x: Array, *, weights: Array) -> tuple[Array, Back]:
    return x @ weights.T, lambda slopes: (slopes @ weights, [slopes.T @ x])
