"""MOSEK's own files, written by the ``mosek`` package, which needs no licence for it.

MOSEK reads the program from the Conic Benchmark Format and writes it as it holds it: an affine
conic constraint for every block, whose off-diagonal entries it multiplies by the root of two.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from noisedesign.base.atomic import StorageError, write_atomically
from noisedesign.base.checks import InputError
from noisedesign.conic.formats import cbf
from noisedesign.conic.program import ConicProgram

SUFFIXES = (".task", ".jtask", ".ptf")
DESCRIPTION = "MOSEK task: .task (binary), .jtask (JSON) or .ptf (text); needs the mosek package"


def write(program: ConicProgram, path: Path, *, description: str = "") -> Path:
    """Write a program in the kind of file that the ending of ``path`` names.

    Comments are not kept by MOSEK, but for the name of the task.

    Raises:
        InputError: the mosek package is not installed; see
            :func:`noisedesign.base.atomic.write_atomically`.
        StorageError: MOSEK could not write.
    """
    try:
        mosek = importlib.import_module("mosek")
    except ModuleNotFoundError:
        raise InputError(
            "format",
            expected="the mosek package, which writes its own files",
            got="none",
            remedy="pip install 'noisedesign[mosek]' (no licence is needed), or write a .cbf, "
            "which MOSEK reads.",
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        source = cbf.write(program, Path(folder, "model.cbf"), description=description)
        made = Path(folder, f"model{path.suffix.lower()}")
        try:
            with mosek.Env() as environment, environment.Task() as task:
                task.readdata(str(source))
                task.puttaskname(program.name)
                task.writedata(str(made))
        except mosek.Error as error:
            raise StorageError(path, OSError(f"MOSEK says {error}")) from error

        def fill(file: BinaryIO) -> None:
            with made.open("rb") as content:
                shutil.copyfileobj(content, file)

        return write_atomically(path, fill)
