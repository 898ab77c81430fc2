"""Random instances of what else is proved with every rounding, and what is true of them: bounds
under gradients that answer to models, bounds for every mixing of a graph, noise without an end and
streaming noise (:mod:`tests.support.rigorous_instances` has the families)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from noisedesign.base.enclosures import Interval
from noisedesign.certify.rigorous import UNPROVED, Judged, NotProvedError
from noisedesign.privacy.responses.game import Game, _active
from noisedesign.privacy.responses.multipliers import Multipliers, Recursion, minimized
from noisedesign.privacy.responses.proof import bound_above, enclosed_stages
from noisedesign.privacy.views.mechanism import Step
from tests.support.balls import above, arb, arb_mat, cholesky, diagonal, mat, part
from tests.support.rigorous_instances import Instance, Rng, positive, unit
from tests.support.rigorous_truths import balls, gram_of, inverse

Array = np.ndarray

# --- gradients that answer to models --------------------------------------------------------------


def matrix(rng: Rng, rows: int, columns: int) -> Array:
    """Of any rank, with zeros, rows of other units, or singular values far apart."""
    found = rng.standard_normal((rows, columns))
    kind = rng.integers(4)
    if kind == 0:
        found = rng.integers(-1, 2, (rows, columns)).astype(float)
    if kind == 1 and min(rows, columns):
        left, values, right = np.linalg.svd(found, full_matrices=False)
        far = 10 ** (-float(rng.choice([3.0, 8.0, 15.0])) * rng.random(len(values)))
        found = (left * values * far) @ right
    if kind == 2:
        found *= np.sqrt(positive(rng, rows))[:, None]
    return np.where(rng.random(found.shape) < 0.2, 0.0, found)


def of_responses(rng: Rng) -> Instance:
    """Any system of two to four steps with remembered noise or none, and multipliers that are
    feasible, or nearly so, or found."""
    nodes, horizon = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    size, rows = nodes + int(rng.integers(0, 3)), int(rng.integers(0, 4))
    draws, scale = rows + int(rng.integers(0, 3)), unit(rng) ** 0.5
    constant = bool(rng.random() < 0.5)
    steps = [
        Step(
            matrix(rng, size, size),
            matrix(rng, rows, size),
            matrix(rng, size, draws) * scale,
            matrix(rng, rows, draws) * scale,
        )
        for _ in range(1 if constant else horizon)
    ]
    game = Game(
        system=lambda t: steps[t % len(steps)],
        horizon=horizon,
        nodes=np.arange(nodes),
        constant=constant,
        active=_active(steps, horizon)[:, :nodes],
    )
    pattern = np.flatnonzero(rng.random(horizon) < 0.6).tolist() or [0]
    rho, radius = float(rng.uniform(-1, 1)), float(rng.choice([0.0, 0.5, 1.0, 1e-9]))
    stages = enclosed_stages(game)
    if stages is None:
        return nothing()
    recursion = Recursion(
        game=game,
        stages=game.stages(stages),
        victim=int(rng.integers(nodes)),
        pattern=pattern,
        rho=rho,
        radius=radius,
    )
    start = recursion.start(float(rng.choice([0.9, 0.1, 1e-4])))
    if start is None:
        return nothing()
    if rng.random() < 0.3 and recursion.evaluate(start, 1e-3) is not None:
        start = minimized(recursion, start, weight=1e-3, most=30)
    found = recursion.multipliers(start)
    nearer = 10 ** rng.uniform(0, 2) if rng.random() < 0.5 else 1.0
    found = Multipliers(found.nodes * nearer, found.record * nearer)

    def truth() -> Any:
        """What the multipliers are worth, or if it were more what an attack is."""
        known = [in_balls(game.system(t)) for t in range(horizon)]
        worth = worth_of(recursion, found, known)
        return above([worth, *(attacked(rng, recursion) for _ in range(3))])

    def judge() -> Judged:
        return Judged(objective=UNPROVED, sensitivity_squared=bound_above(recursion, found, stages))

    return Instance(judge=judge, error=lambda: arb(0), sensitivity=truth)


def nothing() -> Instance:
    """One of which nothing is claimed."""

    def judge() -> Judged:
        raise NotProvedError("nothing is known")

    return Instance(judge=judge, error=lambda: arb(0), sensitivity=lambda: arb(0))


def in_balls(step: Step) -> tuple[Any, Any, Any] | None:
    """Upsilon, F with a bar and Xi of theorem F4; None where Theta is not of full row rank."""
    size, rows = len(step.transition), len(step.output)
    f, q = mat(step.transition), any_mat(step.state_noise)
    if not rows:
        return arb_mat(size, size), f, q * q.transpose()
    gamma, theta = mat(step.output), any_mat(step.output_noise)
    middle = inverse(theta * theta.transpose())
    if middle is None:
        return None
    back = theta.transpose() * middle
    rest = q - q * back * theta
    return gamma.transpose() * middle * gamma, f - q * back * gamma, rest * q.transpose()


def any_mat(a: Array) -> Any:
    """The same in balls, also of no columns."""
    return mat(a) if a.size else arb_mat(*a.shape)


def worth_of(recursion: Recursion, found: Multipliers, known: list[Any]) -> Any:
    """[Pi_s]_qq and prices as theorem F4 has them; infinite where the multipliers fail."""
    game, infinite = recursion.game, arb("inf")
    if any(one is None for one in known):
        return infinite
    first, nodes, size = recursion.pattern[0], len(game.nodes), known[0][1].nrows()
    carried = diagonal([arb(recursion.rho)] * nodes + [arb(1)] * (size - nodes))
    one, pi = diagonal([arb(1)] * size), known[-1][0]
    for t in range(game.horizon - 1, first, -1):
        own = balls(found.nodes[t])
        slack = [*own, *[arb(0)] * (size - nodes)]
        slack[recursion.victim] += arb(float(found.record[t]))
        root = diagonal([x.sqrt() for x in slack])
        inside = one - root * pi * root
        pivots = cholesky((inside + inside.transpose()) / 2)
        if not all(pivots[i, i] > 0 for i in range(size)):
            return infinite
        far = carried * (pi + pi * root * inside.inv() * root * pi) * carried
        for i, x in enumerate(own):
            if x > 0:
                far[i, i] += arb(recursion.radius) ** 2 / x
            elif any(pi[i, j] != 0 for j in range(size)):
                return infinite
        seen, through, free = known[t - 1]
        pi = seen + through.transpose() * far * (one + free * far).inv() * through
    prices = (1 / arb(float(found.record[t])) for t in recursion.pattern[1:])
    return pi[recursion.victim, recursion.victim] + sum(prices, arb(0))


def attacked(rng: Rng, recursion: Recursion) -> Any:
    """a^T (B B^T)^-1 a of all observations, under responses at the ends of what is allowed."""
    game, q = recursion.game, recursion.victim
    size, draws = game.system(0).state_noise.shape
    a, b, seen, noise = arb_mat(size, 1), arb_mat(size, draws * game.horizon), [], []
    for t in range(game.horizon):
        step = game.system(t)
        ends = [arb(recursion.rho) + arb(recursion.radius) * int(rng.choice([-1, 1])) for _ in game.nodes]
        answer = diagonal([*ends, *[arb(1)] * (size - len(ends))])
        a, b = answer * a, answer * b
        if t in recursion.pattern:
            a[q, 0] += int(rng.choice([-1, 1]))
        now = arb_mat(draws, draws * game.horizon)
        for i in range(draws):
            now[i, t * draws + i] = arb(1)
        if len(step.output):
            h = mat(step.output)
            seen += (h * a).tolist()
            noise += (h * b + any_mat(step.output_noise) * now).tolist()
        f = mat(step.transition)
        a, b = f * a, f * b + any_mat(step.state_noise) * now
    if not seen:
        return arb(0)
    signal, spread = arb_mat(seen), arb_mat(noise)
    middle = inverse(spread * spread.transpose())
    return arb(0) if middle is None else (signal.transpose() * middle * signal)[0, 0]


OTHERS: dict[str, Callable[[Rng], Instance]] = {"responses": of_responses}
