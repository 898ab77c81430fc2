"""What coalitions leave of budgets, against an inverse each of blocks that are added one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from noisedesign.families.shared_seeds.program import SeedProgram, seed_program
from noisedesign.families.shared_seeds.state import Setting
from noisedesign.forms.structure import SpaceStructure
from noisedesign.system.graph import build_graph, mixing_matrix


def program_of(kind: str, known: int) -> SeedProgram:
    w = mixing_matrix(build_graph("ring", nodes=6))
    structure = SpaceStructure(kind=kind, known_seeds=known)
    return seed_program(
        w.T @ w + np.eye(6), mixing=w, structure=structure, budget=np.ones(6), cap=None
    )


@pytest.mark.parametrize("kind", ["edge-local", "neighbourhood", "independent"])
@pytest.mark.parametrize("known", [0, 1, 2, 3])
def test_what_is_spent_is_the_diagonal_of_every_inverse(kind: str, known: int) -> None:
    program = program_of(kind, known)
    rng = np.random.default_rng(3)
    blocks = []
    for nodes in program.sets:
        half = rng.normal(size=(len(nodes), len(nodes)))
        blocks.append(half @ half.T + 0.1 * np.eye(len(nodes)))
    setting = Setting(program)
    found = setting.spent(setting.layout.flat(blocks))
    assert len(found) == len(list(combinations(range(6), known)))
    for row, coalition in zip(found, combinations(range(6), known), strict=True):
        rest = [i for i in range(6) if i not in coalition]
        total = np.zeros((6, 6))
        for nodes, block in zip(program.sets, blocks, strict=True):
            if not set(nodes) & set(coalition):
                total[np.ix_(nodes, nodes)] += block
        expected = np.diagonal(np.linalg.inv(total[np.ix_(rest, rest)]))
        np.testing.assert_allclose(row[rest], expected, rtol=1e-9)
        assert not row[list(coalition)].any()
