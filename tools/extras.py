"""``python tools/extras.py``: every extra installed by pip in an environment of its own, under
every Python that is supported and found here, and what it is for imported there.

Further arguments are the extras to try: ``python tools/extras.py pages dask``. Without PyTorch's
gigabytes: what needs them is only resolved (``pip install --dry-run``, by uv where it is on the
path), unless ``--whole`` is given. The exit code is 1 where one of them did not work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pythons import ROOT, interpreter, supported

IMPORTS = {
    "": "noisedesign.__main__, cvxpy, clarabel, scs",
    "bench": "jax_privacy",
    "dask": "distributed, noisedesign.surveys.sweep",
    "data": "pooch",
    "docs": "sphinx, furo, myst_nb, sphinx_click",
    "flower": "noisedesign.adapters.flower",
    "gpu": "torch",
    "huggingface": "noisedesign.adapters.huggingface",
    "jax": "noisedesign.adapters.jax_privacy, optax",
    "keras": "keras",
    "ledger": "dp_accounting, noisedesign.privacy.ledger",
    "lightning": "noisedesign.adapters.lightning",
    "mosek": "mosek",
    "nvflare": "nvflare.client, noisedesign.adapters.update",
    "opacus": "noisedesign.adapters.opacus",
    "opake": "noisedesign.adapters.opake",
    "pages": "jinja2, noisedesign.pages.write, noisedesign.pages.demo",
    "parallel": "joblib",
    "parquet": "pyarrow.parquet",
    "pfl": "noisedesign.adapters.pfl",
    "pictures": "noisedesign.pages.plot, matplotlib.pyplot",
    "safetensors": "noisedesign.files.exports.safetensors, safetensors.numpy",
    "solvers": "cvxopt, sdpap",
    "test": "pytest, hypothesis, mypy, ruff, sphinx, xdist",
    "torch": "noisedesign.adapters.pytorch",
}
"""Imports that show that an extra works; "" is the package without any."""

NOT_TO_BE_HAD = {("pfl", "3.13"): "no: pfl has no release for this Python"}
"""Extras whose packages are not for a Python, as their authors say."""

LARGE = ("gpu", "huggingface", "lightning", "opacus", "opake", "torch")
"""Extras with PyTorch, which on Linux brings gigabytes of CUDA."""

TRIED = "noisedesign solve whisper/florentine --json"
"""Runs in every environment beside the imports."""


def tried(extra: str, python: str, wheel: Path, *, whole: bool) -> str:
    """Install, and say "ok", "resolved" or why it failed."""
    wanted = f"noisedesign[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder, "venv")
        done = _run(python, "-m", "venv", "--without-pip", str(venv))
        scripts = venv / ("Scripts" if os.name == "nt" else "bin")
        inside = str(scripts / "python")
        pip = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet"]
        if extra in LARGE and not whole:
            uv = shutil.which("uv")
            resolve = [uv, "pip", "install", "--quiet", "--python", inside] if uv else pip
            done = _run(*resolve, "--dry-run", wanted)
            return _last(done) or "resolved"
        done = _run(*pip, "--no-compile", wanted)
        if done.returncode == 0:
            done = _run(inside, "-c", f"import {IMPORTS[extra]}", cwd=folder)
        if done.returncode == 0:
            done = _run(str(scripts / TRIED.split()[0]), *TRIED.split()[1:], cwd=folder)
        return _last(done) or "ok"


def _run(*command: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of what a command that failed said; nothing of one that did not."""
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"failed: {said[-1] if said else done.returncode}"


def main(arguments: list[str]) -> int:
    whole = "--whole" in arguments
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = ["", *project["optional-dependencies"]]
    extras = [name for name in arguments if name != "--whole"] or every
    if unknown := {*extras} - {*every}:
        print(f"no extra: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    here = {version: path for version in supported() if (path := interpreter(version))}
    failed = not here
    with tempfile.TemporaryDirectory() as folder:
        build = (
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "-w",
            folder,
            str(ROOT),
        )
        if told := _last(_run(*build)):
            print(told, file=sys.stderr)
            return 1
        (wheel,) = Path(folder).glob("*.whl")
        for extra in extras:
            for version, python in here.items():
                told = tried(extra, python, wheel, whole=whole)
                if told.startswith("failed"):
                    told = NOT_TO_BE_HAD.get((extra, version), told)
                failed |= told.startswith("failed")
                print(f"{extra or '(none)':<12} Python {version:<5} {told}", flush=True)
    if absent := [version for version in supported() if version not in here]:
        print(f"Supported, not found here and not tried: Python {', '.join(absent)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
