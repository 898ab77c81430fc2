"""The checker of its own, run in this process as a program and imported as a module."""

from __future__ import annotations

import contextlib
import importlib
import io
import runpy
import sys
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
    """The two modules, as Python finds them beside the program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKER.parent)
        return importlib.import_module("check_design")


def checked(path: Path) -> Checked:
    """What the checker says of a file."""
    words, code = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(words):
        patch.setattr(sys, "argv", [str(CHECKER), str(path)])
        patch.syspath_prepend(CHECKER.parent)
        try:
            runpy.run_path(str(CHECKER), run_name="__main__")
        except SystemExit as left:
            code = int(str(left.code))
    return Checked(code, words.getvalue())
