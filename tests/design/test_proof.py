"""What is proved of designs of every family holds in exact arithmetic; the rest is not passed."""

from __future__ import annotations

import copy
import math
import sys
from dataclasses import replace
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
from scipy.sparse import issparse

from noisedesign.base import enclosures, linalg
from noisedesign.base.enclosures import EPS, Interval, exactly
from noisedesign.certify.rigorous import UNPROVED, NotProvedError, sensitivity_above
from noisedesign.design.design import Design
from noisedesign.design.proof import OF_GAUSSIAN_NOISE, Proof, proof_on_save, prove
from noisedesign.design.solve import solve
from noisedesign.families.family import family_of
from noisedesign.files.problem_file import load_problem
from noisedesign.forms import DenseStrategy, ModalStrategy, Noise
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import BallsInBins, FixedEpoch, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.report import proof_note
from noisedesign.tasks.verify import verify
from tests.support import ROOT
from tests.support.family_cases import CASES

DIGITS = 50
TARGET = PrivacyTarget(epsilon=2.0, delta=1e-4)
AGAINST_OBSERVERS = {name for name, case in CASES.items() if case.family == "observers"}
COVERED = sorted(CASES)


@cache
def solved(name: str) -> tuple[Design, Proof]:
    design = solve(CASES[name].problem).design
    assert design is not None
    return design, prove(design)


def many_digits(a: np.ndarray) -> Any:
    return mpmath.matrix(np.asarray(a).tolist())


def inverse_gram(strategy: np.ndarray) -> Any:
    noising = mpmath.inverse(many_digits(strategy))
    return noising * noising.T


def kron(a: Any, b: Any) -> Any:
    rows = [
        [a[i, j] * b[k, m] for j in range(a.cols) for m in range(b.cols)]
        for i in range(a.rows)
        for k in range(b.rows)
    ]
    return mpmath.matrix(rows)


def of_modes(form: ModalStrategy) -> Any:
    """cov(z) of all pairs, in time-major order, from the numbers that it is determined by."""
    total = mpmath.zeros(form.horizon)
    for strategy, mode in zip(form.strategies, form.modes.T, strict=True):
        total += kron(inverse_gram(strategy), many_digits(np.multiply.outer(mode, mode)))
    scales = form.scales.T.ravel().tolist()
    return mpmath.matrix(
        [
            [scales[i] * total[i, j] * scales[j] for j in range(total.cols)]
            for i in range(total.rows)
        ]
    )


def exact_noise(design: Design) -> Any:
    """Its covariance, to fifty digits, over nodes, steps or pairs of both."""
    if isinstance(design.noise.strategy, ModalStrategy):
        return of_modes(design.noise.strategy)
    if design.axes == "space":
        return many_digits(design.covariance)
    in_time = inverse_gram(design.strategy)
    if design.axes == "time" or design.noise.full:
        return in_time
    return kron(in_time, many_digits(design.covariance))


def exact_gram(problem: Any) -> Any:
    """H: of exact factors where H is W^T W, else as the problem has it."""
    if problem.axes == "space" and problem.plain:
        mixing = problem.mixing
        w = many_digits(mixing.toarray() if issparse(mixing) else mixing)
        return w.T * w
    if problem.axes == "space-time":
        from noisedesign.families.space_time import SpaceTimeProgram

        full = SpaceTimeProgram.of(problem).full_program()
        if full.exact_factor is not None:
            a = many_digits(full.exact_factor)
            return a.T * a
        return many_digits(full.gram)
    return many_digits(problem.gram)


@cache
def optimum(name: str) -> float:
    return CASES[name].optimum()


@cache
def exact_objective(name: str) -> Any:
    """tr(H cov(z)), or its largest step or node, to fifty digits."""
    design, _ = solved(name)
    with mpmath.workdps(DIGITS):
        noise, gram = exact_noise(design), exact_gram(design.problem)
        if name == "worst of two sums":  # that of the second step, of both steps' noise
            return max(noise[0, 0], sum(noise))
        if design.problem.worst:  # that of the worst node after one step
            w = many_digits(design.problem.mixing)
            after = w * noise * w.T
            return max(after[i, i] for i in range(after.rows))
        return sum(x * y for x, y in zip(gram, noise, strict=True))


