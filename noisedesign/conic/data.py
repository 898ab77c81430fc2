"""The data of a conic program as solvers and CVXPY take it, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Stop
from noisedesign.conic.program import CONSTANT, Block, ConicProgram, triangle


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """What a solver found: x, shape (v,), the multipliers of the blocks, symmetric matrices, and
    those of the linear rows, none of it necessarily feasible."""

    variables: Array
    blocks: tuple[Array, ...]
    rows: Array

    @property
    def finite(self) -> bool:
        return all(np.isfinite(part).all() for part in (self.variables, self.rows, *self.blocks))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a solver stopped, and the point it left, if any.

    ``build_seconds`` are those of handing the program over, ``solve_seconds`` the solver's.
    """

    stop: Stop
    message: str = ""
    point: Point | None = None
    iterations: int = 0
    build_seconds: float = 0.0
    solve_seconds: float = 0.0


def slack(block: Block, variables: Array) -> Array:
    """F_0 + x_1 F_1 + ..., symmetric, at x = ``variables``, shape (v,)."""
    entries, size = block.entries, block.size
    lower = np.bincount(
        entries.row * size + entries.column,
        weights=entries.value * np.concatenate([[1.0], variables])[entries.variable],
        minlength=size * size,
    ).reshape(size, size)
    return np.asarray(lower + np.tril(lower, -1).T, dtype=np.float64)


def slacks(program: ConicProgram, variables: Array) -> tuple[Array, ...]:
    """:func:`slack` of every block."""
    return tuple(slack(block, variables) for block in program.blocks)


def linear(
    block: Block, variables: int, *, at: Any, rows: int, weight: Any = 1.0
) -> tuple[Any, Array]:
    """F of a block as an array, shape (rows, v), sparse, and its constant, (rows,).

    ``at`` is the row of every coefficient and ``weight`` what it is multiplied by.
    """
    import scipy.sparse as sp

    entries = block.entries
    value = weight * entries.value
    known = entries.variable == CONSTANT
    offset = np.zeros(rows)
    np.add.at(offset, at[known], value[known])
    shape = (rows, variables)
    coefficients = sp.csc_array(
        (value[~known], (at[~known], entries.variable[~known] - 1)), shape=shape
    )
    return coefficients, offset


def rows_of(program: ConicProgram) -> tuple[Any, Array]:
    """A and b of the linear rows b + A x >= 0."""
    rows = program.rows
    return linear(rows, program.variables, at=rows.entries.row, rows=rows.size)


def square_of(block: Block, variables: int) -> tuple[Any, Array]:
    """F and F_0 of a block with all size^2 entries of its matrix, row after row."""
    entries, size = block.entries, block.size
    i, j = entries.row, entries.column
    lower, below = linear(block, variables, at=i * size + j, rows=size * size)
    upper, above = linear(
        block, variables, at=j * size + i, rows=size * size, weight=np.where(i == j, 0.0, 1.0)
    )
    return lower + upper, below + above


@dataclass(frozen=True, kw_only=True, eq=False)
class Triangles:
    """``matrix`` and ``offset`` of s = offset - matrix x: linear rows, then the entries of one
    triangle of every block, those off the diagonal times sqrt 2, which keeps inner products."""

    matrix: Any
    offset: Array
    rows: int
    sizes: tuple[int, ...]
    upper: bool

    def point(self, variables: Any, multipliers: Any) -> Point:
        """The answer of a solver, its multipliers as matrices again."""
        multipliers = np.asarray(multipliers, dtype=np.float64)
        at, blocks = self.rows, []
        for size in self.sizes:
            i, j = np.tril_indices(size)
            values = multipliers[at + _place(i, j, size, upper=self.upper)]
            matrix = np.empty((size, size))
            matrix[i, j] = matrix[j, i] = np.where(i == j, values, values / np.sqrt(2))
            blocks.append(matrix)
            at += triangle(size)
        return Point(
            variables=np.asarray(variables, dtype=np.float64),
            blocks=tuple(blocks),
            rows=multipliers[: self.rows],
        )


def triangles(program: ConicProgram, *, upper: bool) -> Triangles:
    """Data for solvers that take the upper (Clarabel) or lower (SCS) triangle by columns."""
    import scipy.sparse as sp

    matrix, offset = rows_of(program)
    matrices, offsets = [matrix], [offset]
    for block in program.blocks:
        i, j = block.entries.row, block.entries.column
        matrix, offset = linear(
            block,
            program.variables,
            at=_place(i, j, block.size, upper=upper),
            rows=triangle(block.size),
            weight=np.where(i == j, 1.0, np.sqrt(2)),
        )
        matrices.append(matrix)
        offsets.append(offset)
    return Triangles(
        matrix=sp.csc_matrix(-sp.vstack(matrices)),
        offset=np.concatenate(offsets),
        rows=program.rows.size,
        sizes=tuple(block.size for block in program.blocks),
        upper=upper,
    )


def _place(i: Any, j: Any, size: int, *, upper: bool) -> Any:
    """Where entry (i, j), i >= j, is in a triangle taken column by column."""
    if upper:
        return i * (i + 1) // 2 + j
    return j * size - j * (j - 1) // 2 + i - j
