"""``python tools/pythons.py``: the tests under the oldest and under the newest Python.

The oldest that is supported has the oldest versions of all that ``pyproject.toml`` asks for
(``requirements-lowest.lock``), the newest found the newest (``requirements.lock``): what works with
both is taken to work between. Each environment is built once, in ``.venv-pythons``. Further
arguments are those of pytest: ``python tools/pythons.py tests/noise -x``.

Interpreters are looked for on the path, where pyenv keeps them, and by uv. What is supported and
not here is said, and is no failure; that the oldest is not here is one, as nothing stands for it.
The exit code is 1 where tests failed or an environment could not be built.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-pythons"
LOWEST, NEWEST = "requirements-lowest.lock", "requirements.lock"

SAYS = "import sys; print('{}.{}'.format(*sys.version_info), sys.executable)"


def supported() -> list[str]:
    """Versions of Python that the package says it supports, ascending."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one)
        for one in project["classifiers"]
    )
    return sorted((match[1] for match in found if match), key=lambda v: int(v.split(".")[1]))


def candidates(version: str) -> Iterator[str]:
    """Yield the places where a Python of a version may be."""
    yield f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(found) for found in sorted(pyenv.glob(f"versions/{version}.*/bin/python")))
    if uv := shutil.which("uv"):
        command = [uv, "python", "find", "--no-python-downloads", version]
        yield subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    yield sys.executable


def interpreter(version: str) -> str | None:
    """The first that runs and is of that version: pyenv's shims are there and may not run."""
    for name in candidates(version):
        if name and (path := shutil.which(name)):
            done = subprocess.run([path, "-c", SAYS], capture_output=True, text=True, check=False)
            said, _, executable = done.stdout.strip().partition(" ")
            if done.returncode == 0 and said == version:
                return executable
    return None


def environment(version: str, python: str, lock: str) -> Path:
    """The Python of an environment with what a lock names; built anew where either changed."""
    folder = HOME / f"{version}-{Path(lock).stem}"
    inside = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / ".installed"
    parts = (python.encode(), (ROOT / lock).read_bytes(), (ROOT / "pyproject.toml").read_bytes())
    wanted = hashlib.sha256(b"\0".join(parts)).hexdigest()
    if not stamp.is_file() or stamp.read_text() != wanted:
        run = {"cwd": ROOT, "check": True}
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], **run)
        subprocess.run([inside, "tools/install.py", lock], **run)
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", "."], **run)
        stamp.write_text(wanted)
    return inside


def verdict(version: str, python: str, lock: str, arguments: list[str]) -> str:
    print(f"\n=== tests under Python {version}, {lock}", flush=True)
    try:
        inside = environment(version, python, lock)
    except subprocess.CalledProcessError as error:
        return f"failed to build: {' '.join(map(str, error.cmd))}"
    done = subprocess.run([inside, "-m", "pytest", *arguments], cwd=ROOT, check=False)
    return "failed" if done.returncode else "passed"


def main(arguments: list[str]) -> int:
    versions = supported()
    here = {version: path for version in versions if (path := interpreter(version))}
    told = {}
    if versions[0] in here:
        told[versions[0], LOWEST] = verdict(versions[0], here[versions[0]], LOWEST, arguments)
    else:
        told[versions[0], LOWEST] = "failed: not found here"
    if here:
        newest = list(here)[-1]
        told[newest, NEWEST] = verdict(newest, here[newest], NEWEST, arguments)
    print()
    for (version, lock), said in told.items():
        print(f"Python {version:<5} {lock:<26} {said}")
    if absent := [version for version in versions if version not in here]:
        print(f"Supported, not found here and not tested: Python {', '.join(absent)}")
    return int(any(said.startswith("failed") for said in told.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
