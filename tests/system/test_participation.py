"""Participation schemes: their patterns, listed and counted, and nothing but those."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.noise.rules import heaviest_sums
from noisedesign.system.participation import (
    SCHEMES,
    FixedEpoch,
    MinSeparation,
    Participation,
    Patterns,
    every_step,
    participation_of,
    single,
)
from tests.support import oracles


def min_separation(horizon: int, separation: int, most: int) -> MinSeparation:
    return MinSeparation(horizon=horizon, separation=separation, max_participations=most)


# --- fixed epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "separation"), [(1, 1), (1, 6), (6, 1), (2, 3), (3, 2), (4, 5)])
def test_patterns_are_the_residue_classes(epochs: int, separation: int) -> None:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    assert scheme.patterns.tolist() == oracles.fixed_epoch_patterns(epochs, separation)
    assert scheme.horizon == epochs * separation


def test_single_and_every_step_are_the_two_ends() -> None:
    assert single(6).patterns.tolist() == [[t] for t in range(6)]
    assert every_step(6).patterns.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert single(6).horizon == every_step(6).horizon == 6


# --- min separation -------------------------------------------------------------------------------


def maximal_by_hand(horizon: int, separation: int, most: int) -> list[tuple[int, ...]]:
    """Of all patterns those that are not part of another one."""
    patterns = {frozenset(p) for p in oracles.min_separation_patterns(horizon, separation, most)}
    return sorted(tuple(sorted(p)) for p in patterns if not any(p < q for q in patterns))


def test_five_steps_two_apart_by_hand() -> None:
    scheme = min_separation(5, 2, 2)
    # 0 has three partners, 1 two and 2 one; none of them is a pattern that cannot be extended.
    assert list(scheme.maximal_patterns()) == [(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)]
    assert scheme.count() == 6
    # With a third participation 0 2 4 swallows three pairs; 0 3 and 1 3 and 1 4 stay.
    assert list(min_separation(5, 2, 3).maximal_patterns()) == [(0, 2, 4), (0, 3), (1, 3), (1, 4)]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(horizon=st.integers(1, 9), separation=st.integers(1, 11), most=st.integers(1, 11))
def test_maximal_patterns_are_those_in_no_other(horizon: int, separation: int, most: int) -> None:
    scheme = min_separation(horizon, separation, most)
    expected = maximal_by_hand(horizon, separation, most)
    assert list(scheme.maximal_patterns()) == expected
    assert scheme.count() == len(expected)
    assert scheme.largest_size == max(len(p) for p in expected)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(horizon=st.integers(1, 40), separation=st.integers(5, 20), most=st.integers(1, 9))
def test_the_count_is_that_of_the_list(horizon: int, separation: int, most: int) -> None:
    scheme = min_separation(horizon, separation, most)
    listed = list(scheme.maximal_patterns())
    assert scheme.count() == len(listed) == len(set(listed))


def test_the_two_ends_of_min_separation() -> None:
    assert list(min_separation(7, 1, 7).maximal_patterns()) == [tuple(range(7))]
    assert list(min_separation(4, 1, 1).maximal_patterns()) == [(t,) for t in range(4)]
    assert list(min_separation(4, 9, 3).maximal_patterns()) == [(t,) for t in range(4)]


def test_patterns_beyond_number_are_made_one_at_a_time() -> None:
    scheme = min_separation(10_000, 10, 500)
    first, second = itertools.islice(scheme.maximal_patterns(), 2)
    assert first == tuple(range(0, 5000, 10))
    assert second == (*range(0, 4990, 10), 4991)


def test_a_count_of_many_by_hand() -> None:
    # Triples 100 or more apart, and pairs with no room before, between or after them.
    triples = sum(300 - (b + 100) for a in range(100) for b in range(a + 100, 200))
    pairs = sum(1 for a in range(100) for c in range(200, 300) if c - a < 200)
    assert min_separation(300, 100, 3).count() == triples + pairs


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    horizon=st.integers(1, 9),
    separation=st.integers(1, 10),
    most=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_the_heaviest_pattern_is_found(horizon: int, separation: int, most: int, seed: int) -> None:
    weights = np.random.default_rng(seed).exponential(size=horizon)
    patterns = oracles.min_separation_patterns(horizon, separation, most)
    expected = max(sum(weights[t] for t in p) for p in patterns)
    found = min_separation(horizon, separation, most).heaviest(weights)
    assert found == pytest.approx(expected, rel=1e-14)


def test_heaviest_sums_by_hand() -> None:
    rows = np.array([[5.0, 6.0, 5.0, 1.0], [1.0, 1.0, 1.0, 9.0]])
    found = heaviest_sums(rows, separation=2, counts=3)
    # Row 0: 6, then 5 + 5; no third. Row 1: 9, then 1 + 9.
    assert found.tolist() == [[0, 0], [6, 9], [10, 10], [10, 10]]
    assert heaviest_sums(np.zeros((2, 0)), separation=2, counts=1).tolist() == [[0, 0], [0, 0]]


# --- patterns of one's own ------------------------------------------------------------------------


def test_patterns_are_kept_in_ascending_order() -> None:
    rows: Any = [[3, 0], np.array([2]), (1, 2)]
    scheme = Patterns(horizon=4, steps=rows)
    assert scheme.steps == ((0, 3), (2,), (1, 2))
    assert all(type(step) is int for pattern in scheme.steps for step in pattern)
    assert scheme == Patterns(horizon=4, steps=((0, 3), (2,), (1, 2)))
    assert hash(scheme) == hash(Patterns(horizon=4, steps=((0, 3), (2,), (1, 2))))


@pytest.mark.parametrize(
    ("steps", "expected", "got"),
    [
        (((0, 4),), r"steps 0 to 3 \(horizon 4", "step 4 in pattern 0"),
        (((0,), (-1, 2)), r"steps 0 to 3", "step -1 in pattern 1"),
        ((), "at least one pattern", "empty list"),
        (((0,), ()), "at least one step", "none in pattern 1"),
        (((2, 0, 2),), "every step once", "step 2 twice in pattern 0"),
        (((0, 1.0),), "integer steps", "1.0"),
        (((True,),), "integer steps", "True"),
        ((0, 1), "pattern 0 to be a list", "0"),
        (("01",), "pattern 0 to be a list", "01"),
        (3, "a list of patterns", "3"),
    ],
)
def test_a_list_that_is_no_list_of_patterns(steps: Any, expected: str, got: str) -> None:
    with pytest.raises(InputError, match=f"(?s)expected.*{expected}.*got.*{got}") as error:
        Patterns(horizon=4, steps=steps)
    assert error.value.field == "participation.patterns"


# --- errors and names -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "2", None])
@pytest.mark.parametrize("field", ["horizon", "separation", "max_participations"])
def test_min_separation_takes_positive_integers(field: str, bad: Any) -> None:
    arguments: dict[str, Any] = {"horizon": 5, "separation": 2, "max_participations": 2}
    with pytest.raises(InputError) as error:
        MinSeparation(**(arguments | {field: bad}))
    assert error.value.field == f"participation.{field}"


@pytest.mark.parametrize("bad", [0, 2.0, False])
def test_horizons_are_positive_integers(bad: Any) -> None:
    for build in (single, every_step):
        with pytest.raises(InputError, match="horizon"):
            build(bad)
    with pytest.raises(InputError, match="participation.horizon"):
        Patterns(horizon=bad, steps=((0,),))


def test_schemes_say_what_they_are() -> None:
    assert str(FixedEpoch(epochs=2, separation=3)) == "(k, b) = (2, 3)"
    assert str(min_separation(12, 4, 3)) == (
        "at most 3 participations, at least 4 steps apart, in 12 steps"
    )
    assert str(Patterns(horizon=4, steps=((0, 1), (2,)))) == "2 patterns in 4 steps"
    assert str(Patterns(horizon=4, steps=((0, 1),))) == "1 pattern in 4 steps"


# --- (records, batch size, epochs) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "batch_size", "epochs", "b"),
    [
        (100, 10, 5, 10),
        (101, 10, 5, 11),
        (109, 10, 1, 11),
        (7, 7, 3, 1),
        (7, 1, 3, 7),
        (7, 4, 3, 2),
        (np.int64(60_000), 500, 20, 120),
    ],
)
def test_a_record_takes_part_once_an_epoch(
    records: int, batch_size: int, epochs: int, b: int
) -> None:
    scheme = nd.participation.FixedEpoch.from_records(
        records=records, batch_size=batch_size, epochs=epochs
    )
    assert scheme == nd.participation.FixedEpoch(epochs=epochs, separation=b)
    if records < 1000:  # the run itself: who is in the batch of which step
        steps: dict[int, list[int]] = {record: [] for record in range(records)}
        step = 0
        for _ in range(epochs):
            for start in range(0, records, batch_size):
                for record in range(start, min(start + batch_size, records)):
                    steps[record].append(step)
                step += 1
        assert step == scheme.horizon
        assert {tuple(found) for found in steps.values()} == set(map(tuple, scheme.patterns))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"records": 0}, "records"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": 2.0}, "epochs"),
        ({"batch_size": 11}, "batch_size"),
        ({"records": "10"}, "records"),
    ],
)
def test_what_is_no_run(change: dict[str, Any], field: str) -> None:
    with pytest.raises(nd.InputError) as error:
        nd.participation.FixedEpoch.from_records(
            **{"records": 10, "batch_size": 5, "epochs": 2} | change
        )
    assert error.value.field == field


# --- the first steps ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme",
    [
        FixedEpoch(epochs=3, separation=3),
        FixedEpoch(epochs=1, separation=5),
        FixedEpoch(epochs=4, separation=1),
        MinSeparation(horizon=8, separation=3, max_participations=2),
        Patterns(horizon=6, steps=((0, 4), (1, 2, 5), (4, 5))),
    ],
    ids=str,
)
def test_a_scheme_until_a_step_has_what_its_patterns_have_there(scheme: Participation) -> None:
    """Every pattern cut, and what extends no other of them, by sets."""
    for steps in range(1, scheme.horizon + 1):
        cut = {frozenset(t for t in p if t < steps) for p in scheme.maximal_patterns()}
        found = scheme.until(steps)
        assert found.horizon == steps
        largest = {p for p in cut if p and not any(p < other for other in cut)}
        listed = {frozenset(p) for p in found.maximal_patterns()}
        assert largest == {p for p in listed if not any(p < other for other in listed)}
    assert isinstance(scheme.until(scheme.horizon), type(scheme))


def test_a_scheme_of_its_rule() -> None:
    for scheme in (
        FixedEpoch(epochs=3, separation=3),
        MinSeparation(horizon=8, separation=3, max_participations=2),
        Patterns(horizon=6, steps=((0, 4), (1, 2, 5))),
    ):
        assert participation_of(scheme.rule, scheme.horizon) == scheme


# --- from the records of a run --------------------------------------------------------------------

FROM_RECORDS: list[tuple[Participation, Participation]] = [
    # By hand: 1000 records in batches of 300 are 4 steps an epoch, 20 in all.
    (
        nd.participation.MinSeparation.from_records(records=1000, batch_size=300, epochs=5),
        nd.participation.MinSeparation(horizon=20, separation=4, max_participations=5),
    ),
    (
        nd.participation.BallsInBins.from_records(records=1000, batch_size=300, epochs=5),
        nd.participation.BallsInBins(epochs=5, separation=4),
    ),
    (
        nd.participation.RandomAllocation.from_records(records=1000, batch_size=300, epochs=5),
        nd.participation.RandomAllocation(horizon=20, participations=5),
    ),
    # All are one group: 20 turns, in each of which 300 of 1000 are expected.
    (
        nd.participation.CyclicPoisson.from_records(records=1000, batch_size=300, epochs=5),
        nd.participation.CyclicPoisson(epochs=20, separation=1, rate=0.3),
    ),
    # Two groups of 500, each of 10 turns; 300 of 500 are expected.
    (
        nd.participation.CyclicPoisson.from_records(
            records=1000, batch_size=300, epochs=5, separation=2
        ),
        nd.participation.CyclicPoisson(epochs=10, separation=2, rate=0.6),
    ),
    # Of 1001 records the larger of two groups has 501.
    (
        nd.participation.TruncatedPoisson.from_records(
            records=1001, batch_size=143, epochs=2, separation=2, batch_size_limit=200
        ),
        nd.participation.TruncatedPoisson(
            epochs=7, separation=2, rate=2 / 7, batch_size_limit=200, group_size=501
        ),
    ),
    # Of 1000 records 300 took part in the step before and are held back: 300 of 700 take part.
    (
        nd.participation.BMinSepSampling.from_records(
            records=1000, batch_size=300, epochs=5, separation=2, warm_start=False
        ),
        nd.participation.BMinSepSampling(horizon=20, separation=2, rate=3 / 7, warm_start=False),
    ),
    (
        nd.participation.BMinSepSampling.from_records(
            records=12, batch_size=4, epochs=1, separation=3
        ),
        nd.participation.BMinSepSampling(horizon=3, separation=3, rate=1.0),
    ),
]


@pytest.mark.parametrize(("made", "expected"), FROM_RECORDS)
def test_schemes_of_a_run(made: Participation, expected: Participation) -> None:
    assert type(made) is type(expected)
    for key, value in expected.entry().items():
        assert made.entry()[key] == pytest.approx(value, rel=1e-12)


def test_patterns_are_not_made_from_records() -> None:
    assert [k for k, s in SCHEMES.items() if not hasattr(s, "from_records")] == ["patterns"]
    assert "from_records" in str(nd.participation.Patterns.__doc__)


def test_sampled_batches_have_the_size_that_was_asked_for() -> None:
    """By the stationary law, from the chain of one record: held back for r more steps, or not."""
    for b, records, batch_size in [(1, 10, 3), (2, 10, 3), (3, 12, 4), (4, 100, 7)]:
        scheme = nd.participation.BMinSepSampling.from_records(
            records=records, batch_size=batch_size, epochs=2, separation=b
        )
        chain = np.zeros((b, b))
        chain[0, b - 1] += scheme.rate  # it takes part, and is held back for b - 1 steps
        chain[0, 0] += 1 - scheme.rate
        for r in range(1, b):
            chain[r, r - 1] = 1.0
        law = np.linalg.lstsq(
            np.vstack([chain.T - np.eye(b), np.ones(b)]), np.r_[np.zeros(b), 1.0], rcond=None
        )[0]
        assert records * law[0] * scheme.rate == pytest.approx(batch_size, rel=1e-9)
        np.testing.assert_allclose(scheme.held_back, law, atol=1e-12)


@pytest.mark.parametrize(
    ("scheme", "said", "field"),
    [
        (nd.participation.CyclicPoisson, {"separation": 3}, "separation"),  # 20 steps
        (nd.participation.CyclicPoisson, {"separation": 5}, "separation"),  # groups of 200
        (nd.participation.CyclicPoisson, {"separation": 0}, "separation"),
        (nd.participation.CyclicPoisson, {"batch_size": 1000}, "participation.rate"),
        (nd.participation.BMinSepSampling, {"separation": 4}, "separation"),
        (
            nd.participation.BMinSepSampling,
            {"separation": 1, "batch_size": 1000},
            "participation.rate",
        ),
        (
            nd.participation.TruncatedPoisson,
            {"batch_size_limit": 1000},
            "participation.batch_size_limit",
        ),
        (nd.participation.BallsInBins, {"batch_size": 1000}, "participation.separation"),
        (nd.participation.RandomAllocation, {"batch_size": 1000}, "participation.participations"),
        (nd.participation.MinSeparation, {"batch_size": 1001}, "batch_size"),
    ],
)
def test_runs_that_are_none_of_a_scheme(scheme: Any, said: dict[str, Any], field: str) -> None:
    with pytest.raises(nd.InputError) as error:
        scheme.from_records(**{"records": 1000, "batch_size": 300, "epochs": 5} | said)
    assert error.value.field == field
