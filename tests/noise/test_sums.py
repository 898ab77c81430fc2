"""Noise hides sums of clipped gradients, and what cannot be one gets none: the norm of a sum of n
gradients of norm c is at most n c (the triangle inequality), divided as the plan says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.adapters.run import Run
from noisedesign.base.checks import InputError
from noisedesign.noise import Plan, Secret, integer_noise, noise
from noisedesign.noise.filters import Fresh
from noisedesign.noise.hidden import HashKeys, hidden
from noisedesign.noise.source import BLOCK, OVER_CLIP
from noisedesign.system.participation import BallsInBins
from tests.support import lattice_plans, noise_plans
from tests.support.trainers import random_plan

CLIP = 0.5
FRESH = noise_plans.plans()["fresh"]
DIVIDED = replace(FRESH, claim=replace(FRESH.claim, batch_size=8))
RANDOM = random_plan(BallsInBins(epochs=2, separation=3))
"""Its clip is 0.5, too."""


def source(plan: Plan = FRESH) -> Any:
    size = plan.claim.batch_size
    return noise(plan, secret=Secret(bytes(range(32))), batch_size=size, record=False)


def by_itself(given: Any, plan: Plan = FRESH) -> Callable[[list[Any]], None]:
    return lambda sums: source(plan).add_(sums, 0, records=given)


def told(sums: list[Any]) -> None:
    made = source()
    made.attendance().check(["ann", "bob"], 0)
    made.attendance().check(["eve"], 0)
    made.add_(sums, 0)


def drawn(sums: list[Any]) -> None:
    made = source(RANDOM)
    batches = made.batches(30)
    assert len(batches[0]) == 9
    made.add_(sums, 0)


def run(sums: list[Any]) -> None:
    Run(source(), clip=CLIP).add_(sums, records=["ann", "bob"])


def divided_run(sums: list[Any]) -> None:
    Run(source(DIVIDED), divided=True).add_(sums, records=range(12))


WAYS = {
    "nobody says": (by_itself(None), 1.0, "1 record clipped to 0.5, got norm"),
    "a number": (by_itself(3), 3.0, "3 records clipped to 0.5, got"),
    "names": (by_itself(["ann", "bob"]), 2.0, "2 records clipped to 0.5, got"),
    "nobody is there": (by_itself([]), 0.0, "0 records clipped to 0.5, got"),
    "none of them": (by_itself(0), 0.0, "0 records clipped to 0.5, got"),
    "attendance": (told, 3.0, "3 records clipped to 0.5, got"),
    "batches drawn": (drawn, 9.0, "9 records clipped to 0.5, got"),
    "a batch size": (by_itself(None, DIVIDED), 1.0, "8 records clipped to 0.5 and divided by 8"),
    "more than a batch size": (by_itself(range(12), DIVIDED), 1.5, "12 records .* divided by 8"),
    "an adapter": (run, 2.0, "2 records clipped to 0.5, got"),
    "an adapter that divides": (divided_run, 1.5, "12 records .* divided by 8"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_sum_is_as_long_as_its_records_allow(way: str) -> None:
    """Just within what rounding explains it gets noise, just past it none; over all arrays."""
    add, clips, said = WAYS[way]
    longest = clips * CLIP
    add([np.array([0.6 * longest]), np.array([[0.0], [0.8 * longest]], dtype=np.float32)])
    over = max(longest * (1 + 1.01 * OVER_CLIP), 1e-30)
    sums = [np.array([0.6 * over]), np.array([[0.0], [0.8 * over]])]
    before = [array.copy() for array in sums]
    with pytest.raises(InputError, match=f"^parameters: .* norm at most {longest:g}, of {said}"):
        add(sums)
    for array, old in zip(sums, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_what_is_forgotten_is_refused() -> None:
    """Two records of norm 5.5e6; the sum of nobody; a loss scaler of 2^16; a sum that is not
    divided; updates that are multiplied by 100 after they were clipped."""
    one = np.array([0.3, -0.4])  # of norm 0.5
    for add, sums in (
        (by_itself([0, 1]), np.array([5.5e6, 0.0])),
        (by_itself([]), one),
        (by_itself([0]), one * 2.0**16),
        (by_itself(range(8), DIVIDED), 8 * one),
        (by_itself([0, 1]), 200 * one),
    ):
        with pytest.raises(InputError, match="parameters: expected a sum of norm at most"):
            add([sums])
    by_itself(range(8), DIVIDED)([one])


def test_both_numbers_and_what_to_do_are_said() -> None:
    with pytest.raises(InputError) as caught:
        source(DIVIDED).add_([np.array([3.0, 4.0])], 0)
    assert str(caught.value) == (
        "parameters: expected a sum of norm at most 0.5, of 8 records clipped to 0.5 and divided "
        "by 8, got norm 5. Say who is in the sum, records=[...], or how many, records=n. Clip the "
        "gradient of every record to 0.5, and scale nothing after. Divide the sum by 8 before "
        "noise is added."
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    records=st.integers(1, 400),
    size=st.sampled_from([1, 2, 33, 5000]),
    alike=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_sums_of_clipped_gradients_always_get_noise(
    seed: int, records: int, size: int, alike: bool, dtype: type
) -> None:
    """As a trainer clips and sums them, all of it in float32: also of one direction, where the
    bound is reached."""
    rng = np.random.default_rng(seed)
    total = np.zeros(size, dtype=dtype)
    one = rng.normal(size=size).astype(dtype)
    for _ in range(records):
        gradient = one if alike else rng.normal(size=size).astype(dtype)
        total += gradient * dtype(CLIP / np.linalg.norm(gradient))
    source().add_([total], 0, records=records)


def test_norms_are_those_of_exact_sums() -> None:
    """In blocks, over arrays of both precisions, where squares overflow or vanish."""
    rng, keys = np.random.default_rng(0), HashKeys(bytes(32), bytes(32))
    arrays = [rng.normal(size=2 * BLOCK + 3), rng.normal(size=7).astype(np.float32)]
    exact = math.sqrt(math.fsum(float(x) ** 2 for array in arrays for x in array))
    assert hidden(arrays, keys=keys).norm == pytest.approx(exact, rel=1e-13)
    for scale in (1e300, 1e-300):
        found = hidden([arrays[0] * scale], keys=keys).norm / scale
        assert found == pytest.approx(hidden(arrays[:1], keys=keys).norm, rel=1e-13)
    assert hidden([np.zeros(0), np.zeros((3, 0))], keys=keys).norm == 0
    with pytest.raises(InputError, match=r"got norm 1\.41421e\+300"):
        source().add_([np.full(2, 1e300)], 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sums_that_are_not_finite_get_no_noise(bad: float) -> None:
    with pytest.raises(InputError, match=r"parameters\[0\]: expected finite numbers"):
        source().add_([np.array([0.0, bad])], 0, records=10**6)
    with pytest.raises(InputError, match="norm: expected a finite number"):
        source().check_sum(bad, records=10**6)


@pytest.mark.parametrize("missing", ["clip", "rule"])
def test_a_plan_without_a_clip_or_a_participation_says_nothing_of_sums(missing: str) -> None:
    bare = replace(FRESH, claim=replace(FRESH.claim, **{missing: None}))
    with pytest.raises(InputError, match=f"plan.claim.{missing}: expected .* got none. State eps"):
        source(bare).add_([np.zeros(3)], 0)


def test_of_two_numbers_the_lesser_counts() -> None:
    """At most so many are in the sum: those told of, or drawn, and those that are stated."""
    for made, present in ((source(), 3), (source(RANDOM), 9)):
        if present == 3:
            made.attendance().check(["ann", "bob", "eve"], 0)
        else:
            made.batches(30)
        for stated in (2, 100):
            count = min(stated, present)
            with pytest.raises(InputError, match=f"of {count} records clipped"):
                made.add_([np.array([1.01 * count * CLIP])], 0, records=stated)


def test_numbers_of_records_that_are_none() -> None:
    for wrong in (-1, True, 1.5, "ann", {"ann"}, np.float32(2)):
        with pytest.raises(InputError, match="^records: expected"):
            source().add_([np.zeros(3)], 0, records=wrong)


def test_names_hold_records_to_the_participation() -> None:
    rule = replace(FRESH.claim.rule, most=2, min_sep=3)
    made = source(replace(FRESH, claim=replace(FRESH.claim, rule=rule)))
    made.add_([np.zeros(3)], 0, records=[7, 8])
    with pytest.raises(InputError, match="record 7 in steps 0, 2, less than 3 apart"):
        made.add_([np.zeros(3)], 2, records=[7])
    made.add_([np.zeros(3)], 3, records=[7])
    with pytest.raises(InputError, match="record 8 in steps 0, 1"):
        made.attendance().check([8], 1)
    drawn_ = source(RANDOM)
    drawn_.batches(30)
    with pytest.raises(InputError, match="records: expected the records drawn for step 0"):
        drawn_.add_([np.zeros(3)], 0, records=range(3))


def test_integers_of_a_sum_are_of_no_larger_norm() -> None:
    """A sum in integers, over its arrays, in units of the gradients: 3 records of clip 1."""
    made = integer_noise(
        lattice_plans.plan_with(Fresh()), secret=Secret(bytes(range(32))), record=False
    )
    clip, unit = made.claim.clip, 1 / made.grid
    for factor in (1.0, 1 + 1.01 * OVER_CLIP):
        size = factor * 3 * clip * unit
        sums = [np.array([round(0.6 * size)]), np.array([[0, -round(0.8 * size)]])]
        if factor == 1:
            made.release(sums, 0, records=3)
            continue
        with pytest.raises(InputError, match=f"^gradients: .* at most {3 * clip:g}, of 3 records"):
            made.release(sums, 1, records=3)
    with pytest.raises(InputError, match="of 1 record clipped"):
        made.release(sums, 1)
    rows = np.repeat([[0.6 * clip, 0.0, 0.8 * clip]], 5, axis=0)
    made.release([rows], 1)  # rows are records
    with pytest.raises(InputError, match="of 2 records clipped"):
        made.release([rows], 2, records=2)
