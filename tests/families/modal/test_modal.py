"""Noise of modes: what it is, what it costs, and what the search for it finds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base import linalg, memory
from noisedesign.base.checks import InputError
from noisedesign.base.enclosures import Interval
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.design.design import Design
from noisedesign.families.family import family_of
from noisedesign.families.kronecker.rigorous import all_coordinates, error_on_all
from noisedesign.families.modal import bound, rigorous, solver
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import DenseStrategy, ModalStrategy, Noise
from noisedesign.privacy.sensitivity import EXACT, UPPER_BOUND, Sensitivity
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import ErrorMixture, Workload
from tests.support import oracles
from tests.support.space_time_cases import stacked_workload

PATH = (oracles.metropolis(nx.path_graph(4)) + np.eye(4)) / 2
TWICE = FixedEpoch(epochs=2, separation=2)


def problem(w: np.ndarray = PATH, steps: FixedEpoch = TWICE, **how: Any) -> nd.SpaceTimeProblem:
    return nd.SpaceTimeProblem(mixing=w, participation=steps, joint="modal", **how)


def on_all(program: SpaceTimeProgram, found: ModalStrategy) -> Interval:
    """The error of all pairs of node and step."""
    return error_on_all(all_coordinates(program), rigorous.covariance(found))


def form(nodes: int = 3, steps: int = 4, seed: int = 0) -> ModalStrategy:
    rng = np.random.default_rng(seed)
    strategies = np.tril(rng.standard_normal((nodes, steps, steps)))
    strategies[:, np.arange(steps), np.arange(steps)] = rng.uniform(0.5, 2.0, (nodes, steps))
    modes = rng.standard_normal((nodes, nodes))
    return ModalStrategy(
        strategies=strategies, modes=modes, scales=rng.uniform(0.5, 2.0, (nodes, steps))
    )


def covariance(of: ModalStrategy) -> np.ndarray:
    """cov(z) of all pairs, entry by entry of its definition."""
    nodes, steps = of.nodes, of.steps
    found = np.zeros((steps, nodes, steps, nodes))
    inverses = [np.linalg.inv(c.T @ c) for c in of.strategies]
    for t in range(steps):
        for u in range(nodes):
            for s in range(steps):
                for v in range(nodes):
                    found[t, u, s, v] = sum(
                        of.scales[u, t]
                        * of.modes[u, m]
                        * inverses[m][t, s]
                        * of.modes[v, m]
                        * of.scales[v, s]
                        for m in range(nodes)
                    )
    return found.reshape(nodes * steps, nodes * steps)


# --- the noise ------------------------------------------------------------------------------------


def test_its_strategy_is_the_triangular_one_of_its_covariance() -> None:
    found = form()
    c, noising = found.dense(), found.dense_noising()
    assert not np.triu(c, 1).any()
    assert not np.triu(noising, 1).any()
    assert (np.diagonal(c) > 0).all()
    np.testing.assert_allclose(noising @ noising.T, covariance(found), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(c @ noising, np.eye(12), atol=1e-11)


def test_it_is_drawn_as_the_rows_of_the_noising_matrix_are() -> None:
    found = form()
    white = np.random.default_rng(1).standard_normal((4, 3, 5))
    drawn = np.array(list(found.of_nodes(white, nodes=3)))
    expected = (found.dense_noising() @ white.reshape(12, 5)).reshape(4, 3, 5)
    np.testing.assert_allclose(drawn, expected, atol=1e-11)
    other = np.array(list(DenseStrategy(strategy=found.dense()).of_nodes(white, nodes=3)))
    np.testing.assert_allclose(other, expected, atol=1e-10)
    one_by_one = np.array(list(found.noise_of(white.reshape(12, 5))))
    np.testing.assert_allclose(one_by_one, expected.reshape(12, 5), atol=1e-11)


def test_what_a_node_takes_of_every_draw_is_its_rows_of_the_noising_matrix() -> None:
    found = form()
    blocks = found.dense_noising().reshape(4, 3, 4, 3)
    for node in range(3):
        np.testing.assert_allclose(found.couplings(node, nodes=3), blocks[:, node], atol=1e-12)


def test_a_pair_is_noise_of_their_product() -> None:
    c = np.array([[1.0, 0.0], [-0.5, 0.8]])
    r = np.array([[2.0, 0.3], [0.3, 1.0]])
    noising = ModalStrategy.of_pair(c, r).dense_noising()
    expected = np.kron(np.linalg.inv(c.T @ c), r)
    np.testing.assert_allclose(noising @ noising.T, expected, rtol=1e-12, atol=1e-12)


def test_larger_noise_is_larger_by_its_factor() -> None:
    found = form()
    np.testing.assert_allclose(covariance(found.scaled(3.0)), 9 * covariance(found), rtol=1e-12)


def test_what_does_not_fit_into_memory_is_refused_and_the_noise_is_drawn_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = form()
    monkeypatch.setattr(memory, "physical", lambda: 1000)
    with pytest.raises(InputError, match="pairs of step and node"):
        found.dense()
    assert len(list(found.of_nodes(np.zeros((4, 3, 1)), nodes=3))) == 4


DAMAGED: dict[str, tuple[str, Any]] = {
    "an entry above the diagonal": ("mode_strategies", lambda a: a + np.triu(np.ones((4, 4)), 3)),
    "a diagonal that is not positive": ("mode_strategies", lambda a: a - 3 * np.eye(4)),
    "too few steps": ("mode_strategies", lambda a: a[:, :3, :3]),
    "singular modes": ("modes", lambda a: np.ones_like(a)),
    "modes of fewer nodes": ("modes", lambda a: a[:2, :2]),
    "a negative scale": ("step_scales", lambda a: -a),
    "scales of fewer steps": ("step_scales", lambda a: a[:, :2]),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_arrays_are_refused_by_name(what: str) -> None:
    name, damage = DAMAGED[what]
    arrays = form().arrays()
    assert ModalStrategy.of_arrays(arrays, horizon=12, field="design").horizon == 12
    arrays[name] = damage(arrays[name])
    with pytest.raises(InputError, match=f"design.{name}"):
        ModalStrategy.of_arrays(arrays, horizon=12, field="design")


# --- what it costs --------------------------------------------------------------------------------


def test_error_and_sensitivity_are_those_of_the_covariance_written_out() -> None:
    found = form(nodes=4, seed=3)
    program = SpaceTimeProgram.of(problem(budget=[1.0, 2.0, 0.5, 1.5]))
    judged = bound.judge_modal(program, found, bound=0.0)
    stacked, cov = stacked_workload(PATH, 4), covariance(found)
    assert judged.objective == pytest.approx(np.trace(stacked @ cov @ stacked.T), rel=1e-11)
    precision = np.linalg.inv(cov).reshape(4, 4, 4, 4)
    worst = 0.0
    for node, budget in enumerate((1.0, 2.0, 0.5, 1.5)):
        own = precision[:, node, :, node]
        for first in range(2):  # two steps of one record: the worst gradients are aligned
            block = own[np.ix_([first, first + 2], [first, first + 2])]
            worst = max(worst, (np.trace(block) + 2 * abs(block[0, 1])) / budget)
    assert judged.sensitivity_squared == pytest.approx(worst, rel=1e-8)


@pytest.mark.parametrize("poor", range(4))
def test_the_proof_is_of_the_node_that_overspends_most(poor: int) -> None:
    """Whichever it is: its budget is so small that no other matters."""
    found = form(nodes=4, seed=3)
    budget = np.where(np.arange(4) == poor, 0.01, 1.0)
    program = SpaceTimeProgram.of(problem(budget=budget))
    told = bound.judge_modal(program, found, bound=0.0)
    proved = rigorous.judge(program, found)
    assert told.sensitivity_squared * (1 - 1e-9) <= proved.sensitivity_squared
    assert proved.sensitivity_squared <= told.sensitivity_squared * (1 + 1e-6)
    assert proved.objective.lower <= told.objective * (1 + 1e-9)
    assert proved.objective.upper >= told.objective * (1 - 1e-9)


@pytest.mark.parametrize("worst", range(4))
def test_the_kind_of_a_sensitivity_is_that_of_the_worst_node(
    worst: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact of nodes that are not the worst, over their budgets, and an upper bound of that."""
    budget = np.array([1.0, 4.0, 0.5, 2.0])
    program = SpaceTimeProgram.of(problem(budget=budget))
    for kind, other in ((UPPER_BOUND, EXACT), (EXACT, UPPER_BOUND)):
        kinds = iter(np.where(np.arange(4) == worst, kind, other).tolist())
        ratios = iter((np.where(np.arange(4) == worst, 3.0, 2.0) * budget).tolist())
        monkeypatch.setattr(
            bound,
            "squared_sensitivity",
            lambda gram, scheme, kinds=kinds, ratios=ratios: Sensitivity(
                per_pattern=np.array([next(ratios)]), kind=next(kinds)
            ),
        )
        found = bound.judge_modal(program, form(nodes=4, seed=3), bound=0.0)
        assert found.sensitivity_squared == pytest.approx(3.0)
        assert found.sensitivity_kind == kind


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, 1e11])
def test_sensitivities_are_raised_by_what_the_inverse_of_the_modes_may_be_off_by(
    condition: float,
) -> None:
    """Against fifty digits, of modes of any condition: never below, neither judged nor proved."""
    budget = np.array([1.0, 2.0, 0.5, 1.5])
    program = SpaceTimeProgram.of(problem(budget=budget))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        left, right = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
        modes = (left * np.geomspace(1.0, 1 / condition, 4)) @ right
        found = replace(form(nodes=4, seed=seed), modes=modes)
        judged = bound.judge_modal(program, found, bound=0.0).sensitivity_squared
        with mpmath.workdps(50):
            _, exact = in_many_digits(found, PATH)
            worst = max(x / mpmath.mpf(b) for x, b in zip(exact, budget, strict=True))
            assert worst <= judged <= worst * (1 + 1e-10 * condition)
            assert worst <= rigorous.judge(program, found).sensitivity_squared


