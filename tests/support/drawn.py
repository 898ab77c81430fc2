"""Where the letters of a picture stand, in a file of matplotlib, measured with its own letters."""

from __future__ import annotations

import html
import re
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

TEXT = re.compile(r"<text([^>]*)>(.*?)</text>", re.DOTALL)
SIZE = re.compile(r"font-size: ([\d.]+)px")
PLACE = re.compile(r'\bx="([-\d.]+)" y="([-\d.]+)"')
MOVED = re.compile(r'transform="translate\(([-\d.]+) ([-\d.]+)\)')
TURNED = re.compile(r"rotate\(-([\d.]+)")
GAP = 0.5  # points by which letters may touch: boxes are larger than what is drawn


class Box(NamedTuple):
    """A text and its rectangle, in points from the left and from the top."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: Box) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > GAP and down > GAP


@cache
def extent(text: str, size: float) -> tuple[float, float]:
    """Width, and height of its capital letters, in points."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont("DejaVu Sans"))
    font.set_size(size, 72)
    font.set_text(text, 0.0)
    return font.get_width_height()[0] / 64, 0.73 * size


def boxes(path: Path) -> list[Box]:
    """Texts that stand level or upright; mathematics, which is in parts, is left out."""
    found = []
    for head, inner in TEXT.findall(path.read_text(encoding="utf-8")):
        text = html.unescape(re.sub("<[^>]*>", "", inner)).strip()
        size, place = SIZE.search(head), PLACE.search(head) or MOVED.search(head)
        if not text or size is None or place is None:
            continue
        x, y = float(place[1]), float(place[2])
        width, height = extent(text, float(size[1]))
        left = {"middle": -width / 2, "end": -width}.get(
            (re.search(r"text-anchor: (\w+)", head) or ["", ""])[1], 0.0
        )
        turned = TURNED.search(head)
        if turned and float(turned[1]) == 90:
            found.append(Box(text, x - height, y - left - width, x, y - left))
        elif not turned or float(turned[1]) == 0:
            found.append(Box(text, x + left, y - height, x + left + width, y))
    return found


def overlapping(path: Path) -> list[tuple[str, str]]:
    """Pairs of texts that stand on one another."""
    return [(a.text, b.text) for a, b in combinations(boxes(path), 2) if a.covers(b)]
