"""Designs without negative entries, for random participation and for a fixed one, from problem to
verdict."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Stop
from noisedesign.design.prefix import privacy_after
from noisedesign.design.solve import Solution, solve
from noisedesign.families.amplified import program as program_module
from noisedesign.families.amplified.program import equivalent_sensitivity, seed_of, unit_noise
from noisedesign.families.family import family_of
from noisedesign.files import exports
from noisedesign.files.design_file import load_design, save_design
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.forms.structure import TimeStructure
from noisedesign.mechanisms.baselines import baseline, baseline_names
from noisedesign.privacy.amplification import amplified_epsilon
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.calibration import calibrate
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import BallsInBins, FixedEpoch, single
from noisedesign.tasks.export import export
from noisedesign.tasks.report import insider_note, solution_record
from noisedesign.tasks.verify import verify
from tests.support import mixtures, oracles, random_oracles
from tests.support.family_cases import RING_5
from tests.support.small_designs import falsify

EPSILON, DELTA = 1.0, 1e-3
TARGET = PrivacyTarget(epsilon=EPSILON, delta=DELTA, adjacency="zero-out")
TWO_BINS = BallsInBins(epochs=1, separation=2)
PREFIX_2 = np.array([[2.0, 1.0], [1.0, 1.0]])
UNIT = 1 / random_oracles.gaussian_mu(epsilon=EPSILON, delta=DELTA)
"""The noise of a feasible design, for clip and change 1."""


def in_time(scheme: Any = TWO_BINS, target: Any = TARGET, **structure: Any) -> TimeProblem:
    return TimeProblem.prefix(
        participation=scheme, privacy=target, structure=TimeStructure(**structure)
    )


TWO_STEP_OPTIMUM = 1.633354978446706
"""The least error of two steps, squared noise, by a simplex search with quadrature."""


@cache
def two_steps() -> Solution:
    return solve(in_time())


def failed(verification: Any) -> set[str]:
    return {check.name for check in verification.checks if check.ok is False}


# --- what a design is -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_best_of_two_steps_by_quadrature() -> None:
    found = random_oracles.two_step_optimum(PREFIX_2, epsilon=EPSILON, delta=DELTA)
    assert found == pytest.approx(TWO_STEP_OPTIMUM, rel=1e-8)


def test_two_steps_come_near_the_best_there_is() -> None:
    """The search over all C >= 0 by quadrature; independent noise, which it beats, is 1.6 % off."""
    solution = two_steps()
    assert solution.status == "best-found"
    design = solution.design
    assert design is not None
    assert TWO_STEP_OPTIMUM * (1 - 1e-7) <= design.objective <= TWO_STEP_OPTIMUM * 1.01
    alone = random_oracles.two_step_error(PREFIX_2, np.eye(2), epsilon=EPSILON, delta=DELTA)
    assert alone * (1 - 1e-6) <= design.ldp_objective <= alone * 1.01


def test_its_noise_keeps_the_target_by_quadrature() -> None:
    """At change / mu of the target, for the very C of the design, both directions."""
    design = two_steps().design
    assert design is not None
    found = calibrate(design)
    assert found.noise_stddev == pytest.approx(UNIT, rel=1e-9)
    assert found.mu is None
    deltas = random_oracles.two_bin_deltas(
        design.strategy, noise=found.noise_stddev, epsilon=EPSILON
    )
    assert max(deltas) <= DELTA
    assert max(deltas) >= 0.9 * DELTA  # no more noise than the account asks for
    assert design.strategy.min() >= 0


def test_noise_that_its_account_does_not_bear_out_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A calibration that asks for 3 % too little noise; two bins of one step, so by quadrature."""
    problem, ours = in_time(), program_module.amplified_noise

    def quiet(*of: Any, **how: Any) -> Any:
        needed, found = ours(*of, **how)
        return 0.97 * needed, found

    monkeypatch.setattr(program_module, "amplified_noise", quiet)
    program = family_of(problem).program(problem)
    found = program.unit(DenseStrategy(strategy=np.array([[1.0, 0.0], [0.4, 1.0]]))).dense()
    gram = found.T @ found / UNIT**2
    assert mixtures.deltas(gram, EPSILON)[0] <= DELTA * (1 + 1e-6)


