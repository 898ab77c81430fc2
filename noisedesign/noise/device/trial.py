"""A device is tried before it is used: numbers of known keys have the bits of the processor."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.noise.device.eager import Eager, Term, divided
from noisedesign.noise.filters import Recursion
from noisedesign.noise.hidden import WRAP, HashKeys, hidden
from noisedesign.noise.normals import Normals

STEPS, SIZE = 6, 5000  # steps of the node's own filter, and numbers of each: 60,000 normals
START = 2**34 - 2001  # place of the first: odd, and before block 2^31 of ChaCha20
FACTORS = (0.75, -1.9)  # of two streams
DIVISOR = 3  # a batch size whose inverse no float is


def difference(
    engine: Eager, filter_: Recursion, *, horizon: int, dtype: torch.dtype
) -> str | None:
    """Say what a device does otherwise than the processor; None: nothing."""
    exact = np.dtype(np.float32 if dtype == torch.float32 else np.float64)
    kept = np.zeros((filter_.rows, SIZE), exact)
    there = torch.zeros((filter_.rows, SIZE), dtype=dtype, device=engine.device)
    for t in range(min(STEPS, horizon)):
        expected = np.asarray(filter_.step(t, _white, kept)).astype(exact)
        found = engine.step(filter_, t, _terms, START, SIZE, there).to(dtype)
        if not _alike(found, expected):
            return f"noise of step {t} has other bits than the processor's"
    if not _alike(divided(found, DIVISOR), expected / exact.type(DIVISOR)):
        return "noise over a batch size has other bits than the processor's"
    keys = HashKeys(*(key for key, _ in _terms(STEPS)))
    known = hidden([expected], keys=keys, start=START // 2)  # by two words a number of float64
    sums, norm = engine.hidden(found, keys, START // 2)
    if [word % WRAP for word in sums.tolist()] != [known.first, known.second]:
        return "sums of integers do not wrap"
    return None if math.isclose(float(norm), known.norm, rel_tol=1e-6) else "norms are others"


def _terms(step: int) -> list[Term]:
    return [(bytes(range(at, at + 32)), by) for at, by in enumerate(FACTORS, start=7 * step)]


def _white(step: int) -> Array:
    total = np.zeros(SIZE)
    for key, by in _terms(step):
        drawn = np.empty(SIZE)
        Normals(key).fill(drawn, start=START)
        drawn *= by
        total += drawn
    return total


def _alike(found: torch.Tensor, expected: NDArray[np.float64] | NDArray[np.float32]) -> bool:
    bits: bytes = found.cpu().numpy().tobytes()
    return bits == expected.tobytes()
