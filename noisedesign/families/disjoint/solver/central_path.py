"""Several participations, or one with caps, where H may be singular: the central path, by Newton.

With N = H + diag(w) the multipliers U_j of patterns and w of caps lead to the one X with X U X = N.
Where H is singular a block U_j becomes so too, X has null directions, and noise along them is free.
The room in the budgets is hence an unknown of its own, S_j >= 0, as is the room s below the caps,
and the equations are

    X_jj + S_j = Diag(y_j),  sum(y_j) = 1,    diag(X^-1) + s = cap,    U_j S_j = mu I,  w s = mu.

X with Diag(y_j) in the place of its blocks is feasible and positive definite, as S_j > 0, and worth
t = tr (U^1/2 N U^1/2)^1/2; the bound of U and w is t less (the number of unknown eigenvalues) mu. H
need not be regular: it is as if mu U^-1 were added to X, which is finite along every direction.

In the coordinates of :mod:`.frame` a change of the multipliers changes X and X^-1 by one division,
entry by entry, and the matrix of Newton's equations is about a sum of Schur products of few
matrices (:mod:`noisedesign.base.eigenvalue_pairs`): a preconditioner that leaves conjugate
gradients two or three steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from noisedesign.base import eigenvalue_pairs as pairs, linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.certify.program import DualPoint, Program
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.frame import Frame, longest
from noisedesign.families.disjoint.solver.pattern_pairs import ConstantDiagonal

MAX_EVALUATIONS = 80
SOLVED = 0.1  # error of a Newton system put up with, over mu, in the metric of the multipliers
ROWS = 32  # rows of its matrix formed at a time: so few that their parts stay in the cache
MOST_DENSE = 6000  # unknowns up to which the preconditioner is one matrix: four take 1.2 GB


class Path:
    """A program in the order of its patterns, and its unknowns as one vector: k^1/2 p_j, entries of
    U_j above the diagonal times 2^1/2, and w, so that inner products are those of matrices."""

    def __init__(self, program: Program) -> None:
        self.k, self.b = program.participation.epochs, program.participation.separation
        self.order = program.participation.patterns.ravel()
        self.size = len(self.order)
        self.gram = program.gram[np.ix_(self.order, self.order)]
        factor = _linalg.without_rounding(program.factor, gram=program.gram)
        rank = int(np.linalg.matrix_rank(factor))
        if rank < len(factor):
            factor = np.linalg.svd(factor, full_matrices=False)[0][:, :rank].T @ factor
        self.factor = np.ascontiguousarray(factor[:, self.order])
        self.cap = np.zeros(0) if program.cap is None else program.cap[self.order]
        self.count = self.size + len(self.cap)  # eigenvalues of multipliers and of rooms
        self.upper = np.triu_indices(self.k, 1)
        self.one = np.eye(self.k)

    def packed(self, blocks: Array, caps: Array) -> Array:
        i, j = self.upper
        prices = np.einsum("jii->j", blocks) / np.sqrt(self.k)
        return np.concatenate([prices, (np.sqrt(2) * blocks[:, i, j]).ravel(), caps])

    def unpacked(self, x: Array) -> tuple[Array, Array]:
        i, j = self.upper
        prices, above, caps = np.split(x, [self.b, self.b * (1 + len(i))])
        blocks = np.multiply.outer(prices / np.sqrt(self.k), self.one)
        blocks[:, i, j] = blocks[:, j, i] = above.reshape(self.b, -1) / np.sqrt(2)
        return blocks, caps

    def on_patterns(self, left: Array, right: Array) -> Array:
        """The blocks of A B^T on the patterns."""
        shape = self.b, self.k, -1
        return np.asarray(left.reshape(shape) @ right.reshape(shape).transpose(0, 2, 1))


class Point(NamedTuple):
    """Multipliers, their rooms, and what they lead to."""

    blocks: Array  # U, (b, k, k)
    caps: Array  # w
    room: Array  # S, (b, k, k)
    slack: Array  # s
    root: Array  # C with C C^T = U
    frame: Frame  # T; of B the rows that are capped
    grams: Array  # X_jj

    @property
    def trace(self) -> float:
        return float(self.frame.root.sum())


def mean_product(blocks: Array, caps: Array, room: Array, slack: Array) -> float:
    """mu, the mean of the eigenvalues of U_j S_j and of w s."""
    count = len(blocks) * blocks.shape[1] + len(caps)
    return float((np.sum(blocks * room) + caps @ slack) / count)


def evaluate(path: Path, blocks: Array, caps: Array, room: Array, slack: Array) -> Point:
    """The point, by one singular value decomposition; LinAlgError if a block is not positive."""
    factor = path.factor
    if len(caps):
        factor = np.asarray(np.linalg.cholesky(path.gram + np.diag(caps)).T, dtype=np.float64)
    root = np.asarray(np.linalg.cholesky(blocks), dtype=np.float64)
    split = factor.reshape(len(factor), path.b, path.k).transpose(1, 0, 2) @ root
    half = split.transpose(1, 0, 2).reshape(factor.shape)
    left, values, right = np.linalg.svd(half, full_matrices=False)
    roots = np.asarray(np.maximum(values, settings.EPS * values[0]), dtype=np.float64)
    outer = (factor.T @ left) / np.sqrt(roots)
    inner = (root @ (right.T / np.sqrt(roots)).reshape(path.b, path.k, -1)).reshape(outer.shape)
    frame = Frame(outer, inner[: len(caps)], roots)
    return Point(blocks, caps, room, slack, root, frame, path.on_patterns(outer, outer))


def bounds(path: Path, point: Point) -> tuple[float, float, Callable[[], Array]]:
    """Lower bound; objective of X made feasible; and that X, in the order of the patterns."""
    price = float(point.blocks[:, 0, 0].sum())
    lower = point.trace**2 / price - float(path.cap @ point.caps)
    shares = np.einsum("jii->ji", point.grams) + np.einsum("jii->ji", point.room)
    lift = shares[:, :, None] * path.one - point.grams
    # Half the room S is left where the equations are not met yet: X is not to be singular.
    least = np.linalg.eigvalsh(point.room)[:, :1] / 2
    shares = shares + np.maximum(0.0, least - np.linalg.eigvalsh(lift)[:, :1])
    used = shares.sum(axis=1)
    shares += ((used.max() - used) / path.k)[:, None]
    mixed = 0.0  # share of I / k in it, for the caps

    def feasible() -> Array:
        gram = point.frame.gram
        for j, share in enumerate(shares):
            here = slice(j * path.k, (j + 1) * path.k)
            gram[here, here] = np.diag(share)
        gram /= shares.sum(axis=1).max()
        return np.asarray((1 - mixed) * gram + mixed / path.k * np.eye(path.size))

    if len(path.cap) == 0:
        return lower, _objective(path, point, shares) * float(used.max()), feasible
    gram = feasible()
    covariance = _linalg.inverse_of_positive(gram)
    variance = np.diagonal(covariance)
    over = variance > path.cap
    if over.any():  # diag(X^-1) is convex in X, and k at X = I / k
        mixed = float(((variance - path.cap) / (variance - path.k))[over].max())
        covariance = _linalg.inverse_of_positive(feasible())
    return lower, _linalg.inner(path.gram, covariance), feasible


def _objective(path: Path, point: Point, shares: Array) -> float:
    """tr H (T T^T + K)^-1, K the blocks of Diag(shares) - T T^T on the patterns: it is
    tr Diag(r) Q (I + Q)^-1 with Q = T^T K^-1 T, as H = T Diag(r) T^T."""
    outer, root = point.frame.outer, point.frame.root
    kept = np.linalg.cholesky(shares[:, :, None] * path.one - point.grams)
    half = np.linalg.solve(kept, outer.reshape(path.b, path.k, -1)).reshape(outer.shape)
    values = np.linalg.svd(half, full_matrices=False)
    weight = np.square(values.S) / (1 + np.square(values.S))
    return float(weight @ np.square(values.Vh) @ root)


class System:
    """Newton's equations at a point, in the metric in which U and S are alike."""

    def __init__(self, path: Path, point: Point) -> None:
        self.path, self.point = path, point
        values, vectors = np.linalg.eigh(point.root.transpose(0, 2, 1) @ point.room @ point.root)
        scaled = point.root @ vectors
        metric = (scaled / np.sqrt(np.maximum(values, np.finfo(float).tiny))[:, None, :]) @ (
            scaled.transpose(0, 2, 1)
        )
        self.inverse = np.linalg.inv(point.blocks)
        self.barrier = np.linalg.inv(metric)  # W^-1, W S W = U
        self.held = point.slack / point.caps
        missing = point.grams - path.one / path.k
        self.slope = path.packed(missing, point.frame.variance - path.cap)
        self.precondition = self._dense() if len(self.slope) <= MOST_DENSE else self._blockwise()

    def change(self, x: Array) -> tuple[Array, Array]:
        """F of a step, and T^T dU T."""
        blocks, caps = self.path.unpacked(x)
        outer = self.point.frame.outer
        moved = blocks @ outer.reshape(self.path.b, self.path.k, -1)
        seen = outer.T @ moved.reshape(outer.shape)
        return self.point.frame.shared(self.point.frame.of_limits(caps) - seen), seen

    def along(self, f: Array) -> Array:
        """The change of the blocks of X and of diag(X^-1)."""
        outer = self.point.frame.outer
        blocks = self.path.on_patterns(outer @ f, outer)
        return self.path.packed(blocks, -self.point.frame.variance_along(f))

    def bent(self, f: Array, seen: Array) -> Array:
        """The next term of that change, of second order."""
        outer, (g, rest) = self.point.frame.outer, self.point.frame.second(f, seen)
        blocks = self.path.on_patterns(outer @ g, outer)
        return self.path.packed(blocks, self.point.frame.variance_along(rest))

    def product(self, x: Array) -> Array:
        blocks, caps = self.path.unpacked(x)
        own = self.path.packed(self.barrier @ blocks @ self.barrier, self.held * caps)
        return np.asarray(own - self.along(self.change(x)[0]))

    def size(self, x: Array) -> float:
        """The root mean square of an error in the equations, over the multipliers."""
        blocks, caps = self.path.unpacked(x)
        seen = self.point.root.transpose(0, 2, 1) @ blocks @ self.point.root
        total = np.square(seen).sum() + np.square(self.point.caps * caps).sum()
        return float(np.sqrt(total / self.path.count))

    def solve(self, right: Array, *, enough: float) -> Array:
        """The step, by conjugate gradients until what is left is no larger than ``enough``."""
        x, residual = np.zeros_like(right), right
        step = turned = self.precondition(right)
        square = float(residual @ turned)
        for _ in range(100):
            if self.size(residual) <= enough:
                break
            image = self.product(step)
            length = square / float(step @ image)
            x, residual = x + length * step, residual - length * image
            turned = self.precondition(residual)
            before, square = square, float(residual @ turned)
            step = turned + square / before * step
        return x

    def _dense(self) -> Callable[[Array], Array]:
        """The inverse of a matrix near that of :meth:`product`."""
        path, frame = self.path, self.point.frame
        size, caps, (i, j) = path.size, len(path.cap), path.upper
        # Pairs of rows of T, and of B: what an unknown is the price of.
        starts = path.k * np.arange(path.b)[:, None]
        alone, capped = np.arange(size), size + np.arange(caps)
        first = np.concatenate([alone, (starts + i).ravel(), capped])
        second = np.concatenate([alone, (starts + j).ravel(), capped])
        weight = np.concatenate(
            [np.ones(size), np.full(path.b * len(i), np.sqrt(2)), -np.ones(caps)]
        )
        total = np.zeros((len(first), len(first)))
        rows, root = np.vstack([frame.outer, frame.inner]), frame.root
        unit, spread = np.sqrt(root.min() * root.max()), max(root.max() / root.min(), 2.0)
        shifts = pairs.shifts(spread, accuracy=1e-2)
        products = [(rows * h) @ rows.T for h in pairs.values(root / unit, shifts)[: len(shifts)]]
        for start in range(0, len(first), ROWS):
            here, until = slice(start, start + ROWS), min(start + ROWS, len(first))
            for product in products:
                left, right = product[first[here]], product[second[here]]
                straight = left.take(first[:until], axis=1) * right.take(second[:until], axis=1)
                crossed = left.take(second[:until], axis=1) * right.take(first[:until], axis=1)
                total[here, :until] += straight + crossed
        total = np.tril(total) + np.tril(total, -1).T
        total *= weight[:, None] * (weight / (2 * unit))
        n, m = np.concatenate([np.arange(path.k), i]), np.concatenate([np.arange(path.k), j])
        doubled = np.where(n == m, 1.0, np.sqrt(2))
        for number, w in enumerate(self.barrier):
            at = number * path.k + np.arange(path.k), size + number * len(i) + np.arange(len(i))
            own = w[np.ix_(n, n)] * w[np.ix_(m, m)] + w[np.ix_(n, m)] * w[np.ix_(m, n)]
            total[np.ix_(*2 * [np.concatenate(at)])] += own * doubled[:, None] * doubled / 2
        last = np.arange(len(total) - caps, len(total))
        total[last, last] += self.held
        for _ in range(2):  # one price a pattern
            prices = total[:size].reshape(path.b, path.k, -1).sum(axis=1) / np.sqrt(path.k)
            total = np.concatenate([prices, total[size:]]).T
        scale = 1 / np.sqrt(np.diagonal(total))
        total *= scale[:, None] * scale
        factor = _factored(total)
        return lambda x: np.asarray(
            scale * scipy.linalg.cho_solve(factor, scale * x, check_finite=False)
        )

    def _blockwise(self) -> Callable[[Array], Array]:
        """The same from the blocks of single patterns and single caps."""
        path, frame = self.path, self.point.frame
        panel = frame.outer / frame.root**0.25
        inverse = np.linalg.inv(path.on_patterns(panel, panel) / np.sqrt(2) + self.barrier)
        blocks = ConstantDiagonal(inverse)
        caps = self.held + np.square(np.square(frame.inner / frame.root**0.25).sum(axis=1)) / 2

        def solution(x: Array) -> Array:
            right, limits = path.unpacked(x)
            return path.packed(blocks(right), limits / caps)

        return solution


