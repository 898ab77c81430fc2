"""What all coalitions leave of every budget, at little more than the cost of one inverse.

Of X = R^-1 a coalition A leaves X' = X - X_{:A} [X_AA]^-1 X_{A:}, the inverse of R on the nodes
outside, and takes the blocks T that its sets have there: with J their nodes,

    [(R - T)^-1] = X' + X'_{:J} T (I - X'_JJ T)^-1 X'_{J:}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.layout import Layout, Places
from noisedesign.families.shared_seeds.program import Nodes, SeedProgram


class _Taken(NamedTuple):
    """The nodes J outside a coalition of the sets it touches; where their entries are in a flat
    vector, and in T."""

    nodes: Places
    entries: Places
    places: Places


class Coalitions:
    """Every coalition of a program."""

    def __init__(self, program: SeedProgram, layout: Layout) -> None:
        self._layout, self.coalitions = layout, program.coalitions
        rows, columns = layout.nodes()
        of_node: list[set[int]] = [set() for _ in range(program.size)]
        entries: list[Places] = []
        start = 0
        for members in layout.members if program.known_seeds else ():
            size = members.shape[1] ** 2
            for nodes in members:
                for node in nodes:
                    of_node[node].add(len(entries))
                entries.append(np.arange(start, start + size))
                start += size
        self._taken = []
        for coalition in self.coalitions:
            touched = sorted(set().union(*(of_node[node] for node in coalition)))
            if not touched:
                self._taken.append(_Taken(*(np.zeros(0, dtype=np.intp),) * 3))
                continue
            at = np.concatenate([entries[c] for c in touched])
            outside = ~(np.isin(rows[at], coalition) | np.isin(columns[at], coalition))
            at = at[outside]
            nodes, row = np.unique(rows[at], return_inverse=True)
            column = np.searchsorted(nodes, columns[at])
            self._taken.append(_Taken(nodes, at, row * len(nodes) + column))

    def spent(self, flat: Array) -> Array:
        """[R_A^-1]_ii, shape (coalitions, n), zero for the nodes of A.

        Raises:
            numpy.linalg.LinAlgError: R is not positive definite.
        """
        precision = _linalg.inverse_of_positive(self._layout.assemble(flat))
        found = np.empty((len(self.coalitions), len(precision)))
        for at, (coalition, taken) in enumerate(zip(self.coalitions, self._taken, strict=True)):
            found[at] = _left(precision, coalition, taken, flat)
        return found


def _left(precision: Array, coalition: Nodes, taken: _Taken, flat: Array) -> Array:
    spent = np.diagonal(precision).copy()
    if not coalition:
        return spent
    inside, nodes = list(coalition), taken.nodes
    known = precision[inside]
    share = np.linalg.solve(known[:, inside], known)
    spent -= np.einsum("an,an->n", share, known)
    size = len(nodes)
    if size:
        t = np.bincount(taken.places, flat[taken.entries], size * size).reshape(size, size)
        seen = precision[nodes] - share[:, nodes].T @ known
        weighed = t @ seen
        spent += np.einsum(
            "jn,jn->n", weighed, np.linalg.solve(np.eye(size) - seen[:, nodes] @ t, seen)
        )
    spent[inside] = 0.0
    return spent
