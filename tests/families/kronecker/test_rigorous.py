"""Kronecker noise is proved factor by factor, against fractions, fifty digits and all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisedesign.base.monitor import Monitor
from noisedesign.families.family import family_of
from noisedesign.families.kronecker import rigorous
from noisedesign.families.kronecker.bound import Witness, lower_bound
from noisedesign.families.kronecker.solver import design_kronecker, witness_of
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import Noise
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import workload

Array = np.ndarray
DIGITS = 50
ULPS = 16


def directed(n: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n)
    return np.asarray(w / w.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("transposed", [False, True])
def test_powers_are_known_with_their_errors(transposed: bool) -> None:
    """Rows add up to one, or columns: errors grow with the number of steps only."""
    w = directed(5, 0)
    w = w.T.copy() if transposed else w
    start = np.random.default_rng(1).standard_normal((5, 3))
    exact = [[Fraction(x) for x in row] for row in start.tolist()]
    weights = [[Fraction(x) for x in row] for row in w.tolist()]
    for found in rigorous.powers(w, start, 12):
        columns = list(zip(*exact, strict=True))
        exact = [[sum(map(Fraction.__mul__, r, c), Fraction(0)) for c in columns] for r in weights]
        away = max(
            abs(Fraction(x) - t)
            for row, truth in zip(found.mid.tolist(), exact, strict=True)
            for x, t in zip(row, truth, strict=True)
        )
        assert away <= Fraction(found.rad)
        assert 0 < found.rad < 1e-14
        # A few units in the last place of the largest entry would be seen.
        assert found.rad < ULPS * 12 * np.spacing(np.abs(start).max())


def lazy(epochs: int, separation: int, nodes: int = 4, **kwargs: float) -> SpaceTimeProblem:
    graph = build_graph("star", nodes=nodes)
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    return SpaceTimeProblem.from_graph(
        graph, weights="lazy-metropolis-hastings", participation=scheme, **kwargs
    )


def many(a: Array) -> mpmath.matrix:
    return mpmath.matrix(np.asarray(a).tolist())


def stacked(program: SpaceTimeProgram) -> mpmath.matrix:
    """A of all pairs of step and node, blocks W^(t-s+1)."""
    w, steps = many(program.workload.mixing), program.workload.horizon
    n = w.rows
    found, powers = mpmath.zeros(n * steps), [w]
    for _ in range(steps):
        powers.append(powers[-1] * w)
    for t in range(steps):
        for s in range(t + 1):
            for i in range(n):
                for j in range(n):
                    found[t * n + i, s * n + j] = powers[t - s][i, j]
    return found


@pytest.mark.parametrize("scheme", [(1, 3), (2, 2), (3, 1)])
def test_objectives_hold_those_of_fifty_digits(scheme: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    problem = lazy(*scheme)
    program = family_of(problem).program(problem)
    steps = scheme[0] * scheme[1]
    c = np.tril(rng.standard_normal((steps, steps))) + 2 * np.eye(steps)
    f = rng.standard_normal((4, 4))
    r = f @ f.T + np.eye(4)
    r = (r + r.T) / 2
    found = rigorous.judge(program, strategy=c, covariance=r).objective
    with mpmath.workdps(DIGITS):
        a, inverse = stacked(program), mpmath.inverse(many(c))
        s = inverse * inverse.T
        noise = mpmath.zeros(4 * steps)
        for t in range(steps):
            for q in range(steps):
                for i in range(4):
                    for j in range(4):
                        noise[4 * t + i, 4 * q + j] = s[t, q] * mpmath.mpf(r[i, j])
        seen = a * noise * a.T
        truth = sum(seen[i, i] for i in range(seen.rows))
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower <= 1e-11 * found.upper
    off = math.ldexp(float(truth), -33)
    assert not found.lower <= truth + off <= found.upper


def nuclear(program: SpaceTimeProgram, blocks: Array, weights: Array) -> mpmath.mpf:
    """The bound of P x diag(v) to fifty digits, P of two steps a pattern."""
    k, b = program.participation.epochs, program.participation.separation
    n, budget = len(weights), program.budget.tolist()
    half = mpmath.zeros(n * k * b)
    price = mpmath.mpf(0)
    for j in range(b):
        values, vectors = mpmath.eigsy(many(blocks[j]))
        root = vectors * mpmath.diag([mpmath.sqrt(max(x, 0)) for x in values])
        price += max(blocks[j][i][i] for i in range(k))
        for s in range(k):
            for t in range(k):
                for u in range(n):
                    at = ((j + s * b) * n + u, (j + t * b) * n + u)
                    half[at] = root[s, t] * mpmath.sqrt(mpmath.mpf(weights[u]))
    trace = sum(mpmath.svd_r(stacked(program) * half, compute_uv=False))
    return trace**2 / (price * sum(map(lambda x, y: mpmath.mpf(x) * y, budget, weights.tolist())))


@pytest.mark.parametrize("scheme", [(1, 2), (2, 2)])
def test_bounds_are_below_those_of_fifty_digits(
    scheme: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = lazy(*scheme)
    program = family_of(problem).program(problem)
    monitor = Monitor(gap=1e-6)
    witness = witness_of(program, design_kronecker(program, monitor=monitor), monitor)
    with mpmath.workdps(DIGITS):
        truth = nuclear(program, witness.blocks, witness.weights)
    found = rigorous.lower_bound(program, witness, enough=0.0)
    assert found.lower <= truth
    # That of the modes is below it where nodes do not all look alike.
    assert found.lower >= lower_bound(program, witness) * (1 - 1e-11)
    wrong = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
    for basis in (wrong, 0.9 * program.workload.modes.basis, program.workload.modes.basis[::-1]):
        spoiled = workload.Modes(basis=basis, factor=program.workload.modes.factor)
        monkeypatch.setattr(workload.Workload, "modes", spoiled)
        assert rigorous.lower_bound(program, witness, enough=0.0).lower <= truth
        monkeypatch.undo()


@pytest.mark.parametrize("away", [-1e-6, 1e-6])
def test_what_powers_are_off_by_is_taken_off_the_bound(
    away: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Powers are moved, either way, and say so: whatever the bound was it is known no better. Where
    the move and what is said of it cancel, both bounds are equal up to rounding."""
    program = family_of(lazy(2, 2)).program(lazy(2, 2))
    witness, powers = Witness.uniform(program), rigorous.powers
    truth = rigorous.lower_bound(program, witness, enough=0.0)

    def moved(w: Array, start: Array, count: int) -> Iterator[rigorous.Power]:
        for found in powers(w, start, count):
            yield rigorous.Power(found.mid + away * np.sign(found.mid), found.rad + abs(away))

    monkeypatch.setattr(rigorous, "powers", moved)
    found = rigorous.lower_bound(program, witness, enough=0.0)
    assert found.lower <= truth.lower * (1 + 1e-14)
    assert found.upper >= truth.upper * (1 - 1e-14)
    assert found.lower >= truth.lower * (1 - 1e-3)


