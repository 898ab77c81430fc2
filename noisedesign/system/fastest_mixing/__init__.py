"""Mixing weights as part of the design: the fastest, and those that suit the noise.

A graph's symmetric W with W 1 = 1 are W = I - sum_e w_e b_e b_e^T, b_e = e_i - e_j, one weight an
edge. How fast models agree is ||W - J||_2, J = 1 1^T / n, convex in w: the fastest W is a
semidefinite program (Boyd, Diaconis and Xiao 2004; Xiao and Boyd 2004 where weights may be
negative). So is the W of least tr(W R W^T) for a given R among those that are fast enough;
alternating it with the design of R finds a pair, though no proof that there is no better one.

Whatever a solver returns is made exactly feasible, and every number is computed from that matrix.
"""

from noisedesign.system.fastest_mixing.bound import mixing_norm, norm_lower_bound
from noisedesign.system.fastest_mixing.fastest import FastestMixing, fastest_mixing

__all__ = ["FastestMixing", "fastest_mixing", "mixing_norm", "norm_lower_bound"]