def test_bounds_are_on_their_sides() -> None:
    certificate = two_steps().certificate
    assert certificate is not None
    assert 0 < certificate.lower_bound <= TWO_STEP_OPTIMUM
    # Of fixed participation, where the optimum is the golden ratio squared.
    golden = (3 + math.sqrt(5)) / 2
    assert golden * (1 - 1e-5) <= certificate.fixed_lower_bound <= golden * (1 + 1e-9)
    assert certificate.relative_to_fixed == pytest.approx(certificate.objective / golden, rel=1e-5)
    assert certificate.lower_bound < certificate.fixed_lower_bound


def test_the_account_says_what_it_rests_on() -> None:
    certificate = two_steps().certificate
    assert certificate is not None
    account = certificate.account
    assert account is not None
    assert account.epsilon <= EPSILON
    assert (account.delta, account.adjacency) == (DELTA, "zero-out")
    assert account.which in certificate.sensitivity_kind
    assert (account.confidence is None) == ("monte-carlo" not in account.which)


@pytest.mark.slow
def test_a_solve_is_repeatable() -> None:
    again = solve(in_time())
    assert again.design is not None
    assert two_steps().design is not None
    np.testing.assert_array_equal(again.design.strategy, two_steps().design.strategy)
    assert again.certificate == two_steps().certificate


@pytest.mark.slow
@pytest.mark.parametrize(
    "structure",
    [
        {"kind": "banded", "bands": 2},
        {"kind": "toeplitz"},
        {"kind": "banded-inverse", "bands": 2},
        {"kind": "blt", "buffers": 1},
    ],
)
def test_structures_are_kept(structure: dict[str, Any]) -> None:
    problem = in_time(BallsInBins(epochs=2, separation=3), **structure)
    design = solve(problem).design
    assert design is not None
    assert design.problem.structure.nonnegative
    assert design.certificate.feasible
    c = design.strategy
    assert c.min() >= 0
    if structure["kind"] == "banded":
        assert not np.tril(c, -2).any()
    else:
        for lag in range(6):
            np.testing.assert_allclose(np.diagonal(c, -lag), c[lag, 0], rtol=1e-9)
    assert verify(design).ok


@pytest.mark.slow
def test_bands_may_be_more_than_the_separation() -> None:
    """Where under fixed participation they may not."""
    wide = in_time(BallsInBins(epochs=2, separation=2), kind="banded", bands=3)
    assert solve(wide).feasible


def test_the_record_has_both_bounds_and_what_the_account_rests_on() -> None:
    """``epsilon`` is what is proved, and no mu is told, as nothing here is mu-GDP."""
    record, design = solution_record(two_steps()), two_steps().design
    assert design is not None
    account = design.certificate.account
    assert account is not None
    assert record["epsilon"] == account.epsilon
    assert record["epsilon_estimate"] == account.epsilon_estimate
    assert (record["which"], record["confidence"]) == (account.which, account.confidence)
    assert record["mu"] is None
    assert record["privacy"]["mu_unamplified"] == design.fixed_mu
    assert record["privacy"]["epsilon"] == EPSILON
    assert record["error_at_target"] == pytest.approx(design.objective * UNIT**2, rel=1e-9)
    assert record["fixed_lower_bound"] == design.certificate.fixed_lower_bound
    assert record["relative_to_fixed"] == design.objective / record["fixed_lower_bound"]
    assert "secret" in insider_note(design)


def test_a_file_holds_it_all(tmp_path: Path) -> None:
    design = two_steps().design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    assert stored.design.certificate == design.certificate
    assert stored.design.problem.participation == TWO_BINS
    np.testing.assert_array_equal(stored.design.strategy, design.strategy)
    assert stored.manifest["participation"]["kind"] == "balls-in-bins"
    assert "mu-GDP" in stored.manifest["budget"]
    # Of the very problem every claim holds; of the same for fixed participation one does not.
    assert failed(verify(stored, problem=in_time(TWO_BINS.fixed))) == {"problem"}


def test_exports_say_that_batches_are_drawn(tmp_path: Path) -> None:
    """Generic formats take it and say so; trainers with a loader of their own do not get it."""
    design = two_steps().design
    assert design is not None
    found = exports.read(export(design, to="npy", path=tmp_path / "c.npy")[0])
    assert found.metadata["participation_kind"] == "balls-in-bins"
    assert found.metadata["epsilon"] == EPSILON
    assert found.metadata["confidence"] == design.certificate.account.confidence
    assert found.node_plan(0).claim == design.claim
    with pytest.raises(InputError, match="loader"):
        export(design, to="jax-privacy", path=tmp_path / "c.npz")


