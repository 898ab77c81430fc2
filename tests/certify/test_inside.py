"""H of several steps as W^T M W, against fractions; singular ones proved by it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisedesign.base.enclosures import Enclosure
from noisedesign.certify import inside as module
from noisedesign.certify.inside import inside, known_factor
from noisedesign.design.design import Design
from noisedesign.design.proof import prove
from noisedesign.design.solve import solve
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads import ErrorMeasure, Workload
from noisedesign.tasks.verify import verify

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


def holds(m: Enclosure, truth: Exact) -> bool:
    rad = np.broadcast_to(m.rad, m.mid.shape).tolist()
    rows = zip(m.mid.tolist(), rad, truth, strict=True)
    return all(
        abs(Fraction(x) - y) <= Fraction(r) for row in rows for x, r, y in zip(*row, strict=True)
    )


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
    assert holds(m, by_hand)
    assert np.max(m.rad) < 16 * np.spacing(np.abs(m.mid).max())  # a few roundings would be seen
    whole = times(times(exact(w.T), by_hand), exact(w))
    assert np.array(whole, dtype=float) == pytest.approx(
        Workload(mixing=w, error=error).space_gram(), rel=1e-14
    )


def test_parts_that_are_known_to_three_digits_are_so_in_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ends of what is added, and their symmetric part, in fractions."""
    w, rng = np.eye(3), np.random.default_rng(2)
    parts = [
        Enclosure(rng.standard_normal((3, 3)), 1e-3 * rng.uniform(0, 1, (3, 3))) for _ in range(3)
    ]
    monkeypatch.setattr(module, "_without", lambda *_: iter(parts))
    found = inside(Workload(mixing=w, error=ErrorMeasure(horizon=3)))
    assert found is not None
    for signs in (np.ones((3, 3)), -np.ones((3, 3)), np.triu(np.ones((3, 3)))):
        total = exact(np.zeros((3, 3)))
        for part in parts:
            total = plus(
                plus(total, exact(part.mid), Fraction(1)), exact(signs * part.rad), Fraction(1)
            )
        turned = [list(column) for column in zip(*total, strict=True)]
        half = plus(exact(np.zeros((3, 3))), plus(total, turned, Fraction(1)), Fraction(1, 2))
        assert holds(found[1], half)


MOMENTUM = [
    ErrorMeasure(horizon=3, momentum=0.5),
    ErrorMeasure(horizon=4, momentum=0.3, of="last-iterate"),
    ErrorMeasure(
        horizon=3, momentum=0.5, learning_rates=[1.0, 0.5, 0.25], node_weights=[1.0, 2.0, 0.5]
    ),
    ErrorMeasure(horizon=3, momentum=0.9, step_weights=[0.5, 0.0, 2.0]),
]


@pytest.mark.parametrize("error", MOMENTUM, ids=range(len(MOMENTUM)))
def test_what_is_inside_of_an_error_with_momentum_is_enclosed(error: ErrorMeasure) -> None:
    """The model after step t holds F_rs W^(t-r+1) of noise s, for every r up to t."""
    w = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])
    found = inside(Workload(mixing=w, error=error))
    assert found is not None
    q = exact(np.diag(np.ones(3) if error.node_weights is None else error.node_weights))
    by_hand, powers = exact(np.zeros((3, 3))), [exact(np.eye(3))]
    for _ in range(error.horizon):
        powers.append(times(powers[-1], exact(w)))
    for s in range(error.horizon):
        for t in range(s, error.horizon):
            held = exact(np.zeros((3, 3)))
            for r in range(s, t + 1):
                held = plus(held, powers[t - r], Fraction(float(error.step_factor[r, s])))
            turned = [list(row) for row in zip(*held, strict=True)]
            by_hand = plus(by_hand, times(times(turned, q), held), Fraction(error.steps[t]))
    m = found[1]
    assert holds(m, by_hand)
    assert np.max(m.rad) < 64 * np.spacing(np.abs(m.mid).max())
    whole = times(times(exact(w.T), by_hand), exact(w))
    assert np.array(whole, dtype=float) == pytest.approx(
        Workload(mixing=w, error=error).space_gram(), rel=1e-13
    )


