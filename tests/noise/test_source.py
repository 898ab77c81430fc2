"""The noise of one node: the design's linear map of white noise, the same bits in any pieces."""

from __future__ import annotations

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.toeplitz.solver import (
    optimize_banded_inverse,
    optimize_buffered,
    optimize_toeplitz,
)
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.problem_file import load_problem
from noisedesign.noise import NodeNoise, Plan, Secret, noise
from noisedesign.noise.filters import Rows
from noisedesign.noise.normals import LARGEST, MOST_SAMPLES, RELATIVE_ERROR, Normals
from noisedesign.noise.source import BLOCK, LATEST
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.calibration import calibrate
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.toeplitz import prefix_workload
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import HORIZON, SECRET, drawn

PLANS = noise_plans.plans()
DTYPES = (np.float32, np.float64)
TARGET = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.75)


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "records.sqlite3"
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(path))
    return path


# --- the linear map ---------------------------------------------------------------------------

SHIPPED = {
    "full": "space-time/path-5-full-2x4",
    "kronecker": "space-time/ring-8-kronecker",
    "R dealt": "whisper/florentine",
    "diagonal R": "space-structures/florentine-independent",
    "pairwise seeds": "space-structures/florentine-edge-local",
    "seeds of cliques": "space-structures/florentine-neighbourhood",
    "decor": "space-structures/florentine-decor",
    "seeds and bands": "space-time/florentine-banded-decor",
    "seeds and a dense C": "space-time/ring-16-mafalda-edge-local",
    "dense": "examples/time-with-privacy",
    "banded": "time-structures/ring-12-banded-3x8",
    "toeplitz": "time-structures/prefix-toeplitz-32",
    "banded-inverse": "time-structures/ring-12-banded-inverse-4x8",
    "buffers": "time-structures/prefix-blt-64",
    "signed buffers": "time-structures/prefix-signed-blt-4x8",
}
STREAMING = {
    "streaming toeplitz": (optimize_toeplitz, {"bands": 6}),
    "streaming banded-inverse": (optimize_banded_inverse, {"bands": 4}),
    "streaming buffers": (optimize_buffered, {"buffers": 2}),
}
_MADE: dict[str, Design] = {}


def design_of(kind: str) -> Design:
    if kind not in _MADE:
        problem = load_problem(ROOT / "problems" / f"{SHIPPED[kind]}.toml").problem
        steps = 3 if problem.axes == "space" else None
        target = replace(problem.privacy or TARGET, steps=steps)
        design = solve(replace(problem, privacy=target)).design
        assert design is not None
        _MADE[kind] = design
    return _MADE[kind]


def streaming(kind: str) -> StreamingDesign:
    make, how = STREAMING[kind]
    scheme = FixedEpoch(epochs=3, separation=8)
    found = make(workload=prefix_workload(horizon=24), participation=scheme, **how)
    return replace(found, privacy=TARGET)


def seeds_of(plan: Plan) -> dict[str, Secret]:
    return {
        s.name: SECRET.child(s.name, digest=plan.digest)
        for s in plan.streams
        if s.source == "shared"
    }


def node_noise(plan: Plan) -> NodeNoise:
    own = SECRET
    if "own" in plan.sources:
        own = SECRET.child(f"node {plan.node}", digest=plan.digest)
    return NodeNoise(plan, secret=own, seeds=seeds_of(plan), record=None, resume=False)


def all_noise(plans: list[Plan], dimension: int) -> np.ndarray:
    """Shape (T, n, d)."""
    sources = [node_noise(plan) for plan in plans]
    return np.array(
        [[source.step(t, dimension) for source in sources] for t in range(plans[0].horizon)]
    )


def order_of(seeds: SeedPlan | None) -> tuple[str, ...]:
    """Names of streams in the order of the seeds of a design."""
    if seeds is None:
        return ()
    return tuple(
        f"seed {k}" if len(seed.members) > 1 else f"node {seed.members[0]}"
        for k, seed in enumerate(seeds.seeds)
    )


