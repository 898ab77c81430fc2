"""The worst node, and the worst pair of node and step: in space, in time, in both."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.families.family import family_of
from noisedesign.privacy import views
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem
from tests.support import oracles
from tests.support.command_line import call, write
from tests.support.space_time_cases import patterns_of, stacked_workload

PATH = (oracles.metropolis(nx.path_graph(3)) + np.eye(3)) / 2
KINDS = ("worst", "worst-node", "worst-iterate")
TAU = np.array([1.0, 2.0, 0.5])


def in_space(of: str, w: np.ndarray = PATH, *, horizon: int = 1, **of_error: Any) -> SpaceProblem:
    given = {"max_variance": of_error.pop("cap", None), "budget": of_error.pop("budget", 1.0)}
    error = nd.ErrorMeasure(horizon=horizon, of=of, **of_error)
    return SpaceProblem(mixing=w, error=error, **given)


def in_both(of: str, w: np.ndarray = PATH, **of_error: Any) -> SpaceTimeProblem:
    budget = of_error.pop("budget", 1.0)
    error = nd.ErrorMeasure(horizon=4, of=of, **of_error)
    use = nd.participation.FixedEpoch(epochs=2, separation=2)
    return SpaceTimeProblem(mixing=w, participation=use, joint="full", error=error, budget=budget)


def solved(problem: Problem, gap: float = 1e-6) -> Design:
    solution = nd.solve(problem, gap=gap)
    assert solution.status == "optimal"
    assert solution.design is not None
    return solution.design


def joined(rows: np.ndarray, of: str, weights: np.ndarray) -> np.ndarray:
    """Gram matrices of the errors, from rows (T, n, r, m) of every step and node."""
    each = np.einsum("tirm,tirk->timk", rows, rows) * weights[:, :, None, None]
    size = rows.shape[-1]
    grams = {
        "worst": each.sum(axis=1),
        "worst-node": each.sum(axis=0),
        "worst-iterate": each.reshape(-1, size, size),
    }
    return grams[of]


def rows_in_space(w: np.ndarray, horizon: int) -> np.ndarray:
    """Of node i after step t: its rows of the powers of W that noise has come through."""
    powers = [np.linalg.matrix_power(w, s + 1) for s in range(horizon)]
    rows = np.zeros((horizon, len(w), horizon, len(w)))
    for t, s in itertools.product(range(horizon), repeat=2):
        if s <= t:
            rows[t, :, s] = powers[t - s]
    return rows


def rows_in_both(w: np.ndarray, horizon: int) -> np.ndarray:
    stacked = stacked_workload(w, horizon)
    return stacked.reshape(horizon, len(w), 1, len(stacked))


def test_alike_nodes_share_what_the_sum_costs() -> None:
    """On a complete graph with lazy nodes none is worse off than another."""
    w = 0.5 * np.eye(4) + 0.5 * np.full((4, 4), 0.25)
    known = oracles.vertex_transitive_optimum(w)
    design = solved(in_space("worst-node", w))
    assert design.objective == pytest.approx(known / 4, rel=1e-6)
    assert solved(in_space("worst-iterate", w)).objective == pytest.approx(known / 4, rel=1e-6)
    assert solved(in_space("worst", w)).objective == pytest.approx(known, rel=1e-6)


def test_one_node_alone_costs_at_least_its_largest_weight() -> None:
    """H = w w^T has the optimum max w_i^2, and no noise is better for the worst node."""
    design = solved(in_space("worst-node"))
    assert design.objective == pytest.approx(float(np.square(PATH).max()), rel=1e-6)


def test_two_nodes_by_hand() -> None:
    """One number, the correlation, is free: all of it is tried."""
    w = np.array([[0.5, 0.5], [0.25, 0.75]])
    design = solved(in_space("worst-node", w, cap=50.0))
    best = np.inf
    for r in np.linspace(-0.999, 0.999, 4001):
        # R^-1 of ones on its diagonal and -r beside: R = [[1, r], [r, 1]] / (1 - r^2).
        covariance = np.array([[1, r], [r, 1]]) / (1 - r * r)
        best = min(best, float(np.diag(w @ covariance @ w.T).max()))
    assert design.objective == pytest.approx(best, rel=1e-5)


def test_the_best_shares_by_trying_all() -> None:
    grams = joined(rows_in_space(PATH, 1), "worst-node", np.ones((1, 3)))
    best = 0.0
    for powers in itertools.product(range(7), repeat=3):
        if min(powers) == 0:
            q = 10.0 ** (-np.array(powers) / 2)
            weighted = np.einsum("i,ijk->jk", q / q.sum(), grams)
            best = max(best, oracles.diagonal_interval(weighted, width=1e-4).lower)
    objective = solved(in_space("worst-node")).objective
    assert best <= objective <= best * (1 + 2e-3)


@pytest.mark.parametrize("of", KINDS)
def test_space_against_a_conic_model(of: str) -> None:
    """Uneven budgets, weights and a cap."""
    steps, nodes = np.array([1.0, 0.5, 2.0]), np.array([1.0, 2.0, 0.5])
    problem = in_space(of, horizon=3, step_weights=steps, node_weights=nodes, cap=3.0, budget=TAU)
    design = solved(problem)
    grams = joined(rows_in_space(PATH, 3), of, np.outer(steps, nodes))
    known = oracles.worst_by_cone(grams, [[0], [1], [2]], budget=TAU, cap=3.0)
    assert design.objective == pytest.approx(known, rel=3e-6)
    assert len(design.proof["target_shares"]) == len(grams)
    errors = [float(np.sum(gram * design.covariance)) for gram in grams]
    assert max(errors) == pytest.approx(design.objective, rel=1e-12)
    assert float(np.diag(design.covariance).max()) <= 3.0
    assert (np.diag(np.linalg.inv(design.covariance)) <= TAU * (1 + 1e-12)).all()


@pytest.mark.parametrize("of", KINDS)
def test_space_and_time_against_a_conic_model(of: str) -> None:
    steps = np.array([1.0, 0.5, 2.0, 1.0])
    design = solved(in_both(of, step_weights=steps, budget=TAU))
    grams = joined(rows_in_both(PATH, 4), of, np.outer(steps, np.ones(3)))
    budget = np.tile(TAU, 2)
    known = oracles.worst_by_cone(grams, patterns_of(3, 2, 2), budget=budget)
    assert design.objective == pytest.approx(known, rel=3e-6)
    noise = np.linalg.inv(design.strategy)
    errors = [float(np.sum(gram * (noise @ noise.T))) for gram in grams]
    assert max(errors) == pytest.approx(design.objective, rel=1e-10)


@pytest.mark.parametrize("of", ["worst-node", "worst-iterate"])
def test_time_against_a_conic_model(of: str) -> None:
    """Every node draws the same noise for itself."""
    use = nd.participation.FixedEpoch(epochs=2, separation=2)
    error = nd.ErrorMeasure(horizon=4, of=of)
    problem = nd.TimeProblem.decentralized(mixing=PATH, participation=use, error=error)
    rows = stacked_workload(PATH, 4).reshape(4, 3, 4, 3)
    grams = joined(rows.transpose(0, 1, 3, 2), of, np.ones((4, 3)))
    known = oracles.worst_by_cone(grams, [[0, 2], [1, 3]])
    assert solved(problem).objective == pytest.approx(known, rel=3e-6)


def test_what_is_shared_out_by_two_kinds() -> None:
    """The worst of pairs is at most the worst step, of which it is a part, and a share of it."""
    by_kind = {of: solved(in_both(of)).objective for of in KINDS}
    assert by_kind["worst-iterate"] <= by_kind["worst"] <= 3 * by_kind["worst-iterate"]
    assert by_kind["worst-iterate"] <= by_kind["worst-node"] <= 4 * by_kind["worst-iterate"]


def test_errors_without_weight_are_no_targets() -> None:
    design = solved(
        in_space("worst-iterate", horizon=2, step_weights=[0, 1], node_weights=[1, 0, 1])
    )
    assert design.proof["target_shares"].shape == (2,)


@pytest.mark.parametrize(
    "problem",
    [in_space("worst-iterate", horizon=2, cap=4.0), in_both("worst"), in_both("worst-node")],
    ids=["space", "steps", "nodes"],
)
def test_files_are_verified_proved_and_simulated(problem: Problem, tmp_path: Path) -> None:
    design = solved(problem)
    path = nd.save(design, tmp_path / "d.npz")
    checked = nd.verify(nd.load(path), rigorous=True)
    assert checked.ok
    assert checked.proof is not None
    assert checked.proof.rigorous
    assert checked.proof.gap <= 2e-6
    assert nd.simulate(design, runs=400, seed=1).variance.agrees
    assert sum(design.prices.values()) > 0
    low = replace(design.certificate, objective=0.9 * design.objective)
    nd.save(replace(design, certificate=low), tmp_path / "lie.npz")
    assert not nd.verify(nd.load(tmp_path / "lie.npz")).ok
    # Shares of any sum prove the same.
    family = family_of(problem)
    program = family.program(problem)
    many = {**design.proof, "target_shares": 1e3 * design.proof["target_shares"]}
    once, times = (family.rigorous_bound(program, proof) for proof in (design.proof, many))
    assert times.lower == pytest.approx(once.lower, rel=1e-9)
    assert once.lower <= design.objective
    judged = family.rigorous_judge(program, design.noise, design.proof)
    errors = program.errors(design.noise)
    assert judged.objective.lower <= errors.max() * (1 + 1e-12)
    assert errors.max() <= judged.objective.upper <= errors.max() * (1 + 1e-9)


@pytest.mark.parametrize(
    "problem",
    [
        in_space("worst-node", budget=TAU),
        pytest.param(in_both("worst-iterate", budget=TAU), marks=pytest.mark.slow),
    ],
    ids=["space", "space and time"],
)
def test_a_conic_solver_finds_the_same(problem: Any) -> None:
    found = nd.solve(problem, backend="clarabel", gap=1e-5)
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.objective == pytest.approx(solved(problem).objective, rel=2e-5)


def test_a_conic_model_of_the_largest_error_has_no_limits() -> None:
    with pytest.raises(InputError, match="no limits, for a model of the largest error"):
        nd.solve(in_space("worst-node", cap=3.0), backend="clarabel")


def test_baselines_are_judged_by_the_largest_error() -> None:
    problem = in_space("worst-node", budget=TAU)
    independent = np.diag(PATH @ np.diag(1 / TAU) @ PATH.T).max()
    assert nd.baseline(problem, "ldp").objective == pytest.approx(independent)
    assert solved(problem).ldp_objective == pytest.approx(independent)
    assert "cdp" not in nd.baseline_names(problem)
    assert nd.baseline(in_both("worst"), "whisper").certificate.feasible


FILE = """
name = "w"
design = "space"
[graph]
kind = "path"
nodes = 4
[limits]
max_variance = 20.0
[error]
of = "worst-node"
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (FILE + '[structure]\nspace = "edge-local"\n', "structure.space"),
        (
            FILE.replace('"space"', '"space-time"')
            + "[participation]\nepochs = 1\nseparation = 2\n",
            "joint",
        ),
        (FILE.replace("worst-node", "worst-edge"), "error"),
        (
            FILE.replace("[limits]\nmax_variance = 20.0\n", "")
            + '[structure]\nspace = "polynomial"\n',
            "error",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, text: str, key: str) -> None:
    outcome = call("solve", write(tmp_path, text))
    assert (outcome.code, key in outcome.err) == (2, True), outcome.err


