"""Where a solve begins: with multipliers of a problem like it, moved to this one.

Any multipliers will do as a start, so the answer means the same; near ones save evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.program.program import DualPoint, Program

FIELD = "start"

INSIDE = 1e-2
"""Least multiplier that a solve starts from, relative to the mean one, and least eigenvalue of a
block, relative to its diagonal. From the boundary of the cone the way to another optimum is long:
gradients are without bound there."""

NEARLY_POSITIVE = 1e-3
"""How negative an eigenvalue may be, relative to the diagonal of its block: conic solvers stop a
little outside of the cone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """Multipliers, and the ``program`` that they are of, where that is known."""

    dual: DualPoint
    program: Program | None = None

    def blocks(self, program: Program) -> Array:
        """Multipliers U to begin with, shape (patterns, epochs, epochs), of the normalised
        ``program``: positive definite, with constant diagonals.

        Where it is known what they are the multipliers of, they are scaled by what the workloads
        and budgets say of single patterns, which is what a solve without a start begins with.

        Raises:
            InputError: naming ``start``: another shape, not float64, not finite, not positive
                semidefinite.
        """
        found = _checked(self.dual.blocks, program)
        if self.program is None:
            return _inside(found * program.budget[:, None, None])
        scale = _mean_roots(program) / _mean_roots(self.program)
        return _inside(found * (self.program.budget * scale)[:, None, None])


def _checked(blocks: Array, program: Program) -> Array:
    """Symmetric blocks with constant diagonals, all of them positive semidefinite, or nearly."""
    epochs, patterns = program.participation.epochs, program.participation.separation
    shape = (patterns, epochs, epochs)
    blocks = _checks.array_of_shape(blocks, field=FIELD, shape=shape)
    blocks = (blocks + blocks.transpose(0, 2, 1)) / 2
    diagonal = np.einsum("jii->ji", blocks)
    diagonal[:] = diagonal.max(axis=1, keepdims=True)
    p, lowest = blocks[:, 0, 0], np.linalg.eigvalsh(blocks)[:, 0]
    if not p.max() > 0 or (lowest < -NEARLY_POSITIVE * np.maximum(p, p.mean())).any():
        raise InputError(
            FIELD,
            expected="positive semidefinite multipliers",
            got="others",
            remedy="Start from a design that solve returned.",
        )
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
