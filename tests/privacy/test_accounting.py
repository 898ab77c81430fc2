"""mu, epsilon and delta against the closed formula in 50 digits, and what a target asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.files.problem_file import parse_problem
from noisedesign.noise import noise
from noisedesign.privacy import views as threats
from noisedesign.privacy.accounting import delta_above, delta_of, epsilon_of, mu_of
from noisedesign.problem.calibration import calibrate, calibration_of
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.account.request import parse_account
from tests.support import oracles

PATH3 = (np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3 + np.eye(3)) / 2


def space(privacy: PrivacyTarget | None = None, tau: Any = 1.0) -> SpaceProblem:
    return SpaceProblem(mixing=PATH3, budget=tau, privacy=privacy)


def target(**kwargs: Any) -> PrivacyTarget:
    return PrivacyTarget(**({"epsilon": 2.0, "delta": 1e-5, "steps": 1} | kwargs))


# --- the closed formula ---------------------------------------------------------------------------


def test_the_oracle_by_hand() -> None:
    # At epsilon = 0, delta is the total variation distance 2 Phi(mu / 2) - 1.
    assert oracles.gaussian_delta(2.0, 0.0) == pytest.approx(math.erf(1 / math.sqrt(2)), rel=1e-15)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_delta_of_mu_and_epsilon(mu: float, epsilon: float) -> None:
    exact = oracles.gaussian_delta(mu, epsilon)
    assert delta_of(mu=mu, epsilon=epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-300)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1])
def test_mu_of_epsilon_and_delta(epsilon: float, delta: float) -> None:
    assert mu_of(epsilon=epsilon, delta=delta) == pytest.approx(
        oracles.gaussian_mu(epsilon, delta), rel=1e-6
    )


@settings(derandomize=True, deadline=None, max_examples=40)
@given(epsilon=st.floats(0.01, 30), log_delta=st.floats(-12, -1))
def test_never_more_than_the_target_allows(epsilon: float, log_delta: float) -> None:
    delta = 10**log_delta
    mu = mu_of(epsilon=epsilon, delta=delta)
    # The accountant's root-finding may err by its tolerance, which must be far below a digit.
    assert oracles.gaussian_delta(mu, epsilon) <= delta * (1 + 1e-6)
    assert oracles.gaussian_delta(mu * (1 + 1e-4), epsilon) > delta


@settings(derandomize=True, deadline=None, max_examples=30)
@given(mu=st.floats(0.05, 10), log_delta=st.floats(-12, -2))
def test_round_trips(mu: float, log_delta: float) -> None:
    delta = 10**log_delta
    for conversion in ("gdp", "rdp"):
        epsilon = epsilon_of(mu=mu, delta=delta, conversion=conversion)
        if epsilon > 1e-3:  # below, delta alone allows this mu and epsilon says nothing of it
            assert mu_of(epsilon=epsilon, delta=delta, conversion=conversion) == pytest.approx(
                mu, rel=1e-5
            )
            if conversion == "gdp":
                assert delta_of(mu=mu, epsilon=epsilon) == pytest.approx(delta, rel=1e-4)


# --- the safe side, to the ends of the range ------------------------------------------------------


def exact_delta(mu: float, epsilon: float) -> Any:
    """The closed formula of these very doubles, with digits to spare for what cancels."""
    with mpmath.workdps(450):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


EXTREMES = [
    (1e-12, 1e-50),
    (1e-12, 0.3),
    (1e-6, 1e-300),
    (1.0, 1e-300),
    (1e-9, 1e-9),
    (3.0, 1e-100),
    (0.5, 0.999),
    (1e-3, 1 - 1e-12),
    (200.0, 1e-5),
    (5e4, 1e-12),
    (700.0, 1 - 2e-16),
    (1.0, 0.5),
    (1.0, math.nextafter(0.5, 1)),
]


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_mu_is_never_larger_than_the_truth(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon=epsilon, delta=delta)
    assert exact_delta(mu, epsilon) <= delta
    assert exact_delta(mu * (1 + 1e-9), epsilon) > delta


@pytest.mark.parametrize(
    ("mu", "delta"),
    [
        (1e-12, 1e-100),
        (1e-12, 1e-14),
        (1e-3, 1e-300),
        (1.0, 1e-300),
        (1.0, 0.3),
        (40.0, 1e-200),
        (1e4, 1e-9),
        (60.0, 1 - 1e-13),
        (2.0, 0.6),
        (1e-6, 1e-7),
    ],
)
def test_epsilon_is_never_smaller_than_the_truth(mu: float, delta: float) -> None:
    epsilon = epsilon_of(mu=mu, delta=delta)
    assert epsilon > 0
    assert exact_delta(mu, epsilon) <= delta
    assert exact_delta(mu, epsilon * (1 - 1e-8)) > delta


def test_delta_alone_may_be_enough() -> None:
    assert exact_delta(1e-6, 0.0) < 4e-7
    assert epsilon_of(mu=1e-6, delta=4e-7) == 0


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [
        (1e-12, 1e-12),
        (1e-12, 2.1e-11),
        (1e-12, 1e-30),
        (1e-3, 0.03),
        (1.0, 1e-15),
        (1.0, 36.0),
        (1.0, 37.0),
        (0.99, 1e-3),
        (1.01, 1e-3),
        (30.0, 400.0),
        (30.0, 1400.0),
        (1e3, 5e5),
        (1e3, 1.0),
    ],
)
def test_delta_is_never_smaller_than_the_truth(mu: float, epsilon: float) -> None:
    delta, truth = delta_of(mu=mu, epsilon=epsilon), exact_delta(mu, epsilon)
    assert truth <= delta
    assert delta <= 1e-300 or delta <= truth * (1 + 1e-9)


@pytest.mark.parametrize("mu", [1e-3, 1.0, 50.0, 3e3, 1e5, 1e6])
def test_what_cancels_in_epsilon_over_mu_less_half_of_it_is_allowed_for(mu: float) -> None:
    """epsilon = mu (x + mu / 2): x is off by a rounding of mu, which deep in the tail is many of
    delta. Of many x, so that some roundings are to the wrong side; without a tolerance."""
    for x in np.random.default_rng(17).uniform(0.0, 36.0, 12).tolist():
        epsilon = mu * (x + mu / 2)
        delta, truth = delta_above(mu, epsilon), exact_delta(mu, epsilon)
        assert truth <= delta
        assert delta <= truth * (1 + 1e-9 + 1e-13 * mu)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    log_epsilon=st.floats(-14, 5),
    log_delta=st.one_of(st.floats(-299, -0.3), st.floats(-12, -0.3)),
    log_mu=st.floats(-13, 3),
)
def test_the_safe_side_anywhere(log_epsilon: float, log_delta: float, log_mu: float) -> None:
    delta, mu = 10**log_delta, 10**log_mu
    assert exact_delta(mu_of(epsilon=10**log_epsilon, delta=delta), 10**log_epsilon) <= delta
    assert exact_delta(mu, epsilon_of(mu=mu, delta=delta)) <= delta
    assert exact_delta(mu, 10**log_epsilon) <= delta_of(mu=mu, epsilon=10**log_epsilon)


@pytest.mark.parametrize("mu", [0.05, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_another_accountant_agrees(mu: float, delta: float) -> None:
    epsilon = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert epsilon_of(mu=mu, delta=delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)
    if epsilon > 1e-3:
        sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
        assert mu_of(epsilon=epsilon, delta=delta) == pytest.approx(1 / sigma, rel=1e-6)


@pytest.mark.parametrize("conversion", ["gdp", "rdp", "whisper"])
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"epsilon": 1e308}, "epsilon"),
        ({"epsilon": 5e-324}, "epsilon"),
        ({"epsilon": 10**400}, "epsilon"),
        ({"delta": 1e-320}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 0}, "delta"),
    ],
)
def test_what_is_out_of_range_is_refused(
    conversion: str, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as error:
        mu_of(**{"epsilon": 1.0, "delta": 1e-5} | change, conversion=conversion)
    assert error.value.field == field


@pytest.mark.parametrize("conversion", ["gdp", "rdp"])
def test_the_ends_of_the_range_are_finite(conversion: str) -> None:
    for value in (1e-100, 1e100):
        for delta in (1e-300, 0.5, 1 - 1e-16):
            mu = mu_of(epsilon=value, delta=delta, conversion=conversion)
            epsilon = epsilon_of(mu=value, delta=delta, conversion=conversion)
            assert 0 < mu < math.inf
            assert 0 <= epsilon < math.inf
    for mu in (1e-100, 1e100):
        for epsilon in (1e-100, 1e100):
            assert 1e-300 <= delta_of(mu=mu, epsilon=epsilon) <= 1


# --- the published rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta", "clip", "steps"), [(1.0, 1e-5, 1.0, 1), (5.0, 1e-4, 0.5, 1000)]
)
def test_rdp_is_the_published_bound_on_the_precision(
    epsilon: float, delta: float, clip: float, steps: int
) -> None:
    # [R^-1]_ii <= (sqrt(L + eps) - sqrt(L))^2 / (2 T c^2), L = log(1 / delta).
    log = math.log(1 / delta)
    published = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2 / (2 * steps * clip**2)
    privacy = target(epsilon=epsilon, delta=delta, clip=clip, steps=steps, conversion="rdp")
    problem = space(privacy)
    design = solve(problem).design
    assert design is not None
    scaled = calibrate(problem).noise_stddev ** 2 * design.covariance
    worst = np.diagonal(np.linalg.inv(scaled)).max()
    assert worst <= published * (1 + 1e-12)
    assert worst == pytest.approx(published, rel=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "clip", "steps"), [(1.0, 1e-5, 1.0, 1), (5.0, 1e-4, 0.5, 1000)]
)
def test_whisper_is_problem_10_with_its_inequality_reversed(
    epsilon: float, delta: float, clip: float, steps: int
) -> None:
    published = epsilon**2 / (16 * clip**2 * steps * math.log(1 / delta))
    privacy = target(epsilon=epsilon, delta=delta, clip=clip, steps=steps, conversion="whisper")
    problem = space(privacy)
    design = solve(problem).design
    assert design is not None
    found = calibrate(problem)
    worst = np.diagonal(np.linalg.inv(found.noise_stddev**2 * design.covariance)).max()
    assert worst <= published * (1 + 1e-12)
    assert worst == pytest.approx(published, rel=1e-5)
    # LDP at this rule: sigma^2 = 16 c^2 T log(1 / delta) / epsilon^2.
    assert found.noise_stddev**2 == pytest.approx(1 / published, rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(share=st.floats(1e-6, 0.999999), log_delta=st.floats(-30, -0.01))
def test_whisper_asks_for_more_noise_than_rdp(share: float, log_delta: float) -> None:
    delta = 10**log_delta
    epsilon = share * -math.log(delta)
    published = mu_of(epsilon=epsilon, delta=delta, conversion="whisper")
    assert published < mu_of(epsilon=epsilon, delta=delta, conversion="rdp")
    assert published < mu_of(epsilon=epsilon, delta=delta)
    assert oracles.gaussian_delta(published, epsilon) <= delta * (1 + 1e-9)
    assert epsilon_of(mu=published, delta=delta, conversion="whisper") == pytest.approx(epsilon)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-12, 2.0, 1e6])
def test_whisper_says_nothing_from_log_1_over_delta_on(factor: float) -> None:
    delta, large = 1e-5, -math.log(1e-5)
    for call, field in (
        (lambda: mu_of(epsilon=factor * large, delta=delta, conversion="whisper"), "epsilon"),
        (
            lambda: epsilon_of(
                mu=factor * math.sqrt(large) / 2 * (1 + 1e-12), delta=delta, conversion="whisper"
            ),
            "epsilon",
        ),
        (lambda: target(epsilon=factor * large, conversion="whisper"), "privacy.epsilon"),
    ):
        with pytest.raises(InputError, match="log") as error:
            call()
        assert error.value.field == field
        assert "gdp" in str(error.value)


@pytest.mark.parametrize("alpha_steps", [200_001])
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_rdp_epsilon_is_the_best_order(mu: float, alpha_steps: int) -> None:
    # RDP(alpha) = alpha mu^2 / 2, and epsilon = RDP + log(1/delta) / (alpha - 1), minimised.
    delta = 1e-6
    alpha = 1 + np.geomspace(1e-3, 1e3, alpha_steps)
    best = float((alpha * mu**2 / 2 + math.log(1 / delta) / (alpha - 1)).min())
    assert epsilon_of(mu=mu, delta=delta, conversion="rdp") == pytest.approx(best, rel=1e-6)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(epsilon=st.floats(0.01, 20), log_delta=st.floats(-12, -2))
def test_rdp_asks_for_more_noise(epsilon: float, log_delta: float) -> None:
    delta = 10**log_delta
    exact = mu_of(epsilon=epsilon, delta=delta)
    published = mu_of(epsilon=epsilon, delta=delta, conversion="rdp")
    assert published < exact
    assert epsilon_of(mu=exact, delta=delta, conversion="rdp") > epsilon


# --- what a target asks for -----------------------------------------------------------------------


def test_a_spatial_design_meets_its_target() -> None:
    """From the calibrated R itself: the worst node over all steps is the Gaussian mechanism asked
    for, by the formula and not by the accountant."""
    privacy = target(clip=0.7, steps=50)
    problem = space(privacy, tau=[1.0, 0.5, 2.0])
    design, found = solve(problem).design, calibrate(problem)
    assert design is not None
    covariance = found.noise_stddev**2 * design.covariance
    worst = float(np.diagonal(np.linalg.inv(covariance)).max())
    mu = 2 * 0.7 * math.sqrt(50 * worst)
    assert found.mu == pytest.approx(mu, rel=1e-5)
    assert oracles.gaussian_delta(mu, 2.0) <= 1e-5 * (1 + 1e-6)
    assert found.horizon == 50
    assert found.step_sensitivity == pytest.approx(1.4)


def test_a_temporal_design_meets_its_target() -> None:
    problem = TimeProblem.prefix(
        participation=FixedEpoch(epochs=2, separation=3), privacy=target(clip=0.7, steps=6)
    )
    design, found = solve(problem).design, calibrate(problem)
    assert design is not None
    # Worst change of C G over the two participations, all of size 2 clip and aligned.
    x = design.strategy.T @ design.strategy
    squared = max(sum(x[s, t] for s in p for t in p) for p in oracles.fixed_epoch_patterns(2, 3))
    mu = 2 * 0.7 * math.sqrt(squared) / found.noise_stddev
    assert found.mu == pytest.approx(mu, rel=1e-9)
    assert found.mu == pytest.approx(oracles.gaussian_mu(2.0, 1e-5), rel=1e-6)
    assert found.horizon == 6


def test_steps_compose_by_their_square_root() -> None:
    one, many = (calibrate(space(target(steps=t))).noise_stddev for t in (1, 100))
    assert many == pytest.approx(10 * one, rel=1e-12)


@pytest.mark.parametrize(
    ("scheme", "k"),
    [
        (FixedEpoch(epochs=20, separation=16), 20),
        (MinSeparation(horizon=10, separation=4, max_participations=7), 3),  # 0, 4, 8
        (MinSeparation(horizon=10, separation=4, max_participations=2), 2),
        (every_step(7), 7),
        (single(7), 1),
    ],
)
def test_participations_of_a_record_compose_in_space(
    scheme: FixedEpoch | MinSeparation, k: int
) -> None:
    """White in time: the squared sensitivities of the steps a record takes part in add up."""
    problem = replace(space(tau=[1.0, 0.5, 2.0]), participation=scheme, privacy=target(steps=None))
    found = calibrate(problem)
    assert found.participation == scheme
    # From all noise of all steps, and every pattern: the covariance of the run is I x R.
    r = found.noise_stddev**2 * solve(problem).design.covariance  # type: ignore[union-attr]
    precision = np.kron(np.eye(scheme.horizon), np.linalg.inv(r))
    if isinstance(scheme, FixedEpoch):
        patterns = [tuple(p) for p in scheme.patterns]
    else:
        patterns = list(scheme.maximal_patterns())
    assert max(len(p) for p in patterns) == k
    worst = max(
        4 * sum(precision[3 * t + node, 3 * t + node] for t in pattern)  # a step moves by 2
        for pattern in patterns
        for node in range(3)
    )
    assert math.sqrt(worst) == pytest.approx(oracles.gaussian_mu(2.0, 1e-5), rel=1e-5)
    if scheme == every_step(7):
        listed = space(target(steps=7), tau=[1.0, 0.5, 2.0])
        assert calibrate(listed) == found


@pytest.mark.parametrize("clip", [0.1, 1.0, 3.0])
def test_the_noise_multiplier_is_the_stddev_over_the_clip(clip: float) -> None:
    """Independent noise at [R^-1]_ii = 1, one step, zero-out: stddev = clip / mu, by hand."""
    found = calibrate(space(target(clip=clip, adjacency="zero-out")))
    mu = oracles.gaussian_mu(2.0, 1e-5)
    assert found.noise_stddev == pytest.approx(clip / mu, rel=1e-6)
    assert found.noise_multiplier == pytest.approx(1 / mu, rel=1e-6)
    assert (found.clip, found.adjacency) == (clip, "zero-out")


def test_how_long_noise_is_used_is_said() -> None:
    with pytest.raises(InputError, match=r"^privacy\.steps: expected how many steps") as caught:
        space(target(steps=None))
    assert "participation" in str(caught.value)
    # An error that counts several steps says how many there are.
    many = replace(space(), error=ErrorMeasure(horizon=5), privacy=target(steps=None))
    assert calibrate(many) == calibrate(replace(many, privacy=target(steps=5)))
    with pytest.raises(InputError, match=r"^privacy\.steps: expected at least the 5 steps"):
        replace(many, privacy=target(steps=4))
    with pytest.raises(InputError, match=r"^participation: expected at least the 5 steps"):
        replace(many, participation=single(4))
    with pytest.raises(InputError, match=r"^privacy\.steps: expected 320, the horizon"):
        replace(
            space(), participation=FixedEpoch(epochs=20, separation=16), privacy=target(steps=20)
        )


@pytest.mark.parametrize("use", ["epochs = 3\nseparation = 4", 'kind = "every-step"\nhorizon = 5'])
def test_problem_and_account_files_mean_the_same(use: str) -> None:
    """Independent noise of one size, stated to either: whatever both leave out is the same."""
    graph = '[graph]\nkind = "path"\nnodes = 3\n'
    table = f"[participation]\n{use}\n"
    text = f'name = "x"\ndesign = "space"\n{graph}{table}[privacy]\nepsilon = 4.0\nclip = 0.1\n'
    problem = parse_problem(text, folder=".").problem
    multiplier = calibrate(problem).noise_multiplier  # of unit noise: [R^-1]_ii <= 1
    account = (
        f'{graph}{table}[algorithm]\nkind = "dp-d-sgd"\nnoise_multiplier = {multiplier!r}\n'
        '[observer]\nmodel = "ldp"\n'
    )
    for found in parse_account(account, folder=".").run():
        assert found.epsilon == pytest.approx(4.0, rel=1e-6)
        assert (found.delta, found.adjacency) == (problem.privacy.delta, problem.privacy.adjacency)  # type: ignore[union-attr]


def test_one_default_that_errs_to_more_noise() -> None:
    by_name = {
        adjacency: calibrate(space(target(adjacency=adjacency))).noise_stddev
        for adjacency in ("replace", "zero-out", "add-remove")
    }
    assert by_name["replace"] == max(by_name.values())
    assert by_name["add-remove"] == by_name["zero-out"]
    assert calibrate(space(target())).noise_stddev == by_name["replace"]


def test_replacing_costs_twice_zeroing_out() -> None:
    replaced = calibrate(space(target(adjacency="replace", clip=3.0)))
    deleted = calibrate(space(target(adjacency="zero-out", clip=3.0)))
    assert replaced.step_sensitivity == 6.0
    assert deleted.step_sensitivity == 3.0
    assert replaced.noise_stddev == pytest.approx(2 * deleted.noise_stddev, rel=1e-12)


@pytest.mark.parametrize("tau", [0.01, 1.0, 100.0])
def test_the_budget_does_not_change_the_calibrated_noise(tau: float) -> None:
    base, scaled = space(target()), space(target(), tau=tau)
    designs = [solve(p).design for p in (base, scaled)]
    assert designs[0] is not None
    assert designs[1] is not None
    np.testing.assert_allclose(
        calibrate(base).noise_stddev ** 2 * designs[0].covariance,
        calibrate(scaled).noise_stddev ** 2 * designs[1].covariance,
        rtol=1e-9,
    )


def test_conversion_is_passed_on() -> None:
    exact, published = (calibrate(space(target(conversion=c))) for c in ("gdp", "rdp"))
    assert published.noise_stddev > exact.noise_stddev
    assert published.conversion == "rdp"
    assert published.mu == mu_of(epsilon=2.0, delta=1e-5, conversion="rdp")


def test_the_largest_of_uneven_budgets_says_the_noise() -> None:
    """What a budget of nine leaves through takes three times the noise of a budget of one."""
    privacy = target(clip=0.7, steps=None)
    mu = mu_of(epsilon=2.0, delta=1e-5)
    ring = np.eye(5) / 2 + np.roll(np.eye(5), 1, axis=0) / 4 + np.roll(np.eye(5), -1, axis=0) / 4
    joint = SpaceTimeProblem(
        mixing=ring,
        participation=FixedEpoch(epochs=1, separation=3),
        privacy=privacy,
        budget=[1.0, 1, 1, 1, 9],
    )
    assert calibrate(joint).noise_stddev == pytest.approx(2 * 0.7 * 3 / mu, rel=1e-12)
    observed = SpaceProblem(
        mixing=ring,
        participation=single(1),
        observers=(threats.pndp(nodes=[0]),),
        privacy=privacy,
        budget=[1.0, 2, 4, 5, 9],
        max_variance=10.0,
    )
    assert calibrate(observed).noise_stddev == pytest.approx(2 * 0.7 * 3 / mu, rel=1e-12)


def test_without_a_target_nobody_says_how_much_noise() -> None:
    """As noise() does: no number for a design that protects nobody, in any family."""
    time = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=3))
    for bare in (space(tau=[1.0, 4.0, 2.0]), time, solve(time).design):
        with pytest.raises(InputError) as caught:
            calibrate(bare)
        assert str(caught.value) == (
            "privacy: expected a target, got none. State epsilon, delta and clip in [privacy]: "
            "noise is scaled to meet them."
        )
    with pytest.raises(InputError) as other:
        noise(solve(time).design, node=0)
    assert str(other.value) == str(caught.value)


def test_reports_of_a_design_without_a_target_are_of_unit_noise() -> None:
    found = calibration_of(space(tau=[1.0, 4.0, 2.0]))
    assert found.noise_stddev == 1.0
    assert (found.mu, found.epsilon, found.horizon) == (None, None, None)
    timed = calibration_of(TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=3)))
    assert (timed.mu, timed.noise_stddev, timed.noise_multiplier) == (None, 1.0, 1.0)
    assert timed.horizon == 6


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "kwargs", "field"),
    [
        (mu_of, {"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
        (mu_of, {"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        (mu_of, {"epsilon": math.nan, "delta": 1e-5}, "epsilon"),
        (mu_of, {"epsilon": math.inf, "delta": 1e-5}, "epsilon"),
        (mu_of, {"epsilon": 1.0, "delta": 0.0}, "delta"),
        (mu_of, {"epsilon": 1.0, "delta": 1.0}, "delta"),
        (mu_of, {"epsilon": 1.0, "delta": 1e-5, "conversion": "zcdp"}, "conversion"),
        (mu_of, {"epsilon": "1", "delta": 1e-5}, "epsilon"),
        (epsilon_of, {"mu": 0.0, "delta": 1e-5}, "mu"),
        (epsilon_of, {"mu": 1.0, "delta": -1e-5}, "delta"),
        (epsilon_of, {"mu": 1.0, "delta": 1e-5, "conversion": ""}, "conversion"),
        (delta_of, {"mu": -1.0, "epsilon": 1.0}, "mu"),
        (delta_of, {"mu": 1.0, "epsilon": 0.0}, "epsilon"),
        (target, {"epsilon": -2.0}, "privacy.epsilon"),
        (target, {"delta": 2.0}, "privacy.delta"),
        (target, {"clip": 0.0}, "privacy.clip"),
        (target, {"steps": 0}, "privacy.steps"),
        (target, {"steps": 1.5}, "privacy.steps"),
        (target, {"adjacency": "swap"}, "privacy.adjacency"),
        (target, {"conversion": "pld"}, "privacy.conversion"),
    ],
)
def test_bad_input_is_named(function: Any, kwargs: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        function(**kwargs)
    assert caught.value.field == field


@pytest.mark.parametrize("mu", [2e6, 1e12, 1e150])
def test_huge_mu_errs_upwards(mu: float) -> None:
    """For large mu epsilon is mu^2 / 2 + mu z with z the normal quantile at 1 - delta, nearly."""
    found = epsilon_of(mu=mu, delta=1e-6)
    assert found == pytest.approx(mu * mu / 2 + 4.7534243 * mu, rel=1e-9)
    if mu < 1e100:
        assert exact_delta(mu, found) <= 1e-6
