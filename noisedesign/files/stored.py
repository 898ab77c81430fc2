"""What a design file holds, whichever kind of design it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisedesign.base.checks import Array
from noisedesign.base.shown import Shown


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Stored(Shown):
    """A design as its file states it.

    Attributes:
        design: what is stored.
        manifest: the JSON object of the file, which is what is claimed.
        path: of the file.
        arrays: every array of the file by name, read-only float64.
        problem_text: the problem file that it was made from, or nothing.
    """

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
