"""What random participation is worth: ``python -m benchmarks.random_participation``.

The setting is prefix errors of decentralised SGD on the Florentine families, 20 epochs of 16 steps,
every record in one of the 16 batches at random. Errors are tr(H (C^T C)^-1) sigma^2 at the noise
that meets the target, over that of the certified optimum where an adversary chooses the batch.

``fixed`` is without randomness, which for C >= 0 is the largest squared norm of a bin. ``proved``
is by the account, with its kind; where that is of samples it holds at confidence 1 - 1e-6.
``deterministic`` is by the account without samples. The last row bounds all linear mechanisms, with
negative entries too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.base.tables import Record, print_table
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import DualPoint
from noisedesign.families.amplified.bound import leveled, relief
from noisedesign.families.amplified.program import NonnegativeProgram
from noisedesign.families.amplified.solver import solve
from noisedesign.families.family import family_of
from noisedesign.forms.structure import TimeStructure
from noisedesign.privacy.amplification import amplified_noise, bins_of

EPOCHS, BINS = 20, 16
COLUMNS = ("strategy", "fixed", "proved", "account", "deterministic", "seconds")


def square_root(bands: int, decay: float = 1.0) -> Array:
    """The banded square root of prefix sums, times powers of ``decay``, shape (T, T)."""
    j = np.arange(1, bands)
    column = np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j) * decay))
    horizon = EPOCHS * BINS
    return np.asarray(sum(np.diag(np.full(horizon - d, c), -d) for d, c in enumerate(column)))


def found(gram: Array, target: nd.PrivacyTarget, **structure: object) -> Array:
    """The best strategy of a structure that the search found, shape (T, T)."""
    program = NonnegativeProgram(
        gram=gram,
        participation=nd.participation.BallsInBins(epochs=EPOCHS, separation=BINS),
        structure=TimeStructure(**structure),  # type: ignore[arg-type]
        target=target,
    )
    return solve(program, monitor=Monitor(gap=1e-6)).form.dense()


def strategies(gram: Array, target: nd.PrivacyTarget) -> Iterator[tuple[str, Array, float]]:
    """Name, C and the seconds its search took."""
    yield "independent noise", square_root(1), 0.0
    for bands in (4, 8, 16):
        yield f"banded square root, {bands}", square_root(bands), 0.0
    yield "10 bands times .9^j", square_root(10, 0.9), 0.0
    searches: dict[str, dict[str, object]] = {
        "found, 2 buffers": {"kind": "blt", "buffers": 2},
        "found, banded inverse, 4": {"kind": "banded-inverse", "bands": 4},
        "found, Toeplitz": {"kind": "toeplitz"},
        "found, 10 bands": {"kind": "banded", "bands": 10},
        "found, 12 bands": {"kind": "banded", "bands": 12},
        "found": {},
    }
    for name, structure in searches.items():
        started = time.perf_counter()
        strategy = found(gram, target, **structure)
        yield name, strategy, time.perf_counter() - started


def measured(epsilon: float, delta: float) -> Iterator[Record]:
    """The rows of the table."""
    target = nd.PrivacyTarget(epsilon=epsilon, delta=delta, adjacency="zero-out")
    mu = nd.privacy.mu_of(epsilon=epsilon, delta=delta)
    problem = nd.TimeProblem.decentralized(
        mixing=nd.mixing_matrix(nd.build_graph("florentine")),
        participation=nd.participation.FixedEpoch(epochs=EPOCHS, separation=BINS),
    )
    solution = nd.solve(problem)
    certified = solution.certificate.objective / mu**2
    yield {"strategy": "certified optimum of fixed participation", "fixed": 1.0}

    scheme = nd.participation.BallsInBins(epochs=EPOCHS, separation=BINS)
    for name, strategy, seconds in strategies(problem.gram, target):
        error = float(np.trace(np.linalg.solve(strategy.T @ strategy, problem.gram)))
        mixture = bins_of(strategy, scheme)
        goal = {"epsilon": epsilon, "delta": delta, "adjacency": "zero-out"}
        noise, account = amplified_noise(mixture, **goal)  # type: ignore[arg-type]
        certain, _ = amplified_noise(mixture, method="proved", **goal)  # type: ignore[arg-type]
        yield {
            "strategy": name,
            "fixed": error * float(np.diagonal(mixture.gram).max()) / mu**2 / certified,
            "proved": error * noise**2 / certified,
            "account": account.which,
            "deterministic": error * certain**2 / certified,
            "seconds": seconds,
        }

    family = family_of(problem)
    program = family.program(problem)
    proof = family.multipliers(program, monitor=Monitor(gap=1e-6))
    blocks = leveled(proof["dual_blocks"])
    gained = relief(blocks[:, 0, 0], participation=scheme, target=target)
    bound = lower_bound(program, DualPoint(blocks=blocks)) / gained
    yield {
        "strategy": "bound on all linear mechanisms",
        "proved": bound / solution.certificate.objective,
        "account": "bound",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--delta", type=float, default=1e-4)
    given = parser.parse_args()
    title = f"epsilon {given.epsilon:g}, delta {given.delta:g}: error over the certified optimum"
    print_table(list(measured(given.epsilon, given.delta)), COLUMNS, title=title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
