"""The preconditioner of Newton systems in pairs, against the product itself as a matrix."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds.newton import NewtonSystem
from noisedesign.families.shared_seeds.program import seed_program
from noisedesign.families.shared_seeds.state import Setting, first_blocks, start
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.graph import build_graph, mixing_matrix

GRAPHS = {
    "florentine": mixing_matrix(build_graph("florentine")),
    "star": mixing_matrix(build_graph("star", nodes=6), weights="lazy-metropolis-hastings"),
    # Two parts that do not mix, and a node alone.
    "parts": np.kron(np.eye(3), mixing_matrix(build_graph("ring", nodes=4)))[:9, :9],
}


def system_of(w: np.ndarray) -> NewtonSystem:
    size = len(w)
    program = seed_program(
        w.T @ w + 0.1 * np.eye(size),
        mixing=w,
        structure=SpaceStructure(kind="edge-local"),
        budget=np.ones(size),
        cap=None,
    )
    setting = Setting(program)
    setting.explicit = False
    return NewtonSystem(setting, start(setting, first_blocks(setting)), Monitor(gap=1e-6))


def coordinates(system: NewtonSystem) -> np.ndarray:
    """An orthonormal basis of symmetric blocks, in rows."""
    at = system.setting.coordinates
    return np.stack([at.write(unit) for unit in np.eye(len(at.entry))])


@pytest.mark.parametrize("graph", GRAPHS)
def test_it_is_near_the_inverse_of_the_product(graph: str) -> None:
    system = system_of(GRAPHS[graph])
    basis = coordinates(system)
    matrix = np.stack([basis @ system.product(one) for one in basis])
    inverse = np.stack([basis @ system.precondition(one) for one in basis])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-8, atol=1e-9 * np.abs(matrix).max())
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-8, atol=1e-9 * np.abs(inverse).max())
    lower = np.linalg.cholesky(matrix)
    values = np.linalg.eigvalsh(lower.T @ inverse @ lower)
    # What only moves variance between blocks is solved exactly, and the rest overestimated by a
    # small factor: without either part, the least value is 1e-2 or the ratio more than 100.
    assert values[0] > 0.5
    assert values[-1] < 10


@pytest.mark.parametrize("graph", GRAPHS)
def test_it_solves_the_system_among_row_scalings(graph: str) -> None:
    """D P D of all blocks, to first order: those of one node are taken to it by the product."""
    system = system_of(GRAPHS[graph])
    setting, point, assembled = system.setting, system.point, []
    for node in range(setting.layout.size):
        row = np.zeros(setting.layout.size)
        row[node] = 1.0
        up, down = (setting.layout.scaled(point.blocks, 1 + sign * row / 2) for sign in (1, -1))
        assembled.append(up - down)
    rows = np.stack(assembled)
    matrix = np.stack([rows @ system.product(one) for one in rows])
    assert system.pairs is not None
    found = system.pairs._row_inverse
    np.testing.assert_allclose(found @ matrix, np.eye(len(matrix)), atol=1e-8)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_start_is_feasible_on_both_sides(graph: str) -> None:
    """Budgets kept with room, and (H - N)_cc positive definite, by an eigenvalue of each."""
    system = system_of(GRAPHS[graph])
    setting, point = system.setting, system.point
    covariance = setting.layout.assemble(point.blocks)
    spent = np.diagonal(np.linalg.inv(covariance))
    np.testing.assert_allclose(1 - spent, point.slacks[0], rtol=1e-6, atol=1e-9)
    assert (spent < 1).all()
    assert (point.weights[0] > 0).all()
    assert point.curvature is not None
    expected = setting.layout.gather(setting.gram - point.curvature)
    np.testing.assert_allclose(point.dual, expected, rtol=1e-8, atol=1e-12)
    for flat in (point.dual, point.blocks):
        for blocks in setting.layout.split(flat):
            assert (np.linalg.eigvalsh(blocks)[:, 0] > 0).all()
