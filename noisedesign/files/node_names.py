"""Nodes as users name them: row numbers and names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from noisedesign.base.checks import InputError
from noisedesign.files._schema_errors import did_you_mean

SHOWN = 5
"""Names listed where one is not known: enough to see what they look like."""


def row_of(node: int | str, names: Sequence[str], *, field: str) -> int:
    """The row of W of a node: an integer is that row itself, a string the name of a node.

    Raises:
        InputError: naming ``field``: no such row, no such name.
    """
    if isinstance(node, str):
        if node in names:
            return names.index(node)
        listed = ", ".join(islice(names, SHOWN)) + ", ..." * (len(names) > SHOWN)
        remedy = did_you_mean(node, names)
        raise InputError(
            field, expected=f"one of the {len(names)} nodes {listed}", got=repr(node), remedy=remedy
        )
    if not 0 <= node < len(names):
        raise InputError(
            field,
            expected=f"row numbers 0 to {len(names) - 1}",
            got=str(node),
            remedy="A node's name is given as a string.",
        )
    return node
