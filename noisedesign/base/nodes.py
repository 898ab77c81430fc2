"""Nodes as users name them: an integer is a row of W, a text is a name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError, did_you_mean

Node = int | str  # an integer is the number of a row of W, a string the name of a node


class Row(int):
    """The number of a row of W that is meant as one, whatever nodes are called."""


FEW = 5  # names that an error lists: enough to see what they look like


def is_node(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def few_of(names: Sequence[str]) -> str:
    """The first names, as an error lists them."""
    return ", ".join([*islice(names, FEW), *(["..."] if len(names) > FEW else [])])


def row_of(node: Any, names: Sequence[str], *, field: str) -> int:
    """The row of W of a node."""
    if isinstance(node, str):
        if node in names:
            return Row(names.index(node))
        if not names:
            expected = "the number of a row, as nodes have no names here"
            raise InputError(field, expected=expected, got=repr(node))
        expected = f"one of the {len(names)} nodes {few_of(names)}"
        raise InputError(field, expected=expected, got=repr(node), remedy=did_you_mean(node, names))
    if not isinstance(node, int | np.integer) or isinstance(node, bool):
        expected = "the name of a node, or the number of its row"
        raise InputError(field, expected=expected, got=_checks.describe(node))
    _check_no_name(node, names, field=field)
    if not 0 <= node < len(names):
        expected = f"row numbers 0 to {len(names) - 1}"
        remedy = "A node's name is given as a string."
        raise InputError(field, expected=expected, got=str(node), remedy=remedy)
    return Row(node)


def _check_no_name(node: Any, names: Sequence[str], *, field: str) -> None:
    """Refuse the number of a row that is another node's name: a loop over nodes called 1, 2, ...
    would take each for its neighbour."""
    name = str(node)
    if isinstance(node, Row) or name not in names or list(names).index(name) == node:
        return
    here = f"row {name} is node {names[node]}" if 0 <= node < len(names) else f"no row {name}"
    expected = "a node by its name, a string, where another row has that number for a name"
    raise InputError(field, expected=expected, got=f"{name} ({here})", remedy=f"Give {name!r}.")


def as_row(node: Any, names: Sequence[str], *, field: str) -> int:
    """The row of a node by its name, or a number that whoever knows how many there are checks."""
    if isinstance(node, str):
        return row_of(node, names, field=field)
    row = _checks.positive_int(node, field=field, minimum=0)
    _check_no_name(node, names, field=field)
    return Row(row)
