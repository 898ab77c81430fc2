"""What is proved of noise with floors: no bound too high, no violated floor, every repair exact."""

from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from noisedesign.certify import repair
from noisedesign.certify.certificate import (
    Certificate,
    judge_covariance,
    lower_bound,
    repaired_dual,
)
from noisedesign.certify.program import Program, diagonal_dual
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single
from tests.support import oracles

RING = oracles.metropolis(nx.cycle_graph(5))
PROBLEM = SpaceProblem(mixing=RING, min_variance=4.0)
PROGRAM = program_of(PROBLEM)
OPTIMUM = oracles.ring_with_variance(RING, variance=4.0)


def test_a_violated_floor_is_refused() -> None:
    design = solve(PROBLEM, gap=1e-9).design
    assert design is not None
    assert design.certificate.floor_ratio == pytest.approx(1, abs=1e-9)
    assert design.certificate.feasible
    cut = design.covariance.copy()
    cut[2, 2] = math.nextafter(4.0, 0.0)
    judged = judge_covariance(PROGRAM, cut, bound=1.0)
    assert judged.floor_ratio is not None
    assert judged.floor_ratio > 1
    assert not judged.feasible
    roomy = replace(PROGRAM, budget=2 * PROGRAM.budget)
    judged = judge_covariance(roomy, 0.75 * design.covariance, bound=1.0)
    assert judged.sensitivity_squared < 1
    assert judged.floor_ratio == pytest.approx(4 / 3)
    assert not judged.feasible
    raised = judge_covariance(roomy, 1.5 * design.covariance, bound=1.0)
    assert raised.floor_ratio == pytest.approx(2 / 3)
    assert raised.feasible
    assert judge_covariance(PROGRAM, -design.covariance, bound=1.0).floor_ratio == math.inf


@pytest.mark.parametrize("ratio", [math.nan, math.inf, math.nextafter(1.0, 2.0)])
def test_ratios_of_floors_that_are_not_met(ratio: float) -> None:
    plain = Certificate(objective=3.0, lower_bound=2.0, sensitivity_squared=1.0, floor_ratio=1.0)
    assert plain.feasible
    assert not replace(plain, floor_ratio=ratio).feasible


def test_the_bound_of_multipliers_by_hand() -> None:
    """N = H - diag(u) of W = I / 2 + J / 6 at equal multipliers: eigenvalues 1 - u and 1/4 - u,
    twice; t = sqrt v of their roots, and v t^2 / (3 v) + 3 f u."""
    w = np.eye(3) / 2 + 1 / 6
    program = program_of(SpaceProblem(mixing=w, min_variance=2.0))
    for u in (0.0, 0.1, 0.2, 0.2499):
        dual = diagonal_dual(np.full(3, 7.0), floor=np.full(3, u))
        expected = (math.sqrt(1 - u) + 2 * math.sqrt(0.25 - u)) ** 2 / 3 + 3 * 2.0 * u
        assert lower_bound(program, dual) == pytest.approx(expected, rel=1e-11)
        assert lower_bound(program, dual) <= expected
    # More than N can bear is lowered to what it can: at u = 1/4 the bound is 1/4 + 3/2.
    dual = diagonal_dual(np.ones(3), floor=np.full(3, 5.0))
    assert lower_bound(program, dual) == pytest.approx(1.75, rel=1e-6)
    with_cap = program_of(SpaceProblem(mixing=w, min_variance=2.0, max_variance=3.0))
    dual = diagonal_dual(np.ones(3), cap=np.full(3, 0.5), floor=np.full(3, 0.6))
    expected = (math.sqrt(0.9) + 2 * math.sqrt(0.15)) ** 2 / 3 + 3 * (2.0 * 0.6 - 3.0 * 0.5)
    assert lower_bound(with_cap, dual) == pytest.approx(expected, rel=1e-10)


