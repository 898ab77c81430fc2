"""One colour a mechanism, with its marker and line, in every picture of the project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from noisedesign.files import picture_file as hues
from noisedesign.files.picture_file import COLOURS, LINES

Look = Mapping[str, Any]
"""``color``, ``marker`` and ``linestyle``, as matplotlib takes them."""

MARKERS = "os^vDPX"

# A colour is of one mechanism. Its hue is what correlates: nothing (grey), nodes (greens), the ends
# of an edge (purples), steps (blues where optimal, pale or grey ones where published), both
# (oranges); a server (ambers), random participation (reds).
LOOKS: dict[str, tuple[str, str, Any]] = {
    "none": (hues.BLACK, "o", ":"),
    "ldp": (hues.GREY, "o", "-"),
    "cdp": (hues.AMBER, "o", "-"),
    "cdp-n": (hues.BROWN, "s", "--"),
    "cdp-n2": (hues.YELLOW, "^", "-."),
    "whisper": (hues.GREEN, "^", "-"),
    "whisper-horizon": (hues.FOREST, "v", "--"),
    "whisper-one-step": (hues.MINT, "D", ":"),
    "decor": (hues.PLUM, "D", "-"),
    "edge-local": (hues.PURPLE, "P", "--"),
    "mafalda-edge-local": (hues.VIOLET, "X", "-."),
    "edge-local-loss": (hues.MAUVE, "s", ":"),
    "mafalda": (hues.BLUE, "o", "-"),
    "loss-capped": (hues.NAVY, "s", "--"),
    "amplified": (hues.RED, "^", "-"),
    "amplified-kronecker": (hues.ROSE, "s", "--"),
    "d-mf": (hues.SKY, "s", "-"),
    "antipgd": (hues.TEAL, "^", "--"),
    "bsr": (hues.DENIM, "D", "-."),
    "normalized-sqrt": (hues.STEEL, "v", ":"),
    "bisr": (hues.ICE, "P", "-"),
    "bifr": (hues.CYAN, "X", "--"),
    "banded-sqrt": (hues.SLATE, "o", "-."),
    "kronecker": (hues.ORANGE, "s", "-"),
    "kronecker-loss": (hues.RUST, "D", "--"),
    "modal": (hues.PEACH, "P", "-."),
    "full": (hues.TAN, "X", ":"),
    "zip-dl": (hues.WINE, "D", "-"),
    "muffliato": (hues.OLIVE, "o", "--"),
    # What gossip averaging protects from, in its experiment alone.
    "others' views": (hues.BLUE, "o", "-"),
    "one view": (hues.ORANGE, "s", "-"),
    "equations (5.4), (5.5)": (hues.GREEN, "^", "-"),
    "Theorem 17, constants 1": (hues.PURPLE, "v", "-"),
}
_SAME = {
    "no noise": "none",
    "LDP": "ldp",
    "independent": "ldp",
    "central": "cdp",
    "space": "whisper",
    "time": "mafalda",
    "space-time": "kronecker",
}
"""Other words for them."""


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """The look of every name: a mechanism its own, whatever stands with it; what is none, those
    colours in turn that no mechanism here has. A name that goes on after a comma is a variant: the
    colour stays, the marker is hollow and the line another."""
    listed = list(dict.fromkeys(names))
    known = {name: LOOKS[base] for name in listed if (base := _base(name)) in LOOKS}
    taken = {colour for colour, _, _ in known.values()}
    free = [colour for colour in COLOURS if colour not in taken] or list(COLOURS)
    found: dict[str, Look] = {}
    seen: dict[str, int] = {}
    others = 0
    for name in listed:
        if name in known:
            colour, marker, line = known[name]
            variant = seen[_base(name)] = (
                seen.get(_base(name), -1 + ("," in name and name not in LOOKS)) + 1
            )
            found[name] = {"color": colour, "marker": marker, "linestyle": line}
            if variant:
                line = LINES[(LINES.index(line) + variant) % len(LINES)]
                hollow = "white" if variant % 2 else colour
                found[name] = {**found[name], "linestyle": line, "markerfacecolor": hollow}
            continue
        again, place = divmod(others, len(free))
        marker = MARKERS[(place + again) % len(MARKERS)]
        line = LINES[again % len(LINES)]
        found[name] = {"color": free[place], "marker": marker, "linestyle": line}
        others += 1
    return found


def _base(name: str) -> str:
    """The mechanism that a name of a picture begins with: "bsr-8, random" is of "bsr"."""
    if name in LOOKS:
        return name
    base = name.partition(",")[0]
    base = _SAME.get(base, base)
    return base if base in LOOKS else re.sub(r"-\d+$", "", base)
