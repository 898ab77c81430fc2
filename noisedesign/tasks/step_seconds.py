"""The seconds that a node of a design takes for the noise of a step, measured on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from noisedesign.base.nodes import Row
from noisedesign.noise import Secret, noise
from noisedesign.noise.plan import OWN, Plan

COORDINATES = 10_000  # of a model, at most: few enough that a step takes milliseconds
FEWEST = 100  # below, what is measured is no draws
DRAWS = 3e7  # of all coordinates of a step, at most: a second or less
RUN_IN = 16  # steps before those that are measured, where a step follows from the one before
REPEATS = 3


def coordinates_of(designs: Iterable[Any], *, dimension: int | None = None) -> int:
    """The number of coordinates that steps of all these designs are measured for."""
    most = max((_draws(_plan_of(design)) for design in designs), default=1)
    few = min(COORDINATES, max(FEWEST, int(DRAWS // most)))
    return few if dimension is None else min(few, dimension)


def step_seconds(design: Any, *, coordinates: int) -> float:
    """The median of a few steps at the end of the run, at the node of most neighbours.

    Noise whose steps all follow from those before is measured after some of them instead."""
    plan = _plan_of(design)
    shared = {s.name: Secret.new() for s in plan.streams if s.source != OWN}
    own = Secret.new() if OWN in plan.sources else None
    source = noise(plan, secret=own, seeds=shared, record=False)
    last = plan.horizon - 1
    if plan.filter.rows:
        last = min(last, RUN_IN + REPEATS)
    first = max(0, last - REPEATS + 1)
    source.step(max(0, first - 1), coordinates)
    seconds = []
    for t in range(first, last + 1):
        started = time.perf_counter()
        source.step(t, coordinates)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _plan_of(design: Any) -> Plan:
    """The plan of the node of most neighbours."""
    mixing = design.problem.mixing
    busiest = 0 if mixing is None else (np.asarray(mixing) != 0).sum(axis=1).argmax()
    plan: Plan = design.node_plan(Row(busiest))
    return plan


def _draws(plan: Plan) -> int:
    """Draws a coordinate that its last step takes."""
    again = 1 if plan.filter.rows or plan.filter.kind == "fresh" else plan.horizon
    return len(plan.streams) * again
