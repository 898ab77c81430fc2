"""The price of not knowing the horizon as a design of its own, against slow decompositions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.system.workloads.factorization_norm import best_shares, least_errors
from tests.support import ROOT, oracles

KEY = "unknown-horizon"
FILE = (ROOT / "problems/unbounded/unknown-horizon-64.toml").read_text()


def known(rows: np.ndarray) -> oracles.Interval:
    return oracles.worst_step_interval(rows[:, None, :], width=1e-9, most=100_000)


def ones(steps: int) -> np.ndarray:
    return np.tril(np.ones((steps, steps)))


def test_least_errors_are_below_and_near_those_of_decompositions() -> None:
    found = least_errors(48)
    assert found[0] == pytest.approx(1, abs=2e-8)  # one step: its own noise
    for t in (2, 3, 7, 20, 33, 48):
        exact = known(ones(t))
        assert exact.lower**0.5 * (1 - 2e-6) <= found[t - 1] <= exact.upper**0.5
    assert (np.diff(found) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 2.0


def test_shares_of_weighted_steps_have_both_ends_of_decompositions() -> None:
    weights = np.array([1.0, 0.2, 2.0, 0.01, 1.5, 1.0])  # the fourth step is never the worst
    exact = known(ones(6) * np.sqrt(weights)[:, None])
    found = best_shares(weights, gap=1e-6)
    assert found.lower <= exact.upper**0.5 * (1 + 1e-9)
    assert exact.lower**0.5 * (1 - 1e-9) <= found.upper <= found.lower * (1 + 1e-6)


def test_the_design_has_the_least_largest_ratio() -> None:
    least = np.array([known(ones(t)).lower for t in range(1, 9)])
    exact = known(ones(8) / np.sqrt(least)[:, None])
    error = nd.ErrorMeasure(horizon=8, of="worst", step_weights=KEY)
    problem = nd.TimeProblem.prefix(participation=nd.participation.single(8), error=error)
    design = nd.solve(problem, gap=1e-6).design
    assert design is not None
    assert design.certificate.lower_bound == pytest.approx(exact.lower, rel=3e-6)
    # Ratios by the definition, from the matrix alone.
    noising = np.linalg.inv(design.strategy)
    ratios = np.square(np.cumsum(noising, axis=0)).sum(axis=1) / least
    assert ratios.max() == pytest.approx(design.objective, rel=3e-6)
    assert math.sqrt(ratios.max()) > 1.1  # which is what is to pay


def test_files_hold_it_and_verify_judges_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(FILE.replace("64", "12"))
    loaded = nd.load(path)
    solution = nd.solve(loaded, gap=1e-4)
    stored = nd.load(nd.save(solution.design, tmp_path / "run.npz"))
    assert nd.verify(stored, problem=loaded, rigorous=True).ok
    path.write_text(FILE.replace("64", "12").replace(f'"{KEY}"', "1.0"))
    assert not nd.verify(stored, problem=nd.load(path)).ok


def test_a_long_run_begins_where_shares_end() -> None:
    error = nd.ErrorMeasure(horizon=128, of="worst", step_weights=KEY)
    problem = nd.TimeProblem.prefix(participation=nd.participation.single(128), error=error)
    solution = nd.solve(problem, gap=1e-4)
    assert solution.design is not None
    assert solution.design.provenance.evaluations <= 4  # twenty from even shares
    below = best_shares(least_errors(128) ** -2, gap=1e-6)
    assert solution.design.objective == pytest.approx(below.upper**2, rel=2e-4)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ((f'"{KEY}"', '"unknown"'), "error.step_weights"),
        (('of = "worst"', 'of = "all-iterates"'), "error"),
        (("horizon = 64", "horizon = 4097"), "horizon"),
        (('kind = "single"\nhorizon = 64', "epochs = 2\nseparation = 8"), "error.step_weights"),
        (
            ('kind = "prefix"', 'kind = "decentralized"\n\n[graph]\nkind = "ring"\nnodes = 4'),
            "error.step_weights",
        ),
    ],
)
def test_bad_tables_are_refused_by_name(
    change: tuple[str, str], field: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.toml"
    assert change[0] in FILE
    path.write_text(FILE.replace(*change, 1))
    with pytest.raises(nd.InputError) as refused:
        nd.load(path)
    assert field in refused.value.field


def test_bad_errors_are_refused_by_name() -> None:
    for wrong in ({"of": "worst", "step_weights": "known"}, {"step_weights": KEY}):
        with pytest.raises(nd.InputError) as refused:
            nd.ErrorMeasure(horizon=4, **wrong)  # type: ignore[arg-type]
        assert refused.value.field == "step_weights"
    error = nd.ErrorMeasure(horizon=4, of="worst", step_weights=KEY)
    assert error.unknown_horizon
    assert not replace(error, step_weights=np.ones(4)).unknown_horizon
