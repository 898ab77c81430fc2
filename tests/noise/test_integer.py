"""Noise in integers: the mechanism by its definition, what it hides, and what it refuses."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.noise import (
    IntegerNoise,
    Plan,
    Rule,
    Secret,
    Stream,
    integer as module,
    integer_noise,
    noise,
)
from noisedesign.noise.discrete_gaussian import CHUNK, DiscreteGaussian
from noisedesign.noise.filters import Banded, Filter, Fresh, Rows, Toeplitz
from noisedesign.noise.source import BLOCK
from noisedesign.problem.problem import PrivacyTarget, TimeProblem
from noisedesign.system.participation import FixedEpoch
from tests.support import lattice_plans
from tests.support.noise_reference import hkdf

OWN, PAIR = Secret(bytes(range(32))), Secret(bytes(range(1, 33)))
FILTERS: list[Filter] = [
    Fresh(),
    Toeplitz.of(np.array([1.0, 0.61, -0.3]), horizon=6),
    Banded(np.array([[1.0, 0.8, 0.9, 1.0, 1.1, 1.0], [-0.5, 0.2, 0.3, 0.4, 0.1, 0.0]])),
    Rows(np.tril(0.5 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))),
]


def plan_with(filter_: Filter, *, seeds: bool = False, **said: Any) -> Plan:
    pair = Stream(name="seed 4", coefficient=-1.3, source="shared", holders=(0, 1))
    rule = Rule(most=2, min_sep=3, residue=3)
    others = (pair,) if seeds else ()
    return lattice_plans.plan_with(filter_, *others, coefficient=2.0, rule=rule, **said)


def made(plan: Plan, **said: Any) -> IntegerNoise:
    given = {"secret": OWN, "seeds": {"seed 4": PAIR}, "record": False, "grid": 2.0**-19}
    return integer_noise(plan, **{**given, **said})


# --- the mechanism --------------------------------------------------------------------------------


def key(secret: Secret, stream: str, step: int, exponent: int) -> bytes:
    info = f"noisedesign noise 1 integers/{exponent} {stream} {step}".encode()
    return hkdf(secret.value, salt=bytes.fromhex(lattice_plans.DIGEST), info=info)


def white(source: IntegerNoise, step: int, count: int) -> list[int]:
    """v_t from the secrets, in Python integers."""
    lattice = source.lattice
    drawn = np.empty(count, dtype=np.int64)
    variance = DiscreteGaussian(lattice.own_variance)
    variance.fill(key(OWN, "node 0", step, lattice.exponent), drawn)
    total = drawn.tolist()
    for name, factor in lattice.coefficients.items():
        variance = DiscreteGaussian(lattice.seed_variance)
        variance.fill(key(PAIR, name, step, lattice.exponent), drawn)
        total = [a + factor * b for a, b in zip(total, drawn.tolist(), strict=True)]
    return total


def nearest(numerator: int, denominator: int) -> int:
    """Halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


@pytest.mark.parametrize("seeds", [False, True])
@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: f.kind)
def test_messages_are_what_follows_from_y(filter_: Filter, seeds: bool) -> None:
    """y = C g + v and x_t = [(y_t - sum C_ts x_s) / C_tt], in Python integers and from the
    secrets, which are expanded by another HKDF."""
    source, count = made(plan_with(filter_, seeds=seeds)), 50
    bands = source.lattice.strategy.tolist()
    rng = np.random.default_rng(5)
    gradients = rng.integers(-(10**6), 10**6, (6, count))
    messages: list[list[int]] = []
    for t in range(6):
        v = white(source, t, count)
        row = [bands[t - s][s] if t - s < len(bands) else 0 for s in range(t + 1)]
        x = []
        for i in range(count):
            y = sum(c * int(gradients[s, i]) for s, c in enumerate(row)) + v[i]
            known = sum(c * messages[s][i] for s, c in enumerate(row[:-1]))
            x.append(nearest(y - known, row[-1]))
        messages.append(x)
        (sent,) = source.release([gradients[t]], t, records=50)
        assert sent.tolist() == x


