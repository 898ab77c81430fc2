"""Noise against chosen observers: what the bound proves, and answers of solvers that are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic.solvers import through_clarabel
from noisedesign.families.observers import model
from noisedesign.families.observers.bound import Multipliers, arrays_of, lower_bound, multipliers_of
from noisedesign.families.observers.observed import ObservedNoise
from noisedesign.families.observers.program import UnitProgram
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.observer_designs import ObserverDesign, designed, observer_program

Array = Any

GAP = 1e-5
PATH_3 = oracles.metropolis(nx.path_graph(3))


def everyone(n: int) -> list[threats.Observer]:
    return [threats.pndp(nodes=[node]) for node in range(n)]


# --- the bound --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved() -> ObserverDesign:
    return designed(mixing=PATH_3, horizon=2, observers=everyone(3), max_variance=1.2)


def bound_of(design: ObserverDesign, witness: Multipliers) -> float:
    return design.problem.unit_error * lower_bound(design.problem.normalized, witness)


def test_the_bound_follows_from_the_witness(solved: ObserverDesign) -> None:
    assert solved.witness is not None
    assert bound_of(solved, solved.witness) == solved.certificate.lower_bound
    algorithm, found = solved.problem.algorithm(solved.covariance), []
    for observer in solved.problem.observers:
        found += account(algorithm, observer, participation=single(2), responses="fixed")
    worst = max(one.sensitivity_squared for one in found)
    assert worst == solved.certificate.sensitivity_squared <= 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e3]))
def test_no_witness_proves_too_much(solved: ObserverDesign, seed: int, spread: float) -> None:
    assert solved.witness is not None
    rng = np.random.default_rng(seed)

    def moved(array: Array) -> Array:
        return array * (1 + spread * rng.normal()) + spread * rng.normal(size=array.shape)

    for base in (0.0, 1.0):
        wrong = Multipliers(
            factors=tuple(moved(base * f) for f in solved.witness.factors),
            weights=tuple(moved(base * v) for v in solved.witness.weights),
            cap=moved(base * solved.witness.cap),
        )
        assert bound_of(solved, wrong) <= solved.certificate.objective


def test_small_errors_cost_little_and_nonsense_proves_nothing(solved: ObserverDesign) -> None:
    witness = solved.witness
    assert witness is not None
    nearly = replace(witness, factors=tuple(f * (1 + 1e-6) for f in witness.factors))
    assert bound_of(solved, nearly) >= solved.certificate.objective * (1 - 1e-4)
    freed = replace(witness, cap=np.zeros(3))
    assert bound_of(solved, freed) < 0.99 * solved.certificate.objective
    assert bound_of(solved, replace(witness, cap=np.full(3, np.nan))) == 0
    assert bound_of(solved, replace(witness, weights=tuple(-v for v in witness.weights))) == 0


@pytest.mark.parametrize("name", ["observer_ranks", "observer_factors", "observer_weights"])
def test_what_is_stored_of_a_witness_is_lists(solved: ObserverDesign, name: str) -> None:
    program, witness = solved.problem.normalized, solved.witness
    assert witness is not None
    arrays = arrays_of(program, witness)
    again = bound_of(solved, multipliers_of(program, arrays))
    assert again == pytest.approx(solved.certificate.lower_bound, rel=1e-9)
    with pytest.raises(InputError, match=rf"{name}: expected a list"):
        multipliers_of(program, arrays | {name: arrays[name][:, None]})


@pytest.mark.parametrize(
    ("factor", "weight", "price", "bound"),
    [
        (1.0, 7.0, 0.0, 1.0),  # the optimum, whatever the scale of v
        (0.5, 1.0, 0.0, 0.25),
        (1.5, 1.0, 1.25, 0.0),  # feasible: 2.25 - 3 * 1.25 < 0
        (1.1, 1.0, 0.21, 0.58),  # 1.21 - 3 * 0.21
        (1.1, 1.0, 0.0, 0.58),  # the same excess, found by the repair
        (1.0, 1.0, -0.5, 0.0),  # clipped, the excess would be 0.5
        (0.0, 1.0, -1.0, 0.0),
        (1.0, -1.0, 0.0, 0.0),
    ],
)
def test_the_bound_on_one_number(factor: float, weight: float, price: float, bound: float) -> None:
    # min R with 1 / R <= 1 and R <= 3: the optimum is 1. The scales tried can only raise a bound.
    program = UnitProgram(
        gram=np.ones((1, 1)),
        cap=np.array([3.0]),
        observers=(ObservedNoise.of(np.ones((1, 1, 1)), signals=np.ones((1, 1))),),
    )
    witness = Multipliers(
        factors=(np.array([[factor]]),), weights=(np.array([weight]),), cap=np.array([price])
    )
    found = lower_bound(program, witness)
    assert found <= 1
    if price >= 0:
        assert found == pytest.approx(bound, abs=0.01)


def test_where_the_optimum_is_zero_the_gap_is_infinite() -> None:
    # Noise that sums to zero leaves the mean of the models alone, and no node sees all of it.
    design = designed(
        mixing=oracles.metropolis(nx.path_graph(4)),
        horizon=2,
        observers=everyone(4),
        max_variance=5.0,
        error=ErrorMeasure(horizon=2, of="mean-model"),
    )
    assert design.certificate.feasible
    assert design.certificate.objective < 1e-6
    assert design.certificate.gap == np.inf
    assert design.stop is Stop.INACCURATE


# --- backends, interruption, bad input --------------------------------------------------------


def test_another_solver_reaches_the_same_optimum(solved: ObserverDesign) -> None:
    other = designed(
        mixing=PATH_3,
        horizon=2,
        observers=everyone(3),
        max_variance=1.2,
        backend="scs",
        monitor=Monitor(gap=1e-4, tolerance=1e-7),
    )
    assert other.stop is Stop.SOLVED
    assert 0 <= other.certificate.gap <= 1e-4
    assert other.certificate.objective == pytest.approx(solved.certificate.objective, rel=1e-4)


def with_answers(monkeypatch: pytest.MonkeyPatch, *changes: Any) -> Callable[..., ObserverDesign]:
    """A design on a path of three with answers of the solver changed, one after the other."""
    remaining, read_once = iter(changes), model.read
    monkeypatch.setattr(model, "read", lambda *a: next(remaining)(*read_once(*a)))
    return partial(designed, mixing=PATH_3, horizon=2, observers=everyone(3))


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def nothing(*_: Any) -> Any:
    return None


def unchanged(noise: Array, witness: Multipliers) -> Any:
    return noise, witness


STRICT = 1e-15
"""A gap no answer is certified to, so that another one is asked for."""


@pytest.mark.parametrize(
    ("answer", "limit", "stop"),
    [
        (interrupt, None, Stop.INTERRUPTED),
        (nothing, None, Stop.FAILED),
        (nothing, 1e-9, Stop.TIME_LIMIT),
    ],
)
def test_without_an_answer_noise_is_independent(
    monkeypatch: pytest.MonkeyPatch, answer: Any, limit: float | None, stop: Stop
) -> None:
    run = with_answers(monkeypatch, answer)
    design = run(max_variance=3.0, monitor=Monitor(gap=STRICT, time_limit=limit))
    assert design.stop is stop
    assert design.witness is None
    assert design.certificate.feasible
    assert design.certificate.lower_bound == 0
    # The middle node sees everything, so unit noise would do; half the sensitivity is to spare.
    assert design.covariance == pytest.approx(2 * np.eye(3), rel=1e-9)


@pytest.mark.parametrize(("answer", "stop"), [(interrupt, "interrupted"), (nothing, "inaccurate")])
def test_the_best_answer_so_far_is_kept(
    monkeypatch: pytest.MonkeyPatch, answer: Any, stop: str
) -> None:
    def worse(noise: Array, witness: Multipliers) -> Any:
        return 3 * np.eye(3), replace(witness, factors=tuple(f / 2 for f in witness.factors))

    run, monitor = with_answers(monkeypatch, unchanged, worse, answer), Monitor(gap=STRICT)
    design = run(max_variance=3.0, monitor=monitor)
    assert design.stop.value == stop
    assert design.certificate.gap <= GAP
    assert [one.lower for one in monitor.history] == [design.certificate.lower_bound] * 2
    assert [one.upper for one in monitor.history] == [design.certificate.objective] * 2


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        (lambda noise: 1.5 * noise, 1e-5),  # too much: scaled back
        (lambda noise: 0.999 * noise, 5e-3),  # too little
        (lambda noise: noise - 1e-5 * np.ones((3, 3)), 1e-2),
        (
            lambda noise: noise + 1.7 * np.outer([1, -2, 1], [1, -2, 1]),
            10.0,
        ),  # mixed away, beyond the cap
        (lambda noise: np.diag([1.0, -2.0, 1.0]), 10.0),  # no covariance at all
    ],
)
@pytest.mark.parametrize("cap", [3.7, np.array([3.3, 4.1, 3.7])])
def test_answers_are_repaired(
    monkeypatch: pytest.MonkeyPatch, change: Any, gap: float, cap: Any
) -> None:
    def changed(noise: Array, witness: Multipliers) -> Any:
        return change(noise), witness

    run = with_answers(monkeypatch, changed, interrupt)
    design = run(max_variance=cap, monitor=Monitor(gap=STRICT))
    assert design.certificate.feasible
    assert design.certificate.gap <= gap


def test_variances_never_exceed_the_cap_by_a_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = np.eye(3) + 5 * np.outer([1, -2, 1], [1, -2, 1])

    def answer(*_: Any) -> Any:
        zeros = [np.zeros_like(one.signals) for one in problem.normalized.observers]
        return beyond, Multipliers(
            factors=tuple(z.T for z in zeros), weights=tuple(z[0] for z in zeros), cap=np.zeros(3)
        )

    monkeypatch.setattr(model, "read", answer)
    for cap in np.random.default_rng(5).uniform(1.2, 4.0, size=(8, 3)):
        asked: dict[str, Any] = {"mixing": PATH_3, "horizon": 2, "observers": tuple(everyone(3))}
        problem = observer_program(**asked, max_variance=cap)
        design = designed(**asked, max_variance=cap)
        assert design.certificate.feasible
        assert np.count_nonzero(design.covariance) == 9
        assert design.stop is Stop.INACCURATE


def test_units_may_be_singular() -> None:
    # One noise for all solves it, and the other directions have no unit then.
    n = 3
    problem = observer_program(
        mixing=np.ones((n, n)) / n,
        horizon=1,
        max_variance=3.0,
        observers=(threats.secure_sum(nodes=[0], own_noise="counted"),),
    )
    stated = model.in_units(problem, np.ones((n, n)))
    found = through_clarabel(stated.conic)({}).point
    assert found is not None
    answer = stated.read(found)
    (noise,) = answer.noises
    assert np.sum(problem.gram * noise.covariance) == pytest.approx(1 / n, rel=1e-6)
    witness = multipliers_of(problem.normalized, answer.proof)
    assert lower_bound(problem.normalized, witness) == pytest.approx(1 / n, rel=1e-4)
