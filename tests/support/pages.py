"""Pages keep their word: what they quote runs, in order, and prints what they say.

The blocks of a page share one namespace and one folder, as for a reader who follows it from top to
bottom: ``python`` is executed, and what it prints compared with a ``text`` right below it;
``pycon`` is compared as a doctest; ``console`` is run as commands of noisedesign and compared.
``toml`` that begins with a comment "# NAME.toml" is the file of that name for what comes below.
``sh`` and ``py`` are shown only, and so is any other ``text``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from noisedesign import cli
from tests.support import ROOT

README = ROOT / "README.md"
DOCS = sorted(
    path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "gallery"} & {*path.parts}
)
PAGES = [README, *DOCS]

TIMES = {
    "seconds",
    "build seconds",
    "solve seconds",
    "solver seconds",
    "mean seconds",
    "mean seconds common",
    "s a step",
    "evaluations",
    "version",
}
"""Columns that differ from machine to machine."""
SAMPLED = {"measured", "low", "high"}
"""Columns of a simulation: which node is audited is decided by rounding where all are alike."""

FIRST_COLUMNS = ("name", "noise", "mu", "quantity", "node", "model", "backend", "method")

PROMISE = "≤ "
"""What stands before a limit, where the number itself is one that rounding decides."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}, {self.language}"


@dataclass(frozen=True)
class Call:
    """A command line of a console block, what the page prints below it, and what came."""

    arguments: tuple[str, ...]
    expected: str
    line: int
    code: int = -1
    stdout: str = ""
    stderr: str = ""


@dataclass
class Played:
    """What happened when a page was followed."""

    folder: Path
    calls: list[Call] = field(default_factory=list)
    namespace: dict[str, Any] = field(default_factory=dict)
    printed: str = ""


def read(page: str | Path) -> str:
    """The text of a page, named relative to the root."""
    return (ROOT / page).read_text(encoding="utf-8")


# --- parts of a page --------------------------------------------------------------------------


def blocks(text: str, language: str = "*") -> list[Block]:
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(m[1], m[2], text.count("\n", 0, m.start()) + 1)
        for m in found
        if language in (m[1], "*")
    ]


