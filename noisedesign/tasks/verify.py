"""Does a stored design keep its word? Everything it claims, computed again in plain numpy.

Only the stored arrays are believed to be what they are; objective, bound, gap, sensitivity and
feasibility follow from them through :mod:`program.certificate`, whoever made the design.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import symmetrized
from noisedesign.base.shown import Shown, ShownInline, shortened, words as in_words
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.files.design_file import (
    NotRebuiltError,
    StoredDesign,
    StoredStreamingDesign,
    as_stored,
    differences_from_text,
    manifest_of,
    streaming_manifest_of,
    text_sha256,
)
from noisedesign.files.manifest import FIELD, differences, relative_difference
from noisedesign.privacy.amplification import Amplified
from noisedesign.privacy.amplification.directions import UNAMPLIFIED
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.program.certificate import Certificate
from noisedesign.program.design import Design
from noisedesign.program.family import OPERATIONS_PER_CALL, family_of
from noisedesign.program.polar import ROUNDED
from noisedesign.program.problem import Problem, problem_of, theorem_of
from noisedesign.program.proof import RELEASED, Proof, prove, prove_streaming
from noisedesign.program.streaming import StreamingDesign
from noisedesign.system.workloads import WORKLOADS

RELATIVE_TOLERANCE = 1e-9
"""Objective, bound and sensitivity, computed on another machine: sums of up to a few million
products agree to about 1e-12, and a gap of 1e-9 on request stays meaningful."""

OPEN = 0.05
"""Of what random vectors leave open of a number, so much may be claimed otherwise and no more: who
wrote the file chose what they leave open."""

PROBLEM_TOLERANCE = 1e-12
"""A problem rebuilt from its text: closed forms evaluated again, perhaps by another BLAS."""

SAMPLED = 1e-6
"""Relative difference of an epsilon from the same samples on another machine, which rounds the
factor of a Gram matrix otherwise."""

ROUNDINGS = 8
"""Multiple of size * EPS * condition allowed to an inverse; the certificate's own head room."""

LARGEST_ROUNDING = 1e-6
"""However ill-conditioned R is, rounding is no excuse for more than this."""

PROOF_TOLERANCE = 1e-10
"""What a claim may differ by from what is proved, besides the roundings that the proof allows for:
a tenth of what two machines may."""

MOST_WORK = 1e12
"""Some minutes on one core."""

_ONLY_CLAIMED = "not verified: only the manifest says so"
"""Of a privacy target that no problem asks for."""

_BY_PROBLEM = "name the problem file, and it is compared with that"
"""What helps where a problem is not built from the text in the file."""

DIGEST = 36
"""Characters of a claim that are shown: of a digest the beginning is enough."""


@dataclass(frozen=True, repr=False)
class Check(ShownInline):
    """One claim.

    Attributes:
        name: of what is claimed.
        ok: whether it holds; None where it was not checked.
        claimed: the value in the file.
        found: the value computed again.
        note: what a reader should know; where it was not checked, why.
    """

    name: str
    ok: bool | None
    claimed: float | str | None = None
    found: float | str | None = None
    note: str = ""

    def _title(self) -> str:
        return self.name

    def _facts(self) -> dict[str, object]:
        return {"": self.words}

    @property
    def words(self) -> str:
        """What became of the claim, in words."""
        verdict = "not checked" if self.ok is None else in_words(self.ok)
        numbers = [
            f"{name} {shortened(in_words(value), DIGEST)}"
            for name, value in (("claimed", self.claimed), ("found", self.found))
            if value is not None
        ]
        return ", ".join([verdict, *numbers, *([self.note] if self.note else [])])


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Shown):
    """What became of every claim of a design file.

    Attributes:
        checks: the claims, each with ``name``, ``ok`` (None: not checked), what is ``claimed`` and
            ``found``, and a ``note``.
        proof: what is proved with every rounding accounted for, where that was asked for.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=nd.single(2))).design
        >>> verification = nd.verify(design)
        >>> verification.ok, verification.not_checked  # there is no problem file
        (True, ('problem',))
        >>> {check.name: check.ok for check in verification.checks}["objective"]
        True
    """

    checks: tuple[Check, ...]
    proof: Proof | None = None

    def _title(self) -> str:
        return "Verification: every claim holds" if self.ok else "Verification: a claim is wrong"

    def _facts(self) -> dict[str, object]:
        return {check.name: check.words for check in self.checks}

    @property
    def ok(self) -> bool:
        """Whether nothing that could be checked was found otherwise."""
        # By its truth: a comparison of numpy numbers is no ``False`` itself.
        return all(check.ok is None or bool(check.ok) for check in self.checks)

    @property
    def rigorous(self) -> bool:
        """Whether feasibility and a gap are proved with every rounding accounted for."""
        return self.proof is not None and self.proof.rigorous

    @property
    def not_checked(self) -> tuple[str, ...]:
        """Names of the claims that were not checked, whose ``note`` says why."""
        return tuple(check.name for check in self.checks if check.ok is None)