def _factored(matrix: Array) -> tuple[Array, bool]:
    """The Cholesky factor of a matrix of unit diagonal that rounding may leave indefinite."""
    ridge = settings.rank_tolerance(len(matrix))
    while True:
        try:
            return scipy.linalg.cho_factor(matrix + ridge * np.eye(len(matrix)), lower=True)
        except np.linalg.LinAlgError:
            if not ridge < 1e-6:
                raise
            ridge *= 100


def _start(path: Path, blocks: Array | None) -> Point:
    """Multipliers, of equal steps if none are given, scaled to a price of t, and rooms for them."""
    diagonal = np.maximum(np.diagonal(path.gram), 1e-3 * path.gram.diagonal().max())
    if blocks is None:
        blocks = np.sqrt(diagonal).reshape(path.b, path.k).mean(axis=1)[:, None, None] * path.one
    caps = 0.1 * float(diagonal.mean()) / path.cap
    point = evaluate(path, blocks, caps, blocks, caps)
    blocks = blocks * (point.trace / float(blocks[:, 0, 0].sum())) ** 2
    point = evaluate(path, blocks, caps, blocks, caps)
    # With mu at three times what the whole value would be the gap of the path is short; a smaller
    # one takes as many or more steps.
    room = 3.0 * point.trace / path.count * np.linalg.inv(blocks)
    slack = np.maximum(path.cap - point.frame.variance, 0.1 * path.cap)
    return point._replace(room=room, slack=slack)


