"""Docstrings are sentences: no fragment that hangs on another text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support import ROOT

PACKAGES = ("noisedesign", "lab/noisedesign_lab", "tools")
SOURCES = (*PACKAGES, "lab/tests")

FRAGMENT = re.compile(
    r"(Of|That|Those|What|Which|Whose|By|With|Without|For|From|To|In|On|At|As|So|Up|Where|When|How|"
    r"Beyond|Above|Below|Between|Among|Not|And|Or|But|Than|Beside|Also)\b"
)

RIDDLES = re.compile(
    r"\b(elsehow|raising|doubtful|loudness|silenced|judge[sd]? anew)\b", re.IGNORECASE
)


OPENING = re.compile(rf"\"\"\"\s*{FRAGMENT.pattern}")
"""The beginning of a text in triple quotes that may be a fragment."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Statements of the sources where some text may be a fragment, with their files."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if OPENING.search(text):
                at = str(path.relative_to(ROOT))
                yield from ((at, node) for node in statements(ast.parse(text)))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module and all statements in it, without their expressions, which are most of a tree."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        found = getattr(node, field, [])
        for inner in found if isinstance(found, list) else []:
            yield from statements(inner)


def texts() -> Iterator[tuple[str, str]]:
    """Every docstring, and every string below a constant, with its place."""
    for path, node in nodes():
        body = getattr(node, "body", [])
        for one in body if isinstance(body, list) else []:
            value = one.value if isinstance(one, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield f"{path}:{one.lineno}", value.value


def test_docstrings_open_with_no_fragment() -> None:
    found = [f"{at}: {text.strip()[:60]}" for at, text in texts() if FRAGMENT.match(text.strip())]
    assert not found, "\n".join(found)


def test_names_and_docstrings_are_no_riddles() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match}"
        for folder in PACKAGES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in RIDDLES.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_no_string_is_multiplied_by_a_condition() -> None:
    """``"a " * flag`` hides an if."""
    found = []
    multiplied = re.compile(r"""["'] \* |\* f?["']""")
    texts = {
        path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items() if multiplied.search(text)}
    for path, node in ((path, node) for path, tree in trees.items() for node in ast.walk(tree)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            words = [
                one
                for one in (node.left, node.right)
                if isinstance(one, ast.JoinedStr)
                or (isinstance(one, ast.Constant) and isinstance(one.value, str))
            ]
            if any(re.search(r"[a-z]{3}", ast.unparse(one)) for one in words):
                found.append(f"{path}:{node.lineno}")
    assert not found, "\n".join(found)
