"""A singular W and budgets of its nodes: optima that are attained, noise that nothing bounds, and
the caps that are suggested for it.

On a complete graph H = 11^T / n. With M = (1^T X^-1 1)^-1 the objective is 1 / (n M), and
X >= M 11^T, so that M is at most t, the least budget: the objective is at least 1 / (n t). That is
attained by X = t 11^T + diag(tau - t), which is singular along e_i - e_j where i and j both have
the least budget, and definite where only one has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.certify.program import diagonal_dual
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint import attainment
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import barrier, diagonal
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles

Array = np.ndarray


def complete(n: int) -> Array:
    return np.full((n, n), 1 / n)


def space(graph: nx.Graph, budget: Any = 1.0, **kwargs: Any) -> SpaceProblem:
    return SpaceProblem(mixing=oracles.metropolis(graph), budget=budget, **kwargs)


def spread(seed: int, n: int, orders: float) -> Array:
    return np.asarray(10 ** np.random.default_rng(seed).uniform(0, orders, n))


def checked(found: Solution, gap: float = 1e-6) -> Solution:
    """Optimal, and feasible by plain linear algebra on what is exported."""
    assert found.status == "optimal", found.remedy
    assert found.design is not None
    assert found.design.gap <= gap
    r = found.design.covariance
    precision = np.diagonal(np.linalg.inv(r))
    assert (precision <= found.problem.budget * (1 + 1e-7)).all()
    assert np.sum(found.problem.gram * r) == pytest.approx(found.design.objective, rel=1e-7)
    return found


def refused(problem: SpaceProblem, **kwargs: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        solve(uncapped(problem), **kwargs)
    return caught.value


def named_direction(error: InputError, nodes: tuple[str, ...]) -> Array:
    found = re.search(r"null direction \{(.*?)\}", str(error))
    assert found is not None
    terms = dict(re.findall(r"([^ ,{]+): ([+-]\d\.\d+)", found[1]))
    return np.array([float(terms.get(name, 0)) for name in nodes])


# --- optima that are attained ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 5, 8, 12, 20])
def test_complete_graphs_with_a_closed_form(n: int) -> None:
    for seed in range(12):
        tau = np.random.default_rng(seed).uniform(0.5, 2, n)
        found = checked(solve(SpaceProblem(mixing=complete(n), budget=tau)))
        assert found.design is not None
        optimum = 1 / (n * tau.min())
        assert found.design.objective == pytest.approx(optimum, rel=1e-6)
        assert found.design.lower_bound <= optimum * (1 + 1e-12)
        assert found.evaluations <= 8


def test_the_closed_form_is_feasible_and_attains_the_bound() -> None:
    """In 50 digits."""
    with mpmath.workdps(50):
        tau = [mpmath.mpf(t) for t in ("0.7", "1.1", "0.9", "2")]
        x = mpmath.matrix(4, 4)
        for i in range(4):
            for j in range(4):
                x[i, j] = tau[i] if i == j else tau[0]
        r = x**-1
        assert abs(mpmath.fsum(r) / 4 - 1 / (4 * tau[0])) < 1e-45
        mpmath.cholesky(x)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_twenty_budgets(gap: float) -> None:
    tau = np.random.default_rng(4).uniform(0.5, 2, 20)
    found = checked(solve(SpaceProblem(mixing=complete(20), budget=tau), gap=gap), gap)
    assert found.design is not None
    assert found.design.objective == pytest.approx(1 / (20 * tau.min()), rel=2 * gap)
    assert np.diagonal(found.design.covariance).max() < 1e3


def test_budgets_of_more_than_two_orders() -> None:
    for seed in range(6):
        tau = 10 ** np.random.default_rng(seed).uniform(np.log10(0.036), np.log10(9), 12)
        tau[[0, 1]] = 0.036, 9.0
        found = checked(solve(SpaceProblem(mixing=complete(12), budget=tau)))
        assert found.design is not None
        assert found.design.objective == pytest.approx(1 / (12 * 0.036), rel=1e-6)


GRAPHS = {
    "path of 3": nx.path_graph(3),
    "ring of 6": nx.cycle_graph(6),
    "ring of 24": nx.cycle_graph(24),
    "star": nx.star_graph(9),
    "complete": nx.complete_graph(12),
    "bipartite": nx.complete_bipartite_graph(3, 3),
    "florentine": nx.florentine_families_graph(),
    "lollipop": nx.lollipop_graph(6, 8),
    "barbell": nx.barbell_graph(5, 2),
}


@pytest.mark.parametrize("orders", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", GRAPHS)
def test_uneven_budgets_against_the_fixed_point(name: str, orders: float) -> None:
    """Certified or, where the fixed point's bound says the same of its noise, refused."""
    graph = GRAPHS[name]
    refusals: list[tuple[str, Array]] = []
    for seed in range(3):
        problem = space(graph, spread(seed, len(graph), orders))
        try:
            found = solve(problem)
        except InputError as error:
            refusals.append((str(error), problem.mixing @ named_direction(error, problem.nodes)))
            continue
        checked(found)
        # A run of the fixed point: its bound is one whatever it has come to.
        h = problem.gram / np.sqrt(np.outer(problem.budget, problem.budget))
        v = np.ones(len(h))
        for _ in range(400):
            values, vectors = np.linalg.eigh(h * np.sqrt(np.outer(v, v)))
            root = np.sqrt(np.maximum(values, 0))
            v = np.maximum(np.square(vectors) @ root, 1e-12)
        bound = np.linalg.norm(problem.mixing * np.sqrt(v / problem.budget), "nuc") ** 2 / v.sum()
        assert found.design is not None
        assert bound * (1 - 1e-9) <= found.design.objective
        # It is slow where multipliers are to vanish.
        assert found.design.lower_bound >= bound * (1 - 1e-6)
        assert found.design.lower_bound <= bound * 1.02
    for text, mixed in refusals:
        assert "..." in text or np.linalg.norm(mixed) < 5e-3


