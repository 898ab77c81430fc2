"""Means over seeds, their intervals, and runs that diverged."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign_lab.papers.reproduce.experiment import Record, Rows


class Interval(NamedTuple):
    """A mean and the ends of its interval, or None where there is none."""

    mean: float
    low: float | None
    high: float | None

    def columns(self, name: str) -> Record:
        """The mean as column ``name``, and the ends beside it."""
        return {name: self.mean, f"{name}_low": self.low, f"{name}_high": self.high}


def interval(values: Sequence[float]) -> Interval:
    """Return mean and 95 % Student t interval; a run that diverged makes the mean infinite."""
    from scipy import stats  # late: it takes longer to load than to use

    runs = np.asarray(values, dtype=np.float64)
    if not np.isfinite(runs).all():
        return Interval(math.inf, None, None)
    mean = float(runs.mean())
    if len(runs) == 1:
        return Interval(mean, None, None)
    error = float(runs.std(ddof=1)) / math.sqrt(len(runs))
    half = error * float(stats.t.ppf(0.975, len(runs) - 1))
    return Interval(mean, mean - half, mean + half)


TOO_SHORT = "too short to tell"  # what a run says where intervals cross


def of_share(holds: Array, units: NDArray[np.integer]) -> Interval:
    """Return the share of values of 1 among 0 and 1, and its 95 % interval within [0, 1], where
    those of one unit depend on each other: Student t of a ratio of sums over units (Cochran 1977,
    section 11.3), and where all are 0 or all 1 that of Clopper and Pearson for as many units."""
    share = float(holds.mean())
    _, unit = np.unique(units, return_inverse=True)
    count = int(unit.max()) + 1
    if count == 1:
        return Interval(share, None, None)
    if share in (0.0, 1.0):
        rare = 0.025 ** (1 / count)
        return Interval(share, rare, 1.0) if share else Interval(share, 0.0, 1 - rare)
    error = np.bincount(unit, holds - share) / (len(holds) / count)
    low, high = (end + share for end in interval(error.tolist())[1:] if end is not None)
    return Interval(share, max(0.0, low), min(1.0, high))


def of_median(values: Array, units: NDArray[np.integer]) -> Interval:
    """Return the median and its 95 % interval, where values of one unit depend on each other: the
    quantiles at the ends of the interval of the share below it (Woodruff 1952)."""
    median = float(np.median(values))
    below = of_share((values < median) + (values == median) / 2, units)
    if below.low is None or below.high is None:
        return Interval(median, None, None)
    low, high = np.quantile(values, [min(below.low, 0.5), max(below.high, 0.5)])
    return Interval(median, float(low), float(high))


def columns_of(name: str, values: Sequence[float | None]) -> Record:
    """Columns of the interval of some values, all empty where one of them is None."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return interval(known).columns(name)


def groups(rows: Iterable[Record], *columns: str) -> ItemsView[tuple[Any, ...], list[Record]]:
    """Rows that are alike in some columns, in the order in which each group first comes."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found.items()


def over_seeds(rows: Rows, *others: str) -> list[Record]:
    """Summarise rows of one step by setting, mechanism and epsilon, with means of ``others``."""
    found = []
    for (setting, mechanism, epsilon), members in groups(rows, "setting", "mechanism", "epsilon"):
        losses = [math.nan if row["test_loss"] is None else row["test_loss"] for row in members]
        found.append(
            {
                "setting": setting,
                "mechanism": mechanism,
                "epsilon": epsilon,
                **interval(losses).columns("test_loss"),
                "accuracy": _mean(members, "accuracy"),
                **{column: _mean(members, column) for column in others},
                "seeds": len(members),
                "diverged": sum(not math.isfinite(loss) for loss in losses),
            }
        )
    return found


NOISELESS = "none"  # the mechanism without noise


def costs_of_noise(rows: Rows, mechanism: str) -> list[float]:
    """Return the loss over that without noise, seed by seed; infinite where a run diverged."""
    free = {row["seed"]: row["test_loss"] for row in rows if row["mechanism"] == NOISELESS}
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if row["mechanism"] == mechanism and free.get(row["seed"]) is not None:
            loss = math.inf if row["test_loss"] is None else row["test_loss"]
            by_seed.setdefault(row["seed"], []).append(loss - free[row["seed"]])
    return [sum(values) / len(values) for values in by_seed.values()] or [math.inf]


def order(a: Record, b: Record, column: str) -> str:
    """Return "less", "more" or, where the intervals of two rows cross or one is missing,
    ``TOO_SHORT``: of ``a`` beside ``b``."""
    ends: list[Any] = [row.get(f"{column}_{end}") for row in (a, b) for end in ("low", "high")]
    if None in ends:
        return TOO_SHORT
    low, high, other_low, other_high = ends
    return "less" if high < other_low else "more" if other_high < low else TOO_SHORT


def _mean(rows: Rows, column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.mean(values)) if len(values) == len(rows) else None
