"""Sums over pairs of eigenvalues, of which Newton's matrices are made, by a few matrix products.

    sum_kl P_ik P_il Q_jk Q_jl / (r_k + r_l)

costs n products of n x n matrices as it stands. But 1 / x is a sum of exponentials c exp(-t x) but
for a small error, and each of them turns the sum into c (P exp(-t r) Q^T)_ij^2, one product,
whatever n is. All terms are >= 0, so that a matrix formed in this way is off by the relative error
of the sum of exponentials, as a form, and positive as it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg.blas

from noisedesign.base.checks import Array
from noisedesign.base.device import DeviceArray, namespace

Rule = tuple[Array, Array]
"""Times and weights."""
ENDS = 0.5, 2.2
"""Times of a sum, over 1 / most and 1 / least: the first and the last."""
SAMPLES = 10
"""Points at which a sum is fitted, for every time."""
FADED = 9.0
"""Decay, over that of the least root, beyond which a term leaves nothing: times x it is 1e-3."""
ALIKE = 1e-2
"""Singular values, over the largest, of terms so much alike that their weights would differ in
sign: where most is next to least."""


def fitted(least: float, most: float, *, spacing: float) -> Rule:
    """Times and weights of a sum of exponentials that is near 1 / x for least <= x <= most.

    Times are about ``spacing`` apart, in log, and weights those that fit best. For a spacing of 1.3
    to 1.6 weights are positive and the relative error is at most 0.03, by four terms where most is
    ten times least and seven where it is a thousand times.
    """
    first, last = np.log(ENDS[0] / most), np.log(ENDS[1] / least)
    times = np.exp(np.linspace(first, last, max(2, int(np.ceil((last - first) / spacing)) + 1)))
    x = np.geomspace(least, most, SAMPLES * (len(times) + 2))
    terms = np.exp(-np.multiply.outer(x, times)) * np.multiply.outer(x, times)
    shares, *_ = np.linalg.lstsq(terms, np.ones(len(x)), rcond=ALIKE)
    return times, shares * times


def decays(root: DeviceArray, rule: Rule) -> Iterator[DeviceArray]:
    """For every term the g, shape (at most n,), with which the sums are those of (P g^2 Q^T)_ij^2.

    g is cut off where it is next to nothing: of later terms little but the first columns is left.

    Args:
        root: r, shape (n,), ascending. rule: times and weights for all sums of two of them.
    """
    xp = namespace(root)
    for time, weight in zip(*rule, strict=True):
        count = int(xp.sum(xp.astype(float(time) * (root - root[0]) <= FADED, xp.int64)))
        yield float(weight) ** 0.25 * xp.exp(-float(time) / 2 * root[:count])


def add_squares(total: DeviceArray, left: DeviceArray, right: DeviceArray) -> None:
    """Add the squares of the entries of left right^T."""
    product = left @ right.T
    product *= product
    total += product


def add_own_squares(total: DeviceArray, half: DeviceArray) -> None:
    """The same of half half^T, on the CPU below the diagonal only: see :func:`mirrored`."""
    if not isinstance(half, np.ndarray):
        add_squares(total, half, half)
        return
    if not half.size:  # of which BLAS complains on the terminal
        return
    # BLAS has columns, and its upper triangle is the lower one of rows.
    product = scipy.linalg.blas.dsyrk(1.0, half.T, trans=1).T
    product *= product
    total += product


def mirrored(total: DeviceArray) -> DeviceArray:
    """What :func:`add_own_squares` has summed up, as a symmetric matrix."""
    if not isinstance(total, np.ndarray):
        return total
    lower = np.tril(total)
    lower += np.tril(total, -1).T
    return lower


def range_of(root: DeviceArray) -> tuple[float, float]:
    """The least and the largest sum of two of ``root``."""
    xp = namespace(root)
    return 2 * float(xp.min(root)), 2 * float(xp.max(root))
