"""Hard instances: certified to the gap asked for, or honestly not, and never a number that is none.

Optima are those of closed forms, of the slow fixed point on the side, or of limits that bracket the
instance: a W that is nearly singular costs at least what the singular one does under any cap.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from noisedesign.base import linalg as _linalg
from noisedesign.certify import certificate
from noisedesign.certify.program import uniform_dual
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch
from tests.support import oracles


def lazy(w: np.ndarray, share: float) -> np.ndarray:
    return np.asarray((1 - share) * w + share * np.eye(len(w)))


def near_complete(nodes: int, size: float) -> np.ndarray:
    """The complete graph's average, and a random Laplacian of relative size ``size``."""
    weights = np.random.default_rng(0).uniform(0, 1, (nodes, nodes))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    laplacian = np.diag(weights.sum(axis=1)) - weights
    average = np.full((nodes, nodes), 1 / nodes)
    return np.asarray(average + size * (np.eye(nodes) - average - laplacian / (2 * nodes)))


def prefix(epochs: int, separation: int) -> TimeProblem:
    return TimeProblem.prefix(participation=FixedEpoch(epochs=epochs, separation=separation))


def honest(found: Solution, gap: float) -> None:
    """Feasible, numbers that are numbers, and a status that says what the certificate does."""
    assert found.feasible
    proved = found.certificate
    assert proved is not None
    assert found.design is not None
    assert np.isfinite(found.design.matrix).all()
    assert 0 < proved.lower_bound <= proved.objective < np.inf
    assert proved.rounding is not None
    assert 0 < proved.rounding < 1
    assert (found.status == "optimal") == (proved.gap <= gap)
    assert found.status in ("optimal", "inaccurate")
    if found.status == "inaccurate":
        assert "ounding" in found.remedy


CERTIFIED: dict[str, SpaceProblem] = {
    "star": SpaceProblem(mixing=oracles.metropolis(nx.star_graph(20))),
    "star, nearly": SpaceProblem(mixing=lazy(oracles.metropolis(nx.star_graph(20)), 1e-13)),
    "path of 200": SpaceProblem(mixing=mixing_matrix(nx.path_graph(200))),
    "barbell": SpaceProblem(mixing=oracles.metropolis(nx.barbell_graph(10, 3))),
    "barbell, nearly singular": SpaceProblem(
        mixing=lazy(oracles.metropolis(nx.barbell_graph(8, 3)), 1e-9)
    ),
    "binary tree": SpaceProblem(mixing=oracles.metropolis(nx.balanced_tree(2, 6))),
    "budgets": SpaceProblem(
        mixing=oracles.metropolis(nx.path_graph(20)), budget=np.geomspace(1e-9, 1e9, 20)
    ),
    "complete, capped": SpaceProblem(mixing=np.full((20, 20), 0.05), max_variance=1e6),
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_certified_to_a_millionth(name: str) -> None:
    found = solve(CERTIFIED[name], gap=1e-6)
    honest(found, 1e-6)
    assert found.status == "optimal"
    assert found.evaluations <= 25


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-12])
def test_next_to_the_average_of_all(size: float) -> None:
    """The noise grows as 1 / size along n - 1 directions: what is left of its digits is proved."""
    w = near_complete(20, size)
    found = solve(SpaceProblem(mixing=w), gap=1e-6)
    honest(found, 1e-6)
    assert found.certificate is not None
    # R = I costs tr(W^2), and no R less than its mean over nodes: (1^T v)^2 / n for W 1 = 1.
    assert 1 / 20 - 1e-12 <= found.certificate.objective <= np.square(w).sum() * (1 + 1e-9)
    # Nuclear norm of W: the bound of uniform multipliers.
    uniform = np.linalg.norm(w, ord="nuc") ** 2 / 20
    assert found.certificate.objective >= uniform * (1 - 1e-12)
    if size >= 1e-6:
        assert found.status == "optimal"
    else:
        assert found.certificate.gap <= 0.1


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-9])
def test_a_ring_that_is_nearly_singular(share: float) -> None:
    w = lazy(oracles.metropolis(nx.cycle_graph(6)), share)
    found = solve(SpaceProblem(mixing=w), gap=1e-6)
    honest(found, 1e-6)
    assert found.certificate is not None
    optimum = oracles.vertex_transitive_optimum(w)
    assert found.certificate.lower_bound <= optimum * (1 + 1e-12)
    assert found.certificate.objective >= optimum * (1 - 1e-12)
    assert found.status == "optimal"