@pytest.mark.parametrize("name", COVERED)
def test_the_objective_of_fifty_digits_is_in_the_interval_and_above_the_bound(name: str) -> None:
    """Weak duality without a tolerance, as the noise is feasible."""
    _, proof = solved(name)
    truth = exact_objective(name)
    assert proof.objective.lower <= truth <= proof.objective.upper
    assert proof.lower_bound.lower <= truth
    assert proof.objective.width <= 1e-12 * proof.objective.upper


@pytest.mark.parametrize("name", COVERED)
def test_it_is_proved_feasible_and_near_an_optimum_known_without_the_library(name: str) -> None:
    design, proof = solved(name)
    assert proof.rigorous, proof.why_not
    assert proof.why_not == ""
    known = 1e-8  # that is how well
    assert proof.lower_bound.lower <= optimum(name) * (1 + known)
    assert proof.objective.upper >= optimum(name) * (1 - known)
    assert proof.gap >= proof.objective.upper / proof.lower_bound.lower - 1
    assert proof.gap <= design.gap + 1e-9


@pytest.mark.parametrize("name", [name for name in COVERED if CASES[name].problem.axes == "space"])
def test_budgets_of_fifty_digits_keep_what_is_proved(name: str) -> None:
    design, proof = solved(name)
    problem = design.problem
    assert isinstance(problem, SpaceProblem)
    with mpmath.workdps(DIGITS):
        precision = mpmath.inverse(many_digits(design.covariance))
        worst = max(precision[i, i] / x for i, x in enumerate(problem.budget.tolist()))
        assert worst <= proof.sensitivity_squared <= 1
        if not problem.structure.known_seeds:  # else of the nodes that know no seeds
            assert proof.sensitivity_squared <= worst + 1e-12


# --- where rounding bites -------------------------------------------------------------------------


def in_space(kind: str, nodes: int, **kwargs: Any) -> SpaceProblem:
    return SpaceProblem.from_graph(build_graph(kind, nodes=nodes), **kwargs)


def nuclear(problem: SpaceProblem, weights: np.ndarray) -> Any:
    """(tr (V^1/2 W^T W V^1/2)^1/2)^2 / <tau, v>, to the digits of mpmath."""
    half = many_digits(problem.mixing)
    for j, v in enumerate(weights.tolist()):
        for i in range(half.rows):
            half[i, j] *= mpmath.sqrt(mpmath.mpf(v))
    trace = sum(mpmath.svd_r(half, compute_uv=False))
    pairs = zip(problem.budget.tolist(), weights.tolist(), strict=True)
    return trace**2 / sum(mpmath.mpf(t) * mpmath.mpf(v) for t, v in pairs)


@pytest.mark.parametrize(
    "problem",
    [
        in_space("star", 7),  # W is singular, the optimum is not
        in_space("path", 6, budget=np.geomspace(1e-3, 1.0, 6)),
        in_space("ring", 5, budget=1e-12),
    ],
    ids=["singular", "uneven", "small units"],
)
def test_bounds_are_below_those_of_the_multipliers_to_fifty_digits(problem: SpaceProblem) -> None:
    design = solve(problem, gap=1e-9).design
    assert design is not None
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    with mpmath.workdps(DIGITS):
        truth = nuclear(problem, design.proof["dual_weights"])
        assert proof.lower_bound.lower <= truth
        assert proof.lower_bound.lower >= truth * (1 - 1e-11)


@pytest.mark.parametrize(
    "problem",
    [
        in_space("complete", 6, max_variance=10.0),
        in_space("path", 2, max_variance=5.0),
        in_space("ring", 6, max_variance=1.01),
        in_space("star", 5, max_variance=2.0, min_variance=1.5),
        in_space("path", 5, error=ErrorMeasure(horizon=4)),
        TimeProblem.prefix(participation=FixedEpoch(epochs=8, separation=3)),
        TimeProblem.prefix(participation=single(40)),
        SpaceTimeProblem.from_graph(
            build_graph("path", nodes=3), participation=single(3), joint="full", max_variance=4.0
        ),
        in_space("path", 6, structure=SpaceStructure(kind="neighbourhood")),
        in_space("ring", 7, structure=SpaceStructure(kind="hops", hops=2)),
    ],
    ids=lambda problem: f"{problem.axes} {problem.name}",
)
def test_it_is_proved_where_constraints_bind_and_matrices_are_singular(problem: Any) -> None:
    design = solve(problem).design
    assert design is not None
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap <= 1.1e-6
    assert proof.lower_bound.lower <= design.objective


