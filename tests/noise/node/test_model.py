"""Logistic regression against finite differences."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.noise.node.training import Examples


def examples(m: int = 12, p: int = 3) -> Examples:
    generator = np.random.default_rng(5)
    features = generator.standard_normal((m, p)) * 2
    return Examples(np.hstack([features, np.ones((m, 1))]), (np.arange(m) % 2).astype(float))


def loss(features: np.ndarray, label: float, model: np.ndarray) -> float:
    """-log of the probability that the model gives the label."""
    right = 1 / (1 + math.exp(-float(features @ model)))
    return -math.log(right if label else 1 - right)


def test_losses_and_accuracy_by_hand() -> None:
    data, model = examples(), np.array([0.3, -1.0, 0.5, 0.2])
    by_hand = [loss(x, y, model) for x, y in zip(data.features, data.labels, strict=True)]
    np.testing.assert_allclose(data.losses(model), by_hand, rtol=1e-12)
    right = [(x @ model > 0) == bool(y) for x, y in zip(data.features, data.labels, strict=True)]
    assert data.accuracy(model) == np.mean(right)


@pytest.mark.parametrize("clip", [0.1, 0.7, 100.0])
def test_every_gradient_is_clipped_on_its_own(clip: float) -> None:
    data, model = examples(), np.array([0.3, -1.0, 0.5, 0.2])
    total, step = np.zeros(4), 1e-6
    for at in (0, 3, 5, 8):
        x, y = data.features[at], data.labels[at]
        gradient = np.array(
            [(loss(x, y, model + h) - loss(x, y, model - h)) / (2 * step) for h in step * np.eye(4)]
        )
        total += gradient * min(1.0, clip / float(np.linalg.norm(gradient)))
    found = data.clipped_sum(model, np.array([0, 3, 5, 8]), clip=clip)
    np.testing.assert_allclose(found, total, atol=1e-8)


def test_far_from_the_data_nothing_overflows() -> None:
    data = examples()
    model = 1e5 * np.ones(4)
    assert np.isfinite(data.losses(model)).all()
    assert np.linalg.norm(data.clipped_sum(model, np.arange(12), clip=0.5)) <= 12 * 0.5 * (
        1 + 1e-12
    )


def test_an_empty_batch_has_no_gradient() -> None:
    assert not examples().clipped_sum(np.ones(4), np.zeros(0, dtype=np.intp), clip=1.0).any()


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_data_come_with_a_constant(tmp_path: Path) -> None:
    features = np.arange(6.0).reshape(3, 2)
    file = write(tmp_path / "d.npz", features=features, labels=np.array([0.0, 1.0, 1.0]))
    found = Examples.load(file)
    np.testing.assert_array_equal(found.features, [[0, 1, 1], [2, 3, 1], [4, 5, 1]])
    assert found.dimension == 3


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"features": np.ones((3, 2))}, "data: expected"),
        ({"features": np.ones((3, 2)), "labels": np.array([0.0, 2.0, 1.0])}, "data.labels"),
        ({"features": np.ones((3, 2)), "labels": np.ones(4)}, "data.labels"),
        ({"features": np.ones(3), "labels": np.ones(3)}, "data.features"),
        ({"features": np.full((3, 2), np.nan), "labels": np.ones(3)}, "data.features"),
        ({"features": np.array([[None]]), "labels": np.ones(1)}, "data: expected"),
    ],
)
def test_other_data_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Examples.load(write(tmp_path / "d.npz", **arrays))


def test_no_data_at_all(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("none")
    for name in ("nothing.npz", "text.npz"):
        with pytest.raises(InputError, match="features and labels"):
            Examples.load(tmp_path / name)
    assert list(itertools.islice(tmp_path.iterdir(), 2)) == [tmp_path / "text.npz"]
