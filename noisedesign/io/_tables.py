"""Tables that problem files and account files share: the graph, and the matrices they name."""

from __future__ import annotations

import tokenize
from pathlib import Path

import numpy as np

from noisedesign import _checks
from noisedesign._checks import Array, InputError
from noisedesign.datasets import ego_facebook
from noisedesign.graph import build_graph, mixing_matrix, node_names, read_edges
from noisedesign.io import _schema

_NPY_ERRORS = (ValueError, EOFError, MemoryError, SyntaxError, tokenize.TokenError)
"""What numpy raises on a damaged file: its header is read as Python source, and may claim any
amount of memory before the data turn out missing."""


def mixing_of(graph: _schema.Graph, *, folder: Path) -> tuple[Array, tuple[str, ...]]:
    """W, shape (n, n), and the names of its rows; no names where W itself is given.

    Raises:
        InputError: naming ``graph.<key>``.
    """
    match graph:
        case _schema.MatrixGraph():
            return load_npy(folder / graph.file, field="graph.file"), ()
        case _schema.EdgesGraph():
            built = read_edges(folder / graph.file)
        case _schema.EgoFacebookGraph():
            built = ego_facebook(graph.ego)
        case _:
            built = build_graph(**graph.model_dump(exclude={"weights"}))
    return mixing_matrix(built, weights=graph.weights), node_names(built)


def mixing_key(graph: _schema.Graph) -> str:
    """The key that an error about W is about."""
    return "graph.file" if isinstance(graph, _schema.MatrixGraph) else "graph.weights"


def load_npy(path: Path, *, field: str) -> Array:
    """A float64 matrix from a .npy file. Nothing is ever unpickled.

    Raises:
        InputError: naming ``field``: no such file, damaged, not a matrix of float64.
    """
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError(field, expected="a readable .npy file", got=got) from error
    except _NPY_ERRORS as error:
        raise InputError(
            field, expected="a complete .npy file of numbers", got=f"{path}: {error}",
            remedy="Write it with numpy.save from a float64 array; object arrays are refused.",
        ) from error  # fmt: skip
    return _checks.matrix(array, field=field)
