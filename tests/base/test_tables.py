"""What is printed for people: nothing cut, nothing twice, nothing that depends on who looks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base import tables
from tests.support import ROOT
from tests.support.command_line import MODULE, RING, call, environment, write

ROWS = [
    {
        "name": "one",
        "kind": "ring",
        "objective": 9.2123456e-7,
        "gap": None,
        "n": 3,
        "ok": True,
        "why": "it would not",
    },
    {"name": "two", "kind": "ring", "objective": 4.5, "gap": None, "n": 12, "ok": False, "why": ""},
]
COLUMNS = ["name", "kind", "objective", "gap", "n", "ok", "why"]

WIDE = """\
kind  ring

name  objective   n  ok   why
one    9.21e-07   3  yes  [1]
two         4.5  12  no

[1]  it would not
"""


class Terminal:
    """What a terminal of so many columns is sent by ``print_table``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capsys = monkeypatch, capsys

    def __call__(self, *args: Any, columns: int | None, **kwargs: Any) -> str:
        with self.patch.context() as patch:
            if columns is not None:
                patch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
                patch.setenv("COLUMNS", str(columns))
                patch.setenv("TERM", "dumb")  # no bold face
            tables.print_table(*args, **kwargs)
        return self.capsys.readouterr().out


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def test_what_is_shared_is_above_and_what_is_long_below(shown: Terminal) -> None:
    assert shown(ROWS, COLUMNS, notes=["why"], columns=None) == WIDE
    assert shown(ROWS, COLUMNS, notes=["why"], columns=80) == WIDE
    titled = shown(ROWS, COLUMNS, notes=["why"], title="rings", columns=None)
    assert titled == "rings\n\n" + WIDE
    kept = shown(ROWS, COLUMNS, notes=["why"], keep=["kind"], columns=None)
    assert kept.splitlines()[0] == "name  kind  objective   n  ok   why"


def test_one_row_is_lines_of_name_and_value(shown: Terminal) -> None:
    text = shown(ROWS[:1], COLUMNS, notes=["why"], columns=None)
    assert text == (
        "name       one\nkind       ring\nobjective  9.21e-07\nn          3\nok         yes\n"
        "why        it would not\n"
    )


def test_rows_that_are_all_alike_are_still_counted(shown: Terminal) -> None:
    assert shown([{"a": 1}, {"a": 1}], ["a"], columns=None) == "a\n1\n1\n"
    assert shown([], ["a", "b"], columns=None) == "a  b\n"


def test_equal_values_of_other_cells_are_not_shared(shown: Terminal) -> None:
    rows = [{"a": False, "b": 1}, {"a": 0.0, "b": True}]
    assert shown(rows, ["a", "b"], columns=None) == " a    b\nno    1\n 0  yes\n"


def test_values_that_only_look_equal_are_not_shared(shown: Terminal) -> None:
    rows = [{"by": "one", "a": 1.5}, {"by": "two", "a": 1.5 + 1e-9}]
    assert shown(rows, ["by", "a"], columns=None) == "by     a\none  1.5\ntwo  1.5\n"


def test_words_are_wrapped_before_rows_are_taken_apart(shown: Terminal) -> None:
    rows = [{"name": "one", "takes": "space and time"}, {"name": "two", "takes": "all of it"}]
    assert shown(rows, ["name", "takes"], columns=15) == (
        "name  takes\none   space and\n      time\ntwo   all of it\n"
    )
    assert shown(rows, ["name", "takes"], columns=10) == (
        "name   one\ntakes  spa\n       ce\n       and\n       tim\n       e\n\n"
        "name   two\ntakes  all\n       of\n       it\n"
    )


def test_sentences_and_words_beside_numbers(shown: Terminal) -> None:
    """A word in the place of a number stands where numbers do; a sentence does not."""
    rows = [{"mu": 1.25, "claimed": 1.5}, {"mu": "infinite", "claimed": "by W and b"}]
    assert shown(rows, ["mu", "claimed"], columns=None) == (
        "      mu  claimed\n    1.25  1.5\ninfinite  by W and b\n"
    )


