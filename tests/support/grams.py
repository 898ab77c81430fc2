"""The Gram matrices of a workload, each in one call."""

from __future__ import annotations

from typing import Any

from noisedesign.base.checks import Array
from noisedesign.system.workloads import Objective, Workload


def space_gram(mixing: Any, *, objective: Objective, time_covariance: Any = None) -> Array:
    return Workload(mixing=mixing, objective=objective).space_gram(time_covariance)


def time_gram(mixing: Any, *, objective: Objective, node_covariance: Any = None) -> Array:
    return Workload(mixing=mixing, objective=objective).time_gram(node_covariance)


def space_time_gram(mixing: Any, *, objective: Objective) -> Array:
    return Workload(mixing=mixing, objective=objective).gram()
