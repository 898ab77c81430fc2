"""A design as its file holds it, of whichever kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisedesign.base.checks import Array
from noisedesign.base.shown import Shown


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Stored(Shown):
    """A design as its file states it, and where that is."""

    design: Any
    manifest: dict[str, Any]
    path: Path
    arrays: dict[str, Array]
    problem_text: str = ""

    def _title(self) -> str:
        title: str = self.design._title()
        return f"Stored {title[0].lower()}{title[1:]}"

    def _facts(self) -> dict[str, object]:
        return {**self.design._facts(), "path": self.path}
