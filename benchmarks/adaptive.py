"""Adaptive optimizers under independent and correlated noise: ``python -m benchmarks.adaptive``.

A network with one hidden layer learns a9a, at one epsilon, under four optimizers. Three take the
noisy gradient: SGD, AdamW and Muon (for the hidden matrix; SGD for the rest). In the fourth,
*scale, then privatize*, every record's gradient is scaled by the preconditioner that the noisy
gradients before made, and clipped and noised after; the noisy gradient is the step.

Noise is that of prefix sums: independent, or of the banded C of a design. Of every optimizer and
noise the rate with the least mean test loss over the tuning seeds is taken, which costs no privacy
here and would elsewhere; the rows are of other seeds. ``kept`` is how much of the noise stays in
the parameters at the end: the norm of the sum of the noises as the optimizer scales them, over the
root of the sum of their squares. It is 1 where nothing cancels. For Muon, which is not linear in a
gradient, it is not defined.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import noisedesign as nd
from noisedesign.noise import Plan, Secret, noise
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

Floats = NDArray[np.float64]
FEATURES, HIDDEN = 123, 32
SHAPES = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN,), ())
SIZES = [int(np.prod(shape)) for shape in SHAPES]
CLIP = 2.0  # norm of a record's gradient, not squared; less biases what all methods learn
BETAS = (0.9, 0.99)  # of AdamW and of what scales: momentum and squares
FLOOR = 1e-8  # below the root of squares
RATES: dict[str, list[float]] = {
    "SGD": [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
    "AdamW": [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1],
    "Muon": [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2],
    "scale, then privatize": [0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0],
}


def a9a(records: int) -> tuple[Floats, Floats]:
    """Binary features and labels 0 or 1 of LIBSVM's file."""
    path = Path(os.environ["NOISEDESIGN_DATA"], "a9a", "a9a")
    x, y = np.zeros((records, FEATURES)), np.zeros(records)
    with path.open(encoding="ascii") as lines:
        for at, line in zip(range(records), lines, strict=False):
            label, *ones = line.split()
            y[at] = float(label) > 0
            x[at, [int(one.partition(":")[0]) - 1 for one in ones]] = 1
    return x, y


def parts(flat: Floats) -> list[Floats]:
    pieces = np.split(flat, np.cumsum(SIZES)[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, SHAPES, strict=True)]


def clipped_sum(w: Floats, x: Floats, y: Floats, scale: Floats) -> Floats:
    """The sum of gradients times ``scale``, clipped one by one."""
    (hidden, bias, out, shift), of = parts(w), parts(scale**2)
    h = np.tanh(x @ hidden + bias)
    e = 1 / (1 + np.exp(-(h @ out + shift))) - y
    d = e[:, None] * out * (1 - h**2)
    squares = (x**2 @ of[0] * d**2 + of[1] * d**2 + of[2] * (e[:, None] * h) ** 2).sum(1)
    factors = np.minimum(1.0, CLIP / np.sqrt(squares + of[3] * e**2))
    d, e = factors[:, None] * d, factors * e
    return scale * np.concatenate([(x.T @ d).ravel(), d.sum(0), e @ h, [e.sum()]])


def judged(w: Floats, x: Floats, y: Floats) -> tuple[float, float]:
    """Mean loss, and the share of records that are right."""
    hidden, bias, out, shift = parts(w)
    z = np.tanh(x @ hidden + bias) @ out + shift
    loss = np.logaddexp(0, z) - y * z
    return float(loss.mean()), float(np.mean((z > 0) == (y > 0)))


class Torch:
    """An optimizer of torch, which takes the noisy mean."""

    scale = np.ones(sum(SIZES))

    def __init__(self, name: str, w: Floats, rate: float) -> None:
        self._w = w  # shared with the tensors
        self._tensors = [torch.from_numpy(part) for part in parts(w)]
        if name == "SGD":
            made: list[Any] = [torch.optim.SGD(self._tensors, lr=rate)]
        elif name == "AdamW":
            made = [torch.optim.AdamW(self._tensors, lr=rate, betas=BETAS, weight_decay=0.0)]
        else:
            made = [torch.optim.Muon(self._tensors[:1], lr=rate, weight_decay=0.0)]
            made.append(torch.optim.SGD(self._tensors[1:], lr=1.0))
        self._made, self._name = made, name

    def step(self, noisy: Floats, added: Floats) -> Floats:
        """Move; what the optimizer makes of the noise that was added."""
        for tensor, part in zip(self._tensors, parts(noisy), strict=True):
            tensor.grad = torch.from_numpy(np.array(part))
        for one in self._made:
            one.step()
        if self._name == "AdamW":
            state = self._made[0].state
            squares = [state[tensor]["exp_avg_sq"].numpy().ravel() for tensor in self._tensors]
            steps = float(state[self._tensors[0]]["step"])
            unbiased = np.concatenate(squares) / (1 - BETAS[1] ** steps)
            return added / (np.sqrt(unbiased) + FLOOR)
        return added if self._name == "SGD" else np.full_like(added, math.nan)


