"""Seeds that neighbours share, on sparse graphs: against dense algebra and certified optima."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from scipy import sparse

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.certify.certificate import Certificate
from noisedesign.families.pairwise import bound, solver
from noisedesign.families.polynomial.program import SparseProgram
from tests.support import oracles

SCALE_FREE = oracles.metropolis(nx.barabasi_albert_graph(40, 3, seed=0))
RANDOM = oracles.metropolis(nx.gnp_random_graph(40, 0.2, seed=4))
UNEVEN = np.random.default_rng(9).uniform(0.5, 2.0, 40)
CASES: dict[str, tuple[Array, Array | float]] = {
    "scale-free": (SCALE_FREE, 1.0),
    "random": (RANDOM, 1.0),
    "uneven budgets": (SCALE_FREE, UNEVEN),
    "not symmetric": (oracles.row_normalized(nx.barabasi_albert_graph(30, 3, seed=5)), 2.0),
    "star": (oracles.metropolis(nx.star_graph(11)), 1.0),
    "path": (oracles.metropolis(nx.path_graph(7)), 1.0),
    "one node": (np.ones((1, 1)), 4.0),
}


def program_of(w: Array, budget: Array | float = 1.0) -> SparseProgram:
    return SparseProgram(mixing=sparse.csr_array(w), budget=budget)


def made(program: SparseProgram, seed: int = 0) -> tuple[Array, int]:
    noise, steps = solver.pairwise_noise(program, rng=np.random.default_rng(seed))
    return noise.covariance(), steps


@pytest.mark.parametrize("case", CASES)
def test_noise_keeps_its_budgets_on_the_links_at_less_error_than_alone(case: str) -> None:
    w, budget = CASES[case]
    program = program_of(w, budget)
    r, steps = made(program)
    precision = np.diagonal(np.linalg.inv(r))
    assert np.all(precision <= program.budget)
    assert np.all(precision >= 0.99 * program.budget)
    assert np.all(r[(w == 0) & (w.T == 0)] == 0)
    assert 1 <= steps <= bound.MOST_STEPS
    error = float(np.trace(w @ r @ w.T))
    assert error <= program.independent_error * (1 + 1e-8)
    if len(w) > 1:
        assert error < 0.995 * program.independent_error


def test_two_nodes_reach_the_optimum_of_all_noise() -> None:
    """(1 + .5)^2 / 2, of the singular values of W: two nodes are a pair."""
    program = program_of(np.array([[0.75, 0.25], [0.25, 0.75]]))
    r, _ = made(program)
    assert float(np.trace(program.mixing @ r @ program.mixing.T)) == pytest.approx(1.125, rel=1e-3)


@cache
def best_of_pairs(name: str) -> Certificate:
    """The optimum over all blocks on edges, W dense."""
    structure = nd.SpaceStructure(kind="edge-local")
    design = nd.solve(nd.SpaceProblem(mixing=CASES[name][0], structure=structure)).design
    assert design is not None
    return design.certificate


@pytest.mark.parametrize("name", ["scale-free", "random"])
def test_little_is_lost_to_the_certified_optimum_of_all_pairs(name: str) -> None:
    w, best = CASES[name][0], best_of_pairs(name)
    r, _ = made(program_of(w))
    error = float(np.trace(w @ r @ w.T))
    assert best.lower_bound <= error <= 1.005 * best.objective


def test_taking_back_what_neighbours_add_is_as_good_as_any_noise_of_pairs() -> None:
    """The least error over all N >= 0, by dense inverses, is the optimum over all blocks."""
    w, n = SCALE_FREE, len(SCALE_FREE)
    gram = w.T @ w
    first, second = np.nonzero(np.triu(w, 1))

    def error(values: Array) -> tuple[float, Array]:
        coupling = np.zeros((n, n))
        coupling[first, second] = coupling[second, first] = values
        inverse = np.linalg.inv(np.eye(n) - coupling)
        if np.linalg.eigvalsh(coupling)[-1] >= 1:
            return 1e3, np.zeros_like(values)
        scale = np.sqrt(np.diagonal(inverse))
        costs = (gram * (np.eye(n) - coupling)) @ scale
        slope = inverse @ ((costs / scale)[:, None] * inverse) - gram * np.outer(scale, scale)
        return float(scale @ costs), 2 * slope[first, second]

    start = np.full(len(first), 0.01)
    found = scipy.optimize.minimize(error, start, jac=True, bounds=[(0, None)] * len(first))
    best = best_of_pairs("scale-free")
    assert best.lower_bound * (1 - 1e-9) <= found.fun <= (1 + 1e-4) * best.objective


def test_derivatives_are_those_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node a unit vector: the error is exact, and so are its differences."""
    monkeypatch.setattr(solver, "NEAR", 1e-14)
    search = solver.Search(program_of(RANDOM, UNEVEN), rng=np.random.default_rng(0))
    numbers = search.start() + np.array([0.1, -0.2, 0.1, 0.05])
    value, slope = search(numbers)
    n = search.coupling(numbers).toarray()
    scale = np.sqrt(np.diagonal(np.linalg.inv(np.eye(40) - n)) / UNEVEN)
    r = scale[:, None] * (np.eye(40) - n) * scale
    assert value == pytest.approx(float(np.trace(RANDOM @ r @ RANDOM.T)), rel=1e-12)
    for k in range(4):
        step = 1e-5 * np.eye(4)[k]
        difference = (search(numbers + step)[0] - search(numbers - step)[0]) / 2e-5
        assert slope[k] == pytest.approx(difference, rel=1e-5, abs=1e-6 * value)


