"""The kind of a file that this package wrote, told by its content and not by its name.

A file is replaced by one of its own kind and by no other, so a mistyped output destroys nothing."""

from __future__ import annotations

import csv
import itertools
import json
import zipfile
from contextlib import suppress
from pathlib import Path

DESIGN, CHECKPOINT, PICTURE = "a design file", "a checkpoint", "a picture"
SWEEP_TABLE, COMPARISON_TABLE = "a table of a sweep", "a table of a comparison"
EXPERIMENT_TABLE, FINDINGS = "a table of an experiment", "findings of an experiment"
VERDICTS, COLLECTION = "a table of verdicts", "the list of a collection"
FINDINGS_MARK = "<!-- Written by noisedesign: findings of an experiment. -->"  # their first line
PROGRAM, NODE_PLAN, PAGE = "a conic program", "a node's file", "a report of a design"
LEDGER = "noisedesign-ledger"  # the ``format`` of a ledger in JSON
MATLAB_5 = b"MATLAB 5.0 MAT-file"  # the first bytes of a MATLAB 5 file
MADE_BY = "noisedesign"  # the creator that pictures in vector formats, and pages, name
_HEAD = 65536  # bytes at the beginning of a file, or at its end, that say what it is
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": PICTURE,
    b"\x93NUMPY": "a NumPy array",
    b"PAR1": "a parquet table",
    MATLAB_5: "a MATLAB file",
    b"Task/INFO\0": PROGRAM,
    b'{"$schema":"http://mosek.com/': PROGRAM,
    b"# Written by noisedesign: ": "a program or configuration of a trainer",
    FINDINGS_MARK.encode(): FINDINGS,
}

_MEMBERS = {"manifest.json": DESIGN, "checkpoint.json": CHECKPOINT, "plan.json": NODE_PLAN}
"""The kind of a zip archive by a member; others are told by the names of all."""

_TABLES = {  # the kind of a CSV file by its first column
    "sweep_format": SWEEP_TABLE,
    "comparison_format": COMPARISON_TABLE,
    "experiment_format": EXPERIMENT_TABLE,
    "verdict_format": VERDICTS,
    "collection_format": COLLECTION,
}

_FACTS = {"name", "design", "nodes", "objective", "lower_bound", "problem"}  # of a design
_UNREADABLE = (OSError, ValueError, RecursionError, MemoryError, NotImplementedError, csv.Error,
               zipfile.BadZipFile)  # fmt: skip
"""Errors that readers raise on files that are not theirs."""


def kind_of(path: Path) -> str | None:
    """Name the kind of the file at ``path``; None for everything that no command writes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    for beginning, kind in _BEGINNINGS.items():
        if head.startswith(beginning):
            return kind
    for told in (_marked, _archive, _safetensors, _json, _program, _table):
        try:
            found = told(path, head)
        except _UNREADABLE:
            continue
        if found is not None:
            return found
    return None


def _marked(path: Path, head: bytes) -> str | None:
    """A picture (PDF, whose facts are at its end, or SVG) or page, where this package made it."""
    if head.startswith(b"%PDF-"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _HEAD))
            return PICTURE if f"/Creator ({MADE_BY})".encode() in file.read() else None
    if head.startswith(b"<?xml"):
        return PICTURE if f"<dc:title>{MADE_BY}</dc:title>".encode() in head else None
    made_by = f'<meta name="generator" content="{MADE_BY}">'.encode()
    return PAGE if head.startswith(b"<!DOCTYPE html>") and made_by in head else None


def _archive(path: Path, head: bytes) -> str | None:
    if not head.startswith(b"PK"):
        return None
    with zipfile.ZipFile(path) as archive:
        names = sorted(archive.namelist())
    by_member = (kind for name, kind in _MEMBERS.items() if name in names)
    return next(by_member, f"an archive of {', '.join(names)}")


def _safetensors(path: Path, head: bytes) -> str | None:
    length = int.from_bytes(head[:8], "little")
    is_one = head[8:10] == b'{"' and 8 + length <= path.stat().st_size
    return "a safetensors file" if is_one else None


def _json(path: Path, head: bytes) -> str | None:
    if not head.startswith(b"{"):
        return None
    entries = json.loads(path.read_bytes())
    if entries.get("format") == LEDGER:
        return "a ledger"
    if not set(entries) >= _FACTS:
        return None
    return "seeds in JSON" if "held_by" in entries else "a description of a design in JSON"


def _program(path: Path, head: bytes) -> str | None:
    """The Conic Benchmark Format, SDPA's sparse format, or MOSEK's text, below their comments."""
    lines = head.decode("utf-8", errors="ignore").splitlines() or [""]
    if lines[0].startswith("Task ") and any("Written by MOSEK" in line for line in lines):
        return PROGRAM
    said = [line.strip() for line in lines if line.strip() and line[0] not in '#*"']
    is_cbf = said[:1] == ["VER"]
    is_sdpa = head[:1] in (b"*", b'"') and len(said) > 1 and all(s.isdigit() for s in said[:2])
    return PROGRAM if is_cbf or is_sdpa else None


def _table(path: Path, head: bytes) -> str | None:
    """Recognise CSV by its first column, as a matrix no taller than wide, or by columns."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, strict=True)
        first = next(lines, [])
        if first[:1] and first[0] in _TABLES:
            return _TABLES[first[0]]
        n = len(first)
        rows = [first, *itertools.islice(lines, n + 1)]
    with suppress(ValueError):
        if n and len(rows) <= n + 1 and all(len([*map(float, r)]) == n for r in rows[-n:]):
            return "a matrix of numbers in CSV"
    return f"a table of {', '.join(first)}" if n > 1 else None
