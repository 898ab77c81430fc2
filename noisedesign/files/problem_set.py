"""Problem files by names, folders and patterns, and those that are shipped."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.base.shown import Listing, ShownInline
from noisedesign.files.account_file import AccountFile
from noisedesign.files.graph_tables import GraphOfKind
from noisedesign.files.problem_file import (
    ENDLESS,
    PROBLEM_FILE,
    AnyProblemFile,
    UnboundedFile,
    endless,
)
from noisedesign.files.schema import Table
from noisedesign.files.tables import AnyParticipationTable
from noisedesign.files.toml import (
    LOCAL,
    located,
    lookup,
    parsed,
    read_text,
    shipped_files,
    shipped_folder,
)

FIELD = "problem"

OTHER_KINDS = {  # kinds of other files, by the key that they have and problem files have not
    "algorithm": "account",
    "grid": "sweep",
    "experiment": "experiment",
    "mechanisms": "training",
}


@dataclass(frozen=True, repr=False)
class ShippedProblem(ShownInline):
    """A file that comes with the package.

    Attributes:
        name: by which it is found from anywhere.
        design: "space", "time" or "space-time"; "account" or "sweep" of a file of another kind.
        nodes: of its graph, or None where it has none.
        steps: that its participation speaks of, or None.
        description: what it is, in words.
        tags: words to find it by.
        path: of the file.
    """

    name: str
    design: str
    nodes: int | None
    steps: int | None
    description: str
    tags: tuple[str, ...]
    path: Path

    def _title(self) -> str:
        return self.name

    def _facts(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("design", "nodes", "steps", "description")}

    def matches(self, words: Iterable[str]) -> bool:
        """Whether name, kind of design, description and tags have all of ``words`` in them.

        Raises:
            InputError: no list of words.
        """
        listed = _checks.listed(words, field="words", expected="a list of words")
        wanted = [_checks.text(word, field="words").lower() for word in listed]
        text = " ".join([self.name, self.design, self.description, *self.tags]).lower()
        return all(word in text for word in wanted)


class _Sized(Table):
    """The size of a training file; the laboratory reads the rest."""

    graph: GraphOfKind | None = None
    participation: AnyParticipationTable | None = None


def shipped_problems() -> Listing[ShippedProblem]:
    """Problem files and those of other kinds that come with the package, in alphabetical order.

    Nothing is solved or downloaded, and no matrix is built.

    Returns:
        Of every file its ``name``, which is found from anywhere, its kind and its size.

    Examples:
        >>> import noisedesign as nd
        >>> [found.name for found in nd.shipped_problems() if found.matches(["prefix", "512"])]
        ['prefix/prefix-512']
    """
    return Listing(_listed(name, path) for name, path in shipped_files().items())


def kind_of(tables: Mapping[str, Any]) -> str:
    """The kind of a file of these tables, of :data:`OTHER_KINDS`; nothing of a problem."""
    return next((kind for key, kind in OTHER_KINDS.items() if key in tables), "")


def _listed(name: str, path: Path) -> ShippedProblem:
    tables = parsed(read_text(path, field=FIELD), field=FIELD)
    kind = kind_of(tables)
    nodes, steps = None, None
    with located(path):
        if kind not in ("sweep", "experiment"):
            file = _read(kind, tables)
            if not (file.participation is None or isinstance(file, UnboundedFile)):
                steps = file.participation.scheme().horizon
            nodes = None if file.graph is None else file.graph.count(path.parent)
    design = kind or tables["design"]
    description, tags = tables.get("description", ""), tuple(tables.get("tags", ()))
    return ShippedProblem(name, design, nodes, steps, description, tags, path)


def _read(
    kind: str, tables: dict[str, Any]
) -> AnyProblemFile | AccountFile | UnboundedFile | _Sized:
    match kind:
        case "account":
            return AccountFile.model_validate(tables)
        case "training":
            return _Sized(graph=tables.get("graph"), participation=tables.get("participation"))
    if endless(tables):
        return ENDLESS.validate_python(tables)
    return PROBLEM_FILE.validate_python(tables)


def problem_files(names: Iterable[str | Path]) -> tuple[list[Path], list[Path]]:
    """The problem files that are meant, each once, and the files passed over."""
    found: dict[Path, None] = {}
    for name in names:
        path = lookup(name)
        if path.is_dir():
            files = sorted(path.rglob("*.toml"))
        elif not path.exists() and glob.has_magic(str(name)):
            files = _matching(str(name))
        else:
            files = [path]
        if not files:
            raise InputError(FIELD, expected="a TOML file of that name", got=f"none: {name}")
        found |= dict.fromkeys(files)
    passed_over = [
        path
        for path in found
        if not (tables := parsed(read_text(path, field=FIELD), field=FIELD))
        .keys()
        .isdisjoint(OTHER_KINDS)
        or endless(tables)
    ]
    meant = [path for path in found if path not in passed_over]
    if not meant:
        expected = "at least one problem file"
        raise InputError(FIELD, expected=expected, got=f"{len(passed_over)} files of other kinds")
    return meant, passed_over


def _matching(pattern: str) -> list[Path]:
    """Files of the working directory or, where it has none, of its problems or the shipped."""
    for folder in (Path(), LOCAL, shipped_folder()):
        hits = (folder / hit for hit in glob.glob(pattern, root_dir=folder, recursive=True))
        if files := sorted(path for path in hits if path.is_file()):
            return files
    return []