def verify(
    stored: StoredDesign | StoredStreamingDesign | Design | StreamingDesign | Any,
    *,
    problem: Problem | None = None,
    rigorous: bool = False,
) -> Verification:
    """Recompute every claim of a design from its arrays.

    A design that is in no file yet, as it is or in a solution, is judged as its file would be.

    Nothing outside the file is touched, whatever its text names, and the work is bounded by what
    it holds.

    A design for a trusted server (``trust`` "central") does not claim the budgets of single
    nodes, nor a bound: only its matrix and objective are checked, and with ``rigorous`` the
    sensitivity of the average that the server releases.

    Args:
        stored: what :func:`noisedesign.load_design` gave, a design or a solution.
        problem: what the design was asked to solve, from a source you trust, or a loaded file of
            it: it is compared with this in place of the text in the file.
        rigorous: also prove feasibility, objective and bound with every rounding accounted for
            (:mod:`noisedesign.program.rigorous`). What cannot be proved is not ``ok``, and its
            check says why.

    Returns:
        What became of every claim.

    Raises:
        InputError: no design, no problem; naming ``design file``: it states a problem of far more
            work than its arrays.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))).design
        >>> stored = nd.load_design(nd.save_design(design, "ring.npz"))
        >>> nd.verify(stored).ok
        True
        >>> verification = nd.verify(stored, rigorous=True)
        >>> verification.ok, verification.rigorous, verification.proof.gap < 1e-12
        (True, True, True)
    """
    stored = as_stored(stored)
    if isinstance(stored, StoredStreamingDesign):
        if problem is not None:
            raise InputError(
                "problem",
                expected="none for a streaming design, which has its own workload",
                got=_checks.describe(problem),
            )
        with np.errstate(all="ignore"):
            checks = _streaming_checks(stored)
            streamed = prove_streaming(stored.design) if rigorous else None
        if streamed is not None:
            checks += _proof_checks(streamed, stored.design)
        return Verification(checks=tuple(checks), proof=streamed)
    given = None if problem is None else problem_of(problem, sparse=True)
    _check_work(stored.design.problem)
    # A re-sealed file may hold any finite numbers: overflow shows in the checks, not as warnings.
    with np.errstate(all="ignore"):
        proof = prove(stored.design) if rigorous else None
        return Verification(
            proof=proof,
            checks=(
                *_matrix_checks(stored),
                _workload_check(stored.design.problem),
                *_structure_checks(stored),
                *_claim_checks(stored),
                _manifest_check(stored),
                *_text_checks(stored),
                *_problem_checks(stored, given),
                *([] if proof is None else _proof_checks(proof, stored.design)),
            ),
        )


