"""Who sees what: algorithms, threat models, and what one learns from the other."""

from noisedesign.privacy.views.algorithms import (
    Algorithm as Algorithm,
    antipgd as antipgd,
    cdp as cdp,
    decor as decor,
    dp_d_sgd as dp_d_sgd,
    mf_d_sgd as mf_d_sgd,
    muffliato as muffliato,
    space_time as space_time,
    whisper as whisper,
    zip_dl as zip_dl,
)
from noisedesign.privacy.views.gram import grams as grams
from noisedesign.privacy.views.mechanism import (
    LinearMechanism as LinearMechanism,
    check_kinds as check_kinds,
    view as view,
)
from noisedesign.privacy.views.observers import (
    Coalitions as Coalitions,
    Observer as Observer,
    central as central,
    coalitions as coalitions,
    insider as insider,
    ldp as ldp,
    pndp as pndp,
    secldp as secldp,
    secure_sum as secure_sum,
    shared_seed as shared_seed,
    tap as tap,
)
