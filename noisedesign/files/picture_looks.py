"""One colour a mechanism, with its marker and line, in every picture of the project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from noisedesign.files.picture_file import (
    AMBER,
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    PURPLE,
    SKY,
    WINE,
)

Look = Mapping[str, Any]
"""``color``, ``marker`` and ``linestyle``, as matplotlib takes them."""

MARKERS = "os^vDPX"

# A hue is what correlates: nothing (grey), nodes (green), the ends of an edge (purple), steps
# (blue where optimal, light blue where published), both (orange); a server (amber).
LOOKS: dict[str, tuple[str, str, Any]] = {
    "none": (BLACK, "o", ":"),
    "ldp": (GREY, "o", "-"),
    "cdp": (AMBER, "o", "-"),
    "cdp-n": (AMBER, "s", "--"),
    "cdp-n2": (AMBER, "^", "-."),
    "whisper": (GREEN, "^", "-"),
    "whisper-horizon": (GREEN, "v", "--"),
    "whisper-one-step": (GREEN, "D", ":"),
    "decor": (PURPLE, "D", "-"),
    "edge-local": (PURPLE, "P", "--"),
    "mafalda-edge-local": (PURPLE, "X", "-."),
    "mafalda": (BLUE, "o", "-"),
    "loss-capped": (BLUE, "s", "--"),
    "amplified": (WINE, "^", "-"),
    "amplified-kronecker": (WINE, "s", "--"),
    "d-mf": (SKY, "s", "-"),
    "antipgd": (SKY, "^", "--"),
    "bsr": (SKY, "D", "-."),
    "normalized-sqrt": (SKY, "v", ":"),
    "bisr": (SKY, "P", "-"),
    "bifr": (SKY, "X", "--"),
    "banded-sqrt": (SKY, "o", "-."),
    "kronecker": (ORANGE, "s", "-"),
    "kronecker-loss": (ORANGE, "D", "--"),
    "modal": (ORANGE, "P", "-."),
    "full": (ORANGE, "X", ":"),
    "zip-dl": (WINE, "D", "-"),
    "muffliato": (GREEN, "o", "--"),
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
            variant = seen[_base(name)] = seen.get(_base(name), -1 + ("," in name)) + 1
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
    base = name.partition(",")[0]
    base = _SAME.get(base, base)
    return base if base in LOOKS else re.sub(r"-\d+$", "", base)
