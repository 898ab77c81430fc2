"""Stored results of measurements: the pages say what is stored, and mark what is of other code."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measured import __main__ as command, pages, store
from benchmarks.measured.store import Measurement, Result, changed, code_of
from noisedesign.base.checks import InputError
from noisedesign.base.tables import print_table
from tests.support import ROOT

# --- the pages as they are ------------------------------------------------------------------------


def test_pages_are_what_is_stored_and_mark_what_is_of_other_code() -> None:
    shown = pages.pages_of()
    assert {page.name for page in shown} >= {"results.md", "benchmarks.md"}
    for page in shown:
        text = page.read_text(encoding="utf-8")
        assert pages.page_of(text) == text, f"{page}: make results-marks"


def test_every_measurement_has_a_place_and_a_command_that_exists() -> None:
    known = store.measurements()
    shown = {
        name
        for page in pages.pages_of()
        for name in re.findall(r'<!-- measured: \{name = "([^"]+)"', page.read_text("utf-8"))
    }
    assert shown == known.keys()
    assert {path.stem for path in store.FOLDER.glob("*.json")} <= known.keys()
    for asked in known.values():
        for line in asked.run:
            program, *words = line.split()
            if words[0] == "-m":
                assert (ROOT / f"{words[1].replace('.', '/')}.py").exists(), line
            else:
                assert program == "noisedesign" or (ROOT / words[0]).exists(), line


def test_stored_results_say_when_and_where() -> None:
    for name in store.measurements():
        if (result := store.load(name)) is not None:
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", result.date), name
            assert re.fullmatch(r"[0-9a-f]{40}(\.dirty)?", result.commit), name
            if result.rests_on is not None:
                assert {"python", "numpy", "threads", "cores", "processor"} <= result.machine.keys()
                assert any(path.startswith("noisedesign/") for path in result.rests_on), name


# --- which change of code counts ------------------------------------------------------------------

CODE = '''"""A module."""

import math  # for pi

TURN = 2 * math.pi
"""Radians."""


def told(x):
    """Say it.

    Twice.
    """
    return f"# {x}", \'no """comment\', """
    text""" + (
        """one"""
    )
'''
SAME = [
    ("  # for pi", ""),
    ('"""A module."""', '"""Another text, with \'quotes\' and a # in it."""'),
    ('"""Radians."""', ""),
    ("    Twice.\n", "    Thrice.\n\n"),
    ("TURN =", "# of a circle\n\n\nTURN ="),
    ("2 * math.pi\n", "2 * math.pi   \n"),
]
OTHER = [
    ("2 *", "4 *"),
    ("# {x}", "{x}"),
    ('no """comment', 'a """comment'),
    ("    text", "    other text"),
    ('"""one"""', '"""two"""'),
    ("    return", "    x = 1\n    return"),
    ("def told", "    def told"),
]


@pytest.mark.parametrize(("before", "after"), SAME)
def test_a_change_of_what_computes_nothing_is_none(before: str, after: str) -> None:
    assert before in CODE
    assert code_of(CODE.replace(before, after)) == code_of(CODE)


@pytest.mark.parametrize(("before", "after"), OTHER)
def test_a_change_of_code_or_of_a_text_it_uses_is_one(before: str, after: str) -> None:
    assert before in CODE
    assert code_of(CODE.replace(before, after)) != code_of(CODE)