def _streaming_checks(stored: StoredStreamingDesign) -> list[Check]:
    """Error, sensitivity and bound from the coefficients or buffers, without a T x T array."""
    design = stored.design
    strategy, workload, scheme = design.strategy, design.workload, design.participation
    sensitivity = strategy.squared_sensitivity(scheme)
    error = strategy.squared_error(workload)
    bound = lower_bound_of_unrestricted_optimum(workload, scheme)
    objective = error * sensitivity.squared
    same = sensitivity.kind == design.sensitivity_kind
    again = streaming_manifest_of(design, stored.arrays)
    again["library"] = stored.manifest["library"]
    # The product of two stored numbers; the manifest says it as well.
    claimed = float(stored.manifest["objective"])
    del again["objective"]
    unrestricted = design.lower_bound_of_unrestricted_optimum
    words = "squared error at unit sensitivity"
    checks = [
        _compared("squared error", design.squared_error, error, "of unit noise"),
        _compared(
            "sensitivity",
            design.squared_sensitivity,
            sensitivity.squared,
            f"squared, {sensitivity.kind}",
            also=same,
        ),
        _compared("objective", claimed, objective, words),
        _proved("lower bound", unrestricted, bound, "holds for strategies of every structure"),
        _consistent(again, stored.manifest),
    ]
    if (target := design.privacy) is not None:
        checks.append(_target_check(target, ok=None, note=_ONLY_CLAIMED))
    return checks


def _check_work(problem: Problem) -> None:
    """That what a manifest states in few words, and no array has the size of, is no endless work.

    Raises:
        InputError: naming ``design file``.
    """
    steps = problem.horizon if problem.axes == "space" else problem.participation.horizon
    drawn = 0 if problem.random is None else problem.rounds * (1 + problem.random.outcomes)
    # Operations, up to a factor, beyond those on matrices of the sizes of its arrays.
    needed = steps * drawn * OPERATIONS_PER_CALL + family_of(problem).work(problem)
    if problem.schedule is not None:
        phases, n = problem.schedule.shape[:2]
        needed += float(min(steps, phases) * steps) * n**3
    if needed > MOST_WORK:
        raise InputError(
            FIELD,
            expected=f"a problem of at most {MOST_WORK:g} operations to verify",
            got=f"about {needed:.1g}",
            remedy="Its error.horizon, observers, matchings or known_seeds are out of proportion.",
        )


# --- the matrices themselves ----------------------------------------------------------------


def _matrix_checks(stored: StoredDesign) -> list[Check]:
    checks = []
    if "covariance" in stored.arrays:
        checks.append(_covariance_check(stored.arrays["covariance"]))
    if stored.design.axes != "space":
        checks += _strategy_checks(stored)
    return checks


def _strategy_checks(stored: StoredDesign) -> list[Check]:
    form, noising = stored.design.strategy_form, stored.arrays.get("noising_matrix")
    # C^-1 is what the bands, coefficients, buffers or modes of the file say it is, unless stored.
    pairs = form.factors() if noising is None else [(stored.design.strategy, noising)]
    above = residual = allowed = 0.0
    for factor, inverse in pairs:
        above = max(above, *(float(np.abs(np.triu(m, 1)).max()) for m in (factor, inverse)))
        found = float(np.abs(inverse @ factor - np.eye(len(factor))).max())
        rounding = float(np.linalg.norm(inverse) * np.linalg.norm(factor))
        explained = ROUNDINGS * settings.rank_tolerance(len(factor)) * rounding
        if not allowed or found * allowed > residual * explained:
            residual, allowed = found, explained
    note = f"largest entry of C^-1 C - I; rounding explains {allowed:.1e}"
    return [
        Check("causal", above == 0, 0.0, above, "largest entry of C and C^-1 above the diagonal"),
        Check("inverse", residual <= min(allowed, 1.0), 0.0, residual, note),
    ]


def _covariance_check(covariance: Array) -> Check:
    scale = float(np.abs(covariance).max())
    asymmetry = float(np.abs(covariance - covariance.T).max())
    smallest = _smallest_eigenvalue(covariance)
    ok = asymmetry <= settings.SYMMETRY_TOLERANCE * scale
    ok = ok and smallest >= -settings.rank_tolerance(len(covariance)) * scale
    note = f"asymmetry of R {asymmetry:.1e}, smallest eigenvalue {smallest:.3g}"
    return Check("covariance", ok, "symmetric, no negative eigenvalue", note=note)