@pytest.mark.parametrize("name", ["path of 3", "star", "complete"])
def test_uneven_budgets_against_a_conic_solver(name: str) -> None:
    graph = GRAPHS[name]
    problem = space(graph, spread(1, len(graph), 0.5))
    found = checked(solve(problem))
    conic = solve(problem, backend="clarabel", gap=1e-7)
    assert found.design is not None
    assert conic.design is not None
    assert found.design.objective == pytest.approx(conic.design.objective, rel=2e-6)
    assert conic.design.lower_bound <= found.design.objective


# --- noise that is large but bounded --------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_budgets_that_are_nearly_equal(size: float) -> None:
    """An optimum exists: in 50 digits, R of the closed form, with a hundred-thousandth more on the
    least budget's own diagonal for it to be definite, has a finite largest variance."""
    for seed in range(12):
        tau = 1 + size * np.random.default_rng(seed).uniform(0, 1, 12)
        found = checked(solve(SpaceProblem(mixing=complete(12), budget=tau)))
        assert found.design is not None
        assert found.design.objective == pytest.approx(1 / (12 * tau.min()), rel=1e-6)
        largest = float(np.diagonal(found.design.covariance).max())
        assert largest > 1e3
        assert f"{largest:.2g}" in found.remedy
        assert "max_variance=" in found.remedy
        # No more than a small multiple of what the closed form has.
        x = tau.min() * np.ones((12, 12)) + np.diag(tau - tau.min())
        assert np.linalg.eigvalsh(x)[0] > 0
        assert largest <= 2 * np.diagonal(np.linalg.inv(x)).max()
        assert found.evaluations <= 8


def test_a_conic_solver_is_not_refused_either() -> None:
    tau = 1 + 1e-3 * np.random.default_rng(0).uniform(0, 1, 6)
    found = solve(SpaceProblem(mixing=complete(6), budget=tau), backend="clarabel", gap=1e-5)
    assert found.design is not None
    assert found.design.objective == pytest.approx(1 / (6 * tau.min()), rel=1e-4)


def test_a_moderate_design_says_nothing() -> None:
    assert solve(space(nx.star_graph(5))).remedy == ""