MULTIPLIERS = arrays(
    np.float64, (3, 5), elements=st.floats(-1e3, 1e3) | st.sampled_from([0.0, 0.05, 1e-300, 1e300])
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(multipliers=MULTIPLIERS)
@example(multipliers=np.array([np.ones(5), np.zeros(5), np.full(5, np.nan)]))
@example(multipliers=np.array([np.ones(5), np.zeros(5), np.full(5, np.inf)]))
@example(multipliers=np.array([np.ones(5), np.zeros(5), np.full(5, 1e300)]))
@example(multipliers=np.array([np.ones(5), np.full(5, 1e300), np.full(5, 1e300)]))
@example(multipliers=np.array([np.ones(5), np.zeros(5), [0.5, 0, 0, 0, 0]]))
def test_no_multipliers_prove_too_much(multipliers: np.ndarray) -> None:
    v, w, u = multipliers
    dual = diagonal_dual(v, cap=w, floor=u)
    assert lower_bound(PROGRAM, dual) <= OPTIMUM * (1 + 1e-12)
    capped = replace(PROGRAM, cap=np.full(5, 4.0))
    # By symmetry the best R has equal variances, of 4 with either program.
    assert lower_bound(capped, dual) <= OPTIMUM * (1 + 1e-12)


def test_repaired_multipliers_are_feasible() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        dual = diagonal_dual(rng.uniform(0, 1, 5), floor=rng.uniform(-1, 1, 5))
        found = repaired_dual(PROGRAM, dual)
        assert found.floor is not None
        assert (found.floor >= 0).all()
        assert np.linalg.eigvalsh(RING @ RING - np.diag(found.floor))[0] >= 0
        # All of the matrix is used where too much was asked for.
        if found.floor.max() < dual.floor.max():  # type: ignore[union-attr]
            assert np.linalg.eigvalsh(RING @ RING - np.diag(found.floor * 1.0001))[0] < 0


def test_multipliers_of_a_nearly_singular_h() -> None:
    """Rounding hides how much of u there may be; less is tried until N is seen to be positive."""
    rng = np.random.default_rng(0)
    w = oracles.metropolis(nx.path_graph(59))
    for mixing in (w, w / (1 + 1e-10) + np.eye(59) * (1 - 1 / (1 + 1e-10))):
        program = program_of(SpaceProblem(mixing=mixing, min_variance=2.0))
        plain = lower_bound(program, diagonal_dual(np.ones(59)))
        for _ in range(30):
            dual = diagonal_dual(np.ones(59), floor=10 ** rng.uniform(-20, 3, 59))
            assert 0.9 * plain <= lower_bound(program, dual) <= 2 * 59


def test_without_a_floor_its_multipliers_are_ignored() -> None:
    program = program_of(SpaceProblem(mixing=RING))
    dual = diagonal_dual(np.ones(5), floor=np.full(5, 0.01))
    assert lower_bound(program, dual) == lower_bound(program, replace(dual, floor=None))


# --- repair ---------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    root=arrays(np.float64, (4, 4), elements=st.floats(-3, 3)),
    floor=arrays(np.float64, 4, elements=st.sampled_from([0.1, 1.0, 1.5, 7.0, 1e6])),
    room=arrays(np.float64, 4, elements=st.sampled_from([1.0, 1 + 1e-15, 1.01, 1e3])),
    capped=st.booleans(),
)
@example(root=np.ones((4, 4)), floor=np.full(4, 2.0), room=np.ones(4), capped=True)
@example(
    root=np.array([[0.0, 0, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3], [1, 3, 3, 3]]),
    floor=np.array([0.1, 7.0, 0.1, 0.1]),
    room=np.array([1.0, 1.0, 1e3, 1.0]),
    capped=True,
)
def test_any_answer_is_made_feasible(
    root: np.ndarray, floor: np.ndarray, room: np.ndarray, capped: bool
) -> None:
    tau = np.array([1.0, 2.0, 0.5, 1.0])
    cap = np.maximum(floor, 1.001 / tau) * room
    program = Program(
        gram=np.diag([1.0, 2, 3, 4]) + 0.1,
        participation=single(4),
        budget=tau,
        cap=cap if capped else None,
        floor=floor,
    )
    x = repair.feasible_gram(program, root @ root.T + 1e-8 * np.eye(4))
    assert x is not None
    judged = judge_covariance(program, repair.covariance_of(program, x), bound=1.0)
    assert judged.feasible, judged


@pytest.mark.parametrize("factor", [0.3, 1.0, 7.0])
def test_the_scale_of_an_answer_does_not_matter(factor: float) -> None:
    design = solve(PROBLEM, gap=1e-9).design
    assert design is not None
    for cap in (None, np.full(5, 4.0)):
        program = replace(PROGRAM, cap=cap)
        x = repair.feasible_gram(program, factor * np.linalg.inv(design.covariance))
        assert x is not None
        covariance = repair.covariance_of(program, x)
        assert judge_covariance(program, covariance, bound=1.0).feasible
        value = float(np.sum(program.gram * covariance))
        assert OPTIMUM * (1 - 1e-11) <= value <= OPTIMUM * (1 + 1e-8)
