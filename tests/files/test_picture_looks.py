"""A mechanism has one colour in every picture, whatever is drawn with it."""

from __future__ import annotations

import io
import re
import tokenize
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from noisedesign.files.picture_looks import LOOKS, looks_of
from noisedesign.mechanisms.baselines import PUBLISHED
from tests.support import ROOT, drawn

HOME = "picture_file.py"
NODES = {"#aecbfa"}  # of a graph, which are no mechanism
HEX = re.compile(r"#[0-9a-fA-F]{6}\b")


def test_who_is_drawn_with_it_changes_nothing() -> None:
    everybody = looks_of(LOOKS)
    for pair in combinations(LOOKS, 2):
        found = looks_of(reversed(pair))
        assert all(found[name] == everybody[name] for name in pair)


GOSSIP = {"others' views", "one view", "equations (5.4), (5.5)", "Theorem 17, constants 1"}
"""What one experiment protects from, which is no mechanism and drawn with none but these."""
STEPS = 14.0  # between two colours in CIELAB: about six that are just told apart


def lightness_and_hues(colour: str) -> np.ndarray:
    """CIELAB under D65, by its definition (CIE 15:2004)."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_no_two_mechanisms_have_one_colour() -> None:
    """They are told apart without markers and lines, on white too."""
    places = {n: lightness_and_hues(LOOKS[n][0]) for n in LOOKS.keys() - GOSSIP}
    white = lightness_and_hues("#ffffff")
    np.testing.assert_allclose(white, [100, 0, 0], atol=0.02)
    for (a, x), (b, y) in combinations(places.items(), 2):
        assert np.linalg.norm(x - y) > STEPS, (a, b)
    for name, place in places.items():
        assert np.linalg.norm(white - place) > 30, name


def test_gossip_has_no_colour_twice() -> None:
    shown = [*GOSSIP, "central", "LDP", "no noise"]
    assert len({look["color"] for look in looks_of(shown).values()}) == len(shown)


def test_a_name_with_a_comma_in_it_is_no_variant() -> None:
    for name in GOSSIP:
        look = {"color": LOOKS[name][0], "marker": LOOKS[name][1], "linestyle": LOOKS[name][2]}
        assert looks_of([name])[name] == look


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


PICTURES = [*(ROOT / "docs/pictures").glob("*.svg"), *(ROOT / "docs/_static/narrow").glob("*.svg")]
MOST = 6  # panels of a picture that one reads


def test_no_words_of_a_picture_stand_on_one_another() -> None:
    found = {path.name: drawn.overlapping(path) for path in PICTURES}
    assert sum(len(drawn.boxes(path)) for path in PICTURES) > 1000
    assert not {name: pairs for name, pairs in found.items() if pairs}


def test_pictures_have_few_panels() -> None:
    for path in PICTURES:
        assert len(re.findall(r'<g id="axes_\d+">', path.read_text("utf-8"))) <= MOST, path.name


def test_words_on_one_another_are_found(tmp_path: Path) -> None:
    """Two texts 3 points apart, then 30; and one above an upright one."""
    from noisedesign.files.picture_file import new_figure, style, write_figure

    def drawn_with(apart: float) -> list[tuple[str, str]]:
        with style():
            figure = new_figure(3.0, 2.0)
            for k, name in enumerate(("one", "two")):
                figure.text(0.3 + k * apart / 216, 0.5, name)
            figure.text(0.1, 0.5, "upright", rotation=90)
            return drawn.overlapping(write_figure(figure, tmp_path / "x.svg"))

    assert drawn_with(3.0) == [("one", "two")]
    assert drawn_with(30.0) == []
