"""Matrix inequalities as penalties, for SCS built with spectral cones: no semidefinite cone at all.

Of a symmetric S the nuclear norm is |S|_* = tr S + 2 tr S_-, S_- its negative part. So

    minimise  <c, x>  subject to  S_k(x) >= 0

has the optimum of

    minimise  <c, x> + p/2 sum_k (t_k - tr S_k(x))  subject to  |S_k(x)|_* <= t_k

as soon as p is no less than the largest eigenvalue of a multiplier of any block at an optimum (an
exact penalty: Nesterov, "Lectures on convex optimization", 2018, section 2.3). The multiplier of a
cone is a pair (p/2, Y), |Y|_2 <= p/2, and Z = Y + p/2 I is that of S_k(x) >= 0: between 0 and p I,
with the same equations. Unlike S >= 0 the penalty leaves the cone an interior.

The cone is {(t, X): |X|_* <= t}, with X column by column; SCS has it from 3.2.8 on where it is
compiled with -Duse_spectral_cones=true, which its wheels are not.
Source: Cederberg and Boyd (2025), "Projections onto spectral matrix cones"."""

from __future__ import annotations

from functools import cache

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.conic.data import Stacked, rows_of, square_of
from noisedesign.conic.program import ConicProgram

NUCLEAR = "nuclear"  # the formulation that asks for it

BUILD = "pip install --no-binary scs scs --config-settings=setup-args=-Duse_spectral_cones=true"


@cache
def missing() -> str | None:
    """Say why the SCS that is installed has no such cone, or None."""
    import scipy.sparse as sp
    import scs

    one = {"A": sp.csc_matrix([[1.0]]), "b": np.ones(1), "c": np.ones(1)}
    # Two lists of sizes that do not fit are refused by a build that knows them, else ignored.
    try:
        scs.SCS(one, {"l": 1, "nuc_m": [1, 1], "nuc_n": [1]}, verbose=False)
    except ValueError:
        return None
    return f"its nuclear-norm cone: this SCS was built without spectral cones ({BUILD})"


def penalised(program: ConicProgram) -> Stacked:
    """The data of a program with a penalty: after x the t and the matrix of every block."""
    import scipy.sparse as sp

    assert program.penalty > 0
    half, count = program.penalty / 2, len(program.blocks)
    matrix, offset = rows_of(program)
    matrices = [sp.hstack([matrix, sp.csc_array((program.rows.size, count))])]
    offsets, cost = [offset], program.cost.copy()
    for number, block in enumerate(program.blocks):
        square, constant = square_of(block, program.variables)
        cost -= half * (square.T @ np.eye(block.size).ravel())
        scalar = sp.csc_array(([1.0], ([0], [number])), shape=(1, count))
        first = sp.hstack([sp.csc_array((1, program.variables)), scalar])
        rest = sp.hstack([square, sp.csc_array((block.size**2, count))])
        matrices += [first, rest]
        offsets += [np.zeros(1), constant]

    def whole(size: int, entries: Array) -> Array:
        y = entries[1:].reshape(size, size)
        return (y + y.T) / 2 + half * np.eye(size)

    return Stacked(
        cost=np.concatenate([cost, np.full(count, half)]),
        matrix=sp.csc_matrix(-sp.vstack(matrices)),
        offset=np.concatenate(offsets),
        rows=program.rows.size,
        sizes=program.size.blocks,
        variables=program.variables,
        length=lambda size: 1 + size**2,
        block=whole,
    )