# --- verify believes no number --------------------------------------------------------------------


def test_a_design_is_verified_by_its_arrays() -> None:
    assert verify(two_steps()).ok
    design = two_steps().design
    assert design is not None
    quiet = replace(design, noise=design.noise.scaled(0.9))
    assert {"objective", "epsilon", "feasible"} <= failed(verify(quiet))


def test_no_stored_number_is_believed() -> None:
    design = two_steps().design
    assert design is not None
    told = design.certificate
    account = told.account
    assert account is not None
    raised = {name: getattr(told, name) * 1.001 for name in ("lower_bound", "fixed_lower_bound")}
    less = replace(account, epsilon=account.epsilon / 2)
    lies: list[tuple[set[str], dict[str, Any]]] = [
        ({"epsilon", "lower bound", "fixed bound"}, {"account": less} | raised),
        ({"epsilon"}, {"account": None}),
        ({"epsilon"}, {"account": replace(account, remove=account.remove * 0.999)}),
        ({"epsilon"}, {"account": replace(account, add=account.add * 0.999)}),
        ({"epsilon"}, {"account": replace(account, epsilon_estimate=account.epsilon / 3)}),
        ({"epsilon"}, {"account": replace(account, confidence=0.9999999)}),
    ]
    for checks, lie in lies:
        assert checks <= failed(verify(replace(design, certificate=replace(told, **lie)))), lie


def test_negative_entries_are_refused() -> None:
    """There is no account of them, however small they are and however loud the noise is."""
    design = two_steps().design
    assert design is not None
    signed = design.strategy / 3
    signed[1, 0] *= -1
    found = verify(replace(design, noise=Noise.of_strategy(DenseStrategy(strategy=signed))))
    assert {"structure", "sensitivity", "feasible", "epsilon"} <= failed(found)


@pytest.mark.slow
def test_where_chance_gains_less_than_negative_entries_the_solve_says_so() -> None:
    """At a large epsilon the account is that of fixed participation, whose optimum has some."""
    target = PrivacyTarget(epsilon=200.0, delta=1e-6, adjacency="zero-out")
    solution = solve(in_time(BallsInBins(epochs=4, separation=3), target=target))
    assert solution.certificate is not None
    assert solution.certificate.relative_to_fixed > 1
    assert "fixed participation has 0.9" in solution.remedy
    assert two_steps().remedy == ""


# --- other axes -----------------------------------------------------------------------------------


def test_in_space_the_design_is_the_same_and_the_noise_is_less() -> None:
    """R does not depend on participation; noise does, by the account of k [R^-1]_uu I: of two bins
    it is known by quadrature."""
    scheme = BallsInBins(epochs=3, separation=2)
    fixed = SpaceProblem(mixing=RING_5, participation=scheme.fixed, privacy=TARGET, budget=2.0)
    problem = SpaceProblem(mixing=RING_5, participation=scheme, privacy=TARGET, budget=2.0)
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.design is not None
    np.testing.assert_array_equal(solution.design.covariance, solve(fixed).design.covariance)
    found = calibrate(problem)
    least = random_oracles.two_bin_noise(
        math.sqrt(3 * 2.0) * np.eye(2), epsilon=EPSILON, delta=DELTA
    )
    assert least * (1 - 1e-9) <= found.noise_stddev <= least * 1.01
    assert found.noise_stddev < calibrate(fixed).noise_stddev
    assert found.mu is None
    assert found.account is not None
    assert found.account.epsilon <= EPSILON
    assert found.account.confidence is None
    assert verify(solution).ok


@pytest.mark.slow
def test_products_have_the_account_of_their_factor_in_time() -> None:
    problem = SpaceTimeProblem(
        mixing=RING_5, participation=BallsInBins(epochs=1, separation=2), privacy=TARGET, budget=4.0
    )
    solution = solve(problem)
    assert solution.status == "best-found"
    design = solution.design
    assert design is not None
    certificate = design.certificate
    assert certificate.feasible
    assert verify(solution).ok
    deltas = random_oracles.two_bin_deltas(design.strategy, noise=UNIT, epsilon=EPSILON)
    assert 0.9 * DELTA <= max(deltas) <= DELTA
    assert calibrate(design).noise_stddev == pytest.approx(2 * UNIT, rel=1e-9)
    assert certificate.lower_bound < certificate.objective
    assert certificate.objective < design.ldp_objective
    assert not verify(replace(design, noise=design.noise.scaled(0.9))).ok


