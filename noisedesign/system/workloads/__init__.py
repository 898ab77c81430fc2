"""The error of a design, as the matrix H of its convex program."""

from noisedesign.system.workloads.error import (
    ERRORS as ERRORS,
    WORST as WORST,
    ErrorMeasure as ErrorMeasure,
    ErrorMixture as ErrorMixture,
)
from noisedesign.system.workloads.workload import (
    WORKLOADS as WORKLOADS,
    Workload as Workload,
    WorkloadKind as WorkloadKind,
    decentralized_gram as decentralized_gram,
    prefix_gram as prefix_gram,
)
