"""Noise as a linear map of white noise, in the arrays that say it best.

A design, its file and its exports ask the noise itself for its arrays, and a reader draws from
nothing else.
"""

from noisedesign.program.noise.noise import Noise, noise_of_arrays
from noisedesign.program.noise.sparse_forms import (
    FORMS,
    MIXING_ARRAYS,
    PairwiseCovariance,
    PolynomialCovariance,
    SparseCovariance,
    mixing_arrays,
    mixing_of_arrays,
    sparse_covariance_of_arrays,
)
from noisedesign.program.noise.strategies import (
    STRATEGIES,
    BandedInverse,
    BandedStrategy,
    BufferedToeplitz,
    DenseStrategy,
    ModalStrategy,
    StationaryStrategy,
    Strategy,
    ToeplitzStrategy,
    strategy_of_arrays,
    strategy_of_structure,
)

__all__ = [
    "FORMS",
    "MIXING_ARRAYS",
    "STRATEGIES",
    "BandedInverse",
    "BandedStrategy",
    "BufferedToeplitz",
    "DenseStrategy",
    "ModalStrategy",
    "Noise",
    "PairwiseCovariance",
    "PolynomialCovariance",
    "SparseCovariance",
    "StationaryStrategy",
    "Strategy",
    "ToeplitzStrategy",
    "mixing_arrays",
    "mixing_of_arrays",
    "noise_of_arrays",
    "sparse_covariance_of_arrays",
    "strategy_of_arrays",
    "strategy_of_structure",
]
