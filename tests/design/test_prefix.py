"""Privacy of the first steps of a run, against every pattern and the covariance of all sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.prefix import ROUNDING, WHOLE_RUN, privacy_after
from noisedesign.families.toeplitz.solver import optimize_buffered, optimize_toeplitz
from noisedesign.noise import integer_noise, noise
from noisedesign.problem.calibration import calibrate
from noisedesign.system.workloads.toeplitz import prefix_workload
from tests.support import oracles
from tests.support.small_designs import TARGET as FOUR_STEPS, time_design
from tests.support.trainers import random_plan

W = (np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3 + np.eye(3)) / 2
TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.5)
KB = nd.participation.FixedEpoch(epochs=2, separation=3)
APART = nd.participation.MinSeparation(horizon=6, separation=2, max_participations=2)
SHORT = nd.participation.FixedEpoch(epochs=2, separation=2)


def in_time(scheme: Any, **structure: Any) -> nd.TimeProblem:
    kind = nd.TimeStructure(**structure)
    return nd.TimeProblem.prefix(participation=scheme, privacy=TARGET, structure=kind)


PROBLEMS: dict[str, Any] = {
    "dense": in_time(KB),
    "min-separation": in_time(APART),
    "banded": in_time(KB, kind="banded", bands=2),
    "toeplitz": in_time(KB, kind="toeplitz"),
    "banded-inverse": in_time(KB, kind="banded-inverse", bands=3),
    "blt": in_time(APART, kind="blt", buffers=1),
    "kronecker": nd.SpaceTimeProblem(mixing=W, participation=SHORT, privacy=TARGET, budget=2.0),
    "full": nd.SpaceTimeProblem(mixing=W, participation=SHORT, privacy=TARGET, joint="full"),
    "uneven": nd.SpaceTimeProblem(
        mixing=W,
        participation=SHORT,
        privacy=TARGET,
        joint="full",
        budget=np.array([1.0, 0.5, 4.0]),
    ),
    "uneven kronecker": nd.SpaceTimeProblem(
        mixing=W, participation=SHORT, privacy=TARGET, budget=np.array([1.0, 0.5, 4.0])
    ),
    "space": nd.SpaceProblem(
        mixing=W, participation=nd.participation.FixedEpoch(epochs=3, separation=2), privacy=TARGET
    ),
    "seeds": nd.SpaceProblem(
        mixing=W,
        participation=APART,
        privacy=TARGET,
        structure=nd.SpaceStructure(kind="edge-local"),
    ),
}


@cache
def design(name: str) -> nd.Design:
    found = nd.solve(PROBLEMS[name]).design
    assert found is not None
    return found


def allowed(scheme: Any, steps: int) -> Iterator[list[int]]:
    """Every set of the first steps that one record may take part in, by the words of the scheme."""
    for chosen in itertools.product((False, True), repeat=steps):
        found = [t for t in range(steps) if chosen[t]]
        gaps = [b - a for a, b in itertools.pairwise(found)]
        if isinstance(scheme, nd.participation.FixedEpoch):
            fits = all(gap % scheme.separation == 0 for gap in gaps)
        else:
            fits = len(found) <= scheme.max_participations
            fits = fits and all(gap >= scheme.separation for gap in gaps)
        if found and fits:
            yield found


def covariance_in_time(design: nd.Design) -> np.ndarray:
    """Of the noise of all steps and nodes, in time-major order, as it is sent."""
    noise_, scale = design.noise, calibrate(design.problem).noise_stddev
    horizon = design.problem.use.horizon
    if noise_.full:
        inverse = np.linalg.inv(noise_.dense_strategy)
        return scale**2 * inverse @ inverse.T
    over_time = np.eye(horizon)
    if noise_.strategy is not None:
        inverse = np.linalg.inv(noise_.strategy.dense())
        over_time = inverse @ inverse.T
    between = np.eye(1) if noise_.space is None else noise_.covariance
    return scale**2 * np.kron(over_time, between)


def largest_change(design: nd.Design, steps: int) -> tuple[float, float]:
    """Bounds on the mu of whoever sees the first steps: unit gradients of one node, in the metric
    of the noise of these steps, over every set of steps; where nodes have budgets of their own, of
    the node that uses most of its own."""
    n = len(design.problem.mixing) if design.axes != "time" else 1
    budget = np.ones(1) if design.axes == "time" else design.problem.budget
    precision = np.linalg.inv(covariance_in_time(design)[: steps * n, : steps * n])
    low = high = 0.0
    for node, chosen in itertools.product(range(n), allowed(design.problem.use, steps)):
        at = [t * n + node for t in chosen]
        own = precision[np.ix_(at, at)] * (budget.max() / budget[node])
        below, above = oracles.elliptope(own)
        low, high = max(low, below), max(high, above)
    unit = calibrate(design.problem).step_sensitivity
    return unit * np.sqrt(low), unit * np.sqrt(high)


@pytest.mark.parametrize("name", PROBLEMS)
def test_mu_of_every_prefix_is_that_of_the_worst_record(name: str) -> None:
    found = design(name)
    horizon = found.problem.use.horizon
    for steps in range(1, horizon + 1):
        low, high = largest_change(found, steps)
        said = privacy_after(found, steps=steps)
        assert said.mu >= low * (1 - 1e-9)
        assert said.mu <= high * (1 + 1e-7)
        assert said.kind == "vector-exact"
        exact = oracles.gaussian_delta(said.mu, said.epsilon)
        assert exact == pytest.approx(1e-5, rel=1e-6)
        assert (said.delta, said.claim.adjacency, said.claim.clip) == (1e-5, "replace", 0.5)


def test_mu_of_a_prefix_has_an_allowance_for_the_rounding_of_c() -> None:
    """Of noise that is drawn afresh, one, two and three of three participations: more than that by
    ROUNDING, relative to the square."""
    plan = design("space").node_plan(0)
    for steps, share in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3)):
        exact = plan.claim.mu * (share / 3) ** 0.5
        found = privacy_after(plan, steps=steps).mu
        assert exact * (1 + (0.4 * ROUNDING if share < 3 else 0)) <= found <= exact * (1 + ROUNDING)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_whole_run_is_that_of_the_target_and_no_prefix_tells_more(name: str) -> None:
    found = design(name)
    horizon = found.problem.use.horizon
    each = [privacy_after(found, steps=t) for t in range(1, horizon + 1)]
    assert each[-1].epsilon == 2.0
    assert each[-1].mu == found.claim.mu
    for before, after in itertools.pairwise(each):
        assert before.mu <= after.mu
        assert before.epsilon <= after.epsilon * (1 + 1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_node_knows_the_same(name: str, tmp_path: Path) -> None:
    found = design(name)
    for node in range(found.noise.nodes or 1):
        plan = found.node_plan(node)
        for steps in range(1, plan.horizon):
            said, known = privacy_after(found, steps=steps), privacy_after(plan, steps=steps)
            if found.noise.full:
                assert (known.mu, known.kind) == (plan.claim.mu, WHOLE_RUN)
            else:
                assert known.mu == pytest.approx(said.mu, rel=1e-8)
                assert known.kind == said.kind


def test_noise_of_a_node_knows_its_secrets(tmp_path: Path) -> None:
    source = noise(design("dense"), record=tmp_path / "records")
    assert source.secret is not None
    found = privacy_after(source, steps=2)
    assert found.fingerprints == (source.secret.fingerprint,)
    assert found.mu == pytest.approx(privacy_after(design("dense"), steps=2).mu, rel=1e-8)


def test_noise_of_integers_has_the_bound_of_the_whole_run(tmp_path: Path) -> None:
    found = privacy_after(integer_noise(design("banded"), record=tmp_path / "records"), steps=2)
    assert (found.mu, found.kind) == (design("banded").claim.mu, WHOLE_RUN)
    assert len(found.fingerprints) == 1


def test_steps_that_were_taken_are_not_left_out(tmp_path: Path) -> None:
    source = noise(design("dense"), record=tmp_path / "records")
    for t in range(3):
        source.add_([np.zeros(4)], t)
    with pytest.raises(InputError, match="steps: expected at least 3, whose noise was added"):
        privacy_after(source, steps=2)
    assert privacy_after(source, steps=3).steps == 3


def test_one_step_by_hand() -> None:
    """One step shows one gradient under noise of variance sigma^2 / C_00^2: mu = 2 clip C_00 /
    sigma. C of this design is made of GRAM_4; sigma is 2 clip / mu_T."""
    found = time_design(privacy=FOUR_STEPS)
    whole = nd.privacy.mu_of(epsilon=3.0, delta=1e-5)
    expected = whole * float(found.strategy[0, 0])
    assert privacy_after(found, steps=1).mu == pytest.approx(expected, rel=1e-8)


def test_noise_above_the_budgets_tells_less() -> None:
    """1.25 times the noise that the target takes: every prefix has mu over 1.25, the whole run
    what it claims."""
    tight = time_design(privacy=FOUR_STEPS)
    certificate = replace(
        tight.certificate, sensitivity_squared=tight.certificate.sensitivity_squared / 1.25**2
    )
    loose = replace(tight, noise=tight.noise.scaled(1.25), certificate=certificate)
    for steps in (1, 2, 3):
        expected = privacy_after(tight, steps=steps).mu / 1.25
        assert privacy_after(loose, steps=steps).mu == pytest.approx(expected, rel=1e-8)
    assert privacy_after(loose, steps=4).mu == privacy_after(tight, steps=4).mu


@pytest.mark.parametrize(
    "scheme",
    [
        nd.participation.FixedEpoch(epochs=5, separation=40),
        nd.participation.MinSeparation(horizon=200, separation=40, max_participations=5),
    ],
)
def test_streaming_designs(scheme: Any) -> None:
    """By dense products: patterns 0, 40, ... are the worst of columns that fall."""
    made = optimize_buffered(workload=prefix_workload(horizon=200), participation=scheme, buffers=2)
    streaming = replace(made, privacy=TARGET)
    strategy = streaming.noise.strategy.dense()
    whole = nd.privacy.mu_of(epsilon=2.0, delta=1e-5)
    for steps in (1, 39, 40, 41, 120, 199, 200):
        columns = strategy[:steps, np.arange(0, steps, 40)]
        expected = whole * float(np.linalg.norm(columns.sum(axis=1)))
        found = privacy_after(streaming, steps=steps)
        assert found.mu == pytest.approx(expected, rel=1e-7)
        assert found.kind == "vector-exact"
        assert privacy_after(streaming.node_plan(), steps=steps).mu == pytest.approx(
            found.mu, rel=1e-8
        )


def test_signs_of_coefficients_do_not_matter_to_which_pattern_is_worst() -> None:
    """Single participation leaves coefficients of any sign: the norm of the first column."""
    made = optimize_toeplitz(
        workload=prefix_workload(horizon=30), participation=nd.participation.single(30), bands=30
    )
    streaming = replace(made, privacy=TARGET)
    column = streaming.noise.strategy.dense()[:, 0]
    whole = nd.privacy.mu_of(epsilon=2.0, delta=1e-5)
    for steps in (1, 7, 29):
        expected = whole * float(np.linalg.norm(column[:steps]))
        assert privacy_after(streaming, steps=steps).mu == pytest.approx(expected, rel=1e-7)


def test_a_long_streaming_design_needs_no_square_matrix() -> None:
    horizon = 50_000
    made = optimize_toeplitz(
        workload=prefix_workload(horizon=horizon),
        participation=nd.participation.FixedEpoch(epochs=5, separation=10_000),
        bands=8,
    )
    found = privacy_after(replace(made, privacy=TARGET), steps=25_000)
    # Eight bands do not reach the next epoch: three columns of five, whole ones, and orthogonal.
    assert found.mu == pytest.approx(
        np.sqrt(3 / 5) * nd.privacy.mu_of(epsilon=2.0, delta=1e-5), rel=1e-7
    )


def test_a_solution_or_a_stored_design_will_do(tmp_path: Path) -> None:
    solution = nd.solve(PROBLEMS["dense"])
    path = nd.save(solution.design, tmp_path / "design.npz")
    expected = privacy_after(solution.design, steps=3)
    assert privacy_after(solution, steps=3).mu == expected.mu
    assert privacy_after(nd.load(path), steps=3).mu == pytest.approx(expected.mu, rel=1e-12)


@pytest.mark.parametrize(("steps", "field"), [(0, "steps"), (7, "steps"), (2.5, "steps")])
def test_steps_of_no_prefix(steps: Any, field: str) -> None:
    for run in (design("dense"), design("dense").node_plan(0)):
        with pytest.raises(InputError) as error:
            privacy_after(run, steps=steps)
        assert error.value.field == field


def test_what_has_no_privacy() -> None:
    free = nd.solve(replace(PROBLEMS["dense"], privacy=None)).design
    with pytest.raises(InputError, match="privacy: expected a target"):
        privacy_after(free, steps=1)
    with pytest.raises(InputError, match="design"):
        privacy_after("design.npz", steps=1)


def test_it_is_told() -> None:
    text = repr(privacy_after(design("dense"), steps=3))
    assert text.startswith("Privacy after 3 of 6 steps")
    assert "vector-exact" in text


# --- random participation -------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 100.0])
def test_randomness_is_counted_for_the_whole_run_alone(epsilon: float) -> None:
    """Independent noise: after one of two rounds a record took part in half of its steps. Its mu
    says nothing of chance, and epsilon is that of the run where that is less."""
    plan = random_plan(nd.participation.BallsInBins(epochs=2, separation=6))
    plan = replace(plan, claim=replace(plan.claim, epsilon=epsilon))
    found, whole = (privacy_after(plan, steps=steps) for steps in (6, 12))
    assert plan.claim.mu is not None
    assert found.mu == pytest.approx(plan.claim.mu / 2**0.5, rel=1e-8)
    fixed = nd.privacy.epsilon_of(mu=found.mu, delta=found.delta)
    assert 0.5 < fixed < 100
    assert found.epsilon == min(fixed, epsilon)
    assert found.kind == "any-order-upper-bound"
    assert (whole.mu, whole.epsilon) == (plan.claim.mu, epsilon)


@pytest.mark.slow
def test_designs_and_plans_of_random_participation_agree_on_the_first_steps() -> None:
    """Of a strategy in time: mu by the leading block of C and the patterns cut to so many steps."""
    scheme = nd.participation.BallsInBins(epochs=2, separation=3)
    design = nd.solve(in_time(scheme, kind="banded", bands=2)).design
    assert design is not None
    scale, c = design.claim.noise_stddev, design.strategy
    for steps in (3, 4, 6):
        patterns = [[t for t in p if t < steps] for p in scheme.bins]
        gram = c[:steps, :steps].T @ c[:steps, :steps]
        squared = max(float(np.abs(gram[np.ix_(p, p)]).sum()) for p in patterns)
        for run in (design, design.node_plan(0)):
            found = privacy_after(run, steps=steps)
            expected = 2 * TARGET.clip * squared**0.5 / scale
            assert found.mu == pytest.approx(expected, rel=1e-7)
            fixed = nd.privacy.epsilon_of(mu=found.mu, delta=TARGET.delta)
            assert found.epsilon == min(fixed, design.claim.epsilon or 0.0)
    assert fixed > TARGET.epsilon  # of the whole run
    assert privacy_after(design, steps=6).kind == "any-order-upper-bound"
