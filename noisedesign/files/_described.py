"""Structures, objectives and random mixings as entries of a manifest, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.files._manifest import (
    FIELD,
    ErrorEntry,
    ObserverEntry,
    ParticipationEntry,
    StructureEntry,
)
from noisedesign.files._manifest import RandomEntry as Entry
from noisedesign.privacy.views import Observer
from noisedesign.privacy.views.noise import Knowledge
from noisedesign.program.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.program.structure import SpaceStructure, TimeStructure
from noisedesign.system.directed import perron_vector, push_sum_weights
from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation
from noisedesign.system.random_mixing import EdgeDropout, NodeDropout, RandomMatchings, RandomMixing
from noisedesign.system.workloads import Objective

DERIVED = 1e-12
"""Relative difference of two vectors that follow from one W: sums of at most a few thousand
positive terms, in whatever order."""


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
        "time": time.kind,
        "bands": time.bands,
        "buffers": time.buffers,
        "space": space.kind,
        "hops": space.hops,
        "clusters": space.clusters,
        "known_seeds": space.known_seeds,
        "joint": joint,
    }


def structures(entry: StructureEntry | None) -> tuple[TimeStructure, SpaceStructure]:
    found = StructureEntry() if entry is None else entry
    return (
        TimeStructure(kind=found.time, bands=found.bands, buffers=found.buffers),
        SpaceStructure(
            kind=found.space,
            hops=found.hops,
            clusters=found.clusters,
            known_seeds=found.known_seeds,
        ),
    )


def error_entry(problem: Problem) -> dict[str, Any] | None:
    """The objective of a problem, None for the usual one."""
    objective = problem.objective
    if objective is None:
        return None
    return {
        "horizon": int(objective.horizon),
        "of": objective.of,
        "momentum": objective.momentum,
        "node_weights": _listed(objective.node_weights),
        "step_weights": _listed(objective.step_weights),
        "learning_rates": _listed(objective.learning_rates),
    } | _models(objective, problem.mixing)


def _models(objective: Objective, mixing: Array | None) -> dict[str, Any]:
    """Which mean and which push-sum weights, where they are those of W; no others are stored."""
    assert mixing is not None
    found: dict[str, Any] = {"mean": "plain", "push_sum": False}
    if (average := objective.average) is not None:
        _check_derived(
            "average",
            np.asarray(average) / np.sum(average),
            lambda: perron_vector(mixing, stochastic="row"),
            what="the Perron vector of W",
        )
        found["mean"] = "perron"
    if (weights := objective.push_sum_weights) is not None:
        _check_derived(
            "push_sum_weights",
            weights,
            lambda: push_sum_weights(mixing, horizon=objective.horizon),
            what="those of W, one row a step",
        )
        found["push_sum"] = True
    return found


def _check_derived(field: str, value: Array, derive: Callable[[], Array], *, what: str) -> None:
    try:
        expected = derive()
        same = value.shape == expected.shape and np.allclose(
            value, expected, rtol=DERIVED, atol=0.0
        )
    except InputError:
        same = False
    if not same:
        raise InputError(
            f"objective.{field}", expected=f"{what}, in a design that is stored", got="others"
        )


def objective_of(entry: ErrorEntry | None, *, mixing: Array) -> Objective | None:
    if entry is None:
        return None
    fields = {key: _array(value) for key, value in entry.model_dump().items()}
    mean, push_sum = fields.pop("mean"), fields.pop("push_sum")
    if mean == "perron":
        fields["average"] = perron_vector(mixing, stochastic="row")
    if push_sum:
        fields["push_sum_weights"] = push_sum_weights(mixing, horizon=entry.horizon)
    return Objective(**fields)


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
        "random",
        expected="dropout, edge failures or equally likely matchings in a design that is stored",
        got=type(found).__name__,
    )


def random_of(entry: Entry | None, *, mixing: Array) -> RandomMixing | None:
    if entry is None:
        return None
    if entry.kind == "dropout":
        return NodeDropout(mixing=mixing, probability=_array(entry.probability))
    if entry.kind == "edge-failure":
        return EdgeDropout(mixing=mixing, probability=entry.probability)  # type: ignore[arg-type]
    return RandomMatchings(nodes=len(mixing), matchings=entry.matchings or ())


def observer_entries(problem: Problem) -> tuple[dict[str, Any], ...]:
    """The observers a problem is against; none where it is against a reader of all messages."""
    if not isinstance(problem, SpaceProblem):
        return ()
    return tuple(_observer_entry(observer) for observer in problem.observers)


def _observer_entry(observer: Observer) -> dict[str, Any]:
    knows = observer.knows
    if knows.everything or knows.seeds:
        raise InputError(
            "observers",
            expected="observers who know noise by its nodes, in a design that is stored",
            got=str(observer),
        )
    return {
        "model": observer.model,
        "sees": observer.sees,
        "coalition": tuple(int(i) for i in observer.coalition),
        "listened": tuple(int(i) for i in observer.listened),
        "holders": tuple(sorted(int(i) for i in knows.holders)),
        "values": tuple(sorted(int(i) for i in knows.values)),
    }


def observers_of(entries: Sequence[ObserverEntry]) -> tuple[Observer, ...]:
    return tuple(
        Observer(
            model=entry.model,
            sees=entry.sees,
            coalition=entry.coalition,
            listened=entry.listened,
            knows=Knowledge(holders=frozenset(entry.holders), values=frozenset(entry.values)),
        )
        for entry in entries
    )


def participation_entry(problem: Problem) -> dict[str, Any] | None:
    return None if problem.participation is None else scheme_entry(problem.participation)


def scheme_entry(scheme: Participation) -> dict[str, Any]:
    return scheme.entry()


def participation_of(entry: ParticipationEntry | None) -> FixedEpoch | MinSeparation:
    if entry is None:
        raise InputError(f"{FIELD}.participation", expected="epochs and separation", got="nothing")
    if entry.epochs is not None:
        return FixedEpoch(epochs=entry.epochs, separation=entry.separation)
    if entry.horizon is None or entry.max_participations is None:
        raise InputError(
            f"{FIELD}.participation",
            expected="epochs, or horizon and max_participations",
            got="neither",
        )
    return MinSeparation(
        horizon=entry.horizon,
        separation=entry.separation,
        max_participations=entry.max_participations,
    )


def scheme_of(
    entry: ParticipationEntry | None, *, horizon: int | None
) -> FixedEpoch | MinSeparation:
    """The scheme of a file that states its ``horizon`` as well.

    Raises:
        InputError: naming ``horizon``: another one than that of the scheme.
    """
    scheme = participation_of(entry)
    if horizon != scheme.horizon:
        raise InputError(
            f"{FIELD}.horizon", expected=f"{scheme.horizon} steps for {scheme}", got=str(horizon)
        )
    return scheme


def _listed(value: Any) -> Any:
    """Numbers as JSON has them."""
    if value is None:
        return None
    if np.ndim(value) == 0:
        return float(value)
    return tuple(float(x) for x in value)


def _array(value: Any) -> Any:
    return np.array(value, dtype=np.float64) if isinstance(value, tuple) else value
