"""What observers are proved to be told is what the account says, and no less in fifty digits."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest

from noisedesign.base.enclosures import exactly
from noisedesign.families.observers.program import ObserverProblem
from noisedesign.families.observers.rigorous import judge, seen_by
from noisedesign.families.observers.rigorous_sums import (
    MOST_NODES,
    Eliminated,
    Scaled,
    _orthonormal,
    rows_of,
)
from noisedesign.privacy import views
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Observer
from noisedesign.program.design import Design
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.proof import prove
from noisedesign.program.rigorous import NotProvedError
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.solve import solve
from noisedesign.tasks.verify import verify

Array = np.ndarray
DIGITS = 50

KINDS: dict[str, Observer] = {
    "a node": views.pndp(nodes=[1]),
    "two nodes": views.pndp(nodes=[0, 3]),
    "a node that counts its noise": views.pndp(nodes=[1], own_noise="counted"),
    "a tap": views.tap(nodes=[0, 2]),
    "everybody": views.ldp(),
    "an insider": views.insider(nodes=[2]),
    "two of them": views.secldp(nodes=[0, 1]),
}


def directed(n: int, seed: int) -> Array:
    """Row stochastic, half of its entries zero."""
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n)
    return np.asarray(w / w.sum(axis=1, keepdims=True))


def noise(n: int, seed: int) -> Array:
    f = np.random.default_rng(seed).standard_normal((n, n))
    return f @ f.T + 0.1 * np.eye(n)


SUMS: dict[str, Observer] = {
    "a sum": views.secure_sum(nodes=[1]),
    "two sums": views.secure_sum(nodes=[0, 3]),
    "a sum that counts its noise": views.secure_sum(nodes=[2], own_noise="counted"),
    "the mean": views.central(),
}


@pytest.mark.parametrize("kind", [*KINDS, *SUMS])
@pytest.mark.parametrize(("horizon", "rounds"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 3), (3, 2)])
def test_what_is_told_is_what_the_account_says(kind: str, horizon: int, rounds: int) -> None:
    observer, r = {**KINDS, **SUMS}[kind], noise(5, 1)
    problem = ObserverProblem(
        mixing=directed(5, 2),
        horizon=horizon,
        observers=(observer,),
        max_variance=50.0,
        rounds=rounds,
    )
    algorithm = problem.algorithm(r)
    exposures = account(algorithm, observer, participation=single(horizon), delta=None)
    known = {int(found.node): found.sensitivity_squared for found in exposures}
    seen = seen_by(problem, observer)
    assert seen.victims.tolist() == sorted(known)
    for victim, told in zip(seen.victims.tolist(), seen.told(exactly(r)).tolist(), strict=True):
        assert told == pytest.approx(known[victim], rel=1e-10, abs=1e-10)
        assert told >= known[victim] * (1 - 1e-11)


def test_what_is_told_is_above_that_of_fifty_digits() -> None:
    """Three steps of a path, of a node in its middle that counts its noise: all messages that it
    hears, stacked."""
    n, steps, heard = 5, 3, (1, 2, 3)
    w, r = directed(n, 4), noise(n, 5)
    w[2] = [0, 0.25, 0.5, 0.25, 0]
    observer = views.pndp(nodes=[2], own_noise="counted")
    problem = ObserverProblem(mixing=w, horizon=steps, observers=(observer,), max_variance=50.0)
    seen = seen_by(problem, observer)
    assert seen.rows.tolist() == [1, 2, 3]
    told = seen.told(exactly(r)).tolist()
    with mpmath.workdps(DIGITS):
        powers = [mpmath.matrix(w.tolist()) ** k for k in range(steps)]
        s = mpmath.zeros(steps * len(heard), steps * n)
        covariance = mpmath.zeros(steps * n)
        for t in range(steps):
            for i in range(n):
                for j in range(n):
                    covariance[t * n + i, t * n + j] = mpmath.mpf(r[i, j])
            for at, node in enumerate(heard):
                for before in range(t + 1):
                    for j in range(n):
                        s[t * len(heard) + at, before * n + j] = powers[t - before][node, j]
        inverse = mpmath.inverse(s * covariance * s.T)
        forms = s.T * inverse * s
        for victim, above in zip(seen.victims.tolist(), told, strict=True):
            truth = max(forms[t * n + victim, t * n + victim] for t in range(steps))
            assert truth <= above <= truth * (1 + mpmath.mpf("1e-11"))


def test_sums_are_above_those_of_fifty_digits() -> None:
    """The sum that node 1 gets in each of two rounds of two steps, and its own noise, stacked."""
    n, steps, rounds, ours = 4, 2, 2, 1
    w, r = directed(n, 4), noise(n, 5)
    problem = ObserverProblem(
        mixing=w,
        horizon=steps,
        observers=(views.secure_sum(nodes=[ours]),),
        max_variance=50.0,
        rounds=rounds,
    )
    seen = seen_by(problem, problem.observers[0])
    told = seen.told(exactly(r)).tolist()
    with mpmath.workdps(DIGITS):
        powers = [mpmath.matrix(w.tolist()) ** k for k in range(steps * rounds + 1)]
        covariance = mpmath.zeros(steps * n)
        s = mpmath.zeros(steps * (rounds + 1), steps * n)
        for t in range(steps):
            for i in range(n):
                for j in range(n):
                    covariance[t * n + i, t * n + j] = mpmath.mpf(r[i, j])
            s[t * (rounds + 1) + rounds, t * n + ours] = 1  # its own noise
            for k in range(rounds):
                for before in range(t + 1):
                    for j in range(n):
                        power = powers[(t - before) * rounds + k + 1]
                        s[t * (rounds + 1) + k, before * n + j] = power[ours, j]
        moved = s.copy()
        for t in range(steps):
            for j in range(steps * n):
                moved[t * (rounds + 1) + rounds, j] = 0
        inverse = mpmath.inverse(s * covariance * s.T)
        forms = moved.T * inverse * moved
        for victim, above in zip(seen.victims.tolist(), told, strict=True):
            truth = max(forms[t * n + victim, t * n + victim] for t in range(steps))
            assert truth <= above <= truth * (1 + mpmath.mpf("1e-10"))


def test_rows_that_are_sums_of_others_are_left_out_and_no_others() -> None:
    """A half plus a half is one, of a third and two thirds that are rounded it is not."""
    eliminated = Eliminated()
    assert eliminated.adds([2, 0, 4])
    assert eliminated.adds([1, 1, 1])
    assert not eliminated.adds([3, 1, 5])
    assert not eliminated.adds([0, 0, 0])
    assert eliminated.adds([3, 1, 6])
    twins = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    none = np.array([], dtype=np.intp)
    found = rows_of(twins, np.eye(3)[:1], known=none, rounds=3, steps=2)
    assert [len(lag.mid) for lag in found.lags] == [2, 2]  # 1 and 2 are never told apart
    by_hand = np.vstack([np.eye(3)[:1], twins[:1]])
    turn = found.lags[0].mid @ np.linalg.pinv(by_hand)
    assert found.lags[0].mid == pytest.approx(turn @ by_hand, abs=1e-15)
    power = np.linalg.matrix_power(twins, 3)
    assert found.lags[1].mid == pytest.approx(turn @ by_hand @ power, abs=1e-15)
    third = np.array([[1 / 3, 2 / 3], [2 / 3, 1 / 3]])
    whole = rows_of(third, np.ones((1, 2)), known=none, rounds=2, steps=1)
    assert len(whole.lags[0].mid) == (1 if (third.sum(axis=1) == 1).all() else 2)


def test_sums_of_many_nodes_are_not_covered() -> None:
    n = MOST_NODES + 1
    problem = ObserverProblem(
        mixing=np.full((n, n), 1 / 128) + np.eye(n) * (1 - n / 128),
        horizon=1,
        observers=(views.secure_sum(nodes=[0]),),
        max_variance=50.0,
    )
    with pytest.raises(NotProvedError, match="at most 64 nodes"):
        judge(problem, np.eye(n))


@pytest.mark.parametrize(
    ("observer", "rounds", "words"),
    [
        (views.shared_seed(nodes=[0]), 1, "knows"),
        (views.secldp(known_seeds=[1]), 1, "without noise"),
    ],
)
def test_other_observers_are_not_covered(observer: Observer, rounds: int, words: str) -> None:
    problem = ObserverProblem(
        mixing=directed(4, 6), horizon=2, observers=(observer,), max_variance=50.0, rounds=rounds
    )
    with pytest.raises(NotProvedError, match=words):
        judge(problem, noise(4, 7))


@cache
def solved(steps: int) -> Design:
    graph = build_graph("path", nodes=4)
    problem = SpaceProblem.from_graph(
        graph,
        max_variance=10.0,
        budget=np.array([1.0, 0.5, 2.0, 1.0]),
        observers=tuple(views.pndp(nodes=[i]) for i in range(4)),
        error=ErrorMeasure(horizon=steps),
    )
    design = solve(problem).design
    assert design is not None
    return design


@pytest.mark.parametrize("steps", [1, 2])
def test_designs_against_every_node_are_proved(steps: int) -> None:
    design = solved(steps)
    outcome = verify(design, rigorous=True)
    assert outcome.ok, outcome
    assert outcome.proof is not None
    assert outcome.proof.gap <= design.gap + 1e-8


@pytest.mark.parametrize("steps", [1, 2])
def test_multipliers_of_no_use_prove_less_and_never_more(steps: int) -> None:
    design = solved(steps)
    rng = np.random.default_rng(8)
    for factor in (-1.0, 1e-150, 0.9, 1.1, 2.0, 1e150):
        for name in ("dual_cap", "observer_factors", "observer_weights"):
            proof = {**design.proof, name: design.proof[name] * factor}
            found = prove(replace(design, proof=proof))
            assert found.lower_bound.lower <= design.objective
    for _ in range(3):
        proof = {
            name: a if name == "observer_ranks" else a * rng.uniform(0, 2, a.shape)
            for name, a in design.proof.items()
        }
        assert prove(replace(design, proof=proof)).lower_bound.lower <= design.objective


@pytest.mark.parametrize("name", ["dual_cap", "observer_factors", "observer_weights"])
def test_what_is_no_number_proves_nothing(name: str) -> None:
    design = solved(1)
    spoiled = {**design.proof, name: np.full_like(design.proof[name], np.nan)}
    assert not prove(replace(design, proof=spoiled)).rigorous


def test_noise_that_exceeds_a_budget_or_is_no_covariance_is_not_passed() -> None:
    design = solved(2)
    r = design.covariance
    less = prove(replace(design, noise=Noise.of_covariance(r * (1 - 1e-9))))
    assert "sensitivity" in less.why_not
    more = prove(replace(design, noise=Noise.of_covariance(r * 11)))
    assert "cap" in more.why_not
    values, vectors = np.linalg.eigh(r)
    values[0] = -1e-6
    negative = (vectors * values) @ vectors.T
    found = prove(replace(design, noise=Noise.of_covariance((negative + negative.T) / 2)))
    assert "semidefinite" in found.why_not


def test_singular_noise_is_proved() -> None:
    """One noise for both ends of a path, which no observer of the middle alone tells apart."""
    r = np.array([[4.0, 0.0, 4.0], [0.0, 4.0, 0.0], [4.0, 0.0, 4.0]])
    w = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
    problem = ObserverProblem(
        mixing=w, horizon=1, observers=(views.pndp(nodes=[0]),), max_variance=5.0
    )
    found = judge(problem, r)
    assert 0.25 <= found.sensitivity_squared <= 0.25 * (1 + 1e-11)
    assert found.objective.width < 1e-12
    middle = replace(problem, observers=(views.pndp(nodes=[1]),))
    told = math.inf
    with suppress(NotProvedError):
        told = judge(middle, r).sensitivity_squared
    assert told > 1e9


def test_rows_that_are_independent_before_they_are_rounded_are_kept_as_they_are() -> None:
    rows = [Scaled([[1 << 1100, 0]], 1100), Scaled([[0, 1]], 1100)]  # 2^-1100 is no float
    np.testing.assert_array_equal(_orthonormal(rows, 2), [[1.0, 0.0], [0.0, 0.0]])