def _smallest_eigenvalue(a: Array) -> float:
    try:
        return float(np.linalg.eigvalsh(symmetrized(a))[0])
    except np.linalg.LinAlgError:
        return float("nan")


def _workload_check(problem: Problem) -> Check:
    """H is what its kind says it is; in space it is formed from W, which loading has checked."""
    if problem.axes != "time":
        return Check("workload", True, "by W", "by W")
    smallest = _smallest_eigenvalue(problem.gram)
    ok = smallest >= -settings.GRAM_NEGATIVITY * float(np.abs(problem.gram).max())
    difference = relative_difference(problem.gram, problem.defined_gram)
    ok, definition = ok and difference <= PROBLEM_TOLERANCE, WORKLOADS[problem.workload].definition
    note = f"relative difference of H from its definition: {definition}"
    return Check("workload", ok, problem.workload, difference, note)


def _structure_checks(stored: StoredDesign) -> list[Check]:
    """Where a structure is claimed, that the matrices have it; noise of a trusted server has its
    own."""
    entry = stored.manifest["structure"]
    if entry is None or stored.design.trust == "central":
        return []
    claimed = f"{entry['time']} in time, {entry['space']} in space"
    claimed += ", no negative entries in C" * bool(entry["nonnegative"])
    design, family = stored.design, family_of(stored.design.problem)
    try:
        found = family.departure(family.program(design.problem), design.noise, design.proof)
    except np.linalg.LinAlgError as error:
        return [Check("structure", False, claimed, note=str(error))]
    note = "largest departure from it, relative"
    return [Check("structure", found <= settings.STRUCTURE_TOLERANCE, claimed, found, note)]


# --- numbers --------------------------------------------------------------------------------


def _claim_checks(stored: StoredDesign) -> list[Check]:
    design = stored.design
    claimed = design.certificate
    try:
        found = _judged(stored)
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        return [Check("objective", False, claimed.objective, note=str(error))]
    allowed, of_bound = _allowed(found)
    objective = _compared(
        "objective", claimed.objective, found.objective, _estimated(found), tolerance=allowed
    )
    if design.trust == "central":
        why = "not claimed: the noise protects only the average a trusted server releases"
        skipped = ("sensitivity", "feasible", "lower bound", "gap")
        return [objective, *(Check(name, None, note=why) for name in skipped)]
    multipliers = design.proof or design.relaxed_proof
    by = "the stored multipliers" if multipliers else "uniform multipliers"
    return [
        objective,
        _sensitivity_check(claimed, found, stored),
        _feasibility_check(claimed, found, stored),
        _proved("lower bound", claimed.lower_bound, found.lower_bound, f"proved by {by}", of_bound),
        _gap_check(claimed, found, allowed + of_bound),
        *_confidence_checks(claimed, found),
        *_unrestricted_checks(claimed, found),
        *_random_checks(claimed, found, stored),
    ]


def _judged(stored: StoredDesign) -> Certificate:
    design = stored.design
    problem = design.problem
    family = family_of(problem)
    if design.trust == "central":
        family, program = family.released(problem)
    else:
        program = family.afresh(family.program(problem))
        account = design.certificate.account
        if account is not None and account.which == UNAMPLIFIED:  # nobody drew samples
            program = family.hurried(program, seconds=0.0)
    bound = family.bound(program, design.proof, noise=design.noise)
    found = family.certificate(
        program, design.noise, design.proof, bound=bound, everywhere=_everywhere(design)
    )
    # The bound of a restricted design is none on all designs, nor that on all one of its own.
    if design.local == family.convex and (family.convex or not family.proof):
        return replace(found, lower_bound=0.0)
    return found


def _everywhere(design: Design) -> float | None:
    """The bound on designs of every structure by the stored multipliers; None where there is no
    other bound than that of the family."""
    wider = family_of(design.problem).relaxed(design.problem)
    if wider is None:
        return None
    if not design.relaxed_proof:
        return 0.0
    outer = family_of(wider)
    return outer.bound(outer.program(wider), design.relaxed_proof).value


