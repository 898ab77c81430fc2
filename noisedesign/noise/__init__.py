"""Noise for training runs: what one node draws, step by step, from its own secrets.

It loads numpy and cryptography and nothing else, so that a node needs no solver.
"""

from noisedesign.noise.keys import Secret as Secret
from noisedesign.noise.plan import Claim as Claim, Plan as Plan, Stream as Stream
from noisedesign.noise.record import Record as Record
from noisedesign.noise.source import NodeNoise as NodeNoise, noise as noise