Step = dict[str, Array]  # changes of the blocks, caps, room and slack of a point


def _reach(point: Point, step: Step) -> float:
    """Share of the step, at most 1, that leaves multipliers and rooms positive."""
    reach = [longest(point.caps, step["caps"]), longest(point.slack, step["slack"])]
    for block, moved in ((point.blocks, step["blocks"]), (point.room, step["room"])):
        half = np.linalg.inv(np.linalg.cholesky(block))
        least = float(np.linalg.eigvalsh(half @ moved @ half.transpose(0, 2, 1)).min())
        reach.append(np.inf if least >= 0 else -1 / least)
    return min(1.0, 0.95 * min(reach))


def _end(point: Point, step: Step, length: float) -> Step:
    """The parts of the point at the end of that share of the step."""
    return {name: getattr(point, name) + length * d for name, d in step.items()}


def _advance(path: Path, point: Point, *, least: float) -> Point:
    """The next point: a predictor tells which mu to aim for, at least ``least``."""
    system = System(path, point)
    mu = mean_product(point.blocks, point.caps, point.room, point.slack)

    def change(x: Array, aim: float, room: Array | float = 0.0, slack: Array | float = 0.0) -> Step:
        blocks, caps = path.unpacked(x)
        room = room + aim * system.inverse - point.room - system.barrier @ blocks @ system.barrier
        slack = slack + aim / point.caps - point.slack - system.held * caps
        return {"blocks": blocks, "caps": caps, "room": _symmetric(room), "slack": slack}

    x = system.solve(system.slope, enough=SOLVED * mu)
    ahead = change(x, 0.0)
    reach = _reach(point, ahead)
    left = mean_product(**_end(point, ahead, reach))
    share = min(1.0, (left / mu) ** 2)
    missed = system.slope + path.packed(point.room, point.slack)
    # Far from the path mu stays as it is.
    if system.size(missed) > mu:
        share = 1.0
    aim = max(share * mu, least)
    # Second orders are told by a step that went so far only, and towards a smaller mu.
    trust = (reach * max(0.0, 1 - aim / mu)) ** 2
    room = -trust * _symmetric(system.inverse @ ahead["blocks"] @ ahead["room"])
    slack = -trust * ahead["caps"] * ahead["slack"] / point.caps
    f, seen = system.change(x)
    right = system.slope + trust * system.bent(f, seen)
    right += path.packed(aim * system.inverse + room, aim / point.caps + slack)
    x = x + system.solve(right - system.product(x), enough=SOLVED * aim)
    step = change(x, aim, room, slack)
    return evaluate(path, **_end(point, step, _reach(point, step)))


