"""Pictures: the numbers in them are the numbers of the design."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from noisedesign._checks import InputError
from noisedesign.baselines import published
from noisedesign.design import Design
from noisedesign.graph import mixing_matrix
from noisedesign.io.atomic import StorageError
from noisedesign.participation import FixedEpoch
from noisedesign.plot import draw_comparison, draw_convergence, draw_matrix, picture
from noisedesign.problem import SpaceProblem, TimeProblem
from noisedesign.solving import solve

W = mixing_matrix(nx.path_graph(5))
TAU = np.array([1.0, 2.0, 0.5, 1.0, 4.0])
SPACE_LDP = float((np.square(W).sum(axis=0) / TAU).sum())
"""Independent noise of variance 1 / tau_i: sum_i |column i of W|^2 / tau_i."""

TIME_LDP = 2 * (4 + 3 + 2 + 1)
"""Two epochs, X = I / 2: twice the trace of the prefix workload."""


def space_design() -> Design:
    design = solve(SpaceProblem(mixing=W, budget=TAU, name="five")).design
    assert design is not None
    return design


def time_design() -> Design:
    design = solve(
        TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=2), name="four")
    ).design
    assert design is not None
    return design


@pytest.fixture
def axes() -> Any:
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


# --- the matrix ----------------------------------------------------------------------------------


def test_heat_map_of_a_covariance(axes: Any) -> None:
    design = space_design()
    draw_matrix(axes, design)
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), design.covariance)
    low, high = image.get_clim()
    assert low == -high < 0  # zero is white
    assert "R" in axes.get_title()
    assert axes.get_xlabel() == "node"


def test_heat_map_of_a_strategy_shows_the_noise(axes: Any) -> None:
    """C^-1 and not C: what is drawn is what is added."""
    design = time_design()
    draw_matrix(axes, design)
    (image,) = axes.images
    np.testing.assert_allclose(
        np.asarray(image.get_array()) @ design.strategy, np.eye(4), atol=1e-12
    )
    assert "C^{-1}" in axes.get_title()


def test_colours_saturate_where_one_entry_is_large(axes: Any) -> None:
    n = 20
    problem = SpaceProblem(
        mixing=mixing_matrix(nx.complete_graph(n)), budget=[1.0] * (n - 1) + [1e-3],
        max_variance=[2.0] * (n - 1) + [2000.0],
    )  # fmt: skip
    design = solve(problem, time_limit=1e-9).design
    assert design is not None
    draw_matrix(axes, design)
    (image,) = axes.images
    assert 0 < image.get_clim()[1] < np.abs(design.covariance).max() / 10


# --- noise against others ------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "ldp"), [(space_design, SPACE_LDP), (time_design, TIME_LDP)])
def test_bars_are_ratios_to_independent_noise(
    make: Callable[[], Design], ldp: float, axes: Any
) -> None:
    design = make()
    others = published(design.problem, dual=design.dual)
    draw_comparison(axes, [*others, design])
    widths = [bar.get_width() for bar in axes.patches]
    expected = [other.objective / ldp for other in others] + [design.objective / ldp]
    np.testing.assert_allclose(widths, expected, rtol=1e-9)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(others) + 1
    assert "LDP" in labels[0]
    assert widths[0] == pytest.approx(1)
    assert "optimum" in labels[-1]
    central = [label for label in labels if "trusted server" in label]
    assert len(central) == 1
    (bound,) = axes.lines
    assert bound.get_xdata()[0] == pytest.approx(design.lower_bound / ldp)
    assert axes.get_title() == design.problem.name


def test_only_the_optimum_has_its_own_colour(axes: Any) -> None:
    design = space_design()
    draw_comparison(axes, [*published(design.problem), design])
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert len(set(colours[:-1])) == 1
    assert colours[-1] != colours[0]


# --- convergence ---------------------------------------------------------------------------------


def test_convergence_ends_at_the_gap(axes: Any) -> None:
    design = time_design()
    draw_convergence(axes, design)
    above, below = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert len(above) == len(below) == len(design.provenance.history)
    for distances in (above, below):
        assert (distances > 0).all()
        assert (np.diff(distances) <= 0).all()
        assert distances[-1] <= 1e-6
    assert axes.get_yscale() == "log"


def test_no_history_says_so(axes: Any) -> None:
    design = solve(SpaceProblem(mixing=W), backend="clarabel").design
    assert design is not None
    draw_convergence(axes, design)
    assert [text.get_text() for text in axes.texts] == ["no history from clarabel"]
    assert not axes.lines


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [space_design, time_design])
def test_the_picture_is_written_and_not_blank(make: Callable[[], Design], tmp_path: Path) -> None:
    design = make()
    path = picture(design, path=tmp_path / "p.png", others=published(design.problem))
    assert path == tmp_path / "p.png"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    image = imread(path)[..., :3]
    assert image.shape[1] > 2 * image.shape[0]
    for panel in np.array_split(image, 3, axis=1):
        assert len(np.unique(panel.reshape(-1, 3), axis=0)) > 20
        assert 0.01 < (panel.min(axis=2) < 0.9).mean() < 0.9
    assert plt.get_fignums() == []
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]


def test_a_failed_write_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Figure, stream: Any, **kwargs: Any) -> None:
        stream.write(b"half a picture")
        raise OSError(28, "No space left on device")

    old = tmp_path / "p.png"
    old.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(StorageError, match="No space left"):
        picture(space_design(), path=old)
    assert old.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]
    assert plt.get_fignums() == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing folder"):
        picture(space_design(), path=tmp_path / "no" / "p.png")
