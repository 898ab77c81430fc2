"""The trainer against D-SGD written out, one model and one example at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign.noise.rules import Rule
from noisedesign.system.random_mixing import EdgeDropout
from noisedesign_lab.training import gossip, noise as noise, trainer
from noisedesign_lab.training.gossip import FixedGossip, RandomGossip
from noisedesign_lab.training.losses.loss import Batch
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.measures import Measurement
from noisedesign_lab.training.noise import MessageNoise, NodeNoise, WhiteNoise, common_noise
from noisedesign_lab.training.seeding import Use, generator
from noisedesign_lab.training.trainer import Lane, Run, train
from tests.support.training_cases import (
    DIMENSION,
    HORIZON,
    MIXING,
    NODES,
    RECORDS,
    SEPARATION,
    Recorder,
    examples,
    run_of,
)

STEP_SIZES = 0.1 / np.sqrt(1 + np.arange(HORIZON))


def measured(run: Run, lanes: list[Lane], *, seeds: tuple[int, ...] = (3,), **how: Any) -> Any:
    return list(train(run, lanes, seeds=seeds, **how))


def watched(run: Run, lanes: list[Lane], *, seeds: tuple[int, ...] = (3,)) -> Recorder:
    recorder = Recorder()
    measured(run, lanes, seeds=seeds, observer=recorder)
    return recorder


def in_loops(
    recorder: Recorder, *, seed: int, rounds: int = 1, clip: float = 1.0, mixing: Array = MIXING
) -> list[list[Array]]:
    """The models after every step, by the batches that were dealt and nothing else."""
    features, curvature = examples().features, 0.7
    models = [np.zeros(DIMENSION) for _ in range(NODES)]
    most = [max(len(step[seed][node]) for step in recorder.places) for node in range(NODES)]
    found = []
    for step, places in enumerate(recorder.places):
        sent = []
        for node in range(NODES):
            total = np.zeros(DIMENSION)
            for place in places[seed][node]:
                gradient = curvature * models[node] - features[place]
                total += gradient * min(1.0, clip / float(np.sqrt((gradient**2).sum())))
            sent.append(models[node] - STEP_SIZES[step] * total / most[node])
        for _ in range(rounds):
            sent = [
                np.sum([mixing[i, j] * sent[j] for j in range(NODES)], axis=0) for i in range(NODES)
            ]
        models = sent
        found.append(models)
    return found


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("clip", [1.0, 0.4, np.inf])
def test_without_noise_it_is_d_sgd_written_out(rounds: int, clip: float) -> None:
    lane = Lane(step_sizes=STEP_SIZES, rounds=rounds)
    recorder = watched(run_of(clip=clip), [lane], seeds=(3, 8))
    for seed in range(2):
        expected = in_loops(recorder, seed=seed, rounds=rounds, clip=clip)
        np.testing.assert_allclose(
            [step[seed, :, 0] for step in recorder.models], expected, rtol=1e-12, atol=1e-14
        )


def test_every_record_takes_part_once_a_round_and_at_its_own_node() -> None:
    recorder = watched(run_of(), [Lane()], seeds=(3, 8))
    for seed in range(2):
        for node in range(NODES):
            rounds = [
                np.concatenate([step[seed][node] for step in recorder.places[k : k + SEPARATION]])
                for k in range(0, HORIZON, SEPARATION)
            ]
            for one in rounds:
                np.testing.assert_array_equal(one, rounds[0])  # the same batches, in their order
                assert len(set(one)) == len(one)
        of_all = [
            step[seed][node] for step in recorder.places[:SEPARATION] for node in range(NODES)
        ]
        assert sorted(np.concatenate(of_all)) == list(range(RECORDS))
    assert not np.array_equal(recorder.places[0][0][0], recorder.places[0][1][0])


def test_batches_that_come_round_too_soon_are_refused() -> None:
    with pytest.raises(InputError, match=r"batch_size: .* \(at node 0\)"):
        measured(run_of(batch_size=5), [Lane()])
    every = Rule(most=HORIZON, min_sep=1, residue=1)
    recorder = watched(run_of(batch_size=5, rule=every), [Lane()])
    assert {len(one) for step in recorder.places for one in step[0]} <= {4, 5}


def test_nothing_random_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of data, batches of each node, mixing, noise of nodes and noise of messages: every
    stream of a run has a name of its own, of its seed as well, and nodes with parts of one size
    have other batches."""
    names: list[tuple[int, ...]] = []

    def spied(seed: int, *path: int) -> np.random.Generator:
        names.append((seed, *path))
        return generator(seed, *path)

    for module in (trainer, noise, gossip):
        monkeypatch.setattr(module, "generator", spied)
    wanted = ("independent", "every message")
    random = RandomGossip(random=EdgeDropout(mixing=MIXING, probability=0.3))
    run = run_of(gossip=random, test=examples(1), measured=10, partition=in_blocks)
    measured(run, [sources()[name] for name in wanted], seeds=(3, 8))
    assert len(set(names)) == len(names)
    assert {use for _, use, *_ in names} == set(Use)
    batches = watched(run, [Lane()]).places[0][0]
    first = [places - 8 * node for node, places in enumerate(batches[:4])]
    assert len({tuple(sorted(places)) for places in first}) == 4


