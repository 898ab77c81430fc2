"""The graph in parts: a folder with one Parquet file of edges a part, and what each part checks.

::

    parts.json              {"format": "noisedesign-parts", "version": 1, "ends": [0, 700, 1500],
                             "weights": "given"}; where parts begin, and n
    edges-00000.parquet     columns source, target and, of weights that are given, weight: every
                            edge in the part of either end, by numbers of nodes; parts are ranges
    nodes-00000.parquet     may be left out: a row a node, with columns name (an integer) and budget

Any program may write such a folder. Without "given" weights are those of Metropolis and Hastings;
what a row leaves of 1 is the weight that a node gives itself. ``sha256`` may name digests of files,
and ``privacy`` a target."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import made_folder, overwriting, write_atomically, write_text
from noisedesign.base.checks import InputError
from noisedesign.base.extras import need
from noisedesign.distributed.mail import Array
from noisedesign.distributed.rows import Rows
from noisedesign.distributed.world import World
from noisedesign.privacy.target import PrivacyTarget

FORMAT = {"format": "noisedesign-parts", "version": 1}
MANIFEST = "parts.json"
GIVEN, METROPOLIS = "given", "metropolis-hastings"
FIELD = "parts"
MOST_NODES = 1 << 53  # numbers of nodes that float64 tells apart, as which parts compare edges
ROOM = 1e-12
"""The excess over 1 that weights of a row may have for their rounding."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A graph in parts, as ``parts.json`` says. ``ends`` are where parts begin, and n."""

    path: Path
    ends: Array
    weights: str = METROPOLIS
    sha256: Mapping[str, str] = field(default_factory=dict)
    privacy: PrivacyTarget | None = None

    @property
    def parts(self) -> int:
        return len(self.ends) - 1

    @property
    def nodes(self) -> int:
        return int(self.ends[-1])

    def edges_file(self, index: int) -> Path:
        return self.path / f"edges-{index:05d}.parquet"

    def nodes_file(self, index: int) -> Path:
        return self.path / f"nodes-{index:05d}.parquet"

    def written(self) -> str:
        """The text of ``parts.json``."""
        stated: dict[str, Any] = dict(FORMAT)
        stated |= {"ends": self.ends.tolist(), "weights": self.weights, "sha256": dict(self.sha256)}
        if self.privacy is not None:
            stated["privacy"] = asdict(self.privacy)
        return json.dumps(stated, indent=2)


