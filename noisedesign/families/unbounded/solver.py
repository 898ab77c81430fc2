"""A search for buffers whose largest ratio of :mod:`.bound` is small.

Variances of step t are closed forms, sums over pairs of poles of (1 - (p q)^t) / (1 - p q), so that
a trial costs m^2 operations a step of the grid. The largest ratio is smoothed, ever less."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from noisedesign.base.checks import Array
from noisedesign.families.unbounded.bound import Least
from noisedesign.families.unbounded.buffers import Buffers

SHARPNESS = (20.0, 80.0, 400.0)  # exponents of the norms that stand for the largest logarithm
OPTIONS: Any = {"maxiter": 150, "maxfun": 10**6}  # of the search at every sharpness


def _buffers(x: Array, count: int) -> Buffers:
    """The buffers of logarithms of shares of sum s / l < 1, and logits of 1 - l."""
    decays = 1 - scipy.special.expit(np.sort(x[count:])[::-1])
    shares = np.exp(x[:count] - np.logaddexp(0, np.logaddexp.reduce(x[:count])))
    return Buffers(scales=decays * shares, decays=decays)


def _variances(buffers: Buffers, poles: Array, weights: Array, ends: Array) -> Array:
    """Variances of C^-1 behind the poles at steps ``ends``, by geometric sums."""
    losses, residues = buffers.zeros
    total = np.zeros(len(ends))
    for pole, weight in zip(poles.tolist(), weights.tolist(), strict=True):
        stays = 1 / (1 + float((buffers.scales / (pole - buffers.decays)).sum()))
        values = np.append(residues / (pole - 1 + losses), stays)
        away = np.append(losses, 1 - pole)
        gaps = away[:, None] + away - np.multiply.outer(away, away)  # 1 - p q
        with np.errstate(all="ignore"):
            logs = np.multiply.outer(ends, np.log(np.abs(1 - gaps)))
            odd = (gaps > 1) & (ends[:, None, None] % 2 == 1)
            gone = np.where(odd, 1 + np.exp(logs), -np.expm1(logs))
            sums = np.where(gaps > 0, gone / gaps, ends[:, None, None])
        total += weight * (values @ sums @ values)
    return total


@np.errstate(divide="ignore", invalid="ignore")  # trials at the edge have no number, and lose
def search(
    poles: Array,
    weights: Array,
    *,
    least: Least,
    participations: int,
    separation: int,
    buffers: int,
    steps: int,
) -> Buffers:
    """Find buffers whose ratios to ``least`` are small up to ``steps``."""
    counted = least.horizons >= least.first
    ends = np.append(least.horizons[1:] - 1, steps)[counted].astype(np.float64)
    targets = least.stddevs[counted]

    def logs(x: Array) -> Array:
        found = _buffers(x, buffers)
        squared = found.squared_sensitivity(participations=participations, separation=separation)
        variances = np.maximum(_variances(found, poles, weights, ends), 1e-300)
        return np.asarray(np.log(squared * variances) / 2 - np.log(targets))

    losses = np.geomspace(0.5, 0.5 / steps, buffers) if buffers > 1 else np.array([0.1])
    shares = np.sqrt(losses) * (1 - np.log(losses)) ** -1.1
    x = np.concatenate([np.log(shares / shares.sum() * 0.4), scipy.special.logit(losses)])
    for sharp in SHARPNESS:

        def form(y: Any, sharp: float = sharp) -> float:
            return float(np.logaddexp.reduce(sharp * logs(y)) / sharp)

        found: Any = scipy.optimize.minimize(form, x, method="L-BFGS-B", options=OPTIONS)
        x = found.x
    return _buffers(x, buffers)
