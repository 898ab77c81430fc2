"""Does a stored design keep its word? Everything it claims, computed again in plain numpy.

Only the stored arrays are believed to be what they are. Whoever made the design, each row of a
table of claims says what its file claims, what follows from the arrays, and when the two agree.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import symmetrized
from noisedesign.base.shown import Shown, ShownInline, shortened, words as in_words
from noisedesign.certify.certificate import Certificate
from noisedesign.certify.polar import ROUNDED
from noisedesign.design.design import Design
from noisedesign.design.proof import RELEASED, Proof, prove, prove_streaming
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
from noisedesign.privacy.amplification import Amplified
from noisedesign.privacy.amplification.directions import UNAMPLIFIED
from noisedesign.problem.problem import Problem, problem_of, theorem_of
from noisedesign.system.workloads import WORKLOADS

RELATIVE_TOLERANCE = 1e-9
"""Relative difference of a number computed on another machine: sums of a few million products agree
to about 1e-12, and a gap of 1e-9 on request stays meaningful."""

PROBLEM_TOLERANCE = 1e-12  # that of a W or H rebuilt from text, perhaps by another BLAS
ROUNDINGS = 8  # multiple of size * EPS * condition allowed to an inverse, as by the certificate
PROOF_TOLERANCE = 1e-10
"""Relative difference of a claim from what is proved, besides the roundings that the proof allows
for: a tenth of what two machines may differ by."""

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
        told = ["not checked" if self.ok is None else in_words(self.ok)]
        for name, value in (("claimed", self.claimed), ("found", self.found)):
            if value is not None:
                told.append(f"{name} {shortened(in_words(value), DIGEST)}")
        return ", ".join(filter(None, [*told, self.note]))


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Shown):
    """The verdicts on all claims of a design file.

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
        >>> stored = nd.load_design(nd.save_design(design, "ring.npz"))
        >>> nd.verify(stored).ok
        True
        >>> verification = nd.verify(stored, rigorous=True)
        >>> verification.ok, verification.rigorous, verification.proof.gap < 1e-12
        (True, True, True)
    """
    stored, asked = as_stored(stored), None
    # A re-sealed file may hold any finite numbers: overflow shows in the checks, not as warnings.
    with np.errstate(all="ignore"):
        if isinstance(stored, StoredStreamingDesign):
            if problem is not None:
                expected = "none for a streaming design, which has its own workload"
                raise InputError("problem", expected=expected, got=_checks.describe(problem))
            proof = prove_streaming(stored.design) if rigorous else None
            checks = [*_streaming(stored.design, stored.manifest)]
        else:
            asked = None if problem is None else problem_of(problem, sparse=True)
            _check_work(stored.design.problem)
            proof = prove(stored.design) if rigorous else None
            checks = [*_Evidence(stored).checks()]
        checks += _said(stored, asked)
        checks += () if proof is None else _proved(stored.design.certificate, proof)
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

Outcome = tuple[bool | None, Value, Value, str]
"""Whether a claim holds (None: not checked), what is claimed, what is found, and a note."""


class _Evidence:
    """A stored design beside what its arrays, and the problem it is for, say of it."""

    def __init__(self, stored: StoredDesign) -> None:
        self.design, self.arrays, self.manifest = stored.design, stored.arrays, stored.manifest
        self.problem, self.claimed = self.design.problem, self.design.certificate
        self.central, self.family = self.design.trust == "central", family_of(self.problem)
        self.found: Any = None
        self.failure = ""
        try:
            self.found = self._judged()
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            self.failure = str(error)

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
        """Relative difference allowed to a number of which random vectors leave ``spread`` open:
        at most a twentieth, for who wrote the file chose how many there are."""
        if self.found.confidence is None:
            return RELATIVE_TOLERANCE
        return max(RELATIVE_TOLERANCE, min(spread or 0.0, 0.05))

    # --- how each claim is computed and compared --------------------------------------------------

    def checks(self) -> Iterator[Check]:
        """The claims that the file makes of its noise, in the order in which they are told."""
        if "covariance" in self.arrays:
            yield Check("covariance", *self._covariance())
        if self.design.axes != "space":
            yield from self._triangles()
        yield Check("workload", *self._workload())
        if self.manifest["structure"] is not None and not self.central:
            yield Check("structure", *self._structure())
        yield Check("objective", *self._objective())
        if self.found is not None and self.central:
            why = "not claimed: the noise protects only the average a trusted server releases"
            for name in ("sensitivity", "feasible", "lower bound", "gap"):
                yield Check(name, None, note=why)
        elif self.found is not None:
            yield from self._protection()

    def _protection(self) -> Iterator[Check]:
        """The claims of a design that protects every message: its budgets, and its bounds."""
        claimed, found, design = self.claimed, self.found, self.design
        yield Check("sensitivity", *self._sensitivity())
        rounding = min(self.rounding, RELATIVE_TOLERANCE)
        worst = max(found.sensitivity_squared, found.variance_ratio or 0.0, found.floor_ratio or 0)
        note = f"largest constraint over its limit; allowed for rounding {rounding:.1e}"
        yield Check("feasible", worst <= 1 + rounding, str(claimed.feasible).lower(), worst, note)
        by = "the stored" if design.proof or design.relaxed_proof else "uniform"
        note, allowed = f"proved by {by} multipliers", self.allowed(found.rounding)
        yield Check("lower bound", *_bound(claimed.lower_bound, found.lower_bound, note, allowed))
        if found.lower_bound == 0:
            yield Check("gap", None, claimed.gap, None, "not checked, as its bound")
        else:  # objective and bound may each be off: the tolerance is that of both together
            most = claimed.gap + (self.allowed(found.uncertainty) + allowed) * (1 + claimed.gap)
            yield Check(
                "gap", found.gap <= most, claimed.gap, found.gap, "objective / lower bound - 1"
            )
        if any(x is not None for c in (claimed, found) for x in (c.confidence, c.uncertainty)):
            yield Check("confidence", *self._confidence())
        if (bound := claimed.unrestricted_lower_bound) is not None:
            note = "holds for designs of every structure"
            yield Check("unrestricted bound", *_bound(bound, found.unrestricted_lower_bound, note))
        at_random = claimed.account is not None or found.account is not None
        if at_random:
            yield Check("epsilon", *self._epsilon())
        if at_random or claimed.fixed_lower_bound is not None:
            claim = claimed.fixed_lower_bound
            note = "holds for participation that an adversary chooses"
            outcome = _bound(math.inf if claim is None else claim, found.fixed_lower_bound, note)
            yield Check("fixed bound", *outcome)

    def _covariance(self) -> Outcome:
        r = self.arrays["covariance"]
        scale, asymmetry = float(np.abs(r).max()), float(np.abs(r - r.T).max())
        smallest = _smallest_eigenvalue(r)
        ok = asymmetry <= settings.SYMMETRY_TOLERANCE * scale
        ok = ok and smallest >= -settings.rank_tolerance(len(r)) * scale
        note = f"asymmetry of R {asymmetry:.1e}, smallest eigenvalue {smallest:.3g}"
        return ok, "symmetric, no negative eigenvalue", None, note

    def _triangles(self) -> Iterator[Check]:
        """C and C^-1 are lower triangular, and inverses but for what rounding explains."""
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
        note = "largest entry of C and C^-1 above the diagonal"
        yield Check("causal", above == 0, 0.0, above, note)
        note = f"largest entry of C^-1 C - I; rounding explains {allowed:.1e}"
        yield Check("inverse", residual <= min(allowed, 1.0), 0.0, residual, note)

    def _workload(self) -> Outcome:
        problem = self.problem
        if problem.axes != "time":  # H is formed from W, which loading has checked
            return True, "by W", "by W", ""
        least = -settings.GRAM_NEGATIVITY * float(np.abs(problem.gram).max())
        difference = relative_difference(problem.gram, problem.defined_gram)
        ok = _smallest_eigenvalue(problem.gram) >= least and difference <= PROBLEM_TOLERANCE
        definition = WORKLOADS[problem.workload].definition
        note = f"relative difference of H from its definition: {definition}"
        return ok, problem.workload, difference, note

    def _structure(self) -> Outcome:
        entry, design = self.manifest["structure"], self.design
        claimed = f"{entry['time']} in time, {entry['space']} in space"
        if entry["nonnegative"]:
            claimed += ", no negative entries in C"
        try:
            program = self.family.program(self.problem)
            off = self.family.departure(program, design.noise, design.proof)
        except np.linalg.LinAlgError as error:
            return False, claimed, None, str(error)
        note = "largest departure from it, relative"
        return off <= settings.STRUCTURE_TOLERANCE, claimed, off, note

    def _objective(self) -> Outcome:
        claimed, found, note = self.claimed.objective, self.found, self.failure
        if found is None:
            return False, claimed, None, note
        if found.uncertainty is not None:
            left = f"{found.uncertainty:.1e}"
            note = f"at most, by random vectors drawn now; they leave {left} of it open"
        ok = _close(claimed, found.objective, self.allowed(found.uncertainty))
        return ok, claimed, found.objective, note

    def _sensitivity(self) -> Outcome:
        claimed, found = self.claimed, self.found
        tolerance = max(RELATIVE_TOLERANCE, self.rounding, _sampled(found.account))
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
        note += f"; rests on {theorem_of(self.problem)}"
        return ok, claimed.sensitivity_squared, found.sensitivity_squared, note

    def _confidence(self) -> Outcome:
        claimed: Any = self.claimed
        found = self.found
        ok = claimed.confidence is not None and found.confidence is not None
        ok = ok and claimed.confidence <= found.confidence
        # Other vectors leave about as much open.
        ok = ok and _both(
            claimed.uncertainty, found.uncertainty, lambda said, now: now / 2 <= said <= 2 * now
        )
        return ok, claimed.confidence, found.confidence, "that objective and bound both hold"

    def _epsilon(self) -> Outcome:
        """Compare epsilon under random participation with an account of the stored arrays."""
        target, said, account = self.problem.privacy, self.claimed.account, self.found.account
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


def _smallest_eigenvalue(a: Array) -> float:
    try:
        return float(np.linalg.eigvalsh(symmetrized(a))[0])
    except np.linalg.LinAlgError:
        return float("nan")


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


def _bound(
    claimed: Any, found: float | None, note: str, tolerance: float = RELATIVE_TOLERANCE
) -> Outcome:
    """A bound holds where no better one is claimed than is proved; None proves nothing."""
    value = found or 0.0
    return math.isfinite(value) and claimed <= value * (1 + tolerance), claimed, found, note


def _sampled(account: Amplified | None) -> float:
    """Relative difference of two accounts of the same noise: that of two machines, which round the
    factor of a Gram matrix otherwise, where samples decide; else rounding."""
    return RELATIVE_TOLERANCE if account is None or account.confidence is None else 1e-6


def _streaming(design: StreamingDesign, manifest: dict[str, Any]) -> Iterator[Check]:
    """The claims of a streaming design beside what its coefficients or buffers say, without an
    array of T x T entries."""
    strategy, scheme = design.strategy, design.participation
    error, found = strategy.squared_error(design.workload), strategy.squared_sensitivity(scheme)
    squared, objective = found.squared, error * found.squared
    claimed = design.squared_error
    yield Check("squared error", _close(claimed, error), claimed, error, "of unit noise")
    claimed = design.squared_sensitivity
    same = found.kind == design.sensitivity_kind and _close(claimed, squared)
    yield Check("sensitivity", same, claimed, squared, f"squared, {found.kind}")
    claimed, note = float(manifest["objective"]), "squared error at unit sensitivity"
    yield Check("objective", _close(claimed, objective), claimed, objective, note)
    claimed, note = design.certificate.lower_bound, "holds for strategies of every structure"
    bound = lower_bound_of_unrestricted_optimum(design.workload, scheme)
    yield Check("lower bound", *_bound(claimed, bound, note))


# --- what files of both kinds say -----------------------------------------------------------------


def _said(stored: StoredDesign | StoredStreamingDesign, asked: Problem | None) -> Iterator[Check]:
    """Whatever the manifest says twice, or says of the arrays or the problem, it must say alike."""
    design: Any = stored.design
    same: bool | None = None
    different: Sequence[str] = ()
    # These have claims of their own.
    if isinstance(stored, StoredDesign):
        own = {"library", "version", "problem"}
        again = manifest_of(design, stored.arrays, problem_text=stored.problem_text)
    else:
        own = {"library", "objective"}
        again = streaming_manifest_of(design, stored.arrays)
    unlike = [k for k, value in again.items() if k not in own and stored.manifest.get(k) != value]
    found = f"different {', '.join(unlike)}" if unlike else "consistent"
    yield Check("manifest", not unlike, "consistent", found)
    source = "problem text" if asked is None else "given problem"
    if isinstance(stored, StoredDesign):
        claimed, found = stored.manifest["problem"]["sha256"], text_sha256(stored.problem_text)
        if stored.problem_text or claimed != found:
            yield Check("problem text", claimed == found, claimed, found)
        same, different, note = _rebuilt(stored, asked)
        expected = "as its text says" if asked is None else "the given one"
        found = f"different {', '.join(different)}" if different else expected
        said = (None, None, note) if note else (expected, found, "")
        yield Check("problem", same, *said)
    target = getattr(design, "problem", design).privacy
    if target is not None:
        claimed = f"epsilon {target.epsilon:g} at delta {target.delta:g}, {target.adjacency}, "
        claimed += f"clip {target.clip:g}"
        kept, note = None, "not verified: only the manifest says so"
        if same:
            kept, note = True, f"of the {source}"
        elif "privacy" in different:
            kept, note = False, "the problem asks for another"
        yield Check("privacy target", kept, claimed, note=note)


def _rebuilt(stored: StoredDesign, asked: Problem | None) -> tuple[bool | None, Sequence[str], str]:
    """Whether the problem is the given one, or else that of the stored text; what differs; and why
    they could not be compared."""
    problem, text = stored.design.problem, stored.problem_text
    try:
        if asked is not None:
            different = differences(problem, asked, tolerance=PROBLEM_TOLERANCE)
        elif text:
            different = differences_from_text(text, stored=problem, tolerance=PROBLEM_TOLERANCE)
        else:
            return None, (), f"not checked: no problem text is stored; {_BY_PROBLEM}"
    except NotRebuiltError as error:
        return None, (), f"not checked: {error}; {_BY_PROBLEM}"
    except InputError as error:
        return False, (), f"the stored text is no problem: {error}"
    return not different, different, ""


def _proved(claimed: Any, proof: Proof) -> Iterator[Check]:
    """Compare what is claimed with what is proved with every rounding accounted for."""
    proved = proof.objective
    if math.isfinite(proved.upper):
        low = proved.lower - PROOF_TOLERANCE * abs(proved.lower)
        high = proved.upper + PROOF_TOLERANCE * abs(proved.upper)
        said = claimed.objective
        yield Check("proved objective", low <= said <= high, said, proved.upper, "at most")
    for name in ("lower_bound", "fixed_lower_bound"):
        if not proof.bounded or (name == "lower_bound" and not proof.rigorous):
            continue
        said, bound = getattr(claimed, name), getattr(proof, name)
        if said is None or bound is None:
            continue
        # The proof is off by what it allows for its roundings.
        relative = bound.width / bound.lower if bound.lower > 0 else math.inf
        most = bound.lower * (1 + PROOF_TOLERANCE + min(relative, ROUNDED))
        words = f"proved {name.removesuffix('lower_bound').replace('_', ' ')}bound"
        yield Check(words, said <= most, said, bound.lower)
    if proof.rigorous:
        note = f"{'proved gap' if proof.bounded else RELEASED}, every rounding accounted for"
        if proof.left_out:
            note += f"; not part of it: {proof.left_out}"
        yield Check("rigorous", True, None, proof.gap if proof.bounded else None, note)
    else:
        yield Check("rigorous", False, note=f"not proved: {proof.why_not}")
