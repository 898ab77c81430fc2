"""Monte-Carlo variance of D-SGD's error against the objective a design was solved for.

Noise is drawn from the exported matrix and sent through D-SGD's recursion; the formula the
design minimises is never evaluated, so an error in it cannot hide here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.program.noise import streams
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.estimates import RunningMoments, Runs

Source = Callable[[int, np.random.SeedSequence], Iterator[Array]]
"""From a number of columns and a seed to an array a step, shape (n, columns): noise, or error."""


class Measure(Protocol):
    """What is measured; :class:`noisedesign.system.workloads.Objective` is one."""

    @property
    def horizon(self) -> int: ...

    @property
    def momentum(self) -> float: ...

    @property
    def steps(self) -> Array: ...

    @property
    def step_factor(self) -> Array: ...

    def readout(self, *, nodes: int, step: int) -> Array: ...


class Draws(Protocol):
    """A distribution of W; :class:`noisedesign.system.random_mixing.RandomMixing` is one."""

    def sample(self, rng: np.random.Generator) -> Array: ...


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


def simulate_space(*, mixing: Any, covariance: Any, predicted: float, **how: Any) -> VarianceReport:
    """One D-SGD step of spatial noise, E |W z|^2 for z from N(0, R), against ``predicted``.

    Args:
        mixing: W, shape (n, n).
        covariance: R, shape (n, n), symmetric positive semidefinite, in squared noise units.
        predicted: objective tr(W R W^T), squared.
        how: see :class:`noisedesign.tasks.simulation.estimates.Runs`.

    Raises:
        InputError: a matrix that is not finite, float64 and square, sizes that do not match, R
            not symmetric positive semidefinite, predicted <= 0; see ``how``.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    root = streams.covariance_root(covariance)
    dynamics.check_shape(root, field="covariance", size=len(w), of="as mixing")

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.space_noise(root, dimension=columns, steps=1, root_seed=sequence)

    return _monte_carlo(_iterates(w, noise), floats=3 * len(w), predicted=predicted, **how)


def simulate_time(
    *,
    noising_matrix: Any,
    mixing: Any = None,
    workload_factor: Any = None,
    predicted: float,
    **how: Any,
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
        how: see :class:`noisedesign.tasks.simulation.estimates.Runs`.

    Raises:
        InputError: a matrix that is not finite and float64, C^-1 not lower triangular, L not of T
            columns, both ``mixing`` and ``workload_factor``, predicted <= 0; see ``how``.
    """
    noising = streams.check_noising(noising_matrix)
    horizon = len(noising)
    factor = _checked_factor(workload_factor, mixing=mixing, horizon=horizon)
    w = dynamics.mixing_or_single(mixing)

    def noise(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return streams.time_noise_stream(noising, nodes=len(w), dimension=columns, seed=sequence)

    def products(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        return iter((factor @ np.concatenate(list(noise(columns, sequence))))[:, None])

    errors = _iterates(w, noise) if factor is None else products
    floats = len(w) * horizon if factor is None else 2 * horizon + len(factor)
    return _monte_carlo(errors, floats=floats, predicted=predicted, **how)


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


def simulate_objective(
    *,
    mixing: Any,
    objective: Measure,
    noise: Source,
    predicted: float,
    random: Draws | None = None,
    **how: Any,
) -> VarianceReport:
    """The squared error of ``objective`` in runs of D-SGD, against ``predicted``.

    Every run follows x_{t+1} = W_t (x_t + eta_t m_t) with m_t = beta m_{t-1} + z_t, its own noise
    and, with ``random``, its own draws of W_t.

    Args:
        mixing: W, shape (n, n), where it is not random.
        noise: what to draw z from.
        predicted: objective tr(H cov(z)), squared.
        random: the distribution of every W_t.
        how: see :class:`noisedesign.tasks.simulation.estimates.Runs`.

    Raises:
        InputError: W is not finite, float64 and square, predicted <= 0; see ``how``.
    """
    w = _checks.matrix(mixing, field="mixing", square=True)
    n = len(w)
    rates = np.diagonal(objective.step_factor)
    roots = [
        np.sqrt(weight) * _root(objective.readout(nodes=n, step=step))
        for step, weight in enumerate(objective.steps)
    ]

    def updates(drawn: Iterable[Array]) -> Iterator[Array]:
        velocity: Array | float = 0.0
        for rate, z in zip(rates, drawn, strict=True):
            velocity = objective.momentum * velocity + z
            yield rate * velocity

    def errors(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        of_noise, of_mixing = sequence.spawn(2)
        rng = np.random.default_rng(of_mixing)

        def mixed(messages: Array) -> Array:
            assert random is not None
            mixings = np.stack([random.sample(rng) for _ in range(columns)])
            return np.asarray(np.einsum("cij,jc->ic", mixings, messages))

        sent = dynamics.run(w if random is None else mixed, updates(noise(columns, of_noise)))
        return (root @ iterates for root, (_, iterates) in zip(roots, sent, strict=True))

    floats = (3 + objective.horizon) * n + (n * n if random is not None else 0)
    return _monte_carlo(errors, floats=floats, predicted=predicted, **how)


def _root(readout: Array) -> Array:
    """Q^1/2, shape (n, n)."""
    values, vectors = np.linalg.eigh(readout)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _iterates(mixing: Array, noise: Source) -> Source:
    """The error of all iterates."""
    return lambda columns, sequence: (
        iterates for _, iterates in dynamics.run(mixing, noise(columns, sequence))
    )


def _monte_carlo(errors: Source, *, floats: int, predicted: float, **how: Any) -> VarianceReport:
    """Mean of the squared errors of independent runs, of ``floats`` numbers each, in blocks."""
    predicted = _checks.real(predicted, field="predicted", low=0)
    plan = Runs(**how)
    totals = RunningMoments()
    step_sums: Array | float = 0.0
    for _, columns, sequence in plan.blocks(floats=floats):
        run_totals, sums = np.zeros(columns), []
        for error in errors(columns, sequence):
            squared = np.einsum("ij,ij->j", error, error)
            run_totals += squared
            sums.append(squared.sum())
        totals.add(run_totals)
        step_sums = step_sums + np.array(sums)
    return VarianceReport(
        estimate=totals.mean,
        interval=totals.mean_interval(plan.confidence),
        confidence=plan.confidence,
        predicted=predicted,
        runs=plan.runs,
        per_step=np.asarray(step_sums) / plan.runs,
    )