def _sensitivity_check(claimed: Certificate, found: Certificate, stored: StoredDesign) -> Check:
    tolerance = max(RELATIVE_TOLERANCE, _rounding(stored), _sampled(found.account))
    limits = (
        ("diag(R) over its cap", claimed.variance_ratio, found.variance_ratio),
        ("the floor over diag(R)", claimed.floor_ratio, found.floor_ratio),
    )
    ok = claimed.sensitivity_kind == found.sensitivity_kind
    ok = ok and _close(claimed.sensitivity_squared, found.sensitivity_squared, tolerance)
    note = f"squared, {found.sensitivity_kind}, over its budget"
    for words, claim, ratio in limits:
        if claim is None or ratio is None:
            ok = ok and claim is ratio
        else:
            ok = ok and _close(claim, ratio)
            note += f"; {words} {ratio:.6g}"
    note += f"; rests on {theorem_of(stored.design.problem)}"
    return Check("sensitivity", ok, claimed.sensitivity_squared, found.sensitivity_squared, note)


def _feasibility_check(claimed: Certificate, found: Certificate, stored: StoredDesign) -> Check:
    worst = max(found.sensitivity_squared, found.variance_ratio or 0.0, found.floor_ratio or 0.0)
    allowed = min(_rounding(stored), RELATIVE_TOLERANCE)
    note = f"largest constraint over its limit; allowed for rounding {allowed:.1e}"
    return Check("feasible", worst <= 1 + allowed, str(claimed.feasible).lower(), worst, note)


def _unrestricted_checks(claimed: Certificate, found: Certificate) -> list[Check]:
    """The bound on designs of all structures, where there is one beside that of the structure."""
    claim, proved = claimed.unrestricted_lower_bound, found.unrestricted_lower_bound
    note = "holds for designs of every structure"
    return [] if claim is None else [_proved("unrestricted bound", claim, proved, note)]


def _random_checks(claimed: Certificate, found: Certificate, stored: StoredDesign) -> list[Check]:
    """epsilon under random participation by an account of the stored arrays, and the bound on
    designs for fixed participation."""
    target, said, account = stored.design.problem.privacy, claimed.account, found.account
    note = "holds for participation that an adversary chooses"
    claim, proved = claimed.fixed_lower_bound, found.fixed_lower_bound
    fixed = _proved("fixed bound", math.inf if claim is None else claim, proved, note)
    if said is None and account is None:
        return [] if claim is None else [fixed]
    checks = []
    if said is None or account is None or target is None:
        note = "no account of random participation, or none can be made of these arrays"
        checks.append(Check("epsilon", False, None if said is None else said.epsilon, note=note))
    else:
        kept = account.epsilon <= target.epsilon
        note = f"at most {target.epsilon:g} at delta {target.delta:g}, {account.which}"
        if account.confidence is not None:
            note += f", confidence {account.confidence!r}, from samples drawn for these arrays"
        ok = kept and _accounted(said) == _accounted(account)
        ok = ok and all(
            _close(x, y, _sampled(account))
            for x, y in zip(_epsilons(said), _epsilons(account), strict=True)
        )
        if said.confidence is None or account.confidence is None:
            ok = ok and said.confidence is account.confidence
        else:
            ok = ok and said.confidence <= account.confidence
        checks.append(Check("epsilon", ok, said.epsilon, account.epsilon, note))
    return [*checks, fixed]


def _accounted(account: Amplified) -> tuple[object, ...]:
    """Of what it says epsilon, and by what proof."""
    return account.delta, account.adjacency, account.which


def _epsilons(account: Amplified) -> tuple[float, ...]:
    """All that it says of epsilon: together, of either direction, and an estimate of it."""
    estimate = account.epsilon_estimate
    return account.epsilon, account.remove, account.add, math.inf if estimate is None else estimate


def _sampled(account: Amplified | None) -> float:
    """Relative difference of two accounts of the same noise: none but rounding, or that of two
    machines' samples."""
    if account is None or account.confidence is None:
        return RELATIVE_TOLERANCE
    return SAMPLED


