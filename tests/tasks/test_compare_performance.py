"""Curves and means of times, by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import write_figure
from noisedesign.surveys import compare as performance
from noisedesign.surveys.compare import (
    Profile,
    profiles,
    seconds_of,
    shifted_geometric_mean,
    summary,
)

LIMIT = 90.0


def row(name: str, backend: str, seconds: float | None, status: str = "optimal") -> dict[str, Any]:
    """Solved where there are seconds, a quarter of them to build."""
    solved = status == "optimal"
    return {
        "name": name,
        "backend": backend,
        "solved": solved,
        "status": status,
        "build_seconds": None if seconds is None else seconds / 4,
        "solve_seconds": None if seconds is None else 3 * seconds / 4,
        "time_limit": LIMIT,
    }


ROWS = [
    row("a", "quick", 0.0),
    row("b", "quick", 30.0),
    row("c", "quick", 2.0),
    row("d", "quick", 1.0),
    row("a", "slow", 30.0),
    row("b", "slow", 5.0, status="inaccurate"),
    row("c", "slow", 95.0),
    row("d", "slow", None, status="refused"),
    row("a", "absent", None, status="refused"),
    row("b", "absent", None, status="refused"),
    row("c", "absent", None, status="refused"),
    row("d", "absent", None, status="refused"),
]


# --- means ----------------------------------------------------------------------------------------


def test_means_by_hand() -> None:
    assert shifted_geometric_mean([0, 30], shift=10) == pytest.approx(10)  # (10 * 40)^(1/2) - 10
    assert shifted_geometric_mean([0, 7, 15], shift=1) == pytest.approx(128 ** (1 / 3) - 1)
    assert shifted_geometric_mean([3.0]) == pytest.approx(3)
    assert shifted_geometric_mean([90.0, 0.0]) == pytest.approx(math.sqrt(1000) - 10)


def test_small_times_keep_their_digits() -> None:
    assert shifted_geometric_mean([1e-9, 1e-9]) == pytest.approx(1e-9, rel=1e-12)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.floats(1e-3, 1e3), st.randoms())
def test_means_lie_between_the_geometric_and_the_arithmetic(
    seconds: list[float], shift: float, random: Any
) -> None:
    mean = shifted_geometric_mean(seconds, shift=shift)
    spare = 1e-9 * (1 + max(seconds))
    assert min(seconds) - spare <= mean <= np.mean(seconds) + spare
    assert shifted_geometric_mean(seconds, shift=2 * shift) >= mean - spare
    random.shuffle(seconds)
    assert shifted_geometric_mean(seconds, shift=shift) == pytest.approx(mean)


@pytest.mark.parametrize("seconds", [[], [-1.0], [math.nan], [math.inf]])
def test_means_of_what_are_no_times(seconds: list[float]) -> None:
    with pytest.raises(InputError) as error:
        shifted_geometric_mean(seconds)
    assert error.value.field == "seconds"
    with pytest.raises(InputError):
        shifted_geometric_mean([1.0], shift=0.0)


# --- curves ---------------------------------------------------------------------------------------


def test_a_time_is_that_of_building_and_solving() -> None:
    assert seconds_of(row("a", "x", 2.0)) == 2.0
    assert seconds_of(row("a", "x", 2.0, status="inaccurate")) is None
    assert seconds_of(row("a", "x", LIMIT)) == LIMIT
    assert seconds_of(row("a", "x", LIMIT + 0.5)) is None  # certified, but late


def test_curves_by_hand() -> None:
    quick, slow, absent = profiles(ROWS)
    assert (quick.name, quick.problems, quick.times) == ("quick", 4, (0.0, 1.0, 2.0, 30.0))
    assert (slow.name, slow.problems, slow.times) == ("slow", 4, (30.0,))
    assert (absent.problems, absent.times) == (4, ())
    assert [quick.share(within=t) for t in (0, 0.5, 1, 2, 29.9, 30, 1e9)] == [
        0.25,
        0.25,
        0.5,
        0.75,
        0.75,
        1,
        1,
    ]
    assert slow.share(within=30) == 0.25
    assert absent.share(within=LIMIT) == 0


def test_summary_by_hand() -> None:
    quick, slow, absent = summary(ROWS)
    counts = ("problems", "solved", "late", "refused", "failed", "common")
    assert [quick[key] for key in counts] == [4, 4, 0, 0, 0, 3]
    assert [slow[key] for key in counts] == [4, 1, 1, 1, 1, 3]
    assert [absent[key] for key in counts] == [4, 0, 0, 4, 0, 3]
    # Unsolved counts as 90 s, whatever it took: (40 * 100 * 100 * 100)^(1/4) - 10.
    assert slow["mean_seconds"] == pytest.approx(40e6**0.25 - 10)
    assert quick["mean_seconds"] == pytest.approx((10 * 40 * 12 * 11) ** 0.25 - 10)
    assert absent["mean_seconds"] == pytest.approx(LIMIT)
    # Of a, b and c, which both take that take any.
    assert slow["mean_seconds_common"] == pytest.approx(40e4 ** (1 / 3) - 10)
    assert quick["mean_seconds_common"] == pytest.approx((10 * 40 * 12) ** (1 / 3) - 10)
    assert [quick[f"within_{t}_s"] for t in ("0.01", "0.1", "1", "10")] == [0.25, 0.25, 0.5, 0.75]
    assert "within_100_s" not in quick  # nothing was given so long


def test_a_search_is_no_failure() -> None:
    """The best that was found of what nobody can certify is counted as that."""
    (only,) = summary(
        [
            row("a", "one", 1.0),
            row("b", "one", 2.0, status="local-optimum"),
            row("c", "one", 3.0, status="failed"),
        ]
    )
    counts = ("problems", "solved", "best_found", "refused", "failed")
    assert [only[key] for key in counts] == [3, 1, 1, 0, 1]


def test_a_certified_answer_past_the_limit_is_late() -> None:
    """Its row says that it is certified, and it did not fail."""
    (only,) = summary(
        [
            row("a", "one", 1.0),
            row("b", "one", LIMIT + 1),
            row("c", "one", LIMIT + 1, status="inaccurate"),
        ]
    )
    counts = ("problems", "solved", "late", "best_found", "refused", "failed")
    assert [only[key] for key in counts] == [3, 1, 1, 0, 0, 1]


def test_nothing_in_common() -> None:
    rows = [
        row("a", "one", 1.0),
        row("b", "one", None, status="refused"),
        row("a", "two", None, status="refused"),
        row("b", "two", 1.0),
    ]
    assert [(r["common"], r["mean_seconds_common"]) for r in summary(rows)] == [(0, None)] * 2
    (alone,) = summary(rows[1:2])
    assert (alone["common"], alone["mean_seconds_common"]) == (0, None)


# --- the picture ----------------------------------------------------------------------------------


def test_the_picture_has_the_steps_of_the_curves(tmp_path: Path) -> None:
    figure = performance.figure_of(profiles(ROWS), time_limit=LIMIT)
    quick, slow, absent = figure.axes[0].get_lines()
    left = 1e-4 / 2
    assert quick.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(
        quick.get_xydata(), [[left, 0], [left, 0.25], [1, 0.5], [2, 0.75], [30, 1], [LIMIT, 1]]
    )
    np.testing.assert_allclose(slow.get_xydata(), [[left, 0], [30, 0.25], [LIMIT, 0.25]])
    np.testing.assert_allclose(absent.get_xydata(), [[left, 0], [LIMIT, 0]])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["quick (4 of 4)", "slow (1 of 4)", "absent (0 of 4)"]
    path = write_figure(
        performance.figure_of(profiles(ROWS), time_limit=LIMIT), tmp_path / "curves.png"
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    path = write_figure(
        performance.figure_of(profiles(ROWS), time_limit=LIMIT), tmp_path / "curves.svg"
    )
    assert b"<svg" in path.read_bytes()
    many = [Profile(name=str(i), problems=1, times=(1.0,)) for i in range(9)]
    assert len(performance.figure_of(many, time_limit=LIMIT).axes[0].get_lines()) == 9
    with pytest.raises(InputError):
        performance.figure_of([], time_limit=LIMIT)
