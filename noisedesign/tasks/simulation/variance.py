"""Monte-Carlo variance of D-SGD's error against the objective a design was solved for.

Noise is drawn from the exported matrix and sent through D-SGD's recursion; the formula the
design minimises is never evaluated, so an error in it cannot hide here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.forms import streams
from noisedesign.tasks.simulation import dynamics
from noisedesign.tasks.simulation.dynamics import Report, RunningMoments, Runs

if TYPE_CHECKING:
    from noisedesign.system.random_mixing import RandomMixing
    from noisedesign.system.workloads.error import AnyError, Term

Source = Callable[[int, np.random.SeedSequence], Iterator[Array]]
"""(columns, seed) -> an array of every step, shape (n, columns): noise, or error."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VarianceReport(Report):
    """Simulated against predicted total noise variance (squared error a coordinate).

    Attributes:
        estimate: mean over runs of the summed squared error.
        interval: (low, high), for its expectation at ``confidence``.
        confidence: of the interval.
        predicted: objective of the design.
        uncertainty: by how much less, relative, it may be where it is an estimate; else 0.
        runs: independent runs, one coordinate each.
        per_step: mean squared error of all nodes after each step, shape (steps,); adds up to
            ``estimate``. One entry a row of the factor for a workload given by its factor.
    """

    verdicts = ("ratio", "agrees")

    estimate: float
    interval: tuple[float, float]
    confidence: float
    predicted: float
    runs: int
    per_step: Array
    uncertainty: float = 0.0

    @property
    def ratio(self) -> float:
        """estimate / predicted."""
        return self.estimate / self.predicted

    @property
    def agrees(self) -> bool:
        """Whether the interval covers the predicted value, or what that may be."""
        least = self.predicted * (1 - self.uncertainty)
        return self.interval[0] <= self.predicted and least <= self.interval[1]


def simulate_variance(
    *,
    noise: Source,
    predicted: float,
    error: AnyError,
    mixing: Any = None,
    random: RandomMixing | None = None,
    rounds: int = 1,
    workload_factor: Any = None,
    **how: Any,
) -> VarianceReport:
    """The squared error of ``error`` in runs of D-SGD, against ``predicted`` tr(H cov(z))."""
    # The interval is the normal one for the mean of run totals, weighted sums of chi-squares: for a
    # single one the default misses 2 times in 10,000 at 2,000 runs, 8 at 300 and 160 at 30.
    horizon = error.horizon
    field, factor = "workload_factor", None
    if workload_factor is not None:
        factor = _checks.matrix(workload_factor, field=field)
        if mixing is not None:
            raise InputError(field, expected="either mixing or workload_factor", got="both")
        if factor.shape[1] != horizon:
            expected = f"{horizon} columns, one per step"
            raise InputError(field, expected=expected, got=f"shape {factor.shape}")
    w = dynamics.mixings(mixing)
    n, terms = w.shape[-1], error.terms

    def products(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        one_node = np.concatenate([drawn[:1] for drawn in noise(columns, sequence)])
        return iter((factor @ one_node)[:, None])

    def errors(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        # No noise is drawn from the descendant of a step past the last.
        rng = np.random.default_rng(streams.seed_sequence(sequence, horizon))

        def mixed(messages: Array) -> Array:
            assert random is not None
            mixings = np.stack([random.sample(rng) for _ in range(columns)])
            each = messages.reshape(n, len(terms), columns)
            return np.asarray(np.einsum("cij,jmc->imc", mixings, each).reshape(messages.shape))

        models = _Models(error, noise(columns, sequence), n)
        sent = dynamics.run(w if random is None else mixed, models.updates(), rounds=rounds)
        for step, (_, iterates) in enumerate(sent):
            models.now = iterates
            # Every term of the error has rows of its own among those of a run.
            each = iterates.reshape(n, len(terms), columns)
            if not error.plain:
                each = np.stack([root(step) @ each[:, m] for m, root in enumerate(roots)], axis=1)
            yield each.reshape(-1, columns)

    if factor is not None:
        floats = 2 * horizon + len(factor)
        return _monte_carlo(products, floats=floats, predicted=predicted, **how)
    roots = [] if error.plain else [_roots(term, n) for term in terms]
    floats = max(3, horizon) * n * len(terms) + (n * n if random is not None else 0)
    return _monte_carlo(errors, floats=floats, predicted=predicted, **how)


class _Models:
    """Models of every term side by side: columns of one after those of another, of one noise."""

    def __init__(self, error: AnyError, noise: Iterable[Array], nodes: int) -> None:
        self.error, self.noise, self.nodes = error, noise, nodes
        self.now: Array | float = 0.0

    def updates(self) -> Iterator[Array]:
        """Steps along the gradients where models are by then, and along their noise."""
        velocity: Array | float = 0.0
        felt = [term.curvature for term in self.error.terms]
        for rate, z in zip(self.error.rates, self.noise, strict=True):
            if len(z) != self.nodes:
                expected = f"that of {self.nodes} nodes, as mixing"
                raise InputError("noise", expected=expected, got=str(len(z)))
            drawn = np.tile(z, len(felt))
            if any(felt):
                drawn = drawn + np.repeat(felt, z.shape[1]) * self.now
            velocity = self.error.momentum * velocity + drawn
            yield -rate * velocity


def _roots(term: Term, nodes: int) -> Callable[[int], Array]:
    """(a_t Q_t)^1/2 of a step, times the root of the term's weight, shape (n, n)."""
    measure, found = term.measure, []
    for step in range(1 if measure.time_invariant else measure.horizon):
        values, vectors = np.linalg.eigh(measure.readout(nodes=nodes, step=step))
        found.append((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    scales = np.sqrt(term.weight * measure.steps)
    return lambda step: np.asarray(scales[step] * found[step % len(found)])


def _monte_carlo(
    errors: Source, *, floats: int, predicted: float, uncertainty: float = 0.0, **how: Any
) -> VarianceReport:
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
        uncertainty=uncertainty,
    )
