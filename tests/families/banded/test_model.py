"""Banded strategies by conic solvers: their models are read back to certified optima."""

from __future__ import annotations

import pytest

from noisedesign.files.problem_file import load_problem
from noisedesign.forms.structure import TimeStructure
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import FixedEpoch, Participation, single
from tests.support import ROOT
from tests.support.banded_cases import min_sep, prefix, random_gram
from tests.support.models_in_time import SOLVERS, native, through

SHIPPED = ("prefix-banded-min-separation", "ring-12-banded-3x8")
SCHEMES: list[Participation] = [
    single(7),
    FixedEpoch(epochs=3, separation=4),
    min_sep(9, 3, 9),
    min_sep(10, 3, 2),
]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_problems_are_certified(name: str, solver: str) -> None:
    problem = load_problem(ROOT / "problems" / "time-structures" / f"{name}.toml").problem
    found, ours = through(problem, solver), native(problem)
    assert found.feasible
    assert found.gap <= 1e-5
    assert found.objective == pytest.approx(ours.objective, rel=1e-5)


@pytest.mark.parametrize("solver", ["scs", "clarabel"])
@pytest.mark.parametrize("bands", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_models_mean_the_same_in_every_unit(scheme: Participation, bands: int, solver: str) -> None:
    for gram in (1e6 * prefix(scheme.horizon), 1e-6 * random_gram(scheme.horizon, bands)):
        structure = TimeStructure(kind="banded", bands=bands)
        problem = TimeProblem(gram=gram, participation=scheme, structure=structure)
        found = through(problem, solver)
        assert found.feasible
        assert found.gap <= 1e-5
