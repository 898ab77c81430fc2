"""tr(H X^-1) and its gradient for a banded C, X = C^T C, in O(T p^2) where H has a short memory.

H = L^T L with N = L^-1 of r + 1 diagonals: prefix sums have r = 1, momentum adds one, weights of
the steps none. Then the error is that of a banded B = C N, p + r diagonals, against the identity:

    tr(H X^-1)  =  || B^-1 ||_F^2  =  total variance of y,  B y = z,  z white.

With steps in blocks, y is a Markov chain: its covariances follow forwards, their prices backwards,
and every entry of the gradient is a product of the two. All terms are positive, nothing cancels."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array

FEWEST_ROWS = 16  # of a block: below it calls cost more than arithmetic
LONGEST_MEMORY = 8  # largest r looked for: rates, weights, momentum, prefix sums have 2 together


def inverse_factor(factor: Array, *, tolerance: float) -> Array | None:
    """N = L^-1 by columns, (T, r + 1); None for r > LONGEST_MEMORY or |L N - I| > ``tolerance``."""
    if np.triu(factor, 1).any():
        return None
    horizon = len(factor)
    # A diagonal block of L^-1 is the inverse of that of L. Those beyond the end are padded, and one
    # step more than the longest memory tells whether it is longer.
    span = min(LONGEST_MEMORY + 2, horizon)
    padded = np.eye(horizon + span)
    padded[:horizon, :horizon] = factor
    windows = np.lib.stride_tricks.sliding_window_view(padded, (span, span))
    steps = np.arange(horizon)
    columns = np.linalg.inv(windows[steps, steps])[:, :, 0]
    size = np.abs(columns).max(axis=0)
    diagonals = 1 + int(np.flatnonzero(size > tolerance / horizon * size[0])[-1])
    if diagonals > LONGEST_MEMORY + 1:
        return None
    found = np.array(columns[:, :diagonals])
    left = factor * found[:, 0]  # L N - I
    for d in range(1, diagonals):
        left[:, :-d] += factor[:, d:] * found[:-d, d]
    left[np.diag_indices(horizon)] -= 1
    return found if np.linalg.norm(left) <= tolerance else None


class RecursiveError:
    """tr(H C^-1 C^-T) and its derivative by the entries of C, for N = ``inverse`` by its columns,
    shape (T, r + 1); called as :class:`noisedesign.base.banded_matrices.BandedError`."""

    def __init__(self, inverse: Array, bands: int) -> None:
        self.inverse, self.bands = inverse, bands
        self.horizon, self.memory = len(inverse), inverse.shape[1] - 1
        self.rows = max(FEWEST_ROWS, bands + self.memory - 1)
        self.blocks = -(-self.horizon // self.rows)
        self.inside = np.arange(self.horizon)[:, None] + np.arange(bands) < self.horizon

    @staticmethod
    def pays(inverse: Array, bands: int) -> bool:
        """Whether there are blocks enough to be quicker than O(T^2 p): measured, four."""
        horizon, diagonals = inverse.shape
        return bool(4 * max(FEWEST_ROWS, bands + diagonals - 2) <= horizon)

    def __call__(self, columns: Array) -> tuple[float, Array]:
        """The error, and its gradient by ``columns``, both of shape (T, p)."""
        columns = np.where(self.inside, columns, 0.0)
        product = np.zeros((self.horizon, self.bands + self.memory))  # B by its columns
        for e in range(self.memory + 1):
            rows = self.horizon - e
            product[:rows, e : e + self.bands] += columns[e:] * self.inverse[:rows, e, None]
        inner, outer = self._in_blocks(product)
        noise = np.asarray(np.linalg.inv(inner), dtype=np.float64)
        carried = -(noise @ outer)  # y_k = noise_k z_k + carried_k y_{k-1}
        covariance = noise @ noise.transpose(0, 2, 1)
        across = np.zeros_like(carried)  # of y_k and y_{k-1}
        for k in range(1, self.blocks):
            np.matmul(carried[k], covariance[k - 1], out=across[k])
            covariance[k] += across[k] @ carried[k].T
        price = np.empty_like(covariance)
        price[:] = np.eye(self.rows)
        for k in range(self.blocks - 1, 0, -1):
            price[k - 1] += carried[k].T @ (price[k] @ carried[k])
        diagonals = np.diagonal(covariance, axis1=1, axis2=2).ravel()
        weights = -2 * (noise.transpose(0, 2, 1) @ price)
        by_band = self._from_blocks(weights @ covariance, weights @ across)
        gradient = np.zeros((self.horizon, self.bands))  # by the columns of C
        for e in range(self.memory + 1):
            rows = self.horizon - e
            gradient[e:] += by_band[:rows, e : e + self.bands] * self.inverse[:rows, e, None]
        return float(diagonals[: self.horizon].sum()), gradient

    def _in_blocks(self, band: Array) -> tuple[Array, Array]:
        """Blocks of B on and below its diagonal; beyond the horizon steps are white."""
        n, b = self.blocks, self.rows
        padded = np.zeros((n * b, band.shape[1]))
        padded[: self.horizon], padded[self.horizon :, 0] = band, 1.0
        both = np.zeros((n, b, 2 * b))  # by block, column, and row from the block's first
        for d, entries in enumerate(padded.T):
            both.reshape(n, -1)[:, d :: 2 * b + 1][:, :b] = entries.reshape(n, b)
        inner, outer = both[:, :, :b].transpose(0, 2, 1), np.zeros((n, b, b))
        outer[1:] = both[:-1, :, b:].transpose(0, 2, 1)
        return inner, outer

    def _from_blocks(self, inner: Array, outer: Array) -> Array:
        """The band of blocks, by its columns, shape (T, p + r)."""
        n, b = self.blocks, self.rows
        both = np.zeros((n, b, 2 * b))
        both[:, :, :b] = inner.transpose(0, 2, 1)
        both[:-1, :, b:] = outer[1:].transpose(0, 2, 1)
        band = np.empty((n * b, self.bands + self.memory))
        for d in range(band.shape[1]):
            band[:, d] = both.reshape(n, -1)[:, d :: 2 * b + 1][:, :b].ravel()
        return band[: self.horizon]