def test_what_mixes_otherwise_or_is_too_long_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.eye(3)
    error = ErrorMeasure(horizon=2, momentum=0.5)
    assert inside(Workload(mixing=np.stack([w, w]), error=ErrorMeasure(horizon=2))) is None
    assert inside(Workload(mixing=w, error=error)) is not None
    monkeypatch.setattr("noisedesign.certify.inside.MOST_WORK", 4 * 27 - 1.0)
    assert inside(Workload(mixing=w, error=error)) is None


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


@pytest.mark.parametrize("rates", [None, [1.0, 0.5, 0.25]])
def test_a_singular_error_with_momentum_is_proved_and_forgeries_are_not(
    rates: list[float] | None,
) -> None:
    error = ErrorMeasure(horizon=3, momentum=0.5, learning_rates=rates)
    problem = SpaceProblem(mixing=SINGULAR, error=error, budget=np.array([1.0, 3.0, 1.0]))
    design = solve(problem, gap=1e-9).design
    assert design is not None
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap <= design.gap + 1e-10
    said, noise = design.certificate, design.covariance

    def told(**claims: float) -> Design:
        return replace(design, certificate=replace(said, **claims))

    tilted = noise.copy()
    tilted[0, 0] *= 1 - 1e-9
    other = replace(error, momentum=0.5 + 1e-6)
    assert verify(design, rigorous=True).ok
    for forged in (
        told(lower_bound=said.lower_bound * (1 + 1e-9)),
        told(objective=said.objective * (1 - 1e-9)),
        replace(design, noise=Noise.of_covariance(noise * (1 - 1e-11))),
        replace(design, noise=Noise.of_covariance(tilted)),
        replace(design, proof={"dual_weights": design.proof["dual_weights"][[1, 0, 2]]}),
        replace(design, problem=replace(problem, error=other)),
    ):
        assert not verify(forged, rigorous=True).ok


IN_TIME = [
    ErrorMeasure(horizon=4, of="last-iterate"),
    ErrorMeasure(horizon=3),
    ErrorMeasure(horizon=3, step_weights=[0.5, 0.0, 2.0], learning_rates=[1.0, 0.3, 0.1]),
    ErrorMeasure(horizon=3, of="last-iterate", node_weights=[1.0, 2.0, 0.5]),
    ErrorMeasure(horizon=3, of="mean-model", node_weights=[1.0, 2.0, 0.7], average=[3.0, 1.0, 1.0]),
    ErrorMeasure(horizon=3, of="consensus", node_weights=[1.0, 2.0, 0.7]),
    ErrorMeasure(horizon=3, of="last-iterate", curvature=[0.3, 1.7], curvature_weights=[2.0, 0.1]),
    ErrorMeasure(horizon=3, of="loss", curvature=[0.01, 0.9], weight_decay=1e-3),
    ErrorMeasure(horizon=3, of="loss-of-mean", curvature=0.3, learning_rates=[1.0, 0.3, 0.1]),
    ErrorMeasure(horizon=3, of="consensus", curvature=[0.3, 1.0]),
    ErrorMeasure(horizon=4, of="last-iterate", momentum=0.6, learning_rates=[1.0, 0.3, 0.1, 0.7]),
    ErrorMeasure(horizon=4, of="loss", momentum=0.3, curvature=[0.3, 1.0], weight_decay=0.1),
    ErrorMeasure(
        horizon=3,
        momentum=0.9,
        curvature=[0.3, 1.7],
        learning_rates=[0.5, 1.0, 0.1],
        of="mean-model",
    ),
]


