"""Files that are damaged, hostile or no files at all: one clear error, no hang, no traceback.

Every command that reads such a file says which it is and what is wrong, with exit code 2.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files import exports
from noisedesign.files.archive import npy_bytes, pack
from noisedesign.files.checkpoint_file import CheckpointFile
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.exports import jax_privacy, seeds
from noisedesign.tasks.verify import verify
from tests.support.command_line import MODULE, RING, Outcome, call, environment, write
from tests.support.family_cases import CASES
from tests.support.small_designs import (
    capped_design,
    falsify,
    space_design,
    time_design,
    write_sealed,
)

SECONDS = 60
"""After which a command counts as hanging: each takes about one."""

MEMORY = 4 * 2**30
"""Bytes of address space a command may take."""

NESTED = 100_000


def bounded(*arguments: object, cwd: Path) -> Outcome:
    """A command in a process of its own, which is killed where it hangs or grows."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run(
        [*MODULE, *map(str, arguments)],
        cwd=cwd,
        env=environment(OPENBLAS_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def assert_refused(outcome: Outcome) -> None:
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("noisedesign: error: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err


# --- what is no file -----------------------------------------------------------------------------


def special(folder: Path) -> dict[str, Path]:
    """Things under names of files: read, they never end, never begin, or are not to be read."""
    found = {name: folder / name for name in ("pipe.npz", "folder.npz", "loop.npz", "none.npz")}
    os.mkfifo(found["pipe.npz"])
    found["folder.npz"].mkdir()
    found["loop.npz"].symlink_to(found["loop.npz"])
    return found | {"/dev/zero": Path("/dev/zero"), "/dev/full": Path("/dev/full")}


SPECIAL = ("pipe.npz", "folder.npz", "loop.npz", "none.npz", "/dev/zero", "/dev/full")


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_no_design(name: str, tmp_path: Path) -> None:
    path = special(tmp_path)[name]
    with pytest.raises(InputError, match="design file: expected a readable design file"):
        load_design(path)
    for read in (jax_privacy.read, lambda path, steps: seeds.read_plan(path)):
        with pytest.raises(InputError, match="expected a file of this exporter"):
            read(path, steps=1)
    if name != "none.npz":  # where there is no checkpoint yet, one is begun
        with pytest.raises(InputError, match="checkpoint: expected a"):
            CheckpointFile(path).load(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("verify", "pipe.npz"),
        ("account", "/dev/zero"),
        *(
            pytest.param(command, name, marks=pytest.mark.slow)
            for command, name in (
                ("verify", "/dev/zero"),
                ("account", "pipe.npz"),
                *itertools.product(("simulate", "plot"), ("pipe.npz", "/dev/zero")),
            )
        ),
    ],
)
def test_commands_neither_hang_nor_grow(name: str, command: str, tmp_path: Path) -> None:
    path = special(tmp_path)[name]
    options = ("-o", "picture.png") if command == "plot" else ()
    assert_refused(bounded(command, path, *options, cwd=tmp_path))


def test_a_checkpoint_that_never_ends(tmp_path: Path) -> None:
    problem, pipe = write(tmp_path, RING), special(tmp_path)["pipe.npz"]
    outcome = bounded("solve", problem, "--checkpoint", pipe, cwd=tmp_path)
    assert_refused(outcome)
    assert "checkpoint: expected a" in outcome.err


# --- deep and large ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * NESTED, "[" * NESTED + "]" * NESTED, '{"a":' * NESTED])
def test_a_hundred_thousand_brackets(text: str, tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text(text)
    with pytest.raises(InputError, match="seeds file: expected a file of this exporter"):
        seeds.read_plan(deep)
    with pytest.raises(InputError, match="export: expected a file of `noisedesign export`"):
        exports.read(deep)
    problem = write(tmp_path, RING + '\n[structure]\nspace = "clusters"\nclusters = "deep.json"\n')
    outcome = call("solve", problem)
    assert_refused(outcome)
    assert "structure.clusters: expected a JSON list" in outcome.err
    state = tmp_path / "state.npz"
    state.write_bytes(pack({"checkpoint.json": text.encode(), "multipliers.npy": b""}))
    outcome = call("solve", write(tmp_path, RING), "--checkpoint", state)
    assert_refused(outcome)
    assert "checkpoint: expected a checkpoint" in outcome.err
    design = tmp_path / "d.npz"
    save_design(space_design(), design)
    comment = zipfile.ZipFile(design).comment
    write_sealed(design, {"manifest.json": text.encode()}, comment=comment)
    assert_refused(call("verify", design))
    # And where such a file stands where another is to go, it stays.
    assert call("solve", write(tmp_path, RING), "-o", deep).code == 2
    assert deep.read_text() == text


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    stream = io.BytesIO()
    entries = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, entries)
    return stream.getvalue()


HUGE = {
    "many rows": header((10**12, 3)),
    "overflow": header((2**32, 2**32)),
    "one axis": header((10**18,)),
    "negative": header((-1, 8)),
    "thousand axes": header((1,) * 1000),
    "object": header((3, 3), "|O"),
    "text": header((3, 3), "<U100000000"),
    "no header": b"\x93NUMPY",
    "long header": b"\x93NUMPY\x01\x00\xff\xff",
    "later version": b"\x93NUMPY\x03\x00\xff\xff\xff\xff",
}


@pytest.mark.parametrize("content", HUGE.values(), ids=HUGE)
def test_shapes_that_are_not_there(content: bytes, tmp_path: Path) -> None:
    design = tmp_path / "d.npz"
    save_design(space_design(), design)
    with zipfile.ZipFile(design) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    write_sealed(design, members | {"covariance.npy": content}, comment=comment)
    with pytest.raises(InputError, match=r"design file\.covariance"):
        load_design(design)
    exported = tmp_path / "jax.npz"
    numbers = {"stddev.npy": npy_bytes(np.float64(1.0)), "horizon.npy": npy_bytes(np.int64(3))}
    exported.write_bytes(pack({"noising_matrix.npy": content, **numbers}))
    with pytest.raises(InputError, match="jax-privacy file"):
        jax_privacy.read(exported, steps=1)
    matrix = tmp_path / "W.npy"
    matrix.write_bytes(content)
    text = RING.replace('kind = "ring"\nnodes = 5', 'kind = "matrix"\nfile = "W.npy"')
    assert_refused(call("solve", write(tmp_path, text)))


def test_archives_that_unpack_to_more_than_they_are(tmp_path: Path) -> None:
    """Compressed members, and entries that overlap."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("noising_matrix.npy", "stddev.npy", "horizon.npy", "covariance.npy"):
            archive.writestr(name, b"\0" * 10_000_000)
    with pytest.raises(InputError, match="uncompressed"):
        jax_privacy.read(path, steps=1)
    assert_refused(call("verify", path))
    with pytest.raises(InputError, match="checkpoint"):
        CheckpointFile(path).load(None)  # type: ignore[arg-type]


def test_a_singular_strategy_makes_no_noise(tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    falsify(path, lambda _, arrays: arrays["strategy"].__setitem__((1, 1), 0.0))
    assert call("verify", path).code == 1
    for command in (("simulate", path), ("export", path, "--to", "npy", "-o", tmp_path / "C.npy")):
        outcome = call(*command)
        assert_refused(outcome)
        assert "strategy: expected an invertible C" in outcome.err


@pytest.mark.parametrize("axes", ["space", "time"])
def test_axes_that_its_arrays_do_not_have(axes: str, tmp_path: Path) -> None:
    design = solve(CASES["all of space and time"].problem).design
    assert design is not None
    path = save_design(design, tmp_path / "d.npz")
    falsify(path, lambda manifest, _: manifest.update(design=axes))
    assert_refused(call("verify", path))


# --- damage, everywhere --------------------------------------------------------------------------


def damages(content: bytes, *, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    for cut in rng.integers(0, len(content), 20):
        yield content[:cut]
        yield content[cut:]
    for _ in range(60):
        changed = bytearray(content)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[at] ^= 1 << int(rng.integers(8))
        yield bytes(changed)
    yield content + content
    yield content + b"\0"
    yield b""


def readers(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    save_design(time_design(), folder / "t.npz")
    assert call("export", folder / "t.npz", "--to", "jax-privacy", "-o", folder / "j.npz").code == 0
    text = RING + '\n[structure]\nspace = "edge-local"\n'
    assert call("solve", write(folder, text), "-o", folder / "s.npz").code == 0
    assert call("export", folder / "s.npz", "--to", "seeds", "-o", folder / "seeds.json").code == 0
    found: dict[str, tuple[Path, Callable[[Path], object]]] = {}
    for to in ("npy", "csv", "mat", "safetensors"):
        path = folder / f"x.{to}"
        assert call("export", folder / "t.npz", "--to", to, "-o", path).code == 0
        whole = path if to in ("mat", "safetensors") else path.with_suffix(".json")
        (folder / to).mkdir()
        for file in folder.glob("x*.*"):
            shutil.move(file, folder / to)
        found[to] = (folder / to / whole.name, exports.read)
    return found | {
        "design": (folder / "t.npz", lambda path: verify(load_design(path))),
        "jax-privacy": (folder / "j.npz", lambda path: jax_privacy.read(path, steps=1)),
        "seeds": (folder / "seeds.json", seeds.read_plan),
    }


READ = ("design", "jax-privacy", "seeds", "npy", "csv", "mat", "safetensors")
SEALED = ("design", "mat")


@pytest.mark.parametrize("name", READ)
def test_no_damage_is_anything_but_bad_input(name: str, tmp_path: Path) -> None:
    path, read = readers(tmp_path)[name]
    read(path)
    content, refused = path.read_bytes(), 0
    for number, damaged in enumerate(damages(content, seed=11)):
        path.write_bytes(damaged)
        try:
            read(path)
        except InputError:
            refused += 1
            continue
        # A changed digit of a number is another number, unless the file is sealed.
        assert name not in SEALED, number
    assert refused >= (103 if name in SEALED else 30)


VALUES: list[object] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    10**9,
    2**63,
    10**30,
    1e308,
    1e-320,
    "",
    "nan",
    "inf",
    "x" * 1000,
    [],
    [1],
    ["a", "a"],
    {},
    {"a": 1},
    "full",
    "edge-local",
    "banded",
    "space-time",
]


def places(entry: object, at: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    items = entry.items() if isinstance(entry, dict) else []
    if isinstance(entry, list):
        items = list(enumerate(entry))[:2]
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def put(entry: object, place: tuple[object, ...], value: object) -> None:
    for key in place[:-1]:
        entry = entry[key]  # type: ignore[index]
    entry[place[-1]] = value  # type: ignore[index]


@pytest.fixture
def clock() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("make", [space_design, time_design, capped_design])
def test_no_entry_of_a_manifest_is_a_traceback(make: Callable[[], Design], tmp_path: Path) -> None:
    """Re-sealed with any value in any place: bad input, or a verdict, and soon."""
    path = save_design(make(), tmp_path / "d.npz")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        known = [*places(json.loads(archive.read("manifest.json")))]
    known = [place for place in known if place[0] not in ("arrays", "provenance")]
    assert len(known) > 30
    rng = np.random.default_rng(3)
    for place in known:
        for number in rng.choice(len(VALUES), 6, replace=False):
            path.write_bytes(whole)
            falsify(path, lambda manifest, _: put(manifest, place, VALUES[number]))  # noqa: B023
            signal.alarm(SECONDS)
            with contextlib.suppress(InputError):
                assert verify(load_design(path)).ok in (True, False)
