"""White noise, and noise of dense matrices, drawn as it is needed in a bounded working set.

For simulation: Philox, which draws here, is no cryptographic generator, and one seed gives the
noise of all nodes. White noise of step s comes from a generator keyed by (seed, s), so it can be
drawn again instead of being kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError

WORKING_SET_FLOATS = 1 << 20  # kept of draws and steps ahead: 8 MB, for products in a cache

Seed = int | np.random.SeedSequence


def seed_sequence(seed: Seed, *path: int) -> np.random.SeedSequence:
    """The seed itself, or its descendant named by ``path``: independent for different paths."""
    if isinstance(seed, np.random.SeedSequence):
        return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *path))
    return np.random.SeedSequence(
        _checks.positive_int(seed, field="seed", minimum=0), spawn_key=path
    )


def _white(root: np.random.SeedSequence, step: int, out: Array) -> Array:
    """Standard normal draws of one step, the same at every call."""
    generator = np.random.Generator(np.random.Philox(seed_sequence(root, step)))
    return generator.standard_normal(out=out)


def columns_per_block(*, floats_per_column: int, total: int) -> int:
    """Choose how many of ``total`` iid columns to simulate together, at least one."""
    return max(1, min(total, WORKING_SET_FLOATS // floats_per_column))


def check_noising(noising_matrix: Any) -> Array:
    """Return a lower triangular C^-1, shape (T, T), or raise InputError where it is not causal."""
    noising = _checks.matrix(noising_matrix, field="noising_matrix", square=True)
    above = np.abs(np.triu(noising, 1))
    if above.max() > settings.rank_tolerance(len(noising)) * np.abs(noising).max():
        s, t = (int(i) for i in np.unravel_index(above.argmax(), above.shape))
        expected = "a lower triangular matrix (noise of a step from draws up to that step)"
        got = f"entry ({s}, {t}) = {noising[s, t]:.6g}"
        raise InputError("noising_matrix", expected=expected, got=got)
    return np.tril(noising)


def covariance_root(covariance: Any) -> Array:
    """F, shape (n, n), with F F^T = R: the Cholesky factor, or V diag(sqrt) where R is singular."""
    r = _checks.symmetric_matrix(
        covariance, field="covariance", tolerance=settings.SYMMETRY_TOLERANCE
    )
    with contextlib.suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.cholesky(r), dtype=np.float64)
    r = _checks.semidefinite_matrix(r, field="covariance", nonzero=True)
    values, vectors = np.linalg.eigh(r)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def space_noise(
    root: Any, *, dimension: int, steps: int, root_seed: np.random.SeedSequence
) -> Iterator[Array]:
    """Noise N(0, F F^T) across nodes, independent across steps and coordinates: arrays (n, d)."""
    for step in range(steps):
        yield root @ _white(root_seed, step, np.empty((root.shape[1], dimension)))


def time_noise_stream(
    noising_matrix: Any, *, nodes: int, dimension: int, seed: Seed
) -> Iterator[Array]:
    """Noise correlated across steps by C^-1, (T, T), independent across nodes: T arrays (n, d), in
    O(T^2 + n d) floats and two working sets. It ends with the horizon: what follows was never
    accounted for."""
    noising = check_noising(noising_matrix)
    nodes = _checks.positive_int(nodes, field="nodes")
    dimension = _checks.positive_int(dimension, field="dimension")
    root, horizon, width = seed_sequence(seed), len(noising), nodes * dimension

    def drawn() -> Iterator[Array]:
        kept = np.empty((min(horizon, WORKING_SET_FLOATS // width), width))
        # Steps prepared together, so that correlating them is one matrix product.
        ahead = max(1, min(32, WORKING_SET_FLOATS // width))
        scratch = np.empty(width)
        for start in range(0, horizon, ahead):
            stop = min(start + ahead, horizon)
            held = min(stop, len(kept))
            for step in range(start, held):
                _white(root, step, kept[step])
            panel = noising[start:stop, :held] @ kept[:held]
            for step in range(held, stop):
                _white(root, step, scratch)
                for t in range(max(step, start), stop):
                    panel[t - start] += noising[t, step] * scratch
            for noise in panel:
                yield noise.reshape(nodes, dimension)

    return drawn()


def block_noise(noising_matrix: Any, white: Iterable[Array], *, nodes: int) -> Iterator[Array]:
    """Noise of a full C^-1, (nT, nT), of white noise: at most T arrays (n, d)."""
    noising = check_noising(noising_matrix)
    nodes = _checks.positive_int(nodes, field="nodes")
    if len(noising) % nodes:
        expected = f"a multiple of {nodes} rows"
        raise InputError("noising_matrix", expected=expected, got=f"{len(noising)} rows")

    def rows() -> Iterator[Array]:
        kept: Array = np.empty(0)
        for start, draw in zip(range(0, len(noising), nodes), white, strict=False):
            draw = _checks.matrix(draw, field="white")
            if len(draw) != nodes:
                raise InputError("white", expected=f"{nodes} rows a step", got=f"{len(draw)}")
            kept, stop = kept if start else np.empty((len(noising), draw.shape[1])), start + nodes
            kept[start:stop] = draw
            yield noising[start:stop, :stop] @ kept[:stop]

    return rows()