def bare(text: str) -> str:
    """The syntax tree without statements that compute nothing."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, [one for one in body if not idle(one)])
    return ast.dump(tree)


def idle(one: ast.stmt) -> bool:
    text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    return isinstance(one, ast.Pass) or (text and isinstance(one.value.value, str))  # type: ignore[attr-defined]


def with_bodies(code: str) -> str:
    """Code in which bodies that were docstrings alone are ``pass`` again."""
    lines = code.splitlines() or [""]
    made = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        made.append(line)
        margin = len(line) - len(line.lstrip())
        if line.endswith(":") and len(following) - len(following.lstrip()) <= margin:
            made.append(f"{' ' * margin}    pass")
    return "\n".join(made)


@pytest.mark.slow
def test_nothing_but_these_is_left_out_of_any_file() -> None:
    for folder in ("benchmarks", "lab", "noisedesign", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert bare(with_bodies(code_of(text))) == bare(text), path


# --- a checkout of two commands -------------------------------------------------------------------

FILES = {
    "benchmarks/__init__.py": "",
    "benchmarks/adds.py": """
        import subprocess, sys
        from pathlib import Path
        from benchmarks import units
        terms = [float(path.read_text()) for path in sorted(Path("problems").iterdir())]
        Path("docs/written.csv").write_text("1")
        Path("docs/page.md").read_text()
        Path("out/kept").read_text()
        subprocess.run([sys.executable, "-c", "import benchmarks.inner"], check=True)
        assert len(sys.argv[1]) == 12, "the commit"
        print(f"sum\\n\\nwhat   sum  unit\\nterms  {sum(terms):g}  {units.UNIT}")
        """,
    "benchmarks/units.py": "UNIT = 'm'\n",
    "benchmarks/inner.py": "",
    "benchmarks/fails.py": "raise SystemExit(3)\n",
    "benchmarks/other.py": "",
    "problems/a.toml": "1",
    "problems/b.toml": "2.5",
    "docs/page.md": '<!-- measured: {name = "adds"} -->\n<!-- end of measured -->\n',
    "docs/written.csv": "0",
    ".gitignore": "out/\n__pycache__/\n",
    "out/kept": "",
}
LIST = '[adds]\nrun = ["python -m benchmarks.adds $COMMIT"]\nminutes = 90\n'
FAILS = '[fails]\nrun = ["python -m benchmarks.fails"]\nminutes = 1\n'
LACKS = '[lacks]\nrun = ["python -m benchmarks.adds"]\nminutes = 1\nneeds = ["NO_SUCH", "nosuch"]\n'
RESTS_ON = [
    *("benchmarks/__init__.py", "benchmarks/adds.py", "benchmarks/inner.py", "benchmarks/units.py"),
    *("problems/", "problems/a.toml", "problems/b.toml"),
]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(r"^ {8}", "", text, flags=re.MULTILINE).lstrip())
    (tmp_path / "docs" / "measured").mkdir()
    (tmp_path / "list.toml").write_text(LIST)
    monkeypatch.setattr(store, "ROOT", tmp_path)
    monkeypatch.setattr(store, "FOLDER", tmp_path / "docs" / "measured")
    monkeypatch.setattr(store, "LIST", tmp_path / "list.toml")
    monkeypatch.setattr(command, "SAYS", f"print({json.dumps(json.dumps(MACHINE))})")
    monkeypatch.setattr(os, "getloadavg", lambda: (7.26, 0.0, 0.0))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


MACHINE = {
    "noisedesign": "0.0",
    "python": "3.99",
    "numpy": "9.9",
    "blas": "some BLAS",
    "threads": 1,
    "processor": "a processor",
    "cores": 3,
    "platform": "a system",
}


def git(folder: Path, *words: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, env=environment, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all", "--no-verify")


def page(folder: Path) -> str:
    return (folder / "docs" / "page.md").read_text()


def test_a_result_is_stored_shown_and_marked_once_its_code_is_another(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--marks"]) == 0
    assert "*Not measured yet, about 1.5 h of CPU:*\n`python -m benchmarks.adds $COMMIT`:" in page(
        checkout
    )
    assert command.main([]) == 0
    first = store.load("adds")
    assert first is not None
    assert list(first.rests_on or ()) == RESTS_ON
    assert first.printed == ("sum", "", "what   sum  unit", "terms  3.5  m")
    assert first.machine == {k: v for k, v in MACHINE.items() if k != "noisedesign"} | {"load": 7.3}
    assert "Sum.\n\n| what | sum | unit |\n| --- | --- | --- |\n| terms | 3.5 | m |\n" in page(
        checkout
    )
    told = f"{first.date}, commit {first.commit[:12]}, Python 3.99, NumPy 9.9, some BLAS, 1 BLAS"
    assert f"`python -m benchmarks.adds $COMMIT`:\n{told}" in page(checkout)
    assert "3 cores of a processor, a system, other load 7.3," in page(checkout).replace("\n", " ")

    # What it does not read, and words, change nothing; nothing is run again.
    (checkout / "benchmarks" / "other.py").write_text("x = 1\n")
    (checkout / "benchmarks" / "units.py").write_text("# Lengths.\nUNIT = 'm'\n")
    store.digest.cache_clear()
    (checkout / "benchmarks" / "adds.py").touch()
    assert command.main([]) == 0
    assert store.load("adds") == first
    assert pages.STALE not in page(checkout)

    for name, text in (
        ("benchmarks/units.py", "UNIT = 'km'\n"),
        ("benchmarks/inner.py", "x = 1\n"),  # in a process that the command starts
        ("problems/a.toml", "2"),
        ("problems/c.toml", "4"),  # which was not there
    ):
        path = checkout / name
        known = path.read_bytes() if path.exists() else None
        path.write_text(text)
        store.digest.cache_clear()
        (asked,) = store.measurements().values()
        assert changed(first, asked) == [name if known is not None else "problems/"]
        assert command.main(["--marks"]) == 0
        assert f"`:\n{pages.STALE}: {first.date}" in page(checkout)
        path.unlink() if known is None else path.write_bytes(known)
    capsys.readouterr()
    assert command.main(["--list"]) == 0
    store.digest.cache_clear()
    assert command.main(["--marks"]) == 0
    assert pages.STALE not in page(checkout)  # as it was

    # Sources without a commit are refused, and told where they are asked for.
    (checkout / "benchmarks" / "units.py").write_text("UNIT = 'km'\n")
    store.digest.cache_clear()
    assert command.main([]) == 1
    assert "differ from their commit" in capsys.readouterr().err
    assert store.load("adds") == first
    assert command.main(["--dirty"]) == 0
    assert ".dirty, Python" in page(checkout)
    assert "| terms | 3.5 | km |" in page(checkout)
    commit(checkout)
    (checkout / "list.toml").write_text(f"{LIST}{FAILS}{LACKS}")
    assert command.main(["adds", "fails", "lacks"]) == 1  # from compiled files, and the same
    second = store.load("adds")
    assert second is not None
    assert list(second.rests_on or ()) == RESTS_ON
    assert not second.commit.endswith(".dirty")
    assert store.load("fails") is None
    told_so = capsys.readouterr().err
    assert "2 of 2: fails, about 60 s of CPU" in told_so  # the other took less, the last time
    assert "fails has no new result: exit code 3" in told_so
    assert "lacks is left out: it needs NO_SUCH, nosuch" in told_so


def test_nothing_is_stored_of_sources_that_change_while_they_run(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["a" * 40, "b" * 40])
    monkeypatch.setattr(command, "state", lambda: next(states))
    with pytest.raises(command.FailedError, match="the sources changed while it ran"):
        command.measured(store.measurements()["adds"])


def test_other_commands_are_other_results() -> None:
    asked = Measurement(name="a", run=("python -m a",), minutes=1)
    result = Result(run=asked.run, date="2026-01-01", commit="0" * 40, machine={}, rests_on={})
    assert changed(result, asked) == []
    assert changed(result, replace(asked, run=("python -m a --more",))) == ["the commands"]
    assert changed(replace(result, rests_on=None), asked) == ["files that the run did not note"]


# --- tables ---------------------------------------------------------------------------------------


def test_printed_tables_are_read_cell_by_cell(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"graph": "ring of 6", "n": 6, "gap": None, "left out": "", "same": "yes"},
        {"graph": "a", "n": 1200, "gap": 0.5, "left out": "by choice", "same": "yes"},
    ]
    print_table(rows, list(rows[0]), title="two graphs")
    print_table(rows, ["graph", "n"], title="once more")
    printed = capsys.readouterr().out.replace("once", "\nonce").splitlines()
    first, second = pages.tables(printed)
    assert (first.title, first.shared) == ("two graphs", [("same", "yes")])
    assert first.rows == [
        ["graph", "n", "gap", "left out"],
        ["ring of 6", "6", "", ""],
        ["a", "1200", "0.5", "by choice"],
    ]
    assert second.rows == [["graph", "n"], ["ring of 6", "6"], ["a", "1200"]]
    assert pages.markdown(first, titled=True).startswith("Two graphs; same: yes.\n\n| graph | n |")


def test_tables_printed_in_markdown_keep_empty_cells_and_bars() -> None:
    (found,) = pages.tables(["| a | b | c |", "|---|---|---|", "| 1 | | |", "| | x \\| y | 2 |"])
    assert found.rows == [["a", "b", "c"], ["1", "", ""], ["", r"x \| y", "2"]]
    assert pages.markdown(found, titled=True).endswith("| 1 |  |  |\n|  | x \\| y | 2 |")


def test_a_table_that_nobody_printed_is_refused() -> None:
    asked = Measurement(name="a", run=("python -m a",), minutes=1)
    result = Result(
        run=asked.run, date="2026-01-01", commit="0" * 40, machine={}, rests_on={}, printed=("t",)
    )
    with pytest.raises(InputError, match=r"^table: expected a title that was printed, got x"):
        pages.region({"table": "x"}, asked, result)
    with pytest.raises(InputError, match=r"^measured: expected one of .*, got nothing"):
        pages.page_of('<!-- measured: {name = "nothing"} -->\n<!-- end of measured -->')
