"""Shares of the error against a search over all of them, and one way to compute against another."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.optimize

from noisedesign.base.checks import Array
from noisedesign.families.observers import batches as shares
from noisedesign.families.observers.batches import Batches, Sight
from noisedesign.families.observers.bound import lower_bound
from noisedesign.families.observers.observed import covariances
from noisedesign.families.observers.program import UnitProgram
from noisedesign.privacy import views as threats
from tests.support import oracles
from tests.support.observer_designs import observer_program


def program_of(graph: nx.Graph, **more: object) -> UnitProgram:
    everyone = tuple(threats.pndp(nodes=[node]) for node in graph)
    asked = {"mixing": oracles.metropolis(graph), "horizon": 1, "max_variance": 3.0}
    return observer_program(**asked | {"observers": everyone} | more).normalized  # type: ignore[arg-type]


def seen_at(program: UnitProgram, seed: int) -> tuple[Batches, Sight, list[Array]]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((program.size, program.size))
    batches = Batches(program)
    weights = [rng.uniform(0.5, 1.5, size=one.shape) for one in batches.all_equal(1.0)]
    return batches, batches.look(root @ root.T + np.eye(program.size)), weights


def test_observers_side_by_side_tell_what_each_tells_alone() -> None:
    for more in ({}, {"horizon": 3}):
        program = program_of(nx.lollipop_graph(4, 3), **more)
        batches, sight, weights = seen_at(program, seed=0)
        rng = np.random.default_rng(0)
        root = rng.standard_normal((program.size, program.size))
        noise = root @ root.T + np.eye(program.size)
        told = np.concatenate([part.ravel() for part in sight.told])
        own = covariances(program.observers, noise)
        alone = [program.observers[place].told(own[place]) for place in batches.owners]
        np.testing.assert_allclose(told, np.concatenate(alone), rtol=1e-9)
        ones = np.ones(len(batches.owners))
        made = batches.multipliers(sight, weights, ones, program.cap)
        used = np.zeros_like(noise)
        for seen, factor in zip(program.observers, made.factors, strict=True):
            for block in seen.responses:
                used += block.T @ factor.T @ factor @ block
        np.testing.assert_allclose(batches.used(sight, weights), used, rtol=1e-9, atol=1e-12)


def test_the_best_shares_of_two_observers() -> None:
    """Two nodes that hear each other: t and w by a general-purpose search, with Z >= 0 as its two
    leading minors."""
    program = program_of(nx.path_graph(2), mixing=np.array([[0.7, 0.3], [0.3, 0.7]]))
    batches, sight, weights = seen_at(program, seed=1)
    parts = [batches.grouped(sight, weights, np.arange(2))]
    used = np.concatenate(parts)
    gained = batches.gained(sight, weights)

    def slack(x: Array) -> Array:
        z = program.gram + np.diag(x[2:]) - np.tensordot(x[:2], used, axes=1)
        return np.array([z[0, 0], z[1, 1], np.linalg.det(z)])

    best = min(
        scipy.optimize.minimize(
            lambda x: float(program.cap @ x[2:] - gained @ x[:2]),
            start,
            method="SLSQP",
            bounds=[(0, None)] * 4,
            constraints=[{"type": "ineq", "fun": slack}],
            options={"ftol": 1e-14, "maxiter": 500},
        ).fun
        for start in ([0.01, 0.01, 0.1, 0.1], [0.1, 0.05, 0.01, 0.2])
    )
    t, w = shares.shared_out(program, batches, sight, weights, np.full(2, 0.05), barrier=1e-3)
    assert slack(np.concatenate([t, w])).min() >= 0
    assert min(t.min(), w.min()) >= 0
    assert -best * (1 - 2e-4) <= gained @ t - program.cap @ w <= -best * (1 + 1e-9)


def test_few_rows_and_matrices_are_the_same_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(nx.lollipop_graph(4, 3))
    batches, sight, weights = seen_at(program, seed=2)
    prices = np.full(program.size, 0.01)
    one = shares.shared_out(program, batches, sight, weights, prices, barrier=1e-3)
    monkeypatch.setattr(shares, "DENSE", 0)
    monkeypatch.setattr(shares, "CHUNK", 3)
    other = shares.shared_out(program, batches, sight, weights, prices, barrier=1e-3)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-6, atol=1e-12)
    monkeypatch.setattr(shares, "MOST", 0)
    evenly = shares.shared_out(program, batches, sight, weights, prices, barrier=1e-3)
    assert np.ptp(evenly[0]) == 0
    made = [batches.multipliers(sight, weights, *found) for found in (one, evenly)]
    assert lower_bound(program, made[0]) > lower_bound(program, made[1])
