"""Runs without an end under a W that is not symmetric, against dense algebra and optima."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.families.unbounded import directed
from noisedesign.families.unbounded.bound import least_stddevs
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.families.unbounded.directed import Directed
from noisedesign.system.workloads.toeplitz import gossip_workload

TWO = Buffers(scales=np.array([0.25, 0.125]), decays=np.array([0.5, 0.75]))
ROWS = np.array([[0.6, 0.4, 0.0], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]])
RING = 0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1)  # doubly stochastic


def responses(w: np.ndarray, steps: int) -> np.ndarray:
    """What all models of all steps are of a change at every step, shape (T n^2, T)."""
    powers = [np.linalg.matrix_power(w, j + 1).ravel() for j in range(steps)]
    columns = [np.concatenate([np.zeros((s, w.size)), powers[: steps - s]]) for s in range(steps)]
    return np.array([column.ravel() for column in columns]).T


def noising(buffers: Buffers, steps: int) -> np.ndarray:
    column = np.concatenate(
        [[1.0], buffers.scales @ np.power.outer(buffers.decays, np.arange(steps - 1))]
    )
    c = sum(np.diag(np.full(steps - k, x), -k) for k, x in enumerate(column))
    return np.linalg.inv(c)


@pytest.mark.parametrize("w", [ROWS, RING])
def test_errors_are_those_of_dense_algebra_and_later_ones_above(
    w: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 300
    noise = responses(w, steps) @ noising(TWO, steps)
    exact = np.square(noise).reshape(steps, w.size, steps).sum(axis=(1, 2)) / len(w)
    found = Directed(w).variances(TWO, steps)  # all of these steps are followed
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    monkeypatch.setattr(directed, "FOLLOWED", (128, 128))
    above = Directed(w).variances(TWO, steps)
    np.testing.assert_allclose(above[:128], exact[:128], rtol=1e-10)
    assert (above[128:] >= exact[128:]).all()
    assert above[-1] <= 1.05 * exact[-1]


@pytest.mark.parametrize("w", [ROWS, RING])
def test_bounds_are_nuclear_norms_and_those_of_blocks_below(
    w: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Directed(w)
    for steps in (1, 7, 30):
        exact = np.linalg.norm(responses(w, steps), "nuc") / (steps * math.sqrt(len(w)))
        assert whole.least_stddev(steps) == pytest.approx(exact, rel=1e-7)
    monkeypatch.setattr(directed, "BLOCK", (5, 5))
    split = Directed(w)
    for steps in (30, 45):
        exact = np.linalg.norm(responses(w, steps), "nuc") / (steps * math.sqrt(len(w)))
        assert 0.8 * exact <= split.least_stddev(steps) <= exact
        assert split.least_stddev(steps) > split.least_stddev(5)
    # A step that fills no block counts for none.
    assert split.least_stddev(34) == split.least_stddev(30)


@pytest.mark.parametrize("w", [ROWS, RING])
def test_bound_of_blocks_is_that_of_both_parts(
    w: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, blocks, one = 5, 3, np.ones((5, 1)) / math.sqrt(5)
    whole = responses(w, size * blocks).reshape(blocks, size, w.size, blocks, size)
    mean = np.full(w.size, 1 / len(w))
    coarse = np.einsum("bmact,a,m,t->bc", whole, mean, one[:, 0], one[:, 0])
    inside = whole[0, :, :, 0].reshape(size * w.size, size)
    rows = np.kron(one[:, 0], mean)
    rest = inside - np.multiply.outer(rows, rows @ inside)
    rest = rest - rest.mean(axis=1)[:, None]
    total = np.linalg.norm(coarse, "nuc") + blocks * np.linalg.norm(rest, "nuc")
    monkeypatch.setattr(directed, "BLOCK", (size, size))
    found = Directed(w)
    expected = max(total, blocks * np.linalg.norm(inside, "nuc"))
    expected /= size * blocks * math.sqrt(len(w))
    assert found.least_stddev(size * blocks) == pytest.approx(expected, rel=1e-7)


def test_what_has_not_mixed_yet_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Buffers(scales=np.array([0.3, 0.005]), decays=np.array([0.5, 0.995]))
    w, steps = 0.8 * np.eye(4) + 0.2 * np.roll(np.eye(4), 1, axis=1), 200
    noise = responses(w, steps) @ noising(slow, steps)
    exact = np.square(noise).sum(axis=1).reshape(steps, w.size).sum(axis=1)
    monkeypatch.setattr(directed, "FOLLOWED", (160, 160))
    above = np.diff(Directed(w).variances(slow, steps), prepend=0) * len(w)
    grows = np.diff(exact, prepend=0)
    assert (above[160:] >= grows[160:]).all()
    mean = np.square(slow.sums(steps))  # of doubly stochastic weights P has the norm 1
    assert (grows[160:] > mean[160:] * (1 + 1e-6)).all()


def test_of_a_symmetric_w_they_are_those_of_its_poles() -> None:
    w = nd.mixing_matrix(nd.build_graph("path", nodes=4))
    found, own = gossip_workload(w, horizon=1), Directed(w)
    poles, weights = np.asarray(found.poles), found.weights / 4
    np.testing.assert_allclose(
        own.variances(TWO, 50), TWO.variances(poles, weights, steps=50), rtol=1e-10
    )
    least = least_stddevs(poles, weights, participations=1, separation=1, steps=256)
    for horizon, stddev in zip(least.horizons.tolist(), least.stddevs, strict=True):
        assert own.least_stddev(horizon) == pytest.approx(stddev, rel=1e-7)


def test_nobody_who_knows_the_horizon_is_below_the_bound() -> None:
    for w in (ROWS, RING):
        scheme = nd.participation.single(16)
        known = nd.solve(nd.TimeProblem.decentralized(mixing=w, participation=scheme)).design
        assert known is not None
        best = math.sqrt(known.objective / (16 * len(w)))  # root mean square
        assert 0.8 * best <= Directed(w).least_stddev(16) <= best


def test_a_design_is_near_the_least_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directed, "FOLLOWED", (512, 512))
    monkeypatch.setattr("noisedesign.design.buffer_search.STEPS", 5_000)
    monkeypatch.setattr("noisedesign.design.unbounded.STEPS", 5_000)
    for w, most in ((RING, 1.5), (ROWS, 1.7)):
        problem = nd.UnboundedProblem(mixing=w, buffers=3)
        design = nd.solve(problem)
        assert 1 < design.ratio <= most
        stored = nd.load(nd.save(design, tmp_path / f"{most}.npz"))
        assert nd.verify(stored, problem=problem).ok
        proof = nd.verify(stored, rigorous=True)
        assert not proof.rigorous
        assert "eigenvalues of W" in {c.name: c.note for c in proof.checks}["rigorous"]
        assert design.problem.directed


@pytest.mark.parametrize(
    ("w", "expected"),
    [
        (np.roll(np.eye(3), 1, axis=1), "powers converge to a matrix of rank one"),
        (np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]), "of rank one"),
        (np.array([[0.5, 0.2], [0.5, 0.8]]), "rows of sum 1"),
        (np.array([[0.5, np.nan], [0.5, 0.8]]), "finite"),
    ],
)
def test_w_without_a_proof_is_refused(w: np.ndarray, expected: str) -> None:
    with pytest.raises(nd.InputError, match=expected) as refused:
        nd.UnboundedProblem(mixing=w)
    assert "mixing" in refused.value.field


def test_w_that_averages_at_once() -> None:
    found = Directed(np.tile([0.2, 0.3, 0.5], (3, 1)))
    plain = TWO.variances(np.ones(1), np.ones(1), steps=20)  # of the mean of p
    np.testing.assert_allclose(found.variances(TWO, 20), plain * (0.04 + 0.09 + 0.25), rtol=1e-9)


def test_w_that_mixes_too_slowly_is_refused_by_the_solver() -> None:
    slow = np.array([[1 - 1e-6, 1e-6], [2e-6, 1 - 2e-6]])
    with pytest.raises(nd.InputError, match="powers converge within 4096 steps"):
        Directed(slow)
