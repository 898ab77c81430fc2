"""Optimizers step by step, by hand, and as a run takes them."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.gossip import FixedGossip
from noisedesign_lab.training.losses import Quadratic
from noisedesign_lab.training.optimizers import AdamW, Momentum, Optimizer
from noisedesign_lab.training.partition import iid
from noisedesign_lab.training.trainer import Lane, Run, train

GRADIENTS = [np.array([1.0, -2.0]), np.array([3.0, 0.5]), np.array([-1.0, 0.0])]


def test_momentum_by_hand() -> None:
    update, moved = Momentum(beta=0.75).start(), np.zeros(2)
    for gradient in GRADIENTS:
        moved = 0.75 * moved + 0.25 * gradient
        np.testing.assert_allclose(update(gradient, np.zeros(2)), moved, rtol=1e-14)


def test_adamw_by_hand() -> None:
    rule = AdamW(beta1=0.5, beta2=0.75, floor=1e-3, weight_decay=0.1)
    update, model = rule.start(), np.array([2.0, -1.0])
    first = second = np.zeros(2)
    for count, gradient in enumerate(GRADIENTS, start=1):
        first = 0.5 * first + 0.5 * gradient
        second = 0.75 * second + 0.25 * gradient**2
        mean, square = first / (1 - 0.5**count), second / (1 - 0.75**count)
        expected = mean / (np.sqrt(square) + 1e-3) + 0.1 * model
        np.testing.assert_allclose(update(gradient, model), expected, rtol=1e-13)


@pytest.mark.parametrize("rule", [None, Momentum(beta=0.5)])
def test_a_run_takes_its_steps(rule: Optimizer | None) -> None:
    """One node, a loss of slope -1 in steps of .1, .05 and .025: models are minus what is moved."""
    steps = np.array([0.1, 0.05, 0.025])
    run = Run(
        loss=Quadratic(dimension=1, curvature=0.0),
        examples=Examples(features=np.ones((6, 1)), targets=np.zeros(6)),
        partition=iid(6, 1),
        gossip=FixedGossip(mixing=np.ones((1, 1))),
        rule=FixedEpoch(epochs=1, separation=3).rule,
        horizon=3,
        optimizer=rule,
    )
    (end,) = train(run, [Lane(step_sizes=steps), Lane(step_sizes=2 * steps)], seeds=[0])
    moved = steps @ [1, 1, 1] if rule is None else steps @ [0.5, 0.75, 0.875]
    np.testing.assert_allclose(np.asarray(end.train_loss)[0], [-moved, -2 * moved], rtol=1e-13)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Momentum(beta=1.0), "beta"),
        (lambda: AdamW(beta2=-0.1), "beta2"),
        (lambda: AdamW(floor=-1.0), "floor"),
    ],
)
def test_wrong_values_are_named(make: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.field == field
