"""Diagonal budgets with a cap on diag(X^-1): a primal-dual predictor-corrector method.

The dual g(v, w) = 2 tr( (V^1/2 (H + diag(w)) V^1/2)^1/2 ) - sum v - <cap, w> is concave on
v, w > 0, with gradient (diag(X) - 1, diag(R) - cap) for X = V^-1/2 S V^-1/2 and its inverse
R = V^1/2 S^-1 V^1/2. A cap is inactive exactly where its multiplier vanishes, so the boundary
matters here, and the equations solved are those of the central path: gradient + s = 0, x s = mu.

One eigendecomposition serves two Newton systems. The first aims for mu = 0; how far it gets says
which mu to aim for, and what its product with itself leaves, in x s and in the curved gradient, is
what the second allows for: that is known in closed form (:mod:`frame`). Systems are solved by
conjugate gradients, four matrix products a step. With the geometric mean of r_k and r_l in the
place of the arithmetic one the Hessian is a Schur product, which preconditions them: two or three
steps.

A singular H needs no special care: w > 0 keeps H + diag(w) positive definite.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.base.device import conjugate_gradients
from noisedesign.base.monitor import REACHED, Monitor, Search
from noisedesign.families.disjoint.program import Found
from noisedesign.families.disjoint.solver.limits.frame import Frame, longest
from noisedesign.program.program import Program, diagonal_dual

MAX_EVALUATIONS = 200
MAX_CG_STEPS = 200
CG_RELATIVE = 1e-3
"""What may be left of a Newton system, relative, on the multipliers that are not about to vanish:
those hardly depend on the others, whose much larger residuals say nothing."""
LOOSER = 10.0
"""The same for a predictor, over that for a corrector, which goes on from there."""
TO_BOUNDARY = 0.995
"""Share of the longest step that keeps multipliers and slacks positive."""
STALLS = 20
"""Steps without the gap being halved after which rounding is in the way."""
EASE = 0.1
"""Starting price of the caps, as a share of that of the budgets."""
LEAST_SLACK = 0.1
"""Starting slacks at least, as a share of the limit."""
RIDGE = 1e-12
"""Added to the diagonal of the preconditioner, scaled to ones: rounding may leave it indefinite."""


def evaluate(program: Program, x: Array) -> Frame:
    """The frame in which S is diagonal at x = (v, w); one eigendecomposition."""
    v, w = np.split(x, 2)
    root_v = np.sqrt(v)
    shifted = program.gram * root_v[:, None] * root_v + np.diag(w * v)
    squared, basis = np.linalg.eigh(shifted)
    root = np.sqrt(np.maximum(squared, settings.EPS**2 * squared[-1]))
    half = np.sqrt(root)
    return Frame(basis * half / root_v[:, None], basis / half * root_v[:, None], root)


def _held(frame: Frame) -> Array:
    """What is limited, diag(X) and diag(R), shape (2 n,): the gradient and the limits."""
    return np.concatenate([frame.precision, frame.variance])


class System:
    """Newton's equations at x with slacks s: (diag(s / x) - Hessian) d = right."""

    def __init__(self, frame: Frame, x: Array, slack: Array) -> None:
        self.frame, self.barrier = frame, slack / x
        precision, variance = np.split(_held(frame), 2)
        v = x[: len(precision)]
        # The scalar case of the Hessian: X / 2v along v, and R^2 (R / v) / 2 along w.
        curved = np.concatenate([precision / v, variance**3 / v]) / 2
        self.active = curved / np.square(self.barrier + curved)
        turned = np.vstack([frame.outer, -frame.inner]) * frame.root**-0.25
        schur = np.square(turned @ turned.T) / 2
        size = len(v)
        schur[:size, size:] *= -1
        schur[size:, :size] *= -1
        schur[np.diag_indices(2 * size)] += self.barrier
        self.scale = 1 / np.sqrt(np.diagonal(schur))
        schur *= self.scale
        schur *= self.scale[:, None]
        schur[np.diag_indices(2 * size)] += RIDGE
        self.factor = scipy.linalg.cho_factor(schur, lower=True, overwrite_a=True)

    def change(self, d: Array) -> tuple[Array, Array]:
        """F of a step d, and T^T diag(dv) T."""
        along_v, along_w = np.split(d, 2)
        seen = self.frame.of_budgets(along_v)
        return self.frame.shared(self.frame.of_limits(along_w) - seen), seen

    def first(self, f: Array) -> Array:
        """Hessian times d: the change of diag(X) and diag(R) to first order."""
        return np.concatenate([self.frame.precision_along(f), -self.frame.variance_along(f)])

    def second(self, f: Array, seen: Array) -> Array:
        """The next term of that change, which is of second order in d."""
        return np.concatenate(self.frame.second(f, seen))

    def product(self, d: Array) -> Array:
        return np.asarray(self.barrier * d - self.first(self.change(d)[0]))

    def precondition(self, right: Array) -> Array:
        solved = scipy.linalg.cho_solve(self.factor, self.scale * right, check_finite=False)
        return np.asarray(self.scale * solved)

    def solve(self, right: Array, *, known: Array | float = 0.0, looser: float = 1.0) -> Array:
        """What is to be added to a step whose product is ``known``."""
        target = (looser * CG_RELATIVE) ** 2 * float(np.square(right) @ self.active)
        left = right - known
        step = self.precondition(left)
        if float(left @ step) <= target:
            return np.zeros_like(left)
        found = conjugate_gradients(
            self.product,
            self.precondition,
            right=left,
            preconditioned=step,
            target=target,
            most=MAX_CG_STEPS,
        )
        return np.asarray(found.x)


