"""Plans in integers: sensitivity by brute force, privacy and shared noise by exact sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.noise import Plan, Rule, Stream
from noisedesign.noise.filters import Banded, Buffered, Filter, Fresh, Moving, Rows, Toeplitz
from noisedesign.noise.lattice import (
    SMOOTHING,
    _gain,
    _rounded,
    _some_patterns,
    lattice_of,
    squared_sensitivity,
)
from noisedesign.privacy.accounting import delta_of
from noisedesign.privacy.sensitivity import squared_sensitivity as real_sensitivity
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation, Patterns
from tests.support import scalar_discrete_gaussian as scalar
from tests.support.lattice_plans import own_stream, plan_with
from tests.support.small_designs import PATH_3

SCHEMES: list[Participation] = [
    FixedEpoch(epochs=1, separation=6),
    FixedEpoch(epochs=3, separation=2),
    FixedEpoch(epochs=6, separation=1),
    MinSeparation(horizon=6, separation=1, max_participations=6),
    MinSeparation(horizon=6, separation=2, max_participations=2),
    MinSeparation(horizon=6, separation=3, max_participations=2),
    Patterns(horizon=6, steps=((0, 1, 5), (2,), (1, 4))),
]

PAID = 1 + Fraction(1, 2**40)
"""Of the variance, for what integers are not of a Gaussian; test_the_slack_of_the_variance."""


def dense(bands: np.ndarray) -> np.ndarray:
    """C of its diagonals."""
    horizon = bands.shape[1]
    return sum(np.diag(band[: horizon - i], -i) for i, band in enumerate(bands))


def gram_of(strategy: np.ndarray) -> np.ndarray:
    return strategy.T @ strategy


def random_bands(bands: int, *, horizon: int = 6, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).integers(-9, 10, (bands, horizon))
    found[0] = np.abs(found[0]) + 1
    for i in range(1, bands):
        found[i, horizon - i :] = 0
    return found


# --- sensitivity ----------------------------------------------------------------------------------


def by_hand(strategy: np.ndarray, scheme: Participation) -> tuple[int, int]:
    """Largest sum of |C^T C| over a pattern, and largest sum with signs: all by trying them."""
    gram = strategy.T @ strategy
    absolute = signed = 0
    for pattern in scheme.maximal_patterns():
        part = gram[np.ix_(pattern, pattern)]
        absolute = max(absolute, int(np.abs(part).sum()))
        for signs in itertools.product((-1, 1), repeat=len(pattern)):
            signed = max(signed, int(np.array(signs) @ part @ np.array(signs)))
    return absolute, signed


@pytest.mark.parametrize("bands", [1, 2, 3, 6])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_sensitivity_by_brute_force(scheme: Participation, bands: int) -> None:
    for seed in range(5):
        strategy = random_bands(bands, seed=seed)
        found = squared_sensitivity(strategy, scheme.rule)
        absolute, signed = by_hand(dense(strategy), scheme)
        real = real_sensitivity(gram_of(dense(strategy).astype(float)), scheme)
        assert found >= absolute >= signed
        assert found >= real.squared * (1 - 1e-9)
        apart = bands <= scheme.rule.min_sep
        if scheme.rule.residue is not None or scheme.rule.patterns is not None or apart:
            assert found == absolute
        if apart:
            assert found == signed


def test_sensitivity_worked_out() -> None:
    """C = [[2, 0, 0], [-1, 2, 0], [0, -1, 2]]: columns of squared length 5, 5, 4, neighbours with
    product -2."""
    strategy = np.array([[2, 2, 2], [-1, -1, 0]])
    assert squared_sensitivity(strategy, Rule(most=1)) == 5
    assert squared_sensitivity(strategy, Rule(most=2, min_sep=2)) == 9
    assert squared_sensitivity(strategy, Rule(most=3)) == 5 + 5 + 4 + 4 * 2
    assert squared_sensitivity(strategy, Rule(most=3, residue=2)) == 9


def test_more_of_a_class_than_may_take_part() -> None:
    strategy = np.array([[1, 2, 3, 4]])
    assert squared_sensitivity(strategy, Rule(most=2, min_sep=1, residue=1)) == 9 + 16


@pytest.mark.parametrize(
    "rule",
    [
        Rule(most=3, min_sep=3, residue=2),
        Rule(most=2, min_sep=2, residue=5),
        Rule(most=4, min_sep=3),
        Rule(most=2, patterns=((0, 7), (1, 2))),
    ],
)
def test_sensitivity_is_bounded_from_below_by_what_may_take_part(rule: Rule) -> None:
    """Or rounding of C would be paid for too little."""
    found = _some_patterns(rule, 11)
    assert max(map(len, found)) > 1
    assert [rule.broken(steps) for steps in found] == [""] * len(found)


def test_sums_beyond_64_bits_are_refused() -> None:
    with pytest.raises(InputError, match="strategy: expected C with entries below"):
        squared_sensitivity(np.full((1, 3), 2**31), Rule(most=1))


@pytest.mark.parametrize("seed", range(6))
def test_what_rounding_takes_from_c_is_paid_for_to_the_last_unit(seed: int) -> None:
    """Four columns that meet in four rows, of 2^13 steps, from which rounding took nearly 2^-16 of
    a step where a matrix of orthogonal signs has +1, and next to nothing where it has -1."""
    signs = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    if seed:
        signs = np.random.default_rng(seed).choice([-1, 1], (4, 4))
    bands = np.zeros((8, 8))
    bands[0] = 1.0
    for row, t in itertools.product(range(4), repeat=2):
        lost = Fraction(255, 2**24) if signs[row, t] > 0 else -Fraction(1, 2**24)
        bands[row + 4 - t, t] = (2**13 - lost) / 2**12
    strategy, shift, moved = _rounded(bands)
    rule = Rule(most=4, patterns=((0, 1, 2, 3),))
    found = squared_sensitivity(strategy, rule)
    gain = _gain(strategy, moved, rule, found)
    exact = [sum(map(Fraction, row)) * 2**shift for row in dense(bands)[:, :4].tolist()]
    assert found == 4 * 4096**2 + 4 * (4 * 2**13) ** 2
    assert gain * sum(x * x for x in exact) >= found
    assert gain < 1 + Fraction(1, 2**24)


# --- privacy --------------------------------------------------------------------------------------


def kronecker_like() -> list[Filter]:
    rng = np.random.default_rng(3)
    bands = np.abs(rng.normal(size=(2, 6))) / 2 + 0.5
    root = np.array([1.0, 0.5, 0.375, 0.3125, 0.27, 0.24])
    matrix = np.linalg.inv(dense(np.tile(root[:, None], (1, 6))))
    toeplitz = Toeplitz.of(np.array([1.0, -0.7, 0.3]), horizon=6)
    return [Fresh(), toeplitz, Banded(bands), Rows(np.tril(matrix))]


@pytest.mark.parametrize("filter_", kronecker_like(), ids=lambda f: f.kind)
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("steps", [6, 20])
def test_own_noise_is_as_private_as_claimed(filter_: Filter, adjacency: str, steps: int) -> None:
    """In fractions: mu^2 of the real mechanism of variance sigma^2 - 8, and rho below mu^2 / 2."""
    rule = FixedEpoch(epochs=2, separation=3).rule
    plan = plan_with(filter_, rule=rule, adjacency=adjacency, clip=1.7, mu=0.3)
    found = lattice_of(plan, grid=2.0**-steps)
    assert found.clip_squared <= (Fraction(1.7) * 2**steps) ** 2 < found.clip_squared + 1
    change = found.clip_squared * (4 if adjacency == "replace" else 1)
    scheme = FixedEpoch(epochs=2, separation=3)
    absolute, _ = by_hand(dense(found.strategy), scheme)
    squared = Fraction(change * absolute, found.own_variance - SMOOTHING)
    assert squared * PAID <= Fraction(0.3) ** 2
    assert found.rho == Fraction(change * absolute, 2 * found.own_variance)
    assert found.rho < Fraction(0.3) ** 2 / 2


@pytest.mark.parametrize("steps", [6, 10, 16, 20])
def test_c_is_that_of_the_design_to_twelve_bits(steps: int) -> None:
    for filter_ in kronecker_like():
        found = lattice_of(plan_with(filter_), grid=2.0**-steps)
        exact = dense(filter_.strategy(6))
        scale = 2.0 ** (12 - np.floor(np.log2(np.diagonal(exact).max())))
        assert np.abs(dense(found.strategy) - scale * exact).max() <= 0.5 + 1e-9
        assert 2**12 <= found.strategy[0].max() <= 2**13


@pytest.mark.parametrize("scheme", [FixedEpoch(epochs=3, separation=4)], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_design_keeps_its_error(scheme: FixedEpoch, epsilon: float) -> None:
    """What integers add to the variance of prefix sums, for 2^6 to 2^20 steps: rounding of C and of
    sigma, and rounding of messages, of variance 1/12 through C^-1 diag(C)."""
    target = PrivacyTarget(epsilon=epsilon, delta=1e-5, clip=0.7, adjacency="replace")
    plan = nd.solve(TimeProblem.prefix(participation=scheme, privacy=target)).design.node_plan(0)
    summed = np.tril(np.ones((12, 12)))
    (columns,) = plan.filter.noising_columns(12)
    designed = np.square(summed @ columns).sum()
    for steps in (6, 10, 16, 20):
        exponent = int(np.floor(np.log2(plan.claim.noise_stddev))) - steps
        found = lattice_of(plan, grid=2.0**exponent)
        whole = dense(found.strategy).astype(float)
        response = summed @ np.linalg.inv(whole)
        variance = float(found.own_variance) * np.square(response).sum()
        variance += np.square(response * np.diagonal(whole)).sum() / 12
        assert 0.9999 < variance * found.grid**2 / designed < 1.002


@pytest.mark.parametrize(
    ("variance", "shift"),
    [(10, (1,)), (12, (3,)), (30, (2,)), (200, (3,)), (1000, (40,)), (10, (2, 1)), (20, (1, 3))],
)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_discrete_noise_is_as_private_as_real_noise_of_eight_less(
    variance: int, shift: tuple[int, ...], epsilon: float
) -> None:
    """delta of the discrete Gaussian by summing all outcomes, below that of the mu in use."""
    with mpmath.workdps(30):
        reach = 14 * int(np.sqrt(variance)) + 10
        weights = [scalar.density(x, Fraction(variance)) for x in range(-reach, reach + 1)]
        total = mpmath.fsum(weights)
        pmf = np.array([w / total for w in weights])
        first, second = pmf, pmf
        for by in shift[1:]:
            first = np.multiply.outer(first, pmf)
            second = np.multiply.outer(second, np.roll(pmf, by))
        second = np.roll(second, shift[0], axis=0)
        excess = (first - mpmath.exp(epsilon) * second).ravel()
        delta = float(mpmath.fsum(e for e in excess if e > 0))
    mu = float(np.sqrt(np.square(shift).sum() / (variance - SMOOTHING)))
    assert delta <= delta_of(mu=mu, epsilon=epsilon)


@pytest.mark.parametrize("mu", [1e-24, 1e-9, 1e-3, 0.1, 1.0, 5.0, 20.0, 60.0])
def test_the_slack_of_the_variance_pays_for_what_is_neglected(mu: float) -> None:
    """In 150 digits: delta of a Gaussian mechanism with 2^-40 more variance, at an epsilon less by
    6 eta m and times e^(3 eta m), is at most that without, for m = 2^80 draws of integers."""
    with mpmath.workdps(150):

        def delta(epsilon: mpmath.mpf, of: mpmath.mpf) -> mpmath.mpf:
            low, high = epsilon / of - of / 2, epsilon / of + of / 2
            tails = [mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (low, high)]
            return tails[0] - mpmath.exp(epsilon) * tails[1]

        neglected = 2 * mpmath.mpf("2.01") * mpmath.exp(-2 * mpmath.pi**2 * SMOOTHING) * 2**80
        exact = mpmath.mpf(mu)
        less = exact / mpmath.sqrt(1 + mpmath.mpf(2) ** -40)
        for by in (0, 0.1, 0.5, 1, 2, 5, 10):
            epsilon = exact * by + (exact**2 / 2 if by == 0 or mu > 20 else 0)
            found = delta(epsilon - 3 * neglected, less) * mpmath.exp(3 * neglected / 2)
            assert 0 < found < delta(epsilon, exact)


# --- shared noise ---------------------------------------------------------------------------------


def plans_of(seeds: dict[str, dict[int, float]], *, own: float) -> list[Plan]:
    """All nodes of a design: noise of their own, alike, and by seed the coefficients of holders."""
    return [
        replace(
            plan_with(Fresh()),
            node=node,
            streams=(
                own_stream(node, own),
                *(
                    Stream(name=name, coefficient=held[node], source="shared", holders=tuple(held))
                    for name, held in seeds.items()
                    if node in held
                ),
            ),
        )
        for node in sorted(set().union(*seeds.values()))
    ]


def test_a_sum_of_own_and_shared_noise_is_nearly_gaussian() -> None:
    """Two nodes with next to no noise of their own in the design, and one seed, of 64 and -48
    steps: all probabilities over the real density of the covariance stated, in 120 digits."""
    plans = plans_of({"seed": {0: 2**-4, 1: -3 * 2**-6}}, own=1e-9)
    lattices = [lattice_of(plan, grid=1.0) for plan in plans]
    tau2, a = lattices[0].seed_variance, [found.coefficients["seed"] for found in lattices]
    assert (tau2, a) == (16, [64, -48])
    own = [found.own_variance for found in lattices]
    with mpmath.workdps(120):
        covariance = mpmath.matrix(2, 2)
        for i in range(2):
            for j in range(2):
                covariance[i, j] = tau2 * a[i] * a[j] + (own[i] if i == j else 0)
        inverse = covariance**-1

        def mass(v: tuple[int, int]) -> mpmath.mpf:
            return mpmath.fsum(
                mpmath.exp(
                    -mpmath.mpf(w * w) / (2 * tau2)
                    - sum(mpmath.mpf((v[i] - a[i] * w) ** 2) / (2 * own[i]) for i in range(2))
                )
                for w in range(-150, 151)
            )

        def density(v: tuple[int, int]) -> mpmath.mpf:
            x = mpmath.matrix(v)
            return mpmath.exp(-(x.T * inverse * x)[0] / 2)

        ratio = mass((0, 0)) / density((0, 0))
        for v in ((1, 0), (0, 1), (3, -5), (32, -24), (500, 200), (-700, 390)):
            assert abs(mass(v) / density(v) / ratio - 1) < 1e-60


def is_definite(matrix: list[list[Fraction]]) -> bool:
    """By elimination in fractions."""
    if not matrix:
        return True
    (pivot, *row), *below = matrix
    return pivot > 0 and is_definite(
        [[x - y * first / pivot for x, y in zip(rest, row, strict=True)] for first, *rest in below]
    )


CROWDS: dict[str, dict[str, dict[int, float]]] = {
    "one seed of all": {"all": {0: 1.7, 1: -1.61, 2: 1.533, 3: 1.47}},
    "seeds of many sizes": {
        "all": {0: 0.61, 1: 0.613, 2: -0.617, 3: 0.631},
        "pair": {1: -2.71, 3: 2.717},
        "weak": {0: 1e-3, 2: -1.1e-3, 3: 1.2e-3},
    },
    "a seed of one": {"mine": {0: 3.333}, "pair": {0: 1.25, 1: -1.25}},
}


@pytest.mark.parametrize(
    ("own", "steps"), [*itertools.product([1e-6, 0.1, 3.0], [1, 6, 12, 20]), (2.0**15, 12)]
)
@pytest.mark.parametrize("seeds", CROWDS.values(), ids=list(CROWDS))
def test_both_conditions_on_shared_noise_hold_of_all_nodes_together(
    seeds: dict[str, dict[int, float]], own: float, steps: int
) -> None:
    """(1) of the module, and the covariance of the integers above the design's and 2^-40 of it:
    each node chose its own numbers, and little noise of its own hides neither draws nor rounding.
    """
    lattices = [lattice_of(plan, grid=2.0**-steps) for plan in plans_of(seeds, own=own)]
    nodes = range(len(lattices))
    a = [[found.coefficients.get(name, 0) for name in seeds] for found in lattices]
    b = [[Fraction(held.get(u, 0.0)) for held in seeds.values()] for u in nodes]
    (tau2,) = {found.seed_variance for found in lattices}
    variances = np.array([float(found.own_variance - SMOOTHING) for found in lattices])
    held = np.array(a, dtype=float)
    largest = np.linalg.eigvalsh((held.T / variances) @ held)[-1]
    assert 1 / tau2 + largest <= 1 / SMOOTHING
    unit = Fraction(2) ** (12 + steps)
    spare = [
        [
            tau2 * sum(x * y for x, y in zip(a[i], a[j], strict=True))
            - PAID * unit**2 * sum(x * y for x, y in zip(b[i], b[j], strict=True))
            + (i == j)
            * (lattices[i].own_variance - SMOOTHING - PAID * unit**2 * Fraction(own) ** 2)
            for j in nodes
        ]
        for i in nodes
    ]
    assert is_definite(spare)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_seed_pays_for_its_own_rounding(count: int) -> None:
    """Seeds of one node, whose coefficients are rounded down by nearly half a step where that
    takes most: in 1 / (2 theta) = 2^11 steps. Own noise is what (1) asks for, and more."""
    unit = 2.0**18
    each = 4 * (2**11 + 0.4999) / (1 + 2.0**-12) ** 0.5 / unit
    own = 2.0**15 / unit * count
    seeds = {f"seed {k}": {0: each} for k in range(count)}
    (plan,) = plans_of(seeds, own=own)
    found = lattice_of(
        replace(plan, claim=replace(plan.claim, noise_stddev=1 / unit)), grid=2.0**-6
    )
    assert found.seed_variance == 16
    assert list(found.coefficients.values()) == [2**11] * count
    got = found.own_variance - SMOOTHING + 16 * count * 2**22
    assert got >= PAID * Fraction(unit) ** 2 * (Fraction(own) ** 2 + count * Fraction(each) ** 2)


def shared_design(kind: str = "edge-local") -> object:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.7, steps=5, adjacency="replace")
    problem = SpaceProblem(
        mixing=PATH_3, structure=SpaceStructure(kind=kind), privacy=target, name="path"
    )
    return nd.solve(problem).design


def covariance_of(plans: list[Plan], *, grid: float | None = None) -> tuple[np.ndarray, float]:
    """Real covariance that the integers are as private as, in units of the gradients, and the
    largest eigenvalue of (1)."""
    lattices = [lattice_of(plan, grid=grid) for plan in plans]
    names = sorted({name for found in lattices for name in found.coefficients})
    a = np.array([[found.coefficients.get(name, 0) for name in names] for found in lattices], float)
    tau2 = lattices[0].seed_variance
    assert {found.seed_variance for found in lattices} == {tau2}
    assert len({found.exponent for found in lattices}) == 1
    own = np.array([float(found.own_variance - SMOOTHING) for found in lattices])
    condition = 1 / tau2 + np.linalg.eigvalsh((a.T / own) @ a)[-1]
    unit = lattices[0].strategy[0, 0] / lattices[0].grid
    return (tau2 * a @ a.T + np.diag(own)) / unit**2, float(condition)


@pytest.mark.parametrize("steps", [6, 12, 20])
def test_seeds_keep_the_covariance_of_the_design(steps: int) -> None:
    design = shared_design()
    plans = [design.node_plan(u) for u in range(3)]
    scale = plans[0].claim.noise_stddev
    exponent = int(np.floor(np.log2(scale))) - steps
    found, condition = covariance_of(plans, grid=2.0**exponent)
    assert condition <= 1 / SMOOTHING
    designed = scale**2 * design.noise.space
    assert np.linalg.eigvalsh(found - designed)[0] > 0
    assert np.trace(found) < 1.005 * np.trace(designed)
    worst = np.sqrt(1.4**2 * 5 * np.diagonal(np.linalg.inv(found)).max())
    assert worst <= plans[0].claim.mu
    assert worst > 0.995 * plans[0].claim.mu


def test_seeds_with_a_strategy_pay_for_its_rounding() -> None:
    """A Toeplitz C with seeds: sensitivities of the rounded and of the real C, and covariances."""
    rule = FixedEpoch(epochs=2, separation=3).rule
    coefficients = np.array([1.0, 0.61803, 0.27])
    base = plan_with(Toeplitz.of(coefficients, horizon=6), rule=rule)
    plans = [
        replace(
            base,
            node=u,
            streams=(
                own_stream(u, 0.9),
                Stream(name="seed 0", coefficient=x, source="shared", holders=(0, 1)),
            ),
        )
        for u, x in ((0, 1.7), (1, -1.6))
    ]
    found, condition = covariance_of(plans)
    root = np.array([[0.9, 0, 1.7], [0, 0.9, -1.6]])
    strategy = lattice_of(plans[0]).strategy
    scheme = FixedEpoch(epochs=2, separation=3)
    rounded, _ = by_hand(dense(strategy), scheme)
    real = real_sensitivity(gram_of(4096 * dense(base.filter.strategy(6))), scheme).squared
    assert condition <= 1 / SMOOTHING
    assert np.linalg.eigvalsh(found / (rounded / real) - root @ root.T)[0] > 0
    assert np.trace(found) < 1.002 * np.trace(root @ root.T)


@pytest.mark.parametrize("space", ["edge-local", "dense"])
@pytest.mark.parametrize("time", [TimeStructure(), TimeStructure(kind="banded", bands=2)], ids=str)
def test_designs_in_space_and_time_keep_their_mu(space: str, time: TimeStructure) -> None:
    """Seeds that are shared or dealt, and the strategy rounded: the mu of the least protected node
    by brute force."""
    scheme = FixedEpoch(epochs=2, separation=3)
    problem = SpaceTimeProblem(
        mixing=PATH_3,
        participation=scheme,
        privacy=PrivacyTarget(epsilon=6.0, delta=1e-5, clip=0.5, adjacency="replace"),
        space=SpaceStructure(kind=space),
        time=time,
    )
    design = nd.solve(problem).design
    plans = [design.node_plan(u) for u in range(3)]
    found, condition = covariance_of(plans)
    assert condition <= 1 / SMOOTHING
    lattice, claim = lattice_of(plans[0]), plans[0].claim
    unit = lattice.strategy[0, 0] / lattice.grid
    absolute, _ = by_hand(dense(lattice.strategy), scheme)
    worst = np.diagonal(np.linalg.inv(found * unit**2)).max()
    mu = np.sqrt(4 * float(lattice.clip_squared) * absolute * worst)
    assert 0.995 * claim.mu < mu <= claim.mu


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("holders", [(), (1, 2), (0, 0, 1)])
def test_seeds_whose_holders_are_unknown_are_refused(holders: tuple[int, ...]) -> None:
    """How coarse a seed may be hangs on how many draw from it."""
    seed = Stream(name="seed 0", coefficient=1.0, source="shared", holders=holders)
    with pytest.raises(InputError, match="plan: expected node 0 among the holders of 'seed 0'"):
        lattice_of(plan_with(Fresh(), seed))


def test_strategies_known_by_their_inverse_are_refused() -> None:
    moving = Moving(np.array([1.0, -0.5]))
    buffered = Buffered(np.array([0.1]), np.array([0.9]), np.array([1.0]))
    for filter_ in (moving, buffered):
        with pytest.raises(InputError, match=f"bands, or dense, got {filter_.kind}"):
            lattice_of(plan_with(filter_))


@pytest.mark.parametrize("missing", ["mu", "clip", "adjacency", "rule"])
def test_noise_without_a_target_is_refused(missing: str) -> None:
    plan = plan_with(Fresh())
    plan = replace(plan, claim=replace(plan.claim, **{missing: None}))
    with pytest.raises(InputError, match=r"plan\.claim: expected a privacy target"):
        lattice_of(plan)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (0.3, r"a power of two, as 0\.25, got 0\.3"),
        (2.0, "a step between .* and 1, the clip, got 2"),
        (2.0**-40, "a step between"),
        (-1.0, "grid: expected"),
        (np.nan, "grid: expected"),
    ],
)
def test_unfit_grids_are_refused(grid: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lattice_of(plan_with(Fresh()), grid=grid)


@pytest.mark.parametrize(
    ("noise", "exponent"), [(1.0, -24), (1000.0, -15), (2.0**-10, -30), (2.0**-30, -30), (1.5, -24)]
)
def test_the_lattice_where_none_is_asked_for(noise: float, exponent: int) -> None:
    """2^-24 of the clip, which is 1; less where noise is smaller, but no more than 2^30 steps; more
    where sigma, 2^12 times noise, had more than 2^37."""
    plan = plan_with(Fresh(), coefficient=noise, noise_stddev=noise, mu=1 / noise)
    found = lattice_of(plan)
    assert (found.exponent, found.grid) == (exponent, 2.0**exponent)


def test_long_runs_have_a_lattice_by_default() -> None:
    """64 bands of the square root of prefix sums, 31 participations: sigma is 2^37 at most, and
    far from noise the lattice is fine."""
    column = np.cumprod([1.0, *(1 - 0.5 / np.arange(1, 64))])
    filter_, rule = Toeplitz.of(column, horizon=2000), Rule(most=31, min_sep=64)
    found = lattice_of(plan_with(filter_, horizon=2000, rule=rule))
    assert 2**70 < found.own_variance <= 2**74 + SMOOTHING
    assert found.squared_sensitivity == 31 * int(np.square(found.strategy[:, 0]).sum())
    assert found.grid < 2.0**-19


def test_noise_that_does_not_fit_64_bits_is_refused() -> None:
    """C^-1 whose rows sum to 2^40."""
    filter_ = Toeplitz.of(np.array([1.0, -2.0]), horizon=40)
    with pytest.raises(InputError, match="grid: expected a coarser step"):
        lattice_of(plan_with(filter_, horizon=40))


@pytest.mark.parametrize("steps", [3, 9, 14])
def test_noise_of_2_to_the_7_standard_deviations_fits_2_to_the_60(steps: int) -> None:
    """C^-1 whose rows sum to 2^t - 1, of ever more steps: refused from the first that does not."""
    fits = []
    for horizon in range(10, 45):
        plan = plan_with(Toeplitz.of(np.array([1.0, -2.0]), horizon=horizon), horizon=horizon)
        # Two of C's bands weigh 3, mu = .5 sees its column of length sqrt(5).
        most = 3 * (2**horizon - 1) * 4096 * 5**0.5 / 0.5 * 2**steps
        fits.append(most * 2**7 <= 2**60)
        if fits[-1]:
            assert lattice_of(plan, grid=2.0**-steps).own_variance > 0
        else:
            with pytest.raises(InputError, match="grid: expected a coarser step"):
                lattice_of(plan, grid=2.0**-steps)
    assert 5 < sum(fits) < 30


def test_diagonals_of_many_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="plan: expected diagonal entries of C within 4096"):
        lattice_of(plan_with(Banded(np.array([[1.0, 1e-5, 1.0, 1.0, 1.0, 1.0]]))))
