"""The contract every family keeps, over problems whose optimum is known without the library."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.families.family import family_at, family_of
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.forms.registry import REGISTRY
from noisedesign.problem.problem import Problem, TimeProblem
from noisedesign.system.participation import single
from noisedesign.system.workloads.toeplitz import prefix_workload
from tests.support.family_cases import CASES
from tests.support.family_contract import Kept

every_case = pytest.mark.parametrize("name", CASES)


@cache
def kept(name: str) -> Kept:
    """A case, solved once for all tests."""
    case = CASES[name]
    optimum = case.optimum()
    bounded = optimum if case.bounded is None else case.bounded()
    return Kept(
        case.problem, optimum=optimum, bounded=bounded, tight=case.tight, excess=case.excess
    )


def other(problem: Problem) -> Problem | None:
    """Of the same size, with another error; None where every error is a multiple of this."""
    if isinstance(problem, TimeProblem):
        if len(problem.gram) == 1:
            return None
        if problem.worst:
            tilt = np.linspace(1.0, 2.0, len(problem.gram))
            return replace(problem, error=replace(problem.error, step_weights=tilt))
        tilted = np.diag(np.linspace(1.0, 2.0, len(problem.gram)))
        return replace(problem, gram=tilted @ problem.gram @ tilted)
    mixing = problem.dense().mixing
    if len(mixing) < 3:
        return None
    # Weights halved beside the diagonal, and those of one link halved again.
    w = (mixing + np.eye(len(mixing))) / 2
    i, j = next(zip(*np.nonzero(np.triu(w, 1)), strict=True))
    moved = w[i, j] / 2
    w[[i, j], [j, i]] -= moved
    w[[i, j], [i, j]] += moved
    return replace(problem, mixing=w)


def test_every_line_of_the_registry_has_a_case() -> None:
    assert {case.problem.feasible_set for case in CASES.values()} == set(REGISTRY)
    assert {case.family for case in CASES.values()} == {family_at(*key).name for key in REGISTRY}


@every_case
def test_the_family_is_found(name: str) -> None:
    assert family_of(CASES[name].problem).name == CASES[name].family


@every_case
def test_the_noise_is_as_good_as_any(name: str) -> None:
    kept(name).noise_is_as_good_as_any()


@pytest.mark.parametrize("name", CASES)
def test_the_seconds_of_its_solver_are_told(name: str) -> None:
    found = solve(CASES[name].problem)
    assert 0 < found.solve_seconds <= found.seconds
    assert found.design is not None
    assert found.design.provenance.solve_seconds == found.solve_seconds


@every_case
def test_the_bound_is_none_too_high_and_reaches_the_optimum(name: str) -> None:
    kept(name).bound_is_none_too_high_and_reaches_the_optimum()


@every_case
def test_the_bound_over_more_noise_is_no_higher(name: str) -> None:
    kept(name).bound_over_more_noise_is_no_higher()


@every_case
def test_its_own_design_is_accepted(name: str, tmp_path: Path) -> None:
    kept(name).own_design_is_accepted(tmp_path)


@every_case
def test_arrays_go_to_a_file_and_back(name: str, tmp_path: Path) -> None:
    kept(name).arrays_go_to_a_file_and_back(tmp_path)


@every_case
def test_the_proof_is_what_it_says(name: str) -> None:
    kept(name).proof_is_what_it_says()


@every_case
def test_quieter_noise_is_refused(name: str) -> None:
    kept(name).quieter_noise_is_refused()


@every_case
def test_noise_of_another_structure_is_refused(name: str) -> None:
    kept(name).noise_of_another_structure_is_refused()


@every_case
def test_raised_bounds_are_refused(name: str) -> None:
    kept(name).raised_bounds_are_refused()


@every_case
def test_no_multipliers_prove_too_much(name: str) -> None:
    kept(name).no_multipliers_prove_too_much(other(CASES[name].problem))


@every_case
def test_the_model_has_the_same_optimum(name: str) -> None:
    kept(name).model_has_the_same_optimum()


@every_case
def test_a_conic_solver_finds_the_same(name: str) -> None:
    kept(name).conic_solver_finds_the_same()


@every_case
def test_independent_noise_is_feasible(name: str) -> None:
    kept(name).independent_noise_is_feasible()


@pytest.mark.parametrize("horizon", [40, 600])
def test_the_bound_of_streams_is_that_of_equal_multipliers(horizon: int) -> None:
    """(tr H^1/2)^2 / T; prefix sums have singular values 1 / (2 sin((2 k - 1) pi / (4 T + 2)))."""
    angles = (2 * np.arange(1, horizon + 1) - 1) * np.pi / (4 * horizon + 2)
    exact = float((0.5 / np.sin(angles)).sum() ** 2 / horizon)
    found = lower_bound_of_unrestricted_optimum(prefix_workload(horizon=horizon), single(horizon))
    assert found == pytest.approx(exact, rel=1e-10)
    assert found < exact
