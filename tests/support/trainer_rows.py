"""Rows of the table of trainers in the documentation, written by the tests that train in them.

``make test-trainers`` sets ``NOISEDESIGN_TRAINER_ROWS`` to a folder, of which
``tools/trainers_table.py`` makes the table."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

FOLDER = "NOISEDESIGN_TRAINER_ROWS"


def trainer_row(
    name: str, *, packages: Sequence[str], works: Sequence[str], refuses: Sequence[str], cost: str
) -> None:
    """Write the row of a trainer, at the end of a test that saw all of it.

    Without the folder only the arguments are checked, so that any run of the test can call it.

    Args:
        name: of the trainer, as people write it: ``"Opacus"``.
        packages: distributions whose versions the row states, the trainer's first; none for one
            that was played by its interface.
        works: what was seen to work, each a few words.
        refuses: what was seen to be refused, each a few words.
        cost: what a step costs, a ratio that this run measured side by side, in words.
    """
    assert not isinstance(packages, str)
    for field, words in (("works", works), ("refuses", refuses)):
        assert not isinstance(words, str), f"{field}: expected a list of words"
        assert words, f"{field}: expected something"
    for words in (name, cost, *packages, *works, *refuses):
        assert words == words.strip() != "", f"expected words, got {words!r}"
        assert words.isprintable(), f"expected one line, got {words!r}"
    if folder := os.environ.get(FOLDER):
        row = {
            "trainer": name,
            "python": platform.python_version(),
            "versions": {package: version(package) for package in packages},
            "works": list(works),
            "refuses": list(refuses),
            "cost": cost,
        }
        path = Path(folder, re.sub(r"\W+", "-", name.lower()) + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def times(first: Callable[[], object], second: Callable[[], object]) -> str:
    """The CPU time of one thing over that of another, the least of three each, in words."""
    least = [float("inf")] * 2
    for _ in range(3):
        for at, one in enumerate((first, second)):
            begun = time.process_time()
            one()
            least[at] = min(least[at], time.process_time() - begun)
    return f"{least[0] / max(least[1], 1e-9):.2g} times"
