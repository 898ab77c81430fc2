"""H of several steps as W^T M W, against fractions; singular ones proved by it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisedesign.base.enclosures import Enclosure
from noisedesign.program.design import Design
from noisedesign.program.inside import inside
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.proof import prove
from noisedesign.system.workloads import ErrorMeasure, Workload
from noisedesign.tasks.solve import solve

Array = np.ndarray
Exact = list[list[Fraction]]
DIGITS = 50
SINGULAR = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])


def exact(a: Array) -> Exact:
    return [[Fraction(x) for x in row] for row in a.tolist()]


def times(a: Exact, b: Exact) -> Exact:
    columns = list(zip(*b, strict=True))
    return [[sum(map(Fraction.__mul__, row, c), Fraction(0)) for c in columns] for row in a]


def plus(a: Exact, b: Exact, factor: Fraction) -> Exact:
    return [[x + factor * y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


ERRORS = [
    ErrorMeasure(horizon=1),
    ErrorMeasure(horizon=4),
    ErrorMeasure(horizon=3, of="last-iterate"),
    ErrorMeasure(horizon=3, learning_rates=[1.0, 0.5, 0.25], node_weights=[1.0, 2.0, 0.5]),
    ErrorMeasure(horizon=3, step_weights=[0.5, 0.0, 2.0]),
]


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_what_is_inside_of_an_error_is_enclosed(error: ErrorMeasure) -> None:
    w = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])
    found = inside(Workload(mixing=w, error=error))
    assert found is not None
    by_hand, later = exact(np.zeros((3, 3))), exact(np.zeros((3, 3)))
    q = exact(np.diag(np.ones(3) if error.node_weights is None else error.node_weights))
    shares = np.square(np.diagonal(error.step_factor)).tolist()
    for step in range(error.horizon - 1, -1, -1):
        later = times(times(exact(w.T), later), exact(w))
        later = plus(later, q, Fraction(error.steps[step]))
        by_hand = plus(by_hand, later, Fraction(shares[step]))
    m = found[1]
    rad = np.broadcast_to(m.rad, m.mid.shape).tolist()
    assert all(
        abs(Fraction(m.mid[i, j]) - by_hand[i][j]) <= Fraction(rad[i][j])
        for i in range(3)
        for j in range(3)
    )
    assert np.max(m.rad) < 16 * np.spacing(np.abs(m.mid).max())  # a few roundings would be seen
    whole = times(times(exact(w.T), by_hand), exact(w))
    assert np.array(whole, dtype=float) == pytest.approx(
        Workload(mixing=w, error=error).space_gram(), rel=1e-14
    )


def test_what_enters_at_several_steps_or_mixes_otherwise_has_none() -> None:
    w = np.eye(3)
    assert inside(Workload(mixing=w, error=ErrorMeasure(horizon=2, momentum=0.5))) is None
    assert inside(Workload(mixing=np.stack([w, w]), error=ErrorMeasure(horizon=2))) is None


def designed(horizon: int, **kwargs: object) -> Design:
    problem = SpaceProblem(
        mixing=SINGULAR,
        error=ErrorMeasure(horizon=horizon),
        budget=np.array([1.0, 3.0, 1.0]),
        **kwargs,
    )
    design = solve(problem, gap=1e-9).design
    assert design is not None
    return design


@pytest.mark.parametrize("horizon", [1, 2, 5])
@pytest.mark.parametrize("cap", [None, 1.2])
def test_a_singular_error_of_several_steps_is_proved(horizon: int, cap: float | None) -> None:
    """W has the null direction (1, -1, 1); the bound is below fifty digits of the multipliers'."""
    design = designed(horizon, max_variance=cap)
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap <= design.gap + 1e-10
    with mpmath.workdps(DIGITS):
        w = mpmath.matrix(SINGULAR.tolist())
        m = mpmath.zeros(3)
        for k in range(horizon):
            m += (horizon - k) * (w.T) ** k * w**k
        h = w.T * m * w
        seen = h * mpmath.matrix(design.covariance.tolist())
        truth = sum(seen[i, i] for i in range(3))
        assert proof.objective.lower <= truth <= proof.objective.upper
        assert proof.objective.width <= 1e-12 * truth
        weights, limits = design.proof["dual_weights"], design.proof.get("dual_cap", np.zeros(3))
        for i, x in enumerate(limits.tolist()):
            h[i, i] += mpmath.mpf(x)
        values, vectors = mpmath.eigsy(h)
        root = mpmath.diag([mpmath.sqrt(abs(x)) for x in values]) * vectors.T
        half = root * mpmath.diag([mpmath.sqrt(mpmath.mpf(x)) for x in weights.tolist()])
        trace = sum(mpmath.svd_r(half, compute_uv=False))
        budget = design.problem.budget.tolist()
        price = sum(mpmath.mpf(x) * y for x, y in zip(budget, weights.tolist(), strict=True))
        paid = sum(mpmath.mpf(x) for x in limits.tolist()) * (cap or 0.0)
        assert proof.lower_bound.lower <= trace**2 / price - paid
    less = replace(design, noise=Noise.of_covariance(design.covariance * (1 - 1e-11)))
    assert not prove(less).feasible


def test_radii_are_part_of_it() -> None:
    found = inside(Workload(mixing=SINGULAR / 3, error=ErrorMeasure(horizon=3)))
    assert found is not None
    assert isinstance(found[1], Enclosure)
    assert np.max(found[1].rad) > 0
