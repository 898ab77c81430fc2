"""Mechanisms in the trainer against what their designs certify, and against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import Array, InputError
from noisedesign.families.family import certified, family_of
from noisedesign.forms.strategies import DenseStrategy
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.privacy.target import PrivacyTarget
from noisedesign_lab.tasks.mechanisms import MECHANISMS, Mechanism, Network, mechanism, of_design
from noisedesign_lab.training.losses.quadratics import Quadratic
from tests.support import oracles
from tests.support.training_noise import DIMENSION, linear_task, squared_error

SCHEME = nd.participation.FixedEpoch(epochs=2, separation=3)
T = SCHEME.horizon
W = oracles.metropolis(nx.path_graph(4))
NETWORK = Network(mixing=W, participation=SCHEME, responses=FIXED_RESPONSES)
DESIGNED = [
    *("antipgd", "d-mf", "mafalda", "whisper-horizon", "edge-local"),
    *("kronecker", "mafalda-edge-local"),
]


def agrees(found: tuple[float, tuple[float, float]], expected: float) -> bool:
    """Within its interval, which is no wider than a tenth of it."""
    estimate, (low, high) = found
    assert high - low < 0.1 * estimate
    return low <= expected <= high


def of_powers(mixing: Array, covariance: Array, horizon: int) -> float:
    """Squared error of all iterates of noise drawn anew at every step: explicit sums."""
    total = 0.0
    for t in range(1, horizon + 1):
        for s in range(1, t + 1):
            power = np.linalg.matrix_power(mixing, t - s + 1)
            total += float(np.trace(power @ covariance @ power.T))
    return total


@pytest.mark.parametrize("name", DESIGNED)
def test_the_error_of_a_design_is_the_objective_it_certifies(name: str) -> None:
    made = mechanism(name, NETWORK)
    assert made.design is not None
    task = linear_task(mixing=W, participation=SCHEME)
    assert agrees(squared_error(task, name), made.design.objective)


def test_the_error_of_a_full_design() -> None:
    problem = nd.SpaceTimeProblem(mixing=W, participation=SCHEME, joint="full")
    design = nd.solve(problem).design
    assert design is not None
    task = linear_task(mixing=W, participation=SCHEME)
    assert agrees(squared_error(task, of_design(design, name="full")), design.objective)


@pytest.mark.parametrize(
    ("name", "covariance", "rounds"), [("ldp", np.eye(4), 1), ("muffliato-3", np.eye(4), 3)]
)
def test_the_error_of_independent_noise(name: str, covariance: Array, rounds: int) -> None:
    expected = of_powers(np.linalg.matrix_power(W, rounds), covariance, T)
    task = linear_task(mixing=W, participation=SCHEME)
    # All lanes of one run mix alike here, so that their difference is noise and nothing else.
    plain = linear_task(mixing=W, participation=SCHEME, rounds=rounds)
    assert agrees(squared_error(plain, "ldp"), expected)
    if rounds > 1:
        made = mechanism(name, task.network)
        assert made.rounds == rounds
        assert agrees(squared_error(plain, made), expected)


def test_the_error_of_a_server_is_that_of_one_noise_for_all() -> None:
    """n models that each carry the sum of all noise so far, of variance 1 / n^2 or 1 / n a step."""
    mixing = np.full((4, 4), 0.25)
    task = linear_task(mixing=mixing, participation=SCHEME)
    steps = T * (T + 1) / 2
    assert agrees(squared_error(task, "cdp-n2"), 4 * steps / 16)
    assert agrees(squared_error(task, "cdp-n"), 4 * steps / 4)


@pytest.mark.parametrize("name", ["mafalda", pytest.param("kronecker", marks=pytest.mark.slow)])
def test_the_error_of_a_design_for_random_mixing(name: str) -> None:
    random = nd.graphs.EdgeDropout(mixing=W, probability=0.4)
    task = linear_task(mixing=W, participation=SCHEME, dimension=30, random=random, seeds=800)
    made = mechanism(name, task.network)
    assert made.design is not None
    fixed = mechanism(name, NETWORK).design
    assert fixed is not None
    found = squared_error(task, name, each="seed")
    assert agrees(found, made.design.objective)
    assert not agrees(found, fixed.objective)


@pytest.mark.parametrize("name", ["mafalda", "edge-local"])
def test_the_error_of_a_design_for_several_rounds_of_a_schedule(name: str) -> None:
    """Two matrices in turn, two rounds a step: the objective, and explicit products of them."""
    turns = np.stack([W, oracles.metropolis(nx.cycle_graph(4))])
    task = linear_task(mixing=turns, participation=SCHEME, rounds=2)
    made = mechanism(name, task.network)
    assert made.design is not None
    noise = made.design.noise
    c = np.eye(T) if noise.strategy is None else made.design.strategy
    r = np.eye(4) if noise.space is None else made.design.covariance
    over_time = np.linalg.inv(c.T @ c)
    expected = 0.0
    for t in range(T):
        reach = []  # of the noise of step s in iterate t + 1
        for s in range(t + 1):
            product = np.eye(4)
            for step in range(s, t + 1):
                product = turns[step % 2] @ turns[step % 2] @ product
            reach.append(product)
        for s in range(t + 1):
            for u in range(t + 1):
                expected += over_time[s, u] * np.trace(reach[s] @ r @ reach[u].T)
    assert made.design.objective == pytest.approx(expected, rel=1e-9)
    assert agrees(squared_error(task, name), expected)


def test_the_error_of_a_curved_loss_is_that_of_the_contracted_workload() -> None:
    """theta <- W ((1 - eta c) theta - eta z): noise of step s is in iterate t by
    eta (1 - eta c)^(t - s) W^(t - s + 1)."""
    eta, curvature = 0.5, 0.8
    values = np.linalg.eigvalsh(W)
    gram = np.zeros((T, T))
    for t in range(1, T + 1):
        for s in range(1, t + 1):
            for r in range(1, t + 1):
                steps = 2 * t - s - r
                gram[s - 1, r - 1] += (
                    eta**2 * (1 - eta * curvature) ** steps * (values ** (steps + 2)).sum()
                )
    design = nd.solve(nd.TimeProblem.from_gram(gram=gram, participation=SCHEME)).design
    assert design is not None
    task = linear_task(
        mixing=W,
        participation=SCHEME,
        loss=Quadratic(dimension=DIMENSION, curvature=curvature),
        step_sizes=eta,
        clip=1e6,  # larger than every gradient, so that the loss stays quadratic
        noise_multipliers=[1e-6],
    )
    assert agrees(squared_error(task, of_design(design, name="contracted")), design.objective)


def test_zip_dl_noise_has_the_error_of_its_definition() -> None:
    """Noise of one step, of covariance S after mixing, leaves the sum of W^a S (W^a)^T
    over a = 0 .. t - 1 in iterate t. It cancels in the mean of all models."""
    n = len(W)
    left = np.zeros((n, n))
    for sender in range(n):
        to = np.flatnonzero(W[:, sender])
        weights = W[to, sender]
        zero_sum = np.eye(len(to)) - np.outer(1 / weights, weights) / len(to)
        columns = np.zeros((n, len(to)))
        columns[to] = weights[:, None] * zero_sum
        left += columns @ columns.T
    expected = sum(
        float(np.trace(np.linalg.matrix_power(W, a) @ left @ np.linalg.matrix_power(W, a).T))
        for t in range(1, T + 1)
        for a in range(t)
    )
    task = linear_task(mixing=W, participation=SCHEME, responses="fixed")
    assert agrees(squared_error(task, "zip-dl"), expected)


# --- privacy --------------------------------------------------------------------------------------


def of(name: str, **other: Any) -> Mechanism:
    return mechanism(
        name,
        Network(**{"mixing": W, "participation": SCHEME, "responses": FIXED_RESPONSES} | other),
    )


PLAIN = sorted(
    name
    for name, kind in MECHANISMS.items()
    if not kind.random and not kind.numbered and name not in ("none", "cdp-n")
)


@pytest.mark.parametrize("name", [*PLAIN, "muffliato-10"])
def test_noise_meets_its_budget_exactly(name: str) -> None:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, clip=3.0)
    made = of(name)
    noise = made.noise_multiplier(target)
    mu = made.mu(noise_multiplier=noise, adjacency="replace")
    assert mu == pytest.approx(nd.privacy.mu_of(epsilon=2.0, delta=1e-5), rel=1e-12)
    assert made.epsilon(noise_multiplier=noise, delta=1e-5, adjacency="replace") == pytest.approx(
        2.0, rel=1e-9
    )
    half = made.mu(noise_multiplier=noise, adjacency="zero-out")
    assert half == pytest.approx(mu / 2, rel=1e-12)


def test_accounts_in_closed_form() -> None:
    k, n = SCHEME.epochs, len(W)
    assert of("ldp").sensitivity_squared == k
    assert of("muffliato-10").sensitivity_squared == k
    for name in ("whisper", "whisper-horizon", "edge-local", "decor"):
        made = of(name)
        assert made.design is not None
        precision = np.linalg.inv(made.design.covariance)
        assert made.sensitivity_squared == pytest.approx(k, rel=1e-12)
        assert np.diag(precision).max() == pytest.approx(1.0, rel=1e-9)
    # The average of n sums moves by change / n; noise of variance 1 / n^2 or 1 / n on it.
    assert of("cdp-n2").sensitivity_squared == pytest.approx(k)
    assert of("cdp-n").sensitivity_squared == pytest.approx(k / n)
    assert of("none").mu(noise_multiplier=1.0, adjacency="replace") == math.inf


def test_the_two_definitions_of_central_noise() -> None:
    """Both have the sigma of independent noise; one gives the budget, the other sqrt(n) more."""
    target = PrivacyTarget(epsilon=2.0)
    ldp, exact, louder = (of(name) for name in ("ldp", "cdp-n2", "cdp-n"))
    sigma = ldp.noise_multiplier(target)
    assert exact.noise_multiplier(target) == pytest.approx(sigma, rel=1e-12)
    assert louder.noise_multiplier(target) == pytest.approx(sigma, rel=1e-12)
    mus = [one.mu(noise_multiplier=sigma, adjacency="replace") for one in (exact, louder)]
    assert mus[0] == pytest.approx(nd.privacy.mu_of(epsilon=2.0, delta=1e-6), rel=1e-12)
    assert mus[1] == pytest.approx(mus[0] / 2, rel=1e-12)  # sqrt(4) nodes
    assert exact.protects == louder.protects == "the released average only"
    assert ldp.protects == "every message"


@pytest.mark.parametrize("name", ["cdp-n", "cdp-n2"])
def test_central_noise_has_the_account_of_a_reader_of_the_average(name: str) -> None:
    words = {"cdp-n": "sigma^2/n", "cdp-n2": "sigma^2/n^2"}[name]
    algorithm = nd.privacy.views.cdp(mixing=W, horizon=T, server_noise=words)
    exposed = nd.account(algorithm, nd.observers.central(), participation=SCHEME)
    worst = max(one.sensitivity_squared for one in exposed)
    assert of(name).sensitivity_squared == pytest.approx(worst, rel=1e-12)


def test_zip_dl_is_accounted_before_a_reader_of_every_message() -> None:
    exposed = nd.account(
        nd.privacy.views.zip_dl(mixing=W, horizon=T),
        nd.observers.ldp(),
        participation=SCHEME,
        responses="fixed",
    )
    worst = max(one.sensitivity_squared for one in exposed)
    assert of("zip-dl").sensitivity_squared == pytest.approx(worst, rel=1e-12)
    assert worst > SCHEME.epochs  # a message tells about all gradients before it


# --- names and networks ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("mafaldas", "Did you mean mafalda?"), ("muffliato", "muffliato-K"), (7, ""), ("ldp-3", "")],
)
def test_an_unknown_name_lists_those_there_are(name: Any, remedy: str) -> None:
    with pytest.raises(
        InputError, match="mechanisms: expected one of none, ldp, .*muffliato-K"
    ) as told:
        mechanism(name, NETWORK)
    assert remedy in str(told.value)


@pytest.mark.parametrize("name", ["muffliato-0", "muffliato-010", "muffliato-1.5", "muffliato-"])
def test_a_number_of_rounds_is_one(name: str) -> None:
    with pytest.raises(InputError, match="mechanisms"):
        mechanism(name, NETWORK)


def test_what_a_network_cannot_have_is_told_with_the_name() -> None:
    random = nd.graphs.EdgeDropout(mixing=W, probability=0.4)
    with pytest.raises(InputError, match=r"mechanisms: .*got zip-dl: one that changes"):
        of("zip-dl", random=random)
    with pytest.raises(InputError, match=r"mechanisms: .*got zip-dl: several rounds"):
        of("zip-dl", rounds=2)
    complete = oracles.metropolis(nx.complete_graph(4))
    with pytest.raises(InputError, match=r"mechanisms: .*whisper"):
        of("whisper", mixing=complete)
    assert of("whisper", mixing=complete, max_variance=9.0).design is not None


def test_a_design_that_does_not_protect_every_message_is_no_mechanism() -> None:
    with pytest.raises(InputError, match="protects every message"):
        of_design(nd.baseline(nd.SpaceProblem(mixing=W), "cdp"), name="mine")
    with pytest.raises(InputError, match="how long it is used"):
        of_design(nd.baseline(nd.SpaceProblem(mixing=W), "ldp"), name="mine")


def test_a_design_that_breaks_its_budget_is_no_mechanism() -> None:
    """The noise would be that of a design that keeps it, otherwise. Each limit stands alone."""
    design = nd.baseline(nd.SpaceProblem(mixing=W, participation=SCHEME), "ldp")
    for limit in ("sensitivity_squared", "variance_ratio", "floor_ratio"):
        for over in (1.0, 4.0):
            said = replace(design, certificate=replace(design.certificate, **{limit: over}))
            if over == 1:
                assert of_design(said, name="mine").sensitivity_squared == pytest.approx(2)
            else:
                with pytest.raises(InputError, match="design: expected a feasible design"):
                    of_design(said, name="mine")


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.0])
def test_what_a_reader_sees_is_of_the_node_that_is_told_most(scale: float) -> None:
    """Rows for an account are C times the root of [R^-1]_uu or more at every node u, whatever part
    of the noise is in C and whatever in R: a feasible design keeps its budgets by their product."""
    problem = nd.SpaceTimeProblem(
        mixing=W, participation=SCHEME, budget=np.array([1.0, 2.0, 0.5, 1.0])
    )
    design = nd.solve(problem).design
    assert design is not None
    noise, family = design.noise, family_of(problem)
    assert noise.strategy is not None
    space, strategy = np.asarray(noise.space) * scale**2, scale * noise.strategy.dense()
    noise = replace(noise, space=space, strategy=DenseStrategy(strategy=strategy))
    program = family.program(problem)
    bound = family.bound(program, design.proof, noise=noise)
    judged = certified(family, program, noise, design.proof, bound=bound, everywhere=None)
    assert judged.sensitivity_squared == pytest.approx(1, rel=1e-9)
    made = of_design(replace(design, noise=noise), name="mine")
    assert made.strategy is not None
    factor = made.strategy[0, 0] / strategy[0, 0]
    np.testing.assert_allclose(made.strategy, factor * strategy, rtol=1e-12)
    told = np.linalg.inv(space).diagonal().max()
    assert factor**2 >= told * (1 - 1e-12)
    assert factor**2 == pytest.approx(max(told, 2), rel=1e-6)  # the largest budget


def test_an_account_of_another_participation_is_no_account() -> None:
    """A design for records that take part once hides less of one that takes part twice."""
    task = linear_task(mixing=W, participation=SCHEME, dimension=2)
    once = nd.solve(nd.SpaceProblem(mixing=W, participation=nd.participation.single(T))).design
    assert once is not None
    for made in (of_design(once, name="once"), of("ldp", participation=nd.participation.single(T))):
        with pytest.raises(
            InputError, match=r"mechanisms: expected noise .* \(2, 3\), got .* \(1, 6\)"
        ):
            task.lanes(made)
    other = of("zip-dl", mixing=oracles.metropolis(nx.cycle_graph(4)))
    with pytest.raises(InputError, match="mechanisms: expected noise on messages .* for the one W"):
        task.lanes(other)
    with pytest.raises(InputError, match="for None"):
        task.lanes(Mechanism(name="mine", source=of("ldp").source, sensitivity_squared=1.0))
    assert len(task.lanes(of("zip-dl"))) == len(task.lanes(of("ldp"))) == 1
