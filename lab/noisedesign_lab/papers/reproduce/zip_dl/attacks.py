"""Two membership attacks on the messages of a node, as published: a threshold on the loss under one
message, and a network with two hidden layers on the losses under all that are kept."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

from noisedesign.base.checks import Array

LEARNED = 0.7  # share of members and of others that the classifier learns from; the rest is judged
HIDDEN = (64, 32)  # units of the two hidden layers; this and the next three as the authors' code
BATCH = 256
STEP_SIZE = 0.01
MOMENTUM = 0.9


def roc_auc(members: Array, others: Array) -> float:
    """Probability that a member scores above another, ties counting half (Mann and Whitney)."""
    ranks = rankdata(np.concatenate([members, others]))
    m, o = len(members), len(others)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * o))


def true_positives_at(rate: float, members: Array, others: Array) -> float:
    """Share of members above a threshold that at most ``rate`` of the others exceed."""
    allowed = int(np.floor(rate * len(others) * (1 + 1e-12)))
    descending = np.sort(others)[::-1]
    threshold = descending[allowed] if allowed < len(others) else -np.inf
    return float((members > threshold).mean())


def classified(
    members: Array, others: Array, rng: np.random.Generator, *, epochs: int
) -> tuple[Array, Array]:
    """Return the scores of those it did not see, of series of losses, (count, messages) each.
    Members and others weigh the same; losses are standardised, which the published one leaves."""
    parts = [
        np.split(rng.permutation(len(x)), [round(LEARNED * len(x))]) for x in (members, others)
    ]
    pairs = list(zip((members, others), parts, strict=True))
    known = np.concatenate([x[learn] for x, (learn, _) in pairs])
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale == 0] = 1.0
    labels = np.where(np.arange(len(known)) < len(parts[0][0]), 1.0, 0.0)
    weights = np.where(labels > 0, 1 / labels.sum(), 1 / (1 - labels).sum())
    net = Network(known.shape[1], rng)
    for _ in range(epochs):
        order = rng.permutation(len(known))
        for places in np.split(order, range(BATCH, len(order), BATCH)):
            net.learn((known[places] - mean) / scale, labels[places], weights[places])
    first, second = (net.forward((x[judge] - mean) / scale)[-1][:, 0] for x, (_, judge) in pairs)
    return first, second


class Network:
    """Two hidden layers of rectified units and one output, the logit of a member."""

    def __init__(self, inputs: int, rng: np.random.Generator) -> None:
        sizes = (inputs, *HIDDEN, 1)
        # Uniform in +-1/sqrt(inputs of the layer), weights and constants, as PyTorch's Linear.
        self.layers = [
            rng.uniform(-1, 1, (before + 1, after)) / np.sqrt(before)
            for before, after in pairwise(sizes)
        ]
        self.speeds = [np.zeros_like(layer) for layer in self.layers]

    def forward(self, x: Array) -> list[Array]:
        """Return what enters each layer, and what leaves the last, shape (m, 1)."""
        found = [x]
        for layer in self.layers:
            x = found[-1] @ layer[:-1] + layer[-1]
            found.append(np.maximum(x, 0.0))
        return [*found[:-1], x]

    def gradients(self, x: Array, labels: Array, weights: Array) -> list[Array]:
        """Gradients of the weighted mean of the logistic loss by each layer."""
        *entering, logits = self.forward(x)
        slopes = (weights * (expit(logits[:, 0]) - labels) / weights.sum())[:, None]
        found = []
        for layer, inputs in zip(self.layers[::-1], entering[::-1], strict=True):
            found.append(np.concatenate([inputs.T @ slopes, slopes.sum(axis=0, keepdims=True)]))
            slopes = (slopes @ layer[:-1].T) * (inputs > 0)
        return found[::-1]

    def learn(self, x: Array, labels: Array, weights: Array) -> None:
        """Take a step of SGD with momentum."""
        found = self.gradients(x, labels, weights)
        for layer, speed, gradient in zip(self.layers, self.speeds, found, strict=True):
            speed *= MOMENTUM
            speed += gradient
            layer -= STEP_SIZE * speed
