"""A kind of workload is added by one line: everything is asked of it, and nothing is edited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import WORKLOADS, WorkloadKind
from noisedesign.tasks.verify import verify
from tests.support.command_line import call, write
from tests.support.small_designs import PATH_3

Array = np.ndarray

SCHEME = FixedEpoch(epochs=2, separation=3)


def fading(*, horizon: int) -> Array:
    """What is added at a step counts half as much a step later."""
    lag = np.subtract.outer(np.arange(horizon), np.arange(horizon))
    factor = np.where(lag >= 0, 0.5 ** np.maximum(lag, 0), 0.0)
    return np.asarray(factor.T @ factor)


def first_node(*, horizon: int, mixing: Array, error: Any, random: Any) -> Array:
    """The iterates of node 0 alone."""
    assert random is None
    rows = [np.eye(len(mixing))[0]]
    for _ in range(horizon):
        rows.append(rows[-1] @ mixing)
    total = np.zeros((horizon, horizon))
    for last in range(horizon):
        seen = np.array([rows[last - s + 1] if s <= last else 0 * rows[0] for s in range(horizon)])
        total += seen @ seen.T
    return total


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that adds a kind, twice: one without a graph, one of a graph."""
    kinds = {
        "fading": WorkloadKind(form=fading, definition="powers of a half"),
        "first-node": WorkloadKind(form=first_node, definition="node 0", of_graph=True),
    }
    for name, kind in kinds.items():
        monkeypatch.setitem(WORKLOADS, name, kind)


FILE = """name = "fading"
design = "time"

[workload]
kind = "fading"

[participation]
epochs = 2
separation = 3
"""

OF_GRAPH = """name = "first node"
design = "time"

[graph]
kind = "path"
nodes = 3

[workload]
kind = "first-node"

[participation]
epochs = 2
separation = 3
"""


def problems() -> list[TimeProblem]:
    return [
        TimeProblem.of_workload("fading", participation=SCHEME),
        TimeProblem.of_workload("first-node", participation=SCHEME, mixing=PATH_3),
    ]


def test_h_is_formed_by_its_kind() -> None:
    plain, graph = problems()
    np.testing.assert_array_equal(plain.gram, fading(horizon=6))
    # Of one step: row 0 of W, squared.
    one = TimeProblem.of_workload("first-node", participation=single(1), mixing=PATH_3)
    assert one.gram[0, 0] == pytest.approx(float(PATH_3[0] @ PATH_3[0]), rel=1e-15)
    assert (graph.workload, graph.mixing is None) == ("first-node", False)
    for problem in (plain, graph):
        np.testing.assert_array_equal(problem.defined_gram, problem.gram)


def test_a_graph_is_asked_for_where_it_is_of_one() -> None:
    with pytest.raises(InputError, match="mixing"):
        TimeProblem.of_workload("first-node", participation=SCHEME)
    with pytest.raises(InputError, match="mixing"):
        TimeProblem.of_workload("fading", participation=SCHEME, mixing=PATH_3)


@pytest.mark.parametrize("number", [0, 1])
def test_it_is_solved_and_verified(number: int) -> None:
    problem = problems()[number]
    solution = solve(problem, gap=1e-9)
    assert solution.status == "optimal"
    assert solution.design is not None
    given = solve(TimeProblem.from_gram(gram=problem.gram, participation=SCHEME), gap=1e-9)
    assert given.design is not None
    assert solution.design.objective == pytest.approx(given.design.objective, rel=1e-8)
    assert verify(solution.design).ok


@pytest.mark.parametrize("number", [0, 1])
def test_it_is_stored_and_exported(number: int, tmp_path: Path) -> None:
    problem = problems()[number]
    design = solve(problem, gap=1e-7).design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    assert stored.design.problem.workload == problem.workload
    np.testing.assert_array_equal(stored.design.problem.gram, problem.gram)
    assert verify(stored).ok
    (path, *_) = nd.export(stored, to="npy", path=tmp_path / "noise.npy")
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), design.strategy)


def test_another_h_under_its_name_is_refused() -> None:
    problem = TimeProblem(gram=fading(horizon=6) * 1.01, participation=SCHEME, workload="fading")
    design = solve(problem, gap=1e-7).design
    assert design is not None
    found = verify(design)
    assert not found.ok
    (check,) = [check for check in found.checks if check.name == "workload"]
    assert not check.ok
    assert "powers of a half" in check.note


def test_it_is_formed_again_where_few_numbers_say_c(tmp_path: Path) -> None:
    problem = replace(problems()[0], structure=TimeStructure(kind="banded", bands=2))
    design = solve(problem, gap=1e-6).design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    assert "gram" not in stored.arrays
    np.testing.assert_array_equal(stored.design.problem.gram, problem.gram)
    assert verify(stored).ok


@pytest.mark.parametrize("number", [0, 1])
def test_it_is_simulated_by_its_factor(number: int) -> None:
    """No models are run: neither of them would show this error."""
    design = solve(problems()[number], gap=1e-6).design
    assert design is not None
    assert nd.simulate(design, runs=400, seed=2).variance.agrees


def test_it_is_named_in_problem_files(tmp_path: Path) -> None:
    plain = load_problem(write(tmp_path, FILE)).problem
    np.testing.assert_array_equal(plain.gram, fading(horizon=6))
    graph = load_problem(write(tmp_path, OF_GRAPH)).problem
    np.testing.assert_allclose(graph.gram, problems()[1].gram, rtol=1e-12)
    with pytest.raises(InputError, match=r"graph: expected a \[graph\] table for a first-node"):
        load_problem(write(tmp_path, FILE.replace("fading", "first-node")))
    with pytest.raises(InputError, match=r"graph: expected no \[graph\] table for a fading"):
        load_problem(write(tmp_path, OF_GRAPH.replace("first-node", "fading")))
    with pytest.raises(InputError, match=r"workload\.file"):
        load_problem(write(tmp_path, FILE.replace('"fading"\n\n[p', '"fading"\nfile = "H"\n\n[p')))


def test_it_is_unknown_without_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(WORKLOADS, "fading")
    with pytest.raises(InputError, match=r"workload\.kind: .*one of decentralized, prefix, gram"):
        load_problem(write(tmp_path, FILE))


def test_every_command_takes_it(tmp_path: Path) -> None:
    file, design = write(tmp_path, OF_GRAPH), tmp_path / "design.npz"
    assert call("solve", file, "-o", design).code == 0
    assert call("verify", design).code == 0
    assert call("simulate", design, "--runs", "300", "--seed", "1").code == 0
    assert call("export", design, "--to", "csv", "-o", tmp_path / "csv").code == 0
