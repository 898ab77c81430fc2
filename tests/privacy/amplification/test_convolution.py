"""Sums of lognormals on a grid: never below the truth, and close to it at any delta."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from noisedesign.privacy.accounting import delta_above
from noisedesign.privacy.amplification import convolution
from noisedesign.privacy.amplification.convolution import even_add, even_deltas, even_remove
from tests.support import mixtures
from tests.support.oracles import Array

ROUNDING = 1e-9


@pytest.mark.parametrize(
    ("c", "epsilon"),
    [(0.01, 0.1), (0.01, 0.4), (0.1, 0.0), (0.1, 1.2), (1, 0.3), (1, 3), (4, 2), (4, 8), (20, 10)],
)
def test_two_bins_by_quadrature(c: float, epsilon: float) -> None:
    remove, add = mixtures.deltas(c * np.eye(2), epsilon)
    found = even_deltas(c, 2, epsilon)
    for bound, exact in zip(found, (remove, add), strict=True):
        assert exact * (1 - ROUNDING) - 1e-15 <= bound <= exact * (1 + 1e-3) + 1e-15


@pytest.mark.parametrize(("c", "epsilon"), [(0.2, 0.5), (1, 1), (3, 2.5)])
def test_three_bins_by_quadrature(c: float, epsilon: float) -> None:
    exact = mixtures.deltas(c * np.eye(3), epsilon, points=801)
    for bound, value in zip(even_deltas(c, 3, epsilon), exact, strict=True):
        assert value * (1 - ROUNDING) <= bound <= value * (1 + 1e-3)


@pytest.mark.parametrize(("c", "common"), [(1, 0.3), (0.1, 0.1), (0.5, 1), (0.05, 0.5)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_common_factor_by_quadrature(c: float, common: float, epsilon: float) -> None:
    exact = mixtures.deltas(c * np.eye(2) + common, epsilon)
    for bound, value in zip(even_deltas(c, 2, epsilon, common=common), exact, strict=True):
        assert value * (1 - ROUNDING) <= bound <= value * 1.05


# --- what is neglected, and what rounding may do, by much more of it ------------------------------


TWO = [(0.1, 0.0), (0.1, 1.2), (1.0, 0.3), (1.0, 3.0), (4.0, 2.0)]


def never_below(c: float, epsilon: float, *, common: float = 0.0) -> None:
    """Both directions of two bins are above quadrature."""
    remove, add = mixtures.deltas(c * np.eye(2) + common, epsilon)
    found = even_deltas(c, 2, epsilon, common=common)
    for bound, exact in zip(found, (remove, add), strict=True):
        assert exact * (1 - ROUNDING) - 1e-15 <= bound


@pytest.mark.parametrize(("c", "epsilon"), TWO)
def test_sums_beyond_the_window_are_counted(
    c: float, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that ends a little behind the strike, or just at it."""
    for far in (1.0, 0.1):
        monkeypatch.setattr(convolution, "FAR", far)
        monkeypatch.setattr(convolution, "OUTSIDE", 0.3)
        never_below(c, epsilon)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("c", "epsilon"), TWO)
