"""The public collection: shipped problems, a hash of the data of each, and what is certified.

``problems/collection.csv`` has a line a problem. The hash is of the data that define it and of no
number that was computed: links of the graph, the tables of its file without the words that are for
people, and the bytes of the files that they name. It is the same on every processor, and another
where a library builds another graph."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.sparse import coo_array

from noisedesign.base.atomic import write_text
from noisedesign.base.checks import InputError
from noisedesign.base.shown import ShownInline
from noisedesign.families.family import family_of
from noisedesign.files.problem_file import LoadedProblem
from noisedesign.files.toml import parsed, read_text, shipped_folder
from noisedesign.surveys.sweep_file import FOR_PEOPLE, named_files

MANIFEST = "collection.csv"
FORMAT, VERSION = "collection_format", 1
FIELD = "collection"

OPTIMUM = "optimum"  # is in the interval
BEST_FOUND = "best-found"  # is its upper end, above a bound on all designs


@dataclass(frozen=True, kw_only=True, repr=False)
class Instance(ShownInline):
    """One line of the collection: the problem in the file ``name``, nodes times steps, and bounds.

    No design has an objective (squared noise) below ``lower``, and some design has none above
    ``upper``; ``holds`` is OPTIMUM or BEST_FOUND."""

    name: str
    problem: str
    family: str
    design: str
    size: int
    sha256: str
    lower: float
    upper: float
    holds: str
    method: str

    def _title(self) -> str:
        return self.name

    def _facts(self) -> dict[str, object]:
        return {"lower": self.lower, "upper": self.upper, "holds": self.holds}

    @property
    def width(self) -> float:
        return self.upper / self.lower - 1


COLUMNS = tuple(Instance.__dataclass_fields__)


def collection(path: str | Path | None = None) -> dict[str, Instance]:
    """The lines of a manifest, by default of the shipped one, by the names of their files."""
    path = shipped_folder() / MANIFEST if path is None else Path(path)
    rows = csv.DictReader(io.StringIO(read_text(path, field=FIELD), newline=""))
    found = {}
    for number, row in enumerate(rows, start=2):
        try:
            values: dict[str, Any] = {name: row[name] for name in COLUMNS}
            values |= {name: float(row[name]) for name in ("lower", "upper")}
            one = Instance(**values | {"size": int(row["size"])})
            sound = 0 < one.lower <= one.upper < math.inf and one.holds in (OPTIMUM, BEST_FOUND)
            if row[FORMAT] != str(VERSION) or not sound:
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            expected = f"a line of {', '.join(COLUMNS)}"
            raise InputError(FIELD, expected=expected, got=f"{path}, line {number}") from error
        found[one.name] = one
    return found


def write_collection(instances: Iterable[Instance], path: str | Path | None = None) -> Path:
    """Write a manifest, sorted by name, numbers with all their digits."""
    path = shipped_folder() / MANIFEST if path is None else Path(path)
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((FORMAT, *COLUMNS))
    for instance in sorted(instances, key=lambda one: one.name):
        rows.writerow((VERSION, *(getattr(instance, column) for column in COLUMNS)))
    return write_text(path, text.getvalue())


def described(name: str, loaded: LoadedProblem, **proved: Any) -> Instance:
    """The line of a problem; ``proved`` are lower, upper, holds and method."""
    problem = loaded.problem
    steps = 1 if problem.axes == "space" else problem.participation.horizon
    nodes = 1 if problem.axes == "time" else int(problem.mixing.shape[0])
    return Instance(
        name=name,
        problem=problem.name,
        family=family_of(problem).name,
        design=problem.axes,
        size=nodes * steps,
        sha256=data_sha256(loaded),
        **proved,
    )


def data_sha256(loaded: LoadedProblem) -> str:
    """The sha256 of what a problem is made of: its tables, the files they name, and the links."""
    # A JSON text with sorted keys is hashed; links are (i, j), i < j where they go both ways.
    if loaded.path is None:
        raise InputError("problem", expected="one that was read from a file", got="a text")
    problem = loaded.problem
    steps = [problem.mixing] if problem.schedule is None else problem.schedule
    tables = parsed(loaded.text, field="problem")
    data = {key: value for key, value in tables.items() if key not in ("name", *FOR_PEOPLE)}
    said = {
        "tables": data,
        "files": {
            name: hashlib.sha256((loaded.path.parent / name).read_bytes()).hexdigest()
            for name in sorted(set(named_files(data)))
        },
        "links": [list(_links(mixing)) for mixing in steps if mixing is not None],
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _links(mixing: Any) -> Iterator[str]:
    """The number of nodes, and the links of W, an array or a sparse one."""
    linked = coo_array(mixing)
    apart = (linked.row != linked.col) & (linked.data != 0)
    links = {*zip(linked.row[apart].tolist(), linked.col[apart].tolist(), strict=True)}
    if all((j, i) in links for i, j in links):
        links = {(i, j) for i, j in links if i < j}
    yield str(linked.shape[0])
    for i, j in sorted(links):
        yield f"{i}-{j}"
