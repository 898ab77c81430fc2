"""Means of times, failures charged, and performance profiles, by checked results.

Runs are matched by the accuracy that they reached: of each solver and problem the fastest run
within the time limit counts that reached it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from noisedesign.files.picture_file import legend_below, new_figure, plain, style
from noisedesign.surveys.check_results import LEVELS, VERIFIED, WRONG, CheckedResults
from noisedesign.surveys.compare import SHIFT_SECONDS, Profile, draw_shares, shifted_geometric_mean
from noisedesign.tasks.report import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def times(found: CheckedResults, *, accuracy: float) -> dict[str, dict[str, float]]:
    """Seconds, by solver and problem, of the fastest run in time that reached the accuracy."""
    best: dict[str, dict[str, float]] = {str(row["solver"]): {} for row in found.rows}
    for row in found.rows:
        reached = row["excess"] is not None and row["excess"] <= accuracy
        if row["status"] == VERIFIED and reached and row["seconds"] <= found.time_limit:
            own, name = best[row["solver"]], str(row["problem"])
            own[name] = min(float(row["seconds"]), own.get(name, math.inf))
    return best


def summary(found: CheckedResults) -> list[Record]:
    """A record a solver and accuracy: problems reached, wrong runs, shifted mean seconds."""
    charge = found.time_limit * found.penalty
    records = []
    for accuracy in LEVELS:
        for solver, own in times(found, accuracy=accuracy).items():
            runs = [row for row in found.rows if row["solver"] == solver]
            spent = [own.get(name, charge) for name in found.problems]
            wrong = sum(row["status"] == WRONG for row in runs)
            counts = {"problems": len(found.problems), "reached": len(own), "runs": len(runs)}
            mean = {"wrong": wrong, "mean_seconds": shifted_geometric_mean(spent)}
            records.append({"solver": solver, "accuracy": accuracy, **counts, **mean})
    return records


LEAST_SECONDS = 1e-3  # shorter times count as this: their ratios are those of clocks


def profiles(found: CheckedResults, *, accuracy: float) -> list[Profile]:
    """Ratios to the fastest solver of each problem (Dolan and More, 2002), one profile a solver."""
    best = {
        solver: {name: max(seconds, LEAST_SECONDS) for name, seconds in own.items()}
        for solver, own in times(found, accuracy=accuracy).items()
    }
    profiles = []
    for solver, own in best.items():
        fastest = {name: min(o.get(name, math.inf) for o in best.values()) for name in own}
        ratios = tuple(sorted(seconds / fastest[name] for name, seconds in own.items()))
        profiles.append(Profile(name=solver, problems=len(found.problems), times=ratios))
    return profiles


def remarks(found: CheckedResults) -> list[str]:
    told = []
    if drawn := [row for row in found.rows if row["confidence"] is not None]:
        sure = min(row["confidence"] for row in drawn)
        seeds = ", ".join(dict.fromkeys(str(row["seed"]) for row in drawn))
        told.append(
            f"{len(drawn)} runs are judged by random vectors or samples: their objectives and "
            f"budgets hold with confidence {sure!r} each; --seed draws the same again: {seeds}"
        )
    if len(found.clocks) > 1:
        told.append("seconds of two clocks, cpu and wall: they do not compare")
    return told


def record(found: CheckedResults) -> Record:
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
            {"solver": p.name, "accuracy": accuracy, "ratios": list(p.times)}
            for accuracy in LEVELS
            for p in profiles(found, accuracy=accuracy)
        ],
        "rows": list(found.rows),
    }


@style()
def figure_of(found: CheckedResults, *, title: str = "") -> Figure:
    """A panel an accuracy: the share of problems against the time over the fastest's."""
    figure = new_figure(9.6, 3.9)
    panels = figure.subplots(1, len(LEVELS), sharey=True)
    drawn = [profiles(found, accuracy=accuracy) for accuracy in LEVELS]
    largest = max((r for level in drawn for p in level for r in p.times), default=1.0)
    for axes, level, accuracy in zip(panels, drawn, LEVELS, strict=True):
        labels = [plain(profile.name) for profile in level]
        draw_shares(axes, level, labels, ends=(1.0, max(10.0, 2 * largest)))
        axes.set(title=f"to {accuracy:.0e}", xlabel="times the fastest")
    panels[0].set_ylabel(f"share of {len(found.problems)} problems")
    if title:
        figure.suptitle(plain(title, longest=80))
    legend_below(figure, columns=6)
    return figure