def test_a_singular_h_in_time() -> None:
    """Prefix of one sum: H = 11^T over steps that all cost the same sum, budgets alike: 1, which no
    noise attains; a step that counts half is slack, and bounds the noise."""
    ones = np.ones((3, 3))
    free = solve(TimeProblem.from_gram(gram=ones, participation=single(3)))
    assert free.status == "optimal"
    assert free.design is not None
    assert free.design.objective == pytest.approx(1, rel=1e-6)
    assert "H is singular" in free.remedy
    assert "max_variance=10 in Python" in free.remedy
    h = np.array([1.0, 0.5, 0.25])
    found = solve(TimeProblem.from_gram(gram=np.outer(h, h), participation=single(3)))
    # As above with tau_i = 1 / h_i^2: h^T X^-1 h >= 1 / min(1 / h_i^2) = 1.
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.objective == pytest.approx(1, rel=1e-6)


# --- noise that nothing bounds --------------------------------------------------------------------


def test_equal_budgets_on_a_complete_graph_name_two_nodes() -> None:
    names = ("ann", "bob", "eve", "joe")
    error = refused(SpaceProblem(mixing=complete(4), nodes=names))
    z = named_direction(error, names)
    assert np.count_nonzero(z) == 2
    np.testing.assert_allclose(np.sort(z), [-0.707, 0, 0, 0.707])
    assert error.field == "mixing"


def test_two_nodes_that_share_the_least_budget() -> None:
    """X = t 11^T + diag(tau - t) is singular along e_b - e_d, and along nothing else."""
    names = tuple("abcde")
    error = refused(SpaceProblem(mixing=complete(5), budget=[2, 1, 1.5, 1, 3.0], nodes=names))
    np.testing.assert_allclose(named_direction(error, names), [0, 0.707, 0, -0.707, 0])


@pytest.mark.parametrize("n", [9, 33])
def test_a_path_whose_budgets_are_all_used_up(n: int) -> None:
    """Its only null direction, 1 -1 0 0 -1 1 ..., is on nodes of positive multipliers."""
    text = str(refused(space(nx.path_graph(n))))
    found = re.search(
        r"within (\S+) of the infimum has a variance of at least (\S+) at \d+\.", text
    )
    assert found is not None
    assert float(found[1]) < 1e-11
    assert float(found[2]) > 1e8


@pytest.mark.parametrize(
    "graph", [nx.complete_graph(4), nx.cycle_graph(6), nx.path_graph(9)], ids=str
)
def test_what_a_refusal_states_is_true_of_designs(graph: nx.Graph) -> None:
    """Any design within g of the bound has R_ii >= z_i^2 / (g ...): of designs under caps, which
    were found by another solver and are nearer to the infimum the wider the cap is."""
    problem = space(graph)
    program = program_of(problem)
    answer = diagonal.solve(program, monitor=Monitor(gap=1e-9))
    assert answer.dual is not None
    v = answer.dual.blocks[:, 0, 0]
    told = attainment.along_null_direction(program, answer.dual)
    np.testing.assert_allclose(problem.mixing @ told.direction, 0, atol=1e-12)
    trace = np.linalg.norm(problem.mixing * np.sqrt(v), "nuc")
    bound = trace**2 / v.sum()
    z, on = told.direction, told.direction != 0
    for cap in (2.0, 10.0, 100.0, 1e4):
        design = solve(space(graph, max_variance=cap)).design
        assert design is not None
        gap = design.objective / bound - 1
        least = 1 / (gap * v.sum() * np.sum(z[on] ** 2 / v[on]))
        assert np.diagonal(design.covariance)[on].max() >= (least * z[on] ** 2).max()
        assert z @ design.covariance @ z >= least
        # Not a bound that says nothing, either.
        if cap > 50:
            assert (least * z[on] ** 2).max() > 1


