"""Batches that a node draws in secret: their law, their secrecy, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisedesign as nd
from noisedesign import InputError
from noisedesign.noise import (
    Attendance,
    Batches,
    NodeNoise,
    Plan,
    RandomBatches,
    Rule,
    Secret,
    noise,
)
from noisedesign.noise.batches import _below, _coins, drawn_batches
from noisedesign.noise.lattice import lattice_of
from noisedesign.privacy.amplification.convolution import even_deltas
from noisedesign.system.participation import Participation
from tests.support.laws import laws
from tests.support.trainers import random_plan, secret

BALLS = nd.participation.BallsInBins(epochs=2, separation=3)
SAMPLED: list[Participation] = [
    BALLS,
    nd.participation.RandomAllocation(horizon=5, participations=2),
    nd.participation.RandomAllocation(horizon=5, participations=4),
    nd.participation.CyclicPoisson(epochs=3, separation=2, rate=0.3),
    nd.participation.CyclicPoisson(epochs=4, separation=1, rate=0.6),
    nd.participation.BMinSepSampling(horizon=5, separation=3, rate=0.4),
    nd.participation.BMinSepSampling(horizon=5, separation=3, rate=0.4, warm_start=False),
    nd.participation.BMinSepSampling(horizon=6, separation=3, rate=1.0),
]
TRUNCATED = nd.participation.TruncatedPoisson(
    epochs=2, separation=2, rate=0.5, batch_size_limit=2, group_size=4
)
FAR_IN_THE_TAIL = 1e-9
"""Probability that a test below fails by chance; their seeds are fixed."""


def plan_of(scheme: Participation = BALLS) -> Plan:
    return random_plan(scheme)


def noise_of(scheme: Participation = BALLS, number: int = 1, **kwargs: Any) -> NodeNoise:
    kwargs = {"record": False, **kwargs}
    return noise(plan_of(scheme), node=0, secret=secret(number), **kwargs)


def drawn(scheme: Participation, *, records: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return drawn_batches(scheme.rule, horizon=scheme.horizon, records=records, rng=rng)


def steps_of(batches: Sequence[np.ndarray], records: int) -> list[tuple[int, ...]]:
    """The steps of every record."""
    found: list[list[int]] = [[] for _ in range(records)]
    for t, batch in enumerate(batches):
        assert len(set(batch.tolist())) == len(batch)
        for record in batch:
            found[record].append(t)
    return [tuple(steps) for steps in found]


# --- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SAMPLED, ids=str)
def test_steps_of_records_have_the_law_of_the_scheme(scheme: Participation) -> None:
    """Chi-square of all patterns, of the records of every group by themselves."""
    records, of_groups = 24_000, list(laws(scheme))
    found = steps_of(drawn(scheme, records=records), records)
    for group, law in enumerate(of_groups):
        own = Counter(found[group :: len(of_groups)])
        assert set(own) <= set(law.patterns)
        counts = np.array([own[pattern] for pattern in law.patterns])
        expected = law.probabilities * (records / len(of_groups))
        assert expected.min() > 50
        assert stats.chisquare(counts, expected).pvalue > FAR_IN_THE_TAIL


@pytest.mark.parametrize("scheme", [BALLS, SAMPLED[1], SAMPLED[5]], ids=str)
def test_records_are_drawn_for_independently(scheme: Participation) -> None:
    """Pairs of patterns of two neighbours are as likely as their product says."""
    records, (law,) = 24_000, laws(scheme)
    found = steps_of(drawn(scheme, records=records, seed=1), records)
    pairs = Counter(zip(found[::2], found[1::2], strict=True))
    both = list(itertools.product(range(len(law.patterns)), repeat=2))
    counts = np.array([pairs[law.patterns[a], law.patterns[b]] for a, b in both])
    chances = np.array([law.probabilities[a] * law.probabilities[b] for a, b in both])
    assert stats.chisquare(counts, chances * records / 2).pvalue > FAR_IN_THE_TAIL


def test_batches_are_no_equal_parts() -> None:
    """Sizes are multinomial: a loader that deals equal batches would show a variance of zero."""
    sizes = np.array(
        [[len(batch) for batch in drawn(BALLS, records=30, seed=s)[:3]] for s in range(2000)]
    )
    assert sizes.sum(axis=1).tolist() == [30] * 2000
    variance = 30 * (1 / 3) * (2 / 3)
    # The relative standard error of a variance of 2000 draws is sqrt(2 / 2000) = 3 %.
    np.testing.assert_allclose(sizes.var(axis=0), variance, rtol=0.2)
    assert min(len(batch) for s in range(200) for batch in drawn(BALLS, records=3, seed=s)) == 0


def test_larger_batches_are_cut_uniformly() -> None:
    """Of 4 records by coins of 1/2, at most 2 take part: patterns of one step by hand."""
    law: dict[tuple[int, ...], float] = {}
    for coins in itertools.product((0, 1), repeat=4):
        heads = [record for record in range(4) if coins[record]]
        kept = list(itertools.combinations(heads, min(2, len(heads))))
        for batch in kept:
            law[batch] = law.get(batch, 0.0) + 1 / 16 / len(kept)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(4000):
        for t, batch in enumerate(drawn(TRUNCATED, records=8, seed=seed)):
            assert (batch % 2 == t % 2).all()
            counts[tuple((batch // 2).tolist())] += 1
    observed = np.array([counts[batch] for batch in law])
    assert observed.sum() == counts.total()
    expected = np.array(list(law.values())) * counts.total()
    assert stats.chisquare(observed, expected).pvalue > FAR_IN_THE_TAIL


def test_words_in_the_last_round_are_drawn_anew() -> None:
    """Of a bound that does not divide 2^64 they would make small numbers likelier."""
    given = iter([[2**64 - 1, 5, 2**64 - 2], [2**64 - 1, 7], [9]])

    def words(count: int) -> np.ndarray:
        found = np.array(next(given), dtype=np.uint64)
        assert len(found) == count
        return found

    bound = 2**63 + 1  # words from 2^63 + 1 on are an incomplete round
    assert _below(bound, 3, words).tolist() == [9, 5, 7]


def test_coins_are_words_below_the_rate() -> None:
    quarter = 2**62
    words = np.array([0, quarter - 1, quarter, 2**64 - 1], dtype=np.uint64)
    assert _coins(0.25, 4, lambda _: words).tolist() == [True, True, False, False]
    assert _coins(1.0, 4, lambda _: words).all()


@pytest.mark.parametrize("scheme", [*SAMPLED, TRUNCATED], ids=str)
def test_the_divisor_is_the_mean_size(scheme: Participation) -> None:
    records = 8
    batches = noise_of(scheme).batches(records)
    if scheme is TRUNCATED:
        assert batches.expected_size == 2.0  # of 4 records by coins of 1/2, before the cut
        return
    means = []
    for group, law in enumerate(of_groups := list(laws(scheme))):
        sizes = np.array([len(pattern) for pattern in law.patterns])
        means.append(float(sizes @ law.probabilities) * len(range(group, records, len(of_groups))))
    if "cold" not in str(scheme):  # whose first batches are larger
        assert batches.expected_size == pytest.approx(sum(means) / scheme.horizon, rel=1e-12)


# --- secrecy --------------------------------------------------------------------------------------


def test_a_restart_draws_the_same_and_another_run_another() -> None:
    one, again = noise_of(number=1).batches(50), noise_of(number=1).batches(50)
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in again]
    other = noise_of(number=2).batches(50)
    assert [batch.tolist() for batch in one] != [batch.tolist() for batch in other]


def test_nodes_and_designs_draw_apart_from_one_secret() -> None:
    plan, own = plan_of(), secret(1)
    found = [
        RandomBatches(one, records=50, secret=own)[0].tolist()
        for one in (plan, replace(plan, node=1), replace(plan, digest="ab" * 32))
    ]
    assert len({tuple(batch) for batch in found}) == 3


def test_batches_are_drawn_from_no_key_of_the_noise() -> None:
    plan, own = plan_of(), secret(1)
    streams = {own.step_key(s.name, 0, digest=plan.digest) for s in plan.streams}
    assert own.step_key("node 0", 0, digest=plan.digest, use="batches") not in streams


def test_bits_of_the_draws_stay_as_they_are() -> None:
    """A run that is interrupted goes on with another version of this program."""
    batches = RandomBatches(plan_of(), records=12, secret=Secret(bytes(range(32))))
    found = [batch.tolist() for batch in batches]
    assert found[:3] == found[3:]
    key = Secret(bytes(range(32))).step_key("node 0", 0, digest=plan_of().digest, use="batches")
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    words = np.frombuffer(cipher.update(bytes(8 * 12)), dtype="<u8")
    assert found[:3] == [np.flatnonzero(words % 3 == j).tolist() for j in range(3)]


def test_one_assignment_serves_one_run(tmp_path: Path) -> None:
    """The secret of the batches is that of the noise, which a second run is refused."""
    record = tmp_path / "record.sqlite3"
    first = noise_of(record=record)
    assert first.batch_secret is first.secret
    drawn_first = first.batches(9)[0].tolist()
    first.add_([np.zeros(3)], 0)
    with pytest.raises(InputError, match="secret: expected one that no run has used"):
        noise_of(record=record)
    again = noise_of(record=record, resume=True)
    assert again.batches(9)[0].tolist() == drawn_first


def test_noise_is_added_to_batches_that_were_drawn() -> None:
    """Whoever never asked for them has batches of another kind."""
    source = noise_of()
    with pytest.raises(InputError, match="batches: expected the batches of this node, drawn"):
        source.add_([np.zeros(3)], 0)
    assert source.steps == frozenset()
    source.batches(9)
    source.add_([np.zeros(3)], 0)


def shared_plan() -> Plan:
    """Of a node all of whose noise is from a seed that it shares."""
    plan = plan_of()
    (own,) = plan.streams
    return replace(plan, streams=(replace(own, name="seed 0", source="shared", holders=(0, 1)),))


def test_noise_that_is_shared_has_a_secret_of_its_own_for_batches(tmp_path: Path) -> None:
    """Who holds the seed of the noise must not know who takes part when."""
    record, seeds = tmp_path / "record.sqlite3", {"seed 0": secret(5)}
    source = noise(shared_plan(), seeds=seeds, record=record)
    assert source.secret is None
    assert source.batch_secret is not None
    assert source.batch_secret.fingerprint in source.fingerprints
    source.batches(9)
    source.add_([np.zeros(3)], 0)
    fresh = {"seed 0": secret(6)}
    with pytest.raises(InputError, match="secret: expected one that no run has used"):
        noise(shared_plan(), seeds=fresh, record=record, batch_secret=source.batch_secret)
    with pytest.raises(InputError, match="batch_secret: expected that of the run that goes on"):
        noise(shared_plan(), seeds=seeds, record=record, resume=True)
    again = noise(
        shared_plan(), seeds=seeds, record=record, resume=True, batch_secret=source.batch_secret
    )
    assert again.batches(9)[1].tolist() == source.batches(9)[1].tolist()
    with pytest.raises(InputError, match="batch_secret: expected a secret of its own"):
        noise(shared_plan(), seeds=seeds, record=False, batch_secret=secret(5))


def test_a_secret_for_batches_is_refused_where_there_is_one() -> None:
    with pytest.raises(InputError, match="batch_secret: expected none: that of its noise"):
        noise_of(batch_secret=secret(9))
    with pytest.raises(InputError, match="batch_secret: expected none: participation is not"):
        noise_of(BALLS.fixed, batch_secret=secret(9))


def test_a_ledger_refuses_a_second_run_by_the_secret_of_its_batches() -> None:
    ledger = nd.privacy.Ledger()
    source = noise(shared_plan(), seeds={"seed 0": secret(5)}, record=False)
    ledger.add(source)
    other = noise(
        shared_plan(), seeds={"seed 0": secret(6)}, record=False, batch_secret=source.batch_secret
    )
    with pytest.raises(InputError, match="two with the same batches.*show who is in them"):
        ledger.add(other)


# --- attendance -----------------------------------------------------------------------------------


def test_the_batches_that_were_drawn_are_taken_and_no_others() -> None:
    source = noise_of()
    batches = source.batches(9)
    attendance = source.attendance(batches)
    for t, batch in enumerate(batches):
        attendance.check(batch, t)
        attendance.check(batch[::-1].tolist(), t)  # in any order, and again after a crash
    drawn_first = batches[0].tolist()
    missing = next(record for record in range(9) if record not in drawn_first)
    for wrong in (
        drawn_first[1:],
        [*drawn_first, missing],
        [missing, *drawn_first[1:]],
        [*drawn_first[1:], drawn_first[-1]],
        [f"record {record}" for record in drawn_first],
    ):
        with pytest.raises(InputError, match="records: expected the records drawn for step 0"):
            attendance.check(wrong, 0)
    with pytest.raises(InputError, match="step: expected 0 to 5"):
        attendance.check([], 6)


def test_what_is_kept_of_attendance_tells_of_no_draw() -> None:
    source = noise_of()
    batches = source.batches(9)
    attendance = source.attendance(batches)
    attendance.check(batches[0], 0)
    assert attendance.state_dict() == {"steps": [], "told": [0], "keyed": True}


def test_batches_are_drawn_for_one_number_of_records(tmp_path: Path) -> None:
    """Two draws from one secret tell of each other; also after a restart."""
    record = tmp_path / "record.sqlite3"
    for how in ({"record": False}, {"record": record}):
        source = noise_of(**how)
        first = source.batches(9)
        assert source.batches(9) is first
        with pytest.raises(InputError, match="records: expected 9 records, as before, got 6"):
            source.batches(6)
    again = noise_of(record=record, resume=True)
    with pytest.raises(InputError, match="records: expected 9 records, as before, got 6"):
        again.batches(6)
    assert [x.tolist() for x in again.batches(9)] == [x.tolist() for x in first]


def test_a_loader_that_is_not_random_is_refused() -> None:
    rule, horizon = BALLS.rule, BALLS.horizon
    with pytest.raises(InputError, match=r"batches: expected .*drawn in secret as balls-in-bins"):
        Attendance(rule, horizon=horizon)
    fixed: Any = Batches(BALLS.fixed.rule, horizon=horizon, records=9)
    listed: Any = [[0], [1]]
    other = noise_of(nd.participation.BallsInBins(epochs=3, separation=2)).batches(9)
    for wrong in (fixed, listed, other):
        with pytest.raises(InputError, match="design for fixed-epoch"):
            Attendance(rule, horizon=horizon, batches=wrong)
    with pytest.raises(InputError, match="batches: expected batches drawn in secret.*equal"):
        Batches(rule, horizon=horizon, records=9)


def test_batches_that_are_drawn_are_refused_where_order_is_fixed() -> None:
    with pytest.raises(InputError, match="participation: expected a design for random"):
        noise_of(BALLS.fixed).batches(9)
    with pytest.raises(InputError, match="participation: expected a design for random"):
        RandomBatches(plan_of(BALLS.fixed), records=9, secret=secret(1))
    with pytest.raises(InputError, match="batches: expected none, where participation is not"):
        Attendance(BALLS.fixed.rule, horizon=6, batches=noise_of().batches(9))
    with pytest.raises(InputError, match=r"rule\.random: expected a rule of random"):
        drawn(BALLS.fixed, records=3)


def test_the_number_of_records_is_that_of_the_account() -> None:
    for records in (6, 9, 10):
        with pytest.raises(InputError, match="records: expected 8 records, 4 in each of 2"):
            drawn(TRUNCATED, records=records)
    assert len(drawn(TRUNCATED, records=7)) == 4  # one group may be smaller by one


def test_integers_are_refused_under_random_participation() -> None:
    with pytest.raises(InputError, match=r"plan\.claim: expected participation whose privacy"):
        lattice_of(plan_of())


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SAMPLED, TRUNCATED], ids=str)
def test_the_file_of_a_plan_says_how_steps_are_drawn(scheme: Participation, tmp_path: Path) -> None:
    plan = plan_of(scheme)
    loaded = Plan.load(plan.save(tmp_path / "node.plan"))
    assert loaded.claim == plan.claim
    assert loaded.claim.rule == scheme.rule


def test_plans_of_a_fixed_order_say_what_they_said() -> None:
    """Else digests of old designs, and with them the keys of their noise, would change."""
    plan = plan_of(BALLS.fixed)
    assert plan.claim.rule is not None
    assert set(plan.claim.to_json()["rule"]) == {"most", "min_sep", "residue", "patterns"}
    assert "random" in plan_of(BALLS).claim.to_json()["rule"]
    assert set(plan.claim.to_json()) == {field.name for field in fields(plan.claim)} - {
        "confidence"
    }


def test_rules_without_a_word_of_randomness_are_of_a_fixed_order() -> None:
    said = {"most": 2, "min_sep": 3, "residue": 3, "patterns": None}
    assert Rule.of_json(said) == BALLS.fixed.rule
    for wrong in (
        {"kind": "dice"},
        {"kind": "b-min-sep", "rate": 2.0},
        {"kind": "b-min-sep", "warm_start": 1},
        {"kind": "truncated-poisson", "group_size": 0},
    ):
        with pytest.raises(InputError, match=r"rule\.random"):
            Rule.of_json(said | {"random": wrong})


# --- an audit -------------------------------------------------------------------------------------


def test_an_attack_on_runs_finds_what_is_proved_and_no_more() -> None:
    """One coordinate a record is one run a record: the likelihood ratio of what was sent, against
    Gaussian tails in one dimension a bin. Who knows the batches finds what no chance hides."""
    bins, runs, squared, epsilon = 4, 200_000, 4.0, 1.0
    scheme = nd.participation.BallsInBins(epochs=1, separation=bins)
    source = noise_of(scheme)
    batches, stddev = source.batches(runs), random_plan(scheme).claim.noise_stddev
    z = np.array([source.step(t, runs) for t in range(bins)]) / stddev
    shift, size = np.zeros((bins, runs)), np.sqrt(squared)
    for t, batch in enumerate(batches):
        shift[t, batch] = size

    def found(before: np.ndarray, after: np.ndarray) -> float:
        """delta of the set where the ratio, as the attacker has it, is above e^epsilon."""
        sides = np.array([(ratio > np.exp(epsilon)).mean() for ratio in (before, after)])
        return float(sides[0] - np.exp(epsilon) * sides[1])

    def ratio(y: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(size * y - squared / 2).mean(axis=0))

    known = np.exp(size * (z * (shift > 0)).sum(axis=0) - squared / 2)  # of the right batch alone
    blind = found(ratio(z + shift), ratio(z))
    seen = found(known * np.exp(squared), known)
    proved, _ = even_deltas(squared, bins, epsilon)
    error = 6 * np.sqrt((1 + np.exp(2 * epsilon)) / runs) / 2  # six standard deviations, at least
    assert proved - error <= blind <= proved + error
    exact = nd.privacy.delta_of(mu=size, epsilon=epsilon)
    assert exact - error <= seen <= exact + error
    assert seen > proved + 10 * error
