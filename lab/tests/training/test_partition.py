"""Partitions of records: every record once, the same for a seed, and what limits say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training import partition
from noisedesign_lab.training.partition import Standardization, by_user, dirichlet, iid, split

LABELS = np.repeat([-1.0, 1.0], [300, 100])
OWNERS = np.repeat(np.arange(7), [5, 1, 9, 2, 2, 8, 3])
PARTITIONS = {
    "iid": iid(41, 7),
    "dirichlet": dirichlet(LABELS, 6, concentration=1.0),
    "by user": by_user(OWNERS, 3),
}
COUNTS = {"iid": 41, "dirichlet": 400, "by user": 30}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_record_is_at_one_node_and_a_seed_decides_which(name: str) -> None:
    draw = PARTITIONS[name]
    parts = draw(rng())
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(COUNTS[name]))
    for part, again in zip(parts, draw(rng()), strict=True):
        assert len(part)
        np.testing.assert_array_equal(part, np.sort(part))
        np.testing.assert_array_equal(part, again)
    other = draw(rng(1))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(parts, other, strict=True))


@given(count=st.integers(1, 60), nodes=st.integers(1, 60))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_dealt_as_evenly_as_possible(count: int, nodes: int) -> None:
    if nodes > count:
        with pytest.raises(InputError, match=r"^partition\.nodes: expected at most"):
            iid(count, nodes)
        return
    sizes = sorted(len(part) for part in iid(count, nodes)(rng()))
    assert sizes == sorted([count // nodes + (at < count % nodes) for at in range(nodes)])


def test_a_large_concentration_gives_every_node_the_same_mixture() -> None:
    for part in dirichlet(LABELS, 10, concentration=1e8)(rng()):
        assert [int((LABELS[part] == label).sum()) for label in (-1, 1)] == [30, 10]


def test_a_small_concentration_gives_a_node_one_label() -> None:
    labels = np.repeat(np.arange(8.0), 50)
    parts = dirichlet(labels, 3, concentration=1e-3)(rng(2))
    for label in range(8):  # each is at one node, but for a few records
        assert max(int((labels[part] == label).sum()) for part in parts) >= 48


def test_shares_have_the_spread_of_the_distribution() -> None:
    """Var of a share of Dirichlet(a, ..., a) over n is (n - 1) / (n^2 (a n + 1)) (squared)."""
    nodes, a, records, draws = 4, 2.0, 4000, 2000
    draw, stream = dirichlet(np.zeros(records), nodes, concentration=a), rng(3)
    shares = np.array([[len(part) for part in draw(stream)] for _ in range(draws)]) / records
    variance = (nodes - 1) / (nodes**2 * (a * nodes + 1))
    error = np.sqrt(variance / draws)
    np.testing.assert_allclose(shares.mean(axis=0), 1 / nodes, atol=6 * error)
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.3)


def test_every_node_has_the_minimum_or_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = dirichlet(LABELS, 10, concentration=0.5, minimum=8)
    for seed in range(20):
        assert min(len(part) for part in draw(rng(seed))) >= 8
    monkeypatch.setattr(partition, "_TRIES", 5)
    with pytest.raises(InputError, match=r"^partition\.concentration: .*8 records or more"):
        dirichlet(LABELS, 10, concentration=1e-3, minimum=8)(rng())


def test_users_stay_whole_and_are_dealt_evenly() -> None:
    parts = by_user(OWNERS, 3)(rng())
    of = [set(OWNERS[part]) for part in parts]
    assert sorted(len(users) for users in of) == [2, 2, 3]
    assert sum(len(users) for users in of) == 7


def test_parts_of_given_shares() -> None:
    parts = split(101, {"train": 0.8, "validation": 0.1, "test": 0.1}, rng())
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 81,
        "validation": 10,
        "test": 10,
    }
    np.testing.assert_array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(101))
    again = split(101, {"train": 0.8, "validation": 0.1, "test": 0.1}, rng())
    np.testing.assert_array_equal(parts["test"], again["test"])


def test_features_are_standardised_by_the_records_to_train_on() -> None:
    train = Examples(features=rng().normal(3, 2, (50, 4)), targets=np.zeros(50))
    features = train.features.copy()
    features[:, 2] = 0.1  # its mean is rounded
    train = Examples(features=features, targets=train.targets)
    fitted = Standardization.of(train)
    there = fitted.applied(train).features
    np.testing.assert_allclose(there.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(there.std(axis=0), [1, 1, 0, 1], atol=1e-12)
    test = Examples(features=np.full((2, 4), 9.0), targets=np.ones(2), owners=np.array([4, 4]))
    expected = (9 - features.mean(axis=0)) / [*features.std(axis=0)[:2], 1, features.std(axis=0)[3]]
    moved = fitted.applied(test)
    np.testing.assert_allclose(moved.features, [expected, expected])
    np.testing.assert_array_equal(moved.owners, [4, 4])


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: iid(3, 0), "partition.nodes"),
        (lambda: dirichlet(LABELS, 3, concentration=0.0), "partition.concentration"),
        (lambda: dirichlet(LABELS, 3, concentration=1.0, minimum=0), "partition.minimum"),
        (lambda: dirichlet(LABELS, 401, concentration=1.0), "partition.nodes"),
        (lambda: dirichlet(LABELS, 41, concentration=1.0, minimum=10), "partition.nodes"),
        (lambda: by_user(OWNERS, 8), "partition.nodes"),
        (lambda: by_user(None, 2), "partition.kind"),
        (lambda: split(10, {"train": 0.8, "test": 0.3}, rng()), "split"),
        (lambda: split(10, {"train": 1.0, "test": 0.0}, rng()), "split"),
        (lambda: split(3, {"train": 0.9, "test": 0.1}, rng()), "split"),
    ],
)
def test_partitions_that_are_none(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        make()
