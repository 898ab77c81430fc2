"""Dealt noise whose covariance is singular: what it does not hide is exposed, not merely large.

The reference is algebra: with R = A A^T, A of shape (n, r), the values of r nodes in general
position tell the noise of all others, and a reader of all messages sees the directions that A
misses, which in general position have a part in every node.
"""

from __future__ import annotations

import math

import mpmath
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.privacy import views as threats
from noisedesign.privacy.views.algorithms import Algorithm

STEPS = 2


def complete(n: int) -> np.ndarray:
    return np.full((n, n), 1 / n)


def general_position(seed: int, *, scales: float) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    r = int(rng.integers(1, n))
    factor = rng.standard_normal((n, r)) * 10.0 ** rng.uniform(-scales, scales, (n, 1))
    return factor, r


def exposures(algorithm: Algorithm, observer: nd.observers.Observer) -> list[nd.results.Exposure]:
    return nd.account(algorithm, observer, participation=nd.participation.single(STEPS))


@pytest.mark.parametrize("scales", [0.0, 6.0])
@pytest.mark.parametrize("seed", range(60))
def test_all_is_exposed(seed: int, scales: float) -> None:
    factor, r = general_position(seed, scales=scales)
    n = len(factor)
    algorithm = threats.whisper(mixing=complete(n), covariance=factor @ factor.T, horizon=STEPS)
    for observer in (threats.insider(nodes=range(r)), threats.ldp()):
        found = exposures(algorithm, observer)
        assert [exposure.mu for exposure in found] == [math.inf] * len(found)
        assert {exposure.which for exposure in found} == {"unbounded"}


@pytest.mark.parametrize("seed", range(20))
def test_all_is_exposed_over_time_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((3 * STEPS, 3 * STEPS - 1))
    algorithm = threats.space_time(mixing=complete(3), covariance=factor @ factor.T, horizon=STEPS)
    assert all(math.isinf(found.mu) for found in exposures(algorithm, threats.ldp()))


def test_only_what_is_not_hidden_is_exposed() -> None:
    """Nodes 0 and 1 share one noise; node 2 has its own, of variance 4."""
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    algorithm = threats.whisper(mixing=complete(3), covariance=covariance, horizon=STEPS)
    shared, also, own = exposures(algorithm, threats.ldp())
    assert math.isinf(shared.mu)
    assert math.isinf(also.mu)
    assert own.sensitivity_squared == pytest.approx(1 / 4, rel=1e-12)


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e11])
@pytest.mark.parametrize("scales", [0.0, 5.0])
def test_noise_that_is_merely_quiet_is_noise(condition: float, scales: float) -> None:
    """A regular covariance, however graded: finite numbers, those of its exact inverse."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    covariance = (basis * np.geomspace(1, 1 / condition, 5)) @ basis.T
    scale = 10.0 ** rng.uniform(-scales, scales, 5)
    covariance = scale[:, None] * (covariance + covariance.T) / 2 * scale
    with mpmath.workdps(60):
        precision = mpmath.matrix(covariance.tolist()) ** -1
        exact = [float(precision[i, i]) for i in range(5)]
    algorithm = threats.whisper(mixing=complete(5), covariance=covariance, horizon=STEPS)
    found = [exposure.sensitivity_squared for exposure in exposures(algorithm, threats.ldp())]
    np.testing.assert_allclose(found, exact, rtol=1e-15 * 100 * condition)


@pytest.mark.parametrize(("corner", "across"), [(1.0, 2.0), (0.0, 1.0), (-1.0, 0.0)])
def test_a_covariance_that_is_none(corner: float, across: float) -> None:
    covariance = np.array([[corner, across], [across, 1.0]])
    with pytest.raises(nd.InputError, match=r"^covariance: expected a positive semidefinite"):
        threats.whisper(mixing=complete(2), covariance=covariance, horizon=1)


def test_no_noise_at_all() -> None:
    algorithm = threats.whisper(mixing=complete(3), covariance=np.zeros((3, 3)), horizon=STEPS)
    assert all(math.isinf(found.mu) for found in exposures(algorithm, threats.ldp()))


def test_rounds_without_number_are_as_many_as_nodes() -> None:
    """What rounds add to an observation ends with the directions there are, n at most."""
    mixing = nd.mixing_matrix(nx.path_graph(4))
    observer = threats.pndp(nodes=[0])

    def after(rounds: int) -> list[float]:
        algorithm = threats.muffliato(mixing=mixing, horizon=STEPS, rounds=rounds)
        return [exposure.mu for exposure in exposures(algorithm, observer)]

    np.testing.assert_allclose(after(10**9), after(1000), rtol=1e-6)


def test_rounds_without_number_carry_as_far_as_there_is_a_path() -> None:
    """Two pairs of nodes: nothing of the others comes, however long all talk."""
    pairs = np.kron(np.eye(2), np.full((2, 2), 0.5))
    algorithm = threats.muffliato(mixing=pairs, horizon=STEPS, rounds=10**9)
    found = exposures(algorithm, threats.pndp(nodes=[0]))
    assert [exposure.mu > 0 for exposure in found] == [True, False, False]
