"""Accounts of gradients that answer to models, before observers who see a part of a run
(docs/runs.md, theorem 4): the :mod:`.game`, :mod:`.multipliers`, their :mod:`.proof`, :mod:`.worst`
responses, and :mod:`.magnitudes` where that is too much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array
from noisedesign.privacy.responses.game import Game, game_of
from noisedesign.privacy.responses.magnitudes import Magnitudes
from noisedesign.privacy.responses.multipliers import Recursion, minimized
from noisedesign.privacy.responses.proof import Enclosed, bound_above, enclosed_stages
from noisedesign.privacy.responses.worst import Worst
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.system.participation import Participation

WAYS = ((1e-3, 1e-4), (1e-1, 1e-2, 1e-3, 1e-4), (1e-2, 1e-3, 1e-4))
"""Weights of the barrier, over the bound and the number of multipliers; later ways are tried where
a gap is left. Small first ones may stop at the edge, smaller last ones gain nothing."""

EVALUATIONS = 1000  # for each weight; with a third of them one of the shipped bounds is 1 % larger
TIGHT = 2e-3  # gap, relative, above which another way is tried
MANY_NODES = 100  # nodes above which one way and a tenth of the evaluations, .1 s each, are tried

MOST_PRODUCTS = 2e8  # nodes squared times steps that a bound by magnitudes takes two minutes for
MANY_PATTERNS = 20_000  # patterns that are compared, some seconds; of more no bound is looked for
FEW_PATTERNS = 8  # patterns that a bound by magnitudes takes: each costs as much as the first


def responsive(
    mechanism: LinearMechanism,
    known: tuple[int, ...],
    victims: Sequence[int],
    participation: Participation,
    responses: Responses,
) -> Iterator[tuple[float, float]]:
    """A proved bound and what responses reach, both squared, of every victim in turn."""
    game = game_of(mechanism, known)
    enclosed = None if game is None else enclosed_stages(game)
    if game is None or enclosed is None:
        yield from _by_magnitudes(mechanism, known, victims, participation, responses)
        return
    for victim in victims:
        found = _of_victim(game, enclosed, game.place(victim), participation, responses)
        if math.isinf(found[0]):
            (found,) = _by_magnitudes(mechanism, known, [victim], participation, responses)
        yield found


def _by_magnitudes(
    mechanism: LinearMechanism,
    known: tuple[int, ...],
    victims: Sequence[int],
    participation: Participation,
    responses: Responses,
) -> Iterator[tuple[float, float]]:
    """The bounds where there are no multipliers; infinite of what is too large for these too."""
    nodes = np.setdiff1d(np.arange(len(mechanism.transition)), known)
    patterns = _different(
        len(mechanism.steps) == 1, participation, np.ones(mechanism.horizon, bool)
    )
    found = None
    if len(nodes) ** 2 * mechanism.horizon <= MOST_PRODUCTS and len(patterns) <= FEW_PATTERNS:
        growth = abs(responses.rho) + responses.radius
        found = Magnitudes.of(mechanism, nodes, growth=growth)
    if found is None:
        yield from [(math.inf, 0.0)] * len(victims)
        return
    for squared in found.bounds(np.searchsorted(nodes, victims), patterns):
        yield float(squared), 0.0


def _of_victim(
    game: Game,
    enclosed: list[Enclosed],
    victim: int,
    participation: Participation,
    asked: Responses,
) -> tuple[float, float]:
    patterns = _different(game.constant, participation, game.active[:, victim])
    if len(patterns) > min(1000, game.most_patterns):  # about a second each
        return math.inf, 0.0
    stages = game.stages(enclosed)
    low, high = asked.rho - asked.radius, asked.rho + asked.radius
    searches = [
        Worst(game=game, stages=stages, victim=victim, pattern=pattern, low=low, high=high)
        for pattern in patterns
    ]
    # The worst pattern first: the others then only have to be proved no worse.
    searches.sort(key=lambda search: -search.first_look())
    worst, lower = 0.0, 0.0
    for search in searches:
        recursion = Recursion(
            game=game,
            stages=stages,
            victim=victim,
            pattern=search.pattern,
            rho=asked.rho,
            radius=asked.radius,
        )
        least, reached, start = math.inf, 0.0, _feasible(recursion)
        if start is None:
            return math.inf, 0.0
        for weights in WAYS if len(game.nodes) <= MANY_NODES else WAYS[:1]:
            enough = worst * (1 - 1e-4)
            found, x = _certified(recursion, enclosed, start, weights, enough=enough)
            if math.isinf(found):  # another way may end where a proof holds
                continue
            before, least = least, min(least, found)
            if least <= worst or before < least * (1 + TIGHT):
                break
            reached = max(reached, search.on_the_line(_starts(recursion, x))[0])
            if least < reached * (1 + TIGHT):
                break
        if math.isinf(least):
            return math.inf, 0.0
        if least > max(worst, reached * (1 + TIGHT)):
            reached = max(reached, search.in_space())
        worst, lower = max(worst, least), max(lower, reached)
    return worst, min(lower, worst)


def _different(
    constant: bool, participation: Participation, arrives: NDArray[np.bool_]
) -> list[tuple[int, ...]]:
    """Patterns, of steps from which something arrives, that no other covers, moved or not."""
    found: set[tuple[int, ...]] = set()
    for pattern in participation.maximal_patterns():
        if kept := tuple(t for t in pattern if arrives[t]):
            found.add(kept)
        if len(found) > MANY_PATTERNS:  # too many to bound: none may be left out
            return sorted(found)
    moved: dict[tuple[int, ...], tuple[int, ...]] = {}
    for pattern in sorted(found, reverse=constant):
        # The earliest comes last, and takes the place of those that it covers.
        moved[tuple(t - pattern[0] for t in pattern) if constant else pattern] = pattern
    sets = {key: set(key) for key in moved}
    return sorted(
        pattern
        for key, pattern in moved.items()
        if not any(sets[key] < sets[other] and moved[other][0] <= pattern[0] for other in moved)
    )


def _certified(
    recursion: Recursion,
    enclosed: list[Enclosed],
    x: Array,
    weights: Sequence[float],
    *,
    enough: float,
) -> tuple[float, Array]:
    """The least bound that is proved, or about ``enough``, and its multipliers as logarithms."""
    most = EVALUATIONS if len(recursion.game.nodes) <= MANY_NODES else EVALUATIONS // 10
    for weight in weights:
        x = minimized(recursion, x, weight=weight, most=most, enough=enough)
        now = recursion.evaluate(x, 0.0)
        if now is not None and now.bound <= enough:
            break
    best = math.inf
    # Larger least multipliers lose less to rounding, and more of the bound; lower ones are proved
    # to be feasible sooner.
    for lifted in (0.0, 1e-6, 1e-5, 1e-4):
        for shrunk in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
            found = recursion.multipliers(x - shrunk).lifted(lifted)
            value = bound_above(recursion, found, enclosed)
            if value < math.inf:
                break
        best = min(best, value)
    return best, x


def _feasible(recursion: Recursion) -> Array | None:
    """Logarithms of first multipliers, at the best of some shares of what is feasible, or None."""
    best, least = None, math.inf
    for share in (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.1, 1e-2, 1e-3):
        x = recursion.start(share)
        found = None if x is None else recursion.evaluate(x, 0.0)
        if found is not None and found.bound < least:
            best, least = x, found.bound
    return best


def _starts(recursion: Recursion, x: Array) -> list[Array]:
    """First responses of a search: the worst by multipliers, and on small graphs five others."""
    shape = recursion.game.active.shape
    low, high = recursion.rho - recursion.radius, recursion.rho + recursion.radius
    drawn = np.random.default_rng(0).uniform(low, high, (2, *shape))
    flat = [np.full(shape, value) for value in (high, (low + high) / 2, low)]
    if len(recursion.game.nodes) > MANY_NODES:
        return [recursion.worst_responses(x)]
    return [recursion.worst_responses(x), *flat, *drawn]