def test_the_statement_holds_at_any_budgets() -> None:
    tau = np.array([4.0, 1.0, 1.0, 9.0])
    program = program_of(SpaceProblem(mixing=complete(4), budget=tau))
    answer = diagonal.solve(program.normalized(), monitor=Monitor(gap=1e-6))
    assert answer.dual is not None
    told = attainment.along_null_direction(program, answer.dual)
    np.testing.assert_allclose(np.abs(told.direction), [0, 0.5**0.5, 0.5**0.5, 0], atol=1e-9)
    # Of the design under this cap the gap is about its objective over 1 / (n t), by hand.
    design = solve(SpaceProblem(mixing=complete(4), budget=tau, max_variance=50.0)).design
    assert design is not None
    gap = design.objective * 4 - 1
    assert told.variance * told.within / gap <= 2 * np.diagonal(design.covariance).max()


def test_slack_that_bounds_the_noise_is_no_reason_to_refuse() -> None:
    """A star: the hub's multiplier vanishes, and with it what is proved of the noise."""
    program = program_of(space(nx.star_graph(9)))
    for gap in (1e-6, 1e-9):
        answer = diagonal.solve(program, monitor=Monitor(gap=gap))
        assert answer.dual is not None
        told = attainment.along_null_direction(program, answer.dual)
        assert not told.proved
        assert told.variance < 10


# --- the central path -----------------------------------------------------------------------------


def path_point(seed: int) -> tuple[Array, barrier.Point]:
    problem = space(nx.cycle_graph(6), spread(seed, 6, 0.3))
    factor = barrier.factor_of(program_of(problem).normalized())
    v = np.random.default_rng(seed).uniform(0.5, 1.5, 6)
    return factor, barrier.evaluate(factor, v, negligible=1e-9)


def test_slopes_and_curvature_by_finite_differences() -> None:
    factor, point = path_point(0)
    assert factor.shape == (4, 6)

    def trace(v: Array) -> float:
        return float(np.sqrt(np.linalg.eigvalsh((factor * v) @ factor.T)).sum())

    for i in range(6):
        e = np.zeros(6)
        e[i] = 1e-5
        slope = (trace(point.v + e) - trace(point.v - e)) / 1e-5  # of 2 t
        assert slope == pytest.approx(point.used[i], rel=1e-8)
        ahead, behind = (
            barrier.evaluate(factor, point.v + s * e, negligible=1e-9).used for s in (1, -1)
        )
        column = -(ahead - behind) / 2e-5 * point.v * point.v[i]
        np.testing.assert_allclose(barrier.curvature(point)[:, i], column, atol=3e-4)


def test_singular_values_and_eigenvalues_say_the_same() -> None:
    factor, point = path_point(1)
    other = barrier.evaluate(factor, point.v, negligible=0.0)
    np.testing.assert_allclose(other.used, point.used, rtol=1e-12)
    assert other.trace == pytest.approx(point.trace, rel=1e-13)


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_the_upper_bound_is_the_objective_of_a_feasible_matrix(scale: float) -> None:
    factor, point = path_point(2)
    moved = point.scaled(scale)
    x = barrier.gram_of(moved, gap=1e-2)
    np.testing.assert_array_equal(np.diagonal(x), 1)
    assert np.linalg.eigvalsh(x)[0] > 0
    expected = np.trace(factor @ np.linalg.inv(x) @ factor.T)
    assert barrier.upper_bound(moved, gap=1e-2) == pytest.approx(expected, rel=1e-9)
    assert moved.lower == pytest.approx(point.lower, rel=1e-12)
    assert moved.lower <= expected


def test_a_model_is_solved() -> None:
    """d + J (z - 1) = mu / z, by hand for J = 0 and by its residual otherwise."""
    slopes = np.array([0.5, 2.0, 1.0])
    z = barrier.modelled(np.zeros((3, 3)), slopes, mu=1e-3, slack=slopes)
    np.testing.assert_allclose(z, 1e-3 / slopes, rtol=0.5)
    a = np.random.default_rng(0).standard_normal((3, 3))
    for mu in (1e-2, 1e-8):
        z = barrier.modelled(a @ a.T, slopes - 1.2, mu=mu, slack=np.full(3, 0.1))
        assert (z > 0).all()
        np.testing.assert_allclose(z * (slopes - 1.2 + a @ a.T @ (z - 1)), mu, rtol=0.5)