def test_the_command_solves_a_file(tmp_path: Path) -> None:
    assert call("solve", write(tmp_path, FILE)).code == 0


def test_wrong_problems_are_refused() -> None:
    error = nd.ErrorMeasure(horizon=1, of="worst-node")
    with pytest.raises(InputError, match="observers: expected nothing beside the error"):
        SpaceProblem(mixing=PATH, error=error, max_variance=5.0, observers=(views.ldp(),))
    for joint in ("kronecker", "modal"):
        with pytest.raises(InputError, match=r'structure\.joint: .*"worst-node".*and not "full"'):
            SpaceTimeProblem(
                mixing=PATH, participation=nd.participation.single(1), error=error, joint=joint
            )
    alone = nd.ErrorMeasure(horizon=3, of="worst-iterate")
    with pytest.raises(InputError, match='error: expected none but of = "worst" of prefix sums'):
        nd.TimeProblem.prefix(participation=nd.participation.single(3), error=alone)


@pytest.mark.parametrize("of", ["worst-node", "worst-iterate"])
@pytest.mark.parametrize("seed", range(3))
def test_uneven_budgets_of_a_ring_are_solved(seed: int, of: str) -> None:
    """Means of noise at uneven budgets are a rounding above them, unless they are rescaled."""
    budget = np.random.default_rng(seed).uniform(0.3, 2.0, 4)
    ring = nd.build_graph("ring", nodes=4)
    error = nd.ErrorMeasure(horizon=2, of=of)
    solution = nd.solve(nd.SpaceProblem.from_graph(ring, budget=budget, error=error))
    assert solution.status == "optimal"


def test_noise_that_nothing_bounds_is_told() -> None:
    """A ring of six averages the alternating vector away. Rounding decides whether its eigenvalue
    is 0, and such noise refused, or a rounding above, and such noise told."""
    ring = nd.build_graph("ring", nodes=6)
    error = nd.ErrorMeasure(horizon=1, of="worst")
    try:
        told = nd.solve(nd.SpaceProblem.from_graph(ring, error=error, max_variance="none")).remedy
    except InputError as refused:
        told = str(refused)
    assert "max_variance" in told
    capped = nd.SpaceProblem.from_graph(ring, error=error, max_variance=10.0)
    assert nd.solve(capped).remedy == ""
