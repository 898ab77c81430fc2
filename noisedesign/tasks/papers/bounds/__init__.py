"""Published privacy bounds of gossip algorithms, reproduced as baselines for the exact accounts.

Each is a pure function of W and a few numbers and computes what its source claims. Not every claim
holds: what a function says of itself tells on which side of the truth its number may fall, and the
tests keep a counterexample to every claim that fails. No design and no guarantee rests on them.

- ``cyffers``: pairwise network privacy of Muffliato (Cyffers et al. 2022).
- ``zip_dl``: noise that cancels over a neighbourhood (Zip-DL).
- ``gossip``: growth of the sensitivity over time (Koskela and Kulkarni).
- ``utility``: excess risk under that calibration (Koskela and Kulkarni, Theorem 17).
"""

from noisedesign.tasks.papers.bounds import cyffers, gossip, utility, zip_dl
from noisedesign.tasks.papers.bounds._renyi import renyi_divergence

__all__ = ["cyffers", "gossip", "renyi_divergence", "utility", "zip_dl"]
