"""Matrices of balls (Arb, by python-flint), and what noise is by its definition in them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

flint = pytest.importorskip("flint", reason="balls need python-flint")
arb, arb_mat = flint.arb, flint.arb_mat

APART = 150
"""Bits below the largest entry of a matrix at which its eigenvalues are told apart."""

Array = np.ndarray


def mat(a: Any) -> Any:
    return arb_mat(np.asarray(a, dtype=float).tolist())


def kron(a: Any, b: Any) -> Any:
    rows = itertools.product(range(a.nrows()), range(b.nrows()))
    columns = list(itertools.product(range(a.ncols()), range(b.ncols())))
    return arb_mat([[a[i, j] * b[k, m] for j, m in columns] for i, k in rows])


def diagonal(values: Any) -> Any:
    found = arb_mat(len(values), len(values))
    for i, value in enumerate(values):
        found[i, i] = value
    return found


def inner(a: Any, b: Any) -> Any:
    return sum((x * y for x, y in zip(a.entries(), b.entries(), strict=True)), arb(0))


def part(a: Any, rows: Any, columns: Any = None) -> Any:
    columns = rows if columns is None else columns
    return arb_mat([[a[int(i), int(j)] for j in columns] for i in rows])


def above(values: Any) -> Any:
    """A ball that the largest of some is in."""
    found = None
    for value in values:
        found = value if found is None else found.max(value)
    return found


def eigenvalues(a: Any) -> list[Any]:
    """Of a symmetric matrix that has no negative ones.

    Those that coincide are told apart by a diagonal, which moves none by more than its norm.
    """
    n, most = a.nrows(), above(map(abs, a.entries()))
    if most == 0:
        return [most] * n
    apart = 2.0**-APART * most
    moved = a + diagonal([apart * (i + 1) for i in range(n)])
    found = flint.acb_mat((moved + moved.transpose()) / 2).eig()
    return [x.real + apart * n * arb(0, 1) for x in found]


def cholesky(a: Any) -> Any:
    n = a.nrows()
    found = arb_mat(n, n)
    for i in range(n):
        for j in range(i + 1):
            rest = a[i, j] - sum((found[i, k] * found[j, k] for k in range(j)), arb(0))
            found[i, j] = rest.sqrt() if i == j else rest / found[j, j]
    return found


def nuclear(a: Any) -> Any:
    small = a if a.nrows() <= a.ncols() else a.transpose()
    found = eigenvalues(small * small.transpose())
    roots = (x.sqrt() if x > 0 else x.abs_upper().sqrt() * arb(0.5, 0.5) for x in found)
    return sum(roots, arb(0))


# --- what noise is --------------------------------------------------------------------------------


def powers(w: Any, count: int) -> list[Any]:
    found = [w]
    while len(found) < count:
        found.append(found[-1] * w)
    return found


def all_iterates(w: Any, steps: int) -> Any:
    """A of H = A^T A: what is in the model after step t, of the noise of step s, W^(t-s+1)."""
    n, known = w.nrows(), powers(w, steps)
    found = arb_mat(n * steps, n * steps)
    for t in range(steps):
        for s in range(t + 1):
            for i, j in itertools.product(range(n), repeat=2):
                found[t * n + i, s * n + j] = known[t - s][i, j]
    return found


def in_time(strategy: Array) -> Any:
    noising = mat(strategy).inv()
    return noising * noising.transpose()


def of_modes(form: Any) -> Any:
    n = form.nodes
    total = arb_mat(n * form.steps, n * form.steps)
    for strategy, mode in zip(form.strategies, form.modes.T, strict=True):
        column = mat(mode[:, None])
        total += kron(in_time(strategy), column * column.transpose())
    scales = diagonal([arb(x) for x in form.scales.T.ravel().tolist()])
    return scales * total * scales
