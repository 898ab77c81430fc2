# Names of nd.privacy, by the modules that they come from.

from noisedesign.design.prefix import privacy_after as privacy_after
from noisedesign.privacy.accounting import (
    delta_of as delta_of,
    epsilon_of as epsilon_of,
    mu_of as mu_of,
    noise_stddev_for as noise_stddev_for,
    renyi_of as renyi_of,
)
from noisedesign.privacy.ledger import (
    Ledger as Ledger,
    dp_event as dp_event,
    neighboring_relation as neighboring_relation,
)
from noisedesign.tasks.dropout import (
    drop_out as drop_out,
    every_drop_out as every_drop_out,
    mu_to_holders as mu_to_holders,
)