def in_blocks(rng: np.random.Generator) -> list[Array]:
    """The first eight records to node 0, and so on; all the rest to the last."""
    return np.split(np.arange(RECORDS), range(8, 8 * NODES, 8))


# --- noise, lane by lane --------------------------------------------------------------------------


def sources() -> dict[str, Lane]:
    rng = np.random.default_rng(1)
    noising = np.tril(rng.standard_normal((HORIZON, HORIZON)))
    root = rng.standard_normal((NODES, NODES))
    full = np.tril(rng.standard_normal((NODES * HORIZON,) * 2))
    return {
        "none": Lane(step_sizes=0.1),
        "independent": Lane(source=NodeNoise(), stddev=0.5, step_sizes=0.1),
        "louder": Lane(source=NodeNoise(), stddev=5.0, step_sizes=STEP_SIZES),
        "space": Lane(source=NodeNoise(root=root), stddev=0.5, step_sizes=0.1),
        "time": Lane(source=NodeNoise(noising=noising), stddev=0.5, step_sizes=0.1),
        "both": Lane(source=NodeNoise(root=root, noising=noising), stddev=0.3, step_sizes=0.1),
        "full": Lane(source=NodeNoise(noising=full, full=True), stddev=0.2, step_sizes=0.1),
        "rounds": Lane(source=NodeNoise(), stddev=0.5, rounds=4, step_sizes=0.1),
        "server": Lane(
            source=common_noise(NODES, variance=0.2), stddev=1.0, server=True, step_sizes=0.1
        ),
        "messages": Lane(source=MessageNoise(mixing=MIXING), stddev=0.5, step_sizes=0.1),
        "every message": Lane(
            source=MessageNoise(mixing=MIXING, every_message=True), stddev=0.5, step_sizes=0.1
        ),
    }


def table(found: list[Measurement]) -> Array:
    """Shape (steps, 2, S, E)."""
    return np.stack([[one.train_loss, one.consensus_distance] for one in found])


@pytest.mark.parametrize("gossip", ["fixed", "random"])
def test_lanes_and_seeds_are_what_they_are_alone(gossip: str) -> None:
    random = RandomGossip(random=EdgeDropout(mixing=MIXING, probability=0.3))
    how = random if gossip == "random" else FixedGossip(mixing=MIXING)
    run, seeds = run_of(record=range(HORIZON + 1), gossip=how), (3, 0, 8)
    lanes = list(sources().values())
    together = table(measured(run, lanes, seeds=seeds))
    for k, seed in enumerate(seeds):
        for place, lane in enumerate(lanes):
            alone = table(measured(run, [lane], seeds=(seed,)))
            np.testing.assert_allclose(
                together[:, :, k, place], alone[:, :, 0, 0], rtol=1e-9, atol=1e-12
            )
    assert not np.allclose(together[-1, 0, 0], together[-1, 0, 1])


# --- how loud noise is ----------------------------------------------------------------------------

SIZES = np.array([3.0, 2.0, 2.0, 2.0, 2.0])
"""Largest batches of the nodes: one has nine records, the others eight, in four batches."""
STDDEV = 0.5


def noise_in_models(lane: Lane) -> tuple[Recorder, Array]:
    """The noise that a lane adds to the models of a linear loss after the first step, (n, d)."""
    quiet = Lane(step_sizes=lane.step_sizes, rounds=lane.rounds, server=lane.server)
    run = run_of(loss=Quadratic(dimension=DIMENSION, curvature=0.0))
    recorder = watched(run, [lane, quiet])
    after = recorder.models[0][0]
    return recorder, after[:, 0] - after[:, 1]


