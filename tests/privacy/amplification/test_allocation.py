"""Random allocation of t of T steps: every subset enumerated, and independent packages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.privacy.amplification import Amplified, amplified
from tests.support.direction_oracles import directions, means_of, orthogonal

pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")


def allocation(horizon: int, count: int) -> nd.participation.RandomAllocation:
    return nd.participation.RandomAllocation(horizon=horizon, participations=count)


@pytest.mark.parametrize(("horizon", "count", "scale"), [(3, 2, 1.0), (4, 2, 0.8), (4, 3, 0.5)])
def test_the_account_bounds_all_subsets(horizon: int, count: int, scale: float) -> None:
    subsets = list(itertools.combinations(range(horizon), count))
    known = {"horizon": horizon, "points": 61}
    chances = [1 / len(subsets)] * len(subsets)
    for delta in (3e-2, 1e-4):
        found = amplified(
            allocation(horizon, count), scale * np.eye(horizon), delta=delta, adjacency="zero-out"
        )
        assert orthogonal(scale, subsets, chances, found.remove, **known)[0] <= delta
        assert orthogonal(scale, subsets, chances, found.add, **known)[1] <= delta
        assert found.epsilon <= nd.privacy.epsilon_of(mu=scale * count**0.5, delta=delta)


def test_the_bound_is_that_of_a_known_cut() -> None:
    """2 of 3 steps: one step that is known, and one of two; w_1 (w_2 + w_3) / 2 by quadrature."""
    for delta in (1e-1, 1e-3, 1e-6):
        found = amplified(allocation(3, 2), np.eye(3), delta=delta, adjacency="zero-out")
        for way, epsilon in enumerate((found.remove, found.add)):
            nearby = [
                orthogonal(1.0, [(0, 1), (0, 2)], [0.5, 0.5], e, horizon=3, points=401)[way]
                for e in (epsilon, 0.98 * epsilon - 2e-3)
            ]
            assert nearby[0] <= delta <= nearby[1]


def test_columns_that_overlap_are_bounded() -> None:
    strategy = np.array([[1.0, 0.0, 0.0], [0.4, 1.0, 0.0], [0.1, 0.4, 1.0]])
    subsets = list(itertools.combinations(range(3), 2))
    means = means_of(strategy, subsets)
    delta = 1e-3
    found = amplified(allocation(3, 2), strategy, delta=delta, adjacency="zero-out")
    assert directions(means, [1 / 3] * 3, found.remove, points=45)[0] <= delta
    assert directions(means, [1 / 3] * 3, found.add, points=45)[1] <= delta


def test_one_step_is_balls_in_bins() -> None:
    bins = nd.participation.BallsInBins(epochs=1, separation=20)
    for adjacency in ("zero-out", "replace"):
        found = [
            amplified(scheme, np.eye(20), delta=1e-5, adjacency=adjacency).epsilon
            for scheme in (allocation(20, 1), bins)
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-6)


PUBLISHED = {
    (160, 20, 1.5): (5.865114973979579, 5.943623778330567),
    (50, 3, 1.0): (3.069497570209371, 3.1383167656533293),
    (17, 5, 2.0): (2.9717101967811126, 3.047434229488419),
    (320, 20, 5.0): (0.9331024914614348, 0.9715598895066742),
}
"""(T, t, noise multiplier) -> lower and upper bounds of epsilon at delta 1e-6 of
``gaussian_allocation_epsilon_range`` of PLD_accounting 2.0 (Feldman and Shenfeld 2026, "Efficient
privacy loss accounting for subsampling and random allocation", arXiv 2602.17284), which cuts the
steps in the same way and composes on other grids."""


@pytest.mark.parametrize(("horizon", "count", "noise"), PUBLISHED)
def test_within_the_bounds_of_pld_accounting(horizon: int, count: int, noise: float) -> None:
    lower, upper = PUBLISHED[horizon, count, noise]
    found = amplified(
        allocation(horizon, count),
        np.eye(horizon),
        delta=1e-6,
        noise_multiplier=noise,
        adjacency="add-remove",
    )
    assert lower <= found.epsilon <= upper
    assert found.which == "composition"


LOOSER = {
    (100, 1.0): (1.3178918127621573, 0.7161341104406473),
    (1000, 0.8): (0.7180450142539081, 0.3357972148518622),
}
"""(T, noise multiplier) -> epsilon of removal and of addition at delta 1e-6 for one of T steps, by
``allocation_epsilon_decomposition`` of random_allocation 1.0.5 (Feldman and Shenfeld 2025, "Privacy
amplification by random allocation", arXiv 2502.08202): upper bounds, by Poisson sampling."""


@pytest.mark.parametrize(("horizon", "noise"), LOOSER)
def test_below_the_bounds_of_random_allocation(horizon: int, noise: float) -> None:
    found = amplified(
        allocation(horizon, 1),
        np.eye(horizon),
        delta=1e-6,
        noise_multiplier=noise,
        adjacency="add-remove",
    )
    remove, add = LOOSER[horizon, noise]
    assert 0.6 * remove < found.remove < remove
    assert 0.6 * add < found.add < add


def test_against_pld_accounting_itself() -> None:
    package = pytest.importorskip("PLD_accounting", reason="pip install PLD_accounting==2.0")
    upper, lower = package.gaussian_allocation_epsilon_range(
        delta=1e-5, sigma=2.0, num_steps=30, num_selected=4
    )
    found = amplified(
        allocation(30, 4), np.eye(30), delta=1e-5, noise_multiplier=2.0, adjacency="add-remove"
    )
    assert lower <= found.epsilon <= upper


def test_as_bad_as_no_choice_where_there_is_little() -> None:
    found = amplified(allocation(6, 5), np.eye(6), delta=1e-5, adjacency="zero-out")
    assert found.epsilon <= nd.privacy.epsilon_of(mu=5**0.5, delta=1e-5)


def test_replacement_where_epsilon_is_large() -> None:
    """Most of delta is lost to the removal, and the addition is amplified all the same."""
    scheme = allocation(24, 6)
    found = amplified(scheme, np.eye(24), delta=1e-5, noise_multiplier=0.8, adjacency="replace")
    alone = amplified(scheme, np.eye(24), delta=1e-5, noise_multiplier=0.8, adjacency="zero-out")
    assert alone.epsilon < found.epsilon < 2.2 * alone.epsilon
    assert found.epsilon < 0.8 * nd.privacy.epsilon_of(mu=2 * 6**0.5 / 0.8, delta=1e-5)


@pytest.mark.parametrize(
    ("horizon", "count", "noise", "delta", "beside"),
    [(20, 3, 0.6235, 1e-3, 0.4), (24, 6, 0.8, 1e-5, 0.0), (12, 3, 2.0, 1e-6, 0.2)],
)
def test_a_replacement_costs_no_more_than_its_parts(
    horizon: int, count: int, noise: float, delta: float, beside: float
) -> None:
    """A removal at half of delta, and an addition at what is left of the other half, each by an
    account of its own: curves reach as far down as an addition after a removal asks for."""
    scheme, rows = allocation(horizon, count), np.eye(horizon) + beside * np.eye(horizon, k=-1)

    def at(delta: float, adjacency: str) -> Amplified:
        return amplified(scheme, rows, delta=delta, noise_multiplier=noise, adjacency=adjacency)

    removal = at(delta / 2, "zero-out").remove
    addition = at(delta / 2 * np.exp(-removal), "zero-out").add
    assert at(delta, "replace").epsilon <= (removal + addition) * (1 + 1e-3)
