"""Starts of a solve: multipliers, a design, or the nearest of those found before.

Any multipliers will do as a start, so the answer means the same; near ones save evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError, describe
from noisedesign.certify.program import DualPoint, Program
from noisedesign.design.design import Design
from noisedesign.families.disjoint.program import dual_of, program_of
from noisedesign.families.family import family_of
from noisedesign.problem.problem import Problem

NEAR = 0.25  # relative distance of workloads up to which multipliers of one help the other
MOST = 8  # problems to remember: neighbours in a grid are a few rows apart
MOST_BYTES = 2**28  # bytes of all matrices of the problems remembered


def start_of(start: DualPoint | Design | Start | None) -> Start | None:
    """Read what to start from as multipliers; InputError for things without them."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, DualPoint):
        return Start(dual=start)
    if not isinstance(start, Design):
        raise InputError("start", expected="a Design or a DualPoint", got=describe(start))
    structured, dual = family_of(start.problem).structured, dual_of(start.proof)
    if structured or dual is None:  # no other family has such multipliers
        expected = "a design with multipliers of its own, without structure or observers"
        got = "a structured one" if dual is not None or start.proof else "one without"
        raise InputError("start", expected=expected, got=got)
    return Start(dual=dual, program=program_of(start.problem))


class Neighbours:
    """The last solved problems with multipliers well inside of their cone, to start others from."""

    def __init__(self) -> None:
        self._kept: tuple[Start, ...] = ()

    def add(self, design: Design) -> None:
        """Remember the multipliers of ``design``, where it has such."""
        program, dual = _program(design.problem), dual_of(design.proof)
        if program is None or dual is None:
            return
        lowest = np.linalg.eigvalsh(dual.blocks)[:, 0]
        if not (lowest >= INSIDE * dual.blocks[:, 0, 0]).all():
            return
        kept = (*self._kept, Start(dual=dual, program=program))[-MOST:]
        while sum(start.size for start in kept) > MOST_BYTES:
            kept = kept[1:]
        self._kept = kept  # in one step: a worker may have several threads

    def nearest(self, problem: Problem) -> Start | None:
        """The nearest problem of the same size and participation that is NEAR, or None."""
        program = _program(problem)
        if program is None:
            return None
        distances = [(distance(start, program), start) for start in self._kept]
        far, start = min(distances, key=lambda pair: pair[0], default=(np.inf, None))
        return start if far <= NEAR else None


def distance(start: Start, program: Program) -> float:
    """Relative Frobenius distance of workloads at unit budgets; infinite for other sizes."""
    known = start.program
    if known is None or known.participation != program.participation:
        return float("inf")
    here, there = program.normalized().gram, known.normalized().gram
    scale = np.trace(here) / np.trace(there)
    return float(np.linalg.norm(here - scale * there) / np.linalg.norm(here))


def _program(problem: Problem) -> Program | None:
    """The program of a problem whose solver can start from multipliers."""
    if family_of(problem).structured:
        return None
    program = program_of(problem)
    return None if program.limited else program


INSIDE = 1e-2  # least relative multiplier and eigenvalue: gradients blow up at the boundary


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """Multipliers, and the ``program`` that they are of, where that is known."""

    dual: DualPoint
    program: Program | None = None

    @property
    def size(self) -> int:
        """Bytes of the matrices of the program."""
        found = (self.program.gram, self.program.exact_factor) if self.program else ()
        return sum(a.nbytes for a in found if a is not None)

    def blocks(self, program: Program) -> Array:
        """Multipliers U to begin with, (patterns, epochs, epochs), of the normalised ``program``;
        positive definite with constant diagonals. Where their own program is known, they are scaled
        by what the workloads and budgets say of single patterns. InputError for another shape, or
        ones that are not positive semidefinite."""
        found = _checked(self.dual.blocks, program)
        if self.program is None:
            return _inside(found * program.budget[:, None, None])
        scale = _mean_roots(program) / _mean_roots(self.program)
        return _inside(found * (self.program.budget * scale)[:, None, None])


def _checked(blocks: Array, program: Program) -> Array:
    """Symmetric blocks with constant diagonals, all of them positive semidefinite, or nearly."""
    epochs, patterns = program.participation.epochs, program.participation.separation
    shape = (patterns, epochs, epochs)
    blocks = _checks.array_of_shape(blocks, field="start", shape=shape)
    blocks = (blocks + blocks.transpose(0, 2, 1)) / 2
    diagonal = np.einsum("jii->ji", blocks)
    diagonal[:] = diagonal.max(axis=1, keepdims=True)
    p, lowest = blocks[:, 0, 0], np.linalg.eigvalsh(blocks)[:, 0]
    # Conic solvers stop a little outside of the cone.
    if not p.max() > 0 or (lowest < -1e-3 * np.maximum(p, p.mean())).any():
        expected = "positive semidefinite multipliers"
        remedy = "Start from a design that solve returned."
        raise InputError("start", expected=expected, got="others", remedy=remedy)
    return np.asarray(blocks)


def _inside(blocks: Array) -> Array:
    """The blocks drawn towards their diagonals as far as it takes to be INSIDE the cone."""
    p = np.maximum(blocks[:, 0, 0], INSIDE * blocks[:, 0, 0].mean())
    np.einsum("jii->ji", blocks)[:] = p[:, None]
    lowest = np.linalg.eigvalsh(blocks)[:, 0] / p
    kept = (1 - INSIDE) / np.maximum(1 - lowest, 1 - INSIDE)
    drawn = kept[:, None, None] * blocks
    np.einsum("jii->ji", drawn)[:] = p[:, None]
    return np.asarray(drawn / p.mean())


def _mean_roots(program: Program) -> Array:
    """Mean of diag(H)^1/2 of every pattern, of the normalised program; positive."""
    roots = np.sqrt(np.diagonal(program.gram) / program.coordinate_budget)
    means = roots[program.participation.patterns].mean(axis=1)
    return np.asarray(np.maximum(means, settings.EPS * means.max()))
