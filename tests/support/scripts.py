"""Scripts of guides, run as users run them: in processes of their own, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.pages import blocks
from tests.support.trainers import secret

DIES = """
import os
from noisedesign.adapters.run import Run
_add = Run.add_
def _add_and_die(self, *args, **kwargs):
    _add(self, *args, **kwargs)
    if self.step == {step} + 1:
        os.kill(os.getpid(), 9)
Run.add_ = _add_and_die
"""
"""Before a script: the process is killed once the noise of a step was added, before it is used."""


def block(page: str, language: str, at: int = 0) -> str:
    """One of the blocks of a language of a page of the documentation."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [found.text for found in blocks(text) if found.language == language][at]


def sides(diff: str) -> tuple[str, str, list[str]]:
    """What a diff of whole files is from, what it makes of it, and the lines that it adds."""
    lines = diff.splitlines()
    assert all(line[:1] in (" ", "-", "+") for line in lines if line), "not a diff"
    before = "\n".join(line[1:] for line in lines if line[:1] != "+")
    after = "\n".join(line[1:] for line in lines if line[:1] != "-")
    return before, after, [line[1:] for line in lines if line[:1] == "+" and line[1:].strip()]


def run_script(text: str, folder: Path, *, dies_at: int | None = None, fails: bool = False) -> str:
    """Run it in a folder that has the data beside it; what it printed.

    Args:
        dies_at: step after whose noise it is killed, without any warning.
        fails: it ends with an error.
    """
    data = Path(os.environ["NOISEDESIGN_DATA"]) / "a9a" / "a9a"
    if not (folder / "a9a").exists():
        (folder / "a9a").symlink_to(data)
    script = folder / "script.py"
    script.write_text(("" if dies_at is None else DIES.format(step=dies_at)) + text, "utf-8")
    here = {
        "PYTHONPATH": str(ROOT),
        "NOISEDESIGN_RECORDS": str(folder / "records.sqlite3"),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "script.py"],
        cwd=folder,
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    expected = int(fails) if dies_at is None else -signal.SIGKILL
    assert done.returncode == expected, done.stderr[-4000:]
    return done.stdout


def check_it_goes_on(script: str, folder: Path, *, silent: str = "") -> list[Path]:
    """Check that the script of a guide ends with epsilon 6, killed on the way or not; return the
    files of both models. ``silent`` is a word that it does not print."""
    first = script.replace("resume=begun", "resume=False")
    assert first != script
    models = []
    for name in ("whole", "killed"):
        inside = folder / name
        inside.mkdir()
        shutil.copy(folder / "node.plan", inside)
        secret(5).save(inside / "node.secret")
        if name == "killed":
            run_script(first, inside, dies_at=6)
        printed = run_script(script if name == "killed" else first, inside)
        assert printed.splitlines()[-1] == "epsilon 6.00"
        assert not silent or silent not in printed
        models.append(inside / "model.pt")
    return models


def check_a_start_without_a_plan(script: str, folder: Path) -> None:
    """Check that it leaves no secret behind, begins once there is a plan, and goes on."""
    hidden = folder / "node.plan"
    hidden.rename(folder / "later.plan")
    run_script(script, folder, fails=True)
    assert not (folder / "node.secret").exists()
    (folder / "later.plan").rename(hidden)
    for _ in range(2):
        assert run_script(script, folder).splitlines()[-1].startswith("epsilon 6")