class Scaled:
    """Scale, then privatize: ``scale`` is of the steps before, and what it makes is the step.

    Without ``floor``, numbers that are noise alone would get all of the clip: it is the standard
    deviation of independent noise in the mean of a batch."""

    def __init__(self, w: Floats, rate: float, floor: float) -> None:
        self._w, self._rate, self._floor = w, rate, floor
        self.scale, self._moment, self._squares = (
            np.ones(w.size),
            np.zeros(w.size),
            np.zeros(w.size),
        )
        self._steps = 0

    def step(self, noisy: Floats, added: Floats) -> Floats:
        self._steps += 1
        self._moment = BETAS[0] * self._moment + (1 - BETAS[0]) * noisy
        self._w -= self._rate * self._moment / (1 - BETAS[0] ** self._steps)
        self._squares *= BETAS[1]
        self._squares += (1 - BETAS[1]) * (noisy / self.scale) ** 2
        scale = 1 / (np.sqrt(self._squares / (1 - BETAS[1] ** self._steps)) + self._floor)
        self.scale = scale / np.sqrt(np.mean(scale**2))  # of rms 1, as the clip is fixed
        return added


def run(
    optimizer: str,
    rate: float,
    plan: Plan | None,
    seed: int,
    *,
    batch: int,
    data: Any,
    horizon: int,
    floor: float,
) -> tuple[float, float, float]:
    """Test loss, accuracy and the noise that was kept."""
    (x, y), test = data
    rng = np.random.default_rng(seed)
    w = np.concatenate([rng.standard_normal(SIZES[0]) / math.sqrt(14), np.zeros(HIDDEN)])
    w = np.concatenate([w, rng.standard_normal(HIDDEN) / math.sqrt(HIDDEN), [0.0]])
    made = Scaled(w, rate, floor) if "scale" in optimizer else None
    moves: Any = made or Torch(optimizer, w, rate)
    source = None
    if plan is not None:
        source = noise(plan, secret=Secret(rng.bytes(32)), record=False)
    order = rng.permutation(len(x))
    total, squares = np.zeros(w.size), 0.0
    for t in range(horizon):
        at = order[np.arange(t * batch, (t + 1) * batch) % len(x)]
        sums = clipped_sum(w, x[at], y[at], moves.scale)
        added = np.zeros(w.size) if source is None else source.step(t, w.size)
        stays = moves.step((sums + added) / batch, added)
        total += stays
        squares += float(stays @ stays)
    loss, right = judged(w, *test)
    return loss, right, float(np.linalg.norm(total) / math.sqrt(squares)) if squares else 0.0


def plans(*, epochs: int, separation: int, epsilon: float, bands: int) -> dict[str, Plan | None]:
    problem = nd.TimeProblem.prefix(
        participation=nd.participation.FixedEpoch(epochs=epochs, separation=separation),
        structure=nd.TimeStructure(kind="banded", bands=bands),
        privacy=nd.PrivacyTarget(epsilon=epsilon, delta=1e-5, clip=CLIP),
    )
    return {
        "none": None,
        "independent": nd.baseline(problem, "ldp").node_plan(0),
        "correlated": nd.solve(problem).design.node_plan(0),
    }


def row_of(
    optimizer: str, name: str, trained: Callable[..., Any], *, tune: int, runs: int
) -> Record:
    losses = {
        rate: np.mean([trained(rate, seed)[0] for seed in range(tune)]) for rate in RATES[optimizer]
    }
    rate = min(losses, key=lambda one: losses[one])
    found = np.array([trained(rate, 1000 + seed) for seed in range(runs)])
    error = found[:, 0].std(ddof=1) / math.sqrt(runs)
    return {
        "optimizer": optimizer,
        "noise": name,
        "rate": rate,
        "test loss": found[:, 0].mean(),
        "standard error": error,
        "accuracy": found[:, 1].mean(),
        "its error": found[:, 1].std(ddof=1) / math.sqrt(runs),
        "kept": found[:, 2].mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batches", type=int, default=16, help="a round")
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--bands", type=int, default=16)
    parser.add_argument("--tune", type=int, default=2, help="seeds of which the rate is taken")
    parser.add_argument("--runs", type=int, default=8, help="seeds of a row")
    given = parser.parse_args()
    torch.set_num_threads(1)
    records = given.batches * given.batch_size
    x, y = a9a(2 * records)
    data = (x[:records], y[:records]), (x[records:], y[records:])
    made = plans(
        epochs=given.epochs, separation=given.batches, epsilon=given.epsilon, bands=given.bands
    )
    horizon, rows = given.epochs * given.batches, []
    independent = made["independent"]
    assert independent is not None
    how = {"batch": given.batch_size, "data": data, "horizon": horizon}
    how["floor"] = independent.claim.noise_stddev / given.batch_size
    for optimizer in RATES:
        for name, plan in made.items():

            def trained(rate: float, seed: int, of: str = optimizer, by: Any = plan) -> Any:
                return run(of, rate, by, seed, **how)

            rows.append(row_of(optimizer, name, trained, tune=given.tune, runs=given.runs))
    title = f"a9a, {records} records, {horizon} steps, epsilon {given.epsilon:g}"
    report.print_table(rows, list(rows[0]), title=title)


if __name__ == "__main__":
    main()
