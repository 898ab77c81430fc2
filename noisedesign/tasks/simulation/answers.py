"""Gradients that answer to models, for audits before observers who see a part of a run.

At models x they add a x. Of several records, each of which is clipped, they add the sum of what
clips leave of it: gradients of quadratic losses, as a trainer computes them. Before an observer who
does not see the models, they carry a record further than messages that mix do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Linear gradients, or the sum of those of records, each clipped.

    Args:
        slope: a, what is added to a model over the model, for all, by node or by step and node,
            shape (n,) or (T, n). A loss of curvature h, at the learning rate eta, has -eta h.
        records: B, how many of them share the slope at every node.
        clip: largest size of the gradient of a record, over that of the audited one; infinite for
            linear gradients.

    Raises:
        InputError: naming the field: not finite, or not positive.

    Examples:
        Ten records at a model of 5: each has the gradient -0.5, and is clipped to -0.2.

        >>> import numpy as np
        >>> from noisedesign.tasks.simulation.answers import Answers
        >>> models = np.array([[5.0], [1.0]])
        >>> Answers(slope=-1.0, records=10, clip=0.2)(0, models).ravel().tolist()
        [-2.0, -1.0]
        >>> Answers(slope=-1.0)(0, models).ravel().tolist()
        [-5.0, -1.0]
    """

    slope: Any
    records: int = 1
    clip: float = math.inf

    def __post_init__(self) -> None:
        slope = _checks.as_array(self.slope, field="slope", ndim=2)
        if slope.dtype.kind not in "iuf" or slope.ndim > 2 or not np.isfinite(slope).all():
            expected = "finite numbers, one, (n,) or (T, n)"
            raise InputError("slope", expected=expected, got=_checks.describe(self.slope))
        object.__setattr__(self, "slope", np.asarray(slope, dtype=np.float64))
        _checks.positive_int(self.records, field="records")
        if self.clip != math.inf:
            _checks.scale(self.clip, field="clip")

    def __call__(self, step: int, models: Array) -> Array:
        """Return what is added to the models of a step, shape (n, columns)."""
        each = self.linear(step, models) / self.records
        return np.asarray(self.records * np.clip(each, -self.clip, self.clip))

    def linear(self, step: int, models: Array) -> Array:
        """The same, unclipped."""
        slope = self.slope[step] if self.slope.ndim == 2 else self.slope
        return np.asarray(np.reshape(slope, (-1, 1)) * models)
