"""Lemmas and theorems of the sources that nothing else rests on, by hand and by brute force."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import scipy.linalg

from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.grams import space_gram


def test_whisper_theorem_1_by_its_second_moment() -> None:
    """Noise on 2n points has the covariance R exactly; E|x - y|^2 for a y that is fixed."""
    rng = np.random.default_rng(0)
    n, step = 6, 0.3
    w = oracles.metropolis(nx.path_graph(n))
    root = rng.normal(size=(n, n))
    r = root @ root.T
    before, gradient, other = rng.normal(size=(3, n))
    points = math.sqrt(n) * np.hstack([root, -root])  # equally likely: mean 0, covariance R
    np.testing.assert_allclose(points @ points.T / (2 * n), r, rtol=1e-12)
    after = w @ ((before - step * gradient)[:, None] - step * points)
    found = np.mean(np.sum((after - other[:, None]) ** 2, axis=0))
    free = np.sum((w @ (before - step * gradient) - other) ** 2)
    cost = np.trace(w @ r @ w.T)
    assert found == pytest.approx(free + step**2 * cost, rel=1e-12)
    # It is the objective of designs for one step.
    assert np.sum(space_gram(w, error=ErrorMeasure(horizon=1)) * r) == pytest.approx(cost)


def test_gossip_lemma_6_by_its_likelihood_ratio() -> None:
    """The log likelihood ratio of noise A Z is a Gaussian of mean |A^+ d|^2 / 2 and variance
    |A^+ d|^2, as that of a Gaussian mechanism is, also where A has no full rank."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4))
    change = a @ rng.normal(size=4)
    basis = np.linalg.svd(a)[0][:, :2]  # the noise lives in the range of A: density there
    covariance, moved = basis.T @ a @ a.T @ basis, basis.T @ change
    np.testing.assert_allclose(basis @ moved, change)
    squared = float(moved @ np.linalg.solve(covariance, moved))
    expected = float(np.sum((np.linalg.pinv(a) @ change) ** 2))
    assert squared == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("graph", [nx.path_graph(5), nx.cycle_graph(6), nx.star_graph(4)])
def test_gossip_lemma_9_and_j_2(graph: nx.Graph) -> None:
    w = oracles.metropolis(graph)
    n = len(w)
    rest = w - 1 / n
    rho = float(np.sort(np.abs(np.linalg.eigvalsh(w)))[-2])
    np.testing.assert_allclose(rest.sum(axis=0), 0, atol=1e-12)
    for t in range(1, 8):
        power = np.linalg.matrix_power(rest, t)
        assert np.linalg.norm(power, 2) <= rho**t * (1 + 1e-9)
        np.testing.assert_allclose(np.linalg.matrix_power(w, t), 1 / n + power, atol=1e-12)
    p, gamma = 1 - rho**2, 1 - rho
    assert gamma <= p * (1 + 1e-12)  # so that 1/p <= 1/gamma: J.2 with a constant of 1


def test_gossip_lemma_g_2_and_h_1_fail_for_signs_that_alternate() -> None:
    """A ring of 4 of weights 1/3, of eigenvalues 1, 1/3, 1/3, -1/3: what the transient part of a
    neighbour's gradients tells grows with T beyond the constant pi^2/6 (3/2)^4 m, for one node read
    and for both neighbours."""
    values, vectors = np.linalg.eigh(oracles.metropolis(nx.cycle_graph(4)))
    np.testing.assert_allclose(values, [-1 / 3, 1 / 3, 1 / 3, 1], atol=1e-12)
    victim = 1
    for nodes, longest in (([0], 600), ([0, 2], 720)):
        found = []
        for steps in (longest // 4, longest // 2, longest):
            signs, gram, seen = (-1.0) ** np.arange(steps), 0.0, 0.0
            for value, vector in zip(values, vectors.T, strict=True):
                powers = scipy.linalg.toeplitz(value ** np.arange(steps), np.zeros(steps))
                gram += np.kron(powers @ powers.T, np.outer(vector[nodes], vector[nodes]))
                if value < 0.9:  # the part of W that is not 1/n, without its power 0
                    powers -= np.eye(steps)
                    seen += np.kron(powers @ signs, vector[nodes] * vector[victim])
            found.append(float(seen @ scipy.linalg.solve(gram, seen, assume_a="pos")))
        assert found[2] > math.pi**2 / 6 * 1.5**4 * len(nodes), (nodes, found)
        assert found[2] - found[1] == pytest.approx(2 * (found[1] - found[0]), rel=0.05)


def test_zip_dl_lemma_b_1_needs_the_square_of_l() -> None:
    """One node of gradient L x and a step of 1: two runs drift apart by (L - 1)^t, of gradients
    that differ by Delta = 1 with the worst signs. As printed the bound grows as (2 + 4 L)^(t/2)."""

    def bound(lipschitz: float, steps: int) -> float:
        factor = 2 + 4 * lipschitz
        return 4 / (1 + 4 * lipschitz) * (factor**steps - 1)

    smooth, apart = 10.0, [0.0]
    for _ in range(12):
        apart.append((smooth - 1) * apart[-1] + 1)
    assert apart[3] ** 2 == 91**2
    assert apart[3] ** 2 > bound(smooth, 3)  # 8281 and 7226
    for steps, distance in enumerate(apart):
        assert distance**2 <= bound(smooth**2, steps)


def test_zip_dl_lemmas_d_1_and_d_2() -> None:
    """They hold, and are attained by vectors that are alike, or where b = beta a."""
    rng = np.random.default_rng(2)
    for vectors in rng.normal(size=(20, 5, 3)):
        assert np.sum(vectors.sum(axis=0) ** 2) <= 5 * np.sum(vectors**2)
        a, b = vectors[:2]
        for beta in (0.1, 1.0, 7.0):
            upper = (1 + beta) * (a @ a) + (1 + 1 / beta) * (b @ b)
            assert np.sum((a + b) ** 2) <= upper * (1 + 1e-12)
            exact = (1 + beta) * (a @ a) + (1 + 1 / beta) * beta**2 * (a @ a)
            assert np.sum((a + beta * a) ** 2) == pytest.approx(exact)
    assert np.sum((5 * a) ** 2) == pytest.approx(5 * np.sum(np.tile(a, (5, 1)) ** 2))
