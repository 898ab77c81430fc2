"""The likelihood-ratio audit against closed forms and dense algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from noisedesign.base.checks import InputError
from noisedesign.forms import streams
from noisedesign.tasks.simulation.attacks import (
    audit_space,
    audit_time,
    check_patterns,
    worst_difference,
)
from noisedesign.tasks.simulation.audit import Attack, AuditReport
from noisedesign.tasks.simulation.dynamics import (
    gaussian_separation,
    message_weights,
    proportion_upper_limit,
)
from tests.support.peaks import peak_bytes

RING = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4
COMPLETE = np.full((3, 3), 1 / 3)
RUNS = 40_000


def covers(report: AuditReport, mu: float) -> bool:
    return report.interval[0] <= mu <= report.interval[1]


def strategy_of(gram: np.ndarray) -> np.ndarray:
    """Lower triangular C with C^T C = gram, from the Cholesky factor of the reversed matrix."""
    return np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]


def stacked_messages(w: np.ndarray, steps: int) -> np.ndarray:
    """theta_{t+1/2} = sum_{s <= t} W^(t-s) x_s as one matrix; invertible even for singular W."""
    blocks = [
        [np.linalg.matrix_power(w, t - s) if s <= t else np.zeros_like(w) for s in range(steps)]
        for t in range(steps)
    ]
    return np.block(blocks)


def stacked_mu(w: np.ndarray, noise_covariance: np.ndarray, change: np.ndarray) -> float:
    """Separation of all messages under a change of the updates, by dense algebra."""
    b = stacked_messages(w, len(change) // len(w))
    moved = b @ change
    return math.sqrt(moved @ np.linalg.solve(b @ noise_covariance @ b.T, moved))


# Closed forms in space ---------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "mu"), [(1.0, 1.0), (2.0, 0.5)])
def test_independent_noise_has_mu_one_over_sigma(sigma: float, mu: float) -> None:
    report = audit_space(
        mixing=RING, covariance=np.eye(4), claimed_mu=mu, noise_stddev=sigma, runs=RUNS
    )
    assert report.agrees
    assert covers(report, mu)
    assert report.mu == pytest.approx(mu, abs=0.05)


@pytest.mark.parametrize(
    ("covariance", "budget", "node", "mu"),
    [
        # [[2, 1], [1, 2]]^-1 = [[2, -1], [-1, 2]] / 3; the budget says which of the equals.
        ([[2.0, 1.0], [1.0, 2.0]], [2.0, 1.0], 1, math.sqrt(2 / 3)),
        # [[1, 1/2], [1/2, 2]]^-1 has the diagonal (8/7, 4/7).
        ([[1.0, 0.5], [0.5, 2.0]], None, 0, math.sqrt(8 / 7)),
        # Relative to its budget node 1 is worse: 4/7 over 1/4.
        ([[1.0, 0.5], [0.5, 2.0]], [1.0, 0.25], 1, math.sqrt(16 / 7)),
        ([[1.0, 0.5], [0.5, 2.0]], 4.0, 0, math.sqrt(2 / 7)),
    ],
)
def test_hand_made_covariance(
    covariance: list[list[float]], budget: Any, node: int, mu: float
) -> None:
    report = audit_space(
        mixing=np.array([[0.7, 0.3], [0.3, 0.7]]),
        covariance=np.array(covariance),
        budget=budget,
        claimed_mu=mu,
        runs=RUNS,
    )
    assert report.node == node
    assert report.agrees
    assert covers(report, mu)
    assert report.steps == ()


def test_space_equals_stacked_mu_on_singular_mixing() -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((3, 3))
    covariance = root @ root.T + 0.5 * np.eye(3)
    exact = [
        stacked_mu(COMPLETE, np.kron(np.eye(2), covariance), np.eye(6)[3 + u]) for u in range(3)
    ]
    report = audit_space(mixing=COMPLETE, covariance=covariance, claimed_mu=max(exact), runs=RUNS)
    assert report.node == int(np.argmax(exact))
    assert report.agrees
    assert covers(report, max(exact))


# Closed forms in time ----------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", [None, COMPLETE, RING], ids=["single", "complete", "ring"])
def test_independent_steps_have_mu_root_k(mixing: np.ndarray | None) -> None:
    patterns = np.arange(6).reshape(3, 2).T
    report = audit_time(
        noising_matrix=np.eye(6),
        mixing=mixing,
        patterns=patterns,
        claimed_mu=math.sqrt(3),
        runs=RUNS // 2,
    )
    assert report.agrees
    assert covers(report, math.sqrt(3))
    assert set(report.steps) in ({0, 2, 4}, {1, 3, 5})


def test_nonnegative_gram_adds_up_over_the_worst_pattern() -> None:
    # Strategy of ones: (C^T C)_ij = 4 - max(i, j). Pattern {0, 2}: 4 + 2 + 2 * 2 = 10, pattern
    # {1, 3}: 3 + 1 + 2 * 1 = 6.
    noising = np.linalg.inv(np.tril(np.ones((4, 4))))
    report = audit_time(
        noising_matrix=np.tril(noising),
        mixing=RING,
        patterns=np.array([[1, 3], [0, 2]]),
        claimed_mu=math.sqrt(10) / 2,
        noise_stddev=2.0,
        runs=RUNS,
    )
    assert report.steps == (0, 2)
    assert report.agrees
    assert covers(report, math.sqrt(10) / 2)


def test_vectors_find_more_than_signs() -> None:
    # Off-diagonal entries -a over three steps: vectors at 120 degrees give 3 + 3 a, signs 3 + 2 a.
    a = 0.45
    gram = (1 + a) * np.eye(3) - a
    report = audit_time(
        noising_matrix=np.tril(np.linalg.inv(strategy_of(gram))),
        patterns=np.array([[0, 1, 2]]),
        claimed_mu=math.sqrt(3 + 3 * a),
        runs=RUNS,
    )
    assert report.agrees
    assert covers(report, math.sqrt(3 + 3 * a))
    assert report.interval[0] > math.sqrt(3 + 2 * a)


def test_time_equals_stacked_mu() -> None:
    rng = np.random.default_rng(5)
    noising = np.tril(rng.standard_normal((4, 4)), -1) + np.diag(rng.uniform(0.5, 2, 4))
    covariance = np.kron(noising @ noising.T, np.eye(3))
    exact = 0.0
    for sign in (1, -1):
        change = np.zeros((4, 3))
        change[0, 0], change[2, 0] = 1, sign
        exact = max(exact, stacked_mu(COMPLETE, covariance, change.ravel()))
    report = audit_time(
        noising_matrix=noising,
        mixing=COMPLETE,
        patterns=np.array([[0, 2]]),
        claimed_mu=exact / 3,
        noise_stddev=3.0,
        runs=RUNS,
    )
    assert report.agrees
    assert covers(report, exact / 3)


# The statistic is the likelihood ratio of the messages -------------------------------------------


@pytest.mark.parametrize("w", [COMPLETE, RING], ids=["singular", "ring"])
def test_statistic_is_the_log_density_ratio_of_all_messages(w: np.ndarray) -> None:
    n, sigma = len(w), 1.5
    rng = np.random.default_rng(7)
    noising = np.tril(rng.standard_normal((3, 3)), -1) + 2 * np.eye(3)
    gradients = rng.standard_normal((3, 2))
    precision = np.linalg.inv(noising @ noising.T)
    weights = np.zeros((3, n, 2))
    weights[:, 1] = precision @ gradients
    attack = Attack(
        mixing=w,
        node=1,
        gradients=gradients,
        weights=message_weights(w, weights),
        draw=lambda columns, seed: iter(()),
    )
    white = rng.standard_normal((3, n, 2))
    noise = np.einsum("ts,snd->tnd", noising, white)
    b = stacked_messages(w, 3)
    covariance = sigma**2 * b @ np.kron(noising @ noising.T, np.eye(n)) @ b.T
    for world in (0, 1):
        change = np.zeros((3, n, 2))
        change[:, 1] = gradients
        expected = 0.0
        for coordinate in range(2):
            moved = b @ change[:, :, coordinate].ravel()
            messages = b @ (sigma * noise + world * change)[:, :, coordinate].ravel()
            density = stats.multivariate_normal(np.zeros(3 * n), covariance)
            expected += density.logpdf(messages - moved) - density.logpdf(messages)
        found = attack.statistic(((z, z[:0]) for z in noise), runs=1, world=world, sigma=sigma)
        assert found[0] == pytest.approx(expected, rel=1e-9)


# Verdicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "low"), [(0.8, True), (1.3, False)])
def test_claim_that_is_too_low_is_exceeded_and_one_too_high_not_close(
    share: float, low: bool
) -> None:
    space = audit_space(mixing=RING, covariance=np.eye(4), claimed_mu=share, runs=10_000)
    time = audit_time(
        noising_matrix=np.eye(4),
        mixing=RING,
        patterns=np.array([[0, 2]]),
        claimed_mu=share * math.sqrt(2),
        runs=10_000,
    )
    for report in (space, time):
        assert report.exceeds == low
        assert report.close == low
        assert not report.agrees


def test_noise_too_small_for_its_claim_is_exceeded() -> None:
    # Noise 10 % short of what the claim needs: the exported matrix was scaled by 0.9.
    report = audit_time(
        noising_matrix=0.9 * np.eye(4),
        mixing=RING,
        patterns=np.array([[0], [1]]),
        claimed_mu=1.0,
        runs=RUNS,
    )
    assert report.exceeds


@pytest.mark.parametrize(
    ("low", "high", "bound", "exceeds", "close"),
    [
        (0.9, 1.1, 0.8, False, True),
        (1.01, 1.2, 0.8, True, True),
        (0.9, 1.1, 1.01, True, True),
        (0.7, 0.96, 0.6, False, True),
        (0.7, 0.94, 0.6, False, False),
    ],
)
def test_verdict_on_a_claim_of_one(
    low: float, high: float, bound: float, exceeds: bool, close: bool
) -> None:
    report = AuditReport(
        mu=(low + high) / 2,
        interval=(low, high),
        lower_bound=bound,
        confidence=0.9999,
        claimed=1.0,
        runs=100,
        node=0,
        steps=(),
    )
    assert (report.exceeds, report.close) == (exceeds, close)
    assert report.agrees == (close and not exceeds)


def test_lower_bound_splits_its_error_between_both_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def limit(successes: int, trials: int, *, confidence: float) -> float:
        counts.append(successes)
        return float(stats.beta.ppf(confidence, successes + 1, trials - successes))

    monkeypatch.setattr("noisedesign.tasks.simulation.audit.proportion_upper_limit", limit)
    report = audit_space(
        mixing=RING, covariance=np.eye(4), claimed_mu=1.0, runs=1000, confidence=0.9
    )
    upper = stats.beta.ppf(0.95, np.array(counts) + 1, 1000 - np.array(counts))
    expected = stats.norm.isf(upper[0]) - stats.norm.ppf(upper[1])
    assert len(counts) == 2
    assert report.lower_bound == pytest.approx(expected)


def test_blocks_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    # Were a block to repeat the draws of another, mu would spread as that of one block.
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 40)
    found = [
        audit_space(mixing=np.eye(1), covariance=np.eye(1), claimed_mu=1.0, runs=300, seed=seed).mu
        for seed in range(40)
    ]
    assert np.std(found) < 2 * math.sqrt(2 / 300 + 1 / 1200)


def test_lower_bound_is_below_and_near_the_truth() -> None:
    report = audit_space(mixing=RING, covariance=np.eye(4), claimed_mu=1.0, runs=RUNS)
    assert 0.93 < report.lower_bound < 1.0
    few = audit_space(mixing=RING, covariance=np.eye(4), claimed_mu=1.0, runs=30)
    assert 0 <= few.lower_bound < report.lower_bound


def test_interval_has_the_stated_width() -> None:
    report = audit_space(
        mixing=RING, covariance=np.eye(4), claimed_mu=1.0, runs=1000, confidence=0.95
    )
    half = 1.959963984540054 * math.sqrt(2 / 1000 + report.mu**2 / 4000)
    assert report.interval == pytest.approx((report.mu - half, report.mu + half))


def test_interval_covers_at_its_confidence() -> None:
    hits = sum(
        covers(
            audit_space(
                mixing=np.eye(1),
                covariance=np.eye(1),
                claimed_mu=1.5,
                runs=200,
                seed=seed,
                noise_stddev=1 / 1.5,
                confidence=0.9,
            ),
            1.5,
        )
        for seed in range(400)
    )
    # 360 expected; 4 standard deviations of a binomial are 24.
    assert 336 <= hits <= 384


def test_report_repeats_for_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 200)
    kwargs: dict[str, Any] = {"mixing": RING, "covariance": np.eye(4), "claimed_mu": 1.0}
    seen: list[tuple[int, int]] = []
    first = audit_space(
        **kwargs, runs=50, seed=7, progress=lambda done, total: seen.append((done, total))
    )
    assert first.as_dict() == audit_space(**kwargs, runs=50, seed=7).as_dict()
    assert first.mu != audit_space(**kwargs, runs=50, seed=8).mu
    assert len(seen) > 2
    assert seen[-1] == (100, 100)


def test_memory_does_not_grow_with_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORKING_SET_FLOATS", 20_000)

    def job(runs: int) -> Callable[[], object]:
        return lambda: audit_time(
            noising_matrix=np.eye(20),
            mixing=RING,
            patterns=np.array([[0, 10]]),
            claimed_mu=1.0,
            runs=runs,
        )

    job(500)()
    assert peak_bytes(job(25_000)) < 1.1 * peak_bytes(job(500)) + 10_000


# Worst directions --------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=60, deadline=None)
@given(k=st.integers(1, 7), rank=st.integers(1, 7), seed=st.integers(0, 999))
def test_directions_carry_a_proof_of_optimality(k: int, rank: int, seed: int) -> None:
    # At the maximum of <X, V V^T>, y_i = sum_j X_ij <v_i, v_j> makes Diag(y) - X positive
    # semidefinite, and then sum y bounds every other choice.
    root = np.random.default_rng(seed).standard_normal((rank, k))
    gram = root.T @ root
    steps, v = worst_difference(gram, np.arange(k)[None])
    assert steps.tolist() == list(range(k))
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, atol=1e-6)
    y = ((gram @ v) * v).sum(axis=1)
    excess = max(0.0, -float(np.linalg.eigvalsh(np.diag(y) - gram)[0]))
    assert k * excess <= 1e-3 * y.sum()


def test_directions_use_one_coordinate_where_that_is_enough() -> None:
    for gram in (np.eye(4), np.ones((4, 4)) + np.eye(4)):
        _, v = worst_difference(gram, np.array([[0, 1, 2, 3]]))
        assert v.shape == (4, 1)


def test_worst_pattern_is_chosen() -> None:
    gram = np.diag([1.0, 1.0, 3.0, 1.0])
    assert worst_difference(gram, np.array([[0, 1], [2, 3]]))[0].tolist() == [2, 3]
    assert worst_difference(gram, np.array([[3, 2], [0, 1]]))[0].tolist() == [3, 2]


# Error rates -------------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    trials=st.integers(1, 3000), share=st.floats(0, 1), confidence=st.sampled_from([0.9, 0.9999])
)
def test_upper_limit_is_the_beta_quantile(trials: int, share: float, confidence: float) -> None:
    successes = min(trials, int(share * trials))
    limit = proportion_upper_limit(successes, trials, confidence=confidence)
    exact = (
        1.0
        if successes == trials
        else stats.beta.ppf(confidence, successes + 1, trials - successes)
    )
    assert limit == pytest.approx(exact, rel=1e-9)


def test_upper_limit_without_a_success_by_hand() -> None:
    # (1 - p)^100 = 0.05.
    assert proportion_upper_limit(0, 100, confidence=0.95) == pytest.approx(1 - 0.05**0.01)


def test_separation_of_error_rates() -> None:
    # The midpoint test between N(0, 1) and N(2, 1) errs with probability Phi(-1) both ways.
    rate = stats.norm.cdf(-1)
    assert gaussian_separation(rate, rate) == pytest.approx(2.0)
    assert gaussian_separation(0.5, 0.5) == 0.0
    assert gaussian_separation(1.0, 0.3) == 0.0


# Bad input ---------------------------------------------------------------------------------------

TIME: dict[str, Any] = {
    "noising_matrix": np.eye(3),
    "mixing": RING,
    "patterns": np.array([[0, 2]]),
    "claimed_mu": 1.0,
}
SPACE: dict[str, Any] = {"mixing": RING, "covariance": np.eye(4), "claimed_mu": 1.0}


@pytest.mark.parametrize(
    ("base", "change", "field"),
    [
        (TIME, {"runs": 29}, "runs"),
        (TIME, {"claimed_mu": 0.0}, "claimed_mu"),
        (TIME, {"noise_stddev": 0.0}, "noise_stddev"),
        (TIME, {"patterns": np.array([[0.0, 1.0]])}, "patterns"),
        (TIME, {"patterns": np.array([0, 1])}, "patterns"),
        (TIME, {"patterns": np.array([[0, 3]])}, "patterns"),
        (TIME, {"patterns": np.array([[-1, 0]])}, "patterns"),
        (TIME, {"patterns": np.array([[0, 1], [1, 1]])}, "patterns"),
        (TIME, {"patterns": np.empty((0, 2), dtype=int)}, "patterns"),
        (TIME, {"noising_matrix": np.diag([1.0, 0.0, 1.0])}, "noising_matrix"),
        (TIME, {"noising_matrix": np.ones((3, 3))}, "noising_matrix"),
        (TIME, {"noising_matrix": np.eye(3, dtype=np.float32)}, "noising_matrix"),
        (TIME, {"mixing": np.full((4, 4), np.inf)}, "mixing"),
        (SPACE, {"covariance": np.eye(3)}, "covariance"),
        (SPACE, {"covariance": np.diag([1.0, 1.0, 1.0, 0.0])}, "covariance"),
        (SPACE, {"covariance": np.diag([1.0, 1.0, 1.0, -1.0])}, "covariance"),
        (SPACE, {"budget": [1.0, 1.0, 1.0, 0.0]}, "budget"),
        (SPACE, {"budget": [1.0, 1.0]}, "budget"),
        (SPACE, {"mixing": RING.astype(np.float32)}, "mixing"),
        (SPACE, {"confidence": 0.0}, "confidence"),
        (SPACE, {"claimed_mu": float("nan")}, "claimed_mu"),
    ],
)
def test_bad_input_names_its_field(
    base: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    audit: Any = audit_time if base is TIME else audit_space
    with pytest.raises(InputError) as error:
        audit(**{**base, **change})
    assert error.value.field == field


def test_patterns_may_come_in_any_integer_type() -> None:
    assert check_patterns([[0, 1]], horizon=2).dtype == np.intp
    assert check_patterns(np.array([[0, 1]], dtype=np.uint8), horizon=2).tolist() == [[0, 1]]
