"""The version, which is that of the commit: see ``noisedesign/base/version.py``."""

import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parents[1]
said = runpy.run_path(str(ROOT / "noisedesign" / "base" / "version.py"))

setup(version=said["version_of"](ROOT) or said["UNKNOWN"])
