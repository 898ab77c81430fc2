"""Pictures of a design, of an account, and of nodes that drop out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import Array, InputError
from noisedesign.design.design import Design, design_of
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.files.picture_file import (
    BELOW,
    BLUE,
    GREY,
    NAMED,
    NEGATIVE,
    ORANGE,
    POSITIVE,
    SIGNED,
    legend_below,
    name_axis,
    new_figure,
    picture_format,
    plain,
    style,
    write_figure,
)
from noisedesign.files.picture_looks import LOOKS, looks_of
from noisedesign.privacy.exposure import Exposure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noisedesign.tasks.dropout import DropOut


_NAMES = {
    "ldp": "independent (LDP)",
    "cdp": "CDP",
    "decor": "DECOR",
    "antipgd": "AntiPGD",
    "d-mf": "D-MF",
    "normalized-sqrt": "square root, normalised",
    "bisr": "banded inverse square root",
    "bifr": "banded inverse root",
    "banded-sqrt": "banded square root",
    "whisper-one-step": "Whisper, one step",
    "whisper": "Whisper",
    "mafalda": "Mafalda",
}

DRAWN = 64  # most steps whose entries can be told apart in a heat map


def draw_matrix(axes: Any, design: Design) -> None:
    """R of a design in space, else C^-1: :func:`draw_covariance` or :func:`draw_noising`."""
    (draw_covariance if design.axes == "space" else draw_noising)(axes, design)


def draw_covariance(axes: Any, design: Design) -> None:
    matrix = design.covariance
    # A few large diagonal entries would hide the rest: colours saturate.
    limit = float(np.quantile(np.abs(matrix), 0.995))
    of = "covariance, units of squared noise, at the budgets"
    _heat_map(axes, matrix, limit=limit, ends=(0, len(matrix)), of=of)
    axes.set_title("covariance $R$ of the nodes")
    name_axis(axes, "x", design.problem.nodes, of="node")
    name_axis(axes, "y", design.problem.nodes, of="node")


def draw_noising(axes: Any, design: Design) -> None:
    """Heat map of C^-1, zero at white; of more than 64 steps the last are drawn."""
    matrix, first = design.noising_matrix, thin_from(design)
    shown = matrix[first:, first:]
    # Of many steps the first lags are as large at every step, and are drawn by themselves.
    entries = np.abs(shown[np.tril_indices(len(shown), -1)] if first else shown)
    limit = float(np.quantile(entries, 0.96 if first else 0.995))
    _heat_map(axes, shown, limit=limit, ends=(first, len(matrix)), of="coefficient")
    told = f", steps {first} to {len(matrix) - 1}" if first else ""
    unit = "step and node, step by step" if design.noise.full else "step"
    axes.set(title="noising matrix $C^{-1}$" + told)
    axes.set(xlabel=f"noise drawn at {unit}", ylabel=f"noise added at {unit}")


def _heat_map(axes: Any, matrix: Array, *, limit: float, ends: tuple[int, int], of: str) -> None:
    """Colours up to ``limit`` of either sign, from the first to before the last row of ``ends``."""
    limit, shown = limit or 1.0, coarse(matrix)
    low, high = ends[0] - 0.5, ends[1] - 0.5
    look = {"cmap": SIGNED, "vmin": -limit, "vmax": limit, "extent": (low, high, high, low)}
    picture = axes.imshow(shown, interpolation="none", **look)
    axes.spines[:].set_visible(True)
    beyond = "both" if np.abs(shown).max() > limit else "neither"
    bar = axes.figure.colorbar(picture, ax=axes, fraction=0.046, pad=0.04, extend=beyond)
    bar.outline.set_linewidth(0.5)
    bar.set_label(of)


def thin_from(design: Design) -> int:
    """The first step that the heat map of C^-1 shows: of a long run, that of its last epochs."""
    horizon = len(design.noising_matrix)
    if horizon <= DRAWN:
        return 0
    period = _period(design)
    return horizon - (DRAWN if period is None else min(DRAWN, 3 * period))


def coarse(matrix: Array) -> Array:
    """A matrix of at most 512 rows, each entry the largest of a square, with its sign."""
    size = -(-len(matrix) // 512)
    if size == 1:
        return matrix
    whole = np.pad(matrix, (0, -len(matrix) % size))
    blocks = whole.reshape(len(whole) // size, size, -1, size).swapaxes(1, 2)
    flat = blocks.reshape(*blocks.shape[:2], -1)
    largest = np.abs(flat).argmax(axis=-1)[..., None]
    return np.asarray(np.take_along_axis(flat, largest, axis=-1)[..., 0])


def lags_of(design: Design) -> int:
    """Steps back that the last row is drawn for: some epochs, where steps come round."""
    back, period = len(design.noising_matrix) - 1, _period(design)
    return back if period is None else min(back, 8 * period)


def _period(design: Design) -> int | None:
    participation = design.problem.participation
    return None if participation is None else participation.period


def draw_last_row(axes: Any, design: Design) -> None:
    """Sizes of the last row of C^-1 by lag, logarithmic; their colours are their signs."""
    values = design.noising_matrix[-1, ::-1][: lags_of(design) + 1]
    sizes = np.abs(values)
    floor = float(sizes.max()) * 1e-4
    for sign, colour, told in ((1, POSITIVE, "added"), (-1, NEGATIVE, "taken back")):
        seen = np.flatnonzero((sizes > floor) & (np.sign(values) == sign))
        axes.vlines(seen, floor, sizes[seen], color=colour, linewidth=1.0, label=told)
    back = "steps back" if not design.noise.full else "pairs of step and node back"
    axes.set(yscale="log", ylim=(floor, 2 * float(sizes.max())), title="last row of $C^{-1}$")
    axes.set(xlabel=back, ylabel="size of the coefficient")
    axes.legend(**BELOW)


def draw_comparison(axes: Any, designs: Sequence[Design]) -> None:
    """Objective of several designs for one problem, relative to independent noise."""
    base = designs[0].ldp_objective
    ratios = [design.objective / base for design in designs]
    places = range(len(designs))
    colours = [_colour(design) for design in designs]
    axes.hlines(places, 1.0, ratios, color=colours, linewidth=1.6)
    axes.scatter(ratios, places, color=colours, s=34, zorder=3)
    bound = max(design.lower_bound for design in designs if design.trust == "local") / base
    if bound > 0:
        axes.axvline(bound, color=ORANGE, linestyle="--", linewidth=1.1, zorder=1)
    axes.axvline(1.0, color=GREY, linewidth=0.7, zorder=0)
    axes.margins(x=0.08)
    if max(ratios) > 5 or min(ratios[-1], 1.0) < 0.05:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, axes.get_xlim()[1])
    name_rows(axes, [method_name(design) for design in designs], ratios)
    axes.set_xlabel("noise after mixing,\nover independent noise at equal privacy")
    axes.set_title(plain(designs[0].problem.name, longest=48))
    # In a row of its own, above the points, on the side where there is room.
    axes.set_ylim(len(designs) - 0.4, -1.1)
    if bound > 0:
        place = axes.transAxes.inverted().transform(axes.transData.transform((bound, 0)))[0]
        shift, side = (4, "left") if place < 0.5 else (-4, "right")
        told: Any = {"color": ORANGE, "fontsize": "small", "va": "center", "ha": side}
        told |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}}
        offset: Any = {"xytext": (shift, 0), "textcoords": "offset points"}
        axes.annotate("certified lower bound", (bound, -0.75), **told, **offset)


def name_rows(axes: Any, names: Sequence[str], values: Sequence[float]) -> None:
    """Names at the left of rows, and their values at the right."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    beside: Any = {"va": "center", "ha": "left", "transform": axes.get_yaxis_transform()}
    for place, value in enumerate(values):
        look: Any = {"color": ORANGE} if math.isinf(value) else {}
        axes.text(1.02, place, "∞" if math.isinf(value) else f"{value:.3g}", **beside, **look)


