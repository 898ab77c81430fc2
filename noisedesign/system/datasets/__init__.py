"""Public data sets: fetched from their official source, never shipped, always checked by sha256.

A file is looked for in the folder named by the environment variable ``NOISEDESIGN_DATA``, then
in the user's cache, then downloaded.
"""

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