@pytest.mark.parametrize("n", [5, 12])
def test_a_start_and_a_stop(n: int) -> None:
    tau = np.random.default_rng(3).uniform(0.5, 2, n)
    program = program_of(SpaceProblem(mixing=complete(n), budget=tau)).normalized()
    first = diagonal.solve(program, monitor=Monitor(gap=1e-9))
    assert first.dual is not None
    again = diagonal.solve(program, monitor=Monitor(gap=1e-9, start=first.dual.blocks))
    assert again.evaluations == 1 < first.evaluations
    stopped = diagonal.solve(program, monitor=Monitor(gap=1e-9, time_limit=1e-9))
    assert stopped.evaluations == 1
    assert stopped.dual is not None
    assert stopped.dual.blocks.min() > 0


def test_the_rank_does_not_depend_on_the_units_of_nodes() -> None:
    for graph, dimension in ((nx.path_graph(12), 1), (nx.path_graph(11), 0)):
        for seed in range(3):
            problem = space(graph, spread(seed, len(graph), 12.0))
            unit = program_of(problem).normalized()
            assert unit.null_space.shape[1] == dimension
            assert unit.exact_factor is not None
            np.testing.assert_allclose(
                np.abs(unit.exact_factor @ unit.null_space).max(initial=0.0), 0, atol=1e-13
            )
            np.testing.assert_allclose(
                unit.null_space.T @ unit.null_space, np.eye(dimension), atol=1e-12
            )


# --- remedies -------------------------------------------------------------------------------------

STANDARD = {
    "ring of 6": ("ring", 6, nx.cycle_graph(6)),
    "ring of 9": ("ring", 9, nx.cycle_graph(9)),
    "ring of 12": ("ring", 12, nx.cycle_graph(12)),
    "complete, 3": ("complete", 3, nx.complete_graph(3)),
    "complete, 20": ("complete", 20, nx.complete_graph(20)),
    "torus": ("torus", (5, 5), nx.grid_2d_graph(5, 5, periodic=True)),
}


def advice(error: InputError) -> tuple[float, str, float]:
    """The Python argument, the line of the file, and the cost in per cent."""
    python = re.search(r"max_variance=(\S+) in Python", error.remedy)
    line = re.search(r"\[limits\] (max_variance = \S+) in a problem file", error.remedy)
    cost = re.search(r"costs at most (\S+) % more than the infimum", error.remedy)
    assert python is not None
    assert line is not None
    assert cost is not None
    return float(python[1]), line[1], float(cost[1])


@pytest.mark.parametrize("name", STANDARD)
def test_the_advice_works_and_costs_what_it_says(name: str, tmp_path: Path) -> None:
    kind, size, graph = STANDARD[name]
    cap, line, cost = advice(refused(space(graph)))
    found = solve(space(graph, max_variance=cap))
    assert found.status == "optimal"
    assert found.design is not None
    # All nodes look alike: the infimum is (nuclear norm of W)^2 / n.
    infimum = oracles.vertex_transitive_optimum(oracles.metropolis(graph))
    excess = 100 * (found.design.objective / infimum - 1)
    assert excess <= cost <= 1.5 * excess + 0.1
    sides = f"nodes = {size}" if isinstance(size, int) else f"rows = {size[0]}\ncolumns = {size[1]}"
    text = f'name = "standard"\ndesign = "space"\n[graph]\nkind = "{kind}"\n{sides}\n'
    path = tmp_path / "problem.toml"
    path.write_text(f'{text}[limits]\nmax_variance = "none"\n')
    with pytest.raises(InputError, match="max_variance"):
        solve(load_problem(path).problem)
    path.write_text(f"{text}[limits]\n{line}\n")
    again = solve(load_problem(path).problem)
    assert again.status == "optimal"
    assert again.design is not None
    assert again.design.objective == pytest.approx(found.design.objective, rel=2e-6)


