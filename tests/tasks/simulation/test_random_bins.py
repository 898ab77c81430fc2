"""The audit of a record that takes part at random, against the advantage by quadrature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import BallsInBins
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.simulation.audit import RandomAudit, audit_random_bins
from tests.support.family_cases import RING_5
from tests.support.random_oracles import two_bin_deltas

STRATEGY = np.array([[1.0, 0.0], [0.6, 0.8]])
PAIR = np.array([[0.7, 0.3], [0.3, 0.7]])
BINS = np.array([[0], [1]])
NOISE = 1.2


def audited(claimed: float, *, runs: int = 20_000, **how: Any) -> RandomAudit:
    """Two nodes that mix, each with noise C^-1 w of its own; the record is of the second."""
    noising = np.linalg.inv(STRATEGY)

    def draw(columns: int, sequence: np.random.SeedSequence) -> Iterator[np.ndarray]:
        white = np.random.default_rng(sequence).normal(size=(2, 2, columns))
        return iter(np.einsum("ts,snc->tnc", noising, white))

    weights = np.zeros((2, 2, 2))
    weights[:, :, 1] = STRATEGY.T @ STRATEGY
    return audit_random_bins(
        mixing=PAIR,
        weights=weights,
        bins=BINS,
        node=1,
        draw=draw,
        claimed=claimed,
        noise_multiplier=NOISE,
        **({"runs": runs, "seed": 3} | how),
    )


def test_the_best_test_reaches_delta_at_epsilon_zero() -> None:
    """Power less size of the test L > 1 is E (L - 1)_+, 0.27 here."""
    exact = two_bin_deltas(STRATEGY, noise=NOISE, epsilon=0.0)[0]
    found = audited(exact)
    assert found.advantage == pytest.approx(exact, abs=0.02)
    assert found.interval[0] < exact < found.interval[1]
    assert found.agrees
    assert found == audited(exact)


def test_a_claim_that_is_too_small_is_refuted_and_one_too_large_is_loose() -> None:
    exact = two_bin_deltas(STRATEGY, noise=NOISE, epsilon=0.0)[0]
    found = audited(0.8 * exact)
    assert found.exceeds
    assert not found.agrees
    found = audited(1.3 * exact)
    assert not found.exceeds
    assert not found.close


def test_a_design_in_space_is_audited_at_its_target() -> None:
    """Two epochs on a ring, three batches: the least protected node, before a reader of all."""
    target = PrivacyTarget(epsilon=1.0, delta=1e-3, adjacency="zero-out")
    scheme = BallsInBins(epochs=2, separation=3)
    design = solve(SpaceProblem(mixing=RING_5, participation=scheme, privacy=target)).design
    assert design is not None
    simulation = simulate(design, runs=4000, seed=1)
    assert simulation.agrees
    assert isinstance(simulation.audit, RandomAudit)
    assert simulation.audit.bins == 3
    assert simulation.records()[1]["quantity"] == "advantage of an eavesdropper"
    told = simulation.as_dict()["audit"]
    assert told["claimed"] == simulation.audit.claimed > told["interval"][0]
