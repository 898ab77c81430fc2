"""Does a stored design keep its word? Everything it claims, computed again in plain numpy.

Only the stored arrays are believed to be what they are. Whoever made the design, each row of a
table of claims says what its file claims, what follows from the arrays, and when the two agree."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import symmetrized
from noisedesign.base.shown import Shown, ShownInline, shortened, words as in_words
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.polar import ROUNDED
from noisedesign.design.design import Design
from noisedesign.design.proof import RELEASED, Proof, prove, prove_streaming, prove_unbounded
from noisedesign.families.family import (
    OPERATIONS_PER_CALL,
    Costly,
    Sampled,
    certified,
    family_of,
    released,
)
from noisedesign.families.toeplitz.bound import lower_bound_of_unrestricted_optimum
from noisedesign.families.toeplitz.streaming import StreamingDesign
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
from noisedesign.files.unbounded_file import StoredUnboundedDesign
from noisedesign.privacy.amplification import Amplified
from noisedesign.privacy.amplification.directions import UNAMPLIFIED
from noisedesign.problem.problem import Problem, problem_of, theorem_of
from noisedesign.problem.unbounded import UnboundedProblem
from noisedesign.system.least_noise_bound import error_lower_bound
from noisedesign.system.links import mixing_norm, stochastic_on
from noisedesign.system.workloads import WORKLOADS

RELATIVE_TOLERANCE = 1e-9  # of a number computed on another machine: long sums agree to 1e-12
PROBLEM_TOLERANCE = 1e-12  # relative, of W or H rebuilt from text, perhaps by another BLAS
ROUNDINGS = 8  # times size * EPS * condition is allowed to an inverse, as in certificates
PROOF_TOLERANCE = 1e-10  # relative, of a claim and what is proved, besides the proof's roundings
MIXING_TOLERANCE = 1e-4  # relative, between the optima of a W that was chosen and of the best one
MOST_WORK = 1e12  # operations of the longest verification: some minutes on one core

_BY_PROBLEM = "name the problem file, and it is compared with that"

DIGEST = 36  # characters of a claim that are shown: of a digest the beginning is enough

Value = float | str | None


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
    claimed: Value = None
    found: Value = None
    note: str = ""

    def _title(self) -> str:
        return self.name

    def _facts(self) -> dict[str, object]:
        return {"": self.words}

    @property
    def words(self) -> str:
        """Say what became of the claim."""
        verdict = "not checked" if self.ok is None else in_words(self.ok)
        numbers = [
            f"{name} {shortened(in_words(value), DIGEST)}"
            for name, value in (("claimed", self.claimed), ("found", self.found))
            if value is not None
        ]
        return ", ".join([verdict, *numbers, *([self.note] if self.note else [])])


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Shown):
    """The verdicts on all claims of a design file.

    Attributes:
        checks: the claims, each with ``name``, ``ok`` (None: not checked), what is ``claimed`` and
            ``found``, and a ``note``.
        proof: what is proved with every rounding accounted for, where that was asked for.

    Examples:
        >>> import noisedesign as nd
        >>> scheme = nd.participation.single(2)
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=scheme)).design
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
    problem: Problem | UnboundedProblem | None = None,
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
        stored: what :func:`noisedesign.load` gave, a design or a solution.
        problem: what the design was asked to solve, from a source you trust, or a loaded file of
            it: it is compared with this in place of the text in the file.
        rigorous: also prove feasibility, objective and bound with every rounding accounted for
            (:mod:`noisedesign.certify.rigorous`). What cannot be proved is not ``ok``, and its
            check says why.

    Returns:
        What became of every claim.

    Raises:
        InputError: no design, no problem; naming ``design file``: it states a problem of far more
            work than its arrays.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))).design
        >>> stored = nd.load(nd.save(design, "ring.npz"))
        >>> nd.verify(stored).ok
        True
        >>> verification = nd.verify(stored, rigorous=True)
        >>> verification.ok, verification.rigorous, verification.proof.gap < 1e-12
        (True, True, True)
    """
    stored = as_stored(stored)
    # A re-sealed file may hold any finite numbers: overflow shows in the checks, not as warnings.
    with np.errstate(all="ignore"):
        if isinstance(stored, StoredStreamingDesign):
            if problem is not None:
                raise InputError(
                    "problem",
                    expected="none for a streaming design, which has its own workload",
                    got=_checks.describe(problem),
                )
            proof = prove_streaming(stored.design) if rigorous else None
            return _verified(_STREAMING, _Streaming(stored, proof))
        if isinstance(stored, StoredUnboundedDesign):
            return _verified_endless(stored, problem, rigorous=rigorous)
        given = None if problem is None else problem_of(problem, sparse=True)
        _check_work(stored.design.problem)
        proof = prove(stored.design) if rigorous else None
        return _verified(_CLAIMS, _Evidence(stored, proof, given))


def _verified_endless(
    stored: StoredUnboundedDesign, problem: Any, *, rigorous: bool
) -> Verification:
    """Judge a design without a horizon; its ratio is judged with or without being asked."""
    design, checks, proof = stored.design, [], None
    for name, claimed, found, note in (
        ("sensitivity", design.squared_sensitivity, design.found_sensitivity, "squared, for ever"),
        ("ratio", design.ratio, design.proved.ratio, f"at most, to step {design.steps}"),
    ):
        checks.append(
            Check(name, found <= claimed * (1 + RELATIVE_TOLERANCE), claimed, found, note)
        )
    of, asked = design.problem, getattr(problem, "problem", problem)
    if rigorous:
        proof = prove_unbounded(design)
        checks.append(Check("rigorous", *_rigorous_ratio(proof)))
    if asked is None:
        checks.append(Check("problem", None, note=_BY_PROBLEM))
        return Verification(checks=tuple(checks), proof=proof)
    expected = "an UnboundedProblem, for a design without a horizon"
    _checks.instance(asked, UnboundedProblem, field="problem", expected=expected)
    different = [
        key
        for key in ("max_participations", "separation", "buffers", "privacy", "nodes", "name")
        if getattr(of, key) != getattr(asked, key)
    ]
    same = (of.mixing is None) == (asked.mixing is None) and (
        of.mixing is None
        or (
            of.mixing.shape == asked.mixing.shape
            and np.abs(of.mixing - asked.mixing).max() <= PROBLEM_TOLERANCE
        )
    )
    different += [] if same else ["mixing"]
    said = f"different {', '.join(different)}" if different else "the given one"
    checks.append(Check("problem", not different, "the given one", said))
    return Verification(checks=tuple(checks), proof=proof)


def _check_work(problem: Problem) -> None:
    """Refuse endless work that a manifest states in few words, and no array has the size of."""
    steps = problem.horizon if problem.axes == "space" else problem.participation.horizon
    drawn = 0 if problem.random is None else problem.rounds * (1 + problem.random.outcomes)
    # Operations, up to a factor, beyond those on matrices of the sizes of its arrays.
    needed, family = steps * drawn * OPERATIONS_PER_CALL, family_of(problem)
    if isinstance(family, Costly):
        needed += family.work(problem)
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


# --- the evidence: what follows from the arrays, each thing computed once -------------------------


Rebuilt = tuple[bool | None, Sequence[str], str]


class _Evidence:
    """A stored design beside what its arrays, and the problem it is for, say of it."""

    def __init__(self, stored: StoredDesign, proof: Proof | None, asked: Problem | None) -> None:
        self.stored, self.proof, self.asked = stored, proof, asked
        self.design, self.arrays, self.manifest = stored.design, stored.arrays, stored.manifest
        self.problem, self.claimed = self.design.problem, self.design.certificate
        self.target, self.central = self.problem.privacy, self.design.trust == "central"
        self.family, self.failure = family_of(self.problem), ""
        self.found: Any = None
        try:
            self.found = self._judged()
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            self.failure = str(error)
        self.local = self.found is not None and not self.central
        self.again = manifest_of(self.design, self.arrays, problem_text=stored.problem_text)
        for own in ("library", "version", "problem"):  # the text has a claim of its own
            del self.again[own]

    def _judged(self) -> Certificate:
        design, family = self.design, self.family
        if self.central:
            family, program = released(self.problem)
        else:
            program = family.program(self.problem)
            if isinstance(family, Sampled):
                program = family.afresh(program)
            account = self.claimed.account
            known = account is not None and account.which == UNAMPLIFIED  # nobody drew samples
            if known and isinstance(family, Costly):
                program = family.hurried(program, seconds=0.0)
        bound = family.bound(program, design.proof, noise=design.noise)
        everywhere = self._everywhere()
        found = certified(
            family, program, design.noise, design.proof, bound=bound, everywhere=everywhere
        )
        # The bound of a restricted design is none on all designs, nor that on all one of its own.
        if design.local == family.convex and (family.convex or not family.proof):
            return replace(found, lower_bound=0.0)
        return found

    def _everywhere(self) -> float | None:
        """The bound on designs of every structure, where it is another than the family's."""
        wider = self.family.relaxed(self.problem)
        if wider is None:
            return None
        if not self.design.relaxed_proof:
            return 0.0
        outer = family_of(wider)
        return outer.bound(outer.program(wider), self.design.relaxed_proof).value

    @cached_property
    def rounding(self) -> float:
        """Relative error of the sensitivity by rounding alone: of diag(R^-1), or of C^T C."""
        condition = 1.0
        if (covariance := self.arrays.get("covariance")) is not None:
            try:
                precision = np.diagonal(np.linalg.inv(covariance))
                condition = max(1.0, float(np.diagonal(covariance).max() * precision.max()))
            except np.linalg.LinAlgError:
                condition = float("inf")
        # However ill-conditioned R is, rounding is no excuse for more than 1e-6.
        return min(ROUNDINGS * settings.rank_tolerance(self.design.size) * condition, 1e-6)

    def allowed(self, spread: float | None) -> float:
        """Relative difference allowed to a number of which random vectors leave ``spread`` open."""
        # A twentieth at most, for who wrote the file chose how many there are.
        if self.found.confidence is None:
            return RELATIVE_TOLERANCE
        return max(RELATIVE_TOLERANCE, min(spread or 0.0, 0.05))

    @cached_property
    def inverse(self) -> tuple[float, float, float]:
        """Largest of C and C^-1 above the diagonal, of C^-1 C - I, and its rounding."""
        noising = self.arrays.get("noising_matrix")
        # C^-1 is what the bands, coefficients, buffers or modes of the file say, unless stored.
        stored = None if noising is None else [(self.design.strategy, noising)]
        above = residual = allowed = 0.0
        for factor, inverse in stored or self.design.strategy_form.factors():
            above = max(above, *(float(np.abs(np.triu(m, 1)).max()) for m in (factor, inverse)))
            found = float(np.abs(inverse @ factor - np.eye(len(factor))).max())
            rounding = float(np.linalg.norm(inverse) * np.linalg.norm(factor))
            explained = ROUNDINGS * settings.rank_tolerance(len(factor)) * rounding
            if not allowed or found * allowed > residual * explained:
                residual, allowed = found, explained
        return above, residual, allowed

    @cached_property
    def rebuilt(self) -> Rebuilt:
        """Whether the problem is the given or the text's; what differs; or why none could tell."""
        design, text = self.problem, self.stored.problem_text
        try:
            if self.asked is not None:
                different = differences(design, self.asked, tolerance=PROBLEM_TOLERANCE)
            elif text:
                different = differences_from_text(text, stored=design, tolerance=PROBLEM_TOLERANCE)
            else:
                return None, (), f"not checked: no problem text is stored; {_BY_PROBLEM}"
        except NotRebuiltError as error:
            return None, (), f"not checked: {error}; {_BY_PROBLEM}"
        except InputError as error:
            return False, (), f"the stored text is no problem: {error}"
        return not different, different, ""