@pytest.mark.parametrize("off", [1 - 1e-3, 1 + 1e-3])
@pytest.mark.parametrize("spoiled", range(3))
def test_an_inverse_that_is_off_of_any_mode_is_allowed_for(
    spoiled: int, off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one of three, by a thousandth, the others as they are: both ways hold the error still."""
    found, w = form(nodes=3, seed=4), np.full((3, 3), 0.2) + 0.4 * np.eye(3)
    program = SpaceTimeProgram.of(problem(w))
    modes = program.workload.modes
    assert modes is not None
    with mpmath.workdps(50):
        truth, _ = in_many_digits(found, w)
    original = linalg.inverse_of_triangular
    wrong = found.strategies[spoiled]

    def inverse(c: np.ndarray) -> np.ndarray:
        factor = off if (c == wrong).all() else 1.0
        return factor * original(c)  # which writes over c

    monkeypatch.setattr(linalg, "inverse_of_triangular", inverse)
    for told in (rigorous.by_modes(program, found, modes.basis), on_all(program, found)):
        assert told.lower <= truth <= told.upper


def in_many_digits(of: ModalStrategy, w: np.ndarray) -> tuple[mpmath.mpf, list[mpmath.mpf]]:
    """tr(H cov(z)) and the squared sensitivity of every node under participation in every second of
    four steps, each of 50 digits: C_m^-1 and M^-1 by mpmath, powers of W as sums of their paths."""

    def exact(a: np.ndarray) -> mpmath.matrix:
        return mpmath.matrix([[mpmath.mpf(float(x)) for x in row] for row in a])

    steps, nodes = of.steps, of.nodes
    noisings = [mpmath.inverse(exact(c)) for c in of.strategies]
    powers = [exact(w)]
    for _ in range(steps - 1):
        powers.append(powers[-1] * powers[0])
    modes, scales = exact(of.modes), exact(of.scales)
    error = mpmath.mpf(0)
    for t in range(steps):
        for m, noising in enumerate(noisings):
            for draw in range(steps):
                column = mpmath.zeros(nodes, 1)
                for s in range(t + 1):
                    sent = [scales[u, s] * modes[u, m] * noising[s, draw] for u in range(nodes)]
                    column += powers[t - s] * mpmath.matrix(sent)
                error += sum(x**2 for x in column)
    dual, sensitivities = mpmath.inverse(modes), []
    for u in range(nodes):
        gram = mpmath.zeros(steps, steps)
        for m, c in enumerate(of.strategies):
            gram += dual[m, u] ** 2 * (exact(c).T * exact(c))
        worst = mpmath.mpf(0)
        for first in range(2):
            pair = (first, first + 2)
            entries = [gram[s, t] / (scales[u, s] * scales[u, t]) for s in pair for t in pair]
            worst = max(worst, sum(abs(x) for x in entries))
        sensitivities.append(worst)
    return error, sensitivities


@pytest.mark.parametrize("seed", range(3))
def test_proofs_of_modes_hold_in_fifty_digits(seed: int) -> None:
    found, budget = form(nodes=4, seed=seed), np.array([1.0, 2.0, 0.5, 1.5])
    program = SpaceTimeProgram.of(problem(budget=budget))
    proved = rigorous.judge(program, found)
    with mpmath.workdps(50):
        error, sensitivities = in_many_digits(found, PATH)
        worst = max(x / mpmath.mpf(b) for x, b in zip(sensitivities, budget, strict=True))
        assert proved.objective.lower <= error <= proved.objective.upper
        assert worst <= proved.sensitivity_squared
        assert proved.sensitivity_squared <= worst * (1 + mpmath.mpf(10) ** -10)
    assert proved.objective.width <= 1e-11 * proved.objective.upper


@pytest.mark.parametrize("orthonormal", [False, True])
def test_modes_of_a_workload_are_asked_of_nobody(orthonormal: bool) -> None:
    """The interval is as wide as what is said of W is wrong, and holds the truth still."""
    found, program = form(nodes=4, seed=1), SpaceTimeProgram.of(problem())
    modes = program.workload.modes
    assert modes is not None
    proved = rigorous.by_modes(program, found, modes.basis)
    turned = modes.basis + 1e-5 * np.random.default_rng(0).standard_normal((4, 4))
    if orthonormal:  # and no eigenvectors
        turned = np.linalg.qr(turned)[0]
    wider = rigorous.by_modes(program, found, turned)
    assert wider.lower <= proved.lower <= proved.upper <= wider.upper
    assert wider.width >= 1e-7 * proved.upper
    with pytest.raises(NotProvedError, match="modes"):
        rigorous.by_modes(program, found, np.eye(4) * 3)


def test_what_is_wrong_of_slow_modes_grows_with_every_power() -> None:
    """Two pairs with a weak link: their slow modes are turned by 1e-3, which W itself hardly tells,
    for the two poles are 1e-4 apart. Its powers drift away step by step."""
    link, turn, steps = 1e-4, 1e-3, 64
    w = np.kron(np.eye(2), np.full((2, 2), 0.5))
    w[1:3, 1:3] += link * np.array([[-1.0, 1.0], [1.0, -1.0]])
    program = SpaceTimeProgram.of(problem(w, steps=single(steps)))
    values, basis = np.linalg.eigh(w)
    assert (values[-2:] > 1 - 3 * link).all()
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    wrong = np.hstack([basis[:, :2], basis[:, 2:] @ rotation])
    modes = 1e-3 * np.eye(4)
    modes[:2, 0] = 1.0
    noise = ModalStrategy(
        strategies=np.tile(np.eye(steps), (4, 1, 1)), modes=modes, scales=np.ones((4, steps))
    )
    # Independent over time: ||W^k M||^2 of all powers, as often as they occur.
    left = [np.square(np.linalg.matrix_power(w, k) @ modes).sum() for k in range(1, steps + 1)]
    truth = float(np.arange(steps, 0, -1) @ left)
    told = rigorous.by_modes(program, noise, basis)
    assert told.lower <= truth * (1 + 1e-12)
    assert truth <= told.upper * (1 + 1e-12)
    spoiled = rigorous.by_modes(program, noise, wrong)
    assert spoiled.lower <= told.lower <= told.upper <= spoiled.upper


def test_both_ways_to_an_error_agree() -> None:
    found, program = form(nodes=4, seed=2), SpaceTimeProgram.of(problem())
    modes = program.workload.modes
    assert modes is not None
    first, second = rigorous.by_modes(program, found, modes.basis), on_all(program, found)
    assert max(first.lower, second.lower) <= min(first.upper, second.upper)
    assert second.width <= 1e-9 * second.upper


def objective_lowered(made: Design) -> Design:
    said = made.certificate
    return replace(made, certificate=replace(said, objective=said.objective * (1 - 1e-9)))


def bound_raised(made: Design) -> Design:
    said = made.certificate
    return replace(made, certificate=replace(said, lower_bound=said.lower_bound * (1 + 1e-8)))


def changed(made: Design, **arrays: np.ndarray) -> Design:
    assert isinstance(made.noise.strategy, ModalStrategy)
    return replace(made, noise=replace(made.noise, strategy=replace(made.noise.strategy, **arrays)))


def entry_changed(made: Design) -> Design:
    strategies = made.noise.strategy.strategies.copy()  # type: ignore[union-attr]
    strategies[1, 2, 2] *= 1 + 1e-8
    return changed(made, strategies=strategies)


def mode_changed(made: Design) -> Design:
    modes = made.noise.strategy.modes.copy()  # type: ignore[union-attr]
    modes[0, 0] *= 1 - 1e-8
    return changed(made, modes=modes)


def scale_lowered(made: Design) -> Design:
    scales = made.noise.strategy.scales.copy()  # type: ignore[union-attr]
    scales[2] *= 1 - 1e-9
    return changed(made, scales=scales)


def multipliers_bent(made: Design) -> Design:
    bent = {
        name: array * np.linspace(1, 1.5, array.size).reshape(array.shape)
        for name, array in made.proof.items()
    }
    return replace(made, proof=bent)


def of_another_graph(made: Design) -> Design:
    w = oracles.metropolis(nx.cycle_graph(4))
    return replace(made, problem=replace(made.problem, mixing=w))


@pytest.mark.parametrize(
    "edit",
    [
        *(objective_lowered, bound_raised, entry_changed, mode_changed, scale_lowered),
        *(multipliers_bent, of_another_graph),
    ],
    ids=lambda edit: edit.__name__,
)
def test_forged_noise_of_modes_is_refused(edit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of so many pairs that nothing is written out."""
    monkeypatch.setattr("noisedesign.families.kronecker.rigorous.MOST_COORDINATES", 1)
    made = solved()
    honest = nd.verify(made, rigorous=True)
    assert honest.ok, honest
    assert honest.rigorous
    assert not nd.verify(edit(made), rigorous=True).ok


@cache
def solved() -> Design:
    made = nd.solve(problem()).design
    assert made is not None
    return made


def test_noise_of_another_form_is_no_noise_of_modes() -> None:
    asked = problem()
    family = family_of(asked)
    dense = Noise(steps=4, nodes=4, strategy=DenseStrategy(strategy=np.eye(16)), full=True)
    with pytest.raises(InputError, match=r"design\.strategy"):
        family.judge(family.program(asked), dense, {}, bound=0.0)


# --- what is found --------------------------------------------------------------------------------


def test_between_a_product_and_any_noise() -> None:
    """On a graph whose nodes differ it is nearly as good as any noise, and a product is not."""
    graph = nd.build_graph("florentine")
    w = nd.mixing_matrix(graph)
    found = {
        joint: nd.solve(nd.SpaceTimeProblem(mixing=w, participation=single(8), joint=joint)).design
        for joint in ("kronecker", "modal", "full")
    }
    errors = {joint: design.objective for joint, design in found.items() if design is not None}
    price = {joint: error / errors["full"] - 1 for joint, error in errors.items()}
    assert price["kronecker"] > 0.04
    assert -1e-9 <= price["modal"] < 0.003


def test_several_participations_leave_nodes_nearly_diagonal() -> None:
    w = nd.mixing_matrix(nd.build_graph("florentine"))
    steps = FixedEpoch(epochs=3, separation=3)
    modal = nd.solve(problem(w, steps)).design
    product = nd.solve(nd.SpaceTimeProblem(mixing=w, participation=steps)).design
    assert modal is not None
    assert product is not None
    assert modal.certificate.feasible
    assert modal.lower_bound == pytest.approx(product.lower_bound, rel=1e-6)
    assert modal.gap < 0.5 * product.gap


def test_the_search_ends_where_the_gap_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no design is made on the way where none for these modes could be good enough."""
    w = nd.mixing_matrix(nd.build_graph("florentine"))
    asked = problem(w, FixedEpoch(epochs=4, separation=1))
    evaluated, made = [], []
    original, design = solver._Saddle.evaluated, solver._Saddle.design
    monkeypatch.setattr(
        solver._Saddle, "evaluated", lambda *a: (evaluated.append(0), original(*a))[1]
    )
    monkeypatch.setattr(solver._Saddle, "design", lambda *a: (made.append(0), design(*a))[1])
    near = nd.solve(asked, gap=1e-6).design
    counts = len(evaluated), len(made)
    assert near is not None
    assert counts[0] >= solver.MAX_EVALUATIONS
    evaluated.clear()
    made.clear()
    rough = nd.solve(asked, gap=0.05).design
    assert rough is not None
    assert rough.gap <= 0.05
    assert len(evaluated) == solver.ASKED
    assert len(made) < counts[1]
    assert rough.objective >= near.objective * (1 - 1e-3)


def test_small_multipliers_are_set_by_what_their_nodes_use_and_no_others_are() -> None:
    prices = np.array([1.0, 2.0, 1e-4])
    blocks = prices[:, None, None, None] * np.ones((3, 2, 1, 1))
    scales = np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 0.5]])
    found = solver._balanced(blocks, replace(form(nodes=3, steps=2), scales=scales))
    assert (found[:2] == blocks[:2]).all()
    # The others use 1 each, about: four times the multiplier of a node halves what it uses.
    np.testing.assert_allclose(found[2, :, 0, 0], [81e-4, 1e-4 / 16], rtol=2e-3)


def test_room_of_nodes_with_small_multipliers_is_left_to_them_and_no_budget_suffers() -> None:
    prices = np.array([1.0, 2.0, 1e-4])
    blocks = prices[:, None, None, None] * np.ones((3, 2, 1, 1))
    scales = np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 0.5]])
    found = solver._lifted(blocks, replace(form(nodes=3, steps=2), scales=scales))
    assert (found.scales[:2] == 1).all()
    np.testing.assert_allclose(found.scales[2], [3.0, 1.0], rtol=1e-3)


def test_steps_for_the_modes_follow_the_slope_of_the_lagrangian() -> None:
    """The gradient, by differences; and the value, by its definition."""
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 5, 5))
    seen = roots @ roots.transpose(0, 2, 1)
    basis = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    modes, weights = rng.standard_normal((3, 3)), rng.uniform(0.5, 2.0, 3)

    def value(m: np.ndarray) -> float:
        dual, total = np.linalg.inv(m).T, 0.0
        for k in range(3):
            mixed = sum((basis[:, j] @ m[:, k]) ** 2 * seen[j] for j in range(3))
            share = float(weights @ dual[:, k] ** 2)
            total += np.sqrt(share) * np.sqrt(np.linalg.eigvalsh(mixed)).sum()
        return total

    found = solver._Modes(modes, seen, basis, weights)
    assert found.value == pytest.approx(value(modes), rel=1e-12)
    for _ in range(3):
        e, h = rng.standard_normal((3, 3)), 1e-5
        ahead, behind = (value(modes @ (np.eye(3) + s * h * e)) for s in (1, -1))
        slope = (ahead - behind) / (2 * h)
        assert np.sum(found.gradient * e) == pytest.approx(slope, rel=1e-6)
    step = found.step()
    assert np.sum(found.gradient * step) < 0
    assert not np.diagonal(step).any()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a cap": ({"max_variance": 5.0}, "max_variance"),
    "a structure in space": ({"space": nd.SpaceStructure(kind="edge-local")}, r"structure\.joint"),
    "a structure in time": (
        {"time": nd.TimeStructure(kind="banded", bands=2)},
        r"structure\.joint",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_cannot_hold_is_refused(what: str) -> None:
    how, field = REFUSED[what]
    with pytest.raises(InputError, match=field):
        nd.solve(problem(**how))


def measure(of: str, momentum: float = 0.0, **how: Any) -> nd.ErrorMeasure:
    return nd.ErrorMeasure(
        horizon=4, of=of, momentum=momentum, curvature=[0.05, 0.8], learning_rate=0.5, **how
    )


OTHERS: dict[str, Any] = {
    "all iterates": nd.ErrorMeasure(horizon=4),
    "loss": measure("loss"),
    "loss of the mean, momentum": measure("loss-of-mean", 0.5),
    "last iterate, no curvature": nd.ErrorMeasure(horizon=4, of="last-iterate"),
    "mean model": measure("mean-model"),
    "consensus, weighed": measure("consensus", 0.3, curvature_weights=[3.0, 1.0]),
    "decay alone": nd.ErrorMeasure(
        horizon=4, weight_decay=0.3, step_weights=[1, 0, 2, 3], learning_rates=[1, 0.5, 0.2, 0.1]
    ),
    "a mixture": ErrorMixture(
        shares=[0.2, 0.8], measures=[measure(of) for of in ("all-iterates", "last-iterate")]
    ),
}


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS)
def test_every_error_splits_by_the_modes_of_its_mixing(error: Any) -> None:
    """Against H of all pairs of node and step, which no mode is in."""
    workload = Workload(mixing=PATH, error=error)
    modes, ridge = workload.modes, 0.25
    lifted = replace(workload, ridge=ridge)
    assert modes is not None
    assert lifted.modes is not None
    h = workload.gram()
    for found, expected in ((modes, h), (lifted.modes, h + ridge * np.eye(16))):
        parts = [
            np.kron(found.factor(j).T @ found.factor(j), np.outer(q, q))
            for j, q in enumerate(found.basis.T)
        ]
        np.testing.assert_allclose(sum(parts), expected, atol=1e-13 * np.abs(expected).max())
        assert all(len(found.factor(j)) <= 4 for j in range(4))
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    for covariance in (None, root @ root.T):
        given = np.eye(4) if covariance is None else covariance
        in_time = np.einsum("sutv,vu->st", lifted.gram().reshape(4, 4, 4, 4), given)
        in_space = np.einsum("sutv,ts->uv", lifted.gram().reshape(4, 4, 4, 4), given)
        np.testing.assert_allclose(lifted.time_gram(covariance), in_time, rtol=1e-12)
        np.testing.assert_allclose(lifted.space_gram(covariance), in_space, atol=1e-12)


@pytest.mark.parametrize("what", OTHERS)
def test_designs_for_other_errors_are_nearly_as_good_as_any_noise(what: str) -> None:
    """Though some modes or steps cost nothing of most: bounds are those of any noise, and proved;
    errors those of the covariance written out."""
    asked = problem(error=OTHERS[what])
    found, full = nd.solve(asked).design, nd.solve(replace(asked, joint="full")).design
    assert found is not None
    assert full is not None
    assert found.certificate.feasible
    assert found.lower_bound <= full.objective
    assert found.lower_bound >= full.objective * 0.985
    assert full.lower_bound <= found.objective <= full.objective * 1.03
    assert found.objective < found.ldp_objective
    stored = found.noise.strategy
    assert isinstance(stored, ModalStrategy)
    h = Workload(mixing=PATH, error=OTHERS[what]).gram()
    assert found.objective == pytest.approx(np.sum(h * covariance(stored)), rel=1e-9)
    assert nd.verify(found, rigorous=True).ok


@pytest.mark.parametrize("kind", ["star", "complete"])
def test_a_mixing_that_cancels_some_noise_has_designs_and_bounds(kind: str) -> None:
    """The hub's budget is slack on a star; nothing bounds some noise on a complete graph."""
    graph = nd.build_graph(kind, nodes=5)
    asked = nd.SpaceTimeProblem.from_graph(graph, participation=TWICE, joint="modal")
    found, full = nd.solve(asked).design, nd.solve(replace(asked, joint="full")).design
    assert found is not None
    assert full is not None
    assert full.objective * (1 - 1e-5) <= found.lower_bound <= full.objective
    assert full.lower_bound <= found.objective <= full.objective * (1 + 2e-3)
    assert nd.verify(found, rigorous=True).ok


def test_an_error_of_uneven_nodes_is_refused_with_designs_that_take_it() -> None:
    """Its Q has other eigenvectors than W, as has an average that is not the plain one."""
    uneven = problem(error=nd.ErrorMeasure(horizon=4, node_weights=[1.0, 2.0, 1.0, 1.0]))
    average = problem(error=nd.ErrorMeasure(horizon=4, of="consensus", average=[1.0, 2.0, 1.0, 1]))
    for asked in (uneven, average):
        with pytest.raises(InputError, match="^error: .*the same weight for every node") as caught:
            nd.solve(asked)
        for joint in ("kronecker", "full"):
            assert f'"{joint}"' in caught.value.remedy
            assert nd.solve(replace(asked, joint=joint, max_variance=100.0)).feasible


def test_large_noise_that_costs_nothing_is_told() -> None:
    asked = problem(error=nd.ErrorMeasure(horizon=4, of="mean-model"))
    solution = nd.solve(asked)
    assert solution.design is not None
    form = solution.design.noise.strategy
    assert isinstance(form, ModalStrategy)
    largest = np.diagonal(covariance(form)).max()
    assert f"largest variance of this design is {largest:.2g}, " in solution.remedy
    assert not nd.solve(problem()).remedy


def test_strategies_that_do_not_fit_into_memory_are_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = problem()
    monkeypatch.setattr(memory, "physical", lambda: 2000)
    with pytest.raises(InputError, match="participation"):
        nd.solve(asked)


def test_a_matrix_without_modes_is_refused() -> None:
    one_way = 0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1)
    with pytest.raises(InputError, match="symmetric W"):
        nd.solve(problem(one_way))


def test_a_design_needs_no_array_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Solved, shown, stored, read and verified."""
    for name in ("dense", "dense_noising"):
        monkeypatch.setattr(ModalStrategy, name, None)
    design = nd.solve(problem()).design
    assert design is not None
    assert "16 x 16" in str(design)
    stored = nd.load(nd.save(design, tmp_path / "design.npz"))
    assert nd.verify(stored).ok
    drawn = list(design.noise.stream(dimension=2, seed=0))
    assert np.array(drawn).shape == (4, 4, 2)
