"""Public data sets, always checked by sha256: from the folder of the environment variable
``NOISEDESIGN_DATA``, then the user's cache, then their official source."""

from noisedesign.system.datasets.graphs import (
    EGO_FACEBOOK_NODES as EGO_FACEBOOK_NODES,
    PEERTUBE_NODES as PEERTUBE_NODES,
    ego_facebook as ego_facebook,
    local_ego_facebook as local_ego_facebook,
    local_peertube as local_peertube,
    peertube as peertube,
)
from noisedesign.system.datasets.lookup import (
    DATA_VARIABLE as DATA_VARIABLE,
    data_folder as data_folder,
)
