"""The worst step against alternating decompositions, a conic model, and its own symmetries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath as mp
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.families.family import family_of
from noisedesign.families.worst.program import WorstProgram
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import Participation
from noisedesign.system.workloads import ErrorMixture
from tests.support import oracles
from tests.support.command_line import call, write

PATH = nd.mixing_matrix(nx.path_graph(4))
TWICE = nd.participation.FixedEpoch(epochs=2, separation=3)


def worst(use: Participation, **of: Any) -> TimeProblem:
    error = nd.ErrorMeasure(horizon=use.horizon, of="worst", **of)
    return TimeProblem.prefix(participation=use, error=error)


def in_network(use: Participation, **of: Any) -> TimeProblem:
    error = nd.ErrorMeasure(horizon=use.horizon, of="worst", **of)
    return TimeProblem.decentralized(mixing=PATH, participation=use, error=error)


def solved(problem: TimeProblem, gap: float = 1e-6) -> Design:
    solution = nd.solve(problem, gap=gap)
    assert solution.status == "optimal"
    assert solution.design is not None
    return solution.design


def step_grams(steps: int, *, momentum: float = 0.0) -> list[np.ndarray]:
    """H_t by running models under the noise of one step and one node after another."""
    n = len(PATH)
    states = np.zeros((steps, steps, n, n))  # after step t, of a unit at step s, node by node
    for s in range(steps):
        x, m = np.zeros((n, n)), np.zeros((n, n))
        for t in range(steps):
            m = momentum * m + (np.eye(n) if t == s else 0.0)
            x = PATH @ (x + m)
            states[t, s] = x
    return [np.einsum("sij,uij->su", at, at) for at in states]


def test_prefix_sums_have_the_factorization_norm() -> None:
    rows = np.tril(np.ones((24, 24)))[:, None, :]
    known = oracles.worst_step_interval(rows, width=1e-8)
    design = solved(worst(nd.participation.single(24)))
    assert known.lower <= design.objective * (1 + 1e-12)
    assert design.lower_bound <= known.upper
    assert design.gap <= 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_two_epochs_in_a_network_against_a_conic_model(momentum: float) -> None:
    design = solved(in_network(TWICE, momentum=momentum))
    grams = np.array(step_grams(6, momentum=momentum))
    known = oracles.worst_by_cone(grams, [[0, 3], [1, 4], [2, 5]])
    assert design.objective == pytest.approx(known, rel=1e-5)
    covariance = design.noising_matrix @ design.noising_matrix.T
    errors = [float(np.sum(gram * covariance)) for gram in grams]
    assert max(errors) == pytest.approx(design.objective, rel=1e-10)


def test_overlapping_patterns_against_a_conic_model() -> None:
    use = nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2)
    design = solved(worst(use))
    rows = np.tril(np.ones((4, 4)))
    known = oracles.worst_by_cone(np.einsum("ts,tu->tsu", rows, rows), [[0, 2], [0, 3], [1, 3]])
    assert design.objective == pytest.approx(known, rel=1e-5)


def test_weights_of_steps_are_targets() -> None:
    """With the errors of the best design for even weights as targets, that design is best."""
    use = nd.participation.single(5)
    even = solved(worst(use), gap=1e-8)
    weights = np.linspace(1.0, 3.0, 5)
    tilted = solved(worst(use, step_weights=weights))
    rows = (np.sqrt(weights)[:, None] * np.tril(np.ones((5, 5))))[:, None, :]
    assert tilted.objective == pytest.approx(oracles.worst_step_interval(rows).upper, rel=1e-6)
    assert even.objective <= tilted.objective <= 3 * even.objective


def test_a_step_without_weight_may_have_any_error() -> None:
    """Only the last sum counts: z_T alone enters it beside what is taken back, so 1 is best."""
    design = solved(worst(nd.participation.single(3), step_weights=[1.0, 1e-9, 1e-9]), gap=1e-4)
    assert design.objective == pytest.approx(1.0, rel=1e-3)


def test_it_gains_on_the_sum_and_the_sum_on_it() -> None:
    summed = nd.solve(TimeProblem.prefix(participation=TWICE)).design
    assert summed is not None
    best = solved(worst(TWICE))
    errors = np.square(np.cumsum(summed.noising_matrix, axis=0)).sum(axis=1)
    assert best.objective < 0.95 * errors.max()
    own = np.square(np.cumsum(best.noising_matrix, axis=0)).sum(axis=1)
    assert own.sum() >= summed.lower_bound


def test_shares_that_were_changed_prove_less() -> None:
    problem = worst(nd.participation.single(8))
    design, family = solved(problem), family_of(problem)
    program = family.program(problem)
    found = family.bound(program, design.proof).value
    assert found == pytest.approx(design.lower_bound)
    shares = design.proof["target_shares"]
    even = {**design.proof, "target_shares": np.ones(8)}
    assert family.bound(program, even).value < found
    times = {**design.proof, "target_shares": 1e3 * shares}
    assert family.bound(program, times).value == pytest.approx(found)
    for wrong in (-shares, shares * np.nan):
        assert family.bound(program, {**design.proof, "target_shares": wrong}).value == 0.0


def test_a_file_is_verified_and_simulated(tmp_path: Path) -> None:
    design = solved(in_network(TWICE))
    nd.save(design, tmp_path / "d.npz")
    assert nd.verify(nd.load(tmp_path / "d.npz")).ok
    assert nd.simulate(design, runs=400, seed=1).variance.agrees
    claimed = replace(design.certificate, objective=0.9 * design.objective)
    nd.save(replace(design, certificate=claimed), tmp_path / "lie.npz")
    assert not nd.verify(nd.load(tmp_path / "lie.npz")).ok
    alone = solved(worst(nd.participation.single(3)))
    nd.save(alone, tmp_path / "p.npz")
    assert nd.verify(nd.load(tmp_path / "p.npz")).ok


def test_prefix_sums_are_proved_with_every_rounding() -> None:
    """Roots of shares, squared, are those shares but for a rounding, which the proof divides by."""
    design = solved(worst(TWICE, step_weights=[1.0, 2.0, 1.0, 1.5, 1.0, 3.0]))
    proof = nd.verify(design, rigorous=True).proof
    assert proof is not None
    assert proof.rigorous
    assert proof.gap <= design.gap + 1e-11
    program = family_of(design.problem).program(design.problem)
    judged = family_of(design.problem).rigorous_judge(program, design.noise, design.proof)
    exact = mp.matrix(design.strategy.tolist()) ** -1
    weights = [mp.mpf(weight) for weight in design.problem.error.steps]
    largest = max(
        weight * sum(sum(exact[r, c] for r in range(t + 1)) ** 2 for c in range(6))
        for t, weight in enumerate(weights)
    )
    assert judged.objective.lower <= largest <= judged.objective.upper
    assert judged.objective.upper <= largest * (1 + 1e-12)
    apart = nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2)
    overlapping = nd.verify(solved(worst(apart)), rigorous=True).proof
    assert overlapping is not None
    assert not overlapping.rigorous
    assert "(k, b) participation" in overlapping.why_not


def test_baselines_are_judged_by_the_worst_step() -> None:
    problem = worst(nd.participation.single(4))
    assert "cdp" not in nd.baseline_names(problem)
    ones = np.tril(np.ones((4, 4)))
    taken_back = nd.baseline(problem, "antipgd").objective  # C of ones: errors 1 each, times 4
    assert taken_back == pytest.approx(4 * np.square(ones @ np.linalg.inv(ones)).sum(1).max())
    assert nd.baseline(problem, "ldp").objective == pytest.approx(4.0)


def test_prices_add_up_to_one() -> None:
    assert sum(solved(worst(TWICE)).prices.values()) == pytest.approx(1.0)


FILE = """
name = "w"
design = "time"
[workload]
kind = "prefix"
[participation]
epochs = 1
separation = 4
[error]
of = "worst"
"""


def test_the_command_solves_a_file(tmp_path: Path) -> None:
    assert call("solve", write(tmp_path, FILE)).code == 0


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (FILE + "momentum = 0.5\n", "error"),
        (FILE.replace("worst", "last-iterate"), "error"),
        (FILE + "[structure]\ntime = 'toeplitz'\n", "structure"),
        (FILE + "[limits]\nmax_variance = 3.0\n", "limits.max_variance"),
        (FILE + "step_weights = [1, 2]\n", "error.step_weights"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, key: str) -> None:
    outcome = call("solve", write(tmp_path, text))
    assert (outcome.code, key in outcome.err) == (2, True)


def test_wrong_problems_are_refused() -> None:
    error = nd.ErrorMeasure(horizon=1, of="worst")
    with pytest.raises(InputError, match="of"):
        ErrorMixture(shares=[1.0], measures=[error])
    with pytest.raises(InputError, match=r"error\.of: expected at most 372 errors of 600 x 600"):
        WorstProgram.of(in_network(nd.participation.single(600)))
    overlapping = nd.participation.MinSeparation(horizon=4, separation=2, max_participations=2)
    with pytest.raises(InputError, match="model of the largest error"):
        nd.solve(worst(overlapping), backend="clarabel")


def test_a_conic_solver_finds_the_same_in_a_network() -> None:
    found = nd.solve(in_network(TWICE), backend="clarabel", gap=1e-5)
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.objective == pytest.approx(solved(in_network(TWICE)).objective, rel=2e-5)
