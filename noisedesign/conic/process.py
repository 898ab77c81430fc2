"""Solving in a process of its own, so that a solver can be stopped and cannot print on stdout.

Compiled solvers ignore Ctrl-C, have no time limit or overrun theirs, and some print. The program
goes over as plain arrays in an .npz file and the answer comes back the same way; nothing is
pickled. Run as ``python -m noisedesign.conic.process NAME FOLDER SETTINGS``.

Nobody is left behind: the standard input of the child is a pipe that only its parent holds open, so
that it ends however the parent does, and the child with it.
"""

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

from noisedesign.base.lifeline import end_after
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.conic.dimacs import Errors
from noisedesign.conic.solvers import ConicBackend, conic_solver
from noisedesign.program.backend import Answer
from noisedesign.program.program import DualPoint, Program
from noisedesign.system.participation import FixedEpoch

GRACE_SECONDS = 2.0
"""How long past its limit a solver may take to hand over what it has."""
STARTUP_SECONDS = 30.0
"""Importing what a new process needs; not counted against the limit."""
POLL_SECONDS = 0.02

_PROGRAM, _ANSWER, _READY = "program.npz", "answer.npz", "ready"
_INPUT = 0
KILLED = 9
"""The signal by which systems end what takes more memory than there is."""


def solve(backend: ConicBackend, program: Program, *, monitor: Monitor, formulation: str) -> Answer:
    """As ``backend.solve``, in a process that is ended when its time is over."""
    with tempfile.TemporaryDirectory(prefix="noisedesign-") as name:
        folder = Path(name)
        _write_program(folder / _PROGRAM, program)
        settings = {
            "formulation": formulation,
            "gap": monitor.gap,
            "tolerance": monitor.tolerance,
            "time_limit": monitor.time_limit,
        }
        # The package has imported this module by the time it is run, which runpy has words about.
        quietly = (sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", __name__)
        command = [*quietly, backend.name, name, json.dumps(settings)]
        log = folder / "log"
        with log.open("wb") as stream:
            # A session of its own: Ctrl-C reaches us, and we end it.
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
            )
        began = time.monotonic()
        try:
            stop, ready = _wait(child, folder, monitor)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            assert child.stdin is not None
            child.stdin.close()
        if (folder / _ANSWER).exists():
            return _read_answer(folder / _ANSWER)
        message = "the solver was stopped before it had an answer"
        if stop is None:
            reason = _last_words(log.read_text(errors="replace"), child.returncode)
            message = f"the solver's process ended: {reason}"
        # How much of it went into the model, nobody is left to say.
        spent = time.monotonic() - (began if ready is None else ready)
        return Answer(stop=stop or Stop.FAILED, message=message, solve_seconds=spent)


def _last_words(log: str, status: int) -> str:
    if status == -KILLED:
        return "it was killed, perhaps for want of memory"
    lines = log.strip().splitlines()
    return lines[-1] if lines else f"exit status {status}"


def _wait(
    child: subprocess.Popen[bytes], folder: Path, monitor: Monitor
) -> tuple[Stop | None, float | None]:
    """Why we stopped waiting, or None where the process ended by itself; when it began to solve."""
    began, ready = time.monotonic(), None
    try:
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if ready is None and (folder / _READY).exists():
                ready = now
            if monitor.time_limit is None:
                continue
            since = now - (began + STARTUP_SECONDS if ready is None else ready)
            if since > monitor.time_limit + GRACE_SECONDS:
                return Stop.TIME_LIMIT, ready
    except KeyboardInterrupt:
        return Stop.INTERRUPTED, ready
    return None, ready


def _write_program(path: Path, program: Program) -> None:
    arrays: dict[str, Any] = {
        "gram": program.gram,
        "participation": np.array([program.participation.epochs, program.participation.separation]),
    }
    if program.cap is not None:
        arrays["cap"] = program.cap
    if program.floor is not None:
        arrays["floor"] = program.floor
    if program.exact_factor is not None:
        arrays["factor"] = program.exact_factor
    np.savez(path, **arrays)


def _read_program(path: Path) -> Program:
    with np.load(path, allow_pickle=False) as data:
        epochs, separation = (int(value) for value in data["participation"])
        return Program(
            gram=data["gram"],
            participation=FixedEpoch(epochs=epochs, separation=separation),
            budget=np.ones(separation),
            cap=data.get("cap"),
            exact_factor=data.get("factor"),
            floor=data.get("floor"),
        )


def _write_answer(path: Path, answer: Answer, errors: Errors | None = None) -> None:
    arrays: dict[str, Any] = {}
    if answer.gram is not None:
        arrays["gram"] = answer.gram
    if answer.dual is not None:
        arrays["blocks"] = answer.dual.blocks
        if answer.dual.cap is not None:
            arrays["cap"] = answer.dual.cap
        if answer.dual.floor is not None:
            arrays["floor"] = answer.dual.floor
    if errors is not None:
        arrays["errors"] = np.array(errors)
    report = {
        "stop": answer.stop.value,
        "message": answer.message,
        "build_seconds": answer.build_seconds,
        "solve_seconds": answer.solve_seconds,
        "evaluations": answer.evaluations,
    }
    arrays["report"] = np.array(json.dumps(report))
    partial = path.with_name("partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)


def _read_answer(path: Path) -> Answer:
    with np.load(path, allow_pickle=False) as data:
        report = json.loads(str(data["report"]))
        dual = None
        if "blocks" in data:
            dual = DualPoint(blocks=data["blocks"], cap=data.get("cap"), floor=data.get("floor"))
        report["stop"] = Stop(report["stop"])
        errors = tuple(data["errors"].tolist()) if "errors" in data else None
        return Answer(gram=data.get("gram"), dual=dual, measure=lambda: errors, **report)


def _end_with_parent() -> None:
    """End this process as soon as its standard input does.

    Some solvers never let Python run, so that its thread would not see it. Linux also sends a
    signal, which without a handler ends a process whatever it is at.
    """
    end_after(partial(os.read, _INPUT, 1))
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(_INPUT, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(_INPUT, fcntl.F_GETFL)
        fcntl.fcntl(_INPUT, fcntl.F_SETFL, flags | os.O_ASYNC)


def _main(name: str, folder: str, settings: str) -> None:
    options = json.loads(settings)
    formulation = options.pop("formulation")
    program = _read_program(Path(folder, _PROGRAM))
    backend = conic_solver(name)
    backend.load()
    Path(folder, _READY).touch()
    answer = backend.solve(program, monitor=Monitor(**options), formulation=formulation)
    _write_answer(Path(folder, _ANSWER), answer)
    # Afterwards: a process that is ended while it measures has handed over its answer.
    if (errors := answer.measure()) is not None:
        _write_answer(Path(folder, _ANSWER), answer, errors)


if __name__ == "__main__":
    _end_with_parent()
    _main(*sys.argv[1:])
