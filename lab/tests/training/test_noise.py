"""Unit noise against its covariance, written out from C, R and the definition of Zip-DL."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign_lab.training import noise as streams
from noisedesign_lab.training.noise import MessageNoise, NodeNoise, Source, WhiteNoise, common_noise
from tests.support import oracles

STEPS, NODES, WIDTH = 7, 3, 4
SEEDS = (5, 0)


def white(seeds: tuple[int, ...] = SEEDS) -> WhiteNoise:
    return WhiteNoise(seeds, shape=(NODES, WIDTH), steps=STEPS)


def drawn(source: Source, seeds: tuple[int, ...] = SEEDS) -> Array:
    """Shape (T, S, n, d)."""
    return np.stack(list(source.stream(white(seeds))))


def every_white() -> Array:
    fresh = white()
    return np.stack([fresh.at(step) for step in range(STEPS)])


def test_white_noise_is_of_its_seed_and_step_alone() -> None:
    found, fresh = every_white(), white()
    np.testing.assert_array_equal(fresh.at(4), found[4])
    fresh.keep()
    np.testing.assert_array_equal(fresh.rows(2, 6).reshape(4, 2, NODES, WIDTH), found[2:6])
    np.testing.assert_array_equal(fresh.at(1), found[1])
    np.testing.assert_array_equal(drawn(NodeNoise(), (0,))[:, 0], found[:, 1])
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize("kept", [0, 3 * 2 * NODES * WIDTH, 2**20])
@pytest.mark.parametrize("ahead", [1, 3, 32])
def test_noise_over_time_whatever_is_kept(
    kept: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEPT_FLOATS", kept)
    monkeypatch.setattr(streams, "PANEL_STEPS", ahead)
    rng = np.random.default_rng(2)
    noising = np.tril(rng.standard_normal((STEPS, STEPS)))
    noising[5, 0:3] = 0.0
    root = rng.standard_normal((NODES, NODES))
    w = every_white()
    in_time = [sum(noising[t, s] * w[s] for s in range(t + 1)) for t in range(STEPS)]
    np.testing.assert_allclose(drawn(NodeNoise(noising=noising)), in_time, rtol=1e-12, atol=1e-13)
    both = [[root @ of_seed for of_seed in step] for step in in_time]
    np.testing.assert_allclose(
        drawn(NodeNoise(noising=noising, root=root)), both, rtol=1e-12, atol=1e-13
    )


def test_full_noise_is_a_product_over_all_pairs_of_step_and_node() -> None:
    noising = np.tril(np.random.default_rng(3).standard_normal((STEPS * NODES,) * 2))
    w = every_white()  # (T, S, n, d)
    expected = np.stack(
        [
            (noising @ w[:, s].reshape(STEPS * NODES, WIDTH)).reshape(STEPS, NODES, WIDTH)
            for s in (0, 1)
        ],
        axis=1,
    )
    found = drawn(NodeNoise(noising=noising, full=True))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_common_noise_is_one_number_for_all() -> None:
    many = WhiteNoise((1,), shape=(NODES, 20_000), steps=1)
    (found,) = common_noise(NODES, variance=0.25).stream(many)
    np.testing.assert_allclose(found[0], np.broadcast_to(found[0, 0], found[0].shape))
    assert found.var() == pytest.approx(0.25, rel=6 * np.sqrt(2 / 20_000))


# --- on messages ----------------------------------------------------------------------------------

MIXINGS = {
    "path": oracles.metropolis(nx.path_graph(4)),
    "complete": oracles.metropolis(nx.complete_graph(3)),
    "one way": np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7], [0.9, 0.0, 0.1]]),
    "nothing kept": np.array([[0.0, 1.0], [1.0, 0.0]]),
}


def by_definition(mixing: Array, sender: int, y: dict[int, Array]) -> dict[int, Array]:
    """Z_v = Y_v - (1 / (d W_va)) sum_j W_ja Y_j over the receivers of a sender."""
    receivers = [v for v in range(len(mixing)) if mixing[v, sender] != 0]
    total = sum(mixing[j, sender] * y[j] for j in receivers)
    return {v: y[v] - total / (len(receivers) * mixing[v, sender]) for v in receivers}


@pytest.mark.parametrize("name", MIXINGS)
def test_messages_are_those_of_the_definition(name: str) -> None:
    mixing = MIXINGS[name]
    source = MessageNoise(mixing=mixing, every_message=True)
    senders, receivers = source.edges
    y = np.random.default_rng(4).standard_normal((2, len(senders), 3))
    found = source.messages(y)
    received = np.zeros((2, len(mixing), 3))
    for s in range(2):
        for sender in range(len(mixing)):
            own = {int(v): y[s, k] for k, v in enumerate(receivers) if senders[k] == sender}
            for v, z in by_definition(mixing, sender, own).items():
                (k,) = np.flatnonzero((senders == sender) & (receivers == v))
                np.testing.assert_allclose(found[s, k], z, atol=1e-13)
                received[s, v] += mixing[v, sender] * z
    np.testing.assert_allclose(source.received(found), received, atol=1e-13)
    np.testing.assert_allclose(received.sum(axis=1), 0, atol=1e-13)  # it cancels in the sum


@pytest.mark.parametrize("name", MIXINGS)
def test_what_is_left_of_messages_has_their_covariance(name: str) -> None:
    mixing = MIXINGS[name]
    n = len(mixing)
    covariance = np.zeros((n, n))
    for sender in range(n):
        receivers = [v for v in range(n) if mixing[v, sender] != 0]
        columns = np.zeros((n, len(receivers)))
        for place, j in enumerate(receivers):
            unit = {v: np.array([float(v == j)]) for v in receivers}
            for v, z in by_definition(mixing, sender, unit).items():
                columns[v, place] += mixing[v, sender] * z[0]
        covariance += columns @ columns.T
    root = MessageNoise(mixing=mixing)._root
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-13)
    many = WhiteNoise((1,), shape=(n, 20_000), steps=1)
    for every in (False, True):
        (found,) = MessageNoise(mixing=mixing, every_message=every).stream(many)
        assert np.cov(found[0]) == pytest.approx(covariance, abs=6 * np.sqrt(2 / 20_000))


def test_arrays_that_are_none() -> None:
    with pytest.raises(InputError, match="root"):
        NodeNoise(root=np.ones((2, 3)))
    with pytest.raises(InputError, match="full noise alone"):
        NodeNoise(root=np.eye(2), noising=np.eye(2), full=True)
    for source in (
        NodeNoise(root=np.eye(2)),
        NodeNoise(noising=np.eye(STEPS - 1)),
        NodeNoise(noising=np.eye(STEPS), full=True),
        NodeNoise(noising=np.eye(STEPS * NODES * 2), full=True),  # of twice as many nodes
    ):
        with pytest.raises(InputError, match="as many nodes and steps as are trained"):
            drawn(source)
