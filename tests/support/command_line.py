"""Running the command line: in this process where that is enough, else as a shell would."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from noisedesign.cli import main
from tests.support import ROOT

MODULE = (sys.executable, "-m", "noisedesign")

RING = """name = "ring-5"
design = "space"

[graph]
kind = "ring"
nodes = 5
"""

CAPPED = """name = "complete-4"
design = "space"

[graph]
kind = "complete"
nodes = 4

[limits]
max_variance = 3.0
"""

EPOCHS = """name = "epochs"
design = "time"

[graph]
kind = "path"
nodes = 4

[workload]
kind = "decentralized"

[participation]
epochs = 2
separation = 3
"""

PREFIX = """name = "prefix"
design = "time"

[workload]
kind = "prefix"

[participation]
epochs = 1
separation = 6
"""

PRIVACY = """
[privacy]
epsilon = 2.0
delta = 1e-6
clip = 0.5
steps = 10
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as exactly one JSON value; NaN and Infinity are not JSON."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def call(*arguments: object, watched: bool = False, columns: int | None = None) -> Outcome:
    """The console command with these arguments, in this process.

    ``watched`` makes standard error a terminal, ``columns`` standard output one of that width.
    """
    out, err = io.StringIO(), _Terminal() if watched else io.StringIO()
    seen = {}
    if columns is not None:
        out, seen = _Terminal(), {"COLUMNS": str(columns), "TERM": "dumb"}
    argv = ["noisedesign", *(str(argument) for argument in arguments)]
    code: object = None
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, seen),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
    assert isinstance(code, int), f"left with {code!r}"
    return Outcome(code, out.getvalue(), err.getvalue())


def environment(**extra: str) -> dict[str, str]:
    """That of this process, with the package importable from any folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **extra}


def shell(*arguments: object, cwd: Path, **kwargs: Any) -> Outcome:
    """The console command with these arguments, in a process of its own."""
    done = subprocess.run(
        [*MODULE, *(str(argument) for argument in arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        **kwargs,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def hear_ctrl_c() -> None:
    """In a new process: what the shell makes its background processes deaf to is heard again."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def write(folder: Path, text: str, name: str = "problem.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path
