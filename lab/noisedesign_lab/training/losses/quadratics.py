"""Quadratic losses: one for all examples, and one for every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses.loss import Batch, Loss, clipped_weights


@dataclass(frozen=True, kw_only=True)
class Quadratic:  # its field `dimension` cannot stand for the property of Loss
    """``curvature / 2 |theta|^2 - <x, theta>``; with 0 models are sums of noise and constants."""

    dimension: int
    curvature: float = 1.0

    private: None = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.dimension, field="loss.dimension")
        _checks.nonnegative(self.curvature, field="loss.curvature")

    def start(self, rng: np.random.Generator) -> Array:
        return np.zeros(self.dimension)

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        features = batch.features  # (S, n, m, d)
        if np.isinf(clip):
            weights = np.broadcast_to(batch.present[..., None], (*batch.present.shape, 1))
        else:
            own = np.einsum("snmd,snmd->snm", features, features)
            cross = features @ models.swapaxes(-1, -2)  # (S, n, m, E)
            size = np.einsum("sned,sned->sne", models, models)[:, :, None]
            squared = own[..., None] - 2 * self.curvature * cross + self.curvature**2 * size
            weights = clipped_weights(np.sqrt(np.maximum(squared, 0)), batch.present, clip=clip)
        total = weights.sum(axis=2)[..., None]  # (S, n, E, 1)
        return np.asarray(self.curvature * total * models - weights.swapaxes(-1, -2) @ features)

    def value(self, models: Array, examples: Examples) -> Array:
        mean = examples.features.mean(axis=0)
        return np.asarray(self.curvature / 2 * np.square(models).sum(axis=-1) - models @ mean)

    def accuracy(self, models: Array, examples: Examples) -> None:
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Quadratics(Loss):
    """f_j(theta) = 1/2 (theta - c_j)^T A_j (theta - c_j) + <b_j, theta - c_j>, for objectives j.

    An example is an objective: its one feature is the number j, from 0.

    Args:
        curvatures: A, shape (N, d, d), symmetric.
        centers: c, shape (N, d).
        slopes: b, shape (N, d); zeros where not given.

    Raises:
        InputError: arrays of other shapes; a matrix that is not symmetric.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.losses import Quadratics
        >>> curvatures = np.array([[[1.0]], [[3.0]]])
        >>> loss = Quadratics(curvatures=curvatures, centers=np.array([[0.0], [4.0]]))
        >>> print(loss.minimizer)
        [3.]
        >>> print(loss.value(np.array([2.0]), loss.examples))  # (1/2 2^2 + 3/2 2^2) / 2
        4.0
    """

    curvatures: Array
    centers: Array
    slopes: Any = None

    def __post_init__(self) -> None:
        centers = _checks.matrix(self.centers, field="loss.centers")
        count, d = centers.shape
        curvatures = _checks.array_of_shape(
            self.curvatures, field="loss.curvatures", shape=(count, d, d)
        )
        for one in curvatures:
            _checks.symmetric_matrix(one, field="loss.curvatures", tolerance=1e-12)
        given = np.zeros_like(centers) if self.slopes is None else self.slopes
        slopes = _checks.array_of_shape(given, field="loss.slopes", shape=(count, d))
        for name, array in (("curvatures", curvatures), ("centers", centers), ("slopes", slopes)):
            object.__setattr__(self, name, array)

    @property
    def dimension(self) -> int:
        return len(self.centers[0])

    @property
    def examples(self) -> Examples:
        """An example an objective, in their order."""
        numbers = np.arange(len(self.centers), dtype=np.float64)
        return Examples(features=numbers[:, None], targets=np.zeros(len(numbers)))

    @property
    def minimizer(self) -> Array:
        """The model at which the sum of all objectives is least, shape (d,).

        Raises:
            InputError: the sum is not strictly convex.
        """
        total = self.curvatures.sum(axis=0)
        if np.linalg.eigvalsh(total)[0] <= 0:
            raise InputError("loss", expected="a strictly convex sum", got="another")
        pull = np.einsum("jab,jb->a", self.curvatures, self.centers) - self.slopes.sum(axis=0)
        return np.asarray(np.linalg.solve(total, pull))

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        number = batch.features[..., 0].astype(np.intp)  # (S, n, m)
        away = models[:, :, None] - self.centers[number][:, :, :, None]  # (S, n, m, E, d)
        gradients = away @ self.curvatures[number] + self.slopes[number][:, :, :, None]
        norms = np.linalg.norm(gradients, axis=-1)
        weights = clipped_weights(norms, batch.present, clip=clip)
        return np.asarray((weights[..., None] * gradients).sum(axis=2))

    def value(self, models: Array, examples: Examples) -> Array:
        values = np.zeros(models.shape[:-1])
        for number in examples.features[:, 0].astype(np.intp):
            away = models - self.centers[number]
            curved = away @ (self.curvatures[number] / 2) + self.slopes[number]
            values += np.einsum("...d,...d->...", away, curved)
        return values / len(examples)


def whisper_quadratics(
    nodes: int = 20, *, degrees: float = 15.0, as_printed: bool = False
) -> Quadratics:
    """The objectives of Whisper D-SGD, section VI: two coordinates, one narrow valley a node.

    Node i = 1, ..., n has 15 (x_1 + i)^2 + x_2^2 in the first half, 15 (x_1 - i)^2 + x_2^2 in the
    second, which is turned by ``degrees`` around its minimizer (i, 0), against the clock.

    The text of the paper that we have, transcribed by a machine, reads x_2 in place of x_2^2. Those
    are not strictly convex and fall without end along x_2.

    Args:
        nodes: n, even.
        degrees: the angle.
        as_printed: with x_2, whose mean over all nodes has no minimizer.

    Raises:
        InputError: an odd number of nodes.

    Returns:
        The objectives, in the order of the nodes.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.training.losses import whisper_quadratics
        >>> loss = whisper_quadratics(2, degrees=0.0)
        >>> print(np.round(loss.value(np.array([-1.0, 0.0]), loss.examples), 9))  # 15 * 3^2 / 2
        67.5
    """
    _checks.positive_int(nodes, field="loss.nodes")
    if nodes % 2:
        raise InputError("loss.nodes", expected="an even number", got=str(nodes))
    number = np.arange(1, nodes + 1)
    second = number > nodes // 2
    centers = np.stack([np.where(second, number, -number), np.zeros(nodes)], axis=1)
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = np.where(second[:, None, None], np.array([[cosine, -sine], [sine, cosine]]), np.eye(2))
    upright = np.diag([30.0, 0.0 if as_printed else 2.0])
    slopes = turn @ np.array([0.0, 1.0]) if as_printed else np.zeros_like(centers)
    curvatures = turn @ upright @ turn.swapaxes(-1, -2)
    curvatures = (curvatures + curvatures.swapaxes(-1, -2)) / 2
    return Quadratics(curvatures=curvatures, centers=centers, slopes=slopes)
