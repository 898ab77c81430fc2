"""What all adapters share, with numpy alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.adapters.run import Run
from tests.support.trainers import CLIP, node_noise, prefix_design, random_noise


def sums() -> list[np.ndarray]:
    return [np.full(3, 0.1), np.full((2, 2), 0.1, dtype=np.float32)]


def sums_of(batch: np.ndarray) -> list[np.ndarray]:
    return [array * bool(len(batch)) for array in sums()]


def test_steps_follow_one_another_and_end_with_the_horizon() -> None:
    run, noise = Run(node_noise(prefix_design()), clip=CLIP), node_noise(prefix_design())
    batches = run.batches(10)
    for t in range(run.horizon):
        assert run.step == t
        arrays = sums()
        run.add_(arrays, records=batches[t])
        np.testing.assert_array_equal(arrays[0], 0.1 + noise.step(t, 3))
    with pytest.raises(InputError, match="step: expected 0 to 11"):
        run.add_(sums(), records=[])


def test_nothing_is_added_and_the_step_stays_on_an_error() -> None:
    run = Run(node_noise(prefix_design()))
    run.add_(sums(), records=["a", "b"])
    for arrays, records in (
        (sums(), ["c", "b"]),
        ([np.full(3, 0.1), np.full((2, 2), np.nan)], ["c"]),
        ([np.full(3, 0.1), np.full(4, 0.1)], ["c"]),
        ([np.full(3, 0.1)], ["c"]),
    ):
        with pytest.raises(InputError):
            run.add_(arrays, records=records)
        assert run.step == 1
        assert (arrays[0] == 0.1).all()


def test_state_goes_through_json_and_keeps_who_took_part() -> None:
    run = Run(node_noise(prefix_design()))
    run.add_(sums(), records=["a"])
    state = json.loads(json.dumps(run.state_dict()))
    again = Run(node_noise(prefix_design()))
    again.load_state_dict(state)
    assert (again.step, again.noise.next_step) == (1, 1)
    with pytest.raises(InputError, match="record 'a' in steps 0, 1"):
        again.add_(sums(), records=["a"])
    with pytest.raises(InputError, match="shapes"):
        again.add_(sums()[:1], records=["b"])


def test_states_of_other_runs_are_refused() -> None:
    run = Run(node_noise(prefix_design()))
    for wrong in ({}, None, {**run.state_dict(), "step": -1}, {**run.state_dict(), "noise": {}}):
        with pytest.raises(InputError, match="state"):
            run.load_state_dict(wrong)
    with pytest.raises(InputError, match="state"):
        Run(node_noise(prefix_design(), 2)).load_state_dict(run.state_dict())


def test_a_step_that_is_skipped_counts_its_records() -> None:
    run = Run(node_noise(prefix_design()))
    run.skip(["a"])
    with pytest.raises(InputError, match="record 'a' in steps 0, 1"):
        run.add_(sums(), records=["a"])
    arrays = sums()
    run.add_(arrays, records=["b"])
    np.testing.assert_array_equal(arrays[0], 0.1 + node_noise(prefix_design()).step(1, 3))


def test_a_run_goes_on_where_its_record_is_and_knows_who_took_part(tmp_path: Path) -> None:
    """Without a word from a checkpoint; and noise that was added is not added to other data."""
    design, where = prefix_design(), tmp_path / "record.sqlite3"
    run = Run(node_noise(design, record=where))
    for t in range(2):
        run.add_(sums(), records=[f"{t}"])
    again = Run(node_noise(design, record=where, resume=True))
    assert again.step == 2
    for name in ("0", "1"):
        with pytest.raises(InputError, match=f"record '{name}' in steps {name}, 2"):
            again.add_(sums(), records=[name])
    arrays = sums()
    again.add_(arrays, records=["2"])
    np.testing.assert_array_equal(arrays[0], 0.1 + node_noise(design).step(2, 3))


def test_going_on_from_an_older_checkpoint(tmp_path: Path) -> None:
    """Either with the same sums, which get the same noise, or after all steps that were used."""
    design, where = prefix_design(), tmp_path / "record.sqlite3"
    run, state, kept = Run(node_noise(design, record=where)), {}, []
    for t in range(5):
        if t == 3:
            state = json.loads(json.dumps(run.state_dict()))
        kept.append(sums())
        run.add_(kept[t], records=[t])
    again = Run(node_noise(design, record=where, resume=True))
    again.load_state_dict(state)
    assert again.step == 3
    arrays = sums()
    again.add_(arrays, records=[3])
    np.testing.assert_array_equal(arrays[0], kept[3][0])
    with pytest.raises(InputError, match="step: expected .* other data at step 4"):
        again.add_([array / 2 for array in sums()], records=[4])
    assert again.skip_used() == range(4, 5)
    assert (again.step, again.skip_used()) == (5, range(5, 5))
    with pytest.raises(InputError, match="record 4 in steps 4, 5"):
        again.add_(sums(), records=[4])
    arrays = sums()
    again.add_(arrays, records=[5])
    np.testing.assert_array_equal(arrays[0], 0.1 + node_noise(design).step(5, 3))
    unkept = Run(node_noise(design))
    unkept.load_state_dict(state)
    assert unkept.skip_used() == range(3, 3)  # nobody knows of more


def test_plans_and_clips_that_are_not_for_this_trainer_are_refused() -> None:
    design = prefix_design()
    with pytest.raises(InputError, match="clip: expected 0.5"):
        Run(node_noise(design), clip=0.25)
    divided = node_noise(design.node_plan(0, batch_size=7), batch_size=7)
    with pytest.raises(InputError, match="batch_size: expected a plan for sums"):
        Run(divided)
    assert Run(divided, divided=True).clip == CLIP
    plan = design.node_plan(0)
    for missing in ("clip", "rule"):
        bare = replace(plan, claim=replace(plan.claim, **{missing: None}))
        with pytest.raises(InputError, match="noise: expected noise of a design with a clip"):
            Run(node_noise(bare))
    with pytest.raises(InputError, match="noise: expected a NodeNoise"):
        Run(design)  # type: ignore[arg-type]


# --- random participation -------------------------------------------------------------------------


def test_batches_are_drawn_from_the_secret_and_no_others_are_taken() -> None:
    run, noise = Run(random_noise(), clip=CLIP), random_noise()
    batches = run.batches(9)
    assert [batch.tolist() for batch in batches] == [b.tolist() for b in noise.batches(9)]
    assert not all(len(batch) for batch in batches)  # noise is added to nothing, too
    for t in range(run.horizon):
        arrays = sums_of(batches[t])
        for other in (batches[t][1:], [*batches[t], 9], batches[t + 1 if t % 6 < 5 else t - 1]):
            if set(other) != set(batches[t]):
                with pytest.raises(InputError, match=f"records: .*drawn for step {t}"):
                    run.add_(arrays, records=other)
        before = arrays[0].copy()
        run.add_(arrays, records=batches[t])
        np.testing.assert_array_equal(arrays[0], before + noise.step(t, 3))


def test_a_run_without_its_own_batches_is_refused() -> None:
    run = Run(random_noise())
    with pytest.raises(InputError, match="batches: expected the batches of this node, drawn"):
        run.add_(sums(), records=[0])
    assert run.step == 0


def test_nobody_chooses_what_is_drawn() -> None:
    run = Run(random_noise())
    for seed in (0, 7):
        with pytest.raises(InputError, match="seed: expected none: batches are drawn from the"):
            run.batches(9, seed=seed)
    for size in (1, 2):  # the mean is 1.5
        assert run.batches(9, batch_size=size).expected_size == 1.5
    with pytest.raises(InputError, match=r"batch_size: expected 1\.5, rounded"):
        run.batches(9, batch_size=3)
    with pytest.raises(InputError, match="records: expected 9 records, as before, got 8"):
        run.batches(8)
    with pytest.raises(InputError, match="participation: expected one in which the server may"):
        Run(random_noise(), chooser="the server")


def test_a_checkpoint_goes_on_with_the_same_batches_and_tells_of_none() -> None:
    run = Run(random_noise())
    batches = run.batches(9)
    for t in range(4):
        run.add_(sums_of(batches[t]), records=batches[t])
    text = json.dumps(run.state_dict())
    told = json.loads(text)
    assert told["attendance"] == {}
    again = Run(random_noise())
    again.load_state_dict(told)
    with pytest.raises(InputError, match="records: expected 9 records, as before"):
        again.batches(10)
    assert [b.tolist() for b in again.batches(9)] == [b.tolist() for b in batches]
    again.add_(sums_of(batches[4]), records=batches[4])
    assert again.step == 5
