"""A distribution of somebody else, as Python sees one: modules, and what pip leaves of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path, name: str, *, entry_points: Mapping[str, str] | str, modules: Mapping[str, str]
) -> None:
    """Lay ``name``, version 1.2, out in ``site``, a folder of ``sys.path``.

    Args:
        entry_points: "group:name" -> value, or the text of the file.
        modules: name -> source.
    """
    info = site / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    text = entry_points if isinstance(entry_points, str) else _text(entry_points)
    (info / "entry_points.txt").write_text(text)
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source)


def _text(entry_points: Mapping[str, str]) -> str:
    lines = []
    for key, value in entry_points.items():
        group, name = key.split(":")
        lines.append(f"[noisedesign.{group}]\n{name} = {value}\n")
    return "\n".join(lines)
