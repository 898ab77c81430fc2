"""Conic backends: every solver and formulation against optima known otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify import certificate
from noisedesign.certify.program import DualPoint, Program
from noisedesign.conic.data import Outcome
from noisedesign.conic.program import ConicProgram
from noisedesign.conic.solvers import CONIC_SOLVERS, ConicSolver, Run
from noisedesign.design.backends import Conic, How, all_backends, get_backend
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.family import Answer
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch, single
from tests.support.conic_cases import PROBLEMS, SOLVERS, Asked, ask, eight, need, solver_of

PHI_SQUARED = (3 + 5**0.5) / 2


def backend_of(name: str) -> ConicSolver:
    return solver_of(name)


def monitor(**kwargs: Any) -> Monitor:
    return Monitor(**({"gap": 1e-6, "tolerance": 1e-7} | kwargs))


def direct(program: Program, solver: str, formulation: str = "compact", **kwargs: Any) -> Asked:
    answer = ask(need(solver), program, monitor=monitor(**kwargs), formulation=formulation)
    assert answer.gram is not None
    assert answer.dual is not None
    return answer


# --- optima worked out by hand -------------------------------------------------------------------


@pytest.mark.parametrize("formulation", conic_model.FORMULATIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_two_prefix_sums(solver: str, formulation: str) -> None:
    """H = [[2, 1], [1, 1]], X = [[1, x], [x, 1]]: (3 - 2x) / (1 - x^2) is least where
    x^2 - 3x + 1 = 0, with value phi^2."""
    problem = TimeProblem.prefix(participation=single(2))
    solution = solve(problem, backend=need(solver), formulation=formulation, gap=1e-6)
    assert solution.status == "optimal"
    assert solution.certificate is not None
    assert solution.certificate.objective == pytest.approx(PHI_SQUARED, rel=1e-6)
    assert solution.certificate.lower_bound <= PHI_SQUARED * (1 + 1e-12)
    assert solution.certificate.objective >= PHI_SQUARED * (1 - 1e-12)


def by_hand_two_epochs(off: float) -> tuple[np.ndarray, np.ndarray]:
    """H and U for (k, b) = (2, 1), where X = diag(a, 1 - a) minimises 2/a + 1/(1 - a).

    a = 2 - sqrt 2 and the optimum is (1 + sqrt 2)^2 whatever H_01 is; X U X = H gives the
    multipliers, whose off-diagonal entry has the sign of H_01.
    """
    a = 2 - 2**0.5
    gram = np.array([[2.0, off], [off, 1.0]])
    x = np.diag([1 / a, 1 / (1 - a)])
    return gram, x @ gram @ x


@pytest.mark.parametrize("off", [1.0, -1.0, 0.3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_multipliers_of_two_epochs(solver: str, off: float) -> None:
    gram, expected = by_hand_two_epochs(off)
    assert expected[0, 0] == pytest.approx(expected[1, 1])
    problem = TimeProblem.from_gram(gram=gram, participation=FixedEpoch(epochs=2, separation=1))
    answer = direct(program_of(problem), solver)
    assert answer.dual is not None
    # The bound is flat at its top: multipliers are known to the root of its accuracy.
    np.testing.assert_allclose(answer.dual.blocks[0], expected, rtol=1e-2)
    assert certificate.lower_bound(program_of(problem), answer.dual) == pytest.approx(
        (1 + 2**0.5) ** 2, rel=1e-6
    )


@pytest.mark.parametrize("cap", [2.0, 10.0])
@pytest.mark.parametrize("formulation", conic_model.FORMULATIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_capped_complete_graph(solver: str, formulation: str, cap: float) -> None:
    """W = 11^T / n. By symmetry R = alpha on the mean and beta beside it: tr(W R W^T) = alpha,
    alpha + (n - 1) beta = n c and 1 / alpha + (n - 1) / beta = n, a quadratic in alpha."""
    n = 5
    # (n c - alpha) + (n - 1)^2 alpha = n alpha (n c - alpha)
    roots = np.roots([n, (n - 1) ** 2 - 1 - n**2 * cap, n * cap])
    expected = float(roots.min())
    problem = SpaceProblem(mixing=mixing_matrix(nx.complete_graph(n)), max_variance=cap)
    solution = solve(problem, backend=need(solver), formulation=formulation, gap=1e-5)
    assert solution.status == "optimal"
    assert solution.certificate is not None
    assert solution.certificate.objective == pytest.approx(expected, rel=1e-5)
    assert solution.certificate.lower_bound <= expected * (1 + 1e-12)


# --- agreement with another route ----------------------------------------------------------------


@cache
def interval(name: str) -> tuple[float, float]:
    """The optimum between two certified numbers, 1e-9 apart, by the native backend."""
    found = solve(PROBLEMS[name], gap=1e-9)
    assert found.status == "optimal"
    assert found.certificate is not None
    return found.certificate.lower_bound, found.certificate.objective


CASES = [
    pytest.param(
        *(solver, name, formulation),
        # The largest models; the other problems are stated that way as well.
        marks=pytest.mark.slow if (name, formulation) == ("florentine", "paper") else (),
    )
    for solver in SOLVERS
    for name, problem in PROBLEMS.items()
    for formulation in conic_model.FORMULATIONS
    if conic_model.unable(program_of(problem), formulation) is None
]


@pytest.mark.parametrize(("solver", "name", "formulation"), CASES)
def test_agrees_with_native(solver: str, name: str, formulation: str) -> None:
    lower, upper = interval(name)
    solution = solve(PROBLEMS[name], backend=need(solver), formulation=formulation, gap=1e-5)
    assert (solution.status, solution.feasible) == ("optimal", True)
    assert solution.certificate is not None
    judged = solution.certificate
    assert judged.gap <= 1e-5
    assert lower * (1 - 1e-12) <= judged.objective <= upper * (1 + 1e-5)
    assert lower * (1 - 1e-5) <= judged.lower_bound <= upper * (1 + 1e-12)


@pytest.mark.parametrize("name", list(PROBLEMS))
@pytest.mark.parametrize("solver", SOLVERS)
def test_default_accuracy_is_certified_too(solver: str, name: str) -> None:
    """Whatever accuracy a solver has by itself, both of its bounds hold. SCS stops there at 4e-4 or
    2e-3 of a capped problem, by the kernels of the processor: then it is asked for 1e-3."""
    lower, upper = interval(name)
    for gap in (None, 1e-3):
        judged = solve(PROBLEMS[name], backend=need(solver), gap=gap).certificate
        assert judged is not None
        assert judged.feasible
        assert judged.lower_bound <= upper * (1 + 1e-12)
        assert judged.objective >= lower * (1 - 1e-12)
        if judged.gap <= 1e-3:
            return
    raise AssertionError(f"a gap of {judged.gap:.2g} where 1e-3 was asked for")


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("solver", SOLVERS)
def test_scale_of_the_workload_is_immaterial(solver: str, scale: float) -> None:
    """Solvers stop on absolute residuals; the model is scaled so that those are relative."""
    gram, _ = by_hand_two_epochs(0.5)
    participation = FixedEpoch(epochs=2, separation=1)
    problem = TimeProblem.from_gram(gram=scale * gram, participation=participation)
    judged = solve(problem, backend=need(solver), gap=1e-6).certificate
    assert judged is not None
    assert judged.gap <= 1e-6
    assert judged.objective == pytest.approx(scale * (1 + 2**0.5) ** 2, rel=1e-6)


# --- the bound comes from the solver's own multipliers -------------------------------------------


@pytest.mark.parametrize("formulation", ["balanced", "compact"])
@pytest.mark.parametrize("name", ["epochs", "epochs-directed"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_signs_of_the_off_diagonal_multipliers_matter(
    solver: str, name: str, formulation: str
) -> None:
    program = program_of(PROBLEMS[name])
    _, upper = interval(name)
    blocks = direct(program, solver, formulation).dual.blocks  # type: ignore[union-attr]
    diagonal = blocks * np.eye(blocks.shape[1])
    proved = certificate.lower_bound(program, DualPoint(blocks=blocks))
    flipped = certificate.lower_bound(program, DualPoint(blocks=2 * diagonal - blocks))
    dropped = certificate.lower_bound(program, DualPoint(blocks=diagonal))
    assert upper * (1 - 1e-5) <= proved <= upper * (1 + 1e-12)
    assert flipped < dropped < upper * (1 - 1e-2)


@pytest.mark.parametrize("formulation", ["balanced", "covariance", "paper"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_cap_multipliers_matter(solver: str, formulation: str) -> None:
    program = program_of(PROBLEMS["capped"])
    _, upper = interval("capped")
    dual = direct(program, solver, formulation).dual
    assert dual is not None
    assert dual.cap is not None
    assert (dual.cap > -1e-6).all()
    assert certificate.lower_bound(program, dual) == pytest.approx(upper, rel=1e-5)
    without = certificate.lower_bound(program, DualPoint(blocks=dual.blocks))
    assert without < upper * (1 - 1e-2)


# --- the models are what they say ----------------------------------------------------------------


def blocks_of(program: Program, formulation: str, parts: int = 1) -> list[int]:
    conic = conic_model.build(program, formulation=formulation, parts=parts).conic
    return sorted(block.size for block in conic.blocks)


def test_sizes_of_the_formulations() -> None:
    program = program_of(PROBLEMS["budgets"]).normalized()
    sizes = {name: blocks_of(program, name) for name in conic_model.FORMULATIONS}
    assert sizes == {"balanced": [16], "compact": [16], "covariance": [16], "paper": [8, *[9] * 8]}
    assert blocks_of(program, "balanced", parts=3) == [10, 11, 11]
    compact = conic_model.build(program, formulation="compact").conic
    covariance = conic_model.build(program, formulation="covariance").conic
    assert len(compact.rows.entries) == len(covariance.rows.entries) == 16
    # tr(Y) against <H, R>: the workload is in the block of one, in the objective of the other.
    assert set(compact.cost) == {0, 1}
    assert len(set(covariance.cost)) > 3


def test_a_singular_workload_has_a_smaller_block() -> None:
    """A star of five nodes: W has rank 4, and the error lives in its range."""
    program = program_of(SpaceProblem(mixing=mixing_matrix(nx.star_graph(4)))).normalized()
    rank = int(np.linalg.matrix_rank(program.gram))
    assert rank < 5
    assert blocks_of(program, "balanced") == [5 + rank]
    assert blocks_of(program, "compact") == [10]


def test_compact_gives_way_under_a_cap() -> None:
    """Only a model that holds R can hold a cap on its diagonal."""
    program = program_of(PROBLEMS["capped"])
    for name in conic_model.FORMULATIONS:
        model = conic_model.build(program, formulation=name)
        without = conic_model.build(replace(program, cap=None), formulation=name)
        assert model.conic.rows.size == without.conic.rows.size + 8


# --- options -------------------------------------------------------------------------------------

ACCURACY: dict[str, set[str]] = {
    "scs": {"eps_abs", "eps_rel"},
    "clarabel": {"tol_gap_abs", "tol_gap_rel", "tol_feas"},
    "cvxopt": {"abstol", "reltol", "feastol"},
    "sdpa": {"epsilonStar", "epsilonDash"},
    "mosek": {
        "MSK_DPAR_INTPNT_CO_TOL_REL_GAP",
        "MSK_DPAR_INTPNT_CO_TOL_PFEAS",
        "MSK_DPAR_INTPNT_CO_TOL_DFEAS",
    },
}
LIMIT: dict[str, str] = {
    "scs": "time_limit_secs",
    "clarabel": "time_limit",
    "mosek": "MSK_DPAR_OPTIMIZER_MAX_TIME",
}


def flat_options(backend: ConicSolver, watch: Monitor) -> dict[str, Any]:
    options = backend.options(watch)
    nested = options.pop("mosek_params", {})
    assert all(key.startswith("MSK_") for key in nested)
    assert not any(key.startswith("MSK_") for key in options)
    return options | nested


def test_every_conic_backend_is_listed_here() -> None:
    assert {backend.name for backend in CONIC_SOLVERS} == set(ACCURACY)
    assert {backend.name for backend in all_backends()} == {"native"} | set(ACCURACY)


@pytest.mark.parametrize("name", list(ACCURACY))
def test_options(name: str) -> None:
    backend = backend_of(name)
    always = flat_options(backend, Monitor(gap=1e-6))
    assert not ACCURACY[name] & set(always)
    tight = flat_options(backend, Monitor(gap=1e-6, tolerance=1e-7, time_limit=50.0))
    assert {tight[key] for key in ACCURACY[name]} == {1e-7}
    assert set(tight) - set(always) - ACCURACY[name] == ({LIMIT[name]} if name in LIMIT else set())
    if name in LIMIT:
        assert 40 < tight[LIMIT[name]] <= 50


def test_options_of_an_expired_limit_stay_positive() -> None:
    for name, option in LIMIT.items():
        watch = Monitor(gap=1e-6, time_limit=1.0, started=-1e9)
        assert flat_options(backend_of(name), watch)[option] > 0


@pytest.mark.parametrize(("gap", "expected"), [(None, None), (1e-6, 1e-7), (1e-8, 1e-9)])
def test_an_explicit_gap_asks_the_solver_for_a_tenth(
    gap: float | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cvxpy as cp

    need("cvxopt")
    asked: list[dict[str, Any]] = []
    original = cp.Problem.solve

    def spy(self: cp.Problem, **options: Any) -> Any:
        asked.append(options)
        return original(self, **options)

    monkeypatch.setattr(cp.Problem, "solve", spy)
    assert solve(PROBLEMS["prefix"], backend="cvxopt", gap=gap).feasible
    tolerance = asked[0].get("reltol")
    assert tolerance is None if expected is None else tolerance == pytest.approx(expected)


def breaks_down_below(tolerance: float, asked: list[float]) -> ConicSolver:
    """Clarabel, but for what it says when asked for more than ``tolerance``."""
    backend = backend_of("clarabel")

    def direct(conic: ConicProgram) -> Run:
        assert backend.direct is not None
        run = backend.direct(conic)

        def broken(options: dict[str, Any]) -> Outcome:
            asked.append(options.get("tol_gap_rel", 1e-8))
            if asked[-1] < tolerance:
                return Outcome(stop=Stop.FAILED, message="broken down", iterations=100)
            return run(options)

        return broken

    return replace(backend, direct=direct)


@pytest.mark.parametrize("formulation", ["balanced", "compact"])
def test_a_solver_that_breaks_down_is_asked_for_less(formulation: str) -> None:
    program = program_of(PROBLEMS["florentine"])
    watch, asked = monitor(gap=1e-8, tolerance=1e-9), list[float]()
    first = 1e-8 / 3 if formulation == "balanced" else 1e-9
    solver = breaks_down_below(0.9e2 * first, asked)
    answer = ask(solver, program, monitor=watch, formulation=formulation)
    assert asked == pytest.approx([first, 10 * first, 100 * first])
    assert answer.outcome.stop is Stop.SOLVED
    assert answer.gram is not None
    assert answer.outcome.iterations > 200  # those of the tries are counted too
    assert (watch.gap, watch.tolerance) == (1e-8, 1e-9)


def test_a_solver_that_always_breaks_down_is_given_up() -> None:
    program, asked = program_of(PROBLEMS["florentine"]), list[float]()
    backend = breaks_down_below(1.0, asked)
    conic = conic_model.build(program, formulation="compact").conic
    answer = backend.solve(conic, monitor=monitor(tolerance=1e-8))
    assert answer.stop is Stop.FAILED
    assert answer.message == "broken down"
    assert asked == pytest.approx([1e-8, 1e-7, 1e-6])
    asked.clear()  # at its own accuracy, and out of time, it is asked once
    backend.solve(conic, monitor=Monitor(gap=1e-6))
    backend.solve(conic, monitor=monitor(time_limit=1.0, started=-1e9))
    assert len(asked) == 2


def test_solvers_are_asked_for_the_loosest_tolerance_that_is_certified() -> None:
    """For SCS its square goes with the gap, but for limits; in ``balanced``, which was tuned."""
    backend, watch = backend_of("scs"), monitor(gap=1e-8, tolerance=1e-9)
    free, capped = program_of(PROBLEMS["budgets"]), program_of(PROBLEMS["capped"])

    def options(program: Program, formulation: str, watch: Monitor = watch) -> dict[str, Any]:
        conic = conic_model.build(program, formulation=formulation).conic
        return backend.options(watch, conic)

    assert options(free, "balanced")["eps_rel"] == pytest.approx(1e-4 / 30)
    assert options(capped, "balanced")["eps_rel"] == pytest.approx(1e-8 / 30)
    assert options(free, "compact") == options(capped, "paper") == backend.options(watch)
    assert "eps_rel" not in options(free, "balanced", Monitor(gap=1e-6))
    assert options(free, "balanced", Monitor(gap=1e-6))["scale"] == 1.0
    clarabel = backend_of("clarabel")
    balanced = conic_model.build(free, formulation="balanced").conic
    asked = clarabel.options(watch, balanced)
    assert asked == pytest.approx(dict.fromkeys(ACCURACY["clarabel"], 1e-8 / 3))
    assert clarabel.options(Monitor(gap=1e-6), balanced) == {}


# --- statuses ------------------------------------------------------------------------------------


def limited(name: str, **always: Any) -> ConicSolver:
    return replace(backend_of(name), always=always)


@pytest.mark.parametrize(("name", "option"), [("scs", "max_iters"), ("clarabel", "max_iter")])
def test_iteration_limit_is_inaccurate_not_a_time_limit(name: str, option: str) -> None:
    conic = conic_model.build(program_of(PROBLEMS["florentine"]), formulation="compact").conic
    backend = limited(name, **{option: 2})
    for time_limit in (None, 60.0):
        answer = backend.solve(conic, monitor=monitor(time_limit=time_limit))
        assert answer.stop is Stop.INACCURATE
    late = backend.solve(conic, monitor=monitor(time_limit=1e-6))
    assert late.stop is Stop.TIME_LIMIT


def test_solved_counts_iterations_and_seconds() -> None:
    for name in ("scs", "clarabel"):
        answer = direct(program_of(PROBLEMS["prefix"]), name).outcome
        assert answer.stop is Stop.SOLVED
        assert answer.iterations > 0
        assert answer.build_seconds > 0
        assert answer.solve_seconds > 0
        assert answer.message == ""


def test_infeasible_model_has_failed() -> None:
    """diag(R) <= 1/2 with [R^-1]_ii <= 1 is impossible; a problem refuses it, a program may not."""
    program = replace(program_of(PROBLEMS["capped"]), cap=np.full(8, 0.5))
    answer = ask("clarabel", program, monitor=monitor(), formulation="covariance")
    assert answer.outcome.stop is Stop.FAILED
    assert "Infeasible" in answer.outcome.message
    assert answer.gram is None


@pytest.mark.parametrize(
    ("limit", "stop"), [(None, Stop.FAILED), (1e-9, Stop.TIME_LIMIT), (None, Stop.INTERRUPTED)]
)
def test_solver_errors(limit: float | None, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    import cvxpy as cp

    def fail(self: cp.Problem, **options: Any) -> None:
        if stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        raise cp.error.SolverError("out of luck\nmore")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    program = program_of(PROBLEMS["prefix"])
    answer = ask(need("cvxopt"), program, monitor=monitor(time_limit=limit), formulation="compact")
    assert answer.outcome.stop is stop
    assert answer.outcome.message == ("" if stop is Stop.INTERRUPTED else "out of luck")
    assert answer.gram is None
    assert answer.dual is None


def test_an_interrupted_solver_without_cvxpy() -> None:
    def interrupted(conic: ConicProgram) -> Run:
        def run(options: dict[str, Any]) -> Outcome:
            raise KeyboardInterrupt

        return run

    backend = Conic(replace(backend_of("scs"), direct=interrupted))
    program = program_of(PROBLEMS["prefix"])
    answer = backend.answer(FAMILY, program, How(monitor(), "balanced"))
    assert (answer.stop, answer.noises, answer.proof) == (Stop.INTERRUPTED, (), {})
    assert answer.measure() is None


def test_adapter_bugs_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a solver's own failure is a status; anything else is a mistake of ours."""
    import cvxpy as cp

    def fail(self: cp.Problem, **options: Any) -> None:
        raise TypeError("wrong option")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    with pytest.raises(TypeError, match="wrong option"):
        solve(PROBLEMS["prefix"], backend=need("cvxopt"))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", ["covariance", "paper"])
