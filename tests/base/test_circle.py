"""Points of the unit circle, against mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from noisedesign.base.circle import BITS, ERROR, PI, turned


@pytest.mark.parametrize("half", [1, 2, 3, 4095, 4_000_002])
def test_points_are_within_their_error(half: int) -> None:
    some = np.random.default_rng(0).integers(0, 40 * half, 60)
    n = np.append(some, [0, half, 2 * half - 1, 2 * half]).astype(np.int64)
    with mpmath.workdps(50):
        assert int(mpmath.floor(mpmath.pi * 2**BITS)) == PI
        for k, found in zip(n.tolist(), turned(n, half), strict=True):
            exact = mpmath.expjpi(mpmath.mpf(k) / half)
            assert abs(exact - mpmath.mpc(complex(found))) < ERROR / 8
