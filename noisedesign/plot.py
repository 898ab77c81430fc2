"""Pictures of a design: its matrix, its noise against independent noise, its two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.design import Design
from noisedesign.io.atomic import overwriting, write_atomically

_NAMES = {
    "ldp": "independent (LDP)",
    "cdp": "CDP",
    "decor": "DECOR",
    "antipgd": "AntiPGD",
    "d-mf": "D-MF",
    "banded-sqrt": "banded square root",
    "whisper-one-step": "Whisper, one step",
    "whisper": "Whisper",
    "mafalda": "Mafalda",
}
_LDP, _OURS, _BOUND = "#9aa0a6", "#1a73e8", "#d93025"


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt


def draw_matrix(axes: Any, design: Design) -> None:
    """Heat map of R (space) or of the noising matrix C^-1 (time), zero at white."""
    space = design.kind == "space"
    matrix = design.covariance if space else design.noising_matrix
    # A few large diagonal entries would hide the rest: colours saturate at the 99.5th percentile.
    limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    picture = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.figure.colorbar(picture, ax=axes, fraction=0.046, pad=0.04)
    axes.set_title("covariance $R$ of the nodes" if space else "noising matrix $C^{-1}$")
    axes.set_xlabel("node" if space else "noise drawn at step")
    axes.set_ylabel("node" if space else "noise added at step")


def draw_comparison(axes: Any, designs: Sequence[Design]) -> None:
    """Objective of several designs for one problem, relative to independent noise."""
    base = designs[0].ldp_objective
    ratios = [design.objective / base for design in designs]
    names = [_label(design) for design in designs]
    colours = [_OURS if design.provenance.method == "optimal" else _LDP for design in designs]
    bars = axes.barh(names, ratios, color=colours)
    axes.bar_label(bars, fmt="%.3g", padding=3)
    bound = max(design.lower_bound for design in designs if design.trust == "local") / base
    axes.axvline(bound, color=_BOUND, linestyle="--", linewidth=1.2, label="proved lower bound")
    axes.invert_yaxis()
    if max(ratios) > 5:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("noise after mixing, relative to independent noise at equal privacy")
    axes.set_title(designs[0].problem.name)
    axes.legend(loc="best", fontsize="small")


def _label(design: Design) -> str:
    optimal = {
        "space": "Whisper optimum", "time": "Mafalda optimum", "space-time": "joint optimum"
    }[design.kind]  # fmt: skip
    if design.problem.design == "time" and design.problem.workload == "prefix":
        optimal = "optimum"
    name = _NAMES.get(design.provenance.method, optimal)
    return name + (" (trusted server)" if design.trust == "central" else "")


def draw_convergence(axes: Any, design: Design) -> None:
    """Relative distance of both bounds to the certified optimum, iteration by iteration."""
    history = design.provenance.history
    axes.set_title("convergence of the two bounds")
    if not history:
        axes.text(0.5, 0.5, f"no history from {design.provenance.backend}", ha="center",
                  transform=axes.transAxes)  # fmt: skip
        return
    optimum = (design.lower_bound + design.objective) / 2
    floor = 1e-16
    best_upper = np.minimum.accumulate([point.upper for point in history])
    best_lower = np.maximum.accumulate([point.lower for point in history])
    steps = np.arange(1, len(history) + 1)
    above = np.maximum(best_upper / optimum - 1, floor)
    axes.semilogy(steps, above, "o-", color=_OURS, label="feasible design, above")
    axes.semilogy(
        steps, np.maximum(1 - best_lower / optimum, floor), "s-", color=_BOUND,
        label="lower bound, below",
    )  # fmt: skip
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("evaluation of the bounds")
    axes.set_ylabel("relative distance to the optimum")
    axes.legend(fontsize="small")


def picture(
    design: Design, *, path: str | Path, others: Sequence[Design] = (), overwrite: bool = False
) -> Path:
    """Write the three pictures of a design side by side, as PNG.

    Args:
        others: designs for the same problem to compare with.
        overwrite: replace a file even if it is no picture.

    Raises:
        InputError: the folder does not exist, a file of another kind.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.6), constrained_layout=True)
    draw_matrix(axes[0], design)
    draw_comparison(axes[1], [*others, design])
    draw_convergence(axes[2], design)
    target = Path(path)
    try:
        with overwriting(overwrite):
            write_atomically(target, lambda stream: figure.savefig(stream, format="png", dpi=110))
    finally:
        plt.close(figure)
    return target
