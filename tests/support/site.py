"""The site of the documentation, built as ``make docs`` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT


def build(folder: Path) -> Path:
    """The site, built in this folder from a copy of the sources, for pages are written into them;
    no network is reached."""
    for name in ("CHANGELOG.md", "docs", "notebooks", "problems"):
        subprocess.run(["cp", "-r", ROOT / name, folder], check=True)
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    options = ["--fail-on-warning", "--keep-going", "-q", "-b", "html"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, folder / "docs", folder / "html"],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lab'}"} | proxies,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return folder / "html"
