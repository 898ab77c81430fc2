"""A process that solves ends with the one that asked for it, however that ends.

Real kills of real processes; every wait is long enough for a busy machine and ends as soon as what
is waited for has happened.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import MODULE, environment, write
from tests.support.conic_cases import need

PATIENCE_SECONDS = 60.0

ASKING = """
import networkx as nx
from noisedesign.system.graph import mixing_matrix
from noisedesign.problem.problem import SpaceProblem
from noisedesign.design.solve import solve

mixing = mixing_matrix(nx.path_graph({nodes}), weights="lazy-metropolis-hastings")
solve(SpaceProblem(mixing=mixing), backend={backend!r}, formulation={formulation!r}, gap=1e-12,
      time_limit=600)
"""

BUSY = {
    "python": "import time; time.sleep(600)",
    # A foreign function that does not let go of the interpreter: no thread runs meanwhile.
    "compiled": "import ctypes; ctypes.PyDLL(None).sleep(600)",
}


def eventually(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def over(process: psutil.Process) -> bool:
    """Whether a process has ended, be it that nobody has asked for its exit status yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("backend", "formulation", "nodes"),
    [
        pytest.param("scs", "paper", 60, marks=pytest.mark.slow),
        pytest.param("clarabel", "paper", 40, marks=pytest.mark.slow),
        pytest.param("sdpa", "compact", 120, marks=pytest.mark.slow),
    ],
)
def test_a_solver_ends_when_its_parent_is_killed(
    backend: str, formulation: str, nodes: int, tmp_path: Path
) -> None:
    """Each would run for a minute or more; SDPA lets no Python run while it does."""
    code = ASKING.format(backend=need(backend), formulation=formulation, nodes=nodes)
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(TMPDIR=str(tmp_path)), cwd=tmp_path
    )
    children: list[psutil.Process] = []

    def solving() -> bool:
        assert parent.poll() is None
        children[:] = psutil.Process(parent.pid).children()
        return bool(children) and any(tmp_path.glob("*/ready"))

    try:
        assert eventually(solving)
        (child,) = children
        began = child.cpu_times().user
        assert eventually(lambda: over(child) or child.cpu_times().user > began + 1)
        assert not over(child), "it was over before its parent was killed"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert eventually(lambda: over(child))
    finally:
        parent.kill()
        parent.wait()
        for child in children:
            if not over(child):
                child.kill()


@pytest.mark.parametrize(
    ("platform", "busy"), [("linux", "compiled"), ("linux", "python"), ("other", "python")]
)
def test_an_end_of_standard_input_ends_the_process(platform: str, busy: str) -> None:
    """By a signal where there is one, which needs no Python; by a thread elsewhere."""
    if not sys.platform.startswith(platform) and platform == "linux":
        pytest.skip("no signal tells of the end of a pipe here")
    code = (
        "import sys; from noisedesign.conic import process as isolated\n"
        f"sys.platform = {platform!r}; isolated._end_with_parent(); print('busy', flush=True)\n"
        + BUSY[busy]
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"busy\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)  # an open pipe is no reason to end
        child.stdin.close()
        assert child.wait(PATIENCE_SECONDS) != 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


SWEEP = """name = "random"
design = "space"
[graph]
kind = "erdos-renyi"
nodes = 60
p = 0.4
seed = 0
weights = "lazy-metropolis-hastings"
[grid]
graph.seed = {seeds}
"""


def assert_ends_whole(
    plan: Path,
    table: Path,
    at_work: Callable[[list[psutil.Process]], bool],
    variables: dict[str, str],
) -> None:
    """A sweep of two workers that is killed once it is at work: all that it began ends."""
    sweep = subprocess.Popen(
        [*MODULE, "sweep", str(plan), "-o", str(table), "--jobs", "2"],
        env=variables,
        stderr=subprocess.DEVNULL,
    )
    left: list[psutil.Process] = []

    def begun() -> bool:
        assert sweep.poll() is None
        left[:] = psutil.Process(sweep.pid).children(recursive=True)
        return at_work(left)

    try:
        assert eventually(begun)
        sweep.kill()
        sweep.wait()
        assert eventually(lambda: all(over(process) for process in left))
    finally:
        sweep.kill()
        sweep.wait()
        for process in left:
            if not over(process):
                process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
def test_workers_end_when_their_parent_is_killed(rows: int, tmp_path: Path) -> None:
    """While they are still loading, and with rows in work; what keeps track of them ends too."""
    plan = write(tmp_path, SWEEP.format(seeds=list(range(2000))), "sweep.toml")
    table = tmp_path / "rows.csv"

    def at_work(left: list[psutil.Process]) -> bool:
        workers = sum("LokyProcess" in " ".join(process.cmdline()) for process in left)
        found = table.read_text().count("\n") - 1 if table.exists() else 0
        return workers == 2 and found >= rows

    assert_ends_whole(plan, table, at_work, environment())


@pytest.mark.slow
def test_nothing_is_left_of_a_sweep_that_is_killed(tmp_path: Path) -> None:
    """Neither its workers, nor their solvers, nor what keeps track of them."""
    text = """backends = ["clarabel"]
gap = 1e-12
name = "path"
design = "space"
[graph]
kind = "path"
nodes = 70
weights = "lazy-metropolis-hastings"
[grid]
graph.nodes = [80, 81, 82, 83]
"""
    plan = write(tmp_path, text, "sweep.toml")

    def solving(left: list[psutil.Process]) -> bool:
        if len(list(tmp_path.glob("*/ready"))) != 2:
            return False
        assert len(left) >= 4  # two workers, two solvers
        return True

    assert_ends_whole(plan, tmp_path / "rows.csv", solving, environment(TMPDIR=str(tmp_path)))
