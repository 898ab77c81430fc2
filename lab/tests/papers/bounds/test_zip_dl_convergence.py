"""Zip-DL, Theorem 4.5 and Corollary 4.6: by hand, against noise written out message by message, and
where print and proof differ."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.privacy import views
from tests.support import oracles, zip_dl_convergence as convergence
from tests.support.zip_dl_convergence import STATEMENTS, consensus_noise, theorem_4_5

RING = oracles.metropolis(nx.cycle_graph(6))
"""Weights 1/3 to itself and to both neighbours."""
STAR = oracles.metropolis(nx.star_graph(4))
UNEVEN = np.array([[0.6, 0.3, 0.1], [0.3, 0.2, 0.5], [0.1, 0.5, 0.4]])
CASES = {"ring": RING, "star": STAR, "uneven": UNEVEN, "path": oracles.metropolis(nx.path_graph(4))}

ARGUMENTS = {
    "dimension": 2,
    "zeta": 0.5,
    "smoothness": 4.0,
    "strong_convexity": 2.0,
    "sampling_variance": 3.0,
    "heterogeneity_squared": 5.0,
    "start_distance_squared": 7.0,
}


def written_out(w: np.ndarray, horizon: int, deviations: np.ndarray) -> float:
    """The models as linear maps of every Y_{a->v} of every round: T rounds of Algorithm 1."""
    n = len(w)
    draws = {key: k for k, key in enumerate(itertools.product(range(horizon), range(n), range(n)))}
    unit = np.eye(len(draws))
    models = [np.zeros(len(draws)) for _ in range(n)]
    for t in range(horizon):
        received = [np.zeros(len(draws)) for _ in range(n)]
        for a in range(n):
            near = [v for v in range(n) if w[v, a] != 0]
            y = {v: deviations[a] * unit[draws[t, a, v]] for v in near}
            mean = sum(w[j, a] * y[j] for j in near) / len(near)
            for v in near:
                received[v] = received[v] + w[v, a] * (models[a] + y[v] - mean / w[v, a])
        models = received
    centre = sum(models) / n
    return sum(float((m - centre) @ (m - centre)) for m in models) / n


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_consensus_noise_message_by_message(name: str, horizon: int) -> None:
    w = CASES[name]
    deviations = 1 + np.arange(len(w)) / 4
    found = consensus_noise(mixing=w, horizon=horizon, noise_variance=deviations**2)
    assert found == pytest.approx(written_out(w, horizon, deviations), rel=1e-12)


def test_by_hand() -> None:
    # Ring of 6: n = 6, d_a = 3, eigenvalues (1 + 2 cos(pi k / 3)) / 3, rho = 2/3, p = 5/9.
    found = theorem_4_5(mixing=RING, **ARGUMENTS)  # type: ignore[arg-type]
    p = 5 / 9
    assert found.consensus == pytest.approx(p)
    ratio = (16 - 4 * p) / (16 - 7 * p)
    assert ratio == pytest.approx(124 / 109)
    assert found.gradients == pytest.approx(62 / 109 * (3 + 18 * 9 / 5 * 5))
    # 36 pairs, each 3 * 4 / 3 * 1/4, times d / n = 1/3.
    assert found.noise == pytest.approx(124 / 109 * 36 * 4 / 4 / 3)
    sampling, spread, start = found.terms(10)
    assert sampling == pytest.approx(3 / (6 * 2 * 10))
    assert spread == pytest.approx(4 * (found.gradients + found.noise) / 400)
    assert start == pytest.approx(7 * 4 * 9 / 5 * math.exp(-2 * 5 / 9 * 11 / (192 * 3**0.5 * 4)))
    assert found.bound(10) == pytest.approx(sampling + spread + start)
    steps = 3 * 3 / (6 * 2 * 0.1) + math.sqrt(3 * 4 * found.spread / 0.4)
    steps += 192 * 3**0.5 * 4 * 9 / 10 * math.log(3 * 7 * 4 / (0.1 * p))
    assert found.steps_for(0.1) == pytest.approx(steps)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("accuracy", [10.0, 1e-1, 1e-4])
def test_the_corollary_follows_from_the_theorem(name: str, statement: str, accuracy: float) -> None:
    scale = theorem_4_5(mixing=CASES[name], **ARGUMENTS, statement=statement)  # type: ignore[arg-type]
    steps = math.ceil(scale.steps_for(accuracy))
    assert max(scale.terms(max(steps, 1))) <= accuracy / 3 * (1 + 1e-9)
    assert scale.bound(max(steps, 1)) <= accuracy * (1 + 1e-9)
    # The hidden constant multiplies all three.
    more = scale.steps_for(accuracy, constant=7.0)
    assert 7 * scale.bound(math.ceil(more)) <= accuracy * (1 + 1e-9)


def test_three_readings_of_the_noise() -> None:
    """Print and appendix agree where all degrees do; the proof's own constants give more."""
    for name, w in CASES.items():
        found = {
            statement: theorem_4_5(mixing=w, **ARGUMENTS, statement=statement)  # type: ignore[arg-type]
            for statement in STATEMENTS
        }
        p = found["proof"].consensus
        beta = 3 * p / (16 - 7 * p)
        assert 1 + 1 / beta == pytest.approx((16 - 4 * p) / (3 * p))
        ratio = found["proof"].noise / found["appendix"].noise
        assert ratio == pytest.approx((1 + 1 / beta) / (1 + beta) / 2)
        assert ratio >= 1.5 - 1e-12
        same = found["printed"].noise == pytest.approx(found["appendix"].noise)
        assert same == (name in ("ring", "uneven"))
    # On a star of 5 the hub has degree 5, the leaves 2: sums over a and v by hand, zeta = 1/2.
    star = theorem_4_5(mixing=STAR, **ARGUMENTS)  # type: ignore[arg-type]
    p = star.consensus
    total = (5 * 16 + 4 * 2 * 1) * (1 / 5 + 4 / 2) / 4
    assert star.noise == pytest.approx(2 / 5 * (16 - 4 * p) / (16 - 7 * p) * total)
    other = theorem_4_5(mixing=STAR, **ARGUMENTS, statement="appendix")  # type: ignore[arg-type]
    total = (5 + 4 * 2) * (16 / 5 + 4 * 1 / 2) / 4
    assert other.noise == pytest.approx(2 / 5 * (16 - 4 * p) / (16 - 7 * p) * total)


