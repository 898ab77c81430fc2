"""Structures, objectives and random mixings as entries of a manifest, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisedesign._checks import Array, InputError
from noisedesign.io._manifest import FIELD, ErrorEntry, ParticipationEntry, StructureEntry
from noisedesign.io._manifest import RandomEntry as Entry
from noisedesign.objectives import Objective
from noisedesign.participation import FixedEpoch, MinSeparation
from noisedesign.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.random_mixing import EdgeDropout, NodeDropout, RandomMatchings, RandomMixing
from noisedesign.structure import SpaceStructure, TimeStructure


def structure_entry(problem: Problem) -> dict[str, Any] | None:
    """None where there is no structure to speak of."""
    time, space, joint = TimeStructure(), SpaceStructure(), None
    if isinstance(problem, SpaceProblem):
        space = problem.structure
    elif isinstance(problem, TimeProblem):
        time = problem.structure
    else:
        time, space, joint = problem.time, problem.space, problem.joint
    if not (time.restricts or space.restricts or joint):
        return None
    return {
        "time": time.kind, "bands": time.bands, "buffers": time.buffers, "space": space.kind,
        "hops": space.hops, "clusters": space.clusters, "known_seeds": space.known_seeds,
        "joint": joint,
    }  # fmt: skip


def structures(entry: StructureEntry | None) -> tuple[TimeStructure, SpaceStructure]:
    found = StructureEntry() if entry is None else entry
    return (
        TimeStructure(kind=found.time, bands=found.bands, buffers=found.buffers),
        SpaceStructure(
            kind=found.space, hops=found.hops, clusters=found.clusters,
            known_seeds=found.known_seeds,
        ),
    )  # fmt: skip


def error_entry(problem: Problem) -> dict[str, Any] | None:
    """The objective of a problem, None for the usual one."""
    objective = problem.objective
    if objective is None:
        return None
    for field in ("average", "push_sum_weights"):
        if getattr(objective, field) is not None:
            raise InputError(
                f"objective.{field}", expected="nothing in a design that is stored", got="values"
            )
    return {
        "horizon": int(objective.horizon), "of": objective.of, "momentum": objective.momentum,
        "node_weights": _listed(objective.node_weights),
        "step_weights": _listed(objective.step_weights),
        "learning_rates": _listed(objective.learning_rates),
    }  # fmt: skip


def objective_of(entry: ErrorEntry | None) -> Objective | None:
    if entry is None:
        return None
    return Objective(**{key: _array(value) for key, value in entry.model_dump().items()})


def random_entry(problem: Problem) -> dict[str, Any] | None:
    found = problem.random
    match found:
        case None:
            return None
        case NodeDropout():
            return {"kind": "dropout", "probability": _listed(found.probability)}
        case EdgeDropout():
            return {"kind": "edge-failure", "probability": float(found.probability)}
        case RandomMatchings() if np.all(found.probabilities == 1 / len(found.matchings)):
            pairs = tuple(tuple((int(i), int(j)) for i, j in m) for m in found.matchings)
            return {"kind": "matchings", "matchings": pairs}
    raise InputError(
        "random", expected="dropout, edge failures or equally likely matchings in a design that is "
        "stored", got=type(found).__name__,
    )  # fmt: skip


def random_of(entry: Entry | None, *, mixing: Array) -> RandomMixing | None:
    if entry is None:
        return None
    if entry.kind == "dropout":
        return NodeDropout(mixing=mixing, probability=_array(entry.probability))
    if entry.kind == "edge-failure":
        return EdgeDropout(mixing=mixing, probability=entry.probability)  # type: ignore[arg-type]
    return RandomMatchings(nodes=len(mixing), matchings=entry.matchings or ())


def participation_entry(problem: Problem) -> dict[str, int] | None:
    if isinstance(problem, SpaceProblem):
        return None
    scheme = problem.participation
    if isinstance(scheme, FixedEpoch):
        return {"epochs": int(scheme.epochs), "separation": int(scheme.separation)}
    return {
        "separation": int(scheme.separation), "horizon": int(scheme.horizon),
        "max_participations": int(scheme.max_participations),
    }  # fmt: skip


def participation_of(entry: ParticipationEntry | None) -> FixedEpoch | MinSeparation:
    if entry is None:
        raise InputError(f"{FIELD}.participation", expected="epochs and separation", got="nothing")
    if entry.epochs is not None:
        return FixedEpoch(epochs=entry.epochs, separation=entry.separation)
    if entry.horizon is None or entry.max_participations is None:
        raise InputError(
            f"{FIELD}.participation", expected="epochs, or horizon and max_participations",
            got="neither",
        )  # fmt: skip
    return MinSeparation(
        horizon=entry.horizon, separation=entry.separation,
        max_participations=entry.max_participations,
    )  # fmt: skip


def _listed(value: Any) -> Any:
    """Numbers as JSON has them."""
    if value is None:
        return None
    if np.ndim(value) == 0:
        return float(value)
    return tuple(float(x) for x in value)


def _array(value: Any) -> Any:
    return np.array(value, dtype=np.float64) if isinstance(value, tuple) else value
