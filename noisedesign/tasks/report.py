"""Flat records of results, for people and programs, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.tables import Record as Record, print_table as print_table
from noisedesign.design.design import AGAINST_OBSERVERS, PROTECTS, Design
from noisedesign.design.proof import RELEASED, Proof
from noisedesign.design.solve import Solution
from noisedesign.forms import SparseCovariance
from noisedesign.noise.plan import CHANGE_OVER_CLIP
from noisedesign.privacy.exposure import UNAMPLIFIED_MU, Exposure
from noisedesign.privacy.runs import FIXED, NOT_COVERED, THEOREMS
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import Problem, theorem_of
from noisedesign.tasks.evaluate import error_of_run

if TYPE_CHECKING:
    from noisedesign.privacy.amplification import Amplified
    from noisedesign.tasks.account.table import ModelRow, Setting
    from noisedesign.tasks.dropout import DropOut

REFUSED = "refused"  # status of a problem that a backend cannot take, or that cannot be run here
DRAWN = ("confidence", "epsilon_estimate")  # values of an account of random steps only
BOUNDED = ("lower_bound", "gap")  # values of an account of declared classes of losses only

_OF_TARGET = ("mu", "epsilon", "delta", "adjacency", "noise_stddev", "noise_multiplier")
AT_TARGET = (*_OF_TARGET, "which", "confidence", "error_at_target")
"""Values of a design at the privacy target of its problem: mu-GDP (none under random
participation), epsilon (that of the target, or its bound under random participation), the
factor on the standard deviation of its noise, that factor over the clip, what the account of random
participation rests on and its confidence (elsewhere that of objective and bound, where these are
estimates), and the total squared error a coordinate: the objective times noise_stddev squared."""

OF_RUN = "error_of_run"
"""The error of all models of the whole run at the target, a coordinate (:func:`evaluate`): the one
value by which designs in space, in time and in both compare; None where it is not computed."""

SECRET = (
    "epsilon is for steps that are drawn in secret, for this run alone, and sums of gradients over "
    "a fixed number; mu_unamplified is that of a record whose steps are known, and does not give "
    "this epsilon"
)


def solution_record(solution: Solution) -> Record:
    design, problem = solution.design, solution.problem
    certificate = getattr(design, "certificate", None)
    record: Record = {
        "name": problem.name,
        "design": problem.axes,
        "backend": solution.backend,
        "method": None if design is None else design.provenance.method,
        "status": solution.status,
        **{name: getattr(design, name, None) for name in ("objective", "lower_bound", "gap")},
        "seconds": solution.seconds,
        "feasible": solution.feasible,
        "theorem": theorem_of(problem).number,
        "relative_to_ldp": getattr(design, "relative_to_ldp", None),
        "relative_to_unrestricted": getattr(certificate, "relative_to_unrestricted", None),
        "independent_variance": getattr(design, "independent_variance", None),
        **at_target(design),
        **at_random(design),
    }
    for name in ("build_seconds", "solve_seconds", "evaluations", "remedy"):
        record[name] = getattr(solution, name)
    if (cap := solution.default_cap) is not None:
        told = {"times_independent": cap.times, "cost": cap.cost, "over": cap.beside}
        record["default_cap"] = finite(told)
    if design is not None:
        record |= prices_record(design)
    if design is not None and problem.privacy is not None:
        record["privacy"] = privacy_record(design)
    return record


def cap_note(solution: Solution) -> str:
    """Say which cap nobody asked for, what it costs, and how to refuse it; mostly nothing."""
    if solution.default_cap is None:
        return ""
    return (
        f"{solution.problem.name}: largest variance {solution.default_cap}. H is singular: "
        '[limits] max_variance states another cap, and max_variance = "none" refuses.'
    )


def kinds_note(records: Sequence[Record]) -> str:
    """Say that objectives of noise of different kinds are no one error; nothing where they are."""
    if len({record["design"] for record in records}) < 2:
        return ""
    return (
        "objectives of designs in space, in time and in both are errors of different noise and "
        "runs: errors of one run, with one target, compare; nd.evaluate gives designs any error"
    )


def at_target(design: Design | None) -> Record:
    """The values of AT_TARGET; None where there is no design, or no target."""
    if design is None:
        return dict.fromkeys(AT_TARGET)
    estimated = {"confidence": design.certificate.confidence}
    if design.problem.privacy is None:
        return dict.fromkeys(AT_TARGET) | estimated
    found = calibration_of(design.problem)
    told = {name: getattr(found, name, None) for name in AT_TARGET} | estimated
    if is_random(design.problem) and (account := account_of(design)) is not None:
        told |= {name: getattr(account, name) for name in ("epsilon", "which", "confidence")}
    return told | {"error_at_target": design.objective * found.noise_stddev**2}


def at_random(design: Design | None) -> Record:
    """The estimate beside a bound on epsilon, and the bound on fixed participation's designs."""
    if design is None or not is_random(design.problem):
        return {}
    account = account_of(design)
    told = {"epsilon_estimate": None if account is None else account.epsilon_estimate}
    if design.axes == "space":
        return told
    of_fixed = ("fixed_lower_bound", "relative_to_fixed")
    return told | {name: getattr(design.certificate, name) for name in of_fixed}


