"""One table, one process at a time; and no table is locked for longer than its process lives."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noisedesign.base.checks import InputError
from noisedesign.surveys.results_file import open_results
from noisedesign.surveys.sweep import sweep
from noisedesign.surveys.sweep_file import parse_sweep
from tests.support.command_line import MODULE, RING, call, environment, write

SWEEP = RING + "[grid]\ngraph.nodes = [5, 7]\n"
HOLD = """
import sys
from noisedesign.surveys.results_file import open_results

with open_results(sys.argv[1], columns=("graph.nodes",)):
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(table: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has ``table`` open until it is told to end, or killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(table)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"open\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_that_is_open_elsewhere_is_refused(ending: str, tmp_path: Path) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    table = tmp_path / f"rows.{ending}"
    grid = ("sweep", write(tmp_path, SWEEP, "sweep.toml"))
    compare = ("compare", write(tmp_path, RING), "--backends", "native")
    with held(table):
        before = table.read_bytes()
        for command in (grid, compare):
            outcome = call(*command, "-o", table)
            assert (outcome.code, outcome.out) == (2, "")
            assert len(outcome.err.strip().splitlines()) == 1
            assert "output: expected a table that nobody else is writing" in outcome.err
            assert str(table) in outcome.err
            assert table.read_bytes() == before


def test_by_whatever_name(tmp_path: Path) -> None:
    table, other = tmp_path / "rows.csv", tmp_path / "link.csv"
    other.symlink_to(table)
    with held(table), pytest.raises(InputError, match="another process has open"):
        sweep(parse_sweep(SWEEP, folder="."), output=other)
    with (
        open_results(other, columns=("graph.nodes",)),
        pytest.raises(InputError, match="another process has open"),
    ):
        sweep(parse_sweep(SWEEP, folder="."), output=table)
    with open_results(table, columns=("graph.nodes",)):
        assert sweep(parse_sweep(SWEEP, folder="."), output=tmp_path / "mine.csv").run == 2


def test_a_kill_unlocks(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    with held(table) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        table.unlink()  # its columns are others
        assert call("sweep", write(tmp_path, SWEEP), "-o", table).code == 0


def test_an_error_unlocks(tmp_path: Path) -> None:
    columns = ("graph.nodes",)

    def broken(error: type[BaseException]) -> None:
        with open_results(tmp_path / "rows.csv", columns=columns):
            raise error

    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            broken(error)
    with (
        pytest.raises(InputError, match="columns"),
        open_results(tmp_path / "rows.csv", columns=("other",)),
    ):
        pass
    with open_results(tmp_path / "rows.csv", columns=columns):
        pass
    assert [path.name for path in tmp_path.glob(".*")] == []  # no lock is left behind


def test_a_second_time_in_one_process(tmp_path: Path) -> None:
    """As the two would not know of each other's rows either."""
    columns = ("graph.nodes",)
    with (
        open_results(tmp_path / "rows.csv", columns=columns),
        pytest.raises(InputError, match="nobody else"),
        open_results(tmp_path / "rows.csv", columns=columns),
    ):
        pass


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        sweep(parse_sweep(SWEEP, folder="."), output=tmp_path / "none" / "rows.csv")
    assert error.value.field == "output"
    assert "existing folder" in error.value.expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_sweeps_on_one_table(tmp_path: Path) -> None:
    """The first has begun; the second is told so, and takes nothing from it."""
    text = RING.replace('"ring"\nnodes = 5', '"erdos-renyi"\nnodes = 12\np = 0.5\nseed = 0')
    seeds = list(range(150))
    problem = write(tmp_path, f"{text}[grid]\ngraph.seed = {seeds}\n", "sweep.toml")
    table = tmp_path / "rows.csv"
    first = subprocess.Popen(
        [*MODULE, "sweep", str(problem), "-o", str(table)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not (table.exists() and table.read_bytes().count(b"\n") > 3):
        assert first.poll() is None, first.communicate()
        time.sleep(0.001)
    second = call("sweep", problem, "-o", table)
    assert first.poll() is None, "it was over before the second began"
    _, said = first.communicate()
    assert (first.returncode, second.code) == (0, 2), said
    assert "which another process has open" in second.err
    with table.open(newline="") as file:
        assert sorted(int(row["graph.seed"]) for row in csv.DictReader(file)) == seeds
