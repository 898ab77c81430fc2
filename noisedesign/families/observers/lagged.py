"""What nodes learn of many steps, without the messages of all of them written out.

What is sent at step t is the state x_t = W x_(t-1) + z_t + g_t of its sender. So what the noise z,
of one covariance R at every step, has to do with the messages that anyone hears is in

    C_ts = W C_(t-1)s  for s < t,    C_tt = W C_(t-1)(t-1) W^T + R,

covariances of all states, once for all observers: K_ts of one is the rows and columns of C_ts that
it hears. The other way round the multipliers of all of them are added up by rows and columns, and
carried back over the steps. That is about T^2 / 2 products of W, sparse, with a matrix each time,
however many observers there are.

Messages that were heard before tell what they add to later ones. Of the message of j at step t is
left, once that is taken off, what entered at t - l of the noise of nodes that are not heard; with N
the nodes that are heard, messages are the sums of (W^l)_NN times these at t - l.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisedesign.base.checks import Array

Indices = NDArray[np.intp]


class Run:
    """A run of T steps, of noise z = U y with U = diag(unit) and y of covariance R."""

    def __init__(self, mixing: Array, unit: Array, steps: int) -> None:
        self.unit, self.steps, self.size = unit, steps, len(mixing)
        self.mixing = scipy.sparse.csr_array(mixing)
        self.back = scipy.sparse.csr_array(mixing.T)

    def of_first(self, steps: int) -> Run:
        """Its first steps alone."""
        return Run(self.mixing.toarray(), self.unit, steps)

    @cached_property
    def powers(self) -> Array:
        """W^t, shape (T, n, n)."""
        found = [np.eye(self.size)]
        for _ in range(1, self.steps):
            found.append(np.asarray(self.mixing @ found[-1]))
        return np.array(found)

    def lags(self, heard: Indices) -> Array:
        """What a message has of the noise of each number of steps before, shape (T, m, n)."""
        return np.asarray(self.powers[:, heard] * self.unit)

    def of_new(self, heard: Indices) -> Array:
        """What messages are of what each adds to those before, shape (T m, T m): unit lower
        triangular."""
        blocks = self.powers[:, heard[:, None], heard]
        m = len(heard)
        found = np.zeros((self.steps * m, self.steps * m))
        for step in range(self.steps):
            for lag in range(step + 1):
                rows, columns = step * m, (step - lag) * m
                found[rows : rows + m, columns : columns + m] = blocks[lag]
        return found

    def covariances(self, noise: Array, heard: Sequence[Indices]) -> list[Array]:
        """K(R) of observers in groups, by whom they hear, shape (g, m), ascending; results
        (g, T m, T m)."""
        drawn = noise * np.multiply.outer(self.unit, self.unit)
        where = self._cells(heard)
        cells = np.empty((self.steps, self.steps, len(where)))
        states: list[Array] = []
        for t in range(self.steps):
            states = [np.asarray(self.mixing @ state) for state in states]
            states.append(drawn + self.mixing @ states[-1].T if states else drawn)
            for s, state in enumerate(states):
                np.take(state, where, out=cells[t, s])
        found, start = [], 0
        for nodes in heard:
            count, m = nodes.shape
            end = start + count * m * m
            part = cells[:, :, start:end].reshape(self.steps, self.steps, count, m, m)
            whole = np.empty((count, self.steps, m, self.steps, m))
            for t in range(self.steps):
                for s in range(t + 1):
                    whole[:, t, :, s] = part[t, s]
                    whole[:, s, :, t] = part[t, s].swapaxes(1, 2)
            found.append(whole.reshape(count, self.steps * m, self.steps * m))
            start = end
        return found

    def used(self, multipliers: Sequence[Array], heard: Sequence[Indices]) -> Array:
        """The sum over all of them of K*(N); N (g, T m, T m), symmetric, result (n, n)."""
        n, where = self.size, self._cells(heard)
        cells = np.concatenate(
            [
                given.reshape(len(nodes), self.steps, nodes.shape[1], self.steps, nodes.shape[1])
                .transpose(1, 3, 0, 2, 4)
                .reshape(self.steps, self.steps, -1)
                for given, nodes in zip(multipliers, heard, strict=True)
            ],
            axis=2,
        )
        total = np.zeros((n, n))
        states = [np.zeros((n, n)) for _ in range(self.steps)]
        for t in range(self.steps - 1, -1, -1):
            for s in range(t + 1):
                added = np.bincount(where, weights=cells[t, s], minlength=n * n).reshape(n, n)
                states[s] += added if s == t else 2 * added
            own = states.pop()
            total += own
            if states:
                states[-1] += np.asarray(self.back @ own.T).T
                states = [np.asarray(self.back @ state) for state in states]
        return np.asarray((total + total.T) / 2 * np.multiply.outer(self.unit, self.unit))

    def _cells(self, heard: Sequence[Indices]) -> Indices:
        """Places in a matrix of all nodes of those of every observer, one after another."""
        parts = [(nodes[:, :, None] * self.size + nodes[:, None, :]).ravel() for nodes in heard]
        return np.concatenate(parts)


def unrolled(lags: Array) -> Array:
    """What the messages of all steps have of the noise of each, shape (T, T m, n)."""
    steps, m, n = lags.shape
    found = np.zeros((steps, steps, m, n))
    for step in range(steps):
        found[step, step:] = lags[: steps - step]
    return found.reshape(steps, steps * m, n)
