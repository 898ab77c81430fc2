"""Membership attacks on models that a victim sends. Both score a rating by its loss under the
victim's messages; the higher the score, the more likely a member."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata

from noisedesign.base.checks import Array

DECAY = 1e-2
"""Weight of |w|^2 / 2 beside the mean loss of the classifier."""


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


def classified(members: Array, others: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the scores of members and others that logistic regression on standardised logarithms
    of series of losses, (m, K) and (o, K), gives to those it did not learn from."""
    parts = [np.split(rng.permutation(len(x)), [round(0.7 * len(x))]) for x in (members, others)]
    logs = [np.log(x + 1e-9) for x in (members, others)]
    known = np.concatenate([x[learn] for x, (learn, _) in zip(logs, parts, strict=True)])
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale == 0] = 1.0
    inputs = np.hstack([(known - mean) / scale, np.ones((len(known), 1))])
    count = len(parts[0][0])
    labels = np.where(np.arange(len(known)) < count, 1.0, -1.0)
    weights = np.where(labels > 0, 0.5 / count, 0.5 / (len(known) - count))

    def objective(w: Array) -> tuple[float, Array]:
        margins = labels * (inputs @ w)
        slopes = -weights * labels * expit(-margins)
        value = weights @ np.logaddexp(0.0, -margins) + DECAY / 2 * w @ w
        return float(value), inputs.T @ slopes + DECAY * w

    w = minimize(objective, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x
    scores = [
        ((x[judge] - mean) / scale) @ w[:-1] for x, (_, judge) in zip(logs, parts, strict=True)
    ]
    return scores[0], scores[1]
