"""Noise correlated across steps and nodes, drawn step by step from exported matrices.

Noise is causal: what is drawn for a step never needs the white noise of a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.program.noise.streams import (
    Seed,
    check_noising,
    covariance_root,
    time_noise_stream,
)


def kronecker_noise_stream(
    noising_matrix: Any, covariance: Any, *, dimension: int, seed: Seed
) -> Iterator[Array]:
    """Noise of covariance C^-1 C^-T x R, independent across the coordinates of the model.

    Memory as in :func:`noisedesign.program.noise.streams.time_noise_stream`: nothing of size nT.

    Args:
        noising_matrix: C^-1, shape (T, T), lower triangular.
        covariance: R, shape (n, n), squared noise units.
        dimension: d, coordinates of the model.
        seed: the same seed gives the same noise.

    Returns:
        An iterator over T arrays of shape (n, d), in increasing step order.

    Raises:
        InputError: C^-1 not lower triangular, R not a covariance, dimension < 1.
    """
    root = covariance_root(covariance)
    steps = time_noise_stream(noising_matrix, nodes=len(root), dimension=dimension, seed=seed)
    return (root @ noise for noise in steps)


def block_noise(noising_matrix: Any, white: Iterable[Array], *, nodes: int) -> Iterator[Array]:
    """Noise of a full design, one block row of C^-1 at a time, from given white noise.

    Step t is sum_{s <= t} (C^-1)_ts w_s with n x n blocks. White noise is taken from ``white`` as
    it is needed and kept: O(T n d) floats beside the matrix. Random white noise of n nodes is
    ``space_noise_stream(np.eye(n), ...)``.

    Args:
        noising_matrix: C^-1, shape (nT, nT), lower triangular, in time-major order.
        white: T arrays of shape (n, d).
        nodes: n.

    Returns:
        An iterator over T arrays of shape (n, d); it ends early where ``white`` does.

    Raises:
        InputError: C^-1 not lower triangular, or not of n rows a step; while iterating, a step of
            white noise that has not n rows.
    """
    noising = check_noising(noising_matrix)
    nodes = _checks.positive_int(nodes, field="nodes")
    if len(noising) % nodes:
        raise InputError(
            "noising_matrix", expected=f"a multiple of {nodes} rows", got=f"{len(noising)} rows"
        )
    return _block_noise(noising, white, nodes)


def _block_noise(noising: Array, white: Iterable[Array], nodes: int) -> Iterator[Array]:
    kept: Array | None = None
    starts = range(0, len(noising), nodes)
    for start, draw in zip(starts, white, strict=False):
        draw = _checks.matrix(draw, field="white")
        if len(draw) != nodes:
            raise InputError("white", expected=f"{nodes} rows a step", got=f"{len(draw)}")
        if kept is None:
            kept = np.empty((len(noising), draw.shape[1]))
        stop = start + nodes
        kept[start:stop] = draw
        yield noising[start:stop, :stop] @ kept[:stop]
