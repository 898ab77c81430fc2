"""Answers of strangers: a table of runs in CSV, and the matrices that they found.

The table has a line a run: ``problem``, ``solver``, ``seconds`` and ``answer``, the name of a file
beside the table, empty where the run found nothing; and, if their author likes, ``objective`` and
``lower_bound``, which are compared with what is computed from the matrices, ``clock``, whose the
seconds are, and ``reason``, why there is no answer. Other columns are passed over. An answer is an
npy or csv file of R in space and of C in time, or an npz of arrays by the names of those of a
design file, which is one too; nothing is ever unpickled."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.regular_files import check_regular, read_regular
from noisedesign.files.archive import NPY, float64_array, unpack

FIELD = "results"

REQUIRED = ("problem", "solver", "seconds", "answer")
CLAIMED = ("objective", "lower_bound")
CLOCK, CLOCKS = "clock", ("cpu", "wall")  # CPU seconds are of all threads and processes
REASON = "reason"

MOST_BYTES, MOST_RUNS, MOST_LETTERS = 2**26, 100_000, 200  # of a table, in it, of a name
MOST_BYTES_OF_ANSWER = 2**31


@dataclass(frozen=True)
class Answer:
    """A file of arrays, and for a worker that does not see it what reading it here gave."""

    path: Path
    given: bytes | InputError | None = None

    def read(self) -> bytes:
        if isinstance(self.given, bytes):
            return self.given
        if self.given is not None:
            raise self.given
        field, kind = "answer", self.path.suffix.lower()
        _checks.one_of(kind, field=field, allowed=(".npz", ".npy", ".csv"))
        expected = f"a readable {kind} file"
        check_regular(self.path, field=field, expected=expected, times=2)
        if self.path.stat().st_size > MOST_BYTES_OF_ANSWER:
            got = f"{self.path.name}: more"
            raise InputError(field, expected=f"at most {MOST_BYTES_OF_ANSWER} bytes", got=got)
        return read_regular(self.path, field=field, expected=expected, times=2)

    def taken(self) -> Answer:
        """The same, with what is read or why it cannot be."""
        try:
            return Answer(self.path, self.read())
        except InputError as error:
            return Answer(self.path, error)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One line of a table; ``seconds`` is None only where there is no answer, and ``objective``
    (squared noise) and ``lower_bound`` are what its author claims, or None."""

    line: int
    problem: str
    solver: str
    clock: str
    seconds: float | None
    answer: Answer | None
    objective: float | None
    lower_bound: float | None
    reason: str = ""


def read_runs(path: str | Path) -> list[Run]:
    """Read the runs of a table; an InputError names ``results`` and the line at fault."""
    path = _checks.path(path, field=FIELD)
    expected = "a readable CSV file"
    check_regular(path, field=FIELD, expected=expected)
    if path.stat().st_size > MOST_BYTES:
        raise InputError(FIELD, expected=f"at most {MOST_BYTES} bytes", got=f"{path}: more")
    content = read_regular(path, field=FIELD, expected=expected)
    try:
        text = content.decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(FIELD, expected=expected, got=f"{path}: {error}") from error
    header, *body = lines or [[]]
    for name in (*REQUIRED, *CLAIMED, CLOCK, REASON):
        count = header.count(name)
        if count > 1 or (name in REQUIRED and not count):
            got = f"{path}: {'two' if count else 'none'} of that name"
            first = _checks.describe(",".join(header))
            remedy = f"Columns are parted by commas. The first line is {first}."
            raise InputError(FIELD, expected=f"a column {name}", got=got, remedy=remedy)
    found = []
    for line, cells in enumerate(body, start=2):
        if not cells:
            continue
        if len(cells) != len(header):
            got = f"{path}, line {line}: {len(cells)}"
            raise InputError(FIELD, expected=f"{len(header)} cells a line", got=got)
        found.append(_run(dict(zip(header, cells, strict=True)), line, path))
    if not 0 < len(found) <= MOST_RUNS:
        got = f"{path}: {len(found) or 'none'}"
        raise InputError(FIELD, expected=f"1 to {MOST_RUNS} runs", got=got)
    return found


def _run(row: Mapping[str, str], line: int, path: Path) -> Run:
    def refused(name: str, expected: str) -> InputError:
        got = f"{path}, line {line}: {name} = {_checks.describe(row[name])}"
        return InputError(FIELD, expected=expected, got=got)

    def number(name: str, *, low: float = -math.inf) -> float | None:
        if not row.get(name, "").strip():
            return None
        try:
            value = float(row[name])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= low):
            raise refused(name, "a finite number" + (" >= 0" if low == 0 else ""))
        return value

    for name in ("problem", "solver"):
        if not row[name].strip() or len(row[name]) > MOST_LETTERS:
            raise refused(name, f"a name of 1 to {MOST_LETTERS} letters")
    named, seconds = row["answer"].strip(), number("seconds", low=0)
    answer = None
    if named:
        answer = Path(named)
        if "\0" in named or answer.is_absolute() or ".." in answer.parts:
            raise refused("answer", "the name of a file beside the table, or in a folder there")
        if seconds is None:
            raise refused("seconds", "the seconds of every run that has an answer")
        answer = path.parent / answer
        if not answer.resolve().is_relative_to(path.parent.resolve()):
            raise refused("answer", "a file beside the table, and no link to one elsewhere")
    # In one line, as a terminal can show it.
    letters = (letter if letter.isprintable() else " " for letter in row.get(REASON, ""))
    clock = row.get(CLOCK, "").strip() or CLOCKS[-1]
    if clock not in CLOCKS:
        raise refused(CLOCK, f"one of {', '.join(CLOCKS)}, or nothing, which means {CLOCKS[-1]}")
    return Run(
        line=line,
        problem=row["problem"].strip(),
        solver=row["solver"].strip(),
        clock=clock,
        seconds=seconds,
        answer=None if answer is None else Answer(answer),
        objective=number("objective"),
        lower_bound=number("lower_bound"),
        reason=" ".join("".join(letters).split())[:400],
    )


def arrays_of_answer(answer: Answer, *, main: str, wanted: Sequence[str]) -> dict[str, Array]:
    """Read the ``wanted`` arrays of an .npz, or the ``main`` one of an .npy or .csv file."""
    content, field, kind = answer.read(), "answer", answer.path.suffix.lower()
    if kind == ".npy":
        return {main: float64_array(content, field=field)}
    if kind == ".csv":
        return {main: _matrix(content)}
    members = unpack(content, field=field)
    named = {name.removesuffix(NPY): content for name, content in members.items()}
    there = [name for name in wanted if name in named]
    return {name: float64_array(named[name], field=f"{field}.{name}") for name in there}


def _matrix(content: bytes) -> Array:
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        rows = [[*map(float, line)] for line in lines if line]
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError("answer", expected="a matrix in CSV", got=str(error)) from error
    if not rows or len({len(row) for row in rows}) != 1:
        raise InputError("answer", expected="a matrix in CSV", got="rows of several lengths")
    return np.asarray(rows, dtype=np.float64)