def test_baselines_are_proved_by_uniform_multipliers() -> None:
    problem = in_space("path", 4)
    design = baseline(problem, "ldp")
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap == pytest.approx(design.gap, rel=1e-9)


RING = build_graph("ring", nodes=4)
UNEVEN = np.array([1.0, 3.0, 0.7, 2.0])
STEPS = FixedEpoch(epochs=2, separation=3)
SEEDS, TOEPLITZ = SpaceStructure(kind="edge-local"), TimeStructure(kind="toeplitz")


@pytest.mark.parametrize(
    ("problem", "truth"),
    [
        # One noise of variance 1 / (n^2 tau) at n nodes, whatever W and the structure are.
        (SpaceProblem.from_graph(RING, budget=UNEVEN), 1 / (4 * 0.7)),
        (SpaceProblem.from_graph(RING, budget=3.0, structure=SEEDS), 1 / 12),
        (SpaceProblem.from_graph(RING, structure=SpaceStructure(kind="polynomial")), 1 / 4),
        (SpaceProblem.from_graph(RING, structure=SpaceStructure(kind="pairwise")), 1 / 4),
        # Over three steps the mean keeps what was added: 1 + 2 + 3 times.
        (SpaceProblem.from_graph(RING, error=ErrorMeasure(horizon=3)), 6 / 4),
        # Independent steps, in k of which a record takes part: 1 + ... + T over T, k times.
        (TimeProblem.prefix(participation=STEPS), 42.0),
        (TimeProblem.from_graph(RING, participation=STEPS), 42 / 4),
        (
            TimeProblem.from_graph(
                RING, participation=STEPS, structure=TimeStructure(kind="toeplitz")
            ),
            42 / 4,
        ),
    ],
    ids=lambda value: getattr(value, "axes", None),
)
def test_what_a_trusted_server_releases_is_proved(problem: Any, truth: float) -> None:
    design = baseline(problem, "cdp")
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert not proof.bounded
    assert proof.gap == math.inf
    assert proof.objective.lower <= design.objective <= proof.objective.upper
    assert proof.objective.upper == pytest.approx(truth, rel=1e-12)
    assert 1 - 1e-12 <= proof.sensitivity_squared <= 1
    assert "within its budget" in proof_note(proof)
    assert verify(design, rigorous=True).ok


def test_what_a_trusted_server_releases_is_proved_over_steps() -> None:
    """Its error is that of one model, which all n nodes hold: n times 1 / n^2 of it."""
    problem = SpaceTimeProblem.from_graph(RING, participation=STEPS, budget=UNEVEN)
    alone = solve(TimeProblem.prefix(participation=STEPS)).design
    assert alone is not None
    proof = prove(baseline(problem, "cdp"))
    assert proof.rigorous, proof.why_not
    assert proof.objective.upper == pytest.approx(alone.objective / (4 * 0.7), rel=1e-5)


def with_covariance(design: Design, r: np.ndarray) -> Design:
    return replace(design, noise=replace(design.noise, space=r))


@pytest.mark.parametrize("both", [False, True])
def test_noise_that_a_trusted_server_may_not_release_is_not_passed(both: bool) -> None:
    if both:
        problem: Any = SpaceTimeProblem.from_graph(RING, participation=STEPS, budget=UNEVEN)
    else:
        problem = SpaceProblem.from_graph(RING, budget=UNEVEN)
    design = baseline(problem, "cdp")
    r = design.covariance
    assert not prove(with_covariance(design, r * (1 - 1e-13))).feasible
    tilted = r.copy()
    tilted[1, 1] *= 1 + 1e-15
    for other in (tilted, -r, 0 * r, r * math.nan, np.eye(4)):
        found = prove(with_covariance(design, other))
        assert not found.rigorous
        assert "one noise for all nodes" in found.why_not
    # That of nodes, said to be a server's, and the other way round.
    local = baseline(problem, "ldp")
    assert not prove(replace(local, trust="central")).rigorous
    assert not prove(replace(design, trust="local")).rigorous


def test_strategies_without_negative_entries_are_proved_under_fixed_participation() -> None:
    design, proof = solved("no negative entries")
    assert proof.rigorous
    below = DenseStrategy(strategy=design.strategy * (1 - 2e-16 - 2 * np.tri(3, k=-2)))
    assert below.strategy.min() < 0
    found = prove(replace(design, noise=Noise.of_strategy(below)))
    assert "negative" in found.why_not
    assert found.gap == math.inf