class _Streaming:
    """A stored streaming design beside what its coefficients or buffers say, without an array of
    T x T entries."""

    def __init__(self, stored: StoredStreamingDesign, proof: Proof | None) -> None:
        self.design, self.manifest, self.proof = stored.design, stored.manifest, proof
        self.claimed, self.target = self.design.certificate, self.design.privacy
        strategy, scheme = self.design.strategy, self.design.participation
        self.sensitivity = strategy.squared_sensitivity(scheme)
        self.squared_error = strategy.squared_error(self.design.workload)
        self.bound = lower_bound_of_unrestricted_optimum(self.design.workload, scheme)
        self.rebuilt: Rebuilt = (None, (), "")
        self.again = streaming_manifest_of(self.design, stored.arrays)
        for own in ("library", "objective"):  # the objective has a claim of its own
            del self.again[own]


def _smallest_eigenvalue(a: Array) -> float:
    try:
        return float(np.linalg.eigvalsh(symmetrized(a))[0])
    except np.linalg.LinAlgError:
        return float("nan")


# --- how each claim is computed and compared ------------------------------------------------------

Outcome = tuple[bool | None, Value, Value, str]
"""Whether a claim holds (None: not checked), what is claimed, what is found, and a note."""


def _close(claimed: float, found: float, tolerance: float = RELATIVE_TOLERANCE) -> bool:
    # Two infinities agree; a finite claim is never close to an infinity.
    return claimed == found or (
        math.isfinite(found) and abs(claimed - found) <= tolerance * abs(found)
    )


