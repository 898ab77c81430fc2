"""Lines of Python that are as short as people read them."""

from __future__ import annotations

import ast

WIDTH = 80  # columns of a line


def broken(line: str) -> str:
    """An assignment as lines of at most 80 columns, where it is longer with one argument a line."""
    if len(line) <= WIDTH or line.startswith(("#", "from ", "import ")):
        return line
    (said,) = ast.parse(line).body
    assert isinstance(said, ast.Assign)
    name = ast.unparse(said.targets[0])
    return f"{name} = {_value(said.value, indent=0, before=len(name) + 3)}"


def _value(value: ast.expr, *, indent: int, before: int) -> str:
    """An expression behind as many characters of its line, one of its parts a line if need be."""
    text = ast.unparse(value)
    if before + len(text) < WIDTH or not isinstance(value, (ast.Call, ast.List)):  # and a comma
        return text
    start, end, parts = "[", "]", [("", one) for one in getattr(value, "elts", [])]
    if isinstance(value, ast.Call):
        start, end = f"{ast.unparse(value.func)}(", ")"
        parts = [("", one) for one in value.args]
        parts += [(f"{one.arg}=", one.value) for one in value.keywords]
    inner = indent + 4
    lines = [
        f"{' ' * inner}{name}{_value(one, indent=inner, before=inner + len(name))},\n"
        for name, one in parts
    ]
    return f"{start}\n{''.join(lines)}{' ' * indent}{end}"
