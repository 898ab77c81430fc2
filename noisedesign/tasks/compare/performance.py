"""What the times of many problems say: performance profiles and shifted geometric means.

A time is that of building and solving a model; starting a solver's process and judging its answer
are the same for all backends and left out. A problem counts as solved where the answer is certified
to the gap asked for within the time limit, whatever its solver said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import new_figure, write_figure
from noisedesign.tasks.compare.run import Comparison
from noisedesign.tasks.report import REFUSED, Record
from noisedesign.tasks.solve import LOCAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHIFT_SECONDS = 10.0
"""Added to every time before the geometric mean, as in Mittelmann's benchmarks of optimisation
software: differences far below it, which nobody waits for, hardly count."""

WITHIN_SECONDS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Times, up to the limit, at which curves are read off where there is no room for them."""

_COLOURS = ("#1a73e8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#767676")
"""The blue of our designs, then colours that readers with any colour vision tell apart (Okabe and
Ito 2008)."""
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))

LEAST_SECONDS = 1e-4
"""Where the axis of times begins at the latest: less is below what a clock tells."""

WITHIN = "within_"
"""How the names of those shares begin."""

Row = Mapping[str, Any]


def shifted_geometric_mean(seconds: Sequence[float], *, shift: float = SHIFT_SECONDS) -> float:
    """exp(mean log(t + shift)) - shift, in seconds.

    Raises:
        InputError: no times, a time < 0 or none at all, shift <= 0.
    """
    shift = _checks.real(shift, field="shift", low=0)
    if not len(seconds) or not all(0 <= t < math.inf for t in seconds):
        raise InputError("seconds", expected="some times >= 0", got=str(list(seconds)))
    # One logarithm of the ratio to the shift: times far below it keep their digits.
    return shift * math.expm1(math.fsum(math.log1p(t / shift) for t in seconds) / len(seconds))


def spent(row: Row) -> float | None:
    """Seconds to build and solve, whatever came of it; None where nothing was begun."""
    if row["solve_seconds"] is None:
        return None
    return float(row["build_seconds"] + row["solve_seconds"])


def seconds_of(row: Row) -> float | None:
    """As :func:`spent`; None where that was not a certified answer in time."""
    seconds = spent(row)
    late = seconds is None or seconds > row["time_limit"]
    return None if late or not row["solved"] else seconds


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Of ``problems`` problems, in how many ``seconds``, ascending, a backend solved some."""

    backend: str
    problems: int
    seconds: tuple[float, ...]

    def share(self, *, within: float) -> float:
        """Share of the problems, 0 to 1, solved within so many seconds."""
        return sum(t <= within for t in self.seconds) / self.problems


def profiles(rows: Sequence[Row]) -> list[Profile]:
    """One a backend, in the order of the rows. A refused problem is one that is not solved."""
    return [
        Profile(
            backend=backend,
            problems=len(own),
            seconds=tuple(sorted(t for row in own if (t := seconds_of(row)) is not None)),
        )
        for backend, own in _by_backend(rows).items()
    ]


def summary(rows: Sequence[Row], *, shift: float = SHIFT_SECONDS) -> list[Record]:
    """One record a backend: counts, shifted geometric means, and the curve at some times.

    ``best_found`` counts local optima: the best a search found, where no one knows the optimum.
    ``late`` counts certified answers past the time limit, which are not solved.
    An unsolved problem counts as the time limit in the means. ``mean_seconds`` is that of all
    problems; ``mean_seconds_common`` that of the ``common`` ones, which every backend takes that
    takes any, and None where there are none.
    """
    groups = _by_backend(rows)
    limit = max(float(row["time_limit"]) for row in rows)
    taken = [{row["name"] for row in own if row["status"] != REFUSED} for own in groups.values()]
    common = set.intersection(*filter(None, taken)) if any(taken) else set()
    records = []
    for profile, own in zip(profiles(rows), groups.values(), strict=True):
        refused = sum(row["status"] == REFUSED for row in own)
        searched = sum(row["status"] == LOCAL for row in own)
        solved = len(profile.seconds)
        late = sum(bool(row["solved"]) for row in own) - solved
        shared = [row for row in own if row["name"] in common]
        records.append(
            {
                "backend": profile.backend,
                "problems": profile.problems,
                "solved": solved,
                "late": late,
                "best_found": searched,
                "refused": refused,
                "failed": profile.problems - solved - late - searched - refused,
                "mean_seconds": _mean(own, shift),
                "common": len(common),
                "mean_seconds_common": _mean(shared, shift) if shared else None,
                **{
                    f"{WITHIN}{t:g}_s": profile.share(within=t)
                    for t in WITHIN_SECONDS
                    if t <= limit
                },
            }
        )
    return records


def record(found: Comparison) -> Record:
    """All of a comparison, in plain values."""
    return {
        "machine": found.machine.record(),
        "shift_seconds": SHIFT_SECONDS,
        "summary": summary(found.rows),
        "curves": [
            {"backend": p.backend, "problems": p.problems, "seconds": list(p.seconds)}
            for p in profiles(found.rows)
        ],
        "rows": list(found.rows),
    }


def _mean(rows: Sequence[Row], shift: float) -> float:
    times = [seconds_of(row) for row in rows]
    counted = [
        float(row["time_limit"]) if t is None else t for row, t in zip(rows, times, strict=True)
    ]
    return shifted_geometric_mean(counted, shift=shift)


def _by_backend(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["backend"], []).append(row)
    return groups


def draw(
    profiles: Sequence[Profile], path: str | Path, *, time_limit: float, title: str = ""
) -> Path:
    """Write a picture: against the time in seconds, logarithmic, the share of the problems solved.

    Raises:
        InputError: no profiles; a ``path`` in no folder, or that ends in no format of pictures.
        StorageError: the file cannot be written.
    """
    if not profiles:
        raise InputError("profiles", expected="at least one backend", got="none")
    figure = figure_of(profiles, time_limit=time_limit, title=title)
    return write_figure(figure, path)


def figure_of(profiles: Sequence[Profile], *, time_limit: float, title: str = "") -> Figure:
    """The figure of :func:`draw`; each curve is a step at every time of its profile."""
    from matplotlib.ticker import PercentFormatter

    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    first = min((t for profile in profiles for t in profile.seconds), default=LEAST_SECONDS)
    left = max(first, LEAST_SECONDS) / 2
    for number, profile in enumerate(profiles):
        times = [left, *(max(t, left) for t in profile.seconds), time_limit]
        solved = [*range(len(profile.seconds) + 1), len(profile.seconds)]
        axes.step(
            times,
            [count / profile.problems for count in solved],
            where="post",
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_STYLES[number % len(_STYLES)],
            label=f"{profile.backend} ({len(profile.seconds)} of {profile.problems})",
        )
    axes.set_xscale("log")
    axes.set_xlim(left, time_limit)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.set_xlabel("seconds to build and solve")
    axes.set_ylabel("problems solved and certified")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    columns = min(len(profiles), 3)
    figure.legend(loc="outside lower center", fontsize="small", frameon=False, ncols=columns)
    return figure
