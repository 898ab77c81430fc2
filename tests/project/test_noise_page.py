"""The examples of docs/noise.md that need no second node are run, and say what they say."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "noise.md"


def examples(heading: str) -> str:
    """All Python of a section."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))


def test_the_ledger() -> None:
    """Every expression with a number behind it is that number, to the digits shown."""
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    code, compared = examples("The ledger"), 0
    scope: dict[str, Any] = {}
    lines = code.splitlines()
    for node in ast.parse(code).body:
        source = ast.unparse(node)
        said = re.search(r"# ([0-9.]+)$", lines[(node.end_lineno or 1) - 1])
        if isinstance(node, ast.Expr) and said:
            found = eval(source, scope)
            digits = len(said[1].partition(".")[2])
            assert f"{found:.{digits}f}" == said[1], source
            compared += 1
        else:
            exec(source, scope)
    assert compared == 9
