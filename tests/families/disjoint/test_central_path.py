"""Several participations where H is singular or variances are capped: by hand, by a conic solver of
another hand, and by what any answer has to keep."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.optimize

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import central_path
from noisedesign.families.family import Answer, family_of
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.verify import verify
from tests.support import oracles

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
KARATE = oracles.metropolis(nx.karate_club_graph())


def asked(h: np.ndarray, k: int, b: int, **words: Any) -> TimeProblem:
    return TimeProblem.from_gram(gram=h, participation=FixedEpoch(epochs=k, separation=b), **words)


def of_models(w: np.ndarray, k: int, b: int, of: str, **words: Any) -> TimeProblem:
    error = ErrorMeasure(horizon=k * b, of="mean-model", step_weights=[0] * (k * b - 1) + [1])
    if of != "final mean model":
        error = ErrorMeasure(horizon=k * b, of=of)
    scheme = FixedEpoch(epochs=k, separation=b)
    return TimeProblem.decentralized(mixing=w, participation=scheme, error=error, **words)


def certified(problem: Any, gap: float = 1e-6) -> Solution:
    found = solve(problem)
    assert found.status == "optimal", found.remedy
    assert found.feasible
    assert found.certificate is not None
    assert found.certificate.gap <= gap
    return found


def variances(found: Solution) -> np.ndarray:
    """diag((C^T C)^-1), from C alone."""
    assert found.design is not None
    c = found.design.strategy
    return np.diagonal(np.linalg.inv(c.T @ c))


def final_model_capped(k: int, b: int, cap: float) -> float:
    """1^T X^-1 1 at its least, diag(X^-1) <= cap: X = I / k + c (ones between patterns), as all
    steps are alike, has the eigenvalues s = 1/k + c k (b - 1) once, 1/k - c k for what is constant
    on patterns and sums to zero, and 1/k for the rest. More c is better until the cap holds it."""
    m = k * b

    def over(c: float) -> float:
        mean = 1 / (1 / k + c * k * (b - 1)) + (b - 1) / (1 / k - c * k) + b * (k - 1) * k
        return mean / m - cap

    c = scipy.optimize.brentq(over, 0.0, (1 - 1e-12) / k**2, xtol=1e-15)
    return float(m / (1 / k + c * k * (b - 1)))


def test_the_final_averaged_model_by_hand() -> None:
    """H = 11^T: k^2 is attained by no noise; with a cap one equation tells the rest, which at
    (2, 2) and cap 4 is 8 / (1 + (2/3)^1/2)."""
    assert final_model_capped(2, 2, 4.0) == pytest.approx(8 / (1 + math.sqrt(2 / 3)), rel=1e-9)
    for k, b in ((2, 2), (1, 5), (4, 6)):
        ones = np.ones((k * b, k * b))
        free = certified(asked(ones, k, b))
        assert free.design is not None
        assert k**2 * (1 - 1e-9) <= free.design.objective <= k**2 * (1 + 1e-6)
        for cap in (1.01 * k, 2.0 * k, 100.0 * k):
            found = certified(asked(ones, k, b, max_variance=cap)).design
            assert found is not None
            assert found.objective == pytest.approx(final_model_capped(k, b, cap), rel=2e-6)


def test_steps_that_count_unevenly() -> None:
    """H = a a^T: the bound is the largest (sum of |a| over a pattern)^2, by multipliers of that
    pattern alone."""
    a = np.array([1.0, -2.0, 0.5, 0.25, 3.0, -1.0])
    best = max(np.abs(a[j::3]).sum() for j in range(3)) ** 2
    found = certified(asked(np.outer(a, a), 2, 3)).design
    assert found is not None
    assert best * (1 - 1e-9) <= found.objective <= best * (1 + 1e-6)


def by_clarabel(h: np.ndarray, k: int, b: int, cap: np.ndarray) -> float:
    """tr(H R) at its least: X >= R^-1 by a block, X below a diagonal on every pattern."""
    cp = pytest.importorskip("cvxpy")
    m = k * b
    x, r = cp.Variable((m, m), symmetric=True), cp.Variable((m, m), symmetric=True)
    rules = [cp.bmat([[x, np.eye(m)], [np.eye(m), r]]) >> 0, cp.diag(r) <= cap]
    for j in range(b):
        y = cp.Variable(k)
        rules += [cp.diag(y) - x[j::b, j::b] >> 0, cp.sum(y) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(h @ r)), rules)
    return float(problem.solve(solver=cp.CLARABEL))


def test_random_workloads_by_a_solver_of_another_hand() -> None:
    rng = np.random.default_rng(5)
    for k, b, rank in ((2, 3, 2), (3, 2, 6), (3, 3, 1)):
        a = rng.standard_normal((rank, k * b))
        cap = k * rng.uniform(1.2, 4.0, k * b)
        found = certified(asked(a.T @ a, k, b, max_variance=cap))
        assert found.design is not None
        assert found.design.objective == pytest.approx(by_clarabel(a.T @ a, k, b, cap), rel=1e-5)
        assert (variances(found) <= cap * (1 + 1e-9)).all()


@pytest.mark.parametrize("of", ["last-iterate", "mean-model", "final mean model"])
def test_errors_of_the_model_that_is_shipped(of: str) -> None:
    for w, k, b in ((FLORENTINE, 4, 8), (KARATE, 4, 6), (FLORENTINE, 1, 24)):
        last = np.inf
        for cap in (1.5 * k, 50.0 * k, None):
            found = certified(of_models(w, k, b, of, max_variance=cap))
            assert found.design is not None
            assert found.design.objective <= last * (1 + 1e-6)
            last = found.design.objective
            assert cap is None or variances(found).max() <= cap * (1 + 1e-9)


def test_the_cap_that_is_advised_can_be_followed() -> None:
    for k, b, of in (
        (4, 33, "last-iterate"),
        (1, 12, "last-iterate"),  # its H is not singular to rounding, and nearly so
        (2, 6, "final mean model"),
    ):
        found = certified(of_models(FLORENTINE, k, b, of))
        assert variances(found).max() > 1000 * k
        python = re.search(r"max_variance=(\S+) in Python", found.remedy)
        assert python is not None
        followed = certified(of_models(FLORENTINE, k, b, of, max_variance=float(python[1])))
        assert followed.remedy == ""
        assert variances(followed).max() <= 10 * k * (1 + 1e-9)


@pytest.mark.slow
def test_a_cap_that_leaves_more_of_a_gap_than_the_path_says() -> None:
    """320 steps of one participation: the path goes on beyond the end that it had aimed for."""
    certified(of_models(FLORENTINE, 1, 320, "last-iterate", max_variance=10.0))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "b"), [(8, 40), (1, 320), (20, 16)])
def test_three_hundred_and_twenty_steps(k: int, b: int) -> None:
    for of in ("last-iterate", "final mean model"):
        for words in ({}, {"max_variance": 10.0 * k}):
            certified(of_models(FLORENTINE, k, b, of, **words))


def test_the_objective_of_few_rows_is_that_of_the_inverse() -> None:
    """X of 48 pairs made feasible is worth what a dense inverse says, at every step."""
    problem = SpaceTimeProblem(
        mixing=oracles.metropolis(nx.path_graph(4)),
        participation=FixedEpoch(epochs=3, separation=4),
        joint="full",
        error=ErrorMeasure(horizon=12, of="last-iterate"),
    )
    path = central_path.Path(family_of(problem).program(problem))
    point = central_path._start(path, None)
    for _ in range(4):
        _, upper, found = central_path.bounds(path, point)
        gram = found()
        blocks = path.on_patterns(np.linalg.cholesky(gram), np.linalg.cholesky(gram))
        np.testing.assert_allclose(blocks, blocks * path.one, atol=1e-12)
        assert np.einsum("jii->j", blocks).max() <= 1 + 1e-12
        np.testing.assert_allclose(upper, np.trace(path.gram @ np.linalg.inv(gram)), rtol=1e-9)
        point = central_path._advance(path, point, least=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("of", ["last-iterate", "mean-model"])
def test_ten_thousand_pairs(of: str) -> None:
    """The karate club over 320 steps."""
    problem = SpaceTimeProblem(
        mixing=oracles.metropolis(nx.karate_club_graph()),
        participation=FixedEpoch(epochs=20, separation=16),
        joint="full",
        error=ErrorMeasure(horizon=320, of=of),
    )
    found = solve(problem, gap=1e-3)
    assert (found.status, found.feasible) == ("optimal", True)
    assert found.certificate is not None
    assert found.certificate.gap <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("of", ["last-iterate", "mean-model"])
@pytest.mark.parametrize(("k", "b", "gap"), [(4, 20, 1e-6), (20, 16, 1e-3)])
def test_pairs_of_node_and_step(k: int, b: int, gap: float, of: str) -> None:
    """1,200 and 4,800 of them, whose path begins far from its end."""
    problem = SpaceTimeProblem(
        mixing=FLORENTINE,
        participation=FixedEpoch(epochs=k, separation=b),
        joint="full",
        error=ErrorMeasure(horizon=k * b, of=of),
    )
    found = solve(problem, gap=gap)
    assert (found.status, found.feasible) == ("optimal", True)
    assert found.certificate is not None
    assert found.certificate.gap <= gap


def nearly_singular() -> np.ndarray:
    """Twenty geometric sums over 64 steps, and a billionth of the identity."""
    steps = 64 - np.arange(1, 65)
    h = sum(np.outer(r**steps, r**steps) for r in np.linspace(-0.5, 0.99, 20))
    return np.asarray(h / np.trace(h) * 64 + 1e-9 * np.eye(64))


def test_a_nearly_singular_workload_is_solved() -> None:
    h = nearly_singular()
    found = certified(asked(h, 4, 16))
    assert found.design is not None
    assert found.design.objective < 0.2 * 4 * np.trace(h)


def test_many_unknowns_are_preconditioned_pattern_by_pattern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = of_models(FLORENTINE, 4, 8, "last-iterate", max_variance=8.0)
    dense = certified(problem).design
    monkeypatch.setattr(central_path, "MOST_DENSE", 0)
    blocks = solve(problem, gap=1e-4).design
    assert dense is not None
    assert blocks is not None
    assert blocks.objective == pytest.approx(dense.objective, rel=2e-4)
    assert blocks.certificate.gap <= 1e-3


def test_stopped_at_once_it_is_no_worse_than_independent_noise() -> None:
    problem = of_models(FLORENTINE, 4, 16, "last-iterate")
    found = solve(problem, time_limit=1e-9)
    assert found.design is not None
    assert found.feasible
    assert found.design.objective <= 4 * float(np.trace(problem.gram)) * (1 + 1e-9)


# --- caps as they are asked for -------------------------------------------------------------------


def test_caps_that_no_noise_keeps_or_that_are_for_other_noise() -> None:
    scheme = FixedEpoch(epochs=3, separation=2)
    for words, expected in (
        ({"max_variance": 3.0}, "limits.max_variance: expected more than 3, the variance"),
        ({"max_variance": [4.0] * 5 + [2.0]}, "limits.max_variance: expected more than 3"),
        ({"max_variance": [4.0] * 5}, "limits.max_variance: expected"),
        ({"max_variance": -1.0}, "limits.max_variance"),
        ({"max_variance": 1e300}, "limits.max_variance: expected values between"),
        ({"max_variance": 9.0, "structure": TimeStructure(kind="banded", bands=2)}, "no cap but"),
    ):
        with pytest.raises(InputError, match=expected):
            TimeProblem.prefix(participation=scheme, **words)
    with pytest.raises(InputError, match="no cap but"):
        TimeProblem.prefix(
            participation=MinSeparation(horizon=6, separation=2, max_participations=3),
            max_variance=9.0,
        )


PROBLEM = """name = "x"
design = "time"
[workload]
kind = "prefix"
[participation]
kind = "fixed-epoch"
epochs = 2
separation = 4
[limits]
max_variance = 2.1
"""


def test_caps_in_files_are_kept_verified_and_proved(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PROBLEM)
    problem = load_problem(path).problem
    np.testing.assert_array_equal(problem.max_variance, np.full(8, 2.1))
    found = certified(problem)
    assert variances(found).max() == pytest.approx(2.1, rel=1e-4)  # it binds
    save_design(found.design, tmp_path / "d.npz", problem_text=PROBLEM)
    stored = load_design(tmp_path / "d.npz")
    np.testing.assert_array_equal(stored.design.problem.max_variance, problem.max_variance)
    judged = verify(stored, problem=problem, rigorous=True)
    assert judged.ok
    assert judged.proof is not None
    assert judged.proof.gap <= 1e-6
    path.write_text(PROBLEM.replace("max_variance", "min_variance"))
    with pytest.raises(InputError, match="limits.min_variance: expected no floor"):
        load_problem(path)


def test_noise_above_its_cap_is_not_feasible() -> None:
    free = certified(TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=4)))
    assert variances(free).max() > 2.5
    capped = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=4), max_variance=2.5)
    found = certified(capped)
    assert found.design is not None
    assert free.design is not None
    assert found.design.objective > free.design.objective
    assert not verify(free.design, problem=capped).ok


# --- nodes and steps ------------------------------------------------------------------------------


def test_designs_over_nodes_and_steps_of_the_final_averaged_model() -> None:
    """A full design has no more than k^2 / n of independent noise's share: one noise for all."""
    graph = nx.florentine_families_graph()
    for of in ("last-iterate", "final mean model"):
        error = of_models(FLORENTINE, 2, 3, of).error
        fields: dict[str, Any] = {
            "participation": FixedEpoch(epochs=2, separation=3),
            "error": error,
        }
        full = certified(SpaceTimeProblem.from_graph(graph, joint="full", **fields))
        capped = certified(
            SpaceTimeProblem.from_graph(graph, joint="full", max_variance=20.0, **fields)
        )
        product = solve(SpaceTimeProblem.from_graph(graph, max_variance=10.0, **fields))
        values = [f.design.objective for f in (full, capped, product) if f.design is not None]
        assert values[0] <= values[1] * (1 + 1e-6)
        assert values[0] <= values[2]
        assert variances(capped).max() <= 20 * (1 + 1e-9)