def seen_of_steps(w: Array, error: ErrorMeasure) -> mpmath.matrix:
    """A of H = A^T A at fifty digits: a unit of noise at one step and node is let through."""
    n = len(w)
    given = np.ones(n) if error.node_weights is None else error.node_weights
    weights = [mpmath.mpf(float(x)) for x in given]
    mean = weights if error.average is None else [mpmath.mpf(float(x)) for x in error.average]
    mean = [x / sum(mean) for x in mean]
    rates = np.ones(error.horizon) if error.learning_rates is None else error.learning_rates
    mixing = mpmath.matrix(w.tolist())
    given = [0.0] if error.curvature is None else error.curvature
    counts = np.ones(len(given)) if error.curvature_weights is None else error.curvature_weights
    felt = [mpmath.mpf(float(at)) + mpmath.mpf(error.weight_decay) for at in given]
    terms = [(mpmath.mpf(float(k)), at) for k, at in zip(counts, felt, strict=True)]
    if error.of.startswith("loss"):
        terms = [(k * at / 2, at) for k, at in terms]
        weights = mean if error.of == "loss" else [mpmath.mpf(1)]
    columns = []
    for s in range(error.horizon):
        column = []
        for j, (count, at) in itertools.product(range(n), terms):
            state, velocity = mpmath.zeros(n, 1), mpmath.zeros(n, 1)
            for t in range(error.horizon):
                velocity = mpmath.mpf(error.momentum) * velocity - at * state
                if t == s:
                    velocity[j] += 1
                state = mixing * (state + mpmath.mpf(float(rates[t])) * velocity)
                average = sum(m * state[i] for i, m in enumerate(mean))
                if error.of in ("mean-model", "loss-of-mean"):
                    read = [mpmath.sqrt(sum(weights)) * average]
                else:
                    away = average if error.of == "consensus" else 0
                    read = [mpmath.sqrt(x) * (state[i] - away) for i, x in enumerate(weights)]
                share = mpmath.sqrt(count * mpmath.mpf(float(error.steps[t])))
                column += [share * x for x in read]
        columns.append(column)
    rows = [[c[i] for c in columns] for i in range(len(columns[0]))]
    return mpmath.matrix(rows)


@pytest.mark.parametrize("error", IN_TIME, ids=range(len(IN_TIME)))
def test_a_factor_in_time_holds_what_noise_of_every_step_does(error: ErrorMeasure) -> None:
    w = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])
    found = known_factor(Workload(mixing=w, error=error), pairs=False)
    assert found is not None
    with mpmath.workdps(DIGITS):
        a = seen_of_steps(w, error)
        truth = {tuple(a[i, :]) for i in range(a.rows)}
        # The rows of either are the same in another order; those of steps that do not count are 0.
        rad = np.broadcast_to(found.rad, found.mid.shape)
        left = [row for row in truth if any(row)]
        for row, off in zip(found.mid.tolist(), rad.tolist(), strict=True):
            near = [
                other
                for other in truth
                if all(abs(x - y) <= r for x, y, r in zip(row, other, off, strict=True))
            ]
            assert near or not any(row)
            left = [other for other in left if other not in near]
        assert not left
        h = a.T * a
        whole = np.array([[float(h[i, j]) for j in range(h.cols)] for i in range(h.rows)])
    assert whole == pytest.approx(Workload(mixing=w, error=error).time_gram(), rel=1e-13)
    allowed = 64 if error.curvature is None else 128
    assert np.max(rad) < allowed * np.spacing(np.abs(found.mid).max())
    assert found.mid.T @ found.mid == pytest.approx(whole, rel=1e-13)
    both = known_factor(Workload(mixing=w, error=error), pairs=True)
    assert both is not None
    assert both.rad.size == found.rad.size
    of_pairs = Workload(mixing=w, error=error).gram()
    assert both.mid.T @ both.mid == pytest.approx(of_pairs, rel=1e-13, abs=1e-15)
    # The entries are those of noise over time, of which all are right: column (s, j) has part j.
    assert np.sort(both.mid.ravel()) == pytest.approx(np.sort(found.mid.ravel()), abs=0)


