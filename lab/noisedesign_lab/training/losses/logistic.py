"""Logistic regression of labels -1 and 1, with l2 regularisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses.loss import Batch, Loss, clipped_weights, mean_over_examples


@dataclass(frozen=True, kw_only=True)
class Logistic(Loss):
    """``log(1 + exp(-b <a, theta>)) + regularization / 2 |theta|^2`` for features a, target b.

    With an intercept the model has one more coordinate, the last, and every example a last feature
    1; the regularisation includes it. An example's gradient, which is clipped, is
    -b s a + regularization theta with s = 1 / (1 + exp(b <a, theta>)).

    Args:
        features: the number p of features.
        regularization: a number >= 0.
        intercept: whether a constant is added to <a, theta>.

    Raises:
        InputError: another number of features or regularization.

    Examples:
        >>> import numpy as np
        >>> from noisedesign_lab.datasets import Examples
        >>> from noisedesign_lab.training.losses import Logistic
        >>> loss = Logistic(features=1)
        >>> two = Examples(features=np.array([[1.0], [3.0]]), targets=np.array([-1.0, 1.0]))
        >>> print(f"{loss.value(np.zeros(1), two):.4f}")  # log 2
        0.6931
        >>> print(loss.accuracy(np.ones(1), two))
        0.5
    """

    features: int
    regularization: float = 0.0
    intercept: bool = False

    def __post_init__(self) -> None:
        _checks.positive_int(self.features, field="loss.features")
        _checks.nonnegative(self.regularization, field="loss.regularization")

    @property
    def dimension(self) -> int:
        return self.features + self.intercept

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        features, labels = self._with_ones(batch.features), batch.targets[..., None]
        scores = features @ models.swapaxes(-1, -2)  # (S, n, m, E)
        slopes = -labels * expit(-labels * scores)
        decay = self.regularization
        squares = np.einsum("snmd,snmd->snm", features, features)[..., None] * slopes**2
        if decay:
            sizes = np.einsum("sned,sned->sne", models, models)[:, :, None]
            squares = squares + 2 * decay * slopes * scores + decay**2 * sizes
        weights = clipped_weights(np.sqrt(np.maximum(squares, 0)), batch.present, clip=clip)
        sums = np.asarray((weights * slopes).swapaxes(-1, -2) @ features)
        if decay:
            sums += decay * weights.sum(axis=2)[..., None] * models
        return sums

    def value(self, models: Array, examples: Examples) -> Array:
        penalty = self.regularization / 2 * np.square(models).sum(axis=-1)
        losses = self._mean(models, examples, lambda margins: np.logaddexp(0.0, -margins))
        return np.asarray(losses + penalty)

    def accuracy(self, models: Array, examples: Examples) -> Array:
        # An example on the hyperplane is on no label's side.
        return self._mean(models, examples, lambda margins: margins > 0)

    def _mean(
        self, models: Array, examples: Examples, of: Callable[[Array], NDArray[Any]]
    ) -> Array:
        """Mean over the examples of a function of their margins."""
        features, targets = self._with_ones(examples.features), examples.targets

        def total(flat: Array, part: slice) -> Array:
            return np.asarray(of(flat @ features[part].T * targets[part]).sum(axis=1))

        return mean_over_examples(models, len(examples), total)

    def _with_ones(self, features: Array) -> Array:
        if not self.intercept:
            return features
        return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)
