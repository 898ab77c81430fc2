"""Problem files of the repository, each read once however many tests look at it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from noisedesign.files.problem_file import LoadedProblem, load_problem


@cache
def loaded(path: Path) -> LoadedProblem:
    """Load a problem file, which is not changed by anybody."""
    return load_problem(path)
