"""The MOSEK path without a licence: what is written for MOSEK is the program, exactly.

Writing a task file needs no licence. The backend itself writes it, MOSEK's own reader reads it
back, and another solver on those very numbers must reach the optimum known otherwise.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.conic.solvers import ConicSolver
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from tests.support.conic_cases import PROBLEMS, ask, solver_of

mosek = pytest.importorskip("mosek", reason="pip install 'noisedesign[mosek]'")
from tests.support.mosek_reader import TaskData, read, rebuild  # noqa: E402  (it imports mosek)

PARAMETERS = ("intpnt_co_tol_rel_gap", "intpnt_co_tol_pfeas", "intpnt_co_tol_dfeas")
CASES = [
    ("florentine", "compact"),
    ("budgets", "compact"),
    ("capped", "covariance"),
    ("budgets", "paper"),
    ("epochs", "compact"),
    ("epochs-directed", "compact"),
]


def backend() -> ConicSolver:
    return solver_of("mosek")


def written(name: str, formulation: str, folder: Path) -> TaskData:
    """What the backend hands to MOSEK for a problem, read back."""
    path = folder / "model.task"
    writing = replace(backend(), always={**(backend().always or {}), "save_file": str(path)})
    program = program_of(PROBLEMS[name]).normalized()
    monitor = Monitor(gap=1e-6, tolerance=1e-7)
    # Without a licence the model is refused only after it has been written.
    with contextlib.suppress(mosek.Error):
        ask(writing, program, monitor=monitor, formulation=formulation)
    return read(path, parameters=PARAMETERS)


@pytest.mark.parametrize(("name", "formulation"), CASES)
def test_the_file_for_mosek_is_the_program(name: str, formulation: str, tmp_path: Path) -> None:
    data = written(name, formulation, tmp_path)
    copy = rebuild(data)
    reached = copy.solve(solver="CLARABEL")
    assert copy.status == "optimal"
    program = program_of(PROBLEMS[name]).normalized()
    # The model is scaled by ( tr H^1/2 )^2 / m; any other scale would show as another optimum.
    scale = np.sqrt(np.maximum(np.linalg.eigvalsh(program.gram), 0)).sum() ** 2 / program.size
    certificate = solve(PROBLEMS[name], gap=1e-9).certificate
    assert certificate is not None
    assert certificate.gap <= 1e-9
    assert reached * scale == pytest.approx(certificate.objective, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "formulation", "sizes"),
    [
        ("florentine", "compact", [30]),
        ("capped", "covariance", [16]),
        ("budgets", "paper", [8] + [9] * 8),
        ("epochs", "compact", [24]),
    ],
)
def test_semidefinite_blocks(name: str, formulation: str, sizes: list[int], tmp_path: Path) -> None:
    """One block of 2m, or the published n blocks of n + 1 beside R_cor itself."""
    data = written(name, formulation, tmp_path)
    assert sorted(data.sizes) == sizes
    assert data.maximise  # cvxpy hands MOSEK the dual


def test_accuracy_reaches_mosek(tmp_path: Path) -> None:
    data = written("budgets", "compact", tmp_path)
    assert data.parameters == pytest.approx(dict.fromkeys(PARAMETERS, 1e-7))


def test_a_changed_file_is_another_program(tmp_path: Path) -> None:
    """The comparison above can fail: every part of the data matters to the optimum."""
    data = written("epochs", "compact", tmp_path)
    reached = rebuild(data).solve(solver="CLARABEL")
    bar = data.bar_cost[0].copy()
    i, j = np.unravel_index(np.abs(bar).argmax(), bar.shape)
    bar[i, j] = bar[j, i] = bar[i, j] * 1.01
    changed = rebuild(replace(data, bar_cost=(bar,))).solve(solver="CLARABEL")
    assert changed != pytest.approx(reached, rel=1e-6)
    changed = rebuild(replace(data, cost=data.cost * 1.1)).solve(solver="CLARABEL")
    assert changed != pytest.approx(reached, rel=1e-6)


def test_reader_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "cone.task"
    import cvxpy as cp

    x = cp.Variable(2)
    problem = cp.Problem(cp.Minimize(x[0]), [cp.norm(x) <= 1])
    with contextlib.suppress(mosek.Error):
        problem.solve(solver="MOSEK", save_file=str(path))
    with pytest.raises(NotImplementedError, match="cones"):
        read(path)


# --- without a licence ---------------------------------------------------------------------------


@pytest.fixture
def _no_licence() -> None:
    if backend().availability().ready:
        pytest.skip("this machine has a MOSEK licence")


@pytest.mark.usefixtures("_no_licence")
def test_solve_without_a_licence() -> None:
    with pytest.raises(InputError) as error:
        solve(PROBLEMS["florentine"], backend="mosek")
    assert error.value.field == "backend"
    text = str(error.value)
    assert "mosek, which is not licensed" in text
    assert "https://www.mosek.com/license/request" in text
    assert "MOSEKLM_LICENSE_FILE" in text
    assert "\n" not in text


@pytest.mark.usefixtures("_no_licence")
def test_availability_without_a_licence() -> None:
    available = backend().availability()
    assert available.installed
    assert available.version
    assert (available.licensed, available.ready) == (False, False)
    assert "err_missing_license_file" in available.remedy


def test_formulations_are_refused_before_the_licence_is_asked_for() -> None:
    with pytest.raises(InputError, match="several epochs"):
        solve(PROBLEMS["epochs"], backend="mosek", formulation="paper")


def test_solve_with_a_licence() -> None:
    if not backend().availability().ready:
        pytest.skip(f"mosek: {backend().availability().remedy}")
    for name, formulation in CASES:
        native = solve(PROBLEMS[name], gap=1e-9).certificate
        found = solve(PROBLEMS[name], backend="mosek", formulation=formulation, gap=1e-6)
        assert found.status == "optimal"
        assert native is not None
        assert found.certificate is not None
        assert found.certificate.objective == pytest.approx(native.objective, rel=2e-6)
