"""What observers are proved to be told is what the account says, and no less in fifty digits."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from noisedesign.base.enclosures import Enclosure, exactly
from noisedesign.certify.rigorous import NotProvedError, gram_of
from noisedesign.design.design import Design
from noisedesign.design.proof import prove
from noisedesign.design.solve import solve
from noisedesign.families.observers import bound, rigorous
from noisedesign.families.observers.bound import Multipliers
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.program import ObserverProgram
from noisedesign.families.observers.rigorous import (
    MOST_NODES,
    Eliminated,
    Scaled,
    _orthonormal,
    judge,
    lower_bound,
    rows_of,
    seen_by,
)
from noisedesign.forms import Noise
from noisedesign.privacy import views
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Observer
from noisedesign.privacy.views.noise import Knowledge
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.verify import verify
from tests.support.observer_designs import observer_program

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
    """Row stochastic, of a directed ring and more, a third of its entries zero or more."""
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n)
    w += 0.3 * np.roll(np.eye(n), 1, axis=1)
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
    problem = observer_program(
        mixing=directed(5, 2),
        horizon=horizon,
        observers=(observer,),
        max_variance=50.0,
        rounds=rounds,
    )
    algorithm = problem.algorithm(r)
    exposures = account(
        algorithm, observer, participation=single(horizon), delta=None, responses="fixed"
    )
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
    problem = observer_program(mixing=w, horizon=steps, observers=(observer,), max_variance=50.0)
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
    problem = observer_program(
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


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, object)


def test_rows_that_are_sums_of_others_are_left_out_and_no_others() -> None:
    """A half plus a half is one, of a third and two thirds that are rounded it is not."""
    eliminated = Eliminated()
    assert eliminated.adds(whole(2, 0, 4))
    assert eliminated.adds(whole(1, 1, 1))
    assert not eliminated.adds(whole(3, 1, 5))
    assert not eliminated.adds(whole(0, 0, 0))
    assert eliminated.adds(whole(3, 1, 6))
    late = Eliminated()  # rows whose first entries stand anywhere
    assert late.adds(whole(0, 0, 1, 1))
    assert not late.adds(whole(0, 0, 2, 2))
    assert late.adds(whole(0, 0, 2, 3))
    assert not late.adds(whole(0, 0, 0, 5))
    twins = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    none = np.array([], dtype=np.intp)
    found = rows_of(twins, np.eye(3)[:1], known=none, rounds=3, steps=2)
    assert [len(lag.mid) for lag in found] == [2, 2]  # 1 and 2 are never told apart
    by_hand = np.vstack([np.eye(3)[:1], twins[:1]])
    turn = found[0].mid @ np.linalg.pinv(by_hand)
    assert found[0].mid == pytest.approx(turn @ by_hand, abs=1e-15)
    power = np.linalg.matrix_power(twins, 3)
    assert found[1].mid == pytest.approx(turn @ by_hand @ power, abs=1e-15)
    third = np.array([[1 / 3, 2 / 3], [2 / 3, 1 / 3]])
    sums = rows_of(third, np.ones((1, 2)), known=none, rounds=2, steps=1)
    assert len(sums[0].mid) == (1 if (third.sum(axis=1) == 1).all() else 2)


def test_sums_of_many_nodes_are_not_covered() -> None:
    n = MOST_NODES + 1
    problem = observer_program(
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
    problem = observer_program(
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
        responses="fixed" if steps > 1 else "any",
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
    problem = observer_program(
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


def test_what_is_proved_of_noise_holds_before_its_diagonal_is_raised_and_after() -> None:
    """By 2e-12 it is no covariance: raised by less than 4e-12 it is one, and this shows in all."""
    less = 2e-12
    r = np.array([[4.0, 0.0, 4.0], [0.0, 4.0, 0.0], [4.0, 0.0, 4.0 - less]])
    w = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
    problem = observer_program(
        mixing=w, horizon=1, observers=(views.pndp(nodes=[0]),), max_variance=4.0
    )
    found = judge(problem, r)
    assert found.sensitivity_squared >= 0.25  # 1 / R_11, which is what the observer hears
    assert found.variance_ratio is not None
    assert 1 < found.variance_ratio < 1 + 1e-12
    own = 4 * 1.375 - less * 0.3125 + 8 * 0.0625  # tr(W R W^T), W^T W having these entries
    assert found.objective.lower <= own
    raised = own + less / 2 * 1.375  # the least that makes it a covariance, about
    assert raised <= found.objective.upper <= own + 4e-12 * 1.375 + 1e-13


def test_an_error_of_several_steps_that_is_singular_is_enclosed_by_what_it_is_formed_of() -> None:
    """All nodes hear all: noise is next to nothing in every model, and large before. Rounded H
    would tell its error to some 1e-4."""
    n, steps = 3, 3
    w = np.full((n, n), 1 / n)
    r = 1e10 * (np.eye(n) - 1 / n) + np.eye(n)
    problem = observer_program(mixing=w, horizon=steps, observers=(views.ldp(),), max_variance=1e12)
    h, power = [[Fraction(0)] * n for _ in range(n)], fractions(w)
    for lag in range(steps):
        square = exact_product([list(c) for c in zip(*power, strict=True)], power)
        h = [
            [x + (steps - lag) * y for x, y in zip(*pair, strict=True)]
            for pair in zip(h, square, strict=True)
        ]
        power = exact_product(power, fractions(w))
    r = (r + r.T) / 2
    truth = sum((h[i][j] * Fraction(r[i, j]) for i in range(n) for j in range(n)), Fraction(0))
    found = judge(problem, r).objective
    assert found.lower <= truth <= found.upper
    assert found.width < 1e-10
    known = gram_of(problem.anywhere)
    for i in range(n):
        for j in range(n):
            assert abs(Fraction(known.mid[i, j]) - h[i][j]) <= Fraction(known.rad[i, j]) <= 1e-14


def test_rows_that_are_independent_before_they_are_rounded_are_kept_as_they_are() -> None:
    rows = Scaled(np.array([[1 << 1100, 0], [0, 1]], object), 1100)  # 2^-1100 is no float
    np.testing.assert_array_equal(_orthonormal(rows), [[1.0, 0.0], [0.0, 0.0]])


# --- where allowances are large -------------------------------------------------------------------


def fractions(a: Array) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in a.tolist()]


def exact_product(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    columns = list(zip(*b, strict=True))
    return [[sum(map(Fraction.__mul__, row, c), Fraction(0)) for c in columns] for row in a]


@pytest.mark.parametrize("kind", ["a node", "a node that counts its noise", "two nodes", "a tap"])
@pytest.mark.parametrize("radius", [0.0, 1e-3, 1.0])
def test_what_is_seen_over_several_steps_is_held_in_exact_arithmetic(
    kind: str, radius: float
) -> None:
    """K of every two steps from W, R and who is heard, in fractions and without a tolerance, at
    both ends of what is known of R."""
    n, steps = 5, 4
    w, r = directed(n, 9), noise(n, 10)
    observer = KINDS[kind]
    problem = observer_program(mixing=w, horizon=steps, observers=(observer,), max_variance=50.0)
    seen = seen_by(problem, observer)
    spread = radius * np.abs(r)
    found = seen.covariance(Enclosure(r, spread) if radius else exactly(r))
    hears = set(observer.listened or observer.coalition)
    if observer.sees == "received":
        hears |= set(np.flatnonzero((w[list(observer.coalition)] != 0).any(axis=0)).tolist())
    hidden = sorted(set(range(n)) - hears)
    rows = sorted(hears | observer.knows.revealed)
    assert seen.rows.tolist() == rows
    lags = [[[Fraction(int(i == j)) for j in range(n)] for i in rows]]
    reach = [
        [Fraction(0 if i in observer.knows.revealed else w[i, h]) for h in hidden] for i in rows
    ]
    for _ in range(1, steps):
        lags.append(
            [
                [row[hidden.index(j)] if j in hidden else Fraction(0) for j in range(n)]
                for row in reach
            ]
        )
        reach = exact_product(reach, fractions(w[np.ix_(hidden, hidden)]))
    m = len(rows)
    for sign in (1, -1):
        end = [
            [x + sign * y for x, y in zip(*pair, strict=True)]
            for pair in zip(fractions(r), fractions(spread), strict=True)
        ]
        for t in range(steps):
            for s in range(steps):
                total = [[Fraction(0)] * m for _ in range(m)]
                for before in range(min(s, t) + 1):
                    right = [list(c) for c in zip(*lags[s - before], strict=True)]
                    part = exact_product(exact_product(lags[t - before], end), right)
                    total = [
                        [x + y for x, y in zip(*pair, strict=True)]
                        for pair in zip(total, part, strict=True)
                    ]
                for i in range(m):
                    for j in range(m):
                        mid, rad = (
                            found.mid[t * m + i, s * m + j],
                            found.rad[t * m + i, s * m + j] if found.rad.ndim else found.rad,
                        )
                        assert abs(Fraction(float(mid)) - total[i][j]) <= Fraction(float(rad))


def test_noise_that_is_known_of_nodes_that_are_not_heard_tells_nothing_of_them() -> None:
    """Whoever hears 0 and knows the noise of 3 learns more of 0, and nothing of 3."""
    r = noise(5, 11)
    observer = Observer(
        model="tap", sees="sent", listened=(0,), knows=Knowledge(values=frozenset({3}))
    )
    problem = observer_program(
        mixing=directed(5, 12), horizon=1, observers=(observer,), max_variance=50.0
    )
    seen = seen_by(problem, observer)
    told = dict(zip(seen.victims.tolist(), seen.told(exactly(r)).tolist(), strict=True))
    left = r[0, 0] - r[0, 3] ** 2 / r[3, 3]
    assert told[0] == pytest.approx(1 / left, rel=1e-11)
    assert [told[node] for node in (1, 2, 3, 4)] == [0.0] * 4


def test_a_node_that_knows_its_noise_and_hears_itself_alone_is_not_covered() -> None:
    """What it sends tells what it received before, which rows of known noise leave out."""
    observer = Observer(
        model="tap",
        sees="sent",
        coalition=(0,),
        listened=(0,),
        knows=Knowledge(values=frozenset({0})),
    )
    problem = observer_program(
        mixing=directed(5, 13), horizon=2, observers=(observer,), max_variance=50.0
    )
    assert (problem.mixing[0, 1:] != 0).any()
    with pytest.raises(NotProvedError, match="not covered"):
        seen_by(problem, observer)


@cache
def multipliers() -> tuple[ObserverProgram, Multipliers, float]:
    """Of a small problem, with the objective of feasible noise."""
    design = solved(1)
    problem = FAMILY.program(design.problem)
    _, found = bound.proved(problem, design.proof)
    return problem, found, design.objective


@pytest.mark.parametrize("share", [0.1, 0.9, 1 - 1e-3, 1 - 1e-6])
def test_multipliers_that_are_scaled_down_gain_as_much_less(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large by 1 / share, and used at that share: they prove what they did, and no more."""
    problem, found, objective = multipliers()
    honest = lower_bound(problem, found)
    monkeypatch.setattr(rigorous, "SCALES", (share,))
    larger = replace(found, factors=tuple(f / math.sqrt(share) for f in found.factors))
    scaled = lower_bound(problem, larger)
    assert scaled.lower <= objective
    assert scaled.lower == pytest.approx(honest.lower, rel=1e-9)
    assert lower_bound(problem, found).lower < honest.lower * (1 - (1 - share) / 3)


def test_every_coalition_that_a_rough_bound_does_not_pass_is_judged_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until one is over its budget; a bound that is no number passes nobody."""
    graph = build_graph("ring", nodes=5)
    problem = SpaceProblem.from_graph(
        graph, max_variance=10.0, observers=views.coalitions(nodes=range(5), size=2)
    )
    design = solve(problem, gap=1e-4).design
    assert design is not None
    program, r = FAMILY.program(problem), design.covariance
    assert judge(program, r).sensitivity_squared <= 1
    count = len(program.observers)
    rough = np.full(count, 1 + 1e-3)
    for told in (rough, np.where(np.arange(count) == 3, math.nan, 0.5), rough * math.nan):
        monkeypatch.setattr(rigorous, "told_above", lambda *given, told=told: told.copy())
        assert judge(program, r).sensitivity_squared <= 1
        assert not judge(program, 0.1 * r).sensitivity_squared <= 1
