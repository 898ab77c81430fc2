"""Insiders who use the seeds they hold: played with drawn noise, and worked out by hand."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design, seed_plan_of
from noisedesign.design.solve import solve
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.seeds import SeedPlan, SharedSeed
from noisedesign.problem.problem import SpaceProblem
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.simulation.attacks import audit_coalition, audit_space, worst_coalition
from noisedesign.tasks.simulation.audit import AuditReport
from tests.support import oracles

GRAPHS = {
    "ring": oracles.metropolis(nx.cycle_graph(5)),
    "florentine": oracles.metropolis(nx.florentine_families_graph()),
}
PATH = oracles.metropolis(nx.path_graph(3))
BY_HAND = SeedPlan(
    nodes=3,
    seeds=(
        SharedSeed(members=(0, 1), coefficients=np.array([1.0, -1.0])),
        *(SharedSeed(members=(i,), coefficients=np.array([s])) for i, s in enumerate((1, 1, 2.0))),
    ),
)
"""R = [[2, -1], [-1, 2]] and 4: [R^-1]_00 = [R^-1]_11 = 2/3. Without the shared seed, 1."""
TRIALS = 40_000
WRONG = 1e-9
"""Probability that the interval of the game fails for a correct mu (seeds are fixed)."""


@cache
def solved(graph: str, known_seeds: int, tau: float = 1.0) -> Design:
    problem = SpaceProblem(
        mixing=GRAPHS[graph],
        budget=tau,
        structure=SpaceStructure(kind="edge-local", known_seeds=known_seeds),
    )
    design = solve(problem).design
    assert design is not None
    return design


def audited(graph: str, design: Design, coalition: tuple[int, ...], **options: Any) -> AuditReport:
    return audit_coalition(
        mixing=GRAPHS[graph],
        plan=seed_plan_of(design),
        coalition=coalition,
        claimed_mu=1.0,
        **options,
    )


def left_over(plan: SeedPlan, coalition: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes outside, and the covariance of what the coalition does not know, seed by seed."""
    outside = np.array([i for i in range(plan.nodes) if i not in coalition])
    total = np.zeros((plan.nodes, plan.nodes))
    for seed in plan.seeds:
        if not set(seed.members) & set(coalition):
            a = np.zeros(plan.nodes)
            a[list(seed.members)] = seed.coefficients
            total += np.outer(a, a)
    return outside, total[np.ix_(outside, outside)]


# --- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coalition", "mu", "node"),
    [
        ((), math.sqrt(2 / 3), {0, 1}),
        ((0,), 1.0, {1}),
        ((1,), 1.0, {0}),
        ((0, 1), 0.5, {2}),
        ((2,), math.sqrt(2 / 3), {0, 1}),
    ],
)
def test_three_nodes_by_hand(coalition: tuple[int, ...], mu: float, node: set[int]) -> None:
    def play(claimed: float, **options: Any) -> AuditReport:
        return audit_coalition(
            mixing=PATH,
            plan=BY_HAND,
            coalition=coalition,
            claimed_mu=claimed,
            runs=20_000,
            **options,
        )

    report = play(mu)
    assert report.agrees
    assert report.node in node
    assert play(0.9 * mu).exceeds
    assert not play(1.15 * mu).close
    assert play(mu / 2, noise_stddev=2.0).agrees


def test_nobody_learns_more_than_an_eavesdropper_without_seeds() -> None:
    """The empty coalition, and the audit that only knows R: the same worst node, the same mu."""
    common: dict[str, Any] = {"mixing": PATH, "claimed_mu": math.sqrt(2 / 3), "runs": 20_000}
    insider = audit_coalition(plan=BY_HAND, coalition=(), **common)
    outsider = audit_space(covariance=BY_HAND.covariance(), **common)
    assert insider.agrees
    assert outsider.agrees
    assert insider.node == outsider.node


# --- designs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_single_nodes_learn_from_their_seeds_is_within_the_target(graph: str) -> None:
    design = solved(graph, 1)
    for node in range(len(GRAPHS[graph])):
        report = audited(graph, design, (node,), runs=4000)
        assert not report.exceeds
        assert report.node != node
    worst = worst_coalition(seed_plan_of(design), size=1)
    assert audited(graph, design, worst, runs=10_000).agrees  # budgets are used up


def test_without_known_seeds_a_neighbour_sees_more_than_the_target() -> None:
    design = solved("ring", 0)
    assert audited("ring", design, (), runs=10_000).agrees
    for node in range(5):
        assert audited("ring", design, (node,), runs=10_000).exceeds


def test_two_colluding_nodes_see_more_than_one_was_allowed() -> None:
    design = solved("florentine", 1)
    worst = worst_coalition(seed_plan_of(design), size=2)
    assert audited("florentine", design, worst, runs=10_000).exceeds


@pytest.mark.parametrize("tau", [0.25, 4.0])
def test_budgets_and_noise_stddevs_scale(tau: float) -> None:
    design = solved("ring", 1, tau)
    worst = worst_coalition(seed_plan_of(design), size=1, budget=tau)
    assert audited("ring", design, worst, budget=np.full(5, tau), runs=10_000).agrees


def test_validation_lets_the_coalition_use_its_seeds() -> None:
    design, runs = solved("ring", 1), 40_000
    outcome = simulate(design, runs=runs)
    assert outcome.agrees
    worst = worst_coalition(seed_plan_of(design), size=1)
    assert outcome.audit == audited("ring", design, worst, budget=np.ones(5), runs=runs)
    # To an outsider the same noise shows less than it may: that claim would be loose.
    outsider = audit_space(
        mixing=GRAPHS["ring"],
        covariance=design.covariance,
        claimed_mu=3.0,
        noise_stddev=1 / 3,
        runs=runs,
    )
    assert not outsider.close


