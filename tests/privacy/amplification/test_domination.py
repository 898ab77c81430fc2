"""What the accounts rest on, by brute force: monotone Gram matrices, adaptive runs, replacement.

Tiny runs of scalar gradients, T = 3 steps and b = 2 or 3 bins, against an adversary that chooses
the sign of every gradient from all outputs so far. Its best policy is found exactly on a grid of
outputs, backwards in time: E f(L) is what it maximises, and L a function of all outputs.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.privacy.amplification import bins_of
from noisedesign.privacy.amplification.directions import least_delta
from tests.support import mixtures
from tests.support.oracles import Array

STEP, REACH = 0.4, 8.4
AXIS = np.arange(-REACH, REACH + STEP / 2, STEP)
WEIGHT = np.exp(-AXIS * AXIS / 2) / math.sqrt(2 * math.pi) * STEP
"""Of smooth integrands the trapezoidal rule is exact to rounding, even at so large a step."""


def smooth(ratio: Array) -> Array:
    """A convex f without a kink, so that a coarse grid is exact: L^2 - 1."""
    return ratio * ratio - 1


def adaptive(strategy: Array, patterns: list[tuple[int, ...]], adversary: bool) -> float:
    """E_Q f(L) of the best signs, or of all signs +1; outputs are white under Q.

    Without the record outputs are noise alone, whatever the policy. With it, in bin j, the mean of
    output t is sum over s in bin j, s <= t, of C_ts g_s, g_s = +-1 chosen from outputs before s.
    """
    horizon = len(strategy)
    takes = np.array([[s in pattern for s in range(horizon)] for pattern in patterns])

    def value(time: int, signs: tuple[float, ...], log_ratios: Array) -> Array:
        """Best E f(L) given all logarithms so far, shape (outputs, b)."""
        if time == horizon:
            return smooth(np.exp(log_ratios).mean(axis=1))
        best = None
        for sign in (1.0, -1.0) if adversary else (1.0,):
            chosen = np.array([*signs, sign])
            means = (takes[:, : time + 1] * (strategy[time, : time + 1] * chosen)).sum(axis=1)
            after = log_ratios[:, None, :] + AXIS[:, None] * means - means * means / 2
            later = value(time + 1, (*signs, sign), after.reshape(-1, len(patterns)))
            expected = later.reshape(len(log_ratios), len(AXIS)) @ WEIGHT
            best = expected if best is None else np.maximum(best, expected)
        assert best is not None
        return best

    return float(value(0, (), np.zeros((1, len(patterns))))[0])


STRATEGIES = {
    "nonnegative": np.array([[0.5, 0, 0], [0.3, 0.4, 0], [0.2, 0.3, 0.5]]),
    "mixed signs": np.array([[0.5, 0, 0], [-0.3, 0.4, 0], [0.2, -0.3, 0.5]]),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("patterns", [[(0, 2), (1,)], [(0,), (1,), (2,)]], ids=["b = 2", "b = 3"])
def test_no_adaptive_signs_do_better_than_absolute_values(
    name: str, patterns: list[tuple[int, ...]]
) -> None:
    strategy = STRATEGIES[name]
    means = np.stack([np.abs(strategy)[:, list(steps)].sum(axis=1) for steps in patterns])
    dominating = float(np.exp(means @ means.T).mean()) - 1  # E L^2 - 1 by hand
    best = adaptive(strategy, patterns, adversary=True)
    assert best <= dominating * (1 + 1e-7)
    if name == "nonnegative":  # attained, by equal gradients
        assert best == pytest.approx(dominating, rel=1e-7)
        assert adaptive(strategy, patterns, adversary=False) == pytest.approx(dominating, rel=1e-7)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_every_entry_of_the_gram_matrix_counts_upwards(epsilon: float) -> None:
    base = np.array([[1.0, 0.3, 0.2], [0.3, 0.8, 0.1], [0.2, 0.1, 0.6]])
    remove, add = mixtures.deltas(base, epsilon)
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        more = base.copy()
        more[i, j] += 0.1
        more[j, i] = more[i, j]
        assert np.linalg.eigvalsh(more)[0] >= 0
        above = mixtures.deltas(more, epsilon)
        assert above[0] > remove
        assert above[1] > add


def test_the_derivative_in_an_entry() -> None:
    """d E f(L) / d G_ij = (1 / 2) p_i p_j E f''(L) w_i w_j, summed over (i, j) and (j, i)."""
    gram, shift = np.array([[0.5, 0.2], [0.2, 0.4]]), 1e-5
    up, down = gram.copy(), gram.copy()
    up[0, 1] += shift
    up[1, 0] += shift
    down[0, 1] -= shift
    down[1, 0] -= shift
    # f = L^2: E L^2 = mean e^(G_ij); f'' = 2 and E w_1 w_2 = e^(G_12).
    difference = (np.exp(up).mean() - np.exp(down).mean()) / (2 * shift)
    assert difference == pytest.approx(2 * 0.5 * 0.25 * 2 * math.exp(0.2), rel=1e-8)
    # f = (L - K)_+: f'' is the density of L at K times E[w_1 w_2 | L = K], here by counting.
    by_quadrature = (mixtures.deltas(up, 0.3)[0] - mixtures.deltas(down, 0.3)[0]) / (2 * shift)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1_000_000, 2)) @ np.linalg.cholesky(gram).T
    w = np.exp(x - np.diagonal(gram) / 2)
    near = np.abs(w.mean(axis=1) - math.exp(0.3)) < 0.01
    counted = (w[near].prod(axis=1)).sum() / len(w) / 0.02
    assert by_quadrature == pytest.approx(0.25 * counted, rel=0.05)


@pytest.mark.parametrize("signs", [(1, -1), (1, 1)])
def test_replacement_is_a_removal_and_an_addition(signs: tuple[int, int]) -> None:
    """Two records in one unknown bin, at opposite ends of the ball: P' and P'' by quadrature."""
    first, second = signs
    means = np.diag([0.9, 0.9])  # two orthogonal bins
    axis = np.arange(-8, 8, 0.04)
    y = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)

    def density(sign: int) -> Array:
        found = np.zeros(y.shape[:2])
        for mean in means:
            found += np.exp(-((y - sign * mean) ** 2).sum(axis=-1) / 2) / (4 * math.pi)
        return found

    one, other = density(first), density(second)
    remove, add = (
        lambda epsilon, which=which: mixtures.deltas(means @ means.T, epsilon)[which]
        for which in (0, 1)
    )
    for epsilon in (0.5, 1.0, 2.0):
        exact = float(np.maximum(one - math.exp(epsilon) * other, 0).sum() * 0.04**2)
        bound = least_delta(remove, add, epsilon=epsilon, adjacency="replace")
        assert exact <= bound
        if first != second and epsilon <= 1:
            assert exact >= 0.2 * bound  # a bound, not a triviality


def test_bins_are_sums_of_columns() -> None:
    strategy = np.tril(np.arange(1.0, 17.0).reshape(4, 4)) / 10
    scheme = nd.participation.BallsInBins(epochs=2, separation=2)
    even, odd = strategy[:, 0] + strategy[:, 2], strategy[:, 1] + strategy[:, 3]
    exact = [[even @ even, even @ odd], [odd @ even, odd @ odd]]
    gram = bins_of(strategy, scheme).gram
    np.testing.assert_allclose(gram, exact, rtol=1e-13)
    assert (gram >= np.array(exact) * (1 - 1e-15)).all()
