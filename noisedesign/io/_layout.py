"""Which arrays a design file holds, and the design they make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisedesign._checks import Array, InputError
from noisedesign.design import Design
from noisedesign.formulations import DualPoint, diagonal_dual
from noisedesign.graph import check_mixing
from noisedesign.io._manifest import FIELD, Manifest
from noisedesign.participation import FixedEpoch
from noisedesign.problem import PrivacyTarget, Problem, SpaceProblem, TimeProblem, WorkloadKind


@dataclass(frozen=True)
class ArraySpec:
    """``kind`` names the array in the mathematics; ``axes`` are letters of :func:`sizes`."""

    kind: str
    axes: str
    required: bool = True


SPECS: dict[str, dict[str, ArraySpec]] = {
    "space": {
        "covariance": ArraySpec("R", "nn"),
        "mixing": ArraySpec("W", "nn"),
        "budget": ArraySpec("tau", "n"),
        "max_variance": ArraySpec("cap on diag(R)", "n", required=False),
        "dual_weights": ArraySpec("v", "n", required=False),
        "dual_cap": ArraySpec("w", "n", required=False),
    },
    "time": {
        "strategy": ArraySpec("C", "TT"),
        "noising_matrix": ArraySpec("C^-1", "TT"),
        "gram": ArraySpec("H", "TT"),
        "mixing": ArraySpec("W", "nn", required=False),
        "dual_blocks": ArraySpec("U", "bkk", required=False),
    },
}
"""n nodes, T steps, b patterns of k steps each. C is unit sensitivity, R at the stated budgets."""

MAIN = {"space": "covariance", "time": "strategy"}


def arrays_of(design: Design) -> dict[str, Array]:
    """The arrays that determine ``design``, in the order of :data:`SPECS`."""
    problem, dual = design.problem, design.dual
    if isinstance(problem, SpaceProblem):
        found = {
            "covariance": design.covariance,
            "mixing": problem.mixing,
            "budget": problem.budget,
            "max_variance": problem.max_variance,
            "dual_weights": None if dual is None else dual.blocks[:, 0, 0],
            "dual_cap": None if dual is None else dual.cap,
        }
    else:
        found = {
            "strategy": design.strategy,
            "noising_matrix": design.noising_matrix,
            "gram": problem.gram,
            "mixing": problem.mixing,
            "dual_blocks": None if dual is None else dual.blocks,
        }
    return {name: array for name, array in found.items() if array is not None}


def check_arrays(arrays: dict[str, Array], manifest: Manifest) -> None:
    """Every array that must be there is, with the shape the manifest implies, finite.

    Raises:
        InputError: naming the array.
    """
    specs, size = SPECS[manifest.design], _sizes(manifest)
    for name, spec in specs.items():
        if spec.required and name not in arrays:
            raise InputError(f"{FIELD}.{name}", expected=f"the array {spec.kind}", got="nothing")
    for name, array in arrays.items():
        if name not in specs:
            raise InputError(f"{FIELD}.{name}", expected=f"one of {', '.join(specs)}", got=name)
        shape = tuple(size[axis] for axis in specs[name].axes)
        if array.shape != shape:
            raise InputError(
                f"{FIELD}.{name}", expected=f"shape {shape}", got=f"shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{FIELD}.{name}", expected="finite entries", got="NaN or infinity")


def problem_of(arrays: dict[str, Array], manifest: Manifest) -> Problem:
    """The problem, from the arrays of a file that :func:`check_arrays` accepted.

    Raises:
        InputError: the arrays state no valid problem.
    """
    privacy = None
    if manifest.privacy is not None:
        privacy = PrivacyTarget(**manifest.privacy.model_dump())
    if manifest.design == "space":
        return SpaceProblem(
            mixing=arrays["mixing"], budget=arrays["budget"],
            max_variance=arrays.get("max_variance"), name=manifest.name, nodes=manifest.nodes,
            privacy=privacy,
        )  # fmt: skip
    mixing = arrays.get("mixing")
    return TimeProblem(
        gram=arrays["gram"], participation=_participation(manifest),
        workload=_workload(manifest),
        mixing=None if mixing is None else check_mixing(mixing, doubly_stochastic=False),
        name=manifest.name, nodes=manifest.nodes, privacy=privacy,
    )  # fmt: skip


def dual_of(arrays: dict[str, Array]) -> DualPoint | None:
    """The stored multipliers, or None."""
    if "dual_weights" in arrays:
        return diagonal_dual(arrays["dual_weights"], arrays.get("dual_cap"))
    if "dual_blocks" in arrays:
        return DualPoint(blocks=arrays["dual_blocks"])
    return None


def _sizes(manifest: Manifest) -> dict[str, int]:
    if manifest.design == "space":
        return {"n": len(manifest.nodes)}
    scheme = _participation(manifest)
    if manifest.horizon != scheme.horizon:
        raise InputError(
            f"{FIELD}.horizon", expected=f"{scheme.horizon} steps for {scheme}",
            got=str(manifest.horizon),
        )  # fmt: skip
    return {
        "n": len(manifest.nodes), "T": scheme.horizon, "b": scheme.separation, "k": scheme.epochs
    }  # fmt: skip


def _participation(manifest: Manifest) -> FixedEpoch:
    if manifest.participation is None:
        raise InputError(f"{FIELD}.participation", expected="epochs and separation", got="nothing")
    return FixedEpoch(**manifest.participation.model_dump())


def _workload(manifest: Manifest) -> WorkloadKind:
    match manifest.workload:
        case "decentralized" | "prefix" | "gram" as kind:
            return kind
    raise InputError(
        f"{FIELD}.workload", expected="decentralized, prefix or gram", got=str(manifest.workload)
    )
