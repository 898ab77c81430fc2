"""Batches that come round as the design says."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import Attendance, Batches, Rule
from noisedesign.system.participation import FixedEpoch, MinSeparation, Patterns

EPOCHS = FixedEpoch(epochs=3, separation=4)
FREE = MinSeparation(horizon=14, separation=3, max_participations=4)


@pytest.mark.parametrize(("scheme", "round_"), [(EPOCHS, 4), (FREE, 4)])
def test_every_record_takes_part_as_designed(
    scheme: FixedEpoch | MinSeparation, round_: int
) -> None:
    """FREE: ceil(14 / 4) = 4 batches, so that nobody is in more than four steps."""
    batches = Batches(scheme.rule, horizon=scheme.horizon, records=10)
    assert len(batches) == scheme.horizon
    attendance = Attendance(scheme.rule, horizon=scheme.horizon)
    for t, batch in enumerate(batches):
        attendance.check(batch, t)
        np.testing.assert_array_equal(batch, batches[t % round_])
    first = np.concatenate([batches[t] for t in range(round_)])
    assert sorted(first.tolist()) == list(range(10))
    assert {len(batches[t]) for t in range(round_)} == {2, 3}


def test_order_is_a_shuffle_that_the_seed_says() -> None:
    def first(seed: int) -> list[int]:
        return Batches(EPOCHS.rule, horizon=12, records=1000, seed=seed)[0].tolist()

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert first(0) != list(range(250))


@pytest.mark.parametrize("size", [25, 26, 33])
def test_batch_sizes_that_make_as_many_batches_as_designed(size: int) -> None:
    batches = Batches(EPOCHS.rule, horizon=12, records=100, batch_size=size)
    assert [len(batches[t]) for t in range(4)] == [25] * 4


def test_batches_that_come_round_too_soon_or_out_of_step_are_refused() -> None:
    with pytest.raises(InputError, match="4 batches a round.*got 3: a record takes part"):
        Batches(EPOCHS.rule, horizon=12, records=100, batch_size=34)
    with pytest.raises(InputError, match="got 5: .*not a multiple of 4 apart"):
        Batches(EPOCHS.rule, horizon=12, records=100, batch_size=20)
    # Where the order is free, more batches bring nobody back too soon.
    assert Batches(FREE.rule, horizon=14, records=100, batch_size=20).round == 5
    with pytest.raises(InputError, match="got 3: a record takes part 5 times"):
        Batches(FREE.rule, horizon=14, records=100, batch_size=34)


def test_listed_patterns_are_held_to() -> None:
    scheme = Patterns(horizon=4, steps=((0, 2), (1, 3)))
    assert Batches(scheme.rule, horizon=4, records=8, batch_size=4).round == 2
    with pytest.raises(InputError, match="in no pattern"):
        Batches(Patterns(horizon=4, steps=((0, 2), (1,))).rule, horizon=4, records=8, batch_size=4)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="records: expected at least 4"):
        Batches(EPOCHS.rule, horizon=12, records=3)
    with pytest.raises(InputError, match="batch_size"):
        Batches(EPOCHS.rule, horizon=12, records=3, batch_size=0)
    batches = Batches(Rule(most=1), horizon=3, records=5)
    assert [len(b) for b in batches] == [2, 2, 1]
    for outside, words in ((-1, "an integer >= 0"), (3, "0 to 2")):
        with pytest.raises(InputError, match=f"step: expected {words}"):
            batches[outside]
