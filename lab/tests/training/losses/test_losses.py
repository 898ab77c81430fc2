"""Gradients of every loss, clipped one by one: against the definition, an example at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import Array, InputError
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training import losses
from noisedesign_lab.training.losses import (
    MLP,
    Batch,
    LeastSquares,
    Logistic,
    Loss,
    MatrixFactorization,
    Quadratics,
    loss as blocks,
    whisper_quadratics,
)
from tests.support import loss_oracles as oracles

SEEDS, NODES, LANES, SIZE, RECORDS = 2, 3, 4, 5, 17


@dataclass(frozen=True)
class Case:
    """A loss, the same by its definition, and data for it."""

    loss: Any
    one: oracles.OneLoss
    features: Callable[[np.random.Generator], Array]
    targets: Callable[[np.random.Generator], Array]
    smooth: bool = True

    def gradient(self, model: Array, features: Array, target: float) -> Array:
        by = oracles.complex_step if self.smooth else oracles.central_difference
        return by(self.one, model, features, target)


def normal(columns: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.standard_normal((RECORDS, columns))


def real(rng: np.random.Generator) -> Array:
    return rng.standard_normal(RECORDS)


def signs(rng: np.random.Generator) -> Array:
    return rng.choice([-1.0, 1.0], RECORDS)


def pairs(rng: np.random.Generator) -> Array:
    return np.stack([rng.integers(4, size=RECORDS), rng.integers(3, size=RECORDS)], 1).astype(float)


def numbers(rng: np.random.Generator) -> Array:
    return rng.integers(3, size=(RECORDS, 1)).astype(float)


def some_quadratics() -> Quadratics:
    rng = np.random.default_rng(8)
    roots = rng.standard_normal((3, 2, 2))
    curvatures = roots @ roots.swapaxes(-1, -2)
    return Quadratics(
        curvatures=curvatures,
        centers=rng.standard_normal((3, 2)),
        slopes=rng.standard_normal((3, 2)),
    )


QUADRATICS = some_quadratics()
CASES = {
    "logistic": Case(Logistic(features=6), oracles.logistic(0.0, False), normal(6), signs),
    "logistic, regularised, intercept": Case(
        Logistic(features=6, regularization=0.3, intercept=True),
        oracles.logistic(0.3, True),
        normal(6),
        signs,
    ),
    "least squares, regularised, intercept": Case(
        LeastSquares(features=6, regularization=0.3, intercept=True),
        oracles.least_squares(0.3, True),
        normal(6),
        real,
    ),
    "mlp": Case(MLP(features=3, hidden=5), oracles.mlp(3, 5), normal(3), real, smooth=False),
    "mlp, one of each": Case(
        MLP(features=1, hidden=1), oracles.mlp(1, 1), normal(1), real, smooth=False
    ),
    "matrix factorization": Case(
        MatrixFactorization(users=4, items=3, factors=2, center=0.5),
        oracles.matrix_factorization(4, 2, 0.5),
        pairs,
        real,
    ),
    "matrix factorization, all shared": Case(
        MatrixFactorization(users=4, items=3, factors=2, private_users=False),
        oracles.matrix_factorization(4, 2, 0.0),
        pairs,
        real,
    ),
    "quadratics": Case(
        QUADRATICS,
        oracles.quadratics(QUADRATICS.curvatures, QUADRATICS.centers, QUADRATICS.slopes),
        numbers,
        lambda rng: np.zeros(RECORDS),
    ),
}


def drawn(case: Case, seed: int = 1) -> tuple[Array, Batch]:
    """Models of every lane, and batches of which some are not full."""
    rng = np.random.default_rng(seed)
    examples = Examples(features=case.features(rng), targets=case.targets(rng))
    places = rng.integers(RECORDS, size=(SEEDS, NODES, SIZE))
    present = (np.arange(SIZE) < rng.integers(1, SIZE + 1, size=(SEEDS, NODES, 1))).astype(float)
    present[0, 0] = 0  # a batch of nobody
    models = rng.standard_normal((SEEDS, NODES, LANES, case.loss.dimension))
    return models, Batch(examples=examples, places=places, present=present)


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["all clipped", "half", "none clipped"])
def test_clipped_sums_are_those_of_a_loop(case: Case, share: float) -> None:
    models, batch = drawn(case)
    private = case.loss.private
    _, norms = oracles.loop(case.gradient, models, batch, clip=np.inf, private=private)
    clip = np.inf if share == 1 else float(np.quantile(norms, share)) * (1.0 if share else 0.5)
    expected, _ = oracles.loop(case.gradient, models, batch, clip=clip, private=private)
    if share == 0.5:
        assert 0.2 < np.mean(np.array(norms) > clip) < 0.8
    before = models.copy()
    sums = case.loss.clipped_sums(models, batch, clip=clip)
    assert sums.dtype == np.float64
    assert not np.shares_memory(sums, models)
    np.testing.assert_array_equal(models, before)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        sums, expected, rtol=0, atol=scale * (1e-12 if case.smooth else 1e-8)
    )
    assert not sums[0, 0].any()


def test_values_are_means_of_the_definition(case: Case) -> None:
    models, batch = drawn(case)
    examples = batch.examples
    of_one = [
        [
            case.one(model, x, y).real
            for x, y in zip(examples.features, examples.targets, strict=True)
        ]
        for model in models.reshape(-1, case.loss.dimension)
    ]
    expected = np.mean(of_one, axis=1).reshape(SEEDS, NODES, LANES)
    np.testing.assert_allclose(case.loss.value(models, examples), expected, rtol=1e-12)
    one = case.loss.value(models[0, 0, 0], examples)
    assert one.shape == ()
    np.testing.assert_allclose(one, expected[0, 0, 0], rtol=1e-12)


def test_what_leaves_a_node_is_at_most_the_clip(case: Case) -> None:
    """A batch of one, far from any optimum, and where gradients are tiny or huge."""
    models, batch = drawn(case)
    alone = Batch(
        examples=batch.examples, places=batch.places[..., :1], present=np.ones((SEEDS, NODES, 1))
    )
    leaving = np.ones(case.loss.dimension, dtype=bool)
    if case.loss.private is not None:
        leaving[case.loss.private] = False
    for clip in (1e-6, 0.1, 10.0):
        for scale in (0.0, 1e-3, 1e3):
            sums = case.loss.clipped_sums(models * scale, alone, clip=clip)
            assert np.isfinite(sums).all()
            assert np.linalg.norm(sums[..., leaving], axis=-1).max() <= clip * (1 + 1e-9)


def test_nodes_lanes_and_blocks_do_not_touch_each_other(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, batch = drawn(case)
    whole = case.loss.clipped_sums(models, batch, clip=0.7)
    values = case.loss.value(models, batch.examples)
    for lane in range(LANES):
        only = case.loss.clipped_sums(models[:, :, [lane]], batch, clip=0.7)
        np.testing.assert_allclose(whole[:, :, [lane]], only, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(blocks, "ENTRIES", 1)
    np.testing.assert_allclose(
        case.loss.clipped_sums(models, batch, clip=0.7), whole, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(case.loss.value(models, batch.examples), values, rtol=1e-12)


def test_what_fills_a_batch_up_counts_nothing(case: Case) -> None:
    models, batch = drawn(case)
    others = np.where(batch.present > 0, batch.places, (batch.places + 1) % RECORDS)
    filled = Batch(examples=batch.examples, places=others, present=batch.present)
    np.testing.assert_array_equal(
        case.loss.clipped_sums(models, batch, clip=0.7),
        case.loss.clipped_sums(models, filled, clip=0.7),
    )


def test_starts_are_of_the_loss_and_the_seed(case: Case) -> None:
    loss: Loss = case.loss
    start = loss.start(np.random.default_rng(3))
    assert start.shape == (loss.dimension,)
    assert start.dtype == np.float64
    np.testing.assert_array_equal(start, loss.start(np.random.default_rng(3)))


# --- each loss of its own ------------------------------------------------------------------------


def test_every_loss_is_tried_here() -> None:
    tried = {type(case.loss).__name__ for case in CASES.values()}
    others = {"Batch", "Loss", "Quadratic", "ResNet", "whisper_quadratics"}  # see test_images
    assert set(losses.__all__) == tried | others


def test_the_model_of_the_housing_experiment_has_641_coordinates() -> None:
    loss = MLP(features=8)
    assert loss.dimension == 641
    start = loss.start(np.random.default_rng(0))
    first, last = np.abs(start[: 64 * 9]), np.abs(start[64 * 9 :])
    assert 0.95 / np.sqrt(8) < first.max() <= 1 / np.sqrt(8)
    assert 0.95 / 8 < last.max() <= 1 / 8


def test_a_unit_at_its_kink_is_off() -> None:
    loss = MLP(features=1, hidden=1)
    examples = Examples(features=np.array([[1.0]]), targets=np.array([3.0]))
    batch = Batch(examples=examples, places=np.zeros((1, 1, 1), int), present=np.ones((1, 1, 1)))
    model = np.array([2.0, -2.0, 5.0, 1.0])  # 2 * 1 - 2 = 0 enters the unit
    sums = loss.clipped_sums(model[None, None, None], batch, clip=np.inf)
    np.testing.assert_array_equal(sums[0, 0, 0], [0, 0, 0, 2 * (1 - 3)])


def test_labels_told_by_the_side_of_a_hyperplane() -> None:
    loss = Logistic(features=1, intercept=True)
    examples = Examples(features=np.array([[1.0], [2.0], [3.0]]), targets=np.array([-1.0, 1, 1]))
    models = np.array([[1.0, -1.5], [0.0, 0.0], [0.0, 1.0], [-1.0, 1.5], [1.0, -2.0]])
    np.testing.assert_allclose(loss.accuracy(models, examples), [1, 0, 2 / 3, 0, 2 / 3])


def test_logistic_far_from_its_labels_overflows_nowhere() -> None:
    loss = Logistic(features=1)
    examples = Examples(features=np.array([[1e4]]), targets=np.array([1.0]))
    batch = Batch(examples=examples, places=np.zeros((1, 1, 1), int), present=np.ones((1, 1, 1)))
    models = np.array([-1.0, 1.0])[:, None][None, None]
    sums = loss.clipped_sums(models, batch, clip=np.inf)
    np.testing.assert_allclose(sums[0, 0, :, 0], [-1e4, 0])
    np.testing.assert_allclose(loss.value(models, examples)[0, 0], [1e4, 0])


def test_private_factors_are_those_of_users() -> None:
    loss = MatrixFactorization(users=4, items=3, factors=2)
    assert loss.dimension == 14
    assert loss.private == slice(0, 8)
    assert MatrixFactorization(users=4, items=3, private_users=False).private is None


def test_a_film_rated_twice_in_a_batch_moves_twice() -> None:
    loss = MatrixFactorization(users=1, items=1, factors=1, private_users=False)
    examples = Examples(features=np.zeros((1, 2)), targets=np.array([1.0]))
    batch = Batch(examples=examples, places=np.zeros((1, 1, 3), int), present=np.ones((1, 1, 3)))
    sums = loss.clipped_sums(np.array([2.0, 3.0])[None, None, None], batch, clip=np.inf)
    np.testing.assert_array_equal(sums[0, 0, 0], [3 * 2 * 5 * 3, 3 * 2 * 5 * 2])


def test_quadratics_of_whisper_by_hand() -> None:
    """Nodes 1 to 10 are upright around (-i, 0), nodes 11 to 20 turned around (i, 0)."""
    loss = whisper_quadratics()
    examples = loss.examples
    assert len(examples) == 20
    x = np.array([0.7, -1.3])
    for node in (1, 10):
        expected = 15 * (0.7 + node) ** 2 + 1.3**2
        np.testing.assert_allclose(loss.value(x, examples.at(np.array([node - 1]))), expected)
    turn = np.array(
        [[np.cos(np.pi / 12), -np.sin(np.pi / 12)], [np.sin(np.pi / 12), np.cos(np.pi / 12)]]
    )
    for node in (11, 20):
        along, across = turn.T @ (x - [node, 0])  # seen along the turned axes
        expected = 15 * along**2 + across**2
        np.testing.assert_allclose(loss.value(x, examples.at(np.array([node - 1]))), expected)
        assert loss.value(np.array([node, 0.0]), examples.at(np.array([node - 1]))) == 0
    best = loss.minimizer
    for step in np.eye(2) * 1e-3:
        assert loss.value(best, examples) < min(
            loss.value(best + s * step, examples) for s in (1, -1)
        )


def test_quadratics_as_whisper_prints_them_have_no_minimizer() -> None:
    loss = whisper_quadratics(as_printed=True)
    one = loss.examples.at(np.array([2]))
    np.testing.assert_allclose(loss.value(np.array([0.5, -4.0]), one), 15 * 3.5**2 - 4)
    down = np.array([0.0, -1.0])
    values = [loss.value(size * down, one) for size in (1e3, 1e6)]
    assert values[1] < values[0] < 0
    with pytest.raises(InputError, match="^loss: expected a strictly convex sum"):
        whisper_quadratics(2, degrees=0, as_printed=True).minimizer  # noqa: B018
    with pytest.raises(InputError, match=r"^loss\.nodes: expected an even number, got 3"):
        whisper_quadratics(3)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Logistic(features=0), "loss.features"),
        (lambda: Logistic(features=2, regularization=-1.0), "loss.regularization"),
        (lambda: MLP(features=2, hidden=0), "loss.hidden"),
        (lambda: MLP(features=2.0), "loss.features"),
        (lambda: MatrixFactorization(users=0, items=1), "loss.users"),
        (lambda: MatrixFactorization(users=1, items=1, center=np.nan), "loss.center"),
        (
            lambda: Quadratics(curvatures=np.ones((1, 2, 3)), centers=np.ones((1, 2))),
            "loss.curvatures",
        ),
        (
            lambda: Quadratics(curvatures=np.array([[[1.0, 2], [3, 4]]]), centers=np.ones((1, 2))),
            "loss.curvatures",
        ),
    ],
)
def test_losses_that_are_none(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        make()
