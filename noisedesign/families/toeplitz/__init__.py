"""Strategies for long horizons: Toeplitz, banded inverse and buffered linear Toeplitz.

A T x T strategy costs O(T^3) to design and O(T^2) to hold. The lower triangular Toeplitz ones here
are designed in O(T log T) a step and make their noise from a few vectors
(:mod:`noisedesign.program.noise.strategies`). They are a few per cent worse than the unrestricted
optimum, and each says by how much at most.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from noisedesign.families.toeplitz.bounds import lower_bound_of_unrestricted_optimum
from noisedesign.privacy.sensitivity.toeplitz import squared_sensitivity
from noisedesign.program.noise import (
    BandedInverse,
    BufferedToeplitz,
    StationaryStrategy,
    ToeplitzStrategy,
)
from noisedesign.program.streaming import StreamingDesign
from noisedesign.system.workloads.toeplitz import (
    GramWorkload,
    PoleWorkload,
    Workload,
    gossip_workload,
    prefix_workload,
)

if TYPE_CHECKING:
    from noisedesign.families.toeplitz.optimize import (
        optimize_banded_inverse,
        optimize_buffered,
        optimize_toeplitz,
    )

__all__ = [
    "BandedInverse",
    "BufferedToeplitz",
    "GramWorkload",
    "PoleWorkload",
    "StationaryStrategy",
    "StreamingDesign",
    "ToeplitzStrategy",
    "Workload",
    "gossip_workload",
    "lower_bound_of_unrestricted_optimum",
    "optimize_banded_inverse",
    "optimize_buffered",
    "optimize_toeplitz",
    "prefix_workload",
    "squared_sensitivity",
]


def __getattr__(name: str) -> object:
    """The optimisers, loaded when they are asked for: judges need the bounds alone."""
    if name.startswith("optimize_"):
        return getattr(import_module(f"{__name__}.optimize"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
