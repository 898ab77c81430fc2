"""Records take part as the design says: against the participation's own list of patterns."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.noise import Attendance, RandomBatches, Rule, Secret
from noisedesign.system.participation import (
    BallsInBins,
    FixedEpoch,
    MinSeparation,
    Participation,
    Patterns,
)
from tests.support.trainers import random_plan

SCHEMES = [
    FixedEpoch(epochs=3, separation=2),
    FixedEpoch(epochs=1, separation=6),
    FixedEpoch(epochs=6, separation=1),
    MinSeparation(horizon=6, separation=2, max_participations=2),
    MinSeparation(horizon=6, separation=3, max_participations=2),
    MinSeparation(horizon=6, separation=1, max_participations=4),
    MinSeparation(horizon=6, separation=2, max_participations=3),
    Patterns(horizon=6, steps=[[0, 1], [2, 5], [1, 3, 4]]),
]


def fits(scheme: Participation, steps: tuple[int, ...]) -> bool:
    """By enumeration."""
    return any(set(steps) <= set(pattern) for pattern in scheme.maximal_patterns())


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_rule_allows_what_the_participation_does(scheme: Participation) -> None:
    for size in range(1, 7):
        for steps in itertools.combinations(range(6), size):
            assert (scheme.rule.broken(steps) == "") == fits(scheme, steps), steps


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_record_is_in_batches_until_the_rule_is_broken(scheme: Participation) -> None:
    for steps in itertools.permutations(range(6), 3):
        attendance, taken = Attendance(scheme.rule, horizon=6), ()
        for t in steps:
            after = tuple(sorted((*taken, t)))
            if fits(scheme, after):
                attendance.check(["one"], t)
                taken = after
            else:
                with pytest.raises(InputError, match="records: expected every record"):
                    attendance.check(["one"], t)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_rule_comes_back_from_json(scheme: Participation) -> None:
    from dataclasses import asdict

    assert Rule.of_json(json.loads(json.dumps(asdict(scheme.rule)))) == scheme.rule


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"most": 0, "min_sep": 1, "residue": None, "patterns": None},
        {"most": 1, "min_sep": None, "residue": None, "patterns": None},
        {"most": 1, "min_sep": 1, "residue": -1, "patterns": None},
        {"most": 1, "min_sep": 1, "residue": None, "patterns": 5},
        {"most": 1, "min_sep": 1, "residue": None, "patterns": [["one"]]},
        {"most": 1, "min_sep": 1, "residue": None, "patterns": None, "more": 1},
    ],
)
def test_no_rules(said: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Rule.of_json(said)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((0, 2, 4, 6), "4 times, where the design is for 3"),
        ((0, 1), "in steps 0, 1, less than 2 apart"),
        ((0, 3), "in steps 0, 3, not a multiple of 2 apart"),
        ((4, 4), "twice in step 4"),
    ],
)
def test_what_is_broken_in_words(steps: tuple[int, ...], said: str) -> None:
    assert Rule(most=3, min_sep=2, residue=2).broken(steps) == said


def test_long_lists_of_steps_are_not_shown_whole() -> None:
    rule = Rule(most=9, min_sep=2)
    assert rule.broken((0, 2, 4, 6, 8, 9)) == "in steps 0, ..., 9, less than 2 apart"


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    attendance = Attendance(Rule(most=1), horizon=4)
    attendance.check([1, 2], 0)
    with pytest.raises(InputError, match="got record 2 2 times, where the design is for 1. Batch"):
        attendance.check([3, 2], 1)
    attendance.check([3, 4], 2)  # record 3 was in no step
    assert [attendance.number(t) for t in range(3)] == [2, None, 2]
    assert attendance.told == {0, 2}


def test_records_are_numbers_and_words_that_are_the_same_in_every_process() -> None:
    """An object that is told apart by its place in memory is another one after a restart."""
    attendance = Attendance(Rule(most=1), horizon=4)
    attendance.check([7, "7", b"7", 7.5, ("7", 7)], 0)
    for same in (np.int8(7), 7.0, np.float32(7), "7", b"7", 7.5, ("7", np.int64(7))):
        with pytest.raises(InputError, match="2 times, where the design is for 1"):
            attendance.check([same], 1)
    for other in (object(), None, frozenset({7}), {}, (7, object()), np.ones(2)):
        with pytest.raises(InputError, match="records: expected a number or a word"):
            attendance.check([other], 1)


def test_steps_are_compared_with_all_others() -> None:
    """The new one is the last, and an earlier pair is too close."""
    rule = Rule(most=3, min_sep=2)
    assert rule.broken((0, 1, 5)) == "in steps 0, 1, 5, less than 2 apart"
    assert rule.broken((0, 2, 5)) == ""


def test_batches_of_another_horizon_are_those_of_another_design() -> None:
    """Of the same rule: most, distance and how steps are drawn."""
    scheme = BallsInBins(epochs=2, separation=3)
    plan = random_plan(scheme)
    longer = RandomBatches(replace(plan, horizon=9), records=6, secret=Secret(bytes(range(32))))
    assert longer.rule == scheme.rule
    with pytest.raises(InputError, match="batches: .* got those of another design"):
        Attendance(scheme.rule, horizon=6, batches=longer)


def test_a_step_again_is_the_same_step() -> None:
    attendance = Attendance(Rule(most=2), horizon=4)
    for _ in range(3):
        attendance.check([1, 2], 1)
    attendance.check([1], 0)
    with pytest.raises(InputError, match="3 times"):
        attendance.check([1], 2)


def test_a_record_twice_in_one_batch() -> None:
    attendance = Attendance(Rule(most=4), horizon=4)
    with pytest.raises(InputError, match="got record 7 twice in the batch of step 1"):
        attendance.check([7, 8, 7], 1)
    with pytest.raises(InputError, match="twice in the batch"):
        attendance.check([np.int64(7), 7], 1)


def test_records_of_numpy_are_those_of_python() -> None:
    attendance = Attendance(Rule(most=1), horizon=4)
    attendance.check(np.array([1, 2]), 0)
    with pytest.raises(InputError, match="record 2 2 times"):
        attendance.check([2], 1)
    attendance.check(("2", ("a", 3)), 1)


@pytest.mark.parametrize("records", [[[1]], [{}], np.ones((2, 2)), 5, "names", None])
def test_no_records(records: Any) -> None:
    with pytest.raises(InputError, match=r"^records: expected"):
        Attendance(Rule(most=4), horizon=4).check(records, 0)


@pytest.mark.parametrize("step", [4, -1, 0.5, "1"])
def test_steps_outside_the_horizon(step: Any) -> None:
    with pytest.raises(InputError, match=r"^step: expected"):
        Attendance(Rule(most=4), horizon=4).check([1], step)


def test_attendance_goes_on_after_a_checkpoint() -> None:
    first = Attendance(Rule(most=2, min_sep=2), horizon=8)
    first.check([1, "b"], 0)
    first.check(["b"], 2)
    second = Attendance(first.rule, horizon=8)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    with pytest.raises(InputError, match="record 'b' 3 times"):
        second.check(["b"], 4)
    with pytest.raises(InputError, match="record 1 in steps 0, 1, less than 2 apart"):
        second.check([1], 1)
    second.check([1], 2)


@pytest.mark.parametrize(
    "state", [{}, None, {"steps": 3}, {"steps": [[1]]}, {"steps": [[1, ["x"]]]}]
)
def test_no_states(state: Any) -> None:
    with pytest.raises(InputError, match=r"^state: expected what Attendance.state_dict gave"):
        Attendance(Rule(most=1), horizon=2).load_state_dict(state)
