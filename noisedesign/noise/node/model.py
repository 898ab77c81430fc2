"""A small real model: logistic regression, exact gradients of every example, clipped.

Loss of an example (x, y), y in {0, 1}: log(1 + exp(-s)), s = (2 y - 1) <theta, (x, 1)>.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError

Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Examples:
    """``features``, shape (m, p), and ``labels``, shape (m,), each 0 or 1."""

    features: Array
    labels: Array

    @classmethod
    def load(cls, path: str | Path) -> Examples:
        """Load ``features`` and ``labels``, each 0 or 1, from an .npz file."""
        file = _checks.path(path, field="data")
        expected = f"a file {file} of features and labels, .npz"
        try:
            with np.load(file, allow_pickle=False) as arrays:
                features, labels = arrays["features"], arrays["labels"]
        except (OSError, ValueError, KeyError, EOFError, AttributeError) as error:
            raise InputError("data", expected=expected, got=f"{error}") from None
        features = _checks.matrix(features, field="data.features")
        labels = _checks.vector(labels, field="data.labels", length=len(features))
        if not np.isin(labels, (0.0, 1.0)).all():
            raise InputError("data.labels", expected="0 or 1", got="another number")
        return cls(np.hstack([features, np.ones((len(features), 1))]), labels)

    @property
    def dimension(self) -> int:
        """Number of coefficients of the model: one a feature, and a constant."""
        return int(self.features.shape[1])

    def losses(self, model: Array) -> Array:
        """Return the loss of every example."""
        return np.asarray(np.logaddexp(0.0, -self._margins(model)))

    def accuracy(self, model: Array) -> float:
        """Share of examples on the right side."""
        return float((self._margins(model) > 0).mean())

    def clipped_sum(self, model: Array, batch: Places, *, clip: float) -> Array:
        """Sum the gradients of a batch (places), each scaled to a norm of at most ``clip``, shape
        (d,)."""
        x, sign = self.features[batch], 2.0 * self.labels[batch] - 1.0
        slope = -sign / (1.0 + np.exp(np.clip(sign * (x @ model), -700.0, 700.0)))
        norms = np.abs(slope) * np.sqrt(np.square(x).sum(axis=1))
        return np.asarray((slope * np.minimum(1.0, clip / np.maximum(norms, 1e-300))) @ x)

    def _margins(self, model: Array) -> Array:
        return np.asarray((2.0 * self.labels - 1.0) * (self.features @ model))
