"""Noise as a linear map of white noise, in the arrays that say it best.

A design, its file and its exports ask the noise itself for its arrays, and a reader draws from
nothing else.
"""

from noisedesign.program.noise.forms import (
    STRATEGY_FORMS,
    BandedForm,
    BandedInverseForm,
    BufferedForm,
    DenseForm,
    StrategyForm,
    ToeplitzForm,
    form_of_arrays,
    form_of_strategy,
    form_of_structure,
)
from noisedesign.program.noise.noise import Noise, noise_of_arrays

__all__ = [
    "STRATEGY_FORMS",
    "BandedForm",
    "BandedInverseForm",
    "BufferedForm",
    "DenseForm",
    "Noise",
    "StrategyForm",
    "ToeplitzForm",
    "form_of_arrays",
    "form_of_strategy",
    "form_of_structure",
    "noise_of_arrays",
]
