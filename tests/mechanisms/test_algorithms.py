"""Published algorithms by name: their noise by hand on tiny graphs, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.mechanisms.baselines import baseline, decor_variances, prefix_optimal_strategy
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views.noise import MessageNoise, NodeNoise, SpaceTimeNoise
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import (
    BallsInBins,
    FixedEpoch,
    MinSeparation,
    Patterns,
    every_step,
    single,
)
from noisedesign.tasks.account.table import setting_of
from tests.support import oracles
from tests.support.small_designs import (
    GRAM_4,
    PATH_3,
    capped_design,
    single_epoch_design,
    time_design,
)

RING_5 = oracles.metropolis(nx.cycle_graph(5))
TWO_STEPS = single(2)


def made(kind: str, w: np.ndarray = PATH_3, participation: Any = TWO_STEPS, **options: Any) -> Any:
    return catalogue.algorithm(kind, mixing=w, participation=participation, **options)


def covariance(algorithm: threats.Algorithm) -> np.ndarray:
    """R of the nodes' noise at a step of noise that is independent over time."""
    assert isinstance(algorithm.noise, NodeNoise)
    assert algorithm.noise.strategy is None
    return np.asarray(algorithm.noise.factor @ algorithm.noise.factor.T)


def strategy(algorithm: threats.Algorithm) -> np.ndarray:
    """C of noise that every node draws for itself."""
    assert isinstance(algorithm.noise, NodeNoise)
    assert algorithm.noise.strategy is not None
    np.testing.assert_array_equal(algorithm.noise.factor, np.eye(len(algorithm.mixing)))
    return np.asarray(algorithm.noise.strategy)


def two_step_optimum(a: float, b: float, h: float) -> float:
    """X_12 of the best X with unit diagonal for H = [[a, h], [h, b]].

    tr(H X^-1) = (a + b - 2 h x) / (1 - x^2), least where h x^2 - (a + b) x + h = 0.
    """
    return (a + b - math.sqrt((a + b) ** 2 - 4 * h**2)) / (2 * h)


# --- every kind -----------------------------------------------------------------------------


def test_every_kind_is_known_by_its_name() -> None:
    options: dict[str, dict[str, Any]] = {
        "muffliato": {"rounds": 2},
        "mf-d-sgd": {"strategy": np.eye(2)},
        "cdp": {"server_noise": "sigma^2/n"},
        "space-time": {"covariance": np.eye(6)},
        "design": {"design": time_design()},
    }
    for kind in catalogue.KINDS:
        algorithm = made(kind, nodes=("a", "b", "c"), **options.get(kind, {}))
        assert (algorithm.name, algorithm.nodes) == (kind, ("a", "b", "c"))
        assert algorithm.horizon == 2
        assert algorithm.rounds == (2 if kind == "muffliato" else 1)
        mixing = np.full((3, 3), 1 / 3) if kind == "cdp" else PATH_3
        np.testing.assert_array_equal(algorithm.mixing, mixing)
        assert made(kind, **options.get(kind, {})).nodes == ("0", "1", "2")


@pytest.mark.parametrize("kind", ["dp-d-sgd", "muffliato"])
def test_independent_noise(kind: str) -> None:
    algorithm = made(kind, participation=every_step(4), **({"rounds": 3} if kind[0] == "m" else {}))
    np.testing.assert_array_equal(covariance(algorithm), np.eye(3))
    assert algorithm.horizon == 4


def test_antipgd_takes_back_the_last_noise() -> None:
    noising = np.linalg.inv(strategy(made("antipgd", participation=single(4))))
    np.testing.assert_allclose(noising, np.eye(4) - np.eye(4, k=-1), atol=1e-15)


def test_d_mf_is_optimal_for_prefix_sums() -> None:
    # H = [[2, 1], [1, 1]]: x^2 - 3 x + 1 = 0.
    c = strategy(made("d-mf"))
    x = two_step_optimum(2, 1, 1)
    assert x == pytest.approx((3 - math.sqrt(5)) / 2)
    np.testing.assert_allclose(c.T @ c, [[1, x], [x, 1]], rtol=1e-3)
    np.testing.assert_array_equal(np.triu(c, 1), 0)


def test_mafalda_is_optimal_for_the_graph() -> None:
    # Eigenvalues 1, 2/3, 0 of the path: H = [[p2 + p4, p3], [p3, p2]], p_q their power sums.
    p2, p3, p4 = 13 / 9, 35 / 27, 97 / 81
    c = strategy(made("mafalda"))
    x = two_step_optimum(p2 + p4, p2, p3)
    assert abs(x - two_step_optimum(2, 1, 1)) > 0.02  # else it might be D-MF
    np.testing.assert_allclose(c.T @ c, [[1, x], [x, 1]], rtol=1e-3)