def _both(claimed: Any, found: Any, agree: Callable[[Any, Any], bool]) -> bool:
    """Whether two values agree, or neither is there."""
    if claimed is None or found is None:
        return claimed is found
    return agree(claimed, found)


def _compared(claimed: float, found: float, note: str, *, also: bool = True) -> Outcome:
    return also and _close(claimed, found), claimed, found, note


def _bound(
    claimed: Any, found: float | None, note: str, tolerance: float = RELATIVE_TOLERANCE
) -> Outcome:
    """A bound holds where no better one is claimed than is proved; None proves nothing."""
    value = found or 0.0
    return math.isfinite(value) and claimed <= value * (1 + tolerance), claimed, found, note


def _covariance(e: _Evidence) -> Outcome:
    r = e.arrays["covariance"]
    scale, asymmetry = float(np.abs(r).max()), float(np.abs(r - r.T).max())
    smallest = _smallest_eigenvalue(r)
    ok = asymmetry <= settings.SYMMETRY_TOLERANCE * scale
    ok = ok and smallest >= -settings.rank_tolerance(len(r)) * scale
    note = f"asymmetry of R {asymmetry:.1e}, smallest eigenvalue {smallest:.3g}"
    return ok, "symmetric, no negative eigenvalue", None, note


def _causal(e: _Evidence) -> Outcome:
    above = e.inverse[0]
    return above == 0, 0.0, above, "largest entry of C and C^-1 above the diagonal"


