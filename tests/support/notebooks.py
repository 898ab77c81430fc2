"""Notebooks: sources in text, run by this interpreter and stored with what they print and draw.

``python -m tests.support.notebooks`` (``make notebooks``) runs ``notebooks/*.py`` and writes the
``.ipynb`` beside each; names given are those only. A notebook runs in an empty folder, its pictures
are SVG in the style of all pictures, and what is stored says nothing of the machine it ran on.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from noisedesign.files.picture_file import style
from tests.support import ROOT

FOLDER = ROOT / "notebooks"
SECONDS = 300
"""That a cell may take."""

METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

PICTURE, TABLE, TEXT = "image/svg+xml", "text/html", "text/plain"
KEPT = (PICTURE, TABLE, TEXT)
"""Of what a cell shows; text only where it is neither a picture nor a table."""

_SECONDS = re.compile(r"(seconds</th><td[^>]*>)[^<]*")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?\binf\b")


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def source(name: str) -> Any:
    """The notebook of a source, without outputs; cells are known by their places."""
    import jupytext
    import nbformat

    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.metadata = nbformat.from_dict(METADATA)
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place}", nbformat.from_dict({})
    return notebook


def stored(name: str) -> Any:
    import nbformat

    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def execute(notebook: Any, folder: Path) -> Any:
    """The notebook after its run in ``folder``.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an error.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as scratch:
        manager = KernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[_kernels(Path(scratch))]),
            connection_file=str(Path(scratch, "connection.json")),
        )
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(
            notebook, km=manager, timeout=SECONDS, resources=resources, record_timing=False
        )
        return client.execute()


def _kernels(scratch: Path) -> str:
    """A folder with one kernel: whatever others are registered here, this interpreter is it."""
    import matplotlib as mpl

    with style():
        settings = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value
            for name, value in mpl.rcParams.items()
            if value != mpl.rcParamsDefault[name] and not name.startswith("backend")
        }
    lines = [f"{name}: {value}\n" for name, value in settings.items()]
    (scratch / "matplotlibrc").write_text("".join(lines), encoding="utf-8")
    drawn = {"metadata": {"Creator": "noisedesign", "Date": None}, "bbox_inches": "tight"}
    spec = {
        "argv": [
            *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
            "--log-level=ERROR",
            "--InlineBackend.figure_formats={'svg'}",
            f"--InlineBackend.print_figure_kwargs={drawn}",
        ],
        "display_name": "this interpreter",
        "language": "python",
        "env": {
            "PYTHONPATH": str(ROOT),
            "IPYTHONDIR": str(scratch / "ipython"),
            "MATPLOTLIBRC": str(scratch),
            # Small matrices: threads that wait for each other on a busy machine cost more.
            "OPENBLAS_NUM_THREADS": "1",
        },
    }
    (scratch / "python3").mkdir()
    (scratch / "python3" / "kernel.json").write_text(json.dumps(spec))
    return str(scratch)


def kept(notebook: Any) -> Any:
    """What is stored of a notebook that ran."""
    import nbformat

    for cell in notebook.cells:
        _join_streams(cell)
        for output in cell.get("outputs", []):
            if "data" in output:
                shown = [kind for kind in KEPT if kind in output.data][:1]
                output.data = {kind: _SECONDS.sub(r"\1…", output.data[kind]) for kind in shown}
                output.metadata = nbformat.from_dict({})
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


def _join_streams(cell: Any) -> None:
    """Into how many pieces a text arrives is a matter of time."""
    joined: list[Any] = []
    for output in cell.get("outputs", []):
        last = joined[-1] if joined else None
        if last and last.output_type == output.output_type == "stream" and last.name == output.name:
            last.text += output.text
        else:
            joined.append(output)
    if "outputs" in cell:
        cell.outputs = joined


def shapes(notebook: Any) -> list[list[tuple[str, str]]]:
    """A list for each cell with code: kinds of what it shows, and its words, without any numbers,
    which rounding and other versions decide."""
    return [
        [shape for output in cell.outputs for shape in _shapes_of(output)]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _shapes_of(output: Any) -> list[tuple[str, str]]:
    if output.output_type == "stream":
        return [(output.name, _words(output.text))]
    if output.output_type == "error":
        return [("error", output.ename)]
    return [
        (kind, "" if kind == PICTURE else _words(content)) for kind, content in output.data.items()
    ]


def _words(text: str) -> str:
    return re.sub(r"[\s─]+", " ", _NUMBER.sub("0", _SECONDS.sub(r"\1…", text))).strip()


def main(chosen: list[str]) -> int:
    import nbformat

    for name in chosen or names():
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            found = kept(execute(source(name), Path(folder)))
        nbformat.write(found, FOLDER / f"{name}.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