@pytest.mark.slow
def test_a_product_of_one_node_is_a_design_in_time() -> None:
    product = SpaceTimeProblem(mixing=np.ones((1, 1)), participation=TWO_BINS, privacy=TARGET)
    found = solve(product).design
    assert found is not None
    assert two_steps().design is not None
    assert found.objective == pytest.approx(two_steps().design.objective, rel=0.01)
    assert found.certificate.fixed_lower_bound == pytest.approx((3 + math.sqrt(5)) / 2, rel=1e-4)


# --- fixed participation --------------------------------------------------------------------------


def test_an_optimum_without_negative_entries_is_the_answer() -> None:
    problem = TimeProblem.prefix(participation=single(3), structure=TimeStructure(nonnegative=True))
    solution = solve(problem, gap=1e-9)
    assert solution.status == "optimal"
    free = solve(TimeProblem.prefix(participation=single(3)), gap=1e-9)
    assert solution.certificate.objective == pytest.approx(free.certificate.objective, rel=1e-8)
    assert solution.certificate.account is None
    assert verify(solution).ok


def test_where_it_has_some_the_search_says_what_they_are_worth() -> None:
    scheme = FixedEpoch(epochs=2, separation=2)
    problem = TimeProblem.prefix(participation=scheme, structure=TimeStructure(nonnegative=True))
    solution = solve(problem)
    assert solution.status == "best-found"
    design = solution.design
    assert design is not None
    assert design.strategy.min() >= 0
    # Squared, of C >= 0: the heaviest pattern's sum of C^T C.
    gram = design.strategy.T @ design.strategy
    heaviest = max(gram[np.ix_(p, p)].sum() for p in ((0, 2), (1, 3)))
    assert heaviest == pytest.approx(1, rel=1e-9)
    assert heaviest <= 1
    free = solve(TimeProblem.prefix(participation=scheme)).certificate
    assert free is not None
    assert free.lower_bound * (1 - 1e-6) <= design.objective
    assert design.certificate.unrestricted_lower_bound == pytest.approx(free.lower_bound, rel=1e-5)
    assert verify(solution).ok


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (None, "privacy"),
        (PrivacyTarget(epsilon=1.0, delta=1e-5, conversion="rdp"), r"privacy\.conversion"),
    ],
)
def test_random_participation_needs_a_target(target: Any, field: str) -> None:
    problems = [
        in_time(target=target),
        SpaceTimeProblem(mixing=RING_5, participation=TWO_BINS, privacy=target),
    ]
    for problem in problems:
        with pytest.raises(InputError, match=field):
            solve(problem)


