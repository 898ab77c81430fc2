"""The data of a conic program as solvers and CVXPY take it, and its answer.

Six DIMACS error measures say how nearly a program is solved, from the program and the answer and
from nothing that a solver reports about itself (docs/methods/solvers.md, "DIMACS errors";
Mittelmann, "An independent benchmarking of SDP and SOCP solvers", Mathematical Programming 95,
2003). A program

    minimise <c, x>  subject to  s_k = b_k + F_k x in the cone K_k, for every block k,

is the dual of that paper: its X are our multipliers z_k, which have to meet sum_k F_k^T z_k = c.
Slacks s_k are computed, and equations, of err3, do not occur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Stop
from noisedesign.conic.program import CONSTANT, Block, ConicProgram, triangle


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A solver's answer, perhaps infeasible: x, (v,), multipliers of blocks and of rows."""

    variables: Array
    blocks: tuple[Array, ...]
    rows: Array

    @property
    def finite(self) -> bool:
        return all(np.isfinite(part).all() for part in (self.variables, self.rows, *self.blocks))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The stop of a solver and the point it left, if any; build_seconds hand the program over."""

    stop: Stop
    message: str = ""
    point: Point | None = None
    iterations: int = 0
    build_seconds: float = 0.0
    solve_seconds: float = 0.0


def slack(block: Block, variables: Array) -> Array:
    """F_0 + x_1 F_1 + ..., symmetric, at x = ``variables``, shape (v,)."""
    entries, size = block.entries, block.size
    place = entries.row * size + entries.column
    weights = entries.value * np.concatenate([[1.0], variables])[entries.variable]
    lower = np.bincount(place, weights, minlength=size * size).reshape(size, size)
    return np.asarray(lower + np.tril(lower, -1).T, dtype=np.float64)


def slacks(program: ConicProgram, variables: Array) -> tuple[Array, ...]:
    """:func:`slack` of every block."""
    return tuple(slack(block, variables) for block in program.blocks)


def linear(
    block: Block, variables: int, *, at: Any, rows: int, weight: Any = 1.0
) -> tuple[Any, Array]:
    """F of a block, sparse (rows, v), and its constant, (rows,); ``at`` are rows of entries."""
    import scipy.sparse as sp

    entries = block.entries
    value = weight * entries.value
    known = entries.variable == CONSTANT
    offset = np.zeros(rows)
    np.add.at(offset, at[known], value[known])
    place = (at[~known], entries.variable[~known] - 1)
    return sp.csc_array((value[~known], place), shape=(rows, variables)), offset


def rows_of(program: ConicProgram) -> tuple[Any, Array]:
    """A and b of the linear rows b + A x >= 0."""
    rows = program.rows
    return linear(rows, program.variables, at=rows.entries.row, rows=rows.size)


def square_of(block: Block, variables: int) -> tuple[Any, Array]:
    """F and F_0 of a block with all size^2 entries of its matrix, row after row."""
    entries, size = block.entries, block.size
    i, j = entries.row, entries.column
    above_diagonal, rows = np.where(i == j, 0.0, 1.0), size * size
    lower, below = linear(block, variables, at=i * size + j, rows=rows)
    upper, above = linear(block, variables, at=j * size + i, rows=rows, weight=above_diagonal)
    return lower + upper, below + above


@dataclass(frozen=True, kw_only=True, eq=False)
class Stacked:
    """The data of s = offset - matrix x at cost <cost, x>: linear rows, then ``length(size)``
    entries of every block, of whose multipliers ``block`` makes a matrix again. The first unknowns
    are the ``variables`` of the program."""

    cost: Array
    matrix: Any
    offset: Array
    rows: int
    sizes: tuple[int, ...]
    variables: int
    length: Callable[[int], int]
    block: Callable[[int, Array], Array]

    def point(self, variables: Any, multipliers: Any) -> Point:
        """The answer of a solver."""
        ends = np.cumsum([self.rows, *map(self.length, self.sizes)])
        rows, *parts = np.split(np.asarray(multipliers, dtype=np.float64), ends)[:-1]
        return Point(
            variables=np.asarray(variables, dtype=np.float64)[: self.variables],
            blocks=tuple(map(self.block, self.sizes, parts)),
            rows=rows,
        )


def triangles(program: ConicProgram, *, upper: bool) -> Stacked:
    """Data by the upper (Clarabel) or lower (SCS) triangle, times sqrt 2 off the diagonal."""
    import scipy.sparse as sp

    parts = [rows_of(program)]
    for block in program.blocks:
        i, j = block.entries.row, block.entries.column
        weight, at = np.where(i == j, 1.0, np.sqrt(2)), _place(i, j, block.size, upper=upper)
        rows = triangle(block.size)
        parts.append(linear(block, program.variables, at=at, rows=rows, weight=weight))
    matrices, offsets = zip(*parts, strict=True)

    def whole(size: int, entries: Array) -> Array:
        i, j = np.tril_indices(size)
        values = entries[_place(i, j, size, upper=upper)]
        matrix = np.empty((size, size))
        matrix[i, j] = matrix[j, i] = np.where(i == j, values, values / np.sqrt(2))
        return matrix

    return Stacked(
        cost=program.cost,
        matrix=sp.csc_matrix(-sp.vstack(matrices)),
        offset=np.concatenate(offsets),
        rows=program.rows.size,
        sizes=program.size.blocks,
        variables=program.variables,
        length=triangle,
        block=whole,
    )


def _place(i: Any, j: Any, size: int, *, upper: bool) -> Any:
    """The place of entry (i, j), i >= j, in a triangle taken column by column."""
    if upper:
        return i * (i + 1) // 2 + j
    return j * size - j * (j - 1) // 2 + i - j


ERRORS = ("err1", "err2", "err3", "err4", "err5", "err6")

Errors = tuple[float, float, float, float, float, float]


def errors(program: ConicProgram, point: Point) -> Errors:
    """The six errors of an answer; all are 0 at an exact one, up to rounding."""
    products = np.zeros(1 + program.variables)  # <b, z>, then F^T z
    outside_dual = outside = complementarity = largest = 0.0
    found = []
    for block, z in zip(program.blocks, point.blocks, strict=True):
        i, j = block.entries.row, block.entries.column
        both = np.where(i == j, 1.0, 2.0) * z[i, j]  # triangles, of which one is stored
        found.append((block.entries, slack(block, point.variables), z, both))
    if program.rows.size:
        matrix, offset = rows_of(program)
        entries = program.rows.entries
        left = offset + matrix @ point.variables
        found.append((entries, left, point.rows, point.rows[entries.row]))
    for entries, s, z, at in found:
        products += np.bincount(
            entries.variable, weights=entries.value * at, minlength=len(products)
        )
        known = np.abs(entries.value[entries.variable == CONSTANT])
        largest = max(largest, float(known.max(initial=0.0)))
        outside = max(outside, -_least(s))
        outside_dual = max(outside_dual, -_least(z))
        complementarity += float(np.sum(s * z))
    cost, bound = float(program.cost @ point.variables), float(products[0])
    by_objective = 1 + float(np.abs(program.cost).max())
    by_values = 1 + abs(cost) + abs(bound)
    return (
        float(np.linalg.norm(products[1:] - program.cost)) / by_objective,
        outside_dual / by_objective,
        0.0,
        outside / (1 + largest),
        (cost + bound) / by_values,
        complementarity / by_values,
    )


def _least(s: Array) -> float:
    """The least entry of a vector, or the least eigenvalue of a matrix."""
    return float(s.min() if s.ndim == 1 else _linalg.eigenvalues(s)[0])