def test_space_formulations_refuse_epochs(formulation: str) -> None:
    with pytest.raises(InputError, match=f"several epochs in formulation '{formulation}'") as error:
        solve(PROBLEMS["epochs"], backend="clarabel", formulation=formulation)
    assert error.value.field == "backend"


@pytest.mark.parametrize("name", ["clarabel", "scs"])
def test_cap_with_several_epochs_is_refused(name: str) -> None:
    program, backend = program_of(PROBLEMS["epochs"]), get_backend(name)

    def found(program: Program) -> Answer:
        chosen = backend.check(FAMILY, program, None)
        return backend.answer(FAMILY, program, How(monitor(), chosen))

    with pytest.raises(InputError, match="several epochs"):
        found(replace(program, cap=np.full(12, 3.0)))
    assert found(program).stop is Stop.SOLVED


@pytest.mark.parametrize("backend", ["native", "scs"])
def test_unknown_formulation(backend: str) -> None:
    with pytest.raises(InputError, match="formulation: expected one of .*, got 'block'") as error:
        solve(SpaceProblem(mixing=eight()), backend=backend, formulation="block")
    assert error.value.field == "formulation"


def test_not_installed_has_a_remedy() -> None:
    missing = replace(backend_of("cvxopt"), distribution="no-such-distribution")
    available = missing.availability()
    assert (available.installed, available.ready) == (False, False)
    assert "pip install" in available.remedy