def test_multipliers_that_are_no_numbers_prove_nothing() -> None:
    problem = lazy(2, 2)
    program = family_of(problem).program(problem)
    for blocks, weights in ((np.nan, 1.0), (1.0, np.nan), (0.0, 1.0), (1.0, -1.0), (np.inf, 1.0)):
        witness = Witness(blocks=np.full((2, 2, 2), blocks), weights=np.full(4, weights))
        with pytest.raises(rigorous.rigorous.NotProvedError):
            rigorous.lower_bound(program, witness, enough=0.0)


def test_many_pairs_are_proved_without_arrays_of_their_size() -> None:
    """4800 pairs: the array of all of them would take 184 MB."""
    ring = np.eye(40) / 2 + (np.roll(np.eye(40), 1, axis=0) + np.roll(np.eye(40), -1, axis=0)) / 4
    problem = SpaceTimeProblem(mixing=ring, participation=single(120))
    program = family_of(problem).program(problem)
    assert program.workload.nodes * program.workload.horizon > rigorous.MOST_COORDINATES
    independent = family_of(problem).independent(program)
    noise = Noise.of_strategy(independent.strategy, covariance=independent.covariance)
    judged = family_of(problem).rigorous_judge(program, noise, {})
    truth = program.independent_objective
    assert judged.objective.lower * (1 - 1e-12) <= truth <= judged.objective.upper * (1 + 1e-12)
    assert judged.objective.width <= 1e-10 * truth
    assert 1 - 1e-10 <= judged.sensitivity_squared <= 1 + 1e-14
    bound = rigorous.lower_bound(program, Witness.uniform(program), enough=0.0)
    known = family_of(problem).bound(program, {}).value
    assert bound.lower == pytest.approx(known, rel=1e-10)