def section(text: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, heading
    return re.split(r"^## ", rest, flags=re.MULTILINE)[0]


def examples(page: str, heading: str = "", language: str = "python") -> str:
    """All Python of a page, or of one section of it."""
    text = read(page)
    part = section(text, heading) if heading else text
    return "\n".join(block.text for block in blocks(part, language))


def console_calls(block: Block) -> Iterator[Call]:
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: output before the first command"
    for command, output in zip(parts[1::2], parts[2::2], strict=True):
        words = shlex.split(command)
        assert words[0] == "noisedesign", f"{block}: {command}"
        yield Call(tuple(words[1:]), output, block.line)


def shell_commands(text: str) -> Iterator[list[str]]:
    """Every `noisedesign ...` of shell blocks and of running text that names a command."""
    for block in blocks(text, "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "noisedesign":
                yield words[1:]
    for block in blocks(text, "console"):
        yield from (list(call.arguments) for call in console_calls(block))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"`noisedesign ([^`]+)`", prose):
        yield shlex.split(quoted)


def table_with(text: str, *words: str) -> list[list[str]]:
    """Rows of the first Markdown table whose header has every one of ``words``."""
    for found in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [re.split(r"\s*(?<!\\)\|\s*", line.strip("|\n ")) for line in found.splitlines()]
        if all(any(word in cell for cell in rows[0]) for word in words):
            return rows[:1] + rows[2:]
    raise AssertionError(f"no table with {words}")


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


# --- following it -----------------------------------------------------------------------------


def play(
    page: Path, folder: Path, patch: pytest.MonkeyPatch, names: dict[str, Any] | None = None
) -> Played:
    """Run the blocks of a page in their order, in a folder of their own."""
    result = Played(folder, namespace={"__name__": page.stem, **(names or {})})
    patch.chdir(folder)
    patch.setenv("PYTHONPATH", str(ROOT))  # for solvers in processes of their own
    patch.setenv("NOISEDESIGN_RECORDS", str(folder / "records.sqlite3"))
    text = page.read_text(encoding="utf-8")
    latest, below = "", -1  # what Python printed last, and the line on which its output may stand
    for block in blocks(text):
        if block.language == "python":
            printed = io.StringIO()
            code = compile("\n" * block.line + block.text, page.name, "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, result.namespace)
            latest, below = printed.getvalue(), block.line + block.text.count("\n") + 3
            result.printed += latest
        elif block.language == "text" and block.line == below:
            assert_shown(block.text, latest, f"{page.name}, {block}")
            assert len(split_lines(latest)) == len(split_lines(block.text)), f"{block}: more came"
        elif block.language == "pycon":
            _doctest(block, page, result.namespace)
        elif block.language == "toml" and (name := re.match(r"# (\S+\.toml)\n", block.text)):
            (folder / name[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            result.calls += [run_command(call) for call in console_calls(block)]
    return result


def _doctest(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    found = doctest.DocTestParser().get_doctest(
        block.text, namespace, page.name, str(page), block.line
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = io.StringIO()
    runner.run(found, out=report.write, clear_globs=False)
    assert not report.getvalue(), report.getvalue()
    namespace.update(found.globs)


def run_command(call: Call) -> Call:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["noisedesign", *call.arguments])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as stop:
                code = int(stop.code or 0)
    return Call(call.arguments, call.expected, call.line, code, out.getvalue(), err.getvalue())


# --- what it said, and what came --------------------------------------------------------------


def assert_calls(played: Played) -> None:
    """Every command succeeded, printed what the page shows and wrote the file it was to."""
    for call in played.calls:
        where = f"line {call.line}: noisedesign {shlex.join(call.arguments)}"
        assert call.code == 0, f"{where}\n{call.stderr}"
        if "--json" in call.arguments:
            shown = re.sub(rf"{PROMISE}[-.e\d]+", r'"\g<0>"', call.expected)
            if shown.strip():
                assert_same_json(json.loads(shown), json.loads(call.stdout), where)
        else:
            assert_shown(call.expected, call.stdout + call.stderr, where)
        if "-o" in call.arguments:
            target = played.folder / call.arguments[call.arguments.index("-o") + 1]
            assert target.exists(), where
            written = target.rglob("*") if target.is_dir() else [target]
            assert all(path.stat().st_size for path in written if path.is_file()), where


def assert_same_json(shown: Any, found: Any, where: str) -> None:
    assert list(shown) == list(found), where
    for key, value in shown.items():
        if isinstance(value, dict):
            assert_same_json(value, found[key], f"{where}: {key}")
        else:
            assert same(key.replace("_", " "), str(value), str(found[key])), f"{where}: {key}"


def assert_shown(shown: str, found: str, where: str) -> None:
    """What is printed is shown, line by line; only where "..." stands are lines left out. A page
    that shows nothing of a command leaves all of it out."""
    lines = iter([split(line) for line in split_lines(found)])
    header: list[str] = []
    left_out = not shown.strip()
    for line in map(split, split_lines(shown)):
        if line == ["..."]:
            left_out = True
            continue
        if line[0] in FIRST_COLUMNS and len(line) > 2:
            header = line
        match = next((real for real in lines if agrees(header, line, real) or not left_out), None)
        wrong = f"{where}\nnot printed, or not here: {line}\n{found}"
        assert match is not None, wrong
        assert agrees(header, line, match), wrong
        left_out = False
    further = next(lines, None)
    assert left_out or further is None, f"{where}\nprinted as well: {further}"


def split_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def split(line: str) -> list[str]:
    """Cells of a printed table: two blanks or more apart."""
    return re.split(r"\s{2,}", line.strip()) if line.strip() else []


def agrees(header: list[str], shown: list[str], found: list[str]) -> bool:
    if len(found) < len(shown):
        return False
    if len(shown) == len(found) == 2 and shown[0] == found[0]:  # a name and its value
        return same(shown[0], shown[1], found[1])
    columns = header + [""] * len(shown)
    return all(same(c, a, b) for c, a, b in zip(columns, shown, found, strict=False))


def same(column: str, shown: str, found: str) -> bool:
    """Equal words, numbers equal to the digits printed, or one that keeps the promise "≤ 1e-6"."""
    a, b = number(shown), number(found)
    if column in TIMES:
        return True
    if shown.startswith(PROMISE):
        return b is not None and 0 <= b <= float(shown.removeprefix(PROMISE))
    if a is None or b is None:
        return shown == found
    relative = 0.25 if column in SAMPLED else 1e-5
    return math.isclose(a, b, rel_tol=relative)


def number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
