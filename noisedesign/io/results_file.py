"""Tables that grow by a row at a time and are whole at every moment: CSV, or parquet.

A row that was put is on the disk when ``put`` returns. CSV is appended to, and what a crash left of
a last line is dropped when the file is opened again; parquet, which cannot be appended to, is
written anew, the whole file at once.
"""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisedesign._checks import InputError
from noisedesign.io import _parquet
from noisedesign.io._lock import alone_with, unwritable
from noisedesign.io.atomic import may_overwrite, write_text

Record = dict[str, Any]

SWEEP, COMPARISON = "sweep", "comparison"
"""What a table is one of."""

RESULTS_FORMAT = {SWEEP: 2, COMPARISON: 2}
"""Version of what the columns mean. Files of another version are refused, never mixed."""

KEY = "key"
"""The second column: what tells a row from all others."""

FIELD = "output"
ENCODING = "utf-8"

_OTHER = "Name another file, or begin this one anew with --force."


def format_column(kind: str) -> str:
    """The first column: the version, and what the table is one of."""
    return f"{kind}_format"


class ResultsFile(ABC):
    """A file of rows by key. ``rows`` is what it holds; those read from CSV are text.

    Args:
        columns: after the version and the key.
        kind: SWEEP or COMPARISON.

    Raises:
        InputError: naming ``output``: a folder, a file that cannot be written, other columns,
            another version, damaged.
    """

    def __init__(self, path: Path, columns: Sequence[str], kind: str) -> None:
        self.path, self.kind, self.format = path, kind, format_column(kind)
        self.columns = (self.format, KEY, *columns)
        self.rows: dict[str, Record] = {}
        try:
            if path.exists() and path.is_file() and path.stat().st_size:
                self._keep_what_is_there()
            else:
                self._write_all()
        except OSError as error:
            raise unwritable(path, error) from error

    def _keep_what_is_there(self) -> None:
        try:
            for row in self._read():
                self.rows[str(row[KEY])] = row
        except InputError:
            if not may_overwrite():
                raise
            self._write_all()
            return
        with self.path.open("ab"):
            pass  # that it cannot be written is found out now, not after the first row

    def put(self, record: Mapping[str, Any]) -> None:
        """Add a row with these ``columns``, in place of one with the same key.

        Raises:
            OSError: the disk is full, ...; the rows before are kept.
        """
        row = {column: _plain(record[column]) for column in self.columns}
        known = row[KEY] in self.rows
        self.rows[row[KEY]] = row
        if known:
            self._write_all()
        else:
            self._append(row)

    @abstractmethod
    def _read(self) -> list[Record]: ...

    @abstractmethod
    def _write_all(self) -> None: ...

    @abstractmethod
    def _append(self, row: Record) -> None: ...

    def _check_columns(self, found: Sequence[str]) -> None:
        if tuple(found) == self.columns:
            return
        missing = [column for column in self.columns if column not in found]
        others = [column for column in found if column not in self.columns]
        parts = ["others in another order"] * (not missing and not others)
        parts += [f"without {', '.join(missing)}"] * bool(missing)
        parts += [f"with {', '.join(others)}"] * bool(others)
        raise InputError(
            FIELD, expected=f"a table with the columns of this {self.kind}",
            got=f"{self.path}: {' and '.join(parts)}", remedy=_OTHER,
        )  # fmt: skip

    def _check_format(self, row: Mapping[str, Any]) -> None:
        version = RESULTS_FORMAT[self.kind]
        if str(row.get(self.format)) != str(version):
            raise InputError(
                FIELD, expected=f"a table of version {version} in column {self.format}",
                got=f"{self.path}: version {row.get(self.format)}", remedy=_OTHER,
            )  # fmt: skip


class CsvResults(ResultsFile):
    """One row a line, so that the end of a file says whether its last row is whole."""

    def _read(self) -> list[Record]:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        try:
            lines = list(csv.reader(io.StringIO(whole.decode(ENCODING), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise self._damaged(str(error)) from error
        header, *body = lines or [[]]
        if header[:1] == [self.format] and body:
            self._check_format(dict(zip(header, body[0], strict=False)))
        self._check_columns(header)
        rows = []
        for number, cells in enumerate(body, start=2):
            if len(cells) != len(self.columns):
                raise self._damaged(f"{len(cells)} cells in line {number}")
            rows.append(dict(zip(self.columns, cells, strict=True)))
            self._check_format(rows[-1])
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        return rows

    def _damaged(self, what: str) -> InputError:
        return InputError(
            FIELD, expected=f"lines of {len(self.columns)} cells", got=f"{self.path}: {what}",
            remedy=_OTHER,
        )  # fmt: skip

    def _write_all(self) -> None:
        lines = [_line(self.columns), *(_line(row.values()) for row in self.rows.values())]
        write_text(self.path, "".join(lines))

    def _append(self, row: Record) -> None:
        with self.path.open("ab") as file:
            file.write(_line(row.values()).encode(ENCODING))
            file.flush()
            os.fsync(file.fileno())


def _line(cells: Any) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue()


class ParquetResults(ResultsFile):
    """Columns with types; a parameter whose values have several is text."""

    def _read(self) -> list[Record]:
        columns, rows = _parquet.read(self.path)
        if self.format in columns and rows:
            self._check_format(rows[0])
        self._check_columns(columns)
        for row in rows:
            self._check_format(row)
        return rows

    def _write_all(self) -> None:
        _parquet.write(list(self.rows.values()), path=self.path, columns=self.columns)

    def _append(self, row: Record) -> None:
        self._write_all()


def _plain(value: Any) -> Any:
    """A cell: a number, a boolean, text of one line, or nothing."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return float(value) if isinstance(value, float) else value  # no NumPy scalars


FORMATS: dict[str, Callable[[Path, Sequence[str], str], ResultsFile]] = {
    ".csv": CsvResults, ".parquet": ParquetResults
}  # fmt: skip


@contextmanager
def open_results(
    path: str | Path, *, columns: Sequence[str], kind: str = SWEEP
) -> Iterator[ResultsFile]:
    """The table at ``path``, made where there is none; nobody else has it open meanwhile.

    Raises:
        InputError: naming ``output``: as :class:`ResultsFile`; a name with another ending; another
            process has it open.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InputError(
            FIELD, expected=f"a name that ends in {' or '.join(FORMATS)}", got=str(path)
        )
    with alone_with(path):
        yield FORMATS[path.suffix](path, columns, kind)
