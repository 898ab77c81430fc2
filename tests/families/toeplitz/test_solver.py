"""Optimised Toeplitz strategies: polynomials by hand, other minimisers, bounds, long horizons."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.families.toeplitz import solver as families
from noisedesign.families.toeplitz.solver import (
    log_objective,
    log_sensitivity,
    minimized,
    optimize_banded_inverse,
    optimize_buffered,
    optimize_toeplitz,
)
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.forms import BandedInverse, ToeplitzStrategy
from noisedesign.privacy.sensitivity import EXACT, toeplitz as sensitivity
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step, single
from noisedesign.system.workloads.toeplitz import (
    GramWorkload,
    PoleWorkload,
    Workload,
    gossip_workload,
    prefix_workload,
)
from tests.support import oracles

Scheme = FixedEpoch | MinSeparation
ERDOS_RENYI = oracles.metropolis(oracles.erdos_renyi(20, 0.2))
BIPARTITE = oracles.metropolis(nx.complete_bipartite_graph(3, 3))


def smallest(polynomial: np.ndarray, *, low: float = -math.inf) -> float:
    """Least value of a polynomial on [low, inf), from the roots of its derivative."""
    roots = np.roots(np.polyder(polynomial))
    real = [float(r.real) for r in roots if abs(r.imag) < 1e-9 and r.real >= low]
    if low > -math.inf:
        real.append(low)
    return float(min(np.polyval(polynomial, x) for x in real))


def dense_objective(column: np.ndarray, gram: np.ndarray, patterns: list[tuple[int, ...]]) -> float:
    """tr(H (C^T C)^-1) times the largest sum of C^T C over a pattern, by dense algebra."""
    horizon = len(gram)
    c = np.array(
        [[column[t - s] if t >= s else 0.0 for s in range(horizon)] for t in range(horizon)]
    )
    x = c.T @ c
    worst = max(x[np.ix_(p, p)].sum() for p in patterns)
    return float(np.trace(gram @ np.linalg.inv(x)) * worst)


# --- by hand --------------------------------------------------------------------------------------


def test_two_steps_of_prefix_sums() -> None:
    # C = (1, x): error 2 + (1 - x)^2, sensitivity 1 + x^2.
    expected = smallest(np.polymul([1, -2, 3], [1, 0, 1]))
    for design in (
        optimize_toeplitz(workload=prefix_workload(horizon=2), participation=single(2)),
        optimize_banded_inverse(
            workload=prefix_workload(horizon=2), participation=single(2), bands=2
        ),
        optimize_buffered(workload=prefix_workload(horizon=2), participation=single(2), buffers=1),
    ):
        assert design.objective == pytest.approx(expected, rel=1e-9)
        assert design.stop == Stop.SOLVED


def test_two_steps_that_both_take_part() -> None:
    # Sensitivity 1 + (1 + x)^2 rises faster than the error falls from x = 0 on: C = I, 3 * 2.
    for scheme in (every_step(2), MinSeparation(horizon=2, separation=1, max_participations=2)):
        design = optimize_toeplitz(workload=prefix_workload(horizon=2), participation=scheme)
        np.testing.assert_allclose(design.strategy.at(2).dense(), np.eye(2), atol=1e-9)
        assert design.objective == pytest.approx(6, rel=1e-9)


def test_three_steps_with_two_noising_coefficients() -> None:
    # d = (1, -q): C = (1, q, q^2), sensitivity 1 + q^2 + q^4; error 3 + 2 (1 - q)^2 + (1 - q)^2.
    error = np.polyadd([3.0], 3 * np.polymul([-1, 1], [-1, 1]))
    expected = smallest(np.polymul([1, 0, 1, 0, 1], error), low=0.0)
    design = optimize_banded_inverse(
        workload=prefix_workload(horizon=3), participation=single(3), bands=2
    )
    assert design.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bands", [1, 2])
def test_bands_limit_the_coefficients(bands: int) -> None:
    # One band: C = I. Two, at T = 3: C = (1, x), C^-1 = (1, -x, x^2).
    design = optimize_toeplitz(
        workload=prefix_workload(horizon=3), participation=single(3), bands=bands
    )
    assert isinstance(design.strategy, ToeplitzStrategy)
    assert len(design.strategy.coefficients) == bands
    # Error 3 + 2 (1 - x)^2 + (1 - x + x^2)^2.
    tail = np.array([1.0, -1, 1])
    error = np.polyadd(np.polyadd([3.0], 2 * np.polymul([-1, 1], [-1, 1])), np.polymul(tail, tail))
    expected = 6.0 if bands == 1 else smallest(np.polymul(error, [1, 0, 1]))
    assert design.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("buffers", [1, 3])
def test_one_step(buffers: int) -> None:
    workload = GramWorkload(matrix=np.array([[5.0]]))
    for design in (
        optimize_toeplitz(workload=workload, participation=single(1)),
        optimize_banded_inverse(workload=workload, participation=single(1), bands=1),
        optimize_buffered(workload=workload, participation=single(1), buffers=buffers),
    ):
        assert design.objective == pytest.approx(5, rel=1e-14)
        assert design.excess_upper_bound == pytest.approx(0, abs=1e-12)
        assert design.stop == Stop.SOLVED


# --- another minimiser, dense algebra -------------------------------------------------------------


def test_toeplitz_against_a_simplex_search_on_dense_matrices() -> None:
    gram = gossip_workload(BIPARTITE, horizon=5).gram()
    patterns = [(t,) for t in range(5)]
    found = scipy.optimize.minimize(
        lambda x: dense_objective(np.concatenate([[1.0], x]), gram, patterns),
        0.5 / np.arange(1, 5),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 10_000},
    )
    design = optimize_toeplitz(workload=GramWorkload(matrix=gram), participation=single(5))
    assert design.objective == pytest.approx(found.fun, rel=1e-8)


@pytest.mark.parametrize(
    "scheme",
    [
        FixedEpoch(epochs=3, separation=2),
        MinSeparation(horizon=6, separation=2, max_participations=3),
    ],
    ids=str,
)
def test_several_participations_against_a_simplex_search(scheme: Scheme) -> None:
    gram = gossip_workload(ERDOS_RENYI, horizon=6).gram()
    patterns = [(0, 2, 4), (1, 3, 5)]
    monotone = isinstance(scheme, MinSeparation)
    if monotone:
        patterns = oracles.min_separation_patterns(6, 2, 3)

    def objective(x: np.ndarray) -> float:
        # All the signs and orders that leave the sum of entries exact, bands or no bands.
        column = np.concatenate([[1.0], x])
        if column.min() < 0 or (monotone and np.diff(column).max() > 0):
            return math.inf
        return dense_objective(column, gram, patterns)

    best = min(
        scipy.optimize.minimize(
            objective,
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "adaptive": True},
        ).fun
        for start in ([0.5, 0.4, 0.3, 0.2, 0.1], [0.4, 1e-3, 1e-4, 1e-5, 1e-6])
    )
    design = optimize_toeplitz(
        workload=gossip_workload(ERDOS_RENYI, horizon=6), participation=scheme
    )
    assert design.sensitivity_kind == EXACT
    assert design.objective <= best * (1 + 1e-6)
    # And it is a member: dense algebra, every pattern, gives the same number.
    column = design.strategy.strategy_column(6)
    assert dense_objective(column, gram, patterns) == pytest.approx(design.objective, rel=1e-9)


# --- gradients ------------------------------------------------------------------------------------

HORIZON = 24
SCHEMES: list[Scheme] = [
    single(HORIZON),
    FixedEpoch(epochs=4, separation=6),
    MinSeparation(horizon=HORIZON, separation=7, max_participations=3),
]
WORKLOADS: list[Workload] = [
    prefix_workload(horizon=HORIZON),
    gossip_workload(BIPARTITE, horizon=HORIZON),
    GramWorkload(matrix=np.diag(np.arange(1.0, HORIZON + 1)) + 1.0),
]
FAMILIES: list[tuple[families.Family, int]] = [
    (families.Coefficients(bands=HORIZON, horizon=HORIZON), HORIZON - 1),
    (families.Coefficients(bands=5, horizon=HORIZON), 4),
    (families.NoisingShares(horizon=HORIZON), 6),
    (families.NoisingShares(horizon=HORIZON), HORIZON - 1),
    (families.Buffers(horizon=HORIZON), 6),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("family", "size"), FAMILIES)
def test_gradients_against_central_differences(
    family: families.Family, size: int, workload: Workload, scheme: Scheme
) -> None:
    rng = np.random.default_rng(size)
    objective = log_objective(family, workload, log_sensitivity(scheme))
    x = rng.standard_normal(size) * 0.3
    if isinstance(family, families.Coefficients):
        x /= np.arange(2, size + 2) ** 2
    gradient = objective(x)[1]
    assert gradient.shape == x.shape
    for direction in rng.standard_normal((3, size)):
        ahead, behind = (objective(x + s * 1e-5 * direction)[0] for s in (1, -1))
        assert gradient @ direction == pytest.approx((ahead - behind) / 2e-5, rel=1e-5, abs=1e-8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 8), width=st.sampled_from([0.1, 2.0, 8.0]))
def test_families_keep_what_they_promise(seed: int, size: int, width: float) -> None:
    x = np.random.default_rng(seed).standard_normal(size) * width
    shares = BandedInverse(coefficients=families.NoisingShares(horizon=40).column(x))
    assert shares.strategy_column(40).min() >= 0
    if size % 2 == 0:
        buffers = families.Buffers(horizon=40)
        expected = buffers.strategy(x).strategy_column(40)
        np.testing.assert_allclose(buffers.column(x), expected, rtol=1e-12)


def test_families_start_from_the_column_they_are_given() -> None:
    column = np.array([1.0, -0.5, -0.125, -0.0625])
    family = families.NoisingShares(horizon=4)
    np.testing.assert_allclose(family.column(family.start(column)), column, atol=1e-15)
    scales, losses = np.array([0.2, 0.3]), np.array([0.5, 0.125])
    found = families.Buffers(horizon=4).strategy(families.Buffers.start(scales, losses))
    np.testing.assert_allclose([found.scales, found.decays], [scales, 1 - losses], rtol=1e-14)


# --- answers --------------------------------------------------------------------------------------


def all_designs(workload: Workload, scheme: Scheme) -> dict[str, StreamingDesign]:
    given: dict[str, Any] = {"workload": workload, "participation": scheme}
    requests: dict[str, tuple[Any, dict[str, int]]] = {
        "toeplitz": (optimize_toeplitz, {}),
        **{f"banded {p}": (optimize_banded_inverse, {"bands": p}) for p in (1, 2, 4, 8)},
        **{f"buffered {m}": (optimize_buffered, {"buffers": m}) for m in (1, 2, 3, 5)},
    }
    designs = {}
    for name, (optimize, size) in requests.items():
        monitor = Monitor(gap=1e-6)
        designs[name] = optimize(**given, **size, monitor=monitor)
        # What the search thought it had is what the strategy is worth.
        reported = [b.upper for b in monitor.history] or [designs[name].objective]
        assert designs[name].objective == pytest.approx(min(reported), rel=1e-7)
    return designs


@pytest.mark.parametrize(
    "scheme",
    [
        single(64),
        FixedEpoch(epochs=4, separation=16),
        MinSeparation(horizon=64, separation=16, max_participations=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("mixing", [None, BIPARTITE], ids=["prefix", "bipartite"])
def test_answers_are_ordered_and_above_the_certified_optimum(
    mixing: np.ndarray | None, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is exact here is so at any horizon, without a dense matrix.
    monkeypatch.setattr(sensitivity, "DENSE_HORIZON", 0)
    workload = prefix_workload(horizon=64)
    if mixing is not None:
        workload = gossip_workload(mixing, horizon=64)
    designs = all_designs(workload, scheme)
    epochs = 1 if scheme == single(64) else 4
    optimum = oracles.fixed_epoch_interval(workload.gram(), epochs, 64 // epochs, width=1e-4)
    for design in designs.values():
        assert design.sensitivity_kind == EXACT
        assert design.lower_bound_of_unrestricted_optimum <= optimum.upper
        # Min-separation allows the patterns of fixed epochs and more.
        assert design.objective >= optimum.lower
        assert design.stop == Stop.SOLVED
    values = {name: design.objective for name, design in designs.items()}
    for smaller, larger in (
        ("banded 1", "banded 2"),
        ("banded 2", "banded 4"),
        ("banded 4", "banded 8"),
        ("buffered 1", "buffered 2"),
        ("buffered 2", "buffered 3"),
        ("buffered 3", "buffered 5"),
    ):
        assert values[larger] <= values[smaller] * (1 + 1e-7)
    if epochs == 1:
        # Every other form is a Toeplitz C; five buffers follow the best one to a thousandth.
        assert min(values.values()) >= values["toeplitz"] * (1 - 1e-9)
        assert values["buffered 5"] <= values["toeplitz"] * 1.005
        assert values["toeplitz"] <= optimum.upper * 1.09
    assert values["banded 1"] == pytest.approx(np.trace(workload.gram()) * epochs)


def test_optimising_beats_the_square_root_of_prefix_sums() -> None:
    # binom(2j, j) / 4^j, the start of the search, by its own definition.
    root = np.array([math.comb(2 * j, j) / 4**j for j in range(128)])
    start = ToeplitzStrategy(coefficients=root)
    np.testing.assert_allclose(
        start.at(128).dense() @ start.at(128).dense(), oracles.prefix_workload(128), atol=1e-12
    )
    workload = prefix_workload(horizon=128)
    before = start.squared_error(workload) * start.squared_sensitivity(single(128)).squared
    design = optimize_toeplitz(workload=workload, participation=single(128))
    assert design.objective < 0.97 * before


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), horizon=st.integers(1, 9), rank=st.integers(1, 9))
def test_any_workload_even_singular(seed: int, horizon: int, rank: int) -> None:
    a = np.random.default_rng(seed).standard_normal((rank, horizon))
    workload = GramWorkload(matrix=a.T @ a)
    schemes = (single(horizon), MinSeparation(horizon=horizon, separation=2, max_participations=9))
    for scheme in schemes:
        design = optimize_toeplitz(workload=workload, participation=scheme)
        least = design.lower_bound_of_unrestricted_optimum
        assert least <= design.objective * (1 + 1e-9)
        # C = I is a member.
        count = 1 if scheme == schemes[0] else min(9, -(-horizon // 2))
        assert design.objective <= np.trace(a.T @ a) * count * (1 + 1e-9)


@pytest.mark.parametrize("scale", [1e-100, 1e99])  # what weights may be
def test_units_do_not_matter(scale: float) -> None:
    unit, scaled = (
        optimize_toeplitz(
            workload=PoleWorkload(
                poles=np.array([1.0, -0.5]), weights=s * np.array([1.0, 2.0]), horizon=20
            ),
            participation=FixedEpoch(epochs=2, separation=10),
        )
        for s in (1.0, scale)
    )
    assert scaled.objective == pytest.approx(scale * unit.objective, rel=1e-9)
    assert scaled.excess_upper_bound == pytest.approx(unit.excess_upper_bound, rel=1e-6)


# --- stopping, walls, input -----------------------------------------------------------------------


def test_no_time_leaves_the_start() -> None:
    design = optimize_buffered(
        workload=prefix_workload(horizon=30),
        participation=single(30),
        buffers=3,
        monitor=Monitor(gap=1e-6, time_limit=0.0),
    )
    assert design.stop == Stop.TIME_LIMIT
    assert design.evaluations == 1
    assert design.objective >= design.lower_bound_of_unrestricted_optimum


def test_an_interrupt_returns_the_best_point_and_progress_is_reported() -> None:
    seen: list[Bounds] = []

    def interrupt(bounds: Bounds) -> None:
        seen.append(bounds)
        if len(seen) == 3:
            raise KeyboardInterrupt

    given: dict[str, Any] = {"workload": prefix_workload(horizon=50), "participation": single(50)}
    design = optimize_toeplitz(**given, monitor=Monitor(gap=1e-6, progress=interrupt))
    assert design.stop == Stop.INTERRUPTED
    assert [b.upper for b in seen] == sorted((b.upper for b in seen), reverse=True)
    assert design.objective == pytest.approx(seen[-1].upper, rel=1e-9)
    assert seen[0].lower == design.lower_bound_of_unrestricted_optimum
    assert design.objective > optimize_toeplitz(**given).objective


def test_an_interrupted_second_search_keeps_the_answer_of_the_first() -> None:
    seen: list[float] = []

    def interrupt(bounds: Bounds) -> None:
        seen.append(bounds.upper)
        if len(seen) > 1 and seen[-1] > seen[-2]:  # the next start is worse than the last answer
            raise KeyboardInterrupt

    design = optimize_buffered(
        workload=prefix_workload(horizon=40),
        participation=single(40),
        buffers=2,
        monitor=Monitor(gap=1e-6, progress=interrupt),
    )
    assert design.stop == Stop.INTERRUPTED
    assert design.objective == pytest.approx(seen[-2], rel=1e-9)


@pytest.mark.parametrize(
    ("mixing", "epochs", "separation", "buffers"),
    [(ERDOS_RENYI, 4, 16, 2), (BIPARTITE, 1, 4096, 4)],
)
def test_buffers_do_not_end_where_two_coincide(
    mixing: np.ndarray, epochs: int, separation: int, buffers: int
) -> None:
    # Each of the two starts fails one of these, by 8 and by 16 in ten thousand.
    workload = gossip_workload(mixing, horizon=epochs * separation)
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    found, more = (
        optimize_buffered(workload=workload, participation=scheme, buffers=m)
        for m in (buffers, buffers + 2)
    )
    assert found.objective <= more.objective * 1.0007


def test_a_search_steps_back_from_where_nothing_is_finite() -> None:
    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 1:
            return math.nan, np.array([math.nan])
        return float((x[0] - 0.9) ** 2 + 3), 2 * (x - 0.9)

    found = minimized(
        objective, np.array([0.0]), monitor=Monitor(gap=1e-6), lower=0.0, nonnegative=False
    )
    np.testing.assert_allclose(found.x, [0.9], atol=1e-6)
    assert found.stop == Stop.SOLVED


def test_bad_requests_are_refused() -> None:
    workload = prefix_workload(horizon=6)
    scheme = MinSeparation(horizon=6, separation=2, max_participations=2)
    with pytest.raises(InputError, match="bands: expected at most 2, got 3"):
        optimize_toeplitz(workload=workload, participation=scheme, bands=3)
    with pytest.raises(InputError, match="bands: expected at most 6, got 7"):
        optimize_banded_inverse(workload=workload, participation=single(6), bands=7)
    with pytest.raises(InputError, match="bands"):
        optimize_banded_inverse(workload=workload, participation=single(6), bands=0)
    with pytest.raises(InputError, match="buffers"):
        optimize_buffered(workload=workload, participation=single(6), buffers=0)
    for optimize in (optimize_toeplitz, optimize_banded_inverse, optimize_buffered):
        size: dict[str, Any] = {
            "optimize_banded_inverse": {"bands": 2},
            "optimize_buffered": {"buffers": 2},
        }.get(optimize.__name__, {})
        with pytest.raises(InputError, match="participation: expected a horizon of 6"):
            optimize(workload=workload, participation=single(7), **size)


# --- long horizons --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mixing", [None, ERDOS_RENYI], ids=["prefix", "erdos-renyi"])
def test_a_hundred_thousand_steps(mixing: np.ndarray | None) -> None:
    horizon = 100_000
    workload, poles = prefix_workload(horizon=horizon), np.ones(1)
    if mixing is not None:
        workload, poles = gossip_workload(mixing, horizon=horizon), np.linalg.eigvalsh(mixing)
    given: dict[str, Any] = {"workload": workload, "participation": single(horizon)}
    best, buffered = optimize_toeplitz(**given), optimize_buffered(**given, buffers=4)
    assert best.stop == Stop.SOLVED
    # By the kernels of the processor rounding ends the last line search, at the same objective.
    assert buffered.stop in (Stop.SOLVED, Stop.INACCURATE)
    assert best.objective <= buffered.objective <= 1.01 * best.objective
    assert 0 < best.excess_upper_bound < 0.07
    for design in (best, buffered):
        c = design.strategy.strategy_column(horizon)
        assert design.squared_sensitivity == pytest.approx(math.fsum(c**2), rel=1e-10)
        # The response of every eigenvalue again, one step after another.
        response, error = np.zeros(len(poles)), 0.0
        gains = np.ones(1) if mixing is None else poles
        for t, d in enumerate(design.strategy.noising_column(horizon)):
            response = poles * response + gains * d
            error += (horizon - t) * float(response @ response)
        assert design.squared_error == pytest.approx(error, rel=1e-8)
    if mixing is None:
        singular = 1 / (2 * np.sin((2 * np.arange(1, horizon + 1) - 1) * np.pi / (4 * horizon + 2)))
        assert best.lower_bound_of_unrestricted_optimum == pytest.approx(
            math.fsum(singular) ** 2 / horizon, rel=1e-9
        )