# --- arithmetic that is worse than it is ----------------------------------------------------------


def scaled_by(factor: float, original: Any) -> Any:
    """A function whose numbers are that much larger."""

    def wrong(*given: Any, **how: Any) -> Any:
        found = original(*given, **how)
        return tuple(x * factor for x in found) if isinstance(found, tuple) else found * factor

    return wrong


def holds(name: str, monkeypatch: pytest.MonkeyPatch, patched: list[tuple[Any, str, Any]]) -> Proof:
    """The proof of a design by other functions, which claims no more than is true."""
    design, honest = solved(name)
    with monkeypatch.context() as patch:
        for module, function, other in patched:
            patch.setattr(module, function, other)
        found = prove(design)
    known = 1e-8  # that is how well optima are
    assert exact_objective(name) <= found.objective.upper, name
    assert found.lower_bound.lower <= optimum(name) * (1 + known), name
    for proved, truth in (
        (found.sensitivity_squared, honest.sensitivity_squared),
        (found.variance_ratio, honest.variance_ratio),
        (found.floor_ratio, honest.floor_ratio),
    ):
        assert proved is None or truth is None or proved >= truth * (1 - known), name
    return found


ASKED = {
    "inverses of triangles": (linalg, "inverse_of_triangular"),
    "inverses": (np.linalg, "inv"),
    "eigenvalues": (np.linalg, "eigh"),
    "factors": (scipy.linalg, "cholesky"),
}
"""Whose answers a proof takes for guesses."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("by", [1e-3, -1e-3])
def test_answers_that_are_off_prove_less_and_nothing_that_is_wrong(
    what: str, by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a thousandth, which everything that follows from them has to allow for."""
    module, function = ASKED[what]
    wrong = [(module, function, scaled_by(1 + by, getattr(module, function)))]
    proved = {name: holds(name, monkeypatch, wrong) for name in COVERED}
    for name, found in proved.items():
        assert found.objective.lower <= exact_objective(name), name
    assert any(found.rigorous for found in proved.values())


ROUNDED = {
    "up": 1e-3,
    "row_norms": 1e-3,
    "column_norms": 1e-3,
    "sum_up": 1e-3,
    "products_up": 1e-3,
    "products_down": -1e-3,
}


