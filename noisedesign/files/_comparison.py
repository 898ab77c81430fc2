"""Whether two problems are the same, up to rounding."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.files._described import error_entry, random_entry
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem


def differences(stored: Problem, rebuilt: Problem, *, tolerance: float) -> list[str]:
    """Names of what differs between two problems; matrices may, by a relative ``tolerance``.

    H takes work to form, and is compared only where nothing else differs.
    """
    if isinstance(stored, SpaceProblem) and isinstance(rebuilt, SpaceProblem):
        words = {
            "structure": stored.structure == rebuilt.structure,
            "budget": np.array_equal(stored.budget, rebuilt.budget),
            "max_variance": _same_limit(stored.max_variance, rebuilt.max_variance),
            "min_variance": _same_limit(stored.min_variance, rebuilt.min_variance),
            "participation": stored.participation == rebuilt.participation,
            "observers": stored.observers == rebuilt.observers,
        }
    elif isinstance(stored, TimeProblem) and isinstance(rebuilt, TimeProblem):
        words = {
            "structure": stored.structure == rebuilt.structure,
            "participation": stored.participation == rebuilt.participation,
            "workload": stored.workload == rebuilt.workload,
        }
    elif isinstance(stored, SpaceTimeProblem) and isinstance(rebuilt, SpaceTimeProblem):
        words = {
            "budget": np.array_equal(stored.budget, rebuilt.budget),
            "max_variance": _same_limit(stored.max_variance, rebuilt.max_variance),
            "participation": stored.participation == rebuilt.participation,
            "structure": (stored.time, stored.space, stored.joint)
            == (rebuilt.time, rebuilt.space, rebuilt.joint),
        }
    else:
        return ["design"]
    words |= {
        "name": stored.name == rebuilt.name,
        "nodes": stored.nodes == rebuilt.nodes,
        "privacy": stored.privacy == rebuilt.privacy,
        "mixing": relative_difference(stored.mixing, rebuilt.mixing) <= tolerance,
        "error": error_entry(stored) == error_entry(rebuilt),
        "mixing randomness": random_entry(stored) == random_entry(rebuilt),
    }
    different = [name for name, equal in words.items() if not equal]
    if different or isinstance(stored, SpaceTimeProblem):
        return different
    assert not isinstance(rebuilt, SpaceTimeProblem)
    same = relative_difference(stored.gram, rebuilt.gram) <= tolerance
    return [] if same else ["gram"]


def _same_limit(a: Array | None, b: Array | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def relative_difference(a: Array | None, b: Array | None) -> float:
    """Largest difference of two arrays relative to the largest entry; infinite for two shapes."""
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a - b).max() / np.abs(b).max())
