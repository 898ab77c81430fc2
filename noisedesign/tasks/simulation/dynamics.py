"""D-SGD's recursion, run as nodes run it: the one place where noise is propagated.

Then independent runs, their moments, and confidence limits. Nothing here knows of noise designs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array
from noisedesign.base.shown import Shown
from noisedesign.forms import streams


def mixings(mixing: Any) -> Any:
    """W of every step, in turn, shape (P, n, n), [[[1]]] for None, or a sparse W as it is."""
    if mixing is None:
        return np.ones((1, 1, 1))
    return mixing if _sparse(mixing) else _checks.square_matrices(mixing, field="mixing")


Responses = Callable[[int, Array], Array]
"""(step, models) -> what gradients at these models, shape (n, columns), add to them."""


def run(
    mixing: Any, updates: Iterable[Array], *, rounds: int = 1, responses: Responses | None = None
) -> Iterator[tuple[Array, Array]]:
    """Yield messages theta_{t+1/2} and iterates theta_{t+1}, both of shape (n, columns)."""
    # theta_1 = 0; theta_{t+1/2} = theta_t + x_t is sent; theta_{t+1} = W_t^K theta_{t+1/2}.
    iterates: Array | float = 0.0
    found = [] if callable(mixing) else _in_turn(mixing)
    for step, update in enumerate(updates):
        messages = iterates + update
        if responses is not None and step:
            messages = messages + responses(step, np.asarray(iterates))
        mixed = messages
        for _ in range(rounds):
            mixed = mixing(mixed) if callable(mixing) else found[step % len(found)] @ mixed
        iterates = mixed
        yield messages, mixed


def _in_turn(mixing: Any) -> Any:
    return [mixing] if _sparse(mixing) else mixing.reshape(-1, *mixing.shape[-2:])


def _sparse(mixing: Any) -> bool:
    return hasattr(mixing, "nnz")


def message_weights(mixing: Any, weights: Array) -> Array:
    """Weights v of messages with <v, messages> = <``weights``, updates>, shape (T, n, columns)."""
    # x_t = theta_{t+1/2} - W_{t-1} theta_{t-1/2}, W singular or not, so v_t = w_t - W_t^T w_{t+1}.
    stack = _in_turn(mixing)
    found = weights.copy()
    for step, later in enumerate(weights[1:]):
        found[step] -= stack[step % len(stack)].T @ later
    return found


CONFIDENCE = 0.9999  # a correct design is reported as wrong once in ten thousand seeds
_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Independent runs, at least 30 (in each world of an audit); a seed gives one report."""

    runs: int = 2000
    seed: int = 0
    confidence: float = CONFIDENCE
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        _checks.positive_int(self.runs, field="runs", minimum=30)
        _checks.positive_int(self.seed, field="seed", minimum=0)
        _checks.real(self.confidence, field="confidence", low=0, high=1)

    def blocks(
        self, *, floats: int, worlds: int = 1
    ) -> Iterator[tuple[int, int, np.random.SeedSequence]]:
        """(world, runs, seed) of one block after another; memory does not grow with the runs."""
        block = streams.columns_per_block(floats_per_column=floats, total=self.runs)
        for world in range(worlds):
            for index, start in enumerate(range(0, self.runs, block)):
                size = min(block, self.runs - start)
                path = (world, index) if worlds > 1 else (index,)
                yield world, size, streams.seed_sequence(self.seed, *path)
                if self.progress is not None:
                    self.progress(world * self.runs + start + size, worlds * self.runs)


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Shown):
    """A report of runs; ``verdicts`` are properties that are told with the fields."""

    verdicts: ClassVar[tuple[str, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found |= {name: getattr(self, name) for name in self.verdicts}
        return {
            name: np.asarray(value).tolist() if isinstance(value, tuple | np.ndarray) else value
            for name, value in found.items()
        }


def two_sided_quantile(confidence: float) -> float:
    """x with P(|N(0, 1)| <= x) = confidence."""
    return _NORMAL.inv_cdf((1 + confidence) / 2)


@dataclass
class RunningMoments:
    """Mean and variance of values seen in batches (Chan, Golub and LeVeque, 1979)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Array) -> None:
        """Merge a batch, shape (batch,)."""
        count = self.count + len(values)
        shift = float(values.mean()) - self.mean
        inside = float(((values - values.mean()) ** 2).sum())
        self.squares += inside + shift**2 * self.count * len(values) / count
        self.mean += shift * len(values) / count
        self.count = count

    @property
    def variance(self) -> float:
        return self.squares / (self.count - 1)

    def mean_interval(self, confidence: float) -> tuple[float, float]:
        half = two_sided_quantile(confidence) * math.sqrt(self.variance / self.count)
        return self.mean - half, self.mean + half


def proportion_upper_limit(successes: int, trials: int, *, confidence: float) -> float:
    """Clopper-Pearson upper limit of a proportion, one-sided, exact, by bisection."""
    if successes >= trials:
        return 1.0
    low, high = successes / trials, 1.0
    while (p := (low + high) / 2) not in (low, high):
        if _binomial_tail(successes, trials, p) > 1 - confidence:
            low = p
        else:
            high = p
    return high


def _binomial_tail(successes: int, trials: int, p: float) -> float:
    """P(Binomial(trials, p) <= successes) for p > successes / trials, the largest term first."""
    log_largest = (
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(p)
        + (trials - successes) * math.log1p(-p)
    )
    term = total = 1.0
    for j in range(successes, 0, -1):
        term *= j * (1 - p) / ((trials - j + 1) * p)
        total += term
        if term < settings.EPS * total:
            break
    return math.exp(log_largest) * total


def gaussian_separation(false_positives: float, false_negatives: float) -> float:
    """mu of the Gaussian test with these error rates, never below 0."""
    # mu-GDP allows no Phi^-1(1 - alpha) - Phi^-1(beta) > mu (Dong, Roth and Su, 2022).
    if false_positives + false_negatives >= 1:
        return 0.0
    return _NORMAL.inv_cdf(1 - false_positives) - _NORMAL.inv_cdf(false_negatives)
