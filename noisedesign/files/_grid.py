"""A grid: dotted keys of a problem file, the values each takes, and the problems they make."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from noisedesign.base.checks import InputError, describe

MOST_PROBLEMS = 100_000
"""A larger grid is a mistake: at a second a problem it is more than a day of work."""

Parameters = dict[str, Any]


def grid_of(table: Any) -> dict[str, list[Any]]:
    """Dotted keys and their values, from a [grid] table, whether its keys are quoted or not.

    Raises:
        InputError: naming ``grid`` or ``grid.<key>``: no table, nothing in it, no list, an empty
            list, a value that is listed twice, more than MOST_PROBLEMS problems.
    """
    if not isinstance(table, dict):
        raise InputError("grid", expected="a [grid] table", got=_got(table))
    grid = dict(_flat(table))
    if not grid:
        raise InputError(
            "grid",
            expected='keys of a problem and their values, as "graph.nodes" = [20, 40]',
            got="none",
        )
    size = math.prod(len(values) for values in grid.values())
    if size > MOST_PROBLEMS:
        raise InputError("grid", expected=f"at most {MOST_PROBLEMS} problems", got=f"{size}")
    return grid


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    for key, value in table.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{dotted}.")
            continue
        field = f"grid.{dotted}"
        if not isinstance(value, list) or not value:
            raise InputError(field, expected="a non-empty list of values", got=describe(value))
        # As text, since 1, 1.0 and true are the same to Python and not in a problem file.
        texts = [json.dumps(item, sort_keys=True, default=str) for item in value]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise InputError(field, expected="every value once", got=f"{text} twice")
        yield dotted, value


def _got(value: Any) -> str:
    return "nothing" if value is None else describe(value)


def points(
    base: Mapping[str, Any], grid: Mapping[str, list[Any]]
) -> Iterator[tuple[Parameters, dict[str, Any]]]:
    """Every point of the grid: its parameters, and the tables of the base problem with them set.

    The last key varies fastest.

    Raises:
        InputError: naming ``grid.<key>``: part of the key is not a table.
    """
    for values in itertools.product(*grid.values()):
        parameters = dict(zip(grid, values, strict=True))
        tables = copy.deepcopy(dict(base))
        # Whole tables before keys in them: [graph] may be swept beside "graph.weights".
        for key in sorted(parameters, key=lambda key: key.count(".")):
            _set(tables, key, copy.deepcopy(parameters[key]))
        yield parameters, tables


def _set(tables: dict[str, Any], dotted: str, value: Any) -> None:
    *path, last = dotted.split(".")
    here: Any = tables
    for step in path:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise InputError(
                f"grid.{dotted}",
                expected="the dotted name of a key of the problem",
                got=f"{step} = {describe(here)}, which is no table",
            )
    here[last] = value
