"""What ``pyproject.toml`` cannot say: that the folder ``problems`` belongs into the package."""

from setuptools import find_namespace_packages, setup

PROBLEMS = "noisedesign.problems"

setup(
    packages=[*find_namespace_packages(include=["noisedesign*"]), PROBLEMS],
    package_dir={PROBLEMS: "problems"},
    package_data={"noisedesign": ["py.typed"], PROBLEMS: ["*.md", "*/*"]},
)
