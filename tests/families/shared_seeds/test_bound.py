"""Multipliers of some coalitions only: what is stored, read and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign.families.shared_seeds.bound import Multipliers, lower_bound, multipliers_of
from noisedesign.families.shared_seeds.program import seed_program
from noisedesign.files.design_file import load_design, save_design
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.tasks.solve import solve
from noisedesign.tasks.verify import verify

W = mixing_matrix(build_graph("path", nodes=4))
STRUCTURE = SpaceStructure(kind="edge-local", known_seeds=2)
PROGRAM = seed_program(W.T @ W, mixing=W, structure=STRUCTURE, budget=np.ones(4), cap=None)


def test_coalitions_that_are_left_out_have_no_multipliers() -> None:
    """Six coalitions, two of them with multipliers: the same as zeros for the others."""
    rng = np.random.default_rng(1)
    of, factors, weights = ((0, 1), (2, 3)), rng.normal(size=(2, 3, 4)), rng.random((2, 4))
    few = Multipliers(factors=factors, weights=weights, coalitions=of)
    places = [PROGRAM.coalitions.index(one) for one in of]
    every = Multipliers(factors=np.zeros((6, 3, 4)), weights=np.zeros((6, 4)))
    every.factors[places], every.weights[places] = factors, weights
    assert lower_bound(PROGRAM, few) > 0
    assert lower_bound(PROGRAM, few) == pytest.approx(lower_bound(PROGRAM, every), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("dual_coalitions", lambda a: a[[0, 0]]),
        ("dual_coalitions", lambda a: a + np.array([0, 9])),
        ("dual_coalitions", lambda a: a[:, ::-1]),
        ("dual_coalitions", lambda a: a + 0.5),
        ("dual_coalitions", lambda a: a[:, :1]),
        ("dual_factors", lambda a: a[:1]),
        ("dual_factors", lambda a: a[:, :, :3]),
        ("dual_factors", lambda a: a[0]),
        ("dual_prices", lambda a: a[:1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, spoil: Callable[[Array], Array]) -> None:
    proof: dict[str, Array] = {
        "dual_coalitions": np.array([[0.0, 1.0], [2.0, 3.0]]),
        "dual_factors": np.ones((2, 3, 4)),
        "dual_prices": np.ones((2, 4)),
    }
    assert multipliers_of(PROGRAM, proof).coalitions == ((0, 1), (2, 3))
    with pytest.raises(InputError, match=f"design file.{name}"):
        multipliers_of(PROGRAM, proof | {name: spoil(proof[name])})


def test_a_file_proves_its_bound_by_few_coalitions(tmp_path: Path) -> None:
    design = solve(SpaceProblem(mixing=W, structure=STRUCTURE), gap=1e-7).design
    assert design is not None
    assert "dual_coalitions" in design.proof
    path = tmp_path / "design.npz"
    save_design(design, path)
    assert load_design(path).design.lower_bound == pytest.approx(design.lower_bound, rel=1e-12)
    found = verify(load_design(path), rigorous=True)
    assert found.ok
