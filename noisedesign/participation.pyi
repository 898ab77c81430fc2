# Names of nd.participation, by the modules that they come from.

from noisedesign.system.participation import (
    BallsInBins as BallsInBins,
    BMinSepSampling as BMinSepSampling,
    CyclicPoisson as CyclicPoisson,
    FixedEpoch as FixedEpoch,
    MinSeparation as MinSeparation,
    Patterns as Patterns,
    RandomAllocation as RandomAllocation,
    TruncatedPoisson as TruncatedPoisson,
    every_step as every_step,
    single as single,
)