@pytest.mark.parametrize("graph", [nx.cycle_graph(12), nx.complete_graph(5)], ids=["ring", "K_5"])
def test_the_advice_for_errors_over_a_horizon_works(graph: nx.Graph) -> None:
    """H is no W^T W then, but nobody can add to it: a cap is what there is to advise."""
    asked = space(graph, error=ErrorMeasure(horizon=8))
    error = refused(asked)
    assert error.field == "mixing"
    cap, _, cost = advice(error)
    found = solve(replace(asked, max_variance=cap))
    assert found.status == "optimal"
    assert found.design is not None
    # All nodes look alike: the infimum is tr(H^1/2)^2 / n. Noise is drawn at each of 8 steps and
    # counted at all that follow: mixed k times it is counted 9 - k times, so H = sum (9 - k) W^2k.
    values, k = np.linalg.eigvalsh(oracles.metropolis(graph)), np.arange(1, 9)
    roots = np.sqrt((values[:, None] ** (2 * k)) @ (9.0 - k))
    infimum = roots.sum() ** 2 / len(graph)
    assert 0 <= 100 * (found.design.objective / infimum - 1) <= cost


@pytest.mark.parametrize("tau", [1e-3, 0.7, 123.0])
def test_the_advice_works_at_other_budgets(tau: float) -> None:
    graph = nx.complete_graph(5)
    cap, _, cost = advice(refused(space(graph, tau)))
    assert cap == pytest.approx(10 / tau, rel=0.1)
    assert cap >= 10 / tau * (1 - 1e-9)
    found = solve(space(graph, tau, max_variance=cap))
    assert found.status == "optimal"
    assert found.design is not None
    assert 100 * (found.design.objective * 5 * tau - 1) <= cost


def test_uneven_budgets_are_all_within_the_cap_of_the_advice() -> None:
    budget = [2, 1e-2, 1.5, 1e-2, 3.0]
    cap, _, cost = advice(refused(SpaceProblem(mixing=complete(5), budget=budget)))
    found = solve(SpaceProblem(mixing=complete(5), budget=budget, max_variance=cap))
    assert found.status == "optimal"
    assert found.design is not None
    assert 100 * (found.design.objective * 5 * 1e-2 - 1) <= cost


def test_multipliers_in_any_scale_say_the_same() -> None:
    program = program_of(space(nx.complete_graph(4)))
    for weights in (np.ones(4), np.array([1.0, 2.0, 0.5, 3.0])):
        first, *others = (
            attainment.along_null_direction(program, diagonal_dual(scale * weights))
            for scale in (1.0, 1e-200, 1e200)
        )
        assert first.proved
        for told in others:
            np.testing.assert_allclose(told.direction, first.direction, rtol=1e-6)
            assert told.proved
            assert told.share == pytest.approx(first.share, rel=1e-6)
            # The relative gap is one of rounding, which differs.
            least = first.variance * first.within
            assert told.variance * told.within == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("seed", [3, 8, 12])
def test_an_error_that_only_uneven_budgets_make_regular_is_no_crash(seed: int) -> None:
    """H of five steps may be singular to working precision and not at unit budgets, as rounding
    has it: nothing is null there, and no noise free."""
    budget = 10 ** np.random.default_rng(seed).uniform(-5, 5, 3)
    problem = space(nx.path_graph(3), budget, error=ErrorMeasure(horizon=5))
    checked(solve(problem))


def test_rounding_of_a_singular_error_proves_nothing() -> None:
    """[[1/2, 1/2], [1/2, 1/2]] has a Cholesky factor in floats, whose last pivot is the root of
    one rounding. R of eigenvalues a and b keeps its budgets where 1/a + 1/b = 2, at an error of a.
    """
    stated = SpaceProblem(mixing=complete(2), error=ErrorMeasure(horizon=1))
    for cap in (None, 1e9):
        found = solve(replace(stated, max_variance=cap))
        assert found.design is not None
        times = cap if found.default_cap is None else found.default_cap.times
        assert times is not None  # H is singular, whatever floats say of its factor
        assert found.design.lower_bound <= 1 / (2 - 1 / (2 * times - 1))
