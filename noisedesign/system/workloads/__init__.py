"""What a design's error is: which models, which steps, and what noise passes through on its way.

An :class:`Objective` says what is measured; a :class:`Workload` turns it and a mixing into the H of
the convex program, in space, in time or in both; a kind says how the H of a temporal problem comes
about.
"""

from noisedesign.system.workloads.objective import ERRORS, Objective
from noisedesign.system.workloads.workload import (
    WORKLOADS,
    Workload,
    WorkloadKind,
    decentralized_gram,
    prefix_gram,
)

__all__ = [
    "ERRORS",
    "WORKLOADS",
    "Objective",
    "Workload",
    "WorkloadKind",
    "decentralized_gram",
    "prefix_gram",
]
