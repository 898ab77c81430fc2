"""What stands where a file is to go: replaced by its own kind, kept from every other.

Also what killed processes leave behind.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from noisedesign.base.atomic import overwriting
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import kind_of
from noisedesign.conic.formats import write as write_program
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.exports import exporter, exporter_names
from noisedesign.pages.plot import plot
from noisedesign.tasks.export import export
from noisedesign.tasks.model import conic_program
from tests.support.command_line import EPOCHS, RING, call, environment, write
from tests.support.small_designs import space_design, time_design

SWEEP = RING + '\n[grid]\n"graph.nodes" = [5]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of every kind that commands read."""
    write(tmp_path, RING)
    write(tmp_path, SWEEP, "sweep.toml")
    save_design(space_design(), tmp_path / "d.npz")
    save_design(time_design(), tmp_path / "t.npz")
    (tmp_path / "photo.png").write_bytes(b"\xff\xd8\xff\xe0 a photograph that is called so")
    (tmp_path / "notes.csv").write_text("day,spent\nMonday,3\n")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


# --- commands ------------------------------------------------------------------------------------

OWN_INPUT = [
    ("solve problem.toml -o problem.toml", "output", "PROBLEM"),
    ("solve problem.toml -o ./problem.toml", "output", "PROBLEM"),
    ("model problem.toml --format cbf -o problem.toml", "output", "PROBLEM"),
    ("compare problem.toml --backends native -o problem.toml", "output", "PROBLEM"),
    ("compare problem.toml --backends native --plot problem.toml", "plot", "PROBLEM"),
    ("compare problem.toml --backends native -o a.csv --plot a.csv", "plot", "--output"),
    ("sweep sweep.toml -o sweep.toml", "output", "FILE"),
    ("export d.npz --to npy -o d.npz", "output", "DESIGN"),
    ("plot d.npz -o d.npz", "output", "DESIGN"),
    ("account d.npz -o d.npz", "output", "FILE"),
    ("solve problem.toml -o s.npz --checkpoint s.npz", "output", "--checkpoint"),
    ("solve problem.toml -o e.npz --checkpoint problem.toml", "checkpoint", "PROBLEM"),
]


@pytest.mark.parametrize(("command", "option", "other"), OWN_INPUT)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_that_is_read_is_never_written(
    command: str,
    option: str,
    other: str,
    force: tuple[str, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    before = contents(folder)
    outcome = call(*command.split(), *force)
    assert outcome.code == 2
    assert outcome.err.startswith(f"noisedesign: error: {option}: expected a file of its own")
    assert re.search(rf"which is {other}(S|\.toml)? too", outcome.err), outcome.err
    assert contents(folder) == before


OTHER_KIND = [
    "solve problem.toml -o sweep.toml",
    "solve problem.toml -o photo.png",
    "model problem.toml --format sdpa -o sweep.toml",
    "model problem.toml --format cbf -o d.npz",
    "compare problem.toml --backends native -o notes.csv",
    "compare problem.toml --backends native --plot photo.png",
    "sweep sweep.toml -o notes.csv",
    "export t.npz --to npy -o d.npz",
    "export t.npz --to csv -o notes.csv",
    "export d.npz --to mat -o photo.png",
    "plot d.npz -o photo.png",
]


@pytest.mark.parametrize("command", OTHER_KIND)
def test_another_kind_of_file_is_replaced_by_force_only(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = contents(folder)
    outcome = call(*command.split())
    assert outcome.code == 2, outcome
    assert "--force" in outcome.err
    assert "Traceback" not in outcome.err
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert call(*command.split(), "--force").code == 0
    target = command.split()[-1]
    assert (folder / target).read_bytes() != before[target]


def test_outputs_are_looked_at_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("solved")

    monkeypatch.setattr("noisedesign.design.solve.solve", never)
    assert call("solve", folder / "problem.toml", "-o", folder / "sweep.toml").code == 2
    outcome = call(
        "compare", folder / "problem.toml", "--backends", "native", "--plot", folder / "p.jpg"
    )
    assert outcome.code == 2
    assert outcome.err.startswith("noisedesign: error: plot: expected a name that ends in .png")
    loop = folder / "loop"
    loop.symlink_to(loop)
    for option in ("-o", "--checkpoint"):
        outcome = call("solve", folder / "problem.toml", option, loop)
        assert outcome.code == 2
        assert "a loop of links" in outcome.err
    assert loop.is_symlink()


# --- the same kind -------------------------------------------------------------------------------


@cache
def writers() -> dict[str, Callable[[Path, int], object]]:
    """Everything that writes a file whole, twice with other content."""
    designs = {kind: make() for kind, make in (("space", space_design), ("time", time_design))}
    found: dict[str, Callable[[Path, int], object]] = {
        "design": lambda path, k: save_design((space_design, time_design)[k](), path),
        "picture": lambda path, k: plot(designs[("space", "time")[k]], path=path),
        "sdpa or cbf": lambda path, k: write_program(
            conic_program(space_design().problem), path, to=("sdpa", "cbf")[k]
        ),
    }
    for name in exporter_names():
        for kind, design in designs.items():
            if kind in exporter(name).ACCEPTS and name not in ("seeds", "decentralizepy"):
                found[f"{name} of {kind}"] = lambda path, k, name=name, design=design: export(
                    design, to=name, path=path, problem_text=str(k)
                )
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one == "picture")) for one in writers()]
)
def test_a_file_is_replaced_by_its_own_kind(name: str, tmp_path: Path) -> None:
    write_one, path = writers()[name], tmp_path / ("file.png" if name == "picture" else "file.npy")
    write_one(path, 0)
    first = path.read_bytes()
    assert kind_of(path) is not None
    write_one(path, 1)
    write_one(path, 0)
    assert path.read_bytes()[:4] == first[:4]
    # The same over what no command writes, which is kept until somebody says so.
    path.write_text("my own words\n")
    with pytest.raises(InputError, match=r"output: expected a new file.*overwrite=True"):
        write_one(path, 0)
    assert path.read_text() == "my own words\n"
    with overwriting():
        write_one(path, 0)
    assert path.read_bytes()[:4] == first[:4]