def test_vectors_of_signs_say_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(SCALE_FREE)
    exact, _ = made(program)
    monkeypatch.setattr(solver, "PROBED", 0)
    estimated, _ = made(program)
    errors = [float(np.trace(SCALE_FREE @ r @ SCALE_FREE.T)) for r in (exact, estimated)]
    assert errors[1] == pytest.approx(errors[0], rel=0.02)
    assert np.all(np.diagonal(np.linalg.inv(estimated)) <= 1)


def test_solves_are_those_of_dense_algebra() -> None:
    rng = np.random.default_rng(1)
    n = SCALE_FREE - np.diag(np.diagonal(SCALE_FREE))
    rho = float(np.linalg.eigvalsh(n)[-1])
    block = rng.standard_normal((40, 3))
    for radius in (rho, rho + 0.05):
        found = solver.solved(sparse.csr_array(n), block, radius)
        assert found == pytest.approx(np.linalg.solve(np.eye(40) - n, block), abs=1e-3)
    alone, _ = bound.contraction(sparse.csr_array((40, 40)))
    assert solver.solved(sparse.csr_array((40, 40)), block, alone) == pytest.approx(block)


def test_shares_make_up_the_covariance_with_something_left_for_every_node() -> None:
    n = 0.6 * (SCALE_FREE - np.diag(np.diagonal(SCALE_FREE)))
    variance = np.random.default_rng(2).uniform(0.5, 3.0, 40)
    noise = solver.shared_out(sparse.csr_array(n), variance)
    root = np.sqrt(variance)
    assert noise.covariance() == pytest.approx(root[:, None] * (np.eye(40) - n) * root, abs=1e-14)
    assert noise.own.min() > 0
    assert np.all(noise.shares.prod(axis=1) < 0)
    told = np.diag(noise.own**2)
    for node in range(40):
        for _, other, share in noise.held_by(node):
            back = {k: s for k, with_whom, s in noise.held_by(other) if with_whom == node}
            told[node, node] += share**2
            told[node, other] += share * next(iter(back.values()))
    assert told == pytest.approx(noise.covariance(), abs=1e-13)


def test_a_large_problem_of_edges_is_solved_stored_verified_and_dealt_out(tmp_path: Path) -> None:
    """The same by the ways of the toolkit, W sparse."""
    problem = nd.SpaceProblem(
        mixing=sparse.csr_array(CASES["path"][0]),
        structure=nd.SpaceStructure(kind="pairwise"),
        privacy=nd.PrivacyTarget(epsilon=1.0, delta=1e-6, steps=10),
    )
    solution = nd.solve(problem)
    design = solution.design
    assert design is not None
    assert solution.status == "local-optimum"
    assert design.certificate.feasible
    path = tmp_path / "pairs.npz"
    nd.save(design, path)
    stored = nd.load(path).design
    assert nd.verify(stored).ok
    plan = stored.node_plan(3)
    total = sum(stream.coefficient**2 for stream in plan.streams)
    expected = design.claim.noise_stddev**2 * design.covariance[3, 3]
    assert total == pytest.approx(expected, rel=1e-12)
    assert {u for stream in plan.streams for u in stream.holders} == set(
        np.flatnonzero(CASES["path"][0][3]).tolist()
    )