def white_of(
    plans: list[Plan], dimension: int, order: tuple[str, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of every step, shape (T, draws, d), and F, shape (n, draws), from what nodes know; a
    shared seed is in the same place whoever holds it."""
    places = {name: k for k, name in enumerate(order)}
    keys: dict[str, Secret] = {}
    for plan in plans:
        source = node_noise(plan)
        for stream in plan.streams:
            places.setdefault(stream.name, len(places))
            keys[stream.name] = source._drawn[stream.name]
    root = np.zeros((len(plans), len(places)))
    for u, plan in enumerate(plans):
        for stream in plan.streams:
            root[u, places[stream.name]] = stream.coefficient
    white = np.empty((plans[0].horizon, len(places), dimension))
    for name, k in places.items():
        for t in range(plans[0].horizon):
            key = keys[name].step_key(name, t, digest=plans[0].digest)
            Normals(key).fill(white[t, k])
    return white, root


@pytest.mark.parametrize("kind", SHIPPED)
def test_noise_is_the_linear_map_of_the_design(kind: str) -> None:
    design, dimension = design_of(kind), 6
    nodes = design.noise.nodes or 1
    plans = [design.node_plan(u) for u in range(nodes)]
    assert len({plan.digest for plan in plans}) == 1
    found = all_noise(plans, dimension)
    white, root = white_of(plans, dimension, order_of(design._seeds))
    stddev = calibrate(design.problem).noise_stddev
    steps, size = len(found), np.abs(found).max()
    # Dense: C z = F w, F F^T = R, scaled to the target.
    if design.noise.full:
        left = design.strategy @ found.reshape(steps * nodes, dimension)
        right = stddev * white.reshape(steps * nodes, dimension)
        assert {s.coefficient for plan in plans for s in plan.streams} == {1.0}
    else:
        strategy = np.eye(steps) if design.noise.strategy is None else design.strategy
        covariance = np.eye(nodes) if design.noise.space is None else design.covariance
        time_only = design.noise.space is None
        spread = np.eye(nodes) * stddev if time_only else root
        expected = stddev**2 * covariance
        np.testing.assert_allclose(
            spread @ spread.T, expected, rtol=0, atol=1e-12 * np.abs(expected).max()
        )
        left = np.tensordot(strategy, found, axes=1)
        right = spread @ white
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-12 * size)
    # By the noise that exports and the simulator draw from.
    scaled = replace(design.noise, space=design._seeds or design.noise.space).scaled(stddev)
    again = np.array(list(scaled.of_white(list(white))))
    np.testing.assert_allclose(found, again, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("kind", STREAMING)
def test_noise_of_streaming_designs(kind: str) -> None:
    design = streaming(kind)
    plans = [design.node_plan(u) for u in (0, 5)]
    assert [plan.node for plan in plans] == [0, 5]
    assert plans[0].digest == plans[1].digest
    found, (white, _) = all_noise(plans, 6), white_of(plans, 6)
    scale = design.calibration.noise_stddev * np.sqrt(design.squared_sensitivity)
    strategy = design.strategy.at(24).dense() / scale
    size = np.abs(found).max()
    np.testing.assert_allclose(
        np.tensordot(strategy, found, axes=1) * scale, white * scale, rtol=0, atol=1e-12 * size
    )
    scaled = design.noise.scaled(design.calibration.noise_stddev)
    again = np.array(list(scaled.of_white(list(white))))
    np.testing.assert_allclose(found, again, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("kind", SHIPPED)
def test_variances_that_a_plan_states(kind: str) -> None:
    design = design_of(kind)
    stddev = calibrate(design.problem).noise_stddev
    for u in range(design.noise.nodes or 1):
        found = design.node_plan(u).variances
        if design.noise.full:
            n = design.noise.nodes
            expected = np.square(design.noising_matrix).sum(axis=1)[u::n]
        else:
            rows = 1.0 if design.noise.space is None else design.covariance[u, u]
            over_time = np.ones(len(found))
            if design.noise.strategy is not None:
                over_time = np.square(design.noising_matrix).sum(axis=1)
            expected = rows * over_time
        np.testing.assert_allclose(found, stddev**2 * expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["full", "R dealt", "pairwise seeds", "banded"])
def test_covariance_of_what_is_drawn(kind: str) -> None:
    """Entries over all steps and nodes, standardised: their rms is 1 within a few times what as
    many independent ones would allow."""
    design, dimension = design_of(kind), 6000
    nodes = design.noise.nodes or 1
    plans = [design.node_plan(u) for u in range(nodes)]
    drawn_ = all_noise(plans, dimension).reshape(-1, dimension)
    empirical = drawn_ @ drawn_.T / dimension
    stddev = calibrate(design.problem).noise_stddev
    if design.noise.full:
        inverse = np.linalg.inv(design.strategy)
        expected = inverse @ inverse.T
    else:
        inverse = np.eye(plans[0].horizon)
        if design.noise.strategy is not None:
            inverse = np.linalg.inv(design.strategy)
        space = np.eye(nodes) if design.noise.space is None else design.covariance
        expected = np.kron(inverse @ inverse.T, space)
    expected = stddev**2 * expected
    sizes = np.sqrt(np.diagonal(expected))
    spread = np.sqrt(1 + np.square(expected / np.outer(sizes, sizes)))
    standard = np.sqrt(dimension) * (empirical - expected) / np.outer(sizes, sizes) / spread
    assert 0.85 < np.sqrt(np.square(standard).mean()) < 1.15
    assert np.abs(standard).max() < 6.5


# --- pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLANS)
def test_any_slice_in_any_order_has_the_same_bits(name: str, dtype: type) -> None:
    plan, size = PLANS[name], BLOCK + 777
    source = drawn(plan)
    whole = np.array([source.step(t, size, dtype=dtype) for t in range(HORIZON)])
    assert whole.dtype == dtype
    assert np.isfinite(whole).all()
    assert len(np.unique(whole)) > 0.99 * whole.size * (1 if dtype is np.float64 else 0.9)
    # Backwards, from the same source and from another.
    for again in (source, drawn(plan)):
        for t in (HORIZON - 1, 2, 2, 0):
            np.testing.assert_array_equal(again.step(t, size, dtype=dtype), whole[t])
    rng = np.random.default_rng(7)
    pieces = drawn(plan)
    for _ in range(30):
        t, start = int(rng.integers(HORIZON)), int(rng.integers(size))
        count = int(rng.integers(min(size - start, 900) + 1))
        found = pieces.step(t, count, dtype=dtype, start=start)
        np.testing.assert_array_equal(found, whole[t, start : start + count])
    out = np.full((7, 5), np.nan, dtype=dtype)
    assert pieces.step(3, out=out, start=BLOCK - 9) is out
    np.testing.assert_array_equal(out.ravel(), whole[3, BLOCK - 9 : BLOCK + 26])
    # The other precision in between changes nothing.
    other = np.float32 if dtype is np.float64 else np.float64
    assert pieces.step(4, 10, dtype=other).dtype == other
    np.testing.assert_array_equal(pieces.step(4, 10, dtype=dtype), whole[4, :10])


@pytest.mark.parametrize("name", ["banded", "banded-inverse", "blt", "signed-blt"])
def test_blocks_whose_last_noise_is_no_longer_held(name: str) -> None:
    source, size = drawn(PLANS[name]), (LATEST + 3) * BLOCK
    first = source.step(1, size, dtype=np.float32)
    assert len(source._latest) <= LATEST
    np.testing.assert_array_equal(source.step(1, 50, dtype=np.float32, start=5), first[5:55])
    np.testing.assert_array_equal(
        source.step(1, 50, dtype=np.float32, start=size - 50), first[-50:]
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["fresh", "banded", "banded-inverse", "blt", "signed-blt", "seeds", "full"]
)
def test_noise_added_to_a_list_is_the_noise_of_the_steps(name: str, dtype: type) -> None:
    plan = PLANS[name]
    source, steps = drawn(plan), drawn(plan)
    shapes = [(3, 5), (), (BLOCK,), (0, 4), (17, 3)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    for t in range(4):
        sums = [np.full(shape, 0.25, dtype=dtype) for shape in shapes]
        views = [np.asarray(array) for array in sums]
        source.add_(sums, t, records=100)
        noise_ = steps.step(t, sum(sizes), dtype=dtype)
        expected = np.split(dtype(0.25) + noise_, np.cumsum(sizes)[:-1])
        for array, view, part in zip(sums, views, expected, strict=True):
            assert array is not None
            np.testing.assert_array_equal(view.ravel(), part)
    assert source.next_step == 4


def test_lists_of_both_precisions() -> None:
    source, plan = drawn(PLANS["banded"]), PLANS["banded"]
    sums = [np.zeros(5, dtype=np.float32), np.zeros(7)]
    source.add_(sums, 3)
    for dtype, array, start in ((np.float32, sums[0], 0), (np.float64, sums[1], 5)):
        expected = drawn(plan).step(3, array.shape, dtype=dtype, start=start)
        np.testing.assert_array_equal(array, expected)


def test_noise_is_divided_by_the_batch_size() -> None:
    plan = PLANS["banded"]
    batched = replace(plan, claim=replace(plan.claim, batch_size=20))
    sums = [np.zeros(9)]
    drawn(batched).add_(sums, 2)
    np.testing.assert_array_equal(sums[0], drawn(plan).step(2, 9) / 20)


def test_masked_entries_get_noise() -> None:
    masked = np.ma.array(np.zeros(4), mask=[True, False, True, False])
    drawn(PLANS["fresh"]).add_([masked], 0)
    np.testing.assert_array_equal(masked.data, drawn(PLANS["fresh"]).step(0, 4))


def test_other_nodes_seeds_steps_and_designs_have_other_noise() -> None:
    plan = PLANS["fresh"]
    child = SECRET.child("another", digest=plan.digest)
    other = replace(plan, digest="6" * 64)
    renamed = replace(plan, streams=(replace(plan.streams[0], name="node 3"),))
    sources = [
        drawn(plan),
        NodeNoise(plan, secret=child, seeds={}, record=None, resume=False),
        drawn(other),
        drawn(renamed),
    ]
    steps = [source.step(t, 4).tolist() for source in sources for t in range(HORIZON)]
    assert len({x for step in steps for x in step}) == 4 * HORIZON * 4


def test_two_holders_of_a_seed_draw_the_same_from_it() -> None:
    design = design_of("pairwise seeds")
    plans = [design.node_plan(u) for u in range(design.noise.nodes)]
    seed = next(s for s in plans[0].streams if s.source == "shared")
    found = {}
    for u in seed.holders:
        (stream,) = (s for s in plans[u].streams if s.name == seed.name)
        alone = replace(plans[u], streams=(stream,))
        found[u] = node_noise(alone).step(1, 5) / stream.coefficient
    first, second = found.values()
    np.testing.assert_allclose(first, second, rtol=1e-15)


@pytest.mark.parametrize("name", ["banded", "banded-inverse", "blt", "signed-blt"])
def test_threads_that_share_a_source(name: str) -> None:
    size = 6 * BLOCK
    expected = [drawn(PLANS[name]).step(t, size, dtype=np.float32) for t in range(HORIZON)]
    source = drawn(PLANS[name])
    order = [(t, part) for t in range(HORIZON) for part in range(8)]
    pieces = size // 8

    def piece(at: tuple[int, int]) -> np.ndarray:
        t, part = at
        return source.step(t, pieces, dtype=np.float32, start=part * pieces)

    with ThreadPoolExecutor(4) as pool:
        for (t, part), found in zip(order, pool.map(piece, order), strict=True):
            np.testing.assert_array_equal(found, expected[t][part * pieces : (part + 1) * pieces])


def test_a_copy_is_the_same_run() -> None:
    """A trainer may copy what draws its noise, and not make a second run of it."""
    source = noise(PLANS["banded"])
    copied = copy.deepcopy({"optimizer": [source]})["optimizer"][0]
    copied.add_([np.full(3, 0.1)], 0)
    assert source.next_step == 1
    with pytest.raises(InputError, match="other data at step 0"):
        source.add_([np.zeros(3)], 0)


def test_noise_stays_in_its_process() -> None:
    source = noise(PLANS["banded"], record=False)
    assert copy.copy(source) is source
    for held in (source, {"optimizer": [source]}, source.attendance()):
        with pytest.raises(InputError, match="^noise: expected noise in the process that made it"):
            pickle.dumps(held)


def test_without_a_record_too_one_source_hides_one_sum_a_step() -> None:
    source, first = noise(PLANS["banded"], record=False), [np.full(3, 0.1)]
    for use in (source, copy.copy(source)):
        use.add_([np.full(3, 0.1)], 2)
        other = [np.full(3, 0.2)]
        with pytest.raises(InputError, match="step: expected .* other data at step 2"):
            use.add_(other, 2)
        np.testing.assert_array_equal(other[0], 0.2)
    source.add_(first, 2)
    again = [np.full(3, 0.1)]
    source.add_(again, 2)
    np.testing.assert_array_equal(first, again)


def test_the_package_is_called_as_its_function() -> None:
    found = noisedesign.noise(PLANS["banded"], secret=SECRET, clip=0.5, record=False)
    np.testing.assert_array_equal(found.step(1, 4), drawn(PLANS["banded"]).step(1, 4))
    with pytest.raises(InputError, match="clip: expected 0.5"):
        noisedesign.noise(PLANS["banded"], clip=1.0)
    message = "got np.float32.0.5. .float32.. It has lost digits: give a Python number or a float64"
    with pytest.raises(InputError, match=message):
        noise(PLANS["banded"], clip=np.float32(0.5))


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("t", [HORIZON, HORIZON + 1, -1, 2.0, "1", None, True])
def test_steps_that_there_are_not(t: Any) -> None:
    source = drawn(PLANS["banded"])
    with pytest.raises(InputError, match=r"^step: expected"):
        source.step(t, 3)
    sums = [np.ones(3)]
    with pytest.raises(InputError, match=r"^step: expected"):
        source.add_(sums, t)
    np.testing.assert_array_equal(sums[0], 1)
    assert source.next_step == 0


def test_past_the_horizon_the_error_says_why() -> None:
    with pytest.raises(InputError, match="the design is for 7, got 7. No further step was ever"):
        drawn(PLANS["toeplitz"]).step(7, 3)


def transposed() -> np.ndarray:
    return np.zeros((3, 4)).T


def read_only() -> np.ndarray:
    found = np.zeros(4)
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "shape: expected a shape, or out, got neither"),
        ({"shape": -1}, "shape: expected a shape of numbers >= 0, got -1"),
        ({"shape": "two"}, "shape: expected a shape of numbers >= 0, got 'two'"),
        ({"shape": 3, "dtype": np.float16}, "dtype: expected float32 or float64, got float16"),
        ({"shape": 3, "dtype": "bfloat16"}, "dtype: expected float32 or float64, got 'bfloat16'"),
        ({"shape": 3, "dtype": int}, "dtype: expected float32 or float64, got int64"),
        ({"shape": 3, "dtype": ">f8"}, "dtype: expected float32 or float64, got >f8"),
        ({"shape": 3, "start": -1}, "start: expected an integer >= 0"),
        ({"shape": 3, "start": MOST_SAMPLES - 2}, "start: expected at most 34359738368 numbers"),
        ({"out": [0.0, 0.0]}, "out: expected a numpy array"),
        ({"out": np.zeros(3, dtype=np.float16)}, "out: expected float32 or float64, got float16"),
        ({"out": transposed()}, r"out: expected a writeable array in C order, got one of shape"),
        ({"out": np.zeros(8)[::2]}, r"out: expected a writeable array .* strides \(16,\)"),
        ({"out": read_only()}, "out: expected a writeable array .* read-only"),
        ({"out": np.zeros(4), "shape": (2, 3)}, r"out: expected shape \(2, 3\), got \(4,\)"),
    ],
)
def test_outputs_that_cannot_be_written(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drawn(PLANS["fresh"]).step(0, **how)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([], "parameters: expected at least one array, got none"),
        ([np.zeros(3), [1.0]], r"parameters\[1\]: expected a numpy array"),
        (np.zeros(3), r"parameters: expected a list of arrays, got an array .* Put it into a list"),
        ([np.zeros(3, dtype=np.float16)], r"parameters\[0\]: expected float32 or .* got float16"),
        ([np.zeros(3, dtype=np.int64)], r"parameters\[0\]: expected float32 or float64, got int64"),
        ([np.zeros(3), np.array([1.0, np.nan])], r"parameters\[1\]: expected finite numbers"),
        ([np.array([np.inf])], r"parameters\[0\]: expected finite numbers, .* Drop examples"),
        ([np.append(np.zeros(BLOCK), -np.inf)], r"parameters\[0\]: expected finite numbers"),
        ([transposed()], r"parameters\[0\]: expected a writeable array in C order"),
        ([read_only()], r"parameters\[0\]: expected a writeable array in C order, .* read-only"),
    ],
)
def test_gradients_that_get_no_noise(parameters: Any, message: str, record: Path) -> None:
    source = noise(PLANS["banded"])
    before = [np.copy(array) for array in parameters]
    with pytest.raises(InputError, match=message):
        source.add_(parameters, 0)
    for array, value in zip(parameters, before, strict=True):
        np.testing.assert_array_equal(array, value)
    source.add_([np.full(3, 0.1)], 0)  # and the step was not used up


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"clip": 1.0}, "clip: expected 0.5, which the design is for, got 1"),
        ({"batch_size": 8}, "batch_size: expected none stated, which the design is for, got 8"),
        ({"node": 1}, "node: expected 2, whose file this is, got 1"),
        ({"secret": bytes(31)}, "secret: expected 32 bytes"),
        ({"secret": 3}, "secret: expected a Secret"),
        ({"record": 3}, "record: expected the path of a file"),
    ],
)
def test_what_does_not_fit_the_plan(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise(PLANS["banded"], **how)


def test_what_fits_the_plan() -> None:
    plan = replace(PLANS["banded"], claim=replace(noise_plans.CLAIM, batch_size=8))
    found = noise(plan, node=2, clip=0.5, batch_size=8, secret=SECRET)
    assert found.claim.batch_size == 8
    assert found.secret is SECRET
    with pytest.raises(InputError, match="batch_size: expected 8, which the design is for, got 9"):
        noise(plan, batch_size=9)
    with pytest.raises(InputError, match="batch_size: expected 8, which sums .* got nothing"):
        noise(plan)


def test_secrets_come_from_the_operating_system() -> None:
    one, other = noise(PLANS["fresh"]), noise(PLANS["fresh"])
    assert one.secret.value != other.secret.value
    assert one.step(0, 1) != other.step(0, 1)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({}, r"seeds: expected the secret 'a', shared with node 1, got none. Agree on it"),
        ({"a": SECRET}, r"seeds: expected the secret 'b', shared with node 3, got 1 others"),
        ({"a": SECRET, "b": SECRET}, "seeds: expected a secret of its own for every seed"),
        ({"a": 5, "b": SECRET}, "seeds: expected a Secret"),
    ],
)
def test_seeds_that_are_missing(seeds: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise(PLANS["seeds"], seeds=seeds, record=False)


def test_a_seed_may_not_be_the_nodes_own_secret() -> None:
    seeds = {"a": SECRET, "b": noise_plans.SEEDS["b"]}
    with pytest.raises(InputError, match="seeds: expected a secret of its own for every seed"):
        noise(PLANS["seeds"], seeds=seeds, secret=SECRET, record=False)


def test_a_secret_that_nothing_is_drawn_from() -> None:
    plan = replace(PLANS["seeds"], streams=PLANS["seeds"].streams[:1])
    with pytest.raises(InputError, match="secret: expected none: all noise"):
        noise(plan, seeds=noise_plans.SEEDS, secret=SECRET)


# --- resuming ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["banded", "blt", "seeds, banded", "full"])
def test_a_run_goes_on_where_it_stopped(name: str) -> None:
    plan = PLANS[name]
    seeds = {s.name: noise_plans.SEEDS[s.name] for s in plan.streams if s.source == "shared"}
    kinds = {"secret": SECRET, "seeds": seeds}
    straight = drawn(plan)
    expected = [straight.step(t, 11, dtype=np.float32) for t in range(HORIZON)]
    first = noise(plan, **kinds)
    for t in range(3):
        first.add_([np.zeros(11, dtype=np.float32)], t)
    state = json.loads(json.dumps(first.state_dict()))
    assert SECRET.value.hex()[:10] not in json.dumps(state)
    second = noise(plan, resume=True, **kinds)
    second.load_state_dict(state)
    assert second.next_step == 3
    for t in range(second.next_step, HORIZON):
        sums = np.zeros(11, dtype=np.float32)
        second.add_([sums], t)
        np.testing.assert_array_equal(sums, expected[t])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "state.version: expected 1, got 2"),
        ({"digest": "6" * 64}, "state.digest: expected 555"),
        ({"node": 3}, "state.node: expected 2, got 3"),
        ({"secrets": []}, "state.secrets: expected"),
        ({"added": -2}, "state.added: expected an integer >= -1"),
        ({"added": "3"}, "state.added: expected an integer >= -1"),
        ({"added": HORIZON}, "state.added: expected a step before the horizon, 7, got 7"),
    ],
)
def test_states_of_something_else(change: dict[str, Any], message: str) -> None:
    source = drawn(PLANS["banded"])
    state = source.state_dict()
    with pytest.raises(InputError, match=message):
        source.load_state_dict(state | change)
    for key in change:
        with pytest.raises(InputError, match=f"state.{key}"):
            source.load_state_dict({k: v for k, v in state.items() if k != key})
    assert source.next_step == 0


def test_a_state_that_is_none() -> None:
    with pytest.raises(InputError, match="state: expected what state_dict gave"):
        drawn(PLANS["banded"]).load_state_dict(None)


# --- what is said -----------------------------------------------------------------------------


def test_attendance_is_held_to_the_rule_of_the_design() -> None:
    attendance = drawn(PLANS["banded"]).attendance()
    assert attendance.rule == noise_plans.CLAIM.rule
    assert attendance.horizon == HORIZON


def test_a_dtype_that_has_no_bound() -> None:
    with pytest.raises(InputError, match="dtype: expected float32 or float64"):
        drawn(PLANS["fresh"]).rounding_error_bound(np.float16)


@pytest.mark.parametrize("recorded", [True, False])
def test_steps_whose_noise_was_added(recorded: bool, tmp_path: Path) -> None:
    """Drawing adds nothing. As recorded, whoever asks; without a record, of this object alone."""
    where = tmp_path / "steps.sqlite3" if recorded else False
    plan = PLANS["banded"]
    source = noise(plan, secret=SECRET, record=where)
    source.step(0, 3)
    assert source.steps == frozenset()
    for t in (1, 3, 1):
        source.add_([np.zeros(3)], t)
    assert source.steps == {1, 3}
    again = noise(plan, secret=SECRET, record=where, resume=recorded)
    assert again.steps == ({1, 3} if recorded else frozenset())


def test_the_bound_on_rounding_counts_what_the_filter_makes_larger() -> None:
    """C^-1 of ones: noise is as large as the draws of all steps together, and so is what a
    float32 takes from it as it leaves."""
    filter_ = Rows(np.tril(np.ones((HORIZON, HORIZON))))
    plan = replace(PLANS["fresh"], filter=filter_)
    source = drawn(plan)
    white = sum(abs(stream.coefficient) for stream in plan.streams) * LARGEST
    assert source.rounding_error_bound(np.float32) >= HORIZON * white * 2.0**-24
    assert source.rounding_error_bound() >= HORIZON * white * RELATIVE_ERROR


@pytest.mark.parametrize("name", ["banded", "banded-inverse", "blt"])
def test_a_step_that_was_interrupted_is_computed_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a key, say: the noise of an older step would be there in its place."""
    source, exact = drawn(PLANS[name]), drawn(PLANS[name])
    draw = source._draw

    def interrupted(stream: Any, s: int, *rest: Any) -> Any:
        if s == 3:
            raise KeyboardInterrupt
        return draw(stream, s, *rest)

    for t in (0, 1, 2):
        source.step(t, 9)
    with monkeypatch.context() as now:
        now.setattr(source, "_draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.step(3, 9)
    np.testing.assert_array_equal(source.step(3, 9), exact.step(3, 9))
