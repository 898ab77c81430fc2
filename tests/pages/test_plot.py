"""Pictures: the numbers in them are the numbers of the design."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import noisedesign as nd
from noisedesign.base.atomic import StorageError
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE, kind_of
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.picture_file import NAMED
from noisedesign.files.picture_looks import looks_of
from noisedesign.mechanisms.baselines import published
from noisedesign.pages.plot import (
    coarse,
    draw_comparison,
    draw_convergence,
    draw_last_row,
    draw_matrix,
    plot,
)
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-1.", ".svg": b"<?xml "}
SUFFIXES = [s if s == ".svg" else pytest.param(s, marks=pytest.mark.slow) for s in MAGIC]

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
        mixing=mixing_matrix(nx.complete_graph(n)),
        budget=[1.0] * (n - 1) + [1e-3],
        max_variance=[2.0] * (n - 1) + [2000.0],
    )
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
    others = published(design.problem, dual=design)
    draw_comparison(axes, [*others, design])
    points, stems = axes.collections[1], axes.collections[0]
    ratios = points.get_offsets()[:, 0]
    expected = [other.objective / ldp for other in others] + [design.objective / ldp]
    np.testing.assert_allclose(ratios, expected, rtol=1e-9)
    assert [s[0][0] for s in stems.get_segments()] == [1.0] * len(expected)  # independent noise
    np.testing.assert_allclose([s[1][0] for s in stems.get_segments()], expected, rtol=1e-9)
    told = [float(text.get_text()) for text in axes.texts if "bound" not in text.get_text()]
    np.testing.assert_allclose(told, expected, rtol=5e-3)  # three digits
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(others) + 1
    assert "LDP" in labels[0]
    assert ratios[0] == pytest.approx(1)
    assert "optimum" in labels[-1]
    central = [label for label in labels if "trusted server" in label]
    assert len(central) == 1
    bound, _ = axes.lines
    assert bound.get_xdata()[0] == pytest.approx(design.lower_bound / ldp)
    assert axes.get_title() == design.problem.name


def test_every_mechanism_has_its_colour(axes: Any) -> None:
    """Those of a curve of the same name, in any other picture."""
    from matplotlib.colors import to_rgba

    design = space_design()
    draw_comparison(axes, [*published(design.problem), design])
    colours = [tuple(colour) for colour in axes.collections[1].get_facecolors()]
    looks = looks_of(["ldp", "cdp", "decor", "whisper"])
    assert colours == [to_rgba(look["color"]) for look in looks.values()]
    assert len(set(colours)) == 4


def test_one_column_for_a_narrow_page(tmp_path: Path) -> None:
    """All panels of three in a row, below each other, in the width of a telephone."""
    sizes = {}
    for columns in (None, 1):
        path = nd.plot(space_design(), path=tmp_path / f"{columns}.svg", columns=columns)
        text = path.read_text(encoding="utf-8")
        sizes[columns] = [float(n) for n in re.findall(r'(?:width|height)="([\d.]+)pt"', text)]
        assert all(title in text for title in ("covariance", "convergence of the two bounds"))
    assert sizes[1][0] <= 4 * 72
    assert sizes[1][1] > 2.5 * sizes[None][1]
    with pytest.raises(InputError, match="columns"):
        nd.plot(space_design(), path=tmp_path / "no.svg", columns=0)


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


@pytest.mark.parametrize("make", [space_design, pytest.param(time_design, marks=pytest.mark.slow)])
def test_the_picture_is_written_and_not_blank(make: Callable[[], Design], tmp_path: Path) -> None:
    design = make()
    path = plot(design, path=tmp_path / "p.png", others=published(design.problem))
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
        plot(space_design(), path=old)
    assert old.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]
    assert plt.get_fignums() == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing folder"):
        plot(space_design(), path=tmp_path / "no" / "p.png")


# --- what is asked of a picture ------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_ending_of_the_name_is_the_format(suffix: str, tmp_path: Path) -> None:
    """The same picture gives the same bytes, and may be written again where it lies."""
    design = space_design()
    path = plot(design, path=tmp_path / f"p{suffix.upper()}")
    assert path.suffix == suffix.upper()
    first = path.read_bytes()
    assert first.startswith(MAGIC[suffix])
    assert (suffix == ".svg") == (b"<svg" in first)
    assert kind_of(path) == PICTURE
    assert not any(word in first for word in (b"CreationDate", b"<dc:date>"))
    assert plot(design, path=path).read_bytes() == first


@pytest.mark.parametrize("name", ["p.jpg", "p.eps", "p", "png", "p.png.gz"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"output: expected .*\.png, \.pdf or \.svg, got "):
        plot(space_design(), path=tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        b"%PDF-1.4\n/Creator (Word)",
        pytest.param(b"<?xml version='1.0'?><svg/>", marks=pytest.mark.slow),
    ],
)
def test_vector_pictures_of_others_are_not_replaced(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / ("paper.pdf" if text.startswith(b"%PDF") else "drawing.svg")
    path.write_bytes(text)
    with pytest.raises(InputError, match="output"):
        plot(space_design(), path=path)
    assert path.read_bytes() == text


def test_nodes_have_their_names(axes: Any) -> None:
    graph = nx.florentine_families_graph()
    design = solve(SpaceProblem.from_graph(graph, name="families")).design
    assert design is not None
    draw_matrix(axes, design)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == list(graph)


def test_of_many_nodes_every_kth_has_its_name(axes: Any) -> None:
    graph = nx.relabel_nodes(nx.path_graph(NAMED + 1), lambda node: f"node-{node}")
    design = solve(SpaceProblem.from_graph(graph, name="many")).design
    assert design is not None
    draw_matrix(axes, design)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == [f"node-{i}" for i in range(0, 41, 3)]
    assert axes.get_xlabel() == axes.get_ylabel() == "node (one of 3 named, 41 in all)"


def test_nodes_that_are_numbered_need_no_names(axes: Any) -> None:
    design = solve(SpaceProblem(mixing=mixing_matrix(nx.path_graph(NAMED + 1)))).design
    assert design is not None
    draw_matrix(axes, design)
    assert axes.get_xlabel() == "node (41 in all)"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_are_letters_and_nothing_else(suffix: str, tmp_path: Path) -> None:
    """No formulas, tags or control characters, which a picture would choke on; and no sentences."""
    names = ("$\\frac{$", "<b>&amp;</b>", "a\x00b\nc", "x" * 400, "_hidden")
    design = solve(SpaceProblem(mixing=W, nodes=names, name="$\\sum$ <i>" * 30)).design
    assert design is not None
    path = plot(design, path=tmp_path / f"p{suffix}")
    if suffix == ".svg":
        found = {"".join(text.itertext()) for text in ElementTree.parse(path).iter() if text.text}
        assert {"$\\frac{$", "<b>&amp;</b>", "a b c", "x" * 21 + "...", "_hidden"} <= found


def test_text_is_text_and_a_style_of_the_users_changes_nothing(tmp_path: Path) -> None:
    design = time_design()
    first = plot(design, path=tmp_path / "p.svg").read_bytes()
    assert b">convergence of the two bounds</text>" in first
    with mpl.rc_context({"text.usetex": True, "font.size": 30, "svg.fonttype": "path"}):
        assert plot(design, path=tmp_path / "p.svg").read_bytes() == first


def test_entries_of_a_large_matrix_stand_for_the_largest_of_several() -> None:
    matrix = np.zeros((1025, 1025))
    matrix[7, 5], matrix[6, 4], matrix[1024, 1024] = -3.0, 2.0, 1.0
    small = coarse(matrix)
    assert small.shape == (342, 342)  # three rows in one
    assert small[2, 1] == -3.0
    assert small[341, 341] == 1.0
    assert np.count_nonzero(small) == 2
    assert coarse(small) is small


def test_the_last_steps_of_many_and_their_last_row(axes: Any) -> None:
    """Entries are wide enough to see; the row is by lag, and goes back over epochs."""
    rounds = FixedEpoch(epochs=10, separation=8)
    design = solve(TimeProblem.prefix(participation=rounds, name="eighty")).design
    assert design is not None
    draw_matrix(axes, design)
    (image,) = axes.images
    shown = np.asarray(image.get_array())
    np.testing.assert_array_equal(shown, design.noising_matrix[-24:, -24:])
    assert image.get_extent() == [55.5, 79.5, 79.5, 55.5]
    assert "56 to 79" in axes.get_title()
    _, other = plt.subplots()
    draw_last_row(other, design)
    row = design.noising_matrix[-1, ::-1][:65]  # eight epochs back
    assert other.get_xlabel() == "steps back"
    heights = {
        sign: {round(s[0][0]): s[1][1] for s in lines.get_segments()}
        for sign, lines in zip((1, -1), other.collections, strict=True)
    }
    for sign, found in heights.items():
        seen = np.flatnonzero((np.abs(row) > np.abs(row).max() * 1e-4) & (np.sign(row) == sign))
        assert sorted(found) == list(seen)
        np.testing.assert_allclose([found[lag] for lag in seen], np.abs(row[seen]))
    plt.close(other.figure)


def test_no_words_lie_on_the_points(tmp_path: Path) -> None:
    """The name of the bound has a row of its own, numbers their column, and there is no legend."""
    for make in (space_design, time_design):
        design = make()
        figure = Figure(figsize=(5.3, 4.6), layout="constrained")
        axes = figure.subplots()
        draw_comparison(axes, [*published(design.problem), design])
        figure.savefig(tmp_path / "p.png")
        assert axes.get_legend() is None
        (words,) = [text for text in axes.texts if "bound" in text.get_text()]
        place = words.get_window_extent()
        points = axes.transData.transform(axes.collections[1].get_offsets())
        assert not any(place.contains(*point) for point in points)
        frame = axes.get_window_extent()
        numbers = [text.get_window_extent() for text in axes.texts if text is not words]
        assert all(number.x0 > frame.x1 for number in numbers)
        assert frame.x0 <= place.x0
        assert place.x1 <= frame.x1
