"""Version, links and README of the metadata: see ``tools/metadata.py``."""

import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parents[1]
said = runpy.run_path(str(ROOT / "tools" / "metadata.py"))

setup(**said["arguments"](ROOT / "lab" / "README.md"))
