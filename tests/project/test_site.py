"""The site builds without a warning, has every public name and command, and its links lead
somewhere on it: nothing is fetched from a network, neither to build nor to read it."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import pkgutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import noisedesign
from noisedesign import cli
from tests.support import ROOT
from tests.support.reference import adapters, reference
from tests.support.site import build

pytest.importorskip("sphinx", reason="Sphinx: .[docs] brings it")
pytestmark = pytest.mark.slow  # all pages are built, as `make docs` does

LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("object", "data"),
}
"""What a browser asks for by itself, in distinction from links that a reader follows."""


class Page(HTMLParser):
    """Anchors of a page, what it links to and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.formulas = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.formulas += tag == "math"
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Every page."""
    html = build(tmp_path_factory.mktemp("site"))
    return {path.relative_to(html): Page(path) for path in sorted(html.rglob("*.html"))}


def test_every_page_is_there(site: dict[Path, Page]) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        if "_build" not in source.parts:
            assert source.relative_to(ROOT / "docs").with_suffix(".html") in site
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert Path("gallery", notebook.name).with_suffix(".html") in site


def test_every_public_name_has_its_entry(site: dict[Path, Page]) -> None:
    anchors = set.union(*(page.anchors for page in site.values()))
    assert (reference() | adapters()).keys() <= anchors


def test_every_public_name_has_a_page_of_its_own(site: dict[Path, Page]) -> None:
    """With its source; the page of the module only lists them."""
    named = [f"noisedesign.{name}" for name in ("graphs", "observers", "participation", "privacy")]
    here = {module.name for module in pkgutil.iter_modules(noisedesign.__path__, "noisedesign.")}
    modules = ["noisedesign", *(name for name in named if name in here)]
    for path in modules:
        for name in getattr(importlib.import_module(path), "__all__", ()):
            page = site[Path("reference", "names", f"{path}.{name}.html")]
            if inspect.ismodule(getattr(importlib.import_module(path), name)):
                continue
            assert f"{path}.{name}" in page.anchors
            assert any("_modules/" in link for link in page.links), f"{path}.{name}: no source"
    assert "noisedesign.solve" not in site[Path("reference/python.html")].anchors
    assert (
        "names/noisedesign.solve.html#noisedesign.solve"
        in site[Path("reference/python.html")].links
    )


def test_arrays_and_graphs_lead_to_those_who_document_them(site: dict[Path, Page]) -> None:
    links = {link for page in site.values() for link in page.links}
    for address in (
        "numpy.org/doc/stable/reference/generated/numpy.ndarray.html#numpy.ndarray",
        "docs.scipy.org/doc/scipy/reference/generated/scipy.sparse.csr_array.html",
        "networkx.org/documentation/stable/reference/classes/graph.html#networkx.Graph",
    ):
        assert any(address in link for link in links), address


def test_the_gallery_has_a_picture_of_every_notebook(site: dict[Path, Page]) -> None:
    page = site[Path("gallery/index.html")]
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    pictures = [link for link in page.loaded if link.startswith("data:image/svg+xml;base64,")]
    drawn = [base64.b64decode(link.partition(",")[2]).decode() for link in pictures]
    assert len(set(drawn)) == len(notebooks)
    assert all(text.count("<path") > 10 for text in drawn)
    assert {f"{name}.html" for name in notebooks} <= set(page.links)


@pytest.mark.parametrize(
    ("phrase", "page"),
    [
        ("weighted graph", "guides/mixing-weights"),
        ("batch size", "guides/which-design"),
        ("random batches", "guides/random-participation"),
    ],
)
def test_what_people_look_for_leads_to_a_page(
    site: dict[Path, Page], phrase: str, page: str
) -> None:
    """A main entry of the index comes before all words of a text (``test_browser`` searches)."""
    path = site[Path("index.html")].path.with_name("searchindex.js")
    text = path.read_text(encoding="utf-8").removeprefix("Search.setIndex(").rstrip(";)")
    index = json.loads(text)
    found = [(index["docnames"][at], main) for at, _, main in index["indexentries"][phrase]]
    assert (page, True) in found


def test_every_command_and_option_has_its_entry(site: dict[Path, Page]) -> None:
    anchors = site[Path("reference/commands.html")].anchors
    for name, command in cli.commands.commands.items():
        assert f"noisedesign-{name}" in anchors
        for option in command.params:
            if option.param_type_name == "option":
                words = [word for word in option.opts if word.startswith("--")]
                assert any(f"cmdoption-noisedesign-{name}-{w.strip('-')}" in anchors for w in words)


def test_links_lead_somewhere(site: dict[Path, Page]) -> None:
    followed = 0
    for name, page in site.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            assert target.exists(), f"{name}: {link}"
            followed += 1
            relative = target.relative_to(page.path.parents[len(name.parts) - 1].resolve())
            if parts.fragment and relative in site:
                assert unquote(parts.fragment) in site[relative].anchors, f"{name}: {link}"
    assert followed > 1000


def test_nothing_is_fetched_when_a_page_is_read(site: dict[Path, Page]) -> None:
    for name, page in site.items():
        fetched = [link for link in page.loaded if urlsplit(link).scheme not in ("", "data")]
        assert not fetched, f"{name}: {fetched}"


def test_formulas_are_formulas(site: dict[Path, Page]) -> None:
    """MathML, which browsers show by themselves; no TeX is left in the text."""
    page = site[Path("mathematics/views.html")]
    assert page.formulas > 60
    text = page.path.read_text(encoding="utf-8")
    assert "\\mathrm" not in text
    assert "\\succ" not in text
    assert site[Path("reference/names/noisedesign.SpaceProblem.html")].formulas >= 2
