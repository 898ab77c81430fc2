"""Pages in a real browser, on a telephone and on a screen, by day and by night.

``make test-browser`` installs the browser. A screenshot that differs from the stored one is left
beside the test's other files: look at it, and copy it if it is better.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from tests.support import ROOT
from tests.support.browser import PYTHON, visit
from tests.support.site import build

pytest.importorskip("sphinx", reason="Sphinx: .[docs] brings it")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no browser: `make test-browser` installs one"),
]

PAGES = (
    *("index", "tutorial", "results", "faq", "mathematics/views", "accounts", "gallery/index"),
    *("gallery/quickstart", "guides/which-design", "guides/mixing-weights"),
    *("guides/what-could-go-wrong", "guides/random-participation", "guides/training", "changelog"),
    *("experiments/ours", "experiments/whisper", "reference/python", "reference/conventions"),
    *("reference/names/noisedesign.SpaceProblem", "reference/names/noisedesign.solve"),
)
WIDTHS = (390, 1440)  # of a telephone and of a screen, in pixels
SHOTS = ROOT / "tests" / "project" / "screenshots"

WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN = """(() => {
  const found = [];
  for (const code of document.querySelectorAll("code, .sig")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    while (walker.nextNode()) {
      const node = walker.currentNode, text = node.data;
      if (!text.trim() || !node.parentElement.offsetParent) continue;
      range.selectNodeContents(node);
      if (range.getClientRects().length < 2) continue;
      let last = null;
      for (let k = 0; k < text.length; k++) {
        range.setStart(node, k); range.setEnd(node, k + 1);
        const top = range.getBoundingClientRect().top;
        if (last !== null && Math.abs(top - last) > 3 && /\\w\\w/.test(text.slice(k - 1, k + 1)))
          found.push(text);
        last = top;
      }
    }
  }
  return found;
})()"""
PICTURES = """[...document.querySelectorAll("a.picture img")].map(
  (image) => [image.currentSrc, image.getBoundingClientRect().width])"""
BUTTONS = """(() => {
  const button = document.querySelector("button.copy");
  button.click();
  return [document.querySelectorAll("div.highlight pre").length,
          document.querySelectorAll("button.copy").length,
          typed("$ noisedesign solve a.toml\\nobjective 1\\n$ noisedesign verify a.npz\\n"),
          typed(">>> a = [\\n...     1]\\n>>> a\\n[1]\\n"), typed("a = 1\\n\\nb = 2\\n")];
})()"""
FOUND = """[...document.querySelectorAll("#search-results li > a")].map(
  (link) => link.getAttribute("href"))"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def seen(html: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """What the browser says of every page at every width."""
    keys = list(itertools.product(PAGES, WIDTHS))
    scripts = {"wide": WIDE, "broken": BROKEN, "pictures": PICTURES}
    jobs = [{"page": f"{html / page}.html", "width": w, "scripts": scripts} for page, w in keys]
    return dict(zip(keys, visit(jobs), strict=True))


def test_no_page_is_wider_than_the_window(seen: dict[tuple[str, int], dict[str, Any]]) -> None:
    assert {key: found["wide"] for key, found in seen.items() if found["wide"] > 0} == {}


def test_no_word_of_code_is_broken(seen: dict[tuple[str, int], dict[str, Any]]) -> None:
    assert {key: found["broken"] for key, found in seen.items() if found["broken"]} == {}


def test_letters_of_pictures_are_large_enough(seen: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Half of the words are 8 pixels high or more, and none, an exponent, is below 5.5."""
    pictures = 0
    for key, found in seen.items():
        for source, width in found["pictures"]:
            text = Path(source.removeprefix("file://")).read_text(encoding="utf-8")
            (drawn,) = re.findall(r'viewBox="0 0 ([\d.]+) ', text)
            sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", text)]
            shown = np.array(sizes) * (width - 10) / float(drawn)  # 5 pixels of a frame
            assert shown.min() > 5.5, (key, source)
            assert np.median(shown) >= 8, (key, source)
            pictures += 1
    assert pictures > 20


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", ["index", "results"])
def test_the_first_picture_looks_as_it_did(
    html: Path, page: str, width: int, theme: str, tmp_path: Path
) -> None:
    """A curve, and the matrix of 148 nodes, which a telephone shows in one column."""
    from matplotlib.image import imread

    shot = tmp_path / f"{page}-{width}-{theme}.png"
    visit([{"page": f"{html}/{page}.html", "width": width, "theme": theme, "shot": str(shot)}])
    drawn = imread(shot)[..., :3]
    # White paper by day, and by night dark paper with light letters.
    assert np.median(drawn) > 0.95 if theme == "light" else np.median(drawn) < 0.2
    assert drawn.max() - drawn.min() > 0.4
    stored = imread(SHOTS / shot.name)[..., :3]
    assert abs(len(stored) - len(drawn)) <= 2, shot
    rows = min(len(stored), len(drawn))
    assert np.abs(stored[:rows] - drawn[:rows]).mean() < 0.02, shot


def test_code_is_copied_without_prompts_and_what_was_printed(html: Path) -> None:
    (found,) = visit([{"page": f"{html}/index.html", "width": 390, "scripts": {"all": BUTTONS}}])
    blocks, buttons, shell, python, plain = found["all"]
    assert blocks == buttons >= 2
    assert shell == "noisedesign solve a.toml\nnoisedesign verify a.npz\n"
    assert python == "a = [\n    1]\na\n"
    assert plain == "a = 1\n\nb = 2\n"


SEARCHES = {
    "weighted graph": "guides/mixing-weights",
    "batch size": "guides/which-design",
    "random batches": "guides/random-participation",
    "mixing_matrix": "reference/names/noisedesign.mixing_matrix",
}
"""What people ask for, and the page that answers it."""


def test_a_search_finds_the_page_that_answers(html: Path) -> None:
    common = {"page": f"{html}/search.html", "width": 1440, "wait": 2500}
    asked = [{"query": f"q={words}", "scripts": {"found": FOUND}} | common for words in SEARCHES]
    for (words, page), found in zip(SEARCHES.items(), visit(asked), strict=True):
        first = [link.partition(".html")[0].removeprefix("./") for link in found["found"][:3]]
        assert page in first, f"{words}: {found['found'][:6]}"


def test_a_report_reads_on_a_telephone(tmp_path: Path) -> None:
    graph = nx.barabasi_albert_graph(30, 3, seed=1)
    problem = nd.SpaceProblem.from_graph(graph, name="thirty", max_variance=10.0)
    page = nd.report(nd.solve(problem), path=tmp_path / "report.html")
    jobs = [{"page": str(page), "width": w, "scripts": {"wide": WIDE}} for w in WIDTHS]
    assert [found["wide"] for found in visit(jobs)] == [0, 0]
