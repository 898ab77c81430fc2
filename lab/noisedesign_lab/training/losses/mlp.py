"""Regression by one hidden layer of rectified linear units, with squared loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses.loss import Batch, Loss, clipped_weights, spans


@dataclass(frozen=True, kw_only=True)
class MLP(Loss):
    """f(theta; x, y) = (v . max(0, U x + a) + b - y)^2, for one hidden layer of h units.

    theta holds, unit by unit, the row of U and the entry of a, then v, then b: d = h (p + 2) + 1
    coordinates, 641 for 8 features and 64 units (Mafalda-SGD, section 7.2). The squared loss has no
    factor 1/2, as the mean squared error of that paper. Its derivative where a unit is exactly at
    its kink is taken as 0, as trainers do.

    Args:
        features: the number p of features.
        hidden: the number h of units.

    Raises:
        InputError: another number of features or units.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import MLP
        >>> MLP(features=8, hidden=64).dimension
        641
        >>> one = Examples(features=np.array([[2.0]]), targets=np.array([1.0]))
        >>> model = np.array([1.0, -1.5, 4.0, 0.0])  # 4 max(0, x - 1.5)
        >>> print(MLP(features=1, hidden=1).value(model, one))
        1.0
    """

    features: int
    hidden: int = 64

    def __post_init__(self) -> None:
        _checks.positive_int(self.features, field="loss.features")
        _checks.positive_int(self.hidden, field="loss.hidden")

    @property
    def dimension(self) -> int:
        return self.hidden * (self.features + 2) + 1

    def start(self, rng: np.random.Generator) -> Array:
        # Uniform in +-1/sqrt(inputs of the layer), weights and constants, as PyTorch's Linear.
        layers = (self.features, self.hidden * (self.features + 1)), (self.hidden, self.hidden + 1)
        return np.concatenate([rng.uniform(-1, 1, size) / np.sqrt(of) for of, size in layers])

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        seeds, nodes, lanes, _ = models.shape
        size = batch.places.shape[-1]
        flat = models.reshape(seeds * nodes, lanes, self.dimension)
        inputs = _with_ones(batch.features).reshape(seeds * nodes, size, self.features + 1)
        targets = batch.targets.reshape(seeds * nodes, size)
        present = batch.present.reshape(seeds * nodes, size)
        sums = np.empty_like(flat)
        for part in spans(len(flat), size * lanes * self.hidden):
            sums[part] = self._sums(flat[part], inputs[part], targets[part], present[part], clip)
        return sums.reshape(models.shape)

    def _sums(
        self, models: Array, inputs: Array, targets: Array, present: Array, clip: float
    ) -> Array:
        """Return the sums of a few nodes: models (k, E, d), inputs (k, m, p + 1), targets (k, m).
        The squared norm of a gradient is 4 r^2 (|x, 1|^2 sum over units that are on of v^2 +
        |units|^2 + 1)."""
        k, lanes, _ = models.shape
        m, h = inputs.shape[1], self.hidden
        first, second, constant = self._layers(models)
        into = first.reshape(k, lanes * h, -1).swapaxes(-1, -2)  # (k, p + 1, E h)
        units = (inputs @ into).reshape(k, m, lanes, h)
        on = (units > 0).astype(np.float64)
        np.maximum(units, 0.0, out=units)
        output = np.einsum("kmeh,keh->kem", units, second) + constant
        residual = 2 * (output - targets[:, None])
        through = np.einsum("kmeh,keh->kem", on, second**2)
        through *= np.einsum("kmp,kmp->km", inputs, inputs)[:, None]
        squares = residual**2 * (through + np.einsum("kmeh,kmeh->kem", units, units) + 1)
        norms = np.sqrt(squares).swapaxes(1, 2)[None]  # (1, k, m, E)
        weights = clipped_weights(norms, present[None], clip=clip)[0].swapaxes(1, 2) * residual
        sums = np.empty_like(models)
        into_sums, second_sums, constant_sums = self._layers(sums)
        on *= weights.swapaxes(1, 2)[..., None]
        outer = on.reshape(k, m, lanes * h).swapaxes(-1, -2) @ inputs  # (k, E h, p + 1)
        np.multiply(outer.reshape(into_sums.shape), second[..., None], out=into_sums)
        second_sums[...] = (weights[:, :, None] @ units.swapaxes(1, 2))[:, :, 0]
        constant_sums[...] = weights.sum(axis=2, keepdims=True)
        return sums

    def _layers(self, models: Array) -> tuple[Array, Array, Array]:
        """Views: (U, a), shape (..., h, p + 1); v, shape (..., h); b, shape (..., 1)."""
        cut = self.hidden * (self.features + 1)
        first = models[..., :cut].reshape(*models.shape[:-1], self.hidden, self.features + 1)
        return first, models[..., cut:-1], models[..., -1:]

    def value(self, models: Array, examples: Examples) -> Array:
        inputs, targets = np.ascontiguousarray(_with_ones(examples.features).T), examples.targets
        flat = models.reshape(-1, self.dimension)
        sums = np.zeros(len(flat))
        for part in spans(len(examples), self.hidden):
            entering, wanted = inputs[:, part], targets[part]
            for at, model in enumerate(flat):
                first, second, constant = self._layers(model)
                units = first @ entering
                np.maximum(units, 0.0, out=units)
                residual = second @ units + (constant - wanted)
                sums[at] += residual @ residual
        return (sums / len(examples)).reshape(models.shape[:-1])


def _with_ones(features: Array) -> Array:
    return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)
