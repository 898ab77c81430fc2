"""A design in parts: a folder with a manifest and one Parquet file a part, which its part verifies.

::

    design.json                 what is claimed, polynomials, digests of the problem and of files
    noise-00000-1a2b3c4d.parquet  a row a node of part 0: name, weight v, scale D, multiplier

The name of a file has the beginning of its digest, so that a new design lies beside the old one
until ``design.json`` is put in its place."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import overwriting, write_bytes, write_text
from noisedesign.base.checks import InputError
from noisedesign.distributed.graph import Part, digest_of, read_table
from noisedesign.distributed.mail import Array
from noisedesign.forms import PolynomialCovariance

FORMAT = {"format": "noisedesign-design-in-parts", "version": 1}
MANIFEST = "design.json"
FIELD = "design"
COLUMNS: dict[str, type] = {
    "name": np.integer,
    "weight": np.float64,
    "scale": np.float64,
    "multiplier": np.float64,
}
CLAIMS = (
    *("objective", "lower_bound", "sensitivity_squared"),
    *("relative_to_ldp", "confidence", "uncertainty"),
)
"""Numbers that a design claims, beside ``gap``, the one asked for, and ``noise_stddev``."""
KEYS = {*FORMAT, "problem", "status", "gap", "claims", "noise_stddev", "privacy", "noise", "files"}
STATISTICAL, INACCURATE = "statistical", "inaccurate"
FILE = re.compile(r"noise-(\d{5})-[0-9a-f]{8}\.parquet")
MOST_DEGREE = 16
"""The largest degree of a precision that is verified: beyond it all nodes are neighbours."""


def few(noise: PolynomialCovariance) -> dict[str, Any]:
    """Return what all parts know of noise."""
    return {
        "precision": noise.precision.tolist(),
        "noise": noise.noise.tolist(),
        "bound": noise.bound,
    }


def write_part(folder: Path, part: Part, noise: PolynomialCovariance, weights: Array) -> list[str]:
    """Write the file of a part; its name, and its sha256."""
    import hashlib

    import pyarrow
    import pyarrow.parquet

    columns = (part.names, noise.weights, noise.scale, weights)
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(COLUMNS, columns, strict=True))), content)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    name = f"noise-{part.rows.world.index:05d}-{digest[:8]}.parquet"
    with overwriting():
        write_bytes(folder / name, content.getvalue())
    return [name, digest]


def write_manifest(folder: Path, stated: Mapping[str, Any]) -> None:
    """Put a design in the place of the one that the folder held."""
    with overwriting():
        write_text(folder / MANIFEST, json.dumps(FORMAT | dict(stated), indent=2))
    named = {name for name, _ in stated["files"]}
    for stale in folder.iterdir():
        if FILE.fullmatch(stale.name) and stale.name not in named:
            stale.unlink()


def status_of(objective: float, lower_bound: float, gap: float) -> str:
    """Tell whether the gap asked for is reached."""
    return STATISTICAL if objective <= (1 + gap) * lower_bound else INACCURATE


def manifest_at(path: str | Path) -> dict[str, Any]:
    """Read ``design.json``; an InputError where it is none."""
    path = _checks.path(path, field=FIELD)
    try:
        stated = json.loads((path / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        expected, got = f"a folder with a {MANIFEST}", f"{path}: {error}"
        remedy = (
            "`noisedesign parts solve` writes one; an .npz is verified by `noisedesign verify`."
        )
        raise InputError(FIELD, expected=expected, got=got, remedy=remedy) from error
    if not isinstance(stated, dict) or any(stated.get(k) != v for k, v in FORMAT.items()):
        expected = f"format {FORMAT['format']}, version {FORMAT['version']}"
        raise InputError(FIELD, expected=expected, got=f"others, in {path / MANIFEST}")
    if unknown := set(stated) - KEYS:
        raise _flaw(f"no keys but {sorted(KEYS)}", f"{sorted(unknown)}")
    noise, files = stated.get("noise"), stated.get("files")
    if not isinstance(noise, dict) or not isinstance(files, list):
        raise _flaw("noise and files of every part", f"{noise}, {files}")
    for name in ("precision", "noise"):
        if not _numbers(noise.get(name)):
            raise _flaw(f"coefficients of {name}", f"{noise.get(name)}")
    if len(noise["precision"]) > MOST_DEGREE + 1 or len(noise["noise"]) > 1000:
        raise _flaw(
            f"a precision of degree {MOST_DEGREE} at most", f"{len(noise['precision']) - 1}"
        )
    if not _numbers([noise.get("bound")]) or noise["bound"] <= 0:
        raise _flaw("a positive bound on eigenvalues", f"{noise.get('bound')}")
    claims = stated.get("claims")
    told = [*claims.values()] if isinstance(claims, dict) and claims.keys() == {*CLAIMS} else []
    if not told or not _numbers([*told, stated.get("gap"), stated.get("noise_stddev")]):
        raise _flaw(f"numbers gap, noise_stddev and claims {', '.join(CLAIMS)}", f"{claims}")
    return stated


def _flaw(expected: str, got: str) -> InputError:
    return InputError(f"{FIELD}.{MANIFEST}", expected=expected, got=got)


def _numbers(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) > 0
        and all(type(x) in (float, int) and abs(x) <= sys.float_info.max for x in values)
    )


def read_part(folder: Path, part: Part) -> tuple[PolynomialCovariance, Array]:
    """Read what a part has of a design, and its multipliers; an InputError where it is damaged, or
    is that of another graph."""
    stated = manifest_at(folder)
    k, nodes = part.rows.world.index, len(part.budget)
    if stated.get("problem") != part.problem:
        remedy = "Name the folder of the graph that it was made for."
        got = "one of other edges, weights, budgets or parts"
        raise InputError(FIELD, expected="a design of this graph", got=got, remedy=remedy)
    files = stated["files"]
    own = files[k] if len(files) == part.rows.world.parts else None
    name, digest = own if isinstance(own, list) and len(own) == 2 else ("", "")
    known = FILE.fullmatch(str(name))
    if known is None or int(known[1]) != k:
        raise _flaw(f"a file and its digest of each of {part.rows.world.parts} parts", f"{files}")
    try:
        found = digest_of(folder / name)
    except OSError as error:
        raise InputError(FIELD, expected=f"the file {name}", got=str(error)) from error
    if found != digest:
        expected, remedy = f"{name} as {MANIFEST} names it", "It was damaged: solve again."
        raise InputError(FIELD, expected=expected, got="another", remedy=remedy)
    columns = read_table(folder / name, COLUMNS, field=FIELD)
    positive = all((columns[key] > 0).all() for key in ("weight", "scale", "multiplier"))
    if len(columns["name"]) != nodes or not positive or (columns["name"] != part.names).any():
        expected = f"positive numbers of the {nodes} nodes of part {k}, in their order"
        raise InputError(FIELD, expected=expected, got=f"others, in {name}")
    noise = stated["noise"]
    made = PolynomialCovariance(
        mixing=part.rows,
        weights=columns["weight"],
        bound=float(noise["bound"]),
        precision=np.array(noise["precision"], dtype=np.float64),
        noise=np.array(noise["noise"], dtype=np.float64),
        scale=columns["scale"],
    )
    return made, columns["multiplier"]