def _inverse(e: _Evidence) -> Outcome:
    _, residual, allowed = e.inverse
    note = f"largest entry of C^-1 C - I; rounding explains {allowed:.1e}"
    return residual <= min(allowed, 1.0), 0.0, residual, note


def _workload(e: _Evidence) -> Outcome:
    problem = e.problem
    if problem.axes != "time":  # H is formed from W, which loading has checked
        return True, "by W", "by W", ""
    least = -settings.GRAM_NEGATIVITY * float(np.abs(problem.gram).max())
    difference = relative_difference(problem.gram, problem.defined_gram)
    ok = _smallest_eigenvalue(problem.gram) >= least and difference <= PROBLEM_TOLERANCE
    definition = WORKLOADS[problem.workload].definition
    note = f"relative difference of H from its definition: {definition}"
    return ok, problem.workload, difference, note


def _structure(e: _Evidence) -> Outcome:
    entry = e.manifest["structure"]
    claimed = f"{entry['time']} in time, {entry['space']} in space"
    if entry["nonnegative"]:
        claimed += ", no negative entries in C"
    try:
        off = e.family.departure(e.family.program(e.problem), e.design.noise, e.design.proof)
    except np.linalg.LinAlgError as error:
        return False, claimed, None, str(error)
    note = "largest departure from it, relative"
    return off <= settings.STRUCTURE_TOLERANCE, claimed, off, note


def _objective(e: _Evidence) -> Outcome:
    claimed, found, note = e.claimed.objective, e.found, e.failure
    if found is None:
        return False, claimed, None, note
    if found.uncertainty is not None:
        left = f"{found.uncertainty:.1e}"
        note = f"at most, by random vectors drawn now; they leave {left} of it open"
    allowed = e.allowed(found.uncertainty)
    return _close(claimed, found.objective, allowed), claimed, found.objective, note


def _sensitivity(e: _Evidence) -> Outcome:
    claimed, found = e.claimed, e.found
    tolerance = max(RELATIVE_TOLERANCE, e.rounding, _sampled(found.account))
    ok = claimed.sensitivity_kind == found.sensitivity_kind
    ok = ok and _close(claimed.sensitivity_squared, found.sensitivity_squared, tolerance)
    note = f"squared, {found.sensitivity_kind}, over its budget"
    for words, claim, ratio in (
        ("diag(R) over its cap", claimed.variance_ratio, found.variance_ratio),
        ("the floor over diag(R)", claimed.floor_ratio, found.floor_ratio),
    ):
        ok = ok and _both(claim, ratio, _close)
        if claim is not None and ratio is not None:
            note += f"; {words} {ratio:.6g}"
    note += f"; rests on {theorem_of(e.problem)}"
    return ok, claimed.sensitivity_squared, found.sensitivity_squared, note