def _proved(
    name: str, claimed: float, found: float | None, note: str, tolerance: float = RELATIVE_TOLERANCE
) -> Check:
    """A bound that is claimed; None proves nothing."""
    value = found or 0.0
    ok = math.isfinite(value) and claimed <= value * (1 + tolerance)
    return Check(name, ok, claimed, found, note)


def _allowed(found: Certificate) -> tuple[float, float]:
    """By how much objective and bound may be claimed otherwise than they were found, relative: for
    what vectors leave open of each, and of the other one nothing."""
    if found.confidence is None:
        return RELATIVE_TOLERANCE, RELATIVE_TOLERANCE
    objective, bound = (
        max(RELATIVE_TOLERANCE, min(spread or 0.0, OPEN))
        for spread in (found.uncertainty, found.rounding)
    )
    return objective, bound


def _estimated(found: Certificate) -> str:
    """What there is to say of numbers that random vectors estimate."""
    if found.uncertainty is None:
        return ""
    return f"at most, by random vectors drawn now; they leave {found.uncertainty:.1e} of it open"


def _confidence_checks(claimed: Certificate, found: Certificate) -> list[Check]:
    """Whether objective and bound are claimed for what they are: estimates, or not."""
    if all(x is None for said in (claimed, found) for x in (said.confidence, said.uncertainty)):
        return []
    ok = claimed.confidence is not None and found.confidence is not None
    ok = ok and claimed.confidence <= found.confidence  # type: ignore[operator]
    open_claimed, open_found = claimed.uncertainty, found.uncertainty
    if open_claimed is None or open_found is None:
        ok = ok and open_claimed is open_found
    else:  # of vectors drawn anew it differs by little
        ok = ok and open_found / 2 <= open_claimed <= 2 * open_found
    note = "that objective and bound both hold"
    return [Check("confidence", ok, claimed.confidence, found.confidence, note)]


def _gap_check(claimed: Certificate, found: Certificate, tolerance: float) -> Check:
    if found.lower_bound == 0:
        return Check("gap", None, claimed.gap, note="not checked, as its bound")
    # Objective and bound may each be off: the tolerance is that of both together.
    ok = found.gap <= claimed.gap + tolerance * (1 + claimed.gap)
    return Check("gap", ok, claimed.gap, found.gap, "objective / lower bound - 1")


def _rounding(stored: StoredDesign) -> float:
    """Relative error of the sensitivity by rounding alone: of diag(R^-1), or of C^T C."""
    size = stored.design.size
    condition = 1.0
    if (covariance := stored.arrays.get("covariance")) is not None:
        try:
            precision = np.diagonal(np.linalg.inv(covariance))
            condition = max(1.0, float(np.diagonal(covariance).max() * precision.max()))
        except np.linalg.LinAlgError:
            condition = float("inf")
    return min(ROUNDINGS * settings.rank_tolerance(size) * condition, LARGEST_ROUNDING)


def _compared(
    name: str,
    claimed: float,
    found: float,
    note: str = "",
    *,
    also: bool = True,
    tolerance: float = RELATIVE_TOLERANCE,
) -> Check:
    return Check(name, also and _close(claimed, found, tolerance), claimed, found, note)


def _close(claimed: float, found: float, tolerance: float = RELATIVE_TOLERANCE) -> bool:
    # Two infinities agree; a finite claim is never close to an infinity.
    return claimed == found or (
        math.isfinite(found) and abs(claimed - found) <= tolerance * abs(found)
    )


# --- with every rounding accounted for --------------------------------------------------------


def _proof_check(proof: Proof) -> Check:
    if not proof.rigorous:
        return Check("rigorous", False, note=f"not proved: {proof.why_not}")
    note = "proved gap, every rounding accounted for"
    if not proof.bounded:
        note = f"{RELEASED}, every rounding accounted for"
    note += f"; not part of it: {proof.left_out}" * bool(proof.left_out)
    return Check("rigorous", True, found=proof.gap if proof.bounded else None, note=note)


