"""H = W^T M W of an error over several steps, M positive definite where W is singular.

Noise enters a model through W at every step, so that H = W^T M W with M = sum_s k_s N_s,

    N_s = a_s Q_s + W^T N_{s+1} W,     N_{T+1} = 0

(:mod:`noisedesign.system.workloads.workload`). Entries of H are rounded, and what is singular is
then hardly ever positive semidefinite; W and M are known.
"""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Enclosure, U, exactly, finer_product, up
from noisedesign.system.workloads import Workload


def inside(workload: Workload) -> tuple[Array, Enclosure] | None:
    """W, shape (n, n), and M with its error; None where W is not the same at every step, or noise
    of a step enters at others as well."""
    w, error = workload.fixed_mixing, workload.error
    if w is None or error.momentum > 0:
        return None
    shares = np.square(np.diagonal(error.step_factor))
    mid, rad = np.zeros_like(w), np.zeros_like(w)
    later: Enclosure | None = None
    for step in range(error.horizon - 1, -1, -1):
        entering = error.steps[step] * error.readout(nodes=len(w), step=step)
        now = exactly(entering)
        if later is not None:
            seen = finer_product(finer_product(exactly(w.T.copy()), later), exactly(w))
            now = seen.plus(now)
        part = now.scaled_by(float(shares[step]))
        mid += part.mid
        rad += part.rad + U * np.abs(mid)
        later = now
    found = Enclosure((mid + mid.T) / 2, np.asarray(up((rad + rad.T) / 2 + U * np.abs(mid), 4)))
    return w, found
