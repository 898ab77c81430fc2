"""The problem of a design file once more, from the text stored in it, and from nothing else.

The text may be anybody's: it opens no file, asks no network, and builds nothing larger than the
arrays that came with it.
"""

from __future__ import annotations

from pathlib import Path

from noisedesign.base.checks import InputError
from noisedesign.files.graph_tables import FASTEST
from noisedesign.files.manifest import differences
from noisedesign.files.problem_file import AnyProblemFile, tables_of
from noisedesign.program.problem import Problem
from noisedesign.system.random_mixing import RandomMatchings

MOST_FASTEST = 60
"""Nodes of a graph whose fastest mixing is found again: seconds, where 100 take minutes."""

_OUTSIDE = ("file", "clusters", "ego")
"""Keys of tables that name data which is not in the text."""

_TOLD = {"horizon": "error"}
"""What differs where an attribute of the problem does, if that has another name."""


class NotRebuiltError(InputError):
    """The text says a problem that is not rebuilt here: of data elsewhere, or with much work."""


def differences_from_text(text: str, *, stored: Problem, tolerance: float) -> list[str]:
    """Names of what the problem in ``text`` has otherwise than ``stored``.

    Raises:
        NotRebuiltError: naming the key that keeps it from being built.
        InputError: the text is no problem.
    """
    file = tables_of(text)
    _check_inside(file)
    if different := _other_sizes(file, stored):
        return different
    graph = getattr(file, "graph", None)
    if getattr(graph, "weights", None) == FASTEST and len(stored.nodes) > MOST_FASTEST:
        raise NotRebuiltError(
            "graph.weights",
            expected=f"the fastest mixing of at most {MOST_FASTEST} nodes",
            got=f"{len(stored.nodes)}",
        )
    return differences(stored, file.problem(Path(), stored.mixing), tolerance=tolerance)


def _check_inside(file: AnyProblemFile) -> None:
    for name in type(file).model_fields:
        for key in _OUTSIDE:
            value = getattr(getattr(file, name), key, None)
            if value is not None:
                raise NotRebuiltError(
                    f"{name}.{key}", expected="nothing outside the design file", got=repr(value)
                )


def _other_sizes(file: AnyProblemFile, stored: Problem) -> list[str]:
    """What decides how much there is to build, where it is not as in the arrays."""
    if file.design != stored.axes:
        return ["design"]
    nodes = None if file.graph is None else file.graph.size
    drawn = file.mixing is not None and file.mixing.matching is not None
    found = {"nodes": nodes in (None, len(stored.nodes))}
    found |= {name: value == getattr(stored, name) for name, value in file.sizes().items()}
    found["mixing randomness"] = drawn == isinstance(stored.random, RandomMatchings)
    return [_TOLD.get(name, name) for name, same in found.items() if not same]