def method_name(design: Design) -> str:
    method = design.provenance.method
    if method in _NAMES:
        return _NAMES[method] + (" (trusted server)" if design.trust == "central" else "")
    shapes = [getattr(design.problem, name, None) for name in ("structure", "time", "space")]
    if any(shape is not None and shape.restricts for shape in shapes):
        return "optimum of its structure"
    if design.problem.axes == "time" and design.problem.workload == "prefix":
        return "optimum"
    return {"space": "Whisper optimum", "time": "Mafalda optimum"}.get(design.axes, "joint optimum")


def _colour(design: Design) -> str:
    """The colour of a design's mechanism in all pictures."""
    name = design.provenance.method
    if name == "optimal":
        structure = getattr(design.problem, "structure", None)
        kind = getattr(structure, "kind", "") if getattr(structure, "restricts", False) else ""
        whole = {"space": "whisper", "time": "mafalda", "space-time": "kronecker"}[design.axes]
        name = next(n for n in (kind, whole) if n in LOOKS)
    return str(looks_of([name])[name]["color"])


def draw_convergence(axes: Any, design: Design) -> None:
    """Relative distance of both bounds to the certified optimum, iteration by iteration."""
    history = design.provenance.history
    axes.set_title("convergence of the two bounds")
    if not history:
        told = f"no history from {plain(design.provenance.backend)}"
        axes.text(0.5, 0.5, told, ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    optimum, floor = (design.lower_bound + design.objective) / 2, 1e-16
    steps = np.arange(1, len(history) + 1)
    best_upper = np.minimum.accumulate([point.upper for point in history])
    best_lower = np.maximum.accumulate([point.lower for point in history])
    above = np.maximum(best_upper / optimum - 1, floor)
    below = np.maximum(1 - best_lower / optimum, floor)
    axes.semilogy(steps, above, "o-", color=BLUE, label="feasible design, above")
    axes.semilogy(steps, below, "s--", color=ORANGE, label="lower bound, below")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("evaluation of the bounds")
    axes.set_ylabel("relative distance to the optimum")
    axes.legend(**BELOW)


@style()
def unbounded_figure(design: UnboundedDesign) -> Figure:
    """The standard deviation of the error against the step, and the least at a known horizon."""
    proved = design.proved
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    axes.plot(proved.ends, proved.stddevs, color=BLUE, label="this design, private for ever")
    known = "a lower bound where the horizon is known"
    axes.plot(proved.ends, proved.least, color=GREY, linestyle="--", label=known)
    axes.set(xscale="log", xlabel="step", ylabel="standard deviation", ylim=(0, None))
    axes.set_title(f"at unit privacy: at most {design.ratio:.3f} times the least")
    legend_below(figure)
    return figure


@style()
def plot(
    design: Design | UnboundedDesign,
    *,
    path: str | Path,
    others: Sequence[Design] = (),
    columns: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the pictures of a design side by side, as PNG, PDF or SVG.

    They are its matrix, its noise against that of others, its two bounds and, over many steps, the
    last row of its C^-1; of a run without an end the error at every step, beside the least.

    Args:
        design: a design, or a solution or loaded file that has one.
        path: its ending says the format.
        others: designs for the same problem to compare with.
        columns: how many stand side by side, one of them for a narrow page; by default three, or
            half of more.
        overwrite: replace a file even if it is no picture.

    Returns:
        ``path``.

    Raises:
        InputError: no design; columns < 1; another ending, a folder that does not exist, a file of
            another kind.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.TimeProblem.prefix(participation=nd.participation.single(4))
        >>> independent = nd.baseline(problem, "ldp")
        >>> picture = nd.plot(nd.solve(problem).design, path="prefix.svg", others=[independent])
        >>> picture.exists()
        True
    """
    held = getattr(design, "design", design)
    if isinstance(held, UnboundedDesign):
        with overwriting(overwrite):
            return write_figure(unbounded_figure(held), path)
    design = design_of(design)
    given = _checks.listed(others, field="others", expected="a list of designs")
    compared = [design_of(other) for other in given]
    picture_format(path)
    if columns is not None:
        columns = _checks.positive_int(columns, field="columns")
    drawings: list[Callable[..., None]] = []
    if design.noise.space is not None:
        drawings.append(draw_covariance)
    if design.noise.strategy is not None:
        drawings += [draw_noising, draw_last_row] if thin_from(design) else [draw_noising]
    panels = [partial(draw, design=design) for draw in drawings]
    panels.append(partial(draw_comparison, designs=[*compared, design]))
    panels.append(partial(draw_convergence, design=design))
    if columns is None:
        columns = 3 if len(panels) == 3 else -(-len(panels) // 2)
    rows = -(-len(panels) // columns)
    if columns == 1:
        # The width of a telephone; no panel takes room for the names of another.
        figure = new_figure(4.0, 3.7 * rows)
        parts = figure.subfigures(rows, 1, squeeze=False).flat
        places = [part.subplots() for part in parts]
    else:
        figure = new_figure(4.4 * columns, 3.9 * rows, squares=True)
        places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for draw, axes in zip_longest(panels, places):
        if draw is None:
            axes.set_axis_off()
        else:
            draw(axes)
    with overwriting(overwrite):
        return write_figure(figure, path)


LOG_RATIO = 30.0  # of the largest to the smallest finite mu: beyond it an axis is logarithmic

NAMED_POINTS = 20  # most victims whose names fit beside their points
MU = "μ (GDP parameter of the whole run)"
EPSILON = "ε of the whole run at δ = {:g}, steps drawn at random"


@style()
def account_figure(exposures: Sequence[Exposure], *, title: str = "") -> Figure:
    """mu (not squared), or epsilon of random steps, of every victim by distance, or sorted."""
    if not exposures:
        raise InputError("exposures", expected="at least one victim", got="none")
    by_distance = any(exposure.distance is not None for exposure in exposures)
    wide = 6.4 if by_distance else min(max(0.22 * len(exposures) + 2.0, 6.4), 14.0)
    figure = new_figure(wide, 4.6)
    axes = figure.subplots()
    losses = np.array([exposure.loss for exposure in exposures])
    if by_distance:
        places = _distances(axes, exposures)
        _means(axes, np.round(places), losses)
    else:
        places = _ranks(axes, exposures)
    _points(axes, places, losses)
    if by_distance and len(exposures) <= NAMED_POINTS:
        aslant: dict[str, Any] = {"xytext": (1, 5), "textcoords": "offset points", "fontsize": 6.5}
        aslant |= {"rotation": 50, "rotation_mode": "anchor", "va": "center"}
        for place, exposure in zip(places, exposures, strict=True):
            if 0 < exposure.loss < math.inf:
                axes.annotate(plain(exposure.node), (float(place), exposure.loss), **aslant)
    first = exposures[0]
    label = MU if first.loss == first.mu else EPSILON.format(first.delta)
    axes.set(ylabel=label, title=plain(title, longest=80))
    axes.grid(axis="y")
    legend_below(figure)
    return figure


@style()
def drop_out_figure(found: Sequence[DropOut], *, title: str = "") -> Figure:
    """Variance of the average with nodes gone, over that of all, the costliest first."""
    if not found:
        raise InputError("found", expected="at least one drop-out", got="none")
    rows = sorted(found, key=lambda one: -round(one.others.average_ratio, 9))[::-1]
    figure = new_figure(6.4, min(max(0.26 * len(rows) + 1.8, 2.4), 12.0))
    axes = figure.subplots()
    places, ratios = np.arange(len(rows)), np.array([one.others.average_ratio for one in rows])
    bars = axes.barh(places, ratios, color=BLUE, label="those left go on")
    without = [(at, one.without_seeds) for at, one in enumerate(rows)]
    values = np.array([(at, part.average_ratio) for at, part in without if part is not None])
    if len(values):
        label = "they leave out seeds of those gone"
        axes.plot(values[:, 1], values[:, 0], "o", color=ORANGE, markersize=4.5, label=label)
    axes.axvline(1.0, color=GREY, linestyle="--", linewidth=1.0)
    if len(rows) <= NAMED:
        axes.set_yticks(places, [plain(", ".join(one.gone), longest=48) for one in rows])
        axes.bar_label(bars, fmt="%.3g", padding=4)
    else:
        axes.set(yticks=[], ylabel="nodes that drop out, one at a time")
    if ratios.max() > LOG_RATIO:
        axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("variance of the average, over that with nobody gone")
    axes.set_title(plain(title, longest=80))
    legend_below(figure)
    return figure


def _distances(axes: Axes, exposures: Sequence[Exposure]) -> Array:
    """Places of victims by distance, those at one distance side by side; those with none, last."""
    far = [math.inf if e.distance is None else e.distance for e in exposures]
    known = sorted(set(far))
    labels = ["no path" if distance == math.inf else str(distance) for distance in known]
    base = np.array([known.index(distance) for distance in far], dtype=np.float64)
    places = base.copy()
    for place in np.unique(base):
        inside = np.flatnonzero(base == place)
        # The most exposed first: a name goes up to the right, over points that are lower.
        inside = inside[np.argsort([-exposures[int(i)].loss for i in inside], kind="stable")]
        crowded = 1.0 if len(exposures) <= NAMED_POINTS else len(inside) / 12
        width = 0.28 * min(1.0, crowded)
        places[inside] += np.linspace(-width, width, len(inside)) if len(inside) > 1 else 0.0
    axes.set_xticks(range(len(labels)), labels)
    axes.set(xlim=(-0.6, len(labels) - 0.4), xlabel="hops from victim to observer")
    return places


def _ranks(axes: Axes, exposures: Sequence[Exposure]) -> Array:
    """Places of victims in the order of what they lose, the most exposed first."""
    order = sorted(range(len(exposures)), key=lambda i: -exposures[i].loss)
    places = np.empty(len(exposures))
    places[order] = np.arange(len(exposures))
    if few := len(exposures) <= 60:
        names = [plain(exposures[i].node) for i in order]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_xlabel("victim" if few else "victims, the most exposed first")
    axes.set_xlim(-0.8, len(exposures) - 0.2)
    return places


def _means(axes: Axes, columns: Array, losses: Array) -> None:
    """A bar at the mean of each column, where that is a number."""
    label: str | None = "mean at a distance"
    for column in np.unique(columns):
        mean = float(losses[columns == column].mean())
        if 0 < mean < math.inf:
            ends = [column - 0.38, column + 0.38]
            axes.plot(ends, [mean, mean], color="black", linewidth=1.8, label=label)
            label = None


def _points(axes: Axes, places: Array, losses: Array) -> None:
    infinite, nothing = np.isinf(losses), losses == 0
    finite = ~infinite & ~nothing
    if finite.any():
        look: dict[str, Any] = {"color": BLUE, "alpha": 0.7, "markersize": 4.5}
        axes.plot(places[finite], losses[finite], "o", label="victim", **look)
        low, high = float(losses[finite].min()), float(losses[finite].max())
        room = (high / low) ** 0.12
        if high > LOG_RATIO * low:
            axes.set_yscale("log")
            axes.set_ylim(low / room, high * room)
        else:
            axes.set_ylim(-0.08 * high, 1.15 * high)
    else:
        axes.set(ylim=(0, 1), yticks=[])
    # Along the edges of the picture: these have no place on the axis.
    edge = axes.get_xaxis_transform()
    for marked, height, marker, colour, words in (
        (infinite, 0.95, "^", ORANGE, "infinite: seen without unknown noise, no ε holds"),
        (nothing, 0.04, "v", GREY, "0: nothing reaches the observer"),
    ):
        if marked.any():
            count = int(marked.sum())
            along, told = np.full(count, height), f"{words} ({count})"
            axes.plot(places[marked], along, marker, color=colour, transform=edge, label=told)
