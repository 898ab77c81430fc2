"""Accounts of random participation and plain Monte Carlo: ``python -m benchmarks.amplification``.

Plain Monte Carlo draws the outputs of all T steps with the record and averages 1 - e^epsilon / L,
as is done for strategies whose bins are not looked at. Its time is that of a sample, measured,
times the samples that it would take to have the error of the account: the standard error of
importance samples in b dimensions, or how far the convolution is from that.
"""

from __future__ import annotations

import math
import time

import numpy as np

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.privacy.amplification import Mixture, amplified_noise, bins_of
from noisedesign.privacy.amplification.convolution import even_remove
from noisedesign.privacy.amplification.mixture import SAMPLES, Multisets, Proposal

EPOCHS, BINS, BANDS = 20, 16, 10
HORIZON = EPOCHS * BINS
EPSILON = 2.0
DELTAS = (1e-4, 1e-6, 1e-8)
PLAIN = 20_000
"""Samples of a run of which the time is measured."""


def strategies() -> dict[str, Array]:
    """Nonnegative strategies of T steps."""
    banded = sum(np.diag([0.9**j] * (HORIZON - j), -j) for j in range(BANDS))
    return {"independent": np.eye(HORIZON), f"{BANDS} bands times .9^j": np.asarray(banded)}


def seconds_of_plain(means: Array) -> float:
    """Of one sample in T dimensions."""
    generator = np.random.default_rng(0)
    start = time.process_time()
    bins = generator.integers(len(means), size=PLAIN)
    outputs = means[bins] + generator.standard_normal((PLAIN, means.shape[1]))
    logs = outputs @ means.T - (means**2).sum(axis=1) / 2
    top = logs.max(axis=1)
    ratio = top + np.log(np.exp(logs - top[:, None]).mean(axis=1))
    np.maximum(-np.expm1(EPSILON - ratio), 0).mean()
    return (time.process_time() - start) / PLAIN


def samples_of_plain(mixture: Mixture, delta: float, error: float) -> float:
    """How many give that relative error: E v^2 / delta^2 / error^2 of v = (1 - e^epsilon / L)_+.

    The second moment is taken from importance samples, since plain ones hardly see it.
    """
    orders = Multisets(mixture.gram).orders(1.0)
    proposal = Proposal(mixture.gram, orders, remove_at=EPSILON, add_at=EPSILON)
    drawn = proposal.remove(2**16, np.random.default_rng(1))
    excess = np.maximum(-np.expm1(EPSILON - drawn.log_ratio), 0)
    # Under P a sample weighs L times what it weighs under Q.
    weights = np.exp(drawn.log_ratio - drawn.log_weight + drawn.log_bound - drawn.log_constant)
    return float((weights * excess**2).mean() - delta**2) / (delta * error) ** 2


def main() -> None:
    """Print a row for every strategy and delta."""
    print(f"T = {HORIZON}, b = {BINS}, epsilon = {EPSILON:g}, zero-out, direction remove")
    print("strategy | delta | account | its seconds | its error | plain, seconds | ratio")
    for name, strategy in strategies().items():
        scheme = nd.participation.BallsInBins(epochs=EPOCHS, separation=BINS)
        mixture = bins_of(strategy, scheme)
        bins = np.stack([strategy[:, list(steps)].sum(axis=1) for steps in scheme.bins])
        for delta in DELTAS:
            noise, found = amplified_noise(
                mixture, epsilon=EPSILON, delta=delta, adjacency="zero-out"
            )
            scaled = mixture.scaled(noise)
            start = time.process_time()
            if scaled.even:
                upper = even_remove(scaled.sensitivity_squared, BINS, EPSILON)
                seconds = time.process_time() - start
                drawn = Proposal(
                    scaled.gram,
                    Multisets(scaled.gram).orders(1.0),
                    remove_at=EPSILON,
                    add_at=EPSILON,
                ).remove(SAMPLES, np.random.default_rng(0))
                error = abs(upper / drawn.estimate(EPSILON) - 1)
            else:
                orders = Multisets(scaled.gram).orders(1.0)
                proposal = Proposal(scaled.gram, orders, remove_at=EPSILON, add_at=EPSILON)
                drawn = proposal.remove(SAMPLES, np.random.default_rng(0))
                drawn.upper(EPSILON, 5e-7)
                seconds = time.process_time() - start
                error = 1 / math.sqrt(drawn.mean(EPSILON) * SAMPLES)
            plain = samples_of_plain(scaled, delta, error) * seconds_of_plain(bins / noise)
            print(
                f"{name} | {delta:g} | {found.which} | {seconds:.3f} | {error:.2%} | "
                f"{plain:.3g} | {plain / seconds:.3g}"
            )


if __name__ == "__main__":
    main()