# --- the game in the field's own words ------------------------------------------------------------


def separation(null: np.ndarray, pulsed: np.ndarray) -> tuple[float, float]:
    """Confidence interval of the separation of Gaussian statistics."""
    deviation = math.sqrt((null.var(ddof=1) + pulsed.var(ddof=1)) / 2)
    estimate = float(pulsed.mean() - null.mean()) / deviation
    error = stats.norm.isf(WRONG / 2) * math.sqrt(2 / TRIALS + estimate**2 / (4 * TRIALS))
    return estimate - error, estimate + error


@pytest.mark.parametrize(("known_seeds", "protected"), [(1, True), (0, False)])
def test_likelihood_ratios_of_noise_drawn_node_by_node(known_seeds: int, protected: bool) -> None:
    """Every node draws with :meth:`SeedPlan.noise_of`; node 2 draws its own seeds again.

    Coordinates are trials. What node 2 subtracts comes from the seeds it holds alone.
    """
    plan = seed_plan_of(solved("ring", known_seeds))
    outside, covariance = left_over(plan, (2,))
    precision = np.linalg.inv(covariance)
    victim = int(np.diagonal(precision).argmax())
    weights = precision[:, victim]
    known = np.zeros((5, TRIALS))
    statistics = []
    for world, secret in enumerate((11, 12)):
        messages = np.stack([plan.noise_of(i, dimension=TRIALS, secret=secret) for i in range(5)])
        messages[outside[victim]] += world
        known[:] = 0.0
        for k in plan.held_by(2):
            drawn = np.random.default_rng([secret, k, 0]).standard_normal(TRIALS)
            for member, a in zip(plan.seeds[k].members, plan.seeds[k].coefficients, strict=True):
                known[member] += a * drawn
        left = messages - known
        assert np.abs(left[2]).max() <= 1e-12  # its own noise it knows whole
        statistics.append(weights @ left[outside])
    low, high = separation(*statistics)
    mu = math.sqrt(precision[victim, victim])
    assert low <= mu <= high
    assert (mu <= 1 + 1e-6) == protected
    assert (low <= 1) == protected


# --- the worst coalition --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_worst_coalition_is_the_worst_of_all(graph: str, size: int) -> None:
    plan = seed_plan_of(solved(graph, 1))
    n = plan.nodes
    tau = np.random.default_rng(size).uniform(0.5, 2.0, n)

    def shown(coalition: tuple[int, ...]) -> float:
        outside, covariance = left_over(plan, coalition)
        return float((np.diagonal(np.linalg.inv(covariance)) / tau[outside]).max())

    found = worst_coalition(plan, size=size, budget=tau)
    assert len(found) == size
    others = [(), *[(i,) for i in range(n)], *[(i, j) for j in range(n) for i in range(j)]]
    every = [shown(c) for c in others if len(c) == size]
    assert shown(found) == pytest.approx(max(every), rel=1e-12)


def test_a_node_without_noise_of_its_own_is_bare_before_its_neighbour() -> None:
    seeds = (
        SharedSeed(members=(0, 1), coefficients=np.array([1.0, -1.0])),
        SharedSeed(members=(0,), coefficients=np.ones(1)),
        SharedSeed(members=(2,), coefficients=np.ones(1)),
    )
    plan = SeedPlan(nodes=3, seeds=seeds)
    assert worst_coalition(plan, size=1) == (0,)
    with pytest.raises(
        InputError, match=r"^coalition: .*no noise left at node 1 once nodes \(0,\)"
    ):
        audit_coalition(mixing=PATH, plan=plan, coalition=(0,), claimed_mu=1.0)
    # Node 1 knows the shared seed too, but node 0 has one of its own.
    assert audit_coalition(mixing=PATH, plan=plan, coalition=(1,), claimed_mu=1.0).agrees


def test_noise_that_cancels_is_refused() -> None:
    """Two nodes of one seed: their sum shows the sum of their gradients."""
    seeds = (
        SharedSeed(members=(0, 1), coefficients=np.array([1.0, -1.0])),
        SharedSeed(members=(2,), coefficients=np.ones(1)),
    )
    with pytest.raises(InputError, match="a singular one once nodes"):
        audit_coalition(
            mixing=PATH, plan=SeedPlan(nodes=3, seeds=seeds), coalition=(2,), claimed_mu=1.0
        )


def test_bad_input() -> None:
    good: dict[str, Any] = {"mixing": PATH, "plan": BY_HAND, "coalition": (0,), "claimed_mu": 1.0}
    wrong: list[tuple[str, Any, str]] = [
        ("mixing", PATH[:2], "mixing"),
        ("mixing", np.eye(4), "plan"),
        ("coalition", (3,), "coalition"),
        ("coalition", (0, 0), "coalition"),
        ("coalition", (0, 1, 2), "coalition"),
        ("coalition", (True,), "coalition"),
        ("claimed_mu", 0.0, "claimed_mu"),
        ("noise_stddev", 0.0, "noise_stddev"),
        ("budget", [1.0, -1.0, 1.0], "budget"),
        ("runs", 29, "runs"),
    ]
    for key, value, field in wrong:
        with pytest.raises(InputError, match=f"^{field}"):
            audit_coalition(**(good | {key: value}))
    for options, field in [
        ({"size": 3}, "size"),
        ({"size": -1}, "size"),
        ({"size": 1, "budget": 0.0}, "budget"),
    ]:
        with pytest.raises(InputError, match=f"^{field}"):
            worst_coalition(BY_HAND, **options)
