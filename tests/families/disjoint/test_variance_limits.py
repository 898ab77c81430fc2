"""Caps and floors by few decompositions: counted, and the steps that make them few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import array_api_compat.numpy
import networkx as nx
import numpy as np
import pytest
import scipy.linalg

from noisedesign.base.monitor import Monitor
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import Found, program_of
from noisedesign.families.disjoint.solver.limits import floored, smoothed, steps
from noisedesign.families.disjoint.solver.limits.frame import (
    Frame,
    Limits,
    limits_of,
    longest,
    sides_of,
)
from noisedesign.files.problem_file import load_problem
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.program import Program
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.solve import solve
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


def answered(problem: SpaceProblem, *, gap: float) -> Found:
    program = program_of(problem).normalized()
    return solver.solve(program, monitor=Monitor(gap=gap))


# --- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "coarse", "fine"),
    [
        ("whisper/erdos-renyi-20-p10-capped", 6, 7),
        ("directed/ring-8-one-way", 6, 7),
        ("whisper/florentine-floored", 13, 14),
    ],
)
def test_shipped_problems(name: str, coarse: int, fine: int) -> None:
    problem = load_problem(PROBLEMS / f"{name}.toml").problem
    for gap, most in ((1e-6, coarse), (1e-9, fine)):
        found = solve(problem, gap=gap)
        assert found.status == "optimal"
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
    assert decompositions == ["eigh"] * found.evaluations
    assert found.stop == "solved"
    assert found.evaluations <= (12 if singular else 9)


RAISED: dict[str, SpaceProblem] = {
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
MOST = {
    "florentine, 1.1": 11,
    "florentine, 2": 18,
    "florentine, 5": 20,
    "sparse, 1.1": 8,
    "sparse, 2": 14,
    "sparse, 5": 17,
    "karate, 5": 36,
    "both": 16,
    "far apart": 17,
    "some of both": 17,
    "in one": 16,
}
"""Decompositions: one more than were counted, or a few where the way there is long. They are of
eigenvalues, of which two take less than one of singular values, with vectors."""


@pytest.mark.parametrize("name", RAISED)
def test_floors(name: str, decompositions: list[str]) -> None:
    program = program_of(RAISED[name]).normalized()
    assert len(program.null_space) == program.size
    decompositions.clear()  # of the null space
    found = solver.solve(program, monitor=Monitor(gap=1e-9))
    assert len(decompositions) == found.evaluations
    assert decompositions.count("svd") == 1  # the last bound, of singular values alone
    assert found.stop == "solved"
    assert found.evaluations <= MOST[name]


def test_floors_that_near_singular_equations_decide() -> None:
    """Hubs, and more nodes than sums are exact for: the quick steps arrive by themselves."""
    mixing = oracles.metropolis(nx.barabasi_albert_graph(100, 2, seed=1))
    found = answered(SpaceProblem(mixing=mixing, min_variance=4.0), gap=1e-9)
    assert mixing.shape[0] > steps.SMALL
    assert found.stop == "solved"
    assert found.evaluations <= 36


def test_what_goes_astray_arrives_all_the_same(
    monkeypatch: pytest.MonkeyPatch, decompositions: list[str]
) -> None:
    """No patience at all: the slower method does it all, and says what it took."""
    problem = RAISED["florentine, 2"]
    quick = answered(problem, gap=1e-9)
    monkeypatch.setattr(floored, "PATIENCE", 0)
    decompositions.clear()
    slow = answered(problem, gap=1e-9)
    assert len(decompositions) == slow.evaluations > 3 * quick.evaluations
    assert slow.stop == "solved"
    assert slow.gram is not None
    assert quick.gram is not None
    gram = np.asarray(problem.gram)
    objectives = [float(np.sum(gram * np.linalg.inv(x))) for x in (slow.gram, quick.gram)]
    assert objectives[0] == pytest.approx(objectives[1], rel=2e-9)


def test_what_is_known_is_not_forgotten() -> None:
    """The slower method ends at once where what it is given is good enough."""
    program = program_of(RAISED["florentine, 2"])
    answer = floored.solve(program, monitor=Monitor(gap=1e-9))
    assert answer.gram is not None
    assert answer.dual is not None
    assert answer.dual.floor is not None
    best = smoothed.Best(program)
    x = np.concatenate([answer.dual.blocks[:, 0, 0], -answer.dual.floor])
    point = smoothed.evaluate(program, limits_of(program), x)
    assert point is not None
    best.see_dual(x, smoothed.lower_bound(program, limits_of(program), point))
    best.see_covariance(np.linalg.inv(answer.gram))
    assert best.gap < 1e-9
    again = smoothed.solve(program, monitor=Monitor(gap=1e-8), best=best, spent=40)
    assert again.stop == "solved"
    assert again.evaluations < 50


# --- limits one by one ----------------------------------------------------------------------------


def test_sides() -> None:
    """Node 1 has a cap, node 4 a floor, node 6 both, node 7 both in one."""
    limits = Limits(
        node=np.array([1, 4, 6, 7]),
        cap=np.array([2.0, np.inf, 5, 3 + 3e-9]),
        floor=np.array([0.0, 1.5, 4, 3]),
    )
    sides = sides_of(limits, room=1e-8)
    np.testing.assert_array_equal(sides.node, [1, 6, 7, 4, 6])
    np.testing.assert_array_equal(sides.sign, [1, 1, 1, -1, -1])
    np.testing.assert_array_equal(sides.level, [2, 5, 3 + 3e-9, 1.5, 4])
    np.testing.assert_array_equal(sides.tied, [False, False, True, False, False])
    np.testing.assert_array_equal(sides.limit(8)[8:], [2, 5, 3 + 3e-9, -1.5, -4])
    variance = np.arange(10.0, 18)
    np.testing.assert_array_equal(sides.held(variance, variance)[8:], [11, 16, 17, -14, -16])
    x = np.concatenate([np.zeros(8), [1.0, 2, 4, 8, 16]])
    np.testing.assert_array_equal(sides.net(x, 8), [0, 1, 0, 0, -8, 0, 2 - 16, 4])
    assert not sides_of(limits, room=1e-10).tied.any()


# --- one step -------------------------------------------------------------------------------------


def state_of(program: Program, seed: int) -> steps.State:
    """A state at which nothing holds: neither stationarity nor what slacks are to be."""
    rng = np.random.default_rng(seed)
    n = program.size
    sides = sides_of(limits_of(program), room=0.0)
    outer = np.eye(n) + 0.3 * rng.standard_normal((n, n)) / np.sqrt(n)
    v = rng.uniform(0.5, 1, n)
    _, values, right = np.linalg.svd(np.sqrt(v)[:, None] * outer)
    outer = outer @ right.T
    frame = Frame(outer, np.linalg.inv(outer).T, values**2)
    k = n + len(sides.node)
    x = np.concatenate([v, rng.uniform(0.01, 0.1, k - n)])
    bound = np.concatenate([np.full(n, True), ~sides.tied])
    return steps.State(frame, x, np.where(bound, rng.uniform(0.1, 1, k), 0.0), bound)


BOTH = program_of(
    SpaceProblem(
        mixing=FLORENTINE,
        min_variance=np.where(np.arange(15) < 5, 2.0, 1.0),
        max_variance=np.where(np.arange(15) < 3, 2.0, np.linspace(2.5, 4, 15)),
    )
)
"""Nodes 0 to 2 with cap and floor in one, 3 and 4 with both, all others with a cap."""


def test_frames() -> None:
    frame = state_of(BOTH, 0).frame
    gram = frame.outer @ frame.outer.T
    np.testing.assert_allclose(frame.gram, gram)
    np.testing.assert_allclose(frame.precision, np.diagonal(gram))
    np.testing.assert_allclose(frame.variance, np.diagonal(np.linalg.inv(gram)))
    assert longest(np.array([1.0, 2, 3]), np.array([-2.0, 1, -1])) == 0.5
    assert longest(np.ones(2), np.ones(2)) == np.inf


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_steps_solve_the_linearised_equations(seed: int) -> None:
    """Formed anew, in X and R and not in the coordinates of the frame."""
    state, n = state_of(BOTH, seed), 15
    sides = sides_of(limits_of(BOTH), room=0.0)
    system = steps.System(BOTH, sides, state)
    aim = np.random.default_rng(seed).uniform(0.01, 0.1, len(state.x))
    nothing = np.zeros((n, n))
    step = system.step(aim=aim, curved=nothing, bent=(nothing, nothing))
    x, r, v = state.frame.gram, np.linalg.inv(state.frame.gram), np.diag(state.x[:n])
    dx = state.frame.outer @ step.f @ state.frame.outer.T
    dv, dr = np.diag(step.x[:n]), -r @ dx @ r
    there = np.asarray(BOTH.gram) + np.diag(sides.net(state.x, n) + sides.net(step.x, n))
    np.testing.assert_allclose(x @ v @ x + dx @ v @ x + x @ v @ dx + x @ dv @ x, there, atol=1e-12)
    held = sides.held(np.diagonal(x + dx), np.diagonal(r + dr))
    np.testing.assert_allclose(held + state.slack + step.slack, sides.limit(n), atol=1e-12)
    products = state.x * state.slack + state.slack * step.x + state.x * step.slack
    np.testing.assert_allclose(products[state.bound], aim[state.bound], atol=1e-14)
    np.testing.assert_array_equal(step.slack[~state.bound], 0)
    np.testing.assert_allclose(step.seen, state.frame.of_budgets(step.x[:n]), atol=1e-14)


@pytest.mark.parametrize("wary", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_step_leaves_little_to_correct(seed: int, wary: bool) -> None:
    """With what is missing scaled down the corrector leaves third orders: eight times less from
    half as far, where the predictor alone would leave four times less."""
    sides = sides_of(limits_of(BOTH), room=0.0)
    state = state_of(BOTH, seed)
    left = []
    for scale in (2e-2, 1e-2):
        # Data for which this state is nearly right: limits and H a little off.
        frame, n = state.frame, 15
        held = sides.held(frame.precision, frame.variance)
        rng = np.random.default_rng(seed)
        off = rng.standard_normal((n, n))
        moved = replace(
            BOTH,
            gram=(frame.outer * frame.root) @ frame.outer.T
            - np.diag(sides.net(state.x, n))
            + scale * (off + off.T) / 10,
        )
        limit = held + state.slack + scale * rng.standard_normal(len(held)) / 10
        nodes = sides._replace(level=sides.sign * limit[n:])
        system = steps.System(moved, nodes, state)
        system.missing[:n] += limit[:n] - 1
        nothing = np.zeros((n, n))
        first = system.step(aim=state.x * state.slack, curved=nothing, bent=(nothing, nothing))
        f, square = first.f, first.f @ first.f
        mixed = f @ first.seen + (0 if wary else square / 2 * frame.root)
        step = system.step(
            aim=state.x * state.slack - first.x * first.slack,
            curved=(f * frame.root) @ f + mixed + mixed.T,
            bent=(nothing, square) if wary else (square / 2, square / 2),
        )
        outer, _, _ = steps.moved(frame, step.f, wary=wary)
        x = outer @ outer.T
        v = np.diag(state.x[:n] + step.x[:n])
        there = moved.gram + np.diag(sides.net(state.x + step.x, n))
        held = sides.held(np.diagonal(x), np.diagonal(np.linalg.inv(x)))
        left.append(
            [np.abs(x @ v @ x - there).max(), np.abs(held + state.slack + step.slack - limit).max()]
        )
    ratios = np.array(left[0]) / np.array(left[1])
    assert (ratios > 6.5).all()
    assert (ratios < 10).all()


def test_caps_take_an_error_that_a_node_adds_nothing_to() -> None:
    """Consensus on a path of three: all nodes take a third of what the middle one has, so that H is
    zero there, but for rounding of either sign."""
    error = ErrorMeasure(horizon=2, of="consensus")
    problem = SpaceProblem(
        mixing=oracles.metropolis(nx.path_graph(3)), error=error, max_variance=2.0
    )
    assert abs(problem.gram[1, 1]) < 1e-15
    assert solve(problem).status == "optimal"
