"""Batches that are drawn at random for every seed, and what sums over them are divided by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.system.participation import Participation
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.noise import NodeNoise
from noisedesign_lab.training.partition import deal
from noisedesign_lab.training.trainer import Lane, Run, train
from tests.support.training_cases import (
    DIMENSION,
    EPOCHS,
    HORIZON,
    MIXING,
    NODES,
    RECORDS,
    SEPARATION,
    Recorder,
    examples,
    run_of,
)

BINS = nd.participation.BallsInBins(epochs=EPOCHS, separation=SEPARATION)
ETA, STDDEV = 0.1, 0.5


def watched(run: Run, lanes: list[Lane], *, seeds: tuple[int, ...] = (3,)) -> Recorder:
    recorder = Recorder()
    list(train(run, lanes, seeds=seeds, observer=recorder))
    return recorder


def drawn(scheme: Participation, records: int, seed: int = 0) -> list[list[int]]:
    """Steps of every record."""
    dealing = deal(
        scheme.rule,
        horizon=scheme.horizon,
        records=records,
        batch_size=None,
        rng=np.random.default_rng(seed),
    )
    found: list[list[int]] = [[] for _ in range(records)]
    for step in range(scheme.horizon):
        for record in dealing.batches[step]:
            found[record].append(step)
    return found


def test_every_record_takes_the_steps_of_one_bin_and_bins_are_uniform() -> None:
    count = 4000
    steps = drawn(BINS, count)
    patterns = BINS.patterns.tolist()
    taken = np.bincount([patterns.index(of) for of in steps], minlength=SEPARATION)
    expected = count / SEPARATION
    statistic = ((taken - expected) ** 2 / expected).sum()
    assert 0 < statistic < 30  # chi-square of three degrees: 1.4e-6 above 30; 0 is dealt evenly


def test_records_are_drawn_by_themselves() -> None:
    """Two records meet in a bin with probability 1 / b; dealt evenly, 1 and 2 of 4 never would as
    often: (N / b - 1) / (N - 1)."""
    met = [len({tuple(of) for of in drawn(BINS, 2, seed)}) == 1 for seed in range(2000)]
    assert abs(np.mean(met) - 1 / SEPARATION) < 6 * np.sqrt(3 / 16 / 2000)


def test_any_steps_of_a_random_allocation() -> None:
    steps = drawn(nd.participation.RandomAllocation(horizon=5, participations=2), 3000)
    assert {len(of) for of in steps} == {2}
    pairs = np.array([5 * a + b for a, b in steps])
    counts = np.unique(pairs, return_counts=True)[1]
    assert len(counts) == 10
    assert ((counts - 300) ** 2 / 300).sum() < 55  # chi-square of nine degrees: 1.2e-8


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        (BINS, 41 / SEPARATION),
        (nd.participation.RandomAllocation(horizon=6, participations=2), 41 * 2 / 6),
        (nd.participation.CyclicPoisson(epochs=3, separation=2, rate=0.25), 41 / 2 * 0.25),
    ],
)
def test_sums_are_divided_by_the_expected_size(scheme: Participation, size: float) -> None:
    how: dict[str, Any] = {"horizon": scheme.horizon, "records": 41, "batch_size": None}
    for seed in range(3):
        dealing = deal(scheme.rule, **how, rng=np.random.default_rng(seed))
        assert dealing.size == pytest.approx(size, rel=1e-15)
    drawn_sizes = [
        len(deal(scheme.rule, **how, rng=np.random.default_rng(seed)).batches[step])
        for seed in range(400)
        for step in range(scheme.horizon)
    ]
    # Sizes of a seed depend on each other, at most as if each of them were drawn once a seed.
    assert np.mean(drawn_sizes) == pytest.approx(size, abs=6 * np.sqrt(size / 400))


def test_a_step_by_hand() -> None:
    """theta - eta sum / (N / b), then gossip; the noise is divided as the sum is."""
    linear = Quadratic(dimension=DIMENSION, curvature=0.0)
    run = run_of(rule=BINS.rule, loss=linear, clip=np.inf)
    noisy = Lane(source=NodeNoise(), stddev=STDDEV, step_sizes=ETA)
    recorder = watched(run, [noisy, Lane(step_sizes=ETA)])
    counts = np.array([9, 8, 8, 8, 8])  # 41 records of five nodes
    assert counts.sum() == RECORDS
    assert len(counts) == NODES
    features = examples().features
    before = np.zeros((NODES, DIMENSION))
    sizes = set()
    for step in range(HORIZON):
        sums = np.zeros((NODES, DIMENSION))
        for node, places in enumerate(recorder.places[step][0]):
            sizes.add(len(places))
            sums[node] = -features[places].sum(axis=0)
        sent = before - ETA * sums / (counts / SEPARATION)[:, None]
        np.testing.assert_allclose(recorder.messages[step][0, :, 1], sent, rtol=1e-12, atol=1e-13)
        before = MIXING @ sent
    assert len(sizes) > 2  # uneven, as they are drawn
    first = recorder.messages[0][0]
    added = (first[:, 1] - first[:, 0]) * (counts / SEPARATION)[:, None] / ETA
    fixed = watched(run_of(loss=linear), [noisy, Lane(step_sizes=ETA)]).messages[0][0]
    same = (fixed[:, 1] - fixed[:, 0]) * np.array([[3.0], [2.0], [2.0], [2.0], [2.0]]) / ETA
    np.testing.assert_allclose(added, same, rtol=1e-9, atol=1e-12)  # bins take nothing from noise


def test_seeds_and_nodes_draw_apart() -> None:
    recorder = watched(run_of(rule=BINS.rule), [Lane()], seeds=(3, 8))
    again = watched(run_of(rule=BINS.rule), [Lane()], seeds=(3, 8))
    for one, other in zip(recorder.places, again.places, strict=True):
        for of_seed, of_other in zip(one, other, strict=True):
            for places, same in zip(of_seed, of_other, strict=True):
                np.testing.assert_array_equal(places, same)
    sizes = np.array([[[len(of) for of in node] for node in step] for step in recorder.places])
    assert (sizes[0] != sizes[SEPARATION - 1]).any()
    assert (sizes[:, 0] != sizes[:, 1]).any()
    np.testing.assert_array_equal(sizes[0], sizes[SEPARATION])


def test_empty_batches_are_steps_like_others() -> None:
    """One record a node: most steps have none, and models only mix."""
    run = run_of(
        rule=BINS.rule,
        examples=examples(records=NODES),
        partition=lambda rng: list(np.arange(NODES)[:, None]),
    )
    recorder = watched(run, [Lane(step_sizes=ETA)])
    empty = [step for step, of in enumerate(recorder.places) if not any(map(len, of[0]))]
    taken = [sum(len(step[0][node]) for step in recorder.places) for node in range(NODES)]
    assert taken == [EPOCHS] * NODES
    for step in empty:
        np.testing.assert_array_equal(recorder.gradients[step], 0.0)


@pytest.mark.parametrize("size", [5, 11])
def test_a_size_for_batches_that_are_drawn_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"batch_size: .* \(at node 0\)"):
        watched(run_of(rule=BINS.rule, batch_size=size), [Lane()])


def test_noise_that_counts_on_random_batches_is_refused_with_others() -> None:
    lane = Lane(source=NodeNoise(), stddev=STDDEV, counts_on=BINS.rule, name="ldp")
    watched(run_of(rule=BINS.rule), [lane])
    other = nd.participation.BallsInBins(epochs=2, separation=6)
    for rule in (BINS.fixed.rule, other.rule):
        with pytest.raises(InputError, match=r"rule: expected batches .*'ldp' counts on"):
            watched(run_of(rule=rule), [lane])