@pytest.mark.parametrize("function", ROUNDED)
def test_roundings_are_to_the_side_on_which_less_is_proved(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made larger than any rounding is, so that one to the other side shows."""
    wrong = scaled_by(1 + ROUNDED[function], getattr(enclosures, function))
    users = [module for name, module in sys.modules.items() if name.startswith("noisedesign.")]
    patched = [(module, function, wrong) for module in users if hasattr(module, function)]
    assert len(patched) > 1
    for name in COVERED:
        found = holds(name, monkeypatch, patched)
        if not (function == "up" and CASES[name].family == "modal"):  # undone for the lower end
            assert found.objective.lower <= exact_objective(name), name


# --- what is not proved ---------------------------------------------------------------------------


FIXED = {"participation": FixedEpoch(epochs=2, separation=2)}
IN_BINS = {"participation": BallsInBins(epochs=2, separation=2), "privacy": TARGET}


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (TimeProblem.prefix, {"structure": TimeStructure(nonnegative=True)}),
        (TimeProblem.prefix, {"structure": TimeStructure(kind="banded", bands=2)}),
        (partial(SpaceTimeProblem, mixing=CASES["a product"].problem.mixing), {}),
    ],
    ids=["in time", "banded", "a product"],
)
def test_the_account_of_random_participation_is_never_passed(make: Any, own: Any) -> None:
    """Nor where its noise would do for any participation, so that the account does not matter: the
    multipliers bound designs for that participation only."""
    fixed = solve(make(**FIXED, **own), gap=1e-3).design
    assert fixed is not None
    assert prove(fixed).rigorous
    problem = make(**IN_BINS, **own)
    found = prove(replace(fixed, problem=problem))
    assert not found.rigorous
    assert not found.feasible
    assert found.gap == math.inf
    assert "the account of random participation is not covered" in found.why_not
    assert "epsilon and delta, by the account of random participation" in found.left_out
    assert OF_GAUSSIAN_NOISE not in found.left_out
    family = family_of(problem)
    with pytest.raises(NotProvedError, match="random participation"):
        family.rigorous_bound(family.program(problem), fixed.proof)
    with pytest.raises(NotProvedError, match="random participation"):
        sensitivity_above(exactly(fixed.noise.dense_strategy), problem.participation)


@pytest.mark.parametrize(
    "both", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["in time", "a product"]
)
def test_objective_and_fixed_bound_are_proved_under_random_participation(both: bool) -> None:
    """Of independent noise, C = c I: (1 + 2 + 3 + 4) / c^2, and by uniform multipliers, as tr X is
    at most b = 2, half of the square of the nuclear norm of prefix sums."""
    problem: Any = TimeProblem.prefix(**IN_BINS)
    if both:  # of one node
        problem = SpaceTimeProblem(mixing=np.eye(1), **IN_BINS)
    design = baseline(problem, "ldp")
    proof = prove(design)
    assert not proof.rigorous
    assert "feasibility and the lower bound: the account" in proof.why_not
    scale = float(design.noise.dense_strategy[0, 0])
    assert proof.objective.lower <= 10 / scale**2 <= proof.objective.upper
    assert proof.objective.width <= 1e-12 * proof.objective.upper
    truth = np.linalg.svd(np.tri(4), compute_uv=False).sum() ** 2 / 2
    assert proof.fixed_lower_bound is not None
    assert proof.fixed_lower_bound.lower == pytest.approx(truth, rel=1e-12)
    assert proof.fixed_lower_bound.lower <= truth * (1 + 1e-14)

    none = {"dual_blocks": np.full((2, 2, 2), math.nan)}
    if not both:
        assert prove(replace(design, proof=none)).fixed_lower_bound == (0, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True], ids=["in time", "a product"])
def test_forged_objectives_and_fixed_bounds_are_refused_under_random_participation(
    both: bool,
) -> None:
    problem: Any = TimeProblem.prefix(**IN_BINS)
    if both:
        problem = SpaceTimeProblem(mixing=np.eye(1), **IN_BINS)
    design = baseline(problem, "ldp")

    def unproved(forged: Design) -> set[str]:
        checks = verify(forged, rigorous=True).checks
        return {check.name for check in checks if not check.ok and check.name.startswith("proved")}

    assert not unproved(design)
    made = design.certificate
    assert made.fixed_lower_bound is not None
    told = replace(
        made,
        fixed_lower_bound=made.fixed_lower_bound * (1 + 1e-9),
        objective=made.objective * (1 - 1e-9),
    )
    louder = DenseStrategy(strategy=design.noise.dense_strategy * (1 - 1e-9))
    noise = replace(design.noise, strategy=louder)
    assert unproved(replace(design, certificate=told)) == {"proved fixed bound", "proved objective"}
    assert unproved(replace(design, noise=noise)) == {"proved objective"}


@pytest.mark.slow
def test_designs_for_random_participation_are_no_pass() -> None:
    design = solve(TimeProblem.prefix(**IN_BINS)).design
    assert design is not None
    assert verify(design).ok
    outcome = verify(design, rigorous=True)
    assert not outcome.ok
    assert not outcome.rigorous


def test_what_names_something_that_is_not_proved_is_not_rigorous() -> None:
    """Whatever its numbers are; and neither is what has no finite gap, or exceeds something."""
    whole = Proof(
        objective=Interval(1.0, 2.0),
        lower_bound=Interval(1.0, 1.0),
        sensitivity_squared=1.0,
        variance_ratio=1.0,
        floor_ratio=1.0,
    )
    assert whole.rigorous
    assert replace(whole, bounded=False, lower_bound=UNPROVED).rigorous
    for lacking in (
        {"why_not": "the lower bound: it is an estimate"},
        {"sensitivity_squared": 1 + EPS},
        {"variance_ratio": 1 + EPS},
        {"floor_ratio": 1 + EPS},
        {"sensitivity_squared": math.nan},
        {"lower_bound": UNPROVED},
        {"objective": UNPROVED},
        {"objective": UNPROVED, "bounded": False},
    ):
        assert not replace(whole, **lacking).rigorous, lacking


def test_what_a_proof_leaves_out_it_says() -> None:
    """Budgets are proved; what a target makes of them, with or without chance, is not."""
    kinds = {single(1): "Gaussian", BallsInBins(epochs=1, separation=2): "random participation"}
    for scheme, words in kinds.items():
        problem = in_space("ring", 4, privacy=TARGET, participation=scheme)
        design = solve(problem).design
        assert design is not None
        outcome = verify(design, rigorous=True)
        assert outcome.proof is not None
        assert outcome.proof.rigorous
        assert words in outcome.proof.left_out
        (check,) = (check for check in outcome.checks if check.name == "rigorous")
        assert outcome.proof.left_out in check.note
        assert outcome.proof.left_out in proof_note(outcome.proof)
    assert solved("ring")[1].left_out == ""


def test_what_is_outside_of_its_bands_is_not_passed() -> None:
    """The bound is that of banded strategies, and others have less error."""
    design, proof = solved("two bands")
    assert proof.rigorous
    wider = design.strategy.copy()
    wider[2, 0] = 1e-12
    noise = Noise.of_strategy(DenseStrategy(strategy=wider))
    assert "bands" in prove(replace(design, noise=noise)).why_not


def test_a_matrix_that_is_singular_to_rounding_is_not_passed() -> None:
    """The error of consensus sees no common noise; H is given in entries, which round."""
    problem = in_space("path", 5, error=ErrorMeasure(horizon=3, of="consensus"), max_variance=4.0)
    design = solve(problem).design
    assert design is not None
    assert prove(design).rigorous  # the multipliers of caps make up for it
    uncapped = replace(design, problem=replace(problem, max_variance=None))
    proof = prove(replace(uncapped, proof={"dual_weights": design.proof["dual_weights"]}))
    assert not proof.rigorous
    assert "lower bound" in proof.why_not


def test_noise_that_exceeds_a_budget_by_a_rounding_is_not_passed() -> None:
    design, proof = solved("ring")
    assert proof.sensitivity_squared <= 1
    less = replace(design, noise=Noise.of_covariance(design.covariance * (1 - 1e-12)))
    found = prove(less)
    assert not found.rigorous
    assert not found.feasible
    assert "sensitivity" in found.why_not


def test_noise_that_is_not_symmetric_is_not_passed() -> None:
    design, _ = solved("ring")
    tilted = design.covariance.copy()
    tilted[0, 1] += 1e-9
    found = prove(replace(design, noise=Noise.of_covariance(tilted)))
    assert not found.rigorous
    assert "symmetric" in found.why_not


def test_what_is_stored_of_seeds_is_judged_as_well_as_its_blocks() -> None:
    """R a rounding or two below the sum of its blocks is that sum to the verdict, and exceeds a
    budget all the same."""
    design, proof = solved("seeds of edges")
    room = 1 - proof.sensitivity_squared
    assert 0 <= room < 1e-13
    less = replace(design, noise=Noise.of_covariance(design.covariance * (1 - 1e-13)))
    found = prove(less)
    assert not found.feasible
    assert found.objective.lower < proof.objective.lower


def test_arrays_of_another_shape_prove_nothing_and_raise_nothing() -> None:
    for name in ("ring", "sums", "any two steps", "two bands", "seeds of edges", "a product"):
        design, _ = solved(name)
        for array, values in design.proof.items():
            for other in (values[:0], values.ravel()[:1], np.ones((2, 3, 4))):
                found = prove(replace(design, proof={**design.proof, array: other}))
                assert found.lower_bound.lower <= design.objective


def test_noise_that_exceeds_a_cap_is_not_passed() -> None:
    design, proof = solved("singular, capped")
    assert proof.variance_ratio is not None
    assert proof.variance_ratio <= 1
    over = design.covariance * ((1 + 1e-8) / proof.variance_ratio)
    found = prove(replace(design, noise=Noise.of_covariance(over)))
    assert not found.rigorous
    assert "cap" in found.why_not


@pytest.mark.parametrize("entry", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["ring", "singular, capped", "sums", "seeds of edges"])
def test_what_is_no_number_proves_nothing(name: str, entry: float) -> None:
    design, _ = solved(name)
    for array, values in design.proof.items():
        spoiled = {**design.proof, array: np.full_like(values, entry)}
        assert not (values.size and prove(replace(design, proof=spoiled)).rigorous)
    if design.axes == "space":
        noise = Noise.of_covariance(np.full_like(design.covariance, entry))
    else:
        noise = Noise.of_strategy(DenseStrategy(strategy=np.full_like(design.strategy, entry)))
    assert not prove(replace(design, noise=noise)).rigorous


@pytest.mark.parametrize("name", ["uneven budgets", "singular, capped", "two epochs", "floored"])
def test_multipliers_of_no_use_prove_less_and_never_more(name: str) -> None:
    design, honest = solved(name)
    rng = np.random.default_rng(0)
    for factor in (-1.0, 1e-200, 1e200):
        spoiled = {key: array * factor for key, array in design.proof.items()}
        found = prove(replace(design, proof=spoiled))
        assert found.lower_bound.lower <= honest.objective.upper
    for _ in range(5):
        spoiled = {
            key: array * rng.uniform(0, 2, array.shape) for key, array in design.proof.items()
        }
        found = prove(replace(design, proof=spoiled))
        assert found.lower_bound.lower <= honest.objective.upper


def test_a_product_of_too_many_pairs_without_modes_is_not_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noisedesign.families.kronecker.rigorous.MOST_COORDINATES", 5)
    design, _ = solved("a product")
    assert prove(design).rigorous
    at_last = replace(design.problem, error=ErrorMeasure(horizon=2, of="last-iterate"))
    found = prove(replace(design, problem=at_last))
    assert not found.rigorous
    assert "6 pairs of node and step" in found.why_not
    assert "at most 5 are covered" in found.why_not


def test_polynomials_of_too_many_nodes_are_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    design, proof = solved("a polynomial")
    assert proof.rigorous
    monkeypatch.setattr("noisedesign.families.polynomial.family.WRITTEN_OUT", 2)
    found = prove(design)
    assert not found.rigorous
    assert found.feasible  # that it keeps its budgets is
    assert proof.sensitivity_squared <= found.sensitivity_squared <= 1
    assert found.objective.upper == np.inf
    assert "the lower bound: it and the error are estimates" in found.why_not
    assert "of which at most 2 are covered; that budgets hold is proved" in found.why_not
    space = design.noise.space
    louder = replace(design.noise, space=replace(space, scale=space.scale * (1 - 1e-6)))
    refused = prove(replace(design, noise=louder))
    assert not refused.feasible
    assert "is proved" not in refused.why_not


def test_coefficients_whose_products_are_no_numbers_prove_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design, _ = solved("a polynomial")
    monkeypatch.setattr("noisedesign.families.polynomial.family.WRITTEN_OUT", 2)
    space = design.noise.space
    for factor in (1e300, 1e-300):
        other = replace(space, noise=space.noise * factor)
        assert not prove(replace(design, noise=replace(design.noise, space=other))).rigorous


def test_what_is_written_out_of_a_polynomial_has_the_error_of_all_its_steps() -> None:
    """H = sum_t c_t (W^t)^T W^t, by hand for two steps."""
    design, _ = solved("a polynomial")
    family = family_of(design.problem)
    program = family.program(design.problem)
    w = program.mixing.toarray()
    weights = {"dual_weights": np.ones(program.size)}
    once = family.rigorous_bound(program, weights)
    longer = copy.copy(program)
    object.__setattr__(longer, "powers", np.array([2.0, 1.0]))
    gram = 2 * w.T @ w + (w @ w).T @ w @ w
    judged = family.rigorous_judge(longer, design.noise, {})
    truth = float(np.sum(gram * design.covariance))
    assert judged.objective.lower * (1 - 1e-13) <= truth <= judged.objective.upper * (1 + 1e-13)
    bound = family.rigorous_bound(longer, weights)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum()
    assert bound.lower == pytest.approx(roots**2 / np.sum(program.budget), rel=1e-10)
    assert bound.lower > once.upper


def test_large_designs_are_not_proved_as_they_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    design, proof = solved("ring")
    found = proof_on_save(design)
    assert found is not None
    assert found.gap == proof.gap
    product, _ = solved("a product")
    assert len(product.strategy) * len(product.covariance) == 6
    monkeypatch.setattr("noisedesign.design.proof.PROVED_ON_SAVE", 5)
    assert proof_on_save(design) is not None
    assert proof_on_save(product) is None
    monkeypatch.setattr("noisedesign.design.proof.PROVED_ON_SAVE", 4)
    assert proof_on_save(design) is None


@pytest.mark.parametrize("name", ["complete-10-edge-local-capped", "florentine-20x16-mh"])
def test_shipped_problems_whose_budgets_leave_little_room_are_proved(name: str) -> None:
    """Caps leave little room above the budgets, and 20 epochs add up 400 roundings a batch."""
    (path,) = (ROOT / "problems").rglob(f"{name}.toml")
    design = solve(load_problem(path).problem).design
    assert design is not None
    proof = prove(design)
    assert proof.rigorous, proof.why_not
    assert proof.gap <= 1e-6