def _directions(frame: Frame, x: Array, slack: Array, limit: Array) -> tuple[Array, Array]:
    """The change of x and of the slacks that a predictor and a corrector step advise."""
    system = System(frame, x, slack)
    missing = limit - _held(frame) - slack
    d = system.solve(-slack - missing, looser=LOOSER)
    f, seen = system.change(d)
    first = system.first(f)
    d_slack = missing - first
    reach = min(1.0, longest(x, d)), min(1.0, longest(slack, d_slack))
    mu = float(x @ slack) / len(x)
    ahead = float((x + reach[0] * d) @ (slack + reach[1] * d_slack)) / len(x)
    # Second-order terms are told by a step that went so far only; they may mislead at its end.
    trust = min(reach)
    curved = trust * system.second(f, seen)
    aim = min(1.0, (ahead / mu) ** 3) * mu
    right = (aim - trust * d * d_slack) / x - slack - missing + curved
    d = d + system.solve(right, known=system.barrier * d - first)
    return d, missing - curved - system.first(system.change(d)[0])


def bounds(program: Program, frame: Frame, x: Array) -> tuple[float, float, Array]:
    """Lower bound at the best scale of v; objective of X made feasible; and that X."""
    assert program.cap is not None
    v, w = np.split(x, 2)
    lower = float(frame.root.sum()) ** 2 / float(v.sum()) - float(program.cap @ w)
    gram = frame.gram
    # Budgets overdrawn are met by rescaling rows; slack ones are filled, which tilts nothing.
    rescale = 1 / np.sqrt(np.maximum(np.diagonal(gram), 1.0))
    gram *= rescale[:, None] * rescale
    np.fill_diagonal(gram, 1.0)
    inverse = np.linalg.inv(gram)
    variance = np.diagonal(inverse)
    over = variance > program.cap
    share = 0.0
    if over.any():
        # diag(X^-1) is convex in X and equals 1 at X = I.
        share = float(((variance - program.cap)[over] / (variance - 1)[over]).max())
        gram = (1 - share) * gram + share * np.eye(len(gram))
        inverse = np.linalg.inv(gram)
    return lower, float(np.sum(program.gram * inverse)), gram


def _start(program: Program) -> tuple[Array, Frame]:
    """Multipliers at which caps cost EASE of what budgets do, and the sum of v is t."""
    assert program.cap is not None
    diagonal = np.maximum(np.diagonal(program.gram), 0.0)  # for rounding
    w = EASE * float(np.sqrt(diagonal).mean()) / program.cap
    v = np.sqrt(diagonal + w)
    frame = evaluate(program, np.concatenate([v, w]))
    # X, R and r where v is multiplied by the square of this are known without another look.
    scale = float(frame.root.sum() / v.sum())
    half = np.sqrt(scale)
    frame = Frame(frame.outer / half, frame.inner * half, frame.root * scale)
    return np.concatenate([v * scale**2, w]), frame


def solve(program: Program, *, monitor: Monitor) -> Found:
    """Solve a normalised program of single participation with a cap."""
    assert program.cap is not None
    x, frame = _start(program)
    limit = np.concatenate([np.ones(program.size), program.cap])
    slack = np.maximum(limit - _held(frame), LEAST_SLACK * limit)
    best, best_gram, best_gap = x, np.eye(program.size), np.inf
    evaluations, stalls = 1, 0
    with Search(monitor) as search:
        while evaluations < MAX_EVALUATIONS:
            lower, upper, gram = bounds(program, frame, x)
            monitor.report(lower=lower, upper=upper)
            gap = upper / lower - 1 if lower > 0 else np.inf
            stalls = 0 if gap < best_gap / 2 or not np.isfinite(gap) else stalls + 1
            if gap < best_gap:
                best, best_gram, best_gap = x, gram, gap
            if search.ended(solved=gap <= REACHED * monitor.gap) or stalls > STALLS:
                break
            d, d_slack = _directions(frame, x, slack, limit)
            x = x + min(1.0, TO_BOUNDARY * longest(x, d)) * d
            slack = slack + min(1.0, TO_BOUNDARY * longest(slack, d_slack)) * d_slack
            frame = evaluate(program, x)
            evaluations += 1
    v, w = np.split(best, 2)
    dual = diagonal_dual(v, cap=w)
    return Found(stop=search.stop, gram=best_gram, dual=dual, evaluations=evaluations)
