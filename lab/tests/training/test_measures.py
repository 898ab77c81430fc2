"""Models are measured, and runs that diverge are told."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign_lab.training.losses.quadratics import Quadratic
from noisedesign_lab.training.measures import consensus_distance
from noisedesign_lab.training.noise import NodeNoise
from noisedesign_lab.training.trainer import Lane, train
from tests.support.training_cases import HORIZON, NODES, Recorder, examples, run_of


def test_losses_are_means_over_nodes_or_those_of_the_mean_model() -> None:
    held_out = examples(9, records=6)
    lanes = [Lane(step_sizes=0.3), Lane(source=NodeNoise(), stddev=0.5, step_sizes=0.3)]
    for whose in ("nodes", "mean"):
        recorder = Recorder()
        run = run_of(test=held_out, whose=whose)
        (found,) = train(run, lanes, seeds=(3, 8), observer=recorder)
        models = recorder.models[-1]
        for s in range(2):
            for lane in range(2):
                of_nodes = models[s, :, lane]
                if whose == "mean":
                    of_nodes = of_nodes.mean(axis=0)[None]
                for values, data in ((found.train_loss, run.examples), (found.test_loss, held_out)):
                    expected = np.mean(
                        [
                            np.mean([0.35 * theta @ theta - x @ theta for x in data.features])
                            for theta in of_nodes
                        ]
                    )
                    assert values is not None
                    assert values[s, lane] == pytest.approx(expected, rel=1e-12)
        assert found.accuracy is None


def test_consensus_distance_by_hand() -> None:
    models = np.array([[[[1.0, 0.0]], [[-1.0, 0.0]], [[0.0, 3.0]]]])  # mean (0, 1)
    expected = np.sqrt((2 + 2 + 4) / 3)
    np.testing.assert_allclose(consensus_distance(models), [[expected]])


def test_losses_on_some_examples_are_close_to_those_on_all() -> None:
    lane = Lane(step_sizes=0.3)
    (full,) = train(run_of(test=examples(9)), [lane], seeds=(3,))
    (some,) = train(run_of(test=examples(9), measured=30), [lane], seeds=(3,))
    (again,) = train(run_of(test=examples(9), measured=30), [lane], seeds=(3,))
    assert some.test_loss is not None
    assert full.test_loss is not None
    assert some.test_loss != full.test_loss
    assert some.test_loss == again.test_loss
    assert some.test_loss == pytest.approx(full.test_loss, abs=0.2)


def test_runs_that_diverge_are_told_and_the_others_go_on() -> None:
    steady = Lane(step_sizes=0.1)
    wild = Lane(source=NodeNoise(), stddev=1e200, step_sizes=0.1)
    growing = Lane(step_sizes=1e3)  # a contraction no more
    run = run_of(record=range(HORIZON + 1), clip=np.inf)
    together = list(train(run, [wild, steady, growing], seeds=(3, 8)))
    alone = list(train(run, [steady], seeds=(3, 8)))
    assert not together[0].diverged.any()
    for found, expected in zip(together[1:], alone[1:], strict=True):
        assert found.diverged[:, 0].all()
        assert np.isnan(found.train_loss[:, 0]).all()
        assert np.isnan(found.consensus_distance[:, 0]).all()
        np.testing.assert_allclose(found.train_loss[:, 1], expected.train_loss[:, 0], rtol=1e-12)
    assert together[-1].diverged[:, 2].all()
    assert not together[1].diverged[:, 2].any()
    once = [found.diverged[0, 2] for found in together]
    assert once == sorted(once)  # for good


def test_the_bound_on_losses_is_stated() -> None:
    lane = Lane(step_sizes=10.0)
    (at_most,) = train(run_of(record=[2], clip=np.inf, bound=1e3), [lane], seeds=(3,))
    (beyond,) = train(run_of(record=[2], clip=np.inf, bound=2.0), [lane], seeds=(3,))
    assert 2 < abs(at_most.train_loss[0, 0]) < 1e3
    assert beyond.diverged.all()
    assert not at_most.diverged.any()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("horizon", 0),
        ("loss", Quadratic),
        ("examples", examples(dimension=2)),
        ("examples", np.ones((3, 3))),
        ("test", examples(dimension=4)),
        ("gossip", np.eye(NODES)),
        ("rule", None),
        ("clip", 0.0),
        ("whose", "all"),
        ("bound", 0.5),
        ("measured", 0),
        ("record", [HORIZON + 1]),
        ("record", [-1]),
        ("partition", lambda rng: [np.arange(3)] * (NODES - 1)),
        ("partition", lambda rng: [np.arange(0)] * NODES),
        ("partition", lambda rng: [np.arange(3.0)] * NODES),
        ("partition", lambda rng: [np.arange(39, 42)] * NODES),
        ("partition", lambda rng: [np.arange(-1, 2)] * NODES),
        ("partition", lambda rng: 3),
        ("partition", list),
    ],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        list(train(run_of(**{field: value}), [Lane()], seeds=(0,)))


def test_wrong_lanes_and_seeds_are_named() -> None:
    for lanes, seeds in (([], [0]), ([Lane()], []), ([Lane()], [-1])):
        with pytest.raises(InputError, match="seeds"):
            list(train(run_of(), lanes, seeds=seeds))
    for wrong in (np.ones(HORIZON - 1), 0.0, -1.0, "fast"):
        with pytest.raises(InputError, match="step_sizes"):
            list(train(run_of(), [Lane(step_sizes=wrong)], seeds=(0,)))
    with pytest.raises(InputError, match="stddev"):
        Lane(stddev=-1.0)


def test_models_that_do_not_fit_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.base.memory.physical", lambda: 4 * 8 * NODES * 3 * 2)
    assert len(list(train(run_of(), [Lane()] * 2, seeds=(0,)))) == 1
    with pytest.raises(InputError, match="lanes: expected at most 2 lanes"):
        train(run_of(), [Lane()] * 3, seeds=(0,))
