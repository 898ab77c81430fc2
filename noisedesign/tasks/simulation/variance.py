"""Monte-Carlo variance of D-SGD's iterates against the objective a design was solved for.

Noise is drawn from the exported matrix and sent through D-SGD's recursion; the formula the
design minimises is never evaluated, so an error in it cannot hide here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.program.noise import streams
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.estimates import (
    CONFIDENCE,
    RunningMoments,
    check_confidence,
    check_runs,
)

Progress = Callable[[int, int], None]

_Errors = Callable[[int, np.random.SeedSequence], Iterator[Array]]
"""(columns, seed) -> error at each step, each of shape (anything, columns)."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VarianceReport(Shown):
    """Simulated against predicted total noise variance (squared error a coordinate).

    Attributes:
        estimate: mean over runs of the summed squared error.
        interval: (low, high), for its expectation at ``confidence``.
        confidence: of the interval.
        predicted: objective of the design.
        runs: independent runs, one coordinate each.
        per_step: mean squared error of all nodes after each step, shape (steps,); adds up to
            ``estimate``. One entry a row of the factor for a workload given by its factor.
    """

    estimate: float
    interval: tuple[float, float]
    confidence: float
    predicted: float
    runs: int
    per_step: Array

    @property
    def ratio(self) -> float:
        """estimate / predicted."""
        return self.estimate / self.predicted

    @property
    def agrees(self) -> bool:
        """Whether the interval covers the predicted value."""
        return self.interval[0] <= self.predicted <= self.interval[1]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        return {
            "estimate": self.estimate,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "predicted": self.predicted,
            "ratio": self.ratio,
            "runs": self.runs,
            "agrees": self.agrees,
            "per_step": self.per_step.tolist(),
        }


def simulate_space(
    *,
    mixing: Any,
    covariance: Any,
    predicted: float,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> VarianceReport:
    """One D-SGD step of spatial noise, E |W z|^2 for z from N(0, R), against ``predicted``.

    Args:
        mixing: W, shape (n, n).
        covariance: R, shape (n, n), symmetric positive semidefinite, in squared noise units.
        predicted: objective tr(W R W^T), squared.
        runs: independent runs, at least 30.
        seed: the same seed gives the same report.
        confidence: of the interval, see :func:`simulate_time`.
        progress: called with (runs done, runs in all) after every block.

    Raises:
        InputError: a matrix that is not finite, float64 and square, sizes that do not match, R
            not symmetric positive semidefinite, predicted <= 0, runs < 30.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    root = streams.covariance_root(covariance)
    dynamics.check_shape(root, field="covariance", size=len(w), of="as mixing")

    def errors(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        noise = streams.space_noise(root, dimension=columns, steps=1, root_seed=sequence)
        return (iterates for _, iterates in dynamics.run(w, noise))

    return monte_carlo(
        errors,
        floats_per_column=3 * len(w),
        predicted=predicted,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
    )


def simulate_time(
    *,
    noising_matrix: Any,
    mixing: Any = None,
    workload_factor: Any = None,
    predicted: float,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> VarianceReport:
    """D-SGD over the whole horizon of a temporal design against ``predicted``.

    Every node draws z = C^-1 Z for itself; the error is the sum of |theta_{t+1}|^2 over steps and
    nodes, or |L z|^2 where the workload is given by a factor L.

    The interval is the normal one for the mean of the run totals at ``confidence``. Totals are
    weighted sums of chi-squares, positive and skewed, so coverage falls short for few runs. For the
    most skewed total, a single chi-square, the default interval misses 2 times in 10,000 at 2,000
    runs, 8 times at 300 and 160 times at 30. Memory is O(T^2 + n^2 + n T) plus a constant working
    set, independent of ``runs``.

    Args:
        noising_matrix: C^-1, shape (T, T), lower triangular.
        mixing: W, shape (n, n), or None for one model that is not mixed (prefix sums).
        workload_factor: L, shape (m, T), with L^T L = H, in place of ``mixing``.
        predicted: objective tr(H C^-1 C^-T), squared error a coordinate.
        runs: independent runs, at least 30.
        seed: the same seed gives the same report.
        confidence: probability that the interval covers the expectation.
        progress: called with (runs done, runs in all) after every block.

    Raises:
        InputError: a matrix that is not finite and float64, C^-1 not lower triangular, L not of T
            columns, both ``mixing`` and ``workload_factor``, predicted <= 0, runs < 30.
    """
    noising = streams.check_noising(noising_matrix)
    horizon = len(noising)
    factor = _checked_factor(workload_factor, mixing=mixing, horizon=horizon)
    w = dynamics.mixing_or_single(mixing)

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.time_noise_stream(noising, nodes=len(w), dimension=columns, seed=sequence)

    def errors(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        if factor is None:
            return (iterates for _, iterates in dynamics.run(w, noise(columns, sequence)))
        rows = factor @ np.concatenate(list(noise(columns, sequence)))
        return iter(rows[:, None])

    floats = len(w) * horizon if factor is None else 2 * horizon + len(factor)
    return monte_carlo(
        errors,
        floats_per_column=floats,
        predicted=predicted,
        runs=runs,
        seed=seed,
        confidence=confidence,
        progress=progress,
    )


def _checked_factor(workload_factor: Any, *, mixing: Any, horizon: int) -> Array | None:
    if workload_factor is None:
        return None
    if mixing is not None:
        raise InputError("workload_factor", expected="either mixing or workload_factor", got="both")
    factor = _checks.matrix(workload_factor, field="workload_factor")
    if factor.shape[1] != horizon:
        raise InputError(
            "workload_factor",
            expected=f"{horizon} columns, one per step",
            got=f"shape {factor.shape}",
        )
    return factor


def monte_carlo(
    errors: _Errors,
    *,
    floats_per_column: int,
    predicted: float,
    runs: int,
    seed: int,
    confidence: float,
    progress: Progress | None,
) -> VarianceReport:
    """Mean of the squared errors of independent runs, a block of columns at a time."""
    predicted = _checks.real(predicted, field="predicted", low=0)
    runs, confidence = check_runs(runs), check_confidence(confidence)
    block = streams.columns_per_block(floats_per_column=floats_per_column, total=runs)
    totals = RunningMoments()
    step_sums: Array | float = 0.0
    for index, start in enumerate(range(0, runs, block)):
        columns = min(block, runs - start)
        run_totals, sums = np.zeros(columns), []
        for error in errors(columns, streams.seed_sequence(seed, index)):
            squared = np.einsum("ij,ij->j", error, error)
            run_totals += squared
            sums.append(squared.sum())
        totals.add(run_totals)
        step_sums = step_sums + np.array(sums)
        if progress is not None:
            progress(start + columns, runs)
    return VarianceReport(
        estimate=totals.mean,
        interval=totals.mean_interval(confidence),
        confidence=confidence,
        predicted=predicted,
        runs=runs,
        per_step=np.asarray(step_sums) / runs,
    )
