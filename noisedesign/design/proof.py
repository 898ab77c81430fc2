"""A proof of what a design claims, with every rounding accounted for.

Whoever made the design, and whatever its certificate says: the arrays of the noise, of the problem
and of the multipliers are all that counts (:mod:`noisedesign.certify.rigorous`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.enclosures import EPS, Interval
from noisedesign.base.shown import Shown
from noisedesign.certify.rigorous import (
    UNPROVED,
    Judged,
    NotProvedError,
    judge_strategy,
    ratio_above,
)
from noisedesign.design.design import Design
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.family import Sampled, Served, family_of, released
from noisedesign.families.temporal import TemporalProgram, rigorous_uniform_bound
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.privacy import runs
from noisedesign.privacy.sensitivity.toeplitz import sensitivity_above
from noisedesign.problem.problem import Problem, theorem_of

LOSS = 5e-11
"""Largest relative loss of a bound by a quicker proof: half of what a claim may be off by."""

PROVED_ON_SAVE = 500  # coordinates of the largest design proved as it is saved, in a second
STREAMED = 2048  # steps of the longest streaming design that is proved, a minute at most

UNFIT = (
    NotProvedError,
    InputError,
    np.linalg.LinAlgError,
    ArithmeticError,
    ValueError,
    TypeError,
    IndexError,
)
"""Errors raised for arrays that prove nothing; the last three are those of other shapes."""

OF_GAUSSIAN_NOISE = "epsilon and delta, by the account of Gaussian noise"
"""The claim that is left out where a design has a privacy target."""

RELEASED = "what the server releases is within its budget"
"""All that noise of a trusted server claims besides its objective."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Proof(Shown):
    """A proof of a design's claims, or the reason why there is none.

    The intervals hold the objective, squared noise, and a lower bound (its upper end is about what
    the multipliers are worth but for rounding); no squared sensitivity, variance or floor is
    larger, relative to its limit, than the ratios say. ``why_not`` is empty where all is proved;
    ``left_out`` names what no proof here covers. ``fixed_lower_bound`` is that of random
    participation for participation that an adversary chooses. Noise of a trusted server is not
    ``bounded``."""

    objective: Interval = UNPROVED
    lower_bound: Interval = UNPROVED
    sensitivity_squared: float = math.inf
    variance_ratio: float | None = None
    floor_ratio: float | None = None
    why_not: str = ""
    left_out: str = ""
    fixed_lower_bound: Interval | None = None
    bounded: bool = True

    def _facts(self) -> dict[str, object]:
        return {
            "rigorous": self.rigorous,
            "why not": self.why_not,
            "gap": self.gap if self.bounded else None,
            "objective at most": self.objective.upper,
            "lower bound": self.lower_bound.lower,
            "sensitivity squared at most": self.sensitivity_squared,
            "left out": self.left_out,
        }

    @property
    def feasible(self) -> bool:
        """Whether budgets, caps and floors are proved to hold."""
        ratios = (self.sensitivity_squared, self.variance_ratio, self.floor_ratio)
        return all(ratio is None or ratio <= 1 for ratio in ratios)

    @property
    def gap(self) -> float:
        """Proved relative duality gap; infinite where there is none."""
        if not self.lower_bound.lower > 0 or not math.isfinite(self.objective.upper):
            return math.inf
        gap = self.objective.upper / self.lower_bound.lower - 1
        return math.nextafter(gap + 2**-52, math.inf)

    @property
    def rigorous(self) -> bool:
        """Whether feasibility and a gap are proved, of noise that claims no gap the objective."""
        proved = self.gap if self.bounded else self.objective.upper
        return not self.why_not and self.feasible and math.isfinite(proved)


def prove_unbounded(design: UnboundedDesign) -> Proof:
    """Prove the ratio of a design without a horizon as its objective; noise is scaled by what is
    proved of its sensitivity."""
    why = "errors under gossip are not covered, as eigenvalues of W are known to their rounding; "
    why += "the sensitivity for ever is proved"
    return Proof(
        objective=Interval(0.0, design.proved.ratio),
        sensitivity_squared=1.0,
        why_not=why if design.problem.mixing is not None else "",
        left_out=OF_GAUSSIAN_NOISE if design.problem.privacy is not None else "",
        bounded=False,
    )


def prove(design: Design) -> Proof:
    """Prove a design of any family, or say in ``why_not`` that it is not covered."""
    problem, bounded = design.problem, design.trust != "central"
    family, left_out = family_of(problem), _left_out(problem)
    judged, bound, why = None, UNPROVED, ""
    with np.errstate(all="ignore"):
        try:
            if bounded:
                program = family.program(problem)
                judged = family.rigorous_judge(program, design.noise, design.proof)
            else:
                server, program = released(problem)
                if not isinstance(server, Served):
                    why = f"a trusted server's noise of the family {server.name!r} is not covered"
                    raise NotProvedError(why)
                judged = server.rigorous_release(program, design.noise)
        except UNFIT as error:
            return Proof(why_not=f"the noise: {error}", left_out=left_out, bounded=bounded)
        try:
            bound = _bound(design, judged) if bounded else UNPROVED
        except UNFIT as error:
            random = judged.sensitivity_squared == math.inf
            of = "feasibility and the lower bound" if random else "the lower bound"
            why = f"{of}: {error}"
        fixed = _fixed_bound(design)
    found = Proof(
        objective=judged.objective,
        lower_bound=bound,
        sensitivity_squared=judged.sensitivity_squared,
        variance_ratio=judged.variance_ratio,
        floor_ratio=judged.floor_ratio,
        why_not=why,
        left_out=left_out,
        fixed_lower_bound=fixed,
        bounded=bounded,
    )
    return _told(found)


