"""Which arrays a design file holds, and the design they make."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import memory
from noisedesign.base.checks import Array, InputError
from noisedesign.files._described import (
    objective_of,
    observers_of,
    participation_of,
    random_of,
    scheme_of,
    structures,
)
from noisedesign.files._manifest import FIELD, Manifest
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.program.design import Design
from noisedesign.program.family import family_of
from noisedesign.program.noise import STRATEGY_FORMS, DenseForm, StrategyForm, form_of_arrays
from noisedesign.program.problem import (
    Problem,
    SpaceProblem,
    SpaceTimeProblem,
    TimeProblem,
    checked_mixing,
)
from noisedesign.system.participation import FixedEpoch, MinSeparation
from noisedesign.system.workloads import WORKLOADS


@dataclass(frozen=True)
class ArraySpec:
    """``kind`` names the array in the mathematics; ``axes`` are letters of :func:`sizes`."""

    kind: str
    axes: str
    required: bool = True


ANY = "*"
"""Axes of an array whose shape does not follow from the manifest; its reader checks it."""

FORMS = {
    "strategy": ArraySpec("C", "TT", required=False),
    "noising_matrix": ArraySpec("C^-1", "TT", required=False),
    "strategy_bands": ArraySpec("C, its diagonals", ANY, required=False),
    "strategy_coefficients": ArraySpec("C, its first column", ANY, required=False),
    "noising_coefficients": ArraySpec("C^-1, its first column", ANY, required=False),
    "buffer_scales": ArraySpec("omega", ANY, required=False),
    "buffer_decays": ArraySpec("theta", ANY, required=False),
    "strategy_diagonal": ArraySpec("C_tt", ANY, required=False),
}
"""C in one of the forms of :mod:`noisedesign.program.noise.forms`, which checks their shapes."""

SPECS: dict[str, dict[str, ArraySpec]] = {
    "space": {
        "covariance": ArraySpec("R", "nn"),
        "mixing": ArraySpec("W", "nn"),
        "budget": ArraySpec("tau", "n"),
        "max_variance": ArraySpec("cap on diag(R)", "n", required=False),
        "min_variance": ArraySpec("floor on diag(R)", "n", required=False),
        "dual_weights": ArraySpec("v", "n", required=False),
        "dual_cap": ArraySpec("w", "n", required=False),
        "dual_floor": ArraySpec("u", "n", required=False),
        "observer_ranks": ArraySpec("rows of every F", ANY, required=False),
        "observer_factors": ArraySpec("F B, N = F^T F", ANY, required=False),
        "observer_weights": ArraySpec("v of every observer", ANY, required=False),
        "clique_blocks": ArraySpec("P", ANY, required=False),
        "dual_factors": ArraySpec("F, N = F^T F", "Ann", required=False),
        "dual_prices": ArraySpec("v", "An", required=False),
        "unrestricted_weights": ArraySpec("v without a structure", "n", required=False),
        "unrestricted_cap": ArraySpec("w without a structure", "n", required=False),
    },
    "time": {
        **FORMS,
        "gram": ArraySpec("H", "TT", required=False),
        "mixing": ArraySpec("W", "nn", required=False),
        "dual_blocks": ArraySpec("U", "bkk", required=False),
        "dual_matrix": ArraySpec("U", "TT", required=False),
        "dual_shares": ArraySpec("z, diag(X) = P z", ANY, required=False),
        "pattern_lengths": ArraySpec("k of every U_pi", ANY, required=False),
        "pattern_steps": ArraySpec("steps of every U_pi", ANY, required=False),
        "pattern_blocks": ArraySpec("U_pi", ANY, required=False),
        "unrestricted_blocks": ArraySpec("U without a structure", "bkk", required=False),
    },
    "space-time": {
        **FORMS,
        "covariance": ArraySpec("R", "nn"),
        "mixing": ArraySpec("W", "nn"),
        "budget": ArraySpec("tau", "n"),
        "max_variance": ArraySpec("cap on diag(R)", "n", required=False),
        "dual_blocks": ArraySpec("P", "bkk", required=False),
        "dual_weights": ArraySpec("v", "n", required=False),
        "dual_cap": ArraySpec("w", "T", required=False),
        "clique_blocks": ArraySpec("P", ANY, required=False),
    },
}
"""n nodes, A coalitions, T steps, b patterns of k steps each. C is unit sensitivity, R at the
stated budgets.

Of a full space-time design T counts pairs of step and node, and b patterns of single nodes; its C
is at the stated budgets, and there is no R. Of a Kronecker design there is no w.

