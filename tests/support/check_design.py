"""The checker of its own, as a module."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import ROOT

CHECKER = ROOT / "tools" / "check_design.py"


class Checked(NamedTuple):
    code: int
    words: str


@cache
def checker() -> Any:
    pytest.importorskip("flint", reason="the checker needs python-flint")
    spec = importlib.util.spec_from_file_location("check_design", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(*paths: Path) -> Checked:
    """What the checker says of a file."""
    words, code = io.StringIO(), 0
    with contextlib.redirect_stdout(words):
        try:
            checker().main(*paths)
        except SystemExit as left:
            code = int(str(left.code))
    return Checked(code, words.getvalue())