def test_noise_without_a_strategy() -> None:
    """Without a strategy C is 4096, and noise a rounded draw."""
    source = made(plan_with(Fresh()))
    expected = [nearest(v, 4096) for v in white(source, 2, 5)]
    assert source.step(2, 5).tolist() == expected
    assert source.lattice.exponent == 1 - 20
    assert source.grid == 2.0**-19


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: f.kind)
def test_any_step_and_part_in_any_order(filter_: Filter) -> None:
    size = BLOCK + CHUNK + 5
    plan = plan_with(filter_, seeds=True)
    source, whole = made(plan), [made(plan).step(t, size) for t in range(6)]
    for t, start, count in ((3, 0, 10), (5, BLOCK - 3, 7), (1, CHUNK - 1, 2), (5, size - 1, 1)):
        out = np.empty((1, count), dtype=np.int64)
        assert source.step(t, out=out, start=start) is out
        assert (out[0] == whole[t][start : start + count]).all()
    assert (source.step(0, (5, 7)).reshape(-1) == whole[0][:35]).all()


def test_the_path_of_what_is_sent_has_no_float() -> None:
    """Recursion, draws and release: no division but that of integers, no float, no function of
    numpy that makes one. Gradients become integers before, values floats after it."""
    parts = [
        module._Rounded,
        module._is_below,
        module._check_below,
        module._squared_norm,
        IntegerNoise._draw,
        IntegerNoise.release,
        IntegerNoise.step,
    ]
    for part in parts:
        tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Div)
            assert not isinstance(node, ast.Constant) or not isinstance(node.value, float)
            assert not isinstance(node, ast.Name) or node.id not in ("float", "Fraction")
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "np":
                allowed = {"int64", "empty", "abs", "array", "ndarray"}
                assert node.attr in allowed
    source = made(plan_with(FILTERS[1], seeds=True))
    assert source.step(4, 10).dtype == np.int64
    assert {lane.kept.dtype for lane in source._lanes.values()} == {np.dtype(np.int64)}


def test_integers_and_floats_share_no_key(tmp_path: Path) -> None:
    """Not with noise in floats, nor with another lattice, nor with another node or step."""
    plan = plan_with(Fresh())
    sources = [made(plan), made(plan, grid=2.0**-18), noise(plan, secret=OWN, record=False)]
    keys = {source._step_key("node 0", t) for source in sources for t in range(6)}
    assert len(keys) == 18
    a, b = made(plan).step(0, CHUNK), made(plan, grid=2.0**-18).step(0, CHUNK)
    assert abs(np.corrcoef(a, b)[0, 1]) < 7 / np.sqrt(CHUNK)


# --- the error ------------------------------------------------------------------------------------


def prefix_error(plan: Plan, *, steps: int, dimension: int) -> tuple[float, float]:
    """Mean squared error of prefix sums over that of the design, and its standard deviation."""
    exponent = math.floor(math.log2(plan.claim.noise_stddev)) - steps
    source = made(plan, grid=2.0**exponent)
    horizon = plan.horizon
    columns = plan.filter.noising_matrix
    response = np.tril(np.ones((horizon, horizon))) @ columns
    total, errors = np.zeros(dimension), np.zeros(dimension)
    for t in range(horizon):
        total += source.values([source.step(t, dimension)])[0]
        errors += np.square(total)
    covariance = response @ response.T
    spread = np.sqrt(2 * np.square(covariance).sum() / dimension) / np.trace(covariance)
    return float(errors.mean() / np.trace(covariance)), float(spread)


@pytest.fixture(scope="module")
def prefix_plan() -> Plan:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.7, adjacency="replace")
    problem = TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=4), privacy=target)
    return nd.solve(problem).design.node_plan(0)


@pytest.mark.parametrize("steps", [6, 20])
def test_prefix_sums_have_the_error_of_the_design(prefix_plan: Plan, steps: int) -> None:
    ratio, spread = prefix_error(prefix_plan, steps=steps, dimension=200_000)
    assert spread < 0.0025
    assert abs(ratio - 1) < 0.002 + 5 * spread