def test_whatever_a_transform_errs_within_its_bound(
    c: float, epsilon: float, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a thousandth of its norm, and of every doubling of its length, in the largest entry:
    on the way to frequencies, on the way back and on both."""
    error = 1e-3

    def wrong(transform: Any) -> Any:
        def errs(values: Array, *size: int) -> Array:
            found: Array = transform(values, *size)
            doublings = math.log2(size[0] if size else len(values))
            found[np.abs(found).argmax()] += sign * error * doublings * np.linalg.norm(found)
            return found

        return errs

    monkeypatch.setattr(convolution, "FFT_ERROR", error)
    for names in (("rfft",), ("irfft",), ("rfft", "irfft")):
        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(convolution, name, wrong(getattr(convolution, name)))
            never_below(c, epsilon)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("c", "epsilon", "common"), [*((*two, 0.0) for two in TWO), (1, 0.5, 0.3)])
def test_whatever_masses_of_cells_err_within_their_bounds(
    c: float, epsilon: float, common: float, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of every mass, said and made; a fifth of those of a common factor alone, as their
    nodes are coarse."""
    differences, options = convolution._differences, convolution._options

    def wrong(share: float) -> Callable[[Array], tuple[Array, Array]]:
        def errs(z: Array) -> tuple[Array, Array]:
            masses, errors = differences(z)
            return masses * (1 + share * sign), errors + share * masses

        return errs

    def of_bins(*arguments: Any) -> float:
        with monkeypatch.context() as patch:
            patch.setattr(convolution, "_differences", differences)
            return options(*arguments)

    monkeypatch.setattr(convolution, "_differences", wrong(0.01))
    never_below(c, epsilon, common=common)
    if common:
        monkeypatch.setattr(convolution, "_differences", wrong(0.2))
        monkeypatch.setattr(convolution, "_options", of_bins)
        never_below(c, epsilon, common=common)


@pytest.mark.parametrize("change", ["t", "lowest", "highest", "low", "high", "all"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_nothing_rests_on_the_tilt_but_accuracy(
    change: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of grid and window far inside, alone and all at once: what is beyond them counts."""
    tilted = convolution._Sum._tilt

    def another(self: convolution._Sum) -> Any:
        tilt, level = tilted(self), self.level
        inside = {
            "t": tilt.t * share,
            "lowest": tilt.lowest + share * (tilt.highest - tilt.lowest),
            "highest": tilt.highest - share * (tilt.highest - tilt.lowest) / 2,
            "low": tilt.low + share * (level - tilt.low),
            "high": tilt.high - share * (tilt.high - level),
        }
        return tilt._replace(**{key: inside[key] for key in inside if change in (key, "all")})

    monkeypatch.setattr(convolution._Sum, "_tilt", another)
    for c, epsilon in TWO:
        never_below(c, epsilon)


@pytest.mark.parametrize("reach", [0.1, 0.5, 1.0, 2.0])
def test_a_common_factor_beyond_its_nodes_is_counted(
    reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "REACH", reach)
    for c, common in ((1.0, 0.3), (0.1, 0.1), (0.5, 1.0)):
        for epsilon in (0.1, 0.5, 2.0):
            never_below(c, epsilon, common=common)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(("c", "common"), [(1, 0.3), (0.1, 0.1), (0.5, 1), (0.05, 0.5)])
def test_groups_of_strikes_that_are_neglected_are_counted(
    c: float, common: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "NEGLIGIBLE", share)
    for epsilon in (0.5, 2.0):
        never_below(c, epsilon, common=common)


@pytest.mark.parametrize(
    "epsilon", [1.0, 5.0, 10.0, pytest.param(15.0, marks=pytest.mark.slow), 20.0]
)
def test_a_common_factor_far_out_is_a_gaussian_mechanism_or_worse(epsilon: float) -> None:
    """By Jensen's inequality over the bins; beyond 10 standard deviations of it too."""
    for common, c, bins in ((1.0, 0.01, 16), (0.2, 0.1, 3), (4.0, 1e-4, 40)):
        least = delta_above(math.sqrt(common), epsilon)
        for bound in even_deltas(c, bins, epsilon, common=common):
            assert least * (1 - ROUNDING) <= bound or least < 1e-99


@pytest.mark.parametrize(("c", "bins"), [(0.3, 16), (2.0, 16), (1.0, 300), (0.01, 50)])
@pytest.mark.parametrize("epsilon", [0.02, 0.5])
def test_finer_grids_agree(c: float, bins: int, epsilon: float) -> None:
    """The error of the spread is quadratic in the step: a grid five times as fine shows it all."""
    for sign, level in ((1, bins * math.exp(epsilon)), (-1, bins * math.exp(-epsilon))):
        coarse = convolution._Sum(c, bins, level, sign).option(level)
        fine = convolution._Sum(c, bins, level, sign, tolerance=4e-6).option(level)
        assert coarse == pytest.approx(fine, rel=3e-3)


@pytest.mark.parametrize("bins", [3, 8, 16])
def test_many_bins_by_samples(bins: int) -> None:
    for c, epsilon in ((0.5, 0.4), (2.0, 2.0)):
        drawn = mixtures.removal_by_samples(c * np.eye(bins), epsilon)
        assert even_remove(c, bins, epsilon) == pytest.approx(drawn, rel=0.02)


def test_total_variation_is_the_same_both_ways() -> None:
    for c, bins in ((4.0, 20), (0.3, 2), (10.0, 500)):
        remove, add = even_deltas(c, bins, 0.0)
        assert remove == pytest.approx(add, rel=1e-3)


@pytest.mark.parametrize("c", [1e-3, 1.0, 50.0])
def test_one_bin_is_the_gaussian_mechanism(c: float) -> None:
    for epsilon in (0.1, 3.0):
        exact = delta_above(math.sqrt(c), epsilon)
        assert even_deltas(c, 1, epsilon) == (exact, exact)


def test_more_bins_and_less_signal_lose_less() -> None:
    for bound in (even_remove, even_add):
        over_bins = [bound(1.0, bins, 1.0) for bins in (1, 2, 3, 5, 8, 16, 40, 200)]
        assert all(
            later <= earlier * (1 + 1e-3) for earlier, later in itertools.pairwise(over_bins)
        )
        over_c = [bound(c, 16, 1.0) for c in (0.05, 0.1, 0.1001, 0.3, 1, 1.01, 3, 10)]
        assert all(larger >= smaller * (1 - 1e-4) for smaller, larger in itertools.pairwise(over_c))
        over_epsilon = [bound(1.0, 16, epsilon) for epsilon in np.linspace(0, 6, 40)]
        assert all(
            later <= earlier * (1 + 1e-4) for earlier, later in itertools.pairwise(over_epsilon)
        )


def test_it_never_leaves_what_is_proved_without_amplification() -> None:
    for c in (1e-8, 1.0, 90.0, 1e4):
        for epsilon in (0.0, 5.0, 100.0, 1e4):
            for bins in (2, 17):
                for bound in even_deltas(c, bins, epsilon):
                    assert 1e-300 <= bound <= delta_above(math.sqrt(c), epsilon)


def test_one_bin_alone_is_a_lower_bound() -> None:
    """By Jensen's inequality over the others, E (w_1 + b - 1 - b K)_+ / b is below the call."""
    for c, bins, epsilon in ((1.0, 16, 5.0), (4.0, 64, 6.0), (2.0, 2, 8.0)):
        strike = bins * math.exp(epsilon) - bins + 1
        least = delta_above(math.sqrt(c), math.log(strike)) / bins
        assert even_remove(c, bins, epsilon) >= least


def test_tails_far_below_what_adds_up_in_doubles() -> None:
    found = even_remove(1.0, 4, 9.0)
    assert 1e-60 < found < 1e-20
    assert found == pytest.approx(mixtures.removal_by_samples(np.eye(4), 9.0), rel=0.03)


@pytest.mark.parametrize("c", [1e-7, 1e-9])
def test_bins_that_hardly_matter_are_quick_and_bounded(c: float) -> None:
    """A mean of many lognormals of little variance is one of a bth of it, about."""
    mu = math.sqrt(c / 16)
    for bound in (even_remove, even_add):
        truth = delta_above(mu, mu / 2)
        assert truth * (1 - 1e-3) <= bound(c, 16, mu / 2) <= 1.1 * truth


def two_bins_in_digits(c: float, epsilon: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Both directions for two bins, (remove, add), in 30 digits: Black and Scholes in the second
    bin, quadrature over the first."""
    root, strike = mpmath.sqrt(c), mpmath.exp(epsilon)

    def put(level: mpmath.mpf) -> mpmath.mpf:
        """E(level - w)_+"""
        if level <= 0:
            return mpmath.mpf(0)
        z = (mpmath.log(level) + c / 2) / root
        return level * mpmath.ncdf(z) - mpmath.ncdf(z - root)

    def call(level: mpmath.mpf) -> mpmath.mpf:
        if level <= 0:
            return 1 - level
        z = (mpmath.log(level) + c / 2) / root
        return mpmath.ncdf(root - z) - level * mpmath.ncdf(-z)

    def lognormal(z: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(root * z - c / 2)

    def over(value: Callable[[mpmath.mpf], mpmath.mpf], end: mpmath.mpf) -> mpmath.mpf:
        """The integral below ``end``, by the trapezoidal rule in the logarithm of the distance."""
        step = mpmath.mpf(1) / 16
        distances = [mpmath.exp(step * i) for i in range(-256, 60)]
        return step * mpmath.fsum(x * mpmath.npdf(end - x) * value(end - x) for x in distances)

    low = (mpmath.log(2 / strike) + c / 2) / root  # here one bin alone is at the strike
    high = (mpmath.log(2 * strike) + c / 2) / root
    add = strike / 2 * over(lambda z: put(2 / strike - lognormal(z)), low)
    remove = over(lambda z: call(2 * strike - lognormal(z)), high) / 2
    # Above it the second bin adds its mean: E(w_1 + 1 - 2 K; w_1 > 2 K) / 2.
    remove += (mpmath.ncdf(root - high) - (2 * strike - 1) * mpmath.ncdf(-high)) / 2
    return remove, add


def test_two_bins_are_never_understated_however_small_delta_is() -> None:
    """Where 1e-290 was given for 1e-67: exponents were cut, as the tilt was sought too high."""
    shares = []
    with mpmath.workdps(30):
        for c, epsilons in (
            (1e-4, (0.05, 0.1225)),
            (0.01, (1.225,)),
            (0.2, (5.48,)),
            (1.0, (4.0, 12.5)),
            (5.0, (29.63,)),
            (30.0, (20.0, 80.0)),
        ):
            for epsilon in epsilons:
                exact = two_bins_in_digits(c, epsilon)
                for bound, value in zip(even_deltas(c, 2, epsilon), exact, strict=True):
                    assert value * (1 - 1e-6) <= bound, (c, epsilon)
                    if value > 1e-90:
                        shares.append(float(bound / value))
    assert len(shares) >= 10
    assert max(shares) < 1.01


@pytest.mark.slow
def test_bins_that_are_all_small_are_a_lower_bound_of_add() -> None:
    """P(all w_j <= x) (1 - K x) for any x, in 30 digits."""
    with mpmath.workdps(30):
        for bins in (2, 3, 4, 8, 16, 64):
            for c in (1e-6, 1e-3, 0.1, 1.0, 10.0):
                root = mpmath.sqrt(c)
                for sigmas in np.linspace(3, 25, 23):
                    epsilon = float(sigmas * root)
                    if epsilon > 60:
                        continue
                    for share in (0.5, 0.9, 0.99):
                        z = (mpmath.log(share) - epsilon + c / 2) / root
                        least = mpmath.ncdf(z) ** bins * (1 - share)
                        assert even_add(c, bins, epsilon) >= least, (bins, c, epsilon)