@pytest.mark.parametrize("kind", ["d-mf", "mafalda"])
def test_strategies_under_random_participation_are_those_of_the_fixed_one(kind: str) -> None:
    """No privacy target is asked for; what of C has negative entries its account refuses."""
    random, fixed = (
        made(kind, participation=scheme(epochs=2, separation=3))
        for scheme in (BallsInBins, FixedEpoch)
    )
    np.testing.assert_array_equal(strategy(random), strategy(fixed))


@pytest.mark.parametrize("kind", ["d-mf", "mafalda"])
@pytest.mark.parametrize("scheme", [FixedEpoch(epochs=3, separation=2), every_step(4), single(5)])
def test_designed_strategies_have_unit_sensitivity(kind: str, scheme: FixedEpoch) -> None:
    c = strategy(made(kind, participation=scheme))
    gram = c.T @ c
    worst = max(np.abs(gram[np.ix_(steps, steps)]).sum() for steps in scheme.patterns)
    assert 1 - 1e-6 <= worst <= 1 + 1e-12


def test_decor_at_its_best_on_a_ring_of_four() -> None:
    """Eigenvalues 0, 2, 2, 4 of L beside 1, 1/3, 1/3, -1/3 of W, every node alike."""
    mu, squares = np.array([0, 2, 2, 4.0]), np.array([9, 1, 1, 1]) / 9
    ratios = np.linspace(0, 5, 200_001)[:, None]
    costs = (1 / (1 + ratios * mu)).mean(axis=1) * (squares * (1 + ratios * mu)).sum(axis=1)
    assert 0 < costs.argmin() < len(costs) - 1
    w = oracles.metropolis(nx.cycle_graph(4))
    r = covariance(made("decor", w))
    assert np.trace(w @ r @ w.T) == pytest.approx(costs.min(), rel=1e-8)
    np.testing.assert_allclose(np.linalg.inv(r).diagonal(), 1, rtol=1e-9)
    laplacian = nx.laplacian_matrix(nx.cycle_graph(4)).toarray()
    own, shared = decor_variances(SpaceProblem(mixing=w))
    np.testing.assert_allclose(r, own * np.eye(4) + shared * laplacian, atol=1e-12)
    assert shared / own == pytest.approx(float(ratios[costs.argmin(), 0]), abs=1e-4)


def test_decor_is_that_of_the_baselines() -> None:
    w = oracles.metropolis(nx.florentine_families_graph())
    r = covariance(made("decor", w))
    problem = SpaceProblem(mixing=w)
    np.testing.assert_allclose(r, baseline(problem, "decor").covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(r).diagonal().max(), 1, rtol=1e-9)


def test_decor_with_pairwise_noise_of_ones_own() -> None:
    # sigma = 3 is squared: I + 9 L, for the path with degrees 1, 2, 1.
    algorithm = made("decor", edge_stddev=3.0)
    np.testing.assert_allclose(
        covariance(algorithm), [[10, -9, 0], [-9, 19, -9], [0, -9, 10]], rtol=1e-12
    )
    assert isinstance(algorithm.noise, NodeNoise)
    assert algorithm.noise.seeds is not None
    assert {0, 1} in algorithm.noise.seeds
    np.testing.assert_array_equal(covariance(made("decor", edge_stddev=0)), np.eye(3))


def test_whisper_is_optimal_for_one_step() -> None:
    r = covariance(made("whisper", RING_5))
    assert np.trace(RING_5 @ r @ RING_5.T) == pytest.approx(
        oracles.vertex_transitive_optimum(RING_5), rel=1e-6
    )
    assert np.linalg.inv(r).diagonal().max() <= 1 + 1e-9
    given = np.diag([1.0, 2.0, 3.0]) + 0.5
    algorithm = made("whisper", covariance=given)
    np.testing.assert_allclose(covariance(algorithm), given, rtol=1e-12)
    assert algorithm.noise.seeds is None  # dealt