@pytest.mark.slow
@pytest.mark.parametrize("steps", [6, 10, 16, 20])
def test_prefix_sums_have_the_error_of_the_design_to_half_a_percent(
    prefix_plan: Plan, steps: int
) -> None:
    ratio, spread = prefix_error(prefix_plan, steps=steps, dimension=4_000_000)
    assert spread < 0.0006
    assert abs(ratio - 1) < 0.005


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: f.kind)
def test_noise_has_the_covariance_of_the_design(filter_: Filter) -> None:
    """All pairs of steps and of two nodes with one seed, which one of them takes with the other
    sign: (C^T C)^-1 times own and shared variances."""
    plan, count = plan_with(filter_, seeds=True, mu=100.0), 60_000
    pair = Stream(name="seed 4", coefficient=0.8, source="shared", holders=(0, 1))
    other = lattice_plans.own_stream(1, 1.0)
    second = made(replace(plan, node=1, streams=(other, pair)), secret=Secret(bytes(range(2, 34))))
    drawn = np.array(
        [
            node.values([node.step(t, count)])[0]
            for node in (made(plan), second)
            for t in range(plan.horizon)
        ]
    )
    bands = filter_.strategy(plan.horizon)
    strategy = sum(np.diag(band[: 6 - i], -i) for i, band in enumerate(bands))
    space = np.array([[2.0**2 + 1.3**2, -1.3 * 0.8], [-1.3 * 0.8, 1.0 + 0.8**2]])
    designed = np.kron(space, np.linalg.inv(strategy.T @ strategy))
    variances = np.diagonal(designed)
    spread = np.sqrt((np.multiply.outer(variances, variances) + np.square(designed)) / count)
    assert (np.abs(drawn @ drawn.T / count - designed) < 6 * spread).all()


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_rounded_toward_zero() -> None:
    source = made(plan_with(Fresh()), grid=2.0**-2)
    rows = np.array([[0.3, -0.3, 0.49, -0.51], [0.24, 0.0, -0.25, 0.75]])
    (total,) = source.lattice_sum([rows])
    assert total.tolist() == [1, -1, 0, 1]
    assert source.values([total])[0].tolist() == [0.25, -0.25, 0.0, 0.25]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_norm_is_larger_than_the_clip(dtype: Any) -> None:
    """In Python integers; for lengths at, just past and far past the clip, and huge ones."""
    source = made(plan_with(Fresh(), clip=0.7))
    most, rng = source.lattice.clip_squared, np.random.default_rng(2)
    for scale in (0.7, 0.7 * (1 + 5e-4), 5.0, 1e30):
        for size in (1, 3, 1000):
            row = rng.normal(size=size)
            row = (scale * row / np.linalg.norm(row)).astype(dtype)
            (whole,) = source.lattice_sum([row[None]], clip=True)
            square = sum(x * x for x in whole.tolist())
            assert square <= most
            assert math.sqrt(square) >= math.sqrt(most) * (1 - 1e-5) - math.sqrt(size)
            if scale < 1:
                assert (source.lattice_sum([row[None]])[0] == whole).all()
                assert (np.abs(whole) <= np.abs(row.astype(float)) / source.grid).all()


def test_the_axis_of_the_clip_stays_on_it() -> None:
    """One coordinate as long as the clip keeps all of it; no direction of the clip is short by
    more than its roundings."""
    source = made(plan_with(Fresh()))
    assert source.lattice_sum([np.array([[0.0, -1.0]])])[0].tolist() == [0, -(2**19)]
    assert source.lattice_sum([np.array([[0.0, 9.0]])], clip=True)[0].tolist() == [0, 2**19]