Of a design with a structure, ``dual_`` arrays prove the bound on designs of that structure and
``unrestricted_`` ones the bound on all.
"""

MOST_STEPS = 1_000_000
"""Of the error of a spatial design, which no array has the size of."""


def main_array(kind: str, arrays: Mapping[str, Array]) -> str:
    """The array that a design is first of all: R, or C in whatever form."""
    return "covariance" if kind == "space" else next(name for name in FORMS if name in arrays)


def arrays_of(design: Design) -> dict[str, Array]:
    """The arrays that determine ``design``, in the order of :data:`SPECS`."""
    problem = design.problem
    found: dict[str, Array | None]
    if isinstance(problem, SpaceTimeProblem):
        found = {
            **design.strategy_form.arrays(),
            "covariance": None if design.noise.space is None else design.covariance,
            "mixing": problem.mixing,
            "budget": problem.budget,
            "max_variance": problem.max_variance,
        }
    elif isinstance(problem, SpaceProblem):
        found = {
            "covariance": design.covariance,
            "mixing": problem.mixing,
            "budget": problem.budget,
            "max_variance": problem.max_variance,
            "min_variance": problem.min_variance,
        }
    else:
        found = {
            **design.strategy_form.arrays(),
            "gram": None if _formed_again(design, problem) else problem.gram,
            "mixing": problem.mixing,
        }
    found |= design.proof
    found |= {relaxed_name(name): array for name, array in design.relaxed_proof.items()}
    return {name: array for name, array in found.items() if array is not None}


def _formed_again(design: Design, problem: TimeProblem) -> bool:
    """Whether H is left out, for what it is formed from: beside a C of few numbers it would be
    nearly all of the file."""
    return WORKLOADS[problem.workload].form is not None and not isinstance(
        design.strategy_form, DenseForm
    )


def check_arrays(arrays: dict[str, Array], manifest: Manifest) -> None:
    """Every array that must be there is, with the shape the manifest implies, finite.

    Raises:
        InputError: naming the array.
    """
    specs, size = specs_of(manifest), _sizes(manifest)
    for name, spec in specs.items():
        if spec.required and name not in arrays:
            raise InputError(f"{FIELD}.{name}", expected=f"the array {spec.kind}", got="nothing")
    if manifest.design != "space":
        _check_form(arrays, manifest)
    for name, array in arrays.items():
        if name not in specs:
            raise InputError(f"{FIELD}.{name}", expected=f"one of {', '.join(specs)}", got=name)
        axes = specs[name].axes
        shape = array.shape if axes == ANY else tuple(size[axis] for axis in axes)
        if array.shape != shape:
            raise InputError(
                f"{FIELD}.{name}", expected=f"shape {shape}", got=f"shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{FIELD}.{name}", expected="finite entries", got="NaN or infinity")


def _check_form(arrays: dict[str, Array], manifest: Manifest) -> None:
    """C is there in one form; in full, so are its inverse and H."""
    found = [form for form in STRATEGY_FORMS if set(form.names) & set(arrays)]
    if len(found) > 1:
        raise InputError(
            f"{FIELD}.strategy",
            expected="C in one form",
            got=" and ".join(form.kind for form in found),
        )
    needed = list(found[0].names) if found else list(DenseForm.names)
    if manifest.design == "time" and (
        DenseForm in found or WORKLOADS[_workload(manifest)].form is None
    ):
        needed.append("gram")
    specs = specs_of(manifest)
    for name in needed:
        if name not in arrays:
            expected = f"the array {specs[name].kind}"
            raise InputError(f"{FIELD}.{name}", expected=expected, got="nothing")


def form_of(arrays: dict[str, Array], manifest: Manifest) -> StrategyForm | None:
    """C of a design with a strategy, in the form it is stored in.

    Raises:
        InputError: naming the array: another shape, a diagonal that is not positive.
    """
    if manifest.design == "space":
        return None
    horizon = _sizes(manifest)["T"]
    if "strategy" not in arrays:
        # C and H are made from fewer numbers than they have: a small file must not fill memory.
        memory.require(memory.squares, horizon, field=f"{FIELD}.horizon", of="steps")
    form = form_of_arrays(arrays, horizon=horizon, field=FIELD)
    # The stored inverse is a claim, which `verify` judges; noise is drawn by one computed afresh.
    return DenseForm(strategy=form.strategy) if isinstance(form, DenseForm) else form


def problem_of(arrays: dict[str, Array], manifest: Manifest) -> Problem:
    """The problem, from the arrays of a file that :func:`check_arrays` accepted.

    Raises:
        InputError: the arrays state no valid problem.
    """
    _check_error_horizon(manifest)
    privacy = None
    if manifest.privacy is not None:
        privacy = PrivacyTarget(**manifest.privacy.model_dump())
    time, space = structures(manifest.structure)
    common: dict[str, Any] = {"name": manifest.name, "nodes": manifest.nodes, "privacy": privacy}
    mixing = arrays.get("mixing")
    if mixing is not None:
        common |= {
            "objective": objective_of(manifest.error, mixing=mixing),
            "random": random_of(manifest.random, mixing=mixing),
        }
    if manifest.design != "time":
        common |= {
            "mixing": mixing,
            "budget": arrays["budget"],
            "max_variance": arrays.get("max_variance"),
        }
    if manifest.design == "space":
        use = manifest.participation
        return SpaceProblem(
            participation=None if use is None else participation_of(use),
            structure=space,
            min_variance=arrays.get("min_variance"),
            observers=observers_of(manifest.observers),
            **common,
        )
    scheme = participation_of(manifest.participation)
    if manifest.design == "space-time":
        return SpaceTimeProblem(
            participation=_fixed_epoch(scheme),
            time=time,
            space=space,
            joint=_joint(manifest),
            **common,
        )
    workload = _workload(manifest)
    common |= {"participation": scheme, "structure": time}
    if mixing is not None:
        common["mixing"] = checked_mixing(mixing, common["objective"])
    if "gram" in arrays:
        return TimeProblem(gram=arrays["gram"], workload=workload, **common)
    if mixing is None and WORKLOADS[workload].of_graph:
        raise InputError(f"{FIELD}.mixing", expected="the array W", got="nothing")
    return TimeProblem.of_workload(workload, **common)


def _check_error_horizon(manifest: Manifest) -> None:
    """The steps whose errors count, before any array of one number a step is made."""
    if manifest.error is None:
        return
    found, horizon = manifest.error.horizon, manifest.horizon
    if manifest.design != "space" and found != horizon:
        raise InputError(
            f"{FIELD}.error.horizon", expected=f"{horizon}, the horizon", got=str(found)
        )
    if found > MOST_STEPS:
        raise InputError(
            f"{FIELD}.error.horizon", expected=f"at most {MOST_STEPS} steps", got=str(found)
        )


_DUAL, _RELAXED = "dual_", "unrestricted_"


def relaxed_name(name: str) -> str:
    """How an array that proves the bound on designs of every structure is stored, beside one of the
    same name that proves that of the structure."""
    return _RELAXED + name.removeprefix(_DUAL) if name.startswith(_DUAL) else name


def proofs_of(arrays: Mapping[str, Array], problem: Problem) -> tuple[dict[str, Array], ...]:
    """What of the arrays proves the bound of the problem's family, and of its relaxation."""
    family = family_of(problem)
    wider = family.relaxed(problem)
    outer = {} if wider is None else family_of(wider).proof
    own = {name: arrays[name] for name in family.proof if name in arrays}
    return own, {name: arrays[relaxed_name(name)] for name in outer if relaxed_name(name) in arrays}


