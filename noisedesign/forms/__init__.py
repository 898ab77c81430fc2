"""Noise as a linear map of white noise, in the arrays that say it best."""

from noisedesign.forms.noise import Noise as Noise, noise_of_arrays as noise_of_arrays
from noisedesign.forms.sparse_forms import (
    FORMS as FORMS,
    MIXING_ARRAYS as MIXING_ARRAYS,
    PairwiseCovariance as PairwiseCovariance,
    PolynomialCovariance as PolynomialCovariance,
    SparseCovariance as SparseCovariance,
    mixing_arrays as mixing_arrays,
    mixing_of_arrays as mixing_of_arrays,
    sparse_covariance_of_arrays as sparse_covariance_of_arrays,
)
from noisedesign.forms.strategies import (
    STRATEGIES as STRATEGIES,
    BandedInverse as BandedInverse,
    BandedStrategy as BandedStrategy,
    BufferedToeplitz as BufferedToeplitz,
    DenseStrategy as DenseStrategy,
    ModalStrategy as ModalStrategy,
    SignedBuffers as SignedBuffers,
    StationaryStrategy as StationaryStrategy,
    Strategy as Strategy,
    ToeplitzStrategy as ToeplitzStrategy,
    strategy_of_arrays as strategy_of_arrays,
    strategy_of_structure as strategy_of_structure,
)