def test_records_are_summed_over_arrays() -> None:
    source = made(plan_with(Fresh()))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 2, 3)) / 9, rng.normal(size=(4, 5)).astype(np.float32) / 9
    first, second = source.lattice_sum([a, b])
    assert (first == np.trunc(a * 2**19).sum(axis=0)).all()
    assert (second == np.trunc(b.astype(float) * 2**19).sum(axis=0)).all()
    sent = source.release([a, b], 3)
    again = made(plan_with(Fresh())).release([first, second], 3)
    assert [x.shape for x in sent] == [(2, 3), (5,)]
    for x, y, noise_ in zip(sent, again, (slice(0, 6), slice(6, 11)), strict=True):
        assert (x == y).all()
        total = first if noise_.start == 0 else second
        assert (x.reshape(-1) == total.reshape(-1) + source.step(3, 11)[noise_]).all()


def test_values_are_divided_by_the_batch_size() -> None:
    source = made(plan_with(Fresh(), batch_size=8))
    assert source.values([np.array([2**19, -4])])[0].tolist() == [1 / 8, -4 / 8 / 2**19]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ([np.ones((1, 2), dtype=np.float16)], r"gradients\[0\]: expected float32 or float64, or"),
        ([np.ones((1, 2)) / 4, np.full((1, 2), np.nan)], r"gradients\[1\]: expected finite"),
        ([np.array([[np.inf, 0]])], r"gradients\[0\]: expected finite"),
        ([np.array([[0.9, 0.9]])], "expected norms up to the clip, 1, got 1.27.* of record 0"),
        ([np.array([[0.1, 0.1], [0.8, 0.7]])], "of record 1"),
        ([np.array(3.0)], "one record a row"),
        ([np.ones((2, 1)) / 4, np.ones((3, 1)) / 4], "as many in each, got"),
        ([np.ones((1, 2), dtype=np.int32)], "or int64 for sums, got int32"),
        ([np.array([2**61])], r"gradients\[0\]: expected sums up to 1152921504606846976 steps"),
        ([np.array([-(2**63)])], "expected sums up to"),
        ([], "arrays with one record a row"),
        (np.ones((2, 2)) / 4, "gradients: expected a list of arrays, got an array"),
        (np.array([1, 2]), "gradients: expected a list of arrays, got an array"),
        (3, "gradients: expected a list of arrays, got 3"),
        ([[0.5, 0.5]], r"gradients\[0\]: expected an array with one record a row"),
    ],
)
def test_gradients_that_are_refused(gradients: Any, message: str) -> None:
    source = made(plan_with(Fresh()))
    with pytest.raises(InputError, match=message):
        source.release(gradients, 0)
    assert source.next_step == 0


@pytest.mark.parametrize("released", [np.array([1, 2]), [np.array([1.0])], [3], None])
def test_values_are_of_what_was_released(released: Any) -> None:
    with pytest.raises(InputError, match="released.*: expected"):
        made(plan_with(Fresh())).values(released)


def test_sums_past_what_a_batch_can_have_are_refused() -> None:
    source = made(plan_with(Fresh(), batch_size=8))
    source.release([np.array([8 * 2**19])], 0)
    over = np.array([8 * 2**19 + 2**13])
    with pytest.raises(InputError, match=r"gradients: .* at most 8, of 8 records .* got norm 8.01"):
        source.release([over], 1)
    source.release([over], 1, records=9)


@pytest.mark.parametrize("step", [-1, 6, 1.0, None])
def test_steps_outside_the_horizon_are_refused(step: Any) -> None:
    source = made(plan_with(Fresh()))
    for ask in (lambda: source.step(step, 3), lambda: source.release([np.array([1])], step)):
        with pytest.raises(InputError, match="step: expected"):
            ask()


@pytest.mark.parametrize("out", [np.empty(3), np.empty(3, dtype=np.int32), [0]])
def test_outputs_of_other_types_are_refused(out: Any) -> None:
    with pytest.raises(InputError, match="out: expected"):
        made(plan_with(Fresh())).step(0, out=out)


def test_another_clip_or_batch_size_is_refused() -> None:
    with pytest.raises(InputError, match="clip: expected 1, which the design is for"):
        made(plan_with(Fresh()), clip=2.0)
    with pytest.raises(InputError, match="batch_size: expected none stated"):
        made(plan_with(Fresh()), batch_size=4)