def test_zip_dl_and_space_time() -> None:
    plain, other = made("zip-dl").noise, made("zip-dl", neighbourhood="open", self_message="seen")
    assert isinstance(plain, MessageNoise)
    assert (plain.closed, plain.self_seen, plain.variance) == (True, False, 1.0)
    assert (other.noise.closed, other.noise.self_seen) == (False, True)
    joint = np.diag(np.arange(1.0, 7.0)) + 0.25
    noise = made("space-time", covariance=joint, rounds=2).noise
    assert isinstance(noise, SpaceTimeNoise)
    np.testing.assert_allclose(noise.factor @ noise.factor.T, joint, rtol=1e-12)
    assert made("space-time", covariance=joint, rounds=2).rounds == 2


def test_a_strategy_of_ones_own() -> None:
    c = np.array([[1.0, 0, 0], [0.5, 2, 0], [0.25, 1, 1]])
    algorithm = made("mf-d-sgd", participation=single(3), strategy=c, rounds=2)
    np.testing.assert_array_equal(strategy(algorithm), c)
    assert algorithm.rounds == 2
    # Row t of C^-1 is noise of steps up to t: two steps of a longer run.
    shorter = strategy(made("mf-d-sgd", strategy=c.tolist()))
    np.testing.assert_allclose(np.linalg.inv(shorter), np.linalg.inv(c)[:2, :2], atol=1e-15)


# --- designs --------------------------------------------------------------------------------


def test_a_space_design_is_dealt_at_every_step() -> None:
    design = capped_design()  # R = I / 2
    algorithm = catalogue.of_design(design, participation=every_step(7))
    np.testing.assert_allclose(covariance(algorithm), np.eye(3) / 2, rtol=1e-12)
    assert (algorithm.horizon, algorithm.nodes, algorithm.name) == (7, ("0", "1", "2"), "capped")
    assert algorithm.noise.seeds is None
    np.testing.assert_array_equal(algorithm.mixing, PATH_3)


def test_a_stored_decor_design_is_dealt() -> None:
    design = baseline(SpaceProblem(mixing=RING_5), "decor")
    algorithm = catalogue.of_design(design, participation=single(2))
    np.testing.assert_allclose(covariance(algorithm), design.covariance, rtol=1e-9, atol=1e-12)
    assert algorithm.noise.seeds is None


def test_a_time_design_is_used_by_every_node() -> None:
    algorithm = catalogue.of_design(time_design(), participation=FixedEpoch(epochs=2, separation=2))
    c = strategy(algorithm)
    np.testing.assert_allclose(c.T @ c, GRAM_4, rtol=1e-9, atol=1e-12)
    assert algorithm.nodes == ("a", "b", "c")


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_the_first_steps_of_a_longer_design(horizon: int) -> None:
    """What the first steps add: the leading block of C^-1, whatever would have come later."""
    design = time_design()
    c = strategy(catalogue.of_design(design, participation=single(horizon)))
    noising = np.linalg.inv(np.asarray(design.strategy))
    assert np.abs(np.tril(noising, -1)).max() > 0.1
    np.testing.assert_allclose(np.linalg.inv(c), noising[:horizon, :horizon], atol=1e-12)


@pytest.mark.parametrize("joint", ["kronecker", "full"])
def test_the_noise_of_a_space_time_design_is_dealt_as_a_whole(joint: str) -> None:
    """Before a reader of all messages [cov^-1]_(2t+u, 2t+u) is what a change at step t is worth."""
    w = np.array([[0.7, 0.3], [0.3, 0.7]])
    scheme = FixedEpoch(epochs=1, separation=3)
    problem = SpaceTimeProblem(mixing=w, participation=scheme, budget=[1.0, 4.0], joint=joint)
    design = solve(problem).design
    assert design is not None
    noise = np.linalg.inv(design.strategy.T @ design.strategy)
    if joint == "kronecker":
        noise = np.kron(noise, design.covariance)
    setting = setting_of(design)
    assert setting.participation == scheme
    found = account(setting.algorithm, threats.ldp(), participation=setting.participation)
    worst = np.diagonal(np.linalg.inv(noise)).reshape(3, 2).max(axis=0)
    np.testing.assert_allclose([e.sensitivity_squared for e in found], worst, rtol=1e-9)
    np.testing.assert_allclose(worst, [1, 4], rtol=1e-4)
    # The first two steps of it know nothing of the third.
    first = catalogue.of_design(design, participation=single(2))
    found = account(first, threats.ldp(), participation=single(2))
    worst = np.diagonal(np.linalg.inv(noise[:4, :4])).reshape(2, 2).max(axis=0)
    np.testing.assert_allclose([e.sensitivity_squared for e in found], worst, rtol=1e-9)
    with pytest.raises(InputError, match="^design: expected a design of at least 4 steps"):
        catalogue.of_design(design, participation=single(4))
    with pytest.raises(InputError, match=r"^steps: expected none for .* \(k, b\) = \(1, 3\)"):
        setting_of(design, steps=2)