def folder_at(path: str | Path) -> Folder:
    """Read ``parts.json``, and none of the parts; an InputError names what is wrong."""
    need("pyarrow", field=FIELD)
    path = _checks.path(path, field=FIELD)
    try:
        stated = json.loads((path / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        expected, got = f"a folder with a {MANIFEST}", f"{path}: {error}"
        remedy = "`noisedesign parts store` writes one."
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy) from error
    keys = {*FORMAT, "ends", "weights", "sha256", "privacy"}
    if not isinstance(stated, dict) or any(stated.get(k) != v for k, v in FORMAT.items()):
        raise _flaw(MANIFEST, f"format {FORMAT['format']}, version {FORMAT['version']}", "others")
    if unknown := set(stated) - keys:
        raise _flaw(MANIFEST, f"no keys but {sorted(keys)}", f"{sorted(unknown)}")
    ends: Any = stated.get("ends")
    whole = isinstance(ends, list) and all(type(end) is int for end in ends)
    if not whole or len(ends) < 2 or ends[0] != 0 or (np.diff(ends) <= 0).any():
        raise _flaw(f"{MANIFEST} ends", "increasing integers, of which the first is 0", f"{ends}")
    if ends[-1] > MOST_NODES:
        raise _flaw(f"{MANIFEST} ends", f"at most {MOST_NODES} nodes", f"{ends[-1]}")
    weights = _checks.one_of(
        stated.get("weights", METROPOLIS), field=f"{FIELD}.weights", allowed=(METROPOLIS, GIVEN)
    )
    privacy, digests = stated.get("privacy"), stated.get("sha256", {})
    if not isinstance(digests, dict):
        raise _flaw(f"{MANIFEST} sha256", "digests by names of files", f"{digests}")
    try:
        target = None if privacy is None else PrivacyTarget(**privacy)
    except TypeError as error:
        raise _flaw(f"{MANIFEST} privacy", "the fields of a privacy target", f"{error}") from error
    return Folder(path=path, ends=np.array(ends), weights=weights, sha256=digests, privacy=target)


def _flaw(place: str, expected: str, got: str, remedy: str = "") -> InputError:
    return InputError(f"{FIELD}, {place}", expected=expected, got=got, remedy=remedy)


# --- writing --------------------------------------------------------------------------------------


def store_graph(
    mixing: Any, path: str | Path, *, labels: Array, budget: Array, privacy: PrivacyTarget | None
) -> Folder:
    """Write a symmetric sparse W, (n, n), whose node i goes to part ``labels[i]``; budgets (n,)."""
    need("pyarrow", field=FIELD)
    folder = made_folder(path)
    if any(folder.iterdir()) and not (folder / MANIFEST).exists():
        expected = f"an empty folder, or one with a {MANIFEST}"
        raise InputError(FIELD, expected=expected, got=f"{folder}, with other files")
    (folder / MANIFEST).unlink(missing_ok=True)  # what is there is none until it is whole
    order = np.argsort(labels, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    ends = np.concatenate([[0], np.cumsum(np.bincount(labels))])
    found = Folder(path=folder, ends=ends, weights=GIVEN, privacy=privacy)
    digests = {}
    for k in range(found.parts):
        own = order[ends[k] : ends[k + 1]]
        rows = mixing[own].tocoo()
        source, target = rows.coords[0] + ends[k], number[rows.coords[1]]
        apart = source != target
        links = {"source": source, "target": target, "weight": rows.data}
        columns = {name: column[apart] for name, column in links.items()}
        tables: dict[Path, dict[str, Array]] = {
            found.edges_file(k): columns,
            found.nodes_file(k): {"name": own, "budget": budget[own]},
        }
        for file, table in tables.items():
            write_table(file, table)
            digests[file.name] = digest_of(file)
    for stale in folder.iterdir():
        if re.fullmatch(r"(edges|nodes)-\d{5}\.parquet", stale.name) and stale.name not in digests:
            stale.unlink()
    found = Folder(path=folder, ends=ends, weights=GIVEN, sha256=digests, privacy=privacy)
    write_text(folder / MANIFEST, found.written())
    return found


def write_table(path: Path, columns: Mapping[str, Array]) -> None:
    """Write a Parquet file whole, or not at all."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(columns))
    with overwriting():
        write_atomically(path, lambda file: pyarrow.parquet.write_table(table, file))


def read_table(path: Path, columns: Mapping[str, type], *, field: str) -> dict[str, Array]:
    """Columns of a Parquet file by the kind of their numbers, all finite; else an InputError."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, columns=list(columns))
        found = {name: table[name].to_numpy() for name in columns}
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        expected = f"a Parquet file with columns {', '.join(columns)}"
        raise InputError(field, expected=expected, got=f"{path}: {error}") from error
    for name, kind in columns.items():
        if not np.issubdtype(found[name].dtype, kind) or not np.isfinite(found[name]).all():
            expected = "integers" if kind is np.integer else "finite float64 numbers"
            got = f"{found[name].dtype} in {path.name}, or no numbers"
            raise InputError(f"{field}.{name}", expected=expected, got=got)
    return found


def columns_of(path: Path) -> list[str]:
    """Names of the columns of a Parquet file; none of what is no such file."""
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (OSError, pyarrow.ArrowException):
        return []


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- reading a part -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """The share of a part in a problem: its rows of W, budgets (n,) and names of its nodes, and the
    sha256 of all parts' files, which tells problems apart."""

    rows: Rows
    budget: Array
    names: Array
    problem: str


def read_part(folder: Folder, world: World) -> Part:
    """Read the files of a part, and check them together with the others: an InputError at the part
    where something is wrong."""
    k, first, end = world.index, world.first, world.end
    files = [folder.edges_file(k)]
    budget, names = np.ones(end - first), np.arange(first, end)
    if folder.nodes_file(k).exists() or folder.nodes_file(k).name in folder.sha256:
        files.append(folder.nodes_file(k))
    digests = [_checked_digest(file, folder) for file in files]
    if len(files) > 1:
        kinds: dict[str, type] = {"name": np.integer, "budget": np.float64}
        table = read_table(files[1], kinds, field=FIELD)
        if len(table["name"]) != end - first:
            raise _flaw(files[1].name, f"{end - first} rows", f"{len(table['name'])}")
        budget, names = table["budget"], table["name"]
        _checks.positive_vector(budget, field=f"{FIELD}.budget", length=end - first)
    _check_names(files[-1].name, names, world)
    given = folder.weights == GIVEN
    wanted: dict[str, type] = {"source": np.integer, "target": np.integer}
    if not given and "weight" in columns_of(files[0]):
        remedy = f'Say "weights": "{GIVEN}" in {MANIFEST}, or leave that column out.'
        raise _flaw(files[0].name, "no column weight", "weights that nothing asks for", remedy)
    edges = read_table(files[0], wanted | ({"weight": np.float64} if given else {}), field=FIELD)
    source, target = (edges[name].astype(np.int64) for name in ("source", "target"))
    weight = edges["weight"] if given else np.ones(len(source))
    source, target, weight = _sorted(source, target, weight)
    _check_own(files[0].name, source, target, weight, world)
    _check_mirrored(files[0].name, source, target, weight, world)
    _check_connected(files[0].name, source, target, world)
    if not given:
        weight = _metropolis(source, target, weight, world)
    left = 1 - np.bincount(source - first, weights=weight, minlength=end - first)
    if (left < -ROOM).any():
        node = first + int(np.argmin(left))
        raise _flaw(files[0].name, "weights of a row of at most 1", f"{1 - left.min():g}, {node}")
    own = np.arange(first, end)
    source, target = np.concatenate([source, own]), np.concatenate([target, own])
    rows = Rows(world, source, target, np.concatenate([weight, np.maximum(left, 0.0)]))
    every = world.each(np.frombuffer("".join(digests).encode(), dtype=np.uint8))
    stated = f"{folder.ends.tolist()} {folder.weights} {folder.privacy}".encode()
    problem = hashlib.sha256(stated + b"".join(part.tobytes() for part in every)).hexdigest()
    return Part(rows, budget, names, problem)


def _checked_digest(file: Path, folder: Folder) -> str:
    try:
        found = digest_of(file)
    except OSError as error:
        raise _flaw(file.name, "a file that can be read", str(error)) from error
    stated = folder.sha256.get(file.name)
    if stated is not None and stated != found:
        remedy = "It was damaged or replaced since: store the graph again."
        raise _flaw(file.name, f"the file that {MANIFEST} names", "another", remedy)
    return found


def _sorted(source: Array, target: Array, weight: Array) -> tuple[Array, Array, Array]:
    order = np.lexsort((target, source))
    return source[order], target[order], weight[order]


def _check_own(file: str, source: Array, target: Array, weight: Array, world: World) -> None:
    """Refuse what a part sees without the others."""
    n, places = int(world.ends[-1]), f"{world.first} to {world.end - 1}"

    def refuse(wrong: Array, expected: str, remedy: str = "") -> None:
        if wrong.any():
            at = int(np.argmax(wrong))
            got = f"the edge {source[at]} - {target[at]}, weight {weight[at]:g}"
            raise _flaw(file, expected, got, remedy)

    refuse((source < world.first) | (source >= world.end), f"sources of this part, {places}")
    refuse((target < 0) | (target >= n), f"nodes from 0 to {n - 1}")
    self_loop = "What a row leaves of 1 is the weight that a node gives itself."
    refuse(source == target, "edges between two nodes", self_loop)
    again = np.append(False, (np.diff(source) == 0) & (np.diff(target) == 0))
    refuse(again, "every edge once in the part of either end")
    refuse(~(weight > 0), "positive weights")
    alone = np.bincount(source - world.first, minlength=world.end - world.first) == 0
    if alone.any():
        node = world.first + int(np.argmax(alone))
        remedy = "Leave nodes without a neighbour out: they would share no model."
        raise _flaw(file, "an edge of every node", f"none of node {node}", remedy)


def _check_mirrored(file: str, source: Array, target: Array, weight: Array, world: World) -> None:
    """Whether the other end of every edge has it too, of the same weight."""
    owner = np.searchsorted(world.ends, target, side="right") - 1
    counts = world.each(np.bincount(owner, minlength=world.parts))
    tag = world.tag("edges")
    for k in range(world.parts):
        if k == world.index or not counts[world.index][k]:
            continue
        to = owner == k
        mirrored = _sorted(target[to], source[to], weight[to])
        world.mail.send(k, tag, np.stack([column.astype(np.float64) for column in mirrored]))
    for k in range(world.parts):
        to = owner == k
        mine = np.stack([column[to].astype(np.float64) for column in (source, target, weight)])
        if k == world.index:
            theirs = np.stack([x.astype(float) for x in _sorted(mine[1], mine[0], mine[2])])
        elif counts[k][world.index]:
            theirs = world.mail.take(k, tag)
        else:
            theirs = np.zeros((3, 0))
        if mine.shape == theirs.shape and np.array_equal(mine, theirs):
            continue
        here, there = ({(int(u), int(v), w) for u, v, w in each.T} for each in (mine, theirs))
        u, v, w = min(here ^ there)
        missing = f"in part {k}" if (u, v, w) in here else f"in part {world.index}"
        got = f"the edge {u} - {v} of weight {w:g}, which is not {missing}"
        raise _flaw(file, "every edge, of the same weight, in the parts of both its ends", got)


def _check_names(file: str, names: Array, world: World) -> None:
    """Whether every name is that of one node: those of equal rest go to the same part."""
    names = names.astype(np.int64)
    own, tag = names % world.parts, world.tag("names")
    for k in range(world.parts):
        if k != world.index:
            world.mail.send(k, tag, names[own == k])
    mine = [
        names[own == k] if k == world.index else world.mail.take(k, tag) for k in range(world.parts)
    ]
    known, count = np.unique(np.concatenate(mine), return_counts=True)
    if (count > 1).any():
        got = f"the name {known[count > 1][0]} {count[count > 1][0]} times"
        raise _flaw(file, "names of which all parts have each once", got)


def _check_connected(file: str, source: Array, target: Array, world: World) -> None:
    """Whether all nodes are reached from the first: the least number that each is connected to."""
    first, n = world.first, world.end - world.first
    rows = Rows(world, source, target, np.ones(len(source)))
    _, label = connected_components(rows.inner, directed=False)
    where = rows.outer.tocoo()
    least = np.full(label.max(initial=0) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, label, np.arange(first, first + n))
    while True:
        seen = rows.seen(least[label], "connected")
        following = least.copy()
        np.minimum.at(following, label[where.coords[0]], seen[where.coords[1]])
        changed = world.total(int((following != least).sum()))
        least = following
        if not changed:
            break
    if world.largest(least.astype(np.float64)) > 0:
        apart = -int(world.largest(np.where(least > 0, -least, -np.inf)))
        remedy = "Design each component by itself, or add the missing links."
        raise _flaw(file, "a connected graph", f"node {apart} cannot reach node 0", remedy)


def _metropolis(source: Array, target: Array, weight: Array, world: World) -> Array:
    """1 / (1 + the larger degree of both ends)."""
    first, n = world.first, world.end - world.first
    rows = Rows(world, source, target, weight)
    degree = np.bincount(source - first, minlength=n).astype(np.float64)
    seen = rows.seen(degree, "degrees")
    inside = (target >= first) & (target < first + n)
    other = np.empty(len(target))
    other[inside] = degree[target[inside] - first]
    other[~inside] = seen[np.searchsorted(rows.halo_nodes, target[~inside])]
    return np.asarray(1 / (1 + np.maximum(degree[source - first], other)))
