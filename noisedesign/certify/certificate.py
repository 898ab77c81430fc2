"""Judging an answer: plain numpy, independent of every backend.

A lower bound comes from any multipliers, repaired until they are feasible; the objective and the
constraint come from the very matrix that is exported. A backend's own word is never used."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, asymmetry
from noisedesign.base.shown import Shown
from noisedesign.certify.program import DualPoint, Program
from noisedesign.privacy.runs import SEEN
from noisedesign.privacy.sensitivity import EXACT, squared_sensitivity
from noisedesign.system.participation import Participation

if TYPE_CHECKING:  # accounts of random participation load slowly
    from noisedesign.privacy.amplification import Amplified


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Shown):
    """The certified facts about one design.

    Attributes:
        objective: tr(H X^-1) of the exported matrix, squared noise, at the stated budgets.
        lower_bound: no feasible design has a smaller objective.
        sensitivity_squared: largest squared sensitivity over its budget; feasible is <= 1.
        sensitivity_kind: which number that is ("vector-exact" or "vector-upper-bound").
        variance_ratio: largest diag(X^-1) over its cap, or None without a cap.
        floor_ratio: largest floor over its diag(X^-1), or None without a floor.
        unrestricted_lower_bound: no feasible design of any structure has a smaller objective; None
            where ``lower_bound`` is that bound.
        fixed_lower_bound: under random participation, the bound on designs for participation that
            an adversary chooses, at the same target. Else None.
        account: under random participation, epsilon at the noise that the target takes; the
            sensitivity is then that of a Gaussian mechanism with this epsilon. Else None.
        confidence: probability, over random vectors, that objective and lower bound both hold where
            they are estimates of traces; else None.
        uncertainty: how far the objective may be, relative, from what other vectors give; or None.
        theorem: number of the theorem of docs/runs.md on which the sensitivity rests.
        rounding: by what ``lower_bound`` was lowered, relative to it, for its own rounding or
            random vectors: no gap much below it can be certified. None in stored designs;
            no part of comparisons.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> certificate = nd.solve(problem).certificate
        >>> certificate.feasible, certificate.lower_bound <= 1 <= certificate.objective
        (True, True)
        >>> certificate.gap < 1e-6
        True
    """

    objective: float
    lower_bound: float
    sensitivity_squared: float
    sensitivity_kind: str = EXACT
    variance_ratio: float | None = None
    unrestricted_lower_bound: float | None = None
    floor_ratio: float | None = None
    fixed_lower_bound: float | None = None
    account: Amplified | None = None
    confidence: float | None = None
    uncertainty: float | None = None
    theorem: int = field(default=SEEN.number, compare=False)
    rounding: float | None = field(default=None, compare=False)

    def _facts(self) -> dict[str, object]:
        return {
            "feasible": self.feasible,
            "objective": self.objective,
            "lower bound": self.lower_bound,
            "gap": self.gap,
            "confidence": self.confidence,
            "relative to unrestricted": self.relative_to_unrestricted,
            "sensitivity squared": f"{self.sensitivity_squared:.6g} ({self.sensitivity_kind})",
            "variance over cap": self.variance_ratio,
            "floor over variance": self.floor_ratio,
            "bound for fixed participation": self.fixed_lower_bound,
            "relative to fixed participation": self.relative_to_fixed,
            "account": self.account,
            "rests on": f"theorem {self.theorem}",
        }

    @property
    def feasible(self) -> bool:
        """Whether budget, cap and floor hold, with no tolerance."""
        limits = (self.variance_ratio, self.floor_ratio)
        within_limits = all(ratio is None or ratio <= 1 for ratio in limits)
        return self.sensitivity_squared <= 1 and within_limits

    @property
    def gap(self) -> float:
        """Relative duality gap, objective / lower_bound - 1."""
        if self.lower_bound <= 0:
            return float("inf")
        return self.objective / self.lower_bound - 1

    @property
    def relative_to_fixed(self) -> float | None:
        """Objective over the bound on designs for fixed participation; None without random one.

        Below 1 no such design has so small an error at the target."""
        bound = self.fixed_lower_bound
        return self.objective / bound if bound else None

    @property
    def relative_to_unrestricted(self) -> float | None:
        """Objective over the bound on all designs; None where there is none.

        The structure costs no more."""
        bound = self.unrestricted_lower_bound
        bound = self.lower_bound if bound is None else bound
        return self.objective / bound if bound > 0 else None


# --- lower bound ----------------------------------------------------------------------------


def repaired_dual(program: Program, dual: DualPoint) -> DualPoint:
    """The nearest feasible multipliers: u is lowered until H + diag(w) - diag(u) >= 0."""
    cap = None
    if program.cap is not None:
        cap = np.zeros(program.size) if dual.cap is None else np.maximum(dual.cap, 0.0)
    floor = None
    if program.floor is not None and dual.floor is not None:
        floor = _affordable(program, cap, np.maximum(dual.floor, 0.0))
    return DualPoint(blocks=repaired_blocks(dual.blocks), cap=cap, floor=floor)


def scale_of(dual: DualPoint) -> float:
    """The largest entry of U, which is free; 0 where some multipliers are not numbers."""
    limits = [limit for limit in (dual.cap, dual.floor) if limit is not None]
    finite = all(np.isfinite(part).all() for part in (dual.blocks, *limits))
    return float(np.abs(dual.blocks).max()) if finite else 0.0


def repaired_blocks(blocks: Array) -> Array:
    """The nearest sensible positive semidefinite blocks, (n, k, k), with constant diagonals."""
    blocks = (blocks + blocks.transpose(0, 2, 1)) / 2
    if blocks.shape[1] == 1:
        return np.maximum(blocks, 0.0)
    values, vectors = np.linalg.eigh(blocks)
    positive = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    diagonal = np.einsum("jii->ji", positive)
    diagonal[:] = diagonal.max(axis=1, keepdims=True)  # adds a nonnegative diagonal
    return np.asarray(positive)


def block_roots(blocks: Array) -> Array:
    """B_j about U_j = B_j B_j^T of repaired blocks, shape (patterns, k, k)."""
    blocks = repaired_blocks(blocks)
    if blocks.shape[1] == 1:
        return np.sqrt(blocks)
    values, vectors = np.linalg.eigh(blocks)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])


def on_patterns(a: Array, blocks: Array) -> Array:
    """A times blocks (k, k) on b patterns; coordinate s b + j is step s of pattern j."""
    b, k, _ = blocks.shape
    if k == 1:
        return np.asarray(a * blocks[:, 0, 0])
    found, by_pattern = np.empty((len(a), k, b)), (2, 0, 1)
    parts = a.reshape(found.shape).transpose(by_pattern)
    np.matmul(parts, blocks, out=found.transpose(by_pattern))
    return found.reshape(a.shape)


def _affordable(program: Program, cap: Array | None, floor: Array) -> Array | None:
    """The largest share of u that leaves N positive definite; None where any u is too much."""
    if not floor.any():
        return None
    plain = _below(program, cap, np.zeros(program.size))
    if plain is None:
        return None
    # N - s diag(u) is singular first where s times the largest of these eigenvalues is 1.
    asked = float(floor.max())
    floor = floor / asked
    seen = np.linalg.solve(plain.T, np.diag(np.sqrt(floor)))
    largest = float(np.linalg.eigvalsh(seen.T @ seen)[-1])
    margin = 8 * settings.rank_tolerance(program.size)
    while margin < 1:
        share = min(asked, (1 - margin) / largest)
        if _below(program, cap, share * floor) is not None:
            return share * floor
        margin *= 4
    return None


def _below(program: Program, cap: Array | None, floor: Array) -> Array | None:
    """L with L^T L <= N = H + diag(w) - diag(u), upper triangular; None where N is indefinite."""
    extra = np.zeros(program.size) if cap is None else cap
    positive = np.diagonal(program.gram) + extra
    if positive.min() <= 0:
        return None
    root = np.sqrt(positive)
    unit = program.gram / root[:, None] / root
    unit[np.diag_indices(program.size)] = 1 - floor / positive
    unit[np.diag_indices(program.size)] -= 8 * settings.rank_tolerance(program.size)
    try:
        return np.asarray(np.linalg.cholesky(unit).T * root)
    except np.linalg.LinAlgError:
        return None


class ProvedBound(NamedTuple):
    """A lower bound, squared noise, and by what it was lowered, relative, for its rounding."""

    value: float
    rounding: float


NOTHING = ProvedBound(0.0, 0.0)  # the bound by multipliers that are not numbers


def lower_bound(
    program: Program, dual: DualPoint, *, negligible: float = settings.NEGLIGIBLE
) -> float:
    return proved_bound(program, dual, negligible=negligible).value


def proved_bound(
    program: Program, dual: DualPoint, *, negligible: float = settings.NEGLIGIBLE
) -> ProvedBound:
    """( tr (N^1/2 U N^1/2)^1/2 )^2 / sum_j budget_j p_j - <cap, w> + <floor, u>, after repair."""
    scale = scale_of(dual)
    if not scale > 0:
        return NOTHING
    # The scale of U is free, and at an extreme one its sums would overflow.
    dual = repaired_dual(program, replace(dual, blocks=dual.blocks / scale))
    price = float(program.budget @ dual.blocks[:, 0, 0])
    if price <= 0:
        return NOTHING
    factor = program.factor_below
    if dual.floor is not None:
        below = _below(program, dual.cap, dual.floor)
        assert below is not None  # the repair saw to it
        factor = below
    elif dual.cap is not None:
        factor = np.vstack([factor, np.diag(np.sqrt(dual.cap))])
    half = on_patterns(factor, block_roots(dual.blocks))
    trace, rounding = _linalg.nuclear_norm_and_rounding(half, negligible=negligible)
    with np.errstate(over="ignore"):
        bound = trace / price * trace
        if dual.cap is not None and program.cap is not None:
            bound -= float(program.cap @ dual.cap)
        if dual.floor is not None and program.floor is not None:
            bound += float(program.floor @ dual.floor)
    if not 0 < bound < np.inf:
        return NOTHING
    return ProvedBound(bound, 2 * rounding * (trace / price) / bound)


# --- exported matrices ----------------------------------------------------------------------


def judge_covariance(program: Program, covariance: Array, *, bound: float) -> Certificate:
    """Certify a spatial design R, (n, n); its sensitivity is infinite if R is no covariance."""
    objective = _linalg.inner(program.gram, covariance)
    ratio = floor_ratio = None
    if program.cap is not None:
        ratio = float((np.diagonal(covariance) / program.cap).max())
    if program.floor is not None:  # infinite where a variance is not positive, or no number
        variance = np.diagonal(covariance)
        positive = bool((variance > 0).all())
        floor_ratio = float((program.floor / variance).max()) if positive else float("inf")
    worst = float("inf")
    largest = max(float(covariance.max()), -float(covariance.min()))
    if asymmetry(covariance) <= settings.rank_tolerance(len(covariance)) * largest:
        with contextlib.suppress(np.linalg.LinAlgError):
            precision = np.diagonal(_linalg.inverse_of_positive(covariance))
            worst = float((precision / program.budget).max())
    return Certificate(
        objective=objective,
        lower_bound=bound,
        sensitivity_squared=worst,
        variance_ratio=ratio,
        floor_ratio=floor_ratio,
    )


class InTime(Protocol):
    """A program in time: H, shape (T, T), L with L^T L = H, and who takes part when."""

    @property
    def gram(self) -> Array: ...

    @property
    def factor(self) -> Array: ...

    @property
    def participation(self) -> Participation: ...


def judge_strategy(
    program: InTime, strategy: Array, *, bound: float, root: Array | None = None
) -> Certificate:
    """Certify a temporal C, (T, T), at its own scale; ``root`` are roots of the budgets."""
    try:
        noise = np.asarray(np.linalg.solve(strategy.T, program.factor.T), dtype=np.float64)
        objective = _linalg.inner(noise, noise)
        del noise  # freed early: peak memory
    except np.linalg.LinAlgError:
        objective = float("inf")
    worst, kind = float("inf"), EXACT
    unit = strategy if root is None else strategy / root
    gram = unit.T @ unit
    if np.isfinite(gram).all():
        sensitivity = squared_sensitivity(gram, program.participation)
        worst, kind = sensitivity.squared, sensitivity.kind
    return Certificate(
        objective=objective, lower_bound=bound, sensitivity_squared=worst, sensitivity_kind=kind
    )
