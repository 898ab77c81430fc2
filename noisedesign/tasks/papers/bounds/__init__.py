"""Published privacy bounds of gossip algorithms, reproduced as baselines for the exact accounts.

Each is a pure function of W and a few numbers and computes what its source claims. Not every claim
holds: what a function says of itself tells on which side of the truth its number may fall, and the
tests keep a counterexample to every claim that fails. No design and no guarantee rests on them.

- ``cyffers``: pairwise network privacy of Muffliato (Cyffers et al. 2022).
- ``zip_dl``: noise that cancels over a neighbourhood (Zip-DL).
- ``gossip``: growth of the sensitivity over time, and excess risk under that calibration (Koskela
  and Kulkarni, Theorem 17).
"""

from typing import TypeVar

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array
from noisedesign.tasks.papers.bounds import cyffers, gossip, zip_dl

__all__ = ["cyffers", "gossip", "renyi_divergence", "zip_dl"]

S = TypeVar("S", float, Array)


def renyi_divergence(
    squared_sensitivity: S,
    *,
    alpha: float,
    noise_stddev: float = 1.0,
    step_sensitivity: float = 1.0,
) -> S:
    """Renyi divergence of order alpha, alpha D^2 s / (2 noise_stddev^2), of a Gaussian mechanism.

    Args:
        squared_sensitivity: s, squared, to gradients that change by at most 1; a number or an
            array of them.
        alpha: order, > 1.
        noise_stddev: standard deviation of every node's noise, not squared.
        step_sensitivity: D, largest change of one clipped gradient, not squared.

    Raises:
        InputError: alpha <= 1, or noise_stddev or step_sensitivity not positive.
    """
    alpha = _checks.real(alpha, field="alpha", low=1)
    noise_stddev = _checks.real(noise_stddev, field="noise_stddev", low=0)
    step_sensitivity = _checks.real(step_sensitivity, field="step_sensitivity", low=0)
    return alpha * (step_sensitivity / noise_stddev) ** 2 / 2 * squared_sensitivity