def test_what_it_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"structure\.nonnegative.*Choquette-Choo"):
        in_time(nonnegative=False)
    with pytest.raises(InputError, match=r"structure\.joint"):
        SpaceTimeProblem(mixing=RING_5, participation=TWO_BINS, privacy=TARGET, joint="full")
    with pytest.raises(InputError, match="nonnegative"):
        TimeStructure(nonnegative="yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="backend"):
        solve(in_time(), backend="clarabel")


@pytest.mark.slow
def test_the_default_adjacency_takes_more_noise() -> None:
    """One record becomes another: by a removal and an addition, at most as much as by twice the
    clip of the other adjacency, which costs four times the error."""
    replaced = in_time(target=replace(TARGET, adjacency="replace"))
    design, other = solve(replaced).design, two_steps().design
    assert design is not None
    assert other is not None
    worth = [d.objective * calibrate(d).noise_stddev ** 2 for d in (design, other)]
    assert worth[1] < worth[0] <= 4.05 * worth[1]
    assert verify(design).ok


# --- stopped --------------------------------------------------------------------------------------


def test_a_time_limit_leaves_a_feasible_design() -> None:
    solution = solve(in_time(BallsInBins(epochs=3, separation=4)), time_limit=1e-3)
    assert solution.feasible
    assert solution.status == Stop.TIME_LIMIT
    assert verify(solution).ok


@pytest.mark.slow
def test_an_interruption_leaves_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    def interrupt(_: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    solution = solve(in_time(BallsInBins(epochs=3, separation=4)), progress=interrupt)
    assert solution.status == Stop.INTERRUPTED
    assert solution.feasible


# --- around it ------------------------------------------------------------------------------------


def test_what_a_claim_says_holds_without_randomness() -> None:
    """mu of a claim is that of the noise before an adversary who chooses the batch: the longest
    column over the noise."""
    design = two_steps().design
    assert design is not None
    longest = math.sqrt(float(np.square(design.strategy).sum(axis=0).max()))
    assert design.claim.mu == pytest.approx(longest / UNIT, rel=1e-9)
    assert design.claim.epsilon == EPSILON
    assert design.claim.rule is not None
    assert design.claim.rule.random is not None
    for steps in (1, 2):
        assert privacy_after(design, steps=steps).epsilon <= EPSILON
    first = float(design.strategy[0, 0])
    assert privacy_after(design, steps=1).mu == pytest.approx(first / UNIT, rel=1e-8)


@pytest.mark.slow
def test_baselines_are_those_without_negative_entries() -> None:
    assert baseline_names(in_time()) == (
        *("ldp", "antipgd", "banded-sqrt", "normalized-sqrt", "bisr", "bifr"),
    )
    for name in baseline_names(in_time()):
        design = baseline(in_time(), name)
        assert design.certificate.feasible
        exact = random_oracles.two_step_error(
            PREFIX_2, design.strategy, epsilon=EPSILON, delta=DELTA
        )
        assert exact * (1 - 1e-6) <= design.objective <= 1.02 * exact


def test_the_sensitivity_that_is_told_is_that_of_a_gaussian_mechanism() -> None:
    """At noise 1 / mu(target), that of squared sensitivity s is sqrt(s) mu(target)-GDP."""
    assert equivalent_sensitivity(EPSILON, TARGET) == 1.0
    assert equivalent_sensitivity(np.nextafter(EPSILON, 2), TARGET) > 1
    assert equivalent_sensitivity(math.inf, TARGET) == math.inf
    assert equivalent_sensitivity(0.0, TARGET) == 0.0
    half = random_oracles.gaussian_mu(epsilon=0.5, delta=DELTA) * UNIT
    assert equivalent_sensitivity(0.5, TARGET) == pytest.approx(half**2, rel=1e-8)
    assert unit_noise(TARGET) == pytest.approx(UNIT, rel=1e-9)
    assert unit_noise(replace(TARGET, adjacency="replace", clip=3.0)) == pytest.approx(2 * UNIT)


def test_samples_are_drawn_for_the_strategy() -> None:
    c = np.eye(2)
    assert seed_of(c) == seed_of(c.copy()) != seed_of(np.nextafter(c, 2))
    assert 0 <= seed_of(c) < 2**63


def test_every_scale_that_is_tried_has_its_share_of_the_confidence() -> None:
    """C is that of the first account that meets the target: one of six chances to be wrong."""
    design = two_steps().design
    assert design is not None
    program = family_of(design.problem).program(design.problem)
    found = program.account(design.strategy)
    how = {
        "delta": DELTA,
        "noise_multiplier": program.noise_multiplier,
        "adjacency": "zero-out",
        "seed": seed_of(design.strategy),
    }
    shared, alone = (
        amplified_epsilon(program.mixture(design.strategy), confidence=1 - 1e-6 / tries, **how)
        for tries in (6, 1)
    )
    assert (found.epsilon, found.confidence) == (shared.epsilon, 1 - 1e-6)
    assert found.epsilon > alone.epsilon


def test_a_file_whose_batches_are_said_to_be_fixed_is_refused(tmp_path: Path) -> None:
    design = two_steps().design
    assert design is not None
    path = save_design(design, tmp_path / "d.npz")
    fixed = {"epochs": 1, "separation": 2}
    falsify(path, lambda manifest, arrays: manifest.update(participation=fixed))
    with pytest.raises(InputError, match=r"participation: .*random.*fixed-epoch"):
        load_design(path)


def test_the_family_is_found_by_participation_or_structure() -> None:
    assert family_of(in_time()).name == "nonnegative"
    fixed = TimeProblem.prefix(participation=single(2), structure=TimeStructure(nonnegative=True))
    assert family_of(fixed).name == "nonnegative"
    assert family_of(TimeProblem.prefix(participation=single(2))).name == "disjoint"
    assert family_of(fixed).relaxed(fixed).structure == TimeStructure()
    assert family_of(in_time()).relaxed(in_time()) is None
    assert pytest.approx((3 + math.sqrt(5)) / 2) == oracles.PREFIX_TWO_STEPS