def _sizes(manifest: Manifest) -> dict[str, int]:
    if manifest.design == "space":
        n = len(manifest.nodes)
        _, structure = structures(manifest.structure)
        return {"n": n, "A": min(math.comb(n, structure.known_seeds), sys.maxsize)}
    scheme = scheme_of(manifest.participation, horizon=manifest.horizon)
    n, per_step = len(manifest.nodes), 1
    if manifest.design == "space-time" and _joint(manifest) == "full":
        per_step = n
    k = scheme.epochs if isinstance(scheme, FixedEpoch) else scheme.largest_size
    return {"n": n, "T": per_step * scheme.horizon, "b": per_step * scheme.separation, "k": k}


def specs_of(manifest: Manifest) -> dict[str, ArraySpec]:
    """What arrays a file may hold."""
    specs = SPECS[manifest.design]
    if manifest.design == "space-time" and _joint(manifest) == "full":
        return {
            name: spec
            for name, spec in specs.items()
            if name not in ("covariance", "dual_weights", "clique_blocks")
        }
    if manifest.design == "space-time":
        return {name: spec for name, spec in specs.items() if name != "dual_cap"}
    return specs


def _joint(manifest: Manifest) -> str:
    joint = None if manifest.structure is None else manifest.structure.joint
    if joint is None:
        raise InputError(f"{FIELD}.structure.joint", expected="kronecker or full", got="nothing")
    return joint


def _fixed_epoch(scheme: FixedEpoch | MinSeparation) -> FixedEpoch:
    if isinstance(scheme, FixedEpoch):
        return scheme
    raise InputError(f"{FIELD}.participation", expected="epochs and separation", got=str(scheme))


def _workload(manifest: Manifest) -> str:
    if manifest.workload in WORKLOADS:
        return str(manifest.workload)
    *others, last = WORKLOADS
    expected = f"{', '.join(others)} or {last}"
    raise InputError(f"{FIELD}.workload", expected=expected, got=str(manifest.workload))
