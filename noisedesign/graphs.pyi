# Names of nd.graphs, by the modules that they come from.

from noisedesign.design.least_noise import (
    LeastNoiseMixing as LeastNoiseMixing,
    least_noise_mixing as least_noise_mixing,
)
from noisedesign.system.random_mixing import (
    EdgeDropout as EdgeDropout,
    NodeDropout as NodeDropout,
    RandomMatchings as RandomMatchings,
    RandomMixing as RandomMixing,
    maximal_matchings as maximal_matchings,
    pairwise_gossip as pairwise_gossip,
)
from noisedesign.system.rules import sparse_mixing_matrix as sparse_mixing_matrix
