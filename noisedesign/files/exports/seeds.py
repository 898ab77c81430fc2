"""Shared seeds as JSON: noise that nodes draw by themselves, without a trusted party.

At every step the members of a seed draw the same standard normal vector from it, and each adds its
own coefficient times that vector. So the sum over seeds of a a^T, a the coefficients, is R. The
file holds no seed: members agree on a key for each by themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_text
from noisedesign.base.checks import InputError, describe
from noisedesign.base.regular_files import read_regular
from noisedesign.design.design import Design, seed_plan_of
from noisedesign.files.array_files import require_own_description
from noisedesign.files.exported import (
    Exported,
    content_from,
    not_ours,
    parsed_metadata,
    require_protection,
    to_json,
)
from noisedesign.forms import Noise
from noisedesign.privacy.seeds import SeedPlan, SharedSeed
from noisedesign.system.rules import require_room

ACCEPTS = ("space", "space-time")
DESCRIPTION = "every seed with its members and coefficients, who holds which, and C (.json)"

_FIELD = "seeds file"
_NOTE = (
    "Coefficients are not squared. Numbers of seeds are places in the list, from 0. No seed is in "
    "this file: its members agree on a key that nobody else has, fresh for every run, and draw "
    "from a cryptographic generator with it, as noisedesign.noise does. SeedPlan.noise_of is for "
    "simulation, not for deployment."
)


def noise_of(design: Design) -> Noise:
    """C, where there is one, and the seeds that make up R."""
    require_protection(design)
    plan = seed_plan_of(design)
    difference = float(np.abs(plan.covariance() - design.covariance).max())
    # Rounding of sums of a few thousand products of float64.
    if not difference <= 1e-12 * float(np.abs(design.covariance).max()):
        got = f"a covariance that is {difference:.3g} away from theirs"
        remedy = "`noisedesign verify` says what else does not hold."
        raise InputError("design", expected="noise that its seeds make up", got=got, remedy=remedy)
    return replace(design.noise, space=plan)


def write(content: Exported, path: Path) -> tuple[Path, ...]:
    """Write ``seeds``, a list of ``members`` (names) and ``coefficients``, and ``held_by``.

    ``held_by`` maps every node to the numbers of its seeds in that list. Of noise in space and time
    ``arrays`` holds C and C^-1, or its bands, coefficients or buffers, as lists of numbers."""
    plan, names = content.noise.space, content.metadata["nodes"]
    assert isinstance(plan, SeedPlan)
    strategy = content.noise.strategy
    found: dict[str, Any] = content.metadata | {
        "note": f"{content.metadata['note']} {_NOTE}",
        "seeds": [
            {
                "members": [names[node] for node in seed.members],
                "coefficients": [float(a) for a in seed.coefficients],
            }
            for seed in plan.seeds
        ],
        "held_by": {name: list(plan.held_by(node)) for node, name in enumerate(names)},
    }
    if strategy is not None:
        found["arrays"] = {name: array.tolist() for name, array in strategy.arrays().items()}
    require_own_description(path, to="seeds")
    return (write_text(path, to_json(found | {"to": "seeds"})),)


def read(path: Path) -> Exported:
    """Read the seeds and, of noise in space and time, C."""
    plan, names = read_plan(path)
    require_room(len(names), field="export.nodes")
    metadata = parsed_metadata(path.read_bytes(), path)
    try:
        arrays = {
            name: np.array(values, dtype=np.float64)
            for name, values in metadata.get("arrays", {}).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise not_ours(path, f"arrays: {error}") from error
    made = content_from(arrays | {"covariance": plan.covariance()}, metadata)
    return replace(made, noise=replace(made.noise, space=plan))


def read_plan(path: str | Path) -> tuple[SeedPlan, tuple[str, ...]]:
    """The seeds of an exported file.

    Args:
        path: of a file of this exporter.

    Returns:
        The seeds, whose members are places in the names of the nodes; and these names.

    Raises:
        InputError: no such file, or not one of this exporter.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.files.exports import seeds
        >>> structure = nd.SpaceStructure(kind="edge-local")
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> design = nd.solve(nd.SpaceProblem.from_graph(ring, structure=structure)).design
        >>> written = nd.export(design, to="seeds", path="ring.json")
        >>> plan, names = seeds.read_plan(written[0])
        >>> names, bool(abs(plan.covariance() - design.covariance).max() < 1e-12)
        (('0', '1', '2', '3'), True)
    """
    path = _checks.path(path, field=_FIELD)
    text = read_regular(path, field=_FIELD, expected="a file of this exporter")
    try:
        content = json.loads(text.decode("utf-8"))
        names = tuple(content["nodes"])
        place = {name: node for node, name in enumerate(names)}
        seeds = tuple(
            SharedSeed(
                members=tuple(place[name] for name in seed["members"]),
                coefficients=np.array(seed["coefficients"], dtype=np.float64),
            )
            for seed in content["seeds"]
        )
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        got = f"{path}: {type(error).__name__}: {error}"
        raise InputError(_FIELD, expected="a file of this exporter", got=got) from error
    for seed in seeds:
        if (
            seed.coefficients.shape != (len(seed.members),)
            or not np.isfinite(seed.coefficients).all()
        ):
            expected = "one finite coefficient a member"
            raise InputError(_FIELD, expected=expected, got=describe(seed.coefficients))
    return SeedPlan(nodes=len(names), seeds=seeds), names
