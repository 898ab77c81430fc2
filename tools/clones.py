"""``python tools/clones.py``: trainers that are in no package index, as their authors keep them.

Each is cloned into ``.trainers`` at the commit that our tests are written for. What cannot be had
is said, and is no failure: the tests of that trainer are skipped with the reason.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".trainers"
COMMITS = {
    "DECOR": ("elfirdoussilab1/DECOR", "68ad6980711386d32321e1840e95ecaaa06359a9"),
    "FedML": ("FedML-AI/FedML", "03e11dfee69a458a9820ec4e05b531a5f935eb2b"),
    "GossiPy": ("makgyver/gossipy", "ea85ab1da0048df41df82ba958a635dd968f1f01"),
    "MFDL": ("dimiarbre/MFDL", "c8529295985853ced4f31d940fe82ab9bb56c42c"),
    "decentralizepy": ("sacs-epfl/decentralizepy", "a5d46be907bc745652d5482c34117be388324439"),
    "WhisperDSGD": ("arodio/WhisperDSGD", "31c7cc35b55f9d1bfa41cc6fd571d9ccda174a31"),
}
"""Trainers by name: where each is on GitHub, and at which commit."""


def clone(name: str, folder: Path = FOLDER) -> str:
    """Have a trainer in ``folder``; say "there" or why it is not."""
    repository, commit = COMMITS[name]
    target = folder / name
    if target.is_dir():
        return "there"
    half = folder / f".{name}"
    git = ["git", "-C", str(half)]
    address = f"https://github.com/{repository}"
    for command in (
        ["git", "init", "--quiet", str(half)],
        [*git, "fetch", "--quiet", "--depth=1", address, commit],
        [*git, "checkout", "--quiet", "FETCH_HEAD"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"not to be had: {error}"
        if done.returncode:
            return f"not to be had: {done.stderr.strip().splitlines()[-1]}"
    half.rename(target)
    return "there"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in COMMITS:
        print(f"{each:<12} {clone(each)}", flush=True)
    sys.exit(0)
