"""Polynomial noise changed after it was found: it must be neither feasible nor proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.forms import PolynomialCovariance


def _scaled_down(array: Array) -> Array:
    found = array.copy()
    found[7] *= 1 - 1e-6
    return found


FORGED: tuple[Callable[[PolynomialCovariance], dict[str, Any]], ...] = (
    lambda s: {"scale": _scaled_down(s.scale)},  # one node's noise
    lambda s: {"noise": s.noise * (1 - 1e-6)},
    lambda s: {"bound": s.bound * (1 - 1e-3)},  # eigenvalues beyond what r is known on
    lambda s: {"weights": s.weights * 1.01},
    lambda s: {"precision": -s.precision},
    lambda s: {"noise": s.noise + 0.2 * np.eye(1, len(s.noise), 3)[0]},
)
