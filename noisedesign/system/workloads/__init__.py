"""What a design's error is: which models, which steps, and what noise passes through on its way.

An :class:`ErrorMeasure` says what is measured; a :class:`Workload` turns it and a mixing into the H
of the convex program, in space, in time or in both; a kind says how the H of a temporal problem
comes about.
"""

from noisedesign.system.workloads.error import ERRORS as ERRORS, ErrorMeasure as ErrorMeasure
from noisedesign.system.workloads.workload import (
    WORKLOADS as WORKLOADS,
    Workload as Workload,
    WorkloadKind as WorkloadKind,
    decentralized_gram as decentralized_gram,
    prefix_gram as prefix_gram,
)
