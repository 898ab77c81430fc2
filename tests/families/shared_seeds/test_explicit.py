"""The Newton system as a matrix undoes the product that conjugate gradients take."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.design.least_noise import least_noise_mixing
from noisedesign.design.solve import solve
from noisedesign.families.shared_seeds.newton import NewtonSystem, _solver_of
from noisedesign.families.shared_seeds.program import seed_program
from noisedesign.families.shared_seeds.state import Setting, first_blocks, start
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph, mixing_matrix


def setting_of(kind: str, known: int, cap: float | None) -> Setting:
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
        budgets = np.zeros_like(setting.budgets)
        budgets[program.coalitions.index((0, 2)[:known]), [1, 3]] = True
        budgets[program.coalitions.index((1, 3)[:known]), 4] = True
        setting = setting.watching(budgets)
    return setting


CASES = [("edge-local", 0), ("edge-local", 2), ("neighbourhood", 1)]


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize(("kind", "known"), CASES)
def test_the_matrix_is_that_of_the_product(kind: str, known: int, cap: float | None) -> None:
    setting = setting_of(kind, known, cap)
    point = start(setting, first_blocks(setting))
    system = NewtonSystem(setting, point, Monitor(gap=1e-6))
    assert system.explicit is not None
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = setting.layout.symmetrized(rng.normal(size=setting.layout.length))
        image = system.product(x)
        np.testing.assert_allclose(system.explicit.solve(image), x, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize(("kind", "known"), CASES)
def test_stiff_directions_are_those_of_budgets_and_caps(
    kind: str, known: int, cap: float | None
) -> None:
    """Of the inverses entry by entry; what spreads values is the adjoint."""
    setting = setting_of(kind, known, cap)
    point = start(setting, first_blocks(setting))
    system, rng = NewtonSystem(setting, point, Monitor(gap=1e-6)), np.random.default_rng(1)
    flat = setting.layout.symmetrized(rng.normal(size=setting.layout.length))
    found, expected = system._project(flat), []
    for x, watched, change in zip(
        point.precisions, setting.watched, setting.assembled(flat), strict=True
    ):
        expected.extend(np.diagonal(x @ change @ x)[watched])
    if cap is not None:
        expected.extend(np.diagonal(setting.layout.assemble(flat)))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    values = rng.normal(size=len(found))
    assert system._spread(values) @ flat == pytest.approx(values @ found, rel=1e-10)


@pytest.mark.parametrize("bad", [np.diag([1.0, -1e-300]), np.diag([1.0, 0.0]), np.eye(2) * np.nan])
def test_an_indefinite_matrix_ends_a_search_and_does_not_break_it(bad: np.ndarray) -> None:
    """A search ends with the best so far at this error, and at no other."""
    with pytest.raises(np.linalg.LinAlgError):
        _solver_of(bad)


@pytest.mark.slow
def test_a_nearly_singular_mixing_has_a_status() -> None:
    """W of least noise is all but singular: what is certified is no worse than independent noise,
    and the status says how near it is."""
    chosen = least_noise_mixing(SpaceProblem(mixing=mixing_matrix(build_graph("karate"))))
    problem = SpaceProblem(mixing=chosen.mixing, structure=SpaceStructure(kind="edge-local"))
    solution = solve(problem)
    assert solution.design is not None
    assert solution.feasible
    assert solution.design.objective <= np.sum(chosen.mixing**2) * (1 + 1e-9)
    assert solution.status == "optimal" or solution.remedy
