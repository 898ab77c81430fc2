"""The parts of a page: sections of sentences, facts, tables, pictures and commands.

All text is plain: the template escapes it, whatever it holds. Only a picture is markup, an <svg>
element that is made here of a figure of matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from xml.etree import ElementTree

from markupsafe import Markup

from noisedesign.base.shown import words
from noisedesign.files.picture_file import VECTOR, new_figure, save_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 200  # rows of a table that are written
FOLDED = 24


def cell(value: Any) -> str:
    return "" if value is None else words(value)


def vectors(count: int) -> str:
    return f"{count} vector{'' if count == 1 else 's'} of the model's size"


@dataclass(frozen=True)
class Text:
    """A paragraph. ``mood`` is "" or "warning"."""

    kind: ClassVar[str] = "text"
    text: str
    mood: str = ""

    @property
    def pieces(self) -> list[tuple[bool, str]]:
        """The text in pieces, each with whether it is a command, which stands between backticks."""
        return [(place % 2 == 1, part) for place, part in enumerate(self.text.split("`")) if part]


@dataclass(frozen=True)
class Facts:
    """Names and values; those that are None are left out."""

    kind: ClassVar[str] = "facts"
    facts: Mapping[str, Any]

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [(name, cell(value)) for name, value in self.facts.items() if value is not None]


@dataclass(frozen=True)
class Table:
    """Rows of values. ``bad`` are the places of rows that are a warning."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    bad: frozenset[int] = frozenset()

    @property
    def shown(self) -> list[tuple[bool, list[tuple[str, bool]]]]:
        """Every row with whether it is bad, and its cells with whether they are numbers."""
        return [
            (place in self.bad, [(cell(value), _is_number(value)) for value in row])
            for place, row in enumerate(self.rows[:MOST_ROWS])
        ]

    @property
    def numeric(self) -> list[bool]:
        columns = zip(*self.rows, strict=True)
        kinds = [[_is_number(v) for v in column if v is not None] for column in columns]
        return [bool(kind) and all(kind) for kind in kinds] or [False] * len(self.columns)

    @property
    def others(self) -> int:
        return max(0, len(self.rows) - MOST_ROWS)

    @property
    def folded(self) -> bool:
        return len(self.rows) > FOLDED


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Picture:
    kind: ClassVar[str] = "picture"
    svg: Markup
    caption: str


@dataclass(frozen=True)
class Code:
    kind: ClassVar[str] = "code"
    caption: str
    text: str


Part = Text | Facts | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    """A heading and what is below it; ``anchor`` is its name in links."""

    anchor: str
    title: str
    parts: Sequence[Part]

    @property
    def groups(self) -> list[tuple[str, list[Part]]]:
        found: list[tuple[str, list[Part]]] = []
        for part in self.parts:
            if part.kind == "picture" and found and found[-1][0] == "picture":
                found[-1][1].append(part)
            else:
                found.append((part.kind, [part]))
        return found


@dataclass(frozen=True)
class Page:
    """A page: ``verdict`` says what became of the claims, ``unchecked`` of which nothing is known,
    ``holds`` whether none is wrong."""

    title: str
    summary: str
    verdict: str
    unchecked: str
    holds: bool
    facts: Facts
    sections: Sequence[Section]
    made_by: str


# --- figures as pictures inside a page ------------------------------------------------------------

_REFERENCE = re.compile(r"(?<=url\(#)[^)]+(?=\))|(?<=^#).+$")

_NOT_SHOWN = {"metadata", "style"}


@dataclass
class Pictures:
    """The pictures of one page, whose names inside are their own."""

    made: list[Picture] = field(default_factory=list)

    @style()
    def add(
        self,
        title: str,
        caption: str,
        draw: Callable[..., None],
        *args: Any,
        height: float = 3.9,
        squares: bool = False,
    ) -> Picture:
        """Add what ``draw`` draws, 5.2 inches wide; ``title`` and ``caption`` say it in words."""
        figure = new_figure(5.2, height, squares=squares)
        draw(figure.subplots(), *args)
        name = f"picture-{len(self.made) + 1}"
        picture = Picture(Markup(_inline(figure, name, title, caption)), caption)
        self.made.append(picture)
        return picture


def _inline(figure: Figure, name: str, title: str, description: str) -> str:
    """The <svg> element: text is text, no name of another picture, nothing from elsewhere."""
    stream = io.BytesIO()
    save_figure(figure, stream, kind=VECTOR, dpi=150)
    root = ElementTree.fromstring(stream.getvalue())
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        for child in [one for one in element if one.tag.rpartition("}")[2] in _NOT_SHOWN]:
            element.remove(child)
    _rename(root, name)
    box = root.attrib["viewBox"]
    *_, width, height = box.split()
    root.attrib = {"viewBox": box, "width": width, "height": height, "role": "img"}
    root.attrib["aria-labelledby"] = f"{name}-title {name}-text"
    for tag, end, text in (("desc", "text", description), ("title", "title", title)):
        told = ElementTree.Element(tag, {"id": f"{name}-{end}"})
        told.text = text
        root.insert(0, told)
    return ElementTree.tostring(root, encoding="unicode")


def _rename(root: ElementTree.Element, name: str) -> None:
    """Names that something refers to get that of the picture in front; others are dropped."""
    referred = {
        found
        for element in root.iter()
        for key, value in element.attrib.items()
        if key != "id"
        for found in _REFERENCE.findall(value)
    }
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key != "id":
                element.attrib[key] = _REFERENCE.sub(lambda m: f"{name}-{m.group()}", value)
            elif value in referred:
                element.attrib[key] = f"{name}-{value}"
            else:
                del element.attrib[key]
