"""The examples in docstrings run and show what they say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import noisedesign
from tests.support.examples import run_examples

PACKAGE = Path(noisedesign.__file__).parent


SECONDS = {
    f"noisedesign.{name}"
    for name in (
        *("design.solve", "design.unbounded", "families.toeplitz.solver", "noise.batches"),
        *("pages.write", "surveys.compare", "surveys.recommend"),
    )
}
"""Modules whose examples take a second or more each."""


def modules() -> list[str]:
    """Those with an example, by name; tests/adapters has those that need a trainer or torch."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    needing = ("noisedesign.adapters.", "noisedesign.noise.device.")
    return [name for name in found if not name.startswith(needing)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SECONDS else ()) for name in modules()],
)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_examples(importlib.import_module(name), tmp_path, monkeypatch)
