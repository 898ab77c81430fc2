"""Floors on disk: read strictly, stored, verified; a falsified one is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.io import loadmat

from noisedesign.base.checks import InputError
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.program import diagonal_dual
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem, parse_problem
from noisedesign.problem.problem import SpaceProblem
from noisedesign.tasks.export import export
from noisedesign.tasks.verify import Verification, verify
from tests.support import ROOT, oracles
from tests.support.made_designs import made
from tests.support.small_designs import PATH_3, PROVENANCE, falsify

PROBLEMS = ROOT / "problems"
RING = 'name = "ring"\ndesign = "space"\n[graph]\nkind = "ring"\nnodes = 5\n'
OTHER = (
    'name = "other"\ndesign = "space-time"\n[graph]\nkind = "ring"\nnodes = 5\n'
    "[participation]\nepochs = 1\nseparation = 2\n"
)

Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def by_hand() -> Design:
    """Independent noise of variance 2 on PATH_3, the floor of all: tr(2 W W^T) = 26/9.

    Multipliers v = 1 and u = 0 prove (1 + 2/3)^2 / 3 = 25/27 of it.
    """
    problem = SpaceProblem(mixing=PATH_3, min_variance=2.0, max_variance=4.0, name="floored")
    certificate = Certificate(
        objective=26 / 9,
        lower_bound=25 / 27,
        sensitivity_squared=0.5,
        variance_ratio=0.5,
        floor_ratio=1.0,
    )
    return made(
        problem=problem,
        matrix=2 * np.eye(3),
        certificate=certificate,
        provenance=PROVENANCE,
        dual=diagonal_dual(np.ones(3), cap=np.zeros(3), floor=np.zeros(3)),
    )


def best() -> Design:
    """The optimum of a ring with a floor that binds."""
    found = solve(parse_problem(RING + "[limits]\nmin_variance = 3\n", folder=".").problem).design
    assert found is not None
    return found


def verified(design: Design, path: Path, *, edit: Edit | None = None) -> Verification:
    save_design(design, path)
    if edit is not None:
        falsify(path, edit)
    return verify(load_design(path))


def failed(outcome: Verification) -> set[str]:
    return {check.name for check in outcome.checks if check.ok is False}


# --- problem files --------------------------------------------------------------------------------


def test_floors_are_read() -> None:
    problem = parse_problem(RING + "[limits]\nmin_variance = 3\n", folder=".").problem
    assert isinstance(problem, SpaceProblem)
    np.testing.assert_array_equal(problem.min_variance, np.full(5, 3.0))
    assert problem.max_variance is None
    text = RING + "[limits]\nmin_variance = [1, 2, 3.0, 4, 5]\nmax_variance = 5\n"
    problem = parse_problem(text, folder=".").problem
    assert isinstance(problem, SpaceProblem)
    np.testing.assert_array_equal(problem.min_variance, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(problem.max_variance, np.full(5, 5.0))


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (
            RING + "[limits]\nmin_variance = 3\nmax_variance = 2\n",
            "limits.min_variance",
            ["at most limits.max_variance = 2", "got 3"],
        ),
        (RING + "[limits]\nmin_variance = 0\n", "limits.min_variance", ["> 0"]),
        (RING + "[limits]\nmin_variance = [1, 2]\n", "limits.min_variance", ["5 values"]),
        (RING + "[limits]\nmin_varience = 2\n", "limits.min_varience", ["min_variance"]),
        (RING + "[limits]\n", "limits.max_variance", ["limits.min_variance", "nothing"]),
        (
            RING + '[limits]\nmin_variance = 2\n[structure]\nspace = "edge-local"\n',
            "limits.min_variance",
            ["dense", "edge-local"],
        ),
        (OTHER + "[limits]\nmin_variance = 2\n", "limits.min_variance", ["space designs"]),
    ],
)
def test_bad_floors_are_refused(text: str, field: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_problem(text, folder=".")
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)


def test_the_shipped_problem() -> None:
    """Its interval again, on W as written in the oracles."""
    loaded = load_problem(PROBLEMS / "whisper" / "florentine-floored.toml")
    assert loaded.reference is not None
    w = oracles.metropolis(nx.florentine_families_graph())
    interval = oracles.floored_interval(w @ w, floor=1.5)
    assert interval.width < 1e-6
    assert interval.meets(loaded.reference.lower, loaded.reference.upper)
    plain = load_problem(PROBLEMS / "whisper" / "florentine.toml").reference
    assert plain is not None
    assert loaded.reference.lower > 1.03 * plain.upper


# --- design files ---------------------------------------------------------------------------------


def test_designs_with_floors_are_stored_and_verified(tmp_path: Path) -> None:
    for design in (by_hand(), best()):
        outcome = verified(design, tmp_path / "d.npz")
        assert outcome.ok, outcome
        stored = load_design(tmp_path / "d.npz")
        found = stored.design
        assert isinstance(found.problem, SpaceProblem)
        assert isinstance(design.problem, SpaceProblem)
        np.testing.assert_array_equal(found.problem.min_variance, design.problem.min_variance)
        assert {"dual_weights", "dual_floor"} <= set(found.proof)
        np.testing.assert_array_equal(found.proof["dual_floor"], design.proof["dual_floor"])
        assert found.certificate == design.certificate
        assert stored.manifest["floor_ratio"] == design.certificate.floor_ratio
        kinds = {name: entry["kind"] for name, entry in stored.manifest["arrays"].items()}
        assert kinds["min_variance"] == "floor on diag(R)"
        assert kinds["dual_floor"] == "u"


def test_a_design_without_a_floor_says_so(tmp_path: Path) -> None:
    design = solve(SpaceProblem(mixing=np.asarray(oracles.metropolis(nx.cycle_graph(5))))).design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "d.npz"))
    assert stored.manifest["floor_ratio"] is None
    assert not {"min_variance", "dual_floor"} & set(stored.arrays)


def change(name: str, factor: float) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name] * factor

    return edit


def claimed_ratio(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["floor_ratio"] = 0.5


def no_ratio(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["floor_ratio"] = None


def lower_noise(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Within its budgets, and honest about everything but that it breaks the floor."""
    arrays["covariance"] *= 0.75
    manifest["objective"] *= 0.75
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1
    manifest["sensitivity"]["value"] /= 0.75
    manifest["variance_ratio"] *= 0.75
    manifest["floor_ratio"] /= 0.75
    manifest["feasible"] = False


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (change("min_variance", 1.5), {"sensitivity", "feasible"}),
        (change("min_variance", 0.5), {"sensitivity"}),
        (claimed_ratio, {"sensitivity"}),
        (no_ratio, {"sensitivity"}),
        (lower_noise, {"feasible"}),
    ],
)
def test_falsified_floors_are_found(tmp_path: Path, edit: Edit, expected: set[str]) -> None:
    assert failed(verified(by_hand(), tmp_path / "d.npz", edit=edit)) == expected


@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1, -1.0, 1e9])
def test_falsified_multipliers_are_found(tmp_path: Path, factor: float) -> None:
    outcome = verified(best(), tmp_path / "d.npz", edit=change("dual_floor", factor))
    assert "lower bound" in failed(outcome)


def test_a_floor_that_its_text_does_not_have_is_found(tmp_path: Path) -> None:
    text = RING + "[limits]\nmin_variance = 3\n"
    save_design(best(), tmp_path / "d.npz", problem_text=text)
    assert verify(load_design(tmp_path / "d.npz")).ok
    save_design(best(), tmp_path / "d.npz", problem_text=text.replace("3\n", "2.5\n"))
    checks = {check.name: check for check in verify(load_design(tmp_path / "d.npz")).checks}
    assert checks["problem"].ok is False
    assert checks["problem"].found == "different min_variance"


def test_floors_are_exported(tmp_path: Path) -> None:
    export(by_hand(), to="mat", path=tmp_path / "d.mat")
    np.testing.assert_array_equal(loadmat(tmp_path / "d.mat")["min_variance"], np.full((3, 1), 2.0))
