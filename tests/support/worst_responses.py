"""Linear responses that a search finds to show much, as an attack on an account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.privacy import responses as search
from noisedesign.privacy.responses.game import game_of
from noisedesign.privacy.responses.multipliers import Recursion
from noisedesign.privacy.responses.proof import enclosed_stages
from noisedesign.privacy.responses.worst import Worst
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.views.mechanism import LinearMechanism


class Linear(NamedTuple):
    """Linear responses that show much: the squared sensitivity before them, the factors on the
    models of every node, shape (T, n), and the best seen changes of the record, shape (T,)."""

    squared: float
    factors: Array
    changes: Array


def worst_linear(
    mechanism: LinearMechanism,
    known: tuple[int, ...],
    victim: int,
    pattern: Sequence[int],
    responses: Responses,
) -> Linear | None:
    """Responses of scalar models that a search found, fixed in advance and 1 for ``known`` nodes,
    whose models are seen, where the record takes part at ``pattern``; None where there is none."""
    game = game_of(mechanism, known)
    enclosed = None if game is None else enclosed_stages(game)
    if game is None or enclosed is None:
        return None
    given: dict[str, Any] = {
        "game": game,
        "stages": game.stages(enclosed),
        "victim": game.place(victim),
        "pattern": tuple(pattern),
    }
    recursion = Recursion(**given, rho=responses.rho, radius=responses.radius)
    low, high = responses.rho - responses.radius, responses.rho + responses.radius
    x = search._feasible(recursion)
    starts = [] if x is None else search._starts(recursion, x)
    squared, found, changes = Worst(**given, low=low, high=high).on_the_line(starts)
    factors = np.ones((game.horizon, len(mechanism.transition)))
    factors[:, game.nodes] = found
    return Linear(squared, factors, changes)