def is_random(problem: Problem) -> bool:
    """Whether records take part at random, in secret."""
    return problem.use is not None and problem.use.random


def account_of(design: Design) -> Amplified | None:
    """The account of a design at its target under random participation; None without a target."""
    return design.certificate.account or calibration_of(design.problem).account


def refused_record(problem: Problem, backend: str, error: InputError) -> Record:
    return {
        "name": problem.name,
        "design": problem.axes,
        "backend": backend,
        "status": REFUSED,
        "feasible": False,
        "remedy": str(error),
    }


def print_solutions(records: Sequence[Record], *, structured: bool) -> None:
    columns = ["name", "backend", "method", "status", "objective", "relative_to_ldp"]
    if structured:
        columns.append("relative_to_unrestricted")
    calibration = records[0].get("privacy", {}) if len(records) == 1 else {}
    columns += ["lower_bound", "gap", "feasible", *dict.fromkeys([*calibration, *AT_TARGET])]
    print_table([record.get("privacy", {}) | record for record in records], [*columns, "seconds"])


def privacy_record(design: Design) -> Record:
    found = calibration_of(design.problem)
    used = None if found.participation is None else str(found.participation)
    first, *names = (*_OF_TARGET[:4], "conversion", *_OF_TARGET[4:], "clip", "step_sensitivity")
    mu = {UNAMPLIFIED_MU: design.fixed_mu} if is_random(design.problem) else {first: found.mu}
    told = mu | {name: getattr(found, name) for name in names}
    return told | {"steps": found.horizon, "participation": used}


def design_record(design: Design) -> Record:
    """One design among others: its noise, and what it is worth against independent noise."""
    return {
        "name": design.problem.name,
        "design": design.axes,
        "method": design.provenance.method,
        "objective": design.objective,
        "relative_to_ldp": design.relative_to_ldp,
        "independent_variance": design.independent_variance,
        **at_target(design),
        OF_RUN: error_of_run(design),
        **at_random(design),
        "lower_bound": design.lower_bound,
        # A bound on protecting every message says nothing of a mechanism that does not.
        "gap": design.gap if design.trust != "central" else None,
        "feasible": design.certificate.feasible or design.trust == "central",
        "protects": PROTECTS[design.trust],
        "theorem": theorem_of(design.problem).number,
        **prices_record(design),
    }


def prices_record(design: Design) -> Record:
    """The prices of budgets, or None and why there are none."""
    if why := design.unpriced:
        return {"prices": None, "unpriced": why}
    return {"prices": dict(design.prices)}


def exposure_record(exposure: Exposure) -> Record:
    names = ("node", "distance", "sensitivity_squared", "which", "mu", "epsilon", *DRAWN, "delta")
    rest = ("adjacency", "responses", "theorem", *BOUNDED, "random")
    record = _drawn({name: getattr(exposure, name) for name in (*names, *rest)})
    return record | ({"note": exposure.words} if exposure.words else {})


def model_record(row: ModelRow) -> Record:
    return _drawn(asdict(row))


