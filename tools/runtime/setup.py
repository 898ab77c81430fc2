"""The files of ``noisedesign-runtime``: what a node draws noise with, adapters to trainers that
use it, and what both import of the rest of the package.

They are read off the sources, and come from the folder of the package itself. Their import name is
``noisedesign_runtime``, written into them here: neither wheel has a file of the other. What both
say of themselves is said in the main ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, RUNTIME = "noisedesign", "noisedesign_runtime"
OUTERMOST = Path(PACKAGE, "__init__.py")
VERSION = Path(PACKAGE, "base", "version.py")
ITSELF = f'''"""The noise of one node: ``{RUNTIME}.noise``, and adapters to trainers beside it."""

def __getattr__(name: str) -> object:
    """The version, which is read off metadata when it is first asked for."""
    if name != "__version__":
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    from {RUNTIME}.base.version import version

    return version()
'''
ROOMS = ("noise", "adapters")
DEPENDENCIES = {"cryptography", "numpy"}


def imported(file: Path) -> Iterator[str]:
    """Modules that a file imports, anywhere in it, and names that may be modules."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(name: str) -> Iterator[Path]:
    """Yield the module of a dotted name, or that it is a name of, and the packages it lies in."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = Path(*parts[:end])
        yield from (f for f in (path.with_suffix(".py"), path / "__init__.py") if _is_ours(f))


def _is_ours(file: Path) -> bool:
    return file.parts[0] == PACKAGE and (ROOT / file).is_file()


def runtime_files() -> frozenset[Path]:
    """Relative to the repository."""
    found: set[Path] = {OUTERMOST, VERSION}
    rooms = (ROOT / PACKAGE / room for room in ROOMS)
    left = [file.relative_to(ROOT) for room in rooms for file in sorted(room.rglob("*.py"))]
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            left += [other for name in imported(file) for other in files_of(name)]
    return frozenset(found)


def renamed(source: str) -> str:
    """A module's text, its names of rooms that are here by the import name of this wheel."""
    rooms = "|".join((*ROOMS, "base"))
    return re.sub(rf"(?<![\w.-]){PACKAGE}\.(?=({rooms})\b)", f"{RUNTIME}.", source)


class RuntimeFiles(build_py):
    """Builds the modules that are needed, under their own name."""

    def build_module(
        self, module: str, module_file: str, package: str | tuple[str, ...]
    ) -> tuple[str, bool]:
        written, copied = super().build_module(module, module_file, package)
        here = Path(module_file).resolve().relative_to(ROOT)
        text = ITSELF if here == OUTERMOST else renamed((ROOT / here).read_text(encoding="utf-8"))
        Path(written).write_text(text, encoding="utf-8")
        return written, copied

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        needed = runtime_files()
        return [module for module in found if Path(module[2]).resolve().relative_to(ROOT) in needed]


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [
        one for one in project["dependencies"] if re.split(r"[^\w.-]", one)[0] in DEPENDENCIES
    ]
    said = runpy.run_path(str(ROOT / "tools" / "metadata.py"))
    with TemporaryDirectory() as scratch:  # what an earlier build left is in no wheel
        setup(
            **said["arguments"](ROOT / "tools" / "runtime" / "README.md"),
            install_requires=needed,
            packages=sorted(
                {".".join((RUNTIME, *file.parent.parts[1:])) for file in runtime_files()}
            ),
            package_dir={RUNTIME: f"../../{PACKAGE}"},
            package_data={RUNTIME: ["py.typed"]},
            exclude_package_data={RUNTIME: ["*.pyi"]},
            cmdclass={"build_py": RuntimeFiles},
            options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
        )
