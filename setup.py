"""What ``pyproject.toml`` cannot say: the version, which is that of the commit, links and README of
the metadata, and that the folder ``problems`` belongs into the package."""

import runpy
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).resolve().parent
PROBLEMS = "noisedesign.problems"

said = runpy.run_path(str(ROOT / "tools" / "metadata.py"))

setup(
    **said["arguments"](ROOT / "README.md"),
    packages=[*find_namespace_packages(include=["noisedesign*"]), PROBLEMS],
    package_dir={PROBLEMS: "problems"},
    package_data={
        "noisedesign": ["py.typed", "*.pyi", "pages/*.jinja"],
        PROBLEMS: ["*.md", "*.csv", "*/*"],
    },
)
