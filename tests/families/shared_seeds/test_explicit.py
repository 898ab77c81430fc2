"""The Newton system as a matrix undoes the product that conjugate gradients take."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.families.shared_seeds.newton import NewtonSystem
from noisedesign.families.shared_seeds.program import seed_program
from noisedesign.families.shared_seeds.state import Setting, first_blocks, start
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.graph import build_graph, mixing_matrix


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize(
    ("kind", "known"), [("edge-local", 0), ("edge-local", 2), ("neighbourhood", 1)]
)
def test_the_matrix_is_that_of_the_product(kind: str, known: int, cap: float | None) -> None:
    w = mixing_matrix(build_graph("path", nodes=5))
    structure = SpaceStructure(kind=kind, known_seeds=known)
    program = seed_program(
        w.T @ w + np.eye(5),
        mixing=w,
        structure=structure,
        budget=np.ones(5),
        cap=None if cap is None else np.full(5, cap),
    )
    setting = Setting(program)
    if known and cap is None:  # some budgets alone
        setting = setting.watching(
            {(0, 2)[:known]: np.array([1, 3]), (1, 3)[:known]: np.array([4])}
        )
    point = start(setting, first_blocks(setting))
    system = NewtonSystem(setting, point, Monitor(gap=1e-6))
    assert system.explicit is not None
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = setting.layout.symmetrized(rng.normal(size=setting.layout.length))
        image = system.product(x)
        np.testing.assert_allclose(system.explicit.solve(image), x, rtol=1e-7, atol=1e-9)
