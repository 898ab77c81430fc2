"""``python tools/install.py LOCK``: what a lock names, into this environment, told in one line.

Only packages with the hashes of the lock are installed. The exit code is that of pip, whose errors
go to standard error.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGINS = "Collecting "
"""The beginning of pip's line about a package."""
ENDS = "Installing collected packages"
"""The beginning of its line when all are there, and have only to be unpacked."""


def main(lock: str) -> int:
    locked = Path(lock).read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in locked if "==" in line and line[0].isalnum()}
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--progress-bar",
        "off",
        "--require-hashes",
        "-r",
        lock,
    ]
    print(f"installing up to {len(names)} packages of {lock}, once", flush=True)
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            done += line.startswith(BEGINS)
            if line.startswith(BEGINS):
                _show(f"{done} of {len(names)}: {line[len(BEGINS) :].partition('==')[0]}")
            elif line.startswith(ENDS):
                _show(f"{done} packages: unpacking")
    if sys.stdout.isatty():
        print()
    return pip.returncode


def _show(words: str) -> None:
    """Replace the words before; nothing happens where nobody is watching."""
    if sys.stdout.isatty():
        print(f"\r  {words:<60.60}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