LAZY = (SINGULAR + np.eye(3)) / 2
LAST = {
    "one of 12 steps": (FixedEpoch(epochs=1, separation=12), None),
    "three of 12": (FixedEpoch(epochs=3, separation=4), None),
    "capped": (FixedEpoch(epochs=1, separation=12), 8.0),
    "three of 12, capped": (FixedEpoch(epochs=3, separation=4), 20.0),
}


@pytest.mark.parametrize("name", LAST)
def test_noise_over_time_with_a_singular_error_is_proved_and_forgeries_are_not(name: str) -> None:
    """H of the last of 12 iterates of three nodes has rank 3."""
    scheme, cap = LAST[name]
    last = ErrorMeasure(horizon=12, of="last-iterate")
    problem = TimeProblem.decentralized(
        mixing=LAZY, participation=scheme, error=last, max_variance=cap
    )
    design = solve(problem).design
    assert design is not None
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap <= design.gap + 1e-9
    with mpmath.workdps(DIGITS):
        a = seen_of_steps(LAZY, last)
        noising = mpmath.matrix(design.strategy.tolist()) ** -1
        seen = a * noising
        truth = sum(x * x for x in seen)
        assert proof.objective.lower <= truth <= proof.objective.upper
        blocks, limits = design.proof["dual_blocks"], design.proof.get("dual_cap", np.zeros(12))
        half, price, b = mpmath.zeros(12), mpmath.mpf(0), scheme.separation
        for j, block in enumerate(blocks):
            values, vectors = mpmath.eigsy(mpmath.matrix(((block + block.T) / 2).tolist()))
            price += max(block[i, i] for i in range(len(block)))
            for s, t in np.ndindex(*block.shape):
                half[j + s * b, j + t * b] = vectors[s, t] * mpmath.sqrt(max(values[t], 0))
        all_rows = mpmath.matrix([*a.tolist(), *np.diag(np.sqrt(limits)).tolist()])
        square = (all_rows * half).T * (all_rows * half)
        trace = sum(mpmath.sqrt(abs(x)) for x in mpmath.eigsy(square, eigvals_only=True))
        most = trace**2 / price - sum(limits.tolist()) * (cap or 0.0)
        assert proof.lower_bound.lower <= most * (1 + mpmath.mpf(10) ** -12)
        assert proof.lower_bound.lower >= most * (1 - 1e-8)
    assert verify(design, rigorous=True).ok
    said, c = design.certificate, design.strategy

    def told(**claims: float) -> Design:
        return replace(design, certificate=replace(said, **claims))

    def of(strategy: Array) -> Design:
        form = DenseStrategy(strategy=strategy)
        return replace(design, noise=replace(design.noise, strategy=form))

    other = TimeProblem.decentralized(
        mixing=LAZY @ LAZY, participation=scheme, error=last, max_variance=cap
    )
    for forged in (
        told(lower_bound=said.lower_bound * (1 + 1e-6)),
        told(objective=said.objective * (1 - 1e-9)),
        of(c * (1 + 1e-11)),
        of(c * np.linspace(1, 1 + 1e-6, 12)[:, None]),
        replace(design, proof=design.proof | {"dual_blocks": np.ones_like(blocks)}),
        replace(design, problem=other),
        replace(design, problem=replace(problem, gram=other.gram)),
    ):
        assert not verify(forged, rigorous=True).ok


def test_what_changes_or_is_too_large_has_no_factor_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w, last = np.eye(3), ErrorMeasure(horizon=2, of="last-iterate")
    assert known_factor(Workload(mixing=np.stack([w, w]), error=last), pairs=False) is None
    assert known_factor(Workload(mixing=w, error=last), pairs=False) is not None
    monkeypatch.setattr("noisedesign.certify.inside.MOST_ENTRIES", 9 * 2 - 1.0)
    assert known_factor(Workload(mixing=w, error=last), pairs=False) is None


def test_radii_are_part_of_it() -> None:
    found = inside(Workload(mixing=SINGULAR / 3, error=ErrorMeasure(horizon=3)))
    assert found is not None
    assert isinstance(found[1], Enclosure)
    assert np.max(found[1].rad) > 0