CELLS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.none(),
    st.text(st.sampled_from("abcé漢 [red]:key:"), max_size=30),
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=5), st.integers(40, 120)
)
def test_nothing_is_lost_at_any_width(rows: list[tuple[Any, ...]], columns: int) -> None:
    """Every cell is there whole, or its words are in their order; no line is too wide."""
    names = ["first", "second_one", "third", "note"]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lines.append)
        for watched in (False, True):
            lines.clear()
            if watched:
                patch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
                patch.setenv("COLUMNS", str(columns))
                patch.setenv("TERM", "dumb")
            tables.print_table(records, names, notes=["note"])
            text = "\n".join(lines)
            assert all(line == line.rstrip() for line in lines)
            if watched:
                assert max(map(tables._length, lines), default=0) <= columns
            for row in rows:
                for cell in row:
                    for word in tables._cell(cell).split():
                        assert word in text, (word, text)


def on_a_terminal(*arguments: str, columns: int, cwd: Path) -> str:
    """What a command sends to a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*MODULE, *arguments],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment(COLUMNS=str(columns), TERM="dumb"),
    )
    os.close(theirs)
    received = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            received += chunk
    except OSError:
        pass  # how Linux says that the other end is closed
    finally:
        os.close(ours)
    assert child.wait() == 0
    return received.decode().replace("\r\n", "\n")


COMMANDS = [
    ("solve", "examples/time-with-privacy.toml"),
    ("baselines", "whisper/florentine.toml"),
    pytest.param(("baselines", "mafalda/florentine-20x16-mh.toml"), marks=pytest.mark.slow),
    pytest.param(
        (
            "compare",
            "whisper/florentine.toml",
            "whisper/ring-20.toml",
            "space-structures/florentine-decor.toml",
            "--backends",
            "native,scs",
        ),
        marks=pytest.mark.slow,
    ),
    ("backends",),
    ("account", "accounts/florentine-pndp.toml"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_commands_at_terminals_and_piped(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are whole everywhere, and no line is wider than a terminal."""
    monkeypatch.chdir(ROOT)
    if arguments[0] == "compare":  # rows of the table are not solved again
        arguments += ("-o", str(tmp_path / "table.csv"))
    piped = call(*arguments)
    assert piped.code == 0, piped.err
    assert all(line == line.rstrip() for line in piped.out.splitlines())
    numbers = {
        value if isinstance(value, str) else tables._cell(value)
        for value in told(call(*arguments, "--json").json())
    }
    assert numbers
    assert all(number in piped.out for number in numbers)
    for columns in (60, 80, 200):
        text = call(*arguments, columns=columns).out
        assert max(map(len, text.splitlines())) <= columns
        assert all(number in text for number in numbers)


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals here")
@pytest.mark.slow
def test_a_real_terminal(tmp_path: Path) -> None:
    text = on_a_terminal("baselines", str(write(tmp_path, RING)), columns=60, cwd=tmp_path)
    assert "ring-5" in text
    assert "1.66667" in text
    assert 50 < max(map(len, text.splitlines())) <= 60


def told(value: Any) -> set[float | str]:
    """What the clock and rounding have no part in, wherever it is in a JSON value."""
    if isinstance(value, list):
        return set().union(*map(told, value))
    if not isinstance(value, dict):
        return set()
    own = {item for key, item in value.items() if key in ("objective", "mu", "version") and item}
    return own.union(*map(told, value.values()))


def test_piped_output_knows_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, RING)
    outputs = set()
    for columns, term in (("20", "xterm-256color"), ("300", "dumb")):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("TERM", term)
        outputs.add(call("baselines", path).out)
    (text,) = outputs
    assert "\x1b" not in text


def test_names_steer_no_terminal(shown: Terminal) -> None:
    """By hand: escape, the control of eight bits, and what turns the direction of writing."""
    record = {"no\u202ede": "A\x1b[31m\x9bn\u202en"}
    text = shown([record], ["no\u202ede"], columns=80)
    assert r"A\x1b[31m\x9bn\u202en" in text
    assert not set("\x1b\x9b\u202e") & set(text)
