"""Random small problems of every family that proves something, with noise and multipliers that are
mostly bad, and what is true of them, in balls and by definitions.

Few are solved: matrices are singular but for a rounding, of units from 1e-150 to 1e150 and beyond,
with zeros and numbers that underflow. Of a bound the truth is what its multipliers prove, by
eigenvalues of many digits, or where they have no short form the error of some noise that is
feasible: independent noise, or the noise at hand once it is scaled, or of few nodes that of least
error (:mod:`tests.support.known_optima`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from noisedesign.certify import rigorous
from noisedesign.certify.certificate import block_roots
from noisedesign.certify.program import Program
from noisedesign.certify.rigorous import Judged
from noisedesign.design.solve import solve
from noisedesign.families.amplified.program import NonnegativeProgram
from noisedesign.families.banded.bound import multipliers_of, repaired_multipliers
from noisedesign.families.banded.program import BandedProgram
from noisedesign.families.family import family_at, family_of
from noisedesign.families.overlapping import bound as overlapping
from noisedesign.families.polynomial import rigorous as finite_sums
from noisedesign.families.shared_seeds.bound import (
    blocks_of,
    covariance as assembled,
    raised_blocks,
)
from noisedesign.families.temporal import TemporalProgram
from noisedesign.families.toeplitz.program import ToeplitzProgram
from noisedesign.forms import DenseStrategy, ModalStrategy, Noise
from noisedesign.forms.sparse_forms import PolynomialCovariance
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy import views
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import BallsInBins, FixedEpoch, MinSeparation, single
from noisedesign.system.workloads import ErrorMeasure
from tests.support.balls import (
    above,
    all_iterates,
    arb,
    arb_mat,
    cholesky,
    diagonal,
    in_time,
    inner,
    kron,
    mat,
    of_modes,
    part,
    powers,
)
from tests.support.known_optima import least_of_observers, least_of_seeds
from tests.support.rigorous_truths import (
    at_most,
    balls,
    dot,
    error_of_steps,
    even_most,
    gram_of,
    independent_error,
    inverse,
    largest_ratio,
    most_of,
    on_patterns,
    over_steps,
    patterns_of,
    proves,
    told_to,
    worst_node,
    worst_pattern,
    worst_proves,
)

SOLVED = 0.05  # share of instances that are solved, where multipliers take an effort
LEAST = 0.15  # share of instances of seeds and observers whose least error is found

Array = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Instance:
    """What a judge is given, and what is true of it: squared numbers, over their limits; each as a
    function, or None where it is not known."""

    judge: Callable[[], Judged]
    error: Callable[[], Any]
    sensitivity: Callable[[], Any]
    bound: Callable[[Judged | None], Any] | None = None
    most: Callable[[], Any] | None = None
    variance: Callable[[], Any] | None = None
    floor: Callable[[], Any] | None = None


# --- random numbers -------------------------------------------------------------------------------


def unit(rng: Rng) -> float:
    """One, or far from it, or so far that numbers underflow."""
    far = rng.choice([0.0, 150.0, 300.0], p=[0.6, 0.35, 0.05])
    return float(10 ** (far * rng.uniform(-1, 1)))


def positive(rng: Rng, size: int) -> Array:
    """Limits: alike, random, or orders of magnitude apart."""
    return 10 ** (rng.choice([0.0, 0.3, 3.0, 12.0]) * rng.uniform(-1, 1, size))


def definite(rng: Rng, size: int) -> Array:
    """A symmetric matrix, mostly positive definite, of a condition number up to 1e16."""
    kind = rng.integers(7)
    if kind == 0:  # of integers, of any rank
        root = rng.integers(-2, 3, (size, int(rng.integers(1, size + 2)))).astype(float)
        return root @ root.T
    if kind == 1:
        return np.diag(positive(rng, size))
    q, _ = np.linalg.qr(rng.standard_normal((size, size)))
    values = 10 ** (-float(rng.choice([0.5, 4.0, 8.0, 12.0, 15.0, 16.0])) * rng.random(size))
    found = (q * values) @ q.T
    if kind == 2:
        found[np.abs(found) < np.median(np.abs(found))] = 0.0
    if kind == 3:
        apart = positive(rng, size)
        found = found * np.sqrt(apart)[:, None] * np.sqrt(apart)
    found = (found + found.T) / 2
    if kind == 4 and size > 1:  # singular, or so little below that it is hardly seen
        least, *_, most = np.linalg.eigvalsh(found)
        found -= np.eye(size) * (least + most * 10 ** rng.uniform(-18, -12))
    if kind == 5 and size > 1:
        found[0, -1] = found[-1, 0] = 1e-310
    return found


def triangle(rng: Rng, size: int, *, sign: bool = True) -> Array:
    """A lower triangular C, of a condition number up to 1e16."""
    found = np.tril(rng.standard_normal((size, size)))
    if not sign:
        found = np.abs(found)
    found *= 10 ** (-float(rng.choice([0.3, 3.0, 8.0])) * rng.random((size, size)))
    if rng.random() < 0.3:
        found[rng.random((size, size)) < 0.4] = 0.0
    found *= positive(rng, size) ** rng.choice([0.0, 0.5])
    own = np.abs(np.diagonal(found))
    found[np.diag_indices(size)] = np.where(own > 0, own, rng.choice([1.0, 1e-8]))
    if rng.random() < 0.02:
        found[0, -1] += 1e-3
    return found


def mixing(rng: Rng, size: int, *, symmetric: bool = False) -> Array:
    """W of a connected graph: lazy, or singular, or of any weights."""
    if size == 1:
        return np.ones((1, 1))
    kind = rng.integers(4)
    if kind == 0:
        return np.full((size, size), 1 / size)
    links = np.eye(size) + np.roll(np.eye(size), 1, axis=1) + np.roll(np.eye(size), 1, axis=0)
    links = (links + (rng.random((size, size)) < 0.3) > 0).astype(float)
    links = np.maximum(links, links.T)
    if kind == 1 and not symmetric:
        found = links * rng.random((size, size)) ** 4 + 1e-3 * links
        return found / found.sum(axis=1, keepdims=True)
    degree = links.sum(axis=1) - 1
    w = np.where(links > 0, 1 / (1 + np.maximum.outer(degree, degree)), 0.0)
    w[np.diag_indices(size)] = 0.0
    w[np.diag_indices(size)] = 1 - w.sum(axis=1)
    return (w + np.eye(size)) / 2 if kind == 2 else w


def mixing_of_few(rng: Rng, size: int) -> Array:
    """One of these, or of the complete graph, hardly regular."""
    far = 10 ** rng.uniform(-15, -1)
    hardly = np.full((size, size), (1 - far) / size) + far * np.eye(size)
    return hardly if rng.random() < 0.25 else mixing(rng, size)


def scheme(rng: Rng, most: int = 12) -> FixedEpoch:
    """Fixed epochs of at most so many steps."""
    k = int(rng.integers(1, 4))
    return FixedEpoch(epochs=k, separation=int(rng.integers(1 if k > 1 else 2, most // k + 1)))


# --- families -------------------------------------------------------------------------------------


def of_space(rng: Rng, *, limited: bool) -> Instance:
    """One step of any W, stochastic or not."""
    n = int(rng.integers(2, 9))
    w, tau = mixing(rng, n), positive(rng, n) * unit(rng)
    if rng.random() < 0.3:
        w = np.where(rng.random((n, n)) < 0.2, 0.0, w) * unit(rng)
    r = definite(rng, n) * (1 / tau.max() if rng.random() < 0.7 else unit(rng))
    cap = floor = None
    if limited:
        cap = positive(rng, n) * 10 ** rng.uniform(0, 8) / tau
        floor = cap * rng.random(n) * 1e-3 if rng.random() < 0.5 else None
    program = Program(
        gram=w.T @ w,
        participation=single(n),
        budget=tau,
        cap=cap,
        floor=floor,
        exact_factor=w,
        axes="space",
    )
    proof = {"dual_weights": rng.random(n) * positive(rng, n) * unit(rng)}
    if limited:
        level = float(np.diagonal(w.T @ w).max())
        proof["dual_cap"] = rng.random(n) * level * 10 ** rng.uniform(-9, 0, n)
        if floor is not None:
            proof["dual_floor"] = rng.random(n) * level * 10 ** rng.uniform(-9, -1, n)
    h, family = gram_of(mat(w)), family_at("space", "dense")
    return of_covariance(family, program, r, proof, h=h, most=lambda: proves(program, h, proof))


def of_design(
    family: Any, program: Any, noise: Noise, proof: dict[str, Array], **truths: Any
) -> Instance:
    """What the family proves of it, against these truths."""
    return Instance(
        **{
            "judge": lambda: family.rigorous_judge(program, noise, proof),
            "bound": lambda judged: family.rigorous_bound(
                program, proof, noise=noise, judged=judged
            ),
            **truths,
        }
    )


def of_covariance(
    family: Any, program: Any, r: Array, proof: dict[str, Array], *, h: Any, **truths: Any
) -> Instance:
    """R of the family, judged by [R^-1]_ii."""
    variance = np.diagonal(r)
    cap, floor = (getattr(program, limit, None) for limit in ("cap", "floor"))
    if cap is not None:
        truths["variance"] = lambda: largest_ratio(variance, cap)
    if floor is not None:
        truths["floor"] = lambda: largest_ratio(floor, variance)
    truths.setdefault("error", lambda: inner(h, mat(r)))
    truths.setdefault("sensitivity", lambda: worst_node(mat(r), program.budget))
    return of_design(family, program, Noise.of_covariance(r), proof, **truths)


def of_strategy(
    family: Any, program: Any, c: Array, proof: dict[str, Array], *, h: Any, **truths: Any
) -> Instance:
    """C of the family, judged by all signs on all patterns."""
    patterns = patterns_of(program.participation)
    budgets = balls(getattr(program, "budget", np.ones(len(patterns))))
    if (cap := getattr(program, "cap", None)) is not None:
        limits = balls(cap)
        truths["variance"] = lambda: above(in_time(c)[t, t] / y for t, y in enumerate(limits))
    truths.setdefault("error", lambda: inner(h, in_time(c)))
    truths.setdefault("sensitivity", lambda: worst_pattern(gram_of(mat(c)), patterns, budgets))
    noise = Noise.of_strategy(DenseStrategy(strategy=c))
    return of_design(family, program, noise, proof, **truths)


def of_time(rng: Rng) -> Instance:
    """Any H, or prefix sums, under fixed epochs and budgets of their own."""
    steps = scheme(rng)
    size, b = steps.horizon, steps.separation
    h = definite(rng, size) * unit(rng)
    if rng.random() < 0.3:
        h = np.tri(size).T @ np.tri(size)
    budget = np.ones(b) if rng.random() < 0.5 else positive(rng, b)
    c = triangle(rng, size) * (1.0 if rng.random() < 0.7 else unit(rng))
    cap = positive(rng, size) if rng.random() < 0.3 else None
    program = Program(gram=h, participation=steps, budget=budget, cap=cap)
    proof = blocks(rng, b, steps.epochs)
    if cap is not None:
        proof["dual_cap"] = float(np.diagonal(h).max()) * 10 ** rng.uniform(-9, 0, size)
    family, exact = family_at("time", "dense"), mat(h)
    most = partial(proves, program, exact, proof)
    return of_strategy(family, program, c, proof, h=exact, most=most)


def blocks(rng: Rng, count: int, size: int) -> dict[str, Array]:
    """Multipliers of patterns, positive semidefinite but for rounding or not at all."""
    found = np.array([definite(rng, size) for _ in range(count)])
    return {"dual_blocks": found * positive(rng, count)[:, None, None] * unit(rng)}


def of_full(rng: Rng) -> Instance:
    """All pairs of node and step; L is what H is formed of in float64."""
    n, steps = int(rng.integers(2, 4)), scheme(rng, 4)
    tau = positive(rng, n)
    problem = SpaceTimeProblem(mixing=mixing(rng, n), participation=steps, budget=tau, joint="full")
    family = family_of(problem)
    program = family.program(problem)
    factor = program.exact_factor
    h = mat(program.gram) if factor is None else gram_of(mat(factor))
    c = triangle(rng, n * steps.horizon)
    proof = blocks(rng, len(program.budget), steps.epochs)
    most = partial(proves, program, h, proof)
    return of_strategy(family, program, c, proof, h=h, most=most)


def min_separation(rng: Rng) -> MinSeparation:
    steps = int(rng.integers(2, 10))
    return MinSeparation(
        horizon=steps,
        separation=int(rng.integers(1, steps + 1)),
        max_participations=int(rng.integers(1, 4)),
    )


def of_overlapping(rng: Rng) -> Instance:
    """Steps at least some apart; multipliers of patterns that meet."""
    steps = min_separation(rng)
    h, c = definite(rng, steps.horizon) * unit(rng), triangle(rng, steps.horizon) * unit(rng)
    patterns = [p for p in patterns_of(steps) if rng.random() < 0.7] or [(0,)]
    own = [definite(rng, len(p)) * positive(rng, 1)[0] for p in patterns]
    proof = {
        "pattern_lengths": np.array([len(p) for p in patterns], dtype=float),
        "pattern_steps": np.concatenate([np.array(p, dtype=float) for p in patterns]),
        "pattern_blocks": np.concatenate([x.ravel() for x in own]) * unit(rng),
    }
    family = family_at("time", "overlapping")
    program = TemporalProgram(gram=h, participation=steps)

    def most() -> Any:
        """Of the blocks B B^T and of the diagonal by which the judge raises their sum."""
        groups, size = overlapping.multipliers_of(proof), steps.horizon
        raised, _ = overlapping.rigorous_multipliers(program, groups)
        largest = max(float(np.abs(group.blocks).max()) for group in groups)
        total, price = arb_mat(size, size), arb(0)
        for group in groups:
            roots = block_roots(group.blocks * 2.0 ** -math.frexp(largest)[1])
            for own, pattern in zip(roots, group.steps[:, None], strict=True):
                whole, paid = on_patterns(own[None], pattern, np.ones(1), size=size)
                total, price = total + whole * whole.transpose(), price + paid
        added = [arb(float(raised.mid[t, t])) - total[t, t] for t in range(size)]
        return most_of(mat(h), cholesky(total + diagonal(added)), price + sum(added, arb(0)))

    return of_strategy(family, program, c, proof, h=mat(h), most=most)


def of_banded(rng: Rng) -> Instance:
    """Few diagonals, and multipliers that are zero within the band."""
    steps = scheme(rng)
    most_bands = steps.separation if steps.epochs > 1 else steps.horizon
    bands = int(rng.integers(1, most_bands + 1))
    size = steps.horizon
    h = definite(rng, size) * unit(rng)
    program = BandedProgram(gram=h, participation=steps, bands=bands)
    c = np.triu(triangle(rng, size), 1 - bands) * unit(rng)
    proof = {"dual_matrix": definite(rng, size) * unit(rng)}

    def most() -> Any:
        given = multipliers_of(program, proof, noise=None)
        u = None if given is None else repaired_multipliers(program, given)
        if u is None:
            return arb(0)
        u = np.tril(u) + np.tril(u, -1).T
        # On patterns X is diagonal here: the most of <v, x> is a sum over patterns of the largest.
        price = sum((above(balls(u[list(p), list(p)])) for p in patterns_of(steps)), arb(0))
        return most_of(mat(h), cholesky(mat(u)), price)

    return of_strategy(family_at("time", "banded"), program, c, proof, h=mat(h), most=most)


def of_toeplitz(rng: Rng) -> Instance:
    """Constant diagonals, or whatever: the judge does not ask."""
    steps = scheme(rng) if rng.random() < 0.5 else min_separation(rng)
    size = steps.horizon
    h = definite(rng, size) * unit(rng)
    first = triangle(rng, size)[:, 0] if rng.random() < 0.5 else rng.random(size) + 0.1
    c = np.array([[first[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)])
    c = c * unit(rng)
    structure = TimeStructure(kind="toeplitz")
    program = ToeplitzProgram(gram=h, participation=steps, structure=structure)
    exact = mat(h)
    return of_strategy(
        family_at("time", "toeplitz"), program, c, {}, h=exact, most=even_most(exact, steps)
    )


def of_nonnegative(rng: Rng, *, random: bool) -> Instance:
    """Without negative entries; of random participation nothing is claimed of sensitivity, and the
    bound is that of participation that an adversary chooses."""
    steps: Any = scheme(rng)
    size = steps.horizon
    h, c = definite(rng, size) * unit(rng), triangle(rng, size, sign=False) * unit(rng)
    structure = TimeStructure(nonnegative=not random)
    target = None
    if random:
        steps = BallsInBins(epochs=steps.epochs, separation=steps.separation)
        target = PrivacyTarget(epsilon=2.0, delta=1e-4)
    program = NonnegativeProgram(gram=h, participation=steps, structure=structure, target=target)
    family: Any = family_at("time", "nonnegative")
    exact = mat(h)
    if not random:
        return of_strategy(family, program, c, {}, h=exact, most=even_most(exact, steps))
    proof = blocks(rng, steps.separation, steps.epochs)
    return of_strategy(
        family,
        program,
        c,
        proof,
        h=exact,
        sensitivity=lambda: arb(0),
        bound=lambda judged: family.rigorous_fixed_bound(program, proof, enough=0.0),
        most=lambda: proves(program.fixed, exact, proof),
    )


def of_seeds(rng: Rng) -> Instance:
    """Seeds of links, of which some nodes may know theirs; noise is drawn from raised blocks."""
    few = rng.random() < LEAST
    n, known = int(rng.integers(3, 5 if few else 7)), int(rng.integers(0, 2))
    w = (mixing_of_few if few else mixing)(rng, n)
    tau = positive(rng, n) * unit(rng) ** 0.1
    problem = SpaceProblem(
        mixing=w,
        budget=tau,
        max_variance=(10 ** rng.uniform(0.5, 12) if few else 1e12) / tau,
        structure=SpaceStructure(kind="edge-local", known_seeds=known),
    )
    family: Any = family_of(problem)
    program = family.program(problem)
    drawn = [definite(rng, len(nodes)) for nodes in program.sets]
    if rng.random() < 0.7:
        drawn = [x + np.eye(len(x)) * 1e-3 for x in drawn]
    count, h = math.comb(n, known), gram_of(mat(w))
    proof = {
        "clique_blocks": np.concatenate([x.ravel() for x in drawn]) * unit(rng),
        "dual_factors": rng.standard_normal((count, n, n)) * positive(rng, 1),
        "dual_prices": rng.random((count, n)) * positive(rng, n),
    }
    least = least_of_seeds(program, h) if few else None
    if least is not None:
        proof = changed(rng, least.proof)
    r = assembled(program, blocks_of(program.sets, proof["clique_blocks"]))
    if least is None and rng.random() < SOLVED and (design := solve(problem).design) is not None:
        r = design.covariance  # where it is independent noise, no blocks are stored
        proof = {**family.parts(program, np.diagonal(r)), **design.proof}

    def total(coalition: tuple[int, ...] = ()) -> Any:
        found = arb_mat(n, n)
        raised = raised_blocks(blocks_of(program.sets, proof["clique_blocks"]))
        for nodes, block in zip(program.sets, raised, strict=True):
            if not set(nodes) & set(coalition):
                for (a, i), (b, j) in itertools.product(enumerate(nodes), repeat=2):
                    found[i, j] += arb(float(block[a, b]))
        return found

    def sensitivity() -> Any:
        found = [worst_node(mat(r), tau)]
        for coalition in program.coalitions:
            rest = [i for i in range(n) if i not in coalition]
            found.append(worst_node(part(total(coalition), rest), tau[rest]))
        return above(found)

    def feasible() -> Any:
        """The least error, or that of independent noise, or of this, scaled."""
        if least is not None:
            return least.error
        alone = independent_error(h, tau)
        with contextlib.suppress(rigorous.NotProvedError):
            return at_most(alone, inner(h, total()) * sensitivity())
        return alone

    of = {"error": lambda: inner(h, total()), "sensitivity": sensitivity, "most": feasible}
    return of_covariance(family, program, r, proof, h=h, **of)


def changed(rng: Rng, proof: dict[str, Array]) -> dict[str, Array]:
    """The arrays with all entries changed, a little or not at all."""
    by = float(rng.choice([0.0, 1e-15, 1e-10, 1e-4]))
    return {
        name: x * (1 + by * rng.standard_normal(x.shape)) if by else x for name, x in proof.items()
    }


def of_decor(rng: Rng) -> Instance:
    """One seed that all hold: judged as any R."""
    n = int(rng.integers(3, 7))
    w, tau = mixing(rng, n), positive(rng, n) * unit(rng)
    problem = SpaceProblem(
        mixing=w, budget=tau, max_variance=1e9 / tau, structure=SpaceStructure(kind="decor")
    )
    family: Any = family_of(problem)
    program = family.program(problem)
    r = definite(rng, n) * (1 / tau.max() if rng.random() < 0.7 else unit(rng))
    return of_covariance(family, program, r, {}, h=gram_of(mat(w)), bound=None)


def of_polynomial(rng: Rng) -> Instance:
    """Arrays, of small graphs, or polynomials of W whose budgets alone are proved."""
    n = int(rng.integers(3, 8))
    w, tau = mixing(rng, n), positive(rng, n)
    if rng.random() < 0.5:
        return of_polynomials(rng, w, tau)
    problem = SpaceProblem(
        mixing=csr_array(w), budget=tau, structure=SpaceStructure(kind="polynomial")
    )
    family: Any = family_of(problem)
    program = family.program(problem)
    r = definite(rng, n) * unit(rng)
    dense = Program(gram=w.T @ w, participation=single(n), budget=tau, exact_factor=w, axes="space")
    proof = {"dual_weights": rng.random(n) + 1e-3}
    h = gram_of(mat(w))
    return of_covariance(family, program, r, proof, h=h, most=lambda: proves(dense, h, proof))


def of_polynomials(rng: Rng, w: Array, tau: Array) -> Instance:
    """R = D^1/2 r(B)^2 D^1/2 with Chebyshev series on [0, b], B = V^1/2 W^T W V^1/2."""
    n, v = len(w), positive(rng, len(w))
    p, r = (
        np.concatenate([[1.0], rng.uniform(-0.3, 0.3, int(rng.integers(0, 4)))]) for _ in range(2)
    )
    top = float((w.T @ (w @ v)).max()) * rng.choice([1.0, 1 + 1e-12, 1.5])
    space = PolynomialCovariance(
        mixing=csr_array(w),
        weights=v,
        bound=top,
        precision=p * unit(rng),
        noise=r,
        scale=positive(rng, n),
    )

    def sensitivity() -> Any:
        root = diagonal([x.sqrt() for x in balls(v)])
        one = diagonal([arb(1)] * n)
        x = root * gram_of(mat(w)) * root * (2 / arb(top)) - one
        before, now, total = one, x, one * arb(float(r[0]))
        for coefficient in balls(r[1:]):
            total = total + now * coefficient
            before, now = now, x * now * 2 - before
        scale = diagonal([y.sqrt() for y in balls(space.scale)])
        return worst_node(scale * total * total * scale, tau)

    def judge() -> Judged:
        worst = finite_sums.squared_sensitivity(space, tau)
        return Judged(objective=rigorous.UNPROVED, sensitivity_squared=worst)

    return Instance(judge=judge, error=lambda: arb(0), sensitivity=sensitivity)


def of_observers(rng: Rng) -> Instance:
    """One step before nodes, those they pool with, or all, or several steps before nodes."""
    few = rng.random() < LEAST
    n = int(rng.integers(2, 4 if few else 7))
    steps = int(rng.choice([1, 1, 2] if few else [1, 1, 2, 3]))
    w = (mixing_of_few if few else mixing)(rng, n)
    tau = positive(rng, n) * unit(rng) ** 0.1
    observers: Any
    if steps == 1 and n > 2 and rng.random() < 0.3:
        observers = views.coalitions(nodes=range(n), size=2, own_noise="values")
    elif rng.random() < 0.2:
        observers = (views.ldp(),)
    else:
        own = "counted" if steps > 1 else "values"
        nodes = rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False).tolist()
        observers = tuple(views.pndp(nodes=[i], own_noise=own) for i in nodes)
    cap = 10 ** rng.uniform(0, 5 if few else 12) / tau
    problem = SpaceProblem(
        mixing=w,
        budget=tau,
        max_variance=cap,
        observers=observers,
        error=ErrorMeasure(horizon=steps),
        responses="any" if steps == 1 else "fixed",
    )
    family: Any = family_of(problem)
    program = family.program(problem)
    h = error_of_steps(program, w, steps)
    r = definite(rng, n) * (float(cap.min()) if rng.random() < 0.7 else unit(rng))
    proof = observer_multipliers(rng, program)
    least = least_of_observers(program, h) if few else None
    if least is not None:
        r, proof = least.covariance, changed(rng, least.proof)
    elif rng.random() < SOLVED and (design := solve(problem).design) is not None:
        r, proof = design.covariance, dict(design.proof)

    def told() -> Any:
        return above([arb(0), *(told_to(one, w, r, tau, steps) for one in program.observers)])

    def feasible() -> Any:
        """The least error, or that of independent noise, or of this, scaled, where it has room."""
        if least is not None:
            return least.error
        scale, alone = told(), independent_error(h, tau)
        fits = largest_ratio(np.diagonal(r), cap) * scale <= 1
        return at_most(alone, inner(h, mat(r)) * scale) if fits else alone

    return of_covariance(family, program, r, proof, h=h, sensitivity=told, most=feasible)


def observer_multipliers(rng: Rng, program: Any) -> dict[str, Array]:
    """Of any numbers, of the shapes that are stored."""
    seen = program.normalized.observers
    ranks = [int(rng.integers(1, 4)) for _ in seen]
    widths = [int(np.prod(one.responses.shape) // one.responses.shape[1]) for one in seen]
    return {
        "observer_ranks": np.array(ranks, dtype=float),
        "observer_factors": rng.standard_normal(
            int(sum(r * width for r, width in zip(ranks, widths, strict=True)))
        )
        * 10 ** rng.uniform(-3, 1),
        "observer_weights": rng.random(sum(one.signals.shape[1] for one in seen)),
        "dual_cap": 10 ** rng.uniform(-12, 0, program.size),
    }


def of_worst(rng: Rng) -> Instance:
    """The worst step of prefix sums, or the worst node after some steps."""
    if rng.random() >= 0.5:
        return of_worst_node(rng)
    steps = scheme(rng, 8)
    size = steps.horizon
    error = ErrorMeasure(horizon=size, of="worst")
    problem = TimeProblem.prefix(participation=steps, error=error)
    family: Any = family_of(problem)
    program = family.program(problem)
    c = triangle(rng, size) * unit(rng)
    rows = np.tri(size)
    grams = [gram_of(mat(rows[t : t + 1])) for t in range(size)]
    proof = blocks(rng, steps.separation, steps.epochs)
    proof["target_shares"] = rng.random(program.size) * positive(rng, program.size)
    noise = Noise.of_strategy(DenseStrategy(strategy=c))
    plain = Program(gram=np.eye(size), participation=steps, budget=np.ones(steps.separation))
    return of_strategy(
        family,
        plain,
        c,
        proof,
        h=None,
        judge=lambda: family.rigorous_judge(program, noise, proof),
        error=lambda: above(inner(g, in_time(c)) for g in grams),
        bound=lambda judged: family.rigorous_bound(program, proof),
        most=lambda: worst_proves(plain, grams, proof),
    )


def of_worst_node(rng: Rng) -> Instance:
    n, steps = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    w, tau = mixing(rng, n), positive(rng, n)
    cap = 10 ** rng.uniform(1, 12) / tau
    problem = SpaceProblem(
        mixing=w, budget=tau, max_variance=cap, error=ErrorMeasure(horizon=steps, of="worst-node")
    )
    family: Any = family_of(problem)
    program = family.program(problem)
    r = definite(rng, n) * (float(cap.min()) if rng.random() < 0.5 else 1 / tau.max())
    lags = powers(mat(w), steps)
    grams = [over_steps([part(p, [i], range(n)) for p in lags]) for i in range(n)]
    proof = {
        "target_shares": rng.random(program.size),
        "dual_weights": rng.random(n) * positive(rng, n),
        "dual_cap": 10 ** rng.uniform(-12, -1, n),
    }
    inside = Program(gram=np.eye(n), participation=single(n), budget=tau, cap=cap, axes="space")
    return of_covariance(
        family,
        inside,
        r,
        proof,
        h=None,
        judge=lambda: family.rigorous_judge(program, Noise.of_covariance(r), proof),
        error=lambda: above(inner(g, mat(r)) for g in grams),
        bound=lambda judged: family.rigorous_bound(program, proof),
        most=lambda: worst_proves(inside, grams, proof),
    )


def of_both(rng: Rng, *, joint: str) -> Instance:
    """Kronecker noise, or that of modes, of the plain error of one W."""
    n, steps = int(rng.integers(2, 4)), scheme(rng, 5)
    w, tau = mixing(rng, n, symmetric=True), positive(rng, n)
    problem = SpaceTimeProblem(mixing=w, participation=steps, budget=tau, joint=joint)
    family: Any = family_of(problem)
    program = family.program(problem)
    size, scale = steps.horizon, unit(rng)
    proof = blocks(rng, steps.separation, steps.epochs)
    proof["dual_weights"] = rng.random(n) * positive(rng, n)
    h = gram_of(all_iterates(mat(w), size))
    if joint == "kronecker":
        c, r = triangle(rng, size), definite(rng, n) * scale
        noise = Noise.of_strategy(DenseStrategy(strategy=c), covariance=r)

        def covariance() -> Any:
            return kron(in_time(c), mat(r))
    else:
        form = ModalStrategy(
            strategies=np.array([triangle(rng, size) for _ in range(n)]),
            modes=rng.standard_normal((n, n)) * positive(rng, n)[:, None],
            scales=positive(rng, n * size).reshape(n, size) * math.sqrt(scale),
        )
        noise = Noise(steps=size, nodes=n, strategy=form, full=True)

        def covariance() -> Any:
            return of_modes(form)

    def sensitivity() -> Any:
        x = inverse(covariance())
        if x is None:
            return arb("inf")
        own = (part(x, range(u, n * size, n)) for u in range(n))
        limits = zip(own, balls(tau), strict=True)
        patterns = patterns_of(steps)
        return above(worst_pattern(one, patterns, [y] * len(patterns)) for one, y in limits)

    def most() -> Any:
        own = proof["dual_blocks"]
        ones = np.ones(steps.separation)
        whole, price = on_patterns(block_roots(own / np.abs(own).max()), steps.patterns, ones)
        roots = np.maximum(proof["dual_weights"], 0.0)
        paid = dot(balls(roots), balls(tau))
        return most_of(h, kron(whole, diagonal([x.sqrt() for x in balls(roots)])), price * paid)

    of = {"error": lambda: inner(h, covariance()), "sensitivity": sensitivity, "most": most}
    return of_design(family, program, noise, proof, **of)


def of_release(rng: Rng) -> Instance:
    """A trusted server's noise: a record moves the average of n nodes by 1 / n."""
    n = int(rng.integers(1, 9))
    w, tau = mixing(rng, n), positive(rng, n) * unit(rng)
    v = float(10 ** rng.uniform(-3, 3)) * unit(rng)
    r = np.full((n, n), v)
    program = Program(
        gram=w.T @ w, participation=single(n), budget=tau, exact_factor=w, axes="space"
    )
    family: Any = family_at("space", "dense")
    return Instance(
        judge=lambda: family.rigorous_release(program, Noise.of_covariance(r)),
        error=lambda: inner(gram_of(mat(w)), mat(r)),
        sensitivity=lambda: 1 / (arb(n) ** 2 * arb(v) * arb(float(tau.min()))),
    )


FAMILIES: dict[str, Callable[[Rng], Instance]] = {
    "space": lambda rng: of_space(rng, limited=False),
    "capped": lambda rng: of_space(rng, limited=True),
    "time": of_time,
    "full": of_full,
    "overlapping": of_overlapping,
    "banded": of_banded,
    "toeplitz": of_toeplitz,
    "nonnegative": lambda rng: of_nonnegative(rng, random=False),
    "random": lambda rng: of_nonnegative(rng, random=True),
    "seeds": of_seeds,
    "decor": of_decor,
    "polynomial": of_polynomial,
    "observers": of_observers,
    "worst": of_worst,
    "kronecker": lambda rng: of_both(rng, joint="kronecker"),
    "modal": lambda rng: of_both(rng, joint="modal"),
    "release": of_release,
}