def white_noise() -> Array:
    """White noise of the first step of seed 3, (n, d)."""
    return WhiteNoise((3,), shape=(NODES, DIMENSION), steps=HORIZON).at(0)[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_noise_of_nodes_is_divided_as_their_gradients_are(rounds: int) -> None:
    lane = Lane(source=NodeNoise(), stddev=STDDEV, step_sizes=STEP_SIZES, rounds=rounds)
    _, found = noise_in_models(lane)
    added = -STEP_SIZES[0] * STDDEV * white_noise() / SIZES[:, None]
    expected = np.linalg.matrix_power(MIXING, rounds) @ added
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


def test_noise_of_a_server_hides_a_record_of_the_smallest_batch() -> None:
    """A record of a node with batches of 2 moves the average by 1 / (2 n) of its change: noise for
    the average of all, over 2, hides it; over each node's own batch it would be quieter."""
    source = common_noise(NODES, variance=1 / NODES**2)
    lane = Lane(source=source, stddev=STDDEV, step_sizes=STEP_SIZES, server=True)
    _, found = noise_in_models(lane)
    common = white_noise().sum(axis=0) / np.sqrt(NODES) / NODES  # variance 1 / n^2
    expected = -STEP_SIZES[0] * STDDEV * common / SIZES.min()
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-9, atol=1e-13)


def test_noise_on_messages_hides_the_largest_change_of_a_model() -> None:
    """Its unit is that of the models: a change of a sum of gradients moves one by at most the
    largest step size over the smallest batch."""
    source = MessageNoise(mixing=MIXING, every_message=True)
    lane = Lane(source=source, stddev=STDDEV, step_sizes=STEP_SIZES)
    recorder, found = noise_in_models(lane)
    unit = list(source.drawn(WhiteNoise((3,), shape=(NODES, DIMENSION), steps=HORIZON)))
    scale = STDDEV * STEP_SIZES.max() / SIZES.min()
    for step in range(HORIZON):
        np.testing.assert_allclose(recorder.message_noise[step][0], scale * unit[step], rtol=1e-12)
    np.testing.assert_allclose(found, scale * source.received(unit[0])[0], rtol=1e-9, atol=1e-13)


def test_private_coordinates_get_neither_noise_nor_mixing() -> None:
    loss: Any = Quadratic(dimension=DIMENSION, curvature=0.0)
    object.__setattr__(loss, "private", slice(1, 2))
    lanes = [
        Lane(step_sizes=0.1),
        Lane(source=NodeNoise(), stddev=STDDEV, step_sizes=0.1),
        Lane(source=MessageNoise(mixing=MIXING), stddev=STDDEV, step_sizes=0.1),
    ]
    recorder = watched(run_of(loss=loss, clip=np.inf), lanes)
    features, own = examples().features, np.zeros(NODES)
    for step, places in enumerate(recorder.places):
        own += [0.1 * features[at, 1].sum() / b for at, b in zip(places[0], SIZES, strict=True)]
        for lane in range(len(lanes)):
            np.testing.assert_allclose(recorder.models[step][0, :, lane, 1], own, rtol=1e-12)
    plain = watched(run_of(loss=Quadratic(dimension=DIMENSION, curvature=0.0), clip=np.inf), lanes)
    np.testing.assert_allclose(
        recorder.models[-1][0, :, 0, [0, 2]], plain.models[-1][0, :, 0, [0, 2]], rtol=1e-12
    )
    for lane in (1, 2):
        assert (recorder.models[-1][0, :, lane, 0] != recorder.models[-1][0, :, 0, 0]).all()


class Long(Quadratic):
    """Sums of gradients of one direction, each as long as the clip times ``length``."""

    length: float

    def clipped_sums(self, models: Array, batch: Batch, *, clip: float) -> Array:
        sums = np.zeros_like(models)
        sums[..., 0] = self.length * clip * batch.present.sum(axis=2)[..., None]
        return sums


@pytest.mark.parametrize(("length", "fits"), [(1.0, True), (1 + 1e-6, False), (100.0, False)])
def test_a_loss_that_does_not_clip_is_refused(length: float, fits: bool) -> None:
    loss = Long(dimension=DIMENSION, curvature=0.7)
    object.__setattr__(loss, "length", length)
    run, lanes = replace(run_of(), loss=loss), [Lane(step_sizes=0.1)]
    if fits:
        assert measured(run, lanes)
        return
    with pytest.raises(InputError, match="loss: expected sums of gradients, each clipped to a"):
        measured(run, lanes)