def test_a_product_is_told_of_a_cap_that_can_be_followed() -> None:
    graph = nx.cycle_graph(5)
    error = ErrorMeasure(horizon=4, of="mean-model", step_weights=[0, 0, 0, 1])
    for weights in ("metropolis-hastings", "lazy-metropolis-hastings"):
        fields: dict[str, Any] = {
            "weights": weights,
            "participation": FixedEpoch(epochs=2, separation=2),
            "error": error,
        }
        with pytest.raises(InputError) as caught:
            solve(SpaceTimeProblem.from_graph(graph, max_variance="none", **fields))
        assert "lazy" not in caught.value.remedy  # the error is what does not see the noise
        python = re.search(r"max_variance=(\S+) in Python", caught.value.remedy)
        assert python is not None
        cap = float(python[1])
        found = solve(SpaceTimeProblem.from_graph(graph, max_variance=cap, **fields))
        assert found.status == "local-optimum"
        assert found.feasible


def test_one_participation_by_two_methods() -> None:
    """That for several, and that for one, which starts from elsewhere."""
    for problem in (
        TimeProblem.prefix(participation=single(6), max_variance=1.1),
        of_models(FLORENTINE, 1, 12, "last-iterate"),
    ):
        program, monitor = program_of(problem), Monitor(gap=1e-8)
        assert central_path.solve(program, monitor=monitor).stop is Stop.SOLVED
        other = certified(problem)
        assert other.design is not None
        lower, upper = monitor.history[-1].lower, monitor.history[-1].upper
        assert lower <= other.design.objective * (1 + 1e-9)
        assert other.design.lower_bound <= upper * (1 + 1e-9)


def test_an_answer_that_is_worse_than_independent_noise_is_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever made it: here of twice the noise."""
    problem = asked(np.eye(4), 2, 2)
    worse = Noise.of_strategy(DenseStrategy(strategy=np.eye(4) / 2))
    answer = Answer(stop=Stop.INACCURATE, noises=[worse])
    monkeypatch.setattr(FAMILY, "solve", lambda *_, **__: answer)
    found = solve(problem, gap=1e-9)
    assert found.design is not None
    assert found.design.objective == pytest.approx(8.0)  # k tr H, and not 16


def test_polynomial_noise_on_a_ring_of_six_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ring = SpaceProblem(
            mixing=oracles.metropolis(nx.cycle_graph(6)),
            structure=SpaceStructure(kind="polynomial"),
        )
        assert solve(ring).feasible
    with pytest.raises(InputError, match=r"convex \(in space dense, edge-") as caught:
        solve(ring, backend="scs")
    assert caught.value.remedy == "Use --backend native."
