"""What a spatial problem against chosen observers may ask for. Nothing of how it is solved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.views import Observer
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.random_mixing import RandomMixing


def check_observers(observers: Sequence[Any], *, nodes: int) -> None:
    """They are observers, of a graph of so many nodes.

    Raises:
        InputError: naming ``observers`` or ``observers.nodes``.
    """
    for observer in observers:
        if not isinstance(observer, Observer):
            expected = "observers, as noisedesign.privacy.views makes them"
            raise InputError("observers", expected=expected, got=_checks.describe(observer))
        named = (*observer.coalition, *observer.listened, *observer.knows.silenced)
        if max(named, default=0) >= nodes:
            raise InputError(
                "observers.nodes", expected=f"nodes 0 to {nodes - 1}", got=str(max(named))
            )


def caps_against_observers(
    max_variance: Any,
    *,
    nodes: int,
    structure: SpaceStructure,
    random: RandomMixing | None,
    min_variance: Any,
) -> Array:
    """The caps of such a problem, shape (n,), squared noise.

    Below 1 / budget they may still be kept, as observers do not see everything.

    Raises:
        InputError: naming what the search cannot take, or ``limits.max_variance``.
    """
    for field, given, expected in (
        ("structure.space", str(structure) if structure.restricts else None, '"dense"'),
        ("random", None if random is None else "random mixing", "the same W at every step"),
        ("limits.min_variance", None if min_variance is None else "a floor", "nothing"),
    ):
        if given is not None:
            raise InputError(field, expected=f"{expected} against chosen observers", got=given)
    if max_variance is None:
        raise InputError(
            "limits.max_variance",
            expected="a cap on the variance of noise against observers",
            got="nothing",
            remedy="Noise that none of them sees through, and that mixing cancels, "
            "would grow without bound.",
        )
    return _checks.positive_vector(max_variance, field="limits.max_variance", length=nodes)
