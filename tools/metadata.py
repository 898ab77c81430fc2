"""Metadata of all distributions of this repository, from ``[tool.noisedesign]``: setup scripts load
this file alone.

The address of the repository is one setting. Without it there is no link to it, and a README that
links to files beside it is for the repository alone; with it these links are whole, so that they
work on the page of a package index."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = (".png", ".svg")
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s]+)")  # of Markdown, to a file beside the page


def version() -> str:
    """The version of the sources, as PEP 440 writes versions."""
    said = runpy.run_path(str(ROOT / "noisedesign" / "base" / "version.py"))
    return str(said["version_of"](ROOT) or said["UNKNOWN"])


def settings() -> dict[str, Any]:
    """The table ``[tool.noisedesign]``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["tool"]["noisedesign"]
    return found


def urls(repository: str, *, links: dict[str, str]) -> dict[str, str]:
    """Links of the metadata, without those that need an address that is not there."""
    known = {name: link for name, link in links.items() if repository or "{" not in link}
    return {name: link.format(repository=repository) for name, link in known.items()}


def described(page: str, *, repository: str, tag: str) -> str:
    """A page of the repository as a page of its own: its links, as of a tag, are whole."""
    if not repository:
        return page

    def whole(match: re.Match[str]) -> str:
        kind = "raw" if match[2].endswith(PICTURES) else "blob"
        return f"{match[1]}{repository}/{kind}/{tag}/{match[2]}"

    return LINK.sub(whole, page)


def arguments(readme: Path) -> dict[str, Any]:
    """Arguments of ``setuptools.setup`` that are the same for every distribution."""
    said, number = settings(), version()
    tag = f"v{number}" if "+" not in number else "main"
    return {
        "version": number,
        "project_urls": urls(said["repository"], links=said["links"]),
        "long_description": described(
            readme.read_text(encoding="utf-8"), repository=said["repository"], tag=tag
        ),
        "long_description_content_type": "text/markdown",
    }
