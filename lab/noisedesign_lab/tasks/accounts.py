"""The noise a mechanism needs for a budget, by the account ``fixed``, of batches in any order, or
``random``; noise that no lemma covers keeps the fixed account, and says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.privacy.amplification import Amplified, amplified, amplified_noise_of
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import Participation
from noisedesign_lab.tasks.mechanisms import Mechanism

Found = TypeVar("Found")
FIXED, RANDOM = "fixed", "random"
ACCOUNTS = (FIXED, RANDOM)
GAUSSIAN = "gaussian"  # kind of a fixed account's number: that of the Gaussian mechanism, exact
UNCOVERED = "fixed"  # kind where a random account was asked for and no lemma covers the noise
REASONS = {
    "participation": "columns of C of one record share rows",
    "adjacency": "truncated Poisson sampling has no account of add-remove",
    "delta": "delta is lost in the rounding of the account",
}
"""Why there is no account at random of a nonnegative strategy, by the field that one refuses."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Noise of one mechanism at one budget: ``mu`` (not squared) is None where the account gives
    none, ``which`` says what bounds epsilon, ``random`` whether it counts on random batches."""

    noise_multiplier: float
    epsilon: float | None
    mu: float | None
    which: str = GAUSSIAN
    confidence: float | None = None
    random: bool = False


def meeting(
    made: Mechanism, target: PrivacyTarget, *, account: str, participation: Participation
) -> Scale:
    """Return the least noise of a mechanism that meets a target by an account."""

    budget: dict[str, Any] = {"epsilon": target.epsilon, "delta": target.delta}
    budget["adjacency"] = target.adjacency
    asked = partial(amplified_noise_of, participation, **budget)
    found, reason = _of_rows(made, account, asked)
    if found is None:
        multiplier = made.noise_multiplier(target)
        return _fixed(made, multiplier, target.epsilon, target.adjacency, reason)
    multiplier, proved = found
    return _random(made.excess * multiplier, target.epsilon, proved)


def of_noise(
    made: Mechanism,
    multiplier: float,
    *,
    delta: float,
    adjacency: str,
    account: str,
    participation: Participation,
) -> Scale:
    """Return the privacy by an account of noise of that standard deviation over the clip."""

    how: dict[str, Any] = {"noise_multiplier": multiplier, "delta": delta, "adjacency": adjacency}
    found, reason = _of_rows(made, account, partial(amplified, participation, **how))
    if found is None:
        epsilon = made.epsilon(**how)
        return _fixed(made, multiplier, epsilon, adjacency, reason)
    return _random(multiplier, found.epsilon, found)


def _of_rows(
    made: Mechanism, account: str, asked: Callable[[Array], Found]
) -> tuple[Found | None, str]:
    """Return a random account of C; or None, and why the account is the fixed one."""
    if account == FIXED:
        return None, ""
    if made.strategy is None:
        return None, "no strategy over time in white noise"
    rows = np.abs(made.strategy)  # of what is negative by rounding: a bound
    if made.strategy.min() < -settings.STOCHASTIC_TOLERANCE * rows.max():
        return None, "C has negative entries"
    try:
        return asked(rows), ""
    except InputError as error:
        if error.field not in REASONS:
            raise
        return None, REASONS[error.field]


def _fixed(
    made: Mechanism, multiplier: float, epsilon: float | None, adjacency: str, reason: str
) -> Scale:
    mu = made.mu(noise_multiplier=multiplier, adjacency=adjacency)
    which = f"{UNCOVERED}: {reason}" if reason else GAUSSIAN
    told = None if math.isinf(mu) else mu
    return Scale(noise_multiplier=multiplier, epsilon=epsilon, mu=told, which=which)


def _random(multiplier: float, epsilon: float, found: Amplified) -> Scale:
    return Scale(
        noise_multiplier=multiplier,
        epsilon=epsilon,
        mu=None,
        which=found.which,
        confidence=found.confidence,
        random=True,
    )
