"""A family is added by one line: everything is asked of it, and nothing else is edited.

:mod:`tests.support.class_noise` is a family the package does not know: nodes of a class share
alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.families.family import family_of
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem
from noisedesign.forms.registry import REGISTRY, Entry
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem
from noisedesign.surveys.compare import compare
from noisedesign.system.participation import single
from noisedesign.tasks.export import export
from noisedesign.tasks.verify import verify
from tests.support import class_noise, family_contract, oracles
from tests.support.command_line import call, write
from tests.support.family_cases import PATH_4, RING_5, UNEVEN
from tests.support.family_contract import Kept

CLASSES = (0, 1, 0, 0)
BUDGET = np.array([2.0, 0.5, 2.0, 2.0])
FILE = """name = "two classes"
design = "space"

[graph]
kind = "path"
nodes = 4

[structure]
space = "classes"
clusters = "classes.json"

[budget]
tau = [2.0, 0.5, 2.0, 2.0]
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The line that adds a family."""
    entry = Entry("tests.support.class_noise", needs="clusters")
    monkeypatch.setitem(REGISTRY, ("space", "classes"), entry)
    return


def problem(w: np.ndarray = PATH_4, classes: Any = CLASSES, **words: Any) -> SpaceProblem:
    structure = SpaceStructure(kind="classes", clusters=classes)
    return SpaceProblem(mixing=w, structure=structure, **({"budget": BUDGET} | words))


def brute_force() -> float:
    """Node 1 alone needs 1 / tau; of the others, variance 1 and covariance r, over r alone."""
    gram = PATH_4.T @ PATH_4
    at = np.ix_([0, 2, 3], [0, 2, 3])

    def error(r: float) -> float:
        block = (1 - r) * np.eye(3) + r
        return float(np.sum(gram[at] * block)) * np.diagonal(np.linalg.inv(block)).max() / 2.0

    found = scipy.optimize.minimize_scalar(
        error, bounds=(-0.49, 0.99), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.fun) + gram[1, 1] / 0.5


def test_it_is_solved_and_verified() -> None:
    solution = solve(problem(), gap=1e-9)
    assert solution.status == "optimal"
    certificate = solution.certificate
    assert certificate is not None
    assert certificate.objective == pytest.approx(brute_force(), rel=1e-9)
    dense = oracles.diagonal_interval(PATH_4.T @ PATH_4, budget=BUDGET)
    assert certificate.unrestricted_lower_bound == pytest.approx(dense.lower, rel=1e-6)
    assert certificate.unrestricted_lower_bound < certificate.lower_bound
    assert verify(solution).ok
    assert solution.design is not None
    loud = replace(solution.design, noise=solution.design.noise.scaled(1.01))
    assert not verify(loud).ok


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    optimum = brute_force()
    kept = Kept(problem(), optimum=optimum, bounded=optimum)
    lazy = (PATH_4 + np.eye(4)) / 2
    family_contract.assert_kept(kept, other=problem(lazy), folder=tmp_path)


def test_a_problem_that_it_cannot_hold_is_refused() -> None:
    with pytest.raises(InputError, match=r"budget\.tau"):
        solve(problem(budget=UNEVEN))
    with pytest.raises(InputError, match=r"limits\.max_variance"):
        solve(problem(max_variance=9.0))
    with pytest.raises(InputError, match=r"structure\.clusters"):
        SpaceStructure(kind="classes")
    with pytest.raises(InputError, match=r"structure\.known_seeds: expected 0"):
        SpaceStructure(kind="classes", clusters=CLASSES, known_seeds=1)


def test_it_is_named_in_problem_files(tmp_path: Path) -> None:
    loaded = load_problem(written(tmp_path))
    assert family_of(loaded.problem) is class_noise.FAMILY
    np.testing.assert_array_equal(loaded.problem.budget, BUDGET)
    assert loaded.problem.structure == problem().structure


def written(folder: Path) -> Path:
    (folder / "classes.json").write_text("[[0, 2, 3], [1]]")
    return Path(write(folder, FILE))


def test_it_is_stored_and_exported(tmp_path: Path) -> None:
    design = solve(problem(), gap=1e-9).design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    np.testing.assert_array_equal(stored.design.covariance, design.covariance)
    np.testing.assert_array_equal(stored.arrays["class_prices"], design.proof["class_prices"])
    assert stored.design.problem.structure == problem().structure
    assert verify(stored, problem=problem()).ok
    (path, *_) = export(stored, to="npy", path=tmp_path / "noise.npy")
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), design.covariance)


@pytest.mark.parametrize("backend", ["clarabel", "scs"])
def test_conic_solvers_take_its_model(backend: str) -> None:
    solution = solve(problem(), backend=backend, gap=1e-6)
    assert solution.status == "optimal"
    assert solution.certificate is not None
    assert solution.certificate.objective == pytest.approx(brute_force(), rel=1e-6)
    assert solution.certificate.lower_bound <= brute_force() * (1 + 1e-9)


def test_errors_name_it_among_what_conic_solvers_take() -> None:
    """The list is that of families with a model: "in space ..." without kinds that have none."""
    with pytest.raises(InputError) as error:
        solve(nd.SpaceTimeProblem(mixing=PATH_4, participation=single(2)), backend="scs")
    (of_space,) = re.findall(r"in space ([^;]*);", str(error.value))
    assert of_space.split(", ") == [
        "dense",
        "edge-local",
        "hops",
        "neighbourhood",
        "clusters",
        "decor",
        "independent",
        "observers",
        "worst",
        "classes",
    ]


def test_every_command_takes_it(tmp_path: Path) -> None:
    file, design = written(tmp_path), tmp_path / "design.npz"
    assert call("solve", file, "-o", design).code == 0
    assert call("verify", design).code == 0
    found = call("model", file, "-o", tmp_path / "model.cbf", "--json").json()
    assert (found["formulation"], found["blocks"], found["rows"]) == ("prices", [2, 2, 2], 2)
    assert call("simulate", design, "--runs", "200", "--seed", "1").code == 0
    assert call("export", design, "--to", "whisper-dsgd", "-o", tmp_path / "R.npz").code == 0


@pytest.mark.slow
def test_it_is_compared(tmp_path: Path) -> None:
    loaded = load_problem(written(tmp_path))
    found = compare([loaded], backends=["native", "clarabel"], gap=1e-6)
    assert [row["solved"] for row in found.rows] == [True, True]
    costs = [row["objective"] for row in found.rows]
    assert costs == pytest.approx([brute_force()] * 2, rel=1e-6)


def test_it_is_a_factor_of_products() -> None:
    """One step of them is the problem in space: its optimum is known."""
    product = SpaceTimeProblem(
        mixing=PATH_4,
        participation=single(1),
        budget=BUDGET,
        space=SpaceStructure(kind="classes", clusters=CLASSES),
    )
    solution = nd.solve(product)
    assert solution.certificate is not None
    assert solution.certificate.objective == pytest.approx(brute_force(), rel=1e-6)
    assert verify(solution).ok


def test_a_class_of_all_nodes_of_a_ring() -> None:
    """The best noise of a ring is not exchangeable: more than its optimum, less than LDP."""
    solution = solve(problem(RING_5, (0,) * 5, budget=1.0), gap=1e-9)
    assert solution.design is not None
    ring = oracles.vertex_transitive_optimum(RING_5)
    ldp = float(np.sum(np.square(RING_5)))
    assert ring * 1.01 < solution.design.objective < 0.99 * ldp
    assert solution.design.ldp_objective == pytest.approx(ldp, rel=1e-12)