def _feasible(e: _Evidence) -> Outcome:
    found, allowed = e.found, min(e.rounding, RELATIVE_TOLERANCE)
    worst = max(found.sensitivity_squared, found.variance_ratio or 0.0, found.floor_ratio or 0.0)
    note = f"largest constraint over its limit; allowed for rounding {allowed:.1e}"
    return worst <= 1 + allowed, str(e.claimed.feasible).lower(), worst, note


def _lower_bound(e: _Evidence) -> Outcome:
    by = "the stored" if e.design.proof or e.design.relaxed_proof else "uniform"
    note, allowed = f"certified by {by} multipliers", e.allowed(e.found.rounding)
    return _bound(e.claimed.lower_bound, e.found.lower_bound, note, allowed)


def _mixing_bound(e: _Evidence) -> Outcome:
    """Judge W by the bound for every W of its graph that stored multipliers prove."""
    problem: Any = e.problem
    proof, mixing = problem.mixing_proof, problem.mixing
    rounding, norm = settings.rank_tolerance(len(mixing)), mixing_norm(mixing)
    ok = (
        problem.one_step_weights is not None
        and norm <= proof.norm * (1 + rounding)
        and stochastic_on(mixing, mixing, symmetric=proof.symmetric)
    )
    limits = {"budget": problem.budget, "cap": problem.max_variance}
    bound = error_lower_bound(mixing, **limits, proof=proof, weights=problem.one_step_weights)
    objective = e.found.objective if e.proof is None else e.proof.objective.upper
    gap = objective / bound - 1 if bound > 0 else math.inf
    every = "every symmetric W" if proof.symmetric else "every W"
    known = "known" if e.proof is None else "proved"
    note = (
        f"of {every} on these links with ||W - J|| <= {proof.norm:.6g}, every rounding accounted "
    )
    note += (
        f"for; this W has {norm:.6g}, and its noise an error {known} to be within {gap:.1e} of it"
    )
    # No less than that is known of the optimum for this W, however good its own noise is.
    least = e.found.lower_bound
    return ok and least <= bound * (1 + MIXING_TOLERANCE), None, bound, note


def _gap(e: _Evidence) -> Outcome:
    claimed, found = e.claimed.gap, e.found
    if found.lower_bound == 0:
        return None, claimed, None, "not checked, as its bound"
    # Objective and bound may each be off: the tolerance is that of both together.
    tolerance = e.allowed(found.uncertainty) + e.allowed(found.rounding)
    ok = found.gap <= claimed + tolerance * (1 + claimed)
    return ok, claimed, found.gap, "objective / lower bound - 1"


def _confidence(e: _Evidence) -> Outcome:
    claimed: Any = e.claimed
    found = e.found
    ok = claimed.confidence is not None and found.confidence is not None
    ok = ok and claimed.confidence <= found.confidence
    # Other vectors leave about as much open.
    ok = ok and _both(
        claimed.uncertainty, found.uncertainty, lambda said, now: now / 2 <= said <= 2 * now
    )
    return ok, claimed.confidence, found.confidence, "that objective and bound both hold"


def _unrestricted(e: _Evidence) -> Outcome:
    note = "holds for designs of every structure"
    return _bound(e.claimed.unrestricted_lower_bound, e.found.unrestricted_lower_bound, note)


def _epsilon(e: _Evidence) -> Outcome:
    """Compare epsilon under random participation with an account of the stored arrays."""
    target, said, account = e.target, e.claimed.account, e.found.account
    if said is None or account is None or target is None:
        note = "no account of random participation, or none can be made of these arrays"
        return False, None if said is None else said.epsilon, None, note
    tolerance = _sampled(account)
    note = f"at most {target.epsilon:g} at delta {target.delta:g}, {account.which}"
    if account.confidence is not None:
        note += f", confidence {account.confidence!r}, from samples drawn for these arrays"

    def agree(names: str, same: Callable[[Any, Any], bool]) -> bool:
        return all(_both(getattr(said, n), getattr(account, n), same) for n in names.split())

    ok = (
        account.epsilon <= target.epsilon
        and agree("delta adjacency which", operator.eq)
        and agree("epsilon remove add epsilon_estimate", lambda x, y: _close(x, y, tolerance))
        and agree("confidence", operator.le)
    )
    return ok, said.epsilon, account.epsilon, note


