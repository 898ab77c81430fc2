"""The picture of an account: every victim is in it, at its own number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from noisedesign.base.atomic import StorageError
from noisedesign.base.checks import InputError
from noisedesign.files.picture_file import write_figure
from noisedesign.pages.plot import NAMED_POINTS, account_figure
from noisedesign.privacy.exposure import Exposure

mpl.use("Agg")


def exposure(mu: float, *, distance: int | None = None, node: str = "v") -> Exposure:
    return Exposure(
        node=node,
        distance=distance,
        sensitivity_squared=mu**2,
        which="vector-exact",
        mu=mu,
        adjacency="replace",
        responses="any",
        theorem=1,
    )


MIXED = [
    exposure(0.5, distance=2),
    exposure(math.inf, distance=1),
    exposure(0.7, distance=2),
    exposure(0.2, distance=3),
    exposure(0.0),
    exposure(math.inf, distance=1),
    exposure(0.6, distance=2),
]


def line(axes: Any, words: str) -> Any:
    (found,) = [one for one in axes.lines if words in str(one.get_label())]
    return found


def bars(axes: Any) -> dict[int, float]:
    """Mean by column: the short black lines."""
    found = {}
    for one in axes.lines:
        x, y = np.asarray(one.get_xdata()), np.asarray(one.get_ydata())
        if one.get_linestyle() == "-":
            assert y[0] == y[1]
            found[round(float(x.mean()))] = float(y[0])
    return found


def test_victims_stand_at_their_distance_and_mu() -> None:
    (axes,) = account_figure(MIXED, title="t").axes
    points = line(axes, "victim")
    places = np.round(points.get_xdata())
    assert sorted(zip(places, points.get_ydata(), strict=True)) == [
        (1, 0.5),
        (1, 0.6),
        (1, 0.7),
        (2, 0.2),
    ]
    assert len(set(points.get_xdata())) == 4  # none hides another
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "no path"]
    assert "hops" in axes.get_xlabel()
    assert "μ" in axes.get_ylabel()
    assert axes.get_title() == "t"


def test_means_are_those_of_the_finite_columns() -> None:
    (axes,) = account_figure(MIXED, title="").axes
    assert bars(axes) == pytest.approx({1: 0.6, 2: 0.2})


def test_infinite_and_zero_are_marked_at_the_edges_in_words() -> None:
    figure = account_figure(MIXED, title="")
    (axes,) = figure.axes
    infinite, nothing = line(axes, "infinite"), line(axes, "nothing reaches")
    assert list(np.round(infinite.get_xdata())) == [0, 0]
    assert list(nothing.get_xdata()) == [3]
    assert "(2)" in infinite.get_label()
    assert "(1)" in nothing.get_label()
    # In shares of the height of the axes, above and below everything that is finite.
    for marked, low, high in ((infinite, 0.9, 1.0), (nothing, 0.0, 0.1)):
        assert marked.get_transform() == axes.get_xaxis_transform()
        assert low < marked.get_ydata()[0] < high
    shares = axes.transAxes.inverted().transform(
        axes.transData.transform([(0, mu) for mu in (0.2, 0.7)])
    )[:, 1]
    assert 0.06 < shares[0] < shares[1] < 0.93
    shown = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert len(shown) == 4
    assert any("no ε holds" in words for words in shown)


def test_observers_that_are_no_node_get_a_sorted_row_of_names() -> None:
    victims = [exposure(mu, node=name) for name, mu in (("a", 0.2), ("b", 0.9), ("c", math.inf))]
    (axes,) = account_figure(victims, title="").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "b", "a"]
    points = line(axes, "victim")
    assert dict(zip(points.get_xdata(), points.get_ydata(), strict=True)) == {1: 0.9, 2: 0.2}
    assert list(line(axes, "infinite").get_xdata()) == [0]
    assert bars(axes) == {}


def test_many_victims_are_not_named() -> None:
    (axes,) = account_figure(
        [exposure(1 + i / 100, node=str(i)) for i in range(100)], title=""
    ).axes
    assert "most exposed first" in axes.get_xlabel()
    assert list(line(axes, "victim").get_ydata())[:2] == pytest.approx([1.0, 1.01])
    assert list(line(axes, "victim").get_xdata())[:2] == [99, 98]


@pytest.mark.parametrize(("smallest", "scale"), [(0.5, "linear"), (0.01, "log")])
def test_the_axis_is_logarithmic_where_mu_differ_by_much(smallest: float, scale: str) -> None:
    (axes,) = account_figure(
        [exposure(1.0, distance=1), exposure(smallest, distance=2)], title=""
    ).axes
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    assert low < smallest < 1.0 < high


@pytest.mark.parametrize("mu", [math.inf, 0.0])
def test_nothing_finite_leaves_no_scale(mu: float) -> None:
    (axes,) = account_figure([exposure(mu), exposure(mu)], title="").axes
    assert len(axes.get_yticks()) == 0
    assert len(axes.lines) == 1


def test_the_file_is_a_picture(tmp_path: Path) -> None:
    path = write_figure(account_figure(MIXED, title="some title"), tmp_path / "p.png")
    assert path == tmp_path / "p.png"
    image = imread(path)[..., :3]
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20
    assert 0.005 < (image.min(axis=2) < 0.9).mean() < 0.5
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]


def test_a_failed_write_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Figure, stream: Any, **kwargs: Any) -> None:
        stream.write(b"half a picture")
        raise OSError(28, "No space left on device")

    (tmp_path / "p.png").write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(StorageError, match="No space left"):
        write_figure(account_figure(MIXED), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]


def test_no_victims_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^exposures: expected at least one victim"):
        account_figure([])
    with pytest.raises(InputError, match="existing folder"):
        write_figure(account_figure(MIXED), tmp_path / "no" / "p.png")


def test_few_victims_are_named_beside_their_points() -> None:
    """Those that have a point: marks at the edges, of an infinite or no loss, have no names."""
    named = [
        exposure(0.5, distance=1, node="ann"),
        exposure(0.7, distance=1, node="bob"),
        exposure(math.inf, distance=1, node="cat"),
        exposure(0.0, distance=2, node="dan"),
    ]
    (axes,) = account_figure(named, title="t").axes
    points = line(axes, "victim")
    at = {text.get_text(): tuple(text.xy) for text in axes.texts}
    assert set(at) == {"ann", "bob"}
    assert set(at.values()) == set(zip(points.get_xdata(), points.get_ydata(), strict=True))
    assert at["ann"][1] == 0.5
    assert at["bob"][0] < at["ann"][0]  # the most exposed first, so that no name crosses a point


def test_names_that_would_cover_each_other_are_left_out() -> None:
    many = [exposure(0.5, distance=1, node=str(i)) for i in range(NAMED_POINTS + 1)]
    (axes,) = account_figure(many, title="t").axes
    assert not axes.texts


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_the_ending_of_the_name_is_the_format(suffix: str, tmp_path: Path) -> None:
    start = {".pdf": b"%PDF-", ".svg": b"<?xml", ".png": b"\x89PNG"}[suffix]
    path = write_figure(account_figure(MIXED), tmp_path / f"p{suffix}")
    assert path.read_bytes().startswith(start)
    with pytest.raises(InputError, match=r"\.png, \.pdf or \.svg"):
        write_figure(account_figure(MIXED), tmp_path / "p.gif")
