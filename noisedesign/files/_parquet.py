"""Rows as a parquet file and back, by pyarrow, which is imported when it is needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noisedesign.base.atomic import write_bytes
from noisedesign.base.checks import InputError

FIELD = "output"
NUMBERS = (int, float)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            FIELD,
            expected="a .csv file where pyarrow is not installed",
            got="a .parquet file",
            remedy="pip install 'noisedesign[parquet]'",
        ) from error
    return pyarrow


def read(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the columns, and the rows.

    Raises:
        InputError: naming ``output``: no parquet file, damaged, pyarrow is not installed.
        OSError: the file cannot be read.
    """
    arrow = _pyarrow()
    content = path.read_bytes()
    try:
        table = arrow.parquet.read_table(io.BytesIO(content))
        return table.column_names, table.to_pylist()
    except (arrow.ArrowException, OSError, ValueError) as error:  # ValueError: text that is none
        raise InputError(FIELD, expected="a parquet file", got=f"{path}: {error}") from error


def write(rows: Sequence[dict[str, Any]], *, path: Path, columns: Sequence[str]) -> None:
    """Write the whole file, or none of it.

    Raises:
        InputError: naming ``output``: a folder, pyarrow is not installed.
        OSError: the disk is full, ...
    """
    arrow = _pyarrow()
    content = io.BytesIO()
    table = arrow.table({column: _of_one_type([row[column] for row in rows]) for column in columns})
    arrow.parquet.write_table(table, content)
    write_bytes(path, content.getvalue())


def _of_one_type(values: list[Any]) -> list[Any]:
    """The values, or all as text where they are not all numbers, all booleans or all text."""
    kinds = {_kind(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return values
    return [None if value is None else str(value) for value in values]


def _kind(value: Any) -> str:
    is_number = isinstance(value, NUMBERS) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__
