"""One page a public name that the reference lists; these pages are not committed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock

BLOCK = re.compile(
    r"```\{eval-rst\}\n\.\. currentmodule:: (\S+)\n((?:\n|\.\. (?:auto|currentmodule).*\n)+)```\n"
)
LISTED = re.compile(r"\.\. (currentmodule|auto\w+):: (\S+)")
FOLDER = "names"  # beside the pages that list them
WHOLE = {"noisedesign": "reference/python"}
"""Modules whose every public name has a page, and where names stand that no block lists. Those of
NAMED follow them, with a section each."""
NAMED = ("privacy", "observers", "participation", "graphs")


def pages_of(text: str) -> Iterator[tuple[str, str]]:
    """The module and name of every entry that the blocks of a page list, public ones alone."""
    for block in BLOCK.finditer(text):
        yield from _entries(block.group(0))


def _entries(block: str) -> Iterator[tuple[str, str]]:
    module = ""
    for kind, value in LISTED.findall(block):
        if kind == "currentmodule":
            module = value
        elif module not in WHOLE or value in import_module(module).__all__:
            yield module, value


def _named() -> list[str]:
    """The modules of NAMED that are there and say what is public."""
    there = {module.name for module in iter_modules(import_module("noisedesign").__path__)}
    paths = [f"noisedesign.{name}" for name in NAMED if name in there]
    return [path for path in paths if hasattr(import_module(path), "__all__")]


def _rest(folder: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """By page: sections of names that are public and that no block of any page lists."""
    listed = {
        entry
        for page in folder.glob("reference/*.md")
        for entry in pages_of(page.read_text("utf-8"))
    }
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for module, page in WHOLE.items():
        sections = found.setdefault(page, [])
        for path in (module, *_named()):
            left = [n for n in import_module(path).__all__ if (path, n) not in listed]
            if left:
                sections.append((path, left))
    return found


def _table(entries: list[tuple[str, str]]) -> str:
    """A line a name with its first sentence, and the names in the side bar."""
    names = "\n".join(f"   ~{module}.{name}" for module, name in entries)
    stems = "\n".join(f"   {name} <{FOLDER}/{module}.{name}>" for module, name in entries)
    table = f".. autosummary::\n   :nosignatures:\n\n{names}\n"
    return f"```{{eval-rst}}\n{table}\n.. toctree::\n   :hidden:\n\n{stems}\n```\n"


def _whole(folder: Path, name: str, text: str) -> str:
    """A page with its sections of names that no block lists."""
    for path, left in _rest(folder).get(name, []):
        title = "Further names" if path in WHOLE else path
        lines = "\n".join(f".. auto{_kind(getattr(import_module(path), n))}:: {n}" for n in left)
        text += f"\n## {title}\n\n```{{eval-rst}}\n.. currentmodule:: {path}\n\n{lines}\n```\n"
    return text


def _kind(value: object) -> str:
    if inspect.ismodule(value):
        return "module"
    return "class" if inspect.isclass(value) else "function"


def _used(folder: Path, name: str, module: str) -> list[str]:
    """Pages outside the reference that show a name in their code."""
    inside = module.partition(".")[2]
    said = f"(?:nd.{inside}.)?{name}" if inside else f"nd.{name}"
    word = re.compile(rf"(?<![\w.]){said}\b".replace(".", r"\."))
    found = []
    for page in sorted([*folder.glob("*.md"), *folder.glob("guides/*.md")]):
        blocks = re.findall(r"```(?:python|py|pycon)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        if any(word.search(block) for block in blocks):
            found.append(page.relative_to(folder).with_suffix("").as_posix())
    return found


def _write(app: Sphinx) -> None:
    """A page for every name that a block lists, in the folder beside that page."""
    folder = Path(app.srcdir)
    kept = set()
    with mock(app.config.autodoc_mock_imports):
        for page in sorted(folder.glob("reference/*.md")):
            name = page.relative_to(folder).with_suffix("").as_posix()
            text = _whole(folder, name, page.read_text("utf-8"))
            kinds = {value: kind for kind, value in re.findall(r"\.\. auto(\w+):: (\S+)", text)}
            for module, value in pages_of(text):
                made = page.parent / FOLDER / f"{module}.{value}.rst"
                made.parent.mkdir(exist_ok=True)
                _put(made, _page(folder, module, value, kinds[value]))
                kept.add(made)
    for old in {*folder.glob(f"reference/{FOLDER}/*.rst")} - kept:
        old.unlink()


def _page(folder: Path, module: str, name: str, kind: str) -> str:
    used = "\n".join(f"- :doc:`/{page}`" for page in _used(folder, name, module))
    shown = f"\n.. rubric:: Pages that use it\n\n{used}\n" if used else ""
    head = f"{name}\n{'=' * len(name)}\n\n"
    if kind == "module":
        path = f"{module}.{name}"
        names = "\n".join(f"   {n}" for n in import_module(path).__all__)
        table = f".. autosummary::\n   :nosignatures:\n\n{names}\n"
        return f"{head}.. automodule:: {path}\n   :no-members:\n\n{table}{shown}"
    return f"{head}.. currentmodule:: {module}\n\n.. auto{kind}:: {name}\n{shown}"


def _put(path: Path, text: str) -> None:
    """Write what is new alone, so that a second build reads no page again."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """In the place of its entries, a page has their table."""
    if name.startswith("reference/") and "{eval-rst}\n.. currentmodule" in source[0]:
        text = _whole(Path(app.srcdir), name, source[0])
        source[0] = BLOCK.sub(lambda block: _table(list(_entries(block.group(0)))), text)


BACK = re.compile(rf"({FOLDER}/([\w.]+)\.html#)([\w.]+)")


def _back(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Links back from sources: where two modules give names of one source, viewcode knows one."""

    def led(link: re.Match[str]) -> str:
        page, anchor = link[2], link[3]
        if anchor == page or anchor.startswith(f"{page}."):
            return link[0]
        own = page.rpartition(".")[2]
        return f"{link[1]}{page}{anchor.partition(f'.{own}')[2]}"

    if name.startswith("_modules/"):
        context["body"] = BACK.sub(led, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    app.connect("html-page-context", _back)
    return {"parallel_read_safe": True}
