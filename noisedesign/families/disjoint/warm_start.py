"""What a solve may start from: multipliers, a design, or the nearest of those found before."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import InputError, describe
from noisedesign.families.disjoint.program import dual_of, program_of
from noisedesign.families.disjoint.start import FIELD, INSIDE, Start
from noisedesign.program.design import Design
from noisedesign.program.family import family_of
from noisedesign.program.problem import Problem
from noisedesign.program.program import DualPoint, Program

NEAR = 0.25
"""Relative distance of two workloads up to which the multipliers of one are a better start for the
other than none. In sweeps over budgets, weights, edges and seeds, starts from up to here cost no
evaluation and saved up to four of three to eight; those from beyond a half cost one."""

MOST = 8
"""Problems to remember: neighbours in a grid are a few rows apart."""

MOST_BYTES = 2**28
"""Of all matrices of the problems remembered."""


def start_of(start: DualPoint | Design | Start | None) -> Start | None:
    """What to start from, as multipliers with what is known of them.

    Raises:
        InputError: naming ``start``: something else; a design without multipliers, or with a
            structure, against observers or of space-time, whose multipliers are others.
    """
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, DualPoint):
        return Start(dual=start)
    if not isinstance(start, Design):
        raise InputError(FIELD, expected="a Design or a DualPoint", got=describe(start))
    ours, dual = _ours(start.problem), dual_of(start.proof)
    if not ours or dual is None:
        raise InputError(
            FIELD,
            expected="a design with multipliers of its own, without structure or observers",
            got="a structured one" if dual is not None or start.proof else "one without",
        )
    return Start(dual=dual, program=program_of(start.problem))


class Neighbours:
    """Solved problems, the last MOST of them, and which is nearest to another one.

    Only those that have multipliers well inside of their cone, from which others can be reached.
    """

    def __init__(self) -> None:
        self._kept: tuple[Start, ...] = ()

    def add(self, design: Design) -> None:
        """Remember the multipliers of ``design``, where it has such."""
        program, dual = _program(design.problem), dual_of(design.proof)
        if program is None or dual is None or not _inner(dual):
            return
        kept = (*self._kept, Start(dual=dual, program=program))[-MOST:]
        while sum(_bytes(start) for start in kept) > MOST_BYTES:
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
    """Relative distance in Frobenius norm of two workloads at unit budgets, up to scale, which
    changes no design; infinite for another size or participation."""
    known = start.program
    if known is None or known.participation != program.participation:
        return float("inf")
    here, there = program.normalized().gram, known.normalized().gram
    scale = np.trace(here) / np.trace(there)
    return float(np.linalg.norm(here - scale * there) / np.linalg.norm(here))


def _ours(problem: Problem) -> bool:
    """Whether the native solver of (P) takes a problem: no other family has such multipliers."""
    return family_of(problem).name == "disjoint"


def _program(problem: Problem) -> Program | None:
    """The program of a problem whose solver can start from multipliers."""
    if not _ours(problem):
        return None
    program = program_of(problem)
    return None if program.limited else program


def _inner(dual: DualPoint) -> bool:
    lowest = np.linalg.eigvalsh(dual.blocks)[:, 0]
    return bool((lowest >= INSIDE * dual.blocks[:, 0, 0]).all())


def _bytes(start: Start) -> int:
    assert start.program is not None
    factor = start.program.exact_factor
    return int(start.program.gram.nbytes + (0 if factor is None else factor.nbytes))