@pytest.mark.parametrize("name", CASES)
def test_every_reading_is_above_the_exact_noise(name: str) -> None:
    """One round, and the fixed point 8 A' / p of the recursion Xi <- (1 - p/4) Xi + 2 A'."""
    w = CASES[name]
    exact = consensus_noise(mixing=w, horizon=1, noise_variance=0.25)
    long = consensus_noise(mixing=w, horizon=400, noise_variance=0.25)
    for statement in STATEMENTS:
        scale = theorem_4_5(mixing=w, **ARGUMENTS | {"dimension": 1}, statement=statement)  # type: ignore[arg-type]
        assert 2 * scale.noise >= exact
        assert 8 * scale.noise / scale.consensus >= long
    assert consensus_noise(mixing=RING, horizon=1) == pytest.approx(2 / 9)


def test_noise_is_in_the_second_term_alone() -> None:
    """Ten times the noise leaves the first and last term as they are: Corollary 3.2."""
    quiet = theorem_4_5(mixing=RING, **ARGUMENTS)  # type: ignore[arg-type]
    loud = theorem_4_5(mixing=RING, **ARGUMENTS | {"zeta": 5.0})  # type: ignore[arg-type]
    (a, b, c), (d, e, f) = quiet.terms(50), loud.terms(50)
    assert (a, c) == (d, f)
    assert loud.noise == pytest.approx(100 * quiet.noise)
    assert e - b == pytest.approx(4 * 99 * quiet.noise / (2 * 50) ** 2)


def test_the_exact_account_beside_it() -> None:
    """An eavesdropper of the ring sees two messages of a node, x + Z with covariance [[2, -1], [-1,
    2]] / 3: 1^T K^-1 1 = 6. The models are 2/9 apart, and Lemma 4.7 has 36 * 4 / 6 = 24."""
    assert np.ones(2) @ np.linalg.solve(np.array([[2, -1], [-1, 2]]) / 3, np.ones(2)) == (
        pytest.approx(6)
    )
    mechanism = views.view(views.zip_dl(mixing=RING, horizon=1), views.ldp())
    ((_, seen),) = views.grams(mechanism, [0])
    assert np.asarray(seen.gram) == pytest.approx(np.array([[6.0]]), abs=1e-9)
    assert consensus_noise(mixing=RING, horizon=1) == pytest.approx(2 / 9)
    scale = theorem_4_5(mixing=RING, **ARGUMENTS | {"dimension": 1, "zeta": 1.0}, statement="proof")  # type: ignore[arg-type]
    p = scale.consensus
    assert 2 * scale.noise / ((16 - 4 * p) / (3 * p)) == pytest.approx(24)


def test_wrong_input() -> None:
    def refused(field: str, **changes: object) -> None:
        with pytest.raises(InputError) as error:
            theorem_4_5(**{"mixing": RING} | ARGUMENTS | changes)  # type: ignore[arg-type]
        assert error.value.field == field

    refused("strong_convexity", strong_convexity=5.0)
    refused("statement", statement="abstract")
    refused("zeta", zeta=0.0)
    refused("mixing", mixing=np.array([[0.0, 1.0], [1.0, 0.0]]))
    scale = theorem_4_5(mixing=RING, **ARGUMENTS)  # type: ignore[arg-type]
    for wrong in (lambda: scale.terms(0), lambda: scale.steps_for(0.0)):
        with pytest.raises(InputError):
            wrong()
    assert pytest.approx(332.5537) == convergence.RATE
