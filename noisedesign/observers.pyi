# Names of nd.observers, by the modules that they come from.

from noisedesign.privacy.views import (
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