def _symmetric(blocks: Array) -> Array:
    return np.asarray((blocks + blocks.transpose(0, 2, 1)) / 2)


def solve(program: Program, *, monitor: Monitor) -> Found:
    """Solve a normalised program under (k, b) participation, with or without caps."""
    path = Path(program)
    kept = None if program.limited else monitor.resumed(program)
    point = _start(path, kept)
    best, best_gap = point, np.inf
    made: Callable[[], Array] | None = None
    evaluations, stalls = 2, 0
    share = 0.4  # of the gap asked for, at the end of the path: a smaller one takes larger noise
    with Search(monitor) as search:
        while evaluations < MAX_EVALUATIONS:
            lower, upper, found = bounds(path, point)
            monitor.report(lower=lower, upper=upper)
            gap = upper / lower - 1 if lower > 0 else np.inf
            stalls = 0 if gap < best_gap / 2 or not np.isfinite(gap) else stalls + 1
            if gap < best_gap:
                best, made, best_gap = point, found, gap
            if not program.limited and monitor.due:
                monitor.keep(program, best.blocks)
            # Rounding is in the way where the gap is not halved in 40 steps; runs of pairs of node
            # and step halve nothing in their first dozen.
            if search.ended(solved=gap <= REACHED * monitor.gap) or stalls > 40:
                break
            least = share * monitor.gap * max(lower, 0.0) / path.count
            if mean_product(*point[:4]) <= 1.01 * least:  # the end, where caps may leave more
                share /= 2
                least /= 2
            point = _advance(path, point, least=least)
            evaluations += 1
    inverse = np.argsort(path.order)
    caps = best.caps[inverse] if program.cap is not None else None
    gram = np.eye(path.size) / path.k if made is None else made()
    return Found(
        stop=search.stop,
        gram=gram[np.ix_(inverse, inverse)],
        dual=DualPoint(blocks=best.blocks, cap=caps),
        evaluations=evaluations,
    )
