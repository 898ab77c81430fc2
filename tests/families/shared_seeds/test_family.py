"""Spatial designs of shared seeds through ``solve``: a conic solver, nesting, closed forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest

from noisedesign.design.design import seed_plan_of
from noisedesign.design.solve import OPTIMAL, solve
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.tasks.verify import verify

PATH_4 = mixing_matrix(build_graph("path", nodes=4))
RING_5 = mixing_matrix(build_graph("ring", nodes=5))
STAR_5 = mixing_matrix(build_graph("star", nodes=5), weights="lazy-metropolis-hastings")
GRAPHS = {"path": PATH_4, "ring": RING_5, "star": STAR_5}

EDGES = SpaceStructure(kind="edge-local")
STRUCTURES = {
    "edge-local": EDGES,
    "two hops": SpaceStructure(kind="hops", hops=2),
    "neighbourhood": SpaceStructure(kind="neighbourhood"),
    "independent": SpaceStructure(kind="independent"),
}


def members(structure: SpaceStructure, w: np.ndarray) -> list[tuple[int, ...]]:
    """Who may share a seed, from powers of the adjacency matrix."""
    n = len(w)
    joined = (w != 0) | np.eye(n, dtype=bool)
    if structure.kind == "neighbourhood":
        return [tuple(np.flatnonzero(row)) for row in joined]
    if structure.kind == "clusters":
        assert structure.clusters is not None
        labels = np.array(structure.clusters)
        return [tuple(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    alone: list[tuple[int, ...]] = [(i,) for i in range(n)]
    if structure.kind == "independent":
        return alone
    near = np.linalg.matrix_power(joined.astype(float), structure.hops or 1) > 0
    return [(i, j) for i, j in combinations(range(n), 2) if near[i, j]] + alone


def clarabel(
    w: np.ndarray, structure: SpaceStructure, *, cap: float | None = None, tau: float = 1.0
) -> float:
    """The optimum by a model of its own: [[R_A, I], [I, Y]] >= 0, diag(Y) <= tau."""
    import cvxpy as cp

    n = len(w)
    groups = members(structure, w)
    blocks = [cp.Variable((len(g), len(g)), PSD=True) for g in groups]
    pick = [np.eye(n)[:, list(g)] for g in groups]
    constraints: list[Any] = []
    total = sum(e @ p @ e.T for e, p in zip(pick, blocks, strict=True))
    for known in combinations(range(n), structure.known_seeds):
        rest = [i for i in range(n) if i not in known]
        unknown = sum(
            e @ p @ e.T
            for g, e, p in zip(groups, pick, blocks, strict=True)
            if not set(g) & set(known)
        )[rest][:, rest]
        precision = cp.Variable((len(rest), len(rest)), symmetric=True)
        eye = np.eye(len(rest))
        constraints += [cp.bmat([[unknown, eye], [eye, precision]]) >> 0, cp.diag(precision) <= tau]
    if cap is not None:
        constraints.append(cp.diag(total) <= cap)
    problem = cp.Problem(cp.Minimize(cp.trace(w.T @ w @ total)), constraints)
    problem.solve(solver="CLARABEL")
    # The comparison is to 2e-5, which it meets even where it is not sure of the last digits.
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_conic_solver_agrees(graph: str, name: str) -> None:
    w, structure = GRAPHS[graph], STRUCTURES[name]
    found = solve(SpaceProblem(mixing=w, structure=structure, budget=2.0))
    assert found.status == OPTIMAL
    assert found.design is not None
    assert found.feasible
    expected = clarabel(w, structure, tau=2.0)
    assert found.design.objective == pytest.approx(expected, rel=2e-5)
    assert found.design.lower_bound <= expected * (1 + 2e-5)


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_cap_agrees(graph: str) -> None:
    w = GRAPHS[graph]
    problem = SpaceProblem(mixing=w, structure=EDGES, max_variance=1.2)
    found = solve(problem).design
    assert found is not None
    assert np.diagonal(found.covariance).max() <= 1.2
    assert found.objective == pytest.approx(clarabel(w, EDGES, cap=1.2), rel=2e-5)
    free = solve(SpaceProblem(mixing=w, structure=EDGES)).design
    assert free is not None
    assert found.objective >= free.objective * (1 - 1e-6)
    if np.diagonal(free.covariance).max() > 1.25:
        assert found.objective > free.objective * (1 + 1e-6)


@pytest.mark.parametrize("graph", GRAPHS)
def test_known_seeds_agree(graph: str) -> None:
    w = GRAPHS[graph]
    structure = SpaceStructure(kind="edge-local", known_seeds=1)
    found = solve(SpaceProblem(mixing=w, structure=structure))
    assert found.status == OPTIMAL
    assert found.design is not None
    assert found.design.objective == pytest.approx(clarabel(w, structure), rel=2e-5)


@pytest.mark.parametrize("graph", GRAPHS)
def test_more_sharing_never_costs_more(graph: str) -> None:
    w = GRAPHS[graph]
    whole = SpaceStructure(kind="clusters", clusters=(0,) * len(w))
    order = [
        SpaceStructure(kind="independent", known_seeds=1),
        STRUCTURES["independent"],
        SpaceStructure(kind="edge-local", known_seeds=1),
        EDGES,
        STRUCTURES["two hops"],
        whole,
    ]
    values = []
    for structure in order:
        design = solve(SpaceProblem(mixing=w, structure=structure)).design
        assert design is not None
        values.append(design.objective)
    slack = 1 + 2e-6
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert all(more <= less * slack for less, more in pairwise(values[1:]))
    best = solve(SpaceProblem(mixing=w)).design
    assert best is not None
    assert values[-1] == pytest.approx(best.objective, rel=2e-6)  # one cluster of all: Whisper
    # Nobody shares: R_ii = 1 / tau_i, whatever a coalition knows of others.
    assert values[1] == pytest.approx(float(np.square(w).sum()), rel=1e-6)


def test_clusters_that_do_not_mix_are_solved_apart() -> None:
    w = PATH_4
    structure = SpaceStructure(kind="clusters", clusters=(0, 0, 1, 1))
    found = solve(SpaceProblem(mixing=w, structure=structure)).design
    assert found is not None
    assert found.covariance[:2, 2:].tolist() == [[0, 0], [0, 0]]
    assert found.objective == pytest.approx(clarabel(w, structure), rel=2e-5)


def test_what_a_structure_costs_is_stated() -> None:
    design = solve(SpaceProblem(mixing=RING_5, structure=EDGES)).design
    best = solve(SpaceProblem(mixing=RING_5)).design
    assert design is not None
    assert best is not None
    ratio = design.certificate.relative_to_unrestricted
    assert ratio == pytest.approx(design.objective / best.objective, rel=1e-5)
    assert ratio is not None
    assert ratio > 1.001


def test_seeds_of_blocks_that_rounding_left_asymmetric_make_the_judged_noise() -> None:
    """The judge takes their symmetric part, and so do the seeds."""
    design = solve(SpaceProblem(mixing=RING_5, structure=EDGES)).design
    assert design is not None
    blocks = design.proof["clique_blocks"].reshape(5, 2, 2)
    twisted = blocks + 1e-10 * np.array([[0, 1], [-1, 0]])
    proof = {**design.proof, "clique_blocks": twisted.ravel()}
    seeds = seed_plan_of(replace(design, proof=proof))
    assert seeds.covariance() == pytest.approx(design.covariance, rel=1e-12)


def test_nothing_is_proved_of_noise_whose_seeds_are_not_told() -> None:
    """It may have zeros where it is to have them, and be made of no seeds at all."""
    design = solve(SpaceProblem(mixing=RING_5, structure=EDGES)).design
    assert design is not None
    told = {name: array for name, array in design.proof.items() if name != "clique_blocks"}
    assert verify(design).ok
    assert not verify(replace(design, proof=told)).ok


@pytest.mark.parametrize("name", ["two hops", "neighbourhood", "known seeds"])
def test_a_gap_of_1e_9(name: str) -> None:
    w = mixing_matrix(build_graph("florentine"))
    of = STRUCTURES | {"known seeds": SpaceStructure(kind="edge-local", known_seeds=1)}
    found = solve(SpaceProblem(mixing=w, structure=of[name]), gap=1e-9)
    assert found.status == OPTIMAL
    assert found.design is not None
    assert 0 <= found.design.gap <= 1e-9


def test_two_known_seeds_agree() -> None:
    """Every budget before every coalition, by an inverse each; the optimum by a conic solver."""
    w = mixing_matrix(build_graph("complete", nodes=5), weights="lazy-metropolis-hastings")
    w = w @ mixing_matrix(build_graph("ring", nodes=5))
    structure = SpaceStructure(kind="edge-local", known_seeds=2)
    found = solve(SpaceProblem(mixing=w, structure=structure), gap=1e-8)
    assert found.status == OPTIMAL
    assert found.design is not None
    assert found.design.objective == pytest.approx(clarabel(w, structure), rel=2e-5)
    plan = seed_plan_of(found.design)
    assert plan is not None
    worst = 0.0
    for known in combinations(range(5), 2):
        rest = [i for i in range(5) if i not in known]
        total = np.zeros((5, 5))
        for seed in plan.seeds:
            if not set(seed.members) & set(known):
                at = np.ix_(seed.members, seed.members)
                total[at] += np.outer(seed.coefficients, seed.coefficients)
        worst = max(worst, np.diagonal(np.linalg.inv(total[np.ix_(rest, rest)])).max())
    assert worst == pytest.approx(1.0, abs=1e-6)
    for left, hidden in failures(plan, most=2):
        sensitivity = np.diagonal(np.linalg.inv(hidden[np.ix_(left, left)]))
        assert sensitivity.max() <= 1 + 1e-9
    one = solve(SpaceProblem(mixing=w, structure=replace(structure, known_seeds=1))).design
    assert one is not None
    assert one.objective < found.design.objective


def failures(plan: SeedPlan, *, most: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """Who is left and what hides them, however so many nodes fail: each of them drops out and its
    seeds go on, or are left out, or it colludes and uses the seeds it holds."""
    for kinds in product(("sound", "gone", "left out", "colludes"), repeat=plan.nodes):
        if sum(kind != "sound" for kind in kinds) > most:
            continue
        hidden = np.zeros((plan.nodes, plan.nodes))
        for seed in plan.seeds:
            if not {"left out", "colludes"} & {kinds[i] for i in seed.members}:
                at = np.ix_(seed.members, seed.members)
                hidden[at] += np.outer(seed.coefficients, seed.coefficients)
        yield [i for i, kind in enumerate(kinds) if kind == "sound"], hidden


def test_a_cap_and_known_seeds_agree() -> None:
    structure = SpaceStructure(kind="edge-local", known_seeds=1)
    found = solve(SpaceProblem(mixing=STAR_5, structure=structure, max_variance=1.1)).design
    assert found is not None
    assert np.diagonal(found.covariance).max() <= 1.1
    assert found.objective == pytest.approx(clarabel(STAR_5, structure, cap=1.1), rel=2e-5)
