"""A linear program over matrix inequalities in sparse entries: what a file of any format holds.

    minimise  c^T x   over x in R^v
    subject to  F_0 + x_1 F_1 + ... + x_v F_v  >=  0   for every block, positive semidefinite,
                b + A x  >=  0                          row by row.

This is the problem SDPA calls primal, that of the PSDCON of the Conic Benchmark Format, and an
affine conic constraint of MOSEK. Equalities do not occur: an entry that has to vanish is no
variable. Variables count from 1, and number 0 stands for the constant, as in SDPA's F_0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array, InputError

Numbers = NDArray[np.intp]

CONSTANT = 0  # the number of F_0 and b among the variables
ABSENT = -1  # the number, in place of a variable, of an entry that is zero in every feasible x

MAX_ENTRIES = 10_000_000  # most coefficients: 250 MB of text, far beyond interior-point methods


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """Coefficients: ``variable`` has ``value`` at (``row``, ``column``), arrays (k,), all from 0;
    of symmetric matrices the lower triangle, of linear rows the diagonal. They are ordered by
    variable, row and column, none twice."""

    variable: Numbers
    row: Numbers
    column: Numbers
    value: Array

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """A positive semidefinite block of ``size`` rows, or that many rows b + A x >= 0."""

    size: int
    entries: Entries


@dataclass(frozen=True, kw_only=True)
class Group:
    """The variables ``first`` to ``last``, counted from 1, and which unknowns they are."""

    name: str
    first: int
    last: int
    meaning: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ConicProgram:
    """A program as in the module. ``cost`` is c, shape (v,); ``rows`` may have size 0.

    Facts help solvers: unknowns and multipliers are ``balanced`` where they are of the same size; a
    bound is ``flat`` where errors of multipliers count in the second order, so that a certified gap
    goes with the square of the tolerance; an answer is made feasible at ``margin`` times its
    errors. Where ``penalty`` is positive, no multiplier of a block at an optimum has a larger
    eigenvalue, and solvers get the blocks as penalties (:mod:`noisedesign.conic.nuclear`)."""

    cost: Array
    blocks: tuple[Block, ...]
    rows: Block
    groups: tuple[Group, ...] = ()
    name: str = ""
    formulation: str = ""
    remarks: tuple[str, ...] = ()
    balanced: bool = False
    flat: bool = False
    margin: float = 1.0
    penalty: float = 0.0

    @property
    def variables(self) -> int:
        """v, the number of variables."""
        return len(self.cost)

    @property
    def entries(self) -> int:
        """Number of coefficients of blocks and rows, constants counted."""
        return len(self.rows.entries) + sum(len(block.entries) for block in self.blocks)

    @property
    def size(self) -> ModelSize:
        return ModelSize(variables=self.variables, blocks=tuple(b.size for b in self.blocks))


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """``variables`` counts unknowns; ``blocks`` holds the rows of every matrix inequality."""

    variables: int
    blocks: tuple[int, ...]

    @property
    def entries(self) -> int:
        """Entries of all blocks, one of each pair."""
        return sum(map(triangle, self.blocks))

    @property
    def entry_pairs(self) -> int:
        """Pairs of entries of one block: what interior points couple with each other."""
        return sum(triangle(rows) ** 2 for rows in self.blocks)


def require_size(entries: int, *, of: str) -> None:
    """Refuse a program of more than MAX_ENTRIES coefficients before any of it is built."""
    if entries > MAX_ENTRIES:
        expected = f"a model of at most {MAX_ENTRIES:,} coefficients"
        remedy = "Export a smaller problem of the same kind; `solve` needs no such model."
        raise InputError("problem", expected=expected, got=f"{entries:,} ({of})", remedy=remedy)


def triangle(size: int) -> int:
    """Entries of a symmetric matrix, one of each pair."""
    return size * (size + 1) // 2


class Assembly:
    """A program under construction: variables are named, blocks and rows put together from pieces,
    (variables, rows, columns, values), arrays that broadcast, of the lower triangle."""

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._cost: list[Array] = []
        self._blocks: list[Block] = []
        self._rows: list[Piece] = []
        self._row_count = 0
        self._count = 0

    def vector(self, name: str, size: int, *, cost: Array | None = None, meaning: str) -> Numbers:
        """New variables, their numbers of shape (size,)."""
        first = self._count + 1
        self._count += size
        self._cost.append(np.zeros(size) if cost is None else np.asarray(cost, dtype=np.float64))
        self._groups.append(Group(name=name, first=first, last=self._count, meaning=meaning))
        return np.arange(first, first + size, dtype=np.intp)

    def symmetric(
        self,
        name: str,
        size: int,
        *,
        cost: Array | None = None,
        free: NDArray[np.bool_] | None = None,
        meaning: str,
    ) -> Numbers:
        """Add a symmetric matrix at cost <cost, .>, zero but where ``free``; return its numbers."""
        i, j = np.nonzero(np.triu(np.ones((size, size), dtype=bool) if free is None else free))
        price = None if cost is None else np.where(i == j, 1.0, 2.0) * cost[i, j]
        numbers = self.vector(name, len(i), cost=price, meaning=meaning)
        found = np.full((size, size), ABSENT, dtype=np.intp)
        found[i, j] = found[j, i] = numbers
        return found

    def block(self, size: int, pieces: Iterable[Piece]) -> None:
        """Require that the symmetric matrix of these pieces is positive semidefinite."""
        self._blocks.append(Block(size=size, entries=_sorted(pieces)))

    def at_least_zero(self, count: int, pieces: Iterable[Piece]) -> None:
        """Require ``count`` rows b + A x >= 0; the rows of the pieces count from 0."""
        first = self._row_count
        self._rows += [(v, row + first, row + first, value) for v, row, _, value in pieces]
        self._row_count += count

    def finished(self, **facts: Any) -> ConicProgram:
        """Return the program; ``facts`` are further fields of :class:`ConicProgram`."""
        return ConicProgram(
            cost=np.concatenate(self._cost),
            blocks=tuple(self._blocks),
            rows=Block(size=self._row_count, entries=_sorted(self._rows)),
            groups=tuple(self._groups),
            **facts,
        )


Piece = tuple[Numbers | int, Numbers | int, Numbers | int, Array | float]
"""(variables, rows, columns, values), see :class:`Assembly`."""


def lower_triangle(numbers: Numbers, *, at: int = 0) -> Piece:
    """A symmetric matrix of variables as the diagonal block that begins at row ``at``."""
    i, j = np.nonzero(np.tril(numbers != ABSENT))
    return numbers[i, j], i + at, j + at, 1.0


def constant(matrix: Array, *, row: int = 0, column: int = 0) -> Piece:
    """A matrix of numbers whose first entry goes to (row, column); its zeros are left out."""
    i, j = np.nonzero(matrix)
    return CONSTANT, i + row, j + column, matrix[i, j]


def on_diagonal(numbers: Numbers, value: Array | float = 1.0) -> Piece:
    """Variables on the diagonal or, in linear rows, one in each row."""
    at = np.arange(len(numbers))
    return numbers, at, at, value


def _sorted(pieces: Iterable[Piece]) -> Entries:
    none = np.zeros(0, dtype=np.intp)
    pieces = [(none, none, none, np.zeros(0)), *pieces]
    spread = [[part.ravel() for part in np.broadcast_arrays(*piece)] for piece in pieces]
    variable, row, column, value = (np.concatenate(part) for part in zip(*spread, strict=True))
    kept = np.flatnonzero(value != 0)
    order = kept[np.lexsort((column[kept], row[kept], variable[kept]))]
    return Entries(
        variable=variable[order].astype(np.intp),
        row=row[order].astype(np.intp),
        column=column[order].astype(np.intp),
        value=value[order].astype(np.float64),
    )


def positive(assembly: Assembly, size: int, pieces: list[Piece]) -> None:
    """A positive semidefinite matrix, which of one entry is a linear row."""
    if size == 1:
        assembly.at_least_zero(1, pieces)
    else:
        assembly.block(size, pieces)


def moved(piece: Piece, to: Numbers) -> Piece:
    """Rows and columns of a piece, renumbered."""
    variable, row, column, value = piece
    return variable, to[row], to[column], value


def listed(numbers: tuple[int, ...]) -> str:
    """Write a dozen of the numbers out."""
    shown = ", ".join(map(str, numbers[:12]))
    return f"{shown}, ..." if len(numbers) > 12 else shown
