"""The one verb: statuses, refusals, and answers that nobody has to believe."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Stop
from noisedesign.certify import certificate, repair
from noisedesign.certify.program import DualPoint, Program, diagonal_dual
from noisedesign.conic.solvers import Availability
from noisedesign.design import backends
from noisedesign.design.backends import get_backend
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.families.disjoint.program import Found, program_of
from noisedesign.families.disjoint.solver import barrier, diagonal
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch, single

RING_5 = SpaceProblem(mixing=mixing_matrix(nx.cycle_graph(5)), name="ring-5")
"""Vertex transitive: the optimum is (nuclear norm of W)^2 / n."""

OPTIMUM = sum(abs(1 + 2 * np.cos(2 * np.pi * k / 5)) / 3 for k in range(5)) ** 2 / 5
LDP = 5 / 3
"""tr(W W^T): every row of W holds three thirds."""

CONIC = ("scs", "clarabel", "cvxopt", "sdpa")


def ready(name: str) -> bool:
    return get_backend(name).availability().ready


# --- statuses ------------------------------------------------------------------------------------


def test_optimal_against_a_closed_form() -> None:
    solution = solve(RING_5)
    assert (solution.status, solution.remedy, solution.feasible) == ("optimal", "", True)
    assert solution.backend == "native"
    assert solution.problem is RING_5
    assert solution.design is not None
    judged = solution.design.certificate
    assert solution.certificate is judged
    assert judged.lower_bound <= OPTIMUM * (1 + 1e-12)
    assert judged.objective == pytest.approx(OPTIMUM, rel=1e-6)
    assert solution.design.provenance.status == "optimal"
    assert solution.design.provenance.method == "optimal"
    # By hand, from the exported matrix alone.
    R = solution.design.covariance
    assert float(np.trace(RING_5.mixing @ R @ RING_5.mixing.T)) == pytest.approx(judged.objective)
    assert np.linalg.inv(R).diagonal().max() <= 1 + 1e-12
    assert solution.seconds >= solution.build_seconds + solution.solve_seconds
    assert solution.evaluations >= 1


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_gap_is_kept(gap: float) -> None:
    graph = nx.random_labeled_tree(9, seed=4)
    solution = solve(SpaceProblem(mixing=mixing_matrix(graph)), gap=gap)
    assert solution.status == "optimal"
    assert solution.certificate is not None
    assert 0 <= solution.certificate.gap <= gap


def test_objective_scales_with_the_budget() -> None:
    scaled = SpaceProblem(mixing=RING_5.mixing, budget=4.0)
    certificate = solve(scaled).certificate
    assert certificate is not None
    assert certificate.objective == pytest.approx(OPTIMUM / 4, rel=1e-6)


def test_every_report_brackets_the_optimum() -> None:
    seen: list[Bounds] = []
    graph = nx.path_graph(7)
    solution = solve(SpaceProblem(mixing=mixing_matrix(graph)), progress=seen.append)
    assert solution.certificate is not None
    assert solution.design is not None
    assert seen
    assert solution.design.provenance.history == tuple(b for b in seen if not b.doing)
    assert [b.seconds for b in seen] == sorted(b.seconds for b in seen)
    for bounds in seen:
        assert bounds.lower <= solution.certificate.objective * (1 + 1e-12)
        assert bounds.upper >= solution.certificate.lower_bound * (1 - 1e-12)


def long_problems() -> dict[str, Problem]:
    ring = mixing_matrix(nx.path_graph(8))
    return {
        "space": SpaceProblem(mixing=ring, budget=np.linspace(1, 2, 8)),
        "capped": SpaceProblem(mixing=ring, max_variance=1.3),
        "time": TimeProblem.decentralized(
            mixing=ring, participation=FixedEpoch(epochs=3, separation=4)
        ),
    }


@pytest.mark.parametrize("name", list(long_problems()))
def test_time_limit_leaves_a_certified_design(name: str) -> None:
    """Over before it begins: one evaluation, and what it proves."""
    problem = long_problems()[name]
    solution = solve(problem, time_limit=1e-9, gap=1e-9)
    assert (solution.status, solution.feasible) == ("time-limit", True)
    assert solution.remedy.endswith("Allow more time.")
    assert "asked 1e-09" in solution.remedy
    assert solution.design is not None
    assert solution.design.provenance.status == "time-limit"
    best = solve(problem).certificate
    assert best is not None
    assert solution.design.lower_bound <= best.objective
    assert best.lower_bound <= solution.design.objective
    assert 1e-9 < solution.design.gap < 10


@pytest.mark.parametrize("name", list(long_problems()))
def test_ctrl_c_leaves_a_certified_design(name: str) -> None:
    def press(_: Bounds) -> None:
        raise KeyboardInterrupt

    problem = long_problems()[name]
    solution = solve(problem, progress=press, gap=1e-9)
    assert (solution.status, solution.feasible) == ("interrupted", True)
    assert solution.remedy.endswith("Run it again to the end.")
    assert solution.design is not None
    assert np.isfinite(solution.design.gap)
    assert solution.design.provenance.status == "interrupted"


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    solution = solve(RING_5, time_limit=3600)
    assert solution.status == "optimal"


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0.0, -1e-6, 1.0, float("nan"), float("inf"), "1e-6", True])
def test_gap_must_be_a_fraction(gap: Any) -> None:
    with pytest.raises(InputError) as error:
        solve(RING_5, gap=gap)
    assert error.value.field == "gap"


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "10"])
def test_time_limit_must_be_positive(limit: Any) -> None:
    with pytest.raises(InputError) as error:
        solve(RING_5, time_limit=limit)
    assert error.value.field == "time_limit"


def test_unknown_backend() -> None:
    with pytest.raises(InputError, match="native, scs, clarabel, mosek, cvxopt, sdpa") as error:
        solve(RING_5, backend="gurobi")
    assert error.value.field == "backend"


# --- singular workloads --------------------------------------------------------------------------


def null_direction(text: str, size: int) -> np.ndarray:
    found = re.search(r"null direction \{(.*?)\}", text)
    assert found is not None
    direction = np.zeros(size)
    for index, value in re.findall(r"(\d+): ([+-]\d\.\d+)", found[1]):
        direction[int(index)] = float(value)
    return direction


@pytest.mark.parametrize("backend", ["native", *CONIC])
@pytest.mark.parametrize(
    "graph", [nx.cycle_graph(6), nx.complete_graph(5)], ids=["ring", "complete"]
)
def test_divergent_noise_is_refused(graph: nx.Graph, backend: str) -> None:
    if not ready(backend):
        pytest.skip(f"{backend} is not installed")
    problem = SpaceProblem(mixing=mixing_matrix(graph), max_variance="none")
    with pytest.raises(InputError) as error:
        solve(problem, backend=backend)
    assert error.value.field == "mixing"
    assert "limits.max_variance" in error.value.remedy
    direction = null_direction(str(error.value), len(problem.mixing))
    assert np.linalg.norm(direction) == pytest.approx(1, abs=0.01)
    assert np.abs(problem.mixing @ direction).max() < 2e-3  # printed to three digits


@pytest.mark.parametrize("gap", [0.3, 1e-6])
@pytest.mark.parametrize("graph", [nx.star_graph(9), nx.cycle_graph(6)], ids=["star", "ring"])
def test_one_solve_tells_whether_the_optimum_is_attained(
    graph: nx.Graph, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: list[float] = []
    original = diagonal.solve

    def spy(*args: Any, **kwargs: Any) -> Any:
        gaps.append(kwargs["monitor"].gap)
        return original(*args, **kwargs)

    monkeypatch.setattr(diagonal, "solve", spy)
    problem = SpaceProblem(mixing=mixing_matrix(graph), max_variance="none")
    if len(graph) == 6:  # the ring's is not
        with pytest.raises(InputError, match="mixing: expected a matrix W whose optimal noise is"):
            solve(problem, gap=gap)
    else:
        assert solve(problem, gap=gap).status == "optimal"
    assert gaps == [1e-6]  # a looser answer would not tell


@pytest.mark.parametrize("graph", [nx.cycle_graph(6), nx.complete_graph(5)])
def test_divergent_noise_is_bounded_by_a_cap(graph: nx.Graph) -> None:
    problem = SpaceProblem(mixing=mixing_matrix(graph), max_variance=5.0)
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.design is not None
    assert solution.design.covariance.diagonal().max() <= 5.0


@pytest.mark.parametrize(
    ("graph", "budget", "cap"),
    [
        (nx.star_graph(3), 1.0, 10.0),
        (nx.complete_graph(4), [1.0, 2.0, 4.0, 0.5], [3.0, 1.0, 0.5, 2.5]),
        (nx.complete_graph(6), [2.0, 1.0, 1.0, 0.5, 1.0, 4.0], 8.0),
    ],
)
def test_budgets_that_stay_slack_under_a_cap(graph: nx.Graph, budget: Any, cap: Any) -> None:
    """W is singular and some budgets are slack: using them up would tilt X out of its range."""
    problem = SpaceProblem(mixing=mixing_matrix(graph), budget=budget, max_variance=cap)
    native, conic = solve(problem), solve(problem, backend="clarabel", gap=1e-8)
    assert native.status == "optimal"
    assert native.certificate is not None
    assert conic.certificate is not None
    assert native.certificate.objective == pytest.approx(conic.certificate.objective, rel=1e-6)


@pytest.mark.parametrize("backend", ["native", *CONIC])
def test_bounded_optimum_of_a_singular_matrix(backend: str) -> None:
    """A star: every two leaves have equal columns in W, so W is singular, but their budgets are
    slack at the optimum and the noise is bounded."""
    if not ready(backend):
        pytest.skip(f"{backend} is not installed")
    problem = SpaceProblem(mixing=mixing_matrix(nx.star_graph(5)))
    assert np.linalg.matrix_rank(problem.mixing) < 6
    solution = solve(problem, backend=backend, gap=1e-5)
    assert solution.status == "optimal"
    assert solution.certificate is not None
    # A long run of the fixed point, whose lower bound is a sum of square roots of eigenvalues.
    v = np.ones(6)
    for _ in range(5000):
        values, vectors = np.linalg.eigh(problem.gram * np.sqrt(v)[:, None] * np.sqrt(v))
        root = np.sqrt(np.maximum(values, 0))
        v = np.square(vectors) @ root
    assert solution.certificate.objective == pytest.approx(root.sum() ** 2 / v.sum(), rel=2e-5)


@pytest.mark.parametrize(
    ("gram", "direction"), [([[1, 1], [1, 1]], [1, -1]), ([[1, -1], [-1, 1]], [1, 1])]
)
def test_singular_workload_in_time(gram: Any, direction: Any) -> None:
    """H = 11^T: with X = [[1, x], [x, 1]] the objective 2 / (1 + x) falls towards x = 1, where
    X is singular along (1, -1); and its mirror image."""
    problem = TimeProblem.from_gram(gram=np.array(gram, float), participation=single(2))
    found = solve(problem)
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.objective == pytest.approx(1, rel=1e-6)
    c = found.design.strategy
    along = np.linalg.solve(c.T @ c, direction) @ direction
    assert along > 1e4
    assert "max_variance=10 in Python" in found.remedy


@pytest.mark.parametrize("backend", ["native", "scs", "clarabel"])
def test_a_step_that_costs_nothing(backend: str) -> None:
    """Prefix sums of two steps and a third nobody looks at: phi^2, and full budget on the third."""
    gram = np.zeros((3, 3))
    gram[:2, :2] = [[2, 1], [1, 1]]
    problem = TimeProblem.from_gram(gram=gram, participation=single(3))
    solution = solve(problem, backend=backend)
    assert solution.status == "optimal"
    assert solution.design is not None
    assert solution.design.objective == pytest.approx((3 + 5**0.5) / 2, rel=1e-6)
    assert solution.design.strategy[2, 2] == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("backend", ["native", "clarabel"])
def test_singular_workload_with_a_slack_budget(backend: str) -> None:
    """H = hh^T, h = (1, -2): h^T X^-1 h >= h_2^2 / X_22 = 4, attained where X_12 = -X_22 / 2
    and any X_11 between 1/4 and 1."""
    problem = TimeProblem.from_gram(gram=np.array([[1.0, -2], [-2, 4]]), participation=single(2))
    solution = solve(problem, backend=backend)
    assert solution.status == "optimal"
    assert solution.design is not None
    assert solution.design.objective == pytest.approx(4, rel=1e-6)
    assert (solution.design.strategy.T @ solution.design.strategy)[0, 1] == pytest.approx(
        -0.5, rel=1e-2
    )


def test_epochs_that_cost_nothing_do_not_crash() -> None:
    """Noise on a step without a price, inside a pattern that has one, is best made infinite."""
    gram = np.zeros((3, 3))
    gram[:2, :2] = [[2, 1], [1, 1]]
    problem = TimeProblem.from_gram(gram=gram, participation=FixedEpoch(epochs=3, separation=1))
    found = solve(problem)
    assert found.status == "optimal"
    assert found.design is not None
    variance = np.square(np.linalg.inv(found.design.strategy)).sum(axis=1)
    assert variance.argmax() == 2


def test_ctrl_c_while_looking_for_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(barrier, "upper_bound", press)
    with pytest.raises(KeyboardInterrupt):
        solve(SpaceProblem(mixing=mixing_matrix(nx.star_graph(5))), backend="clarabel")


def test_time_limit_while_looking_for_divergence() -> None:
    """Not enough time to tell that noise diverges: no refusal, and a design that holds."""
    solution = solve(SpaceProblem(mixing=mixing_matrix(nx.path_graph(6))), time_limit=1e-9)
    assert (solution.status, solution.feasible) == ("time-limit", True)


# --- answers that lie ----------------------------------------------------------------------------


class Fake(backends.Backend):
    """A backend that returns what it was given, and says that it has solved the problem."""

    name = "fake"
    formulations = ("fake",)
    takes = "everything"
    remedies = ("--backend native",)
    short = "Ask for it with --gap."

    def __init__(self, answer: Found) -> None:
        self.found, self.seen = answer, list[Program]()

    def availability(self) -> Availability:
        return Availability(installed=True, version="0")

    def check_options(self, family: Any, program: Any, options: Any) -> None: ...

    def answer(self, family: Any, program: Program, *_: Any) -> Any:
        self.seen.append(program.normalized())
        return FAMILY.answer(program, self.found.denormalized(program))


def claimed(
    gram: Any,
    dual: Any = None,
    *,
    stop: Stop = Stop.SOLVED,
    problem: Problem = RING_5,
    gap: float | None = None,
) -> Any:
    """The solution made of an answer of a registered fake."""
    answer = Found(
        stop=stop,
        gram=None if gram is None else np.asarray(gram, dtype=np.float64),
        dual=dual if dual is None or isinstance(dual, DualPoint) else diagonal_dual(dual),
        message="all is well",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends._BACKENDS, "fake", Fake(answer))
        return solve(problem, backend="fake", gap=gap, isolate=False)


def true_answer() -> tuple[np.ndarray, np.ndarray]:
    """X = |W| / mean diagonal and its multipliers, constant because a ring is all alike."""
    values, vectors = np.linalg.eigh(RING_5.mixing)
    root = (vectors * np.abs(values)) @ vectors.T
    return root / root[0, 0], np.ones(5)


def assert_honest(solution: Any) -> None:
    if solution.design is None:
        assert solution.status == "failed"
        assert not solution.feasible
        return
    judged = solution.design.certificate
    assert judged.feasible
    assert solution.status != "failed"
    assert judged.lower_bound <= OPTIMUM * (1 + 1e-9)
    assert judged.objective >= OPTIMUM * (1 - 1e-9)
    assert np.linalg.inv(solution.design.covariance).diagonal().max() <= 1 + 1e-9
    R = solution.design.covariance
    assert np.trace(RING_5.gram @ R) == pytest.approx(judged.objective, rel=1e-9)
    assert (solution.status == "optimal") == (judged.gap <= 1e-6)


def test_the_truth_is_recognised() -> None:
    X, v = true_answer()
    solution = claimed(X, v)
    assert solution.status == "optimal"
    assert solution.certificate.objective == pytest.approx(OPTIMUM, rel=1e-12)
    assert_honest(solution)


@pytest.mark.parametrize("stop", list(Stop))
def test_a_backends_own_claim_never_matters(stop: Stop) -> None:
    """Whatever it says of a good answer, it is good; of a bad one, it is bad."""
    X, v = true_answer()
    assert claimed(X, v, stop=stop).status == "optimal"
    bad = claimed(np.eye(5), v, stop=stop)
    assert bad.status == {Stop.TIME_LIMIT: "time-limit", Stop.INTERRUPTED: "interrupted"}.get(
        stop, "inaccurate"
    )
    assert bad.certificate.objective == pytest.approx(LDP)
    assert bad.certificate.gap == pytest.approx(LDP / OPTIMUM - 1)
    assert_honest(bad)


UNUSABLE = {
    "nothing": None,
    "nan": np.full((5, 5), np.nan),
    "one nan": np.diag([1, 1, np.nan, 1, 1]),
    "infinite": np.full((5, 5), np.inf),
    "zero": np.zeros((5, 5)),
    "negative": -np.eye(5),
    "zero on the diagonal": np.diag([1.0, 1, 1, 1, 0]),
}


@pytest.mark.parametrize("gram", list(UNUSABLE.values()), ids=list(UNUSABLE))
def test_unusable_answers_have_failed(gram: Any) -> None:
    solution = claimed(gram, np.ones(5))
    assert (solution.status, solution.design, solution.feasible) == ("failed", None, False)
    assert solution.certificate is None
    assert "all is well" in solution.remedy
    assert "Try --backend native" in solution.remedy


@pytest.mark.parametrize("gram", list(UNUSABLE.values()), ids=list(UNUSABLE))
@pytest.mark.parametrize("stop", [Stop.TIME_LIMIT, Stop.INTERRUPTED])
def test_unusable_answers_of_stopped_solvers_give_independent_noise(gram: Any, stop: Stop) -> None:
    solution = claimed(gram, np.ones(5), stop=stop)
    assert solution.status == stop.value
    assert solution.certificate.objective == pytest.approx(LDP)
    assert solution.design.provenance.method == "ldp"
    assert_honest(solution)


def test_a_failure_without_a_message_still_says_why() -> None:
    answer = Found(stop=Stop.FAILED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends._BACKENDS, "fake", Fake(answer))
        solution = solve(RING_5, backend="fake")
    assert solution.remedy.startswith("its answer could not be made feasible")


REPAIRABLE = {
    "too large": 100 * true_answer()[0],
    "too small": 1e-6 * true_answer()[0],
    "indefinite": true_answer()[0] - 0.9 * np.ones((5, 5)) + 0.9 * np.eye(5),
    "singular": np.ones((5, 5)),
    "asymmetric": true_answer()[0] + np.triu(np.ones((5, 5)), 1),
    "one row too large": np.diag([1, 1, 1, 1, 50.0]) @ true_answer()[0],
}


@pytest.mark.parametrize("gram", list(REPAIRABLE.values()), ids=list(REPAIRABLE))
def test_infeasible_answers_are_repaired_and_judged(gram: np.ndarray) -> None:
    solution = claimed(gram, np.ones(5))
    assert solution.feasible
    assert_honest(solution)


@pytest.mark.parametrize(
    "dual",
    [None, np.zeros(5), -np.ones(5), np.full(5, np.nan), np.array([1, np.inf, 1, 1, 1.0])],
    ids=["none", "zero", "negative", "nan", "infinite"],
)
def test_multipliers_that_prove_nothing(dual: Any) -> None:
    """The bound falls back to the uniform multipliers, here the right ones, and the stored design
    does not carry the useless ones along."""
    solution = claimed(true_answer()[0], dual)
    assert solution.status == "optimal"
    assert solution.design.proof == {}
    assert_honest(solution)


@pytest.mark.parametrize(
    "dual", [np.array([1.0, 0, 0, 0, 0]), np.array([1e9, 1, 1, 1, 1]), np.array([1, -5, 1, 2, 1.0])]
)
def test_wrong_multipliers_prove_less(dual: np.ndarray) -> None:
    solution = claimed(true_answer()[0], dual)
    assert solution.status == "inaccurate"
    assert solution.certificate.objective == pytest.approx(OPTIMUM)
    assert "--gap" in solution.remedy
    assert_honest(solution)


def test_wrong_blocks_in_time_prove_less() -> None:
    """Blocks that are not positive semidefinite and whose diagonals differ."""
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2))
    best = solve(problem).certificate
    assert best is not None
    rng = np.random.default_rng(0)
    for _ in range(20):
        dual = DualPoint(blocks=rng.standard_normal((2, 2, 2)))
        solution = claimed(np.eye(4), dual, problem=problem)
        assert solution.status == "inaccurate"
        assert 0 < solution.certificate.lower_bound <= best.objective
        # X = I / 2 costs twice the trace of H; a repair may do better, never too well.
        assert best.lower_bound <= solution.certificate.objective <= 20 * (1 + 1e-9)


def test_cap_is_kept_whatever_the_answer() -> None:
    """R far above its cap: blended with independent noise until it is not."""
    problem = SpaceProblem(mixing=RING_5.mixing, max_variance=1.05)
    solution = claimed(true_answer()[0], np.ones(5), problem=problem)
    assert solution.feasible
    assert solution.design.covariance.diagonal().max() <= 1.05
    assert np.linalg.inv(solution.design.covariance).diagonal().max() <= 1 + 1e-12


def test_backends_get_the_normalised_program() -> None:
    problem = SpaceProblem(mixing=RING_5.mixing, budget=[1, 2, 3, 4, 5], max_variance=2.0)
    fake = Fake(Found(stop=Stop.SOLVED, gram=np.eye(5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends._BACKENDS, "fake", fake)
        solution = solve(problem, backend="fake")
    (program,) = fake.seen
    np.testing.assert_array_equal(program.budget, np.ones(5))
    np.testing.assert_allclose(program.cap, 2.0 * np.arange(1, 6))
    # And X = I is read as independent noise at the budgets.
    assert solution.design is not None
    np.testing.assert_allclose(solution.design.covariance, np.diag(1 / np.arange(1, 6)), atol=1e-12)


matrices = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=25, max_size=25).map(
    lambda entries: np.reshape(entries, (5, 5))
)
vectors = st.lists(st.floats(-1, 5, allow_subnormal=False), min_size=5, max_size=5).map(np.array)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    gram=matrices,
    shift=st.sampled_from([0.0, 1.0, 5.0]),
    dual=vectors,
    stop=st.sampled_from(list(Stop)),
)
def test_no_answer_whatever_becomes_an_infeasible_or_overstated_design(
    gram: np.ndarray, shift: float, dual: np.ndarray, stop: Stop
) -> None:
    solution = claimed(gram + shift * np.eye(5), dual, stop=stop)
    assert_honest(solution)


def test_bound_is_of_the_repaired_multipliers() -> None:
    """Negative entries are dropped before anything is proved with them."""
    program = program_of(RING_5)
    negative = certificate.lower_bound(program, diagonal_dual(np.array([1, -9, 1, 1, 1.0])))
    dropped = certificate.lower_bound(program, diagonal_dual(np.array([1, 0, 1, 1, 1.0])))
    assert negative == pytest.approx(dropped)
    assert negative < OPTIMUM


# --- the last gate --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["space", "time"])
def test_a_repair_that_leaves_a_constraint_broken_is_caught(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate judges what is exported; nothing infeasible leaves, whoever made it."""
    covariance_of, strategy_of = repair.covariance_of, repair.strategy_of
    monkeypatch.setattr(repair, "covariance_of", lambda p, x: 0.99 * covariance_of(p, x))
    monkeypatch.setattr(repair, "strategy_of", lambda p, x: 1.01 * strategy_of(p, x))
    if kind == "space":
        problem: SpaceProblem | TimeProblem = SpaceProblem(mixing=np.eye(1))
    else:
        problem = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2))
    solution = solve(problem)
    assert solution.status == "failed"
    assert solution.design is None
    assert not solution.feasible
    assert solution.remedy