def test_a_design_on_another_graph_of_its_size() -> None:
    w = np.full((3, 3), 1 / 3)
    algorithm = made("design", w, every_step(4), design=time_design(), nodes=("x", "y", "z"))
    np.testing.assert_array_equal(algorithm.mixing, w)
    assert algorithm.nodes == ("x", "y", "z")
    # A design without a graph goes with any.
    free = made("design", RING_5, design=single_epoch_design())
    np.testing.assert_array_equal(strategy(free), np.eye(2))


def test_stored_baselines() -> None:
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2))
    d_mf = catalogue.of_design(
        baseline(problem, "d-mf"), participation=every_step(4), mixing=PATH_3
    )
    expected = prefix_optimal_strategy(FixedEpoch(epochs=2, separation=2))
    np.testing.assert_allclose(strategy(d_mf), expected, rtol=1e-9, atol=1e-12)


# --- what is refused ------------------------------------------------------------------------

SEPARATED = MinSeparation(horizon=2, separation=1, max_participations=1)
ROWS = oracles.row_normalized(nx.star_graph(3))

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"kind": "sgd"}, "algorithm.kind", "dp-d-sgd, muffliato"),
    "option of another": ({"kind": "dp-d-sgd", "rounds": 2}, "algorithm.rounds", "no options"),
    "option nobody has": ({"kind": "zip-dl", "x": 2}, "algorithm.x", "neighbourhood, self_message"),
    "no rounds": ({"kind": "muffliato"}, "algorithm.rounds", "a value for muffliato"),
    "zero rounds": ({"kind": "muffliato", "rounds": 0}, "algorithm.rounds", ">= 1"),
    "no strategy": ({"kind": "mf-d-sgd"}, "algorithm.strategy", "a value"),
    "short": ({"kind": "mf-d-sgd", "strategy": np.eye(1)}, "strategy", "at least 2 steps"),
    "not causal": (
        {"kind": "mf-d-sgd", "strategy": np.eye(3) + np.eye(3, k=2)},
        "strategy",
        "lower triangular",
    ),
    "no such covariance": ({"kind": "space-time", "covariance": np.eye(5)}, "covariance", "(6, 6)"),
    "negative": ({"kind": "decor", "edge_stddev": -1.0}, "algorithm.edge_stddev", ">= 0"),
    "not finite": ({"kind": "decor", "edge_stddev": math.nan}, "algorithm.edge_stddev", "finite"),
    "too large": ({"kind": "decor", "edge_stddev": 1e200}, "algorithm.edge_variance", "finite"),
    "prefix under separation": (
        {"kind": "d-mf", "participation": SEPARATED},
        "participation.kind",
        "fixed-epoch",
    ),
    "optimum for patterns": (
        {"kind": "mafalda", "participation": Patterns(horizon=2, steps=((0,), (1,)))},
        "participation.kind",
        "mf-d-sgd",
    ),
    "whisper without bound": (
        {"kind": "whisper", "w": np.full((3, 3), 1 / 3)},
        "mixing",
        "algorithm.file",
    ),
    "decor of columns": ({"kind": "decor", "w": ROWS.T}, "mixing", "rows that sum to 1"),
    "too many steps": (
        {"kind": "design", "design": time_design(), "participation": single(5)},
        "design",
        "a design of at least 5 steps, as the participation has, got one of 4",
    ),
    "other nodes": ({"kind": "design", "design": time_design(), "w": RING_5}, "design", "5 nodes"),
    "other nodes in space": (
        {"kind": "design", "design": capped_design(), "w": RING_5},
        "design",
        "got one for 3",
    ),
}


@pytest.mark.parametrize(("arguments", "field", "words"), list(REFUSED.values()), ids=list(REFUSED))
def test_refused(arguments: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        made(**arguments)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_a_design_without_a_graph_needs_one() -> None:
    with pytest.raises(InputError, match="^graph: expected a graph for a design that has none"):
        catalogue.of_design(single_epoch_design(), participation=single(2))


def test_an_interrupted_design_is_no_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = catalogue.solve(SpaceProblem(mixing=RING_5))

    class Interrupted:
        status, design = "interrupted", solved.design

    monkeypatch.setattr(catalogue, "solve", lambda problem: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        made("whisper", RING_5)
