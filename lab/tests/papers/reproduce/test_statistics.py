"""Intervals over seeds against textbook quantiles, and what becomes of runs that diverged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisedesign_lab.papers.reproduce.statistics import (
    TOO_SHORT,
    groups,
    interval,
    of_median,
    of_share,
    order,
    over_seeds,
)


def test_an_interval_by_hand() -> None:
    # Mean 5, standard deviation sqrt(20 / 3), t quantile of 3 degrees of freedom 3.182446.
    found = interval([2.0, 4.0, 6.0, 8.0])
    half = 3.182446 * math.sqrt(20 / 3) / 2
    assert found == pytest.approx((5, 5 - half, 5 + half), rel=1e-6)


def test_single_and_equal_and_diverged_runs() -> None:
    assert interval([3.0]) == (3, None, None)
    assert interval([3.0, 3.0]) == (3, 3, 3)
    for bad in (math.inf, math.nan):
        assert interval([3.0, bad]) == (math.inf, None, None)


def test_shares_stay_shares_and_are_never_certain() -> None:
    """The t interval of 1/2 and 1 is cut; at its lower end all of four has probability .025, and
    none of two has it at the upper end; one unit tells no interval."""
    pairs = np.array([0, 0, 1, 1])
    assert of_share(np.array([0.0, 1.0, 1.0, 1.0]), pairs) == (0.75, 0.0, 1.0)
    mean, low, high = of_share(np.ones(8), np.repeat(np.arange(4), 2))
    assert low is not None
    assert (mean, high) == (1.0, 1.0)
    assert low**4 == pytest.approx(0.025)
    mean, low, high = of_share(np.zeros(4), pairs)
    assert high is not None
    assert (mean, low) == (0.0, 0.0)
    assert (1 - high) ** 2 == pytest.approx(0.025)
    assert of_share(np.array([0.0, 1.0, 1.0, 0.0]), pairs) == (0.5, 0.5, 0.5)
    assert of_share(np.array([0.0, 1.0]), np.zeros(2, int)) == (0.5, None, None)


def test_shares_of_units_of_one_size_and_of_several() -> None:
    """The first has the interval of the units' shares; the second, by hand: 5 of 10, in units of 1,
    2, 3 and 4 that hold 1/2, 0, -1/2 and 0 more than half of each."""
    found = of_share(np.array([0, 1, 1, 0, 1, 1, 1, 0.0]), np.repeat(np.arange(4), 2))
    assert found == pytest.approx((0.625, interval([0.5, 0.5, 1.0, 0.5]).low, 1.0))
    holds = np.array([1, 1, 0, 0, 1, 0, 1, 0, 1, 0.0])
    mean, low, high = of_share(holds, np.repeat(np.arange(4), [1, 2, 3, 4]))
    squares = 0.5**2 + 0.0**2 + 0.5**2 + 0.0**2
    half = 3.182446 * math.sqrt(4 / 3 * squares) / 10
    assert (mean, low, high) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-6)


def test_the_interval_of_a_median_holds_it_and_covers_the_truth() -> None:
    """Values of one unit alike, their true median 1: 95 % intervals hold it nearly as often."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        units = np.repeat(np.arange(16), rng.integers(1, 13, 16))
        values = np.exp(rng.normal(size=16)[units] + 0.5 * rng.normal(size=len(units)))
        median, low, high = of_median(values, units)
        assert low is not None
        assert high is not None
        assert 0 < low <= median <= high
        held += low <= 1 <= high
    assert 0.9 * 300 <= held <= 0.99 * 300
    assert of_median(np.full(6, 3.0), np.arange(6)) == (3, 3, 3)
    assert of_median(np.array([1.0, 2.0, 3.0]), np.zeros(3, int)) == (2, None, None)


def test_groups_keep_the_order_of_first_appearance() -> None:
    rows = [{"a": name, "k": k} for k, name in enumerate("bacab")]
    found = [(key, [row["k"] for row in members]) for key, members in groups(rows, "a")]
    assert found == [(("b",), [0, 4]), (("a",), [1, 3]), (("c",), [2])]


def test_a_summary_tells_what_diverged() -> None:
    rows = [
        {
            "setting": "s",
            "mechanism": name,
            "epsilon": 1.0,
            "seed": seed,
            "test_loss": loss,
            "accuracy": 0.5 + seed / 4 if name == "a" else None,
            "mu": 2.0 * seed,
        }
        for name, losses in {"a": [1.0, 2.0], "b": [1.0, None], "c": [math.nan, math.inf]}.items()
        for seed, loss in enumerate(losses)
    ]
    a, b, c = over_seeds(rows, "mu")
    assert (a["test_loss"], a["accuracy"], a["mu"], a["seeds"], a["diverged"]) == (
        1.5,
        0.625,
        1.0,
        2,
        0,
    )
    assert (b["test_loss"], b["test_loss_low"], b["accuracy"], b["diverged"]) == (
        math.inf,
        None,
        None,
        1,
    )
    assert (c["test_loss"], c["diverged"]) == (math.inf, 2)


def test_intervals_that_cross_tell_no_order() -> None:
    def row(low: float | None, high: float | None) -> dict[str, float | None]:
        return {"cost": 1.0, "cost_low": low, "cost_high": high}

    assert order(row(1, 2), row(3, 4), "cost") == "less"
    assert order(row(3, 4), row(1, 2), "cost") == "more"
    for other in (row(2, 3), row(0, 5), row(None, None)):
        assert order(row(1, 2), other, "cost") == TOO_SHORT
