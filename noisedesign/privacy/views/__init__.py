"""Who sees what: algorithms, trust models, and what one learns from the other."""

from noisedesign.privacy.views.algorithms import (
    Algorithm,
    antipgd,
    decor,
    dp_d_sgd,
    mf_d_sgd,
    muffliato,
    space_time,
    whisper,
    zip_dl,
)
from noisedesign.privacy.views.gram import grams
from noisedesign.privacy.views.mechanism import LinearMechanism, check_kinds, view
from noisedesign.privacy.views.noise import Gram, VictimGram
from noisedesign.privacy.views.observers import (
    MODELS,
    OWN_NOISE,
    Observer,
    insider,
    ldp,
    pndp,
    secldp,
    secure_sum,
    shared_seed,
    tap,
)

__all__ = [
    "MODELS",
    "OWN_NOISE",
    "Algorithm",
    "Gram",
    "LinearMechanism",
    "Observer",
    "VictimGram",
    "antipgd",
    "check_kinds",
    "decor",
    "dp_d_sgd",
    "grams",
    "insider",
    "ldp",
    "mf_d_sgd",
    "muffliato",
    "pndp",
    "secldp",
    "secure_sum",
    "shared_seed",
    "space_time",
    "tap",
    "view",
    "whisper",
    "zip_dl",
]
