"""The Gram matrices of a workload, each in one call."""

from __future__ import annotations

from typing import Any

from noisedesign.base.checks import Array
from noisedesign.system.workloads import ErrorMeasure, Workload


def space_gram(mixing: Any, *, error: ErrorMeasure, time_covariance: Any = None) -> Array:
    return Workload(mixing=mixing, error=error).space_gram(time_covariance)


def time_gram(mixing: Any, *, error: ErrorMeasure, node_covariance: Any = None) -> Array:
    return Workload(mixing=mixing, error=error).time_gram(node_covariance)


def space_time_gram(mixing: Any, *, error: ErrorMeasure) -> Array:
    return Workload(mixing=mixing, error=error).gram()
