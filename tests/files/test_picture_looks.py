"""A mechanism has one colour in every picture, whatever is drawn with it."""

from __future__ import annotations

import io
import re
import tokenize
from itertools import combinations

import pytest

from noisedesign.files.picture_looks import LOOKS, looks_of
from noisedesign.mechanisms.baselines import PUBLISHED
from tests.support import ROOT

HOME = "picture_file.py"
NODES = {"#aecbfa"}  # of a graph, which are no mechanism
HEX = re.compile(r"#[0-9a-fA-F]{6}\b")


def test_who_is_drawn_with_it_changes_nothing() -> None:
    everybody = looks_of(LOOKS)
    for pair in combinations(LOOKS, 2):
        found = looks_of(reversed(pair))
        assert all(found[name] == everybody[name] for name in pair)


def test_no_two_mechanisms_look_alike() -> None:
    looks = {name: tuple(sorted(map(str, look.values()))) for name, look in looks_of(LOOKS).items()}
    assert len(set(looks.values())) == len(LOOKS)


def test_a_variant_keeps_the_colour() -> None:
    for name in ("ldp", "bsr-8", "amplified"):
        plain, random = looks_of([name, f"{name}, random"]).values()
        assert plain["color"] == random["color"]
        assert plain["linestyle"] != random["linestyle"]
        assert random["markerfacecolor"] == "white"
    assert looks_of(["bsr-8"])["bsr-8"] == looks_of(["bsr-16"])["bsr-16"]
    assert looks_of(["LDP"])["LDP"] == looks_of(["ldp"])["ldp"]


def test_others_take_colours_that_no_mechanism_there_has() -> None:
    looks = looks_of(["mafalda", *(f"other {letter}" for letter in "abcdefghij")])
    colour = looks.pop("mafalda")["color"]
    assert colour not in {look["color"] for look in looks.values()}
    assert len({tuple(look.values()) for look in looks.values()}) == 10


def test_every_mechanism_that_is_trained_or_published_has_one() -> None:
    mechanisms = pytest.importorskip("noisedesign_lab.tasks.mechanisms")
    names = {*mechanisms.MECHANISMS, *PUBLISHED}
    assert not names - LOOKS.keys()


def test_no_picture_brings_a_colour_of_its_own() -> None:
    """Colours are named where all pictures look for them."""
    found = []
    for folder in ("noisedesign", "lab/noisedesign_lab", "benchmarks", "notebooks", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if path.name == HOME or not HEX.search(text):
                continue
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                literal = token.type == tokenize.STRING and token.string.strip("\"'")
                if literal not in NODES and HEX.search(str(literal)):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert not found, "\n".join(found)


def test_pictures_of_the_documentation_have_these_colours() -> None:
    """In the legend of every stored picture a mechanism stands beside its colour."""
    seen = 0
    for path in sorted((ROOT / "docs" / "pictures").glob("*.svg")):
        _, _, legend = path.read_text(encoding="utf-8").partition('id="legend_1"')
        colour = ""
        entries = {}
        for stroke, text in re.findall(r"stroke: (#\w{6})|<text[^>]*>([^<]*)</text>", legend):
            colour = stroke or colour
            name = re.sub(r" \(diverged.*", "", text)
            if text and looks_of([name])[name] and re.split(r",|-\d", name)[0] in LOOKS:
                entries[name] = colour
        for name, shown in entries.items():
            assert shown == looks_of(entries)[name]["color"], f"{path.name}: {name}"
            seen += 1
    assert seen > 80