def test_a_missing_seed_is_refused() -> None:
    with pytest.raises(InputError, match="the secret 'seed 4', shared with node 1"):
        made(plan_with(Fresh(), seeds=True), seeds={})


def test_noise_that_is_dealt_needs_the_seeds_and_a_secret_of_its_own() -> None:
    plan = plan_with(Fresh())
    dealt = Stream(name="draw 0", coefficient=1.0, source="dealt", holders=(0, 1))
    plan = replace(plan, streams=(dealt,))
    with pytest.raises(InputError, match="'draw 0', which a dealer gave"):
        made(plan)
    source = made(plan, seeds={"draw 0": PAIR})
    other = made(plan, seeds={"draw 0": PAIR}, secret=Secret(bytes(range(2, 34))))
    a, b = source.step(0, 50_000), other.step(0, 50_000)
    assert np.corrcoef(a, b)[0, 1] > 0.99  # all of the design is shared; own noise is for privacy
    assert (a != b).any()


# --- records and resuming -------------------------------------------------------------------------


def test_a_secret_serves_one_lattice_and_no_floats(tmp_path: Path) -> None:
    plan, record = plan_with(Fresh()), tmp_path / "records"
    made(plan, record=record).step(0, 3)
    with pytest.raises(InputError, match="secret: expected a secret for own, got one that served"):
        noise(plan, secret=OWN, record=record)
    with pytest.raises(InputError, match="secret: expected a secret for integers/-18 own"):
        made(plan, record=record, grid=2.0**-18)


def test_other_data_at_a_step_is_refused(tmp_path: Path) -> None:
    plan, record = plan_with(FILTERS[1]), tmp_path / "records"
    source = made(plan, record=record)
    first = source.release([np.array([5, -7])], 2)
    again = made(plan, record=record, resume=True)
    assert (again.release([np.array([5, -7])], 2)[0] == first[0]).all()
    with pytest.raises(InputError, match="other data at step 2"):
        again.release([np.array([5, -8])], 2)


def test_resumed_noise_is_the_same() -> None:
    plan = plan_with(FILTERS[2], seeds=True)
    source = made(plan)
    sums = [[np.array([t, -t, 3 * t])] for t in range(6)]
    sent = [source.release(sums[t], t) for t in range(3)]
    state, expected = source.state_dict(), [source.release(sums[t], t) for t in range(3, 6)]
    other = made(plan)
    other.load_state_dict(state)
    assert other.next_step == 3
    for t in range(3, 6):
        assert (other.release(sums[t], t)[0] == expected[t - 3][0]).all()
    assert (other.release(sums[1], 1)[0] == sent[1][0]).all()


def test_bits_do_not_depend_on_the_seeds_given_beside() -> None:
    plan = plan_with(Fresh())
    assert (made(plan).step(1, 9) == made(plan, seeds={}).step(1, 9)).all()
    drawn = made(plan, secret=None)
    assert drawn.secret is not None
    assert (drawn.step(1, 9) == made(plan, secret=drawn.secret).step(1, 9)).all()


def test_gradients_that_floats_hold_to_be_no_longer_than_the_clip_are_not() -> None:
    """Of integers with a squared norm a little above 2^60, whose root is 2^30 in floats."""
    small = {"coefficient": 2.0**-10, "noise_stddev": 2.0**-10, "mu": 2.0**10}
    plan = lattice_plans.plan_with(Fresh(), **small)  # type: ignore[arg-type]
    source = integer_noise(plan, secret=OWN, record=False, grid=2.0**-30)
    most, longer = source.lattice.clip_squared, 0
    assert most == 2**60
    for first in range(2**29, 2**30, 2**24 + 12345):
        row, left = [first], most - first**2
        for _ in range(6):
            row.append(math.isqrt(left))
            left -= row[-1] ** 2
        row[-1] += 1
        assert most < sum(x * x for x in row) < most + 2**8
        (found,) = source.lattice_sum([np.ldexp(np.array([row], dtype=np.float64), -30)], clip=True)
        assert sum(x * x for x in found.tolist()) <= most
        longer += found.tolist() != row
    assert longer > 10
