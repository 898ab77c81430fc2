"""Overlapping patterns by conic solvers: their models are read back to certified optima."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.families.overlapping.family import overlapping_program
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import MinSeparation, Patterns
from tests.support.banded_cases import min_sep, prefix, random_gram
from tests.support.models_in_time import SOLVERS, native, through


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("scheme", "unit"),
    [(min_sep(12, 4, 3), 1.0), (min_sep(8, 3, 8), 1e6), (min_sep(7, 5, 2), 1e-6)],
    ids=str,
)
def test_prefix_sums_are_certified(scheme: MinSeparation, unit: float, solver: str) -> None:
    """At most two participations 5 of 7 steps apart: some patterns have one step only."""
    problem = TimeProblem(gram=unit * prefix(scheme.horizon), participation=scheme)
    found, ours = through(problem, solver), native(problem)
    assert found.feasible
    assert found.gap <= 1e-5
    assert found.objective == pytest.approx(ours.objective, rel=1e-5)


@pytest.mark.parametrize("solver", ["scs", "clarabel"])
def test_any_workload_is_certified(solver: str) -> None:
    problem = TimeProblem(gram=random_gram(6, 3), participation=min_sep(6, 2, 2))
    found = through(problem, solver)
    assert found.feasible
    assert found.gap <= 1e-5


def test_a_step_in_no_pattern_is_refused() -> None:
    with pytest.raises(InputError, match="none with step 2"):
        overlapping_program(
            gram=np.eye(4), participation=Patterns(horizon=4, steps=((0, 1), (1, 3)))
        )
