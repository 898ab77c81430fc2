"""A picture of a comparison: the share of the problems each backend has solved by a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import write_figure
from noisedesign.tasks.compare.performance import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#1a73e8", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#767676")
"""The blue of our designs, then colours that readers with any colour vision tell apart (Okabe and
Ito 2008)."""
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))

LEAST_SECONDS = 1e-4
"""Where the axis of times begins at the latest: less is below what a clock tells."""


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
    from matplotlib.figure import Figure  # late: it takes longer to load than a solve takes
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
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
