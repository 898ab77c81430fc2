"""Pictures that read on a phone and in the dark, and the cards of the gallery."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

IMAGE = re.compile(
    r'(?:<a [^>]*class="[^"]*image-reference[^>]*>)?(<img [^>]*src="([^"]+\.svg)"[^>]*/?>)(?:</a>)?'
)
SIZE = re.compile(r'<svg[^>]*?\bwidth="([\d.]+)(pt|px)?"')
PIXELS = 96 / 72  # of CSS in a point
PHONE = "(max-width: 46em)"
CARDS = "<!-- cards -->"
PLACES = re.compile(r"(?<=[\w)])([./=,:\[(]+)(?=[\w-])")  # where a long word of code may break
CODE = re.compile(r'(<span class="(?:pre|sig-(?:pre)?name desc(?:class)?name)">)([^<]{24,})(?=<)')
"""Words of code that are so long that they may break."""


def _natural(path: Path) -> float:
    """The width at which letters of a picture are as large as they were drawn, in pixels."""
    found = SIZE.search(path.read_text("utf-8")[:4000])
    if found is None:
        return 0.0
    return float(found.group(1)) * (PIXELS if found.group(2) != "px" else 1.0)


def _show(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Every picture opens by itself, is told its width, and has its narrow form where there is one;
    long words of code may break after a point, a stroke or a bracket, and nowhere else."""
    if not context.get("body"):
        return
    up = "../" * name.count("/")
    files = {Path(at).name: Path(app.srcdir, source) for source, (_, at) in app.env.images.items()}

    def shown(found: re.Match[str]) -> str:
        image, source = found.groups()
        file = files.get(Path(source).name)
        if file is None or not file.exists():
            return found.group(0)
        narrow = Path(app.srcdir, "_static", "narrow", file.name)
        other, kind = "", ""
        if narrow.exists():
            kind = " has-narrow"
            other = f'<source media="{PHONE}" srcset="{up}_static/narrow/{file.name}">'
        look = f"--natural: {_natural(file):.0f}px"
        picture = f"<picture>{other}{image}</picture>"
        return f'<a class="picture{kind}" style="{look}" href="{source}">{picture}</a>'

    body = IMAGE.sub(shown, context["body"])
    body = re.sub(r"(?<=<h1>)[^<]+", lambda found: found[0].replace("_", "_<wbr>"), body)
    context["body"] = CODE.sub(lambda it: it[1] + PLACES.sub(r"\1<wbr>", it[2]), body)


def _cards(app: Sphinx, name: str, source: list[str]) -> None:
    """A card a notebook: its first picture, title and first sentence."""
    if CARDS not in source[0]:
        return
    folder = Path(app.srcdir) / "gallery"
    cards = []
    for notebook in sorted(folder.glob("*.ipynb")):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        title, _, text = "".join(cells[0]["source"]).partition("\n")
        told = re.split(r"(?<=[.!?])\s", " ".join(text.split()))[0]
        # Percent signs and quotes keep a picture in the attribute that it is in.
        drawn = base64.b64encode(_first_picture(cells).encode()).decode()
        words = html.escape(title.lstrip("# "))
        cards.append(
            f'<a class="card" href="{notebook.stem}.html"><img alt="First picture of: {words}" '
            f'src="data:image/svg+xml;base64,{drawn}"><strong>{words}</strong>'
            f"<span>{html.escape(re.sub(r'[*`_]', '', told))}</span></a>"
        )
    source[0] = source[0].replace(CARDS, f'<div class="cards">\n{chr(10).join(cards)}\n</div>')


def _first_picture(cells: list[dict[str, Any]]) -> str:
    for cell in cells:
        for output in cell.get("outputs", []):
            if drawn := output.get("data", {}).get("image/svg+xml"):
                return "".join(drawn)
    return '<svg xmlns="http://www.w3.org/2000/svg"/>'


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", _show)
    app.connect("source-read", _cards)
    return {"parallel_read_safe": True}
