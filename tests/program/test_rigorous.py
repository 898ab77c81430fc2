"""The steps of a proof, against fifty digits: on the safe side always, and tight where they can."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from noisedesign.base.enclosures import EPS, PIECE, Enclosure, Interval, exactly
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.program import rigorous
from noisedesign.program.polar import nuclear_norm
from noisedesign.program.rigorous import (
    Noising,
    NotProvedError,
    dominant,
    factor_below,
    noising_of,
    on_patterns,
    precisions_above,
    ratio_above,
    sensitivity_above,
)
from noisedesign.system.participation import FixedEpoch, MinSeparation
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
