"""Both directions of mixtures of two and three normals by quadrature, from the Gram matrix alone.

Given all but the last coordinate of x = F z, F the Cholesky factor of G, all ratios w_j but the
last are known, and what remains is an option on one lognormal, in closed form. The integrand is
smooth and vanishes at both ends, where the trapezoidal rule is exact to rounding.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from noisedesign.privacy.amplification.mixture import Multisets, Proposal
from tests.support.oracles import Array

REACH = 14.0


def deltas(gram: Array, epsilon: float, *, points: int | None = None) -> tuple[float, float]:
    """E (L - e^epsilon)_+ and E (1 - e^epsilon L)_+, L the mean of b lognormals, b = 2 or 3."""
    bins = len(gram)
    points = points or (40001 if bins == 2 else 301)
    factor = np.linalg.cholesky(np.asarray(gram) + 1e-15 * np.eye(bins))
    axis = np.linspace(-REACH, REACH, points)
    weight = np.exp(-axis * axis / 2) / math.sqrt(2 * math.pi) * (axis[1] - axis[0])
    z = np.stack(np.meshgrid(*[axis] * (bins - 1), indexing="ij"), axis=-1).reshape(-1, bins - 1)
    weights = weight if bins == 2 else np.outer(weight, weight).ravel()
    known = np.exp(z @ factor[:-1, :-1].T - np.diagonal(gram)[:-1] / 2).sum(axis=1)
    # The last ratio is ``level`` times a lognormal of mean 1 and log-variance ``c``.
    c = factor[-1, -1] ** 2
    level = np.exp(z @ factor[-1, :-1] - gram[-1, -1] / 2 + c / 2)
    strike = math.exp(epsilon)
    remove = weights @ (level * _call((bins * strike - known) / level, c)) / bins
    add = weights @ (strike * level * _put((bins / strike - known) / level, c)) / bins
    return float(remove), float(add)


def _split(k: Array, c: float) -> tuple[Array, Array]:
    root = math.sqrt(c)
    with np.errstate(divide="ignore"):
        d = (c / 2 - np.log(np.maximum(k, 0.0))) / root
    return d, d - root


def _call(k: Array, c: float) -> Array:
    """E (w - k)_+."""
    first, second = _split(k, c)
    return np.where(k > 0, ndtr(first) - k * ndtr(second), 1 - k)


def _put(k: Array, c: float) -> Array:
    """E (k - w)_+."""
    first, second = _split(k, c)
    return np.where(k > 0, np.maximum(k, 0.0) * ndtr(-second) - ndtr(-first), 0.0)


def removal_by_samples(gram: Array, epsilon: float) -> float:
    """E (L - e^epsilon)_+ by importance sampling, which knows nothing of any convolution."""
    orders = Multisets(np.asarray(gram)).orders(1.0)
    proposal = Proposal(np.asarray(gram), orders, remove_at=epsilon, add_at=epsilon)
    return proposal.remove(2**17, np.random.default_rng(0)).estimate(epsilon)


def monte_carlo(gram: Array, samples: int, seed: int) -> tuple[Array, Array]:
    """log L under P, the run with the record, and under Q, the run without: the game itself."""
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(np.asarray(gram))
    root = vectors * np.sqrt(np.maximum(values, 0))
    half = np.diagonal(gram) / 2

    def ratio(x: Array) -> Array:
        return np.log(np.exp(x - half).mean(axis=1))

    without = rng.standard_normal((samples, len(gram))) @ root.T
    bins = rng.integers(len(gram), size=samples)
    with_record = rng.standard_normal((samples, len(gram))) @ root.T + np.asarray(gram)[bins]
    return ratio(with_record), ratio(without)