def _proof_checks(proof: Proof, design: Design | StreamingDesign) -> list[Check]:
    """What is claimed beside what is proved, and the proof."""
    claimed, objective, checks = design.certificate, proof.objective, []
    if math.isfinite(objective.upper):
        low = objective.lower - PROOF_TOLERANCE * abs(objective.lower)
        high = objective.upper + PROOF_TOLERANCE * abs(objective.upper)
        within = low <= claimed.objective <= high
        upper = objective.upper
        checks.append(Check("proved objective", within, claimed.objective, upper, "at most"))
    for name, claim, bound in (
        ("proved bound", claimed.lower_bound, proof.lower_bound if proof.rigorous else None),
        ("proved fixed bound", claimed.fixed_lower_bound, proof.fixed_lower_bound),
    ):
        if bound is None or claim is None or not proof.bounded:
            continue
        # Of a bound the proof is off by what it allows for its roundings.
        relative = bound.width / bound.lower if bound.lower > 0 else math.inf
        most = bound.lower * (1 + PROOF_TOLERANCE + min(relative, ROUNDED))
        checks.append(Check(name, claim <= most, claim, bound.lower))
    return [*checks, _proof_check(proof)]


# --- manifest and problem text --------------------------------------------------------------


def _manifest_check(stored: StoredDesign) -> Check:
    """Whatever the manifest says twice, or says of the arrays, it must say alike."""
    again = manifest_of(stored.design, stored.arrays, problem_text=stored.problem_text)
    again |= {key: stored.manifest[key] for key in ("library", "version")}
    # The digest of the text has a check of its own.
    again["problem"] = stored.manifest["problem"]
    return _consistent(again, stored.manifest)


def _consistent(again: Mapping[str, Any], manifest: Mapping[str, Any]) -> Check:
    different = [key for key, value in again.items() if manifest.get(key) != value]
    found = f"different {', '.join(different)}" if different else "consistent"
    return Check("manifest", not different, "consistent", found)


def _text_checks(stored: StoredDesign) -> list[Check]:
    """Nothing where there is no text, and nothing but that is claimed."""
    claimed, found = stored.manifest["problem"]["sha256"], text_sha256(stored.problem_text)
    if not stored.problem_text and claimed == found:
        return []
    return [Check("problem text", claimed == found, claimed, found)]


def _problem_checks(stored: StoredDesign, problem: Problem | None) -> list[Check]:
    """Whether the problem is that of ``problem``, or else of the text in the file, and so whether
    anything but the manifest says what privacy was asked for."""
    check, different = _problem_check(stored, problem)
    target = stored.design.problem.privacy
    if target is None:
        return [check]
    if check.ok:
        source = "the problem text" if problem is None else "the given problem"
        return [check, _target_check(target, ok=True, note=f"of {source}")]
    if "privacy" in different:
        return [check, _target_check(target, ok=False, note="the problem asks for another")]
    return [check, _target_check(target, ok=None, note=_ONLY_CLAIMED)]


def _target_check(target: PrivacyTarget, *, ok: bool | None, note: str) -> Check:
    claimed = f"epsilon {target.epsilon:g} at delta {target.delta:g}, {target.adjacency}, "
    claimed += f"clip {target.clip:g}"
    return Check("privacy target", ok, claimed, note=note)


def _problem_check(stored: StoredDesign, problem: Problem | None) -> tuple[Check, Sequence[str]]:
    name, expected = "problem", "as its text says"
    try:
        if problem is not None:
            expected = "the given one"
            different = differences(stored.design.problem, problem, tolerance=PROBLEM_TOLERANCE)
        elif not stored.problem_text:
            note = f"not checked: no problem text is stored; {_BY_PROBLEM}"
            return Check(name, None, note=note), ()
        else:
            different = differences_from_text(
                stored.problem_text, stored=stored.design.problem, tolerance=PROBLEM_TOLERANCE
            )
    except NotRebuiltError as error:
        return Check(name, None, note=f"not checked: {error}; {_BY_PROBLEM}"), ()
    except InputError as error:
        return Check(name, False, note=f"the stored text is no problem: {error}"), ()
    found = f"different {', '.join(different)}" if different else expected
    return Check(name, not different, expected, found), different
