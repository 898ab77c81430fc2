"""Tables that grow by a row at a time and are whole at every moment: CSV, or parquet.

A row that was put is on the disk when ``put`` returns. CSV is appended to, and what a crash left of
a last line is dropped when the file is opened again; parquet is written anew, the whole file.

One process at a time has a table: the operating system lets go of its lock however a process ends.
The lock is on an empty file beside the table, for a table is replaced now and then."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.alone import alone_with
from noisedesign.base.atomic import may_overwrite, target_of, write_bytes, write_text
from noisedesign.base.checks import InputError, describe

Record = dict[str, Any]

SWEEP, COMPARISON, EXPERIMENT, TRAINING = "sweep", "comparison", "experiment", "training"

RESULTS_FORMAT = {SWEEP: 6, COMPARISON: 5, EXPERIMENT: 1, TRAINING: 2}
"""Version of what the columns mean. Files of another version are refused, never mixed."""

KEY = "key"  # the second column: what tells a row from all others
FIELD = "output"


def format_column(kind: str) -> str:
    """The first column: the version, and what the table is one of."""
    return f"{kind}_format"


class ResultsFile:
    """A CSV file of rows by key, a row a line, with ``columns`` after the version and the key.

    An InputError names ``output``: no file to write, other columns, another version, or damage."""

    grows = True  # whether rows are appended to the file

    def __init__(
        self, path: Path, columns: Sequence[str], kind: str, types: Mapping[str, type]
    ) -> None:
        self.path, self.kind, self.format = path, kind, format_column(kind)
        self.types = {self.format: int, **types}
        self.columns = (self.format, KEY, *columns)
        self.rows: dict[str, Record] = {}
        try:
            if path.exists() and path.is_file() and path.stat().st_size:
                self._keep_what_is_there()
            else:
                self._write_all()
        except OSError as error:
            raise _unwritable(path, error) from error

    def _keep_what_is_there(self) -> None:
        try:
            for number, row in enumerate(self._read(), start=1):
                self._keep(row, number)
        except InputError:
            if not may_overwrite():
                raise
            self.rows.clear()
            self._write_all()
        self.path.open("ab").close()  # that it cannot be written is found out before the first row

    def _keep(self, row: Record, number: int) -> None:
        key, where = str(row[KEY]), f"row {number}"
        if key in self.rows:
            raise self._damaged(f"key {key} again in {where}", expected="every key once")
        for column in filter(row.__contains__, self.types):
            row[column] = self._cell(row[column], self.types[column], f"{column} in {where}")
        for column in ("objective", "lower_bound", "gap") if row.get("solved") is True else ():
            if column in row and not (row[column] is not None and math.isfinite(row[column])):
                got = f"{column} {row[column]} in {where}"
                raise self._damaged(got, expected="finite numbers once solved")
        self.rows[key] = row

    def _cell(self, cell: Any, wanted: type, where: str) -> Any:
        if cell in (None, ""):
            return None
        words = {bool: "True or False", int: "an integer", float: "a number"}
        try:
            if isinstance(cell, str):
                return {"True": True, "False": False}[cell] if wanted is bool else wanted(cell)
            if isinstance(cell, bool) == (wanted is bool) and wanted(cell) == cell:
                return cell
        except (KeyError, ValueError, TypeError):
            pass
        raise self._damaged(f"{describe(cell)} for {where}", expected=words[wanted])

    def _damaged(self, what: str, *, expected: str) -> InputError:
        remedy = "Name another file, or begin this one anew with --force."
        return InputError(FIELD, expected=expected, got=f"{self.path}: {what}", remedy=remedy)

    def put_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add rows with these ``columns``, in place of those with the same keys, at once."""
        rows = [{column: _plain(record[column]) for column in self.columns} for record in records]
        known = any(row[KEY] in self.rows for row in rows)
        self.rows |= {row[KEY]: row for row in rows}
        if known or not self.grows:
            self._write_all()
        else:
            with self.path.open("ab") as file:
                file.write(_lines(*(row.values() for row in rows)).encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())

    def _check_columns(self, found: Sequence[str]) -> None:
        if tuple(found) == self.columns:
            return
        parts = {
            "without": [column for column in self.columns if column not in found],
            "with": [column for column in found if column not in self.columns],
        }
        told = [f"{word} {', '.join(columns)}" for word, columns in parts.items() if columns]
        expected = f"a table with the columns of this {self.kind}"
        raise self._damaged(" and ".join(told) or "others in another order", expected=expected)

    def _check_format(self, row: Mapping[str, Any]) -> None:
        version = RESULTS_FORMAT[self.kind]
        if str(row.get(self.format)) != str(version):
            expected = f"a table of version {version} in column {self.format}"
            raise self._damaged(f"version {row.get(self.format)}", expected=expected)

    def _read(self) -> list[Record]:
        content, lines_of = self.path.read_bytes(), f"lines of {len(self.columns)} cells"
        whole = content[: content.rfind(b"\n") + 1]
        try:
            lines = list(csv.reader(io.StringIO(whole.decode("utf-8"), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise self._damaged(str(error), expected=lines_of) from error
        header, *body = lines or [[]]
        if header[:1] == [self.format] and body:
            self._check_format(dict(zip(header, body[0], strict=False)))
        self._check_columns(header)
        rows = []
        for number, cells in enumerate(body, start=2):
            if len(cells) != len(self.columns):
                raise self._damaged(f"{len(cells)} cells in line {number}", expected=lines_of)
            rows.append(dict(zip(self.columns, cells, strict=True)))
            self._check_format(rows[-1])
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        return rows

    def _write_all(self) -> None:
        rows = (row.values() for row in self.rows.values())
        write_text(self.path, _lines(self.columns, *rows))


def _lines(*rows: Iterable[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


class ParquetResults(ResultsFile):
    """Columns with types, by pyarrow; a parameter whose values have several is text."""

    grows = False

    def _read(self) -> list[Record]:
        arrow, content = _pyarrow(), self.path.read_bytes()
        try:
            table = arrow.parquet.read_table(io.BytesIO(content))
            columns, rows = table.column_names, list(table.to_pylist())
        except (arrow.ArrowException, OSError, ValueError) as error:  # the last: text that is none
            got = f"{self.path}: {error}"
            raise InputError(FIELD, expected="a parquet file", got=got) from error
        for row in rows if self.format in columns else ():
            self._check_format(row)
        self._check_columns(columns)
        return rows

    def _write_all(self) -> None:
        arrow, content = _pyarrow(), io.BytesIO()
        rows = self.rows.values()
        columns = {column: _of_one_type([row[column] for row in rows]) for column in self.columns}
        arrow.parquet.write_table(arrow.table(columns), content)
        write_bytes(self.path, content.getvalue())


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        expected = "a .csv file where pyarrow is not installed"
        remedy = "pip install 'noisedesign[parquet]'"
        raise InputError(FIELD, expected=expected, got="a .parquet file", remedy=remedy) from error
    return pyarrow


def _of_one_type(values: list[Any]) -> list[Any]:
    kinds = {float if type(v) is int else type(v) for v in values if v is not None}
    return values if len(kinds) <= 1 else [None if v is None else str(v) for v in values]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return float(value) if isinstance(value, float) else value  # no NumPy scalars


FORMATS: dict[str, type[ResultsFile]] = {".csv": ResultsFile, ".parquet": ParquetResults}


@contextmanager
def open_results(
    path: str | Path,
    *,
    columns: Sequence[str],
    kind: str = SWEEP,
    types: Mapping[str, type] | None = None,
) -> Iterator[ResultsFile]:
    """The table at ``path``, made where there is none; nobody else has it open meanwhile."""
    path = _checks.path(path, field=FIELD)
    if path.suffix not in FORMATS:
        expected = f"a name that ends in {' or '.join(FORMATS)}"
        raise InputError(FIELD, expected=expected, got=str(path))
    with ExitStack() as held:
        try:
            held.enter_context(alone_with(target_of(path), field=FIELD, what="table"))
        except OSError as error:
            raise _unwritable(path, error) from error
        yield FORMATS[path.suffix](path, columns, kind, types or {})


def _unwritable(path: Path, error: OSError) -> InputError:
    got = f"{path}: {error.strerror or error}"
    return InputError(FIELD, expected="a file that can be written", got=got)
