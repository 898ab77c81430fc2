"""The page about a design: whole, valid, self-contained, true, and never somebody else's markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PAGE, kind_of
from noisedesign.families.toeplitz.solver import optimize_toeplitz
from noisedesign.pages import content
from noisedesign.pages.content import MOST_ROWS
from noisedesign.privacy.views import pndp
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.toeplitz import prefix_workload
from tests.support.command_line import call

VOID = {"meta", "link", "img", "br", "hr", "input"}
SECTIONS = (
    *("graph", "noise", "spectra", "sharing", "privacy", "baselines"),
    *("certificate", "reproduce", "provenance"),
)
NEVER = {"script", "link", "iframe", "object", "embed", "img", "form", "base", "video", "audio"}
TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-6, clip=1.5, adjacency="replace")


class Reader(HTMLParser):
    """Elements, attributes and text of a page; what is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> comes twice"
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.words.append(data)
        if any(tag in self.open for tag in ("td", "th")):
            self.cells[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def row(self, first: str) -> list[str]:
        """The row whose first cell begins so."""
        (found,) = [row for row in self.cells if row[0].startswith(first)]
        return found

    def having(self, name: str) -> Iterator[tuple[str, str]]:
        """Tags and values of an attribute."""
        for tag, attributes in self.elements:
            value = attributes.get(name)
            if value is not None:
                yield tag, value


def read(design: Any, folder: Path) -> Reader:
    """The page of a design, which is checked for all that every page has to be."""
    path = nd.report(design, path=folder / "page.html", overwrite=True)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert kind_of(path) == PAGE
    page = Reader(text)
    check_self_contained(page, text)
    check_accessible(page)
    return page


def check_self_contained(page: Reader, text: str) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & NEVER
    for name in ("src", "href", "data", "action", "background", "poster", "srcset"):
        for tag, value in page.having(name):
            assert value.startswith(("#", "data:image/png;base64,")), (tag, value)
    assert not [name for _, a in page.elements for name in a if name.startswith("on")]
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"@import|url\(", style)
    assert not [v for _, v in page.having("style") if "url(" in v and "url(#" not in v]
    policy = [a for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    assert policy[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def check_accessible(page: Reader) -> None:
    ids = [value for _, value in page.having("id")]
    assert len(set(ids)) == len(ids)
    for name in ("href", "aria-labelledby"):
        for _, value in page.having(name):
            for part in value.removeprefix("#").split() if not value.startswith("data:") else []:
                assert part in ids
    for _, value in page.having("clip-path"):
        assert value.removeprefix("url(#").removesuffix(")") in ids
    anchors = [a["id"] for tag, a in page.elements if tag == "h2"]
    assert anchors == list(SECTIONS)
    assert [tag for tag, _ in page.elements if tag == "h1"] == ["h1"]
    tags = [tag for tag, _ in page.elements]
    drawings = [a for tag, a in page.elements if tag == "svg"]
    assert drawings
    assert all(a["role"] == "img" and a["aria-labelledby"] for a in drawings)
    # A name and a description in words in every one of them, besides the title of the page.
    assert tags.count("title") == 1 + len(drawings)
    assert tags.count("desc") == len(drawings)
    assert tags.count("table") == tags.count("caption")
    assert {"lang": "en"} in [a for tag, a in page.elements if tag == "html"]
    scrolled = [a for tag, a in page.elements if a.get("class") == "scroll"]
    assert len(scrolled) == tags.count("table")


def designed(problem: Any) -> nd.Design:
    design = nd.solve(problem).design
    assert design is not None
    return design


def path_of(nodes: int, **options: Any) -> nd.SpaceProblem:
    return nd.SpaceProblem.from_graph(nx.path_graph(nodes), **options)


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty, where a test looks at words only."""

    def empty(_: Any, stream: Any, **how: Any) -> None:
        stream.write(b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>')

    monkeypatch.setattr(content, "save_figure", empty)


ROUNDS = FixedEpoch(epochs=2, separation=3)
W = nd.mixing_matrix(nx.cycle_graph(4))


KINDS: dict[str, Callable[[], Any]] = {
    "space": lambda: path_of(4, privacy=replace(TARGET, steps=5)),
    "space without a use": lambda: path_of(4),
    "time": lambda: nd.TimeProblem.decentralized(mixing=W, participation=ROUNDS, privacy=TARGET),
    "time without a graph": lambda: nd.TimeProblem.prefix(participation=ROUNDS),
    "one node": lambda: nd.SpaceProblem(mixing=np.ones((1, 1))),
    "edge-local": lambda: path_of(
        4, structure=nd.SpaceStructure(kind="edge-local"), privacy=replace(TARGET, steps=1)
    ),
    "decor": lambda: path_of(4, structure=nd.SpaceStructure(kind="decor")),
    "kronecker": lambda: nd.SpaceTimeProblem(
        mixing=W, participation=ROUNDS, space=nd.SpaceStructure(kind="edge-local")
    ),
    "full": lambda: nd.SpaceTimeProblem(
        mixing=W, participation=FixedEpoch(epochs=1, separation=3), joint="full"
    ),
    "banded": lambda: nd.TimeProblem.prefix(
        participation=ROUNDS, structure=nd.TimeStructure(kind="banded", bands=2)
    ),
    "blt": lambda: nd.TimeProblem.prefix(
        participation=ROUNDS, structure=nd.TimeStructure(kind="blt", buffers=2)
    ),
    "random mixing": lambda: nd.SpaceProblem(
        mixing=W, random=nd.graphs.NodeDropout(mixing=W, probability=0.1)
    ),
    "observers": lambda: path_of(
        3,
        observers=(pndp(nodes=(0,)),),
        max_variance=10.0,
        responses="fixed",
        error=nd.ErrorMeasure(horizon=2),
    ),
}


DESIGNS: dict[str, nd.Design] = {}
PAGES: dict[str, Reader] = {}


def page_about(kind: str, folder: Path) -> Reader:
    """The page about a kind of design, made once."""
    if kind not in PAGES:
        DESIGNS[kind] = designed(KINDS[kind]())
        PAGES[kind] = read(DESIGNS[kind], folder)
    return PAGES[kind]


OFTEN = {"space", "space without a use", "edge-local", "kronecker"}
EVERY = [k if k in OFTEN else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]


@pytest.mark.parametrize("kind", EVERY)
def test_every_kind_of_design_has_its_page(kind: str, tmp_path: Path) -> None:
    page = page_about(kind, tmp_path)
    design = DESIGNS[kind]
    assert "every claim that could be checked holds" in page.text
    assert f"{design.objective:.6g}" in page.text
    assert page.row("objective")[1] == "holds"


# --- what it says ---------------------------------------------------------------------------------


def test_the_promise_and_the_noise_that_keeps_it(tmp_path: Path) -> None:
    """k = 5 steps of one record: mu = sqrt(k) 2 clip / stddev, found here from epsilon alone."""
    page = page_about("space", tmp_path)
    mu = nd.privacy.mu_of(epsilon=2.0, delta=1e-6)
    stddev = np.sqrt(5) * 2 * 1.5 / mu
    assert "(2, 1e-06)-differential privacy of one record" in page.text
    assert f"{stddev:.6g}" in page.text
    assert f"{stddev / 1.5:.6g}" in page.text
    reader = page.row("eavesdropper on all messages (ldp)")
    assert float(reader[4]) == pytest.approx(mu, rel=1e-5)
    assert float(reader[5]) == pytest.approx(2.0, rel=1e-5)


def test_what_is_not_protected_is_said(tmp_path: Path) -> None:
    page = page_about("space without a use", tmp_path)
    assert "has no privacy target" in page.text
    assert "Nobody said for how many steps" in page.text
    assert "The noise is dealt" in page.text
    assert page.row("node, if one seed makes all noise")[4:6] == ["infinite", "none holds"]
    assert "Not protected from: node, if one seed makes all noise." in page.text


def test_seeds_count_as_known_to_their_holders(tmp_path: Path) -> None:
    """Two nodes share one seed: who holds it knows all but the other's own part."""
    page = page_about("edge-local", tmp_path)
    design = DESIGNS["edge-local"]
    smallest = np.linalg.eigvalsh(design.covariance)[0]
    assert f"{smallest:.6g}" in page.text  # sigma_mix^2
    assert "nobody deals it" in page.text
    row = page.row("node that reads all messages, with its seeds (secldp)")
    known = nd.privacy.mu_to_holders(design)
    assert known is not None
    assert known > 1.01 * nd.privacy.mu_of(epsilon=2.0, delta=1e-6)
    assert float(row[4]) == pytest.approx(known, rel=1e-5)
    assert float(row[5]) == pytest.approx(nd.privacy.epsilon_of(mu=known, delta=1e-6), rel=1e-5)
    assert f"More than the target μ of {nd.privacy.mu_of(epsilon=2.0, delta=1e-6):.3g}" in page.text
    assert "for noise that is dealt" in page.row("honest-but-curious node (pndp)")[-1]
    (inner,) = [row for row in page.cells if row[:3] == ["1", "3", "2"]]  # its own, and two edges
    assert inner[3] == "0, 2"


def test_chosen_observers_have_their_numbers(tmp_path: Path) -> None:
    page = page_about("observers", tmp_path)
    assert "Protects from the chosen observers only" in page.text
    assert float(page.row("node 0: received messages")[3]) <= 2 * (1 + 1e-6)
    assert "No baselines" in page.text


@pytest.mark.usefixtures("_undrawn")
def test_a_trusted_server_protects_no_message(tmp_path: Path) -> None:
    page = read(nd.baseline(path_of(3), "cdp"), tmp_path)
    assert "Nothing but the released average is protected" in page.text
    assert page.row("eavesdropper on all messages (ldp)")[4:6] == ["infinite", "none holds"]
    assert "differential privacy of one record" not in page.text


@pytest.mark.usefixtures("_undrawn")
def test_a_long_horizon_without_a_matrix(tmp_path: Path) -> None:
    """A streaming design of a hundred thousand steps."""
    steps = 100_000
    workload, scheme = prefix_workload(horizon=steps), FixedEpoch(epochs=1, separation=steps)
    design = optimize_toeplitz(bands=2, workload=workload, participation=scheme)
    page = read(replace(design, privacy=TARGET), tmp_path)
    assert "every claim that could be checked holds" in page.text
    mu = nd.privacy.mu_of(epsilon=2.0, delta=1e-6)
    assert float(page.row("eavesdropper on all messages (ldp)")[1]) == pytest.approx(mu, rel=1e-5)


# --- who writes it --------------------------------------------------------------------------------


HOSTILE = (
    "<script>alert(1)</script>",
    '"onmouseover="alert(1)',
    "</title></svg><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "$\\frac{\x00\u202e]]>" + "x" * 5000,
)


def test_nothing_of_a_file_becomes_markup(tmp_path: Path) -> None:
    graph = nx.relabel_nodes(nx.path_graph(5), dict(enumerate(HOSTILE)))
    text = "</code></pre><script>alert(2)</script>\x00&amp;"
    made = designed(nd.SpaceProblem.from_graph(graph, name=HOSTILE[2]))
    lies = replace(made.provenance, backend="<b>", versions={"<i>": "</dd><script>"}, status="<u>")
    path = nd.save(replace(made, provenance=lies), tmp_path / "a.npz", problem_text=text)
    page = read(nd.load(path), tmp_path)
    assert not {"b", "i", "u"} & {tag for tag, _ in page.elements}
    for name in HOSTILE[:4]:
        assert name in " ".join(page.words)
    assert "49" not in [word.strip() for word in page.words]
    assert "</code></pre><script>alert(2)</script>\ufffd&amp;" in page.words
    assert "do not use it" in page.text  # the text in the file is no problem


@pytest.mark.usefixtures("_undrawn")
def test_nothing_that_a_file_names_is_read(tmp_path: Path) -> None:
    problem = path_of(3)
    text = 'name = "p"\ndesign = "space"\n[graph]\nkind = "edges"\nfile = "secret.edges"\n'
    path = nd.save(designed(problem), tmp_path / "a.npz", problem_text=text)
    (tmp_path / "secret.edges").mkdir()  # to read it would be an error
    stored = nd.load(path)
    page = read(stored, tmp_path)
    assert "Not checked: problem" in page.text


@pytest.mark.usefixtures("_undrawn")
def test_what_nobody_checked_is_in_no_green_box(tmp_path: Path) -> None:
    path = nd.report(designed(path_of(3)), path=tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    (verdict,) = re.findall(r'<p class="verdict"[^>]*>([^<]*)</p>', text)
    assert "ot checked" not in verdict
    (told,) = re.findall(r'<p class="unchecked">([^<]*)</p>', text)
    assert told.startswith("Not checked: problem")
    (look,) = re.findall(r"^\.unchecked \{(.*)\}$", text, re.MULTILINE)
    assert "good" not in look


@pytest.mark.usefixtures("_undrawn")
def test_a_false_claim_heads_the_page(tmp_path: Path) -> None:
    design = designed(path_of(4))
    better = replace(design.certificate, objective=design.objective / 2)
    page = read(replace(design, certificate=better), tmp_path)
    assert "A claim of this design is wrong (objective" in page.text
    assert page.row("objective")[1] == "WRONG"


def test_noise_that_is_none_is_told_and_not_a_traceback(tmp_path: Path) -> None:
    design = designed(path_of(3))
    singular = replace(design.noise, space=np.zeros((3, 3)))
    page = read(replace(design, noise=singular), tmp_path)
    assert "do not use it" in page.text


@pytest.mark.slow
def test_a_large_network_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    n = 400
    problem = nd.SpaceProblem.from_graph(nx.barabasi_albert_graph(n, 3, seed=0))
    noise = nd.baseline(problem, "ldp")
    path = nd.report(noise, path=tmp_path / "page.html")
    assert path.stat().st_size < 2e6
    page = Reader(path.read_text(encoding="utf-8"))
    assert f"and {n - MOST_ROWS} more" in page.text
    assert "at most this" in page.row("honest-but-curious node (pndp)")[-1]
    reader = float(page.row("eavesdropper on all messages (ldp)")[4])
    assert float(page.row("honest-but-curious node (pndp)")[4]) == pytest.approx(reader)


@pytest.mark.usefixtures("_undrawn")  # the same pictures: test_plot.py
def test_the_same_design_gives_the_same_page(tmp_path: Path) -> None:
    design = nd.baseline(nd.TimeProblem.prefix(participation=ROUNDS), "ldp")
    first = nd.report(design, path=tmp_path / "a.html").read_bytes()
    assert nd.report(design, path=tmp_path / "b.html").read_bytes() == first


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_undrawn")
def test_the_command(tmp_path: Path) -> None:
    path = nd.save(designed(path_of(3)), tmp_path / "d.npz")
    page = tmp_path / "page.html"
    outcome = call("report", path, "-o", page, "--json")
    assert (outcome.code, outcome.json()) == (0, {"report": str(page), "ok": True})
    design = designed(path_of(3))
    worse = replace(design.certificate, lower_bound=2 * design.objective)
    nd.save(replace(design, certificate=worse), tmp_path / "e.npz")
    outcome = call("report", tmp_path / "e.npz", "-o", page)  # a page is replaced by a page
    assert (outcome.code, outcome.out.split()) == (1, [str(page)])
    assert "does not hold what it claims" in outcome.err


@pytest.mark.usefixtures("_undrawn")
def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.html"
    path.write_text("<!DOCTYPE html><title>my page</title>", encoding="utf-8")
    design = designed(path_of(3))
    with pytest.raises(InputError, match="output"):
        nd.report(design, path=path)
    assert "my page" in path.read_text(encoding="utf-8")
    nd.report(design, path=path, overwrite=True)
    assert kind_of(path) == PAGE
    with pytest.raises(InputError, match=r"load\(path\)"):
        nd.report("d.npz", path=path)
