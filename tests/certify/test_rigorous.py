"""The steps of a proof, against fifty digits: on the safe side always, and tight where they can."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisedesign.base import linalg
from noisedesign.base.enclosures import EPS, PIECE, Enclosure, Interval, exactly
from noisedesign.certify import rigorous
from noisedesign.certify.certificate import on_patterns
from noisedesign.certify.polar import nuclear_norm
from noisedesign.certify.program import DualPoint
from noisedesign.certify.rigorous import (
    Noising,
    NotProvedError,
    Through,
    disjoint_bound,
    dominant,
    factor_below,
    forms_above,
    judge_covariance,
    judge_strategy,
    matrix_bound,
    noising_of,
    precisions_above,
    ratio_above,
    sensitivity_above,
)
from noisedesign.families.family import family_of
from noisedesign.families.temporal import TemporalProgram
from noisedesign.privacy import sensitivity
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, Patterns, single
from noisedesign.system.workloads import prefix_gram

Array = np.ndarray
DIGITS = 50


def conditioned(size: int, condition: float, seed: int) -> Array:
    """Positive definite, exactly symmetric, with eigenvalues down to 1 / condition."""
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((size, size)))
    a = (q * np.geomspace(1 / condition, 1, size)) @ q.T
    return np.asarray((a + a.T) / 2)


def many_digits(a: Array) -> mpmath.matrix:
    return mpmath.matrix(a.tolist())


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e7, 1e10])
@pytest.mark.parametrize("units", [1.0, 1e-30, 1e25])
def test_precisions_are_above_those_of_fifty_digits(condition: float, units: float) -> None:
    r = units * conditioned(9, condition, 1)
    with mpmath.workdps(DIGITS):
        truth = mpmath.inverse(many_digits(r))
        for number, above in enumerate(precisions_above(exactly(r))):
            excess = [float(mpmath.mpf(x) / truth[i, i] - 1) for i, x in enumerate(above.tolist())]
            assert min(excess) >= 0
            assert max(excess) < (1e-14 if number and condition < 1e7 else 1e-9) * max(1, condition)


def test_precisions_of_an_enclosure_hold_those_of_its_ends() -> None:
    r = conditioned(6, 100.0, 2)
    spread = np.full(r.shape, 1e-6)
    above = list(precisions_above(Enclosure(r, spread)))[-1]
    for sign in (-1, 1):
        for e in (np.ones((6, 6)), np.eye(6), 1 - np.eye(6)):
            assert (np.diagonal(np.linalg.inv(r + sign * 0.999e-6 * e)) <= above).all()


@pytest.mark.parametrize(
    "matrix",
    [
        np.diag([1.0, -1e-9]),
        np.array([[1.0, 1.0], [1.0, 1.0]]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[np.nan, 0.0], [0.0, 1.0]]),
        np.array([[1.0, np.inf], [np.inf, 1.0]]),
        np.array([[1.0, 1.0 + 2**-52], [1.0 + 2**-52, 1.0]]),
    ],
)
def test_what_is_not_positive_definite_is_refused(matrix: Array) -> None:
    with np.errstate(all="ignore"):
        with pytest.raises(NotProvedError):
            list(precisions_above(exactly(matrix)))
        with pytest.raises(NotProvedError):
            factor_below(exactly(matrix))


@pytest.mark.parametrize("condition", [1.0, 1e5, 1e11])
def test_a_factor_is_below(condition: float) -> None:
    n = conditioned(8, condition, 3)
    found = factor_below(exactly(n))
    with mpmath.workdps(DIGITS):
        g = many_digits(found.factor)
        left = many_digits(n) - g.T * g
        assert min(mpmath.eigsy(left, eigvals_only=True)) >= 0
        assert max(abs(x) for x in left) < 1e-13
        off = [[abs(left[i, j] - found.left.mid[i, j]) for j in range(8)] for i in range(8)]
    assert (np.array(off, dtype=float) <= np.broadcast_to(found.left.rad, (8, 8))).all()


def test_dominance_takes_the_radius_into_account() -> None:
    a = np.array([[1.0, 0.5], [0.5, 1.0]])
    assert dominant(exactly(a))
    assert dominant(Enclosure(a, np.full((2, 2), 0.2)))
    assert not dominant(Enclosure(a, np.full((2, 2), 0.3)))
    assert not dominant(exactly(np.array([[1.0, np.nan], [np.nan, 1.0]])))


@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (4, 7)])
@pytest.mark.parametrize("rank", [2, None])
def test_nuclear_norms_are_below_those_of_fifty_digits(
    shape: tuple[int, int], rank: int | None
) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal(shape)
    if rank is not None:
        a = a[:, :rank] @ rng.standard_normal((rank, shape[1]))
    with mpmath.workdps(DIGITS):
        truth = sum(mpmath.svd_r(many_digits(a), compute_uv=False))
        for guess in (None, np.zeros(shape), a, rng.standard_normal(shape)):
            with np.errstate(all="ignore"):
                found = nuclear_norm(exactly(a), guess=guess, enough=math.inf)
            assert found.lower <= truth <= found.lower * (1 + 1e-13)


def test_a_poor_guess_proves_little_and_never_too_much() -> None:
    """Where little is enough no singular values are taken: what the guess proves is a bound."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, 6))
    truth = float(np.linalg.svd(a, compute_uv=False).sum())
    polar = np.linalg.svd(a)[0] @ np.linalg.svd(a)[2]
    turned = polar @ np.diag([-1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    for guess in (polar, polar * 7, polar + 0.1, turned):
        found = nuclear_norm(exactly(a), guess=guess, enough=0.0)
        assert found.lower <= truth * (1 + 1e-14)
    assert nuclear_norm(exactly(a), guess=turned, enough=0.0).lower < 0.9999 * truth
    assert (
        nuclear_norm(exactly(a), guess=turned, enough=truth * (1 - 1e-9)).lower > 0.9999999 * truth
    )


def test_entries_that_are_known_to_some_digits_cost_as_much() -> None:
    a = np.eye(3)
    found = nuclear_norm(Enclosure(a, np.full((3, 3), 1e-3)))
    assert 3 - 3.1e-3 < found.lower <= 3 - 2.9e-3  # of 1 + t in all entries it is less by 3 t


def test_an_inverse_strategy_is_known_with_its_error() -> None:
    rng = np.random.default_rng(6)
    c = np.tril(rng.standard_normal((7, 7))) + 3 * np.eye(7)
    found = noising_of(c)
    with mpmath.workdps(DIGITS):
        left = mpmath.eye(7) - many_digits(c) * many_digits(found.matrix)
        assert mpmath.mnorm(left, "f") <= found.error
    with pytest.raises(NotProvedError):
        noising_of(np.diag([1.0, 0.0]))


@pytest.mark.parametrize(
    "scheme",
    [
        FixedEpoch(epochs=3, separation=2),
        MinSeparation(horizon=6, separation=2, max_participations=3),
        FixedEpoch(epochs=1, separation=6),
    ],
)
def test_sensitivities_are_proved_of_strategies_that_no_signs_fit(scheme: FixedEpoch) -> None:
    """Elliptope maxima below the sums of absolute values, and above what unit vectors reach."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        c = np.tril(rng.standard_normal((6, 6)))
        known = squared_sensitivity(c.T @ c, scheme).squared
        c /= math.sqrt(known)
        found = sensitivity_above(exactly(c), scheme)
        assert 1 - 2e-9 <= found <= 1 + 2e-9
        assert sensitivity_above(Enclosure(c, np.abs(c) * 1e-3), scheme) > 1.001


def test_a_ratio_of_equals_is_one() -> None:
    thirds = np.array([1 / 3, 0.1])
    assert ratio_above(thirds, thirds) == 1
    assert ratio_above(np.nextafter(thirds, 1), thirds) > 1
    assert ratio_above(thirds / 2, thirds) < 0.51


@pytest.mark.parametrize("horizon", [1, 9, 40])
def test_integers_are_factored_without_rounding(horizon: int) -> None:
    """Sums of all steps so far: L is of ones, and nothing is left."""
    found = factor_below(exactly(prefix_gram(horizon=horizon)))
    assert found.left is None
    assert (found.factor == np.tri(horizon)).all()


def test_integers_that_are_no_gram_matrix_of_integers_are_factored_as_others() -> None:
    a = np.array([[2.0, 1.0], [1.0, 2.0]])
    found = factor_below(exactly(a))
    assert found.left is not None
    assert found.factor[0, 1] == 0
    with mpmath.workdps(DIGITS):
        g = many_digits(found.factor)
        assert min(mpmath.eigsy(many_digits(a) - g.T * g, eigvals_only=True)) >= 0
    with pytest.raises(NotProvedError):
        factor_below(exactly(np.array([[1.0, 1.0], [1.0, 1.0 - EPS]])))
    huge = factor_below(exactly(np.diag([2.0**60, 4.0])))  # beyond what sums of integers hold
    assert huge.left is not None


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_blocks_on_patterns_multiply_as_their_matrix(k: int) -> None:
    rng = np.random.default_rng(8)
    b = 3
    a, blocks = rng.standard_normal((4, k * b)), rng.standard_normal((b, k, k))
    whole = np.zeros((k * b, k * b))
    for j, block in enumerate(blocks):
        pattern = j + b * np.arange(k)
        whole[np.ix_(pattern, pattern)] = block
    assert on_patterns(a, blocks) == pytest.approx(a @ whole, abs=1e-13)


def test_what_longer_sums_err_by_is_seen_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With little room products are summed in short pieces, with much in long ones."""
    rng = np.random.default_rng(9)
    f = rng.standard_normal((300, 300))
    r = f @ f.T / 300 + np.eye(300)
    r = (r + r.T) / 2
    exact = np.diagonal(np.linalg.inv(r))
    pieces: list[int] = []
    original = rigorous._residual

    def watched(*given: object, piece: int, **more: object) -> object:
        pieces.append(piece)
        return original(*given, piece=piece, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rigorous, "_residual", watched)
    for room in (1e-6, 1e-15):
        first = next(iter(precisions_above(exactly(r), limits=exact * (1 + room))))
        assert (first >= exact * (1 - 1e-13)).all()
        assert (first <= exact * (1 + 1e-10)).all()
    assert pieces == [4 * PIECE, PIECE]


def test_around_holds_what_an_inverse_may_be() -> None:
    rng = np.random.default_rng(10)
    c = np.tril(rng.standard_normal((5, 5))) + 2 * np.eye(5)
    for error in (0.0, 1e-3):
        d = np.linalg.inv(c) * (1 + error / 3)
        found = Noising(d, error).around(Interval(*[float(np.sum(d * d))] * 2))
        assert found.lower <= float(np.sum(np.square(np.linalg.inv(c)))) * (1 + 1e-15)
        assert found.upper >= float(np.sum(np.square(np.linalg.inv(c)))) * (1 - 1e-15)
        assert found.width <= 5 * error * found.upper + 1e-14 * found.upper


# --- where allowances are large -------------------------------------------------------------------


WIDE = [1e-3, 0.1, 0.3]
"""Radii, relative to what they are about."""


def ends(a: Array, rad: Array) -> list[mpmath.matrix]:
    return [many_digits(a) + sign * many_digits(rad) for sign in (-1, 1)]


@pytest.mark.parametrize("radius", WIDE)
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("off", [1.0, 0.97, 1.03])
def test_bounds_by_an_inverse_hold_at_the_ends_of_wide_enclosures(
    off: float, size: int, radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a diagonal R, whose own ends are what a bound is for, and of others; by an inverse as it
    is and by one that is off; without a tolerance."""
    original = linalg.inverse_of_triangular
    monkeypatch.setattr(linalg, "inverse_of_triangular", lambda a: off * original(a))
    rng = np.random.default_rng(11)
    diagonal = np.diag(rng.uniform(1.0, 2.0, size))
    dense = conditioned(size, 2.0, 12)
    g, unknown = rng.uniform(0.5, 1.0, (size, 3)), radius * rng.uniform(0.0, 1.0, (size, 3))
    for r, rad in (
        (diagonal, radius * diagonal / size),
        (dense, radius * np.abs(dense) / (4 * size)),
    ):
        found = Enclosure(r, rad)
        for about in (exactly(g), Enclosure(g, unknown)):
            forms = forms_above(found, about)
            assert np.isfinite(forms).all()
            with mpmath.workdps(DIGITS):
                for end in ends(r, rad):
                    inverse = mpmath.inverse(end)
                    for of_g in ends(g, 0 * g if about.exact else unknown):
                        truth = of_g.T * inverse * of_g
                        assert all(truth[j, j] <= forms[j] for j in range(3))
        for above in precisions_above(found):
            assert np.isfinite(above).all()
            with mpmath.workdps(DIGITS):
                for end in ends(r, rad):
                    inverse = mpmath.inverse(end)
                    assert all(inverse[i, i] <= above[i] for i in range(size))


def test_what_an_inverse_is_off_by_counts_for_positive_definiteness() -> None:
    """R = J / n + t I has n - 1 eigenvalues t: Y is off M^T M by n^2 u / t at most, R Y off 1 by
    less by the root of n, and between the two nothing is known of signs."""
    n = 64
    ones = np.full((n, n), 1.0 / n)
    for t, known in ((1e-9, True), (66 * 32 * EPS / 2, False)):
        r = ones + t * np.eye(n)
        if known:
            assert next(precisions_above(exactly(r))).min() > 0
        else:
            with pytest.raises(NotProvedError, match="positive definite"):
                next(precisions_above(exactly(r)))


@pytest.mark.parametrize("error", [1e-12, 1e-3, 0.5, 0.99])
def test_an_inverse_that_is_off_is_allowed_for_in_full(error: float) -> None:
    """C = 1 and D = 1 - e, where the allowance is all that there is: 1 <= factor (1 - e)."""
    for sign in (1, -1):
        d = 1 - sign * error
        exact, found = Fraction(d), Noising(np.array([[d]]), error)
        assert Fraction(found.factor) * exact >= 1
        square = float(exact * exact)
        around = found.around(Interval(*(square * (1 + side * EPS) for side in (-1, 1))))
        assert around.lower <= 1 <= around.upper
    assert noising_of(np.ones((1, 1))).error < 1e-14


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("off", [-1.5, 2.0, 2.5])
def test_an_inverse_that_is_none_proves_nothing(
    off: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = linalg.inverse_of_triangular
    monkeypatch.setattr(linalg, "inverse_of_triangular", lambda a: off * original(a))
    with pytest.raises(NotProvedError, match="not proved invertible"):
        noising_of(np.eye(size))
    with pytest.raises(NotProvedError):
        next(precisions_above(exactly(np.eye(size))))


def test_strategies_of_any_condition_are_judged_as_by_fifty_digits_or_not_at_all() -> None:
    """Objective and variances, without a tolerance, with an inverse as it is and off by 1e-3."""
    original, judged_at = linalg.inverse_of_triangular, set()
    for condition in (1.0, 1e6, 1e12, 1e17):
        for off in (1.0, 1 - 1e-3, 1 + 1e-3):
            c = np.eye(6) - np.tril(np.full((6, 6), condition**0.2), -1)  # whose inverse grows
            gram = conditioned(6, 10.0, 14) + np.eye(6)
            program = TemporalProgram(gram=gram, participation=single(6))
            with mpmath.workdps(DIGITS):
                noising = mpmath.inverse(many_digits(c))
                noise = noising * noising.T
                truth = sum(x * y for x, y in zip(many_digits(gram), noise, strict=True))
                cap = np.array([float(noise[i, i]) for i in range(6)])
                worst = max(noise[i, i] / mpmath.mpf(x) for i, x in enumerate(cap.tolist()))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(linalg, "inverse_of_triangular", lambda a, off=off: off * original(a))
                try:
                    found = judge_strategy(program, c, cap=cap)
                except NotProvedError:
                    continue
            judged_at.add((condition, off))
            assert found.objective.lower <= truth <= found.objective.upper
            assert found.variance_ratio is not None
            assert worst <= found.variance_ratio
    assert (1e6, 1 - 1e-3) in judged_at
    assert (1e17, 1.0) not in judged_at


def test_the_pattern_that_is_worst_is_found_in_whichever_group_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patterns of one, two and three steps, of a diagonal C: the largest sum of squares, by hand;
    all at once, a few at a time, and one at a time."""
    scheme = Patterns(horizon=6, steps=((0,), (1, 2), (3, 4, 5)))
    two = FixedEpoch(epochs=2, separation=3)
    for chunk in (sensitivity.CHUNK, 8, 1):
        monkeypatch.setattr(sensitivity, "CHUNK", chunk)
        for worst in range(6):
            c = np.where(np.arange(6) == worst, 10.0, 1.0)
            truth = 100.0 + (0, 1, 1, 2, 2, 2)[worst]
            for limit in (1.0, 1e6):
                assert sensitivity_above(exactly(np.diag(c)), scheme, limit=limit) == (
                    pytest.approx(truth, rel=1e-12)
                )
                assert sensitivity_above(exactly(np.diag(c)), two, limit=limit) == (
                    pytest.approx(101.0, rel=1e-12)
                )
                wide = Enclosure(np.diag(c), np.diag(1e-3 * c))
                assert sensitivity_above(wide, scheme, limit=limit) >= truth * 1.001**2


def test_an_h_that_is_known_to_some_digits_widens_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of H = W^T M W both ends of M are held."""
    w, m, r = conditioned(3, 4.0, 15), conditioned(3, 4.0, 16), conditioned(3, 4.0, 17)
    problem = SpaceProblem(mixing=np.full((3, 3), 1 / 3))
    program = family_of(problem).program(problem)
    for radius in (0.0, 1e-3, 0.1):
        inside = Enclosure(m, np.full(m.shape, radius))
        through = Through(w, inside, np.linalg.cholesky(m).T)
        monkeypatch.setattr(rigorous, "_through", lambda program, found=through: found)
        objective = judge_covariance(program, r).objective
        with mpmath.workdps(DIGITS):
            seen = many_digits(w) * many_digits(r) * many_digits(w).T
            signs = np.sign(np.array(seen.tolist(), dtype=float))
            for sign in (-1, 1):
                end = many_digits(m) + sign * radius * many_digits(signs)
                truth = sum(x * y for x, y in zip(end, seen, strict=True))
                assert objective.lower <= truth <= objective.upper


@pytest.mark.parametrize("radius", [0.0, 1e-3, 0.1])
def test_bounds_hold_at_the_ends_of_their_multipliers(radius: float) -> None:
    """(tr (L U L^T)^1/2)^2 over the price, without a tolerance, and no less than it has to be."""
    below = np.linalg.cholesky(conditioned(3, 10.0, 18)).T
    for u in (np.diag([1.0, 2.0, 4.0]), conditioned(3, 2.0, 19)):
        rad = radius * (np.diag(np.diagonal(u)) if u[0, 1] == 0 else np.abs(u) / 12)
        found = matrix_bound(below, Enclosure(u, rad) if radius else exactly(u), 2.0, enough=0.0)
        with mpmath.workdps(DIGITS):
            half = many_digits(below)
            for end in ends(u, rad):
                values = mpmath.eigsy(half * end * half.T, eigvals_only=True)
                truth = sum(mpmath.sqrt(x) for x in values) ** 2 / 2
                assert found.lower <= truth
        if not radius:
            assert found.lower >= truth * (1 - mpmath.mpf(10) ** -9)


def test_multipliers_cost_their_largest_diagonal_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever blocks are made of them: diag(1, 4) costs 4, as a record takes part in either step.
    Of H = 1 and that U the bound is (1 + 2)^2 / 4, and the optimum 4: X = diag(1, 1) / 2."""
    monkeypatch.setattr("noisedesign.certify.certificate.repaired_blocks", lambda u: u)
    scheme = FixedEpoch(epochs=2, separation=1)
    problem = TimeProblem.from_gram(gram=np.eye(2), participation=scheme)
    program = family_of(problem).program(problem)
    for uneven in ([1.0, 4.0], [4.0, 1.0]):
        dual = DualPoint(blocks=np.diag(uneven)[None])
        found = disjoint_bound(program, dual)
        assert 2.25 * (1 - 1e-12) <= found.lower <= 2.25


# --- the last rounding ----------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 3, 7])
@pytest.mark.parametrize("budget", [0.1, 0.7, 3.0])
def test_what_a_server_releases_is_rounded_up(nodes: int, budget: float) -> None:
    """1 / (n^2 v tau) in fractions, and 1 where that is what it is."""
    for v in (0.3, 0.9, 5.0, 11.0):
        truth = 1 / (Fraction(nodes) ** 2 * Fraction(v) * Fraction(budget))
        found = rigorous.release_above(np.full((nodes, nodes), v), np.array([budget]))
        assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 2**51))
    exactly_one = rigorous.release_above(np.full((2, 2), 0.25), np.ones(1))
    assert exactly_one == 1


def test_a_bound_that_underflows_is_rounded_down() -> None:
    """Squares of 1e-158 have few digits left, or none."""
    rng = np.random.default_rng(12)
    for _ in range(50):
        norm, price = float(10 ** rng.uniform(-160, -150)), float(10 ** rng.uniform(-9, 9))
        found = rigorous.squared_over(Interval(norm, norm), price)
        assert Fraction(found.lower) <= Fraction(norm) ** 2 / Fraction(price)
        assert Fraction(found.upper) >= Fraction(norm) ** 2 / Fraction(price)