def theorem_notes(records: Sequence[Record]) -> list[str]:
    numbers = sorted({record["theorem"] for record in records} - {None})
    return [f"{THEOREMS[number]} (docs/runs.md)" for number in numbers]


def _drawn(record: Record) -> Record:
    """The values of an account; mu has another name, as epsilon does not follow from it."""
    left_out = {"random", *(key for key in BOUNDED if record[key] is None)}
    left_out.update(() if record["random"] else DRAWN)
    names = {"mu": UNAMPLIFIED_MU} if record["random"] else {}
    shown = {names.get(key, key): value for key, value in record.items() if key not in left_out}
    return finite(shown)


def finite(record: Record) -> Record:
    """A record with the word for what is infinite, for which JSON has no number."""
    return {
        key: "infinite" if isinstance(value, float) and math.isinf(value) else value
        for key, value in record.items()
    }


def drop_out_notes(found: Sequence[DropOut]) -> list[str]:
    worst = max(one.others.sensitivity_squared for one in found)
    sentences = [
        f"Those left are protected as designed (largest squared sensitivity {worst:.6g} of the "
        "budget): fewer messages tell no more."
    ]
    parts = [one.without_seeds for one in found if one.without_seeds is not None]
    if not parts:
        return [*sentences, "The noise is dealt, so there are no seeds to leave out."]
    worst = max(one.sensitivity_squared for one in parts)
    if worst > 1 + 1e-9:  # more than rounding
        told = "nothing hides some of them" if math.isinf(worst) else f"it is {worst:.6g} then"
        sentences.append(
            "Without the seeds of those gone, or where these become known, they are protected "
            f"less: {told}. Designs with structure.known_seeds keep their budgets."
        )
    return sentences


def scale_words(scale: Setting) -> str:
    """Say what mu and epsilon of an account are for: noise, adjacency, participation, delta."""
    clips = {1.0: "the clip", 2.0: "twice the clip"}[CHANGE_OVER_CLIP[scale.adjacency]]
    given = scale.noise_multiplier
    values = list(given.values()) if isinstance(given, Mapping) else np.ravel(given).tolist()
    low, high = min(values), max(values)
    multiplier = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}, one a node"
    words = (
        f"noise multiplier {multiplier}, adjacency {scale.adjacency} (a step "
        f"changes by up to {clips}), participation {scale.participation}, "
        f"epsilon at delta = {scale.delta:g}"
    )
    return f"{words}; {SECRET}" if scale.participation.random else words


def insider_note(design: Design) -> str:
    """Say what the certificate does not cover: who may know the noise, and who looks."""
    if design.trust == AGAINST_OBSERVERS:
        told = [
            "Protects from the chosen observers only, each looking for itself, and one record at "
            "one step: `noisedesign account` says what everybody else learns."
        ]
        if theorem_of(design.problem) == FIXED:
            told.append(f"For {NOT_COVERED}.")
        if getattr(design.problem, "pair_factors", None) is not None:
            told.append(
                "Budgets depend on who looks at whom: a target is kept before all of them, so it "
                "is what the observer told most may learn, and the others learn less."
            )
        return " ".join(told)
    if design.axes == "time":
        told = ["Protects every message; every node draws its own noise and shares no seed."]
    elif isinstance(design.noise.space, SparseCovariance):
        told = ["Protects every message against eavesdroppers.", design.noise.space.drawn]
    else:
        told = [
            "Protects every message against eavesdroppers, and against nodes that know only their "
            "own noise. If all nodes share one noise seed, nodes are not protected from each other."
        ]
    if is_random(design.problem):
        told.append(
            "Which batch a record is in has to be drawn by its node, for this run alone, and kept "
            "secret."
        )
    return " ".join(told)


def proof_note(proof: Proof) -> str:
    if not proof.rigorous:
        return f"Not proved with every rounding accounted for: {proof.why_not}."
    words = f"feasible, gap at most {proof.gap:.2e}" if proof.bounded else RELEASED
    left = f"; not part of it: {proof.left_out}" if proof.left_out else ""
    return f"Proved with every rounding accounted for: {words}{left}."
