"""Joint designs: Gram matrices stacked by hand, optima by a conic solver, limits that are known."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.design.solve import solve as solve_any
from noisedesign.families.kronecker import solver
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.default_cap import uncapped
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.system.workloads.workload import Workload
from noisedesign.tasks.verify import verify
from tests.support import oracles
from tests.support.space_time_cases import (
    GRAPHS,
    Judged,
    all_iterates,
    conic_optimum,
    covariance,
    design_full,
    design_kronecker,
    patterns_of,
    stacked_workload,
)

Array = Any


# --- workloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2, 5])
@pytest.mark.parametrize("name", GRAPHS)
def test_grams_of_the_stacked_workload(name: str, horizon: int) -> None:
    w = GRAPHS[name]
    n = len(w)
    a = stacked_workload(w, horizon)
    h = a.T @ a
    workload = Workload.of(w, horizon=horizon)
    np.testing.assert_allclose(workload.factor(), a, rtol=0, atol=1e-14)
    np.testing.assert_allclose(workload.gram(), h, rtol=0, atol=1e-13 * h.max())
    r, s = covariance(n, 1), covariance(horizon, 2)
    blocks = h.reshape(horizon, n, horizon, n)
    in_time = np.einsum("sutv,vu->st", blocks, r)
    in_space = np.einsum("sutv,ts->uv", blocks, s)
    np.testing.assert_allclose(workload.time_gram(r), in_time, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(workload.space_gram(s), in_space, rtol=1e-12, atol=1e-12)


def test_one_step_of_one_edge_by_hand() -> None:
    # W = [[3, 1], [1, 3]] / 4, T = 2: H_11 = W^2 + W^4, H_12 = W^3, H_22 = W^2.
    w = np.array([[3.0, 1.0], [1.0, 3.0]]) / 4
    square = np.array([[10.0, 6.0], [6.0, 10.0]]) / 16
    cube = np.array([[36.0, 28.0], [28.0, 36.0]]) / 64
    fourth = np.array([[136.0, 120.0], [120.0, 136.0]]) / 256
    by_hand = np.block([[square + fourth, cube], [cube, square]])
    np.testing.assert_allclose(Workload.of(w, horizon=2).gram(), by_hand, rtol=1e-15)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "directed"])
def test_modes_make_up_the_workload(name: str) -> None:
    workload = Workload.of(GRAPHS[name], horizon=3)
    modes = workload.modes
    assert modes is not None
    total = 0.0
    for j, direction in enumerate(modes.basis.T):
        factor = modes.factor(j)
        total = total + np.kron(factor.T @ factor, np.outer(direction, direction))
    np.testing.assert_allclose(total, workload.gram(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(modes.basis.T @ modes.basis, np.eye(workload.nodes), atol=1e-14)


def test_a_directed_graph_has_no_modes() -> None:
    """Nor a directed ring, whose W has orthogonal eigenvectors that are not real, nor a W that is
    symmetric but for a little."""
    ring = (np.eye(4) + np.roll(np.eye(4), 1, axis=0)) / 2
    nearly = oracles.metropolis(nx.path_graph(3))
    assert Workload.of(nearly, horizon=3).modes is not None
    nearly = nearly + 1e-6 * np.array([[-1, 1, 0], [0, 0, 0], [0, 0, 0]])
    for w in (GRAPHS["directed"], ring, nearly):
        for horizon in (1, 3):
            assert Workload.of(w, horizon=horizon).modes is None


@hypothesis_settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 5),
    horizon=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    symmetric=st.booleans(),
    rank=st.integers(0, 3),
)
def test_partial_grams_are_one_trace(
    n: int, horizon: int, seed: int, symmetric: bool, rank: int
) -> None:
    random = np.random.default_rng(seed)
    w = random.normal(size=(n, rank)) @ random.normal(size=(rank, n))
    w = w + w.T if symmetric else w
    w = w / max(1.0, np.abs(np.linalg.eigvals(w)).max())
    r, s = covariance(n, seed), covariance(horizon, seed + 1)
    a = stacked_workload(w, horizon)
    expected = np.trace(a @ np.kron(s, r) @ a.T)
    workload = Workload.of(w, horizon=horizon)
    assert np.sum(workload.time_gram(r) * s) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert np.sum(workload.space_gram(s) * r) == pytest.approx(expected, rel=1e-9, abs=1e-12)


# --- full designs ---------------------------------------------------------------------------------

SMALL = [
    ("edge", np.array([[0.7, 0.3], [0.3, 0.7]]), 1, 2),
    ("edge", np.array([[0.7, 0.3], [0.3, 0.7]]), 2, 1),
    ("edge", np.array([[0.7, 0.3], [0.3, 0.7]]), 2, 2),
    ("path", oracles.metropolis(nx.path_graph(3)) / 2 + np.eye(3) / 2, 1, 3),
    ("path", oracles.metropolis(nx.path_graph(3)) / 2 + np.eye(3) / 2, 2, 1),
    ("directed", oracles.row_normalized(nx.path_graph(2)) * 0.5 + np.eye(2) * 0.5, 2, 1),
]


@pytest.mark.parametrize(("name", "w", "epochs", "separation"), SMALL)
@pytest.mark.parametrize("uneven", [False, True])
def test_full_optimum_is_the_conic_solver_s(
    name: str, w: Array, epochs: int, separation: int, uneven: bool
) -> None:
    tau = np.linspace(1.0, 2.5, len(w)) if uneven else np.ones(len(w))
    design = design_full(all_iterates(w, epochs, separation, tau), gap=1e-8)
    assert design.certificate.feasible
    assert design.certificate.gap <= 1e-8
    expected = conic_optimum(w, epochs, separation, tau)
    assert design.certificate.objective == pytest.approx(expected, rel=1e-6)


def judged_by_hand(design: Judged, w: Array) -> None:
    """Objective and exact sensitivities of the exported C, from stacked matrices."""
    participation, tau = design.problem.participation, design.problem.budget
    epochs, separation = participation.epochs, participation.separation
    a = stacked_workload(w, epochs * separation)
    c = design.strategy
    assert np.array_equal(c, np.tril(c))
    objective = float(np.square(a @ np.linalg.inv(c)).sum())
    assert objective == pytest.approx(design.certificate.objective, rel=1e-10)
    gram = oracles.exact_gram(c)
    for number, pattern in enumerate(patterns_of(len(w), epochs, separation)):
        # Of one or two steps the elliptope maximum is the sum of absolute values.
        squared = sum(abs(gram[i][j]) for i in pattern for j in pattern)
        assert squared <= tau[number % len(w)]


@pytest.mark.parametrize(
    ("epochs", "separation"), [(1, 4), (2, 2)], ids=["one participation", "two"]
)
@pytest.mark.parametrize("name", ["path-4", "ring-5", "star-4, singular", "directed"])
def test_full_designs_are_feasible_and_causal(name: str, epochs: int, separation: int) -> None:
    # Node 0, the hub of the star, gets the largest budget: a tight one there would let noise in
    # the star's null direction diverge.
    w = GRAPHS[name]
    design = design_full(all_iterates(w, epochs, separation, np.linspace(2, 0.5, len(w))))
    assert design.certificate.feasible
    assert design.certificate.gap <= 1e-6
    judged_by_hand(design, w)


@pytest.mark.parametrize("solve", [design_full, design_kronecker])
def test_one_node_is_prefix_matrix_factorization(solve: Any) -> None:
    two = solve(all_iterates(np.ones((1, 1)), 1, 2))
    assert two.certificate.objective == pytest.approx(oracles.PREFIX_TWO_STEPS, rel=1e-6)
    several = solve(all_iterates(np.ones((1, 1)), 2, 3, 4.0))
    prefix = oracles.prefix_workload(6)
    expected = oracles.fixed_epoch_interval(prefix.T @ prefix, 2, 3)
    assert expected.lower / 4 <= several.certificate.objective * (1 + 1e-9)
    assert several.certificate.objective == pytest.approx(expected.upper / 4, rel=3e-6)
    assert several.certificate.gap <= 2e-4


@pytest.mark.parametrize("solve", [design_full, design_kronecker])
def test_one_step_is_whisper(solve: Any) -> None:
    ring = solve(all_iterates(GRAPHS["ring-5"], 1, 1, 2.0))
    expected = oracles.vertex_transitive_optimum(GRAPHS["ring-5"], tau=2.0)
    assert ring.certificate.objective == pytest.approx(expected, rel=1e-6)
    assert ring.certificate.gap <= 2e-6
    star = GRAPHS["lollipop"]
    interval = oracles.capped_interval(star.T @ star, budget=np.arange(1.0, 6.0), cap=1e6)
    found = solve(all_iterates(star, 1, 1, np.arange(1.0, 6.0))).certificate
    assert found.objective == pytest.approx(interval.upper, rel=1e-5)
    assert found.gap <= 1e-4


# --- Kronecker designs ----------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "separation"), [(1, 6), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", ["path-4", "lollipop", "ring-5", "directed", "star-4, singular"])
def test_kronecker_lies_between_full_and_both_of_its_starts(
    name: str, epochs: int, separation: int
) -> None:
    w = GRAPHS[name]
    n, horizon = len(w), epochs * separation
    asked = all_iterates(w, epochs, separation)
    joint, full = design_kronecker(asked), design_full(asked)
    a = stacked_workload(w, horizon)
    blocks = (a.T @ a).reshape(horizon, n, horizon, n)
    mafalda = oracles.fixed_epoch_interval(np.einsum("sutu->st", blocks), epochs, separation)
    whisper = oracles.fixed_epoch_interval(np.einsum("susv->uv", blocks), 1, n)
    objective = joint.certificate.objective
    assert full.certificate.lower_bound <= objective
    assert joint.certificate.lower_bound <= full.certificate.objective
    assert objective < 0.999 * mafalda.upper
    assert objective < 0.999 * epochs * whisper.upper
    # Independent noise of variance k in time is where both start.
    independent = epochs * float(np.square(a).sum())
    assert joint.history[0] == pytest.approx(independent, rel=1e-12)
    assert asked.independent_objective == pytest.approx(independent, rel=1e-12)
    assert (np.diff(joint.history) <= 0).all()


@pytest.mark.parametrize(("epochs", "separation"), [(1, 4), (2, 2)])
@pytest.mark.parametrize("name", ["path-4", "lollipop", "directed"])
def test_kronecker_designs_as_exported(name: str, epochs: int, separation: int) -> None:
    w = GRAPHS[name]
    tau = np.linspace(0.5, 3.0, len(w))
    design = design_kronecker(all_iterates(w, epochs, separation, tau))
    c, r = design.strategy, design.covariance
    assert design.certificate.feasible
    assert np.array_equal(c, np.tril(c))
    noising = np.linalg.inv(c)
    a = stacked_workload(w, epochs * separation)
    objective = np.trace(a @ np.kron(noising @ noising.T, r) @ a.T)
    assert objective == pytest.approx(design.certificate.objective, rel=1e-11)
    assert design.history[-1] == pytest.approx(design.certificate.objective, rel=1e-11)
    gram, precision = oracles.exact_gram(c), oracles.exact_inverse(r)
    worst = max(
        sum(abs(gram[s][t]) for s in pattern for t in pattern)
        for pattern in oracles.fixed_epoch_patterns(epochs, separation)
    )
    used = [worst * precision[u][u] / tau[u] for u in range(len(w))]
    assert max(used) <= 1
    assert max(used) > 1 - 1e-9


def test_kronecker_is_stationary_in_both_factors() -> None:
    # Neither factor alone can be improved: judged by another solver of the two programs.
    w, horizon = GRAPHS["lollipop"], 4
    design = design_kronecker(all_iterates(w, 1, horizon), gap=1e-9)
    noising = np.linalg.inv(design.strategy)
    a = stacked_workload(w, horizon)
    blocks = (a.T @ a).reshape(horizon, len(w), horizon, len(w))
    in_time = np.einsum("sutv,uv->st", blocks, design.covariance)
    in_space = np.einsum("sutv,st->uv", blocks, noising @ noising.T)
    for gram in (in_time, in_space):
        best = oracles.fixed_epoch_interval(gram, 1, len(gram), width=1e-7)
        assert design.certificate.objective <= best.upper * (1 + 1e-6)


@pytest.mark.parametrize("solve", [design_full, design_kronecker])
def test_budgets_scale_everything(solve: Any) -> None:
    w = GRAPHS["path-4"]
    one, many = (solve(all_iterates(w, 2, 2, tau)).certificate for tau in (1.0, 1e-8))
    assert many.objective * 1e-8 == pytest.approx(one.objective, rel=1e-6)
    assert many.lower_bound * 1e-8 == pytest.approx(one.lower_bound, rel=1e-4)
    assert many.feasible


def test_steps_of_the_caller_s() -> None:
    asked = all_iterates(GRAPHS["path-4"], 1, 5)
    free = design_kronecker(asked)
    # Independent noise in time leaves Whisper for all steps, and the bound is that of any design.
    seen: list[tuple[int, ...]] = []

    def independent(gram: Array) -> Array:
        seen.append(gram.shape)
        return np.eye(5)

    whisper = design_kronecker(asked, time_step=independent)
    a = stacked_workload(GRAPHS["path-4"], 5)
    gram = np.einsum("susv->uv", (a.T @ a).reshape(5, 4, 5, 4))
    expected = oracles.fixed_epoch_interval(gram, 1, 4).upper
    assert set(seen) == {(5, 5)}
    assert whisper.certificate.objective == pytest.approx(expected, rel=2e-6)
    np.testing.assert_allclose(whisper.strategy, np.eye(5), atol=1e-12)
    assert whisper.certificate.lower_bound <= free.certificate.objective
    # A step that makes matters worse is not taken.
    worse = design_kronecker(asked, space_step=lambda gram: 2 * np.eye(len(gram)))
    np.testing.assert_allclose(worse.covariance, np.eye(4), atol=1e-15)
    assert free.certificate.objective < worse.certificate.objective


@pytest.mark.parametrize("time_first", [True, False])
def test_the_two_starts_of_the_alternation(time_first: bool) -> None:
    # Given up after the first half sweep, each is a design that is known by itself.
    asked, n, horizon = all_iterates(GRAPHS["lollipop"], 1, 4), 5, 4
    a = stacked_workload(GRAPHS["lollipop"], horizon)
    blocks = (a.T @ a).reshape(horizon, n, horizon, n)
    mafalda = oracles.fixed_epoch_interval(np.einsum("sutu->st", blocks), 1, horizon)
    whisper = oracles.fixed_epoch_interval(np.einsum("susv->uv", blocks), 1, n)
    assert mafalda.gram is not None
    assert whisper.gram is not None
    in_time, in_space = np.linalg.inv(mafalda.gram), np.linalg.inv(whisper.gram)
    found = solver.alternate(
        asked.workload,
        (np.eye(horizon), np.eye(n)),
        (lambda gram: in_time, lambda gram: in_space),
        time_first=time_first,
        monitor=Monitor(gap=1e-9),
    )
    first = mafalda if time_first else whisper
    assert found.history[1] == pytest.approx(first.upper, rel=1e-9)
    assert found.objective < first.lower
    assert found.stop is Stop.SOLVED


@pytest.mark.parametrize("factor", ["time", "space"])
def test_the_better_start_is_returned(factor: str) -> None:
    # A step that answers only while the other factor is independent noise: the start that begins
    # with it ends up with both factors, the other start with its own alone.
    asked = all_iterates(GRAPHS["lollipop"], 1, 4)
    free = design_kronecker(asked)
    noising = np.linalg.inv(free.strategy)
    answers = {"time": noising @ noising.T, "space": free.covariance}
    first = {
        "time": asked.workload.time_gram(np.eye(5)),
        "space": asked.workload.space_gram(np.eye(4)),
    }

    def once(gram: Array) -> Array:
        same = np.allclose(gram, first[factor], rtol=1e-12)
        return answers[factor] if same else np.eye(len(gram))

    if factor == "time":
        design = design_kronecker(asked, time_step=once)
    else:
        design = design_kronecker(asked, space_step=once)
    assert design.certificate.objective == pytest.approx(free.certificate.objective, rel=1e-5)


@dataclass
class Given:
    """A workload known only by its H."""

    h: Array
    nodes: int
    horizon: int
    modes: None = None

    def factor(self) -> None:
        return None

    def rows(self) -> None:
        return None

    def gram(self) -> Array:
        return self.h

    def time_gram(self, covariance: Array) -> Array:
        blocks = self.h.reshape(self.horizon, self.nodes, self.horizon, self.nodes)
        return np.einsum("sutv,vu->st", blocks, covariance)

    def space_gram(self, covariance: Array) -> Array:
        blocks = self.h.reshape(self.horizon, self.nodes, self.horizon, self.nodes)
        return np.einsum("sutv,ts->uv", blocks, covariance)


def test_any_workload_will_do() -> None:
    # The last two iterates of the mean model alone: H without the structure of a gossip matrix,
    # plus a little of everything, which keeps the noise bounded.
    n, horizon = 3, 4
    a = stacked_workload(oracles.metropolis(nx.path_graph(n)), horizon)
    mean = np.kron(np.eye(horizon), np.full((1, n), 1 / n))[2:] @ a
    h = mean.T @ mean + 0.01 * np.eye(n * horizon)
    asked = SpaceTimeProgram(
        workload=Given(h, n, horizon),
        participation=FixedEpoch(epochs=2, separation=2),
        budget=np.ones(n),
    )
    full, joint = design_full(asked).certificate, design_kronecker(asked).certificate
    expected = oracles.fixed_epoch_interval(h, 2, 2 * n)
    assert full.objective == pytest.approx(expected.upper, rel=2e-6)
    assert joint.lower_bound <= full.objective <= joint.objective * (1 + 1e-9)
    assert joint.lower_bound / full.objective > 0.5
    assert joint.objective < 0.9 * asked.independent_objective


def test_an_infeasible_step_is_not_certified() -> None:
    asked = all_iterates(GRAPHS["path-4"], 1, 5)
    design = design_kronecker(asked, space_step=lambda gram: np.eye(len(gram)) / 2)
    assert design.certificate.sensitivity_squared == pytest.approx(2.0, rel=1e-9)
    assert not design.certificate.feasible


# --- singular W -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("name", ["ring-6, singular", "complete-3, singular"])
def test_noise_that_diverges_is_refused(epochs: int, name: str) -> None:
    with pytest.raises(InputError, match="^mixing: .*null direction") as caught:
        design_kronecker(all_iterates(GRAPHS[name], epochs, 2))
    assert "max_variance" in caught.value.remedy
    assert "lazy-metropolis-hastings" in caught.value.remedy
    # Noise of any covariance is as large as the gap asks for, and says so.
    scheme = FixedEpoch(epochs=epochs, separation=2)
    full = solve_any(SpaceTimeProblem(mixing=GRAPHS[name], participation=scheme, joint="full"))
    assert full.status == "optimal"
    assert "max_variance" in full.remedy


@pytest.mark.parametrize("cap", [None, 20.0])
@pytest.mark.parametrize("budget", [1.0, 4.0])
def test_a_product_says_how_large_noise_is_where_steps_cost_nothing(
    cap: float | None, budget: float
) -> None:
    """H over 16 steps has rank three; what is told is the diagonal of S x R, over 2 / budget."""
    lazy = (oracles.metropolis(nx.cycle_graph(5)) + np.eye(5)) / 2
    steps = FixedEpoch(epochs=2, separation=8)
    asked = SpaceTimeProblem(
        mixing=lazy,
        participation=steps,
        budget=budget,
        max_variance=cap,
        error=ErrorMeasure(horizon=16, of="last-iterate"),
    )
    found = solve_any(asked)
    assert found.design is not None
    noising = np.linalg.inv(found.design.strategy)
    largest = np.kron(noising @ noising.T, found.design.covariance).diagonal().max()
    told = re.search(r"design is (\S+), (\S+) times that of independent", found.remedy)
    assert told is not None
    assert [float(x) for x in told.groups()] == pytest.approx(
        [largest, largest * budget / 2], rel=0.06
    )
    assert 'joint = "full" takes a cap' in found.remedy
    everything = replace(asked, error=None)
    assert "times that of independent" not in solve_any(everything).remedy
    # What it advises works: a cap on every node and step.
    few = FixedEpoch(epochs=2, separation=3)
    last = ErrorMeasure(horizon=6, of="last-iterate")
    full = replace(asked, participation=few, error=last, joint="full", max_variance=20 / budget)
    capped = solve_any(full).design
    assert capped is not None
    assert np.square(np.linalg.inv(capped.strategy)).sum(axis=1).max() <= 20 / budget


@pytest.mark.parametrize("joint", ["kronecker", "full"])
@pytest.mark.parametrize("tau", [1.0, 4.0])
@pytest.mark.parametrize(
    ("kind", "graph"),
    [
        ("ring", nx.cycle_graph(6)),
        pytest.param("ring", nx.cycle_graph(12), marks=pytest.mark.slow),
        ("complete", nx.complete_graph(5)),
    ],
    ids=["ring-6", "ring-12", "complete-5"],
)
def test_the_cap_that_is_advised_works(
    kind: str, graph: nx.Graph, tau: float, joint: str, tmp_path: Path
) -> None:
    asked = SpaceTimeProblem.from_graph(graph, participation=single(3), joint=joint, budget=tau)
    asked = uncapped(asked)
    try:
        told = solve_any(asked).remedy
    except InputError as error:
        told = error.remedy
    python = re.search(r"max_variance=(\S+) in Python", told)
    line = re.search(r"(\[limits\]) (max_variance = \S+) in a problem file", told)
    assert python is not None
    assert line is not None
    capped = replace(asked, max_variance=float(python[1]))
    path = tmp_path / "p.toml"
    path.write_text(
        f'name = "x"\ndesign = "space-time"\n[graph]\nkind = "{kind}"\nnodes = {len(graph)}\n'
        f"[participation]\nkind = 'single'\nhorizon = 3\n[structure]\njoint = '{joint}'\n"
        f"[budget]\ntau = {tau}\n{line[1]}\n{line[2]}\n"
    )
    for one in (capped, load_problem(path).problem):
        found = solve_any(one)
        assert found.status in ("optimal", "local-optimum")
        assert found.feasible
    lazy = SpaceTimeProblem.from_graph(
        graph, participation=single(3), joint=joint, budget=tau, weights="lazy-metropolis-hastings"
    )
    assert solve_any(lazy).feasible


def test_capped_noise_of_one_step() -> None:
    w = np.full((3, 3), 1 / 3)
    expected = oracles.complete_graph_capped(3, cap=2.0, tau=1.5)
    for found in (
        design_full(all_iterates(w, 1, 1, 1.5), cap=np.full(3, 2.0)),
        design_kronecker(all_iterates(w, 1, 1, 1.5), cap=np.full(3, 2.0)),
    ):
        assert found.certificate.objective == pytest.approx(expected, rel=1e-5)
        assert found.certificate.feasible
        ratio = found.certificate.variance_ratio
        assert ratio is not None
        assert 0.999 <= ratio <= 1


def test_capped_noise_of_several_steps() -> None:
    w = GRAPHS["ring-6, singular"]
    full = design_full(all_iterates(w, 1, 3), cap=np.full(6, 4.0), gap=1e-5)
    variance = np.square(np.linalg.inv(full.strategy)).sum(axis=1)
    assert full.certificate.feasible
    assert full.certificate.gap <= 1e-5
    assert variance.max() <= 4.0
    product = design_kronecker(all_iterates(w, 2, 3), cap=np.full(6, 4.0))
    assert product.certificate.feasible
    assert np.diagonal(product.covariance).max() <= 4.0
    assert (np.diff(product.history) <= 0).all()


# --- stopping and bad input -----------------------------------------------------------------------


@pytest.mark.parametrize("solve", [design_full, design_kronecker])
def test_time_limit_leaves_a_feasible_design(solve: Any) -> None:
    design: Judged = solve(all_iterates(GRAPHS["path-4"], 2, 4), time_limit=1e-9)
    assert design.stop is Stop.TIME_LIMIT
    assert design.certificate.feasible
    assert np.isfinite(design.certificate.gap)


def test_interrupt_leaves_the_best_so_far() -> None:
    calls = 0

    def interrupted(gram: Array) -> Array:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    design = design_kronecker(all_iterates(GRAPHS["path-4"], 1, 4), space_step=interrupted)
    assert design.stop is Stop.INTERRUPTED
    assert calls == 1
    assert design.certificate.feasible
    assert len(design.history) == 2  # the time step before it is kept


def test_progress_is_reported() -> None:
    uppers: list[float] = []
    design_kronecker(
        all_iterates(GRAPHS["path-4"], 1, 4), progress=lambda bounds: uppers.append(bounds.upper)
    )
    assert len(uppers) >= 4


def test_bad_input() -> None:
    w = GRAPHS["path-4"]
    with pytest.raises(InputError, match="participation: expected epochs . separation = 3"):
        SpaceTimeProgram(
            workload=Workload.of(w, horizon=3), participation=single(4), budget=np.ones(4)
        )
    with pytest.raises(InputError, match="budget.tau: expected values > 0"):
        all_iterates(w, 1, 2, [1.0, 0.0, 1.0, 1.0])
    with pytest.raises(InputError, match="mixing"):
        all_iterates(2 * w, 1, 2)
    with pytest.raises(InputError, match="horizon"):
        Workload.of(w, horizon=0)
    with pytest.raises(InputError, match="float64"):
        Workload.of(w.astype(np.float32), horizon=2)
    with pytest.raises(InputError, match="4 . 3000 = 12000.*Kronecker"):
        design_full(all_iterates(w, 1, 3000))

    def asked(joint: str, scheme: FixedEpoch, **words: Any) -> SpaceTimeProblem:
        return SpaceTimeProblem(mixing=w, participation=scheme, joint=joint, **words)

    epochs = FixedEpoch(epochs=2, separation=2)
    with pytest.raises(InputError, match="max_variance: expected more than 2, the variance of"):
        solve_any(asked("full", epochs, max_variance=2.0))
    with pytest.raises(InputError, match="max_variance: expected more than 1 / tau = 0.5"):
        solve_any(asked("full", single(2), budget=2.0, max_variance=0.5))
    with pytest.raises(InputError, match="max_variance: expected more than 1 / tau = 1"):
        solve_any(asked("kronecker", single(2), max_variance=1.0))
    for joint in ("full", "kronecker"):
        with pytest.raises(InputError, match="gap"):
            solve_any(asked(joint, single(2)), gap=0.0)
        with pytest.raises(InputError, match="time_limit"):
            solve_any(asked(joint, single(2)), time_limit=0.0)


@pytest.mark.parametrize("of", ["mean-model", "consensus", "loss-of-mean", "last-iterate"])
def test_bounds_by_modes_hold_for_errors_that_some_mode_or_step_costs_nothing_of(of: str) -> None:
    """Nearly the optimum of any noise without the cap, proved though H is singular."""
    w = (oracles.metropolis(nx.path_graph(4)) + np.eye(4)) / 2
    error = ErrorMeasure(horizon=4, of=of, curvature=[0.1, 0.6], momentum=0.3)
    epochs = FixedEpoch(epochs=2, separation=2)
    asked = SpaceTimeProblem(mixing=w, participation=epochs, error=error, max_variance=50.0)
    found = solve_any(asked).design
    free = solve_any(replace(asked, joint="full", max_variance=None)).design
    assert found is not None
    assert free is not None
    assert 0.95 * free.lower_bound <= found.lower_bound <= free.objective
    assert found.certificate.feasible
    assert verify(found, rigorous=True).ok