def test_tables_and_seeds_are_of_their_own_kinds(tmp_path: Path) -> None:
    text = RING + '\n[structure]\nspace = "edge-local"\n'
    assert call("solve", write(tmp_path, text), "-o", tmp_path / "d.npz").code == 0
    for _ in range(2):
        assert call("export", tmp_path / "d.npz", "--to", "seeds", "-o", tmp_path / "s").code == 0
    assert kind_of(tmp_path / "s") == "seeds in JSON"
    problem = write(tmp_path, EPOCHS)
    for _ in range(2):
        table = ("compare", problem, "--backends", "native", "-o", tmp_path / "c.csv")
        assert call(*table).code == 0
    assert kind_of(tmp_path / "c.csv") == "a table of a comparison"
    sweep = write(tmp_path, SWEEP, "sweep.toml")
    outcome = call("sweep", sweep, "-o", tmp_path / "c.csv")
    assert (outcome.code, "--force" in outcome.err) == (2, True)
    assert kind_of(tmp_path / "c.csv") == "a table of a comparison"
    assert call("sweep", sweep, "-o", tmp_path / "c.csv", "--force").code == 0
    assert kind_of(tmp_path / "c.csv") == "a table of a sweep"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", None),
        (b"\n\n", None),
        (b"words", None),
        (b"\xff\xfe\x00", None),
        (b"PK\x03\x04 and no archive", None),
        (b"{", None),
        (b"[" * 200_000, None),
        (b'{"a":' * 100_000, None),
        (b'{"name": "package"}', None),
        (b"* a list\n* of things\n", None),
        (b"1 2\n2 3\n", None),
        (b"day,spent\nMonday,3\n", "a table of day, spent"),
        (b"a,b\n1,2\n3,4\n", "a matrix of numbers in CSV"),
        (b"1,2\n3,4\n", "a matrix of numbers in CSV"),
        (b"1,2\n3,4\n5,6\n7,8\n", "a table of 1, 2"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"\x00" * 9, None),
        (b'"\n', None),
    ],
)
def test_kinds_by_hand(content: bytes, kind: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert kind_of(path) == kind


def test_nothing_is_lost_with_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    path.touch()
    save_design(space_design(), path)
    assert load_design(path).design.problem.name == space_design().problem.name


def test_an_inner_call_takes_no_leave_away(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("words")
    with overwriting():
        save_design(space_design(), path)
    path.write_text("words")
    with pytest.raises(InputError):
        save_design(space_design(), path)


def test_a_program_takes_the_place_of_another_file_where_it_may(tmp_path: Path) -> None:
    path, program = tmp_path / "p.cbf", conic_program(space_design().problem)
    path.write_text("words")
    with pytest.raises(InputError, match="overwrite=True"):
        write_program(program, path)
    assert write_program(program, path, overwrite=True).read_text(encoding="utf-8") != "words"


# --- leftovers -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from noisedesign.base.atomic import write_atomically

def write(file):
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()

write_atomically(sys.argv[1], write)
"""


def writing(path: Path, how: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), how],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"half\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are those of POSIX systems")
def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path: Path) -> None:
    for _ in range(3):
        with writing(tmp_path / "d.npz", "kill") as process:
            assert process.wait() == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1  # each has removed what the one before it left
    with writing(tmp_path / "other.bin", "wait") as living:
        # Of another machine that shares the folder, and of somebody else.
        foreign = [tmp_path / ".noisedesign-00000000-0123456789abcdef.tmp", tmp_path / "x.tmp"]
        for path in foreign:
            path.write_bytes(b"half")
        save_design(space_design(), tmp_path / "d.npz")
        left = set(tmp_path.iterdir()) - {tmp_path / "d.npz", *foreign}
        assert len(left) == 1  # the one in work
        living.communicate(b"")
    assert (tmp_path / "other.bin").read_bytes() == b"half"
    assert set(tmp_path.iterdir()) == {tmp_path / "d.npz", tmp_path / "other.bin", *foreign}


def test_many_who_save_in_one_folder_do_not_take_each_others_files(tmp_path: Path) -> None:
    code = (
        "import sys; from noisedesign.base.atomic import write_bytes\n"
        "for k in range(200): write_bytes(sys.argv[1], b'PAR1' + bytes([k]) * 1000)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name)], env=environment())
        for name in ("a", "b", "a", "c")
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}
    for path in tmp_path.iterdir():
        assert path.read_bytes() == b"PAR1" + bytes([199]) * 1000