def prove_streaming(design: StreamingDesign) -> Proof:
    """Prove a streaming design over its horizon by arrays of that size; longer ones not at all."""
    steps, left_out = design.horizon, "" if design.privacy is None else OF_GAUSSIAN_NOISE
    if steps > STREAMED:
        why = f"streaming noise over {steps} steps, of which at most {STREAMED} are covered"
        return Proof(why_not=why, left_out=left_out)
    scheme, scale = design.participation, design.squared_sensitivity
    bound, why = UNPROVED, ""
    with np.errstate(all="ignore"):
        program = TemporalProgram(gram=design.workload.gram(), participation=scheme)
        try:
            judged = judge_strategy(program, design.strategy.at(steps).dense(), limit=scale)
        except UNFIT as error:
            return Proof(why_not=f"the noise: {error}", left_out=left_out)
        low, high = (end * scale for end in judged.objective)
        objective = Interval(low * (1 - 2 * EPS), high * (1 + 2 * EPS))
        try:
            bound = rigorous_uniform_bound(
                program, judged=judged, enough=design.lower_bound_of_unrestricted_optimum
            )
        except UNFIT as error:
            why = f"the lower bound: {error}"
    by_column = sensitivity_above(design.strategy.strategy_column(steps), scheme)
    squared = np.array([min(judged.sensitivity_squared, by_column)])
    return _told(
        Proof(
            objective=objective,
            lower_bound=bound,
            sensitivity_squared=ratio_above(squared, np.array([scale])),
            why_not=why,
            left_out=left_out,
        )
    )


def proof_on_save(design: Design) -> Proof | None:
    """Prove a design that is written to a file, if small; no proof is stored."""
    rows = design.size
    if design.noise.strategy is not None and design.noise.space is not None:
        rows *= len(design.covariance)
    return prove(design) if rows <= PROVED_ON_SAVE else None


def _bound(design: Design, judged: Judged) -> Interval:
    """Return the better bound: its family's, or that of every structure where that helps."""
    problem = design.problem
    family = family_of(problem)
    # What a product of that size may be off by is lost anyway.
    loss = max(design.gap, EPS * design.size**2)
    enough = design.lower_bound * (1 - min(loss, LOSS))
    wider = None if family.convex else family.relaxed(problem)
    found, why = [], None
    try:
        program = family.program(problem)
        found.append(
            family.rigorous_bound(
                program, design.proof, noise=design.noise, judged=judged, enough=enough
            )
        )
    except UNFIT as error:
        why = error
    if wider is not None and design.relaxed_proof:
        outer = family_of(wider)
        program = outer.program(wider)
        found.append(outer.rigorous_bound(program, design.relaxed_proof, enough=enough))
    if not found:
        assert why is not None
        raise why
    return max(found)


def _fixed_bound(design: Design) -> Interval | None:
    """Bound participation that an adversary chooses, where the certificate states such a bound."""
    claimed, family = design.certificate.fixed_lower_bound, family_of(design.problem)
    if claimed is None or not isinstance(family, Sampled):
        return None
    try:
        return family.rigorous_fixed_bound(
            family.program(design.problem), design.proof, enough=claimed * (1 - LOSS)
        )
    except UNFIT:
        return UNPROVED


def _left_out(problem: Problem) -> str:
    """Name the claims that no proof covers: scales to a privacy target are floats."""
    left_out = []
    if theorem_of(problem) == runs.FIXED:
        left_out.append(runs.NOT_COVERED)
    if problem.privacy is not None:
        drawn = problem.use is not None and problem.use.random
        account = "epsilon and delta, by the account of random participation"
        left_out.append(account if drawn else OF_GAUSSIAN_NOISE)
    return "; ".join(left_out)


def _told(proof: Proof) -> Proof:
    """Name the inequality that is not proved, if there is one and no other reason."""
    if proof.rigorous or proof.why_not:
        return proof
    ratios = {
        "the sensitivity over its budget": proof.sensitivity_squared,
        "the variance over its cap": proof.variance_ratio,
        "the floor over the variance": proof.floor_ratio,
    }
    missing = [
        f"{words} is only proved to be at most 1 {ratio - 1:+.1e}"
        for words, ratio in ratios.items()
        if ratio is not None and not ratio <= 1
    ]
    missing.append("the lower bound is not positive, or the objective not finite")
    return replace(proof, why_not=missing[0])
