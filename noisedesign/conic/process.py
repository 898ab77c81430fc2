"""Solving in a process of its own, so that a solver can be stopped and cannot print on stdout.

Compiled solvers ignore Ctrl-C, have no time limit or overrun theirs, and some print. A conic
program goes over as plain arrays in an .npz file and the point comes back the same way. Run as
``python -m noisedesign.conic.process NAME FOLDER SETTINGS``. Its standard input is a pipe that
only the parent holds open, so that the child ends however the parent does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base.monitor import Monitor, Stop
from noisedesign.base.workers import end_after
from noisedesign.conic.data import Outcome, Point
from noisedesign.conic.program import Block, ConicProgram, Entries
from noisedesign.conic.solvers import ConicSolver, conic_solver

GRACE_SECONDS = 2.0  # seconds past its limit in which a solver may hand over what it has
STARTUP_SECONDS = 30.0  # seconds for the imports of a new process; not counted against the limit
POLL_SECONDS = 0.02

_PROGRAM, _OUTCOME, _READY = "program.npz", "outcome.npz", "ready"
_COLUMNS = ("variable", "row", "column", "value")
_REPORTED = ("stop", "message", "iterations", "build_seconds", "solve_seconds")
_FACTS = ("balanced", "flat", "margin", "penalty")
_INPUT = 0


def solve(solver: ConicSolver, program: ConicProgram, *, monitor: Monitor) -> Outcome:
    """Do ``solver.solve`` in a process that is ended when its time is over."""
    with tempfile.TemporaryDirectory(prefix="noisedesign-") as name:
        folder, limit = Path(name), monitor.time_left
        _write_program(folder / _PROGRAM, program)
        settings = {"gap": monitor.gap, "tolerance": monitor.tolerance, "time_limit": limit}
        # The package has imported this module by the time it is run, which runpy has words about.
        quietly = (sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", __name__)
        command = [*quietly, solver.name, name, json.dumps(settings)]
        log = folder / "log"
        with log.open("wb") as stream:
            # A session of its own: Ctrl-C reaches us, and we end it.
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
            )
        began = time.monotonic()
        try:
            stop, ready = _wait(child, folder, limit)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            assert child.stdin is not None
            child.stdin.close()
        if (folder / _OUTCOME).exists():
            return _read_outcome(folder / _OUTCOME)
        message = "the solver was stopped before it had an answer"
        if stop is None:
            said = log.read_text(errors="replace").strip().splitlines()
            reason = said[-1] if said else f"exit status {child.returncode}"
            if child.returncode == -9:  # how systems end what takes more memory than there is
                reason = "it was killed, perhaps for want of memory"
            message = f"the solver's process ended: {reason}"
        # How much of it went into the model, nobody is left to say.
        spent = time.monotonic() - (began if ready is None else ready)
        return Outcome(stop=stop or Stop.FAILED, message=message, solve_seconds=spent)


def _wait(
    child: subprocess.Popen[bytes], folder: Path, limit: float | None
) -> tuple[Stop | None, float | None]:
    """Why we stopped waiting, or None where the process ended by itself; when it began to solve."""
    began, ready = time.monotonic(), None
    try:
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if ready is None and (folder / _READY).exists():
                ready = now
            if limit is None:
                continue
            since = now - (began + STARTUP_SECONDS if ready is None else ready)
            if since > limit + GRACE_SECONDS:
                return Stop.TIME_LIMIT, ready
    except KeyboardInterrupt:
        return Stop.INTERRUPTED, ready
    return None, ready


def _write_program(path: Path, program: ConicProgram) -> None:
    """Blocks one after the other, linear rows last."""
    blocks = (*program.blocks, program.rows)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(block.entries, name) for block in blocks])
        for name in _COLUMNS
    }
    np.savez(
        path,
        cost=program.cost,
        sizes=np.array([block.size for block in blocks]),
        counts=np.array([len(block.entries) for block in blocks]),
        facts=np.array([getattr(program, name) for name in _FACTS]),
        **columns,
    )


def _read_program(path: Path) -> ConicProgram:
    with np.load(path, allow_pickle=False) as data:
        ends = np.cumsum(data["counts"])[:-1]
        columns = zip(*(np.split(data[name], ends) for name in _COLUMNS), strict=True)
        *blocks, rows = (
            Block(size=int(size), entries=Entries(**dict(zip(_COLUMNS, parts, strict=True))))
            for size, parts in zip(data["sizes"], columns, strict=True)
        )
        facts = dict(zip(_FACTS, data["facts"].tolist(), strict=True))
        return ConicProgram(cost=data["cost"], blocks=tuple(blocks), rows=rows, **facts)


def _write_outcome(path: Path, outcome: Outcome) -> None:
    report = {name: getattr(outcome, name) for name in _REPORTED}
    arrays: dict[str, Any] = {"report": np.array(json.dumps(report))}
    if (point := outcome.point) is not None:
        arrays |= {f"block {number}": block for number, block in enumerate(point.blocks)}
        arrays |= {"variables": point.variables, "rows": point.rows}
    partial = path.with_name("partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)


def _read_outcome(path: Path) -> Outcome:
    with np.load(path, allow_pickle=False) as data:
        report = json.loads(str(data["report"]))
        report["stop"] = Stop(report["stop"])
        point = None
        if "variables" in data:
            blocks = tuple(data[f"block {number}"] for number in range(len(data.files) - 3))
            point = Point(variables=data["variables"], blocks=blocks, rows=data["rows"])
        return Outcome(point=point, **report)


def _end_with_parent() -> None:
    """End this process with its standard input, even while a solver never lets Python run."""
    end_after(partial(os.read, _INPUT, 1))
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(_INPUT, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(_INPUT, fcntl.F_GETFL)
        fcntl.fcntl(_INPUT, fcntl.F_SETFL, flags | os.O_ASYNC)


def _main(name: str, folder: str, settings: str) -> None:
    program, solver = _read_program(Path(folder, _PROGRAM)), conic_solver(name)
    solver.load()
    Path(folder, _READY).touch()
    outcome = solver.solve(program, monitor=Monitor(**json.loads(settings)))
    _write_outcome(Path(folder, _OUTCOME), outcome)


if __name__ == "__main__":
    _end_with_parent()
    _main(*sys.argv[1:])