def _sampled(account: Amplified | None) -> float:
    """Relative difference of two accounts of the same noise."""
    # Machines round the factor of a Gram matrix otherwise, which samples show; else rounding.
    return RELATIVE_TOLERANCE if account is None or account.confidence is None else 1e-6


def _fixed_bound(e: _Evidence) -> Outcome:
    claim, note = e.claimed.fixed_lower_bound, "holds for participation that an adversary chooses"
    return _bound(math.inf if claim is None else claim, e.found.fixed_lower_bound, note)


def _manifest(e: _Evidence | _Streaming) -> Outcome:
    """Whatever the manifest says twice, or says of the arrays, it must say alike."""
    different = [key for key, value in e.again.items() if e.manifest.get(key) != value]
    found = f"different {', '.join(different)}" if different else "consistent"
    return not different, "consistent", found, ""


def _text(e: _Evidence) -> Outcome:
    claimed, found = e.manifest["problem"]["sha256"], text_sha256(e.stored.problem_text)
    return claimed == found, claimed, found, ""


def _problem(e: _Evidence) -> Outcome:
    ok, different, note = e.rebuilt
    if note:
        return ok, None, None, note
    expected = "as its text says" if e.asked is None else "the given one"
    return ok, expected, f"different {', '.join(different)}" if different else expected, ""


def _target(e: Any) -> Outcome:
    """A privacy target is what the problem asks for, if that is known."""
    target = e.target
    claimed = f"epsilon {target.epsilon:g} at delta {target.delta:g}, {target.adjacency}, "
    claimed += f"clip {target.clip:g}"
    ok, different, _ = e.rebuilt
    if ok:
        source = "the problem text" if e.asked is None else "the given problem"
        return True, claimed, None, f"of {source}"
    if "privacy" in different:
        return False, claimed, None, "the problem asks for another"
    return None, claimed, None, "not verified: only the manifest says so"


def _streaming_sensitivity(e: _Streaming) -> Outcome:
    found, same = e.sensitivity, e.sensitivity.kind == e.design.sensitivity_kind
    note = f"squared, {found.kind}"
    return _compared(e.design.squared_sensitivity, found.squared, note, also=same)


def _streaming_objective(e: _Streaming) -> Outcome:
    claimed, found = float(e.manifest["objective"]), e.squared_error * e.sensitivity.squared
    return _compared(claimed, found, "squared error at unit sensitivity")


def _proved_objective(e: Any) -> Outcome:
    claimed, proved = e.claimed.objective, e.proof.objective
    low = proved.lower - PROOF_TOLERANCE * abs(proved.lower)
    high = proved.upper + PROOF_TOLERANCE * abs(proved.upper)
    return low <= claimed <= high, claimed, proved.upper, "at most"


def _proved_bound(name: str, e: Any) -> Outcome:
    claimed, proved = getattr(e.claimed, name), getattr(e.proof, name)
    # The proof is off by what it allows for its roundings.
    relative = proved.width / proved.lower if proved.lower > 0 else math.inf
    most = proved.lower * (1 + PROOF_TOLERANCE + min(relative, ROUNDED))
    return claimed <= most, claimed, proved.lower, ""


def _rigorous(e: Any) -> Outcome:
    proof = e.proof
    of = "proved gap" if proof.bounded else RELEASED
    return _proved(proof, of, proof.gap if proof.bounded else None)


def _rigorous_ratio(proof: Proof) -> Outcome:
    return _proved(proof, "proved ratio, and sensitivity for ever", proof.objective.upper)


def _proved(proof: Proof, of: str, found: float | None) -> Outcome:
    if not proof.rigorous:
        return False, None, None, f"not proved: {proof.why_not}"
    note = f"{of}, every rounding accounted for"
    if proof.left_out:
        note += f"; not part of it: {proof.left_out}"
    return True, None, found, note


# --- the table of claims --------------------------------------------------------------------------


