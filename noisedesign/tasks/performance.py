"""What checked results say of solvers: means of times, failures charged, and performance profiles.

Runs are matched by the accuracy that they reached: of each solver and problem the fastest run
within the time limit counts that reached it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noisedesign.files.picture_file import (
    COLOURS,
    LINES,
    legend_below,
    new_figure,
    plain,
    style,
    write_figure,
)
from noisedesign.tasks.check_results import LEVELS, VERIFIED, WRONG, CheckedResults
from noisedesign.tasks.compare import SHIFT_SECONDS, shifted_geometric_mean
from noisedesign.tasks.report import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def times(found: CheckedResults, *, accuracy: float) -> dict[str, dict[str, float]]:
    """Of every solver, seconds by problem: those of its fastest run, within the limit, that reached
    the accuracy; problems that it did not are left out."""
    best: dict[str, dict[str, float]] = {str(row["solver"]): {} for row in found.rows}
    for row in found.rows:
        reached = row["excess"] is not None and row["excess"] <= accuracy
        if row["status"] == VERIFIED and reached and row["seconds"] <= found.time_limit:
            own, name = best[row["solver"]], str(row["problem"])
            own[name] = min(float(row["seconds"]), own.get(name, math.inf))
    return best


def summary(found: CheckedResults) -> list[Record]:
    """A record a solver and accuracy: how many problems it reached it on, how many of its runs are
    wrong, and the shifted geometric mean of the seconds, failures charged."""
    charge = found.time_limit * found.penalty
    records = []
    for accuracy in LEVELS:
        for solver, own in times(found, accuracy=accuracy).items():
            runs = [row for row in found.rows if row["solver"] == solver]
            spent = [own.get(name, charge) for name in found.problems]
            records.append(
                {
                    "solver": solver,
                    "accuracy": accuracy,
                    "problems": len(found.problems),
                    "reached": len(own),
                    "runs": len(runs),
                    "wrong": sum(row["status"] == WRONG for row in runs),
                    "mean_seconds": shifted_geometric_mean(spent),
                }
            )
    return records


@dataclass(frozen=True, kw_only=True)
class PerformanceProfile:
    """Of ``problems`` problems, the ratios, ascending, of a solver's time to the fastest one's, on
    those where it reached the accuracy.

    Source: Dolan and More (2002), "Benchmarking optimization software with performance profiles".
    """

    solver: str
    accuracy: float
    problems: int
    ratios: tuple[float, ...]

    def share(self, *, within: float) -> float:
        """Share of the problems, 0 to 1, solved within so many times the time of the fastest."""
        return sum(ratio <= within for ratio in self.ratios) / self.problems


LEAST_SECONDS = 1e-3
"""What takes less is taken to take that: ratios of shorter times are those of clocks."""


def profiles(found: CheckedResults, *, accuracy: float) -> list[PerformanceProfile]:
    """One a solver, in the order of their first runs."""
    best = {
        solver: {name: max(seconds, LEAST_SECONDS) for name, seconds in own.items()}
        for solver, own in times(found, accuracy=accuracy).items()
    }
    fastest: dict[str, float] = {}
    for own in best.values():
        for name, seconds in own.items():
            fastest[name] = min(seconds, fastest.get(name, math.inf))
    return [
        PerformanceProfile(
            solver=solver,
            accuracy=accuracy,
            problems=len(found.problems),
            ratios=tuple(sorted(seconds / fastest[name] for name, seconds in own.items())),
        )
        for solver, own in best.items()
    ]


def remarks(found: CheckedResults) -> list[str]:
    """What to know of the numbers, in sentences."""
    told = []
    if drawn := [row for row in found.rows if row["confidence"] is not None]:
        sure = min(row["confidence"] for row in drawn)
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(row["seed"] for row in drawn))
        told.append(
            f"{len(drawn)} runs are judged by random vectors or samples: their objectives and "
            f"budgets hold with confidence {sure!r} each; --seed draws the same again: {seeds}"
        )
    if len(found.clocks) > 1:
        told.append("seconds of two clocks, cpu and wall: they do not compare")
    return told


def record(found: CheckedResults) -> Record:
    """All of it, in plain values."""
    return {
        "ok": found.ok,
        "problems": len(found.problems),
        "time_limit": found.time_limit,
        "penalty": found.penalty,
        "seed": found.seed,
        "clocks": list(found.clocks),
        "shift_seconds": SHIFT_SECONDS,
        "summary": summary(found),
        "profiles": [
            {"solver": p.solver, "accuracy": p.accuracy, "ratios": list(p.ratios)}
            for accuracy in LEVELS
            for p in profiles(found, accuracy=accuracy)
        ],
        "rows": list(found.rows),
    }


def draw(found: CheckedResults, path: str | Path, *, title: str = "") -> Path:
    """Write a picture: a panel an accuracy, and in it of every solver the share of the problems
    against the ratio of its time to that of the fastest.

    Raises:
        InputError: a ``path`` in no folder, or that ends in no format of pictures.
        StorageError: the file cannot be written.
    """
    return write_figure(figure_of(found, title=title), path)


@style()
def figure_of(found: CheckedResults, *, title: str = "") -> Figure:
    """The figure of :func:`draw`."""
    from matplotlib.ticker import PercentFormatter

    figure = new_figure(9.6, 3.9)
    panels = figure.subplots(1, len(LEVELS), sharey=True)
    drawn = [profiles(found, accuracy=accuracy) for accuracy in LEVELS]
    largest = max((r for level in drawn for p in level for r in p.ratios), default=1.0)
    right = max(10.0, 2 * largest)
    for axes, level, accuracy in zip(panels, drawn, LEVELS, strict=True):
        for number, profile in enumerate(level):
            count = len(profile.ratios)
            axes.step(
                [1.0, *profile.ratios, right],
                [shared / profile.problems for shared in (*range(count + 1), count)],
                where="post",
                color=COLOURS[number % len(COLOURS)],
                linestyle=LINES[number % len(LINES)],
                label=plain(profile.solver),
            )
        axes.set_xscale("log")
        axes.set_xlim(1.0, right)
        axes.set_ylim(0, 1.02)
        axes.set_title(f"to {accuracy:.0e}")
        axes.set_xlabel("times the fastest")
        axes.grid()
    panels[0].yaxis.set_major_formatter(PercentFormatter(xmax=1))
    panels[0].set_ylabel(f"share of {len(found.problems)} problems")
    if title:
        figure.suptitle(plain(title, longest=80))
    legend_below(figure, columns=6)
    return figure