@pytest.mark.parametrize("gap", [1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("name", ["star", "barbell", "binary tree", "path of 200"])
def test_as_far_as_float64_goes(name: str, gap: float) -> None:
    found = solve(CERTIFIED[name], gap=gap)
    honest(found, gap)
    assert found.certificate is not None
    assert found.certificate.gap <= max(gap, 5e-12)
    assert found.certificate.gap >= found.certificate.rounding
    assert (found.status == "optimal") == (found.certificate.gap <= gap)


@pytest.mark.parametrize(
    "problem",
    [
        prefix(1, 64),
        prefix(4, 16),
        SpaceProblem(mixing=oracles.metropolis(nx.florentine_families_graph())),
    ],
    ids=["prefix", "epochs", "space"],
)
def test_a_gap_of_a_trillionth(problem: Problem) -> None:
    found = solve(problem, gap=1e-12)
    honest(found, 1e-12)
    assert found.status == "optimal"


@pytest.mark.parametrize(("epochs", "separation"), [(20, 20), (40, 5)])
def test_many_epochs(epochs: int, separation: int) -> None:
    """Blocks of the multiplier come close to singular."""
    found = solve(prefix(epochs, separation), gap=1e-6)
    honest(found, 1e-6)
    assert found.status == "optimal"
    assert found.evaluations <= 25


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "separation"), [(1, 2048), (20, 60), (100, 5)])
def test_long_horizons(epochs: int, separation: int) -> None:
    found = solve(prefix(epochs, separation), gap=1e-6)
    honest(found, 1e-6)
    assert found.status == "optimal"
    assert found.evaluations <= 25


# --- rounding of the bound ------------------------------------------------------------------------


def test_the_rounding_is_what_was_taken_off() -> None:
    program = program_of(SpaceProblem(mixing=oracles.metropolis(nx.florentine_families_graph())))
    dual = uniform_dual(program)
    exact = np.linalg.norm(program.factor, ord="nuc") ** 2 / program.size
    proved = certificate.proved_bound(program, dual)
    assert proved.value == certificate.lower_bound(program, dual)
    assert 0 < proved.rounding < 1e-12
    assert proved.value < exact
    assert proved.value * (1 + proved.rounding) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("smallest", [1e-1, 1e-4, 1e-7, 1e-10, 0.0])
def test_the_rounding_of_a_nuclear_norm_covers_its_error(smallest: float) -> None:
    rng = np.random.default_rng(1)
    left, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    right, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    values = np.linspace(smallest, 1, 30)
    below, rounding = _linalg.nuclear_norm_and_rounding((left * values) @ right, negligible=1e-6)
    assert below <= values.sum() <= below + 2 * rounding
    assert below == _linalg.nuclear_norm((left * values) @ right, negligible=1e-6)


def test_multipliers_that_prove_nothing_have_no_rounding() -> None:
    program = program_of(prefix(1, 3))
    dual = uniform_dual(program)
    dual.blocks[0] = np.nan
    assert certificate.proved_bound(program, dual) == (0.0, 0.0)


@pytest.mark.parametrize("size", [1, 5, 96, 97, 300])
def test_a_triangular_inverse_by_halves(size: int) -> None:
    lower = np.tril(np.random.default_rng(size).uniform(-1, 1, (size, size))) / size
    lower[np.diag_indices(size)] = np.linspace(1, 2, size)
    inverse = _linalg.inverse_of_triangular(lower.copy())
    np.testing.assert_allclose(inverse @ lower, np.eye(size), atol=1e-13)
    assert np.abs(np.triu(inverse, 1)).max(initial=0.0) < 1e-15
