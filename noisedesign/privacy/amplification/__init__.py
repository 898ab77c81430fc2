"""Random participation: how much less a record loses whose steps are drawn in secret."""

from noisedesign.privacy.amplification.account import (
    Amplified as Amplified,
    amplified as amplified,
    amplified_delta as amplified_delta,
    amplified_epsilon as amplified_epsilon,
    amplified_noise as amplified_noise,
    amplified_noise_of as amplified_noise_of,
)
from noisedesign.privacy.amplification.mixture import Mixture as Mixture, bins_of as bins_of
