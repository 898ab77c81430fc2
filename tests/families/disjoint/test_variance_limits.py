"""Caps and floors, their decompositions counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import networkx as nx
import numpy as np
import pytest
import scipy.linalg

from noisedesign.base.monitor import Monitor
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver.frame import Frame, longest
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.workloads import ErrorMeasure
from tests.support import ROOT, oracles

PROBLEMS = ROOT / "problems"
FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
SPARSE = oracles.metropolis(oracles.erdos_renyi(20, 0.2))
KARATE = oracles.metropolis(nx.karate_club_graph())
STAR = oracles.metropolis(nx.star_graph(19))
COMPLETE = np.full((20, 20), 0.05)


@pytest.fixture
def decompositions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the decompositions done, in order, by whatever name they go."""
    done: list[str] = []

    def counted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return plain(*args, **kwargs)

        return call

    for name in ("eigh", "eigvalsh", "svd", "eig", "eigvals"):
        monkeypatch.setattr(np.linalg, name, counted(name, getattr(np.linalg, name)))
    monkeypatch.setattr(scipy.linalg, "eigh", counted("eigh", scipy.linalg.eigh))
    standard = array_api_compat.numpy.linalg
    monkeypatch.setattr(standard, "eigvalsh", counted("eigvalsh", standard.eigvalsh))
    return done


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("whisper/erdos-renyi-20-p10-capped", 12),
        ("directed/ring-8-one-way", 12),
        ("collection/barabasi-albert-100-capped", 7),
        ("whisper/florentine-floored", 120),
        ("collection/torus-5x6-capped-floored", 160),
        ("collection/small-world-30-floored", 100),
    ],
)
def test_shipped_problems(name: str, most: int) -> None:
    problem = load_problem(PROBLEMS / f"{name}.toml").problem
    for gap in (1e-6, 1e-9):
        found = solve(problem, gap=gap)
        assert found.status == "optimal"
        assert found.certificate is not None
        assert found.certificate.gap <= gap
        assert found.evaluations <= most


CAPPED: dict[str, SpaceProblem] = {
    f"{name}, {cap:g}": SpaceProblem(mixing=w, max_variance=cap)
    for name, w in {"florentine": FLORENTINE, "karate": KARATE, "star": STAR}.items()
    for cap in (1.05, 1.5, 3.0, 10.0, 1e6)
} | {
    "some": SpaceProblem(mixing=KARATE, max_variance=np.where(np.arange(34) % 3 == 0, 1.3, 1e4)),
    "complete": SpaceProblem(mixing=COMPLETE, max_variance=np.linspace(1.1, 4, 20)),
}


@pytest.mark.parametrize("name", CAPPED)
def test_caps(name: str, decompositions: list[str]) -> None:
    program = program_of(CAPPED[name]).normalized()
    singular = program.null_space.shape[1] > 0
    decompositions.clear()  # of the null space
    found = solver.solve(program, monitor=Monitor(gap=1e-9))
    assert found.stop == "solved"
    if not singular:
        assert decompositions == ["eigh"] * found.evaluations
    assert found.evaluations <= (20 if singular else 9)


FLOORED: dict[str, SpaceProblem] = {
    f"{name}, {floor:g}": SpaceProblem(mixing=w, min_variance=floor)
    for name, w in {"florentine": FLORENTINE, "sparse": SPARSE}.items()
    for floor in (1.1, 2.0, 5.0)
} | {
    "karate, 5": SpaceProblem(mixing=KARATE, min_variance=5.0),
    "both": SpaceProblem(mixing=SPARSE, min_variance=1.1, max_variance=1.5),
    "far apart": SpaceProblem(
        mixing=oracles.metropolis(nx.barbell_graph(5, 2)), min_variance=5.0, max_variance=50.0
    ),
    "some of both": SpaceProblem(
        mixing=STAR,
        min_variance=np.where(np.arange(20) % 3 == 0, 2.0, 1.0),
        max_variance=np.where(np.arange(20) % 3 == 0, 1e4, 1.5),
    ),
    "in one": SpaceProblem(mixing=FLORENTINE, min_variance=2.0, max_variance=2.0),
}


@pytest.mark.parametrize("name", FLOORED)
def test_floors(name: str, decompositions: list[str]) -> None:
    program = program_of(FLOORED[name]).normalized()
    assert len(program.null_space) == program.size
    decompositions.clear()  # of the null space
    found = solver.solve(program, monitor=Monitor(gap=1e-9))
    assert len(decompositions) == found.evaluations
    assert found.stop == "solved"
    assert found.evaluations <= 200


def test_floors_where_equations_are_nearly_singular() -> None:
    """Hubs, on more nodes than sums over pairs are exact for."""
    mixing = oracles.metropolis(nx.barabasi_albert_graph(100, 2, seed=1))
    program = program_of(SpaceProblem(mixing=mixing, min_variance=4.0)).normalized()
    assert solver.solve(program, monitor=Monitor(gap=1e-9)).stop == "solved"


def test_frames() -> None:
    rng = np.random.default_rng(0)
    outer = np.eye(15) + 0.1 * rng.standard_normal((15, 15))
    frame = Frame(outer, np.linalg.inv(outer).T, rng.uniform(0.5, 1, 15))
    gram = outer @ outer.T
    np.testing.assert_allclose(frame.gram, gram)
    np.testing.assert_allclose(frame.precision, np.diagonal(gram))
    np.testing.assert_allclose(frame.variance, np.diagonal(np.linalg.inv(gram)))
    assert longest(np.array([1.0, 2, 3]), np.array([-2.0, 1, -1])) == 0.5
    assert longest(np.ones(2), np.ones(2)) == np.inf


def test_caps_take_an_error_that_a_node_adds_nothing_to() -> None:
    """Consensus on a path of three: all nodes take a third of what the middle one has, so that H is
    zero there, but for rounding of either sign."""
    error = ErrorMeasure(horizon=2, of="consensus")
    problem = SpaceProblem(
        mixing=oracles.metropolis(nx.path_graph(3)), error=error, max_variance=2.0
    )
    assert abs(problem.gram[1, 1]) < 1e-15
    assert solve(problem).status == "optimal"