Claim = tuple[str, Callable[[Any], bool | str], Callable[[Any], Outcome]]
"""Its name; whether a file makes it, or in words why that is not checked; and how what is claimed
is computed again and compared."""


def _verified(claims: Sequence[Claim], e: _Evidence | _Streaming) -> Verification:
    checks = []
    for name, made, judge in claims:
        if isinstance(claimed := made(e), str):
            checks.append(Check(name, None, note=claimed))
        elif claimed:
            checks.append(Check(name, *judge(e)))
    return Verification(checks=tuple(checks), proof=e.proof)


def _always(_: Any) -> bool:
    return True


def _in_time(e: _Evidence) -> bool:
    return e.design.axes != "space"


def _structured(e: _Evidence) -> bool:
    return e.manifest["structure"] is not None and not e.central


def _with_budgets(e: _Evidence) -> bool | str:
    if e.found is not None and e.central:
        return "not claimed: the noise protects only the average a trusted server releases"
    return e.local


def _of_chosen_mixing(e: _Evidence) -> bool:
    proved = e.found is not None and e.local
    return proved and getattr(e.problem, "mixing_proof", None) is not None


def _estimated(e: _Evidence) -> bool:
    said = (e.claimed, e.found) if e.local else ()
    return any(one.confidence is not None or one.uncertainty is not None for one in said)


def _at_random(e: _Evidence) -> bool:
    return e.local and any(one.account is not None for one in (e.claimed, e.found))


def _with_text(e: _Evidence | _Streaming) -> bool:
    return isinstance(e, _Evidence) and (bool(e.stored.problem_text) or not _text(e)[0])


def _with_proved_objective(e: Any) -> bool:
    return e.proof is not None and math.isfinite(e.proof.objective.upper)


def _with_proof(name: str, e: Any) -> bool:
    if e.proof is None or not e.proof.bounded or (name == LOWER and not e.proof.rigorous):
        return False
    return getattr(e.claimed, name) is not None and getattr(e.proof, name) is not None


def _with_fixed_bound(e: _Evidence) -> bool:
    return _at_random(e) or (e.local and e.claimed.fixed_lower_bound is not None)


LOWER, FIXED = "lower_bound", "fixed_lower_bound"

_SAID: tuple[Claim, ...] = (
    ("manifest", _always, _manifest),
    ("problem text", _with_text, _text),
    ("problem", lambda e: isinstance(e, _Evidence), _problem),
    ("privacy target", lambda e: e.target is not None, _target),
    ("proved objective", _with_proved_objective, _proved_objective),
    ("proved bound", partial(_with_proof, LOWER), partial(_proved_bound, LOWER)),
    ("proved fixed bound", partial(_with_proof, FIXED), partial(_proved_bound, FIXED)),
    ("rigorous", lambda e: e.proof is not None, _rigorous),
)

_CLAIMS: tuple[Claim, ...] = (  # the claims of a design file, in the order in which they are told
    ("covariance", lambda e: "covariance" in e.arrays, _covariance),
    ("causal", _in_time, _causal),
    ("inverse", _in_time, _inverse),
    ("workload", _always, _workload),
    ("structure", _structured, _structure),
    ("objective", _always, _objective),
    ("sensitivity", _with_budgets, _sensitivity),
    ("feasible", _with_budgets, _feasible),
    ("lower bound", _with_budgets, _lower_bound),
    ("gap", _with_budgets, _gap),
    ("mixing bound", _of_chosen_mixing, _mixing_bound),
    ("confidence", _estimated, _confidence),
    (
        "unrestricted bound",
        lambda e: e.local and e.claimed.unrestricted_lower_bound is not None,
        _unrestricted,
    ),
    ("epsilon", _at_random, _epsilon),
    ("fixed bound", _with_fixed_bound, _fixed_bound),
    *_SAID,
)

_STREAMING: tuple[Claim, ...] = (  # the claims of the file of a streaming design
    (
        "squared error",
        _always,
        lambda e: _compared(e.design.squared_error, e.squared_error, "of unit noise"),
    ),
    ("sensitivity", _always, _streaming_sensitivity),
    ("objective", _always, _streaming_objective),
    (
        "lower bound",
        _always,
        lambda e: _bound(e.claimed.lower_bound, e.bound, "holds for strategies of every structure"),
    ),
    *_SAID,
)
