"""Random instances of what else is proved with every rounding, and what is true of them: bounds
under gradients that answer to models, bounds for every mixing of a graph, noise without an end and
streaming noise (:mod:`tests.support.rigorous_instances` has the families)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize

from noisedesign.base.enclosures import Interval
from noisedesign.base.monitor import Stop
from noisedesign.certify.rigorous import UNPROVED, Judged, NotProvedError
from noisedesign.design.proof import prove_streaming
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.families.unbounded.bound import judged, least_stddevs
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.forms.strategies import BandedInverse, BufferedToeplitz, ToeplitzStrategy
from noisedesign.privacy.responses.game import Game, _active
from noisedesign.privacy.responses.multipliers import Multipliers, Recursion, minimized
from noisedesign.privacy.responses.proof import bound_above, enclosed_stages
from noisedesign.privacy.views.mechanism import Step
from noisedesign.system.least_noise_bound import MixingProof, error_lower_bound, root_below
from noisedesign.system.workloads.toeplitz import PoleWorkload
from tests.support.balls import (
    above,
    arb,
    arb_mat,
    cholesky,
    diagonal,
    eigenvalues,
    in_time,
    inner,
    mat,
    nuclear,
    part,
)
from tests.support.rigorous_instances import (
    Instance,
    Rng,
    min_separation,
    mixing,
    positive,
    scheme,
    triangle,
    unit,
)
from tests.support.rigorous_truths import (
    balls,
    dot,
    even_most,
    gram_of,
    inverse,
    patterns_of,
    worst_pattern,
)

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
    if stages is None or not all(np.isfinite(x.mid).all() for stage in stages for x in stage):
        return nothing()
    recursion = Recursion(
        game=game,
        stages=game.stages(stages),
        victim=int(rng.integers(nodes)),
        pattern=pattern,
        rho=rho,
        radius=radius,
    )
    start = None
    with contextlib.suppress(np.linalg.LinAlgError):  # of a search, which claims nothing
        start = recursion.start(float(rng.choice([0.9, 0.1, 1e-4])))
        if start is not None and rng.random() < 0.3 and recursion.evaluate(start, 1e-3):
            start = minimized(recursion, start, weight=1e-3, most=30)
    if start is None:
        return nothing()
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
        ends = [
            arb(recursion.rho) + arb(recursion.radius) * int(rng.choice([-1, 1]))
            for _ in game.nodes
        ]
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


# --- every mixing of a graph ----------------------------------------------------------------------


def of_mixing(rng: Rng) -> Instance:
    """Multipliers of some W of a graph, or of its arcs, with the best prices of its sums."""
    n, capped = int(rng.integers(2, 6)), bool(rng.random() < 0.4)
    symmetric = bool(rng.random() < 0.6)
    w = mixing(rng, n, symmetric=True)
    if not symmetric and rng.random() < 0.5:  # of a cycle, exactly
        stays = int(rng.integers(1, 64)) / 64
        w = stays * np.eye(n) + (1 - stays) * np.roll(np.eye(n), 1, axis=1)
    tau = positive(rng, n) * unit(rng)
    weights = rng.random(n) * positive(rng, n) * unit(rng) if rng.random() < 0.5 else None
    cap = 10 ** rng.uniform(0, 8, n) / tau if capped else None
    nearest = np.linalg.norm(w - 1 / n, 2)
    norm = float(rng.choice([1.0, min(1.0, nearest * (1 + 1e-9)), rng.uniform(nearest, 1)]))
    v = np.minimum(rng.random(n) * positive(rng, n) * unit(rng) ** 0.5 / tau, 1e280)
    reading = np.ones(n) if weights is None else root_below(weights)
    level = float((reading**2).max())
    u = level * 10 ** rng.uniform(-9, -1, n) * rng.random(n) if capped else np.zeros(0)
    rows = [reading[:, None] * w, *([np.diag(np.sqrt(u))] if capped else [])]
    left, _, right = np.linalg.svd(np.vstack(rows) * np.sqrt(v), full_matrices=False)
    polar = left @ right * (1 + 10 ** rng.uniform(-16, -2) * rng.standard_normal((len(left), n)))
    gain = reading[:, None] * polar[:n] * np.sqrt(v)
    z = rng.standard_normal((n, n)) * float(np.abs(gain).max()) * rng.choice([0.0, 1e-3, 0.1])
    alpha, beta = prices_of(gain - z, allowed_of(w), symmetric=symmetric)
    columns = np.zeros(0) if symmetric else beta
    proof = MixingProof(
        norm=norm, budget=v, cap=u, polar=polar, distance=z, rows=alpha, columns=columns
    )

    def most() -> Any:
        """What the multipliers prove, or if it were less what they are worth of this W, or the
        error of independent noise under it."""
        read = balls(reading)
        exact = [arb(1)] * n if weights is None else balls(weights)
        if not all(a * a <= b for a, b in zip(read, exact, strict=True)):
            return arb(0)
        worth = [mixing_worth(proof, read, tau, cap, where=allowed_of(w))]
        if (known := doubly_stochastic(w)) is not None and within(known, norm):
            worth.append(mixing_worth(proof, read, tau, cap, where=known))
            own = [1 / x for x in balls(tau)]
            if cap is None or all(x <= y for x, y in zip(own, balls(cap), strict=True)):
                every = diagonal([x.sqrt() for x in exact]) * known
                worth.append(
                    sum((every[i, j] ** 2 * own[j] for i in range(n) for j in range(n)), arb(0))
                )
        return -above(-x for x in worth)

    def judge() -> Judged:
        raise NotProvedError("a bound alone")

    def bound(_: Judged | None) -> Interval:
        found = error_lower_bound(w, budget=tau, cap=cap, proof=proof, weights=weights)
        return Interval(found, math.inf)

    return Instance(
        judge=judge, error=lambda: arb(0), sensitivity=lambda: arb(0), bound=bound, most=most
    )


def allowed_of(w: Array) -> Array:
    """The links, and all nodes themselves."""
    return (w > 0) | np.eye(len(w), dtype=bool)


def prices_of(d: Array, allowed: Array, *, symmetric: bool) -> tuple[Array, Array]:
    """The best prices of the sums of W for <D, W>, about, by a linear program."""
    n, unit = len(d), float(np.abs(d).max()) or 1.0
    d = (d + d.T) / 2 if symmetric else d
    places = np.argwhere(allowed)
    limits = np.zeros((len(places), 2 * n + len(places)))
    for row, (i, j) in enumerate(places):
        limits[row, [i, n + j, 2 * n + row]] = 1.0, 1.0, -1.0
    cost = np.concatenate([-np.ones(2 * n), np.ones(len(places))])
    found = scipy.optimize.linprog(
        cost, limits, d[allowed] / unit, bounds=[(None, None)] * 2 * n + [(0, None)] * len(places)
    ).x
    alpha, beta = unit * found[:n], unit * found[n : 2 * n]
    return ((alpha + beta) / 2, beta) if symmetric else (alpha, beta)


def doubly_stochastic(w: Array) -> Any:
    """W in balls, its self weights what others leave; None where these are no such ones."""
    found = mat(w)
    for i in range(len(w)):
        found[i, i] = 1 - sum((arb(x) for j, x in enumerate(w[i].tolist()) if j != i), arb(0))
    columns = [sum(column, arb(0)) for column in found.transpose().tolist()]
    fits = all(x == 1 for x in columns) and all(found[i, i] >= 0 for i in range(len(w)))
    return found if fits else None


def within(w: Any, norm: float) -> bool:
    """Whether ||W - J||_2 is surely at most so much, as it always is at most 1."""
    n = w.nrows()
    away = w - arb_mat([[1 / arb(n)] * n] * n)
    return norm >= 1 or above(eigenvalues(gram_of(away))) <= arb(norm) ** 2


def mixing_worth(
    proof: MixingProof, reading: list[Any], tau: Array, cap: Array | None, *, where: Any
) -> Any:
    """<U, (L W; D_u^1/2) V^1/2>^2 / ||U||^2 over sum tau v, less sum c u, of one W, or the least of
    it over the links by the multipliers of their limits, ``where`` being these."""
    n, polar = len(tau), mat(proof.polar)
    roots = balls(np.sqrt(proof.budget))
    gain = diagonal(reading) * part(polar, range(n)) * diagonal(roots)
    if isinstance(where, np.ndarray):
        alpha, z = balls(proof.rows), mat(proof.distance)
        beta = alpha if proof.symmetric else balls(proof.columns)
        if proof.symmetric:
            gain, z = ((a + a.transpose()) / 2 for a in (gain, z))
        value = sum(alpha, arb(0)) + sum(beta, arb(0)) + sum(z.entries(), arb(0)) / n
        value -= arb(proof.norm) * nuclear(z)
        for i, j in np.argwhere(where).tolist():
            value -= (alpha[i] + beta[j] - gain[i, j] + z[i, j]).max(arb(0))
    else:
        value = inner(gain, where)
    charge = arb(0)
    if cap is not None:
        of_caps = balls(np.sqrt(proof.cap))
        value += sum((polar[n + i, i] * of_caps[i] * roots[i] for i in range(n)), arb(0))
        charge = sum((x**2 * y for x, y in zip(of_caps, balls(cap), strict=True)), arb(0))
    spent = sum((x**2 * y for x, y in zip(roots, balls(tau), strict=True)), arb(0))
    if not value > 0:
        return arb(0)
    return value**2 / above(eigenvalues(gram_of(polar))) / spent - charge


# --- noise without an end, and over any horizon ---------------------------------------------------


def of_unbounded(rng: Rng) -> Instance:
    """Buffers for prefix sums for ever, their decays far from one, or nearly one, or alike."""
    count, k, b = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 7))
    steps, weight = (k - 1) * b + int(rng.integers(1, 25)), np.array([unit(rng)])
    far = 10 ** (-float(rng.choice([0.5, 3.0, 12.0, 15.0])) * rng.random(count))
    decays = np.sort(np.where(rng.random(count) < 0.2, far, 1 - far))
    if rng.random() < 0.2:
        decays = decays[0] * (1 + 2.0**-52 * np.arange(count))
    shares = rng.random(count) * positive(rng, count)
    buffers = Buffers(scales=decays * shares / shares.sum() * rng.random(), decays=decays)
    if not buffers.falling:
        return nothing()
    least = least_stddevs(np.ones(1), weight, participations=k, separation=b, steps=steps)
    squared = buffers.proved_sensitivity(participations=k, separation=b)
    at = int(rng.integers(len(least.horizons)))
    scales, known = balls(buffers.scales), balls(decays)
    column = [arb(1)]
    for lag in range(steps - 1):
        terms = (s * x**lag for s, x in zip(scales, known, strict=True))
        column.append(sum(terms, arb(0)))

    def sensitivity() -> Any:
        """|c + c moved by b + ...|^2 of the column without an end, by products of two of them."""
        total = arb(0)
        for gap in (b * abs(i - j) for i in range(k) for j in range(k)):
            own = zip(scales, known, strict=True)
            total += 1 if gap == 0 else sum((s * x ** (gap - 1) for s, x in own), arb(0))
            for s, x in zip(scales, known, strict=True):
                later = zip(scales, known, strict=True)
                total += sum((s * r * y**gap / (1 - x * y) for r, y in later), arb(0))
        return total

    def ratio() -> Any:
        """The largest of all steps, over what is said of the least."""
        found, squares = arb(0), variances_of(column)
        whole = sensitivity() * arb(float(weight[0]))
        for t in range(least.first, steps + 1):
            now = max(i for i, horizon in enumerate(least.horizons) if horizon <= t)
            size = whole * squares[t - 1]
            found = found.max(size.sqrt() / arb(float(least.stddevs[now])))
        return found

    def most() -> Any:
        """What some noise does who knows the horizon; taking part once, the best mean error."""
        horizon = int(least.horizons[at])
        root = [arb(1)]
        for lag in range(1, horizon):
            root.append(root[-1] * (2 * lag - 1) / (2 * lag))
        none = [arb(1)] + [arb(0)] * (horizon - 1)
        found = []
        for c in (none, root, column[:horizon]):
            moved = [
                sum((c[t - j * b] for j in range(k) if t >= j * b), arb(0)) for t in range(horizon)
            ]
            found.append(dot(moved, moved) * variances_of(c)[-1])
        if k == 1 and horizon <= 8:
            found.append((nuclear(mat(np.tri(horizon))) / horizon) ** 2)
        return (-above(-x for x in found) * arb(float(weight[0]))).sqrt()

    def judge() -> Judged:
        asked: Any = {"least": least, "squared": squared, "steps": steps}
        proved = judged(buffers, np.ones(1), weight, **asked)
        return Judged(objective=Interval(0.0, proved.ratio), sensitivity_squared=squared)

    return Instance(
        judge=judge,
        error=ratio,
        sensitivity=sensitivity,
        bound=lambda _: Interval(float(least.stddevs[at]), math.inf),
        most=most,
    )


def variances_of(column: list[Any]) -> list[Any]:
    """The sums of squares of the prefix sums of the column of C^-1, C of this column, c_0 = 1."""
    noising, sums, found = [arb(1)], [arb(1)], [arb(1)]
    for t in range(1, len(column)):
        noising.append(-sum((column[j] * noising[t - j] for j in range(1, t + 1)), arb(0)))
        sums.append(sums[-1] + noising[-1])
        found.append(found[-1] + sums[-1] ** 2)
    return found


def of_streaming(rng: Rng) -> Instance:
    """Toeplitz strategies of a few numbers over few steps; a stated sensitivity may be any."""
    participation: Any = scheme(rng) if rng.random() < 0.5 else min_separation(rng)
    steps, count = participation.horizon, int(rng.integers(1, 4))
    poles = np.where(rng.random(count) < 0.5, 1.0, rng.uniform(-1, 1, count))
    workload = PoleWorkload(
        poles=poles, weights=positive(rng, count) * unit(rng) ** 0.3, horizon=steps
    )
    form: Any = rng.choice([ToeplitzStrategy, BandedInverse])
    if rng.random() < 0.5:
        scales = rng.random(count) * positive(rng, count)
        strategy: Any = BufferedToeplitz(
            scales=scales / scales.sum() * rng.random(),
            decays=rng.choice([rng.random(count), 1 - 10 ** rng.uniform(-16, 0, count)]),
            diagonal=unit(rng) ** 0.3,
        )
    else:
        given = triangle(rng, steps)[:, 0] * unit(rng) ** 0.3
        strategy = form(coefficients=given[: int(rng.integers(1, steps + 1))])
    squared = strategy.squared_sensitivity(participation).squared
    squared *= float(rng.choice([1.0, 1 + 1e-12, 0.5]))
    design = StreamingDesign(
        strategy=strategy,
        horizon=steps,
        workload=workload,
        participation=participation,
        squared_error=1.0,
        squared_sensitivity=squared,
        sensitivity_kind="upper-bound",
        lower_bound_of_unrestricted_optimum=float(rng.choice([0.0, 1e300])),
        stop=Stop.SOLVED,
        evaluations=0,
    )
    proof = prove_streaming(design)
    c, h = strategy.at(steps).dense(), mat(workload.gram())
    patterns, scale = patterns_of(participation), arb(squared)
    return Instance(
        judge=lambda: Judged(
            objective=proof.objective, sensitivity_squared=proof.sensitivity_squared
        ),
        error=lambda: inner(h, in_time(c)) * scale,
        sensitivity=lambda: worst_pattern(
            gram_of(mat(c)), patterns, [arb(squared)] * len(patterns)
        ),
        bound=lambda _: proof.lower_bound,
        most=even_most(h, participation),
    )


OTHERS: dict[str, Callable[[Rng], Instance]] = {
    "responses": of_responses,
    "mixing": of_mixing,
    "unbounded": of_unbounded,
    "streaming": of_streaming,
}
