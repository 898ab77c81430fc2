"""The page of a recommendation, from records that were written by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import noisedesign as nd
from noisedesign.files.picture_file import BLUE, GREY, new_figure
from noisedesign.pages.recommendation import COLUMNS, WHO, draw_errors, page_of_recommendation
from noisedesign.pages.write import write_page
from tests.support.endless import endless as endless

PATH = nd.build_graph("path", nodes=3)
RUN: dict[str, Any] = {"records": 4, "batch_size": 4, "epochs": 2, "epsilon": 1.0}


def record(noise: str, mechanism: str, relative: float, **other: Any) -> dict[str, Any]:
    blank = dict.fromkeys((*COLUMNS, *WHO))
    return blank | {"noise": noise, "mechanism": mechanism, "relative": relative} | other


RECORDS = [
    record("over <b>time</b>", "time", 0.25, **{"epsilon if batches are known": 4.5}),
    record("independent noise", "independent", 1.0),
]


def told() -> SimpleNamespace:
    target = nd.PrivacyTarget(epsilon=2.0, delta=1e-6)
    run = {"records": 60, "batch_size": 10, "epochs": 2}
    situation = SimpleNamespace(
        target=target, mixing=[[1.0]], fixed=SimpleNamespace(horizon=12), **run
    )
    situation.source, situation.made = "towns.edges", "graph = 0"
    change = {"change": "epsilon 3 instead of 2", "error": 0.5, "by": "over time"}
    return SimpleNamespace(
        records=RECORDS,
        sentences=["Its epsilon does not hold before <script>."],
        values={
            "incomplete": "incomplete: 1 of 3 kinds were not solved in 2 s",
            "changes": [change],
            "skipped": {"any covariance": "no time was left"},
            "changes not solved": {"batches of 20": "interrupted"},
        },
        code="problem = 1 < 2\n",
        situation=situation,
    )


def test_bars_have_a_colour_a_mechanism_and_random_batches_are_hatched() -> None:
    axes: Any = new_figure(5, 3).subplots()
    draw_errors(axes, RECORDS)
    first, second = axes.patches
    assert (first.get_width(), second.get_width()) == (0.25, 1.0)
    from matplotlib.colors import to_hex

    assert (to_hex(first.get_facecolor()), to_hex(second.get_facecolor())) == (BLUE, GREY)
    assert first.get_hatch()
    assert not second.get_hatch()
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top
    names = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert names["over <b>time</b>"] < names["independent noise"]


def test_the_page_has_the_ranking_changes_and_code_as_plain_text(tmp_path: Path) -> None:
    text = write_page(page_of_recommendation(told()), tmp_path / "page.html").read_text("utf-8")
    assert text.index("over &lt;b&gt;time") < text.index("independent noise</td>")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    for said in ("epsilon 3 instead of 2", "no time was left", "problem = 1 &lt; 2", "60, 10, 2"):
        assert said in text
    assert "vectors kept" not in text  # a column of nothing


def test_the_page_says_what_is_incomplete_of_which_graph_and_no_empty_table(tmp_path: Path) -> None:
    found = told()
    text = write_page(page_of_recommendation(found), tmp_path / "page.html").read_text("utf-8")
    assert "(incomplete)" in text.partition("</title>")[0]
    assert "Incomplete: 1 of 3 kinds were not solved in 2 s." in text
    assert "towns.edges" in text
    kinds, changes = (text.index(f"{of} that were not solved") for of in ("noise", "Changes"))
    assert kinds < text.index("any covariance") < changes < text.index("batches of 20")
    found.values |= {"incomplete": "", "changes": [], "changes not solved": {}}
    text = write_page(page_of_recommendation(found), tmp_path / "other.html").read_text("utf-8")
    assert "ncomplete" not in text
    assert "What would change it" not in text


def test_report_takes_a_recommendation(tmp_path: Path, endless: None) -> None:
    found = nd.recommend(PATH, weights="metropolis-hastings", **RUN)
    page = nd.report(found, path=tmp_path / "page.html")
    text = page.read_text("utf-8")
    assert "Recommended: over time" in text
    assert "nd.solve(problem).design" in text
    with pytest.raises(nd.InputError):
        nd.report("page", path=page)
