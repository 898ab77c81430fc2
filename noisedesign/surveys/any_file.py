"""Any file of the toolkit, told by its content."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.files.design_file import load_design
from noisedesign.files.problem_file import FIELD, load_problem
from noisedesign.files.problem_set import kind_of
from noisedesign.files.toml import lookup, opened, parsed

DESIGN, EXPORTED = ".npz", (".json", ".npy", ".csv", ".mat", ".safetensors")
ZIP, PICKLE = b"PK\x03\x04", b"\x80"  # how a design, and what is taken for one, begins


def load(path: str | Path, *, mixing: Array | None = None) -> Any:
    """Read a file: a design, a problem, an account, a sweep, or exported noise.

    Which it is, its content says: designs are archives, and the tables of a TOML file say what it
    asks; ``problems/README.md`` describes their keys. Nothing is ever unpickled.

    Args:
        path: a file, or the name of a shipped one, ``"whisper/florentine"``, with ``.toml`` or
            without. What the working directory or its folder ``problems`` has comes first.
        mixing: of a problem file: the W to take where ``graph.weights`` asks for the fastest, if
            it is as fast, or for the one of least noise, if it is on the links and within the rate.

    Returns:
        Of a design its ``design``, what its file claims of it (``manifest``) and every array, in a
        ``StoredDesign``, ``StoredStreamingDesign`` or ``StoredUnboundedDesign``; of a problem a
        ``LoadedProblem``, which has its ``problem`` and text; of an account an ``AccountRequest``,
        whose ``run()`` is :func:`noisedesign.account`; the ``Sweep`` of a sweep, for
        :func:`noisedesign.sweep`; ``Exported`` of noise in the format of another program.

    Raises:
        InputError: no such file; a design that is truncated, changed, of a later version, or whose
            arrays are not finite, or of a wrong dtype, shape or sha256; a file that is not TOML, or
            the dotted key at fault in it; ``mixing`` for a file that is no problem.

    Examples:
        >>> import noisedesign as nd
        >>> loaded = nd.load("whisper/florentine")
        >>> loaded.problem.axes, loaded.problem.mixing.shape, loaded.problem.nodes[0]
        ('space', (15, 15), 'Acciaiuoli')
        >>> len(nd.load("accounts/ring-decor-secldp").run())  # of ten nodes, two look
        8
        >>> nd.load("sweeps/random-graphs").keys
        ('graph.nodes', 'graph.seed')

        A file of a design that was changed is not read.

        >>> design = nd.solve(nd.TimeProblem.prefix(participation=nd.participation.single(2)))
        >>> path = nd.save(design, "prefix.npz")
        >>> _ = path.write_bytes(path.read_bytes().replace(b"lower_bound", b"upper_bound"))
        >>> nd.load(path)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        noisedesign.base.checks.InputError: design file: expected ...
    """
    found = lookup(path)
    head = _head(found)
    if head.startswith((ZIP, PICKLE)) or found.suffix == DESIGN:
        reader = load_design
    elif found.suffix in EXPORTED:
        reader = import_module("noisedesign.files.exports").read
    else:
        with opened(path, field=FIELD) as (_, text):
            reader = _reader_of(kind_of(parsed(text, field=FIELD)))
    if reader is load_problem:
        return load_problem(path, mixing=mixing)
    if mixing is not None:
        expected = "None for a file that is no problem"
        raise InputError("mixing", expected=expected, got=_checks.describe(mixing))
    return reader(path)


def _reader_of(kind: str) -> Any:
    """The reader of a TOML file of that kind; of problems where it is not known."""
    if kind == "account":
        return import_module("noisedesign.tasks.account.request").load_account
    if kind == "sweep":
        return import_module("noisedesign.surveys.sweep_file").load_sweep
    return load_problem


def _head(path: Path) -> bytes:
    """The first bytes of a regular file; none of what is no file."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP))
    except OSError:
        return b""
