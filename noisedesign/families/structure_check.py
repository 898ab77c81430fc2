"""Does a stored matrix have the structure its design claims? From its arrays alone, in numpy.

The bound and the gap of a structured design are about designs of that structure, so a better
matrix without it must not pass for one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.families.decor.program import graph_laplacian
from noisedesign.families.shared_seeds.family import blocks_of, cliques_of, seed_groups
from noisedesign.program.design import Design
from noisedesign.program.problem import SpaceProblem, SpaceTimeProblem
from noisedesign.program.structure import SpaceStructure, TimeStructure


def departure(design: Design, *, noising_matrix: Array) -> float:
    """How far C, C^-1 and R are from the structure of the problem, relative to their largest entry.

    0 up to rounding where they have it, and where there is none. Of a BLT strategy: the
    singular value of the Hankel matrix of its coefficients, relative to the largest, that
    ``buffers`` exponentials do not have. Of R: also how far it is from the sum of the stored blocks
    of the cliques, where they are stored.

    Args:
        noising_matrix: C^-1 as stored, shape (T, T); not used in space.
    """
    problem = design.problem
    if isinstance(problem, SpaceProblem):
        forbidden = _in_space(design.covariance, problem.structure, problem.mixing)
        return max(forbidden, _not_of_seeds(design, problem))
    if not isinstance(problem, SpaceTimeProblem):
        return _in_time(design.strategy, noising_matrix, problem.structure)
    if design.node_covariance is None:
        return 0.0
    return max(
        _in_time(design.strategy, noising_matrix, problem.time),
        _in_space(design.covariance, problem.space, problem.mixing),
        _not_of_seeds(design, problem),
    )


def _in_time(strategy: Array, noising: Array, structure: TimeStructure) -> float:
    if structure.kind == "dense":
        return 0.0
    if structure.kind == "banded":
        assert structure.bands is not None
        return _forbidden(strategy, _below(len(strategy), structure.bands))
    uneven = float(np.abs(strategy[1:, 1:] - strategy[:-1, :-1]).max(initial=0.0))
    uneven /= float(np.abs(strategy).max())
    if structure.kind == "banded-inverse":
        assert structure.bands is not None
        return max(uneven, _forbidden(noising, _below(len(noising), structure.bands)))
    if structure.kind == "blt":
        assert structure.buffers is not None
        return max(uneven, _more_than(structure.buffers, strategy[1:, 0]))
    return uneven


def _in_space(covariance: Array, structure: SpaceStructure, mixing: Array) -> float:
    if structure.kind == "dense":
        return 0.0
    if structure.kind == "decor":
        return _not_decor(covariance, graph_laplacian(mixing))
    apart = np.ones(covariance.shape, dtype=bool)
    for clique in cliques_of(structure, mixing=mixing):
        apart[np.ix_(clique, clique)] = False
    return _forbidden(covariance, apart)


def _not_of_seeds(design: Design, problem: SpaceProblem | SpaceTimeProblem) -> float:
    """Distance of R from the sum of its blocks; 0 where there are none, as with no structure."""
    if "clique_blocks" not in design.witness:
        return 0.0
    groups = seed_groups(problem)
    made = np.zeros_like(design.covariance)
    blocks = blocks_of(groups, design.witness["clique_blocks"])
    for clique, block in zip(groups, blocks, strict=True):
        made[np.ix_(clique, clique)] += block
    return float(np.abs(made - design.covariance).max() / np.abs(design.covariance).max())


def _below(size: int, bands: int) -> NDArray[np.bool_]:
    """Entries below the first ``bands`` diagonals."""
    steps = np.arange(size)
    return np.asarray(np.subtract.outer(steps, steps) >= bands)


def _forbidden(matrix: Array, where: NDArray[np.bool_]) -> float:
    return float(np.abs(matrix[where]).max(initial=0.0) / np.abs(matrix).max())


def _more_than(buffers: int, coefficients: Array) -> float:
    """Kronecker: sums of m exponentials are the sequences whose Hankel matrix has rank m."""
    rows = (len(coefficients) + 1) // 2
    if rows <= buffers:
        return 0.0
    hankel = np.lib.stride_tricks.sliding_window_view(coefficients, rows)
    values = np.linalg.svd(hankel, compute_uv=False)
    if len(values) <= buffers or values[0] == 0:
        return 0.0
    return float(values[buffers] / values[0])


def _not_decor(covariance: Array, laplacian: Array) -> float:
    """Distance from s I + c L: both are read off the means of R over edges and over nodes."""
    edges = laplacian < 0
    shared = -float(covariance[edges].mean()) if edges.any() else 0.0
    private = float((np.diagonal(covariance) - shared * np.diagonal(laplacian)).mean())
    fitted = private * np.eye(len(covariance)) + shared * laplacian
    return float(np.abs(covariance - fitted).max() / np.abs(covariance).max())
